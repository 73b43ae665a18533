"""Time and memory of each tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Fold,
    Note,
    Table,
    chart_key,
    column_legend,
    value_cell,
)
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.copies import copies_only, only_copies_text
from pyanalyze.report.sentences.gpu_time import in_flight_share
from pyanalyze.report.sentences.residency import too_few_intervals, whole_intervals
from pyanalyze.report.sentences.samples import processes_text
from pyanalyze.report.sentences.words import LONG, id_text, recorded_ns, work_words
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import Mode

if TYPE_CHECKING:
    from pyanalyze.results.report import Device, Tenant

#: Behind what belongs to all clients of an MPS server.
_OF_ALL = " (all clients)"
#: Part of the window by which shares may add up to more than all of it without a word: clocks and rounding.
_ROUNDING = 0.01


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    if not device.tenants:
        listed = None if device.sampled is None else device.sampled.processes
        seen = "No process is known on this device."
        if listed:
            they = "it" if listed == 1 else "they"
            seen = f"The samples list {processes_text(listed)}. No trace shows what {they} did."
        return [Note("No tenant was traced", seen)]
    labels = tenant_labels(device.tenants)
    for_all, group = device.named_for_all(), device.mps_group()
    window = device.window
    together_ns = (
        round((group[0].gpu_time_share or 0.0) * (window.end_ns - window.start_ns)) if group and window else None
    )
    no_kernel, work = copies_only(device), work_words(device)
    rows = []
    for t in device.tenants:
        rows.append(
            (
                Cell(labels[t.tenant_id], tone="code", note=visible(t.name, LONG)),
                value_cell(id_text(t.pid)),
                value_cell(fmt.UNKNOWN)
                if no_kernel
                else value_cell(fmt.percent(t.gpu_time_share) + _OF_ALL * (t in group), basis=t.gpu_time_basis),
                value_cell(fmt.duration(together_ns if t in group else t.resident_ns) + _OF_ALL * (t in for_all)),
                value_cell(_attributed(t, device)),
                value_cell(fmt.duration(t.busy_ns)),
                value_cell(
                    fmt.UNKNOWN
                    if t.slices is None or t in group
                    else fmt.count(t.slices)
                    if too_few_intervals(t.slices)
                    else f"{fmt.count(t.slices)}; {fmt.duration(t.median_slice_ns)}"
                ),
                value_cell(fmt.percent(t.sm_share)),
                value_cell(fmt.bytes_(t.memory_peak_bytes)),
            )
        )
    caption = "GPU time and memory per tenant."
    served = any(t.served_by is not None and t.gpu_time_share is not None for t in device.tenants)
    shared = "of the window" if recorded_ns(device) is None else "of the time on record"
    if served:
        caption += (
            f" Residency is the MPS server's. A client's share is its time with {work} in flight. Clients in flight at "
            "once are attributed the same time."
        )
    elif no_kernel:
        caption += f" {only_copies_text(device)}"
    elif any(t.gpu_time_share is not None for t in device.tenants) and device.residency_summary is None:
        shared = f"{work} in flight, {shared}"
    all_of_busy = any(
        t.resident_ns is None and t.served_by is None and t.attributed_ns for t in device.tenants if t not in group
    )
    attributed = f"both at once{'; where residency is not known, all of the time busy' if all_of_busy else ''}"
    names = [t.name for t in device.tenants if t.pid is not None and t.group_of is None]
    if len(set(names)) < len(names):
        # What tells them apart at a glance is their work, where it was traced.
        if any(t.time_split is not None and t.time_split.top_kernel is not None for t in device.tenants):
            caption += " Top kernels under Where the time went tell processes of one name apart."
        caption += " --tenant NAME=PID names a process."
    shares = [t.gpu_time_share for t in device.tenants if t.gpu_time_share is not None and t not in group[1:]]
    if in_flight_share(device) is not None or sum(shares) > 1 + _ROUNDING:
        caption += " Shares overlap where tenants ran at once."
    columns = (
        Column("Tenant"),
        Column("pid", "as nsys saw it", numeric=True),
        Column("GPU time share", shared, True),
        Column("Resident", "observed", True),
        Column("Attributed", "busy and resident, inferred", True),
        Column("Busy", f"{work} in flight, observed", True),
        Column("Residency intervals", f"complete{whole_intervals(device)}; median, observed", True),
        Column("SM share", "of the SM time of traced tenants, modelled", True),
        Column("Memory", "peak, sampled", True),
    )
    # In the table it stands beside the tenant that records name.
    whose = " The residency of all MPS clients is not drawn." if for_all else ""
    if group:
        whose = " Residency is that of all clients of the MPS group: of each it is not known."
    legend = column_legend(
        ("Busy", f"{work} of the tenant were in flight, switched out or not"),
        ("Resident", "its context occupied the compute engine"),
        ("Attributed", attributed),
    )
    blocks: list[Block] = [Table(columns, tuple(rows), caption), legend]
    if not no_kernel:
        # Of copies it has no bar.
        chart = Chart(
            chart_key("usage", device.device_id),
            "Busy, resident and attributed time per tenant",
            f"Attributed time is busy and resident at once.{whose}",
        )
        blocks.insert(0, chart)
    if any(t.container or t.pod or t.host_pid is not None for t in device.tenants):
        cells = tuple(
            (
                Cell(labels[t.tenant_id], tone="code"),
                Cell(id_text(t.host_pid)),
                Cell(visible(t.container) or fmt.UNKNOWN),
                Cell(visible(t.pod) or fmt.UNKNOWN),
                Cell(_contexts(t)),
            )
            for t in device.tenants
        )
        heads = (Column("Tenant"), Column("Host pid", numeric=True), Column("Container"), Column("Pod"))
        blocks.append(Fold("Processes, containers and pods", (Table((*heads, Column("CUDA contexts")), cells),)))
    return blocks


def _contexts(tenant: Tenant) -> str:
    """The CUDA contexts of a tenant; green contexts apart, because a kernel has the id of both."""
    whole = ", ".join(str(one) for one in tenant.contexts if one not in tenant.green_contexts)
    green = ", ".join(map(str, tenant.green_contexts))
    return f"{whole} (green contexts: {green})" if green else whole or "–"


def _attributed(tenant: Tenant, device: Device) -> str:
    # Where it is not known whether other tenants were switched in, all of busy is only a bound.
    open_ = tenant.resident_ns is None and device.sharing.mode == Mode.UNDETERMINED and bool(tenant.attributed_ns)
    return f"{'at most ' if open_ else ''}{fmt.duration(tenant.attributed_ns)}"


SECTION = DeviceSection("tenants", "Tenants", _blocks, of_trace=True)
