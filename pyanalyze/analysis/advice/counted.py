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

#: What kernels share of an SM.
ON_SMS = frozenset({Resource.ISSUE, Resource.SM, Resource.TENSOR, Resource.FMA, Resource.FP64})
#: Part of a tenant's kernel time that must be of counted kernels; below it the tenant's demand is not known.
ENOUGH_TIME = 0.9
#: Part of a kernel's time that others of its process ran beside, from which on its durations are no solo durations.
MOSTLY = 0.5


@dataclass(frozen=True)
class Counted:
    """Counted kernels, on the kernels and tenants of a device.

    Attributes
    ----------
    bandwidth
        Part of the DRAM bandwidth that a kernel takes solo, by its name in the table `kernels`: over the time that it
        took in the capture, if only one tenant was there.
    sm_throughput
        Part of the throughput of all SMs that it takes solo (issue slots, or the pipe that is used most), likewise.
    used
        Part of each resource that a tenant's kernels take solo, mean over their time; tenants of which at least
        `ENOUGH_TIME` is counted, and resources that the file holds.
    l2_hit
        Part of L2 accesses that hit, mean over the kernels' time; the same tenants.
    """

    bandwidth: Mapping[str, float] = field(default_factory=dict)
    sm_throughput: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[int, Mapping[Resource, float]] = field(default_factory=dict)
    l2_hit: Mapping[int, float] = field(default_factory=dict)

    @property
    def by_kernel(self) -> dict[str, tuple[float | None, float | None]]:
        """Parts of DRAM bandwidth and of the SMs' throughput, by kernel.

        Examples
        --------
        >>> Counted({"copy": 0.9}, {"gemm": 0.8}).by_kernel
        {'copy': (0.9, None), 'gemm': (None, 0.8)}
        """
        names = dict.fromkeys([*self.bandwidth, *self.sm_throughput])
        return {name: (self.bandwidth.get(name), self.sm_throughput.get(name)) for name in names}


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


def _sm_throughput(kernel: CountedKernel) -> float | None:
    return max((part for resource, part in kernel.used.items() if resource in ON_SMS), default=None)


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
    took = pl.col("end_ns") - pl.col("start_ns")
    # Behind the one before it that ended last, and before the next one.
    until = pl.col("end_ns").cum_max().shift(1).fill_null(pl.col("start_ns")).clip(pl.col("start_ns"), pl.col("end_ns"))
    next_ns = pl.col("start_ns").shift(-1).fill_null(pl.col("end_ns")).clip(until, pl.col("end_ns"))
    beside = ((until - pl.col("start_ns")) + (pl.col("end_ns") - next_ns)).over("tenant_id").alias("beside_ns")
    rows = (
        times.filter(here)
        .join(who, on=["capture", "pid"], nulls_equal=True)
        .sort("start_ns")
        .with_columns(beside)
        .group_by("tenant_id", pl.col("name").cast(pl.String), pl.col("short_name").cast(pl.String))
        .agg(took.sum().alias("ns"), took.median().alias("median_ns"), pl.col("beside_ns").sum())
        .sort("tenant_id", "name")
    )
    alone = rows["tenant_id"].n_unique() == 1
    by_full: dict[str, list[CountedKernel]] = defaultdict(list)
    by_base: dict[str, list[CountedKernel]] = defaultdict(list)
    for kernel in kernels:
        by_full[kernel.name].append(kernel)
        by_base[base_name(kernel.name)].append(kernel)
    found: dict[int, list[tuple[list[CountedKernel], int]]] = {}
    whole: dict[int, int] = {}
    bandwidth: dict[str, float] = {}
    on_sms: dict[str, float] = {}
    for row in rows.iter_rows(named=True):
        tenant, name, ns = row["tenant_id"], row["name"], row["ns"]
        whole[tenant] = whole.get(tenant, 0) + ns
        if name is None:
            continue
        same = by_full.get(name) or by_base.get(base_name(name)) or by_base.get(row["short_name"] or "")
        if not same:
            continue
        found.setdefault(tenant, []).append((same, ns))
        # Beside another kernel of its own process it took longer than counted alone, and less at a time: half at least.
        counted_ns = _mean((one.duration_ns, 1.0) for one in same)
        part_beside = row["beside_ns"] / ns if alone and ns > 0 else 0.0
        slower = 1.0
        if part_beside > MOSTLY and counted_ns and row["median_ns"]:
            slower = min(1.0, max(1 - part_beside / 2, counted_ns / row["median_ns"]))
        part = _mean((_dram(one, peak), one.duration_ns or 1.0) for one in same)
        if part is not None:
            bandwidth[name] = slower * part
        part = _mean((_sm_throughput(one), one.duration_ns or 1.0) for one in same)
        if part is not None:
            on_sms[name] = slower * part
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
    return Counted(bandwidth, on_sms, used, hits)
