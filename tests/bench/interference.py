"""How far off are slowdowns and causes, how often do intervals hold the truth, and who is called slowed for nothing?

``python tests/bench/interference.py [--seeds N] [--first SEED] [--kernels N] [SCENARIO ...]`` builds every scenario with
N seeds, analyses its first recording with and without solo recordings of each tenant (made with other arrivals, calls
and blocks than the run that the truth compares with), prints errors beside that of always answering 1.0, and appends a
line to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

import generate
import measurements

import pyanalyze
from pyanalyze.core import _core

MEASURES = {"elapsed": "elapsed", "latency": "kernel_latency", "resident": "resident"}
#: Closer than this to 1 in every measure, a tenant was not slowed.
CALM = 1.01
#: An estimate whose 95 % bounds are no farther from it says that it is sure: such cases are identified.
SURE = 1.05
#: Times that the speed is measured; the median counts.
RUNS = 5


@dataclass(frozen=True)
class Row:
    """One measure of one tenant in one run."""

    scenario: str
    seed: int
    tenant: str
    how: str
    measure: str
    true: float
    value: float | None
    low: float | None
    high: float | None


def judged(job: tuple[str, int, bool]) -> tuple[list[Row], list[tuple[str, str, float]], list[tuple[str, bool, bool]]]:
    """Rows, errors of causes in points (how, cause, error), and (how, truly calm, called slowed) of each tenant."""
    name, seed, keep = job
    folder = generate.built(name, seed, solo=True)
    truth = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
    first = truth["captures"][0]["name"]
    # What was recorded at the same time of the same GPU belongs together.
    together = [c["name"] for c in truth["captures"] if c["name"] == first or Path(c["name"]).parent != Path()]
    captures = [folder / f"{name_}.sqlite" for name_ in together]
    alone = sorted(folder.glob(f"{first}.solo.*.sqlite"))
    tenants = {t["name"]: t for t in truth["tenants"]}
    by_pid = {(c["name"], t["pid"]): t["tenant"] for c in truth["captures"] for t in c["traced"]}
    rows, causes, calls = [], [], []
    for how, baselines in (("without", []), ("with", alone)):
        session = pyanalyze.load(captures, baselines=baselines)
        pids = {r["tenant_id"]: (together[r["capture"]], r["pid"]) for r in session.tenants.iter_rows(named=True)}
        for device in session.interference():
            for found in device.tenants:
                true = tenants[by_pid[pids[found.tenant_id]]]["slowdown"]
                ratios = {measure: true[key]["ratio"] for measure, key in MEASURES.items()}
                for measure, ratio in ratios.items():
                    e = getattr(found.slowdown, measure)
                    # A bound is no estimate.
                    e = None if e is not None and (e.low == e.value or e.high == e.value) and how == "without" else e
                    values = (None, None, None) if e is None else (e.value, e.low, e.high)
                    if ratio is not None:
                        rows.append(Row(name, seed, by_pid[pids[found.tenant_id]], how, measure, ratio, *values))
                calm = all(abs(r - 1) < CALM - 1 for r in (ratios["elapsed"], ratios["latency"]) if r is not None)
                if found.slowdown.elapsed is not None or found.slowdown.latency is not None:
                    calls.append((how, calm, found.slowed))
                lost = true["lost"]
                if found.causes is None or lost["total_ns"] < 0.05 * true["kernel_latency"]["solo_ns"]:
                    continue
                whole = lost["total_ns"]
                parts = {
                    "launch": lost["launch_ns"],
                    "queue": lost["queue_same_tenant_ns"] + lost["queue_other_tenant_ns"],
                    "not_resident": lost["not_resident_ns"],
                    "switch": lost["switch_ns"],
                    "execution": lost["execution_ns"],
                }
                # What cannot be told apart without residency is one part.
                unknown = [part for part in parts if getattr(found.causes, part) is None]
                if unknown:
                    parts["others"] = sum(parts.pop(part) for part in unknown)
                unexplained = found.causes.unexplained or 0.0
                if abs(unexplained) < 0.01:
                    causes += [
                        (how, part, 100 * (getattr(found.causes, part) - ns / whole)) for part, ns in parts.items()
                    ]
    if not keep:
        shutil.rmtree(folder)
    return rows, causes, calls


def share(errors: list[float], limit: float) -> float:
    """Part of the errors within a limit."""
    return sum(e <= limit for e in errors) / len(errors) if errors else math.nan


def speed(kernels: int) -> dict[str, Any]:
    """Seconds to compare two tenants with that many kernels, thousands of signatures, time-sliced."""
    import polars as pl

    half, step = kernels // 2, 10_000
    index = pl.int_range(0, half, eager=True, dtype=pl.Int64)
    parts = []
    for tenant in (0, 1):
        # 1000 kernels of 4 us, one after the other, then the other tenant's turn; A alone for the first tenth.
        turn, within = index // 1000, index % 1000
        start = (2 * turn + tenant) * 1000 * step + within * step + tenant * half // 10
        parts.append(
            pl.DataFrame(
                {
                    "pid": pl.Series([100 + tenant]).new_from_index(0, half).cast(pl.UInt32),
                    "correlation_id": index.cast(pl.UInt32),
                    "start_ns": start,
                    "end_ns": start + 4_000 + (index * 7919) % 500,
                    "grid_x": ((index * 31) % 2000 + 1).cast(pl.UInt32),
                }
            )
        )
    kernels_table = (
        pl.concat(parts)
        .sort("start_ns")
        .with_columns(
            pl.lit(0, dtype=pl.UInt32).alias("capture"),
            pl.lit(0, dtype=pl.UInt32).alias("device_id"),
            pl.lit(1, dtype=pl.UInt32).alias("context_id"),
            pl.lit(7, dtype=pl.UInt32).alias("stream_id"),
            pl.lit("kernel").cast(pl.Categorical).alias("name"),
        )
    )
    calls = kernels_table.select(
        "capture",
        "pid",
        pl.col("pid").alias("tid"),
        pl.col("start_ns") - 3_000,
        (pl.col("start_ns") - 500).alias("end_ns"),
        pl.lit("cudaLaunchKernel_v7000").cast(pl.Categorical).alias("name"),
        "correlation_id",
    )
    tenants = {
        "tenant_id": [0, 1], "device_id": [0, 0], "capture": [0, 0], "pid": [100, 101], "name": ["a", "b"],
        "contexts": ["1", "1"], "hw_contexts": ["", ""], "traced": [True, True], "basis": ["observed"] * 2,
    }  # fmt: skip
    captured = pl.DataFrame(
        {
            "capture": [0], "path": ["generated"], "size_bytes": [0], "export_shift_ns": [0],
            "export_normalized": [False], "clock_offset_ns": [0], "synthetic": [True],
        },
        schema_overrides={"capture": pl.UInt32},
    )  # fmt: skip
    # Brought to their declared types once, as a session holds them.
    held = _core.join_captures([{"capture": captured, "kernels": kernels_table, "api_calls": calls}])
    tables = {"kernels": held["kernels"], "api_calls": held["api_calls"], "tenants": pl.DataFrame(tenants)}
    del kernels_table, calls, held
    runs = []
    for _ in range(RUNS):
        begin, spent = time.perf_counter(), time.process_time()
        made = _core.slowdowns(tables, [], None)
        runs.append((time.perf_counter() - begin, time.process_time() - spent, made["slowdowns"].num_rows))
        del made
    seconds, spent, signatures = sorted(runs)[RUNS // 2]
    return {
        "kernels": kernels, "signatures": signatures, "seconds": round(seconds, 2),
        "processor_seconds": round(spent, 2), "runs": [round(run[0], 2) for run in runs],
    }  # fmt: skip


def main() -> int:
    """Build, analyse, compare, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=generate.scenario_names())
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--kernels", type=int, default=0, help="also time that many kernels")
    parser.add_argument("--discard", action="store_true", help="remove built captures again")
    parser.add_argument("--worst", type=int, default=12, help="how many of the largest errors to list")
    arguments = parser.parse_args()
    generate.program()
    jobs = [
        (name, seed, not arguments.discard)
        for seed in range(arguments.first, arguments.first + arguments.seeds)
        for name in arguments.scenario
    ]
    rows: list[Row] = []
    causes: list[tuple[str, str, float]] = []
    calls: list[tuple[str, bool, bool]] = []
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for done in pool.map(judged, jobs):
            rows += done[0]
            causes += done[1]
            calls += done[2]
    entry: dict[str, Any] = {
        "bench": "interference",
        "seeds": f"{arguments.first} to {arguments.first + arguments.seeds - 1}",
        "scenario_seeds": len(jobs),
        "version": pyanalyze.__version__,
        "measures": [],
        "causes": [],
    }
    print(f"{len(jobs)} scenario-seeds, {len({(r.scenario, r.seed, r.tenant) for r in rows})} tenant-runs\n")
    print(
        "                     answered     median    p95     within   of those that are sure  always 1.0   interval holds truth"
    )
    for how, limit in (("with", 0.02), ("without", 0.1)):
        for measure in MEASURES:
            mine = [r for r in rows if (r.how, r.measure) == (how, measure)]
            known = [r for r in mine if r.value is not None]
            errors = sorted(abs(r.value / r.true - 1) for r in known if r.value is not None)
            if not errors:
                continue
            lazy = sorted(abs(1 / r.true - 1) for r in known)
            held = [r.low <= r.true <= r.high for r in known if r.low is not None and r.high is not None]
            sure = [
                abs(r.value / r.true - 1)
                for r in known
                if r.value and r.low and r.high and max(r.high / r.value, r.value / r.low) <= SURE
            ]
            middle, tail = errors[len(errors) // 2], errors[int(0.95 * len(errors))]
            cell = {
                "how": how, "measure": measure, "n": len(mine), "answered": len(known), "limit": limit,
                "median": round(middle, 5), "p95": round(tail, 4), "within": round(share(errors, limit), 4),
                "always_one_median": round(lazy[len(lazy) // 2], 4), "always_one_within": round(share(lazy, limit), 4),
                "sure": len(sure), "sure_within": round(share(sure, limit), 4) if sure else None,
                "intervals": len(held), "covered": round(sum(held) / len(held), 4) if held else None,
            }  # fmt: skip
            entry["measures"].append(cell)
            print(
                f"{how:8} {measure:9} {len(known):5} of {len(mine):5}  {middle:7.2%} {tail:7.2%}  {cell['within']:6.1%} of "
                f"{limit:.0%}  {share(sure, limit):6.1%} of {len(sure):4}  {cell['always_one_within']:6.1%}   {sum(held):5} of {len(held)} "
                f"({sum(held) / max(len(held), 1):.1%})"
            )
    print("\ncauses, error in points     n   mean |error|   within 10 points")
    for how in ("with", "without"):
        for part in ("launch", "queue", "not_resident", "switch", "execution"):
            errors = [abs(e) for h, c, e in causes if (h, c) == (how, part)]
            if errors:
                mean, within = sum(errors) / len(errors), share(errors, 10)
                entry["causes"].append(
                    {"how": how, "cause": part, "n": len(errors), "mean": round(mean, 2), "within": round(within, 4)}
                )
                print(f"{how:8} {part:14} {len(errors):5}   {mean:8.2f}        {within:6.1%}")
    for how in ("with", "without"):
        calm = [slowed for h, is_calm, slowed in calls if h == how and is_calm]
        hurt = [slowed for h, is_calm, slowed in calls if h == how and not is_calm]
        entry[f"false_positives_{how}"] = [sum(calm), len(calm)]
        entry[f"found_{how}"] = [sum(hurt), len(hurt)]
        print(
            f"\n{how} baselines: called slowed for nothing {sum(calm)} of {len(calm)}; slowed and called so "
            f"{sum(hurt)} of {len(hurt)}"
        )
    far = [(abs(r.value / r.true - 1) - (0.02 if r.how == "with" else 0.1), r) for r in rows if r.value is not None]
    print("\nfarthest beyond the limit:")
    for beyond, r in sorted(far, key=lambda pair: -pair[0])[: arguments.worst]:
        if beyond > 0 and r.value is not None:
            limits = "no interval" if r.low is None or r.high is None else f"{r.low:.3f} to {r.high:.3f}"
            print(
                f"  {r.scenario} seed {r.seed} {r.tenant} {r.how} {r.measure}: {r.true:.3f}, said {r.value:.3f} ({limits})"
            )
    if arguments.kernels:
        entry["speed"] = {**speed(arguments.kernels), "cpus": os.cpu_count(), "machine": platform.machine()}
        print(f"\n{entry['speed']}")
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
