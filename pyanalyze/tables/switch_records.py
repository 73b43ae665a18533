"""Switch records of an export that lacks some of them: from when to when they tell which context was resident."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.tables.frames import FrameTable, to_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.tables.frames import AnyTable

__all__ = ["RESTORE_START", "SAVE_END", "SWITCH_RECORDS_CUT", "telling_records"]

#: Tags of switch records: the state of a context was saved, that of the next is being restored.
SAVE_END: Final = 7
RESTORE_START: Final = 8
#: The counter of an export that holds fewer switch records than nsys collected.
SWITCH_RECORDS_CUT: Final = "switch_records_cut"
#: Part of the time of work that records may miss and still tell of all of it: they begin and end inside of residency
#: intervals. As the core has it (`LEAST_MISSED`).
_MISSED: Final = 0.05
_WORK: Final = ("kernels", "graph_launches", "memops")


def telling_records(tables: Mapping[str, AnyTable]) -> dict[str, AnyTable]:
    """Leave out switch records of a cut export that tell nothing of the time of the work.

    In a whole table, a context is resident from its last RESTORE_START on, and one that begins with a SAVE_END was
    resident before: there was no other switch. In a cut table any record may be missing there. So an interval that is
    open towards a notable part of the time of the work is left out, and so are all records of a device of which none
    is of that time: then it is as if they had not been captured.

    Parameters
    ----------
    tables
        Tables of captures that were joined, by name; none of them is reconstructed yet.

    Returns
    -------
    dict
        Those that change: `switch_events`, and `sources` of their captures, which name no physical table any more: a
        query of it counts others. Where no record remains, the state is `removed`. Nothing where the exports are whole.

    Examples
    --------
    >>> import pyanalyze
    >>> telling_records(pyanalyze.load(capture).tables.stored)
    {}
    """
    import polars as pl

    if "switch_events" not in tables or not tables["switch_events"].num_rows:
        return {}
    quality = to_frame(tables["quality"])
    cut = (
        quality.filter(pl.col("name").cast(pl.String) == SWITCH_RECORDS_CUT)["capture"].drop_nulls().unique().to_list()
    )
    if not cut:
        return {}
    records = to_frame(tables["switch_events"])
    times = _times_of_work(tables)
    untold = [
        part.select("row")
        for (capture, device), each in records.with_row_index("row").group_by("capture", "device_id")
        if capture in cut and device in times and (part := _untold(each, *times[device])).height
    ]
    if not untold:
        return {}
    left = records.with_row_index("row").join(pl.concat(untold), on="row", how="anti").drop("row")
    before, after = (part["capture"].value_counts() for part in (records, left))
    counts = dict.fromkeys(before["capture"], 0) | dict(after.iter_rows())
    fewer = [capture for capture, count in before.iter_rows() if counts[capture] < count]
    gone = [capture for capture in fewer if not counts[capture]]
    of_switches = pl.col("source").cast(pl.String) == "switch_events"
    state, table = (pl.col(name).cast(pl.String) for name in ("state", "physical_table"))
    sources = to_frame(tables["sources"]).with_columns(
        state=pl.when(of_switches & pl.col("capture").is_in(gone)).then(pl.lit("removed")).otherwise(state),
        physical_table=pl.when(~(of_switches & pl.col("capture").is_in(fewer))).then(table),
    )
    return {"switch_events": FrameTable("switch_events", left), "sources": FrameTable("sources", sources)}


def _times_of_work(tables: Mapping[str, AnyTable]) -> dict[int, tuple[int, int]]:
    """First start and last end of work on each device."""
    import polars as pl

    start, end = pl.col("start_ns").min(), pl.col("end_ns").max()
    parts = [
        to_frame(tables[name]).group_by("device_id").agg(start, end)
        for name in _WORK
        if name in tables and tables[name].num_rows
    ]
    if not parts:
        return {}
    spans = pl.concat(parts).group_by("device_id").agg(start, end).drop_nulls()
    return {device: (first, last) for device, first, last in spans.iter_rows()}


def _untold(records: pl.DataFrame, first_ns: int, last_ns: int) -> pl.DataFrame:
    """Which records of a device tell nothing of the time of its work."""
    import polars as pl

    ends = records.filter(pl.col("tag").is_in([SAVE_END, RESTORE_START])).sort("time_ns", maintain_order=True)
    gone: pl.Expr = pl.lit(value=False)
    if ends.is_empty():
        return records.clear()
    slack_ns = _MISSED * (last_ns - first_ns)
    open_start, open_end = ends["time_ns"][0], ends["time_ns"][-1]
    if ends["tag"][0] == SAVE_END and open_start - first_ns > slack_ns:
        gone |= pl.col("time_ns") <= open_start
    if ends["tag"][-1] == RESTORE_START and last_ns - open_end > slack_ns:
        gone |= pl.col("time_ns") >= open_end
    left = records.filter(~gone)["time_ns"]
    if (left < first_ns).all() or (left > last_ns).all():
        return records
    return records.filter(gone)
