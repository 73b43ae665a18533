"""The only ways out of a command: standard output, and messages on standard error.

Both show text as it cannot command a terminal. A reader that went away, or a stream that was closed before the program
began, is nobody's error: what is said there is lost, and the exit code stays what the command found.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO

import click

from pyanalyze.text.visible import printable, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["open_closed", "out", "say"]


def out(text: str, tenants: Sequence[str] | None = None) -> None:
    """Print text of one or more lines on standard output, with one line end behind it; tenants: in colour."""
    shown = printable(text)
    if tenants is not None:
        from pyanalyze.cli.colour import painted

        # What could command the terminal is gone; what does so now is ours.
        shown = painted(shown, tenants)
    _write(shown, sys.stdout, err=False, nl=not text.endswith("\n"))


def say(text: str, *, of: str = "pyanalyze: ") -> None:
    """Print a message on standard error; a line end in it cannot begin a line of its own."""
    _write(f"{of}{visible(text, limit=None)}", sys.stderr, err=True, nl=True)


def open_closed() -> None:
    """Open the null device in place of standard streams that are closed.

    Else the next file that is opened gets such a number, and what libraries write on standard error goes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: this one.
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if getattr(sys, name) is None:
            mode: Literal["r", "w"] = "r" if number == 0 else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _write(text: str, stream: TextIO | None, *, err: bool, nl: bool) -> None:
    try:
        click.echo(text, nl=nl, err=err)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EBADF) or stream is None:
            raise
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Let what is still in the buffer, and whatever follows, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
