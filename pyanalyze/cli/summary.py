"""`pyanalyze CAPTURE...`: the summary, at most 15 lines to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import verb

if TYPE_CHECKING:
    from pyanalyze.session import Session


@verb("summary", ("table", "json"), slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Summarise in at most 15 lines: sharing mode, GPU time, slowdown, cause and advice."""
    return session.report().to_json() if fmt == "json" else str(session)
