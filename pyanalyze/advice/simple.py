"""Advice that follows from the verdict, the slices and the modelled occupancy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyanalyze.sharing import Verdict

#: Switching overhead above which longer slices are worth naming.
NOTABLE_OVERHEAD = 0.01
#: Modelled warp occupancy below which running side by side has room.
ROOM_FOR_OTHERS = 0.5


@dataclass(frozen=True)
class Action:
    """One thing to do, why, what it can give at most, and how to take it back."""

    action: str
    commands: tuple[str, ...]
    expected: str | None
    bound: str | None
    why: str
    undo: str | None


@dataclass(frozen=True)
class Held:
    """What advice needs to know of a tenant."""

    name: str
    host_pid: int | None
    traced: bool
    resident_share: float | None
    slowdown_high: float | None


@dataclass(frozen=True)
class SideBySide:
    """What the model says of a tenant on the same SMs with the others: slowdown against itself alone."""

    name: str
    slowdown: float
    low: float
    high: float


def advise(
    verdict: Verdict,
    tenants: Sequence[Held],
    *,
    overhead_fraction: float | None,
    warps: float | None,
    compute_capability: tuple[int, int] | None,
    side_by_side: Sequence[SideBySide] = (),
) -> list[Action]:
    """Say what to change on one device.

    Parameters
    ----------
    verdict
        How the device was shared.
    tenants
        Who was on it.
    overhead_fraction
        Switch cost over the window (0 to 1); None without switch records.
    warps
        Modelled mean of resident warps over all warp slots (0 to 1); None if it could not be modelled.
    compute_capability
        Such as ``(8, 0)``; None if not known.
    side_by_side
        Modelled slowdowns with all tenants on the SMs at once; empty where that could not be modelled.

    Returns
    -------
    list of Action
        Best first; empty when nothing follows from the evidence.

    Examples
    --------
    >>> from pyanalyze.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> advise(verdict, [], overhead_fraction=None, warps=None, compute_capability=(8, 0))[0].action
    'Record what decides before changing anything'
    """
    if verdict.mode == "undetermined":
        return list(_record_first(verdict))
    actions = list(_unknown_tenants(tenants))
    if verdict.mode in ("time-slicing", "mig+time-slicing"):
        actions += _time_slicing(verdict, tenants, overhead_fraction, warps, compute_capability, side_by_side)
    elif verdict.mode in ("exclusive", "streams", "mig"):
        actions.append(
            Action(
                "Nothing to gain from sharing differently",
                (),
                None,
                "no other tenant took GPU time in this capture",
                "one tenant was on the device; if it is slow, look at the host side, the kernels or the clocks",
                None,
            )
        )
    return actions


def _record_first(verdict: Verdict) -> Iterable[Action]:
    commands = tuple(dict.fromkeys(gap.how for gap in verdict.missing if gap.how))
    if commands:
        yield Action(
            "Record what decides before changing anything",
            commands[:3],
            None,
            None,
            f"the sharing mode is not known (nearest: {verdict.rivals[0].mode if verdict.rivals else 'none'})",
            None,
        )


def _unknown_tenants(tenants: Sequence[Held]) -> Iterable[Action]:
    if not any(tenant.traced for tenant in tenants):
        return  # a node capture traces nobody: there is no stranger among strangers
    for tenant in tenants:
        # An MPS server holds the engine for its clients.
        if tenant.name.startswith("nvidia-cuda-mps"):
            continue
        if not tenant.traced and (tenant.resident_share or 0) >= 0.05 and tenant.host_pid:
            yield Action(
                f"Find out whose process {tenant.host_pid} ({tenant.name}) is",
                (f"ps -o pid,user,lstart,cmd -p {tenant.host_pid}", f"cat /proc/{tenant.host_pid}/cgroup"),
                None,
                f"it held the engine for {100 * (tenant.resident_share or 0):.0f} % of the time that anybody did",
                "nsys did not trace it; only the driver's switch records show it",
                None,
            )


def _time_slicing(
    verdict: Verdict,
    tenants: Sequence[Held],
    overhead_fraction: float | None,
    warps: float | None,
    compute_capability: tuple[int, int] | None,
    side_by_side: Sequence[SideBySide],
) -> Iterable[Action]:
    worst = max((t.slowdown_high for t in tenants if t.slowdown_high is not None), default=None)
    volta = compute_capability is not None and compute_capability >= (7, 0)
    if volta and (warps is None or warps < ROOM_FOR_OTHERS) and verdict.mode == "time-slicing":
        room = "" if warps is None else f"; modelled, {100 * warps:.0f} % of the warp slots were filled"
        yield Action(
            "Let the tenants run side by side under MPS instead of in turns",
            ("nvidia-cuda-mps-control -d   # as the user that runs the workloads, before they start",),
            _expected(side_by_side),
            _bound(side_by_side)
            if side_by_side
            else None
            if worst is None
            else f"at most the {worst:.2f}x that switching out cost comes back; contention may take part of it",
            f"they took turns on an engine that one of them did not fill{room}. A fault of one MPS client reaches "
            "the others",
            "echo quit | nvidia-cuda-mps-control",
        )
    if overhead_fraction is not None and overhead_fraction >= NOTABLE_OVERHEAD:
        yield Action(
            "Use longer time slices if latency allows",
            ("nvidia-smi compute-policy --set-timeslice=3   # long; as root, lasts until the driver is reloaded",),
            None,
            f"at most {100 * overhead_fraction:.1f} % of the window, all that switching took",
            "each switch costs about the same however long the slice was",
            "nvidia-smi compute-policy --set-timeslice=0",
        )


def _expected(side_by_side: Sequence[SideBySide]) -> str | None:
    if not side_by_side:
        return None
    each = ", ".join(f"{tenant.name} {tenant.slowdown:.2f}x" for tenant in side_by_side)
    return f"modelled, not a promise: side by side, against each alone, {each}"


def _bound(side_by_side: Sequence[SideBySide]) -> str:
    each = ", ".join(f"{tenant.name} {tenant.low:.2f}x to {tenant.high:.2f}x" for tenant in side_by_side)
    return f"modelled bound: {each}; contention for memory and caches is not in it and comes on top"
