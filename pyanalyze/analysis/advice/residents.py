"""Who is on the device, as bounds and recordings that are asked for need to know it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import host_side
from pyanalyze.analysis.advice.simple import Resident
from pyanalyze.analysis.interference.lost_time import assumed_switch_ns
from pyanalyze.analysis.mps_daemon import servers_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.tables.tableset import TableSet

#: Kernel time in grids of at least one whole wave, from which a tenant fills the SMs.
MOSTLY_FULL = 0.5


def residents_of(tables: TableSet, device_id: int) -> Iterator[Resident]:
    """Each tenant with what bounds need to know of it, in the order of their ids."""
    labels = tables.labels(device_id)
    usage = tables.of_device("tenants", device_id).join(
        tables.of_device("tenant_usage", device_id), on=["tenant_id", "device_id"]
    )
    # Over the window, as the residency summary has it: a context is also resident while it is created.
    shares = {row["tenant_id"]: row["gpu_time_share"] for row in tables.rows_of("residency_by_tenant", device_id)}
    listed = set(tables.processes.filter(tables.processes["name"].is_not_null()).select("capture", "pid").iter_rows())
    servers = servers_on(tables, device_id)
    for row in usage.sort("tenant_id").iter_rows(named=True):
        resident, busy, attributed = row["resident_ns"], row["busy_ns"], row["attributed_ns"]
        yield Resident(
            row["tenant_id"],
            labels[row["tenant_id"]],
            row["host_pid"] or row["pid"],
            bool(row["traced"]),
            None if resident is None else shares.get(row["tenant_id"]),
            # Without recorded residency all of the time in flight is attributed.
            busy / attributed if busy and attributed and resident is not None else None,
            (row["capture"], row["pid"]) in listed,
            _fills_sms(tables, device_id, row["tenant_id"]),
            is_mps_server=row["tenant_id"] in servers,
            waves=_mean_waves(tables, device_id, row["tenant_id"]),
        )


def _mean_waves(tables: TableSet, device_id: int, tenant_id: int) -> float | None:
    """Mean waves of the grids of a tenant, by their time; None: not known of all of them."""
    import polars as pl

    shapes = tables.of_device("kernel_occupancy", device_id).filter(pl.col("tenant_id") == tenant_id)
    if shapes.is_empty() or shapes["waves"].null_count():
        return None
    # A grid of several waves takes all slots until its last one.
    slots = (pl.col("waves").clip(upper_bound=1.0) * pl.col("total_ns")).sum() / pl.col("total_ns").sum()
    found = shapes.select(slots).item()
    return None if found is None else float(found)


def _fills_sms(tables: TableSet, device_id: int, tenant_id: int) -> bool | None:
    """Whether most of the kernel time of a tenant is in grids of at least one wave; None: not known."""
    import polars as pl

    shapes = tables.of_device("kernel_occupancy", device_id).filter(pl.col("tenant_id") == tenant_id)
    full = None if shapes["waves"].drop_nulls().is_empty() else host_side.full_grids(shapes)
    return None if full is None else full >= MOSTLY_FULL


def without_switching(tables: TableSet, device_id: int, tenants: Iterable[Resident]) -> Iterator[Resident]:
    """The same with the allowance for switching inside kernels that slowdowns make: no bound is below a slowdown."""
    usage = {row["tenant_id"]: row for row in tables.rows_of("tenant_usage", device_id)}
    for tenant in tenants:
        row = usage[tenant.tenant_id]
        taken_ns = None if tenant.inflation is None else assumed_switch_ns(tables, row)
        if tenant.inflation is None or taken_ns is None:
            yield tenant
        else:
            inflation = tenant.inflation / (1 - taken_ns / row["attributed_ns"])
            yield replace(tenant, inflation=inflation, switching=taken_ns / row["busy_ns"])


def with_latency(tenants: Iterable[Resident], found: DeviceInterference) -> Iterator[Resident]:
    """The same with how much longer than solo kernels took from launch to end: waits before the start count there."""
    known = {one.tenant_id: one for one in found.tenants}
    for tenant in tenants:
        one = known.get(tenant.tenant_id)
        latency = None if one is None else one.slowdown.latency
        # What is known from below bounds no gain from above. Beside an inferred slowdown stands what it consists of.
        if one is None or latency is None or latency.from_below:
            yield tenant
        else:
            yield replace(tenant, latency=latency.value, added=one.added_latency)
