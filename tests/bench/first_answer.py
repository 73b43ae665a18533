"""How long does each command take to answer, how much memory, how many calls into the core?

Every run is a process of its own, in memory that was in use just before. `kernels` of the same file is timed between the
others: its time is the yardstick, because it reads the kernels once and builds no session. Calls into the core are
counted in one further run of each command inside a process that wraps the compiled functions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import big_export
import measurements

from pyanalyze.core import _core

ROOT = Path(__file__).parent.parent.parent
SMALL = ROOT / "fixtures" / "captures" / "demo-time-slicing.sqlite"
RUN = "from pyanalyze.cli import main; main()"
#: Wraps every function of the core, runs a command, and prints how often each was called.
COUNT = """
import collections, json, sys
from pyanalyze.core import _core
calls = collections.Counter()
def counted(name, function):
    def call(*args, **named):
        calls[name] += 1
        return function(*args, **named)
    return call
for name in sys.argv[1].split(","):
    setattr(_core, name, counted(name, getattr(_core, name)))
from pyanalyze.cli import cli
try:
    cli.main(sys.argv[3:], standalone_mode=False)
except SystemExit:
    pass
with open(sys.argv[2], "w") as out:
    json.dump(calls, out)
"""
#: Functions that read or compute, not those that say what there is.
COUNTED = (
    "read_capture", "kernel_summary", "join_captures", "place_samples", "reconstruct", "reconstruct_parts", "attribution",
    "calls_in_gaps", "launch_records",
    "occupancy", "kernel_occupancy",
    "infer_residency",
    "residency_summary", "launches", "timeline", "latencies", "cut", "slowdowns", "explain", "streams", "tenant_usage",
)  # fmt: skip
COMMANDS = ("summary", "classify", "residency", "occupancy", "interference", "advise", "report")


def words(command: str, capture: Path, out: Path) -> list[str]:
    """The command line that shows one answer; a report is written as HTML."""
    more = ["-o", str(out), "--force"] if command == "report" else []
    return [command, str(capture), *more]


def timed(arguments: list[str], cache: Path, peak: int = 0) -> tuple[float, float, int]:
    """Seconds by the clock and of all processors, and peak bytes, of one command in a process of its own.

    Modules are compiled beforehand, as an installer does; what a checkout may compile goes to `cache`. A virtual machine
    gives memory that nobody uses back to its host within seconds, and takes fifty times as long to get it again as to
    clear it: another process uses as much as this one had at its `peak` just before.
    """
    if peak:
        subprocess.run([sys.executable, "-c", f"b'x' * {peak}"], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(cache)
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", RUN, *arguments], stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def calls_of(arguments: list[str], folder: Path) -> dict[str, int]:
    """How often a command called each function of the core."""
    out = folder / "calls.json"
    names = ",".join(name for name in COUNTED if hasattr(_core, name))
    subprocess.run([sys.executable, "-c", COUNT, names, str(out), *arguments], check=True, stdout=subprocess.DEVNULL)
    counted: dict[str, int] = json.loads(out.read_text(encoding="utf-8"))
    return counted


def main() -> int:
    """Print a line for each command and size, and append them to the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="*", default=[1_000_000, 5_000_000], help="0: the small capture")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=COMMANDS, help="only these")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = []
    print(
        f"{'kernels':>9} {'command':<13} {'s':>6} {'of kernels':>10} {'cpu s':>6} {'peak GB':>8}  calls into the core"
    )
    with tempfile.TemporaryDirectory() as folder:
        for kernels in [0, *(n for n in options.kernels if n)]:
            capture = big_export.export(kernels, 2 * kernels) if kernels else SMALL
            out, cache = Path(folder) / "out.html", Path(folder) / "modules"
            lines = {command: words(command, capture, out) for command in options.commands}
            # The file and the program are in memory from here on.
            peaks = {command: timed(line, cache)[2] for command, line in lines.items()}
            runs: dict[str, list[tuple[float, float, int]]] = {command: [] for command in ("kernels", *lines)}
            for _ in range(options.runs):
                runs["kernels"].append(timed(["kernels", str(capture)], cache))
                for command, line in lines.items():
                    runs[command].append(timed(line, cache, peaks[command]))
            yardstick = statistics.median(seconds for seconds, _, _ in runs["kernels"])
            for command, found in runs.items():
                seconds, cpu = (statistics.median(run[n] for run in found) for n in (0, 1))
                peak = max(run[2] for run in found)
                counted = calls_of(lines[command], Path(folder)) if command in lines else {"kernel_summary": 1}
                said = " ".join(f"{name} {number}" for name, number in sorted(counted.items()))
                print(
                    f"{kernels:>9} {command:<13} {seconds:>6.2f} {seconds / yardstick:>10.1f} {cpu:>6.2f} "
                    f"{peak / 1e9:>8.2f}  {said}"
                )
                rows.append(
                    {
                        "bench": "first_answer",
                        "kernels": kernels,
                        "command": command,
                        "seconds": round(seconds, 3),
                        "over_kernels": round(seconds / yardstick, 2),
                        "cpu_seconds": round(cpu, 3),
                        "peak_bytes": peak,
                        "calls": counted,
                        "runs": options.runs,
                        "version": _core.__version__,
                        "python": platform.python_version(),
                        "machine": platform.machine(),
                        "processors": os.cpu_count(),
                    }
                )
    measurements.append(*rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
