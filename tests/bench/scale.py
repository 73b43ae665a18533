"""How do time and memory grow with the input? Exponents of kernels, captures, processes, devices, overlap, sampled GPUs.

    python tests/bench/scale.py                        # everything: about an hour on two cores
    python tests/bench/scale.py --only processes       # one kind of growth
    python tests/bench/scale.py --only kernels --most 1000000

Each run is a process of its own; time is that of all processors, so that a busy machine changes little, and memory is
the peak of the whole process. An exponent is the slope of a least-squares line through the logarithms of medians. What a
command takes for next to no input is taken off first: it would hide how fast the rest grows. The second exponent is that
of the last step alone, which shows a quadratic part before it has the better of a linear one.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import big_export
import measurements

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from exports import A100, MS, US, kernel, resident, write  # noqa: E402

from pyanalyze.core import _core  # noqa: E402


class Run(NamedTuple):
    """What one command took."""

    cpu_s: float
    peak_bytes: int


def kernels(count: int, folder: Path) -> Path:
    """One training loop of two processes; a tenth of its launches have their call recorded."""
    return big_export.export(count, count // 10, folder)


def in_turn(count: int, folder: Path) -> Path:
    """Processes that come and go, as in an array of jobs: each runs 20 kernels, and meets four others."""
    rows = [
        kernel(1000 + process, at, at + 50 * US)
        for process in range(count)
        for at in range(process * 4 * MS, process * 4 * MS + 20 * MS, MS)
    ]
    return _write(folder / f"in-turn-{count}.sqlite", rows, count)


def all_along(count: int, folder: Path) -> Path:
    """Processes that are there from the first to the last, and launch one after the other."""
    rows = [
        kernel(1000 + process, at, at + 50 * US)
        for turn in range(5)
        for process in range(count)
        for at in [(turn * count + process) * 100 * US]
    ]
    return _write(folder / f"all-along-{count}.sqlite", rows, count)


def switched(count: int, folder: Path) -> Path:
    """Processes that are there from the first to the last, with records of when each was resident."""
    rows, switches = [], []
    for turn in range(5):
        for process in range(count):
            at = (turn * count + process) * 200 * US + US
            rows.append(kernel(1000 + process, at + 20 * US, at + 70 * US))
            switches += resident(1000 + process, process + 1, at, at + 150 * US)
    return _write(folder / f"switched-{count}.sqlite", rows, count, switches=switches)


def devices(count: int, folder: Path) -> Path:
    """As many GPUs, with a process on each."""
    rows = [
        kernel(1000 + n, turn * MS + n, turn * MS + n + 50 * US, deviceId=n) for turn in range(5) for n in range(count)
    ]
    return _write(folder / f"devices-{count}.sqlite", rows, count, gpus=_gpus(count))


def _gpus(count: int) -> list[dict[str, object]]:
    return [
        A100
        | {"id": n, "cuDevice": n, "uuid": f"{n:08x}-2222-3333-4444-555555555555", "busLocation": f"{n:04x}:18:00.0"}
        for n in range(count)
    ]


def shared_devices(count: int, folder: Path) -> Path:
    """As many GPUs with two processes on each, for long enough that the mode of parts of the time is judged."""
    rows = [
        kernel(1000 + 2 * n + tenant, start, start + 50 * US, deviceId=n)
        for turn in range(12)
        for n in range(count)
        for tenant in range(2)
        for start in [turn * 20 * MS + n + tenant * 500 * US]
    ]
    return _write(folder / f"shared-devices-{count}.sqlite", rows, 2 * count, gpus=_gpus(count))


def overlapping(count: int, folder: Path) -> Path:
    """Kernels of two processes in 128 streams of each, every one of which overlaps every other."""
    rows = [
        kernel(1000 + n % 2, n * US, (count + n) * US, streamId=7 + n // 2 % 128, gridX=1 + n % 50)
        for n in range(count)
    ]
    return _write(folder / f"overlapping-{count}.sqlite", rows, 2)


def _write(path: Path, rows: list[dict[str, object]], processes: int, **more: object) -> Path:
    rows.sort(key=lambda row: row["start"])  # type: ignore[arg-type,return-value]
    named = {1000 + n: f"worker_{n}" for n in range(processes)}
    path.unlink(missing_ok=True)
    return write(path, kernels=rows, processes=named, **more)  # type: ignore[arg-type]


def sampled(count: int, folder: Path) -> Path:
    """`nvidia-smi --query-gpu` of a cluster, twice for every GPU."""
    lines = ["timestamp, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"]
    lines += [
        f"2026/03/14 05:26:5{turn}.000, GPU-{n:08x}-2222-3333-4444-555555555555, NVIDIA L40S, {n % 101} %, 500 MiB, 46068 MiB"
        for turn in range(2)
        for n in range(count)
    ]
    path = folder / f"sampled-{count}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def captures(count: int, folder: Path) -> Path:
    """A folder of small captures, each of another machine."""
    whole = folder / f"captures-{count}"
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    rows = [kernel(1000, at, at + 50 * US) for at in range(0, 20 * MS, MS)]
    for n in range(count):
        gpu = A100 | {"uuid": f"{n:08x}-2222-3333-4444-555555555555"}
        write(whole / f"{n}.sqlite", kernels=rows, processes={1000: "worker"}, gpus=[gpu])
    return whole


@dataclass(frozen=True)
class Growth:
    """Inputs of one kind, what is run on them, and how fast it may grow."""

    make: Callable[[int, Path], Path]
    sizes: tuple[int, ...]
    commands: tuple[tuple[str, ...], ...]
    most: float
    smallest: int


#: `IN` is the input, `OUT` a file to write.
ONE = (("classify", "IN"), ("report", "IN", "-f", "json", "-o", "OUT"), ("report", "IN", "-f", "html", "-o", "OUT"))
GROWTHS = {
    "kernels": Growth(kernels, (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), ONE[1:], 1.05, 1000),
    "captures": Growth(captures, (100, 300, 1000, 3000, 10_000), (("fleet", "IN", "-o", "OUT"),), 1.05, 1),
    "processes-in-turn": Growth(in_turn, (100, 300, 1000, 3000), ONE, 1.2, 1),
    "processes-all-along": Growth(all_along, (100, 300, 1000, 3000), ONE, 1.2, 1),
    "processes-switched": Growth(switched, (300, 1000, 3000), ONE[:2], 1.2, 1),
    "devices": Growth(devices, (100, 300, 1000, 3000), ONE, 1.2, 1),
    "devices-shared": Growth(shared_devices, (30, 100, 300, 1000), ONE[:2], 1.2, 1),
    "overlapping": Growth(overlapping, (1000, 3000, 10_000, 30_000), ONE, 1.2, 10),
    "sampled": Growth(sampled, (1000, 3000, 10_000, 30_000), (("report", "--samples", "IN", "-f", "json", "-o", "OUT"),), 1.2, 1),
}  # fmt: skip


def run(command: tuple[str, ...], given: Path, folder: Path) -> Run:
    """Processor seconds and peak of one command; an error of it ends the benchmark."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    words = [str({"IN": given, "OUT": out}.get(word, word)) for word in command]
    code = "from pyanalyze.cli import main; main()"
    child = subprocess.Popen([sys.executable, "-c", code, *words, "-q"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}")
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def slope(points: list[tuple[int, float]]) -> float:
    """Of the least-squares line through the logarithms.

    >>> round(slope([(1, 3.0), (10, 300.0), (100, 30000.0)]), 3)
    2.0
    """
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-9)) for _, y in points]
    return statistics.linear_regression(xs, ys).slope


def main() -> int:
    """Print a line for each size and command, then its exponents; 1 where one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GROWTHS, default=list(GROWTHS))
    parser.add_argument("--most", type=int, help="leave larger sizes out")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the median counts")
    parser.add_argument("--no-record", action="store_true", help="append nothing to docs/measurements.jsonl")
    options = parser.parse_args()
    held = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in options.only:
            growth = GROWTHS[kind]
            sizes = [size for size in growth.sizes if options.most is None or size <= options.most]
            inputs = {size: growth.make(size, folder) for size in (growth.smallest, *sizes)}
            for command in growth.commands:
                found: dict[int, Run] = {}
                for size, given in inputs.items():
                    runs = [run(command, given, folder) for _ in range(options.repeats)]
                    cpu, peak = (statistics.median(values) for values in zip(*runs, strict=True))
                    found[size] = Run(cpu, int(peak))
                    print(
                        f"{kind:>20} {size:>10,} {_named(command):<16} {cpu:>8.2f} s {peak / 2**20:>7.0f} MiB",
                        flush=True,
                    )
                row = exponents(found, growth.smallest)
                within = max(row["time"], row["memory"]) <= growth.most
                held &= within
                print(
                    f"{kind:>20} {'exponent':>10} {_named(command):<16} time {row['time']:.2f} (last {row['time_last']:.2f}), "
                    f"memory {row['memory']:.2f} (last {row['memory_last']:.2f}); limit {growth.most}"
                    f"{'' if within else '  ABOVE'}",
                    flush=True,
                )
                if not options.no_record:
                    measurements.append({
                        "bench": "scale", "version": _core.__version__, "python": platform.python_version(),
                        "machine": platform.machine(), "processors": os.cpu_count(), "growth": kind,
                        "command": _named(command), "limit": growth.most,
                        **{name: round(value, 3) for name, value in row.items()},
                        "sizes": sizes, "cpu_s": [round(found[size].cpu_s, 2) for size in sizes],
                        "peak_bytes": [found[size].peak_bytes for size in sizes],
                    })  # fmt: skip
    return 0 if held else 1


def _named(command: tuple[str, ...]) -> str:
    return " ".join([command[0], *command[command.index("-f") + 1 :][:1]]) if "-f" in command else command[0]


def exponents(found: dict[int, Run], smallest: int) -> dict[str, float]:
    """Exponents of what the input adds to the smallest run, over all sizes and over the last step."""
    least = found[smallest]
    sizes = [size for size in found if size != smallest]
    # What is lost in the noise has no logarithm: a hundredth of what next to nothing takes is the least.
    cpu = [(size, max(found[size].cpu_s - least.cpu_s, least.cpu_s / 100)) for size in sizes]
    memory = [(size, max(found[size].peak_bytes - least.peak_bytes, least.peak_bytes / 100)) for size in sizes]
    return {
        "time": slope(cpu),
        "time_last": slope(cpu[-2:]),
        "memory": slope(memory),
        "memory_last": slope(memory[-2:]),
    }


if __name__ == "__main__":
    sys.exit(main())
