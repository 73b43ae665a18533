"""What decides a verdict, and what does not: small exports written by hand, real figures, simulated scenarios."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import exports
import generate
import polars as pl
import pytest
import verdicts as bench
from command_line import run
from exports import A100, DRIVER_CONTEXT, DRIVER_PID, MS, US, kernel, resident, write

import pyanalyze
from pyanalyze.analysis.advice.options import options
from pyanalyze.analysis.impact import impact_of
from pyanalyze.analysis.sharing import RULES, Case, Configured, Fact, judge, observe
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.calibration import calibration
from pyanalyze.analysis.sharing.case import cases_of, verdicts_of
from pyanalyze.analysis.sharing.facts import Pair
from pyanalyze.tables.window import narrowed_parts

if TYPE_CHECKING:
    from pathlib import Path

#: A MIG instance as its exports showed it before nsys said which process saw how many SMs.
INSTANCE = A100 | {
    "name": "NVIDIA A100-PCIE-40GB MIG 3g.20gb", "smCount": 42, "totalMemory": 20 << 30, "l2CacheSize": 20 << 20,
    "memoryBandwidth": 777_600_000_000,
}  # fmt: skip


def names(session: pyanalyze.Session) -> set[str]:
    return set(observe(cases_of(session.tables)[0]))


def fact(session: pyanalyze.Session, name: str) -> float | None:
    value: float | None = session.facts.filter(pl.col("name").cast(pl.String) == name)["value"][0]
    return value


# -- the driver's own channel -----------------------------------------------------------------------------------------


def alternating(turns: int, slice_ns: int = 2 * MS, driver_ns: int = 20 * US) -> dict[str, Any]:
    """Two time-sliced processes, one long kernel in each, and a visit of the driver between any two turns."""
    switches, kernels, at = [], [], 0
    for turn in range(turns):
        pid = 7 + turn % 2
        switches += resident(pid, pid, at, at + slice_ns)
        kernels.append(kernel(pid, at + 100 * US, at + slice_ns - 100 * US))
        at += slice_ns + 50 * US
        switches += resident(DRIVER_PID, DRIVER_CONTEXT, at, at + driver_ns)
        at += driver_ns + 50 * US
    return {"switches": switches, "kernels": kernels, "processes": {7: "a", 8: "b"}}


def test_the_channel_of_the_driver_is_no_tenant(tmp_path: Path) -> None:
    session = pyanalyze.load(write(tmp_path / "x.sqlite", **alternating(100)))
    assert session.tenants["name"].to_list() == ["a", "b"]
    assert session.classify()[0].mode == "time-slicing"
    # From a over the driver to b is one switch between tenants; nothing of the residency is of somebody unknown.
    assert fact(session, "switches_between_tenants") == 99
    assert fact(session, "alternation_share") == 1.0
    assert fact(session, "resident_share_untraced") == 0.0
    # Nobody is missing, so that ways to share can be compared.
    assert options(session.tables, session.classify()[0]).why_not is None


def test_visits_of_the_driver_are_no_alternation(tmp_path: Path) -> None:
    alone = alternating(100)
    alone["switches"] = [row if row[3] == DRIVER_PID else (*row[:2], 7, 7) for row in alone["switches"]]
    alone["kernels"] = [row | {"globalPid": exports.global_pid(7)} for row in alone["kernels"]]
    session = pyanalyze.load(write(tmp_path / "x.sqlite", **alone))
    assert fact(session, "switches_between_tenants") == 0
    assert fact(session, "resident_share_top") == 1.0
    verdict = session.classify()[0]
    assert (verdict.mode, verdict.basis) == ("exclusive", "observed")


@pytest.mark.parametrize(("untraced_ns", "compared"), [(8 * MS, True), (30 * MS, False)])
def test_a_small_untraced_tenant_bounds_a_forecast(tmp_path: Path, untraced_ns: int, compared: bool) -> None:
    """200 ms of two traced tenants: 8 ms of a third widen the bounds, 30 ms are too much."""
    made = alternating(100)
    end = made["switches"][-1][0] + MS
    made["switches"] += resident(9, 9, end, end + untraced_ns)
    made["processes"][9] = "c"
    session = pyanalyze.load(write(tmp_path / "x.sqlite", **made))
    found = options(session.tables, session.classify()[0])
    assert (found.why_not is None) is compared
    if not compared:
        assert found.why_not == "the work of c (resident for 30.00 ms) was not traced"
        return
    assert found.untraced == ("c",)
    whole = pyanalyze.load(write(tmp_path / "y.sqlite", **alternating(100)))
    without = {o.name: o for o in options(whole.tables, whole.classify()[0]).options}
    for option in found.options:
        for mine, bare in zip(option.forecasts, without[option.name].forecasts, strict=True):
            # At most they wait for all of it: 8 ms of some 90 ms that each takes solo.
            assert mine.high - bare.high == pytest.approx(untraced_ns / (mine.elapsed_ns / mine.slowdown), rel=0.05)
            assert mine.low == pytest.approx(bare.low)


# -- what is missing is no evidence -----------------------------------------------------------------------------------


def case(facts: dict[str, float], **changes: object) -> Case:
    made = {name: Fact(value, "1", 1000, "observed", "hand-made") for name, value in facts.items()}
    base = Case(0, "NVIDIA A100-SXM4-40GB", None, None, None, (8, 0), 108, made, (), {}, ("a", "b"))
    return replace(base, **changes)  # type: ignore[arg-type]


def test_missing_process_ids_speak_for_nothing_and_against_nothing() -> None:
    facts = {"busy_ns": 1e9, "traced_tenants": 1, "stream_overlap_share": 0.9, "streams_used": 2}
    verdict = judge(case(facts, pids_known=False))
    assert verdict.mode == "undetermined"
    assert not verdict.evidence
    # All everyday modes are as likely as before.
    assert {other.confidence for other in verdict.alternatives if other.confidence > 0.01} == {0.333}
    assert "process_ids" in {gap.what for gap in verdict.missing}


# -- one MIG instance -------------------------------------------------------------------------------------------------


def meeting(pid: int, phase_ns: int) -> list[dict[str, Any]]:
    """Kernels of 100 us every 150 us: two such processes meet all the time."""
    return [kernel(pid, phase_ns + n * 150 * US, phase_ns + n * 150 * US + 100 * US) for n in range(400)]


def excluding(pid: int, turn: int) -> list[dict[str, Any]]:
    """Bursts of 2 ms of short kernels, two time-sliced processes."""
    starts = [(2 * burst + turn) * 2100 * US + n * 105 * US for burst in range(30) for n in range(19)]
    return [kernel(pid, start, start + 100 * US) for start in starts]


@pytest.mark.parametrize(
    ("work", "mode"), [(meeting, "mig+mps"), (lambda pid, at: excluding(pid, at > 0), "mig+time-slicing")]
)
def test_exports_of_one_instance_are_of_one_instance(tmp_path: Path, work: Any, mode: str) -> None:
    """One export per container; each lists the instance that it sees, and both list the same UUID."""
    paths = [
        write(tmp_path / f"{pid}.sqlite", gpus=[INSTANCE], kernels=work(pid, at), processes={pid: f"p{pid}"})
        for pid, at in ((7, 0), (8, 50 * US))
    ]
    session = pyanalyze.load(paths)
    assert session.devices.height == 1
    assert session.classify()[0].mode == mode


def test_each_export_with_an_instance_of_its_own(tmp_path: Path) -> None:
    """Both lists have one instance only: nothing is open, although the session has two."""
    other = INSTANCE | {"uuid": "22222222-2222-3333-4444-555555555555"}
    one = write(tmp_path / "a.sqlite", gpus=[INSTANCE], kernels=meeting(7, 0) + meeting(8, 50 * US))
    two = write(tmp_path / "b.sqlite", gpus=[other], kernels=meeting(9, 0))
    session = pyanalyze.load([one, two])
    assert [verdict.mode for verdict in session.classify()] == ["mig+mps", "mig"]


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ({}, "undetermined"),
        ({7: f"CUDA_VISIBLE_DEVICES=MIG-{INSTANCE['uuid']}", 8: f"CUDA_VISIBLE_DEVICES=MIG-{INSTANCE['uuid']}"}, "mig+mps"),
        ({7: f"CUDA_VISIBLE_DEVICES=MIG-{INSTANCE['uuid']}"}, "undetermined"),
        ({None: f"NVIDIA_VISIBLE_DEVICES=MIG-{INSTANCE['uuid']}"}, "mig+mps"),
    ],
)  # fmt: skip
def test_which_of_two_listed_instances(tmp_path: Path, said: dict[int | None, str], mode: str) -> None:
    """Each process sees its instance as device 0: the environment says which that was."""
    other = INSTANCE | {"id": 1, "cuDevice": 1, "uuid": "22222222-2222-3333-4444-555555555555"}
    path = write(
        tmp_path / "x.sqlite", gpus=[INSTANCE, other], kernels=meeting(7, 0) + meeting(8, 50 * US), environment=said
    )
    verdict = pyanalyze.load(path).classify()[0]
    assert verdict.mode == mode
    assert ("instances" in {gap.what for gap in verdict.missing}) is (mode == "undetermined")


LISTING = """GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-{board})
  MIG 3g.20gb     Device  0: (UUID: MIG-{one})
  MIG 3g.20gb     Device  1: (UUID: MIG-22222222-2222-3333-4444-555555555555)
"""


@pytest.mark.parametrize(
    ("board", "mode"), [("99999999-2222-3333-4444-555555555555", "mig+mps"), (INSTANCE["uuid"], "undetermined")]
)
def test_two_exports_with_the_uuid_of_the_board_may_be_of_two_instances(tmp_path: Path, board: str, mode: str) -> None:
    (tmp_path / "list.txt").write_text(LISTING.format(board=board, one="11111111-2222-3333-4444-555555555555"))
    paths = [
        write(tmp_path / f"{pid}.sqlite", gpus=[INSTANCE], kernels=meeting(pid, at))
        for pid, at in ((7, 0), (8, 50 * US))
    ]
    verdict = pyanalyze.load(paths, context=[tmp_path / "list.txt"]).classify()[0]
    assert verdict.mode == mode


# -- a device that bears its board's name -----------------------------------------------------------------------------

WHOLE = A100 | {
    "name": "NVIDIA A100-SXM4-80GB", "totalMemory": 84_990_623_744, "memoryBandwidth": 2_039_040_000_000,
}  # fmt: skip
HALF = {
    "smCount": 42, "totalMemory": 42_297_524_224, "l2CacheSize": 20 << 20, "memoryBandwidth": 1_019_520_000_000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "mode", "seen"),
    [
        ({}, "exclusive", None),
        # All four at one profile's values.
        (HALF, "mig", "mig_instance"),
        # L2 and bandwidth are whole under an MPS percentage.
        ({"smCount": 42}, "undetermined", "sms_hidden"),
        ({"smCount": 64}, "undetermined", "sms_hidden"),
        # All SMs, half of the memory: a virtual GPU, or a limit in software.
        ({"totalMemory": 42_297_524_224}, "undetermined", "memory_below_product"),
        # As many SMs and as much memory as a 3g.40gb, and nothing else is known.
        ({"smCount": 42, "totalMemory": 42_297_524_224, "l2CacheSize": 0}, "undetermined", "sms_like_mig"),
    ],
)
def test_figures_are_compared_with_the_named_product(
    tmp_path: Path, figures: dict[str, int], mode: str, seen: str | None
) -> None:
    path = write(tmp_path / "x.sqlite", gpus=[WHOLE | figures], kernels=steady(7), processes={7: "a"})
    session = pyanalyze.load(path)
    assert session.classify()[0].mode == mode
    told = {"mig_instance", "sms_hidden", "sms_like_mig", "memory_below_product"}
    assert names(session) & told == ({seen} if seen else set())
    assert session.devices["product_sm_count"][0] == 108


def steady(pid: int) -> list[dict[str, Any]]:
    """One process that works all the time: kernels of 200 us without a pause, none inflated."""
    return [kernel(pid, n * 201 * US, n * 201 * US + 200 * US) for n in range(500)]


def test_the_mig_mode_in_samples_tells_an_instance(tmp_path: Path) -> None:
    figures = {"smCount": 42, "totalMemory": 42_297_524_224, "l2CacheSize": 0}
    path = write(tmp_path / "x.sqlite", gpus=[WHOLE | figures], kernels=steady(7), processes={7: "a"})
    head = "timestamp, uuid, name, mig.mode.current"
    for word, mode in (("Enabled", "mig"), ("Disabled", "undetermined")):
        row = f"2026/09/21 10:13:20.000, GPU-{WHOLE['uuid']}, {WHOLE['name']}, {word}"
        (tmp_path / "smi.csv").write_text(f"{head}\n{row}\n")
        assert pyanalyze.load(path, samples=[tmp_path / "smi.csv"]).classify()[0].mode == mode


# -- a kernel inside another one's preemption -------------------------------------------------------------------------


def preempted(**changes: Any) -> dict[str, Any]:
    """A's kernel of 60 ms is switched out once; B's kernel of 270 us runs in the gap. Otherwise they hardly meet."""
    switches = [
        *resident(7, 70, 0, 5 * MS),
        *resident(8, 80, 5100 * US, 5450 * US),
        *resident(7, 70, 5550 * US, 70 * MS),
    ]
    kernels = [kernel(7, 1 * MS, 61 * MS), kernel(8, 5110 * US, 5380 * US)]
    return {"switches": switches, "kernels": kernels, "processes": {7: "a", 8: "b"}} | changes


def test_one_kernel_in_anothers_preemption_proves_time_slicing(tmp_path: Path) -> None:
    session = pyanalyze.load(write(tmp_path / "x.sqlite", **preempted()))
    assert fact(session, "kernels_in_preemption") == 1
    verdict = session.classify()[0]
    assert (verdict.mode, verdict.basis) == ("time-slicing", "observed")
    (seen,) = [w for w in verdict.evidence if w.name == "kernel_ran_in_preemption"]
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as database:
        assert database.execute(str(seen.sql)).fetchone() == (1,)


@pytest.mark.parametrize(
    "changes",
    [
        # A record is missing around B's residency: who was resident in between is not known.
        {"lost": [3]},
        # B's kernel began before its context was resident.
        {"kernels": [kernel(7, 1 * MS, 61 * MS), kernel(8, 5050 * US, 5380 * US)]},
        # A's kernel began after the gap: it was not switched out.
        {"kernels": [kernel(7, 5600 * US, 61 * MS), kernel(8, 5110 * US, 5380 * US)]},
        # A container's pid: which of the two it is was deduced from the very same times.
        {"kernels": [kernel(7, 1 * MS, 61 * MS), *(kernel(1, 5110 * US + n * 90 * US, 5190 * US + n * 90 * US) for n in range(3))]},
    ],
)  # fmt: skip
def test_what_proves_no_preemption(tmp_path: Path, changes: dict[str, Any]) -> None:
    session = pyanalyze.load(write(tmp_path / "x.sqlite", **preempted(**changes)))
    assert fact(session, "kernels_in_preemption") == 0
    assert session.classify()[0].mode == "undetermined"


def test_a_real_preempted_kernel(corpus: Path, tmp_path: Path) -> None:
    """An A100 with both tenants traced, rebuilt from published rows."""
    import subprocess
    import sys

    path = tmp_path / "a100.sqlite"
    subprocess.run([sys.executable, corpus / "rebuilt" / "a100-two-traced-tenants.py", path], check=True)
    session = pyanalyze.load(path)
    # 265.6 us and 8.4 us inside the 350 us of the interactive context.
    assert fact(session, "kernels_in_preemption") == 2
    assert session.classify()[0].mode == "time-slicing"


# -- an MPS group beside another process ------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", ["mps-outsider", "mps-outsider.no-switches"])
def test_an_mps_group_beside_another_process_is_a_mode(capture: str) -> None:
    folder = generate.built("mps-outsider")
    truth = json.loads((folder / "mps-outsider.truth.json").read_text())["devices"][0]
    verdict = pyanalyze.load(folder / f"{capture}.sqlite").classify()[0]
    assert truth["mode"] == verdict.mode == "mps+time-slicing"


def test_advice_beside_an_mps_group_tells_the_other_process_where_the_daemon_is() -> None:
    session = pyanalyze.load(generate.built("mps-outsider") / "mps-outsider.sqlite")
    found = options(session.tables, session.classify()[0])
    # The present way is replayed with the clients in one group, and comes close to what was recorded.
    assert found.current is not None
    assert found.current.mode == "mps+time-slicing"
    assert found.check is not None
    assert found.check.size < 0.03
    (advice,) = [one for one in session.advise()[0].actions if one.action == "Run all tenants under MPS"]
    assert any(line.startswith("export CUDA_MPS_PIPE_DIRECTORY=") for line in advice.commands)


@pytest.mark.parametrize(
    ("group_switches", "of", "seen"),
    [(t.MIN_ALTERNATIONS, 40, True), (t.MIN_ALTERNATIONS - 1, 10, False), (19, 100, False), (20, 100, True)],
)
def test_a_group_alternates_with_others_often(group_switches: float, of: int, *, seen: bool) -> None:
    facts = {"busy_ns": 1e9, "traced_tenants": 3, "co_busy_share": 0.4, "switches_between_tenants": of}
    pairs = (Pair((0, 1), 1000, 1000, 600), Pair((0, 2), 2000, 400, 4, switches=40))
    made = case({**facts, "alternation_share": 0.9}, pairs=pairs, group_switches=int(group_switches))
    assert ("mps_group_time_sliced" in observe(made)) is seen


def test_a_group_that_came_after_the_others_is_no_group_beside_them() -> None:
    folder = generate.built("mps-started-half-way")
    assert pyanalyze.load(folder / "mps-started-half-way.sqlite").classify()[0].mode == "mps"


# -- recordings of a node and of its pods -----------------------------------------------------------------------------


def test_recordings_at_one_time_belong_together_whatever_they_saw(tmp_path: Path) -> None:
    """The node saw one switch, to the MPS server, at its begin; pods worked two seconds later."""
    node = write(
        tmp_path / "node.sqlite",
        switches=[(10 * MS, exports.RESTORE, 90, 900)],
        processes={900: "nvidia-cuda-mps-server"},
        duration_ns=4000 * MS,
    )
    pods = [
        write(tmp_path / f"{pid}.sqlite", kernels=meeting(pid, 2000 * MS + at), duration_ns=4000 * MS)
        for pid, at in ((1, 0), (2, 50 * US))
    ]
    session = pyanalyze.load([node, *pods])
    assert session.classify()[0].mode == "mps"
    later = write(tmp_path / "late.sqlite", kernels=meeting(3, 0), duration_ns=100 * MS, epoch_ns=1_790_000_099 * 10**9)
    with pytest.raises(pyanalyze.errors.UsageError, match="of different times"):
        pyanalyze.load([pods[0], later]).classify()


# -- samples of a board and its instances -----------------------------------------------------------------------------

APPS = """timestamp, gpu_name, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
2026/09/21 10:13:20.000, NVIDIA A100-PCIE-40GB, GPU-{board}, 7, a, 100 MiB
2026/09/21 10:13:20.000, NVIDIA A100-PCIE-40GB, GPU-{board}, 8, b, 100 MiB
2026/09/21 10:13:20.000, NVIDIA A100-PCIE-40GB, GPU-{board}, 900, nvidia-cuda-mps-server, 30 MiB
"""
BOARD = "99999999-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("listing", "second", "how"),
    [
        (True, False, "nvidia-smi -L lists it there"),
        (False, False, "it is the only NVIDIA A100-PCIE-40GB in the samples and listings"),
        # Two boards of one model: which of them it is, nothing says.
        (False, True, None),
    ],
)
def test_a_process_list_of_the_board_is_tied_to_its_instance(
    tmp_path: Path, *, listing: bool, second: bool, how: str | None
) -> None:
    path = write(
        tmp_path / "x.sqlite", gpus=[INSTANCE], kernels=meeting(7, 0) + meeting(8, 50 * US), processes={7: "a", 8: "b"}
    )
    text = APPS.format(board=BOARD)
    if second:
        text += text.splitlines()[1].replace(BOARD, "88888888-2222-3333-4444-555555555555") + "\n"
    (tmp_path / "apps.csv").write_text(text)
    (tmp_path / "list.txt").write_text(LISTING.format(board=BOARD, one=INSTANCE["uuid"]))
    session = pyanalyze.load(path, samples=[tmp_path / "apps.csv"], context=[tmp_path / "list.txt"] if listing else [])
    verdict = session.classify()[0]
    assert verdict.mode == "mig+mps"
    boards = [detail.detail for detail in verdict.details if detail.name == "board"]
    assert boards == ([f"its board is GPU-{BOARD}: {how}"] if how else [])
    assert ("process_list" in {gap.what for gap in verdict.missing}) is (how is None)
    assert ("nvml_mps_server" in names(session)) is (how is not None)
    # Processes of other instances stand in the list as well.
    assert "nvml_several_processes" not in names(session)


def test_an_address_ties_an_instance_to_the_board_that_the_node_saw(tmp_path: Path) -> None:
    pod = write(tmp_path / "pod.sqlite", gpus=[INSTANCE], kernels=meeting(7, 0), duration_ns=100 * MS)
    board = A100 | {"uuid": BOARD}
    node = write(tmp_path / "node.sqlite", gpus=[board], switches=[(MS, 8, 1, 5)], duration_ns=100 * MS)
    session = pyanalyze.load([pod, node])
    (verdict,) = [v for v in session.classify() if "MIG" in v.device]
    (detail,) = [d.detail for d in verdict.details if d.name == "board"]
    assert detail == f"its board is GPU-{BOARD}: it has the same PCI address, 0000:18:00.0"


# -- co-residency infeasible -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("streams", "seen"),
    [
        ([(7, 7, 0), (8, 7, 0)], "co_residency_infeasible"),
        ([(7, 7, -5), (8, 7, -5)], "co_residency_infeasible"),
        # Of one of them nothing is known: a higher priority finds room in any wave.
        ([(7, 7, 0)], "co_residency_unlikely"),
        ([], "co_residency_unlikely"),
        ([(7, 7, 0), (8, 7, -1)], None),
    ],
)
def test_co_residency_infeasible_needs_equal_known_priorities(
    tmp_path: Path, streams: list[tuple[int, int, int]], seen: str | None
) -> None:
    """A's kernels have 10 waves; those in which one of B starts after two waves, and runs 4 ms, take 4 ms longer."""
    kernels = []
    for n in range(90):
        at = n * 12 * MS
        # 1,024 threads: 2 blocks on an SM, 216 at once.
        kernels.append(kernel(7, at, at + (6 if n % 3 else 10) * MS, gridX=2160, blockX=1024))
        if n % 3 == 0:
            kernels.append(kernel(8, at + 2 * MS, at + 6 * MS, gridX=108, blockX=1024))
    session = pyanalyze.load(write(tmp_path / "x.sqlite", kernels=kernels, streams=streams))
    told = {"co_residency_infeasible", "co_residency_unlikely"}
    assert names(session) & told == ({seen} if seen else set())


@pytest.mark.parametrize(("waves_left", "share"), [(2.2, 0.0), (2.3, 1.0)])
def test_co_residency_infeasible_needs_more_than_two_waves(tmp_path: Path, waves_left: float, share: float) -> None:
    kernels = []
    for n in range(30):
        at = n * 12 * MS
        kernels.append(kernel(7, at, at + 10 * MS, gridX=2160, blockX=1024))
        start = at + 10 * MS - int(waves_left * MS)
        kernels.append(kernel(8, start, start + MS, gridX=108, blockX=1024))
    path = write(tmp_path / "x.sqlite", kernels=kernels, streams=[(7, 7, 0), (8, 7, 0)])
    assert fact(pyanalyze.load(path), "crowded_start_share") == share


def test_co_residency_is_doubtful_where_no_kernel_is_longer_than_usual(tmp_path: Path) -> None:
    """A kernel that leaves SMs free under a cap looks the same: only a longer one was certainly switched out."""
    kernels = []
    for n in range(30):
        at = n * 12 * MS
        kernels.append(kernel(7, at, at + 10 * MS, gridX=2160, blockX=1024))
        kernels.append(kernel(8, at + 2 * MS, at + 3 * MS, gridX=108, blockX=1024))
    session = pyanalyze.load(write(tmp_path / "x.sqlite", kernels=kernels, streams=[(7, 7, 0), (8, 7, 0)]))
    assert "co_residency_doubtful" in names(session)
    assert session.classify()[0].mode == "undetermined"


# -- kernels that follow each other sooner than time slices ------------------------------------------------------------


def capped(pid: int, phase_ns: int, n: int = 300) -> list[dict[str, Any]]:
    """Kernels of 10 waves and 550 us every 600 us: two such processes, half a period apart, always have both in flight."""
    starts = (phase_ns + place * 600 * US for place in range(n))
    return [kernel(pid, at, at + 550 * US, gridX=2160, blockX=1024) for at in starts]


def test_large_kernels_that_follow_each_other_too_soon_for_time_slices_are_capped(tmp_path: Path) -> None:
    kernels = [*capped(7, 0), *capped(8, 300 * US)]
    path = write(tmp_path / "x.sqlite", kernels=kernels, streams=[(7, 7, 0), (8, 7, 0)])
    session = pyanalyze.load(path)
    (row,) = session.tables.rows("overlaps")
    # Every kernel but the first of each process: 600 us after the last one, beside one that ends 250 us later.
    assert (row["changes_in_flight"], row["quick_changes"], row["quick_changes_expected"]) == (598, 598, 598.0)
    assert {"changes_within_slice", "sms_left_free"} <= names(session)
    verdict = session.classify()[0]
    # How many waves a kernel has is modelled.
    assert (verdict.mode, verdict.basis) == ("mps-partitioned", "inferred")


def test_kernels_that_wait_a_slice_for_each_other_are_time_sliced(tmp_path: Path) -> None:
    """Each process has 19 kernels of 100 us in a slice of 2 ms, and one that is switched out for the other's slice."""
    kernels = []
    for turn in range(100):
        at, pid = turn * 2100 * US, 7 + turn % 2
        # The last kernel of the own slice before ends at once; the last of this one is switched out.
        kernels += [kernel(pid, at + (100 * n + 60) * US, at + (100 * n + 155) * US) for n in range(18)]
        kernels.append(kernel(pid, at + 1900 * US, at + 4250 * US))
    session = pyanalyze.load(write(tmp_path / "x.sqlite", kernels=sorted(kernels, key=lambda row: row["start"])))
    (row,) = session.tables.rows("overlaps")
    # The first kernel of each slice but the first of both processes; the 18 others of a slice follow after 100 us. Before
    # the first slice of process 7 none of the other was in flight, nor is the first kernel of process 8 behind another.
    assert (row["changes_in_flight"], row["quick_changes"]) == (98, 0)
    assert row["quick_changes_expected"] == pytest.approx(49 * 18 / 19 + 49 * 900 / 949)
    assert "changes_within_slice" not in names(session)
    assert session.classify()[0].mode == "time-slicing"


def test_processes_in_the_only_resident_context_are_mps_clients(tmp_path: Path) -> None:
    """Kernels in between each other, never at once; the one context on the GPU is named after one of the processes."""
    kernels = [kernel(7 + n % 2, n * MS, n * MS + 400 * US) for n in range(400)]
    made: dict[str, Any] = {"kernels": kernels, "processes": {7: "a", 8: "b"}}
    one = pyanalyze.load(write(tmp_path / "x.sqlite", switches=resident(7, 1, 0, 400 * MS), **made))
    assert "several_in_one_context" in names(one)
    assert "sole_resident" not in names(one)
    verdict = one.classify()[0]
    assert (verdict.mode, verdict.basis) == ("mps", "observed")
    (device,) = one.report().devices
    assert [relation.relation for relation in device.relations] == ["side-by-side"]
    assert all(tenant.gpu_time_share is None or tenant.gpu_time_share < 1.0 for tenant in device.tenants)
    # Records that were lost may be those of a second context.
    lost = write(tmp_path / "y.sqlite", switches=resident(7, 1, 0, 400 * MS), lost=[1], **made)
    assert "several_in_one_context" not in names(pyanalyze.load(lost))


@pytest.mark.parametrize("instance", [False, True])
def test_clocks_of_two_captures_may_be_wrong_by_more_than_short_kernels_last(tmp_path: Path, *, instance: bool) -> None:
    """Two exports of one host agree to 1 ms: kernels of 100 us that seem to meet may be those of two time slices."""
    gpus = [INSTANCE if instance else A100]

    def at(pid: int, phase_ns: int) -> list[dict[str, Any]]:
        return [kernel(pid, phase_ns + n * 300 * US, phase_ns + n * 300 * US + 100 * US) for n in range(400)]

    epoch_ns = 1_790_000_000_000_000_000
    paths = [
        write(tmp_path / f"{pid}.sqlite", gpus=gpus, kernels=at(pid, 0), epoch_ns=epoch_ns + (pid - 7) * 50 * US)
        for pid in (7, 8)
    ]
    session = pyanalyze.load(paths)
    assert session.capture["clock_uncertainty_ns"].to_list() == [0, MS]
    assert names(session).isdisjoint({"short_kernels_overlap", "changes_within_slice"})
    assert session.classify()[0].mode == "undetermined"
    # In one capture they have one clock.
    both = write(tmp_path / "both.sqlite", gpus=gpus, kernels=at(7, 0) + at(8, 50 * US))
    assert pyanalyze.load(both).classify()[0].mode == ("mig+mps" if instance else "mps")


def test_large_kernels_of_two_exports_that_left_sms_free_were_in_instances_of_their_own() -> None:
    """Some exports show the board's UUID for each of two instances."""
    facts = {"busy_ns": 1e9, "traced_tenants": 2, "co_busy_share": 0.5, "crowded_start_share": 0.4}
    pair = Pair((0, 1), 100 * MS, 0, 0, changes=500, quick_changes=400, one_capture=False)
    verdict = judge(case(facts, mig_profile="3g.20gb", pairs=[pair]))
    assert verdict.mode == "undetermined"
    assert "instances" in {gap.what for gap in verdict.missing}
    # Processes of one capture tell their instances apart: one of these is capped.
    assert "instance_unknown" not in observe(
        case(facts, mig_profile="3g.20gb", pairs=[replace(pair, one_capture=True)])
    )


# -- bounds, and operations that no call launched ---------------------------------------------------------------------


def test_migrations_have_no_launch_call_and_hide_none(tmp_path: Path, fixtures: Path) -> None:
    """As many migrations of unified memory as kernels: launch calls of all kernels are there all the same."""
    path = tmp_path / "x.sqlite"
    path.write_bytes((fixtures / "demo-time-slicing.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as database, database:
        (kernels,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        columns = [row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_MEMCPY)")]
        chosen = {"correlationId": "0", "copyKind": "11", "end": "start + 1000", "bytes": "4096"}
        values = ", ".join(chosen.get(column, f'"{column}"') for column in columns)
        (copies,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()
        assert copies
        for _ in range(-(-kernels // copies)):
            database.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY SELECT {values} FROM CUPTI_ACTIVITY_KIND_MEMCPY "
                f"WHERE correlationId > 0 LIMIT {copies}"
            )
    plain, migrating = (pyanalyze.load(one).interference()[0] for one in (fixtures / "demo-time-slicing.sqlite", path))
    for mine, other in zip(migrating.tenants, plain.tenants, strict=True):
        assert "launch calls are not in the capture" not in " ".join([mine.missing or "", *mine.notes])
        assert (mine.slowdown.latency is None) is (other.slowdown.latency is None)
    assert sum(tenant.slowdown.latency is not None for tenant in migrating.tenants) == 2


def test_execution_at_full_speed_says_nothing_of_waiting(fixtures: Path) -> None:
    device = pyanalyze.load(fixtures / "demo-time-slicing.sqlite").report().devices[0]
    resident_only = []
    for tenant in (tenant for tenant in device.tenants if tenant.slowdown.latency is not None):
        assert tenant.slowdown.latency is not None
        unslowed = tenant.slowdown.latency.model_copy(update={"value": 1.0, "low": 0.99, "high": 1.01})
        slowdown = tenant.slowdown.model_copy(update={"elapsed": None, "latency": None, "resident": unslowed})
        resident_only.append(tenant.model_copy(update={"slowdown": slowdown, "causes": None}))
    assert len(resident_only) == 2
    found = impact_of(device.model_copy(update={"tenants": resident_only}))
    assert found.answer == "unknown"


def test_facts_that_are_new_are_seen_by_rules() -> None:
    """Both sides of what an MPS group beside another process takes without switch records."""
    facts = {"busy_ns": 1e9, "traced_tenants": 3, "kernels": 2000, "repeats": 2000, "inflation_spread": 0.01}
    excess = {"inflation_ns": Fact(2.2e6, "ns", 57, "inferred", "hand-made")}
    made = replace(case(facts), facts={**case(facts).facts, **excess})
    server = (Configured("process-list", "mps_daemon", "nvidia-cuda-mps-server"),)
    for co_busy_ms, seen in (
        (57 / t.MAX_INTERRUPTED_SHARE * 2.2 + 0.1, True),
        (57 / t.MAX_INTERRUPTED_SHARE * 2.2 - 0.1, False),
    ):
        pairs = (Pair((0, 1), int(co_busy_ms * 1e6), 0, 0),)
        assert ("mps_group_interrupted" in observe(replace(made, pairs=pairs, configured=server))) is seen
        assert "mps_group_interrupted" not in observe(replace(made, pairs=pairs))
    # Of kernels that are not repeated nobody knows whether they were interrupted.
    for repeats, seen in ((t.MIN_REPEATED_SHARE * 2000, True), (t.MIN_REPEATED_SHARE * 2000 - 1, False)):
        some = {**made.facts, "repeats": Fact(repeats, "1", 2000, "observed", "hand-made")}
        pairs = (Pair((0, 1), int(1e9), 0, 0),)
        found = observe(replace(made, facts=some, pairs=pairs, configured=server))
        assert ("mps_group_interrupted" in found) is seen


# -- launches whose kernels have no record ----------------------------------------------------------------------------


def calls(pid: int, *rows: tuple[int, str, int, int]) -> list[dict[str, Any]]:
    """API calls of 5 us: start, name, correlation id, what they returned."""
    return [
        {
            "start": start, "end": start + 5 * US, "eventClass": 0, "globalTid": exports.global_pid(pid) + pid,
            "correlationId": correlation, "nameId": name, "returnValue": returned,
        }
        for start, name, correlation, returned in rows
    ]  # fmt: skip


def test_launches_without_a_kernel_are_counted_and_their_errors_named(tmp_path: Path) -> None:
    """Three launches, a failing synchronisation, no kernel: the GPU was not idle, and -t cuda was set."""
    made = calls(
        7, (1000, "cudaLaunchKernel_v7000", 1, 0), (9000, "cudaLaunchKernel_v7000", 2, 0),
        (20_000, "cudaStreamQuery_v3020", 3, 600), (30_000, "cudaDeviceSynchronize_v3020", 4, 700),
        (40_000, "cudaLaunchKernel_v7000", 5, 700),
    )  # fmt: skip
    path = write(tmp_path / "x.sqlite", processes={7: "a"}, calls=made)
    verdict = pyanalyze.load(path).classify()[0]
    said = (
        "3 of 3 launch calls have no kernel record; 1 cudaDeviceSynchronize call failed with error 700 (illegal address); "
        "1 cudaLaunchKernel call failed with error 700 (illegal address)"
    )
    assert said in verdict.summary
    assert [gap.why for gap in verdict.missing if gap.what == "kernel_records"] == [said]
    report = pyanalyze.load(path).report().devices[0]
    # Whoever is asked to trace again is asked for switch records, which are missing.
    asked = [gap for gap in report.sharing.missing if gap.how.startswith("nsys profile -t cuda")]
    assert asked and all("--gpuctxsw=true" in gap.how for gap in asked)
    assert "kernels" not in {gap.what for gap in report.sharing.missing}


def test_some_lost_kernels_are_counted_and_captured_graphs_are_not(tmp_path: Path) -> None:
    kernels = [kernel(7, 50 * US, 90 * US), kernel(7, 100 * US, 190 * US)]
    made = calls(
        7, (1000, "cudaLaunchKernel_v7000", 1, 0), (9000, "cuLaunchKernel", 2, 0),
        # A launch into a graph that is being captured runs nothing.
        (20_000, "cudaStreamBeginCapture_v10000", 3, 0), (30_000, "cudaLaunchKernel_v7000", 4, 0),
        (40_000, "cudaStreamEndCapture_v10000", 5, 0), (60_000, "cudaLaunchKernelExC_v11060", 6, 0),
    )  # fmt: skip
    report = pyanalyze.load(write(tmp_path / "x.sqlite", kernels=kernels, calls=made)).report().devices[0]
    (gap,) = [gap for gap in report.sharing.missing if gap.what == "unfinished_kernels"]
    assert gap.why == "1 of 3 launch calls has no kernel record: the recording ended first"
    # Something is always in flight where a recording ends: nothing is wrong, and nothing is to be done.
    assert gap.how == ""


def test_work_whose_records_were_cut_off_asks_for_the_whole_export(hardware: Path) -> None:
    """The program went on: one of its ranges ends 28 ms after the window, and nsys stopped 2 s after it."""
    path = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    page = run("report", path, "-f", "md").stdout
    lost = "3 of 716 launch calls (a graph counts as one) have no kernel record"
    assert f"{lost}: rows were removed from the export" in page
    assert "the recording ended first" not in page
    assert "cudaDeviceSynchronize before" not in page
    # What stands in a block is to be copied to a shell.
    blocks = re.findall(r"```sh\n(.+?)\n```", page.partition("## Not available")[2], re.DOTALL)
    assert {block.split()[0] for block in blocks} == {"nsys", "nvidia-smi"}


def test_only_cuda_tracing_ended_where_ranges_of_launching_threads_go_on(hardware: Path, tmp_path: Path) -> None:
    """The same, without what nsys says of how many events it collected: then nothing shows that rows were removed."""
    path = tmp_path / "no-diagnostics.sqlite"
    shutil.copy(hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite", path)
    with closing(sqlite3.connect(path)) as db, db:
        ((of_ranges,),) = db.execute(
            'SELECT max("end") FROM NVTX_EVENTS WHERE globalTid IN (SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME)'
        )
        ends = [
            db.execute(f'SELECT max("end") FROM CUPTI_ACTIVITY_KIND_{kind}').fetchone()[0]
            for kind in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION")
        ]
        db.execute("DELETE FROM DIAGNOSTIC_EVENT WHERE text LIKE '%collected%'")
    assert 27 * MS < of_ranges - max(ends) < 28 * MS
    page = run("report", path, "-f", "md").stdout
    assert "3 of 716 launch calls (a graph counts as one) have no kernel record: CUDA tracing ended first" in page


def test_real_launches_have_their_kernels(corpus: Path) -> None:
    """All launches of these captures that were not captured into graphs have a record."""
    from pyanalyze.tables.launch_records import launch_records

    for name, launches in (
        ("balinski/report19.sqlite", 9359),
        # 9 calls, 4 of them while a graph was captured.
        ("concurrent-examples/cuda_graph_profile@b6984eb.nsys2025.sqlite", 5),
        # 37,677 calls, 22,022 of them while graphs were captured.
        ("ngp-graph/baseline.nsys2026.sqlite", 15_655),
    ):
        found = launch_records(pyanalyze.load(corpus / "exports" / name).tables)
        assert found is not None
        assert (found.launches, found.without_record) == (launches, 0)


# -- the mode over time -----------------------------------------------------------------------------------------------


def test_a_part_without_samples_is_judged_without_sorting_its_rows_in_frames(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some 18 parts of a few rows are judged: a question to a frame takes longer than all of Python does there."""
    tables = pyanalyze.load(fixtures / "demo-time-slicing.sqlite").tables
    (part,) = narrowed_parts(tables, [(300 * MS, 600 * MS)])
    assert part is not None

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a frame was asked")

    with monkeypatch.context() as patch:
        for question in ("select", "with_columns", "group_by", "partition_by", "join", "sort", "unique"):
            patch.setattr(pl.DataFrame, question, refuse)
        assert [str(verdict.mode) for verdict in verdicts_of(part, cases_of(part))] == ["time-slicing"]
    # Who followed whom, counted row by row.
    rows = [(row["from_tenant_id"], row["to_tenant_id"]) for row in part.switches.to_dicts() if row["device_id"] == 0]
    assert part.switched(0) == {pair: rows.count(pair) for pair in rows if None not in pair}


# -- the calibration --------------------------------------------------------------------------------------------------


def test_the_calibration_was_made_with_these_rules() -> None:
    assert calibration()["decided_by"] == bench.decided_by(), "run `make calibrate`"
    assert calibration()["scenario_seeds"] >= 1000


def test_what_decides_a_verdict_changes_the_digest_and_wording_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = bench.decided_by()
    first, *others = RULES
    (name, (weight, why)), *_ = first.weights.items()
    for changed, same in (((weight, f"{why}, in other words"), True), ((weight + 0.1, why), False)):
        rule = replace(first, weights={**first.weights, name: changed})
        monkeypatch.setattr("verdicts.RULES", (rule, *others))
        assert (bench.decided_by() == now) is same
    monkeypatch.setattr("verdicts.RULES", (replace(first, prior=-1.0), *others))
    assert bench.decided_by() != now
