"""What is wrong with GPUs and with MPS, by samples and logs: on the first screen, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import run

import pyanalyze
from pyanalyze.analysis.gate import check
from pyanalyze.report.sampled_text import health_of_all
from pyanalyze.results.check import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.report import Report

SICK = """==============NVSMI LOG==============
Attached GPUs : 1
GPU 00000000:00:09.0
    GPU UUID : GPU-1
    GPU Recovery Action : Reset
    Clocks Event Reasons
        HW Slowdown : Active
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity : 1
            SRAM Uncorrectable SEC-DED : 20
            DRAM Uncorrectable : 300
        Channel Repair Pending : Yes
        TPC Repair Pending : Yes
        Unrepairable Memory : No
    Remapped Rows
        Pending : Yes
        Remapping Failure Occurred : Yes
"""

TABLE = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA L40S                    On  |   00000000:07:00.0 Off |                    0 |
| N/A   61C    P0            310W /  350W |   45000MiB /  46068MiB |     98%      Default |
|                                         |                        |                  N/A |
|   1  NVIDIA L40S                    On  |   00000000:0B:00.0 Off |                    2 |
| N/A   61C    P0            310W /  350W |   20000MiB /  46068MiB |     98%      Default |
|                                         |                        |                  N/A |
|   2  NVIDIA L40S                    On  |   00000000:0C:00.0 Off |                  N/A |
| N/A   61C    P0            310W /  350W |   20000MiB /  46068MiB |     98%      Default |
|                                         |                        |                  N/A |
"""


def of(folder: Path, text: str, option: str = "samples") -> Report:
    """The report of a file with that text."""
    file = folder / "input.txt"
    file.write_text(text)
    return pyanalyze.load(**{option: file}).report()  # type: ignore[arg-type]


def test_uncorrected_errors_are_the_sum_of_their_parts_and_faults_are_named(tmp_path: Path) -> None:
    report = of(tmp_path, SICK)
    sampled = report.devices[0].sampled
    assert sampled is not None
    # 1 + 20 + 300.
    assert sampled.ecc_uncorrected == 321
    assert sampled.recovery_action == "Reset"
    assert set(sampled.faults or ()) == {
        "row-remapping-failed",
        "row-remapping-pending",
        "channel-repair-pending",
        "tpc-repair-pending",
    }
    errors, faults, action, clocks = health_of_all(report)
    assert errors == "321 uncorrected ECC errors"
    assert "row remapping failed" in faults
    assert action == "the driver asks for: Reset"
    assert clocks.startswith("clocks throttled: hardware slowdown in 100 %")
    screen = " ".join(run(tmp_path / "input.txt").stdout.split())
    assert "Health 321 uncorrected ECC errors; row remapping failed" in screen


def test_a_healthy_gpu_has_no_faults_and_what_was_not_asked_is_not_none(tmp_path: Path) -> None:
    healthy = (
        SICK.replace("Yes", "No").replace(": Reset", ": None").replace("Slowdown : Active", "Slowdown : Not Active")
    )
    for number in (" : 1\n", " : 20\n", " : 300\n"):
        healthy = healthy.replace(number, " : 0\n")
    report = of(tmp_path, healthy.replace("Attached GPUs : 0", "Attached GPUs : 1"))
    sampled = report.devices[0].sampled
    assert sampled is not None
    assert (sampled.faults, sampled.recovery_action, sampled.ecc_uncorrected) == ([], "None", 0)
    assert health_of_all(report) == []
    other = of(tmp_path, "# gpu  sm\n# Idx  %\n 0  37\n").devices[0].sampled
    assert other is not None
    assert (other.faults, other.recovery_action, other.ecc_uncorrected) == (None, None, None)


def test_every_gpu_is_on_the_first_screen_and_the_worst_is_first(tmp_path: Path) -> None:
    report = of(tmp_path, TABLE)
    counts = [one.sampled.ecc_uncorrected for one in report.devices if one.sampled is not None]
    assert counts == [0, 2, None]
    # 46068 - 45000 = 1068 MiB are 1.04 GiB of 45.0 GiB.
    assert health_of_all(report) == [
        "device 1: 2 uncorrected ECC errors",
        "device 0: memory almost full: 1.04 GiB of 45.0 GiB free at the peak",
    ]
    page = " ".join(run("report", "-f", "txt", tmp_path / "input.txt").stdout.split())
    assert "Device 1: 2 uncorrected ECC errors. Device 0: memory almost full" in page
    screen = " ".join(run(tmp_path / "input.txt").stdout.split())
    assert "Health device 1: 2 uncorrected ECC errors; device 0: memory almost full" in screen


def test_memory_in_use_and_free_are_the_memory(tmp_path: Path) -> None:
    """DCGM exporters have no total: 79000 of 79000 + 1900 MiB are 97.65 %; of an instance 9700 of 9728."""
    labels = 'gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000001"'
    text = f"DCGM_FI_DEV_FB_USED{{{labels}}} 79000\nDCGM_FI_DEV_FB_FREE{{{labels}}} 1900\n"
    report = of(tmp_path, text)
    memory = report.devices[0].memory
    assert memory is not None
    assert (memory.total_bytes, memory.peak_bytes) == (80_900 << 20, 79_000 << 20)
    assert health_of_all(report) == ["memory almost full: 1.86 GiB of 79.0 GiB free at the peak"]
    (outcome,) = check(report, Limits(max_memory=0.9)).outcomes
    assert outcome.status == "failed"
    assert outcome.value == pytest.approx(79_000 / 80_900)
    instance = f'{labels},GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"'
    text = f"DCGM_FI_DEV_FB_USED{{{instance}}} 9700\nDCGM_FI_DEV_FB_FREE{{{instance}}} 28\n"
    assert "memory almost full: 28.0 MiB of 9.50 GiB" in " ".join(health_of_all(of(tmp_path, text)))
    # In use alone says nothing of how much there is.
    alone = of(tmp_path, f"DCGM_FI_DEV_FB_USED{{{labels}}} 79000\n").devices[0].memory
    assert alone is not None
    assert alone.total_bytes is None


def test_a_bit_for_temperature_is_throttling(tmp_path: Path) -> None:
    report = of(tmp_path, "# gpu  sm  pviol  tviol\n# Idx  %  %  bool\n 0  90  0  0\n 0  95  0  1\n")
    assert health_of_all(report) == ["clocks throttled: temperature limit in 50 % of 2 samples"]


CONTROL = """[2026-06-25 13:59:00.001 Control  8800] Starting control daemon using socket /tmp/nvidia-mps/control
[2026-06-25 14:00:00.101 Control  8800] NEW CLIENT 9012 from user 1000: Server is not ready, push client to pending list
[2026-06-25 14:00:00.102 Control  8800] Starting new server 8810 for user 1000
[2026-06-25 14:00:00.900 Control  8800] NEW SERVER 8810: Ready
[2026-06-25 14:05:01.001 Control  8800] NEW CLIENT 9555 from user 1001: Server is not ready, push client to pending list
"""


def test_an_mps_client_behind_the_server_of_another_user_waits(tmp_path: Path) -> None:
    report = of(tmp_path, CONTROL, "context")
    assert health_of_all(report) == ["MPS client 9555 waits: the MPS server of another user is running"]
    # The first client waited for its own server, which came; the other is not connected.
    assert {one.pid for one in report.settings if one.key == "mps_client"} == {9012}
    served = CONTROL + (
        "[2026-06-25 14:06:00.000 Control  8800] Starting new server 8900 for user 1001\n"
        "[2026-06-25 14:06:01.000 Control  8800] NEW SERVER 8900: Ready\n"
    )
    report = of(tmp_path, served, "context")
    assert health_of_all(report) == []
    assert {one.pid for one in report.settings if one.key == "mps_client"} == {9012, 9555}


def test_a_failed_mps_server_is_on_the_first_screen(tmp_path: Path) -> None:
    log = "[2026-06-25 14:00:00.901 Server  8810] Server has started\n[2026-06-25 14:03:00.951 Server  8810] "
    log += "Client process encountered fatal GPU error with status 999. Server status is FAULT\n"
    file = tmp_path / "server.log"
    file.write_text(log)
    assert "Health MPS server 8810 failed with a fatal GPU error" in " ".join(run(file).stdout.split())


def test_rows_without_times_are_counted_and_gaps_are_told(tmp_path: Path) -> None:
    """`-` in two of five samples of one process: 70 % is a mean of three, of five if the others were idle 42 %."""
    head = "# gpu  pid  type  sm  command\n# Idx  #  C/G  %  name\n"
    rows = "".join(f" 0  11  C  20  web\n 0  12  C  {use}  train\n" for use in ("60", "-", "70", "-", "80"))
    report = of(tmp_path, head + rows)
    (device,) = report.devices
    assert device.sampled is not None
    assert device.sampled.n == 5
    share = next(one.utilization for one in device.listed if one.pid == 12)
    assert share is not None
    assert (share.value, share.low, share.n, share.listed) == pytest.approx((0.7, 0.42, 3, 5))
    screen = " ".join(run(tmp_path / "input.txt").stdout.split())
    assert "Use mean of 5 samples: train kernels 70.0 % (in 3 of 5 samples; the others have no value)" in screen
    assert "Sampled 5 samples" in screen
