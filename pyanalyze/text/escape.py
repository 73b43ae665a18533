"""Hostile text made showable, for everything that renders; :mod:`pyanalyze.text.visible` says how.

It lives outside this package because the recorder needs it where nothing else of a report can be imported.
"""

from typing import TypeVar

from pyanalyze.text.visible import NAME_LIMIT, markdown, program, visible

__all__ = ["NAME_LIMIT", "csv_cell", "markdown", "program", "spreadsheet", "visible"]

_Cell = TypeVar("_Cell")

#: What a spreadsheet takes for the beginning of a formula; full-width signs too, in some languages.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_cell(value: _Cell) -> _Cell | str:
    r"""Whatever a CSV file of ours may hold: text as it commands no terminal and no spreadsheet, all else as it is.

    Examples
    --------
    >>> csv_cell("=cmd|'/c calc'!A1\x1b[2J"), csv_cell(-1.5)
    ("'=cmd|'/c calc'!A1\\x1b[2J", -1.5)
    """
    if not isinstance(value, str):
        return value
    # A tab in a cell is harmless, except as its first character.
    return spreadsheet("\t".join(visible(part, limit=None) for part in value.split("\t")))


def spreadsheet(text: str) -> str:
    """Text for a CSV cell that no spreadsheet takes for a formula.

    A leading apostrophe makes the rest plain text where people open the file in a spreadsheet; programs that read
    CSV see it, so only text gets it, never a number, and only before the characters that start a formula.

    Examples
    --------
    >>> spreadsheet("=SUM(A1)"), spreadsheet("saxpy")
    ("'=SUM(A1)", 'saxpy')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
