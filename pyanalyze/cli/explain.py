"""`pyanalyze explain`: the slowest units of work, and why each was slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import (
    baseline_options,
    capture_options,
    csv_of,
    emit,
    open_session,
    output_options,
    refuse_existing,
    tenants_of,
)
from pyanalyze.text.numbers import bounded_float, bounded_int

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.explain import Explanation
    from pyanalyze.session import Session

#: More units than this are no answer that anybody reads one by one.
_MOST = 1_000_000


class Slowest(click.ParamType[float]):
    """A part of the units of each name, or a number of them."""

    name = "N|N%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A percentage becomes a fraction; a number stays one."""
        text = str(value).strip()
        wanted: float | None
        if text.endswith("%"):
            percent = bounded_float(text[:-1].strip(), 1e-6, 99.999)
            wanted = None if percent is None else percent / 100
        else:
            wanted = bounded_int(text, 1, _MOST)
        if wanted is None:
            self.fail(f"{text[:40]!r} is neither a percentage such as 1% nor a number of units", param, ctx)
        return float(wanted)


@click.command("explain")
@capture_options
@baseline_options
@click.option("--name", metavar="RANGE", help="Only NVTX ranges or given units of this name; # is any number.")
@click.option("--at", metavar="TIME", help="Only units in flight at this time; as for --start.")
@click.option("--unit", type=click.IntRange(min=0, max=2**32 - 1), help="Only the unit of this number.")
@click.option(
    "--slowest", type=Slowest(), default="1%", show_default=True, help="Slowest units of each name: a part, or so many."
)
@output_options(("table", "json", "csv"))
def command(
    slowest: float,
    unit: int | None,
    at: str | None,
    name: str | None,
    fmt: str,
    output: Path | None,
    *,
    force: bool,
    **options: Any,
) -> None:
    """Explain the slowest units of work: requests, iterations, steps.

    Units are those of --work, else NVTX ranges, else launches of whole graphs, else launches between two
    synchronisations that repeat. csv: the segments of the chosen units.
    """
    if unit is not None and at is not None:
        raise click.UsageError("--unit and --at choose different units: use one of them")
    from pyanalyze.tables.frames import ON_REQUEST

    refuse_existing(output, force=force)
    session = open_session(**options, extra_tables=ON_REQUEST)
    found = session.explain(slowest=slowest, unit=unit, at=at, name=name).result
    text = csv_of(rows(found), COLUMNS) if fmt == "csv" else json_of(session, found) if fmt == "json" else str(found)
    emit(text, output, force=force, tenants=tenants_of(session, fmt))


#: Columns of the CSV.
COLUMNS = (
    "unit", "tenant_id", "tenant", "name", "unit_start_ns", "unit_dur_ns", "unit_excess_ns", "kind", "start_ns",
    "end_ns", "dur_ns", "count", "other_tenant_id", "other", "operation", "own", "usual_ns", "basis",
)  # fmt: skip


def rows(found: Explanation) -> list[dict[str, Any]]:
    """One row per segment of the chosen units."""
    return [
        {
            "unit": unit.unit,
            "tenant_id": unit.tenant_id,
            "tenant": unit.tenant,
            "name": unit.name,
            "unit_start_ns": unit.start_ns,
            "unit_dur_ns": unit.dur_ns,
            "unit_excess_ns": unit.excess_ns,
            **segment.model_dump(mode="json"),
        }
        for unit in found.units
        for segment in unit.segments
    ]


def json_of(session: Session, found: Explanation) -> str:
    """The answer as JSON, with its schema and clock."""
    import json

    from pyanalyze.report.fill.capture import clock_of
    from pyanalyze.results.model import rounded

    clock = clock_of(session.tables).model_dump(mode="json", by_alias=True)
    return json.dumps(
        {"schema": "pyanalyze.explain/1", "clock": clock, **rounded(found.model_dump(mode="json"))}, indent=2
    )
