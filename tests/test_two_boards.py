"""Captures of several boards: one UUID with two models is refused, and what is said of one machine is of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import run
from exports import A100, US, kernel, write

import pyanalyze
from pyanalyze.errors import UsageError


def captures(folder: Path, **changes: Any) -> list[Path]:
    """Two processes, each with a capture and work of its own; the second shows a changed board."""
    found = []
    for pid, board in ((41, A100), (42, A100 | changes)):
        kernels = [kernel(pid, n * 300 * US, n * 300 * US + 200 * US) for n in range(pid)]
        path = folder / f"{pid}.sqlite"
        found.append(write(path, kernels=kernels, processes={pid: "a"}, gpus=[board]))
    return found


def test_one_board_is_merged(tmp_path: Path) -> None:
    assert pyanalyze.load(captures(tmp_path)).devices.height == 1


def test_a_client_of_mps_that_sees_fewer_sms_is_on_the_same_board(tmp_path: Path) -> None:
    """Memory and L2 are whole under an MPS percentage."""
    assert pyanalyze.load(captures(tmp_path, smCount=54)).devices.height == 1


@pytest.mark.parametrize(
    "changes",
    [{"name": "NVIDIA A10G"}, {"smCount": 80, "totalMemory": 24 << 30}, {"smCount": 42, "l2CacheSize": 20 << 20}],
)
def test_one_uuid_on_two_boards_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    paths = captures(tmp_path, **changes)
    with pytest.raises(UsageError, match=r"as two boards: NVIDIA A100-PCIE-40GB with 108 SMs, and NVIDIA"):
        pyanalyze.load(paths)
    done = run(*paths)
    assert done.returncode == UsageError.exit_code
    assert "give the captures one by one" in done.stderr
    # One by one they are what they say.
    for path in paths:
        assert pyanalyze.load(path).devices.height == 1


# -- captures of several machines -------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures/captures/demo-time-slicing.sqlite"
NODE = ROOT / "fixtures/hardware/h200/node-mps-A-B-beside-C"
TIMESLICE = "exports/ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite"
MPS = "exports/concurrent-examples/mps_profile.nsys2025.sqlite"


def verdicts(*paths: Path, **beside: Any) -> list[dict[str, Any]]:
    """What is said of each device, without its number."""
    found = pyanalyze.load(paths, **beside).classify()
    return [verdict.model_dump(exclude={"device_id"}) for verdict in found]


def without_places(verdict: dict[str, Any]) -> dict[str, Any]:
    """Leave out queries, and the positions of examples: of two captures each has another zero."""
    evidence = [{k: v for k, v in one.items() if k not in ("sql", "examples")} for one in verdict["evidence"]]
    return verdict | {"evidence": evidence}


@pytest.mark.parametrize("swapped", [False, True])
def test_settings_beside_one_capture_are_not_those_of_another_machine(swapped: bool) -> None:
    """A node.json with an MPS daemon, beside a capture of another machine: each verdict is the one it has alone."""
    paths = [NODE, DEMO] if swapped else [DEMO, NODE]
    alone = [without_places(verdicts(path)[0]) for path in paths]
    assert [verdict["configured"] for verdict in alone] == (["mps", None] if swapped else [None, "mps"])
    assert [without_places(verdict) for verdict in verdicts(*paths)] == alone


@pytest.mark.parametrize("other", [MPS, None])
def test_a_process_list_is_of_the_machine_that_it_was_read_on(corpus: Path, other: str | None) -> None:
    """Two real captures with one host name, of an Ada board and an A10G at another address; and one of an H200."""
    paths = [corpus / TIMESLICE, NODE if other is None else corpus / other]
    alone = [without_places(verdicts(path)[0]) for path in paths]
    assert [without_places(verdict) for verdict in verdicts(*paths)] == alone
    session = pyanalyze.load(paths)
    advice = " ".join(line for one in session.advise()[0].actions for line in one.commands)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in advice


def test_settings_without_a_gpu_are_of_none_of_several_machines(tmp_path: Path) -> None:
    """An MPS log names no board: with one machine it is of that, with two it is said to be of none."""
    log = tmp_path / "control.log"
    log.write_text(
        "[2026-03-04 10:00:00.100 Control   261] Starting control daemon using socket /tmp/mps/control\n"
        "[2026-03-04 10:00:01.202 Control   261] Starting new server 263 for user 1000\n",
        encoding="utf-8",
    )
    (one,) = verdicts(DEMO, context=log)
    assert one["configured"] == "mps"
    session = pyanalyze.load([DEMO, NODE], context=log)
    assert [verdict.configured for verdict in session.classify()] == [None, "mps"]
    (row,) = [row for row in session.quality.to_dicts() if row["name"] == "settings_not_placed"]
    assert row["detail"].startswith("settings (mps-log) name no GPU, and the captures are of several machines")
    # The one of the recording itself is not read twice.
    assert [row["pid"] for row in session.tables.settings_of(1) if row["key"] == "mps_server"] == [713]


def test_a_listing_of_one_machine_is_of_its_boards(tmp_path: Path) -> None:
    """`node.json` given by hand names the H200 by its UUID."""
    session = pyanalyze.load([DEMO, NODE / "report.sqlite"], context=NODE / "node.json")
    assert not any(row["key"].startswith("CUDA_MPS") for row in session.tables.settings_of(0))
    assert any(row["key"] == "CUDA_MPS_PIPE_DIRECTORY" for row in session.tables.settings_of(1))


def test_settings_in_a_pack_are_of_its_captures(tmp_path: Path) -> None:
    log, packed = tmp_path / "control.log", tmp_path / "demo.pack"
    log.write_text(
        "[2026-03-04 10:00:00.100 Control   261] Starting control daemon using socket /tmp/mps/control\n"
        "[2026-03-04 10:00:01.202 Control   261] Starting new server 263 for user 1000\n",
        encoding="utf-8",
    )
    assert run("pack", DEMO, "--context", log, "-o", packed, "--key", tmp_path / "key").returncode == 0
    session = pyanalyze.load([NODE, packed])
    assert [row["pid"] for row in session.tables.settings_of(1) if row["key"] == "mps_server"] == [263]
    assert [row["pid"] for row in session.tables.settings_of(0) if row["key"] == "mps_server"] == [713]


def test_what_one_capture_says_of_its_machine_is_of_all_captures_of_the_board(tmp_path: Path) -> None:
    """Two containers on one board: the MPS percentage of one's command line stands, as before, for the machine."""
    session = pyanalyze.load(captures(tmp_path))
    assert session.tables.machines == (0, 0)
    assert session.tables.captures_of(0) == {0, 1}
