"""The first sentences of a page and of a summary: what is slow and why, mode and GPU time, occupancy and action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import impact_of
from pyanalyze.report.sentences.cause import cause_sentence, cause_text, lost_text, switched_out_text
from pyanalyze.report.sentences.gpu_time import residency_sentence
from pyanalyze.report.sentences.missing import short_why, solo_first
from pyanalyze.report.sentences.mode import agreement_text, confidence_scope, mode_text, verdict_sentence
from pyanalyze.report.sentences.occupancy import (
    bounded_text,
    by_traced,
    counted_sms,
    occupancy_basis,
    while_in_flight,
)
from pyanalyze.report.sentences.samples import gpu_metrics_text, samples_text
from pyanalyze.report.sentences.slowdown import (
    aggressors_text,
    slower_elapsed,
    unknown_slowdown,
    victim_sentence,
    waiting_text,
)
from pyanalyze.report.sentences.time_split import limit_text
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.vocabulary import Answer, Mode

if TYPE_CHECKING:
    from pyanalyze.analysis.impact import Victim
    from pyanalyze.results.report import Device


def lead_sentences(device: Device) -> tuple[str, str, str]:
    """Answer the five questions in three paragraphs: what is slow and why, mode and GPU time, occupancy and action.

    Where sharing the GPU is not the cause, that is said first.
    """
    mode = f"{_mode_lead(device)} Configured: {agreement_text(device)}. {_residency_lead(device)}"
    parts = []
    if (check := counted_sms(device)) is not None:
        counted = f"hardware counter, mean of {samples_text(device, check)}"
        parts.append(f"SMs active: {fmt.percent(check.sm_active)} ({counted}).")
    elif device.occupancy is not None:
        bounded = device.occupancy.sm_active
        known = occupancy_basis(device.occupancy)
        # One number is no interval.
        if fmt.percent(bounded.low) != fmt.percent(bounded.high):
            known += ", 95 % interval"
        parts.append(f"SMs active, mean over the window: {bounded_text(bounded)}{by_traced(device)} ({known}).")
        if (busy := while_in_flight(device.occupancy)) is not None:
            parts.append(f"Mean over the time with kernels: {bounded_text(busy[0])}.")
    elif (metrics := gpu_metrics_text(device)) is not None:
        parts.append(f"By hardware counters: {metrics}.")
    else:
        parts.append(f"SM occupancy is not known: {full_stop(short_why(device, 'occupancy'))}")
    if device.advice:
        parts.append(f"First action: {full_stop(visible(device.advice[0].action, 200))}")
    elif (first := solo_first(device)) is not None:
        parts.append(f"First action: {first[0]}.")
    impact = impact_of(device)
    slowed = [] if impact.answer is Answer.NO and impact.sole_tenant else _slowed(device)
    limit = limit_text(device)
    if limit is not None and (impact.victim is None or not impact.victim.slowed):
        slowed = [limit, *slowed]
    if impact.answer is Answer.NO:
        slowed = [cause_sentence(device), *slowed]
    return " ".join(slowed), mode, " ".join(parts)


def _mode_lead(device: Device) -> str:
    """The sharing mode without the name of the device, which stands above it."""
    if device.sharing.mode == Mode.UNDETERMINED:
        return verdict_sentence(device)
    labels, group = tenant_labels(device.tenants), device.mps_group()
    outside = sorted(labels[t.tenant_id] for t in device.tenants if t.resident_ns and t not in group) if group else []
    who = f" Outside of the MPS group: {fmt.names(outside)}." if outside else ""
    return f"Sharing mode: {mode_text(device)}{confidence_scope(device.sharing)}{who}"


def _residency_lead(device: Device) -> str:
    """GPU time in one paragraph: how to capture what is missing stands further down."""
    if any(t.gpu_time_share is not None for t in device.tenants):
        # Its section and Key numbers have context switches and the lengths of residency intervals.
        return residency_sentence(device, costs=False)
    # Kernels alone would show it as well.
    why = short_why(device, "kernels", "context_switches", "residency", "window")
    return f"GPU time per tenant is not known: {full_stop(why)}"


def _slowed(device: Device) -> list[str]:
    """Victim, aggressor and cause, a sentence each."""
    impact = impact_of(device)
    victim = impact.victim
    if victim is None:
        if impact.sole_tenant:
            return [victim_sentence(device)]
        why = full_stop(capital(short_why(device, "slowdown", "interference")))
        return [f"Slowdown is {unknown_slowdown(device)}. {waiting_text(device)}{why}"]
    parts = [victim_sentence(device)]
    if not victim.slowed:
        return parts
    parts.append(_aggressor(device, victim))
    if victim.lost is not None:
        parts.append(f"Cause: {lost_text(victim)}.")
    elif victim.tenant.causes is None and victim.switched_out is not None:
        parts.append(f"Cause: {switched_out_text(victim)}.")
    else:
        parts.append(f"Cause: {cause_text(victim, device.sharing.mode)}.")
    return parts


def _aggressor(device: Device, victim: Victim) -> str:
    text = aggressors_text(device, victim)
    if slower_elapsed(device) is None:
        return f"{capital(text)}."
    # The sentence before is of another tenant.
    return f"{tenant_labels(device.tenants)[victim.tenant.tenant_id]}: {text}."
