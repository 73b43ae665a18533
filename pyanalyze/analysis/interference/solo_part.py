"""Whether a tenant paused between units of work in the part of a recording that it ran solo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.tables.selections import of_process
from pyanalyze.vocabulary import ENOUGH_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

#: Solo, a kernel came so many times as seldom as in the counterfactual replay: then the replay leaves pauses out.
SELDOM = 1.5


def pauses_solo(tables: TableSet, tenant: Mapping[str, Any], solo_ns: float) -> int | None:
    """Count pauses before other tenants began, where the counterfactual replay has none.

    A server whose requests pile up beside another tenant pauses no more, so that its recording looks like that of a
    loop in which each unit of work follows the one before. Solo it waits for requests.

    Parameters
    ----------
    tables
        Tables.
    tenant
        Its row of `tenants`, with that of `tenant_usage`.
    solo_ns
        Time for each of its kernels in the counterfactual replay, on average.

    Returns
    -------
    int or None
        None where it did not begin before the others, or the replay has its pauses as well.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> tenants = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    >>> pauses_solo(session.tables, tenants.row(0, named=True), 1e6) is None
    True
    """
    import polars as pl

    # A server does no work of its own.
    servers = {row["served_by"] for row in tables.rows_of("tenants", tenant["device_id"])}
    usage = tables.rows_of("tenant_usage", tenant["device_id"])
    begins = [one["first_ns"] for one in usage if one["tenant_id"] not in {*servers, tenant["tenant_id"]}]
    if not begins or None in begins or min(begins) - tenant["first_ns"] < ENOUGH_UNITS * SELDOM * solo_ns:
        return None
    until_ns = min(begins)
    # A graph is launched again as a whole; a copy does not tell what it belongs to.
    names = {"kernels": "name", "graph_launches": "graph_exec_id", "memops": None}
    work = pl.concat(_before(tables, table, tenant, until_ns, name) for table, name in names.items()).sort("start_ns")
    # What runs but a few times sets the program up.
    recurs = pl.col("name").is_not_null() & (pl.len().over("name") >= ENOUGH_UNITS)
    first_ns = work.filter(recurs)["start_ns"].min()
    if not isinstance(first_ns, int):
        return None
    work = work.filter(pl.col("start_ns") >= first_ns)
    ran = work["name"].count()
    gaps_ns = work["start_ns"] - work["end_ns"].cum_max().shift(1)
    pauses = int((gaps_ns > solo_ns).sum())
    seldom = until_ns - first_ns > SELDOM * solo_ns * ran
    return pauses if seldom and pauses >= ENOUGH_UNITS else None


def _before(tables: TableSet, table: str, tenant: Mapping[str, Any], until_ns: int, name: str | None) -> pl.DataFrame:
    """Work of a process that started before a time, named by a column; None: it has no name."""
    import polars as pl

    found = tables.columns(table, "capture", "pid", "device_id", "start_ns", "end_ns", *([name] if name else []))
    mine = of_process(tenant) & (pl.col("device_id") == tenant["device_id"]) & (pl.col("start_ns") < until_ns)
    named = pl.col(name) if name else pl.lit(None)
    return found.filter(mine).select("start_ns", "end_ns", named.cast(pl.String).alias("name"))
