"""Is what the tool says of a real, shared GPU what really ran there? fixtures/hardware/h100 says how it was recorded."""

from __future__ import annotations

import csv
import sqlite3
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest
from modules import module_at

import pyanalyze
from pyanalyze.analysis.advice import host_side
from pyanalyze.report.sentences import gpu_time_rows

ROOT = Path(__file__).parent.parent
H100 = ROOT / "fixtures" / "hardware" / "h100"
#: What was started, not what the tool found.
MODES = {
    "alone-A": "streams",
    "streams-A-B": "streams",
    "green-64-64-A-B": "green-contexts",
    "slices-A-B": "time-slicing",
    "mps-A-B": "mps",
    "mps-50-50-A-B": "mps-partitioned",
    "mps-A-B-beside-C": "mps+time-slicing",
}


@pytest.mark.parametrize("name", MODES)
def test_the_mode_is_the_one_that_ran(name: str) -> None:
    (verdict,) = pyanalyze.load(H100 / f"{name}.sqlite").classify()
    assert verdict.mode == MODES[name]
    assert verdict.confidence > 0.9


def units(name: str) -> list[int]:
    """Lengths of the units of work that a program measured itself, in ns."""
    with (H100 / f"{name}.units.csv").open(newline="") as file:
        return [int(row["end_utc_ns"]) - int(row["start_utc_ns"]) for row in csv.DictReader(file)]


def test_the_slowdown_is_the_one_that_the_program_measured() -> None:
    session = pyanalyze.load(H100 / "slices-A-B.sqlite", baselines=[H100 / "alone-A.sqlite"])
    rows = session.tenant_slowdowns.to_dicts()
    (found,) = (row for row in rows if (row["measure"], row["against"]) == ("elapsed", "baseline"))
    measured = fmean(units("slices-A-B.0-A")) / fmean(units("alone-A.0-A"))
    assert measured == pytest.approx(2.418, abs=0.001)
    assert found["basis"] == "observed"
    assert found["value"] == pytest.approx(measured, rel=0.02)


def test_each_launch_of_the_program_is_a_kernel_of_the_capture() -> None:
    for name, parts in {"alone-A": ("0-A",), "slices-A-B": ("0-A", "1-B")}.items():
        kernels = pyanalyze.load(H100 / f"{name}.sqlite").kernels
        for part in parts:
            with (H100 / f"{name}.{part}.launches.csv").open(newline="") as file:
                launched = [row["kernel"] for row in csv.DictReader(file)]
            assert launched
            for kernel in set(launched):
                assert kernels.filter(kernels["name"] == kernel).height == launched.count(kernel), (name, kernel)


def test_switches_are_those_that_sql_counts() -> None:
    with sqlite3.connect(H100 / "slices-A-B.sqlite") as database:
        rows = database.execute(
            "SELECT tag, timestamp FROM GPU_CONTEXT_SWITCH_EVENTS ORDER BY timestamp, tag"
        ).fetchall()
    # SAVE_END (7) of one context, then RESTORE_START (8) of the next.
    gaps = [after[1] - before[1] for before, after in pairwise(rows) if (before[0], after[0]) == (7, 8)]
    found = pyanalyze.load(H100 / "slices-A-B.sqlite").switches
    assert found.height == len(gaps) == 672
    assert sorted(found["gap_ns"].to_list()) == sorted(gaps)
    assert 75_000 < median(gaps) < 90_000


def measured_slowdown(case: str, application: str) -> float:
    """How much longer a unit of work took, by the programs' own clocks."""
    with (H100 / "units.csv").open(newline="") as file:
        rows = {(row["case"], row["application"]): float(row["mean_us"]) for row in csv.DictReader(file)}
    return rows[case, application] / rows[f"alone-{application}", application]


@pytest.mark.parametrize("name", ["slices-A-B", "mps-A-B"])
def test_forecasts_are_near_what_was_measured(name: str) -> None:
    # Each process makes a few launches, pauses for seconds until all are ready, works for 1 s and copies results.
    (advice,) = pyanalyze.load(H100 / f"{name}.sqlite").advise()
    options = {option.name: option.forecasts for option in advice.options.options}
    for forecast, application in zip(options["time-slicing"], "AB", strict=True):
        assert forecast.slowdown == pytest.approx(measured_slowdown("slices-A-B", application), rel=0.15)
    for forecast, application in zip(options["MPS"], "AB", strict=True):
        assert forecast.slowdown == pytest.approx(measured_slowdown("mps-A-B", application), rel=0.3)
    # MPS gained on time-slicing for both.
    for sliced, mps in zip(options["time-slicing"], options["MPS"], strict=True):
        assert mps.slowdown < sliced.slowdown


def test_resident_without_work_is_not_taken_for_work() -> None:
    name = H100 / "slices-A-B.sqlite"
    with sqlite3.connect(name) as database:
        query = """SELECT globalPid / 0x1000000 % 0x1000000, min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL
            WHERE streamId != 7 GROUP BY 1"""
        worked = {pid: end - start for pid, start, end in database.execute(query)}
        (window,) = database.execute("SELECT max(timestamp) - min(timestamp) FROM GPU_CONTEXT_SWITCH_EVENTS").fetchone()
    (device,) = pyanalyze.load(name).report().devices
    rows = {row.name: row for row in gpu_time_rows(device)}
    first = rows["kit (pid 861)"]
    # Its context was there before the other one, with nothing to do; then both worked at the same time.
    assert first.share > 0.8
    assert first.with_work is not None
    assert 0.05 < first.with_work < worked[861] / window
    assert rows["kit (pid 862)"].with_work is None


def test_mps_clients_have_their_own_kernels_as_gpu_time() -> None:
    name = H100 / "mps-A-B.sqlite"
    with sqlite3.connect(name) as database:
        query = "SELECT globalPid / 0x1000000 % 0x1000000, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
        busy: dict[int, int] = {}
        until: dict[int, int] = {}
        for pid, start, end in database.execute(query):
            busy[pid] = busy.get(pid, 0) + max(end - max(start, until.get(pid, 0)), 0)
            until[pid] = max(end, until.get(pid, 0))
    (device,) = pyanalyze.load(name).report().devices
    assert device.window is not None
    window_ns = device.window.end_ns - device.window.start_ns
    shares = {tenant.pid: tenant.gpu_time_share for tenant in device.tenants if tenant.busy_ns}
    assert shares == {pid: pytest.approx(ns / window_ns, rel=1e-6) for pid, ns in busy.items()}


def test_initialisation_in_the_default_stream_serialises_nothing() -> None:
    session = pyanalyze.load(H100 / "mps-A-B.sqlite")
    found = host_side.causes(session.tables, 0, session.analysis.time_splits, {})
    assert "default-stream" not in [cause.kind for cause in found]


def test_blocks_fill_every_sm_as_cuda_says_they_fit() -> None:
    blocks = module_at(ROOT / "fixtures/hardware/blocks.py")
    run = blocks.read_run(H100 / "alone-A.0-A")
    found = blocks.by_launch(run.blocks).join(run.launches, on="launch")
    # 317 blocks on 132 SMs, of which four fit on each: all SMs are reached, with two or three.
    assert set(found["grid"]) == {317}
    assert set(found["sms_reached"]) == {132}
    assert set(found["most_per_sm"]) <= {2, 3}
