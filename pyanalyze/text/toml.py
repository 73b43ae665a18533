"""TOML files of people: read whole, and bounded."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.errors import UsageError
from pyanalyze.text.numbers import within_64_bits

if TYPE_CHECKING:
    import os

__all__ = ["read_toml"]

#: Nobody writes more by hand.
_MOST_BYTES = 4 << 20


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    OSError
        It cannot be read.
    pyanalyze.errors.UsageError
        Not TOML, too large, or with a number of more than 64 bits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.toml"
    ...     _ = file.write_text("limit = 1.5")
    ...     read_toml(file)
    {'limit': 1.5}
    """
    file = Path(path)
    with file.open("rb") as stream:
        # No more is read than is used: a device has no end.
        body = stream.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise UsageError(f"{file}: more than {_MOST_BYTES >> 20} MiB, which is no TOML file that anybody wrote")
    try:
        table = tomllib.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not TOML: {error}") from error
    if not within_64_bits(table):
        raise UsageError(f"{file}: a number has more than 64 bits")
    return table
