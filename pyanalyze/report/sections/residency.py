"""Residency of each tenant, and what context switches cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Cell, Chart, Column, Note, Para, Table, chart_key, value_cell
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences import residency_sentence, why_missing
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from pyanalyze.results.report import Device
    from pyanalyze.results.residency import HeldSlices


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    blocks: list[Block] = [Para(residency_sentence(device))]
    blocks.append(
        Chart(
            chart_key("timeline", device.device_id),
            "Timeline",
            "One lane per tenant: kernels as solid bars, whole graph launches as rounded bars, copies as "
            "thin bars, shading where its context held the engine; below, a tick for every switch. Drag to move, "
            "Ctrl + scroll or pinch to zoom, double-click to reset; with the keyboard the arrows, + and -, and 0.",
        )
    )
    switches = device.context_switches
    if switches is None:
        blocks.append(Note("Slices and switches are not known", why_missing(device, "context_switches", "residency")))
        if device.ledger is not None:
            blocks[-1] = Note("Switches were not recorded", why_missing(device, "context_switches", "residency"))
            caption = "Slices inferred from kernels' starts and ends; the line marks the median of all."
            blocks.append(Chart(chart_key("slices", device.device_id), "Slice lengths", caption))
            blocks += _slice_tables(device)
        return blocks
    blocks.append(
        Chart(
            chart_key("slices", device.device_id),
            "Slice lengths",
            "Complete slices only, per tenant; the line marks the median of all.",
        )
    )
    kinds = {"gap": "SAVE_END to the next RESTORE_START", "full": "acknowledgement to CONTEXT_START"}
    kind = kinds.get(switches.cost_kind or "", fmt.UNKNOWN)
    rows = [
        ("Switches", fmt.count(switches.count), "between contexts that both had work", "observed"),
        ("Context creations", fmt.count(switches.context_creations), "not counted as switches", "observed"),
        ("Median slice", fmt.duration(switches.median_slice_ns), "complete slices", "observed"),
        (
            "Median cost",
            fmt.duration(switches.median_cost_ns),
            f"{switches.cost_kind or '–'}: {kind}",
            "observed",
        ),
        ("Mean cost", fmt.duration(switches.mean_cost_ns), "the same", "observed"),
        ("Total cost", fmt.duration(switches.total_cost_ns), "sum over all switches", "observed"),
        ("Overhead", fmt.percent(switches.overhead_fraction), "total cost over the window", "observed"),
        ("Records lost", _lost(switches.dropped), "gaps in sequence numbers", "observed"),
    ]
    if switches.endings:
        text = ", ".join(f"{visible(k, 24)} {fmt.count(v)}" for k, v in sorted(switches.endings.items()))
        rows.append(("How slices ended", text, "by the record that ended them", "observed"))
    cells = tuple((Cell(a), Cell(b), Cell(c), Cell("", basis="observed")) for a, b, c, _ in rows)
    columns = (Column("Quantity"), Column("Value", numeric=True), Column("Of what"), Column("Basis"))
    blocks.append(Table(columns, cells, "Context switches."))
    blocks += _slice_tables(device)
    return blocks


def _slice_tables(device: Device) -> list[Block]:
    """Slices per tenant, and what they say of the engine."""
    ledger = device.ledger
    if ledger is None:
        return []
    labels = tenant_labels(device.tenants)
    rows = tuple(
        (
            Cell(labels.get(t.tenant_id, f"tenant {t.tenant_id}"), tone="code"),
            Cell(fmt.percent(t.resident_share), basis=ledger.basis),
            Cell(fmt.count(t.slices)),
            value_cell(fmt.duration(t.median_slice_ns)),
            value_cell(
                f"{fmt.duration(t.p10_slice_ns)} to {fmt.duration(t.p90_slice_ns)}" if t.slices else fmt.UNKNOWN
            ),
            value_cell(fmt.UNKNOWN if t.expired is None else f"{fmt.count(t.expired)} / {fmt.count(t.yielded)}"),
            value_cell(fmt.percent(t.idle_share)),
        )
        for t in ledger.tenants
    )
    columns = (
        Column("Tenant"),
        Column("Held", "of the time anybody did", True),
        Column("Slices", "complete", True),
        Column("Median", numeric=True),
        Column("Most", "a tenth to nine tenths", True),
        Column("Expired / yielded", numeric=True),
        Column("Idle", "of its residency", True),
    )
    parts = [
        f"time slice about {fmt.duration(ledger.time_slice_ns)} ({ledger.policy})" if ledger.time_slice_ns else "",
        f"Jain's index of residency {ledger.jain:.3f}" if ledger.jain is not None else "",
        f"save {fmt.duration(ledger.median_save_ns)}" if ledger.median_save_ns is not None else "",
        f"restore {fmt.duration(ledger.median_restore_ns)}" if ledger.median_restore_ns is not None else "",
    ]
    said = "; ".join(part for part in parts if part)
    return [Table(columns, rows, f"Slices per tenant ({ledger.basis}){f': {said}' if said else ''}.")]


def _most(tenant: HeldSlices) -> str:
    if not tenant.slices:
        return fmt.UNKNOWN
    return f"{fmt.duration(tenant.p10_slice_ns)} to {fmt.duration(tenant.p90_slice_ns)}"


def _lost(dropped: int | None) -> str:
    return "cannot be told" if dropped is None else fmt.count(dropped)


SECTION = DeviceSection("held", "Who held the GPU", _blocks)
