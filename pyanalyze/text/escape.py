"""Hostile text made showable, for everything that renders; :mod:`pyanalyze.text.visible` says how.

It lives outside this package because the recorder needs it where nothing else of a report can be imported.
"""

from pyanalyze.text.visible import NAME_LIMIT, markdown, visible

__all__ = ["NAME_LIMIT", "markdown", "spreadsheet", "visible"]


def spreadsheet(text: str) -> str:
    """Text for a CSV cell that no spreadsheet takes for a formula.

    A leading apostrophe makes the rest plain text where people open the file in a spreadsheet; programs that read
    CSV see it, so only text gets it, never a number, and only before the characters that start a formula.

    Examples
    --------
    >>> spreadsheet("=SUM(A1)"), spreadsheet("saxpy")
    ("'=SUM(A1)", 'saxpy')
    """
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
