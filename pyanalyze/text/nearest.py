"""The word that was probably meant by one that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Find the known word that was probably meant.

    Examples
    --------
    >>> nearest("clasify", ["classify", "kernels"]), nearest("run.sqlite", ["classify"])
    ('classify', None)
    """
    from difflib import get_close_matches

    found = get_close_matches(word.casefold(), list(known), n=1, cutoff=0.7)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the known word that is nearest, behind a sentence; empty where none is near.

    Examples
    --------
    >>> did_you_mean("JSN", ["json", "csv"])
    '. Did you mean `json`?'
    """
    found = nearest(word, known)
    return "" if found is None else f". Did you mean `{found}`?"
