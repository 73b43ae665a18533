"""Two runs: equal work or not, and the parts of the change, by hand and against the books of the simulation."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import sqlite3
import statistics
from contextlib import closing
from pathlib import Path
from typing import Any

import generate
import jsonschema
import polars as pl
import pytest
import report_examples as examples
from command_line import run
from exports import US, call, copy, kernel, resident, write
from shared_sessions import load

import pyanalyze
from pyanalyze.analysis.comparison.split import compare_reports, kernel_changes
from pyanalyze.analysis.gate import check
from pyanalyze.errors import UsageError
from pyanalyze.report.comparison import render_comparison
from pyanalyze.results.check import Limits
from pyanalyze.results.comparison import Comparison, comparison_schema
from pyanalyze.results.report import Report
from pyanalyze.results.work import Batch, Configuration, Work
from pyanalyze.vocabulary import Mode, unless

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

MS = 1_000_000
DEMO = "demo-time-slicing.sqlite"


def configuration(key: str, launches: int, each_ns: int) -> Configuration:
    return Configuration(
        key=key,
        kernel=key,
        grid_blocks=8,
        block_threads=128,
        launches=launches,
        total_ns=launches * each_ns,
        attributed_total_ns=launches * each_ns,
    )


def a_run(
    batch: dict[str, int],
    *,
    kernels: tuple[tuple[str, int, int], ...] = (("gemm", 80, MS), ("relu", 20, MS)),
    mode: Mode = Mode.EXCLUSIVE,
    copy_bytes: int | None = 1000,
    residency: bool = True,
    name: str = "trainer",
    gpu: str = "GPU X",
    batches: int = 10,
    shake: int = 0,
) -> Report:
    """A report of one tenant whose batches all look like this one; `shake` is added and taken in turn."""
    rows = [
        Batch.model_validate(
            {
                "launches": 10,
                "idle_ns": 0,
                "idle_not_resident_ns": 0,
                "idle_other_resident_ns": 0,
                "busy_ns": 0,
                "attributed_ns": 0,
            }
            | batch
            | {"idle_ns": batch.get("idle_ns", 0) + (shake if i % 2 else -shake)}
        )
        for i in range(batches)
    ]
    work = Work(
        launches=sum(count for _, count, _ in kernels),
        graph_launches=0,
        copies=4,
        copy_bytes=copy_bytes,
        residency_known=residency,
        configurations=[configuration(*kernel) for kernel in kernels],
        other_launches=0,
        other_ns=0,
        startup_ns=0,
        batches=rows,
    )
    report = examples.time_sliced()
    (device,) = report.devices
    tenant = examples.tenant(0, name, 7, busy_ns=5, work=work)
    sharing = device.sharing.model_copy(update={"mode": mode})
    device = device.model_copy(update={"tenants": [tenant], "sharing": sharing, "name": gpu})
    return report.model_copy(update={"devices": [device]})


ALONE = {"busy_ns": 10 * MS, "attributed_ns": 10 * MS, "idle_ns": MS}


def parts(comparison: Comparison) -> dict[str, float]:
    (pair,) = comparison.tenants
    assert sum(part.value_ns for part in pair.parts) == pytest.approx(
        sum(
            getattr(pair.split_b, key) - getattr(pair.split_a, key)
            for key in type(pair.split_a).model_fields
            if not key.startswith("waiting")
        )
    ), "the parts are all of the change"
    return {part.name: part.value_ns / MS for part in pair.parts}


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        # Ten batches of 1 ms idle and 10 ms in flight, by hand.
        (ALONE, {"work": 0, "host": 0, "not_resident": 0, "resident": 0}),
        (ALONE | {"idle_ns": 3 * MS}, {"work": 0, "host": 20, "not_resident": 0, "resident": 0}),
        # In flight twice as long, half of it switched out.
        (ALONE | {"busy_ns": 20 * MS}, {"work": 0, "host": 0, "not_resident": 100, "resident": 0}),
        (
            ALONE | {"busy_ns": 15 * MS, "attributed_ns": 15 * MS},
            {"work": 0, "host": 0, "not_resident": 0, "resident": 50},
        ),
        # Idle while another held it: not the host's, as long as the host may have been as quick as before.
        (ALONE | {"idle_not_resident_ns": 4 * MS}, {"work": 0, "host": 0, "not_resident": 40, "resident": 0}),
        (
            ALONE | {"idle_other_resident_ns": 4 * MS},
            {"work": 0, "host": 0, "not_resident": 0, "not_started": 40, "resident": 0},
        ),
        # The host's own millisecond may hide in the four: three are left for the neighbour.
        (
            ALONE | {"idle_ns": 0, "idle_not_resident_ns": 4 * MS},
            {"work": 0, "host": 0, "not_resident": 30, "resident": 0},
        ),
    ],
)
def test_the_change_is_split_without_rest(batch: dict[str, int], expected: dict[str, float]) -> None:
    assert parts(compare_reports(a_run(ALONE), a_run(batch))) == pytest.approx(expected)


KNOWN = {"waiting_not_resident_ns": 0, "waiting_other_resident_ns": 0}


def test_launch_calls_tell_waiting_from_a_host_that_launched_nothing() -> None:
    """Of 4 ms idle in each of ten batches work had been launched in 1 ms: three are the host's, and nothing is open."""
    waited = ALONE | KNOWN | {"idle_not_resident_ns": 4 * MS, "waiting_not_resident_ns": MS}
    comparison = compare_reports(a_run(ALONE | KNOWN), a_run(waited))
    assert parts(comparison) == pytest.approx({"work": 0, "host": 30, "not_resident": 10, "resident": 0})
    (pair,) = comparison.tenants
    assert all(part.value_known and part.low_ns == part.value_ns == part.high_ns for part in pair.parts)
    beside = ALONE | KNOWN | {"idle_other_resident_ns": 4 * MS, "waiting_other_resident_ns": MS}
    comparison = compare_reports(a_run(ALONE | KNOWN), a_run(beside))
    expected = {"work": 0, "host": 30, "not_resident": 0, "not_started": 10, "resident": 0}
    assert parts(comparison) == pytest.approx(expected)
    # Calls of one run alone do not tell: half of the change is not known.
    (pair,) = compare_reports(a_run(ALONE), a_run(waited)).tenants
    assert [part.value_known for part in pair.parts if part.launches_known is False] == [False, False]


@pytest.mark.parametrize(
    ("copied", "called", "waited_us"),
    [
        # Of the gap from 100 to 1000 us the launch call returns at 510, and another context is there until 910.
        (False, 11, 400),
        # From 600 to 700 a copy of its own runs: a kernel would wait for that whoever is resident.
        (True, 11, 300),
        # Of a quarter of the kernels no call was recorded: what waited is not known.
        (False, 8, None),
    ],
)
def test_work_waits_from_the_return_of_its_launch_call(
    tmp_path: Path, copied: bool, called: int, waited_us: int | None
) -> None:
    rounds = [n * 1000 * US for n in range(1, 12)]
    switches = [
        slot for t in rounds for slot in ((7, 1, t - 90 * US, t + 100 * US), (8, 2, t + 110 * US, t + 900 * US))
    ]
    path = write(
        tmp_path / "two.sqlite",
        kernels=[
            *(kernel(7, t, t + 100 * US, correlationId=n) for n, t in enumerate(rounds, 1)),
            *(kernel(8, t + 120 * US, t + 890 * US, correlationId=n) for n, t in enumerate(rounds, 1)),
        ],
        copies=[copy(7, t + 600 * US, t + 700 * US) for t in rounds[:-1] if copied],
        calls=[call(7, t - 500 * US, t - 490 * US, n) for n, t in enumerate(rounds[:called], 1)],
        switches=[record for pid, context, *span in switches for record in resident(pid, context, *span)],
        processes={7: "seven", 8: "eight"},
    )
    session = pyanalyze.load(path)
    (tenant,) = session.tenants.filter(name="seven")["tenant_id"]
    batches = session.analysis.compared_work[0, tenant].batches
    waits = [batch.waiting_not_resident_ns for batch in batches]
    assert sum(batch.idle_not_resident_ns for batch in batches) == 10 * 790 * US
    if waited_us is None:
        assert set(waits) == {None}
    else:
        assert sum(wait or 0 for wait in waits) == 10 * waited_us * US
        assert {batch.waiting_other_resident_ns for batch in batches} == {0}


def test_a_part_of_which_only_a_range_is_known_has_no_value() -> None:
    comparison = compare_reports(a_run(ALONE), a_run(ALONE | {"idle_other_resident_ns": 4 * MS}))
    text = render_comparison(comparison, "txt")
    assert re.search(r"host time +not known +not known +0 ns to \+40\.00 ms +no", text)
    assert re.search(r"idle while another tenant ran \(reason not recorded\) +not known +not known +0 ns to", text)
    assert "Launch calls of one run are not known" in text


def test_bounds_hold_both_readings_of_an_idle_engine() -> None:
    (pair,) = compare_reports(a_run(ALONE), a_run(ALONE | {"idle_not_resident_ns": 4 * MS})).tenants
    host = next(part for part in pair.parts if part.name == "host")
    away = next(part for part in pair.parts if part.name == "not_resident")
    assert (host.low_ns, host.high_ns) == (0, 40 * MS)
    assert (away.low_ns, away.high_ns) == (0, 40 * MS)
    assert not host.significant


def test_twice_the_work_in_twice_the_time_is_no_change() -> None:
    double = {key: 2 * value for key, value in ALONE.items()}
    twice = a_run(double, kernels=(("gemm", 160, MS), ("relu", 40, MS)), copy_bytes=2000)
    (pair,) = compare_reports(a_run(ALONE), twice).tenants
    assert (pair.equal_work, pair.units) == (True, 2.0)
    assert pair.change is not None
    assert pair.change.value == 0


def test_other_work_is_said_first_and_taken_out() -> None:
    # 40 more launches of relu at 1 ms: 40 of 100 ms resident.
    more = a_run(ALONE | {"busy_ns": 14 * MS, "attributed_ns": 14 * MS}, kernels=(("gemm", 80, MS), ("relu", 60, MS)))
    comparison = compare_reports(a_run(ALONE), more)
    (pair,) = comparison.tenants
    assert comparison.equal_work is False
    assert comparison.summary.startswith("Equal work: no")
    assert pair.changed_work == pytest.approx(0.4)
    assert [(row.kernel, row.launches_a, row.launches_b) for row in pair.changed] == [("relu", 20, 60)]
    assert parts(comparison) == pytest.approx({"work": 40, "host": 0, "not_resident": 0, "resident": 0})


def test_added_work_may_run_beside_the_rest() -> None:
    # 50 kernels of 1 ms more in each 100, and 1 ms more of each batch in flight: most of them ran beside others.
    kernels = (("gemm", 80, MS), ("relu", 20, MS), ("extra", 50, MS))
    batch = ALONE | {"busy_ns": 11 * MS, "attributed_ns": 11 * MS}
    (pair,) = compare_reports(a_run(ALONE), a_run(batch, kernels=kernels)).tenants
    found = {part.name: (part.value_ns / MS, part.low_ns / MS, part.high_ns / MS) for part in pair.parts}
    assert found["work"] == pytest.approx((10, 0, 50))
    # If it had run by itself, the rest was faster by 40 ms; if only beside others, slower by 10.
    assert found["resident"] == pytest.approx((0, -40, 10))
    # Of two streams of an H100 whose kernels take longer beside each other, nothing is said to run faster.
    comparison = pyanalyze.compare(HARDWARE / "alone-A.sqlite", HARDWARE / "streams-A-B.sqlite")
    (pair,) = comparison.tenants
    assert not any(part.significant and part.value_ns < 0 for part in pair.parts)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ({"kernels": (("gemm", 80, MS), ("relu", 21, MS))}, True),  # a run ends within a unit
        ({"kernels": (("gemm", 80, MS),)}, False),
        ({"kernels": (("gemm", 80, MS), ("relu", 20, MS), ("new", 30, MS))}, False),
        ({"copy_bytes": 3000}, False),
        ({"copy_bytes": None}, True),
        ({"kernels": (("something", 80, MS),)}, False),
    ],
)
def test_what_makes_work_unequal(other: dict[str, Any], equal: bool) -> None:
    assert compare_reports(a_run(ALONE), a_run(ALONE, **other)).equal_work is equal


def test_a_change_within_the_noise_is_not_called_one() -> None:
    slower = {"idle_ns": int(1.1 * MS)} | {key: ALONE[key] for key in ("busy_ns", "attributed_ns")}
    (pair,) = compare_reports(a_run(ALONE), a_run(slower)).tenants
    assert pair.change is not None
    # 1 of 110 ms: below the floor of 2 %, although the batches are all alike.
    assert pair.change.value == pytest.approx(1 / 110)
    assert not pair.change.significant
    (pair,) = compare_reports(a_run(ALONE), a_run(slower), noise_floor=0.005).tenants
    assert pair.change is not None
    assert pair.change.significant
    # Batches that differ by hand: +-0.5 ms in turn, ten of them. Student's t at 9 degrees of freedom is 2.262, the
    # standard deviation 0.5 * sqrt(10 / 9) ms, that of the sum sqrt(10) times it.
    (pair,) = compare_reports(a_run(ALONE), a_run(slower, shake=MS // 2)).tenants
    assert pair.change is not None
    half = 2.262 * 0.5 * (10 / 9) ** 0.5 * 10**0.5 / 110
    assert pair.change.high - pair.change.value == pytest.approx(half, rel=1e-6)


def test_a_certain_change_is_not_hidden_by_an_uncertain_one() -> None:
    """One tenant's single batch says little; what is certain of the other is the summary."""

    def two(quick_ns: int, slow_ns: int) -> Report:
        report = a_run(ALONE)
        first = a_run(ALONE | {"busy_ns": quick_ns, "attributed_ns": quick_ns}, name="steady").devices[0].tenants[0]
        second = (
            a_run(ALONE | {"busy_ns": slow_ns, "attributed_ns": slow_ns}, name="rare", batches=1).devices[0].tenants[0]
        )
        tenants = [first, second.model_copy(update={"tenant_id": 1})]
        return report.model_copy(update={"devices": [report.devices[0].model_copy(update={"tenants": tenants})]})

    before, after = two(10 * MS, 10 * MS), two(12 * MS, 2 * MS)
    comparison = compare_reports(before, after)
    steady, rare = (next(p for p in comparison.tenants if p.label == name) for name in ("steady", "rare"))
    assert steady.change is not None
    assert rare.change is not None
    # By hand: 11 ms became 13 ms in each of ten batches; the one of 11 ms became one of 3 ms.
    assert steady.change.value == pytest.approx(2 / 11)
    assert rare.change.value == pytest.approx(-8 / 11)
    assert (steady.change.significant, rare.change.significant) == (True, False)
    assert rare.change.low == -1, "a time is not shorter than none"
    assert "steady is 18.2 % slower per unit of work" in comparison.summary


def test_what_does_not_carry_over_is_named() -> None:
    def left_out(report: Report) -> set[str]:
        return {gap.what for gap in compare_reports(a_run(ALONE), report).left_out}

    assert left_out(a_run(ALONE)) == set()
    assert left_out(a_run(ALONE, mode=Mode.TIME_SLICING)) == {"raw kernel durations"}
    assert left_out(a_run(ALONE, gpu="GPU Y")) == {"slower while resident"}
    assert left_out(a_run(ALONE, residency=False)) == {"residency of one run"}
    # Without switch records resident time is not known: record again.
    blind = compare_reports(a_run(ALONE), a_run(ALONE, mode=Mode.TIME_SLICING, residency=False))
    assert "--gpuctxsw=true" in {gap.what: gap.how for gap in blind.left_out}["raw kernel durations"]
    (pair,) = compare_reports(a_run(ALONE), a_run(ALONE, gpu="GPU Y")).tenants
    assert "resident" not in {part.name for part in pair.parts}


@pytest.mark.parametrize("mode", [Mode.TIME_SLICING, Mode.UNDETERMINED, Mode.SOFTWARE_LIMITED])
def test_without_switch_records_two_parts_are_one(mode: Mode) -> None:
    """The driver may time-slice what a limiter lets through."""
    blind = a_run(ALONE | {"busy_ns": 20 * MS, "attributed_ns": 20 * MS}, mode=mode, residency=False)
    found = parts(compare_reports(a_run(ALONE), blind))
    assert found == pytest.approx({"work": 0, "host": 0, "in_flight": 100})


def test_nothing_in_common_is_inconclusive() -> None:
    comparison = compare_reports(a_run(ALONE), examples.undetermined())
    assert (comparison.conclusive, comparison.equal_work, comparison.only_a) == (False, None, ["trainer"])
    with pytest.raises(UsageError):
        compare_reports(a_run(ALONE), a_run(ALONE), noise_floor=2)


def packed(report: Report, *names: str) -> Report:
    """Its tenants under these names, and its kernels as a pack names them."""
    (device,) = report.devices
    (tenant,) = device.tenants
    assert tenant.work is not None
    rows = [
        c.model_copy(update={"kernel": "kernel-0123456789ab", "key": f"{c.key}?"}) for c in tenant.work.configurations
    ]
    work = tenant.work.model_copy(update={"configurations": rows})
    tenants = [tenant.model_copy(update={"tenant_id": at, "name": name, "work": work}) for at, name in enumerate(names)]
    return report.model_copy(update={"devices": [device.model_copy(update={"tenants": tenants})]})


def test_pseudonyms_are_no_other_work() -> None:
    """A pack beside its own capture has no name in common with it: that is no answer to whether the work was equal."""
    one = compare_reports(a_run(ALONE), packed(a_run(ALONE), "process-649ec554efee"))
    assert (one.equal_work, one.tenants[0].equal_work, one.tenants[0].change, one.conclusive) == (
        None,
        None,
        None,
        False,
    )
    assert "pseudonyms" in (one.tenants[0].why or "")
    assert [gap.how for gap in one.left_out if gap.what == "names"] == [
        "pack both with one key, or compare both as recorded"
    ]
    two = compare_reports(a_run(ALONE), packed(a_run(ALONE), "process-649ec554efee", "process-c283d5d1cc15"))
    assert (two.tenants, two.equal_work) == ([], None)
    assert "pack both with one key" in two.summary
    # Two packs of one key: names are as good as any.
    same = packed(a_run(ALONE), "process-649ec554efee")
    assert compare_reports(same, same).equal_work is True
    other = compare_reports(a_run(ALONE), a_run(ALONE, kernels=(("conv", 80, MS),)))
    assert (other.equal_work, other.left_out) == (False, []), "names as recorded: nothing in common is an answer"


def test_the_runs_name_the_condition_of_their_modes(fixtures: Path) -> None:
    """A verdict without switch records holds unless what they would show was there."""
    report = load(fixtures / "mig.sqlite").report()
    assert report.devices[0].sharing.condition is not None
    found = compare_reports(report, report)
    assert found.a.condition == report.devices[0].sharing.condition
    assert f"mig in both{unless(found.a.condition, found.a.mode)}" in found.summary
    assert unless(found.a.condition, found.a.mode).lstrip(", ") in " ".join(render_comparison(found, "txt").split())


def test_names_numbered_apart_are_not_compared(fixtures: Path, tmp_path: Path) -> None:
    """`kernel-1` is the first kernel of each: in two reports that were redacted apart it may be any two kernels."""
    saved = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in saved:
        assert run("report", fixtures / DEMO, "--redact", "-f", "json", "-o", path).returncode == 0
    found = run("compare", *saved, "-f", "json")
    assert found.returncode == 4
    comparison = json.loads(found.stdout)
    assert comparison["equal_work"] is None
    assert {pair["change"] for pair in comparison["tenants"]} == {None}
    assert any("numbered in each report by itself" in gap["why"] for gap in comparison["left_out"])


def test_one_numbering_for_both_runs() -> None:
    """Redacted together, two runs are compared as under their own names."""
    captures = [
        generate.built(f"running-example-{name}") / f"running-example-{name}.sqlite" for name in ("solo", "mps")
    ]
    plain, hidden = (run("compare", *captures, "-f", "json", *more) for more in ((), ("--redact",)))
    assert (plain.returncode, hidden.returncode) == (0, 0), hidden.stderr
    told, known = json.loads(hidden.stdout), json.loads(plain.stdout)
    assert told["equal_work"] is True
    numbers = ("equal_work", "units", "changed_work", "change", "parts")
    assert [[pair[key] for key in numbers] for pair in told["tenants"]] == [
        [pair[key] for key in numbers] for pair in known["tenants"]
    ]
    names = [pair["label"] for pair in known["tenants"]]
    assert names
    assert not any(name in hidden.stdout for name in names)


def test_the_gate_takes_a_comparison() -> None:
    slower = a_run(ALONE | {"busy_ns": 15 * MS, "attributed_ns": 15 * MS})
    comparison = compare_reports(a_run(ALONE), slower)
    for most, status in ((0.1, "failed"), (0.6, "passed"), (0.45, "inconclusive")):
        # 50 of 110 ms: 45.5 %, and 2 % of noise on both sides.
        assert check(slower, Limits(max_change=most), comparison=comparison).status == status
    nothing = compare_reports(examples.undetermined(), slower)
    assert check(slower, Limits(max_change=1.0), comparison=nothing).status == "inconclusive"


def test_mps_against_alone_is_what_the_books_say() -> None:
    """Each application of the running example alone, and all three under MPS on the same GPU."""
    alone, shared = (generate.built(f"running-example-{name}") for name in ("solo", "mps"))
    comparison = pyanalyze.compare(alone / "running-example-solo.sqlite", shared / "running-example-mps.sqlite")
    truth = json.loads((shared / "running-example-mps.truth.json").read_text(encoding="utf-8"))
    true = {f"app_{t['name'].lower()}": t["slowdown"] for t in truth["tenants"] if t["slowdown"]}
    assert len(comparison.tenants) == len(true) == 3
    assert comparison.equal_work
    for pair in comparison.tenants:
        assert pair.change is not None
        ratio = true[pair.label]["elapsed"]["ratio"]
        assert 1 + pair.change.value == pytest.approx(ratio, rel=0.02)
        assert 1 + pair.change.low <= ratio <= 1 + pair.change.high
        # Nothing waits for a slice under MPS, and no launch took longer: it is all beside the others on the SMs.
        assert true[pair.label]["lost"]["not_resident_ns"] == true[pair.label]["lost"]["launch_ns"] == 0
        found = {part.name: part for part in pair.parts}
        assert found["not_resident"].value_ns == 0
        assert not found["host"].significant
        assert found["resident"].significant


def test_time_slicing_against_solo_is_waiting_for_the_time_slice(fixtures: Path) -> None:
    """In the demo application A has the GPU to itself until 205 ms, and a third of its time from 345 ms on."""
    session = load(fixtures / DEMO)
    comparison = pyanalyze.compare(session.window("20ms", "205ms"), session.window("345ms", "1100ms"))
    (pair,) = comparison.tenants
    assert (pair.label, comparison.only_b) == ("app_a", ["app_b"])
    assert comparison.equal_work
    assert pair.change is not None
    assert 1 + pair.change.value == pytest.approx(3, rel=0.05)
    found = {part.name: part for part in pair.parts}
    assert found["not_resident"].value_ns / pair.time_a_ns > 0.95 * pair.change.value
    assert not found["resident"].significant
    assert not found["host"].significant


@pytest.mark.parametrize("form", ["txt", "md", "html", "json"])
def test_every_form_says_it(form: str) -> None:
    name = examples.HOSTILE["tag"]
    comparison = compare_reports(a_run(ALONE, name=name), a_run(ALONE | {"idle_ns": 5 * MS}, name=name))
    text = render_comparison(comparison, form)
    if form == "json":
        jsonschema.Draft202012Validator(comparison_schema()).validate(json.loads(text))
        return
    assert "host" in text
    assert "<script>alert" not in text if form in ("html", "md") else True
    with pytest.raises(UsageError):
        render_comparison(comparison, "pdf")


def test_the_verb_takes_captures_and_saved_reports(fixtures: Path, tmp_path: Path) -> None:
    saved = tmp_path / "a.json"
    assert run("report", fixtures / DEMO, "-f", "json", "-o", saved).returncode == 0
    assert saved.stat().st_size < 100_000, "kilobytes are what CI keeps"
    found = run("compare", saved, fixtures / DEMO, "-f", "json")
    assert found.returncode == 0, found.stderr
    assert {pair["change"]["value"] for pair in json.loads(found.stdout)["tenants"]} == {0.0}
    schema = json.loads(run("schema", "--compare").stdout)
    jsonschema.Draft202012Validator(schema).validate(json.loads(found.stdout))
    assert run("compare", saved).returncode == 2
    assert run("compare", saved, fixtures / "node-switches-only.sqlite").returncode == 4
    assert run("compare", saved, fixtures / "node-switches-only.sqlite", "--inconclusive", "warn").returncode == 0
    gate = run("check", fixtures / DEMO, "--against", saved, "--max-change", "5%")
    assert gate.returncode == 0, gate.stdout + gate.stderr


def shaped(key: str, launches: int, mean_ns: int, sd_ns: float | None, p99_ns: int | None = None) -> Configuration:
    return configuration(key, launches, mean_ns).model_copy(
        update={"attributed_sd_ns": sd_ns, "attributed_p99_ns": p99_ns}
    )


def work_with(*rows: Configuration) -> Work:
    return Work(
        launches=sum(row.launches for row in rows), graph_launches=0, copies=0, copy_bytes=None, residency_known=True,
        configurations=list(rows), other_launches=0, other_ns=0, startup_ns=0, batches=[],
    )  # fmt: skip


def test_kernels_are_compared_per_unit_of_work_and_sorted_by_effect() -> None:
    """By hand: B did twice the work. `slow` takes 1.1 ms instead of 1.0 ms: 100 launches of A's work take 10 ms more."""
    a = work_with(shaped("slow", 100, 1_000_000, 10_000.0, 1_020_000), shaped("same", 1000, 500_000, 0.0))
    b = work_with(
        shaped("slow", 200, 1_100_000, 20_000.0, 1_150_000),
        shaped("same", 2000, 500_000, 0.0),
        shaped("new", 2, 100, 1.0),
    )
    slow, new, same = kernel_changes(a, b, 2.0, 0.0)
    assert (slow.kernel, slow.launches_a, slow.launches_b) == ("slow", 100, 200)
    assert (slow.total_a_ns, slow.total_b_ns) == (100_000_000, 220_000_000)
    assert (slow.mean_a_ns, slow.mean_b_ns, slow.p99_a_ns, slow.p99_b_ns) == (1e6, 1.1e6, 1_020_000, 1_150_000)
    assert slow.effect_ns == pytest.approx(10_000_000)
    assert slow.change is not None
    assert slow.change.value == pytest.approx(0.1)
    # Standard errors: 10 us / sqrt(100) = 1 us of A's mean, 20 us / sqrt(200) = 1.414 us of B's; 1.96 of both together.
    half = 1.96 * math.hypot(1.1 * 0.001, 0.001_414_2)
    assert slow.change.low == pytest.approx(0.1 - half, abs=1e-6)
    assert slow.change.high == pytest.approx(0.1 + half, abs=1e-6)
    assert slow.change.significant
    assert (same.effect_ns, same.change is not None and same.change.significant) == (0, False)
    # What one run never launched has no change, but an effect.
    assert (new.change, new.mean_a_ns, new.effect_ns) == (None, None, 100)
    # Below the noise floor nothing is called a change.
    assert not any(row.change.significant for row in kernel_changes(a, b, 2.0, 0.2) if row.change is not None)


def test_one_launch_has_no_interval_and_few_no_p99(fixtures: Path) -> None:
    a, b = work_with(shaped("k", 1, 100, None)), work_with(shaped("k", 1, 200, None))
    (row,) = kernel_changes(a, b, 1.0, 0.02)
    assert (row.change, row.p99_a_ns, row.effect_ns) == (None, None, 100)
    session = load(fixtures / "demo-time-slicing.sqlite")
    (a1,) = [c for c in session.analysis.work[0, 0].configurations if c.kernel == "A1"]
    attribution = pl.DataFrame(session.tables.table("kernel_attribution"))
    parts = sorted(attribution.filter(session.kernels["short_name"] == "A1")["attributed_ns"].to_list())
    assert len(parts) == a1.launches == 113
    # The 112 others below it: the value that 99 % of launches do not pass.
    assert a1.attributed_p99_ns == parts[math.ceil(0.99 * 112)]
    assert a1.attributed_sd_ns == pytest.approx(statistics.stdev(parts))


def test_the_kernels_stand_in_every_form(fixtures: Path, tmp_path: Path) -> None:
    demo = fixtures / "demo-time-slicing.sqlite"
    text = run("compare", demo, demo).stdout
    assert "Kernel by kernel" in text
    assert re.search(r"A1 +113 → 113 +193\.9 ms → 193\.9 ms", text)
    said = json.loads(run("compare", demo, demo, "-f", "json").stdout)
    jsonschema.validate(said, comparison_schema())
    assert {row["kernel"] for row in said["tenants"][0]["kernels"]} == {"A1", "A2", "A3", "A4"}
    page = tmp_path / "change.html"
    assert run("compare", demo, demo, "-o", page).returncode == 0
    assert "Kernel by kernel" in page.read_text(encoding="utf-8")
    # One vocabulary with `interference`.
    slower = run("report", demo, "-f", "md").stdout
    for words in ("aiting for its time slice", "lower execution"):
        assert words in " ".join(text.split())
        assert words in " ".join(slower.split())


def test_effects_of_kernels_that_overlap_are_said_not_to_add_up(hardware: Path) -> None:
    """By SQL kernels add up to more time than any of them was in flight, in three streams on an H100."""
    alone = hardware / "alone-A.sqlite"
    with closing(sqlite3.connect(alone)) as db:
        spans = db.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start").fetchall()
    union, until = 0, 0
    for start, end in spans:
        union += max(end - max(start, until), 0)
        until = max(until, end)
    assert sum(end - start for start, end in spans) > 1.4 * union
    comparison = pyanalyze.compare(alone, hardware / "slices-A-B.sqlite")
    (pair,) = comparison.tenants
    assert pair.kernels_overlap
    text = " ".join(render_comparison(comparison, "txt").split())
    assert "Effects do not add up to slower execution (+70.22 ms), which counts it once." in text
    # Both runs have switch records: nothing has to be recorded again.
    with closing(sqlite3.connect(hardware / "slices-A-B.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS").fetchone()[0] == 1346
    assert {gap.what: gap.how for gap in comparison.left_out}["raw kernel durations"] == ""
    assert "resident time is compared instead" in text
    assert "nsys profile" not in text


def test_kernels_of_one_stream_do_not_overlap(fixtures: Path) -> None:
    path = fixtures / "mps.sqlite"
    with closing(sqlite3.connect(path)) as db:
        streams = db.execute(
            "SELECT count(DISTINCT streamId) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY globalPid"
        ).fetchall()
    assert streams == [(1,), (1,)]
    comparison = pyanalyze.compare(path, path)
    assert not any(pair.kernels_overlap for pair in comparison.tenants)
    assert " overlap: a sum of kernel times" not in render_comparison(comparison, "txt")


def test_both_timelines_stand_on_one_axis(fixtures: Path, tmp_path: Path) -> None:
    """Each run from its own start; a saved report has no intervals to draw."""
    a, b = fixtures / "exclusive.sqlite", fixtures / "streams.sqlite"
    page = tmp_path / "change.html"
    run("compare", a, b, "-o", page, "--inconclusive", "warn")
    found = re.search(r'id="spec-timelines-0">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    spec = json.loads(found[1])
    text = json.dumps(spec)
    assert "A: python3" in text and "B: app" in text
    # 233.7 and 126.9 ms: the axis is that of the longer run, and both begin at 0.
    (domain,) = set(re.findall(r'"scale": \{"domain": \[0, ([0-9.]+)\]', text))
    assert float(domain) == pytest.approx(233.7, abs=0.1)
    saved = tmp_path / "a.json"
    assert run("report", a, "-f", "json", "-o", saved).returncode == 0
    run("compare", saved, b, "-o", tmp_path / "saved.html", "--inconclusive", "warn")
    assert "spec-timelines-0" not in (tmp_path / "saved.html").read_text(encoding="utf-8")


def test_launch_configurations_of_one_kernel_are_told_apart(tmp_path: Path) -> None:
    """The grid was halved: a row for each, and in the run that did not launch it there is none, not an unknown time."""
    runs = [
        write(
            tmp_path / f"{blocks}.sqlite",
            kernels=[kernel(41, n * 300 * US, n * 300 * US + 200 * US, gridX=blocks) for n in range(30)],
            processes={41: "train"},
        )
        for blocks in (216, 108)
    ]
    said = run("compare", *runs).stdout
    assert re.search(r"^k \(216 x 256\) +30 → 0 +6\.000 ms → 0 ns +200 us → none +200 us → none", said, re.MULTILINE)
    assert re.search(r"^k \(108 x 256\) +0 → 30 +0 ns → 6\.000 ms +none → 200 us +none → 200 us", said, re.MULTILINE)


HARDWARE = Path(__file__).parents[1] / "fixtures" / "hardware" / "h100"


@pytest.mark.parametrize(
    ("solo", "shared", "waits"),
    [
        # By SQL: in the 1.007 s of work, C's contexts were resident for 293.3 ms, and gaps took 57.8 ms; A's clock has 86
        # units, and 234 solo.
        ("alone-A", "mps-A-B-beside-C", (0.293 * 234 / 86, (0.293 + 0.058) * 234 / 86)),
        ("alone-A", "mps-A-B", (0.0, 0.0)),
        ("alone-A", "slices-A-B", None),
    ],
)
def test_runs_of_a_fixed_time_with_a_late_start(solo: str, shared: str, waits: tuple[float, float] | None) -> None:
    """All wait for 1.8 to 3.7 s for their start, and work for one: by the programs' own clocks."""
    with (HARDWARE / "units.csv").open(newline="") as file:
        mean_us = {(row["case"], row["application"]): float(row["mean_us"]) for row in csv.DictReader(file)}
    comparison = pyanalyze.compare(HARDWARE / f"{solo}.sqlite", HARDWARE / f"{shared}.sqlite")
    (pair,) = comparison.tenants
    assert pair.change is not None
    assert pair.change.low < mean_us[shared, "A"] / mean_us[solo, "A"] - 1 < pair.change.high
    assert pair.change.high - pair.change.low < 0.5
    assert min(pair.startup_a_ns, pair.startup_b_ns) > 1_500 * MS
    assert max(pair.time_a_ns, pair.time_b_ns) < 1_020 * MS
    found = {part.name: part.value_ns / 1e9 for part in pair.parts}
    if waits is not None:
        # Of a client of an MPS server, the time in which another client was resident is no waiting.
        assert waits[0] <= found["not_resident"] <= waits[1]
        assert found["resident"] > 0.4
    text = render_comparison(comparison, "txt")
    assert f"Left out: pauses of {pair.label} before its work began" in " ".join(text.split())


def test_a_host_that_launched_nothing_did_not_wait_for_its_time_slice() -> None:
    """Two programs on an H100, time-sliced and under MPS: what they waited by the launch calls of their kernels."""
    gaps: dict[int, list[tuple[int, int]]] = {}
    sums: dict[int, tuple[int, int]] = {}
    for name in ("torch-slices-serve-train", "torch-mps-serve-train"):
        with closing(sqlite3.connect(HARDWARE / f"{name}.sqlite")) as db:
            rows = db.execute(
                "SELECT k.globalPid >> 24 & 0xffffff, k.start, k.end, min(r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT "
                "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = "
                "k.globalPid >> 24 GROUP BY k.rowid ORDER BY k.start"
            ).fetchall()
        for pid in {row[0] for row in rows}:
            mine = [row[1:] for row in rows if row[0] == pid]
            sums[pid] = (len(mine), sum(end - start for start, end, _ in mine))
            until = mine[0][0]
            for start, end, called in mine:
                if start > until:
                    gaps.setdefault(pid, []).append((start - until, max((called or start) - until, 0)))
                until = max(until, end)
    longest, before_call = max(gaps[1159])
    # Of 68.8 ms without a kernel, all but some microseconds had passed before the next launch call.
    assert longest > 68 * MS
    assert longest - before_call < MS // 10
    comparison = pyanalyze.compare(
        HARDWARE / "torch-slices-serve-train.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    )
    serve, train = ({part.name: part for part in pair.parts} for pair in comparison.tenants)
    # The idle time before launch calls, for as much work as A did; that of the server did not change.
    for found, a, b in ((serve, 1158, 1287), (train, 1159, 1288)):
        units = sums[b][0] / sums[a][0]
        change = sum(before for _, before in gaps[b]) / units - sum(before for _, before in gaps[a])
        # Copies of its own and launch calls themselves are the host's as well.
        assert found["host"].value_ns == pytest.approx(change, abs=7 * MS)
        assert found["host"].value_known
        assert not found["host"].significant
    assert train["host"].value_ns < -60 * MS
    assert -20 * MS < train["not_resident"].value_ns < -10 * MS, "5.7 ms launched and idle, 7.9 ms inside kernels"
    # Kernels of the server were not switched out: their own times are what slower execution adds up.
    units = sums[1287][0] / sums[1158][0]
    assert serve["resident"].value_ns == pytest.approx(sums[1287][1] / units - sums[1158][1], rel=0.01)
    # The rest of what a request takes longer is idle time with launched work: 37 requests of 1.95 ms for 55 of 1.17 ms.
    assert serve["not_started"].value_ns > 30 * MS


def ranges_ns(capture: Path, name: str) -> list[int]:
    """Lengths of its NVTX ranges of a name, as they began."""
    with closing(sqlite3.connect(capture)) as db:
        rows = db.execute(
            "SELECT end - start FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE end IS NOT NULL AND "
            "coalesce(text, value) = ? ORDER BY start",
            [name],
        ).fetchall()
    return [length for (length,) in rows]


def test_units_of_work_of_one_name_are_compared() -> None:
    """A server takes 3 times as long for a request; its elapsed time, with its pauses, does not show that."""
    a, b = HARDWARE / "torch-slices-serve-train.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    comparison = pyanalyze.compare(a, b)
    serve, train = comparison.tenants
    (request,), (step,) = serve.unit_changes, train.unit_changes
    mine, theirs = ranges_ns(a, "request"), ranges_ns(b, "request")
    # Of the last request of A no kernel was recorded.
    mine, theirs = sorted(mine[:-1]), sorted(theirs)
    assert (request.count_a, request.count_b) == (len(mine), len(theirs)) == (54, 37)
    assert request.p50_a_ns == pytest.approx(statistics.median(mine), abs=1)
    assert request.p50_b_ns == pytest.approx(statistics.median(theirs), abs=1)
    assert request.mean_a_ns == pytest.approx(statistics.mean(mine))
    assert request.mean_b_ns == pytest.approx(statistics.mean(theirs))
    assert (request.longest_b_ns, request.p99_a_ns) == (theirs[-1], mine[-1]), "of 54, p99 is the longest"
    assert request.p50_change is not None and request.mean_change is not None
    assert request.p50_change.significant and request.mean_change.significant
    assert request.p50_change.value == pytest.approx(1.976 / 0.616 - 1, abs=0.02)
    assert request.mean_change.value == pytest.approx(0.67, abs=0.04)
    # By hand: of 37 the median lies between the 13th and the 25th with 95 %, of 54 between the 20th and the 35th.
    low, high = request.p50_change.low, request.p50_change.high
    logs = [math.log(ns) for ns in (mine[19], statistics.median(mine), mine[34], theirs[12], theirs[18], theirs[24])]
    assert low == pytest.approx(math.exp(logs[4] - logs[1] - math.hypot(logs[4] - logs[3], logs[2] - logs[1])) - 1)
    assert high == pytest.approx(math.exp(logs[4] - logs[1] + math.hypot(logs[5] - logs[4], logs[1] - logs[0])) - 1)
    # One step of 88.7 ms is most of what the training of A took longer; its other steps took 5 % longer than in B.
    steps = sorted(ranges_ns(a, "step"))
    assert steps[-1] == 88_665_640
    assert train.change is not None
    assert (steps[-1] - statistics.median(steps)) > 0.5 * -train.change.value * train.time_a_ns
    assert train.long_unit is not None
    assert (train.long_unit.run, train.long_unit.name, train.long_unit.longest_ns) == ("A", "step", steps[-1])
    assert step.p50_change is not None
    assert step.p50_change.value == pytest.approx(13.77 / 14.41 - 1, abs=0.01)
    assert not step.p50_change.significant
    assert 'Most of that change is a single "step" of A: it took 88.67 ms (p50 14.41 ms).' in comparison.summary
    assert serve.long_unit is None
    text = render_comparison(comparison, "txt")
    assert re.search(r"request +54 → 37 +616 us → 1\.976 ms", text)


def test_requests_of_a_time_in_which_the_other_tenant_paused_are_no_gain_of_the_mode() -> None:
    """In A the training launches nothing for 69 ms: 26 of 54 requests lie there; in B it never pauses for long."""
    a, b = HARDWARE / "torch-slices-serve-train.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(a)) as db:
        kernels = db.execute(
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 & 0xffffff = 1159 ORDER BY start"
        ).fetchall()
        requests = db.execute(
            "SELECT start, end FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE coalesce(text, value) = 'request' "
            "ORDER BY start"
        ).fetchall()[:-1]  # of the last one no kernel was recorded
    _, begins, ends = max((start - end, end, start) for (_, end), (start, _) in itertools.pairwise(kernels))
    assert ends - begins == pytest.approx(68.9 * MS, abs=0.1 * MS)
    solo = [start >= begins and end <= ends for start, end in requests]
    co_ran = [end - start for (start, end), alone in zip(requests, solo, strict=True) if not alone]
    assert (len(requests), sum(solo), len(co_ran)) == (54, 26, 28)
    theirs = ranges_ns(b, "request")
    comparison = pyanalyze.compare(a, b)
    serve, train = comparison.tenants
    (request,), (step,) = serve.unit_changes, train.unit_changes
    assert (request.co_ran_count_a, request.co_ran_count_b) == (28, 37)
    assert request.co_ran_unlike and request.co_ran is not None
    assert request.co_ran.p50_a_ns == pytest.approx(statistics.median(co_ran), abs=1)
    assert request.co_ran.p50_b_ns == pytest.approx(statistics.median(theirs), abs=1)
    assert request.co_ran.p50_change is not None and not request.co_ran.p50_change.significant
    said = " ".join(comparison.summary.split())
    assert 'p50 of "request" that co-ran with another tenant 1.807 ms → 1.976 ms, +9.4 %, not significant' in said
    assert "616 us → 1.976 ms; in A 28 of 54 fall into times in which others had work, in B 37 of 37" in said
    assert "+220" not in said
    text = " ".join(render_comparison(comparison, "txt").split())
    assert re.search(r"request 28 → 37 1\.807 ms → 1\.976 ms", text)
    assert 'co-ran is in the change and its parts: of "request", in A 28 of 54' in text
    # The server never pauses: all steps co-ran in both.
    assert (step.co_ran_count_a, step.co_ran_count_b, step.co_ran_unlike) == (7, 10, False)
    # The last range of A has no kernel record: why 55 ranges are 54 units.
    assert "ranges with a launch that has no kernel record" in text


def test_units_of_a_run_without_other_tenants_are_compared_as_they_are() -> None:
    """Solo against shared is what is asked: that no unit of the solo run co-ran is no difference of the runs."""
    comparison = pyanalyze.compare(HARDWARE / "torch-alone-serve.sqlite", HARDWARE / "torch-mps-serve-train.sqlite")
    (pair,) = comparison.tenants
    (request,) = pair.unit_changes
    assert (request.co_ran_count_a, request.co_ran_count_b, request.co_ran, request.co_ran_unlike) == (
        None,
        37,
        None,
        False,
    )
    assert 'p50 of "request" ' in comparison.summary and "co-ran" not in comparison.summary


def test_switches_that_clients_of_an_mps_server_cannot_have_are_not_asked_for() -> None:
    a, b = HARDWARE / "torch-slices-serve-train.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(b)) as db:
        ((traced,),) = db.execute("SELECT value FROM META_DATA_CAPTURE WHERE name = 'COLLECT_GPU_CTX_SW_TRACE'")
        ((rows,),) = db.execute("SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS")
    assert (traced, rows) == ("true", 0)
    comparison = pyanalyze.compare(a, b)
    (gap,) = (gap for gap in comparison.left_out if gap.what == "residency of one run")
    assert (gap.how, "do not switch contexts" in gap.why) == ("", True)
    assert "gpuctxsw" not in render_comparison(comparison, "txt")
    # Without records of a run that may be time-sliced they are.
    blind = compare_reports(a_run(ALONE), a_run(ALONE, mode=Mode.TIME_SLICING, residency=False))
    assert any("--gpuctxsw=true" in gap.how for gap in blind.left_out if gap.what == "residency of one run")


@pytest.mark.parametrize(("solo", "shared"), [("alone-A", "slices-A-B"), ("alone-A", "mps-A-B")])
def test_units_found_between_synchronisations_are_those_of_the_program(solo: str, shared: str) -> None:
    """By the clocks of the program itself; where it names no units, the summary names none."""
    with (HARDWARE / "units.csv").open(newline="") as file:
        mean_us = {(row["case"], row["application"]): float(row["mean_us"]) for row in csv.DictReader(file)}
    comparison = pyanalyze.compare(HARDWARE / f"{solo}.sqlite", HARDWARE / f"{shared}.sqlite")
    (pair,) = comparison.tenants
    unit = pair.unit_changes[0]
    assert unit.mean_change is not None
    assert not unit.named
    expected = mean_us[shared, "A"] / mean_us[solo, "A"] - 1
    assert unit.mean_change.value == pytest.approx(expected, abs=0.05)
    assert "p50" not in comparison.summary


def test_the_largest_certain_part_is_not_called_most_of_it() -> None:
    # Idle while another was resident: 40 ms that may be the host's or the other's; 10 ms that are surely the host's.
    comparison = compare_reports(a_run(ALONE), a_run(ALONE | {"idle_ns": 2 * MS, "idle_not_resident_ns": 4 * MS}))
    assert "the largest certain part is host time (+9.1 %)" in comparison.summary


def pid_of(capture: Path) -> int:
    """The process whose kernels a capture has."""
    with closing(sqlite3.connect(capture)) as db:
        ((global_pid,),) = db.execute("SELECT DISTINCT globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL")
    return int(global_pid) >> 24 & 0xFFFFFF


@pytest.mark.parametrize("command", ["compare", "check"])
def test_names_are_dealt_out_to_the_run_that_has_the_process(command: str) -> None:
    alone, both = str(HARDWARE / "torch-alone-serve.sqlite"), str(HARDWARE / "torch-mps-serve-train.sqlite")
    names = [f"--tenant={name}" for name in (f"serve={pid_of(Path(alone))}", "serve=1287", "train=1288")]
    runs = [alone, both] if command == "compare" else [both, "--against", alone, "--max-change", "5%"]
    found = run(command, *runs, *names)
    assert found.returncode == (0 if command == "compare" else 1), found.stdout
    assert "serve" in found.stdout
    assert "python3" not in found.stdout


def test_a_name_may_be_given_to_the_capture_of_either_run() -> None:
    alone, both = HARDWARE / "torch-alone-serve.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    # However its path is spelled.
    spelled = f"{alone.parent}/../h100/{alone.name}"
    found = run("compare", str(alone), str(both), "--tenant", f"solo={spelled}")
    assert "solo → python3 (pid 1287) is" in " ".join(found.stdout.split())


def test_a_name_of_a_process_of_neither_run_is_refused() -> None:
    alone, both = HARDWARE / "torch-alone-serve.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    found = run("compare", str(alone), str(both), "--tenant", "serve=4")
    assert found.returncode == 2
    assert "--tenant serve=4: no tenant of either run is that process" in found.stderr


def test_what_makes_a_pair_is_said_where_nothing_has_a_counterpart(tmp_path: Path) -> None:
    """Two programs with no name and no kernel in common; `before` and `after` are given to a process of each."""
    runs = []
    for number, (names, of) in enumerate((({41: "web"}, "a"), ({51: "one", 52: "two"}, "b"))):
        kernels = [kernel(pid, 0, MS) for pid in names]
        runs.append(write(tmp_path / f"{number}.sqlite", kernels=kernels, processes=names, kernel_names=(of,)))
    done = run("compare", *runs)
    assert done.returncode == 4
    said = " ".join(done.stdout.split())
    assert "Give a process of each one name: --tenant NAME=PID --tenant NAME=PID. A has web 41; B has" in said
    assert "one 51" in said and "two 52" in said
    paired = run("compare", "--tenant", "x=41", "--tenant", "x=52", *runs).stdout
    assert "Only in B: one." in paired


def test_names_of_a_comparison_stay_apart_when_they_are_shortened() -> None:
    """Two kernels of PyTorch whose names differ in their middle, and launches of one kernel with other grids."""
    a, b = HARDWARE / "torch-slices-serve-train.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    launched = set()
    for path, pid in ((a, 1159), (b, 1288)):
        with closing(sqlite3.connect(path)) as db:
            launched |= set(
                db.execute(
                    "SELECT value, gridX * gridY * gridZ, blockX * blockY * blockZ FROM CUPTI_ACTIVITY_KIND_KERNEL "
                    "JOIN StringIds ON id = demangledName WHERE globalPid >> 24 & 0xffffff = ?",
                    [pid],
                )
            )
    assert len(launched) == 34
    text = render_comparison(pyanalyze.compare(a, b), "txt")
    table = text[text.index("Kernels of python3 (pid 1159) → python3 (pid 1288)") :]
    assert "the first 20 of 34." in " ".join(table.split())
    # A row begins with a name; what does not fit beside it (its grid, an interval) stands on the next line.
    rows = re.findall(
        r"^(\S+) +\d+ → \d+  .*\n((?:\(\d.*\n| {30}.*\n)?)", table.partition("Not shown")[0], re.MULTILINE
    )
    labels = [(name, *re.findall(r"^\(\d.* x \d+\)", more)) for name, more in rows]
    assert len(labels) == len(set(labels)) == 20
    cudnn = [name for name, *_ in labels if name.startswith("cudnn")]
    assert ["bprop" in name for name in cudnn] == ["fprop" not in name for name in cudnn] == [True, False]
    assert sum(len(label) == 2 for label in labels) == 8, "the grid stands whole below the name"
    # Both processes are named by their whole pid.
    assert len(re.findall(r"^python3 \(pid 1158\) → +equal .*\npython3 \(pid 1287\)$", text, re.MULTILINE)) == 1


def test_a_unit_of_the_page_is_a_request_or_a_step() -> None:
    """Parts of a change are of all the work of A: 20 more ms beside units of 1 to 2 ms are of no one unit."""
    text = render_comparison(compare_reports(a_run(ALONE), a_run(ALONE | {"idle_ns": 3 * MS})), "txt")
    # By hand: ten batches, each 2 ms longer.
    assert re.search(r"Of A's time +\(for A's work\) .*\n(.*\n)*host time +\+18\.2 % +\+20\.00 ms", text)
    assert re.search(r"in A, .* in B; for as much work as A did \+18\.2 %", " ".join(text.split()))
    assert "(per unit)" not in text and "Work per unit" not in text


def test_a_comparison_says_what_part_of_its_recording_a_run_stands_on() -> None:
    """Exports of the repository hold a fifth of a second of recordings of six seconds."""
    paths = HARDWARE / "torch-slices-serve-train.sqlite", HARDWARE / "torch-mps-serve-train.sqlite"
    comparison = pyanalyze.compare(*paths)
    for path, found in zip(paths, (comparison.a, comparison.b), strict=True):
        with closing(sqlite3.connect(path)) as db:
            ((recording_ns,),) = db.execute("SELECT duration FROM ANALYSIS_DETAILS")
            ((first, last),) = db.execute("SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        assert found.recording_ns == recording_ns > 5_900 * MS
        # Copies and switches begin or end at most a little outside the kernels.
        assert found.events_ns is not None
        assert last - first <= found.events_ns <= last - first + MS
    text = render_comparison(comparison, "txt")
    assert re.search(r"200\.1 ms of 6\.492 s$", text, re.MULTILINE)
    assert re.search(r"150\.1 ms of 5\.974 s$", text, re.MULTILINE)
    # A part that was chosen says nothing of the export.
    chosen = pyanalyze.compare(pyanalyze.load(paths[0]).window("3450ms", "3550ms"), paths[1]).a
    assert (chosen.events_ns, chosen.recording_ns) == (100 * MS, None)
