"""The JSON contract, and the formats that need no browser."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest
import report_examples as examples
from pydantic import ValidationError
from shared_sessions import load

from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.summary import render_summary
from pyanalyze.report.text import render_text
from pyanalyze.results.interference import Estimate, Interference
from pyanalyze.results.labels import tenant_labels
from pyanalyze.results.report import Report, json_schema, unexplained_nulls
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import markdown, visible

REPORTS = {
    "time-sliced": examples.time_sliced(),
    "undetermined": examples.undetermined(),
    "hostile": examples.hostile(),
}
ALL = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS.keys())

# Written out by hand from the design's section on the public face, not from the model.
KEYS = {
    "": "schema tool clock captures quality devices gpus_without_work samples_not_used listed nodes settings_advice "
    "pods_without_gpu settings view grouped_by",
    "tool": "version",
    "clock": "origin_utc_ns uncertainty_ns origin_local_ns",
    "captures": "path nsys_version schema_version start_ns end_ns recording_start_ns recording_end_ns "
    "switch_records cuda_events counter_samples counters_cover_ns held_start_ns held_end_ns clock_offset_ns clock_uncertainty_ns "
    "driver_version cuda_version host_hash",
    "quality": "name severity count detail",
    "devices": "device_id uuid gpu_uuid window all_at_work all_at_work_launched_ns all_at_work_jain in_flight_ns memory name sm_count compute_capability mig sharing "
    "relations segments context_switches residency_summary tenants occupancy sm_active_at_most interference sharing_is_the_cause advice host sampled gpu_metrics listed configured_sharing settings associations options replay_check slow_units even_units few_units other_units outside_units",
    "devices.window": "start_ns end_ns",
    "view": "start_ns end_ns gpu redacted",
    "devices.memory": "total_bytes peak_bytes free_bytes",
    "devices.sharing": "mode confidence basis condition configured agrees summary evidence details alternatives missing",
    "devices.sharing.details": "topic name value unit basis detail",
    "devices.sharing.evidence": "name supports against value unit n n_of weight basis detail sql examples",
    "devices.sharing.evidence.examples": "capture start_ns end_ns pid correlation_id",
    "devices.sharing.alternatives": "mode confidence why_not",
    "devices.sharing.missing": "what why how",
    "devices.relations": "tenants relation confidence co_busy_ns",
    "devices.segments": "start_ns end_ns mode confidence",
    "devices.context_switches": "count context_creations unrecorded_starts median_slice_ns median_cost_ns mean_cost_ns "
    "cost_kind total_cost_ns save gap restore recorded_ns overhead_fraction all_at_work_gap_share all_at_work_switches all_at_work_overhead_fraction endings dropped",
    "devices.context_switches.gap": "median_ns total_ns",
    "devices.residency_summary": "basis resident_ns idle_ns median_save_ns median_restore_ns time_slice_ns policy jain tenants",
    "devices.residency_summary.tenants": "tenant_id clients slices cut_slices gpu_time_share idle_ns idle_share without_kernels without_kernels_ns without_kernels_in_window_ns p10_slice_ns "
    "median_slice_ns p90_slice_ns max_slice_ns expired yielded",
    "devices.tenants": "tenant_id capture pid host_pid name container pod group_of contexts green_contexts served_by busy_ns resident_ns "
    "attributed_ns gpu_time_share gpu_time_basis all_at_work_share in_mps_group slices median_slice_ns usable_sms sm_share occupancy memory_peak_bytes slowdown assumed_switch_ns causes root_causes added_latency_ns added_latency work "
    "time_split copies streams baseline latency_percentiles units throughput not_compared slowdown_notes baselines_not_used",
    "devices.tenants.work": "launches graph_launches copies copy_bytes residency_known configurations other_launches "
    "other_ns startup_ns batches units",
    "devices.tenants.work.configurations": "key kernel grid_blocks block_threads launches total_ns attributed_total_ns attributed_p99_ns attributed_sd_ns",
    "devices.tenants.work.batches": "launches idle_ns idle_not_resident_ns idle_other_resident_ns "
    "waiting_not_resident_ns waiting_other_resident_ns busy_ns attributed_ns",
    "devices.tenants.slowdown": "elapsed latency latency_co_run resident",
    "devices.tenants.slowdown.elapsed": "value low high n basis",
    "devices.tenants.causes": "launch queue not_resident switch execution unexplained execution_split queue_other others",
    "devices.tenants.causes.execution_split": "sm_slots memory copy clock uvm unexplained",
    "devices.occupancy": "sm_active warps whole_graphs in_flight limiters small_grids basis calibration check_against_counters "
    "check_against_blocks kernel_counters",
    "devices.occupancy.sm_active": "value low high",
    "devices.occupancy.warps": "value low high",
    "devices.interference": "antt stp jain matrix harmonic unfairness speedup_over_serial kernels context_state",
    "devices.interference.matrix": "victim aggressor slowdown low high n latency inseparable_from share execution",
    "devices.advice": "action commands expected bound why undo risk wrong_if check_after at_stake_ns at_stake_share exclusive",
}


def _find(value: object, path: str) -> dict[str, object]:
    for part in filter(None, path.split(".")):
        assert isinstance(value, dict)
        value = value[part]
        if isinstance(value, list):
            value = value[0]
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("path", KEYS)
def test_keys_are_those_of_the_contract(path: str) -> None:
    found = _find(json.loads(examples.time_sliced().to_json()), path)
    assert list(found) == KEYS[path].split()


@ALL
def test_json_fits_its_schema_and_comes_back(report: Report) -> None:
    text = report.to_json()
    jsonschema.Draft202012Validator(json_schema()).validate(json.loads(text))
    assert Report.from_json(text).to_json() == text
    text.encode("utf-8")


def test_schema_is_sound_and_refuses_what_does_not_fit() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    broken = json.loads(examples.time_sliced().to_json())
    broken["devices"][0]["sharing"]["mode"] = "timeslicing"
    with pytest.raises(jsonschema.ValidationError, match="timeslicing"):
        jsonschema.Draft202012Validator(schema).validate(broken)
    undescribed = [
        f"{name}.{key}"
        for name, part in schema["$defs"].items()
        for key, field in part.get("properties", {}).items()
        if "description" not in field
    ]
    assert undescribed == []


def test_a_report_holds_the_results_of_the_analysis_and_writes_only_keys_of_the_contract(fixtures: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    report = session.report()
    (device,), (found,) = report.devices, session.interference()
    assert device.interference is found.figures is not None
    assert device.residency_summary is session.residency_summary()[0]
    assert list(device.segments) == list(session.analysis.segments[0]) != []
    verdict = session.classify()[0]
    assert [id(one) for one in device.sharing.evidence] == [id(one) for one in verdict.evidence] != []
    for tenant, compared in zip(device.tenants, found.tenants, strict=False):
        assert tenant.slowdown is compared.slowdown
        assert tenant.throughput is compared.throughput is not None
    # What the analysis knows beside it is not in the contract.
    written = json.loads(report.to_json())
    jsonschema.Draft202012Validator(json_schema()).validate(written)
    assert list(written["devices"][0]["sharing"]) == KEYS["devices.sharing"].split()
    assert (verdict.device, session.residency_summary()[0].device) == (device.name, device.name)


def test_floats_are_rounded_and_never_nan() -> None:
    figures = Interference(antt=math.nan, stp=math.inf, jain=0.1 + 0.2, matrix=None)
    device = examples.time_sliced().devices[0].model_copy(update={"interference": figures})
    report = examples.time_sliced().model_copy(update={"devices": [device]})
    assert json.loads(report.to_json())["devices"][0]["interference"] == {
        "antt": None,
        "stp": None,
        "jain": 0.3,
        "matrix": None,
        "harmonic": None,
        "unfairness": None,
        "speedup_over_serial": None,
        "kernels": [],
        "context_state": None,
    }
    with pytest.raises(ValidationError):
        Estimate(value=math.nan, low=None, high=None, n=1, basis="inferred")


def test_model_is_frozen_and_closed() -> None:
    report = examples.time_sliced()
    with pytest.raises(ValidationError):
        report.tool.version = "2"
    with pytest.raises(ValidationError, match="surprise"):
        Report.model_validate({**report.to_dict(), "surprise": 1})
    with pytest.raises(ValidationError, match="origin_utc_ns"):
        Report.model_validate({**report.to_dict(), "clock": {"origin_utc_ns": "1.7e18", "uncertainty_ns": 0}})


def test_nulls_must_be_explained() -> None:
    assert unexplained_nulls(examples.undetermined()) == []
    device = examples.undetermined().devices[0]
    silent = device.model_copy(update={"sharing": device.sharing.model_copy(update={"missing": []})})
    report = examples.undetermined().model_copy(update={"devices": [silent]})
    assert unexplained_nulls(report) == [
        f"devices[0].{key}" for key in ("window", "context_switches", "occupancy", "interference", "slowdown")
    ]


@ALL
def test_first_screen_fits_a_chat(report: Report) -> None:
    lines = render_summary(report).splitlines()
    assert len(lines) <= 15
    assert all(len(line) <= 100 for line in lines), lines
    assert "\x1b" not in "".join(lines)


def test_first_screen_answers_every_question() -> None:
    text = render_summary(examples.time_sliced(synthetic=True))
    for words in (
        "SYNTHETIC",
        "time-slicing (observed, confidence 0.97 in simulations)",
        "mps; MISMATCH",
        "compute_victim          49.0 %",
        "1\u202f212 context-switch gaps of 42.7 us: 2.1 % of",
        "kernel latency 2.05x (n = 1, inferred)",
        "yes. Waiting for its time slice (95.5 % of the added latency",
        "Share through MPS",
        "Slowed by pid 30398 (not traced); it was the only other resident tenant.",
        "kernels of pid 30398",
        # 1763728991.123 s + 1.204 s, by `date -u -d @1763728992.327`.
        "2.512 s from 2025-11-21 12:43:12.327 UTC",
    ):
        assert words in text


def test_not_known_is_never_zero() -> None:
    text = render_summary(examples.undetermined()) + render_text(examples.undetermined())
    assert "undetermined" in text
    assert "Slowdown is not known" in text
    assert "--gpuctxsw=true" in text
    assert "Context-switch overhead" not in text
    assert "0.0 %" not in text


def test_text_holds_the_figures_of_the_capture() -> None:
    text = render_text(examples.time_sliced(), examples.kernel_occupancy())
    for words in ("2.131 ms", "42.7 us", "1.231 s", "49.0 %", "2.512 s", "52.24 ms"):
        assert words in text
    assert "The 20 of 25 launch configurations with the most time." in text
    assert "void gemm_kernel_19" in text
    assert "void gemm_kernel_20" not in text


@pytest.mark.parametrize("render", [render_text, render_markdown, render_summary])
def test_hostile_names_stay_visible_and_on_their_line(render: object) -> None:
    assert callable(render)
    text = str(render(examples.hostile()))
    for char in "\0\x07\x1b\x85\r\u202e\u2066\u2069\u200f\u2028\ud800":
        assert char not in text
    assert not any(line.startswith("fake:") for line in text.splitlines())
    assert "k" * 61 not in text


def test_markdown_cannot_be_broken_out_of() -> None:
    text = render_markdown(examples.hostile(), examples.kernel_occupancy(3, examples.HOSTILE["markdown"]))
    prose, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            prose.append(line)
    assert not fenced
    joined = "\n".join(prose).replace("<details><summary>", "").replace("</summary>", "").replace("</details>", "")
    assert "<" not in joined
    assert "@everyone" not in joined
    assert "](" not in joined
    assert "http://" not in joined
    assert "`" not in joined
    widths: list[int] = []
    for before, line in zip(["", *prose], prose, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                widths = [line.count("|")]
            assert line.count("|") == widths[0], line


def test_code_fence_is_longer_than_any_inside() -> None:
    report = examples.time_sliced()
    advice = report.devices[0].advice[0].model_copy(update={"commands": ["echo ```` `x`"]})
    device = report.devices[0].model_copy(update={"advice": [advice]})
    assert "`````sh\necho ```` `x`\n`````" in render_markdown(report.model_copy(update={"devices": [device]}))


def test_visible_shortens_in_the_middle_without_cutting_an_escape() -> None:
    assert visible("a" * 60) == "a" * 60
    assert visible("a" * 31 + "b" * 30) == "a" * 30 + "…" + "b" * 29
    shown = visible("\u202e" * 100)
    assert len(shown) <= 60
    assert set(shown.replace("…", "").split("\\u202e")) == {""}
    assert visible("tab\tnul\0esc\x1b") == "tab\\tnul\\0esc\\x1b"
    assert visible("\ud800") == "\\ud800"
    assert visible("日本語 naïve ±") == "日本語 naïve ±"
    assert visible(None) == ""


def test_markdown_escape() -> None:
    assert markdown("a|b\\`c`*d*_e_ f_g") == "a&#124;b&#92;&#96;c&#96;&#42;d&#42;&#95;e&#95; f_g"
    assert markdown("@me #1 12:30 www.x") == "@&#8203;me #&#8203;1 12:30 w&#119;w.x"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (42_700, "42.7 us"),
        (999_999, "1.000 ms"),
        (2_131_000, "2.131 ms"),
        (52_237_806, "52.24 ms"),
        (1_230_800_000, "1.231 s"),
        (2_511_700_000, "2.512 s"),
        (123_456_000_000, "123.5 s"),
        (-42_700, "-42.7 us"),
        (None, "not known"),
    ],
)
def test_durations(ns: int | None, text: str) -> None:
    assert fmt.duration(ns) == text


def test_other_numbers() -> None:
    assert fmt.percent(1230.8 / 2511.7) == "49.0 %"
    assert fmt.percent(1e-6) == "< 0.01 %"
    assert fmt.percent(0.0) == "0.0 %"
    assert fmt.count(1_234_567) == "1\u202f234\u202f567"
    assert fmt.bytes_(48 * 2**30) == "48.0 GiB"
    assert fmt.number(0.042713) == "0.0427"
    assert fmt.utc("9" * 30, 0).endswith("(not a date)")


def test_labels_are_unique_whatever_the_names() -> None:
    tenants = [
        examples.tenant(i, name, pid) for i, (name, pid) in enumerate([("a", 1), ("a", 1), ("a", 2), ("", None)])
    ]
    labels = tenant_labels(tenants)
    assert labels == {0: "a (pid 1)", 1: "a (pid 1) #1", 2: "a (pid 2)", 3: "unnamed"}


def test_baselines_of_tenants_whose_kernels_were_not_traced_are_said_not_to_be_used(fixtures: Path) -> None:
    session = load(fixtures / "node-switches-only.sqlite", baselines=[fixtures / "exclusive.sqlite"])
    (entry,) = session.report().devices[0].missing_for("slowdown")
    assert entry.why.endswith(" were not traced, so they were not compared with exclusive.sqlite")
    # It is kernels that lack, not solo recordings.
    assert "--gpuctxsw=true" in entry.how
    assert "solo" not in entry.how
