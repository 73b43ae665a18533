"""Streams of a process: their names, how much overlap they lost, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import IN_ORDER, SMALL_SHARE, StreamReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.results.streams import StreamPair, Streams
    from pyanalyze.results.time_split import TimeSplit

#: Why streams did not overlap, to stand behind a colon.
STREAM_REASONS: Final[Mapping[StreamReason, str]] = {
    StreamReason.LAUNCHED_LATE: "launched after the other ended",
    StreamReason.LAUNCH_LATENCY: "usual latency of launches",
    StreamReason.COPY_IN_FRONT: "a kernel behind a copy that waited for a copy engine",
    StreamReason.COPY_ENGINE: "copies share a copy engine",
    StreamReason.BLOCKING_CALL: "a blocking call or pageable copy held the host",
    StreamReason.SYNCHRONIZATION: "the host waited for the GPU",
    StreamReason.DEPENDENCY: "waits for an event of another stream",
    StreamReason.UNKNOWN_DEPENDENCY: "waits for an event, source unknown",
    StreamReason.DEFAULT_STREAM: "the legacy default stream",
    StreamReason.SM_RESOURCES: "insufficient SM resources",
    StreamReason.POSSIBLY_SM_RESOURCES: "possibly insufficient SM resources",
    StreamReason.WHOLE_DEVICE_LAUNCH: "a kernel that takes the whole device",
    StreamReason.SHARED_CHANNEL: "both streams share a channel to the GPU",
    StreamReason.POSSIBLY_SHARED_CHANNEL: "possibly a shared channel to the GPU",
    StreamReason.GRAPH: "the order inside one graph",
    StreamReason.LAUNCH_BLOCKING: "CUDA_LAUNCH_BLOCKING",
    StreamReason.EVENT_TRACING: "possibly the event tracing of nsys",
    StreamReason.OTHER_PROCESS: "possibly kernels of another traced process",
    StreamReason.OTHER_CONTEXT: "contexts alternate",
    StreamReason.TIME_SLICE: "waiting for its time slice",
    StreamReason.NO_WORK: "never had work at the same time",
    StreamReason.CONTENTION: "they overlapped, and both slowed down",
    StreamReason.UNEXPLAINED: "unexplained",
}
#: What could overlap is said where it is less than this part of what did not.
_MUCH_LESS: Final = 0.5


def stream_name(
    context: int | None, stream: int, *, contexts: bool, green: int | None = None, branch: bool = False
) -> str:
    """The number of a stream; with that of its green context, or of its context where there are several.

    `branch`: CUDA made it for branches of graphs, so that no program knows its number.

    Examples
    --------
    >>> stream_name(1, 7, contexts=False), stream_name(1, 7, contexts=True)
    ('7', '7 of context 1')
    >>> stream_name(1, 15, contexts=False, green=2)
    '15 of green context 2'
    >>> stream_name(1, 20, contexts=False, branch=True)
    '20 (graph branch)'
    """
    note = " (graph branch)" if branch else ""
    if green is not None:
        return f"{stream}{note} of green context {green}"
    return f"{stream}{note} of context {context}" if contexts and context is not None else f"{stream}{note}"


def lost_streams_text(label: str, streams: Streams, split: TimeSplit | None = None) -> str:
    """Which two streams of a process lost most of its time, and why; else how much they overlapped.

    Parameters
    ----------
    label
        Name of the process.
    streams
        Its streams.
    split
        What its time was spent on: shares leave out one gap that is almost all of the host's time.
    """
    pair, without = streams.most_lost, streams.without_gap(split)
    # What nobody could see is no all-clear.
    inside = " Graphs were traced whole: streams inside a graph are not known."
    inside = inside if streams.whole_graphs else ""
    if pair is None or without.lost_share < SMALL_SHARE:
        most = max(streams.pairs, key=lambda one: one.overlap_ns, default=None)
        if most is not None and most.overlap_ns:
            text = f"{label}: streams {pair_name(most, streams)} overlapped for {fmt.duration(most.overlap_ns)}"
            if not streams.calls_known:
                return f"{text}.{inside}"
            # Where none was in flight, as while the context is switched out, neither missed the other.
            share = most.overlap_ns / (most.overlap_ns + most.not_overlapped_ns)
            text = f"{text}, {fmt.percent(share)} of the time in which both had work and at least one was in flight"
            return f"{text}.{inside}"
        used = f"{label} used {len(streams.streams)} streams, which"
        if pair is None:
            return f"{used} never had work at the same time.{inside}"
        return f"{used} missed overlap for less than {fmt.percent(SMALL_SHARE, 0)} of its time.{inside}"
    of = time_without_gap(streams, without)
    lost, part = fmt.duration(pair.not_overlapped_ns + pair.late_ns), f"{fmt.percent(without.lost_share)} of {of}"
    both = pair_name(pair, streams)
    why = "" if pair.reason is None else f": {stream_reason(pair)}"
    # What the program or the device puts in order could not have overlapped: nothing was lost.
    if pair.reason in IN_ORDER:
        none = " Nothing is lost by that." if pair.reason is StreamReason.GRAPH else ""
        return f"{label}: streams {both} did not overlap for {lost}, {part}{why}.{none}"
    if pair.reason is StreamReason.SM_RESOURCES:
        # Short, as it stands on the first screen; another reason may have a smaller part of that time.
        first = "" if pair.filled_by is None else ", whose blocks are first in line"
        return f"{label}: streams {both} did not overlap for {lost}, {part}{why}{first}."
    could_ns = streams.could_overlap_ns(pair)
    if could_ns is not None and 0 < could_ns < _MUCH_LESS * (pair.not_overlapped_ns + pair.late_ns):
        # While the busier stream ran, the other one had not as much to do.
        why += f"; at most {fmt.duration(could_ns)} more could overlap"
    part = f"{fmt.percent(pair.lost_ns / without.window_ns)} of {of}"
    return f"{label}: streams {both} lost {fmt.duration(pair.lost_ns)} of overlap, {part}{why}."


def time_without_gap(streams: Streams, without: Streams) -> str:
    """Name the time of a process that shares of its streams are of."""
    gap_ns = streams.window_ns - without.window_ns
    return f"its time without a gap of {fmt.duration(gap_ns)}" if gap_ns else "its time"


def stream_reason(pair: StreamPair) -> str:
    """Why two streams did not overlap, and beside which kernel SM resources were insufficient."""
    if pair.reason is None:
        return "little was lost"
    beside = "" if pair.filled_by is None else f" beside {visible(pair.filled_by, 40)}"
    return f"{STREAM_REASONS[pair.reason]}{beside}"


def pair_name(pair: StreamPair, streams: Streams) -> str:
    """The numbers of two streams, with those of their contexts where they are of two, and of their green contexts."""
    contexts = pair.context_a != pair.context_b
    green_a = streams.green_context(pair.context_a, pair.stream_a)
    green_b = streams.green_context(pair.context_b, pair.stream_b)
    branch_a = streams.is_graph_branch(pair.context_a, pair.stream_a)
    branch_b = streams.is_graph_branch(pair.context_b, pair.stream_b)
    # Of two in one green context its number stands once.
    once = green_a is not None and green_a == green_b
    contexts_a, said_a = (False, None) if once else (contexts, green_a)
    a = stream_name(pair.context_a, pair.stream_a, contexts=contexts_a, green=said_a, branch=branch_a)
    b = stream_name(pair.context_b, pair.stream_b, contexts=contexts, green=green_b, branch=branch_b)
    return f"{a} and {b}"
