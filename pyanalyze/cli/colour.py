"""Colours on a terminal. Colours repeat what the words say: without them the text is the same, letter by letter."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NO_COLOUR", "is_wanted", "painted", "terminal_columns"]

#: Whether --no-color was given: a key of the metadata of click's context.
NO_COLOUR = "pyanalyze.no-colour"
#: Of the tenants, the largest first; they are read on black and on white.
_TENANTS = ("cyan", "magenta", "green", "blue", "bright_red", "bright_cyan", "bright_magenta", "bright_green")
#: What is coloured whoever the tenants are: a regular expression, and the style of its match.
_STYLES = (
    # Labels of the summary, which begin a line, and titles, which have a line below them.
    (r"(?m)^(?:[A-Z][a-z]+|[A-Z][A-Za-z]+ (?:loss|read|time))(?= {2,}\S)", "bold"),
    (r"(?m)^.+(?=\n[-=]{4,}$)", "bold"),
    (r"(?m)^[-=]{4,}$", "dim"),
    (r"(?m)^(?:SYNTHETIC CAPTURE|! [A-Z ]+:)", "yellow"),
    (r"Sharing is the cause: yes", "bold red"),
    (r"Sharing is the cause: no|Sharing slows no tenant", "bold green"),
    (r"Sharing is the cause: unknown", "bold yellow"),
    (r"MISMATCH|\[(?:error|data-loss)\]|(?m:^Data loss)", "bold red"),
    (r"(?<![\w.])\d+\.\d+x(?!\w)", "bold"),
    (r"\[(?:observed|inferred|modelled|sampled|configured|info|notice)\]", "dim"),
    (r"not known", "dim"),
)


def is_wanted(*, refused: bool) -> bool:
    """Tell whether standard output is a terminal on which nobody refused colours (NO_COLOR, --no-color)."""
    return not (refused or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb") and sys.stdout.isatty()


def terminal_columns() -> int | None:
    """The width of the terminal; None: standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def painted(text: str, tenants: Sequence[str]) -> str:
    r"""Colour a text for a terminal.

    Parameters
    ----------
    text
        What is printed: nothing in it commands a terminal.
    tenants
        Names as the text shows them, the largest first: each has its colour, and so have the bars beside it.

    Examples
    --------
    >>> painted("app_a  2.04x", ["app_a"])
    '\x1b[36mapp_a\x1b[0m  \x1b[1m2.04x\x1b[0m'
    """
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    drawn = Text(text)
    for pattern, style in _STYLES:
        drawn.highlight_regex(pattern, style)
    # The longest name first: one may be a part of another.
    named = sorted(zip(tenants, _colours(tenants), strict=True), key=lambda pair: len(pair[0]))
    for name, colour in named:
        if len(name) > 1:
            drawn.highlight_regex(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", colour)
    for found in re.finditer(r"(?m)^.*?(█+)", text):
        whose = [(len(name), colour) for name, colour in named if name in found[0]]
        drawn.stylize(max(whose)[1] if whose else "default", *found.span(1))
    told = StringIO()
    # The terminal breaks lines where it must: what is copied from it has none of ours.
    Console(file=told, force_terminal=True, color_system="standard", no_color=False, highlight=False).print(
        drawn, soft_wrap=True, end=""
    )
    return told.getvalue()


def _colours(tenants: Iterable[str]) -> list[str]:
    return [_TENANTS[place % len(_TENANTS)] for place, _ in enumerate(tenants)]
