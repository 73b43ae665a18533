"""Which time slice fits a wanted latency, and what does it cost?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.options import full_switch, observed_slicing
from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS
from pyanalyze.results.advice import Advice
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyanalyze.analysis.advice.options import FullSwitch
    from pyanalyze.analysis.residency import DeviceResidency
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet

#: Values of ``nvidia-smi compute-policy --set-timeslice``; NVIDIA publishes no lengths for the last three.
POLICIES = {0: "default", 1: "short", 2: "medium", 3: "long"}
#: Default slices of an RTX 6000 Ada, an H100 and an H200 are so near to each other.
_LIKE_DEFAULT = 0.05
#: Switching overhead above which longer slices are worth naming.
NOTABLE_OVERHEAD = 0.01


@dataclass(frozen=True)
class SliceChoice:
    """The longest slice with which nobody waits longer than wanted.

    Attributes
    ----------
    slice_ns
        Its length; None where even no slice at all would do: switching alone takes longer.
    overhead
        Part of the time that switching takes with it (0 to 1).
    wait_ns
        Longest wait for a turn with it, all tenants busy.
    """

    slice_ns: int | None
    overhead: float | None
    wait_ns: int | None


def overhead(slice_ns: int, switch_ns: int) -> float:
    """Part of the time that goes into switches while several tenants are busy.

    Parameters
    ----------
    slice_ns
        Execution time of a slice.
    switch_ns
        From the end of one slice's execution to the begin of the next one's.

    Examples
    --------
    >>> round(overhead(1_900_000, 100_000), 3)
    0.05
    """
    return switch_ns / (slice_ns + switch_ns)


def longest_wait_ns(slice_ns: int, switch_ns: int, tenants: int) -> int:
    """Longest wait for a turn: one slice of each other tenant, and the switches around them.

    Examples
    --------
    >>> longest_wait_ns(2_000_000, 100_000, 3)
    4300000
    """
    return (tenants - 1) * slice_ns + tenants * switch_ns


def slice_for(latency_ns: int, switch_ns: int, tenants: int) -> SliceChoice:
    """Return the longest slice with which a wait for the turn is at most `latency_ns`.

    Parameters
    ----------
    latency_ns
        Wanted: a kernel of an idle tenant starts no later than this after its launch.
    switch_ns
        From the end of one slice's execution to the begin of the next one's.
    tenants
        How many tenants are time-sliced.

    Returns
    -------
    SliceChoice
        By arithmetic, not measured: round robin, everybody busy.

    Examples
    --------
    Two tenants, 2 ms wanted, 100 us a switch: (2000 - 200) / 1.

    >>> slice_for(2_000_000, 100_000, 2)
    SliceChoice(slice_ns=1800000, overhead=0.05263157894736842, wait_ns=2000000)
    >>> slice_for(150_000, 100_000, 2).slice_ns is None
    True
    """
    if tenants < 2:
        return SliceChoice(None, 0.0, 0)
    slice_ns = (latency_ns - tenants * switch_ns) // (tenants - 1)
    if slice_ns <= 0:
        return SliceChoice(None, None, None)
    return SliceChoice(slice_ns, overhead(slice_ns, switch_ns), longest_wait_ns(slice_ns, switch_ns, tenants))


def policy_for(slice_ns: int, now_ns: int) -> int:
    """Return the policy to try: shorter or longer than the present one, or none.

    Lengths of the policies are not published and differ by architecture and driver, so only the direction is known.

    Examples
    --------
    >>> [POLICIES[policy_for(wanted, 2_000_000)] for wanted in (500_000, 2_500_000, 9_000_000, 50_000_000)]
    ['short', 'default', 'medium', 'long']
    """
    if slice_ns < 0.8 * now_ns:
        return 1
    if slice_ns < 2 * now_ns:
        return 0
    return 2 if slice_ns < 10 * now_ns else 3


def _full_switch(switch: FullSwitch) -> str:
    """Name the parts of a full switch, and where they come from."""
    return (
        f"A full switch takes about {fmt.duration(switch.length_ns)}: a gap of {fmt.duration(switch.gap_ns)}, and "
        f"{fmt.duration(switch.state_ns)} to save and restore ({switch.known})"
    )


def _default_slice(time_slice_ns: int | None) -> bool:
    """Whether a length that many intervals have is that of the default policy: another one may be a tenant's rhythm."""
    return time_slice_ns is not None and abs(time_slice_ns / DEFAULT_SLICE_NS - 1) <= _LIKE_DEFAULT


def _longer_slices_save(resident: DeviceResidency | None, switch: FullSwitch) -> str:
    """What the switches take that longer slices might spare; empty: how intervals ended is not known.

    An interval that ended before its time slice did would end as early.
    """
    expired = [None] if resident is None or resident.basis != "observed" else [one.expired for one in resident.tenants]
    known = [n for n in expired if n is not None]
    if not known or len(known) < len(expired):
        return ""
    switches, saved_ns = fmt.counted(sum(known), "full switch", "full switches"), sum(known) * switch.length_ns
    of = ""
    if resident is not None and resident.start_ns is not None and resident.end_ns is not None:
        whole_ns = resident.end_ns - resident.start_ns
        of = f", {fmt.percent(saved_ns / whole_ns)} of the window of {fmt.duration(whole_ns)}" if whole_ns else ""
    return (
        f"{fmt.duration(saved_ns)}{of}: {switches} of {fmt.duration(switch.length_ns)}"
        f"{' (assumed)' if switch.assumed else ''} after intervals that used up their time slice"
    )


def time_slices(
    tables: TableSet, verdict: Verdict, latency_ns: int | None, resident: DeviceResidency | None, tenants: int
) -> Iterator[Advice]:
    """Advise on the length of time slices: for a wanted latency, or where switches take a notable part of the time."""
    traits = TRAITS[verdict.mode]
    # A virtual machine's slices are set on its host, by other means.
    if not traits.time_sliced or traits.vgpu or tenants < 2:
        return
    seen, switch = observed_slicing(tables, verdict.device_id), full_switch(tables, verdict.device_id)
    if seen is None or switch is None:
        return
    slice_ns, switch_ns = seen
    if slice_ns is None and latency_ns is not None and resident is not None and _default_slice(resident.time_slice_ns):
        # Nothing shows who had work left when an interval ended: by their lengths alone, as residency has it.
        slice_ns = max((resident.time_slice_ns or 0) - switch.state_ns, 1)
    if slice_ns is None:
        if latency_ns is not None:
            yield Advice(
                action=f"Record while all tenants are busy: whether waits stay below {fmt.duration(latency_ns)} is not "
                "known",
                commands=[],
                expected=None,
                bound=None,
                why="intervals of this capture do not show how long a time slice is: too few of one length ended while "
                "their tenant had work",
                undo=None,
            )
        return
    if resident is not None and resident.basis == "observed":
        # Clients of one MPS server have one context.
        tenants = max(sum(one.slices > 0 for one in resident.tenants), 2)
    cost, wait_ns = overhead(slice_ns, switch_ns), longest_wait_ns(slice_ns, switch_ns, tenants)
    everyone = "both" if tenants == 2 else f"all {tenants}"
    now = (
        f"{_full_switch(switch)}. Kernels execute for {fmt.duration(slice_ns)} of a time slice. While {everyone} use "
        f"up their slices, full switches take {fmt.percent(cost)} of the time. A kernel that is switched out then "
        f"waits up to about {fmt.duration(wait_ns)} (calculated: {tenants - 1} x {fmt.duration(slice_ns)} and "
        f"{tenants} full switches)"
    )
    undo = "nvidia-smi compute-policy --set-timeslice=0"
    unknown = "NVIDIA does not publish the lengths of its policies: pyanalyze residency reads them from a recording"
    if latency_ns is not None:
        choice = slice_for(latency_ns, switch_ns, tenants)
        if choice.slice_ns is None or choice.overhead is None:
            yield Advice(
                action=f"Use fewer tenants: no time slice gives waits below {fmt.duration(latency_ns)} for {tenants} "
                "tenants",
                commands=[],
                expected=None,
                bound=f"{tenants} full switches of {fmt.duration(switch_ns)} alone take longer",
                why=now,
                undo=None,
                wrong_if="a capture shows cheaper switches",
            )
            return
        if wait_ns <= latency_ns:
            yield Advice(
                action=f"Keep the time slices for waits below {fmt.duration(latency_ns)}: they are at most about "
                f"{fmt.duration(wait_ns)}",
                commands=[],
                expected=None,
                bound="round robin with all tenants busy; a kernel that cannot be preempted waits longer",
                why=f"{now}. With slices of {fmt.duration(choice.slice_ns)} waits would still be as short, and full "
                f"switches take {fmt.percent(choice.overhead)} of the time",
                undo=None,
                wrong_if="more tenants share the GPU",
            )
            return
        policy = policy_for(choice.slice_ns, slice_ns)
        yield Advice(
            action=f"Set time slices of at most {fmt.duration(choice.slice_ns)} for waits below "
            f"{fmt.duration(latency_ns)}: policy {POLICIES[policy]}",
            commands=[
                f"nvidia-smi compute-policy --set-timeslice={policy}   # as root, all GPUs, until the driver reloads"
            ],
            expected=f"calculated: context switches then take {fmt.percent(choice.overhead)} of the time",
            bound="round robin with all tenants busy; a kernel that cannot be preempted waits longer",
            why=f"{now}. {unknown}",
            undo=undo,
            exclusive=True,
            check_after=f"time slices recorded under the policy are at most {fmt.duration(choice.slice_ns)} long",
        )
    elif cost >= NOTABLE_OVERHEAD:
        yield Advice(
            action="Use longer time slices only if throughput matters and latency does not",
            commands=[
                "nvidia-smi compute-policy --set-timeslice=3   # long; as root, all GPUs, until the driver is reloaded"
            ],
            expected=None,
            bound=_longer_slices_save(resident, switch)
            or f"{fmt.percent(cost)} of the time while {everyone} are busy: the full switches of whole time slices"
            f"{', of the assumed length' if switch.assumed else ''}",
            why=f"longer time slices need fewer switches, but kernels wait longer. {now}. {unknown}",
            undo=undo,
            exclusive=True,
            check_after="recorded time slices are longer, and latencies are still short enough",
        )
