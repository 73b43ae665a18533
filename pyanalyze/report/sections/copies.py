"""Copies and memsets of each process, how fast copies were, and unified memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.copies import UNCOVERED_RATE
from pyanalyze.report.blocks import Block, Cell, Column, Para, Table, column_legend, value_cell
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.copies import DIRECTION_WORDS, HOST_MEMORY_WORDS
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import CopyDirection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyanalyze.results.copies import Copies, CopyKind, Memsets, Migrations
    from pyanalyze.results.report import Device

#: The median of fewer sizes says nothing.
_ENOUGH = 5
_CAPTION = "Copies and memsets (observed)."
_MEANINGS = (
    ("Size", f"p50; below {_ENOUGH} copies, the smallest and the largest"),
    ("Without a kernel", "no kernel of the process was in flight"),
    ("Rate", "over copies of all sizes: small ones never reach that of large ones"),
    (
        "Best rate",
        "of the fastest copy of at least 1 MiB of this process in the same direction, or of a row if that is higher",
    ),
)
#: Beside the bandwidth of the memory a rate is half of what counts.
_TWICE = " Copies on the device read and write each byte: memory traffic is twice their rate."
_LINK = "link can do at least the best rate."


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels = tenant_labels(device.tenants)
    found = [(labels[one.tenant_id], one.copies) for one in device.tenants if one.copies is not None]
    rows: tuple[tuple[Cell, ...], ...] = tuple(row for label, copies in found for row in _rows(label, copies))
    columns: tuple[Column, ...] = (
        Column("Tenant"),
        Column("Kind"),
        Column("n", "", True),
        Column("Size", "p50", True),
        Column("Time", "share of its time", True),
        Column("Without a kernel", "share of its time", True),
        Column("Rate", "bytes copied over the sum of durations", True),
        Column("Best rate", "in that direction", True),
    )
    kinds = [kind for _, copies in found for kind in copies.kinds]
    on_device = any(kind.direction is CopyDirection.ON_DEVICE for kind in kinds)
    caption = _CAPTION + _TWICE * on_device
    if all(kind.best_bytes_per_s is None for kind in kinds):
        # Small copies only: a column of unknowns says nothing.
        columns, rows = columns[:-1], tuple(row[:-1] for row in rows)
    else:
        linked = any(kind.direction is not CopyDirection.ON_DEVICE for kind in kinds)
        # Copies on the device cross its memory, not the link.
        the = " Except on the device, the " if on_device else " The "
        caption += f"{the}{_LINK}" if linked else ""
    shown = {column.title for column in columns}
    legend = column_legend(*(one for one in _MEANINGS if one[0] in shown))
    blocks: list[Block] = [Table(columns, rows, caption), legend] if rows else []
    for label, copies in found:
        blocks += [Para(text) for text in _sentences(label, copies)]
    return blocks


def _rows(label: str, copies: Copies) -> Iterator[tuple[Cell, ...]]:
    for kind in copies.kinds:
        memory = "" if kind.host_memory is None else f", {HOST_MEMORY_WORDS[kind.host_memory]}"
        pinned = kind.best_pinned_bytes_per_s
        yield (
            Cell(label, tone="code"),
            Cell(f"{DIRECTION_WORDS[kind.direction]}{memory}"),
            *_amounts(kind.copies, kind, copies.window_ns),
            Cell(fmt.rate(kind.bytes_per_s)),
            Cell(fmt.rate(kind.best_bytes_per_s), note="" if pinned is None else f"pinned {fmt.rate(pinned)}"),
        )
    if copies.memsets is not None:
        # How fast memory is set says nothing of the link.
        amounts = _amounts(copies.memsets.count, copies.memsets, copies.window_ns)
        yield (Cell(label, tone="code"), Cell("memsets"), *amounts, Cell("–"), Cell("–"))


def _amounts(n: int, of: CopyKind | Memsets, window_ns: int) -> tuple[Cell, ...]:
    window = window_ns or 1
    # A mean size may be that of no copy.
    few = n < _ENOUGH
    size, largest = fmt.bytes_(of.smallest_bytes if few else of.median_bytes), fmt.bytes_(of.largest_bytes)
    if size != largest:
        size = f"{size} to {largest}" if few else f"{size} (largest {largest})"
    return (
        Cell(fmt.count(n), note=f"{fmt.bytes_(of.bytes)} in all"),
        value_cell(size),
        Cell(f"{fmt.duration(of.time_ns)} ({fmt.percent(of.time_ns / window)})"),
        Cell(f"{fmt.duration(of.exposed_ns)} ({fmt.percent(of.exposed_ns / window)})"),
    )


def _sentences(label: str, copies: Copies) -> Iterator[str]:
    sets = copies.memsets
    found = [(sum(one.uncovered for one in copies.kinds), sum(one.copies for one in copies.kinds), "copies")]
    found += [] if sets is None else [(sets.uncovered, sets.count, "memsets")]
    if any(n for n, _, _ in found):
        parts = [f"{fmt.count(n)} of {fmt.count(of)} {what}" for n, of, what in found if n]
        yield (
            f"The records of {fmt.names(parts)} of {label} do not cover their execution: they would need "
            f"{UNCOVERED_RATE} times the memory bandwidth or more. They show no rate, and their time is a lower bound."
        )
    if copies.other_devices:
        beside = fmt.names([f"device {one.device_id}: {fmt.duration(one.overlap_ns)}" for one in copies.other_devices])
        yield (
            f"Copies of {label} from and to the host took {fmt.duration(copies.host_ns)}. Most of that time other "
            f"devices copied as well ({beside}). They may share the link or host memory; no record shows it."
        )
    if copies.migrations is not None:
        yield _unified(label, copies, copies.migrations)


def _unified(label: str, copies: Copies, moved: Migrations) -> str:
    window = copies.window_ns or 1
    text = (
        f"Unified memory of {label}: {fmt.count(moved.to_device)} migration{'' if moved.to_device == 1 else 's'} to "
        f"the device ({fmt.bytes_(moved.to_device_bytes)}) and {fmt.count(moved.to_host)} to the host "
        f"({fmt.bytes_(moved.to_host_bytes)}) took {fmt.duration(moved.time_ns)}, "
        f"{fmt.percent(moved.time_ns / window)} of its time, {fmt.duration(moved.exposed_ns)} of it without a kernel."
    )
    if moved.by_page_fault is None or moved.by_page_fault_ns is None:
        return f"{text} What caused them was not exported."
    other = ((moved.prefetches, "prefetches of the program"), (moved.evictions, "evictions"))
    more = "".join(f"; {fmt.count(n)} were {what}" for n, what in other if n)
    text = (
        f"{text} Page faults caused {fmt.count(moved.by_page_fault)} of them "
        f"({fmt.duration(moved.by_page_fault_ns)}){more}."
    )
    if moved.speculative:
        text += (
            f" With these, the driver prefetched speculatively ({fmt.count(moved.speculative)}): "
            f"{fmt.duration(moved.faulted_ns)} in all."
        )
    return text


SECTION = DeviceSection("copies", "Copies, memsets and unified memory", _blocks)
