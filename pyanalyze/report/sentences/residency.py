"""Residency intervals, and what context switches cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.report.sentences.co_run import co_run_part
from pyanalyze.report.sentences.tenants import residency_labels
from pyanalyze.report.sentences.words import share_of_residency, window_length_ns
from pyanalyze.results.switch_cost import inferred_switch
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import ENOUGH_FOR_P10_P90, ENOUGH_INTERVALS, UNLIKE_INTERVALS, are_unlike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.results.report import Device
    from pyanalyze.results.residency import ResidencyTotals
    from pyanalyze.results.switch_cost import InferredSwitch

#: Medians of a sentence.
_EACH_MEDIAN: Final = 3
#: What is known of a switch, by the kind of its cost: the names of the rows in the section on context switches.
_COST_WORDS = {
    "gap": ("context-switch gap", "context-switch gaps"),
    "full": ("full context switch", "full context switches"),
}
#: From this part of a tenant's intervals on those without a kernel of it are told.
_MANY_EMPTY = 0.1


def switch_cost_text(device: Device, *, short: bool = False, with_share: bool = True) -> str:
    """What context switches cost, and how long residency intervals are; the time slice where it is inferred.

    Short: behind the length of the window. With `with_share`, which part of the window their costs take.
    """
    switches, summary = device.context_switches, device.residency_summary
    if switches is None or not switches.count:
        if summary is not None and summary.time_slice_ns and summary.basis == "inferred":
            return f"{'time' if short else 'Time'} slice about {fmt.duration(summary.time_slice_ns)} (inferred)."
        return ""
    what = fmt.counted(switches.count, *_COST_WORDS[switches.cost_kind or "gap"])
    text = f"{what} of {fmt.duration(switches.median_cost_ns)}"
    if not with_share:
        return f"{text}."
    if switches.overhead_fraction is not None:
        take = ":" if short else " takes" if switches.count == 1 else " take"
        text += f"{take} {fmt.percent(switches.overhead_fraction)}"
        # Short, the length stands right before, unless that of the time in which all co-ran stands between.
        it = "it" if short and co_run_part(device) is None else "the window"
        text += f" of {it}" if switches.recorded_ns is None else " of that time"
    if switches.cost_kind == "full":
        # It reaches into residency.
        text += "; saving and restoring are in GPU time as well"
    elif (inferred := inferred_switch(device)) is not None:
        text += f", {with_saving_text(inferred, device)}"
    if not short and switches.median_slice_ns is not None:
        if medians := unlike_medians(device):
            each = [f"{fmt.duration(ns)} ({label}{f'; {span}' if span else ''})" for label, ns, span in medians]
            ends = median_interval(device, switches.median_slice_ns)
            said = fmt.names(each) if len(each) <= _EACH_MEDIAN else f"of each tenant {ends}"
            text += f"; median residency intervals {said}"
        else:
            text += f"; median residency interval {fmt.duration(switches.median_slice_ns)}"
        if (slice_ns := other_slice_ns(device)) is not None:
            text += f", time slice about {fmt.duration(slice_ns)}"
    return text + "."


def with_saving_text(inferred: InferredSwitch, device: Device) -> str:
    """Which part of the window switches take with saving and restoring."""
    share, low, high = (fmt.percent(share_of_residency(one.total_ns, device)) for one in inferred.whole)
    between = "" if low == high else f", {low} to {high}"
    return f"{share} with saving and restoring (inferred{between})"


def other_slice_ns(device: Device) -> int | None:
    """The time slice, where it is not the median residency interval: tenants that yield have shorter ones.

    A length that no policy is known to have may be the rhythm of the work.
    """
    switches, summary = device.context_switches, device.residency_summary
    if switches is None or summary is None or not switches.median_slice_ns or not summary.time_slice_ns:
        return None
    if summary.policy is None:
        return None
    return summary.time_slice_ns if summary.time_slice_ns >= UNLIKE_INTERVALS * switches.median_slice_ns else None


def whole_intervals(device: Device) -> str:
    """Say in the head of a column that intervals have their whole length, where one is longer than the window."""
    lengths = [] if device.residency_summary is None else [t.max_slice_ns for t in device.residency_summary.tenants]
    if max((ns for ns in lengths if ns is not None), default=0) <= (window_length_ns(device) or 0):
        return ""
    return ", also outside the window"


def too_few_intervals(intervals: int) -> bool:
    """Whether so many intervals have no median: of two, half of their sum is the length of none. One has its own."""
    return 1 < intervals < ENOUGH_INTERVALS


def range_name(tenants: Sequence[ResidencyTotals]) -> str:
    """What the ranges of lengths of these tenants are: of all of their intervals, where none has enough for a p10."""
    return "p10-p90" if any(t.slices >= ENOUGH_FOR_P10_P90 for t in tenants) else "shortest to longest"


def unlike_medians(device: Device) -> list[tuple[str, int, str]]:
    """Median residency interval of each tenant, where they differ: hardly an interval is as long as that of all.

    With their range, where the intervals of the tenant differ as well: half of them may be short and half long.
    """
    summary, labels = device.residency_summary, residency_labels(device)
    medians = [
        (labels.get(t.tenant_id, f"tenant {t.tenant_id}"), t.median_slice_ns, _span(t))
        for t in (summary.tenants if summary is not None else ())
        if t.median_slice_ns and t.slices >= ENOUGH_INTERVALS
    ]
    return medians if are_unlike([ns for _, ns, _ in medians]) else []


def without_kernels(device: Device) -> list[ResidencyTotals]:
    """Tenants whose context was often resident with no kernel of theirs in flight."""
    summary = device.residency_summary
    return [
        tenant
        for tenant in (summary.tenants if summary is not None else ())
        if tenant.slices >= ENOUGH_INTERVALS and (tenant.without_kernels or 0) >= _MANY_EMPTY * tenant.slices
    ]


def median_interval(device: Device, median_ns: int) -> str:
    """The median residency interval; from the shortest to the longest of the tenants, where theirs differ."""
    each = [ns for _, ns, _ in unlike_medians(device)]
    return f"{fmt.duration(min(each))} to {fmt.duration(max(each))}" if each else fmt.duration(median_ns)


def of_intervals(device: Device) -> str:
    """Whose median residency intervals are: of each tenant, by name where they are few."""
    each = unlike_medians(device)
    if not each:
        return "complete intervals"
    if len(each) > _EACH_MEDIAN:
        return "complete intervals, of each tenant"
    return f"complete intervals: {fmt.names([f'{label} {fmt.duration(ns)}' for label, ns, _ in each])}"


def _span(tenant: ResidencyTotals) -> str:
    low, middle, high = tenant.p10_slice_ns, tenant.median_slice_ns, tenant.p90_slice_ns
    if not low or not middle or not high or (middle < UNLIKE_INTERVALS * low and high < UNLIKE_INTERVALS * middle):
        return ""
    ends = f"{range_name([tenant])} {fmt.duration(low)} - {fmt.duration(high)}"
    # Two groups, of which the median is one.
    both = tenant.expired and tenant.yielded
    return (
        f"{ends}: {fmt.count(tenant.expired)} expired, {fmt.count(tenant.yielded)} with no kernel in flight"
        if both
        else ends
    )
