"""`pyanalyze schema`: the published JSON Schema, and the tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pyanalyze.cli._shared import emit, refuse_existing

if TYPE_CHECKING:
    from pathlib import Path


@click.command("schema")
@click.option("--tables", is_flag=True, help="Describe the tables of the library instead.")
@click.option("--compare", is_flag=True, help="That of `compare -f json` instead.")
@click.option("--fleet", is_flag=True, help="That of the summary of `fleet` instead.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File; else standard output.")
@click.option("--force", is_flag=True, help="Replace an existing output.")
def command(*, tables: bool, compare: bool, fleet: bool, output: str | None, force: bool) -> None:
    """Print the JSON Schema of `report -f json`."""
    from pathlib import Path

    if tables + compare + fleet > 1:
        raise click.UsageError("give one of --tables, --compare and --fleet")
    path: Path | None = None if output is None else Path(output)
    refuse_existing(path, force=force)
    if tables:
        from pyanalyze import _core

        emit(json.dumps(_core.table_declarations(), indent=2), path, force=force)
        return
    if compare:
        from pyanalyze.comparison.model import comparison_schema

        emit(json.dumps(comparison_schema(), indent=2), path, force=force)
        return
    if fleet:
        from pyanalyze.fleet.summary import fleet_schema

        emit(json.dumps(fleet_schema(), indent=2), path, force=force)
        return
    from pyanalyze.report.model import json_schema

    emit(json.dumps(json_schema(), indent=2), path, force=force)
