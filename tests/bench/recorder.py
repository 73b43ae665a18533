"""What does a sample cost the recorder itself, by the number of processes on the GPU?

`make bench` runs it. NVML is the stand-in of the tests, which answers at once: what is measured is this package and the
binding, not a driver. What a driver costs stands in the last line of every recording. Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measurements

ROOT = Path(__file__).parent.parent.parent
MAIN = [sys.executable, "-c", "from pyanalyze.cli import main; main()"]


def measured(library: Path, folder: Path, processes: int, rate_hz: int, seconds: int) -> dict[str, Any]:
    """One recording's own account of what it cost."""
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": "busy", "PYTHONPATH": paths,
        "NVML_STAND_IN_PROCESSES": str(processes),
    }  # fmt: skip
    out = folder / str(processes)
    command = [*MAIN, "record", "-o", str(out), "--rate", str(rate_hz), "--duration", str(seconds)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    text = (out / "samples.jsonl").read_text()
    end = json.loads(text.splitlines()[-1])["end"]
    return {
        "processes": processes,
        "samples": end["samples"],
        "sample_ms": round(end["mean_sample_ns"] / 1e6, 2),
        "longest_ms": round(end["longest_sample_ns"] / 1e6, 1),
        "cpu_share": round(end["cpu_share"], 3),
        "late": end["late"],
        "bytes_per_sample": round(len(text) / end["samples"]),
    }


def main() -> int:
    """Print a table and append it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=10)
    arguments = parser.parse_args()
    compiler = shutil.which("cc")
    if compiler is None:
        print("no C compiler to build the NVML stand-in")
        return 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source = ROOT / "tests/nvml_stand_in/nvml.c"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
        rows = [measured(folder, folder, count, arguments.rate, arguments.seconds) for count in (1, 10, 100, 1000)]
    print("processes  ms per sample  longest  CPU core  late  bytes")
    for row in rows:
        print(
            f"{row['processes']:9}  {row['sample_ms']:13}  {row['longest_ms']:7}  {row['cpu_share']:8.1%}  "
            f"{row['late']:4}  {row['bytes_per_sample']:5}"
        )
    from pyanalyze import __version__

    entry = {
        "bench": "recorder",
        "rate_hz": arguments.rate,
        "seconds": arguments.seconds,
        "rows": rows,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "version": __version__,
    }
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
