"""A part of the tables as tables: a window of time, one device.

What a capture of that part would have recorded is cut out; residency, tenants and facts are reconstructed from it by
the code that reconstructs whole captures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.tables.frames import FrameTable, to_core, to_frame
from pyanalyze.tables.names import named
from pyanalyze.tables.process_lists import as_of
from pyanalyze.tables.tableset import Selection, answered
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["activity_text", "narrowed", "narrowed_parts", "of_device", "span_text"]

#: Made from the rest of the session; everything else is input.
_RECONSTRUCTED = (
    "residency",
    "switches",
    "tenants",
    "tenant_usage",
    "overlaps",
    "facts",
    "fact_examples",
)
#: Tables of intervals, and of points in time.
_INTERVALS = (
    "kernels",
    "graph_launches",
    "memops",
    "api_calls",
    "profiler_overhead",
    "thread_runs",
    "nvtx",
    "host_calls",
)
_POINTS = ("gpu_metrics", "nvml_samples", "allocations", "cpu_samples")
_TIMED = (*_INTERVALS, *_POINTS, "switch_events")
#: Rows of `quality` that say which part of the time was recorded: each part has its own.
_OF_TIME = ("switch_records_partial", "captures_partly_together")


def narrowed(tables: TableSet, window: tuple[int, int] | None, gpu: int | None) -> TableSet:
    """Cut tables down to a window of time and one device.

    Parameters
    ----------
    tables
        The tables.
    window
        Start and end, nanoseconds; None keeps all.
    gpu
        Device id, as `pyanalyze info` shows them; None keeps all.

    Returns
    -------
    TableSet
        Its events are those of the window: intervals that cross an edge are cut there (copies keep their bytes),
        and whoever was resident at an edge holds it from or to there, in a slice that is not complete.

    Raises
    ------
    pyanalyze.errors.UsageError
        An empty window, one in which nothing was recorded, or a device that is not there.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> narrowed(tables, (240_000_000, 300_000_000), None).tenant_usage["last_ns"].max()
    300000000
    """
    if gpu is not None and gpu not in tables.devices["device_id"]:
        have = ", ".join(map(str, tables.devices["device_id"].sort()))
        raise UsageError(f"there is no GPU {gpu}; `pyanalyze info` lists them: {have or 'none'}")
    if window is not None and window[0] >= window[1]:
        raise UsageError(f"a window must end after it starts, not from {_span(window)}; {activity_text(tables)}")
    part = _cut(tables, _timed(tables), window, gpu)
    if part is None:
        raise UsageError(f"nothing was recorded from {_span(window or tables.span_ns)}; {activity_text(tables)}")
    (joined,) = _reconstructed(tables, [part])
    return joined


def of_device(tables: TableSet, gpu: int) -> TableSet:
    """Keep the events of one device, for :func:`narrowed_parts`.

    What samples, listings and settings say of any device stays, and so does what was reconstructed of all.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> [of_device(tables, gpu).frame("kernels").height / tables.frame("kernels").height for gpu in (0, 1)]
    [1.0, 0.0]
    """
    kept = {name: _core.cut(table, None, gpu) for name, table in _timed(tables).items() if name != "nvml_samples"}
    unchanged = [name for name in tables.stored if name not in kept]
    return tables.of_part({**tables.stored, **kept}, unchanged, selection=replace(tables.selection, gpu=gpu))


def narrowed_parts(tables: TableSet, windows: Sequence[tuple[int, int]]) -> list[TableSet | None]:
    """Cut tables down to several windows of time, reconstructed at once: as :func:`narrowed` one by one.

    Parameters
    ----------
    tables
        The tables.
    windows
        Start and end of each, nanoseconds.

    Returns
    -------
    list of TableSet or None
        In the order of the windows; None for an empty one, and for one in which nothing was recorded.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> [part.tenant_usage["last_ns"].max() for part in narrowed_parts(tables, [(0, 300_000_000)])]
    [300000000]
    """
    timed = _timed(tables)
    parts = [_cut(tables, timed, window, None) if window[0] < window[1] else None for window in windows]
    made = iter(_reconstructed(tables, [part for part in parts if part is not None]))
    return [None if part is None else next(made) for part in parts]


@dataclass(frozen=True)
class _Part:
    """What of the tables that were read lies in a part."""

    window: tuple[int, int] | None
    gpu: int | None
    events: dict[str, AnyTable]
    #: names of those that the cut left as they were
    unchanged: Sequence[str]
    answering: pl.DataFrame | None


def _timed(tables: TableSet) -> dict[str, _core.Table]:
    """The tables of events, as the core cuts them: a part of a large capture is mostly the memory of the whole."""
    return {name: to_core(table) for name, table in tables.stored.items() if name in _TIMED}


def _cut(
    tables: TableSet, timed: Mapping[str, _core.Table], window: tuple[int, int] | None, gpu: int | None
) -> _Part | None:
    """Cut what was read; None where there were events, and none in this window."""
    import polars as pl

    events: dict[str, AnyTable] = {name: _core.cut(table, window, gpu) for name, table in timed.items()}
    had = any(table.num_rows for table in timed.values())
    if (
        window is not None
        and had
        and not any(_left(timed[name], table, name, window) for name, table in events.items())
    ):
        return None
    if window is not None and "switches" in tables.stored:
        # Which contexts were being created shows in the whole recording only.
        events["switches"] = _core.cut(to_core(tables.stored["switches"]), window, gpu)
    unchanged: list[str] = []
    for name, table in tables.stored.items():
        if name in timed or name in _RECONSTRUCTED:
            continue
        frame = tables.frame(name)
        kept = frame if gpu is None else _of_device(name, frame, gpu)
        if name == "quality" and not set(_OF_TIME).isdisjoint(row["name"] for row in tables.rows(name)):
            kept = kept.filter(~pl.col("name").cast(pl.String).is_in(_OF_TIME))
        events[name] = table if kept is frame else FrameTable(name, kept)
        unchanged += [name] if kept is frame else []
    return _Part(window, gpu, events, unchanged, _answering(tables, window, gpu))


def _answering(tables: TableSet, window: tuple[int, int] | None, gpu: int | None) -> pl.DataFrame | None:
    """Samples that answer for a part: those of its time, and lists of processes. See `TableSet.answering`."""
    if window is None or tables.process_samples.is_empty():
        samples = tables.answering
        return None if samples is None else _cut_frame("nvml_samples", samples, window, gpu)
    return _cut_frame("nvml_samples", as_of(tables.samples, window), None, gpu)


def _left(whole: _core.Table, cut: AnyTable, name: str, window: tuple[int, int]) -> bool:
    """Whether anything of a table is in a window.

    Who was resident at the last switch record is so at the start of any window behind it: that is nothing recorded.
    """
    if name != "switch_events" or not cut.num_rows:
        return bool(cut.num_rows)
    return bool((to_frame(whole)["time_ns"] >= window[0]).any())


def _cut_frame(name: str, frame: pl.DataFrame, window: tuple[int, int] | None, gpu: int | None) -> pl.DataFrame:
    """Cut a frame that stands for a table of the core."""
    if name in _TIMED:
        return to_frame(_core.cut(to_core(FrameTable(name, frame)), window, gpu))
    return frame if gpu is None else _of_device(name, frame, gpu)


def _reconstructed(tables: TableSet, parts: Sequence[_Part]) -> list[TableSet]:
    made = _core.reconstruct_parts([(answered(part.events, part.answering), part.window) for part in parts])
    switched = {_process(row) for row in tables.rows("tenants") if row["hw_contexts"] and row["pid"] is not None}
    return [_joined(tables, switched, part, one) for part, one in zip(parts, made, strict=True)]


def _process(tenant: Mapping[str, Any]) -> tuple[Any, ...]:
    """A process on a device: ids of tenants differ from part to part."""
    return tenant["device_id"], tenant["capture"], tenant["pid"]


def _joined(tables: TableSet, switched: Collection[tuple[Any, ...]], part: _Part, made: dict[str, Any]) -> TableSet:
    """Put the events of a part and what was reconstructed of them together."""
    window, gpu = part.window, part.gpu
    recorded = made["tenants"]
    if window is not None:
        made["tenant_usage"] = _out_of_turn(made, switched)
    was = tables.selection
    selection = Selection(
        start_ns=was.start_ns if window is None else window[0],
        end_ns=was.end_ns if window is None else window[1],
        gpu=was.gpu if gpu is None else gpu,
        redacted=was.redacted,
    )
    given = {**part.events, **made}
    given["tenants"] = named(recorded, to_frame(part.events["configured"]), tables.names, tables.paths, narrowed=True)

    def transform(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        return _cut_frame(name, frame, window, gpu)

    return tables.of_part(
        given,
        [name for name in part.unchanged if given[name] is tables.stored[name]],
        recorded_tenants=recorded,
        answering=part.answering,
        selection=selection,
        late_transforms=(*tables.late_transforms, transform),
    )


def span_text(tables: TableSet, first_ns: int, last_ns: int) -> str:
    """From when to when, in each form in which times are given.

    Examples
    --------
    >>> import pyanalyze
    >>> span_text(pyanalyze.load(capture).tables, 0, 1_200_000_000)
    'from 0 ns to 1200000000 ns (0.000 s to 1.200 s; 2026-03-14 05:26:53.589 UTC to 2026-03-14 05:26:54.789 UTC)'
    """
    origin_ns = tables.capture["utc_origin_ns"][0]
    dates = [] if origin_ns is None else [fmt.utc(str(origin_ns), position) for position in (first_ns, last_ns)]
    return f"from {_span((first_ns, last_ns), *dates)}"


def activity_text(tables: TableSet) -> str:
    """Where there is something to see, for a window that missed it."""
    first, last = tables.span_ns
    if first == last:
        return "no kernel, graph or residency interval was recorded"
    return f"activity is {span_text(tables, first, last)}"


def _span(window: tuple[int, int], *dates: str) -> str:
    start, end = window
    dated = f"; {' to '.join(dates)}" if dates else ""
    return f"{start} ns to {end} ns ({start / 1e9:.3f} s to {end / 1e9:.3f} s{dated})"


def _of_device(name: str, frame: pl.DataFrame, gpu: int) -> pl.DataFrame:
    """Events of one device. Devices stay listed: how many there are is evidence."""
    import polars as pl

    if name in ("devices", "contexts", "configured") or "device_id" not in frame.columns:
        return frame
    unknown = pl.col("device_id").is_null()
    return frame.filter((pl.col("device_id") == gpu) | unknown)


def _out_of_turn(made: dict[str, Any], switched: Collection[tuple[Any, ...]]) -> AnyTable:
    """The usage of tenants of a part: whose switches are on record elsewhere, but not here, was not resident.

    `switched` has device, capture and pid of those whose switches are on record. That another tenant did must be on
    record here: switch records may end before the trace does.
    """
    made_usage: AnyTable = made["tenant_usage"]
    usage = to_frame(made_usage)
    if not switched or not usage["resident_ns"].null_count():
        return made_usage
    import polars as pl

    here = [row["tenant_id"] for row in made["tenants"].to_dicts() if _process(row) in switched]
    never = pl.col("tenant_id").is_in(here) & pl.col("resident_ns").is_null()
    never &= pl.col("device_id").is_in(to_frame(made["residency"])["device_id"].unique().to_list())
    nothing = {
        name: pl.when(never).then(0).otherwise(name) for name in ("resident_ns", "attributed_ns", "resident_idle_ns")
    }
    return FrameTable("tenant_usage", usage.with_columns(**nothing))
