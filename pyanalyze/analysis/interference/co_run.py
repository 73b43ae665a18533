"""The latency slowdown of a tenant while another one has work: solo time in the window dilutes that of all kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.intervals import covered_until, union
from pyanalyze.results.interference import Estimate
from pyanalyze.tables.selections import work_of
from pyanalyze.vocabulary import SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["latency_co_run"]

#: Part by which the latencies of all kernels may differ from the sum that was compared: it then is of other operations.
_SAME_SUM = 0.001


def latency_co_run(
    tables: TableSet, tenant: Mapping[str, Any], others: Sequence[Mapping[str, Any]], latency: Mapping[str, Any] | None
) -> Estimate | None:
    """Leave out of a latency slowdown the kernels during which no other tenant had work.

    Nothing delayed these: what they took is in both sums. From its launch call on an operation is work; of a tenant
    that was not traced, its residency is.

    Parameters
    ----------
    tables
        The tables.
    tenant, others
        Rows of `tenants`: the tenant, and the others of its device that work.
    latency
        Its row of `tenant_slowdowns` against the counterfactual replay; None: there is none.

    Returns
    -------
    Estimate or None
        None where hardly any kernel ran so, or where it is not known: of graphs, say, or without all launch calls.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> latency_co_run(tables, tables.tenants.row(0, named=True), (), None) is None
    True
    """
    import polars as pl

    calls = None if latency is None or not latency["solo_ns"] or latency["excluded"] else tables.calls()
    if latency is None or calls is None or not others:
        return None
    process = ["capture", "pid", "correlation_id"]
    launched = calls.filter(pl.col("correlation_id") > 0).unique(process, keep="first", maintain_order=True)
    launched = launched.select(*process, launched_ns="start_ns")
    own = _work(tables, tenant, launched, "kernels")
    took_ns = own["end_ns"] - own["start_ns"]
    if abs(int(took_ns.sum()) - latency["shared_ns"]) > _SAME_SUM * latency["shared_ns"]:
        return None
    spans: list[pl.DataFrame] = []
    for other in others:
        if other["traced"]:
            spans += [_work(tables, other, launched, name) for name in ("kernels", "memops", "graph_launches")]
            continue
        resident = tables.of_device("residency", tenant["device_id"]).filter(pl.col("tenant_id") == other["tenant_id"])
        if resident.is_empty():
            return None
        spans.append(resident.select("start_ns", "end_ns"))
    beside = union(pl.concat(spans))
    solo = covered_until(own["end_ns"], beside) == covered_until(own["start_ns"], beside)
    solo_ns, left = int(took_ns.filter(solo).sum()), int((~solo).sum())
    compared_ns = latency["solo_ns"] - solo_ns
    if left == 0 or own.height - left < SMALL_SHARE * own.height or compared_ns <= 0:
        return None
    value, low, high = (
        None if ratio is None else (ratio * latency["solo_ns"] - solo_ns) / compared_ns
        for ratio in (latency["value"], latency["low"], latency["high"])
    )
    return None if value is None else Estimate(value=value, low=low, high=high, n=left, basis="inferred")


def _work(tables: TableSet, tenant: Mapping[str, Any], launched: pl.DataFrame, name: str) -> pl.DataFrame:
    """Operations of a tenant from their launch call, where it is known, to their end."""
    import polars as pl

    process = ("capture", "pid", "correlation_id")
    rows = work_of(tables, tenant, (name,), *process, "start_ns", "end_ns")
    rows = rows.join(launched, on=process, how="left", nulls_equal=True, maintain_order="left")
    return rows.select(pl.coalesce("launched_ns", "start_ns").alias("start_ns"), "end_ns")
