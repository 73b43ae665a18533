"""Which captures belong together, and which are one recording twice?

Three steps, each cheap enough to be repeated: :func:`look` reads a capture's metadata and hashes the file, :func:`span`
reads when and on which GPUs it saw work (only needed where captures name a common GPU), :func:`arrange` decides. The
last is a pure function, so that the same captures always give the same groups, in the same order.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.errors import CaptureChanged, UsageError
from pyanalyze.text.allowlist import known_host
from pyanalyze.text.numbers import bounded_int

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from pyanalyze.core import _core

#: What says when work ran and where. Short tables beside counters and copies, which are read only if these are empty.
_SPAN_TABLES = ("kernels", "graph_launches", "switch_events")
_SPAN_FALLBACK = ("memops", "gpu_metrics")
#: A rollback journal or a write-ahead log changes what the export holds, so they belong to its content.
_COMPANIONS = ("", "-journal", "-wal")
_BLOCK_BYTES = 1 << 20
_NAME_CHARACTERS = 80
#: What `pyanalyze record` writes into the folder of the capture: samples, and what was configured on the node.
SAMPLES, NODE = "samples.jsonl", "node.json"


@dataclass(frozen=True)
class CaptureProbe:
    """What the metadata of a capture says; nothing about events.

    Attributes
    ----------
    path
        As found.
    sha256
        Of the content, a journal or write-ahead log included.
    gpus
        UUIDs of the GPUs and MIG instances that it lists, boards included; not necessarily of those that worked.
    session_uuid
        Equal for exports of one report; None where old versions did not write it.
    utc_origin_ns
        UTC epoch of its zero; None where it cannot be placed in time.
    schema
        Version of the export schema, for comparison; empty where not recorded.
    sources
        How many event tables hold rows.
    stamp
        Size in bytes and time of change in ns, taken before the content was hashed: what is analysed later must
        still be what was hashed.
    host
        Digest of the host's name; None where the export does not say.
    beside
        Path and SHA-256 of the samples and the description of the node that `pyanalyze record` wrote beside it.
    """

    path: str
    sha256: str
    gpus: tuple[str, ...]
    session_uuid: str | None
    utc_origin_ns: int | None
    schema: tuple[int, ...]
    sources: int
    stamp: tuple[int, int]
    host: str | None = None
    beside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Span:
    """When (ns on the capture's own clock) and on which GPUs a capture saw work; None: it saw none."""

    start_ns: int | None
    end_ns: int | None
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Captures that are analysed together: one recording, or several that saw one GPU at one time.

    Attributes
    ----------
    name
        Name of its folder: unique in the fleet, made of safe characters.
    captures
        In the order of their start; the first one's clock is that of the group.
    gpus
        UUIDs that the captures of a group share; empty for one capture.
    """

    name: str
    captures: tuple[CaptureProbe, ...]
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Duplicate:
    """A capture left out because another export of the same recording is analysed."""

    path: str
    of: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What is analysed together, in the order of names, and what is left out."""

    groups: tuple[Group, ...]
    duplicates: tuple[Duplicate, ...]


def find(patterns: Sequence[str | os.PathLike[str]]) -> tuple[list[Path], list[str]]:
    """Turn files, folders and glob patterns into captures.

    Parameters
    ----------
    patterns
        Files, folders (their captures, not those of folders inside) and patterns, where ``**`` stands for any depth.
        What exists is taken by its name, also when it holds characters of a pattern.

    Returns
    -------
    captures
        Every capture once, sorted by path.
    without
        Patterns that name nothing.

    Raises
    ------
    pyanalyze.errors.UsageError
        No pattern at all.

    Examples
    --------
    >>> found, without = find([capture, "nothing/**/*.sqlite"])
    >>> len(found), without
    (1, ['nothing/**/*.sqlite'])
    """
    from pyanalyze.errors import NotACapture
    from pyanalyze.inputs.capture import find_captures

    if not patterns:
        raise UsageError("no capture was given; give files, folders or a pattern such as 'captures/**/*.sqlite'")
    found: set[Path] = set()
    without = []
    for pattern in map(str, patterns):
        named = [Path(pattern)]
        if not named[0].exists():
            named = [Path(name) for name in _matching(pattern)]
        if not named:
            without.append(pattern)
        for path in named:
            try:
                found.update(find_captures([path]))
            except NotACapture:
                # A folder without captures matters if it was named, not if `captures/*` happened to match it.
                if str(path) == pattern:
                    without.append(pattern)
    return sorted(found), without


def left_beside(patterns: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the files of named folders that are no captures: samples and listings are not read beside a fleet.

    Examples
    --------
    >>> left_beside([capture])
    []
    """
    from pyanalyze.inputs.beside import is_text

    inside = (path for folder in map(Path, patterns) if folder.is_dir() for path in folder.iterdir())
    return sorted(path for path in inside if not path.name.startswith(".") and is_text(path))


def _matching(pattern: str) -> Iterator[str]:
    """Paths that a pattern means: as `glob`, but ``**`` enters every folder once, links in a circle or not."""
    parts = Path(pattern).parts
    if "**" not in parts:
        # Unlike Path.glob: absolute patterns, no hidden files.
        yield from glob.glob(pattern)  # noqa: PTH207
        return
    place = parts.index("**")
    head, tail = parts[:place], parts[place + 1 :] or ("*",)
    bases = glob.glob(str(Path(*head))) if head else [""]  # noqa: PTH207
    for base in bases:
        for folder in _folders(base):
            yield from _matching(str(Path(glob.escape(folder), *tail)))


def _folders(base: str) -> Iterator[str]:
    """Yield a folder and those below it, hidden ones left out, each real one once."""
    seen: set[tuple[int, int]] = set()
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        # What cannot be entered, or is gone, holds nothing for us.
        with suppress(OSError):
            status = Path(folder).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder or ".") as entries:
                inside = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
            yield folder
            waiting += [os.path.join(folder, name) for name in reversed(inside)]  # noqa: PTH118 -- "" is this folder


def nothing_at(pattern: str) -> str:
    """Say that a pattern of :func:`find` names nothing.

    Examples
    --------
    >>> nothing_at("runs/*.sqlite")
    'runs/*.sqlite: no such capture; check the path'
    """
    if Path(pattern).is_dir():
        return f"{pattern}: no capture in this folder; for its subfolders give '{pattern}/**/*'"
    return f"{pattern}: no such capture; check the path"


def content_hash(path: str | os.PathLike[str]) -> str:
    """Hash what a capture holds.

    Parameters
    ----------
    path
        The capture; a journal or write-ahead log beside it counts.

    Returns
    -------
    str
        SHA-256 in hexadecimal.

    Raises
    ------
    OSError
        The file cannot be read.
    pyanalyze.errors.CaptureChanged
        It changed while it was read.

    Examples
    --------
    >>> content_hash(capture) == content_hash(capture)
    True
    """
    digest = hashlib.sha256()
    for companion in _COMPANIONS:
        file = Path(f"{path}{companion}")
        if companion and not file.is_file():
            continue
        digest.update(f"\0{companion}\0".encode())
        before = file.stat()
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
        after = file.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise CaptureChanged(f"{file}: it changed while it was read; wait until it is complete, then try again")
    return digest.hexdigest()


def probe(path: str) -> CaptureProbe:
    """Read the metadata of a capture and hash its content.

    Parameters
    ----------
    path
        A `.sqlite` export or a `.nsys-rep`.

    Returns
    -------
    CaptureProbe
        No event table is read for it.

    Raises
    ------
    OSError, pyanalyze.errors.CaptureUnreadable
        As :func:`pyanalyze.load`.

    Examples
    --------
    >>> probe(capture).gpus
    ('GPU-5c3f2a10-7be4-4d0a-9d26-1f0a5e8b7c41',)
    """
    from pyanalyze.tables.frames import EVENT_TABLES

    before = stamp(path)
    tables = _read(path, ())

    row = _frame(tables, "capture").row(0, named=True)
    sources = _frame(tables, "sources")
    events = {*EVENT_TABLES, "copies"}
    return CaptureProbe(
        path=path,
        sha256=content_hash(path),
        gpus=_gpus(_frame(tables, "devices")),
        session_uuid=row["session_uuid"],
        utc_origin_ns=row["utc_origin_ns"],
        schema=tuple(bounded_int(part) or 0 for part in re.findall(r"[0-9]+", row["schema_version"] or "")),
        sources=sum(1 for name, rows in sources.select("source", "rows").iter_rows() if name in events and rows),
        stamp=before,
        host=known_host(row["host_hash"]),
        beside=tuple(
            (str(file), content_hash(file))
            for file in (Path(path).parent / SAMPLES, Path(path).parent / NODE)
            if file.is_file()
        ),
    )


def stamp(path: str) -> tuple[int, int]:
    """Size in bytes and time of the last change in ns: cheap, and enough to notice that a file was written to."""
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns


def states(path: str) -> list[list[int | str]]:
    """Everything about a capture and what lies beside it that the system changes when somebody writes to it.

    Examples
    --------
    >>> states(capture) == states(capture)
    True
    """
    names = [f"{path}{companion}" for companion in _COMPANIONS]
    names += [str(Path(path).parent / name) for name in (SAMPLES, NODE)]
    found: list[list[int | str]] = []
    for number, name in enumerate(names):
        if number == 0 or Path(name).is_file():
            status = Path(name).stat()
            found.append([number, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino])
    return found


def span(path: str) -> Span:
    """Read when and on which GPUs a capture saw work.

    A node lists all its GPUs in every capture; only those that worked make two captures one job.

    Parameters
    ----------
    path
        A `.sqlite` export or a `.nsys-rep`.

    Returns
    -------
    Span
        From kernels, graphs and switch records; from copies and counters where there are none of those.

    Raises
    ------
    OSError, pyanalyze.errors.CaptureUnreadable
        As :func:`pyanalyze.load`.

    Examples
    --------
    >>> seen = span(capture)
    >>> seen.start_ns < seen.end_ns, len(seen.gpus)
    (True, 1)
    """
    import polars as pl

    for wanted in (_SPAN_TABLES, _SPAN_FALLBACK):
        tables = _read(path, wanted)
        row = _frame(tables, "capture").row(0, named=True)
        if row["start_ns"] is None or row["end_ns"] is None:
            continue
        worked: set[int] = set()
        for name in wanted:
            worked.update(_frame(tables, name)["device_id"].drop_nulls().unique().to_list())
        devices = _frame(tables, "devices").filter(pl.col("device_id").is_in(sorted(worked)))
        return Span(row["start_ns"], row["end_ns"], _gpus(devices))
    return Span(None, None, ())


def shared_gpus(probes: Sequence[CaptureProbe]) -> list[CaptureProbe]:
    """Choose the captures whose time must be known: those that list a GPU which another one lists too.

    Parameters
    ----------
    probes
        Captures without duplicates.

    Returns
    -------
    list of CaptureProbe
        Those that could belong to another one; captures that cannot be placed in time are not among them.

    Examples
    --------
    >>> shared_gpus([probe(capture)])
    []
    """
    placed = [one for one in probes if one.utc_origin_ns is not None]
    listed: dict[str, int] = {}
    for one in placed:
        for gpu in one.gpus:
            listed[gpu] = listed.get(gpu, 0) + 1
    return [one for one in placed if any(listed[gpu] > 1 for gpu in one.gpus)]


def without_duplicates(probes: Sequence[CaptureProbe]) -> tuple[list[CaptureProbe], tuple[Duplicate, ...]]:
    """Keep one export of every recording.

    The one that holds most event tables is kept, then the one of the newest schema, then the first by path.

    Parameters
    ----------
    probes
        All captures.

    Returns
    -------
    kept
        Sorted by path.
    duplicates
        What was left out, sorted by path.

    Examples
    --------
    >>> kept, duplicates = without_duplicates([probe(capture), probe(capture)])
    >>> len(kept), duplicates[0].why
    (1, 'the same content')
    """
    kept: list[CaptureProbe] = []
    duplicates = []
    # Of a hundred thousand captures each is only compared with those that say the same of themselves.
    alike: dict[object, list[int]] = {}
    for one in sorted(probes, key=lambda one: (-one.sources, tuple(-part for part in one.schema), one.path)):
        marks: list[object] = [one.sha256]
        marks += [] if one.session_uuid is None else [one.session_uuid]
        marks += [] if one.utc_origin_ns is None else [(one.utc_origin_ns, one.gpus)]
        for other in (kept[index] for index in sorted({index for mark in marks for index in alike.get(mark, ())})):
            why = _same_recording(one, other)
            if why is not None:
                duplicates.append(Duplicate(one.path, other.path, why))
                break
        else:
            for mark in marks:
                alike.setdefault(mark, []).append(len(kept))
            kept.append(one)
    return sorted(kept, key=lambda one: one.path), tuple(sorted(duplicates, key=lambda one: one.path))


def arrange(probes: Sequence[CaptureProbe], spans: Mapping[str, Span]) -> Plan:
    """Group captures that saw the same GPU at the same time.

    Parameters
    ----------
    probes
        All captures, duplicates included.
    spans
        By path, at least of those that :func:`shared_gpus` chose; a capture without one stays alone.

    Returns
    -------
    Plan
        Every capture once, in a group or among the duplicates.

    Examples
    --------
    >>> one = probe(capture)
    >>> [group.name for group in arrange([one], {}).groups]
    ['demo-time-slicing']
    """
    kept, duplicates = without_duplicates(probes)
    together: dict[int, list[CaptureProbe]] = {}
    on_gpu: dict[str, set[int]] = {}
    for number, one in enumerate(kept):
        # Through `one`, groups that did not touch each other may become one: the node's capture joins its pods.
        mine = [one]
        for near in sorted({near for gpu in _worked(mine, spans) for near in on_gpu.get(gpu, ())}):
            members = together[near]
            touch = any(_one_job(one, other, spans) for other in members)
            if touch and not any(_one_moment(a, b) for a in mine for b in members):
                mine = [*mine, *members]
                del together[near]
                for gpu in _worked(members, spans):
                    on_gpu[gpu].discard(near)
        together[number] = mine
        for gpu in _worked(mine, spans):
            on_gpu.setdefault(gpu, set()).add(number)
    return Plan(_named([_group(members, spans) for members in together.values()]), duplicates)


def _same_recording(one: CaptureProbe, other: CaptureProbe) -> str | None:
    """Say why two captures are one recording; None if they are not."""
    if one.sha256 == other.sha256:
        return "the same content"
    one_origin, other_origin = one.utc_origin_ns, other.utc_origin_ns
    origins_differ = one_origin is not None and other_origin is not None and one_origin != other_origin
    if one.session_uuid is not None and other.session_uuid is not None:
        # One session can leave several reports (repeated capture ranges); each has an origin of its own.
        same = one.session_uuid == other.session_uuid and not origins_differ
        return "another export of the same profiling session" if same else None
    # Old schemas have no session id. Two recordings on one GPU do not begin in the same nanosecond.
    if one_origin is not None and one_origin == other_origin and one.gpus and one.gpus == other.gpus:
        return "another export of one recording: the same GPU from the same nanosecond on"
    return None


def _one_job(one: CaptureProbe, other: CaptureProbe, spans: Mapping[str, Span]) -> bool:
    mine, theirs = _window(one, spans), _window(other, spans)
    if mine is None or theirs is None or not set(mine[2]) & set(theirs[2]):
        return False
    return mine[0] <= theirs[1] and theirs[0] <= mine[1]


def _one_moment(one: CaptureProbe, other: CaptureProbe) -> bool:
    """Whether two captures claim one GPU from one nanosecond on: what a generator writes, and no two recordings do."""
    begun = one.utc_origin_ns is not None and one.utc_origin_ns == other.utc_origin_ns
    return begun and bool(set(one.gpus) & set(other.gpus))


def _worked(members: Sequence[CaptureProbe], spans: Mapping[str, Span]) -> set[str]:
    return {gpu for one in members if one.path in spans for gpu in spans[one.path].gpus}


def _window(one: CaptureProbe, spans: Mapping[str, Span]) -> tuple[int, int, tuple[str, ...]] | None:
    seen = spans.get(one.path)
    if seen is None or seen.start_ns is None or seen.end_ns is None or one.utc_origin_ns is None:
        return None
    return one.utc_origin_ns + seen.start_ns, one.utc_origin_ns + seen.end_ns, seen.gpus


def _group(members: Sequence[CaptureProbe], spans: Mapping[str, Span]) -> Group:
    # Content, not path, breaks ties: a result must not depend on where the files lie.
    ordered = sorted(members, key=lambda one: (one.utc_origin_ns or 0, one.sha256))
    counted: dict[str, int] = {}
    for one in ordered if len(ordered) > 1 else ():
        for gpu in spans[one.path].gpus:
            counted[gpu] = counted.get(gpu, 0) + 1
    first = Path(min(one.path for one in ordered))
    # Captures of one folder are called after it, so that `job-7/{node,pod-a,pod-b}.sqlite` becomes `job-7`.
    parents = {Path(one.path).parent for one in ordered}
    name = first.parent.name if len(ordered) > 1 and len(parents) == 1 and first.parent.name else first.stem
    return Group(name, tuple(ordered), tuple(sorted(gpu for gpu, n in counted.items() if n > 1)))


def _named(groups: list[Group]) -> tuple[Group, ...]:
    """Give every group a folder name of its own: with the folder of its captures, or a hash, only where needed."""

    def paths(group: Group) -> str:
        return "\0".join(sorted(one.path for one in group.captures))

    names = [_safe(group.name) for group in groups]
    for attempt in ("folder", "hash"):
        # Case must not decide: some file systems do not tell `A` from `a`.
        taken = [name.casefold() for name in names]
        often = Counter(taken)
        for place, group in enumerate(groups):
            if often[taken[place]] < 2:
                continue
            if attempt == "folder":
                folder = Path(paths(group).partition("\0")[0]).parent
                names[place] = _safe(f"{folder.name if folder.name != group.name else folder.parent.name}_{group.name}")
            else:
                digest = hashlib.sha256(paths(group).encode("utf-8", "surrogateescape")).hexdigest()
                names[place] = f"{names[place]}-{digest[:8]}"
    named = (Group(name, group.captures, group.gpus) for name, group in zip(names, groups, strict=True))
    return tuple(sorted(named, key=lambda group: group.name))


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", name).lstrip("._")[:_NAME_CHARACTERS] or "capture"


def _read(path: str, tables: Sequence[str]) -> Mapping[str, _core.Table]:
    from pyanalyze.core import _core
    from pyanalyze.tables.frames import ANALYSIS_TABLES

    export = path
    if Path(path).suffix in (".nsys-rep", ".qdrep"):
        from pyanalyze.inputs.nsys_report import export_report

        # All that the analysis will read, so that one export serves every step.
        export = str(export_report(Path(path), _core.physical_tables(list(ANALYSIS_TABLES))))
    return _core.read_capture(export, 0, list(tables), None)


def _frame(tables: Mapping[str, _core.Table], name: str) -> pl.DataFrame:
    from pyanalyze.tables.frames import to_frame

    return to_frame(tables[name])


def _gpus(devices: pl.DataFrame) -> tuple[str, ...]:
    return tuple(sorted({uuid for row in devices.select("uuid", "gpu_uuid").iter_rows() for uuid in row if uuid}))
