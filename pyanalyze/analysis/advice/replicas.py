"""How many copies on one GPU, and shared in which way?  One function for every kind of demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from pyanalyze.analysis.advice.copies import Recorded, advise_copies
from pyanalyze.analysis.advice.curve import Measured, Place, fit
from pyanalyze.analysis.advice.fitted import CURVE, CurveConstants
from pyanalyze.analysis.advice.pairs import Pair, forecast_sign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.results.replicas import Objective, ReplicaAdvice, SignForecast, ThroughputForecast

__all__ = ["forecast_replicas"]


@overload
def forecast_replicas(
    demand: Measured, asked: Sequence[Place], constants: CurveConstants = CURVE
) -> tuple[ThroughputForecast, ...]: ...


@overload
def forecast_replicas(demand: Pair, asked: Sequence[Pair]) -> SignForecast: ...


@overload
def forecast_replicas(
    demand: Recorded,
    asked: Sequence[Mapping[str, int]],
    *,
    objective: Objective = "throughput",
    slo_p99_ns: int | None = None,
    threads: int = 0,
) -> ReplicaAdvice: ...


def forecast_replicas(
    demand: Measured | Pair | Recorded,
    asked: Sequence[Place] | Sequence[Pair] | Sequence[Mapping[str, int]],
    constants: CurveConstants = CURVE,
    *,
    objective: Objective = "throughput",
    slo_p99_ns: int | None = None,
    threads: int = 0,
) -> tuple[ThroughputForecast, ...] | SignForecast | ReplicaAdvice:
    """Forecast what a demand would get under other sharing configurations.

    Parameters
    ----------
    demand
        What is known: a capture of it, throughput that was measured, or a pair of tenants of which one run was
        measured.
    asked
        Of a capture: copies by name of the tenant. Of throughput: places (instance, batch, copies). Of a pair: other
        pairs, measured in both modes.
    constants
        Constants of the throughput curve.
    objective, slo_p99_ns, threads
        Of a capture: see :func:`pyanalyze.analysis.advice.copies.advise_copies`.

    Returns
    -------
    ReplicaAdvice, tuple of ThroughputForecast, or SignForecast
        With a 95 % interval that contains model error, and with what forecasts of this kind were checked against.

    Raises
    ------
    pyanalyze.errors.UsageError
        If too little was measured, or something is asked for that is not there.

    Examples
    --------
    >>> solo = {Place(1, 1, b): b / (0.005 + 0.002 * b) for b in (1, 4, 16)}
    >>> (two,) = forecast_replicas(Measured(solo), [Place(1, 1, 4, 2)])
    >>> two.throughput.low < two.throughput.value < two.throughput.high
    True
    """
    if isinstance(demand, Recorded):
        counts = [one for one in asked if not isinstance(one, (Place, Pair))]
        return advise_copies(demand, counts, objective=objective, slo_p99_ns=slo_p99_ns, threads=threads)
    if isinstance(demand, Measured):
        curve = fit(demand, constants)
        return tuple(curve.forecast(place) for place in asked if isinstance(place, Place))
    return forecast_sign(demand, [pair for pair in asked if isinstance(pair, Pair)])
