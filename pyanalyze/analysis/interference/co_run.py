"""Latency slowdowns of a tenant while another one has work: solo time in the window dilutes those of all its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.intervals import covered_until, union
from pyanalyze.results.interference import Estimate
from pyanalyze.tables.selections import of_process, work_of
from pyanalyze.vocabulary import SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["latencies_co_run"]

#: Part by which the latencies of all work may differ from the sum that was compared: it then is of other work.
_SAME_SUM = 0.001


def latencies_co_run(
    tables: TableSet, tenants: Sequence[Mapping[str, Any]], latencies: Mapping[int, Sequence[Mapping[str, Any]]]
) -> dict[int, dict[str | None, Estimate]]:
    """Leave out of latency slowdowns the kernels and units of work during which no other tenant had work.

    Nothing delayed these: what they took is in both sums. From its launch call on an operation is work; of a tenant
    that was not traced, its residency is.

    Parameters
    ----------
    tables
        The tables.
    tenants
        Rows of `tenants`: all of a device that work.
    latencies
        By tenant: its rows of `tenant_slowdowns` on latency, against the counterfactual replay.

    Returns
    -------
    dict
        By tenant, then by the name of the units; of kernels under None. Without those of which hardly any ran so, or
        where it is not known: of graphs, say, or without all launch calls.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> latencies_co_run(tables, list(tables.tenants.iter_rows(named=True)), {})
    {}
    """
    import polars as pl

    compared = {
        tenant_id: [one for one in rows if one["solo_ns"] and not one["excluded"]]
        for tenant_id, rows in latencies.items()
    }
    calls = tables.calls() if any(compared.values()) and len(tenants) > 1 else None
    if calls is None:
        return {}
    process = ["capture", "pid", "correlation_id"]
    launched = calls.filter(pl.col("correlation_id") > 0).unique(process, keep="first", maintain_order=True)
    launched = launched.select(*process, "tid", launched_ns="start_ns")
    with_work = {tenant["tenant_id"]: _with_work(tables, tenant, launched) for tenant in tenants}
    found: dict[int, dict[str | None, Estimate]] = {}
    for tenant in tenants:
        others = [spans for tenant_id, spans in with_work.items() if tenant_id != tenant["tenant_id"]]
        known = [spans for spans in others if spans is not None]
        rows = compared.get(tenant["tenant_id"])
        if not rows or len(known) < len(others):
            continue
        beside = union(pl.concat(known))
        each = {row["work"]: _compared(_own(tables, tenant, launched, row), beside, row) for row in rows}
        found[tenant["tenant_id"]] = {work: estimate for work, estimate in each.items() if estimate is not None}
    return found


def _with_work(tables: TableSet, tenant: Mapping[str, Any], launched: pl.DataFrame) -> pl.DataFrame | None:
    """When a tenant had work; None: not known."""
    import polars as pl

    if tenant["traced"]:
        work = [_work(tables, tenant, launched, name) for name in ("kernels", "memops", "graph_launches")]
        return pl.concat(work).select("start_ns", "end_ns")
    resident = tables.of_device("residency", tenant["device_id"]).filter(pl.col("tenant_id") == tenant["tenant_id"])
    return None if resident.is_empty() else resident.select("start_ns", "end_ns")


def _own(
    tables: TableSet, tenant: Mapping[str, Any], launched: pl.DataFrame, latency: Mapping[str, Any]
) -> pl.DataFrame:
    """The kernels, or the units of work, that a row compares."""
    if latency["work"] is None:
        return _work(tables, tenant, launched, "kernels")
    return _units(tables, tenant, launched, latency)


def _compared(own: pl.DataFrame, beside: pl.DataFrame, latency: Mapping[str, Any]) -> Estimate | None:
    """The slowdown of those of its own during which another tenant had work."""
    import polars as pl

    took_ns = own["end_ns"] - own["start_ns"]
    if abs(int(took_ns.sum()) - latency["shared_ns"]) > _SAME_SUM * latency["shared_ns"]:
        return None
    solo = covered_until(own["end_ns"], beside) == covered_until(own["start_ns"], beside)
    if "queue" in own.columns:
        # What waited for one that was delayed was delayed, whoever had work by then.
        solo = own.select(solo.alias("solo"), "queue").select(pl.col("solo").all().over("queue")).to_series()
    solo_ns, left = int(took_ns.filter(solo).sum()), int((~solo).sum())
    compared_ns = latency["solo_ns"] - solo_ns
    if left == 0 or own.height - left < SMALL_SHARE * own.height or compared_ns <= 0:
        return None
    value, low, high = (
        None if ratio is None else (ratio * latency["solo_ns"] - solo_ns) / compared_ns
        for ratio in (latency["value"], latency["low"], latency["high"])
    )
    return None if value is None else Estimate(value=value, low=low, high=high, n=left, basis=latency["basis"])


def _work(tables: TableSet, tenant: Mapping[str, Any], launched: pl.DataFrame, name: str) -> pl.DataFrame:
    """Operations of a tenant from their launch call, where it is known, to their end, with the thread of the call."""
    import polars as pl

    process = ("capture", "pid", "correlation_id")
    rows = work_of(tables, tenant, (name,), *process, "start_ns", "end_ns")
    rows = rows.join(launched, on=process, how="left", nulls_equal=True, maintain_order="left")
    return rows.select(pl.coalesce("launched_ns", "start_ns").alias("start_ns"), "end_ns", "tid")


def _units(
    tables: TableSet, tenant: Mapping[str, Any], launched: pl.DataFrame, latency: Mapping[str, Any]
) -> pl.DataFrame:
    """Units of a name with work, from begin to the end of their last operation; `queue`: those that waited in a row."""
    import polars as pl

    ranges = tables.ranges().filter(of_process(tenant) & pl.col("end_ns").is_not_null())
    ranges = ranges.filter(pl.col("text").cast(pl.String) == latency["work"]).sort("start_ns", "end_ns")
    ranges = ranges.select("tid", "start_ns", range_end_ns="end_ns").with_row_index("unit")
    # A thread serves one after the other: one that arrives before its turn launches nothing until then.
    before = pl.col("range_end_ns").cum_max().shift(1).over("tid")
    ranges = ranges.with_columns(from_ns=pl.max_horizontal("start_ns", before))
    waited = (pl.col("from_ns") > pl.col("start_ns")).fill_null(value=False)
    ranges = ranges.with_columns(queue=pl.struct("tid", (~waited).cum_sum().over("tid")))
    kinds = ("kernels", "memops", "graph_launches")
    own = pl.concat([_work(tables, tenant, launched, name) for name in kinds]).rename({"start_ns": "launched_ns"})
    # Given units are of no thread.
    of_threads = ranges["tid"].null_count() == 0
    inside = own.sort("launched_ns").join_asof(
        ranges.sort("from_ns"),
        left_on="launched_ns",
        right_on="from_ns",
        by="tid" if of_threads else None,
        check_sortedness=False,
    )
    inside = inside.filter(pl.col("launched_ns") < pl.col("range_end_ns"))
    last = inside.group_by("unit").agg(last_ns=pl.col("end_ns").max())
    found = ranges.join(last, on="unit", how="inner", maintain_order="left")
    found = found.select("start_ns", pl.max_horizontal("range_end_ns", "last_ns").alias("end_ns"), "queue")
    # Those that an end of the recording cuts are not compared; the sum says at which end they are.
    until_ns = [0, *(found["end_ns"] - found["start_ns"]).cum_sum()]
    sums = [last - first for first, last in zip(until_ns, until_ns[latency["n"] :], strict=False)]
    if not sums:
        return found
    near = min(range(len(sums)), key=lambda first: abs(sums[first] - latency["shared_ns"]))
    return found.slice(near, latency["n"])
