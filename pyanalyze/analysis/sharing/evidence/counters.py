"""Counters and utilisation sampled while no traced kernel ran."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.evidence.made import from_fact
from pyanalyze.analysis.sharing.facts import MANY, Case, Observation
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable


def observations(case: Case) -> Iterable[Observation]:
    """Make those of this module."""
    yield from _counters(case)
    yield from _utilization(case)


def _counters(case: Case) -> Iterable[Observation]:
    outside = case.facts.get("metric_outside_pct")
    # Without process ids those that were traced may be several.
    if not case.pids_known:
        return
    if outside is None or outside.value is None or outside.n < t.MIN_COUNTER_SAMPLES:
        return
    # That nobody else worked says nothing of how several traced processes shared the GPU.
    alone = (case.fact("traced_tenants") or 0) < MANY
    mean = f"mean of {outside.n} samples {_of_time(case)}"
    untraced = case.fact("busy_ns") == 0
    when = f"({mean}), and no kernel was traced" if untraced else f"while no traced kernel ran ({mean})"
    if outside.value <= t.MAX_QUIET_SM_ACTIVE_PCT and alone:
        yield from_fact(
            case,
            "metric_outside_pct",
            "sm_idle_outside_traced_kernels",
            # Copies keep no SM active.
            f"SM activity was {outside.value:.2f} % {when}: no {'' if untraced else 'other '}process ran a kernel",
        )
    elif outside.value >= t.MIN_LOUD_SM_ACTIVE_PCT:
        # Where nothing is traced it is so in every mode.
        when += ", which tells no mode from another" if case.nothing_traced else ""
        whose = "an untraced" if untraced else "another"
        seen = from_fact(
            case,
            "metric_outside_pct",
            "sm_active_outside_traced_kernels",
            f"SM activity was {outside.value:.1f} % {when}: this is {whose} process, or work that CUPTI does not "
            "record",
        )
        yield replace(seen, tells=not case.nothing_traced)


def _of_time(case: Case) -> str:
    """Of which time the samples are: of an export that lacks most of them, how much of the recording they cover."""
    if case.counters_cover is None:
        return f"of {case.scope}"
    covered_ns, recorded_ns = case.counters_cover
    share = fmt.percent(covered_ns / recorded_ns)
    return f"over {fmt.duration(covered_ns)}, {share} of the recording: the export lacks the others"


def _utilization(case: Case) -> Iterable[Observation]:
    """The driver counted kernels for far more of the time than traced ones ran."""
    lowest, traced = case.facts.get("utilization_pct"), case.fact("utilization_traced_pct")
    if lowest is None or lowest.value is None or traced is None or not case.pids_known:
        return
    if lowest.n >= t.MIN_UTILIZATION_SAMPLES and lowest.value - traced >= t.MIN_UTILIZATION_EXCESS_PCT:
        yield from_fact(
            case,
            "utilization_pct",
            "utilization_above_traced",
            f"GPU utilisation was at least {lowest.value:.0f} % in {lowest.n} samples, and traced kernels explain at "
            f"most {traced:.0f} %: this is another process, or work that CUPTI does not record",
        )
