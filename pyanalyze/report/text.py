"""The whole report as plain text.

No terminal colours inside: the command line adds them.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Cell, Chart, Commands, Facts, Fold, Note, Page, Para, Table, is_empty
from pyanalyze.report.layout import lay_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pyanalyze.results.report import Report

__all__ = ["render_text"]

_WIDTH = 100


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
        Only these, by id (``residency``, ``tenants``, ``occupancy``, ``advice``, ...); by default all.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> "GPU time and context switches" in render_text(report, sections=("residency",))
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
        lines = [line for block in section.blocks for line in _block(block)]
        # A chart by itself leaves nothing to read.
        if not lines:
            continue
        title = f"{section.title}: {section.device}" if section.device else section.title
        out += [*([""] if out[-1] else []), title, "-" * len(title), *lines]
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
