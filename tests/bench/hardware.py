"""Do intervals of elapsed slowdown hold what the programs' own clocks measured on real GPUs?

``python tests/bench/hardware.py`` analyses the recordings in ``fixtures/hardware`` without solo recordings, and compares
each tenant's elapsed slowdown with the mean time of its units of work, shared over solo (``units*.csv`` beside them).
Programs that wait for requests or a clock are left out: their units are latencies. Bounds are no estimates.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import fmean

import pyanalyze

HARDWARE = Path(__file__).resolve().parents[2] / "fixtures" / "hardware"
#: Recording, its table of units, and the application of each traced tenant in the order of their pids.
RECORDINGS = (
    ("h100/slices-A-B", "units", ("A", "B")),
    ("h100/replicas-slices-2-C", "units", ("C", "C")),
    ("h100/mps-A-B-beside-C", "units", (None, None, "C")),
    ("h100/mps-small_grid-small_grid-beside-C", "units", (None, None, "C")),
    ("h100/torch-slices-serve-train", "units", ("serve", "train")),
    ("h100/torch-mps-serve-train", "units", (None, "train")),
    ("h200/slices-copies-open_loop", "units-2", ("copies", None)),
    ("h200/slices-long_kernel-B", "units-2", ("long_kernel", "B")),
    ("h200/slices-paced-B", "units-2", (None, "B")),
    ("h200/torch-slices-jax_train-decode", "units-3", ("jax_train", "decode")),
)


def measured(path: Path, case: str, application: str) -> float:
    """Mean time of a unit, shared over solo."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["application"] == application]
    solo = {f"alone-{application}", f"torch-alone-{application}"}
    of = [[float(row["mean_us"]) for row in rows if row["case"] in cases] for cases in ({case}, solo)]
    return fmean(of[0]) / fmean(of[1])


def main() -> int:
    """Analyse, compare, print."""
    held = n = 0
    for name, units, applications in RECORDINGS:
        path = HARDWARE / f"{name}.sqlite"
        session = pyanalyze.load(path)
        pids = dict(session.tenants.select("tenant_id", "pid").iter_rows())
        found = [tenant for device in session.interference() for tenant in device.tenants]
        found.sort(key=lambda tenant: pids[tenant.tenant_id] or 0)
        for tenant, application in zip(found, applications, strict=True):
            elapsed = tenant.slowdown.elapsed
            if application is None or elapsed is None or elapsed.low is None or elapsed.high is None:
                continue
            true = measured(path.parent / f"{units}.csv", path.stem, application)
            holds = elapsed.low <= true <= elapsed.high
            held, n = held + holds, n + 1
            said = f"{elapsed.value:.2f} ({elapsed.low:.2f}-{elapsed.high:.2f})"
            print(f"{name:42} {application:11} measured {true:.2f}  said {said:18} {'' if holds else 'not held'}")
    print(f"without solo recordings: {held} of {n} intervals hold what was measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
