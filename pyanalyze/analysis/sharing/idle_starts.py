"""How long kernels waited that a process launched while it had nothing on the device.

Nothing of its own is in their way, so what they wait for is the launch itself (a few microseconds) or another tenant: a
busy one that is time-sliced lets each of them wait for the rest of its time slice and a context switch. On a measured
RTX 6000 Ada nine of nine waited 2.16 to 2.18 ms beside such a tenant; without one, launches take under 0.1 ms. Only the
first launches after own work may be prompt beside a busy tenant, too: the context may still be resident.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS, LINGER_NS, PROMPT_NS
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.facts import Fact
from pyanalyze.results.sharing import Example
from pyanalyze.tables.selections import named

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["idle_start_facts"]

#: One that starts later than this after it waited for something that takes about a time slice.
LONG_NS = 1_000_000
#: Calls after which a stream waits for the host or for another process: such waits say nothing of time slices.
_OTHER_WAITS = r"(?i)LaunchHostFunc|StreamAddCallback|StreamWaitValue|StreamBatchMemOp|Ipc|ExternalSemaphore"
#: Launch type of kernels that wait until all their blocks fit.
_COOPERATIVE = (2, 3)
_SAME = ["capture", "pid", "correlation_id"]


def idle_start_facts(tables: TableSet, device_id: int) -> dict[str, Fact]:
    """Measure the waits of kernels that were launched while their process had nothing on the device.

    Parameters
    ----------
    tables
        The tables; launch calls are read from the capture.
    device_id
        The device, on which one process was traced.

    Returns
    -------
    dict of str to Fact
        ``idle_start_prompt_share``: of launches 0.1 ms and more after own work (``n``), the share that started within
        0.1 ms after the call returned. ``idle_start_exposure``: in how many different periods of a default time slice
        those stood. ``soon_start_prompt_share``, ``soon_start_exposure``: the same of launches sooner after own work.
        ``idle_start_delayed_share``: of all launches (``n``), the share that waited longer, up to three
        time slices; ``idle_start_delay_ns``: median of these waits, ``n`` of them. ``idle_start_wait_ns``: median of
        the waits above 1 ms, ``n`` of them; ``idle_start_wait_spread``: their median absolute deviation over it;
        ``idle_start_latency_factor``: latency of those kernels over what it would have been without the wait. Empty
        without launch calls; no waits where calls let streams wait for something else.

    Examples
    --------
    >>> import pyanalyze
    >>> facts = idle_start_facts(pyanalyze.load(capture).tables, 0)
    >>> sorted(facts)
    ['idle_start_exposure', 'idle_start_prompt_share']
    """
    calls = tables.calls()
    if calls is None or calls.is_empty():
        return {}
    waits = _waits(tables, calls, device_id)
    if waits.is_empty():
        return {}
    found = {}
    soon = pl.col("idle_ns") < LINGER_NS
    for name, some in (("idle_start", waits.filter(~soon)), ("soon_start", waits.filter(soon))):
        if some.is_empty():
            continue
        prompt = some.filter(pl.col("wait_ns") < PROMPT_NS)
        share = prompt.height / some.height
        periods = (prompt["start_ns"] // DEFAULT_SLICE_NS).n_unique()
        found[f"{name}_prompt_share"] = Fact(share, "1", some.height, "observed", "", _examples(prompt))
        found[f"{name}_exposure"] = Fact(float(periods), "1", prompt.height, "observed", "")
    if calls.select(named(calls, _OTHER_WAITS).any()).item():
        return found
    # Before the first launch of a kernel its module may be loaded.
    again = waits.filter(~pl.col("first"))
    longest_ns = t.MOST_SLICES_WAITED * t.DEFAULT_SLICE_EXCESS_NS[1]
    delayed = again.filter(pl.col("wait_ns").is_between(PROMPT_NS, longest_ns))
    if not delayed.is_empty():
        delays_ns = [float(wait_ns) for wait_ns in delayed["wait_ns"]]
        share = delayed.height / again.height
        found["idle_start_delayed_share"] = Fact(share, "1", again.height, "inferred", "", _examples(delayed))
        found["idle_start_delay_ns"] = Fact(statistics.median(delays_ns), "ns", delayed.height, "inferred", "")
    long = again.filter(pl.col("wait_ns") >= LONG_NS)
    if long.is_empty():
        return found
    lengths_ns = [float(wait_ns) for wait_ns in long["wait_ns"]]
    median = statistics.median(lengths_ns)
    spread = statistics.median(abs(wait_ns - median) for wait_ns in lengths_ns) / median
    latency_ns = float((long["end_ns"] - long["call_end_ns"]).sum())
    factor = latency_ns / max(latency_ns - sum(lengths_ns), 1.0)
    return {
        **found,
        "idle_start_wait_ns": Fact(median, "ns", long.height, "inferred", "", _examples(long)),
        "idle_start_wait_spread": Fact(spread, "1", long.height, "observed", ""),
        "idle_start_latency_factor": Fact(factor, "1", long.height, "inferred", ""),
    }


def _waits(tables: TableSet, calls: pl.DataFrame, device_id: int) -> pl.DataFrame:
    """Kernels launched while their process had nothing in flight or waiting, with their wait after the call.

    ``idle_ns``: from the end of its work to the call; ``first``: no kernel of that name ran before.
    """
    here = pl.col("device_id") == device_id
    columns = ["capture", "pid", "correlation_id", "start_ns", "end_ns"]
    process = tables.kernels.filter(here).select("capture", "pid").head(1).drop_nulls()
    # A stream may wait for work that its process has on another device.
    own = here
    for capture, pid in process.iter_rows():
        own = here | ((pl.col("capture") == capture) & (pl.col("pid") == pid))
    launched = (
        here & pl.col("graph_node_id").is_null() & ~pl.col("launch_type").is_in(_COOPERATIVE).fill_null(value=False)
    )
    kernels = tables.kernels.filter(own).select(*columns, "name", launched=launched)
    others = [
        tables.frame(name).filter(own).select(*columns, launched=pl.lit(value=False))
        for name in ("memops", "graph_launches")
    ]
    # Copies that belong to no call (migrations of managed memory) hold kernels up without another tenant, too.
    work = pl.concat([kernels, *others], how="diagonal").sort("start_ns", "end_ns")
    work = work.with_columns(before_ns=pl.col("end_ns").cum_max().shift(1), first=pl.col("name").is_first_distinct())
    starts = work.filter("launched", pl.col("before_ns") <= pl.col("start_ns"), pl.col("correlation_id").is_not_null())
    returns = calls.select(*_SAME, call_start_ns="start_ns", call_end_ns="end_ns")
    found = starts.join(returns, on=_SAME, how="inner").filter(pl.col("before_ns") <= pl.col("call_start_ns"))
    return found.with_columns(
        idle_ns=pl.col("call_start_ns") - pl.col("before_ns"), wait_ns=pl.col("start_ns") - pl.col("call_end_ns")
    )


def _examples(rows: pl.DataFrame) -> tuple[Example, ...]:
    return tuple(
        Example(
            capture=row["capture"],
            start_ns=row["call_end_ns"],
            end_ns=row["start_ns"],
            pid=row["pid"],
            correlation_id=row["correlation_id"],
        )
        for row in rows.sort("wait_ns", descending=True).head(3).iter_rows(named=True)
    )
