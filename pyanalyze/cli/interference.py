"""`pyanalyze interference`: who was slowed, by how much, as far as the capture tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("interference", "tenants")
KEYS = {"device_id", "interference", "name", "tenants", "uuid", "window"}


@verb("interference", ("table", "json"))
def command(session: Session, fmt: str) -> str:
    """Say who was slowed and by how much, or which capture would tell."""
    return answer(session, SECTIONS, KEYS, fmt)
