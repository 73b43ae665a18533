"""What is not available, why, and the command that captures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Cell, Column, Para, Table
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.missing import missing_words
from pyanalyze.report.sentences.words import LONG
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital

if TYPE_CHECKING:
    from pyanalyze.results.model import Missing
    from pyanalyze.results.report import Device


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    entries = device.sharing.missing
    if not entries:
        return [Para("Everything that this report needs is available.")]
    rows = tuple(
        (Cell(capital(missing_words(e.what)), note=visible(e.what)), Cell(visible(e.why, LONG)), _how(e))
        for e in entries
    )
    columns = (Column("Not available"), Column("Why"), Column("How to capture it"))
    return [Table(columns, rows)]


def _how(entry: Missing) -> Cell:
    if not entry.how:
        return Cell("no command captures it", tone="muted")
    return Cell(visible(entry.how, LONG), tone="command" if entry.is_command else "plain")


SECTION = DeviceSection("missing", "Not available", _blocks)
