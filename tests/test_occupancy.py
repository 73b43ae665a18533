"""How full the SMs were: the replay against the generator's truth, its policy, and the check against counters."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import generate
import polars as pl
import pytest

import pyanalyze
from pyanalyze.exceptions import UsageError
from pyanalyze.occupancy import PlacementPolicy, mps_sms, placement_policy

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.session import Session


def _built(scenario: str, seed: int = 1) -> tuple[Session, Path, dict[str, object]]:
    folder = generate.built(scenario, seed)
    truth = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    return pyanalyze.load(folder / f"{truth['captures'][0]['name']}.sqlite"), folder, truth


def _warps(folder: Path, scenario: str, sms: int) -> tuple[list[list[float]], int]:
    """True mean warps by bin and SM, and the length of a bin."""
    with sqlite3.connect(folder / f"{scenario}.truth.sqlite") as db:
        rows = db.execute("SELECT start_ns, end_ns, sm, warps FROM sm_warps ORDER BY start_ns").fetchall()
    db.close()
    length = rows[0][1] - rows[0][0]
    grid = [[0.0] * sms for _ in range(rows[-1][0] // length + 1)]
    for start, _, sm, warps in rows:
        grid[start // length][sm] = warps
    return grid, length


def _error(ours: list[list[float]], true: list[list[float]]) -> float:
    """Sum of |modelled - true| over SMs and bins, as a part of the true warps."""
    apart = sum(abs(a - b) for x, y in zip(ours, true, strict=True) for a, b in zip(x, y, strict=True))
    return apart / sum(map(sum, true))


#: Even blocks: scenario and how exact the replay is, SM by SM. 2 ns of rounding a kernel are left.
EXACT = ["exclusive-four-streams", "green-contexts", "mps", "mps-capped", "mps-static-partition", "streams"]


@pytest.mark.parametrize("scenario", EXACT)
def test_with_even_blocks_every_sm_is_right(scenario: str) -> None:
    session, folder, truth = _built(scenario)
    sms = truth["devices"][0]["sm_count"]  # type: ignore[index]
    true, length = _warps(folder, scenario, sms)
    found = {}
    for model in ("replay", "even"):
        made = session.occupancy(bins=len(true), window=(0, len(true) * length), model=model)
        values = made.per_sm.sort("start_ns", "sm")["warps"].to_list()
        found[model] = _error([values[n * sms : (n + 1) * sms] for n in range(len(true))], true)
    assert found["replay"] < 0.002, found
    assert found["replay"] < found["even"] / 2, found


@pytest.mark.parametrize("scenario", ["mps", "streams", "green-contexts"])
def test_kernels_reach_as_many_sms_as_in_truth(scenario: str) -> None:
    session, folder, _ = _built(scenario)
    with sqlite3.connect(folder / f"{scenario}.truth.sqlite") as db:
        true = dict(db.execute("SELECT start_ns * 1000000 + correlation % 1000000, sms_reached FROM kernels"))
    db.close()
    rows = session.kernel_placement.select("start_ns", "correlation_id", "sms_reached").rows()
    assert len(rows) > 100
    wrong = [row for row in rows if true[row[0] * 1_000_000 + row[1] % 1_000_000] != row[2]]
    assert len(wrong) < 0.01 * len(rows), wrong[:5]


def test_bounds_hold_the_truth_although_blocks_differ() -> None:
    scenario = "streams-twelve"  # log-normal block times
    session, folder, truth = _built(scenario)
    sms = truth["devices"][0]["sm_count"]  # type: ignore[index]
    true, length = _warps(folder, scenario, sms)
    slots = session.devices["max_warps_per_sm"][0] * sms
    made = session.occupancy(bins=len(true), window=(0, len(true) * length)).over_time.sort("start_ns")
    assert made.height == len(true)
    for row, warps in zip(made.iter_rows(named=True), true, strict=True):
        assert row["warps_low"] - 1e-4 <= sum(warps) / slots <= row["warps_high"] + 1e-4
        assert row["warps_low"] <= row["warps"] <= row["warps_high"]
    # What two kernels cannot do at once with equal blocks is said.
    assert "uneven" in set(session.kernel_placement["caveat"].cast(pl.String).drop_nulls())


def test_policy_of_a_verdict() -> None:
    session, _, _ = _built("mps-capped")
    policy = placement_policy(session, session.classify()[0])
    # H200 or whatever the seed drew: what CUDA showed each client.
    shown = {row["pid"]: row["sm_count"] for row in session.contexts.iter_rows(named=True)}
    clients = session.tenants.filter("traced")
    assert policy.sms == {(row["tenant_id"], None): shown[row["pid"]] for row in clients.iter_rows(named=True)}
    assert set(policy.held_by) == set(clients["tenant_id"])

    session, _, truth = _built("green-contexts")
    policy = placement_policy(session, session.classify()[0])
    total = truth["devices"][0]["sm_count"]  # type: ignore[index]
    first, second = (policy.sms[0, context] for context in (2, 3))
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert sorted(first + second) == list(range(len(first) + len(second)))
    assert len(first) + len(second) <= total


def test_clients_of_a_server_take_turns_with_an_outsider() -> None:
    session, _, _ = _built("mps-outsider")
    policy = placement_policy(session, session.classify()[0])
    names = dict(session.tenants.select("name", "tenant_id").iter_rows())
    groups = {name: policy.groups[tenant] for name, tenant in names.items() if tenant in policy.groups}
    assert groups["client-1"] == groups["client-2"] != groups["outsider"]


def test_a_caller_may_say_who_is_where() -> None:
    session, _, _ = _built("streams")
    policy = PlacementPolicy("shared", sms={(0, None): (3, 4, 5)})
    per_sm = session.occupancy(bins=4, policies={0: policy}).per_sm
    assert set(per_sm.filter(pl.col("warps") > 0)["sm"]) == {3, 4, 5}
    per_sm = session.occupancy(bins=4, policies={0: PlacementPolicy(sms={(0, None): 6})}).per_sm
    assert per_sm.filter(pl.col("warps") > 0)["sm"].n_unique() == 6
    with pytest.raises(UsageError, match="no placement model"):
        session.occupancy(model="guess")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="bins"):
        session.occupancy(bins=0)


def test_mps_percentages_are_whole_tpcs() -> None:
    # Measured on an RTX 5090 (170 SMs, 50 %): 84 visible.
    assert mps_sms(170, 50) == 84
    assert mps_sms(82, 50) == 40


def test_counters_of_the_same_bins(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / "exclusive.sqlite")
    check = session.check_occupancy(0)
    assert check is not None
    assert check.warps_counter
    assert check.agrees
    # The counters are the truth here: whole percents of 100 us each.
    assert abs(check.difference("warps")) < 0.02
    assert check.absolute_difference("warps") < 0.03
    # By hand: the mean of all samples inside the window is the mean of the bins.
    samples = session.gpu_metrics.filter(pl.col("metric").cast(pl.String) == "Compute Warps in Flight")
    start, end = check.bins["start_ns"].min(), check.bins["end_ns"].max()
    inside = samples.filter(pl.col("time_ns").is_between(start, end, closed="right"))["value"].mean()
    assert isinstance(inside, float)
    assert check.mean("warps_counted") == pytest.approx(inside / 100, rel=0.01)

    found = session.report().devices[0].occupancy
    assert found is not None
    assert found.check_against_counters is not None
    assert found.check_against_counters.warps_factor == pytest.approx(check.factor, rel=1e-6)


def test_calibration_is_never_silent(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / "exclusive.sqlite")
    check = session.check_occupancy(0)
    assert check is not None
    assert check.factor is not None
    plain = session.occupancy()
    scaled = plain.calibrated(0, check)
    assert plain.calibration is None
    assert scaled.calibration is not None
    assert f"{check.factor:.3f}" in repr(scaled)
    ours, theirs = (float(made.per_sm["warps"].sum()) for made in (scaled, plain))
    assert ours / theirs == pytest.approx(check.factor)


def test_nothing_to_compare_is_none(fixtures: Path) -> None:
    for name in ("mps.sqlite", "mig.sqlite", "node-switches-only.sqlite"):
        session = pyanalyze.load(fixtures / name)
        assert all(session.check_occupancy(device) is None for device in session.devices["device_id"])


def test_real_counters_beside_kernels(corpus: Path) -> None:
    captures = sorted((corpus / "exports" / "rtx3090-gpumetrics").glob("report2.*.sqlite"))
    if not captures:
        pytest.skip(f"no capture with kernels and GPU metrics in {corpus}")
    texts = set()
    for path in captures:
        check = pyanalyze.load(path).check_occupancy(0)
        assert check is not None
        # Something else keeps the SMs busy between four short kernels; the model must not claim to agree.
        assert not check.agrees
        texts.add(str(check))
    # The same report in three layouts.
    assert len(texts) == 1
    assert "no traced kernel explains it" in texts.pop()


def test_large_captures_are_not_replayed_in_passing(fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def models(session: pyanalyze.Session) -> set[str]:
        return set(session.sm_warps["model"].cast(str))

    path = fixtures / "demo-time-slicing.sqlite"
    kernels = pyanalyze.load(path).kernels.height
    monkeypatch.setattr("pyanalyze.occupancy.REPLAYED_IN_PASSING", kernels)
    assert models(pyanalyze.load(path)) == {"replay"}
    monkeypatch.setattr("pyanalyze.occupancy.REPLAYED_IN_PASSING", kernels - 1)
    session = pyanalyze.load(path)
    assert models(session) == {"even"}
    assert "occupancy.replay" in [gap.what for gap in session.report().devices[0].sharing.missing]
    assert set(session.occupancy().per_sm["model"].cast(str)) == {"replay"}
