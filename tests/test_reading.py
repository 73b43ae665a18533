"""What stopped a reader who knows GPU profiling and not this program: each line is a sentence that was misread."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import report_examples as examples
from shared_sessions import load
from test_oncall import REPLICAS, TWO, kubectl, node, pod, write
from test_sharing import ALONE, TURNS, case

import pyanalyze
from pyanalyze.analysis.advice.options import _p99
from pyanalyze.analysis.interference.units import ENOUGH
from pyanalyze.analysis.sharing import Configured, judge
from pyanalyze.report.sentences.mode import agreement_text
from pyanalyze.report.text import render_text
from pyanalyze.results.advice import Advice, numbers_of
from pyanalyze.vocabulary import Mode

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.report import Report

DAEMON = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]


def test_a_mode_taken_from_a_setting_does_not_agree_with_it() -> None:
    verdict = judge(case({**ALONE, "traced_tenants": 2}, configured=DAEMON))
    assert (verdict.mode, verdict.configured, verdict.agrees) == ("mps", "mps", None)
    (device,) = examples.time_sliced().devices
    said = agreement_text(device.model_copy(update={"sharing": verdict}))
    assert "taken from it" in said
    assert "matches" not in said
    # Observed switches against a setting are a comparison.
    assert judge(case(TURNS, configured=DAEMON)).agrees is False


@pytest.mark.parametrize(
    ("facts", "configured"), [(TURNS, ()), (ALONE, ()), (ALONE, DAEMON), ({**ALONE, "traced_tenants": 2}, ())]
)
def test_the_modes_add_up_to_one(facts: dict[str, float], configured: tuple[Configured, ...]) -> None:
    verdict = judge(case(facts, configured=tuple(configured)))
    total = sum(one.confidence for one in verdict.alternatives)
    if verdict.mode != Mode.UNDETERMINED:
        # Where the evidence excludes all others, what is left of 1 belongs to none of them.
        total = 1.0 if not verdict.alternatives else total + verdict.confidence
    assert total == pytest.approx(1.0, abs=0.02)


def test_kernels_a_second_are_of_the_elapsed_time(fixtures: Path) -> None:
    (device,) = load(fixtures / "demo-time-slicing.sqlite").report().devices
    known = [t for t in device.tenants if t.throughput is not None]
    assert len(known) == 2
    for tenant in known:
        assert tenant.throughput is not None
        assert tenant.slowdown.elapsed is not None
        ratio = tenant.throughput.solo_per_s / tenant.throughput.shared_per_s
        assert ratio == pytest.approx(tenant.slowdown.elapsed.value, rel=1e-9)


def test_a_client_and_its_server_are_no_pair(fixtures: Path) -> None:
    (device,) = load(fixtures / "mps.sqlite").report().devices
    servers = {t.served_by for t in device.tenants} - {None}
    assert len(servers) == 1
    assert [relation.tenants for relation in device.relations] == [(0, 1)]
    assert " 0.00" not in render_text(load(fixtures / "mps.sqlite").report(), sections=("sharing",))


def test_percentiles_need_operations() -> None:
    rows = [{"operations": ENOUGH, "latency_p99_ns": 7}, {"operations": ENOUGH, "latency_p99_ns": 9}]
    assert _p99(rows) == 9
    assert _p99([*rows, {"operations": 1, "latency_p99_ns": 1}]) is None


def action(name: str, *, exclusive: bool) -> Advice:
    return Advice(action=name, commands=[], expected=None, bound=None, why="w", undo=None, exclusive=exclusive)


def test_actions_that_exclude_each_other_are_no_sequence() -> None:
    actions = [action("look", exclusive=False), action("mps", exclusive=True), action("mig", exclusive=True)]
    assert numbers_of(actions) == ["1", "2a", "2b"]
    report = examples.time_sliced()
    (device,) = report.devices
    shown = report.model_copy(update={"devices": [device.model_copy(update={"advice": actions})]})
    text = render_text(shown, sections=("advice",))
    assert "2a and 2b are alternatives: choose one" in text
    assert re.search(r"^\* 1\. look", text, re.MULTILINE)


def sampled(tmp_path: Path) -> Report:
    objects = kubectl(tmp_path, node(**REPLICAS), pod("web-7f9c"), pod("train-bert-0"))
    return pyanalyze.load(samples=write(tmp_path, "a.prom", TWO), context=objects).report()


def test_samples_are_no_captures_and_have_no_exact_clock(tmp_path: Path, fixtures: Path) -> None:
    text = render_text(sampled(tmp_path), sections=("provenance",))
    assert "Clock uncertainty" not in text
    assert "Captures" not in text
    assert "Samples (sampled)." in text
    traced = render_text(load(fixtures / "mig.sqlite").report(), sections=("provenance",))
    assert "Clock uncertainty" in traced
    assert "Captures (observed)." in traced


def test_that_there_is_no_capture_is_said_where_what_is_missing_stands(tmp_path: Path) -> None:
    text = render_text(sampled(tmp_path))
    (listed,) = [part for part in text.split("\n\n") if part.startswith("Not available\n")]
    assert text.replace(listed, "").count("only samples") == 0
    assert "No tenant was traced" not in text
    assert "0 of 0" not in text
    assert "most likely none" not in text


def test_a_reason_stands_once_in_a_section(fixtures: Path) -> None:
    text = render_text(load(fixtures / "mig.sqlite").report(), sections=("residency", "interference"))
    for section in text.split("\n\n"):
        sentences = [one.strip() for one in re.split(r"(?<=[.])\s", " ".join(section.split())) if len(one) > 40]
        assert len(sentences) == len(set(sentences)), section


def test_sms_active_are_a_mean_over_the_window(fixtures: Path) -> None:
    text = render_text(load(fixtures / "demo-time-slicing.sqlite").report())
    assert re.search(r"SMs active, mean over the\s+window: \d+ % \(\d+ to \d+\)", text)


def test_a_counter_without_detail_says_what_it_means(fixtures: Path) -> None:
    report = examples.time_sliced()
    (row, *_) = report.quality
    bare = row.model_copy(update={"name": "diagnostic_warning", "detail": "", "severity": "notice"})
    text = " ".join(render_text(report.model_copy(update={"quality": [bare]}), sections=("quality",)).split())
    assert "nsys itself warned or reported errors while recording" in text


def test_the_query_for_messages_of_nsys_finds_all_that_were_counted(corpus: Path) -> None:
    """Six warnings and two errors, none of which says that data was lost."""
    path = corpus / "exports" / "ngp-graph" / "baseline.nsys2026.sqlite"
    report = load(path).report()
    (row,) = (one for one in report.quality if one.name == "diagnostic_warning")
    shown = " ".join(render_text(report, sections=("quality",)).split())
    said = re.search(r"SELECT text FROM DIAGNOSTIC_EVENT WHERE severity IN \([\d, ]+\)", shown)
    assert said is not None
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT level.name, count(*) FROM DIAGNOSTIC_EVENT AS event
            JOIN ENUM_DIAGNOSTIC_SEVERITY_LEVEL AS level ON level.id = event.severity GROUP BY 1"""
        counted = dict(db.execute(query).fetchall())
        assert row.count == len(db.execute(said.group()).fetchall()) == counted["Warning"] + counted["Error"] == 8


def test_what_lists_clients_is_what_is_asked_for() -> None:
    verdict = judge(case(TURNS, configured=DAEMON))
    (gap,) = [one for one in verdict.missing if one.what == "mps_clients"]
    assert gap.how.startswith("echo ps | nvidia-cuda-mps-control")


def test_counts_of_samples_say_what_is_counted(tmp_path: Path, fixtures: Path) -> None:
    for name in ("query-gpu.csv", "dmon.txt"):
        path = fixtures.parent / "samples" / name
        for row in pyanalyze.load(samples=path).report().quality:
            if row.name in ("samples_local_time", "samples_not_aligned"):
                assert row.detail.startswith("sampled values")
