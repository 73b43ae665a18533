"""How much DRAM bandwidth does each tenant want?  Where GPU metrics were sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

#: Samples of a tenant alone below which nothing is concluded.
ENOUGH_SAMPLES = 10
#: Kernels of a tenant with gaps up to this count as one stretch of work.
STRETCH_NS = 20_000


def demands(tables: TableSet, device_id: int, tenants: Sequence[int], *, time_sliced: bool) -> dict[int, float]:
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
    >>> demands(pyanalyze.load(capture).tables, 0, [0, 1], time_sliced=True)
    {}
    """
    import polars as pl

    samples = (
        tables.counters(lambda name: name.str.contains(r"^DRAM (Read|Write) "))
        .filter(pl.col("device_id") == device_id)
        .group_by("time_ns")
        .agg(pl.col("value").sum() / 100)
        .sort("time_ns")
        .with_columns(pl.col("time_ns").shift(1).alias("since_ns"))
        .drop_nulls()
    )
    if len(samples) < ENOUGH_SAMPLES:
        return {}
    work = {tenant: _stretches(tables, device_id, tenant, time_sliced=time_sliced) for tenant in tenants}
    found = {}
    for tenant in tenants:
        mine = samples.join_asof(work[tenant], left_on="since_ns", right_on="start_ns", strategy="backward")
        mine = mine.filter(pl.col("end_ns") >= pl.col("time_ns")).drop("start_ns", "end_ns")
        for other in () if time_sliced else tenants:
            if other != tenant:
                mine = mine.join_asof(work[other], left_on="time_ns", right_on="start_ns", strategy="backward")
                beside = (pl.col("end_ns") > pl.col("since_ns")).fill_null(value=False)
                mine = mine.filter(~beside).drop("start_ns", "end_ns")
        # Samples that hold the begin or the end of a slice show less than what its kernels want.
        usual = mine["value"].median()
        if len(mine) >= ENOUGH_SAMPLES and isinstance(usual, float):
            found[tenant] = usual
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
