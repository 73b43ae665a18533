"""The device itself: its MIG instance and its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.results.model import Missing
from pyanalyze.results.report import Memory, Mig
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet


def mig_of(tables: TableSet, device: dict[str, Any]) -> Mig | None:
    """The MIG instance that a device is, with the numbers that samples give it; None for a whole GPU."""
    own = tables.samples_of(device["device_id"])
    numbered = own.clear() if own["mig_gi"].null_count() == own.height else own.drop_nulls("mig_gi")
    # Lists of the driver number instances without naming their profiles.
    if device["mig_profile"] is None and numbered.is_empty():
        return None
    gi, ci = (None, None) if numbered.is_empty() else numbered.select("mig_gi", "mig_ci").max().row(0)
    return Mig(profile=device["mig_profile"], gi=gi, ci=ci, parent_uuid=device["gpu_uuid"])


def memory_of(tables: TableSet, device: dict[str, Any], missing: list[Missing]) -> Memory | None:
    """The memory of a device and its peak in samples; None: neither is known."""
    rows = tables.board_samples_of(device["device_id"]).get("memory_used_bytes")
    used = None if rows is None else rows["value"].max()
    peak = int(used) if isinstance(used, float) else None
    total = device["memory_bytes"] if device["memory_bytes"] is not None else _used_and_free(tables, device)
    if total is None and peak is None:
        return None
    if total is not None and peak is not None and peak > total:
        why = f"samples show {fmt.bytes_(peak)} in use, and the device has {fmt.bytes_(total)}: these are several GPUs"
        missing.append(Missing(what="memory.total_bytes", why=why, how="give the files of one GPU"))
        total = None
    left = tables.board_samples_of(device["device_id"]).get("memory_free_bytes")
    free = None if left is None or total is None else left["value"].min()
    return Memory(total_bytes=total, peak_bytes=peak, free_bytes=int(free) if isinstance(free, float) else None)


def _used_and_free(tables: TableSet, device: dict[str, Any]) -> int | None:
    """The memory that samples account for, where none has the total: DCGM writes its parts; None: not both of them."""
    whole = tables.board_samples_of(device["device_id"])
    parts = [whole[name] for name in ("memory_used_bytes", "memory_free_bytes") if name in whole]
    values = [part["value"].drop_nulls() for part in parts]
    if len(values) < 2 or any(one.is_empty() for one in values):
        return None
    reserved = whole.get("memory_reserved_bytes")
    kept = 0 if reserved is None else reserved["value"].max() or 0
    # What is used more is free less: of any moment the sum is the same.
    return int(values[0][-1] + values[1][-1] + kept)
