"""How full the SMs were: the replay against the generator's truth, its policy, and the check against counters."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import generate
import polars as pl
import pytest
from command_line import run
from exports import A100, MS, kernel, write
from shared_sessions import load
from test_occupancy_corpus import export

import pyanalyze
from pyanalyze.analysis.hardware import mps_sms
from pyanalyze.analysis.occupancy import PlacementPolicy, placement_policy
from pyanalyze.errors import UsageError
from pyanalyze.tables.selections import covered_ns

if TYPE_CHECKING:
    from pyanalyze.session import Session

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import launches


def _built(scenario: str, seed: int = 1, *, even: bool = False) -> tuple[Session, Path, dict[str, object]]:
    folder = generate.built(scenario, seed, even=even)
    truth = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    return load(folder / f"{truth['captures'][0]['name']}.sqlite"), folder, truth


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
    session, folder, truth = _built(scenario, even=True)
    sms = truth["devices"][0]["sm_count"]  # type: ignore[index]
    true, length = _warps(folder, scenario, sms)
    found = {}
    for model in ("replay", "even"):
        made = session.occupancy(bins=len(true), window=(0, len(true) * length), model=model)
        values = made.per_sm.sort("start_ns", "sm")["warps"].to_list()
        found[model] = _error([values[n * sms : (n + 1) * sms] for n in range(len(true))], true)
    assert found["replay"] < 0.002, found
    assert found["replay"] < found["even"] / 2, found


@pytest.mark.parametrize("scenario", ["time-slicing-short-kernels", "uneven-four-equal-kernels"])
def test_saving_and_restoring_is_told_from_running(scenario: str) -> None:
    # Release drivers record slices with both: by those 0.03 and 0.013 too many warps.
    session, folder, truth = _built(scenario, even=True)
    true, length = _warps(folder, scenario, truth["devices"][0]["sm_count"])  # type: ignore[index]
    origin = truth["captures"][0]["origin_ns"]  # type: ignore[index]
    made = session.occupancy(bins=len(true), window=(-origin, len(true) * length - origin))
    assert sum(made.per_sm["warps"].to_list()) / sum(map(sum, true)) == pytest.approx(1, abs=0.01)


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


#: A TITAN V as an export shows it: 80 SMs, compute capability 7.0.
TITAN_V = {
    **A100, "name": "NVIDIA TITAN V", "chipName": "GV100", "smCount": 80, "computeMajor": 7, "computeMinor": 0,
    "maxShmemPerSm": 98_304, "maxShmemPerBlockOptin": 98_304,
}  # fmt: skip


@pytest.mark.parametrize(
    ("major", "minor", "order"),
    [(6, 0, range(41)), (7, 0, [*range(0, 80, 2), 1]), (7, 5, [*range(0, 80, 2), 1]), (8, 0, [*range(0, 80, 2), 1])],
)
def test_even_sms_come_first_from_volta_on(tmp_path: Path, major: int, minor: int, order: list[int]) -> None:
    # 41 blocks on 80 SMs: one on each of the first 41. Measured on a TITAN V: SM 0, 2, ..., 78, then 1, 3, ...
    gpu = TITAN_V | {"computeMajor": major, "computeMinor": minor}
    kernels = [kernel(7, 0, 1_000_000, gridX=41, blockX=1024)]
    session = pyanalyze.load(write(tmp_path / "one.sqlite", kernels=kernels, gpus=[gpu]))
    per_sm = session.occupancy(bins=1).per_sm
    assert per_sm.filter(pl.col("warps") > 0)["sm"].to_list() == sorted(order)
    # Nobody has published the order from 8.0 on: the report says so.
    assert run("report", tmp_path / "one.sqlite", "-o", tmp_path / "page.html").returncode == 0
    assert ("SM numbers are assumed" in (tmp_path / "page.html").read_text(encoding="utf-8")) == (major >= 8)


def test_a_clock_that_counts_from_1970_is_as_good_as_one_that_counts_from_the_start(tmp_path: Path) -> None:
    first = 1_795_651_063_382_154_496
    kernels = [kernel(1, first + n * 2_000_000, first + n * 2_000_000 + 1_000_000) for n in range(5)]
    session = pyanalyze.load(write(tmp_path / "run.sqlite", kernels=kernels, gpus=[A100]))
    # 216 blocks of 8 warps on the SMs for 5 of 9 ms; bins of 1.8 ms.
    warps = session.occupancy(bins=5).per_sm["warps"].sum()
    assert warps == pytest.approx(216 * 8 * 5 / 1.8, rel=1e-6)


def test_policy_of_a_verdict() -> None:
    session, _, _ = _built("mps-capped")
    policy = placement_policy(session.tables, session.classify()[0])
    # H200 or whatever the seed drew: what CUDA showed each client.
    shown = {row["pid"]: row["sm_count"] for row in session.contexts.iter_rows(named=True)}
    clients = session.tenants.filter("traced")
    assert policy.sms == {(row["tenant_id"], None): shown[row["pid"]] for row in clients.iter_rows(named=True)}
    assert set(policy.held_by) == set(clients["tenant_id"])

    session, _, truth = _built("green-contexts")
    policy = placement_policy(session.tables, session.classify()[0])
    total = truth["devices"][0]["sm_count"]  # type: ignore[index]
    first, second = (policy.sms[0, context] for context in (2, 3))
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert sorted(first + second) == list(range(len(first) + len(second)))
    assert len(first) + len(second) <= total


def test_clients_of_a_server_are_time_sliced_with_another_process() -> None:
    session, _, _ = _built("mps-outsider")
    policy = placement_policy(session.tables, session.classify()[0])
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


def test_no_more_sms_are_active_than_tenants_see_while_they_run(fixtures: Path) -> None:
    for path in (fixtures / "demo-time-slicing.sqlite", generate.built("mps-capped") / "mps-capped.sqlite"):
        (device,) = load(path).report().devices
        assert device.occupancy is not None
        assert device.window is not None
        assert device.sm_count is not None
        caps = {"client-1": 46, "client-2": 44}
        ran_ns = sum((tenant.attributed_ns or 0) * caps.get(tenant.name, device.sm_count) for tenant in device.tenants)
        most = ran_ns / device.sm_count / (device.window.end_ns - device.window.start_ns)
        assert device.occupancy.sm_active.high is not None
        assert device.occupancy.sm_active.high <= most + 1e-9 < 0.75


def test_active_sms_end_where_kernels_do(hardware: Path, corpus: Path, tmp_path: Path) -> None:
    """By SQL: two clients of MPS on 66 of 132 SMs each, and one block that was resident for 1.232 of 2.591 s.

    By hand: kernels of two processes at the same time for 6 of 10 ms, on SMs that nothing caps.
    """
    path = hardware / "mps-50-50-A-B.sqlite"
    with closing(sqlite3.connect(path)) as db:
        kernels = db.execute('SELECT globalPid, start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start').fetchall()
    in_flight = {
        pid: covered_ns(pl.DataFrame(spans, schema=["start_ns", "end_ns"], orient="row"))
        for pid in {pid for pid, _, _ in kernels}
        for spans in [[(start, end) for one, start, end in kernels if one == pid]]
    }
    assert len(in_flight) == 2
    assert _active_high(path) <= sum(in_flight.values()) / 2 / _window_ns(path) < 0.342
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        ((resident_ns,),) = db.execute(
            "SELECT sum(next - timestamp) FROM (SELECT tag, globalPid, timestamp, "
            "lead(timestamp) OVER (PARTITION BY contextId ORDER BY timestamp) AS next FROM GPU_CONTEXT_SWITCH_EVENTS) "
            "WHERE tag = 8 AND globalPid >> 24 & 0xFFFFFF = 30428"
        )
    assert _active_high(path) <= resident_ns / 142 / _window_ns(path) < 0.00336
    path = write(
        tmp_path / "a.sqlite",
        kernels=[kernel(41, 0, 6 * MS), kernel(42, 0, 6 * MS), kernel(41, 10 * MS - 1, 10 * MS)],
        processes={41: "one", 42: "other"},
    )
    assert _active_high(path) <= 0.6 + 1e-6


def _active_high(path: Path) -> float:
    (device,) = load(path).report().devices
    assert device.occupancy is not None
    return device.occupancy.sm_active.high


def _window_ns(path: Path) -> int:
    (device,) = load(path).report().devices
    assert device.window is not None
    return device.window.end_ns - device.window.start_ns


def test_counters_of_the_same_bins(fixtures: Path) -> None:
    session = load(fixtures / "exclusive.sqlite")
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
    session = load(fixtures / "exclusive.sqlite")
    check = session.check_occupancy(0)
    assert check is not None
    assert check.factor is not None
    plain = session.occupancy(calibrate=False)
    scaled = plain.calibrated(0, check)
    assert plain.calibration is None
    assert scaled.calibration is not None
    assert f"{check.factor:.2f}" in repr(scaled)
    assert plain.per_sm.equals(session.occupancy(calibrate=False).per_sm)
    # Counters are there: without a word that is what everybody gets, and the report says so.
    assert session.occupancy().per_sm.equals(scaled.per_sm)
    assert scaled.calibrated(0, check) is scaled
    found = session.report().devices[0].occupancy
    assert found is not None
    assert found.calibration is not None
    assert f"device 0: {found.calibration}" == scaled.calibration
    assert "calibrated to hardware counters" in run("report", fixtures / "exclusive.sqlite", "-f", "md").stdout.lower()


def test_counters_of_other_work_calibrate_nothing(corpus: Path) -> None:
    # Four short kernels, and SMs that were active for 96 % of the time: another process's.
    path = corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2023.sqlite"
    if not path.is_file():
        pytest.skip(f"no capture with GPU metrics in {corpus}")
    session = load(path)
    check = session.check_occupancy(0)
    assert check is not None
    assert check.other_work
    assert session.occupancy().calibration is None
    found = session.report().devices[0].occupancy
    assert found is not None
    assert found.calibration is None
    assert found.sm_active.high < 0.05
    page = run("report", path, "-f", "md").stdout
    assert "The model is not calibrated to the hardware counters, which also count work that is not modelled." in page


def test_what_is_calibrated_sums_up_to_the_counters(fixtures: Path) -> None:
    with closing(sqlite3.connect(f"file:{fixtures / 'exclusive.sqlite'}?mode=ro", uri=True)) as db:
        query = (
            "SELECT timestamp, value FROM GPU_METRICS m JOIN TARGET_INFO_GPU_METRICS t USING (typeId, metricId) "
            "WHERE metricName LIKE 'Compute Warps in Flight%' ORDER BY 1"
        )
        samples = db.execute(query).fetchall()
    session = load(fixtures / "exclusive.sqlite")
    check = session.check_occupancy(0)
    assert check is not None
    # Ten samples to a bin, each the mean of the time until the next one: a bin's mean is theirs.
    window = samples[99][0], samples[1099][0]
    made = session.occupancy(bins=100, window=window)
    slots = session.devices["max_warps_per_sm"][0]
    ours = made.per_sm.group_by("start_ns").agg(warps=pl.col("warps").mean() / slots).sort("start_ns")["warps"]
    counted = [sum(value for _, value in samples[99 + 10 * n : 109 + 10 * n]) / 1000 for n in range(100)]
    alike = [abs(a - b) < 1e-6 for a, b in zip(ours, counted, strict=True)]
    plain = session.occupancy(bins=100, window=window, calibrate=False)
    modelled = plain.per_sm.group_by("start_ns").agg(pl.col("warps").sum())
    busy = (modelled.sort("start_ns")["warps"] > 0).to_list()
    assert sum(busy) > 50
    assert all(same for same, some in zip(alike, busy, strict=True) if some)
    tenants = made.over_time.sort("start_ns")["warps"]
    assert all(abs(a - b) < 0.01 for a, b, some in zip(tenants, counted, busy, strict=True) if some)
    # Bins shorter than a sample are scaled together: the sum over ten samples stays theirs.
    fine = session.occupancy(bins=4000, window=window).per_sm["warps"].mean()
    assert fine / slots == pytest.approx(made.per_sm["warps"].mean() / slots, rel=0.02)


def test_a_pause_of_the_counters_counts_nothing(fixtures: Path, tmp_path: Path) -> None:
    paused = tmp_path / "paused.sqlite"
    shutil.copy(fixtures / "exclusive.sqlite", paused)
    with closing(sqlite3.connect(paused)) as db:
        first, last = db.execute("SELECT min(timestamp), max(timestamp) FROM GPU_METRICS").fetchone()
        third = (last - first) // 3
        pause = first + third, last - third
        db.execute("DELETE FROM GPU_METRICS WHERE timestamp > ? AND timestamp <= ?", pause)
        db.commit()
    whole, check = (load(path).check_occupancy(0) for path in (fixtures / "exclusive.sqlite", paused))
    assert whole is not None
    assert check is not None
    # What nobody counted is not 0: those bins are left out, the others are what they were.
    outside = (pl.col("end_ns") <= pause[0]) | (pl.col("start_ns") >= pause[1])
    assert check.bins.height == pytest.approx(whole.bins.filter(outside).height, abs=2)
    assert check.mean("warps_counted") == pytest.approx(whole.bins.filter(outside)["warps_counted"].mean(), rel=0.03)
    assert check.factor == pytest.approx(1, abs=0.03)
    plain = pyanalyze.load(paused).occupancy(calibrate=False)
    scaled = plain.calibrated(0, check)
    assert "bins with work were not sampled and stay as modelled" in (scaled.calibration or "")
    inside = (pl.col("start_ns") > pause[0]) & (pl.col("end_ns") < pause[1] - 200_000)
    assert scaled.per_sm.filter(inside).height > 0
    assert scaled.per_sm.filter(inside).equals(plain.per_sm.filter(inside))


def test_counters_tell_how_uneven_blocks_are(tmp_path: Path) -> None:
    """No trace tells that: log-normal blocks in one wave have far fewer warps than the slowest of them implies."""
    text = (generate.SCENARIOS / "streams-twelve.toml").read_text(encoding="utf-8")
    (tmp_path / "streams-twelve.toml").write_text(
        text.replace("[[capture]]\n", "[[capture]]\nmetrics_hz = 10000\n", 1), encoding="utf-8"
    )
    generate.generate([tmp_path / "streams-twelve.toml"], tmp_path / "made", 1, tables=True)
    truth = json.loads((tmp_path / "made" / "streams-twelve.truth.json").read_text(encoding="utf-8"))
    (device,), capture = truth["devices"], truth["captures"][0]
    with closing(sqlite3.connect(tmp_path / "made" / "streams-twelve.truth.sqlite")) as db:
        rows = db.execute("SELECT start_ns, end_ns, sum(warps) FROM sm_warps GROUP BY 1 ORDER BY 1").fetchall()
    length = rows[0][1] - rows[0][0]
    bins = rows[-1][0] // length + 1
    window = (-capture["origin_ns"], bins * length - capture["origin_ns"])
    session = pyanalyze.load(tmp_path / "made" / f"{capture['name']}.sqlite")
    plain = session.occupancy(bins=bins, window=window, calibrate=False)
    check = session.check_occupancy(0)
    assert check is not None
    assert not check.agrees
    true = sum(warps for *_, warps in rows)
    off = [float(made.per_sm["warps"].sum()) / true - 1 for made in (plain, plain.calibrated(0, check))]
    assert off[0] > 0.5
    assert abs(off[1]) < 0.03
    assert device["sm_count"] == plain.per_sm["sm"].n_unique()


def test_nothing_to_compare_is_none(fixtures: Path) -> None:
    for name in ("mps.sqlite", "mig.sqlite", "node-switches-only.sqlite"):
        session = load(fixtures / name)
        assert all(session.check_occupancy(device) is None for device in session.devices["device_id"])


def test_real_counters_beside_kernels(corpus: Path) -> None:
    captures = sorted((corpus / "exports" / "rtx3090-gpumetrics").glob("report2.*.sqlite"))
    if not captures:
        pytest.skip(f"no capture with kernels and GPU metrics in {corpus}")
    texts = set()
    for path in captures:
        check = load(path).check_occupancy(0)
        assert check is not None
        # Something else keeps the SMs busy between four short kernels; the model must not claim to agree.
        assert not check.agrees
        texts.add(str(check))
    # The same report in three layouts.
    assert len(texts) == 1
    assert "without a traced kernel" in texts.pop()


def test_large_captures_are_not_replayed_in_passing(fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def models(session: pyanalyze.Session) -> set[str]:
        return set(session.sm_warps["model"].cast(str))

    path = fixtures / "demo-time-slicing.sqlite"
    kernels = pyanalyze.load(path).kernels.height
    monkeypatch.setattr("pyanalyze.analysis.occupancy.REPLAYED_IN_PASSING", kernels)
    assert models(pyanalyze.load(path)) == {"replay"}
    monkeypatch.setattr("pyanalyze.analysis.occupancy.REPLAYED_IN_PASSING", kernels - 1)
    session = pyanalyze.load(path)
    assert models(session) == {"even"}
    assert "occupancy.replay" in [gap.what for gap in session.report().devices[0].sharing.missing]
    assert set(session.occupancy().per_sm["model"].cast(str)) == {"replay"}


def test_the_carve_out_is_what_was_set_else_what_was_asked_for(tmp_path: Path) -> None:
    # 10 KiB and the driver's 1 KiB for a block, on compute capability 8.6: 100 KiB, of which 0, 8, 16, 32, 64 or 100 are
    # shared memory. (set in bytes, asked for in per cent, legacy preference, blocks on an SM)
    launches = [
        (64 * 1024, 100, 2, 64 // 11),  # what was set is what counts
        (None, 25, 2, 32 // 11),  # a quarter of 100 KiB, up to the next size
        (0, 25, 2, 32 // 11),
        (None, None, 1, 100 // 11),  # shared memory rather than L1
        (None, None, 2, 16 // 11),  # L1: the least that holds a block
        (None, None, 3, 64 // 11),  # both alike: half, up to the next size
        (None, None, 0, 100 // 11),
        (None, 255, 4, 100 // 11),  # neither means anything
        (None, None, None, 100 // 11),
    ]
    device = {
        "name": "NVIDIA RTX A6000", "numSms": 84, "computeMajor": 8, "computeMinor": 6,
        "sharedMemPerMultiprocessor": 102400, "sharedMemPerBlock": 49152, "sharedMemPerBlockOptin": 101376,
        "regsPerMultiprocessor": 65536, "regsPerBlock": 65536, "warpSize": 32, "maxThreadsPerMultiprocessor": 1536,
        "maxThreadsPerBlock": 1024,
    }  # fmt: skip
    path = tmp_path / "carve-outs.sqlite"
    export(path, device, [(1000, 128, 16, 10 * 1024, 0)] * len(launches))
    with sqlite3.connect(path) as db:
        for column in ("sharedMemoryExecuted", "sharedMemoryRequestedPercentage", "cacheConfig"):
            db.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN {column} INTEGER")
        db.executemany(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET sharedMemoryExecuted = ?, sharedMemoryRequestedPercentage = ?, "
            "cacheConfig = ? WHERE correlationId = ?",
            [(*launch[:3], number) for number, launch in enumerate(launches)],
        )
    db.close()
    found = pyanalyze.load(path).kernel_occupancy.sort(pl.col("name").cast(pl.String).cast(pl.Int64))
    assert found["blocks_per_sm"].to_list() == [launch[3] for launch in launches]
    assert found["limiters"].unique().to_list() == ["shared"]


def _printed(*arguments: str | Path) -> str:
    """What `pyanalyze occupancy` prints."""
    done = run("occupancy", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_csv_holds_every_tenant_over_time_by_name() -> None:
    scenario = "mps"
    folder = generate.built(scenario, 1)
    rows = list(csv.DictReader(io.StringIO(_printed(folder / f"{scenario}.sqlite", "-f", "csv"))))
    assert {row["basis"] for row in rows} == {"modelled"}
    truth = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    device, pids = truth["devices"][0], {t["name"]: str(t["pid"]) for t in truth["tenants"]}
    slots = device["sm_count"] * 48  # of an SM of compute capability 8.6
    with sqlite3.connect(folder / f"{scenario}.truth.sqlite") as db:
        length = "(end_ns - start_ns)"
        query = f"SELECT tenant, sum({length} * warps), sum({length} * sms) FROM tenant_warps GROUP BY tenant"
        true = {pids[name]: (warps, sms) for name, warps, sms in db.execute(query)}
    db.close()
    # Both run the same program: its name does not tell them apart.
    assert {row["tenant"] for row in rows} == {"client"}
    assert {row["pid"] for row in rows} == set(true)
    for pid, (warps, sms) in true.items():
        mine = [row for row in rows if row["pid"] == pid]
        # The bins follow each other without a hole.
        assert [row["end_ns"] for row in mine[:-1]] == [row["start_ns"] for row in mine[1:]]
        lengths = [int(row["end_ns"]) - int(row["start_ns"]) for row in mine]
        found = sum(n * float(row["warps"]) * slots for n, row in zip(lengths, mine, strict=True))
        active = sum(n * float(row["sm_active"]) * device["sm_count"] for n, row in zip(lengths, mine, strict=True))
        assert found == pytest.approx(warps, rel=0.01)
        assert active == pytest.approx(sms, rel=0.01)
        assert all(float(r["warps_low"]) <= float(r["warps"]) <= float(r["warps_high"]) for r in mine)


def test_detail_holds_every_sm_over_time() -> None:
    scenario = "mps"
    folder = generate.built(scenario, 1)
    capture = folder / f"{scenario}.sqlite"
    (plain,) = json.loads(_printed(capture, "-f", "json"))["devices"]
    (device,) = json.loads(_printed(capture, "-f", "json", "--detail"))["devices"]
    assert "sm_warps" not in plain
    assert plain["occupancy"] == device["occupancy"]
    found = device["sm_warps"]
    length = (found["end_ns"] - found["start_ns"]) / len(found["warps"])
    with sqlite3.connect(folder / f"{scenario}.truth.sqlite") as db:
        query = "SELECT sm, sum((end_ns - start_ns) * warps) FROM sm_warps GROUP BY sm ORDER BY sm"
        true = [warps for _, warps in db.execute(query)]
    db.close()
    # SM by SM: both even and odd ones, in the order of their numbers.
    sums = [sum(of_sm) * length for of_sm in zip(*found["warps"], strict=True)]
    assert sums == pytest.approx(true, rel=0.01)
    assert max(true) > 1.05 * min(true), "else any order would do"


def test_real_launches_hold_what_is_modelled(corpus: Path) -> None:
    file = corpus / "occupancy" / "nsight-compute" / "launches.csv"
    if not file.is_file():
        pytest.skip(f"no launches counted by Nsight Compute in {corpus}")
    counted = launches.counted(file)
    found = counted.join(launches.modelled(counted), on="launch")
    assert found["value"].null_count() == 0
    assert launches.figures_of(found)["error"] <= 0.08
    for name in launches.CLASSES:
        assert launches.figures_of(found.filter(launches.of_class(name)))["inside"] >= 0.95, name
    # The benchmark refits the formula of the core: with the coefficients of the core both say the same.
    formula = launches.Fit.of(counted).rows.select("launch", value=launches.Fit.value((4717.0, 310.0, 0.315, 0.966)))
    both = found.join(formula, on="launch", suffix="_formula")
    assert both.select((pl.col("value") / pl.col("value_formula") - 1).abs().max()).item() < 1e-6
