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


def test_blocks_fill_every_sm_as_cuda_says_they_fit() -> None:
    blocks = module_at(ROOT / "fixtures/hardware/blocks.py")
    run = blocks.read_run(H100 / "alone-A.0-A")
    found = blocks.by_launch(run.blocks).join(run.launches, on="launch")
    # 317 blocks on 132 SMs, of which four fit on each: all SMs are reached, with two or three.
    assert set(found["grid"]) == {317}
    assert set(found["sms_reached"]) == {132}
    assert set(found["most_per_sm"]) <= {2, 3}
