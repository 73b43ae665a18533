"""`pyanalyze report`: everything in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import verb

if TYPE_CHECKING:
    from pyanalyze.session import Session


@verb("report", ("html", "md", "json", "txt"), "html", slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Write all that is known: -f html (one self-contained file), md, json (the contract) or txt."""
    from pyanalyze.report import render

    return render(session, fmt)
