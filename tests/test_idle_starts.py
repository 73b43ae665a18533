"""Kernels that a process launched while it had nothing on the GPU: what they waited for tells of others."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from exports import A100, MS, US, global_pid, kernel, write

import pyanalyze
from pyanalyze.analysis.sharing import observe
from pyanalyze.analysis.sharing.idle_starts import idle_start_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyanalyze.analysis.sharing import Verdict

LAUNCH_US = 5


def launched(
    path: Path,
    waits_us: Sequence[int],
    *,
    kernel_us: int = 100,
    every_us: int = 10_000,
    more: str = "",
    kinds: int = 1,
    program: str = "train",
) -> Path:
    """A process that launches a kernel every 10 ms and waits for it; each starts so long after its call returned."""
    kernels, calls = [], []
    for n, wait_us in enumerate(waits_us):
        call = n * max(every_us, wait_us + 2 * kernel_us) * US
        start = call + (LAUNCH_US + wait_us) * US
        kernels.append(kernel(41, start, start + kernel_us * US, demangledName=1 + n % kinds, shortName=1 + n % kinds))
        calls.append(_call(call, n + 1, "cudaLaunchKernel_v7000"))
    if more:
        calls.append(_call(999 * MS, 0, more))
    return write(
        path, kernels=kernels, calls=calls, processes={41: program}, kernel_names=[f"k{n}" for n in range(kinds)]
    )


def _call(start: int, correlation: int, name: str) -> dict[str, Any]:
    return {
        "start": start,
        "end": start + LAUNCH_US * US,
        "globalTid": global_pid(41) + 41,
        "correlationId": correlation,
        "nameId": name,
        "returnValue": 0,
    }


def verdict_of(path: Path) -> Verdict:
    (verdict,) = pyanalyze.load(path).classify()
    return verdict


def test_kernels_that_start_at_once_exclude_a_busy_time_sliced_tenant(tmp_path: Path) -> None:
    """The first has nothing before it: 19 count, each in a time slice of its own."""
    path = launched(tmp_path / "a.sqlite", [8] * 20)
    facts = idle_start_facts(pyanalyze.load(path).tables, 0)
    assert (facts["idle_start_prompt_share"].value, facts["idle_start_prompt_share"].n) == (1.0, 19)
    assert facts["idle_start_exposure"].value == 19
    assert "idle_start_wait_ns" not in facts
    verdict = verdict_of(path)
    assert (verdict.mode, verdict.condition) == ("exclusive", "unless-mps-or-rare-tenant")
    assert "idle_starts_prompt" in {seen.name for seen in verdict.evidence}


def test_too_few_starts_exclude_nobody(tmp_path: Path) -> None:
    assert verdict_of(launched(tmp_path / "a.sqlite", [8] * 8)).condition == "unless-untraced-tenant"
    assert verdict_of(launched(tmp_path / "b.sqlite", [8] * 9)).condition == "unless-mps-or-rare-tenant"


@pytest.mark.parametrize("slices", [1, 2, 3])
def test_equal_waits_of_time_slices_show_an_untraced_process(tmp_path: Path, slices: int) -> None:
    """By hand: each of 19 kernels of 0.5 ms waits 2.2 ms for each of the others, so its latency is (0.5 + w) / 0.5."""
    path = launched(tmp_path / "a.sqlite", [2_200 * slices] * 20, kernel_us=500)
    facts = idle_start_facts(pyanalyze.load(path).tables, 0)
    assert (facts["idle_start_wait_ns"].value, facts["idle_start_wait_ns"].n) == (2.2e6 * slices, 19)
    assert facts["idle_start_wait_spread"].value == 0
    factor = (500 + 2_200 * slices) / 500
    assert facts["idle_start_latency_factor"].value == pytest.approx(factor)
    verdict = verdict_of(path)
    assert (verdict.mode, verdict.basis, verdict.condition) == ("time-slicing", "inferred", None)
    (seen,) = [one for one in verdict.evidence if one.name == "waits_of_time_slices"]
    assert f"{factor:.2f}x" in seen.detail


@pytest.mark.parametrize(
    "waits_us",
    [
        [1_500] * 20,  # no length of a time slice
        [1_200, 2_200, 3_600, 6_000] * 5,  # all different
        [8, 130, 270, 410, 550, 690, 99] + [8] * 13,  # rests of a slice, in some launches
    ],
)
def test_other_waits_of_an_idle_process_show_an_untraced_one(tmp_path: Path, waits_us: list[int]) -> None:
    """Nothing of its own is in the way: of real solo launches none waits 0.1 ms. By hand: the first has none before."""
    counted = waits_us[1:]
    delayed = sorted(wait for wait in counted if wait >= 100)
    path = launched(tmp_path / "a.sqlite", waits_us)
    facts = idle_start_facts(pyanalyze.load(path).tables, 0)
    assert facts["idle_start_delayed_share"].value == pytest.approx(len(delayed) / len(counted))
    assert facts["idle_start_delay_ns"].n == len(delayed)
    verdict = verdict_of(path)
    assert (verdict.mode, verdict.basis, verdict.condition) == ("time-slicing", "inferred", None)
    (seen,) = [one for one in verdict.evidence if one.name in ("idle_starts_delayed", "waits_of_time_slices")]
    assert seen.name == "idle_starts_delayed"
    assert {"exclusive", "streams"} & set(seen.against)
    assert f"{len(delayed)} of {len(counted)} kernels" in seen.detail


@pytest.mark.parametrize(
    ("waits_us", "more"),
    [
        ([2_200] * 4 + [8] * 16, ""),  # too few
        ([8] * 90 + [600] * 4, ""),  # too few of them
        ([50_000] * 20, ""),  # no three time slices take so long
        ([2_200] * 20, "cudaLaunchHostFunc_v10000"),  # the stream may have waited for the host
        ([2_200] * 20, "cuStreamWaitValue32_v2"),
        ([2_200] * 20, "cudaIpcOpenMemHandle_v4010"),
    ],
)
def test_other_waits_show_nobody(tmp_path: Path, waits_us: list[int], more: str) -> None:
    verdict = verdict_of(launched(tmp_path / "a.sqlite", waits_us, more=more))
    assert not {"waits_of_time_slices", "idle_starts_delayed"} & {seen.name for seen in verdict.evidence}
    assert verdict.condition == "unless-untraced-tenant"


def test_first_launches_of_kernels_load_modules(tmp_path: Path) -> None:
    """Each of 20 kernels is another one, and waits 0.5 ms: no other process is needed for that."""
    verdict = verdict_of(launched(tmp_path / "a.sqlite", [500] * 20, kinds=20))
    assert verdict.condition == "unless-untraced-tenant"
    assert verdict_of(launched(tmp_path / "b.sqlite", [500] * 20)).mode == "time-slicing"


def test_launches_soon_after_own_work_exclude_nobody(tmp_path: Path) -> None:
    """Its context may still be resident: 0.06 ms after its last kernel that says nothing, 0.2 ms after it does."""
    soon = launched(tmp_path / "a.sqlite", [8] * 2000, kernel_us=30, every_us=103)
    assert verdict_of(soon).condition == "unless-untraced-tenant"
    assert "soon_starts_prompt" in observe(pyanalyze.load(soon).cases()[0])
    later = launched(tmp_path / "b.sqlite", [8] * 2000, kernel_us=30, every_us=243)
    assert verdict_of(later).condition == "unless-mps-or-rare-tenant"


def test_a_stream_may_wait_for_work_on_another_device(tmp_path: Path) -> None:
    """Each kernel of 20 waits for one of its process on another GPU, which is in flight from before its launch on."""
    rounds = [n * 10 * MS for n in range(20)]
    kernels = [kernel(41, t + 605 * US, t + 705 * US) for t in rounds]
    there = [kernel(41, t - 300 * US, t + 600 * US, deviceId=1) for t in rounds]
    calls = [_call(t, n + 1, "cudaLaunchKernel_v7000") for n, t in enumerate(rounds)]
    both = (A100, {**A100, "id": 1, "cuDevice": 1, "uuid": "22222222-2222-3333-4444-555555555555"})
    waiting = write(tmp_path / "a.sqlite", kernels=[*kernels, *there], calls=calls, processes={41: "train"}, gpus=both)
    assert idle_start_facts(pyanalyze.load(waiting).tables, 0) == {}
    alone = write(tmp_path / "b.sqlite", kernels=kernels, calls=calls, processes={41: "train"}, gpus=both)
    assert idle_start_facts(pyanalyze.load(alone).tables, 0)["idle_start_delayed_share"].value == 1.0


def test_on_windows_launches_are_batched(tmp_path: Path) -> None:
    verdict = verdict_of(launched(tmp_path / "a.sqlite", [700] * 20, program="train.exe"))
    assert "idle_starts_delayed" not in {seen.name for seen in verdict.evidence}


def test_kernels_behind_others_of_their_process_do_not_count(tmp_path: Path) -> None:
    """All are launched in the first 100 us and follow each other."""
    kernels = [kernel(41, (1 + 3 * n) * MS, (3 + 3 * n) * MS) for n in range(20)]
    calls = [_call(n * LAUNCH_US * US, n + 1, "cudaLaunchKernel_v7000") for n in range(20)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    assert idle_start_facts(pyanalyze.load(path).tables, 0) == {}


@pytest.mark.parametrize("name", ["paging__ada-sync-iteration", "paging__report1"])
def test_a_real_time_sliced_process_is_found_without_its_switch_records(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    """Both recordings show the other process in switch records; without them, nine of nine kernels waited 2.1 ms."""
    path = tmp_path / "capture.sqlite"
    shutil.copy(corpus / "exports" / "ctxsw-ada-timeslice" / f"{name}.nsys2026.sqlite", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE GPU_CONTEXT_SWITCH_EVENTS")
    verdict = verdict_of(path)
    assert (verdict.mode, verdict.basis) == ("time-slicing", "inferred")
    (seen,) = [one for one in verdict.evidence if one.name == "waits_of_time_slices"]
    assert seen.n == 9
    assert seen.value is not None
    assert 2.0e6 < seen.value < 2.3e6
