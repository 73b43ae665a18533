"""Many captures: what belongs together, each analysed once, one that fails alone in its failure."""

from __future__ import annotations

import csv
import datetime as dt
import html
import json
import operator
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from command_line import run

from pyanalyze.analysis.gate import check
from pyanalyze.cli.fleet import ProgressLine, rate, worst_words
from pyanalyze.errors import NotACapture, OutputExists, UsageError
from pyanalyze.fleet import analyse, arrange, find
from pyanalyze.fleet.check import check_fleet
from pyanalyze.fleet.executors import Processes
from pyanalyze.fleet.failures import WorkerDied
from pyanalyze.fleet.outputs import DEVICE_COLUMNS, fleet_csv, openmetrics
from pyanalyze.fleet.overview import render_overview
from pyanalyze.fleet.plan import CaptureProbe, Span, probe, shared_gpus, span
from pyanalyze.fleet.summary import (
    DeviceRow,
    FleetSummary,
    GroupPart,
    _counted,
    _worst,
    fleet_schema,
    held_words,
    summarise,
)
from pyanalyze.results.check import Limits
from pyanalyze.results.report import Report


def made_row(**known: Any) -> DeviceRow:
    plain = dict.fromkeys(DeviceRow.model_fields)
    usual = {"group": "g", "job": "g", "captures": 1, "device_id": 0, "mode": "mps", "confidence": 0.9}
    return DeviceRow(
        **{**plain, **usual, "basis": "observed", "tenants": 2, "lost_records": 0, "export_cut": False, **known}
    )


HOUR_NS = 3_600_000_000_000


def vary(source: Path, target: Path, *, gpu: str | None = None, later_ns: int = 0, session: str | None = None) -> Path:
    """Copy a capture; on another GPU, at another time, of another session."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    with sqlite3.connect(target) as db:
        if gpu is not None:
            db.execute("UPDATE TARGET_INFO_GPU SET uuid = ?", (gpu,))
            db.execute("UPDATE TARGET_INFO_CUDA_DEVICE SET uuid = ?", (gpu,))
        if later_ns:
            db.execute(
                "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?, systemClockNs = systemClockNs + ?",
                (later_ns, later_ns),
            )
        if session is not None:
            db.execute("UPDATE META_DATA_CAPTURE SET value = ? WHERE name = 'PROFILING_SESSION_UUID'", (session,))
    db.close()
    return target


@pytest.fixture
def captures(fixtures: Path, tmp_path: Path) -> Path:
    """Two pods and their node on one GPU, an MPS server on it an hour later, a MIG instance, a file that is none."""
    folder = tmp_path / "captures"
    shutil.copytree(fixtures / "containers-same-pid", folder / "node-7" / "containers")
    vary(fixtures / "mps.sqlite", folder / "node-7" / "mps.sqlite", later_ns=HOUR_NS)
    shutil.copy(fixtures / "mig.sqlite", folder / "mig.sqlite")
    (folder / "bad.sqlite").write_text("no")
    return folder


kept = pytest.mark.usefixtures("kept_workers")


def written(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def times(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("*")) if p.is_file()}


def command(*arguments: str | Path, strict: bool = True, **options: Any) -> subprocess.Popen[str]:
    code = [sys.executable, "-c", "from pyanalyze.cli import main; main()", "fleet", *map(str, arguments)]
    env = {**os.environ, "PYTHONWARNINGS": "error"} if strict else dict(os.environ)
    return subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **options)


def alive(group: int) -> list[str]:
    """Processes of a process group; those that only wait to be collected do not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            found.append(stat.parent.name)
    return found


def test_a_killed_run_leaves_no_worker(fixtures: Path, tmp_path: Path) -> None:
    for number in range(8):
        vary(
            fixtures / "streams.sqlite",
            tmp_path / "captures" / f"{number}.sqlite",
            session=str(number),
            gpu=str(number),
        )
    process = command(tmp_path / "captures", "-o", tmp_path / "out", "--workers", "2", start_new_session=True)
    end = time.monotonic() + 60
    while not list(tmp_path.glob("out/groups/*/report.json")) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(alive(process.pid)) > 2
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 20
    while alive(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(process.pid) == []


def test_one_job_is_one_group_and_a_failure_stays_alone(captures: Path, fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = command(captures / "**" / "*.sqlite", "-o", out)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 3, "one capture could not be read"
    # On a slow machine it says how far it is, too.
    (said,) = [line for line in stderr.splitlines() if not line.startswith("pyanalyze: analysing")]
    assert "bad.sqlite" in said
    assert "not a SQLite file" in said
    assert "3 analysed, 0 from the result cache; 1 failed" in stdout
    summary = json.loads((out / "fleet.json").read_text())
    assert summary["schema"] == "pyanalyze.fleet/1"
    inside = {group["name"]: [Path(c["path"]).name for c in group["captures"]] for group in summary["groups"]}
    # In the order of their starts: the fixture's truth has the node at 0, pod-a at 100 ms, pod-b at 350 ms.
    assert inside == {
        "containers": ["node.sqlite", "pod-a.sqlite", "pod-b.sqlite"],
        "mig": ["mig.sqlite"],
        "mps": ["mps.sqlite"],
    }
    assert [Path(failure["path"]).name for failure in summary["failures"]] == ["bad.sqlite"]
    with (out / "fleet.csv").open(newline="") as stream:
        rows = {row["group"]: row for row in csv.DictReader(stream)}
    for group, truth in (("containers", "containers-same-pid"), ("mps", "mps"), ("mig", "mig")):
        true = json.loads((fixtures / f"{truth}.truth.json").read_text())
        assert rows[group]["mode"] == true["devices"][0]["mode"]
        report = Report.from_json((out / "groups" / group / "report.json").read_text())
        assert report.devices[0].sharing.mode == true["devices"][0]["mode"]
    assert rows["containers"]["tenants"] == "2"
    assert rows["containers"]["captures"] == "3"
    assert float(rows["containers"]["worst_slowdown"]) > 1
    assert int(rows["containers"]["worst_slowdown_n"]) > 0
    assert rows["mig"]["agrees"] == "true"
    assert rows["mig"]["worst_slowdown"] == "", "one tenant: nobody to be slowed by, which is not 1 and not 0"


def test_the_result_does_not_depend_on_the_number_of_workers(captures: Path, tmp_path: Path) -> None:
    pattern = str(captures / "**" / "*.sqlite")
    serial = analyse(pattern, tmp_path / "serial", workers=1)
    parallel = analyse(pattern, tmp_path / "parallel", workers=3)
    assert serial.rows == parallel.rows
    assert written(tmp_path / "serial") == written(tmp_path / "parallel")
    assert len(written(tmp_path / "serial")) > 5


@kept
def test_a_rerun_does_only_what_changed(captures: Path, fixtures: Path, tmp_path: Path) -> None:
    pattern, out = str(captures / "**" / "*.sqlite"), tmp_path / "out"
    first = analyse(pattern, out, workers=2)
    assert (first.analysed, first.reused) == (3, 0)
    before, content = times(out), written(out)
    again = analyse(pattern, out, workers=2)
    assert (again.analysed, again.reused, again.exit_code) == (0, 3, 3)
    assert times(out) == before, "nothing was even written again"
    assert written(out) == content

    # What the cache says is taken: had a rerun analysed anything, the mark would be gone.
    (model,) = (device["model"] for device in json.loads((fixtures / "mps.truth.json").read_text())["devices"])
    marked = []
    for known in (out / ".cache").glob("*.json"):
        if '"sharing": {"mode": "mps"' in re.sub(r"\s{2,}", "", json.loads(known.read_text()).get("report", "")):
            known.write_text(known.read_text().replace(model, "marked"))
            marked.append(known)
    assert len(marked) == 1
    vary(fixtures / "mig.sqlite", captures / "mig.sqlite", session="00000000-0000-4000-8000-00000000abcd")
    changed = analyse(pattern, out, workers=2)
    assert (changed.analysed, changed.reused) == (1, 2)
    assert {row.group: row.name for row in changed.rows}["mps"] == "marked"
    forced = analyse(pattern, out, workers=2, force=True)
    assert (forced.analysed, forced.reused) == (3, 0)
    assert {row.group: row.name for row in forced.rows}["mps"] == model


@kept
def test_a_damaged_cache_is_no_answer(fixtures: Path, tmp_path: Path) -> None:
    first = analyse(fixtures / "mig.sqlite", tmp_path / "out", workers=1)
    before = written(tmp_path / "out")
    for known in (tmp_path / "out" / ".cache").glob("*.json"):
        known.write_bytes(known.read_bytes()[:100])
    again = analyse(fixtures / "mig.sqlite", tmp_path / "out", workers=1)
    assert (first.analysed, again.analysed) == (1, 1)
    assert written(tmp_path / "out") == before


@kept
def test_moved_captures_are_known_and_named_by_their_new_place(captures: Path, tmp_path: Path) -> None:
    analyse(str(captures / "node-7" / "**" / "*.sqlite"), tmp_path / "out", workers=2)
    captures.rename(tmp_path / "elsewhere")
    pattern = str(tmp_path / "elsewhere" / "node-7" / "**" / "*.sqlite")
    moved = analyse(pattern, tmp_path / "out", workers=2)
    assert (moved.analysed, moved.reused) == (0, 2)
    fresh = analyse(pattern, tmp_path / "fresh", workers=2)
    assert fresh.analysed == 2
    assert written(tmp_path / "out" / "groups") == written(tmp_path / "fresh" / "groups")
    assert (tmp_path / "out" / "fleet.json").read_bytes() == (tmp_path / "fresh" / "fleet.json").read_bytes()


@kept
def test_a_path_with_hidden_marks_moves_too_and_shows_them(fixtures: Path, tmp_path: Path) -> None:
    capture = tmp_path / "gr\u00fcn \u202efed.sqlite"
    shutil.copy(fixtures / "mig.sqlite", capture)
    analyse([capture], tmp_path / "out", workers=1)
    capture = capture.rename(tmp_path / "rot \u202efed.sqlite")
    moved = analyse([capture], tmp_path / "out", workers=1)
    assert (moved.analysed, moved.reused) == (0, 1)
    (report,) = (tmp_path / "out" / "groups").rglob("report.json")
    said = [path.read_text(encoding="utf-8") for path in (report, tmp_path / "out" / "fleet.json")]
    assert all("\u202e" not in text and "gr\u00fcn" not in text and "file-" not in text for text in said)
    assert all("rot \\u202efed.sqlite" in text for text in said)
    assert json.loads(said[0])["captures"][0]["path"] == str(capture)


@kept
def test_a_group_that_is_no_more_leaves_no_report_behind(captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    analyse([captures / "mig.sqlite", captures / "node-7" / "mps.sqlite"], out, workers=1)
    (out / "groups" / "mig" / "note.txt").write_text("mine")
    analyse([captures / "node-7" / "mps.sqlite"], out, workers=1)
    assert sorted(str(p.relative_to(out)) for p in (out / "groups").rglob("*.*")) == [
        "groups/mig/note.txt",
        "groups/mps/report.html",
        "groups/mps/report.json",
    ]


@kept
def test_a_mistyped_pattern_leaves_an_earlier_run_alone(fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    analyse(fixtures / "exclusive.sqlite", out, workers=1)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(NotACapture, match=r"typo.*no such capture"):
        analyse([tmp_path / "typo*.sqlite"], out, workers=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotACapture, match=r"empty: no capture in this folder"):
        analyse(tmp_path / "empty", out, workers=1)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@kept
def test_one_capture_of_a_group_may_break(captures: Path, tmp_path: Path) -> None:
    """Its header and metadata are whole, so that it is found out only when its events are read."""
    pod = captures / "node-7" / "containers" / "pod-b.sqlite"
    with sqlite3.connect(pod) as db:
        root, size = db.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        ).fetchone()
    db.close()
    data = bytearray(pod.read_bytes())
    data[(root - 1) * size : root * size] = b"\xff" * size
    pod.write_bytes(data)
    fleet = analyse(captures / "node-7" / "containers", tmp_path / "out", workers=2)
    assert [Path(failure.path).name for failure in fleet.failures] == ["pod-b.sqlite"]
    assert fleet.exit_code == 3
    assert [(row.captures, row.mode) for row in fleet.rows] == [(2, "time-slicing")]


def test_the_death_of_a_process_costs_only_its_own_capture(tmp_path: Path) -> None:
    tasks: list[tuple[Any, ...]] = [(abs, -number) for number in range(6)]
    tasks[2] = (os._exit, 9)
    tasks[4] = (os.kill, 0, "not a signal")  # raises, in the worker
    with Processes(2) as executor:
        outcomes = dict(executor.outcomes(operator.call, tasks))
    assert sorted(outcomes) == list(range(6))
    assert [outcomes[index] for index in (0, 1, 3, 5)] == [0, 1, 3, 5]
    assert isinstance(outcomes[2], WorkerDied)
    assert isinstance(outcomes[4], TypeError)


def test_what_died_beside_others_is_tried_again_alone(tmp_path: Path) -> None:
    flag = tmp_path / "died once"
    once = f"import os\nif not os.path.exists({str(flag)!r}):\n    open({str(flag)!r}, 'w').close()\n    os._exit(137)"
    with Processes(2) as executor:
        outcomes = dict(executor.outcomes(exec, [(once,), ("pass",), ("pass",)]))
    assert flag.exists(), "it did die"
    assert outcomes == {0: None, 1: None, 2: None}


def test_stopping_keeps_what_is_finished_and_nothing_half(fixtures: Path, tmp_path: Path) -> None:
    for number in range(8):
        vary(
            fixtures / "streams.sqlite",
            tmp_path / "captures" / f"run-{number}.sqlite",
            gpu=f"GPU-00000000-0000-0000-0000-00000000000{number}",
            session=f"00000000-0000-4000-8000-00000000000{number}",
        )
    out = tmp_path / "out"
    # The interrupt may come between the opening of a file and the name that holds it: no error of the program.
    process = command(tmp_path / "captures", "-o", out, "--workers", "1", start_new_session=True, strict=False)
    end = time.monotonic() + 60
    while not list(out.glob("groups/*/report.json")) and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.strip() == "pyanalyze: stopped"
    finished = len(list(out.glob("groups/*/report.json")))
    assert 1 <= finished < 8
    for path in out.rglob("*"):
        assert not path.name.endswith(".part")
        if path.suffix == ".json":
            json.loads(path.read_text())
    end = time.monotonic() + 20
    while alive(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(process.pid) == [], "no process works on for nobody"
    rest = analyse(tmp_path / "captures", out, workers=2)
    assert rest.reused >= finished
    assert (rest.analysed + rest.reused, rest.exit_code) == (8, 0)


@kept
def test_a_folder_that_holds_other_things_is_left_alone(fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputExists, match="--force"):
        analyse(fixtures / "mig.sqlite", tmp_path, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert analyse(fixtures / "mig.sqlite", tmp_path, workers=1, force=True).exit_code == 0
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_naming_nothing_is_said(fixtures: Path, tmp_path: Path) -> None:
    fleet = analyse(
        [fixtures / "mig.sqlite", tmp_path / "gone.sqlite", str(tmp_path / "*.x")], tmp_path / "o", workers=1
    )
    assert [Path(failure.path).name for failure in fleet.failures] == ["*.x", "gone.sqlite"]
    assert fleet.exit_code == 3
    assert [row.mode for row in fleet.rows] == ["mig"]
    with pytest.raises(UsageError):
        analyse([], tmp_path / "o")
    with pytest.raises(UsageError):
        analyse(fixtures / "mig.sqlite", tmp_path / "o", workers=0)
    odd = tmp_path / "run[1].sqlite"
    odd.touch()
    assert find([odd]) == ([odd], []), "a file whose name looks like a pattern is that file"


@kept
def test_what_programs_read_of_a_fleet(captures: Path, fixtures: Path, tmp_path: Path) -> None:
    """Summary by its schema, tables by polars, alerts by Prometheus' own parser, and a gate that reads no report."""
    out = tmp_path / "out"
    fleet = analyse(str(captures / "**" / "*.sqlite"), out, workers=2)
    summary = json.loads((out / "fleet.json").read_text())
    jsonschema.validate(summary, fleet_schema())
    assert FleetSummary.model_validate(summary) == fleet.summary
    assert summary["modes"] == {"mig": 1, "mps": 1, "time-slicing": 1}
    assert len(summary["failures"]) == 1
    # By hand: both records of what was configured in these captures (a MIG instance, an MPS server) agree.
    assert summary["agreement"] == {"agree": 2, "disagree": 0, "unknown": 1}

    devices = pl.read_parquet(out / "tables" / "devices" / "**" / "*.parquet", hive_partitioning=True)
    with (out / "fleet.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert devices.drop("date").columns == list(DEVICE_COLUMNS) == list(rows[0])
    by_group = {row["group"]: row for row in devices.iter_rows(named=True)}
    assert {row["group"]: row["mode"] for row in rows} == {name: row["mode"] for name, row in by_group.items()}
    # What lies in a partition began on that day.
    for row in by_group.values():
        assert f"{dt.datetime.fromtimestamp(row['start_utc_ns'] // 10**9, dt.UTC):%Y-%m-%d}" == str(row["date"])
    tenants = pl.read_parquet(out / "tables" / "tenants" / "**" / "*.parquet", hive_partitioning=True)
    assert tenants.filter(pl.col("group") == "containers").height == 2
    taken = pl.read_parquet(out / "tables" / "captures" / "**" / "*.parquet", hive_partitioning=True)
    assert sorted(Path(path).name for path in taken["path"]) == sorted(
        Path(one["path"]).name for group in summary["groups"] for one in group["captures"]
    )
    truth = json.loads((fixtures / "containers-same-pid.truth.json").read_text())
    origins = {one["name"].rpartition("/")[2]: one["origin_ns"] for one in truth["captures"]}
    begun = {Path(row["path"]).stem: row["start_utc_ns"] for row in taken.iter_rows(named=True)}
    # On one clock: pod-b's session began 250 ms after pod-a's, and so did its first record, give or take its start-up.
    assert abs((begun["pod-b"] - begun["pod-a"]) - (origins["pod-b"] - origins["pod-a"])) < 200_000_000

    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus_client is not installed")
    families = {
        family.name: family for family in parser.text_string_to_metric_families((out / "fleet.prom").read_text())
    }
    alarm = families["pyanalyze_gpu_configured_not_observed"].samples
    assert sorted((one.labels["group"], one.value) for one in alarm) == [("mig", 0.0), ("mps", 0.0)]
    assert families["pyanalyze_fleet_failed_captures"].samples[0].value == 1
    assert {one.labels["mode"] for one in families["pyanalyze_gpu_mode"].samples} == {"mig", "mps", "time-slicing"}

    # The summary and its lines are enough: neither captures nor reports are needed.
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("fleet.json", "check.jsonl"):
        shutil.copy(out / name, moved / name)
    outcomes = {
        (one.gate, one.subject.partition(":")[0]): one.status
        for one in check_fleet(moved, Limits(expect_mode=("m*",))).outcomes
    }
    assert outcomes.pop(("analysed", str(captures / "bad.sqlite"))) == "inconclusive", "nobody may take it for passed"
    assert outcomes == {
        ("expect_mode", "containers"): "failed",
        # One process was traced in the instance, and nothing excludes others.
        ("expect_mode", "mig"): "inconclusive",
        ("expect_mode", "mps"): "passed",
    }
    done = run("check", moved, "--expect-mode", "m*")
    assert done.returncode == 1
    assert "FAILED        expect-mode (containers:" in done.stdout


@kept
def test_the_gate_says_the_same_of_a_line_as_of_the_report(captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    analyse(captures / "node-7" / "containers", out, workers=1)
    limits = Limits(
        max_slowdown=1.2,
        max_switch_overhead=0.05,
        min_jain=0.9,
        min_sm_active=0.1,
        expect_agreement=True,
        max_memory=0.5,
        no_data_loss=True,
    )
    whole = check(Report.from_json((out / "groups" / "containers" / "report.json").read_text()), limits)
    slim = check_fleet(out / "fleet.json", limits)
    assert [(one.gate, one.status, one.detail) for one in slim.outcomes] == [
        (one.gate, one.status, one.detail) for one in whole.outcomes
    ]
    assert len(slim.outcomes) >= 7


@kept
def test_outliers_come_first_and_every_report_is_linked(captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fleet = analyse(str(captures / "**" / "*.sqlite"), out, workers=2)
    page = (out / "index.html").read_text()
    assert html.escape(fleet.summary.line) in page
    links = set(re.findall(r'href="(groups/[^"]+)"', page))
    assert links == {f"groups/{name}/report.html" for name in ("containers", "mig", "mps")}
    for link in links:
        assert (out / link).read_text().startswith("<!doctype html>")
    assert "default-src &#39;none&#39;" in page
    # Nothing is fetched: every address in attributes is one of ours beside the page.
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_what_stands_out() -> None:
    """Against a calculation by hand: of slowdowns 1.0 to 1.9 and 9 the middle is 1.5, the median deviation 0.3."""
    calm = [made_row(group=f"g{n}", worst_slowdown=1.0 + n / 10) for n in range(10)]
    slow = made_row(group="slow", worst_slowdown=9.0, worst_slowdown_low=8.0, worst_slowdown_tenant="b")
    unsure = made_row(group="unsure", worst_slowdown=1.5, worst_slowdown_low=1.0)
    wrong = made_row(group="wrong", configured="mps", mode="time-slicing", agrees=False)
    groups = [
        GroupPart(name=row.group, job=row.group, report="r", page="p", captures=[], shared_gpus=[], devices=[row])
        for row in [*calm, slow, unsure, wrong]
    ]
    summary = summarise("0", groups, [], [])
    spread = summary.slowdown
    assert (spread.n, spread.unknown, spread.median, spread.max) == (12, 1, 1.5, 9.0)
    # Deviations from the middle 1.5: .5 .4 .3 .2 .1 0 .1 .2 .3 .4 7.5 0; their median is 0.25.
    assert spread.outlier_above == pytest.approx(1.5 + 3 * 1.4826 * 0.25)
    assert [(one.group, one.why) for one in summary.attention] == [("wrong", ["configured"]), ("slow", ["slowdown"])]
    assert "1 of 13 has a known configuration: it does not match" in summary.line


def test_progress_says_how_fast_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    """No terminal: a line every half minute, nothing with -q."""
    now = [0.0]
    with ProgressLine(quiet=False, clock=lambda: now[0]) as report:
        assert report is not None
        for done in range(5):
            now[0] = done * 20.0
            report("analysing", done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "pyanalyze: analysing (20.0 s each, 32 min left): 2 of 100",
        "pyanalyze: analysing (20.0 s each, 32 min left): 4 of 100",
    ]
    with ProgressLine(quiet=True) as nobody:
        assert nobody is None
    assert rate(400, 10_000, 100.0) == " (4.0/s, 40 min left)"
    assert rate(1, 3, 7200.0) == " (7200.0 s each, 4 h 0 min left)"


def test_ten_thousand_nodes_are_arranged_at_once() -> None:
    """What is compared with what must not grow with the square of the fleet."""
    probes = [made(f"{n:05}", gpus=(f"GPU-{n // 2}",), host=f"h{n // 16}") for n in range(40_000)]
    probes = [replace(one, utc_origin_ns=1000 + n % 2) for n, one in enumerate(probes)]
    spans = {one.path: Span(0, 10, one.gpus) for one in probes}
    began = time.process_time()
    plan = arrange(probes, spans)
    assert len(plan.groups) == 20_000
    assert time.process_time() - began < 20


@kept
def test_what_was_recorded_beside_a_capture_counts(fixtures: Path, tmp_path: Path) -> None:
    """`pyanalyze record` describes the node beside the capture; without that nobody says what was configured."""
    folder = tmp_path / "recording"
    folder.mkdir()
    shutil.copy(fixtures / "demo-time-slicing.sqlite", folder / "capture.sqlite")
    plain = analyse(folder, tmp_path / "plain", workers=1)
    assert plain.rows[0].configured is None
    uuid = plain.rows[0].uuid
    listing = tmp_path / "listing.txt"
    listing.write_text(f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {uuid})\n")
    named = analyse(folder, tmp_path / "plain", workers=1, context=listing)
    assert (named.analysed, named.reused) == (1, 0), "other options are another result"
    again = analyse(folder, tmp_path / "plain", workers=1, context=listing)
    assert (again.analysed, again.reused) == (0, 1)
    (folder / "samples.jsonl").write_text("")
    (folder / "samples.jsonl").unlink()
    back = analyse(folder, tmp_path / "plain", workers=1)
    assert (back.analysed, back.reused) == (0, 1)


def made(path: str, **known: Any) -> CaptureProbe:
    plain: dict[str, Any] = {
        "sha256": path,
        "gpus": ("GPU-1",),
        "session_uuid": f"session of {path}",
        "utc_origin_ns": 1000,
        "schema": (3, 1),
        "sources": 1,
        "stamp": (0, 0),
    }
    return CaptureProbe(path=path, **{**plain, **known})


def grouped(probes: list[CaptureProbe], spans: dict[str, Span]) -> list[list[str]]:
    return sorted([sorted(one.path for one in group.captures) for group in arrange(probes, spans).groups])


def test_time_and_the_gpu_that_worked_make_a_job() -> None:
    one, other = made("a"), made("b", utc_origin_ns=1500)
    mine = Span(0, 600, ("GPU-1",))
    assert grouped([one, other], {"a": mine, "b": Span(100, 200, ("GPU-1",))}) == [["a", "b"]]  # 1000..1600, 1600..1700
    assert grouped([one, other], {"a": mine, "b": Span(101, 200, ("GPU-1",))}) == [["a"], ["b"]]
    assert grouped([one, other], {"a": mine, "b": Span(0, 200, ("GPU-2",))}) == [["a"], ["b"]], "listed, but idle"
    assert grouped([one, other], {"a": mine, "b": Span(None, None, ())}) == [["a"], ["b"]], "no events at all"
    unplaced = made("b", utc_origin_ns=None)
    assert grouped([one, unplaced], {"a": mine, "b": Span(0, 600, ("GPU-1",))}) == [["a"], ["b"]], "no common clock"
    assert shared_gpus([one, unplaced]) == []
    node = made("node", utc_origin_ns=0)
    spans = {"a": Span(0, 10, ("GPU-1",)), "b": Span(0, 10, ("GPU-2",)), "node": Span(0, 5000, ("GPU-1", "GPU-2"))}
    plan = arrange([one, other, node], spans)
    assert [[c.path for c in group.captures] for group in plan.groups] == [["node", "a", "b"]]
    assert plan.groups[0].gpus == ("GPU-1", "GPU-2")


@pytest.mark.parametrize(
    ("known", "duplicate"),
    [
        ({"session_uuid": "session of a", "sha256": "other bytes"}, True),
        ({"session_uuid": "session of a", "utc_origin_ns": None}, True),
        # Repeated capture ranges: one session, several reports, each from a time of its own.
        ({"session_uuid": "session of a", "utc_origin_ns": 2000}, False),
        # Old schemas have no session id.
        ({"session_uuid": None}, True),
        ({"session_uuid": None, "utc_origin_ns": 1001}, False),
        ({"session_uuid": None, "gpus": ()}, False),
        ({"session_uuid": None, "utc_origin_ns": None}, False),
        ({}, False),
        ({"sha256": "a"}, True),
    ],
)
def test_one_report_exported_twice_is_not_a_job_of_two(known: dict[str, Any], duplicate: bool) -> None:
    busy = Span(0, 10, ("GPU-1",))
    plan = arrange([made("b", **known), made("a")], {"a": busy, "b": busy})
    assert bool(plan.duplicates) is duplicate
    if duplicate:
        assert [(one.path, one.of) for one in plan.duplicates] == [("b", "a")]
        assert [[c.path for c in group.captures] for group in plan.groups] == [["a"]]


def test_the_richest_export_is_kept() -> None:
    poor, rich, new = made("a", sources=1), made("b", sources=3, schema=(2, 9)), made("c", sources=3, schema=(3, 10))
    same = [CaptureProbe(**{**vars(one), "session_uuid": "one"}) for one in (poor, rich, new)]
    assert [(one.path, one.of) for one in arrange(same, {}).duplicates] == [("a", "c"), ("b", "c")]


def test_folder_names_are_safe_and_unique() -> None:
    probes = [
        made(path) for path in ("x/run.sqlite", "y/run.sqlite", "z/RUN.sqlite", "../..sqlite", "n\x1b/ü b.sqlite")
    ]
    names = [group.name for group in arrange(probes, {}).groups]
    assert len({name.casefold() for name in names}) == len(probes)
    assert all(name == Path(name).name and name.isascii() and name.isprintable() and name[0] != "." for name in names)
    again = [group.name for group in arrange(probes[::-1], {}).groups]
    assert again == names


def test_equal_names_are_told_apart_by_their_folder() -> None:
    probes = [
        made(path) for path in ("a/run.sqlite", "b/run.sqlite", "1/c/run.sqlite", "2/c/run.sqlite", "a/other.sqlite")
    ]
    names = {group.captures[0].path: group.name for group in arrange(probes, {}).groups}
    assert names["a/run.sqlite"] == "a_run"
    assert names["b/run.sqlite"] == "b_run"
    assert names["a/other.sqlite"] == "other"
    assert names["1/c/run.sqlite"].startswith("c_run-")
    assert names["1/c/run.sqlite"] != names["2/c/run.sqlite"]


def true_mode(fixtures: Path, name: str) -> str:
    mode: str = json.loads((fixtures / f"{name}.truth.json").read_text())["devices"][0]["mode"]
    return mode


@kept
def test_every_fixture_is_its_own_job(fixtures: Path, tmp_path: Path) -> None:
    """The seed gives them one epoch, and some of them one GPU; no two recordings begin at the same nanosecond."""
    fleet = analyse(str(fixtures / "**" / "*.sqlite"), tmp_path / "out", workers=2)
    modes = {row.group: (row.captures, row.mode) for row in fleet.rows}
    assert modes.pop("containers-same-pid") == (3, "time-slicing")
    assert len(modes) == 8
    for name, (captures, mode) in modes.items():
        assert captures == 1
        assert mode == true_mode(fixtures, name), name
    # Only kernels were recorded of one: nobody can say that nobody else was there.
    conditions = {row.group: row.condition for row in fleet.rows if row.condition is not None}
    assert conditions == {"hostile-names": "unless-untraced-tenant", "mig": "unless-untraced-tenant"}


def test_a_name_does_not_become_a_formula() -> None:
    row = made_row(name="=cmd()\x1b[2J", worst_slowdown_low=-1.5)
    cells = next(csv.DictReader(fleet_csv([row]).splitlines()))
    assert cells["name"].startswith("'=cmd()")
    assert "\x1b" not in cells["name"]
    assert cells["worst_slowdown_low"] == "-1.5"


def test_what_a_capture_says_of_itself(fixtures: Path) -> None:
    """Against the simulation's books: the node's records cover 0 to 800 ms."""
    truth = json.loads((fixtures / "containers-same-pid.truth.json").read_text())
    node = str(fixtures / "containers-same-pid" / "node.sqlite")
    seen = span(node)
    assert seen.gpus == probe(node).gpus
    assert seen.start_ns is not None
    assert seen.end_ns is not None
    assert truth["window"]["start_ns"] <= seen.start_ns < seen.end_ns <= truth["window"]["end_ns"]
    pods = [probe(str(fixtures / "containers-same-pid" / f"{name}.sqlite")) for name in ("pod-a", "pod-b")]
    origins = {capture["name"].rpartition("/")[2]: capture["origin_ns"] for capture in truth["captures"]}
    assert pods[0].utc_origin_ns is not None
    assert pods[1].utc_origin_ns is not None
    assert pods[1].utc_origin_ns - pods[0].utc_origin_ns == origins["pod-b"] - origins["pod-a"]


def test_real_reports_in_several_schemas_are_one_each(corpus: Path, tmp_path: Path) -> None:
    """Which exports stand for one report is written in the corpus' own list; two have no session id at all."""
    exports = corpus / "exports"
    names = ["raiderstream/report1", "rtx3090-gpumetrics/report2", "mig-a30/report3", "balinski/report19"]
    found = sorted(path for name in names for path in exports.glob(f"{name}.*sqlite"))
    assert len(found) == 11
    probes = [probe(str(path)) for path in found]
    plan = arrange(probes, {one.path: span(one.path) for one in probes})
    assert len(plan.groups) == 4
    assert all(len(group.captures) == 1 for group in plan.groups)
    assert len(plan.duplicates) == 7


def test_real_recordings_of_one_gpu_at_several_times_stay_apart(corpus: Path) -> None:
    found = sorted((corpus / "exports" / "ctxsw-ada-timeslice").glob("*.sqlite"))
    probes = [probe(str(path)) for path in found]
    assert len(probes) == 4
    assert len(shared_gpus(probes)) == 4, "one GPU"
    plan = arrange(probes, {one.path: span(one.path) for one in probes})
    assert [len(group.captures) for group in plan.groups] == [1, 1, 1, 1]


def test_a_bound_is_not_printed_as_what_was_measured() -> None:
    said = {
        (None, None, None, None): "slowdown not known",
        (1.9, 1.0, 1.9, 1): "latency at most 1.90x of kit (pid 7), inferred (n = 1); elapsed 1.00x of kit (pid 8)",
        (1.1, 1.1, None, 10): "latency at least 1.10x of kit (pid 7), inferred (n = 10); elapsed 1.00x of kit (pid 8)",
        (2.04, None, None, 1): "latency 2.04x of kit (pid 7), inferred (n = 1); elapsed 1.00x of kit (pid 8)",
        (
            2.0,
            1.9,
            2.1,
            30,
        ): "latency 2.00x of kit (pid 7), inferred (bounds 1.90-2.10, n = 30); elapsed 1.00x of kit (pid 8)",
        (2.0, 2.0, 2.0, 30): "latency 2.00x of kit (pid 7), inferred (n = 30); elapsed 1.00x of kit (pid 8)",
    }
    names = ("worst_slowdown", "worst_slowdown_low", "worst_slowdown_high", "worst_slowdown_n")
    whose = {
        "worst_slowdown_kind": "latency",
        "other_slowdown": 1.0,
        "other_slowdown_tenant": "kit (pid 8)",
        "worst_slowdown_basis": "inferred",
        "worst_slowdown_tenant": "kit (pid 7)",
    }
    found = {row: worst_words(made_row(**dict(zip(names, row, strict=True)), **whose)) for row in said}
    assert found == said


def part_of(row: DeviceRow) -> GroupPart:
    return GroupPart(name=row.group, job=row.group, report="r", page="p", captures=[], shared_gpus=[], devices=[row])


def test_devices_without_a_configuration_match_nothing() -> None:
    """Of three devices one has a known configuration, and matches it."""
    rows = [made_row(group="a"), made_row(group="b"), made_row(group="c", configured="mps", agrees=True)]
    line = summarise("0", [part_of(row) for row in rows], [], []).line
    assert "1 of 3 has a known configuration: it matches;" in line


def test_a_few_slowdowns_have_no_percentiles() -> None:
    """1.0 and 2.12 of three shared devices; of 19 the high percentiles are their largest, of 20 p90 is the 18th."""
    few = [made_row(group="a", worst_slowdown=1.0), made_row(group="b", worst_slowdown=2.12), made_row(group="c")]
    summary = summarise("0", [part_of(row) for row in few], [], [])
    assert "largest slowdown of 2 of 3 shared devices: 1.00x to 2.12x" in summary.line
    page = render_overview(summary)
    assert ">Smallest<" in page
    assert not {">p50<", ">p90<", ">p99<"} & set(re.findall(r">[^<>]+<", page))
    many = [part_of(made_row(group=f"g{n:02}", worst_slowdown=1 + n / 100)) for n in range(1, 21)]
    assert summarise("0", many[:19], [], []).slowdown.p90 is None
    assert summarise("0", many, [], []).slowdown.p90 == pytest.approx(1.18)


@kept
def test_a_fleet_says_how_much_of_a_recording_an_export_holds(tmp_path: Path) -> None:
    """`DIAGNOSTIC_EVENT` of this export says 1 740 switch records and 7 356 CUDA events; it has 320 and 1 316."""
    capture = Path(__file__).parent.parent / "fixtures/hardware/h200/slices-paced-B.sqlite"
    out = tmp_path / "out"
    fleet = analyse(capture, out, workers=1)
    (row,) = fleet.rows
    assert row.export_cut
    assert row.switch_records_held == pytest.approx(320 / 1740)
    assert row.cuda_events_held == pytest.approx(1316 / 7356)
    (cells,) = csv.DictReader((out / "fleet.csv").read_text().splitlines())
    assert cells["export_cut"] == "true"
    page = (out / "index.html").read_text()
    assert "18 % of CUDA events, 18 % of switch records" in page
    assert f"latency of {row.worst_slowdown_tenant}; bounds " in page
    assert "pyanalyze_gpu_export_cut{" in (out / "fleet.prom").read_text()
    # Latency is worst for one, and elapsed for the other: `report` has 1.59x (1.39-1.81) of pid 1251.
    told = worst_words(row)
    assert told.startswith(
        "latency 1.64x of kit (pid 1250), inferred (bounds 1.61-1.66, n = 80); elapsed 1.59x of kit (pid 1251)"
    )
    assert "(bounds 1.39-1.81, n = 331)" in told
    assert cells["other_slowdown_tenant"] == "kit (pid 1251)"
    assert "elapsed 1.59x of kit (pid 1251) (bounds 1.39-1.81)" in page
    # Both tenants are called kit: the name alone says nothing.
    assert row.worst_slowdown_tenant is not None
    assert row.worst_slowdown_tenant.startswith("kit (pid ")


def test_counter_samples_that_were_not_exported_are_named_as_such(tmp_path: Path) -> None:
    """By `DIAGNOSTIC_EVENT` the export has every CUDA event, and none of 36 949 samples; no slowdown rests on samples."""
    capture = Path(__file__).parent.parent / "fixtures/hardware/h100/mps-A-B.sqlite"
    (row,) = analyse(capture, tmp_path / "out", workers=1).rows
    assert (row.export_cut, row.counter_samples_held) == (True, 0.0)
    assert held_words(row) == "the export holds no counter samples"
    assert "a solo recording is needed" in worst_words(row)
    # Switches were recorded, and there was none: both ends of what they cost are 0.
    assert (row.switches, row.switch_overhead_fraction, row.switch_overhead_high) == (0, 0.0, 0.0)


def test_costly_switches_are_judged_where_all_co_ran(tmp_path: Path) -> None:
    """By SQL gaps take 52.0142 of the 1011.664 ms in which both had work, and 1.2 % of the window."""
    capture = Path(__file__).parent.parent / "fixtures/hardware/h100/slices-A-B.sqlite"
    fleet = analyse(capture, tmp_path / "out", workers=1)
    (row,) = fleet.rows
    assert row.co_run_switch_overhead_fraction == pytest.approx(52.0142 / 1011.664401)
    assert "switches" in fleet.summary.attention[0].why
    assert "context switches cost 5.1 % of the time in which all tenants co-ran" in fleet.summary.attention[0].detail


def test_who_is_not_known_may_be_the_worst() -> None:
    def tenant(
        number: int, slowdown: float | None, server: int | None = None, *, traced: bool = True, low: float = 1.01
    ) -> dict[str, Any]:
        estimate = (
            None if slowdown is None else {"value": slowdown, "low": low, "high": 9.0, "n": 3, "basis": "inferred"}
        )
        kinds = {"elapsed": estimate, "latency": estimate}
        busy = 5 if traced else None
        ids = {"tenant_id": number, "name": f"t{number}", "pid": number, "host_pid": None, "served_by": server}
        return {**ids, "busy_ns": busy, "slowdown": kinds}

    server = tenant(0, None, traced=False)
    assert _worst([server, tenant(1, 1.0, 0), tenant(2, None, 0)]) == {}, "at least 1.00 is no figure"
    at_least = _worst([tenant(1, 2.0), tenant(2, None)])
    assert (at_least["worst_slowdown"], at_least["worst_slowdown_high"]) == (2.0, None)
    assert _worst([tenant(1, 2.0, low=0.5), tenant(2, None)]) == {}, "nor is one that may be chance"
    assert _worst([tenant(1, 1.02), tenant(2, None)]) == {}, "nor is one below what a replay misses"
    # One that is shown comes before a larger one that is not.
    assert _worst([tenant(1, 1.2), tenant(2, 2.0, low=0.5)])["worst_slowdown"] == 1.2
    whole = _worst([server, tenant(1, 1.0, 0), tenant(2, 1.02, 0)])
    assert (whole["worst_slowdown"], whole["worst_slowdown_high"]) == (1.02, 9.0)
    # The other kind is known of one tenant only: it is a lower bound, and none where it may be chance.
    one = {
        **tenant(1, 2.0),
        "slowdown": {"elapsed": None, "latency": {"value": 2.0, "low": 1.9, "high": 2.1, "n": 3, "basis": "inferred"}},
    }
    other = _worst([one, tenant(2, 1.5)])
    assert (other["worst_slowdown"], other["other_slowdown"], other["other_slowdown_high"]) == (2.0, 1.5, None)
    assert "other_slowdown" not in _worst([one, tenant(2, 1.01)])
    # Two clients and their server are two.
    assert _counted([server, tenant(1, 1.0, 0), tenant(2, None, 0)]) == 2


def test_the_middle_of_two_lies_between_them() -> None:
    groups = [
        GroupPart(name=row.group, job=row.group, report="r", page="p", captures=[], shared_gpus=[], devices=[row])
        for row in (
            made_row(group="a", worst_slowdown=1.0, end_utc_ns="1777676911123456789"),
            made_row(group="b", worst_slowdown=2.12),
        )
    ]
    summary = summarise("0", groups, [], [])
    assert summary.slowdown.median == pytest.approx(1.56)
    assert 'uuid=""' not in openmetrics(summary)
    assert "} 1777676911\n" in openmetrics(summary), "not rounded to ten seconds"
