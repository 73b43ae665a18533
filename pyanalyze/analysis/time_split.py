"""Split the time of each process into kernels, copies, launching, other CUDA calls and the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import LAUNCH_GAP_NS
from pyanalyze.results.time_split import Limit, TimeSplit
from pyanalyze.tables.selections import call_name, named, of_process
from pyanalyze.vocabulary import NAMED_SHARE, SMALL_SHARE

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["time_splits"]

#: Names that libraries give to all of their kernels: `cutlass::Kernel<...>`.
_GENERIC = r"^(device_?)?[kK]ernel\d*$"
#: CUDA calls that hand over work and return: while one runs in a short gap, the process is launching.
_HANDS_OVER = r"Launch|Async|EventRecord|StreamWaitEvent"
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
        The tables. API calls are read where a tenant had nothing on the device for a notable part of its time: in gaps
        up to 250 us for 2 %, in longer ones for 1 %.

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
        read = idle_ns >= NAMED_SHARE * window_ns or row["launch_gap_ns"] >= SMALL_SHARE * window_ns
        found_calls = calls.of(row) if read else None
        long_ns, short_ns = (0, 0) if found_calls is None else (found_calls.long_ns, found_calls.short_ns)
        long_ns, short_ns = min(long_ns, idle_ns), min(short_ns, row["launch_gap_ns"])
        by_name = {} if found_calls is None else found_calls.by_name
        call = max(by_name, key=lambda name: by_name[name][0], default=None) if long_ns + short_ns else None
        top = top_kernels.get((row["device_id"], row["tenant_id"]), _TopKernel(None, 0, 0, 0))
        parts = {
            Limit.KERNELS: row["busy_ns"],
            Limit.COPIES: row["copy_only_ns"] or 0,
            Limit.LAUNCHES: row["launch_gap_ns"] - short_ns,
            Limit.API_CALLS: long_ns + short_ns,
            Limit.HOST: idle_ns - long_ns,
        }
        found[row["device_id"], row["tenant_id"]] = TimeSplit(
            limit=max(parts, key=lambda limit: parts[limit]),
            window_ns=window_ns,
            kernels_ns=parts[Limit.KERNELS],
            copies_ns=parts[Limit.COPIES],
            launches_ns=parts[Limit.LAUNCHES],
            api_calls_ns=None if found_calls is None else parts[Limit.API_CALLS],
            host_ns=parts[Limit.HOST],
            api_call=call,
            api_call_ns=0 if call is None else min(by_name[call][0], parts[Limit.API_CALLS]),
            api_call_count=0 if call is None else by_name[call][1],
            top_kernel=top.name,
            top_kernel_ns=top.ns,
            top_kernel_share=top.ns / top.all_ns if top.all_ns else None,
            top_kernel_kinds=top.kinds,
        )
    return found


@dataclass(frozen=True)
class _TopKernel:
    """Name of the kernel with most time, its time, and that of all; how many kernels have that name."""

    name: str | None
    ns: int
    all_ns: int
    kinds: int


def _top_kernels(tables: TableSet) -> dict[tuple[int, int], _TopKernel]:
    """The kernel name with most time, by device and tenant."""
    import polars as pl

    # One name for very different kernels says nothing: their first template argument tells them apart.
    plain, full = pl.col("short_name").cast(pl.String), pl.col("name").cast(pl.String)
    inner = full.str.extract(r"[kK]ernel\w*<\(?(?:\w+::)*(\w+)")
    told = pl.when(plain.str.contains(_GENERIC)).then(pl.format("{}<{}>", plain, inner)).fill_null(plain)
    tenant = ["device_id", "tenant_id"]
    named = tables.kernel_occupancy.group_by(*tenant, told.alias("short_name"))
    names = named.agg(pl.col("total_ns").sum(), kinds=full.n_unique())
    names = names.sort(*tenant, "total_ns", "short_name", descending=[False, False, True, False])
    top = names.group_by(tenant, maintain_order=True).agg(
        pl.first("short_name"), top_ns=pl.first("total_ns"), all_ns=pl.sum("total_ns"), kinds=pl.first("kinds")
    )
    return {(device, one): _TopKernel(*told) for device, one, *told in top.iter_rows()}


@dataclass(frozen=True)
class _Calls:
    """CUDA calls while a tenant had nothing on the device.

    Attributes
    ----------
    long_ns
        In gaps longer than launching takes, of all calls, counted once.
    short_ns
        In shorter gaps, of calls that hand over no work, where none that does ran beside them.
    by_name
        By name, the sum of both, and how many calls.
    """

    long_ns: int
    short_ns: int
    by_name: dict[str, tuple[int, int]]


class _CallsInGaps:
    """CUDA calls in the gaps of tenants: what a process called and did is told apart once, for all of them."""

    def __init__(self, tables: TableSet) -> None:
        self._tables = tables

    def of(self, tenant: dict[str, int | None]) -> _Calls | None:
        """CUDA calls in the gaps of a tenant; None: none was recorded."""
        import polars as pl

        own = self._calls.get((tenant["capture"], tenant["pid"]))
        if own is None:
            return None
        gaps = self._gaps(tenant)
        long = (pl.col("end_ns") - pl.col("start_ns") > LAUNCH_GAP_NS) | pl.col("migration")
        long_gaps, short_gaps = gaps.filter(long), gaps.filter(~long)
        hands_over = named(own, _HANDS_OVER)
        handing, others = own.filter(hands_over), own.filter(~hands_over)
        if not long_gaps.height and not others.height:
            # Of millions of calls that hand over work nothing is to be added up.
            return _Calls(0, 0, {})
        every = _union(own)
        launching_ns = _covered_by(_union(handing), short_gaps)
        inside = pl.concat([_inside(handing, long_gaps), _inside(others, gaps)])
        sums = inside.group_by("name").agg(pl.col("ns").sum(), pl.len().alias("calls")).sort("name")
        return _Calls(
            _covered_by(every, long_gaps),
            _covered_by(every, short_gaps) - launching_ns,
            {name: (ns, calls) for name, ns, calls in sums.iter_rows()},
        )

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
        return pl.concat(self._rows(name).filter(mine) for name in _WORK)

    @cached_property
    def _work(self) -> dict[tuple[object, ...], pl.DataFrame]:
        """Kernels, copies and graphs by device, capture and pid."""
        import polars as pl

        work = pl.concat(self._rows(name) for name in _WORK)
        return work.partition_by(_PROCESS, as_dict=True)

    def _rows(self, name: str) -> pl.DataFrame:
        """Times of a table of work, and whether each was a migration of unified memory, which nobody launches."""
        import polars as pl

        if name != "memops":
            return self._tables.columns(name, *_PROCESS, "start_ns", "end_ns").with_columns(
                migration=pl.lit(value=False)
            )
        rows = self._tables.columns(name, *_PROCESS, "start_ns", "end_ns", "correlation_id")
        migration = (pl.col("correlation_id") == 0).fill_null(value=False)
        return rows.select(*_PROCESS, "start_ns", "end_ns", migration=migration)

    def _gaps(self, tenant: dict[str, int | None]) -> pl.DataFrame:
        """Gaps between the operations of a tenant, in order."""
        import polars as pl

        work = self._work_of(tenant).sort("start_ns")
        gaps = work.select("migration", start_ns=pl.col("end_ns").cum_max().shift(1), end_ns="start_ns").drop_nulls()
        return gaps.filter(pl.col("end_ns") > pl.col("start_ns"))


def _union(calls: pl.DataFrame) -> pl.DataFrame:
    """When any of these calls ran."""
    import polars as pl

    calls = calls.sort("start_ns").select("start_ns", "end_ns")
    until = pl.col("end_ns").cum_max().shift(1).fill_null(_EVER)
    return calls.with_columns(start_ns=pl.max_horizontal("start_ns", until)).filter(
        pl.col("start_ns") < pl.col("end_ns")
    )


def _inside(calls: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Calls that ran in gaps, by name, with their time in them."""
    import polars as pl

    ns = _covered(gaps, calls["end_ns"]) - _covered(gaps, calls["start_ns"])
    return calls.select("name", ns=ns).filter(pl.col("ns") > 0).select(call_name(), "ns")


def _covered_by(calls: pl.DataFrame, gaps: pl.DataFrame) -> int:
    """Time of calls, none beside another, in gaps."""
    return int((_covered(gaps, calls["end_ns"]) - _covered(gaps, calls["start_ns"])).sum())


def _covered(gaps: pl.DataFrame, times: pl.Series) -> pl.Series:
    """Time in gaps before each of these times."""
    import polars as pl

    lengths = gaps["end_ns"] - gaps["start_ns"]
    before = pl.concat([pl.Series([0], dtype=pl.Int64), lengths.cum_sum()])
    begun = gaps["start_ns"].search_sorted(times, side="left")
    # The last gap that began may not have ended.
    ends = pl.concat([pl.Series([_EVER], dtype=pl.Int64), gaps["end_ns"]])
    return before.gather(begun) - (ends.gather(begun) - times).clip(lower_bound=0)
