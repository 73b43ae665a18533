"""The sentences of a report, its first screen and its sections.

What they say is decided elsewhere, as enums and numbers: :mod:`pyanalyze.analysis.impact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import Answer, Cause, Reason, impact_of, untraced_share
from pyanalyze.results.labels import device_title, tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import NEGLIGIBLE_RESIDENCY, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyanalyze.results.interference import Estimate
    from pyanalyze.results.report import Device, Report, Tenant

__all__ = [
    "CAUSE_WORDS",
    "LONG",
    "agreement_note",
    "agreement_text",
    "bound_text",
    "by_traced",
    "cause_sentence",
    "estimate_text",
    "full_stop",
    "id_text",
    "lead_sentences",
    "processes_text",
    "residency_sentence",
    "sampled_sentence",
    "samples_not_used",
    "share_of_window",
    "verdict_sentence",
    "versions_text",
    "victim_sentence",
    "view_text",
    "why_missing",
    "why_missing_or_nothing",
    "window_text",
]

#: Characters of a reason inside a sentence.
_SHORT = 160


#: Longest text taken over from a detail or a summary, in characters.
LONG = 600


def _window_ns(device: Device) -> int | None:
    return None if device.window is None else device.window.end_ns - device.window.start_ns


def share_of_window(part_ns: int | None, device: Device) -> float | None:
    """A time as a fraction of the device's window; None: one of them is not known."""
    whole = _window_ns(device)
    return None if part_ns is None or not whole else part_ns / whole


def _short_why(device: Device, *keys: str) -> str:
    """The reason without the remedy, to stand inside a sentence."""
    why = next((entry.why for key in keys for entry in device.missing_for(key)), "see what could not be seen")
    words = visible(why, LONG).strip().rstrip(".")
    # The end of a reason says least.
    return words if len(words) <= _SHORT else words[:_SHORT].rpartition(" ")[0].rstrip(",;:") + " …"


def why_missing(device: Device, *keys: str) -> str:
    """Why something is null: the matching entry of `missing`, else an honest pointer."""
    for key in keys:
        for entry in device.missing_for(key):
            how = f" To capture it: {visible(entry.how, LONG)}" if entry.how else ""
            return f"{full_stop(capital(visible(entry.why, LONG)))}{how}"
    return "The report does not say why; see what is missing."


def why_missing_or_nothing(device: Device, key: str) -> str:
    """The same; nothing where no entry says so."""
    return why_missing(device, key) if device.missing_for(key) else ""


def full_stop(text: str) -> str:
    """Text as a sentence: it ends in a mark."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else text + "."


def id_text(value: int | None) -> str:
    """A process id or the like, without separators."""
    return fmt.UNKNOWN if value is None else str(value)


def verdict_sentence(device: Device) -> str:
    """How the device was shared, with confidence and basis."""
    sharing = device.sharing
    if sharing.mode == Mode.UNDETERMINED and not device.tenants:
        if device.missing_for("kernels") and device.missing_for("context_switches"):
            return f"How {device_title(device)} was shared is undetermined. {visible(sharing.summary, None)}"
        return f"Nothing is known to have run on {device_title(device)}, so it has no sharing mode."
    if sharing.mode == Mode.UNDETERMINED:
        if sharing.rivals:
            rival = f"the strongest candidate, {sharing.rivals[0].mode}, has confidence {sharing.confidence:.2f}"
        else:
            rival = "there was nothing to weigh"
        return f"How {device_title(device)} was shared is undetermined: {rival}."
    words = {Mode.EXCLUSIVE: "was used exclusively", Mode.STREAMS: "ran one tenant on several streams"}
    verb = words.get(sharing.mode, f"was shared by {sharing.mode}")
    return f"{device_title(device)} {verb} (confidence {sharing.confidence:.2f}, {sharing.basis})."


def _slices(tenant: Tenant) -> str:
    return f" ({fmt.count(tenant.slices)} slices)" if tenant.slices and tenant.slices > 1 else ""


def _serves(server: Tenant, tenants: Iterable[Tenant], labels: Mapping[int, str]) -> str:
    clients = [labels[t.tenant_id] for t in tenants if t.served_by == server.tenant_id]
    more = f" and {len(clients) - 3} more" if len(clients) > 3 else ""
    return f" (for {', '.join(clients[:3])}{more})" if clients else ""


def residency_sentence(device: Device) -> str:
    """Who held the GPU, and what switching cost."""
    labels = tenant_labels(device.tenants)
    resident = sorted((t for t in device.tenants if t.resident_ns is not None), key=lambda t: -(t.resident_ns or 0))
    if not resident:
        busy = sorted((t for t in device.tenants if t.busy_ns is not None), key=lambda t: -(t.busy_ns or 0))
        if not busy:
            return "Who held the GPU is not known. " + why_missing(device, "context_switches", "residency", "window")
        if device.ledger is not None:
            ledger = device.ledger
            who = ", ".join(
                f"{labels[t.tenant_id]} {fmt.percent(t.resident_share)}"
                for t in ledger.tenants[:3]
                if t.tenant_id in labels
            )
            slices = f", slices of about {fmt.duration(ledger.time_slice_ns)}" if ledger.time_slice_ns else ""
            return (
                f"Held by {who} of {fmt.duration(ledger.held_ns)} (inferred from kernels, no switch records){slices}."
            )
        who = ", ".join(f"{labels[t.tenant_id]} {fmt.percent(share_of_window(t.busy_ns, device))}" for t in busy[:3])
        return f"Residency is not known; busy by recorded kernels: {who} of {fmt.duration(_window_ns(device))}."
    names = {t.tenant_id: labels[t.tenant_id] + _serves(t, device.tenants, labels) for t in resident[:3]}
    who = ", ".join(
        f"{names[t.tenant_id]} {fmt.percent(share_of_window(t.resident_ns, device))}{_slices(t)}" for t in resident[:3]
    )
    more = f" and {len(resident) - 3} more" if len(resident) > 3 else ""
    text = f"Held by {who}{more} of {fmt.duration(_window_ns(device))} (switch records)"
    switches = device.context_switches
    if switches is not None and switches.count and switches.median_slice_ns is not None:
        text += f", median slice {fmt.duration(switches.median_slice_ns)}"
    if switches is not None and switches.count:
        kind = f" ({switches.cost_kind})" if switches.cost_kind else ""
        cost = fmt.duration(switches.median_cost_ns)
        text += f"; {fmt.count(switches.count)} switches of {cost}{kind}"
        if switches.overhead_fraction is not None:
            text += f", {fmt.percent(switches.overhead_fraction)} of it"
    return text + "."


def bound_text(estimate: Estimate) -> str:
    """Say whether the value is itself the bound."""
    if estimate.low == estimate.value and estimate.high is None:
        return "at least, "
    return "at most, " if estimate.high == estimate.value and estimate.low is not None else ""


def estimate_text(estimate: Estimate | None, *, basis: bool = True) -> str:
    """Such as ``2.04× (95 % 1.98 to 2.10, n = 606, inferred)``; a value that is its own bound says so."""
    if estimate is None:
        return fmt.UNKNOWN
    parts = []
    bound = bound_text(estimate)
    if not bound and estimate.low is not None and estimate.high is not None:
        parts.append(f"95 % {estimate.low:.2f} to {estimate.high:.2f}")
    parts.append(f"n = {fmt.count(estimate.n)}")
    if basis:
        parts.append(estimate.basis)
    return f"{bound.replace(',', '')}{fmt.ratio(estimate.value)} ({', '.join(parts)})"


def victim_sentence(device: Device) -> str:
    """The victim with n, or why it is not known."""
    impact = impact_of(device)
    victim = impact.victim
    if victim is None and impact.sole_tenant:
        if device.sharing.basis == "observed":
            return "Nobody was slowed by a neighbour: one tenant was on the device."
        return "No neighbour was seen that could have slowed it: one tenant was."
    if victim is None:
        return "Whether anyone was slowed is not known. " + why_missing(device, "slowdown", "interference")
    label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
    found = f"Worst victim: {label}, {victim.kind} slowdown {estimate_text(victim.estimate)}"
    if impact.unknown and not victim.slowed:
        return f"{found}; of {_names(device, impact.unknown)} it is not known."
    return found + "."


CAUSE_WORDS = {
    Cause.LAUNCH: "launch (the API call itself)",
    Cause.QUEUE: "queue (behind its own delayed kernels or others' blocks)",
    Cause.NOT_RESIDENT: "not resident (waiting for its slice)",
    Cause.SWITCH: "switch (the switches themselves)",
    Cause.EXECUTION: "execution (resident and slower)",
    Cause.UNEXPLAINED: "unexplained",
}


#: The same where a sentence must fit a phone.
_CAUSE_SHORT = {
    Cause.LAUNCH: "the API call",
    Cause.QUEUE: "its queue",
    Cause.NOT_RESIDENT: "waiting for its slice",
    Cause.SWITCH: "the switches",
    Cause.EXECUTION: "slower execution",
    Cause.UNEXPLAINED: "what is unexplained",
}


def cause_sentence(device: Device) -> str:
    """Whether sharing the GPU is the cause at all, as far as the numbers carry."""
    impact = impact_of(device)
    host = visible(device.host[0].detail, LONG) if device.host else ""
    if impact.victim is None:
        words = {
            Reason.HOST: f"no: look at the host first: {host}",
            Reason.HOST_ONLY: f"not known, look at the host first: {host}",
            Reason.SOLE_TENANT: "no neighbour is: one tenant was on the device",
            Reason.NOT_MEASURED: "not known: no slowdown could be measured",
        }
        return words[impact.reason]
    victim = impact.victim
    slowdown = fmt.ratio(victim.estimate.value)
    match impact.reason:
        case Reason.HOST:
            return f"no: look at the host first: {host}"
        case Reason.SOLE_TENANT_SLOWED:
            return f"no: one tenant was on the device; what makes it {slowdown} its baseline lies elsewhere"
        case Reason.OTHERS_UNKNOWN:
            rest = _names(device, impact.unknown)
            return f"not known: nobody whose slowdown is known was slowed ({slowdown}), that of {rest} is not"
        case Reason.EXCLUDED:
            return f"no: the worst slowdown is at most {fmt.ratio(victim.estimate.high)}"
        case Reason.NOT_SHOWN:
            if victim.estimate.high is None and victim.estimate.low == victim.estimate.value:
                return f"not shown: the worst slowdown is at least {slowdown}, with no upper bound"
            if victim.estimate.low is None or victim.estimate.high is None:
                return f"not shown: the worst slowdown ({slowdown}) has no interval"
            return f"not shown: the interval of the worst slowdown ({slowdown}) includes 1"
        case Reason.NOT_SLOWED:
            return f"no: the worst slowdown is {slowdown}"
        case Reason.SWITCHED_OUT:
            label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
            lost = fmt.percent(victim.switched_out)
            return f"yes: {label} was switched out for {lost} of the time its kernels were in flight"
        case Reason.CAUSES_UNKNOWN:
            return "not known: a slowdown was found, where the time went was not. " + why_missing(device, "causes")
    if victim.top is None:
        return "not known: no cause could be measured"
    cause, part = victim.top
    said = f"{fmt.percent(part)} of the added latency is {CAUSE_WORDS[cause]}"
    if victim.first is not None:
        said += f"; what holds up the first in line is {CAUSE_WORDS[victim.first]}"
    if impact.reason == Reason.LAUNCH:
        return f"mostly not: {said}"
    return f"not known: {said}" if impact.reason == Reason.UNEXPLAINED else f"yes: {said}"


def _names(device: Device, tenants: Iterable[Tenant]) -> str:
    """Such as `a, b and c`."""
    labels = tenant_labels(device.tenants)
    names = [labels[tenant.tenant_id] for tenant in tenants]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def agreement_text(device: Device) -> str:
    """Configured against observed."""
    sharing = device.sharing
    if sharing.configured is None:
        return "not known what was configured"
    if sharing.agrees is None:
        return f"{sharing.configured}; whether it took effect is not known"
    return f"{sharing.configured}; " + ("agrees" if sharing.agrees else f"DISAGREES: {sharing.mode} was found")


def agreement_note(device: Device) -> str:
    """One or two words beside the configured mode."""
    agrees = device.sharing.agrees
    return (
        "no configuration given" if agrees is None else "agrees" if agrees else "does not agree with the observed mode"
    )


def window_text(report: Report, device: Device | None) -> str:
    """The time window in UTC."""
    if device is None or device.window is None:
        return fmt.UNKNOWN
    origin = report.clock.origin_utc_ns
    start = fmt.utc(origin, device.window.start_ns)
    end = fmt.utc(origin, device.window.end_ns)
    if origin is not None:
        # The same day and the zone need not be said twice.
        if start[:10] == end[:10]:
            end = end[11:]
        start = start.removesuffix(" UTC")
        return f"{start} to {end} ({fmt.duration(_window_ns(device))})"
    zero = " after the zero of the first capture"
    start, end = start.removesuffix(zero), end.removesuffix(zero)
    return f"{start} to {end} on the first capture's clock; UTC not known"


def processes_text(count: int) -> str:
    """Such as `2 compute processes`."""
    return f"{fmt.count(count)} compute process{'' if count == 1 else 'es'}"


def samples_not_used(report: Report) -> list[str]:
    """What is said of files of samples that are of another time than the captures."""
    return [visible(text, None) for text in report.samples_not_used]


def sampled_sentence(device: Device) -> str | None:
    """What samples say of the whole device; a share of time is never a degree of filling."""
    sampled = device.sampled
    if sampled is None:
        return None
    parts = []
    if sampled.gpu_utilization is not None:
        parts.append(f"a kernel ran {fmt.percent(sampled.gpu_utilization)} of the time (not: how full)")
    if sampled.sm_active is not None:
        parts.append(f"SMs active {fmt.percent(sampled.sm_active)}")
    if device.memory is not None and device.memory.peak_bytes is not None:
        parts.append(f"memory peak {fmt.bytes_(device.memory.peak_bytes)}")
    if sampled.power_w is not None:
        parts.append(f"{sampled.power_w:.0f} W")
    if sampled.processes is not None:
        parts.append(processes_text(sampled.processes))
    samples = f"{fmt.count(sampled.n)} sample{'' if sampled.n == 1 else 's'}"
    return "; ".join([*parts, samples])


def versions_text(report: Report) -> str:
    """Who wrote it and what recorded it."""
    nsys = sorted({visible(c.nsys_version, 24) for c in report.captures if c.nsys_version})
    layout = sorted({visible(c.schema_version, 16) for c in report.captures if c.schema_version})
    text = f"pyanalyze {visible(report.tool.version, 24)}, nsys {', '.join(nsys[:3]) or fmt.UNKNOWN}"
    return text + (f", export schema {', '.join(layout[:3])}" if layout else "")


def view_text(report: Report) -> str:
    """What part of the captures the report is about."""
    view, parts = report.view, []
    if view is None:
        return ""
    if view.start_ns is not None or view.end_ns is not None:
        origin = report.clock.origin_utc_ns
        start = "the start" if view.start_ns is None else fmt.utc(origin, view.start_ns)
        end = "the end" if view.end_ns is None else fmt.utc(origin, view.end_ns)
        parts.append(f"from {start} to {end}, all shares are of it")
    if view.gpu is not None:
        parts.append(f"device {view.gpu} only")
    if view.redacted:
        parts.append("names of processes, kernels, containers, hosts and files are replaced by numbers")
    return f"{capital('; '.join(parts))}."


def by_traced(device: Device) -> str:
    """Occupancy is replayed from traced kernels: said where somebody else held the engine as well."""
    return " by traced kernels alone" if untraced_share(device) > NEGLIGIBLE_RESIDENCY else ""


def lead_sentences(device: Device) -> tuple[str, str, str]:
    """The five questions in three sentences: how shared and to blame, who held it, how full and who lost what.

    Where sharing the GPU is not the cause, that is said first.
    """
    blame = cause_sentence(device)
    verdict = f"{verdict_sentence(device).removesuffix('.')}{_configured(device)}."
    if impact_of(device).answer is Answer.NO:
        # The first clause is the finding, the others qualify it.
        blame = blame.partition(";")[0]
        verdict = f"Sharing this GPU is not what makes it slow ({blame}). {verdict}"
    parts = []
    if device.occupancy is not None:
        parts.append(
            f"SMs were active {fmt.percent(device.occupancy.sm_active)} of the window{by_traced(device)} "
            f"({device.occupancy.basis})"
        )
    else:
        parts.append(f"how full the SMs were is not known ({_short_why(device, 'occupancy')})")
    parts += _slowed(device)
    if device.advice:
        parts.append(f"first to do: {_lower(visible(device.advice[0].action, 200))}")
    return verdict, _residency_lead(device), f"{capital('; '.join(parts))}."


def _configured(device: Device) -> str:
    """Configured against observed, as the end of a sentence."""
    sharing = device.sharing
    if sharing.configured is None:
        return "; what was configured is not known"
    if sharing.agrees is None:
        return f"; {sharing.configured} was configured, whether it took effect is not known"
    return ", as configured" if sharing.agrees else f", although {sharing.configured} was configured"


def _residency_lead(device: Device) -> str:
    """Who held it, in one sentence: how to capture what is missing stands further down."""
    if any(t.resident_ns is not None or t.busy_ns is not None for t in device.tenants):
        return residency_sentence(device)
    return f"Who held the GPU is not known ({_short_why(device, 'context_switches', 'residency', 'window')})."


def _slowed(device: Device) -> list[str]:
    """Who was slowed, by how much, by whom, through what: parts of a sentence."""
    impact = impact_of(device)
    victim = impact.victim
    if victim is None:
        if impact.sole_tenant:
            return [_lower(victim_sentence(device).rstrip("."))]
        return [f"whether anyone was slowed is not known ({_short_why(device, 'slowdown', 'interference')})"]
    tenant = victim.tenant
    parts = [_lower(victim_sentence(device).rstrip("."))]
    if not victim.slowed:
        return parts
    labels = tenant_labels(device.tenants)
    cells = [] if device.interference is None else device.interference.matrix or []
    beside = [c for c in cells if c.victim == tenant.tenant_id and c.slowdown is not None]
    switched_out = victim.switched_out
    if beside:
        most = max(beside, key=lambda c: c.slowdown or 0.0)
        who = labels.get(most.aggressor, f"#{most.aggressor}")
        parts.append(f"most by {who} (elapsed {fmt.ratio(most.slowdown)} if only that one were there, inferred)")
    else:
        # Who had the engine while it was switched out can only have been one where there is but one other.
        others = [t for t in device.tenants if t.tenant_id != tenant.tenant_id and t.resident_ns]
        known = switched_out is not None and len(others) == 1
        one = f"by {labels[others[0].tenant_id]}, the only other that held the engine" if known else ""
        parts.append(one or "by whom is not known")
    if tenant.causes is None and switched_out is not None:
        parts.append(f"through being switched out ({fmt.percent(switched_out)} of the time its kernels were in flight)")
        return parts
    if victim.top is None:
        parts.append("through what is not known")
        return parts
    cause, part = victim.top
    through = f"through {_CAUSE_SHORT[cause]} ({fmt.percent(part)} of the added latency)"
    if victim.first is not None:
        through += f" behind {_CAUSE_SHORT[victim.first]}"
    parts.append(through)
    return parts


def _lower(text: str) -> str:
    """Join a sentence to others; names and abbreviations keep their capitals."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
