"""What was sampled over time: the picture of the first page where no capture has another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.sampled_text import only_sampled
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sections.samples import use_chart

if TYPE_CHECKING:
    from pyanalyze.report.blocks import Block
    from pyanalyze.results.report import Device


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    return [use_chart(device)] if device.sampled is not None and only_sampled(inputs.report, device) else []


SECTION = DeviceSection("use", "GPU use over time", _blocks)
