"""Is a tenant slower under MPS than time-sliced, beside a given other one?  From pairs that were measured.

Which of the two is better for a tenant depends on the kernels of the other one: blocks that stay long on the SMs make
the others wait under MPS, a time slice ends them. A capture of that tenant says most, through the replay. Without one
there are three states of knowledge:

- the run under MPS was measured: what time-slicing would do is then forecast, which hardly depends on the other tenant;
- the other tenant was measured beside a third one, in both modes: it is taken to do the same here;
- neither: the spread over all measured pairs.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.fitted import PAIRS, PairConstants
from pyanalyze.results.replicas import Knowledge, SignForecast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyanalyze.results.replicas import Quantity, Sign

__all__ = ["Pair", "forecast_sign"]

#: Probability from which a sign is stated; below it cannot be told.
CONFIDENT = 0.95


@dataclass(frozen=True)
class Pair:
    """A tenant beside another one: slowdowns of the first, measured.

    Attributes
    ----------
    tenant, other
        Names of the two programs, for which equal names mean the same program with the same load.
    quantity
        What was measured: mean latency, or its 99th percentile.
    time_sliced, mps
        Shared over solo; None: not measured.
    """

    tenant: str
    other: str
    quantity: Quantity
    time_sliced: float | None = None
    mps: float | None = None

    @property
    def effect(self) -> float | None:
        """Log of the time under MPS over the time under time-slicing."""
        return None if self.time_sliced is None or self.mps is None else math.log(self.mps / self.time_sliced)


def forecast_sign(pair: Pair, measured: Iterable[Pair], constants: PairConstants = PAIRS) -> SignForecast:
    """Forecast the time under MPS over the time under time-slicing.

    Parameters
    ----------
    pair
        What is known of the pair in question: its run under MPS, or neither; a run under both is no forecast.
    measured
        Pairs that were measured in both modes; those of another quantity, and the pair itself, are left out.
    constants
        What is taken where those are too few.

    Returns
    -------
    SignForecast
        With the number of measured pairs behind it.

    Examples
    --------
    The same other tenant made another one 1.6 times as slow under MPS as under time-slicing:

    >>> sign = forecast_sign(Pair("web", "train", "mean"), [Pair("api", "train", "mean", 2.5, 4.0)])
    >>> sign.likely, sign.n, round(sign.ratio, 2)
    ('mps-slower', 1, 1.6)
    """
    quantity = pair.quantity
    known = [
        one
        for one in measured
        if one.effect is not None and one.quantity == quantity and (one.tenant, one.other) != (pair.tenant, pair.other)
    ]
    if pair.mps is not None:
        logs = [math.log(one.time_sliced) for one in known if one.time_sliced is not None]
        middle, spread, freedom = _usual(logs, *constants.time_slicing[quantity])
        return _sign(math.log(pair.mps) - middle, spread, freedom, len(logs), Knowledge.MPS_RUN, constants, quantity)
    beside = [one.effect for one in known if one.other == pair.other and one.effect is not None]
    if beside:
        spread, freedom = _between(known) or constants.same_other[quantity]
        # What other tenants vary by comes on top of what is not known of their mean.
        spread *= math.sqrt(1 + 1 / len(beside))
        return _sign(
            statistics.fmean(beside), spread, freedom, len(beside), Knowledge.OTHER_TENANT, constants, quantity
        )
    effects = [one.effect for one in known if one.effect is not None]
    middle, spread, freedom = _usual(effects, *constants.any_pair[quantity])
    return _sign(middle, spread, freedom, len(effects), Knowledge.ANY_PAIR, constants, quantity)


def _usual(logs: Sequence[float], middle: float, spread: float, freedom: int) -> tuple[float, float, int]:
    """Mean, spread of one more and degrees of freedom; the constants where there are fewer pairs than behind those."""
    if len(logs) - 1 < freedom:
        return middle, spread, freedom
    return (
        statistics.fmean(logs),
        max(statistics.stdev(logs), spread) * math.sqrt(1 + 1 / len(logs)),
        len(logs) - 1,
    )


def _between(known: Sequence[Pair]) -> tuple[float, int] | None:
    """How much tenants beside the same other one differ (log), with as many degrees of freedom as tenants less one.

    Pairs with one other tenant share what is special about their tenants, so it is tenants that count.
    """
    by_other: dict[str, list[float]] = {}
    for one in known:
        if one.effect is not None:
            by_other.setdefault(one.other, []).append(one.effect)
    groups = [group for group in by_other.values() if len(group) > 1]
    if not groups:
        return None
    count = sum(len(group) - 1 for group in groups)
    squares = sum(sum((x - statistics.fmean(group)) ** 2 for x in group) for group in groups)
    tenants = len({one.tenant for one in known})
    return math.sqrt(squares / count), max(1, tenants - 1)


def _sign(
    effect: float, spread: float, freedom: int, n: int, known: Knowledge, constants: PairConstants, quantity: Quantity
) -> SignForecast:
    wide = _t_quantile(freedom) * spread
    certain = _t_below(abs(effect) / spread, freedom)
    likely: Sign = "mps-slower" if effect > 0 else "mps-faster"
    return SignForecast(
        quantity=quantity,
        ratio=math.exp(effect),
        low=math.exp(max(effect - wide, -_MOST)),
        high=math.exp(min(effect + wide, _MOST)),
        likely=likely,
        confidence=certain,
        sign=likely if certain >= CONFIDENT else "cannot-tell",
        known=known,
        n=n,
        checked=constants.checked,
    )


#: Log beyond which an interval says nothing.
_MOST = 5.0


def _t_below(value: float, freedom: int) -> float:
    """Student's distribution: probability of less than `value` (0 or more), by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    # Of x = tan(angle), so that the tail has an end.
    end, steps = math.atan(value), 200

    def density(angle: float) -> float:
        x = math.tan(angle)
        return scale * math.pow(1 + x * x / freedom, -(freedom + 1) / 2) * (1 + x * x)

    width = end / steps
    inner = sum((4 if n % 2 else 2) * density(n * width) for n in range(1, steps))
    return 0.5 + width / 3 * (density(0.0) + inner + density(end)) if end > 0 else 0.5


def _t_quantile(freedom: int) -> float:
    """Value that a part of `CONFIDENT` is below."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_below(middle, freedom) < CONFIDENT else (low, middle)
    return high
