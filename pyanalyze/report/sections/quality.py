"""Data-quality counters."""

from __future__ import annotations

from pyanalyze.analysis.sharing.missing import LOST_CALLS, LOST_KERNELS, UNFINISHED_KERNELS
from pyanalyze.core import _core
from pyanalyze.report.blocks import Block, Cell, Column, Para, Table
from pyanalyze.report.sampled_text import without_capture
from pyanalyze.report.sections.base import Inputs, ReportSection
from pyanalyze.report.sentences.missing import TO_DO
from pyanalyze.report.sentences.words import LONG
from pyanalyze.results.labels import device_title
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop

#: What counters mean where there is no capture, on whose clock samples could be placed.
_OF_SAMPLES = {
    "samples_local_time": "Sampled values (each metric of a sample counts) with local times, as the files have them.",
    "samples_not_aligned": "Sampled values (each metric of a sample counts): they are shown, and not drawn over time.",
}


def _blocks(inputs: Inputs) -> list[Block]:
    # They are counted per GPU, among what is not available.
    several = len(inputs.report.devices) > 1
    gaps: list[Block] = [
        Para(
            f"{f'{device_title(device)}: ' if several else ''}"
            f"{full_stop(capital(visible(gap.why, LONG)))}{TO_DO if gap.how else ''}"
        )
        for device in inputs.report.devices
        for gap in device.sharing.missing
        if gap.what in ("export_rows", LOST_KERNELS, UNFINISHED_KERNELS, LOST_CALLS)
        and not (
            # Of what nsys counts there is a counter.
            gap.what == "export_rows" and inputs.report.quality
        )
    ]
    if not inputs.report.quality:
        return gaps or [Para("No data-quality issue was counted.")]
    order = {"error": 0, "data-loss": 1, "notice": 2, "info": 3}
    meanings = {str(one["name"]): str(one["doc"]) for one in _core.quality_counters()}
    if without_capture(inputs.report):
        meanings |= _OF_SAMPLES
    rows = tuple(
        (
            Cell(row.severity, tone="bad" if order[row.severity] < 2 else "plain"),
            Cell(visible(row.name), tone="code"),
            Cell(fmt.count(row.count)),
            # What happened where, and what that means for the reader.
            Cell(" ".join(filter(None, (_sentence(row.detail), meanings.get(row.name, ""))))),
        )
        for row in sorted(inputs.report.quality, key=lambda r: (order[r.severity], r.name))
    )
    columns = (Column("Severity"), Column("Counter"), Column("Count", numeric=True), Column("Detail"))
    return [Table(columns, rows, "Data-quality counters (observed)."), *gaps]


def _sentence(text: str | None) -> str:
    return full_stop(visible(text, LONG)) if text else ""


SECTION = ReportSection("quality", "Data quality", _blocks, folded=True)
