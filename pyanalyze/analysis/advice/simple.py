"""Advice that follows from the verdict and the slices alone: bounds, before anything is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.results.advice import Advice
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyanalyze.analysis.sharing import Verdict


@dataclass(frozen=True)
class Held:
    """What advice needs to know of a tenant.

    Attributes
    ----------
    tenant_id, name, host_pid
        Who.
    traced
        nsys recorded its work.
    resident_share
        Its part of all residency; None without switch records.
    stretched
        Its busy time over that in which it held the engine: what switching out cost at most; None where not known.
    """

    tenant_id: int
    name: str
    host_pid: int | None
    traced: bool
    resident_share: float | None
    stretched: float | None


def record_first(verdict: Verdict) -> Iterator[Advice]:
    """Say what to record where the mode is not known.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> next(record_first(verdict)).action
    'Record what decides before changing anything'
    """
    commands = list(dict.fromkeys(gap.how for gap in verdict.missing if gap.how))
    if commands:
        yield Advice(
            action="Record what decides before changing anything",
            commands=commands[:3],
            expected=None,
            bound=None,
            why=f"the sharing mode is not known (nearest: {verdict.rivals[0].mode if verdict.rivals else 'none'})",
            undo=None,
        )


def unknown_tenants(tenants: Sequence[Held]) -> Iterator[Advice]:
    """Ask whose the processes are that held the engine and were not traced.

    Examples
    --------
    >>> mine, other = Held(0, "app", 7, True, 0.6, None), Held(1, "stranger", 8, False, 0.4, None)
    >>> next(unknown_tenants([mine, other])).action
    'Find out whose process 8 (stranger) is'
    """
    if not any(tenant.traced for tenant in tenants):
        return  # a node capture traces nobody: there is no stranger among strangers
    for tenant in tenants:
        # An MPS server holds the engine for its clients.
        if tenant.name.startswith("nvidia-cuda-mps"):
            continue
        if not tenant.traced and (tenant.resident_share or 0) >= 0.05 and tenant.host_pid:
            yield Advice(
                action=f"Find out whose process {tenant.host_pid} ({tenant.name}) is",
                commands=[f"ps -o pid,user,lstart,cmd -p {tenant.host_pid}", f"cat /proc/{tenant.host_pid}/cgroup"],
                expected=None,
                bound=f"it held the engine for {100 * (tenant.resident_share or 0):.0f} % of the time that anybody did",
                why="nsys did not trace it; only the driver's switch records show it",
                undo=None,
            )


def simple_bounds(
    verdict: Verdict, tenants: Iterable[Held], device: Mapping[str, object], why_not: str | None
) -> Iterator[Advice]:
    """What can be said without a replay, and why there was none.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> list(simple_bounds(verdict, [], {"compute_major": 8}, "nobody was traced"))
    []
    """
    worst = max((t.stretched for t in tenants if t.stretched is not None), default=None)
    major = device["compute_major"]
    traits = TRAITS[verdict.mode]
    # In a MIG instance and in a virtual machine MPS is another set-up, or none.
    whole_gpu = not (traits.mig_instance or traits.vgpu)
    if not (traits.time_sliced and whole_gpu) or not isinstance(major, int) or major < 7:
        return
    because = "" if why_not is None else f" What it would give cannot be replayed: {why_not}."
    yield Advice(
        action="Let the tenants run side by side under MPS instead of in turns",
        commands=["nvidia-cuda-mps-control -d   # as the user that runs the workloads, before they start"],
        expected=None,
        bound=None
        if worst is None
        else f"at most what switching out took comes back: kernels stretched {worst:.2f}x, and waits before they "
        "started; contention may take part of it",
        why=f"they took turns on the engine; side by side they share the SMs.{because} A fault of one MPS client "
        "reaches the others",
        undo="echo quit | nvidia-cuda-mps-control",
        wrong_if="a tenant that fills the SMs is slower beside the others than in turns with them",
    )
