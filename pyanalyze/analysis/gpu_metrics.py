"""GPU metrics of a device on which nothing was traced: means of the counters, and of what time they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.results.occupancy import GpuMetrics
from pyanalyze.results.sampled import SampledCounter

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["gpu_metrics_of"]

#: Units of counters that are a part of what the GPU can do; old exports name none.
_PERCENT = ("Throughput %", "%")
#: Counters of exports without units that are no percentage.
_OTHER = "(?i)frequency|requests"
#: How the counters begin that are shown first.
_FIRST = ("sms active", "sm active", "compute warps in", "sm issue", "tensor active", "dram read", "dram write")


def gpu_metrics_of(tables: TableSet, device_id: int) -> GpuMetrics | None:
    """Sum up the GPU metrics of a device.

    Parameters
    ----------
    tables, device_id
        The device.

    Returns
    -------
    GpuMetrics or None
        Means of the whole recording; None without samples, and for a MIG instance: the counters are the board's.

    Examples
    --------
    >>> import pyanalyze
    >>> gpu_metrics_of(pyanalyze.load(capture).tables, 0) is None
    True
    """
    (device,) = tables.rows_of("devices", device_id)
    if device["mig_profile"] is not None:
        return None
    # A GPU alone in its session is meant even where an export numbers it otherwise.
    here = pl.lit(value=True) if tables.devices.height == 1 else pl.col("device_id") == device_id
    unit = pl.col("unit").cast(pl.String)
    percent = unit.is_in(_PERCENT) | (unit.is_null() & ~pl.col("metric").cast(pl.String).str.contains(_OTHER))
    parts, first, last = [], None, None
    for piece in tables.batches("gpu_metrics", "device_id", "time_ns", "metric", "unit", "value"):
        mine = piece.filter(here)
        if mine.is_empty():
            continue
        first, last = mine["time_ns"][0] if first is None else first, mine["time_ns"][-1]
        # A sample is the mean since the one before: the first is of no known time.
        values = mine.filter(percent & (pl.col("time_ns") > first) & pl.col("value").is_finite())
        value = pl.col("value")
        parts.append(
            values.group_by(pl.col("metric").cast(pl.String), maintain_order=True).agg(
                n=pl.len(), sum=value.sum(), low=value.min(), high=value.max()
            )
        )
    if first is None or last is None:
        return None
    sums = (
        pl.concat(parts)
        .group_by("metric", maintain_order=True)
        .agg(pl.col("n", "sum").sum(), pl.col("low").min(), pl.col("high").max())
    )
    counters = [
        SampledCounter(name=name, unit="fraction", mean=total / n / 100, low=low / 100, high=high / 100, n=n)
        for name, n, total, low, high in sums.iter_rows()
    ]
    if not counters:
        return None
    return GpuMetrics(
        n=max(counter.n for counter in counters),
        start_ns=first,
        end_ns=last,
        counters=sorted(counters, key=lambda counter: _rank(counter.name)),
    )


def _rank(name: str) -> int:
    starts = [place for place, start in enumerate(_FIRST) if name.lower().startswith(start)]
    return starts[0] if starts else len(_FIRST)
