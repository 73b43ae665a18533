"""`pyanalyze residency`: who held the GPU: slices, switches, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("held", "tenants")
KEYS = {"context_switches", "device_id", "name", "tenants", "uuid", "window"}


@verb("residency", ("table", "json"))
def command(session: Session, fmt: str) -> str:
    """Say who held the GPU when, and what switching cost."""
    return answer(session, SECTIONS, KEYS, fmt)
