"""Reports that were saved as JSON, in the place of the captures that they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.errors import NotACapture
from pyanalyze.files import head_of, read_bounded
from pyanalyze.tables.memory import budget_bytes
from pyanalyze.text.escape import visible
from pyanalyze.text.numbers import within_64_bits

if TYPE_CHECKING:
    import os

    from pyanalyze.results.report import Report

__all__ = ["is_saved", "read_saved"]


#: Objects in Python take so many times the room of their JSON.
_GROWTH = 20


def largest() -> int:
    """Bytes of the largest report that the memory budget of this process allows to read.

    Examples
    --------
    >>> largest() > 10_000_000
    True
    """
    return budget_bytes() // _GROWTH


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a file is JSON by its name or its first character; a missing one is not.

    Examples
    --------
    >>> is_saved(capture)
    False
    """
    file = Path(path)
    if not file.is_file():
        return False
    if file.suffix == ".json":
        return True
    return head_of(file, 64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def read_saved(path: str | os.PathLike[str]) -> Report:
    """Read what `pyanalyze report -f json` wrote.

    Raises
    ------
    OSError
        It cannot be read.
    pyanalyze.errors.NotACapture
        Not such a report; the message names the first key that does not fit, and of a report that another build
        wrote, the versions of both.

    Examples
    --------
    >>> import tempfile, pyanalyze
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "report.json"
    ...     _ = file.write_text(pyanalyze.load(capture).report().to_json())
    ...     read_saved(file).devices[0].sharing.mode
    'time-slicing'
    """
    from pydantic import ValidationError

    from pyanalyze.results.report import Report

    most = largest()
    body = read_bounded(path, most)
    if body is None:
        raise NotACapture(f"{path} is no saved report that {most >> 20} MiB hold; give more memory (--memory)")
    try:
        read = Report.from_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        if (writer := _writer(body)) is not None and first["type"] in ("extra_forbidden", "missing"):
            raise NotACapture(
                f"{path} was written by pyanalyze {writer}, this is {_core.__version__}: their keys differ "
                f"({where}: {first['msg']}); make the report again from the captures"
            ) from error
        if (what := _settings_of(Path(path))) is not None:
            raise NotACapture(
                f"{path} holds {what} and is not a saved report: give it with --context, beside a capture or samples"
            ) from error
        raise NotACapture(
            f"{path} is not a saved report ({where}: {first['msg']}); `pyanalyze report -f json` writes one"
        ) from error
    if not within_64_bits(read.model_dump()):
        raise NotACapture(f"{path} is not a saved report: it has numbers of more than 64 bits")
    return read


def _settings_of(path: Path) -> str | None:
    """What a reader of configuration calls a file; None: none knows anything in it."""
    from pyanalyze.inputs.context import formats_of

    return next(iter(formats_of(path)), None)


def _writer(body: bytes) -> str | None:
    """Version of the program that wrote a report; None: it is no report of this contract."""
    from pyanalyze.results.report import SCHEMA_ID

    try:
        found = json.loads(body)
        return visible(str(found["tool"]["version"]), 24) if found["schema"] == SCHEMA_ID else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
