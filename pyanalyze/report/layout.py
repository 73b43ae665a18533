"""From a report to its page: the title, the first sentences, the notes, and the sections in their order.

HTML, Markdown and text draw the same :class:`pyanalyze.report.blocks.Page`, so that they cannot disagree. Text from a
capture is made visible where a section is made (:func:`pyanalyze.text.escape.visible`); the renderers escape for their
own format on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import impact_of
from pyanalyze.report.blocks import Note, Page, Section
from pyanalyze.report.sampled_text import (
    engines_sentence,
    health_of_all,
    only_sampled,
    set_up_text,
    sharing_sentence,
    span_text,
    use_basis,
    use_sentence,
    without_capture,
)
from pyanalyze.report.sections import SECTIONS, DeviceSection, Inputs, ReportSection
from pyanalyze.report.sentences.capture import (
    clock_sentences,
    cut_sentences,
    files_not_read,
    lost_words,
    other_gpus_text,
    samples_not_used,
)
from pyanalyze.report.sentences.lead import lead_sentences
from pyanalyze.report.sentences.mode import verdict_sentence
from pyanalyze.report.sentences.samples import sampled_sentence
from pyanalyze.report.sentences.tenants import grouped_text
from pyanalyze.report.sentences.window import defined_window, late_text, view_text
from pyanalyze.report.shown import shown_devices, shown_notes
from pyanalyze.results.labels import device_title, main_device
from pyanalyze.text.format import capital, full_stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from pyanalyze.results.report import Device, Report

__all__ = ["lay_out"]

SYNTHETIC = Note(
    "Synthetic capture",
    "This capture was made by a generator, not recorded on a GPU. Its numbers prove nothing about real hardware.",
    "warning",
)


def lay_out(
    report: Report, kernels: pl.DataFrame | None = None, *, command: str = "", generated_with: str = ""
) -> Page:
    """Lay the whole report out.

    Parameters
    ----------
    report
        The answer.
    kernels
        The ``kernel_occupancy`` table; ``None`` leaves the table of kernels out and says so.
    command
        How the report was made, for the provenance.
    generated_with
        Versions of what drew it.

    Examples
    --------
    >>> import pyanalyze
    >>> page = lay_out(pyanalyze.load(capture).report())
    >>> [section.id for section in page.sections[:3]]
    ['timeline-0', 'advice-0', 'summary-0']
    """
    main = main_device(report)
    inputs = Inputs(report, main, kernels, command, generated_with)
    if main is None:
        lead: tuple[str, ...] = (
            "No GPU was found in what was read.",
            *(f"{capital(wrong)}." for wrong in health_of_all(report, sentences=True)),
        )
        subtitle = "no device"
    else:
        lead = lead_of(report, main)
        sampled = span_text(report, main)
        when = f"samples, {sampled}" if sampled else f"window {defined_window(report, main)}"
        if sampled is None and main.sampled is not None and without_capture(report):
            when = "samples without times"
        subtitle = f"{device_title(main)} · {when}"
    return Page("GPU sharing report", subtitle, lead, tuple(_sections(inputs)), tuple(_notes(report)))


def lead_of(report: Report, device: Device) -> tuple[str, ...]:
    """The first sentences; where only samples are known, who is listed and how it was used."""
    if not only_sampled(report, device):
        others, late = other_gpus_text(report, device), late_text(report, device)
        slow, *rest = lead_sentences(device)
        began = [late] if late else []
        # Who is slowed comes first; who is not has to know what the shares are of.
        if impact_of(device).slowed:
            rest = [*began, *rest]
        else:
            slow = " ".join([*began, slow])
        return (slow, *rest, others) if others else (slow, *rest)
    who = sharing_sentence(report, device) or set_up_text(report, device)
    use, sampled = use_sentence(device), sampled_sentence(device)
    parts = [
        f"Use of the GPU{f', {basis}' if (basis := use_basis(device)) else ''}: {use}." if use else "",
        f"{capital(busier)}." if (busier := engines_sentence(device)) is not None else "",
        f"Sampled: {sampled}." if sampled else "",
        *(f"{capital(wrong)}." for wrong in health_of_all(report, sentences=True)),
    ]
    texts = (f"{who}." if who else "", " ".join(part for part in parts if part), verdict_sentence(device))
    return tuple(text for text in texts if text)


def _notes(report: Report) -> Iterator[Note]:
    """What must be known before anything is read."""
    if report.synthetic:
        yield SYNTHETIC
    if report.view is not None:
        yield Note("Part of the capture", view_text(report))
    if report.grouped_by is not None:
        yield Note("Tenants", full_stop(capital(grouped_text(report.grouped_by))))
    for text in cut_sentences(report):
        yield Note("The export was cut", f"{text}.", "warning")
    lost = [row for row in report.quality if row.severity in ("data-loss", "error")]
    if lost:
        said = "; ".join(sorted({lost_words(row) for row in lost})[:6])
        yield Note("Records are missing", f"Sums may be too small: {said}. See data quality.", "warning")
    for text in files_not_read(report):
        yield Note("File not read", f"{text}.", "warning")
    for text in clock_sentences(report):
        yield Note("Clocks of samples", f"{text}.", "warning")
    for text in samples_not_used(report):
        yield Note("Samples are not used", f"{text}.", "warning")
    yield from shown_notes(report)


def _sections(inputs: Inputs) -> Iterator[Section]:
    devices = shown_devices(inputs.report)
    for device in devices:
        where = device_title(device) if len(devices) > 1 else ""
        sampled = only_sampled(inputs.report, device)
        for one in SECTIONS:
            if sampled and isinstance(one, DeviceSection) and one.of_trace:
                continue
            if isinstance(one, DeviceSection) and (blocks := one.blocks(device, inputs)):
                title = one.title if one.titled is None else one.titled(device)
                yield Section(f"{one.id}-{device.device_id}", title, tuple(blocks), where, one.folded)
    for one in SECTIONS:
        if isinstance(one, ReportSection) and (blocks := one.blocks(inputs)):
            yield Section(one.id, one.title, tuple(blocks), folded=one.folded)
