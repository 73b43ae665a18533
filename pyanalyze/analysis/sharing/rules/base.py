"""What a rule is: data that an expert can read and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing import thresholds as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.vocabulary import Mode


@dataclass(frozen=True)
class Rule:
    """How one sharing mode shows itself.

    ``weights`` maps the name of an observation to (log-likelihood ratio in nats, why): positive speaks for the
    mode, negative against it. What was not observed weighs nothing: absence of a record proves nothing.
    ``requires`` are observations without which the mode is not claimed at all; of ``requires_one_of`` one is enough.
    ``by_absence`` says that the mode is what is left where nobody else shows: it is inferred unless a record would have
    shown them.
    """

    mode: Mode
    shows: str
    looks_like: str
    weights: Mapping[str, tuple[float, str]]
    prior: float = 0.0
    requires: frozenset[str] = field(default_factory=frozenset)
    requires_one_of: frozenset[str] = field(default_factory=frozenset)
    by_absence: bool = False


#: What time slices leave behind in kernels, whatever device the tenants are time-sliced on.
TIME_SLICES: Mapping[str, tuple[float, str]] = {
    "kernel_durations_inflated_by_slices": (
        t.MODERATE,
        "a time slice of another tenant delays kernels of any length by the same time",
    ),
    "waits_of_time_slices": (
        t.STRONG,
        "kernels of an idle process wait for time slices only beside another tenant",
    ),
    "idle_starts_delayed": (
        t.MODERATE,
        "another tenant keeps kernels of an idle process waiting until it is switched out",
    ),
    "interrupted_kernels": (
        t.WEAK,
        "time slices of a rarely active tenant inflate the kernels that they interrupt",
    ),
    "co_residency_infeasible": (
        t.STRONG,
        "the SMs could not hold blocks of both, so one was switched out",
    ),
    "co_residency_unlikely": (t.MODERATE, "the SMs could hold blocks of both only by priority"),
    "co_residency_doubtful": (t.WEAK, "the larger kernel was switched out, unless a cap kept it from some SMs"),
    "changes_after_slice": (t.STRONG, "kernels of a tenant waited for time slices of another one"),
    "changes_within_slice": (-t.DECISIVE, "kernels of different tenants followed each other sooner than time slices"),
    "kernel_ran_in_preemption": (
        t.DECISIVE,
        "a kernel of one tenant was switched out while one of another ran in its place",
    ),
    "starts_in_partial_last_wave": (-t.MODERATE, "under time-slicing a kernel need not wait for SM resources"),
}
