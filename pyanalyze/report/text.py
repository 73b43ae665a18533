"""The whole report as plain text.

No terminal colours inside: the command line adds them.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Cell, Chart, Column, Commands, Facts, Fold, Note, Page, Para, Table, is_empty
from pyanalyze.report.layout import lay_out
from pyanalyze.report.sampled_text import association_text, named_gpus
from pyanalyze.report.sections.advice import settings_blocks
from pyanalyze.report.sections.base import Inputs
from pyanalyze.report.sentences.missing import missing_words, outside_report
from pyanalyze.report.sentences.words import LONG
from pyanalyze.results.labels import device_title, main_device
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.results.report import Report

__all__ = ["TABLE_WIDTH", "render_text", "section_text", "text_page"]

_WIDTH = 100
#: Columns of a table where the reader's width is not known.
TABLE_WIDTH = 120


def render_text(
    report: Report,
    kernels: pl.DataFrame | None = None,
    *,
    command: str = "",
    sections: Sequence[str] = (),
    width: int = TABLE_WIDTH,
) -> str:
    """The whole report as plain text: sentences in 100 columns, tables in `width`.

    Parameters
    ----------
    report
        The answer.
    kernels
        The ``kernel_occupancy`` table, for the table of kernels.
    command
        How it was made, for the provenance.
    sections
        Only these, by id (``residency``, ``tenants``, ``occupancy``, ``advice``, ...); by default all.
    width
        Columns of a table.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> "GPU time and context switches" in render_text(report, sections=("residency",))
    True
    """
    return text_page(lay_out(report, kernels, command=command), sections, width, instead=_instead(report, sections))


#: What a section of a trace needs, as it is called among what is not available.
_NEEDS = {"residency": "context_switches", "interference": "kernels", "occupancy": "kernels"}


def _instead(report: Report, sections: Sequence[str]) -> list[Block]:
    """What a command says that has none of its sections to show: what is known all the same, and what is missing."""
    inputs = Inputs(report, main_device(report))
    if inputs.main is None:
        settings = settings_blocks(None, inputs) if "advice" in sections else []
        why = "No sample or capture of a GPU was given" if named_gpus(report) else "No GPU was found in the input"
        return [*settings, Para(f"{why}: nothing was measured. `pyanalyze INPUT` shows what settings say.")]
    blocks: list[Block] = []
    if "interference" in sections:
        found = [(device, one) for device in report.devices for one in device.associations]
        blocks += [Para(f"{device_title(device)}: {association_text(one)}.") for device, one in found]
    for wanted in dict.fromkeys(_NEEDS[section] for section in sections if section in _NEEDS):
        gap = next((one for one in inputs.main.sharing.missing if one.what == wanted), None)
        if gap is not None:
            said = f"{capital(missing_words(gap.what))}: {visible(gap.why, LONG)}"
            blocks += [
                Note("Not available", full_stop(said)),
                *([Commands((visible(gap.how, LONG),))] if gap.how else []),
            ]
    return blocks


def text_page(
    page: Page, sections: Sequence[str] = (), width: int = TABLE_WIDTH, *, instead: Sequence[Block] = ()
) -> str:
    """A laid-out page as plain text; only these sections, or all. Where it has none of them, `instead`."""
    out = [page.title, "=" * len(page.title), page.subtitle, ""]
    for note in page.notes:
        out += [f"! {note.title.upper()}: {note.text}", ""]
    # The first sentences speak of everything; a part speaks for itself.
    out += [] if sections else ["\n".join(_wrap(line, _WIDTH)) for line in page.lead]
    shown = False
    for section in page.sections:
        if sections and section.id.partition("-")[0] not in sections:
            continue
        lines = [line for block in section.blocks for line in _block(_by_itself(block) if sections else block, width)]
        # A chart by itself leaves nothing to read.
        if not lines:
            continue
        shown = True
        title = f"{section.title}: {section.device}" if section.device else section.title
        out += [*([""] if out[-1] else []), title, "-" * len(title), *lines]
    if sections and not shown:
        out += [line for block in instead for line in _block(block, width)]
    return "\n".join(out).rstrip() + "\n"


def _by_itself(block: Block) -> Block:
    """A block of a section that is shown without the others."""
    if isinstance(block, Para):
        return replace(block, text=outside_report(block.text), in_lead=False)
    return replace(block, text=outside_report(block.text)) if isinstance(block, Note) else block


def section_text(title: str, blocks: Sequence[Block], width: int = TABLE_WIDTH) -> str:
    """One section as plain text, by itself.

    Examples
    --------
    >>> print(section_text("Kernels", [Para("None ran.")]), end="")
    Kernels
    -------
    None ran.
    """
    return "\n".join([title, "-" * len(title), *(line for block in blocks for line in _block(block, width))]) + "\n"


def _wrap(text: str, width: int, *, initial_indent: str = "", subsequent_indent: str = "") -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent=initial_indent, subsequent_indent=subsequent_indent)
    return [_harmless(line) for line in lines]


def _harmless(line: str) -> str:
    """What a broken name leaves at the start of a line is no command of a CI service."""
    return f" {line}" if line.startswith("::") else line


def _block(block: Block, width: int) -> list[str]:
    match block:
        case Para(in_lead=True):
            return []
        case Para(text=text):
            return _wrap(text, _WIDTH)
        case Note(title=title, text=text):
            return _wrap(f"* {title}. {text}", _WIDTH, subsequent_indent="  ")
        case Facts(facts=facts):
            wide = max((len(f.label) for f in facts), default=0)
            return [f"{f.label:<{wide}}  {f.value}" + "".join(f" ({x})" for x in (f.note, f.basis) if x) for f in facts]
        case Commands(lines=lines):
            return [f"    {line}" for line in lines]
        case Table():
            return _table(block, width)
        case Fold() if is_empty(block, ()):
            return []
        case Fold(title=title, blocks=blocks):
            return [f"{title}:", *(line for inner in blocks for line in _block(inner, width))]
        case Chart():
            return []


def cell_text(cell: Cell) -> str:
    """Value and basis on one line."""
    return f"{cell.text} [{cell.basis}]" if cell.text and cell.basis else cell.text or cell.basis or ""


def _table(table: Table, width: int) -> list[str]:
    """A table in columns; columns that matter less are left out where it is too wide, and named below it."""
    lines = _wrap(table.caption, _WIDTH)
    if not table.rows:
        return lines
    kept = list(range(len(table.columns)))
    while (widths := _widths(table, kept, width)) is None and (minor := [n for n in kept if table.columns[n].minor]):
        kept.remove(minor[-1])
    if widths is None:
        return [*lines, *_listed(table)]
    heads = [_head(table.columns[n], wide) for n, wide in zip(kept, widths, strict=True)]
    if any("".join(head).strip() for head in heads):
        tall = max(map(len, heads))
        # The foot of a head stands on its column.
        lines += _row([[""] * (tall - len(head)) + head for head in heads], table, kept, widths)
    short = {
        n: fmt.shortened_apart([part for row in table.rows for part in _of_name(cell_text(row[n]))], wide)
        for n, wide in zip(kept, widths, strict=True)
        if _is_name(table.columns[n], [row[n] for row in table.rows])
    }
    for row in table.rows:
        cells = [
            _wrapped(row[n], table.columns[n], wide, short.get(n, {})) for n, wide in zip(kept, widths, strict=True)
        ]
        lines += _row(cells, table, kept, widths)
    gone = [column.title for n, column in enumerate(table.columns) if n not in kept]
    if gone:
        said = f"Not shown for lack of room: {', '.join(gone)}. HTML, Markdown and JSON have them."
        lines += _wrap(said, _WIDTH)
    return lines


#: Fewest columns of text that is broken into lines, and of a name that is shortened in the middle.
_LEAST_TEXT, _LEAST_NAME = 14, 20
#: Columns of a head that gets a line of its own, where there is room.
_HEAD = 24


def _widths(table: Table, kept: Sequence[int], width: int) -> list[int] | None:
    """The width of each column; None: they do not fit beside each other."""
    wanted, least = [], []
    for n in kept:
        column, cells = table.columns[n], [row[n] for row in table.rows]
        longest = max(len(cell_text(cell)) for cell in cells)
        words = max((len(word) for cell in cells for word in cell_text(cell).split()), default=0)
        head = max((len(word) for part in _said(column) for word in part.split()), default=0)
        floor = longest
        if any(cell.tone == "command" for cell in cells):
            pass
        elif _is_name(column, cells):
            # Names of two runs, and what tells a name apart, may stand below each other.
            floor = min(max(len(part) for cell in cells for part in _of_name(cell_text(cell))), _LEAST_NAME)
        elif column.numeric:
            # An interval may stand below its value.
            floor = max(len(part) for cell in cells for part in _of_interval(cell_text(cell)))
        else:
            floor = min(longest, max(words, _LEAST_TEXT))
        wanted.append(max(longest, head, min(max(map(len, _said(column))), _HEAD)))
        least.append(max(floor, head))
    room = width - 2 * (len(kept) - 1)
    if sum(least) > room:
        return None
    widths = least
    # What is left goes to the narrowest for what they hold.
    while (left := room - sum(widths)) > 0 and (
        short := [n for n, (has, wants) in enumerate(zip(widths, wanted, strict=True)) if has < wants]
    ):
        each = max(left // len(short), 1)
        for n in short[:left]:
            widths[n] += min(each, wanted[n] - widths[n])
    # Long sentences in a narrow column are a tower that nobody reads.
    for n, wide in zip(kept, widths, strict=True):
        if (
            not _is_name(table.columns[n], [row[n] for row in table.rows])
            and max(len(cell_text(row[n])) for row in table.rows) > 4 * wide
        ):
            return None
    return widths


def _is_name(column: Column, cells: Sequence[Cell]) -> bool:
    return not column.numeric and any(cell.tone == "code" for cell in cells)


def _head(column: Column, wide: int) -> list[str]:
    return [line for part in _said(column) for line in _wrap(part, wide)] or [""]


def _said(column: Column) -> tuple[str, str]:
    return column.title, f"({column.unit})" if column.unit else ""


def _wrapped(cell: Cell, column: Column, wide: int, short: Mapping[str, str]) -> list[str]:
    text = cell_text(cell)
    if len(text) <= wide:
        return [text]
    if column.numeric:
        return _of_interval(text)
    if cell.tone != "code":
        return _wrap(text, wide) or [""]
    first, *rest = (short.get(part, fmt.shortened(part, wide)) for part in _of_name(text))
    lines = [first]
    for part in rest:
        if len(lines[-1]) + 1 + len(part) <= wide and not lines[-1].endswith("→"):
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


#: Between the names of two runs; before what tells a name apart: a pid, a grid.
_NAME_ENDS = re.compile(r"(?<= →) | (?=\([^()]*\)(?: →|$))")


def _of_name(text: str) -> list[str]:
    """The names of both runs, and what tells each apart from others of its name: that is not shortened with it."""
    return _NAME_ENDS.split(text)


def _of_interval(text: str) -> list[str]:
    """A value, and what stands in parentheses behind it."""
    value, bracket, rest = text.partition(" (")
    return [value, f"({rest}"] if bracket else [text]


def _row(cells: Sequence[Sequence[str]], table: Table, kept: Sequence[int], widths: Sequence[int]) -> list[str]:
    """The lines of one row, of cells of one or more lines each."""
    lines = []
    for n in range(max(map(len, cells))):
        parts = [cell[n] if n < len(cell) else "" for cell in cells]
        placed = (
            part.rjust(wide) if table.columns[column].numeric else part.ljust(wide)
            for part, wide, column in zip(parts, widths, kept, strict=True)
        )
        lines.append(_harmless("  ".join(placed).rstrip()))
    return lines


def _listed(table: Table) -> list[str]:
    """Rows one below the other: long texts (details, reasons) leave no room for columns."""
    heads = [f"{c.title} ({c.unit})" if c.unit else c.title for c in table.columns]
    lines = []
    for row in table.rows:
        first, *rest = row
        if heads[1:] == [""]:
            text = f"{cell_text(first)}: {cell_text(rest[0])}"
            lines += _wrap(text, _WIDTH, initial_indent="- ", subsequent_indent="    ")
            continue
        lines.append(f"- {heads[0]}: {cell_text(first)}")
        for head, cell in zip(heads[1:], rest, strict=True):
            text = f"{head}: {cell_text(cell)}"
            if cell.tone == "command":
                # To be copied: never broken.
                lines.append(f"    {text}")
            else:
                lines += _wrap(text, _WIDTH - 4, initial_indent="    ", subsequent_indent="      ")
    return lines
