"""How does throughput grow with copies, batch and instance size?  A curve through measured throughput.

For where only throughput was measured: no launches, no counters. One batch of `b` work items takes, with `n` copies
in an instance of `s` slices::

    host(b)   = h + k b                        the host's own time: every copy has its own host
    device(b) = c + d b + n (a + w b) / s      what copies overlap, and what they wait for each other for
    time      = (host^p + device^p)^(1/p)      the slower of the two, as launches run ahead of the device

The device's time that shrinks with more slices is limited by SMs (or bandwidth), and copies queue for it; what does
not shrink is latency (of small kernels, of copies), and other copies run meanwhile. That is how one copy in instances
of several sizes says what several copies in one do, and the other way round. `s` weights compute and memory slices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.fitted import CURVE, CurveConstants
from pyanalyze.errors import UsageError
from pyanalyze.results.replicas import Estimate, ThroughputForecast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Curve", "Measured", "Place", "fit"]

#: Measurements from which a curve can be fitted.
FEWEST = 3
#: Pull of a parameter to its starting value (log units per residual): what the data does not determine stays there.
PULL = 0.03
#: Residuals above this are outliers and pull less.
OUTLIER = 0.1
_ROUNDS = 40
_STEP = 1e-5


@dataclass(frozen=True)
class Place:
    """Equal copies in an instance.

    Attributes
    ----------
    compute_slices, memory_slices
        Of the instance.
    batch
        Work items that a copy handles at once.
    copies
        How many, as clients of one MPS server.
    """

    compute_slices: int
    memory_slices: int
    batch: int = 1
    copies: int = 1

    @property
    def solo(self) -> Place:
        """The same with one copy."""
        return Place(self.compute_slices, self.memory_slices, self.batch)


@dataclass(frozen=True)
class Measured:
    """A demand of which only throughput is known.

    Attributes
    ----------
    per_copy
        Work items per second of one copy, by place.
    """

    per_copy: Mapping[Place, float]


@dataclass(frozen=True)
class Curve:
    """A fitted curve.

    Attributes
    ----------
    parameters
        h, k, c, d, a and w of the module's text, seconds; for one slice.
    departures
        By batch size: log of the device's time over the line.
    measured
        What it was fitted to.
    constants
        Constants of the fit.
    """

    parameters: tuple[float, ...]
    departures: Mapping[int, float]
    measured: Measured
    constants: CurveConstants

    def seconds(self, place: Place) -> float:
        """Time of one batch of one copy."""
        return _seconds(self.parameters, self.departures.get(place.batch, 0.0), place, self.constants)

    def forecast(self, place: Place) -> ThroughputForecast:
        """Forecast throughput at a place.

        Parameters
        ----------
        place
            Where, and how many copies.

        Returns
        -------
        ThroughputForecast
            Work items per second. Where solo throughput was measured at the same instance and batch, the curve is
            scaled to it.

        Examples
        --------
        Half of a batch's time is the device's at one slice. Two copies then nearly double throughput.

        >>> solo = {Place(s, s, b): b / (0.01 + 0.0012 * b / s) for s in (1, 2, 4) for b in (1, 2, 4, 8)}
        >>> two = fit(Measured(solo)).forecast(Place(1, 1, 8, 2))
        >>> 1.3 < two.throughput.value / solo[Place(1, 1, 8)] < 2.0, two.measured
        (True, True)
        """
        per_copy = place.batch / self.seconds(place)
        solo = self.measured.per_copy.get(place.solo)
        anchored = solo is not None
        if solo is not None:
            per_copy *= solo * self.seconds(place.solo) / place.batch
        width = math.exp(self._width(place.copies, anchored=anchored))
        one = Estimate(value=per_copy, low=per_copy / width, high=per_copy * width)
        return ThroughputForecast(
            compute_slices=place.compute_slices,
            memory_slices=place.memory_slices,
            batch=place.batch,
            copies=place.copies,
            throughput=one.times(place.copies),
            per_copy=one,
            measured=anchored,
            checked=self.constants.checked[anchored],
        )

    def _width(self, copies: int, *, anchored: bool) -> float:
        widths = {n: width for (kind, n), width in self.constants.widths.items() if kind == anchored}
        if copies in widths:
            return widths[copies]
        # The measured value itself: what a second measurement differs by is not known, so no less than for two copies.
        least, most = min(widths), max(widths)
        if copies < least:
            return widths[least]
        known = max(n for n in widths if n <= copies)
        return widths[known] if known < most else widths[most] * math.log(copies + 1) / math.log(most + 1)


def _seconds(parameters: Sequence[float], departure: float, place: Place, constants: CurveConstants) -> float:
    h, k, c, d, a, w = parameters
    slices = place.compute_slices ** (1 - constants.memory_part) * place.memory_slices**constants.memory_part
    host = h + k * place.batch
    device = (c + d * place.batch + place.copies * (a + w * place.batch) / slices) * math.exp(departure)
    larger, smaller = max(host, device), min(host, device)
    return float(larger * (1 + (smaller / larger) ** constants.sharpness) ** (1 / constants.sharpness))


def fit(measured: Measured, constants: CurveConstants = CURVE) -> Curve:
    """Fit the curve to measured throughput.

    Parameters
    ----------
    measured
        At least three places, at least one with a single copy.
    constants
        Constants of the fit.

    Returns
    -------
    Curve
        With the parameters that leave the least error; those that the measurements do not determine stay near their
        starting values.

    Raises
    ------
    pyanalyze.errors.UsageError
        If too little was measured, or a throughput is not above 0.

    Examples
    --------
    >>> curve = fit(Measured({Place(1, 1, b): b / (0.005 + 0.002 * b) for b in (1, 4, 16)}))
    >>> 0.9 < curve.seconds(Place(1, 1, 8)) / 0.021 < 1.1
    True
    """
    places = sorted(measured.per_copy, key=lambda p: (p.compute_slices, p.memory_slices, p.batch, p.copies))
    solo = [place for place in places if place.copies == 1]
    if len(places) < FEWEST or not solo:
        raise UsageError(
            f"{len(places)} measurements, {len(solo)} of them of one copy: give {FEWEST} or more, one of one copy"
        )
    if any(not 0 < value < math.inf for value in measured.per_copy.values()):
        raise UsageError("a throughput is not above 0: leave out what did not run")
    seconds = [place.batch / measured.per_copy[place] for place in places]
    by_place = dict(zip(places, seconds, strict=True))
    # Start: all of the largest batch's time is the device's, most of the fastest batch's time is the host's.
    large = max(solo, key=lambda p: (p.batch, -p.compute_slices))
    fastest = min(by_place[place] for place in solo)
    work = by_place[large] * large.compute_slices / large.batch
    start = [math.log(x) for x in (0.8 * fastest, 0.02 * work, 0.1 * fastest, 0.05 * work, 0.5 * work, 0.8 * work)]
    batches = sorted({place.batch for place in places})
    start += [0.0] * len(batches)
    at = [batches.index(place.batch) + 6 for place in places]
    # A departure from the line is as unlikely as its spread says; other parameters are hardly held.
    pulls = [PULL] * 6 + [PULL / constants.batch_spread * 1.7] * len(batches)

    def residuals(x: Sequence[float]) -> list[float]:
        parameters = [math.exp(value) for value in x[:6]]
        found = [
            math.log(_seconds(parameters, x[n], place, constants) / took)
            for place, took, n in zip(places, seconds, at, strict=True)
        ]
        # Outliers pull less: the square root of soft L1's weight.
        found = [r / (1 + (r / OUTLIER) ** 2) ** 0.25 for r in found]
        return found + [pull * (value - begin) for pull, value, begin in zip(pulls, x, start, strict=True)]

    x = _least_squares(residuals, start)
    parameters = tuple(math.exp(value) for value in x[:6])
    return Curve(parameters, dict(zip(batches, x[6:], strict=True)), measured, constants)


def _least_squares(residuals: Callable[[Sequence[float]], list[float]], start: Sequence[float]) -> list[float]:
    """Levenberg-Marquardt with numeric derivatives: a few dozen parameters at most, so no library is needed."""
    x = list(start)
    now = residuals(x)
    cost, damping = sum(r * r for r in now), 1e-2
    for _ in range(_ROUNDS):
        columns = []
        for n in range(len(x)):
            moved = [*x[:n], x[n] + _STEP, *x[n + 1 :]]
            columns.append([(a - b) / _STEP for a, b in zip(residuals(moved), now, strict=True)])
        normal = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in columns] for one in columns]
        slope = [sum(a * b for a, b in zip(column, now, strict=True)) for column in columns]
        better = False
        for _ in range(8):
            damped = [
                [value * (1 + damping) + 1e-12 if i == j else value for j, value in enumerate(row)]
                for i, row in enumerate(normal)
            ]
            step = _solved(damped, slope)
            # Logs of times: no step by more than a factor of e.
            tried = [value - max(-1.0, min(1.0, s)) for value, s in zip(x, step, strict=True)]
            then = residuals(tried)
            new = sum(r * r for r in then)
            if new < cost:
                better = cost - new > 1e-9 * cost
                x, now, cost, damping = tried, then, new, max(damping / 5, 1e-9)
                break
            damping *= 4
        if not better:
            break
    return x


def _solved(matrix: list[list[float]], right: Sequence[float]) -> list[float]:
    """Solve a positive definite system by Cholesky's method."""
    n = len(right)
    lower = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = math.sqrt(max(rest, 1e-18)) if i == j else rest / lower[j][j]
    y: list[float] = []
    for i in range(n):
        y.append((right[i] - sum(lower[i][k] * y[k] for k in range(i))) / lower[i][i])
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (y[i] - sum(lower[k][i] * x[k] for k in range(i + 1, n))) / lower[i][i]
    return x
