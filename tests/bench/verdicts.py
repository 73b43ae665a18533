"""How often is the named sharing mode right?  ``python tests/bench/verdicts.py --seeds 4`` runs every generated scenario.

Each recording of each scenario and seed is classified and compared with the truth.  ``identifiable`` recordings (an expert
with that recording alone could tell) should be named; of the others only `undetermined` is right.  Printed: the counts,
each verdict that was wrong, and how often verdicts of a stated confidence were right, with the 95 % binomial interval.
The scenarios are simulated: the figures say what the rules make of them, not how real captures are distributed.
Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LOG = ROOT / "docs" / "measurements.jsonl"
sys.path.insert(0, str(ROOT / "fixtures"))

import generate  # noqa: E402

import pyanalyze  # noqa: E402


@dataclass(frozen=True)
class Judged:
    """One verdict beside the truth."""

    scenario: str
    family: str
    seed: int
    capture: str
    true: str
    identifiable: bool
    said: str
    confidence: float

    @property
    def outcome(self) -> str:
        """``right``, ``wrong``, or ``abstained`` where there was an answer."""
        if self.said == "undetermined":
            return "right" if not self.identifiable or self.true == "undetermined" else "abstained"
        return "right" if self.identifiable and self.said == self.true else "wrong"


def judged(scenario: str, seed: int) -> list[Judged]:
    """Every verdict on every recording of a scenario."""
    folder = generate.built(scenario, seed)
    truth: dict[str, Any] = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    by_uuid = {device["uuid"].partition("-")[2].lower(): device for device in truth["devices"]}
    found = []
    for capture in truth["captures"]:
        session = pyanalyze.load(folder / f"{capture['name']}.sqlite")
        uuids = dict(session.devices.select("device_id", "uuid").iter_rows())
        for verdict in session.classify():
            device = by_uuid.get((uuids[verdict.device_id] or "").partition("-")[2].lower())
            modes = {mode for _, mode in device["modes"]} if device else {"undetermined"}
            # Where the mode changes, the one of most co-busy time is asked for; until segments are, any of them counts.
            true = verdict.mode if len(modes) > 1 and verdict.mode in modes else min(modes)
            found.append(
                Judged(
                    scenario,
                    truth["family"],
                    seed,
                    capture["name"],
                    true,
                    capture["identifiable"] and device is not None,
                    verdict.mode,
                    verdict.confidence,
                )
            )
    return found


def wilson(right: int, n: int) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson).

    Examples
    --------
    >>> [round(x, 3) for x in wilson(9, 10)]
    [0.596, 0.982]
    """
    z = 1.959964
    centre = (right / n + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(right / n * (1 - right / n) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return centre - half, centre + half


def main() -> int:
    """Classify and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=generate.scenario_names())
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    rows = [row for seed in seeds for name in arguments.scenario for row in judged(name, seed)]
    for row in rows:
        if row.outcome == "wrong":
            true = row.true if row.identifiable else "undetermined"
            print(f"wrong: {row.capture} (seed {row.seed}) is {true}, was called {row.said} at {row.confidence}")
    print()
    named = [row for row in rows if row.said != "undetermined"]
    answerable = [row for row in rows if row.identifiable and row.true != "undetermined"]
    counts = Counter(row.outcome for row in rows)
    print(f"{len(rows)} verdicts on {len({(r.scenario, r.seed) for r in rows})} scenario-seeds: {dict(counts)}")
    right = sum(row.outcome == "right" for row in answerable)
    print(f"named, of those with an answer: {right} of {len(answerable)} ({100 * right / len(answerable):.1f} %)")
    wrong = counts["wrong"]
    print(f"wrong, of the verdicts given:   {wrong} of {len(named)} ({100 * wrong / len(named):.1f} %)")
    print("\nstated confidence    right      n   95 % interval of the observed share")
    bins = []
    for low, high in ((0.8, 0.85), (0.85, 0.9), (0.9, 0.95), (0.95, 1.01)):
        bin_ = [row for row in named if low <= row.confidence < high]
        if bin_:
            good = sum(row.outcome == "right" for row in bin_)
            interval = [round(limit, 3) for limit in wilson(good, len(bin_))]
            bins.append({"from": low, "to": min(high, 1.0), "right": good, "n": len(bin_), "interval": interval})
            print(f"{low:.2f} to {min(high, 1):.2f}         {good:5d}  {len(bin_):5d}   {interval[0]} to {interval[1]}")
    print("\nabstained most, of those with an answer:")
    for name, n in Counter(row.capture for row in answerable if row.outcome == "abstained").most_common(12):
        print(f"  {n:3d}  {name}")
    entry = {
        "bench": "verdicts",
        "seeds": f"{seeds[0]} to {seeds[-1]}",
        "scenario_seeds": len({(row.scenario, row.seed) for row in rows}),
        "answerable": len(answerable),
        "named_right": right,
        "verdicts": len(named),
        "wrong": wrong,
        "wrong_ones": sorted({row.capture for row in rows if row.outcome == "wrong"}),
        "bins": bins,
        "version": pyanalyze.__version__,
    }
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(entry) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
