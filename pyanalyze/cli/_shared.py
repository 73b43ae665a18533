"""What every verb that reads captures has in common: options, loading with a progress bar, writing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyanalyze.session import Session


_F = TypeVar("_F", bound="Callable[..., Any]")


class TenantName(click.ParamType[tuple[str, int]]):
    """NAME=PID."""

    name = "NAME=PID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Split at the last equals sign."""
        if isinstance(value, tuple):
            return value
        name, equals, pid = str(value).rpartition("=")
        if not equals or not name or not pid.isdigit():
            self.fail(f"{value!r} is not NAME=PID, such as service=4711", param, ctx)
        return name, int(pid)


def output_options(formats: tuple[str, ...], default: str = "table") -> Callable[[_F], _F]:
    """Add -f, -o and --force to a verb."""

    def add(function: _F) -> _F:
        for option in (
            click.option("--force", is_flag=True, help="Replace an existing output."),
            click.option(
                "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Else standard output."
            ),
            click.option("-f", "--format", "fmt", type=click.Choice(formats), default=default, show_default=True),
        ):
            function = option(function)
        return function

    return add


def capture_options(function: _F) -> _F:
    """Add CAPTURE... and the options of every verb that reads captures."""
    # Whether a file can be read is for the readers to say: one message, one exit code for all that cannot.
    file = click.Path(path_type=Path, readable=False)
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
        click.option("--keep-going", is_flag=True, help="Go on when one of several captures cannot be read."),
        click.option("--tenant", "tenants", multiple=True, type=TenantName(), help="Name a process (repeatable)."),
        click.option("--context", multiple=True, type=file, help="nvidia-smi -L, MPS, kubectl JSON (repeatable)."),
        click.option("--samples", multiple=True, type=file, help="nvidia-smi, DCGM, Prometheus (repeatable)."),
        # None with --samples: samples alone answer what they can.
        click.argument("captures", nargs=-1, type=file),
    ):
        function = option(function)
    return function


def baseline_options(function: _F) -> _F:
    """Add --baseline and --work to a verb that speaks of slowdowns."""
    for option in (
        click.option(
            "--work", type=click.Path(path_type=Path, readable=False), help="Units of work: CSV of tenant,start,end."
        ),
        click.option(
            "--baseline",
            "baselines",
            multiple=True,
            metavar="[NAME=]FILE",
            help="A tenant recorded alone (repeatable).",
        ),
    ):
        function = option(function)
    return function


def verb(
    name: str, formats: tuple[str, ...], default: str = "table", *, reconstruct: bool = True, slowdowns: bool = False
) -> Callable[[Callable[..., str]], click.Command]:
    """Make a verb that reads captures out of a function from (session, format) to text.

    Adds CAPTURE... and the shared options, loads with a progress bar, refuses an existing output before the work,
    and writes the text whole or not at all. The function's first docstring line is the verb's help.
    """

    def make(function: Callable[..., str]) -> click.Command:
        @click.command(name, help=function.__doc__)
        @capture_options
        @output_options(formats, default)
        def command(fmt: str, output: Path | None, *, force: bool, **options: Any) -> None:
            refuse_existing(output, force=force)
            emit(function(open_session(**options, reconstruct=reconstruct), fmt), output, force=force)

        return baseline_options(command) if slowdowns else command

    return make


def open_session(
    captures: tuple[Path, ...],
    samples: tuple[Path, ...] = (),
    context: tuple[Path, ...] = (),
    tenants: tuple[tuple[str, int], ...] = (),
    *,
    baselines: tuple[str, ...] = (),
    work: Path | None = None,
    keep_going: bool = False,
    quiet: bool = False,
    extra_tables: tuple[str, ...] = (),
    reconstruct: bool = True,
) -> Session:
    """Load captures with a progress bar that is only there for people."""
    from pyanalyze.loading import ANALYSIS_TABLES, load

    with ProgressBar(quiet=quiet) as report:
        session = load(
            captures,
            samples=samples,
            context=context,
            baselines=baselines,
            work=work,
            tenants=dict(tenants),
            tables=(*ANALYSIS_TABLES, *extra_tables),
            reconstruct=reconstruct,
            keep_going=keep_going,
            progress=report,
        )
    for failure in session.failures:
        click.echo(f"pyanalyze: left out {failure.path}: {failure.error}", err=True)
    return session


class ProgressBar:
    """A progress bar on standard error, shown after a moment and only on a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet or not sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Callable[[str, int, int], object] | None:
        """Return the callback, or None when nobody watches."""
        return None if self._quiet else self._report

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TextColumn("{task.fields[count]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(stage, total=None, count="")
        count = f"{done:,} / {total:,}" if total else f"{done:,}" if done else ""
        self._bar.update(self._task, description=stage, count=count)


def answer(session: Session, sections: tuple[str, ...], keys: set[str], fmt: str) -> str:
    """Show some sections of the report as text, or some keys of its devices as JSON."""
    report = session.report()
    if fmt == "json":
        import json

        whole = report.to_dict()
        devices = [{key: value for key, value in device.items() if key in keys} for device in whole["devices"]]
        return json.dumps({"schema": whole["schema"], "clock": whole["clock"], "devices": devices}, indent=2)
    from pyanalyze.report.text import render_text

    return render_text(report, session.kernel_occupancy, sections=sections)


def emit(text: str, output: Path | None, *, force: bool) -> None:
    """Write to a file (whole or not at all) or to standard output."""
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    from pyanalyze._files import write_whole

    write_whole(output, text if text.endswith("\n") else text + "\n", force=force)
    click.echo(f"wrote {output}", err=True)


def refuse_existing(output: Path | None, *, force: bool) -> None:
    """Refuse before the work, not after it."""
    if output is not None and output.exists() and not force:
        from pyanalyze.exceptions import OutputExists

        raise OutputExists(f"{output} exists; give --force to replace it, or another -o")


def csv_of(rows: list[dict[str, Any]]) -> str:
    """Rows as CSV with a header."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["nothing"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
