"""GPU metrics of a device on which nothing was traced: means of the counters, and of what time they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.results.occupancy import GpuMetrics, TenantCounters
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


def gpu_metrics_of(tables: TableSet, device_id: int, group: frozenset[int] = frozenset()) -> GpuMetrics | None:
    """Sum up the GPU metrics of a device.

    Parameters
    ----------
    tables, device_id
        The device.
    group
        What :func:`~pyanalyze.analysis.residency.mps_group` found: records name any of its clients for all, so that
        the first stands for the group.

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
    held = _resident_alone(tables, device_id, group)
    parts, owned, first, last = [], [], None, None
    for piece in tables.batches("gpu_metrics", "device_id", "time_ns", "metric", "unit", "value"):
        mine = piece.filter(here)
        if mine.is_empty():
            continue
        first = mine["time_ns"][0] if first is None else first
        resident = _resident_since(mine["time_ns"], first if last is None else last, held)
        last = mine["time_ns"][-1]
        # A sample is the mean since the one before: the first is of no known time.
        values = mine.filter(percent & (pl.col("time_ns") > first) & pl.col("value").is_finite())
        value, metric = pl.col("value"), pl.col("metric").cast(pl.String)
        parts.append(
            values.group_by(metric, maintain_order=True).agg(
                n=pl.len(), sum=value.sum(), low=value.min(), high=value.max()
            )
        )
        own = values.join(resident, on="time_ns").group_by("tenant_id", metric, maintain_order=True)
        owned.append(own.agg(n=pl.len(), sum=value.sum()))
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
        tenants=_by_tenant(pl.concat(owned)),
    )


def _resident_alone(tables: TableSet, device_id: int, group: frozenset[int]) -> pl.DataFrame:
    """Recorded residency intervals in which nobody else was resident, in order."""
    columns = ("start_ns", "end_ns", "tenant_id")
    of_device = tables.residency.filter(pl.col("device_id") == device_id).select(columns).sort("start_ns")
    if group:
        of_device = of_device.with_columns(pl.col("tenant_id").replace(sorted(group), min(group)))
    before, after = pl.col("end_ns").cum_max().shift(1), pl.col("start_ns").shift(-1)
    return of_device.filter(
        (pl.col("start_ns") >= before).fill_null(value=True), (pl.col("end_ns") <= after).fill_null(value=True)
    ).drop_nulls("tenant_id")


def _resident_since(times: pl.Series, before_ns: int, held: pl.DataFrame) -> pl.DataFrame:
    """Samples during which one tenant was resident, from the sample before to this one, and the tenant."""
    moments = times.unique().sort().to_frame()
    moments = moments.with_columns(since_ns=pl.col("time_ns").shift(1).fill_null(before_ns))
    found = moments.join_asof(held, left_on="since_ns", right_on="start_ns", strategy="backward")
    return found.filter(pl.col("end_ns") >= pl.col("time_ns")).select("time_ns", "tenant_id")


def _by_tenant(owned: pl.DataFrame) -> list[TenantCounters]:
    sums = owned.group_by("tenant_id", "metric", maintain_order=True).agg(pl.col("n", "sum").sum())
    found: dict[int, dict[str, tuple[int, float]]] = {}
    for tenant, metric, n, total in sums.iter_rows():
        found.setdefault(tenant, {})[metric] = n, total / n / 100
    return [
        TenantCounters(
            tenant_id=tenant,
            n=max(n for n, _ in means.values()),
            means={metric: mean for metric, (_, mean) in means.items()},
        )
        for tenant, means in sorted(found.items())
    ]


def _rank(name: str) -> int:
    starts = [place for place, start in enumerate(_FIRST) if name.lower().startswith(start)]
    return starts[0] if starts else len(_FIRST)
