"""How often does a stated 95 % interval hold the truth, where kernels, pauses and arrivals vary by chance?

``python tests/bench/coverage.py [--seeds N] [--first SEED]`` builds the scenarios in ``tests/bench/scatter`` with N
seeds, holds every tenant against a recording of it solo (another day: other lengths, pauses, arrivals) and against the
run replayed, and appends a line to docs/measurements.jsonl. Scenarios without scatter say nothing of an interval:
there the estimate is the truth.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

import generate
import measurements

import pyanalyze

HERE = Path(__file__).resolve().parent / "scatter"
MEASURES = {"elapsed": "elapsed", "latency": "kernel_latency", "resident": "resident"}
COLUMNS = ("scenario", "seed", "tenant", "how", "measure", "true", "value", "low", "high")
Row = tuple[str, int, str, str, str, float, float, float, float]


def judged(job: tuple[Path, int]) -> list[Row]:
    """Each figure that has an interval."""
    scenario, seed = job
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        generate.generate([scenario], Path(folder), seed, solo=True)
        name = scenario.stem
        truth = json.loads((Path(folder) / f"{name}.truth.json").read_text(encoding="utf-8"))
        tenants = {t["name"]: t["slowdown"] for t in truth["tenants"]}
        names = {t["pid"]: t["tenant"] for t in truth["captures"][0]["traced"]}
        for how in ("with", "without"):
            solo = sorted(Path(folder).glob(f"{name}.solo.*.sqlite")) if how == "with" else []
            session = pyanalyze.load(Path(folder) / f"{name}.sqlite", baselines=solo)
            pids = dict(session.tenants.select("tenant_id", "pid").iter_rows())
            for found in (tenant for device in session.interference() for tenant in device.tenants):
                who = names[pids[found.tenant_id]]
                for measure, key in MEASURES.items():
                    e, true = getattr(found.slowdown, measure), tenants[who][key]["ratio"]
                    bound = e is not None and how == "without" and e.value in (e.low, e.high)
                    if e is not None and not bound and None not in (e.low, e.high, true):
                        rows.append((name, seed, who, how, measure, true, e.value, e.low, e.high))
    return rows


def main() -> int:
    """Build, analyse, compare, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--keep", type=Path, help="write every figure to this CSV file, and no line to the log")
    parser.add_argument("--read", type=Path, nargs="+", help="figures that were kept, instead of building any")
    arguments = parser.parse_args()
    rows: list[Row] = []
    if arguments.read:
        for file in arguments.read:
            with file.open(encoding="utf-8", newline="") as kept:
                for r in csv.DictReader(kept):
                    numbers = (float(r["true"]), float(r["value"]), float(r["low"]), float(r["high"]))
                    rows.append((r["scenario"], int(r["seed"]), r["tenant"], r["how"], r["measure"], *numbers))
    else:
        generate.program()
        scenarios = sorted(HERE.glob("*.toml"))
        wanted = range(arguments.first, arguments.first + arguments.seeds)
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            for found in pool.map(judged, [(scenario, seed) for seed in wanted for scenario in scenarios]):
                rows += found
    if arguments.keep:
        lines = [",".join(str(field) for field in row) for row in rows]
        arguments.keep.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
        return 0
    seeds = sorted({row[1] for row in rows})
    runs = len({row[:3] for row in rows})
    strata: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        strata["all", row[3], row[4]].append(row)
        strata[row[0], row[3], row[4]].append(row)
    entry: dict[str, Any] = {
        "bench": "interference-coverage", "version": pyanalyze.__version__, "seeds": [seeds[0], seeds[-1]],
        "tenant_runs": runs, "strata": [],
    }  # fmt: skip
    print(f"{runs} tenant-runs, seeds {seeds[0]} to {seeds[-1]}")
    print("scenario        baselines  measure         n   held    median error   median half width")
    for (scenario, how, measure), mine in sorted(strata.items()):
        held = sum(low <= true <= high for *_, true, _, low, high in mine)
        errors = sorted(abs(math.log(value / true)) for *_, true, value, _, _ in mine)
        widths = sorted(math.log(high / low) / 2 for *_, low, high in mine)
        cell = {
            "scenario": scenario, "how": how, "measure": measure, "n": len(mine), "held": round(held / len(mine), 4),
            "median_error": round(errors[len(mine) // 2], 5), "median_half_width": round(widths[len(mine) // 2], 5),
        }  # fmt: skip
        entry["strata"].append(cell)
        print(
            f"{scenario:15} {how:9}  {measure:9} {len(mine):6}  {held / len(mine):6.1%}  {cell['median_error']:10.3%}"
            f"  {cell['median_half_width']:14.3%}"
        )
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
