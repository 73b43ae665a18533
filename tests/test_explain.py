"""Units of work explained one by one: against hand calculations, and against what holds for every capture."""

from __future__ import annotations

import itertools
import json
import math
import re
import sqlite3
import statistics
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import generate
import jsonschema
import polars as pl
import pytest
from command_line import run
from exports import MS, US, call, copy, kernel, nvtx_range, recorded_residency, write
from shared_sessions import load

import pyanalyze
from pyanalyze import charts
from pyanalyze.analysis import explain as explain_module
from pyanalyze.cli.schemas import schema_of
from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.report.blocks import Chart
from pyanalyze.report.layout import lay_out
from pyanalyze.report.markdown import render_markdown
from pyanalyze.results.explain import Excess, UnitSegment, cause_text, waited_for_text
from pyanalyze.text import format as fmt
from pyanalyze.text.format import duration
from pyanalyze.vocabulary import (
    DOUBT_TEXT,
    RESTS_ON_RESIDENCY,
    SEGMENT_TEXT,
    UNIT_SOURCE_TEXT,
    UNSETTLING,
    ResidencyDoubt,
    SegmentKind,
    UnitSource,
)

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

INTERACTIVE, BACKGROUND = "interactive", "background"


def test_the_words_are_those_of_the_core() -> None:
    kinds, sources = _core.explain_words()
    assert kinds == list(SegmentKind) == list(SEGMENT_TEXT)
    assert sources == list(UnitSource) == list(UNIT_SOURCE_TEXT)


@pytest.mark.parametrize("name", ["demo-time-slicing", "exclusive", "mps", "streams", "mig", "lost-records"])
def test_segments_of_every_unit_add_up(fixtures: Path, name: str) -> None:
    session = load(fixtures / f"{name}.sqlite")
    found = session.explain(slowest=0.99)
    assert found.units.height > 0
    sums = found.segments.group_by("unit").agg(pl.col("dur_ns").sum().alias("sum"))
    assert found.units.join(sums, on="unit").filter(pl.col("sum") == pl.col("dur_ns")).height == found.units.height
    # What an excess is made of adds up to it, too: of one unit, and of all that were chosen.
    for unit in found.result.units:
        assert sum(cause.ns for cause in unit.causes) == pytest.approx(unit.excess_ns, abs=1e-3)
        assert sum(segment.dur_ns for segment in unit.segments) == unit.dur_ns
    for group in found.result.groups:
        assert group.slow_mean_ns is not None
        excess = group.slow_mean_ns - group.typical_ns
        assert sum(cause.ns for cause in group.causes) == pytest.approx(excess, abs=1e-3)


def test_the_slowest_units_of_a_time_sliced_tenant_waited_for_their_time_slice(fixtures: Path) -> None:
    found = load(fixtures / "demo-time-slicing.sqlite").explain().result
    for group in found.groups:
        assert group.source is UnitSource.RANGE
        assert group.causes[0].kind is SegmentKind.TIME_SLICE
        assert group.causes[0].other != group.tenant


def _latencies(capture: Path, name: str) -> list[int]:
    """From the begin of each range to its end, or that of the last operation that was launched in it; ascending."""
    query = """
        WITH work AS (SELECT globalPid / 0x1000000 AS pid, correlationId, "end" AS done
            FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT globalPid / 0x1000000, correlationId, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY)
        SELECT max(range."end", max(work.done)) - range.start FROM NVTX_EVENTS range
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME call
            ON call.globalTid = range.globalTid AND call.start BETWEEN range.start AND range."end"
        JOIN work ON work.correlationId = call.correlationId AND work.pid = call.globalTid / 0x1000000
        WHERE coalesce(range.text, (SELECT value FROM StringIds WHERE id = range.textId)) = ? GROUP BY range.rowid"""
    with closing(sqlite3.connect(capture)) as export:
        return sorted(length for (length,) in export.execute(query, (name,)))


@pytest.mark.parametrize("command", ["", "explain"])
def test_percentiles_of_units_are_the_same_on_every_page(hardware: Path, command: str) -> None:
    """The value that 99 % of the ranges do not exceed, by hand from the export; solo of the recording that is given."""
    shared, solo = (hardware / f"torch-{name}.sqlite" for name in ("slices-serve-train", "alone-serve"))
    p99_ns = {
        capture: lengths[math.ceil(0.99 * len(lengths)) - 1]
        for capture in (shared, solo)
        if (lengths := _latencies(capture, "request"))
    }
    p99 = {capture: duration(length) for capture, length in p99_ns.items()}
    done = run(*filter(None, [command]), shared, "--baseline", solo)
    assert done.returncode == 0
    if command:
        _, percentiles, against = done.stdout.split("\n")[:3]
        assert f" p99 {p99[shared]}," in percentiles
        assert against.startswith("  solo p50 ")
        assert f" p99 {p99[solo]};" in against
    else:
        # Of fewer than a hundred the 99th percentile is the slowest. Who else was slowed takes the room of latencies.
        p95_ns = []
        for capture in (shared, solo):
            lengths = _latencies(capture, "request")
            assert 20 <= len(lengths) < 100
            p95_ns.append(lengths[math.ceil(0.95 * len(lengths)) - 1])
        assert f"request p95 {p95_ns[0] / p95_ns[1]:.2f}x" in " ".join(done.stdout.split())


def test_one_process_waits_for_nobody(fixtures: Path) -> None:
    session = load(fixtures / "exclusive.sqlite")
    assert set(session.unit_segments["kind"].unique().cast(pl.String)).isdisjoint(
        {SegmentKind.TIME_SLICE, SegmentKind.SWITCH, SegmentKind.QUEUE_OTHER_TENANT}
    )


def test_choices(fixtures: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    (unit,) = session.explain(unit=3).result.units
    assert unit.unit == 3
    row = session.units.row(3, named=True)
    assert 3 in {one.unit for one in session.explain(at=row["start_ns"]).result.units}
    assert [group.slow for group in session.explain(slowest=2).result.groups] == [2, 2]
    name = str(row["name"])
    assert {group.name for group in session.explain(name=name).result.groups} == {name}
    with pytest.raises(UsageError, match="no unit 99999"):
        session.explain(unit=99_999)


def test_a_name_that_no_unit_has_is_answered_with_those_there_are(fixtures: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    with pytest.raises(UsageError, match="is named a-stop; there are: a-step, b-step"):
        session.explain(name="a-stop")


def test_the_command_says_what_the_frames_say(fixtures: Path) -> None:
    capture = str(fixtures / "demo-time-slicing.sqlite")
    shown = run("explain", capture, "--slowest", "2")
    assert shown.returncode == 0
    assert "waiting for its time slice (app_c resident)" in shown.stdout
    # Most of its units are slow: the slowest are as slow as these.
    assert "take about as long as a typical unit" in shown.stdout
    made = json.loads(run("explain", capture, "--slowest", "2", "-f", "json").stdout)
    jsonschema.Draft202012Validator(schema_of("explain")).validate(made)
    table = run("explain", capture, "--slowest", "2", "-f", "csv").stdout.splitlines()
    assert len(table) - 1 == sum(len(unit["segments"]) for unit in made["units"])
    assert run("explain", capture, "--slowest", "much").returncode == 2
    assert run("explain", capture, "--unit", "1", "--at", "1s").returncode == 2


def test_what_differs_by_next_to_nothing_is_not_slow(fixtures: Path) -> None:
    """Shares of an excess of next to nothing would say nothing; the unit is said not to be slow."""
    session = load(fixtures / "exclusive.sqlite")
    found = session.explain(slowest=0.5).result
    usual = [group for group in found.groups if not group.is_slow]
    assert usual
    for group in usual:
        assert all(cause.share is None for cause in group.causes)
    assert "take about as long as a typical unit" in str(found)


def test_parts_of_one_step_show_its_start_once(fixtures: Path) -> None:
    found = load(fixtures / "demo-time-slicing.sqlite").explain(slowest=1).result
    unit = found.units[0]
    alternating = [one for one, before in itertools.pairwise(unit.longest) if one.same_step(before)]
    assert alternating
    starts = [line for line in str(found).splitlines() if line.startswith("            ") and "slice" in line]
    assert starts


@pytest.mark.parametrize(
    ("name", "seed", "doubt", "decided"),
    [
        # One of two containers was traced: a kernel that the other interrupts looks like one that ran longer.
        ("containers-memory/pod-a", 1, ResidencyDoubt.UNDECIDED, False),
        # Records say when each context was resident.
        ("rare-tenant-with-streams", 1, None, True),
        # The mode is not certain, but most likely time-slicing; kernels of both tell the slices.
        ("time-slicing-open-loop.no-switches", 2, ResidencyDoubt.IF_TIME_SLICED, True),
        # As likely MPS as time-slicing.
        ("time-slicing-copies.no-switches", 1, ResidencyDoubt.UNDECIDED, False),
        # An MPS group beside another process: what alternates faster than contexts switch counts as one.
        ("mps-outsider.no-switches", 1, None, True),
    ],
)
def test_without_switch_records_the_answer_says_how_certain_it_is(
    name: str, seed: int, doubt: ResidencyDoubt | None, *, decided: bool
) -> None:
    scenario = name.partition(".")[0].partition("/")[0]
    found = load(generate.built(scenario, seed) / f"{name}.sqlite").explain().result
    assert {group.doubt for group in found.groups} == {doubt}
    slices = {one.kind for unit in found.units for one in unit.segments} & {SegmentKind.TIME_SLICE}
    assert bool(slices) == decided
    resting = [unit for unit in found.units if unit.main_cause and unit.main_cause.kind in RESTS_ON_RESIDENCY]
    assert resting
    for unit in resting:
        # An excess below a switch is less than slices that were deduced tell.
        assert unit.doubt in {doubt, ResidencyDoubt.BELOW_PRECISION}
        assert unit.undecided == (unit.doubt in UNSETTLING)
    if doubt is not None:
        assert DOUBT_TEXT[doubt] in str(found)


def test_what_other_machines_of_a_virtual_gpu_take_is_their_time_slice() -> None:
    """A guest records its own residency only; the books say that the rest was the other machine's."""
    folder = generate.built("vgpu-time-sliced")
    found = load(folder / "vgpu-time-sliced.sqlite").explain().result
    for group in found.groups:
        assert group.causes[0].kind is SegmentKind.TIME_SLICE
        assert group.causes[0].other is None


def test_an_interrupted_kernel_is_explained_by_the_other_tenants_residency(corpus: Path, tmp_path: Path) -> None:
    """An A100 with both tenants traced, rebuilt from published rows; the expected times are from its switch records."""
    path = tmp_path / "a100.sqlite"
    subprocess.run([sys.executable, corpus / "rebuilt" / "a100-two-traced-tenants.py", path], check=True)
    work = tmp_path / "work.csv"
    work.write_text(f"tenant,start,end\n{BACKGROUND},1540485971,1540557084\n", encoding="utf-8")
    (unit,) = pyanalyze.load(path, work=work).explain().result.units
    # From the launch call of the kernel to the end of the marker behind it.
    assert unit.dur_ns == 1_609_206_873 - 1_540_485_971
    spent: dict[tuple[str, str | None], int] = {}
    for one in unit.segments:
        key = (one.kind.value, one.other if one.kind is SegmentKind.TIME_SLICE else None)
        spent[key] = spent.get(key, 0) + one.dur_ns
        assert one.basis == "observed"
    # The other tenant was resident until 1540604156 and from 1545115404 to 1545465454.
    assert spent["time-slice", INTERACTIVE] == (1_540_604_156 - 1_540_545_547) + (1_545_465_454 - 1_545_115_404)
    # Before the kernel, and to the other tenant and back inside it.
    assert spent["switch", None] == (1_540_707_452 - 1_540_604_156) + 101_568 + 100_928
    assert spent["launch", None] == (1_540_545_547 - 1_540_485_971) + (1_540_712_796 - 1_540_707_452)


def test_units_that_are_all_slow_are_not_left_out(hardware: Path) -> None:
    """Of the slowed tenant every unit is slow, so that none stands out; the other one has a slow tail."""
    path = hardware.parent / "h200" / "slices-copies-open_loop.sqlite"
    with closing(sqlite3.connect(path)) as db:
        # One R1 in each of its units; the kernels and copies of a unit end with a synchronisation.
        query = (
            """SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON shortName = id WHERE value = 'R1'"""
        )
        ((units,),) = db.execute(query)
    (device,) = load(path).report().devices
    assert [(one.group.tenant, one.group.count) for one in device.slow_units] == [("kit (pid 1648)", 482)]
    (even,) = device.even_units
    assert (even.tenant, even.count) == ("kit (pid 1649)", units) == ("kit (pid 1649)", 555)
    assert even.p99_ns < 1.2 * even.p50_ns
    assert sum(cause.typical_ns for cause in even.causes) == pytest.approx(even.typical_ns, abs=1e-3)
    waits = {SegmentKind.TIME_SLICE, SegmentKind.SWITCH, SegmentKind.QUEUE_OTHER_TENANT}
    waiting = sum(cause.typical_ns for cause in even.causes if cause.kind in waits)
    assert waiting > even.typical_ns / 2
    page = run("report", path, "-f", "md").stdout
    assert "kit (pid 1649): 555 units" in page
    # 140 of them take up to 1.2 ms, 415 more than 1.5 ms.
    assert "its units are slow as a rule" not in page
    page = run("report", path.with_name("slices-paced-B.sqlite"), "-f", "md").stdout
    assert re.search(r"kit \(pid 1251\): 82 units .* its units are slow as a rule", page)


def test_units_that_are_too_few_for_percentiles_are_said(hardware: Path) -> None:
    path = hardware / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT globalTid >> 24 & 0xFFFFFF, coalesce(text, value), count(*)
            FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE eventType = 59 GROUP BY 1, 2 ORDER BY 1"""
        assert db.execute(query).fetchall() == [(1287, "request", 37), (1288, "step", 10)]
    (device,) = load(path).report().devices
    assert [(one.tenant, one.name, one.count) for one in device.few_units] == [("python3 (pid 1288)", "step", 10)]
    page = run("report", path, "-f", "md").stdout
    assert "python3 (pid 1288): 10 units of step (NVTX ranges), too few for percentiles: 20 units are needed." in page


def test_ranges_that_are_too_few_to_be_units_are_named(hardware: Path) -> None:
    """The server marks 4 requests, of which each makes many launches between synchronisations."""
    path = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT coalesce(text, value), count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
            WHERE eventType = 59 AND globalTid >> 24 & 0xFFFFFF = 1905 GROUP BY 1"""
        ranges = db.execute(query).fetchall()
    assert ranges == [("request", 4)]
    groups = {group.tenant: group for group in load(path).explain().result.groups}
    few = groups["python3 (pid 1905)"].few_ranges
    assert few is not None
    assert (few.name, few.count) == ranges[0]
    # Eight modules are enough to be units.
    assert groups["python3 (pid 1904)"].source == "nvtx"
    assert groups["python3 (pid 1904)"].few_ranges is None
    said = "found by repetition; 4 NVTX ranges request are too few to be units: 5 are needed)"
    assert said in run("explain", path).stdout
    assert said in run("report", path, "-f", "md").stdout


@pytest.mark.parametrize(
    ("count", "names", "work", "few"),
    [
        (4, 1, True, ("request", 4)),
        (4, 4, True, ("request #", 4)),
        (1, 1, True, None),
        (4, 1, False, None),
        (0, 1, True, None),
    ],
    ids=["few", "numbered", "the whole program", "without work", "none"],
)
def test_only_ranges_with_work_are_said_to_be_too_few(
    tmp_path: Path, count: int, names: int, *, work: bool, few: tuple[str, int] | None
) -> None:
    """20 times a launch and a wait for it; around some of them a range, or between them."""
    kernels, calls, ranges = [], [], []
    for n in range(20):
        start = n * MS
        kernels.append(kernel(41, start + 20 * US, start + 300 * US, correlationId=n + 1))
        calls.append(call(41, start, start + 10 * US, n + 1))
        calls.append(call(41, start + 20 * US, start + 310 * US, 100 + n, "cudaStreamSynchronize_v3020"))
    for n in range(count):
        start, end = n * 5 * MS - 10 * US, n * 5 * MS + 3 * MS
        name = "request" if names == 1 else f"request {n}"
        ranges.append(nvtx_range(41, *((start, end) if work else (start + 400 * US, start + 500 * US)), name))
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, ranges=ranges, processes={41: "serve"})
    (group,) = pyanalyze.load(path).explain().result.groups
    assert (group.source, group.count) == ("synchronisation", 20)
    found = group.few_ranges
    assert (None if found is None else (found.name, found.count)) == few


def test_units_of_which_some_ran_alone_are_not_said_to_be_alike(fixtures: Path) -> None:
    """No step of app_a takes 1.2 times the median: but nearly half of them ran before others came."""
    path = fixtures / "demo-time-slicing.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = """WITH work AS (SELECT globalPid p, correlationId i, "end" e FROM CUPTI_ACTIVITY_KIND_KERNEL
                UNION ALL SELECT globalPid, correlationId, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY),
            call AS (SELECT globalTid / 16777216 * 16777216 p, correlationId i, start FROM CUPTI_ACTIVITY_KIND_RUNTIME)
            SELECT max(work.e) - nvtx.start AS ns FROM NVTX_EVENTS nvtx JOIN StringIds ON id = textId
            JOIN call ON call.p = globalTid / 16777216 * 16777216 AND call.start BETWEEN nvtx.start AND nvtx."end"
            JOIN work ON work.p = call.p AND work.i = call.i WHERE value = 'a-step' GROUP BY nvtx.rowid ORDER BY ns"""
        durations = [ns for (ns,) in db.execute(query)]
    # 8.28 and 12.95 ms: a ratio of 1.56, and no other is above 1.4 but that of the two shortest.
    assert [round(ns / 1e6, 2) for ns in durations[51:53]] == [8.28, 12.95]
    (device,) = load(path).report().devices
    (group,) = (one for one in device.even_units if one.name == "a-step")
    shorter, longer = group.ranges
    assert (shorter.count, shorter.min_ns, shorter.max_ns) == (52, durations[0], durations[51])
    assert (longer.count, longer.min_ns, longer.max_ns) == (61, durations[52], durations[-1])
    # Until the others came nothing was waited for but the switch of the step before.
    assert shorter.others_ns < 0.1 * shorter.max_ns
    assert longer.others_ns > 0.4 * longer.max_ns
    # They were the first: until then app_a was by itself.
    assert group.phases is not None
    assert (group.phases.first, group.phases.then) == (52, 61)
    assert group.phases.first_p50_ns == durations[25]
    assert group.phases.then_p50_ns == durations[52 + 30]
    page = run("report", path, "-f", "md").stdout
    assert " The first 52 take 8.1" in page
    said = f"52 take {durations[0] / 1e6:.3f} to {durations[51] / 1e6:.3f} ms (mean wait for other tenants "
    assert f"Durations differ: {said}" in page
    assert "slow as a rule" not in page
    assert f"  {said}" in run("explain", path).stdout


@pytest.mark.parametrize(
    ("lengths", "phases"),
    [
        # Of 30 units: 10 of 1 ms, then 20 of 2 ms; one of 11 may be early.
        ([1] * 10 + [2] * 20, (10, 20)),
        ([2] * 20 + [1] * 10, (20, 10)),
        ([2, *[1] * 9, 1, *[2] * 19], (11, 19)),
        # A ramp, as where the end of the recording cuts a queue that fills again, is no phase.
        ([43] * 22 + [15, 16, 18, 19, 21, 22, 24, 25], None),
        ([15, 16, 18, 19, 21, 22, 24, 25] + [43] * 22, None),
        # They alternate; or five short ones are anywhere.
        ([1, 2] * 15, None),
        ([2] * 10 + [1] + [2] * 5 + [1] + [2] * 5 + [1, 1] + [2] * 5 + [1], None),
    ],
)
def test_phases_are_told_from_units_that_alternate(lengths: list[int], phases: tuple[int, int] | None) -> None:
    units = pl.DataFrame(
        {
            "unit": range(30),
            "start_ns": range(0, 30_000, 1000),
            "dur_ns": [n * 10**6 for n in lengths],
            "others_ns": [0] * 30,
        }
    )
    sums = pl.DataFrame(schema={"unit": pl.Int64, "kind": pl.String, "dur_ns": pl.Float64})
    found = explain_module._phases(units, explain_module._ranges(units, sums))
    assert (None if found is None else (found.first, found.then)) == phases
    if found is not None:
        assert found.until_ns == 1000 * found.first


def test_units_that_the_end_of_the_recording_cuts_are_left_out(tmp_path: Path) -> None:
    """Ranges of 1 ms, one each 10 ms: a kernel from 2 to 3 ms, a copy until 5; the last copy has no record.

    No kernel has one either that is launched behind the ranges: work was in flight as the recording ended.
    """
    starts = [n * 10 * MS for n in range(10)]
    path = write(
        tmp_path / "cut.sqlite",
        processes={7: "serve"},
        ranges=[nvtx_range(7, t, t + MS, "request") for t in starts],
        calls=[
            *(call(7, t + 100 * US, t + 110 * US, n) for n, t in enumerate([*starts, 99 * MS], 1)),
            *(call(7, t + 200 * US, t + 210 * US, 101 + n, "cudaMemcpyAsync_v3020") for n, t in enumerate(starts)),
        ],
        kernels=[kernel(7, t + 2 * MS, t + 3 * MS) for t in starts],
        copies=[copy(7, t + 4 * MS, t + 5 * MS, correlationId=101 + n) for n, t in enumerate(starts[:-1])],
    )
    found = pyanalyze.load(path).explain()
    (group,) = found.result.groups
    assert (group.count, group.cut, group.operations) == (9, 1, 18)
    assert (group.p50_ns, group.max_ns) == (5 * MS, 5 * MS)
    said = str(found)
    assert "1 more is left out: the recording ended before its copies" in said
    assert "from its start to the end of the GPU work launched in it" in said


def test_a_queue_that_fills_until_the_recording_ends_is_no_phase(corpus: Path) -> None:
    """By SQL 27 of the 56 ranges of each process have work on record; the last of them 8 calls that copy, 2 with a record."""
    path = corpus / "exports" / "nsys-ai" / "h100_2gpu_1s.sqlite"
    groups = load(path).explain().result.groups
    assert [(group.count, group.cut, group.phases) for group in groups] == [(26, 1, None)] * 2


def test_a_tail_of_many_units_is_said_to_be_of_many(hardware: Path) -> None:
    """A third of the requests waits for a time slice: the slowest of them is no outlier."""
    path = hardware / "torch-slices-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        # Each ends with a synchronisation. The last one ends after the last kernel on record.
        query = """SELECT "end" - start AS ns FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
            WHERE coalesce(text, value) = 'request'
            AND "end" < (SELECT max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL) ORDER BY ns"""
        lengths = [ns for (ns,) in db.execute(query)]
    # 39 take up to 1.19 ms and 15 at least 1.79 ms: no ratio of two that follow each other is larger.
    assert [round(ns / 1e6, 2) for ns in lengths[38:40]] == [1.19, 1.79]
    assert lengths[39] / lengths[38] == max(b / a for a, b in itertools.pairwise(lengths))
    (slow,) = load(path).report().devices[0].slow_units
    shorter, longer = slow.group.ranges
    assert (shorter.count, shorter.min_ns, shorter.max_ns) == (39, lengths[0], lengths[38])
    assert (longer.count, longer.min_ns, longer.max_ns) == (15, lengths[39], lengths[-1])
    assert longer.others_ns > 0.5 * longer.min_ns
    # 35 of them began before 3.52 s, 34 of which are short, and 14 of the 19 from then on are long.
    with closing(sqlite3.connect(path)) as db:
        in_order = [ns for (ns,) in db.execute(query.replace("ORDER BY ns", "ORDER BY start"))]
    assert [sum(ns >= lengths[39] for ns in part) for part in (in_order[:35], in_order[35:])] == [1, 14]
    phases = slow.group.phases
    assert phases is not None
    assert (phases.first, phases.first_p50_ns) == (35, sorted(in_order[:35])[17])
    assert (phases.then, phases.then_p50_ns) == (19, sorted(in_order[35:])[9])
    page = run("report", path, "-f", "md").stdout
    said = r"max 2\.756 ms\. Durations differ: 39 take 481 us to 1\.192 ms \(.+\), 15 take 1\.792 to 2\.756 ms \("
    assert re.search(said, page)
    *_, last = json.loads(charts.excess_waterfall([slow]).to_dict()["data"]["values"])
    assert last["c"] == "slowest of 54"


class Unit(NamedTuple):
    """From the first launch behind a synchronisation to the return of the next one, by SQL on the export."""

    dur_ns: int
    #: Union of its kernels and copies, which follow each other in one stream.
    work_ns: int
    #: Of its duration, another context was resident: RESTORE_START to SAVE_END.
    others_ns: int


def units_of_sql(path: Path, pid: int, operations: int) -> list[Unit]:
    """Units with so many operations of a process whose thread waits with cudaStreamSynchronize, the shortest first."""
    with closing(sqlite3.connect(path)) as db:
        of = f"(globalPid >> 24 & 16777215) = {pid}"
        work = 'SELECT correlationId i, start a, "end" b FROM CUPTI_ACTIVITY_KIND_'
        rows = db.execute(
            f"""WITH work AS (SELECT i, min(a) a, max(b) b, count(*) n FROM ({work}KERNEL WHERE {of}
                    UNION ALL {work}MEMCPY WHERE {of}) GROUP BY i),
                call AS (SELECT start, "end" e, correlationId i, value AS name FROM CUPTI_ACTIVITY_KIND_RUNTIME
                    JOIN StringIds ON id = nameId WHERE (globalTid >> 24 & 16777215) = {pid})
            SELECT start, e, name LIKE 'cudaStreamSynchronize%', n, b - a FROM call LEFT JOIN work USING (i)
            WHERE n OR name LIKE 'cudaStreamSynchronize%' ORDER BY start"""
        ).fetchall()
        line = f"SELECT tag, timestamp FROM GPU_CONTEXT_SWITCH_EVENTS WHERE NOT {of} ORDER BY timestamp"
        switches = db.execute(line).fetchall()
    held = [(a, b) for (tag, a), (end, b) in itertools.pairwise(switches) if (tag, end) == (8, 7)]
    found, launched = [], []
    for start, end, waits, count, work_ns in rows:
        if not waits:
            launched.append((start, count, work_ns))
            continue
        if sum(count for _, count, _ in launched) == operations:
            first = launched[0][0]
            others = sum(max(min(b, end) - max(a, first), 0) for a, b in held)
            found.append(Unit(end - first, sum(ns for *_, ns in launched), others))
        launched = []
    return sorted(found)


def test_what_a_unit_takes_solo_is_no_waiting_for_a_time_slice(hardware: Path) -> None:
    """An LLM decodes beside a training, time-sliced on an H200: a launch of a graph of 132 kernels per step."""
    path = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    units = units_of_sql(path, 1905, 135)
    solo = [unit for unit in units if unit.others_ns == 0]
    assert (len(units), len(solo)) == (99, 4)
    # 0.99 to 1.23 ms, then 2.80 ms.
    assert units[7].dur_ns * 2 < units[8].dur_ns
    (device,) = load(path).report().devices
    (group,) = (one for one in device.even_units if one.count == 99)
    parts = {cause.kind: cause.typical_ns for cause in group.causes}
    waits = (SegmentKind.TIME_SLICE, SegmentKind.SWITCH, SegmentKind.QUEUE_OTHER_TENANT)
    without = sum(ns for kind, ns in parts.items() if kind not in waits)
    # Beside the other tenant launch calls take a little longer, as does the return of a synchronisation.
    assert without == pytest.approx(statistics.median(unit.dur_ns for unit in solo), rel=0.1)
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT "end" - start FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId
            WHERE value LIKE 'cudaGraphLaunch%'"""
        calls = [ns for (ns,) in db.execute(query)]
    # The copy and the kernel before the graph have launch calls as well.
    assert 0.9 * statistics.median(calls) < parts[SegmentKind.LAUNCH] < 1.3 * statistics.median(calls)
    # Kernels at the ends of time slices ran, whatever state took to be saved and restored in others.
    middle = units[45:54]
    ran = statistics.fmean(unit.work_ns for unit in middle)
    own = (SegmentKind.EXECUTION, SegmentKind.COPY, SegmentKind.QUEUE_SAME_STREAM)
    assert sum(parts[kind] for kind in own) == pytest.approx(ran, rel=0.02)


def test_units_that_are_much_shorter_than_the_others_are_told_apart(hardware: Path) -> None:
    """8 of 99 take less than half of what the others take; during 4 of them the other tenant was not resident."""
    path = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    units = units_of_sql(path, 1905, 135)
    said = [duration(units[place].dur_ns) for place in (0, 7, 8, 98)]
    page = " ".join(run("report", path, "-f", "md").stdout.split())
    assert re.search(
        rf"Durations differ: 8 take {said[0]} to {said[1]} \(mean wait for other tenants [\d.]+ us\), "
        rf"91 take {said[2].removesuffix(' ms')} to {said[3]} \(mean wait [\d.]+ ms\)\.",
        page,
    )
    lengths = sorted(unit.dur_ns for unit in units if unit.others_ns == 0)
    solo = "4 of the 8 shorter ones ran while no other tenant had work on the GPU, and took "
    assert f"{solo}{duration(lengths[1])} (median)." in page
    assert "same time, and" not in page
    assert page.count("A unit that is an NVTX range lasts from its start to the end of the GPU work") == 1
    # The parts of a typical unit add up to it.
    found = re.search(
        r"A typical unit of [^(]+\(pid 1905\) takes ([\d.]+) ms \(mean of the middle tenth, \w+\)\.(.+?\|) python3",
        page,
    )
    assert found is not None
    parts = [float(n) * {"us": 1e3, "ms": 1e6}[of] for n, of in re.findall(r"\| ([\d.]+) (us|ms) \|", found[2])]
    assert sum(parts) == pytest.approx(float(found[1]) * 1e6, abs=2e3)


def test_a_typical_unit_is_on_the_medians_side_of_a_gap(hardware: Path) -> None:
    """Of 97 units 49 take up to 9.99 ms and 48 at least 10.61 ms: the middle tenth, units 45 to 53, has some of both."""
    path = hardware / "slices-A-B.sqlite"
    lengths = sorted(unit.dur_ns for unit in units_of_sql(path, 861, 6))
    assert lengths[49] > 1.05 * lengths[48]
    page = run("report", path, "-f", "md").stdout
    found = re.search(r"A typical unit of kit \(pid 861\) takes ([\d.]+) ms \(mean of the middle tenth, \w+\)", page)
    assert found is not None
    assert float(found[1]) == pytest.approx(statistics.fmean(lengths[44:49]) / 1e6, rel=5e-4)


def test_units_without_a_slow_tail_are_said_to_be_so_by_their_percentiles(hardware: Path) -> None:
    path = hardware / "mps-50-50-A-B.sqlite"
    page = run("report", path, "-f", "md").stdout
    said = re.findall(
        r"p50 ([\d.]+) ms, p99 ([\d.]+) ms, max [\d.]+ ms\. There is no slow tail: p99 is ([\d.]+) % above", page
    )
    assert said
    for p50, p99, above in said:
        assert float(above) == pytest.approx(100 * (float(p99) / float(p50) - 1), abs=0.1)


def test_a_wait_behind_another_tenant_is_inferred(hardware: Path) -> None:
    """One MPS context, one record of its residency: that one client waited behind the other follows from overlap."""
    explained = load(hardware / "mps-A-B.sqlite").explain()
    segments = explained.segments.with_columns(pl.col("kind", "basis").cast(pl.String))
    behind = segments.filter(pl.col("kind") == "queue-other-tenant")
    assert behind.height == 13
    assert set(behind["basis"]) == {"inferred"}
    (group,) = (one for one in explained.result.groups if "A1" in one.name)
    # By SQL, in 109 units A2 starts 50 us or more after A1; A4 of its own and B1 are in flight then, and neither ends.
    room = segments.filter(pl.col("kind") == "queue-other-stream", pl.col("other_tenant_id").is_not_null())
    assert room.filter(pl.col("dur_ns") >= 50_000, pl.col("name").cast(pl.String).str.contains("A4")).height >= 100
    assert set(room["basis"]) == {"inferred"}
    assert group.basis == "inferred"
    bases = {cause.kind: cause.basis for cause in group.causes}
    assert bases[SegmentKind.QUEUE_OTHER_TENANT] == "inferred"
    assert bases[SegmentKind.LAUNCH] == "observed"


def test_a_context_switch_longer_than_its_gap_is_inferred(hardware: Path) -> None:
    """The driver wrote tags 7 and 8 alone: what a switch takes beyond SAVE_END to RESTORE_START is in no record."""
    path = hardware.parent / "h200" / "slices-copies-open_loop.sqlite"
    with closing(sqlite3.connect(path)) as db:
        assert {tag for (tag,) in db.execute("SELECT DISTINCT tag FROM GPU_CONTEXT_SWITCH_EVENTS")} == {7, 8}
        query = """WITH line AS (SELECT tag, timestamp - lag(timestamp) OVER w AS gap, lag(tag) OVER w AS before
            FROM GPU_CONTEXT_SWITCH_EVENTS WINDOW w AS (ORDER BY timestamp))
            SELECT gap FROM line WHERE tag = 8 AND before = 7 ORDER BY gap"""
        gaps = [gap for (gap,) in db.execute(query)]
    switches = load(path).unit_segments.filter(pl.col("kind").cast(pl.String) == "switch")
    assert (switches["dur_ns"] / switches["count"]).median() > 1.2 * gaps[len(gaps) // 2]
    assert set(switches["basis"].cast(pl.String)) == {"inferred"}
    (device,) = load(path).report().devices
    (slow,) = device.slow_units
    assert slow.group.basis == "observed"
    assert {cause.basis for cause in slow.group.causes if cause.kind is SegmentKind.SWITCH} == {"inferred"}
    assert {cause.basis for cause in slow.group.causes if cause.kind is not SegmentKind.SWITCH} == {"observed"}
    said = run("explain", path).stdout
    assert "context switch [inferred]" in said
    assert "[observed]" not in said.partition("longer than a typical unit, on average:")[2].partition("units of")[0]


def test_a_copy_of_the_unit_beside_another_tenant_is_not_that_tenants() -> None:
    """Its own memset ran while the other tenant was at work: it did not wait for a copy of it."""
    own = Excess(
        kind=SegmentKind.COPY, other_tenant_id=1, other="train", operation="[CUDA memset]", ns=32, typical_ns=9_472,
        share=0.0, basis="observed",
    )  # fmt: skip
    assert (cause_text(own), waited_for_text(own)) == ("copy or memset (beside train)", "[CUDA memset]")
    queued = own.model_copy(update={"kind": SegmentKind.QUEUE_OTHER_TENANT, "operation": "gemm"})
    assert (cause_text(queued), waited_for_text(queued)) == ("queueing (other tenant, train)", "behind gemm")


def test_kernels_have_the_short_name_of_nsys_and_waits_say_behind_what(corpus: Path) -> None:
    """Three units were in flight at a time in one stream: a unit of 90.55 ms waits behind kernels of earlier ones."""
    path = corpus / "exports" / "torchcodec" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        short = {name for (name,) in db.execute("SELECT value FROM StringIds WHERE id IN (SELECT shortName FROM "
                                                "CUPTI_ACTIVITY_KIND_KERNEL)")}  # fmt: skip
    session = load(path)
    (number,) = session.units.filter((pl.col("dur_ns") / 1e6).round(2) == 90.55)["unit"]
    (unit,) = session.explain(unit=number).result.units
    kernels = {waited_for_text(one, 200) for one in unit.segments if one.operation and one.operation[0] != "["}
    names = {name.removeprefix("behind ") for name in kernels}
    # Two kernels share a short name: what they work on follows it.
    assert {name.partition("<")[0] for name in names} == short - {"MemsetD2D_BL"}
    wrapped = sorted(name for name in names if "<" in name)
    assert wrapped == ["unrolled_elementwise_kernel<float>", "unrolled_elementwise_kernel<unsigned char>"]
    queued = [one for one in unit.segments if one.kind is SegmentKind.QUEUE_SAME_STREAM and one.dur_ns > 100_000]
    assert queued and all(waited_for_text(one).startswith("behind ") for one in queued)
    assert "behind" not in waited_for_text(unit.segments[-1])


def frames_of_sql(path: Path) -> list[tuple[int, int]]:
    """Start and duration of the frames of torchcodec: 8 operations each, but for memsets, from launch to last end.

    One that the thread waits for, with cuEventSynchronize, lasts until that returns if it is later.
    """
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            """WITH work AS (SELECT correlationId i, k."end" e FROM CUPTI_ACTIVITY_KIND_KERNEL k
                    JOIN StringIds s ON s.id = k.shortName WHERE s.value <> 'MemsetD2D_BL'
                UNION ALL SELECT correlationId, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY)
            SELECT r.start, work.e, r."end" FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds n ON n.id = r.nameId
            LEFT JOIN work ON work.i = r.correlationId WHERE work.i OR n.value LIKE 'cu%Synchronize%' ORDER BY r.start"""
        ).fetchall()
    frames: list[tuple[int, int]] = []
    launched: list[tuple[int, int]] = []
    for start, ended, returned in rows:
        if ended is not None:
            launched.append((start, ended))
        elif launched:
            each = [launched[place : place + 8] for place in range(0, len(launched), 8)]
            ends = [max(end for _, end in frame) for frame in each]
            ends[-1] = max(ends[-1], returned)
            frames += [(frame[0][0], end - frame[0][0]) for frame, end in zip(each, ends, strict=True)]
            launched = []
    return frames


def test_frames_of_which_several_were_launched_before_a_wait_are_units(corpus: Path) -> None:
    """598 frames of the same 8 operations; 12 were launched three at a time before a wait, the slowest three among them."""
    path = corpus / "exports" / "torchcodec" / "report1.nsys2026.sqlite"
    frames = frames_of_sql(path)
    assert len(frames) == 598
    session = load(path)
    lengths = sorted((ns for _, ns in frames), reverse=True)
    assert [round(ns / 1e6, 2) for ns in lengths[:4]] == [156.38, 95.05, 94.73, 90.55]
    units = list(session.units.select("start_ns", "dur_ns").iter_rows())
    assert units == [(units[0][0] + at - frames[0][0], ns) for at, ns in frames]
    found = session.explain().result
    (group,) = found.groups
    assert (group.count, group.max_ns, group.operations) == (598, lengths[0], 598 * 8)
    # 14 calls set memory, and 44 kernels do so in two dimensions.
    (outside,) = found.outside
    assert (outside.outside, outside.operations, outside.longer) == (58, 598 * 8 + 58, 0)
    said = f"58 of {fmt.count(598 * 8 + 58)} operations of python are in no unit: "
    assert said in str(found)
    # Three kinds: up to 42.95 ms, from 46.96 to 52.52 ms, and from 56.45 ms on.
    lengths.reverse()
    ends = [sum(ns < limit * MS for ns in lengths) for limit in (45, 55)]
    assert [round(lengths[end] / lengths[end - 1], 2) for end in ends] == [1.09, 1.07]
    kinds = [lengths[: ends[0]], lengths[ends[0] : ends[1]], lengths[ends[1] :]]
    assert [(one.count, one.min_ns, one.max_ns) for one in group.ranges] == [(len(k), k[0], k[-1]) for k in kinds]
    # The median is one of the second kind, of which there are fewest.
    assert [len(kind) for kind in kinds] == [284, 131, 183]
    assert group.p50_ns > kinds[1][0]
    assert group.typical_ns == pytest.approx(statistics.median(kinds[0]), rel=0.001)
    page = run("report", path, "-f", "md").stdout
    assert said in page
    assert "The typical unit is one of the 284 that take" in page
    # The slowest one has kernels that are longer than others of their names.
    with closing(sqlite3.connect(path)) as db:
        usual = sorted(
            ns
            for (ns,) in db.execute(
                'SELECT k."end" - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = shortName '
                "WHERE s.value = 'upsample_gen2d_aa_out_frame'"
            )
        )
    said = f"upsample_gen2d_aa_out_frame (usually {duration(usual[298])})"
    assert f"| execution | {said} |" in page
    assert f"  {said}" in str(found)


def test_work_in_no_unit_that_lasted_longer_is_said(tmp_path: Path) -> None:
    """Five requests of 2 ms, each launched and waited for; then a kernel of another size takes 30 ms, from 100.1 ms on."""
    requests = [n * 10 * MS for n in range(5)]
    sizes = [*((t, 2 * MS, 216) for t in requests), (100 * MS, 30 * MS, 8)]
    path = write(
        tmp_path / "outside.sqlite",
        processes={7: "serve"},
        calls=[
            made
            for n, (t, ns, _) in enumerate(sizes, 1)
            for made in (
                call(7, t + 100 * US, t + 110 * US, n),
                call(7, t + 110 * US, t + 120 * US + ns, 100 + n, "cudaStreamSynchronize_v3020"),
            )
        ],
        kernels=[kernel(7, t + 115 * US, t + 115 * US + ns, gridX=blocks) for t, ns, blocks in sizes],
    )
    found = pyanalyze.load(path).explain()
    (outside,) = found.result.outside
    assert (outside.operations, outside.outside, outside.groups, outside.longer) == (6, 1, 1, 1)
    assert outside.longest_ns == 30 * MS + 20 * US
    assert (
        "1 of 6 operations of serve is in no unit: 1 launched after the last one. 1 group of them, launched between two synchronisations, lasted longer "
        "than the slowest unit. It took 30.02 ms, from 100.1 ms on.\n" in f"{found}\n"
    )


def test_work_in_no_unit_is_told_by_when_it_was_launched(hardware: Path) -> None:
    """The application reads the clock of the GPU before its loop of units and behind it, and sets memory."""
    path = hardware / "slices-A-B.sqlite"
    operations = " UNION ALL ".join(
        f"SELECT globalPid, correlationId, {name} AS name FROM CUPTI_ACTIVITY_KIND_{table}"
        for table, name in (("KERNEL", "demangledName"), ("MEMCPY", "NULL"), ("MEMSET", "NULL"))
    )
    query = f"""WITH launch AS (
        SELECT o.globalPid >> 24 & 0xffffff AS pid, r.start AS t, s.value AS name FROM ({operations}) AS o
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON r.correlationId = o.correlationId
        AND r.globalTid >> 24 = o.globalPid >> 24 LEFT JOIN StringIds AS s ON s.id = o.name),
        kernels AS (SELECT pid, min(t) AS first, max(t) AS last FROM launch WHERE name GLOB '[AB][0-9]*' GROUP BY pid)
        SELECT pid, sum(t < first), sum(t > last) FROM launch JOIN kernels USING (pid) GROUP BY pid"""
    with closing(sqlite3.connect(path)) as db:
        counted = {pid: (before, after) for pid, before, after in db.execute(query)}
    # The last unit of A ends with a copy behind its last kernel.
    before, after = counted[861]
    counted[861] = (before, after - 1)
    (device,) = load(path).report().devices
    pids = {tenant.tenant_id: tenant.pid for tenant in device.tenants}
    for one in device.outside_units:
        assert (one.before_first, one.after_last) == counted[pids[one.tenant_id]]
        assert (one.other_threads, one.without_call, one.between) == (0, 0, 0)
    page = run("report", path, "-f", "md").stdout
    assert "of kit (pid 862) are in no unit: 62 launched before the first one, 63 after the last one." in page


def test_what_other_threads_launched_or_nobody_on_record_did_is_no_gap_between_units(hardware: Path) -> None:
    """By SQL 11 operations of the trainer have no launch call: the export begins in the middle of the recording."""
    path = hardware / "torch-mps-serve-train.sqlite"
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    operations = " UNION ALL ".join(
        f"SELECT globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_{table}" for table in tables
    )
    query = f"""SELECT count(*) FROM ({operations}) AS o WHERE globalPid >> 24 & 0xffffff = 1288 AND NOT EXISTS (
        SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
        WHERE r.correlationId = o.correlationId AND r.globalTid >> 24 = o.globalPid >> 24)"""
    with closing(sqlite3.connect(path)) as db:
        ((without,),) = db.execute(query)
        threads = (
            "SELECT count(DISTINCT globalTid) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid >> 24 & 0xffffff = 1288"
        )
        assert db.execute(threads).fetchone()[0] > 1
    (outside,) = load(path).report().devices[0].outside_units
    assert outside.without_call == without == 11
    assert outside.between == 0
    assert outside.other_threads


def test_units_of_names_that_the_page_does_not_tell_are_counted(corpus: Path) -> None:
    """By SQL, 15 calls copied 49.15 MB to the host each, alone between two waits: too few of a name for percentiles."""
    path = corpus / "exports" / "mordred" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        took = db.execute(
            """SELECT r."end" - r.start FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN CUPTI_ACTIVITY_KIND_MEMCPY m
            USING (correlationId) WHERE copyKind = 2 AND bytes > 40000000 ORDER BY 1"""
        ).fetchall()
        tables = ("KERNEL", "MEMCPY", "MEMSET")
        ((work,),) = db.execute(
            f"SELECT {' + '.join(f'(SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{table})' for table in tables)}"
        )
    (device,) = load(path).report().devices
    (slow,), (other,), (outside,) = device.slow_units, device.other_units, device.outside_units
    assert (other.units, other.names, other.longest) == (len(took), 1, "1 operation, [CUDA memcpy Device-to-Host]")
    assert (other.longest_p50_ns, other.longest_max_ns) == (took[7][0], took[-1][0])
    # All that was launched is in units that are told, in others, or in none.
    assert slow.group.operations + other.units + outside.outside == outside.operations == work == 216
    said = "testqo has 15 other units, of 1 operation, [CUDA memcpy Device-to-Host]: p50 11.20 ms, max 44.62 ms."
    assert said in " ".join(run("report", path, "-f", "txt").stdout.split())


SAWTOOTH = [1650 + 27 * n for n in range(80)]


@pytest.mark.parametrize(
    ("lengths", "kinds", "typical"),
    [
        # Of a wait of up to a time slice some part, as of arrivals that are not in step with it; one gap is wider.
        (SAWTOOTH, [80], SAWTOOTH[39]),
        ([n + 120 * (n > 2150) for n in SAWTOOTH], [80], SAWTOOTH[39] + 120),
        # Two bands of 20 units 5 us apart; the shorter one has more units.
        ([1700 + 5 * n for n in range(25)] + [2300 + 5 * n for n in range(20)], [25, 20], 1700 + 5 * 22),
        # Three bands: the median is one of the second, most units are of the first.
        ([430 + n % 5 for n in range(40)] + [510 + n % 5 for n in range(15)] + [580 + n % 5 for n in range(35)],
         [40, 15, 35], 432),
        # One unit of fifty is shorter and one longer: they are no kinds.
        ([5, *[10] * 48, 30], [], 10),
    ],
)  # fmt: skip
def test_kinds_of_units_are_parted_by_gaps_that_chance_does_not_explain(
    lengths: list[int], kinds: list[int], typical: int
) -> None:
    units = pl.DataFrame(
        {"unit": range(len(lengths)), "tenant_id": 0, "name": "u", "work": "", "dur_ns": lengths, "others_ns": 0}
        | {"cut": False}
    )
    sums = pl.DataFrame(schema={"unit": pl.Int64, "kind": pl.String, "dur_ns": pl.Float64})
    assert [one.count for one in explain_module._ranges(units, sums)] == kinds
    chosen = [lengths[unit] for unit in explain_module._typical_units(units)]
    assert statistics.fmean(chosen) == pytest.approx(typical, rel=0.02)


def test_durations_that_spread_without_a_gap_are_of_one_kind() -> None:
    """A kernel that waits for any part of a time slice: by SQL 80 units, no two neighbours over 0.15 ms apart."""
    path = Path(__file__).parent.parent / "fixtures" / "hardware" / "h200" / "slices-paced-B.sqlite"
    lengths = [unit.dur_ns for unit in units_of_sql(path, 1250, 1)]
    assert len(lengths) == 80
    assert max(b - a for a, b in itertools.pairwise(lengths)) < 0.15 * MS
    said = f"80 take {lengths[0] / MS:.3f} to {lengths[-1] / MS:.3f} ms (mean wait for other tenants "
    shown = str(load(path).explain())
    (line,) = (line for line in shown.splitlines() if said in line)
    assert "), without a clear gap" in line


def test_a_launch_of_a_graph_is_no_launch_of_its_first_kernel(hardware: Path) -> None:
    """By SQL each cudaGraphLaunch of python3 (pid 1287) has as many kernels, copies and sets of its correlation id."""
    path = hardware / "torch-mps-serve-train.sqlite"
    tables = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
    work = " UNION ALL ".join(f"SELECT correlationId, globalPid FROM {table}" for table in tables)
    with closing(sqlite3.connect(path)) as db:
        nodes = db.execute(
            f"""SELECT DISTINCT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId
            JOIN ({work}) w ON w.correlationId = r.correlationId AND w.globalPid >> 24 = r.globalTid >> 24
            WHERE s.value LIKE 'cudaGraphLaunch%' GROUP BY r.correlationId"""
        ).fetchall()
    session = load(path)
    mine = session.units.filter(pl.col("pid") == 1287).select("unit")
    launches = session.unit_segments.join(mine, on="unit").filter(pl.col("kind").cast(pl.String) == "launch")
    names = set(launches["name"].cast(pl.String).drop_nulls())
    graphs = {f"[CUDA graph of {count} nodes]" for (count,) in nodes}
    assert graphs <= names
    assert all(name.startswith("[CUDA ") for name in names)


def test_a_stall_between_two_launches_is_the_first_difference(hardware: Path) -> None:
    """By SQL the thread of the slowest step launches nothing for 64.32 ms, from 4.233 ms after its start on."""
    path = hardware / "torch-slices-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        start, end, thread = db.execute(
            "SELECT n.start, n.end, n.globalTid FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId "
            "WHERE coalesce(n.text, s.value) = 'step' ORDER BY n.end - n.start DESC LIMIT 1"
        ).fetchone()
        calls = db.execute(
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid = ?1 AND start BETWEEN ?2 AND ?3 "
            "AND correlationId IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 = ?4 "
            "UNION SELECT correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE globalPid >> 24 = ?4 "
            "UNION SELECT correlationId FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE globalPid >> 24 = ?4) ORDER BY start",
            (thread, start, end, thread >> 24),
        ).fetchall()
    longest = max((later[0] - one[1], one[1] - start) for one, later in itertools.pairwise(calls))
    assert longest == (64_318_889, 4_233_275)
    found = load(path).explain(slowest=1, name="step").result
    (unit,) = found.units
    assert unit.departure is not None
    stall = unit.segments[unit.departure]
    assert (stall.kind, stall.dur_ns, stall.start_ns - unit.start_ns) == (SegmentKind.HOST, *longest)
    assert stall.end_ns - stall.start_ns == stall.dur_ns
    assert "First difference from a typical unit: host of 64.32 ms, 4.233 ms after its start" in str(found)
    # What is before it is a sum of pieces, and is said to be.
    assert "host, in pieces until 4.233 ms" in str(found)


def test_usual_is_of_kernels_in_the_same_place(hardware: Path) -> None:
    """By SQL one kernel takes 5.2 us behind attention and 10.6 us behind another matrix product, never the 8.05 us between."""
    path = hardware / "torch-slices-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT name, before, dur FROM (SELECT s.value AS name, k.end - k.start AS dur, lag(s.value) OVER "
            "(PARTITION BY globalPid, deviceId, contextId, streamId ORDER BY start) AS before "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds AS s ON s.id = k.shortName) "
            "WHERE name LIKE 'nvjet_sm90_tst_64x64%' AND before LIKE '%relubias%'"
        ).fetchall()
    taken = [dur for _, _, dur in rows]
    assert (len(taken), statistics.median(taken)) == (324, 10_624)
    (unit,) = load(path).explain(slowest=1, name="request").result.units
    behind = [one for one in unit.segments if one.operation == rows[0][0] and one.dur_ns > 9_500]
    assert len(behind) == 6
    assert {one.usual_ns for one in behind} == {10_624}
    assert [one.is_slow for one in behind] == [one.dur_ns >= 1.02 * 10_624 for one in behind]


def test_a_kernel_that_ran_once_has_no_usual_duration(corpus: Path, tmp_path: Path) -> None:
    """By SQL there is one kernel, whose context was resident for 1.231 s of it: no other says how long it usually takes."""
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((process, start_ns, end_ns),) = db.execute("SELECT globalPid, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL")
        resident_ns = sum(to - since for since, to in recorded_residency(db, process, (start_ns, end_ns)))
    work = tmp_path / "work.csv"
    work.write_text(f"tenant,start,end\nbin/constant_cycles_kernel,279000000ns,{end_ns}ns\n")
    found = pyanalyze.load(path, work=work).explain()
    (execution,) = (one for one in found.result.units[0].segments if one.kind is SegmentKind.EXECUTION)
    assert execution.dur_ns == resident_ns
    assert execution.usual_ns is None
    assert "usually" not in str(found)


def test_the_operation_of_a_wait_for_another_tenant_is_said_to_be_that_ones(hardware: Path) -> None:
    """By SQL python3 (pid 1287), whose requests wait, never runs a kernel of 256x128: python3 (pid 1288) does."""
    path = hardware / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        (pids,) = zip(
            *db.execute(
                "SELECT DISTINCT k.globalPid >> 24 & 16777215 FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
                "JOIN StringIds AS s ON s.id = k.shortName WHERE s.value LIKE '%256x128%'"
            ),
            strict=True,
        )
    assert pids == (1288,)
    rows = [
        line
        for line in run("report", str(path), "-f", "md").stdout.splitlines()
        if "256x128" in line and "| queue" in line
    ]
    assert rows
    assert all("| behind nvjet" in row for row in rows)


def test_behind_is_explained_where_a_row_says_it(hardware: Path) -> None:
    """Clients of MPS queue behind each other's kernels; time-sliced processes with a stream each do not."""
    said = '"behind X": waits for X of another unit or tenant'
    for name, expected in (("torch-mps-serve-train", True), ("slices-A-B", False)):
        page = run("report", hardware / f"{name}.sqlite", "-f", "md").stdout.partition("## Slow requests")[2]
        tables = [table for table in page.partition("\n## ")[0].split("\n\n") if "| Operation" in table]
        assert tables
        assert [said in table for table in tables] == ["| behind " in table for table in tables]
        assert any("| behind " in table for table in tables) is expected


def test_a_wait_for_the_time_slice_of_an_mps_group_names_the_group(hardware: Path) -> None:
    """Records name now 951, now 952 for the one context of both, which alternates with that of 953."""
    path = hardware / "mps-A-B-beside-C.sqlite"
    with closing(sqlite3.connect(path)) as db:
        named = "SELECT globalPid >> 24 & 0xFFFFFF, count(*) FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag = 8 GROUP BY 1"
        assert dict(db.execute(named)) == {951: 90, 952: 343, 953: 431}
    group = "waiting for its time slice (MPS clients kit (pid 951) and kit (pid 952) resident)"
    outside = "waiting for its time slice (kit (pid 953) resident)"
    found = load(path).explain(slowest=0.99).result
    said: dict[str, set[str]] = {}
    for unit in found.units:
        parts: list[Excess | UnitSegment] = [*unit.causes, *unit.segments]
        waits = {cause_text(one) for one in parts if one.kind is SegmentKind.TIME_SLICE}
        said.setdefault(unit.tenant, set()).update(waits)
    assert said == {"kit (pid 951)": {outside}, "kit (pid 952)": {outside}, "kit (pid 953)": {group}}
    # Clients beside each other on the SMs are told apart by their kernels.
    texts = {cause_text(cause) for one in found.groups if one.tenant == "kit (pid 952)" for cause in one.causes}
    assert "execution (beside kit (pid 951))" in texts


def test_given_units_without_a_launch_are_said_to_be_beside_the_launches(tmp_path: Path) -> None:
    """Launched at 1 and 2 s: units of 100 s hold nothing."""
    second = 1_000_000_000
    launched = (second, 2 * second)
    path = write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, at + MS, at + 2 * MS) for at in launched],
        calls=[call(41, at, at + US, n) for n, at in enumerate(launched, 1)],
        processes={41: "web"},
    )

    def said(*units: tuple[str, str]) -> str:
        work = tmp_path / "work.csv"
        work.write_text("tenant,start,end\n" + "".join(f"web,{start},{end}\n" for start, end in units))
        done = run("explain", "--work", work, path)
        assert done.returncode == 0
        return done.stdout

    nothing = said(("100s", "101s"), ("0.5s", "0.9s"))
    assert "units: no unit of the file contains a launch; launches are from 1000000000 ns to 2000000000 ns" in nothing
    assert "(1.000 s to 2.000 s; 2026-09-21 14:13:21.000 UTC to 2026-09-21 14:13:22.000 UTC)" in nothing
    assert "give units with --work" not in nothing
    assert "2 units of web" in said(("0.9s", "1.1s"), ("1.9s", "2.1s"), ("5s", "6s"))


def test_one_unit_is_compared_with_nothing(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, 2 * MS, 3 * MS)],
        calls=[call(41, MS, MS + US, 1)],
        processes={41: "web"},
    )
    work = tmp_path / "work.csv"
    work.write_text("tenant,start,end\nweb,0.5ms,3.5ms\n")
    said = run("explain", "--work", work, path).stdout
    assert said.startswith("1 unit of web: given units (given with --work)\n")
    assert "3.000 ms; no other unit of this name is there to compare it with" in said
    for word in ("typical", "p50", "p99"):
        assert word not in said
    work.write_text("tenant,start,end\nweb,0.5ms,3.5ms\nweb,0.6ms,3.5ms\n")
    two = run("explain", "--work", work, path).stdout
    assert "2 units of web" in two and "than a typical unit" in two and "p50 " in two


def test_a_page_of_one_real_capture_names_copy_calls_and_clocks(corpus: Path) -> None:
    """Units of one pageable copy: by SQL its call begins 0.31 ms before it, and no other tenant is there."""
    path = corpus / "exports" / "mordred" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        waits = db.execute(
            "SELECT c.start - r.start FROM CUPTI_ACTIVITY_KIND_MEMCPY c JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
            "USING (correlationId) WHERE c.copyKind = 1 AND c.srcKind = 0 AND c.bytes = 4194304 ORDER BY 1"
        ).fetchall()
    assert 0.29e6 < waits[len(waits) // 2][0] < 0.32e6
    report = load(path).report()
    page = render_markdown(report)
    assert "| copy call *observed* |" in page and "| launch *observed* |" not in page
    assert "The driver stages pageable memory there; it is no launch cost." in page
    blocks = [block for section in lay_out(report).sections for block in section.blocks if isinstance(block, Chart)]
    (caption,) = [block.caption for block in blocks if block.caption.startswith("Mean duration")]
    assert caption.startswith("Mean duration by cause: each bar")
    assert "on the clock of the capture." in page and "first capture." not in page
    assert "It took 1.246 s, from 36.3 us before the window on." in page
    assert "| Begins (after the start of the unit; empty: with the row above) |" in page


def test_a_large_unit_is_no_slow_small_one(tmp_path: Path, corpus: Path) -> None:
    """Of every three ranges of one name, two launch 2 blocks for 100 us, and one 2000 blocks for 1 ms; one small is slow.

    In us: the range and its launch |0=10|, the kernel |20=120| or |20=1020|; the 31st small one lasts until 320.
    """
    kernels, calls, ranges = [], [], []
    for n in range(60):
        at, large = n * 4 * MS, n % 3 == 2
        length = MS if large else 300 * US if n == 30 else 100 * US
        correlation = {"correlationId": n + 1}
        kernels.append(kernel(41, at + 20 * US, at + 20 * US + length, **correlation, gridX=2000 if large else 2))
        calls.append(call(41, at, at + 10 * US, n + 1))
        ranges.append(nvtx_range(41, at, at + 12 * US, "copy"))
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, ranges=ranges, processes={41: "train"})
    explanation = pyanalyze.load(path).explain(slowest=1).result
    (group,), (unit,) = explanation.groups, explanation.units
    assert (group.count, group.works, group.typical_ns, group.slow_mean_ns) == (60, 2, 120 * US, 320 * US)
    assert (unit.start_ns, unit.dur_ns, unit.typical_ns, unit.excess_ns) == (30 * 4 * MS, 320 * US, 120 * US, 200 * US)
    assert sum(cause.ns for cause in group.causes) == 200 * US
    # A real job: by SQL more than 40 ranges of one operator launch a kernel of 46 800 blocks, most of which wait for 10 ms
    # behind other work. The median of the name is 0.4 ms; against the others of them none takes even 4 ms longer.
    path = corpus / "exports" / "nsys-ai" / "mfu_2gpu_before.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute(
            'SELECT k."end" - n.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName '
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = "
            'k.globalPid >> 24 JOIN NVTX_EVENTS n ON n.globalTid = r.globalTid AND r.start >= n.start AND r."end" <= '
            "n.\"end\" WHERE k.deviceId = 0 AND s.value = 'elementwise_kernel' AND k.gridX = 46800 "
            "AND n.text LIKE 'aten::copy_, op%'"
        ).fetchall()
    lengths = sorted(length for (length,) in rows)
    assert len(lengths) >= 40 and 9 * MS < lengths[len(lengths) // 2] < 11 * MS
    found = pyanalyze.load(path).analysis.units_by_tail.slow
    (slow,) = (one for one in found if one.group.device_id == 0 and "copy_" in one.group.name)
    assert slow.group.max_ns > 12 * MS and slow.group.p50_ns < MS
    assert slow.slowest.excess_ns < 4 * MS and slow.slowest.dur_ns < lengths[len(lengths) // 2]


def test_kernels_that_ran_one_after_another_lost_overlap_and_did_not_execute_longer(hardware: Path) -> None:
    """By SQL: A4 usually runs beside A1 to A3. Of the two slowest units it ran after A3 in one, where all four took less
    time than usual; in the other it overlapped, and the four took longer.
    """
    path = hardware / "mps-A-B.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            """SELECT s.value, k.start, k."end" FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
            JOIN StringIds AS s ON s.id = k.shortName WHERE k.globalPid >> 24 & 0xFFFFFF = 1748
            AND s.value IN ('A1', 'A2', 'A3', 'A4') ORDER BY k.start"""
        ).fetchall()
        copies = db.execute(
            """SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE globalPid >> 24 & 0xFFFFFF = 1748"""
        ).fetchall()
    found = load(path).explain(slowest=2).result
    after, beside = sorted((one for one in found.units if one.tenant.endswith("(pid 1748)")), key=lambda one: one.unit)
    each = {}
    for unit in (after, beside):
        within = [row for row in rows if unit.start_ns <= row[1] < unit.end_ns]
        each[unit.unit] = {name: (start, end) for name, start, end in within}
        assert len(within) == len(each[unit.unit]) == 4
    durations = {
        name: [end - start for which, start, end in rows if which == name] for name in ("A1", "A2", "A3", "A4")
    }
    usual_ns = sum(statistics.median(of) for of in durations.values())
    sums = {unit: sum(end - start for start, end in of.values()) for unit, of in each.items()}
    assert sums[after.unit] < 0.95 * usual_ns and sums[beside.unit] > 1.05 * usual_ns
    assert each[after.unit]["A4"][0] >= each[after.unit]["A3"][1]
    assert each[beside.unit]["A4"][0] < each[beside.unit]["A1"][1]

    assert after.first and not beside.first
    lost = after.main_cause
    assert lost is not None and lost.less_overlap
    assert (lost.operation_short, lost.after) == ("A4", "A3")
    # The copy back to the host waits for A4: both are where nothing else of the unit is.
    start, end = each[after.unit]["A4"]
    last = [to - since for since, to in copies if end <= since and to <= after.end_ns]
    assert len(last) == 1
    assert lost.ns == pytest.approx(end - start + last[0], rel=0.01)
    longer = beside.main_cause
    assert longer is not None and longer.kind is SegmentKind.EXECUTION and not longer.less_overlap
    assert not any(one.less_overlap for one in beside.causes)

    # Two unlike units: no mean describes both, and what the typical unit waited for instead is a clue.
    (group,) = (one for one in found.groups if one.tenant_id == after.tenant_id)
    assert (group.slow, group.alike, group.with_first) == (2, 0, True)
    assert sum(one.ns for one in group.causes if one.less_overlap) == pytest.approx(lost.ns / 2)
    assert group.largest[-1].kind is SegmentKind.QUEUE_OTHER_STREAM and group.largest[-1].ns < 0
    page = run("report", path, "-f", "md").stdout
    assert "The slowest, the first of this name in the recording, took 2.447 ms longer" in page
    assert "Main cause: lost overlap of its streams (A4 after A3), +1.4" in page
    assert "The slowest differ: the first cause is the main cause of none of them." in page
    assert "One of them is the first of this name in the recording." in page
    assert "A typical unit: mean of at most a tenth of the units, those nearest the median duration." in page


def test_no_unit_is_the_first_where_only_a_part_of_the_time_was_read(hardware: Path) -> None:
    session = load(hardware / "mps-A-B.sqlite")
    (group,) = (one for one in session.explain().result.groups if one.tenant.endswith("(pid 1748)"))
    assert group.with_first
    units = session.units.filter(pl.col("tenant_id") == group.tenant_id).sort("start_ns")
    part = session.window(units["start_ns"][0] - 1, units["end_ns"][99]).explain().result
    assert not any(one.with_first for one in part.groups) and not any(one.first for one in part.units)


@pytest.mark.parametrize(
    ("first", "second", "operations", "expected"),
    [
        # 8 ms behind 10 ms, and neither longer than usual.
        ((10, 10), (8, 8), 2, 8.0),
        # The first took 8 ms longer, and the second is in the chain for as long as ever: not at all.
        ((18, 10), None, 2, None),
        # Both: of 11 ms that the chain grew by 3 are not lost overlap.
        ((13, 10), (8, 8), 2, 8.0),
        # The second took half as long as usual, the first that much longer: 8 ms more in all, 8 of operations.
        ((14, 10), (4, 8), 2, 4.0),
        # What the second takes beyond what it usually does is execution.
        ((10, 10), (12, 8), 2, 8.0),
        # Other work: no typical unit has the third operation.
        ((10, 10), (8, 8), 3, None),
        # What it usually takes is not known.
        ((10, 10), (8, None), 2, None),
    ],
)
def test_lost_overlap_is_what_a_typical_unit_has_beside_others(
    first: tuple[int, int], second: tuple[int, int | None] | None, operations: int, expected: float | None
) -> None:
    """A typical unit has a chain of one operation of 10 ms; the other one is in flight meanwhile. In milliseconds."""
    steps = [("one", *first)] + ([] if second is None else [("two", *second)])
    chain = [(0, 0, "one", 10, 10), *((1, place, *step) for place, step in enumerate(steps))]
    segments = pl.DataFrame(
        chain, schema={"unit": pl.UInt32, "position": int, "name": str, "dur_ns": int, "usual_ns": int}, orient="row"
    ).with_columns(pl.col("dur_ns", "usual_ns") * MS, own=True, kind=pl.lit("execution"))
    taken = sum(ns for _, ns, _ in steps)
    units = pl.DataFrame(
        {
            "unit": pl.Series([0, 1], dtype=pl.UInt32),
            "tenant_id": [0, 0],
            "name": ["step", "step"],
            "work": ["", ""],
            "operations": [2, operations],
            "dur_ns": [10 * MS, taken * MS],
            "usual_ns": [10.0 * MS] * 2,
            "typical": [True, False],
            "chosen": [False, True],
        }
    )
    found = explain_module._lost_overlap(units, segments)
    assert {unit: one.ns / MS for unit, one in found.items()} == ({} if expected is None else {1: expected})
    if expected is not None:
        assert (found[1].operation, found[1].after) == ("two", "one")


def test_a_typical_unit_is_none_of_the_few_between_two_kinds(fixtures: Path) -> None:
    """By SQL 52 steps of app_a take up to 8.3 ms, 56 take 25.9 to 26.4, and five are between, one of them the median."""
    path = fixtures / "demo-time-slicing.sqlite"
    query = """SELECT max(k."end") - n.start FROM NVTX_EVENTS AS n
               JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r
               ON r.globalTid = n.globalTid AND r.start >= n.start AND r."end" <= n."end"
               JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k
               ON k.correlationId = r.correlationId AND k.globalPid >> 24 = r.globalTid >> 24
               LEFT JOIN StringIds AS s ON s.id = n.textId
               WHERE ifnull(n.text, s.value) = 'a-step' GROUP BY n.rowid ORDER BY 1"""
    with closing(sqlite3.connect(path)) as db:
        lengths = [length / 1e6 for (length,) in db.execute(query)]
    short, long = [one for one in lengths if one < 8.3], [one for one in lengths if one > 25.9]
    assert (len(short), len(long), len(lengths)) == (52, 56, 113)
    assert 8.3 < statistics.median(lengths) < 25.9
    (group,) = (one for one in load(path).explain().result.groups if one.name == "a-step")
    assert group.typical_ns / 1e6 == pytest.approx(statistics.median(long), rel=0.005)
    page = " ".join(run("report", path, "-f", "txt").stdout.split())
    assert (
        f"A typical unit of app_a takes {group.typical_ns / 1e6:.2f} ms (mean of the middle tenth, observed)." in page
    )
