"""Everything that shows an answer: the JSON contract and its HTML, Markdown and text pictures.

``pyanalyze.report.html`` is imported where it is needed: altair and vl-convert are slow to load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyanalyze.report.markdown import render_markdown
    from pyanalyze.report.model import Report, json_schema
    from pyanalyze.report.render import render
    from pyanalyze.report.text import first_screen, render_text

__all__ = ["Report", "first_screen", "json_schema", "render", "render_markdown", "render_text"]

# Fetched when asked for: the recorder takes `pyanalyze.report.escape` on machines without polars and pydantic.
_HOMES = {
    "Report": "model",
    "first_screen": "text",
    "json_schema": "model",
    "render": "render",
    "render_markdown": "markdown",
    "render_text": "text",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyanalyze.report' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyanalyze.report.{_HOMES[name]}"), name)
