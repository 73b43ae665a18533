"""Split the time of each process into kernels, copies, launching, other CUDA calls and the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import LAUNCH_GAP_NS
from pyanalyze.results.time_split import Limit, TimeSplit
from pyanalyze.tables.selections import call_name, of_process
from pyanalyze.vocabulary import NAMED_SHARE

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["time_splits"]

#: Names that libraries give to all of their kernels: `cutlass::Kernel<...>`.
_GENERIC = r"^(device_?)?[kK]ernel\d*$"
#: Earlier than any time in a capture.
_EVER = -(2**62)


def time_splits(tables: TableSet) -> dict[tuple[int, int], TimeSplit]:
    """Split the time of every traced tenant.

    Parameters
    ----------
    tables
        The tables. API calls are read where a tenant had nothing on the device for a notable part of its time.

    Returns
    -------
    dict of (int, int) to TimeSplit
        By device and tenant; tenants of which no kernel or copy was recorded are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> splits = time_splits(pyanalyze.load(capture).tables)
    >>> str(splits[0, 0].limit)
    'kernels'
    """
    import polars as pl

    who = tables.tenants.filter("traced").select("tenant_id", "device_id", "capture", "pid")
    usage = tables.tenant_usage.filter(pl.col("first_ns").is_not_null(), pl.col("busy_ns").is_not_null())
    found = {}
    for row in usage.join(who, on=["tenant_id", "device_id"]).iter_rows(named=True):
        window_ns = row["last_ns"] - row["first_ns"]
        idle_ns = row["idle_ns"] or 0
        calls = _calls_in_gaps(tables, row) if idle_ns >= NAMED_SHARE * window_ns else {}
        api_ns = min(calls.pop(None, 0), idle_ns)
        call = max(calls, key=lambda name: calls[name], default=None)
        kernel, kernel_ns, all_ns = _top_kernel(tables, row["device_id"], row["tenant_id"])
        parts = {
            Limit.KERNELS: row["busy_ns"],
            Limit.COPIES: row["copy_only_ns"] or 0,
            Limit.LAUNCHES: row["launch_gap_ns"],
            Limit.API_CALLS: api_ns,
            Limit.HOST: idle_ns - api_ns,
        }
        found[row["device_id"], row["tenant_id"]] = TimeSplit(
            limit=max(parts, key=lambda limit: parts[limit]),
            window_ns=window_ns,
            kernels_ns=parts[Limit.KERNELS],
            copies_ns=parts[Limit.COPIES],
            launches_ns=parts[Limit.LAUNCHES],
            api_calls_ns=parts[Limit.API_CALLS],
            host_ns=parts[Limit.HOST],
            api_call=call,
            api_call_ns=0 if call is None else min(calls[call], api_ns),
            top_kernel=kernel,
            top_kernel_ns=kernel_ns,
            top_kernel_share=kernel_ns / all_ns if all_ns else None,
        )
    return found


def _top_kernel(tables: TableSet, device_id: int, tenant_id: int) -> tuple[str | None, int, int]:
    """Name of the kernel with most time, its time, and that of all."""
    import polars as pl

    shapes = tables.kernel_occupancy.filter(pl.col("device_id") == device_id, pl.col("tenant_id") == tenant_id)
    # One name for very different kernels says nothing: their first template argument tells them apart.
    plain, full = pl.col("short_name").cast(pl.String), pl.col("name").cast(pl.String)
    inner = full.str.extract(r"[kK]ernel\w*<\(?(?:\w+::)*(\w+)")
    told = pl.when(plain.str.contains(_GENERIC)).then(pl.format("{}<{}>", plain, inner)).fill_null(plain)
    names = shapes.group_by(told.alias("short_name")).agg(pl.col("total_ns").sum())
    names = names.sort("total_ns", "short_name", descending=[True, False])
    if names.is_empty():
        return None, 0, 0
    name, total_ns = names.row(0)
    return name, total_ns, int(names["total_ns"].sum())


def _calls_in_gaps(tables: TableSet, tenant: dict[str, int | None]) -> dict[str | None, int]:
    """Time of CUDA calls in the long gaps of a tenant, by name; None: of all of them, counted once."""
    import polars as pl

    calls = tables.calls()
    if calls is None or calls.is_empty():
        return {}
    gaps = _long_gaps(tables, tenant)
    # Launches as well: one that loads its code first takes milliseconds.
    own = calls.filter(of_process(tenant))
    inside = own.select(call_name(), ns=_covered(gaps, own["end_ns"]) - _covered(gaps, own["start_ns"]))
    by_name = inside.group_by("name").agg(pl.col("ns").sum()).filter(pl.col("ns") > 0)
    union = own.sort("start_ns").select("start_ns", "end_ns")
    until = pl.col("end_ns").cum_max().shift(1).fill_null(_EVER)
    union = union.with_columns(start_ns=pl.max_horizontal("start_ns", until)).filter(
        pl.col("start_ns") < pl.col("end_ns")
    )
    once = (_covered(gaps, union["end_ns"]) - _covered(gaps, union["start_ns"])).sum()
    return {None: int(once), **dict(by_name.iter_rows())}


def _long_gaps(tables: TableSet, tenant: dict[str, int | None]) -> pl.DataFrame:
    """Gaps between the operations of a tenant that are longer than launching takes, in order."""
    import polars as pl

    mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
    columns = ("device_id", "capture", "pid", "start_ns", "end_ns")
    work = pl.concat(
        tables.columns(name, *columns).filter(mine).select("start_ns", "end_ns")
        for name in ("kernels", "memops", "graph_launches")
    ).sort("start_ns")
    gaps = work.select(start_ns=pl.col("end_ns").cum_max().shift(1), end_ns="start_ns").drop_nulls()
    return gaps.filter(pl.col("end_ns") - pl.col("start_ns") > LAUNCH_GAP_NS)


def _covered(gaps: pl.DataFrame, times: pl.Series) -> pl.Series:
    """Time in gaps before each of these times."""
    import polars as pl

    lengths = gaps["end_ns"] - gaps["start_ns"]
    before = pl.concat([pl.Series([0], dtype=pl.Int64), lengths.cum_sum()])
    begun = gaps["start_ns"].search_sorted(times, side="left")
    # The last gap that began may not have ended.
    ends = pl.concat([pl.Series([_EVER], dtype=pl.Int64), gaps["end_ns"]])
    return before.gather(begun) - (ends.gather(begun) - times).clip(lower_bound=0)
