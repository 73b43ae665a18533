"""The words that say how a value is known."""

from __future__ import annotations

from pyanalyze.report.blocks import Block, Cell, Column, Table
from pyanalyze.report.sections.base import Inputs, ReportSection
from pyanalyze.results.report import BASIS_TEXT


def _blocks(inputs: Inputs) -> list[Block]:
    rows = tuple((Cell("", basis=word), Cell(text)) for word, text in BASIS_TEXT.items())
    return [Table((Column("Basis"), Column("Meaning")), rows)]


SECTION = ReportSection("glossary", "How a value is known", _blocks, folded=True)
