"""Residency of each tenant, and what context switches cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Note,
    Para,
    Table,
    chart_key,
    column_legend,
    value_cell,
)
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.co_run import busy_gaps_text, co_ran_word, most_alone, shares_known
from pyanalyze.report.sentences.gpu_time import residency_sentence
from pyanalyze.report.sentences.missing import why_missing
from pyanalyze.report.sentences.residency import (
    median_interval,
    of_intervals,
    range_name,
    too_few_intervals,
    unlike_medians,
    whole_intervals,
    without_kernels,
)
from pyanalyze.report.sentences.tenants import has_untraced, residency_labels
from pyanalyze.report.sentences.words import recorded_ns, share_of_residency
from pyanalyze.results.switch_cost import inferred_switch
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import ENOUGH_INTERVALS

if TYPE_CHECKING:
    from pyanalyze.results.report import Device
    from pyanalyze.results.residency import ContextSwitches, ResidencySummary, ResidencyTotals
    from pyanalyze.vocabulary import Basis


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
            caption = f"Residency inferred from starts and ends of kernels{_line_of(device)}."
            blocks.append(Chart(chart_key("slices", device.device_id), "Lengths of residency intervals", caption))
            blocks += _slice_tables(device)
        return blocks
    blocks.append(
        Chart(
            chart_key("slices", device.device_id),
            "Lengths of residency intervals",
            f"Complete residency intervals, per tenant{_line_of(device)}.",
        )
    )
    rows: list[tuple[str, str, str, Basis]] = [
        ("Switches", fmt.count(switches.count), "between contexts with work", "observed"),
        (
            "Median residency interval",
            _median(device, switches),
            of_intervals(device),
            "observed",
        ),
        ("Lost records", _lost(switches.dropped), "gaps in sequence numbers", "observed"),
    ]
    if switches.context_creations:
        left_out = (
            "around a context resident at most twice, beside another of its process: being created, or hardly used"
        )
        rows.insert(1, ("Switches left out", fmt.count(switches.context_creations), left_out, "inferred"))
    if switches.endings:
        text = ", ".join(
            f"{'not recorded' if kind == _NO_REASON else visible(kind, 24)} {fmt.count(n)}"
            for kind, n in sorted(switches.endings.items())
        )
        rows.append(("Reasons for the ends of intervals", text, _reasons_note(switches), "observed"))
    if switches.unrecorded_starts:
        left_out = "from a context that was resident before the first record; since when is not known"
        rows.insert(1, ("Switches left out", fmt.count(switches.unrecorded_starts), left_out, "observed"))
    cells = tuple((Cell(a), Cell(b), Cell(c), Cell("", basis=basis)) for a, b, c, basis in rows)
    columns = (Column("Quantity"), Column("Value", numeric=True), Column("Scope"), Column("Basis"))
    blocks.append(Table(columns, cells, "Context switches of the whole export."))
    if switches.count:
        blocks.append(_switch_parts(device, switches))
    blocks += _slice_tables(device)
    return blocks


def _line_of(device: Device) -> str:
    """What the line in the chart of lengths is, where it has one."""
    few = _intervals(device) < ENOUGH_INTERVALS
    return "" if few or unlike_medians(device) else "; the line marks the median of all"


def _intervals(device: Device) -> int:
    """Complete intervals of all tenants."""
    summary = device.residency_summary
    return 0 if summary is None else sum(tenant.slices for tenant in summary.tenants)


def _median(device: Device, switches: ContextSwitches) -> str:
    if switches.median_slice_ns is None:
        return "none"
    return "too few" if too_few_intervals(_intervals(device)) else median_interval(device, switches.median_slice_ns)


#: The ending of an interval for which the driver wrote no acknowledgement record.
_NO_REASON = "unknown"
#: What the acknowledgement record of the driver says of how a context was stopped.
_REASON_WORDS = {
    "WFI": "WFI: the work in flight ended first",
    "GFXP": "GFXP: preempted inside a graphics primitive",
    "CTAP": "CTAP: preempted between blocks",
    "CILP": "CILP: preempted between instructions",
}


def _reasons_note(switches: ContextSwitches) -> str:
    words = ["of all intervals, also around switches left out"] if switches.context_creations else []
    words += [text for kind, text in _REASON_WORDS.items() if kind in switches.endings]
    if _NO_REASON in switches.endings:
        words.append("not recorded: release drivers write no acknowledgement record, which would say why")
    return "; ".join(words)


def _switch_parts(device: Device, switches: ContextSwitches) -> Table:
    """The parts of a switch and their sum: the one place that has them all."""
    known = (
        ("Stop and save", "acknowledgement to SAVE_END", switches.save),
        ("Switch gap", "SAVE_END to the next RESTORE_START", switches.gap),
        ("Restore", "RESTORE_START to CONTEXT_START", switches.restore),
    )
    rows = [(name, scope, part.median_ns, part.total_ns) for name, scope, part in known if part is not None]
    if switches.cost_kind == "full" and switches.median_cost_ns is not None and switches.total_cost_ns is not None:
        rows.append(("Full switch", "sum of the three", switches.median_cost_ns, switches.total_cost_ns))
    elif (inferred := inferred_switch(device)) is not None:
        for name, scope, (likely, least, most) in (
            ("Save and restore (inferred)", "inside residency intervals", inferred.state),
            ("Full switch (inferred)", "sum of the two", inferred.whole),
        ):
            between = f"{fmt.duration(least.median_ns)} to {fmt.duration(most.median_ns)}"
            rows.append((name, f"{scope}; {between}", likely.median_ns, likely.total_ns))
    cells = tuple(
        (
            Cell(name),
            Cell(scope),
            value_cell(fmt.duration(median_ns)),
            value_cell(fmt.duration(total_ns)),
            value_cell(fmt.percent(share_of_residency(total_ns, device))),
        )
        for name, scope, median_ns, total_ns in rows
    )
    columns = (
        Column("Part"),
        Column("From and to"),
        Column("Median", "of a switch", True),
        Column("Total", "of all counted", True),
        Column("Share", f"total over the {_of_time(device)}", True),
    )
    caption = (
        "What context switches cost (observed). Stop and save, and restore, are in GPU time as well."
        if switches.cost_kind == "full"
        else "What context switches cost (observed, but for rows marked inferred). The gap leaves out saving and "
        "restoring, which this driver does not record."
    )
    if gaps := busy_gaps_text(device):
        caption += f" {gaps}"
    return Table(columns, cells, caption)


def _of_time(device: Device) -> str:
    """What shares of residency are of."""
    return "window" if recorded_ns(device) is None else "time on record"


def _slice_tables(device: Device) -> list[Block]:
    """Residency per tenant: GPU time share, lengths, how intervals ended."""
    summary = device.residency_summary
    if summary is None:
        return []
    labels = residency_labels(device)
    of_co_run = {one.tenant_id: one.all_at_work_share for one in device.tenants}
    co_ran = len(summary.tenants) > 1 and most_alone(device) and shares_known(device)
    rows = tuple(
        (
            Cell(labels.get(t.tenant_id, f"tenant {t.tenant_id}"), tone="code"),
            *([Cell(fmt.percent(of_co_run.get(t.tenant_id)), basis=summary.basis)] if co_ran else []),
            Cell(fmt.percent(t.gpu_time_share), basis=summary.basis),
            Cell(fmt.count(t.slices)),
            value_cell("too few" if too_few_intervals(t.slices) else fmt.duration(t.median_slice_ns)),
            value_cell(_most(t, range_name(summary.tenants))),
            value_cell(fmt.UNKNOWN if t.expired is None else f"{fmt.count(t.expired)} / {fmt.count(t.yielded)}"),
            value_cell(fmt.percent(t.idle_share)),
        )
        for t in summary.tenants
    )
    of_time = _of_time(device)
    resident = "; of untraced: resident" if has_untraced(device) else ""
    columns = (
        Column("Tenant"),
        *([Column("GPU time share", f"while all co-ran{resident}", True)] if co_ran else []),
        Column("GPU time share", f"of the {of_time}", True),
        Column("Intervals", f"complete{whole_intervals(device)}", True),
        Column("Median", numeric=True),
        Column(capital(range_name(summary.tenants)), numeric=True),
        Column("Expired / yielded", "a kernel / none in flight at the end", True),
        Column("Idle", "of its resident time", True),
    )
    parts = [
        f"Residency intervals per tenant ({summary.basis}): {_EXTENT} of the {of_time}.",
        _time_slice(summary),
        _fairness(device, summary) if len(rows) > 1 else "",
    ]
    ended = any(t.expired is not None for t in summary.tenants)
    if not ended and summary.basis == "observed" and summary.time_slice_ns is None and len(rows) > 1:
        parts.append("The time slice is not known: too few intervals of one length ended while their context had work.")
    caption = " ".join(filter(None, parts))
    paragraphs = [text for text in (_split_text(device, summary), _without_kernels_text(device)) if text]
    return [*map(Para, paragraphs), Table(columns, rows, caption), *([_ENDS] if ended else [])]


#: What counts and what shares of the table of residency intervals are of.
_EXTENT = "counts and lengths of the whole export, GPU time shares and idle time"
_ENDS = column_legend(
    (
        "Expired (inferred)",
        "another tenant followed, after at least 0.8 time slices; of traced kernels one was in flight at the end",
    ),
    (
        "Yielded (inferred)",
        "another tenant followed; of traced kernels none was in flight at the end, or untraced: below 0.8 time slices",
    ),
    ("In neither", "no other tenant followed; or below 0.8 time slices, with a traced kernel in flight at the end"),
    ("Idle", "time in which the tenant was resident and had no kernel in flight"),
)


def _fairness(device: Device, summary: ResidencySummary) -> str:
    """Jain's index of the time in which all co-ran, and of the window; empty: not known."""
    if summary.jain is None:
        return ""
    whole = f"{summary.jain:.3f} over the whole {_of_time(device)}, also while a tenant had no work"
    if device.all_at_work_jain is not None and most_alone(device):
        whole = f"{device.all_at_work_jain:.3f} while all {co_ran_word(device)} and {whole}"
    return f"Jain's fairness index of GPU time (1 is equal) is {whole}."


#: Part of the intervals that another tenant followed: a tenant with so many of one end has that end.
_MOSTLY = 0.95


def _split_text(device: Device, summary: ResidencySummary) -> str:
    """Why two tenants do not have the GPU equally: one yields, and waits while the other uses up its time slices."""
    labels, ended = residency_labels(device), [t for t in summary.tenants if (t.expired or 0) + (t.yielded or 0)]
    if len(ended) != 2 or len(summary.tenants) != 2:
        return ""
    yields, uses_up = sorted(ended, key=lambda t: (t.expired or 0) / ((t.expired or 0) + (t.yielded or 0)))
    counts = [((t.expired or 0) + (t.yielded or 0)) for t in (yields, uses_up)]
    early, whole = yields.yielded or 0, uses_up.expired or 0
    if 2 * (yields.without_kernels or 0) > yields.slices:
        return ""  # It had no work then: what of the GPU it did not use it did not want.
    if min(counts) < ENOUGH_INTERVALS or early < _MOSTLY * counts[0] or whole < _MOSTLY * counts[1]:
        return ""
    first, second = (labels.get(t.tenant_id, f"tenant {t.tenant_id}") for t in (yields, uses_up))
    slice_known = summary.policy is not None or summary.basis != "observed"
    ended_how = "used up" if slice_known else "was switched out with work in flight in"
    return (
        f"{first} yielded in {fmt.count(early)} of {fmt.count(counts[0])} intervals, after "
        f"{fmt.duration(yields.median_slice_ns)} (median), with none of its kernels in flight. "
        f"What it launches next may wait until {second} is switched out. "
        f"{second} {ended_how} {fmt.count(whole)} of {fmt.count(counts[1])}, "
        f"{fmt.duration(uses_up.median_slice_ns)} each (median; inferred)."
    )


def _without_kernels_text(device: Device) -> str:
    """How often the context of a tenant was resident without a kernel of it: a median of all intervals hides that."""
    many, labels = without_kernels(device), residency_labels(device)
    if not many or device.window is None:
        return ""
    inside_ns = sum(t.without_kernels_in_window_ns or 0 for t in many)
    all_ns = sum(t.without_kernels_ns or 0 for t in many)
    share, of_all = (fmt.percent(share_of_residency(ns, device)) for ns in (inside_ns, all_ns))
    of_time = _of_time(device)
    each = [
        f"{fmt.count(t.without_kernels)} of {fmt.count(t.slices)} of "
        f"{labels.get(t.tenant_id, f'tenant {t.tenant_id}')} ({fmt.duration(t.without_kernels_ns)})"
        for t in many
    ]
    part = (
        f"They are {share} of the {of_time}"
        if share == of_all
        else f"{fmt.duration(inside_ns)} of that is in the {of_time}, {share} of it"
    )
    return (
        f"Residency intervals in which the tenant had no kernel in flight (observed): {fmt.names(each, 4)}. "
        f"{part}, and each costs a context switch as well."
    )


def _most(tenant: ResidencyTotals, column: str) -> str:
    """The range of lengths; of a tenant with too few for the percentiles that the column names, its name as well."""
    if tenant.p10_slice_ns is None:
        return fmt.UNKNOWN
    if tenant.slices == 1:
        return "one interval"
    mine = range_name([tenant])
    note = "" if mine == column else f" ({mine})"
    return f"{fmt.duration(tenant.p10_slice_ns)} - {fmt.duration(tenant.p90_slice_ns)}{note}"


def _lost(dropped: int | None) -> str:
    return fmt.UNKNOWN if dropped is None else fmt.count(dropped)


SECTION = DeviceSection("residency", "GPU time and context switches", _blocks, of_trace=True)


def _time_slice(summary: ResidencySummary) -> str:
    """The length of a time slice and what it says of the policy; empty: no lengths agree."""
    if not summary.time_slice_ns:
        return ""
    length = fmt.duration(summary.time_slice_ns)
    if summary.policy is None and summary.basis == "observed":
        return (
            f"The time slice is not known: intervals that others ended cluster at {length}, which no policy is "
            "known to have. It may be the rhythm of the work."
        )
    policy = "no known policy" if summary.policy is None else f"policy {summary.policy}, assumed from that length"
    return f"The time slice is about {length} ({policy})."
