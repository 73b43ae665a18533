"""Words of the command line that a person may mistype: verbs, formats, modes. A near miss is answered with the word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyanalyze.text.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Choice", "ModePattern"]


class Choice(click.Choice[str]):
    """One of several words, in upper or lower case; a near miss is answered with the word."""

    def __init__(self, choices: Iterable[str]) -> None:
        super().__init__(tuple(choices), case_sensitive=False)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Name the words, and the nearest."""
        return f"{str(value)[:40]!r} is not one of {', '.join(self.choices)}{did_you_mean(str(value), self.choices)}"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Name the words on one line: tabs of a message are made visible."""
        return f"Choose from {', '.join(self.choices)}"


class ModePattern(click.ParamType[str]):
    """A sharing mode, or a pattern such as `mps*` that a mode matches; case does not matter."""

    name = "MODE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it before the work, not after it."""
        from fnmatch import fnmatchcase

        from pyanalyze.vocabulary import MODES

        pattern = str(value).casefold()
        if not any(fnmatchcase(mode, pattern) for mode in MODES):
            said = f"{str(value)[:40]!r} matches no mode; modes are {', '.join(MODES)}"
            self.fail(f"{said}{did_you_mean(pattern, MODES)}", param, ctx)
        return pattern
