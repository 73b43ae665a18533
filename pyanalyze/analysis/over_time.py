"""Tables for pictures over time: intervals merged to what a picture can show, and launch latency in bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.tables.frames import to_frame

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["latencies", "timeline"]


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
