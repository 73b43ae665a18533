"""Slowdowns, causes and aggressors against the books of the simulation, and the words around them."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import sqlite3
import statistics
import subprocess
import sys
from collections import Counter
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import coverage
import generate
import polars as pl
import pytest
from click.testing import CliRunner
from command_line import run
from exports import (
    MS,
    US,
    call,
    copy,
    kernel,
    launched_after_each_other,
    recorded_residency,
    resident,
    two_of_three_traced,
    write,
)  # fmt: skip
from shared_sessions import load

import pyanalyze
from pyanalyze.analysis.advice.options import options
from pyanalyze.analysis.impact import Cause
from pyanalyze.analysis.interference import TenantInterference, kernels_solo
from pyanalyze.analysis.interference.lost_time import lost_time
from pyanalyze.analysis.interference.scheduling import on_cpu_ns
from pyanalyze.analysis.interference.slowdown import LIMITED, speedup_over_serial
from pyanalyze.cli import cli
from pyanalyze.errors import UsageError
from pyanalyze.inputs.work_units import read_work
from pyanalyze.report.rendering import render
from pyanalyze.report.sentences.cause import cause_sentence
from pyanalyze.report.sentences.slowdown import victim_sentence
from pyanalyze.results.interference import ExecutionSplit

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

ROOT = Path(__file__).parent.parent
CAPTURES, HARDWARE = ROOT / "fixtures" / "captures", ROOT / "fixtures" / "hardware"
#: Equal kernels, every way of sharing that has an answer with baselines.
SCENARIOS = (
    "time-slicing-pair",
    "time-slicing-four-nbody",
    "time-slicing-short-kernels",
    "mps-memory-bound",
    "mps-four-nbody",
    "mps-capped",
    "mig-shared-ci",
    "limiter-exclusive-quota",
)
#: Of these the capture alone tells: residency says who ran when.
ALONE = ("time-slicing-pair", "time-slicing-four-nbody", "time-slicing-short-kernels", "time-slicing-open-loop")
#: Nobody is slowed: nobody else is there, they are apart, or in instances of their own.
CALM = ("apart", "exclusive", "mig-two-instances", "streams")


@pytest.mark.parametrize("scenario", sorted(coverage.HERE.glob("*.toml")), ids=lambda file: file.stem)
def test_scattering_recordings_have_intervals_to_compare(scenario: Path) -> None:
    # A renamed recording once broke the benchmark of intervals, and nothing said so.
    generate.program()
    rows = coverage.judged((scenario, 3))
    assert {(how, measure) for _, _, _, how, measure, *_ in rows} >= {
        ("with", measure) for measure in coverage.MEASURES
    }
    assert all(low <= value <= high for *_, value, low, high in rows)


def test_percentiles_against_other_amounts_of_work_are_those_of_launches() -> None:
    """From the exports: launches of the solo recording, those of a signature in the share that they have in the co-run.

    9 of 1,937 kernels have no launch call, so that nobody knows their latency.
    """
    folder = HARDWARE / "h100"

    def latencies(name: str, of: str) -> list[tuple[tuple[object, ...], int | None]]:
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as db:
            return [
                (tuple(signature), latency)
                for *signature, latency in db.execute(
                    f"""SELECT value, gridX, gridY, gridZ, blockX, blockY, blockZ, dynamicSharedMemory, k.end - r.start
                    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds ON id = demangledName
                    LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
                    ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24 WHERE {of}"""
                )
            ]

    shared = latencies("torch-mps-serve-train", "k.globalPid >> 24 & 16777215 = 1288")
    solo = latencies("torch-alone-train", "1")
    known = [(signature, latency) for signature, latency in shared if latency is not None]
    assert (len(shared), len(known)) == (1937, 1928)
    here, there = Counter(signature for signature, _ in known), Counter(signature for signature, _ in solo)
    weights = sorted((latency, here[one] / there[one]) for one, latency in solo if latency is not None)
    whole = sum(weight for _, weight in weights)
    passed = list(accumulate(weight for _, weight in weights))
    expected = [
        (
            sorted(latency for _, latency in known)[math.ceil(part * len(known)) - 1],
            next(latency for (latency, _), until in zip(weights, passed, strict=True) if until >= part * whole),
        )
        for part in (0.5, 0.95, 0.99)
    ]
    alone = [folder / f"torch-alone-{name}.sqlite" for name in ("serve", "train")]
    session = load(folder / "torch-mps-serve-train.sqlite", baselines=alone)
    _, train = session.interference()[0].tenants
    assert [(one.shared_ns, one.solo_ns) for one in train.latency_percentiles] == expected
    assert train.slowdown.latency is not None
    assert train.slowdown.latency.n == len(known)


def test_how_graphs_were_traced_is_said_of_tenants_with_graphs() -> None:
    """By SQL only python3 (pid 1287) launches graphs, all of its kernels; both recordings traced them node by node."""
    folder = HARDWARE / "h100"
    alone = [folder / f"torch-alone-{name}.sqlite" for name in ("serve", "train")]
    session = load(folder / "torch-mps-serve-train.sqlite", baselines=alone)
    serve, train = session.interference()[0].tenants
    assert not [note for one in (serve, train) for note in one.notes if note.startswith("graph tracing")]
    graphs = "latency begins at the launch of the graph: 100.0 % of its kernels are nodes of CUDA graphs"
    assert graphs in serve.notes
    assert not any("CUDA graphs" in note for note in train.notes)
    # Its latency fell to 0.40x while it took 1.13x the time.
    assert any(note.startswith("latency below 1x is no gain") for note in train.notes)
    assert not any(note.startswith("latency below 1x is no gain") for note in serve.notes)


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("equal_work", [True, False])
def test_a_pause_of_the_host_that_came_once_is_in_the_interval(
    tmp_path: Path, *, others: int, equal_work: bool
) -> None:
    """Solo a kernel of 0.5 ms each ms; co-run the same, and once, or several times, nothing for 20 ms."""
    pauses = {30, *(range(10, 10 + 5 * others, 5))}

    def recorded(name: str, n: int, pauses: set[int]) -> Path:
        starts = [n * MS + 20 * MS * sum(at <= n for at in pauses) for n in range(n)]
        return write(
            tmp_path / f"{name}.sqlite",
            kernels=[kernel(41, s + 10_000, s + 510_000, correlationId=i + 1) for i, s in enumerate(starts)],
            calls=[call(41, s, s + 5_000, i + 1) for i, s in enumerate(starts)],
            processes={41: "app"},
        )

    solo, shared = recorded("solo", 60 if equal_work else 200, set()), recorded("shared", 60, pauses)
    (device,) = load(shared, baselines=[solo]).interference()
    elapsed = device.tenants[0].slowdown.elapsed
    assert elapsed is not None
    assert elapsed.low is not None
    assert elapsed.high is not None
    span_ms = 59.51 + 20 * len(pauses)
    assert elapsed.value == pytest.approx(span_ms / 59.51, rel=0.01)
    # Solo the same pause may have come as well; a habit of three would have been seen.
    without = 1.0 if others == 0 else span_ms / 59.51
    assert elapsed.low == pytest.approx(without, rel=0.05)
    assert elapsed.high >= elapsed.value


@pytest.mark.parametrize("shared_kernels", [100, 700], ids=["as much work", "other amounts"])
def test_a_baseline_that_compiled_in_several_pauses_is_read_from_its_work_on(
    tmp_path: Path, shared_kernels: int
) -> None:
    """As a JAX trainer on an H200: solo four pauses of 40 to 800 ms, then a kernel of 0.5 ms each ms; shared each 2 ms."""

    def recorded(name: str, starts: list[int]) -> Path:
        return write(
            tmp_path / f"{name}.sqlite",
            kernels=[kernel(41, s + 10_000, s + 510_000, correlationId=i + 1) for i, s in enumerate(starts)],
            calls=[call(41, s, s + 5_000, i + 1) for i, s in enumerate(starts)],
            processes={41: "app"},
        )

    begin = 800 + 40 + 400 + 350
    solo = recorded("solo", [n * MS for n in (0, 800, 840, 1240)] + [(begin + n) * MS for n in range(300)])
    shared = recorded("shared", [2 * n * MS for n in range(shared_kernels)])
    (device,) = load(shared, baselines=[solo]).interference()
    elapsed = device.tenants[0].slowdown.elapsed
    assert elapsed is not None
    assert elapsed.high is not None
    assert elapsed.value == pytest.approx(2.0, rel=0.01)
    assert elapsed.high < 2.2


def compared(name: str, *, baselines: bool) -> list[tuple[TenantInterference, dict[str, Any]]]:
    """Every traced tenant of a scenario with its truth."""
    folder = generate.built(name, solo=True)
    truth = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
    recording = truth["captures"][0]
    alone = sorted(folder.glob(f"{recording['name']}.solo.*.sqlite")) if baselines else []
    session = load(folder / f"{recording['name']}.sqlite", baselines=alone)
    names = {traced["pid"]: traced["tenant"] for traced in recording["traced"]}
    pids = dict(session.tenants.filter("traced").select("tenant_id", "pid").iter_rows())
    true = {tenant["name"]: tenant["slowdown"] for tenant in truth["tenants"]}
    return [
        (tenant, true[names[pids[tenant.tenant_id]]]) for device in session.interference() for tenant in device.tenants
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_baselines_slowdowns_are_within_two_percent(name: str) -> None:
    found = compared(name, baselines=True)
    assert found
    for tenant, true in found:
        slow = tenant.slowdown
        assert slow.elapsed is not None
        assert slow.latency is not None
        assert slow.elapsed.value == pytest.approx(true["elapsed"]["ratio"], rel=0.02)
        assert slow.latency.value == pytest.approx(true["kernel_latency"]["ratio"], rel=0.02)
        if slow.resident is not None:
            # How long saving state took is not always measured.
            assert slow.resident.value == pytest.approx(true["resident"]["ratio"], rel=0.03)
        assert slow.elapsed.basis == "observed"


@pytest.mark.parametrize(("start_ms", "end_ms"), [(100, 150), (100, 200), (50, 100)])
def test_kernels_that_a_window_cuts_make_nobody_faster(start_ms: int, end_ms: int) -> None:
    """Turns slow no kernel while its context runs; a kernel of which the window shows a part counts as none."""
    folder, name = generate.built("running-example-time-slicing", solo=True), "running-example-time-slicing"
    truth = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
    whole = load(folder / f"{name}.sqlite", baselines=sorted(folder.glob(f"{name}.solo.*.sqlite")))
    start, end = start_ms * 1_000_000, end_ms * 1_000_000
    part = whole.window(start, end)
    names = {traced["pid"]: traced["tenant"] for traced in truth["captures"][0]["traced"]}
    true = {tenant["name"]: tenant["slowdown"]["resident"]["ratio"] for tenant in truth["tenants"]}
    found = part.tenant_slowdowns.filter(pl.col("work").is_null(), against="baseline", measure="resident")
    assert found.height == 3
    for row in found.iter_rows(named=True):
        pid = part.tenants.filter(tenant_id=row["tenant_id"])["pid"].item()
        # Kernels of this part are not those of the baseline: what they scatter is in the interval, where there is one.
        assert row["low"] is None or row["low"] <= true[names[pid]] <= row["high"]
        assert row["value"] == pytest.approx(true[names[pid]], abs=0.06)
        mine = whole.kernels.filter(pl.col("pid") == pid)
        assert row["n"] == mine.filter(pl.col("start_ns") > start, pl.col("end_ns") < end).height


@pytest.mark.parametrize("name", ALONE)
def test_without_baselines_slowdowns_are_within_ten_percent(name: str) -> None:
    found = compared(name, baselines=False)
    assert found
    for tenant, true in found:
        slow = tenant.slowdown
        assert slow.elapsed is not None
        assert slow.latency is not None
        assert slow.elapsed.value == pytest.approx(true["elapsed"]["ratio"], rel=0.1)
        assert slow.latency.value == pytest.approx(true["kernel_latency"]["ratio"], rel=0.1)
        assert slow.elapsed.basis == "inferred"


def test_a_limiter_would_pace_a_tenant_solo_as_well() -> None:
    found = compared("limiter-tokens", baselines=False)
    assert len(found) == 2
    for tenant, true in found:
        elapsed = tenant.slowdown.elapsed
        assert elapsed is not None
        assert elapsed.low is not None
        assert elapsed.high is not None
        assert elapsed.low <= true["elapsed"]["ratio"] <= elapsed.high
        assert LIMITED in tenant.notes


def test_bringing_a_context_back_is_seen_without_switch_records() -> None:
    # Two containers, each with a recording of its own: who ran last is known from kernels alone.
    folder = generate.built("containers-memory")
    truth = json.loads((folder / "containers-memory.truth.json").read_text(encoding="utf-8"))
    recorded = {capture["name"]: capture["traced"][0]["tenant"] for capture in truth["captures"]}
    session = load([folder / f"{name}.sqlite" for name in recorded])
    true = {tenant["name"]: tenant["slowdown"] for tenant in truth["tenants"]}
    captures = list(recorded.values())
    names = {r["tenant_id"]: captures[r["capture"]] for r in session.tenants.filter("traced").iter_rows(named=True)}
    (device,) = session.interference()
    assert len(device.tenants) == 2
    for tenant in device.tenants:
        elapsed, latency = tenant.slowdown.elapsed, tenant.slowdown.latency
        assert elapsed is not None
        assert latency is not None
        assert elapsed.value == pytest.approx(true[names[tenant.tenant_id]]["elapsed"]["ratio"], rel=0.02)
        assert latency.value == pytest.approx(true[names[tenant.tenant_id]]["kernel_latency"]["ratio"], rel=0.05)


@pytest.mark.parametrize(
    ("first_work_ms", "solo", "said"),
    [
        # It had work from the begin of its recording on: nobody knows what it did before.
        (0, 0, "0.040 of 0.160 s"),
        # It began with its recording, and created a context first: the other process was solo for 90 ms. Its very first
        # kernel is no measure.
        (30, 449, None),
    ],
)
def test_a_process_that_was_not_recorded_is_not_known_to_have_been_idle(
    tmp_path: Path, first_work_ms: int, solo: int, said: str | None
) -> None:
    """Process 7 is recorded from 0 to 100 ms, process 8 from 60 to 160 ms; a kernel takes 200 us, and the next follows."""
    epoch_ns = 1_790_000_000_000_000_000

    def work(pid: int, first_ms: int, last_ms: int) -> list[dict[str, Any]]:
        return [kernel(pid, t * US, (t + 200) * US) for t in range(first_ms * 1_000, last_ms * 1_000, 200)]

    # One that began later ends with the other.
    length_ms = 100 if said else 40
    kernels = work(8, first_work_ms, length_ms)
    paths = [
        write(tmp_path / "a.sqlite", kernels=work(7, 0, 100), duration_ns=100 * MS, epoch_ns=epoch_ns),
        write(tmp_path / "b.sqlite", kernels=kernels, duration_ns=length_ms * MS, epoch_ns=epoch_ns + 60 * MS),
    ]
    session = load(paths)
    (row,) = (row for row in session.slowdowns.to_dicts() if row["tenant_id"] == 0)
    assert row["n_solo"] == solo
    details = {found["name"]: found["detail"] for found in session.quality.iter_rows(named=True)}
    assert details.get("captures_partly_together") == said


@pytest.mark.parametrize("name", ["running-example-time-slicing", "time-slicing-copies", *ALONE])
def test_without_launch_calls_no_bound_is_crossed_by_the_truth(name: str, tmp_path: Path) -> None:
    """What stands in a pack: kernels and switch records. Then waiting before a kernel's start cannot be seen."""
    built = generate.built(name)
    path = tmp_path / f"{name}.sqlite"
    shutil.copyfile(built / path.name, path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    truth = {t["name"]: t["slowdown"] for t in json.loads((built / f"{name}.truth.json").read_text())["tenants"]}
    (device,) = pyanalyze.load(path).interference()
    assert device.tenants
    for tenant in device.tenants:
        true = truth.get(tenant.name) or truth[tenant.name.removeprefix("app_").upper()]
        latency = tenant.slowdown.latency
        assert tenant.slowdown.elapsed is None
        assert latency is not None
        assert latency.low is not None
        # Where in the first and last of a hundred slices a run begins and ends is chance.
        assert latency.low <= 1.01 * true["kernel_latency"]["ratio"]
        assert latency.high is None


@pytest.mark.parametrize("gap_us", [0, 5])
def test_waits_in_which_others_were_resident_or_switched_are_lost_time(tmp_path: Path, gap_us: int) -> None:
    """By hand, in us: 8 is resident from 100 to 400 and from 550 to 650, and 7 copies from 200 to 300 whoever is.

    Of the first kernel (called until 10, ends at 700) that takes 200 before its start and 100 inside it, of the second
    (called until 30, queued behind it) the same. The third has no call, and nobody else was resident while it ran.
    Switches from and to 8 take the last 5 us of these intervals, or the 5 us behind them.
    """
    of_7 = [(0, 100), (400 + gap_us, 550), (650 + gap_us, 1000)]
    of_8 = [(100, 400), (550 + gap_us, 650)]
    slices = sorted([*((7, 1, *one) for one in of_7), *((8, 2, *one) for one in of_8)], key=lambda one: one[2])
    path = write(
        tmp_path / "waits.sqlite",
        kernels=[
            kernel(7, 500 * US, 700 * US, correlationId=1),
            kernel(7, 700 * US, 900 * US, correlationId=2),
            kernel(7, 950 * US, 1000 * US, correlationId=3),
            kernel(8, 110 * US, 390 * US, correlationId=4),
        ],
        copies=[copy(7, 200 * US, 300 * US, streamId=8)],
        calls=[call(7, 0, 10 * US, 1), call(7, 20 * US, 30 * US, 2), call(8, 50 * US, 60 * US, 4)],
        switches=[row for pid, context, start, end in slices for row in resident(pid, context, start * US, end * US)],
    )
    tables = pyanalyze.load(path).tables
    rows = {row["pid"]: row for row in tables.tenants.iter_rows(named=True)}
    lost = lost_time(tables, rows[7], frozenset({rows[7]["tenant_id"]}))
    # The gap in front of the second interval of 8 is lost as well, and those behind both.
    lost_us = 300 + 2 * gap_us
    assert (lost.n, lost.latency_ns, lost.lost_ns) == (3, (700 + 880 + 50) * US, 2 * lost_us * US)
    assert lost.by_tenant == {rows[8]["tenant_id"]: 2 * lost_us * US}
    assert lost.slowdown is not None
    assert lost.slowdown.value == lost.slowdown.low == pytest.approx(1630 / (1630 - 2 * lost_us))
    assert lost.slowdown.high is None


@pytest.mark.parametrize("name", [*ALONE, "mps-memory-bound", "mps-four-nbody"])
def test_causes_are_within_ten_points(name: str) -> None:
    checked = 0
    for tenant, true in compared(name, baselines=True):
        if tenant.causes is None:
            continue
        lost = true["lost"]
        assert sum(getattr(tenant.causes, cause) or 0.0 for cause in Cause) == pytest.approx(1)
        assert tenant.causes.queue == pytest.approx(
            (lost["queue_same_tenant_ns"] + lost["queue_other_tenant_ns"]) / lost["total_ns"], abs=0.1
        )
        for part in ("launch", "not_resident", "switch", "execution"):
            assert getattr(tenant.causes, part) == pytest.approx(lost[f"{part}_ns"] / lost["total_ns"], abs=0.1), part
        checked += 1
    assert checked


@pytest.mark.parametrize("baselines", [True, False])
@pytest.mark.parametrize("name", CALM)
def test_nobody_is_called_slowed_who_was_not(name: str, baselines: bool) -> None:
    assert [tenant.name for tenant, _ in compared(name, baselines=baselines) if tenant.slowed] == []


def test_two_equal_time_sliced_processes_run_at_half_speed() -> None:
    """What everybody measures: the GPU is "50 % utilised" by each, and each takes about twice as long."""
    folder = generate.built("time-slicing-sleep-kernels", solo=True)
    session = load(folder / "time-slicing-sleep-kernels.sqlite")
    (device,) = session.interference()
    for tenant in device.tenants:
        if tenant.slowdown.elapsed is not None:
            assert tenant.slowdown.elapsed.value == pytest.approx(2.0, rel=0.15)


def test_time_slicing_of_tenants_that_partly_overlap_gains_nothing(fixtures: Path) -> None:
    """STP is above 1 because one of them ran solo for half of the time: sharing gained nothing."""
    truth = json.loads((fixtures / "containers-same-pid.truth.json").read_text(encoding="utf-8"))
    (device,) = load(fixtures / "containers-same-pid").interference()
    assert device.figures is not None
    assert device.figures.stp is not None
    assert device.figures.stp > 1.1
    # By the truth: their attributed GPU times, one after the other, fill the time that the busier one was there.
    attributed = sum(tenant["attributed_ns"] for tenant in truth["tenants"])
    assert 0.9 < attributed / max(tenant["busy_ns"] for tenant in truth["tenants"]) < 1.1
    assert device.figures.speedup_over_serial == pytest.approx(1.0, abs=0.1)


def test_speedup_over_serial_is_by_time_not_by_throughput() -> None:
    # Solo 800 and 200: 1000 one after the other, 1000 co-run; 1/1.25 + 1/2.5 is 1.2.
    assert speedup_over_serial([(1.25, 0, 1000), (2.5, 500, 1000)]) == pytest.approx(1.0)
    # Solo 800 and 800 in 1000.
    assert speedup_over_serial([(1.25, 0, 1000), (1.25, 0, 1000)]) == pytest.approx(1.6)
    # Solo 250 and 250 in 1000.
    assert speedup_over_serial([(4.0, 0, 1000), (4.0, 0, 1000)]) == pytest.approx(0.5)
    # The pause from 2000 to 5000 is no part of the co-run; the third tenant takes as long as it did.
    assert speedup_over_serial([(2.0, 0, 2000), (2.0, 0, 2000), (1.0, 5000, 5100)]) == pytest.approx(1.0)


def test_four_nbody_processes_get_further_under_mps_than_time_sliced() -> None:
    stp = {}
    for name in ("mps-four-nbody", "time-slicing-four-nbody"):
        folder = generate.built(name, solo=True)
        session = load(folder / f"{name}.sqlite", baselines=sorted(folder.glob("*.solo.*.sqlite")))
        figures = session.interference()[0].figures
        assert figures is not None
        assert figures.stp is not None
        stp[name] = figures.stp
    assert 1.1 < stp["mps-four-nbody"] / stp["time-slicing-four-nbody"] < 1.4


def test_a_client_that_was_never_alone_has_no_slowdown_and_a_reason() -> None:
    for tenant, _ in compared("mps-four-nbody", baselines=False):
        assert (tenant.slowdown.elapsed, tenant.slowdown.latency, tenant.slowdown.resident) == (None, None, None)
        assert tenant.missing is not None
        assert "a solo recording is needed" in tenant.missing
        assert not tenant.slowed


def test_held_launches_off_the_cpu_are_said_to_be(tmp_path: Path) -> None:
    """As `nsys --cpuctxsw=process-tree` records it: the threads are scheduled out inside the calls that are held."""
    capture = tmp_path / "limiter.sqlite"
    shutil.copyfile(generate.built("limiter-exclusive-quota") / "limiter-exclusive-quota.sqlite", capture)
    with closing(sqlite3.connect(capture)) as db, db:
        db.execute("CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER)")
        calls = db.execute("SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start").fetchall()
        for thread in {call[2] for call in calls}:
            mine = [call for call in calls if call[2] == thread]
            events = [(mine[0][0] - 10, 1)]
            for start, end, _ in mine:
                if end - start > 1_000_000:
                    # Three quarters of the call.
                    events += [(start + (end - start) // 8, 0), (end - (end - start) // 8, 1)]
            events.append((mine[-1][1] + 10, 0))
            db.executemany("INSERT INTO SCHED_EVENTS VALUES (?, 0, ?, ?)", [(*event, thread) for event in events])
    findings = pyanalyze.load(capture).interference()[0].host
    assert {finding.what for finding in findings} == {"blocked launches"}
    for finding in findings:
        assert finding.detail.endswith(
            "during these calls their threads were off the CPU for 75.0 % of the time: they slept, or waited for a lock or "
            "a CPU"
        )


def test_time_on_the_cpu_equals_a_slow_count_on_real_captures(corpus: Path) -> None:
    capture = corpus / "exports" / "apax-4070" / "report1.nsys2026.sqlite"
    session = load(capture)
    runs = session.cpu_runs()
    calls = session.calls()
    assert runs is not None
    assert calls is not None
    with closing(sqlite3.connect(f"file:{capture}?mode=ro&immutable=1", uri=True)) as db:
        events = db.execute("SELECT globalTid & 0xFFFFFF, start, isSchedIn FROM SCHED_EVENTS ORDER BY 1, 2").fetchall()
    on: dict[int, list[tuple[int, int]]] = {}
    for (tid, start, is_in), (same, end, still_in) in pairwise(events):
        if tid == same and is_in and not still_in:
            on.setdefault(tid, []).append((start, end))
    checked = 0
    spans = calls.with_columns(on_cpu_ns(runs, calls))
    for tid, start, end, found in spans.select("tid", "start_ns", "end_ns", "on_cpu_ns").sample(2000, seed=1).rows():
        mine = on.get(tid, [])
        known = bool(mine) and mine[0][0] <= start and end <= mine[-1][1]
        slow = sum(max(0, min(end, b) - max(start, a)) for a, b in mine) if known else None
        assert found == slow
        checked += known
    assert checked > 100


def test_a_limiter_in_front_of_the_gpu_is_said_first() -> None:
    folder = generate.built("limiter-exclusive-quota")
    session = load(folder / "limiter-exclusive-quota.sqlite")
    assert {finding.what for finding in session.interference()[0].host} == {"blocked launches"}
    shown = CliRunner().invoke(cli, ["interference", str(folder / "limiter-exclusive-quota.sqlite")]).output
    section = shown.partition("Interference")[2]
    assert section.index("Check the host first") < section.index("Slowdown (shared over solo)")


def test_behind_a_limiter_that_gives_turns_slowdowns_are_lower_bounds() -> None:
    """Solo the limiter would not hold the launches back; the recording does not say what for it did."""
    folder = generate.built("limiter-exclusive-quota")
    truth = json.loads((folder / "limiter-exclusive-quota.truth.json").read_text(encoding="utf-8"))
    true = {tenant["name"]: tenant["slowdown"] for tenant in truth["tenants"]}
    assert min(one["elapsed"]["ratio"] for one in true.values()) > 1.5
    session = load(folder / "limiter-exclusive-quota.sqlite")
    for tenant in session.interference()[0].tenants:
        elapsed, latency = tenant.slowdown.elapsed, tenant.slowdown.latency
        assert elapsed is not None and latency is not None
        assert elapsed.from_below and latency.from_below
        assert elapsed.value < 1.5
        assert any("the host waits for the limiter" in note for note in tenant.notes)
    cause = session.report().devices[0].sharing_is_the_cause
    assert cause is not None and cause.answer == "unknown"


def test_a_host_that_is_slower_than_alone_is_said_first(tmp_path: Path) -> None:
    """The same program, once on a host that is short of processors: its kernels are as long as ever."""
    text = (generate.SCENARIOS / "exclusive-slow-host.toml").read_text(encoding="utf-8")
    text = text.replace("us = [15, 40]", "us = 6")
    captures = []
    for folder, part in (("slow", "0.12"), ("quick", "0")):
        (tmp_path / folder).mkdir()
        scenario = tmp_path / folder / "exclusive-slow-host.toml"
        scenario.write_text(text.replace("slow_calls = 0.12", f"slow_calls = {part}"), encoding="utf-8")
        generate.generate([scenario], tmp_path / folder / "built")
        captures.append(tmp_path / folder / "built" / "exclusive-slow-host.sqlite")
    capture, quick = captures
    session = load(capture, baselines=quick)
    (device,) = session.interference()
    (tenant,) = device.tenants
    assert tenant.slowdown.resident is not None
    assert tenant.slowdown.resident.value == pytest.approx(1, abs=0.05)
    found = next(finding for finding in device.host if finding.what == "slower calls than solo")
    assert "not the GPU" in found.detail
    # Against itself nothing is found.
    again = load(capture, baselines=capture).interference()[0].host
    assert "slower calls than solo" not in {finding.what for finding in again}


def resident_meanwhile(path: Path) -> dict[int, dict[int, float]]:
    """By SQL: how much of others' residency from launch to end of a process's kernels is that of each other one."""
    with closing(sqlite3.connect(path)) as db:
        switches = db.execute(
            "SELECT tag, timestamp, globalPid >> 24 & 0xFFFFFF FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag IN (7, 8) "
            "ORDER BY timestamp"
        ).fetchall()
        kernels = db.execute(
            'SELECT k.globalPid >> 24 & 0xFFFFFF, r.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
            "AND r.globalTid >> 24 = k.globalPid >> 24"
        ).fetchall()
    resident = [(pid, a, b) for (tag, a, pid), (after, b, _) in pairwise(switches) if (tag, after) == (8, 7)]
    took: dict[int, Counter[int]] = {pid: Counter() for pid, *_ in kernels}
    for victim, launch, end in kernels:
        for other, since, until in resident:
            if other != victim and since < end and until > launch:
                took[victim][other] += min(end, until) - max(launch, since)
    return {v: {o: ns / sum(by.values()) for o, ns in by.items()} for v, by in took.items()}


def shares_of_time(session: pyanalyze.Session) -> dict[int, dict[int, float]]:
    (device,) = session.interference()
    pids = dict(session.tenants.select("tenant_id", "pid").iter_rows())
    assert device.figures is not None
    found: dict[int, dict[int, float]] = {}
    for cell in device.figures.matrix or []:
        # A run of the pair has other time slices: what it would take is not claimed.
        assert (cell.slowdown, cell.low, cell.high, cell.latency) == (None,) * 4
        assert cell.share is not None
        found.setdefault(pids[cell.victim], {})[pids[cell.aggressor]] = cell.share
    return found


def test_whose_turn_it_was_is_told_apart(fixtures: Path) -> None:
    """A waits for B and for C, who is not traced: both are told apart."""
    path = fixtures / "demo-time-slicing.sqlite"
    session = load(path)
    found = shares_of_time(session)
    assert len(found) == 2
    for victim, expected in resident_meanwhile(path).items():
        assert found[victim] == pytest.approx(expected, abs=0.02)
    # C's own slowdown is not known: no figure of the whole device leaves it out silently.
    figures = session.interference()[0].figures
    assert figures is not None
    assert (figures.antt, figures.speedup_over_serial) == (None, None)


def test_whose_turn_it_was_is_told_without_switch_records() -> None:
    """Three tenants of unlike work: the twin with records says whose time it was."""
    folder, name = generate.built("running-example-time-slicing", solo=True), "running-example-time-slicing"
    solo = sorted(folder.glob(f"{name}.solo.*.sqlite"))
    expected = resident_meanwhile(folder / f"{name}.sqlite")
    assert len(expected) == 3
    for capture, within in ((f"{name}.sqlite", 0.02), (f"{name}.no-switches.sqlite", 0.05)):
        found = shares_of_time(load(folder / capture, baselines=solo))
        assert len(found) == 3
        for victim, by in expected.items():
            assert found[victim] == pytest.approx(by, abs=within)


def test_of_two_traced_tenants_one_is_not_the_only_aggressor_of_the_other(tmp_path: Path) -> None:
    """Three alternate, of which the third was not traced: the other traced one has less than half of what each waits."""
    thousandths = two_of_three_traced(tmp_path / "shared.sqlite", waits=False)
    starts = [n * 230 * US for n in range(400)]
    write(
        tmp_path / "solo.sqlite",
        kernels=[kernel(41, at, at + 230 * US) for at in starts],
        calls=[
            call(41, max(at - 230 * US, 5_000 * n), max(at - 230 * US, 5_000 * n) + 4_000, n + 1)
            for n, at in enumerate(starts)
        ],
    )
    session = pyanalyze.load(tmp_path / "shared.sqlite", baselines=tmp_path / "solo.sqlite")
    assert session.classify()[0].mode == "time-slicing"
    found = shares_of_time(session)
    assert found
    for victim, by in found.items():
        (other,) = by
        expected = thousandths[other] / (1000 - thousandths[victim])
        assert expected < 0.5
        assert by[other] == pytest.approx(expected, abs=0.05)


def test_the_caller_may_say_whose_a_baseline_is() -> None:
    folder = generate.built("mps-four-nbody", solo=True)
    capture, solo = folder / "mps-four-nbody.sqlite", folder / "mps-four-nbody.solo.n1.sqlite"
    session = load(capture)
    name = session.tenants.filter("traced")["name"][0]
    one = pyanalyze.load(capture, baselines=f"{name}={solo}", tenants={})
    used = one.baseline_matches.filter("used")
    assert used["named"].to_list() == [True]
    with pytest.raises(UsageError, match="no traced tenant has that name"):
        _ = load(capture, baselines=f"nobody={solo}").baseline_matches


def test_a_baseline_that_was_shared_is_refused(fixtures: Path, tmp_path: Path) -> None:
    """By the books app_b and app_c had 326.9 and 253.6 ms of the 1129 ms in which app_a ran: half of it."""
    capture = fixtures / "demo-time-slicing.sqlite"
    saved = tmp_path / "shared.json"
    saved.write_text(load(capture).report().to_json())
    alone = load(capture).interference()[0].tenants[0].slowdown.elapsed
    assert alone is not None
    for baseline, part in ((capture, "51 %"), (saved, "29 %")):  # a saved report knows of no time that was not traced
        tenant = load(capture, baselines=f"app_a={baseline}").interference()[0].tenants[0]
        assert tenant.baseline is None
        assert tenant.slowdown.elapsed == alone
        reason = f"{baseline.name} is not used: other tenants ran for up to {part} of it"
        assert any(note.startswith(reason) for note in tenant.notes), tenant.notes
        (unused,) = tenant.baselines_not_used
        assert (unused.baseline, unused.reasons) == (baseline.name, ["not-solo"])
        assert unused.detail in tenant.notes
        hidden = load(capture, baselines=f"app_a={baseline}").redacted().interference()[0].tenants[0]
        assert hidden.baselines_not_used[0].reasons == ["not-solo"]
        assert baseline.stem not in hidden.baselines_not_used[0].model_dump_json()
    session = load(capture, baselines=f"app_a={capture}")
    assert "baseline" in session.slowdowns["against"].cast(str).to_list()
    assert "baseline" not in kernels_solo(session.tables, session.interference())["against"].cast(str).to_list()
    checked = session.check(max_slowdown=1.5, slowdown="elapsed")
    assert checked.status == "failed", "the baseline says 1.00"


def test_tenants_recorded_apart_in_one_capture_are_alone() -> None:
    folder = generate.built("apart", solo=True)
    capture = folder / "apart.sqlite"
    session = load(capture, baselines=capture)
    for tenant in session.interference()[0].tenants:
        assert tenant.baseline == capture.name
        assert tenant.slowdown.elapsed is not None
        assert tenant.slowdown.elapsed.basis == "observed"


def test_a_baseline_of_another_gpu_model_is_refused() -> None:
    folder = generate.built("mps-memory-bound", solo=True)
    other = next(
        built
        for seed in range(2, 9)
        if device_name(built := generate.built("mps-memory-bound", seed, solo=True)) != device_name(folder)
    )
    session = load(
        folder / "mps-memory-bound.sqlite", baselines=f"writer={other / 'mps-memory-bound.solo.writer.sqlite'}"
    )
    notes = [note for tenant in session.interference()[0].tenants for note in tenant.notes]
    # Other models have other grids: already the kernels may differ, then it is nobody's baseline.
    assert all(tenant.baseline is None for tenant in session.interference()[0].tenants)
    assert "another GPU model" in notes[0] or "matches no tenant" in notes[0]
    reasons = {
        reason for t in session.interference()[0].tenants for one in t.baselines_not_used for reason in one.reasons
    }
    assert reasons in ({"other-gpu-model"}, {"no-common-work"})


def device_name(folder: Path) -> str:
    name: str = json.loads((folder / "mps-memory-bound.truth.json").read_text())["devices"][0]["name"]
    return name


def test_units_of_work_are_those_of_the_books(tmp_path: Path) -> None:
    """Requests as NVTX ranges, and the same as rows of a file."""
    folder = generate.built("time-slicing-open-loop", solo=True)
    capture = folder / "time-slicing-open-loop.sqlite"
    truth = json.loads((folder / "time-slicing-open-loop.truth.json").read_text(encoding="utf-8"))
    true = next(t for t in truth["tenants"] if t["name"] == "service")["slowdown"]["unit_latency"]["ratio"]
    session = load(capture)
    service = next(t for t in session.interference()[0].tenants if t.name == "service")
    assert [units.name for units in service.units] == ["request"]
    assert service.units[0].latency.value == pytest.approx(true, rel=0.1)
    ranges = load(capture, tables=["kernels", "nvtx"]).nvtx
    rows = ranges.filter(ranges["text"].cast(str) == "request").select("start_ns", "end_ns").iter_rows()
    file = tmp_path / "requests.csv"
    file.write_text("tenant,start,end\n" + "".join(f"service,{start},{end}\n" for start, end in rows))
    given = pyanalyze.load(capture, work=file)
    service = next(t for t in given.interference()[0].tenants if t.name == "service")
    assert {units.name for units in service.units} == {"request", "given units"}
    values = {units.latency.value for units in service.units}
    assert max(values) == pytest.approx(min(values), rel=0.01)


def test_given_units_are_counted_or_said_to_be_left_out(fixtures: Path, tmp_path: Path) -> None:
    """Launches in each unit by SQL; times as nsys writes them."""
    capture = fixtures / "demo-time-slicing.sqlite"
    pid = 41201
    launches = (
        "SELECT min(r.start, k.start) FROM (SELECT correlationId, start, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL "
        "UNION ALL SELECT correlationId, start, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY) k JOIN "
        "CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND r.globalTid / 16777216 = "
        f"k.globalPid / 16777216 WHERE k.globalPid / 16777216 % 16777216 = {pid}"
    )
    with closing(sqlite3.connect(capture)) as database:
        launched = [row[0] for row in database.execute(launches)]
    starts = range(400, 1200, 20)
    empty = sum(not any(s * 10**6 <= at <= (s + 15) * 10**6 for at in launched) for s in starts)
    assert 0 < empty < 20

    def told(rows: str, *, redact: bool = False) -> tuple[str, ...]:
        file = tmp_path / "requests.csv"
        file.write_text("tenant,start,end,name\n" + rows)
        session = pyanalyze.load(capture, work=file)
        session = session.redacted() if redact else session
        own = session.interference()[0].tenants[0]
        return tuple(note for note in own.notes if "counted" in note)

    forty = "".join(f"{pid},{s}ms,{s + 15}ms,\n" for s in starts)
    assert told(forty) == (f"given units: {40 - empty} of 40 counted: no work was launched in {empty}",)
    assert told(forty, redact=True)[0].endswith(f"{40 - empty} of 40 counted: no work was launched in {empty}")
    three = "".join(f"app_a,{s * 10**6},{(s + 15) * 10**6},step\n" for s in (400, 440, 480))
    assert told(three) == ("step: none of 3 counted: at least 5 of one name are needed",)
    several = "".join(f"app_a,{s}ms,{s + 15}ms,{s}\n" for s in (400, 440, 480))
    assert told(several) == ("of 3 names: none of 3 counted: at least 5 of one name are needed",)
    ten = "".join(f"app_a,{s}ms,{s + 30}ms,step\n" for s in range(400, 800, 40))
    (note,) = told(ten)
    assert note.startswith("step: 10 of 10 counted; their latency slowdown is ")
    assert note.endswith("percentiles need 20")


def test_times_of_units_are_as_elsewhere(fixtures: Path, tmp_path: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    origin = 1_700_000_000_000_000_000
    file = tmp_path / "requests.csv"
    file.write_text("tenant,start,end\napp_a,400000000,0.415s\napp_a,1s200ms,2023-11-14T22:13:21.5Z\n")
    made = read_work(file, session.tenants, origin)
    assert made.select("start_ns", "end_ns").rows() == [(400_000_000, 415_000_000), (1_200_000_000, 1_500_000_000)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("who,when\n", "need the columns"),
        ("tenant,start,end\nnobody,1,2\n", "line 2: there is no traced tenant"),
        ("tenant,start,end\napp_a,5,2\n", "ends before it starts"),
        ("tenant,start,end\napp_a,noon,2\n", "is not a time"),
    ],
)
def test_units_that_make_no_sense_are_refused(fixtures: Path, tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        pyanalyze.load(fixtures / "demo-time-slicing.sqlite", work=file)


def test_the_verb_speaks_csv_and_json() -> None:
    folder = generate.built("mps-memory-bound", solo=True)
    solo = [part for file in sorted(folder.glob("*.solo.*.sqlite")) for part in ("--baseline", str(file))]
    arguments = ["interference", str(folder / "mps-memory-bound.sqlite"), *solo, "-f"]
    table = list(csv.DictReader(io.StringIO(CliRunner().invoke(cli, [*arguments, "csv"]).output)))
    assert {(row["tenant"], row["measure"]) for row in table} == {
        (tenant, measure) for tenant in ("reader", "writer") for measure in ("elapsed", "latency", "resident")
    }
    assert all(float(row["low"]) <= float(row["slowdown"]) <= float(row["high"]) for row in table)
    found = json.loads(CliRunner().invoke(cli, [*arguments, "json"]).output)["devices"][0]["interference"]
    assert found["speedup_over_serial"] < 0.95
    assert {(cell["victim"], cell["aggressor"]) for cell in found["matrix"]} == {(0, 1), (1, 0)}


def split_in(tenant: TenantInterference) -> ExecutionSplit | None:
    """Parts of what a tenant's kernels took longer while its context was resident."""
    return None if tenant.causes is None else tenant.causes.execution_split


def split_of(name: str) -> list[tuple[TenantInterference, dict[str, Any]]]:
    """Tenants of a scenario that were slower at work, with the truth of where."""
    found = [pair for pair in compared(name, baselines=True) if split_in(pair[0]) is not None]
    assert found
    for tenant, _ in found:
        split = split_in(tenant)
        assert split is not None
        assert tenant.causes is not None
        parts = (*split.parts().values(), split.unexplained)
        assert sum(part or 0.0 for part in parts) == pytest.approx(tenant.causes.execution, abs=1e-6)
        assert {"sm_slots", "memory", "copy", "clock", "uvm"} == set(split.parts()) == set(tenant.execution_reasons)
    return found


def test_bandwidth_is_told_from_sm_slots_by_counters() -> None:
    """Both clients fit side by side, and DRAM is near its ceiling: all that is added at work is memory."""
    for tenant, true in split_of("mps-memory-bound"):
        split, lost = split_in(tenant), true["lost"]
        assert split is not None
        assert split.memory == pytest.approx(lost["execution_split"]["memory_ns"] / lost["total_ns"], abs=0.02)
        assert (split.sm_slots, split.uvm, split.copy_) == (0.0, 0.0, 0.0)
        assert "sampled" in tenant.execution_reasons["memory"]


def test_sm_slots_are_told_by_the_blocks_that_do_not_fit() -> None:
    """Four clients with 0.83 of the device's blocks each: slots, as far as a model of one pool goes."""
    for tenant, true in split_of("mps-four-nbody"):
        split, lost = split_in(tenant), true["lost"]
        assert split is not None
        assert split.sm_slots == pytest.approx(lost["execution_split"]["sm_slots_ns"] / lost["total_ns"], abs=0.1)
        # Nobody counted bandwidth: that is no zero.
        assert split.memory is None
        assert "not counted" in tenant.execution_reasons["memory"]
        assert split.clock is None


def test_time_sliced_there_is_nothing_to_split() -> None:
    assert [split_in(t) for t, _ in compared("time-slicing-pair", baselines=True)] == [None, None]


def test_two_at_full_utilisation_time_sliced_are_told_from_four_side_by_side() -> None:
    """The same figure of "half speed" time-sliced and under MPS: only where the time went tells them apart."""

    def away(name: str) -> list[float]:
        """Of what queues do not explain, the part in which the context was not there."""
        parts = [tenant.causes for tenant, _ in compared(name, baselines=True)]
        turned = [(c.not_resident or 0.0) + (c.switch or 0.0) for c in parts if c is not None]
        worked = [c.execution or 0.0 for c in parts if c is not None]
        return [a / (a + b) for a, b in zip(turned, worked, strict=True)]

    for name, mode in (("time-slicing-pair", "time-slicing"), ("time-slicing-four-nbody", "time-slicing")):
        assert load(generate.built(name, solo=True) / f"{name}.sqlite").classify()[0].mode == mode
        assert min(away(name)) > 0.9
    for name in ("mps-memory-bound", "mps-four-nbody"):
        assert load(generate.built(name, solo=True) / f"{name}.sqlite").classify()[0].mode == "mps"
        assert max(away(name)) < 0.1


#: Mean seconds of one YOLOS inference on an A100, one pod and several at once, as nebuly published them (the `nos`
#: comparison of GPU sharing technologies, Apache-2.0).
YOLOS = {"time-slicing": {1: 0.088, 3: 0.293, 7: 0.685}, "mps": {1: 0.088, 3: 0.164, 7: 0.320}}


@pytest.mark.parametrize("pods", [3, 7])
@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_inference_pods_of_a_public_comparison(mode: str, pods: int, tmp_path: Path) -> None:
    """Equal pods whose kernels fill about half of the GPU: time-sliced N times as slow, side by side half of that."""
    text = [
        'description = "Equal inference pods."',
        f'family = "{mode}"\nduration_ms = 900',
        f'[[board]]\nmodel = "NVIDIA A100-SXM4-40GB"\nmode = "{mode}"',
        '[kernel]\nattention = { us = 800, fill = 0.53, block = 256, registers = 64, tail = "none" }',
    ]
    for pod in range(pods):
        client = "mps = true\n" if mode == "mps" else ""
        work = f'from_ms = {15 + pod}\nunits = 12\nname = "inference"\nsteps = ["13 attention x10", "sync"]'
        text.append(f'[[tenant]]\nname = "pod-{pod}"\n{client}[[tenant.work]]\n{work}')
    servers = 'processes = [[811, "nvidia-cuda-mps-control"]]' if mode == "mps" else ""
    text.append(f'[[capture]]\nname = "pods"\nswitches = true\n{servers}')
    (tmp_path / "pods.toml").write_text("\n".join(text), encoding="utf-8")
    generate.generate([tmp_path / "pods.toml"], tmp_path / "built", solo=True)
    alone = tmp_path / "built" / "pods.solo.pod-0.sqlite"
    session = pyanalyze.load(tmp_path / "built" / "pods.sqlite", baselines=alone)
    assert session.classify()[0].mode == mode
    slowdowns = [tenant.slowdown.elapsed for tenant in session.interference()[0].tenants]
    assert len(slowdowns) == pods
    mean = sum(found.value for found in slowdowns if found is not None) / pods
    assert mean == pytest.approx(YOLOS[mode][pods] / YOLOS[mode][1], rel=0.2)


def test_recordings_of_one_program_at_several_loads_are_nobodys_until_they_are_named() -> None:
    """Four processes of one program, busy from 4 to 100 % of the time: kernels and names cannot say which was which."""
    folder = generate.built("uneven-four-equal-kernels", 21, solo=True)
    shared = folder / "uneven-four-equal-kernels.sqlite"
    truth = json.loads((folder / "uneven-four-equal-kernels.truth.json").read_text(encoding="utf-8"))["tenants"]
    pids = {tenant["name"]: tenant["pid"] for tenant in truth}
    files = {name: folder / f"uneven-four-equal-kernels.solo.{name}.sqlite" for name in pids}
    loose = load(shared, baselines=list(files.values()))
    elapsed = {tenant["pid"]: tenant["slowdown"]["elapsed"]["ratio"] for tenant in truth}
    pid_of = dict(loose.tenants.select("tenant_id", "pid").iter_rows())
    for tenant in loose.interference()[0].tenants:
        assert tenant.baseline is None
        assert any("match as well" in note for note in tenant.notes)
        (unused,) = tenant.baselines_not_used
        assert unused.reasons == ["ambiguous"]
        assert unused.baseline in {file.name for file in files.values()}
        # Also of the one that has seven requests only: its waits for them are no phases of its work.
        assert tenant.slowdown.elapsed is not None
        assert tenant.slowdown.elapsed.value == pytest.approx(elapsed[pid_of[tenant.tenant_id]], rel=0.02)
    # One recording that fits all of them tells how long their kernels take, not how long they wait for work.
    double = load(shared, baselines=files["half"])
    for tenant in double.interference()[0].tenants:
        assert tenant.baseline == files["half"].name
        assert any("with another throughput" in note for note in tenant.notes)
        # It is used for all but the elapsed time.
        assert tenant.baselines_not_used == ()
        assert tenant.slowdown.elapsed is not None
        assert tenant.slowdown.elapsed.value == pytest.approx(elapsed[pid_of[tenant.tenant_id]], rel=0.02)
    named = pyanalyze.load(shared, tenants=pids, baselines=[f"{name}={file}" for name, file in files.items()])
    found = {tenant.name: tenant for tenant in named.interference()[0].tenants}
    for tenant in truth:
        true = tenant["slowdown"]["resident"]["ratio"]
        assert found[tenant["name"]].baseline == files[tenant["name"]].name
        resident = found[tenant["name"]].slowdown.resident
        assert resident is not None
        assert resident.value == pytest.approx(true, rel=0.1)


GRAPHS = "graphs-time-slicing"


def test_whole_graphs_that_fit_two_tenants_are_told_apart_by_their_throughput() -> None:
    """Two tenants launch nothing but graphs that were traced as a whole: there are no kernels to count."""
    folder = generate.built(GRAPHS, solo=True)
    truth = {t["name"]: t for t in json.loads((folder / f"{GRAPHS}.truth.json").read_text(encoding="utf-8"))["tenants"]}
    session = load(folder / f"{GRAPHS}.sqlite", baselines=folder / f"{GRAPHS}.solo.first.sqlite")
    assert session.tenant_usage["kernels"].to_list() == [0, 0]
    assert session.baseline_matches["used"].to_list() == [True, True]
    # The second launches half as often again as the first: 223 and 156 graphs, each in about 275 ms.
    (device,) = session.interference()
    for tenant in device.tenants:
        assert any("another throughput" in note for note in tenant.notes)
        assert tenant.slowdown.elapsed is not None
        assert tenant.slowdown.elapsed.basis == "inferred"
        true = truth[tenant.name]["slowdown"]["elapsed"]["ratio"]
        assert tenant.slowdown.elapsed.value == pytest.approx(true, rel=0.1)


def test_solo_recordings_of_whole_graphs_are_not_compared_until_they_are_named(tmp_path: Path) -> None:
    folder = generate.built(GRAPHS, solo=True)
    truth = {t["name"]: t for t in json.loads((folder / f"{GRAPHS}.truth.json").read_text(encoding="utf-8"))["tenants"]}
    for name in (GRAPHS, *(f"{GRAPHS}.solo.{tenant}" for tenant in truth)):
        shutil.copyfile(folder / f"{name}.sqlite", tmp_path / f"{name}.sqlite")
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as db, db:
            # Two processes of one program: their names tell nothing.
            db.execute("UPDATE PROCESSES SET name = 'app' WHERE name IN ('first', 'second')")
    shared = tmp_path / f"{GRAPHS}.sqlite"
    alone = {tenant: tmp_path / f"{GRAPHS}.solo.{tenant}.sqlite" for tenant in truth}
    (loose,) = pyanalyze.load(shared, baselines=list(alone.values())).interference()
    assert len(loose.tenants) == 2
    for tenant in loose.tenants:
        assert tenant.baseline is None
        assert any("match as well" in note for note in tenant.notes)
    pids = {name: tenant["pid"] for name, tenant in truth.items()}
    named = pyanalyze.load(shared, tenants=pids, baselines=[f"{name}={file}" for name, file in alone.items()])
    (device,) = named.interference()
    for tenant in device.tenants:
        assert tenant.baseline == alone[tenant.name].name
        assert tenant.slowdown.elapsed is not None
        true = truth[tenant.name]["slowdown"]["elapsed"]["ratio"]
        assert tenant.slowdown.elapsed.value == pytest.approx(true, rel=0.02)


def test_a_launched_kernel_that_waits_for_another_tenant_is_no_idleness(tmp_path: Path) -> None:
    """Under MPS a service that asks and polls: its small kernels queue behind another client's large ones."""
    scenario = tmp_path / "queued.toml"
    scenario.write_text(
        """
description = "MPS: a big one, and a small one that is never alone."
family = "mps"
duration_ms = 200
[[board]]
model = "NVIDIA A100-SXM4-40GB"
mode = "mps"
[kernel]
big = { us = 900, fill = 2.5, block = 256, registers = 64 }
tiny = { us = 20, fill = 0.02, block = 128 }
[[tenant]]
name = "big"
mps = true
[[tenant.work]]
from_ms = 15
until_ms = 170
ahead = 2
steps = ["13 big x4"]
[[tenant]]
name = "small"
mps = true
[[tenant.work]]
from_ms = 40
until_ms = 160
think_us = [500, 900]
steps = ["13 tiny x2"]
[[capture]]
name = "queued"
switches = true
""",
        encoding="utf-8",
    )
    generate.generate([scenario], tmp_path / "made")
    truth = json.loads((tmp_path / "made" / "queued.truth.json").read_text(encoding="utf-8"))
    small = next(t for t in truth["tenants"] if t["name"] == "small")["slowdown"]
    assert small["kernel_latency"]["ratio"] > 5, "the small one's kernels wait several times their own length"
    report = pyanalyze.load(tmp_path / "made" / "queued.sqlite").report()
    (device,) = report.devices
    assert [finding for finding in device.host if finding.what == "idle between launches"] == []
    assert cause_sentence(device).startswith("Sharing is the cause: unknown.")


def polled(capture: Path, target: Path, period_ns: int) -> int:
    """Copy a capture whose hosts ask an event again and again instead of blocking; returns how many waits that were."""
    shutil.copy(capture, target)
    with closing(sqlite3.connect(target)) as db, db:
        name, call = (
            db.execute(f"SELECT max({column}) FROM {table}").fetchone()[0] + 1
            for column, table in (("id", "StringIds"), ("correlationId", "CUPTI_ACTIVITY_KIND_RUNTIME"))
        )
        db.execute("INSERT INTO StringIds VALUES (?, 'cudaEventQuery_v3020')", (name,))
        waits = "FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId IN (SELECT id FROM StringIds WHERE value LIKE '%Synchronize%')"
        blocked = db.execute(f"SELECT start, end, globalTid {waits}").fetchall()
        db.execute(f"DELETE {waits}")
        for start, end, thread in blocked:
            asked = [*range(start, max(end - 2000, start + 1), period_ns), end - 1000]
            for at in asked:
                call += 1
                answer = 0 if at == end - 1000 else 600  # cudaErrorNotReady
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, "
                    "returnValue) VALUES (?, ?, 0, ?, ?, ?, ?)",
                    (at, at + 1000 if answer == 0 else at + 500, thread, call, name, answer),
                )
    return len(blocked)


@pytest.mark.parametrize("period_us", [10, 400])
def test_a_host_that_polls_waits_as_one_that_blocks(tmp_path: Path, period_us: int) -> None:
    capture, asked = CAPTURES / "demo-time-slicing.sqlite", tmp_path / "polled.sqlite"
    assert polled(capture, asked, period_us * 1000) > 200
    truth = json.loads(capture.with_suffix(".truth.json").read_text(encoding="utf-8"))
    true = {tenant["name"]: tenant["slowdown"]["elapsed"]["ratio"] for tenant in truth["tenants"]}
    (device,) = load(asked).interference()
    assert len(device.tenants) >= 2
    for tenant in device.tenants:
        if tenant.name in ("app_a", "app_b"):
            assert tenant.slowdown.elapsed is not None
            assert tenant.slowdown.elapsed.value == pytest.approx(
                true[{"app_a": "A", "app_b": "B"}[tenant.name]], rel=0.05
            )


def test_forecasts_of_a_host_that_polls_are_those_of_one_that_blocks(tmp_path: Path) -> None:
    capture, asked = HARDWARE / "h100" / "slices-A-B.sqlite", tmp_path / "polled.sqlite"
    assert polled(capture, asked, 20_000) > 200
    one, other = (
        {
            (option.name, forecast.name): forecast.slowdown
            for option in options(session.tables, session.classify()[0]).options
            for forecast in option.forecasts
        }
        for session in (load(capture), load(asked))
    )
    assert len(one) >= 6
    assert other == pytest.approx(one, rel=0.03)


@pytest.mark.parametrize(
    ("kernels", "period_us", "solo_us", "bound"),
    [
        # Launched 50 us after the one before ended, always: solo each ends 990 us earlier, and so all of it moves up.
        (10, 2050, 9 * 1060 + 1010, False),
        # The same so seldom that it may be chance: the host may as well have been busy with itself.
        (5, 2050, 4 * 2050 + 1010, True),
        # Long after the end of the one before: the host takes as long whenever that ended.
        (10, 3500, 9 * 3500 + 1010, False),
    ],
)
def test_a_host_that_goes_on_when_its_kernel_has_ended_waited_for_it(
    tmp_path: Path, kernels: int, period_us: int, solo_us: int, bound: bool
) -> None:
    path = launched_after_each_other(tmp_path / "flag.sqlite", kernels, period_us)
    session = pyanalyze.load(path)
    tenant_id = session.tenants.row(by_predicate=pl.col("pid") == 7, named=True)["tenant_id"]
    mine = session.tenant_slowdowns.filter(pl.col("measure").cast(pl.String) == "elapsed", tenant_id=tenant_id)
    row = mine.row(0, named=True)
    shared_us = (kernels - 1) * period_us + 2000
    assert (row["shared_ns"], row["solo_ns"]) == (shared_us * US, solo_us * US)
    assert (row["low"], row["high"]) == (row["value"] if bound else None, None)


@pytest.mark.parametrize("name", ["paging__ada-sync-iteration", "paging__report1"])
def test_a_program_that_spins_until_its_kernel_is_done_is_slowed_as_its_kernels_are(corpus: Path, name: str) -> None:
    """By SQL: from the first launch of ten kernels to the end of the last, and how long its context was resident in it.

    One launches when the kernel before has ended, the other waits in a call for the last 0.1 ms of 4.3: else both spin.
    """
    path = corpus / "exports" / "ctxsw-ada-timeslice" / f"{name}.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        first, last, process = db.execute(
            'SELECT min(r.start), max(k."end"), max(k.globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)"
        ).fetchone()
        resident_ns = sum(to - since for since, to in recorded_residency(db, process, (first, last)))
    least = (last - first) / resident_ns
    assert 2 < least < 2.2
    (device,) = load(path).interference()
    (tenant,) = device.tenants
    assert tenant.slowdown.elapsed is not None
    assert tenant.slowdown.elapsed.value == pytest.approx(least, rel=0.06)


def test_a_wait_is_counted_where_only_a_few_launch_calls_were_recorded(corpus: Path, tmp_path: Path) -> None:
    """An A100 rebuilt from published rows: of 8 kernels 2 have their calls, and one of these waits 1.4 ms for 0.27."""
    path = tmp_path / "a100.sqlite"
    subprocess.run([sys.executable, corpus / "rebuilt" / "a100-two-traced-tenants.py", path], check=True)
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            'SELECT k.start, k."end", r.start, r."end" FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            "LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
            "AND r.globalTid / 0x1000000 = k.globalPid / 0x1000000 "
            "JOIN PROCESSES p ON p.globalPid = k.globalPid WHERE p.name LIKE '%interactive%'"
        ).fetchall()
    assert (len(rows), sum(called is not None for _, _, called, _ in rows)) == (8, 2)
    latency_ns = sum(end - (start if called is None else called) for start, end, called, _ in rows)
    waited_ns = sum(start - max(called, returned) for start, _, called, returned in rows if called is not None)
    assert waited_ns > 0.15 * (latency_ns - waited_ns)
    (device,) = pyanalyze.load(path).interference()
    (tenant,) = (one for one in device.tenants if one.name == "interactive")
    latency = tenant.slowdown.latency
    assert latency is not None and latency.high is None
    # The other context was resident for most of that.
    assert 1.1 < latency.value < latency_ns / (latency_ns - waited_ns)
    assert any("over 10 % of its launch calls are not in the capture" in note for note in tenant.notes)


def test_the_driver_call_inside_a_runtime_call_is_part_of_it(tmp_path: Path) -> None:
    """Each runtime call makes a driver call with its id, as CUPTI records where both are traced."""
    capture, nested = CAPTURES / "demo-time-slicing.sqlite", tmp_path / "nested.sqlite"
    shutil.copy(capture, nested)
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    with closing(sqlite3.connect(nested)) as db, db:
        last = db.execute("SELECT max(id) FROM StringIds").fetchone()[0]
        calls = db.execute(f"SELECT id, value FROM StringIds WHERE id IN (SELECT nameId FROM {table})").fetchall()
        for number, (outer, name) in enumerate(calls, last + 1):
            db.execute("INSERT INTO StringIds VALUES (?, ?)", (number, "cu" + name.split("_v")[0].removeprefix("cuda")))
            db.execute(
                f"INSERT INTO {table} (start, end, eventClass, globalTid, correlationId, nameId, returnValue) "
                f"SELECT start + 1, end - 1, eventClass, globalTid, correlationId, ?, returnValue FROM {table} "
                "WHERE nameId = ? AND end > start + 2",
                (number, outer),
            )
    one, other = (
        load(path).tenant_slowdowns.sort("tenant_id", "measure", "work").drop("reason") for path in (capture, nested)
    )
    assert one.equals(other)


def test_calls_without_names_do_not_show_waiting(tmp_path: Path) -> None:
    capture = tmp_path / "nameless.sqlite"
    shutil.copy(CAPTURES / "demo-time-slicing.sqlite", capture)
    with closing(sqlite3.connect(capture)) as db, db:
        db.execute("DROP TABLE StringIds")
    (device,) = pyanalyze.load(capture).interference()
    assert len(device.tenants) >= 2
    for tenant in device.tenants:
        assert tenant.slowdown.elapsed is None, (
            "a host of which no call is known to wait looks as if it were never slowed"
        )


def test_time_sliced_no_other_tenant_is_on_the_sms(hardware: Path) -> None:
    """The documentation of time-slicing: whoever is resident has all SMs. Its own second stream may share them."""
    h200 = hardware.parent / "h200"
    capture = load(h200 / "slices-paced-B.sqlite", baselines=[h200 / "alone-B.sqlite"])
    (device,) = capture.interference()
    (tenant,) = (one for one in device.tenants if split_in(one) is not None)
    split = split_in(tenant)
    assert split is not None
    assert tenant.causes is not None
    assert split.sm_slots == 0
    assert split.unexplained == pytest.approx(tenant.causes.execution, abs=1e-9)


def test_an_execution_that_the_replay_took_as_recorded_is_no_measurement(fixtures: Path) -> None:
    """Neither an interval nor a finding, though the kernels that ran solo as well were measured."""
    path = fixtures / "demo-time-slicing.sqlite"
    (device,) = load(path).interference()
    for tenant in device.tenants:
        resident = tenant.slowdown.resident
        assert resident is not None
        assert (resident.value, resident.low, resident.high) == (1, None, None)
    page = CliRunner().invoke(cli, ["report", str(path), "-f", "md"]).output
    assert page.count("| 1.00x (assumed) |") == 2
    # Once per tenant; so is the time of launch calls, which are kept as recorded.
    assert page.count("| 0.0 % (assumed) |") == 4


def test_elapsed_time_leaves_long_pauses_out_and_says_so(fixtures: Path) -> None:
    """By the launch calls and the ends of kernels: app_a paused once for 128 ms."""
    path = fixtures / "demo-time-slicing.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            """SELECT min(r.start), max(w.e) FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN (
                SELECT globalPid p, correlationId i, "end" e FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL
                SELECT globalPid, correlationId, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY) w
            ON w.i = r.correlationId AND w.p = r.globalTid / 16777216 * 16777216
            WHERE w.p / 16777216 % 16777216 = 41201 GROUP BY w.i ORDER BY r.start"""
        ).fetchall()
    idle, until = [], rows[0][1]
    for launch, end in rows[1:]:
        idle.append(max(launch - until, 0))
        until = max(until, end)
    long = [ns for ns in idle if ns > 20 * MS]
    assert len(long) == 1
    assert long[0] == pytest.approx(128 * MS, abs=MS)
    expected_ns = until - rows[0][0] - long[0]
    (device,) = load(path).interference()
    (tenant,) = (one for one in device.tenants if one.name == "app_a")
    assert tenant.throughput is not None
    assert tenant.slowdown.elapsed is not None
    assert 1e9 * tenant.slowdown.elapsed.n / tenant.throughput.shared_per_s == pytest.approx(expected_ns, rel=1e-3)
    page = CliRunner().invoke(cli, ["report", str(path), "-f", "md"]).output
    assert (
        "Elapsed leaves out pauses of the program longer than both 20 ms and three times its usual pause; so do" in page
    )


def test_parts_sum_to_the_figure_that_they_divide(hardware: Path) -> None:
    """Slower execution is 55.3 % with the kernels queued behind slower ones, which have no causes of their own."""
    path = hardware / "torch-mps-serve-train.sqlite"
    (device,) = load(path).report().devices
    (tenant,) = (one for one in device.tenants if one.pid == 1288)
    direct, roots = tenant.causes, tenant.root_causes
    assert direct is not None and roots is not None and direct.execution_split is not None
    parts = [*direct.execution_split.parts().values(), direct.execution_split.unexplained]
    assert sum(part or 0 for part in parts) == pytest.approx(direct.execution, abs=1e-6)
    assert roots.queue is not None and roots.queue_other is not None and 0 < roots.queue_other < roots.queue
    page = CliRunner().invoke(cli, ["report", str(path), "-f", "md"]).output
    assert f"| {roots.queue:.1%} ({roots.queue_other:.1%} behind others) |".replace("%", " %") in page
    # Both parts stand beside each other, and the other queueing with them.
    assert roots.execution is not None and direct.execution is not None
    parts_of = f"| {direct.execution:.1%} | {roots.execution - direct.execution:.1%} |".replace("%", " %")
    assert parts_of in page
    assert "Waits behind its own slower kernels are not divided by cause." in page
    # Modelled slots took all of it; what memory, copies and clocks had was not measured.
    assert direct.execution_split.memory is None and direct.execution_split.unexplained == 0
    assert "| 1.0 % | at most 1.0 % | not known | not known | not known | 0.0 % | not known |" in page
    assert "waves of blocks on average" in page
    # What is not known has the command that records it, where an option of the recorder does.
    gaps = [gap for gap in device.sharing.missing if gap.what.startswith("execution_split.")]
    gaps = [gap for gap in gaps if gap.why.startswith("python3 (pid 1288): ")]
    assert {gap.what.partition(".")[2] for gap in gaps} == {"memory", "copy", "clock"}
    assert all(gap.how.startswith("nsys profile ") and "--gpu-metrics-devices=all" in gap.how for gap in gaps)
    assert all("record with" not in gap.why for gap in gaps)


def test_a_tenant_that_lost_more_time_is_named_beside_the_one_with_the_most_latency(hardware: Path) -> None:
    """Kernels of 1250 wait longest and its elapsed time stays; that of 1251 grew by more than a third."""
    path = hardware.parent / "h200" / "slices-paced-B.sqlite"
    report = load(path).report()
    (device,) = report.devices
    said = victim_sentence(device)
    assert said.startswith("Largest slowdown: kit (pid 1250), kernel latency 1.64x")
    assert (
        "; elapsed time 1.00x. Slowed most by elapsed time: kit (pid 1251) 1.59x (bounds 1.39-1.81, n = 331, inferred)."
        in said
    )
    # The median of all, 1.553 ms, is longer than any interval of 1250, which yields, and shorter than any of 1251.
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT (globalPid >> 24) & 16777215, contextId, lead(timestamp) OVER w - timestamp, tag, lead(tag) OVER w
            FROM GPU_CONTEXT_SWITCH_EVENTS WINDOW w AS (PARTITION BY globalPid, contextId ORDER BY timestamp)"""
        rows = [(pid, context, ns) for pid, context, ns, *tags in db.execute(query) if tags == [8, 7]]
    # A context that was resident once was being created.
    counts = Counter(context for _, context, _ in rows)
    medians = {
        pid: statistics.median_low(ns for of, context, ns in rows if of == pid and counts[context] > 1) / 1e6
        for pid in (1251, 1250)
    }
    page = CliRunner().invoke(cli, ["report", str(path), "-f", "md"]).output
    each = " and ".join(f"{ms:.3f} ms (kit (pid {pid}))" for pid, ms in medians.items())
    assert f"; median residency intervals {each}." in page
    # The other process wakes every 4.7 ms: what is between is no slice of a policy.
    assert (
        "The time slice is not known: intervals that others ended cluster at 3.190 ms, which no policy is known" in page
    )
    low, high = sorted(medians.values())
    each = " and ".join(f"kit (pid {pid}) {ms:.3f} ms" for pid, ms in medians.items())
    assert f"| Median residency interval | {low:.3f} ms to {high:.3f} ms | complete intervals: {each} | " in page
    # Behind the sentence on 1251 nobody reads that it was slowed by itself.
    assert " inferred). kit (pid 1250): slowed by kit (pid 1251), inferred. Cause: " in page
    # Where its interval reaches that of the first, nothing says that it lost more.
    (first, second) = device.tenants
    assert second.slowdown.elapsed is not None
    wide = second.slowdown.elapsed.model_copy(update={"low": 1.0})
    slowdown = second.slowdown.model_copy(update={"elapsed": wide})
    device = device.model_copy(update={"tenants": [first, second.model_copy(update={"slowdown": slowdown})]})
    assert "Slowed most by elapsed time" not in victim_sentence(device)


def test_a_window_that_cuts_every_operation_gives_a_bound_and_no_ratio(corpus: Path) -> None:
    """The only kernel of the traced process lasts 2.5 s: the first second of the capture holds no whole one."""
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite"
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        ((start_ns, end_ns),) = db.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert start_ns < 1_000_000_000 < end_ns
    shown = CliRunner().invoke(cli, ["summary", "--start", "0s", "--end", "1s", str(path)]).output
    # By SQL its context was resident for 351.6 ms of the 715.7 ms from the start of the kernel to 1 s.
    assert "kernel latency at least 2.04x (n = 1, inferred)" in shown and "n = 0" not in shown


def test_solo_time_in_the_window_does_not_dilute_the_latency_of_the_co_run(fixtures: Path) -> None:
    """app_a and app_b each ran solo first. By SQL: each kernel while others have work, over the same one before that."""
    path = fixtures / "demo-time-slicing.sqlite"
    query = """SELECT s.value, r.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
               JOIN StringIds AS s ON s.id = k.shortName
               JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r
               ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
               WHERE k.globalPid >> 24 & 0xFFFFFF = ? ORDER BY r.start"""
    with closing(sqlite3.connect(path)) as db:
        kernels = {pid: db.execute(query, (pid,)).fetchall() for pid in (41201, 41305)}
        ((untraced_from,),) = db.execute(
            "SELECT min(timestamp) FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag = 8 AND globalPid >> 24 & 0xFFFFFF = 41377"
        ).fetchall()
        ((untraced_until,),) = db.execute(
            "SELECT max(timestamp) FROM GPU_CONTEXT_SWITCH_EVENTS WHERE globalPid >> 24 & 0xFFFFFF = 41377"
        ).fetchall()
    found = {tenant.tenant_id: tenant.slowdown for tenant in load(path).interference()[0].tenants}
    for tenant_id, (mine, other) in enumerate(((41201, 41305), (41305, 41201))):
        busy = [(start, end) for _, start, end in kernels[other]] + [(untraced_from, untraced_until)]
        took: dict[tuple[str, bool], list[int]] = {}
        for name, start, end in kernels[mine]:
            beside = any(one < end and start < last for one, last in busy)
            took.setdefault((name, beside), []).append(end - start)
        names = {name for name, beside in took if not beside}
        co_run = sum(sum(took[name, True]) for name in names)
        solo = sum(len(took[name, True]) * sum(took[name, False]) / len(took[name, False]) for name in names)
        latency, while_beside = found[tenant_id].latency, found[tenant_id].latency_co_run
        assert latency is not None and while_beside is not None
        assert while_beside.n == sum(len(each) for (_, beside), each in took.items() if beside)
        # How far a program launched ahead differs between its solo part and the replay.
        assert while_beside.value == pytest.approx(co_run / solo, rel=0.06)
        assert while_beside.value > 1.15 * latency.value
    worst = found[1].latency_co_run
    assert worst is not None
    assert f"; co-run {worst.value:.2f}x;" in " ".join(run("summary", path).stdout.split())
    shown = " ".join(run("report", path, "-f", "txt").stdout.split())
    assert f"{worst.value:.2f}x while another tenant has work (n = " in shown


def test_solo_requests_in_the_window_do_not_dilute_the_latency_of_the_co_run(fixtures: Path) -> None:
    """On an H100 half of the requests ran while the training paused. By SQL: the others over these, or over a solo run."""
    hardware = fixtures.parent / "hardware" / "h100"
    path = hardware / "torch-slices-serve-train.sqlite"
    requests = """SELECT r.start, r."end" FROM NVTX_EVENTS AS r LEFT JOIN StringIds AS s ON s.id = r.textId
                  WHERE coalesce(r.text, s.value) = 'request' AND r."end" IS NOT NULL ORDER BY r.start"""
    # From the launch call on a kernel is work.
    training = """SELECT c.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS c
                  ON c.correlationId = k.correlationId AND c.globalTid >> 24 = k.globalPid >> 24
                  WHERE k.globalPid >> 24 & 0xFFFFFF = 1159"""
    with closing(sqlite3.connect(path)) as db:
        others = db.execute(training).fetchall()
        # No kernel of the last one was recorded.
        took = db.execute(requests).fetchall()[:-1]
    with closing(sqlite3.connect(hardware / "torch-alone-serve.sqlite")) as db:
        measured = statistics.fmean(end - start for start, end in db.execute(requests))
    beside = [any(one < end and start < last for one, last in others) for start, end in took]
    co_run, solo = (
        statistics.fmean(end - start for (start, end), one in zip(took, beside, strict=True) if one is which)
        for which in (True, False)
    )
    (units,) = load(path).interference()[0].tenants[0].units
    assert units.name == "request" and units.latency_co_run is not None
    assert units.latency_co_run.n == sum(beside) == 27
    # The first requests warm up; a solo run has a host that no other one disturbs.
    assert co_run / solo < units.latency_co_run.value < co_run / measured
    assert units.latency_co_run.value > 1.4 * units.latency.value
    shown = " ".join(run("summary", path).stdout.split())
    assert f"mean co-run {units.latency_co_run.value:.2f}x" in shown
    shown = " ".join(run("report", path, "-f", "txt").stdout.split())
    assert f"; request {units.latency.value:.2f}x, {units.latency_co_run.value:.2f}x while another tenant has" in shown
    assert f"{units.latency_co_run.value:.2f}x (n = 27)" in render(load(path).analysis, "html")
