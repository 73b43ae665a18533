"""The configured side: what the machine was told to do, from listings and logs that people attach.

A new format is one file with a `READER` and one entry in `READERS`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.errors import SamplesUnreadable, UnknownFormat
from pyanalyze.files import read_bounded
from pyanalyze.inputs.context import (
    compute_policy,
    device_plugin,
    kubernetes,
    mig_listing,
    mig_parted,
    mps_control,
    mps_log,
    node,
    nvidia_smi_list,
)
from pyanalyze.inputs.context.base import INNER_PID
from pyanalyze.text.numbers import MOST_PID, bounded_int
from pyanalyze.text.pairs import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.inputs.context.base import Reader, Row

__all__ = ["READERS", "formats_of", "identities", "place_context", "read_context"]

READERS: tuple[Reader, ...] = (
    nvidia_smi_list.READER,
    mig_listing.READER,
    compute_policy.READER,
    mps_log.READER,
    mps_control.READER,
    kubernetes.READER,
    device_plugin.READER,
    mig_parted.READER,
    node.READER,
)

#: Logs of a daemon that ran for months; every reader goes over all of it.
_MOST_BYTES = 64 << 20

# The table `configured` of rust/core/src/table/schema/; dictionary-encoded names are Categorical in polars.
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
        `pid`, `device_id` null (these files know UUIDs and nvidia-smi's order, not the session's devices: see
        :func:`place_context`), `key`, `value`. Keys and values are described in the readers' modules.

    Raises
    ------
    SamplesUnreadable
        The file is too large; its subclass UnknownFormat where no reader knows anything in it (the message names the
        formats that are known).
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
        raise UnknownFormat(f"{os.fspath(path)}: no known context format; known are {formats}")
    rows = [(None, reader.name, row.pid, None, row.key, row.value) for reader, row in found]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def formats_of(path: str | os.PathLike[str]) -> list[str]:
    """Name the formats of configuration that are found in a file; none where it cannot be read as text.

    Examples
    --------
    >>> formats_of(capture)
    []
    """
    try:
        text = _text(Path(path))
    except (SamplesUnreadable, OSError):
        return []
    return [reader.title for reader in READERS if reader.sniff(text)]


#: Readers of what one machine says of its own GPUs: indexes in them are those of its samples.
_OF_MACHINE = (nvidia_smi_list.READER.name, mig_listing.READER.name, compute_policy.READER.name)


def place_context(
    frames: Sequence[pl.DataFrame], devices: pl.DataFrame, samples: pl.DataFrame | None = None
) -> list[pl.DataFrame]:
    """Tie rows to the devices of a session: by UUID, or by nvidia-smi's index where a listing or samples tell whose.

    Parameters
    ----------
    frames
        What :func:`read_context` returned, one per file; a listing in one file serves the others.
    devices
        The table `devices`.
    samples
        The table `nvml_samples`: tables of nvidia-smi print an index and no UUID. None: there are none.

    Returns
    -------
    list of polars.DataFrame
        The same rows, `device_id` filled where one device is meant. A row about a GPU that the session does not
        show, or about a board of which it shows an instance, keeps null.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> uuid = session.devices["uuid"][0]
    >>> row = {"key": "gpu", "value": f"gpu=0 uuid={uuid} name=X", "device_id": None}
    >>> place_context([pl.DataFrame([row])], session.devices)[0]["device_id"].to_list()
    [0]
    """
    known = {row["uuid"]: row["device_id"] for row in devices.iter_rows(named=True) if row["uuid"]}
    by_index: dict[str, str] = {}
    for frame in frames:
        for value in frame.filter(pl.col("key").cast(pl.String) == "gpu")["value"]:
            fields = parse_pairs(value)
            by_index.setdefault(fields.get("gpu", ""), fields.get("uuid", ""))
    sampled = {} if samples is None else _sampled_indexes(samples)
    placed = []
    for frame in frames:
        sources = frame["source"].cast(pl.String) if "source" in frame.columns else [""] * frame.height
        numbers = [
            _device(value, known, by_index, sampled if source in _OF_MACHINE else {})
            for source, value in zip(sources, frame["value"], strict=True)
        ]
        placed.append(frame.with_columns(pl.Series("device_id", numbers, dtype=pl.UInt32)))
    return placed


def _sampled_indexes(samples: pl.DataFrame) -> dict[str, int]:
    """Devices by the index that samples give each board, where they give it to no other."""
    boards = samples.filter(pl.col("mig_gi").is_null(), pl.col("pid").is_null())
    found: dict[str, set[int]] = {}
    for index, device in boards.select("gpu_index", "device_id").drop_nulls().unique().iter_rows():
        found.setdefault(str(index), set()).add(device)
    return {index: devices.pop() for index, devices in found.items() if len(devices) == 1}


def identities(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Collect what was written down of processes of the host.

    Parameters
    ----------
    frames
        Tables `configured`, as :func:`read_context` returns them.

    Returns
    -------
    polars.DataFrame
        The table `identities`: `host_pid`, and `pid`, which it has in its own namespace.

    Examples
    --------
    >>> identities([pl.DataFrame([{"pid": 4711, "key": "process_pid", "value": "1"}])]).rows()
    [(4711, 1)]
    """
    rows = [
        (pid, inner)
        for frame in frames
        for pid, value in frame.filter(pl.col("key").cast(pl.String) == INNER_PID).select("pid", "value").iter_rows()
        if (inner := bounded_int(value, 0, MOST_PID)) is not None
    ]
    return pl.DataFrame(rows, schema={"host_pid": pl.UInt32, "pid": pl.UInt32}, orient="row").unique(
        maintain_order=True
    )


def _device(value: str, known: dict[str, int], by_index: dict[str, str], sampled: dict[str, int]) -> int | None:
    fields = parse_pairs(value)
    uuid = fields.get("uuid") or by_index.get(fields.get("gpu", ""))
    if uuid is None:
        return sampled.get(fields.get("gpu", ""))
    if not uuid.startswith(("GPU-", "MIG-")):
        return None
    # `ps` of the MPS daemon prints the first part of a UUID.
    matches = {device for full, device in known.items() if full == uuid or full.startswith(f"{uuid}-")}
    return matches.pop() if len(matches) == 1 else None


def _text(path: Path) -> str:
    data = read_bounded(path, _MOST_BYTES)
    if data is None:
        raise SamplesUnreadable(f"{path}: more than {_MOST_BYTES >> 20} MiB, which is no listing; cut out what matters")
    # PowerShell redirects in UTF-16.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, errors="replace")
