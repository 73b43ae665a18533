"""One traced process: did anybody else delay or interrupt its kernels?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.evidence.made import from_fact
from pyanalyze.analysis.sharing.evidence.process_lists import is_windows
from pyanalyze.analysis.sharing.facts import MANY, Case, Fact, Observation
from pyanalyze.analysis.sharing.observations import INFLATED
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def observations(case: Case) -> Iterable[Observation]:
    """Make those of this module."""
    traced = case.facts.get("traced_tenants")
    # Without process ids the number of processes is not known: that is no evidence of one, nor of several.
    if not case.pids_known:
        return
    if traced is not None and traced.value == 1:
        yield from_fact(case, "traced_tenants", "one_traced_tenant", "nsys traced CUDA work of one process")
    elif traced is not None and traced.value is not None and traced.value > 1:
        yield from_fact(
            case,
            "traced_tenants",
            "several_traced_tenants",
            f"nsys traced CUDA work of {traced.value:.0f} processes",
        )
    # The activity of another traced tenant is known: undisturbed kernels prove nothing about it.
    sole = traced is not None and (traced.value or 0) < MANY
    prompt = case.facts.get("prompt_start_share")
    # Where another tenant delays starts, it is there whatever else shows: its work is too short to inflate kernels.
    delayed = sole and _delayed(case)
    if sole and not delayed and prompt is not None and prompt.value is not None and starts_promptly(case.facts):
        yield from_fact(
            case,
            "prompt_start_share",
            "prompt_starts",
            f"{fmt.percent(prompt.value)} of {prompt.n} kernels after a copy of 50 us or more in their stream "
            "started within 0.1 ms; another busy tenant would have delayed them",
        )
    if sole:
        yield from _idle_starts(case)
    exposure = case.fact("preemption_exposure")
    inflated = case.facts.get("inflated_share")
    if exposure is None or inflated is None or inflated.value is None:
        return
    # A rarely active tenant interrupts few of many kernels: so many at all are no accident.
    interrupted = case.facts.get("inflation_ns")
    visited = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    unbroken = case.fact("unbroken_exposure")
    deviating = case.facts.get("deviating_share")
    stable = sole and not delayed and durations_stable(case.facts)
    if stable and unbroken is not None and deviating is not None:
        yield from_fact(
            case,
            "deviating_share",
            "kernel_durations_stable",
            f"durations are stable: {fmt.percent(deviating.value)} of {deviating.n} repeated launches (same kernel, "
            "grid and block) took over 0.8 ms more or less than their median; in its busy stretches (no pause of "
            f"50 us) another busy tenant would have had {unbroken:.0f} time slices (2.1 ms each, assumed)",
        )
    elif exposure >= t.MIN_EXPOSURE and inflated.n >= t.MIN_REPEATS and inflated.value >= t.MIN_INFLATED_SHARE:
        yield from_fact(
            case,
            "inflated_share",
            "kernel_durations_inflated",
            f"{fmt.percent(inflated.value)} of {inflated.n} repeated kernels {INFLATED}",
        )
        yield from _slices(case)
    elif exposure >= t.MIN_EXPOSURE and visited and interrupted is not None:
        yield from_fact(
            case,
            "inflation_ns",
            "interrupted_kernels",
            f"at least {interrupted.n} of {inflated.n} repeated kernels were interrupted: they {INFLATED}",
        )
        yield from _slices(case)


def starts_promptly(facts: Mapping[str, Fact]) -> bool:
    """Whether kernels behind copies started at once, often enough to say that no busy tenant was there.

    Examples
    --------
    >>> starts_promptly({"prompt_start_share": Fact(1.0, "1", 50, "observed", "")}), starts_promptly({})
    (True, False)
    """
    prompt = facts.get("prompt_start_share")
    if prompt is None or prompt.value is None:
        return False
    return prompt.n >= t.MIN_PROMPT_STARTS and prompt.value >= t.MIN_PROMPT_START_SHARE


def durations_stable(facts: Mapping[str, Fact]) -> bool:
    """Whether repeated kernels were not interrupted, in enough work to say that no busy tenant was there.

    Examples
    --------
    >>> durations_stable({})
    False
    """
    deviating, interrupted = facts.get("deviating_share"), facts.get("inflation_ns")
    # A tenant that pauses before its time slice ends yields the engine: its kernels are not inflated in any mode.
    unbroken = facts.get("unbroken_exposure")
    if deviating is None or deviating.value is None or unbroken is None:
        return False
    visited = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    quiet = deviating.n >= t.MIN_REPEATS and deviating.value <= t.MAX_STABLE_SHARE and not visited
    # Of short kernels few are cut, in however many slices.
    uncut = deviating.value * deviating.n <= t.MAX_CUT_SHARE * (unbroken.value or 0)
    return (unbroken.value or 0) >= t.MIN_EXPOSURE and quiet and uncut


def _delayed(case: Case) -> bool:
    """Whether a notable part of the kernels that an idle process launched waited for something that is not its own."""
    share, delay = case.facts.get("idle_start_delayed_share"), case.facts.get("idle_start_delay_ns")
    if share is None or share.value is None or delay is None:
        return False
    # On Windows launches are batched, which delays them by milliseconds.
    windows = is_windows(case) is not None or any(".exe" in name.lower() for name in case.tenants)
    return delay.n >= t.MIN_SLICE_WAITS and share.value >= t.MIN_DELAYED_SHARE and not windows


def _slices(case: Case) -> Iterable[Observation]:
    """By how much kernels are inflated: time slices of another tenant add the same to kernels of any length."""
    excess, spread = case.facts.get("inflation_ns"), case.fact("inflation_spread")
    if excess is None or excess.value is None or spread is None or excess.n < t.MIN_INFLATED:
        return
    low, high = t.DEFAULT_SLICE_EXCESS_NS
    adds = spread * t.MIN_RATIO_TO_EXCESS_SPREAD <= (case.fact("inflation_ratio_spread") or 0)
    if (
        spread <= t.MAX_SLICE_SPREAD
        and excess.value <= t.LONGEST_SLICE_NS * MANY
        and (adds or low <= excess.value <= high)
    ):
        yield from_fact(
            case,
            "inflation_ns",
            "kernel_durations_inflated_by_slices",
            f"{excess.n} kernels were delayed by the same {fmt.duration(excess.value)} (within "
            f"{fmt.percent(spread, 0)}): "
            "consistent with time slices of another process",
        )


def _idle_starts(case: Case) -> Iterable[Observation]:
    """How long kernels waited that were launched while their process had nothing on the device."""
    if not _delayed(case):
        # What says already that no busy tenant was there is not said twice.
        if not starts_promptly(case.facts) and not durations_stable(case.facts):
            yield from _prompt_launches(case)
        return
    launches, delay = case.facts["idle_start_delayed_share"].n, case.facts["idle_start_delay_ns"]
    wait, spread = case.facts.get("idle_start_wait_ns"), case.fact("idle_start_wait_spread")
    low, high = t.DEFAULT_SLICE_EXCESS_NS
    if (
        wait is not None
        and wait.value is not None
        and spread is not None
        and spread <= t.MAX_SLICE_SPREAD
        and wait.n >= max(t.MIN_SLICE_WAITS, t.MIN_DELAYED_SHARE * launches)
        and any(low <= wait.value / n <= high for n in range(1, t.MOST_SLICES_WAITED + 1))
    ):
        factor = case.fact("idle_start_latency_factor") or 1.0
        yield from_fact(
            case,
            "idle_start_wait_ns",
            "waits_of_time_slices",
            f"{wait.n} of {launches} kernels that were launched while their process had no work on the GPU waited the "
            f"same {fmt.duration(wait.value)} (within {fmt.percent(spread, 0)}), which made their latency "
            f"{fmt.ratio(factor)}: consistent with time slices of an untraced process",
        )
    else:
        yield from_fact(
            case,
            "idle_start_delayed_share",
            "idle_starts_delayed",
            f"{delay.n} of {launches} kernels that were launched while their process had no work on the GPU waited "
            f"0.1 ms or more (median {fmt.duration(delay.value or 0.0)}): work of an untraced process was in their way",
        )


def _prompt_launches(case: Case) -> Iterable[Observation]:
    """Launches onto an idle process that started at once; soon after its own work they say less than later."""
    for name, observation, when in (
        ("idle_start", "idle_starts_prompt", "0.1 ms or more after"),
        ("soon_start", "soon_starts_prompt", "less than 0.1 ms after"),
    ):
        prompt, periods = case.facts.get(f"{name}_prompt_share"), case.fact(f"{name}_exposure")
        if prompt is None or prompt.value is None or periods is None:
            continue
        if prompt.value >= t.MIN_PROMPT_START_SHARE and periods >= t.MIN_EXPOSURE:
            yield from_fact(
                case,
                f"{name}_prompt_share",
                observation,
                f"{fmt.percent(prompt.value)} of {prompt.n} kernels that were launched {when} their process had work "
                f"on the GPU started within 0.1 ms, spread over {periods:.0f} lengths of a time slice",
            )
            return
