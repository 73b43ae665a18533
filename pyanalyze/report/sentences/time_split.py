"""Where the time of one program goes, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.hardware import LAUNCH_GAP_NS
from pyanalyze.report.sentences.words import KERNELS_AND_GRAPHS
from pyanalyze.results.labels import copies_words, host_words, outside_words, sampled_words, tenant_labels
from pyanalyze.results.time_split import Limit
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import NAMED_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyanalyze.results.copies import Copies
    from pyanalyze.results.report import Device
    from pyanalyze.results.time_split import CallsBefore, HostActivity, LongestGap, TimeSplit

#: What a process had on the GPU, by the part of its time that limits it.
_LIMITED_BY = {
    Limit.KERNELS: "its kernels: they were in flight for",
    Limit.COPIES: "{}: they were in flight, without a kernel, for",
    Limit.WAITING: "waiting: launched work had not started, with nothing in flight, for",
    Limit.LAUNCHES: "launching: short gaps between its operations took",
    Limit.API_CALLS: "CUDA calls: they ran, with nothing of this process on the GPU, for",
    Limit.HOST: "the host: nothing of this process was on the GPU, and no CUDA call ran, for",
}
#: The same of launched work that waits where the host does not keep the GPU waiting, and no wait is long.
_QUEUED_IN_TIME = "start latency and dependencies: launched work had not started, with nothing in flight, for"
#: Part of the time from which on a percentage with one digit shows it.
_SHOWN_SHARE = 0.0005
#: The parts of a process's time in words.
_PART_WORDS = {
    Limit.KERNELS: "kernels",
    Limit.WAITING: "queued work",
    Limit.LAUNCHES: "launching",
    Limit.API_CALLS: "CUDA calls",
    Limit.HOST: "host",
}
#: What parts count, behind their names: of the others the name says it.
PART_GLOSSES: Final[Mapping[Limit, str]] = {
    Limit.COPIES: "no kernel in flight",
    Limit.WAITING: "launched, not started",
    Limit.LAUNCHES: f"gaps up to {LAUNCH_GAP_NS // 1000} us",
}
#: Those of which a sentence says it.
GLOSSED: Final = (Limit.WAITING, Limit.LAUNCHES)


def part_words(part: Limit, copies: Iterable[Copies | None], *, graphs: bool = False) -> str:
    """Name a part of the time of processes with these copies, and whole graphs or not."""
    if part is Limit.KERNELS and graphs:
        return KERNELS_AND_GRAPHS
    return copies_words(copies) if part is Limit.COPIES else _PART_WORDS[part]


def limit_text(
    device: Device, *, short: bool = False, glosses: Sequence[Limit] = GLOSSED, rest: bool = True
) -> str | None:
    """What limits the only process of a device, with the parts of its time; None: several, or not known.

    Of so few operations that no part of its time means anything, that is said.

    Parameters
    ----------
    device
        A device of a report.
    short
        Leave out which devices copied at the same time and most of what came before the first operation, and say
        either what the host did in the meantime, or that it waited once: at its start that says more. An NVTX range
        that has most of the host's time is named in both cases.
    glosses
        Parts of which it is said what they count, behind their names.
    rest
        Say what the other parts have of its time.
    """
    if len(device.tenants) != 1 or device.tenants[0].time_split is None:
        return None
    split, label = device.tenants[0].time_split, tenant_labels(device.tenants)[device.tenants[0].tenant_id]
    if not split.window_ns:
        return None
    if split.too_few:
        return too_few_text(label, split)
    if split.unit_pauses is not None and (within := split.within_units) is not None and within.window_ns:
        return _pauses_text(label, split, within, device.tenants[0].copies, glosses, short=short)
    shares = {limit: split.part_ns(limit) / split.window_ns for limit in Limit}
    others_by_time = sorted((one for one in Limit if one is not split.limit), key=lambda one: -shares[one])
    copies = device.tenants[0].copies
    told = [one for one in others_by_time if shares[one] >= NAMED_SHARE]
    gap = split.one_gap
    # On a first screen what the others have of the time without a gap at the start takes their place.
    instead = short and gap is not None and gap.at_start and split.without_gap is not None
    meant = {one: f" ({PART_GLOSSES[one]})" for one in glosses}
    named_parts = (f"{part_words(one, [copies])}{meant.get(one, '')} {fmt.percent(shares[one])}" for one in told)
    others = "" if instead or not rest else ", ".join(named_parts)
    told_share, rest_share = (sum(shares[one] for one in some) for some in (told, others_by_time))
    of_rest = "the rest"
    if rest_share - told_share >= _SHOWN_SHARE:
        of_rest = "most of the rest" if told_share > rest_share / 2 else "part of the rest"
    named = ""
    if split.limit is Limit.KERNELS and split.top_kernel is not None:
        time = "summed kernel time; kernels overlap" if split.overlapping else "kernel time"
        time = "kernel time outside whole graphs" if split.graphs_in_kernels else time
        share = fmt.percent(split.top_kernel_share)
        has = f"have {share} each" if split.top_kernel_equals else f"has {share}"
        kernels = fmt.names([visible(one) for one in (split.top_kernel, *split.top_kernel_equals)])
        named = f"{kernels} {has} of {time}"
        if split.overlapping and split.top_kernel_only_ns is not None:
            only = fmt.percent(split.top_kernel_only_ns / split.window_ns)
            named = f"kernels overlap; only {kernels} was in flight for {only}"
        if split.mostly_graphs:
            named = f"whole graphs {fmt.percent(split.graphs_ns / split.window_ns)}; {named}"
    if split.limit is Limit.API_CALLS and split.api_call is not None:
        named = f"{visible(split.api_call, 40)} {fmt.percent(split.api_call_ns / split.window_ns)}"
    queued = split.limit is Limit.WAITING and split.queued_in_time
    limited = _QUEUED_IN_TIME if queued else _LIMITED_BY[split.limit].format(copies_words([copies]))
    said = f"{label} is limited by {limited} {fmt.percent(shares[split.limit])} of its time"
    said = f"{said}{f' ({named})' if named else ''}{f'; {of_rest}: {others}' if others else ''}."
    if queued:
        said = f"{said} The host queued its operations in time."
    if split.limit is Limit.COPIES and copies is not None and copies.other_devices and not short:
        others = fmt.names([str(one.device_id) for one in copies.other_devices])
        of = "device" if len(copies.other_devices) == 1 else "devices"
        said = f"{said} Its copies may share the host link or host memory with those of {of} {others} at the same time."
    activity = split.host_activity if split.limit is Limit.HOST else None
    spent = "" if activity is None else _host_spent(activity, short=short)
    if short and spent and gap is not None:
        # A gap at the start says more than what the host did, and one between operations less.
        gap, spent = (gap, "") if gap.at_start else (None, spent)
    if split.mostly_after:
        said = f"{said} Most of the host's time is after its last launch, between migrations of unified memory."
    elif gap is not None and short and (most := split.most_in_range) is not None:
        # The command that leaves the gap out stands below: there is room for the cause.
        named = f"NVTX range {visible(most.name, 40)} has {fmt.percent(most.share)} of the host's time"
        length, of_host = fmt.duration(gap.end_ns - gap.start_ns), fmt.duration(gap.of_host_ns)
        said = f"{said} {named}. {of_host} of the host's time lies in one gap of {length} at its start."
    elif gap is not None:
        said = f"{said} {one_gap_text(gap, split.without_gap, copies)}"
    if spent:
        said = f"{said} {spent}"
    if not short and (differ := _range_phases(label, split)):
        said = f"{said} {differ}"
    # What took longer than all that the shares are of changes what is to be looked at first.
    before = split.calls_before
    if before is None or (before.ns <= split.window_ns and before.cpu_samples is None):
        return said
    return f"{said} {calls_before_text(label, before, short=short)}"


def _pauses_text(
    label: str,
    split: TimeSplit,
    within: TimeSplit,
    copies: Copies | None,
    glosses: Sequence[Limit],
    *,
    short: bool,
) -> str:
    """What limits the units of work of a process that pauses between them, and how long the pauses are."""
    pauses = split.unit_pauses
    if pauses is None:
        return ""
    share = fmt.percent(pauses.host_ns / split.window_ns)
    each = fmt.duration(pauses.median_ns)
    said = f"{label} pauses between its units of work (NVTX range {visible(pauses.name, 40)}) for {share} of its time"
    said = f"{said}, {each} each (median)."
    activity = split.host_activity
    spent = "" if activity is None else _host_spent(activity, short=short)
    said = f"{said} {spent or 'It waits for work, is paced, or its host computes.'}"
    parts = sorted(Limit, key=lambda limit: -within.part_ns(limit))
    told = [
        f"{part_words(one, [copies])}{f' ({PART_GLOSSES[one]})' if one in glosses else ''} "
        f"{fmt.percent(within.part_ns(one) / within.window_ns)}"
        for one in parts
        if within.part_ns(one) >= NAMED_SHARE * within.window_ns
    ]
    if short:
        return f"{said} Without these pauses: {', '.join(told[:2])}."
    length = fmt.duration(within.window_ns / pauses.units)
    return f"{said} Without these pauses ({length} per unit, mean): {', '.join(told)}."


def _range_phases(label: str, split: TimeSplit) -> str:
    """Say that long NVTX ranges use the GPU differently; empty: they do not."""
    if not split.range_phases:
        return ""
    each = []
    for one in split.range_phases:
        mpi = f", MPI calls {fmt.percent(one.mpi_share)}" if one.mpi_share >= NAMED_SHARE else ""
        length, start = fmt.duration(one.end_ns - one.start_ns), f"{one.start_ns // 1_000_000}ms"
        each.append(f"{visible(one.name, 40)} ({length} from {start}): kernels {fmt.percent(one.kernels_share)}{mpi}")
    return (
        f"The averages of {label} mix NVTX ranges that differ. {'; '.join(each)}. --start and --end show one of them."
    )


def too_few_text(label: str, split: TimeSplit) -> str:
    """Say that a process has too few operations on a device to judge by, and what took longer before them."""
    what = "1 operation" if split.operations == 1 else f"{fmt.count(split.operations)} operations"
    said = f"{label} has {what} on this GPU and no kernel: too few to say what limits it."
    return said if split.calls_before is None else f"{said} {calls_before_text(label, split.calls_before)}"


def _host_spent(activity: HostActivity, *, short: bool) -> str:
    """What the launching thread did in the host's time; empty: nothing recorded.

    Where it mostly waits for input, another process or a clock, that: no code of it is slow there, but what comes next
    may be.
    """
    if activity.most is not None and activity.most.from_outside and (waits := outside_words(activity, rest=not short)):
        return f"Its launching thread {waits}."
    spent = host_words(activity, 1)
    said = f"Of the host's time, its launching thread spent {spent}." if spent else ""
    samples = activity.cpu_samples
    if samples is None or (short and activity.most is not None):
        return said
    sampled = f"CPU samples in the host's time {sampled_words(samples, 1 if short else 2)}."
    return f"{said} {sampled}" if said and not short else sampled


def one_gap_text(gap: LongestGap, without: tuple[Limit, float] | None, copies: Copies | None) -> str:
    """Most of the host's time is one gap between operations: where, and how to leave it out.

    `without`: the largest part of the rest of its time, where that gap is almost all of the host's.
    """
    # It is what a reader needs most: a process that waits once is not one that the host limits.
    part = "Most" if without is None else "Almost all"
    once = f"{part} of the host's time lies in one gap of {fmt.duration(gap.end_ns - gap.start_ns)}"
    rest = "" if without is None else f" Without it: {part_words(without[0], [copies])} {fmt.percent(without[1])}."
    if gap.at_start:
        return f"{once} at its start: --start {gap.end_ns // 1000}us leaves it out.{rest}"
    return f"{once}, after {fmt.count(gap.operations_before)} of {fmt.count(gap.operations)} operations.{rest}"


def calls_before_text(label: str, calls: CallsBefore, *, short: bool = False) -> str:
    """How long CUDA calls of a process took before the time that its parts are of."""
    took, whose = fmt.duration(calls.ns), "" if short else f" of {label}"
    named = "" if calls.call is None else f" ({visible(calls.call, 40)} {fmt.duration(calls.call_ns)})"
    if calls.call is not None and calls.first_ns is not None:
        length = fmt.duration(calls.first_ns)
        named = f" ({'' if length == took else f'{length} of it '}context creation in {visible(calls.call, 40)})"
    anywhere = " on any GPU" if calls.devices > 1 else ""
    said = f"Before its first operation{anywhere}, CUDA calls{whose} took {took}{named}."
    if short:
        return said
    if calls.switched_out is not None:
        times = "once" if calls.switched_out == 1 else f"{fmt.count(calls.switched_out)} times"
        said = (
            f"{said} Meanwhile its context was switched out {times}, {fmt.duration(calls.switched_out_ns)} in all: it "
            "waited for its time slice, or had no work (inferred)."
        )
    return said if calls.cpu_samples is None else f"{said} CPU samples until then {sampled_words(calls.cpu_samples)}."
