"""The words that say how a value is known."""

from __future__ import annotations

from typing import Final

from pyanalyze.report.blocks import Block, Cell, Column, Table
from pyanalyze.report.sections.base import Inputs, ReportSection
from pyanalyze.results.report import BASIS_TEXT

#: Words of sentences that are the basis of no value.
_ALSO = {
    "confidence": "how often such verdicts on the sharing mode were right on simulated recordings",
    "assumed": "not in the capture: taken from other boards, or taken as unchanged",
    "documented": "NVIDIA or a paper says so of a sharing mode; nothing in the capture does",
}
#: Its title, for the tables that point to it.
TITLE: Final = "How a value is known"


def _blocks(inputs: Inputs) -> list[Block]:
    rows = tuple((Cell("", basis=word), Cell(text)) for word, text in BASIS_TEXT.items())
    more = tuple((Cell(word), Cell(text)) for word, text in _ALSO.items())
    return [Table((Column("Basis"), Column("Meaning")), (*rows, *more))]


SECTION = ReportSection("glossary", TITLE, _blocks, folded=True)
