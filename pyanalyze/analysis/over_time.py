"""Tables for pictures over time: intervals merged to what a picture can show, and launch latency in bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.core import _core
from pyanalyze.tables.frames import to_frame

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["MOST_KERNELS", "kernels_within", "latencies", "timeline"]


def timeline(tables: TableSet, start_ns: int | None, end_ns: int | None, *, marks: int) -> pl.DataFrame:
    """Return tracks for a picture: intervals merged to at most `marks` per track. Needs `inferred_residency`.

    Parameters
    ----------
    tables
        The tables.
    start_ns, end_ns
        Window in nanoseconds; None: first, last activity.
    marks
        Most marks per device, tenant and track.

    Returns
    -------
    polars.DataFrame
        The `timeline` table.
    """
    first, last = tables.span_ns
    window = (first if start_ns is None else start_ns, last if end_ns is None else end_ns)
    inferred = tables.table("inferred_residency")
    return to_frame(_core.timeline({**tables.stored, "inferred_residency": inferred}, *window, marks, None))


#: Kernels of a device that a page counts one by one.
MOST_KERNELS = 8000


def kernels_within(
    tables: TableSet, device_id: int, window: tuple[int, int]
) -> tuple[list[tuple[int, str | None]], list[tuple[int, int, int, int]]] | None:
    """List the kernels of a device for a reader who selects a time.

    Parameters
    ----------
    tables
        The tables.
    device_id
        The device.
    window
        Start and end, ns.

    Returns
    -------
    tuple of two lists, or None
        Kinds: tenant and kernel name. Kernels by start: start after the window's, duration, attributed GPU time (all
        ns), and the place of the kind. None: there are none, or more than :data:`MOST_KERNELS`.

    Examples
    --------
    >>> import pyanalyze
    >>> kinds, rows = kernels_within(pyanalyze.load(capture).tables, 0, (0, 2 * 10**9))
    >>> len(kinds), len(rows)
    (8, 876)
    """
    kernels, parts = tables.kernels, pl.DataFrame(tables.table("kernel_attribution"))
    if kernels.height != parts.height or not kernels["start_ns"].equals(parts["start_ns"]):
        return None
    here = (
        parts.select("device_id", "tenant_id", "start_ns", "end_ns", "attributed_ns")
        .with_columns(kernels.select(name=pl.coalesce(pl.col("short_name", "name").cast(pl.String))))
        .filter(
            (pl.col("device_id") == device_id) & (pl.col("end_ns") >= window[0]) & (pl.col("start_ns") <= window[1])
        )
        .sort("start_ns")
    )
    if not 0 < here.height <= MOST_KERNELS:
        return None
    places: dict[tuple[int, str | None], int] = {}
    rows = [
        (start - window[0], end - start, attributed, places.setdefault((tenant, name), len(places)))
        for tenant, name, start, end, attributed in here.select(
            "tenant_id", "name", "start_ns", "end_ns", "attributed_ns"
        ).iter_rows()
    ]
    return list(places), rows


def latencies(tables: TableSet, device_id: int, start_ns: int | None, end_ns: int | None, *, bins: int) -> pl.DataFrame:
    """Bin how long each tenant's kernels took from launch to end; launch calls are read if they were not.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.
    start_ns, end_ns
        Window in nanoseconds; None: first, last activity.
    bins
        Equal parts of the window.

    Returns
    -------
    polars.DataFrame
        The `latencies` table.
    """
    first, last = tables.span_ns
    window = (first if start_ns is None else start_ns, last if end_ns is None else end_ns)
    read = tables.with_calls()
    names: tuple[str, ...] = ("kernels", "tenants", "api_calls")
    chosen = {name: read[name] for name in names if name in read}
    return to_frame(_core.latencies(chosen, device_id, *window, bins, None))
