"""What follows from the runs of a study: ratios over runs, not kernels, with their intervals."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.errors import CaptureUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyanalyze.fleet.failures import Failed


@dataclass(frozen=True)
class Observation:
    """One tenant in one run: a row of the tidy table.

    Attributes
    ----------
    run
        Name of the run: the folder of its report.
    workload, label, role, repeat
        As the file says; `label` is the mode that was meant, null for a run alone that names none.
    observed, confidence, basis
        The verdict on the device with most tenants.
    contradicts
        It shows another mode than was meant; None: it cannot be told.
    tenant
        Its name.
    launches, elapsed_ns, launches_per_s
        Kernels and graphs, first launch to last end, and their ratio; null: not traced.
    work
        Digest of what it launched (kernels, grids, blocks): equal for equal programs; null: not traced.
    slowdown_elapsed, slowdown_latency, slowdown_resident
        Of this run, from its report.
    throughput_profiled, throughput_unprofiled
        By the program's own account, from the file.
    """

    run: str
    workload: str
    label: str | None
    role: str
    repeat: int
    observed: str | None
    confidence: float | None
    basis: str | None
    contradicts: bool | None
    tenant: str
    launches: int | None
    elapsed_ns: int | None
    launches_per_s: float | None
    work: str | None
    slowdown_elapsed: float | None
    slowdown_latency: float | None
    slowdown_resident: float | None
    throughput_profiled: float | None
    throughput_unprofiled: float | None


@dataclass(frozen=True)
class Estimate:
    """A ratio over runs with its 95 % interval.

    Attributes
    ----------
    workload, mode, tenant
        What it is of; `mode` as labelled.
    measure
        ``unprofiled``, ``profiled``: slowdown by the program's own throughput. ``launches``: slowdown by kernels and
        graphs launched a second, over runs of equal work. ``elapsed``, ``latency``, ``resident``: mean of the runs' own
        slowdowns. ``profiler``: throughput without over that with the profiler.
    value, low, high
        Geometric mean and interval (Student's t of the logarithms); null ends: a single run has no spread.
    runs, solo_runs
        How many runs are behind it.
    """

    workload: str
    mode: str
    tenant: str
    measure: str
    value: float
    low: float | None
    high: float | None
    runs: int
    solo_runs: int


#: Speeds, of which a slowdown is the one alone over the one shared.
_SPEEDS = {
    "unprofiled": "throughput_unprofiled",
    "profiled": "throughput_profiled",
    "launches": "launches_per_s",
}
_OWN = {kind: f"slowdown_{kind}" for kind in ("elapsed", "latency", "resident")}
MEASURES = (*_SPEEDS, *_OWN, "profiler")


@dataclass(frozen=True)
class EmptyCell:
    """Figures that a study does not have.

    Attributes
    ----------
    workload, mode, tenant
        What they would be of; `mode` as labelled.
    measures
        Names, as of :class:`Estimate`.
    why
        What is missing.
    """

    workload: str
    mode: str
    tenant: str
    measures: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Study:
    """What a study came to.

    Attributes
    ----------
    output
        The folder: `runs.csv`, `estimates.csv` (and `.parquet`), `table.tex`, `methods.md`, `CITATION.cff`,
        `groups/<run>/report.html`.
    observations
        Contradicting runs first, then as in the file.
    estimates
        By workload, mode, tenant and measure.
    failures
        Captures without a result.
    empty
        Figures without a value, and why.
    """

    output: Path
    observations: tuple[Observation, ...]
    estimates: tuple[Estimate, ...]
    failures: tuple[Failed, ...]
    empty: tuple[EmptyCell, ...] = ()

    @property
    def contradicting(self) -> tuple[Observation, ...]:
        """One observation for each run that shows another mode than was meant."""
        return tuple({one.run: one for one in self.observations if one.contradicts}.values())

    @property
    def exit_code(self) -> int:
        """3 if a capture has no result, else 0."""
        return CaptureUnreadable.exit_code if self.failures else 0


def estimates(rows: Iterable[Observation]) -> list[Estimate]:
    """Slowdowns and the profiler's cost over the runs that show what they were meant to.

    Parameters
    ----------
    rows
        Observations; those of contradicting runs are left out.

    Examples
    --------
    >>> estimates([])
    []
    """
    used = [row for row in rows if row.contradicts is not True]
    keys = sorted({(row.workload, row.label or "", row.tenant) for row in used if row.role == "shared"})
    found = []
    for workload, mode, tenant in keys:
        shared = [
            row for row in used if (row.role, row.workload, row.label, row.tenant) == ("shared", workload, mode, tenant)
        ]
        solo = [
            row
            for row in used
            if (row.role, row.workload, row.tenant) == ("solo", workload, tenant) and row.label in (None, mode)
        ]
        for measure, column in _SPEEDS.items():
            if measure == "launches":
                # A launch of another program is another unit: of all runs only those of the same work compare.
                kinds = Counter(row.work for row in shared if row.work is not None)
                usual = min(kinds, key=lambda kind: (-kinds[kind], kind), default=None)
                beside = _values([row for row in shared if row.work == usual], column)
                alone = _values([row for row in solo if row.work == usual], column)
            else:
                beside, alone = _values(shared, column), _values(solo, column)
            if beside and alone:
                value, low, high = ratio_of_means(alone, beside)
                found.append(Estimate(workload, mode, tenant, measure, value, low, high, len(beside), len(alone)))
        for measure, column in _OWN.items():
            own = _values(shared, column)
            if own:
                value, low, high = mean_ratio(own)
                found.append(Estimate(workload, mode, tenant, measure, value, low, high, len(own), 0))
        both = [
            row.throughput_unprofiled / row.throughput_profiled
            for row in shared
            if row.throughput_profiled is not None and row.throughput_unprofiled is not None
        ]
        if both:
            value, low, high = mean_ratio(both)
            found.append(Estimate(workload, mode, tenant, "profiler", value, low, high, len(both), 0))
    return found


def empty_cells(rows: Iterable[Observation]) -> list[EmptyCell]:
    """Say of every tenant of a shared run which figures it does not have, and why.

    Parameters
    ----------
    rows
        Observations, contradicting runs included.

    Examples
    --------
    >>> empty_cells([])
    []
    """
    rows = list(rows)
    used = [row for row in rows if row.contradicts is not True]
    known = {(one.workload, one.mode, one.tenant, one.measure) for one in estimates(rows)}
    found = []
    for workload, mode, tenant in sorted({(r.workload, r.label or "", r.tenant) for r in rows if r.role == "shared"}):
        key = ("shared", workload, mode, tenant)
        shared = [row for row in used if (row.role, row.workload, row.label, row.tenant) == key]
        solo = [
            row
            for row in used
            if (row.role, row.workload, row.tenant) == ("solo", workload, tenant) and row.label in (None, mode)
        ]
        reasons: dict[str, list[str]] = {}
        for measure in MEASURES:
            if (workload, mode, tenant, measure) not in known:
                reasons.setdefault(_why_empty(measure, shared, solo, tenant), []).append(measure)
        found += [EmptyCell(workload, mode, tenant, tuple(names), why) for why, names in reasons.items()]
    return found


def _why_empty(measure: str, shared: Sequence[Observation], solo: Sequence[Observation], tenant: str) -> str:
    """What is missing for a figure that could not be estimated."""
    if not shared:
        return "every run of it shows another mode than its label"
    if measure == "profiler":
        return f"no shared run has throughput.{tenant} both profiled and unprofiled"
    if measure in _OWN:
        if not solo:
            return f"no solo run of {tenant} has this workload"
        return "no report measured it against a solo recording"
    column = _SPEEDS[measure]
    named = f"throughput.{tenant}.{measure}" if measure != "launches" else "traced launches"
    if not _values(shared, column):
        return f"no shared run has {named}"
    if not solo:
        return f"no solo run of {tenant} has this workload"
    if not _values(solo, column):
        return f"no solo run has {named}"
    return "solo and shared runs launched different work"


def _values(rows: Sequence[Observation], column: str) -> list[float]:
    found = (getattr(row, column) for row in rows)
    return [float(value) for value in found if value is not None and value > 0]


def mean_ratio(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Geometric mean of ratios, one from each run, with the 95 % interval of Student's t of their logarithms.

    Examples
    --------
    >>> value, low, high = mean_ratio([1.0, 2.0, 4.0])
    >>> round(value, 6), round(low, 3), round(high, 2)
    (2.0, 0.357, 11.19)
    """
    logs = [math.log(value) for value in values]
    middle = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(middle), None, None
    half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def ratio_of_means(above: Sequence[float], below: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Ratio of the geometric means of two sets of runs, with the 95 % interval of Welch's t of their logarithms.

    Examples
    --------
    >>> [round(x, 3) for x in ratio_of_means([4.0, 4.0], [2.0, 2.0])]
    [2.0, 2.0, 2.0]
    """
    first, second = ([math.log(value) for value in values] for values in (above, below))
    middle = statistics.fmean(first) - statistics.fmean(second)
    if len(first) < 2 or len(second) < 2:
        return math.exp(middle), None, None
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    spread = sum(parts)
    if spread == 0:
        return math.exp(middle), math.exp(middle), math.exp(middle)
    freedom = spread**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True))
    half = student(freedom) * math.sqrt(spread)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def student(freedom: float) -> float:
    """The 97.5 % point of Student's t.

    Parameters
    ----------
    freedom
        Degrees of freedom, at least 1; Welch's are no whole number.

    Examples
    --------
    >>> [round(student(n), 3) for n in (1, 2, 4, 30)]
    [12.706, 4.303, 2.776, 2.042]
    """
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        # P(|T| > t) is the regularised incomplete beta function at n / (n + t^2).
        tail = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + middle * middle))
        low, high = (middle, high) if tail > 0.05 else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    whole = d
    for m in range(1, 300):
        for top in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + top * d
            c = 1 + top / c
            d = 1 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            whole *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return front * whole
