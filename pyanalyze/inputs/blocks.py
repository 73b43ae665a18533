"""Measured blocks of kernels: which SM each ran on, from when to when, as an instrumented program wrote it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.errors import UsageError
from pyanalyze.files import read_bounded
from pyanalyze.inputs.csv_rows import csv_rows
from pyanalyze.text.numbers import FARTHEST_NS, MOST_PID, bounded_float, bounded_int

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

__all__ = ["MeasuredBlocks", "read_blocks"]

#: Some millions of blocks.
_MOST_BYTES = 256 << 20
#: No GPU has as many SMs.
_MOST_SMS = 1 << 16
#: No launch has as many blocks.
_MOST_BLOCKS = 1 << 40
#: Of one block in ``.blocks.bin`` of the kit: launch, block, SM, warps, start, end (GPU clock); little endian.
_KIT_BLOCK = struct.Struct("<IIIIQQ")
_KIT_FORMAT = "pyanalyze.blocks/1"
_CSV_COLUMNS = ("kernel", "block", "sm", "start_ns", "end_ns")


@dataclass(frozen=True)
class MeasuredBlocks:
    r"""Blocks of one process, or of one stream of it, on a clock of their own.

    Attributes
    ----------
    path
        The file, as the caller named it.
    launches
        `launch` (0, 1, ...), `pid` (null: not written down), `kernel`, `blocks` (those that were measured),
        `block_threads` and `shared_bytes` (null: not written down), `start_ns` and `end_ns` (of the first block to
        start and the last one to end), by start.
    blocks
        `launch`, `block`, `sm`, `start_ns`, `end_ns`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "blocks.csv"
    ...     _ = file.write_text("kernel,block,sm,start_ns,end_ns\nk,0,0,100,200\nk,1,2,100,210\n")
    ...     read_blocks(file).launches.select("kernel", "blocks", "start_ns", "end_ns").row(0)
    ('k', 2, 100, 210)
    """

    path: Path
    launches: pl.DataFrame
    blocks: pl.DataFrame


def read_blocks(path: Path) -> MeasuredBlocks:
    """Read measured blocks.

    Parameters
    ----------
    path
        One of: JSON of cuda_scheduling_examiner (`times[].block_times` and `block_smids`); ``PREFIX.meta.json`` that
        the kit in fixtures/hardware wrote, with ``PREFIX.launches.csv`` and ``PREFIX.blocks.bin`` beside it; a CSV
        file with the columns kernel, block, sm, start_ns, end_ns, one row per block, times on any one clock in whole
        nanoseconds. In a CSV file a kernel's launches follow each other: where a block number comes again, the next
        launch begins.

    Returns
    -------
    MeasuredBlocks
        What was measured.

    Raises
    ------
    pyanalyze.errors.UsageError
        Naming what cannot be understood.
    OSError
        As the operating system says.
    """
    if path.suffix.lower() == ".csv":
        return _made(path, _of_csv(path))
    body = read_bounded(path, _MOST_BYTES)
    if body is None:
        raise UsageError(f"{path}: more than {_MOST_BYTES >> 20} MiB of measured blocks; give a part of them")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: neither CSV nor JSON of measured blocks: {error}") from None
    if isinstance(document, dict) and document.get("format") == _KIT_FORMAT:
        return _made(path, _of_kit(path, document))
    if isinstance(document, dict) and isinstance(document.get("times"), list):
        return _made(path, _of_examiner(path, document))
    raise UsageError(
        f"{path}: no measured blocks; give JSON of cuda_scheduling_examiner, .meta.json of fixtures/hardware, or CSV "
        f"with {', '.join(_CSV_COLUMNS)}"
    )


#: Of a launch: pid, kernel, threads of a block, shared bytes, and (block, sm, start, end) of each block.
_Launch = tuple[int | None, str, int | None, int | None, list[tuple[int, int, int, int]]]


def _made(path: Path, found: Iterator[_Launch]) -> MeasuredBlocks:
    import polars as pl

    measured = [launch for launch in found if launch[4]]
    if not measured:
        raise UsageError(f"{path}: no block was measured")
    measured.sort(key=lambda launch: min(block[2] for block in launch[4]))
    launches, blocks = [], []
    for number, (pid, kernel, threads, shared, rows) in enumerate(measured):
        start, end = min(row[2] for row in rows), max(row[3] for row in rows)
        launches.append((number, pid, kernel, len(rows), threads, shared, start, end))
        blocks += [(number, *row) for row in rows]
    whole, small = pl.Int64, pl.UInt32
    return MeasuredBlocks(
        path,
        pl.DataFrame(
            launches,
            schema={
                "launch": small, "pid": small, "kernel": pl.String, "blocks": whole, "block_threads": small,
                "shared_bytes": whole, "start_ns": whole, "end_ns": whole,
            },
            orient="row",
        ),
        pl.DataFrame(
            blocks,
            schema={"launch": small, "block": whole, "sm": small, "start_ns": whole, "end_ns": whole},
            orient="row",
        ),
    )  # fmt: skip


def _of_examiner(path: Path, document: dict[str, Any]) -> Iterator[_Launch]:
    """Times are seconds with steps of 32 ns; the first entry of `times` may hold nothing but host times."""
    pid = _whole(path, document.get("PID"), "PID", MOST_PID) if "PID" in document else None
    for number, kernel in enumerate(document["times"]):
        where = f"times[{number}]"
        if not isinstance(kernel, dict) or not kernel.get("block_times"):
            continue
        times, sms = kernel["block_times"], kernel.get("block_smids")
        if not isinstance(times, list) or not isinstance(sms, list) or len(times) != 2 * len(sms):
            raise UsageError(f"{path}: {where} needs two block_times (start, end) for each of its block_smids")
        moments = [_seconds(path, time, where) for time in times]
        places = [_whole(path, sm, f"{where}.block_smids", _MOST_SMS) for sm in sms]
        yield (
            pid,
            str(kernel.get("kernel_name", "")),
            _whole(path, kernel["thread_count"], f"{where}.thread_count", 1 << 16)
            if "thread_count" in kernel
            else None,
            _whole(path, kernel["shared_memory"], f"{where}.shared_memory", 1 << 40)
            if "shared_memory" in kernel
            else None,
            [
                _block(path, where, block, sm, start, end)
                for block, (sm, start, end) in enumerate(zip(places, moments[::2], moments[1::2], strict=True))
            ],
        )


def _of_kit(path: Path, document: dict[str, Any]) -> Iterator[_Launch]:
    prefix = path.with_name(path.name.removesuffix(".meta.json"))
    data = read_bounded(f"{prefix}.blocks.bin", _MOST_BYTES)
    if data is None or len(data) % _KIT_BLOCK.size:
        raise UsageError(f"{prefix}.blocks.bin: too large, or it ends in the middle of a block")
    pid = _whole(path, document["pid"], "pid", MOST_PID) if "pid" in document else None
    by_launch: dict[int, list[tuple[int, int, int, int]]] = {}
    for launch, block, sm, warps, start, end in _KIT_BLOCK.iter_unpack(data):
        if warps:  # a place that no block wrote is zero, and no block has zero warps
            where = f"launch {launch}"
            times = (_time(path, moment, where) for moment in (start, end))
            place = _block(path, where, block, _whole(path, sm, where, _MOST_SMS), *times)
            by_launch.setdefault(launch, []).append(place)
    _, launches = csv_rows(Path(f"{prefix}.launches.csv"))
    for one in launches:
        number = _whole(path, one.get("launch"), "launches.csv: launch", 1 << 32)
        if number in by_launch:
            threads = _whole(path, one.get("block"), "launches.csv: block", 1 << 16)
            shared = _whole(path, one.get("shared_bytes"), "launches.csv: shared_bytes", 1 << 40)
            yield pid, one.get("kernel") or "", threads, shared, by_launch[number]


def _of_csv(path: Path) -> Iterator[_Launch]:
    columns, given = csv_rows(path)
    if missing := [name for name in _CSV_COLUMNS if name not in columns]:
        raise UsageError(f"{path}: measured blocks need the columns {', '.join(_CSV_COLUMNS)}; no {', '.join(missing)}")
    by_kernel: dict[str, dict[int, list[tuple[int, int, int, int]]]] = {}
    for number, row in enumerate(given, start=2):
        where = f"line {number}"
        block = _whole(path, row["block"], f"{where}: block", _MOST_BLOCKS)
        sm = _whole(path, row["sm"], f"{where}: sm", _MOST_SMS)
        start, end = (_time(path, row[key], f"{where}: {key}") for key in ("start_ns", "end_ns"))
        found = by_kernel.setdefault(row["kernel"] or "", {}).setdefault(block, [])
        found.append(_block(path, where, block, sm, start, end))
    for kernel, of_block in by_kernel.items():
        launches: list[list[tuple[int, int, int, int]]] = []
        for rows in of_block.values():
            for turn, row_of_block in enumerate(sorted(rows, key=lambda row: row[2])):
                if turn == len(launches):
                    launches.append([])
                launches[turn].append(row_of_block)
        for rows in launches:
            yield None, kernel, None, None, rows


def _block(path: Path, where: str, block: int, sm: int, start: int, end: int) -> tuple[int, int, int, int]:
    if end < start:
        raise UsageError(f"{path}, {where}: block {block} ends before it starts")
    return block, sm, start, end


def _seconds(path: Path, value: object, where: str) -> int:
    number = bounded_float(value, 0, FARTHEST_NS / 1e9) if isinstance(value, int | float) else None
    if number is None:
        raise UsageError(f"{path}: {where}.block_times has a time that no clock shows")
    return round(number * 1e9)


def _time(path: Path, value: object, where: str) -> int:
    return _whole(path, value, where, FARTHEST_NS)


def _whole(path: Path, value: object, where: str, most: int) -> int:
    """Read a whole number, as JSON or CSV has it."""
    number = bounded_int(value, 0, most) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise UsageError(f"{path}: {where} is no whole number from 0 to {most}")
    return number
