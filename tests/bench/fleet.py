"""Does a fleet give the same bytes whoever works, how much faster are two, and what does handing out work cost?

``python tests/bench/fleet.py`` takes 200 generated captures (built on demand, or those under ``--captures FOLDER``) through
one process, two processes and a Dask cluster of two workers on this machine, and through the last two again while a
worker is killed half-way; every file must be equal.  Pairs of short runs (``--pairs``) on few captures give the speed-up:
one worker against two, alternating, so that both see the same machine; the load is written beside it.  Handing out work is
measured with work that does nothing and returns what a report weighs.  Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "fixtures"))

import measurements  # noqa: E402

import pyanalyze  # noqa: E402
from pyanalyze.fleet import analyse  # noqa: E402
from pyanalyze.fleet.executors import executor_for  # noqa: E402

#: Who works on all captures.
KINDS: dict[str, dict[str, Any]] = {
    "serial": {"workers": 1, "threads": 1},
    "dask": {"workers": 2, "threads": 2, "scheduler": "local"},
    "processes": {"workers": 2, "threads": 2},
    "dask-killed": {"workers": 2, "threads": 2, "scheduler": "local", "kill": True},
    "processes-killed": {"workers": 2, "threads": 2, "kill": True},
}
#: What a report and its page weigh, compressed.
RESULT_BYTES = 15_000


def generated(count: int) -> list[Path]:
    """Recordings of every scenario, seed after seed, until there are enough."""
    import generate

    found: list[Path] = []
    seed = 1
    while len(found) < count:
        for name in generate.scenario_names():
            found += captures_in(generate.built(name, seed))
        seed += 1
    return found[:count]


def captures_in(folder: Path) -> list[Path]:
    """Recordings under a folder; the simulation's books are none."""
    return sorted(path for path in folder.rglob("*.sqlite") if not path.name.endswith(".truth.sqlite"))


def digest(folder: Path) -> tuple[str, int]:
    """Of the tables and of everything else that a run wrote, by name; and how many files."""
    whole = hashlib.sha256()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        whole.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest(), len(files)


def children() -> list[int]:
    """Processes of ours that were spawned to work."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            line = (stat.parent / "cmdline").read_bytes()
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and b"spawn_main" in line and state != "Z":
            found.append(int(stat.parent.name))
    return found


def run(folder: Path, out: Path, *, kill: bool = False, **options: Any) -> dict[str, Any]:
    """One run into a fresh folder; with `kill` a worker dies when a part is done."""
    shutil.rmtree(out, ignore_errors=True)
    killed: list[int] = []

    def killer() -> None:
        while not killed:
            if len(list(out.glob("groups/*/report.json"))) >= 3 and (victims := children()):
                killed.append(victims[0])
                os.kill(victims[0], signal.SIGKILL)
            time.sleep(0.02)

    if kill:
        threading.Thread(target=killer, daemon=True).start()
    own, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    fleet = analyse(folder, out, **options)
    seconds = time.perf_counter() - begun
    now, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    if kill and not killed:
        raise SystemExit("nobody was killed: the run was too short")
    return {
        "seconds": seconds,
        "own_cpu_s": now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime,
        "workers_cpu_s": workers.ru_utime + workers.ru_stime - theirs.ru_utime - theirs.ru_stime,
        "load": os.getloadavg()[0],
        "groups": len(fleet.summary.groups),
        "captures": sum(len(group.captures) for group in fleet.summary.groups),
        "failures": [one.message for one in fleet.failures],
        "digest": digest(out),
    }


def _path(one: dict[str, Any], workers: int) -> float:
    """Processor seconds one after the other, if nothing of what the caller does happened beside the workers."""
    return float(one["own_cpu_s"] + one["workers_cpu_s"] / workers)


def nothing(data: bytes) -> bytes:
    """Work that costs nothing and weighs what a result does."""
    return data


def handing_out(scheduler: str | None, tasks: int) -> float:
    """Milliseconds for each piece of work that does nothing, with two workers that are there already."""
    with executor_for(scheduler, 2) as executor:
        list(executor.outcomes(nothing, [(b"x",)] * 4))
        begun = time.perf_counter()
        done = sum(1 for _ in executor.outcomes(nothing, [(os.urandom(RESULT_BYTES),) for _ in range(tasks)]))
        seconds = time.perf_counter() - begun
    if done != tasks:
        raise SystemExit(f"{done} of {tasks} came back")
    return 1000 * seconds / tasks


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=Path, help="a folder of generated captures; else they are built")
    parser.add_argument("--count", type=int, default=200, help="how many captures")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of short runs for the speed-up")
    parser.add_argument("--short", type=int, default=24, help="captures in a short run")
    parser.add_argument(
        "--kinds", nargs="*", default=list(KINDS), choices=[*KINDS, "none"], help="runs over all captures"
    )
    parser.add_argument(
        "--equal-to", default="", help="SHA-256 that an earlier call printed: its files are compared, too"
    )
    arguments = parser.parse_args()
    count = arguments.count
    paths = captures_in(arguments.captures)[:count] if arguments.captures else generated(count)
    if len(paths) < count:
        parser.error(f"{arguments.captures} holds {len(paths)} captures, not {count}")
    entry: dict[str, Any] = {"bench": "fleet", "captures": count, "version": pyanalyze.__version__}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        # Always in one place: paths stand in what a run writes.
        many, few = (ROOT / "target" / "fleet-bench" / name for name in ("many", "few"))
        for folder in (many, few):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for number, path in enumerate(paths):
            (many / f"{number:04}-{path.name}").symlink_to(path.resolve())
        for number, path in enumerate(sorted(paths, key=lambda path: path.stat().st_size)[-arguments.short :]):
            (few / f"{number:04}-{path.name}").symlink_to(path.resolve())
        kinds = [name for name in arguments.kinds if name != "none"]
        if kinds:
            runs = {}
            for name in kinds:
                options = KINDS[name]
                runs[name] = run(many, out, **options)
                one = runs[name]
                print(
                    f"{name:28} {one['seconds']:7.1f} s   own processor {1000 * one['own_cpu_s'] / count:5.1f} ms a "
                    f"capture, workers {one['workers_cpu_s']:.1f} s, load {one['load']:.1f}   {one['groups']} groups of {one['captures']} captures, {len(one['failures'])} failed   "
                    f"{one['digest'][1]} files {one['digest'][0]}",
                    flush=True,
                )
            first = arguments.equal_to or runs[kinds[0]]["digest"][0]
            entry["equal"] = all(one["digest"][0] == first for one in runs.values())
            entry["runs"] = runs
            print("byte-identical" if entry["equal"] else "NOT EQUAL", flush=True)
        pairs = []
        for _ in range(arguments.pairs):
            first = run(few, out, workers=1, threads=1)
            before = os.getloadavg()[0]
            second = run(few, out, workers=2, threads=2)
            third = run(few, out, workers=2, threads=2, scheduler="local")
            pairs.append(
                {
                    "serial_s": round(first["seconds"], 2),
                    "processes_s": round(second["seconds"], 2),
                    "dask_s": round(third["seconds"], 2),
                    "load": round(before, 2),
                    # Where nothing else runs: what one process does alone, and its part of what workers share.
                    "by_cpu_processes": round(_path(first, 1) / _path(second, 2), 2),
                    "by_cpu_dask": round(_path(first, 1) / _path(third, 2), 2),
                }
            )
            print(f"pair: {pairs[-1]}", flush=True)
        entry["short"] = arguments.short
        entry["pairs"] = pairs
        for kind in ("processes", "dask"):
            times = [pair["serial_s"] / pair[f"{kind}_s"] for pair in pairs]
            cpu = [pair[f"by_cpu_{kind}"] for pair in pairs]
            if times:
                entry[f"by_cpu_{kind}"] = round(statistics.median(cpu), 2)
                print(f"by processor seconds, {kind}: {entry[f'by_cpu_{kind}']}")
                entry[f"speed_up_{kind}"] = round(statistics.median(times), 2)
                print(f"speed-up, {kind}: {entry[f'speed_up_{kind}']} (aim 1.7)")
        for name, scheduler in (("processes", None), ("dask", "local")):
            entry[f"handing_out_ms_{name}"] = round(handing_out(scheduler, 400), 2)
            print(f"handing out, {name}: {entry[f'handing_out_ms_{name}']} ms a capture (aim 50)")
    entry.update(cpus=os.cpu_count(), python=platform.python_version(), machine=platform.machine())
    command = ["git", "rev-parse", "--short=12", "HEAD:fixtures/generator"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    entry["generator"] = done.stdout.strip()
    measurements.append(entry)
    return 0 if entry.get("equal", True) else 1


if __name__ == "__main__":
    sys.exit(main())
