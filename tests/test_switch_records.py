"""Switch records of exports from which rows were removed: they tell of the time that they cover, and of no other."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from shared_sessions import load

import pyanalyze
from pyanalyze.tables.frames import AnyTable, FrameTable, to_frame
from pyanalyze.tables.switch_records import telling_records

H200 = Path(__file__).parent.parent / "fixtures/hardware/h200"


def test_a_record_before_the_work_says_nothing_of_it_where_others_were_removed() -> None:
    """nsys collected four records; the export has one, a RESTORE_START (8) 2.56 s before the first kernel."""
    path = H200 / "alone-dram_bound.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        ((time_ns, tag),) = database.execute("SELECT timestamp, tag FROM GPU_CONTEXT_SWITCH_EVENTS").fetchall()
        kernels = database.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start").fetchall()
        (said,) = database.execute(
            "SELECT text FROM DIAGNOSTIC_EVENT WHERE text LIKE '%context switch events collected%'"
        ).fetchone()
    assert (tag, said.split()[-1], kernels[0][0] - time_ns > 2_500_000_000) == (8, "4.", True)
    (device,) = (report := load(path).report()).devices
    assert (device.context_switches, device.residency_summary) == (None, None)
    (tenant,) = device.tenants
    # One kernel runs after the other, so that their lengths add up; the window ends with the last API call.
    in_flight_ns = sum(end - start for start, end in kernels)
    assert device.window is not None
    assert tenant.gpu_time_basis == "inferred"
    window_ns = device.window.end_ns - device.window.start_ns
    assert tenant.gpu_time_share == pytest.approx(in_flight_ns / window_ns, abs=0.001)
    (missing,) = (one for one in device.sharing.missing if one.what == "context_switches")
    assert missing.how.startswith("nsys export")
    assert {"switch_events_lost", "switch_start_without_end"}.isdisjoint(row.name for row in report.quality)


def joined(
    records: list[tuple[int, int]], *, cut: bool, work_ns: tuple[int, int] = (1000, 2000)
) -> dict[str, AnyTable]:
    """A capture with one kernel and switch records (time, tag) of device 0."""
    frames = {
        "switch_events": pl.DataFrame(
            {"capture": 0, "device_id": 0, "time_ns": [t for t, _ in records], "tag": [tag for _, tag in records]},
        ),
        "kernels": pl.DataFrame({"capture": [0], "device_id": [0], "start_ns": work_ns[:1], "end_ns": work_ns[1:]}),
        "quality": pl.DataFrame({"capture": [0], "name": ["switch_records_cut" if cut else "pid_unmatched"]}),
        "sources": pl.DataFrame(
            {"capture": 0, "source": ["switch_events", "kernels"], "state": "present", "physical_table": ["S", "K"]}
        ),
    }
    return {name: FrameTable(name, frame) for name, frame in frames.items()}


@pytest.mark.parametrize(
    ("records", "left"),
    [
        pytest.param([(500, 8)], [], id="open before the work"),
        pytest.param([(500, 8), (600, 7)], [], id="all before the work"),
        pytest.param([(2100, 8), (2200, 7)], [], id="all after the work"),
        pytest.param([(1100, 8), (1500, 7), (1600, 8), (1605, 9)], [1100, 1500], id="open in the middle of it"),
        pytest.param([(1400, 7), (1500, 8), (1900, 7)], [1500, 1900], id="only the end, in the middle of it"),
        pytest.param([(1040, 7), (1100, 8), (1900, 7), (1960, 8)], [1040, 1100, 1900, 1960], id="open at both edges"),
        pytest.param([(500, 8), (2500, 7)], [500, 2500], id="around the work"),
    ],
)
def test_of_a_cut_export_only_what_lies_between_its_records_is_known(
    records: list[tuple[int, int]], left: list[int]
) -> None:
    """Work from 1000 to 2000 ns; an interval may reach beyond the records by a twentieth of that."""
    tables = joined(records, cut=True)
    made = {**tables, **telling_records(tables)}
    assert to_frame(made["switch_events"])["time_ns"].to_list() == left
    sources = to_frame(made["sources"])
    assert sources["state"].to_list() == ["present" if left else "removed", "present"]
    assert sources["physical_table"].to_list() == ["S" if len(left) == len(records) else None, "K"]
    # Of a whole table the same records are all that happened.
    assert telling_records(joined(records, cut=False)) == {}


def test_after_the_last_record_of_a_cut_export_nobody_is_known_to_be_resident(tmp_path: Path) -> None:
    """The second half of the records is removed as well; the last one left is a RESTORE_START in the middle of the work."""
    made = Path(shutil.copy(H200 / "slices-copies-open_loop.sqlite", tmp_path / "part.sqlite"))
    made.chmod(0o644)
    with contextlib.closing(sqlite3.connect(made)) as database, database:
        records = database.execute("SELECT timestamp, tag FROM GPU_CONTEXT_SWITCH_EVENTS ORDER BY timestamp").fetchall()
        last_ns = max(ns for ns, tag in records[: len(records) // 2] if tag == 8)
        database.execute("DELETE FROM GPU_CONTEXT_SWITCH_EVENTS WHERE timestamp > ?", (last_ns,))
        (save_ns,) = database.execute("SELECT max(timestamp) FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag = 7").fetchone()
        (first_ns,) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    session = pyanalyze.load(made)
    assert session.residency["end_ns"].max() == save_ns
    (device,) = (report := session.report()).devices
    assert device.context_switches is not None and device.context_switches.recorded_ns is not None
    assert device.context_switches.recorded_ns == pytest.approx(save_ns - first_ns, rel=0.001)
    # A query of all records counts one switch more.
    (switched,) = (one for one in device.sharing.evidence if one.name == "contexts_alternate")
    assert switched.sql is None
    assert "switch_start_without_end" not in {row.name for row in report.quality}
    (whole,) = load(H200 / "slices-copies-open_loop.sqlite").report().devices
    assert next(one for one in whole.sharing.evidence if one.name == "contexts_alternate").sql is not None
