"""How groups of work inside processes share a device: through the contexts of their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.vocabulary import TRAITS, Mode, unless

if TYPE_CHECKING:
    from pyanalyze.analysis.sharing.classify import Verdict
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import RelationKind

__all__ = ["relation_in_process", "verdict_of_groups"]

#: How sure a relation is that follows from kernels of one context, or from no common time.
_SURE = 0.95


def verdict_of_groups(tables: TableSet, verdict: Verdict) -> Verdict:
    """Restate the verdict about processes where groups of work are the tenants.

    Parameters
    ----------
    tables
        Tables of groups.
    verdict
        The verdict about the processes of a device.

    Returns
    -------
    Verdict
        Groups of the only process in one context, with several streams, share it as streams do. Else the verdict stays:
        between groups of one process nothing is time-sliced, and they are in one MIG instance or MPS client.

    Examples
    --------
    >>> import pyanalyze
    >>> groups = pyanalyze.load(capture).by("stream")
    >>> verdict_of_groups(groups.tables, groups.analysis.processes.verdicts[0]).mode
    'time-slicing'
    """
    found = tables.groups
    here = tables.tenants.filter(pl.col("device_id") == verdict.device_id, "traced")
    divided = here.filter(pl.col("capture").is_in(list(found.captures if found is not None else ())))
    if divided.height < 2:
        return verdict
    one_context = divided["contexts"].n_unique() == 1
    traits = TRAITS[verdict.mode]
    if not traits.one_process or traits.mig_instance or traits.capped or not one_context:
        return verdict
    kernels = tables.columns("kernels", "device_id", "context_id", "stream_id").filter(
        pl.col("device_id") == verdict.device_id
    )
    if kernels.select(pl.struct("context_id", "stream_id").n_unique()).item() < 2:
        return verdict  # In one stream they ran one after the other.
    text = (
        f"Groups of work of one process share its context: nothing is time-sliced between them. The mode is "
        f"{Mode.STREAMS}{unless(verdict.condition, Mode.STREAMS)}."
    )
    return verdict.model_copy(update={"mode": Mode.STREAMS, "summary": text})


def relation_in_process(
    tables: TableSet, one: int, other: int, *, co_busy_ns: int | None
) -> tuple[RelationKind, float] | None:
    """Say what two tenants were to each other if they are groups of one process; else None.

    Parameters
    ----------
    tables
        Tables of groups.
    one, other
        Tenant ids.
    co_busy_ns
        How long both had work in flight.
    """
    groups = tables.groups
    if groups is None:
        return None
    rows = {
        row["tenant_id"]: row
        for row in tables.tenants.filter(pl.col("tenant_id").is_in([one, other])).iter_rows(named=True)
    }
    processes = [(groups.captures.get(row["capture"]), row["pid"]) for row in rows.values()]
    if len(set(processes)) != 1 or processes[0][0] is None:
        return None
    if not co_busy_ns:
        return "apart", _SURE
    return "side-by-side", _SURE
