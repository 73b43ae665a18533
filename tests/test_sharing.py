"""The verdict on hand-made facts: both sides of each threshold, and what must never be concluded."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import generate
import pytest
from verdicts import judged

import pyanalyze
from pyanalyze.report.text import first_screen
from pyanalyze.sharing import MODES, RULES, Case, Configured, Fact, judge, observe
from pyanalyze.sharing import thresholds as t
from pyanalyze.sharing.evidence import Pair
from pyanalyze.sharing.segments import segments


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
    "stretched_share": 0.0,
}


def test_turns_are_time_slicing_even_beside_one_traced_process() -> None:
    verdict = judge(case(TURNS))
    assert (verdict.mode, verdict.basis) == ("time-slicing", "observed")
    assert verdict.posterior > 0.99
    # No more than how often verdicts on simulated recordings were right.
    assert t.MIN_CONFIDENCE < verdict.confidence < 0.99


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
    assert ("alternation" in observe(case({**TURNS, "switches_between_tenants": switches}))) is seen


@pytest.mark.parametrize(
    ("fact_name", "below", "above", "observation"),
    [
        ("alternation_share", t.MIN_ALTERNATION_SHARE - 0.01, t.MIN_ALTERNATION_SHARE, "alternation"),
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
        ("preemption_exposure", t.MIN_EXPOSURE - 0.1, t.MIN_EXPOSURE, "steady_kernels"),
        ("stretched_share", t.MIN_STRETCH_SHARE - 0.001, t.MIN_STRETCH_SHARE, "stretched_kernels"),
        ("stretch_excess_spread", t.MAX_SLICE_SPREAD + 0.001, t.MAX_SLICE_SPREAD, "stretched_by_slices"),
        ("crowded_start_share", t.MIN_CROWDED_SHARE - 0.001, t.MIN_CROWDED_SHARE, "no_room_for_both"),
        ("crowded_start_share", t.MAX_ROOM_SHARE + 0.001, t.MAX_ROOM_SHARE, "starts_when_room"),
        ("metric_outside_pct", t.MAX_QUIET_SM_ACTIVE_PCT + 0.1, t.MAX_QUIET_SM_ACTIVE_PCT, "counters_quiet"),
        ("metric_outside_pct", t.MIN_LOUD_SM_ACTIVE_PCT - 0.1, t.MIN_LOUD_SM_ACTIVE_PCT, "counters_loud"),
    ],
)
def test_both_sides_of_each_threshold(fact_name: str, below: float, above: float, observation: str) -> None:
    facts = {
        **TURNS,
        **ALONE,
        "short_overlap_share": 0.0,
        "short_overlap_expected": t.MIN_EXPECTED_OVERLAP_SHARE,
    }
    if observation == "stretched_by_slices":
        facts |= {"stretched_share": 0.2, "stretch_excess_ns": 2.2e6, "stretch_ratio_spread": 0.5}
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
    facts = {"stretched_share": 0.2, "stretch_excess_ns": excess_ns, "stretch_excess_spread": excess_spread}
    found = observe(case({**ALONE, **facts, "stretch_ratio_spread": ratio_spread}))
    assert ("stretched_by_slices" in found) is seen
    few = {name: replace(fact(value), n=int(t.MIN_STRETCHED) - 1) for name, value in facts.items()}
    made = {name: fact(value) for name, value in ALONE.items()}
    assert "stretched_by_slices" not in observe(replace(case({}), facts={**made, **few}))


@pytest.mark.parametrize(("n", "seen"), [(t.MIN_CROWDED_STARTS - 1, False), (t.MIN_CROWDED_STARTS, True)])
def test_few_kernels_beside_wide_ones_say_nothing(n: float, *, seen: bool) -> None:
    made = {"crowded_start_share": fact(1.0, n=int(n))}
    assert ("no_room_for_both" in observe(replace(case({}), facts=made))) is seen


@pytest.mark.parametrize(
    ("limit", "busy", "seen"),
    [("30", 0.85, True), ("30", 0.86, False), ("100", 0.5, False), ("0", 0.5, False), ("", 0.5, False)],
)
def test_a_limiter_that_left_the_gpu_idle_held_back(limit: str, busy: float, *, seen: bool) -> None:
    rows = [Configured("environment", "CUDA_DEVICE_SM_LIMIT", limit)]
    found = observe(case({**TURNS, "busy_share": busy}, configured=rows))
    assert ("held_back" in found) is seen
    if seen:
        assert judge(case({**TURNS, "busy_share": busy}, configured=rows)).mode == "software-limited"


def test_too_few_short_kernels_say_nothing() -> None:
    for n, seen in ((int(t.MIN_SHORT_KERNELS) - 1, False), (int(t.MIN_SHORT_KERNELS), True)):
        found = observe(replace(case({}), facts={"short_overlap_share": fact(0.9, n=n)}))
        assert ("short_kernels_overlap" in found) is seen


def test_steady_kernels_carry_exclusive_as_a_deduction() -> None:
    verdict = judge(case(ALONE, tenants=("a",)))
    assert (verdict.mode, verdict.basis) == ("exclusive", "inferred")
    assert "context_switches" in [gap.what for gap in verdict.missing]


def test_one_kernel_alone_proves_nothing() -> None:
    verdict = judge(case({"busy_ns": 1e6, "traced_tenants": 1, "stream_overlap_share": 0.0}, tenants=("a",)))
    assert verdict.mode == "undetermined"
    assert verdict.confidence < t.MIN_CONFIDENCE
    assert verdict.missing


@pytest.mark.parametrize("state", ["absent", "empty"])
def test_no_switch_table_never_proves_exclusive_or_mig(state: str) -> None:
    verdict = judge(case({"busy_ns": 1e6, "traced_tenants": 1}, sources={"switch_events": state}, tenants=("a",)))
    assert verdict.mode == "undetermined"


def test_without_process_ids_one_tenant_is_never_claimed() -> None:
    verdict = judge(case(ALONE, tenants=("unknown process",), pids_known=False))
    assert verdict.mode == "undetermined"
    assert "process_ids" in [gap.what for gap in verdict.missing]


def test_a_deduction_claims_less_than_a_record() -> None:
    deduced = judge(case(ALONE, tenants=("a",)))
    assert deduced.basis == "inferred"
    assert t.MIN_CONFIDENCE <= deduced.confidence < judge(case(TURNS)).confidence


def test_overlapping_intervals_of_two_processes_never_prove_mps() -> None:
    verdict = judge(case({"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.99, "stream_overlap_share": 0.0}))
    assert verdict.mode == "undetermined"


def test_tenants_never_busy_together_prove_nothing() -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    facts = {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.001}
    verdict = judge(case(facts, configured=daemon))
    assert verdict.mode == "undetermined"
    assert verdict.confidence < t.MIN_CONFIDENCE
    assert "co_run" in [gap.what for gap in verdict.missing]


def test_an_idle_gpu_has_no_mode() -> None:
    verdict = judge(case({}, tenants=()))
    assert verdict.mode == "undetermined"
    assert "Nothing ran" in verdict.summary
    assert (verdict.confidence, verdict.rivals) == (0.0, ())


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


def test_limiter_variables_are_a_configuration_not_an_observation() -> None:
    limiter = [Configured("environment", "CUDA_DEVICE_SM_LIMIT", "30")]
    verdict = judge(case({"busy_ns": 1e9, "traced_tenants": 1}, configured=limiter, tenants=("a",)))
    assert verdict.mode == "undetermined"
    assert verdict.configured == "software-limited"
    assert "software-limited" in [rival.mode for rival in verdict.rivals]


def test_rules_are_complete_and_say_why() -> None:
    assert [rule.mode for rule in RULES] == list(MODES[:-1])
    files = {p.stem for p in Path(__file__).parent.parent.glob("pyanalyze/sharing/rules/*.py")}
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


def test_a_daemon_settles_what_visible_sms_leave_open() -> None:
    daemon = [Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server")]
    assert judge(case(TOGETHER, visible_sms=(56, 42), configured=daemon)).mode == "mps-partitioned"


def test_processes_of_unknown_instances_are_not_said_to_share_one() -> None:
    inside = {"name": "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "mig_profile": "3g.20gb"}
    assert judge(case(TOGETHER, **inside)).mode == "mig+mps"
    verdict = judge(case(TOGETHER, **inside, instances_unassigned=3))
    assert verdict.mode == "undetermined"
    assert "instances" in {gap.what for gap in verdict.missing}


def test_a_rival_that_is_seldom_busy_need_not_stretch_anything() -> None:
    """Its kernels are shorter than a slice, and it yields: what it leaves unstretched does not prove MPS."""
    facts = {**ALONE, "traced_tenants": 2, "co_busy_share": 0.05}
    assert "steady_kernels" in observe(case(ALONE))
    assert "steady_kernels" not in observe(case(facts))
    assert judge(case(facts)).mode == "undetermined"


def test_contexts_that_follow_each_other_are_no_turns() -> None:
    """Two processes that never had work at the same time get the engine one after the other however they share it."""
    met = {**TURNS, "traced_tenants": 2, "resident_share_untraced": 0.0, "co_busy_share": 0.4}
    assert judge(case(met)).mode == "time-slicing"
    # In slices they take turns although what waits for its slice cannot be seen in flight.
    assert judge(case({**met, "co_busy_share": 0.001})).mode == "time-slicing"
    pauses = {"co_busy_share": 0.001, "window_ns": 1213 * t.LONGEST_SLICE_NS + 1}
    assert judge(case({**met, **pauses})).mode == "undetermined"


@pytest.mark.parametrize("seed", [1, 2])
def test_no_verdict_on_a_generated_recording_is_wrong(seed: int) -> None:
    rows = [row for name in generate.scenario_names() for row in judged(name, seed)]
    assert len(rows) > 100
    assert {row.capture for row in rows if row.outcome == "wrong"} == set()
    answerable = [row for row in rows if row.identifiable and row.true != "undetermined"]
    assert sum(row.outcome == "right" for row in answerable) / len(answerable) > 0.93


@pytest.mark.parametrize(
    ("scenario", "names"),
    [
        ("time-slicing-pair", {"alternation", "several_traced_tenants"}),
        ("time-slicing-pair.2021", {"alternation", "several_traced_tenants"}),
        ("running-example-time-slicing", {"alternation", "streams_overlap"}),
        ("mps", {"busy_without_switches", "several_traced_tenants"}),
        ("mps-outsider", {"turns_with_outsider"}),
        ("exclusive-four-streams", {"sole_resident", "one_traced_tenant"}),
        ("streams", {"sole_resident", "one_traced_tenant", "streams_overlap"}),
    ],
)
def test_queries_over_the_export_give_the_same_number(scenario: str, names: set[str]) -> None:
    path = generate.built(scenario.partition(".")[0]) / f"{scenario}.sqlite"
    (verdict,) = pyanalyze.load(path).classify()
    asked = {w.observation.name: w.observation for w in verdict.evidence if w.observation.sql}
    assert names <= asked.keys()
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for seen in asked.values():
            assert seen.sql is not None
            assert database.execute(seen.sql).fetchone()[0] == pytest.approx(seen.value), seen.name


def test_the_change_from_time_slicing_to_mps_is_found() -> None:
    folder = generate.built("mps-started-half-way")
    truth = json.loads((folder / "mps-started-half-way.truth.json").read_text(encoding="utf-8"))
    (before, _), (_, after) = truth["devices"][0]["modes"]
    session = pyanalyze.load(folder / "mps-started-half-way.sqlite")
    first, second = segments(session, session.classify()[0])
    assert [first.mode, second.mode] == [mode for _, mode in truth["devices"][0]["modes"]]
    assert (before, after) == (0, second.mode)
    # The second daemon's clients come at 300 ms and launch from 315 ms on; the old ones have stopped at 285 ms.
    assert 280e6 < first.end_ns == second.start_ns < 330e6
    (window,) = [(u["first_ns"].min(), u["last_ns"].max()) for u in [session.tenant_usage]]
    assert (first.start_ns, second.end_ns) == window


def test_a_tenant_that_comes_later_is_a_change(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite")
    first, second = segments(session, session.classify()[0])
    assert [first.mode, second.mode] == ["streams", "time-slicing"]
    # The context of app_b is made at 225 ms, it launches from 240 ms on, and 8 turns of 2 ms show that they take turns.
    assert 220e6 < first.end_ns < 280e6


@pytest.mark.parametrize("scenario", ["time-slicing-pair", "mps-outsider", "time-slicing-low-duty", "streams"])
def test_a_mode_that_does_not_change_is_one_segment(scenario: str) -> None:
    session = pyanalyze.load(generate.built(scenario) / f"{scenario}.sqlite")
    (verdict,) = session.classify()
    assert [part.mode for part in segments(session, verdict)] == [verdict.mode]


def test_clients_beside_an_outsider_are_judged_pair_by_pair() -> None:
    """The mode is that of most co-busy time; the relation of each pair is its own."""
    turns = {**TURNS, "traced_tenants": 3, "resident_share_untraced": 0.0, "co_busy_share": 0.4}
    facts = {**turns, "short_overlap_share": 0.2}
    clients, outsiders = Pair((0, 1), 500, 1000, 600), [Pair((0, 2), 200, 400, 4), Pair((1, 2), 200, 400, 4)]
    assert judge(case(facts, pairs=[clients, *outsiders])).mode == "mps"
    seldom = replace(clients, co_busy_ns=100)
    assert judge(case(facts, pairs=[seldom, *outsiders])).mode == "time-slicing"


def test_relations_beside_an_outsider_are_the_true_ones() -> None:
    folder = generate.built("mps-outsider")
    truth = json.loads((folder / "mps-outsider.truth.json").read_text())
    device = pyanalyze.load(folder / "mps-outsider.sqlite").report().devices[0]
    names = {tenant.tenant_id: tenant.name for tenant in device.tenants}
    found = {frozenset(names[t] for t in r.tenants): r.relation for r in device.relations if r.relation != "unknown"}
    true = {frozenset(pair["tenants"]): pair["relation"] for pair in truth["devices"][0]["pairs"]}
    assert found.items() <= true.items()
    assert found[frozenset({"client-1", "client-2"})] == "side-by-side"


def test_the_first_screen_says_whom_an_mps_server_holds_the_gpu_for() -> None:
    report = pyanalyze.load(generate.built("mps-outsider") / "mps-outsider.sqlite").report()
    assert "nvidia-cuda-mps (for client-1, client-2) 8" in first_screen(report)


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
    assert verdict.configured == "mps"


def test_short_kernels_inside_long_ones_that_are_not_stretched_are_no_exclusion() -> None:
    """Two MPS clients in step: the short kernels of each always run beside a long one of the other."""
    facts = {
        **TOGETHER,
        "short_overlap_share": 0.0,
        "short_overlap_expected": 0.15,
        "stretched_share": 0.0,
        "preemption_exposure": 100.0,
    }
    apart, inside = Pair((0, 1), 500, 1080, 0), Pair((0, 1), 500, 1080, 0, short_inside=1080)
    assert "short_kernels_exclude" in observe(case(facts, pairs=[apart]))
    assert "short_kernels_exclude" not in observe(case(facts, pairs=[inside]))
    assert "short_kernels_exclude" in observe(case({**facts, "stretched_share": 0.1}, pairs=[inside]))
