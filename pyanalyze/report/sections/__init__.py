"""Every section of a report: one file, one line in SECTIONS."""

from pyanalyze.report.sections import (
    advice,
    glossary,
    interference,
    listed,
    memory,
    not_available,
    occupancy,
    provenance,
    quality,
    residency,
    samples,
    sharing,
    summary,
    tenants,
)
from pyanalyze.report.sections.base import DeviceSection, Inputs, ReportSection

__all__ = ["SECTIONS", "DeviceSection", "Inputs", "ReportSection"]

#: In the order of the page: first those of a device, device by device, then those of the report.
SECTIONS: tuple[DeviceSection | ReportSection, ...] = (
    summary.SECTION,
    samples.SECTION,
    sharing.SECTION,
    residency.SECTION,
    tenants.SECTION,
    occupancy.SECTION,
    memory.SECTION,
    interference.SECTION,
    advice.SECTION,
    not_available.SECTION,
    listed.SECTION,
    quality.SECTION,
    provenance.SECTION,
    glossary.SECTION,
)
