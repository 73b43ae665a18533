"""`pyanalyze info`: what a capture holds, and whether another recording would hold more."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from command_line import run

import pyanalyze
from pyanalyze.report.sentences.capture import cut_sentences
from pyanalyze.text.format import count, duration

if TYPE_CHECKING:
    from pathlib import Path


def sources(capture: Path) -> dict[str, str]:
    """What the lines of the sources say, by name."""
    lines = run("info", capture).stdout.splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.startswith("    "))


def changed(capture: Path, to: Path, *statements: str) -> Path:
    """A copy of an export, changed by SQL."""
    shutil.copy(capture, to)
    to.chmod(0o644)
    with sqlite3.connect(to) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return to


def test_what_was_traced_and_did_not_occur_needs_no_switch(fixtures: Path, tmp_path: Path) -> None:
    """Kernels are on record, so CUDA was traced; its graphs too, where the settings say `Graph`."""
    none = ["absent", "none", "recorded;", "CUDA", "was", "traced"]
    demo = fixtures / "demo-time-slicing.sqlite"
    found = sources(demo)
    assert found["graph_launches"].split() == none
    assert found["event_calls"].split() == none
    assert found["allocations"].split(maxsplit=1)[1] == "capture with: --cuda-memory-usage=true"
    body = json.loads(run("info", demo, "-f", "json").stdout)
    how = {row["source"]: row["how"] for row in body["sources"]}
    assert how["graph_launches"] is None
    assert how["allocations"] == "--cuda-memory-usage=true"
    nodes = changed(
        demo, tmp_path / "nodes.sqlite", "UPDATE META_DATA_CAPTURE SET value = 'Node' WHERE name LIKE '%GRAPH%:MODE'"
    )
    # Traced as a whole, their kernels would be lost.
    assert sources(nodes)["graph_launches"].split(maxsplit=1) == [
        "absent",
        "no graph was traced as a whole: kernels of graphs are among the kernels",
    ]


def test_kernels_of_graphs_are_not_given_up(hardware: Path) -> None:
    """Of 14 515 kernels of this export 13 911 have a graph node: graphs were traced node by node."""
    capture = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    with closing(sqlite3.connect(capture)) as db:
        (nodes,) = db.execute("SELECT count(graphNodeId) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    assert nodes == 13_911
    assert "--cuda-graph-trace" not in sources(capture)["graph_launches"]


def test_messages_of_nsys_are_whole(hardware: Path) -> None:
    """Cut in the middle, two of its messages made a false one. That of the driver concerns all, those of processes one each."""
    said = run("info", hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite").stdout
    assert "(87): this nsys does not support the driver and traced CUDA as for an older one: 2; no NVTX events" in said
    assert "no CUDA events of a process: 28; CUDA tracing of a process may not have started: 28; others: 1\n" in said


def test_the_length_and_start_of_a_recording_are_told(hardware: Path) -> None:
    """By `ANALYSIS_DETAILS` and `TARGET_INFO_SESSION_START_TIME` of the export."""
    capture = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    with closing(sqlite3.connect(capture)) as db:
        (length_ns,) = db.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
        (origin_ns,) = db.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    began = dt.datetime.fromtimestamp(origin_ns // 10**9, dt.UTC)
    (line,) = (line for line in run("info", capture).stdout.splitlines() if line.startswith("  recording: "))
    assert line.startswith(f"  recording: {length_ns / 1e9:.3f} s from {began:%Y-%m-%d %H:%M:%S}.")


@pytest.mark.parametrize(
    ("capture", "why"),
    [
        ("torch-mps-serve-train", "clients of one MPS server do not switch contexts"),
        ("torch-alone-serve", "no two contexts alternated, or nsys was not root"),
    ],
)
def test_switches_that_were_traced_are_not_to_be_traced_again(hardware: Path, capture: str, why: str) -> None:
    with closing(sqlite3.connect(hardware / f"{capture}.sqlite")) as db:
        ((traced,),) = db.execute("SELECT value FROM META_DATA_CAPTURE WHERE name = 'COLLECT_GPU_CTX_SW_TRACE'")
        ((rows,),) = db.execute("SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS")
    assert (traced, rows) == ("true", 0)
    said = sources(hardware / f"{capture}.sqlite")["switch_events"]
    assert "none recorded; switches were traced" in said
    assert why in said
    assert "gpuctxsw" not in said


def test_where_nsys_says_that_nothing_of_cuda_ran_no_switch_brings_it(fixtures: Path, tmp_path: Path) -> None:
    """The same capture without its tables of CUDA, and with the message that nsys writes where a program uses none."""
    demo = fixtures / "demo-time-slicing.sqlite"
    with closing(sqlite3.connect(demo)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'CUPTI_ACTIVITY_%'")]
    gone = [f"DROP TABLE {name}" for name in tables]
    assert "capture with: -t cuda" in sources(changed(demo, tmp_path / "cut.sqlite", *gone))["kernels"]
    said = (
        "DROP TABLE IF EXISTS DIAGNOSTIC_EVENT",
        "CREATE TABLE DIAGNOSTIC_EVENT (severity, text)",
        "INSERT INTO DIAGNOSTIC_EVENT (severity, text) VALUES (2, 'No CUDA events collected. Does the process use CUDA?')",
    )
    found = sources(changed(demo, tmp_path / "none.sqlite", *gone, *said))
    for name in ("kernels", "copies", "api_calls"):
        assert found[name].split() == ["empty", "none", "recorded;", "CUDA", "was", "traced"], name


def test_where_nothing_of_cuda_was_traced_the_switches_are_named(fixtures: Path) -> None:
    found = sources(fixtures / "node-switches-only.sqlite")
    assert "capture with: -t cuda" in found["kernels"]
    assert "capture with: -t cuda --cuda-graph-trace=graph" in found["graph_launches"]


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("2024.2.3.38", "export the report with nsys 2024.6 or newer"),
        ("2024.6.1.90", "the export has no such table"),
        ("2025.5.2.266", "the export has no such table"),
    ],
)
def test_a_newer_nsys_is_asked_for_only_by_older_exports(
    fixtures: Path, tmp_path: Path, version: str, says: str
) -> None:
    capture = changed(
        fixtures / "node-switches-only.sqlite",
        tmp_path / "export.sqlite",
        f"UPDATE META_DATA_EXPORT SET value = '{version}' WHERE name = 'EXPORT_PRODUCT_VERSION'",
    )
    assert sources(capture)["cuda_devices"].split(maxsplit=1) == ["absent", says]


def test_ranges_are_asked_for_where_the_program_may_have_none(fixtures: Path) -> None:
    assert sources(fixtures / "mps.sqlite")["nvtx"].endswith("-t nvtx, if the program has ranges")
    said = run("explain", fixtures / "node-switches-only.sqlite").stdout
    assert "or annotate the program with NVTX ranges and record it: nsys profile -t cuda,nvtx" in said


def test_ranges_are_not_asked_for_where_they_were_traced(hardware: Path, tmp_path: Path) -> None:
    """By its metadata nsys traced NVTX, and the export has no table of ranges; 2021 exports have no metadata."""
    capture = hardware / "slices-A-B.sqlite"
    with sqlite3.connect(capture) as connection:
        (traced,) = connection.execute(
            "SELECT value FROM META_DATA_CAPTURE WHERE name = 'PROCESS_0:COLLECT_NVTX_TRACE'"
        )
        assert traced == ("true",)
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'NVTX_EVENTS'").fetchall()
    connection.close()
    assert sources(capture)["nvtx"].split(maxsplit=1) == ["absent", "none recorded; NVTX was traced"]
    untold = changed(
        capture, tmp_path / "untold.sqlite", "DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%COLLECT_NVTX_TRACE'"
    )
    assert sources(untold)["nvtx"].endswith("-t nvtx, if the program has ranges")


def test_the_nsys_of_an_export_is_not_said_to_have_recorded(hardware: Path, tmp_path: Path) -> None:
    """The version stands in META_DATA_EXPORT: another nsys may have recorded the report."""
    old = hardware / "alone-C.sqlite"
    new = changed(
        old,
        tmp_path / "new.sqlite",
        "UPDATE META_DATA_EXPORT SET value = '2025.5.2.266' WHERE name = 'EXPORT_PRODUCT_VERSION'",
        "UPDATE TARGET_INFO_GPU SET name = 'T4'",
    )
    assert "exported by NVIDIA Nsight Systems 2025.5.2.266," in run("info", new).stdout
    assert "exported by nsys 2025.5.2.266" in run("summary", new).stdout
    said = " ".join(run("compare", old, new).stdout.split())
    assert "recorded by" not in said
    assert "exported by different nsys versions" in said


def test_what_several_processes_are_said_to_have_is_one_line(hardware: Path) -> None:
    """By node.json: four processes, of which 708, 709 and 713 have the pipe directory, and 775 shares the device."""
    folder = hardware.parent / "h200" / "node-mps-A-B-beside-C"
    lines = [line for line in run("info", folder).stdout.splitlines() if line.startswith("configured: ")]
    assert len(set(lines)) == len(lines)
    for said in (
        "NVIDIA_VISIBLE_DEVICES=0 (recording-node; pids 708, 709, 713, 775)",
        "CUDA_MPS_PIPE_DIRECTORY=/tmp/mp (recording-node; pids 708, 709, 713)",
        "mps_daemon=nvidia-cuda-mps (process-list; pids 705, 713)",
        "process_pid=708, 709, 713, 775 (recording-node)",
    ):
        assert f"configured: {said}" in lines
    assert any(line.startswith("configured: gpu=0 uuid=GPU-48d0f256") for line in lines)


def test_the_state_of_a_source_is_one_word_in_every_format(fixtures: Path) -> None:
    capture = fixtures / "mps.sqlite"
    table, rows = sources(capture), csv.DictReader(io.StringIO(run("info", capture, "-f", "csv").stdout))
    unread = [row["source"] for row in rows if row["state"] == "unread"]
    assert unread
    assert all(table[name] == "present (unread)" for name in unread)
    assert "read by page scan, without SQLite" in run("info", capture).stdout


def test_samples_without_a_capture_are_not_said_to_be_scanned(hardware: Path) -> None:
    samples = hardware.parent / "h200" / "node-mps-A-B-beside-C" / "samples.jsonl"
    assert "page scan" not in run("info", "--samples", samples).stdout


def collected_and_held(capture: Path) -> tuple[int, int]:
    """How many CUDA events nsys says it collected, and the rows of the tables of API calls, kernels, copies and memsets."""
    with closing(sqlite3.connect(f"file:{capture}?mode=ro", uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        texts = db.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall() if "DIAGNOSTIC_EVENT" in tables else []
        counts = [re.match(r"Number of CUDA events collected:\s*(\d+)\.", text) for (text,) in texts]
        of_cuda = tables & {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET")}
        held = sum(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in of_cuda)
    return sum(int(count[1]) for count in counts if count), held


def cut(capture: Path) -> list[str]:
    return [line for line in run("info", capture).stdout.splitlines() if "export_cut" in line]


@pytest.mark.parametrize("name", ["alone-A", "mps-A-B-C", "slices-paced-B"])
def test_an_export_without_some_of_its_rows_says_so(hardware: Path, name: str) -> None:
    """The recordings of an H200 were cut to a window to make them small (fixtures/hardware/h200/README.md)."""
    capture = hardware.parent / "h200" / f"{name}.sqlite"
    collected, held = collected_and_held(capture)
    assert held < collected / 2
    (line,) = cut(capture)
    assert re.sub(r"(?<=\d)\s(?=\d{3})", "", line).startswith(
        f"  notice: export_cut ({collected - held}): {held} of {collected} API"
    )


def told_and_held(capture: Path, what: str, rows: str) -> tuple[int, int]:
    """How many of something nsys says it collected, and what a query finds."""
    with closing(sqlite3.connect(f"file:{capture}?mode=ro", uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        texts = db.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall() if "DIAGNOSTIC_EVENT" in tables else []
        counts = [re.match(rf"Number of {what} collected:\s*(\d+)\.", text) for (text,) in texts]
        table = rows.rsplit(maxsplit=1)[-1].rstrip(")")
        held = db.execute(rows).fetchone()[0] if table in tables else 0
    return sum(int(count[1]) for count in counts if count), held


def test_switch_records_and_counters_that_an_export_lacks_are_told(hardware: Path, corpus: Path) -> None:
    """By SQL nsys counts every row of context switches; of counters it counts samples, each of several rows."""
    complete = cut_ones = 0
    exports = [*sorted(hardware.parent.glob("h?00/*.sqlite")), *sorted(corpus.glob("exports/*/*.sqlite"))]
    for capture in exports:
        switches = told_and_held(capture, "GPU context switch events", "SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS")
        samples = told_and_held(
            capture, "GPU Metrics events", "SELECT count(*) FROM (SELECT DISTINCT typeId, timestamp FROM GPU_METRICS)"
        )
        if not switches[0] and not samples[0]:
            continue
        text = re.sub(r"(?<=\d)\s(?=\d{3})", "", run("info", capture).stdout)
        assert (f"switch_records_cut ({switches[0] - switches[1]})" in text) == (switches[0] > switches[1]), capture
        # Of a whole export the first or the last may be missing.
        lacks = samples[1] < 0.99 * samples[0]
        assert (f"counter_samples_cut ({samples[0] - samples[1]})" in text) == lacks, capture
        assert ("removed" in text) == (lacks and not samples[1]), capture
        complete += switches[0] == switches[1] > 0
        cut_ones += switches[0] > switches[1]
    assert complete >= 10
    assert cut_ones >= 8


def test_what_nsys_collected_is_exported_again_not_recorded_again(hardware: Path) -> None:
    report = pyanalyze.load(hardware / "green-64-64-A-B.sqlite").report()
    (counters,) = [gap for gap in report.devices[0].sharing.missing if gap.what == "gpu_metrics"]
    assert counters.why == "nsys collected hardware counters, and the export has none"
    assert (counters.how or "").startswith("nsys export --type sqlite REPORT.nsys-rep")
    # Its last launch with a record is not its last launch, so the recording did not just end; rows were removed.
    report = pyanalyze.load(hardware.parent / "h200" / "slices-paced-B.sqlite").report()
    (launches,) = [gap for gap in report.devices[0].sharing.missing if gap.what == "kernel_records"]
    assert launches.why == "1 of 412 launch calls has no kernel record: rows were removed from the export"
    assert (launches.how or "").startswith("nsys export --type sqlite REPORT.nsys-rep")


def test_a_complete_export_is_not_said_to_be_cut(hardware: Path, corpus: Path) -> None:
    """By SQL the sum of four tables is the number of nsys in each of them, whatever else was traced."""
    checked = 0
    for capture in [*sorted(hardware.glob("*.sqlite")), *sorted(corpus.glob("exports/*/*.sqlite"))]:
        collected, held = collected_and_held(capture)
        if not collected:
            continue
        assert collected == held, capture
        assert not cut(capture), capture
        checked += 1
    assert checked >= 38


def test_a_part_of_a_recording_is_told_by_its_counter_samples(hardware: Path, corpus: Path) -> None:
    """Nsys samples counters all the time: of whole recordings they cover nearly all, whoever says how many there were.

    The recordings of the H100 were cut to a window before nsys wrote its totals into exports.
    """
    query = "SELECT max(timestamp) - min(timestamp), (SELECT duration FROM ANALYSIS_DETAILS) FROM GPU_METRICS"
    first_call = "SELECT min(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId > 0"
    for name in ("torch-alone-serve", "torch-alone-train", "alone-C"):
        path = hardware / f"{name}.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            (covered, recorded), (first,) = db.execute(query).fetchone(), db.execute(first_call).fetchone()
        assert covered < recorded / 10
        report = pyanalyze.load(path).report()
        (capture,) = report.captures
        assert capture.counters_cover_ns == covered
        (said,) = cut_sentences(report)
        assert f"cover {duration(covered)} of {duration(recorded)}" in said
        missing = {gap.what: gap for gap in report.devices[0].sharing.missing}
        assert "export was cut" in missing["export_rows"].why
        if name == "torch-alone-serve":
            # No kernel lacks its call: both begin at once.
            assert first == 13_789
            assert f"number {count(first)} of its process" in missing["launch_calls"].why
            assert "the export was cut, no two contexts alternated" in missing["context_switches"].why
            assert missing["context_switches"].how.startswith("nsys export")
            screen = run("summary", path).stdout
            assert "a part of the recording (inferred)" in screen
            section = run("report", path, "-f", "txt").stdout
            assert "No data-quality issue was counted" not in section
            assert "samples of the whole capture" not in " ".join(section.split())
    path = corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2023.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        covered, recorded = db.execute(query).fetchone()
    assert covered > 0.9 * recorded
    whole = pyanalyze.load(path).report()
    assert whole.captures[0].counters_cover_ns is None
    assert not cut_sentences(whole)
