"""Interference between groups of work of one process: the same kernels beside another group and solo.

A stream waits for events of another one because it needs its results. A replay without the other group would take that
wait for interference, so elapsed time and latency of groups are not compared; the time in execution is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.results.interference import ContendedKernel, Estimate, MatrixCell
from pyanalyze.tables.frames import FrameTable, to_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["NO_LATENCY", "GroupInterference", "between_groups", "group_ids"]

NO_LATENCY = (
    "elapsed and latency: not compared, because groups of one process also wait for each other's results; only "
    "execution is compared"
)
#: Part of the time that a group executed beside others of which the slowdown may be unknown, for it to have one.
_UNKNOWN = 0.2
#: Durations of the kernels of a group over the time that it was busy, up to which they do not overlap each other.
_NO_OVERLAP = 1.02


@dataclass(frozen=True)
class GroupInterference:
    """How groups of work of one process slowed each other.

    Attributes
    ----------
    slowdowns
        Execution slowdown by tenant, over all that it executed.
    missing
        Why a tenant has none.
    matrix
        Who slowed whom.
    kernels
        Kernels beside another group, most time first.
    speedup_of_overlap
        Time of what executed beside other groups, one after the other at solo speed, over what it took; None: not
        known.
    """

    slowdowns: Mapping[int, Estimate]
    missing: Mapping[int, str]
    matrix: tuple[MatrixCell, ...]
    kernels: tuple[ContendedKernel, ...]
    speedup_of_overlap: float | None


def group_ids(tables: TableSet, device_id: int) -> frozenset[int]:
    """Ids of the tenants of a device that are groups of work."""
    import polars as pl

    if tables.groups is None:
        return frozenset()
    rows = tables.tenants.filter(
        pl.col("device_id") == device_id, pl.col("capture").is_in(list(tables.groups.captures))
    )
    return frozenset(rows["tenant_id"])


def between_groups(tables: TableSet, device_id: int) -> GroupInterference:
    """Compare the kernels of each group beside another group with the same kernels solo.

    Parameters
    ----------
    tables
        Tables of groups.
    device_id
        The device.

    Returns
    -------
    GroupInterference
        Of a device on which several processes ran nothing is known: a kernel beside no other group may have been
        slowed by another process.

    Examples
    --------
    >>> import pyanalyze
    >>> between_groups(pyanalyze.load(capture).by("stream").tables, 0).missing[3]
    'other processes used the device, and may have slowed kernels that ran beside no other group'
    """
    groups = sorted(group_ids(tables, device_id))
    if _several_processes(tables, device_id):
        why = "other processes used the device, and may have slowed kernels that ran beside no other group"
        return GroupInterference({}, dict.fromkeys(groups, why), (), (), None)
    tenant_of = {
        row["capture"]: row["tenant_id"]
        for row in tables.tenants.iter_rows(named=True)
        if row["device_id"] == device_id and row["tenant_id"] in groups
    }
    found = [row for row in _contention(tables, device_id) if row["stream_id"] in tenant_of]
    executed = _executed(tables, device_id)
    kernels_of = dict(tables.tenant_usage.select("tenant_id", "kernels").iter_rows())
    beside: dict[int, dict[int, int]] = {group: {} for group in groups}
    for row in tables.overlaps.iter_rows(named=True):
        for one, other in ((row["tenant_a"], row["tenant_b"]), (row["tenant_b"], row["tenant_a"])):
            if one in beside and other in beside:
                beside[one][other] = row["co_busy_ns"] or 0
    slowdowns, missing, matrix = {}, {}, []
    for group in groups:
        mine = [row for row in found if tenant_of[row["stream_id"]] == group]
        whole_ns = executed.get(group, 0)
        known = [row for row in mine if row["ratio"] is not None]
        covered, met = sum(row["overlap_ns"] for row in known), sum(beside[group].values())
        if not whole_ns:
            missing[group] = "no kernel of it was recorded"
            continue
        if met and covered < (1 - _UNKNOWN) * met:
            missing[group] = (
                "most kernels never ran without another group, or ran beside several, so that nothing compares"
            )
            continue
        slowdowns[group] = _whole(known, whole_ns).model_copy(update={"n": kernels_of.get(group, 0)})
        for other in groups:
            rows_beside = [row for row in known if tenant_of.get(row["beside_stream"]) == other]
            if other != group and beside[group].get(other):
                estimate = _whole(rows_beside, whole_ns)
                matrix.append(
                    MatrixCell(
                        victim=group,
                        aggressor=other,
                        slowdown=None,
                        low=None,
                        high=None,
                        n=estimate.n,
                        execution=estimate.value,
                    )
                )
    kernels = [_kernel(row, tenant_of) for row in sorted(found, key=_order)]
    return GroupInterference(
        slowdowns,
        missing,
        tuple(matrix),
        tuple(kernel for kernel in kernels if kernel is not None),
        None if missing else _speedup(tables, device_id, found, executed),
    )


def _order(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["total_ns"], str(row["short_name"])


def _several_processes(tables: TableSet, device_id: int) -> bool:
    """Whether work of several processes, or residency of an untraced one, is known on the device."""
    groups = tables.groups
    captures = {} if groups is None else groups.captures
    seen = set()
    for row in tables.tenants.join(tables.tenant_usage, on=["tenant_id", "device_id"]).iter_rows(named=True):
        if row["device_id"] == device_id and (row["busy_ns"] or (not row["traced"] and row["resident_ns"])):
            seen.add((captures.get(row["capture"], row["capture"]), row["pid"], row["host_pid"]))
    return len(seen) > 1


def _executed(tables: TableSet, device_id: int) -> dict[int, int]:
    """Sum of the durations of the kernels of each group."""
    import polars as pl

    keys = ["device_id", "capture", "pid"]
    rows = tables.columns("kernels", *keys, "start_ns", "end_ns").filter(pl.col("device_id") == device_id)
    sums = rows.group_by(keys).agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("length"))
    who = tables.tenants.filter("traced").select("tenant_id", *keys)
    return {
        tenant: int(length)
        for tenant, length in sums.join(who, on=keys, nulls_equal=True).select("tenant_id", "length").iter_rows()
    }


def _contention(tables: TableSet, device_id: int) -> list[dict[str, Any]]:
    """The table `stream_contention` with groups in the place of streams."""
    import polars as pl

    groups = tables.groups
    captures = {} if groups is None else groups.captures
    stored: dict[str, AnyTable] = {
        name: tables.table(name) for name in ("devices", "contexts", "tenants", "capture") if name in tables
    }
    for name in ("kernels", "memops", "graph_launches"):
        if name in tables:
            rows = tables.frame(name).filter(pl.col("device_id") == device_id, pl.col("capture").is_in(list(captures)))
            stored[name] = FrameTable(
                name,
                rows.with_columns(
                    stream_id="capture",
                    context_id=pl.lit(None, pl.UInt32),
                    capture=pl.col("capture").replace_strict(captures, return_dtype=pl.UInt32),
                ),
            )
    table = to_frame(_core.streams(stored)["stream_contention"])
    return table.with_columns(pl.col("short_name", "beside_kernel").cast(pl.String)).to_dicts()


def _added(row: Mapping[str, Any], ratio: str) -> float:
    """What a slowdown added to the time for which the other group executed beside a kernel."""
    return float(row["overlap_ns"]) * (1 - 1 / float(row[ratio]))


def _whole(rows: list[dict[str, Any]], whole_ns: int) -> Estimate:
    """The slowdown over all that a group executed, from those of its kernels beside others."""
    values = [
        whole_ns / max(whole_ns - sum(_added(row, ratio) for row in rows), 1.0)
        for ratio in ("ratio", "ratio_low", "ratio_high")
    ]
    return Estimate(value=values[0], low=values[1], high=values[2], n=sum(row["n"] for row in rows), basis="inferred")


def _kernel(row: dict[str, Any], tenant_of: Mapping[int, int]) -> ContendedKernel | None:
    if row["ratio"] is None:
        return None
    return ContendedKernel(
        tenant_id=tenant_of[row["stream_id"]],
        kernel=row["short_name"],
        ratio=row["ratio"],
        low=row["ratio_low"],
        high=row["ratio_high"],
        n=row["n"],
        n_solo=row["n_solo"],
        median_ns=row["median_ns"],
        solo_median_ns=row["solo_median_ns"],
        beside=tenant_of.get(row["beside_stream"]),
        beside_kernel=row["beside_kernel"],
    )


def _speedup(tables: TableSet, device_id: int, rows: list[dict[str, Any]], executed: Mapping[int, int]) -> float | None:
    """Solo time of what two groups executed at once over the time in which they did."""
    known = [row for row in rows if row["ratio"] is not None]
    groups = group_ids(tables, device_id)
    took = sum(
        int(row["co_busy_ns"] or 0)
        for row in tables.overlaps.iter_rows(named=True)
        if row["tenant_a"] in groups and row["tenant_b"] in groups
    )
    busy = dict(tables.tenant_usage.select("tenant_id", "busy_ns").iter_rows())
    # Kernels of one group that overlap each other, and pairs of more than two groups, count time several times.
    alone = all(executed.get(group, 0) <= _NO_OVERLAP * (busy.get(group) or 0) for group in groups)
    if len(groups) != 2 or not alone or not took or not known:
        return None
    return sum(float(row["overlap_ns"]) / float(row["ratio"]) for row in known) / took
