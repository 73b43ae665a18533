"""Everything that shows an answer: the JSON contract and its HTML, Markdown and text pictures.

``pyanalyze.report.html`` is imported where it is needed: altair and vl-convert are slow to load.
"""

from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.model import Report, json_schema
from pyanalyze.report.render import render
from pyanalyze.report.text import first_screen, render_text

__all__ = ["Report", "first_screen", "json_schema", "render", "render_markdown", "render_text"]
