"""`pyanalyze export`: the tables, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import OutputFile, capture_options, expect_option, open_session, refuse_read, require_mode
from pyanalyze.cli.standard_streams import say
from pyanalyze.cli.words import Choice
from pyanalyze.export.write import FOLDERS, FORMATS, STATS, refuse, write
from pyanalyze.tables.frames import ON_REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("export")
@capture_options
@expect_option
@click.option("--to", "fmt", type=Choice(FORMATS), required=True, help="Format.")
@click.option(
    "-o",
    "--output",
    type=OutputFile(folders=True),
    required=True,
    help="Directory (parquet, arrow, csv: one file per table; nsys-stats) or file (sqlite, perfetto).",
)
@click.option("--tables", "chosen", help="Only these, comma-separated; `pyanalyze schema --tables` describes them.")
@click.option("--pace", "paced", metavar="KERNEL", help="nsys-stats: cuda_gpu_kern_pace too, of this short name.")
@click.option(
    "--nsys-report",
    "nsys_reports",
    multiple=True,
    type=click.Path(path_type=Path),
    help="sqlite: add the output of `nsys stats`, `nsys analyze` or `nsys recipe` on this capture (file or recipe "
    "folder; repeatable), and where it differs from ours.",
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
def command(
    fmt: str,
    output: Path,
    chosen: str | None,
    paced: str | None,
    nsys_reports: tuple[Path, ...],
    *,
    force: bool,
    expect_mode: tuple[str, ...],
    **options: Any,
) -> None:
    """Write the tables as parquet, arrow, csv or sqlite, or the whole as a trace for ui.perfetto.dev.

    nsys-stats: the reports of `nsys stats`, `analyze` and `recipe` in their own columns, REPORT.csv of all processes
    as nsys makes it, and REPORT.tenant-ID.csv of each tenant.
    """
    if nsys_reports and fmt != "sqlite":
        raise click.UsageError("--nsys-report adds to a database: give --to sqlite")
    if paced is not None and fmt != STATS:
        raise click.UsageError(f"--pace is a report of --to {STATS}")
    wanted = None if chosen is None else tuple(filter(None, (name.strip() for name in chosen.split(","))))
    if fmt == STATS and wanted is not None:
        raise click.UsageError("--tables chooses tables of this program; nsys-stats writes reports")
    _check_names(wanted)
    if output.exists():
        refuse_read(output)
    refuse(output, folder=fmt in (*FOLDERS, STATS), force=force)
    extra = ("api_calls",) if fmt == STATS else tuple(name for name in ON_REQUEST if name in (wanted or ()))
    session = open_session(**options, extra_tables=extra)
    write(session, fmt, output, tables=wanted, force=force, pace=paced, nsys_reports=nsys_reports)
    say(f"wrote {output}", of="")
    require_mode(session, expect_mode)


def _check_names(wanted: Sequence[str] | None) -> None:
    from pyanalyze.errors import UsageError
    from pyanalyze.tables.frames import declarations

    if wanted is None:
        return
    known = sorted(set(declarations()) - {"timeline"})
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise UsageError(
            f"--tables: there is no table {', '.join(unknown) or '(nothing)'}; choose from {', '.join(known)}"
        )
