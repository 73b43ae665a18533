"""`pyanalyze residency`: GPU time per tenant, context switches and their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("residency",)


@verb("residency", ("table", "json", "csv"))
def command(session: Session, fmt: str) -> str:
    """Show GPU time per tenant and the cost of context switches (csv: residency per tenant)."""
    if fmt == "csv":
        names = dict(session.tenants.select("tenant_id", "name").iter_rows())
        found = session.residency_by_tenant
        rows = [{"tenant": names.get(row["tenant_id"]), **row} for row in found.iter_rows(named=True)]
        return csv_of(rows, ("tenant", *found.columns))
    return answer(session, "residency", SECTIONS, fmt)
