"""What each process can gain by itself, whatever shares the GPU: the parts of its time, largest first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.demands import USED_UP, Resource
from pyanalyze.analysis.copies import STAGED_BYTES, pinning_saves_ns
from pyanalyze.analysis.hardware import LAUNCH_GAP_NS
from pyanalyze.nsys_tool import TRACE, recording
from pyanalyze.results.advice import Advice
from pyanalyze.results.labels import copies_words, host_part_name, host_words, late_words, outside_words, sampled_words
from pyanalyze.results.time_split import HostKind, Limit, MpiPattern, WaitsFor
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.text.shell import shell_line
from pyanalyze.vocabulary import SMALL_SHARE, CopyDirection, HostMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyanalyze.analysis.occupancy import UnevenGrid
    from pyanalyze.results.copies import Copies, CopyKind, Migrations
    from pyanalyze.results.time_split import (
        CodeLoading,
        HostActivity,
        LongestGap,
        MpiCalls,
        SyncGaps,
        TimeSplit,
        UnitPauses,
    )

__all__ = ["even_grid", "ncu_filter", "of_copies", "of_process", "of_shared_process"]

#: Time below which nothing is worth a change, however short the recording.
WORTH_NS = 10_000
#: A kernel of at most this length hardly does more than start and end: the shortest kernels of programs with very short
#: ones take 1.1 to 1.9 us on average, from a laptop's RTX 4070 to a GB200.
_NEARLY_EMPTY_NS = 2_000
#: Waits for small copies from which on they are part of a loop.
ENOUGH_WAITS = 5
#: Calls up to which none can be left out by calling less often.
FEW_CALLS = 2
#: Part of the time of copies that kinds with advice of their own must have for there to be none about copies as such.
MOST_COPIES = 0.8
#: Large copies from which on the best of them says something beside their mean.
ENOUGH_LARGE = 3
#: Part of the copies of a kind up to which those with most of the time are worth telling from the others.
FEW_OF_COPIES = 0.5
#: Part of its time above which launching, or copying, limits a process that is not the only one.
LIMITS_BESIDE_OTHERS = {Limit.LAUNCHES: 0.2, Limit.COPIES: 0.5}
#: CPU samples from which on they show where the host mostly is: three of five in one function are no chance.
_ENOUGH_SAMPLES = 5
#: Functions that a sentence names.
_MOST_CALLS = 3
#: Launches of a kernel that ncu is to count, and those before them that warm up where a kernel has many.
_COUNTED_LAUNCHES = 3
_WARM_UP_LAUNCHES = 20
#: Calls that are at stake by themselves; what else the host does is to be looked at first.
_IN_CALLS = (HostKind.MPI, HostKind.VIDEO)
#: What to do where no code of the program is slow, by what the host waits for.
_OUTSIDE = {
    WaitsFor.INPUT: "Give {} its input at once, or record it without that wait",
    WaitsFor.PEER: "Look at what {} waits for",
    WaitsFor.SLEEP: "Look why {} sleeps",
}
#: What to do about calls that load code.
_LOAD_BEFORE = "load code before the part that counts, which moves that time (a warm-up run)"
_BUILT = "code built for its architecture (-gencode) or a kept compute cache (CUDA_CACHE_PATH) saves that in every run"
_EAGER = (
    "CUDA_MODULE_LOADING=EAGER moves it as well, but loads all kernels of all linked libraries: that can take more "
    "time and memory"
)
#: What to do about CUDA calls that keep the GPU waiting; the first that matches counts.
_CALLS = (
    (r"Host|FreeHost|MallocHost", "allocate and register memory of the host once, and reuse it"),
    (r"Malloc|Free|MemAlloc", "allocate once and reuse the memory, or use cudaMallocAsync"),
    (r"Synchronize|EventQuery|StreamQuery", "launch the next work before waiting for the last"),
    (r"Memcpy|Memset|Prefetch", "copy asynchronously, in a stream of its own"),
)


@dataclass(frozen=True)
class TopKernel:
    """What the named kernel of a process leaves of the device.

    Attributes
    ----------
    said
        It in words; empty: nothing is known.
    few_blocks
        Most blocks of its grids and the SMs of the device, where these are more; else None.
    used
        Part of what the device has that it used of one resource while it ran, sampled; 0: nothing is known.
    passed_over
        The kernel with most time, and what its counters leave of that in ns, where it is another; else None.
    not_counted
        Why its counters are not known, where those of others are; else empty.
    resource
        What it used most.
    used_words
        How much of that, in words; empty: nothing is known.
    """

    said: str
    few_blocks: tuple[int, int] | None = None
    used: float = 0.0
    passed_over: tuple[str, int] | None = None
    not_counted: str = ""
    resource: Resource = Resource.ISSUE
    used_words: str = ""


#: What shortens a kernel that uses up a resource: the action, what to do, and what faster code leaves as it is.
_LESS = {
    Resource.DRAM: (
        "Move fewer bytes in {} of {}",
        "Smaller types, fusion, and reuse in L2 or shared memory move fewer bytes",
        "bytes",
    ),
    Resource.TENSOR: (
        "Give {} of {} less to do",
        "Smaller types, and fewer or sparse matrix products, take fewer operations",
        "operations",
    ),
    Resource.ISSUE: (
        "Give {} of {} less to do",
        "Vector loads, tensor cores and fewer operations need fewer instructions",
        "instructions",
    ),
}


def of_process(
    name: str,
    split: TimeSplit,
    copies: Copies | None = None,
    *,
    kernel: TopKernel | None = None,
    sampled: bool = False,
) -> Iterator[Advice]:
    """Advise the only process of a device: one item for each part of its time that is worth it.

    Parameters
    ----------
    name, split
        The process, and where its time went.
    copies
        What it copied; None: not known.
    kernel
        What its top kernel leaves of the device; None: nothing is known.
    sampled
        Whether the capture has samples of what ran on CPUs.

    Examples
    --------
    >>> import pyanalyze
    >>> split = pyanalyze.load(capture).analysis.time_splits[0, 0]
    >>> [advice.action for advice in of_process("train", split)][0]
    'Make kernel A3 of train faster'
    """
    if split.too_few:
        return
    within = split.within_units
    # Where records show what the host did between its units, that is its time as any other.
    if split.unit_pauses is not None and within is not None and not _host_known(split.host_activity):
        for item in of_process(name, within, copies, kernel=kernel, sampled=sampled):
            yield _per_unit(item, split.unit_pauses, within)
        yield _between_units(name, split, split.unit_pauses, sampled=sampled)
        return
    special = [
        *_not_read_back(name, split),
        *_no_waits_for_uploads(name, split),
        *_late_rank(name, split),
        *([] if copies is None else of_copies(name, copies, split)),
    ]
    told_ns = _told_ns(name, split, copies)
    for limit in sorted(Limit, key=lambda limit: -split.part_ns(limit)):
        if limit is Limit.COPIES and told_ns >= MOST_COPIES * split.copies_ns > 0:
            continue
        if limit is Limit.API_CALLS and _reading_ns(split):
            continue
        if _at_stake_ns(split, limit) >= _worth_ns(split.window_ns):
            only_ns = split.top_kernel_only_ns
            if limit is Limit.KERNELS and only_ns is not None and only_ns < _worth_ns(split.window_ns):
                continue  # Others are in flight all the same.
            if limit is Limit.KERNELS and split.waits_for_faults:
                continue  # A faster kernel would wait for as long: that its memory is there shortens it.
            behind_sync = limit is Limit.LAUNCHES and _told_with_host(split)
            if behind_sync and not _between_launches_most(split):
                continue
            item = _item(name, split, limit, copies, wrong_if=None, sampled=sampled)
            named = limit is Limit.KERNELS and not split.mostly_graphs and not _nearly_empty(split)
            yield item if kernel is None or not named else _of_kernel(item, name, split, kernel)
            smaller_ns = _launching_ns(split, smaller=True)
            if limit is Limit.LAUNCHES and not behind_sync and smaller_ns >= _worth_ns(split.window_ns):
                yield _item(name, split, limit, copies, wrong_if=None, smaller=True)
        elif limit is Limit.HOST:
            yield from _outside(name, split)
    yield from special


def _per_unit(item: Advice, pauses: UnitPauses, within: TimeSplit) -> Advice:
    """The same with its bound for one unit of work: of a recording that is mostly pauses, no part says much."""
    if item.bound is None or item.at_stake_ns is None:
        return item
    each = f"{fmt.duration(item.at_stake_ns / pauses.units)} of {fmt.duration(within.window_ns / pauses.units)}"
    bound = f"{each} per unit of {visible(pauses.name, 40)} (mean); without pauses {item.bound}"
    return item.model_copy(update={"bound": bound})


def _between_units(name: str, split: TimeSplit, pauses: UnitPauses, *, sampled: bool) -> Advice:
    """Say how to find out what a process does between its units of work, and what it means if it waits."""
    paused, unit = fmt.duration(pauses.host_ns), visible(pauses.name, 40)
    each = f"a median of {fmt.duration(pauses.median_ns)} each"
    share = fmt.percent(pauses.host_ns / split.host_ns)
    return Advice(
        action=f"Find out whether {name} waits for work between its units of {unit} (NVTX ranges), is paced, or "
        "prepares the next",
        commands=[_profile(split.host_activity, sampled=sampled)],
        expected=None,
        bound=f"{paused}, {fmt.percent(pauses.host_ns / split.window_ns)} of its time; none if it waits or is paced",
        why=f"{share} of the host's time, {paused} of {fmt.duration(split.host_ns)}, lies between units: "
        f"{fmt.counted(pauses.pauses, 'pause')}, {each}. If it waits for requests or is paced, this is spare "
        "capacity: more requests, or another process, can use it",
        undo=None,
        # It changes nothing, and a wait is nothing that a change of the program saves.
        at_stake_ns=None,
    )


def _of_kernel(item: Advice, name: str, split: TimeSplit, kernel: TopKernel) -> Advice:
    """The item of the top kernel with what it leaves of the device: where that is little, it can only do less."""
    action = f"{item.action}: {kernel.said}" if kernel.said else item.action
    left_ns = round((1 - kernel.used) * (item.at_stake_ns or 0))
    if split.overlapping and split.top_kernel_only_ns is not None:
        left_ns = min(left_ns, split.top_kernel_only_ns)
    more = "" if kernel.few_blocks is None else _more_blocks(split, *kernel.few_blocks, left_ns)
    if kernel.not_counted:
        more = f"{more}. What it uses while it runs is not known: {kernel.not_counted}"
    if kernel.passed_over is not None:
        other, other_ns = kernel.passed_over
        more = f"{more}. Kernel {other} has more time, but leaves less to gain: at most {fmt.duration(other_ns)}"
    if not kernel.used:
        return item.model_copy(update={"action": action, "why": f"{item.why}{more}"})
    share = left_ns / split.window_ns
    has = f"it has {_top_kernel_part(split)}"
    if split.overlapping and split.top_kernel_only_ns is not None:
        has = f"kernels overlap; it {_only(split.top_kernel_only_ns)}"
    left = f"{fmt.duration(left_ns)}, {fmt.percent(share)} of its time"
    if kernel.used >= USED_UP:
        less, how, what = _LESS[kernel.resource]
        return item.model_copy(
            update={
                "action": f"{less.format(_named_kernels(split), name)}: {kernel.said}",
                "commands": [],
                # What is not used bounds another change than this one.
                "why": f"{has}. {how}: its time falls as they do. Faster code for the same {what} gains "
                f"at most {left}{more}",
                "bound": None,
                "at_stake_ns": left_ns,
                "at_stake_share": share,
            }
        )
    return item.model_copy(
        update={
            "action": action,
            "why": f"{has}. While it ran, {kernel.used_words} (sampled). Code that does the same work faster gains at "
            f"most the rest; fewer operations, smaller types or fusion gain more{more}",
            "bound": f"{left}, while it does the same work",
            "at_stake_ns": left_ns,
            "at_stake_share": share,
        }
    )


def even_grid(name: str, split: TimeSplit, uneven: UnevenGrid, active: float) -> Iterator[Advice]:
    """Advise an even number of blocks where some SMs have one more than others, and these end earlier.

    Parameters
    ----------
    name, split
        The only process of the device, and where its time went, with the kernel of that grid as its top kernel.
    uneven
        The grid.
    active
        Mean part of the SMs that counters saw active while the kernel ran.

    Examples
    --------
    >>> import pyanalyze
    >>> from pyanalyze.analysis.occupancy import UnevenGrid
    >>> split = pyanalyze.load(capture).analysis.time_splits[0, 0]
    >>> list(even_grid("train", split, UnevenGrid(317, 132), 0.99))  # all SMs end at once
    []
    """
    # An SM that has fewer blocks ends earlier only as far as blocks slow each other.
    if 1 - active < (1 - uneven.active) / 2:
        return
    only_ns = split.top_kernel_only_ns if split.overlapping else None
    kernel_ns = split.top_kernel_ns if only_ns is None else only_ns
    gain_ns = round(kernel_ns * (1 - uneven.active))
    if gain_ns < _worth_ns(split.window_ns):
        return
    share = gain_ns / split.window_ns
    kernel, part = f"kernel {split.top_kernel}", fmt.percent(1 - uneven.active)
    below, above = (fmt.count(blocks) for blocks in uneven.even)
    yield Advice(
        action=f"Launch {kernel} of {name} with {below} or {above} blocks for the same work, which is even on "
        f"{uneven.sms} SMs",
        commands=[],
        expected=None,
        bound=f"{fmt.duration(gain_ns)}, {fmt.percent(share)} of its time: {part} of {kernel}",
        why=f"{uneven}. The last part of each launch keeps {uneven.fuller_sms} of {uneven.sms} SMs busy. While it ran, "
        f"{fmt.percent(active)} of SMs were active (sampled); {fmt.percent(uneven.active)} is what follows if an SM "
        "takes as long as it has blocks",
        undo=None,
        wrong_if="a block of another size takes longer for the same work",
        at_stake_ns=gain_ns,
        at_stake_share=share,
    )


def _more_blocks(split: TimeSplit, blocks: int, sms: int, most_ns: int) -> str:
    """What remains of a kernel of fewer blocks than SMs if its work is divided among all, where that gains less.

    `most_ns`: the bound by its counters. What is not used is then what the SMs without a block leave, told twice.
    """
    remains_ns = split.top_kernel_ns * blocks // sms
    more = ". Launch more blocks, or smaller ones, if the work can be divided"
    if split.top_kernel_ns - remains_ns >= most_ns:
        return f"{more}: at least {fmt.count(sms - blocks)} of {sms} SMs have no block of it"
    remains = f"about {blocks}/{sms} of its time would remain: {fmt.duration(remains_ns)}"
    return f"{more}. Spread evenly over {sms} SMs, {remains}"


def of_shared_process(name: str, split: TimeSplit, copies: Copies | None = None) -> Iterator[Advice]:
    """Advise a process that shares its device, where launching or copying limits it: no other tenant causes that."""
    if split.too_few:
        return
    read_back = list(_not_read_back(name, split))
    yield from read_back
    yield from _late_rank(name, split)
    least = LIMITS_BESIDE_OTHERS.get(split.limit)
    if split.limit is Limit.COPIES and read_back and _told_ns(name, split, None) >= MOST_COPIES * split.copies_ns:
        least = None
    if least is not None and split.part_ns(split.limit) > least * split.window_ns:
        spent = {Limit.LAUNCHES: "launching takes", Limit.COPIES: "copies and memsets take"}[split.limit]
        wrong_if = f"{spent} much less of a solo run of {name}"
        yield _item(name, split, split.limit, copies, wrong_if=wrong_if, shared=True)
    if copies is not None:
        yield from of_copies(name, copies, split)


def of_copies(name: str, copies: Copies, split: TimeSplit | None = None) -> Iterator[Advice]:
    """Advise what kinds of copies call for: pinned memory where it is pageable, prefetching of unified memory.

    Parameters
    ----------
    name, copies
        The process, and what it copied.
    split
        Where its time went; None: not asked for.

    Examples
    --------
    >>> import pyanalyze
    >>> list(of_copies("train", pyanalyze.load(capture).analysis.copies[0, 0]))
    []
    """
    yield from _pinned(name, copies)
    yield from _prefetched(name, copies, split)


def _reading_ns(split: TimeSplit) -> int:
    """Time in the call with most time, where most of these calls read a value back in a loop; else 0."""
    reads = split.read_backs
    if reads is None or not reads.often or reads.call is None or reads.call != split.api_call:
        return 0
    return split.api_call_ns if 2 * reads.count > split.api_call_count else 0


def _not_read_back(name: str, split: TimeSplit) -> Iterator[Advice]:
    """Advise not to read a value back in every iteration: what is launched next depends on it, so nothing overlaps."""
    reads = split.read_backs
    if reads is None or not reads.often:
        return
    calls_ns = _reading_ns(split)
    at_stake_ns = reads.exposed_ns + calls_ns
    if at_stake_ns < _worth_ns(split.window_ns):
        return
    share = at_stake_ns / split.window_ns
    in_call = f" in {reads.call}" if reads.call else ""
    calls_took = f"the calls took {fmt.duration(calls_ns)} with nothing in flight, " if calls_ns else ""
    took = (
        f"{calls_took}the copies {'' if calls_ns else 'took '}{fmt.duration(reads.exposed_ns)} with no kernel in flight"
    )
    yield Advice(
        action=f"Do not read a value back to the host in every iteration of {name}: keep the condition on the device "
        "(conditional graph node, persistent or cooperative kernel), or test it every few iterations",
        commands=[],
        expected=None,
        bound=f"{fmt.duration(at_stake_ns)}, {fmt.percent(share)} of its time",
        why=f"{fmt.counted(reads.count, 'read-back', 'read-backs')} of at most {fmt.bytes_(reads.largest_bytes)} among "
        f"{fmt.counted(reads.launches, 'launch', 'launches')}: the host waited for each{in_call} before it launched "
        f"again. {capital(took)}. Pinned memory or another stream does not help where the next launch depends on the "
        "value",
        undo=None,
        wrong_if="what is launched next does not depend on the values",
        check_after="the host launches several iterations ahead",
        at_stake_ns=at_stake_ns,
        at_stake_share=share,
    )


def _no_waits_for_uploads(name: str, split: TimeSplit) -> Iterator[Advice]:
    """Advise not to wait for small copies to the device: the device runs out of work while the host waits."""
    waits = split.upload_waits
    if waits is None or waits.count < ENOUGH_WAITS:
        return
    # While it waits the host launches nothing: gaps behind the wait follow from it as well, up to all of them.
    gaps_ns = split.launches_ns + (split.api_calls_ns or 0) + _at_stake_ns(split, Limit.HOST)
    if min(waits.waited_ns, gaps_ns) < _worth_ns(split.window_ns):
        return
    share = gaps_ns / split.window_ns
    copies = f"{fmt.counted(waits.count, 'copy', 'copies')} of at most {fmt.bytes_(waits.largest_bytes)}"
    in_call = f" in {waits.call}" if waits.call else ""
    yield Advice(
        action=f"Do not wait for small copies to the device in {name}: make the values there, or copy them from pinned "
        "memory without waiting (non_blocking=True)",
        commands=[],
        expected=None,
        bound=f"{fmt.duration(gaps_ns)}, {fmt.percent(share)} of its time: all gaps for which its host is late",
        why=f"{copies} of pageable memory made the host wait for {fmt.duration(waits.waited_ns)}{in_call}: until all "
        "that it had launched before was done. Then nothing was queued: behind these copies alone the device was idle "
        f"for {fmt.duration(waits.idle_ns)}",
        undo=None,
        wrong_if="the host is as slow to launch without these waits",
        check_after="the host launches ahead of the device",
        at_stake_ns=gaps_ns,
        at_stake_share=share,
    )


def _late_rank(name: str, split: TimeSplit) -> Iterator[Advice]:
    """Advise to look at the rank that collectives waited for: its launches, or its share of the work."""
    waits = split.collective_waits
    if waits is None or not waits.late or waits.waited_ns < _worth_ns(split.window_ns):
        return
    late = waits.late[0]
    share = waits.waited_ns / split.window_ns
    do = "Balance the work of the ranks" if 2 * late.busy_ns >= late.waited_ns else "Launch earlier in the late rank"
    yield Advice(
        action=f"{do}: collectives of {name} wait for the rank on device {late.device_id}",
        commands=[],
        expected=None,
        bound=f"{fmt.duration(waits.waited_ns)}, {fmt.percent(share)} of its time: all waits of its collectives",
        why=". ".join(late_words(waits)),
        undo=None,
        wrong_if="kernels that end together belong to different collectives",
        check_after="kernels of one collective start together",
        at_stake_ns=waits.waited_ns,
        at_stake_share=share,
    )


def _told_ns(name: str, split: TimeSplit, copies: Copies | None) -> int:
    """Time without a kernel of the copies that have advice of their own."""
    read_ns = split.read_backs.exposed_ns if split.read_backs is not None and any(_not_read_back(name, split)) else 0
    if copies is None:
        return read_ns
    moved = copies.migrations if any(_prefetched(name, copies)) else None
    by_faults_ns = 0 if moved is None else _by_faults_ns(moved)[1]
    return read_ns + by_faults_ns + sum(_pinning_ns(kind) for kind in _worth_pinning(copies))


def _by_faults_ns(moved: Migrations) -> tuple[int, int]:
    """Time of migrations that prefetching could replace, and that without a kernel; of all if causes are unknown."""
    if moved.faulted_ns is None or moved.faulted_exposed_ns is None:
        return moved.time_ns, moved.exposed_ns
    return moved.faulted_ns, moved.faulted_exposed_ns


def _pinning_ns(kind: CopyKind) -> int:
    """What pinned memory saves as far as the capture shows it: a faster rate, and kernels that can run beside."""
    return min((pinning_saves_ns(kind) or 0) + (kind.hideable_ns or 0), kind.exposed_ns)


def _worth_pinning(copies: Copies) -> Iterator[CopyKind]:
    """Copies of pageable memory that kept kernels from running for a notable time."""
    for kind in copies.pageable:
        if _pinning_ns(kind) >= _worth_ns(copies.window_ns) and kind.bytes >= STAGED_BYTES * kind.copies:
            yield kind


def _pinned(name: str, copies: Copies) -> Iterator[Advice]:
    """Advise pinned memory where copies of pageable memory kept kernels from running for a notable time."""
    for kind in _worth_pinning(copies):
        saved_ns, hidden_ns = pinning_saves_ns(kind), kind.hideable_ns or 0
        expected = None
        if saved_ns:
            expected = (
                f"{fmt.duration(saved_ns)} less, if they are as fast as the pinned copies of this capture "
                f"({fmt.rate(kind.best_pinned_bytes_per_s)})"
            )
        there = kind.direction is CopyDirection.TO_DEVICE
        way = "to the device" if there else "to the host"
        # Pinned copies are faster, and asynchronous ones run beside kernels and host work: all of their time may go.
        most_ns = kind.exposed_ns
        share = most_ns / copies.window_ns
        bound = f"{fmt.duration(most_ns)}, {fmt.percent(share)} of its time, if they run beside kernels or host work"
        if 0 < hidden_ns < most_ns:
            when = "earlier or in parts" if there else "after them"
            bound = f"{bound}; beside kernels alone {fmt.duration(hidden_ns)} ({when})"
        yield Advice(
            action=f"Use pinned memory for the copies of {name} {way}",
            commands=[],
            expected=expected,
            bound=bound,
            why=f"{fmt.counted(kind.copies, 'copy', 'copies')} {way} of pageable memory, {fmt.bytes_(kind.bytes)} at "
            f"{fmt.rate(kind.bytes_per_s)}, took {fmt.duration(kind.exposed_ns)} with no kernel in flight. "
            "Copies of pageable memory hold the host and do not overlap its other work: allocate with cudaMallocHost "
            "or pin_memory=True, or register the memory once",
            undo=None,
            risk="pinned memory cannot be swapped out: pin what is copied, not everything",
            check_after="these copies take less time without a kernel in flight",
            at_stake_ns=most_ns,
            at_stake_share=share,
        )


def _prefetched(name: str, copies: Copies, split: TimeSplit | None = None) -> Iterator[Advice]:
    """Advise prefetching where migrations of unified memory that faults caused took a notable time.

    Those inside kernels count as well: kernels and hosts wait for them, and for the faults, which have no record. So
    their time is at stake, and is no bound.
    """
    moved = copies.migrations
    if moved is None:
        return
    time_ns, exposed_ns = _by_faults_ns(moved)
    if time_ns < _worth_ns(copies.window_ns):
        return
    count, faults = moved.to_device + moved.to_host, ""
    if moved.by_page_fault is not None:
        speculative = moved.speculative or 0
        count = moved.by_page_fault + speculative
        also = f", {fmt.count(speculative)} prefetched by the driver with these" if speculative else ""
        faults = f" ({fmt.count(moved.by_page_fault)} because of page faults{also})"
    action = f"Prefetch the unified memory of {name} (cudaMemPrefetchAsync), or set where it should be"
    if moved.prefetched_in_vain:
        action = f"Prefetch the unified memory of {name} after the host has written it: page faults of the host move it"
        action = f"{action} back before a kernel uses it"
    yield Advice(
        action=action,
        commands=[],
        expected=None,
        bound=None,
        why=f"{fmt.counted(count, 'migration')}{faults} took {fmt.duration(time_ns)}, {fmt.duration(exposed_ns)} of it "
        f"with no kernel in flight{_inside_kernel(split)}{_prefetched_already(moved)}. Kernels and the host also wait "
        "for the faults, which no record shows: the gain may be larger",
        undo=None,
        wrong_if=None if faults else "the migrations are prefetches already",
        check_after="kernels are shorter, and no migration is because of a page fault" if faults else None,
        at_stake_ns=time_ns,
        at_stake_share=time_ns / copies.window_ns,
    )


def _prefetched_already(moved: Migrations) -> str:
    """What became of the memory that the program prefetches to the device already, to stand behind a sentence."""
    if not moved.prefetched_bytes:
        return ""
    prefetched = f". The program prefetched {fmt.bytes_(moved.prefetched_bytes)} to the device already"
    if not moved.prefetched_in_vain:
        return f"{prefetched}: what still faults is other memory, or was used elsewhere in the meantime"
    taken = f"up to {fmt.bytes_(moved.taken_back_bytes)} of that back (by size; addresses are not compared)"
    return f"{prefetched}. Before the next kernel, page faults of the host moved {taken}"


def _faulting_ns(split: TimeSplit) -> int:
    """Time in which the top kernel had migrations by page faults in flight, if it is a notable part of its time."""
    faulting_ns = split.top_kernel_faulting_ns or 0
    return faulting_ns if faulting_ns >= SMALL_SHARE * split.top_kernel_ns else 0


def _inside_kernel(split: TimeSplit | None) -> str:
    """How much of the time of the top kernel such migrations were in flight, to stand behind a sentence."""
    faulting_ns = 0 if split is None else _faulting_ns(split)
    if split is None or not faulting_ns:
        return ""
    part = f"{fmt.duration(faulting_ns)} of {fmt.duration(split.top_kernel_ns)}"
    share = fmt.percent(faulting_ns / split.top_kernel_ns)
    return f". Such migrations were in flight for {part} of kernel {split.top_kernel} ({share})"


def _at_stake_ns(split: TimeSplit, limit: Limit) -> int:
    """Time of a part that a change may gain: for the host, less its waits for input, another process or a clock.

    Start latency and dependencies take no longer than a short gap: what work waits for in longer ones is not known.
    """
    if limit is Limit.WAITING:
        return split.waiting_short_ns or 0
    # With one gap at the start, what follows it is to be looked at, whatever the host did in it.
    outside_ns = _outside_ns(split) if limit is Limit.HOST and not _starts_late(split) else 0
    return max(_part_ns(split, limit) - outside_ns, 0)


def _part_ns(split: TimeSplit, limit: Limit) -> int:
    """Time of a part in which the GPU could have worked: for the host, that before the last launch."""
    after_ns = split.host_after_ns if limit is Limit.HOST else None
    return split.part_ns(limit) - (after_ns or 0)


def _starts_late(split: TimeSplit) -> bool:
    """Whether most of the host's time is one gap at the start."""
    return split.one_gap is not None and split.one_gap.at_start


def _outside_ns(split: TimeSplit) -> int:
    """Time of the host in waits that no code of it shortens."""
    return 0 if split.host_activity is None else split.host_activity.outside_ns


def _worth_ns(window_ns: int) -> float:
    """Time from which on something is worth an item."""
    return max(SMALL_SHARE * window_ns, WORTH_NS)


def _item(
    name: str,
    split: TimeSplit,
    limit: Limit,
    copies: Copies | None,
    *,
    wrong_if: str | None,
    shared: bool = False,
    sampled: bool = False,
    smaller: bool = False,
) -> Advice:
    """Make the item of a part; `smaller`: that of the smaller part of launching, which has another remedy."""
    at_stake_ns = _at_stake_ns(split, limit)
    action, commands, what = _what_to_do(name, split, limit, copies, sampled=sampled, smaller=smaller)
    if limit is Limit.COPIES and copies is not None and (copies.kinds or copies.memsets):
        what = f"{what}. {_mostly(copies, split.copies_ns)}"
    if limit is Limit.KERNELS:
        least_ns = 0 if _nearly_empty(split) else _least_ns(split)
        kernel_ns = max(split.top_kernel_ns - least_ns - _faulting_ns(split), 0)
        at_stake_ns = min(max(kernel_ns, split.graphs_ns), at_stake_ns)
    loading = split.code_loading if limit is Limit.API_CALLS and _mostly_loading(split) else None
    if limit is Limit.API_CALLS:
        at_stake_ns = min(split.api_call_ns if loading is None else loading.ns, at_stake_ns) or at_stake_ns
    drained = limit is Limit.LAUNCHES and split.mostly_after_sync != smaller
    if limit is Limit.LAUNCHES:
        at_stake_ns = _launching_ns(split, smaller=smaller)
    if drained and split.sync_gaps is not None:
        at_stake_ns = _idle_ns(split.sync_gaps)
    most = None if split.host_activity is None else split.host_activity.most
    if limit is Limit.HOST and split.host_activity is not None and most is not None and most.kind in _IN_CALLS:
        at_stake_ns = min(split.host_activity.kind_ns(most.kind), at_stake_ns)
    behind_sync = split.host_after_sync if limit is Limit.HOST and not _starts_late(split) else None
    if behind_sync is not None and _told_with_host(split):
        at_stake_ns += behind_sync.launches_ns
    share = at_stake_ns / split.window_ns
    bound = f"{fmt.duration(at_stake_ns)}, {fmt.percent(share)} of its time"
    if behind_sync is not None and not _host_known(split.host_activity):
        bound = f"{bound}; none if it waited for requests"
    risk = None
    if loading is not None:
        risk = _EAGER
        before_ns = _loading_before_ns(split)
        if before_ns:
            # A warm-up moves that as well; the shares of its time begin with the first operation.
            at_stake_ns, share = at_stake_ns + before_ns, (at_stake_ns + before_ns) / split.window_ns
            bound = f"{fmt.duration(at_stake_ns)}: {bound}, and {fmt.duration(before_ns)} before its first operation"
    if drained:
        risk = "what the host reads after that call may not be ready"
    if limit is Limit.KERNELS and split.overlapping and split.top_kernel_only_ns is not None:
        # Beside others it saves nothing by itself: they are in flight all the same.
        only_ns = at_stake_ns = min(split.top_kernel_only_ns, at_stake_ns)
        share = at_stake_ns / split.window_ns
        in_flight = "in which no kernel of another name was in flight"
        bound = f"{fmt.duration(only_ns)}, {fmt.percent(only_ns / split.window_ns)} of its time, {in_flight}"
    if shared:
        bound = (
            f"{fmt.duration(at_stake_ns)}, {fmt.percent(share)} of the time of {name}; what others gain is not known"
        )
    looks = limit is Limit.KERNELS and split.mostly_graphs
    looks |= limit is Limit.HOST and _starts_late(split)
    return Advice(
        action=action,
        commands=commands,
        expected=None,
        # To look at the rest saves nothing by itself.
        bound=None if looks else bound,
        why=what,
        undo=None,
        risk=risk,
        wrong_if=wrong_if,
        at_stake_ns=at_stake_ns,
        at_stake_share=share,
    )


def _mostly_loading(split: TimeSplit) -> bool:
    """Whether calls that load code have more of the time of CUDA calls than any function that does something else."""
    loading = split.code_loading
    return loading is not None and loading.ns >= split.api_call_ns


def _launching_ns(split: TimeSplit, *, smaller: bool) -> int:
    """Time of the larger part of launching, or of the smaller: behind calls that synchronise, or between launches."""
    if split.mostly_after_sync != smaller:
        return split.after_sync_ns
    return split.launches_ns - split.after_sync_ns


def _told_with_host(split: TimeSplit) -> bool:
    """Whether long gaps behind a call have an item, and short ones behind the same call belong to it.

    They are one distribution: what the host does behind the call took longer than 250 us, or not.
    """
    gaps = split.host_after_sync
    if gaps is None or _starts_late(split) or _at_stake_ns(split, Limit.HOST) < _worth_ns(split.window_ns):
        return False
    waits = split.launch_waits
    # Behind about every launch: waiting and launching are not told apart.
    return gaps.short_gaps > 0 and (waits is None or not waits.often or waits.call == gaps.call)


def _between_launches_most(split: TimeSplit) -> bool:
    """Whether most of launching lies between launches, not behind a call that synchronises."""
    return split.sync_gaps is None or 2 * split.sync_gaps.launches_ns < split.launches_ns


def _between_launches(split: TimeSplit) -> str:
    """How long launching kept the GPU waiting, without what lies behind calls that synchronise."""
    part = f"{fmt.duration(split.launches_ns - split.after_sync_ns)} of {fmt.duration(split.window_ns)}"
    said = f"nothing was in flight in gaps of at most {LAUNCH_GAP_NS // 1000} us for {part}"
    if split.waiting_ns is not None:
        said = f"{said}, before the launch of the next operation returned"
    if split.sync_gaps is not None and split.after_sync_ns:
        said = f"{said}, without {fmt.duration(split.after_sync_ns)} after {visible(split.sync_gaps.call, 40)}"
    return f"{said}{_graphs_there(split)}"


def _after_sync(name: str, split: TimeSplit, gaps: SyncGaps) -> tuple[str, list[str], str]:
    """What to do where launching is mostly what follows a call that synchronises."""
    call = visible(gaps.call, 40)
    gaps_ns = _idle_ns(gaps)
    each_ns = gaps_ns // max(gaps.short_gaps, 1)
    why = (
        f"the host waited in {call} until nothing was queued, {_times(gaps.short_gaps)}. Then the GPU was idle until "
        f"the next operation started: {fmt.duration(gaps_ns)} of {fmt.duration(split.window_ns)} in all, "
        f"{fmt.duration(each_ns)} each time on average"
    )
    shows = recording("--cudabacktrace=sync", "--python-backtrace=cuda", switches=False)
    action = f"Remove {call} in {name}, or launch the next work before waiting in it"
    return action, [f"{shows}   # call stacks show where it is called"], why


def _idle_ns(gaps: SyncGaps) -> int:
    """Time of the short gaps: without the call, what lies in it before it returned is saved as well."""
    return gaps.launches_ns if gaps.short_gaps_ns is None else gaps.short_gaps_ns


def _times(count: int) -> str:
    return "once" if count == 1 else f"{fmt.count(count)} times"


def _mostly_memsets(copies: Copies | None) -> bool:
    """Whether memsets kept kernels from running for longer than copies of any kind."""
    if copies is None or copies.memsets is None:
        return False
    return copies.memsets.exposed_ns > max((kind.exposed_ns for kind in copies.kinds), default=0)


def _mostly(copies: Copies, copies_ns: int) -> str:
    """Which copies took most of this time, and how fast they were; or that memsets did."""
    if copies.memsets is not None and (_mostly_memsets(copies) or not copies.kinds):
        sets = copies.memsets
        part = capital(_largest_part(sets.exposed_ns, copies_ns))
        return f"{part}: {fmt.counted(sets.count, 'memset')}, {fmt.bytes_(sets.bytes)}"
    most = max(copies.kinds, key=lambda kind: kind.exposed_ns)
    ways = {CopyDirection.TO_DEVICE: "to the device", CopyDirection.TO_HOST: "to the host"}
    known = most.host_memory not in (None, HostMemory.OTHER)
    memory = f" ({most.host_memory} memory)" if known else ""
    best = most.best_bytes_per_s
    # The best of two copies is hardly another rate than their mean, unless it is that of another kind of memory.
    others = any(kind.large_copies for kind in copies.kinds if kind is not most and kind.direction is most.direction)
    told = best is not None and best != most.bytes_per_s and (others or (most.large_copies or 0) >= ENOUGH_LARGE)
    unpinned = most.host_memory is HostMemory.PAGEABLE and most.best_pinned_bytes_per_s is None
    of_kind = " without pinned memory" if unpinned else ""
    fast = f"; the best rate in that direction is {fmt.rate(best)}{of_kind}" if told else ""
    few = ""
    if most.long_copies is not None and most.long_copies <= FEW_OF_COPIES * most.copies:
        has = "has" if most.long_copies == 1 else "have"
        few = f"; {fmt.count(most.long_copies)} of them {has} {fmt.percent(most.long_share)} of the time"
    return (
        f"{capital(_largest_part(most.exposed_ns, copies_ns))}: {fmt.counted(most.copies, 'copy', 'copies')} "
        f"{ways.get(most.direction, 'on or between devices')}{memory}, {fmt.bytes_(most.bytes)} at "
        f"{fmt.rate(most.bytes_per_s)}{few}{fast}"
    )


def _mostly_pageable(copies: Copies | None) -> bool:
    """Whether most copies between host and device are of pageable memory."""
    if copies is None:
        return False
    of_host = [kind for kind in copies.kinds if kind.direction in (CopyDirection.TO_DEVICE, CopyDirection.TO_HOST)]
    pageable = sum(kind.copies for kind in of_host if kind.host_memory is HostMemory.PAGEABLE)
    return 2 * pageable > sum(kind.copies for kind in of_host)


def _pin_first(copies: Copies) -> bool:
    """Whether most of the time of copies is of pageable memory, and nothing shows what pinning it would bring."""
    unknown = [kind for kind in copies.pageable if kind.best_pinned_bytes_per_s is None]
    unstaged = [kind for kind in unknown if kind.bytes >= STAGED_BYTES * kind.copies]
    if any(_worth_pinning(copies)):
        return False
    return 2 * sum(kind.exposed_ns for kind in unstaged) > sum(kind.exposed_ns for kind in copies.kinds)


def _largest_part(part_ns: int, whole_ns: int) -> str:
    """What to call the largest of several parts."""
    return "most of it" if 2 * part_ns >= whole_ns else "the largest part"


def _what_to_do(
    name: str, split: TimeSplit, limit: Limit, copies: Copies | None, *, sampled: bool, smaller: bool
) -> tuple[str, list[str], str]:
    """Action, commands and evidence."""
    part_ns = _part_ns(split, limit) if limit is Limit.HOST else _at_stake_ns(split, limit)
    part = f"{fmt.duration(part_ns)} of {fmt.duration(split.window_ns)}"
    match limit:
        case Limit.KERNELS:
            return _faster_kernels(name, split, part)
        case Limit.COPIES:
            words = copies_words([copies])
            least, what = ("Set less memory", "memsets") if _mostly_memsets(copies) else ("Copy less", "copies")
            if copies is not None and not copies.kinds and not copies.memsets:
                least, what = "Migrate less unified memory", "migrations"
            action = f"{least} in {name}, or overlap its {what} with kernels"
            hidden_ns = _hidden_ns(split, copies)
            needs_pinned = hidden_ns and _mostly_pageable(copies)
            more = " Overlap needs pinned memory: pageable copies hold the host." if needs_pinned else ""
            if copies is not None and _pin_first(copies):
                more = (
                    " Try pinned memory first: copies of pageable memory take most of this time, and are usually "
                    f"slower. No pinned copy here shows its rate.{more}"
                )
            if hidden_ns < MOST_COPIES * split.copies_ns:
                action = f"{least} in {name}"
                hidden = (
                    f"can hide {fmt.duration(hidden_ns)} of that at most" if hidden_ns else "cannot hide any of that"
                )
                host = ""
                if split.host_ns >= _worth_ns(split.window_ns):
                    host = " Overlap with host work (double buffering) may hide more: do not synchronise right after."
                more = f" Overlap with its kernels {hidden}, copying less all of it.{host}{more}"
            return action, [], f"{words} were in flight without a kernel for {part}.{more}".removesuffix(".")
        case Limit.WAITING:
            action = f"Cut start latency between kernels of {name}: {_shorter_starts(split)}"
            gaps = f"in gaps of at most {LAUNCH_GAP_NS // 1000} us"
            why = f"launched work waited with nothing in flight for {part}, {gaps}"
            left = "start latency and dependencies (events, graph edges)"
            left = f"It was queued in time: what is left are {left}" if split.queued_in_time else f"That is {left}"
            return action, [], f"{why}{_graphs_there(split)}. {left}{_waits_by_launch(split)}"
        case Limit.LAUNCHES:
            if split.sync_gaps is not None and split.mostly_after_sync != smaller:
                return _after_sync(name, split, split.sync_gaps)
            # Graphs launch the same kernels: these get no longer.
            remedies = f"(fusion, larger batches), or use {'larger' if split.graph_launches else 'CUDA'} graphs"
            why = _between_launches(split)
            waits = split.launch_waits
            if waits is None or not waits.often:
                return f"Launch fewer, longer kernels in {name} {remedies}", [], why
            # While the host waits, nothing is queued behind a kernel: that gap stays, however long the kernels are.
            action = f"Remove or defer {waits.call} after launches in {name} (events, streams)"
            counted = f"{fmt.count(waits.waited)} of {fmt.counted(waits.launches, 'launch', 'launches')}"
            said = f"the program synchronises after {counted} before it launches again ({waits.call})"
            return f"{action}; then launch fewer, longer kernels {remedies}", [], f"{said}. {capital(why)}"
        case Limit.API_CALLS:
            if split.code_loading is not None and _mostly_loading(split):
                return _load_before(name, split, split.code_loading, part)
            call = split.api_call or "CUDA calls"
            rest = "call it less often"
            if split.api_call_count <= FEW_CALLS:
                rest = "the first call may initialise the device: make one before the measured part"
            remedy = next((do for named, do in _CALLS if re.search(named, call)), rest)
            if "Memcpy" in call and _mostly_pageable(copies):
                # Such copies hold the host in whatever stream they are.
                remedy = "copy from and to pinned memory, asynchronously, in a stream of its own"
            largest = _largest_part(split.api_call_ns, split.api_calls_ns or 0)
            why = f"nothing was in flight while CUDA calls ran for {part}; {largest}"
            why = f"{why}, {fmt.duration(split.api_call_ns)}, in {call}"
            return f"Spend less time in {call} in {name}: {remedy}", [], why
        case Limit.HOST:
            return _busy_host(name, split, part, sampled=sampled)


def _loading_before_ns(split: TimeSplit) -> int:
    """Time of calls before the first operation that load code: they have the same cause, and the same remedy."""
    return 0 if split.calls_before is None else split.calls_before.loading_ns


def _load_before(name: str, split: TimeSplit, loading: CodeLoading, part: str) -> tuple[str, list[str], str]:
    """What to do where CUDA calls mostly load code."""
    calls = [(visible(one.call, 40), one.ns) for one in loading.calls]
    each = [f"{call} ({fmt.duration(ns)})" for call, ns in calls[:_MOST_CALLS]]
    others = " and others" if loading.ns > sum(ns for _, ns in calls[:_MOST_CALLS]) else ""
    which = f"calls that load code: {fmt.names(each)}{others}"
    why = f"nothing was in flight while CUDA calls ran for {part}; {_largest_part(loading.ns, split.api_calls_ns or 0)}"
    before_ns = _loading_before_ns(split)
    before = f". Before the first operation, such calls took {fmt.duration(before_ns)}" if before_ns else ""
    named = fmt.names([call for call, _ in calls[:_MOST_CALLS]])
    return (
        f"Spend less time in {named} in {name}: {_LOAD_BEFORE}",
        [],
        f"{why}, {fmt.duration(loading.ns)}, in {which}{before}. {_loaded_or_compiled(split, loading)}",
    )


def _loaded_or_compiled(split: TimeSplit, loading: CodeLoading) -> str:
    """What these calls did as far as it is recorded, and what that means for a program that runs once."""
    before = None if split.calls_before is None else split.calls_before.recorded
    records = [one for one in (loading.recorded, before) if one is not None]
    loaded_ns, compiled_ns = sum(one.loaded_ns for one in records), sum(one.compiled_ns for one in records)
    # Records of a small part do not say what the rest of their time is.
    if 2 * (loaded_ns + compiled_ns) < loading.ns + _loading_before_ns(split):
        said = f"If they compile PTX for this GPU (JIT), {_BUILT}"
    elif not compiled_ns:
        said = (
            f"CUPTI recorded module and function loading in them for {fmt.duration(loaded_ns)}, and no JIT compilation"
        )
        return f"{said}. A program that runs once gains nothing: it loads the same code"
    else:
        loaded = f"module and function loading for {fmt.duration(loaded_ns)}"
        said = f"CUPTI recorded JIT compilation in them for {fmt.duration(compiled_ns)}, {loaded}. {capital(_BUILT)}"
    return f"{said}. A program that runs once gains only the time of JIT compilation"


def _shorter_starts(split: TimeSplit) -> str:
    """What shortens the start latency of launched work, by where most of it is."""
    waits = split.graph_waits
    if not split.graph_launches:
        graph = ["one graph"]
    elif waits is None or not (waits.one_by_one_most or waits.later_nodes_most):
        graph = ["larger graphs"]
    else:
        graph = ["graphs of what is launched one by one"] if waits.one_by_one_most else []
    # Where kernels start early, it is in use.
    early = [] if split.early_starts else ["programmatic dependent launch"]
    *ways, last = ["fewer, longer kernels", *graph, *early]
    if not ways:
        return last
    return f"{', '.join(ways)}{',' if len(ways) > 1 else ''} or {last}"


def _waits_by_launch(split: TimeSplit) -> str:
    """Where launched work waited, and whether any kernel started early: to stand behind a sentence."""
    waits, said = split.graph_waits, ""
    if waits is not None:
        parts = [
            f"{what} ({fmt.duration(ns)})"
            for ns, what in (
                (waits.one_by_one_ns, f"{fmt.counted(waits.one_by_one, 'operation')} launched one by one"),
                (waits.graphs_ns, fmt.counted(waits.graphs, "graph")),
                (waits.later_nodes_ns, f"{fmt.counted(waits.later_nodes, 'later node')} of graphs"),
            )
            if ns
        ]
        said = f". The wait was before {fmt.names(parts)}" if parts else ""
    if split.early_starts is None:
        return said
    if split.early_starts:
        early = fmt.counted(split.early_starts, "kernel")
        return (
            f"{said}. {early} started before the one before in the stream ended, as with programmatic dependent launch"
        )
    return (
        f"{said}. No kernel started before the one in front of it ended: programmatic dependent launch is not in use, "
        "or without effect"
    )


def _graphs_there(split: TimeSplit) -> str:
    """How many graphs a process launches already, to stand behind a clause; empty: none, or not known."""
    if not split.graph_launches:
        return ""
    return f"; the capture has {fmt.counted(split.graph_launches, 'graph launch', 'graph launches')} already"


def _hidden_ns(split: TimeSplit, copies: Copies | None) -> int:
    """What overlap with kernels could hide at most of the time of copies and memsets without one."""
    if copies is None:
        return split.kernels_ns
    # Copies inside the device, and memsets, may stand anywhere between kernels.
    anywhere = [kind.exposed_ns if kind.hideable_ns is None else kind.hideable_ns for kind in copies.kinds]
    sets_ns = 0 if copies.memsets is None else copies.memsets.exposed_ns
    return min(split.kernels_ns, split.copies_ns, sum(anywhere) + sets_ns)


def _busy_host(name: str, split: TimeSplit, part: str, *, sampled: bool) -> tuple[str, list[str], str]:
    """What to do where the host keeps the GPU waiting, by what is recorded of it."""
    activity = split.host_activity
    before = " before its last launch" if split.host_after_ns else ""
    why = f"the process had no work on the GPU and no CUDA call in progress for {part}{before}"
    spent = "" if activity is None else host_words(activity)
    # What the host did is known of all of its time, not of the gap.
    whole = f"all {fmt.duration(split.host_ns)}"
    did = f". Of {whole}, the host spent {spent}" if spent else ""
    samples = None if activity is None else activity.cpu_samples
    if samples is not None:
        did = f"{did}. CPU samples in {whole} {sampled_words(samples)}"
    gap = split.one_gap
    if gap is not None and gap.at_start:
        again = f"pyanalyze CAPTURE --start {gap.end_ns // 1000}us   # without its start"
        length, of_host = fmt.duration(gap.end_ns - gap.start_ns), fmt.duration(gap.of_host_ns)
        much = of_host if split.without_gap is None else "almost all"
        once = f"{much} of it {'is one gap' if of_host == length else f'lies in one gap of {length}'} at its start"
        commands = [again, _profile(activity, sampled=sampled)]
        # It changes nothing, but says what a change is worth.
        action = f"Before any change, look at {name} without its start, in which the GPU waited longest"
        return action, commands, f"{why}; {once}{did}{_behind(split, gap)}"
    why = f"{why}{did}{_synchronised(split)}"
    most = None if activity is None else activity.most
    if most is None:
        why = f"{why}{_waited(activity)}"
        return f"Profile the host code of {name}: the GPU waits for it", [_profile(activity, sampled=sampled)], why
    called = host_part_name(most)
    if most.kind is HostKind.MPI:
        record = recording(trace="cuda,nvtx,mpi", switches=False)
        commands = [f"{record}   # for every rank, each with a NAME of its own: shows which ranks come late"]
        action, found = _exchange(name, None if activity is None else activity.mpi_calls)
        return action, commands, f"{why}{found}"
    if most.kind is HostKind.VIDEO:
        action = f"Spend less time in {called} in {name}: keep codecs, and feed them from a thread of their own"
        return action, [], why
    why = f"{why}{_waited(activity)}"
    if most.range:
        why = f"{why}. {capital(called)} was called mostly inside NVTX range {visible(most.range, 40)}"
    return f"Profile the host code of {name}: the GPU waits for it", [_profile(activity, sampled=sampled)], why


def _synchronised(split: TimeSplit) -> str:
    """That the host was mostly late after it had waited for the GPU, to stand behind a clause; empty: it was not.

    That call is no cause: a server waits in it for its answer, and then for the next request.
    """
    gaps = split.host_after_sync
    if gaps is None:
        return ""
    part = fmt.duration(gaps.host_ns)
    part = "All" if part == fmt.duration(_part_ns(split, Limit.HOST)) else part
    said = (
        f". {part} of it came after the host had waited in {visible(gaps.call, 40)} until "
        f"nothing was queued, {_times(gaps.long_gaps)}"
    )
    if gaps.long_host_median_ns is not None:
        said = f"{said}. It then made no CUDA call for a median of {fmt.duration(gaps.long_host_median_ns)}"
    if _told_with_host(split):
        short = f"{fmt.counted(gaps.short_gaps, 'gap')} of at most {LAUNCH_GAP_NS // 1000} us"
        said = f"{said}. The same call returned in {short} as well: {fmt.duration(gaps.launches_ns)} of launching"
    if not _host_known(split.host_activity):
        said = (
            f"{said}. The capture cannot tell whether the host computed in that time or waited for input. If it waited "
            "for requests, this is spare capacity"
        )
    return said


def _host_known(activity: HostActivity | None) -> bool:
    """Whether records tell what the host did: calls of the C library, other calls and ranges, or CPU samples."""
    if activity is None:
        return False
    samples = activity.cpu_samples
    sampled = samples is not None and samples.samples >= _ENOUGH_SAMPLES
    return sampled or activity.most is not None or HostKind.OS in activity.recorded


def _behind(split: TimeSplit, gap: LongestGap) -> str:
    """What is left to look at without a gap at the start, to stand behind a clause; empty: not known."""
    if gap.after_ns is None:
        return ""
    left = gap.operations - gap.operations_before
    host = min(max(split.host_ns - gap.of_host_ns, 0), gap.after_ns)
    operations = fmt.counted(left, "operation")
    return (
        f". Without that gap, {fmt.duration(gap.after_ns)} with {operations} are left, {fmt.duration(host)} of it the "
        "host's"
    )


def _waited(activity: HostActivity | None) -> str:
    """For whom the host waited longest, to stand behind a clause; empty: for nobody."""
    waits = "" if activity is None else outside_words(activity)
    return f". It {waits}" if waits else ""


def _outside(name: str, split: TimeSplit) -> Iterator[Advice]:
    """Advise on waits of the host that no code of it shortens, where nothing else of its time is worth it."""
    outside = None if split.host_activity is None else split.host_activity.longest_outside
    outside_ns = min(_outside_ns(split), split.host_ns)
    if outside is None or outside.waits_for is None or outside_ns < _worth_ns(split.window_ns):
        return
    call = visible(outside.name, 40)
    yield Advice(
        action=f"{_OUTSIDE[outside.waits_for].format(name)} ({call})",
        commands=[],
        expected=None,
        # To look at it saves nothing by itself.
        bound=None,
        why=f"the process had no work on the GPU and no CUDA call in progress for {fmt.duration(split.host_ns)} of "
        f"{fmt.duration(split.window_ns)}{_waited(split.host_activity)}",
        undo=None,
        at_stake_ns=outside_ns,
        at_stake_share=outside_ns / split.window_ns,
    )


def _exchange(name: str, calls: MpiCalls | None) -> tuple[str, str]:
    """What to do about calls of MPI, and what their lengths say of the cause: one rank does not show who was late."""
    pattern = MpiPattern.FEW if calls is None else calls.pattern
    match pattern:
        case MpiPattern.SET_UP:
            action = f"Let the ranks of {name} exchange once before the part that counts"
            action = f"{action}: the first MPI calls take most of the time of all"
        case MpiPattern.REGULAR:
            action = f"Overlap the MPI exchange of {name} with kernels, or make it cheaper"
            action = f"{action}: its calls take about the same time each"
        case _:
            action = f"Balance the ranks of {name}, or overlap its MPI exchange with kernels"
            action = f"{action}: the GPU waits for MPI calls"
    if calls is None or pattern is MpiPattern.FEW:
        return action, ""
    function = visible(calls.name, 40)
    found = ""
    if calls.first_ns >= SMALL_SHARE * (calls.first_ns + calls.other_ns):
        first = "call" if calls.first_calls == 1 else f"{fmt.count(calls.first_calls)} calls"
        found = f". The first {first} of {function} took {fmt.duration(calls.first_ns)}, as a one-off set-up does"
    said = f"{'the others' if found else f'calls of {function}'} took {fmt.duration(calls.p10_ns)} to "
    said = f"{capital(said)}{fmt.duration(calls.p90_ns)} (p10-p90), the longest {fmt.duration(calls.longest_ns)}"
    causes = {
        MpiPattern.REGULAR: "a fixed cost of each, or ranks that are always late by as much",
        MpiPattern.SCATTERED: "ranks that are late by different times, or messages of different sizes",
    }.get(pattern)
    return action, f"{found}. {said}{f': {causes}' if causes else ''}"


def _profile(activity: HostActivity | None, *, sampled: bool) -> str:
    """The command that shows what the host does: what the capture has already, and what it lacks."""
    recorded = () if activity is None else activity.recorded
    kept = [word for word, kind in (("mpi", HostKind.MPI), ("nvvideo", HostKind.VIDEO)) if kind in recorded]
    samples = None if activity is None else activity.cpu_samples
    if samples is not None and samples.samples >= _ENOUGH_SAMPLES:
        return "nsys-ui REPORT.nsys-rep   # call stacks of its CPU samples show what calls these functions"
    # Whether ranges were traced does not show where the program has none.
    if sampled and activity is not None and activity.os_ns:
        return "nsys-ui REPORT.nsys-rep   # its CPU samples and OS calls show what the host does"
    options = () if sampled else ("--sample=process-tree",)
    profile = recording(*options, trace=",".join([TRACE, "osrt", *kept]), switches=False)
    # Without that permission nsys records all the rest, and nothing of what the code does.
    needs = "" if sampled else "; needs kernel.perf_event_paranoid of at most 2 (sysctl; a change of the machine)"
    return f"{profile}   # shows what the host does{needs}"


def _durations(split: TimeSplit) -> str:
    if split.graphs_in_kernels:
        return "all kernel time outside whole graphs"
    return "summed kernel time (kernels overlap)" if split.overlapping else "all kernel time"


def _only(only_ns: int) -> str:
    """What is said of the kernel that was in flight without others for longest, behind its name."""
    return f"was the only one in flight for {fmt.duration(only_ns)}, longer than any other"


def _top_kernel_part(split: TimeSplit) -> str:
    """How much of which time the top kernel has, and in how many rows of the table of launch configurations."""
    configurations = split.top_kernel_configurations
    split_up = f", in {fmt.count(configurations)} launch configurations" if configurations > 1 else ""
    if split.top_kernel_equals:
        return f"{fmt.percent(split.top_kernel_share)} each of {_durations(split)}"
    return f"{fmt.percent(split.top_kernel_share)} of {_durations(split)}{split_up}"


def _named_kernels(split: TimeSplit) -> str:
    """The kernel that an item is about, with those that have as much."""
    kernels = [str(split.top_kernel), *split.top_kernel_equals]
    return f"{'kernels' if len(kernels) > 1 else 'kernel'} {fmt.names(kernels)}"


def ncu_filter(kernel: str) -> list[str]:
    r"""What has ncu count a kernel: its short name, or the words that tell it apart in its demangled name.

    Examples
    --------
    >>> ncu_filter("saxpy"), ncu_filter("reduce<Max, lam…ction> #2")
    (['-k', 'saxpy'], ['--kernel-name-base', 'demangled', '-k', 'regex:reduce\\b.*\\bMax\\b.*\\blam.*ction\\b'])
    """
    if not re.search(r"[<(:]", kernel):
        return ["-k", kernel]
    words = re.findall(r"\w+|…", re.sub(r" #\d+$", "", kernel))
    between = r"\b.*\b"
    pattern = between.join(words).replace(f"{between}…{between}", ".*")
    return ["--kernel-name-base", "demangled", "-k", rf"regex:{pattern}\b"]


def _least_ns(split: TimeSplit) -> int:
    """What launches of the top kernel take at least, if the shortest kernel of the program does nearly nothing; else 0.

    Of a few launches in much longer kernels it is no part worth saying.
    """
    shortest_ns = split.shortest_kernel_ns
    if shortest_ns is None or shortest_ns > _NEARLY_EMPTY_NS or split.overlapping:
        return 0
    # A matrix product does not get as short as a kernel that handles some elements.
    if split.top_kernel_library is not None:
        return 0
    least_ns = min(split.top_kernel_launches * shortest_ns, split.top_kernel_ns)
    return least_ns if least_ns >= SMALL_SHARE * split.top_kernel_ns else 0


def _nearly_empty(split: TimeSplit) -> bool:
    """Whether making the top kernel faster gains nothing worth an item: leaving launches out does."""
    return _least_ns(split) > max(split.top_kernel_ns - _worth_ns(split.window_ns), 0)


def _faster_kernels(name: str, split: TimeSplit, part: str) -> tuple[str, list[str], str]:
    kernel = split.top_kernel
    if kernel is None or split.mostly_graphs:
        part = f"{fmt.duration(split.graphs_ns)} of {fmt.duration(split.window_ns)}"
        why = f"whole graphs were in flight for {part}, and their kernels are not known"
        command = recording("--cuda-graph-trace=node", switches=False)
        return f"Trace the kernels inside the graphs of {name}", [command], why
    # The first launches load and warm up, and may be of another size.
    skipped = min(_WARM_UP_LAUNCHES, max(split.top_kernel_launches - _COUNTED_LAUNCHES, 0) // 2)
    which = [*(["-s", str(skipped)] if skipped else []), "-c", str(_COUNTED_LAUNCHES)]
    commands = [
        shell_line(["ncu", "--set", "full", *which, *ncu_filter(one), "PROGRAM"])
        for one in (kernel, *split.top_kernel_equals)
    ]
    have = "have" if split.top_kernel_equals else "has"
    named = fmt.names([kernel, *split.top_kernel_equals])
    why = f"kernels were in flight for {part}; {named} {have} {_top_kernel_part(split)}"
    if split.overlapping and split.top_kernel_only_ns is not None:
        why = f"kernels overlap, and were in flight for {part}; {named} {_only(split.top_kernel_only_ns)}"
    action = f"Make {_named_kernels(split)} of {name} faster"
    library = split.top_kernel_library
    if library is not None:
        # Nobody but its vendor can edit it: what it does, the call decides.
        action = f"Call {library} in {name} with larger batches, smaller types or other shapes, or fuse calls"
        action = f"{action}, to shorten {_named_kernels(split)}"
        commands = []
        why = f"{why}. {library} chose it by shapes and types (told by its name)"
    if _faulting_ns(split):
        why = (
            f"{why}. For {fmt.duration(_faulting_ns(split))}, migrations because of page faults were in flight as well"
        )
        why = f"{why}: prefetch first, then record again"
    if not _least_ns(split):
        less = ", less the time of these migrations" if _faulting_ns(split) else ""
        none = "one of them" if split.top_kernel_equals else "it"
        return action, commands, f"{why}. The upper bound assumes that {none} takes no time{less}"
    mean_ns = split.top_kernel_ns / split.top_kernel_launches
    least = f"a launch takes {fmt.duration(mean_ns)}, and one of the shortest kernel of the program "
    why = f"{why}. {capital(least)}{fmt.duration(split.shortest_kernel_ns)} (means): hardly more than start and end"
    if _nearly_empty(split):
        action = f"Launch {_named_kernels(split)} of {name} less often, or fuse it with others"
        return action, [], f"{why}. The upper bound assumes that it is not launched"
    # Those of a graph are no launches of their own.
    fewer = "" if split.graph_launches else "; fewer launches save more"
    return action, commands, f"{why}. The upper bound assumes that it becomes as short{fewer}"
