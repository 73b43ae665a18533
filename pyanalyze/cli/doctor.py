"""`pyanalyze doctor`: what this machine can capture, and what is in the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pyanalyze.cli._shared import emit, output_options, refuse_existing
from pyanalyze.errors import GpuUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.record.doctor import Finding


@click.command("doctor")
@output_options(("table", "json"), "table")
def command(*, fmt: str, output: Path | None, force: bool) -> None:
    """Check what this machine can capture, with a remedy for everything that it cannot; exit 3 without a GPU."""
    from pyanalyze.record.doctor import NO_GPU, diagnose

    refuse_existing(output, force=force)
    found = diagnose(need_gpu=False)
    if fmt == "json":
        body = {"schema": "pyanalyze.doctor/1", "findings": [finding.as_object() for finding in found]}
        emit(json.dumps(body, indent=2), output, force=force)
    else:
        emit(_table(found), output, force=force)
    if any(finding.detail == NO_GPU for finding in found):
        raise GpuUnavailable(NO_GPU)


def _table(found: list[Finding]) -> str:
    from pyanalyze.text.visible import visible

    out = []
    for finding in found:
        out.append(f"{finding.state:8} {visible(finding.what)}: {visible(finding.detail, limit=None)}")
        if finding.remedy:
            out.append(f"{'':8}   remedy: {visible(finding.remedy, limit=None)}")
    return "\n".join(out)
