"""The command line: one file per verb, an explicit list, heavy imports inside the verbs.

`pyanalyze CAPTURE...` without a verb prints the first screen.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli.colour import NO_COLOUR
from pyanalyze.cli.standard_streams import open_closed, out, say
from pyanalyze.text.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: verb -> (module, one line for --help). A new verb is one file and one line here.
VERBS: dict[str, tuple[str, str]] = {
    "summary": (
        "pyanalyze.cli.summary",
        "Mode, GPU time, slowdown, cause and advice in at most 15 lines (also without its name).",
    ),
    "info": ("pyanalyze.cli.info", "Contents of the capture: versions, data quality, what is not available."),
    "kernels": ("pyanalyze.cli.kernels", "GPU time by kernel name, without loading the rest."),
    "classify": ("pyanalyze.cli.classify", "Sharing mode of each GPU, with evidence and alternatives."),
    "residency": ("pyanalyze.cli.residency", "GPU time per tenant, and the cost of context switches."),
    "occupancy": ("pyanalyze.cli.occupancy", "SM occupancy, by tenant and kernel (modelled)."),
    "streams": ("pyanalyze.cli.streams", "Whether streams of one process overlap, and why not."),
    "interference": ("pyanalyze.cli.interference", "Slowdown of each tenant, its aggressors and its causes."),
    "advise": ("pyanalyze.cli.advise", "What to change: commands, expected gain, risk, undo."),
    "explain": ("pyanalyze.cli.explain", "The slowest units of work, such as requests, and why each was slow."),
    "compare": ("pyanalyze.cli.compare", "Compare two runs: equal work, and where the change came from."),
    "check": ("pyanalyze.cli.check", "A gate for CI: thresholds in, exit code out; JUnit, GitHub annotations."),
    "report": ("pyanalyze.cli.report", "Everything in one file: html, md, json or txt."),
    "fleet": ("pyanalyze.cli.fleet", "Analyse many captures in parallel; a rerun analyses only what changed."),
    "study": ("pyanalyze.cli.study", "A labelled experiment: estimates over runs, mislabelled runs first."),
    "now": ("pyanalyze.cli.now", "The current state of this machine's GPUs, without nsys."),
    "record": ("pyanalyze.cli.record", "Run a command and sample the GPUs meanwhile."),
    "doctor": ("pyanalyze.cli.doctor", "What this machine can capture, and how to fix what it cannot."),
    "export": ("pyanalyze.cli.export", "Tables as parquet, arrow, csv or sqlite; a trace for Perfetto."),
    "pack": ("pyanalyze.cli.pack", "A small file to share: what was read, with pseudonyms for names."),
    "schema": ("pyanalyze.cli.schema", "The JSON Schema of the report; --tables describes the tables."),
    "completion": ("pyanalyze.cli.completion", "Shell completion of commands, options and files (bash, zsh, fish)."),
}

#: Groups of verbs, as help lists them: each verb is in one.
GROUPS: dict[str, tuple[str, ...]] = {
    "Analyse": (
        "summary", "info", "kernels", "classify", "residency", "occupancy", "streams", "interference", "advise",
        "explain",
    ),
    "Share": ("report", "export", "pack"),
    "Compare": ("compare", "check"),
    "Scale": ("fleet", "study"),
    "Capture": ("now", "record", "doctor"),
    "Other": ("schema", "completion"),
}  # fmt: skip

#: Groups of the options that verbs share, by the name of the parameter; other options are a verb's own.
SHARED_OPTIONS: dict[str, tuple[str, ...]] = {
    "Input": ("samples", "context", "baselines", "work", "blocks", "tenants", "by", "strict", "keep_going"),
    "Part of the capture": ("gpu", "start", "end", "around"),
    "Output": ("fmt", "output", "force", "detail", "redact", "expect_mode"),
    "Run": ("threads", "memory", "quiet", "no_color", "debug", "help"),
}

EPILOG = (
    "Exit codes: 0 done, 1 a gate failed, 2 wrong usage or the output exists, 3 a capture is missing or "
    "unreadable, 4 inconclusive, 70 internal error (--debug shows the traceback), 130, 143 or 129 stopped by "
    "Ctrl-C, SIGTERM or SIGHUP. An "
    "undetermined verdict is an answer: 0."
)

#: As sysexits.h has it (EX_SOFTWARE); 1 would say that a gate failed.
INTERNAL_ERROR = 70


@dataclass
class Asked:
    """Options of the program itself; the object of click's context."""

    debug: bool = False


def _remember_no_colour(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001  # click calls it so
    if asked:
        ctx.meta[NO_COLOUR] = True


def _colour_option(*, hidden: bool) -> click.Option:
    """`--no-color`: for the program, and where the call of a verb ends."""
    text = "No colours; nor are there where NO_COLOR is set or the output is no terminal."
    return click.Option(
        ["--no-color"], is_flag=True, expose_value=False, hidden=hidden, callback=_remember_no_colour, help=text
    )


def _remember_debug(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001  # click calls it so
    about = ctx.find_object(Asked)
    if asked and about is not None:
        about.debug = True


def _debug_option(*, hidden: bool) -> click.Option:
    """`--debug`: shown for the program, and taken where the call of a verb ends, too."""
    text = "Show the traceback of an internal error."
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, hidden=hidden, callback=_remember_debug, help=text
    )


class Verb(click.Command):
    """A verb with its help in groups: what is its own, what it shares with others, two examples.

    `command` is what its file declares. It is not changed: it may be asked for its own options.
    """

    def __init__(self, command: click.Command) -> None:
        super().__init__(
            command.name,
            callback=command.callback,
            params=[*command.params, _colour_option(hidden=False), _debug_option(hidden=True)],
            help=command.help,
            epilog=command.epilog,
            context_settings=command.context_settings,
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: those of this verb first."""
        # Without captures nothing is shared: all that such a verb has is its own.
        shares = any(parameter.name == "blocks" for parameter in self.params)
        group_of = {name: group for group, names in SHARED_OPTIONS.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {"Options": [], **{group: [] for group in SHARED_OPTIONS}}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Argument):
                # The line of usage names it.
                continue
            name = "help" if "--help" in parameter.opts else str(parameter.name)
            own = not shares or (self.name, name) in _OWN
            record = parameter.get_help_record(ctx)
            if record is not None:
                found["Options" if own else group_of.get(name, "Options")].append(record)
        for group, records in found.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        from pyanalyze.cli.examples import EXAMPLES

        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in EXAMPLES[str(self.name)]:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


#: Options that other verbs share, but that are what these are about.
_OWN = frozenset({
    ("check", "expect_mode"), ("explain", "work"), ("export", "output"), ("interference", "baselines"),
    ("interference", "work"), ("report", "fmt"), ("report", "output"), ("report", "redact"),
})  # fmt: skip


class _Verbs(click.Group):
    """Loads a verb when it is called; takes a first argument that is no verb as a capture."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return Verb(importlib.import_module(VERBS[cmd_name][0]).command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS:
            self._refuse_mistyped(args[0], ctx)
            return "summary", self.get_command(ctx, "summary"), args
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `pyanalyze --samples x.csv run.sqlite`: options before the capture belong to the first screen.
        # Not the words of a recorded command: they are its own.
        if "" in args and args[0] != "record":
            raise click.UsageError("an argument is empty; check the shell variables in the command", ctx)
        before = []
        while args and args[0] in ("--debug", "--no-color"):
            before.append(args[0])
            args = args[1:]
        if args and args[0].startswith("-") and args[0] not in ("--help", "-h", "--version"):
            args = ["summary", *args]
        args = [*before, *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb, VERBS[verb][1]) for verb in verbs])

    @staticmethod
    def _refuse_mistyped(word: str, ctx: click.Context) -> None:
        """Refuse what is no file but nearly a verb, before anything is loaded."""
        # A name with a dot or a slash is a capture that is not there: its reader says so.
        asked = did_you_mean(word, VERBS) if word.replace("-", "_").isidentifier() else ""
        if asked and not os.path.lexists(word):
            raise click.UsageError(f"{word} is neither a command nor a file{asked}", ctx)


def _say_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001  # click calls it so
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        said = version("pyanalyze-gpu")
    except PackageNotFoundError:
        # The recorder is copied to machines where nothing is installed.
        said = "of unknown version: copied, not installed"
    out(f"pyanalyze {said}")
    ctx.exit()


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version, help="Show the version."
)
def cli() -> None:
    """Tell how GPUs were really shared, from Nsight Systems captures.

    CAPTURE is a .sqlite export, a directory of them, or a .nsys-rep. Try: pyanalyze CAPTURE, then
    pyanalyze report CAPTURE -o report.html
    """


cli.params += [_colour_option(hidden=False), _debug_option(hidden=False)]


def main() -> None:
    """Run the command line; shows a traceback only where there is an internal error and --debug asks for it."""
    from pyanalyze.errors import PyanalyzeError
    from pyanalyze.text.numbers import MOST_THREADS, bounded_int

    # Nothing is garbage among the many functions of imported libraries: to look for it takes a seventh of a short
    # command or more, much of that at its end, when everything is given back anyway.
    open_closed()
    gc.set_threshold(200_000)
    atexit.register(gc.freeze)
    asked = Asked()
    threads = os.environ.get("POLARS_MAX_THREADS")
    if threads is not None and bounded_int(threads, 1, MOST_THREADS) is None:
        say("POLARS_MAX_THREADS is not a number from 1 on; unset it, or use --threads")
        sys.exit(2)
    try:
        with _interrupts():
            code = cli.main(standalone_mode=False, obj=asked)
            _check_memory()
    except click.ClickException as error:
        _say_usage(error)
        sys.exit(error.exit_code)
    except Stopped as stopped:
        say("stopped")
        sys.exit(128 + stopped.number)
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        sys.exit(130)
    except PyanalyzeError as error:
        say(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away: that is its right.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        name = str(error.filename or "")
        hint = "check the path, its permissions and the free space on its disk"
        # Only what stands in the place of a verb can have been meant as one.
        unnamed = not any(argument in VERBS for argument in sys.argv[1:])
        if isinstance(error, FileNotFoundError) and name.replace("-", "_").isidentifier() and unnamed:
            hint = f"it is neither a file nor a command; commands are {', '.join(VERBS)}"
        where = f"{name}: " if name else ""
        say(f"{where}{error.strerror or error}; {hint}")
        sys.exit(3)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  # a panic of native code is no Exception
        _say_internal_error(error, debug=asked.debug)
        sys.exit(INTERNAL_ERROR)
    sys.exit(code if isinstance(code, int) else 0)


def _check_memory() -> None:
    """Raise where the command needed more memory than its budget, however it came to its end; say a moment above it."""
    # `record`, `now` and `doctor` read no capture and do without what is compiled.
    if "pyanalyze.tables.memory" in sys.modules:
        memory = sys.modules["pyanalyze.tables.memory"]
        memory.check()
        if passed := memory.account().passed():
            say(passed)


def _say_usage(error: click.ClickException) -> None:
    """Show what click says of wrong usage; what it quotes comes from the command line, names of files among it."""
    import io

    from pyanalyze.text.visible import visible

    told = io.StringIO()
    error.show(told)
    text = told.getvalue()
    # A line end in what is quoted is none of ours; help of the program, where nothing was asked for, quotes nothing.
    if error.message and not isinstance(error, click.exceptions.NoArgsIsHelpError):
        text = text.replace(error.message, visible(error.message, limit=None))
    for line in text.splitlines():
        say(line, of="")


def _say_internal_error(error: BaseException, *, debug: bool) -> None:
    """Name an error that no message was written for in one line; the traceback before it where it was asked for."""
    import traceback

    from pyanalyze.text.visible import visible

    if debug:
        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line, of="")
    told = visible(traceback.format_exception_only(error)[-1].strip(), limit=300)
    todo = "report the traceback above" if debug else "run it again with --debug and report the traceback"
    say(f"internal error: {told}; this is a bug of pyanalyze: {todo}")


#: Packages whose native code panics, aloud, when an interrupt is raised in the Python that it calls.
_PANICS_ALOUD = frozenset({"polars"})


class Stopped(BaseException):
    """A signal asked the command to end; what it began to write is taken away on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _interrupts() -> Iterator[None]:
    """Let whatever ends the verb after Ctrl-C, SIGTERM or SIGHUP be told as that.

    Native code that a signal meets in a callback panics, raises an error of its own, or swallows what is raised. So it
    waits until polars has returned, and what comes of it elsewhere is called what it is. Without a handler SIGTERM and
    SIGHUP would end the process at once, and leave what was half written.
    """
    import signal

    # Ignored: somebody decided so (nohup, a shell without job control). Another handler of SIGTERM is somebody's too.
    handled: dict[int, Any] = {}
    for one, usual in ((signal.SIGINT, None), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
        found = signal.getsignal(one)
        if found == usual or (usual is None and callable(found)):
            handled[one] = found
    if not handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    unraisable = sys.unraisablehook
    pressed = 0
    over = False
    #: So that no interrupt comes from here when the handler is the old one again.
    ending = threading.Lock()

    def interrupt(meant: int, number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        # Which signal the handler stands for, whoever calls it.
        number = meant
        pressed = number
        if over:
            return
        if _inside(_PANICS_ALOUD, frame):
            threading.Thread(target=again, args=(number,), daemon=True).start()
        elif number == signal.SIGINT:
            handled[number](number, frame)
        else:
            raise Stopped(number)

    def again(number: int) -> None:
        time.sleep(0.002)
        with ending:
            if not over:
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def swallowed(what: sys.UnraisableHookArgs) -> None:
        if not issubclass(what.exc_type, (KeyboardInterrupt, Stopped)):
            unraisable(what)

    for number in handled:
        signal.signal(number, functools.partial(interrupt, number))
    sys.unraisablehook = swallowed
    try:
        yield
    except BaseException as error:
        if pressed == signal.SIGINT:
            raise KeyboardInterrupt from error
        if pressed:
            raise Stopped(pressed) from error
        raise
    finally:
        with ending:
            over = True
        sys.unraisablehook = unraisable
        for number, before in handled.items():
            signal.signal(number, before)


def _inside(packages: frozenset[str], frame: FrameType | None) -> bool:
    """Tell whether one of these packages is among the callers of a frame, the frame itself included."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
            return True
        frame = frame.f_back
    return False
