"""Read what comes through a pipe once, so that every reader can look at it; refuse what cannot be read at all."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.errors import NotACapture, SamplesUnreadable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    PathLike = str | os.PathLike[str]

__all__ = ["is_pipe", "is_unnamed", "refuse_pipes", "refuse_urls", "spooled"]

#: One slash where a path was made of it.
_URL = re.compile(r"(?:https?|ftp|s3|gs|file):/", re.IGNORECASE)
_STDIN = "/dev/stdin"
#: More than any samples or listing that people pipe.
_MOST_BYTES = 1 << 30


def refuse_urls(paths: Iterable[PathLike]) -> None:
    """Refuse addresses of the web: nothing is fetched.

    Raises
    ------
    pyanalyze.errors.UsageError
        One of the paths is an address.

    Examples
    --------
    >>> refuse_urls(["https:/example.com/a.csv"])
    Traceback (most recent call last):
    ...
    pyanalyze.errors.UsageError: https://example.com/a.csv: URLs are not read; download it to a file and give that
    """
    for path in paths:
        text = os.fspath(path)
        if _URL.match(text):
            # A path has lost one of two slashes.
            shown = re.sub(r":/+", "://", text, count=1)
            raise UsageError(f"{shown}: URLs are not read; download it to a file and give that")


def is_unnamed(path: PathLike) -> bool:
    """Whether a path is standard input or a process substitution: somebody writes into it, and it has no other name.

    Examples
    --------
    >>> is_unnamed("-"), is_unnamed("/dev/fd/63"), is_unnamed("capture.sqlite")
    (True, True, False)
    """
    return os.fspath(path).startswith(("/dev/", "/proc/")) or os.fspath(path) == "-"


def is_pipe(path: PathLike) -> bool:
    """Whether a path is a pipe or a socket: it can be read once, and opening it may wait; `-` is standard input.

    Examples
    --------
    >>> is_pipe("/dev/null")
    False
    """
    try:
        mode = Path(_STDIN if os.fspath(path) == "-" else path).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def refuse_pipes(paths: Iterable[PathLike]) -> None:
    """Refuse pipes for what is read more than once.

    Raises
    ------
    pyanalyze.errors.NotACapture
        One of the paths is a pipe.
    """
    for path in paths:
        if is_pipe(path):
            raise NotACapture(f"{os.fspath(path)} is a pipe: save it to a file first")


@contextmanager
def spooled(*lists: Sequence[PathLike]) -> Iterator[tuple[list[list[PathLike]], Mapping[Path, str]]]:
    """Copy what comes through pipes to files that are gone afterwards; `-` is standard input.

    Of the first list, of captures, only pipes without a name: a capture is read more than once, and a named pipe to
    which nobody writes never ends.

    Yields
    ------
    tuple
        The lists, with files in place of pipes; and of each of these files how it was named.

    Raises
    ------
    pyanalyze.errors.SamplesUnreadable
        More than 1 GiB came.

    Examples
    --------
    >>> with spooled(["a.csv"], []) as (lists, shown):
    ...     lists, shown
    ([['a.csv'], []], {})
    """
    given = [[_STDIN if os.fspath(path) == "-" else path for path in paths] for paths in lists]
    captures, *others = given
    asked = [*(path for path in captures if is_unnamed(path)), *(path for paths in others for path in paths)]
    pipes = [name for name in dict.fromkeys(os.fspath(path) for path in asked) if is_pipe(name)]
    if not pipes:
        yield given, {}
        return
    with tempfile.TemporaryDirectory(prefix="pyanalyze-") as folder:
        # A file is found again in every list that names it.
        copies = {pipe: _copied(pipe, Path(folder) / f"pipe-{number}") for number, pipe in enumerate(pipes)}
        shown = {copy: "standard input" if pipe == _STDIN else pipe for pipe, copy in copies.items()}
        yield [[copies.get(os.fspath(path), path) for path in paths] for paths in given], shown


def _copied(pipe: str, copy: Path) -> Path:
    left = _MOST_BYTES
    with Path(pipe).open("rb") as source, copy.open("wb") as target:
        while part := source.read(1 << 20):
            left -= len(part)
            if left < 0:
                raise SamplesUnreadable(f"{pipe}: more than 1 GiB came through this pipe; save it to a file first")
            target.write(part)
    return copy
