"""`pyanalyze occupancy`: how full the SMs were, per tenant, kernel and SM (modelled), beside counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("occupancy",)


@verb("occupancy", ("table", "json", "csv"))
def command(session: Session, fmt: str) -> str:
    """Show SM occupancy: modelled, and checked against hardware counters where the capture has them.

    csv: the tenants over time, warps and active SMs as parts of the device; --detail adds every SM over time to json.
    """
    if fmt == "csv":
        import polars as pl

        # Clients of one program have one name.
        who = {
            tenant: (name, pid) for tenant, name, pid in session.tenants.select("tenant_id", "name", "pid").iter_rows()
        }
        found = session.sm_occupancy.with_columns(pl.col("basis").cast(pl.String))
        named = ((who.get(row["tenant_id"], (None, None)), row) for row in found.iter_rows(named=True))
        rows = [{"tenant": name, "pid": pid, **row} for (name, pid), row in named]
        return csv_of(rows, ("tenant", "pid", *found.columns))
    return answer(session, "occupancy", SECTIONS, fmt)
