"""Every section of a report: one file, one line in SECTIONS."""

from pyanalyze.report.sections import (
    advice,
    copies,
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
    slow_requests,
    streams,
    summary,
    tenants,
    time_split,
    timeline,
    use,
)
from pyanalyze.report.sections.base import DeviceSection, Inputs, ReportSection

__all__ = ["SECTIONS", "DeviceSection", "Inputs", "ReportSection"]

#: In the order of the page: the answer and what to change, then the figures, then the evidence. Those of a device come
#: device by device, then those of the report.
SECTIONS: tuple[DeviceSection | ReportSection, ...] = (
    use.SECTION,
    timeline.SECTION,
    advice.SECTION,
    summary.SECTION,
    samples.SECTION,
    tenants.SECTION,
    interference.SECTION,
    slow_requests.SECTION,
    time_split.SECTION,
    streams.SECTION,
    copies.SECTION,
    occupancy.SECTION,
    residency.SECTION,
    memory.SECTION,
    listed.SECTION,
    sharing.SECTION,
    not_available.SECTION,
    quality.SECTION,
    provenance.SECTION,
    glossary.SECTION,
)
