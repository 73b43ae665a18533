"""Time and memory of each tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Cell, Chart, Column, Fold, Note, Table, chart_key, value_cell
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences import LONG, id_text, processes_text, share_of_window
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import Mode

if TYPE_CHECKING:
    from pyanalyze.results.report import Device, Tenant


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    if not device.tenants:
        listed = None if device.sampled is None else device.sampled.processes
        seen = "No process was seen on this device."
        if listed:
            they = "it" if listed == 1 else "they"
            seen = f"The samples list {processes_text(listed)}; what {they} did was not traced."
        return [Note("No tenants", seen)]
    labels = tenant_labels(device.tenants)
    rows = []
    for t in device.tenants:
        rows.append(
            (
                Cell(labels[t.tenant_id], tone="code", note=visible(t.name, LONG)),
                value_cell(id_text(t.pid)),
                _with_share(t.busy_ns, device),
                _with_share(t.resident_ns, device),
                _charged(t, device),
                value_cell(
                    fmt.UNKNOWN if t.slices is None else f"{fmt.count(t.slices)} of {fmt.duration(t.median_slice_ns)}"
                ),
                value_cell(fmt.percent(t.sm_share)),
                value_cell(fmt.bytes_(t.memory_peak_bytes)),
            )
        )
    columns = (
        Column("Tenant"),
        Column("pid", numeric=True),
        Column("Busy", "of the window, observed", True),
        Column("Resident", "of the window, observed", True),
        Column("Charged", "busy and resident, inferred", True),
        Column("Slices", "complete; median, observed", True),
        Column("SM share", "of used SM time, modelled", True),
        Column("Memory", "peak seen, sampled", True),
    )
    blocks: list[Block] = [
        Chart(
            chart_key("usage", device.device_id),
            "Busy, resident and charged time per tenant",
            "Busy: its kernels were in flight by their recorded intervals, switched out or not. Charged: the "
            "part of that in which it really held the engine.",
        ),
        Table(columns, tuple(rows), "Time and memory; shares are of the window."),
    ]
    people = [t for t in device.tenants if t.container or t.pod or t.host_pid is not None]
    if people:
        cells = tuple(
            (
                Cell(labels[t.tenant_id], tone="code"),
                Cell(id_text(t.host_pid)),
                Cell(visible(t.container) or fmt.UNKNOWN),
                Cell(visible(t.pod) or fmt.UNKNOWN),
                Cell(", ".join(map(str, t.contexts)) or "–"),
            )
            for t in people
        )
        heads = (Column("Tenant"), Column("Host pid", numeric=True), Column("Container"), Column("Pod"))
        blocks.append(Fold("Who is who", (Table((*heads, Column("CUDA contexts")), cells),)))
    return blocks


def _with_share(ns: int | None, device: Device, bound: str = "") -> Cell:
    if ns is None:
        return Cell(fmt.UNKNOWN, tone="muted")
    return Cell(f"{bound}{fmt.duration(ns)} ({fmt.percent(share_of_window(ns, device))})")


def _charged(tenant: Tenant, device: Device) -> Cell:
    # Where it is not known whether others were switched in, all of busy is only a bound.
    open_ = tenant.resident_ns is None and device.sharing.mode == Mode.UNDETERMINED and bool(tenant.charged_ns)
    return _with_share(tenant.charged_ns, device, "at most " if open_ else "")


SECTION = DeviceSection("tenants", "Tenants", _blocks)
