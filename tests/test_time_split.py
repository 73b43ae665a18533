"""Where the time of a process went: kernels, copies, launching, CUDA calls, host; by hand."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from command_line import run
from exports import MS, US, copy, global_pid, kernel, nvtx_range, write

import pyanalyze
from pyanalyze.analysis.advice.own_time import of_process
from pyanalyze.report.blocks import Chart
from pyanalyze.report.layout import lay_out
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.sentences.capture import without_work_text
from pyanalyze.report.sentences.lead import lead_sentences
from pyanalyze.report.sentences.time_split import limit_text
from pyanalyze.report.summary import SUMMARY_COLUMNS, render_summary
from pyanalyze.report.text import render_text
from pyanalyze.results.time_split import HostActivity, HostKind
from pyanalyze.text.format import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyanalyze.results.advice import Advice
    from pyanalyze.results.report import Report
    from pyanalyze.results.time_split import TimeSplit


def call(name: str, start: int, end: int, *, thread: int = 41) -> dict[str, Any]:
    return {
        "start": start,
        "end": end,
        "globalTid": global_pid(41) + thread,
        "correlationId": 0,
        "nameId": name,
        "returnValue": 0,
    }


def split_of(path: Path) -> TimeSplit:
    (split,) = pyanalyze.load(path).analysis.time_splits.values()
    return split


def parts(split: TimeSplit) -> tuple[int, int, int, int, int]:
    return split.kernels_ns, split.copies_ns, split.launches_ns, split.api_calls_ns or 0, split.host_ns


def whole(split: TimeSplit) -> int:
    return sum(parts(split)) + (split.waiting_ns or 0)


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """One process.

    kernels |0=1|      |3.1==5.1|            |15.1=16.1|
    copies   |0.5==3|          (0.1 gap)
    calls                        |6=====10|  cudaMalloc; |9==12| cudaFree of another thread, |13=14| a launch that loads its code
    """
    kernels = [kernel(41, 0, MS), kernel(41, 3 * MS + 100 * US, 5 * MS + 100 * US), kernel(41, 15 * MS, 16 * MS)]
    calls = [
        call("cudaMalloc_v3020", 6 * MS, 10 * MS),
        call("cudaFree_v3020", 9 * MS, 12 * MS, thread=42),
        call("cudaLaunchKernel_v7000", 13 * MS, 14 * MS),
        call("cudaDeviceSynchronize_v3020", 15 * MS, 16 * MS),
    ]
    return write(
        tmp_path / "a.sqlite",
        kernels=kernels,
        copies=[copy(41, 500 * US, 3 * MS)],
        calls=calls,
        processes={41: "train"},
    )


def test_the_parts_add_up_to_the_time_of_the_process(process: Path) -> None:
    """Kernels 1 + 2 + 1 ms; copies 3 - 1; a gap of 0.1; of the gap from 5.1 to 15 ms calls ran for 6 + 1."""
    split = split_of(process)
    assert split.window_ns == 16 * MS
    assert parts(split) == (4 * MS, 2 * MS, 100 * US, 7 * MS, 2_900 * US)
    assert sum(parts(split)) == split.window_ns
    assert split.limit == "api-calls"
    assert (split.api_call, split.api_call_ns) == ("cudaMalloc", 4 * MS)
    assert (split.top_kernel, split.top_kernel_ns, split.top_kernel_share) == ("k", 4 * MS, 1.0)


def test_advice_comes_by_the_time_at_stake(process: Path) -> None:
    actions = pyanalyze.load(process).advise()[0].actions
    stakes = [(action.at_stake_ns, action.at_stake_share) for action in actions if action.at_stake_ns is not None]
    # 0.1 of 16 ms are 0.6 %: too little to name. Of 7 ms of CUDA calls the one that is named has 4.
    assert stakes == [(4 * MS, 0.25), (4 * MS, 0.25), (2_900 * US, 0.18125), (2 * MS, 0.125)]
    assert actions[0].action.startswith("Spend less time in cudaMalloc in train: allocate once")
    assert "ncu --set full -c 3 -k k PROGRAM" in actions[1].commands


def test_counting_a_kernel_skips_its_first_launches(tmp_path: Path) -> None:
    """Of 13 launches 3 are to be counted: half of the other 10 are left for later. Of 60, 20 have warmed it up."""
    commands = []
    for launches in (13, 60):
        kernels = [kernel(41, n * MS, (n + 1) * MS) for n in range(launches)]
        (action, *_) = pyanalyze.load(write(tmp_path / f"{launches}.sqlite", kernels=kernels)).advise()[0].actions
        commands += action.commands
    assert commands == [f"ncu --set full -s {skipped} -c 3 -k k PROGRAM" for skipped in (5, 20)]


def test_all_calls_that_load_code_are_one_item(tmp_path: Path) -> None:
    """In ms, nothing in flight from 1 to 10: a library 1-4, a launch that loads its kernel 5-9, another library 6-7."""
    calls = [
        call("cuLibraryLoadData", MS, 4 * MS),
        call("cudaMalloc_v3020", 4 * MS, 5 * MS),
        {**call("cudaLaunchKernel_v7000", 5 * MS, 9 * MS), "correlationId": 2},
        call("cuLibraryLoadData", 6 * MS, 7 * MS),
    ]
    kernels = [kernel(41, 0, MS), kernel(41, 10 * MS, 11 * MS, correlationId=2)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    loading = split_of(path).code_loading
    assert loading is not None
    # One of the two libraries is loaded inside the launch: 3 + 4 ms, not 8.
    assert loading.ns == 7 * MS
    # The same time in each: by name.
    assert [(one.call, one.ns, one.count) for one in loading.calls] == [
        ("cuLibraryLoadData", 4 * MS, 2),
        ("cudaLaunchKernel", 4 * MS, 1),
    ]
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "load code" in one.action)
    assert item.action.startswith(
        "Spend less time in cuLibraryLoadData and cudaLaunchKernel in train: load code before"
    )
    assert item.at_stake_ns == 7 * MS
    # What is moved is no gain for a program that runs once; to load all kernels may cost more than it moves.
    assert item.why.endswith("every run. A program that runs once gains only the time of JIT compilation")
    assert "EAGER" not in item.action and item.risk is not None and "more time and memory" in item.risk


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        # By `CUpti_ActivityOverheadKind`: 6 module loading, 7 lazy function loading, 2 the driver's JIT compiler.
        ((6, 7), "CUPTI recorded module and function loading in them for 7.000 ms, and no JIT compilation"),
        ((2, 6), "CUPTI recorded JIT compilation in them for 3.000 ms, module and function loading for 4.000 ms"),
        # Older reports, exported anew, do not tell kinds apart; 8 is a full command buffer.
        ((0, 8), "If they compile PTX for this GPU (JIT)"),
    ],
)
def test_what_is_recorded_inside_calls_that_load_code_is_told(
    kinds: tuple[int, int], said: str, tmp_path: Path
) -> None:
    """In ms: a launch 0-4, its kernel 4-5, a second launch 5-10, its kernel 10-11; records 0.5-3.5 and 5.5-9.5."""
    calls = [
        {**call("cudaLaunchKernel_v7000", 0, 4 * MS), "correlationId": 1},
        {**call("cudaLaunchKernel_v7000", 5 * MS, 10 * MS), "correlationId": 2},
    ]
    kernels = [kernel(41, 4 * MS, 5 * MS, correlationId=1), kernel(41, 10 * MS, 11 * MS, correlationId=2)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD (start, end, globalTid, correlationId, overheadType)")
        rows = [(MS // 2, 7 * MS // 2, 1, kinds[0]), (11 * MS // 2, 19 * MS // 2, 2, kinds[1])]
        # The same ids in another process are of other calls.
        rows += [(MS, 9 * MS, 99, 2)]
        for start, end, number, kind in rows:
            process = global_pid(42 if number == 99 else 41)
            values = (start, end, process + 41, 1 if number == 99 else number, kind)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD VALUES (?, ?, ?, ?, ?)", values)
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "load code" in one.action)
    assert said in item.why
    # The first launch has the same cause as the second, though it comes before the first operation.
    assert item.at_stake_ns == 9 * MS
    assert item.bound == "9.000 ms: 5.000 ms, 71.4 % of its time, and 4.000 ms before its first operation"


def test_a_real_program_that_loads_modules_compiles_nothing(corpus: Path) -> None:
    """By SQL: kinds and times of what CUPTI recorded inside the two launches, and how long these took."""
    path = corpus / "exports" / "nsys-ai" / "mock.sqlite"
    with closing(sqlite3.connect(path)) as db:
        of_kind = "SELECT coalesce(sum(end - start), 0) FROM CUPTI_ACTIVITY_KIND_OVERHEAD WHERE overheadType"
        loaded_ns, compiled_ns = (db.execute(f"{of_kind} {which}").fetchone()[0] for which in ("IN (6, 7)", "= 2"))
        launches = "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId WHERE value"
        (launched_ns,) = db.execute(f"{launches} LIKE 'cudaLaunchKernel%'").fetchone()
    assert (loaded_ns > 30 * MS, compiled_ns) == (True, 0)
    split = split_of(path)
    assert split.code_loading is not None and split.code_loading.recorded is not None
    assert split.calls_before is not None and split.calls_before.recorded is not None
    recorded = (split.code_loading.recorded, split.calls_before.recorded)
    assert sum(one.loaded_ns for one in recorded) == loaded_ns
    assert [one.compiled_ns for one in recorded] == [0, 0]
    item = pyanalyze.load(path).advise()[0].actions[0]
    # What of the second launch lies after the start of its kernel is no gap.
    assert item.at_stake_ns is not None and 0 <= launched_ns - item.at_stake_ns < 50 * US
    assert "no JIT compilation" in item.why and "-gencode" not in item.why


def test_code_that_a_real_program_loads_is_one_item(corpus: Path) -> None:
    """By SQL: launches and loaded libraries in the gaps, where nothing is in flight, of 250 us or more."""
    path = corpus / "exports" / "fuser" / "report2@bab6954.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_"
        work = sorted(row for table in ("KERNEL", "MEMCPY", "MEMSET") for row in db.execute(f"{rows}{table}"))
        calls = db.execute(
            f"{rows}RUNTIME JOIN StringIds ON id = nameId WHERE value LIKE '%LaunchKernel%' OR value LIKE '%LibraryLoad%'"
        ).fetchall()
    expected, until = 0, work[0][1]
    gaps = []
    for start, end in work[1:]:
        if start > until + 250 * US:
            expected += sum(max(min(e, start) - max(s, until), 0) for s, e in calls)
            gaps.append((until, start))
        until = max(until, end)
    split = split_of(path)
    assert split.code_loading is not None
    # A hundred smaller calls, such as cuLibraryGetKernel, have 0.2 ms more.
    assert 0 <= split.code_loading.ns - expected < 250 * US
    assert [one.call for one in split.code_loading.calls] == ["cudaLaunchKernel", "cuLibraryLoadData"]
    items = [one for one in pyanalyze.load(path).advise()[0].actions if "load code" in one.action]
    assert [item.at_stake_ns for item in items] == [split.code_loading.ns]
    # Of the longest gap, calls have 4.2 ms: the host has the rest.
    start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    with closing(sqlite3.connect(path)) as db:
        called = (
            "SELECT sum(min(end, ?2) - max(start, ?1)) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE end > ?1 AND start < ?2"
        )
        (called_ns,) = db.execute(called, (start, end)).fetchone()
    gap = split.one_gap
    assert gap is not None and gap.host_ns == end - start - called_ns
    first = pyanalyze.load(path).advise()[0].actions[0]
    assert "343.6 ms of it lies in one gap of 347.8 ms at its start" in first.why
    assert "Without that gap, 184.0 ms with 19 operations are left, 103.8 ms of it the host's" in first.why


def test_a_call_with_less_than_half_of_the_time_of_calls_is_not_most_of_it(tmp_path: Path) -> None:
    """Without work on the device: cudaMalloc 3 ms, cudaFree and cudaHostAlloc 2 each. Then cudaMalloc only."""
    calls = [
        call("cudaMalloc_v3020", MS, 4 * MS),
        call("cudaFree_v3020", 4 * MS, 6 * MS),
        call("cudaHostAlloc_v3020", 6 * MS, 8 * MS),
    ]
    for some, said in ((calls, "the largest part, 3.000 ms"), (calls[:1], "most of it, 3.000 ms")):
        kernels = [kernel(41, 0, MS), kernel(41, 8 * MS, 9 * MS)]
        path = write(tmp_path / f"{len(some)}.sqlite", kernels=kernels, calls=some, processes={41: "train"})
        (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "cudaMalloc" in one.action)
        assert item.why.endswith(f"; {said}, in cudaMalloc")


def test_the_first_screen_says_what_limits_it(process: Path) -> None:
    text = render_summary(pyanalyze.load(process).report())
    assert all(len(line) <= SUMMARY_COLUMNS for line in text.splitlines())
    words = " ".join(text.split())
    assert (
        "Limit train is limited by CUDA calls: they ran, with nothing of this process on the GPU, for 43.8 % of its time"
        in words
    )
    assert "(cudaMalloc 25.0 %); most of the rest: kernels 25.0 %, host 18.1 %, copies and memsets 12.5 %." in words
    assert "Upper bound of the gain: 4.000 ms, 25.0 % of its time" in words


@pytest.mark.parametrize(
    ("copy_ms", "said"),
    [(0, "; the rest: CUDA"), (9, "; most of the rest: CUDA"), (16, "; the rest: copies 1.6 %, CUDA")],
)
def test_named_parts_are_the_rest_only_where_they_add_up(tmp_path: Path, copy_ms: int, said: str) -> None:
    """Of 1 s: a call 15 ms, and a copy of 0, 9 or 16; below 1 % it is not named. The host has what is left."""
    path = write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, 0, US), kernel(41, 1000 * MS - US, 1000 * MS)],
        copies=[copy(41, 500 * MS, (500 + copy_ms) * MS)] if copy_ms else [],
        calls=[call("cudaMalloc_v3020", 200 * MS, 215 * MS)],
        processes={41: "train"},
    )
    (device,) = pyanalyze.load(path).report().devices
    found = (limit_text(device) or "").replace("copies and memsets", "copies")
    assert f"{said} calls 1.5 %." in found


@pytest.mark.parametrize(
    ("gap_us", "limit"),
    [(250, "launches"), (251, "host")],
)
def test_a_gap_of_250_us_is_launching(tmp_path: Path, gap_us: int, limit: str) -> None:
    times = [n * (gap_us + 100) * US for n in range(20)]
    kernels = [kernel(41, start, start + 100 * US) for start in times]
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"}))
    assert split.limit == limit
    assert split.part_ns(split.limit) == 19 * gap_us * US


def test_a_call_that_hands_over_no_work_is_not_launching(tmp_path: Path) -> None:
    """Gaps of 100 us: in each the host waits for 60 us, and launches for 30, of which 10 beside another thread's wait."""
    times = [n * 200 * US for n in range(20)]
    kernels = [kernel(41, start, start + 100 * US) for start in times]
    calls = []
    for start in times[:-1]:
        calls += [
            call("cudaStreamSynchronize_v3020", start + 100 * US, start + 160 * US),
            call("cudaLaunchKernel_v7000", start + 160 * US, start + 190 * US),
            call("cudaEventQuery_v3020", start + 160 * US, start + 170 * US, thread=42),
        ]
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"}))
    assert (split.launches_ns, split.api_calls_ns, split.host_ns) == (19 * 40 * US, 19 * 60 * US, 0)
    assert (split.api_call, split.api_call_ns, split.api_call_count) == ("cudaStreamSynchronize", 19 * 60 * US, 19)


@pytest.mark.parametrize(
    ("waits", "thread", "named"),
    [(20, 41, True), (10, 41, True), (9, 41, False), (20, 42, False), (0, 41, False)],
)
def test_who_waits_behind_each_launch_is_told_to_launch_ahead(
    tmp_path: Path, waits: int, thread: int, *, named: bool
) -> None:
    """20 kernels of 100 us with gaps of 100 us; behind some the thread waits until they end. From 10 of 20 on it is said."""
    kernels, calls = [], []
    for n in range(20):
        start = n * 200 * US
        kernels.append(kernel(41, start, start + 100 * US) | {"correlationId": n + 1})
        calls.append(call("cudaLaunchKernel_v7000", start, start + 10 * US) | {"correlationId": n + 1})
        if n < waits:
            calls.append(call("cudaDeviceSynchronize_v3020", start + 20 * US, start + 100 * US, thread=thread))
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    (action,) = (one for one in pyanalyze.load(path).advise()[0].actions if "fewer, longer kernels" in one.action)
    # Graphs launch the same kernels.
    assert action.action.endswith(" (fusion, larger batches), or use CUDA graphs")
    assert action.action.startswith("Remove or defer cudaDeviceSynchronize after launches in train") == named
    said = f"The program synchronises after {waits} of 20 launches before it launches again (cudaDeviceSynchronize)"
    assert (said.lower() in action.why.lower()) == named
    # Behind 9 launches it is as long, and fewer launches leave that time: 9 of 19 gaps of 100 us.
    few = waits == 9
    assert ("Synchronize" in action.why) == (named or few)
    assert (action.at_stake_ns == (1_000 if few else 1_900) * US) and ("without 900 us after" in action.why) == few


def steps(
    path: Path,
    gap_us: int,
    *,
    waits_from_us: int = 250,
    waiting_thread: int = 41,
    between: bool = False,
    step_gap_us: int = 0,
) -> Path:
    """20 steps of five kernels of 100 us, launched ahead; the host waits for the last and launches after a gap.

    In us from the start of a step: kernels 0-500, one wait up to 510, the launch call of the next step takes the last 20
    of the gap. `step_gap_us`: a gap inside each step, before the last kernel. `between`: a kernel of 1 us is launched
    after the wait, and ends before the gap.
    """
    kernels: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    length = 500 + step_gap_us + gap_us
    for step in range(20):
        start = step * length * US
        for n in range(5):
            at = start + (n * 100 + (step_gap_us if n == 4 else 0)) * US
            late = n == 4 and step_gap_us > 0
            launched = at if late else start - (20 - n) * US
            number = len(kernels) + 1
            kernels.append(kernel(41, at, at + 100 * US) | {"correlationId": number})
            begins = launched - (20 if late or n == 0 else 1) * US
            calls.append(call("cudaLaunchKernel_v7000", begins, launched) | {"correlationId": number})
        end = start + (500 + step_gap_us) * US
        returned = end - (11 * US if between else -10 * US)
        calls.append(
            call("cudaStreamSynchronize_v3020", end - (500 - waits_from_us) * US, returned, thread=waiting_thread)
        )
        if between:
            number = len(kernels) + 1
            kernels.append(kernel(41, end - 2 * US, end - US, streamId=8) | {"correlationId": number})
            calls.append(call("cudaLaunchKernel_v7000", end - 8 * US, end - 4 * US) | {"correlationId": number})
    return write(path, kernels=kernels, calls=calls, processes={41: "train"})


def test_a_wait_once_per_step_is_no_matter_of_short_kernels(tmp_path: Path) -> None:
    """19 gaps of 200 us: 10 until the wait returns, 180 until the launch call of the next step begins has returned."""
    path = steps(tmp_path / "a.sqlite", 200)
    split = split_of(path)
    # What is launched 20 us before the kernel starts is queued then.
    assert (split.waiting_ns, split.launches_ns, split.api_calls_ns) == (19 * 20 * US, 19 * 170 * US, 19 * 10 * US)
    gaps = split.sync_gaps
    assert gaps is not None and not (split.launch_waits is not None and split.launch_waits.often)
    assert (gaps.call, gaps.short_gaps, gaps.launches_ns) == ("cudaStreamSynchronize", 19, 19 * 170 * US)
    actions = pyanalyze.load(path).advise()[0].actions
    (item,) = (one for one in actions if "Synchronize" in one.action)
    assert item.action == "Remove cudaStreamSynchronize in train, or launch the next work before waiting in it"
    # Without the call, its part of the gap is saved as well.
    assert gaps.short_gaps_ns == item.at_stake_ns == 19 * 200 * US
    assert "nothing was queued, 19 times. Then the GPU was idle until the next operation started: 3.800 ms" in item.why
    assert item.why.endswith(" in all, 200 us each time on average")
    assert item.commands[0].startswith("nsys profile -t cuda,nvtx --cudabacktrace=sync ")
    assert not any("fewer, longer" in one.action and "start latency" not in one.action for one in actions)
    late = "The host of train was late because it had waited in cudaStreamSynchronize until nothing was queued"
    assert f"{late}: 3.230 ms of launching in 19 gaps." in render_markdown(pyanalyze.load(path).report())


@pytest.mark.parametrize(
    "unlike",
    [
        # Called when the work had ended: without it the host had been as late.
        {"waits_from_us": 501},
        # Another thread launches.
        {"waiting_thread": 42},
        # What was launched behind it ended before the gap.
        {"between": True},
    ],
)
def test_a_wait_that_keeps_nothing_from_being_launched_is_not_to_be_removed(
    tmp_path: Path, unlike: dict[str, Any]
) -> None:
    path = steps(tmp_path / "a.sqlite", 200, **unlike)
    assert split_of(path).sync_gaps is None
    actions = [one.action for one in pyanalyze.load(path).advise()[0].actions]
    assert any(one.startswith("Launch fewer, longer kernels") for one in actions)
    assert not any("Synchronize" in one for one in actions)


def test_fewer_launches_do_not_gain_what_a_wait_costs(tmp_path: Path) -> None:
    """Each step has a gap of 230 us inside, until a launch returns, and one of 200 us behind its wait."""
    path = steps(tmp_path / "a.sqlite", 200, step_gap_us=230, waits_from_us=450)
    actions = pyanalyze.load(path).advise()[0].actions
    (fewer,) = (one for one in actions if one.action.startswith("Launch fewer"))
    (wait,) = (one for one in actions if one.action.startswith("Remove cudaStreamSynchronize"))
    assert (fewer.at_stake_ns, wait.at_stake_ns) == (20 * 230 * US, 19 * 200 * US)
    assert "without 3.230 ms after cudaStreamSynchronize" in fewer.why


def test_a_long_gap_behind_a_wait_has_the_same_cause(tmp_path: Path) -> None:
    """19 gaps of 400 us: 10 until the wait returns, the launch call begins 40 us before the end."""
    path = steps(tmp_path / "a.sqlite", 400)
    split = split_of(path)
    assert split.sync_gaps is not None
    assert (split.sync_gaps.long_gaps, split.sync_gaps.host_ns) == (19, 19 * 350 * US)
    assert (split.sync_gaps.long_gaps_ns, split.sync_gaps.long_host_median_ns) == (19 * 400 * US, 350 * US)
    assert split.host_ns == 19 * 350 * US
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "host code" in one.action)
    assert (
        "All of it came after the host had waited in cudaStreamSynchronize until nothing was queued, 19 times. It then "
        "made no CUDA call for a median of 350 us. The capture cannot tell whether the host computed"
    ) in item.why
    # A server waits in it for its answer, then for a request: that call is no cause.
    assert "emove" not in f"{item.action} {item.why}" and item.why.endswith("this is spare capacity")
    assert item.bound is not None and item.bound.endswith("of its time; none if it waited for requests")
    page = render_markdown(pyanalyze.load(path).report())
    said = "nothing was queued, train made no CUDA call for 350 us (median): 6.650 ms of host in 19 gaps."
    assert f"After cudaStreamSynchronize had waited until {said}" in page
    assert "was late because" not in page
    # Where calls of the C library were recorded, they tell.
    known = HostActivity(
        recorded=[HostKind.OS], parts=[], mpi_ns=0, video_ns=0, os_ns=0, range_ns=0, nothing_ns=split.host_ns
    )
    split = split.model_copy(update={"host_activity": known})
    (told,) = (one for one in of_process("train", split) if "host code" in one.action)
    assert "median of 350 us" in told.why
    assert "cannot tell" not in told.why and "requests" not in f"{told.why} {told.bound}"


def test_a_real_training_loop_waits_once_per_step(hardware: Path) -> None:
    """By SQL: gaps of 250 us or less in which cudaStreamSynchronize returned, up to the return of the launch behind it."""
    path = hardware / "torch-alone-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        work = sorted(
            row
            for table in ("KERNEL", "MEMCPY", "MEMSET")
            for row in db.execute(f"SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_{table}")
        )
        calls = db.execute(
            "SELECT start, end, value, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId"
        ).fetchall()
    launched = {row[3]: row[1] for row in calls}
    waits = [(start, end) for start, end, name, _ in calls if "Synchronize" in name]
    found, whole_ns, until = [], 0, work[0][1]
    for start, end, correlation in work[1:]:
        returned = [e for s, e in waits if s <= until <= e <= launched[correlation]]
        if until < start <= until + 250 * US and returned:
            found.append(launched[correlation] - max(returned))
            whole_ns += start - until
        until = max(until, end)
    split = split_of(path)
    assert split.sync_gaps is not None
    assert (len(waits), len(found)) == (27, 27)
    # Queries beside it, of a few microseconds, are no launching.
    assert split.sync_gaps.short_gaps == 27
    assert 0 <= sum(found) - split.sync_gaps.launches_ns < 20 * US
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "Synchronize" in one.action)
    assert "27 times" in item.why and item.at_stake_ns == split.sync_gaps.short_gaps_ns == whole_ns


def test_the_steps_of_a_real_training_loop_and_where_the_table_splits_a_kernel(hardware: Path) -> None:
    """By SQL: 28 ranges `step`, of 12.59 ms (median) and 13.08 at most; the kernel with most time has two grids."""
    path = hardware / "torch-alone-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        lengths = sorted(row[0] for row in db.execute("SELECT end - start FROM NVTX_EVENTS WHERE text = 'step'"))
        columns = "gridX, gridY, gridZ, blockX, registersPerThread, dynamicSharedMemory"
        rows = db.execute(
            f"""SELECT value, count(DISTINCT format('%d %d %d %d %d %d', {columns})), sum(end - start)
            FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName GROUP BY value ORDER BY 3 DESC"""
        )
        name, grids, _ = next(row for row in rows if "nvjet" in row[0])
    assert (len(lengths), lengths[13] // 10_000, lengths[-1] // 10_000) == (28, 1259, 1307)
    report = pyanalyze.load(path).report()
    text = render_markdown(report)
    assert "python3 ran NVTX range step 28 times: 12.59 ms (median), at most 13.08 ms." in text
    assert report.devices[0].tenants[0].time_split is not None
    assert report.devices[0].tenants[0].time_split.top_kernel_configurations == grids == 2
    assert name.endswith("NTT")
    assert sum("in 2 launch configurations" in one.why for one in report.devices[0].advice) == 1


@pytest.mark.parametrize("export", ["pipit/perlmutter-cloverleaf-cuda", "balinski/report19.nsys2026"])
@pytest.mark.parametrize("part", ["Launch", "Synchronize"])
def test_calls_of_a_real_process_are_summed_by_name(corpus: Path, export: str, part: str) -> None:
    """As SQLite sums the rows of the export up."""
    path = corpus / "exports" / f"{export}.sqlite"
    sums = f"""SELECT globalTid >> 24 & 0xFFFFFF, count(*), sum(end - start)
        FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId WHERE value GLOB '*{part}*' GROUP BY 1"""
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as database:
        expected = {pid: (count, total_ns) for pid, count, total_ns in database.execute(sums)}
    tables = pyanalyze.load(path).tables
    assert expected
    for pid, summed in expected.items():
        assert tables.calls_named({"capture": 0, "pid": pid}, part) == summed
    assert tables.calls_named({"capture": 0, "pid": 1}, part) == (0, 0)


def test_the_host_of_cloverleaf_waits_behind_each_launch(corpus: Path) -> None:
    """Counted with SQL: launches whose thread's next launch or synchronisation is a synchronisation."""
    path = corpus / "exports" / "pipit" / "perlmutter-cloverleaf-cuda.sqlite"
    with closing(sqlite3.connect(path)) as db:
        counted = db.execute(
            """WITH calls AS (SELECT globalTid, start, value AS name, correlationId
                FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId
                WHERE value LIKE '%Launch%' OR value LIKE '%Synchronize%'),
            pairs AS (SELECT name, correlationId, lead(name) OVER (PARTITION BY globalTid ORDER BY start) AS next FROM calls)
            SELECT count(*), sum(next LIKE '%Synchronize%') FROM pairs WHERE name LIKE '%Launch%'
                AND correlationId IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL)"""
        ).fetchone()
    assert counted == (1312, 1312)
    waits = split_of(path).launch_waits
    assert waits is not None
    assert (waits.launches, waits.waited, waits.call) == (*counted, "cudaDeviceSynchronize")


@pytest.mark.parametrize(
    ("kernels_us", "window_us"),
    [
        ([(0, 0), (100, 110)], 110),
        ([(0, 0), (5000, 5010)], 5010),
        # The gap of 100 us is one, whatever starts at its end.
        ([(0, 10), (110, 110), (110, 110), (110, 120)], 120),
    ],
)
def test_operations_without_a_length_take_no_part_below_nothing(
    tmp_path: Path, kernels_us: list[tuple[int, int]], window_us: int
) -> None:
    """All are launched before the first one starts, one after the other in 1 us."""
    kernels = [kernel(41, a * US, b * US, correlationId=n) for n, (a, b) in enumerate(kernels_us, 1)]
    calls = [
        call("cudaLaunchKernel_v7000", (n - 9) * 10 * US, (n - 9) * 10 * US + US) | {"correlationId": n}
        for n in range(1, len(kernels) + 1)
    ]
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"}))
    assert min(parts(split)) >= 0 and (split.waiting_ns or 0) >= 0
    assert sum(parts(split)) + (split.waiting_ns or 0) == split.window_ns == window_us * US
    # Nothing but kernels and waits of what was launched long before.
    assert split.waiting_ns == split.window_ns - split.kernels_ns


def read_back(
    path: Path,
    *,
    every: int = 2,
    size: int = 4,
    waits: bool = True,
    others: bool = False,
    synchronises_us: tuple[int, int] | None = None,
) -> Path:
    """441 kernels of 4 us, and behind each second one, or fewer, a copy of 1 us.

    launch |0==2|                        |20==22|
    kernel         |5===9|                      |25===29|
    copy                    |11=12|
    call        |2==============16|      returns at 4, before the copy, if the host does not wait in it
    """
    kernels, copies, calls = [], [], []
    for n in range(441):
        at = n * 20 * US
        kernels.append(kernel(41, at + 5 * US, at + 9 * US))
        calls.append(call("cudaLaunchKernel_v7000", at, at + 2 * US) | {"correlationId": n + 1})
        # The host launches after the last value as well.
        if n % every == every - 1 and n < 440:
            back = {"bytes": size, "copyKind": 2, "srcKind": 2, "dstKind": 0, "correlationId": 1000 + n}
            copies.append(copy(41, at + 11 * US, at + 12 * US, **back))
            returned = at + (16 if waits else 4) * US
            function = "cudaMemcpy_v3020" if waits else "cudaMemcpyAsync_v3020"
            calls.append(call(function, at + 2 * US, returned) | {"correlationId": 1000 + n})
            if synchronises_us is not None:
                start_us, end_us = synchronises_us
                calls.append(call("cudaStreamSynchronize_v3020", at + start_us * US, at + end_us * US))
    processes = {41: "train"}
    if others:
        kernels.append(kernel(42, MS, 2 * MS))
        processes[42] = "serve"
    return write(path, kernels=kernels, copies=copies, calls=calls, processes=processes)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 220),
        ({"size": 1024}, 220),
        ({"size": 1025}, 0),
        # 44 of 441 launches are less than one in ten, 48 (each ninth) more.
        ({"every": 10}, 0),
        ({"every": 9}, 48),
        ({"waits": False}, 0),
        # What returns before the copy has ended, or comes behind the next launch, is no wait for the value.
        ({"waits": False, "synchronises_us": (4, 16)}, 220),
        ({"waits": False, "synchronises_us": (4, 10)}, 0),
        ({"waits": False, "synchronises_us": (23, 30)}, 0),
        ({"others": True}, 220),
    ],
)
def test_who_reads_a_value_back_in_every_iteration_is_not_told_to_pin_it(
    tmp_path: Path, changes: dict[str, Any], count: int
) -> None:
    (advice,) = pyanalyze.load(read_back(tmp_path / "a.sqlite", **changes)).advise()
    back = [one for one in advice.actions if "read a value back" in one.action]
    assert len(back) == bool(count)
    if not count:
        return
    (item,) = back
    asynchronous = "synchronises_us" in changes
    assert f"waited for each in {'cudaStreamSynchronize' if asynchronous else 'cudaMemcpy'} before" in item.why
    # Of a call, nothing is in flight from 9 to 11 and from 12 to 16; from 2 to 5 the launched kernel waits. A copy that
    # is enqueued at 4 waits from 9 to 11.
    assert item.at_stake_ns == count * (1 + (4 if asynchronous else 6)) * US
    assert f"{count} read-backs of at most" in item.why and "among 441 launches" in item.why
    others = [one.action + one.why for one in advice.actions if one is not item]
    assert not [said for said in others if "pinned" in said or "cudaMemcpy" in said or "copies" in said.lower()]


def test_a_synchronous_copy_counts_in_short_gaps_and_the_caption_says_so(tmp_path: Path) -> None:
    """It enqueues a copy, and returns only after it: 6 us of each call have nothing in flight."""
    session = pyanalyze.load(read_back(tmp_path / "a.sqlite"))
    (split,) = session.analysis.time_splits.values()
    assert (split.api_call, split.api_calls_ns) == ("cudaMemcpy", 220 * 6 * US)
    page = render_markdown(session.report())
    assert "in shorter gaps one that is no launch and not asynchronous, such as a synchronous copy" in page
    assert "enqueues nothing" not in page


def test_a_real_loop_reads_its_condition_back(corpus: Path) -> None:
    """By SQL: small copies to the host whose call returned after them, and whose thread launched next."""
    path = corpus / "exports" / "balinski" / "report19.nsys2026.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        launches, count, copied_ns = db.execute(
            """WITH calls AS (SELECT r.start, r.correlationId, m.end - m.start AS ns, m.correlationId IS NOT NULL AS reads
                FROM CUPTI_ACTIVITY_KIND_RUNTIME r LEFT JOIN CUPTI_ACTIVITY_KIND_MEMCPY m
                    ON m.correlationId = r.correlationId AND copyKind = 2 AND bytes <= 1024 AND r.end >= m.end
                WHERE m.correlationId IS NOT NULL
                    OR r.correlationId IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL)),
            pairs AS (SELECT *, lead(reads) OVER (ORDER BY start) AS next FROM calls)
            SELECT sum(NOT reads), sum(reads AND next = 0), sum(ns) FROM pairs"""
        ).fetchone()
    assert (launches, count) == (9359, 3827)
    reads = split_of(path).read_backs
    assert reads is not None
    # No kernel ran beside a copy.
    assert (reads.launches, reads.count, reads.exposed_ns) == (launches, count, copied_ns)
    assert (reads.largest_bytes, reads.call) == (4, "cudaMemcpyFromSymbol")
    actions = pyanalyze.load(path).advise()[0].actions
    assert not [one for one in actions if "pinned memory, asynch" in one.action or one.action.startswith("Copy less")]
    (item,) = (one for one in actions if one.action.startswith("Do not read a value back"))
    assert "MB/s" not in item.why and "MIG" not in item.why
    # By SQL: 3,203 launches of solve_1bc_kernel took 6,888,832 ns, as many of the shortest one 3,522,604 ns.
    (faster,) = (one for one in actions if one.action.startswith("Make kernel solve_1bc_kernel"))
    assert faster.at_stake_ns == pytest.approx(6_888_832 - 3_522_604, abs=3_203)
    assert "A launch takes 2.15 us, and one of the shortest kernel of the program 1.1" in faster.why
    # They say what takes its time: that nobody else is known is no action.
    assert not any(one.action.startswith("Keep the sharing configuration") for one in actions)


def queued(path: Path, *, graphs: bool = False) -> Path:
    """20 kernels of 100 us and gaps of 50: one thread launches all of them before the second one could begin.

    Then it waits for half of the gaps in one call. The gap before the last kernel is 300 us, as no start latency is.
    """
    kernels, calls = [], []
    for n in range(20):
        start, by_graph = n * 150 * US + (250 * US if n == 19 else 0), {"graphNodeId": n + 1} if graphs else {}
        kernels.append(kernel(41, start, start + 100 * US, correlationId=n + 1, **by_graph))
        name = "cudaGraphLaunch_v10000" if graphs else "cudaLaunchKernel_v7000"
        calls.append({**call(name, n * US - 10 * US, n * US - 9 * US), "correlationId": n + 1})
    calls.append(call("cudaStreamSynchronize_v3020", 1500 * US, 3200 * US))
    return write(path, kernels=kernels, calls=calls, processes={41: "train"})


def test_what_was_queued_in_time_is_not_limited_by_the_host(tmp_path: Path) -> None:
    """18 gaps of 50 us and one of 300, each behind the launch of the kernel that ends it, in a call and in none."""
    path = queued(tmp_path / "a.sqlite")
    split = split_of(path)
    assert parts(split) == (2000 * US, 0, 0, 0, 0)
    assert (split.waiting_ns, split.waiting_short_ns) == (18 * 50 * US + 300 * US, 18 * 50 * US)
    assert (split.api_call, split.graph_launches) == (None, 0)
    (action,) = (one for one in pyanalyze.load(path).advise()[0].actions if "start latency" in one.action)
    assert (action.at_stake_ns, action.bound) == (900 * US, "900 us, 28.1 % of its time")
    assert "one graph" in action.action and "graph launch" not in action.why
    actions = pyanalyze.load(queued(tmp_path / "b.sqlite", graphs=True)).advise()[0].actions
    (action,) = (one for one in actions if "start latency" in one.action)
    assert "larger graphs" in action.action
    assert "the capture has 20 graph launches already" in action.why


def test_where_launched_work_waits_and_that_graphs_came_second(corpus: Path) -> None:
    """75 kernels one by one, then 25 graphs of three: waits by SQL, behind the later of launch call and last end."""
    path = corpus / "exports" / "jaxtoolbox-gb200" / "pdl_two_producers.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        work = db.execute(
            'SELECT k.start, k."end", graphNodeId, k.correlationId, r."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) UNION ALL "
            'SELECT m.start, m."end", NULL, m.correlationId, r."end" FROM CUPTI_ACTIVITY_KIND_MEMCPY m '
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) ORDER BY 1"
        ).fetchall()
    waits: dict[str, list[int]] = {"one_by_one": [], "graphs": [], "later_nodes": []}
    free, seen = work[0][1], set()
    for start, end, node, launch, called in work[1:]:
        kind = "one_by_one" if node is None else "later_nodes" if launch in seen else "graphs"
        if 0 < start - free <= 250 * US and start > max(free, called):
            waits[kind].append(start - max(free, called))
        seen.add(launch)
        free = max(free, end)
    split = split_of(path)
    assert split.graph_waits is not None and split.launch_phases is not None
    told = split.graph_waits.model_dump()
    assert told == {
        key: value for kind, ns in waits.items() for key, value in ((kind, len(ns)), (f"{kind}_ns", sum(ns)))
    }
    assert sum(map(sum, waits.values())) == split.waiting_short_ns
    phases = split.launch_phases
    assert not phases.graphs_first
    assert (phases.kernels, phases.kernels_ns) == (75, 359_001_344 - 356_971_968)
    assert (phases.graphs, phases.graphs_ns) == (25, 360_625_216 - 359_287_136)
    assert phases.second_from_ns == 359_287_136
    # The third kernel of each graph may start early with programmatic dependent launch: none did.
    assert split.early_starts == 0
    report = pyanalyze.load(path).report()
    (action,) = (one for one in report.devices[0].advice if "start latency" in one.action)
    assert "graphs of what is launched one by one" in action.action and "larger graphs" not in action.action
    waited = "75 operations launched one by one (188 us), 24 graphs (84.4 us) and 25 later nodes of graphs (31.1 us)"
    assert f"The wait was before {waited}. No kernel started" in action.why
    text = " ".join(render_text(report).split())
    assert "ran in two phases: 75 kernels launched one by one (2.029 ms), then 25 graphs (1.338 ms)." in text
    assert "--end 359287us and --start 359287us show one each" in text


def test_kernels_that_start_early_use_programmatic_dependent_launch(tmp_path: Path) -> None:
    """By hand: every second kernel of a stream starts 1 us before the one before it ends; gaps of 50 us remain."""
    kernels, calls = [], []
    for n in range(20):
        start = n // 2 * 250 * US + n % 2 * 99 * US
        kernels.append(kernel(41, start, start + 100 * US, correlationId=n + 1))
        calls.append({**call("cudaLaunchKernelExC_v11060", n * US - 30 * US, n * US - 29 * US), "correlationId": n + 1})
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    split = split_of(path)
    assert (split.early_starts, split.graph_waits, split.launch_phases) == (10, None, None)
    (action,) = (one for one in pyanalyze.load(path).advise()[0].actions if "start latency" in one.action)
    assert action.action == "Cut start latency between kernels of train: fewer, longer kernels or one graph"
    assert "10 kernels started before the one before in the stream ended" in action.why


def test_kernels_of_a_real_program_are_queued_in_time(corpus: Path) -> None:
    """With SQL: of gaps of 14.970 ms in all, none longer than 250 us, 14.434 lie wholly behind the launch call."""
    path = corpus / "exports" / "jaxtoolbox-gb200" / "nsys_report_benchmark.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        each = " UNION ALL ".join(
            f'SELECT start, "end", correlationId FROM CUPTI_ACTIVITY_KIND_{table}'
            for table in ("KERNEL", "MEMCPY", "GRAPH_TRACE")
        )
        work = db.execute(f"SELECT * FROM ({each}) ORDER BY start").fetchall()
        called = dict(db.execute('SELECT correlationId, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start DESC'))
    whole_ns, waited_ns, free = 0, 0, work[0][1]
    for start, end, correlation in work[1:]:
        whole_ns += start - free if called[correlation] <= free < start else 0
        waited_ns += max(start - max(free, called[correlation]), 0)
        free = max(free, end)
    split = split_of(path)
    assert round(whole_ns / 1e6, 3) == 14.434
    assert split.waiting_ns == split.waiting_short_ns == waited_ns
    assert split.queued_in_time
    words = " ".join(render_summary(pyanalyze.load(path).report()).split())
    assert "is limited by start latency and dependencies: launched work had not started" in words
    assert "The host queued its operations in time." in words
    action = pyanalyze.load(path).advise()[0].actions[0]
    assert (action.at_stake_ns, "1\u202f000 graph launches" in action.why) == (waited_ns, True)


def test_without_launch_calls_nobody_is_said_to_wait(tmp_path: Path) -> None:
    """Gaps of 100 us, and only waits are recorded: what launched is not known."""
    kernels = [kernel(41, n * 200 * US, n * 200 * US + 100 * US) for n in range(20)]
    calls = [call("cudaDeviceSynchronize_v3020", n * 200 * US, n * 200 * US + 100 * US) for n in range(20)]
    for name, recorded in (("none", []), ("waits", calls)):
        path = write(tmp_path / f"{name}.sqlite", kernels=kernels, calls=recorded, processes={41: "train"})
        assert split_of(path).launch_waits is None
        actions = [one.action for one in pyanalyze.load(path).advise()[0].actions]
        assert any(one.startswith("Launch fewer, longer kernels in train") for one in actions)


def test_nobody_launches_a_migration(tmp_path: Path) -> None:
    """A kernel, and two migrations of unified memory, 100 us apart: those gaps are the host's."""
    moved = [copy(41, start * US, (start + 50) * US, copyKind=11) | {"correlationId": 0} for start in (200, 350)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, 100 * US)], copies=moved, processes={41: "train"})
    assert parts(split_of(path)) == (100 * US, 100 * US, 0, 0, 200 * US)


def test_a_call_before_a_migration_is_a_call(tmp_path: Path) -> None:
    """Ten times a kernel of 100 us, a wait of 200 us, a migration of 10 us, a kernel at once: nobody launches in the gap."""
    kernels, moved, calls = [], [], []
    for n in range(10):
        start = n * 310 * US
        kernels.append(kernel(41, start, start + 100 * US))
        moved.append(copy(41, start + 300 * US, start + 310 * US, copyKind=11) | {"correlationId": 0})
        calls.append(call("cudaDeviceSynchronize_v3020", start + 100 * US, start + 300 * US))
    path = write(tmp_path / "a.sqlite", kernels=kernels, copies=moved, calls=calls, processes={41: "train"})
    assert parts(split_of(path)) == (1000 * US, 100 * US, 0, 2000 * US, 0)


def test_calls_before_the_first_operation_are_told(tmp_path: Path) -> None:
    """cudaMalloc from 10 to 40 ms, another thread's cuCtxCreate from 20 to 50, and 0.1 ms of a launch before its kernel."""
    calls = [
        call("cudaMalloc_v3020", 10 * MS, 40 * MS),
        call("cuCtxCreate_v2", 20 * MS, 50 * MS, thread=42),
        call("cudaLaunchKernel_v7000", 100 * MS - 100 * US, 100 * MS + 50 * US),
    ]
    kernels = [kernel(41, 100 * MS, 110 * MS)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"}, duration_ns=200 * MS)
    before = split_of(path).calls_before
    assert before is not None
    assert (before.ns, before.call, before.call_ns) == (40 * MS + 100 * US, "cudaMalloc", 30 * MS)
    # It is four times what the shares are of: the first paragraph has it, and no other one repeats it.
    text = " ".join(render_markdown(pyanalyze.load(path).report()).split())
    said = "CUDA calls of train took 40.10 ms (cudaMalloc 30.00 ms)."
    assert said in lay_out(pyanalyze.load(path).report()).lead[0]
    assert text.partition("Where the time went")[2].count(said) == 1
    # Of a part of the capture its first operation may be any, and 40 ms are 1 % of four seconds.
    (part,) = pyanalyze.load(path).window(90 * MS).analysis.time_splits.values()
    assert part.calls_before is None
    kernels = [kernel(41, 100 * MS, 4_100 * MS)]
    assert split_of(write(tmp_path / "b.sqlite", kernels=kernels, calls=calls)).calls_before is None


def test_waits_for_time_slices_before_the_first_operation_are_told(corpus: Path) -> None:
    """By the switch records: inside cudaMalloc the context was saved 26 times until it was restored after another one."""
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "paging__ada-sync-iteration.nsys2026.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as export:
        (pid,) = export.execute("SELECT DISTINCT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        query = """SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId
                   WHERE value LIKE 'cudaMalloc\\_%' ESCAPE '\\'"""
        ((start, end),) = export.execute(query).fetchall()
        query = "SELECT timestamp, tag FROM GPU_CONTEXT_SWITCH_EVENTS WHERE globalPid = ? ORDER BY timestamp"
        own = export.execute(query, (pid,)).fetchall()
    # 8: restored, 7: saved.
    pairs = itertools.pairwise(own)
    out = [b - a for (a, tag), (b, after) in pairs if (tag, after) == (7, 8) and start <= a and b <= end]
    before = split_of(path).calls_before
    assert before is not None
    assert (before.switched_out, before.switched_out_ns) == (len(out), sum(out))
    assert len(out) == 26
    page = " ".join(render_text(pyanalyze.load(path).report()).split())
    assert "its context was switched out 26 times, 60.49 ms in all: it waited for its time slice" in page


def test_calls_before_the_first_operation_of_a_later_capture_are_told(tmp_path: Path) -> None:
    """The second recording begins 200 ms after the first; its cudaMalloc of 50 ms ends 60 ms before its kernel."""
    first = write(
        tmp_path / "a.sqlite", kernels=[kernel(41, 20 * MS, 400 * MS)], processes={41: "train"}, duration_ns=500 * MS
    )
    later = write(
        tmp_path / "b.sqlite", kernels=[kernel(41, 120 * MS, 220 * MS)],
        calls=[call("cudaMalloc_v3020", 10 * MS, 60 * MS)], processes={41: "serve"}, duration_ns=300 * MS,
        epoch_ns=1_790_000_000_200_000_000,
    )  # fmt: skip
    session = pyanalyze.load([first, later])
    assert session.capture["clock_offset_ns"].to_list() == [0, 200 * MS]
    found = [split.calls_before for split in session.analysis.time_splits.values()]
    assert [one and one.ns for one in found] == [None, 50 * MS]


def test_the_allocation_before_a_real_kernel_is_told(corpus: Path) -> None:
    """By SQL: calls that follow one another take 143.7 ms before a kernel of 4.7 ms, whose process is not the only one."""
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "paging__ada-1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((first,),) = db.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        calls = dict(
            db.execute(
                'SELECT value, sum(min("end", ?) - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId '
                "WHERE start < ? GROUP BY 1",
                (first, first),
            )
        )
    before = split_of(path).calls_before
    assert before is not None
    assert (before.ns, before.call, before.call_ns) == (sum(calls.values()), "cudaMalloc", calls["cudaMalloc_v3020"])
    text = " ".join(render_markdown(pyanalyze.load(path).report()).split())
    assert "CUDA calls of bin/pf_spin took 143.7 ms (122.1 ms of it context creation in cudaMalloc)." in text


def test_only_the_call_that_creates_the_context_is_said_to(corpus: Path, hardware: Path) -> None:
    """By SQL: cudaMalloc is the second call of `nussinov`, after 0.7 us of cuModuleGetLoadingMode, and takes 153.0 ms."""
    path = corpus / "exports" / "mig-a30" / "report3.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = (
            'SELECT value, "end" - start FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId ORDER BY start'
        )
        (_, asked_ns), (name, first_ns) = db.execute(query).fetchmany(2)
    assert (name, asked_ns < US, first_ns > 150 * MS) == ("cudaMalloc_v3020", True, True)
    before = split_of(path).calls_before
    assert before is not None and before.first_ns == first_ns
    # Its context is there: two calls made a stream each before this allocation, and a switch record is 2 s older.
    splits = pyanalyze.load(hardware.parent / "h200" / "slices-copies-open_loop.sqlite").analysis.time_splits
    (before,) = (split.calls_before for split in splits.values() if split.calls_before is not None)
    assert (before.call, before.first_ns) == ("cudaMallocHost", None)


def test_samples_in_files_of_nsys_are_the_profilers(corpus: Path) -> None:
    """nsys loads libToolsInjection*.so into the program (user guide): no code of the program is slow there."""
    page = run(
        "report", corpus / "exports" / "jaxtoolbox-gb200" / "pdl_two_producers.nsys2026.sqlite", "-f", "md"
    ).stdout
    assert " in the profiler (libToolsInjectionMemoryAllocator.so)" in page
    assert "in libToolsInjection" not in page


def test_nothing_waits_for_a_host_that_launches_nothing_more(tmp_path: Path) -> None:
    """A kernel until 1 ms, migrations at 3 and 6 ms for 0.1 ms each, cudaFree from 4 to 5: the host has 2 + 1.9 ms."""
    back = [
        copy(41, start, start + 100 * US, copyKind=12) | {"correlationId": 0, "migrationCause": 2}
        for start in (3 * MS, 6 * MS)
    ]
    calls = [call("cudaFree_v3020", 4 * MS, 5 * MS)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, MS)], copies=back, calls=calls, processes={41: "train"})
    split = split_of(path)
    assert (split.limit, split.host_ns, split.host_after_ns) == ("host", 3_900 * US, 3_900 * US)
    report = pyanalyze.load(path).report()
    said = "Most of the host's time is after its last launch, between migrations of unified memory."
    assert said in lay_out(report).lead[0]
    assert not any("the GPU waits for it" in action.action for action in report.devices[0].advice)
    # A second kernel at 8 ms is launched late: of 5.8 ms then nothing lies after it.
    kernels = [kernel(41, 0, MS), kernel(41, 8 * MS, 9 * MS)]
    path = write(tmp_path / "b.sqlite", kernels=kernels, copies=back, calls=calls, processes={41: "train"})
    assert (split_of(path).host_ns, split_of(path).host_after_ns) == (5_800 * US, 0)
    assert any("the GPU waits for it" in action.action for action in pyanalyze.load(path).advise()[0].actions)


def test_page_faults_after_the_only_kernel_are_not_waited_for(corpus: Path) -> None:
    """By SQL: between the end of the kernel and of the last migration, less migrations and the call that runs on."""
    path = corpus / "exports" / "easycuda" / "nsys_easy.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((kernels, end),) = db.execute('SELECT count(*), max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL')
        moved = db.execute(
            'SELECT "end" - start, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE start > ? ORDER BY start', (end,)
        ).fetchall()
        ((called,),) = db.execute(
            'SELECT max("end") FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start < ? AND "end" > ?', (end, end)
        )
    assert (kernels, len(moved)) == (1, 24)
    after = moved[-1][1] - called - sum(ns for ns, _ in moved)
    assert split_of(path).host_after_ns == after == 3_422_796


def test_a_tenant_that_waits_with_launched_work_is_named(tmp_path: Path) -> None:
    """Process 41 runs |0=1|      |10=11| ms and launches the second kernel from 2 to 2.1 ms; process 42 runs |0.5===10|.

    Of its 11 ms it waits for 7.9, and nothing shows what its kernels take solo.
    """
    kernels = [kernel(41, 0, MS), kernel(42, 500 * US, 10 * MS), kernel(41, 10 * MS, 11 * MS)]
    kernels = [one | {"correlationId": n} for n, one in enumerate(kernels, 1)]
    launch = call("cudaLaunchKernel_v7000", 2 * MS, 2100 * US) | {"correlationId": 3}
    wait = call("cudaStreamSynchronize_v3020", 2100 * US, 11 * MS)
    names = {41: "serve", 42: "train"}
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=[launch, wait], processes=names)
    splits = {split.window_ns: split for split in pyanalyze.load(path).analysis.time_splits.values()}
    assert (splits[11 * MS].waiting_ns, splits[11 * MS].api_calls_ns) == (7900 * US, 100 * US)
    words = " ".join(render_summary(pyanalyze.load(path).report()).split())
    assert "For 71.8 % of its time serve had launched work and nothing in flight." in words
    # Both are at work from 0.5 to 10 of 11 ms.
    (device,) = pyanalyze.load(path).report().devices
    assert device.all_at_work is not None
    assert (device.all_at_work.start_ns, device.all_at_work.end_ns) == (500 * US, 10 * MS)
    assert "co-run 86 %" in words


def test_launched_work_waits_in_short_gaps_too(hardware: Path) -> None:
    """From the export: the service has nothing in flight for 35 of 148 ms in which a graph that it launched waits.

    Its gaps, less what lies before the end of the launch call of what ends each, whatever call it is in.
    """
    path = hardware / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        of = "WHERE globalPid >> 24 & 16777215 = 1287"
        tables = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
        each = " UNION ALL ".join(f"SELECT start, end, correlationId FROM {table} {of}" for table in tables)
        work = db.execute(f"SELECT * FROM ({each}) ORDER BY start").fetchall()
        calls = db.execute(
            """SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME
            WHERE globalTid >> 24 & 16777215 = 1287"""
        ).fetchall()
    called = {correlation: end for _, end, correlation in calls}
    waited, free = 0, work[0][1]
    for start, end, correlation in work[1:]:
        waited += max(start - max(free, called[correlation]), 0)
        free = max(free, end)
    assert 34 * MS < waited < 36 * MS
    assert pyanalyze.load(path).analysis.time_splits[0, 0].waiting_ns == waited


@pytest.mark.parametrize(("freed_us", "named"), [(950, "cudaFree"), (850, "cudaMalloc")])
def test_a_call_has_no_time_of_work_that_was_launched_and_waits(freed_us: int, named: str, tmp_path: Path) -> None:
    """A kernel is launched from 2.9 to 3 ms and starts at 9 ms: calls from 3 to 9 ms wait for it, earlier ones do not."""
    launch = {**call("cudaLaunchKernel_v7000", 2_900 * US, 3 * MS), "correlationId": 2}
    calls = [
        call("cudaFree_v3020", MS, MS + freed_us * US),
        call("cudaMalloc_v3020", 2 * MS, 2_900 * US),
        launch,
        call("cudaMalloc_v3020", 3 * MS, 4 * MS),
        call("cudaFree_v3020", 4 * MS, 9 * MS),
    ]
    kernels = [kernel(41, 0, MS), kernel(41, 9 * MS, 10 * MS, correlationId=2)]
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"}))
    assert (split.api_call, split.api_call_ns) == (named, max(freed_us, 900) * US)


def test_a_call_that_only_waits_for_a_kernel_is_not_to_be_left_out(tmp_path: Path) -> None:
    """The second kernel is launched at once and starts after 8 ms, in which the host frees memory."""
    launch = {**call("cudaLaunchKernel_v7000", MS, MS + 10 * US), "correlationId": 2}
    calls = [launch, call("cudaFree_v3020", MS + 10 * US, 9 * MS)]
    kernels = [kernel(41, 0, MS), kernel(41, 9 * MS, 10 * MS, correlationId=2)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    split = split_of(path)
    assert split.waiting_ns == 9 * MS - (MS + 10 * US)
    assert not any("cudaFree" in one.action for one in pyanalyze.load(path).advise()[0].actions)


def test_a_bound_leaves_out_what_a_call_waits_for_kernels(corpus: Path) -> None:
    """By SQL: the call that a kernel follows 2.08 ms after its launch is not the one that takes 5.24 ms."""
    path = corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = """SELECT r.start, r.end, r.correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME r
            JOIN StringIds s ON s.id = r.nameId WHERE s.value LIKE ? ORDER BY r.start"""
        freed = db.execute(rows, ["cudaFree_v%"]).fetchall()
        launched = {correlation: end for _, end, correlation in db.execute(rows, ["cudaLaunchKernel_v%"])}
        kernels = db.execute(
            "SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start"
        ).fetchall()
    first, last = kernels[0][0], kernels[-1][1]
    inside = [(start, end) for start, end, _ in freed if first < start < last and end - start > 2 * US]
    # Both kernels that the first one waits for start shortly before its end, one behind the other.
    (start, end), (start_2, end_2) = inside
    (begin, _, one), (_, done, _) = kernels[1:3]
    assert launched[one] < start < begin < done < end
    assert start - begin == pytest.approx(-2.084 * MS, abs=1 * US)
    split = split_of(path)
    assert split.api_call == "cudaFree"
    assert split.api_call_ns == pytest.approx(end_2 - start_2 + end - done, abs=2 * US)
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "cudaFree" in one.action)
    assert item.at_stake_ns == split.api_call_ns


def test_a_call_over_two_gaps_is_one_call(tmp_path: Path) -> None:
    """A wait over a gap of 1 ms, a kernel, and a gap of 200 us."""
    kernels = [kernel(41, 0, MS), kernel(41, 2 * MS, 3 * MS), kernel(41, 3 * MS + 200 * US, 4 * MS)]
    calls = [call("cudaDeviceSynchronize_v3020", MS, 3 * MS + 200 * US)]
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"}))
    assert (split.api_call, split.api_call_ns, split.api_call_count) == ("cudaDeviceSynchronize", 1_200 * US, 1)


def test_the_section_tells_how_little_a_named_call_took(tmp_path: Path) -> None:
    """A query of 100 us in the gap of 1 ms between two kernels: 2 % of 5 ms."""
    kernels = [kernel(41, 0, 2 * MS), kernel(41, 3 * MS, 5 * MS)]
    calls = [call("cudaEventQuery_v3020", 2 * MS, 2100 * US)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    assert "| cudaEventQuery (2.0 %) |" in render_markdown(pyanalyze.load(path).report())


def test_a_call_beside_launches_is_not_named(tmp_path: Path) -> None:
    """Gaps of 100 us in which one thread launches and another one asks."""
    times = [n * 200 * US for n in range(20)]
    kernels = [kernel(41, start, start + 100 * US) for start in times]
    calls = []
    for start in times[:-1]:
        calls.append(call("cudaLaunchKernel_v7000", start + 100 * US, start + 200 * US))
        calls.append(call("cudaEventQuery_v3020", start + 120 * US, start + 140 * US, thread=42))
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"}))
    assert (split.api_calls_ns, split.api_call, split.api_call_count) == (0, None, 0)


def test_calls_that_were_not_read_are_not_said_to_be_none(tmp_path: Path) -> None:
    """A gap of 300 us in 100 ms, in which a call ran."""
    kernels = [kernel(41, 0, 50 * MS), kernel(41, 50 * MS + 300 * US, 100 * MS)]
    calls = [call("cudaMalloc_v3020", 50 * MS, 50 * MS + 200 * US)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    assert split_of(path).api_calls_ns is None
    (line,) = (
        line
        for line in render_markdown(pyanalyze.load(path).report()).splitlines()
        if line.startswith("| train | 100.0 ms")
    )
    # The calls and what they had launched have part of 0.3 ms; the longest of them is not known.
    assert (line.count("| not split from launching and host |"), line.count("not known")) == (2, 1)


@pytest.mark.parametrize(
    ("top_ns", "short_ns", "action", "at_stake_ns"),
    [
        # 400 launches: what is above the shortest kernel can be saved.
        (3_000, 1_000, "Make kernel top of train faster", 400 * 2_000),
        # Of 4.88 ms 2 % is 98 us: 80 us are not worth an item, all launches are.
        (1_200, 1_000, "Launch kernel top of train less often", 400 * 1_200),
        # What takes 2.5 us may do something itself.
        (3_000, 2_500, "Make kernel top of train faster", 400 * 3_000),
        # A part of less than 2 % of its time is not told.
        (60_000, 1_000, "Make kernel top of train faster", 400 * 60_000),
    ],
)
def test_no_kernel_gets_shorter_than_the_shortest(
    tmp_path: Path, top_ns: int, short_ns: int, action: str, at_stake_ns: int
) -> None:
    """400 launches of one kernel, each before one of a shorter one, with gaps of 5 us."""
    kernels, at = [], 0
    for _ in range(400):
        for name, length in (("top", top_ns), ("short", short_ns)):
            kernels.append(kernel(41, at, at + length, shortName=name, demangledName=name))
            at += length + 5_000
    path = write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"})
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "kernel top of train" in one.action)
    assert item.action.startswith(action)
    assert item.at_stake_ns == at_stake_ns
    assert ("takes no time" in item.why) == (at_stake_ns in (400 * 3_000, 400 * 60_000))


def test_kernels_that_share_a_short_name_are_not_one(tmp_path: Path) -> None:
    """Two kernels of one short name with 3 and 2 ms, and one of another with 1 ms."""
    calls = [call(name, n, n + 1) for n, name in enumerate(["loop", "void loop<A>()", "void loop<B>()", "other"])]
    kernels = [
        kernel(41, start * MS, end * MS, shortName=short, demangledName=full)
        for start, end, short, full in [(1, 4, 2, 3), (5, 7, 2, 4), (8, 9, 5, 5)]
    ]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    split = split_of(path)
    assert (split.top_kernel, split.top_kernel_ns, split.top_kernel_kinds) == ("loop<A>", 3 * MS, 1)
    (action, *_) = pyanalyze.load(path).advise()[0].actions
    assert action.action == "Make kernel loop<A> of train faster"
    assert "loop<A> has 50.0 % of all kernel time" in action.why


def test_overlap_hides_no_more_than_the_kernels(tmp_path: Path) -> None:
    """Copies of 9 ms, one kernel of 1 ms."""
    path = write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, 9 * MS, 10 * MS)],
        copies=[copy(41, 0, 9 * MS)],
        processes={41: "train"},
    )
    (action, *_) = pyanalyze.load(path).advise()[0].actions
    assert action.action == "Copy less in train"
    assert "can hide 1.000 ms of that at most" in action.why


def test_time_in_flight_counts_once(tmp_path: Path) -> None:
    """Two streams overlap: |0==2| and |1==3|."""
    kernels = [kernel(41, 0, 2 * MS), kernel(41, MS, 3 * MS, streamId=8)]
    split = split_of(write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"}))
    assert (split.kernels_ns, split.window_ns, split.limit) == (3 * MS, 3 * MS, "kernels")
    # The sum of its durations is more than the time in flight: what a faster kernel can save at most is that time.
    (action, *_) = pyanalyze.load(tmp_path / "a.sqlite").advise()[0].actions
    assert (split.top_kernel_ns, action.at_stake_ns) == (4 * MS, 3 * MS)


def test_a_process_that_was_alone_is_told_nothing_about_solo_runs(process: Path) -> None:
    device = pyanalyze.load(process).report().devices[0]
    assert {action.wrong_if for action in device.advice if action.at_stake_ns is not None} == {None}


def test_launches_behind_copies_are_not_blocked_by_the_host(tmp_path: Path) -> None:
    """Copies of 9 ms behind each other; every launch call waits for one of them."""
    kernels = [kernel(41, n * 10 * MS + 9 * MS, (n + 1) * 10 * MS) for n in range(40)]
    copies = [copy(41, n * 10 * MS, n * 10 * MS + 9 * MS) for n in range(40)]
    held = [{**call("cudaLaunchKernel_v7000", n * 10 * MS, n * 10 * MS + (9 * MS if n > 25 else 10 * US)),
             "correlationId": n + 1} for n in range(40)]  # fmt: skip
    path = write(tmp_path / "a.sqlite", kernels=kernels, copies=copies, calls=held, processes={41: "train"})
    assert pyanalyze.load(path).interference()[0].host == ()
    # Without the copies the GPU is idle, and the same calls are what holds it.
    path = write(tmp_path / "b.sqlite", kernels=kernels, calls=held, processes={41: "train"})
    assert {finding.what for finding in pyanalyze.load(path).interference()[0].host} == {"blocked launches"}


def test_the_page_begins_with_what_limits_the_process(process: Path) -> None:
    page = lay_out(pyanalyze.load(process).report())
    assert "train is limited by CUDA calls" in page.lead[0]


def test_kernels_of_one_library_name_are_told_apart(tmp_path: Path) -> None:
    """Three kernels called Kernel: two of one template argument have 1 and 3 ms, one of another 2 ms."""
    full = [f"void cutlass::Kernel<cutlass::gemm::kernel::{name}<(int){n}>>" for name, n in (("Gemm", 1), ("Gemm", 2))]
    full.append("void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<(int)4>>")
    # Strings are written for names of calls: k is 1, these are 2 to 5.
    calls = [call(name, n, n + 1) for n, name in enumerate(["Kernel", *full])]
    kernels = [
        kernel(41, start * MS, end * MS, shortName=2, demangledName=3 + n)
        for n, (start, end) in enumerate([(1, 2), (3, 6), (7, 9)])
    ]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "/opt/bin/train"})
    split = split_of(path)
    assert (split.top_kernel, split.top_kernel_ns, split.top_kernel_share) == ("Kernel<Gemm<2>>", 3 * MS, 0.5)
    (action, *_) = pyanalyze.load(path).advise()[0].actions
    assert action.action == "Make kernel Kernel<Gemm<2>> of train faster"
    command = r"ncu --set full -c 3 --kernel-name-base demangled -k 'regex:Kernel\b.*\bGemm\b.*\b2\b' PROGRAM"
    assert action.commands == [command]
    page = run("report", path, "-f", "md").stdout
    assert sorted(re.findall(r"^\| (Kernel&\S*) \|", page, re.MULTILINE)) == [
        "Kernel&#60;Gemm&#60;1>>",
        "Kernel&#60;Gemm&#60;2>>",
        "Kernel&#60;ReduceSplitK>",
    ]


def test_a_kernel_beside_others_is_worth_what_it_ran_alone(tmp_path: Path) -> None:
    """B runs from 1 to 16 ms, A beside it from 4 to 8 ms, and from 14 to 18 ms."""
    names = {"shortName": 2, "demangledName": 2}
    kernels = [
        kernel(41, MS, 16 * MS, **names),
        kernel(41, 4 * MS, 8 * MS, streamId=8),
        kernel(41, 14 * MS, 18 * MS, streamId=8),
    ]
    calls = [call("B", 1, 2), call("A", 3, 4)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "app"})
    split = split_of(path)
    assert (split.top_kernel_ns, split.top_kernel_only_ns) == (15 * MS, 9 * MS)
    action = pyanalyze.load(path).advise()[0].actions[0]
    assert action.bound == "9.000 ms, 52.9 % of its time, in which no kernel of another name was in flight"


def host_row(name: str, start: float, end: float, *, thread: int = 41, column: str = "nameId") -> dict[str, Any]:
    """A row of a table of calls; times in ms."""
    return {
        "start": round(start * MS),
        "end": round(end * MS),
        "globalTid": global_pid(41) + thread,
        column: name,
    }


@pytest.fixture
def exchange(tmp_path: Path) -> Path:
    """One process whose thread 41 launches, with times in ms.

    kernels  |0=1|                                                             |20=21|
    calls    |0==2| synchronize                               |18=18.5| launches the second kernel
    MPI           |3 Sendrecv 9|9 Allreduce 10|
    OS calls        |4 poll 5|             |11 read 13|       and of thread 42 |0 futex 20|
    NVTX        |2.5 step                                16|
                                         |10.5 load 14|
    video, of thread 42                                    |16.5 map 17.5|
    """
    return write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, 0, MS), kernel(41, 20 * MS, 21 * MS)],
        calls=[
            call("cudaDeviceSynchronize_v3020", 0, 2 * MS),
            {**call("cudaLaunchKernel_v7000", 18 * MS, 18_500 * US), "correlationId": 2},
        ],
        ranges=[nvtx_range(41, 2_500 * US, 16 * MS, "step"), nvtx_range(41, 10_500 * US, 14 * MS, "load")],
        host_calls={
            "MPI_OTHER_EVENTS": [host_row("MPI_Sendrecv", 3, 9, column="textId")],
            "MPI_COLLECTIVES_EVENTS": [host_row("MPI_Allreduce", 9, 10, column="textId")],
            "OSRT_API": [
                host_row("futex", 0, 20, thread=42),
                host_row("poll", 4, 5),
                host_row("read", 11, 13),
            ],
            "NVVIDEO_DECODER_API": [host_row("cuvidMapVideoFrame64", 16.5, 17.5, thread=42)],
        },
        processes={41: "train"},
    )


def test_what_the_host_did_is_told_by_what_says_most(exchange: Path) -> None:
    """Of 16 ms: MPI 6 + 1, read 2, step 0.5 + 0.5 + 2, load 0.5 + 1, video 1, nothing 0.5 three times; 1.5 ms wait."""
    split = split_of(exchange)
    did = split.host_activity
    assert did is not None
    assert (split.host_ns, split.waiting_ns) == (16 * MS, 1500 * US)
    assert [(kind, did.kind_ns(kind)) for kind in did.recorded] == [
        ("mpi", 7 * MS),
        ("video", MS),
        ("os", 2 * MS),
        ("range", 4_500 * US),
    ]
    assert did.nothing_ns == 1500 * US
    assert [(part.name, part.ns, part.range) for part in did.parts] == [
        ("MPI_Sendrecv", 6 * MS, "step"),
        ("step", 3 * MS, None),
        ("read", 2 * MS, "load"),
        ("load", 1_500 * US, None),
        ("cuvidMapVideoFrame64", MS, None),
        ("MPI_Allreduce", MS, "step"),
    ]
    assert did.parts[0].share == pytest.approx(6 / 16)


def test_the_first_screen_and_the_page_say_what_the_host_did(exchange: Path) -> None:
    report = pyanalyze.load(exchange).report()
    words = " ".join(render_summary(report).split())
    did = "43.8 % in MPI calls (MPI_Sendrecv 37.5 %), 28.1 % in NVTX ranges (step 18.8 %), 9.4 % in no traced call or range"
    assert "nothing of this process was on the GPU, and no CUDA call ran, for 76.2 % of its time" in words
    # The first screen leaves out what does not fit.
    said = "Of the host's time, its launching thread spent 43.8 % in MPI calls"
    assert said in words
    page = render_markdown(report)
    assert f"{said} (MPI_Sendrecv 37.5 %)" in page and did in page


def test_a_gap_at_the_start_is_not_what_the_host_did_elsewhere(tmp_path: Path) -> None:
    """In ms: kernels 0-1, 501-601, 701-801, range `load` 601-701: 100 of the 600 of the host, and none of the gap."""
    starts = [0, *range(501, 601), *range(701, 801)]
    path = write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, start * MS, (start + 1) * MS) for start in starts],
        calls=[{**call("cudaLaunchKernel_v7000", 0, 1000), "correlationId": 1}],
        ranges=[nvtx_range(41, 601 * MS, 701 * MS, "load")],
        processes={41: "train"},
    )
    report = pyanalyze.load(path).report()
    (device,) = report.devices
    gap = "Most of the host's time lies in one gap of 500.0 ms at its start: --start 501000us leaves it out."
    did = "Of the host's time, its launching thread spent 16.7 % in NVTX ranges (load 16.7 %)."
    assert f"{gap} {did}" in (limit_text(device) or "")
    why = device.advice[0].why
    assert "500.0 ms of it is one gap at its start. Of all 600.0 ms, the host spent 16.7 % in" in why


def test_who_waits_for_other_ranks_is_not_told_to_profile_its_host(exchange: Path) -> None:
    (action, *_) = pyanalyze.load(exchange).advise()[0].actions
    assert (
        action.action
        == "Balance the ranks of train, or overlap its MPI exchange with kernels: the GPU waits for MPI calls"
    )
    assert action.at_stake_ns == 7 * MS
    assert action.commands[0].startswith("nsys profile -t cuda,nvtx,mpi -o NAME PROGRAM   # for every rank")


@pytest.mark.parametrize(
    ("took_ms", "action", "said"),
    [
        # Of 31 calls the first has 15 ms, 30 others 36: 25 of 1 ms, and five of 2.2 at the end. p90 is the 28th of 30.
        (
            [15.0, *[1.0] * 25, *[2.2] * 5],
            "Balance the ranks of train, or overlap its MPI exchange with kernels: the GPU waits for MPI calls",
            "The first call of MPI_Wait took 15.00 ms, as a one-off set-up does. The others took 1.000 ms to 2.200 ms "
            "(p10-p90), the longest 2.200 ms: ranks that are late by different times, or messages of different sizes",
        ),
        # No longer than twice the shortest: regular.
        (
            [15.0, *[1.0] * 25, *[1.8] * 5],
            "Overlap the MPI exchange of train with kernels, or make it cheaper: its calls take about the same time each",
            "The first call of MPI_Wait took 15.00 ms, as a one-off set-up does. The others took 1.000 ms to 1.800 ms "
            "(p10-p90), the longest 1.800 ms: a fixed cost of each, or ranks that are always late by as much",
        ),
        # Two of 30 ms have more than 30 of 1.
        (
            [30.0, 30.0, *[1.0] * 30],
            "Let the ranks of train exchange once before the part that counts: the first MPI calls take most of the time "
            "of all",
            "The first 2 calls of MPI_Wait took 60.00 ms, as a one-off set-up does. The others took 1.000 ms to 1.000 ms",
        ),
        # One of 40 ms in the middle is no set-up, and has more than all others.
        (
            [*[1.0] * 15, 40.0, *[1.0] * 15],
            "Balance the ranks of train, or overlap its MPI exchange with kernels: the GPU waits for MPI calls",
            ". Calls of MPI_Wait took 1.000 ms to 1.000 ms (p10-p90), the longest 40.00 ms: ranks that are late by different",
        ),
        # Nineteen show no pattern.
        (
            [1.0] * 19,
            "Balance the ranks of train, or overlap its MPI exchange with kernels: the GPU waits for MPI calls",
            "the host spent 100.0 % in MPI calls (MPI_Wait 100.0 %)",
        ),
    ],
)
def test_regular_calls_of_mpi_are_told_from_set_up_and_from_late_ranks(
    tmp_path: Path, took_ms: list[float], action: str, said: str
) -> None:
    """Kernels of 0.1 ms with a call of MPI between them."""
    kernels, waits, calls, now = [kernel(41, 0, 100 * US)], [], [], 100 * US
    for n, took in enumerate(took_ms):
        waits.append(host_row("MPI_Wait", now / MS, now / MS + took, column="textId"))
        now += round(took * MS)
        calls.append({**call("cudaLaunchKernel_v7000", now - 1, now), "correlationId": n + 2})
        kernels.append(kernel(41, now, now + 100 * US))
        now += 100 * US
    recorded = {"MPI_OTHER_EVENTS": waits}
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, host_calls=recorded, processes={41: "train"})
    (item, *_) = pyanalyze.load(path).advise()[0].actions
    assert item.action == action
    assert said in item.why


def test_ranges_that_use_the_gpu_differently_are_told_apart(corpus: Path) -> None:
    """A solver runs once on its GPU alone and once with seven others, whose ranks were not traced."""
    path = corpus / "exports" / "gpubootcamp-8v100" / "report1.nsys2026.sqlite"
    inside = """SELECT total(min(e."end", r."end") - max(e.start, r.start)) FROM {} AS e
        WHERE e.start < r."end" AND e."end" > r.start"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        # Kernels, and calls of MPI, of this process run one at a time.
        ranges = db.execute(
            f"""SELECT r.start, r."end", ({inside.format("CUPTI_ACTIVITY_KIND_KERNEL")}) / (r."end" - r.start),
            ({inside.format("MPI_OTHER_EVENTS")}) / (r."end" - r.start)
            FROM NVTX_EVENTS AS r WHERE r.text = 'Jacobi solve' ORDER BY 1"""
        ).fetchall()
        ((between,),) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 10").fetchall()
    report = pyanalyze.load(path).report()
    (tenant,) = report.devices[0].tenants
    assert tenant.time_split is not None
    phases = tenant.time_split.range_phases
    assert [one.name for one in phases] == ["Jacobi solve", "Jacobi solve"]
    for one, (start, end, kernels, mpi) in zip(phases, ranges, strict=True):
        assert (one.start_ns, one.end_ns) == (start, end)
        assert (one.kernels_share, one.mpi_share) == pytest.approx((kernels, mpi), abs=1e-6)
    lead = " ".join(lead_sentences(report.devices[0]))
    assert "kernels 97.9 %; Jacobi solve (1.417 s from 9338ms): kernels 30.6 %, MPI calls 66.0 %." in lead
    # The other end of copies between devices is on a GPU of which no work was recorded.
    assert (
        without_work_text(report)
        == f"7 other GPUs: no work recorded, but {count(between)} copies from or to one of them"
    )


def test_the_exchange_of_a_real_rank_is_set_up_once_and_regular_then(corpus: Path) -> None:
    """By SQL: 4 of 2 000 calls have 38 % of the time; of the others none takes twice as long as the middle one."""
    path = corpus / "exports" / "gpubootcamp-8v100" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        took = [
            ns
            for (ns,) in db.execute(
                'SELECT "end" - start FROM MPI_OTHER_EVENTS JOIN StringIds ON id = textId '
                "WHERE value = 'MPI_Sendrecv' ORDER BY start"
            )
        ]
    assert len(took) == 2000 and min(took[:4]) > 100 * max(took[4:])
    assert max(took[4:]) < 2 * sorted(took[4:])[998]
    split = split_of(path)
    assert split.host_activity is not None
    calls = split.host_activity.mpi_calls
    assert calls is not None
    assert (calls.calls, calls.first_calls, calls.first_ns, calls.other_ns) == (2000, 4, sum(took[:4]), sum(took[4:]))
    actions = pyanalyze.load(path).advise()[0].actions
    assert any(one.action.startswith("Overlap the MPI exchange of jacobi with kernels") for one in actions)
    assert not any("other ranks" in one.action for one in actions)


def test_a_short_wait_for_other_ranks_is_not_launching(tmp_path: Path) -> None:
    """Gaps of 100 us: the thread that launches is in MPI for 60, of which 10 in a query, and launches for 30; 10 wait.

    Thread 42 is in MPI all the time: it launches nothing, and the GPU does not wait for it.
    """
    kernels, calls, waits = [], [], [host_row("MPI_Wait", 0, 4, thread=42, column="textId")]
    for n in range(20):
        start = n * 200 * US
        kernels.append(kernel(41, start, start + 100 * US))
        launched = {"correlationId": n + 1}
        calls.append({**call("cudaLaunchKernel_v7000", start - 40 * US, start - 10 * US), **launched})
        if n:
            waits.append(host_row("MPI_Sendrecv", start / MS - 0.1, start / MS - 0.04, column="textId"))
            calls.append(call("cudaEventQuery_v3020", start - 80 * US, start - 70 * US))
    path = write(
        tmp_path / "a.sqlite",
        kernels=kernels,
        calls=calls,
        host_calls={"MPI_OTHER_EVENTS": waits},
        processes={41: "train"},
    )
    split = split_of(path)
    assert parts(split) == (2000 * US, 0, 19 * 30 * US, 19 * 10 * US, 19 * 50 * US)
    assert split.waiting_ns == 19 * 10 * US
    did = split.host_activity
    assert did is not None and (did.mpi_ns, did.nothing_ns) == (19 * 50 * US, 0)
    assert [(part.name, part.ns, part.share) for part in did.parts] == [("MPI_Sendrecv", 19 * 50 * US, 1.0)]
    actions = pyanalyze.load(path).advise()[0].actions
    stakes = {item.action.partition(" ")[0]: item.at_stake_ns for item in actions}
    assert (stakes["Balance"], stakes["Launch"], stakes["Cut"]) == (19 * 50 * US, 19 * 30 * US, 19 * 10 * US)


def waiting(path: Path, **recorded: Any) -> Advice:
    """The first advice for a process whose host has a gap of 19 ms with no CUDA call."""
    kernels = [kernel(41, 0, MS), kernel(41, 20 * MS, 21 * MS)]
    launch = {**call("cudaLaunchKernel_v7000", 20 * MS - 1, 20 * MS), "correlationId": 2}
    path = write(path, kernels=kernels, calls=[launch], processes={41: "train"}, **recorded)
    (action, *_) = pyanalyze.load(path).advise()[0].actions
    return action


def test_host_calls_and_samples_of_the_capture_are_looked_at_before_recording_again(tmp_path: Path) -> None:
    samples = [{"id": 1, "start": MS, "globalTid": global_pid(41) + 41}]
    compiling = [nvtx_range(41, MS, 15 * MS, "XlaCompile")]
    files = [host_row("read", 1, 19)]
    action = waiting(tmp_path / "a.sqlite")
    assert action.action == "Profile the host code of train: the GPU waits for it"
    assert action.commands[0].startswith("nsys profile -t cuda,nvtx,osrt --sample=process-tree -o NAME PROGRAM")
    # Of CPU samples nsys makes that condition; without it, it records none and goes on.
    assert "kernel.perf_event_paranoid of at most 2" in action.commands[0]
    action = waiting(tmp_path / "b.sqlite", ranges=compiling)
    assert action.action == "Profile the host code of train: the GPU waits for it"
    assert action.commands[0].startswith("nsys profile -t cuda,nvtx,osrt --sample=process-tree -o NAME PROGRAM")
    # A program without ranges has none on record however it is traced.
    for name, ranges in (("c", compiling), ("e", [])):
        recorded = {"OSRT_API": files, "COMPOSITE_EVENTS": samples}
        action = waiting(tmp_path / f"{name}.sqlite", ranges=ranges, host_calls=recorded)
        assert action.action == "Profile the host code of train: the GPU waits for it"
        assert action.commands == ["nsys-ui REPORT.nsys-rep   # its CPU samples and OS calls show what the host does"]
        assert "read 94.7 %" in action.why
    action = waiting(tmp_path / "d.sqlite", host_calls={"NVVIDEO_DECODER_API": [host_row("cuvidCreateDecoder", 1, 18)]})
    assert action.action.startswith("Spend less time in cuvidCreateDecoder in train: keep codecs")
    assert action.at_stake_ns == 17 * MS


def sampled(rows: Sequence[tuple[float, int | None, int]]) -> dict[str, list[dict[str, Any]]]:
    """CPU samples: when (ms), the string of the function (none: an address), and the thread; called by string 2."""
    samples = [
        {"id": n, "start": round(at * MS), "globalTid": global_pid(41) + thread}
        for n, (at, _, thread) in enumerate(rows, 1)
    ]
    frames = [
        {"id": n, "symbol": function or 5, "module": 4, "unresolved": None if function else 1, "stackDepth": 0}
        for n, (_, function, _) in enumerate(rows, 1)
    ]
    callers = [
        {"id": n, "symbol": 2, "module": 4, "unresolved": None, "stackDepth": 1} for n in range(1, len(rows) + 1)
    ]
    return {"COMPOSITE_EVENTS": samples, "SAMPLING_CALLCHAINS": [*callers, *frames]}


def test_cpu_samples_show_where_the_host_was(tmp_path: Path) -> None:
    """The host has 1 to 20 ms: of its thread there are 5 samples there, of another one 1, and 1 beside a kernel."""
    rows = [(0.5, 3, 41), (2, 3, 41), (4, 3, 41), (6, 3, 41), (8, None, 41), (10, 2, 41), (12, 2, 42)]
    names = ("main", "parse(char*)", "/home/secret/a.out", "0x7f00")
    path = tmp_path / "a.sqlite"
    action = waiting(path, names=names, host_calls=sampled(rows))
    split = split_of(path)
    assert split.host_activity is not None and split.host_activity.cpu_samples is not None
    found = split.host_activity.cpu_samples
    assert found.samples == 5
    told = [(one.function, one.module, one.samples) for one in found.functions]
    assert told == [("parse(char*)", "a.out", 3), (None, "a.out", 1), ("main", "a.out", 1)]
    assert (
        "CPU samples in all 19.00 ms (n = 5): 60.0 % in parse(char*) (a.out), 20.0 % in a.out (no symbols)"
        in action.why
    )
    # The capture has what another recording would show.
    assert action.commands == [
        "nsys-ui REPORT.nsys-rep   # call stacks of its CPU samples show what calls these functions"
    ]
    report = pyanalyze.load(path).report()
    assert "60.0 % in parse(char*) (a.out)" in render_summary(report)
    told_under_pseudonyms = pyanalyze.load(path).redacted().report().model_dump_json()
    assert "parse" not in told_under_pseudonyms and '"function":"function-' in told_under_pseudonyms


def test_few_cpu_samples_do_not_stand_for_the_host(tmp_path: Path) -> None:
    names = ("main", "parse(char*)", "/home/secret/a.out", "0x7f00")
    action = waiting(tmp_path / "a.sqlite", names=names, host_calls=sampled([(2, 3, 41), (4, 3, 41)]))
    assert "CPU samples in all 19.00 ms (n = 2): 100.0 % in parse(char*) (a.out)" in action.why
    assert action.commands[0].startswith("nsys profile")


def in_no_call_and_no_work(path: Path, pid: int) -> list[tuple[int, int]]:
    """Spans of gaps above 250 us in which no CUDA call of a process ran, up to the return of what launched the next."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        of_process = "FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid >> 24 & 0xFFFFFF = ?"
        launches = dict(db.execute(f'SELECT correlationId, "end" {of_process}', [pid]))
        calls = db.execute(f'SELECT start, "end" {of_process} ORDER BY 1', [pid]).fetchall()
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        work = [
            row
            for table in ("KERNEL", "MEMCPY", "MEMSET")
            if f"CUPTI_ACTIVITY_KIND_{table}" in tables
            for row in db.execute(
                f'SELECT start, "end", correlationId FROM CUPTI_ACTIVITY_KIND_{table} '
                "WHERE globalPid >> 24 & 0xFFFFFF = ?",
                [pid],
            )
        ]
    spans: list[tuple[int, int]] = []
    until = None
    for start, end, correlation in sorted(work):
        if until is not None and start - until > 250_000:
            now, last = until, min(max(launches.get(correlation, start), until), start)
            for from_ns, to_ns in calls:
                if to_ns <= now or from_ns >= last:
                    continue
                if from_ns > now:
                    spans.append((now, from_ns))
                now = max(now, to_ns)
            if now < last:
                spans.append((now, last))
        until = end if until is None else max(until, end)
    return spans


@pytest.mark.parametrize(
    ("folder", "name", "function"),
    [
        ("raiderstream", "report1.nsys2026.sqlite", "__c_mcopy8_sky"),
        ("pipit", "saxpy-mpi-cuda_nsys_perlmutter0.sqlite", "main"),
    ],
)
def test_cpu_samples_of_real_hosts_are_those_that_sqlite_counts(
    corpus: Path, folder: str, name: str, function: str
) -> None:
    path = corpus / "exports" / folder / name
    (tenant,) = pyanalyze.load(path).tenants.filter("traced").to_dicts()
    spans = in_no_call_and_no_work(path, tenant["pid"])
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        # Every operation is launched by one thread.
        ((thread,),) = db.execute(
            "SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN CUPTI_ACTIVITY_KIND_KERNEL USING (correlationId)"
        ).fetchall()
        counted = Counter(
            symbol
            for start, end in spans
            for (symbol,) in db.execute(
                "SELECT value FROM COMPOSITE_EVENTS AS one JOIN SAMPLING_CALLCHAINS AS frame ON frame.id = one.id "
                "JOIN StringIds ON StringIds.id = symbol "
                "WHERE stackDepth = 0 AND unresolved IS NULL AND start >= ? AND start < ? AND globalTid = ?",
                (start, end, thread),
            )
        )
    found = split_of(path).host_activity
    assert found is not None and found.cpu_samples is not None
    top = found.cpu_samples.functions[0]
    assert (top.function, top.samples) == (function, counted[function])
    assert counted.most_common(1) == [(function, top.samples)]


def test_names_of_ranges_are_bounded_and_visible_and_leave_under_pseudonyms(tmp_path: Path) -> None:
    hostile = "\x1b[2J" + "secret" * 2000
    waiting(tmp_path / "a.sqlite", ranges=[nvtx_range(41, MS, 15 * MS, hostile)])
    session = pyanalyze.load(tmp_path / "a.sqlite")
    (action, *_) = session.advise()[0].actions
    for text in (render_summary(session.report()), action.why):
        assert "secretsecret" in text
        assert "\x1b" not in text
        assert len(text) < 3000
    told = session.redacted().report().model_dump_json()
    assert "secret" not in told
    assert '"name":"range-1"' in told


def test_where_nothing_of_the_host_is_recorded_nothing_is_said_of_it(process: Path) -> None:
    assert split_of(process).host_activity is None
    assert "Host activity" not in render_markdown(pyanalyze.load(process).report())


def test_real_captures_add_up(corpus: Path) -> None:
    for path in sorted(corpus.glob("exports/*/*.sqlite")):
        for split in pyanalyze.load(path).analysis.time_splits.values():
            assert whole(split) == split.window_ns, path.name
            assert split.part_ns(split.limit) == max(*parts(split), split.waiting_ns or 0)
            did = split.host_activity
            if did is not None:
                kinds = sum(did.kind_ns(kind) for kind in HostKind)
                assert kinds + did.nothing_ns == split.host_ns, path.name


def test_real_hosts_wait_for_what_their_captures_say(corpus: Path) -> None:
    """Counted with SQL: gaps of more than 250 us without CUDA calls, cut with calls and ranges of the thread that launches.

    Without what follows the launch of the next operation. A rank of eight waits for the others in MPI (736.8 of 741.1 ms). A decoder spends 89 of 337 ms in its codec. JAX
    compiles for 891 of 1015 ms, of which the thread that launches is in calls of the C library for most.

    Gaps of at most 250 us, cut likewise: that thread is in MPI for 143 488 449 ns, and in the codec for 55 988.
    """
    exports = corpus / "exports"
    rank = split_of(exports / "gpubootcamp-8v100" / "report1.nsys2026.sqlite")
    assert rank.host_activity is not None
    assert (rank.host_ns, rank.host_activity.mpi_ns) == (741_144_548 + 143_488_449, 736_833_779 + 143_488_449)
    first = rank.host_activity.parts[0]
    assert (first.kind, first.name, first.range) == ("mpi", "MPI_Sendrecv", "MPI")
    actions = pyanalyze.load(exports / "gpubootcamp-8v100" / "report1.nsys2026.sqlite").advise()[0].actions
    (exchange,) = (action for action in actions if "MPI exchange of jacobi" in action.action)
    assert exchange.at_stake_ns == 736_833_779 + 143_488_449
    # Kernels of 434 us and more, launched in 8 us.
    assert not any(action.action.startswith("Launch fewer") for action in actions)
    decoder = split_of(exports / "torchcodec" / "report1.nsys2026.sqlite")
    assert decoder.host_activity is not None
    assert (decoder.host_ns, decoder.host_activity.video_ns) == (336_815_525 + 55_988, 89_128_949 + 55_988)
    assert decoder.host_activity.parts[0].name == "cuvidCreateDecoder"
    jax = split_of(exports / "apax-4070" / "report1.nsys2026.sqlite")
    assert jax.host_activity is not None
    assert (jax.host_ns, jax.host_activity.os_ns) == (1_015_330_110, 834_742_133)
    assert [part.name for part in jax.host_activity.parts[:3]] == ["futex", "poll", "pthread_cond_wait"]


def test_time_of_whole_graphs_beside_overlapping_kernels_is_exact(corpus: Path) -> None:
    """Kernels that overlap take 5.100 ms together and were in flight for 5.048 ms; graphs for 3.030 ms."""
    path = corpus / "exports" / "jaxtoolbox-gb200" / "nsys_report_benchmark.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        (graphs_ns,) = db.execute('SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE').fetchone()
    assert round(graphs_ns / 1e6, 3) == 3.030
    (action,) = (one for one in pyanalyze.load(path).advise()[0].actions if one.action.startswith("Trace the kernels"))
    assert "whole graphs were in flight for 3.030 ms of 23.06 ms" in action.why
    # None of them overlaps another one.
    assert (split_of(path).graphs_ns, action.at_stake_ns) == (graphs_ns, graphs_ns)


def waited(path: Path, *functions: tuple[str, float, float]) -> Sequence[Advice]:
    """What is advised to a process with two kernels of 1 ms, 99 ms apart; its thread is in these functions, times in ms."""
    kernels = [kernel(41, 0, MS), kernel(41, 100 * MS, 101 * MS)]
    launch = {**call("cudaLaunchKernel_v7000", 100 * MS - 1, 100 * MS), "correlationId": 2}
    rows = [host_row(name, start, end) for name, start, end in functions]
    write(path, kernels=kernels, calls=[launch], processes={41: "train"}, host_calls={"OSRT_API": rows})
    return pyanalyze.load(path).advise()[0].actions


def test_a_wait_for_input_is_no_host_code_to_profile(tmp_path: Path) -> None:
    """Of 99 ms without work, 70 in getc and 12 in read: 29 are the program's."""
    path = tmp_path / "a.sqlite"
    (item,) = (one for one in waited(path, ("getc", 10, 80), ("read", 81, 93)) if "host code" in one.action)
    assert item.at_stake_ns == pytest.approx(29 * MS, abs=1)
    assert item.bound == "29.00 ms, 28.7 % of its time"
    assert "for 99.00 ms of 101.0 ms" in item.why
    said = "waits for input in getc for 70.00 ms: no code of it is slow there."
    then = "Next, it reads a file or a pipe in read for 12.00 ms"
    assert f"It {said} {then}" in item.why
    report = pyanalyze.load(path).report()
    assert f"Its launching thread {said} {then}." in str(limit_text(report.devices[0]))
    assert f"Its launching thread {said}" in " ".join(render_summary(report).split())


@pytest.mark.parametrize("name", ["pthread_cond_wait", "futex", "sem_wait", "read", "pread64", "mmap"])
def test_locks_and_files_are_the_programs_own(tmp_path: Path, name: str) -> None:
    (item,) = (one for one in waited(tmp_path / "a.sqlite", (name, 10, 80)) if "host code" in one.action)
    assert item.at_stake_ns == pytest.approx(99 * MS, abs=1)
    assert "no code of it is slow" not in item.why


@pytest.mark.parametrize(
    ("name", "action", "does"),
    [
        ("epoll_wait", "Look at what train waits for (epoll_wait)", "waits for another process or the network"),
        ("recvmsg", "Look at what train waits for (recvmsg)", "waits for another process or the network"),
        ("usleep", "Look why train sleeps (usleep)", "sleeps"),
        ("fgets_unlocked", "Give train its input at once, or record it without that wait (fgets_unlocked)", "waits for input"),
    ],
)  # fmt: skip
def test_where_the_host_does_nothing_else_there_is_no_code_to_profile(
    tmp_path: Path, name: str, action: str, does: str
) -> None:
    actions = waited(tmp_path / "a.sqlite", (name, 1, 99.5))
    assert not [one for one in actions if "host code" in one.action]
    (item,) = (one for one in actions if one.action == action)
    # To look at it gains nothing by itself.
    assert item.bound is None and item.at_stake_ns == 98_500 * US
    assert f"It {does} in {name} for 98.50 ms" in item.why


def test_a_prompt_of_a_real_program_is_no_slow_code(corpus: Path) -> None:
    """By SQL: between its first and last operation its thread is in getc for 4.652 s, in read for 1.240 s, as in no call of CUDA."""
    path = corpus / "exports" / "mordred" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        work = [
            db.execute(f'SELECT min(start), max("end") FROM CUPTI_ACTIVITY_KIND_{what}').fetchone()
            for what in ("KERNEL", "MEMCPY", "MEMSET")
        ]
        first, last = min(start for start, _ in work), max(end for _, end in work)
        ((thread,),) = db.execute("SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        took = dict(
            db.execute(
                'SELECT value, sum(min("end", ?) - max(start, ?)) FROM OSRT_API JOIN StringIds ON id = nameId '
                "WHERE globalTid = ? AND value IN ('getc', 'read') AND start < ? AND \"end\" > ? GROUP BY 1",
                (last, first, thread, last, first),
            )
        )
    split = split_of(path)
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if "host code" in one.action)
    # Some microseconds of it are in gaps of at most 250 us.
    assert item.at_stake_ns == pytest.approx(split.host_ns - took["getc"], abs=100 * US)
    assert item.bound == "1.422 s, 21.8 % of its time"
    said = "Its launching thread waits for input in getc for 4.652 s: no code of it is slow there."
    assert round(took["getc"] / 1e6) == 4652 and took["read"] == pytest.approx(1.240e9, rel=1e-3)
    report = pyanalyze.load(path).report()
    assert f"{said} Next, it reads a file or a pipe in read for 1.240 s." in str(limit_text(report.devices[0]))
    assert said in " ".join(render_summary(report).split())
    (copies,) = (one for one in report.devices[0].advice if one.action.startswith("Copy less"))
    # All copies are of pageable memory, by SQL: what overlaps has to be pinned.
    assert "can hide 6.129 ms of that at most" in copies.why
    assert "Overlap needs pinned memory: pageable copies hold the host." in copies.why
    assert copies.why.endswith("the best rate in that direction is 4.6 GB/s without pinned memory")


def captions(report: Report) -> list[str]:
    """Captions of the pictures of a page."""
    return [one.caption for part in lay_out(report).sections for one in part.blocks if isinstance(one, Chart)]


def few(path: Path, copies: int, kernels: int = 0) -> Path:
    """Copies of 1 us, 100 us apart, with a call of 90 us in each gap, and kernels behind them."""
    rows = [copy(41, n * 100 * US, n * 100 * US + US, correlationId=n + 1) for n in range(copies)]
    ran = [kernel(41, (copies + n) * 100 * US, (copies + n) * 100 * US + US) for n in range(kernels)]
    calls = [
        call("cudaEventCreateWithFlags_v3020", n * 100 * US + 5 * US, n * 100 * US + 95 * US) for n in range(copies)
    ]
    return write(path, kernels=ran, copies=rows, calls=calls, processes={41: "train"})


def test_so_few_operations_limit_nothing(tmp_path: Path) -> None:
    path = few(tmp_path / "a.sqlite", 4)
    session = pyanalyze.load(path)
    report = session.report()
    said = "train has 4 operations on this GPU and no kernel: too few to say what limits it."
    assert limit_text(report.devices[0]) == said
    page = render_markdown(report)
    assert "is limited by" not in page and "EventCreate" not in page
    assert said in page.partition("Where the time went")[2]
    (item,) = session.advise()[0].actions
    assert item.why == "only one tenant is known on the device; its 4 operations are too few to judge by"
    # GPU time is that of kernels: of copies nothing is known of it, and there is nothing to draw.
    assert "GPU time: not known. No kernel was recorded, copies and memsets only." in " ".join(
        render_summary(report).replace("GPU time ", "GPU time:").split()
    )
    assert "0.0 %" not in page
    assert captions(report) == ["Thin bars are copies and memsets. No kernel was recorded."]
    # No forecast does without kernels.
    assert "--replicas" not in page
    for name, others in (("b", {"copies": 5}), ("c", {"copies": 1, "kernels": 1})):
        text = str(limit_text(pyanalyze.load(few(tmp_path / f"{name}.sqlite", **others)).report().devices[0]))
        assert "is limited by" in text


def test_a_copy_between_gpus_through_the_host_on_two_of_eight(corpus: Path) -> None:
    """By SQL: 8 bytes to device 1, then one call whose copy leaves device 1 and arrives on device 2; 8 GPUs are listed."""
    path = corpus / "exports" / "alpa-8x3090" / "report2.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT deviceId, correlationId, copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"
        )
        assert rows.fetchall() == [(1, 2074, 1, 0, 2), (1, 2114, 2, 2, 2), (2, 2114, 1, 2, 2)]
        assert db.execute("SELECT count(*) FROM TARGET_INFO_GPU").fetchone() == (8,)
    session = pyanalyze.load(path)
    found = {
        device: [(kind.direction, kind.host_memory) for kind in copies.kinds]
        for (device, _), copies in session.analysis.copies.items()
    }
    assert found == {1: [("to-peer", None), ("to-device", "pageable")], 2: [("from-peer", None)]}
    report = session.report()
    # Of a part of the time nothing is said of other GPUs.
    assert report.gpus_without_work == 6 and session.window("2s").report().gpus_without_work == 0
    page, screen = render_markdown(report), " ".join(render_summary(report).split())
    assert "python has 1 operation on this GPU and no kernel" in page
    # Before its first operation on device 2 they took 2.594 s.
    assert page.count("Before its first operation on any GPU, CUDA calls of python took 1.412 s") >= 2
    assert "other memory" not in page and "is limited by" not in page
    assert "The lines above are of device 1; device 2 follows below. 6 other GPUs: no work recorded." in page
    assert "nothing shows whether there were other processes on the GPU; 6 other GPUs: no work recorded" in screen


def test_pauses_between_units_are_told_from_what_limits_a_unit(hardware: Path) -> None:
    """A paced client of a model: nothing runs between its requests, and inside of one kernels do most of the time."""
    path = hardware / "torch-alone-serve.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        units = db.execute("SELECT start, \"end\" FROM NVTX_EVENTS WHERE text = 'request' ORDER BY start").fetchall()
        calls = db.execute('SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start').fetchall()
    paused_ns = 0
    for (_, since), (until, _) in itertools.pairwise(units):
        called = [(max(start, since), min(end, until)) for start, end in calls if start < until and end > since]
        paused_ns += until - since - sum(end - start for start, end in called)
    assert (len(units), round(paused_ns / 1e6, 1)) == (60, 122.9)
    split = split_of(path)
    pauses, within = split.unit_pauses, split.within_units
    assert pauses is not None and within is not None
    assert (pauses.name, pauses.units, pauses.pauses) == ("request", 60, 59)
    (redacted,) = pyanalyze.load(path).redacted().analysis.time_splits.values()
    assert redacted.unit_pauses is not None and redacted.unit_pauses.name == "range-1"
    assert pauses.host_ns == pytest.approx(paused_ns, rel=1e-4)
    assert within.limit == "kernels"
    assert within.kernels_ns == split.kernels_ns
    # What is not a pause is the requests themselves, up to where the window begins and ends inside the first and last.
    assert within.window_ns == pytest.approx(sum(end - start for start, end in units), rel=0.01)
    (advice,) = pyanalyze.load(path).advise()
    first = advice.actions[0]
    assert "Profile the host" not in first.action
    assert first.at_stake_ns is not None
    each_us, unit_us = (ns / pauses.units / 1000 for ns in (first.at_stake_ns, within.window_ns))
    assert f"{each_us:.0f} us of {unit_us:.0f} us per unit of request" in str(first.bound)
    (between,) = (one for one in advice.actions if "between its units of request" in one.action)
    assert "122.9 ms of 124.1 ms" in between.why
    # Its kernels limit it: there is nothing to tell apart.
    assert split_of(path.parent / "alone-A.sqlite").unit_pauses is None


def test_the_host_is_to_be_checked_only_where_it_has_a_part(tmp_path: Path) -> None:
    """Two streams of four kernels of different names, always at once: none of them is worth an item of its own."""
    kernels = [
        {**kernel(41, at * MS, (at + 1) * MS), "streamId": stream, "shortName": at + 1, "demangledName": at + 1}
        for at in range(60)
        for stream in (13, 14)
    ]
    path = write(tmp_path / "a.sqlite", kernels=kernels, kernel_names=tuple(f"k{at}" for at in range(60)))
    (split,) = pyanalyze.load(path).analysis.time_splits.values()
    assert split.host_ns == 0
    (advice,) = pyanalyze.load(path).advise()
    said = [one.why for one in advice.actions if "if it is slow" in one.why]
    assert said, [one.action for one in advice.actions]
    assert all("check its kernels and the clocks" in why and "host" not in why for why in said)


def test_kernels_with_the_same_share_are_named_together(tmp_path: Path) -> None:
    """Two kernels alternate, 1 ms each, and none overlaps another: which of them has most time is chance."""
    kernels = [kernel(41, at * MS, (at + 1) * MS, shortName=1 + at % 2, demangledName=1 + at % 2) for at in range(20)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, kernel_names=("a", "b"))
    session = pyanalyze.load(path)
    assert "(b and a have 50.0 % each of kernel time)" in str(limit_text(session.report().devices[0])).replace(
        "a and b have", "b and a have"
    )
    (advice,) = session.advise()
    first = advice.actions[0]
    assert {word for word in first.action.split() if word in ("a", "b")} == {"a", "b"}
    assert sorted(command.split(" -k ")[1] for command in first.commands) == ["a PROGRAM", "b PROGRAM"]
