"""`pyanalyze occupancy`: how full the SMs were, per tenant and kernel (modelled)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("occupancy", "tenants")
KEYS = {"device_id", "name", "occupancy", "tenants", "uuid", "window"}


@verb("occupancy", ("table", "json"))
def command(session: Session, fmt: str) -> str:
    """Say how full the SMs were: modelled, checked against counters where the capture has them."""
    return answer(session, SECTIONS, KEYS, fmt)
