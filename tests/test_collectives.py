"""Ranks of one job: whose collective kernels wait, for whom, and for how long."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from exports import A100, MS, US, kernel, write

import pyanalyze
from pyanalyze.report.markdown import render_markdown

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.collectives import CollectiveWaits

BOARDS = (A100, A100 | {"id": 1, "cuDevice": 1, "uuid": "21111111-2222-3333-4444-555555555555"})


def waits_of(path: Path) -> dict[int, CollectiveWaits | None]:
    return {device: one.collective_waits for (device, _), one in pyanalyze.load(path).analysis.time_splits.items()}


def job(path: Path, ends_apart_ns: int, *, busy: bool = False, boards: int = 2) -> Path:
    """Ten collectives; device 1 starts 2 ms after device 0, with a kernel of its own before that or nothing.

    In ms:  device 0    |0=====3|      device 1    |0=1.5|  |2=3|      every 10 ms
    """
    kernels = []
    for n in range(10):
        at = n * 10 * MS
        end = at + 3 * MS
        kernels.append(kernel(41, at, end, correlationId=n + 1))
        late = {"deviceId": boards - 1, "correlationId": n + 1}
        kernels.append(kernel(42, at + 2 * MS, end + (n - 5) * ends_apart_ns, **late))
        if busy:
            kernels.append(kernel(42, at, at + 1500 * US, demangledName=2, shortName=2, **late))
    return write(
        path,
        kernels=kernels,
        gpus=BOARDS[:boards],
        processes={41: "train", 42: "train"},
        kernel_names=("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "gemm"),
    )


@pytest.mark.parametrize(("busy", "busy_ns"), [(False, 0), (True, 15 * MS)])
def test_a_rank_waits_for_a_late_one(tmp_path: Path, busy: bool, busy_ns: int) -> None:
    path = job(tmp_path / "a.sqlite", US, busy=busy)
    found = waits_of(path)
    first, late = found[0], found[1]
    assert first is not None and late is not None
    assert (first.collectives, first.waits, first.waited_ns, first.time_ns, first.ends_ns) == (
        10, 10, 20 * MS, 30 * MS, 5 * US,
    )  # fmt: skip
    ((device_id, waits, waited_ns, longest_ns, of_busy_ns),) = [
        (one.device_id, one.waits, one.waited_ns, one.longest_ns, one.busy_ns) for one in first.late
    ]
    assert (device_id, waits, waited_ns, longest_ns, of_busy_ns) == (1, 10, 20 * MS, 2 * MS, busy_ns)
    assert (late.waits, late.waited_ns, late.late) == (0, 0, [])
    actions = [one for one in pyanalyze.load(path).advise()[0].actions if "wait for the rank on device 1" in one.action]
    assert [one.at_stake_ns for one in actions] == [20 * MS]
    assert actions[0].action.startswith("Balance the work" if busy else "Launch earlier")
    page = " ".join(render_markdown(pyanalyze.load(path).report()).split())
    assert "10 of 10 collective kernels" in page.partition("Where the time went")[2]


@pytest.mark.parametrize("boards", [1, 2])
def test_jobs_that_do_not_end_together_are_not_tied(tmp_path: Path, boards: int) -> None:
    """Ends 200 us further apart each time; and two processes on one device, which are no ranks of one job."""
    path = job(tmp_path / "a.sqlite", 200 * US if boards > 1 else US, boards=boards)
    assert all(one is None for one in waits_of(path).values())


def test_ranks_of_a_real_job(corpus: Path) -> None:
    """By SQL: 33 collectives each; in order of start they are partners, and end within 27 us."""
    path = corpus / "exports" / "nsys-ai" / "mfu_2gpu_before.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        ranks = [
            database.execute(
                'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName '
                "WHERE value LIKE 'nccl%' AND deviceId = ? ORDER BY start",
                (device,),
            ).fetchall()
            for device in (0, 1)
        ]
    pairs = list(zip(*ranks, strict=True))
    assert all(abs(one[1] - other[1]) < 27 * US for one, other in pairs)
    found = waits_of(path)
    for device, sign in ((0, 1), (1, -1)):
        waits = [sign * (other[0] - one[0]) for one, other in pairs if sign * (other[0] - one[0]) > 50 * US]
        told = found[device]
        assert told is not None
        assert (told.kernel, told.collectives, told.waits, told.waited_ns) == (
            "ncclDevKernel_SendRecv", 33, len(waits), sum(waits),
        )  # fmt: skip
    actions = {one.device_id: one.actions for one in pyanalyze.load(path).advise()}
    assert any("collectives of python3 wait for the rank on device 1" in one.action for one in actions[0])
    # The other one waits for 2.2 ms of 298.7, less than is worth an item.
    assert not any("wait for the rank" in one.action for one in actions[1])
