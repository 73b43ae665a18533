"""Are forecasts of replicas right?  Against published measurements, and against the generator.

    python tests/bench/replicas.py --parvagpu DIR   throughput of ParvaGPU's tables: model, MIG size, batch, MPS clients
    python tests/bench/replicas.py --tally FILE     signs of MPS against time-slicing, of tally-bench's pairs

    python tests/bench/replicas.py --seeds N        copies simulated by the generator, which shares no code with the replay
                                   --cases FILE     all of them appended to a file; with --fit and no --seeds read from it
    python tests/bench/replicas.py --speed          ten forecasts of a million launches

Everything is forecast through `forecast_replicas`, beside trivial answers. Constants that were fitted to other models are
tested on a model that is left out: once with the constants that ship, once with the interval widths of the other models of
the folder. `--fit` prints the constants: of ParvaGPU's tables, or the interval widths of copies. Nothing of the
measurements is kept in the repository.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import multiprocessing
import random
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import advice
import big_export
import generate
import measurements
import polars as pl

import pyanalyze
from pyanalyze.analysis.advice import copies as copies_of
from pyanalyze.analysis.advice.copies import Recorded
from pyanalyze.analysis.advice.curve import Measured, Place
from pyanalyze.analysis.advice.fitted import COPIES, CURVE, CopyConstants, CurveConstants
from pyanalyze.analysis.advice.forecast import Assignment, SharingConfig, forecast
from pyanalyze.analysis.advice.pairs import CONFIDENT, Pair
from pyanalyze.analysis.advice.replicas import forecast_replicas
from pyanalyze.errors import UsageError
from pyanalyze.tables.frames import ANALYSIS_TABLES
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyanalyze.results.replicas import Quantity, ReplicaAdvice, ReplicaOption

ROOT = Path(__file__).resolve().parents[2]
#: Memory slices of a MIG instance on an A100, by compute slices.
MEMORY_SLICES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
QUANTITIES: tuple[Quantity, ...] = ("mean", "p99")
#: Part of the errors that interval widths are fitted to hold; what new models add is not in them.
FITTED_PART = 0.96
#: The same of simulations: without their scenario widths hold 95 %.
FITTED_SIMULATIONS = 0.97


def quantile(values: Iterable[float], part: float) -> float:
    """Linear quantile."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = math.floor(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


@dataclass(frozen=True)
class Compared:
    """A forecast and what was measured, per copy."""

    model: str
    place: Place
    anchored: bool
    measured: float
    value: float
    low: float
    high: float
    trivial: Mapping[str, float]

    @property
    def log(self) -> float:
        """Log of forecast over measured."""
        return math.log(self.value / self.measured)

    @property
    def holds(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low <= self.measured <= self.high


def throughputs(folder: Path) -> tuple[dict[str, dict[Place, float]], int]:
    """Throughput per process of each model; rows that were not measured are left out, and copied rows counted.

    A throughput of 0 did not run (it did not fit). One that equals that of one process less to the last digit is no
    measurement of its own.
    """
    found: dict[str, dict[Place, float]] = {}
    copied = 0
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{key.strip(): value for key, value in row.items() if key} for row in csv.DictReader(file)]
        if not rows or "Mig instance" not in rows[0]:
            continue
        raw = {
            (int(row["Mig instance"]), int(row["Batch size"]), int(row["Workload Number"])): float(row["Throughput"])
            for row in rows
            if row["Throughput"]
        }
        found[path.stem] = {}
        for (size, batch, copies), value in raw.items():
            if value <= 0:
                continue
            if copies > 1 and value == raw.get((size, batch, copies - 1)):
                copied += 1
                continue
            found[path.stem][Place(size, MEMORY_SLICES[size], batch, copies)] = value
    return found, copied


def from_one_copy(model: str, data: Mapping[Place, float], constants: CurveConstants) -> Iterator[Compared]:
    """Fit on one process per instance, predict the others."""
    kept = {place: value for place, value in data.items() if place.copies == 1}
    asked = [place for place in data if place.copies > 1]
    for place, found in zip(asked, forecast_replicas(Measured(kept), asked, constants), strict=True):
        solo = data.get(place.solo)
        trivial = {} if solo is None else {"1/N": solo / place.copies, "nothing lost": solo}
        one = found.per_copy
        yield Compared(model, place, found.measured, data[place], one.value, one.low, one.high, trivial)


def from_one_size(model: str, data: Mapping[Place, float], constants: CurveConstants) -> Iterator[Compared]:
    """Fit on one MIG size, predict the others; every size in turn."""
    for size in sorted({place.compute_slices for place in data}):
        kept = {place: value for place, value in data.items() if place.compute_slices == size}
        asked = [place for place in data if place.compute_slices != size]
        try:
            forecasts = forecast_replicas(Measured(kept), asked, constants)
        except UsageError as reason:
            print(f"  {model}, size {size}: {reason}")
            continue
        for place, found in zip(asked, forecasts, strict=True):
            here = Place(size, MEMORY_SLICES[size], place.batch, place.copies)
            same, solo = kept.get(here), kept.get(here.solo)
            larger = place.compute_slices / size
            trivial = {}
            if same is not None:
                trivial = {"linear in SMs": same * larger, "nothing lost": same}
            if solo is not None:
                trivial["1/N, linear in SMs"] = solo * larger / place.copies
            one = found.per_copy
            yield Compared(model, place, found.measured, data[place], one.value, one.low, one.high, trivial)


TESTS = {"one process per instance, predict more": from_one_copy, "one MIG size, predict the others": from_one_size}


def errors(rows: Sequence[Compared]) -> dict[str, Any]:
    """Median and 95th percentile of the relative error per copy, and coverage."""
    relative = [abs(row.value / row.measured - 1) for row in rows]
    return {
        "n": len(rows),
        "median": round(statistics.median(relative), 4),
        "p95": round(quantile(relative, 0.95), 4),
        "coverage": round(sum(row.holds for row in rows) / len(rows), 4),
        "width": round(statistics.median(row.high / row.low for row in rows), 3),
    }


def widths(rows: Iterable[Compared]) -> dict[tuple[bool, int], float]:
    """Half widths (log) that hold most errors, by kind and copies."""
    groups: dict[tuple[bool, int], list[float]] = {}
    for row in rows:
        groups.setdefault((row.anchored, row.place.copies), []).append(abs(row.log))
    return {key: round(quantile(group, FITTED_PART), 3) for key, group in sorted(groups.items())}


def shaped(data: Mapping[str, Mapping[Place, float]], constants: CurveConstants) -> CurveConstants:
    """The same with the sharpness and the memory part that leave the least median error on these models."""
    best = (math.inf, constants)
    for sharpness, memory_part in itertools.product((4.0, 6.0, 8.0), (0.0, 0.3, 0.5)):
        tried = replace(constants, sharpness=sharpness, memory_part=memory_part)
        rows = [row for model, of in data.items() for test in TESTS.values() for row in test(model, of, tried)]
        middle = statistics.median(abs(row.log) for row in rows)
        best = min(best, (middle, tried), key=lambda item: item[0])
    return best[1]


def all_rows(data: Mapping[str, Mapping[Place, float]], constants: CurveConstants) -> list[Compared]:
    """Both tests on all models."""
    return [row for model, of in data.items() for test in TESTS.values() for row in test(model, of, constants)]


def printed(name: str, rows: Sequence[Compared]) -> None:
    """One line of errors."""
    found = errors(rows)
    print(
        f"  {name:34s} n {found['n']:5d}  median {100 * found['median']:5.1f} %  p95 {100 * found['p95']:6.1f} %"
        f"  interval holds {100 * found['coverage']:5.1f} %, high/low {found['width']:.2f}"
    )


def parvagpu(folder: Path, *, fitting: bool) -> dict[str, Any]:
    """Compare with ParvaGPU's tables."""
    data, copied = throughputs(folder)
    print(f"{folder}: {len(data)} models, {sum(map(len, data.values()))} throughputs; {copied} copied rows left out")
    entry: dict[str, Any] = {"models": len(data), "copied": copied}
    if fitting:
        shape = shaped(data, CURVE)
        print(f"fitted: sharpness {shape.sharpness}, memory part {shape.memory_part}")
        print(f"fitted: widths {widths(all_rows(data, shape))}")
        return entry
    for title, test in TESTS.items():
        print(f"\nFit on {title}")
        rows = {model: list(test(model, of, CURVE)) for model, of in data.items()}
        everything = list(itertools.chain.from_iterable(rows.values()))
        printed("forecast, constants as shipped", everything)
        entry[title] = errors(everything)
        if len(data) > 1:
            held_out: list[Compared] = []
            for model, of in data.items():
                others = {name: rest for name, rest in data.items() if name != model}
                shape = shaped(others, CURVE)
                held_out += test(model, of, replace(shape, widths=widths(all_rows(others, shape))))
            printed("forecast, each model held out", held_out)
            entry[f"{title}, held out"] = errors(held_out)
        for name in sorted({name for row in everything for name in row.trivial}):
            pairs = [abs(row.trivial[name] / row.measured - 1) for row in everything if name in row.trivial]
            print(
                f"  trivial: {name:25s} n {len(pairs):5d}  median {100 * statistics.median(pairs):5.1f} %"
                f"  p95 {100 * quantile(pairs, 0.95):6.1f} %"
            )
        for model, mine in rows.items():
            printed(model, mine)
    return entry


def pairs_of(path: Path, quantity: Quantity) -> list[Pair]:
    """Measured pairs of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Pair(
                row["served"],
                row["trainer"],
                quantity,
                float(row[f"time_slicing_{quantity}_ms"]) / float(row[f"alone_{quantity}_ms"]),
                float(row[f"mps_{quantity}_ms"]) / float(row[f"alone_{quantity}_ms"]),
            )
            for row in csv.DictReader(file)
        ]


def tally(path: Path) -> dict[str, Any]:
    """Signs of every pair, forecast from the other ones."""
    entry: dict[str, Any] = {}
    print(f"\n{path.name}: MPS against time-slicing; stated where its probability is at least {CONFIDENT:.0%}")
    for title in ("time-sliced run known", "MPS run known"):
        print(f"\n{title}")
        right = wrong = open_ = always = held = n = 0
        for quantity in QUANTITIES:
            pairs = pairs_of(path, quantity)
            for pair in pairs:
                # Nothing of the answer goes in: the two runs together would be the answer.
                asked = replace(pair, mps=None) if title == "time-sliced run known" else replace(pair, time_sliced=None)
                found = forecast_replicas(asked, pairs)
                assert pair.effect is not None
                truth = "mps-slower" if pair.effect > 0 else "mps-faster"
                n += 1
                held += found.low <= math.exp(pair.effect) <= found.high
                open_ += found.sign == "cannot-tell"
                right += found.sign == truth
                wrong += found.sign not in {truth, "cannot-tell"}
                always += truth == "mps-faster"
                mark = {truth: "right", "cannot-tell": ""}.get(found.sign, "WRONG")
                print(
                    f"  {quantity:4s} {pair.tenant[:30]:30s} beside {pair.other[:24]:24s} measured "
                    f"{math.exp(pair.effect):5.2f}  forecast {found.ratio:5.2f} "
                    f"({found.low:.2f}-{found.high:.2f})  {found.likely} {found.confidence:.2f} "
                    f"n {found.n} ({found.known})  {found.sign} {mark}"
                )
        print(
            f"  {n} signs: {right} stated and right, {wrong} stated and wrong, {open_} cannot be told; 90 % interval holds "
            f"{held}; 'always MPS' is right in {always}, wrong in {n - always}"
        )
        entry[title] = {
            "n": n,
            "right": right,
            "wrong": wrong,
            "cannot_tell": open_,
            "always_mps": always,
            "held": held,
        }
    return entry


#: No tenant of these scenarios works longer alone.
SOLO_MS = 500
#: Scenarios with one kind of work a tenant, and what their first capture shows.
BASES = (
    "exclusive",
    "exclusive-slow-host",
    "mps",
    "mps-memory-bound",
    "mps-saturating",
    "streams-launch-bound",
    "time-slicing-low-duty",
    "time-slicing-pair",
)


def solo_ns(
    base: str, option: ReplicaOption, units: Mapping[str, int], named: Mapping[str, str], seed: int
) -> dict[str, float]:
    """What each copy of each tenant takes solo on the whole GPU, simulated in the same way.

    Each of them: arrivals and times of blocks are drawn by copy.
    """
    found: dict[str, float] = {}
    for copies in option.tenants:
        one = option.model_copy(
            update={
                "tenants": [copies.model_copy(update={"copies": 1})],
                "mode": Mode.EXCLUSIVE,
                "profiles": [],
                "instances": [],
                "percentages": [],
            }
        )
        name = named[copies.name]
        for n in range(copies.copies):
            text = partial(multiplied, base, one, units, named, first=n)
            done = advice.simulated(text, seed, {f"{name}-{n}": units[name]}, SOLO_MS)
            found[f"{name}-{n}"] = advice.elapsed_ns(done[f"{name}-{n}"])
    return found


def multiplied(
    base: str,
    option: ReplicaOption,
    units: Mapping[str, int],
    named: Mapping[str, str],
    until_ms: float,
    *,
    first: int = 0,
) -> str:
    """The scenario with copies of its tenants in this option, counted from `first`, with work until then."""
    table, recorded = advice.whole(base), advice.whole(base)
    (board,) = table["board"]
    for key in ("mode", "mig"):
        board.pop(key, None)
    together = TRAITS[option.mode].mps
    if option.profiles:
        mode = "mig+mps" if together else "mig"
        board["mig"] = [{"profile": one.partition(":")[0], "mode": mode} for one in option.profiles]
    else:
        board["mode"] = "mps" if together else "time-slicing"
    originals = {tenant["name"]: tenant for tenant in table["tenant"]}
    table["tenant"] = []
    at = 0
    for copies in option.tenants:
        name = named[copies.name]
        for copy in range(copies.copies):
            # It is the recorded program: what the seed drew for that, it has too.
            tenant = {**originals[name], "name": f"{name}-{first + copy}", "copy_of": name, "mps": bool(together)}
            for key in ("pre_volta", "mps_percent", "mps_chunks"):
                tenant.pop(key, None)
            if option.instances:
                tenant["device"] = option.instances[at]
            else:
                tenant.pop("device", None)
            if option.percentages:
                tenant["mps_percent"] = float(option.percentages[at])
            (work,) = originals[name]["work"]
            work = dict(work)
            # Copies begin together. A range stays one, for the numbers that are drawn after it.
            tenant["start_ms"] = [0, 0] if isinstance(tenant.get("start_ms"), list) else 0
            advice.run_on(recorded, work, units[name], until_ms)
            tenant["work"] = [work]
            table["tenant"].append(tenant)
            at += 1
    advice.lasts(table, until_ms)
    table["bin_us"] = 1_000_000
    table["capture"] = []
    table.pop("samples", None)
    return "\n".join(f"{json.dumps(key)} = {advice.written(value)}" for key, value in table.items())


@dataclass(frozen=True)
class Simulated:
    """Copies of a tenant in a configuration: forecast slowdown or p99 (ns), and what the simulation did."""

    what: str
    base: str
    seed: int
    kind: str
    tenant: str
    together: str
    copies: int
    option: str
    current: bool
    simulated: float
    value: float
    low: float
    high: float

    @property
    def log(self) -> float:
        """Log of simulated over forecast."""
        return math.log(self.simulated / self.value)

    @property
    def holds(self) -> bool:
        """Whether the interval holds what was simulated."""
        return self.low <= self.simulated <= self.high


def together(option: ReplicaOption, names: Mapping[str, str]) -> str:
    """Copies of an option, as the cases have them."""
    return ", ".join(f"{copies.copies} {names[copies.name]}" for copies in option.tenants)


def kind_of(option: ReplicaOption) -> str:
    """Kind of a configuration, as the constants have it."""
    if option.copies == 1 and not option.profiles:
        return "solo"
    traits = TRAITS[option.mode]
    return "together" if traits.mps else "instances" if option.profiles else "time-sliced"


def simulated_option(
    base: str,
    option: ReplicaOption,
    units: Mapping[str, int],
    named: Mapping[str, str],
    solo: Mapping[str, float],
    seed: int,
) -> dict[str, list[tuple[int, int]]]:
    """Begin and end of the units of work of every copy."""
    wanted = {f"{named[c.name]}-{n}": units[named[c.name]] for c in option.tenants for n in range(c.copies)}
    expected_ms = max(c.slowdown.value * solo[f"{named[c.name]}-0"] for c in option.tenants) / 1e6
    return advice.simulated(partial(multiplied, base, option, units, named), seed, wanted, expected_ms)


@dataclass(frozen=True)
class Asked:
    """A forecast of copies of a scenario: names of tenants in the scenario by those in the forecast, their units of work."""

    found: ReplicaAdvice
    names: Mapping[str, str]
    units: Mapping[str, int]


def asked_copies(base: str, seed: int) -> Asked:
    """Forecast one copy of each tenant, and 2 to 8 of one."""
    draw = random.Random(f"{base}/{seed}")
    folder = generate.built(base, seed)
    truth = json.loads((folder / f"{base}.truth.json").read_text(encoding="utf-8"))
    session = pyanalyze.load(folder / f"{base}.sqlite", tables=(*ANALYSIS_TABLES, "api_calls"))
    (verdict,) = session.classify()
    tables = session.analysis.representative(verdict.device_id).tables
    by_pid = {t["pid"]: t for t in truth["tenants"] if t["slowdown"]}
    traced = tables.tenants.filter(pl.col("traced"))
    labels = tables.labels(verdict.device_id)
    names = {
        labels[row["tenant_id"]]: by_pid[row["pid"]]["name"]
        for row in traced.iter_rows(named=True)
        if row["pid"] in by_pid
    }
    units = {t["name"]: t["slowdown"]["n_units"] for t in by_pid.values()}
    who = draw.choice(sorted(names))
    asked = [dict.fromkeys(names, 1), {who: draw.randint(2, 8)}]
    return Asked(forecast_replicas(Recorded(tables, verdict), asked, threads=2), names, units)


def simulated_copies(base: str, seed: int) -> tuple[list[Simulated], list[float], str | None]:
    """Forecast and simulated slowdowns; of each number of copies how much the recommended one loses to the best."""
    asked = asked_copies(base, seed)
    found, names, units = asked.found, asked.names, asked.units
    if not found.options:
        return [], [], found.missing[0].why
    solo: dict[str, float] = {}
    rows: list[Simulated] = []
    throughput: dict[str, list[tuple[ReplicaOption, float]]] = {}
    for option in found.options:
        if not {f"{names[copies.name]}-{copies.copies - 1}" for copies in option.tenants} <= set(solo):
            solo |= solo_ns(base, option, units, names, seed)
        done = simulated_option(base, option, units, names, solo, seed)
        took = {name: advice.elapsed_ns(mine) for name, mine in done.items()}
        each_unit = {name: [end - start for start, end in mine] for name, mine in done.items()}
        whole = 0.0
        group = together(option, names)
        for copies in option.tenants:
            name = names[copies.name]
            slow = statistics.fmean(took[one] / solo[one] for one in (f"{name}-{n}" for n in range(copies.copies)))
            whole += copies.copies / slow
            one = copies.slowdown
            rows.append(
                Simulated(
                    "slowdown", base, seed, kind_of(option), name, group, option.copies, option.name, option.current, slow,
                    one.value, one.low, one.high,
                )
            )  # fmt: skip
            if copies.p99_ns is not None and found.latency_of == "unit":
                p99 = statistics.fmean(quantile(each_unit[f"{name}-{n}"], 0.99) for n in range(copies.copies))
                two = copies.p99_ns
                rows.append(
                    Simulated(
                        "p99", base, seed, kind_of(option), name, group, option.copies, option.name, option.current, p99,
                        two.value, two.low, two.high,
                    )
                )  # fmt: skip
        throughput.setdefault(group, []).append((option, whole))
    chosen = []
    for options in throughput.values():
        if len(options) > 1:
            # What is recommended of this number of copies: ties go to the simplest, not to the last digit.
            best = copies_of._simplest([option for option, _ in options], "throughput")
            reached = next(real for option, real in options if option is best)
            chosen.append(reached / max(real for _, real in options))
    return rows, chosen, None


def simulations(
    first: int, seeds: int, scenarios: Sequence[str], cases: Path | None, processes: int, *, verbose: bool
) -> dict[str, Any]:
    """Compare with the generator; so many scenarios at a time."""
    (ROOT / "target").mkdir(exist_ok=True)
    rows: list[Simulated] = []
    chosen: list[float] = []
    refused = 0
    pairs = [(base, seed) for seed in range(first, first + seeds) for base in scenarios]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for (base, seed), (mine, best, why) in zip(
            pairs, pool.map(simulated_copies, *zip(*pairs, strict=True)), strict=True
        ):
            rows += mine
            chosen += best
            if cases is not None:
                with cases.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(asdict(row)) + "\n" for row in mine)
            if why is not None:
                refused += 1
                print(f"  {base} {seed}: no forecast: {why}")
            if verbose:
                for row in mine:
                    print(
                        f"{' ' if row.holds else '*'} {row.what:8s} {row.base:22s} {row.seed:3d} {row.copies} {row.option:36s} "
                        f"{row.simulated:7.3f} in {row.low:7.3f} {row.value:7.3f} {row.high:7.3f}",
                        flush=True,
                    )

    def line(name: str, some: Sequence[Simulated]) -> dict[str, Any]:
        if not some:
            return {}
        error = [abs(row.value / row.simulated - 1) for row in some]
        entry = {
            "n": len(some),
            "median": round(statistics.median(error), 4),
            "p95": round(quantile(error, 0.95), 4),
            "coverage": round(sum(row.holds for row in some) / len(some), 4),
            "width": round(statistics.median(row.high / row.low for row in some), 3),
        }
        print(
            f"  {name:24s} n {entry['n']:5d}  median {100 * entry['median']:5.1f} %  p95 {100 * entry['p95']:6.1f} %"
            f"  interval holds {100 * entry['coverage']:5.1f} %, high/low {entry['width']:.2f}"
        )
        return entry

    print(
        f"\nGenerator, seeds {first} to {first + seeds - 1}: {len(scenarios)} scenarios, {refused} without a forecast"
    )
    found: dict[str, Any] = {"seeds": f"{first} to {first + seeds - 1}", "refused": refused}
    tails = [row for row in rows if row.what == "p99"]
    rows = [row for row in rows if row.what == "slowdown"]
    found["all"] = line("all", rows)
    found["p99"] = line("p99 of units, all", tails)
    for kind in ("solo", "time-sliced", "together", "instances"):
        found[f"p99 {kind}"] = line(f"p99, {kind}", [row for row in tails if row.kind == kind])
    found["current"] = line("the recorded one", [row for row in rows if row.current])
    for kind in ("solo", "time-sliced", "together", "instances"):
        found[kind] = line(kind, [row for row in rows if row.kind == kind])
    for base in scenarios:
        line(base, [row for row in rows if row.base == base])
    good = sum(part >= 0.97 for part in chosen)
    print(f"  recommended within 3 % of the best simulated: {good} of {len(chosen)}")
    found["best"] = [good, len(chosen)]
    return found


#: Widths that are tried; what needs more than the last one is no matter of widths.
TRIED = tuple(0.005 * n for n in range(161))


@dataclass(frozen=True)
class Needed:
    """The least width with which the interval of a case holds what was simulated."""

    base: str
    what: str
    kind: str
    current: bool
    width: float


def with_widths(constants: CopyConstants, width: float) -> CopyConstants:
    """The same, with one width for all."""
    every = dict.fromkeys(constants.widths, width)
    return replace(constants, widths=every, tail_widths=every, recorded=every, recorded_tail=every)


def needed_of(base: str, seed: int, simulated: Mapping[tuple[str, ...], float]) -> Iterator[Needed]:
    """Widths that the cases of a scenario need: it is forecast again, with every width."""
    made: list[tuple[partial[ReplicaOption], Any]] = []
    option_of = copies_of._option

    def noted(scene: Any, candidate: Any, *rest: Any) -> ReplicaOption:
        made.append((partial(option_of, scene, candidate, *rest), candidate))
        return option_of(scene, candidate, *rest)

    with patch.object(copies_of, "_option", noted):
        names = asked_copies(base, seed).names
    for again, candidate in made:
        needs: dict[tuple[str, str], float] = {}
        known: dict[tuple[str, str], float] = {}
        for width in TRIED:
            with patch.object(copies_of, "COPIES", with_widths(COPIES, width)):
                option = again()
            for copies in option.tenants:
                name = names[copies.name]
                for what, estimate in (("slowdown", copies.slowdown), ("p99", copies.p99_ns)):
                    real = simulated.get((base, str(seed), together(option, names), option.name, name, what))
                    if real is None or estimate is None:
                        continue
                    known[name, what] = real
                    if estimate.low <= real <= estimate.high:
                        needs.setdefault((name, what), width)
            if len(needs) == len(known):
                break
        for name, what in known:
            yield Needed(base, what, candidate.kind, candidate.current, needs.get((name, what), math.inf))


def fitted_copies(cases: Path) -> None:
    """Print the widths that hold `FITTED_SIMULATIONS` of the cases of a kind, and what those of other scenarios hold."""
    rows = [json.loads(line) for line in cases.read_text(encoding="utf-8").splitlines()]
    simulated: dict[tuple[str, ...], float] = {
        (row["base"], str(row["seed"]), row["together"], row["option"], row["tenant"], row["what"]): row["simulated"]
        for row in rows
    }
    needed = [
        one
        for base, seed in sorted({(row["base"], row["seed"]) for row in rows})
        for one in needed_of(base, seed, simulated)
    ]
    print(f"{len(needed)} of {len(simulated)} cases forecast again")
    groups: dict[tuple[str, str, str], list[Needed]] = {}
    for one in needed:
        which = "recorded" if one.current else "others"
        groups.setdefault((which, one.what, one.kind), []).append(one)
        if one.current:
            # Few scenarios show one of its kinds.
            groups.setdefault((which, one.what, "any kind"), []).append(one)
    for (which, what, kind), group in sorted(groups.items()):
        held = 0
        for base in {one.base for one in group}:
            rest = [one.width for one in group if one.base != base] or [one.width for one in group]
            held += sum(one.base == base and one.width <= quantile(rest, FITTED_SIMULATIONS) for one in group)
        widths = [one.width for one in group]
        print(
            f"  {which:18s} {what:8s} {kind:11s} n {len(group):4d}  width {quantile(widths, FITTED_SIMULATIONS):.3f}"
            f"  median {statistics.median(widths):.3f}  without any {sum(w == 0 for w in widths) / len(widths):.1%}"
            f"  scenarios held out: holds {held / len(group):.1%}"
        )


def speed(launches: int, threads: int) -> dict[str, Any]:
    """Ten forecasts of so many launches: copies of two programs, so that all of them together launch so many."""
    copies = 4
    path = big_export.export(launches // copies, 2 * launches // copies)
    session = pyanalyze.load(path, tables=(*ANALYSIS_TABLES, "api_calls"))
    tenants = session.tenants.filter(pl.col("traced"))["tenant_id"].to_list()
    sms = int(session.devices["sm_count"][0])
    everybody = [(tenant, copy) for tenant in tenants for copy in range(copies)]
    turns = [Assignment(tenant, group=n, copy=copy) for n, (tenant, copy) in enumerate(everybody)]
    together = [Assignment(tenant, copy=copy) for tenant, copy in everybody]
    capped = [replace(one, sms=sms // 4) for one in together]
    split = [replace(one, instance=n % 2) for n, one in enumerate(together)]
    shapes = [
        SharingConfig("time-sliced", (sms,), tuple(turns)),
        SharingConfig("together", (sms,), tuple(together)),
        SharingConfig("contention", (sms,), tuple(together), contention=0.1),
        SharingConfig("capped", (sms,), tuple(capped)),
        SharingConfig("MPS in two instances", (sms // 2, sms // 2), tuple(split)),
    ]
    wanted = [
        config.varied(f"{config.name} {seed}", contention=config.contention, jitter=0.04, seed=seed)
        for config in shapes
        for seed in (1, 2)
    ]
    began, cpu = time.perf_counter(), time.process_time()
    forecast(session.tables, 0, wanted, time_sliced=False, threads=threads)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{len(wanted)} forecasts of {launches:,} launches ({copies} copies of {len(tenants)} programs): {seconds:.1f} s "
        f"on {threads} threads, {cpu_seconds:.1f} s of processor time"
    )
    return {
        "launches": launches,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "threads": threads,
    }


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parvagpu", type=Path, help="folder of ParvaGPU's tables, one a model")
    parser.add_argument("--tally", type=Path, help="table of measured pairs")
    parser.add_argument("--seeds", type=int, default=0, help="simulate so many seeds of each scenario")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--scenario", action="append", choices=BASES, help="only these")
    parser.add_argument(
        "--cases",
        type=Path,
        help="append every simulated case to this file, one JSON object a line; with --fit: read it",
    )
    parser.add_argument("--speed", action="store_true", help="time ten forecasts")
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2, help="of the ten forecasts; simulations at a time")
    parser.add_argument("-v", "--verbose", action="store_true", help="every simulation")
    parser.add_argument("--fit", action="store_true", help="print the constants that these measurements give")
    arguments = parser.parse_args()
    entry: dict[str, Any] = {"bench": "replicas", "version": pyanalyze.__version__}
    if arguments.parvagpu is not None:
        entry["parvagpu"] = parvagpu(arguments.parvagpu, fitting=arguments.fit)
    if arguments.tally is not None:
        entry["tally"] = tally(arguments.tally)
    if arguments.fit and arguments.cases is not None:
        fitted_copies(arguments.cases)
    elif arguments.seeds:
        entry["generator"] = simulations(
            arguments.first,
            arguments.seeds,
            arguments.scenario or BASES,
            arguments.cases,
            arguments.threads,
            verbose=arguments.verbose,
        )
    if arguments.speed:
        entry["speed"] = speed(arguments.launches, arguments.threads)
    if len(entry) == 2 and not arguments.fit:
        parser.print_help()
        return 2
    if not arguments.fit:
        measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
