"""`pyanalyze advise`: what to change, with bounds, and how to undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("advice",)
KEYS = {"advice", "device_id", "name", "uuid"}


@verb("advise", ("table", "json"))
def command(session: Session, fmt: str) -> str:
    """Say what to change, what it gives at most, and how to take it back."""
    return answer(session, SECTIONS, KEYS, fmt)
