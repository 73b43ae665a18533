"""Rows of a CSV file that a user wrote: units of work, latencies."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from pyanalyze.errors import UsageError
from pyanalyze.files import read_bounded

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["csv_rows"]

#: Some millions of rows; each is one in Python.
_MOST_BYTES = 256 << 20


def csv_rows(path: Path) -> tuple[list[str], list[dict[str, str | None]]]:
    r"""Read a CSV file with a header.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    tuple of list of str and list of dict
        Names of the columns, and the rows by name.

    Raises
    ------
    pyanalyze.errors.UsageError
        If it is not a CSV file, or too large.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "requests.csv"
    ...     _ = file.write_text("tenant,start\napp_a,5\n")
    ...     csv_rows(file)
    (['tenant', 'start'], [{'tenant': 'app_a', 'start': '5'}])
    """
    body = read_bounded(path, _MOST_BYTES)
    if body is None:
        raise UsageError(f"{path}: more than {_MOST_BYTES >> 20} MiB; give fewer rows")
    try:
        reader = csv.DictReader(io.StringIO(body.decode("utf-8-sig"), newline=""))
        return list(reader.fieldnames or ()), list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a CSV file: {error}") from error
