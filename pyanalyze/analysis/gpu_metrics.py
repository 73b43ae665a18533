"""GPU metrics of a device: means of the counters, of tenants and of kernels, and of what time they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.results.occupancy import GpuMetrics, KernelCounters, TenantCounters
from pyanalyze.results.sampled import SampledCounter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyanalyze.tables.tableset import TableSet

__all__ = ["gpu_metrics_of", "kernel_counters"]

#: Units of counters that are a part of what the GPU can do; old exports name none.
_PERCENT = ("Throughput %", "%")
#: Counters of exports without units that are no percentage.
_OTHER = "(?i)frequency|requests"
#: Samples, in a kernel or of a tenant alone, from which on their mean is worth saying.
ENOUGH_SAMPLES = 10
#: Steps of the course of a launch, each of 2 %.
_STEPS = 50
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
    held = _resident_alone(tables, device_id, group)
    value, metric = pl.col("value"), pl.col("metric").cast(pl.String)
    parts, owned, first, last = [], [], None, None
    for piece in _samples(tables, device_id):
        first = piece["time_ns"][0] if first is None else first
        last = piece["until_ns"][-1]
        parts.append(
            piece.group_by(metric, maintain_order=True).agg(
                n=pl.len(), sum=value.sum(), low=value.min(), high=value.max()
            )
        )
        own = piece.join(_within(piece, held), on="time_ns").group_by("tenant_id", metric, maintain_order=True)
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


def kernel_counters(tables: TableSet, device_id: int) -> list[KernelCounters]:
    """Sum up the GPU metrics of the time in which one kernel was in flight and no other, by launch configuration.

    Parameters
    ----------
    tables, device_id
        A device that one traced process had: kernels of others would be counted with those in flight.

    Returns
    -------
    list of KernelCounters
        Those with :data:`ENOUGH_SAMPLES` samples, those with most of them first. A sample is of a kernel if one
        launch was in flight all the time until the next sample, which kernels shorter than that never are.

    Examples
    --------
    >>> import pyanalyze
    >>> kernel_counters(pyanalyze.load(capture).tables, 0)
    []
    """
    (device,) = tables.rows_of("devices", device_id)
    if device["mig_profile"] is not None or not tables.row_count("gpu_metrics"):
        return []
    # When which kernel of a graph that was traced whole ran is not known.
    if not tables.of_device("graph_launches", device_id).is_empty():
        return []
    shape = [f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"]
    columns = ("device_id", "name", "start_ns", "end_ns", *shape)
    kernels = tables.columns("kernels", *columns).filter(pl.col("device_id") == device_id).sort("start_ns")
    # Of a launch, the time without any other in flight.
    before, after = pl.col("end_ns").cum_max().shift(1), pl.col("start_ns").shift(-1)
    solo = kernels.select(
        pl.col("name").cast(pl.String),
        grid_blocks=_product(shape[:3]),
        block_threads=_product(shape[3:]),
        start_ns=pl.max_horizontal("start_ns", before),
        end_ns=pl.min_horizontal("end_ns", after),
        began_ns="start_ns",
        took_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    solo = solo.with_columns(
        solo_from=(pl.col("start_ns") - pl.col("began_ns")) / pl.col("took_ns"),
        solo_until=(pl.col("end_ns") - pl.col("began_ns")) / pl.col("took_ns"),
    ).filter(pl.col("start_ns") < pl.col("end_ns"))
    solo = solo.sort("start_ns")
    launched, metric = ("name", "grid_blocks", "block_threads"), pl.col("metric").cast(pl.String)
    parts, courses = [], []
    for piece in _samples(tables, device_id):
        found = piece.join(_within(piece, solo), on="time_ns")
        parts.append(found.group_by(*launched, metric).agg(n=pl.len(), sum=pl.col("value").sum()))
        courses.append(found.unique("time_ns").group_by(*launched).agg(*_steps()))
    if not parts:
        return []
    course = {
        (name, blocks, threads): _covered(lengths)
        for name, blocks, threads, *lengths in pl.concat(courses).group_by(*launched).sum().iter_rows()
    }
    sums = pl.concat(parts).group_by(*launched, "metric").agg(pl.col("n", "sum").sum()).sort(*launched, "metric")
    counters: dict[tuple[str, int | None, int | None], dict[str, tuple[int, float]]] = {}
    for name, blocks, threads, counter, n, total in sums.filter(pl.col("n") >= ENOUGH_SAMPLES).iter_rows():
        if _rank(counter) == len(_FIRST):
            continue  # Of the device, such as that it was busy: nothing of a kernel.
        counters.setdefault((name, blocks, threads), {})[counter] = n, total / n / 100
    made = [
        KernelCounters(
            name=name,
            grid_blocks=blocks,
            block_threads=threads,
            n=max(n for n, _ in counted.values()),
            means={counter: counted[counter][1] for counter in sorted(counted, key=_rank)},
            course=course[name, blocks, threads][0],
            course_from=course[name, blocks, threads][1],
        )
        for (name, blocks, threads), counted in counters.items()
    ]
    return sorted(made, key=lambda one: (-one.n, one.name))


def _steps() -> Iterator[pl.Expr]:
    """How much of each step of the course of a launch, summed over samples, no other kernel was in flight."""
    for step in range(_STEPS):
        overlap = pl.min_horizontal("solo_until", (step + 1) / _STEPS) - pl.max_horizontal("solo_from", step / _STEPS)
        yield overlap.clip(0).sum().alias(f"step_{step}")


def _covered(lengths: Sequence[float]) -> tuple[float, float]:
    """Which part of the steps has at least half of an even share, and where the first of these begins."""
    share = sum(lengths) / _STEPS / 2
    covered = [step for step, length in enumerate(lengths) if length >= share]
    return len(covered) / _STEPS, min(covered, default=0) / _STEPS


def _product(columns: Sequence[str]) -> pl.Expr:
    return pl.fold(pl.lit(1, pl.Int64), lambda a, b: a * b, [pl.col(name).cast(pl.Int64) for name in columns])


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


def _samples(tables: TableSet, device_id: int) -> Iterator[pl.DataFrame]:
    """Counters that are a part of what the GPU can do, in pieces by time, with `until_ns`: each is the mean until then.

    The very last samples are left out: until when they are is not known.
    """
    # A GPU alone in its session is meant even where an export numbers it otherwise.
    here = pl.lit(value=True) if tables.devices.height == 1 else pl.col("device_id") == device_id
    unit = pl.col("unit").cast(pl.String)
    percent = unit.is_in(_PERCENT) | (unit.is_null() & ~pl.col("metric").cast(pl.String).str.contains(_OTHER))
    last: pl.DataFrame | None = None
    for piece in tables.batches("gpu_metrics", "device_id", "time_ns", "metric", "unit", "value"):
        found = piece.filter(here & percent & pl.col("value").is_finite())
        found = found if last is None else pl.concat([last, found])
        moments = found.select("time_ns").unique().sort("time_ns").with_columns(until_ns=pl.col("time_ns").shift(-1))
        lasting = found.join(moments, on="time_ns", maintain_order="left")
        # The next piece says until when the last ones of this one are.
        last = found.filter(pl.col("time_ns") == moments["time_ns"].last())
        if not (known := lasting.drop_nulls("until_ns")).is_empty():
            yield known


def _within(samples: pl.DataFrame, intervals: pl.DataFrame) -> pl.DataFrame:
    """Times of samples that lie wholly in one of some intervals that do not overlap, with what else these have."""
    moments = samples.select("time_ns", "until_ns").unique().sort("time_ns")
    found = moments.join_asof(intervals, left_on="time_ns", right_on="start_ns", strategy="backward")
    return found.filter(pl.col("end_ns") >= pl.col("until_ns")).drop("until_ns", "start_ns", "end_ns")


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
