"""`pyanalyze interference`: who was slowed, by how much, as far as the capture tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyanalyze.cli._shared import answer, capture_options, open_session, output_options, refuse_existing

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = ("interference", "tenants")
KEYS = {"device_id", "interference", "name", "tenants", "uuid", "window"}


@click.command("interference")
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
    """Say who was slowed and by how much, or which capture would tell."""
    refuse_existing(output, force=force)
    session = open_session(captures, samples, context, tenants, keep_going=keep_going, quiet=quiet)
    answer(session, SECTIONS, KEYS, fmt, output, force=force)
