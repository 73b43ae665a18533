"""The window, the time in which all tenants were at work, and shares of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.occupancy import in_flight_ns
from pyanalyze.report.fill.how import serving_tenants
from pyanalyze.report.sentences.co_run import co_run_part
from pyanalyze.results.report import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pyanalyze.results.report import Device, Tenant
    from pyanalyze.tables.tableset import TableSet

#: Part of the time in which all were at work from which on a pause of all divides it.
_LONG_PAUSE = 0.25


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


def gap_share(tables: TableSet, device_id: int, window: Window) -> float:
    """The part of a time that gaps of the switches that begin in it take."""
    import polars as pl

    inside = pl.col("time_ns").is_between(window.start_ns, window.end_ns) & (pl.col("kind") == "switch")
    gaps_ns = int(tables.of_device("switches", device_id).filter(inside)["gap_ns"].sum())
    return gaps_ns / (window.end_ns - window.start_ns)


def all_at_work_of(tables: TableSet, usage: pl.DataFrame, device_id: int, group: frozenset[int]) -> Window | None:
    """The time between the begin of the last tenant and the end of the first; an MPS server has no work of its own.

    Of a time in which nobody had work for long (all wait for the start, say) only what lies before or after counts:
    whichever has more work.
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
    # Who was busy for most of it leaves no room for a long pause of all.
    if int(working["busy_ns"].max() or 0) > (1 - _LONG_PAUSE) * (last - first):  # type: ignore[arg-type]
        return Window(start_ns=first, end_ns=last)
    pause_ns = _LONG_PAUSE * (last - first)
    # Other work can only shorten what kernels leave: mostly they say it, and millions of rows need not be copied.
    if _longest_without_kernels_ns(tables, device_id, first, last) < pause_ns:
        return Window(start_ns=first, end_ns=last)
    inside = (pl.col("device_id") == device_id) & (pl.col("end_ns") > first) & (pl.col("start_ns") < last)
    work = pl.concat(
        tables.columns(name, "device_id", "start_ns", "end_ns").filter(inside)
        for name in ("kernels", "graph_launches", "memops")
    ).sort("start_ns")
    idle = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1)
    pauses = work.with_columns(idle=idle).filter(pl.col("idle") >= pause_ns)
    if pauses.is_empty():
        return Window(start_ns=first, end_ns=last)
    ends, idle_ns = pauses.sort("idle").select("start_ns", "idle").row(-1)
    if 2 * work.filter(pl.col("start_ns") >= ends).height >= work.height:
        return Window(start_ns=ends, end_ns=last)
    return Window(start_ns=first, end_ns=ends - idle_ns)


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
        for name in ("kernels", "graph_launches", "memops")
    )
    launched = calls.join(first.filter(pl.col("correlation_id") > 0), on=process, how="semi", nulls_equal=True)
    found = launched["start_ns"].min()
    return found if isinstance(found, int) else None


def _longest_without_kernels_ns(tables: TableSet, device_id: int, first: int, last: int) -> int:
    """The longest part of a time in which no kernel was in flight on a device."""
    import polars as pl

    longest, until = 0, first
    for piece in tables.batches("kernels", "device_id", "start_ns", "end_ns"):
        # Kernels are in order of their start.
        here = piece.lazy().filter(pl.col("device_id") == device_id, pl.col("start_ns") < last)
        latest = pl.col("end_ns").cum_max().clip(until)
        idle = pl.col("start_ns") - latest.shift(1, fill_value=until)
        idle_ns, latest_ns = here.select(idle.max(), latest.max().alias("latest")).collect().row(0)
        longest, until = max(longest, idle_ns or 0), max(until, latest_ns or until)
    return max(longest, last - until)
