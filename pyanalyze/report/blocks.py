"""What a page consists of. HTML, Markdown and text draw the same blocks, so that they cannot disagree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Container

    from pyanalyze.vocabulary import Basis

__all__ = [
    "Block",
    "Cell",
    "Chart",
    "Column",
    "Commands",
    "Fact",
    "Facts",
    "Fold",
    "Note",
    "Page",
    "Para",
    "Section",
    "Table",
    "Tone",
    "chart_key",
    "column_legend",
    "is_empty",
    "value_cell",
]

Tone = Literal["plain", "good", "bad", "muted", "code", "command"]
"""Code is a name, which may be shortened; a command is copied, and stays whole."""


@dataclass(frozen=True)
class Column:
    """Head of a table column; `unit` says the denominator too."""

    title: str
    unit: str = ""
    numeric: bool = False
    minor: bool = False
    """Plain text leaves it out where there is no room."""


@dataclass(frozen=True)
class Cell:
    """One value, and how it is known where that is not the same for the whole column."""

    text: str
    basis: Basis | None = None
    tone: Tone = "plain"
    note: str = ""
    link: str = ""
    """A file beside the page, by a name that we made: never text from a capture."""


@dataclass(frozen=True)
class Para:
    """A paragraph."""

    text: str
    tone: Tone = "plain"
    in_lead: bool = False
    """The first paragraphs of a page say it: only a section that is shown by itself does."""


@dataclass(frozen=True)
class Note:
    """Something that must not be overlooked."""

    title: str
    text: str
    kind: Literal["info", "warning"] = "info"


@dataclass(frozen=True)
class Fact:
    """A key number."""

    label: str
    value: str
    note: str = ""
    basis: Basis | None = None


@dataclass(frozen=True)
class Facts:
    """A row of key numbers."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Commands:
    """Commands to copy; `language` is what Markdown calls theirs."""

    lines: tuple[str, ...]
    language: str = "sh"


@dataclass(frozen=True)
class Chart:
    """Room for a chart; formats that cannot draw leave it out, since tables hold the figures.

    `controls`: what keys and the mouse do, for formats in which they do it.
    """

    key: str
    title: str
    caption: str
    controls: str = ""


@dataclass(frozen=True)
class Fold:
    """Detail that is folded away where the format can."""

    title: str
    blocks: tuple[Block, ...]


Block = Para | Note | Facts | Table | Commands | Chart | Fold


def is_empty(block: Block, drawn: Container[str]) -> bool:
    """Whether nothing of a block can be shown by a format that has only these charts."""
    if isinstance(block, Fold):
        return all(is_empty(inner, drawn) for inner in block.blocks)
    if isinstance(block, Para):
        return block.in_lead
    return isinstance(block, Chart) and block.key not in drawn


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    device: str = ""
    folded: bool = False
    """Folded away where the format can: evidence for who checks the answer."""


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
    notes: tuple[Note, ...] = field(default=())


def chart_key(name: str, device_id: int) -> str:
    """The key under which :func:`pyanalyze.report.html.render_html` looks for a chart.

    Parameters
    ----------
    name
        ``timeline``, ``slices``, ``usage``, ``counters``, ``occupancy``, ``sm_heatmap`` or ``limiters``.
    device_id
        The device entry it belongs to.

    Examples
    --------
    >>> chart_key("timeline", 0)
    'timeline-0'
    """
    return f"{name}-{device_id}"


def column_legend(*meanings: tuple[str, str]) -> Fold:
    """What columns of a table count, folded away: who knows it already need not read it again."""
    rows = tuple((Cell(title), Cell(meaning)) for title, meaning in meanings)
    return Fold("What each column counts", (Table((Column("Column"), Column("Counts")), rows),))


def value_cell(text: str, basis: Basis | None = None) -> Cell:
    """A value in a table, muted and without basis where it is not known."""
    if text == fmt.UNKNOWN:
        return Cell(text, tone="muted")
    return Cell(text, basis=basis)
