"""Tables for pictures over time: intervals merged to what a picture can show, and launch latency in bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.core import _core
from pyanalyze.tables.frames import to_frame

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["BUCKETS_PER_OCTAVE", "KernelsWithin", "kernels_within", "latencies", "timeline", "with_attributed"]


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
MOST_KERNELS = 5000
#: Where there are more: rows of kernels of one kind in one step of time, and kinds that have a name of their own.
_MOST_ROWS, _MOST_KINDS = 2000, 40
#: Durations are told apart by factors of 2 to the power of 1/16 (4.4 %).
BUCKETS_PER_OCTAVE = 16


@dataclass(frozen=True)
class KernelsWithin:
    """Kernels of a device for a reader who selects a time.

    Attributes
    ----------
    kinds
        Tenant and kernel name; the name None: without one, or one of many that have little time.
    rows
        Kernels by start: start after the window's, duration, attributed GPU time (all ns), and the place of the kind.
        With `step_ns`, kernels of one kind that start in one step: number of the step, place of the kind, how many, sum
        of durations, of attributed GPU time (ns), then pairs of a duration's bucket and how many are in it.
    step_ns
        Length of a step; None: each kernel has a row.
    """

    kinds: list[tuple[int, str | None]]
    rows: list[list[int]]
    step_ns: int | None = None


def kernels_within(
    tables: TableSet, device_id: int, window: tuple[int, int], *, most: int = MOST_KERNELS
) -> KernelsWithin | None:
    """List the kernels of a device for a reader who selects a time; None: there are none.

    Parameters
    ----------
    tables
        The tables.
    device_id
        The device.
    window
        Start and end, ns.
    most
        Kernels that have a row each; more are counted in steps of time.

    Examples
    --------
    >>> import pyanalyze
    >>> found = kernels_within(pyanalyze.load(capture).tables, 0, (0, 2 * 10**9))
    >>> len(found.kinds), len(found.rows)
    (8, 876)
    """
    kernels = tables.columns("kernels", "start_ns", "short_name", "name")
    parts = tables.columns("kernel_attribution", "device_id", "tenant_id", "start_ns", "end_ns", "attributed_ns")
    if kernels.height != parts.height or not kernels["start_ns"].equals(parts["start_ns"]):
        return None
    here = (
        parts.lazy()
        .with_columns(kernels["short_name"], kernels["name"])
        .filter(
            (pl.col("device_id") == device_id) & (pl.col("end_ns") >= window[0]) & (pl.col("start_ns") <= window[1])
        )
        .select(
            "tenant_id",
            "start_ns",
            "attributed_ns",
            name=pl.coalesce("short_name", "name"),
            duration_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
    )
    named = (
        here.group_by("tenant_id", "name")
        .agg(pl.len(), pl.col("duration_ns").sum())
        .collect(engine="streaming")
        .with_columns(pl.col("name").cast(pl.String))
    )
    if named.is_empty():
        return None
    if named["len"].sum() > most:
        return _in_steps(here, named, window)
    places: dict[tuple[int, str | None], int] = {}
    columns = ("tenant_id", "name", "start_ns", "duration_ns", "attributed_ns")
    rows = [
        [start - window[0], duration, attributed, places.setdefault((tenant, name), len(places))]
        # In one order for kernels that start at once, however many threads there are.
        for tenant, name, start, duration, attributed in here.sort("start_ns", maintain_order=True)
        .select(columns)
        .collect()
        .iter_rows()
    ]
    return KernelsWithin(list(places), rows)


def _in_steps(here: pl.LazyFrame, named: pl.DataFrame, window: tuple[int, int]) -> KernelsWithin:
    known = named.sort("duration_ns", "tenant_id", "name", descending=[True, False, False]).head(_MOST_KINDS)
    named = named.join(
        known.select("tenant_id", "name", kind="name"), on=["tenant_id", "name"], how="left", nulls_equal=True
    ).select("tenant_id", "name", "kind")
    kinds = list(named.select("tenant_id", "kind").unique().sort("tenant_id", "kind").iter_rows())
    step = -(-(window[1] - window[0] + 1) // max(_MOST_ROWS // len(kinds), 1))
    # A kernel that began before the window is in the first step.
    number = (pl.col("start_ns") - window[0]).clip(0) // step
    bucket = (pl.col("duration_ns").clip(1).log(2) * BUCKETS_PER_OCTAVE).floor().cast(pl.Int64)
    counted = (
        here.group_by("tenant_id", "name", step=number, bucket=bucket)
        .agg(pl.len(), pl.col("duration_ns", "attributed_ns").sum())
        .collect(engine="streaming")
        .with_columns(pl.col("name").cast(pl.String))
        .join(named, on=["tenant_id", "name"], nulls_equal=True)
        .group_by("step", "tenant_id", "kind", "bucket")
        .agg(pl.col("len", "duration_ns", "attributed_ns").sum())
        .sort("bucket")
        .group_by("step", "tenant_id", "kind")
        .agg("bucket", "len", pl.col("duration_ns", "attributed_ns").sum())
    )
    places = {kind: place for place, kind in enumerate(kinds)}
    rows = [
        [number, places[tenant, name], sum(counts), duration, attributed]
        + [value for pair in zip(buckets, counts, strict=True) for value in pair]
        for number, tenant, name, buckets, counts, duration, attributed in counted.iter_rows()
    ]
    return KernelsWithin(kinds, sorted(rows), step)


def with_attributed(tables: TableSet, tracks: pl.DataFrame) -> pl.DataFrame:
    """Add ``attributed_ns`` to marks of kernels: GPU time of the kernels that start in each; null for other tracks.

    Parameters
    ----------
    tables
        The tables.
    tracks
        What :func:`timeline` returns.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> marks = with_attributed(tables, timeline(tables, None, None, marks=50))
    >>> marks["attributed_ns"].sum() == pl.DataFrame(tables.table("kernel_attribution"))["attributed_ns"].sum()
    True
    """
    keys = ["device_id", "tenant_id"]
    tracks = tracks.with_row_index("mark")
    marks = tracks.filter(pl.col("track").cast(pl.String) == "kernels").select(*keys, "mark", "start_ns", "end_ns")
    parts = tables.columns("kernel_attribution", *keys, "start_ns", "attributed_ns").with_columns(
        pl.col(keys).cast(pl.UInt32)
    )
    found = (
        parts.sort("start_ns")
        .join_asof(marks.sort("start_ns"), on="start_ns", by=keys, strategy="backward", check_sortedness=False)
        .filter(pl.col("start_ns") <= pl.col("end_ns"))
        .group_by("mark")
        .agg(pl.col("attributed_ns").sum())
    )
    return tracks.join(found, on="mark", how="left", maintain_order="left").drop("mark")


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
