"""What copies of a tenant, or a mix of tenants, would do under a sharing configuration: forecasts with intervals."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from pyanalyze.results.advice import Checked
from pyanalyze.results.model import Finite, Fraction, Missing, Number, Result, Text
from pyanalyze.vocabulary import CopyCondition, Mode, UnitSource

__all__ = [
    "Copies",
    "CopyDoubt",
    "Demand",
    "Estimate",
    "ForecastUnit",
    "IdleCopy",
    "Knee",
    "Knowledge",
    "LatencyOf",
    "Objective",
    "Quantity",
    "RecordedLatency",
    "ReplicaAdvice",
    "ReplicaOption",
    "SelfCheck",
    "Sign",
    "SignForecast",
    "ThroughputForecast",
    "Told",
]

Quantity = Literal["mean", "p99"]
Sign = Literal["mps-slower", "mps-faster"]
#: What a latency is of: units of work (requests, steps), or single kernels from launch to end.
LatencyOf = Literal["unit", "kernel"]
Objective = Literal["throughput", "latency", "fairness"]
Told = Literal["yes", "no", "cannot-tell"]


class Knowledge(StrEnum):
    """What is known of a pair whose sign is forecast."""

    #: Its run under MPS.
    MPS_RUN = "mps-run"
    #: What its other tenant does to a third one.
    OTHER_TENANT = "other-tenant"
    #: Nothing but other pairs.
    ANY_PAIR = "any-pair"


class Estimate(Result):
    """A modelled value with an interval that holds the truth in 95 % of cases, model error included."""

    value: Finite = Field(description="The most likely value.")
    low: Finite = Field(description="Lower end of the 95 % interval.")
    high: Finite = Field(description="Upper end of the 95 % interval.")

    def __str__(self) -> str:
        """Show value and interval."""
        return f"{self.value:.3g} (95 % CI {self.low:.3g}-{self.high:.3g})"

    def times(self, factor: float) -> Estimate:
        """Return it in another unit.

        Examples
        --------
        >>> print(Estimate(value=2.0, low=1.5, high=3.0).times(10))
        20 (95 % CI 15-30)
        """
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)


class ThroughputForecast(Result):
    """Throughput of equal copies in one instance; modelled from measured throughput."""

    compute_slices: int = Field(ge=1, description="Compute slices of the instance; the whole GPU has the most.")
    memory_slices: int = Field(ge=1, description="Memory slices of the instance.")
    batch: int = Field(ge=1, description="Work items that a copy handles at once.")
    copies: int = Field(ge=1, description="Copies in the instance, clients of one MPS server.")
    throughput: Estimate = Field(description="Work items per second of all copies.")
    per_copy: Estimate = Field(description="Work items per second of one copy.")
    measured: bool = Field(description="The solo throughput at this instance and batch was measured.")
    checked: Checked = Field(description="What forecasts of this kind were checked against.")


class SignForecast(Result):
    """Is a tenant slower under MPS than time-sliced? Modelled from measured pairs."""

    quantity: Quantity = Field(description="Mean latency, or its 99th percentile.")
    ratio: Finite = Field(description="Latency under MPS over latency under time-slicing.")
    low: Finite = Field(description="The ratio is below with a probability of 5 %.")
    high: Finite = Field(description="The ratio is above with a probability of 5 %: a stated sign has 1 outside.")
    likely: Sign = Field(description="The more likely sign.")
    confidence: Fraction = Field(description="Probability of that sign.")
    sign: Sign | Literal["cannot-tell"] = Field(description="The sign where its probability is at least 0.95.")
    known: Knowledge = Field(description="What the forecast is made from.")
    n: int = Field(ge=0, description="Measured pairs behind it.")
    checked: Checked = Field(description="What forecasts of this kind were checked against.")


class Copies(Result):
    """Equal copies of a tenant in one sharing configuration; modelled."""

    tenant_id: int = Field(description="Tenant whose program the copies run.")
    name: Text = Field(description="Its name.")
    copies: int = Field(ge=1, description="How many.")
    slowdown: Estimate = Field(description="Elapsed time of a copy over that solo on the whole GPU, mean over copies.")
    throughput: Estimate = Field(description="Work of all copies in a time, over that of one solo copy.")
    p50_ns: Estimate | None = Field(description="Median latency of a copy, ns; null: no API calls.")
    p99_ns: Estimate | None = Field(description="99th percentile of the same.")
    solo_p99_ns: Number = Field(
        default=None, description="That of one copy, solo on the whole GPU, as replayed, ns; null: as `p99_ns`."
    )
    at_least: bool = Field(
        default=False,
        description="Slowdown and latency have a lower bound only, and throughput an upper one: see the conditions.",
    )


class ReplicaOption(Result):
    """Copies of one or more tenants in one sharing configuration; modelled."""

    name: Text = Field(description="The sharing configuration, such as `MPS, 50 % each`.")
    mode: Mode = Field(description="Sharing mode that it makes.")
    copies: int = Field(ge=1, description="Copies of all tenants.")
    tenants: list[Copies] = Field(description="Per tenant.")
    throughput: Estimate = Field(description="Sum of the tenants' throughput.")
    fairness: Fraction = Field(description="Jain's index of the copies' progress: 1 is equal.")
    utilisation: Number = Field(description="Part of the SM time with resident blocks; null: not modelled.")
    profiles: list[Text] = Field(description="MIG profiles with the memory slice at which each begins.")
    instances: list[int] = Field(
        description="For each copy, tenants in order, the position of its instance in `profiles`; empty: no MIG."
    )
    percentages: list[int] = Field(description="MPS active thread percentage of each copy; empty: no caps.")
    memory_bytes: int | None = Field(description="Device memory that all copies need, bytes; null: not known.")
    memory_fits: Told = Field(description="Whether they fit, with a reserve.")
    meets_slo: Told | None = Field(description="Whether every copy meets the objective asked for; null: none was.")
    current: bool = Field(description="It is what was recorded.")
    pareto: bool = Field(description="No other one has more throughput and less latency.")
    recommended: bool = Field(description="It is the best by the objective.")


class Knee(Result):
    """From how many copies on one more adds little."""

    copies: int = Field(ge=1, description="The last copy that is worth it.")
    name: Text = Field(description="The sharing configuration with most throughput at that number.")
    next_gain: Number = Field(description="Throughput that one more copy adds, relative; null: it was not asked for.")


class Demand(Result):
    """What a tenant's kernels take of a shared resource solo."""

    tenant_id: int = Field(description="Tenant.")
    name: Text = Field(description="Its name.")
    resource: Text = Field(description="Such as `DRAM bandwidth`, `L2 bandwidth`, `issue slots`, `tensor pipe`.")
    part: Fraction = Field(description="Part of what the GPU has, mean over the kernels' time.")
    source: Literal["counted", "sampled"] = Field(description="Nsight Compute counted it, or GPU metrics sampled it.")


class ForecastUnit(Result):
    """The units of work of a tenant whose time is forecast."""

    tenant_id: int = Field(description="Tenant.")
    name: Text = Field(description="Its name.")
    unit: Text = Field(description="Name of most of its units, as `explain` has it. Hostile text.")
    source: UnitSource = Field(description="How they were found.")
    others: int = Field(ge=0, description="How many other names its units have.")


class CopyDoubt(Result):
    """A condition under which the forecast of a tenant's copies holds."""

    tenant_id: int = Field(description="Tenant.")
    name: Text = Field(description="Its name.")
    condition: CopyCondition = Field(
        description="mpi-rank: it called MPI, and copies are forecast as if they did not wait for each other. "
        "unseen-waits: its host may have waited for its work without a call, so that slowdowns and latencies are lower "
        "bounds, and throughput is an upper bound."
    )


class RecordedLatency(Result):
    """What a tenant's latencies were in the part of the recording that is replayed; observed."""

    tenant_id: int = Field(description="Tenant.")
    p50_ns: int = Field(ge=0, description="Their median, ns.")
    p99_ns: int = Field(ge=0, description="Their 99th percentile, ns.")


class IdleCopy(Result):
    """How much of the time a copy leaves the GPU alone, as recorded."""

    tenant_id: int = Field(description="Tenant.")
    name: Text = Field(description="Its name.")
    part: Fraction = Field(description="Part of the replayed time without a kernel, graph, copy or memset of it.")


class SelfCheck(Result):
    """Does the forecast of the recorded configuration reproduce the recorded run?"""

    possible: bool = Field(description="The recorded configuration can be replayed.")
    elapsed_error: Number = Field(description="Largest relative error of elapsed time over tenants.")
    elapsed_tenant_id: int | None = Field(default=None, description="Tenant whose elapsed time has that error.")
    elapsed_too_long: bool | None = Field(
        default=None, description="Whether its replayed time is too long, not too short; null: nothing was replayed."
    )
    p99_error: Number = Field(description="Largest relative error of the 99th percentile of latency.")
    p50_error: Number = Field(
        default=None, description="The same of the median, replayed over recorded less 1: below 0 it is too short."
    )
    recorded: list[RecordedLatency] = Field(
        default=[], description="What was recorded, of each tenant; empty: it has no latencies."
    )
    contention: Number = Field(
        description="How much longer kernels took beside each other than the replay says without memory and caches, "
        "relative; null: none of known solo time ran beside another one."
    )
    outcome: Literal["passed", "widened", "forbidden", "not-possible"] = Field(
        description="What it did to the other forecasts: nothing, added its error to their intervals, or forbade them."
    )


class ReplicaAdvice(Result):
    """How many copies, and shared in which way, on one device."""

    device_id: int = Field(description="Device.")
    objective: Objective = Field(description="What is best.")
    slo_p99_ns: int | None = Field(
        default=None, description="99th percentile of latency that every copy must keep, ns; null: none was asked for."
    )
    latency_of: LatencyOf | None = Field(description="What latencies are of; null: no API calls.")
    options: list[ReplicaOption] = Field(description="All that were forecast, by number of copies, then throughput.")
    knee: Knee | None = Field(description="Where more copies stop to pay; null: one number was asked for.")
    certain: bool = Field(description="The interval of the recommended one overlaps that of no other configuration.")
    demands: list[Demand] = Field(
        default=[],
        description="What is known of the tenants' demands; forecasts use DRAM bandwidth and the throughput of SMs.",
    )
    check: SelfCheck = Field(description="The forecast of what was recorded.")
    checked: Checked = Field(description="What forecasts of this kind were checked against.")
    operations: int = Field(
        ge=0, description="Kernels, graphs and copies that were replayed for one copy of each tenant."
    )
    window_ns: int = Field(ge=0, description="The time in which those were recorded.")
    idle: list[IdleCopy] = Field(
        default=[], description="Of each tenant: a copy that is mostly idle is replayed at its recorded pace."
    )
    units: list[ForecastUnit] = Field(default=[], description="Whose time latencies of units are; empty: of kernels.")
    conditions: list[CopyDoubt] = Field(default=[], description="On what the forecasts depend, by tenant.")
    missing: list[Missing] = Field(description="What is not known, and what would tell.")
