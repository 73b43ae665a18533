"""What keeps the streams of a process from overlapping, where something can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.results.advice import Advice
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import SMALL_SHARE, StreamReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyanalyze.results.streams import Streams

__all__ = ["between_streams"]

#: What to do about a reason, and what was lost to it. Kernels that fill the SMs gain nothing by running at once, and a
#: dependency is what the program says.
_REMEDIES: Final[Mapping[StreamReason, tuple[str, str]]] = {
    StreamReason.DEFAULT_STREAM: (
        "Take work of {name} out of the legacy default stream",
        "build with --default-stream per-thread, or create the streams with cudaStreamNonBlocking",
    ),
    StreamReason.COPY_IN_FRONT: (
        "Launch the copies of {name} in another order, or in streams of their own",
        "copy engines keep the order of launch calls: a copy waited for earlier ones, and so did the kernel behind it",
    ),
    StreamReason.BLOCKING_CALL: (
        "Keep blocking calls of {name} out of the way of its launches",
        "allocate before the loop, copy from pinned memory, and launch the other stream's work first",
    ),
    StreamReason.SYNCHRONIZATION: (
        "Launch the next work of {name} before waiting for the last",
        "the host waited for the GPU between the launches of two streams",
    ),
    StreamReason.LAUNCHED_LATE: (
        "Launch the work of both streams of {name} earlier, or from two threads",
        "the second stream's work was launched after the first had ended",
    ),
    StreamReason.LAUNCH_BLOCKING: (
        "Unset CUDA_LAUNCH_BLOCKING for {name}",
        "with it every launch waits for its end, so that no two streams can overlap",
    ),
}


def between_streams(name: str, streams: Streams) -> Iterator[Advice]:
    """Advise what lets the streams of a process overlap: one item for each reason that cost a notable time.

    Parameters
    ----------
    name
        The process.
    streams
        Its streams, with launch calls.

    Examples
    --------
    >>> from pyanalyze.results.streams import Streams
    >>> list(between_streams("train", Streams(window_ns=1, streams=[], pairs=[], slowdowns=[], calls_known=True)))
    []
    """
    if not streams.calls_known or not streams.window_ns:
        return
    could_overlap = [streams.could_overlap_ns(pair) or 0 for pair in streams.pairs]
    for reason, (action, how) in _REMEDIES.items():
        # Of several pairs the one that lost most: they may have lost the same time.
        lost = [
            (
                min(sum(loss.without_overlap_ns for loss in pair.losses if loss.reason is reason), most),
                pair.stream_a,
                pair.stream_b,
            )
            for pair, most in zip(streams.pairs, could_overlap, strict=True)
        ]
        lost_ns, one, other = max(lost, default=(0, 0, 0))
        share = lost_ns / streams.window_ns
        if share < SMALL_SHARE:
            continue
        yield Advice(
            action=action.format(name=name),
            commands=[],
            expected=None,
            bound=f"{fmt.duration(lost_ns)}, {fmt.percent(share)} of its time, if streams {one} and {other} overlap",
            why=f"streams {one} and {other} did not run at once for {fmt.duration(lost_ns)} for this reason: {how}",
            undo=None,
            wrong_if="one of the two streams fills the SMs: kernels then take as long at once as one after the other",
            at_stake_ns=lost_ns,
            at_stake_share=share,
        )
