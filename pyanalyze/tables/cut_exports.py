"""Exports that hold a part of their recording, where nsys does not say how much it collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.tables.switch_records import SWITCH_RECORDS_CUT

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "COUNTER_SAMPLES_CUT",
    "CUT_RECORDS",
    "LEAST_COVERED",
    "cut_captures",
    "sampled_spans",
    "sampled_spans_of_cut",
]

#: The counter of samples of hardware counters that nsys collected and the export lacks.
COUNTER_SAMPLES_CUT: Final = "counter_samples_cut"
#: Counters of records that nsys collected and the export lacks, and what they count.
CUT_RECORDS: Final = {
    "export_cut": "CUDA events",
    SWITCH_RECORDS_CUT: "context-switch records",
    COUNTER_SAMPLES_CUT: "counter samples",
}

#: Part of the recording that its records cover at least where no rows were removed. Counter samples nsys takes all the
#: time: those of whole recordings of the corpus cover 0.94 and more, those of parts in `fixtures/hardware` up to 0.10.
LEAST_COVERED: Final = 0.5
#: Counters of exports of which nsys says how much it collected.
_TOLD: Final = frozenset({COUNTER_SAMPLES_CUT, "export_cut"})


def sampled_spans_of_cut(tables: TableSet) -> dict[int, int]:
    """Find exports whose samples of hardware counters end long before the recording, or begin long after it.

    Parameters
    ----------
    tables
        The tables.

    Returns
    -------
    dict of int to int
        By capture: from its first sample to its last, ns. Captures of which nsys itself says what is missing are left
        out, and all where only a part of the time is looked at.

    Examples
    --------
    >>> import pyanalyze
    >>> sampled_spans_of_cut(pyanalyze.load(capture).tables)
    {}
    """
    told = {row["capture"] for row in tables.rows("quality") if row["name"] in _TOLD}
    return {capture: ns for capture, (ns, _) in sampled_spans(tables).items() if capture not in told}


def cut_captures(tables: TableSet) -> set[int]:
    """Captures whose export is known to hold a part of the recording: nsys says so, or the counter samples show it.

    Of one that lacks nothing but counter samples the work and its switches are whole.

    Examples
    --------
    >>> import pyanalyze
    >>> cut_captures(pyanalyze.load(capture).tables)
    set()
    """
    of_work = {*CUT_RECORDS} - {COUNTER_SAMPLES_CUT}
    told = {row["capture"] for row in tables.rows("quality") if row["name"] in of_work and row["count"]}
    return told | sampled_spans(tables).keys()


def sampled_spans(tables: TableSet) -> dict[int, tuple[int, int]]:
    """Find captures whose samples of hardware counters cover less than :data:`LEAST_COVERED` of the recording.

    Returns
    -------
    dict
        By capture: from its first sample to its last, and the length of its recording, ns. Empty where only a part of
        the time is looked at.

    Examples
    --------
    >>> import pyanalyze
    >>> sampled_spans(pyanalyze.load(capture).tables)
    {}
    """
    import polars as pl

    whole = (tables.selection.start_ns, tables.selection.end_ns) == (None, None)
    if not whole or "gpu_metrics" not in tables or not tables.row_count("gpu_metrics"):
        return {}
    recorded = {
        row["capture"]: row["recording_end_ns"] - row["recording_start_ns"]
        for row in tables.rows("capture")
        if None not in (row["recording_start_ns"], row["recording_end_ns"])
    }
    spans = tables.columns("gpu_metrics", "capture", "time_ns").group_by("capture")
    covered = spans.agg(ns=pl.col("time_ns").max() - pl.col("time_ns").min()).drop_nulls()
    return {
        capture: (ns, recorded[capture])
        for capture, ns in covered.sort("capture").iter_rows()
        if capture in recorded and ns < LEAST_COVERED * recorded[capture]
    }
