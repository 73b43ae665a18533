"""The sharing mode, its evidence and its alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.mig import most_instances
from pyanalyze.report.blocks import Block, Cell, Column, Commands, Fold, Note, Para, Table, value_cell
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.mode import (
    agreement_text,
    not_told_apart,
    verdict_sentence,
    weighed_evidence,
    weights_text,
)
from pyanalyze.report.sentences.words import LONG, id_text
from pyanalyze.results.labels import tenant_labels
from pyanalyze.results.sharing import SWITCH_OVERHEAD
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.results.report import Device, Report
    from pyanalyze.results.sharing import Evidence, Relation


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    sharing = device.sharing
    traits = TRAITS[sharing.mode]
    # Reasons for a mode are the first rows of the evidence. Of caps that have no effect the summary says more, and of
    # groups of work that they are not processes.
    told = sharing.mode == Mode.UNDETERMINED or traits.mps or not sharing.evidence or inputs.report.grouped_by
    summary = full_stop(visible(sharing.summary, LONG)) if told else ""
    blocks: list[Block] = [Para(summary or verdict_sentence(device))]
    if sharing.agrees is False:
        text = f"{sharing.configured} was configured, {sharing.found}.{_no_clients(device, inputs.report)}"
        blocks.append(Note("Not shared as configured", text, "warning"))
    else:
        blocks.append(Para(f"Configured mode: {agreement_text(device)}.", "muted"))
    # What context switches cost stands in the section on them.
    details = [one for one in sharing.details if one.name != SWITCH_OVERHEAD]
    if details:
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (Cell(d.topic), Cell(capital(visible(d.detail, LONG))), Cell("", basis=d.basis)) for d in details
        )
        heads: tuple[Column, ...] = (Column("Topic"), Column("Finding"), Column("Basis"))
        blocks.append(Table(heads, rows, "Details of the sharing mode."))
    if sharing.evidence:
        columns: tuple[Column, ...] = (
            Column("Evidence"),
            Column("For"),
            Column("Against"),
            Column("Weight", "log odds", numeric=True),
            Column("n", numeric=True),
            Column("Basis"),
            Column("Name"),
        )
        blocks.append(
            Table(columns, tuple(_evidence_row(device, *e) for e in weighed_evidence(sharing)), weights_text(sharing))
        )
    else:
        blocks.append(Para("No evidence is available.", "muted"))
    found = [
        (
            Cell(visible(item.name), tone="code"),
            Cell(fmt.UNKNOWN if example.capture is None else str(example.capture)),
            Cell(str(example.start_ns)),
            Cell(str(example.end_ns)),
            Cell(id_text(example.pid)),
            Cell(id_text(example.correlation_id)),
        )
        for item in sharing.evidence
        for example in item.examples
    ]
    if found:
        titles = ("Evidence", "Capture", "Start", "End", "pid", "Correlation id")
        columns = tuple(Column(h, "ns" if h in ("Start", "End") else "", h != "Evidence") for h in titles)
        caption = "Times as nsys shows them (observed)."
        blocks.append(Fold("Intervals that show the evidence", (Table(columns, tuple(found), caption),)))
    # A comment and a semicolon each: pasted into sqlite3 all at once, they run one after the other.
    queries = [(f"-- {visible(e.name)}", f"{visible(e.sql, None).rstrip('; ')};") for e in sharing.evidence if e.sql]
    if queries:
        lines = tuple(line for query in queries for line in query)
        blocks.append(Fold("SQL queries that show the same in the export", (Commands(lines, "sql"),)))
    if sharing.alternatives:
        rows = tuple(
            (Cell(r.mode), Cell(f"{r.confidence:.2f}"), Cell(visible(r.why_not, LONG))) for r in sharing.alternatives
        )
        first, what = "Other mode", "Alternatives: modes that were not chosen"
        if sharing.mode == Mode.UNDETERMINED:
            first, what = "Mode", "Candidates"
        caption = f"{what}. All modes add up to 1; those below 0.01 are left out."
        columns = (Column(first), Column("Probability", numeric=True), Column("Why not"))
        against = {mode for item in sharing.evidence for mode in item.against}
        # Where no evidence weighs against any of them there is no reason to give.
        if not any(r.mode in against for r in sharing.alternatives):
            columns, rows = columns[:2], tuple(row[:2] for row in rows)
        if sharing.mode == Mode.UNDETERMINED:
            caption += "".join(f" No evidence tells {fmt.names(modes)} apart." for modes in not_told_apart(sharing))
        blocks.append(
            Table(
                columns,
                rows,
                caption,
            )
        )
    # What a mode promises holds where it is that mode: without a confidence nobody knows.
    if sharing.mode != Mode.UNDETERMINED and sharing.stated_confidence is not None:
        blocks.append(Fold("Documented isolation of this mode", (_promises(device),)))
    if len(device.segments) > 1:
        start = 0 if device.window is None else device.window.start_ns
        rows = tuple(
            (
                Cell(fmt.duration(s.start_ns - start)),
                Cell(fmt.duration(s.end_ns - start)),
                Cell(s.mode),
                Cell(f"{s.confidence:.2f}"),
            )
            for s in device.segments
        )
        columns = (
            Column("From", "after window start", True),
            Column("To", "after window start", True),
            Column("Mode"),
            Column("Confidence", numeric=True),
        )
        blocks.append(Table(columns, rows, "Sharing mode over time (inferred), each part of the window by itself."))
    if device.relations:
        labels = tenant_labels(device.tenants)
        rows = tuple(
            (
                Cell(labels.get(r.tenants[0], f"#{r.tenants[0]}")),
                Cell(labels.get(r.tenants[1], f"#{r.tenants[1]}")),
                Cell(_unknown_relation(r, device) if r.relation == "unknown" else r.relation),
                # Of what is not known there is no confidence.
                value_cell(fmt.UNKNOWN if r.relation == "unknown" else f"{r.confidence:.2f}"),
                value_cell(fmt.duration(r.co_busy_ns)),
            )
            for r in device.relations
        )
        columns = (
            Column("Tenant"),
            Column("Tenant"),
            Column("Relation"),
            Column("Confidence", numeric=True),
            Column("Both busy", "kernel intervals, observed", True),
        )
        blocks.append(Table(columns, rows, "Relation of each pair of tenants."))
    return blocks


#: By what a client finds its MPS daemon.
_PIPE = "CUDA_MPS_PIPE_DIRECTORY"


def _no_clients(device: Device, report: Report) -> str:
    """Name the tenants outside of an MPS group that were not given its daemon, where their environment is known."""
    group, labels = device.mps_group(), tenant_labels(device.tenants)
    settings = [one for one in (*report.settings, *device.settings) if one.pid is not None]
    given = {one.pid: one.source for one in settings if one.key == _PIPE}
    # The same reader gives other variables of a process whose environment it read.
    read = {one.pid for one in settings if one.key.isupper() and one.source in given.values()}
    pids = {t.tenant_id: t.pid if t.host_pid is None else t.host_pid for t in device.tenants}
    inside = [labels[t.tenant_id] for t in group if pids[t.tenant_id] in given]
    outside = [labels[t.tenant_id] for t in device.tenants if t not in group and pids[t.tenant_id] in read - set(given)]
    if not inside or not outside or len(inside) < len(group):
        return ""
    return f" {_PIPE} was set for {fmt.names(inside)}, not for {fmt.names(outside)} (configured)."


def _unknown_relation(relation: Relation, device: Device) -> str:
    """What is known of two tenants of which it is not known whether they shared SMs."""
    if relation.co_busy_ns and TRAITS[device.sharing.mode].mps:
        return "concurrent; whether on the same SMs is not known"
    if {t.tenant_id for t in device.mps_group()}.issuperset(relation.tenants):
        return "clients of one MPS server; whether concurrent is not known"
    return fmt.UNKNOWN


def _promises(device: Device) -> Table:
    """Properties of a mode from its documentation; nothing in them was measured."""
    traits = TRAITS[device.sharing.mode]
    known = traits.promises
    # A sole process has all of it; its streams share that.
    whole = traits.solo and not traits.mig_instance and known.bandwidth_qos
    says = {True: "yes", False: "no", None: "sources disagree"}
    instances = ("Maximum number of instances", most_instances(device.name))
    rows = (
        ("Memory protection", says[known.memory_protection]),
        ("Fault isolation", says[known.fault_isolation]),
        ("DRAM bandwidth and L2 partitioned", "not shared" if whole else says[known.bandwidth_qos]),
        ("Exclusive SMs while it runs", says[known.own_sms]),
        ("Maximum number of tenants", known.most_tenants),
        *([instances] if traits.mig_instance else []),
        ("When it can be changed", known.reconfigurable),
        ("Telemetry per tenant", known.telemetry),
        ("Still shared", known.not_isolated),
        ("Sources", "; ".join(known.sources)),
    )
    columns = (Column("Property", "documented"), Column("", ""))
    return Table(columns, tuple((Cell(name), Cell(value)) for name, value in rows))


def _modes(modes: Sequence[str]) -> str:
    return ", ".join(modes) if modes else "–"


def _evidence_row(device: Device, item: Evidence, weight: float) -> tuple[Cell, ...]:
    # Its clients may all be traced.
    server = item.name == "untraced_resident" and any(t.served_by is not None for t in device.tenants)
    return (
        Cell(capital(visible(item.detail, LONG)) + (" (the MPS server is one of them)" if server else "")),
        Cell(_modes(item.supports)),
        Cell(_modes(item.against)),
        Cell(f"{weight:+.1f}" if weight else "0"),
        Cell(fmt.count(item.n)),
        Cell("", basis=item.basis),
        Cell(visible(item.name), tone="code"),
    )


SECTION = DeviceSection("sharing", "Sharing mode", _blocks, folded=True)
