"""The window, the time in which all tenants were at work, and shares of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyanalyze.analysis.intervals import union
from pyanalyze.analysis.occupancy import in_flight_ns
from pyanalyze.report.fill.how import serving_tenants
from pyanalyze.report.sentences.co_run import co_run_part
from pyanalyze.results.report import Window
from pyanalyze.tables.selections import of_process, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.results.report import Device, Tenant
    from pyanalyze.results.residency import CostKind
    from pyanalyze.tables.tableset import TableSet

#: Part of the time in which all were at work from which on a pause of one of them, or of all, divides it; and how many
#: times as long as its next longest pause it is at least.
_LONG_PAUSE: Final = 0.25
_LONE_TIMES: Final = 3
_WORK: Final = ("kernels", "graph_launches", "memops")


def window_of(usage: pl.DataFrame) -> Window | None:
    """First to last activity of any tenant; None: there was none."""
    first, last = usage["first_ns"].min(), usage["last_ns"].max()
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    return Window(start_ns=first, end_ns=last)


def any_in_flight_ns(tables: TableSet, device_id: int, window: Window | None, tenants: Sequence[Tenant]) -> int | None:
    """The part of the window in which work of any tenant was in flight; None: their shares are of residency."""
    if window is None:
        return None
    span_ns = window.end_ns - window.start_ns
    by_work = [t for t in tenants if t.busy_ns and t.gpu_time_basis == "inferred"]
    # Of a client that was switched out with its server the share is less than its work was in flight for.
    if len(by_work) < 2 or any(round((t.gpu_time_share or 0.0) * span_ns) != t.busy_ns for t in by_work):
        return None
    return in_flight_ns(tables, device_id, ("kernels", "graph_launches"), (window.start_ns, window.end_ns))


def gpu_time_shares(tables: TableSet, device_id: int, window: Window) -> dict[int, float]:
    """GPU time shares of tenants in a part of the window, by switch records."""
    import polars as pl

    inside = pl.min_horizontal("end_ns", window.end_ns) - pl.max_horizontal("start_ns", window.start_ns)
    held = (
        tables.of_device("residency", device_id)
        .filter(pl.col("tenant_id").is_not_null(), inside > 0)
        .group_by("tenant_id")
        .agg(inside.sum())
    )
    return {tenant: ns / (window.end_ns - window.start_ns) for tenant, ns in held.iter_rows()}


def switches_within(tables: TableSet, device_id: int, window: Window, cost_kind: CostKind | None) -> dict[str, float]:
    """How many switches begin in the time in which all co-ran, and which part of it their gaps and costs take."""
    import polars as pl

    inside = pl.col("time_ns").is_between(window.start_ns, window.end_ns) & (pl.col("kind") == "switch")
    rows, span_ns = tables.of_device("switches", device_id).filter(inside), window.end_ns - window.start_ns
    return {
        "all_at_work_gap_share": int(rows["gap_ns"].sum()) / span_ns,
        "all_at_work_switches": rows.height,
        "all_at_work_overhead_fraction": int(rows["full_ns" if cost_kind == "full" else "gap_ns"].sum()) / span_ns,
    }


def all_at_work_of(tables: TableSet, usage: pl.DataFrame, device_id: int, group: frozenset[int]) -> Window | None:
    """The time between the begin of the last tenant and the end of the first; an MPS server has no work of its own.

    Of a time in which one of them, or all, had no work for long (waited for a start, loaded a library) only what lies
    before or after counts: whichever has more work.
    """
    import polars as pl

    working = usage.filter(~pl.col("tenant_id").is_in(serving_tenants(usage)), pl.col("first_ns").is_not_null())
    # Switch records name any client for all of its MPS group: of one that was not traced they are no begin and no end.
    of_group = pl.col("tenant_id").is_in(list(group))
    unknown = of_group & pl.col("busy_ns").is_null()
    working = working.with_columns(
        first_ns=pl.when(unknown).then(pl.col("first_ns").filter(of_group).min()).otherwise("first_ns"),
        last_ns=pl.when(unknown).then(pl.col("last_ns").filter(of_group).max()).otherwise("last_ns"),
    )
    first, last = working["first_ns"].max(), working["last_ns"].min()
    if working.height < 2 or not isinstance(first, int) or not isinstance(last, int) or first >= last:
        return None
    pause_ns = _LONG_PAUSE * (last - first)
    # Of a tenant that was busy for most of it no pause is long.
    paused = [row for row in working.to_dicts() if 0 < (row["busy_ns"] or 0) <= (last - first) - pause_ns]
    pauses = [pause for row in paused if (pause := _lone_pause(tables, row, first, last, pause_ns))]
    if not pauses:
        return Window(start_ns=first, end_ns=last)
    idle_ns, ends = max(pauses)
    # They may pause at once, and go on one after the other.
    at_once = [(end - ns, end) for ns, end in pauses if end > ends - idle_ns and end - ns < ends]
    begins, ends = min(begin for begin, _ in at_once), max(end for _, end in at_once)
    starts = pl.concat(
        tables.columns(name, "device_id", "start_ns")
        .filter(pl.col("device_id") == device_id, pl.col("start_ns").is_between(first, last))
        .select(later=pl.col("start_ns") >= ends)
        for name in _WORK
    )["later"]
    if 2 * int(starts.sum()) >= len(starts):
        return Window(start_ns=ends, end_ns=last)
    return Window(start_ns=first, end_ns=begins)


def _lone_pause(
    tables: TableSet, tenant: Mapping[str, Any], first: int, last: int, least_ns: float
) -> tuple[int, int] | None:
    """The longest time without work of a tenant in a part of the window, and its end; None: others are like it.

    Of a program that works now and then no pause says that it was not at work.
    """
    import polars as pl

    mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
    # Other work can only shorten what kernels leave: mostly they say it, and millions of rows need not be sorted.
    if _longest_without_kernels_ns(tables, mine, first, last) < least_ns:
        return None
    work = work_of(tables, tenant, _WORK, "start_ns", "end_ns")
    spans = union(work.filter(pl.col("end_ns") > first, pl.col("start_ns") < last))
    pauses = (
        spans.select(ns=pl.col("start_ns") - pl.col("end_ns").shift(1), ends="start_ns").drop_nulls().top_k(2, by="ns")
    )
    rows = pauses.sort("ns", descending=True).rows()
    if not rows or rows[0][0] < least_ns or (len(rows) > 1 and rows[0][0] < _LONE_TIMES * rows[1][0]):
        return None
    return rows[0]


def _longest_without_kernels_ns(tables: TableSet, mine: pl.Expr, first: int, last: int) -> int:
    """The longest part of a time in which no kernel of a process was in flight on a device."""
    import polars as pl

    longest, until = 0, first
    for piece in tables.batches("kernels", "device_id", "capture", "pid", "start_ns", "end_ns"):
        # Kernels are in order of their start.
        here = piece.lazy().filter(mine, pl.col("start_ns") < last)
        latest = pl.col("end_ns").cum_max().clip(until)
        idle = pl.col("start_ns") - latest.shift(1, fill_value=until)
        idle_ns, latest_ns = here.select(idle.max(), latest.max().alias("latest")).collect().row(0)
        longest, until = max(longest, idle_ns or 0), max(until, latest_ns or until)
    return max(longest, last - until)


def first_launch_ns(tables: TableSet, device: Device) -> int | None:
    """When the operation with which all are at work was launched; None: not known, or they are for nearly all time."""
    import polars as pl

    both, calls = device.all_at_work, None if co_run_part(device) is None else tables.calls()
    if both is None or calls is None:
        return None
    process = ("capture", "pid", "correlation_id")
    first = pl.concat(
        tables.columns(name, "device_id", "start_ns", *process)
        .filter(pl.col("device_id") == device.device_id, pl.col("start_ns") == both.start_ns)
        .select(process)
        for name in _WORK
    )
    launched = calls.join(first.filter(pl.col("correlation_id") > 0), on=process, how="semi", nulls_equal=True)
    found = launched["start_ns"].min()
    return found if isinstance(found, int) else None
