"""What a section is: an id, a title, and a function that makes its blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from pyanalyze.report.blocks import Block
    from pyanalyze.results.report import Device, Report

__all__ = ["DeviceSection", "Inputs", "ReportSection"]


@dataclass(frozen=True)
class Inputs:
    """What sections are made of.

    Attributes
    ----------
    report
        The whole answer.
    main
        The device that the first screen speaks of; None: there is none.
    kernels
        The ``kernel_occupancy`` table; None: it was not handed over.
    command
        How the report was made.
    generated_with
        Versions of what draws it.
    """

    report: Report
    main: Device | None
    kernels: pl.DataFrame | None = None
    command: str = ""
    generated_with: str = ""


@dataclass(frozen=True)
class DeviceSection:
    """A section that stands once for every device; its anchor ends in the number of the device."""

    id: str
    title: str
    blocks: Callable[[Device, Inputs], list[Block]]
    titled: Callable[[Device], str] | None = None
    """Makes the title where it names something of the device."""
    folded: bool = False
    """Evidence for who checks the answer: see :class:`pyanalyze.report.blocks.Section`."""
    of_trace: bool = False
    """Left out where only samples are known: one line among what is not available says so, not five sections."""


@dataclass(frozen=True)
class ReportSection:
    """A section that stands once in a report."""

    id: str
    title: str
    blocks: Callable[[Inputs], list[Block]]
    folded: bool = False
