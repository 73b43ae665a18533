"""`pyanalyze fleet`: many captures at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyanalyze.cli._shared import ProgressBar

if TYPE_CHECKING:
    from pyanalyze.fleet import Fleet


@click.command("fleet")
@click.argument("captures", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write."
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes at once; else the processors at hand.")
@click.option("--force", is_flag=True, help="Trust nothing in the folder: analyse all again, whatever it holds.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(captures: tuple[str, ...], output: Path, *, workers: int | None, force: bool, quiet: bool) -> int:
    """Analyse many captures, each once; what saw one GPU at one time is analysed together.

    CAPTURES are files, folders, or quoted patterns such as 'captures/**/*.sqlite'. Writes fleet.json, fleet.csv and
    groups/NAME/report.json; run it again to do only what changed, or to go on after Ctrl-C. A capture that fails is
    reported and does not stop the others; the exit code is that of the worst.
    """
    from pyanalyze.fleet import analyse
    from pyanalyze.report.escape import visible

    with ProgressBar(quiet=quiet) as report:
        fleet = analyse(captures, output, workers=workers, force=force, progress=report)
    for failure in fleet.failures:
        click.echo(f"pyanalyze: {visible(failure.message, limit=None)}", err=True)
    click.echo(_table(fleet))
    return fleet.exit_code


def _table(fleet: Fleet) -> str:
    from pyanalyze.report.escape import visible

    lines = []
    for row in fleet.rows:
        where = f"{visible(row['group'], limit=None)}"
        if row["mode"] is None:
            lines.append(f"{where}: no GPU did anything")
            continue
        slowdown = row["worst_slowdown"]
        worst = (
            "slowdown not known" if slowdown is None else f"worst slowdown {slowdown:.2f} (n={row['worst_slowdown_n']})"
        )
        lines.append(
            f"{where}, GPU {row['device_id']}: {row['mode']} ({row['confidence']:.2f}, {row['basis']}), "
            f"{row['tenants']} tenant(s), {worst}"
        )
    lines.extend(
        f"left out {visible(one.path, limit=None)}: {one.why} as {visible(one.of, limit=None)}"
        for one in fleet.plan.duplicates
    )
    lines.append(
        f"{len({row['group'] for row in fleet.rows})} group(s), {fleet.analysed} analysed, "
        f"{fleet.reused} known already, "
        f"{len(fleet.failures)} failed: {visible(str(fleet.output), limit=None)}"
    )
    return "\n".join(lines)
