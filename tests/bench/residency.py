"""How fast is it worked out which context was resident?  ``python tests/bench/residency.py`` prints rows per second.

Switch records to residency and switches, kernels against a tenth as many slices to attributed time, and kernels without any
records to inferred turns, each with 10^5, 10^6 and 10^7 rows, in a process of its own: two contexts that are time-sliced.
Peak memory is that of the whole process, over the tables that go in and come out. `CPU s` is what its first thread had of a
processor: on a busy machine it says more than the wall clock.
Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import measurements

import pyanalyze

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "pyanalyze-core", "--example", "residency", "--"]
#: Seconds for 10^7 rows that were aimed at.
AIMS = {"residency": 2.0, "attribution": 3.0}


def measured(what: str, rows: int, runs: int) -> dict[str, Any]:
    """Medians of several processes."""
    found = []
    for _ in range(runs):
        ran = subprocess.run([*COMMAND, what, str(rows)], capture_output=True, text=True, check=True, cwd=ROOT)
        found.append(json.loads(ran.stdout))
    seconds = statistics.median(row["seconds"] for row in found)
    return {**found[-1], "seconds": seconds, "cpu_seconds": statistics.median(row["cpu_seconds"] for row in found)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--most", type=int, default=10_000_000, help="rows of the largest run")
    arguments = parser.parse_args()
    subprocess.run([*COMMAND], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)  # compiled before it is timed
    sizes = [rows for rows in (100_000, 1_000_000, 10_000_000) if rows <= arguments.most]
    results = []
    print("what             rows        s    CPU s     rows/s   peak / tables   aim")
    for what in ("residency", "attribution", "inferred"):
        for rows in sizes:
            row = measured(what, rows, arguments.runs)
            results.append(row)
            aim = AIMS.get(what) if rows == 10_000_000 else None
            verdict = "" if aim is None else f"{aim:.0f} s: {'met' if row['seconds'] < aim else 'missed'}"
            memory = row["peak_bytes"] / row["table_bytes"]
            print(
                f"{what:10} {rows:11,d} {row['seconds']:8.3f} {row['cpu_seconds']:8.2f} "
                f"{rows / row['seconds']:10,.0f} {memory:12.2f}     {verdict}"
            )
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(f"load of the machine at the end: {load:.1f} on {processors} processors")
    entry = {
        "bench": "residency",
        "runs": arguments.runs,
        "results": results,
        "load": round(load, 1),
        "processors": processors,
        "version": pyanalyze.__version__,
    }
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
