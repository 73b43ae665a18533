"""Is sharing the GPU the cause, and which tenant is the victim?

Decided here, from the numbers of a report, once: as enums. Sentences, checks and pages say it in their own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyanalyze.vocabulary import (
    EXCLUDED_ABOVE,
    NAMED_SHARE,
    SMALL_SHARE,
    TRAITS,
    Answer,
    Condition,
    is_slowed,
    threshold_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.results.interference import Causes, Estimate, Slowdown, SlowdownKind
    from pyanalyze.results.report import Device, Tenant

__all__ = [
    "ANSWERS",
    "BEHIND_OWN",
    "CAUSE_WORDS",
    "Cause",
    "Impact",
    "Reason",
    "Victim",
    "behind_own",
    "impact_of",
    "latency_victim",
    "sole_tenant",
    "surely_less",
    "untraced_share",
]


class Cause(StrEnum):
    """Parts of added latency, as the keys of :class:`pyanalyze.results.report.Causes`."""

    LAUNCH = "launch"
    QUEUE = "queue"
    NOT_RESIDENT = "not_resident"
    SWITCH = "switch"
    EXECUTION = "execution"
    OTHERS = "others"
    UNEXPLAINED = "unexplained"


#: Part of the added latency from which a second cause is worth naming beside the largest.
NOTABLE_CAUSE = 0.2
#: Where the added latency went, as the name of a cause: in sentences, tables and charts.
CAUSE_WORDS: Mapping[Cause, str] = {
    Cause.LAUNCH: "launch overhead (the API call)",
    Cause.QUEUE: "queueing",
    Cause.NOT_RESIDENT: "waiting for its time slice",
    Cause.SWITCH: "context switches",
    Cause.EXECUTION: "slower execution",
    Cause.OTHERS: "waiting for others",
    Cause.UNEXPLAINED: "not explained",
}


#: Causes of which kernels that wait in the same stream have a part: behind one that the cause delayed.
BEHIND_OWN = (Cause.NOT_RESIDENT, Cause.SWITCH, Cause.EXECUTION)


def behind_own(tenant: Tenant, cause: Cause) -> float | None:
    """Part of the added latency that kernels waited behind own ones which this cause delayed.

    Returns
    -------
    float or None
        None: less than is worth a word, not known, or no such cause.

    Examples
    --------
    >>> import pyanalyze
    >>> tenant = pyanalyze.load(capture).report().devices[0].tenants[0]
    >>> behind_own(tenant, Cause.QUEUE) is None
    True
    """
    direct, root = tenant.causes, tenant.root_causes
    if direct is None or root is None or cause not in BEHIND_OWN:
        return None
    parts = getattr(direct, cause.value), getattr(root, cause.value)
    if None in parts or parts[1] - parts[0] < NAMED_SHARE:
        return None
    return float(parts[1] - parts[0])


class Reason(StrEnum):
    """What the answer follows from; in the order in which they are tried."""

    HOST = "host"
    """Nobody was slowed, and the host has a finding."""
    HOST_ONLY = "host-only"
    """The host has a finding, and no slowdown is known."""
    SOLE_TENANT = "sole-tenant"
    """One tenant had the device, and no slowdown is known."""
    OTHERS_NOT_EXCLUDED = "others-not-excluded"
    """One process was traced, nothing excludes others, and no slowdown is known."""
    NOT_MEASURED = "not-measured"
    """No slowdown is known."""
    SOLE_TENANT_SLOWED = "sole-tenant-slowed"
    """No other tenant was on the device: what makes this one slower than its baseline lies elsewhere."""
    OTHERS_MAY_SLOW = "others-may-slow"
    """One process is known and slower than its baseline, and its verdict has a condition: others are not excluded."""
    OTHERS_UNKNOWN = "others-unknown"
    """None of the tenants whose slowdown is known was slowed, and that of others is not known."""
    EXCLUDED = "excluded"
    """The interval of the largest slowdown includes 1 and excludes any that is worth acting on."""
    NOT_SHOWN = "not-shown"
    """The interval of the largest slowdown includes 1 and one that is worth acting on, or it has no lower end."""
    NOT_SLOWED = "not-slowed"
    """The largest slowdown is below what counts as one."""
    SWITCHED_OUT = "switched-out"
    """Others were resident while the victim had launched work; the parts of its latency are not known."""
    CAUSES_UNKNOWN = "causes-unknown"
    """A slowdown was found; where the time went is not known."""
    NO_CAUSE = "no-cause"
    """No part of the added latency has a value."""
    LAUNCH = "launch"
    """Most of the added latency is the API call: the host."""
    UNEXPLAINED = "unexplained"
    """Most of the added latency is not explained."""
    CAUSE = "cause"
    """Most of the added latency comes from sharing: see `Victim.top`."""


#: Each reason decides the answer.
ANSWERS: Mapping[Reason, Answer] = {
    Reason.HOST: Answer.NO,
    Reason.HOST_ONLY: Answer.UNKNOWN,
    Reason.SOLE_TENANT: Answer.NO,
    Reason.OTHERS_NOT_EXCLUDED: Answer.UNKNOWN,
    Reason.NOT_MEASURED: Answer.UNKNOWN,
    Reason.SOLE_TENANT_SLOWED: Answer.NO,
    Reason.OTHERS_MAY_SLOW: Answer.UNKNOWN,
    Reason.OTHERS_UNKNOWN: Answer.UNKNOWN,
    Reason.EXCLUDED: Answer.NO,
    Reason.NOT_SHOWN: Answer.UNKNOWN,
    Reason.NOT_SLOWED: Answer.NO,
    Reason.SWITCHED_OUT: Answer.YES,
    Reason.CAUSES_UNKNOWN: Answer.UNKNOWN,
    Reason.NO_CAUSE: Answer.UNKNOWN,
    # Mostly: a smaller part of the latency may come from sharing.
    Reason.LAUNCH: Answer.NO,
    Reason.UNEXPLAINED: Answer.UNKNOWN,
    Reason.CAUSE: Answer.YES,
}


@dataclass(frozen=True)
class Victim:
    """The tenant with the largest slowdown: of those that count as one, if any does.

    Attributes
    ----------
    tenant
        The tenant, as the report has it.
    kind
        Which of its slowdowns that is.
    estimate
        That slowdown.
    top
        The largest part of its added latency, with what queued behind it where that is known, and the fraction that it
        is; None: not known.
    second
        The next largest, where it is notable too; None: not known, or it is not.
    switched_out
        Fraction of its busy time in which another context was resident; None: not known, or none of it.
    """

    tenant: Tenant
    kind: SlowdownKind
    estimate: Estimate
    top: tuple[Cause, float] | None = None
    second: tuple[Cause, float] | None = None
    switched_out: float | None = None

    @property
    def lost(self) -> float | None:
        """Of a latency known only from below, the part in which another context was resident or being switched."""
        only = self.tenant.causes is None and self.estimate.from_below
        return 1 - 1 / self.estimate.value if only and self.kind == "latency" and self.estimate.value > 1 else None

    @property
    def saving(self) -> float | None:
        """Fraction of its busy time that is assumed to be saving and restoring; None: nothing, or a negligible part."""
        assumed_ns, tenant = self.tenant.assumed_switch_ns, self.tenant
        if assumed_ns is None or not tenant.busy_ns or not tenant.attributed_ns:
            return None
        return assumed_ns / tenant.busy_ns if assumed_ns >= SMALL_SHARE * tenant.attributed_ns else None

    @property
    def waited(self) -> bool:
        """Whether its latency has waits before kernels started, too: more than time lost in flight explains."""
        added = self.tenant.added_latency
        if added is not None:
            return self.kind == "latency" and added.waited
        inside = (self.switched_out or 0.0) + (self.saving or 0.0)
        return self.kind == "latency" and self.estimate.value * (1 - inside) * (1 - SMALL_SHARE) > 1

    @property
    def slowed(self) -> bool:
        """Whether it was slowed, by :func:`pyanalyze.vocabulary.is_slowed`."""
        return _counts(self.kind, self.estimate, _switched_out(self.tenant))

    @property
    def of_latency(self) -> bool:
        """Whether it waits longer than its elapsed time shows: as :func:`latency_victim`."""
        return self.slowed and _is_of_latency(self.tenant.slowdown, self.kind, self.estimate)


@dataclass(frozen=True)
class Impact:
    """What sharing did on one device.

    Attributes
    ----------
    reason
        What `answer` follows from.
    victim
        The tenant with the largest slowdown; None: no slowdown is known.
    sole_tenant
        One tenant had the device to itself.
    unknown
        Traced tenants whose slowdown is not known.
    also_slowed
        Other tenants that were slowed, most first.
    """

    reason: Reason
    victim: Victim | None
    sole_tenant: bool
    unknown: tuple[Tenant, ...]
    also_slowed: tuple[Victim, ...] = ()

    @property
    def slowed(self) -> bool:
        """Whether a tenant was slowed, whoever caused it."""
        return self.victim is not None and self.victim.slowed

    @property
    def answer(self) -> Answer:
        """Whether sharing is the cause."""
        return ANSWERS[self.reason]


def impact_of(device: Device) -> Impact:
    """Decide whether sharing is the cause on a device, and find the victim.

    Parameters
    ----------
    device
        The device, as a report has it.

    Examples
    --------
    >>> import pyanalyze
    >>> impact = impact_of(pyanalyze.load(capture).report().devices[0])
    >>> impact.answer.value, impact.victim.tenant.name, impact.victim.kind
    ('yes', 'app_b', 'latency')
    """
    largest = {tenant.tenant_id: _largest(tenant.slowdown, _switched_out(tenant)) for tenant in device.tenants}
    found = [(tenant, one) for tenant in device.tenants if (one := largest[tenant.tenant_id]) is not None]
    # A process whose groups of work are the tenants has no work of its own; a group may have no kernels.
    divided = {t.served_by for t in device.tenants if t.group_of is not None}
    idle = {t.tenant_id for t in device.tenants if t.group_of is not None and not t.busy_ns} | divided
    unknown = tuple(
        t for t in device.tenants if t.busy_ns is not None and largest[t.tenant_id] is None and t.tenant_id not in idle
    )
    sole = sole_tenant(device)
    if not found:
        return Impact(_without_slowdown(device, sole=sole), None, sole, unknown)
    found.sort(key=lambda one: _order(one[0].slowdown, one[1][0], one[1][1], _switched_out(one[0])), reverse=True)
    victim, *others = (_victim(tenant, *one) for tenant, one in found)
    reason = _unless_slowed(device, victim, unknown, sole=sole) or _where_it_went(victim)
    return Impact(reason, victim, sole, unknown, tuple(other for other in others if other.slowed))


def latency_victim(slowdowns: Mapping[int, tuple[Slowdown, float | None]]) -> int | None:
    """The victim, where what is named of it is its latency: elapsed times say less of it.

    Parameters
    ----------
    slowdowns
        By tenant: its slowdowns, and the fraction of its busy time in which another context was resident; None: not
        known, or none of it.

    Returns
    -------
    int or None
        None where no tenant was slowed, or its elapsed time may have grown as much.

    Examples
    --------
    >>> latency_victim({}) is None
    True
    """
    found = [
        (_order(slowdown, *largest, lost), tenant_id, largest)
        for tenant_id, (slowdown, lost) in slowdowns.items()
        if (largest := _largest(slowdown, lost)) is not None
    ]
    if not found:
        return None
    # As in a report: of two that are equal the first.
    (slowed, _), tenant_id, (kind, latency) = max(found, key=lambda one: one[0])
    return tenant_id if slowed and _is_of_latency(slowdowns[tenant_id][0], kind, latency) else None


def _is_of_latency(slowdown: Slowdown, kind: SlowdownKind, estimate: Estimate) -> bool:
    """Whether a largest slowdown is one of latency, of which the elapsed time says less."""
    return kind == "latency" and (slowdown.elapsed is None or surely_less(slowdown.elapsed, estimate))


def surely_less(one: Estimate, other: Estimate) -> bool:
    """Whether a slowdown is smaller than another one, by their bounds.

    Examples
    --------
    >>> from pyanalyze.results.interference import Estimate
    >>> one = Estimate(value=1.2, low=1.1, high=1.3, n=9, basis="inferred")
    >>> surely_less(one, one.model_copy(update={"value": 1.5, "low": 1.4, "high": 1.6}))
    True
    """
    high = one.value if one.high is None else one.high
    return high < (other.value if other.low is None else other.low)


def _largest(slowdown: Slowdown, lost: float | None) -> tuple[SlowdownKind, Estimate] | None:
    """The larger of elapsed and latency, one that counts before one that does not; else contention proper."""
    pairs: tuple[tuple[SlowdownKind, Estimate | None], ...] = (
        ("elapsed", slowdown.elapsed),
        ("latency", slowdown.latency),
    )
    known = [(kind, estimate) for kind, estimate in pairs if estimate is not None]
    if not known and slowdown.resident is not None:
        return "resident", slowdown.resident
    # A slowdown that is shown comes before a larger one that may be chance: only of that one there are causes.
    return max(known, key=lambda pair: (_counts(pair[0], pair[1], lost), pair[1].value), default=None)


def _counts(kind: SlowdownKind, estimate: Estimate, lost: float | None) -> bool:
    """Whether a tenant that was switched out for that part of its busy time was slowed."""
    low = estimate.low
    if low is None and estimate.high is None and kind == "latency":
        # Too few kernels for an interval. What they lost while another context was resident was recorded: a bound.
        low = None if lost is None or lost >= 1.0 else 1 / (1 - lost)
    return is_slowed(estimate.value, low, estimate.basis)


def _order(slowdown: Slowdown, kind: SlowdownKind, estimate: Estimate, lost: float | None) -> tuple[bool, float]:
    """By the latency while another tenant has work: one that ran solo for long is not slowed less."""
    beside = slowdown.latency_co_run if kind == "latency" else None
    return _counts(kind, estimate, lost), estimate.value if beside is None else beside.value


def _victim(tenant: Tenant, kind: SlowdownKind, estimate: Estimate) -> Victim:
    causes = tenant.root_causes or tenant.causes
    top, second, *_ = (None, None) if causes is None else (*_by_part(causes), None, None)
    if tenant.group_of is not None:
        # Of groups of work nothing but execution is compared.
        top, second = (Cause.EXECUTION, 1.0), None
    if second is not None and second[1] < NOTABLE_CAUSE:
        second = None
    return Victim(tenant, kind, estimate, top, second, _switched_out(tenant))


def _by_part(causes: Causes) -> list[tuple[Cause, float]]:
    parts = [(cause, value) for cause in Cause if (value := getattr(causes, cause)) is not None]
    return sorted(parts, key=lambda pair: -pair[1])


def _switched_out(tenant: Tenant) -> float | None:
    recorded = tenant.resident_ns is not None or tenant.in_mps_group
    if not recorded or not tenant.busy_ns or tenant.attributed_ns is None:
        return None
    lost = 1 - tenant.attributed_ns / tenant.busy_ns
    return lost if lost > 0 else None


def _without_slowdown(device: Device, *, sole: bool) -> Reason:
    if device.host:
        return Reason.HOST if sole else Reason.HOST_ONLY
    if sole:
        return Reason.SOLE_TENANT
    # A verdict has a condition only where one process was traced.
    open_ = device.sharing.condition is Condition.UNLESS_UNTRACED_TENANT and len(device.tenants) == 1
    return Reason.OTHERS_NOT_EXCLUDED if open_ else Reason.NOT_MEASURED


def _unless_slowed(device: Device, victim: Victim, unknown: tuple[Tenant, ...], *, sole: bool) -> Reason | None:
    """Why sharing is not the cause, or may not be, whatever the added latency was; None: somebody was slowed."""
    low, high = victim.estimate.low, victim.estimate.high
    if victim.kind == "resident" and victim.tenant.group_of is None:
        # How long kernels ran while resident says nothing of how long they waited: it bounds the slowdown from below.
        high = None
    # What is known from below only is not known to be small.
    small = high is not None and victim.estimate.value < threshold_of(victim.estimate.basis)
    # An interval around 1 that excludes what one would feel is an answer; a wide or an open one is none.
    excluded = high is not None and high < EXCLUDED_ABOVE and (low is None or low <= 1.0 <= high)
    if victim.slowed and _others_open(device):
        # Whatever else slows it, a tenant that nothing excludes may: even a rare one delays short kernels many times.
        return Reason.OTHERS_MAY_SLOW
    if device.host and (sole or small or excluded):
        return Reason.HOST
    if victim.slowed:
        return Reason.SOLE_TENANT_SLOWED if sole else None
    if unknown and (small or excluded):
        # One that was not slowed says nothing of another whose slowdown is not known.
        return Reason.OTHERS_UNKNOWN
    if excluded:
        return Reason.EXCLUDED
    bounded = low is not None and high is not None and not low <= 1.0 <= high
    return Reason.NOT_SLOWED if small and bounded else Reason.NOT_SHOWN


def _where_it_went(victim: Victim) -> Reason:
    """What the parts of the victim's added latency say."""
    if victim.tenant.causes is None and victim.tenant.group_of is None:
        unknown = victim.lost is None and victim.switched_out is None
        return Reason.CAUSES_UNKNOWN if unknown else Reason.SWITCHED_OUT
    if victim.top is None:
        return Reason.NO_CAUSE
    decided = {Cause.LAUNCH: Reason.LAUNCH, Cause.UNEXPLAINED: Reason.UNEXPLAINED}
    return decided.get(victim.top[0], Reason.CAUSE)


def _others_open(device: Device) -> bool:
    """Whether one tenant is known, and its verdict holds only if others did not use the device."""
    sharing = device.sharing
    return len(device.tenants) == 1 and TRAITS[sharing.mode].solo and sharing.condition is not None


def sole_tenant(device: Device) -> bool:
    """Whether the verdict says that one tenant had the device to itself, whatever condition it names besides.

    A verdict that holds unless any other process used the GPU does not say so.

    Examples
    --------
    >>> import pyanalyze
    >>> sole_tenant(pyanalyze.load(capture).report().devices[0])
    False
    """
    if len(device.tenants) != 1:
        return False
    return TRAITS[device.sharing.mode].solo and device.sharing.condition is not Condition.UNLESS_UNTRACED_TENANT


def untraced_share(device: Device) -> float:
    """Part of the window in which tenants were resident whose kernels were not traced: their work is not known.

    Examples
    --------
    >>> import pyanalyze
    >>> round(untraced_share(pyanalyze.load(capture).report().devices[0]), 3)
    0.225
    """
    window_ns = 0 if device.window is None else device.window.end_ns - device.window.start_ns
    if device.context_switches is not None and device.context_switches.recorded_ns:
        window_ns = device.context_switches.recorded_ns
    if not window_ns:
        return 0.0
    untraced = [t for t in device.tenants if t.busy_ns is None]
    # Residency of an MPS group is of all its clients.
    group = max((t.gpu_time_share or 0.0 for t in untraced if t.in_mps_group), default=0.0)
    return group + sum((t.resident_ns or 0) / window_ns for t in untraced)
