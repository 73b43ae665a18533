"""Long NVTX ranges that follow each other, where a process uses the GPU much more in one of them than in another."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyanalyze.results.time_split import LEAST_PHASE, HostKind, RangePhase
from pyanalyze.tables.selections import covered_ns, of_process, work_of
from pyanalyze.vocabulary import ENOUGH_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["range_phases"]

#: By so much the parts with kernels in flight differ for the mean of them to say little of either.
_APART = 0.3


def range_phases(tables: TableSet, tenant: Mapping[str, Any]) -> list[RangePhase]:
    """Say for how much of each long NVTX range kernels of a process were in flight, where that differs much.

    Parameters
    ----------
    tables
        Tables; NVTX ranges and calls of MPI are read now if they were not.
    tenant
        Its row of `tenants`, with that of `tenant_usage`.

    Returns
    -------
    list of RangePhase
        In order; empty where fewer than two follow each other, where there are enough of them to be units of work, or
        where kernels were in flight for a like part of all.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> tenants = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    >>> range_phases(session.tables, tenants.row(0, named=True))
    []
    """
    import polars as pl

    first_ns, last_ns = tenant["first_ns"], tenant["last_ns"]
    if first_ns is None:
        return []
    clipped = (
        tables.ranges()
        .filter(of_process(tenant), pl.col("end_ns") - pl.col("start_ns") >= LEAST_PHASE * (last_ns - first_ns))
        .select(pl.col("text").cast(pl.String), "start_ns", "end_ns")
        .filter(pl.col("start_ns") < last_ns, pl.col("end_ns") > first_ns)
        .sort("start_ns", "end_ns")
    )
    spans = list(clipped.iter_rows())
    # Of ranges inside each other the inner ones.
    inner = [
        (text, start, end)
        for text, start, end in spans
        if not any(start <= other[1] and other[2] <= end and other[1:] != (start, end) for other in spans)
    ]
    follow = all(before[2] <= after[1] for before, after in pairwise(inner))
    if not follow or not 2 <= len(inner) < ENOUGH_UNITS:
        return []
    kernels = work_of(tables, tenant, ("kernels", "graph_launches"), "start_ns", "end_ns")
    calls = tables.host_calls_read()
    waits = calls.filter(of_process(tenant), pl.col("kind").cast(pl.String) == HostKind.MPI)
    found = [
        RangePhase(
            name=text or "",
            start_ns=start,
            end_ns=end,
            kernels_share=_inside_ns(kernels, start, end) / (end - start),
            mpi_share=_inside_ns(waits, start, end) / (end - start),
        )
        for text, start, end in inner
    ]
    shares = [one.kernels_share for one in found]
    return found if max(shares) - min(shares) >= _APART else []


def _inside_ns(spans: pl.DataFrame, start_ns: int, end_ns: int) -> int:
    """For how long any of them ran between two times."""
    import polars as pl

    inside = spans.filter(pl.col("start_ns") < end_ns, pl.col("end_ns") > start_ns)
    return covered_ns(inside.select(pl.col("start_ns").clip(start_ns), pl.col("end_ns").clip(upper_bound=end_ns)))
