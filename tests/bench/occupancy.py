"""How far is the modelled occupancy from the truth?  ``python tests/bench/occupancy.py --seeds 2`` says it per scenario.

Every generated scenario is recorded (its first recording with kernels), modelled with what the verdict implies, and
compared with the simulation's books over the bins with anything resident:

- ``sorted``: sum of |modelled - true| warps over the SMs of each bin, both sorted, over the sum of true warps.
- ``by SM``: the same with every SM compared with itself, where the order of equals is known.
- ``device``: the device's warps over all bins, modelled over true less 1.
- ``share``: the largest difference of a tenant's share of all tenants' SM time.

Beside the replay stand the null model (each kernel at its most for all of its time, warps spread evenly over the SMs
that its tenant may use) and ``true, even``: the true warps of each bin spread evenly over the device, which no model
that starts from a trace can know.  Devices with a tenant whose kernels were not traced are left out.

Where blocks take unequally long, a twin is simulated in which they do not, all else equal (``of equals``): what the replay
gets wrong there is the model's fault, the rest is what no row of a trace tells (docs/occupancy.md says why).
Another twin is recorded with counters (GPU metrics at 10 kHz) where the scenario has none, and the replay scaled to them
(`ModelledOccupancy.calibrated`): ``counted``. Counters tell nothing of a MIG instance.
``outside``: which of the report's `sm_active` and `warps` have intervals that miss the truth; the summary counts how often
they hold it (``bounds``), as modelled and calibrated to counters.
``--speed`` measures how fast the replay and the calculator are.  Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "fixtures"))

import generate  # noqa: E402
import measurements  # noqa: E402
import polars as pl  # noqa: E402

import pyanalyze  # noqa: E402
from pyanalyze.analysis.occupancy import ModelledOccupancy  # noqa: E402
from pyanalyze.core import _core  # noqa: E402

#: Scenarios whose blocks do not all take equally long: the target is another one.
EVEN, RANDOM = 0.5, 0.8
#: Samples a second: what nsys takes unless told otherwise.
COUNTER_HZ = 10_000
#: An error below this is rounding.
NEGLIGIBLE = 0.002
#: A mean over the window that is no further beyond an interval is within it.
ROUNDING = 0.003


@dataclass
class Row:
    """One device of one scenario and seed."""

    scenario: str
    seed: int
    mode: str
    verdict_right: bool
    random: bool
    truly_even: float
    null: dict[str, float]
    replay: dict[str, float]
    share: float
    of_equals: Row | None = None
    #: Of the report's `sm_active` and `warps`: truth over value, whether the interval holds it, its width over the value.
    bounds: dict[str, tuple[float, bool, float]] | None = None
    #: The same of the twin with counters.
    counted_bounds: dict[str, tuple[float, bool, float]] | None = None
    #: Scaled to counters: the replay, the null model, and the largest difference of a tenant's share.
    counted: tuple[dict[str, float], dict[str, float], float] | None = None

    @property
    def ratio(self) -> float:
        """Error of the replay over that of the null model, SMs sorted."""
        return self.replay["sorted"] / max(self.null["sorted"], 1e-9)

    @property
    def met(self) -> bool:
        """The ratio is what was asked for, or there is nothing left to halve."""
        return self.ratio <= (RANDOM if self.random else EVEN) or self.replay["sorted"] < NEGLIGIBLE


Grid = list[list[float]]


def truth_of(folder: Path, scenario: str, device: int, n_sms: int) -> tuple[Grid, dict[str, float], int]:
    """(warps by bin and SM, SM time by tenant, bin length) of a device of the books; no bins: nothing ran on it."""
    with sqlite3.connect(folder / f"{scenario}.truth.sqlite") as db:
        rows = db.execute(
            "SELECT start_ns, end_ns, sm, warps FROM sm_warps WHERE device = ? ORDER BY start_ns", (device,)
        ).fetchall()
        tenants = dict(
            db.execute("SELECT tenant, sum(sms) FROM tenant_warps WHERE device = ? GROUP BY tenant", (device,))
        )
    db.close()
    if not rows:
        return [], {}, 0
    length = rows[0][1] - rows[0][0]
    # Hardware ids of an instance's SMs do not begin at 0.
    base = 0 if max(row[2] for row in rows) < n_sms else min(row[2] for row in rows)
    warps = [[0.0] * n_sms for _ in range(rows[-1][0] // length + 1)]
    for start, _, sm, value in rows:
        warps[start // length][sm - base] = value
    return warps, tenants, length


def true_means(folder: Path, scenario: str, device: int, about: dict[str, Any]) -> tuple[float, float]:
    """Time in which SMs were active, and warps were resident, summed over the device: of one SM, nanoseconds."""
    with sqlite3.connect(folder / f"{scenario}.truth.sqlite") as db:
        (active,) = db.execute(
            "SELECT sum(active_sms * (end_ns - start_ns)) FROM device_bins WHERE device = ?", (device,)
        ).fetchone()
        (warps,) = db.execute(
            "SELECT sum(warps * (end_ns - start_ns)) FROM sm_warps WHERE device = ?", (device,)
        ).fetchone()
    db.close()
    return active / about["sm_count"], warps / about["sm_count"]


def bounds_of(
    session: pyanalyze.Session, device_id: int, true: tuple[float, float]
) -> dict[str, tuple[float, bool, float]] | None:
    """Truth over value, whether the interval of the report holds the truth, and its width over the value."""
    (device,) = (one for one in session.report().devices if one.device_id == device_id)
    if device.occupancy is None or device.window is None:
        return None
    length = device.window.end_ns - device.window.start_ns
    slots = session.devices.filter(device_id=device_id)["max_warps_per_sm"][0]
    found = {}
    for name, time, most in (("sm_active", true[0], 1), ("warps", true[1], slots)):
        mean, bounded = time / length / most, getattr(device.occupancy, name)
        # The books have times and bins to a microsecond.
        held = bounded.low - ROUNDING <= mean <= bounded.high + ROUNDING
        found[name] = (mean / max(bounded.value, 1e-9), held, (bounded.high - bounded.low) / max(bounded.value, 1e-9))
    return found


def errors(modelled: Grid, truth: Grid) -> dict[str, float]:
    """Of one model over the bins with anything, as fractions of the true warps."""
    some = [(ours, theirs) for ours, theirs in zip(modelled, truth, strict=True) if any(theirs)]
    total = sum(sum(theirs) for _, theirs in some)

    def distance(a: list[float], b: list[float]) -> float:
        return sum(abs(x - y) for x, y in zip(a, b, strict=True))

    return {
        "sorted": sum(distance(sorted(ours), sorted(theirs)) for ours, theirs in some) / total,
        "by_sm": sum(distance(ours, theirs) for ours, theirs in some) / total,
        "device": sum(sum(ours) for ours, _ in some) / total - 1,
    }


def against(
    made: ModelledOccupancy, device_id: int, truth: tuple[Grid, dict[int, float]]
) -> tuple[dict[str, float], float]:
    """Errors of a model of a device, and the largest difference of a tenant's share of the SM time."""
    warps, true_shares = truth
    n_sms = len(warps[0])
    values = made.per_sm.filter(device_id=device_id).sort("start_ns", "sm")["warps"].to_list()
    rows = [values[n * n_sms : (n + 1) * n_sms] for n in range(len(warps))]
    sums = made.over_time.filter(device_id=device_id).group_by("tenant_id").agg(pl.col("sm_active").sum())
    shares = dict(zip(sums["tenant_id"], sums["sm_active"], strict=True))
    own = sum(shares.values())
    apart = [abs(shares.get(tenant, 0.0) / own - true) for tenant, true in true_shares.items()]
    return errors(rows, warps), max(apart, default=0.0)


def equal_blocks(text: str) -> str:
    """A scenario in which all blocks of a kernel take equally long."""
    text = re.sub(r",\s*tail = \{[^}]*\}", "", text)
    return re.sub(r"^tail = \{[^}]*\}\n", "", text, flags=re.MULTILINE)


def counters(text: str) -> str:
    """A scenario whose first recording has GPU metrics."""
    first, found, rest = text.partition("[[capture]]\n")
    own = rest.partition("[[")[0]
    return first + found + ("" if "metrics_hz" in own or not found else f"metrics_hz = {COUNTER_HZ}\n") + rest


def twin(scenario: str, seed: int, change: Callable[[str], str]) -> Path:
    """The folder of the same scenario and seed, changed."""
    base = tomllib.loads((generate.SCENARIOS / f"{scenario}.toml").read_text(encoding="utf-8")).get("base")
    names = [f"{scenario}.toml", *([base] if base else [])]
    paths = (*(generate.SCENARIOS / name for name in names), *generate.SCENARIOS.glob("*.part"))
    texts = {path.name: change(path.read_text(encoding="utf-8")) for path in paths}
    digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
    folder = generate.folder_of(scenario, seed).with_name(f"{scenario}-{change.__name__}-{digest}-{seed}")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            for name, text in texts.items():
                (Path(scratch) / name).write_text(text, encoding="utf-8")
            generate.generate([Path(scratch) / f"{scenario}.toml"], Path(scratch) / "new", seed, tables=True)
            try:
                (Path(scratch) / "new").rename(folder)
            except OSError:
                if not folder.is_dir():  # else somebody else was quicker: the same files
                    raise
    return folder


def measured(scenario: str, seed: int) -> list[Row]:
    """Every device of a scenario that can be compared, with its twin of equal blocks where they are not."""
    random = "tail" in json.dumps(generate.scenario(scenario).get("kernel", {}))
    rows = measured_in(generate.built(scenario, seed), scenario, seed, random=random)
    if random:
        equals = measured_in(twin(scenario, seed, equal_blocks), scenario, seed, random=False)
        sampled = measured_in(twin(scenario, seed, counters), scenario, seed, random=True, scaled=True)
        for row, equal, count in zip(rows, equals, sampled, strict=True):
            row.of_equals, row.counted = equal, count.counted
            row.counted_bounds = count.bounds if count.counted else None
    return rows


def measured_in(folder: Path, scenario: str, seed: int, *, random: bool, scaled: bool = False) -> list[Row]:
    """Every device of a folder that can be compared; also `scaled` to its counters."""
    truth = json.loads((folder / f"{scenario}.truth.json").read_text(encoding="utf-8"))
    found = []
    capture = truth["captures"][0]
    session = pyanalyze.load(folder / f"{capture['name']}.sqlite")
    verdicts = {v.device_id: v.mode for v in session.classify()}
    for number, device in enumerate(truth["devices"]):
        here = [d for d in session.devices.iter_rows(named=True) if same_device(d["uuid"], device["uuid"])]
        if not here or here[0]["device_id"] not in verdicts:
            continue
        device_id, n_sms = here[0]["device_id"], device["sm_count"]
        names = {t["name"] for t in truth["tenants"] if t["device"] == number and t["busy_ns"] > 0}
        if names - {t["tenant"] for t in capture["traced"]}:
            continue
        warps, tenants, length = truth_of(folder, scenario, number, n_sms)
        if not warps:
            continue
        window = (-capture["origin_ns"], len(warps) * length - capture["origin_ns"])
        pids = {t["tenant"]: t["pid"] for t in capture["traced"]}
        ids = {row["pid"]: row["tenant_id"] for row in session.tenants.iter_rows(named=True)}
        true_shares = {ids.get(pids[name], -1): sms / sum(tenants.values()) for name, sms in tenants.items()}

        truly = warps, true_shares
        null, replay = (
            session.occupancy(bins=len(warps), window=window, model=m, calibrate=False) for m in ("even", "replay")
        )
        if null.per_sm.filter(device_id=device_id).height != len(warps) * n_sms:
            continue
        errors_of_replay, share = against(replay, device_id, truly)
        check = session.check_occupancy(device_id) if scaled else None
        counted = None
        if check is not None:
            own, own_share = against(replay.calibrated(device_id, check), device_id, truly)
            counted = own, against(null.calibrated(device_id, check), device_id, truly)[0], own_share
        even = [[sum(row) / n_sms] * n_sms for row in warps]
        found.append(
            Row(
                scenario, seed, verdicts[device_id], verdicts[device_id] in {mode for _, mode in device["modes"]}, random,
                errors(even, warps)["sorted"],
                against(null, device_id, truly)[0], errors_of_replay, share, counted=counted,
                bounds=bounds_of(session, device_id, true_means(folder, scenario, number, device)),
            )
        )  # fmt: skip
    return found


def same_device(ours: str | None, theirs: str) -> bool:
    """Equal but for the kind of device in front."""
    return (ours or "").partition("-")[2].lower() == theirs.partition("-")[2].lower()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=generate.scenario_names())
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--no-log", action="store_true", help="only print")
    parser.add_argument("--speed", action="store_true", help="measure speed, not errors (compiles the Rust benchmark)")
    options = parser.parse_args()
    if options.speed:
        figures = [{"bench": "occupancy-speed", **row, "version": _core.__version__} for row in speed()]
        return 0 if options.no_log else append(figures)
    seeds = range(options.first, options.first + options.seeds)
    print(
        f"{'scenario':32} {'seed':>4} {'mode':18} {'blocks':6} | {'true,even':>9} {'null':>6} {'replay':>6} {'ratio':>6} "
        f"| {'null':>6} {'by SM':>6} | {'null':>6} {'device':>6} | {'share':>6} | outside | of equals: replay, device, share | counted: replay (null), device, share"
    )
    rows = []
    for scenario in options.scenario:
        for seed in seeds:
            for r in measured(scenario, seed):
                rows.append(r)
                met = "" if r.met else " above 1" if r.ratio > 1 else " above target"
                met += "" if r.verdict_right else " (verdict: not what it was)"
                if equal := r.of_equals:
                    met = f" | {equal.replay['sorted']:.3f} {equal.replay['device']:+.3f} {equal.share:.3f}{met}"
                    sampled = "no counters"
                    if r.counted:
                        own, null, share = r.counted
                        sampled = f"{own['sorted']:.3f} ({null['sorted']:.3f}) {own['device']:+.3f} {share:.3f}"
                    met += f" | {sampled}"
                print(
                    f"{r.scenario:32} {r.seed:>4} {r.mode:18} {'random' if r.random else 'even':6} | {r.truly_even:>9.3f} "
                    f"{r.null['sorted']:>6.3f} {r.replay['sorted']:>6.3f} {r.ratio:>6.2f} | {r.null['by_sm']:>6.3f} "
                    f"{r.replay['by_sm']:>6.3f} | {r.null['device']:>+6.3f} {r.replay['device']:>+6.3f} | {r.share:>6.3f} | "
                    f"{', '.join(name for name, (_, held, _) in (r.bounds or {}).items() if not held) or 'none':9}"
                    f"{met}",
                    flush=True,
                )
    summary = summarised(rows)
    print(json.dumps(summary, indent=1))
    log = {"bench": "occupancy", "seeds": f"{seeds[0]} to {seeds[-1]}", **summary, "version": _core.__version__}
    return 0 if options.no_log else append([log])


def speed() -> list[dict[str, Any]]:
    """What the Rust benchmark prints."""
    command = ["cargo", "test", "--release", "--locked", "--quiet", "-p", "pyanalyze-core", "--test", "occupancy_speed"]
    done = subprocess.run(
        [*command, "--", "--ignored", "--nocapture", "--test-threads", "1"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines() if '"what"' in line]
    for row in rows:
        print(row)
    return rows


def append(figures: list[dict[str, Any]]) -> int:
    """Append to the log."""
    measurements.append(*figures)
    return 0


def held_by(name: str, bounds: list[dict[str, tuple[float, bool, float]] | None]) -> dict[str, Any]:
    """How often the interval of the report held the truth, and the median of its width over the value."""
    of = [one[name] for one in bounds if one]
    return {
        "devices": len(of),
        "held": sum(held for _, held, _ in of),
        "median_width": round(statistics.median([width for *_, width in of] or [0]), 4),
        "truth_over_value": [round(end([ratio for ratio, *_ in of] or [0]), 3) for end in (min, max)],
    }


def summarised(rows: list[Row]) -> dict[str, Any]:
    """How many meet what was asked for."""
    by_kind = {False: "even", True: "random"}
    found: dict[str, Any] = {"devices": len(rows)}
    for random, name in by_kind.items():
        mine = [r for r in rows if r.random == random]
        found[name] = {
            "devices": len(mine),
            "ratio_met": sum(r.met for r in mine),
            "missed": sorted({r.scenario for r in mine if not r.met}),
            "median_error": round(statistics.median([r.replay["sorted"] for r in mine] or [0]), 4),
            "median_null": round(statistics.median([r.null["sorted"] for r in mine] or [0]), 4),
            "median_true_even": round(statistics.median([r.truly_even for r in mine] or [0]), 4),
            "device_within_3_percent": sum(abs(r.replay["device"]) <= 0.03 for r in mine),
            "null_device_within_3_percent": sum(abs(r.null["device"]) <= 0.03 for r in mine),
            "share_within_5_percent": sum(r.share <= 0.05 for r in mine),
        }
    twins = [r.of_equals for r in rows if r.of_equals]
    found["of_equals"] = {
        "devices": len(twins),
        "median_error": round(statistics.median([r.replay["sorted"] for r in twins] or [0]), 4),
        "device_within_3_percent": sum(abs(r.replay["device"]) <= 0.03 for r in twins),
        "device_beyond": sorted({r.scenario for r in twins if abs(r.replay["device"]) > 0.03}),
        "share_within_5_percent": sum(r.share <= 0.05 for r in twins),
    }
    # The random ones as a recording with counters tells them: scaled where counters say something, as they are on MIG.
    told = [(r, *(r.counted or (r.replay, r.null, r.share))) for r in rows if r.random]
    found["counted"] = {
        "devices": len(told),
        "with_counters": sum(r.counted is not None for r, *_ in told),
        "ratio_met": sum(own["sorted"] <= max(RANDOM * r.null["sorted"], NEGLIGIBLE) for r, own, _, _ in told),
        "median_error": round(statistics.median([own["sorted"] for _, own, _, _ in told] or [0]), 4),
        "median_null": round(statistics.median([null["sorted"] for _, _, null, _ in told] or [0]), 4),
        "device_within_3_percent": sum(abs(own["device"]) <= 0.03 for _, own, _, _ in told),
        "device_beyond": sorted({r.scenario for r, own, _, _ in told if abs(own["device"]) > 0.03}),
        "share_within_5_percent": sum(share <= 0.05 for _, _, _, share in told),
    }
    found["bounds"] = {
        kind: {name: held_by(name, of) for name in ("sm_active", "warps")}
        for kind, of in (("modelled", [r.bounds for r in rows]), ("calibrated", [r.counted_bounds for r in rows]))
    }
    wrong = {True: "", False: ", wrong verdict"}
    worse = [r for r in rows if r.ratio > 1 and not r.met]
    found["worse_than_null"] = [f"{r.scenario} {r.seed}{wrong[r.verdict_right]}" for r in worse]
    found["without_verdict"] = sorted({r.scenario for r in rows if not r.verdict_right})
    return found


if __name__ == "__main__":
    sys.exit(main())
