"""What tenants ask of the GPU, from kernels that Nsight Compute counted solo: by kernel, and by tenant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyanalyze.inputs.ncu import Resource, base_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyanalyze.inputs.ncu import CountedKernel
    from pyanalyze.tables.tableset import TableSet

__all__ = ["Counted", "match"]

#: Part of a tenant's kernel time that must be of counted kernels; below it the tenant's demand is not known.
ENOUGH_TIME = 0.9


@dataclass(frozen=True)
class Counted:
    """Counted kernels, on the kernels and tenants of a device.

    Attributes
    ----------
    bandwidth
        Part of the DRAM bandwidth that a kernel takes solo, by its name in the table `kernels`.
    used
        Part of each resource that a tenant's kernels take solo, mean over their time; tenants of which at least
        `ENOUGH_TIME` is counted, and resources that the file holds.
    l2_hit
        Part of L2 accesses that hit, mean over the kernels' time; the same tenants.
    """

    bandwidth: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[int, Mapping[Resource, float]] = field(default_factory=dict)
    l2_hit: Mapping[int, float] = field(default_factory=dict)


def _mean(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Mean of what is known, by weight."""
    known = [(value, weight) for value, weight in pairs if value is not None]
    whole = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / whole if whole > 0 else None


def _dram(kernel: CountedKernel, peak_bytes_per_s: int | None) -> float | None:
    part = kernel.used.get(Resource.DRAM)
    if part is None and kernel.dram_bytes_per_s is not None and peak_bytes_per_s:
        return min(1.0, kernel.dram_bytes_per_s / peak_bytes_per_s)
    return part


def match(tables: TableSet, device_id: int, kernels: Sequence[CountedKernel]) -> Counted:
    """Find counted kernels among those of a device: by full name, else by the name that all tools print.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.
    kernels
        What :func:`pyanalyze.inputs.ncu.read_ncu` read.

    Returns
    -------
    Counted
        Empty where no kernel is among them.

    Examples
    --------
    >>> import pyanalyze
    >>> match(pyanalyze.load(capture).tables, 0, []).bandwidth
    {}
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    (peak,) = tables.devices.filter(here)["memory_bandwidth_bytes_per_s"]
    times = tables.columns("kernels", "device_id", "capture", "pid", "name", "short_name", "start_ns", "end_ns")
    who = tables.tenants.filter(here).select("tenant_id", "capture", "pid")
    rows = (
        times.filter(here)
        .join(who, on=["capture", "pid"], nulls_equal=True)
        .group_by("tenant_id", pl.col("name").cast(pl.String), pl.col("short_name").cast(pl.String))
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
        .sort("tenant_id", "name")
    )
    by_full: dict[str, list[CountedKernel]] = defaultdict(list)
    by_base: dict[str, list[CountedKernel]] = defaultdict(list)
    for kernel in kernels:
        by_full[kernel.name].append(kernel)
        by_base[base_name(kernel.name)].append(kernel)
    found: dict[int, list[tuple[list[CountedKernel], int]]] = {}
    whole: dict[int, int] = {}
    bandwidth: dict[str, float] = {}
    for row in rows.iter_rows(named=True):
        tenant, name, ns = row["tenant_id"], row["name"], row["ns"]
        whole[tenant] = whole.get(tenant, 0) + ns
        if name is None:
            continue
        same = by_full.get(name) or by_base.get(base_name(name)) or by_base.get(row["short_name"] or "")
        if not same:
            continue
        found.setdefault(tenant, []).append((same, ns))
        part = _mean((_dram(one, peak), one.duration_ns or 1.0) for one in same)
        if part is not None:
            bandwidth[name] = part
    enough = {t: mine for t, mine in found.items() if sum(ns for _, ns in mine) >= ENOUGH_TIME * max(whole[t], 1)}

    def of(
        mine: Sequence[tuple[list[CountedKernel], int]], value: Callable[[CountedKernel], float | None]
    ) -> float | None:
        each = [(_mean((value(one), one.duration_ns or 1.0) for one in same), float(ns)) for same, ns in mine]
        # What is known of some kernels only is not known of the tenant.
        return _mean(each) if all(part is not None for part, _ in each) else None

    used: dict[int, dict[Resource, float]] = {}
    hits: dict[int, float] = {}
    for tenant, mine in enough.items():
        parts = {
            resource: of(mine, lambda k, r=resource: _dram(k, peak) if r is Resource.DRAM else k.used.get(r))  # type: ignore[misc]
            for resource in Resource
        }
        used[tenant] = {resource: part for resource, part in parts.items() if part is not None}
        hit = of(mine, lambda k: k.l2_hit)
        if hit is not None:
            hits[tenant] = hit
    return Counted(bandwidth, used, hits)
