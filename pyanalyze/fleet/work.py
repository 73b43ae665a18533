"""What a worker does with the captures of one group: a pure function of their content, the options and the version.

Nothing is written here. Paths are no part of a result, so that captures that were moved are known: tokens stand for
them, which :func:`named` replaces by where the captures are now.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import CaptureChanged, CaptureUnreadable, UsageError
from pyanalyze.fleet.failures import Failed
from pyanalyze.fleet.plan import NODE, SAMPLES, CaptureProbe, Span, probe, span, stamp
from pyanalyze.tables.frames import ANALYSIS_TABLES
from pyanalyze.text.visible import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Options:
    """What changes a result, besides the captures.

    Attributes
    ----------
    context
        Paths and SHA-256 of files of the configured side, for every group.
    pictures
        Pages hold pictures: some seconds and a megabyte each.
    baselines
        Baselines: name of the tenant (empty: found by its kernels), path, SHA-256.
    tenants
        Names for processes, by pid.
    """

    context: tuple[tuple[str, str], ...] = ()
    pictures: bool = False
    baselines: tuple[tuple[str, str, str], ...] = ()
    tenants: tuple[tuple[str, int], ...] = ()

    def said(self) -> dict[str, Any]:
        """What of it names a result: content, not places."""
        return {
            "tables": ANALYSIS_TABLES,
            "context": sorted(digest for _, digest in self.context),
            "pictures": self.pictures,
            "baselines": sorted([name, digest] for name, _, digest in self.baselines),
            "tenants": sorted(self.tenants),
        }


@dataclass(frozen=True)
class Made:
    """The result of a group.

    Attributes
    ----------
    report
        The report as JSON text, tokens in the place of paths; None: none of the captures could be read.
    page
        The same as an HTML page.
    read
        Which captures are in it, by index.
    failed
        Which are not, and why.
    """

    report: str | None
    page: str
    read: tuple[int, ...]
    failed: tuple[Failed, ...]


def see(version: str, path: str) -> CaptureProbe:
    """In a worker: :func:`pyanalyze.fleet.plan.look`."""
    _same_version(version)
    return probe(path)


def place(version: str, path: str) -> Span:
    """In a worker: :func:`pyanalyze.fleet.plan.span`."""
    _same_version(version)
    return span(path)


def analyse_group(version: str, captures: Sequence[CaptureProbe], options: Options) -> bytes:
    """In a worker: all of a group, as :func:`unpacked` takes it.

    Parameters
    ----------
    version
        Of the pyanalyze that asks: another one would give other results.
    captures
        They must still be what was looked at.
    options
        What else the result follows from.

    Examples
    --------
    >>> made = unpacked(analyse_group(_core.__version__, [probe(capture)], Options()))
    >>> json.loads(made.report)["devices"][0]["sharing"]["mode"], made.read, made.failed
    ('time-slicing', (0,), ())
    """
    _same_version(version)
    failed = []
    whole = []
    for one in captures:
        try:
            changed = stamp(one.path) != one.stamp
        except OSError as error:
            failed.append(Failed.of(one.path, error))
            continue
        if changed:
            message = f"{one.path}: it changed since it was probed; wait until it is complete, then try again"
            failed.append(Failed.of(one.path, CaptureChanged(message)))
        else:
            whole.append(one)
    made = Made(None, "", (), tuple(failed)) if not whole else _made(captures, whole, failed, options)
    # JSON, compressed: a tenth of what a page weighs, and what crosses a network is text that nobody executes.
    return zlib.compress(json.dumps(asdict(made), ensure_ascii=False).encode("utf-8", "surrogateescape"))


def unpacked(data: bytes) -> Made:
    """What :func:`analyse_group` made."""
    plain = json.loads(zlib.decompress(data).decode("utf-8", "surrogateescape"))
    failed = tuple(Failed(**one) for one in plain["failed"])
    return Made(plain["report"], plain["page"], tuple(plain["read"]), failed)


def named(made: Made, captures: Sequence[CaptureProbe], options: Options = Options()) -> tuple[str, str]:
    """The report as JSON text and its page, with the paths of the captures.

    Examples
    --------
    >>> one = probe(capture)
    >>> report, page = named(unpacked(analyse_group(_core.__version__, [one], Options())), [one])
    >>> capture in report, capture in page
    (True, True)
    """
    from pyanalyze.text.escape import visible

    report, page = made.report or "", made.page
    for path, token in _tokens(captures, options):
        report = report.replace(token, json_text(text(path))[1:-1])
        page = page.replace(token, escape(visible(text(path), limit=None)))
    return report, page


def text(path: str) -> str:
    """A path as text that a UTF-8 file can hold."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _made(
    captures: Sequence[CaptureProbe],
    whole: Sequence[CaptureProbe],
    failed: list[Failed],
    options: Options,
) -> Made:
    from pyanalyze.results.report import Report
    from pyanalyze.session import load

    by_path = {one.path: number for number, one in enumerate(captures)}
    beside = dict.fromkeys(path for one in whole for path, _ in one.beside)
    try:
        session = load(
            [one.path for one in whole],
            samples=[path for path in beside if Path(path).name == SAMPLES],
            context=[*(path for path in beside if Path(path).name == NODE), *(path for path, _ in options.context)],
            baselines=[f"{name}={path}" if name else path for name, path, _ in options.baselines],
            tenants=dict(options.tenants),
            tables=ANALYSIS_TABLES,
            keep_going=True,
        )
        failed.extend(Failed.of(str(failure.path), failure.error) for failure in session.failures)
        report = session.report().to_json()
    except (OSError, CaptureUnreadable, UsageError) as error:
        # With one capture its error; with several all failed, and each is as unread as the first.
        return Made(None, "", (), (*failed, *(Failed.of(one.path, error) for one in whole)))
    for path, token in _tokens(captures, options):
        report = report.replace(json_text(text(path))[1:-1], token)
    drawn: dict[str, Any] = {}
    if options.pictures:
        from pyanalyze.report.rendering import draw

        drawn = dict(draw(session.analysis, session.report()))
    from pyanalyze.report.html import render_html

    page = render_html(
        Report.from_json(report),
        drawn,
        f"pyanalyze {_core.__version__}",
        kernels=session.analysis.launch_configurations,
    )
    return Made(report, page, tuple(by_path[str(path)] for path in session.paths), tuple(failed))


def _tokens(captures: Sequence[CaptureProbe], options: Options) -> list[tuple[str, str]]:
    """Paths and what stands for them, the longest first: one may be the beginning of another."""
    files = [(one.path, one.sha256) for one in captures] + [pair for one in captures for pair in one.beside]
    files += [*options.context, *((path, digest) for _, path, digest in options.baselines)]
    return [(path, f"file-{digest[:20]}") for path, digest in sorted(set(files), key=lambda pair: -len(pair[0]))]


def _same_version(version: str) -> None:
    if version != _core.__version__:
        raise UsageError(
            f"this worker has pyanalyze {_core.__version__}, but version {version} is required; install one version "
            "everywhere"
        )
