"""Slowdown from time measurably lost: others were resident or switched while launched kernels had not ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.intervals import covered_until, union
from pyanalyze.results.interference import Estimate
from pyanalyze.tables.selections import launched, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet


@dataclass(frozen=True)
class LostTime:
    """What the kernels and graphs of a tenant lost to residency of others, and to switches from and to them.

    Attributes
    ----------
    latency_ns
        From the begin of each launch call, or from the start where no call was recorded, to the end; summed.
    lost_ns
        Of that, while it waited after its call or was in flight, other contexts were resident, or a switch from or to
        one took its time: solo there are none.
    by_tenant
        The same by the other tenant; of a switch between two others, the one that came.
    n
        Kernels and graphs.
    """

    latency_ns: int
    lost_ns: int
    by_tenant: Mapping[int, int]
    n: int

    @property
    def slowdown(self) -> Estimate | None:
        """Latency over what would be left of it without the time lost; None: nothing would be.

        A bound from below: solo, no kernel waits longer behind kernels of its own tenant than it did here, and what
        took longer while its own context was resident is not known.

        Examples
        --------
        >>> LostTime(latency_ns=300, lost_ns=200, by_tenant={1: 200}, n=7).slowdown.value
        3.0
        """
        if self.lost_ns >= self.latency_ns:
            return None
        least = self.latency_ns / (self.latency_ns - self.lost_ns)
        return Estimate(value=least, low=least, high=None, n=self.n, basis="inferred")


def lost_time(tables: TableSet, tenant: Mapping[str, Any], own: frozenset[int]) -> LostTime:
    """Add up how long launched kernels had not ended while others were resident, or a switch from or to one went on.

    Parameters
    ----------
    tables
        The tables.
    tenant
        Its row of `tenants`.
    own
        Tenants whose residency may be its own: itself, and the server and the clients of its MPS server.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> lost = lost_time(tables, tables.tenants.row(1, named=True), frozenset({1}))
    >>> lost.n, sorted(lost.by_tenant)
    (424, [0, 2])
    """
    import polars as pl

    work = launched(tables, tenant, ("kernels", "graph_launches"))
    # Behind a copy of its own a kernel waits whoever is resident: that time is taken out of the clock.
    copies = union(work_of(tables, tenant, ("memops",), "start_ns", "end_ns")) if "memops" in tables else None

    def clock(moments: pl.Series) -> pl.Series:
        return moments if copies is None else moments - covered_until(moments, copies)

    edges = [
        pl.DataFrame({"at": clock(work[column]), "step": step}, schema_overrides={"step": pl.Int64})
        for column, step in (("free_ns", 1), ("end_ns", -1))
    ]
    steps = pl.concat(edges).group_by("at").agg(pl.col("step").sum()).sort("at")
    steps = steps.with_columns(pending=pl.col("step").cum_sum(), since=pl.col("at"))
    before = (pl.col("pending").shift(1) * pl.col("at").diff()).fill_null(0).cum_sum()
    steps = steps.with_columns(before=before)

    def pending(moments: pl.Series) -> pl.Series:
        """Time, of each kernel that was pending, until some moments."""
        last = pl.DataFrame({"at": clock(moments)}).with_row_index("row").sort("at").join_asof(steps, on="at")
        whole = pl.col("before") + pl.col("pending") * (pl.col("at") - pl.col("since"))
        return last.sort("row").select(whole.fill_null(0)).to_series()

    intervals = tables.of_device("residency", tenant["device_id"]).filter("complete")
    switches = tables.of_device("switches", tenant["device_id"]).filter(pl.col("kind").cast(pl.String) == "switch")
    came = ~pl.col("to_tenant_id").is_in(sorted(own))
    gaps = switches.select(
        tenant_id=pl.when(came).then("to_tenant_id").otherwise("from_tenant_id"),
        start_ns="time_ns",
        end_ns=pl.col("time_ns") + pl.col("gap_ns"),
    )
    others = pl.concat([intervals.select(gaps.columns), gaps]).filter(~pl.col("tenant_id").is_in(sorted(own)))
    every = union(others)
    each = others.select("tenant_id", ns=pending(others["end_ns"]) - pending(others["start_ns"]))
    return LostTime(
        latency_ns=int((work["end_ns"] - work["asked_ns"]).sum()),
        lost_ns=int((pending(every["end_ns"]) - pending(every["start_ns"])).sum()),
        by_tenant=dict(each.group_by("tenant_id").agg(pl.col("ns").sum()).filter(pl.col("ns") > 0).iter_rows()),
        n=work.height,
    )


def assumed_switch_ns(tables: TableSet, tenant: Mapping[str, Any]) -> int | None:
    """How much of a tenant's attributed time the replay takes for switching inside kernels, without a record of it.

    Contexts stop, save and restore their state while they are resident. Where neither records nor kernels of the device
    show how long that takes (`context_state`), what other boards take is assumed.

    Parameters
    ----------
    tables
        The tables.
    tenant
        Its row of `tenant_usage`.

    Returns
    -------
    int or None
        Nanoseconds, at least; None: nothing is assumed, or what is cannot be told from what was left out.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> assumed_switch_ns(tables, tables.tenant_usage.row(0, named=True)) is None
    True
    """
    if tenant["resident_ns"] is None or tables.rows_of("context_state", tenant["device_id"]):
        return None
    for row in tables.rows_where("tenant_slowdowns", "tenant_id", tenant["tenant_id"]):
        if (row["measure"], row["against"], row["work"], row["excluded"]) == ("resident", "counterfactual", None, 0):
            taken_ns = tenant["attributed_ns"] - int(row["shared_ns"])
            return taken_ns if taken_ns > 0 else None
    return None


def device_figures(elapsed: list[float]) -> tuple[float, float, float]:
    """ANTT, STP and Jain's index from elapsed slowdowns of all tenants.

    Parameters
    ----------
    elapsed
        Slowdowns (shared over alone), one per tenant; at least one.

    Returns
    -------
    tuple of float
        Average normalised turnaround time (mean slowdown, lower is better), system throughput (sum of
        1 / slowdown, at most the number of tenants), Jain's fairness index of 1 / slowdown (1 is fair).

    Notes
    -----
    Eyerman and Eeckhout, IEEE Micro 28(3), 2008; Jain, Chiu and Hawe, DEC TR-301, 1984.

    Examples
    --------
    >>> device_figures([2.0, 2.0])
    (2.0, 1.0, 1.0)
    """
    progress = [1 / slowdown for slowdown in elapsed]
    antt = sum(elapsed) / len(elapsed)
    jain = sum(progress) ** 2 / (len(progress) * sum(p * p for p in progress))
    return antt, sum(progress), jain
