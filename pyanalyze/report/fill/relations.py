"""How each two tenants shared the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.sharing.groups import relation_in_process
from pyanalyze.report.shown import MOST_TENANTS
from pyanalyze.results.sharing import Relation
from pyanalyze.vocabulary import NEGLIGIBLE_RESIDENCY, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.analysis.sharing.facts import Pair
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import RelationKind


def relations_of(
    tables: TableSet, usage: pl.DataFrame, pairs: Sequence[Pair], verdict: Verdict, group: frozenset[int]
) -> list[Relation]:
    """The relation of each two tenants, without those that hardly used the device."""
    import polars as pl

    whole = int(usage["resident_ns"].sum())
    small = {
        row["tenant_id"]
        for row in usage.iter_rows(named=True)
        if not row["traced"] and (row["resident_ns"] or 0) < NEGLIGIBLE_RESIDENCY * whole
    }
    # A client of MPS and its server are one party on the GPU.
    served = {frozenset(pair) for pair in usage.select("tenant_id", "served_by").drop_nulls().iter_rows()}
    relations = []
    shown = {pair.tenants: pair for pair in pairs}
    rows = tables.of_device("overlaps", verdict.device_id)
    if usage.height > MOST_TENANTS:
        # Of many tenants the table has the pairs that met, by short kernels one soon after the other too.
        rows = rows.filter((pl.col("co_busy_ns") > 0) | (pl.col("co_resident_ns") > 0))
    for row in rows.iter_rows(named=True):
        pair = (row["tenant_a"], row["tenant_b"])
        if small & set(pair) or frozenset(pair) in served:
            continue
        kind, confidence = relation_in_process(tables, *pair, co_busy_ns=row["co_busy_ns"]) or _relation(
            row, shown.get(pair), verdict, inside=len(group & set(pair)), only=len(shown) == 1
        )
        relations.append(Relation(tenants=pair, relation=kind, confidence=confidence, co_busy_ns=row["co_busy_ns"]))
    return relations


def _relation(
    row: dict[str, Any], pair: Pair | None, verdict: Verdict, *, inside: int, only: bool
) -> tuple[RelationKind, float]:
    """How two tenants shared the device; `inside`: how many of them are in the MPS group; `only`: no other pair ran."""
    if row["co_busy_ns"] == 0 and row["co_resident_ns"] in (None, 0) and row["co_window_ns"] == 0:
        return "apart", 0.95
    traits = TRAITS[verdict.mode]
    if traits.partitioned:
        return "partitioned", verdict.confidence
    # Capped clients may have SMs of their own.
    if verdict.mode != Mode.UNDETERMINED and pair is not None and pair.together and traits.same_sms is not None:
        return "side-by-side", verdict.confidence
    if inside == 1 or (verdict.mode != Mode.UNDETERMINED and pair is not None and pair.sliced):
        return "time-sliced", verdict.confidence
    # Virtual machines that are time-sliced are no tenants here. Beside an MPS group an untraced tenant may be the
    # server, whose context is that of the group.
    if traits.time_sliced and not traits.vgpu and (pair is not None or not traits.mps):
        return "time-sliced", verdict.confidence
    # Under MPS nothing switches contexts: what was in flight at one time had blocks on the SMs at one time. Of several
    # tenants some may be no clients: that a server ran does not say whose.
    all_clients = traits.mps and (only or verdict.basis == "observed")
    at_once = row["short_short_overlapping"] or (all_clients and row["co_busy_ns"])
    if traits.same_sms and at_once and not traits.time_sliced:
        return "side-by-side", verdict.confidence
    return "unknown", 0.0
