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

import polars as pl
import pytest

from pyanalyze import _core
from pyanalyze.exceptions import GpuUnavailable, UsageError
from pyanalyze.record import diagnose, nsys_command, setup
from pyanalyze.record import node as node_facts

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
    assert f"--samples {out}/samples.jsonl" in result.stderr
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
        (["--nsys"], "--nsys"),
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
    assert found["NVML"]["detail"] == "driver 570.86.15, 1 GPU(s)"
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
    rust = (ROOT / "rust/core/src/nsys/metadata.rs").read_text(encoding="utf-8")
    block = re.search(r"const ALLOWED: &\[&str\] = &\[(.*?)\];", rust, re.DOTALL)
    assert block is not None
    assert tuple(re.findall(r'"([^"]+)"', block[1])) == node_facts.ALLOWED
    assert not node_facts.is_allowed("CUDA_VISIBLE_DEVICES_TOKEN")


def test_facts_of_a_process_hold_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "4711"
    (folder / "ns").mkdir(parents=True)
    (folder / "exe").symlink_to("/opt/train")
    (folder / "ns" / "pid").symlink_to("pid:[4026532001]")
    (folder / "stat").write_text("4711 (a) b) S " + " ".join(str(n) for n in range(1, 40)))
    (folder / "cgroup").write_text("1:name=systemd:/\n0::/kubepods/pod1/abc\n")
    (folder / "status").write_text("Name:\ttrain\nNSpid:\t4711\t7\n")
    (folder / "environ").write_bytes(b"TOKEN=hunter2\0CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\0")
    facts = node_facts.process_facts(4711, tmp_path)
    assert facts == {
        "name": "/opt/train",
        "start_ticks": 19,  # field 22 of proc(5): the 20th after the name, the state being the first
        "cgroup": "/kubepods/pod1/abc",
        "pid_namespace": "pid:[4026532001]",
        "nspids": [4711, 7],
        "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"},
        "unread": {},
    }
    gone = node_facts.process_facts(1, tmp_path)
    assert gone["nspids"] is None
    assert set(gone["unread"]) == {"name", "start_ticks", "cgroup", "pid_namespace", "nspids", "environment"}


def test_nsys_gets_the_switches_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys = tmp_path / "nsys"
    help_ = "--gpuctxsw --gpu-metrics-devices --kill --trace"
    nsys.write_text(f'#!/bin/sh\ncase "$*" in --version) echo "version 2024.6.1";; *) echo "{help_}";; esac\n')
    nsys.chmod(0o755)
    command, notes = nsys_command(tmp_path / "report", str(nsys), root=True)
    assert command == [
        str(nsys), "profile", "-t", "cuda,nvtx", "--gpuctxsw=true", "--gpu-metrics-devices=all", "--kill=none",
        "-o", str(tmp_path / "report"),
    ]  # fmt: skip
    assert notes == ["nsys 2024.6.1 does not know --cuda-graph-trace: left out"]
    command, notes = nsys_command(tmp_path / "report", str(nsys), root=False)
    assert "--gpuctxsw=true" not in command
    assert "not root" in notes[0]
    monkeypatch.delenv("PYANALYZE_NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="no nsys on PATH"):
        nsys_command(tmp_path / "report")


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


def test_nsys_runs_the_command_and_the_hint_names_its_report(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    nsys = folder / "nsys"
    nsys.write_text(
        '#!/bin/sh\ncase "$*" in\n--version) echo "version 2024.6.1"; exit;;\n*--help*) echo "--kill"; exit;;\nesac\n'
        'while [ "$1" != -o ]; do shift; done\necho report > "$2.nsys-rep"; shift 2\nexec "$@"\n'
    )
    nsys.chmod(0o755)
    out = tmp_path / "r"
    path = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    result = run(library, "h100-mps", "record", "--nsys", "-o", out, "--", "sh", "-c", "echo ran; exit 4", env=path)
    assert (result.returncode, result.stdout) == (4, "ran\n"), result.stderr
    assert f"pyanalyze {out}/report.nsys-rep --samples {out}/samples.jsonl" in result.stderr
