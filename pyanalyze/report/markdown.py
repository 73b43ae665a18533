"""The report as Markdown, to paste into a ticket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyanalyze.report.blocks import Block, Cell, Chart, Commands, Facts, Fold, Note, Page, Para, Table, is_empty
from pyanalyze.report.layout import lay_out
from pyanalyze.text.escape import markdown as esc

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.results.report import Report

__all__ = ["markdown_page", "render_markdown"]


def render_markdown(
    report: Report,
    kernels: pl.DataFrame | None = None,
    *,
    command: str = "",
    pictures: Mapping[str, str] | None = None,
) -> str:
    """The whole report as Markdown that means the same on every forge.

    Names are escaped: no name can open a tag, break a table, notify a person or link an issue.

    Parameters
    ----------
    report
        The answer.
    kernels
        The ``kernel_occupancy`` table, for the table of kernels.
    command
        How it was made, for the provenance.
    pictures
        Chart key -> address of its picture (a file beside, or ``data:``); charts without one are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> "| app_a |" in render_markdown(report)
    True
    """
    return markdown_page(lay_out(report, kernels, command=command), pictures, _OMITTED)


#: What stands in place of pictures.
_OMITTED = "Pictures are omitted. To get them: pyanalyze report CAPTURE -f md -o report.md (PNG files), or -f html."


def markdown_page(page: Page, pictures: Mapping[str, str] | None = None, omitted: str = "") -> str:
    """A laid-out page as Markdown, with the pictures that are given by chart key; `omitted`: said where none are."""
    links = pictures or {}
    out = [f"# {esc(page.title)}", "", _line(esc(page.subtitle)), ""]
    for note in page.notes:
        out += [f"> {_strong(f'{note.title}.')} {esc(note.text)}", ""]
    for line in page.lead:
        out += [_line(esc(line)), ""]
    for section in page.sections:
        # Of a section that is one picture nothing is left without it.
        if all(is_empty(block, links) for block in section.blocks):
            continue
        title = f"{section.title}: {section.device}" if section.device else section.title
        out += [f"## {esc(title)}", ""]
        for block in section.blocks:
            out += [] if is_empty(block, links) else _block(block, links)
    # Where pictures were asked for and there are none, there is nothing to draw.
    if omitted and pictures is None:
        out += [_line(esc(omitted)), ""]
    return "\n".join(out).rstrip() + "\n"


def _line(text: str) -> str:
    """Keep a paragraph from reading as a list, heading, quote or indented code because of how it begins."""
    return re.sub(r"^([-+=#>]|\d+(?=[.)]))", lambda m: f"&#{ord(m[1][0])};{m[1][1:]}", text.strip())


def _strong(text: str) -> str:
    """Stars next to a blank would be stars."""
    return f"**{esc(text).strip()}**"


def _block(block: Block, links: Mapping[str, str]) -> list[str]:
    match block:
        case Para(text=text):
            return [_line(esc(text)), ""]
        case Note(title=title, text=text):
            return [f"{_strong(title)}  ", _line(esc(text)), ""]
        case Facts(facts=facts):
            rows = [[esc(f.label), esc(f.value), esc(f.note), f.basis or ""] for f in facts]
            return _table(["Quantity", "Value", "Of what", "Basis"], [False, True, False, False], rows)
        case Commands(lines=lines, language=language):
            return _code(lines, language)
        case Table(columns=columns, rows=cells, caption=caption):
            heads = [esc(f"{c.title} ({c.unit})" if c.unit else c.title) for c in columns]
            # Inside a table a command could not be copied: a bar of it would end its cell.
            commands = list(dict.fromkeys(cell.text for row in cells for cell in row if cell.tone == "command"))
            numbers = {command: f"see {n} below" for n, command in enumerate(commands, 1)}
            body = [[numbers[cell.text] if cell.tone == "command" else _cell(cell) for cell in row] for row in cells]
            table = _table(heads, [c.numeric for c in columns], body)
            for n, command in enumerate(commands, 1):
                table += [f"{n}:", "", *_code((command,), "sh")]
            return [_line(esc(caption)), "", *table] if caption else table
        case Fold(title=title, blocks=blocks):
            inner = [line for item in blocks if not is_empty(item, links) for line in _block(item, links)]
            return [f"<details><summary>{esc(title)}</summary>", "", *inner, "</details>", ""]
        case Chart(key=key, title=title, caption=caption):
            if key not in links:
                return []
            # Blanks and brackets would end the address early.
            address = links[key] if links[key].startswith("data:") else quote(links[key])
            return [f"![{esc(title)}]({address})", "", _line(esc(caption)), ""]


def _cell(cell: Cell) -> str:
    text = esc(cell.text)
    return f"{text} *{cell.basis}*" if text and cell.basis else text or (f"*{cell.basis}*" if cell.basis else "")


def _table(heads: list[str], numeric: list[bool], rows: list[list[str]]) -> list[str]:
    rule = ["---:" if n else "---" for n in numeric]
    return [*("| " + " | ".join(row) + " |" for row in (heads, rule, *rows)), ""]


def _code(lines: tuple[str, ...], language: str) -> list[str]:
    # A fence longer than any run of backticks inside cannot be closed from inside.
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence, ""]
