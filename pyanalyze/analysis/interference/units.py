"""How many of the given units of work were compared, and why the others were not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.tables.selections import of_process
from pyanalyze.vocabulary import ENOUGH_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.results.interference import Estimate
    from pyanalyze.tables.tableset import TableSet

#: Fewer operations than this, or units of one name, have neither percentiles nor a pace.
ENOUGH = 20
#: Most sentences about units of one tenant.
MOST_SAID = 6


def how_many_counted(tables: TableSet, tenant: Mapping[str, Any], latencies: Mapping[str, Estimate]) -> tuple[str, ...]:
    """Say of the given units of a tenant how many were compared, and why the others were not.

    Parameters
    ----------
    tables
        Tables, with or without given units.
    tenant
        Its row of `tenants`.
    latencies
        Latency slowdown of the units that were compared, by their name.

    Returns
    -------
    tuple of str
        Nothing where all of them were, and are enough for percentiles.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> how_many_counted(session.tables, session.tenants.row(0, named=True), {})
    ()
    """
    import polars as pl

    if tables.work is None:
        return ()
    process = of_process(tenant)
    names = set(tables.work.filter(process)["text"])
    if not names:
        return ()
    # NVTX ranges of the same name are units beside them.
    ranges = tables.ranges().select("capture", "pid", "start_ns", "end_ns", pl.col("text").cast(pl.String))
    ranges = ranges.filter(process & pl.col("end_ns").is_not_null() & pl.col("text").is_in(names))
    launched = _launches(tables, process & (pl.col("device_id") == tenant["device_id"]))
    first = launched.search_sorted(ranges["start_ns"], side="left")
    behind = launched.search_sorted(ranges["end_ns"], side="right")
    empty = (behind == first).alias("empty")
    sums = ranges.with_columns(empty).group_by("text").agg(pl.len(), pl.col("empty").sum()).sort("text")
    few = sums.filter(pl.col("len") < ENOUGH_UNITS)
    said = []
    if few.height:
        which = f"{few['text'][0]}: " if few.height == 1 else f"of {few.height} names: "
        said.append(f"{which}none of {few['len'].sum()} counted: at least {ENOUGH_UNITS} of one name are needed")
    for name, whole, nothing in sums.filter(pl.col("len") >= ENOUGH_UNITS).iter_rows():
        latency = latencies.get(name)
        counted = 0 if latency is None else latency.n
        others = []
        if nothing := min(nothing, whole - counted):
            others.append(f"no work was launched in {nothing}")
        if unknown := whole - counted - nothing:
            others.append(f"the solo time of {unknown} is not known")
        why = f": {', '.join(others)}" if others else ""
        if latency is not None and counted < ENOUGH:
            why += f"; their latency slowdown is {latency.value:.2f}x, percentiles need {ENOUGH}"
        if why:
            said.append(f"{name}: {counted or 'none'} of {whole} counted{why}")
    return tuple(said[:MOST_SAID])


def _launches(tables: TableSet, own: pl.Expr) -> pl.Series:
    """When what a tenant did on a device was launched, in order: by the call, else by its own begin."""
    import polars as pl

    columns = ("capture", "pid", "device_id", "correlation_id", "start_ns")
    work = pl.concat([tables.columns(name, *columns).filter(own) for name in ("kernels", "memops", "graph_launches")])
    calls = tables.calls()
    if calls is not None:
        key = ["capture", "pid", "correlation_id"]
        begun = calls.filter(pl.col("correlation_id").is_not_null()).group_by(key).agg(pl.col("start_ns").min())
        work = work.join(begun.rename({"start_ns": "called_ns"}), on=key, how="left", nulls_equal=True)
        early = pl.col("called_ns") <= pl.col("start_ns")
        work = work.with_columns(pl.when(early).then("called_ns").otherwise("start_ns").alias("start_ns"))
    return work["start_ns"].sort()
