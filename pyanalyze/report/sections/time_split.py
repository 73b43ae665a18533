"""Where the time of each process went, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import LAUNCH_GAP_NS
from pyanalyze.report.blocks import Block, Cell, Column, Fold, Para, Table, value_cell
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sections.slow_requests import repeated_ranges
from pyanalyze.report.sentences.time_split import (
    PART_GLOSSES,
    calls_before_text,
    limit_text,
    one_gap_text,
    part_words,
    too_few_text,
)
from pyanalyze.results.labels import host_words, late_words, sampled_words, tenant_labels
from pyanalyze.results.time_split import Limit
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyanalyze.results.report import Device
    from pyanalyze.results.time_split import TimeSplit


#: Every moment of a process counts as the first of these that applies.
_FIRST_THAT_APPLIES = (Limit.KERNELS, Limit.COPIES, Limit.WAITING, Limit.API_CALLS, Limit.LAUNCHES, Limit.HOST)
_GAP = f"{LAUNCH_GAP_NS // 1000} us"
_COUNTS = {
    Limit.KERNELS: "a kernel, or a graph traced whole, is in flight, switched out or not",
    Limit.COPIES: "a copy, a memset or a migration is in flight",
    Limit.WAITING: "the launch call of the next operation has returned",
    Limit.API_CALLS: (
        f"a CUDA call runs in a gap over {_GAP}; in shorter gaps one that is no launch and not "
        "asynchronous, such as a synchronous copy"
    ),
    Limit.LAUNCHES: f"the gap is at most {_GAP}, and the launching thread is not in MPI or a video codec",
    Limit.HOST: "none of the above",
}


#: Of parts that were not told from launching and the host.
_NOT_SPLIT = "not split from launching and host"


def _top_kernel(split: TimeSplit) -> str:
    if split.top_kernel is None:
        return fmt.UNKNOWN
    outside = " outside whole graphs" if split.graphs_in_kernels else ""
    each = " each" if split.top_kernel_equals else ""
    named = fmt.names([visible(one, 60) for one in (split.top_kernel, *split.top_kernel_equals)])
    if split.overlapping and split.top_kernel_only_ns is not None:
        # One with more time may run beside others throughout.
        return f"{named} ({fmt.percent(split.top_kernel_only_ns / split.window_ns)} without others)"
    return f"{named} ({fmt.percent(split.top_kernel_share)}{outside}{each})"


def _part(split: TimeSplit, one: Limit) -> str:
    unread = {Limit.API_CALLS: split.api_calls_ns, Limit.WAITING: split.waiting_ns}
    if unread.get(one, 0) is None:
        return _in_gaps(split, split.launches_ns + split.host_ns)
    return fmt.percent(split.part_ns(one) / split.window_ns if split.window_ns else None)


def _in_gaps(split: TimeSplit, ns: int) -> str:
    """Where the time is of gaps so short that nobody looked for calls in them; of longer ones it is not known."""
    if not split.window_ns or ns > SMALL_SHARE * split.window_ns:
        return fmt.UNKNOWN
    said = fmt.percent(ns / split.window_ns)
    # As numbers they would count twice: launching and host have that time.
    return said if not ns or said.startswith("<") else _NOT_SPLIT


def _longest_call(split: TimeSplit) -> str:
    known = split.api_calls_ns is not None or not split.launches_ns + split.host_ns
    if split.api_call is None:
        return "none" if known else fmt.UNKNOWN
    return f"{visible(split.api_call, 60)} ({fmt.percent(split.api_call_ns / split.window_ns)})"


def _host(split: TimeSplit) -> str:
    if split.host_activity is None:
        return fmt.UNKNOWN
    calls, samples = host_words(split.host_activity), split.host_activity.cpu_samples
    if samples is None:
        return calls or "nothing recorded"
    return f"{calls or 'no traced call or range'}; CPU samples {sampled_words(samples)}"


def _phases(label: str, split: TimeSplit) -> str | None:
    """Say that a process launched kernels one by one first and graphs then, or the other way; None: it did not."""
    phases = split.launch_phases
    if phases is None:
        return None
    kernels = f"{fmt.counted(phases.kernels, 'kernel')} launched one by one ({fmt.duration(phases.kernels_ns)})"
    graphs = f"{fmt.counted(phases.graphs, 'graph')} ({fmt.duration(phases.graphs_ns)})"
    first, then = (graphs, kernels) if phases.graphs_first else (kernels, graphs)
    at = f"{phases.second_from_ns // 1000}us"
    return (
        f"{label} ran in two phases: {first}, then {then}. Averages of this report mix both; --end {at} and "
        f"--start {at} show one each."
    )


def _node_tracing(label: str, split: TimeSplit) -> str | None:
    """Say that tracing graphs by kernel adds time where their launch calls have a notable part; None: they have not."""
    calls = split.node_launch_calls
    if calls is None:
        return None
    # Beside pauses between units the time of a unit is what counts.
    within = split.within_units or split
    share, each = calls.ns / within.window_ns, fmt.duration(calls.ns / calls.count)
    whole = "its time without pauses" if within is not split else "its time"
    return (
        f"Graph launches of {label} take {each} each (mean of {fmt.count(calls.count)}), {fmt.percent(share)} of "
        f"{whole}. Tracing the kernels inside graphs lengthens them; --cuda-graph-trace=graph shows by how much."
    )


def _after_sync(label: str, split: TimeSplit, *, pauses_told: bool) -> str | None:
    """Say that launching or the host's time is mostly what follows waits of the host; None: it is not.

    `pauses_told`: pauses between units of work, which follow such waits, were told before.
    """
    gaps = split.sync_gaps
    if gaps is None:
        return None
    call, least_ns = visible(gaps.call, 40), max(SMALL_SHARE * split.window_ns, 1)
    short = (
        f"{fmt.duration(gaps.launches_ns)} of {part_words(Limit.LAUNCHES, ())} in {fmt.counted(gaps.short_gaps, 'gap')}"
    )
    short_most = 2 * gaps.launches_ns >= split.launches_ns >= least_ns
    if split.host_after_sync is None or split.host_ns < least_ns:
        late = f"The host of {label} was late because it had waited in {call} until nothing was queued"
        return f"{late}: {short}." if short_most else None
    if pauses_told and not short_most:
        return None
    # In long gaps the call is no cause: the host may have computed behind it, or waited for requests.
    median_ns = gaps.long_host_median_ns
    each = "" if median_ns is None else f" for {fmt.duration(median_ns)} (median)"
    host = f"{fmt.duration(gaps.host_ns)} of {part_words(Limit.HOST, ())} in {fmt.counted(gaps.long_gaps, 'gap')}"
    also = f" {capital(short)} followed that call as well." if short_most else ""
    return f"After {call} had waited until nothing was queued, {label} made no CUDA call{each}: {host}.{also}"


def _gaps(device: Device, labels: Mapping[int, str]) -> Iterator[str]:
    """Name the one gap that has most of the host's time of a tenant; that of an only tenant is named with its limit."""
    if len(device.tenants) == 1:
        return
    for one in device.tenants:
        split = one.time_split
        if split is not None and split.limit is Limit.HOST and split.one_gap is not None:
            yield f"{labels[one.tenant_id]}: {one_gap_text(split.one_gap, split.without_gap, one.copies)}"


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels = tenant_labels(device.tenants)
    splits = [(labels[one.tenant_id], one.time_split) for one in device.tenants if one.time_split is not None]
    if not splits:
        return []
    few = [] if len(device.tenants) == 1 else [too_few_text(label, split) for label, split in splits if split.too_few]
    splits = [(label, split) for label, split in splits if not split.too_few]
    # The table below has the other parts, and says what they count.
    said = limit_text(device, glosses=(), rest=False) or ""
    if not splits:
        return [Para(text) for text in [said, *few] if text]
    copies = [one.copies for one in device.tenants if one.time_split is not None]
    known = any(split.host_activity is not None for _, split in splits)
    graphs = any(split.whole_graphs for _, split in splits)
    rows = tuple(
        (
            Cell(visible(label)),
            Cell(fmt.duration(split.window_ns)),
            *(value_cell(_part(split, one)) for one in Limit),
            value_cell(_longest_call(split)),
            *((value_cell(_host(split)),) if known else ()),
            Cell(_top_kernel(split)),
        )
        for label, split in splits
    )
    columns = (
        Column("Tenant"),
        Column("Time", "first start to last end", True),
        *(Column(capital(part_words(one, copies, graphs=graphs)), PART_GLOSSES.get(one, ""), True) for one in Limit),
        Column("Call with most time", "with nothing in flight; share of the tenant's time"),
        *((Column("Host activity", "parts of host, of its launching thread"),) if known else ()),
        Column("Top kernel", "share of kernel time; without others: no other kernel of the tenant, while resident"),
    )
    caption = "Parts of each tenant's own time (observed). Kernels to host add up to 100 %."
    if any(split.queued_in_time for _, split in splits):
        caption += f" Queued work in gaps up to {_GAP} waits for its start or for other work, not for the host."
    before = [calls_before_text(label, split.calls_before) for label, split in splits if split.calls_before is not None]
    late = [
        f"{label}: {'. '.join(late_words(split.collective_waits))}."
        for label, split in splits
        if split.collective_waits is not None and split.collective_waits.waits
    ]
    phases = [text for label, split in splits if (text := _phases(label, split))]
    told = len(device.tenants) == 1
    waited = [
        text
        for label, split in splits
        if (text := _after_sync(label, split, pauses_told=told and split.unit_pauses is not None))
    ]
    texts = [
        said,
        *few,
        *_gaps(device, labels),
        *waited,
        *phases,
        *(text for label, split in splits if (text := _node_tracing(label, split))),
        *repeated_ranges(device),
        *(text for text in before if text not in said),
        *late,
    ]
    counts = tuple(
        (Cell(capital(part_words(one, copies, graphs=graphs))), Cell(_COUNTS[one])) for one in _FIRST_THAT_APPLIES
    )
    heads = (Column("Part"), Column("Counts while", "nothing above it applies"))
    legend = Fold("What each part counts", (Table(heads, counts),))
    return [*(Para(text) for text in texts if text), Table(columns, rows, caption), legend]


SECTION = DeviceSection("time-split", "Where the time went", _blocks)
