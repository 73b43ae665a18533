"""Analyse every group once, in the workers of an executor; what is known already comes from the cache."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyanalyze.core import _core
from pyanalyze.errors import CaptureUnreadable, NotACapture, OutputExists
from pyanalyze.files import write_whole
from pyanalyze.fleet import outputs
from pyanalyze.fleet.executors import Executor, executor_for
from pyanalyze.fleet.failures import Failed
from pyanalyze.fleet.plan import (
    CaptureProbe,
    Group,
    Plan,
    Span,
    arrange,
    content_hash,
    find,
    nothing_at,
    shared_gpus,
    without_duplicates,
)
from pyanalyze.fleet.summary import (
    CapturePart,
    DeviceRow,
    DuplicatePart,
    FailurePart,
    FleetSummary,
    GroupPart,
    device_rows,
    jobs_of,
    summarise,
)
from pyanalyze.fleet.work import Made, Options, analyse_group, named, place, see, text, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyanalyze.inputs.capture import PathLike, Progress

_T = TypeVar("_T")

#: Name in the cache of what the last run wrote.
_WRITTEN = "written"

#: Backup tools know this line and leave the folder out; we know by it that a folder is ours.
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Results of `pyanalyze fleet`, by content; what is missing here is analysed again.\n"
)


@dataclass(frozen=True)
class Fleet:
    """What a run over many captures came to.

    Attributes
    ----------
    output
        The folder: `index.html`, `fleet.json`, `fleet.csv`, `fleet.prom`, `check.jsonl`, `tables/`,
        `groups/<name>/report.{html,json}`.
    plan
        What was analysed together and what was left out.
    summary
        What `fleet.json` holds.
    failures
        Captures without a result, sorted by path.
    analysed, reused
        Groups that were worked on, and groups whose result was known already.
    """

    output: Path
    plan: Plan
    summary: FleetSummary
    failures: tuple[Failed, ...]
    analysed: int
    reused: int

    @property
    def rows(self) -> tuple[DeviceRow, ...]:
        """One for each group and device."""
        return tuple(self.summary.rows())

    @property
    def exit_code(self) -> int:
        """That of the worst capture: 3 if one has no result, else 0."""
        return CaptureUnreadable.exit_code if self.failures else 0


def analyse(
    captures: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    context: PathLike | Sequence[PathLike] = (),
    scheduler: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: str | int | None = None,
    pictures: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Fleet:
    """Analyse every capture once; captures that saw one GPU at one time are analysed together.

    The files of a run are the same whoever works, and whether results were known or not. Works in processes
    that start a fresh interpreter: a script that calls this needs ``if __name__ == "__main__":``.

    Parameters
    ----------
    captures
        Files, folders, patterns such as ``captures/**/*.sqlite``. Samples and the description of the node that
        `pyanalyze record` wrote beside a capture count as given.
    output
        Folder to write to; a folder of an earlier run is brought up to date.
    context
        The configured side, for all of them: what concerns a GPU is found by its UUID.
    scheduler
        None: processes of this machine. ``local``: a Dask cluster of this machine for this run. Else the address of a
        Dask scheduler (``tcp://host:8786``) or the file that it wrote; its workers see the captures by the same paths.
    workers
        How many at once; by default the processors that this process may use.
    threads, memory
        Of all workers together (memory such as ``"8GB"``); each gets its part. By default all that is at hand.
    pictures
        Reports hold pictures: some seconds and a megabyte each.
    force
        Trust nothing in `output`: analyse all again, also into a folder that holds other things.
    progress
        Called as ``progress(stage, done, total)``; raise from it to stop.

    Returns
    -------
    Fleet
        `failures` lists what could not be analysed; nothing is raised for a capture.

    Raises
    ------
    pyanalyze.errors.OutputExists
        `output` holds things that no fleet wrote, and `force` is false.
    pyanalyze.errors.NotACapture
        None of `captures` is there; `output` is left as it is.
    pyanalyze.errors.UsageError
        No capture was named, `workers` is below 1, their memory is too little, or Dask is asked for and not there.
    OSError
        `output` or a file of the context cannot be used, or the scheduler went away.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fleet = analyse(capture, folder, workers=1)
    >>> fleet.rows[0].mode, fleet.exit_code
    ('time-slicing', 0)
    """
    executor = executor_for(scheduler, workers, threads=threads, memory=memory)
    paths, without = find(_listed(captures))
    if not paths:
        # A mistyped pattern must not bring a folder of an earlier run up to date: nothing would be left in it.
        raise NotACapture(f"{'; '.join(map(nothing_at, without))} ({output} was not changed)")
    failures = [Failed(name, "FileNotFoundError", nothing_at(name)) for name in without]
    options = Options(context=digests(_listed(context)), pictures=pictures)
    cache = ResultCache(Path(output), executor, force=force, progress=progress)
    with executor:
        probes = cache.probes([str(path) for path in paths], failures)
        plan = cache.plan(probes, failures)
        kept = cache.reports(plan.groups, lambda _: options, _kept, failures)
    return _published(cache, plan, kept, failures)


def digests(paths: Sequence[PathLike]) -> tuple[tuple[str, str], ...]:
    """Absolute paths of files with the SHA-256 of what they hold, sorted."""
    return tuple(sorted((os.path.abspath(path), content_hash(path)) for path in paths))  # noqa: PTH100


def _listed(given: PathLike | Sequence[PathLike]) -> list[PathLike]:
    return [given] if isinstance(given, (str, os.PathLike)) else list(given)


# Steps ---------------------------------------------------------------------------------------------------------------


class ResultCache:
    """A folder to write to, what is known in it, and who works: the steps that fleets and studies are made of.

    Parameters
    ----------
    output
        The folder; it is made.
    executor
        Who works; entered by the caller.
    force
        Trust nothing in the folder.
    progress
        As of :func:`analyse`.

    Raises
    ------
    pyanalyze.errors.OutputExists
        The folder holds things that we did not write.
    """

    def __init__(self, output: Path, executor: Executor, *, force: bool, progress: Progress | None) -> None:
        self.output = output
        self.analysed = 0
        self._executor = executor
        self._cache = _open(output, force=force)
        self._tell: Progress = progress or (lambda *_: None)
        self._written: set[str] = set()

    def probes(self, paths: Sequence[str], failures: list[Failed]) -> list[CaptureProbe]:
        """What every capture says of itself; one that did not change since it was hashed is not read again."""
        found: dict[str, CaptureProbe] = {}
        unknown: dict[str, tuple[str, str | None]] = {}
        for path in paths:
            at = os.path.abspath(path)  # noqa: PTH100
            key = _file_key(at)
            body = None if key is None else self._cache.get(key)
            if body is None:
                unknown[at] = (path, key)
            else:
                found[path] = _probe_of(body, path)
        for at, seen in self._done(see, [(at,) for at in unknown], "probing captures"):
            path, key = unknown[at]
            if isinstance(seen, BaseException):
                failures.append(_shown(Failed.of(at, seen), {at: path}))
                continue
            found[path] = replace(seen, path=path)
            if key is not None and key == _file_key(at):
                self._cache.put(key, asdict(seen))
        return [found[path] for path in paths if path in found]

    def plan(self, probes: Sequence[CaptureProbe], failures: list[Failed]) -> Plan:
        """Decide what belongs together; a capture whose events cannot be read is out from here on."""
        kept, _ = without_duplicates(probes)
        spans: dict[str, Span] = {}
        unknown: dict[str, CaptureProbe] = {}
        for one in shared_gpus(kept):
            body = self._cache.get(_key("span", [one]))
            if body is None:
                unknown[os.path.abspath(one.path)] = one  # noqa: PTH100
            else:
                spans[one.path] = Span(body["start_ns"], body["end_ns"], tuple(body["gpus"]))
        broken = set()
        for at, found in self._done(place, [(at,) for at in unknown], "placing captures in time"):
            one = unknown[at]
            if isinstance(found, BaseException):
                failures.append(_shown(Failed.of(at, found), {at: one.path}))
                broken.add(one.path)
            else:
                spans[one.path] = found
                self._cache.put(_key("span", [one]), asdict(found))
        return arrange([one for one in probes if one.path not in broken], spans)

    def reports(
        self,
        groups: Sequence[Group],
        options: Callable[[Group], Options],
        keep: Callable[[Group, dict[str, Any], list[CaptureProbe]], _T],
        failures: list[Failed],
    ) -> dict[str, _T]:
        """Write the report of every group as soon as it is there: what is finished survives an interruption.

        Returned is, by name, what `keep` makes of a group, its report and the captures that are in it: reports of a
        hundred thousand captures do not fit into memory.
        """
        finished: dict[str, _T] = {}
        todo: dict[str, Group] = {}
        for group in groups:
            body = self._cache.get(_key("report text", group.captures, options(group)))
            if body is None or len(body.get("read", ())) != len(group.captures):
                todo[group.name] = group
            else:
                made = Made(body["report"], body["page"], tuple(body["read"]), ())
                finished[group.name] = keep(group, *self._write_report(group, made, options(group)))
        self.analysed += len(todo)
        tasks = []
        for name, group in todo.items():
            there = tuple(replace(one, path=os.path.abspath(one.path)) for one in group.captures)  # noqa: PTH100
            tasks.append((name, there, options(group)))
        for name, found in self._done(_named_group, tasks, "analysing"):
            group = todo[name]
            shown = {os.path.abspath(one.path): one.path for one in group.captures}  # noqa: PTH100
            if isinstance(found, BaseException):
                failures.extend(Failed.of(one.path, found, len(group.captures)) for one in group.captures)
                continue
            made = unpacked(found)
            failures.extend(_shown(one, shown) for one in made.failed)
            if made.report is None:
                continue
            if not made.failed:
                # A failure may have been the moment's (permissions, a full disk): it is tried again next time.
                body = {"report": made.report, "page": made.page, "read": made.read}
                self._cache.put(_key("report text", group.captures, options(group)), body)
            finished[name] = keep(group, *self._write_report(group, made, options(group)))
        return finished

    def write(self, name: str, data: str | bytes) -> None:
        """Write a file of the output whole; one that says the same already keeps its time."""
        _write(self.output / name, data)
        self._written.add(name)

    def finish(self) -> None:
        """Remove what an earlier run wrote and this one did not; nothing that anybody else put there."""
        before = self._cache.written()
        self._cache.put(_WRITTEN, {"files": sorted({*self._written})})
        for name in before:
            path = self.output / name
            if name in self._written or Path(name).is_absolute() or ".." in Path(name).parts:
                continue
            with suppress(OSError):
                path.unlink(missing_ok=True)
                for folder in list(path.parents)[: len(Path(name).parts) - 1]:
                    folder.rmdir()

    def _write_report(self, group: Group, made: Made, options: Options) -> tuple[dict[str, Any], list[CaptureProbe]]:
        report, page = named(made, group.captures, options)
        self.write(f"groups/{group.name}/report.json", report)
        self.write(f"groups/{group.name}/report.html", page)
        plain: dict[str, Any] = json.loads(report)
        return plain, [group.captures[index] for index in made.read]

    def _done(
        self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], stage: str
    ) -> Iterator[tuple[str, Any]]:
        """The first argument of each task with its result or its exception, as they end."""
        if tasks:
            self._tell(stage, 0, len(tasks))
        asked = [(_core.__version__, *task) for task in tasks]
        for ended, (index, outcome) in enumerate(self._executor.outcomes(work, asked), start=1):
            yield tasks[index][0], outcome
            self._tell(stage, ended, len(tasks))


def _named_group(version: str, _name: str, captures: tuple[CaptureProbe, ...], options: Options) -> bytes:
    return analyse_group(version, captures, options)


def _shown(failed: Failed, places: Mapping[str, str]) -> Failed:
    """A failure with the path as it was given."""
    for at, path in places.items():
        failed = Failed(path if failed.path == at else failed.path, failed.error, failed.message.replace(at, path))
    return failed


@dataclass(frozen=True)
class _Kept:
    """What is needed of a group once its report is written."""

    rows: list[DeviceRow]
    captures: list[CapturePart]
    tables: dict[str, list[tuple[Any, ...]]]
    line: str
    sessions: frozenset[str]
    hosts: frozenset[str]
    span: tuple[int, int] | None


def _kept(group: Group, report: dict[str, Any], read: list[CaptureProbe]) -> _Kept:
    hosts = frozenset(one.host for one in read if one.host is not None)
    origin = report["clock"]["origin_utc_ns"]
    known = [one[key] for one in report["captures"] for key in ("start_ns", "end_ns") if one[key] is not None]
    return _Kept(
        rows=device_rows(group.name, report, next(iter(hosts)) if len(hosts) == 1 else None),
        captures=[CapturePart(path=text(one.path), sha256=one.sha256) for one in read],
        tables=outputs.group_tables(group.name, report, read),
        line=outputs.check_line(group.name, report),
        sessions=frozenset(one.session_uuid for one in read if one.session_uuid is not None),
        hosts=hosts,
        span=(int(origin) + min(known), int(origin) + max(known)) if origin is not None and known else None,
    )


def _published(cache: ResultCache, plan: Plan, kept: Mapping[str, _Kept], failures: list[Failed]) -> Fleet:
    groups = [(group, kept[group.name]) for group in plan.groups if group.name in kept]
    jobs = jobs_of([(group.name, one.hosts, one.sessions, one.span) for group, one in groups])
    parts: list[GroupPart] = []
    dataset: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for group, one in groups:
        job, date = jobs[group.name], outputs.date_of(one.rows)
        rows = [row.model_copy(update={"job": job}) for row in one.rows]
        for name, cells in {"devices": [outputs.device_cells(row) for row in rows], **one.tables}.items():
            dataset.setdefault((name, date), []).extend(cells)
        parts.append(
            GroupPart(
                name=group.name,
                job=job,
                report=f"groups/{group.name}/report.json",
                page=f"groups/{group.name}/report.html",
                captures=one.captures,
                shared_gpus=list(group.gpus),
                devices=rows,
            )
        )
    for (name, date), cells in sorted(dataset.items()):
        table = outputs.frame(outputs.TABLES[name], cells)
        cache.write(f"tables/{name}/date={date}/part-0.parquet", outputs.parquet(table))
    failed = tuple(sorted(failures, key=lambda one: (one.path, one.message)))
    summary = summarise(
        _core.__version__,
        parts,
        [DuplicatePart(path=text(one.path), of=text(one.of), why=one.why) for one in plan.duplicates],
        [FailurePart(path=text(one.path), error=one.error, message=text(one.message)) for one in failed],
    )
    from pyanalyze.fleet.overview import render_overview

    cache.write("check.jsonl", "".join(one.line for _, one in groups))
    cache.write("fleet.csv", outputs.fleet_csv(summary.rows()))
    cache.write("fleet.prom", outputs.openmetrics(summary))
    cache.write("index.html", render_overview(summary))
    cache.write("fleet.json", summary.to_json())
    cache.finish()
    return Fleet(cache.output, plan, summary, failed, cache.analysed, len(plan.groups) - cache.analysed)


# Files ---------------------------------------------------------------------------------------------------------------


class _Cache:
    """Results by key, each a JSON file written whole."""

    def __init__(self, folder: Path, *, trusted: bool) -> None:
        self._folder = folder
        self._trusted = trusted

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what is known; a file that somebody damaged counts as unknown."""
        if not self._trusted:
            return None
        try:
            body = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return body if isinstance(body, dict) else None

    def written(self) -> list[str]:
        """What the last run wrote, also when its results are not trusted."""
        try:
            names = json.loads((self._folder / f"{_WRITTEN}.json").read_text(encoding="utf-8"))["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def put(self, key: str, body: Mapping[str, Any]) -> None:
        """Keep a result."""
        _write(self._folder / f"{key}.json", json.dumps(body))


def _open(output: Path, *, force: bool) -> _Cache:
    folder = output / ".cache"
    tag = folder / "CACHEDIR.TAG"
    if output.is_dir() and not force and not tag.is_file() and any(output.iterdir()):
        raise OutputExists(
            f"{output} holds files that no fleet run wrote; give --force (force=True) to write into it, or another -o"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(tag, _TAG)
    return _Cache(folder, trusted=not force)


def _key(work: str, captures: Sequence[CaptureProbe], options: Options | None = None) -> str:
    """Name a result by all that it follows from; paths are not part of it, so that moved captures are known."""
    said = {
        "work": work,
        "version": _core.__version__,
        "options": None if options is None else options.said(),
        "captures": [[one.sha256, sorted(digest for _, digest in one.beside)] for one in captures],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _file_key(path: str) -> str | None:
    """Name what is known of a file by its place and state: one that was written to has another time of change.

    Exports are written once. A state that is older than the clock's tick cannot come back: the time of change is the
    kernel's, nobody can set it.
    """
    from pyanalyze.fleet.plan import states

    try:
        said = ["look", _core.__version__, path.encode("utf-8", "surrogateescape").hex(), states(path)]
    except OSError:
        return None
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _probe_of(body: Mapping[str, Any], path: str) -> CaptureProbe:
    lists = {"gpus": tuple(body["gpus"]), "schema": tuple(body["schema"]), "stamp": tuple(body["stamp"])}
    beside = tuple((file, digest) for file, digest in body["beside"])
    return CaptureProbe(**{**body, **lists, "beside": beside, "path": path})


def _write(path: Path, data: str | bytes) -> None:
    """Write what changed; a file that says the same already keeps its time."""
    content = data.encode() if isinstance(data, str) else data
    with suppress(OSError):
        if path.read_bytes() == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content, force=True)
