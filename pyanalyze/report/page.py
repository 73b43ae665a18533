"""What stands in a report, in which order and in which words: one page model, three pictures of it.

HTML, Markdown and text draw the same :class:`Page`, so that they cannot disagree. Text from a capture is made
visible here (:func:`pyanalyze.text.escape.visible`); the renderers escape for their own format on top.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pyanalyze.analysis.impact import Answer, Cause, Reason, impact_of, untraced_share
from pyanalyze.inputs.sample_alignment import NOT_USED
from pyanalyze.results.labels import device_title, main_device, tenant_labels
from pyanalyze.results.report import (
    BASIS_TEXT,
    Basis,
    Device,
    Estimate,
    Evidence,
    Interference,
    MatrixCell,
    Missing,
    Report,
    Tenant,
)
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import MEMORY_RESERVE, NEGLIGIBLE_RESIDENCY, TRAITS, Mode, Promises

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    import polars as pl

__all__ = [
    "Cell",
    "Chart",
    "Column",
    "Commands",
    "Fact",
    "Facts",
    "Fold",
    "Note",
    "Page",
    "Para",
    "Section",
    "Table",
    "build",
    "cause_sentence",
    "chart_key",
    "held_sentence",
    "is_empty",
    "lead_sentences",
    "verdict_sentence",
    "victim_sentence",
]

#: Kernel configurations in the occupancy table: the ones with most time.
TOP_KERNELS = 20
#: Characters of a reason inside a sentence.
_SHORT = 160
#: Longest text taken over from a detail or a summary, in characters.
_LONG = 600

Tone = Literal["plain", "good", "bad", "muted", "code"]


@dataclass(frozen=True)
class Column:
    """Head of a table column; `unit` says the denominator too."""

    title: str
    unit: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """One value, and how it is known where that is not the same for the whole column."""

    text: str
    basis: Basis | None = None
    tone: Tone = "plain"
    note: str = ""
    link: str = ""
    """A file beside the page, by a name that we made: never text from a capture."""


@dataclass(frozen=True)
class Para:
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Note:
    """Something that must not be overlooked."""

    title: str
    text: str
    kind: Literal["info", "warning"] = "info"


@dataclass(frozen=True)
class Fact:
    """A key number."""

    label: str
    value: str
    note: str = ""
    basis: Basis | None = None


@dataclass(frozen=True)
class Facts:
    """A row of key numbers."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Commands:
    """Commands to copy; `language` is what Markdown calls theirs."""

    lines: tuple[str, ...]
    language: str = "sh"


@dataclass(frozen=True)
class Chart:
    """Room for a chart; formats that cannot draw leave it out, since tables hold the figures."""

    key: str
    title: str
    caption: str


@dataclass(frozen=True)
class Fold:
    """Detail that is folded away where the format can."""

    title: str
    blocks: tuple[Block, ...]


Block = Para | Note | Facts | Table | Commands | Chart | Fold


def is_empty(block: Block, drawn: Container[str]) -> bool:
    """Whether nothing of a block can be shown by a format that has only these charts."""
    if isinstance(block, Fold):
        return all(is_empty(inner, drawn) for inner in block.blocks)
    return isinstance(block, Chart) and block.key not in drawn


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    device: str = ""


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
    notes: tuple[Note, ...] = field(default=())


def chart_key(name: str, device_id: int) -> str:
    """The key under which :func:`pyanalyze.report.html.render_html` looks for a chart.

    Parameters
    ----------
    name
        ``timeline``, ``slices``, ``usage``, ``counters``, ``occupancy``, ``sm_heatmap`` or ``limiters``.
    device_id
        The device entry it belongs to.

    Examples
    --------
    >>> chart_key("timeline", 0)
    'timeline-0'
    """
    return f"{name}-{device_id}"


def _window_ns(device: Device) -> int | None:
    return None if device.window is None else device.window.end_ns - device.window.start_ns


def _share(part_ns: int | None, device: Device) -> float | None:
    whole = _window_ns(device)
    return None if part_ns is None or not whole else part_ns / whole


def _short_why(device: Device, *keys: str) -> str:
    """The reason without the remedy, to stand inside a sentence."""
    why = next((entry.why for key in keys for entry in device.missing_for(key)), "see what could not be seen")
    words = visible(why, _LONG).strip().rstrip(".")
    # The end of a reason says least.
    return words if len(words) <= _SHORT else words[:_SHORT].rpartition(" ")[0].rstrip(",;:") + " …"


def _why(device: Device, *keys: str) -> str:
    """Why something is null: the matching entry of `missing`, else an honest pointer."""
    for key in keys:
        for entry in device.missing_for(key):
            how = f" To capture it: {visible(entry.how, _LONG)}" if entry.how else ""
            return f"{_sentence(capital(visible(entry.why, _LONG)))}{how}"
    return "The report does not say why; see what is missing."


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else text + "."


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


def held_sentence(device: Device) -> str:
    """Who held the GPU, and what switching cost."""
    labels = tenant_labels(device.tenants)
    resident = sorted((t for t in device.tenants if t.resident_ns is not None), key=lambda t: -(t.resident_ns or 0))
    if not resident:
        busy = sorted((t for t in device.tenants if t.busy_ns is not None), key=lambda t: -(t.busy_ns or 0))
        if not busy:
            return "Who held the GPU is not known. " + _why(device, "context_switches", "residency", "window")
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
        who = ", ".join(f"{labels[t.tenant_id]} {fmt.percent(_share(t.busy_ns, device))}" for t in busy[:3])
        return f"Residency is not known; busy by recorded kernels: {who} of {fmt.duration(_window_ns(device))}."
    names = {t.tenant_id: labels[t.tenant_id] + _serves(t, device.tenants, labels) for t in resident[:3]}
    who = ", ".join(
        f"{names[t.tenant_id]} {fmt.percent(_share(t.resident_ns, device))}{_slices(t)}" for t in resident[:3]
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


def _bound(estimate: Estimate) -> str:
    """Say whether the value is itself the bound."""
    if estimate.low == estimate.value and estimate.high is None:
        return "at least, "
    return "at most, " if estimate.high == estimate.value and estimate.low is not None else ""


def estimate_text(estimate: Estimate | None, *, basis: bool = True) -> str:
    """Such as ``2.04× (95 % 1.98 to 2.10, n = 606, inferred)``; a value that is its own bound says so."""
    if estimate is None:
        return fmt.UNKNOWN
    parts = []
    bound = _bound(estimate)
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
        return "Whether anyone was slowed is not known. " + _why(device, "slowdown", "interference")
    label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
    found = f"Worst victim: {label}, {victim.kind} slowdown {estimate_text(victim.estimate)}"
    if impact.unknown and not victim.slowed:
        return f"{found}; of {_names(device, impact.unknown)} it is not known."
    return found + "."


_CAUSE_WORDS = {
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
    host = visible(device.host[0].detail, _LONG) if device.host else ""
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
            return f"not shown: the interval of the worst slowdown ({slowdown}) includes 1"
        case Reason.NOT_SLOWED:
            return f"no: the worst slowdown is {slowdown}"
        case Reason.SWITCHED_OUT:
            label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
            lost = fmt.percent(victim.switched_out)
            return f"yes: {label} was switched out for {lost} of the time its kernels were in flight"
        case Reason.CAUSES_UNKNOWN:
            return "not known: a slowdown was found, where the time went was not. " + _why(device, "causes")
    if victim.top is None:
        return "not known: no cause could be measured"
    cause, part = victim.top
    said = f"{fmt.percent(part)} of the added latency is {_CAUSE_WORDS[cause]}"
    if victim.first is not None:
        said += f"; what holds up the first in line is {_CAUSE_WORDS[victim.first]}"
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


def _compute_processes(count: int) -> str:
    return f"{fmt.count(count)} compute process{'' if count == 1 else 'es'}"


def samples_not_used(report: Report) -> list[str]:
    """What is said of files of samples that are of another time than the captures."""
    said = [row.detail for row in report.quality if row.name == "samples_not_aligned" and row.detail]
    return [visible(detail, None) for detail in said if NOT_USED in detail]


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
        parts.append(_compute_processes(sampled.processes))
    samples = f"{fmt.count(sampled.n)} sample{'' if sampled.n == 1 else 's'}"
    return "; ".join([*parts, samples])


def versions_text(report: Report) -> str:
    """Who wrote it and what recorded it."""
    nsys = sorted({visible(c.nsys_version, 24) for c in report.captures if c.nsys_version})
    layout = sorted({visible(c.schema_version, 16) for c in report.captures if c.schema_version})
    text = f"pyanalyze {visible(report.tool.version, 24)}, nsys {', '.join(nsys[:3]) or fmt.UNKNOWN}"
    return text + (f", export schema {', '.join(layout[:3])}" if layout else "")


SYNTHETIC = Note(
    "Synthetic capture",
    "This capture was made by a generator, not recorded on a GPU. Its numbers prove nothing about real hardware.",
    "warning",
)


def build(report: Report, kernels: pl.DataFrame | None = None, *, command: str = "", generated_with: str = "") -> Page:
    """Lay the whole report out.

    Parameters
    ----------
    report
        The answer.
    kernels
        The ``kernel_occupancy`` table; ``None`` leaves the table of kernels out and says so.
    command
        How the report was made, for the provenance.
    generated_with
        Versions of what drew it.
    """
    main = main_device(report)
    notes = [SYNTHETIC] if report.synthetic else []
    if report.view is not None:
        notes.append(Note("Part of the capture", _view_text(report)))
    lost = [row for row in report.quality if row.severity in ("data-loss", "error")]
    if lost:
        names = ", ".join(sorted({visible(row.name) for row in lost})[:6])
        notes.append(Note("Records are missing", f"Sums may be too small: {names}. See data quality.", "warning"))
    notes += [Note("Samples are not used", f"{text}.", "warning") for text in samples_not_used(report)]
    if main is None:
        lead: tuple[str, ...] = ("No GPU was found in what was read.",)
        title, subtitle = "GPU sharing report", "no device"
    else:
        lead = lead_sentences(main)
        title = "GPU sharing report"
        subtitle = f"{device_title(main)} · {window_text(report, main)}"
    sections: list[Section] = []
    many = len(report.devices) > 1
    for device in report.devices:
        suffix = f"-{device.device_id}"
        for section in _device_sections(report, device, kernels):
            where = device_title(device) if many else ""
            sections.append(Section(section.id + suffix, section.title, section.blocks, where))
    sections += [
        _quality(report),
        _provenance(report, main, command, generated_with),
        _glossary(),
    ]
    return Page(title, subtitle, lead, tuple(sections), tuple(notes))


def _view_text(report: Report) -> str:
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


def _device_sections(report: Report, device: Device, kernels: pl.DataFrame | None) -> list[Section]:
    return [
        Section("summary", "Key numbers", (Facts(_key_facts(report, device)),)),
        _verdict(device),
        _held(device),
        _tenants(device),
        _occupancy(device, kernels),
        _memory(device),
        _interference(device),
        _advice(device),
        _missing(device),
    ]


def _by_traced(device: Device) -> str:
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
            f"SMs were active {fmt.percent(device.occupancy.sm_active)} of the window{_by_traced(device)} "
            f"({device.occupancy.basis})"
        )
    else:
        parts.append(f"how full the SMs were is not known ({_short_why(device, 'occupancy')})")
    parts += _slowed(device)
    if device.advice:
        parts.append(f"first to do: {_lower(visible(device.advice[0].action, 200))}")
    return verdict, _held_lead(device), f"{capital('; '.join(parts))}."


def _configured(device: Device) -> str:
    """Configured against observed, as the end of a sentence."""
    sharing = device.sharing
    if sharing.configured is None:
        return "; what was configured is not known"
    if sharing.agrees is None:
        return f"; {sharing.configured} was configured, whether it took effect is not known"
    return ", as configured" if sharing.agrees else f", although {sharing.configured} was configured"


def _held_lead(device: Device) -> str:
    """Who held it, in one sentence: how to capture what is missing stands further down."""
    if any(t.resident_ns is not None or t.busy_ns is not None for t in device.tenants):
        return held_sentence(device)
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


def _memory(device: Device) -> Section:
    memory = device.memory
    labels = tenant_labels(device.tenants)
    known = [t for t in device.tenants if t.memory_peak_bytes is not None]
    how = "Samples tell: nvidia-smi --query-gpu and --query-compute-apps beside the run, or pyanalyze record."
    if not known and (memory is None or memory.peak_bytes is None):
        size = (
            "" if memory is None or memory.total_bytes is None else f" The device has {fmt.bytes_(memory.total_bytes)}."
        )
        return Section("memory", "Device memory", (Note("How much was in use is not known", f"{how}{size}"),))
    total = None if memory is None else memory.total_bytes
    peak = None if memory is None else memory.peak_bytes
    together = sum(t.memory_peak_bytes or 0 for t in known)
    free = None if total is None or peak is None else total - peak
    blocks: list[Block] = [
        Facts(
            (
                Fact("Device", fmt.bytes_(total), "all of it", "observed" if total is not None else None),
                Fact("Peak in use", fmt.bytes_(peak), "all tenants at once", "sampled" if peak is not None else None),
                Fact("Headroom", fmt.bytes_(free), "device less peak", "sampled" if free is not None else None),
                Fact(
                    "Tenants' peaks together",
                    fmt.bytes_(together) if known else fmt.UNKNOWN,
                    f"{fmt.count(len(known))} of {fmt.count(len(device.tenants))} tenants known",
                    "sampled" if known else None,
                ),
            )
        )
    ]
    if total is not None and free is not None and free < MEMORY_RESERVE * total:
        text = f"{fmt.bytes_(free)} of {fmt.bytes_(total)} were left at the peak ({fmt.percent(free / total)})."
        blocks.append(Note("Close to running out", text, "warning"))
    elif total is not None and together > total:
        text = f"Each fits, but their peaks together ({fmt.bytes_(together)}) do not fit into {fmt.bytes_(total)}."
        blocks.append(Note("May run out if peaks coincide", text, "warning"))
    elif free is not None:
        blocks.append(Para("Nothing points to running out. Peaks between two samples are not seen.", "muted"))
    if device.tenants:
        rows = tuple(
            (
                Cell(labels[t.tenant_id], tone="code"),
                _known(fmt.bytes_(t.memory_peak_bytes)),
                _known(fmt.percent(_part_of(t.memory_peak_bytes, total))),
            )
            for t in device.tenants
        )
        columns = (Column("Tenant"), Column("Peak", "sampled", True), Column("Of the device", numeric=True))
        blocks.append(Table(columns, rows, "Device memory per tenant (sampled)."))
    return Section("memory", "Device memory", tuple(blocks))


def _part_of(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _key_facts(report: Report, device: Device) -> tuple[Fact, ...]:
    sharing = device.sharing
    facts = [
        Fact(
            "Observed mode",
            sharing.mode,
            f"confidence {sharing.confidence:.2f}"
            + (" of the strongest rival" if sharing.mode == Mode.UNDETERMINED else ""),
            sharing.basis,
        ),
        Fact("Configured", sharing.configured or fmt.UNKNOWN, agreement_note(device)),
    ]
    switches = device.context_switches
    if switches is None:
        facts.append(Fact("Context switches", fmt.UNKNOWN, "no switch records"))
    else:
        facts.append(
            Fact(
                "Switch overhead",
                fmt.percent(switches.overhead_fraction),
                f"of the window; {fmt.count(switches.count)} switches",
                "observed",
            )
        )
        facts.append(Fact("Median slice", fmt.duration(switches.median_slice_ns), "complete slices", "observed"))
    victim = impact_of(device).victim
    if victim is None:
        facts.append(Fact("Worst slowdown", fmt.UNKNOWN, "see what is missing"))
    else:
        label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
        note = f"{label}, {_bound(victim.estimate)}{victim.kind}, n = {fmt.count(victim.estimate.n)}"
        facts.append(Fact("Worst slowdown", fmt.ratio(victim.estimate.value), note, victim.estimate.basis))
    if device.occupancy is not None:
        facts.append(
            Fact(
                "SMs active",
                fmt.percent(device.occupancy.sm_active),
                f"mean over the window{_by_traced(device)}",
                device.occupancy.basis,
            )
        )
    else:
        facts.append(Fact("SMs active", fmt.UNKNOWN, "could not be modelled"))
    return tuple(facts)


def agreement_note(device: Device) -> str:
    """One or two words beside the configured mode."""
    agrees = device.sharing.agrees
    return (
        "no configuration given" if agrees is None else "agrees" if agrees else "does not agree with the observed mode"
    )


def _promises(known: Promises) -> Table:
    """Properties of a mode from its documentation; nothing in them was measured."""
    says = {True: "yes", False: "no", None: "sources disagree"}
    rows = (
        ("Memory of a tenant is protected", says[known.memory_protection]),
        ("Faults stay with the tenant", says[known.fault_isolation]),
        ("DRAM bandwidth and L2 of its own", says[known.bandwidth_qos]),
        ("SMs of its own while it runs", says[known.own_sms]),
        ("Tenants at most", "no fixed number" if known.max_partitions is None else str(known.max_partitions)),
        ("Can be changed", known.reconfigurable),
        ("Telemetry per tenant", known.telemetry),
        ("Still shared", known.not_isolated),
        ("Sources", "; ".join(known.sources)),
    )
    columns = (Column("Property", "documented"), Column("", ""))
    return Table(columns, tuple((Cell(name), Cell(value)) for name, value in rows))


def _modes(modes: Sequence[str]) -> str:
    return ", ".join(modes) if modes else "–"


def _evidence_row(item: Evidence) -> tuple[Cell, ...]:
    return (
        Cell(capital(visible(item.detail, _LONG))),
        Cell(_modes(item.supports)),
        Cell(_modes(item.against)),
        Cell(f"{item.weight:+.1f}"),
        Cell(fmt.quantity(item.value, visible(item.unit, 20)), tone="muted" if item.value is None else "plain"),
        Cell(fmt.count(item.n)),
        Cell("", basis=item.basis),
        Cell(visible(item.name), tone="code"),
    )


def _verdict(device: Device) -> Section:
    sharing = device.sharing
    blocks: list[Block] = [Para(_sentence(visible(sharing.summary, _LONG)) or verdict_sentence(device))]
    if sharing.agrees is False:
        text = f"{sharing.configured} was configured, {sharing.mode} was observed."
        blocks.append(Note("Configured and observed disagree", text, "warning"))
    else:
        blocks.append(Para(f"Configured: {agreement_text(device)}.", "muted"))
    if sharing.details:
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (Cell(d.topic), Cell(capital(visible(d.detail, _LONG))), Cell("", basis=d.basis)) for d in sharing.details
        )
        heads: tuple[Column, ...] = (Column("About"), Column("Seen or set up"), Column("Basis"))
        blocks.append(Table(heads, rows, "Details of the mode, and the limits that apply."))
    if sharing.evidence:
        columns: tuple[Column, ...] = (
            Column("Seen"),
            Column("Speaks for"),
            Column("Speaks against"),
            Column("Weight", "log odds", numeric=True),
            Column("Value", numeric=True),
            Column("n", numeric=True),
            Column("Basis"),
            Column("Name"),
        )
        blocks.append(Table(columns, tuple(_evidence_row(e) for e in sharing.evidence), "Evidence, heaviest first."))
    else:
        blocks.append(Para("No evidence could be gathered.", "muted"))
    found = [
        (
            Cell(visible(item.name), tone="code"),
            Cell(fmt.UNKNOWN if example.capture is None else str(example.capture)),
            Cell(str(example.start_ns)),
            Cell(str(example.end_ns)),
            Cell(_id(example.pid)),
            Cell(_id(example.correlation_id)),
        )
        for item in sharing.evidence
        for example in item.examples
    ]
    if found:
        titles = ("Evidence", "Capture", "Start", "End", "pid", "Correlation id")
        columns = tuple(Column(h, "ns" if h in ("Start", "End") else "", h != "Evidence") for h in titles)
        caption = "On the clock of the capture, as nsys shows it (observed)."
        blocks.append(Fold("Intervals behind the evidence", (Table(columns, tuple(found), caption),)))
    # A comment and a semicolon each: pasted into sqlite3 all at once, they run one after the other.
    queries = [(f"-- {visible(e.name)}", f"{visible(e.sql, None).rstrip('; ')};") for e in sharing.evidence if e.sql]
    if queries:
        lines = tuple(line for query in queries for line in query)
        blocks.append(Fold("Queries that show the same in the export", (Commands(lines, "sql"),)))
    if sharing.rivals:
        rows = tuple(
            (Cell(r.mode), Cell(f"{r.confidence:.2f}"), Cell(visible(r.why_not, _LONG))) for r in sharing.rivals
        )
        columns = (Column("Other mode"), Column("Confidence", numeric=True), Column("Why not"))
        blocks.append(Table(columns, rows, "Rivals: what else it might have been."))
    if sharing.mode != Mode.UNDETERMINED:
        blocks.append(Fold("What this mode promises, whatever runs", (_promises(TRAITS[sharing.mode].promises),)))
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
        blocks.append(Table(columns, rows, "The mode over time (inferred)."))
    if device.relations:
        labels = tenant_labels(device.tenants)
        rows = tuple(
            (
                Cell(labels.get(r.tenants[0], f"#{r.tenants[0]}")),
                Cell(labels.get(r.tenants[1], f"#{r.tenants[1]}")),
                Cell(r.relation),
                Cell(f"{r.confidence:.2f}"),
                Cell(fmt.duration(r.co_busy_ns)),
            )
            for r in device.relations
        )
        columns = (
            Column("Tenant"),
            Column("Tenant"),
            Column("Relation"),
            Column("Confidence", numeric=True),
            Column("Both busy", "by their records, observed", True),
        )
        blocks.append(Table(columns, rows, "What each pair of tenants was to each other."))
    return Section("verdict", "How it was shared", tuple(blocks))


def _id(value: int | None) -> str:
    return fmt.UNKNOWN if value is None else str(value)


def _missing(device: Device) -> Section:
    entries = device.sharing.missing
    if not entries:
        return Section("missing", "What could not be seen", (Para("Nothing that this report needs is missing."),))
    rows = tuple((Cell(visible(e.what), tone="code"), Cell(visible(e.why, _LONG)), _how(e)) for e in entries)
    columns = (Column("Missing"), Column("Why"), Column("How to capture it"))
    return Section("missing", "What could not be seen", (Table(columns, rows),))


def _how(entry: Missing) -> Cell:
    if not entry.how:
        return Cell("no way is known", tone="muted")
    return Cell(visible(entry.how, _LONG), tone="code")


def _held(device: Device) -> Section:
    blocks: list[Block] = [Para(held_sentence(device))]
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
        blocks.append(Note("Slices and switches are not known", _why(device, "context_switches", "residency")))
        if device.ledger is not None:
            blocks[-1] = Note("Switches were not recorded", _why(device, "context_switches", "residency"))
            caption = "Slices inferred from kernels' starts and ends; the line marks the median of all."
            blocks.append(Chart(chart_key("slices", device.device_id), "Slice lengths", caption))
            blocks += _slice_tables(device)
        return Section("held", "Who held the GPU", tuple(blocks))
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
    return Section("held", "Who held the GPU", tuple(blocks))


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
            _known(fmt.duration(t.median_slice_ns)),
            _known(f"{fmt.duration(t.p10_slice_ns)} to {fmt.duration(t.p90_slice_ns)}" if t.slices else fmt.UNKNOWN),
            _known(fmt.UNKNOWN if t.expired is None else f"{fmt.count(t.expired)} / {fmt.count(t.yielded)}"),
            _known(fmt.percent(t.idle_share)),
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


def _lost(dropped: int | None) -> str:
    return "cannot be told" if dropped is None else fmt.count(dropped)


def _with_share(ns: int | None, device: Device, bound: str = "") -> Cell:
    if ns is None:
        return Cell(fmt.UNKNOWN, tone="muted")
    return Cell(f"{bound}{fmt.duration(ns)} ({fmt.percent(_share(ns, device))})")


def _charged(tenant: Tenant, device: Device) -> Cell:
    # Where it is not known whether others were switched in, all of busy is only a bound.
    open_ = tenant.resident_ns is None and device.sharing.mode == Mode.UNDETERMINED and bool(tenant.charged_ns)
    return _with_share(tenant.charged_ns, device, "at most " if open_ else "")


def _known(text: str) -> Cell:
    return Cell(text, tone="muted" if text == fmt.UNKNOWN else "plain")


def _tenants(device: Device) -> Section:
    if not device.tenants:
        listed = None if device.sampled is None else device.sampled.processes
        seen = "No process was seen on this device."
        if listed:
            they = "it" if listed == 1 else "they"
            seen = f"The samples list {_compute_processes(listed)}; what {they} did was not traced."
        return Section("tenants", "Tenants", (Note("No tenants", seen),))
    labels = tenant_labels(device.tenants)
    rows = []
    for t in device.tenants:
        rows.append(
            (
                Cell(labels[t.tenant_id], tone="code", note=visible(t.name, _LONG)),
                _known(_id(t.pid)),
                _with_share(t.busy_ns, device),
                _with_share(t.resident_ns, device),
                _charged(t, device),
                _known(
                    fmt.UNKNOWN if t.slices is None else f"{fmt.count(t.slices)} of {fmt.duration(t.median_slice_ns)}"
                ),
                _known(fmt.percent(t.sm_share)),
                _known(fmt.bytes_(t.memory_peak_bytes)),
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
                Cell(_id(t.host_pid)),
                Cell(visible(t.container) or fmt.UNKNOWN),
                Cell(visible(t.pod) or fmt.UNKNOWN),
                Cell(", ".join(map(str, t.contexts)) or "–"),
            )
            for t in people
        )
        heads = (Column("Tenant"), Column("Host pid", numeric=True), Column("Container"), Column("Pod"))
        blocks.append(Fold("Who is who", (Table((*heads, Column("CUDA contexts")), cells),)))
    return Section("tenants", "Tenants", tuple(blocks))


def _slowdown_table(device: Device, labels: Mapping[int, str]) -> Table:
    rows = tuple(
        (
            Cell(labels[t.tenant_id], tone="code"),
            _estimate_cell(t.slowdown.elapsed),
            _estimate_cell(t.slowdown.latency),
            _estimate_cell(t.slowdown.resident),
            _pace_cell(t),
        )
        for t in device.tenants
        if t.slowdown.elapsed or t.slowdown.latency or t.slowdown.resident
    )
    columns = (
        Column("Tenant"),
        Column("Elapsed", "first launch to last end"),
        Column("Latency", "launch to end, summed"),
        Column("Resident", "time at work"),
        Column("Kernels/s", "alone → in company", True),
    )
    measured = sorted({visible(t.baseline) for t in device.tenants if t.baseline is not None})
    known = [e for t in device.tenants for e in (t.slowdown.elapsed, t.slowdown.latency, t.slowdown.resident) if e]
    if measured:
        against = f"measured against {', '.join(measured)}"
    elif known and all(e.high is None for e in known):
        against = "bounded by the time in which others held the engine"
    else:
        against = "estimated: this run, played again without what others took from it"
    return Table(columns, rows, f"Slowdown, shared over alone, with bounds of 95 %; {against}.")


def _pace_cell(tenant: Tenant) -> Cell:
    pace, known = tenant.pace, tenant.slowdown.elapsed or tenant.slowdown.latency or tenant.slowdown.resident
    if pace is None:
        return Cell(fmt.UNKNOWN, tone="muted")
    # Known as well as the slowdown is: alone was recorded, or played again.
    text = f"{fmt.count(round(pace.alone_per_s))} → {fmt.count(round(pace.shared_per_s))}"
    return Cell(text, basis=None if known is None else known.basis)


def _estimate_cell(estimate: Estimate | None) -> Cell:
    if estimate is None:
        return Cell(fmt.UNKNOWN, tone="muted")
    low, high = estimate.low, estimate.high
    if _bound(estimate) or low is None or high is None:
        return Cell(estimate_text(estimate, basis=False), basis=estimate.basis)
    return Cell(f"{fmt.ratio(estimate.value)} ({low:.2f} to {high:.2f})", basis=estimate.basis)


def _occupancy(device: Device, kernels: pl.DataFrame | None) -> Section:
    blocks: list[Block] = []
    occupancy = device.occupancy
    if occupancy is None:
        blocks.append(Note("Occupancy could not be modelled", _why(device, "occupancy")))
    else:
        check = occupancy.check_against_counters
        over = f"mean over the window{_by_traced(device)}"
        facts = [
            Fact("SMs active", fmt.percent(occupancy.sm_active), over, occupancy.basis),
            Fact("Warp slots in use", fmt.percent(occupancy.warps), over, occupancy.basis),
        ]
        if check is not None:
            facts.append(Fact("SMs active by counter", fmt.percent(check.sm_active), f"n = {check.n}", "sampled"))
            if check.warps is not None:
                facts.append(Fact("Warp slots by counter", fmt.percent(check.warps), f"n = {check.n}", "sampled"))
        blocks.append(Facts(tuple(facts)))
        if check is None:
            text = "No counter samples to check the model against. " + _optional_why(device, "gpu_metrics")
            blocks.append(Para(text.strip(), "muted"))
        else:
            if check.agrees is False:
                text = "The counters saw another occupancy than the model: " + visible(check.detail, _LONG)
                blocks.append(Note("Model and counters disagree", text, "warning"))
            else:
                blocks.append(Para(f"Against counters: {visible(check.detail, _LONG)}"))
            blocks.append(
                Chart(
                    chart_key("counters", device.device_id),
                    "Occupancy of the device, modelled and by hardware counter",
                    "Over the same time bins. Counters have no process: of several tenants only the sum is comparable.",
                )
            )
        blocks.append(
            Chart(
                chart_key("occupancy", device.device_id),
                "Modelled occupancy over time",
                "Mean resident warps over all warp slots of the device, stacked by tenant. Replayed from "
                "launch configurations: no supported interface measures this per SM.",
            )
        )
        blocks.append(
            Fold(
                "The same by SM and time (modelled)",
                (
                    Chart(
                        chart_key("sm_heatmap", device.device_id),
                        "Modelled warps by SM and time",
                        "Blocks replayed SM by SM as the block scheduler would place them, held to the recorded starts "
                        "and ends of the kernels. Hatched, because it is a model: which SM is which is not recorded.",
                    ),
                ),
            )
        )
        if occupancy.limiters:
            rows = tuple(
                (Cell(visible(k, 24)), Cell(fmt.percent(v)))
                for k, v in sorted(occupancy.limiters.items(), key=lambda kv: -kv[1])
            )
            columns = (
                Column("Limiting resource"),
                Column("Kernel time under it", "ties count for each", True),
            )
            blocks.append(Table(columns, rows, "What limits occupancy (modelled)."))
    blocks += _kernel_blocks(device, kernels)
    return Section("occupancy", "How full the SMs were (modelled)", tuple(blocks))


def _optional_why(device: Device, key: str) -> str:
    return _why(device, key) if device.missing_for(key) else ""


def _kernel_blocks(device: Device, kernels: pl.DataFrame | None) -> list[Block]:
    if kernels is None:
        return [Para("Launch configurations were not handed to this report.", "muted")]
    mine = [row for row in kernels.iter_rows(named=True) if row["device_id"] == device.device_id]
    if not mine:
        return [Para("No kernel launch was captured on this device.", "muted")]
    mine.sort(key=lambda row: -int(row["total_ns"]))
    labels = tenant_labels(device.tenants)
    rows = tuple(_kernel_row(row, labels) for row in mine[:TOP_KERNELS])
    columns = (
        Column("Kernel"),
        Column("Tenant"),
        Column("Time", "sum of durations", True),
        Column("Launches", numeric=True),
        Column("Grid × block", "blocks × threads", True),
        Column("Registers", "per thread", True),
        Column("Shared", "per block", True),
        Column("Occupancy", "theoretical", True),
        Column("Limited by"),
        Column("Waves", "below 1 leaves SMs empty", True),
    )
    more = f" of {fmt.count(len(mine))}" if len(mine) > TOP_KERNELS else ""
    return [
        Chart(
            chart_key("limiters", device.device_id),
            "What limits each kernel",
            "Theoretical occupancy of the kernels with most time, coloured by the limiting resource.",
        ),
        Table(
            columns,
            rows,
            f"Launch configurations with most time: {len(rows)}{more}. "
            "Times and launches are observed, occupancy and waves modelled.",
        ),
    ]


def _kernel_row(row: Mapping[str, object], labels: Mapping[int, str]) -> tuple[Cell, ...]:
    def whole(key: str) -> int | None:
        value = row.get(key)
        return int(value) if isinstance(value, int) else None

    def real(key: str) -> float | None:
        value = row.get(key)
        return float(value) if isinstance(value, int | float) else None

    def words(key: str) -> str:
        value = row.get(key)
        return visible(value if isinstance(value, str) else None)

    tenant = whole("tenant_id")
    owner = fmt.UNKNOWN if tenant is None else labels.get(tenant, f"#{tenant}")
    grid, block = whole("grid_blocks"), whole("block_threads")
    shape = fmt.UNKNOWN if grid is None or block is None else f"{fmt.count(grid)} × {fmt.count(block)}"
    reason = row.get("reason")
    limit = words("limiters").replace(",", ", ") or (visible(reason, 200) if isinstance(reason, str) else fmt.UNKNOWN)
    return (
        Cell(words("short_name") or words("name") or "unnamed", tone="code", note=words("name")),
        Cell(owner),
        Cell(fmt.duration(whole("total_ns"))),
        Cell(fmt.count(whole("launches"))),
        _known(shape),
        _known(fmt.count(whole("registers_per_thread"))),
        _known(fmt.bytes_(whole("shared_bytes"))),
        _known(fmt.percent(real("occupancy"))),
        Cell(limit),
        _known(fmt.number(real("waves"))),
    )


def _interference(device: Device) -> Section:
    labels = tenant_labels(device.tenants)
    # Whoever reads only the first line must not blame the GPU for what its host did.
    blocks: list[Block] = [Note("Look at the host first", _sentence(capital(h.detail))) for h in device.host]
    blocks.append(Para(victim_sentence(device)))
    if any(t.slowdown.elapsed or t.slowdown.latency or t.slowdown.resident for t in device.tenants):
        blocks.append(_slowdown_table(device, labels))
    for t in device.tenants:
        blocks += [Note(labels[t.tenant_id], _sentence(capital(visible(text, _LONG)))) for text in t.slowdown_notes]
    blocks += _tail_blocks(device, labels)
    figures = device.interference
    if figures is None:
        blocks.append(Note("Interference is not known", _why(device, "interference")))
    else:
        blocks += _figure_blocks(device, figures)
        blocks += _matrix_blocks(device, figures, labels)
    blocks += _cause_blocks(device)
    if device.window is not None and len(device.tenants) > 1:
        blocks.append(
            Chart(
                chart_key("latency", device.device_id),
                "Kernel latency over time, with the neighbours under it",
                "Each mark is the median, the line above it the 95th percentile, of the time from launch to end of the "
                "kernels that were launched in that stretch. Below: how much of it each tenant had work on the GPU.",
            )
        )
        blocks.append(
            Chart(
                chart_key("alone", device.device_id),
                "The same kernels, alone and contended",
                "Median time at work of each kernel with nobody else at work, and beside others; the ratio with its "
                "95 % interval.",
            )
        )
    return Section("interference", "Who was slowed, by whom", tuple(blocks))


def _figure_blocks(device: Device, figures: Interference) -> list[Block]:
    if figures.antt is None:
        return [Note("Figures of the whole device are not known", _why(device, "interference.figures"))]
    bases = {t.slowdown.elapsed.basis for t in device.tenants if t.slowdown.elapsed is not None}
    basis: Basis = "inferred" if "inferred" in bases else "observed"
    facts = (
        Fact(
            "The co-run is", figures.standing or fmt.UNKNOWN, "by the time all took, against one after the other", basis
        ),
        Fact("ANTT", fmt.number(figures.antt), "mean elapsed slowdown; 1 is none", basis),
        Fact(
            "STP",
            fmt.number(figures.stp),
            "sum of 1/slowdown, most the number of tenants; as if all ran all the time",
            basis,
        ),
        Fact("Harmonic speedup", fmt.number(figures.harmonic), "1/ANTT; 1 is no interference", basis),
        Fact("Jain", fmt.number(figures.jain), "fairness; 1 is fair", basis),
        Fact("Unfairness", fmt.number(figures.unfairness), "largest slowdown over the smallest", basis),
    )
    return [Facts(facts)]


def _matrix_blocks(device: Device, figures: Interference, labels: Mapping[int, str]) -> list[Block]:
    if figures.matrix is None:
        return [Note("Who slowed whom is not known", _why(device, "interference.matrix", "interference"))]
    if not figures.matrix:
        return []
    rows = tuple(
        (
            Cell(labels.get(c.victim, f"#{c.victim}")),
            Cell(labels.get(c.aggressor, f"#{c.aggressor}")),
            _known(fmt.ratio(c.slowdown)),
            _known(_span(c)),
            _known(fmt.ratio(c.latency)),
            Cell(fmt.count(c.n)),
        )
        for c in sorted(figures.matrix, key=lambda c: (c.victim, -(c.slowdown or 0)))
    )
    columns = (
        Column("Victim"),
        Column("Beside"),
        Column("Elapsed", numeric=True),
        Column("95 % interval", numeric=True),
        Column("Latency", numeric=True),
        Column("n", numeric=True),
    )
    together = [
        f"{labels.get(c.aggressor, c.aggressor)} and {labels.get(c.inseparable_from, c.inseparable_from)}"
        for c in figures.matrix
        if c.inseparable_from is not None and c.slowdown is None and c.aggressor < c.inseparable_from
    ]
    blocks: list[Block] = [
        Chart(
            chart_key("matrix", device.device_id),
            "Who slowed whom",
            "Elapsed slowdown of the victim (row) if only that neighbour (column) had been there.",
        ),
        Table(columns, rows, "Who slowed whom: the slowdown if only that neighbour had been there (inferred)."),
    ]
    if together:
        text = (
            f"{', '.join(sorted(set(together)))} were always there at the same time: their parts cannot be told apart."
        )
        blocks.append(Note("Inseparable", text))
    return blocks


def _span(cell: MatrixCell) -> str:
    return fmt.UNKNOWN if cell.low is None or cell.high is None else f"{cell.low:.2f} to {cell.high:.2f}"


def _tail_blocks(device: Device, labels: Mapping[int, str]) -> list[Block]:
    """Percentiles of latency, alone and in company: of kernels, and of units of work, which stand in tickets."""
    rows = []
    for t in device.tenants:
        kinds = [("kernels", t.slowdown.latency, t.tails)]
        kinds += [(visible(u.name), u.latency, u.tails) for u in t.units]
        for name, latency, tails in kinds:
            if not tails or latency is None:
                continue
            cells = [Cell(f"{fmt.duration(x.alone_ns)} → {fmt.duration(x.shared_ns)} ({x.ratio:.2f}×)") for x in tails]
            cells[0] = replace(cells[0], basis=latency.basis)
            rows.append((Cell(labels[t.tenant_id], tone="code"), Cell(name), Cell(fmt.count(latency.n)), *cells))
    if not rows:
        return []
    columns = (
        Column("Tenant"),
        Column("Work"),
        Column("n", numeric=True),
        Column("p50", "alone → in company", True),
        Column("p95", numeric=True),
        Column("p99", numeric=True),
    )
    caption = "Latency of kernels (launch to end) and of units of work (begin to the end of their last operation)."
    return [Table(columns, tuple(rows), caption)]


def _cause_blocks(device: Device) -> list[Block]:
    known = [t for t in device.tenants if t.causes is not None]
    answer: list[Block] = [Para(f"Is sharing this GPU the cause? {_sentence(capital(cause_sentence(device)))}")]
    if not known:
        return answer
    labels = tenant_labels(device.tenants)
    names = tuple(cause.value for cause in Cause)
    rows = tuple(
        (
            Cell(labels[t.tenant_id], tone="code"),
            *(_known(fmt.percent(getattr(t.causes, name))) for name in names),
        )
        for t in known
    )
    columns = (Column("Tenant"), *(Column(n.replace("_", " ").capitalize(), numeric=True) for n in names))
    chart = Chart(
        chart_key("causes", device.device_id),
        "Where the added latency went",
        "Parts of the latency that was added to its kernels, summing to 100 %.",
    )
    words = Para("Parts: " + "; ".join(_CAUSE_WORDS.values()) + ".")
    table = Table(columns, rows, "Where the added latency of its kernels went (inferred).")
    return [*answer, chart, table, *_execution_blocks(known, labels), words]


def _execution_blocks(tenants: Sequence[Tenant], labels: Mapping[int, str]) -> list[Block]:
    """The cause `execution` by evidence."""
    names = ("sm_slots", "memory", "copy_", "clock", "uvm", "unexplained")
    rows = tuple(
        (Cell(labels[t.tenant_id], tone="code"), *(_known(_part(getattr(split, name))) for name in names))
        for t in tenants
        if t.causes is not None and (split := t.causes.execution_split) is not None
    )
    if not rows:
        return []
    heads = ("SM slots", "Memory", "Copies", "Clock", "Migrations", "Unexplained")
    columns = (Column("Tenant"), *(Column(head, numeric=True) for head in heads))
    return [Table(columns, rows, "Of the added latency, what its kernels took longer at work, by evidence (inferred).")]


def _part(value: float | None) -> str:
    return fmt.percent(value)


def _advice(device: Device) -> Section:
    if not device.advice:
        text = "Nothing can be advised on this evidence. " + _optional_why(device, "advice")
        return Section("advice", "What to change", (Para(text.strip()),))
    blocks: list[Block] = []
    for number, item in enumerate(device.advice, 1):
        blocks.append(Note(f"{number}. {visible(item.action, 200)}", _sentence(capital(visible(item.why, _LONG)))))
        if item.commands:
            blocks.append(Commands(tuple(visible(line, None) for line in item.commands)))
        parts = [
            f"Expected: {visible(item.expected, _LONG) or 'cannot be said'}.",
            f"Bound: {visible(item.bound, _LONG) or fmt.UNKNOWN}." if item.bound else "",
            f"Wrong if {visible(item.wrong_if, _LONG)}." if item.wrong_if else "",
            f"Undo: {visible(item.undo, _LONG)}." if item.undo else "",
        ]
        blocks.append(Para(" ".join(p.replace("..", ".") for p in parts if p), "muted"))
    return Section("advice", "What to change", (*blocks, *_compared(device)))


def _compared(device: Device) -> list[Block]:
    """The ways to share it that were replayed, and what their modes promise."""
    if not device.options:
        return []
    labels = tenant_labels(device.tenants)
    rows = []
    for option in device.options:
        mark = " (now)" if option.current else ""
        mark += ", advised" if option.recommended and mark else " (advised)" if option.recommended else ""
        each = "; ".join(
            f"{labels.get(f.tenant_id, str(f.tenant_id))} {fmt.ratio(f.slowdown)} "
            f"[{fmt.ratio(f.low)}, {fmt.ratio(f.high)}]"
            for f in option.tenants
        )
        rows.append(
            (
                Cell(f"{visible(option.name)}{mark}"),
                Cell(fmt.ratio(option.antt)),
                Cell(f"{option.stp:.2f}"),
                Cell(each),
                Cell(_kept_apart(option.mode)),
            )
        )
    columns = (
        Column("Way to share"),
        Column("Mean slowdown", "ANTT", True),
        Column("Throughput", "STP", True),
        Column("Slowdown of each [bounds]"),
        Column("Kept apart"),
    )
    caption = (
        "Modelled, no promise: the recorded launches replayed under each way to share, against each tenant alone on "
        "the whole GPU. The last column is what documentation says of the mode (a question mark: sources disagree)."
    )
    return [Table(columns, tuple(rows), caption)]


def _kept_apart(mode: Mode) -> str:
    """What a mode keeps apart between tenants, in words."""
    if mode == Mode.UNDETERMINED:
        return fmt.UNKNOWN
    found = TRAITS[mode].promises
    words = (("memory", found.memory_protection), ("faults", found.fault_isolation), ("bandwidth", found.bandwidth_qos))
    return ", ".join(f"{word}?" if value is None else word for word, value in words if value is not False) or "nothing"


def _quality(report: Report) -> Section:
    if not report.quality:
        return Section("quality", "Data quality", (Para("Nothing odd was counted in the data."),))
    order = {"error": 0, "data-loss": 1, "notice": 2, "info": 3}
    rows = tuple(
        (
            Cell(row.severity, tone="bad" if order[row.severity] < 2 else "plain"),
            Cell(visible(row.name), tone="code"),
            Cell(fmt.count(row.count)),
            Cell(visible(row.detail, _LONG)),
        )
        for row in sorted(report.quality, key=lambda r: (order[r.severity], r.name))
    )
    columns = (Column("Severity"), Column("Counter"), Column("Count", numeric=True), Column("Detail"))
    return Section(
        "quality", "Data quality", (Table(columns, rows, "Rows and records, counted while reading (observed)."),)
    )


def _provenance(report: Report, main: Device | None, command: str, generated_with: str) -> Section:
    rows = [
        ("Window (UTC)", window_text(report, main)),
        ("Clock uncertainty", fmt.duration(report.clock.uncertainty_ns)),
        ("Versions", versions_text(report)),
        ("Contract", report.schema_id),
    ]
    if generated_with:
        rows.append(("Generated with", visible(generated_with, _LONG)))
    if command:
        rows.append(("Command", visible(command, _LONG)))
    machines = {(c.host_hash, c.driver_version, c.cuda_version) for c in report.captures}
    for host, driver, cuda in sorted(machines, key=str):
        parts = [
            f"driver {visible(driver, 24) or fmt.UNKNOWN}",
            f"CUDA {visible(cuda, 16) or fmt.UNKNOWN}",
            f"host {visible(host, 24)} (digest of its name)" if host else "host not named",
        ]
        rows.append(("Machine", ", ".join(parts)))
    for device in report.devices:
        parts = [
            f"{fmt.count(device.sm_count)} SMs" if device.sm_count is not None else "SM count not known",
            f"compute capability {visible(device.compute_capability, 12) or fmt.UNKNOWN}",
            f"uuid {visible(device.uuid) or fmt.UNKNOWN}",
        ]
        if device.memory is not None:
            parts.append(f"memory {fmt.bytes_(device.memory.total_bytes)}, peak {fmt.bytes_(device.memory.peak_bytes)}")
        rows.append((device_title(device), ", ".join(parts)))
    about = Table(
        (Column("What"), Column("Value")),
        tuple((Cell(a), Cell(b, tone="plain")) for a, b in rows),
        "This report.",
    )
    captures = tuple(
        (
            Cell(str(index)),
            Cell(visible(c.path, 120), tone="code"),
            _known(visible(c.nsys_version) or fmt.UNKNOWN),
            _known(visible(c.schema_version) or fmt.UNKNOWN),
            _known(fmt.utc(report.clock.origin_utc_ns, c.start_ns)),
            _known(fmt.duration(None if c.start_ns is None or c.end_ns is None else c.end_ns - c.start_ns)),
            _known(fmt.duration(c.clock_offset_ns)),
            _known(fmt.duration(c.clock_uncertainty_ns)),
        )
        for index, c in enumerate(report.captures)
    )
    columns = (
        Column("#", numeric=True),
        Column("Capture"),
        Column("nsys"),
        Column("Schema"),
        Column("First record"),
        Column("Length", numeric=True),
        Column("Clock offset", numeric=True),
        Column("Uncertainty", numeric=True),
    )
    read: Block = (
        Table(columns, captures, "Captures, as they say of themselves (observed).")
        if captures
        else Para("No capture was read.", "muted")
    )
    return Section("provenance", "Where this comes from", (about, read))


def _glossary() -> Section:
    rows = tuple((Cell("", basis=word), Cell(text)) for word, text in BASIS_TEXT.items())
    return Section("glossary", "What the basis words mean", (Table((Column("Word"), Column("Meaning")), rows),))
