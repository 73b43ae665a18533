"""`pyanalyze study`: a labelled experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli.fleet import ProgressLine, worker_options
from pyanalyze.cli.standard_streams import out, say
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.fleet.estimates import Study


@click.command("study")
@click.argument("file", metavar="STUDY.toml", type=click.Path(path_type=Path, dir_okay=False, readable=False))
@worker_options
def command(file: Path, output: Path, *, memory: str | None, quiet: bool, **options: Any) -> int:
    """Analyse the runs of a labelled experiment; runs whose observed mode contradicts their label come first.

    Intervals are over runs, not kernels. Writes runs and estimates as CSV and Parquet, table.tex, methods.md,
    CITATION.cff and groups/RUN/report.html. The file:

    \b
    title = "MPS against time-slicing"
    [[run]]
    captures = "mps-1.sqlite"        # or a list, or a pattern
    workload = "train+serve"
    role = "shared"                  # or solo, with tenant = "train"
    mode = "mps"
    repeat = 1
    throughput.train = { profiled = 812.0, unprofiled = 840.0 }
    """  # noqa: D301
    from pyanalyze.fleet.study import conduct

    with ProgressLine(quiet=quiet) as report:
        study = conduct(file, output, memory=memory, progress=report, **options)
    for failure in study.failures:
        say(failure.message)
    if not study.estimates:
        say("warning: the table of estimates is empty: no run has a figure to compare")
    out(_table(study))
    return study.exit_code


def _table(study: Study) -> str:
    from pyanalyze.text.escape import visible

    lines = [
        f"MISLABELLED, left out: {visible(one.run, limit=None)}: labelled {one.label or 'solo'}, but {one.observed} "
        f"was found ({one.basis}, confidence {one.confidence:.2f})"
        for one in study.contradicting
    ]
    for one in study.estimates:
        ends = "one run, no interval" if one.low is None else f"95 % CI {one.low:.3f}-{one.high:.3f}"
        counted = fmt.counted(one.runs, "run") + (f" against {one.solo_runs} solo" if one.solo_runs else "")
        who = f"{visible(one.workload, limit=None)}, {one.mode}, {visible(one.tenant, limit=None)}"
        lines.append(f"{who}: {one.measure} {one.value:.3f} ({ends}; {counted})")
    for gap in study.empty:
        who = f"{visible(gap.workload, limit=None)}, {gap.mode}, {visible(gap.tenant, limit=None)}"
        lines.append(f"{who}: no value of {', '.join(gap.measures)}: {visible(gap.why, limit=None)}")
    runs = len({one.run for one in study.observations})
    lines.append(
        f"{fmt.counted(runs, 'run')}; {len(study.contradicting)} mislabelled, "
        f"{fmt.counted(len(study.failures), 'capture')} failed: "
        f"{visible(str(study.output), limit=None)}"
    )
    return "\n".join(lines)
