"""A page of blocks as a file: Markdown or HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyanalyze.report.blocks import Page
    from pyanalyze.report.html import Charts

__all__ = ["file_of"]


def file_of(page: Page, form: str, charts: Callable[[], Charts], choices: str) -> str:
    """Write a page.

    Parameters
    ----------
    page
        The page.
    form
        ``md`` or ``html``.
    charts
        Draws the charts by key; called for HTML only.
    choices
        All formats that the caller knows, for the error.

    Raises
    ------
    pyanalyze.errors.UsageError
        Another format.

    Examples
    --------
    >>> from pyanalyze.report.blocks import Page
    >>> file_of(Page(title="Run", subtitle="", lead=(), notes=(), sections=()), "md", dict, "md, html").splitlines()[0]
    '# Run'
    """
    if form == "md":
        from pyanalyze.report.markdown import markdown_page

        return markdown_page(page)
    if form == "html":
        from pyanalyze.core import _core
        from pyanalyze.report.html import html_page

        return html_page(page, charts(), f"pyanalyze {_core.__version__}")
    raise UsageError(f"there is no format {form}; choose from {choices}")
