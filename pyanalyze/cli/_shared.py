"""What every verb that reads captures has in common: options, loading with a progress bar, writing."""

from __future__ import annotations

import functools
import itertools
import math
import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pyanalyze.cli.standard_streams import out, say
from pyanalyze.cli.words import Choice, ModePattern
from pyanalyze.text.numbers import MOST_PID, MOST_THREADS, bounded_float, bounded_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyanalyze.analysis.advice import DeviceAdvice
    from pyanalyze.session import Session
    from pyanalyze.tables.redact import Names


_F = TypeVar("_F", bound="Callable[..., Any]")

#: What a folder of captures holds.
_CAPTURES = (".sqlite", ".nsys-rep", ".qdrep")
#: Options that name files to write.
_WRITTEN = ("output", "junit", "names")


class Number(click.ParamType[float]):
    """A finite number within bounds: nan and inf compare with nothing."""

    name = "float"

    def __init__(self, least: float = -math.inf, most: float = math.inf) -> None:
        self._bounds = (least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        number = bounded_float(value, *self._bounds)
        if number is None:
            least, most = self._bounds
            span = "" if self._bounds == (-math.inf, math.inf) else f" from {least:g} to {most:g}"
            self.fail(f"{str(value)[:40]!r} is not a finite number{span}", param, ctx)
        return number


class TenantName(click.ParamType["tuple[str, int | Path]"]):
    """NAME=PID or NAME=CAPTURE."""

    name = "NAME=PID|CAPTURE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int | Path]:
        """Split at the first equals sign before which there is a name: paths may hold more of them."""
        if isinstance(value, tuple):
            return value
        name, equals, who = str(value).partition("=")
        if not equals or not name or not who:
            self.fail(f"{value!r} is not NAME=PID or NAME=CAPTURE, such as service=4711", param, ctx)
        if who.isdigit() and who.isascii():
            pid = bounded_int(who, 0, MOST_PID)
            if pid is None:
                self.fail(f"{name}={who[:20]}...: no process has such a number", param, ctx)
            return name, pid
        if not Path(who).exists():
            self.fail(f"{value!r}: {who} is neither a pid nor an existing capture", param, ctx)
        return name, Path(who)


#: What endings of files say of their format; a table is plain text.
_ENDINGS = {
    ".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json", ".csv": "csv", ".txt": "txt",
}  # fmt: skip
_TABLE_ENDING = "txt"


#: The name of standard output, for -o.
_STDOUT = Path("-")
#: Whether -o named it: a key of click's context.
_SAID_STDOUT = "pyanalyze.standard-output"


def _format_of(output: Path | None, formats: tuple[str, ...], default: str) -> str:
    """The format that was not asked for by name: as the output ends, else the usual one of the verb."""
    # What is no ordinary file (a pipe, a terminal, the null device) has no ending to go by.
    if output is None or not output.suffix or (output.exists() and not output.is_file()):
        return default
    said = _ENDINGS.get(output.suffix.lower(), "")
    if said == "txt" and said not in formats:
        said = "table"
    if said in formats:
        return said
    if output.exists():
        # What would be lost weighs more than its name.
        refuse_read(output)
    known = ", ".join(f".{_TABLE_ENDING if one == 'table' else one}" for one in formats)
    ends = f"{output} ends in {output.suffix}, which this command does not write"
    raise click.UsageError(f"{ends}; let it end in one of {known}, or name the format with -f")


def said_stdout() -> bool:
    """Whether -o - asked for standard output by name."""
    return bool(click.get_current_context().meta.get(_SAID_STDOUT))


class OutputFile(click.Path):
    """A file to write, of a verb that cannot write to standard output."""

    def __init__(self, *, folders: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=folders)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the name of standard output."""
        if str(value) == str(_STDOUT):
            self.fail("this command cannot write to standard output; name a file", param, ctx)
        return super().convert(value, param, ctx)


def output_options(formats: tuple[str, ...], default: str = "table") -> Callable[[_F], _F]:
    """Add -f, -o and --force to a verb; it is given `fmt`, `output` and `force`."""

    def add(verb: _F) -> _F:
        @functools.wraps(verb)
        def run(*arguments: Any, fmt: str | None, output: Path | None, **options: Any) -> Any:
            if output == _STDOUT:
                click.get_current_context().meta[_SAID_STDOUT] = True
                output = None
            fmt = fmt or _format_of(output, formats, default)
            return verb(*arguments, fmt=fmt, output=output, **options)

        function = cast("_F", run)
        for option in (
            click.option("--force", is_flag=True, help="Replace an existing output."),
            click.option(
                "-o",
                "--output",
                type=click.Path(path_type=Path, dir_okay=False),
                help="Output file, or - for standard output, the default.",
            ),
            click.option(
                "-f",
                "--format",
                "fmt",
                type=Choice(formats),
                help=f"[default: {default}, or by the ending of FILE]",
            ),
        ):
            function = option(function)
        return function

    return add


def memory_option(function: _F) -> _F:
    """Add --memory to a verb that reads captures."""
    text = "Memory budget, such as 2GB; default: most of the available memory."
    return click.option("--memory", metavar="SIZE", help=text)(function)


def capture_options(function: _F) -> _F:
    """Add CAPTURE... and the options of every verb that reads captures; `open_session` takes what they give."""
    # Whether a file can be read is for the readers to say: one message, one exit code for all that cannot.
    file = click.Path(path_type=Path, readable=False)
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
        click.option("--threads", type=click.IntRange(min=1), help="Number of CPUs; default: all."),
        memory_option,
        click.option(
            "--redact",
            is_flag=True,
            help="Replace names of processes, kernels, containers, hosts and files by numbers; those of --tenant stay.",
        ),
        click.option("--detail", is_flag=True, help="Add arrays of intervals to JSON."),
        click.option("--around", metavar="TIME[/LENGTH]", help="Only LENGTH (default 1s) around TIME."),
        click.option("--end", metavar="TIME", help="Only up to TIME."),
        click.option("--start", metavar="TIME", help="Only from TIME: 1s200ms as nsys shows it, or RFC 3339."),
        click.option("--gpu", type=click.IntRange(min=0), help="Only this GPU, by the number `info` gives it."),
        click.option("--keep-going", is_flag=True, help="Continue when one of several captures cannot be read."),
        click.option("--strict", is_flag=True, help="Exit 3 when no reader knows a samples or context file."),
        click.option(
            "--tenant",
            "tenants",
            multiple=True,
            type=TenantName(),
            help="Name a process, by pid or by its own capture (repeatable).",
        ),
        click.option(
            "--blocks",
            multiple=True,
            type=file,
            help="Measured blocks of the kernels: SM, start, end (repeatable).",
        ),
        click.option("--context", multiple=True, type=file, help="nvidia-smi -L, MPS, kubectl JSON (repeatable)."),
        click.option("--samples", multiple=True, type=file, help="nvidia-smi, DCGM, Prometheus (repeatable)."),
        # None with --samples: samples without a capture answer what they can.
        click.argument("captures", nargs=-1, type=file),
    ):
        function = option(function)
    return function


def by_option(function: _F) -> _F:
    """Add --by to a verb that speaks of tenants."""
    text = "What makes a tenant: process, stream, context, nvtx[=DOMAIN], kernel=REGEX[,REGEX...], comms."
    return click.option("--by", metavar="WHAT", default="process", help=text)(function)


def work_option(function: _F) -> _F:
    """Add --work to a verb that speaks of units of work."""
    text = (
        "Units of work: CSV with tenant,start,end and optionally name; times as for --start. With samples "
        "and no capture: time,latency_ms and optionally tenant."
    )
    return click.option("--work", type=click.Path(path_type=Path, readable=False), help=text)(function)


def baseline_options(function: _F) -> _F:
    """Add --baseline and --work to a verb that speaks of slowdowns."""
    for option in (
        work_option,
        click.option(
            "--baseline",
            "baselines",
            multiple=True,
            metavar="[NAME=]FILE",
            help="A solo recording of a tenant (repeatable).",
        ),
    ):
        function = option(function)
    return function


def verb(
    name: str,
    formats: tuple[str, ...],
    default: str = "table",
    *,
    reconstruct: bool = True,
    slowdowns: bool = False,
    late_tables: bool = False,
    by: bool = True,
) -> Callable[[Callable[..., str]], click.Command]:
    """Make a verb that reads captures out of a function from (session, format) to text.

    Adds CAPTURE... and the shared options, loads with a progress bar, refuses an existing output before the work,
    and writes the text whole or not at all. The function's first docstring line is the verb's help.
    """

    def make(function: Callable[..., str]) -> click.Command:
        @click.command(name, help=function.__doc__)
        @capture_options
        @expect_option
        @output_options(formats, default)
        def command(
            fmt: str, output: Path | None, *, force: bool, expect_mode: tuple[str, ...], **options: Any
        ) -> None:
            from pyanalyze.inputs.nsys_export import importing
            from pyanalyze.tables.frames import ON_REQUEST

            refuse_existing(output, force=force)
            # What needs the calls of the host reads them with the rest: the file is opened once.
            late = ON_REQUEST if slowdowns or late_tables else ()
            limit_threads(options["threads"])
            # Plugins of pydantic are for programs that want them: to look for them opens a file of every package that
            # is installed.
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
            # What puts an answer together takes a while to import: that is done while the core works.
            with importing("pyanalyze.report.build") if reconstruct else nullcontext():
                session = open_session(**options, reconstruct=reconstruct or bool(expect_mode), extra_tables=late)
            emit(function(session, fmt), output, force=force, tenants=tenants_of(session, fmt, known=reconstruct))
            require_mode(session, expect_mode)

        with_by = by_option(command) if by else command
        return baseline_options(with_by) if slowdowns else with_by

    return make


def expect_option(function: _F) -> _F:
    """Add --expect-mode to a verb; `require_mode` looks at it after the answer was printed."""
    text = "Exit 1 unless every GPU shows this mode (repeatable; mps* for several), 4 if the mode is not known."
    return click.option("--expect-mode", multiple=True, type=ModePattern(), help=text)(function)


def require_mode(session: Session, expected: tuple[str, ...]) -> None:
    """End with the exit code of `check --expect-mode`, and say on standard error what was not as expected."""
    if not expected:
        return
    checked = session.check(expect_mode=expected)
    if checked.exit_code:
        first, *rest = str(checked).split("\n")
        say(first)
        for line in rest:
            say(line, of="")
        click.get_current_context().exit(checked.exit_code)


def limit_threads(threads: int | None) -> None:
    """Use at most so many processors in this process, Rust and polars included; call before polars is imported."""
    if threads is None:
        return
    # What counts processors (the readers in Rust) counts those that the process may run on. More are not started.
    if hasattr(os, "sched_setaffinity"):
        chosen = sorted(os.sched_getaffinity(0))[:threads]
        os.sched_setaffinity(0, chosen)
        threads = len(chosen)
    os.environ["POLARS_MAX_THREADS"] = str(min(threads, MOST_THREADS))


def open_session(
    captures: tuple[Path, ...],
    samples: tuple[Path, ...] = (),
    context: tuple[Path, ...] = (),
    tenants: tuple[tuple[str, int | Path], ...] = (),
    *,
    blocks: tuple[Path, ...] = (),
    baselines: tuple[str, ...] = (),
    work: Path | None = None,
    keep_going: bool = False,
    strict: bool = False,
    quiet: bool = False,
    extra_tables: tuple[str, ...] = (),
    gpu: int | None = None,
    start: str | None = None,
    end: str | None = None,
    around: str | None = None,
    detail: bool = False,
    redact: bool | Names = False,
    threads: int | None = None,
    memory: str | None = None,
    reconstruct: bool = True,
    by: str = "process",
) -> Session:
    """Load captures with a progress bar that is only there for people, and cut them to what was asked for."""
    limit_threads(threads)
    if around is not None and (start is not None or end is not None):
        raise click.UsageError("--around sets both ends: use it alone, or use --start and --end")
    from dataclasses import replace

    from pyanalyze.session import load
    from pyanalyze.tables.frames import ANALYSIS_TABLES

    with ProgressBar(quiet=quiet) as report:
        session = load(
            captures,
            samples=samples,
            context=context,
            baselines=baselines,
            work=work,
            blocks=blocks,
            tenants=dict(tenants),
            tables=(*ANALYSIS_TABLES, *extra_tables),
            # What is cut is reconstructed anew, from what held at its edges.
            reconstruct=reconstruct or (gpu, start, end, around) != (None,) * 4,
            keep_going=keep_going,
            strict=strict,
            memory=memory,
            progress=report,
        )
    if session.failures:
        for failure in session.failures:
            say(f"left out {failure.path}: {failure.error}")
    if gpu is not None:
        session = session.only_gpu(gpu)
    if around is not None:
        from pyanalyze.text.times import around_ns

        session = session.window(*around_ns(around, session.capture["utc_origin_ns"][0]))
    elif start is not None or end is not None:
        session = session.window(start, end)
    if session.selection.narrowed:
        for name in session.absent():
            say(f"--tenant {name}: no such tenant in the chosen time or on the chosen GPU")
    session = session.by(by)
    if redact:
        session = session.redacted(None if redact is True else redact)
    return replace(session, detail=True) if detail else session


#: What is being done, by the name that the core gives to a pass.
_PHASES = {
    "attribution": "attributing GPU time",
    "calls": "looking at CUDA calls",
    "explain": "explaining units of work",
    "facts": "collecting evidence",
    "inferred residency": "inferring residency",
    "join": "joining captures",
    "kernel occupancy": "computing occupancy limits",
    "latencies": "measuring latencies",
    "launch records": "counting launches",
    "launches": "matching launches",
    "operations": "comparing tenants",
    "overlap": "measuring overlap",
    "perfetto": "writing the trace",
    "placement": "placing blocks on SMs",
    "programs": "reading host programs",
    "replay": "forecasting other configurations",
    "residency": "reconstructing residency",
    "residency summary": "summing residency",
    "slowdowns": "measuring slowdowns",
    "streams": "comparing streams",
    "tenants": "summing by tenant",
    "timeline": "drawing the timeline",
}


def phase(stage: str) -> str:
    """What is being done, in words; a table of an export is read.

    Examples
    --------
    >>> phase("residency"), phase("GPU_CONTEXT_SWITCH_EVENTS"), phase("exporting a report")
    ('reconstructing residency', 'reading GPU context switch events', 'exporting a report')
    """
    if stage in _PHASES or "_" not in stage:
        return _PHASES.get(stage, stage)
    # What follows the last word that all such tables share.
    words = stage.rpartition("_KIND_")[2].replace("_", " ").lower()
    return f"reading {words.replace('gpu', 'GPU').replace('nvtx', 'NVTX')}"


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
            self._task = self._bar.add_task(phase(stage), total=None, count="")
        count = f"{done:,} / {total:,}" if total else f"{done:,}" if done else ""
        self._bar.update(self._task, description=phase(stage), count=count)


def answer(
    session: Session, verb: str, sections: tuple[str, ...], fmt: str, advice: Sequence[DeviceAdvice] | None = None
) -> str:
    """Show some sections of the report as text, or the verb's part of it as JSON.

    Where nothing is advised, what has to be recorded first depends on whose slowdown is known.
    """
    from pyanalyze.cli.schemas import SHOWN, part_of
    from pyanalyze.report.build import assemble
    from pyanalyze.vocabulary import Part

    parts = SHOWN[verb].parts
    if any(not one.actions for one in advice or ()):
        parts |= {Part.INTERFERENCE}
    report = assemble(session.analysis, advice, detail=session.detail, parts=parts)
    if fmt == "json":
        import json

        return json.dumps(part_of(report, verb), indent=2)
    from pyanalyze.report.text import render_text

    kernels = session.analysis.launch_configurations if "occupancy" in sections else None
    return render_text(report, kernels, sections=sections, width=table_width())


def table_width() -> int:
    """Columns of a table: those of the terminal, if there is one."""
    from pyanalyze.cli.colour import terminal_columns
    from pyanalyze.report.text import TABLE_WIDTH

    return terminal_columns() or TABLE_WIDTH


def coloured() -> bool:
    """Whether what goes to standard output may have colours."""
    from pyanalyze.cli.colour import NO_COLOUR, is_wanted

    context = click.get_current_context(silent=True)
    return is_wanted(refused=context is not None and bool(context.meta.get(NO_COLOUR)))


def tenants_of(session: Session, fmt: str, *, known: bool = True) -> tuple[str, ...] | None:
    """Names of the tenants, the largest first, where colours are wanted; None: this is no text for people.

    `known`: who they are was found out anyway.
    """
    if fmt not in ("table", "txt") or not coloured():
        return None
    if not known:
        return ()
    from pyanalyze.text.visible import visible

    usage = session.tenant_usage.sort("busy_ns", descending=True, nulls_last=True)
    labels = {number: session.labels(number) for number in usage["device_id"].unique().to_list()}
    who = usage.select("device_id", "tenant_id").rows()
    return tuple(dict.fromkeys(visible(labels[device][tenant]) for device, tenant in who))


def emit(text: str, output: Path | None, *, force: bool, tenants: Sequence[str] | None = None) -> None:
    """Write to a file (whole or not at all) or to standard output; with colours where the tenants are named."""
    # What needed more than it was given is not shown as if it had not. `record`, `now` and `doctor` read no capture and
    # do without what is compiled.
    if "pyanalyze.tables.memory" in sys.modules:
        sys.modules["pyanalyze.tables.memory"].check()
    if output is None:
        out(text, tenants if tenants is not None and coloured() else None)
        return
    from pyanalyze.files import write_whole
    from pyanalyze.text.visible import printable

    write_whole(output, printable(text if text.endswith("\n") else text + "\n"), force=force)
    say(f"wrote {output}", of="")


def refuse_existing(output: Path | None, *, force: bool) -> None:
    """Refuse before the work, not after it; what the call reads, also with --force."""
    if output is None or not output.exists():
        return
    refuse_read(output)
    if not force:
        from pyanalyze.errors import OutputExists

        raise OutputExists(f"{output} exists; give --force to replace it, or another -o")


def refuse_same(**outputs: Path | None) -> None:
    """Refuse to write two things into one file, or over a key: the second would destroy the first."""
    from pyanalyze.errors import UsageError

    places: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None or (path.exists() and not path.is_file()):
            # Devices and pipes take one thing after the other.
            continue
        other = places.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"--{option} and --{other} are one file, {path}: give each a file of its own")


def refuse_read(output: Path) -> None:
    """Refuse to write over a file that the running verb was given to read: a capture is not made twice."""
    from pyanalyze.errors import UsageError

    context = click.get_current_context(silent=True)
    options = {} if context is None else context.params
    given = [value for name, value in options.items() if name not in _WRITTEN]
    for path in itertools.chain.from_iterable(map(_paths, given)):
        with suppress(OSError):
            inside = path.is_dir() and output.suffix in _CAPTURES and output.parent.samefile(path)
            if inside or (output.is_file() and path.samefile(output)):
                raise UsageError(f"{output} is an input; writing there would destroy it: choose another output")


def _paths(value: Any) -> Iterator[Path]:
    """Paths among the values of options, in lists too, and as `NAME=PATH`."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from [Path(one.partition("=")[2] or one)] if isinstance(one, str) else _paths(one)


def csv_of(rows: list[dict[str, Any]], columns: Sequence[str] = ()) -> str:
    """Rows as CSV with a header; text that a spreadsheet would execute or a terminal hide is made plain.

    Without rows the header is `columns`.
    """
    import csv
    import io

    from pyanalyze.text.escape import csv_cell

    made = io.StringIO()
    writer = csv.DictWriter(made, fieldnames=list(rows[0]) if rows else columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)
    return made.getvalue()
