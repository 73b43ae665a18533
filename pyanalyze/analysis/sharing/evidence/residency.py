"""Switch records, and where there are none, interruptions: who was resident beside whom?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.evidence.made import from_fact, plain
from pyanalyze.analysis.sharing.evidence.settings import mps_server
from pyanalyze.analysis.sharing.facts import MANY, Case, Observation, Pair
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable


def observations(case: Case) -> Iterable[Observation]:
    """Make those of this module."""
    yield from _residency(case)
    yield from _interrupted_group(case)
    yield from _uninterrupted(case)
    yield from _turns(case)


def _residency(case: Case) -> Iterable[Observation]:
    switches = case.fact("switches_between_tenants")
    share = case.fact("alternation_share")
    # Contexts of processes that never had work at the same time alternate too, in every mode: with pauses, or with
    # residency intervals far longer than any time slice.
    met = case.fact("co_busy_share")
    met_enough = (case.fact("traced_tenants") or 0) < MANY or met is None or met >= t.MIN_CO_BUSY_SHARE
    strangers = (case.fact("resident_share_untraced") or 0) >= 1 - t.SOLE_RESIDENT_SHARE
    # The mean, not the median: a context is resident now and then for a moment while it is created.
    short_slices = (case.fact("window_ns") or 0) <= (switches or 0) * t.LONGEST_SLICE_NS
    often = (switches or 0) >= t.MIN_ALTERNATIONS and (share or 0) >= t.MIN_ALTERNATION_SHARE
    alternate = often and (met_enough or strangers or short_slices)
    inside = case.facts.get("kernels_in_preemption")
    # Where contexts alternate often that says the same already.
    if inside is not None and inside.value and not alternate:
        yield from_fact(
            case,
            "kernels_in_preemption",
            "kernel_ran_in_preemption",
            f"{fmt.counted(int(inside.value), 'kernel')} of one tenant ran while another tenant's kernel was in flight "
            "and its context switched out",
        )
    # An MPS group and another process: their contexts alternate, and the clients run concurrently.
    if alternate and any(pair.together for pair in case.pairs) and _outsider(case):
        yield from_fact(
            case,
            "switches_between_tenants",
            "mps_group_time_sliced",
            f"{switches:.0f} context switches, while some tenants ran concurrently: an MPS group is time-sliced with "
            "another process",
        )
    elif alternate and len(case.listed_clients) >= MANY and case.group_switches is not None and _outsider(case):
        # Records name any client for the context of all: switches from one client to another are none, and no query of
        # the export tells them apart.
        same = switches == case.group_switches
        found = from_fact(
            case,
            "switches_between_tenants",
            "mps_group_time_sliced",
            f"{case.group_switches} context switches between MPS clients, as NVML lists "
            f"{' and '.join(case.listed_clients)}, and processes that are none",
        )
        value = float(case.group_switches)
        yield replace(found, value=value, n=case.group_switches, basis="inferred", sql=found.sql if same else None)
    elif alternate and case.group_switches is not None and mostly_together(case):
        # Others alternated before the group came, or after it: the mode changed. Named is that of most of the time.
        group_ns = sum(pair.co_busy_ns for pair in case.pairs if pair.together)
        yield plain(
            "group_without_switches",
            f"some tenants were busy at once for {fmt.duration(group_ns)} without context switches between them; "
            "others alternated at other times",
            "inferred",
            float(group_ns),
            "ns",
        )
    elif alternate:
        slice_ns = case.fact("median_slice_ns")
        alike = slice_ns is not None and case.unlike_medians is None
        length = f", median residency interval {fmt.duration(slice_ns)}" if alike else ""
        yield from_fact(
            case,
            "switches_between_tenants",
            "contexts_alternate",
            f"contexts of different tenants alternated on the engine: {switches:.0f} context switches{length}",
        )
    top = case.facts.get("resident_share_top")
    # During the time slice of one of several tenants, it is the only resident one.
    could_alternate = not case.fact("co_busy_ns") or (case.fact("window_ns") or 0) > t.LONGEST_SLICE_NS
    held = None if top is None or top.n < t.MIN_SLICES else top.value
    # Of the clients of one MPS server the records name one (seen on an H100, driver 580): that the others
    # worked all the same speaks for MPS, and is said below.
    one_context = any(pair.one_context for pair in case.pairs)
    unnamed = (met or 0) >= t.MIN_CO_BUSY_SHARE or one_context
    if held is not None and held >= t.SOLE_RESIDENT_SHARE and could_alternate and not alternate and not unnamed:
        yield from_fact(
            case,
            "resident_share_top",
            "sole_resident",
            f"one tenant accounts for {fmt.percent(held)} of the resident time in {case.scope}",
        )
    untraced = case.fact("resident_share_untraced")
    if untraced is not None and untraced >= 1 - t.SOLE_RESIDENT_SHARE:
        detail = f"untraced processes account for {fmt.percent(untraced)} of the resident time in {case.scope}"
        if case.nothing_traced:
            detail += ": no work was traced, so this tells no mode from another"
        seen = from_fact(case, "resident_share_untraced", "untraced_resident", detail)
        yield replace(seen, tells=not case.nothing_traced)
    if (
        met is not None
        and met >= t.MIN_CO_BUSY_SHARE
        and switches is not None
        and switches < t.MIN_ALTERNATIONS
        and (case.fact("switch_records") or 0) > 0
        # In a short window there are few switches under time-slicing, too.
        and (case.fact("co_busy_ns") or 0) > (switches + 1) * t.LONGEST_SLICE_NS
    ):
        yield from_fact(
            case,
            "co_busy_share",
            "busy_without_switches",
            f"several tenants were busy at once for {fmt.percent(met)} of the busy time, with "
            f"{fmt.counted(int(switches), 'context switch', 'context switches') if switches else 'no context switch'} "
            "between them",
        )
    elif one_context and not case.records_lost:
        yield from_fact(
            case,
            "resident_share_top",
            "several_in_one_context",
            "kernels of several processes ran while the only context in the switch records was resident: records name "
            "one MPS client for the context of all",
        )


def _outsider(case: Case) -> bool:
    """Whether a tenant outside of the MPS group was time-sliced with it."""
    if case.group_switches is not None:
        # A few are those of contexts that come and go while others alternate.
        least = t.MIN_GROUP_SWITCH_SHARE * (case.fact("switches_between_tenants") or 0)
        return case.group_switches >= max(t.MIN_ALTERNATIONS, least)
    return (case.fact("resident_share_untraced") or 0) > 0 or any(not pair.together for pair in case.pairs)


def _interrupted_group(case: Case) -> Iterable[Observation]:
    """An MPS group beside another process, without switch records: kernels were switched out, but too seldom.

    Time slices of two tenants that both have work in flight interrupt a kernel each. Where fewer kernels were
    interrupted than that, and by one and the same time, most of the pair's work ran concurrently.
    """
    if case.fact("switch_records"):
        return
    beside = _sliced_with_group(case)
    if beside:
        kernels = sum(pair.changes + pair.short_kernels for pair in beside)
        yield Observation(
            "mps_group_time_sliced",
            float(kernels),
            "kernels",
            kernels,
            "inferred",
            "some processes ran concurrently, and their kernels waited for time slices of another process: an MPS "
            "group is time-sliced with it",
            n_of="kernels",
        )
        return
    excess, spread = case.facts.get("inflation_ns"), case.fact("inflation_spread")
    if excess is None or not excess.value or spread is None:
        return
    longest = max((pair.co_busy_ns for pair in case.pairs), default=0)
    due = longest / excess.value
    repeated = (case.fact("repeats") or 0) >= t.MIN_REPEATED_SHARE * (case.fact("kernels") or 0)
    if (
        t.MIN_INFLATED <= excess.n <= t.MAX_INTERRUPTED_SHARE * due
        and spread <= t.MAX_SLICE_SPREAD
        and t.DEFAULT_SLICE_EXCESS_NS[0] <= excess.value <= t.LONGEST_SLICE_NS
        and repeated
        and (mps_server(case) or any(pair.together for pair in case.pairs))
    ):
        yield from_fact(
            case,
            "inflation_ns",
            "mps_group_interrupted",
            f"{excess.n} kernels were switched out for the same {fmt.duration(excess.value)}, but time slices of two "
            f"tenants that were busy at once for {fmt.duration(longest)} would have interrupted {due:.0f}: an MPS "
            "group beside another process",
        )


def _sliced_with_group(case: Case) -> list[Pair]:
    """Find certainly time-sliced pairs of one tenant that ran concurrently with a third, and one that did not."""
    group = {tenant for pair in case.pairs if pair.together for tenant in pair.tenants}
    return [pair for pair in case.pairs if pair.sliced and len(group.intersection(pair.tenants)) == 1]


#: Compute capabilities of boards that MIG can partition (MIG user guide, supported GPUs): A100 and A30, H100 and
#: H200, B200 and B300, RTX PRO Blackwell. No GeForce is among them.
_WITH_MIG = frozenset({(8, 0), (9, 0), (10, 0), (10, 3), (12, 0)})


def may_be_instances(case: Case) -> bool:
    """Whether MIG could partition the board.

    Examples
    --------
    >>> may_be_instances(Case(0, "Tesla P100-PCIE-16GB", None, None, None, (6, 0), 56, {}, (), {}, ("app",)))
    False
    """
    if case.compute_capability is not None and case.compute_capability not in _WITH_MIG:
        return False
    return "geforce" not in (case.name or "").lower()


def _uninterrupted(case: Case) -> Iterable[Observation]:
    """Kernels of several tenants were in flight at once for many time slices, and none was switched out.

    Instances of one board do the same where the export names the board.
    """
    inflated = case.facts.get("inflated_share")
    if inflated is None or inflated.value is None or case.fact("switch_records") or may_be_instances(case):
        return
    longest = max((pair.co_busy_ns for pair in case.pairs), default=0)
    due = longest / DEFAULT_SLICE_NS
    interrupted = inflated.value * inflated.n
    # Of kernels that are each interrupted none is longer than the others.
    short = inflated.n >= t.MIN_KERNELS_TO_SLICES * due
    repeated = inflated.n >= t.MIN_REPEATED_SHARE * (case.fact("kernels") or 0)
    most = min(t.MAX_UNINTERRUPTED_SHARE * due, longest / (2 * t.LONGEST_SLICE_NS))
    if due >= t.MIN_SLICES_DUE and short and repeated and interrupted <= most:
        yield from_fact(
            case,
            "inflated_share",
            "uninterrupted_together",
            f"{interrupted:.0f} of {inflated.n} repeated kernels were interrupted, but time slices of two tenants that "
            f"were busy at once for {fmt.duration(longest)} would have interrupted {due:.0f}",
            "co_busy_ns",
        )


def mostly_together(case: Case) -> bool:
    """Whether pairs that were resident together were busy at once for longer than the others."""
    together = sum(pair.co_busy_ns for pair in case.pairs if pair.together)
    return together > sum(pair.co_busy_ns for pair in case.pairs if not pair.together)


def _turns(case: Case) -> Iterable[Observation]:
    """Processes that had the device in turn, for longer than any time slice, and never had work at the same time."""
    turn, pause = case.facts.get("turn_ns"), case.fact("turn_pause_share")
    if turn is None or turn.value is None or pause is None:
        return
    if turn.n >= t.MIN_TURNS and turn.value > t.LONGEST_SLICE_NS and pause <= t.MAX_TURN_PAUSE_SHARE:
        yield from_fact(
            case,
            "turn_ns",
            "turns_in_software",
            f"the processes had the GPU in turn, {turn.n} times for {fmt.duration(turn.value)} (median), and never had "
            "kernels in flight at the same time: software keeps them apart (a scheduler, a lock, or one waits for the "
            "other)",
        )
