"""Kernels, copies and residency of every tenant over time: the one picture of the first page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Chart, chart_key
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.results.labels import tenant_labels

if TYPE_CHECKING:
    from pyanalyze.results.report import Device

_TICKS = " Ticks: switches. Contexts that alternate within a pixel look concurrent."


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels = tenant_labels(device.tenants)
    named = [labels[tenant.tenant_id] for tenant in device.named_for_all()]
    whose = ""
    if named:
        each = named[0] if len(named) == 1 else "any MPS client"
        whose = f" The residency of all MPS clients is recorded under {each}: that shading is of all."
    return [
        Chart(
            chart_key("timeline", device.device_id),
            "Timeline",
            "Bars: kernels (rounded: graphs, thin: copies)."
            # Only what is drawn: without switch records there may be neither.
            + (" Shading: resident." if device.residency_summary is not None else "")
            + (_TICKS if device.context_switches is not None and device.context_switches.count else "")
            + (" Lines: sampled." if device.sampled is not None else "")
            + whose,
            "Drag moves, Ctrl+scroll zooms, Shift+drag selects. Keys: arrows + - 0.",
        )
    ]


SECTION = DeviceSection("timeline", "GPU time over time", _blocks, of_trace=True)
