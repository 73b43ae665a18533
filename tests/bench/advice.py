"""Is what advice predicts what happens?  Captures of one mode, the same work simulated in another, compared.

`python tests/bench/advice.py --seeds N` builds each base scenario (its capture is all that the analyzer sees), rewrites
it to other sharing modes, simulates those with the generator until every tenant has done as many units of work as in the
capture (the others go on with theirs meanwhile, unless the scenario has them end), and compares the slowdown of those
units (elapsed, against the same work alone on the whole GPU) with the predicted interval.  The generator shares no code
with the analyzer.  Prints a table and appends a line to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import tomllib
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "fixtures"))

import generate  # noqa: E402
import measurements  # noqa: E402
import polars as pl  # noqa: E402

import pyanalyze  # noqa: E402
from pyanalyze.analysis.advice.forecast import SharingConfig  # noqa: E402
from pyanalyze.analysis.advice.options import Forecast, options  # noqa: E402
from pyanalyze.tables.frames import ANALYSIS_TABLES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: No scenario takes so long.
LONGEST_MS = 100_000
#: Tenants of a scenario whose work ends within this part of its time go on together.
TOGETHER = 0.05
#: Whole GPUs that several traced processes share, without caps: what alone takes is then the whole GPU.
BASES = (
    "mps",
    "mps-four-nbody",
    "mps-memory-bound",
    "mps-saturating",
    "running-example-mps",
    "running-example-time-slicing",
    "time-slicing-copies",
    "time-slicing-four-nbody",
    "time-slicing-long-kernels",
    "time-slicing-low-duty",
    "time-slicing-open-loop",
    "time-slicing-pair",
    "time-slicing-short-kernels",
)


def written(value: Any) -> str:
    """TOML of a value, everything inline.

    Examples
    --------
    >>> written({"a": [1, "x"], "b": True})
    '{ "a" = [1, "x"], "b" = true }'
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    return json.dumps(value)


def whole(name: str) -> dict[str, Any]:
    """A scenario with its base merged in, as the generator reads it."""
    table = tomllib.loads((generate.SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))
    if "base" not in table:
        return table
    base = tomllib.loads((generate.SCENARIOS / table.pop("base")).read_text(encoding="utf-8"))
    each, named = table.pop("each_tenant", {}), table.pop("tenant_named", {})
    base.update(table)
    for tenant in base["tenant"]:
        tenant.update(each)
        tenant.update(named.get(tenant["name"], {}))
    return base


def rewritten(
    name: str, config: SharingConfig, units: dict[str, int], names: dict[int, str], profiles: list[str], until_ms: float
) -> str:
    """The scenario in another config, without recordings, with work until then."""
    table, original = whole(name), whole(name)
    assignments = {names[assignment.tenant_id]: assignment for assignment in config.assignments}
    groups = {(assignment.instance, assignment.group) for assignment in config.assignments}
    together = len(groups) < len(assignments)
    (board,) = table["board"]
    mode = "mps" if together else "time-slicing"
    for key in ("mode", "mig"):
        board.pop(key, None)
    if profiles:
        board["mig"] = [{"profile": profile, "mode": "mig"} for profile in profiles]
    else:
        board["mode"] = mode
    sms = config.instances[0]
    for tenant in table["tenant"]:
        assignment = assignments[tenant["name"]]
        for key in ("mps", "pre_volta", "mps_percent", "mps_chunks"):
            tenant.pop(key, None)
        tenant["device"] = assignment.instance
        tenant["mps"] = together
        if assignment.sms is not None:
            tenant["mps_percent"] = 100.0 * (assignment.sms + 0.5) / sms
        (work,) = tenant["work"]
        run_on(original, work, units[tenant["name"]], until_ms)
    lasts(table, until_ms)
    table["bin_us"] = 100_000
    table["capture"] = []
    table.pop("samples", None)
    return "\n".join(f"{json.dumps(key)} = {written(value)}" for key, value in table.items())


def run_on(table: Mapping[str, Any], work: dict[str, Any], units: int, until_ms: float) -> None:
    """Let a tenant work until then; one that ends before the others in its scenario does as many units as it did."""
    ends_ms = [_last_ms(work) for tenant in table["tenant"] for work in tenant["work"]]
    if "units" in work or _last_ms(work) < (1 - TOGETHER) * max(ends_ms):
        work["units"] = units
    # The same draws: a range is drawn from whatever its limits are.
    work["until_ms"] = [until_ms, until_ms] if isinstance(work.get("until_ms"), list) else until_ms


def _last_ms(work: Mapping[str, Any]) -> float:
    last = work.get("until_ms", LONGEST_MS)
    return float(max(last) if isinstance(last, list) else last)


def lasts(table: dict[str, Any], until_ms: float) -> None:
    """Simulate until all work that was begun by then has ended."""
    end_ms = 2 * until_ms + 1000
    table["duration_ms"] = [end_ms, end_ms] if isinstance(table["duration_ms"], list) else end_ms


def simulated(
    text_until: Callable[[float], str], seed: int, units: Mapping[str, int], expected_ms: float
) -> dict[str, list[tuple[int, int]]]:
    """Begin and end of as many units of work of each tenant, in order, simulated until all have done so many."""
    until_ms = 1.2 * expected_ms + 20
    while True:
        found = _units(text_until(until_ms), seed)
        if all(len(found.get(name, ())) >= count for name, count in units.items()):
            return {name: found[name][:count] for name, count in units.items()}
        until_ms *= 1.7
        if until_ms > LONGEST_MS:
            raise TimeoutError(f"not all of {dict(units)} units were done in {LONGEST_MS} ms")


def _units(text: str, seed: int) -> dict[str, list[tuple[int, int]]]:
    folder = Path(tempfile.mkdtemp(dir=ROOT / "target"))
    try:
        (folder / "x.toml").write_text(text, encoding="utf-8")
        generate.generate([folder / "x.toml"], folder, seed, tables=True)
        units: dict[str, list[tuple[int, int]]] = {}
        with closing(sqlite3.connect(folder / "x.truth.sqlite")) as file:
            for name, *unit in file.execute(
                "SELECT tenant, start_ns, done_ns FROM units WHERE done_ns > 0 ORDER BY start_ns"
            ):
                units.setdefault(name, []).append((unit[0], unit[1]))
    finally:
        shutil.rmtree(folder)
    return units


def elapsed_ns(units: Sequence[tuple[int, int]]) -> int:
    """First unit's begin to the last one's end."""
    return max(end for _, end in units) - min(start for start, _ in units)


@dataclass(frozen=True)
class Compared:
    """A tenant in a config: what was predicted and what the simulation did."""

    base: str
    seed: int
    observed: str
    option: str
    tenant: str
    simulated: float
    value: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the interval holds the simulated slowdown."""
        return self.low <= self.simulated <= self.high

    @property
    def width(self) -> float:
        """Of the interval, over its middle."""
        return (self.high - self.low) / ((self.high + self.low) / 2)


def compared(base: str, seed: int) -> tuple[list[Compared], str | None]:
    """Every tenant in every option, and the option that is recommended."""
    folder = generate.built(base, seed)
    truth = json.loads((folder / f"{base}.truth.json").read_text(encoding="utf-8"))
    session = pyanalyze.load(folder / f"{base}.sqlite", tables=(*ANALYSIS_TABLES, "api_calls"))
    (verdict,) = session.classify()
    by_pid = {t["pid"]: t for t in truth["tenants"] if t["slowdown"]}
    names = {
        row["tenant_id"]: by_pid[row["pid"]]["name"]
        for row in session.tenants.filter(pl.col("traced")).iter_rows(named=True)
    }
    alone = {t["name"]: t["slowdown"]["elapsed"]["solo_ns"] for t in by_pid.values()}
    units = {t["name"]: t["slowdown"]["n_units"] for t in by_pid.values()}
    found = options(session.tables, verdict)
    rows = []
    for option in found.options:
        expected_ms = max(one.slowdown * alone[names[one.tenant_id]] for one in option.forecasts) / 1e6
        text = partial(rewritten, base, option.config, units, names, list(option.profiles))
        done = simulated(text, seed, units, expected_ms)
        took = {name: elapsed_ns(mine) for name, mine in done.items()}
        for forecast in option.forecasts:
            name = names[forecast.tenant_id]
            slow: Forecast = forecast
            rows.append(
                Compared(
                    base, seed, verdict.mode, option.name, name, took[name] / alone[name],
                    slow.slowdown, slow.low, slow.high,
                )
            )  # fmt: skip
    return rows, found.recommended.name if found.recommended else None


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=BASES)
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("-v", "--verbose", action="store_true", help="every comparison")
    arguments = parser.parse_args()
    (ROOT / "target").mkdir(exist_ok=True)
    rows: list[Compared] = []
    best, cases, worse = 0, 0, 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for base in arguments.scenario:
            mine, recommended = compared(base, seed)
            rows += mine
            worst: dict[str, list[Compared]] = {}
            for row in mine:
                worst.setdefault(row.option, []).append(row)
            if arguments.verbose:
                for row in mine:
                    mark = " " if row.holds else "*"
                    print(
                        f"{mark} {row.base:28s} {row.seed:2d} {row.observed:12s} {row.option:26s} {row.tenant:10s} "
                        f"{row.simulated:6.3f} in {row.low:6.3f} {row.value:6.3f} {row.high:6.3f}"
                    )
            if recommended is None:
                continue
            # Best: by mean slowdown of the tenants (ANTT), of the options that were simulated.
            antt = {name: statistics.mean(row.simulated for row in group) for name, group in worst.items()}
            cases += 1
            good = antt[recommended] <= 1.05 * min(antt.values())
            best += good
            chosen = worst[recommended]
            limit = max(row.high for row in chosen)
            worse += max(row.simulated for row in chosen) > 1.1 * limit
            if arguments.verbose:
                print(f"  -> {recommended}{'' if good else ', WORSE than ' + min(antt, key=lambda k: antt[k])}: {antt}")
    holds = sum(row.holds for row in rows)
    width = statistics.median(row.width for row in rows)
    print(f"{len(rows)} slowdowns predicted: the interval holds {holds} ({100 * holds / len(rows):.1f} %)")
    print(f"median width: {100 * width:.1f} % of the middle")
    print(f"recommended is the best or within 5 %: {best} of {cases}")
    print(f"worst tenant more than 10 % worse than predicted: {worse} of {cases}")
    print("\noption                       holds        n   median width   median error")
    table = []
    for option in sorted({row.option for row in rows}):
        group = [row for row in rows if row.option == option]
        error = statistics.median(abs(row.value / row.simulated - 1) for row in group)
        entry = {
            "option": option,
            "holds": sum(row.holds for row in group),
            "n": len(group),
            "width": round(statistics.median(row.width for row in group), 3),
            "error": round(error, 3),
        }
        table.append(entry)
        print(f"{option:26s} {entry['holds']:7d}  {len(group):7d}   {entry['width']:12.3f}   {entry['error']:12.3f}")
    entry = {
        "bench": "advice",
        "seeds": f"{arguments.first} to {arguments.first + arguments.seeds - 1}",
        "scenarios": len(arguments.scenario),
        "predictions": len(rows),
        "holds": holds,
        "median_width": round(width, 3),
        "recommended_best": best,
        "recommendations": cases,
        "worse_than_predicted": worse,
        "by_option": table,
        "version": pyanalyze.__version__,
    }
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
