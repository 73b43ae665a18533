"""`pyanalyze report`: everything in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyanalyze.cli._shared import capture_options, emit, open_session, output_options, refuse_existing

if TYPE_CHECKING:
    from pathlib import Path


@click.command("report")
@capture_options
@output_options(("html", "md", "json", "txt"), "html")
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
    """Write all that is known: -f html (one self-contained file), md, json (the contract) or txt."""
    refuse_existing(output, force=force)
    session = open_session(captures, samples, context, tenants, keep_going=keep_going, quiet=quiet)
    from pyanalyze.report import render

    emit(render(session, fmt), output, force=force)
