"""`pyanalyze residency`: who held the GPU: slices, switches, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("held",)


@verb("residency", ("table", "json", "csv"))
def command(session: Session, fmt: str) -> str:
    """Say who held the GPU when, and what switching cost (csv: the slices per tenant)."""
    if fmt == "csv":
        names = dict(session.tenants.select("tenant_id", "name").iter_rows())
        rows = session.ledger.iter_rows(named=True)
        return csv_of([{"tenant": names.get(row["tenant_id"]), **row} for row in rows])
    return answer(session, "residency", SECTIONS, fmt)
