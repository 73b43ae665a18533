"""`pyanalyze CAPTURE...`: the first screen, at most 15 lines to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import verb

if TYPE_CHECKING:
    from pyanalyze.session import Session


@verb("screen", ("table", "json"), slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Say in at most 15 lines how the GPU was shared, who held it, and what to do."""
    from pyanalyze.report.text import SCREEN_PARTS, first_screen

    return session.report().to_json() if fmt == "json" else first_screen(session.report(parts=SCREEN_PARTS))
