"""Does the kit for real hardware build, and does its analysis side say of blocks what is true of them?

No GPU is needed here: the programs are only compiled, and the blocks are those of the generator's truth.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from generate import built, scenario_names
from modules import module_at

import pyanalyze

ROOT = Path(__file__).parent.parent
KIT = ROOT / "fixtures" / "hardware"


blocks, collect, run = (module_at(KIT / f"{name}.py") for name in ("blocks", "collect", "run"))


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nvcc = run.find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc: set NVCC (pip's nvidia-cuda-nvcc, -runtime, -crt, -cccl and nvidia-nvvm will do)")
    folder = tmp_path_factory.mktemp("kit")
    notes = run.build(nvcc, folder)
    assert (folder / "kit").is_file()
    if not (folder / "libcapture.so").is_file():
        assert notes
    return folder


def test_the_kit_builds_and_says_what_is_wrong(kit: Path) -> None:
    usage = subprocess.run([kit / "kit"], capture_output=True, text=True)
    assert (usage.returncode, "--calibration" in usage.stderr) == (2, True)
    arguments = ["--app", "Z", "--calibration", "none", "--out", "none"]
    wrong = subprocess.run([kit / "kit", *arguments], capture_output=True, text=True)
    assert (wrong.returncode, "no application is named Z" in wrong.stderr) == (2, True)


def test_every_kernel_is_compiled_for_ampere_and_hopper(kit: Path) -> None:
    names = {"A1", "A2", "A3", "A4", "B1", "B2", "B3", "B4", "C1", "C2", "C3", "C4"}
    names |= {"compute_bound", "dram_bound", "l2_bound", "small_grid", "long_tail"}
    names |= {"R1", "R2", "F1", "P1", "L1", "T1"}
    assert names == set(run.KERNELS)
    binary = (kit / "kit").read_bytes()
    for name in names:
        # One section of machine code per kernel and architecture.
        assert binary.count(f".text.{name}\0".encode()) >= 2, name
    assert b"sm_80" in binary
    assert b"sm_90" in binary


def test_each_stage_runs_what_it_is_named_for() -> None:
    every = {stage: run.cases(stage) for stage in run.STAGES}
    assert all(len({case.name for case in found}) == len(found) for found in every.values())
    assert all(len(case.processes) == 1 and len(case.processes[0]) == 1 for case in every["solo"])
    assert all(len(case.processes) == 1 and len(case.processes[0]) > 1 for case in every["streams"])
    assert {len(case.processes) for case in every["slices"]} == {2, 3}
    assert {len(case.processes) for case in every["replicas"]} == {2, 4, 6}
    assert {case.percentages for case in every["mps"]} == {(), (50, 50), (30, 70)}
    beside = [case for case in every["mps"] if case.outside]
    assert next(case.name for case in beside) == "mps-A-B-beside-C"
    assert all(len(case.processes) == 3 and case.outside == (2,) and "-beside-" in case.name for case in beside)
    assert [case.name for case in every["mps"] if "-beside-" in case.name] == [case.name for case in beside]
    apps = {
        app.partition(":")[0] for found in every.values() for case in found if not case.torch
        for process in case.processes for app in process
    }  # fmt: skip
    assert apps == {"A", "B", "C", *run.MICRO, *run.HOSTS}
    shared = [case for case in every["hosts"] if len(case.processes) > 1]
    assert {case.mps for case in shared} == {case.name.startswith("mps") for case in shared} == {False, True}
    assert all(case.mps for case in every["caps"])
    assert all(sum(case.percentages) <= 100 and not any(case.outside) for case in every["caps"])
    assert {app for case in every["torch"] for process in case.processes for app in process} == {"serve", "train"}
    # A machine is lent for minutes: what nsys needs to start, the run itself, and half as much again.
    seconds = {stage: sum(1.5 * (run.LEAD_S + case.seconds) for case in found) for stage, found in every.items()}
    assert max(seconds.values()) < 600
    assert sum(seconds.values()) < 1800


def test_options_of_an_application_reach_the_kit(tmp_path: Path) -> None:
    command = run.Kit(tmp_path, None, 2.0).kit_command(("A:green=64", "B:priority=-5", "C"), tmp_path / "0", 0, 1.0)
    assert command[1:10] == ["--app", "A", "--green", "64", "--app", "B", "--priority", "-5", "--app"]


def test_nsight_compute_counts_the_kernels_of_the_applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_record import script

    log = tmp_path / "ncu.log"
    script(tmp_path / "bin", "ncu", f'#!/bin/sh\nfor word; do echo "$word"; done >>{log}\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    run.Kit(tmp_path, None, 2.0).count()
    words = log.read_text().splitlines()
    pattern = words[words.index("--kernel-name") + 1].removeprefix("regex:")
    assert all(re.search(pattern, kernel) for kernel in run.KERNELS)
    assert re.search(pattern, "read_timer") is None
    assert words[words.index("--clock-control") + 1] == "none"


def test_a_process_outside_mps_does_not_see_its_daemon(tmp_path: Path) -> None:
    case = next(case for case in run.cases("mps") if case.outside)
    text = run.Kit(tmp_path, None, 2.0).together(case, tmp_path)[-1]
    first, second, third = text.split("; ")[1:4]
    assert third.startswith("env -u CUDA_MPS_PIPE_DIRECTORY -u CUDA_MPS_LOG_DIRECTORY ")
    assert not any(line.startswith("env") for line in (first, second))


def test_processes_of_a_case_begin_together_under_their_caps(tmp_path: Path) -> None:
    case = next(case for case in run.cases("mps") if case.percentages == (30, 70))
    shell, option, text = run.Kit(tmp_path, None, 2.0).together(case, tmp_path / "with space")
    assert (shell, option) == ("sh", "-c")
    first, second = text.split("; ")[1:3]
    assert first.startswith("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 ")
    assert second.startswith("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 ")
    assert len({line.partition(" --at ")[2].split()[0] for line in (first, second)}) == 1
    assert subprocess.run(["sh", "-n", "-c", text]).returncode == 0


def test_a_process_that_fails_is_told_and_secrets_are_not_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    kit = run.Kit(tmp_path, None, 2.0)
    done = kit.run("environment", ["sh", "-c", "env; exit 4"])
    assert (done.returncode, "hunter2" in done.stdout) == (4, False)
    (step,) = json.loads((tmp_path / "steps.json").read_text())
    assert (step["what"], step["status"], "PATH=" in step["said"]) == ("environment", 4, True)
    slow = kit.run("slow", ["sh", "-c", "echo begun; sleep 60"], timeout_s=0.5)
    assert slow.stdout.startswith("begun")
    assert "took too long" in slow.stdout


def test_what_does_not_fit_into_the_archive_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    noise = b"".join(__import__("hashlib").sha256(bytes([i])).digest() for i in range(250)) * 5  # 40 kB
    (out / "a/report.qdstrm").write_bytes(bytes((b + i) % 256 for i, b in enumerate(noise)))
    (out / "a/blocks.bin").write_bytes(noise[:8000])
    (out / "steps.json").write_text("[]")
    parts = run.pack(out, tmp_path, 5000, 12_000)
    assert [part.name for part in parts] == ["hardware.tar.gz.00", "hardware.tar.gz.01"]
    assert all(part.stat().st_size <= 5000 for part in parts)
    whole = tmp_path / "whole.tar.gz"
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(whole) as tar:
        assert set(tar.getnames()) == {"steps.json", "a/blocks.bin", "left-out.txt"}
    assert (out / "left-out.txt").read_text() == "a/report.qdstrm 40000\n"


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the kit itself, its kernels run by the CPU: one thread of each block, four pretended SMs."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to build the kit for the CPU")
    folder = tmp_path_factory.mktemp("on-cpu")
    options = ["-x", "c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-pthread"]
    subprocess.run([compiler, *options, f"-I{KIT / 'on_cpu'}", "-o", folder / "kit", KIT / "kit.cu"], check=True)
    subprocess.run([folder / "kit", "--calibrate", folder / "calibration.txt"], check=True)
    return folder


def test_every_kernel_is_calibrated(on_cpu: Path) -> None:
    lines = [line.split() for line in (on_cpu / "calibration.txt").read_text().splitlines()]
    assert {app for app, _, _ in lines} == set(run.KERNELS)
    assert all(int(rounds) >= 1 and float(alone_us) > 0 for _, rounds, alone_us in lines)


def test_the_kit_writes_what_is_read(on_cpu: Path, tmp_path: Path) -> None:
    # On a busy machine the kit launches less in a given time; where it was too little for the checks below, it gets longer.
    for seconds in (0.2, 1, 5, 25):
        at_ns = time.time_ns() + 300_000_000
        command: list[str | Path] = [on_cpu / "kit", "--app", "A", "--calibration", on_cpu / "calibration.txt"]
        command += ["--seconds", str(seconds), "--out", tmp_path / "0-A", "--at", str(at_ns), "--max-records", "95"]
        subprocess.run(command, check=True)
        found = blocks.read_run(tmp_path / "0-A")
        if found.launches.height > 9:
            break
    # Grids: 0.6 x 4 blocks per SM x 4 SMs = 9.6, and 0.3 x 8 x 4 = 9.6: ten blocks each. Streams: X4 in the second.
    assert found.launches["kernel"].to_list()[:8] == ["A1", "A2", "A3", "A4"] * 2
    assert found.launches["stream"].to_list()[:4] == [0, 0, 0, 1]
    assert set(found.launches["grid"]) == {10}
    # Nine launches fit into 95 records; of the others no block is kept.
    assert found.launches["recorded"].to_list() == [n < 9 for n in range(found.launches.height)]
    assert found.launches.height > 9
    assert found.blocks.select("launch", "block").rows() == [(n, b) for n in range(9) for b in range(10)]
    assert all(row["sm"] == row["block"] % 4 for row in found.blocks.iter_rows(named=True))
    assert set(found.blocks["warps"]) == {16, 8}
    # The clock of the "GPU" is another one: its offset to UTC is found, and no block began before all were to begin.
    offset, off = found.utc_offset_ns()
    assert abs(offset - (time.time_ns() - time.monotonic_ns())) < off + 50_000_000
    assert off < 1_000_000_000
    assert found.blocks["start_ns"].min() + offset + off >= at_ns
    assert found.units["start_utc_ns"].min() >= at_ns
    assert found.units["name"].to_list()[:2] == ["A 0", "A 1"]
    first = blocks.by_launch(found.blocks).row(0, named=True)
    assert (first["blocks"], first["sms_reached"], first["most_per_sm"]) == (10, 4, 1)


def test_several_applications_of_one_process_share_its_files(on_cpu: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        on_cpu / "kit",
        "--app",
        "B",
        "--app",
        "C",
        "--calibration",
        on_cpu / "calibration.txt",
    ]
    subprocess.run([*command, "--seconds", "0.1", "--out", tmp_path / "0"], check=True)
    found = blocks.read_run(tmp_path / "0")
    assert set(found.launches["kernel"]) == {"B1", "B2", "B3", "B4", "C1", "C2", "C3", "C4"}
    assert found.launches["launch"].to_list() == list(range(found.launches.height))
    assert {name.split()[0] for name in found.units["name"]} == {"B", "C"}
    whole = found.blocks.group_by("launch").len().join(found.launches, on="launch")
    assert (whole["len"] == whole["grid"]).all()
    assert whole.height == found.launches.height


def test_hosts_wait_as_their_name_says(on_cpu: Path, tmp_path: Path) -> None:
    units = {}
    for app, run_number in (("open_loop", 0), ("open_loop", 1), ("paced", 0), ("think", 0), ("tiny", 0)):
        prefix = tmp_path / f"{run_number}-{app}"
        command: list[str | Path] = [
            on_cpu / "kit",
            "--app",
            app,
            "--calibration",
            on_cpu / "calibration.txt",
            "--out",
            prefix,
        ]
        subprocess.run([*command, "--seconds", "0.3"], check=True)
        units[app, run_number] = blocks.read_run(prefix).units
    # Requests arrive at the same moments in every run, whatever else the machine does, about one each ms.
    first, second = (units["open_loop", n]["start_utc_ns"].diff().drop_nulls().to_list() for n in (0, 1))
    shared = min(len(first), len(second))
    assert shared > 10
    assert first[:shared] == second[:shared]
    assert 0.5e6 < sum(first) / len(first) < 2e6
    # A frame begins after a multiple of 5 ms, and no two in one.
    frames = [start // 5_000_000 for start in units["paced", 0]["start_utc_ns"]]
    assert len(set(frames)) == len(frames) > 1
    think = units["think", 0]
    assert (think["start_utc_ns"][1:] - think["end_utc_ns"][:-1]).min() >= 2_000_000
    assert blocks.read_run(tmp_path / "0-tiny").launches.height == 20 * units["tiny", 0].height


def test_a_stage_runs_from_the_build_to_the_archive(on_cpu: Path, tmp_path: Path) -> None:
    """With GPU, nsys and NVML replaced: what they are told, and that nothing is lost on the way."""
    from test_record import NSYS, environment, script

    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the NVML stand-in")
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (pip install -r requirements-dev.lock)")
    library = tmp_path / "library"
    library.mkdir()
    source = ROOT / "tests/nvml_stand_in/nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library / "libnvidia-ml.so.1", source], check=True)
    log = tmp_path / "nsys.log"
    nsys = script(tmp_path / "bin", "nsys", NSYS.replace("$NSYS_LOG", str(log)))
    command = [
        sys.executable, str(KIT / "run.py"), "streams", "--build", on_cpu, "--out", tmp_path / "out", "--nsys", nsys,
        "--seconds", "0.2", "--lead", "0.3",
    ]  # fmt: skip
    # The stand-in is chosen by a variable, and the kit hands only what it knows to what it starts.
    wrapper = f"import os, sys; sys.argv = {[str(part) for part in command[1:]]!r}; sys.path.insert(0, {str(KIT)!r}); import run; "
    wrapper += "run.PASSED = (*run.PASSED, 'NVML_STAND_IN', 'PYTHONPATH'); sys.exit(run.main())"
    done = subprocess.run(
        [sys.executable, "-c", wrapper],
        env=environment(library, "h100-mps"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    profiles = [line for line in log.read_text().splitlines() if line.startswith("profile -t")]
    assert len(profiles) == len(run.cases("streams"))
    assert all("--gpuctxsw=true" in line and "--kill=none" in line for line in profiles)
    with tarfile.open(tmp_path / "hardware.tar.gz.00") as tar:
        names = set(tar.getnames())
        for case in run.cases("streams"):
            names_of = [app.partition(":")[0] for app in case.processes[0]]
            inside = f"{case.name}/0-{'-'.join(names_of)}.meta.json"
            assert {inside, f"{case.name}/recording/samples.jsonl", f"{case.name}/recording/report.nsys-rep"} <= names
            member = tar.extractfile(inside)
            assert member is not None
            assert json.load(member)["apps"] == names_of


# The analysis side.


def written(folder: Path, rows: list[tuple[int, ...]], **meta: Any) -> Path:
    """Files as the kit writes them; rows of (launch, block, sm, warps, start, end)."""
    prefix = folder / "0-A"
    Path(f"{prefix}.blocks.bin").write_bytes(b"".join(blocks.RECORD.pack(*row) for row in rows))
    pair = {"before_utc_ns": "1795286400000000000", "after_utc_ns": "1795286400000020000", "gpu_ns": "1000"}
    last = {"before_utc_ns": "1795286402000000000", "after_utc_ns": "1795286402000010000", "gpu_ns": "2000001000"}
    facts = {"format": "pyanalyze.blocks/1", "first_time": pair, "last_time": last, **meta}
    Path(f"{prefix}.meta.json").write_text(json.dumps(facts))
    Path(f"{prefix}.launches.csv").write_text(
        "launch,kernel,stream,grid,block,registers,shared_bytes,blocks_per_sm,launch_utc_ns,recorded\n"
        "0,A1,0,2,512,32,0,4,1795286400000000000,1\n1,A4,1,9,256,32,0,8,1795286400000000500,0\n"
    )
    Path(f"{prefix}.units.csv").write_text(
        "name,start_utc_ns,end_utc_ns\nA 0,1795286400000000000,1795286400000009000\n"
    )
    return prefix


def test_what_the_kit_writes_is_read(tmp_path: Path) -> None:
    prefix = written(tmp_path, [(0, 1, 5, 16, 200, 300), (0, 0, 3, 16, 100, 250), (0, 0, 0, 0, 0, 0)])
    found = blocks.read_run(prefix)
    assert found.blocks.rows() == [(0, 0, 3, 16, 100, 250), (0, 1, 5, 16, 200, 300)]
    assert found.launches.select("kernel", "grid", "recorded").rows() == [("A1", 2, True), ("A4", 9, False)]
    assert found.units.row(0) == ("A 0", 1795286400000000000, 1795286400000009000)
    # Middles of both pairs: ...400.000010 s - 1000 ns and ...402.000005 s - 2.000001 s: 5 us apart.
    assert found.utc_offset_ns() == ((1795286400000009000 + 1795286400000004000) // 2, 10_000 + 2_500)
    with Path(f"{prefix}.blocks.bin").open("ab") as file:
        file.write(b"torn")
    with pytest.raises(ValueError, match="middle of a record"):
        blocks.read_run(prefix)
    written(tmp_path, [], format="something/2")
    with pytest.raises(ValueError, match="no known format"):
        blocks.read_run(prefix)


def table(*rows: tuple[int, ...]) -> pl.DataFrame:
    names = ("launch", "block", "sm", "warps", "start_ns", "end_ns")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")


def test_launches_and_warps_by_hand() -> None:
    """
    SM 0   |--- block 0, 8 warps ---|           0 .. 100
                    |--- block 2, 8 warps ---|  40 .. 140, then block 3 at once
                                             |--| 140 .. 150
    SM 1   |-- block 1, 4 warps --|             0 .. 50
    """
    found = table((7, 0, 0, 8, 0, 100), (7, 1, 1, 4, 0, 50), (7, 2, 0, 8, 40, 140), (7, 3, 0, 8, 140, 150))
    (row,) = blocks.by_launch(found).rows(named=True)
    assert row == {
        "launch": 7, "blocks": 4, "start_ns": 0, "end_ns": 150, "sms_reached": 2, "block_ns": (100 + 50 + 100 + 10) / 4,
        "longest_block_ns": 100, "last_start_ns": 140, "most_per_sm": 2,
    }  # fmt: skip
    # Bins of 100: SM 0 has 8 x 100 + 8 x 60 warp-ns in the first and 8 x 40 + 8 x 10 in the second.
    assert blocks.sm_warps(found, 100).rows() == [(0, 100, 0, 12.8), (0, 100, 1, 2.0), (100, 200, 0, 4.0)]


def test_time_together_by_hand() -> None:
    one = table((0, 0, 0, 1, 0, 100), (0, 1, 0, 1, 50, 120), (0, 2, 1, 1, 300, 400))
    other = table((0, 0, 0, 1, 110, 200), (0, 1, 2, 1, 90, 95), (0, 2, 1, 1, 350, 360))
    # Anywhere: 90..95 and 110..120 and 350..360; on one SM: 110..120 on 0 and 350..360 on 1.
    assert blocks.together_ns(one, other) == {"anywhere": 25, "same_sm": 20}
    assert blocks.together_ns(one, table()) == {"anywhere": 0, "same_sm": 0}


RECORDED = ("green-contexts", "mps-capped", "streams-twelve")


@pytest.fixture(scope="module", params=RECORDED)
def truth(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, sqlite3.Connection]:
    """A scenario whose blocks are known: through the kit's own files, and the books themselves."""
    assert request.param in scenario_names()
    (file,) = built(request.param).glob("*.truth.sqlite")
    books = sqlite3.connect(file)
    rows = books.execute(
        "SELECT kernel, b.block, sm, (k.block + 31) / 32, b.start_ns, b.end_ns FROM blocks b JOIN kernels k ON k.id = kernel"
    ).fetchall()
    assert len(rows) > 1000
    found = blocks.read_run(written(tmp_path_factory.mktemp("run"), rows))
    return found, request.param, books


def test_blocks_come_back_as_the_generator_wrote_them(truth: tuple[Any, Any, sqlite3.Connection]) -> None:
    found, _, books = truth
    expected = books.execute(
        "SELECT b.kernel, b.block, sm, b.start_ns, b.end_ns FROM blocks b JOIN kernels k ON k.id = b.kernel"
    )
    assert sorted(found.blocks.drop("warps").rows()) == sorted(expected.fetchall())


def test_launches_are_those_of_the_books(truth: tuple[Any, Any, sqlite3.Connection]) -> None:
    found, _, books = truth
    rows = books.execute("SELECT id, grid, sms_reached, start_ns, end_ns FROM kernels").fetchall()
    known = {row[0]: row[1:] for row in rows}
    launches = blocks.by_launch(found.blocks)
    whole = launches.filter(pl.col("blocks") == pl.Series([known[n][0] for n in launches["launch"]]))
    assert whole.height > 0.9 * len(known)
    for row in whole.rows(named=True):
        _, reached, start, end = known[row["launch"]]
        assert row["sms_reached"] == reached
        assert start <= row["start_ns"]
        assert row["end_ns"] <= end


def test_warps_of_each_sm_are_those_of_the_books(truth: tuple[Any, Any, sqlite3.Connection]) -> None:
    found, name, books = truth
    rows = books.execute("SELECT start_ns, end_ns, sm, warps FROM sm_warps").fetchall()
    known = {(row[0], row[2]): row[3] for row in rows}
    bin_ns = rows[0][1] - rows[0][0]
    mine = {(row[0], row[2]): row[3] for row in blocks.sm_warps(found.blocks, bin_ns).rows()}
    assert known
    # The books keep single precision.
    off = max(abs(mine.get(key, 0.0) - known.get(key, 0.0)) for key in {*mine, *known})
    assert off < 0.02, name


def test_clients_with_caps_share_no_sm(tmp_path: Path) -> None:
    (file,) = built("mps-capped").glob("*.truth.sqlite")
    with sqlite3.connect(file) as books:
        owner = dict(books.execute("SELECT id, tenant FROM kernels").fetchall())
        rows = books.execute("SELECT kernel, block, sm, 1, start_ns, end_ns FROM blocks").fetchall()
    parts = [table(*(row for row in rows if owner.get(row[0]) == tenant)) for tenant in sorted(set(owner.values()))]
    assert len(parts) == 2
    shared = blocks.together_ns(*parts)
    assert shared["anywhere"] > 0
    assert shared["same_sm"] == 0


def test_a_capture_through_cupti_is_read(tmp_path: Path) -> None:
    file = tmp_path / "capture.41.cupti.csv"
    file.write_text(
        "format,pyanalyze.cupti/1,41,130001\nnote,engine switch: not here, really\ndevice,0,0,4294967295,4294967295,NVIDIA H200\n"
        "context,1,0,2,7\nkernel,100,250,0,1,13,9,132,1,1,256,1,1,32,0,8192,void f<int, 3>(float)\n"
        "memcpy,50,60,0,1,14,8,1,1048576\nswitch,40,1,1\nkernel,300,4"
    )
    pid, found, notes = blocks.read_cupti(file)
    assert (pid, notes) == (41, ["engine switch: not here, really"])
    assert found["kernel"].select("start_ns", "grid_x", "dynamic_shared_bytes", "name").rows() == [
        (100, 132, 8192, "void f<int, 3>(float)")
    ]
    assert found["context"]["api_kind"].to_list() == [2]
    assert found["memcpy"]["bytes"].to_list() == [1048576]
    assert found["switch"].rows() == [(40, 1, 1)]
    file.write_text("timestamp, index\n")
    with pytest.raises(ValueError, match="no capture through CUPTI"):
        blocks.read_cupti(file)


# Making fixtures of it.


def everything(path: Path) -> str:
    """All text in an export."""
    with sqlite3.connect(path) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return "\n".join(str(row) for table in tables for row in database.execute(f'SELECT * FROM "{table}"'))


def test_an_export_loses_secrets_and_folders_and_keeps_what_is_judged(tmp_path: Path) -> None:
    export = tmp_path / "e.sqlite"
    shutil.copy(ROOT / "fixtures/captures/demo-time-slicing.sqlite", export)
    before = pyanalyze.load(export)
    with sqlite3.connect(export) as database:
        rows = [
            ("PROCESS_0:ENVIRONMENT_VARIABLE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"),
            ("DEVICE_DISPLAY_NAME", "ada"),
        ]
        rows += [
            ("PROCESS_0:ARGUMENT_0", "--data=/home/ada/secret/data.bin"),
            ("PROCESS_0:COMMAND", "/opt/ada/bin/train"),
        ]
        database.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
    assert "do-not-show-me" in everything(export)
    assert collect.trim(export, 2_000_000) == export.stat().st_size
    text = everything(export)
    for gone in ("do-not-show-me", "ada", "/usr/local/cuda"):
        assert gone not in text
        assert gone.encode() not in export.read_bytes()
    for kept in ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", "--data=data.bin", "'train'"):
        assert kept in text
    after = pyanalyze.load(export)
    assert after.kernels.drop("capture").equals(before.kernels.drop("capture"))
    assert after.classify()[0].mode == before.classify()[0].mode


def test_an_export_that_is_too_large_ends_earlier(tmp_path: Path) -> None:
    export = tmp_path / "e.sqlite"
    shutil.copy(ROOT / "fixtures/captures/demo-time-slicing.sqlite", export)
    before = pyanalyze.load(export).kernels
    assert collect.trim(export, 240_000) <= 240_000
    after = pyanalyze.load(export).kernels
    assert 0 < after.height < before.height
    # The beginning is whole, the end is gone.
    cut = after["start_ns"].max()
    kept = before.filter(pl.col("start_ns") <= cut).sort("start_ns", "correlation_id")
    columns = ["start_ns", "end_ns", "correlation_id", "name"]
    assert after.sort("start_ns", "correlation_id").select(columns).equals(kept.select(columns))
    with pytest.raises(ValueError, match="hundredth of its time"):
        collect.trim(export, 20_000)


def test_parts_are_put_together_again_and_what_cannot_be_exported_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "case").mkdir(parents=True)
    (out / "case/report.qdstrm").write_bytes(bytes(range(256)) * 40)
    (out / "steps.json").write_text("[]")
    parts = run.pack(out, tmp_path, 300, 60_000)
    assert len(parts) > 1
    folder = tmp_path / "again"
    collect.unpack(parts[::-1], folder)
    assert (folder / "case/report.qdstrm").read_bytes() == (out / "case/report.qdstrm").read_bytes()
    (left,) = collect.exports(folder, None, None, 2_000_000)
    assert "no QdstrmImporter" in left
