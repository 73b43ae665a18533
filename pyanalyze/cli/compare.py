"""`pyanalyze compare A B`: what changed between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import capture_options, emit, open_session, output_options, refuse_existing
from pyanalyze.cli.check import Fraction, names_by_run, read
from pyanalyze.cli.words import Choice

if TYPE_CHECKING:
    from pathlib import Path

    import altair as alt

    from pyanalyze.results.report import Report
    from pyanalyze.session import Session


@click.command("compare")
@capture_options
@click.option("--noise-floor", type=Fraction(), help="Noise floor of relative changes.  [default: 2%]")
@click.option(
    "--inconclusive",
    type=Choice(("fail", "warn")),
    default="fail",
    help="Exit 4, or only warn, if the runs cannot be compared.",
)
@output_options(("table", "json", "md", "html"))
def command(
    fmt: str,
    output: Path | None,
    captures: tuple[Path, ...],
    noise_floor: float | None,
    inconclusive: str,
    *,
    force: bool,
    **options: Any,
) -> int:
    """Compare two runs A and B: captures, packs, or reports saved as JSON.

    Says first whether the work was equal, then where the change of the time per unit of work came from: other work,
    the host, waiting for its time slice or to start, or slower execution while resident. Exit 4: nothing could be
    compared.

    --tenant names processes of either run; the same name for a process of each makes a pair of them.
    """
    from pyanalyze.analysis.comparison.split import compare_reports
    from pyanalyze.report.comparison import render_comparison
    from pyanalyze.vocabulary import NOISE_FLOOR

    if len(captures) != 2:
        raise click.UsageError(f"compare takes two runs, A and B, not {len(captures)}; a directory counts as one")
    refuse_existing(output, force=force)
    if options["redact"]:
        from pyanalyze.tables.redact import numbered

        # One numbering for both: kernel-1 of A is kernel-1 of B.
        options["redact"] = numbered()
    names = names_by_run([(path,) for path in captures], options)
    runs = [_run(path, {**options, "tenants": mine}) for path, mine in zip(captures, names, strict=True)]
    a, b = (report for _, report in runs)
    floor = NOISE_FLOOR if noise_floor is None else noise_floor
    found = compare_reports(a, b, noise_floor=floor, one_numbering=bool(options["redact"]))
    labels = tuple(pair.label for pair in found.tenants) if fmt == "table" else None
    page = render_comparison(found, fmt, _timelines(runs) if fmt == "html" else None)
    emit(page, output, force=force, tenants=labels)
    return 0 if found.conclusive or inconclusive == "warn" else 4


def _run(path: Path, options: dict[str, Any]) -> tuple[Session | None, Report]:
    """A run with its report; a saved report has no session."""
    from pyanalyze.inputs.saved_report import is_saved
    from pyanalyze.vocabulary import Part

    parts = frozenset({Part.WORK})
    if is_saved(path):
        return None, read((path,), parts=parts, **options)
    session = open_session((path,), **options)
    return session, session.report(parts=parts)


def _timelines(runs: list[tuple[Session | None, Report]]) -> alt.TopLevelMixin | None:
    """Both runs on one axis; None: one of them is a saved report, or shows no activity."""
    from pyanalyze.report.rendering import draw_two

    known = [(session.analysis, report) for session, report in runs if session is not None]
    return draw_two(known[0], known[1]) if len(known) == len(runs) else None
