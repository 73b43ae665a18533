"""Do streams of one process overlap, why not, and who slows whom: programs with their truth, and by hand."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from command_line import run
from exports import MS, US, call, copy, kernel, resident, write
from stream_programs import Program

import pyanalyze
from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.sentences.streams import STREAM_REASONS, lost_streams_text
from pyanalyze.report.summary import SUMMARY_COLUMNS, SUMMARY_LINES, render_summary
from pyanalyze.report.text import render_text
from pyanalyze.results.streams import StreamLoss, StreamPair, Streams, StreamUse
from pyanalyze.vocabulary import StreamReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyanalyze.results.streams import Streams

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

FREE, BLOCKING, LEGACY = 2, 1, 3


def streams_of(path: Path) -> Streams:
    (streams,) = pyanalyze.load(path).analysis.streams.values()
    return streams


def by_reason(streams: Streams, *, had_work: bool) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair in streams.pairs:
        for loss in pair.losses:
            if loss.had_work is had_work:
                found[loss.reason] = found.get(loss.reason, 0) + loss.without_overlap_ns
    return found


def copies_of_one_direction() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "to-device", 2 * MS)
    program.run(14, "to-device", 2 * MS)
    return program


def copy_in_front() -> Program:
    program = Program({13: FREE, 14: FREE, 15: FREE})
    program.run(15, "to-device", 3 * MS)
    program.run(13, "kernel", 2 * MS)
    program.run(14, "to-device", MS)
    program.run(14, "kernel", MS)
    return program


def dependency() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 2 * MS)
    program.record(13, 1)
    program.wait(14, 1)
    program.run(14, "kernel", MS)
    return program


def legacy_default_stream() -> Program:
    program = Program({7: LEGACY, 14: BLOCKING, 15: FREE})
    program.run(7, "kernel", 2 * MS)
    program.run(14, "kernel", MS)
    program.run(15, "kernel", MS)
    return program


def full_sms() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 4 * MS, waves=8)
    program.run(14, "kernel", MS)
    return program


def a_first_wave_that_fills_the_device() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 4 * MS, waves=1.6)
    program.run(14, "kernel", MS)
    return program


def one_wave_that_fills_the_device() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 4 * MS, waves=1)
    program.run(14, "kernel", MS)
    return program


def nothing_says_why() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 4 * MS)
    program.run(14, "kernel", MS, stall_ns=2 * MS)
    return program


def two_waves_left() -> Program:
    """Not certain: the second kernel comes when the first has two waves left at most."""
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 4 * MS, waves=4)
    program.sleep(2200 * US)
    program.run(14, "kernel", MS)
    return program


def launched_late() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 100 * US)
    program.sleep(200 * US)
    program.run(14, "kernel", 100 * US)
    return program


def host_waits() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", MS)
    program.synchronize()
    program.run(14, "kernel", MS)
    return program


def host_allocates() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", MS)
    program.block(1100 * US)
    program.run(14, "kernel", MS)
    return program


def launches_block() -> Program:
    program = Program({13: FREE, 14: FREE}, launch_blocking=True)
    program.run(13, "kernel", MS)
    program.run(14, "kernel", MS)
    return program


def pageable_copy() -> Program:
    program = Program({13: FREE, 14: FREE, 15: FREE})
    program.run(13, "kernel", MS)
    program.run(15, "pageable-to-device", 1100 * US)
    program.run(14, "kernel", MS)
    return program


def event_of_somebody_else() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 3 * MS)
    program.wait_elsewhere(14, 1, 2 * MS)
    program.run(14, "kernel", MS)
    return program


def cooperative_launch() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 2 * MS)
    program.run(14, "cooperative", MS)
    return program


def nodes_of_one_graph() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run_graph([(13, MS), (14, 2 * MS), (13, MS)])
    return program


def a_graph_behind_earlier_work() -> Program:
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 5 * MS)
    program.run_graph([(13, MS), (14, 2 * MS), (13, MS)])
    return program


def one_channel() -> Program:
    program = Program({13: FREE, 14: FREE}, one_channel=True)
    program.run(13, "kernel", 2 * MS)
    program.run(14, "kernel", MS)
    return program


def two_contexts() -> Program:
    program = Program({13: FREE, 14: FREE}, contexts={13: 1, 14: 2})
    program.run(13, "kernel", 2 * MS)
    program.run(14, "kernel", MS)
    return program


def everything() -> Program:
    program = Program({7: LEGACY, 13: FREE, 14: FREE, 15: BLOCKING})
    for n in range(20):
        program.run(13, "to-device", 300 * US)
        program.run(13, "kernel", 900 * US, waves=6)
        program.run(14, "to-device", 200 * US)
        program.run(14, "kernel", 400 * US)
        program.record(14, 2 * n)
        program.wait(15, 2 * n)
        program.run(15, "kernel", 300 * US)
        program.run(7, "kernel", 100 * US)
        program.run(15, "to-host", 100 * US)
        program.synchronize()
    return program


def test_streams_of_two_green_contexts_do_not_wait_for_each_others_sms(tmp_path: Path) -> None:
    """By hand, in us: 13 and 14 run eight waves until 4000. 15, launched until 50, starts at 3900 in the last of them.

    15 shares the green context of 14: it waited for that one's blocks, and 13 runs on other SMs.
    """
    many = {"gridX": 8 * 108 * 8}
    rows = [(13, 10, 4000, 2, many), (14, 30, 4000, 3, many), (15, 3900, 4500, 3, {})]
    path = write(
        tmp_path / "green.sqlite",
        kernels=[
            kernel(7, start * US, end * US, streamId=stream, greenContextId=green, correlationId=n, **grid)
            for n, (stream, start, end, green, grid) in enumerate(rows, 1)
        ],
        calls=[call(7, at * US, (at + 10) * US, n) for n, at in enumerate((0, 20, 40), 1)],
        streams=[(7, stream, 0, 1) for stream in (13, 14, 15)],
    )
    pairs = {(pair.stream_a, pair.stream_b): pair for pair in streams_of(path).pairs}
    found = {
        streams: [(loss.reason, loss.without_overlap_ns) for loss in pair.losses] for streams, pair in pairs.items()
    }
    assert found == {(13, 14): [], (13, 15): [], (14, 15): [("sm-resources", 3850 * US)]}
    assert (pairs[13, 15].both_had_work_ns, pairs[13, 15].not_overlapped_ns) == (100 * US, 0)


def test_the_kernel_that_fills_the_sms_is_named_and_none_that_leaves_room(tmp_path: Path) -> None:
    """By hand, in us: 14 runs 216 blocks from 10, 13 runs 1296 from 30. 15, launched until 50, starts at 2500.

    An A100 has room for 864 of these blocks: 13 fills it in the first of its two waves, until 2015, and 14 and 15 with
    216 each fit at once. In both of its pairs, 15 waited for 13.
    """
    rows = [(14, 10, 3000, 1, 216), (13, 30, 4000, 2, 1296), (15, 2500, 3500, 3, 216)]
    path = write(
        tmp_path / "a.sqlite",
        kernels=[
            kernel(7, start * US, end * US, streamId=stream, shortName=name, gridX=blocks, correlationId=n)
            for n, (stream, start, end, name, blocks) in enumerate(rows, 1)
        ],
        calls=[call(7, at * US, (at + 10) * US, n) for n, at in enumerate((0, 20, 40), 1)],
        kernel_names=["small", "large", "waiting"],
        streams=[(7, stream, 0, 1) for stream in (13, 14, 15)],
    )
    streams = streams_of(path)
    found = {
        (pair.stream_a, pair.stream_b): (pair.reason, pair.filled_by, pair.not_overlapped_ns) for pair in streams.pairs
    }
    filled = (StreamReason.SM_RESOURCES, "large", 2450 * US)
    assert found == {(13, 14): (None, None, 0), (13, 15): filled, (14, 15): filled}


def test_streams_at_once_are_a_share_of_the_busy_time(hardware: Path) -> None:
    """By records: the time with kernels of two streams or more in flight, of that with any: 98.3 %. In 2.565 s it is 38 %."""
    path = hardware / "streams-A-B.sqlite"
    with closing(sqlite3.connect(path)) as db:
        spans = db.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    running, busy_ns, several_ns = 0, 0, 0
    for (at_ns, change), (next_ns, _) in itertools.pairwise(edges):
        running += change
        busy_ns += (next_ns - at_ns) * (running > 0)
        several_ns += (next_ns - at_ns) * (running > 1)
    assert round(100 * several_ns / busy_ns, 1) == 98.3
    (device,) = pyanalyze.load(path).report().devices
    (said,) = (one.detail for one in device.sharing.details if one.name == "streams_at_once")
    assert said.endswith("two or more for 98.3 % of the busy time")


def test_who_filled_the_sms_for_real(hardware: Path) -> None:
    """By SQL: of 160 B4 in stream 16 that waited, A1, A4 and B1 were in flight when 152, 140 and 160 were ready.

    Blocks in flight on an H100, by registers and threads: A1 317 of 528, A4 317 of 1056, B4 845 of 2112. Each of A1 and
    A4 leaves room for B4 (0.60 + 0.40 and 0.30 + 0.40 waves); B1, 1690 of 1056, leaves none.
    """
    path = hardware / "streams-A-B.sqlite"
    with closing(sqlite3.connect(path)) as db:
        beside = dict(
            db.execute(
                "WITH k AS (SELECT start, end, value AS name, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL "
                "JOIN StringIds AS s ON s.id = shortName), b4 AS (SELECT k.start, max(r.end, "
                "coalesce(lag(k.end) OVER (ORDER BY k.start), 0)) AS ready FROM k "
                "JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r USING (correlationId) WHERE name = 'B4') "
                "SELECT name, count(*) FROM b4 JOIN k ON k.start <= ready AND k.end > ready "
                "WHERE ready < b4.start GROUP BY 1"
            ).fetchall()
        )
    assert {name: beside[name] for name in ("A1", "A4", "B1")} == {"A1": 152, "A4": 140, "B1": 160}
    session = pyanalyze.load(path)
    (streams,) = session.analysis.streams.values()
    filled = {(pair.stream_a, pair.stream_b): pair.filled_by for pair in streams.pairs if pair.filled_by}
    # Every stream with 16. By SQL, 12 A4 in 14 waited 1.66 to 1.73 ms from the first 2 % of a B1 on until 77 % of it.
    assert filled == {(13, 16): "B1", (14, 16): "B1", (15, 16): "B1", (14, 15): "B1"}
    page = " ".join(render_text(session.report(), sections=("streams",)).split())
    assert "beside A" not in page
    # In ms: 390.435 of 2565.2 less the gap of 1562.0 at the start.
    assert (
        "kit: streams 15 and 16 did not overlap for 390.4 ms, 38.9 % of its time without a gap of 1.562 s: insufficient "
        "SM resources beside B1, whose blocks are first in line."
    ) in page
    summary = render_summary(session.report()).splitlines()
    assert "blocks are first in line." in " ".join(" ".join(summary).split()) and len(summary) <= SUMMARY_LINES
    whole = json.loads(run("streams", path, "-f", "json").stdout)
    (tenant,) = whole["devices"][0]["tenants"]
    # 12 rows are shown.
    left = sum(len(pair["losses"]) for pair in tenant["streams"]["pairs"]) - 12
    assert f"{left} more are in the JSON: pyanalyze streams CAPTURE -f json." in page


#: 0.6 waves of an A100: 64 warps of each of 65 SMs.
SOME = {"gridX": 518}
#: Eight waves of an A100.
MANY = {"gridX": 8 * 108 * 8}


def in_green_contexts(
    path: Path, rows: list[tuple[int, int, int, int, dict[str, int]]], *, sms: int | None = None
) -> Streams:
    """Streams of kernels (stream, start, end in us, green context, changes), launched by calls that end at 10, 30, ... us.

    `sms` are those of green contexts 2 and 3, where the export says so.
    """
    path.unlink(missing_ok=True)
    write(
        path,
        kernels=[
            kernel(7, start * US, end * US, streamId=stream, greenContextId=green, correlationId=n, **grid)
            for n, (stream, start, end, green, grid) in enumerate(rows, 1)
        ],
        calls=[call(7, 20 * n * US, (20 * n + 10) * US, n + 1) for n in range(len(rows))],
        streams=[(7, stream, 0, 1) for stream in (13, 14, 15)],
        contexts=[(7, 2), (7, 3)],
    )
    with closing(sqlite3.connect(path)) as db, db:
        for column in ("isGreenContext", "parentContextId", "numMultiprocessors"):
            db.execute(f"ALTER TABLE TARGET_INFO_CUDA_CONTEXT_INFO ADD COLUMN {column} INTEGER")
        db.execute(
            "UPDATE TARGET_INFO_CUDA_CONTEXT_INFO SET isGreenContext = 1, parentContextId = 1, numMultiprocessors = ? "
            "WHERE contextId > 1",
            (sms,),
        )
    return streams_of(path)


def losses_of(streams: Streams) -> dict[tuple[int, int], list[tuple[StreamReason, int]]]:
    return {
        (pair.stream_a, pair.stream_b): [(loss.reason, loss.without_overlap_ns) for loss in pair.losses]
        for pair in streams.pairs
    }


def test_a_green_context_of_unknown_size_may_have_been_full(tmp_path: Path) -> None:
    """By hand, in us: 13 runs 10-4000, 15 runs 50-4000. 14, launched until 30, starts at 2000: it waited for 1970.

    13 and 14 share a green context. 518 blocks of 8 per SM fill 64 SMs: up to that size there was no room.
    """
    rows = [(13, 10, 4000, 2, SOME), (14, 2000, 2500, 2, {}), (15, 50, 4000, 3, SOME)]
    streams = in_green_contexts(tmp_path / "unknown.sqlite", rows)
    possibly, unexplained = StreamReason.POSSIBLY_SM_RESOURCES, StreamReason.UNEXPLAINED
    assert losses_of(streams) == {(13, 14): [(possibly, 1970 * US)], (13, 15): [], (14, 15): []}
    # What 14 waited for cannot have been of the other green context.
    both = {(pair.stream_a, pair.stream_b): pair.both_had_work_ns for pair in streams.pairs}
    assert both[14, 15] == 500 * US
    assert streams.green_context(1, 14) == 2
    assert streams.green_context(1, 15) == 3
    # Of 40 SMs, 320 blocks at once, it was full until its last wave, and of 100 it never was.
    path = tmp_path / "known.sqlite"
    assert losses_of(in_green_contexts(path, rows, sms=100))[13, 14] == [(unexplained, 1970 * US)]
    assert losses_of(in_green_contexts(path, rows, sms=40))[13, 14] == [(StreamReason.SM_RESOURCES, 1970 * US)]
    # A grid that the smallest green context has room for fills none.
    small = [(13, 10, 4000, 2, {"gridX": 15}), *rows[1:]]
    assert losses_of(in_green_contexts(path, small))[13, 14] == [(unexplained, 1970 * US)]
    # Nothing that ended long before it started.
    late = [(13, 10, 1900, 2, SOME), *rows[1:]]
    assert losses_of(in_green_contexts(path, late))[13, 14] == [(unexplained, 1870 * US)]


def test_kernels_in_flight_together_may_have_filled_the_sms(tmp_path: Path) -> None:
    """By hand, in us: 13 runs 10-4000, 14 runs 50-5000; 15, launched until 50, starts at 4005, when 13 has ended.

    Each has 518 blocks of the 864 that fit at once: 1.2 times as many as there is room for.
    """
    rows = [(13, 10, 4000, 0, SOME), (14, 50, 5000, 0, SOME), (15, 4005, 4500, 0, {})]
    found = losses_of(in_green_contexts(tmp_path / "full.sqlite", rows))
    possibly, unexplained = StreamReason.POSSIBLY_SM_RESOURCES, StreamReason.UNEXPLAINED
    assert (found[13, 15], found[14, 15]) == ([(possibly, 3950 * US)], [(possibly, 3955 * US)])
    # 400 of each leave room.
    few = [
        (stream, start, end, green, {**SOME, "gridX": 400} if grid else {}) for stream, start, end, green, grid in rows
    ]
    found = losses_of(in_green_contexts(tmp_path / "room.sqlite", few))
    assert (found[13, 15], found[14, 15]) == ([(unexplained, 3950 * US)], [(unexplained, 3955 * US)])
    # No block ends while both are in the first half of their only wave.
    early = [*rows[:2], (15, 1500, 2500, 0, {})]
    found = losses_of(in_green_contexts(tmp_path / "early.sqlite", early))
    assert found[13, 15] == [(unexplained, 1450 * US)]


def test_kernels_of_a_green_context_leave_other_sms_to_those_of_none(tmp_path: Path) -> None:
    """By hand, in us: 13, of a green context, runs eight waves until 4000. 14, of none, starts at 3900."""
    rows = [(13, 10, 4000, 2, MANY), (14, 3900, 4500, 0, {})]
    (found,) = losses_of(in_green_contexts(tmp_path / "a.sqlite", rows)).values()
    assert found == [(StreamReason.UNEXPLAINED, 3870 * US)]
    # One of none fills the SMs of all.
    (found,) = losses_of(
        in_green_contexts(tmp_path / "b.sqlite", [(13, 10, 4000, 0, MANY), (14, 3900, 4500, 2, {})])
    ).values()
    assert found == [(StreamReason.SM_RESOURCES, 3870 * US)]


def test_streams_are_named_with_their_green_context(tmp_path: Path) -> None:
    rows = [(13, 10, 4000, 2, SOME), (14, 2000, 2500, 2, {}), (15, 1900, 4000, 3, SOME)]
    streams = in_green_contexts(tmp_path / "a.sqlite", rows)
    assert lost_streams_text("app", streams) == (
        "app: streams 13 and 14 of green context 2 lost 1.970 ms of overlap, 49.4 % of its time: possibly insufficient "
        "SM resources beside k."
    )
    report = pyanalyze.load(tmp_path / "a.sqlite").report()
    # The table still has room in a terminal.
    assert re.search(r"^13 of green +14 of green ", render_text(report, sections=("streams",)), re.MULTILINE)
    page = render_markdown(report)
    assert "| 15 of green context 3 (52.6 %) |" in page
    assert "SM sets of two green contexts are assumed not to overlap" in page
    assert "How many SMs a green context has is not recorded" in page


@pytest.mark.parametrize(
    ("build", "lost", "late"),
    [
        (copies_of_one_direction, {"copy-engine"}, set()),
        (copy_in_front, {"copy-engine", "copy-in-front"}, set()),
        (dependency, {"dependency"}, set()),
        (legacy_default_stream, {"default-stream"}, set()),
        (full_sms, {"sm-resources"}, set()),
        (a_first_wave_that_fills_the_device, {"sm-resources"}, set()),
        (one_wave_that_fills_the_device, {"whole-device-launch"}, set()),
        (nothing_says_why, {"unexplained"}, set()),
        (two_waves_left, {"unexplained"}, set()),
        (pageable_copy, set(), {"blocking-call"}),
        (event_of_somebody_else, {"unknown-dependency"}, set()),
        (cooperative_launch, {"whole-device-launch"}, set()),
        (nodes_of_one_graph, {"graph"}, set()),
        (a_graph_behind_earlier_work, {"graph"}, set()),
        (one_channel, {"shared-channel"}, set()),
        (two_contexts, {"other-context"}, set()),
        (launched_late, set(), {"launched-late"}),
        (host_waits, set(), {"synchronization"}),
        (host_allocates, set(), {"blocking-call"}),
        (launches_block, set(), {"launch-blocking"}),
    ],
)
def test_the_time_lost_has_its_reason(
    tmp_path: Path, build: Callable[[], Program], lost: set[str], late: set[str]
) -> None:
    program = build()
    streams = streams_of(program.write(tmp_path / "a.sqlite"))
    found = by_reason(streams, had_work=True)
    assert found == program.lost()
    assert found.keys() - {"launch-latency"} == lost
    assert by_reason(streams, had_work=False) == program.late()
    assert program.late().keys() == late
    assert sum(pair.not_overlapped_ns for pair in streams.pairs) == sum(found.values())


def branches(path: Path) -> Path:
    """In us: a kernel of 13, then two graphs launched to 13, each with a branch in 14 and a last node in 13.

    The second graph begins in the branch: 14 has work of a graph from its start on, whenever that was launched.
    """
    rows = [(13, 5, 15), (13, 20, 60), (14, 22, 50), (13, 62, 66), (14, 70, 110), (13, 71, 100), (13, 112, 116)]
    launches = [1, 2, 2, 2, 3, 3, 3]
    write(
        path,
        kernels=[
            kernel(41, start * US, end * US, streamId=stream, graphNodeId=None if launch == 1 else row)
            for row, ((stream, start, end), launch) in enumerate(zip(rows, launches, strict=True), 1)
        ],
        calls=[
            call(41, 0, 2 * US, 1),
            call(41, 2 * US, 4 * US, 2, "cudaGraphLaunch_v10000"),
            call(41, 4 * US, 6 * US, 3, "cudaGraphLaunch_v10000"),
        ],
        streams=[(41, 13, 0, BLOCKING), (41, 14, 0, FREE)],
        processes={41: "train"},
    )
    with closing(sqlite3.connect(path)) as database, database:
        for row, launch in enumerate(launches, 1):
            database.execute(
                "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = ? WHERE start = ?",
                (launch, rows[row - 1][1] * US),
            )
    return path


def test_a_branch_has_no_work_before_its_graph_begins(tmp_path: Path) -> None:
    """By hand, in us: both have work in 20-50 and 70-110 and overlap in 22-50 and 71-100.

    14 starts 2 after its graph and 13 starts 1 after it, with no node ended: no edge held them. In 100-110 the last node
    of 13 waits for the branch. What 14 could still overlap is that, which the graph forbids, and those 1 and 2 us.
    """
    path = branches(tmp_path / "a.sqlite")
    streams = streams_of(path)
    (pair,) = streams.pairs
    assert (pair.both_had_work_ns, pair.overlap_ns, pair.not_overlapped_ns, pair.late_ns) == (
        70 * US,
        57 * US,
        13 * US,
        0,
    )
    assert by_reason(streams, had_work=True) == {"graph": 10 * US, "launch-latency": 3 * US}
    assert streams.could_overlap_ns(pair) == 3 * US
    assert [(one.stream_id, one.is_graph_branch) for one in streams.streams] == [(13, False), (14, True)]
    said = (
        "streams 13 and 14 (graph branch) did not overlap for 13.0 us, 11.7 % of its time: the order inside one graph. "
        "Nothing is lost by that."
    )
    assert lost_streams_text("train", streams) == f"train: {said}"
    text = " ".join(render_text(pyanalyze.load(path).report(), sections=("streams",)).split())
    assert "Work of graph branches begins with the graph." in text


def test_a_real_graph_with_a_branch_waits_for_no_launch(corpus: Path) -> None:
    """25 graphs of two kernels at once and one behind them, of which 19 began in the branch, and 75 kernels before.

    With SQL: of each graph the two overlap from the later start to the first end. Before, one is alone while the other
    starts, once the launch call has returned; behind, the branch may be alone, for which the third kernel waits.
    """
    path = corpus / "exports" / "jaxtoolbox-gb200" / "pdl_two_producers.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as database:
        graphs: dict[int, list[tuple[int, int, int, int]]] = {}
        for start, end, stream, called, launch in database.execute(
            "SELECT k.start, k.end, streamId, r.end, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) WHERE graphNodeId IS NOT NULL ORDER BY 1"
        ):
            graphs.setdefault(launch, []).append((start, end, stream, called))
        ((solo_ns,),) = database.execute(
            "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName "
            "WHERE graphNodeId IS NULL AND value LIKE 'producer%'"
        )
    pairs = [nodes[:2] for nodes in graphs.values()]
    began_in_branch = sum(nodes[0][2] == 20 for nodes in pairs)
    overlap_ns = sum(min(one[1], two[1]) - two[0] for one, two in pairs)
    branch_only_ns = sum(max(b[1] for b in nodes if b[2] == 20) - min(n[1] for n in nodes) for nodes in pairs)
    start_ns = sum(two[0] - max(one[0], one[3]) for one, two in pairs)
    assert (len(graphs), began_in_branch) == (25, 19)
    streams = streams_of(path)
    (pair,) = (one for one in streams.pairs if one.reason is not StreamReason.NO_WORK)
    lost = by_reason(streams, had_work=True)
    assert (pair.overlap_ns, lost["launch-latency"], lost["graph"]) == (overlap_ns, start_ns, branch_only_ns)
    assert pair.both_had_work_ns == overlap_ns + start_ns + branch_only_ns
    assert streams.could_overlap_ns(pair) == start_ns
    # The same 50 kernels one by one, against what the pairs took from first start to last end.
    made_ns = sum(max(n[1] for n in nodes) - nodes[0][0] for nodes in pairs)
    saved_ns = ((pair.speedup_over_serial or 0) - 1) * pair.overlap_ns
    assert saved_ns == pytest.approx(solo_ns - made_ns, rel=0.05)
    report = pyanalyze.load(path).report()
    text = " ".join(render_text(report, sections=("streams",)).split())
    assert "overlapped for 954 us, 93.9 % of the time in which both had work" in text
    assert "16 and 20 (graph branch)" in text and "overlap of streams 16 and 20 (graph branch) saved" in text
    assert "ran in graphs beside the other stream, and outside of graphs without it" in text


def test_what_came_late_and_ran_beside_the_other_stream_missed_nothing(tmp_path: Path) -> None:
    """By hand, in us: 13 runs 10-100 and 140-400. 14 is launched at 130, between the two.

    Its kernel of 150-250 runs beside the second one of 13; one of 150-450 is solo for 50. The first of 13 had 90 to offer.
    """
    for end, late in ((250, 0), (450, 50), (600, 90)):
        rows = [(13, 10, 100), (14, 150, end), (13, 140, 400)]
        path = write(
            tmp_path / f"{end}.sqlite",
            kernels=[
                kernel(7, start * US, until * US, streamId=stream, correlationId=n)
                for n, (stream, start, until) in enumerate(rows, 1)
            ],
            calls=[call(7, (at - 5) * US, at * US, n) for n, at in enumerate((5, 130, 135), 1)],
            streams=[(7, stream, 0, 1) for stream in (13, 14)],
        )
        (pair,) = streams_of(path).pairs
        assert pair.late_ns == late * US
        assert pair.overlap_ns == (min(end, 400) - 150) * US


def test_what_is_possible_is_not_said_to_be_so(tmp_path: Path) -> None:
    """A kernel starts when one of another stream ends: nsys traced an event in front of it, or streams are many."""
    program = Program({13: FREE, 14: FREE})
    program.run(13, "kernel", 2 * MS)
    program.record(14, 1, traced=True)
    program.run(14, "kernel", MS, stall_ns=2 * MS + 2 * US)
    found = by_reason(streams_of(program.write(tmp_path / "a.sqlite")), had_work=True)
    assert found.keys() == {"possibly-event-tracing"}
    program = Program(dict.fromkeys(range(13, 22), FREE))
    for stream in range(15, 22):
        program.run(stream, "kernel", 10 * US)
    program.sleep(MS)
    program.run(13, "kernel", 2 * MS)
    program.run(14, "kernel", MS, stall_ns=2 * MS + 3 * US)
    found = by_reason(streams_of(program.write(tmp_path / "b.sqlite")), had_work=True)
    assert found.keys() - {"launch-latency"} == {"possibly-shared-channel"}


@pytest.mark.parametrize("recorded", [True, False])
def test_a_stream_waits_for_the_time_slice_of_its_process(tmp_path: Path, *, recorded: bool) -> None:
    """Process 41 is resident |0==1|    |3==4|     |6====9| ms. Its kernel of stream 13 is in flight |0=====7|.

    That of stream 14 is launched at 0.5 ms and starts at 6.2 ms: it waits for 2 and 2 ms switched out, and 1.7 resident.
    """
    kernels = [kernel(41, 0, 7 * MS, streamId=13), kernel(41, 6200 * US, 8 * MS, streamId=14)]
    calls = [call(41, 0, 0, 1), call(41, 490 * US, 500 * US, 2)]
    slices = [(41, 1, 0, 1), (42, 2, 1, 3), (41, 1, 3, 4), (42, 2, 4, 6), (41, 1, 6, 9)]
    records = [one for pid, context, start, end in slices for one in resident(pid, context, start * MS, end * MS)]
    path = write(
        tmp_path / "a.sqlite",
        kernels=kernels,
        calls=calls,
        switches=records if recorded else (),
        processes={41: "train", 42: "other"},
    )
    streams = streams_of(path)
    waited = {"time-slice": 4 * MS, "unexplained": 1700 * US} if recorded else {"unexplained": 5700 * US}
    assert by_reason(streams, had_work=True) == waited
    assert streams.pairs[0].not_overlapped_ns == 5700 * US
    shown = render_text(pyanalyze.load(path).report(), sections=("streams",))
    assert ("waiting for its time slice" in shown) is recorded


@pytest.mark.parametrize("recorded", [True, False])
def test_kernels_of_another_process_are_a_possible_reason(tmp_path: Path, *, recorded: bool) -> None:
    """As above, with a kernel of process 42 in flight |2===5.5| ms: from 3 to 4 ms process 41 is resident meanwhile."""
    kernels = [kernel(41, 0, 7 * MS, streamId=13), kernel(41, 6200 * US, 8 * MS, streamId=14)]
    kernels.insert(1, kernel(42, 2 * MS, 5500 * US, streamId=7))
    calls = [call(41, 0, 0, 1), call(41, 490 * US, 500 * US, 3), call(42, 2 * MS, 2 * MS, 2)]
    slices = [(41, 1, 0, 1), (42, 2, 1, 3), (41, 1, 3, 4), (42, 2, 4, 6), (41, 1, 6, 9)]
    records = [one for pid, context, start, end in slices for one in resident(pid, context, start * MS, end * MS)]
    switches = records if recorded else ()
    names = {41: "train", 42: "other"}
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, switches=switches, processes=names)
    waited = {"possibly-other-process": 3500 * US, "unexplained": 2200 * US}
    if recorded:
        waited = {"time-slice": 4 * MS, "possibly-other-process": MS, "unexplained": 700 * US}
    streams = streams_of(path)
    assert by_reason(streams, had_work=True) == waited
    assert streams.pairs[0].not_overlapped_ns == 5700 * US
    # It is one whose kernels are on record: nobody unknown is suspected.
    shown = " ".join(render_text(pyanalyze.load(path).report(), sections=("streams",)).split())
    assert "another traced process" in shown


def test_kernels_of_another_process_delay_none_where_processes_are_time_sliced(hardware: Path) -> None:
    """Their records overlap, as they include time switched out; under MPS they may have the SMs."""
    for name, possible in (("slices-A-B", False), ("mps-A-B", True)):
        found = pyanalyze.load(hardware / f"{name}.sqlite").analysis.streams
        reasons = {loss.reason for one in found.values() for pair in one.pairs for loss in pair.losses}
        assert (StreamReason.OTHER_PROCESS in reasons) is possible, name


def test_who_fills_the_sms_of_its_cap_leaves_none_to_its_other_stream(hardware: Path) -> None:
    """Two clients of MPS, each with 66 of 132 SMs: B1 fills them with 528 of its 845 blocks, of 256 threads, 8 to an SM.

    By SQL: B4, in the other stream, starts inside B1, and after a third of it, in 359 of 360 units.
    """
    path = hardware / "mps-50-50-A-B.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((inside, soonest),) = db.execute(
            "WITH k AS (SELECT start, end, value AS name FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds AS s "
            "ON s.id = shortName WHERE globalPid >> 24 & 0xFFFFFF = 2341) "
            "SELECT count(*), min(1.0 * (b4.start - b1.start) / (b1.end - b1.start)) FROM k AS b4 JOIN k AS b1 ON b4.start BETWEEN b1.start AND b1.end "
            "WHERE b4.name = 'B4' AND b1.name = 'B1'"
        )
    session = pyanalyze.load(path)
    (pair,) = (one for one in session.analysis.streams[0, 1].pairs if one.reason is not StreamReason.NO_WORK)
    assert (pair.reason, pair.filled_by) == (StreamReason.SM_RESOURCES, "B1")
    (loss,) = (one for one in pair.losses if one.reason is StreamReason.SM_RESOURCES)
    assert loss.operations == inside == 359 and soonest > 1 / 3
    page = render_markdown(session.report(), kernels=session.kernel_occupancy)
    waves = {
        row.split(" | ")[0]: row.split(" | ")[6]
        for row in page.split("| Waves (of blocks; below 1: empty block slots) |")[1].splitlines()[2:9]
    }
    assert (waves["| B1"], waves["| B2"]) == ("1.60", "0.799")
    assert "kit (pid 2340) 66 and kit (pid 2341) 66, of 132." in page


def test_in_flight_is_said_to_include_time_switched_out_where_processes_are_time_sliced(fixtures: Path) -> None:
    for name, times in (("demo-time-slicing", 1), ("streams", 0)):
        text = render_markdown(pyanalyze.load(fixtures / f"{name}.sqlite").report())
        assert text.count("In flight includes time switched out") == times
        assert "Not overlapped (both had work, one in flight)" in text
        assert "Lost (less full SMs and order)" in text


def test_reasons_that_are_mixed(tmp_path: Path) -> None:
    program = everything()
    streams = streams_of(program.write(tmp_path / "a.sqlite"))
    assert by_reason(streams, had_work=True) == program.lost()
    assert by_reason(streams, had_work=False) == program.late()


def test_two_equal_kernels_that_overlap(tmp_path: Path) -> None:
    """Kernels |0==4| and |1==3| ms: without calls, nothing is known to have waited."""
    kernels = [kernel(41, 0, 4 * MS), kernel(41, MS, 3 * MS, streamId=8)]
    streams = streams_of(write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"}))
    (pair,) = streams.pairs
    assert (pair.both_had_work_ns, pair.overlap_ns, pair.not_overlapped_ns, pair.late_ns) == (2 * MS, 2 * MS, 0, 0)
    assert (pair.reason, streams.calls_known, streams.lost_share) == (None, False, 0.0)
    assert [(one.stream_id, one.busy_ns, one.operations) for one in streams.streams] == [(7, 4 * MS, 1), (8, 2 * MS, 1)]


def test_streams_that_never_have_work_at_the_same_time(tmp_path: Path) -> None:
    kernels = [kernel(41, 0, MS), kernel(41, 5 * MS, 6 * MS, streamId=8)]
    (pair,) = streams_of(write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"})).pairs
    assert (pair.reason, pair.not_overlapped_ns, pair.late_ns) == (StreamReason.NO_WORK, 0, 0)


def nccl_1428(path: Path) -> Path:
    """NVIDIA/nccl#1428: attention 0.18 ms and GEMM 1.18 ms solo, 0.33 and 2.08 beside NCCL, which takes 2.5 times as
    long beside them as solo."""
    attention, gemm, nccl = ({"demangledName": n, "shortName": n} for n in (1, 2, 3))
    kernels, now = [], 0
    for _ in range(10):
        for name, length in ((attention, 180 * US), (gemm, 1180 * US)):
            kernels.append(kernel(41, now, now + length, **name))
            now += length + 10 * US
    for _ in range(10):
        kernels.append(kernel(41, now, now + 964 * US, streamId=20, **nccl))
        now += 1000 * US
    for _ in range(10):
        kernels.append(kernel(41, now, now + 330 * US, **attention))
        kernels.append(kernel(41, now + 330 * US, now + 2410 * US, **gemm))
        kernels.append(kernel(41, now, now + 2410 * US, streamId=20, **nccl))
        now += 2500 * US
    names = ("attention", "gemm", "ncclDevKernel_AllReduce")
    return write(path, kernels=kernels, processes={41: "train"}, kernel_names=names)


def test_nccl_beside_attention_and_gemm(tmp_path: Path) -> None:
    path = nccl_1428(tmp_path / "a.sqlite")
    streams = streams_of(path)
    told = {
        one.kernel: (round(one.ratio or 0, 2), one.beside_stream, one.beside_kernel, one.n, one.n_solo)
        for one in streams.slowdowns
    }
    assert told == {
        "attention": (1.83, 20, "ncclDevKernel_AllReduce", 10, 10),
        "gemm": (1.76, 20, "ncclDevKernel_AllReduce", 10, 10),
        "ncclDevKernel_AllReduce": (2.5, 7, "gemm", 10, 10),
    }
    (pair,) = streams.pairs
    assert pair.reason is StreamReason.CONTENTION
    # Of ten rounds each: 180 + 1180 us of stream 7 and 964 of NCCL took 2410 at once.
    assert pair.speedup_over_serial == pytest.approx((180 + 1180 + 964) / 2410, rel=1e-6)
    text = " ".join(render_text(pyanalyze.load(path).report(), sections=("streams",)).split())
    assert "Streams of train" in text and "1.83x" in text and "1.76x" in text and "2.50x" in text
    assert "All in all, overlap of streams 7 and 20 cost 860 us. What they ran in these 24.10 ms takes 23.24 ms" in text
    assert "ran in graphs" not in text


def test_a_tiny_overlap_gives_no_slowdown(tmp_path: Path) -> None:
    """Ten kernels of 1 ms, each with 2 to 20 us beside another stream, and ten solo."""
    kernels = [kernel(41, n * 2 * MS, n * 2 * MS + MS + 50 * n * US) for n in range(20)]
    kernels += [kernel(41, n * 2 * MS - 5 * US, n * 2 * MS + (2 + 2 * n) * US, streamId=8, gridX=1) for n in range(10)]
    slowdowns = streams_of(write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"})).slowdowns
    assert all(one.ratio is None for one in slowdowns)


def test_why_a_slowdown_beside_a_stream_is_not_known(tmp_path: Path) -> None:
    """A in stream 7 and B in stream 8, always at once; then with two launches of each that are alone."""
    both = [kernel(41, n * 2 * MS, n * 2 * MS + MS, streamId=7 + half) for n in range(10) for half in (0, 1)]
    alone = [kernel(41, (20 + n) * 2 * MS, (20 + n) * 2 * MS + MS, streamId=7 + n % 2) for n in range(4)]
    for kernels in (both, [*both, *alone]):
        path = write(tmp_path / f"{len(kernels)}.sqlite", kernels=kernels, processes={41: "train"})
        text = " ".join(render_text(pyanalyze.load(path).report(), sections=("streams",)).split())
        why = "fewer than 5 launches ran without that stream"
        assert f"The slowdown of kernels beside another stream is not known: {why}." in text


def test_the_order_of_a_graph_is_no_loss_that_one_could_win_back() -> None:
    pair = StreamPair(
        context_a=1, stream_a=14, context_b=1, stream_b=22, both_had_work_ns=9 * MS, overlap_ns=0, not_overlapped_ns=4 * MS,
        late_ns=MS, alternations=3, reason=StreamReason.GRAPH, losses=[],
    )  # fmt: skip
    streams = Streams(window_ns=10 * MS, streams=[], pairs=[pair], slowdowns=[], calls_known=True)
    said = "streams 14 and 22 did not overlap for 5.000 ms, 50.0 % of its time: the order inside one graph. Nothing is lost by that."
    assert lost_streams_text("train", streams) == f"train: {said}"
    other = streams.model_copy(update={"pairs": [pair.model_copy(update={"reason": StreamReason.COPY_ENGINE})]})
    said = "streams 14 and 22 did not overlap for 5.000 ms, 50.0 % of its time: copies share a copy engine."
    assert lost_streams_text("train", other) == f"train: {said}"


def test_a_stream_with_little_work_could_overlap_no_more_than_that() -> None:
    """22 runs for 3 ms, 2 of them beside 14: 1 ms is left, whatever the 5 ms that 14 ran without it."""
    pair = StreamPair(
        context_a=1, stream_a=14, context_b=1, stream_b=22, both_had_work_ns=9 * MS, overlap_ns=2 * MS, not_overlapped_ns=4 * MS,
        late_ns=MS, alternations=3, reason=StreamReason.UNEXPLAINED, losses=[],
    )  # fmt: skip
    uses = [
        StreamUse(context_id=1, stream_id=n, operations=1, kernels=1, busy_ns=ns, priority=None, flag=None)
        for n, ns in ((14, 9 * MS), (22, 3 * MS))
    ]
    streams = Streams(window_ns=10 * MS, streams=uses, pairs=[pair], slowdowns=[], calls_known=True)
    said = "streams 14 and 22 lost 5.000 ms of overlap, 50.0 % of its time: unexplained; at most 1.000 ms more could overlap."
    assert lost_streams_text("train", streams) == f"train: {said}"
    # Edges of graphs and events forbid 4.5 of the 5 ms.
    forbidden = [
        StreamLoss(reason=reason, waiting_stream=22, had_work=True, without_overlap_ns=ns * US, operations=1)
        for reason, ns in ((StreamReason.GRAPH, 4000), (StreamReason.DEPENDENCY, 500), (StreamReason.UNEXPLAINED, 500))
    ]
    assert streams.could_overlap_ns(pair.model_copy(update={"losses": forbidden})) == 500 * US
    # With 2.5 ms left, half of what was lost, nothing is added.
    uses[1] = uses[1].model_copy(update={"busy_ns": 4500 * US})
    assert "could overlap" not in lost_streams_text("train", streams.model_copy(update={"streams": uses}))


def test_little_overlap_that_was_missed_is_not_told_as_a_loss() -> None:
    """The threshold is 2 % of the time: 1.9 ms of 100 are below it, 2 ms are not."""
    pair = StreamPair(
        context_a=1, stream_a=7, context_b=1, stream_b=21, both_had_work_ns=0, overlap_ns=0, not_overlapped_ns=0,
        late_ns=1900 * US, alternations=3, reason=StreamReason.LAUNCHED_LATE, losses=[],
    )  # fmt: skip
    streams = Streams(window_ns=100 * MS, streams=[], pairs=[pair], slowdowns=[], calls_known=True)
    said = "train used 0 streams, which missed overlap for less than 2 % of its time."
    assert lost_streams_text("train", streams) == said
    late = streams.model_copy(update={"pairs": [pair.model_copy(update={"late_ns": 2 * MS})]})
    said = "train: streams 7 and 21 lost 2.000 ms of overlap, 2.0 % of its time: launched after the other ended."
    assert lost_streams_text("train", late) == said


def test_contexts_of_one_process_alternate(tmp_path: Path) -> None:
    kernels = [kernel(41, n * MS, n * MS + 900 * US, contextId=1 + n % 2, streamId=7 + 10 * (n % 2)) for n in range(20)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"}, contexts=[(41, 2)])
    alternating = streams_of(path).alternating
    assert alternating is not None and alternating.alternations == 19
    text = " ".join(render_text(pyanalyze.load(path).report(), sections=("streams",)).split())
    assert "Contexts 1 and 2 of train alternate: 19 times" in text and "time-sliced" in text


def test_time_that_full_sms_or_an_order_explain_is_not_lost() -> None:
    """In ms: of 10 without overlap 6 had no SMs left and 1 waited for an event of the other stream."""
    parts = ((StreamReason.SM_RESOURCES, 6), (StreamReason.DEPENDENCY, 1), (StreamReason.LAUNCHED_LATE, 3))
    losses = [
        StreamLoss(reason=reason, waiting_stream=9, had_work=True, without_overlap_ns=ns * MS, operations=1)
        for reason, ns in parts
    ]
    pair = StreamPair(
        context_a=1, stream_a=7, context_b=1, stream_b=9, both_had_work_ns=9 * MS, overlap_ns=2 * MS, not_overlapped_ns=7 * MS,
        late_ns=3 * MS, alternations=3, reason=StreamReason.SM_RESOURCES, losses=losses,
    )  # fmt: skip
    assert pair.lost_ns == 3 * MS
    streams = Streams(window_ns=20 * MS, streams=[], pairs=[pair], slowdowns=[], calls_known=True)
    assert "did not overlap for 10.00 ms, 50.0 % of its time: insufficient SM" in lost_streams_text("train", streams)
    # Where most of it has another reason, what is said to be lost has no time of full SMs either.
    most = pair.model_copy(update={"reason": StreamReason.LAUNCHED_LATE})
    said = lost_streams_text("train", streams.model_copy(update={"pairs": [most]}))
    assert (
        said == "train: streams 7 and 9 lost 3.000 ms of overlap, 15.0 % of its time: launched after the other ended."
    )


def test_the_first_screen_and_the_command_say_it(tmp_path: Path) -> None:
    path = full_sms().write(tmp_path / "a.sqlite")
    report = pyanalyze.load(path).report()
    summary = render_summary(report)
    assert all(len(line) <= SUMMARY_COLUMNS for line in summary.splitlines())
    assert "Streams     train: streams 13 and 14 did not overlap" in summary
    assert "of its time: insufficient SM resources beside k, whose blocks are first in line." in " ".join(
        summary.split()
    )
    assert "## Streams of train" in render_markdown(report)
    shown = run("streams", path)
    assert shown.returncode == 0 and "insufficient SM resources" in shown.stdout
    (device,) = json.loads(run("streams", path, "-f", "json").stdout)["devices"]
    assert device["tenants"][0]["streams"]["pairs"][0]["reason"] == "sm-resources"
    table = run("streams", path, "-f", "csv").stdout
    assert "sm-resources" in table.splitlines()[1]


def test_one_stream_is_no_question(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, MS)], processes={41: "train"})
    assert pyanalyze.load(path).analysis.streams == {}
    assert "No process used several streams." in run("streams", path).stdout


def test_migrations_of_unified_memory_are_no_stream(tmp_path: Path) -> None:
    """nsys writes them with stream 0 and context 0: the program has streams 7 and 8 of context 1."""
    moved = {"streamId": 0, "contextId": 0, "correlationId": 0}
    copies = [copy(41, n * 100 * US, n * 100 * US + 50 * US, copyKind=11 + n % 3, **moved) for n in range(6)]
    kernels = [kernel(41, 0, MS), kernel(41, 0, MS, streamId=8)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, copies=copies, processes={41: "train"})
    streams = streams_of(path)
    assert [(one.context_id, one.stream_id, one.operations) for one in streams.streams] == [(1, 7, 1), (1, 8, 1)]
    session = pyanalyze.load(path)
    assert session.tables.frame("memops").select("context_id", "stream_id").null_count().row(0) == (6, 6)
    assert session.tables.contexts["context_id"].to_list() == [1]
    # They are nobody's: other work of the process.
    usage = session.by("stream").tenants.join(session.by("stream").tenant_usage, on=["tenant_id", "device_id"])
    assert usage.filter(pl.col("memops") > 0)["name"].to_list() == ["other work of train"]
    alone = write(tmp_path / "b.sqlite", kernels=kernels[:1], copies=copies, processes={41: "train"})
    assert pyanalyze.load(alone).analysis.streams == {}
    with pytest.raises(UsageError, match="no process used several; there is stream 7"):
        pyanalyze.load(alone, by="stream")


@pytest.mark.parametrize(
    "name",
    ["aws_gpu/report2.sqlite", "easycuda/nsys_easy.sqlite", "ctxsw-ada-timeslice/paging__report1.nsys2026.sqlite"],
)
def test_real_captures_with_migrations_have_one_stream(corpus: Path, name: str) -> None:
    path = corpus / "exports" / name
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        ((migrated,),) = database.execute(
            "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind BETWEEN 11 AND 13 AND streamId = 0"
        ).fetchall()
        ((streams,),) = database.execute("SELECT COUNT(DISTINCT streamId) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    assert migrated > 0 and streams == 1
    assert pyanalyze.load(path).analysis.streams == {}


def test_every_reason_of_the_core_is_a_word(tmp_path: Path) -> None:
    (table,) = [one for one in _core.table_declarations() if one["name"] == "stream_losses"]
    assert table["version"] == 1
    losses = pyanalyze.load(everything().write(tmp_path / "a.sqlite")).tables.stream_losses
    assert set(losses["reason"].cast(pl.String)) <= set(StreamReason)


@pytest.mark.parametrize(
    ("build", "action"),
    [
        (legacy_default_stream, "Take work of train out of the legacy default stream"),
        (host_waits, "Launch the next work of train before waiting for the last"),
        (host_allocates, "Keep blocking calls of train out of the way of its launches"),
        (launches_block, "Unset CUDA_LAUNCH_BLOCKING for train"),
        (launched_late, "Launch the work of both streams of train earlier, or from two threads"),
    ],
)
def test_what_to_do_about_it_with_the_time_at_stake(tmp_path: Path, build: Callable[[], Program], action: str) -> None:
    program = build()
    (advice,) = pyanalyze.load(program.write(tmp_path / "a.sqlite")).advise()
    (item,) = (one for one in advice.actions if one.action == action)
    reasons = {**program.lost(), **program.late()}
    lost = max(ns for reason, ns in reasons.items() if reason != "launch-latency")
    # At most what the less busy of two streams does can be hidden.
    assert item.at_stake_ns == min(lost, *(one.end_ns - one.start_ns for one in program.ran))
    assert item.at_stake_share is not None and 0.02 <= item.at_stake_share <= 1


@pytest.mark.parametrize("build", [full_sms, one_wave_that_fills_the_device, dependency, nothing_says_why])
def test_nothing_is_advised_where_overlap_brings_nothing(tmp_path: Path, build: Callable[[], Program]) -> None:
    (advice,) = pyanalyze.load(build().write(tmp_path / "a.sqlite")).advise()
    assert not any("overlap" in (one.bound or "") for one in advice.actions)


def test_a_stream_that_ran_beside_the_default_one_is_not_serialised(tmp_path: Path) -> None:
    (advice,) = pyanalyze.load(nccl_1428(tmp_path / "a.sqlite")).advise()
    assert not any("default stream" in one.action for one in advice.actions)


def test_what_was_not_traced_is_not_said_to_use_one_stream(tmp_path: Path) -> None:
    turns = [*resident(41, 1, 0, MS), *resident(42, 2, MS + US, 2 * MS)]
    names = {41: "train", 42: "other"}
    nothing = run("streams", write(tmp_path / "a.sqlite", switches=turns, processes=names)).stdout
    assert "Streams are not known: no CUDA work was traced. To capture it: nsys profile -t cuda" in nothing
    assert "used several" not in nothing
    one = write(tmp_path / "b.sqlite", switches=turns, processes=names, kernels=[kernel(41, 0, MS)])
    assert "No traced process used several streams." in run("streams", one).stdout


def test_the_page_has_the_words_of_reports_beside_each_reason() -> None:
    """A reader of a report finds its words in the table of the page, and JSON's word beside them."""
    page = (Path(__file__).parents[1] / "docs" / "questions" / "streams.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.partition("| in JSON and CSV")[2].splitlines()[2:]]
    told = {row[0].strip("`"): row[1] for row in itertools.takewhile(lambda row: len(row) == 3, rows)}
    assert list(told.items()) == [(reason.value, STREAM_REASONS[reason]) for reason in StreamReason]
