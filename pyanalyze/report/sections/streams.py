"""Streams of each process that used several: did they overlap, why not, and who slowed whom?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.nsys_tool import recording
from pyanalyze.report.blocks import Block, Cell, Column, Note, Para, Table, column_legend
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.streams import (
    STREAM_REASONS,
    lost_streams_text,
    pair_name,
    stream_name,
    stream_reason,
    time_without_gap,
)
from pyanalyze.results.explain import operation_text
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import TRAITS, StreamReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyanalyze.results.report import Device
    from pyanalyze.results.streams import StreamPair, Streams, StreamSlowdown
    from pyanalyze.results.time_split import TimeSplit

#: Rows shown of each table; the JSON has all.
_TOP = 12
#: What prints all rows.
_IN_JSON = "pyanalyze streams CAPTURE -f json"
#: Launches beside another stream, and without it, that the core needs to compare them.
_LEAST = 5


def _titled(device: Device) -> str:
    labels = tenant_labels(device.tenants)
    return f"Streams of {', '.join(labels[one.tenant_id] for one in device.tenants if one.streams is not None)}"


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels = tenant_labels(device.tenants)
    blocks = [
        block
        for tenant in device.tenants
        if tenant.streams is not None
        for block in _of_one(labels[tenant.tenant_id], tenant.streams, tenant.time_split)
    ]
    if blocks and TRAITS[device.sharing.mode].same_sms and len(device.tenants) > 1:
        blocks.insert(0, Para("Streams are compared within a process. Other tenants may fill the SMs meanwhile."))
    if blocks and TRAITS[device.sharing.mode].time_sliced:
        blocks.insert(0, Para("In flight includes time switched out."))
    if any(isinstance(block, Table) for block in blocks):
        of_one = (tenant.streams for tenant in device.tenants if tenant.streams is not None)
        reasons = {loss.reason for streams in of_one for pair in streams.pairs for loss in pair.losses}
        meant = (
            (STREAM_REASONS[reason][0].upper() + STREAM_REASONS[reason][1:], text)
            for reason, text in _MEANT.items()
            if reason in reasons
        )
        blocks.append(column_legend(*_COUNTED, *meant))
    return blocks


#: What columns count, and what reasons mean that their words do not say.
_COUNTED = (
    ("Both had work", "both streams had an operation whose launch call had returned and that had not ended"),
    ("Late", "an operation was launched after the other stream had ended"),
    ("Lost", "not overlapped and late, less waits for SMs that are full for certain and for what must run in order"),
)
_MEANT = {
    StreamReason.UNEXPLAINED: "the capture does not say why the two could not run at once",
    StreamReason.SM_RESOURCES: "one kernel by itself had filled the SMs; it may be of a third stream",
    StreamReason.POSSIBLY_SM_RESOURCES: "kernels in flight together left no room, as far as grids and blocks tell",
}


def _of_one(label: str, streams: Streams, split: TimeSplit | None) -> Iterator[Block]:
    yield Para(lost_streams_text(label, streams, split))
    without = streams.without_gap(split)
    if not streams.calls_known:
        yield Note(
            "Launch calls are missing",
            "Without CUDA API records it is not known what waited or came late. To capture them: "
            f"{recording(switches=False)}",
            "warning",
        )
    alternating = streams.alternating
    if alternating is not None:
        yield Para(
            f"Contexts {alternating.context_a} and {alternating.context_b} of {label} alternate: "
            f"{fmt.count(alternating.alternations)} times in streams {alternating.stream_a} and "
            f"{alternating.stream_b}, never at once. Contexts of one process are time-sliced, unless it is a client of "
            "MPS: put the work in streams of one context."
        )
    # What never had work at the same time says nothing but that.
    pairs = [pair for pair in streams.pairs if pair.reason is not StreamReason.NO_WORK]
    yield _pairs(streams, pairs, without) if pairs else Para(_executed(streams, without))
    if any(pair.losses for pair in streams.pairs):
        yield _reasons(streams)
    known = [one for one in streams.slowdowns if one.ratio is not None]
    if known:
        yield _slowdowns(streams)
        yield from (Para(text) for pair in pairs[:_TOP] if (text := _gain(pair, streams)))
    unknown = {_kernel(one) for one in streams.slowdowns} - {_kernel(one) for one in known}
    if unknown:
        whose = f"The slowdown of {_names(unknown)}" if known else "The slowdown of kernels"
        whys = sorted({_why_unknown(one) for one in streams.slowdowns if _kernel(one) in unknown})
        yield Para(f"{whose} beside another stream is not known: {', or '.join(whys)}.")


def _gain(pair: StreamPair, streams: Streams) -> str | None:
    """What the overlap of two streams brought, all in all; None: not known.

    A slowdown of both sounds like a loss, where overlap may still be the faster of the two.
    """
    speedup = pair.speedup_over_serial
    if speedup is None:
        return None
    serial_ns = round(speedup * pair.overlap_ns)
    low, high = pair.speedup_low, pair.speedup_high
    if low is not None and high is not None and low < 1 <= high:
        brought = "neither saved nor cost a significant time"
    elif speedup < 1:
        brought = f"cost {fmt.duration(pair.overlap_ns - serial_ns)}"
    else:
        brought = f"saved {fmt.duration(serial_ns - pair.overlap_ns)}"
    ends = "" if low is None or high is None else f", {low:.2f}-{high:.2f} with the ends of the slowdowns"
    overlap = fmt.duration(pair.overlap_ns)
    return (
        f"All in all, overlap of streams {pair_name(pair, streams)} {brought}. What they ran in these {overlap} takes "
        f"{fmt.duration(serial_ns)} without overlap (inferred: {speedup:.2f}x{ends})."
    )


def _names(kernels: Iterable[tuple[str | None, int | None, int | None]]) -> str:
    """Names of kernels; several configurations of one are named once."""
    return fmt.names(sorted({operation_text(name, 30) or "unnamed" for name, _, _ in kernels}), most=3)


def _why_unknown(one: StreamSlowdown) -> str:
    """Why the slowdown of a kernel beside another stream is not known, as the core decides it."""
    if one.n_solo < _LEAST:
        return f"fewer than {_LEAST} launches ran without that stream"
    if one.n < _LEAST:
        return f"fewer than {_LEAST} launches ran beside that stream"
    return "the interval is too wide to tell"


def _kernel(one: StreamSlowdown) -> tuple[str | None, int | None, int | None]:
    return one.kernel, one.grid_blocks, one.block_threads


def _executed(streams: Streams, without: Streams) -> str:
    contexts = len({one.context_id for one in streams.streams}) > 1
    shown = streams.streams[:_TOP]
    names = [
        stream_name(
            one.context_id,
            one.stream_id,
            contexts=contexts,
            green=one.green_context_id,
            branch=one.is_graph_branch,
        )
        for one in shown
    ]
    said = [f"{fmt.percent(one.busy_ns / without.window_ns)} in {name}" for name, one in zip(names, shown, strict=True)]
    left = len(streams.streams) - len(said)
    more = f", and {fmt.count(left)} more" if left else ""
    return f"Time in flight of each stream, of {fmt.duration(without.window_ns)} (observed): {', '.join(said)}{more}."


def _pairs(streams: Streams, pairs: list[StreamPair], without: Streams) -> Table:
    shown = pairs[:_TOP]
    share = {(one.context_id, one.stream_id): one.busy_ns / without.window_ns for one in streams.streams}
    contexts = len({one.context_id for one in streams.streams}) > 1

    def named(context: int | None, stream: int) -> Cell:
        green = streams.green_context(context, stream)
        branch = streams.is_graph_branch(context, stream)
        name = stream_name(context, stream, contexts=contexts, green=green, branch=branch)
        return Cell(f"{name} ({fmt.percent(share.get((context, stream)))})")

    rows = tuple(
        (
            named(pair.context_a, pair.stream_a),
            named(pair.context_b, pair.stream_b),
            Cell(fmt.duration(pair.both_had_work_ns)),
            Cell(fmt.duration(pair.overlap_ns)),
            Cell(fmt.duration(pair.not_overlapped_ns)),
            Cell(fmt.duration(max(pair.both_had_work_ns - pair.overlap_ns - pair.not_overlapped_ns, 0))),
            Cell(fmt.duration(pair.late_ns)),
            Cell(fmt.duration(pair.lost_ns)),
            Cell(stream_reason(pair)),
        )
        for pair in shown
    )
    columns = (
        Column("Stream", f"in flight, of {time_without_gap(streams, without)}"),
        Column("Other stream", "in flight"),
        Column("Both had work", "", True),
        Column("Overlapped", "both in flight", True),
        Column("Not overlapped", "both had work, one in flight", True),
        Column("Neither", "both had work, none in flight", True),
        Column("Late", "launched after the other ended", True),
        Column("Lost", "less full SMs and order", True),
        Column("Main reason", "of not overlapped and late"),
    )
    left = len(pairs) - len(shown)
    more = (
        f" {fmt.counted(left, 'more pair')} {'is' if left == 1 else 'are'} in the JSON: {_IN_JSON}." if left > 0 else ""
    )
    together = " Pairs share time: do not add them up." if len(pairs) > 1 else ""
    apart = len(streams.pairs) - len(pairs)
    if apart:
        more += f" {fmt.counted(apart, 'pair')} of streams never had work at the same time."
    if any(one.is_graph_branch for one in streams.streams):
        more += " Work of graph branches begins with the graph."
    if len({one.green_context_id for one in streams.streams} - {None}) > 1:
        more += " SM sets of two green contexts are assumed not to overlap."
    return Table(columns, rows, f"Pairs of streams (observed).{together}{more}")


def _reasons(streams: Streams) -> Table:
    losses = [(pair, loss) for pair in streams.pairs for loss in pair.losses]
    losses.sort(key=lambda one: -one[1].without_overlap_ns)
    rows = tuple(
        (
            Cell(pair_name(pair, streams)),
            Cell(str(loss.waiting_stream)),
            Cell(STREAM_REASONS[loss.reason], tone="muted" if loss.reason is StreamReason.UNEXPLAINED else "plain"),
            Cell(fmt.duration(loss.without_overlap_ns)),
            Cell(fmt.count(loss.operations)),
        )
        for pair, loss in losses[:_TOP]
    )
    columns = (
        Column("Streams"),
        Column("Waiting"),
        Column("Why it did not run beside the other"),
        Column("Time", "", True),
        Column("Operations", "", True),
    )
    left = len(losses) - len(rows)
    more = f" {fmt.count(left)} more {'is' if left == 1 else 'are'} in the JSON: {_IN_JSON}." if left else ""
    if any(loss.reason is StreamReason.POSSIBLY_SM_RESOURCES for _, loss in losses):
        in_green = any(one.green_context_id is not None for one in streams.streams)
        green = " How many SMs a green context has is not recorded: one kernel of it may have filled them."
        more = f"{green if in_green else ''}{more}"
    return Table(columns, rows, f"Why streams did not overlap (inferred).{more}")


def _slowdowns(streams: Streams) -> Table:
    known = [one for one in streams.slowdowns if one.ratio is not None][:_TOP]
    rows = tuple(
        (
            Cell(visible(one.kernel or "unnamed", 40), note=f"stream {one.stream_id}"),
            Cell(visible(one.beside_kernel or "copies", 40), note=f"stream {one.beside_stream}"),
            Cell(fmt.duration(one.solo_median_ns)),
            Cell(fmt.duration(one.median_ns)),
            Cell(
                f"{one.ratio:.2f}x"
                + ("" if one.low is None or one.high is None else f" ({one.low:.2f}-{one.high:.2f})")
            ),
            Cell(f"{fmt.count(one.n)} / {fmt.count(one.n_solo)}"),
        )
        for one in known
    )
    columns = (
        Column("Kernel"),
        Column("Beside", "what overlapped it most"),
        Column("Without", "median of its launches beside no other stream", True),
        Column("Beside it", "median", True),
        Column("Slowdown", "while the other stream was in flight, 95 % CI", True),
        Column("Launches", "beside / without", True),
    )
    caption = (
        "Durations of the same kernel (name, grid, block) in this capture (observed). The slowdown is of means, not of "
        "the medians."
    )
    by_graph = {operation_text(one.kernel, 30) or "unnamed" for one in known if _only_beside_by_graph(one)}
    if by_graph:
        caption += (
            f" {fmt.names(sorted(by_graph), most=3)} ran in graphs beside the other stream, and outside of graphs "
            "without it: part of the difference may be that."
        )
    return Table(columns, rows, caption)


def _only_beside_by_graph(one: StreamSlowdown) -> bool:
    """Whether a kernel ran in graphs beside the other stream, and only outside of them without it."""
    return one.n_graph_nodes == one.n and not one.n_solo_graph_nodes


SECTION = DeviceSection("streams", "Streams of each process", _blocks, _titled)
