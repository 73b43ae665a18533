"""Captures with one UUID and two models are refused: merged, GPU time of one board would pass 100 %."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from command_line import run
from exports import A100, US, kernel, write

import pyanalyze
from pyanalyze.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


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
