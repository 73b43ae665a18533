"""Whether the streams of one process overlapped, why not, and who slowed whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from pyanalyze.results.model import Finite, Number, Result, Text
from pyanalyze.vocabulary import IN_ORDER, NOT_LOST, StreamReason

if TYPE_CHECKING:
    from pyanalyze.results.time_split import TimeSplit

__all__ = ["StreamLoss", "StreamPair", "StreamSlowdown", "StreamUse", "Streams"]


class StreamUse(Result):
    """One stream with work."""

    context_id: int | None = Field(description="CUDA context id; null: not exported.")
    stream_id: int = Field(ge=0, description="CUDA stream id.")
    green_context_id: int | None = Field(
        default=None, description="Green context that its kernels ran in; null: none, or not exported."
    )
    operations: int = Field(ge=0, description="Kernels, whole graphs, copies and sets.")
    kernels: int = Field(ge=0, description="Of these, kernels and whole graphs.")
    busy_ns: int = Field(ge=0, description="Union of its operations, ns.")
    priority: int | None = Field(description="A lower number goes first; null: not exported.")
    flag: int | None = Field(
        description="1 synchronises with the legacy default stream, 2 does not, 3 is it; null: not exported."
    )
    is_graph_branch: bool = Field(
        default=False,
        description="All its operations are nodes of graphs that were launched to another stream: CUDA made it for a "
        "branch of a graph, not the program.",
    )


class StreamLoss(Result):
    """Time in which one stream of a pair was in flight and the other was not, for one reason."""

    reason: StreamReason = Field(description="As columns of the capture decide it; `unexplained` where none does.")
    waiting_stream: int = Field(ge=0, description="The stream that was not in flight.")
    had_work: bool = Field(description="It had work: part of the pair's not_overlapped_ns; else of its late_ns.")
    without_overlap_ns: int = Field(ge=0, description="How long, ns.")
    operations: int = Field(ge=0, description="How many operations waited or came late.")


class StreamPair(Result):
    """Two streams of one process on one device."""

    context_a: int | None = Field(description="Context of the first stream; null: not exported.")
    stream_a: int = Field(ge=0, description="The first stream.")
    context_b: int | None = Field(description="Context of the second stream; null: not exported.")
    stream_b: int = Field(ge=0, description="The second stream.")
    both_had_work_ns: int = Field(
        ge=0,
        description="Both had an operation launched and not finished, and neither waited, or may have waited, for SMs "
        "of its green context, which the other one cannot fill, ns. Until a graph begins, only the stream that it was "
        "launched to has it as work.",
    )
    overlap_ns: int = Field(
        ge=0, description="Both were in flight: had an operation that had started and not ended, ns."
    )
    not_overlapped_ns: int = Field(ge=0, description="Both had work, but only one was in flight, ns.")
    late_ns: int = Field(
        ge=0, description="One was in flight and had ended before the other was launched: at most what came late, ns."
    )
    alternations: int = Field(ge=0, description="How often an operation of one started after one of the other.")
    reason: StreamReason | None = Field(
        description="Of most of the lost and late time; `no-work` where they never had work at the same time; "
        "`contention` where they overlapped and both were slowed; null: they overlapped and lost little."
    )
    filled_by: Text | None = Field(
        default=None,
        description="Where `reason` is `sm-resources` or `possibly-sm-resources`: short name of the kernel that by "
        "itself left no SMs during most of that wait, of either stream or a third; null: not known. Hostile text.",
    )
    speedup_over_serial: Number = Field(
        default=None,
        description="Solo time of what both had in flight at once, over the time in which they did, by the slowdowns "
        "of their kernels: below 1 one after the other is faster. Null: those cover less than 90 % of the overlap.",
    )
    speedup_low: Number = Field(default=None, description="It with the upper ends of the slowdowns.")
    speedup_high: Number = Field(default=None, description="It with their lower ends.")
    losses: list[StreamLoss] = Field(description="Lost and late time by reason, most first.")

    @property
    def lost_ns(self) -> int:
        """Time without overlap that neither insufficient SM resources nor an order of the two explains, ns.

        Examples
        --------
        >>> reasons = {StreamReason.SM_RESOURCES: 6, StreamReason.UNEXPLAINED: 1}
        >>> losses = [
        ...     StreamLoss(reason=reason, waiting_stream=9, had_work=True, without_overlap_ns=ns, operations=1)
        ...     for reason, ns in reasons.items()
        ... ]
        >>> StreamPair(
        ...     context_a=1, stream_a=7, context_b=1, stream_b=9, both_had_work_ns=9, overlap_ns=2, not_overlapped_ns=7,
        ...     late_ns=0, alternations=1, reason=None, losses=losses,
        ... ).lost_ns
        1
        """
        explained_ns = sum(loss.without_overlap_ns for loss in self.losses if loss.reason in NOT_LOST)
        return max(self.not_overlapped_ns + self.late_ns - explained_ns, 0)


class StreamSlowdown(Result):
    """A kernel beside another stream against itself while no other stream of the process was in flight."""

    context_id: int | None = Field(description="Context of the kernel; null: not exported.")
    stream_id: int = Field(ge=0, description="Stream of the kernel.")
    kernel: Text | None = Field(description="Short name; null: not recorded. Hostile text.")
    grid_blocks: int | None = Field(description="Blocks of the grid; null: not exported.")
    block_threads: int | None = Field(description="Threads of a block; null: not exported.")
    beside_context: int | None = Field(description="Context of the other stream; null: not exported.")
    beside_stream: int = Field(ge=0, description="The other stream, which covered at least half of the kernel.")
    beside_kernel: Text | None = Field(
        description="Kernel of the other stream that overlapped it most; null: copies only, or no name. Hostile text."
    )
    n: int = Field(ge=0, description="Launches beside the other stream.")
    n_solo: int = Field(ge=0, description="Launches solo.")
    n_graph_nodes: int = Field(default=0, ge=0, description="Of the launches beside it, nodes of graphs.")
    n_solo_graph_nodes: int = Field(default=0, ge=0, description="Of the launches solo, nodes of graphs.")
    total_ns: int = Field(ge=0, description="Sum of the durations beside the other stream, ns.")
    overlap_ns: int = Field(default=0, ge=0, description="Of these, while the other stream was in flight, ns.")
    median_ns: int | None = Field(description="Median duration beside it, ns.")
    solo_median_ns: int | None = Field(description="Median duration solo, ns; null: never ran solo.")
    ratio: Number = Field(
        description="How many times as long as solo it took while the other stream was in flight; null: too few "
        "launches on either side, or an interval that says nothing."
    )
    low: Number = Field(description="Lower end of its 95 % interval.")
    high: Number = Field(description="Upper end of it.")


class Streams(Result):
    """The streams of one process on one device, where it used several.

    Source: kernel, copy and API records, contexts and streams of the capture. Pairs are of the 64 busiest streams.
    """

    window_ns: int = Field(ge=0, description="First start to last end of its operations, ns.")
    streams: list[StreamUse] = Field(description="Streams with work, busiest first.")
    pairs: list[StreamPair] = Field(description="Every pair of them, most lost and late time first.")
    slowdowns: list[StreamSlowdown] = Field(description="Kernels beside another stream, most time first.")
    calls_known: bool = Field(
        description="Launch calls were recorded; without them it is not known what waited or came late."
    )
    whole_graphs: int = Field(
        default=0,
        ge=0,
        description="Graphs that were traced whole: what overlaps inside one is not known, only what overlaps it.",
    )

    def is_graph_branch(self, context_id: int | None, stream_id: int) -> bool:
        """Whether CUDA made a stream for branches of graphs: the program has none with that number.

        Examples
        --------
        >>> Streams(window_ns=0, streams=[], pairs=[], slowdowns=[], calls_known=True).is_graph_branch(1, 7)
        False
        """
        whose = (context_id, stream_id)
        return any(one.is_graph_branch for one in self.streams if (one.context_id, one.stream_id) == whose)

    def green_context(self, context_id: int | None, stream_id: int) -> int | None:
        """Return the green context of a stream; None: it is in none, or that is not exported.

        Examples
        --------
        >>> Streams(window_ns=0, streams=[], pairs=[], slowdowns=[], calls_known=True).green_context(1, 7) is None
        True
        """
        whose = (context_id, stream_id)
        return next((one.green_context_id for one in self.streams if (one.context_id, one.stream_id) == whose), None)

    @property
    def most_lost(self) -> StreamPair | None:
        """The pair with most lost and late time; None: none lost any.

        Examples
        --------
        >>> Streams(window_ns=0, streams=[], pairs=[], slowdowns=[], calls_known=True).most_lost is None
        True
        """
        return next((pair for pair in self.pairs if pair.not_overlapped_ns + pair.late_ns > 0), None)

    @property
    def lost_share(self) -> Finite:
        """Lost and late time of that pair over the window; 0: none was lost.

        Examples
        --------
        >>> Streams(window_ns=0, streams=[], pairs=[], slowdowns=[], calls_known=True).lost_share
        0.0
        """
        pair = self.most_lost
        return 0.0 if pair is None or not self.window_ns else (pair.not_overlapped_ns + pair.late_ns) / self.window_ns

    def could_overlap_ns(self, pair: StreamPair) -> int | None:
        """Return how much more could overlap; None: not known.

        That is what the less busy stream ran without the other, and no more than what nothing put in order.

        Examples
        --------
        >>> use = dict(operations=1, kernels=1, priority=None, flag=None)
        >>> both = [StreamUse(context_id=1, stream_id=n, busy_ns=n, **use) for n in (7, 9)]
        >>> pair = StreamPair(
        ...     context_a=1, stream_a=7, context_b=1, stream_b=9, both_had_work_ns=9, overlap_ns=2, not_overlapped_ns=7,
        ...     late_ns=0, alternations=1, reason=None, losses=[],
        ... )
        >>> Streams(window_ns=9, streams=both, pairs=[pair], slowdowns=[], calls_known=True).could_overlap_ns(pair)
        5
        """
        whose = {(pair.context_a, pair.stream_a), (pair.context_b, pair.stream_b)}
        busy_ns = [one.busy_ns for one in self.streams if (one.context_id, one.stream_id) in whose]
        if len(busy_ns) != len(whose):
            return None
        in_order_ns = sum(loss.without_overlap_ns for loss in pair.losses if loss.reason in IN_ORDER)
        return max(min(min(busy_ns) - pair.overlap_ns, pair.not_overlapped_ns + pair.late_ns - in_order_ns), 0)

    def without_gap(self, split: TimeSplit | None) -> Streams:
        """Return the streams without one gap of the process that is almost all of its host time; as they are if none.

        Nothing of the process was in flight in that gap, so only the window gets shorter.

        Examples
        --------
        >>> Streams(window_ns=9, streams=[], pairs=[], slowdowns=[], calls_known=True).without_gap(None).window_ns
        9
        """
        gap = None if split is None or split.without_gap is None else split.one_gap
        if gap is None:
            return self
        return self.model_copy(update={"window_ns": max(self.window_ns - (gap.end_ns - gap.start_ns), 0)})

    @property
    def alternating(self) -> StreamPair | None:
        """The pair of streams of two contexts that alternated most often and never overlapped; None: there is none.

        Examples
        --------
        >>> Streams(window_ns=0, streams=[], pairs=[], slowdowns=[], calls_known=True).alternating is None
        True
        """
        apart = [
            pair
            for pair in self.pairs
            if pair.context_a != pair.context_b and pair.alternations > 1 and not pair.overlap_ns
        ]
        return max(apart, key=lambda pair: pair.alternations, default=None)
