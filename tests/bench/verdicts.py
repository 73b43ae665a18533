"""How often is the named sharing mode right?  ``python tests/bench/verdicts.py --seeds 4`` runs every generated scenario.

Each recording of each scenario and seed is classified and compared with the truth.  ``identifiable`` recordings (an expert
with that baseline could tell) should be named; of the others only `undetermined` is right.  Printed: the counts,
each verdict that was wrong, and how often verdicts of a stated confidence were right, with the 95 % binomial interval.
The scenarios are simulated: the figures say what the rules make of them, not how real captures are distributed.
Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "fixtures"))

import generate  # noqa: E402
import measurements  # noqa: E402

import pyanalyze  # noqa: E402
from pyanalyze.analysis.sharing import RULES, Case, judge  # noqa: E402
from pyanalyze.analysis.sharing.calibration import calibration, state  # noqa: E402
from pyanalyze.analysis.sharing.condition import covers  # noqa: E402
from pyanalyze.core import _core  # noqa: E402
from pyanalyze.vocabulary import MIN_CONFIDENCE, TRAITS, Condition, Mode  # noqa: E402

SHARING = ROOT / "pyanalyze" / "analysis" / "sharing"
CALIBRATION = SHARING / "calibration.json"
#: Seeds of the calibration: no rule was written on them.
CALIBRATED = range(301, 315)


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
    posterior: float
    kind: str
    condition: str | None = None
    rare: bool = False

    @property
    def outcome(self) -> str:
        """``right``, ``wrong``, ``abstained`` where there was an answer, or ``excepted``: the condition names the truth."""
        if self.condition is not None:
            if self.said == self.true:
                return "right"
            named = covers(Condition(self.condition), Mode(self.true))
            return "excepted" if named or (self.rare and TRAITS[Mode(self.true)].time_sliced) else "wrong"
        if self.said == "undetermined":
            return "right" if not self.identifiable or self.true == "undetermined" else "abstained"
        # Where no answer is expected, chance may leave evidence all the same: the right mode is no error there.
        return "right" if self.said == self.true else "wrong"


def decided_by() -> str:
    """Digest of what a calibration depends on: rules, thresholds, scenarios, observations and the logic of the basis.

    Wording does not count: texts with a blank in them are left out, as are comments and documentation.
    """
    digest = hashlib.sha256()
    for rule in RULES:
        weights = {name: weight for name, (weight, _) in sorted(rule.weights.items())}
        needs = sorted(rule.requires), sorted(rule.requires_one_of), rule.by_absence
        digest.update(repr((str(rule.mode), rule.prior, weights, needs)).encode())
    for name in (
        "thresholds.py",
        "facts.py",
        *sorted(f"evidence/{path.name}" for path in (SHARING / "evidence").glob("*.py")),
        "classify.py",
        "case.py",
        "condition.py",
        "idle_starts.py",
        "turns.py",
        "utilization.py",
    ):
        tree = ast.parse((SHARING / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                node.value = ""
        digest.update(ast.dump(tree).encode())
    for path in sorted(generate.SCENARIOS.iterdir()):
        scenario = {**tomllib.loads(path.read_text(encoding="utf-8")), "description": ""}
        digest.update(path.name.encode() + repr(sorted(scenario.items())).encode())
    return digest.hexdigest()[:16]


@functools.cache
def _core_digest() -> str:
    fields = ",".join(sorted(Case.__dataclass_fields__))
    return hashlib.sha256(Path(_core.__file__).read_bytes() + fields.encode()).hexdigest()[:16]


def cases(scenario: str, seed: int) -> list[tuple[Case, dict[str, Any]]]:
    """What rules look at in every recording of a scenario, with the truth; kept, so that rules can be tried again."""
    folder = generate.folder_of(scenario, seed)
    # Facts depend on the generator and on the compiled core, not on rules and weights.
    kept = ROOT / "target" / "cases" / f"{folder.parent.name}-{_core_digest()}" / f"{folder.name}.pickle"
    if kept.exists():
        made: list[tuple[Case, dict[str, Any]]] = pickle.loads(kept.read_bytes())
        return made
    was_there = folder.exists()
    generate.built(scenario, seed)
    truth: dict[str, Any] = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    by_uuid = {device["uuid"].partition("-")[2].lower(): device for device in truth["devices"]}
    found = []
    for capture in truth["captures"]:
        session = pyanalyze.load(folder / f"{capture['name']}.sqlite")
        uuids = dict(session.devices.select("device_id", "uuid").iter_rows())
        for case in session.cases():
            device = by_uuid.get((uuids[case.device_id] or "").partition("-")[2].lower())
            modes = sorted({mode for _, mode in device["modes"]}) if device else ["undetermined"]
            identifiable = capture["identifiable"] and device is not None
            rare = device is not None and _has_rare_tenant(truth, truth["devices"].index(device))
            known = {"modes": modes, "identifiable": identifiable, "rare": rare}
            found.append((case, {"family": truth["family"], "capture": capture["name"], **known}))
    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(".part")
    part.write_bytes(pickle.dumps(found))
    part.rename(kept)
    # Many tests share the recordings of the first seed: removed here, they would be simulated anew for each.
    if not was_there and seed != generate.SEED:
        shutil.rmtree(folder)
    return found


#: A tenant with less of the residency of its device is rarely active: every condition but one names it.
RARE_SHARE = 0.1


def _has_rare_tenant(truth: dict[str, Any], device: int) -> bool:
    held = [tenant["resident_ns"] or 0 for tenant in truth["tenants"] if tenant["device"] == device]
    return len(held) > 1 and min(held) < RARE_SHARE * sum(held)


def judged(scenario: str, seed: int) -> list[Judged]:
    """Every verdict on every recording of a scenario."""
    found = []
    for case, truth in cases(scenario, seed):
        verdict = judge(case)
        modes = truth["modes"]
        # Where the mode changes, the one of most co-busy time is asked for; here any of them counts.
        true = verdict.mode if len(modes) > 1 and verdict.mode in modes else modes[0]
        found.append(
            Judged(
                scenario,
                truth["family"],
                seed,
                truth["capture"],
                true,
                truth["identifiable"],
                verdict.mode,
                verdict.confidence,
                verdict.posterior,
                "observed" if verdict.basis == "observed" else "inferred",
                verdict.condition,
                truth["rare"],
            )
        )
    return found


def given(rows: Iterable[Judged]) -> list[Judged]:
    """Verdicts that name a mode; one whose condition names the truth is neither right nor wrong."""
    return [row for row in rows if row.said != "undetermined" and row.outcome != "excepted"]


@dataclass(frozen=True)
class Bin:
    """Verdicts of one kind and how often they were right, scenario by scenario."""

    kind: str
    low: float
    high: float
    rows: tuple[Judged, ...]

    @property
    def shares(self) -> dict[str, float]:
        """Share that was right, by scenario: seeds of one scenario are not independent of each other."""
        names = sorted({row.scenario for row in self.rows})
        of = {name: [row.outcome == "right" for row in self.rows if row.scenario == name] for name in names}
        return {name: sum(right) / len(right) for name, right in of.items()}

    @property
    def stated(self) -> float:
        """What such a verdict may claim: scenarios that were right, with one right and one wrong one added (Laplace)."""
        shares = self.shares
        return (sum(shares.values()) + 1) / (len(shares) + 2)


#: Edges of raw posteriors between which verdicts are counted together.
EDGES = (MIN_CONFIDENCE, 0.9, 0.97, 0.995, 1.0)


def bins_of(rows: list[Judged]) -> list[Bin]:
    """Named verdicts by basis and raw posterior."""
    named = given(rows)
    found = []
    for kind in ("observed", "inferred"):
        for low, high in itertools.pairwise(EDGES):
            last = high == EDGES[-1]
            inside = (r for r in named if r.kind == kind and low <= r.posterior and (r.posterior < high or last))
            found.append(Bin(kind, low, high, tuple(inside)))
    return found


def calibrated(rows: list[Judged]) -> dict[str, Any]:
    """What each kind of verdict may claim; a stronger posterior never claims less than a weaker one."""
    table = []
    for kind in ("observed", "inferred"):
        # Pool neighbours where the higher one was right less often.
        pooled: list[list[Bin]] = []
        for one in _filled([bin_ for bin_ in bins_of(rows) if bin_.kind == kind]):
            pooled.append([one])
            while len(pooled) > 1 and _together(pooled[-2]).stated >= _together(pooled[-1]).stated:
                pooled[-2:] = [pooled[-2] + pooled[-1]]
        for group in pooled:
            one = _together(group)
            right = sum(row.outcome == "right" for row in one.rows)
            counts = {"scenarios": len(one.shares), "verdicts": len(one.rows), "right": right}
            table.append({"basis": kind, "from": one.low, "to": one.high, "stated": round(one.stated, 3), **counts})
    return {"bins": table}


#: Fewer scenarios than this say little: such a bin is counted with its neighbour.
MIN_SCENARIOS = 8


def _filled(bins: list[Bin]) -> list[Bin]:
    """Join bins of few scenarios with the next higher one, the last with the one before."""
    found: list[Bin] = []
    open_: list[Bin] = []
    for one in bins:
        open_.append(one)
        if len(_together(open_).shares) >= MIN_SCENARIOS:
            found.append(_together(open_))
            open_ = []
    if open_:
        found[-1:] = [_together([*found[-1:], *open_])]
    return found


def _together(group: list[Bin]) -> Bin:
    return Bin(group[0].kind, group[0].low, group[-1].high, tuple(row for one in group for row in one.rows))


def held_out(rows: list[Judged]) -> list[dict[str, Any]]:
    """Calibrate without each family in turn, and see how often its own verdicts were right."""
    told = []
    for family in sorted({row.family for row in rows}):
        table = calibrated([row for row in rows if row.family != family])["bins"]
        own = given(row for row in rows if row.family == family)
        told += [(row, state(table, row.kind, row.posterior)) for row in own]
    claims = dict(told)
    result = []
    for one in bins_of(list(claims)):
        if not one.rows:
            continue
        claim = sum(claims[row] for row in one.rows) / len(one.rows)
        shares = one.shares
        low, high = expected(claim, len(shares))
        right = sum(shares.values())
        result.append(
            {
                "basis": one.kind,
                "from": one.low,
                "to": one.high,
                "stated": round(claim, 3),
                "scenarios": len(shares),
                "right_scenarios": round(right, 2),
                "verdicts": len(one.rows),
                "right": sum(row.outcome == "right" for row in one.rows),
                "expected": [low, high],
                "inside": low <= right <= high,
            }
        )
    return result


def expected(claim: float, n: int) -> tuple[int, int]:
    """How many of `n` are right in 95 of 100 cases, if each is with probability `claim`.

    Examples
    --------
    >>> expected(0.5, 10)
    (2, 8)
    """
    below, low, high = 0.0, n, n
    for k in range(n + 1):
        at = math.comb(n, k) * claim**k * (1 - claim) ** (n - k)
        low = min(low, k) if below + at > 0.025 else low
        below += at
        if below >= 0.975:
            high = k
            break
    return low, high


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


def _as_told(calibrate: bool) -> None:
    """What the last table made of a posterior must not decide what is counted for the next."""
    if calibrate:
        calibration()["bins"].clear()


def _judged(task: tuple[str, int]) -> list[Judged]:
    return judged(*task)


def judged_all(names: list[str], seeds: range, workers: int, *, calibrate: bool) -> list[Judged]:
    """Every verdict on every recording, by several processes."""
    generate.program()
    tasks = [(name, seed) for seed in seeds for name in names]
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _as_told, (calibrate,)) as pool:
        return [row for rows in pool.imap(_judged, tasks, chunksize=4) for row in rows]


def main() -> int:
    """Classify and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=generate.scenario_names())
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--calibrate", action="store_true", help="write what verdicts may claim into the package")
    parser.add_argument("--unseen", action="store_true", help="no rule was written on these scenarios: logged apart")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.calibrate:
        seeds = CALIBRATED
    rows = judged_all(arguments.scenario, seeds, arguments.workers, calibrate=arguments.calibrate)
    for row in rows:
        if row.outcome == "wrong":
            true = row.true if row.identifiable else "undetermined"
            print(f"wrong: {row.capture} (seed {row.seed}) is {true}, was called {row.said} at {row.confidence}")
    print()
    named = given(rows)
    answerable = [row for row in rows if row.identifiable and row.true != "undetermined"]
    counts = Counter(row.outcome for row in rows)
    print(f"{len(rows)} verdicts on {len({(r.scenario, r.seed) for r in rows})} scenario-seeds: {dict(counts)}")
    right = sum(row.outcome == "right" for row in answerable)
    print(f"named, of those with an answer: {right} of {len(answerable)} ({100 * right / len(answerable):.1f} %)")
    wrong = counts["wrong"]
    print(f"wrong, of the verdicts given:   {wrong} of {len(named)} ({100 * wrong / len(named):.1f} %)")
    held = [row for row in rows if row.condition is not None]
    print(
        f"conditional:                    {len(held)}, of them {counts['excepted']} with a condition that was not met"
    )
    print("\nstated confidence    right      n   95 % interval of the observed share")
    bins = []
    for low, high in ((0.8, 0.85), (0.85, 0.9), (0.9, 0.95), (0.95, 0.97), (0.97, 1.01)):
        bin_ = [row for row in named if low <= row.confidence < high]
        if bin_:
            good = sum(row.outcome == "right" for row in bin_)
            interval = [round(limit, 3) for limit in wilson(good, len(bin_))]
            bins.append({"from": low, "to": min(high, 1.0), "right": good, "n": len(bin_), "interval": interval})
            print(f"{low:.2f} to {min(high, 1):.2f}         {good:5d}  {len(bin_):5d}   {interval[0]} to {interval[1]}")
    print("\nabstained most, of those with an answer:")
    for name, n in Counter(row.capture for row in answerable if row.outcome == "abstained").most_common(12):
        print(f"  {n:3d}  {name}")
    print("\ncalibrated without each family in turn:")
    print("rests on    posterior      claims   right scenarios   expected   right verdicts")
    blind = held_out(rows)
    for one in blind:
        low, high = one["expected"]
        print(
            f"{one['basis']:9}   {one['from']:.3f}-{one['to']:.3f}   {one['stated']:.3f}   "
            f"{one['right_scenarios']:6.2f} of {one['scenarios']:3d}   {low:3d} to {high:3d}   {one['right']:5d} of "
            f"{one['verdicts']:5d}   {'' if one['inside'] else 'OUTSIDE'}"
        )
    if arguments.calibrate:
        command = ["git", "rev-parse", "--short=12", "HEAD:fixtures/generator"]
        tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        made = {
            "generator": tree,
            "decided_by": decided_by(),
            "seeds": f"{seeds[0]} to {seeds[-1]}",
            "scenario_seeds": len({(row.scenario, row.seed) for row in rows}),
            "families": sorted({row.family for row in rows}),
            **calibrated(rows),
            "held_out": blind,
        }
        CALIBRATION.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    entry: dict[str, Any] = {
        "bench": "verdicts-unseen" if arguments.unseen else "verdicts",
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
    if arguments.unseen:
        abstained = Counter(row.capture for row in answerable if row.outcome == "abstained")
        entry |= {"families": sorted({row.family for row in rows}), "abstained": dict(abstained.most_common())}
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
