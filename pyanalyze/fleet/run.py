"""Every group analysed once, in processes of its own, with what is known already taken from the cache."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyanalyze import _core
from pyanalyze._files import write_whole
from pyanalyze.exceptions import CaptureChanged, CaptureUnreadable, OutputExists, PyanalyzeError, UsageError
from pyanalyze.fleet.plan import (
    Group,
    Look,
    Plan,
    Span,
    arrange,
    find,
    look,
    shared_gpus,
    span,
    stamp,
    without_duplicates,
)
from pyanalyze.loading import ANALYSIS_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from pyanalyze.loading import PathLike, Progress

SCHEMA_ID = "pyanalyze.fleet/1"
#: Backup tools know this line and leave the folder out; we know by it that a folder is ours.
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Results of `pyanalyze fleet`, by content; what is missing here is analysed again.\n"
)
_CRASHED = (
    "the process that read it ended abnormally, also when it ran alone (killed, or out of memory); "
    "try it with more memory, or a shorter capture"
)

#: Columns of the CSV, in order.
COLUMNS = (
    "group",
    "captures",
    "device_id",
    "uuid",
    "name",
    "mode",
    "confidence",
    "basis",
    "configured",
    "agrees",
    "tenants",
    "switches",
    "switch_overhead_fraction",
    "worst_slowdown",
    "worst_slowdown_low",
    "worst_slowdown_high",
    "worst_slowdown_n",
    "worst_slowdown_basis",
    "worst_slowdown_tenant",
)


@dataclass(frozen=True)
class Failed:
    """A capture, or a pattern that names none, without a result.

    Attributes
    ----------
    path
        The capture, or the pattern.
    error
        Kind of the error.
    message
        What, where, what to do.
    """

    path: str
    error: str
    message: str


@dataclass(frozen=True)
class Fleet:
    """What a run over many captures came to.

    Attributes
    ----------
    output
        The folder: `fleet.json`, `fleet.csv`, `groups/<name>/report.json`.
    plan
        What was analysed together and what was left out.
    rows
        One per group and device, keys as :data:`COLUMNS`; a group without any device has one row of nulls.
    failures
        Captures without a result, sorted by path.
    analysed, reused
        Groups that were worked on, and groups whose result was known already.
    """

    output: Path
    plan: Plan
    rows: tuple[dict[str, Any], ...]
    failures: tuple[Failed, ...]
    analysed: int
    reused: int

    @property
    def exit_code(self) -> int:
        """That of the worst capture: 3 if one has no result, else 0."""
        return CaptureUnreadable.exit_code if self.failures else 0


def analyse(
    captures: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    workers: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Fleet:
    """Analyse every capture once; captures that saw one GPU at one time are analysed together.

    The files of a run are the same whatever `workers` is, and whether results were known or not. Works in processes
    that start a fresh interpreter: a script that calls this needs ``if __name__ == "__main__":``.

    Parameters
    ----------
    captures
        Files, folders, patterns such as ``captures/**/*.sqlite``.
    output
        Folder to write to; a folder of an earlier run is brought up to date.
    workers
        Processes at once; by default the processors that this process may use. Memory grows with it.
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
    pyanalyze.exceptions.OutputExists
        `output` holds things that no fleet wrote, and `force` is false.
    pyanalyze.exceptions.UsageError
        No capture was named, or `workers` is below 1.
    OSError
        `output` cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fleet = analyse(capture, folder, workers=1)
    >>> fleet.rows[0]["mode"], fleet.exit_code
    ('time-slicing', 0)
    """
    count = _available() if workers is None else workers
    if count < 1:
        raise UsageError(f"{count} workers cannot do any work; give 1 or more")
    paths, without = find([captures] if isinstance(captures, (str, os.PathLike)) else captures)
    failures = [
        Failed(name, "FileNotFoundError", f"{name}: there is no such capture; check the path") for name in without
    ]
    cache = _open(Path(output), force=force)
    tell = progress or (lambda *_: None)
    with _Workers(count) as crew:
        looks: list[Look] = []
        for path, found in _done(crew, look, [(str(path),) for path in paths], "looking at captures", tell):
            if isinstance(found, BaseException):
                failures.append(_failed(path, found))
            else:
                looks.append(found)
        plan = _planned(crew, cache, looks, failures, tell)
        bodies, analysed = _reports(crew, cache, Path(output), plan, failures, tell)
    return _published(Path(output), plan, bodies, failures, analysed)


# Steps ---------------------------------------------------------------------------------------------------------------


def _planned(crew: _Workers, cache: _Cache, looks: list[Look], failures: list[Failed], tell: Progress) -> Plan:
    """Decide what belongs together; a capture whose events cannot be read is out from here on."""
    kept, _ = without_duplicates(looks)
    spans: dict[str, Span] = {}
    unknown: list[Look] = []
    for one in shared_gpus(kept):
        body = cache.get(_key("span", [one]))
        if body is None:
            unknown.append(one)
        else:
            spans[one.path] = Span(body["start_ns"], body["end_ns"], tuple(body["gpus"]))
    by_path = {one.path: one for one in unknown}
    broken = set()
    for path, found in _done(crew, span, [(one.path,) for one in unknown], "placing captures in time", tell):
        if isinstance(found, BaseException):
            failures.append(_failed(path, found))
            broken.add(path)
        else:
            spans[path] = found
            cache.put(_key("span", [by_path[path]]), asdict(found))
    return arrange([one for one in looks if one.path not in broken], spans)


def _reports(
    crew: _Workers, cache: _Cache, output: Path, plan: Plan, failures: list[Failed], tell: Progress
) -> tuple[dict[str, dict[str, Any]], int]:
    """The report of every group, written as soon as it is there: what is finished survives an interruption."""
    bodies: dict[str, dict[str, Any]] = {}
    todo: dict[str, Group] = {}
    for group in plan.groups:
        body = cache.get(_key("report", group.captures))
        if body is None or len(body.get("captures", ())) != len(group.captures):
            todo[group.name] = group
        else:
            bodies[group.name] = _write_report(output, group.name, body, [one.path for one in group.captures])
    tasks = [(name, [(one.path, one.stamp) for one in group.captures]) for name, group in todo.items()]
    for name, found in _done(crew, _analyse_group, tasks, "analysing", tell):
        group = todo[name]
        if isinstance(found, BaseException):
            failures.extend(_failed(one.path, found, together=len(group.captures)) for one in group.captures)
            continue
        text, read, failed = found
        failures.extend(failed)
        if text is None:
            continue
        body = json.loads(text)
        if not failed:
            # A failure may have been the moment's (permissions, a full disk): it is tried again next time.
            cache.put(_key("report", group.captures), body)
        bodies[name] = _write_report(output, name, body, read)
    return bodies, len(todo)


def _published(
    output: Path, plan: Plan, bodies: Mapping[str, dict[str, Any]], failures: list[Failed], analysed: int
) -> Fleet:
    rows: list[dict[str, Any]] = []
    groups = []
    for group in plan.groups:
        body = bodies.get(group.name)
        if body is None:
            continue
        here = _rows(group.name, body)
        rows.extend(here)
        read = [capture["path"] for capture in body["captures"]]
        groups.append(
            {
                "name": group.name,
                "report": f"groups/{group.name}/report.json",
                "captures": [
                    {"path": _text(one.path), "sha256": one.sha256} for one in group.captures if _text(one.path) in read
                ],
                "shared_gpus": list(group.gpus),
                "devices": [] if here[0]["device_id"] is None else here,
            }
        )
    failed = tuple(sorted(failures, key=lambda one: (one.path, one.message)))
    summary = {
        "schema": SCHEMA_ID,
        "tool": {"version": _core.__version__},
        "groups": groups,
        "duplicates": [{key: _text(value) for key, value in asdict(one).items()} for one in plan.duplicates],
        "failures": [{key: _text(value) for key, value in asdict(one).items()} for one in failed],
    }
    _remove_stale(output, set(bodies))
    _write(output / "fleet.csv", _csv(rows))
    _write(output / "fleet.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return Fleet(output, plan, tuple(rows), failed, analysed, len(plan.groups) - analysed)


def _remove_stale(output: Path, current: set[str]) -> None:
    """Remove reports of an earlier run whose group is no more; only those that this run's predecessor listed."""
    try:
        before = json.loads((output / "fleet.json").read_text(encoding="utf-8"))
        names = [str(group["name"]) for group in before["groups"]]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in names:
        folder = output / "groups" / name
        if name not in current and folder.parent == output / "groups" and name == Path(name).name:
            with suppress(OSError):
                (folder / "report.json").unlink(missing_ok=True)
                folder.rmdir()


def _rows(name: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for device in body["devices"] or [None]:
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row.update(group=name, captures=len(body["captures"]))
        if device is not None:
            sharing, switches = device["sharing"], device["context_switches"] or {}
            row.update({key: device[key] for key in ("device_id", "uuid", "name")})
            row.update({key: sharing[key] for key in ("mode", "confidence", "basis", "configured", "agrees")})
            row.update(
                tenants=len(device["tenants"]),
                switches=switches.get("count"),
                switch_overhead_fraction=switches.get("overhead_fraction"),
            )
            row.update(_worst(device["tenants"]))
        rows.append(row)
    return rows


def _worst(tenants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The largest of elapsed and latency slowdowns: either one is what a user of that tenant noticed."""
    found = [
        (tenant["slowdown"][kind], tenant["name"])
        for tenant in tenants
        for kind in ("elapsed", "latency")
        if tenant["slowdown"][kind] is not None
    ]
    if not found:
        return {}
    estimate, tenant = max(found, key=lambda pair: pair[0]["value"])
    parts = {f"worst_slowdown_{key}": estimate[key] for key in ("low", "high", "n", "basis")}
    return {"worst_slowdown": estimate["value"], **parts, "worst_slowdown_tenant": tenant}


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    from pyanalyze.report.escape import visible

    def cell(value: object) -> object:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            text = visible(value, limit=None)
            # Names come from foreign processes; a spreadsheet runs what begins like a formula.
            return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
        return value

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([cell(row[column]) for column in COLUMNS] for row in rows)
    return out.getvalue()


def _failed(path: str, error: BaseException, together: int = 1) -> Failed:
    beside = f" (analysed together with {together - 1} more)" if together > 1 else ""
    if isinstance(error, BrokenProcessPool):
        return Failed(path, "ProcessDied", f"{path}: {_CRASHED}{beside}")
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return Failed(path, type(error).__name__, f"{path}: {reason}; check the path and its permissions{beside}")
    if isinstance(error, PyanalyzeError):
        return Failed(path, type(error).__name__, f"{error}{beside}")
    message = f"{path}: {type(error).__name__}: {error}; this is a defect of pyanalyze, please report it{beside}"
    return Failed(path, type(error).__name__, message)


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

    def put(self, key: str, body: Mapping[str, Any]) -> None:
        """Keep a result."""
        write_whole(self._folder / f"{key}.json", json.dumps(body, ensure_ascii=False), force=True)


def _open(output: Path, *, force: bool) -> _Cache:
    folder = output / ".cache"
    tag = folder / "CACHEDIR.TAG"
    if output.is_dir() and not force and not tag.is_file() and any(output.iterdir()):
        raise OutputExists(
            f"{output} holds things that no fleet wrote; give --force (force=True) to write into it, or another -o"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write(tag, _TAG)
    return _Cache(folder, trusted=not force)


def _key(work: str, captures: Sequence[Look]) -> str:
    """Name a result by all that it follows from; paths are not part of it, so that moved captures are known."""
    said = {
        "work": work,
        "version": _core.__version__,
        "options": {"tables": ANALYSIS_TABLES},
        "captures": [one.sha256 for one in captures],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _write_report(output: Path, name: str, body: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    for capture, path in zip(body["captures"], paths, strict=True):
        capture["path"] = _text(path)
    folder = output / "groups" / name
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "report.json", json.dumps(body, indent=2, ensure_ascii=False) + "\n")
    return body


def _write(path: Path, text: str) -> None:
    """Write what changed; a file that says the same already keeps its time."""
    data = text.encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return
    write_whole(path, data, force=True)


def _text(path: str) -> str:
    """Return a path as text that a UTF-8 file can hold."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# Processes -----------------------------------------------------------------------------------------------------------


def _analyse_group(
    name: str, captures: Sequence[tuple[str, tuple[int, int]]]
) -> tuple[str | None, list[str], list[Failed]]:
    """In a worker: the report of a group, the captures in it, those that could not be read."""
    from pyanalyze.loading import load

    failed = []
    paths = []
    for path, hashed in captures:
        try:
            changed = stamp(path) != hashed
        except OSError as error:
            failed.append(_failed(path, error))
            continue
        if changed:
            message = f"{path}: it changed since it was looked at; wait until it is written, then try again"
            failed.append(_failed(path, CaptureChanged(message)))
        else:
            paths.append(path)
    if not paths:
        return None, [], failed
    try:
        session = load(paths, tables=ANALYSIS_TABLES, keep_going=True)
    except (OSError, CaptureUnreadable) as error:
        # With one capture its error; with several all failed, and each is as unread as the first.
        return None, [], [*failed, *(_failed(path, error) for path in paths)]
    failed.extend(_failed(str(failure.path), failure.error) for failure in session.failures)
    return session.report().to_json(), [str(path) for path in session.paths], failed


def _done(
    crew: _Workers, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], stage: str, tell: Progress
) -> Iterator[tuple[str, Any]]:
    """The first argument of each task with its result or its exception, as they end."""
    if tasks:
        tell(stage, 0, len(tasks))
    for ended, (index, outcome) in enumerate(crew.outcomes(work, tasks), start=1):
        yield tasks[index][0], outcome
        tell(stage, ended, len(tasks))


class _Workers:
    """Processes that do work; the death of one costs nobody a result.

    A pool cannot tell whose work killed a process, and memory may have run out only because several large captures
    were read at once. So what was running when a process died is done again, one at a time, after all others.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        self._others: set[Any] = set()

    def __enter__(self) -> Self:
        self._others = set(multiprocessing.active_children())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(now=kind is not None)

    def outcomes(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield the index of every task with its result or its exception, in the order in which they end."""
        waiting = deque(range(len(tasks)))
        suspects: list[int] = []
        while waiting:
            suspects += yield from self._until_death(work, tasks, waiting, self._count)
        for index in suspects:
            died = yield from self._until_death(work, tasks, deque([index]), 1)
            for _ in died:
                yield index, BrokenProcessPool(_CRASHED)

    def _until_death(
        self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], waiting: deque[int], at_once: int
    ) -> Generator[tuple[int, Any], None, list[int]]:
        """Work until all is done or a process dies; returns what was running then."""
        running: dict[Future[Any], int] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                try:
                    running[self._submit(work, *tasks[waiting[0]])] = waiting[0]
                except BrokenProcessPool:
                    # A process died between two results; nothing says that this task would have killed it.
                    self._close(now=True)
                    if not running:
                        continue
                    return list(running.values())
                waiting.popleft()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            lost = [running[future] for future in done if isinstance(future.exception(), BrokenProcessPool)]
            for future in done:
                index, error = running.pop(future), future.exception()
                if not isinstance(error, BrokenProcessPool):
                    yield index, future.result() if error is None else error
            if lost:
                self._close(now=True)
                return sorted([*lost, *running.values()])
        return []

    def _submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._pool is None:
            # Spawned, not forked: the core and polars have threads, whose locks a forked child would never get.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, mp_context=context, initializer=_start_worker)
        with _without_interrupts():
            return self._pool.submit(work, *arguments)

    def _close(self, *, now: bool) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if now:
            # Results that nobody waits for: minutes of work must not hold up Ctrl-C. Workers write no files.
            for process in multiprocessing.active_children():
                if process not in self._others:
                    process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: the parent decides, and one message is enough."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Captures are what runs in parallel; and sums of floats must not depend on how many threads made them.
    os.environ["POLARS_MAX_THREADS"] = "1"
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A parent that was killed cannot say so, and the worker would wait for work for ever.
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    from multiprocessing.connection import wait as wait_for

    wait_for([sentinel])
    os._exit(1)


def _available() -> int:
    """Processors that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))
