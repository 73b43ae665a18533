"""What advice says: provisioning by hand calculation, forecasts against simulations, and the words around them."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import generate
import polars as pl
import pytest
from command_line import run
from exports import MS, US, call, kernel, recorded_residency, write
from shared_sessions import load

import pyanalyze
from pyanalyze.analysis import mps_daemon
from pyanalyze.analysis.advice import (
    Assignment,
    Forecast,
    Option,
    Options,
    SharingConfig,
    configuration,
    demands,
    forecast,
    host_side,
    kubernetes,
    mig,
    mps,
    option_action,
    options,
)
from pyanalyze.analysis.advice.advise import advise_device
from pyanalyze.analysis.advice.forecast import alone, side_by_side, time_slicing
from pyanalyze.analysis.advice.options import observed_slicing
from pyanalyze.analysis.advice.residents import residents_of
from pyanalyze.analysis.advice.simple import Resident, simple_bounds, unknown_tenants
from pyanalyze.analysis.hardware import mps_sms
from pyanalyze.analysis.sharing import Case, Verdict, judge
from pyanalyze.errors import UsageError
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.sentences.cause import cause_sentence
from pyanalyze.report.sentences.lead import lead_sentences
from pyanalyze.results.interference import Estimate
from pyanalyze.tables.frames import ANALYSIS_TABLES
from pyanalyze.vocabulary import NOISE_FLOOR, REQUIREMENTS, TRAITS, Mode

if TYPE_CHECKING:
    from pyanalyze.vocabulary import Basis, Requirement

WITH_CALLS = (*ANALYSIS_TABLES, "api_calls")
#: The package gives the function of this name, not the module.
options_module = importlib.import_module("pyanalyze.analysis.advice.options")


def options_of(session: pyanalyze.Session) -> Options:
    return options(session.tables, session.classify()[0])


def time_sliced(session: pyanalyze.Session) -> bool:
    return session.classify()[0].mode == "time-slicing"


def truth_of(scenario: str, seed: int = 1, *, anew: bool = False) -> tuple[pyanalyze.Session, dict[str, Any]]:
    """A recording with its truth; loaded `anew` for tests that replace what its analysis calls."""
    folder = generate.built(scenario, seed)
    truth: dict[str, Any] = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    return (pyanalyze.load if anew else load)(folder / f"{scenario}.sqlite", tables=WITH_CALLS), truth


@pytest.mark.parametrize(
    ("scenario", "last"),
    [
        ("exclusive", None),
        ("green-contexts", "Record the same work without green contexts"),
        ("mig", "Record the workload in a larger MIG instance"),
        ("mig-shared-ci", "Record the workload in a larger MIG instance"),
    ],
)
def test_one_process_is_advised_the_same_whatever_names_its_mode(scenario: str, last: str | None) -> None:
    """What it can gain by itself comes first, by the time at stake; then what to do about the sharing, if anything."""
    session, truth = truth_of(scenario)
    assert len(session.devices) == len(truth["devices"])
    for advice in session.advise():
        own = list(advice.actions)
        assert not any(action.action.startswith("Keep the sharing configuration") for action in own)
        if last is not None:
            assert own.pop().action.startswith(last)
        stakes = [action.at_stake_ns for action in own]
        assert stakes
        assert stakes == sorted(stakes, key=lambda ns: -(ns or 0))


def test_an_instance_with_several_listed_processes_is_not_advised_as_if_one_were_in_it(corpus: Path) -> None:
    """nvidia-smi lists pids 12249, 12250 and 12267 in instance 2/1 (its lines 1965 to 1967), and none in 2/0."""
    (path,) = (corpus / "samples" / "nvidia-gpu-exporter").glob("*h200-mig*")
    rows = [line.split()[1:5] for line in path.read_text(encoding="utf-8").splitlines()[1964:1967]]
    assert rows == [["0", "2", "1", pid] for pid in ("12249", "12250", "12267")]
    advised = {
        one.device_id: [action.action for action in one.actions] for one in pyanalyze.load(samples=path).advise()
    }
    assert advised[2] == [
        "Record the processes of this MIG instance at the same time",
        # gpu_burn has 13,526 MiB, and 2g.35gb is the largest GPU instance without a process.
        "Move gpu_burn into the MIG instance 2g.35gb, in which no process was listed",
    ]
    assert advised[1] == []


def test_requirements_are_held_against_what_modes_promise() -> None:
    # NVIDIA's comparison: MPS and time-slicing give no bandwidth of one's own, MIG gives all three.
    assert TRAITS[Mode.MPS].promises.lacks(REQUIREMENTS) == ("fault-isolation", "bandwidth-qos")
    assert TRAITS[Mode.MIG].promises.lacks(REQUIREMENTS) == ()
    # Sources disagree on faults: that does not meet a requirement.
    assert TRAITS[Mode.TIME_SLICING].promises.fault_isolation is None
    assert TRAITS[Mode.TIME_SLICING].promises.lacks(REQUIREMENTS) == ("fault-isolation", "bandwidth-qos")


@pytest.mark.parametrize(
    ("percentage", "sms"),
    [(1, 8), (7, 8), (8, 10), (9, 10), (10, 12), (11, 14), (12, 14), (13, 16), (14, 18), (15, 18), (100, 132)],
)
def test_percentages_give_the_sms_measured_on_an_h200(percentage: int, sms: int) -> None:
    assert mps_sms(132, percentage, 9) == sms


def test_sm_needs_follow_from_waves() -> None:
    # 216 blocks, two on an SM: one wave on 108 SMs, and on 108 only. 40 blocks, two on an SM: one wave on 20.
    wide = {"grid_blocks": 216, "blocks_per_sm": 2, "total_ns": 100}
    small = {"grid_blocks": 40, "blocks_per_sm": 2, "total_ns": 1900}
    losses = dict(mps.loss_by_sms(pl.DataFrame([wide, small]), 108))
    assert losses[108] == 1.0
    # Two waves of the first, a twentieth of the time.
    assert losses[54] == pytest.approx(1.05)
    assert losses[10] == pytest.approx((100 * 11 + 1900 * 2) / 2000)
    assert mps.sms_needed(list(losses.items()), 0.051) == 54
    assert mps.sms_needed(list(losses.items()), 0.01) == 108
    assert mps.sms_needed([], 0.05) is None


def test_settings_are_environment_and_commands() -> None:
    clients = [mps.Client(0, "train", 0.8, 80, 10 * 2**30), mps.Client(1, "serve", 0.2, 20, None)]
    by_name = {p.strategy: p for p in mps.provisions(clients, 108, 8)}
    lines = mps.settings(by_name["proportional"], clients)
    # 10 GiB and a tenth.
    said = [line.split("   # ") for line in lines[1:3]]
    assert said == [
        [
            'export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=11264M"',
            "in the shell that starts train, before it starts",
        ],
        ["export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20", "in the shell that starts serve, before it starts"],
    ]
    assert "set_default_active_thread_percentage 50" in mps.settings(by_name["equal"], clients)[-1]


@pytest.mark.parametrize(
    ("loads", "caps"),
    [((0.5000001, 0.4999999), (50, 50)), ((1.0, 1.0, 1.0), (34, 33, 33)), ((0.7, 0.2, 0.1), (70, 20, 10))],
)
def test_proportional_caps_add_up_to_a_hundred(loads: tuple[float, ...], caps: tuple[int, ...]) -> None:
    clients = [mps.Client(n, f"t{n}", load, None, None) for n, load in enumerate(loads)]
    (found,) = (one for one in mps.provisions(clients, 108, 8) if one.strategy == "proportional")
    assert tuple(found.percentages.values()) == caps


def test_a_cap_of_a_command_line_is_removed_there_and_one_of_the_environment_in_the_shell() -> None:
    line, shell = (mps.Client(n, f"t{n}", None, None, None, 30.0, on_command_line=n == 0) for n in (0, 1))
    assert mps.settings(None, [line], running=True)[0].startswith("# remove CUDA_MPS_ACTIVE_THREAD_PERCENTAGE from the")
    assert not any(one.startswith("unset") for one in mps.settings(None, [line], running=True))
    assert mps.settings(None, [shell], running=True)[0].startswith("unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE ")
    both = mps.settings(None, [line, shell], running=True)
    assert [one.split()[0] for one in both[:2]] == ["#", "unset"]
    back = mps.undo_caps([line, shell], capped=True, of_daemon=False).split("\n")
    assert back[0] == "# write CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 into the command that starts t0"
    assert back[1].startswith("export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 ")


@pytest.mark.parametrize(
    "mode", [Mode.MPS, Mode.MPS_PARTITIONED, Mode.MPS_STATIC_PARTITION, Mode.MPS_TIME_SLICING, Mode.TIME_SLICING]
)
def test_the_undo_takes_back_every_variable_that_the_commands_set(mode: Mode) -> None:
    """Of a client with known memory use MPS advice sets a limit as well."""
    option = Option("MPS", Mode.MPS, SharingConfig("mps", (108,), (Assignment(0), Assignment(1))), ())
    clients = tuple(mps.Client(n, f"t{n}", None, None, 2**30, 30.0, on_command_line=n == 0) for n in (0, 1))
    commands, undo = option_action._commands(option, Options(0, clients=clients), mode, kube=False)
    given = set(re.findall(r"CUDA_MPS_[A-Z_]+(?==)", "\n".join(commands)))
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in given
    assert "CUDA_MPS_*" in undo or all(variable in undo for variable in given)


def test_bounds_say_how_much_they_allow_for(fixtures: Path) -> None:
    """Kernels run side by side under MPS, not in instances and not in time slices: only there contention is allowed for."""
    (advice,) = load(fixtures / "lost-records.sqlite").advise()
    by_name = {option.name: option for option in advice.options.options}
    mps_, mig_ = by_name["MPS"], by_name["MIG"]
    assert mps_.contention is not None and mig_.contention is None and by_name["time-slicing"].contention is None
    for one in advice.actions:
        if one.expected is not None:
            option = mig_ if "MIG instance" in one.action else mps_
            # Whose time, and how it is known.
            assumed = "assumed: 3 % more time than their share of the SMs gives (30 % less to 12 % more)."
            assert (assumed in one.why) == (option is mps_)
            assert option.margin >= (advice.options.check.size if advice.options.check else 0)
    assert sum(one.expected is not None for one in advice.actions) >= 2


def test_the_figures_of_one_forecast_are_told_apart(hardware: Path) -> None:
    """What bounds allow for holds the error of the replay; who is slowed most is said of the mode that is forecast."""
    (advice,) = load(hardware / "slices-A-B.sqlite").advise()
    assert advice.options.check is not None
    # What a simulation that shares no code with the replay missed of each mode: half widths of 1.3 % and 4 %.
    for action, kind in (("MPS", 1.3), ("MIG instance", 4.0)):
        (one,) = (one for one in advice.actions if action in one.action)
        (option,) = (option for option in advice.options.options if option.name == action.partition(" ")[0])
        assert 100 * option.margin == pytest.approx(100 * advice.options.check.size + kind)
        assert one.expected is not None
        ratio = re.search(r"kit \(pid 862\) [\d.]+x -> ([\d.]+x)", one.expected)
        assert ratio is not None
        # Now the other tenant is slowed most.
        first = f"Look at kit (pid 862) first: it is forecast to be slowed most ({ratio[1]})"
        assert first in (one.check_after or "")


def test_the_solo_runs_that_were_checked_are_named(hardware: Path) -> None:
    """Of A its program counted units, beside B in time slices and alone (`units.csv`); of B no solo run is given."""
    rows = pl.read_csv(hardware / "units.csv").filter(pl.col("application") == "A")
    mean_us = dict(
        rows.filter(pl.col("case").is_in(["cupti-slices-A-B", "cupti-alone-A"])).select("case", "mean_us").iter_rows()
    )
    capture, solo = hardware / "slices-A-B.sqlite", hardware / "alone-A.sqlite"
    said = " ".join(run("advise", capture, "--baseline", solo).stdout.split())
    found = re.search(r"Slowdown of kit \(pid 861\): [\d.]+x by the replay, ([\d.]+)x against its solo recording", said)
    assert found is not None
    assert float(found[1]) == pytest.approx(mean_us["cupti-slices-A-B"] / mean_us["cupti-alone-A"], rel=0.02)
    assert "No solo recording checks kit (pid 862)." in said
    assert "No solo recording checks the forecast." not in said
    assert "No solo recording checks the forecast." in " ".join(run("advise", capture).stdout.split())


def test_instances_have_the_memory_and_tenants_are_named(hardware: Path) -> None:
    """Memory use is in no table of the export; 3g.40gb and 4g.40gb have four eighths of 80 GB (MIG user guide)."""
    (advice,) = pyanalyze.load(hardware / "slices-A-B.sqlite").advise()
    (instances,) = (one for one in advice.actions if "MIG instance" in one.action)
    said = "Check with nvidia-smi that it fits: kit (pid 861) into 38.0 GiB and kit (pid 862) into 38.0 GiB."
    assert f"Memory use is not known. {said}" in instances.why


def test_contention_that_was_not_there_is_no_plus_zero(fixtures: Path) -> None:
    """By its truth nobody was slowed (ANTT 1.0), at 2 % of DRAM bandwidth: what other caps may add, 8 %, stays."""
    (advice,) = load(fixtures / "mps.sqlite").advise()
    said = "Kernels beside another tenant's took no more time (inferred; bounds 1 % less to 8 % more)"
    assert said in advice.actions[0].why
    assert "+0 %" not in advice.actions[0].why


def test_an_identification_says_why_it_is_first(fixtures: Path) -> None:
    first, *others = load(fixtures / "demo-time-slicing.sqlite").advise()[0].actions
    assert first.action == "Identify process 41377 (app_c) and record it as well"
    assert "Its kernels were not traced, so no change of sharing can be forecast" in first.why
    assert "while it runs" in first.commands[0]
    assert not any(one.action.startswith("Identify") for one in others)


def test_a_server_that_the_daemon_lists_is_not_to_be_identified(fixtures: Path, tmp_path: Path) -> None:
    """Nothing but the answer of the daemon names process 1289451: it is resident for its clients, and no stranger."""
    capture = tmp_path / "mps.sqlite"
    shutil.copy(fixtures / "mps.sqlite", capture)
    capture.chmod(0o644)
    with closing(sqlite3.connect(capture)) as database, database:
        database.execute("DELETE FROM PROCESSES WHERE pid = 1289451")
    listing = Path(__file__).parent / "golden" / "inputs" / "mps-control.txt"
    (unknown,) = pyanalyze.load(capture).advise()
    assert unknown.actions[0].action.startswith("Identify process 1289451")
    # The others are MPS clients: as root they would not find their daemon.
    assert "--run-as=USER" in unknown.actions[0].commands[-1]
    (advice,) = pyanalyze.load(capture, context=[listing]).advise()
    assert advice.options.options
    assert not any(one.action.startswith("Identify") for one in advice.actions)


@pytest.mark.parametrize("named", [True, False])
def test_a_process_without_a_name_is_not_said_to_have_one(*, named: bool) -> None:
    mine = Resident(0, "app", 7, traced=True, gpu_time_share=0.6, inflation=None)
    other = Resident(1, "pid 8", 8, traced=False, gpu_time_share=0.4, inflation=None, named=named)
    (one,) = unknown_tenants([mine, other])
    assert ("The capture names only its program" in one.why) is named
    assert ("The capture does not name its program" in one.why) is not named


def test_the_undo_of_caps_runs_in_a_shell_and_gives_the_daemon_what_it_had(tmp_path: Path) -> None:
    """A stand-in for the daemon keeps the percentages that it is told: a default of 80, a server 7 with 60."""
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(
        """#!/bin/sh
read verb first second
case $verb in
get_server_list) echo 7 ;;
get_default_active_thread_percentage) cat "$STATE/default" ;;
set_default_active_thread_percentage) echo "$first" > "$STATE/default" ;;
get_active_thread_percentage) cat "$STATE/server-$first" ;;
set_active_thread_percentage) echo "$second" > "$STATE/server-$first" ;;
esac
""",
        encoding="utf-8",
    )
    control.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    (state / "default").write_text("80.0\n", encoding="utf-8")
    (state / "server-7").write_text("60.0\n", encoding="utf-8")

    def state_after(script: str) -> str:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STATE": str(state)}
        done = subprocess.run(
            ["sh", "-eu", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return " ".join((state / name).read_text(encoding="utf-8").strip() for name in ("default", "server-7"))

    clients = [mps.Client(n, f"t{n}", None, None, None, 30.0 + n) for n in (0, 1)]
    assert state_after("\n".join(mps.settings(None, clients, running=True, noted=True))) == "100 100"
    assert state_after(mps.undo_caps(clients, capped=True, of_daemon=True)) == "80.0 60.0"
    # Of two ways to give all clients one percentage, a block that is pasted whole goes one.
    (equal, *_) = mps.provisions(clients, 108, 8)
    lines = mps.settings(equal, clients, running=True)
    assert state_after("\n".join(lines)) == "80.0 60.0"
    assert [line.split("   # ")[0] for line in lines if not line.startswith("#")] == [
        "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"
    ]
    back = mps.undo_caps(clients, capped=False, of_daemon=True, in_place=True)
    assert state_after(back) == "80.0 60.0"
    # The other way, uncommented, is taken back by its own line.
    assert state_after("\n".join(line.partition(": ")[2] for line in lines if line.startswith("#"))) == "50 50"
    assert state_after(back.partition(": ")[2]) == "100 100"


@pytest.mark.parametrize("scenario", ["time-slicing-pair", "time-slicing-short-kernels", "mps"])
def test_alone_is_what_the_simulation_took_alone(scenario: str) -> None:
    session, truth = truth_of(scenario)
    by_pid = {t["pid"]: t for t in truth["tenants"] if t["slowdown"]}
    tenants = dict(session.tenants.filter("traced").select("tenant_id", "pid").iter_rows())
    sms = session.devices["sm_count"][0]
    rows = forecast(session.tables, 0, [alone(sms, tenant) for tenant in tenants], time_sliced=time_sliced(session))
    for tenant, pid in tenants.items():
        (found,) = rows.filter(pl.col("sharing_config").cast(pl.String) == f"alone {tenant}")["elapsed_ns"]
        elapsed = by_pid[pid]["slowdown"]["elapsed"]
        assert found == pytest.approx(elapsed["solo_ns"], rel=0.02)
        recorded = rows.filter(pl.col("sharing_config").cast(pl.String) == "recorded", pl.col("tenant_id") == tenant)
        assert recorded["elapsed_ns"].to_list() == [pytest.approx(elapsed["shared_ns"], rel=0.005)]
        assert recorded["basis"].to_list() == ["observed"]


def replayed(session: pyanalyze.Session, most_operations: int) -> pl.DataFrame:
    """Forecasts of every tenant solo, beside what was recorded of it."""
    tenants = session.tenants.filter("traced")["tenant_id"].to_list()
    sms = session.devices["sm_count"][0]
    configs = [alone(sms, tenant) for tenant in tenants]
    rows = forecast(session.tables, 0, configs, time_sliced=time_sliced(session), most_operations=most_operations)
    recorded = rows.filter(pl.col("basis").cast(pl.String) == "observed")
    modelled = rows.filter(pl.col("basis").cast(pl.String) == "modelled")
    return modelled.join(recorded.select("tenant_id", "elapsed_ns", "operations"), on="tenant_id", suffix="_recorded")


@pytest.mark.parametrize(("scenario", "seed"), [("streams-launch-bound", 1), ("streams-launch-bound", 501)])
def test_windows_stand_for_a_recording_of_too_many_operations(scenario: str, seed: int) -> None:
    session, truth = truth_of(scenario, seed)
    most = session.kernels.height - 100
    solo = {t["pid"]: t["slowdown"]["elapsed"]["solo_ns"] for t in truth["tenants"] if t["slowdown"]}
    pids = dict(session.tenants.filter("traced").select("tenant_id", "pid").iter_rows())
    rows = replayed(session, most)
    assert rows["operations_recorded"].max() > most  # type: ignore[operator]
    for row in rows.iter_rows(named=True):
        assert row["operations"] <= 0.3 * most
        # Beyond what the windows say of themselves the model has its own error.
        assert row["elapsed_ns"] == pytest.approx(solo[pids[row["tenant_id"]]], rel=row["sampling_error"] + 0.005)


def test_windows_stand_for_a_real_recording(corpus: Path) -> None:
    session = load(corpus / "exports" / "balinski" / "report19.sqlite", tables=WITH_CALLS)
    (row,) = replayed(session, 6_000).iter_rows(named=True)
    assert row["operations"] <= 1_600 < row["operations_recorded"]
    # It ran solo: it takes as long as it took, but for what the replay of all of it misses too.
    assert row["elapsed_ns"] == pytest.approx(row["elapsed_ns_recorded"], rel=row["sampling_error"] + 0.03)


def test_advice_from_windows_says_so_and_has_wider_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = truth_of("mps", anew=True)[0].advise()
    replay = options_module.forecast

    def in_part(*arguments: Any, **named: Any) -> pl.DataFrame:
        rows: pl.DataFrame = replay(*arguments, **named)
        modelled = pl.col("basis").cast(pl.String) == "modelled"
        return rows.with_columns(
            sampling_error=pl.when(modelled).then(0.1),
            operations=pl.when(modelled).then(pl.col("operations") // 2).otherwise("operations"),
        )

    monkeypatch.setattr(options_module, "forecast", in_part)
    (part,) = truth_of("mps", anew=True)[0].advise()
    assert whole.options.replayed == 1.0
    assert part.options.replayed == pytest.approx(0.5)
    for before, now in zip(whole.options.options, part.options.options, strict=True):
        assert now.name == before.name
        assert now.margin == pytest.approx(before.margin + 0.1)
    assert not any("of the operations were replayed" in one.why for one in whole.actions)
    assert any("Only 50.0 % of the operations were replayed." in one.why for one in part.actions)


def test_all_is_replayed_of_few_operations_and_of_programs_with_phases() -> None:
    # Each of the two works faster before the other one begins, and after it has ended.
    phases = truth_of("time-slicing-short-kernels")[0]
    for rows in (replayed(phases, 3_900), replayed(truth_of("mps")[0], 1_400)):
        assert rows["operations"].to_list() == rows["operations_recorded"].to_list()
        assert rows["sampling_error"].to_list() == [None, None]


def test_turns_again_take_as_long_as_recorded() -> None:
    found = options_of(truth_of("time-slicing-pair")[0])
    assert found.check is not None
    assert found.check.size < 0.04
    assert found.current is not None
    assert found.current.name == "time-slicing"
    for modelled in found.current.forecasts:
        assert modelled.low < modelled.slowdown < modelled.high
        assert modelled.latency is not None
        assert modelled.p99_ns is not None


def missing_the_record(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """Let the replay of the recorded configuration, and nothing else, miss the record by a part more."""
    replayed = options_module.forecast

    def worse(*arguments: Any, **named: Any) -> pl.DataFrame:
        rows: pl.DataFrame = replayed(*arguments, **named)
        check = pl.col("sharing_config").cast(pl.String).str.starts_with(options_module.CHECK)
        recorded = rows.filter(pl.col("sharing_config").cast(pl.String) == "recorded").select(
            "tenant_id", pl.col("elapsed_ns").alias("was_ns")
        )
        rows = rows.join(recorded, on="tenant_id", how="left")
        missed = (pl.col("was_ns") * (1 + by)).cast(pl.Int64)
        return rows.with_columns(pl.when(check).then(missed).otherwise("elapsed_ns").alias("elapsed_ns")).drop("was_ns")

    monkeypatch.setattr(options_module, "forecast", worse)


def test_what_the_self_check_misses_widens_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    session = truth_of("time-slicing-pair", anew=True)[0]
    missing_the_record(monkeypatch, 0.0)
    exact = options_of(session)
    missing_the_record(monkeypatch, 0.1)
    missed = options_of(session)
    assert exact.check is not None
    assert missed.check is not None
    assert exact.check.size == pytest.approx(0, abs=1e-6)
    assert missed.check.relative == pytest.approx(0.1, abs=1e-6)
    for now, before in zip(missed.options, exact.options, strict=True):
        kind = "instances" if now.placement else "together" if now.config.together else "time-sliced"
        margin = options_module.MARGIN[kind]
        for wide, narrow in zip(now.forecasts, before.forecasts, strict=True):
            assert wide.slowdown == narrow.slowdown
            # Nobody is faster than solo, however wide.
            least = min(wide.slowdown, 1 - NOISE_FLOOR)
            assert wide.low >= least
            assert wide.low == least or wide.low / narrow.low <= (1 - margin - 0.1) / (1 - margin) + 0.003
            assert wide.high > narrow.high * 1.05


def test_a_record_that_the_replay_misses_by_far_forbids_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    missing_the_record(monkeypatch, 0.4)
    session = truth_of("time-slicing-pair", anew=True)[0]
    found = options_of(session)
    assert (found.options, found.current, found.recommended) == ((), None, None)
    assert found.why_not in {
        f"in the replay of the recorded configuration the elapsed time of {name} is 40.0 % too long (limit: 25 %)"
        for name in session.tenants["name"]
    }


def test_without_api_calls_bounds_are_wider(tmp_path: Path) -> None:
    path = generate.built("time-slicing-pair", 1) / "time-slicing-pair.sqlite"
    bare = tmp_path / "bare.sqlite"
    shutil.copyfile(path, bare)
    with closing(sqlite3.connect(bare)) as db, db:
        db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    wide = options_of(pyanalyze.load(bare)).options[0]
    narrow = options_of(load(path)).options[0]
    assert wide.name == narrow.name
    for a, b in zip(wide.forecasts, narrow.forecasts, strict=True):
        assert a.high - a.low > b.high - b.low
        assert a.latency is None
        assert a.waits is None


@pytest.mark.parametrize(
    ("latency_ns", "queue_ns", "absent_ns", "expected"),
    [
        (300, 100, 60, (0.5, 0.3)),
        # It waits for longer than is added: its kernels wait less for each other than solo.
        (150, 60, 40, (0.6, 0.4)),
        (101, 1, 0, None),
        (90, 0, 0, None),
    ],
)
def test_waits_are_parts_of_what_is_added(
    latency_ns: int, queue_ns: int, absent_ns: int, expected: tuple[float, float] | None
) -> None:
    row = {"latency_ns": latency_ns, "queue_other_tenant_ns": queue_ns, "not_resident_ns": absent_ns}
    found = options_module._waits([row, row], 100)
    assert (found and (found.queue_other, found.not_resident)) == expected


def test_requirements_leave_modes_out() -> None:
    session, _ = truth_of("time-slicing-pair", 3)
    (advice,) = session.advise(require=("bandwidth-qos",))
    assert advice.options.recommended is not None
    assert advice.options.recommended.mode == "mig"
    assert {option.mode for option, _ in advice.options.refused} == {"time-slicing", "mps", "mps-partitioned"}
    commands = advice.actions[0].commands
    assert any(line.startswith("nvidia-smi mig -i 0 -cgi ") for line in commands)
    assert advice.actions[0].undo is not None
    left_out = "Configurations without bandwidth-qos were left out"
    assert any(action.action.startswith(left_out) for action in advice.actions)
    with pytest.raises(UsageError, match="magic"):
        session.advise(require=("magic",))  # type: ignore[arg-type]


def test_a_gpu_without_mig_cannot_promise_bandwidth() -> None:
    session, truth = truth_of("time-slicing-pair", 1)
    assert "A100" not in truth["devices"][0]["model"]
    assert not [option for option in options_of(session).options if option.mode == "mig"]
    (advice,) = session.advise(require=("bandwidth-qos",))
    assert any(action.action.endswith("of this GPU is known to provide bandwidth-qos") for action in advice.actions)


def test_untraced_work_is_said_and_nothing_is_compared(fixtures: Path) -> None:
    (advice,) = load(fixtures / "demo-time-slicing.sqlite").advise()
    assert advice.options == Options(0, why_not=advice.options.why_not)
    assert "was not traced" in (advice.options.why_not or "")


@pytest.mark.parametrize(
    ("scenario", "seed", "kind"),
    [
        ("exclusive-throttled", 1, "throttled"),
        ("streams-default", 1, "default-stream"),
        ("time-slicing-pair", 1, None),
        ("exclusive", 1, None),
    ],
)
def test_it_is_not_the_neighbour(scenario: str, seed: int, kind: str | None) -> None:
    folder = generate.built(scenario, seed)
    samples = list(folder.glob("*.csv"))
    session = pyanalyze.load(folder / f"{scenario}.sqlite", samples=samples)
    assert [cause.kind for cause in host_side.causes(session.tables, 0, session.analysis.time_splits, {})] == (
        [kind] if kind else []
    )


def test_the_time_that_the_default_stream_costs() -> None:
    """Three streams wait for each other: the default one, the least busy, could run meanwhile."""
    session = load(generate.built("streams-default", 1) / "streams-default.sqlite")
    (advice,) = session.advise()
    # With launch calls the time is known, and said once.
    (item,) = (one for one in advice.actions if "default stream" in one.action)
    with closing(sqlite3.connect(session.paths[0])) as database:
        ((busy_ns,),) = database.execute(
            "SELECT SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE streamId = 7"
        ).fetchall()
    assert item.at_stake_ns == busy_ns


def test_tenants_of_one_name_and_one_pid_are_two_tenants(fixtures: Path) -> None:
    """Both pods run python3 as pid 1: the host's pids of the books tell them apart, and each gets an instance."""
    folder = fixtures / "containers-same-pid"
    truth = json.loads((fixtures / "containers-same-pid.truth.json").read_text(encoding="utf-8"))
    pids = [tenant["host_pid"] for tenant in truth["tenants"]]
    names = {f"python3 (host pid {pid})" for pid in pids}
    advice = load(folder).advise(require=["fault-isolation"])[0]
    (option,) = (option for option in advice.options.options if option.placement is not None)
    assert option.placement is not None
    assert set(option.placement.placed) == names
    assert {forecast.name for forecast in option.forecasts} == names
    # Two tenants on 7 compute slices: nothing forbids 4 and 3, and no pair of instances has more.
    assert sum(one.profile.slices for one in option.placement.placed.values()) == 7
    assert all(name in advice.actions[0].action for name in names)
    # A name given to one of them changes words only.
    named = pyanalyze.load(folder, tenants={"a": pids[0]}).advise(require=["fault-isolation"])[0]
    plan = next(one.placement for one in named.options.options if one.placement is not None)
    assert sorted(one.profile.name for one in plan.placed.values()) == ["3g.20gb", "4g.20gb"]
    assert plan.commands() == option.placement.commands()
    details = load(folder).report().devices[0].sharing.details
    (time_sliced,) = (d.detail for d in details if (d.topic, d.name) == ("time-slicing", "tenants"))
    assert all(name in time_sliced for name in names)


def test_caps_that_were_set_are_the_current_way(corpus: Path) -> None:
    """Both clients were capped at 50 %, which is what equal caps are: that row is the current one, and stays advised."""
    session = load(corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite")
    report = session.report().devices[0]
    assert report.advice[0].action.startswith(
        "Keep MPS with equal caps for now: no other configuration is forecast clearly faster on average"
    )
    assert [(option.name, option.recommended) for option in report.options or () if option.current] == [
        ("MPS, equal caps", True)
    ]
    # Nothing but settings says so.
    assert (report.sharing.mode, report.sharing.basis, report.sharing.agrees) == ("mps-partitioned", "configured", None)


def test_caps_that_no_strategy_has_are_a_way_of_their_own() -> None:
    """31 and 33 % of 142 SMs, in whole TPCs: 44 and 46 SMs; nothing says which percentage is whose."""
    report = load(generate.built("mps-capped") / "mps-capped.sqlite").report().devices[0]
    (current,) = (option for option in report.options or () if option.current)
    assert (current.name, current.mode) == ("MPS, caps as recorded", "mps-partitioned")
    # Waves of 749 blocks of 256 threads with 64 registers, 4 on an SM: ceil(749 / 176) = 5 on 44 SMs, and 2 on 142.
    caps = {one.detail for one in report.sharing.details if one.name == "cap"}
    assert caps == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=31 for some clients, at most 44 of 142 SMs",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33 for some clients, at most 46 of 142 SMs",
    }
    assert {one.tenant_id: one.slowdown for one in current.tenants}[0] == pytest.approx(5 / 2, rel=0.05)


def test_layouts_are_checked() -> None:
    session, _ = truth_of("time-slicing-pair")
    with pytest.raises(UsageError, match="names of their own"):
        forecast(session.tables, 0, [alone(10, 0), alone(10, 0)], time_sliced=time_sliced(session))
    with pytest.raises(ValueError, match="slice of 1000 ns or more"):
        forecast(session.tables, 0, [time_slicing(10, [0, 1], slice_ns=1)], time_sliced=time_sliced(session))
    with pytest.raises(ValueError, match="which has no SMs"):
        forecast(
            session.tables,
            0,
            [SharingConfig("x", (10,), (Assignment(0, instance=3),))],
            time_sliced=time_sliced(session),
        )
    assert side_by_side(10, [0, 1], {0: 4}).assignments == (Assignment(0, sms=4), Assignment(1))


def test_the_verb_prints_and_speaks_json() -> None:
    path = str(generate.built("time-slicing-pair", 3) / "time-slicing-pair.sqlite")
    shown = run("advise", path, "--latency", "3", "--kubernetes")
    assert shown.returncode == 0, shown.stderr
    assert "Undo:" in shown.stdout
    assert "sharing: {mps:" in shown.stdout
    assert "for waits below 3.000 ms" in shown.stdout
    (device,) = json.loads(run("advise", path, "-f", "json", "--require", "bandwidth-qos,memory-protection").stdout)[
        "devices"
    ]
    assert [option["mode"] for option in device["options"] if option["recommended"]] == ["mig"]
    wrong = run("advise", path, "--require", "magic")
    assert wrong.returncode == 2
    assert "magic: not among fault-isolation" in wrong.stderr


BANDWIDTH = """
description = "Two time-sliced tenants that each want most of the DRAM bandwidth, with GPU metrics."
family = "test"
duration_ms = 300
[[board]]
model = "NVIDIA A100-SXM4-40GB"
mode = "time-slicing"
slicing = { slice_us = 2100 }
[kernel]
a = { us = 400, fill = 0.4, block = 256, tail = "none", dram = 1.75 }
b = { us = 500, fill = 0.4, block = 256, tail = "none", dram = 1.25 }
[[tenant]]
name = "a"
work = [{ from_ms = 15, until_ms = 250, ahead = 2, steps = ["13 a x2"] }]
[[tenant]]
name = "b"
work = [{ from_ms = 15, until_ms = 250, ahead = 2, steps = ["13 b x2"] }]
[[capture]]
name = "bandwidth"
switches = true
metrics_hz = 10000
"""


def test_counters_tell_what_bandwidth_tenants_want(tmp_path: Path) -> None:
    (tmp_path / "bandwidth.toml").write_text(BANDWIDTH)
    generate.generate([tmp_path / "bandwidth.toml"], tmp_path, 1)
    session = pyanalyze.load(tmp_path / "bandwidth.sqlite", tables=WITH_CALLS)
    names = dict(session.tenants.filter("traced").select("tenant_id", "name").iter_rows())
    wanted = demands.bandwidth(session.tables, 0, list(names), time_sliced=True)
    by_name = {names[tenant]: part for tenant, part in wanted.items()}
    # 0.4 of the blocks that fill the device, times what those would want: 0.7 and 0.5 of the bandwidth.
    assert by_name["a"] == pytest.approx(0.70, abs=0.05)
    assert by_name["b"] == pytest.approx(0.50, abs=0.05)
    # Together they want 1.2: side by side the model lets them take about that long.
    mps = next(option for option in options_of(session).options if option.name == "MPS")
    assert all(1.1 < forecast.slowdown < 1.35 for forecast in mps.forecasts)


def test_a_report_forecasts_what_advise_does() -> None:
    """Whatever tables a session was loaded with: API calls are read when they are needed."""
    path = generate.built("running-example-time-slicing") / "running-example-time-slicing.sqlite"
    read_first = load(path, tables=WITH_CALLS).advise()[0]
    reported = load(path).report().devices[0]
    assert [a.expected for a in reported.advice] == [a.expected for a in read_first.actions]
    assert any("mean" in (a.expected or "") for a in reported.advice)


def predicted(tenant_id: int, slowdown: float, elapsed_ms: int = 100) -> Forecast:
    return Forecast(
        tenant_id=tenant_id,
        name=f"t{tenant_id}",
        slowdown=slowdown,
        low=slowdown,
        high=slowdown,
        latency=None,
        p99_ns=None,
        elapsed_ns=elapsed_ms * 1_000_000,
    )


def compared(
    *means: tuple[str, float],
    best: str,
    now: str,
    elapsed_ms: tuple[int, int] = (100, 100),
    first_goes_on: bool = False,
) -> Options:
    """Two tenants, ways to share with a mean slowdown each."""
    provision = mps.provisions([mps.Client(n, f"t{n}", None, None, None) for n in (0, 1)], 108, 8)[0]
    made = []
    for name, mean in means:
        config = time_slicing(108, [0, 1]) if name == "time-slicing" else side_by_side(108, [0, 1])
        first = predicted(0, mean, elapsed_ms[0]).model_copy(update={"goes_on": first_goes_on})
        both = first, predicted(1, mean, elapsed_ms[1])
        capped = name == "MPS, equal caps"
        mode: Any = "time-slicing" if name == "time-slicing" else "mps-partitioned" if capped else "mps"
        made.append(Option(name, mode, config, both, provision if capped else None))
    by_name = {option.name: option for option in made}
    return Options(0, tuple(made), by_name[now], by_name[best])


def test_the_least_mean_slowdown_is_said_of_the_least() -> None:
    two = ("MPS, equal caps", 1.61), ("MPS", 1.63), ("time-slicing", 3.0)
    (simpler,) = configuration.change_to_best(
        compared(*two, best="MPS", now="time-slicing"), Mode.TIME_SLICING, 1_000, kube=False
    )
    assert "within 3 % of the smallest of 3 configurations compared, and it is simpler" in simpler.why
    assert "it has the smallest" not in simpler.why
    (least,) = configuration.change_to_best(
        compared(*two, best="MPS, equal caps", now="time-slicing"), Mode.TIME_SLICING, 1_000, kube=False
    )
    assert "it has the smallest mean slowdown of 3 configurations compared" in least.why


def verdict_of(mode: Mode) -> Verdict:
    case = Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("t0", "t1"))
    return judge(case).model_copy(update={"mode": mode})


def with_p99(option: Option, *each_ms: float) -> Option:
    forecasts = [
        f.model_copy(update={"p99_ns": round(ms * 1e6)}) for f, ms in zip(option.forecasts, each_ms, strict=True)
    ]
    return replace(option, forecasts=tuple(forecasts))


@pytest.mark.parametrize(
    ("recorded_ms", "capped_ms", "names"),
    [
        # 10 ms now; the replay is within a quarter of 9 ms.
        (9.0, 5.0, ["t0"]),
        (9.0, 5.1, []),
        # 10 ms is more than a quarter above 7 ms: the replay says nothing of this tail.
        (7.0, 1.0, []),
    ],
)
def test_what_stays_for_its_elapsed_time_says_what_shortens_a_tail(
    recorded_ms: float, capped_ms: float, names: list[str]
) -> None:
    ways = compared(
        ("time-slicing", 1.10), ("MPS", 1.12), ("MPS, equal caps", 1.3), best="time-slicing", now="time-slicing"
    )
    now, mps_free, capped = ways.options
    made = with_p99(now, 10.0, 4.0), with_p99(mps_free, 9.0, 4.0), with_p99(capped, capped_ms, 30.0)
    ways = replace(
        ways,
        options=made,
        current=made[0],
        recommended=made[0],
        recorded_p99_ns={0: round(recorded_ms * 1e6), 1: 4_000_000},
    )
    stay = configuration.keep(ways, (), verdict_of(Mode.TIME_SLICING), kube=False)
    others = list(configuration.for_tail(ways, Mode.TIME_SLICING, kube=False))
    if not names:
        assert stay.action == "Keep time-slicing: no other configuration is forecast faster on average"
        assert stay.expected is not None
        assert stay.expected.endswith("; latency is not compared")
        assert not others
        return
    assert stay.action == (
        "Keep time-slicing: no other configuration is forecast faster on average. For the p99 of t0: MPS with "
        "equal caps (t0 takes 1.18 and t1 takes 1.18 times as long)"
    )
    (other,) = others
    assert other.action == "If the p99 latency of t0 matters more: run the tenants under MPS with equal caps of 50 %"
    assert "modelled p99 kernel latency t0 10.00 ms -> 5.000 ms (recorded 9.000 ms), t1 4.000 ms -> 30.00 ms" in str(
        other.expected
    )
    assert other.commands
    # What does not meet the requirements is none of those that could be taken.
    refused = replace(ways, refused=((made[2], ("fault-isolation",)),))
    assert configuration._shorter_tail(refused) is None


@pytest.mark.parametrize(
    ("now_ms", "other_ms", "said"),
    [
        # 5 % less is worth a word.
        (10.0, 9.4, ". P99 of t0: 10.00 ms now, 9.400 ms under MPS"),
        (10.0, 9.6, ". None is forecast to shorten the p99 of t0 by 5 %"),
        # 10 ms is more than a quarter above the 7 ms that were recorded.
        (7.0, 6.0, ". The latency of t0 is in no forecast"),
    ],
)
def test_what_stays_speaks_of_a_latency_that_no_other_action_is_about(
    now_ms: float, other_ms: float, said: str
) -> None:
    ways = compared(("time-slicing", 1.10), ("MPS", 1.12), best="time-slicing", now="time-slicing")
    now, other = with_p99(ways.options[0], 10.0, 4.0), with_p99(ways.options[1], other_ms, 4.0)
    recorded_ns = {0: round(now_ms * 1e6), 1: 4_000_000}
    ways = replace(ways, options=(now, other), current=now, recommended=now, recorded_p99_ns=recorded_ns)
    stay = configuration.keep(ways, (), verdict_of(Mode.TIME_SLICING), kube=False, waits=0)
    assert stay.action == f"Keep time-slicing: no other configuration is forecast faster on average{said}"
    silent = configuration.keep(ways, (), verdict_of(Mode.TIME_SLICING), kube=False)
    assert silent.action == "Keep time-slicing: no other configuration is forecast faster on average"


@pytest.mark.parametrize(("high", "certain"), [(1.99, True), (2.0, False), (2.4, False)])
def test_a_change_whose_bounds_include_what_is_now_is_a_trial(high: float, certain: bool) -> None:
    """The mean of 1.5 and 2 * high - 1.5 is the upper bound of the mean: below the 2.0 of now, or not."""
    ways = compared(("MPS", 1.5), ("time-slicing", 2.0), best="MPS", now="time-slicing")
    first, second = ways.options[0].forecasts
    wide = replace(ways.options[0], forecasts=(first, second.model_copy(update={"high": 2 * high - 1.5})))
    ways = replace(ways, options=(wide, ways.options[1]), recommended=wide)
    (change,) = configuration.change_to_best(ways, Mode.TIME_SLICING, 1_000, kube=False)
    assert change.action == ("Run the tenants under MPS" if certain else "Try MPS: a gain is likely")
    assert (change.check_after or "").startswith("record in that mode, then pyanalyze compare: units of work should")
    # A recording of a solo run is asked for only where there is none.
    assert ("--baseline" in change.commands[-1]) == (not certain)
    (known,) = configuration.change_to_best(replace(ways, solo_measured={0: 1.5}), Mode.TIME_SLICING, 1_000, kube=False)
    assert "--baseline" not in " ".join(known.commands)
    # What stays beside it is held against it by the same rule.
    stay = configuration.keep(replace(ways, recommended=ways.current), (), verdict_of(Mode.TIME_SLICING), kube=False)
    assert ("which is smaller is not certain" in (stay.bound or "")) == (not certain)


def test_what_is_kept_is_not_said_to_be_the_fastest_where_bounds_overlap(hardware: Path) -> None:
    """By the report's own table 1.57x of now lies in the bounds of the next one: nothing tells the two apart."""
    (device,) = load(hardware / "mps-A-B.sqlite").report().devices
    (keep,) = (one for one in device.advice if one.action.startswith("Keep MPS"))
    means = re.search(r"^([\d.]+)-([\d.]+)x now, ([\d.]+)-([\d.]+)x under", keep.bound or "")
    assert means is not None
    low, high, other_low, other_high = map(float, means.groups())
    assert max(low, other_low) < min(high, other_high)
    assert "no other configuration is forecast clearly faster on average" in keep.action
    assert "clearly faster on average. Expected: modelled" in " ".join(
        run("summary", hardware / "mps-A-B.sqlite").stdout.split()
    )


def test_what_gains_nobody_anything_is_no_action() -> None:
    """MIG at 1.91x and 3.36x where the tenants have 1.55x and 1.01x: a cost, which only isolation is worth."""
    placement = mig.place(mig.FAMILIES["A30"], [mig.Need(name, None, lambda sms: 28 / sms) for name in ("t0", "t1")])

    def instances(first: float, second: float) -> Option:
        config = SharingConfig("mig", (28, 28), (Assignment(0), Assignment(1, 1)))
        return Option("MIG", Mode.MIG, config, (predicted(0, first, 100), predicted(1, second, 100)), None, placement)

    ways = compared(("time-slicing", 1.24), ("MPS", 1.28), best="MPS", now="MPS")
    worse = replace(ways, options=(*ways.options, instances(1.91, 3.36)))
    assert list(configuration.stricter(worse, Mode.MPS, kube=False)) == []
    # (1.91 + 3.36) / 2
    said = "No tenant is forecast to gain 5 % or more under MIG (mean slowdown 2.63x). Use it only to isolate faults and bandwidth"
    assert said in configuration.keep(worse, (), verdict_of(Mode.MPS), kube=False).why
    # One tenant gains: 1.28 to 1.00.
    mixed = replace(ways, options=(*ways.options, instances(1.0, 3.36)))
    (offered,) = configuration.stricter(mixed, Mode.MPS, kube=False)
    # Against what stays, not against the best of the table: (1.00 + 3.36) / 2 / 1.28.
    assert "Its mean slowdown is 1.70 times that of MPS as it is" in offered.why
    assert offered.action.startswith(
        "Only if faults, memory or bandwidth must be isolated: give each tenant its own MIG"
    )
    # So it is where something else is advised: (1.00 + 3.36) / 2 / 1.28, not / 1.24.
    (offered,) = configuration.stricter(replace(mixed, recommended=mixed.options[0]), Mode.MPS, kube=False)
    assert "Its mean slowdown is 1.70 times that of MPS as it is" in offered.why
    assert "only to isolate" not in configuration.keep(mixed, (), verdict_of(Mode.MPS), kube=False).why


def elapsed(value: float, low: float | None, high: float | None, basis: Basis = "observed") -> Estimate:
    return Estimate(value=value, low=low, high=high, n=100, basis=basis)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        # The forecast of what was recorded is 2.5. A quarter above 1.42 is 1.78, a quarter above 2.1 is 2.63.
        (elapsed(1.4, 1.38, 1.42), "t1 was measured to be slowed 1.40x, and the replay of the recorded configuration"),
        (elapsed(2.1, 2.0, 2.1), None),
        # 3.2 less a quarter is 2.56, 3.1 is 2.48.
        (elapsed(3.2, 3.2, None, "inferred"), "t1 was slowed at least 3.20x, and the replay of the recorded"),
        (elapsed(3.1, 3.1, None, "inferred"), None),
        # Another replay measures nothing.
        (elapsed(1.4, 1.38, 1.42, "inferred"), None),
    ],
)
def test_a_forecast_that_contradicts_what_was_measured_is_none(measured: Estimate, said: str | None) -> None:
    ways = compared(("time-slicing", 2.5), ("MPS", 1.6), best="MPS", now="time-slicing")
    found = options_module.contradicted(ways, {1: measured})
    if said is None:
        assert found is ways
        return
    assert (found.options, found.current, found.recommended) == ((), None, None)
    assert found.why_not.startswith(said)
    # Against a solo recording it is the model that fails, or the recording that does not compare.
    wrong = "one of the two is wrong" if measured.from_below else "the replay is wrong, or the solo recording had other"
    assert f"configuration says 2.50x: {wrong}" in found.why_not
    assert found.contradicted == ("bound" if measured.from_below else "measured")


def test_what_ran_under_a_cap_takes_as_long_under_it_as_it_did(tmp_path: Path) -> None:
    """864 blocks of 256 threads, 8 to an SM: two waves of 0.5 ms on 54 SMs, one on all 108; the host waits for each."""
    kernels = [kernel(41, n * MS + 20 * US, (n + 1) * MS + 20 * US, gridX=864) for n in range(0, 400, 2)]
    calls = [
        one
        for n in range(200)
        for one in (
            call(41, 2 * n * MS, 2 * n * MS + 10 * US, n + 1),
            call(41, 2 * n * MS + 11 * US, (2 * n + 1) * MS + 30 * US, 1000 + n, "cudaDeviceSynchronize_v3020"),
        )
    ]
    session = pyanalyze.load(write(tmp_path / "a.sqlite", kernels=kernels, calls=calls))
    (tenant,) = session.tenants["tenant_id"]
    capped = SharingConfig("capped", (108,), (Assignment(tenant, sms=54),))
    rows = forecast(session.tables, 0, [capped, alone(108, tenant)], recorded=capped, time_sliced=False)
    took = {row["sharing_config"]: row["elapsed_ns"] for row in rows.to_dicts()}
    assert took["capped"] == pytest.approx(took["recorded"], rel=0.001)
    # Each of 200 kernels is shorter by one wave.
    assert took["recorded"] - took[f"alone {tenant}"] == pytest.approx(200 * MS // 2, rel=0.02)


def test_advice_names_the_figures_that_contradict_each_other_instead_of_a_forecast() -> None:
    session = load(generate.ROOT / "fixtures" / "captures" / "lost-records.sqlite")
    analysis = session.analysis
    (plain,) = session.advise()
    assert any(action.expected and action.exclusive for action in plain.actions)
    (found,) = analysis.interference
    slowdown = found.tenants[0].slowdown.model_copy(update={"elapsed": elapsed(9.0, 8.9, 9.1)})
    first = replace(found.tenants[0], slowdown=slowdown)
    measured = replace(found, tenants=(first, *found.tenants[1:]))
    gated = advise_device(
        analysis.tables, analysis.verdicts[0], analysis.time_splits, {}, {}, analysis.listed, lambda _: measured
    )
    assert not gated.options.options
    assert not any(action.expected for action in gated.actions if action.exclusive)
    said = f"{first.name} was measured to be slowed 9.00x, and the replay of the recorded configuration says"
    (tried,) = (action for action in gated.actions if said in action.why)
    # The tenant has its solo recording: another one is not asked for.
    assert tried.action.startswith("Try another sharing configuration and compare")
    assert not any("solo" in action.action for action in gated.actions)


def test_a_better_row_of_the_table_is_named_where_nothing_is_changed() -> None:
    better = compared(("time-slicing", 1.24), ("MPS", 1.28), best="MPS", now="MPS")
    stay = configuration.keep(better, (), verdict_of(Mode.MPS), kube=False)
    assert stay.action == (
        "Keep MPS: time-slicing, the best other one, is forecast to gain less than 5 % of elapsed time"
    )
    assert (
        stay.expected == "modelled mean elapsed slowdown 1.28x now, 1.24x under time-slicing; latency is not compared"
    )
    assert "The model cannot tell a difference below 5 %" in stay.why
    least = compared(("MPS", 1.28), ("time-slicing", 1.4), best="MPS", now="MPS")
    assert configuration.keep(least, (), verdict_of(Mode.MPS), kube=False).action.endswith(
        "no other configuration is forecast faster on average"
    )
    # The replay of one operation speaks for that one; nothing but a solo recording checks it.
    few = configuration.keep(least, (), verdict_of(Mode.MPS), kube=False, fewest=1)
    assert few.action.startswith("Keep MPS for now: ")
    assert few.action.endswith("This is not certain: a tenant ran only 1 operation")
    solo = replace(least, solo_measured={0: 1.3})
    assert configuration.keep(solo, (), verdict_of(Mode.MPS), kube=False, fewest=1).action.startswith("Keep MPS: ")
    # What does not meet the requirements is none of those that could be taken.
    refused = replace(better, refused=((better.options[0], ("fault-isolation",)),))
    stay = configuration.keep(refused, ("fault-isolation",), verdict_of(Mode.MPS), kube=False)
    assert stay.action.endswith("no other configuration that meets the requirements is forecast faster on average")


def test_a_modelled_p99_stands_behind_the_modelled_one_of_now() -> None:
    """Beside a recorded percentile a modelled one of another run says nothing."""
    ways = compared(("MPS", 1.5), ("time-slicing", 3.0), best="MPS", now="time-slicing")
    later, now = (
        replace(one, forecasts=tuple(f.model_copy(update={"p99_ns": ns}) for f in one.forecasts))
        for one, ns in zip(ways.options, (3_016_362, 3_664_282), strict=True)
    )
    ways = replace(ways, options=(later, now), current=now, recommended=later)
    (change,) = configuration.change_to_best(ways, Mode.TIME_SLICING, 1_000, kube=False)
    each = ", ".join(f"{f.name} 3.664 ms -> 3.016 ms" for f in later.forecasts)
    assert f"; modelled p99 kernel latency {each}" in (change.expected or "")
    stay = configuration.keep(replace(ways, recommended=now), (), verdict_of(Mode.TIME_SLICING), kube=False)
    assert "p99" not in (stay.expected or "")
    # The model is 2 % too low for the first tenant, and 30 % too high for the second: of that one it says nothing.
    ways = replace(ways, recorded_p99_ns={0: 3_745_021, 1: 2_818_678})
    (change,) = configuration.change_to_best(ways, Mode.TIME_SLICING, 1_000, kube=False)
    assert "p99 kernel latency t0 3.664 ms -> 3.016 ms (recorded 3.745 ms)" in (change.expected or "")
    assert (change.expected or "").count("3.664 ms -> ") == 1


def test_no_p99_is_forecast_where_the_replay_misses_the_recorded_one(hardware: Path) -> None:
    """By SQL kit (pid 1251) has a p99 of 4.853 ms, where the replay of time-slicing has 6.174 ms: 27 % more."""
    path = hardware.parent / "h200" / "slices-paced-B.sqlite"
    latency = (
        'SELECT k."end" - r.start FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON '
        "r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24 "
        "WHERE k.globalPid >> 24 & 16777215 = 1251 ORDER BY 1"
    )
    with closing(sqlite3.connect(path)) as db:
        lengths = [ns for (ns,) in db.execute(latency)]
    assert lengths[-(-99 * len(lengths) // 100) - 1] == 4_853_358
    (advice,) = load(path).advise()
    assert advice.options.current is not None
    second = next(one for one in advice.options.current.forecasts if "1251" in one.name)
    assert advice.options.recorded_p99_ns[second.tenant_id] == 4_853_358
    assert second.p99_ns is not None and second.p99_ns > 1.25 * 4_853_358
    options = json.loads(run("advise", path, "--format", "json").stdout)["devices"][0]["options"]
    known = {one["tenant_id"]: one["p99_ns"] is not None for option in options for one in option["tenants"]}
    assert known[second.tenant_id] is False and sum(known.values()) == len(known) - 1
    told = advice.actions[0].expected or ""
    assert "p99 kernel latency kit (pid 1250) 3" in told
    assert "no p99 for kit (pid 1251) (modelled" in told and "recorded 4.853 ms): the replay misses it" in told


def test_what_holds_for_this_much_work_says_so() -> None:
    """Whoever is done leaves the GPU to the others; one that the recording ended is replayed until they are done too."""
    two = ("MPS", 1.5), ("time-slicing", 3.0)
    for elapsed_ms, goes_on, said in (((60, 100), False, True), ((60, 100), True, False), ((80, 100), False, False)):
        ways = compared(*two, best="MPS", now="time-slicing", elapsed_ms=elapsed_ms, first_goes_on=goes_on)
        (action,) = configuration.change_to_best(ways, Mode.TIME_SLICING, 1_000, kube=False)
        assert ("longer runs may be slower" in (action.bound or "")) == said
    assert "t0 ends after 60.00 ms and t1 after 100.0 ms" in str(
        list(
            configuration.change_to_best(
                compared(*two, best="MPS", now="time-slicing", elapsed_ms=(60, 100)), Mode.MPS, 1_000, kube=False
            )
        )
    )


def test_caps_under_a_daemon_that_runs_are_set_and_undone_there() -> None:
    ways = compared(("MPS, equal caps", 1.5), ("MPS", 3.0), best="MPS, equal caps", now="MPS")
    (running,) = configuration.change_to_best(ways, Mode.MPS, 1_000, kube=False)
    assert not any("-control -d" in command for command in running.commands)
    # set_default is for servers to come; the one that runs has a command of its own (NVIDIA's MPS documentation).
    assert any("set_active_thread_percentage $server 50" in command for command in running.commands)
    assert "set_active_thread_percentage $server 100" in (running.undo or "")
    assert "quit" not in (running.undo or "")
    (fresh,) = configuration.change_to_best(ways, Mode.TIME_SLICING, 1_000, kube=False)
    assert fresh.commands[0].startswith("nvidia-cuda-mps-control -d")
    assert "quit" in (fresh.undo or "")


def test_commands_reach_the_daemon_that_the_capture_names(tmp_path: Path, hardware: Path) -> None:
    """The environment of the recorder has both directories: without them no command reaches that daemon."""
    path = hardware / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT value FROM META_DATA_CAPTURE WHERE value LIKE 'CUDA_MPS_%_DIRECTORY=%' ORDER BY value DESC"
        # The recorder quotes values with double quotation marks.
        pipe, logs = (value.replace('"', "") for (value,) in db.execute(query))
    assert pipe.startswith("CUDA_MPS_PIPE_DIRECTORY=/tmp/")
    (advice,) = load(path).advise(require=("bandwidth-qos",))
    first = advice.actions[0]
    assert first.commands[0].startswith(f"echo quit | {pipe} nvidia-cuda-mps-control ")
    assert f"; {pipe} {logs} nvidia-cuda-mps-control -d " in (first.undo or "")
    (gap,) = (one for one in load(path).classify()[0].missing if one.what == "mps_clients")
    assert gap.how.startswith(f"echo ps | {pipe} nvidia-cuda-mps-control > ")
    assert f"the logs in {logs.partition('=')[2]} do" in gap.how
    # In a shell the daemon gets them as one word each, whatever they hold.
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text('#!/bin/sh\necho "$CUDA_MPS_PIPE_DIRECTORY|$CUDA_MPS_LOG_DIRECTORY"\n', encoding="utf-8")
    control.chmod(0o755)
    for line, said in (
        (mps_daemon.Daemon("/tmp/a b;$(c)").control, "/tmp/a b;$(c)|"),
        (mps_daemon.Daemon("/tmp/a b;$(c)").quit, "/tmp/a b;$(c)|"),
        (mps_daemon.Daemon("/p", "/it's").start, "/p|/it's"),
        (mps_daemon.Daemon().start, "|"),
    ):
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{said}\n"


@pytest.mark.parametrize("tenants", [16, 60])
def test_instances_for_many_equal_tenants_are_found_at_once(tenants: int) -> None:
    """Seven instances of one slice, the rest without one; trying every set in turn takes hours for sixteen."""
    placement = mig.place(
        mig.FAMILIES["A100-40"], [mig.Need(f"t{n}", None, lambda sms: 108 / sms) for n in range(tenants)]
    )
    assert sorted(one.start for one in placement.placed.values()) == list(range(7))
    assert {one.profile.slices for one in placement.placed.values()} == {1}
    assert len(placement.unplaced) == tenants - 7


def test_mig_after_mps_stops_the_daemon_first() -> None:
    placement = mig.place(mig.FAMILIES["A30"], [mig.Need(name, None, lambda sms: 28 / sms) for name in "ab"])
    option = Option(
        "MIG", Mode.MIG, SharingConfig("mig", (28, 28), (Assignment(0), Assignment(1, 1))), (), None, placement
    )
    commands, undo = option_action._commands(option, Options(0), Mode.MPS, kube=False)
    assert commands[0].startswith("echo quit | nvidia-cuda-mps-control")
    assert "-mig 1" in commands[1]
    assert "-mig 0; nvidia-cuda-mps-control -d " in undo
    commands, undo = option_action._commands(option, Options(0), Mode.TIME_SLICING, kube=False)
    assert "mps" not in f"{commands} {undo}"


def test_kubernetes_is_advised_what_its_device_plugin_makes() -> None:
    session, _ = truth_of("running-example-time-slicing")
    advice = session.advise(kubernetes=True)[0]
    best = advice.options.recommended
    assert best is not None
    # replicas: 3 is a third of the SMs each: uncapped MPS, though its forecast is better, cannot be had so.
    assert best.name in ("time-slicing", "MPS, equal caps", "MIG")
    first = next(a for a in advice.actions if a.expected)
    assert advice.options.current is not None
    now = {f.tenant_id: f.slowdown for f in advice.options.current.forecasts}
    each = [f"{f.name} {now[f.tenant_id]:.2f}x -> {f.slowdown:.2f}x" for f in best.forecasts]
    assert all(said in (first.expected or "") for said in each)
    lines = kubernetes.mig(["3g.20gb", "3g.20gb"])
    order = [n for word in ("config.yaml: ", "create configmap", '"migManager"', "label node") for n, line in
             enumerate(lines) if word in line and not (word == "config.yaml: " and n)]  # fmt: skip
    assert order == sorted(order)
    # The label that takes it back names a config of the same file.
    assert "all-disabled: [{devices: all, mig-enabled: false}]" in lines[0]


def test_an_instance_is_not_the_device() -> None:
    session, _ = truth_of("mig-two-instances")
    for advice in session.advise():
        (own,) = [a for a in advice.actions if "MIG instance" in a.action]
        assert "not known" in own.action
        assert "--baseline" in own.why
        assert not any(a.action.startswith("Keep ") for a in advice.actions)
        assert not any(a.bound == "changing the sharing mode gains nothing" for a in advice.actions)


def test_a_slice_that_nobody_measured_is_no_reading() -> None:
    session, _ = truth_of("time-slicing-low-duty")
    seen = observed_slicing(session.tables, 0)
    assert seen is not None
    assert seen[0] is None
    actions = session.advise()[0].actions
    assert not any("a time slice executes" in a.why for a in actions)
    # Intervals ended with work left: shorter slices are worth a trial, of which no length and no gain is known.
    (trial,) = [a for a in actions if "timeslice" in str(a.commands)]
    assert (trial.expected, trial.bound) == (None, None)
    assert not re.search(r"\d ms", trial.why)
    (asked,) = [a for a in session.advise(latency_ns=3_000_000)[0].actions if "3.000 ms" in a.action]
    assert "not known" in asked.action
    assert asked.commands == []


@pytest.mark.parametrize("name", ["ada", "h200"])
def test_a_wait_is_calculated_from_the_time_slice_that_residency_shows(name: str, corpus: Path, hardware: Path) -> None:
    """By SQL, SAVE_END less RESTORE_START of each context: no kernel shows who had work left, lengths do.

    On the Ada nine tenths of 1 214 intervals are 2.1301 to 2.1348 ms long; the group of two MPS clients on the H200, one context of
    two, has a median of 2.205 ms. 73 us of it are taken for saving and restoring.
    """
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite"
    slice_ms, gap_ms = 2.1344, 0.0427
    if name == "h200":
        path, slice_ms, gap_ms = hardware.parent / "h200" / "node-mps-A-B-beside-C", 2.205, 0.0789
    session = load(path)
    assert session.residency_summary()[0].time_slice_ns == pytest.approx(slice_ms * 1e6, abs=1_000)
    wait_ms = (slice_ms - 0.073) + 2 * (gap_ms + 0.073)
    (keep,) = (one for one in session.advise(latency_ns=5_000_000)[0].actions if "5.000 ms" in one.action)
    assert keep.action == f"Keep the time slices for waits below 5.000 ms: they are at most about {wait_ms:.3f} ms"
    (shorter,) = (one for one in session.advise(latency_ns=1_000_000)[0].actions if "1.000 ms" in one.action)
    longest_us = 1_000 - 2 * 1_000 * (gap_ms + 0.073)
    assert shorter.action.startswith(f"Set time slices of at most {longest_us:.0f} us for waits below 1.000 ms: policy")


def test_tenants_are_pointed_at_a_daemon_that_nobody_found(hardware: Path) -> None:
    """PROCESSES has one nvidia-cuda-mps, pid 4374, left by another recording: a second daemon would not start."""
    path = hardware / "replicas-slices-2-C.sqlite"
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT globalPid >> 24 & 16777215, name FROM PROCESSES WHERE name LIKE '%mps%'").fetchall()
    assert found == [(4374, "nvidia-cuda-mps")]
    session = load(path)
    (verdict,) = session.classify()
    # Nobody had told a client where it is.
    assert (verdict.configured, verdict.agrees) == (None, None)
    assert "mps_clients" not in {gap.what for gap in verdict.missing}
    first = session.advise()[0].actions[0]
    assert first.commands[0].startswith("grep -az CUDA_MPS_PIPE_DIRECTORY /proc/4374/environ ")
    assert first.commands[1].startswith("export CUDA_MPS_PIPE_DIRECTORY=DIRECTORY ")
    assert not any("nvidia-cuda-mps-control -d" in command for command in first.commands)
    assert (first.undo or "").startswith("export CUDA_MPS_PIPE_DIRECTORY=EMPTY_FOLDER ")


def test_mps_is_not_advised_where_its_own_condition_excludes_it(hardware: Path) -> None:
    """P1 has 1056 blocks of 256 threads, eight of which fit on each of 132 SMs: one wave. With MPS the slowed tenant was
    measured to be as slow (fixtures/hardware/h200/units-2.csv), as both wait for copies."""
    report = load(hardware.parent / "h200" / "slices-copies-open_loop.sqlite").report()
    (device,) = report.devices
    assert device.sharing.mode == "time-slicing"
    copy, *others = device.advice
    assert copy.action == "Copy less in kit (pid 1648)"
    # With caps its kernels leave SMs to those of the other.
    assert not any(one.action.startswith("Try MPS:") for one in others)
    options = {option.name: option for option in device.options or ()}
    assert options["MPS"].antt > options["MPS, equal caps"].antt
    assert "of the time of kit (pid 1648); what others gain is not known" in str(copy.bound)
    assert copy.wrong_if == "copies and memsets take much less of a solo run of kit (pid 1648)"


@pytest.mark.parametrize(
    ("inflation", "fills", "said"),
    [
        (None, False, [None]),
        (1.003, False, [None]),
        # 1 - 1 / 1.8
        (1.8, False, ["kernels of a are in flight for at most 44.4 % less time"]),
        (1.8, None, ["kernels of a are in flight for at most 44.4 % less time"]),
        (1.8, True, []),
    ],
)
def test_a_bound_of_mps_is_a_gain(
    inflation: float | None,
    fills: bool | None,
    said: list[str | None],
    fixtures: Path,
) -> None:
    (verdict,) = load(fixtures / "demo-time-slicing.sqlite").classify()
    tenants = [Resident(0, "a", 7, True, 0.5, inflation, fills_sms=fills), Resident(1, "b", 8, True, 0.5, None)]
    found = list(simple_bounds(verdict, tenants, {"compute_major": 9}, "why"))
    assert [None if one.bound is None else one.bound.partition(" (")[0] for one in found] == said
    assert [("hardly switched out" in one.why) for one in found] == [inflation == 1.003] * len(said)


def test_a_latency_that_is_known_bounds_the_gain_of_mps_whatever_a_kernel_lost_in_flight(fixtures: Path) -> None:
    """Of two tenants the one that gains most: 1 - 1 / 2.5 of its latency, where 1 - 1 / 1.8 of another's is in flight."""
    (verdict,) = load(fixtures / "demo-time-slicing.sqlite").classify()
    waiting = Resident(0, "a", 7, True, 0.5, 1.003, latency=2.5)
    for other, said in (
        (Resident(1, "b", 8, True, 0.5, 1.5), "kernel latency of a at most 60.0 % less"),
        (Resident(1, "b", 8, True, 0.5, 2.6), "kernels of b are in flight for at most 61.5 % less time"),
        # It is in flight for all of its latency: waits before the start are none.
        (Resident(1, "b", 8, True, 0.5, 2.6, latency=2.6), "kernels of b are in flight for at most 61.5 % less time"),
    ):
        (one,) = simple_bounds(verdict, [waiting, other], {"compute_major": 9}, "why")
        assert one.bound is not None and one.bound.startswith(said)
        assert ("before they start" in one.bound) == (other.latency is None and said.startswith("kernels of b"))
        assert "hardly switched out" not in one.why


def test_kernels_are_asked_for_where_none_was_traced_under_mps(hardware: Path) -> None:
    """A recording of the node knows that three processes share the GPU, and nothing of what they ran."""
    (advice,) = load(hardware.parent / "h200" / "node-mps-A-B").advise()
    (first,) = advice.actions
    assert first.action == "Not enough data to decide: record kernels of all tenants before any change"
    assert first.why == "no kernels were traced: who was slowed, and by what, is not known"
    # A root shell has another environment, and an MPS server serves one user: it would record another sharing mode.
    command, _, comment = first.commands[0].partition("   # ")
    node = json.loads((hardware.parent / "h200" / "node-mps-A-B" / "node.json").read_text())
    (pipe,) = set(re.findall(r"CUDA_MPS_PIPE_DIRECTORY\W+?(/[\w/.-]+)", json.dumps(node)))
    options = f"--run-as=USER --env-var=CUDA_MPS_PIPE_DIRECTORY={pipe}"
    assert command == f"nsys profile -t cuda,nvtx --gpuctxsw=true {options} -o NAME PROGRAM"
    assert comment.startswith(
        "as root; --run-as and --env-var for MPS clients only, USER: that of their daemon; one for"
    )
    (device,) = load(hardware.parent / "h200" / "node-mps-A-B").report().devices
    hows = [gap.how for gap in device.sharing.missing if gap.how.startswith("nsys profile")]
    assert hows and all(f"--env-var=CUDA_MPS_PIPE_DIRECTORY={pipe}" in how for how in hows)


def test_a_command_says_as_whom_it_is_run_where_it_is_broken(hardware: Path) -> None:
    lines = run("summary", hardware.parent / "h200" / "node-mps-A-B-beside-C").stdout.splitlines()
    assert len(lines) <= 15
    (first,) = (number for number, line in enumerate(lines) if "nsys profile" in line)
    assert lines[first + 1].endswith("-o NAME PROGRAM   # as root")


def test_kernels_are_recorded_before_mps_is_advised(hardware: Path, tmp_path: Path) -> None:
    """Nothing was traced: by SQL most samples of the counter have all SMs active."""
    export = hardware.parent / "h200" / "node-slices-A-B" / "report.sqlite"
    samples = """
        SELECT value FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId)
        WHERE metricName LIKE 'SMs Active%'"""
    with closing(sqlite3.connect(export)) as db:
        values = [value for (value,) in db.execute(samples)]
    share = sum(value == 100 for value in values) / len(values)
    assert 0.5 < share < 1
    (found,) = load(export).advise()
    record, mps = found.actions
    assert record.action.startswith("Not enough data to decide: record kernels of all tenants before any change")
    assert record.commands[0].startswith("nsys profile -t cuda")
    assert mps.action == "Run the tenants under MPS instead of time-slicing"
    said = f"MPS may gain little: all SMs were active in {100 * share:.1f} % of {len(values)} counter samples."
    assert said in mps.why
    shutil.copy(export, idle := tmp_path / "idle.sqlite")
    with closing(sqlite3.connect(idle)) as db:
        db.execute("UPDATE GPU_METRICS SET value = value / 2")
        db.commit()
    (found,) = load(idle).advise()
    assert [one.action for one in found.actions] == [record.action, mps.action]
    assert "gain little" not in found.actions[1].why


@pytest.mark.parametrize("requirement", ["fault-isolation", "bandwidth-qos"])
def test_a_requirement_binds_advice_without_a_forecast(requirement: Requirement, corpus: Path, hardware: Path) -> None:
    """NVIDIA lists no MIG profiles for an RTX 6000 Ada, and for an H200 seven compute slices: three tenants fit."""
    ada = load(corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite")
    assert any("under MPS" in one.action for one in ada.advise()[0].actions)
    # What MPS promises binds nobody who does not ask for more.
    assert any("under MPS" in one.action for one in ada.advise(require=["memory-protection"])[0].actions)
    actions = ada.advise(require=[requirement])[0].actions
    assert not any("MPS" in one.action or "mps" in " ".join(one.commands) for one in actions)
    (sharing,) = (one for one in actions if one.exclusive)
    assert sharing.action == (
        f"Give the tenants their own GPUs: no sharing mode of this GPU is known to provide {requirement}"
    )
    assert "MIG" not in str(sharing)
    node = load(hardware.parent / "h200" / "node-mps-A-B-beside-C")
    assert "MPS group" in node.advise()[0].actions[-1].action
    (sharing,) = (one for one in node.advise(require=[requirement])[0].actions if one.exclusive)
    assert sharing.action.startswith("Give each tenant its own MIG instance: kit (pid 708) ")
    assert [line.split("   # ")[0] for line in sharing.commands[:2]] == [
        "echo quit | CUDA_MPS_PIPE_DIRECTORY=/tmp/mp nvidia-cuda-mps-control",
        "nvidia-smi -i 0 -mig 1",
    ]


def test_bounds_under_caps_allow_for_blocks_that_fill_an_sm(corpus: Path) -> None:
    """A grid of 4 blocks on 80 SMs has four SMs solo, and two with a cap of 1 %: twice as long, where one block takes
    all that an SM gives. Nothing was recorded with fewer than 40 SMs each."""
    path = corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite"
    with closing(sqlite3.connect(path)) as db:
        grids = db.execute("SELECT DISTINCT gridX * gridY * gridZ FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    assert grids == [(4,)]
    session = load(path)
    assert mps_sms(80, 1, 8) == 2
    by_name = {option.name: option for option in options_of(session).options}
    assert all(2.0 < f.high < 2.5 for f in by_name["MPS, minimal caps"].forecasts)
    # What was recorded needs no such allowance, nor does what has an SM for each block.
    for name in ("MPS", "MPS, equal caps"):
        assert all(f.high < 1.2 for f in by_name[name].forecasts)


def test_what_ran_before_the_first_call_of_a_process_is_not_its_work(corpus: Path) -> None:
    """By SQL: samples of SM activity before the first CUDA call, 212 ms after the origin; half of them read 100 %."""
    path = corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        (first,) = db.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
        mean, n = db.execute(
            """SELECT avg(value), count(*) FROM
            (SELECT value, lead(timestamp) OVER (ORDER BY timestamp) AS until FROM GPU_METRICS
            JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId) WHERE metricName LIKE 'SM Active%') WHERE until <= ?""",
            [first],
        ).fetchone()
    actions = load(path).advise()[0].actions
    found, *others = actions
    assert found.action.startswith("Find what else runs on this GPU")
    said = re.search(
        r"It was (\S+) % before the first recorded CUDA call of my_gemm \(mean of (.+?) samples\)", found.why
    )
    assert said is not None
    assert float(said[1]) == pytest.approx(mean, abs=0.06)
    assert int(re.sub(r"\D", "", said[2])) == n
    # A list that names nobody is no evidence: the process may have ended, or be hidden.
    assert found.wrong_if is None
    assert "or that a container hides, is in no list" in found.why
    # What decides how the GPU is shared stands behind advice to change other things.
    assert [one.action for one in others][-1] == (
        "Not enough data to decide: record what is missing before changing how the GPU is shared"
    )


def test_settings_of_kubernetes_are_not_left_out_without_a_word(corpus: Path) -> None:
    session = load(corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite")
    (said,) = (one for one in session.advise(kubernetes=True)[0].actions if "device plugin" in one.action)
    # By the records its context is resident for half of the time, and no kernel of it is there.
    assert said.why.startswith("the work of shared (resident for 1.308 s) was not traced")
    assert not any("device plugin" in one.action for one in session.advise()[0].actions)


def test_what_no_configuration_promises_is_said_as_the_table_says_it(corpus: Path) -> None:
    """An A10G has no MIG (NVIDIA's user guide lists none), and the table has `faults?` for time-slicing."""
    path = corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite"
    (sharing,) = load(path).advise(require=["fault-isolation"])[0].actions
    assert "sources disagree whether time-slicing provides fault-isolation" in sharing.why
    assert "is not promised by MPS, MPS with equal caps" in sharing.why
    assert sharing.wrong_if is None


def test_grids_that_follow_the_sms_are_told_beside_forecasts_of_caps(hardware: Path) -> None:
    """By SQL: of the trainer's kernel time, in grids with one block, or two, for each of 132 SMs that are resident at once."""
    path = hardware / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            """SELECT gridX * gridY * gridZ, total("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL
            WHERE globalPid / 0x1000000 % 0x1000000 = 1288 GROUP BY 1"""
        ).fetchall()
    # No kernel of these fits more than twice on an SM.
    share = sum(ns for blocks, ns in rows if blocks in {132, 264}) / sum(ns for _, ns in rows)
    keep = pyanalyze.load(path).advise()[0].actions[0]
    said = f"{share:.0%} of the kernel time of python3 (pid 1288) is in grids that match the number of SMs."
    assert said.replace("%", " %") in keep.why


def test_client_priorities_are_advised_where_one_client_waits_for_the_others(hardware: Path) -> None:
    with (hardware.parent / "h200" / "units-2.csv").open(newline="") as file:
        rates = {(row["case"], row["application"]): float(row["units_per_s"]) for row in csv.DictReader(file)}
    first, other = (
        [rates[f"mps-first-{pair}", app] / rates[f"mps-{pair}", app] for pair, app in pairs]
        for pairs in ((("open_loop-B", "open_loop"), ("A-B", "A")), (("open_loop-B", "B"), ("A-B", "B")))
    )
    actions = pyanalyze.load(hardware / "torch-mps-serve-train.sqlite").advise()[0].actions
    (action,) = (one for one in actions if "client priority" in one.action)
    assert action.action == ("If python3 (pid 1287) matters more: give python3 (pid 1288) a lower MPS client priority")
    said = f"{first[0]:.2f} and {first[1]:.2f} times the rate for the one of normal priority, "
    assert f"{said}{other[0]:.2f} and {other[1]:.2f} times for the other" in action.why
    assert action.commands[0].startswith(
        "export CUDA_MPS_CLIENT_PRIORITY=1   # in the shells that start python3 (pid 1288)"
    )
    # Clients that are slowed alike have none that waits for the other, and time slices know no clients.
    for name in ("mps-A-B", "torch-slices-serve-train"):
        actions = pyanalyze.load(hardware / f"{name}.sqlite").advise()[0].actions
        assert not any("client priority" in one.action for one in actions)


def test_what_is_kept_is_named_and_so_is_what_shortens_a_tail(hardware: Path) -> None:
    """Caps take the tail of the server down and the trainer's SMs away; time-slicing, the best mean, does not."""
    (device,) = load(hardware / "torch-mps-serve-train.sqlite").report().devices
    keep, tail = device.advice[:2]
    assert keep.action == (
        "Keep MPS: no other configuration is forecast clearly faster on average. "
        "For the p99 of python3 (pid 1287): MPS with equal caps (python3 (pid 1288) takes 1.89 times as long)"
    )
    assert tail.action.startswith("If the p99 latency of python3 (pid 1287) matters more: run the tenants under MPS")


def test_no_bound_of_mps_is_below_the_slowdown_that_is_shown(corpus: Path) -> None:
    """By SQL: one kernel of 2.5 s, how long its context was resident inside it, and how often it was switched out.

    Each time takes 140 us of its residency, as on an A100 and an H200; one kernel does not show how long it takes here.
    """
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((start, end, process),) = db.execute('SELECT start, "end", globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL')
        resident = recorded_residency(db, process, (start, end))
    resident_ns = sum(to - since for since, to in resident)
    assumed_ns = (len(resident) - 1) * 140_000
    assert len(resident) - 1 == 577
    assert resident_ns / 1e6 == pytest.approx(1230.8, abs=0.1)
    (device,) = load(path).report().devices
    assert device.advice is not None
    (tenant,) = (one for one in device.tenants if one.busy_ns)
    assert tenant.slowdown.latency is not None
    assert tenant.slowdown.latency.value == pytest.approx((end - start) / (resident_ns - assumed_ns), rel=0.002)
    (bound,) = (one.bound for one in device.advice if one.bound is not None and "in flight for at most" in one.bound)
    in_flight_ns = end - start
    assert tenant.assumed_switch_ns == assumed_ns
    said = re.search(
        r"at most ([\d.]+) % less time \(switched out ([\d.]+) %, saving and restoring ([\d.]+) %, assumed\)", bound
    )
    assert said is not None
    assert [float(one) for one in said.groups()] == pytest.approx(
        [
            100 * (1 - (resident_ns - assumed_ns) / in_flight_ns),
            100 * (1 - resident_ns / in_flight_ns),
            100 * assumed_ns / in_flight_ns,
        ],
        abs=0.06,
    )
    # The same two parts, and no others: it waited 2 ms before its start, less than a thousandth of its latency.
    lead = lead_sentences(device)[0]
    assert (
        "Cause: switched out for 51.0 % of the time its kernels were in flight; for 3.2 % its context was saving"
        in lead
    )
    assert "waits before" not in lead
    assert "Slowed by process shared (pid 30398); it was the only other resident tenant." in lead
    (note,) = (text for text in tenant.slowdown_notes if "saving and restoring" in text)
    assert f"{assumed_ns / 1e6:.2f} ms" in note and "assumed" in note
    # The slowdown is that of a replay, no bound by what is recorded: that alone is less, and stands beside it.
    assert note.endswith(f". Without that assumption its kernel latency is {in_flight_ns / resident_ns:.2f}x")
    page = run("report", path, "-f", "md").stdout
    assert "Slowdown (shared over solo), estimated by a counterfactual replay without the other tenants." in page
    assert "bounded by" not in page.partition("## Interference")[2].partition("\n## ")[0]


def test_waits_before_the_start_lead_and_count_in_the_bound_of_mps(corpus: Path) -> None:
    """By SQL: ten kernels that each waited for a whole time slice of the other process; one was switched out as well."""
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "paging__ada-sync-iteration.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        kernels = db.execute(
            """SELECT r.start, r."end", k.start, k."end", k.globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
            JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON r.correlationId = k.correlationId"""
        ).fetchall()
        out = [
            end - start - sum(to - since for since, to in recorded_residency(db, process, (start, end)))
            for _, _, start, end, process in kernels
        ]
    waits = [start - called for _, called, start, _, _ in kernels]
    assert (len(kernels), sum(one > 0 for one in out)) == (10, 1)
    assert min(waits) > 2.1e6 and max(waits) < 2.3e6
    (device,) = load(path).report().devices
    (tenant,) = (one for one in device.tenants if one.busy_ns)
    added = tenant.added_latency
    assert added is not None and added.kernels == len(kernels)
    assert added.shared_ns == sum(end - called for called, _, _, end, _ in kernels)
    assert (added.switched_out_ns, added.switched_out_kernels) == (sum(out), 1)
    # Solo, kernels start a few microseconds after their call.
    assert added.before_start_ns == pytest.approx(sum(waits), rel=0.01)
    assert added.added_ns == added.before_start_ns + added.switched_out_ns + added.saving_ns
    cause = lead_sentences(device)[0].partition("Cause: ")[2]
    assert cause.startswith(
        "its kernels waited 2.176 ms each (mean of 10) before they started: 21.76 ms of the 24.12 ms"
    )
    assert cause.endswith("; 2.215 ms more while switched out in flight (1 kernel).")
    assert cause_sentence(device).startswith("Sharing is the cause: yes. Kernels of bin/pf_spin waited 2.176 ms each")
    assert device.advice is not None
    (bound,) = (one.bound for one in device.advice if one.bound is not None and "kernel latency of" in one.bound)
    said = re.search(
        r"at most ([\d.]+) % less.* \(waits before the start ([\d.]+) %, switched out in flight ([\d.]+) %", bound
    )
    assert said is not None
    whole_ns = added.shared_ns
    expected = [sum(waits) + sum(out) + 140_000, sum(waits), sum(out)]
    assert [float(one) for one in said.groups()] == pytest.approx([100 * ns / whole_ns for ns in expected], abs=0.1)
    assert "not in this figure" not in bound


def test_without_records_of_residency_nobody_is_known_to_be_switched_out_or_not() -> None:
    """The same recording with its switch records: app_a is inflated; without them all of busy time is attributed."""
    folder = generate.built("running-example-time-slicing")
    for name, known in (("running-example-time-slicing", True), ("running-example-time-slicing.no-switches", False)):
        session = load(folder / f"{name}.sqlite")
        found = list(residents_of(session.tables, 0))
        assert len(found) == 3
        assert [one.inflation is not None and one.inflation > 1.5 for one in found] == [known] * 3
        assert all(known or one.inflation is None for one in found)


def test_who_does_not_slow_is_no_aggressor_and_a_missing_solo_run_is_asked_for(hardware: Path) -> None:
    """C alone beside B leaves it 0.97 times as long; of C itself there is no solo run."""
    folder = hardware.parent / "h200"
    names = [f"--tenant={name}={pid}" for name, pid in (("A", 1184), ("B", 1185), ("C", 1186))]
    solo = [f"--baseline={name}={folder / f'alone-{name}.sqlite'}" for name in "AB"]
    said = " ".join(run("summary", folder / "mps-A-B-C.sqlite", *names, *solo).stdout.split())
    assert re.search(r"Slowed by A \(2\.\d\dx with it alone\), inferred", said)
    assert not re.search(r"C \(0\.\d\dx\)", said)
    assert "Do Record C solo first: its slowdown is not known." in said
    page = run("report", folder / "mps-A-B-C.sqlite", *names, *solo, "-f", "md").stdout
    assert "Largest known slowdown: B" in page
    advised = page.partition("## What to change")[2].partition("## Key numbers")[0]
    assert "nsys profile -t cuda,nvtx -o C.solo PROGRAM" in advised
    assert "No advice follows" not in advised


def test_a_baseline_is_given_to_the_name_that_a_report_prints(hardware: Path) -> None:
    folder = hardware.parent / "h200"
    solo = f"--baseline=kit (pid 1649)={folder / 'alone-open_loop.sqlite'}"
    found = json.loads(run("interference", folder / "slices-copies-open_loop.sqlite", solo, "-f", "json").stdout)
    named = {tenant["pid"]: tenant["baseline"] for tenant in found["devices"][0]["tenants"]}
    assert named[1649] is not None and named[1648] is None
    both = run("interference", folder / "slices-copies-open_loop.sqlite", solo.replace(" (pid 1649)", ""))
    assert both.returncode == 2
    assert "several tenants have that name; there are kit (pid 1648), kit (pid 1649)" in both.stderr


def test_an_instance_that_no_kernel_fills_calls_for_a_smaller_one(corpus: Path) -> None:
    """10 blocks on the 28 SMs of a 2g.12gb of an A30: on the 14 SMs of a 1g.6gb (MIG user guide) each still has its own.

    SMs active: at most 10 of 28 while the kernel runs, 123.6 of 127.4 ms: 34.65 %.
    """
    (device,) = load(corpus / "exports" / "mig-a30" / "report1.nsys2026.sqlite").report().devices
    faster, smaller = device.advice[:2]
    assert faster.action.endswith("faster: its grids have at most 10 blocks for 28 SMs")
    # 10 blocks' work on 28 SMs; the other action takes SMs away.
    (kernel_ns,) = [split.top_kernel_ns for split in [device.tenants[0].time_split] if split is not None]
    assert kernel_ns == pytest.approx(123.6e6, rel=0.01)
    assert "about 10/28 of its time would remain: 44.1" in faster.why
    assert smaller.why.endswith("Larger grids would use the SMs that are free here: choose one of the two")
    # As root, and only where no program runs: what it takes away and makes again stands beside it.
    assert smaller.commands[-1].startswith("nvidia-smi mig -i GPU -cgi 1g.6gb -C && nvidia-smi -L")
    assert "-dgi -gi NEW_ID && nvidia-smi mig -i GPU -cgi 2g.12gb -C" in (smaller.undo or "")
    assert smaller.action == "Try the smaller MIG profile 1g.6gb: no kernel fills this instance"
    assert smaller.bound == "14 of 28 SMs become free for another instance"
    # A quarter of 24 GiB, of which 95 % can be used.
    assert "5.7 GiB" in (smaller.wrong_if or "")
    assert device.occupancy is not None
    assert device.occupancy.sm_active.high == pytest.approx(0.3465, abs=0.0005)


def test_only_strategies_of_caps_that_were_compared_are_explained(hardware: Path) -> None:
    """Of two clients double caps are no caps: the table has equal, proportional and minimal ones."""
    report = load(hardware / "mps-50-50-A-B.sqlite").report()
    (device,) = report.devices
    assert device.options is not None
    names = {option.name for option in device.options if option.name.endswith(" caps")}
    assert names == {"MPS, equal caps", "MPS, proportional caps", "MPS, minimal caps"}
    page = render_markdown(report)
    strategies = ("Equal", "Double", "Proportional", "Minimal")
    assert [one for one in strategies if f" {one} caps " in page] == ["Equal", "Proportional", "Minimal"]
    assert "double caps" not in page.lower()


def test_a_bound_without_others_is_not_reached_where_grids_do_not_fit_at_once(fixtures: Path) -> None:
    """By SQL, of block slots for 2048 threads on each of 108 SMs the grids of app_a and app_b take more than all."""
    path = fixtures / "demo-time-slicing.sqlite"
    query = """SELECT sum(("end" - start) * gridX * gridY * gridZ * blockX * blockY * blockZ * 1.0)
               / sum("end" - start) / (108 * 2048.0) FROM CUPTI_ACTIVITY_KIND_KERNEL
               WHERE globalPid >> 24 & 0xFFFFFF = ?"""
    with closing(sqlite3.connect(path)) as db:
        one, other = (db.execute(query, (pid,)).fetchone()[0] for pid in (41201, 41305))
    assert one < 1 < one + other
    (advice,) = load(path).advise()
    (mps,) = (action for action in advice.actions if action.action.startswith("Run the tenants under MPS"))
    assert f"their grids take {one + other:.2f} waves together (app_a {one:.3f} and app_b {other:.3f}" in str(mps.bound)
