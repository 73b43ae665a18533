"""`pyanalyze CAPTURE...`: the summary, at most 15 lines to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import verb

if TYPE_CHECKING:
    from pyanalyze.session import Session


@verb("summary", ("table", "json"), slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Summarise in at most 15 lines: sharing mode, GPU time, slowdown, cause and advice."""
    from pyanalyze.report.summary import SUMMARY_PARTS, render_summary

    return session.report().to_json() if fmt == "json" else render_summary(session.report(parts=SUMMARY_PARTS))
