"""Tenants of which no input says the GPU, and settings that name no device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Para
from pyanalyze.report.sections.base import Inputs, ReportSection
from pyanalyze.report.sections.samples import settings_fold, tenants_table

if TYPE_CHECKING:
    from pyanalyze.report.blocks import Block


def _blocks(inputs: Inputs) -> list[Block]:
    report = inputs.report
    blocks: list[Block] = []
    if report.listed:
        blocks.append(Para("No input says which GPU these tenants use."))
        blocks += tenants_table(report.listed, inputs, "Tenants of unknown GPU.")
    return [*blocks, *settings_fold(report.settings, "Settings that name no device")]


SECTION = ReportSection("listed", "Other tenants and settings", _blocks, folded=True)
