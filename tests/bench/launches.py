"""How many warps do real kernels hold, and how far off is the model?  ``python tests/bench/launches.py`` says it.

Launches that Nsight Compute counted (`corpus/occupancy/nsight-compute`, other people's repositories) are turned into
exports, and `kernel_occupancy.mean_warps_per_sm` with its interval is compared with what was counted:

    measured = achieved occupancy x warp slots x active cycles / elapsed cycles

- ``error``: median of |ln(measured / modelled)| over launches; ``held out``: the coefficients are fitted without the
  repository of the launch; beside it an equal-block replay and NVIDIA's theoretical occupancy, the trivial answers.
- ``inside``: launches within the interval, by duration, as shipped and held out (coefficients and widths refitted).
- ``width``: median of (high - low) / value.

The coefficients of the core stand in rust/core/src/occupancy/solo_launch.rs; ``--fit`` prints what a refit on all
launches gives. Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import measurements  # noqa: E402
import polars as pl  # noqa: E402
from exports import kernel, write  # noqa: E402

import pyanalyze  # noqa: E402
from pyanalyze.core import _core  # noqa: E402

CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT.parent / "shared" / "corpus"))
#: Durations that have a spread of their own, and of each class the quantiles outside its interval (low, high) and by how
#: much the lower end is moved out: few repositories have short kernels.
CLASSES = {
    "below 10 us": (0, 10_000, 0.01, 0.01, 0.75),
    "10 to 100 us": (10_000, 100_000, 0.02, 0.02, 1.0),
    "above 100 us": (100_000, 1 << 62, 0.03, 0.01, 0.9),
}
#: No kernel holds more than its slots for all of its time, but for counters and rounding.
MOST = 1.02
#: Residuals below this count alike: counters are no better.
SMOOTH = 0.02

Coefficients = tuple[float, float, float, float]
#: Where a fit starts, and its first steps: start and end, turnover (ns), refill, what uneven blocks leave.
START: Coefficients = (4000.0, 400.0, 0.2, 0.97)
STEPS: Coefficients = (1600.0, 160.0, 0.1, 0.02)


def counted(path: Path) -> pl.DataFrame:
    """Launches with all that is compared."""
    rows = pl.read_csv(path, infer_schema_length=None)
    per_sm = pl.min_horizontal("lim_blocks", "lim_regs", "lim_smem", "lim_warps")
    elapsed = pl.coalesce("sm_elapsed_max", "gpc_elapsed_max")
    warps = pl.col("ach_occ") / 100 * pl.col("max_warps") * pl.col("cyc_active_avg") / elapsed
    rows = rows.with_columns(measured=warps, per_sm=per_sm, block_warps=(pl.col("block") + 31) // 32)
    return rows.drop_nulls(["measured", "per_sm", "duration_ns"]).with_row_index("launch")


def modelled(launches: pl.DataFrame) -> pl.DataFrame:
    """Value, low, high of the core, and the theoretical warps per SM, by launch: each device is an export."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, ((cc, sms, slots), rows) in enumerate(launches.group_by("cc", "sms", "max_warps")):
            gpu = {
                "id": 0, "cuDevice": 0, "name": "counted", "smCount": sms, "maxWarpsPerSm": slots,
                "computeMajor": int(cc), "computeMinor": round(10 * cc) % 10,
            }  # fmt: skip
            start, kernels = 0, []
            for place, row in enumerate(rows.iter_rows(named=True)):
                kernels.append(
                    kernel(
                        7, start, start + int(row["duration_ns"]), demangledName=2 + place, shortName=2 + place,
                        gridX=row["grid"], blockX=row["block"], registersPerThread=row["regs"],
                        staticSharedMemory=row["smem_static"], dynamicSharedMemory=row["smem_dynamic"],
                        sharedMemoryExecuted=row["smem_config"],
                    )
                )  # fmt: skip
                start += int(row["duration_ns"]) + 1000
            path = write(
                Path(folder) / f"{number}.sqlite", kernels=kernels, gpus=[gpu], names=[*map(str, rows["launch"])]
            )
            table = pyanalyze.load(path).kernel_occupancy
            found.append(
                table.select(
                    pl.col("name").cast(pl.String).cast(pl.UInt32).alias("launch"), "warps_per_sm",
                    value="mean_warps_per_sm", low="mean_warps_per_sm_low", high="mean_warps_per_sm_high",
                )
            )  # fmt: skip
    return pl.concat(found)


@dataclass(frozen=True)
class Fit:
    """Launches with what the formula needs, and the formula of solo_launch.rs with other coefficients."""

    rows: pl.DataFrame

    @classmethod
    def of(cls, launches: pl.DataFrame) -> Fit:
        """For counted launches."""
        slots = pl.col("per_sm") * pl.col("sms")
        waves = -(-pl.col("grid") // slots)
        rows = launches.with_columns(
            waves=waves,
            most=pl.col("block_warps") * pl.min_horizontal("grid", slots) / pl.col("sms"),
            equal=pl.col("block_warps") * pl.col("grid") / (pl.col("sms") * waves),
            weight=1 / pl.len().over("source").sqrt(),
        )
        return cls(rows)

    @staticmethod
    def value(of: Coefficients) -> pl.Expr:
        """Mean warps per SM."""
        loss, turnover, refill, uneven = of
        wave = pl.col("duration_ns") / pl.col("waves")
        several = pl.when(pl.col("waves") > 1).then(uneven * wave / (wave + turnover)).otherwise(1.0)
        time = pl.col("duration_ns") / (pl.col("duration_ns") + loss)
        return pl.col("equal") * (pl.col("most") / pl.col("equal")).pow(refill) * time * several

    def residuals(self, of: Coefficients) -> pl.Series:
        """ln(measured / modelled)."""
        return self.rows.select(residual=(pl.col("measured") / self.value(of)).log())["residual"]

    def fitted(self) -> Coefficients:
        """Least weighted absolute residuals, one coefficient after the other."""
        residual = (pl.col("measured") / pl.col("value")).log()
        loss = (pl.col("weight") * (residual**2 + SMOOTH**2).sqrt()).sum()

        def cost(of: list[float]) -> float:
            if of[0] < 0 or of[1] < 0 or not 0 <= of[2] <= 1 or not 0 < of[3] <= 1:
                return math.inf
            shaped = self.rows.lazy().with_columns(value=self.value((of[0], of[1], of[2], of[3])))
            return float(shaped.select(loss).collect().item())

        best, steps = list(START), list(STEPS)
        least = cost(best)
        while any(step > first / 200 for step, first in zip(steps, STEPS, strict=True)):
            for n in range(len(best)):
                for sign in (1, -1):
                    trial = [*best[:n], best[n] + sign * steps[n], *best[n + 1 :]]
                    if (found := cost(trial)) < least:
                        best, least = trial, found
                        break
                else:
                    steps[n] /= 2
        return best[0], best[1], best[2], best[3]


def quantile(values: list[float], weights: list[float], part: float) -> float:
    """Weighted quantile, between the middles of the weights."""
    ordered = sorted(zip(values, weights, strict=True))
    total, below = sum(weights), 0.0
    places = []
    for value, weight in ordered:
        places.append(((below + weight / 2) / total, value))
        below += weight
    if part <= places[0][0]:
        return places[0][1]
    for (a, low), (b, high) in itertools.pairwise(places):
        if part <= b:
            return low + (high - low) * (part - a) / max(b - a, 1e-12)
    return places[-1][1]


def spread(rows: pl.DataFrame, name: str) -> tuple[float, float]:
    """Low and high of a class: counted over modelled warps of `rows`."""
    _, _, low, high, out = CLASSES[name]
    mine = rows.filter(of_class(name))
    values, weights = mine["residual"].to_list(), mine["weight"].to_list()
    return math.exp(quantile(values, weights, low)) * out, math.exp(quantile(values, weights, 1 - high))


def of_class(name: str) -> pl.Expr:
    """Whether a launch is of a class."""
    least, most, *_ = CLASSES[name]
    return (pl.col("duration_ns") >= least) & (pl.col("duration_ns") < most)


def left_out(fit: Fit) -> tuple[pl.DataFrame, dict[str, Coefficients]]:
    """Launches with `residual`, from coefficients without the launch's repository, and those by repository."""
    sources = fit.rows["source"].unique().sort().to_list()
    coefficients = {source: Fit(fit.rows.filter(pl.col("source") != source)).fitted() for source in sources}
    parts = []
    for source in sources:
        mine = Fit(fit.rows.filter(source=source))
        parts.append(mine.rows.with_columns(residual=mine.residuals(coefficients[source])))
    return pl.concat(parts), coefficients


def held_out(residuals: pl.DataFrame, coefficients: dict[str, Coefficients]) -> pl.DataFrame:
    """Value, low and high by launch, from coefficients and spreads without the launch's repository."""
    found = []
    for source, (loss, *rest) in coefficients.items():
        others = residuals.filter(pl.col("source") != source)
        value, none, twice = (Fit.value((part * loss, rest[0], rest[1], rest[2])) for part in (1, 0, 2))
        for name in CLASSES:
            mine = residuals.filter((pl.col("source") == source) & of_class(name))
            if mine.is_empty():
                continue
            low, high = spread(others, name)
            upper = pl.min_horizontal(pl.max_horizontal(high * value, none), pl.col("most") * MOST)
            found.append(
                mine.select(
                    "launch", value=value, low=pl.min_horizontal(low * value, twice),
                    high=pl.max_horizontal(upper, value),
                )
            )  # fmt: skip
    return pl.concat(found)


def figures_of(rows: pl.DataFrame) -> dict[str, Any]:
    """Error, share inside, width of value, low, high against `measured`."""
    error = (pl.col("measured") / pl.col("value")).log().abs().median()
    inside = (pl.col("measured") >= pl.col("low")) & (pl.col("measured") <= pl.col("high"))
    width = ((pl.col("high") - pl.col("low")) / pl.col("value")).median()
    one = rows.select(error=error, inside=inside.mean(), width=width).row(0, named=True)
    return {key: round(value, 4) for key, value in one.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = CORPUS / "occupancy" / "nsight-compute" / "launches.csv"
    parser.add_argument("file", nargs="?", type=Path, default=default, help="counted launches")
    parser.add_argument("--fit", action="store_true", help="print coefficients and spreads of a refit on all")
    parser.add_argument("--no-log", action="store_true", help="only print")
    options = parser.parse_args()
    if not options.file.is_file():
        print(f"no counted launches in {options.file}; set PYANALYZE_CORPUS", file=sys.stderr)
        return 2
    launches = counted(options.file)
    shipped = launches.join(modelled(launches), on="launch")
    known = shipped.drop_nulls("value")
    fit = Fit.of(known.drop("value", "low", "high"))
    residuals, coefficients = left_out(fit)
    without = known.drop("value", "low", "high").join(held_out(residuals, coefficients), on="launch")
    if options.fit:
        print("coefficients:", [round(value, 4) for value in fit.fitted()])
        print("spreads:", {name: [round(end, 3) for end in spread(residuals, name)] for name in CLASSES})
    equal = fit.rows.with_columns(value="equal", low="equal", high="equal")
    theory = known.with_columns(value="warps_per_sm", low="warps_per_sm", high="warps_per_sm")
    print(
        f"{'duration':14} {'launches':>8} | {'error':>7} {'held out':>8} {'replay':>7} {'theory':>7} | inside, held out | width, held out"
    )
    classes = []
    for name in ("all", *CLASSES):
        chosen = pl.lit(value=True) if name == "all" else of_class(name)
        own, out, null, top = (figures_of(rows.filter(chosen)) for rows in (known, without, equal, theory))
        number = known.filter(chosen).height
        classes.append(
            {
                "duration": name, "launches": number, "error": own["error"], "error_held_out": out["error"],
                "error_replay": null["error"], "error_theoretical": top["error"], "inside": own["inside"],
                "inside_held_out": out["inside"], "width": own["width"], "width_held_out": out["width"],
            }
        )  # fmt: skip
        print(
            f"{name:14} {number:>8} | {own['error']:>7.4f} {out['error']:>8.4f} {null['error']:>7.4f} {top['error']:>7.4f} "
            f"| {own['inside']:>6.1%} {out['inside']:>8.1%} | {own['width']:>5.2f} {out['width']:>7.2f}"
        )
    summary = {
        "bench": "launches",
        "launches": launches.height,
        "modelled": known.height,
        "repositories": launches["source"].n_unique(),
        "classes": classes,
        "version": _core.__version__,
    }
    if not options.no_log:
        measurements.append(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
