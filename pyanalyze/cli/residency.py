"""`pyanalyze residency`: GPU time per tenant, context switches and their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyanalyze.session import Session

SECTIONS = ("residency",)


@verb("residency", ("table", "json", "csv"))
def command(session: Session, fmt: str) -> str:
    """Show GPU time per tenant and the cost of context switches (csv: residency per tenant)."""
    if fmt == "csv":
        columns = ("tenant", "pid", "clients", *session.residency_by_tenant.columns)
        return csv_of(list(_rows(session)), columns)
    return answer(session, "residency", SECTIONS, fmt)


def _rows(session: Session) -> Iterator[dict[str, Any]]:
    """Residency per tenant; clients of an MPS group have a row together, as records name any of them for all."""
    who = {row["tenant_id"]: row for row in session.tables.rows("tenants")}
    kept = ("device_id", "tenant_id", "basis")
    groups = session.analysis.mps_groups
    rows = list(session.residency_by_tenant.iter_rows(named=True))
    for row in rows:
        if row["tenant_id"] in groups.get(row["device_id"], ()):
            row.update({name: None for name in row if name not in kept})
        tenant = who[row["tenant_id"]]
        yield {"tenant": tenant["name"], "pid": tenant["pid"], "clients": None, **row}
    for device in session.residency_summary():
        for one in device.tenants:
            if one.clients:
                known = one.model_dump(exclude={"tenant_id"}) | {"device_id": device.device_id, "basis": device.basis}
                clients = " ".join(str(who[client]["pid"]) for client in sorted(one.clients))
                together = {name: known.get(name) for name in rows[0]}
                yield {"tenant": one.name, "pid": None, "clients": clients, **together}
