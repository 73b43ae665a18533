"""`pyanalyze compare A B`: what changed between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import capture_options, emit, output_options, refuse_existing
from pyanalyze.cli.check import Fraction, read
from pyanalyze.cli.words import Choice

if TYPE_CHECKING:
    from pathlib import Path


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
    the host, waiting for the engine, or kernels that were slower while resident. Exit 4: nothing could be compared.
    """
    from pyanalyze.analysis.comparison.split import compare_reports
    from pyanalyze.report.comparison import render_comparison
    from pyanalyze.vocabulary import NOISE_FLOOR, Part

    if len(captures) != 2:
        raise click.UsageError(f"compare takes two runs, A and B, not {len(captures)}; a directory counts as one")
    refuse_existing(output, force=force)
    if options["redact"]:
        from pyanalyze.tables.redact import numbered

        # One numbering for both: kernel-1 of A is kernel-1 of B.
        options["redact"] = numbered()
    a, b = (read((path,), parts=frozenset({Part.WORK}), **options) for path in captures)
    floor = NOISE_FLOOR if noise_floor is None else noise_floor
    found = compare_reports(a, b, noise_floor=floor, one_numbering=bool(options["redact"]))
    names = tuple(pair.label for pair in found.tenants) if fmt == "table" else None
    emit(render_comparison(found, fmt), output, force=force, tenants=names)
    return 0 if found.conclusive or inconclusive == "warn" else 4
