"""Samples of another time, or of another GPU, answer nothing for a capture, and that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from exports import kernel, write

import pyanalyze
from pyanalyze.analysis.advice import host_side
from pyanalyze.analysis.advice.options import memory_peaks
from pyanalyze.inputs.sample_alignment import of_its_time
from pyanalyze.report.summary import render_summary
from pyanalyze.tables.frames import FrameTable
from pyanalyze.tables.process_lists import process_memory
from pyanalyze.tables.tableset import TableSet

if TYPE_CHECKING:
    from pathlib import Path

#: The GPUs of two fixtures; the first recorded from 2026-03-14 14:26:53.588 (UTC+9), the other from 2026-05-01
#: 23:08:32.102 (UTC).
A100 = "GPU-5c3f2a10-7be4-4d0a-9d26-1f0a5e8b7c41"
A10G = "GPU-e2d5a02f-0be7-4e11-a965-e560ac85b57c"
APPS = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]"
MIB = 1 << 20


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def clocks(path: Path, day: str) -> Path:
    """A board far below its clock, with what the driver gives as the reason."""
    head = (
        "timestamp, uuid, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz], "
        "clocks_event_reasons.sw_power_cap, clocks_event_reasons.gpu_idle, clocks_event_reasons.hw_thermal_slowdown, "
        "clocks_event_reasons.active"
    )
    values = "99 %, 600 MHz, 1710 MHz, Active, Not Active, [N/A], 0x0000000000000004"
    return written(path, head, *(f"{day} 23:08:32.{ms}, {A10G}, {values}" for ms in (110, 140, 170, 200, 230)))


def test_a_list_of_another_day_is_no_list_of_the_capture(fixtures: Path, tmp_path: Path) -> None:
    stale = written(tmp_path / "apps.csv", APPS, f"2020/01/01 10:00:00.100, {A10G}, 4242, jupyter, 20000 MiB")
    session = pyanalyze.load(fixtures / "exclusive.sqlite", samples=stale)
    assert session.nvml_samples.height == 1
    assert session.samples.height == 0
    assert session.nvml_processes(0) is None
    said = session.quality.filter(pl.col("name") == "samples_not_aligned")["detail"].to_list()
    assert len(said) == 1
    assert "apps.csv: samples of 2020-01-01 10:00:00 to 10:00:00 UTC, capture of 2026-05-01 23:08:32" in said[0]
    report = session.report()
    assert report.samples_not_used == said
    redacted = session.redacted()
    hidden = redacted.quality.filter(pl.col("name") == "samples_not_aligned")["detail"].to_list()
    assert redacted.report().samples_not_used == hidden
    assert "apps.csv" not in hidden[0]
    assert session.window("20ms", "100ms").report().samples_not_used == said
    assert report.devices[0].sampled is None
    assert "process_list" in {gap.what for gap in report.devices[0].sharing.missing}
    assert "Samples" in render_summary(report)
    # A part of the capture is no other.
    assert session.window("20ms", "100ms").nvml_processes(0) is None


@pytest.mark.parametrize(("after_s", "rows"), [(100, 1), (150, 0)])
def test_the_time_of_captures_ends_with_the_last_one(tmp_path: Path, after_s: int, rows: int) -> None:
    """The second recording begins 100 s after the first, which began at 2026-09-21 14:13:20 (UTC): both take 1 s."""
    captures = [
        write(
            tmp_path / f"{n}.sqlite", kernels=[kernel(41 + n, 0, 10**9)], processes={41 + n: "train"},
            epoch_ns=1_790_000_000_000_000_000 + n * 100 * 10**9,
        )
        for n in range(2)
    ]  # fmt: skip
    (uuid,) = pyanalyze.load(captures[0]).devices["uuid"]
    assert uuid is not None
    minute, second = divmod(13 * 60 + 20 + after_s, 60)
    listed = written(
        tmp_path / "apps.csv", APPS, f"2026-09-21T14:{minute}:{second:02}.500+00:00, {uuid}, 41, train, 9 MiB"
    )
    assert pyanalyze.load(captures, samples=listed).samples.height == rows


def test_a_list_of_the_time_without_the_traced_pid_is_no_sole_process(fixtures: Path, tmp_path: Path) -> None:
    rows = {pid: f"2026/05/01 23:08:32.200, {A10G}, {pid}, python3, 2000 MiB" for pid in (1289451, 777001)}
    for pid, one in ((1289451, True), (777001, False)):
        listed = written(tmp_path / f"{pid}.csv", APPS, rows[pid])
        case = pyanalyze.load(fixtures / "exclusive.sqlite", samples=listed).cases()[0]
        assert (case.unlisted == ()) is one
        names = {w.name for w in pyanalyze.analysis.sharing.judge(case).evidence}
        assert ("nvml_one_process" in names) is one


def test_processes_count_together_only_while_both_are_listed(fixtures: Path, tmp_path: Path) -> None:
    def at(ms: int, *pids: int) -> list[str]:
        return [f"2026/05/01 23:08:32.{ms}, {A10G}, {pid}, python3, 2000 MiB" for pid in pids]

    apart = written(tmp_path / "apart.csv", APPS, *at(110, 1), *at(150, 1289451), *at(200, 1289451), *at(230, 2))
    both = written(tmp_path / "both.csv", APPS, *at(110, 1), *at(150, 1, 1289451), *at(200, 1289451), *at(230, 2))
    found = [pyanalyze.load(fixtures / "exclusive.sqlite", samples=file).cases()[0] for file in (apart, both)]
    assert [case.nvml_together for case in found] == [1, 2]
    assert [len(case.nvml_processes or ()) for case in found] == [3, 3]


def test_clocks_of_another_day_are_no_advice_and_flags_are_named(fixtures: Path, tmp_path: Path) -> None:
    capture = fixtures / "exclusive.sqlite"
    assert (
        host_side.causes(pyanalyze.load(capture, samples=clocks(tmp_path / "a.csv", "2026/04/30")).tables, 0, {}, {})
        == []
    )
    (cause,) = host_side.causes(
        pyanalyze.load(capture, samples=clocks(tmp_path / "b.csv", "2026/05/01")).tables, 0, {}, {}
    )
    assert cause.kind == "throttled"
    assert cause.what.endswith("reasons: sw_power_cap")


@pytest.mark.parametrize(
    ("stamp", "uuid", "known"),
    [
        ("2026/03/14 14:26:53.800", A100, True),
        ("2026/03/15 14:26:53.800", A100, False),
        ("2026/03/14 14:26:53.800", "GPU-deadbeef-7be4-4d0a-9d26-1f0a5e8b7c41", False),
    ],
)
def test_memory_is_of_the_time_and_the_gpu(
    fixtures: Path, tmp_path: Path, stamp: str, uuid: str, *, known: bool
) -> None:
    listed = written(tmp_path / "apps.csv", APPS, f"{stamp}, {uuid}, 41201, ./app_a, 6214 MiB")
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite", samples=listed)
    assert process_memory(session.tables, 0) == ({41201: 6214 * MIB} if known else {})
    assert list(memory_peaks(session.tables, 0).values()) == ([6214 * MIB] if known else [])


def test_a_process_on_two_gpus_has_the_memory_of_each() -> None:
    samples = pl.DataFrame(
        {
            "source": "apps.csv",
            "time_ns": [0, 0, 1],
            "device_id": [0, 1, 0],
            "gpu_index": pl.Series([0, 1, 0], dtype=pl.UInt32),
            "gpu_uuid": ["GPU-a", "GPU-b", "GPU-a"],
            "gpu_name": pl.Series([None] * 3, dtype=pl.String),
            "mig_gi": pl.Series([None] * 3, dtype=pl.UInt32),
            "pid": [7, 7, 7],
            "metric": "process_memory_bytes",
            "value": [900.0, 30_000.0, 1000.0],
        }
    )
    devices = pl.DataFrame(
        {"device_id": [0, 1], "gpu_uuid": ["GPU-a", "GPU-b"], "mig_profile": pl.Series([None] * 2, dtype=pl.String)}
    )
    stored = {"nvml_samples": FrameTable("nvml_samples", samples), "devices": FrameTable("devices", devices)}
    tables = TableSet(stored=stored)
    assert process_memory(tables, 0) == {7: 1000}
    assert process_memory(tables, 1) == {7: 30_000}


def test_the_margin_is_two_intervals_within_bounds() -> None:
    captures = pl.DataFrame({"start_ns": [10**9], "end_ns": [10**9 + 10], "clock_offset_ns": [10**9]})

    def kept(*seconds: float) -> list[float]:
        times = [int(s * 1e9) for s in seconds]
        frame = pl.DataFrame({"source": "a", "time_ns": times}, schema={"source": pl.String, "time_ns": pl.Int64})
        return [time / 1e9 for time in of_its_time(frame, captures)["time_ns"]]

    # The capture is at 1 s: 2 s beside it count, of a file with a sample each 10 s 20 s, never more than a minute.
    assert kept(-1.1, -1, 2.9, 3, 3.1) == [-1, 2.9, 3]
    assert kept(-25, -15, -5, 5, 15, 25) == [-15, -5, 5, 15]
    assert kept(-3600, 0, 3600) == [0]
    # Without times nothing can be left out.
    untimed = pl.DataFrame({"source": ["a"], "time_ns": pl.Series([None], dtype=pl.Int64)})
    assert of_its_time(untimed, captures).height == 1
