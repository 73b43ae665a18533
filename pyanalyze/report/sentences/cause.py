"""Is sharing the cause?  The answer, and what the added latency was spent on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.impact import CAUSE_WORDS, Cause, Reason, behind_own, impact_of
from pyanalyze.report.sentences.tenants import tenant_names
from pyanalyze.report.sentences.words import LONG
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import TRAITS, Condition, not_excluded

if TYPE_CHECKING:
    from pyanalyze.analysis.impact import Victim
    from pyanalyze.results.report import Device
    from pyanalyze.vocabulary import Mode

#: Slower execution in two parts: kernels themselves, and those that wait in their stream.
RAN_LONGER: Final = "kernels ran longer"
BEHIND_SLOWER: Final = "waits behind its own slower kernels"
#: What a context did while resident, where no record and no kernel shows it.
_SAVING: Final = "was saving or restoring (assumed)"
#: Reasons of one clause without parentheses; the others are sentences of their own.
_SHORT_REASONS = {
    Reason.SOLE_TENANT,
    Reason.NOT_MEASURED,
    Reason.CAUSES_UNKNOWN,
    Reason.NO_CAUSE,
}


def cause_sentence(device: Device, *, parts: bool = True) -> str:
    """Answer whether sharing the GPU is the cause: yes, no or unknown, with why; `parts`: of slower execution."""
    impact = impact_of(device)
    answer, why = impact.answer.value, why_sharing(device, parts=parts).rstrip(".")
    if impact.reason in (Reason.EXCLUDED, Reason.NOT_SLOWED):
        # Nothing is slow, so that there is nothing to have a cause.
        return f"Sharing slows no tenant ({why})."
    if impact.reason in _SHORT_REASONS:
        return f"Sharing is the cause: {answer} ({why})."
    return f"Sharing is the cause: {answer}. {capital(why)}."


def why_sharing(device: Device, *, parts: bool = True) -> str:
    """Say why sharing the GPU is the cause, is not, or may be; without the answer itself."""
    impact = impact_of(device)
    host = visible(device.host[0].detail, LONG).rstrip(".") if device.host else ""
    victim, sharing = impact.victim, device.sharing
    if victim is None:
        return {
            Reason.HOST: f"check the host first: {host}",
            Reason.HOST_ONLY: f"no slowdown could be measured; check the host first: {host}",
            Reason.SOLE_TENANT: _only_process(device),
            Reason.OTHERS_NOT_EXCLUDED: "only one process was traced, and nothing excludes that another slowed it",
            Reason.NOT_MEASURED: "no slowdown could be measured",
        }[impact.reason]
    slowdown, high = fmt.ratio(victim.estimate.value), victim.estimate.high
    label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
    match impact.reason:
        case Reason.HOST:
            return f"check the host first: {host}"
        case Reason.SOLE_TENANT_SLOWED:
            return f"{_only_process(device)}; it takes {slowdown} its baseline for another reason"
        case Reason.OTHERS_MAY_SLOW if sharing.condition is not None:
            others = not_excluded(sharing.condition, sharing.mode)
            return f"only one process is known; it takes {slowdown} its baseline; not excluded as the cause: {others}"
        case Reason.OTHERS_UNKNOWN:
            rest = tenant_names(device, impact.unknown)
            return f"the largest known slowdown is {slowdown}; that of {rest} is not known"
        case Reason.EXCLUDED:
            return f"the largest slowdown is at most {fmt.ratio(high)}"
        case Reason.NOT_SHOWN:
            if victim.estimate.from_below:
                return f"the largest slowdown is at least {slowdown}, without an upper bound"
            if victim.estimate.low is None or high is None:
                return f"the largest slowdown is {slowdown}, without a confidence interval"
            return f"the largest slowdown, {slowdown}, is not significant: its interval includes 1"
        case Reason.NOT_SLOWED:
            return f"the largest slowdown is {slowdown}"
        case Reason.SWITCHED_OUT:
            if victim.lost is not None:
                return f"{lost_text(victim)} of {label}"
            return switched_out_text(victim, label)
        case Reason.CAUSES_UNKNOWN:
            return f"{label} was slowed, but where the time went is not known"
        case Reason.NO_CAUSE:
            return "no cause could be measured"
        case _:
            return cause_text(victim, device.sharing.mode, parts=parts)


def _only_process(device: Device) -> str:
    sharing = device.sharing
    if sharing.condition is None:
        return "only one process used the GPU"
    if sharing.condition is Condition.UNLESS_RARE_TENANT:
        return "only one process is known; another that slowed it would show, unless it ran occasionally or briefly"
    return f"only one process is known; not excluded: {not_excluded(sharing.condition, sharing.mode)}"


def cause_text(victim: Victim, mode: Mode, *, parts: bool = True) -> str:
    """Name the cause of a victim's added latency; a wait behind work of its own counts as what that one waited for."""
    if victim.top is None:
        return fmt.UNKNOWN
    cause, part = victim.top
    if victim.tenant.group_of is not None:
        return CAUSE_WORDS[cause]
    how = "time slices, " if cause is Cause.OTHERS and TRAITS[mode].time_sliced else ""
    own = behind_own(victim.tenant, cause) if parts and cause is Cause.EXECUTION else None
    both = "" if own is None else f": {RAN_LONGER} {fmt.percent(part - own)}, {BEHIND_SLOWER} {fmt.percent(own)}"
    said = f"{CAUSE_WORDS[cause]} ({how}{fmt.percent(part)} of the added latency{both})"
    return f"{said}; {CAUSE_WORDS[victim.second[0]]} {fmt.percent(victim.second[1])}" if victim.second else said


def switched_out_text(victim: Victim, label: str | None = None) -> str:
    """Why kernels of a victim took longer, where switch records say it and nothing else: the larger part first."""
    added = victim.tenant.added_latency if victim.waited else None
    kernels = "its kernels" if label is None else f"kernels of {label}"
    if added is not None and added.mostly_before_start:
        waited = f"{fmt.duration(added.before_start_ns)} of the {fmt.duration(added.added_ns)} added"
        if added.kernels == 1:
            said = f"{'its kernel' if label is None else f'the kernel of {label}'} waited before it started: {waited}"
        else:
            mean = f"{fmt.duration(added.before_start_ns / added.kernels)} each (mean of {fmt.count(added.kernels)})"
            said = f"{kernels} waited {mean} before they started: {waited}"
        if added.switched_out_ns:
            of = fmt.counted(added.switched_out_kernels, "kernel")
            said += f"; {fmt.duration(added.switched_out_ns)} more while switched out in flight ({of})"
        return (
            said if victim.saving is None else f"{said}; {fmt.duration(added.saving_ns)} saving and restoring (assumed)"
        )
    said = f"switched out for {fmt.percent(victim.switched_out)} of the time {kernels} were in flight"
    if victim.saving is not None:
        said += f"; for {fmt.percent(victim.saving)} its context {_SAVING}"
    # A latency begins at the launch, before the kernel is in flight.
    if added is not None:
        said += f"; waits before they started: {fmt.duration(added.before_start_ns)}"
        return f"{said} of the {fmt.duration(added.added_ns)} added"
    return f"{said}; and waits before they started" if victim.waited else said


def lost_text(victim: Victim) -> str:
    """How much of a latency others were resident or switched for, where no more is known of it."""
    return (
        f"another context was resident, or being switched, for {fmt.percent(victim.lost)} of the time from launch to "
        "end of the kernels"
    )
