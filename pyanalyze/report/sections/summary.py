"""Key figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import Reason, impact_of
from pyanalyze.report.blocks import Block, Fact, Facts, Para
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sections.glossary import TITLE as BASES
from pyanalyze.report.sentences.mode import agreement_note, likely_text, mode_clauses
from pyanalyze.report.sentences.occupancy import bounded_text, by_traced, counted_sms
from pyanalyze.report.sentences.residency import (
    median_interval,
    of_intervals,
    other_slice_ns,
    with_saving_text,
    without_kernels,
)
from pyanalyze.report.sentences.samples import samples_text
from pyanalyze.report.sentences.slowdown import KIND_WORDS, bound_text, slower_elapsed
from pyanalyze.report.sentences.tenants import residency_labels
from pyanalyze.results.labels import tenant_labels
from pyanalyze.results.switch_cost import inferred_switch
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import Mode

if TYPE_CHECKING:
    from pyanalyze.results.report import Device


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    sharing = device.sharing
    facts = [
        Fact(
            "Sharing mode",
            sharing.mode,
            _confidence(device),
            sharing.basis if sharing.evidence else None,
        ),
        Fact("Configured", sharing.configured or fmt.UNKNOWN, agreement_note(device)),
    ]
    switches = device.context_switches
    if switches is None:
        facts.append(Fact("Context switches", fmt.UNKNOWN, "no switch records"))
    else:
        inferred = inferred_switch(device) if switches.count else None
        saving = "" if inferred is None else f"; {with_saving_text(inferred, device)}"
        facts.append(
            Fact(
                "Full switches" if switches.cost_kind == "full" else "Switch gaps",
                fmt.percent(switches.overhead_fraction) if switches.count else "none",
                f"{'of the window; ' if switches.count else ''}{fmt.count(switches.count)} context switches{saving}",
                "observed",
            )
        )
        if switches.count and switches.median_slice_ns is not None:
            median = median_interval(device, switches.median_slice_ns)
            slice_ns = other_slice_ns(device)
            note = "" if slice_ns is None else f"; time slice about {fmt.duration(slice_ns)}"
            if empty := without_kernels(device):
                labels = residency_labels(device)
                each = [
                    f"{fmt.count(t.without_kernels)} of {fmt.count(t.slices)} of "
                    f"{labels.get(t.tenant_id, f'tenant {t.tenant_id}')}"
                    for t in empty
                ]
                note += f"; without a kernel {fmt.names(each, 3)}"
            facts.append(Fact("Median residency interval", median, f"{of_intervals(device)}{note}", "observed"))
    impact = impact_of(device)
    victim = impact.victim
    if victim is None and impact.reason is Reason.SOLE_TENANT:
        one = "only one used the GPU" if device.sharing.condition is None else "only one is known"
        facts.append(Fact("Largest slowdown", "none known", f"by another process: {one}"))
    elif victim is None:
        facts.append(Fact("Largest slowdown", fmt.UNKNOWN, "see what is not available"))
    else:
        label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
        note = f"{label}, {KIND_WORDS[victim.kind]}, n = {fmt.count(victim.estimate.n)}"
        if (slower := slower_elapsed(device)) is not None:
            note += f"; by {KIND_WORDS['elapsed']}: {slower}"
        known = "Largest known slowdown" if impact.unknown else "Largest slowdown"
        value = f"{bound_text(victim.estimate)}{fmt.ratio(victim.estimate.value)}"
        facts.append(Fact(known, value, note, victim.estimate.basis))
    if (check := counted_sms(device)) is not None:
        facts.append(
            Fact("SMs active", fmt.percent(check.sm_active), f"by counter, {samples_text(device, check)}", "sampled")
        )
    elif device.occupancy is not None:
        facts.append(
            Fact(
                "SMs active",
                bounded_text(device.occupancy.sm_active),
                f"mean over the window{by_traced(device)}",
                device.occupancy.basis,
            )
        )
    elif (metrics := device.gpu_metrics) is not None and metrics.sm_active is not None:
        said = f"by counter, {samples_text(device, metrics)}"
        facts.append(Fact("SMs active", fmt.percent(metrics.sm_active), said, "sampled"))
    return [Facts(tuple(facts)), Para(f'Labels such as observed: see "{BASES}" at the end.', "muted")]


def _confidence(device: Device) -> str:
    sharing = device.sharing
    if sharing.mode != Mode.UNDETERMINED:
        stated = sharing.stated_confidence
        told = "" if stated is None else f"confidence {stated:.2f}"
        return f"{told}{mode_clauses(device)}".removeprefix(", ")
    return likely_text(sharing)


SECTION = DeviceSection("summary", "Key numbers", _blocks)
