"""Does the recorder see what NVML says, say why where it does not, and never stand in the way of the command?

The binding is NVIDIA's own (nvidia-ml-py); the library under it is a stand-in compiled here, so that tests need no GPU.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest

import pyanalyze
from pyanalyze.cli.schemas import schema_of
from pyanalyze.core import _core
from pyanalyze.errors import GpuUnavailable
from pyanalyze.inputs.context import read_context
from pyanalyze.nsys_tool import find_nsys
from pyanalyze.record import diagnose, doctor, pod_manifest, setup
from pyanalyze.record import node as node_facts
from pyanalyze.record.launch import Wanted, options_for
from pyanalyze.text.allowlist import ALLOWED, is_allowed

ROOT = Path(__file__).parent.parent
MAIN = [sys.executable, "-c", "from pyanalyze.cli import main; main()"]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the stand-in."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (pip install -r requirements-dev.lock)")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the NVML stand-in")
    folder = tmp_path_factory.mktemp("nvml")
    source = ROOT / "tests/nvml_stand_in/nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


def environment(library: Path, machine: str, **more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": machine, "PYTHONPATH": paths, **more}


def run(library: Path, machine: str, *arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    env = environment(library, machine, **more.pop("env", {}))
    command = [*MAIN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, **more)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("machine", ["a100-mig", "h100-mps", "vgpu-guest"])
@pytest.mark.parametrize("verb", ["now", "doctor"])
def test_what_is_asked_of_a_machine_fits_its_schema(library: Path, machine: str, verb: str) -> None:
    result = run(library, machine, verb, "-f", "json")
    assert result.returncode == 0, result.stderr
    body = json.loads(result.stdout)
    jsonschema.validate(body, schema_of(verb))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**body, "more": 1}, schema_of(verb))


def test_now_shows_an_a100_with_mig(library: Path) -> None:
    result = run(library, "a100-mig", "now", "-f", "json")
    assert result.returncode == 0, result.stderr
    (gpu,) = json.loads(result.stdout)["gpus"]
    assert gpu["setup"]["mode"] == "mig"
    # What NVML refuses under MIG is null with its reason, not zero.
    assert gpu["sampled"]["gpu_utilization_pct"] is None
    assert gpu["errors"]["gpu_utilization_pct"] == "NVML_ERROR_NOT_SUPPORTED"
    found = [(i["uuid"], i["configured"]["mig_gi_id"], i["configured"]["sm_count"]) for i in gpu["instances"]]
    assert found == [("MIG-a", 1, 42), ("MIG-b", 2, 56)]
    places = {p["pid"]: (p["gpu_uuid"], p["type"], p["sampled"]["process_memory_bytes"]) for p in gpu["processes"]}
    assert places == {4101: ("MIG-a", "C", 512 << 20), 4102: ("MIG-b", "C", None)}
    assert gpu["processes"][1]["errors"]["process_memory_bytes"] == "NVML_VALUE_NOT_AVAILABLE"
    assert "observed" not in result.stdout


def test_now_shows_mps_clients_and_no_command_line(library: Path) -> None:
    result = run(library, "h100-mps", "now", "-f", "json")
    (gpu,) = json.loads(result.stdout)["gpus"]
    assert (gpu["setup"]["mode"], gpu["configured"]["compute_mode"]) == ("mps", "Exclusive_Process")
    assert [(p["pid"], p["type"], p["name"]) for p in gpu["processes"]] == [
        (4100, "C", "/usr/bin/nvidia-cuda-mps-server"),
        (4101, "M+C", "/opt/train"),
        (4102, "M+C", "/opt/serve"),
    ]
    # The newest of two samples; none of the other process is not zero.
    assert [p["sampled"]["process_sm_pct"] for p in gpu["processes"]] == [None, 33, None]
    assert gpu["sampled"]["clocks_event_reasons.sw_power_cap"] == 1
    assert gpu["sampled"]["clocks_event_reasons.hw_slowdown"] == 0
    assert (gpu["sampled"]["power_w"], gpu["sampled"]["clock_sm_hz"]) == (250.1, 1_401_000_000)
    table = run(library, "h100-mps", "now").stdout
    assert "M+C" in table
    assert "hunter2" not in table + result.stdout


def test_a_recording_ends_with_the_status_of_the_command(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    result = run(library, "h100-mps", "record", "-o", out, "--rate", "50", "--", "sh", "-c", "sleep 1; exit 7")
    assert result.returncode == 7, result.stderr
    assert f"to analyse: pyanalyze {out}" in result.stderr
    found = lines(out)
    assert found[0]["format"] == "pyanalyze.samples/1"
    end = found[-1]["end"]
    assert (end["why"], end["lost_lines"]) == ("command ended", 0)
    assert end["period_share"] == pytest.approx(end["mean_sample_ns"] / 20e6)
    boards = [e for e in found if "metrics" in e and "pid" not in e]
    assert len(boards) == end["samples"] >= 3
    times = [e["time_utc_ns"] for e in boards]
    assert times == sorted(times)
    assert abs(times[-1] - time.time_ns()) < 60e9
    node = json.loads((out / "node.json").read_text())
    assert node["gpus"][0]["gpu_uuid"] == "GPU-h100"
    assert set(node["processes"]) == {"4100", "4101", "4102"}
    assert "hunter2" not in (out / "node.json").read_text() + (out / "samples.jsonl").read_text()
    again = run(library, "h100-mps", "record", "-o", out, "--", "true")
    assert again.returncode == 2
    assert lines(out) == found


def test_a_crash_of_the_command_is_survived(library: Path, tmp_path: Path) -> None:
    result = run(library, "h100-mps", "record", "-o", tmp_path / "r", "--", "sh", "-c", "kill -SEGV $$")
    assert result.returncode == 128 + signal.SIGSEGV
    assert lines(tmp_path / "r")[-1]["end"]["why"] == "command ended by signal 11"


def test_ctrl_c_leaves_the_command_to_itself(library: Path, tmp_path: Path) -> None:
    """The terminal sends SIGINT to both; a command that goes on is waited for."""
    out = tmp_path / "r"
    stubborn = "trap 'echo got it' INT; touch ready; sleep 1; sleep 1; exit 5"
    command = [*MAIN, "record", "-o", str(out), "--rate", "20", "--", "sh", "-c", stubborn]
    env = environment(library, "h100-mps")
    process = subprocess.Popen(
        command,
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(600):
        if (tmp_path / "ready").exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 5, stderr
    assert stdout == "got it\n"
    assert lines(out)[-1]["end"]["why"] == "command ended"


def test_a_kill_of_the_recorder_leaves_whole_lines_and_the_command_running(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    command = [*MAIN, "record", "-o", str(out), "--rate", "50", "--", "sh", "-c", "sleep 2; touch survived"]
    process = subprocess.Popen(
        command,
        env=environment(library, "h100-mps"),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(600):
        if (out / "samples.jsonl").exists() and len((out / "samples.jsonl").read_bytes().splitlines()) > 20:
            break
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert len(lines(out)) > 20
    for _ in range(200):
        if (tmp_path / "survived").exists():
            break
        time.sleep(0.1)
    assert (tmp_path / "survived").exists()


def test_a_full_disk_costs_samples_only(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    limit = 24_000  # bytes a file may have, for the recorder and what it starts
    result = run(
        library, "h100-mps", "record", "-o", out, "--rate", "50", "--", "sh", "-c", "sleep 2; exit 3",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert result.returncode == 3, result.stderr
    assert "samples cannot be written" in result.stderr
    assert not result.stderr.count("samples cannot be written") > 1
    found = lines(out)  # every line is whole
    assert len(found) > 10
    assert (out / "samples.jsonl").stat().st_size <= limit


def test_a_gpu_that_falls_off_the_bus(library: Path, tmp_path: Path) -> None:
    out, flag = tmp_path / "r", tmp_path / "lost"
    result = run(
        library, "lost", "record", "-o", out, "--rate", "20", "--", "sh", "-c", f"sleep 1; touch {flag}; sleep 1",
        env={"NVML_STAND_IN_LOST": str(flag)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("is lost") == 1
    boards = [e for e in lines(out) if "metrics" in e and "pid" not in e]
    assert boards[0]["metrics"]["gpu_utilization_pct"] == 97
    last = boards[-1]
    assert set(last["metrics"].values()) == {None}
    assert set(last["errors"].values()) == {"NVML_ERROR_GPU_IS_LOST"}
    assert set(last["errors"]) == set(last["metrics"])


def test_a_driver_that_does_not_come_back_holds_up_no_command(library: Path, tmp_path: Path) -> None:
    out, flag = tmp_path / "r", tmp_path / "stuck"
    result = run(
        library, "stuck", "record", "-o", out, "--rate", "20", "--", "sh", "-c", f"sleep 1; touch {flag}; sleep 1; exit 6",
        env={"NVML_STAND_IN_LOST": str(flag)},
    )  # fmt: skip
    assert result.returncode == 6, result.stderr
    assert "NVML no longer answers" in result.stderr
    found = lines(out)  # up to the last sample
    assert len(found) > 10
    assert "end" not in found[-1]


def test_a_full_file_system_costs_samples_only(library: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        result = run(
            library, "h100-mps", "record", "-o", disk / "r", "--rate", "50", "--", "sh", "-c", "sleep 3; exit 3"
        )
        assert result.returncode == 3, result.stderr
        assert "samples cannot be written (No space left on device)" in result.stderr
        assert len(lines(disk / "r")) > 10  # every line is whole
        session = pyanalyze.load(disk / "r")
        assert session.nvml_samples.height > 100
        assert session.devices["uuid"].to_list() == ["GPU-h100"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_nothing_is_started_without_a_gpu(library: Path, tmp_path: Path) -> None:
    result = run(library, "none", "record", "-o", tmp_path / "r", "--", "touch", tmp_path / "ran")
    assert result.returncode == 3
    assert "NVML_ERROR_DRIVER_NOT_LOADED" in result.stderr
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rate", "0"], "Hz"),
        (["--duration", "-1"], "duration"),
        (["--nsys", "--until-end"], "--nsys"),
        (["--", "no-such-x"], "no-such-x"),
    ],
)
def test_wrong_usage_is_said_before_anything(library: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    result = run(library, "h100-mps", "record", "-o", tmp_path / "r", *arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert not (tmp_path / "r").exists()


def test_a_duration_without_a_command(library: Path, tmp_path: Path) -> None:
    result = run(library, "a100-mig", "record", "-o", tmp_path / "r", "--duration", "0.5")
    assert result.returncode == 0, result.stderr
    assert lines(tmp_path / "r")[-1]["end"]["why"] == "duration over"
    uuids = {e["gpu_uuid"] for e in lines(tmp_path / "r") if "metrics" in e}
    assert uuids == {"GPU-a100", "MIG-a", "MIG-b"}


def test_without_the_binding_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not here')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    result = subprocess.run([*MAIN, "now"], capture_output=True, text=True, env=env, timeout=120)
    assert result.returncode == 3
    assert "pip install 'pyanalyze-gpu[nvml]'" in result.stderr


def test_doctor_says_in_one_line_that_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpuUnavailable, match="no NVIDIA GPU on this machine"):
        diagnose(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    found = {finding.what: finding for finding in diagnose(tmp_path)}
    assert found["NVML"].state == "blocked"
    assert "pip install" in (found["NVML"].remedy or "")
    assert all(f.remedy for f in found.values() if f.state != "ok")


def test_doctor_names_each_remedy(library: Path) -> None:
    result = run(library, "a100-mig", "doctor", "-f", "json")
    assert result.returncode == 0, result.stderr
    found = {f["what"]: f for f in json.loads(result.stdout)["findings"]}
    assert found["NVML"]["detail"] == "driver 570.86.15, 1 GPU"
    assert found["GPU 0 (NVIDIA A100): utilisation"]["state"] == "limited"
    assert all(f["remedy"] for f in found.values() if f["state"] != "ok")


@pytest.mark.parametrize(
    ("configured", "types", "mode"),
    [
        ({"mig_mode": "Enabled"}, ["C", "C"], "mig"),
        ({"mig_mode": "Enabled"}, ["M+C"], "mig+mps"),
        ({"compute_mode": "Exclusive_Process"}, ["C"], "exclusive"),
        ({"compute_mode": "Default"}, ["C", "C"], "time-slicing"),
        ({"compute_mode": "Default"}, ["C", "G"], None),
        ({"compute_mode": None, "mig_mode": None}, [], None),
    ],
)
def test_what_a_gpu_is_set_up_for(configured: dict[str, Any], types: list[str], mode: str | None) -> None:
    assert setup(configured, [{"type": t} for t in types], 2)[0] == mode


def test_the_allow_list_is_that_of_the_core() -> None:
    rust = (ROOT / "rust/core/src/read/nsys/metadata.rs").read_text(encoding="utf-8")
    block = re.search(r"const ALLOWED: &\[&str\] = &\[(.*?)\];", rust, re.DOTALL)
    assert block is not None
    assert tuple(re.findall(r'"([^"]+)"', block[1])) == ALLOWED
    assert not is_allowed("CUDA_VISIBLE_DEVICES_TOKEN")


def test_facts_of_a_process_hold_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "4711"
    (folder / "ns").mkdir(parents=True)
    (folder / "exe").symlink_to("/opt/train")
    (folder / "ns" / "pid").symlink_to("pid:[4026532001]")
    (folder / "stat").write_text("4711 (a) b) S " + " ".join(str(n) for n in range(1, 40)))
    (folder / "cgroup").write_text("1:name=systemd:/\n0::/no-such-group/pod1/abc\n")
    (folder / "status").write_text("Name:\ttrain\nNSpid:\t4711\t7\n")
    (folder / "environ").write_bytes(b"TOKEN=hunter2\0CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\0")
    facts = node_facts.process_facts(4711, tmp_path)
    assert facts == {
        "name": "/opt/train",
        "start_ticks": 19,  # field 22 of proc(5): the 20th after the name, the state being the first
        "cgroup": "/no-such-group/pod1/abc",
        "pid_namespace": "pid:[4026532001]",
        "pid_namespaces": None,  # this one is a picture of a link, there is no namespace behind it
        "nspids": [4711, 7],
        "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"},
        "cpu_throttling": None,
        "unread": {"pid_namespaces": "No such file or directory"},
    }
    gone = node_facts.process_facts(1, tmp_path)
    assert gone["nspids"] is None
    assert set(gone["unread"]) == set(facts) - {"unread"}
    own = node_facts.process_facts(os.getpid())["pid_namespaces"]
    assert own[0] == str(Path("/proc/self/ns/pid").readlink())


def test_container_and_pod_of_a_cgroup(tmp_path: Path) -> None:
    """Paths as systemd, cgroupfs and Docker make them; pods are named by the folders of the kubelet."""
    uid, one, other = "0a1b2c3d-0000-1111-2222-333344445555", 64 * "a", 64 * "b"
    (tmp_path / f"team-a_trainer-0_{uid}" / "main").mkdir(parents=True)
    (tmp_path / "team-b_trainer-1_ffffffff-0000-1111-2222-333344445555" / "main").mkdir(parents=True)
    slices = "/kubepods.slice/kubepods-burstable.slice"
    systemd = f"{slices}/kubepods-burstable-pod{uid.replace('-', '_')}.slice/cri-containerd-{one}.scope"
    expected = {"container_id": one, "pod_uid": uid, "namespace": "team-a", "pod": "trainer-0", "container": "main"}
    assert node_facts.container_of(systemd, tmp_path) == expected
    assert node_facts.container_of(f"/kubepods/burstable/pod{uid}/{one}", tmp_path) == expected
    # Of two containers in the pod no folder says which one the id is.
    (tmp_path / f"team-a_trainer-0_{uid}" / "sidecar").mkdir()
    assert "container" not in node_facts.container_of(systemd, tmp_path)
    assert node_facts.container_of(systemd, tmp_path / "none") == {"container_id": one, "pod_uid": uid}
    assert node_facts.container_of(f"/docker/{one}/docker/{other}", tmp_path) == {"container_id": other}
    # A static pod's uid is a hash.
    assert node_facts.container_of(f"/kubepods/pod{32 * 'c'}/{one}", tmp_path)["pod_uid"] == 32 * "c"


def test_throttling_by_both_versions_of_cgroups(tmp_path: Path) -> None:
    (tmp_path / "v2/a").mkdir(parents=True)
    (tmp_path / "v2/a/cpu.stat").write_text("usage_usec 9\nnr_periods 50\nnr_throttled 20\nthrottled_usec 1500\n")
    (tmp_path / "v1/cpu,cpuacct/a").mkdir(parents=True)
    (tmp_path / "v1/cpu,cpuacct/a/cpu.stat").write_text("nr_periods 50\nnr_throttled 20\nthrottled_time 1500000\n")
    expected = {"periods": 50, "throttled": 20, "throttled_ns": 1_500_000}
    assert node_facts.cpu_throttling("/a", tmp_path / "v2") == expected
    assert node_facts.cpu_throttling("/a", tmp_path / "v1") == expected
    (tmp_path / "v2/cpu.stat").write_text("usage_usec 9\n")
    assert node_facts.cpu_throttling("/", tmp_path / "v2") is None


def values(folder: Path, metric: str, uuid: str) -> list[Any]:
    return [e["metrics"][metric] for e in lines(folder) if e.get("gpu_uuid") == uuid and metric in e.get("metrics", {})]


#: Of the seven that there is time for; a busy machine comes late.
MEANS = 2


def test_counters_of_hopper_are_means_between_two_samples(library: Path, tmp_path: Path) -> None:
    """The stand-in was active 10 n % of the time between its n-th and its next sample."""
    out = tmp_path / "r"
    assert run(library, "h100-mps", "record", "-o", out, "--rate", "8", "--", "sleep", "1").returncode == 0
    active = values(out, "sm_active_ratio", "GPU-h100")
    assert len(active) >= MEANS
    assert active == pytest.approx([0.1 * (n + 1) for n in range(len(active))])
    assert set(values(out, "pcie_tx_bytes_per_s", "GPU-h100")) == {3 * 2**20}
    last = next(e for e in reversed(lines(out)) if "sm_active_ratio" in e.get("metrics", {}))
    assert (last["metrics"]["pcie_rx_bytes_per_s"], last["metrics"]["tensor_active_ratio"]) == (None, None)
    assert last["errors"]["pcie_rx_bytes_per_s"] == "NVML_ERROR_NOT_SUPPORTED"
    assert last["errors"]["tensor_active_ratio"] == "not a number"
    # A faster sampler repeats no value: each stands once.
    assert (
        run(library, "h100-mps", "record", "-o", tmp_path / "fast", "--rate", "50", "--", "sleep", "1").returncode == 0
    )
    fast = values(tmp_path / "fast", "sm_active_ratio", "GPU-h100")
    assert len(fast) == len(set(fast)) < 12


def test_counters_of_instances(library: Path, tmp_path: Path) -> None:
    assert run(library, "h100-mig", "record", "-o", tmp_path / "r", "--rate", "8", "--", "sleep", "1").returncode == 0
    assert values(tmp_path / "r", "sm_active_ratio", "GPU-h100") == []
    for uuid, gi in (("MIG-a", 1), ("MIG-b", 2)):
        active = values(tmp_path / "r", "sm_active_ratio", uuid)
        assert len(active) >= MEANS
        assert active == pytest.approx([0.1 * (n + 1) + 0.1 * gi for n in range(len(active))])
    # Two compute instances in one GPU instance: NVML counts the latter, which is neither of them.
    shared = run(
        library, "h100-mig", "record", "-o", tmp_path / "s", "--rate", "8", "--", "sleep", "1",
        env={"NVML_STAND_IN_SHARED": "1"},
    )  # fmt: skip
    assert shared.returncode == 0
    assert values(tmp_path / "s", "sm_active_ratio", "MIG-a") == []
    assert len(values(tmp_path / "s", "mig_gi_sm_active_ratio", "MIG-a")) >= MEANS
    assert values(tmp_path / "s", "mig_gi_sm_active_ratio", "MIG-b") == []


def test_a_vgpu_guest_and_its_host(library: Path, tmp_path: Path) -> None:
    guest = run(library, "vgpu-guest", "now", "-f", "json")
    (gpu,) = json.loads(guest.stdout)["gpus"]
    assert (gpu["configured"]["virtualization_mode"], gpu["setup"]["mode"]) == ("VGPU", None)
    assert "vgpu_scheduler" not in gpu["configured"]
    assert (gpu["sampled"]["power_w"], gpu["errors"]["power_w"]) == (None, "NVML_ERROR_NOT_SUPPORTED")
    found = {f["what"]: f for f in json.loads(run(library, "vgpu-guest", "doctor", "-f", "json").stdout)["findings"]}
    assert "this VM only" in found["GPU 0 (GRID T4-4Q): context switches"]["detail"]
    out = tmp_path / "r"
    assert run(library, "vgpu-host", "record", "-o", out, "--", "true").returncode == 0
    board = next(e["metrics"] for e in lines(out) if "vgpu_scheduler" in e.get("metrics", {}))
    assert board["vgpu_scheduler"] == "equal-share"
    assert board["vgpu_adaptive_round_robin"] == "enabled"
    assert (board["vgpu_timeslice_ns"], board["vgpu_averaging_factor"]) == (2_000_000, 33)


MPS_CONTROL = """#!/bin/sh
read question
case "$question" in
  get_server_list) echo 4100;;
  get_client_list*) echo 4101; echo 4102;;
  get_default_active_thread_percentage) echo 100.0;;
  get_active_thread_percentage*) echo 50.0;;
esac
"""


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file


def on_path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_now_asks_the_mps_daemon_for_caps(library: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin", "nvidia-cuda-mps-control", MPS_CONTROL)
    result = run(library, "h100-mps", "now", "-f", "json", env=on_path(tmp_path / "bin"))
    found = json.loads(result.stdout)
    assert found["mps_control"] == {
        "default_active_thread_percentage": 100.0,
        "servers": [{"pid": 4100, "active_thread_percentage": 50.0, "clients": [4101, 4102]}],
        "unread": {},
    }
    caps = {process["pid"]: process["caps"] for process in found["gpus"][0]["processes"]}
    capped = {"server_active_thread_percentage": 50.0}
    assert caps == {4100: {}, 4101: capped, 4102: capped}
    shown = run(library, "h100-mps", "now", env=on_path(tmp_path / "bin")).stdout
    assert "configured: server_active_thread_percentage=50.0" in shown


@pytest.mark.parametrize(
    ("text", "says"), [("exec sleep 60", "no answer in time"), ("echo no daemon; exit 1", "no daemon")]
)
def test_a_daemon_that_does_not_answer_holds_nothing_up(library: Path, tmp_path: Path, text: str, says: str) -> None:
    script(tmp_path / "bin", "nvidia-cuda-mps-control", f"#!/bin/sh\n{text}\n")
    result = run(library, "h100-mps", "now", "-f", "json", env=on_path(tmp_path / "bin"))
    control = json.loads(result.stdout)["mps_control"]
    assert control == {
        "default_active_thread_percentage": None, "servers": None, "unread": {"get_server_list": says}
    }  # fmt: skip


def test_a_daemon_that_answers_with_odd_numbers_is_asked_the_rest(library: Path, tmp_path: Path) -> None:
    """A number of 5,000 digits, one that is no percentage, pids that no process has."""
    answers = f"""#!/bin/sh
read question
case "$question" in
  get_server_list) echo {"4" * 5000}; echo -1; echo 4100; echo 99999999999;;
  "get_client_list 4100") echo 4101; echo 0x{"f" * 5000};;
  "get_active_thread_percentage 4100") echo 1e999;;
  get_default_active_thread_percentage) echo nan;;
esac
"""
    script(tmp_path / "bin", "nvidia-cuda-mps-control", answers)
    result = run(library, "h100-mps", "now", "-f", "json", env=on_path(tmp_path / "bin"))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout, parse_constant=pytest.fail)["mps_control"] == {
        "default_active_thread_percentage": None,
        "servers": [{"pid": 4100, "active_thread_percentage": None, "clients": [4101]}],
        "unread": {
            "get_default_active_thread_percentage": "not a percentage",
            "get_active_thread_percentage 4100": "not a percentage",
        },
    }


# A stand-in for nsys: refuses what REFUSE matches, makes the command a session of its own, ends the collection after
# --duration, then signals the command unless told --kill=none, and goes away; as nsys 2023.4.4 was seen to do.
NSYS = """#!/bin/sh
echo "$*" >> "$NSYS_LOG"
case "$*" in
  --version) echo "NVIDIA Nsight Systems version 2024.6.1.90-1"; exit;;
  *--help*) echo "--sample --cpuctxsw --gpuctxsw --gpu-metrics-devices --kill --cuda-graph-trace --duration"
            echo "--session-new --trace-fork-before-exec"; exit;;
  stop*) touch "$NSYS_LOG.stop"; exit;;
esac
case "$*" in *${REFUSE:-no such switch}*) echo refused >&2; exit 1;; esac
kill_=sigterm; duration=1000
shift
while [ "$1" != -o ]; do
  case "$1" in --kill=*) kill_=${1#*=};; --duration=*) duration=${1#*=};; esac
  shift
done
echo report > "$2.nsys-rep"; out=$2; shift 2
setsid "$@" & target=$!
trap 'kill -TERM -$target' TERM
[ -z "$GROW" ] || head -c "$GROW" /dev/zero > "$out.grown"
left=$((duration * 10))
while kill -0 $target 2>/dev/null && [ $left -gt 0 ] && [ ! -e "$NSYS_LOG.stop" ]; do sleep 0.1; left=$((left - 1)); done
if kill -0 $target 2>/dev/null; then [ "$kill_" = none ] || kill -TERM -$target; exit 0; fi
wait $target
"""

# Writes down every signal it gets; ends with 7.
LOGS_SIGNALS = """
import signal, sys, time
log = open(sys.argv[1], "a", buffering=1)
for number in set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, lambda number, frame: log.write(f"signal {number}\\n"))
log.write("started\\n")
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    time.sleep(0.05)
log.write("ended\\n")
sys.exit(7)
"""


@pytest.fixture
def nsys(tmp_path: Path) -> dict[str, str]:
    """Environment with the stand-in for nsys."""
    script(tmp_path / "bin", "nsys", NSYS)
    return {**on_path(tmp_path / "bin"), "NSYS_LOG": str(tmp_path / "nsys.log"), "PYANALYZE_NSYS": ""}


def asked(tmp_path: Path) -> list[str]:
    """Each `nsys profile` that was run."""
    found = (tmp_path / "nsys.log").read_text().splitlines()
    return [line for line in found if line.startswith("profile ") and "--help" not in line]


def test_the_end_of_a_collection_sends_no_signal_to_the_command(
    library: Path, tmp_path: Path, nsys: dict[str, str]
) -> None:
    log, out = tmp_path / "signals", tmp_path / "r"
    command: list[str | Path] = [sys.executable, "-c", LOGS_SIGNALS, log, "3"]
    result = run(library, "h100-mps", "record", "--nsys", "--duration", "1", "-o", out, "--", *command, env=nsys)
    assert "the recording has ended; the command continues" in result.stderr
    # The command went on for two seconds after nsys had gone, and its status is that of the recording.
    assert result.returncode == 7, result.stderr
    assert log.read_text() == "started\nended\n"
    assert lines(out)[-1]["end"]["why"] == "duration over"
    (line,) = asked(tmp_path)
    for switch in ("-t cuda,nvtx", "--gpuctxsw=true", "--gpu-metrics-devices=all", "--kill=none", "--duration=1",
                   "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"):  # fmt: skip
        assert f" {switch} " in line
    assert "fork" not in line
    assert sorted(p.name for p in out.iterdir()) == ["node.json", "report.nsys-rep", "samples.jsonl"]
    # nsys samples the counters, so the recorder leaves them alone.
    assert values(out, "sm_active_ratio", "GPU-h100") == []


def test_the_same_with_nsys_itself(library: Path, tmp_path: Path) -> None:
    tool = find_nsys()
    if tool is None:
        pytest.skip("no nsys on PATH and PYANALYZE_NSYS is not set")
    log, out = tmp_path / "signals", tmp_path / "r"
    command: list[str | Path] = [sys.executable, "-c", LOGS_SIGNALS, log, "6"]
    result = run(library, "h100-mps", "record", "--nsys", "--duration", "2", "-o", out, "--", *command)
    assert result.returncode == 7, result.stderr
    assert log.read_text() == "started\nended\n"
    assert {p.name for p in out.iterdir()} & {"report.nsys-rep", "report.qdstrm"}
    assert json.loads((out / "node.json").read_text())["command"]["nspids"]


def test_what_nsys_refuses_is_asked_for_less(library: Path, tmp_path: Path, nsys: dict[str, str]) -> None:
    """It starts nothing when a GPU gives no counters; the command must run all the same, and once."""
    ran = tmp_path / "ran"
    result = run(
        library, "h100-mps", "record", "--nsys", "--fork-tracing", "--graphs", "graph", "-o", tmp_path / "r", "--",
        "sh", "-c", f"echo once >> {ran}; exit 4", env={**nsys, "REFUSE": "gpu-metrics"},
    )  # fmt: skip
    assert result.returncode == 4, result.stderr
    assert ran.read_text() == "once\n"
    first, second = asked(tmp_path)
    assert "gpu-metrics" in first
    assert "gpu-metrics" not in second
    assert "--gpuctxsw=true" in second
    assert "--trace-fork-before-exec=true" in second
    assert "cuda-graph-trace" not in second
    assert "fewer records are requested now" in result.stderr


def test_when_nsys_starts_nothing_that_is_said(library: Path, tmp_path: Path, nsys: dict[str, str]) -> None:
    result = run(
        library, "h100-mps", "record", "--nsys", "-o", tmp_path / "r", "--", "touch", tmp_path / "ran",
        env={**nsys, "REFUSE": "cuda"},
    )  # fmt: skip
    assert result.returncode == 3
    assert "did not start the command; nothing was run" in result.stderr
    assert not (tmp_path / "ran").exists()
    assert len(asked(tmp_path)) == 3


def test_a_recording_that_grows_too_large_ends_and_the_command_does_not(
    library: Path, tmp_path: Path, nsys: dict[str, str]
) -> None:
    log, out = tmp_path / "signals", tmp_path / "r"
    command: list[str | Path] = [sys.executable, "-c", LOGS_SIGNALS, log, "4"]
    result = run(
        library, "h100-mps", "record", "--nsys", "--max-size", "3", "-o", out, "--", *command,
        env={**nsys, "GROW": "4000000"},
    )  # fmt: skip
    assert result.returncode == 7, result.stderr
    assert (tmp_path / "nsys.log.stop").exists()
    assert lines(out)[-1]["end"]["why"] == "size cap"
    assert log.read_text() == "started\nended\n"
    assert "the recording exceeds its limit of 3 MiB" in result.stderr


def test_a_node_is_watched_without_a_target(library: Path, tmp_path: Path, nsys: dict[str, str]) -> None:
    out = tmp_path / "r"
    result = run(library, "h100-mps", "record", "--nsys", "--duration", "1", "-o", out, env=nsys)
    assert result.returncode == 0, result.stderr
    (line,) = asked(tmp_path)
    assert line.startswith("profile -t none ")
    assert "--cuda-graph-trace" not in line
    assert line.endswith(" sleep 1")
    # How to get kernels of what runs already.
    for step in ("nsys launch --session-new=replica", "nsys start --session=replica", "nsys stop --session=replica"):
        assert step in result.stderr
    assert run(library, "h100-mps", "record", "--nsys", "--until-end", "-o", tmp_path / "s", env=nsys).returncode == 2


def test_dcgm_is_left_alone_unless_told(library: Path, tmp_path: Path, nsys: dict[str, str]) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    (tmp_path / "bin" / "nv-hostengine").symlink_to(sleep)
    script(tmp_path / "bin", "dcgmi", f'#!/bin/sh\necho "$*" >> {tmp_path}/dcgmi.log\n')
    engine = subprocess.Popen([tmp_path / "bin" / "nv-hostengine", "60"])
    try:
        first = run(library, "h100-mps", "record", "--nsys", "-o", tmp_path / "a", "--", "true", env=nsys)
        assert "GPU metrics are left out: DCGM uses the counters" in first.stderr
        assert "gpu-metrics" not in asked(tmp_path)[-1]
        assert not (tmp_path / "dcgmi.log").exists()
        run(library, "h100-mps", "record", "--nsys", "--pause-dcgm", "-o", tmp_path / "b", "--", "true", env=nsys)
        assert "gpu-metrics" in asked(tmp_path)[-1]
        assert (tmp_path / "dcgmi.log").read_text() == "profile --pause\nprofile --resume\n"
        found = json.loads(run(library, "h100-mps", "doctor", "-f", "json", env=nsys).stdout)["findings"]
        (finding,) = (f for f in found if f["what"] == "GPU metrics and DCGM")
        assert f"nv-hostengine ({engine.pid})" in finding["detail"]
        assert "--pause-dcgm" in finding["remedy"]
    finally:
        engine.kill()
        engine.wait()


def test_a_sigterm_reaches_the_command_also_when_nsys_is_gone(
    library: Path, tmp_path: Path, nsys: dict[str, str]
) -> None:
    graceful = "trap 'echo saved; exit 9' TERM; touch ready; while :; do sleep 0.1; done"
    for duration, name in (("60", "during"), ("1", "after")):
        (tmp_path / "ready").unlink(missing_ok=True)
        process = subprocess.Popen(
            [*MAIN, "record", "--nsys", "--duration", duration, "-o", str(tmp_path / name), "--", "sh", "-c", graceful],
            env={**environment(library, "h100-mps"), **nsys}, cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        for _ in range(600):
            if (tmp_path / "ready").exists():
                break
            time.sleep(0.1)
        time.sleep(2 if name == "after" else 0.2)
        process.terminate()
        stdout, stderr = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (9, "saved\n"), stderr


def test_nsys_gets_the_switches_it_knows() -> None:
    wanted = Wanted(duration_s=10, session="s", fork_tracing=True)
    options, notes = options_for(
        "--gpuctxsw= --gpu-metrics-device= --kill= --duration= --session-new=", wanted, "2021.5"
    )
    assert options == [
        "-t", "cuda,nvtx", "--gpuctxsw=true", "--gpu-metrics-device=all", "--kill=none", "--duration=10",
        "--session-new=s",
    ]  # fmt: skip
    assert notes == [
        "nsys 2021.5 does not support --cuda-graph-trace: left out",
        "nsys 2021.5 does not support --trace-fork-before-exec: left out",
    ]
    # One that cannot be told to leave the command alone must not end the collection before it.
    options, notes = options_for("--duration=", Wanted(duration_s=10), "2018")
    assert not any(option.startswith("--duration") for option in options)
    assert "would end the command" in notes[-1]


def test_the_switches_are_those_of_nsys_itself() -> None:
    tool = find_nsys()
    if tool is None:
        pytest.skip("no nsys on PATH and PYANALYZE_NSYS is not set")
    help_text = subprocess.run([tool.path, "profile", "--help"], capture_output=True, text=True).stdout
    options, notes = options_for(help_text, Wanted(duration_s=10, session="s", fork_tracing=True), tool.version)
    assert notes == []
    for option in options[2:]:
        assert f"{option.partition('=')[0]}=" in help_text


def test_a_node_is_described_at_the_start_and_at_the_end(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/pipe", "SECRET_TOKEN": "hunter2"}
    # Long enough to be looked at on a slow machine: who has ended has no environment.
    assert run(library, "a100-mig", "record", "-o", out, "--", "sleep", "2", env=env).returncode == 0
    text = (out / "node.json").read_text()
    node = json.loads(text)
    assert "hunter2" not in text
    assert node["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/pipe"
    for gpus in (node["gpus"], node["end"]["gpus"]):
        assert [(p["uuid"], p["mig_gi_id"], p["mig_ci_id"]) for p in gpus[0]["mig"]] == [
            ("MIG-a", 1, 0),
            ("MIG-b", 2, 0),
        ]
        assert gpus[0]["gpu_uuid"] == "GPU-a100"
    assert node["end"]["time_utc_ns"] > node["time_utc_ns"]
    assert {"nspids", "pid_namespaces", "start_ticks", "cgroup", "cpu_throttling"} <= set(node["command"])
    assert node["command"]["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/pipe"
    assert set(node["processes"]) == {"4101", "4102"}
    end = lines(out)[-1]["end"]
    assert 0 < end["cpu_share"] < 1
    assert lines(out)[0]["duration_s"] == 10


def test_a_recording_is_a_capture(library: Path, tmp_path: Path) -> None:
    """Without nsys it is its samples, with a description of the node."""
    out = tmp_path / "r"
    assert run(library, "h100-mps", "record", "-o", out, "--rate", "20", "--", "sleep", "1").returncode == 0
    session = pyanalyze.load(out)
    assert session.devices["uuid"].to_list() == ["GPU-h100"]
    assert session.nvml_samples.height > 100
    assert "gpu=0 uuid=GPU-h100 name=NVIDIA H100" in session.configured["value"].to_list()
    summary = run(library, "none", out)
    assert summary.returncode == 0, summary.stderr
    assert "mps" in summary.stdout.lower()
    assert "observed" not in summary.stdout.splitlines()[0]


def test_samples_next_to_an_export_are_picked_up(tmp_path: Path) -> None:
    shutil.copy(ROOT / "fixtures/captures/mps.sqlite", tmp_path / "report.sqlite")
    plain = pyanalyze.load(tmp_path)
    assert plain.nvml_samples.is_empty()
    shutil.copy(ROOT / "fixtures/samples/recording.jsonl", tmp_path / "samples.jsonl")
    found = pyanalyze.load(tmp_path)
    assert found.kernels.height == plain.kernels.height > 0
    assert set(found.nvml_samples["format"].cast(pl.String)) == {"pyanalyze-record"}
    # A raw stream of nsys beside is no report: it is told, not passed over.
    (tmp_path / "node.qdstrm").write_bytes(b"raw")
    (failure,) = pyanalyze.load(tmp_path).failures
    assert "QdstrmImporter -i" in str(failure.error)
    # Given by name as well, they count once.
    assert pyanalyze.load(tmp_path, samples=tmp_path / "samples.jsonl").nvml_samples.height == found.nvml_samples.height


def test_the_node_file_is_configured(tmp_path: Path) -> None:
    node = {
        "schema": "pyanalyze.node/1",
        "gpus": [
            {
                "gpu_index": 0, "gpu_uuid": "GPU-1", "gpu_name": "NVIDIA H100 80GB",
                "mig": [{"uuid": "MIG-2", "name": "NVIDIA H100 MIG 1c.3g.40gb", "mig_gi_id": 3, "mig_ci_id": 0}],
            }
        ],
        "mps_processes": [{"pid": 10, "name": "nvidia-cuda-mps"}, {"pid": 11, "name": "/usr/bin/nvidia-cuda-mps-server"}],
        "environment": {"CUDA_MPS_PIPE_DIRECTORY": "/of/the/recorder"},
        "processes": {
            "4711": {
                "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "AWS_SECRET_ACCESS_KEY": "hunter2"},
                "namespace": "team", "pod": "trainer-0", "container": "main", "container_id": "abc",
                "nspids": [4711, 7],
            },
            "none": {"environment": {"CUDA_VISIBLE_DEVICES": "0"}},
        },
    }  # fmt: skip
    (tmp_path / "node.json").write_text(json.dumps(node))
    rows = read_context(tmp_path / "node.json").select("source", "pid", "key", "value").rows()
    assert {row[0] for row in rows} == {"recording-node"}
    assert [row[1:] for row in rows] == [
        (None, "gpu", "gpu=0 uuid=GPU-1 name=NVIDIA H100 80GB"),
        (None, "mig_device", "gpu=0 device=0 profile=1c.3g.40gb uuid=MIG-2 gpu_uuid=GPU-1 gi=3 ci=0"),
        (10, "mps_daemon", "nvidia-cuda-mps-control"),
        (11, "mps_server", "nvidia-cuda-mps-server"),
        (4711, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50"),
        (4711, "process_pid", "7"),
        (4711, "k8s_pod", "pod=team/trainer-0 container=main"),
        (4711, "container", "abc"),
    ]


def test_pods_of_the_node_file_name_tenants(tmp_path: Path) -> None:
    """Both containers have pid 1; the node's switch records tell their host pids, and the node file whose those are."""
    folder = ROOT / "fixtures/captures/containers-same-pid"
    truth = json.loads((folder.parent / "containers-same-pid.truth.json").read_text())
    hosts = {tenant["host_pid"]: tenant["name"] for tenant in truth["tenants"]}
    processes = {
        str(pid): {"namespace": "team", "pod": f"{name}-0", "container_id": name} for pid, name in hosts.items()
    }
    (tmp_path / "node.json").write_text(json.dumps({"schema": "pyanalyze.node/1", "processes": processes}))
    plain, found = pyanalyze.load(folder), pyanalyze.load(folder, context=tmp_path / "node.json")
    assert plain.tenants["pod"].null_count() == plain.tenants.height
    rows = {row["host_pid"]: row for row in found.tenants.iter_rows(named=True) if row["host_pid"] is not None}
    assert set(rows) == set(hosts)
    for pid, name in hosts.items():
        assert (rows[pid]["pod"], rows[pid]["container"]) == (f"team/{name}-0", name)
    names = {tenant.pod for device in found.report().devices for tenant in device.tenants}
    assert {f"team/{name}-0" for name in hosts.values()} <= names


#: Nothing of these may be needed where the GPU is.
COMPILED = (
    "polars",
    "pyarrow",
    "numpy",
    "pandas",
    "pydantic",
    "pydantic_core",
    "altair",
    "vl_convert",
    "pyanalyze.core._core",
)


def test_the_recorder_needs_no_compiled_dependency(library: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "sitecustomize.py"
    blocked.write_text(
        f"import sys\nclass Blocked:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name in {COMPILED!r}:\n            raise ImportError(name + ' is not to be used here')\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, sys.path)])
    env = {"PYTHONPATH": paths}
    probe = subprocess.run(
        [sys.executable, "-c", "import polars"], env={**os.environ, **env}, capture_output=True, text=True
    )
    assert "is not to be used here" in probe.stderr
    for arguments in (
        ["now"],
        ["doctor"],
        ["record", "-o", tmp_path / "r", "--", "true"],
        ["record", "--manifest", "n"],
    ):
        result = run(library, "h100-mps", *arguments, env=env)
        assert result.returncode == 0, result.stderr


def test_the_manifest_records_a_node_without_taking_a_gpu() -> None:
    import yaml

    text = pod_manifest("gpu: 7", "registry.example/pyanalyze:1", duration_s=5, nsys=True)
    pod = yaml.safe_load(text)
    assert (pod["kind"], pod["spec"]["nodeName"], pod["spec"]["hostPID"]) == ("Pod", "gpu: 7", True)
    (container,) = pod["spec"]["containers"]
    assert "resources" not in container
    assert container["command"][-1].startswith("pyanalyze record -o /recordings/node --duration 5 --rate 10 --nsys;")
    assert container["securityContext"] == {"capabilities": {"add": ["SYS_ADMIN", "SYS_PTRACE"]}}
    (plain,) = yaml.safe_load(pod_manifest("n", "i"))["spec"]["containers"]
    assert "SYS_ADMIN" not in str(plain)
    mounted = {v["name"]: v.get("hostPath") for v in pod["spec"]["volumes"]}
    assert mounted == {"recordings": None, "pod-logs": {"path": str(node_facts.POD_LOGS)}}


def test_the_page_on_capturing_names_what_there_is() -> None:
    from pyanalyze.cli.record import command

    text = (ROOT / "docs/capture.md").read_text(encoding="utf-8")
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert {"--nsys", "--duration", "--until-end", "--max-size", "--pause-dcgm", "--manifest", "--graphs"} <= options
    for option in options - {"--rate", "--output"}:
        assert option in text, option
    used = set(re.findall(r"`(?:pyanalyze )?record ([^`]*)`", text))
    named = {word for use in used for word in re.findall(r"--[a-z-]+", use.partition(" -- ")[0])}
    assert named <= options
    # What is said to be outstanding needs what the machines so far did not have: a DCGM.
    (outstanding,) = (line for line in text.splitlines() if line.startswith("|") and "outstanding" in line)
    assert "DCGM" in outstanding


def test_doctor_on_a_machine_without_a_gpu_prints_its_checklist() -> None:
    if Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    result = subprocess.run([*MAIN, "doctor", "-f", "json"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 3
    assert re.fullmatch(r"pyanalyze: no NVIDIA GPU on this machine: [^\n]*\n", result.stderr)
    body = json.loads(result.stdout)
    jsonschema.validate(body, schema_of("doctor"))
    found = {finding["what"]: finding for finding in body["findings"]}
    assert found["NVML"]["state"] == "blocked"
    assert {"nsys", "context switches", "GPU metrics", "process names"} <= found.keys()
    # Without a driver root is not enough, and there is nothing that nvidia-smi could be asked.
    assert found["context switches"]["state"] == found["GPU metrics"]["state"] == "unknown"
    # No NVML reported a pid, so none was found valid.
    assert found["process names"]["state"] != "ok"
    # That file is in no installed package.
    assert "of the source repository" in found["NVML"]["remedy"]
    assert "confidential computing" not in found
    assert not any("nvidia-smi" in (finding["remedy"] or "") for finding in found.values())
    assert all(finding["remedy"] for finding in found.values() if finding["state"] not in ("ok", "unknown"))


def test_record_without_a_gpu_would_record_nothing(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has an NVIDIA driver")
    command = [*MAIN, "record", "-o", str(tmp_path / "r"), "--", "touch", str(tmp_path / "ran")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 3
    assert "would record nothing: no NVIDIA GPU" in result.stderr
    assert "--no-gpu-ok" in result.stderr
    assert list(tmp_path.iterdir()) == []
    allowed = [*MAIN, "record", "--no-gpu-ok", "-o", str(tmp_path / "r"), "--", "sh", "-c", "exit 7"]
    result = subprocess.run(allowed, capture_output=True, text=True, timeout=120)
    assert result.returncode == 7
    assert "records nothing" in result.stderr
    assert list(tmp_path.iterdir()) == []


def findings(library: Path, machine: str, **more: str) -> dict[str, Any]:
    result = run(library, machine, "doctor", "-f", "json", env=more)
    assert result.returncode == 0, result.stderr
    found = {f["what"]: f for f in json.loads(result.stdout)["findings"]}
    assert all(f["remedy"] for f in found.values() if f["state"] != "ok")
    return found


def test_doctor_sees_what_stops_switch_records(library: Path, tmp_path: Path, nsys: dict[str, str]) -> None:
    mig = findings(library, "a100-mig", **nsys)["GPU 0 (NVIDIA A100): context switches"]
    assert (mig["state"], "pauses" in mig["detail"]) == ("limited", True)
    private = findings(library, "h100-cc", **nsys)["confidential computing"]
    assert private["state"] == "blocked"
    (tmp_path / "compat").mkdir()
    (tmp_path / "compat/libcuda.so.580.65.06").touch()
    (tmp_path / "compat/libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    path = f"{library}{os.pathsep}{tmp_path / 'compat'}"
    newer = findings(library, "h100-mps", **{**nsys, "LD_LIBRARY_PATH": path})["context switches: libcuda"]
    assert (newer["state"], "580.65.06" in newer["detail"]) == ("blocked", True)
    (tmp_path / "compat/libcuda.so.1").unlink()
    (tmp_path / "compat/libcuda.so.570.86.15").touch()
    (tmp_path / "compat/libcuda.so.1").symlink_to("libcuda.so.570.86.15")  # the driver's own
    assert "context switches: libcuda" not in findings(library, "h100-mps", **{**nsys, "LD_LIBRARY_PATH": path})


def test_doctor_knows_an_nsys_that_is_missing_or_too_old(library: Path, tmp_path: Path, nsys: dict[str, str]) -> None:
    assert findings(library, "h100-mps", PATH=str(tmp_path / "none"), PYANALYZE_NSYS="")["nsys"]["state"] == "blocked"
    # The stand-in answers as nsys 2024.6 (CUDA 12.8) on a driver that serves CUDA 13.0.
    found = findings(library, "h100-mps", **nsys)
    assert found["nsys"]["state"] == "ok"
    assert "is for CUDA 12.8, the driver provides 13.0" in found["nsys: kernels"]["detail"]
    old = tmp_path / "old"
    script(old, "nsys", '#!/bin/sh\ncase "$*" in --version) echo "version 2019.5.2";; *) echo --kill;; esac\n')
    found = findings(library, "h100-mps", **on_path(old), PYANALYZE_NSYS="")
    assert "it lacks --gpuctxsw, --gpu-metrics-device" in found["nsys: what it records"]["detail"]


def test_doctor_knows_who_may_record_what(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(doctor, "is_root", lambda: False)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    driver = tmp_path / "proc/driver/nvidia"
    driver.mkdir(parents=True)

    def states() -> dict[str, str]:
        found = diagnose(tmp_path)
        assert all(f.remedy for f in found if f.state != "ok")
        return {f.what: f.state for f in found}

    assert states()["GPU metrics"] == "unknown"
    (driver / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    # Without root other users' records are hidden; one's own stay exact.
    assert (states()["GPU metrics"], states()["context switches"]) == ("blocked", "limited")
    (driver / "params").write_text("RmProfilingAdminOnly: 0\n")
    assert states()["GPU metrics"] == "ok"
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/status").write_text("CapEff:\t0000000000200000\n")  # bit 21
    assert states()["context switches"] == "ok"
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    release = tmp_path / "proc/sys/kernel/osrelease"
    # Root changes nothing there.
    release.write_text("6.6.87.2-microsoft-standard-WSL2\n")
    assert states()["context switches"] == "blocked"
    release.write_text("6.8.0-134-generic\n")
    assert states()["context switches"] == "ok"
    (tmp_path / "proc/77").mkdir()
    (tmp_path / "proc/77/comm").write_text("dcgm-exporter\n")
    assert states()["GPU metrics and DCGM"] == "limited"


def test_the_core_reads_what_the_recorder_wrote(library: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert run(library, "a100-mig", "record", "-o", out, "--duration", "0.3").returncode == 0
    found = pl.DataFrame(_core.read_samples(str(out / "samples.jsonl"), None)["nvml_samples"])
    assert set(found["format"].cast(pl.String)) == {"pyanalyze-record"}
    first = found.filter(pl.col("time_utc_ns") == found["time_utc_ns"].min())
    rows = {metric: (value, text) for metric, value, text in first.select("metric", "value", "text").iter_rows()}
    assert rows["gpu_utilization_pct"] == (None, "NVML_ERROR_NOT_SUPPORTED")
    assert rows["memory_used_bytes"] == (float(10 << 30), None)
    assert rows["mig_mode"] == (None, "Enabled")
    processes = found.filter(pl.col("pid").is_not_null(), pl.col("metric") == "process_memory_bytes")
    seen = set(processes.select("gpu_uuid", "pid", "process_type", "value").iter_rows())
    assert seen == {("MIG-a", 4101, "C", float(512 << 20)), ("MIG-b", 4102, "C", None)}


def test_a_sigterm_for_the_recorder_reaches_the_command(library: Path, tmp_path: Path) -> None:
    """As the first process of a container it is the only one that gets it."""
    out = tmp_path / "r"
    graceful = "trap 'echo saved; exit 9' TERM; touch ready; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [*MAIN, "record", "-o", str(out), "--", "sh", "-c", graceful],
        env=environment(library, "h100-mps"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(600):
        if (tmp_path / "ready").exists():
            break
        time.sleep(0.1)
    process.terminate()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (9, "saved\n"), stderr
    assert "end" in lines(out)[-1]


#: Between the start of the command and its return to the recorder a busy machine may let a second pass.
SLOW_START = """
import subprocess, sys, time
from pyanalyze.cli import main

class Slow(subprocess.Popen):
    def __init__(self, argv, *arguments, **more):
        super().__init__(argv, *arguments, **more)
        if argv[0] == "sh":
            time.sleep(1.5)

subprocess.Popen = Slow
main()
"""


def test_a_sigterm_while_the_command_is_being_started_is_not_lost(library: Path, tmp_path: Path) -> None:
    graceful = "trap 'echo saved; exit 9' TERM; touch ready; for i in $(seq 300); do sleep 0.1; done"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_START, "record", "-o", str(tmp_path / "r"), "--", "sh", "-c", graceful],
        env=environment(library, "h100-mps"), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for _ in range(600):
            if (tmp_path / "ready").exists():
                break
            time.sleep(0.02)
        process.terminate()
        stdout, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, stdout) == (9, "saved\n"), stderr
