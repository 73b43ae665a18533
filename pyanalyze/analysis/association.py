"""Which tenant's activity goes with the victim's latency? An association of samples: it names no cause.

Latency and activity are averaged in bins of the samples' interval. The effect is the mean latency while a tenant is
active over that while it is not, at the lag at which both series go together best; its interval is that of a
moving-block bootstrap, as neighbouring bins are not independent. Whether there is an association at all is decided by
shifting the activity around in time: a shifted series has the same autocorrelation and no relation to the latency.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.results.association import Association
from pyanalyze.results.labels import listed_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.results.listed import ListedTenant
    from pyanalyze.tables.tableset import TableSet

__all__ = ["associations"]

#: Fewer bins than this say nothing; more are averaged into this many.
MIN_BINS, MAX_BINS = 20, 300
#: Lags that are tried, in bins, and as a part of all of them.
MAX_LAG, LAG_PART = 10, 0.1
RESAMPLES, SHIFTS = 400, 200
#: Share of random relations that pass for an association.
LEVEL = 0.05
#: Utilisation from which a tenant counts as active, as a part of its own peak.
ACTIVE_PART = 0.2
_SEED = 20260620


def associations(tables: TableSet, device_id: int, listed: Sequence[ListedTenant]) -> list[Association]:
    """Relate given latencies to the sampled activity of each tenant on a device.

    Parameters
    ----------
    tables
        With latencies beside the samples (`TableSet.latencies`).
    device_id, listed
        The device and the tenants listed on it.

    Returns
    -------
    list of Association
        One per tenant whose activity was sampled by itself, largest correlation first; empty without latencies.

    Examples
    --------
    >>> import pyanalyze
    >>> associations(pyanalyze.load(capture).tables, 0, [])
    []
    """
    if tables.latencies is None or tables.latencies.is_empty():
        return []
    rows = (
        tables.samples_of(device_id)
        .filter(pl.col("time_ns").is_not_null())
        .with_columns(pl.col("metric").cast(pl.String))
    )
    own = rows.filter((pl.col("metric") == "process_sm_pct") & pl.col("pid").is_not_null())
    moments = own["time_ns"].unique().sort().to_list()
    found = []
    labels = listed_labels(listed)
    for (victim,), of in tables.latencies.group_by("tenant", maintain_order=True):
        for place, tenant in enumerate(listed):
            # A tenant's own activity goes with its latency in any case.
            if tenant.pid is None or not tenant.computes or victim in (tenant.name, labels[place], str(tenant.pid)):
                continue
            mine = dict(own.filter(pl.col("pid") == tenant.pid).select("time_ns", "value").iter_rows())
            if any(mine.values()):
                one = _relate(of["time_ns"].to_list(), of["latency_ns"].to_list(), moments, mine)
                if one is not None:
                    found.append(one.model_copy(update={"victim": victim, "tenant": labels[place]}))
    return sorted(found, key=lambda one: -abs(one.correlation))


def _relate(
    times: Sequence[int], latencies: Sequence[int], moments: Sequence[int], values: Mapping[int, float | None]
) -> Association | None:
    binned = _binned(times, latencies, moments, values)
    if binned is None:
        return None
    width, pairs = binned
    latency, activity = [one for one, _ in pairs], [one for _, one in pairs]
    peak = max(activity)
    lags = range(min(MAX_LAG, int(len(pairs) * LAG_PART)) + 1)
    lag, correlation = _best(latency, activity, lags)
    effect = _effect(latency, activity, lag, peak)
    if effect is None:
        return None
    chance = random.Random(_SEED)  # noqa: S311  # a bootstrap, not a secret
    low, high = _interval(latency, activity, lag, peak, chance)
    # Shifts by less than the lags tried are near repetitions of the series itself.
    least = min(len(lags), len(pairs) // 3)
    shifts = [chance.randrange(least, len(pairs) - least) for _ in range(SHIFTS)]
    above = sum(abs(_best(latency, activity[s:] + activity[:s], lags)[1]) >= abs(correlation) for s in shifts)
    p = (above + 1) / (SHIFTS + 1)
    return Association(
        victim=None,
        tenant="",
        effect=effect,
        low=low,
        high=high,
        lag_ns=lag * width,
        correlation=correlation,
        p=p,
        n=len(pairs),
        bin_ns=width,
        associated=p <= LEVEL and (low > 1 or high < 1),
    )


def _binned(
    times: Sequence[int], latencies: Sequence[int], moments: Sequence[int], values: Mapping[int, float | None]
) -> tuple[int, list[tuple[float, float]]] | None:
    """Mean latency and activity in bins where both are known; None where there are too few."""
    if len(moments) < MIN_BINS or not times:
        return None
    start, end = max(times[0], moments[0]), min(times[-1], moments[-1])
    gaps = sorted(b - a for a, b in pairwise(moments))
    width = max(gaps[len(gaps) // 2], (end - start) // MAX_BINS + 1, 1)
    count = (end - start) // width
    if count < MIN_BINS:
        return None
    sums = [[0.0, 0, 0.0, 0] for _ in range(count)]
    for time, value in zip(times, latencies, strict=True):
        if 0 <= (number := (time - start) // width) < count:
            sums[number][0] += value
            sums[number][1] += 1
    half = gaps[len(gaps) // 2] // 2
    for time in moments:
        # A sample is a mean of the time before it. A process that a list lacks at that moment does nothing.
        if 0 <= (number := (time - half - start) // width) < count:
            sums[number][2] += values.get(time) or 0.0
            sums[number][3] += 1
    pairs = [(a / n, b / m) for a, n, b, m in sums if n and m]
    return (width, pairs) if len(pairs) >= MIN_BINS else None


def _best(latency: Sequence[float], activity: Sequence[float], lags: range) -> tuple[int, float]:
    """Lag at which both go together best, and the correlation there; latency follows activity."""
    best = (0, 0.0)
    for lag in lags:
        r = _correlation(latency[lag:], activity[: len(activity) - lag])
        if abs(r) > abs(best[1]) + 1e-12:
            best = (lag, r)
    return best


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    n = len(a)
    mean_a, mean_b = sum(a) / n, sum(b) / n
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    squares = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    # Rounding may pass 1 by some ulps.
    return max(-1.0, min(1.0, both / squares**0.5)) if squares > 0 else 0.0


def _effect(latency: Sequence[float], activity: Sequence[float], lag: int, peak: float) -> float | None:
    """Mean latency while active over that while not; None where it was always one of both."""
    pairs = list(zip(latency[lag:], activity[: len(activity) - lag], strict=True))
    return _ratio(pairs, peak)


def _ratio(pairs: Sequence[tuple[float, float]], peak: float) -> float | None:
    busy = [one for one, use in pairs if use >= ACTIVE_PART * peak]
    idle = [one for one, use in pairs if use < ACTIVE_PART * peak]
    if not busy or not idle or sum(idle) <= 0:
        return None
    return sum(busy) / len(busy) / (sum(idle) / len(idle))


def _interval(
    latency: Sequence[float], activity: Sequence[float], lag: int, peak: float, chance: random.Random
) -> tuple[float, float]:
    """95 % interval of the effect, by resampling blocks of neighbouring bins."""
    pairs = list(zip(latency[lag:], activity[: len(activity) - lag], strict=True))
    n = len(pairs)
    block = max(2, round(n ** (1 / 3)) * 2)
    ratios = []
    for _ in range(RESAMPLES):
        drawn: list[tuple[float, float]] = []
        while len(drawn) < n:
            at = chance.randrange(n)
            drawn += [pairs[(at + k) % n] for k in range(block)]
        if (ratio := _ratio(drawn[:n], peak)) is not None:
            ratios.append(ratio)
    ratios.sort()
    cut = int(0.025 * len(ratios))
    return ratios[cut], ratios[-1 - cut]
