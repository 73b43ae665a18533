"""How fast are the facts of a verdict read?  ``python tests/bench/facts.py`` prints seconds for 10^5, 10^6, 10^7 kernels.

Two processes that are time-sliced, three streams each, twelve kinds of kernels; every run in a process of its own. `facts` is
the room that the verdict reads, `overlap` the one before it (who ran beside whom). `CPU s` is what all threads had of the
processors: on a busy machine it says more than the wall clock. Appends to docs/measurements.jsonl.
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
COMMAND = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "pyanalyze-core", "--example", "facts", "--"]
#: Seconds for 10^7 kernels that were aimed at, on two cores.
AIM_S = 2.0


def measured(rows: int, runs: int) -> dict[str, Any]:
    """Medians of several processes."""
    found = []
    for _ in range(runs):
        ran = subprocess.run([*COMMAND, str(rows)], capture_output=True, text=True, check=True, cwd=ROOT)
        found.append(json.loads(ran.stdout))
    keys = ("facts_s", "facts_cpu_s", "overlap_s", "overlap_cpu_s")
    return {**found[-1], **{key: statistics.median(row[key] for row in found) for key in keys}}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--most", type=int, default=10_000_000, help="kernels of the largest run")
    arguments = parser.parse_args()
    subprocess.run([*COMMAND, "1000"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)  # compiled before it is timed
    results = []
    print("   kernels   facts s  CPU s   overlap s  CPU s   added MB   aim")
    for rows in (rows for rows in (100_000, 1_000_000, 10_000_000) if rows <= arguments.most):
        row = measured(rows, arguments.runs)
        results.append(row)
        verdict = "" if rows < 10_000_000 else f"{AIM_S:.0f} s: {'met' if row['facts_s'] < AIM_S else 'missed'}"
        print(
            f"{rows:10,d} {row['facts_s']:9.3f} {row['facts_cpu_s']:6.2f} {row['overlap_s']:11.3f} "
            f"{row['overlap_cpu_s']:6.2f} {row['added_bytes'] / 1e6:10.0f}   {verdict}"
        )
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(f"load of the machine at the end: {load:.1f} on {processors} processors")
    entry = {
        "bench": "facts",
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
