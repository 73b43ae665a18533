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
    from pyanalyze.results.residency import ContextSwitches, ResidencyTotals


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    switches = device.context_switches
    # Where nothing is known the reason follows, and stands there once.
    known = any(t.gpu_time_share is not None for t in device.tenants)
    blocks: list[Block] = [Para(residency_sentence(device))] if known or switches is not None else []
    if switches is None:
        blocks.append(
            Note("Residency and context switches are not known", why_missing(device, "context_switches", "residency"))
        )
        if device.residency_summary is not None:
            blocks[-1] = Note(
                "Context switches were not recorded", why_missing(device, "context_switches", "residency")
            )
            caption = "Residency inferred from starts and ends of kernels; the line marks the median of all."
            blocks.append(Chart(chart_key("slices", device.device_id), "Lengths of residency intervals", caption))
            blocks += _slice_tables(device)
        return blocks
    blocks.append(
        Chart(
            chart_key("slices", device.device_id),
            "Lengths of residency intervals",
            "Complete residency intervals, per tenant; the line marks the median of all.",
        )
    )
    kinds = {"gap": "SAVE_END to the next RESTORE_START", "full": "acknowledgement to CONTEXT_START"}
    kind = kinds.get(switches.cost_kind or "", fmt.UNKNOWN)
    rows = [
        ("Switches", fmt.count(switches.count), "between contexts with work", "observed"),
        ("Context creations", fmt.count(switches.context_creations), "not counted as switches", "observed"),
        (
            "Median residency interval",
            _of_switches(switches, fmt.duration(switches.median_slice_ns)),
            "complete intervals",
            "observed",
        ),
        (
            "Median cost",
            _of_switches(switches, fmt.duration(switches.median_cost_ns)),
            f"{switches.cost_kind}: {kind}" if switches.cost_kind else "no switch",
            "observed",
        ),
        ("Mean cost", _of_switches(switches, fmt.duration(switches.mean_cost_ns)), "per switch", "observed"),
        (
            "Total cost",
            _of_switches(switches, fmt.duration(switches.total_cost_ns)),
            "sum over all switches",
            "observed",
        ),
        (
            "Overhead",
            _of_switches(switches, fmt.percent(switches.overhead_fraction)),
            "total cost over the window",
            "observed",
        ),
        ("Lost records", _lost(switches.dropped), "gaps in sequence numbers", "observed"),
    ]
    if switches.endings:
        text = ", ".join(f"{visible(k, 24)} {fmt.count(v)}" for k, v in sorted(switches.endings.items()))
        rows.append(("Reasons for the ends of intervals", text, "as the driver recorded them", "observed"))
    cells = tuple((Cell(a), Cell(b), Cell(c), Cell("", basis="observed")) for a, b, c, _ in rows)
    columns = (Column("Quantity"), Column("Value", numeric=True), Column("Scope"), Column("Basis"))
    blocks.append(Table(columns, cells, "Context switches."))
    blocks += _slice_tables(device)
    return blocks


def _of_switches(switches: ContextSwitches, text: str) -> str:
    """A cost of switches, where there were any."""
    return text if switches.count else "none"


def _slice_tables(device: Device) -> list[Block]:
    """Residency per tenant: GPU time share, lengths, how intervals ended."""
    summary = device.residency_summary
    if summary is None:
        return []
    labels = tenant_labels(device.tenants)
    # Residency that is no GPU time of its own: switch records name this MPS client for the context of all of them.
    of_all = {t.tenant_id for t in device.tenants if t.resident_ns is not None and t.gpu_time_basis == "inferred"}
    rows = tuple(
        (
            Cell(
                labels.get(t.tenant_id, f"tenant {t.tenant_id}") + (" (all clients)" * (t.tenant_id in of_all)),
                tone="code",
            ),
            Cell(fmt.percent(t.gpu_time_share), basis=summary.basis),
            Cell(fmt.count(t.slices)),
            value_cell(fmt.duration(t.median_slice_ns)),
            value_cell(_most(t)),
            value_cell(fmt.UNKNOWN if t.expired is None else f"{fmt.count(t.expired)} / {fmt.count(t.yielded)}"),
            value_cell(fmt.percent(t.idle_share)),
        )
        for t in summary.tenants
    )
    columns = (
        Column("Tenant"),
        Column("GPU time share", "of the window", True),
        Column("Intervals", "complete", True),
        Column("Median", numeric=True),
        Column("p10-p90", numeric=True),
        Column("Expired / yielded", "by their length", True),
        Column("Idle", "of its resident time", True),
    )
    parts = [
        f"time slice about {fmt.duration(summary.time_slice_ns)}, as under the {summary.policy} policy"
        if summary.time_slice_ns
        else "",
        f"Jain's index of residency {summary.jain:.3f}" if summary.jain is not None else "",
        f"save {fmt.duration(summary.median_save_ns)}" if summary.median_save_ns is not None else "",
        f"restore {fmt.duration(summary.median_restore_ns)}" if summary.median_restore_ns is not None else "",
    ]
    said = "; ".join(part for part in parts if part)
    return [Table(columns, rows, f"Residency intervals per tenant ({summary.basis}){f': {said}' if said else ''}.")]


def _most(tenant: ResidencyTotals) -> str:
    if not tenant.slices:
        return fmt.UNKNOWN
    return f"{fmt.duration(tenant.p10_slice_ns)} - {fmt.duration(tenant.p90_slice_ns)}"


def _lost(dropped: int | None) -> str:
    return fmt.UNKNOWN if dropped is None else fmt.count(dropped)


SECTION = DeviceSection("residency", "GPU time and context switches", _blocks, of_trace=True)
