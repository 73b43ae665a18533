"""`pyanalyze CAPTURE...`: the first screen, at most 15 lines to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyanalyze.cli._shared import capture_options, emit, open_session, output_options, refuse_existing

if TYPE_CHECKING:
    from pathlib import Path


@click.command("screen")
@capture_options
@output_options(("table", "json"), "table")
def command(
    captures: tuple[Path, ...],
    samples: tuple[Path, ...],
    context: tuple[Path, ...],
    tenants: tuple[tuple[str, int], ...],
    *,
    keep_going: bool,
    quiet: bool,
    fmt: str,
    output: Path | None,
    force: bool,
) -> None:
    """Say in at most 15 lines how the GPU was shared, who held it, and what to do."""
    refuse_existing(output, force=force)
    session = open_session(captures, samples, context, tenants, keep_going=keep_going, quiet=quiet)
    report = session.report()
    if fmt == "json":
        emit(report.to_json(), output, force=force)
        return
    from pyanalyze.report.text import first_screen

    emit(first_screen(report), output, force=force)
