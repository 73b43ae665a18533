"""The configured side: what the machine was told to do, from listings and logs that people attach.

A new format is one file with a `READER` and one entry in `READERS`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.context import mig_listing, mps_log, nvidia_smi_list
from pyanalyze.exceptions import SamplesUnreadable

if TYPE_CHECKING:
    from pyanalyze.context.base import Reader, Row

__all__ = ["READERS", "read_context"]

READERS: tuple[Reader, ...] = (nvidia_smi_list.READER, mig_listing.READER, mps_log.READER)

# The table `configured` of rust/core/src/schema.rs; dictionary-encoded names are Categorical in polars.
_SCHEMA = {
    "capture": pl.UInt32,
    "source": pl.Categorical,
    "pid": pl.UInt32,
    "device_id": pl.UInt32,
    "key": pl.Categorical,
    "value": pl.String,
}


def read_context(path: str | os.PathLike[str]) -> pl.DataFrame:
    """Read a listing or log of the configured side.

    Parameters
    ----------
    path
        A text file. Everything in it that a reader knows is read, so a pasted terminal with several commands
        is fine.

    Returns
    -------
    polars.DataFrame
        Rows of the table `configured`: `capture` null (no capture says this), `source` the reader's name,
        `pid`, `device_id` null (these files know UUIDs and nvidia-smi's order, not the session's devices),
        `key`, `value`. Keys and values are described in the readers' modules.

    Raises
    ------
    SamplesUnreadable
        No reader knows anything in the file; the message names the formats that are known.
    OSError
        The file cannot be read.

    Notes
    -----
    Values hold product names, which are hostile text: escape them wherever they are shown. Users named in MPS
    logs are not read out.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "list.txt"
    ...     _ = file.write_text("GPU 0: NVIDIA L40S (UUID: GPU-00000000-0000-0000-0000-000000000001)")
    ...     read_context(file).select("source", "key", "value").rows()
    [('nvidia-smi-list', 'gpu', 'gpu=0 uuid=GPU-00000000-0000-0000-0000-000000000001 name=NVIDIA L40S')]
    """
    text = _text(Path(path))
    found: list[tuple[Reader, Row]] = []
    known = False
    for reader in READERS:
        if reader.sniff(text):
            known = True
            found.extend((reader, row) for row in reader.read(text))
    if not known:
        formats = ", ".join(reader.title for reader in READERS)
        raise SamplesUnreadable(f"{os.fspath(path)}: no known context format; known are {formats}")
    rows = [(None, reader.name, row.pid, None, row.key, row.value) for reader, row in found]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _text(path: Path) -> str:
    data = path.read_bytes()
    # PowerShell redirects in UTF-16.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, errors="replace")
