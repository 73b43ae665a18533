"""`pyanalyze report`: everything in one file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import (
    baseline_options,
    by_option,
    capture_options,
    emit,
    expect_option,
    open_session,
    output_options,
    refuse_existing,
    require_mode,
    said_stdout,
    tenants_of,
)
from pyanalyze.cli.words import Choice

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.session import Session


@click.command("report")
@capture_options
@by_option
@baseline_options
@expect_option
@click.option(
    "--pictures",
    type=Choice(("beside", "embed", "none")),
    help="With -f md: PNG files next to the output, embedded, or none.  [default: beside, with -o]",
)
@output_options(("html", "md", "json", "txt"), "html")
def command(
    fmt: str,
    output: Path | None,
    pictures: str | None,
    *,
    force: bool,
    expect_mode: tuple[str, ...],
    **options: Any,
) -> None:
    """Write the whole report: -f html (one self-contained file), md, json (the contract) or txt."""
    from pyanalyze.report.rendering import render
    from pyanalyze.tables.frames import ON_REQUEST
    from pyanalyze.text.shell import shell_line

    if pictures is not None and fmt != "md":
        raise click.UsageError(f"--pictures is for -f md; {fmt} embeds its charts, or has none")
    if pictures == "beside" and output is None:
        raise click.UsageError("--pictures beside needs -o")
    if output is None and fmt == "html" and sys.stdout.isatty() and not said_stdout():
        # Nobody reads a page of HTML in a terminal.
        output = _beside(options["captures"] or options["samples"] or options["context"])
    refuse_existing(output, force=force)
    session = open_session(**options, extra_tables=ON_REQUEST)
    # A redacted report must not name its captures in the command that made it.
    line = "" if session.selection.redacted else shell_line(["pyanalyze", *sys.argv[1:]])
    wanted = pictures or ("beside" if output is not None else "none")
    if fmt == "md" and wanted != "none":
        text = _with_pictures(session, output, line, embed=wanted == "embed", force=force)
    else:
        text = render(session.analysis, fmt, command=line, detail=session.detail)
    emit(text, output, force=force, tenants=tenants_of(session, fmt))
    require_mode(session, expect_mode)


def _beside(inputs: tuple[Path, ...]) -> Path:
    """The file of a report that nobody named: in this directory, named by the first input."""
    from pathlib import Path

    # A directory may be given as `.` or with a slash behind it.
    return Path(f"{Path(inputs[0]).resolve().stem}-report.html" if inputs else "report.html")


def _with_pictures(session: Session, output: Path | None, line: str, *, embed: bool, force: bool) -> str:
    """Write the pictures, all or none of which may exist, and give the Markdown that shows them."""
    import base64

    from pyanalyze.files import write_whole
    from pyanalyze.report.markdown import render_markdown
    from pyanalyze.report.rendering import draw_png

    report = session.report()
    drawn = draw_png(session.analysis, report)
    links = {key: f"data:image/png;base64,{base64.b64encode(png).decode()}" for key, png in drawn.items()}
    if not embed and output is not None:
        files = {key: output.with_name(f"{output.stem}-{key}.png") for key in drawn}
        for file in files.values():
            refuse_existing(file, force=force)
        for key, file in files.items():
            write_whole(file, drawn[key], force=force)
        links = {key: file.name for key, file in files.items()}
    return render_markdown(report, session.analysis.launch_configurations, command=line, pictures=links)
