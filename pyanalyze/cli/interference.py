"""`pyanalyze interference`: who was slowed, by how much, by whom, through what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("interference",)
KEYS = {"device_id", "host", "interference", "name", "tenants", "uuid", "window"}


@verb("interference", ("table", "json", "csv"), slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Say who was slowed, by how much, through what and by whom; --baseline measures it against recordings alone."""
    return csv_of(rows(session)) if fmt == "csv" else answer(session, SECTIONS, KEYS, fmt)


def rows(session: Session) -> list[dict[str, Any]]:
    """One row per tenant, measure and unit of work."""
    out = []
    for device in session.interference():
        for tenant in device.tenants:
            known = [("", name, getattr(tenant.slowdown, name), ()) for name in ("elapsed", "latency", "resident")]
            known[1] = (*known[1][:3], tenant.tails)
            known += [(units.name, "latency", units.latency, units.tails) for units in tenant.units]
            for work, measure, estimate, tails in known:
                by_part = {tail.percentile: tail for tail in tails}
                row: dict[str, Any] = {
                    "device_id": device.device_id,
                    "tenant_id": tenant.tenant_id,
                    "tenant": tenant.name,
                    "work": work,
                    "measure": measure,
                    "slowdown": None if estimate is None else estimate.value,
                    "low": None if estimate is None else estimate.low,
                    "high": None if estimate is None else estimate.high,
                    "n": None if estimate is None else estimate.n,
                    "basis": None if estimate is None else estimate.basis,
                    "baseline": tenant.baseline,
                }
                for part in (50, 95, 99):
                    tail = by_part.get(part)
                    row[f"p{part}_shared_ns"] = None if tail is None else tail.shared_ns
                    row[f"p{part}_alone_ns"] = None if tail is None else tail.alone_ns
                row["why_missing"] = tenant.missing if estimate is None else None
                out.append(row)
    return out
