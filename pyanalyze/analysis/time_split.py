"""Split the time of each process into kernels, copies, launching, other CUDA calls and the host."""

from __future__ import annotations

from functools import cached_property
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
_PROCESS = ("device_id", "capture", "pid")
_WORK = ("kernels", "memops", "graph_launches")
#: From how many tenants on all work is told apart at once instead of looked through for each.
_MANY_TENANTS = 64


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
    top_kernels = _top_kernels(tables)
    calls = _CallsInGaps(tables)
    found = {}
    for row in usage.join(who, on=["tenant_id", "device_id"]).iter_rows(named=True):
        window_ns = row["last_ns"] - row["first_ns"]
        idle_ns = row["idle_ns"] or 0
        named_ns = calls.of(row) if idle_ns >= NAMED_SHARE * window_ns else {}
        api_ns = min(named_ns.pop(None, 0), idle_ns)
        call = max(named_ns, key=lambda name: named_ns[name], default=None)
        kernel, kernel_ns, all_ns = top_kernels.get((row["device_id"], row["tenant_id"]), (None, 0, 0))
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
            api_call_ns=0 if call is None else min(named_ns[call], api_ns),
            top_kernel=kernel,
            top_kernel_ns=kernel_ns,
            top_kernel_share=kernel_ns / all_ns if all_ns else None,
        )
    return found


def _top_kernels(tables: TableSet) -> dict[tuple[int, int], tuple[str | None, int, int]]:
    """By device and tenant: name of the kernel with most time, its time, and that of all."""
    import polars as pl

    # One name for very different kernels says nothing: their first template argument tells them apart.
    plain, full = pl.col("short_name").cast(pl.String), pl.col("name").cast(pl.String)
    inner = full.str.extract(r"[kK]ernel\w*<\(?(?:\w+::)*(\w+)")
    told = pl.when(plain.str.contains(_GENERIC)).then(pl.format("{}<{}>", plain, inner)).fill_null(plain)
    tenant = ["device_id", "tenant_id"]
    names = tables.kernel_occupancy.group_by(*tenant, told.alias("short_name")).agg(pl.col("total_ns").sum())
    names = names.sort(*tenant, "total_ns", "short_name", descending=[False, False, True, False])
    top = names.group_by(tenant, maintain_order=True).agg(
        pl.first("short_name"), top_ns=pl.first("total_ns"), all_ns=pl.sum("total_ns")
    )
    return {(device, one): (name, top_ns, all_ns) for device, one, name, top_ns, all_ns in top.iter_rows()}


class _CallsInGaps:
    """CUDA calls in the long gaps of tenants: what a process called and did is told apart once, for all of them."""

    def __init__(self, tables: TableSet) -> None:
        self._tables = tables

    def of(self, tenant: dict[str, int | None]) -> dict[str | None, int]:
        """Time of CUDA calls in the long gaps of a tenant, by name; None: of all of them, counted once."""
        import polars as pl

        own = self._calls.get((tenant["capture"], tenant["pid"]))
        if own is None:
            return {}
        gaps = self._long_gaps(tenant)
        inside = own.select(call_name(), ns=_covered(gaps, own["end_ns"]) - _covered(gaps, own["start_ns"]))
        by_name = inside.group_by("name").agg(pl.col("ns").sum()).filter(pl.col("ns") > 0)
        union = own.sort("start_ns").select("start_ns", "end_ns")
        until = pl.col("end_ns").cum_max().shift(1).fill_null(_EVER)
        union = union.with_columns(start_ns=pl.max_horizontal("start_ns", until)).filter(
            pl.col("start_ns") < pl.col("end_ns")
        )
        once = (_covered(gaps, union["end_ns"]) - _covered(gaps, union["start_ns"])).sum()
        return {None: int(once), **dict(by_name.iter_rows())}

    @cached_property
    def _calls(self) -> dict[tuple[object, ...], pl.DataFrame]:
        """Calls by capture and pid: launches as well, one that loads its code first takes milliseconds."""
        calls = self._tables.calls()
        if calls is None or calls.is_empty():
            return {}
        columns = ("capture", "pid", "name", "start_ns", "end_ns")
        return calls.select(columns).partition_by("capture", "pid", as_dict=True)

    def _work_of(self, tenant: dict[str, int | None]) -> pl.DataFrame:
        """Kernels, copies and graphs of a tenant."""
        import polars as pl

        if self._tables.row_count("tenants") > _MANY_TENANTS:
            return self._work[tenant["device_id"], tenant["capture"], tenant["pid"]]
        # A few tenants may have millions of rows each: those of one are in memory at a time.
        mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
        tables = (self._tables.columns(name, *_PROCESS, "start_ns", "end_ns").filter(mine) for name in _WORK)
        return pl.concat(tables)

    @cached_property
    def _work(self) -> dict[tuple[object, ...], pl.DataFrame]:
        """Kernels, copies and graphs by device, capture and pid."""
        import polars as pl

        work = pl.concat(self._tables.columns(name, *_PROCESS, "start_ns", "end_ns") for name in _WORK)
        return work.partition_by(_PROCESS, as_dict=True)

    def _long_gaps(self, tenant: dict[str, int | None]) -> pl.DataFrame:
        """Gaps between the operations of a tenant that are longer than launching takes, in order."""
        import polars as pl

        work = self._work_of(tenant).sort("start_ns")
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
