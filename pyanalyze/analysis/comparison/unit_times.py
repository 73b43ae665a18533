"""How long the units of work of a tenant took: requests, steps, iterations; and how that changed between two runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING, cast

from pyanalyze.analysis.intervals import percentile_ns
from pyanalyze.results.comparison import Change, LongUnit, UnitChange, UnitsCompared
from pyanalyze.results.work import UnitLengths, UnitTimes
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import ENOUGH_FOR_TAIL, ENOUGH_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.results.work import UnitSource, Work

__all__ = ["T95", "long_unit", "unit_changes", "with_unit_times"]

#: Names of units that are kept of a tenant, those that took most time.
_NAMES = 10
#: One-sided error of each end of an interval of 95 %.
_ERROR = 0.025
#: Up to so many values the ranks of an interval are counted out; beyond, the normal distribution gives them.
_COUNTED = 200
#: Two-sided 95 % quantiles of Student's t, by degrees of freedom.
T95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12)


def with_unit_times(works: Mapping[tuple[int, int], Work], units: pl.DataFrame) -> dict[tuple[int, int], Work]:
    """Add to what tenants did how long their units of work took.

    Parameters
    ----------
    works
        As :func:`pyanalyze.analysis.comparison.work.work_of` gives them.
    units
        The table `units`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> with_unit_times(session.analysis.work, session.units)[0, 0].units[0].p50_ns > 0
    True
    """
    import polars as pl

    columns = units.sort("start_ns").select(
        "device_id", "tenant_id", pl.col("source", "name").cast(pl.String), "dur_ns", "others_ns"
    )
    tenants = Counter(device for device, _ in works)
    found: dict[tuple[int, int], list[UnitTimes]] = {}
    for (device, tenant, source, name), rows in columns.group_by(
        "device_id", "tenant_id", "source", "name", maintain_order=True
    ):
        if rows.height >= ENOUGH_UNITS and name is not None:
            key = int(str(device)), int(str(tenant))
            one = UnitTimes(**_lengths(cast("UnitSource", source), str(name), rows).model_dump())
            if tenants[key[0]] > 1:
                co_ran = _co_ran(rows)
                enough = co_ran.height >= ENOUGH_UNITS
                one = one.model_copy(
                    update={
                        "co_ran_count": co_ran.height,
                        "co_ran": _lengths(one.source, str(name), co_ran) if enough else None,
                    }
                )
            found.setdefault(key, []).append(one)
    return {
        key: work.model_copy(
            update={"units": sorted(found.get(key, []), key=lambda one: (-one.mean_ns * one.count, one.name))[:_NAMES]}
        )
        for key, work in works.items()
    }


def _lengths(source: UnitSource, name: str, units: pl.DataFrame) -> UnitLengths:
    lengths = units["dur_ns"].sort().to_list()
    n = len(lengths)
    mean = math.fsum(lengths) / n
    rank = _rank(n)
    return UnitLengths(
        name=visible(name, 120),
        source=source,
        count=n,
        mean_ns=mean,
        sd_ns=math.sqrt(math.fsum((ns - mean) ** 2 for ns in lengths) / (n - 1)),
        p50_ns=round(statistics.median(lengths)),
        p50_low_ns=None if rank is None else lengths[rank],
        p50_high_ns=None if rank is None else lengths[n - 1 - rank],
        p99_ns=percentile_ns(lengths, 0.99) if n >= ENOUGH_FOR_TAIL else None,
        longest_ns=lengths[-1],
    )


def _co_ran(units: pl.DataFrame) -> pl.DataFrame:
    """Units of one name, in order, without those of times in which no other tenant had work on the device.

    One that met nobody's work by chance is no such time: the shortest would be left out, and the rest be too long.
    """
    import polars as pl

    solo = pl.col("others_ns") == 0
    return units.filter(~solo | (pl.len().over(solo.rle_id()) < ENOUGH_UNITS))


def _rank(n: int) -> int | None:
    """Place of the value that bounds the median of so many from below; None: of so few none does.

    The interval between order statistics holds whatever the distribution is: units that wait for a time slice have two
    peaks. As many values are on the other side of the median as heads in as many throws of a coin.
    """
    if n > _COUNTED:
        return math.floor((n - 1.96 * math.sqrt(n)) / 2) - 1
    below, rank = 0.5**n, 0
    while below <= _ERROR:
        rank += 1
        below += math.comb(n, rank) * 0.5**n
    return rank - 1 if rank else None


def unit_changes(a: Work, b: Work, floor: float) -> list[UnitChange]:
    """Compare the units of work that both runs have, by name.

    Parameters
    ----------
    a, b
        What a tenant did in each.
    floor
        Relative changes below it are not told from noise.

    Returns
    -------
    list of UnitChange
        Those that took most time in A first.
    """
    theirs = {(one.source, one.name): one for one in b.units}
    pairs = ((one, theirs[one.source, one.name]) for one in a.units if (one.source, one.name) in theirs)
    return [
        UnitChange(
            **_compared(one, other, floor).model_dump(),
            co_ran_count_a=one.co_ran_count,
            co_ran_count_b=other.co_ran_count,
            co_ran=None if one.co_ran is None or other.co_ran is None else _compared(one.co_ran, other.co_ran, floor),
        )
        for one, other in pairs
    ]


def _compared(a: UnitLengths, b: UnitLengths, floor: float) -> UnitsCompared:
    return UnitsCompared(
        name=a.name,
        source=a.source,
        count_a=a.count,
        count_b=b.count,
        p50_a_ns=a.p50_ns,
        p50_b_ns=b.p50_ns,
        mean_a_ns=a.mean_ns,
        mean_b_ns=b.mean_ns,
        p99_a_ns=a.p99_ns,
        p99_b_ns=b.p99_ns,
        longest_a_ns=a.longest_ns,
        longest_b_ns=b.longest_ns,
        p50_change=_of_p50(a, b, floor),
        mean_change=_of_mean(a, b, floor),
    )


def _t95(n: int) -> float:
    """Give the two-sided 95 % quantile of Student's t for the mean of n values.

    Examples
    --------
    >>> _t95(2), _t95(6), round(_t95(61), 2), round(_t95(10_000), 2)
    (12.71, 2.571, 2.0, 1.96)
    """
    # Beyond the table within 0.01 of the quantile.
    return T95[n - 2] if n - 2 < len(T95) else 1.96 + 2.4 / (n - 1)


def _of_p50(a: UnitLengths, b: UnitLengths, floor: float) -> Change | None:
    """The change of the median, from the bounds of both on a logarithmic scale (Zou and Donner, 2008)."""
    if not all((a.p50_ns, b.p50_ns, a.p50_low_ns, b.p50_low_ns, a.p50_high_ns, b.p50_high_ns)):
        return None
    (low_a, mid_a, high_a), (low_b, mid_b, high_b) = (
        tuple(math.log(ns or 1) for ns in (one.p50_low_ns, one.p50_ns, one.p50_high_ns)) for one in (a, b)
    )
    value = mid_b - mid_a
    low = math.expm1(value - math.hypot(mid_b - low_b, high_a - mid_a))
    high = math.expm1(value + math.hypot(high_b - mid_b, mid_a - low_a))
    return _change(math.expm1(value), low, high, floor, a.count + b.count)


def _of_mean(a: UnitLengths, b: UnitLengths, floor: float) -> Change | None:
    if not a.mean_ns:
        return None
    ratio = b.mean_ns / a.mean_ns
    half = (
        _t95(min(a.count, b.count))
        * math.hypot(a.sd_ns / math.sqrt(a.count) * ratio, b.sd_ns / math.sqrt(b.count))
        / a.mean_ns
    )
    return _change(ratio - 1, ratio - 1 - half, ratio - 1 + half, floor, a.count + b.count)


def _change(value: float, low: float, high: float, floor: float, n: int) -> Change:
    low, high = max(min(low, value - floor), -1.0), max(high, value + floor)
    return Change(value=value, low=low, high=high, n=n, significant=low > 0 or high < 0)


def long_unit(changes: Sequence[UnitChange], units: float, change_ns: float) -> LongUnit | None:
    """Find a single unit of work that makes up at least half of a change of the elapsed time.

    Parameters
    ----------
    changes
        Units of both runs.
    units, change_ns
        Work of B for each of A, and the change of the time of as much work as A did.

    Examples
    --------
    >>> long_unit([], 1.0, 5.0) is None
    True
    """
    shorter = change_ns < 0
    candidates = [
        LongUnit(
            name=one.name,
            run="A" if shorter else "B",
            longest_ns=one.longest_a_ns if shorter else one.longest_b_ns,
            p50_ns=one.p50_a_ns if shorter else one.p50_b_ns,
        )
        for one in changes
    ]
    scale = 1.0 if shorter else units
    long = [one for one in candidates if (one.longest_ns - one.p50_ns) / scale >= abs(change_ns) / 2 > 0]
    return max(long, key=lambda one: one.longest_ns - one.p50_ns, default=None)
