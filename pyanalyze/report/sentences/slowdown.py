"""Slowdown: the victim, by how much, and the tenants that slow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyanalyze.analysis.impact import impact_of, surely_less
from pyanalyze.report.sentences.missing import why_missing
from pyanalyze.report.sentences.tenants import tenant_names
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import NOTABLE_DIFFERENCE, SMALL_SHARE, TRAITS, is_slowed, threshold_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.analysis.impact import Victim
    from pyanalyze.results.interference import Estimate, MatrixCell, SlowdownKind
    from pyanalyze.results.report import Device

#: The kinds of slowdown, as a sentence names them.
KIND_WORDS: Mapping[SlowdownKind, str] = {
    "elapsed": "elapsed time",
    "latency": "kernel latency",
    "resident": "execution (while resident)",
}
#: Lower end of an interval over its value, below which the interval is said in its place.
_FAR_BELOW = 0.9
#: Part of a tenant's time from which it is said that it waited with nothing in flight.
_LONG_WAIT = 0.1


def bound_text(estimate: Estimate) -> str:
    """Say whether the value is itself the bound."""
    if estimate.from_below:
        return "at least "
    # An interval of no width is an interval.
    return "at most " if estimate.low is not None and estimate.low < estimate.value == estimate.high else ""


def estimate_text(estimate: Estimate | None, *, basis: bool = True) -> str:
    """Such as ``2.04x (bounds 1.98-2.10, n = 606, inferred)``; a value that is its own bound says so."""
    if estimate is None:
        return fmt.UNKNOWN
    parts = []
    bound = bound_text(estimate)
    if not bound and estimate.low is not None and estimate.high is not None:
        parts.append(fmt.interval(estimate.low, estimate.high, basis=estimate.basis))
    parts.append(f"n = {fmt.count(estimate.n)}")
    if basis:
        parts.append(estimate.basis)
    return f"{bound}{fmt.ratio(estimate.value)} ({', '.join(parts)})"


def victim_sentence(device: Device) -> str:
    """Name the tenant with the largest slowdown, or say why it is not known."""
    impact = impact_of(device)
    victim = impact.victim
    if victim is None and impact.sole_tenant:
        if device.sharing.basis == "observed" and device.sharing.condition is None:
            return "No slowdown by another tenant: only one tenant was on the device."
        return "No slowdown by another tenant: no other tenant was seen."
    if victim is None:
        return f"Slowdown is {slowdown_text(device)}"
    return f"Largest {'known ' if impact.unknown else ''}slowdown: {slowdown_text(device)}"


def slower_elapsed(device: Device) -> str | None:
    """Another tenant whose elapsed time surely grew more than the victim's, which is named for its latency."""
    victim = impact_of(device).victim
    mine = None if victim is None or victim.kind != "latency" else victim.tenant.slowdown.elapsed
    if victim is None or mine is None:
        return None
    most = mine.value if mine.high is None else mine.high
    found = [
        (elapsed.value, tenant_labels(device.tenants)[tenant.tenant_id], elapsed)
        for tenant in device.tenants
        if (elapsed := tenant.slowdown.elapsed) is not None
        and elapsed.low is not None
        and elapsed.low > most
        and is_slowed(elapsed.value, elapsed.low, elapsed.basis)
    ]
    if not found:
        return None
    _, label, elapsed = max(found, key=lambda one: one[:2])
    return f"{label} {estimate_text(elapsed)}"


def slowdown_text(device: Device, *, with_rest: bool = True, short: bool = False) -> str:
    """The tenant with the largest slowdown, or why it is not known, to stand behind a label; short: in a summary."""
    impact = impact_of(device)
    victim = impact.victim
    if victim is None:
        return f"{unknown_slowdown(device)}. {waiting_text(device)}{why_missing(device, 'slowdown', 'interference')}"
    label = tenant_labels(device.tenants)[victim.tenant.tenant_id]
    found = f"{label}, {KIND_WORDS[victim.kind]} {estimate_text(victim.estimate)}"
    beside = victim.tenant.slowdown.latency_co_run
    # A summary has room for one of the two: a mean of all kernels says less where some ran solo.
    told = short and beside is not None
    if victim.kind == "latency" and not told and (added_ns := victim.tenant.added_latency_ns) is not None:
        found = f"{found}, mean +{fmt.duration(added_ns)}"
    if victim.kind == "latency" and beside is not None:
        long = f"{fmt.ratio(beside.value)} while another tenant has work (n = {fmt.count(beside.n)})"
        found = f"{found}; {f'co-run {fmt.ratio(beside.value)}' if short else long}"
    if victim.kind == "latency" and not short and (units := units_text(victim)):
        found = f"{found}; {units}"
    elapsed = victim.tenant.slowdown.elapsed
    slower = slower_elapsed(device)
    if victim.kind == "latency" and elapsed and (slower or surely_less(elapsed, victim.estimate)):
        # Kernels that wait longer cost a program less, or nothing, whose host runs ahead of them.
        found = f"{found}; {_elapsed_words(elapsed)}"
    if slower is not None:
        found = f"{found}. Slowed most by {KIND_WORDS['elapsed']}: {slower}"
    if with_rest and impact.unknown:
        return f"{found}. The slowdown of {tenant_names(device, impact.unknown)} is not known."
    return f"{found}."


def _elapsed_words(elapsed: Estimate) -> str:
    """The elapsed slowdown in short: its value, or its interval, where the lower end is far from the value."""
    low, high = elapsed.low, elapsed.high
    if low is None or high is None or low >= _FAR_BELOW * elapsed.value:
        return f"{KIND_WORDS['elapsed']} {fmt.ratio(elapsed.value)}"
    return f"elapsed {low:.2f}-{fmt.ratio(high)}"


def waiting_text(device: Device) -> str:
    """Which of several tenants waited most with launched work and nothing in flight; empty: none did for long."""
    shares = [(t.time_split.waiting_share or 0.0, t) for t in device.tenants if t.time_split is not None]
    share, tenant = max(shares, key=lambda one: one[0], default=(0.0, None))
    if tenant is None or share < _LONG_WAIT or len(device.tenants) < 2:
        return ""
    label = tenant_labels(device.tenants)[tenant.tenant_id]
    return f"For {fmt.percent(share)} of its time {label} had launched work and nothing in flight. "


def unknown_slowdown(device: Device) -> str:
    """Say that no slowdown was measured, beside those that the forecast of the current configuration has."""
    forecast = any(option.current for option in device.options or ())
    return f"{fmt.UNKNOWN} from the recording (forecasts model it)" if forecast else fmt.UNKNOWN


def percentile_text(victim: Victim, *, short: bool = False, with_n: bool = True) -> str:
    """The largest percentile that a victim's units, else its kernels, are enough for; short: the ratio only."""
    units = victim.tenant.units
    found = units[0].latency_percentiles if units else victim.tenant.latency_percentiles
    if not found:
        return ""
    counted = units[0].latency if units else victim.tenant.slowdown.latency
    # Of fewer than a hundred the 99th percentile is the slowest one.
    enough = [one for one in found if counted is None or counted.n * (100 - one.percentile) >= 100]
    last = max(enough or found[:1], key=lambda one: one.percentile)
    what = visible(units[0].name, 40) if units else "kernels"
    # Solo time dilutes the percentiles of all units as it does their mean.
    beside, of_kernels = units[0].latency_co_run if units else None, victim.tenant.slowdown.latency_co_run
    mean = "" if beside is None else f", mean co-run {fmt.ratio(beside.value)}"
    if beside and of_kernels and abs(beside.value / of_kernels.value - 1) < NOTABLE_DIFFERENCE:
        # That of its kernels, which stands before it, says as much.
        mean = ""
    if short:
        return f"{what} p{last.percentile} {fmt.ratio(last.ratio)}{mean}"
    solo, shared = fmt.duration(last.solo_ns), fmt.duration(last.shared_ns)
    n = f", n = {fmt.count(units[0].latency.n)}" if units and with_n else ""
    return f"{what} p{last.percentile} {solo} -> {shared} ({fmt.ratio(last.ratio)}{n}){mean}"


def units_text(victim: Victim) -> str:
    """The slowdown of a victim's units of work while another tenant has work, to stand behind that of its kernels."""
    units = victim.tenant.units
    beside = units[0].latency_co_run if units else None
    if beside is None:
        return ""
    long = f"{fmt.ratio(beside.value)} while another tenant has work (n = {fmt.count(beside.n)})"
    return f"{visible(units[0].name, 40)} {fmt.ratio(units[0].latency.value)}, {long}"


def pairwise_kind(device: Device) -> Literal["latency", "slowdown"]:
    """The pairwise slowdown that compares with that of the victim: of latency, or of elapsed time."""
    victim = impact_of(device).victim
    return "latency" if victim is not None and victim.kind == "latency" else "slowdown"


def known_from_below(device: Device) -> set[int]:
    """Tenants whose latency is known from below only: so is what each other tenant added to it."""
    return {t.tenant_id for t in device.tenants if t.slowdown.latency and t.slowdown.latency.from_below}


def pairs_without_figure(device: Device) -> dict[tuple[int, int], str]:
    """Pairs of victim and aggressor that pairwise interference says nothing of, and why."""
    cells = [] if device.interference is None else device.interference.matrix or []
    found = {(cell.victim, cell.aggressor) for cell in cells}
    servers = {tenant.served_by for tenant in device.tenants}
    ids = [tenant.tenant_id for tenant in device.tenants if tenant.tenant_id not in servers]
    unknown, below = {tenant.tenant_id for tenant in device.without_slowdown()}, known_from_below(device)
    why = {
        victim: "the slowdown of the victim is not known"
        if victim in unknown
        else "of the victim only the time in which another context was resident or being switched is known"
        if victim in below
        else "nothing was found that it added"
        for victim in ids
    }
    return {(v, a): why[v] for v in ids for a in ids if v != a and (v, a) not in found}


def _took_time(cells: Sequence[MatrixCell], victim: Victim, labels: Mapping[int, str]) -> str:
    """Those that took most of the time that others took from a victim, where there are several; empty: not known."""
    shares = {c.aggressor: c.share for c in cells if c.victim == victim.tenant.tenant_id and c.share is not None}
    most = sorted((one for one in shares.items() if one[1] >= SMALL_SHARE), key=lambda one: (-one[1], one[0]))[:3]
    of = " of the time others took"
    return fmt.names([f"{labels[who]} ({fmt.percent(share)}{of * (n == 0)})" for n, (who, share) in enumerate(most)])


def aggressors_text(device: Device, victim: Victim, *, basis: bool = True) -> str:
    """Name the aggressors of a victim, each with the slowdown that it causes without the others."""
    labels = tenant_labels(device.tenants)
    cells = [] if device.interference is None else device.interference.matrix or []
    # The same kind of slowdown as that of the victim: two kinds in one sentence do not compare.
    kinds = {"latency": "latency", "elapsed": "slowdown", "resident": "execution"}
    of_kind = [(getattr(cell, kinds[victim.kind]), cell) for cell in cells]
    found = [
        (slowdown, labels.get(cell.aggressor, f"#{cell.aggressor}"))
        for slowdown, cell in of_kind
        if cell.victim == victim.tenant.tenant_id and slowdown is not None
    ]
    slowing = [one for one in found if one[0] >= threshold_of("inferred")]
    if took := _took_time(cells, victim, labels):
        return f"slowed by {took}{', inferred' if basis else ''}"
    clients = {tenant.tenant_id for tenant in device.mps_group()}
    together = [
        labels[cell.aggressor]
        for cell in cells
        if cell.victim == victim.tenant.tenant_id and cell.inseparable_from is not None and cell.aggressor in clients
    ]
    group = [f"the MPS group of {fmt.names(sorted(together))}"] if together else []
    if group and not slowing:
        return f"slowed by {group[0]}{', inferred' if basis else ''}"
    if found and not slowing:
        return "no other tenant slows it alone"
    if slowing:
        most = sorted(slowing, key=lambda pair: (-pair[0], pair[1]))[:3]
        only = " with it alone"
        each = [f"{who} ({fmt.ratio(slowdown)}{only if n == 0 else ''})" for n, (slowdown, who) in enumerate(most)]
        # With one other tenant it is the slowdown again: a second number says nothing more.
        others = [t for t in device.tenants if t.tenant_id != victim.tenant.tenant_id]
        if len(others) == 1 or (len(found) == 1 and victim.lost is not None):
            each = [who for _, who in most]
        return f"slowed by {fmt.names([*each, *group])}{', inferred' if basis else ''}"
    # While it was switched out another tenant was resident: which one is known only where there is one other. Under MPS
    # records name one client for all.
    others = [t for t in device.tenants if t.tenant_id != victim.tenant.tenant_id and t.resident_ns]
    if victim.switched_out is not None and len(others) == 1 and not TRAITS[device.sharing.mode].mps:
        (other,) = others
        who = labels[other.tenant_id]
        if other.busy_ns is None and other.pid is not None and f"pid {other.pid}" not in who:
            # The name of a program alone may read as any word.
            who = f"process {who} (pid {other.host_pid or other.pid})"
        return f"slowed by {who}; it was the only other resident tenant"
    return "the aggressor is not known"
