"""Whether processes had the device in turn without ever having work at the same time.

A time slice is at most 35 ms long and ends while its tenant has work. A process that has the device for longer, again
and again, and whose kernels end before those of the next process begin, is kept apart from it in software: by a
scheduler that grants the device, by a lock, or because one waits for the other's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.facts import Fact
from pyanalyze.results.sharing import Example

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["turn_facts"]


def turn_facts(tables: TableSet, device_id: int) -> dict[str, Fact]:
    """Measure turns of processes that never had kernels in flight at the same time.

    Parameters
    ----------
    tables
        The tables.
    device_id
        The device.

    Returns
    -------
    dict of str to Fact
        ``turn_ns``: median length of a turn, from the first kernel of a process to its last before one of another
        process, ``n`` of them. ``turn_pause_share``: median pause between two turns over that. Empty unless two
        processes and more had three turns each, and no kernel ran beside one of another process.

    Examples
    --------
    >>> import pyanalyze
    >>> turn_facts(pyanalyze.load(capture).tables, 0)  # three tenants are time-sliced
    {}
    """
    # In pieces, so that copies of the kernels take no notable memory; a turn may reach from one into the next.
    pieces = tables.batches("kernels", "device_id", "capture", "pid", "start_ns", "end_ns")
    of_pieces = [_turns(piece.filter(pl.col("device_id") == device_id).sort("start_ns", "end_ns")) for piece in pieces]
    if not of_pieces:
        return {}
    turns = _turns(pl.concat(of_pieces))
    each = turns.group_by("capture", "pid").len()
    if each.height < 2 or each["len"].min() < t.MIN_TURNS_EACH:  # type: ignore[operator]
        return {}
    pauses = (turns["start_ns"] - turns["end_ns"].shift(1)).drop_nulls()
    if pauses.min() < 0:  # type: ignore[operator]
        return {}
    lengths = turns["end_ns"] - turns["start_ns"]
    length, pause = float(lengths.median() or 0), float(pauses.median() or 0)  # type: ignore[arg-type]
    first = turns.head(3)
    examples = tuple(
        Example(
            capture=row["capture"], start_ns=row["start_ns"], end_ns=row["end_ns"], pid=row["pid"], correlation_id=None
        )
        for row in first.iter_rows(named=True)
    )
    return {
        "turn_ns": Fact(length, "ns", turns.height, "observed", "", examples),
        "turn_pause_share": Fact(pause / length if length else 0.0, "1", pauses.len(), "observed", ""),
    }


def _turns(rows: pl.DataFrame) -> pl.DataFrame:
    """Runs of rows of one process, one row each."""
    return (
        rows.group_by(turn=pl.struct("capture", "pid").rle_id(), maintain_order=True)
        .agg(pl.first("capture", "pid"), pl.min("start_ns"), pl.max("end_ns"))
        .drop("turn")
    )
