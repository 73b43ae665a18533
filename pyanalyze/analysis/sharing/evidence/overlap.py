"""Kernels of several streams and processes: did they run at once, and did they leave room for each other?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.evidence.made import from_fact, plain, query_of
from pyanalyze.analysis.sharing.evidence.residency import mostly_together
from pyanalyze.analysis.sharing.facts import MANY, Case, Observation
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyanalyze.vocabulary import Basis


def observations(case: Case) -> Iterable[Observation]:
    """Make those of this module."""
    yield from _streams(case)
    yield from _short_kernels(case)
    yield from _changes(case)
    yield from _co_residency(case)


def _streams(case: Case) -> Iterable[Observation]:
    share = case.fact("stream_overlap_share")
    # Streams of several processes have the same numbers.
    if share is None or not case.pids_known:
        return
    if share >= t.MIN_STREAM_OVERLAP_SHARE:
        yield from_fact(
            case,
            "stream_overlap_share",
            "streams_overlap",
            f"kernels of several streams of one process ran concurrently for {fmt.percent(share)} of its busy time",
        )
    elif share <= t.MAX_TAIL_OVERLAP_SHARE:
        streams = case.fact("streams_used") or 0
        yield from_fact(
            case,
            "stream_overlap_share",
            "streams_apart",
            f"streams in use: {streams:.0f}; they overlap for {fmt.percent(share)} of the busy time",
            "stream_changes" if streams >= MANY else "busy_ns",
        )


def _short_kernels(case: Case) -> Iterable[Observation]:
    share = case.facts.get("short_overlap_share")
    if share is None or share.value is None or share.n < t.MIN_SHORT_KERNELS:
        return
    # A clock that is wrong by as much as a short kernel lasts lets them meet by chance, but never keeps them apart.
    precise = all(pair.precise for pair in case.pairs)
    if share.value >= t.MIN_SHORT_OVERLAP_SHARE and precise and (mostly_together(case) or not case.pairs):
        yield from_fact(
            case,
            "short_overlap_share",
            "short_kernels_overlap",
            f"short kernels of different tenants ran concurrently: {fmt.percent(share.value)} of the "
            f"{fmt.count(share.n)} that could meet work of another tenant did",
        )
    elif any(pair.overfull for pair in case.pairs):
        yield plain(
            "short_kernels_overlap",
            "short kernels of different processes took more time than there was: many of them ran concurrently",
            "inferred",
        )
    elif (
        share.value <= t.MAX_EXCLUSION_SHARE
        and not _inside_stable(case)
        # Against residency intervals of a second every kernel is short.
        and (case.fact("median_slice_ns") or 0) <= t.LONGEST_SLICE_NS
        and (case.fact("short_overlap_expected") or 0) >= t.MIN_EXPECTED_OVERLAP_SHARE
    ):
        yield from_fact(
            case,
            "short_overlap_share",
            "short_kernels_exclude",
            f"short kernels of different tenants hardly ever overlap: {fmt.percent(share.value)} of "
            f"{fmt.count(share.n)}, where {fmt.percent(case.fact('short_overlap_expected') or 0)} would by chance",
            "short_kernels_contended",
        )


def _changes(case: Case) -> Iterable[Observation]:
    """How soon kernels followed the last one of their tenant where another tenant had started one in between.

    That one is in flight: its tenant did not yield, so that under time-slicing it had the engine for a whole slice.
    """
    known = [pair for pair in case.pairs if pair.precise]
    changes, quick = sum(pair.changes for pair in known), sum(pair.quick_changes for pair in known)
    basis: Basis = "observed"
    if any(pair.quick for pair in known):
        name, n = "changes_within_slice", quick
        text = (
            f"{fmt.counted(n, 'kernel')} started within 0.8 ms of the last one of their process although another "
            "process's kernel had started in between: a time slice is longer"
        )
    elif not quick and any(pair.sliced and pair.quick_expected >= t.MIN_QUICK_CHANGES for pair in known):
        # That none did is no record of a time slice.
        name, n, basis = "changes_after_slice", changes, "inferred"
        text = (
            f"{fmt.counted(n, 'time', 'times')} another process's kernel started between two kernels of a process: "
            "these never started within 0.8 ms of each other; run concurrently, about "
            f"{sum(pair.quick_expected for pair in known):.0f} would have"
        )
    else:
        return
    examples = case.facts["co_busy_ns"].examples if "co_busy_ns" in case.facts else ()
    yield Observation(name, float(n), "kernels", changes, basis, text, query_of(case, name), examples, n_of="kernels")


def _inside_stable(case: Case) -> bool:
    """Whether short kernels mostly ran inside long kernels of the other tenant that kept their usual duration.

    Time-slicing inflates the kernels that it interrupts, so it did not keep the short ones from overlapping.
    """
    inflated = case.fact("inflated_share")
    if inflated is None or inflated > t.MAX_STABLE_SHARE:
        return False
    return any(pair.short_kernels and 2 * pair.short_inside > pair.short_kernels for pair in case.pairs)


def _co_residency(case: Case) -> Iterable[Observation]:
    """Whether kernels of several tenants were in flight that the SMs could not hold at once.

    A large kernel that was switched out is longer than usual by a time slice. One whose client is capped is not: it
    leaves SMs free all the time.
    """
    known = _crowded(case, "crowded_start_share")
    # Blocks of a stream of higher priority find room in any wave.
    unknown = _crowded(case, "crowded_start_share_unknown_priority")
    name = "crowded_start_share" if known is not None else "crowded_start_share_unknown_priority"
    share = known if known is not None else unknown
    if share is None or not all(pair.precise for pair in case.pairs):
        return
    if share >= t.MIN_CROWDED_SHARE:
        early = (
            f"{fmt.percent(share)} of {case.facts[name].n} kernels that started beside another tenant's large kernel "
            f"(3 waves or more{', same priority' if name == 'crowded_start_share' else ''}) did so over two waves "
            "before its end"
        )
        if any(pair.quick for pair in case.pairs) and not any(pair.sliced for pair in case.pairs):
            text = f"{early}, and none was switched out: it could not use all SMs"
            # Each process sees its own instance, and some exports show the board's UUID for each.
            apart = case.mig_profile is not None and not any(pair.quick and pair.one_capture for pair in case.pairs)
            yield from_fact(case, name, "instance_unknown" if apart else "sms_left_free", text)
        elif known is None:
            yield from_fact(case, name, "co_residency_unlikely", f"{early}; stream priorities are not known")
        elif _switched_out(case):
            yield from_fact(case, name, "co_residency_infeasible", f"{early}: it was switched out")
        else:
            text = f"{early}: it was switched out, or could not use all SMs"
            yield from_fact(case, name, "co_residency_doubtful", text)
    # A time slice of another tenant inside the wide kernel would inflate its waves.
    elif share <= t.MAX_PARTIAL_WAVE_SHARE and (case.fact("inflated_share") or 0) <= t.MAX_STABLE_SHARE:
        yield from_fact(
            case,
            name,
            "starts_in_partial_last_wave",
            f"{fmt.percent(1 - share)} of {case.facts[name].n} kernels that started beside another "
            "tenant's large kernel (3 waves or more) did so in its last two waves, as concurrent kernels do",
        )


def _switched_out(case: Case) -> bool:
    """Whether kernels show that time slices of another tenant interrupted them."""
    interrupted = case.facts.get("inflation_ns")
    several = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    return several or any(pair.sliced for pair in case.pairs)


def _crowded(case: Case, name: str) -> float | None:
    share = case.facts.get(name)
    return None if share is None or share.n < t.MIN_CROWDED_STARTS else share.value
