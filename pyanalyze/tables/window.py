"""A part of a session as a session: a window of time, one GPU, names replaced.

What a capture of that window, or a profiler without names, would have recorded is put together here, in frames; who
held the GPU is then reconstructed by the same rooms as ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.inputs.sample_alignment import answering
from pyanalyze.tables.frames import KNOWN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import polars as pl

    from pyanalyze.analysis.interference.baselines import Summary
    from pyanalyze.session import Session

__all__ = ["FrameTable", "Names", "Selection", "narrowed", "redacted"]

#: Made from the rest of the session; everything else is input.
_RECONSTRUCTED = (
    "residency",
    "switches",
    "tenants",
    "tenant_usage",
    "charged",
    "overlaps",
    "facts",
    "fact_examples",
)
#: Tables of intervals, and of points in time.
_INTERVALS = ("kernels", "graph_launches", "memops", "api_calls", "profiler_overhead", "thread_runs", "nvtx")
_POINTS = ("gpu_metrics", "nvml_samples", "allocations")

_SAVE_END, _RESTORE_START = 7, 8


@dataclass(frozen=True)
class Selection:
    """What part of its captures a session shows; None: not narrowed in that respect."""

    start_ns: int | None = None
    end_ns: int | None = None
    gpu: int | None = None
    redacted: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether there may be tenants in the captures that are not in the session."""
        return (self.start_ns, self.end_ns, self.gpu) != (None, None, None)


@dataclass(frozen=True)
class FrameTable:
    """A polars frame in the place of a table of the core: it says which declared table it is."""

    name: str
    frame: pl.DataFrame

    @property
    def schema_id(self) -> str:
        """``name@version``."""
        return f"{self.name}@{KNOWN_VERSIONS[self.name]}"

    @property
    def num_rows(self) -> int:
        """Rows."""
        return self.frame.height

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows out as Arrow, as the tables of the core do."""
        return self.frame.__arrow_c_stream__(requested_schema)


def narrowed(session: Session, window: tuple[int, int] | None, gpu: int | None) -> Session:
    """Cut a session down to a window of time and one device.

    Parameters
    ----------
    session
        A session.
    window
        Start and end on the session clock, nanoseconds; None keeps all.
    gpu
        Device id, as `pyanalyze info` shows them; None keeps all.

    Returns
    -------
    Session
        Its events are those of the window: intervals that cross an edge are cut there (copies keep their bytes),
        and whoever held the GPU at an edge holds it from or to there, in a slice that is not complete.

    Raises
    ------
    pyanalyze.errors.UsageError
        An empty window, one in which nothing was recorded, or a device that is not there.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> narrowed(session, (240_000_000, 300_000_000), None).tenant_usage["last_ns"].max()
    300000000
    """
    if gpu is not None and gpu not in session.devices["device_id"]:
        have = ", ".join(map(str, session.devices["device_id"].sort()))
        raise UsageError(f"there is no GPU {gpu}; `pyanalyze info` lists them: {have or 'none is named'}")
    if window is not None and window[0] >= window[1]:
        raise UsageError(
            f"a window must end after it starts, not from {window[0]} ns to {window[1]} ns{_activity(session)}"
        )
    # Events of the core are cut there: a part of a large capture is then mostly the memory of the whole.
    events = (*_INTERVALS, *_POINTS, "switch_events")
    ours = {
        name: _core.cut(table, window, gpu)
        for name, table in session.tables.items()
        if name in (*_INTERVALS, *_POINTS) and isinstance(table, _core.Table)
    }
    frames = {name: session.frame(name) for name in session.tables if name not in (*_RECONSTRUCTED, *ours)}
    had = any(session.rows(name) for name in events if name in session.tables)
    if gpu is not None:
        frames = {name: _of_device(name, frame, gpu) for name, frame in frames.items()}
    if window is not None:
        frames = {name: _within(name, frame, *window) for name, frame in frames.items()}
        left = [table.num_rows for table in ours.values()]
        if had and not any([*left, *(frames[name].height for name in events if name in frames)]):
            raise UsageError(f"nothing was recorded from {window[0]} ns to {window[1]} ns{_activity(session)}")
    if session.names and "tenants" in session.tables:
        # A name that fits nobody is told by all of the tenants: in a part of them anybody may be missing.
        _ = session.tenants
    # What was read from context files and counted in Python is added again by the session itself.
    for name in ("configured", "quality"):
        frames[name] = _raw(session, name)
    tables: dict[str, Any] = {name: FrameTable(name, frame) for name, frame in frames.items()} | ours
    made: dict[str, Any] = dict(_core.reconstruct(tables | answering(tables), None))
    if window is not None:
        made["residency"] = FrameTable("residency", _open_at_edges(made["residency"], *window))
        made["tenant_usage"] = FrameTable("tenant_usage", _out_of_turn(made, _raw(session, "tenants")))
    tables |= made
    was = session.selection
    selection = Selection(
        start_ns=was.start_ns if window is None else window[0],
        end_ns=was.end_ns if window is None else window[1],
        gpu=was.gpu if gpu is None else gpu,
        redacted=was.redacted,
    )

    def lens(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        frame = frame if gpu is None else _of_device(name, frame, gpu)
        return frame if window is None else _within(name, frame, *window)

    return replace(session, tables=tables, selection=selection, lenses=(*session.lenses, lens))


def _activity(session: Session) -> str:
    """Where there is something to see, for a window that missed it."""
    first, last = session.span_ns
    if first == last:
        return "; no kernel, graph or slice was recorded at all"
    return f"; activity is from {first} ns to {last} ns ({first / 1e9:.3f} s to {last / 1e9:.3f} s)"


def _raw(session: Session, name: str) -> pl.DataFrame:
    from pyanalyze.tables.frames import to_frame

    return to_frame(session.table(name))


def _of_device(name: str, frame: pl.DataFrame, gpu: int) -> pl.DataFrame:
    """Events of one device. Devices stay listed: how many there are is evidence."""
    import polars as pl

    if name in ("devices", "contexts", "configured") or "device_id" not in frame.columns:
        return frame
    unknown = pl.col("device_id").is_null()
    return frame.filter((pl.col("device_id") == gpu) | unknown)


def _within(name: str, frame: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    import polars as pl

    if name == "switch_events":
        return _switches_within(frame, start_ns, end_ns)
    if name in _POINTS:
        return frame.filter(pl.col("time_ns").is_null() | pl.col("time_ns").is_between(start_ns, end_ns))
    if name not in _INTERVALS:
        return frame
    # A mark of NVTX has no end.
    last = pl.coalesce("end_ns", "start_ns")
    inside = frame.filter((pl.col("start_ns") < end_ns) & (last >= start_ns))
    cut = [pl.col("start_ns").clip(start_ns), pl.col("end_ns").clip(upper_bound=end_ns)]
    # Cutting moves starts to one point: the order by (cut) start is still that of the table.
    return inside.with_columns(cut)


def _switches_within(events: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Records inside the window, and those that say who held the engine at its edges, moved to the edge."""
    import polars as pl

    kept: list[pl.DataFrame] = []
    for part in events.partition_by("device_id", maintain_order=True):
        before = part.filter(pl.col("time_ns") < start_ns)
        after = part.filter(pl.col("time_ns") > end_ns)
        inside = part.filter(pl.col("time_ns").is_between(start_ns, end_ns))
        kept += [_since_restored(before, start_ns), inside, _until_saved(after, end_ns)]
    return pl.concat([events.clear(), *kept]).sort("time_ns", "device_id", maintain_order=True)


def _since_restored(before: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """The records from the last RESTORE_START on, where no SAVE_END follows it."""
    import polars as pl

    tags = before["tag"]
    restored, saved = (tags == _RESTORE_START).arg_true(), (tags == _SAVE_END).arg_true()
    last = int(restored[-1]) if len(restored) else -1
    if last < 0 or (len(saved) and int(saved[-1]) > last):
        return before.clear()
    return before[last:].with_columns(pl.lit(start_ns, dtype=pl.Int64).alias("time_ns"))


def _until_saved(after: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """The records up to the next SAVE_END, where no RESTORE_START comes first."""
    import polars as pl

    tags = after["tag"]
    restored, saved = (tags == _RESTORE_START).arg_true(), (tags == _SAVE_END).arg_true()
    first = int(saved[0]) if len(saved) else -1
    if first < 0 or (len(restored) and int(restored[0]) < first):
        return after.clear()
    return after[: first + 1].with_columns(pl.lit(end_ns, dtype=pl.Int64).alias("time_ns"))


def _open_at_edges(residency: Any, start_ns: int, end_ns: int) -> pl.DataFrame:
    """A slice that was cut is not complete, so that it enters no statistics of slices."""
    import polars as pl

    from pyanalyze.tables.frames import to_frame

    frame = to_frame(residency)
    cut = (pl.col("start_ns") <= start_ns) | (pl.col("end_ns") >= end_ns)
    return frame.with_columns(pl.col("complete") & ~cut)


def _out_of_turn(made: dict[str, Any], all_tenants: pl.DataFrame) -> pl.DataFrame:
    """The usage of tenants of a part: whose switches are on record elsewhere, but not here, did not hold the engine.

    That somebody else did must be on record here: switch records may end before the trace does.
    """
    import polars as pl

    from pyanalyze.tables.frames import to_frame

    who = ("device_id", "capture", "pid")
    recorded = all_tenants.filter(pl.col("hw_contexts").str.len_chars() > 0).select(*who).drop_nulls("pid").unique()
    here = to_frame(made["tenants"]).join(recorded, on=list(who), how="semi", nulls_equal=True)
    usage = to_frame(made["tenant_usage"])
    never = pl.col("tenant_id").is_in(here["tenant_id"].to_list()) & pl.col("resident_ns").is_null()
    never &= pl.col("device_id").is_in(to_frame(made["residency"])["device_id"].unique().to_list())
    nothing = {
        name: pl.when(never).then(0).otherwise(name) for name in ("resident_ns", "charged_ns", "resident_idle_ns")
    }
    return usage.with_columns(**nothing)


#: Names that say what a program is and not whose: verdicts and readers look for them.
_PUBLIC = re.compile(r"nvidia-(cuda-mps.*|persistenced|smi|dcgm.*)|nv-hostengine|other users|unknown process|pid \d+")
_OWNED = re.compile(r"\b(pods|pod|node|container|claim|namespace)=(\S+)")
_PATH = re.compile(r"(?<![\w/])/[^\s,;:'\"()\[\]]{2,}")


class Names:
    """One pseudonym per kind and name, the same wherever the name stands.

    Parameters
    ----------
    invent
        Gives the pseudonym of a name: called with the kind (`kernel`, `process`, ...), the name and how many of that
        kind there were before.

    Examples
    --------
    >>> names = Names(lambda kind, name, before: f"{kind}-{before + 1}")
    >>> names.of("process", "trainer"), names.of("process", "nvidia-cuda-mps-server"), names.of("process", "trainer")
    ('process-1', 'nvidia-cuda-mps-server', 'process-1')
    """

    def __init__(self, invent: Callable[[str, str, int], str]) -> None:
        self._invent = invent
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        # The pattern of all names seen, kept until there are more: thousands of them take seconds to compile.
        self._compiled: tuple[re.Pattern[str] | None, Mapping[str, str]] | None = None

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name; programs of the driver keep theirs."""
        if not name or _PUBLIC.fullmatch(name):
            return name
        found = self._known.get((kind, name))
        if found is None:
            before = self._counts.get(kind, 0)
            found = self._known[kind, name] = self._invent(kind, name, before)
            self._counts[kind] = before + 1
            if kind != "path":
                self._compiled = None
        return found

    def items(self) -> Iterator[tuple[str, str, str]]:
        """Kind, name and pseudonym of every name seen."""
        return ((kind, name, given) for (kind, name), given in self._known.items())

    def in_text(self, text: str) -> str:
        """Replace every name seen, and every path, inside free text."""
        pattern, lookup = self._pattern()
        if pattern is not None:
            text = pattern.sub(lambda match: lookup[match.group()], text)
        return _PATH.sub(lambda match: self.of("path", match.group()), text)

    def in_setting(self, text: str) -> str:
        """Replace what a configured value names: a process, a pod, a node, a container, a path; words stay words."""
        if ("process", text) in self._known:
            return self._known["process", text]
        text = _OWNED.sub(lambda match: f"{match[1]}={self.of(match[1].removesuffix('s'), match[2])}", text)
        return _PATH.sub(lambda match: self.of("path", match.group()), text)

    def _pattern(self) -> tuple[re.Pattern[str] | None, Mapping[str, str]]:
        if self._compiled is not None:
            return self._compiled
        # Paths come after: they may hold names. One or two characters are no name that could be told from a word.
        lookup = {name: given for (kind, name), given in self._known.items() if kind != "path" and len(name) > 2}
        words = sorted(lookup, key=len, reverse=True)
        pattern = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words)) if words else None
        self._compiled = pattern, lookup
        return self._compiled


#: table -> column -> kind of name. Device names and UUIDs stay: they say which hardware, not whose.
NAMED: Mapping[str, Mapping[str, str]] = {
    "capture": {"path": "capture"},
    "processes": {"name": "process"},
    "tenants": {"name": "process", "container": "container", "pod": "pod"},
    "kernels": {"name": "kernel", "short_name": "kernel"},
    "nvtx": {"text": "range"},
    "slowdowns": {"name": "kernel"},
    "tenant_slowdowns": {"work": "range"},
    "nvml_samples": {"process_name": "process", "pods": "pod", "source": "file"},
}
#: table -> columns with free text in which names may stand.
FREE: Mapping[str, tuple[str, ...]] = {
    "quality": ("detail",),
    "facts": ("detail",),
    "configured": ("value",),
}


def renamed(name: str, frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Give every name of a table its pseudonym.

    Parameters
    ----------
    name
        The table.
    frame
        Its rows.
    names
        The pseudonyms; new names are added.

    Returns
    -------
    polars.DataFrame
        The same rows; a short kernel name gets the pseudonym of the whole one where each belongs to one.
    """
    for column, kind in NAMED.get(name, {}).items():
        if column in frame.columns:
            frame = _replaced(frame, column, lambda text, kind=kind: names.of(kind, text))  # type: ignore[misc]
    return frame


def freed(name: str, frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Replace the names seen so far inside a table's free text."""
    for column in FREE.get(name, ()):
        if column in frame.columns:
            frame = _replaced(frame, column, names.in_setting if name == "configured" else names.in_text)
    return frame


def _replaced(frame: pl.DataFrame, column: str, give: Callable[[str], str]) -> pl.DataFrame:
    import polars as pl

    kind = frame.schema[column]
    text = frame[column].cast(pl.String)
    # In the order of first appearance, once each: a capture has millions of rows and few names.
    old = text.drop_nulls().unique(maintain_order=True).to_list()
    if not old:
        return frame
    new = [give(value) for value in old]
    return frame.with_columns(text.replace_strict(old, new, default=None, return_dtype=pl.String).cast(kind))


def _renamed_summary(summary: Summary, names: Names) -> Summary:
    if summary.source is None:
        return summary
    name = names.of("capture", summary.source)
    return replace(
        summary, source=name, notes=tuple(names.in_text(note.replace(summary.source, name)) for note in summary.notes)
    )


def numbered() -> Names:
    """Names whose pseudonyms are numbers in the order of first appearance."""
    return Names(lambda kind, _, before: f"{kind}-{before + 1}")


def redacted(session: Session, names: Names | None = None) -> Session:
    """Replace the names of processes, kernels, ranges, containers, pods, hosts and files by numbered ones.

    Parameters
    ----------
    session
        A session.
    names
        The pseudonyms given so far, where several sessions shall have them in common; new ones are added.

    Returns
    -------
    Session
        The same numbers under other names: consistent, and nothing in it leads back. Names given with `tenants=`
        stay; so do GPU names and UUIDs.

    Examples
    --------
    >>> import pyanalyze
    >>> redacted(pyanalyze.load(capture)).tenants["name"].to_list()
    ['process-1', 'process-2', 'process-3']
    """
    # What is read and compared only when asked for could not be found under its new name.
    session = session.complete()
    # Kernels of a saved report are digests of their names: they must be compared before the names are gone.
    summaries: Mapping[tuple[int, int], Summary] = (
        {
            (row["device_id"], row["tenant_id"]): session.against_saved(row["device_id"], row["tenant_id"], row["name"])
            for row in session.tenants.filter("traced").iter_rows(named=True)
        }
        if session.saved_baselines
        else {}
    )
    names = numbered() if names is None else names
    # Tenants first, so that their numbers are those of their order on the page.
    order = sorted(session.tables, key=lambda name: (name not in NAMED, name != "tenants", name))
    frames = {name: renamed(name, _raw(session, name), names) for name in order}
    given: dict[str, Any] = {name: FrameTable(name, freed(name, frame, names)) for name, frame in frames.items()}
    return replace(
        session,
        tables=given,
        extra_configured=tuple(freed("configured", frame, names) for frame in session.extra_configured),
        extra_quality=tuple((counter, names.in_text(detail)) for counter, detail in session.extra_quality),
        baselines=tuple(replace(one, path=Path(names.of("capture", str(one.path)))) for one in session.baselines),
        saved_baselines=(),
        work=None if session.work is None else renamed("nvtx", session.work, names),
        _summaries={key: _renamed_summary(one, names) for key, one in summaries.items()},
        selection=replace(session.selection, redacted=True),
        lenses=(*session.lenses, lambda name, frame: renamed(name, frame, names)),
    )
