"""The captures: their clock, which records an export holds, and GPUs without work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.sharing.missing import HOW
from pyanalyze.results.model import Missing
from pyanalyze.results.report import Clock, RecordsHeld
from pyanalyze.tables.cut_exports import COUNTER_SAMPLES_CUT
from pyanalyze.tables.switch_records import SWITCH_RECORDS_CUT
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyanalyze.tables.tableset import TableSet

#: Sources of what the GPU did.
_EVENT_SOURCES = ("kernels", "copies", "graph_launches", "switch_events", "gpu_metrics", "allocations")


def clock_of(tables: TableSet) -> Clock:
    """What positions count from, and how far the clocks of several captures may be apart.

    Parameters
    ----------
    tables
        The tables.

    Examples
    --------
    >>> import pyanalyze
    >>> clock_of(pyanalyze.load(capture).tables).origin_utc_ns is None
    False
    """
    captures = tables.capture.select("utc_origin_ns", "clock_uncertainty_ns").rows()
    origin = captures[0][0]
    known = [uncertainty for _, uncertainty in captures if uncertainty is not None]
    return Clock(
        origin_utc_ns=None if origin is None else str(origin),
        uncertainty_ns=max(known) if len(known) == len(captures) else None,
        origin_local_ns=None if origin is not None or tables.paths else _local_origin(tables),
    )


def _local_origin(tables: TableSet) -> str | None:
    """Local time of position 0; None: samples have none, or files of several zones, which cannot be told apart."""
    import polars as pl

    rows = tables.samples.filter(pl.col("time_local_ns").is_not_null() & pl.col("time_ns").is_not_null())
    origins = rows.select((pl.col("time_local_ns") - pl.col("time_ns")).unique()).to_series().to_list()
    return str(origins[0]) if len(origins) == 1 else None


#: What an export may hold a part of, by field of `Capture`: how it is counted, of which sources.
_COUNTED: Final = {
    "cuda_events": ("export_cut", ("kernels", "copies", "api_calls")),
    "switch_records": (SWITCH_RECORDS_CUT, ("switch_events",)),
}
#: Tables of what the GPU did, with the columns of their times.
_HELD: Final = {
    "kernels": ("start_ns", "end_ns"),
    "graph_launches": ("start_ns", "end_ns"),
    "memops": ("start_ns", "end_ns"),
    "switch_events": ("time_ns", "time_ns"),
    "gpu_metrics": ("time_ns", "time_ns"),
}


def records_held(tables: TableSet) -> dict[int, dict[str, RecordsHeld]]:
    """Count records by capture and field of `Capture`, where an export holds fewer than nsys collected."""
    found: dict[int, dict[str, RecordsHeld]] = {}
    for field, (counter, sources) in _COUNTED.items():
        for row in tables.rows_where("quality", "name", counter):
            held = [
                one["rows"]
                for one in tables.rows_where("sources", "capture", row["capture"])
                if one["source"] in sources
            ]
            if row["count"] and held:
                records = RecordsHeld(held=sum(held), collected=sum(held) + row["count"])
                found.setdefault(row["capture"], {})[field] = records
    cut = {row["capture"]: row["count"] for row in tables.rows_where("quality", "name", COUNTER_SAMPLES_CUT)}
    if cut and "gpu_metrics" in tables and not _of_part_of_time(tables):
        # A sample has a row for each counter.
        samples = tables.columns("gpu_metrics", "capture", "device_id", "time_ns").unique()
        for capture, held_samples in samples["capture"].value_counts().iter_rows():
            if count := cut.get(capture):
                records = RecordsHeld(held=held_samples, collected=held_samples + count)
                found.setdefault(capture, {})["counter_samples"] = records
    return found


def held_times_ns(tables: TableSet, captures: Collection[int]) -> dict[int, tuple[int, int]]:
    """First and last record of what the GPU did in some captures; of a part of the time nobody asks."""
    import polars as pl

    if not captures or _of_part_of_time(tables):
        return {}
    spans = [
        tables.columns(name, "capture", *{start, end})
        .group_by("capture")
        .agg(first=pl.col(start).min(), last=pl.col(end).max())
        for name, (start, end) in _HELD.items()
        if name in tables and tables.row_count(name)
    ]
    if not spans:
        return {}
    whole = pl.concat(spans).group_by("capture").agg(pl.col("first").min(), pl.col("last").max())
    return {capture: (first, last) for capture, first, last in whole.iter_rows() if capture in captures}


def _of_part_of_time(tables: TableSet) -> bool:
    return (tables.selection.start_ns, tables.selection.end_ns) != (None, None)


def cut_export(tables: TableSet, captures: Collection[int], sampled_ns: Mapping[int, int]) -> list[Missing]:
    """Say how much of what nsys collected is not in these exports: every figure rests on the rest.

    `sampled_ns`: of exports that only their counter samples show to be cut, the time that these cover.
    """
    held = records_held(tables)
    lacking: list[str] = []
    # Hardware counters have an entry of their own, and nothing else is computed from them.
    for field, what in (("cuda_events", "CUDA events"), ("switch_records", "context-switch records")):
        some = [records[field] for capture, records in held.items() if capture in captures and field in records]
        if some:
            collected = sum(one.collected for one in some)
            lacking.append(f"{fmt.count(collected - sum(one.held for one in some))} of {fmt.count(collected)} {what}")
    if not lacking:
        covered = {one: ns for one, ns in sampled_ns.items() if one in captures}
        if not covered:
            return []
        lengths = [
            (covered[row["capture"]], row["recording_end_ns"] - row["recording_start_ns"])
            for row in tables.rows("capture")
            if row["capture"] in covered
        ]
        shown = fmt.names([f"{fmt.duration(ns)} of {fmt.duration(recorded)}" for ns, recorded in lengths])
        why = f"the export was cut: counter samples, which nsys takes all the time, cover {shown} of recording"
        return [Missing(what="export_rows", why=why, how=HOW["whole_export"])]
    why = f"the export was cut: it lacks {fmt.names(lacking)} that nsys collected"
    return [Missing(what="export_rows", why=why, how=HOW["whole_export"])]


def other_gpus_without_work(tables: TableSet, shown: set[int]) -> int:
    """Count GPUs that the captures list beside those with an entry, a board with MIG instances once.

    A report of one device, or of a part of the time, says nothing of the others.
    """
    if tables.selection.narrowed:
        return 0
    boards: dict[object, set[int]] = {}
    for row in tables.rows("devices"):
        boards.setdefault(row["gpu_uuid"] or row["uuid"] or row["device_id"], set()).add(row["device_id"])
    return sum(devices.isdisjoint(shown) for devices in boards.values())


def captures_without_events(tables: TableSet) -> set[int]:
    """Captures of which no table of what the GPU did has a row; without a capture, samples have times of their own."""
    if not tables.paths:
        return set()
    rows = [row for row in tables.rows("sources") if row["source"] in _EVENT_SOURCES]
    return {row["capture"] for row in rows} - {row["capture"] for row in rows if row["rows"]}
