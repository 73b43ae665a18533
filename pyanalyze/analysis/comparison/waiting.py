"""How long launched work of a tenant waited, in the time in which nothing of it was in flight."""

from __future__ import annotations

from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyanalyze.analysis.intervals import covered_until, outside, union
from pyanalyze.tables.selections import launched, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import polars as pl

    from pyanalyze.results.work import Batch, Work
    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["with_waiting"]

#: Part of a tenant's launches whose calls may be unknown: those of its first moments were made before the recording.
_WITHOUT_CALL = 0.02


def with_waiting(
    tables: TableSet,
    works: Mapping[tuple[int, int], Work],
    in_one_context: Mapping[str, AnyTable] = MappingProxyType({}),
) -> dict[tuple[int, int], Work]:
    """Add to what tenants did how long launched work waited in the gaps between their kernels.

    What the host had not launched, nobody kept from starting: only launch calls tell the two apart.

    Parameters
    ----------
    tables
        The tables; API calls are read where a gap of some tenant may be due to another.
    works, in_one_context
        As :func:`pyanalyze.analysis.comparison.work.work_of` gives and takes them.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> work = with_waiting(session.tables, session.analysis.work)[0, 0]
    >>> sum(batch.waiting_not_resident_ns for batch in work.batches) // 1_000_000
    0
    """
    given = {**tables.for_core(), **in_one_context}
    return {key: work.model_copy(update={"batches": _waited(tables, given, key, work)}) for key, work in works.items()}


def _waited(tables: TableSet, given: Mapping[str, AnyTable], key: tuple[int, int], whole: Work) -> list[Batch]:
    import polars as pl

    batches = whole.batches
    if not any(batch.idle_not_resident_ns or batch.idle_other_resident_ns for batch in batches):
        none = {"waiting_not_resident_ns": 0, "waiting_other_resident_ns": 0}
        return [batch.model_copy(update=none) for batch in batches]
    device_id, tenant_id = key
    tenants = pl.DataFrame(given["tenants"]).filter(pl.col("device_id") == device_id)
    own = tenants.row(by_predicate=pl.col("tenant_id") == tenant_id, named=True)
    work = launched(tables, own, ("kernels", "graph_launches")).sort("start_ns")
    # Groups of work inside a process, and launches without a call: nothing is known of most of it.
    if work.height != whole.launches or int((~work["known"]).sum()) > _WITHOUT_CALL * work.height:
        return batches
    copies = launched(tables, own, ("memops",)) if "memops" in tables else work.head(0)
    asked = pl.concat([rows.select("start_ns", "free_ns") for rows in (work, copies)])
    waits = asked.filter(pl.col("free_ns") < pl.col("start_ns")).select(start_ns="free_ns", end_ns="start_ns")
    # Behind a copy of its own a kernel waits whoever is resident.
    waiting = outside(union(waits), copies)
    beside_others = outside(waiting, _away(tables, given, own)) if whole.residency_known else waiting
    ran = _ran_beside(tables, tenants, own, residency_known=whole.residency_known)
    nobody = beside_others if ran is None else outside(beside_others, ran)
    until = pl.col("end_ns").cum_max().shift(1)
    gaps = work.with_columns(free_ns=until).with_row_index("launch").filter(pl.col("free_ns") < pl.col("start_ns"))

    def inside(spans: pl.DataFrame) -> pl.Series:
        covered = union(spans)
        return covered_until(gaps["start_ns"], covered) - covered_until(gaps["free_ns"], covered)

    # Mostly two of these are the same.
    all_ns = inside(waiting)
    beside_ns = all_ns if beside_others is waiting else inside(beside_others)
    nobody_ns = beside_ns if nobody is beside_others else inside(nobody)
    begins = pl.Series([0, *accumulate(batch.launches for batch in batches)][:-1], dtype=gaps["launch"].dtype)
    sums = (
        gaps.select(
            batch=begins.search_sorted(gaps["launch"], side="right").cast(pl.Int64) - 1,
            absent=all_ns - beside_ns,
            beside=beside_ns - nobody_ns,
        )
        .group_by("batch")
        .sum()
    )
    found = {at: waited for at, *waited in sums.iter_rows()}
    return [
        batch.model_copy(
            update={
                # Pauses before the work began are no part of a batch.
                "waiting_not_resident_ns": min(found.get(at, (0, 0))[0], batch.idle_ns + batch.idle_not_resident_ns),
                "waiting_other_resident_ns": min(found.get(at, (0, 0))[1], batch.idle_other_resident_ns),
            }
        )
        for at, batch in enumerate(batches)
    ]


def _away(tables: TableSet, given: Mapping[str, AnyTable], own: Mapping[str, Any]) -> pl.DataFrame:
    """When the contexts of others were resident, and switches to them and from them."""
    import polars as pl

    here = pl.col("device_id") == own["device_id"]
    mine = [tenant for tenant in (own["tenant_id"], own["served_by"]) if tenant is not None]
    others = ~pl.col("tenant_id").is_in(mine).fill_null(value=False)
    resident = pl.DataFrame(given["residency"]).filter(here, others).select("start_ns", "end_ns")
    switches = pl.DataFrame(given["switches"]).filter(here, pl.col("kind").cast(pl.String) == "switch")
    between = ~(pl.col("from_tenant_id").is_in(mine) & pl.col("to_tenant_id").is_in(mine)).fill_null(value=False)
    gaps = switches.filter(between).select(start_ns="time_ns", end_ns=pl.col("time_ns") + pl.col("gap_ns"))
    return pl.concat([resident, gaps])


def _ran_beside(
    tables: TableSet, tenants: pl.DataFrame, own: Mapping[str, Any], *, residency_known: bool
) -> pl.DataFrame | None:
    """Kernels and graphs of tenants that may run beside one: clients of its server, or all without switch records."""
    import polars as pl

    others = tenants.filter(pl.col("tenant_id") != own["tenant_id"])
    if residency_known:
        server = pl.lit(own["served_by"], dtype=others.schema["served_by"])
        others = others.filter(pl.col("served_by") == server)
    kinds = ("kernels", "graph_launches")
    rows = [work_of(tables, row, kinds, "start_ns", "end_ns") for row in others.iter_rows(named=True)]
    return pl.concat(rows) if rows else None
