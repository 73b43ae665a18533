"""The gate: what passes, what fails, and what lacks its data and therefore never passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import generate
import pytest
import report_examples as examples
from command_line import run
from shared_sessions import load

from pyanalyze.analysis.gate import check, parts_of, read_limits
from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import record_all
from pyanalyze.results.check import Checked, Limits, Outcome
from pyanalyze.results.interference import BaselineNotUsed, ContextState, Estimate, Slowdown
from pyanalyze.results.model import Missing
from pyanalyze.results.occupancy import Bounded
from pyanalyze.results.report import Report
from pyanalyze.vocabulary import Condition

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

DEMO = "demo-time-slicing.sqlite"


def slowed(
    elapsed: tuple[float | None, float | None] | None, latency: tuple[float | None, float | None] | None
) -> Report:
    """The example with these bounds of its traced tenant's slowdowns."""

    def estimate(ends: tuple[float | None, float | None] | None) -> Estimate | None:
        if ends is None:
            return None
        value = ends[1] if ends[1] is not None else ends[0] if ends[0] is not None else 2.0
        return Estimate(value=value, low=ends[0], high=ends[1], n=9, basis="inferred")

    report = examples.time_sliced()
    (device,) = report.devices
    slowdown = Slowdown(elapsed=estimate(elapsed), latency=estimate(latency), resident=estimate((1.0, 1.1)))
    victim = device.tenants[0].model_copy(update={"slowdown": slowdown})
    device = device.model_copy(update={"tenants": [victim, *device.tenants[1:]]})
    return report.model_copy(update={"devices": [device]})


@pytest.mark.parametrize(
    ("elapsed", "latency", "expected"),
    [
        ((1.0, 1.1), (1.0, 1.15), "passed"),  # both ends of both within 1.2
        ((1.3, 1.4), (1.0, 1.1), "failed"),  # the larger of the two is beyond it
        ((1.0, 1.3), (1.0, 1.1), "inconclusive"),  # the limit lies inside what is known
        ((1.0, 1.1), (1.5, None), "failed"),  # at least 1.5 is beyond it, however much more it is
        ((1.0, 1.1), (1.1, None), "inconclusive"),  # at least 1.1 may be 3
        ((1.0, 1.1), None, "inconclusive"),  # the larger of the two is not known
        ((1.3, 1.4), None, "failed"),  # the larger of the two is at least the one that is
        (None, None, "inconclusive"),
        ((None, None), (None, None), "inconclusive"),  # a number without bounds is no knowledge
        ((None, 1.1), (None, 1.1), "passed"),  # at most 1.1 is within 1.2, whatever the lower end
    ],
)
def test_a_slowdown_is_judged_by_the_ends_of_what_is_known(
    elapsed: tuple[float | None, float | None] | None, latency: tuple[float | None, float | None] | None, expected: str
) -> None:
    (outcome,) = check(slowed(elapsed, latency), Limits(max_slowdown=1.2)).outcomes
    assert outcome.status == expected
    assert outcome.subject == "compute_victim", "the neighbour is not traced: its slowdown is nobody's gate"


def test_one_kind_of_slowdown_can_be_looked_at() -> None:
    limits = Limits(max_slowdown=1.2, slowdown="resident")
    assert check(slowed((2.0, 2.1), (3.0, None)), limits).status == "passed"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(expect_mode=("time-slicing",)), "passed"),
        (Limits(expect_mode=("mps", "time-*")), "passed"),
        (Limits(expect_mode=("mps*",)), "failed"),
        (Limits(expect_agreement=True), "failed"),  # mps was configured
        # 52237806 ns of switch gaps in a window of examples.LENGTH: 2.08 %. Saving and restoring come on top.
        (Limits(max_switch_overhead=0.05), "inconclusive"),
        # Up to 200 us each of 1212: 294.64 ms, 11.7 %.
        (Limits(max_switch_overhead=0.115), "inconclusive"),
        (Limits(max_switch_overhead=0.12), "passed"),
        (Limits(max_switch_overhead=0.02), "failed"),
        (Limits(min_jain=0.9), "passed"),
        # 0.49 by traced kernels; the untraced tenant was resident for 1233.6 of 2511.7 ms, 0.491.
        (Limits(min_sm_active=0.5), "inconclusive"),
        (Limits(min_sm_active=0.99), "failed"),
        (Limits(min_sm_active=0.4), "passed"),
        (Limits(max_memory=0.2), "passed"),  # 6 of 48 GiB
        (Limits(max_memory=0.1), "failed"),
        (Limits(no_data_loss=True), "passed"),
    ],
)
def test_every_threshold_against_figures_known_beforehand(limits: Limits, expected: str) -> None:
    assert examples.LENGTH == 2_511_700_000
    assert check(examples.time_sliced(), limits).status == expected


@pytest.mark.parametrize(
    ("ends", "limit", "status", "said"),
    [
        # value, low, high: fails only below all of them, passes only above.
        ((0.49, 0.42, 0.55), 0.6, "failed", "49.0 % of the SMs (42.0 to 55.0), mean over the window, modelled; limit 60.0 %"),
        ((0.49, 0.42, 0.55), 0.5, "inconclusive", "49.0 % of the SMs (42.0 to 55.0), mean over the window, modelled; limit 50.0 %"),
        ((0.49, 0.42, 0.55), 0.45, "inconclusive", "49.0 % of the SMs (42.0 to 55.0), mean over the window, modelled; limit 45.0 %"),
        ((0.49, 0.42, 0.55), 0.42, "passed", "49.0 % of the SMs (42.0 to 55.0), mean over the window, modelled; limit 42.0 %"),
        ((0.09, 0.08, 0.09986), 0.1, "failed", "9.00 % of the SMs (8.00 to 9.99), mean over the window, modelled; limit 10.00 %"),
    ],
)  # fmt: skip
def test_active_sms_are_judged_by_their_interval(
    ends: tuple[float, float, float], limit: float, status: str, said: str
) -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    assert device.occupancy is not None
    value, low, high = ends
    found = Bounded(value=value, low=low, high=high)
    traced = [tenant for tenant in device.tenants if tenant.busy_ns is not None]
    changed = {"occupancy": device.occupancy.model_copy(update={"sm_active": found}), "tenants": traced}
    report = report.model_copy(update={"devices": [device.model_copy(update=changed)]})
    checked = check(report, Limits(min_sm_active=limit))
    (outcome,) = checked.outcomes
    assert (outcome.status, outcome.detail) == (status, said)
    assert (outcome.value, outcome.low, outcome.high) == ends
    assert checked.exit_code == {"passed": 0, "failed": 1, "inconclusive": 4}[status]
    assert ("--gpu-metrics-devices" in outcome.how) == (status == "inconclusive")


def test_sms_that_an_untraced_tenant_may_have_filled_fail_no_gate() -> None:
    """Occupancy is replayed from traced kernels: while an untraced tenant is resident it is a lower bound."""
    report = examples.time_sliced()
    (device,) = report.devices

    def status(found: float, held_ns: int) -> tuple[str, str]:
        assert device.occupancy is not None
        exact = Bounded(value=found, low=found, high=found)
        occupancy = device.occupancy.model_copy(update={"sm_active": exact})
        tenants = [
            t if t.busy_ns is not None else t.model_copy(update={"resident_ns": held_ns}) for t in device.tenants
        ]
        assert {t.busy_ns is None for t in tenants} == {True, False}
        changed = device.model_copy(update={"occupancy": occupancy, "tenants": tenants})
        (outcome,) = check(report.model_copy(update={"devices": [changed]}), Limits(min_sm_active=0.5)).outcomes
        return outcome.status, outcome.how

    half = examples.LENGTH // 2
    assert status(0.1, half) == ("inconclusive", record_all())
    assert status(0.1, half // 2) == ("failed", ""), "0.1 and a quarter are not half, whatever it did"
    assert status(0.6, half) == ("passed", "")


@pytest.mark.parametrize(
    "limits",
    [
        Limits(expect_mode=("exclusive",)),
        Limits(expect_agreement=True),
        Limits(max_slowdown=100),
        Limits(max_switch_overhead=1),
        Limits(min_jain=0),
        Limits(min_sm_active=0),
        Limits(max_memory=1),
        Limits(tenants={"nobody": 2.0}),
    ],
)
def test_what_lacks_its_data_never_passes(limits: Limits) -> None:
    checked = check(examples.undetermined(), limits)
    assert checked.status == "inconclusive"
    assert checked.exit_code == 4
    assert check(examples.undetermined(), limits, inconclusive="warn").exit_code == 0
    nothing = examples.undetermined().model_copy(update={"devices": []})
    assert check(nothing, limits).exit_code == 4, "no GPU at all"


def test_a_mode_taken_from_the_configuration_is_not_said_to_be_observed(corpus: Path) -> None:
    """Nothing but settings shows the mode of this capture: more settings would not help, switch records would."""
    path = corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite"
    report = load(path).report()
    (outcome,) = check(report, Limits(expect_agreement=True)).outcomes
    assert outcome.status == "inconclusive"
    assert "observed" not in outcome.detail
    assert "--gpuctxsw=true" in outcome.how
    assert "--context" not in outcome.how
    (line,) = (line for line in run("classify", path).stdout.splitlines() if line.startswith("  configured: "))
    assert line == "  configured: mps-partitioned; the mode is taken from it, so there is nothing to compare it with"
    (mode,) = (line for line in run("summary", path).stdout.splitlines() if line.startswith("Mode"))
    assert mode.count("configured") == 1
    compared = run("compare", path, path).stdout
    assert "Observed mode" not in compared


def test_an_inferred_mode_is_not_said_to_be_observed() -> None:
    path = Path(__file__).parent.parent / "fixtures/hardware/h200/node-mps-A-B-beside-C"
    (outcome,) = check(load(path).report(), Limits(expect_agreement=True)).outcomes
    assert (outcome.status, outcome.detail) == ("failed", "mps was configured, mps+time-slicing was inferred")
    for command in ("summary", "classify"):
        assert "was observed" not in run(command, path).stdout


def with_saving(*, dropped: int = 0, missing: tuple[Missing, ...] = ()) -> Report:
    """The time-sliced example, whose kernels show that saving and restoring take 60 us (50 to 70 us)."""
    report = examples.time_sliced()
    (device,) = report.devices
    assert device.context_switches is not None
    assert device.interference is not None
    state = ContextState(save_ns=40_000, restore_ns=20_000, low_ns=50_000, high_ns=70_000, found_from="kernels")
    changed = {
        "context_switches": device.context_switches.model_copy(update={"dropped": dropped}),
        "interference": device.interference.model_copy(update={"context_state": state}),
        "sharing": device.sharing.model_copy(update={"missing": [*device.sharing.missing, *missing]}),
    }
    return report.model_copy(update={"devices": [device.model_copy(update=changed)]})


@pytest.mark.parametrize(("limit", "status"), [(0.02, "failed"), (0.05, "inconclusive"), (0.06, "passed")])
def test_the_cost_of_switches_has_two_ends(limit: float, status: str) -> None:
    """Gaps alone are 52.237806 of 2511.7 ms; 1212 switches with 70 us each come to 137.08 ms, with 60 us to 124.96."""
    (outcome,) = check(with_saving(), Limits(max_switch_overhead=limit)).outcomes
    assert outcome.status == status
    assert outcome.low == pytest.approx(52.237806 / 2511.7)
    assert outcome.value == pytest.approx(124.957806 / 2511.7)
    assert outcome.high == pytest.approx(137.077806 / 2511.7)


def test_an_idle_phase_does_not_let_switch_overhead_pass() -> None:
    """By SQL 633 switches begin in the 1011.664 ms in which both had work, of 4.564 s; their gaps take 52.0142 ms."""
    path = Path(__file__).parent.parent / "fixtures/hardware/h100/slices-A-B.sqlite"
    limits = Limits(max_switch_overhead=0.05)
    report = load(path).report(parts=parts_of(limits))
    (outcome,) = check(report, limits).outcomes
    assert outcome.status == "failed"
    assert outcome.low == pytest.approx(52.0142 / 1011.664401)
    (device,) = report.devices
    assert device.interference is not None and device.interference.context_state is not None
    most_ns = 52_014_200 + 633 * device.interference.context_state.high_ns
    assert outcome.high == pytest.approx(most_ns / 1_011_664_401)
    assert outcome.detail.startswith("5.1 % of the 1.012 s in which all tenants co-ran, in 633 context switches")
    assert "; of the whole window 1.2 % to 2.9 %; limit 5.0 %" in outcome.detail


def test_lost_records_leave_the_overhead_open() -> None:
    report = with_saving(dropped=5)
    assert check(report, Limits(max_switch_overhead=0.06)).status == "inconclusive"
    assert check(report, Limits(max_switch_overhead=0.02)).status == "failed"


def test_records_that_were_removed_leave_the_overhead_open() -> None:
    gap = Missing(what="export_rows", why="the export was cut", how="nsys export --type sqlite REPORT.nsys-rep")
    (outcome,) = check(with_saving(missing=(gap,)), Limits(max_switch_overhead=0.06)).outcomes
    assert (outcome.status, outcome.how) == ("inconclusive", gap.how)
    assert outcome.detail.endswith(gap.why)
    assert check(with_saving(missing=(gap,)), Limits(max_switch_overhead=0.02)).status == "failed"


def test_a_cut_export_is_not_known_to_be_whole() -> None:
    """`DIAGNOSTIC_EVENT` of this export says 118 838 CUDA events, of which 17 101 rows are left, and 2584 switch records."""
    path = Path(__file__).parent.parent / "fixtures/hardware/h200/torch-slices-jax_train-decode.sqlite"
    limits = Limits(no_data_loss=True, max_switch_overhead=0.2)
    checked = check(load(path).report(), limits)
    assert checked.exit_code == 4
    assert {outcome.status for outcome in checked.outcomes} == {"inconclusive"}
    (loss,) = (outcome for outcome in checked.outcomes if outcome.gate == "no_data_loss")
    lacking = "101 737 CUDA events, 2 152 context-switch records and 84 214 counter samples"
    assert lacking in loss.detail.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert loss.how.startswith("nsys export")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # By SQL no kernel has the correlation ids of 8 launch calls; `ANALYSIS_DETAILS` has 2.892 s behind the last record.
        ("torch-slices-serve-train", "8 of 1 611 launch calls (a graph counts as one) have no kernel record"),
        ("torch-mps-serve-train", "2 of 1 967 launch calls (a graph counts as one) have no kernel record"),
    ],
)
def test_launches_without_a_kernel_show_that_an_export_is_a_part(name: str, said: str) -> None:
    """Neither counter samples nor numbers of nsys tell of it: only its launch calls do."""
    path = Path(__file__).parent.parent / f"fixtures/hardware/h100/{name}.sqlite"
    limits = Limits(no_data_loss=True)
    (outcome,) = check(load(path).report(parts=parts_of(limits)), limits).outcomes
    assert outcome.status == "inconclusive"
    detail = outcome.detail.replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert detail.startswith(said)
    assert "the export is part of a longer recording" in detail
    assert outcome.how.startswith("nsys export")


def test_work_in_flight_where_a_recording_ends_is_no_lost_record() -> None:
    """One kernel of the last call had not ended when nsys stopped; whole in every other way."""
    path = Path(__file__).parent.parent / "fixtures/captures/lost-records.sqlite"
    report = load(path).report()
    whole = report.model_copy(update={"quality": []})
    assert "unfinished_kernels" in {gap.what for gap in report.devices[0].sharing.missing}
    assert check(whole, Limits(no_data_loss=True)).status == "passed"


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(slowdown="elapsed"),
        Limits(max_slowdown=0.5),
        Limits(max_switch_overhead=5),
        Limits(expect_mode=("mpps",)),
        Limits(max_slowdown=float("nan")),
        Limits(max_change=0.1),
    ],
)
def test_thresholds_without_sense_are_refused(limits: Limits) -> None:
    with pytest.raises(UsageError):
        check(examples.time_sliced(), limits)


def test_what_is_recorded_again_for_counters_keeps_switch_records_and_tenants() -> None:
    """Both tenants of this recording have switch records: without them its other answers would be worse."""
    path = Path(__file__).parent.parent / "fixtures/hardware/h100/torch-slices-serve-train.sqlite"
    limits = Limits(min_sm_active=0.4)
    (outcome,) = check(load(path).report(parts=parts_of(limits)), limits).outcomes
    assert outcome.status == "inconclusive"
    assert "--gpuctxsw=true" in outcome.how
    assert "in one session; record the other tenants at the same time" in outcome.how


def test_a_mode_says_where_its_confidence_was_measured() -> None:
    """No verdict on a real recording was counted: how often it is right is known of simulated ones."""
    path = Path(__file__).parent.parent / "fixtures/captures/demo-time-slicing.sqlite"
    checked = run("check", path, "--expect-mode", "time-slicing").stdout
    assert "the mode is time-slicing (observed, confidence 0.98 in simulations)" in checked
    assert "time-slicing (observed, confidence 0.98 in simulations)" in run("classify", path).stdout


def test_a_failure_outweighs_missing_data() -> None:
    both = Checked((Outcome("a", "x", "inconclusive", ""), Outcome("b", "x", "failed", "")))
    assert both.exit_code == 1
    assert Checked((Outcome("a", "x", "passed", ""),)).exit_code == 0


def test_thresholds_come_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "pyanalyze.toml"
    file.write_text('[check]\nexpect-mode = ["mps", "mig*"]\nmax_slowdown = 2\nmax_switch_overhead = "5%"\n'
                    'inconclusive = "warn"\n[check.tenants]\n"the service" = 1.1\n')  # fmt: skip
    limits, policy = read_limits(file)
    assert limits == Limits(
        expect_mode=("mps", "mig*"), max_slowdown=2.0, max_switch_overhead=0.05, tenants={"the service": 1.1}
    )
    assert policy == "warn"
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.pyanalyze.check]\nno_data_loss = true\n")
    assert read_limits(project)[0] == Limits(no_data_loss=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check]\nmax_slowdwon = 1.2\n", "max_slowdwon"),
        ("[check]\nmax_slowdown = true\n", "not a number"),
        ('[check]\nmax_slowdown = "1.2"\n', "not a number"),
        ('[check]\nmax_memory = "a lot"\n', "percentage"),
        ('[check]\ninconclusive = "pass"\n', "fail or warn"),
        ("[other]\n", "no table"),
        ("[check\n", "not TOML"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pyanalyze.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_limits(file)


def test_junit_says_it_to_ci() -> None:
    name = 'ev<i>l"\x1b[2J\u202e & co'
    outcomes = (
        Outcome("max_slowdown", "a", "failed", f"x & {name}".replace("\x1b", "\\x1b")),
        Outcome("expect_mode", "b", "inconclusive", "not available", how="nsys profile"),
        Outcome("min_jain", "c", "passed", "1.0"),
    )
    (suite,) = ET.fromstring(Checked(outcomes).to_junit())
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    assert [child.tag for case in suite for child in case] == ["failure", "error", "system-out"]
    (suite,) = ET.fromstring(Checked(outcomes, "warn").to_junit())
    assert (suite.get("errors"), suite.get("skipped")) == ("0", "1")


def test_github_gets_one_line_each() -> None:
    outcome = Outcome("max_slowdown", "a, b: c", "failed", "50 %\nof it")
    assert Checked((outcome,)).annotations() == [
        "::error title=max-slowdown (a%2C b%3A c)::50 %25%0Aof it",
    ]
    blind = Outcome("max_slowdown", "a", "inconclusive", "not known")
    assert Checked((blind,), "warn").annotations() == ["::warning title=max-slowdown (a)::not known"]


def test_the_verb_ends_as_the_gate_says(fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = fixtures / DEMO
    # Of the 777 ms in which both had work, gaps with saving and restoring take up to 5.3 %; of the window 3.7 %.
    passed = run("check", demo, "--expect-mode", "time-slicing", "--max-switch-overhead", "6%", cwd=tmp_path)
    assert passed.returncode == 0, passed.stderr
    failed = run("check", demo, "--expect-mode", "mps", "--junit", tmp_path / "out.xml", cwd=tmp_path)
    assert failed.returncode == 1
    assert ET.parse(tmp_path / "out.xml").getroot()[0].get("failures") == "1"
    blind = run("check", fixtures / "mps.sqlite", "--max-slowdown", "1.2", "-f", "json", cwd=tmp_path)
    assert blind.returncode == 4
    # One client was alone long enough to be compared with itself, and is not slowed by the truth either.
    assert {o["status"] for o in json.loads(blind.stdout)["outcomes"]} == {"inconclusive", "passed"}
    warned = run("check", fixtures / "mps.sqlite", "--max-slowdown", "1.2", "--inconclusive", "warn", cwd=tmp_path)
    assert warned.returncode == 0
    assert run("check", demo, cwd=tmp_path).returncode == 2
    assert run("check", tmp_path / "none.sqlite", "--max-slowdown", "2", cwd=tmp_path).returncode == 3
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run("check", demo, "--expect-mode", "mps", cwd=tmp_path).stderr.startswith("::error title=expect-mode")


def test_a_saved_report_stands_for_its_capture(fixtures: Path, tmp_path: Path) -> None:
    session = load(fixtures / DEMO)
    saved = tmp_path / "report.json"
    saved.write_text(session.report().to_json())
    (tmp_path / "pyanalyze.toml").write_text('[check]\nexpect_mode = "mps"\n')
    found = run("check", saved, cwd=tmp_path)
    assert found.returncode == 1
    assert "thresholds of pyanalyze.toml" in found.stderr
    over = run("check", saved, "--expect-mode", "time-slicing", cwd=tmp_path)
    assert over.returncode == 0, "the command line is over the file"
    assert run("check", saved, "--gpu", "0", cwd=tmp_path).returncode == 2
    saved.write_text('{"schema": "pyanalyze.report/1"}')
    assert run("check", saved, cwd=tmp_path).returncode == 3


def test_any_verb_may_expect_a_mode(fixtures: Path) -> None:
    result = run("classify", fixtures / DEMO, "--expect-mode", "mps", "-f", "csv")
    assert result.returncode == 1
    assert "time-slicing" in result.stdout, "the answer is printed all the same"
    assert "expected mps" in result.stderr
    assert run("classify", fixtures / DEMO, "--expect-mode", "time-slicing").returncode == 0


def test_a_gate_measures_slowdowns_against_runs_alone(fixtures: Path, tmp_path: Path) -> None:
    """Three tenants of 2.76 to 3.3 times (the books of the generator), by recordings, packs and saved reports."""
    folder = generate.built("running-example-time-slicing", 3, solo=True)
    shared = folder / "running-example-time-slicing.sqlite"
    truth = json.loads((folder / "running-example-time-slicing.truth.json").read_text(encoding="utf-8"))
    true = {tenant["process"]: tenant["slowdown"]["elapsed"]["ratio"] for tenant in truth["tenants"]}
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4, encoding="utf-8")
    alone = {letter: folder / f"running-example-time-slicing.solo.{letter}.sqlite" for letter in "ABC"}
    packs, saved = [], []
    for letter, file in alone.items():
        packs.append(tmp_path / f"{letter}.pack")
        assert run("pack", file, "-o", packs[-1], "--key", key).returncode == 0
        saved.append(tmp_path / f"{letter}.json")
        assert run("report", file, "-f", "json", "-o", saved[-1]).returncode == 0
    packed = tmp_path / "shared.pack"
    assert run("pack", shared, "-o", packed, "--key", key).returncode == 0
    for capture, baselines in ((shared, alone.values()), (packed, packs), (shared, saved)):
        given = [part for file in baselines for part in ("--baseline", file)]
        gate = ("--slowdown", "elapsed", "-f", "json")
        passed = run("check", capture, *given, "--max-slowdown", "4.5", *gate, cwd=tmp_path)
        assert passed.returncode == 0, passed.stdout + passed.stderr
        failed = run("check", capture, *given, "--max-slowdown", "1.5", *gate, cwd=tmp_path)
        assert failed.returncode == 1, failed.stdout + failed.stderr
    given = [part for file in saved for part in ("--baseline", file)]
    for redact in ((), ("--redact",)):
        found = run("interference", shared, *given, *redact, "-f", "json")
        tenants = json.loads(found.stdout)["devices"][0]["tenants"]
        assert len(tenants) == 3
        for tenant, ratio in zip(tenants, (true[name] for name in ("app_b", "app_a", "app_c")), strict=True):
            elapsed = tenant["slowdown"]["elapsed"]
            assert elapsed["low"] <= ratio <= elapsed["high"], tenant
            assert elapsed["value"] == pytest.approx(ratio, rel=0.05)
        assert ("app_a" in found.stdout) == (not redact)
    other = run("interference", shared, "--baseline", packs[0])
    assert "A.pack matches no tenant" in " ".join(other.stdout.split())
    refused = run("check", saved[0], "--baseline", saved[1], "--max-slowdown", "2", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--baseline" in refused.stderr


def test_who_was_alone_is_held_to_what_was_measured_all_the_same() -> None:
    """At a third of its clock a process alone takes three times as long as its baseline: no neighbour, but no pass."""
    report = examples.time_sliced()
    (device,) = report.devices
    sharing = device.sharing.model_copy(update={"mode": "exclusive"})

    def judged(estimate: Estimate | None, mode: str = "exclusive", condition: Condition | None = None) -> str:
        slowdown = Slowdown(elapsed=estimate, latency=estimate, resident=None)
        alone = device.model_copy(
            update={
                "tenants": [device.tenants[0].model_copy(update={"slowdown": slowdown})],
                "sharing": sharing.model_copy(update={"mode": mode, "condition": condition}),
            }
        )
        return check(report.model_copy(update={"devices": [alone]}), Limits(max_slowdown=1.2)).outcomes[0].status

    assert judged(None) == "passed"
    assert judged(Estimate(value=3.27, low=3.01, high=3.54, n=148, basis="observed")) == "failed"
    assert judged(Estimate(value=1.1, low=0.9, high=1.3, n=148, basis="observed")) == "inconclusive"
    assert judged(Estimate(value=1.0, low=1.0, high=1.1, n=148, basis="observed")) == "passed"
    # As long as other processes are not excluded, nothing is decided.
    assert judged(None, "mig") == "passed"
    for condition in Condition:
        assert judged(None, "mig", condition) == "inconclusive"
        assert judged(None, "exclusive", condition) == "inconclusive"


def test_python_takes_the_words_of_the_command_line(fixtures: Path) -> None:
    report = examples.time_sliced()
    words: Any = {"max_switch_overhead": "100%", "expect_mode": "time-slicing"}
    assert (
        check(report, Limits(**words)).outcomes
        == check(report, Limits(max_switch_overhead=1.0, expect_mode=("time-slicing",))).outcomes
    )
    wrong: Any = {"max_switch_overhead": "some"}
    with pytest.raises(UsageError, match="neither a fraction"):
        check(report, Limits(**wrong))
    wrong = {"max_slowdown": "5%"}
    with pytest.raises(UsageError, match="max_slowdown = '5%' is not a number"):
        check(report, Limits(**wrong))
    session = load(fixtures / DEMO)
    word: Any = "memory-protection, bandwidth-qos"
    assert session.advise(require=word) == session.advise(require=("memory-protection", "bandwidth-qos"))


def test_a_baseline_that_was_not_used_is_not_dropped_silently() -> None:
    report = slowed((1.0, 1.3), (1.0, 1.1))
    (device,) = report.devices
    why = "nobody ran what solo.sqlite shows"
    unused = BaselineNotUsed(baseline="solo.sqlite", reasons=["no-common-work"], detail=why)
    for baseline, said in ((None, True), ("other.sqlite", False)):
        update = {"slowdown_notes": [why, "another note"], "baselines_not_used": [unused], "baseline": baseline}
        victim = device.tenants[0].model_copy(update=update)
        changed = device.model_copy(update={"tenants": [victim, *device.tenants[1:]]})
        (outcome,) = check(report.model_copy(update={"devices": [changed]}), Limits(max_slowdown=1.2)).outcomes
        # Where another one was used, the figures come from that.
        assert (why in outcome.detail) is said
        assert "another note" not in outcome.detail


def test_what_a_fleet_cannot_follow_is_refused(fixtures: Path, tmp_path: Path) -> None:
    from pyanalyze.fleet import analyse

    analyse(str(fixtures / DEMO), tmp_path / "out", workers=1)
    for option in (("--redact",), ("--gpu", "0"), ("--tenant", "a=1"), ("--start", "1ms"), ("--baseline", "x.sqlite")):
        refused = run("check", tmp_path / "out", "--expect-mode", "mps", *option, cwd=tmp_path)
        assert refused.returncode == 2
        assert option[0] in refused.stderr


def test_redacted_runs_are_compared_with_one_numbering(fixtures: Path, tmp_path: Path) -> None:
    same = run("check", fixtures / DEMO, "--redact", "--against", fixtures / DEMO, "--max-change", "50%", cwd=tmp_path)
    assert same.returncode == 0, same.stdout
    assert "numbered in each" not in same.stdout


def test_an_execution_that_is_assumed_passes_no_gate(fixtures: Path) -> None:
    """The replay takes the recorded execution, so that its 1.00x says nothing of contention: a solo recording does."""
    outcomes = load(fixtures / "demo-time-slicing.sqlite").check(Limits(max_slowdown=1.5, slowdown="resident"))
    assert [outcome.status for outcome in outcomes.outcomes] == ["inconclusive", "inconclusive"]
    assert all("resident 1.00x is assumed, not measured" in outcome.detail for outcome in outcomes.outcomes)
    assert all("--baseline" in outcome.how for outcome in outcomes.outcomes)


def test_unknown_fairness_says_how_it_can_be_known(fixtures: Path) -> None:
    """One of the three tenants of the demo was not traced: fairness needs the slowdown of each."""
    done = run("check", "--min-jain", "0.9", fixtures / "demo-time-slicing.sqlite")
    assert done.returncode == 4
    assert "Kernels of app_c were not traced" in done.stdout
    assert "to know: nsys profile -t cuda,nvtx" in done.stdout
