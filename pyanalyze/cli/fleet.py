"""`pyanalyze fleet`: many captures at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pyanalyze.cli._shared import ProgressBar
from pyanalyze.cli.standard_streams import out, say
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyanalyze.fleet import Fleet
    from pyanalyze.fleet.summary import DeviceRow

_F = Any


def worker_options(function: _F) -> _F:
    """Add the options of every verb that uses several workers."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
        click.option("--force", is_flag=True, help="Ignore the result cache: analyse all captures again."),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Memory of all workers together, such as 8GB; default: most of the available memory.",
        ),
        click.option("--threads", type=click.IntRange(min=1), help="CPUs of all workers together."),
        click.option("--workers", type=click.IntRange(min=1), help="Number of workers; default: the available CPUs."),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="A Dask cluster: tcp://HOST:PORT, the file of a scheduler, or `local` for one of this machine.",
        ),
        click.option(
            "-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write."
        ),
    ):
        function = option(function)
    return function


@click.command("fleet")
@click.argument("captures", nargs=-1, required=True)
@click.option(
    "--context",
    multiple=True,
    type=click.Path(path_type=Path, readable=False),
    help="Configuration of all captures (repeatable).",
)
@click.option("--pictures", is_flag=True, help="Add charts to the reports: some seconds and a megabyte each.")
@worker_options
def command(captures: tuple[str, ...], output: Path, *, memory: str | None, quiet: bool, **options: Any) -> int:
    """Analyse many captures, each once; captures of one GPU at one time are analysed together.

    CAPTURES are files, folders (without what is in folders inside), or quoted patterns such as
    'captures/**/*.sqlite'. Writes index.html (open it first), fleet.json, fleet.csv, fleet.prom (alerts), check.jsonl
    (`pyanalyze check OUT`), tables/ (Parquet) and groups/NAME/report.html; run it again to do only what changed, or to
    go on after Ctrl-C. A capture that fails is reported and does not stop the others; the exit code is that of the
    worst.
    """
    from pyanalyze.export.write import naming
    from pyanalyze.fleet import analyse
    from pyanalyze.fleet.plan import left_beside
    from pyanalyze.text.escape import visible

    with ProgressLine(quiet=quiet) as report, naming(output):
        fleet = analyse(captures, output, memory=memory, progress=report, **options)
    for failure in fleet.failures:
        say(failure.message)
    out(_table(fleet))
    if not quiet and (beside := left_beside(captures)):
        names = fmt.names([visible(str(path), limit=None) for path in beside], 3)
        several = len(beside) > 1
        say(f"not read: {names} {'are no captures' if several else 'is no capture'}; give samples to `pyanalyze`")
    return fleet.exit_code


class ProgressLine:
    """Progress with rate and remaining time: a bar on a terminal, a line now and then elsewhere, nothing if quiet."""

    #: Seconds between lines where nobody watches: a log, not a film.
    EVERY_S = 30.0

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._bar = ProgressBar(quiet=quiet)
        self._show: Callable[[str, int, int], object] | None = None
        self._stage = ""
        self._began = self._told = clock()

    def __enter__(self) -> Callable[[str, int, int], object] | None:
        """Return the callback, or None when nobody wants to know."""
        self._show = self._bar.__enter__()
        return None if self._quiet else self._report

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._bar.__exit__()

    def _report(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if stage != self._stage:
            self._stage, self._began = stage, now
        text = stage + rate(done, total, now - self._began)
        if self._show is not None:
            self._show(text, done, total)
        elif now - self._told >= self.EVERY_S:
            self._told = now
            say(f"{text}: {done:,} of {total:,}")


def rate(done: int, total: int, seconds: float) -> str:
    """How fast it goes and how long it will take, in words.

    Examples
    --------
    >>> rate(30, 120, 10.0), rate(0, 5, 1.0)
    (' (3.0/s, 30 s left)', '')
    """
    if done < 1 or seconds <= 0:
        return ""
    rate = done / seconds
    left = round((total - done) / rate)
    hours, minutes = left // 3600, left % 3600 // 60
    words = f"{hours} h {minutes} min" if hours else f"{minutes} min" if left >= 100 else f"{left} s"
    return f" ({rate:.1f}/s, {words} left)" if rate >= 1 else f" ({1 / rate:.1f} s each, {words} left)"


def worst_words(row: DeviceRow) -> str:
    """The largest slowdown of each kind on a GPU: of whom, how it is known; a value that is its own bound says so."""
    from pyanalyze.text.escape import visible

    if row.worst_slowdown is None:
        why = "" if row.slowdown_missing is None else f": {visible(row.slowdown_missing, limit=None)}"
        return f"slowdown not known{why}"
    said = _slowdown_words(row, "worst")
    if row.worst_slowdown_kind is None:
        return f"slowdown {said}"
    other = "latency" if row.worst_slowdown_kind == "elapsed" else "elapsed"
    told = "not known" if row.other_slowdown is None else _slowdown_words(row, "other")
    return f"{row.worst_slowdown_kind} {said}; {other} {told}"


def _slowdown_words(row: DeviceRow, which: Literal["worst", "other"]) -> str:
    """One of the two slowdowns of a row, of whom it is, and its interval."""
    from pyanalyze.text.escape import visible

    one: dict[str, Any] = {
        key: getattr(row, f"{which}_slowdown{key}") for key in ("", "_low", "_high", "_n", "_basis", "_tenant")
    }
    value, low, high = one[""], one["_low"], one["_high"]
    bound = "at least " if low == value and high is None else "at most " if high == value and low != value else ""
    between = ""
    if not bound and low is not None and high is not None and low != high:
        between = f"{fmt.interval(low, high, basis=one['_basis'] or '')}, "
    whose = "" if one["_tenant"] is None else f" of {visible(one['_tenant'], limit=None)}"
    known = "" if one["_basis"] is None else f", {one['_basis']}"
    n = "" if one["_n"] is None else f" ({between}n = {one['_n']})"
    return f"{bound}{fmt.ratio(value)}{whose}{known}{n}"


def _table(fleet: Fleet) -> str:
    from pyanalyze.fleet.summary import held_words, reasons
    from pyanalyze.text.escape import visible
    from pyanalyze.vocabulary import unless

    lines = []
    attention = {(one.group, one.device_id) for one in fleet.summary.attention}
    shown = sorted(fleet.rows, key=lambda row: (row.group, row.device_id) not in attention)
    for row in shown[:_MOST_LINES]:
        # The slowdown stands there already.
        named = {**reasons(row, fleet.summary.slowdown)}
        named.pop("slowdown", None)
        why = list(named.values())
        why.append(held_words(row))
        lines.append(
            f"{visible(row.group, limit=None)}, GPU {row.device_id}: {row.mode} "
            f"{fmt.certainty(row.basis, row.confidence)}{unless(row.condition, row.mode)}; "
            f"{'; '.join([fmt.counted(row.tenants, 'tenant'), worst_words(row), *map(visible, filter(None, why))])}"
        )
    if len(shown) > _MOST_LINES:
        lines.append(f"... and {len(shown) - _MOST_LINES:,} more, outliers first: see index.html")
    lines.extend(
        f"{visible(group.name, limit=None)}: no activity on any GPU"
        for group in fleet.summary.groups[:_MOST_LINES]
        if not group.devices
    )
    lines.extend(
        f"left out {visible(one.path, limit=None)}: {one.why} as {visible(one.of, limit=None)}"
        for one in fleet.summary.duplicates[:_MOST_LINES]
    )
    lines.append(visible(fleet.summary.line, limit=None))
    lines.append(
        f"{fmt.counted(len(fleet.summary.groups), 'group')}: {fleet.analysed} analysed, "
        f"{fleet.reused} from the result cache; "
        f"{len(fleet.failures)} failed: {visible(str(fleet.output), limit=None)}"
    )
    return "\n".join(lines)


#: Lines of each kind that a terminal is given.
_MOST_LINES = 50
