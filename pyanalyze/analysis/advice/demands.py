"""How much DRAM bandwidth, and of its SMs, does each tenant want?  Where GPU metrics were sampled."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from pyanalyze.analysis.gpu_metrics import ENOUGH_SAMPLES
from pyanalyze.text.format import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.results.occupancy import KernelCounters
    from pyanalyze.tables.tableset import TableSet

#: Kernels of a tenant with gaps up to this count as one stretch of work.
STRETCH_NS = 20_000
#: Of a launch: their product is its threads.
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
DRAM = (r"^DRAM Read ", r"^DRAM Write ")
#: What limits the work of SMs: instructions that their schedulers issue, or the tensor pipe.
SM_LIMITS = r"^(SM Issue|Tensor Active)"
SMS_ACTIVE = r"^SMs? Active"
#: From which on a sample has all SMs active: exports round to whole per cent.
ALL_ACTIVE = 0.995
#: Part of a resource from which kernels hardly get more of it.
USED_UP = 0.8
#: Of a sample with fewer SMs active nothing is concluded: their part is a ratio of two small numbers.
ENOUGH_ACTIVE = 0.01


def bandwidth(tables: TableSet, device_id: int, tenants: Sequence[int], *, time_sliced: bool) -> dict[int, float]:
    """Part of the DRAM bandwidth that each tenant used while it had the device for itself.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.
    tenants
        Who.
    time_sliced
        Tenants were time-sliced: a sample within a slice belongs to one tenant. Otherwise only samples count in which
        kernels of one tenant were in flight.

    Returns
    -------
    dict of int to float
        Median of read and write bandwidth together (0 to 1), sampled; tenants with too few samples are left out, and
        all are where no such metrics were captured.

    Examples
    --------
    >>> import pyanalyze
    >>> bandwidth(pyanalyze.load(capture).tables, 0, [0, 1], time_sliced=True)
    {}
    """
    return _solo(tables, device_id, tenants, _dram(tables, device_id), time_sliced=time_sliced)


def sm_throughput(tables: TableSet, device_id: int, tenants: Sequence[int], *, time_sliced: bool) -> dict[int, float]:
    """Part of the throughput of the SMs that held its blocks which each tenant used while it had the device for itself.

    Issue slots or the tensor pipe, whichever is used more: a ratio of two values of one sample, so that gaps between
    kernels do not dilute it.

    Parameters
    ----------
    tables, device_id, tenants, time_sliced
        As for :func:`bandwidth`.

    Returns
    -------
    dict of int to float
        Median over the samples (0 to 1), sampled; tenants with too few samples are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> sm_throughput(pyanalyze.load(capture).tables, 0, [0, 1], time_sliced=True)
    {}
    """
    import polars as pl

    samples = (
        _most(tables, device_id, SM_LIMITS)
        .join(_most(tables, device_id, SMS_ACTIVE), on="time_ns", suffix="_active")
        .filter(pl.col("value_active") >= ENOUGH_ACTIVE)
        .select("time_ns", (pl.col("value") / pl.col("value_active")).clip(0, 1))
    )
    return _solo(tables, device_id, tenants, samples, time_sliced=time_sliced)


class Resource(StrEnum):
    """What a kernel can use up of a device."""

    TENSOR = "tensor"
    ISSUE = "issue"
    DRAM = "dram"


def most_used(counted: KernelCounters) -> tuple[Resource, str, float]:
    """Find what a kernel used most of while it ran; also in words, and which part of it.

    Examples
    --------
    >>> means = {"SM Issue": 0.12, "Tensor Active": 0.94, "DRAM Read Bandwidth": 0.27, "DRAM Write Bandwidth": 0.06}
    >>> from pyanalyze.results.occupancy import KernelCounters
    >>> most_used(KernelCounters(name="gemm", grid_blocks=132, block_threads=384, n=200, means=means))
    (<Resource.TENSOR: 'tensor'>, 'the tensor pipe was busy for 94 % of the time', 0.94)
    """

    def of(*patterns: str) -> float:
        return sum(mean for name, mean in counted.means.items() if any(re.match(one, name) for one in patterns))

    parts = {
        Resource.TENSOR: ("the tensor pipe was busy for {} of the time", of("Tensor Active")),
        Resource.ISSUE: ("SMs issued instructions in {} of all cycles", of("SM Issue")),
        Resource.DRAM: ("{} of DRAM bandwidth was used", of(*DRAM)),
    }
    most = max(parts, key=lambda resource: parts[resource][1])
    words, part = parts[most]
    return most, words.format(percent(part, 0)), part


def all_sms_active(tables: TableSet, device_id: int) -> tuple[float, int] | None:
    """Part of the samples in which all SMs had work of any tenant, and their number; None: not sampled.

    Examples
    --------
    >>> import pyanalyze
    >>> all_sms_active(pyanalyze.load(capture).tables, 0) is None
    True
    """
    active = _most(tables, device_id, SMS_ACTIVE)["value"]
    return None if active.is_empty() else (int((active >= ALL_ACTIVE).sum()) / active.len(), active.len())


def by_kernel(
    tables: TableSet, device_id: int, tenants: Sequence[int], *, time_sliced: bool
) -> dict[str, tuple[float | None, float | None]]:
    """Parts of the DRAM bandwidth and of all SMs' throughput that kernels used, by name.

    Counted are samples that lie within kernels of one tenant and no others. What such a sample shows is divided among
    the kernels by their threads: two that run beside each other take no more than both were seen to take.

    Parameters
    ----------
    tables, device_id, tenants, time_sliced
        As for :func:`bandwidth`.

    Returns
    -------
    dict of str to tuple of float or None
        Medians (0 to 1), sampled; kernels with too few samples are left out, as most of those are that are shorter than
        the time between samples.

    Examples
    --------
    >>> import pyanalyze
    >>> by_kernel(pyanalyze.load(capture).tables, 0, [0, 1], time_sliced=True)
    {}
    """
    import polars as pl

    metrics = ("dram", "on_sms")
    dram = _dram(tables, device_id).rename({"value": "dram"})
    on_sms = _most(tables, device_id, SM_LIMITS).rename({"value": "on_sms"})
    samples = _lasting(dram.join(on_sms, on="time_ns", how="full", coalesce=True))
    if len(samples) < ENOUGH_SAMPLES:
        return {}
    solo = _solo_samples(tables, device_id, tenants, samples, time_sliced=time_sliced)
    mine = pl.concat([rows.with_columns(tenant_id=pl.lit(tenant, pl.UInt32)) for tenant, rows in solo.items()])
    part = pl.col("threads") / pl.col("threads").sum().over("time_ns")
    found = (
        _throughout(tables, device_id, samples)
        .join(mine, on=["tenant_id", "time_ns"])
        .with_columns(pl.col(metric) * part for metric in metrics)
        .group_by("name")
        .agg(pl.when(pl.col(one).count() >= ENOUGH_SAMPLES).then(pl.col(one).median()).alias(one) for one in metrics)
        .filter(pl.any_horizontal(pl.col(metric).is_not_null() for metric in metrics))
        .sort("name")
    )
    return {row["name"]: (row["dram"], row["on_sms"]) for row in found.iter_rows(named=True)}


def _dram(tables: TableSet, device_id: int) -> pl.DataFrame:
    """Read and write bandwidth together at each time, 0 to 1."""
    import polars as pl

    def mean(pattern: str) -> pl.DataFrame:
        # Two recorders may have sampled it at one time.
        found = tables.counters(lambda name: name.str.contains(pattern)).filter(pl.col("device_id") == device_id)
        return found.group_by("time_ns").agg(pl.col("value").mean())

    return pl.concat(mean(pattern) for pattern in DRAM).group_by("time_ns").agg(pl.col("value").sum() / 100)


def _most(tables: TableSet, device_id: int, pattern: str) -> pl.DataFrame:
    """Largest of some metrics at each time, 0 to 1."""
    import polars as pl

    found = tables.counters(lambda name: name.str.contains(pattern)).filter(pl.col("device_id") == device_id)
    return found.group_by("time_ns").agg(pl.col("value").max() / 100)


def _lasting(samples: pl.DataFrame) -> pl.DataFrame:
    """Samples in order, each with the time until the next one, which it is the mean of."""
    import polars as pl

    return samples.sort("time_ns").with_columns(pl.col("time_ns").shift(-1).alias("until_ns")).drop_nulls("until_ns")


def _throughout(tables: TableSet, device_id: int, samples: pl.DataFrame) -> pl.DataFrame:
    """Kernels that ran from begin to end of a sample: `time_ns`, `tenant_id`, `name`, `threads` of the launch."""
    import polars as pl

    here = pl.col("device_id") == device_id
    who = tables.tenants.filter(here).select("tenant_id", "capture", "pid")
    columns = ("device_id", "capture", "pid", "name", "start_ns", "end_ns", *SHAPE)
    threads = pl.fold(1.0, lambda a, b: a * b, [pl.col(name).cast(pl.Float64) for name in SHAPE])
    kernels = tables.columns("kernels", *columns).filter(here).join(who, on=["capture", "pid"], nulls_equal=True)
    first = samples["time_ns"].search_sorted(kernels["start_ns"], side="left").cast(pl.Int64)
    after = samples["until_ns"].search_sorted(kernels["end_ns"], side="right").cast(pl.Int64)
    times = samples.with_row_index("sample").select(pl.col("sample").cast(pl.Int64), "time_ns")
    return (
        kernels.select("tenant_id", pl.col("name").cast(pl.String), threads.alias("threads"), first=first, after=after)
        .filter(pl.col("first") < pl.col("after"))
        .drop_nulls()
        .with_columns(pl.int_ranges("first", "after").alias("sample"))
        .explode("sample")
        .join(times, on="sample")
        .select("time_ns", "tenant_id", "name", "threads")
    )


def _solo(
    tables: TableSet, device_id: int, tenants: Sequence[int], samples: pl.DataFrame, *, time_sliced: bool
) -> dict[int, float]:
    """Median over the samples in which the device was one tenant's; those with enough of them."""
    solo = _solo_samples(tables, device_id, tenants, _lasting(samples), time_sliced=time_sliced)
    # Samples that hold the begin or the end of a slice show less than what its kernels want.
    usual = {tenant: mine["value"].median() for tenant, mine in solo.items() if len(mine) >= ENOUGH_SAMPLES}
    return {tenant: value for tenant, value in usual.items() if isinstance(value, float)}


def _solo_samples(
    tables: TableSet, device_id: int, tenants: Sequence[int], samples: pl.DataFrame, *, time_sliced: bool
) -> dict[int, pl.DataFrame]:
    """The samples in which the device was one tenant's."""
    import polars as pl

    if len(samples) < ENOUGH_SAMPLES:
        return {}
    work = {tenant: _stretches(tables, device_id, tenant, time_sliced=time_sliced) for tenant in tenants}
    found = {}
    for tenant in tenants:
        mine = samples.join_asof(work[tenant], left_on="time_ns", right_on="start_ns", strategy="backward")
        mine = mine.filter(pl.col("end_ns") >= pl.col("until_ns")).drop("start_ns", "end_ns")
        for other in () if time_sliced else tenants:
            if other != tenant:
                mine = mine.join_asof(work[other], left_on="until_ns", right_on="start_ns", strategy="backward")
                beside = (pl.col("end_ns") > pl.col("time_ns")).fill_null(value=False)
                mine = mine.filter(~beside).drop("start_ns", "end_ns")
        found[tenant] = mine
    return found


def _stretches(tables: TableSet, device_id: int, tenant: int, *, time_sliced: bool) -> pl.DataFrame:
    """Intervals in which the device was a tenant's, or its kernels were in flight, in order."""
    import polars as pl

    here = pl.col("device_id") == device_id
    if time_sliced:
        mine = tables.residency.filter(here & (pl.col("tenant_id") == tenant))
        return mine.select("start_ns", "end_ns").sort("start_ns")
    who = tables.tenants.filter(here & (pl.col("tenant_id") == tenant)).select("capture", "pid")
    times = tables.columns("kernels", "device_id", "capture", "pid", "start_ns", "end_ns")
    kernels = times.filter(here).join(who, on=["capture", "pid"], how="semi", nulls_equal=True)
    begins = pl.col("start_ns") > pl.col("end_ns").cum_max().shift(1) + STRETCH_NS
    return (
        kernels.select("start_ns", "end_ns")
        .sort("start_ns")
        .with_columns(begins.fill_null(value=True).cum_sum().alias("stretch"))
        .group_by("stretch")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("start_ns")
        .select("start_ns", "end_ns")
    )


def contention(wanted: Mapping[int, float], tenants: Sequence[int]) -> tuple[float, float] | None:
    """By how much kernels take longer when two, and when all of them run at once: what is wanted over what there is.

    Parameters
    ----------
    wanted
        Parts of the bandwidth.
    tenants
        Who is there.

    Returns
    -------
    (float, float) or None
        None where not every tenant's demand is known.

    Examples
    --------
    Two that want 70 % each take 1.4 times as long beside each other.

    >>> two, all_ = contention({0: 0.7, 1: 0.7}, [0, 1])
    >>> round(two, 3), round(all_, 3)
    (0.4, 0.4)
    >>> contention({0: 0.3, 1: 0.2}, [0, 1])
    (0.0, 0.0)
    """
    if any(tenant not in wanted for tenant in tenants):
        return None
    parts = sorted((wanted[tenant] for tenant in tenants), reverse=True)
    return max(0.0, sum(parts[:2]) - 1), max(0.0, sum(parts) - 1)


def active_before_calls(tables: TableSet, device_id: int) -> tuple[float, int] | None:
    """Mean SM activity (per cent) before the first recorded CUDA call, and its samples; None: there are none."""
    import polars as pl

    calls = tables.calls()
    if calls is None or calls.is_empty():
        return None
    metrics = tables.columns("gpu_metrics", "device_id", "time_ns", "metric", "value")
    active = metrics.filter(
        pl.col("device_id") == device_id,
        pl.col("metric").cast(pl.String).str.contains(SMS_ACTIVE),
    )
    # A sample is the mean until the next one.
    before = active.filter(pl.col("time_ns").shift(-1) <= calls["start_ns"].min())["value"]
    mean = before.mean()
    return (mean, before.count()) if isinstance(mean, float) else None
