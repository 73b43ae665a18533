"""Everything that shows an answer: the JSON contract and its HTML, Markdown and text pictures.

Names are fetched when they are asked for: escaping a name for a terminal must not cost what the contract's models cost.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyanalyze.report.markdown import render_markdown
    from pyanalyze.report.model import Report, json_schema
    from pyanalyze.report.rendering import render
    from pyanalyze.report.text import first_screen, render_text

__all__ = ["Report", "first_screen", "json_schema", "render", "render_markdown", "render_text"]

#: Where each name lives.
_HOMES = {
    "Report": "model",
    "first_screen": "text",
    "json_schema": "model",
    "render": "rendering",
    "render_markdown": "markdown",
    "render_text": "text",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyanalyze.report' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pyanalyze.report.{_HOMES[name]}"), name)
