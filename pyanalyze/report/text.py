"""The report as plain text: a first screen to paste into a chat, and the whole.

No terminal colours inside: the command line adds them.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import impact_of
from pyanalyze.report.blocks import Block, Cell, Chart, Commands, Facts, Fold, Note, Page, Para, Table, is_empty
from pyanalyze.report.layout import lay_out
from pyanalyze.report.sampled_text import (
    association_text,
    health_parts,
    only_sampled,
    set_up_text,
    sharing_sentence,
    span_text,
    unplaced_sentence,
    use_sentence,
)
from pyanalyze.report.sentences import (
    UNREAD,
    agreement_text,
    cause_sentence,
    files_not_read,
    residency_sentence,
    sampled_sentence,
    samples_not_used,
    verdict_sentence,
    versions_text,
    victim_sentence,
    window_text,
)
from pyanalyze.results.labels import device_title, main_device
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import Answer, Mode, Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pyanalyze.results.model import Missing
    from pyanalyze.results.report import Device, Report

__all__ = ["SUMMARY_COLUMNS", "SUMMARY_LINES", "SUMMARY_PARTS", "render_summary", "render_text"]

SUMMARY_LINES = 15
#: What the first screen shows, and what has to be computed for it.
SUMMARY_PARTS = frozenset({Part.SEGMENTS, Part.RESIDENCY, Part.INTERFERENCE, Part.ADVICE})
SUMMARY_COLUMNS = 100
_LABEL = 13
_WIDTH = 100


def render_summary(report: Report) -> str:
    """At most 15 lines of at most 100 columns, to paste into a chat.

    Returns
    -------
    str
        Lines joined by newlines, with one at the end.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> len(render_summary(report).splitlines()) <= 15
    True
    """
    device = main_device(report)
    nothing = [_line("Mode", "no GPU was found in the input"), *_not_read(report), *_unplaced(report)]
    for row in report.quality if device is None else ():
        if row.name.startswith("samples_") and row.name != UNREAD and row.severity != "info":
            nothing += _lines("Samples", visible(row.detail or row.name, None), 3)
    lines = nothing if device is None else _device_lines(report, device)
    lines.append(_line("Versions", versions_text(report)))
    if report.synthetic:
        lines.insert(0, "SYNTHETIC CAPTURE: made by a generator, not recorded on a GPU.")
    return "\n".join(lines[:SUMMARY_LINES]) + "\n"


def _device_lines(report: Report, device: Device) -> list[str]:
    cause = _lines("Cause", cause_sentence(device), 2)
    clear = impact_of(device).answer is Answer.NO
    advice = visible(device.advice[0].action, None) if device.advice else "no advice follows from this evidence"
    lost = [row for row in report.quality if row.severity in ("data-loss", "error") and row.count]
    others = (d for d in report.devices if d is not device)
    also = "; ".join(f"{device_title(d)}: {d.sharing.mode} {d.sharing.confidence:.2f}" for d in others)
    sampled_only = only_sampled(report, device)
    lines = [
        # Where sharing is not the cause, that is the answer.
        *(cause if clear else ()),
        *_lines("Mode", _verdict(device), 1 if sampled_only and device.listed else 2),
        *_not_read(report),
        *([_line("Also", also)] if also else ()),
        *_set_up(report, device),
        *_unplaced(report),
        *_sampled(device),
        *(line for said in samples_not_used(report)[:1] for line in _lines("Samples", said, 2)),
        *(_measured(device) if not sampled_only else ()),
        *(() if clear else cause),
        _line("Do", advice),
        _line("Missing", _missing(device.sharing.missing)),
        _line("Window", span_text(report, device) or window_text(report, device)),
    ]
    if lost:
        # By name: what one of it stands for (a record, a row, a message of the profiler) is not the same for all.
        names = ", ".join(f"{visible(row.name, 40)} ({fmt.count(row.count)})" for row in lost)
        lines.append(_line("Data loss", f"sums may be too small: {names}"))
    return lines


def _measured(device: Device) -> list[str]:
    """GPU time and slowdown: samples have neither."""
    return [
        *_lines("GPU time", residency_sentence(device).removeprefix("GPU time: "), 2),
        *_lines("Slowdown", victim_sentence(device).removeprefix("Largest slowdown: "), 2),
    ]


def _set_up(report: Report, device: Device) -> list[str]:
    """The configured mode; where only samples are known, who is listed, and how they were set up to share."""
    who = sharing_sentence(report, device)
    if who is not None and not device.tenants:
        return _lines("Tenants", who, 3)
    set_up = None if device.tenants else set_up_text(report, device)
    return [_line("Configured", agreement_text(device) if set_up is None else set_up)]


def _unplaced(report: Report) -> list[str]:
    """Tenants of no known GPU."""
    found = unplaced_sentence(report)
    return [] if found is None else _lines("Unplaced", found, 2)


def _not_read(report: Report) -> list[str]:
    """Files that no reader knows: three of them, one line each."""
    found = files_not_read(report)
    lines = [line for text in found[:3] for line in _lines("Not read", text, 2 if len(found) == 1 else 1)]
    return [*lines, _line("Not read", f"and {len(found) - 3} more files")] if len(found) > 3 else lines


def _sampled(device: Device) -> list[str]:
    """What samples say; beside a capture there is more to say, and 15 lines to say it in."""
    if device.tenants:
        return []
    sampled, use, wrong = sampled_sentence(device), use_sentence(device), health_parts(device)
    return [
        *([] if use is None else _lines("Use", use, 2)),
        # What is known of each tenant leaves less room for the whole.
        *([] if sampled is None else _lines("Sampled", sampled, 2 if use is None else 1)),
        *([_line("Health", "; ".join(wrong))] if wrong else []),
        *(line for one in device.associations[:1] for line in _lines("Latency", association_text(one), 2)),
    ]


def _verdict(device: Device) -> str:
    sharing = device.sharing
    if sharing.mode == Mode.UNDETERMINED:
        return verdict_sentence(device)
    said = f"{sharing.mode}, confidence {sharing.confidence:.2f} ({sharing.basis}), on {device_title(device)}"
    if len(device.segments) < 2 or device.window is None:
        return said
    start = device.window.start_ns
    parts = (f"{part.mode} to {fmt.duration(part.end_ns - start)}" for part in device.segments)
    return f"{said}; over time: {', '.join(parts)}"


def _missing(missing: list[Missing]) -> str:
    if not missing:
        return "nothing"
    return f"{', '.join(visible(m.what, 30) for m in missing)} ({len(missing)}; `report` says how to capture it)"


def _lines(label: str, text: str, most: int) -> list[str]:
    room = SUMMARY_COLUMNS - _LABEL
    parts = textwrap.wrap(text, room, break_long_words=True, break_on_hyphens=False) or [""]
    if len(parts) > most:
        last = parts[most - 1][: room - 1].rstrip()
        parts = [*parts[: most - 1], last + "…"]
    return [f"{label if i == 0 else '':<{_LABEL}}{part}" for i, part in enumerate(parts)]


def _line(label: str, text: str) -> str:
    return _lines(label, text, 1)[0]


def render_text(
    report: Report, kernels: pl.DataFrame | None = None, *, command: str = "", sections: Sequence[str] = ()
) -> str:
    """The whole report as plain text, 100 columns wide where tables allow.

    Parameters
    ----------
    report
        The answer.
    kernels
        The ``kernel_occupancy`` table, for the table of kernels.
    command
        How it was made, for the provenance.
    sections
        Only these, by id (``held``, ``tenants``, ``occupancy``, ``interference``, ``advice``, ...); by default all.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> "Who held the GPU" in render_text(report)
    True
    """
    return text_page(lay_out(report, kernels, command=command), sections)


def text_page(page: Page, sections: Sequence[str] = ()) -> str:
    """A laid-out page as plain text; only these sections, or all."""
    out = [page.title, "=" * len(page.title), page.subtitle, ""]
    for note in page.notes:
        out += [f"! {note.title.upper()}: {note.text}", ""]
    # The first sentences speak of everything; a part speaks for itself.
    out += [] if sections else ["\n".join(textwrap.wrap(line, _WIDTH)) for line in page.lead]
    for section in page.sections:
        if sections and section.id.partition("-")[0] not in sections:
            continue
        title = f"{section.title}: {section.device}" if section.device else section.title
        out += [*([""] if out[-1] else []), title, "-" * len(title)]
        for block in section.blocks:
            out += _block(block)
    return "\n".join(out).rstrip() + "\n"


def _block(block: Block) -> list[str]:
    match block:
        case Para(text=text):
            return textwrap.wrap(text, _WIDTH)
        case Note(title=title, text=text):
            return textwrap.wrap(f"* {title}. {text}", _WIDTH, subsequent_indent="  ")
        case Facts(facts=facts):
            wide = max((len(f.label) for f in facts), default=0)
            return [f"{f.label:<{wide}}  {f.value}" + "".join(f" ({x})" for x in (f.note, f.basis) if x) for f in facts]
        case Commands(lines=lines):
            return [f"    {line}" for line in lines]
        case Table():
            return _table(block)
        case Fold() if is_empty(block, ()):
            return []
        case Fold(title=title, blocks=blocks):
            return [f"{title}:", *(line for inner in blocks for line in _block(inner))]
        case Chart():
            return []


def cell_text(cell: Cell) -> str:
    """Value and basis on one line."""
    return f"{cell.text} [{cell.basis}]" if cell.text and cell.basis else cell.text or cell.basis or ""


def _table(table: Table) -> list[str]:
    # Long texts (details, reasons) go on lines of their own, so that columns stay readable.
    heads = [f"{c.title} ({c.unit})" if c.unit else c.title for c in table.columns]
    rows = [[cell_text(c) for c in row] for row in table.rows]
    widths = [max([len(h), *(len(row[i]) for row in rows if len(row[i]) <= 40)]) for i, h in enumerate(heads)]
    if sum(widths) + 2 * len(widths) <= _WIDTH and all(len(text) <= 40 for row in rows for text in row):
        body = [heads, *rows]
        lines = [
            "  ".join(
                text.rjust(w) if c.numeric else text.ljust(w)
                for text, w, c in zip(row, widths, table.columns, strict=True)
            ).rstrip()
            for row in body
        ]
    else:
        lines = []
        for row in rows:
            first, *rest = row
            if heads[1:] == [""]:
                lines += textwrap.wrap(f"{first}: {rest[0]}", _WIDTH, initial_indent="- ", subsequent_indent="    ")
                continue
            lines.append(f"- {heads[0]}: {first}")
            for head, text in zip(heads[1:], rest, strict=True):
                lines += textwrap.wrap(f"{head}: {text}", _WIDTH - 4, initial_indent="    ", subsequent_indent="      ")
    return [table.caption, *lines] if table.caption else lines
