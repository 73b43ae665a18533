"""The verdict on hand-made facts: both sides of each threshold, and what must never be concluded."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import generate
import pytest
from command_line import run
from exports import MS, US, kernel, write
from shared_sessions import load
from test_idle_starts import launched
from test_utilization import sampled
from verdicts import judged

import pyanalyze
from pyanalyze.analysis.impact import impact_of
from pyanalyze.analysis.sharing import MODES, RULES, Case, Configured, Fact, evidence, judge, observe
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.classify import _agrees
from pyanalyze.analysis.sharing.details import mps_limit
from pyanalyze.analysis.sharing.facts import Pair, pairs_of
from pyanalyze.analysis.sharing.idle_starts import idle_start_facts
from pyanalyze.analysis.sharing.observations import SEEN_WHEN
from pyanalyze.analysis.sharing.segments import segments
from pyanalyze.analysis.sharing.turns import turn_facts
from pyanalyze.analysis.sharing.utilization import utilization_facts
from pyanalyze.inputs.context import read_context
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.rendering import render
from pyanalyze.report.summary import render_summary
from pyanalyze.vocabulary import MIN_CONFIDENCE, TRAITS, Answer, Mode, condition_text


def fact(value: float, n: int = 1000, unit: str = "1") -> Fact:
    return Fact(value, unit, n, "observed", "hand-made")


def case(facts: dict[str, float], **changes: object) -> Case:
    made = {name: fact(value) for name, value in facts.items()}
    base = Case(0, "NVIDIA A100-SXM4-40GB", None, None, None, (8, 0), 108, made, (), {}, ("a", "b"))
    return replace(base, **changes)  # type: ignore[arg-type]


TURNS = {
    "busy_ns": 1e9,
    "switch_records": 2430,
    "traced_tenants": 1,
    "switches_between_tenants": 1213,
    "alternation_share": 0.99,
    "median_slice_ns": 2.13e6,
    "resident_share_top": 0.51,
    "resident_share_untraced": 0.51,
    "stream_overlap_share": 0.0,
    "streams_used": 1,
}
ALONE = {
    "busy_ns": 1e9,
    "traced_tenants": 1,
    "stream_overlap_share": 0.0,
    "streams_used": 1,
    "preemption_exposure": 470.0,
    "unbroken_exposure": 470.0,
    "inflated_share": 0.0,
    "deviating_share": 0.0,
}
#: Kernels that nothing interrupted, in work that a busy tenant would have interrupted a hundred times.
STABLE = {"inflated_share": 0.0, "deviating_share": 0.0, "preemption_exposure": 100.0, "unbroken_exposure": 100.0}


def test_turns_are_time_slicing_even_beside_one_traced_process() -> None:
    verdict = judge(case(TURNS))
    assert (verdict.mode, verdict.basis) == ("time-slicing", "observed")
    assert verdict.posterior > 0.99
    # No more than how often verdicts on simulated recordings were right.
    assert MIN_CONFIDENCE < verdict.confidence < 0.99


def test_an_mps_daemon_does_not_outweigh_switches() -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    verdict = judge(case(TURNS, configured=daemon))
    assert verdict.mode == "time-slicing"
    assert verdict.configured == "mps"
    assert verdict.agrees is False


@pytest.mark.parametrize(
    ("rows", "configured", "agrees"),
    [
        (["strategy=time-slicing replicas=4 resource=nvidia.com/gpu"], "time-slicing", True),
        (["strategy=mps replicas=4", "strategy=mps claim=a/b percentage=50"], "mps", False),
        # A cluster that does both says nothing of this GPU.
        (["strategy=mps replicas=4", "strategy=time-slicing replicas=2"], None, None),
    ],
)
def test_what_kubernetes_offers_is_configured(rows: list[str], configured: str | None, agrees: bool | None) -> None:
    offered = [Configured("kubernetes", "k8s_sharing", row) for row in rows]
    verdict = judge(case(TURNS, configured=offered))
    assert (verdict.mode, verdict.configured, verdict.agrees) == ("time-slicing", configured, agrees)
    # One tenant alone does not contradict an offer to several.
    assert judge(case(ALONE, tenants=("a",), configured=offered)).agrees is None


@pytest.mark.parametrize(("switches", "seen"), [(t.MIN_ALTERNATIONS - 1, False), (t.MIN_ALTERNATIONS, True)])
def test_a_few_switches_are_no_alternation(switches: float, seen: bool) -> None:
    assert ("contexts_alternate" in observe(case({**TURNS, "switches_between_tenants": switches}))) is seen


@pytest.mark.parametrize(
    ("fact_name", "below", "above", "observation"),
    [
        ("alternation_share", t.MIN_ALTERNATION_SHARE - 0.01, t.MIN_ALTERNATION_SHARE, "contexts_alternate"),
        (
            "stream_overlap_share",
            t.MIN_STREAM_OVERLAP_SHARE - 0.001,
            t.MIN_STREAM_OVERLAP_SHARE,
            "streams_overlap",
        ),
        ("stream_overlap_share", t.MAX_TAIL_OVERLAP_SHARE + 0.001, t.MAX_TAIL_OVERLAP_SHARE, "streams_apart"),
        (
            "short_overlap_share",
            t.MIN_SHORT_OVERLAP_SHARE - 0.001,
            t.MIN_SHORT_OVERLAP_SHARE,
            "short_kernels_overlap",
        ),
        (
            "short_overlap_share",
            t.MAX_EXCLUSION_SHARE + 0.001,
            t.MAX_EXCLUSION_SHARE,
            "short_kernels_exclude",
        ),
        (
            "short_overlap_expected",
            t.MIN_EXPECTED_OVERLAP_SHARE - 0.01,
            t.MIN_EXPECTED_OVERLAP_SHARE,
            "short_kernels_exclude",
        ),
        ("unbroken_exposure", t.MIN_EXPOSURE - 0.1, t.MIN_EXPOSURE, "kernel_durations_stable"),
        ("inflated_share", t.MIN_INFLATED_SHARE - 0.001, t.MIN_INFLATED_SHARE, "kernel_durations_inflated"),
        ("inflation_spread", t.MAX_SLICE_SPREAD + 0.001, t.MAX_SLICE_SPREAD, "kernel_durations_inflated_by_slices"),
        ("crowded_start_share", t.MIN_CROWDED_SHARE - 0.001, t.MIN_CROWDED_SHARE, "co_residency_infeasible"),
        (
            "crowded_start_share",
            t.MAX_PARTIAL_WAVE_SHARE + 0.001,
            t.MAX_PARTIAL_WAVE_SHARE,
            "starts_in_partial_last_wave",
        ),
        (
            "metric_outside_pct",
            t.MAX_QUIET_SM_ACTIVE_PCT + 0.1,
            t.MAX_QUIET_SM_ACTIVE_PCT,
            "sm_idle_outside_traced_kernels",
        ),
        (
            "metric_outside_pct",
            t.MIN_LOUD_SM_ACTIVE_PCT - 0.1,
            t.MIN_LOUD_SM_ACTIVE_PCT,
            "sm_active_outside_traced_kernels",
        ),
    ],
)
def test_both_sides_of_each_threshold(fact_name: str, below: float, above: float, observation: str) -> None:
    facts = {
        **TURNS,
        **ALONE,
        "short_overlap_share": 0.0,
        "short_overlap_expected": t.MIN_EXPECTED_OVERLAP_SHARE,
    }
    if observation == "kernel_durations_inflated_by_slices":
        facts |= {"inflated_share": 0.2, "inflation_ns": 2.2e6, "inflation_ratio_spread": 0.5}
    if observation == "co_residency_infeasible":
        facts["inflation_ns"] = 2.2e6
    if observation.startswith("kernel_durations_inflated"):
        facts["deviating_share"] = t.MIN_INFLATED_SHARE
    assert observation not in observe(case({**facts, fact_name: below}))
    assert observation in observe(case({**facts, fact_name: above}))


@pytest.mark.parametrize(
    ("excess_ns", "excess_spread", "ratio_spread", "seen"),
    [
        # Kernels of several lengths, all longer by the same: whatever it is.
        (14e6, 0.02, 0.08, True),
        (14e6, 0.02, 0.079, False),
        # Of one length: only a default slice is known by its length.
        (1.9e6, 0.02, 0.02, True),
        (1.89e6, 0.02, 0.02, False),
        (2.6e6, 0.02, 0.02, True),
        (2.61e6, 0.02, 0.02, False),
    ],
)
def test_slices_add_and_contention_multiplies(
    excess_ns: float, excess_spread: float, ratio_spread: float, *, seen: bool
) -> None:
    facts = {"inflated_share": 0.2, "inflation_ns": excess_ns, "inflation_spread": excess_spread}
    found = observe(case({**ALONE, **facts, "inflation_ratio_spread": ratio_spread}))
    assert ("kernel_durations_inflated_by_slices" in found) is seen
    few = {name: replace(fact(value), n=int(t.MIN_INFLATED) - 1) for name, value in facts.items()}
    made = {name: fact(value) for name, value in ALONE.items()}
    assert "kernel_durations_inflated_by_slices" not in observe(replace(case({}), facts={**made, **few}))


@pytest.mark.parametrize(("n", "seen"), [(t.MIN_CROWDED_STARTS - 1, False), (t.MIN_CROWDED_STARTS, True)])
def test_few_kernels_beside_wide_ones_say_nothing(n: float, *, seen: bool) -> None:
    made = {"crowded_start_share": fact(1.0, n=int(n)), "inflation_ns": fact(2.2e6)}
    assert ("co_residency_infeasible" in observe(replace(case({}), facts=made))) is seen


@pytest.mark.parametrize(
    ("limit", "busy", "seen"),
    [("30", 0.85, True), ("30", 0.86, False), ("100", 0.5, False), ("0", 0.5, False), ("", 0.5, False)],
)
def test_a_limiter_that_left_the_gpu_idle_held_back(limit: str, busy: float, *, seen: bool) -> None:
    rows = [Configured("environment", "CUDA_DEVICE_SM_LIMIT", limit)]
    found = observe(case({**TURNS, "busy_share": busy}, configured=rows))
    assert ("idle_behind_limiter" in found) is seen
    if seen:
        assert judge(case({**TURNS, "busy_share": busy}, configured=rows)).mode == "software-limited"


#: Thresholds with a test of their own in this file, or that decide nothing by themselves.
TESTED_ELSEWHERE = {
    "MIN_TURNS_EACH",
    "MIN_SLICES_DUE",
    "MIN_KERNELS_TO_SLICES",
    "MAX_UNINTERRUPTED_SHARE",
    "MIN_EXPECTED_SWITCHES",
    "MIN_QUICK_CHANGES",
    "MAX_CLOCK_ERROR_NS",
    "MIN_ALTERNATIONS",
    "MIN_ALTERNATION_SHARE",
    "MIN_STREAM_OVERLAP_SHARE",
    "MAX_TAIL_OVERLAP_SHARE",
    "MIN_SHORT_OVERLAP_SHARE",
    "MAX_EXCLUSION_SHARE",
    "MIN_EXPECTED_OVERLAP_SHARE",
    "MIN_EXPOSURE",
    "MIN_INFLATED_SHARE",
    "MAX_SLICE_SPREAD",
    "MIN_CROWDED_SHARE",
    "MAX_PARTIAL_WAVE_SHARE",
    "MAX_QUIET_SM_ACTIVE_PCT",
    "MIN_LOUD_SM_ACTIVE_PCT",
    "MIN_RATIO_TO_EXCESS_SPREAD",
    "DEFAULT_SLICE_EXCESS_NS",
    "MIN_INFLATED",
    "MIN_CROWDED_STARTS",
    "MAX_HELD_BACK_BUSY_SHARE",
    "MIN_SHORT_KERNELS",
    "LONGEST_SLICE_NS",
    "MAX_TELLING_PERCENTAGE",
    "MAX_INTERRUPTED_SHARE",
    "MIN_GROUP_SWITCH_SHARE",
    "MIN_REPEATED_SHARE",
    "WHOLE_PERCENTAGE",
    "MOST_INSTANCES",
    "DEFAULT_SLICE_NS",
    "SHORT_KERNEL_NS",
}
#: Weights are no thresholds.
WEIGHTS = {"DECISIVE", "STRONG", "MODERATE", "WEAK", "RARE"}
#: Launches of an idle process, of which some waited the same time.
WAITS: dict[str, float | tuple[float, int]] = {
    "idle_start_delayed_share": (1.0, 20),
    "idle_start_delay_ns": (2.18e6, 20),
    "idle_start_wait_spread": 0.01,
}
#: Threshold, facts on either side of it (value and n where that counts), and the observation that only the second allows.
SIDES: list[tuple[str, dict[str, float | tuple[float, int]], dict[str, float | tuple[float, int]], str]] = [
    (
        "SOLE_RESIDENT_SHARE",
        {"resident_share_top": t.SOLE_RESIDENT_SHARE - 0.001},
        {"resident_share_top": t.SOLE_RESIDENT_SHARE},
        "sole_resident",
    ),
    (
        "SOLE_RESIDENT_SHARE",
        {"resident_share_untraced": 1 - t.SOLE_RESIDENT_SHARE - 0.001},
        {"resident_share_untraced": 1 - t.SOLE_RESIDENT_SHARE},
        "untraced_resident",
    ),
    (
        "MIN_SLICES",
        {"resident_share_top": (1.0, int(t.MIN_SLICES) - 1)},
        {"resident_share_top": (1.0, int(t.MIN_SLICES))},
        "sole_resident",
    ),
    (
        "MIN_REPEATS",
        {**STABLE, "deviating_share": (0.0, int(t.MIN_REPEATS) - 1)},
        {**STABLE, "deviating_share": (0.0, int(t.MIN_REPEATS))},
        "kernel_durations_stable",
    ),
    (
        "MIN_PROMPT_START_SHARE",
        {"prompt_start_share": t.MIN_PROMPT_START_SHARE - 0.001},
        {"prompt_start_share": t.MIN_PROMPT_START_SHARE},
        "prompt_starts",
    ),
    (
        "MIN_PROMPT_STARTS",
        {"prompt_start_share": (1.0, int(t.MIN_PROMPT_STARTS) - 1)},
        {"prompt_start_share": (1.0, int(t.MIN_PROMPT_STARTS))},
        "prompt_starts",
    ),
    (
        "MIN_REPEATS",
        {"inflated_share": (0.5, int(t.MIN_REPEATS) - 1), "preemption_exposure": 100.0},
        {"inflated_share": (0.5, int(t.MIN_REPEATS)), "preemption_exposure": 100.0},
        "kernel_durations_inflated",
    ),
    (
        "MAX_STABLE_SHARE",
        {**STABLE, "deviating_share": t.MAX_STABLE_SHARE + 0.0001},
        {**STABLE, "deviating_share": t.MAX_STABLE_SHARE},
        "kernel_durations_stable",
    ),
    (
        "MIN_COUNTER_SAMPLES",
        {"metric_outside_pct": (0.0, int(t.MIN_COUNTER_SAMPLES) - 1)},
        {"metric_outside_pct": (0.0, int(t.MIN_COUNTER_SAMPLES))},
        "sm_idle_outside_traced_kernels",
    ),
    (
        "MIN_COUNTER_SAMPLES",
        {"metric_outside_pct": (90.0, int(t.MIN_COUNTER_SAMPLES) - 1)},
        {"metric_outside_pct": (90.0, int(t.MIN_COUNTER_SAMPLES))},
        "sm_active_outside_traced_kernels",
    ),
    (
        "MIN_CO_BUSY_SHARE",
        {
            "co_busy_share": t.MIN_CO_BUSY_SHARE - 0.001,
            "co_busy_ns": 1e9,
            "switches_between_tenants": 0,
            "switch_records": 10,
        },
        {
            "co_busy_share": t.MIN_CO_BUSY_SHARE,
            "co_busy_ns": 1e9,
            "switches_between_tenants": 0,
            "switch_records": 10,
        },
        "busy_without_switches",
    ),
    (
        # Two switches: three slices, which may be as long as slices are.
        "LONGEST_SLICE_NS",
        {
            "co_busy_share": 0.5,
            "co_busy_ns": 3 * t.LONGEST_SLICE_NS,
            "switches_between_tenants": 2,
            "switch_records": 10,
        },
        {
            "co_busy_share": 0.5,
            "co_busy_ns": 3 * t.LONGEST_SLICE_NS + 1,
            "switches_between_tenants": 2,
            "switch_records": 10,
        },
        "busy_without_switches",
    ),
    (
        "MIN_INFLATED",
        {"inflated_share": 0.01, "inflation_ns": (1e6, int(t.MIN_INFLATED) - 1), "preemption_exposure": 100.0},
        {"inflated_share": 0.01, "inflation_ns": (1e6, int(t.MIN_INFLATED)), "preemption_exposure": 100.0},
        "interrupted_kernels",
    ),
    (
        "MIN_TURNS",
        {"turn_ns": (9e7, t.MIN_TURNS - 1), "turn_pause_share": 0.05},
        {"turn_ns": (9e7, t.MIN_TURNS), "turn_pause_share": 0.05},
        "turns_in_software",
    ),
    (
        "LONGEST_SLICE_NS",
        {"turn_ns": (t.LONGEST_SLICE_NS, 10), "turn_pause_share": 0.05},
        {"turn_ns": (t.LONGEST_SLICE_NS + 1, 10), "turn_pause_share": 0.05},
        "turns_in_software",
    ),
    (
        "MAX_TURN_PAUSE_SHARE",
        {"turn_ns": (9e7, 10), "turn_pause_share": t.MAX_TURN_PAUSE_SHARE + 0.01},
        {"turn_ns": (9e7, 10), "turn_pause_share": t.MAX_TURN_PAUSE_SHARE},
        "turns_in_software",
    ),
    (
        "MIN_SLICE_WAITS",
        {"idle_start_wait_ns": (2.18e6, int(t.MIN_SLICE_WAITS) - 1), **WAITS},
        {"idle_start_wait_ns": (2.18e6, int(t.MIN_SLICE_WAITS)), **WAITS},
        "waits_of_time_slices",
    ),
    (
        "MIN_SLICE_WAITS",
        {"idle_start_delayed_share": (0.5, 20), "idle_start_delay_ns": (5e5, int(t.MIN_SLICE_WAITS) - 1)},
        {"idle_start_delayed_share": (0.5, 20), "idle_start_delay_ns": (5e5, int(t.MIN_SLICE_WAITS))},
        "idle_starts_delayed",
    ),
    (
        "MIN_DELAYED_SHARE",
        {"idle_start_delayed_share": (t.MIN_DELAYED_SHARE - 0.001, 999), "idle_start_delay_ns": (5e5, 50)},
        {"idle_start_delayed_share": (t.MIN_DELAYED_SHARE, 999), "idle_start_delay_ns": (5e5, 50)},
        "idle_starts_delayed",
    ),
    (
        "MIN_UTILIZATION_EXCESS_PCT",
        {"utilization_pct": (98.0, 9), "utilization_traced_pct": 98.0 - t.MIN_UTILIZATION_EXCESS_PCT + 0.1},
        {"utilization_pct": (98.0, 9), "utilization_traced_pct": 98.0 - t.MIN_UTILIZATION_EXCESS_PCT},
        "utilization_above_traced",
    ),
    (
        "MIN_UTILIZATION_SAMPLES",
        {"utilization_pct": (98.0, int(t.MIN_UTILIZATION_SAMPLES) - 1), "utilization_traced_pct": 18.0},
        {"utilization_pct": (98.0, int(t.MIN_UTILIZATION_SAMPLES)), "utilization_traced_pct": 18.0},
        "utilization_above_traced",
    ),
    (
        # By hand: 20 of 10 000 kernels (0.2 %) in 199 slices, and in 200.
        "MAX_CUT_SHARE",
        {**STABLE, "deviating_share": (0.002, 10_000), "unbroken_exposure": 20 / t.MAX_CUT_SHARE - 1},
        {**STABLE, "deviating_share": (0.002, 10_000), "unbroken_exposure": 20 / t.MAX_CUT_SHARE},
        "kernel_durations_stable",
    ),
    (
        "MOST_SLICES_WAITED",
        {"idle_start_wait_ns": (2.18e6 * (t.MOST_SLICES_WAITED + 1), 20), **WAITS},
        {"idle_start_wait_ns": (2.18e6 * t.MOST_SLICES_WAITED, 20), **WAITS},
        "waits_of_time_slices",
    ),
    (
        "MIN_EXPOSURE",
        {"idle_start_prompt_share": (1.0, 20), "idle_start_exposure": t.MIN_EXPOSURE - 1},
        {"idle_start_prompt_share": (1.0, 20), "idle_start_exposure": t.MIN_EXPOSURE},
        "idle_starts_prompt",
    ),
    (
        "MIN_EXPOSURE",
        {"soon_start_prompt_share": (1.0, 20), "soon_start_exposure": t.MIN_EXPOSURE - 1},
        {"soon_start_prompt_share": (1.0, 20), "soon_start_exposure": t.MIN_EXPOSURE},
        "soon_starts_prompt",
    ),
]


def sided(facts: dict[str, float | tuple[float, int]]) -> Case:
    made = {name: fact(*value) if isinstance(value, tuple) else fact(value) for name, value in facts.items()}
    return replace(case({}), facts={"traced_tenants": fact(1), **made})


@pytest.mark.parametrize(("threshold", "below", "above", "observation"), SIDES)
def test_both_sides_of_the_other_thresholds(
    threshold: str,
    below: dict[str, float | tuple[float, int]],
    above: dict[str, float | tuple[float, int]],
    observation: str,
) -> None:
    assert hasattr(t, threshold)
    assert observation not in observe(sided(below))
    assert observation in observe(sided(above))


def test_two_that_never_follow_each_other_are_together_where_they_would_have() -> None:
    few = Pair((0, 1), 1_000_000, 0, 0, switches=0, expected_switches=t.MIN_EXPECTED_SWITCHES - 1)
    enough = replace(few, expected_switches=t.MIN_EXPECTED_SWITCHES)
    assert (few.together, enough.together) == (False, True)
    assert not replace(enough, switches=int(t.MIN_ALTERNATIONS)).together
    # Nothing was recorded of switches.
    assert not replace(enough, switches=None).together


def test_quick_changes_tell_pairs_that_no_time_slices_parted_from_those_that_wait_for_them() -> None:
    few = Pair((0, 1), 1_000_000, 0, 0, changes=100, quick_changes=int(t.MIN_QUICK_CHANGES) - 1, quick_expected=100.0)
    enough = replace(few, quick_changes=int(t.MIN_QUICK_CHANGES))
    assert (few.together, enough.together) == (False, True)
    # Between captures whose clocks may be wrong nothing is quick.
    assert not replace(enough, precise=False).together
    assert not few.sliced
    waits = replace(few, quick_changes=0, quick_expected=t.MIN_QUICK_CHANGES)
    assert (waits.sliced, replace(waits, quick_expected=t.MIN_QUICK_CHANGES - 1).sliced) == (True, False)
    assert not replace(waits, precise=False).sliced


@pytest.mark.parametrize(("error_ns", "precise"), [(t.MAX_CLOCK_ERROR_NS - 1, True), (t.MAX_CLOCK_ERROR_NS, False)])
def test_times_of_two_captures_are_compared_where_their_clocks_allow_it(error_ns: int, *, precise: bool) -> None:
    names = ("short_kernels", "short_overlapping", "short_short_overlapping", "short_short_expected")
    changes = ("changes_in_flight", "quick_changes", "quick_changes_expected")
    row = {"tenant_a": 0, "tenant_b": 1, "co_busy_ns": 1, **dict.fromkeys((*names, *changes), 0)}
    usage = [
        {"tenant_id": n, "capture": n, "name": "a", "traced": True, "resident_ns": None, "kernels": 9} for n in (0, 1)
    ]
    (pair,) = pairs_of([row], usage, clock_errors_ns={0: 0, 1: error_ns})
    assert (pair.one_capture, pair.precise) == (False, precise)
    (pair,) = pairs_of([row], [one | {"capture": 0} for one in usage], clock_errors_ns={0: error_ns})
    assert (pair.one_capture, pair.precise) == (True, True)


def test_every_threshold_has_both_sides_tested(tmp_path: Path) -> None:
    named = {name for name in dir(t) if name.isupper()}
    tested = {row[0] for row in SIDES} | TESTED_ELSEWHERE
    assert named - WEIGHTS - tested == {"MAX_CONFIDENCE_SAMPLED"}
    assert not tested - named
    # Facts have a name that the core knows: a threshold on nothing would hold by accident.
    known = set(load(generate.built("exclusive") / "exclusive.sqlite").facts["name"].to_list())
    turns = load(generate.built("limiter-exclusive-quota") / "limiter-exclusive-quota.sqlite")
    known |= set(turn_facts(turns.tables, 0))
    known |= set(idle_start_facts(pyanalyze.load(launched(tmp_path / "a.sqlite", [2_200] * 20)).tables, 0))
    known |= set(idle_start_facts(pyanalyze.load(launched(tmp_path / "b.sqlite", [8] * 20, every_us=50)).tables, 0))
    known |= set(utilization_facts(sampled(tmp_path, [90.0] * 20).tables, 0))
    assert {name for _, below, above, _ in SIDES for name in (*below, *above)} <= known


def test_a_verdict_is_given_from_the_lowest_confidence_on() -> None:
    """One observation more or less on either side of 0.8: a daemon's idle control process beside two clients."""
    verdict = judge(case({"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.4}))
    assert verdict.posterior < MIN_CONFIDENCE
    assert verdict.mode == "undetermined"
    server = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    verdict = judge(case({"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.4}, configured=server))
    assert verdict.posterior >= MIN_CONFIDENCE
    assert verdict.mode == "mps"


def test_samples_only_claim_no_more_than_that() -> None:
    inside = {"mig_profile": "3g.20gb", "captured": False, "nvml_processes": [(7, "a", "C")]}
    verdict = judge(replace(case({}), **inside))  # type: ignore[arg-type]
    assert verdict.posterior > t.MAX_CONFIDENCE_SAMPLED >= verdict.confidence


@pytest.mark.parametrize("length_us", [1_500, 3_430, 5_000, 10_300, 20_000])
def test_long_kernels_that_a_busy_process_interrupts_alike_are_not_called_stable(
    tmp_path: Path, length_us: int
) -> None:
    """Slices of 2.1 ms in turn with a process that nobody traced, and switch gaps of 0.08 ms.

    None takes 1.5 times the median: all are interrupted, some once more than the others. Solo they are stable.
    """

    def recorded(slice_us: int | None) -> pyanalyze.Session:
        now_us, left_us, rows = 0, slice_us, []
        for _ in range(300):
            start_us = now_us + 5
            rest_us = length_us + 5
            while left_us is not None and rest_us >= left_us:
                now_us, rest_us, left_us = now_us + left_us + 2_100 + 2 * 80, rest_us - left_us, slice_us
            now_us, left_us = now_us + rest_us, None if left_us is None else left_us - rest_us
            rows.append(kernel(41, start_us * US, now_us * US))
        return pyanalyze.load(write(tmp_path / f"{slice_us}.sqlite", kernels=rows, processes={41: "train"}))

    assert "kernel_durations_stable" in observe(recorded(None).cases()[0])
    shared = recorded(2_100)
    assert "kernel_durations_stable" not in observe(shared.cases()[0])
    assert impact_of(shared.report().devices[0]).answer is Answer.UNKNOWN


def test_a_rare_visitor_is_no_proof_of_nobody() -> None:
    """A twentieth of a per cent of the kernels is inflated: too few for another tenant, too many for none."""
    streams = {**ALONE, "stream_overlap_share": 0.9, "streams_used": 3}
    assert judge(case(streams, tenants=("a",))).mode == "streams"
    visited = {**streams, "inflated_share": 0.004, "inflation_ns": 1.1e6}
    made = {name: fact(value, n=27 if name == "inflation_ns" else 6000) for name, value in visited.items()}
    found = observe(replace(case({}), facts=made))
    assert "interrupted_kernels" in found
    assert "kernel_durations_stable" not in found
    assert judge(replace(case({}), facts=made, tenants=("a",))).mode == "undetermined"


@pytest.mark.parametrize(
    ("slices", "kernels", "interrupted", "capability", "seen"),
    [
        # Three processes on a P100 with kernels in flight at once for 120 slices: none of 700 kernels was interrupted.
        (120, 700, 0, (6, 0), True),
        (120, 700, 3, (6, 0), True),
        # Half a time slice of the longest policy is due for every 33 of them.
        (120, 700, 5, (6, 0), False),
        (1000, 5000, 50, (6, 0), False),
        # Too little time together; kernels so long that each is interrupted; instances of one board do not alternate.
        (29, 700, 0, (6, 0), False),
        (120, 479, 0, (6, 0), False),
        (120, 700, 0, (8, 0), False),
    ],
)
def test_kernels_that_nothing_interrupted_were_not_time_sliced(
    slices: int, kernels: int, interrupted: int, capability: tuple[int, int], *, seen: bool
) -> None:
    facts = {
        "traced_tenants": fact(2),
        "kernels": fact(kernels),
        "inflated_share": fact(interrupted / kernels, n=kernels),
    }
    pairs = (Pair((0, 1), int(slices * 2_131_500), 0, 0),)
    made = replace(case({}), name="a board", compute_capability=capability, facts=facts, pairs=pairs)
    assert ("uninterrupted_together" in observe(made)) is seen
    if seen:
        assert "time-slicing" not in {str(one.mode) for one in judge(made).alternatives if one.confidence > 0.05}


def test_processes_that_meet_once_have_no_turns(tmp_path: Path) -> None:
    """Two processes have the GPU in turn for 50 ms, four times each; then one kernel of both runs at the same time."""
    ms = 1_000_000
    turns = [
        kernel(pid, (n * 60 + part * 10) * ms, (n * 60 + part * 10 + 9) * ms)
        for n in range(8)
        for pid, part in ((41 + n % 2, part) for part in range(5))
    ]
    processes = {41: "a", 42: "b"}
    apart = pyanalyze.load(write(tmp_path / "apart.sqlite", kernels=turns, processes=processes))
    found = turn_facts(apart.tables, 0)
    assert (found["turn_ns"].value, found["turn_ns"].n) == (49 * ms, 8)
    assert found["turn_pause_share"].value == 11 / 49
    assert judge(apart.cases()[0]).mode == "software-limited"
    # What they would do to each other was not recorded: nothing is forecast.
    (advice,) = apart.advise()
    assert advice.actions[0].action.startswith("Find what gives a and b the GPU in turn")
    assert advice.options.options == ()
    met = [*turns, kernel(41, 465 * ms, 466 * ms)]
    both = pyanalyze.load(write(tmp_path / "met.sqlite", kernels=met, processes=processes))
    assert turn_facts(both.tables, 0) == {}
    assert judge(both.cases()[0]).mode == "undetermined"


def test_one_process_with_few_turns_has_no_habit(tmp_path: Path) -> None:
    """A process has the GPU once more than the other: three times, or twice."""
    ms = 1_000_000
    processes = {41: "a", 42: "b"}
    for each, known in ((t.MIN_TURNS_EACH, True), (t.MIN_TURNS_EACH - 1, False)):
        turns = [kernel(41 + n % 2, n * 60 * ms, (n * 60 + 50) * ms) for n in range(2 * each + 1)]
        session = pyanalyze.load(write(tmp_path / f"{each}.sqlite", kernels=turns, processes=processes))
        assert bool(turn_facts(session.tables, 0)) == known


def test_the_same_delay_of_a_few_kernels_tells_time_slices() -> None:
    """75 of 4,708 kernels of many lengths were each delayed by the same 2.18 ms."""
    made = {
        "traced_tenants": fact(2),
        "unbroken_exposure": fact(317),
        "preemption_exposure": fact(317),
        "inflated_share": fact(0.016, n=4708),
        "inflation_ns": fact(2.18e6, n=75),
        "inflation_spread": fact(0.014, n=75),
        "inflation_ratio_spread": fact(0.23, n=75),
    }
    found = observe(replace(case({}), facts=made))
    assert {"interrupted_kernels", "kernel_durations_inflated_by_slices"} <= set(found)


def test_two_time_sliced_tenants_have_no_third() -> None:
    """That short kernels of two met does not make a group of them whose context is time-sliced with another."""
    facts = {**TURNS, "traced_tenants": 2, "resident_share_untraced": 0.0, "co_busy_share": 0.02}
    met = [Pair((0, 1), 11_000_000, 765, 83)]
    assert judge(case({**facts, "short_overlap_share": 0.1085}, pairs=met)).mode != "mps"
    assert "mps_group_time_sliced" not in observe(case(facts, pairs=met))
    assert "mps_group_time_sliced" in observe(case({**facts, "resident_share_untraced": 0.3}, pairs=met))


def test_a_client_that_is_nearly_always_idle_was_there_all_the_same() -> None:
    facts = {**TOGETHER, "co_busy_share": 0.006, "short_overlap_share": 0.6}
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    assert judge(case(facts, configured=daemon)).mode == "mps"
    assert judge(case({**facts, "short_overlap_share": 0.05}, configured=daemon)).mode == "undetermined"


def test_too_few_short_kernels_say_nothing() -> None:
    for n, seen in ((int(t.MIN_SHORT_KERNELS) - 1, False), (int(t.MIN_SHORT_KERNELS), True)):
        found = observe(replace(case({}), facts={"short_overlap_share": fact(0.9, n=n)}))
        assert ("short_kernels_overlap" in found) is seen


def test_stable_durations_carry_exclusive_as_a_deduction() -> None:
    verdict = judge(case(ALONE, tenants=("a",)))
    assert (verdict.mode, verdict.basis) == ("exclusive", "inferred")
    assert "context_switches" in [gap.what for gap in verdict.missing]


def test_one_kernel_says_nothing_of_other_processes() -> None:
    verdict = judge(case({"busy_ns": 1e6, "traced_tenants": 1, "stream_overlap_share": 0.0}, tenants=("a",)))
    assert (verdict.mode, verdict.basis) == ("exclusive", "inferred")
    assert verdict.condition == "unless-untraced-tenant"
    assert "nothing shows whether there were other processes on the GPU" in verdict.summary
    assert verdict.missing


def test_what_a_mode_says_of_bandwidth(tmp_path: Path, fixtures: Path) -> None:
    """A sole process has all bandwidth for itself; its streams do not each have a part."""
    for mode, said in (("exclusive", "not shared"), ("streams", "no")):
        report = pyanalyze.load(fixtures / f"{mode}.sqlite").report()
        assert report.devices[0].sharing.mode == mode
        assert f"| DRAM bandwidth and L2 partitioned | {said} |" in render_markdown(report)
    # One kernel: nothing shows whether there were other processes, so nothing is promised of a mode.
    report = pyanalyze.load(write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, 5 * MS)], processes={41: "a"})).report()
    assert report.devices[0].sharing.mode == "exclusive"
    assert "DRAM bandwidth and L2 partitioned" not in render_markdown(report)


#: What excludes busy tenants that are time-sliced, and all that was traced is one process.
UNDISTURBED = {**ALONE, "stream_overlap_share": 0.0}


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0)}, "unless-mps-mig-or-rare-tenant"),
        # An instance of an A100 has 98 SMs at most: with 108 it is not partitioned.
        ({"sm_count": 98}, "unless-mps-mig-or-rare-tenant"),
        ({"sm_count": 108}, "unless-mps-or-rare-tenant"),
        # All SMs of the named board: it is not partitioned. Nor can chips of compute capability 8.9, nor a GeForce.
        ({"product_sms": 132, "sm_count": 132, "compute_capability": (9, 0)}, "unless-mps-or-rare-tenant"),
        ({"compute_capability": (8, 9)}, "unless-mps-or-rare-tenant"),
        ({"name": "NVIDIA GeForce RTX 5090", "compute_capability": (12, 0)}, "unless-mps-or-rare-tenant"),
        ({"mig_enabled": False}, "unless-mps-or-rare-tenant"),
        # The processes of the whole machine are listed, and MPS is not among them.
        ({"no_mps_process": True, "compute_capability": (9, 0)}, "unless-mig-or-rare-tenant"),
        ({"no_mps_process": True, "product_sms": 108}, "unless-rare-tenant"),
        # A list of the driver with one process, and counters that show idle SMs, exclude all of them.
        ({"nvml_processes": [(7, "a", "C")]}, None),
    ],
)
def test_what_a_verdict_about_one_process_depends_on(changes: dict[str, object], condition: str | None) -> None:
    verdict = judge(case(UNDISTURBED, **{"tenants": ("a",), **changes}))
    assert (verdict.mode, verdict.condition) == ("exclusive", condition)


def test_counters_of_idle_sms_leave_no_condition() -> None:
    verdict = judge(case({**UNDISTURBED, "metric_outside_pct": 0.0}, tenants=("a",)))
    assert (verdict.mode, verdict.condition) == ("exclusive", None)


@pytest.mark.parametrize("facts", [{"switch_records": 20, "resident_share_top": 1.0}])
def test_switch_records_of_one_context_leave_no_condition(facts: dict[str, float]) -> None:
    assert judge(case({**UNDISTURBED, **facts}, tenants=("a",))).condition is None


def test_evidence_of_others_is_weighed_and_not_put_aside() -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    assert judge(case({"busy_ns": 1e6, "traced_tenants": 1}, tenants=("a",), configured=daemon)).condition is None
    active = judge(case({"busy_ns": 1e6, "traced_tenants": 1, "metric_outside_pct": 75.0}, tenants=("a",)))
    assert (active.mode, active.condition) == ("undetermined", None)


def test_counters_that_show_work_are_not_denied() -> None:
    nothing = judge(case({}, tenants=()))
    assert nothing.summary.startswith("The capture has no work on this GPU")
    seen = judge(case({"metric_outside_pct": 75.6}, tenants=()))
    assert (seen.mode, seen.confidence) == ("undetermined", 0.0)
    assert seen.summary.startswith("No work on this GPU was traced")
    assert "SM activity was 75.6 %" in seen.summary


@pytest.mark.parametrize(
    ("busy_ns", "active", "said"),
    [
        (1e6, 0.0, "0.00 % while no traced kernel ran ({}): no other process ran a kernel"),
        (
            1e6,
            75.6,
            "75.6 % while no traced kernel ran ({}): this is another process, or work that CUPTI does not record",
        ),
        # There is no other process where none was traced.
        (0.0, 0.0, "0.00 % ({}), and no kernel was traced: no process ran a kernel"),
        (
            0.0,
            75.6,
            "75.6 % ({}), and no kernel was traced: this is an untraced process, or work that CUPTI does not record",
        ),
    ],
)
def test_counters_say_who_kept_the_sms_active(busy_ns: float, active: float, said: str) -> None:
    seen = observe(case({"busy_ns": busy_ns, "metric_outside_pct": active}, tenants=()))
    (told,) = [one.detail for name, one in seen.items() if name.endswith("_outside_traced_kernels")]
    assert told == "SM activity was " + said.format(f"mean of {fact(active).n} samples of the whole capture")


def test_a_node_that_shows_neither_mig_nor_mps_is_not_asked_again(hardware: Path) -> None:
    node = hardware.parent / "h200" / "node-slices-A-B"
    samples = [json.loads(line) for line in (node / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    board = [one["metrics"] for one in samples if "mps_clients" in one.get("metrics", {})]
    assert {(one["mig_mode"], one["mps_clients"]) for one in board} == {("Disabled", 0)}
    (verdict,) = load(node).classify()
    (gap,) = [one for one in verdict.missing if one.what == "configured_mode"]
    assert gap.why.startswith("the inputs show neither MIG nor MPS:")
    assert gap.how == ""


def test_what_asks_for_the_configured_mode_records_a_daemon_that_is_read_back(tmp_path: Path) -> None:
    """The control program is stood in for: it answers `get_server_list` with the pid of a server, as NVIDIA's does."""
    (gap,) = [one for one in judge(case(TURNS)).missing if one.what == "configured_mode"]
    for name, answer in (("nvidia-cuda-mps-control", "4100"), ("nvidia-smi", "GPU 0: NVIDIA H200")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{answer}'\n", encoding="utf-8")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", gap.how], cwd=tmp_path, env=environment, check=True)
    read = read_context(tmp_path / "mps.txt")
    assert [(str(key), pid) for key, pid in read.select("key", "pid").iter_rows()] == [
        ("mps_daemon", None),
        ("mps_server", 4100),
    ]
    assert all(word in gap.why for word in ("MPS", "MIG", "Kubernetes"))


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"mig_enabled": False, "mps_clients": 0}, False),
        # The processes of the whole machine are listed, and none is of MPS.
        ({"mig_enabled": False, "no_mps_process": True}, False),
        ({"mig_enabled": False}, True),
        ({"mps_clients": 0}, True),
        ({"mig_enabled": False, "mps_clients": 2, "no_mps_process": True}, True),
        # Objects of Kubernetes say how a pod was given its GPU.
        ({"configured": [Configured("node", "k8s_pod", "pod=a/b", 7)], "mig_enabled": False, "mps_clients": 0}, True),
        # It may have been told of a daemon that none of the samples shows.
        (
            {
                "configured": [Configured("node", "CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps", 7)],
                "mig_enabled": False,
                "mps_clients": 0,
            },
            True,
        ),
    ],
)
def test_the_configured_mode_is_asked_for_where_it_may_show(changes: dict[str, object], asked: bool) -> None:
    (gap,) = [one for one in judge(case(TURNS, **changes)).missing if one.what == "configured_mode"]
    assert ("nvidia-smi -L" in gap.how) is asked
    assert ("neither MIG nor MPS" in gap.why) is not asked


def test_a_list_that_lacks_who_was_traced_does_not_show_that_nobody_else_was_there() -> None:
    alone = {"busy_ns": 1e6, "traced_tenants": 1}
    listed: dict[str, object] = {"tenants": ("a",), "nvml_processes": [(7, "a", "C")]}
    assert "nvml_one_process" in observe(case(alone, **listed))
    strange = judge(case(alone, **listed, unlisted=("a",)))
    assert "nvml_one_process" not in {weighed.name for weighed in strange.evidence}
    assert strange.condition == "unless-untraced-tenant"
    assert "lacks traced processes (a)" in next(gap.why for gap in strange.missing if gap.what == "process_list")


def test_processes_listed_one_after_the_other_are_not_several() -> None:
    three = [(7, "a", "C"), (8, "b", "C"), (9, "c", "C")]
    for together, several in ((None, 3.0), (2, 2.0), (1, None)):
        seen = observe(case({}, nvml_processes=three, nvml_together=together)).get("nvml_several_processes")
        assert (None if seen is None else seen.value) == several


def test_processes_of_type_c_are_no_mps_clients() -> None:
    typed = [(7, "a", "C"), (8, "b", "C")]
    assert "nvml_no_mps_clients" in observe(case({}, nvml_processes=typed))
    # `--query-compute-apps` prints no types; a client, or the server, is MPS; one process says nothing of others.
    for kinds in (
        [(7, "a", None), (8, "b", "C")],
        [(7, "a", "M+C"), (8, "b", "C")],
        [*typed, (9, "nvidia-cuda-mps-server", "C")],
        typed[:1],
    ):
        assert "nvml_no_mps_clients" not in observe(case({}, nvml_processes=kinds)), kinds


def test_before_volta_a_list_shows_the_server_and_none_of_its_clients() -> None:
    weights = next(rule for rule in RULES if rule.mode == Mode.MPS_PRE_VOLTA).weights
    assert "nvml_mps_server" in weights
    assert {"nvml_mps_clients", "nvml_no_mps_clients", "nvml_one_process"}.isdisjoint(weights)


@pytest.mark.parametrize("state", ["absent", "empty"])
def test_no_switch_table_never_proves_exclusive_or_mig(state: str) -> None:
    verdict = judge(case({"busy_ns": 1e6, "traced_tenants": 1}, sources={"switch_events": state}, tenants=("a",)))
    assert verdict.condition == "unless-untraced-tenant"


def test_without_process_ids_one_tenant_is_never_claimed() -> None:
    verdict = judge(case(ALONE, tenants=("unknown process",), pids_known=False))
    assert verdict.mode == "undetermined"
    assert "process_ids" in [gap.what for gap in verdict.missing]


def test_a_deduction_claims_less_than_a_record() -> None:
    deduced = judge(case(ALONE, tenants=("a",)))
    assert deduced.basis == "inferred"
    assert MIN_CONFIDENCE <= deduced.confidence < judge(case(TURNS)).confidence


def test_overlapping_intervals_of_two_processes_never_prove_mps() -> None:
    verdict = judge(case({"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.99, "stream_overlap_share": 0.0}))
    assert verdict.mode == "undetermined"


def test_tenants_never_busy_together_prove_nothing() -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    facts = {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.001}
    verdict = judge(case(facts, configured=daemon))
    assert verdict.mode == "undetermined"
    assert verdict.confidence < MIN_CONFIDENCE
    assert "co_run" in [gap.what for gap in verdict.missing]


def test_an_idle_gpu_has_no_mode() -> None:
    verdict = judge(case({}, tenants=()))
    assert verdict.mode == "undetermined"
    assert "its sharing mode is not known" in verdict.summary
    assert (verdict.confidence, verdict.alternatives) == (0.0, [])


def test_a_capture_without_cuda_does_not_say_that_nothing_ran(fixtures: Path, tmp_path: Path) -> None:
    """Its tables of GPU work are not there: who looks only at counters or at the host has not looked at kernels."""
    bare = tmp_path / "bare.sqlite"
    shutil.copyfile(fixtures / "exclusive.sqlite", bare)
    with sqlite3.connect(bare) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in tables:
            if name.startswith("CUPTI_") or name == "GPU_CONTEXT_SWITCH_EVENTS":
                database.execute(f"DROP TABLE {name}")
    (verdict,) = pyanalyze.load(bare).classify()
    assert verdict.mode == "undetermined"
    assert verdict.summary.startswith(
        "No work on this GPU was traced, so its sharing mode is not known. SM activity was"
    )
    assert verdict.summary.endswith("this is an untraced process, or work that CUPTI does not record.")
    assert {gap.what for gap in verdict.missing} >= {"kernels", "context_switches"}


def test_untraced_work_is_no_evidence_where_nothing_was_traced(hardware: Path) -> None:
    """CUDA was not traced here: whatever the mode, all residency is of untraced processes, and SMs are active."""
    folder = hardware.parent / "h200" / "node-slices-A-B"
    with contextlib.closing(sqlite3.connect(folder / "report.sqlite")) as db:
        traced = db.execute(
            "SELECT value FROM META_DATA_CAPTURE WHERE name = 'PROCESS_0:COLLECT_CUDA_TRACE'"
        ).fetchone()
        first, last = db.execute("SELECT min(timestamp), max(timestamp) FROM GPU_METRICS").fetchone()
        (recorded,) = db.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
    assert traced == ("false",)
    (verdict,) = load(folder).classify()
    assert (verdict.mode, verdict.basis) == ("time-slicing", "observed")
    found = {one.name: one for one in verdict.evidence}
    for name in ("untraced_resident", "sm_active_outside_traced_kernels"):
        assert (found[name].weight, found[name].supports, found[name].against) == (0.0, [], [])
        assert found[name].detail not in verdict.summary
    # Nor is the mean that of the recording, of which the export has 0.7 % of the samples.
    span = f"over {(last - first) / 1e6:.2f} ms, {100 * (last - first) / recorded:.1f} % of the recording"
    assert span in found["sm_active_outside_traced_kernels"].detail
    assert "whole capture" not in found["untraced_resident"].detail


@pytest.mark.parametrize(("traced", "weight"), [(0, 0.0), (1, t.MODERATE)])
def test_an_untraced_process_counts_beside_a_traced_one(traced: int, weight: float) -> None:
    facts = {**TURNS, "traced_tenants": traced, "resident_share_untraced": 1.0}
    found = {one.name: one.weight for one in judge(case(facts)).evidence}
    assert found["untraced_resident"] == weight


def test_classify_says_what_its_numbers_are_of(hardware: Path) -> None:
    """What n counts, for which mode a weight is, whose intervals; and a command that records what is missing."""
    folder = hardware.parent / "h200" / "node-slices-A-B"
    said = run("classify", folder).stdout
    body = json.loads(run("classify", folder, "-f", "json").stdout)
    weights = {one["name"]: one["weight"] for one in body["devices"][0]["sharing"]["evidence"]}
    assert weights["nvml_no_mps_clients"] == -3.0
    assert "n=2 processes, weight -3.0 for mps, 0 for time-slicing] against mps" in said
    for counted in ("n=590 context switches", "n=593 residency intervals", "n=199 samples"):
        assert f"{counted}, weight" in said
    (medians,) = (line for line in said.splitlines() if "median residency intervals" in line)
    assert "(kit (pid 506)) to " in medians
    lines = said.splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.startswith("  not available: kernels: "))
    assert "start the tenants again" in lines[at]
    assert "--gpuctxsw=true --gpu-metrics-devices=all" in lines[at + 1]


def test_a_percentage_of_100_is_no_cap() -> None:
    rows = [Configured("environment", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")]
    assert "mps_percentage" not in observe(case({}, configured=rows))


@pytest.mark.parametrize(
    ("changes", "facts", "mode"),
    [
        ({"mig_profile": "3g.20gb", "tenants": ("a",)}, ALONE, "mig"),
        ({"mig_profile": "1c.3g.20gb", "tenants": ("a",)}, ALONE, "mig-shared-ci"),
        (
            {"mig_profile": "3g.20gb"},
            {
                "busy_ns": 1e9,
                "traced_tenants": 2,
                "co_busy_share": 0.9,
                "short_overlap_share": 0.0,
                "short_overlap_expected": 0.4,
            },
            "mig+time-slicing",
        ),
        (
            {"mig_profile": "3g.20gb"},
            {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.9, "short_overlap_share": 0.6},
            "mig+mps",
        ),
        ({"vgpu_profile": "T4-4Q", "tenants": ("a",)}, ALONE, "vgpu-time-sliced"),
        ({"vgpu_profile": "A100X-3-20C", "tenants": ("a",)}, ALONE, "vgpu-mig"),
        ({"green_contexts": 2, "tenants": ("a",)}, ALONE, "green-contexts"),
        ({}, {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.9, "short_overlap_share": 0.6}, "mps"),
        ({}, {"busy_ns": 1e9, "traced_tenants": 1, "stream_overlap_share": 0.9}, "streams"),
        (
            {"configured": [Configured("environment", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]},
            {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.9, "short_overlap_share": 0.6},
            "mps-partitioned",
        ),
        (
            {"configured": [Configured("environment", "CUDA_MPS_SM_PARTITION", "GPU-1/0")]},
            {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.9, "short_overlap_share": 0.6},
            "mps-static-partition",
        ),
        (
            {
                "compute_capability": (6, 0),
                "configured": [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")],
            },
            {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.9, "short_overlap_share": 0.6},
            "mps-pre-volta",
        ),
        ({}, TURNS, "time-slicing"),
        ({"tenants": ("a",)}, ALONE, "exclusive"),
    ],
)
def test_every_mode_has_a_case(changes: dict[str, object], facts: dict[str, float], mode: str) -> None:
    assert judge(case(facts, **changes)).mode == mode


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"green_contexts": 2},
        {"mig_profile": "3g.20gb"},
        {"mig_profile": "1c.3g.20gb"},
    ],
)
def test_one_process_does_not_contradict_a_configuration_for_several(changes: dict[str, object]) -> None:
    for strategy in ("mps", "time-slicing"):
        offered = [Configured("kubernetes", "k8s_sharing", f"strategy={strategy}")]
        verdict = judge(case(ALONE, tenants=("a",), configured=offered, **changes))
        inside = "mig+" if "mig_profile" in changes else ""
        assert (verdict.configured, verdict.agrees) == (f"{inside}{strategy}", None)
        # Without switch records nobody else would have been seen.
        assert verdict.condition is not None
        said = condition_text(verdict.condition, verdict.mode)
        assert said.startswith("no sign of another process (not excluded: ")
        assert verdict.summary.endswith(f": {said} in this capture.")


@pytest.mark.parametrize(
    ("configured", "observed"),
    [
        (Mode.VGPU_TIME_SLICED, Mode.EXCLUSIVE),  # a guest that is none
        (Mode.MIG_MPS, Mode.EXCLUSIVE),  # an instance that is none
        (Mode.MPS, Mode.MIG),
        (Mode.MIG, Mode.STREAMS),
        (Mode.MPS, Mode.TIME_SLICING),
    ],
)
def test_one_process_does_contradict_another_device(configured: Mode, observed: Mode) -> None:
    assert _agrees(configured, observed) is False


def test_limiter_variables_are_a_configuration_not_an_observation() -> None:
    limiter = [Configured("environment", "CUDA_DEVICE_SM_LIMIT", "30")]
    verdict = judge(case({"busy_ns": 1e9, "traced_tenants": 1}, configured=limiter, tenants=("a",)))
    assert verdict.mode == "undetermined"
    assert verdict.configured == "software-limited"
    assert "software-limited" in [alternative.mode for alternative in verdict.alternatives]


def test_every_observation_says_in_one_sentence_when_it_is_made() -> None:
    modules = sorted(Path(evidence.__file__).parent.glob("*.py"))
    source = "\n".join(path.read_text(encoding="utf-8").replace("from __future__", "# ") for path in modules)
    # Where the name stands in the calls that make observations.
    at = {"from_fact": 2, "plain": 0, "of_device": 1, "Observation": 0}
    made = {
        part.value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in at
        for part in ast.walk(call.args[at[call.func.id]])
        if isinstance(part, ast.Constant)
    }
    assert len(made) > 40
    weighed = {name for rule in RULES for name in rule.weights}
    assert weighed | made <= set(SEEN_WHEN)
    assert not [name for name in SEEN_WHEN if f'"{name}"' not in source], "no observation has this name"
    for name, sentence in SEEN_WHEN.items():
        assert sentence.endswith("."), name
        assert len(sentence.split()) <= 30, name
        # A page of a mode sorts them by weight: none may lean on the one before it.
        assert not re.search(r"\bas (before|above)\b", sentence, re.IGNORECASE), name


def test_what_a_mode_needs_stands_in_the_table_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a mode is never named without, a reader looks for the definition on the same page."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "docs"))
    page = importlib.import_module("mode_pages").mode_page
    for rule in RULES:
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ([-+.\d]+) \|", page(rule), re.MULTILINE)
        assert sorted(name for name, _, _ in rows) == sorted(rule.weights.keys() | rule.requires | rule.requires_one_of)
        for name, seen, weight in rows:
            assert float(weight) == pytest.approx(rule.weights.get(name, (0.0, ""))[0], abs=0.05)
            assert seen == SEEN_WHEN[name]


def test_rules_are_complete_and_say_why() -> None:
    assert [rule.mode for rule in RULES] == list(MODES[:-1])
    files = {p.stem for p in Path(__file__).parent.parent.glob("pyanalyze/analysis/sharing/rules/*.py")}
    assert files - {"__init__", "base"} == {rule.mode.replace("-", "_").replace("+", "_") for rule in RULES}
    for rule in RULES:
        assert rule.shows.endswith(".")
        assert rule.looks_like.endswith(".")
        assert all(why for _, why in rule.weights.values())


TOGETHER = {
    "busy_ns": 1e9,
    "traced_tenants": 2,
    "co_busy_share": 0.4,
    "short_overlap_share": 0.6,
    "stream_overlap_share": 0.0,
    "streams_used": 1,
}


@pytest.mark.parametrize(
    ("visible", "mode"),
    [
        ((108, 108), "mps"),
        # A cap that the daemon set leaves no variable behind, only fewer SMs to see.
        ((64, 52), "mps-partitioned"),
        ((108, 52), "mps-partitioned"),
        # 56 and 42 of 108: instances of an A100 have as many, and so have caps of 52 and 39 %.
        ((56, 42), "undetermined"),
    ],
)
def test_fewer_visible_sms_are_a_cap_or_an_instance(visible: tuple[int, ...], mode: str) -> None:
    assert judge(case(TOGETHER, visible_sms=visible)).mode == mode


@pytest.mark.parametrize(
    ("percentages", "visible", "mode", "seen"),
    [
        (("50", "50"), (54, 54), "mps-partitioned", set()),
        (("50", "50"), (108, 108), "mps", {"cap_without_effect"}),
        (("95", "95"), (108, 108), "mps", {"cap_without_effect", "caps_over_100"}),
        # 96 % of 108 SMs are 103, and pairs of them 102: that much may be rounded otherwise.
        (("96", "96"), (108, 108), "mps-partitioned", {"caps_over_100"}),
        (("60", "50"), (64, 54), "mps-partitioned", {"caps_over_100"}),
        (("60", "40"), (64, 42), "mps-partitioned", set()),
    ],
)
def test_percentages_that_the_trace_contradicts(
    percentages: tuple[str, str], visible: tuple[int, int], mode: str, seen: set[str]
) -> None:
    key = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    rows = [Configured("environment", key, text, pid) for pid, text in enumerate(percentages, 7)]
    rows += [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server", 5)]
    found = case(TOGETHER, configured=rows, visible_sms=visible)
    verdict = judge(found)
    assert verdict.mode == mode
    assert {"cap_without_effect", "caps_over_100"} & observe(found).keys() == seen
    assert ("no effect" in verdict.summary) is ("cap_without_effect" in seen)
    assert ("add up to" in verdict.summary) is ("caps_over_100" in seen)


@pytest.mark.parametrize(
    ("changes", "mode", "said"),
    [
        # There are no caps before Volta: that all SMs are reached goes without saying, as under plain MPS since.
        ({"compute_capability": (6, 0)}, "mps-pre-volta", False),
        ({}, "mps", False),
        # The daemon of an instance may set percentages: here it did not.
        ({"mig_profile": "3g.20gb"}, "mig+mps", True),
    ],
)
def test_all_sms_are_worth_a_word_where_caps_may_be_set(changes: dict[str, object], mode: str, said: bool) -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    verdict = judge(case(TOGETHER, configured=daemon, visible_sms=(108, 108), **changes))
    assert verdict.mode == mode
    assert ("visible_sms" in {detail.name for detail in verdict.details}) is said


def test_a_daemon_settles_what_visible_sms_leave_open() -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    assert judge(case(TOGETHER, visible_sms=(56, 42), configured=daemon)).mode == "mps-partitioned"


def test_processes_of_unknown_instances_are_not_said_to_share_one() -> None:
    inside = {"name": "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "mig_profile": "3g.20gb"}
    assert judge(case(TOGETHER, **inside)).mode == "mig+mps"
    verdict = judge(case(TOGETHER, **inside, instances_unassigned=3))
    assert verdict.mode == "undetermined"
    assert "instances" in {gap.what for gap in verdict.missing}


def test_another_tenant_that_is_seldom_busy_need_not_stretch_anything() -> None:
    """Its kernels are shorter than a slice, and it yields: what it leaves uninflated does not prove MPS."""
    facts = {**ALONE, "traced_tenants": 2, "co_busy_share": 0.05}
    assert "kernel_durations_stable" in observe(case(ALONE))
    assert "kernel_durations_stable" not in observe(case(facts))
    assert judge(case(facts)).mode == "undetermined"


def test_contexts_that_follow_each_other_are_no_turns() -> None:
    """Two processes that never had work at the same time get the engine one after the other however they share it."""
    met = {**TURNS, "traced_tenants": 2, "resident_share_untraced": 0.0, "co_busy_share": 0.4}
    assert judge(case(met)).mode == "time-slicing"
    # Time-sliced they alternate although what waits for its slice cannot be seen in flight.
    assert judge(case({**met, "co_busy_share": 0.001})).mode == "time-slicing"
    pauses = {"co_busy_share": 0.001, "window_ns": 1213 * t.LONGEST_SLICE_NS + 1}
    assert judge(case({**met, **pauses})).mode == "undetermined"


@pytest.mark.parametrize("length_ms", [1, 5, 10, 20])
def test_a_short_part_of_time_slicing_is_nothing_else(length_ms: int) -> None:
    """Slices of 2 ms: few switches are no sign of running together, nor is one tenant in its slice of being alone."""
    session = load(generate.built("running-example-time-slicing") / "running-example-time-slicing.sqlite")
    for begin in range(100, 200, 25):
        window = (begin * 1_000_000, (begin + length_ms) * 1_000_000)
        (verdict,) = session.window(*window).classify()
        assert verdict.mode in ("time-slicing", "undetermined"), window


@pytest.mark.parametrize("seed", [1, 2])
def test_no_verdict_on_a_generated_recording_is_wrong(seed: int) -> None:
    rows = [row for name in generate.scenario_names() for row in judged(name, seed)]
    assert len(rows) > 100
    assert {row.capture for row in rows if row.outcome == "wrong"} == set()
    answerable = [row for row in rows if row.identifiable and row.true != "undetermined"]
    assert sum(row.outcome == "right" for row in answerable) / len(answerable) > 0.93


@pytest.mark.parametrize("scenario", generate.scenario_names())
def test_every_observed_evidence_can_be_checked_by_hand(scenario: str) -> None:
    """A query over the export that yields its number, or intervals to find in the timeline; in most cases both."""
    folder = generate.built(scenario)
    looked_at = 0
    for path in sorted(folder.glob("*.sqlite")):
        if path.name.endswith(".truth.sqlite"):
            continue
        for verdict in load(path).classify():
            for seen in [w for w in verdict.evidence if w.basis == "observed"]:
                looked_at += 1
                assert seen.sql is not None or seen.examples, (path.stem, seen.name)
                assert len(seen.examples) <= 3
                if seen.sql is None:
                    # Records with holes, and the few that need several exports together.
                    assert scenario in ("lost-records", "containers-same-pid"), (path.stem, seen.name)
                    continue
                assert yielded(path, seen.sql) == pytest.approx(seen.value), (path.stem, seen.name)
    assert looked_at or scenario in ("containers-memory", "containers-same-pid", "node-switches-only"), scenario


def test_the_queries_of_a_report_run_when_pasted_together() -> None:
    path = generate.built("time-slicing-pair") / "time-slicing-pair.sqlite"
    session = load(path)
    (verdict,) = session.classify()
    asked = [seen for seen in verdict.evidence if seen.sql is not None]
    assert len(asked) > 1
    (block,) = re.findall(r"^```sql\n(.*?)^```$", render(session.analysis, "md"), re.MULTILINE | re.DOTALL)
    assert re.findall(r"^-- (\w+)$", block, re.MULTILINE) == [seen.name for seen in asked]
    statements, pending = [], ""
    for line in block.splitlines(keepends=True):  # as the shell of SQLite takes them in
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    assert pending == ""
    assert [yielded(path, one) for one in statements] == pytest.approx([seen.value for seen in asked])


def yielded(path: Path, sql: str) -> float:
    """The number that a query gives."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        (number,) = database.execute(sql).fetchone()
    return float(number)


@pytest.mark.parametrize(
    ("scenario", "names"),
    [
        ("time-slicing-pair", {"contexts_alternate", "several_traced_tenants"}),
        ("time-slicing-pair.2021", {"contexts_alternate", "several_traced_tenants"}),
        ("time-slicing-short-kernels.no-switches", {"short_kernels_exclude"}),
        ("running-example-time-slicing", {"contexts_alternate", "streams_overlap"}),
        ("time-slicing-untraced-tenant", {"untraced_resident"}),
        ("mps", {"busy_without_switches", "several_traced_tenants", "short_kernels_overlap"}),
        ("mps-outsider", {"mps_group_time_sliced", "interrupted_kernels"}),
        ("mig-time-slicing", {"kernel_durations_inflated"}),
        ("mps-capped", {"sms_hidden"}),
        ("mps-pre-volta", {"pre_volta"}),
        ("mig-two-instances", {"mig_instance", "one_traced_tenant"}),
        ("two-gpus", {"sole_resident", "one_traced_tenant"}),
        ("green-contexts", {"green_contexts"}),
        ("vgpu-time-sliced", {"vgpu_name"}),
        ("exclusive-four-streams", {"sole_resident", "one_traced_tenant"}),
        ("streams", {"sole_resident", "one_traced_tenant", "streams_overlap"}),
    ],
)
def test_queries_over_the_export_give_the_same_number(scenario: str, names: set[str]) -> None:
    path = generate.built(scenario.partition(".")[0]) / f"{scenario}.sqlite"
    for verdict in load(path).classify():
        asked = {w.name: w for w in verdict.evidence if w.sql}
        for seen in asked.values():
            assert seen.sql is not None
            assert yielded(path, seen.sql) == pytest.approx(seen.value), seen.name
        names = names - asked.keys()
    assert not names


def test_queries_over_recordings_of_two_boards_give_the_same_number(hardware: Path) -> None:
    """In some a process has a context that only came into being, with one long interval."""
    names = {path.name: path for board in ("h100", "h200") for path in (hardware.parent / board).glob("slices*.sqlite")}
    assert "slices-copies-open_loop.sqlite" in names
    for path in names.values():
        for verdict in load(path).classify():
            asked = {w.name: w for w in verdict.evidence if w.sql}
            assert "contexts_alternate" in asked
            for seen in asked.values():
                assert yielded(path, str(seen.sql)) == pytest.approx(seen.value, rel=1e-6), (path.name, seen.name)


def test_queries_over_real_exports_give_the_same_number(corpus: Path) -> None:
    """Exports by several versions of nsys."""
    asked: list[str] = []
    for path in sorted(corpus.glob("exports/*/*.sqlite")):
        for verdict in load(path).classify():
            for seen in (w for w in verdict.evidence if w.sql):
                asked.append(seen.name)
                assert yielded(path, str(seen.sql)) == pytest.approx(seen.value, rel=1e-6), (path.name, seen.name)
    assert len(asked) > 49
    # How many launches repeat another one, and what their median is, no reader can tell from the sentence.
    assert "kernel_durations_stable" in asked


def test_the_change_from_time_slicing_to_mps_is_found() -> None:
    folder = generate.built("mps-started-half-way")
    truth = json.loads((folder / "mps-started-half-way.truth.json").read_text(encoding="utf-8"))
    (before, _), (_, after) = truth["devices"][0]["modes"]
    session = load(folder / "mps-started-half-way.sqlite")
    first, second = segments(session.tables, session.classify()[0])
    assert [first.mode, second.mode] == [mode for _, mode in truth["devices"][0]["modes"]]
    assert (before, after) == (0, second.mode)
    # The second daemon's clients come at 300 ms and launch from 315 ms on; the old ones have stopped at 285 ms.
    assert 280e6 < first.end_ns == second.start_ns < 330e6
    (window,) = [(u["first_ns"].min(), u["last_ns"].max()) for u in [session.tenant_usage]]
    assert (first.start_ns, second.end_ns) == window


def test_a_tenant_that_comes_later_is_a_change(fixtures: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    first, second = segments(session.tables, session.classify()[0])
    assert [first.mode, second.mode] == ["streams", "time-slicing"]
    # The context of app_b is made at 225 ms, it launches from 240 ms on, and 8 turns of 2 ms show that they are time-sliced.
    assert 220e6 < first.end_ns < 280e6


@pytest.mark.parametrize("scenario", ["time-slicing-pair", "time-slicing-low-duty", "streams"])
def test_a_mode_that_does_not_change_is_one_segment(scenario: str) -> None:
    session = load(generate.built(scenario) / f"{scenario}.sqlite")
    (verdict,) = session.classify()
    assert [part.mode for part in segments(session.tables, verdict)] == [verdict.mode]


def test_a_process_that_comes_to_an_mps_group_and_leaves_it_is_two_changes() -> None:
    """It starts at 150 ms and works from 170 to 250 ms."""
    session = load(generate.built("mps-outsider") / "mps-outsider.sqlite")
    before, during, after = segments(session.tables, session.classify()[0])
    assert [part.mode for part in (before, during, after)] == ["mps", "mps+time-slicing", "mps"]
    assert 150e6 < during.start_ns < 190e6
    assert 230e6 < during.end_ns < 270e6


def test_clients_beside_an_outsider_are_judged_pair_by_pair() -> None:
    """A group that is time-sliced with another process is a mode of its own, however long the group was busy."""
    turns = {**TURNS, "traced_tenants": 3, "resident_share_untraced": 0.0, "co_busy_share": 0.4}
    facts = {**turns, "short_overlap_share": 0.2}
    clients, outsiders = Pair((0, 1), 500, 1000, 600), [Pair((0, 2), 200, 400, 4), Pair((1, 2), 200, 400, 4)]
    assert judge(case(facts, pairs=[clients, *outsiders])).mode == "mps+time-slicing"
    seldom = replace(clients, co_busy_ns=100)
    assert judge(case(facts, pairs=[seldom, *outsiders])).mode == "mps+time-slicing"
    # Who alternates with each other is no group.
    assert judge(case(facts, pairs=[replace(clients, switches=100), *outsiders])).mode == "time-slicing"


def test_relations_beside_an_outsider_are_the_true_ones() -> None:
    folder = generate.built("mps-outsider")
    truth = json.loads((folder / "mps-outsider.truth.json").read_text())
    device = load(folder / "mps-outsider.sqlite").report().devices[0]
    names = {tenant.tenant_id: tenant.name for tenant in device.tenants}
    found = {frozenset(names[t] for t in r.tenants): r.relation for r in device.relations if r.relation != "unknown"}
    true = {frozenset(pair["tenants"]): pair["relation"] for pair in truth["devices"][0]["pairs"]}
    assert found.items() <= true.items()
    assert found[frozenset({"client-1", "client-2"})] == "side-by-side"


def test_the_summary_names_the_clients_of_an_mps_server() -> None:
    report = load(generate.built("mps-outsider") / "mps-outsider.sqlite").report()
    assert re.search(r"nvidia-cuda-mps \(for client-1, client-2\) +8", render_summary(report))


@pytest.mark.parametrize(
    ("rows", "server"),
    [
        # The control daemon alone: nobody has connected. PROCESSES cuts its name and the server's to the same 15 letters.
        ([("nvidia-cuda-mps", 41)], False),
        ([("nvidia-cuda-mps", 41), ("nvidia-cuda-mps", 60)], True),
        ([("nvidia-cuda-mps", 41), ("nvidia-cuda-mps", 41)], False),
        ([("nvidia-cuda-mps-control", 41)], False),
        ([("nvidia-cuda-mps-control", 41), ("nvidia-cuda-mps-server", 60)], True),
    ],
)
def test_a_daemon_without_a_server_has_no_clients(rows: list[tuple[str, int]], *, server: bool) -> None:
    configured = [Configured("process-list", "mps_daemon", name, pid) for name, pid in rows]
    together = {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.4, "streams_used": 1}
    verdict = judge(case(together, configured=configured))
    assert verdict.mode == ("mps" if server else "undetermined")
    # Nobody was told where the daemon is, unless a variable says so.
    assert verdict.configured == ("mps" if server else None)
    pipe = Configured("environment", "CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")
    assert judge(case(together, configured=[*configured, pipe])).configured == "mps"


def test_short_kernels_inside_long_ones_that_are_not_inflated_are_no_exclusion() -> None:
    """Two MPS clients in step: the short kernels of each always run beside a long one of the other."""
    facts = {
        **TOGETHER,
        "short_overlap_share": 0.0,
        "short_overlap_expected": 0.15,
        "inflated_share": 0.0,
        "preemption_exposure": 100.0,
    }
    apart, inside = Pair((0, 1), 500, 1080, 0), Pair((0, 1), 500, 1080, 0, short_inside=1080)
    assert "short_kernels_exclude" in observe(case(facts, pairs=[apart]))
    assert "short_kernels_exclude" not in observe(case(facts, pairs=[inside]))
    assert "short_kernels_exclude" in observe(case({**facts, "inflated_share": 0.1}, pairs=[inside]))


@pytest.mark.parametrize(
    ("board", "profile", "limit"),
    [
        ("NVIDIA A100-PCIE-40GB MIG 1g.5gb", "1g.5gb", 7),  # 48 / 7 = 6.9
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "3g.40gb", 21),  # 48 x 3 / 7 = 20.6
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "1c.3g.40gb", 7),  # of the compute instance, not the GPU instance
        ("NVIDIA A30 MIG 2g.12gb", "2g.12gb", 24),  # 48 x 2 / 4
        ("NVIDIA A100-PCIE-40GB MIG 7g.40gb", "7g.40gb", 48),
    ],
)
def test_clients_of_an_mps_server_in_an_instance_are_proportionally_fewer(board: str, profile: str, limit: int) -> None:
    """NVIDIA, MIG user guide: the maximum number of clients is lowered proportionally to the compute instance size."""
    most, why = mps_limit(replace(case({}), name=board, mig_profile=profile))
    assert (most, "whole GPU" in why) == (limit, limit < 48)


def test_clients_that_only_kernels_show_are_traced_ones(hardware: Path) -> None:
    """No MPS log and no list of processes is beside this capture: further clients that nsys did not trace may exist."""
    details = {
        (one.topic, one.name): one for one in load(hardware / "mps-A-B.sqlite").report().devices[0].sharing.details
    }
    known, limit = details["mps", "clients"], details["limits", "mps_clients"]
    assert (known.value, known.basis, known.detail) == (2, "inferred", "2 traced clients of an MPS server")
    assert limit.detail is not None
    assert limit.detail.endswith(
        "there were 2 traced ones, so at most 46 more are possible, fewer if untraced ones are connected"
    )


def test_the_documented_number_of_mps_clients_says_what_it_depends_on() -> None:
    """NVIDIA: 16 before Volta; 48 from Volta on, 60 from CUDA 13.1 on; fewer in a compute instance."""
    said = {mode: TRAITS[mode].promises.most_tenants for mode in (Mode.MPS_PRE_VOLTA, Mode.MPS, Mode.MIG_MPS)}
    assert said[Mode.MPS_PRE_VOLTA] == "16"
    assert said[Mode.MPS] == "48 (60 from CUDA 13.1 on)"
    assert "lowered in proportion to the compute instance" in said[Mode.MIG_MPS]


def told(verdict: pyanalyze.analysis.sharing.Verdict, topic: str) -> dict[str, str]:
    return {detail.name: detail.detail for detail in verdict.details if detail.topic == topic}


@pytest.mark.parametrize(
    ("capability", "driver", "limit"),
    [
        ((6, 0), "550.90.07", 16),
        ((7, 0), "550.90.07", 48),
        ((8, 0), "580.65.06", 48),
        ((9, 0), "590.44.01", 60),
        ((9, 0), None, 48),
        (None, None, 48),
    ],
)
def test_clients_of_an_mps_server_are_limited(
    capability: tuple[int, int] | None, driver: str | None, limit: int
) -> None:
    assert mps_limit(case({}, compute_capability=capability, driver=driver))[0] == limit


@pytest.mark.parametrize(("clients", "over"), [(48, False), (49, True)])
def test_the_limit_of_clients_is_checked(clients: int, *, over: bool) -> None:
    rows = [Configured("mps-log", "mps_client", "connected", 100 + n) for n in range(clients)]
    rows += [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server", 5)]
    said = told(judge(case(TOGETHER, configured=rows, driver="550.90.07")), "limits")
    assert f"accepts 48 clients (driver 550.90.07); there were {clients}" in said["mps_clients"]
    assert ("MORE" in said["mps_clients"]) is over


@pytest.mark.parametrize(("servers", "said"), [(1, False), (2, True)])
def test_one_server_serves_one_user(servers: int, *, said: bool) -> None:
    rows = [Configured("mps-control", "mps_server", "nvidia-cuda-mps-server", 50 + n) for n in range(servers)]
    found = told(judge(case(TOGETHER, configured=rows)), "limits")
    assert ("mps_users" in found) is said
    if said:
        assert "one UNIX user" in found["mps_users"]


@pytest.mark.parametrize(
    ("name", "instances", "over"),
    [
        ("NVIDIA A100-SXM4-40GB", 7, False),
        ("NVIDIA A100-SXM4-40GB", 8, True),
        ("NVIDIA A30", 4, False),
        ("NVIDIA A30", 5, True),
    ],
)
def test_the_number_of_instances_is_that_of_the_product(name: str, instances: int, *, over: bool) -> None:
    """MIG user guide: at most 7 instances on an A100, 4 on an A30."""
    uuids = [f"MIG-{n:08d}" for n in range(instances)]
    rows = [
        Configured("nvidia-smi", "mig_device", f"gpu=0 device={n} profile=1g.5gb uuid={uuid} gi={7 + n} ci=0")
        for n, uuid in enumerate(uuids)
    ]
    inside = {"mig_profile": "1g.5gb", "uuid": uuids[2], "sm_count": 14, "tenants": ("a",)}
    verdict = judge(case(ALONE, name=name, configured=rows, **inside))
    assert ("MORE" in told(verdict, "limits")["mig_instances"]) is over
    mig = told(verdict, "mig")
    assert mig["profile"] == "instance 1g.5gb, 14 SMs"
    assert mig["gi"] == "GPU instance 9 (nvidia-smi)"
    assert mig["ci"] == "compute instance 0 (nvidia-smi)"
    assert mig["processes_inside"].startswith("1 process is known")


def test_mps_says_generation_clients_caps_and_the_sms_they_reach() -> None:
    key = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    rows = [Configured("environment", key, text, pid) for pid, text in ((7, "50"), (8, "33"))]
    rows += [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server", 5)]
    pair = [Pair((0, 1), 1000, 1000, 600)]
    verdict = judge(case(TOGETHER, configured=rows, visible_sms=(54, 34), pairs=pair))
    assert verdict.mode == "mps-partitioned"
    said = [(d.name, d.value, d.unit) for d in verdict.details if d.topic == "mps"]
    # 33 % of 108 SMs are 35.6, and pairs of SMs are handed out.
    assert said == [
        ("generation", 8.0, "1"),
        ("clients", 2.0, "clients"),
        ("cap", 50.0, "%"),
        ("cap", 33.0, "%"),
        ("visible_sms", 54.0, "SMs"),
    ]
    assert "at most 34 of 108 SMs" in next(d.detail for d in verdict.details if d.value == 33.0)
    old = judge(case(TOGETHER, configured=rows[2:], compute_capability=(6, 0)))
    assert "before Volta" in told(old, "mps")["generation"]


def test_a_process_beside_the_group_is_named() -> None:
    turns = {**TURNS, "traced_tenants": 3, "resident_share_untraced": 0.0, "co_busy_share": 0.4}
    pairs = [Pair((0, 1), 500, 1000, 600), Pair((0, 2), 200, 400, 4), Pair((1, 2), 200, 400, 4)]
    verdict = judge(case({**turns, "short_overlap_share": 0.2}, pairs=pairs))
    assert "a process outside of the MPS group ran" in told(verdict, "mps")["other_process"]
    # Time slices within the same answer: how long, and who.
    assert "2.130 ms" in told(verdict, "time-slicing")["slice"]


def test_time_slicing_says_slice_policy_and_who_else() -> None:
    rows = [Configured("nvidia-smi-compute-policy", "compute_policy", "gpu=0 timeslice=long")]
    verdict = judge(case(TURNS, configured=rows, tenants=("mine", "Xorg"), untraced=("Xorg",)))
    said = told(verdict, "time-slicing")
    assert said["slice"].startswith("median residency interval 2.130 ms")
    assert "long" in said["policy"]
    assert said["tenants"] == "time-sliced tenants: mine, Xorg; untraced: Xorg"


@pytest.mark.parametrize(
    ("scenario", "name", "least"),
    [
        # What the scenarios say of themselves: each launch waits for the one before, ...
        ("exclusive-four-streams", "apart_launch_bound", 0.95),
        # ... a reduction in the default stream after each pair, ...
        ("streams-default", "apart_default_stream", 0.95),
        # ... full grids queued in four streams, ...
        ("streams-full-grids", "apart_full_grid", 0.95),
        # ... and a host that is too slow for short kernels.
        ("streams-launch-bound", "apart_launch_bound", 0.95),
    ],
)
def test_why_streams_followed_each_other(scenario: str, name: str, least: float) -> None:
    (verdict,) = load(generate.built(scenario) / f"{scenario}.sqlite").classify()
    found = {detail.name: detail for detail in verdict.details if detail.topic == "streams"}
    assert (found[name].value or 0.0) >= least


def test_more_streams_than_queues_are_said() -> None:
    (verdict,) = load(generate.built("streams-twelve") / "streams-twelve.sqlite").classify()
    found = told(verdict, "streams")
    assert found["streams_used"] == "kernels of one context ran in 12 streams"
    assert "8 hardware queues, fewer than streams" in found["hardware_queues"]
    facts = {**ALONE, "streams_used": 4, "streams_at_once": 1, "stream_changes": 90, "stream_waited_share": 1.0}
    one_queue = [Configured("environment", "CUDA_DEVICE_MAX_CONNECTIONS", "1")]
    said = told(judge(case(facts, tenants=("a",), configured=one_queue)), "streams")
    assert said["hardware_queues"].startswith("CUDA_DEVICE_MAX_CONNECTIONS=1, fewer")
    assert "queued behind another stream" in said["apart_queues"]
    said = told(judge(case({**facts, "stream_late_share": 0.5}, tenants=("a",))), "streams")
    # What tells the two groups apart is when their kernels started; only one of them can name what they waited for.
    assert said["apart_queues"] == (
        "100.0 % of 90 kernels that followed one of another stream without overlap started at once when it ended, though "
        "SM resources were free before. They waited for an event, a copy, the order of their graph, or another stream of "
        "their queue"
    )
    assert said["apart_launch_bound"] == (
        "50.0 % of 90 kernels that followed one of another stream without overlap started over 4 us after it ended. "
        "They were launched late or waited: pyanalyze streams CAPTURE says why"
    )


def test_the_share_of_a_few_kernels_is_no_detail() -> None:
    """Of 1000 kernels, 19 or 20 followed one of another stream: less than 2 % or as much."""
    facts = {**ALONE, "streams_used": 4, "streams_at_once": 1, "stream_late_share": 1.0}
    few = told(judge(case({**facts, "stream_changes": 19}, tenants=("a",))), "streams")
    assert few.keys() == {"streams_used", "streams_at_once", "hardware_queues"}
    enough = told(judge(case({**facts, "stream_changes": 20}, tenants=("a",))), "streams")
    assert enough["apart_launch_bound"].startswith("100.0 % of 20 kernels that followed one of another stream")


def test_green_contexts_without_sizes_are_missing() -> None:
    facts = {**ALONE, "streams_used": 4, "streams_at_once": 2}
    for unsized, keys in ((0, []), (1, ["1 of 2 green contexts"])):
        verdict = judge(case(facts, tenants=("a",), green_contexts=2, green_contexts_unsized=unsized))
        assert verdict.mode == "green-contexts"
        whys = [gap.why for gap in verdict.missing if gap.what == "sm_sets"]
        assert [key for key in keys if key in whys[0]] == keys
        assert len(whys) == len(keys)
        said = told(verdict, "streams")["streams_used"]
        assert said == "kernels of one context ran in 4 streams, those of its green contexts included"


def test_kernels_that_followed_one_of_another_stream_are_counted_as_said(corpus: Path) -> None:
    """By SQL: at their start nothing of their context was in flight, and what had ended last was of another stream."""
    path = corpus / "exports" / "ngp-graph" / "baseline.nsys2026.sqlite"
    followed = in_graphs = late = 0
    last_stream, last_end = None, 0
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = 'SELECT start, "end", streamId, graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start'
        for start, end, stream, node in db.execute(query):
            if last_stream not in (None, stream) and start >= last_end:
                followed += 1
                in_graphs += node is not None
                late += start - last_end > 4000
            if end >= last_end:
                last_stream, last_end = stream, end
    # All but one are nodes of graphs: it is the order of a graph that they wait for.
    assert (followed, in_graphs) == (1052, 1051)
    said = told(load(path).classify()[0], "streams")["apart_launch_bound"].replace("\u202f", "")
    assert said.startswith(
        f"{100 * late / followed:.1f} % of {followed} kernels that followed one of another stream without overlap started "
        "over 4 us after it ended."
    )


def test_details_reach_json_text_and_report() -> None:
    from pyanalyze.cli.classify import _block
    from pyanalyze.report.rendering import render

    session = load(generate.built("mps-outsider") / "mps-outsider.sqlite")
    (device,) = session.report().devices
    assert {detail.topic for detail in device.sharing.details} == {"mps", "time-slicing", "limits"}
    detail = next(detail for detail in device.sharing.details if detail.name == "other_process")
    assert detail.detail in _block(device)
    for fmt in ("html", "md"):
        assert "process outside of the MPS group ran" in render(session.analysis, fmt)


def test_what_was_recorded_is_not_asked_for_again(hardware: Path) -> None:
    """nsys traced switches here, and no client of MPS switches with another: the same command would record no more."""
    path = hardware / "torch-mps-serve-train.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        ((traced,),) = db.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%COLLECT_GPU_CTX_SW_TRACE%'")
        ((records,),) = db.execute("SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS")
    assert (traced, records) == ("true", 0)
    (gap,) = (one for one in load(path).classify()[0].missing if one.what == "context_switches")
    assert gap.how == ""
    assert gap.why.startswith(
        "switches were traced, and there is no record: between clients of one MPS server there is"
    )


def test_untraced_processes_of_switch_records_are_known(fixtures: Path, hardware: Path) -> None:
    """The first advice for the one capture is about such a process; the other has no switch records."""
    captures = ((fixtures / "demo-time-slicing.sqlite", True), (hardware / "torch-mps-serve-train.sqlite", False))
    for path, known in captures:
        (verdict,) = load(path).classify()
        (gap,) = (one for one in verdict.missing if one.what == "process_list")
        assert ("untraced processes without switch records are not known" in gap.why) == known


def test_one_median_of_residency_intervals_stands_on_all_pages(hardware: Path) -> None:
    """Of 159 complete intervals one is of a context that was only created: the median of the others, from the records."""
    path = hardware.parent / "h200" / "slices-paced-B.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = """SELECT contextId, lead(timestamp) OVER w - timestamp, tag, lead(tag) OVER w
            FROM GPU_CONTEXT_SWITCH_EVENTS WINDOW w AS (PARTITION BY globalPid, contextId ORDER BY timestamp)"""
        rows = [(context, ns) for context, ns, tag, after in db.execute(query) if (tag, after) == (8, 7)]
    contexts = [context for context, _ in rows]
    lengths = sorted(ns for context, ns in rows if contexts.count(context) > 1)
    assert (len(rows), len(lengths)) == (159, 158)
    middle = (lengths[78] + lengths[79]) / 2
    session = load(path)
    report = session.report()
    switches = report.devices[0].context_switches
    assert switches is not None
    assert switches.median_slice_ns == middle
    pages = f"{render(session.analysis, 'md')} {report.to_json()}"
    # One tenant has shorter ones, the other longer: no sentence says that of all, only what each of them has.
    assert re.findall(r"median residency interval ([0-9.]+ [mu]s)", pages) == []
    each = sorted(tenant.median_slice_ns or 0 for tenant in report.devices[0].tenants)
    assert each[0] < middle < each[1]
    named = {t.median_slice_ns: f"{t.name} (pid {t.pid})" for t in report.devices[0].tenants}
    ends = " to ".join(f"{ns / 1e6:.3f} ms ({named[ns]})" for ns in each)
    details = [one.detail for one in report.devices[0].sharing.details if one.name == "slice"]
    assert details == [f"median residency intervals of tenants from {ends}"]
    # Nor does the chart mark that one.
    assert "'text': 'median " not in str(session.chart("slices").to_dict())


def test_what_is_recorded_again_has_all_that_the_capture_had(corpus: Path) -> None:
    """The OS calls of 7,052 rows, on which the advice rests, are traced again; other tables of host calls are not there."""
    path = corpus / "exports" / "apax-4070" / "report1.nsys2026.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM OSRT_API").fetchone() == (7052,)
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not [name for name in names if name.startswith(("MPI_", "NVVIDEO_"))]
    (device,) = load(path).report().devices
    hows = {gap.what: gap.how for gap in device.sharing.missing}
    assert hows["context_switches"].startswith("nsys profile -t cuda,nvtx,osrt --gpuctxsw=true ")
    assert hows["gpu_metrics"].startswith("nsys profile -t cuda,nvtx,osrt --gpu-metrics-devices=all ")
    assert "as root" in hows["gpu_metrics"]
