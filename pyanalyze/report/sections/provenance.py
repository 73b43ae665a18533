"""What was read, from which machine, by which versions."""

from __future__ import annotations

from pyanalyze.report.blocks import Block, Cell, Column, Para, Table, value_cell
from pyanalyze.report.sampled_text import moment_text, span_text, without_capture
from pyanalyze.report.sections.base import Inputs, ReportSection
from pyanalyze.report.sentences.capture import versions_text
from pyanalyze.report.sentences.window import defined_window
from pyanalyze.report.sentences.words import LONG
from pyanalyze.report.shown import shown_devices
from pyanalyze.results.labels import device_title
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible


def _blocks(inputs: Inputs) -> list[Block]:
    report = inputs.report
    # Samples have no clock of their own that could be wrong by so much.
    recorded = not without_capture(report)
    main = inputs.main
    span = None if recorded or main is None else span_text(report, main) or "time not known"
    rows = [
        ("Window (UTC)", defined_window(report, main)) if span is None else ("Sampled", span),
        *([("Clock uncertainty", fmt.duration(report.clock.uncertainty_ns))] if recorded else []),
        ("Versions", versions_text(report)),
        ("Contract", report.schema_id),
    ]
    if inputs.generated_with:
        rows.append(("Generated with", visible(inputs.generated_with, LONG)))
    if inputs.command:
        rows.append(("Command", visible(inputs.command, LONG)))
    machines = {(c.host_hash, c.driver_version, c.cuda_version) for c in report.captures}
    for host, driver, cuda in sorted(machines, key=str):
        parts = [
            f"driver {visible(driver, 24) or fmt.UNKNOWN}",
            f"CUDA {visible(cuda, 16) or fmt.UNKNOWN}",
            f"host {visible(host, 24)} (hash of its name)" if host else "host not recorded",
        ]
        rows.append(("Machine", ", ".join(parts)))
    for device in shown_devices(report):
        parts = [
            f"{fmt.count(device.sm_count)} SMs" if device.sm_count is not None else "SM count not known",
            f"compute capability {visible(device.compute_capability, 12) or fmt.UNKNOWN}",
            f"uuid {visible(device.uuid) or fmt.UNKNOWN}",
        ]
        if device.memory is not None:
            parts.append(
                f"memory {fmt.bytes_(device.memory.total_bytes)}, peak use {fmt.bytes_(device.memory.peak_bytes)}"
            )
        rows.append((device_title(device), ", ".join(parts)))
    about = Table(
        (Column("Property"), Column("Value")),
        tuple((Cell(a), Cell(b, tone="plain")) for a, b in rows),
        "How this report was made.",
    )
    captures = tuple(
        (
            Cell(str(index)),
            Cell(visible(c.path, 120), tone="code"),
            value_cell(visible(c.nsys_version) or fmt.UNKNOWN),
            value_cell(visible(c.schema_version) or fmt.UNKNOWN),
            value_cell(moment_text(report.clock, c.start_ns)),
            value_cell(fmt.duration(None if c.start_ns is None or c.end_ns is None else c.end_ns - c.start_ns)),
            value_cell(fmt.duration(c.clock_offset_ns if c.is_recorded else None)),
            value_cell(fmt.duration(c.clock_uncertainty_ns if c.is_recorded else None)),
        )
        for index, c in enumerate(report.captures)
    )
    columns = (
        Column("#", numeric=True),
        Column("Capture" if recorded else "Samples"),
        Column("nsys", "that exported"),
        Column("Schema"),
        Column("First record", "of work on the GPU, a switch or a counter" if recorded else ""),
        Column("Duration", "to the last" if recorded else "", numeric=True),
        Column("Clock offset", numeric=True),
        Column("Uncertainty", numeric=True),
    )
    read: Block = (
        Table(columns, captures, "Captures (observed)." if recorded else "Samples (sampled).")
        if captures
        else Para("No capture was read.", "muted")
    )
    return [about, read]


SECTION = ReportSection("provenance", "Provenance", _blocks, folded=True)
