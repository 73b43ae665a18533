"""The page that says how each figure of a report was validated; its errors come from docs/measurements.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOG = Path(__file__).parent / "measurements.jsonl"


def _last(key: str, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last row of each value of a key."""
    return {row[key]: row for row in rows}


def _slowdown(row: dict[str, Any], how: str, measure: str) -> str:
    m = next(m for m in row["measures"] if (m["how"], m["measure"]) == (how, measure))
    return f"median error {m['median']:.2%}, 95 % below {m['p95']:.1%}, answered {m['answered']} of {m['n']}"


def validation() -> str:
    """Every figure: what it is compared with, and how far off it was the last time that was measured."""
    rows_of_log = [json.loads(line) for line in LOG.read_text(encoding="utf-8").splitlines()]
    last = _last("bench", rows_of_log)
    placed = _last("gpu", [row for row in rows_of_log if row["bench"] == "placement"])
    verdicts, slow, sms, advice = (last[name] for name in ("verdicts", "interference", "occupancy", "advice"))
    launches = last["launches"]
    real = placed.pop("NVIDIA TITAN V")
    newer = "; ".join(
        f"{one['run']} {one['sorted']:.1%}, spread evenly {one['even']:.1%}"
        for row in placed.values()
        for one in row["above_target"]
    )
    every = launches["classes"][0]
    least = min(one["inside_held_out"] for one in launches["classes"])
    held = advice["holds"] / advice["predictions"]
    wrong = f"{verdicts['wrong']} wrong of {verdicts['verdicts']} modes named, in {verdicts['scenario_seeds']} simulated recordings"
    rows = [
        ("SM number of each block, first waves (modelled)", f"`%smid` of every block on a {real['gpu']}: {real['first_waves']} recordings of one kernel", f"{real['first_wave_worst']:.1%} of the warps in the worst"),
        ("warps on each SM, SMs sorted (modelled)", f"the same GPU: {real['runs']} recordings, {real['blocks']:,} blocks", f"median {real['median_sorted']:.1%} of the warps, spread evenly it would be {real['median_sorted_even']:.1%}; above {real['target']:.0%} in {len(real['above_target'])}, where blocks are uneven or the last wave is partial"),
        ("the same on newer GPUs: the kit's programs A and B (two streams, bound by memory) and C (bound by arithmetic), each alone", f"`%smid` of every block on {' and '.join(placed)}: {sum(row['blocks'] for row in placed.values()):,} blocks", f"{newer}: blocks of one kernel take unequally long there"),
        ("mean warps per SM of a launch (modelled)", f"Nsight Compute's counters of {launches['modelled']} launches of {launches['repositories']} repositories, each held out in turn", f"median {every['error_held_out']:.1%} (an equal-block replay {every['error_replay']:.1%}, theoretical occupancy {every['error_theoretical']:.1%}), the interval held {least:.1%} or more in each class of duration"),
        ("every value of every table", "what SQLite itself says, over random files of every legal shape and all real captures", "none: equal, or the table is left to SQLite (`rust/core/tests/page_scan.rs`)"),
        ("kernel, API and NVTX summaries", "NVIDIA's own `nsys stats` of the same captures", "none beyond the last printed digit (`tests/test_nsys_stats.py`)"),
        ("busy, attributed, resident, co-busy time", "counting nanosecond by nanosecond, over random sessions", "none: integers are equal (`rust/core/tests/counting.rs`)"),
        ("residency, slices, switch cost", "the simulator's books", "none where both records of a slice exist (`tests/test_truth.py`)"),
        ("sharing mode", "the simulator's truth", wrong),
        ("confidence", "how often verdicts of that kind were right, families of scenarios left out in turn", "[calibration](calibration.md)"),
        ("slowdown by baseline: elapsed", "the same work simulated alone", _slowdown(slow, "with", "elapsed")),
        ("slowdown by baseline: latency", "the same", _slowdown(slow, "with", "latency")),
        ("slowdown without baseline: latency", "the same", _slowdown(slow, "without", "latency")),
        ("causes of lost time", "the simulator's books", f"within 10 points in {min(c['within'] for c in slow['causes']):.0%} or more, by cause"),
        ("SM occupancy, even blocks (modelled)", "warps on each SM in the simulator", f"median {sms['even']['median_error']:.1%} of the warps; spread evenly it would be {sms['even']['median_null']:.1%}"),
        ("SM occupancy, uneven blocks (modelled)", "the same", f"median {sms['random']['median_error']:.1%}; spread evenly {sms['random']['median_null']:.1%}"),
        ("the same, scaled to counters", "the same", f"median {sms['counted']['median_error']:.1%}; the mean warps of a device within 3 % on {sms['counted']['device_within_3_percent']} of {sms['counted']['devices']} devices ({sms['random']['device_within_3_percent']} without counters)"),
        ("theoretical occupancy", "NVIDIA's own calculator header of CUDA 13.5", "none (`rust/core/src/occupancy/theoretical.rs`)"),
        ("advice: slowdown in another mode (modelled)", "that mode simulated with the same work", f"the interval held {held:.1%} of {advice['predictions']} predictions"),
    ]  # fmt: skip
    out = ["<!-- generated by `make docs` from docs/measurements.jsonl; do not edit -->\n"]
    out.append("# How each figure was validated\n")
    out.append(
        "Simulated captures have a truth, real ones do not: an error against the simulator says that the analysis finds "
        "what was put in, not how real hardware behaves. What was compared with real captures says so. Seeds, versions "
        "and all figures: [measurements](measurements.md).\n"
    )
    out.append("| figure | compared with | error |\n|---|---|---|")
    out += [f"| {a} | {b} | {c} |" for a, b, c in rows]
    out.append(
        "\nHeld against programs on an H100 and an H200 that measured themselves (`tests/test_hardware.py`): modes, slowdowns with and without a "
        "baseline, forecasts of other modes and of copies. Not validated on real hardware: verdicts for vGPU and for MIG.\n"
    )
    return "\n".join(out)
