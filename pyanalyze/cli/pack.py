"""`pyanalyze pack`: a small file to hand on, names under pseudonyms."""

from __future__ import annotations

from pathlib import Path

import click

from pyanalyze.cli._shared import OutputFile, ProgressBar, memory_option, refuse_existing, refuse_same
from pyanalyze.cli.standard_streams import say
from pyanalyze.cli.words import Choice
from pyanalyze.tables.frames import ANALYSIS_TABLES, ON_REQUEST


@click.command("pack")
@click.argument("captures", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option("-o", "--output", required=True, type=OutputFile(), help="File to write.")
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Key file, created if absent; the same key gives the same pseudonyms.",
)
@click.option(
    "--names", type=click.Path(path_type=Path, dir_okay=False), help="Write the names and their pseudonyms (CSV)."
)
@click.option("--samples", multiple=True, type=click.Path(path_type=Path, readable=False), help="As elsewhere.")
@click.option("--context", multiple=True, type=click.Path(path_type=Path, readable=False), help="As elsewhere.")
@click.option(
    "--also",
    multiple=True,
    type=Choice(ON_REQUEST),
    help="Additional event tables.",
)
@click.option("--force", is_flag=True, help="Replace an existing output.")
@memory_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    captures: tuple[Path, ...],
    output: Path,
    key: Path,
    names: Path | None,
    samples: tuple[Path, ...],
    context: tuple[Path, ...],
    also: tuple[str, ...],
    *,
    force: bool,
    memory: str | None,
    quiet: bool,
) -> None:
    """Write only the tables and columns that the analysis reads, names under pseudonyms, as one small file.

    Every verb takes a pack in the place of its captures and answers the same, except how long launches waited: that
    needs --also api_calls. What nsys recorded besides, such as the environment and command lines, is not in it. Names
    lead back only with the key, which stays with you.
    """
    from pyanalyze.cli._shared import csv_of, emit
    from pyanalyze.export.pack import pack, read_key
    from pyanalyze.tables.memory import hold

    hold(memory)
    refuse_same(output=output, key=key, names=names)
    for file in (output, names):
        refuse_existing(file, force=force)
    fresh = not key.exists()
    secret = read_key(key, create=True)
    try:
        with ProgressBar(quiet=quiet) as report:
            made = pack(
                captures,
                output,
                key=secret,
                samples=samples,
                context=context,
                tables=(*ANALYSIS_TABLES, *also),
                force=force,
                progress=report,
            )
    except BaseException:
        # A key to nothing is not left behind.
        if fresh:
            key.unlink(missing_ok=True)
        raise
    if fresh:
        say(f"created the key {key}; keep it, and do not share it with the pack")
    if names is not None:
        rows = [{"kind": kind, "name": name, "pseudonym": given} for kind, name, given in made.names]
        emit(csv_of(rows, ("kind", "name", "pseudonym")), names, force=force)
    events = sum(count for name, count in made.rows.items() if name in (*ANALYSIS_TABLES, *also))
    size = made.path.stat().st_size
    say(f"wrote {output}: {events:,} events, {size:,} bytes, {len(made.names)} names replaced by pseudonyms", of="")
