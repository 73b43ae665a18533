"""Who was slowed, by how much, through what and by whom."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Number, Result, Text
from pyanalyze.vocabulary import SMALL_SHARE, Basis

__all__ = [
    "AddedLatency",
    "BaselineNotUsed",
    "Causes",
    "ContendedKernel",
    "Estimate",
    "ExecutionSplit",
    "HostFinding",
    "Interference",
    "LatencyPercentile",
    "MatrixCell",
    "NotCompared",
    "NotUsedReason",
    "SharingCause",
    "Slowdown",
    "SlowdownKind",
    "Throughput",
    "UnitsOfWork",
]

SlowdownKind = Literal["elapsed", "latency", "resident"]
#: Why a baseline was not used: it has no work in common with the tenant (or with any); it was recorded on another GPU
#: model; other tenants ran in it; other baselines fit as well, and their throughput differs.
NotUsedReason = Literal["no-common-work", "other-gpu-model", "not-solo", "ambiguous"]


class Estimate(Result):
    """A ratio with its 95 % interval, or with bounds where it is inferred."""

    value: Finite = Field(description="Shared over alone; 1 is no slowdown.")
    low: Number = Field(
        description="Lower end of the 95 % interval, or a lower bound where basis is inferred; null: not bounded."
    )
    high: Number = Field(
        description="Upper end of the 95 % interval, or an upper bound where basis is inferred; null: not bounded."
    )
    n: int = Field(ge=0, description="Units of work compared.")
    basis: Basis = Field(description="How it is known.")

    @property
    def from_below(self) -> bool:
        """Whether the value is itself the lower bound, without an upper one.

        Examples
        --------
        >>> Estimate(value=2.0, low=2.0, high=None, n=5, basis="inferred").from_below
        True
        """
        return self.low == self.value and self.high is None


class Slowdown(Result):
    """Ratios of the same work shared and solo, because they answer different questions."""

    elapsed: Estimate | None = Field(
        description="First launch to last end of the same work, shared over alone; without pauses of the program "
        "longer than both 20 ms and three times its usual pause."
    )
    latency: Estimate | None = Field(description="Sum of end minus launch over the same units, shared over alone.")
    latency_co_run: Estimate | None = Field(
        default=None,
        description="latency without the kernels during which no other tenant had work, from launch to end: they are "
        "as long solo. Null: fewer than 2 % of the kernels are, latency is not of the counterfactual replay, or not "
        "known.",
    )
    resident: Estimate | None = Field(
        description="Kernel time counted only while resident, and without what being switched out inside a kernel "
        "cost, shared over alone; 1 without an interval: assumed, because the counterfactual replay takes the recorded "
        "time."
    )

    @property
    def execution_assumed(self) -> bool:
        """Whether the execution of each kernel was taken as it was recorded, and not compared."""
        one = self.resident
        return one is not None and one.basis == "inferred" and (one.value, one.low, one.high) == (1, None, None)


class ExecutionSplit(Result):
    """Parts of the execution cause; fractions of the added latency."""

    sm_slots: Number = Field(description="SM slots taken by others.")
    memory: Number = Field(description="Memory bandwidth or cache.")
    # Plain `copy` would shadow a pydantic method.
    copy_: Number = Field(alias="copy", description="Copy engines.")
    clock: Number = Field(description="Lower clocks.")
    uvm: Number = Field(description="Unified memory faults and migrations.")
    unexplained: Number = Field(
        default=None, description="The rest: with the parts that are known it sums to `execution`."
    )

    def parts(self) -> dict[str, float | None]:
        """Parts with evidence of their own, by key of the contract: all but `unexplained`."""
        return {
            "sm_slots": self.sm_slots,
            "memory": self.memory,
            "copy": self.copy_,
            "clock": self.clock,
            "uvm": self.uvm,
        }


class Causes(Result):
    """Where the added latency went; fractions of it. Those that are known sum to 1, but for `queue_other`."""

    launch: Number = Field(description="The API call itself.")
    queue: Number = Field(description="Ready and resident, but behind its stream or another tenant's blocks.")
    not_resident: Number = Field(description="Waiting for its slice, before the start or inside the kernel.")
    switch: Number = Field(description="The switches themselves, and what they cost a kernel that they cut.")
    execution: Number = Field(description="Resident and slower.")
    unexplained: Number = Field(description="The rest.")
    execution_split: ExecutionSplit | None = Field(description="Parts of execution; null: cannot be split.")
    queue_other: Number = Field(default=None, description="Of queue, the part behind another tenant's blocks.")
    others: Number = Field(
        default=None,
        description="Waiting for others: queue, not_resident, switch and execution together, each of which is then "
        "null, because no record of residency tells them apart; null: told apart, or not known.",
    )


class AddedLatency(Result):
    """Latency that other tenants added to all kernels of a tenant, by whether a kernel had started.

    The three parts add up to `shared_ns` - `solo_ns`.
    """

    kernels: int = Field(ge=1, description="Kernels compared.")
    shared_ns: int = Field(ge=0, description="End minus launch, summed over them, ns.")
    solo_ns: int = Field(ge=0, description="The same in the replay without the other tenants, ns.")
    before_start_ns: int = Field(ge=0, description="Added before they started, ns.")
    switched_out_ns: int = Field(
        ge=0, description="While they were in flight, time in which their context was not resident, ns."
    )
    switched_out_kernels: int = Field(ge=0, description="Kernels with such time.")
    saving_ns: int = Field(
        ge=0, description="While they were in flight, time assumed to be saving and restoring, ns; 0: none is assumed."
    )

    @property
    def added_ns(self) -> int:
        """What was added, ns.

        Examples
        --------
        >>> AddedLatency(kernels=1, shared_ns=9, solo_ns=4, before_start_ns=3, switched_out_ns=2,
        ...     switched_out_kernels=1, saving_ns=0).added_ns
        5
        """
        return self.shared_ns - self.solo_ns

    @property
    def waited(self) -> bool:
        """Whether others added a time worth telling before kernels started.

        Examples
        --------
        >>> AddedLatency(kernels=1, shared_ns=900, solo_ns=895, before_start_ns=5, switched_out_ns=0,
        ...     switched_out_kernels=0, saving_ns=0).waited
        False
        """
        return self.before_start_ns >= SMALL_SHARE * self.shared_ns

    @property
    def mostly_before_start(self) -> bool:
        """Whether most of it was added before kernels started.

        Examples
        --------
        >>> AddedLatency(kernels=1, shared_ns=9, solo_ns=4, before_start_ns=3, switched_out_ns=2,
        ...     switched_out_kernels=1, saving_ns=0).mostly_before_start
        True
        """
        return 2 * self.before_start_ns > self.added_ns


class LatencyPercentile(Result):
    """One percentile of kernel latency, launch to end."""

    percentile: int = Field(ge=1, le=99, description="Such as 95.")
    shared_ns: int = Field(description="In the co-run, ns.")
    solo_ns: int = Field(description="Alone, ns.")
    ratio: Finite = Field(description="Shared over alone.")


class UnitsOfWork(Result):
    """Units of one name, from their begin to the end of their last operation."""

    name: Text = Field(description="Name of the NVTX ranges, or given units. Hostile text.")
    latency: Estimate = Field(description="Sum of their latencies, shared over alone.")
    latency_percentiles: list[LatencyPercentile] = Field(description="Percentiles of their latency.")
    latency_co_run: Estimate | None = Field(
        default=None,
        description="latency without the units during which no other tenant had work, from begin to end: they are as "
        "long solo. Null: fewer than 2 % of the units are, latency is not of the counterfactual replay, or not known.",
    )


class Throughput(Result):
    """Kernels and graph launches a second, over the time from first launch to last end, without long pauses.

    Of the launches that both runs have: against another co-run the same solo recording has another figure.
    """

    shared_per_s: Finite = Field(description="In the co-run.")
    solo_per_s: Finite = Field(description="Alone.")


class NotCompared(Result):
    """Kernels and graph launches of a tenant that its latency against a baseline leaves out, by reason."""

    kernels: int = Field(ge=1, description="Kernels and graph launches in all.")
    before_work: int = Field(ge=0, description="Launched before the pause after which its work begins.")
    no_like: int = Field(ge=0, description="The baseline has no kernel of that name and size.")
    launch: int = Field(
        ge=0,
        description="The profiler or the loading of code held their launch up, their launch call is not recorded, or "
        "the window cuts them or begins after their launch.",
    )


class HostFinding(Result):
    """Something outside of the GPU that makes a tenant slow."""

    tenant_id: int = Field(description="Tenant id.")
    what: Text = Field(description="blocked launches, slow launches, slower calls than solo, idle between launches.")
    detail: Text = Field(description="The evidence, in a sentence.")
    share: Finite = Field(description="Of the tenant's time.")


class BaselineNotUsed(Result):
    """A baseline that was given, and with which a tenant was not compared."""

    baseline: Text = Field(description="Name of the file.")
    reasons: list[NotUsedReason] = Field(
        min_length=1, description="no-common-work, other-gpu-model, not-solo, ambiguous: one or several."
    )
    detail: Text = Field(description="The same in a sentence.")


class MatrixCell(Result):
    """How much one tenant slowed another."""

    victim: int = Field(description="Tenant id.")
    aggressor: int = Field(description="Tenant id.")
    slowdown: Number = Field(description="Elapsed slowdown of the victim beside this aggressor.")
    low: Number = Field(description="Lower end of the 95 % interval.")
    high: Number = Field(description="Upper end of the 95 % interval.")
    n: int = Field(ge=0, description="Units of work compared.")
    latency: Number = Field(default=None, description="Latency slowdown of the victim beside this aggressor.")
    inseparable_from: int | None = Field(
        default=None, description="Tenant id of somebody who was always there at the same time; null: told apart."
    )
    share: Number = Field(
        default=None,
        description="Of a victim that is time-sliced with several others: the part of the time that others took from "
        "launch to end of its kernels in which this one was resident. `slowdown` is null then, because a run with "
        "this one only has other time slices. null: not of such a victim, or not known.",
    )
    execution: Number = Field(
        default=None, description="Execution slowdown of a group of work beside this aggressor; null: no group."
    )


class ContendedKernel(Result):
    """The same kernel of a group of work beside other groups and solo, in one capture."""

    tenant_id: int = Field(description="The group.")
    kernel: Text | None = Field(description="Short name; null: none was recorded. Hostile text.")
    ratio: Finite = Field(description="How many times as long as solo it took while the other group was in flight.")
    low: Finite = Field(description="Lower end of its 95 % interval.")
    high: Finite = Field(description="Upper end of it.")
    n: int = Field(ge=0, description="Launches beside the other group.")
    n_solo: int = Field(ge=0, description="Launches solo.")
    median_ns: int | None = Field(description="Median duration beside it, ns.")
    solo_median_ns: int | None = Field(description="Median duration solo, ns.")
    beside: int | None = Field(description="Tenant id of the other group, which covered at least half of the kernel.")
    beside_kernel: Text | None = Field(
        description="Kernel of the other group that overlapped it most; null: copies only, or no name. Hostile text."
    )


class SharingCause(Result):
    """Whether sharing the GPU is the cause of the slowdown."""

    answer: Literal["yes", "no", "unknown"] = Field(description="yes, no or unknown.")
    reason: Text = Field(description="What the answer follows from: a stable name.")
    why: Text = Field(description="The same in a sentence.")


class ContextState(Result):
    """How long saving and restoring the state of a context takes, where no record says so and kernels show it."""

    save_ns: int = Field(ge=0, description="From the end of execution to SAVE_END, ns.")
    restore_ns: int = Field(ge=0, description="From RESTORE_START to the begin of execution, ns.")
    low_ns: int = Field(ge=0, description="Lower end of the interval of both together, ns.")
    high_ns: int = Field(ge=0, description="Upper end of it, ns.")
    found_from: Literal["kernels", "starts"] = Field(
        description="kernels: from how much longer kernels ran that were switched out more often; starts: from when "
        "kernels start and end inside of residency intervals."
    )


class Interference(Result):
    """Device-wide figures, from elapsed slowdowns."""

    antt: Number = Field(description="Average normalised turnaround time: mean slowdown.")
    stp: Number = Field(description="System throughput: sum of 1 / slowdown; at most the number of tenants.")
    jain: Number = Field(description="Jain's fairness index of 1 / slowdown; 1 is fair.")
    matrix: list[MatrixCell] | None = Field(description="Who slowed whom; null: could not be told.")
    harmonic: Number = Field(default=None, description="Harmonic speedup: 1 / antt.")
    unfairness: Number = Field(default=None, description="Largest slowdown over the smallest.")
    speedup_over_serial: Number = Field(
        default=None,
        description="Time of the solo runs one after the other over that of the co-run; below 1 sharing is a loss. Of "
        "two groups of work: of the time in which both were in flight.",
    )
    kernels: list[ContendedKernel] = Field(
        default=[], description="Kernels of groups of work, beside other groups and solo; empty where there are none."
    )
    context_state: ContextState | None = Field(
        default=None, description="Saving and restoring, inferred from kernels; null: recorded, or nothing shows it."
    )
