"""`pyanalyze schema`: the published JSON Schemas, and the tables."""

from __future__ import annotations

import json

import click

from pyanalyze.cli._shared import emit, refuse_existing
from pyanalyze.cli.words import Choice

#: As `pyanalyze.cli.schemas.VERBS`, which is too heavy for a help text.
VERBS = (
    "report",
    "classify",
    "residency",
    "occupancy",
    "interference",
    "streams",
    "advise",
    "explain",
    "compare",
    "check",
    "info",
    "kernels",
    "now",
    "doctor",
    "fleet",
)


@click.command("schema")
@click.argument("verb", type=Choice(VERBS), required=False)
@click.option("--tables", is_flag=True, help="Describe the tables of the library instead.")
@click.option("--compare", is_flag=True, help="The same as `schema compare`.")
@click.option("--fleet", is_flag=True, help="The same as `schema fleet`.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File; else standard output.")
@click.option("--force", is_flag=True, help="Replace an existing output.")
def command(verb: str | None, *, tables: bool, compare: bool, fleet: bool, output: str | None, force: bool) -> None:
    """Print the JSON Schema of `VERB -f json`; of `report -f json` where no verb is named."""
    from pathlib import Path

    if (verb is not None) + tables + compare + fleet > 1:
        raise click.UsageError("give one of VERB, --tables, --compare and --fleet")
    path: Path | None = None if output in (None, "-") else Path(output)
    refuse_existing(path, force=force)
    if tables:
        from pyanalyze.core import _core

        emit(json.dumps(_core.table_declarations(), indent=2), path, force=force)
        return
    from pyanalyze.cli.schemas import schema_of

    verb = verb or ("compare" if compare else "fleet" if fleet else "report")
    emit(json.dumps(schema_of(verb), indent=2), path, force=force)
