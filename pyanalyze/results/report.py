"""The one home of the JSON contract (``pyanalyze.report/1``).

Every answer is first a :class:`Report`; HTML, Markdown and text are pictures of it. Keys are never renamed
inside version 1, only added. What cannot be known is ``None`` (JSON ``null``) with an entry in ``missing``,
never zero.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pyanalyze.results.advice import Advice, ReplayedTenant, SharingOption
from pyanalyze.results.association import Association
from pyanalyze.results.copies import Copies
from pyanalyze.results.explain import OtherUnits, OutsideUnits, SlowUnits, UnitGroup
from pyanalyze.results.interference import (
    AddedLatency,
    BaselineNotUsed,
    Causes,
    HostFinding,
    Interference,
    LatencyPercentile,
    NotCompared,
    SharingCause,
    Slowdown,
    Throughput,
    UnitsOfWork,
)
from pyanalyze.results.listed import ConfiguredSharing, ListedNode, ListedTenant, Setting, WithoutGpu
from pyanalyze.results.model import Fraction, Missing, Number, Result, Text, rounded
from pyanalyze.results.occupancy import GpuMetrics, Occupancy, SmWarps
from pyanalyze.results.residency import ContextSwitches, ResidencySlice, ResidencySummary
from pyanalyze.results.sampled import SampledCounter
from pyanalyze.results.sharing import Relation, Segment, Sharing
from pyanalyze.results.streams import Streams
from pyanalyze.results.time_split import TimeSplit
from pyanalyze.results.work import Work
from pyanalyze.text import format as fmt
from pyanalyze.text.numbers import LARGEST, bounded_int
from pyanalyze.text.visible import json_text
from pyanalyze.vocabulary import TRAITS, Basis

__all__ = [
    "BASIS_TEXT",
    "SCHEMA_ID",
    "Capture",
    "Clock",
    "Device",
    "Memory",
    "Mig",
    "QualityRow",
    "Report",
    "Sampled",
    "Severity",
    "Tenant",
    "Throttling",
    "Tool",
    "View",
    "Window",
    "json_schema",
    "unexplained_nulls",
]

SCHEMA_ID: Literal["pyanalyze.report/1"] = "pyanalyze.report/1"

Severity = Literal["info", "notice", "data-loss", "error"]

#: What each basis word promises; printed as the glossary of every report.
BASIS_TEXT: dict[Basis, str] = {
    "observed": "a record in the capture says so",
    "inferred": "deduced from records; captions and the evidence table say from which",
    "modelled": "replayed from launch configurations; nothing measured it",
    "sampled": "read from a hardware or driver counter at intervals",
    "configured": "what a listing or environment asked for, whether or not it happened",
}


def _decimal(value: str | None) -> str | None:
    if value is not None and ("x" in value.lower() or bounded_int(value, -LARGEST - 1) is None):
        raise ValueError(f"origin_utc_ns must be a decimal string of nanoseconds, not {value[:40]!r}")
    return value


class Tool(Result):
    """The program that wrote the report."""

    version: Text = Field(description="Version of pyanalyze.")


class Clock(Result):
    """The clock that every ``*_ns`` position counts on."""

    origin_utc_ns: Annotated[str | None, AfterValidator(_decimal)] = Field(
        description="UTC epoch nanoseconds of position 0, as a decimal string (it does not fit a double); "
        "null: positions count from the first capture's own zero and cannot be given in UTC."
    )
    uncertainty_ns: int | None = Field(description="Half width of the error of that origin, ns; null: not known.")
    origin_local_ns: Annotated[str | None, AfterValidator(_decimal)] = Field(
        default=None,
        description="Where UTC is not known: local time of position 0 as samples without a capture have it, ns from "
        "1970-01-01 of a zone that no input gives, as a decimal string; null: not needed, or not known.",
    )


class RecordsHeld(Result):
    """Records of an export from which rows were removed, or that was exported in part."""

    held: int = Field(ge=0, description="Records in the export.")
    collected: int = Field(ge=0, description="Records that nsys says it collected: more than the export holds.")

    @property
    def share(self) -> float:
        """Part of them that the export holds.

        Examples
        --------
        >>> RecordsHeld(held=1, collected=4).share
        0.25
        """
        return self.held / self.collected


class Capture(Result):
    """One export that was read."""

    path: Text = Field(description="As given on the command line.")
    nsys_version: Text | None = Field(
        description="Version of nsys that exported it: another one may have recorded it. Null: the export does not say."
    )
    schema_version: Text | None = Field(description="Export schema version; null: the export does not say.")
    start_ns: int | None = Field(
        description="First record of work on the GPU, of memory, a switch or a counter, ns from the origin; null: it "
        "holds none."
    )
    end_ns: int | None = Field(description="Last of these records, ns from the origin; null: it holds none.")
    recording_start_ns: int | None = Field(
        default=None, description="Recording began, ns from the origin; null: the export does not say how long it took."
    )
    recording_end_ns: int | None = Field(
        default=None, description="Recording stopped, ns from the origin; null: the same."
    )
    switch_records: RecordsHeld | None = Field(
        default=None,
        description="Context-switch records, where the export lacks some: that time is missing, not idle. Null: nsys "
        "does not say that it collected more.",
    )
    cuda_events: RecordsHeld | None = Field(
        default=None, description="API calls, kernels, copies and memsets, where the export lacks some; null: the same."
    )
    counter_samples: RecordsHeld | None = Field(
        default=None, description="Samples of hardware counters, where the export lacks some; null: the same."
    )
    counters_cover_ns: int | None = Field(
        default=None,
        ge=0,
        description="From the first to the last sample of hardware counters, ns, where that is less than half of the "
        "recording: nsys takes them all the time, so that the export was cut (inferred). Null: it is not, or nsys says "
        "itself how many records are missing.",
    )
    held_start_ns: int | None = Field(
        default=None,
        description="First record of work on the GPU, a counter, or a switch that tells of the time of the work, ns "
        "from the origin, where the export lacks records: what ran before is not known. Null: it lacks none.",
    )
    held_end_ns: int | None = Field(
        default=None,
        description="Last of these records, ns from the origin: what ran after is not known; null: the same.",
    )
    clock_offset_ns: int | None = Field(
        description="Added to the capture's own times to get positions, ns; null: could not be placed."
    )
    clock_uncertainty_ns: int | None = Field(description="Half width of the error of that offset, ns.")
    driver_version: Text | None = Field(default=None, description="NVIDIA driver; null: the export does not say.")
    cuda_version: Text | None = Field(default=None, description="CUDA version of the driver; null: not said.")
    host_hash: Text | None = Field(
        default=None,
        description="Digest of the host name, equal for equal hosts; null: the export does not say, or has a "
        "placeholder such as localhost.",
    )

    @property
    def is_recorded(self) -> bool:
        """Whether nsys recorded it: else it stands for files of samples."""
        return self.nsys_version is not None or self.schema_version is not None


class View(Result):
    """The part of the captures that the report is about."""

    start_ns: int | None = Field(description="Start of the chosen window, ns from the origin; null: not cut there.")
    end_ns: int | None = Field(description="End of the chosen window, ns from the origin; null: not cut there.")
    gpu: int | None = Field(description="device_id that was chosen; null: all.")
    redacted: bool = Field(description="Names of processes, kernels, containers, hosts and files were replaced.")


class QualityRow(Result):
    """One oddity that was counted and survived."""

    name: Text = Field(description="Stable name of the counter.")
    severity: Severity = Field(description="info, notice, data-loss or error.")
    count: int = Field(ge=0, description="Occurrences.")
    detail: Text = Field(description="What was seen, and where.")


class Window(Result):
    """First to last tenant activity on the device; all fractions are over it."""

    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")


class Memory(Result):
    """Device memory."""

    total_bytes: int | None = Field(description="Size of the device's memory, bytes.")
    peak_bytes: int | None = Field(description="Most memory seen in use at once, all tenants, bytes.")
    free_bytes: int | None = Field(
        default=None,
        description="Least free memory seen, by the driver, bytes: less than the total minus the peak where the driver "
        "reserves memory. Null: not sampled.",
    )

    @property
    def headroom_bytes(self) -> int | None:
        """What was free at the peak: by the driver, else the total minus the peak; None: not known.

        Examples
        --------
        >>> Memory(total_bytes=100, peak_bytes=60).headroom_bytes
        40
        >>> Memory(total_bytes=100, peak_bytes=60, free_bytes=35).headroom_bytes
        35
        """
        if self.free_bytes is not None:
            return self.free_bytes
        known = self.total_bytes is not None and self.peak_bytes is not None
        return (self.total_bytes or 0) - (self.peak_bytes or 0) if known else None


class Throttling(Result):
    """What limited the clocks, by samples of the driver's flags and counters."""

    shares: dict[str, Number] = Field(
        description="Part of the samples in which each reason was set, largest first; empty: none ever was."
    )
    n: int = Field(ge=1, description="Samples of the flags.")
    power_limited: Number | None = Field(description="Share of time held down by the power limit; null: not counted.")
    thermal_limited: Number | None = Field(description="Share of time held down by temperature; null: not counted.")
    limited_ns: dict[str, int] = Field(
        default={},
        description="By how much the driver's counter of each reason rose from its first to its last reading, ns, "
        "largest first; empty: no rise, or not read twice.",
    )
    counted_ns: int | None = Field(
        default=None, description="Time from the first to the last reading of these counters; null: not read twice."
    )


#: What is wrong with the memory or the SMs of a GPU, as the driver flags it.
Fault = Literal[
    "row-remapping-failed",
    "unrepairable-memory",
    "row-remapping-pending",
    "channel-repair-pending",
    "tpc-repair-pending",
    "page-retirement-pending",
]


#: Part of their time that samples must cover for their mean to be one of that time.
_MOSTLY_SAMPLED = 0.5


class Sampled(Result):
    """What samples of the whole device say; means over the samples, basis `sampled`."""

    n: int = Field(ge=1, description="Samples: different times, or values of one quantity where these are more.")
    without_time: int = Field(
        default=0, ge=0, description="Samples without a time, where others have one: they are not drawn over time."
    )
    gpu_index: int | None = Field(
        default=None, description="Index of the device in nvidia-smi; null: not in the files, or several."
    )
    entity: Text | None = Field(
        default=None,
        description="Number of the DCGM entity where the file does not state whether it is a GPU or a MIG instance; "
        "null: it is stated, or not of DCGM.",
    )
    start_ns: int | None = Field(description="First sample, ns from the origin; null: no times.")
    end_ns: int | None = Field(description="Last sample, ns from the origin; null: no times.")
    covered_share: Fraction | None = Field(
        default=None,
        description="Part of the time between the two without holes, which are more than three usual intervals long; "
        "null: no times, or one sample.",
    )
    gpu_utilization: Number | None = Field(
        description="Share of time in which any kernel ran, by the driver. It does not say how full the GPU was."
    )
    gpu_utilization_peak: Number | None = Field(default=None, description="Largest sample of it.")
    idle_share: Number | None = Field(
        default=None, description="Part of the samples in which no kernel ran (below 1 %); null: not sampled."
    )
    engine_active: Number | None = Field(
        default=None, description="Share of time in which the graphics or compute engine was active, by DCGM."
    )
    sm_active: Number | None = Field(description="SMs with at least one warp, mean over SMs and time, by DCGM.")
    dram_active: Number | None = Field(default=None, description="Share of cycles with DRAM traffic, by DCGM.")
    counters: list[SampledCounter] = Field(
        default=[], description="Every quantity of use that was sampled, those above included, with its range."
    )
    memory_mean_bytes: int | None = Field(default=None, description="Mean device memory in use, bytes.")
    power_w: Number | None = Field(description="Power draw, W.")
    power_limit_w: Number | None = Field(
        default=None, description="Power limit in the last sample of it, W: the enforced one where both are given."
    )
    processes: int | None = Field(description="Compute processes that were listed; null: nobody listed them.")
    throttling: Throttling | None = Field(default=None, description="What limited the clocks; null: not sampled.")
    xid: list[int] | None = Field(default=None, description="Xid errors that samples show; null: not sampled.")
    ecc_uncorrected: int | None = Field(
        default=None, description="Uncorrected ECC errors since the driver was loaded; null: not sampled."
    )
    ecc_corrected: int | None = Field(default=None, description="Corrected ones, likewise.")
    faults: list[Fault] | None = Field(
        default=None, description="Flags of the driver that were set in a sample; null: not sampled."
    )
    recovery_action: Text | None = Field(
        default=None, description="What the driver asks for, in its words, such as Reset or None; null: not sampled."
    )

    def counter(self, name: str) -> SampledCounter | None:
        """The counter of that name; None: it was not sampled.

        Examples
        --------
        >>> Sampled.model_construct(counters=[]).counter("sm_occupancy") is None
        True
        """
        return next((one for one in self.counters if one.name == name), None)

    @property
    def one_moment(self) -> bool:
        """Whether all samples are of one moment: nothing is known over time.

        Examples
        --------
        >>> Sampled.model_construct(start_ns=5, end_ns=5).one_moment
        True
        """
        return self.start_ns is not None and self.start_ns == self.end_ns

    @property
    def separate_moments(self) -> bool:
        """Whether holes are longer than the sampled time: the samples are of separate moments, and have no mean."""
        return self.covered_share is not None and self.covered_share < _MOSTLY_SAMPLED


class Mig(Result):
    """The MIG instance that this device is."""

    profile: Text | None = Field(description="Such as 2g.12gb.")
    gi: int | None = Field(description="GPU instance id.")
    ci: int | None = Field(description="Compute instance id.")
    parent_uuid: Text | None = Field(description="UUID of the board.")


class Tenant(Result):
    """One process (or group that cannot be told apart) on the device."""

    tenant_id: int = Field(ge=0, description="Id inside this report.")
    capture: int | None = Field(description="Index into captures; null: seen in samples only.")
    pid: int | None = Field(description="Process id as the capture has it (in a container: the container's).")
    host_pid: int | None = Field(description="Process id on the host; null: nothing named it.")
    name: Text = Field(description="Process name or description. Hostile text.")
    container: Text | None = Field(description="Container.")
    pod: Text | None = Field(description="Kubernetes pod.")
    group_of: Text | None = Field(
        default=None, description="Process whose group of work it is; null: it is a process. Hostile text."
    )
    contexts: list[int] = Field(description="CUDA context ids.")
    green_contexts: list[int] = Field(
        default=[],
        description="Of these, green contexts: their kernels have the id of the context they were made in too.",
    )
    served_by: int | None = Field(
        default=None,
        description="tenant_id of the MPS server, or of the process of a group of work, whose context its work goes "
        "through; null: none, or unknown.",
    )
    busy_ns: int | None = Field(
        description="Union of its kernel and copy-free graph intervals as recorded, ns; null: not traced."
    )
    resident_ns: int | None = Field(
        description="Resident time in the window: its context occupied the compute engine, ns; null: no switch "
        "records, or in_mps_group."
    )
    attributed_ns: int | None = Field(
        description="Busy intersected with resident, ns; equals busy_ns where nothing is switched out. Of a client of "
        "an MPS group (in_mps_group) that is the residency of the group."
    )
    gpu_time_share: Number = Field(
        default=None,
        description="GPU time share: resident time over the window, observed or inferred; where neither is known, "
        "attributed time over the window. Shares of concurrent tenants may sum to more than 1.",
    )
    gpu_time_basis: Basis | None = Field(
        default=None, description="How the GPU time share is known; null: it is not known."
    )
    all_at_work_share: Number = Field(
        default=None,
        description="GPU time share in `all_at_work` of the device; null: no such time, not known from switch records, "
        "or in_mps_group.",
    )
    in_mps_group: bool = Field(
        default=False,
        description="A client of an MPS group that is time-sliced with other tenants: gpu_time_share is that of the "
        "group, whose intervals residency_summary has; resident_ns, slices and median_slice_ns are null, as switch "
        "records name any client for all.",
    )
    slices: int | None = Field(
        description="Complete slices of its contexts, context creation left out; null: no switch records, or "
        "in_mps_group."
    )
    median_slice_ns: int | None = Field(
        description="Their median length, one of them, ns; null: no complete slice, or in_mps_group."
    )
    usable_sms: int | None = Field(
        default=None,
        ge=1,
        description="SMs that it may use, where a cap or a partition leaves it fewer than the device has; null: none "
        "is known.",
    )
    sm_share: Number = Field(description="Its part of all SM time that any tenant used, 0 to 1; modelled.")
    occupancy: Number = Field(description="Mean resident warps over the device's warp slots, 0 to 1; modelled.")
    memory_peak_bytes: int | None = Field(description="Largest device memory seen in use, bytes.")
    slowdown: Slowdown = Field(description="How much slower than alone.")
    assumed_switch_ns: int | None = Field(
        default=None,
        description="Of attributed_ns, what slowdowns take for saving and restoring inside kernels, as on other "
        "boards, ns; null: nothing is assumed.",
    )
    causes: Causes | None = Field(description="Where the added latency went; null: not known, or nothing was added.")
    root_causes: Causes | None = Field(
        default=None,
        description="The same, with the wait behind an operation of the same stream counted for what delayed that one.",
    )
    added_latency_ns: Number = Field(
        default=None,
        description="How much longer a kernel took from launch to end than solo, mean, ns; null: as `causes`, or too "
        "few kernels.",
    )
    added_latency: AddedLatency | None = Field(
        default=None,
        description="Where `causes` are not known because its kernels are too few: latency that others added, before "
        "kernels started and while they were in flight; null: causes are known, or this is not.",
    )
    work: Work | None = Field(default=None, description="What it launched; null: not traced.")
    time_split: TimeSplit | None = Field(
        default=None, description="Where its time went, and what limits it; null: not traced, or not asked for."
    )
    copies: Copies | None = Field(
        default=None, description="What it copied, how fast; null: nothing, not traced, or nobody asked for it."
    )
    streams: Streams | None = Field(
        default=None,
        description="Whether its streams overlapped; null: it used one, was not traced, or nobody asked for it.",
    )
    baseline: Text | None = Field(
        default=None,
        description="The baseline that it was compared with; null: this run, replayed without the others.",
    )
    latency_percentiles: list[LatencyPercentile] = Field(
        default=[], description="Percentiles of kernel latency; empty: not known."
    )
    units: list[UnitsOfWork] = Field(default=[], description="Units of work, most of the time first.")
    throughput: Throughput | None = Field(default=None, description="Work per second; null: not known.")
    not_compared: NotCompared | None = Field(
        default=None, description="What its latency leaves out; null: nothing, or it was held against no baseline."
    )
    slowdown_notes: list[Text] = Field(default=[], description="What to know when reading its slowdown.")
    baselines_not_used: list[BaselineNotUsed] = Field(
        default=[],
        description="Baselines that are not of this tenant, or cannot be compared. One that is of no tenant at all is "
        "listed with each tenant that has none: it may be the one that was meant.",
    )


class Device(Result):
    """One GPU, or one MIG instance."""

    device_id: int = Field(ge=0, description="Id inside this report.")
    uuid: Text | None = Field(description="UUID of the GPU or MIG instance.")
    gpu_uuid: Text | None = Field(description="UUID of the board.")
    window: Window | None = Field(description="First to last tenant activity; null: no activity was recorded.")
    all_at_work: Window | None = Field(
        default=None,
        description="From when the last tenant began to when the first one ended; null: one tenant, or no such time.",
    )
    all_at_work_launched_ns: int | None = Field(
        default=None,
        description="Begin of the call that launched the operation with which `all_at_work` begins; null: not known, "
        "or `all_at_work` is nearly the window.",
    )
    all_at_work_jain: Number = Field(
        default=None,
        description="Jain's index of residency in `all_at_work` over tenants, an MPS group counting once; 1 is equal. "
        "null: no such time, or not known from switch records.",
    )
    in_flight_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of the window, kernels or graphs traced whole of any tenant were in flight, ns: tenants in flight "
        "at once count once. null: not asked for, fewer than two tenants with traced work, or their GPU time is known "
        "from residency.",
    )
    memory: Memory | None = Field(description="Device memory; null: not known.")
    name: Text | None = Field(description="Product name.")
    sm_count: int | None = Field(description="Streaming multiprocessors.")
    compute_capability: Text | None = Field(description="Such as 8.9.")
    mig: Mig | None = Field(description="null: not a MIG instance.")
    sharing: Sharing = Field(description="How it was shared.")
    relations: list[Relation] = Field(
        description="Per pair of tenants; with more than 64 tenants per pair that was busy or resident at one time. "
        "Any other pair is apart, or as the mode says where both were active in the same stretch of time."
    )
    segments: list[Segment] = Field(description="The mode over time.")
    context_switches: ContextSwitches | None = Field(description="null: no switch records.")
    residency_summary: ResidencySummary | None = Field(
        default=None, description="null: residency is neither observed nor inferred."
    )
    tenants: list[Tenant] = Field(description="Who was on it.")
    occupancy: Occupancy | None = Field(description="null: could not be modelled.")
    sm_active_at_most: Fraction | None = Field(
        default=None,
        description="Upper bound of the mean fraction of SMs with blocks of traced kernels, by the blocks of their "
        "grids and the time in flight; inferred. Null: occupancy is not null, or SMs or grids are not known.",
    )
    interference: Interference | None = Field(description="null: could not be computed.")
    sharing_is_the_cause: SharingCause | None = Field(
        default=None, description="Whether sharing the GPU is the cause of the slowdown; null: not asked for."
    )
    advice: list[Advice] = Field(description="What to change, best first.")
    host: list[HostFinding] = Field(default=[], description="What lies with the host: read it before blaming the GPU.")
    sampled: Sampled | None = Field(default=None, description="null: no samples of the whole device.")
    gpu_metrics: GpuMetrics | None = Field(
        default=None, description="Hardware counters; null: none, or kernels were traced and `occupancy` compares them."
    )
    listed: list[ListedTenant] = Field(default=[], description="Processes, pods and claims that inputs name on it.")
    configured_sharing: ConfiguredSharing | None = Field(
        default=None, description="How settings share it; null: no input says anything of sharing."
    )
    settings: list[Setting] = Field(default=[], description="Settings of the inputs that concern it.")
    associations: list[Association] = Field(
        default=[], description="How given latencies go with the activity of tenants; empty: none were given."
    )
    options: list[SharingOption] | None = Field(
        default=None, description="Ways to share it, best mean slowdown first; null: not compared."
    )
    replay_check: list[ReplayedTenant] = Field(
        default=[],
        description="How far the replay of the recorded configuration is from the record, by tenant; empty: it cannot "
        "be replayed, or nothing was compared.",
    )
    slow_units: list[SlowUnits] = Field(
        default=[],
        description="Units of work, such as requests, whose p99 is at least 1.2 times their median, most units first.",
    )
    even_units: list[UnitGroup] = Field(
        default=[],
        description="Of each tenant without such units: those with most time. All of them take about as long, which "
        "may be too long, or none is much longer than the median and many are shorter (`ranges`).",
    )
    few_units: list[UnitGroup] = Field(
        default=[],
        description="Of each tenant with fewer than 20 units of every name, which are too few for percentiles: those "
        "with most time.",
    )
    other_units: list[OtherUnits] = Field(
        default=[], description="Units of tenants that are in none of these lists, by tenant; empty: there are none."
    )
    outside_units: list[OutsideUnits] = Field(
        default=[], description="Work of tenants with units that is in none of them; empty: there is none."
    )
    residency: list[ResidencySlice] | None = Field(default=None, description="Only with --detail.")
    sm_warps: SmWarps | None = Field(default=None, description="Only with --detail.")

    def named_for_all(self) -> list[Tenant]:
        """MPS clients that switch records name for the context of all clients: that residency is no GPU time of theirs.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].named_for_all()
        []
        """
        return [
            t for t in self.tenants if t.in_mps_group or (t.resident_ns is not None and t.gpu_time_basis == "inferred")
        ]

    @property
    def is_mig_board(self) -> bool:
        """Whether it is a board in MIG mode: programs run in its instances only, and allocate memory there.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].is_mig_board
        False
        """
        configured = self.sharing.configured
        return self.mig is None and configured is not None and TRAITS[configured].mig_instance

    def mps_group(self) -> list[Tenant]:
        """Clients of an MPS group that is time-sliced with other tenants; only their residency together is known.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].mps_group()
        []
        """
        return [t for t in self.tenants if t.in_mps_group]

    def without_slowdown(self) -> list[Tenant]:
        """Tenants whose slowdown is not known; a server of MPS clients has no work of its own that could be slowed.

        Examples
        --------
        >>> import pyanalyze
        >>> [tenant.name for tenant in pyanalyze.load(capture).report().devices[0].without_slowdown()]
        ['app_c']
        """
        servers = {tenant.served_by for tenant in self.tenants}
        return [
            tenant
            for tenant in self.tenants
            if tenant.tenant_id not in servers
            and (tenant.slowdown.elapsed, tenant.slowdown.latency, tenant.slowdown.resident) == (None, None, None)
        ]

    def missing_for(self, key: str) -> list[Missing]:
        """The entries of ``sharing.missing`` that say why `key` (such as ``interference``) is null.

        Examples
        --------
        >>> import pyanalyze
        >>> report = pyanalyze.load(capture).report()
        >>> [entry.what for entry in report.devices[0].missing_for("slowdown")]
        ['slowdown']
        """
        return [entry for entry in self.sharing.missing if entry.what == key]


class Report(Result):
    """The whole answer.

    Examples
    --------
    >>> report = Report(tool=Tool(version="0"), clock=Clock(origin_utc_ns=None, uncertainty_ns=None),
    ...                 captures=[], quality=[], devices=[])
    >>> report.to_json().splitlines()[1]
    '  "schema": "pyanalyze.report/1",'
    """

    # `schema` would shadow a pydantic method, so the attribute has another name than the key.
    schema_id: Literal["pyanalyze.report/1"] = Field(
        default=SCHEMA_ID, alias="schema", description="Name and version of this contract."
    )
    tool: Tool = Field(description="What wrote it.")
    clock: Clock = Field(description="What positions count from.")
    captures: list[Capture] = Field(description="What was read.")
    quality: list[QualityRow] = Field(description="Oddities of the data, counted.")
    devices: list[Device] = Field(description="One entry per GPU, or per MIG instance.")
    gpus_without_work: int = Field(
        default=0,
        ge=0,
        description="Further GPUs that the captures list. Nothing of them was recorded, so they have no entry.",
    )
    samples_not_used: list[Text] = Field(
        default=[],
        description="Of each file of samples that are of another time than the captures, in a sentence: it answers "
        "nothing.",
    )
    listed: list[ListedTenant] = Field(default=[], description="Tenants of which no input says the GPU.")
    nodes: list[ListedNode] = Field(default=[], description="Nodes of Kubernetes with GPUs; empty: none is listed.")
    settings_advice: list[Advice] = Field(
        default=[], description="Requests and variables of pods that have no effect on their node."
    )
    pods_without_gpu: list[WithoutGpu] = Field(
        default=[], description="Listed pods that ask for a GPU and hold none: no tenants."
    )
    settings: list[Setting] = Field(default=[], description="Settings of the inputs that concern no single device.")
    view: View | None = Field(default=None, description="null: all of the captures, names as recorded.")
    grouped_by: Text | None = Field(
        default=None,
        description="What makes a tenant, as --by says it: `stream`, `context`, `nvtx`, `nvtx=DOMAIN`, "
        "`kernel=REGEX,...`, `comms`; null: processes.",
    )

    @property
    def synthetic(self) -> bool:
        """Whether any capture was made by a generator instead of being recorded on a GPU."""
        return any(row.name == "synthetic_capture" and row.count for row in self.quality)

    def __repr__(self) -> str:
        """Name the modes: all of it is a book."""
        modes = ", ".join(str(device.sharing.mode) for device in self.devices)
        return f"<Report of {fmt.counted(len(self.devices), 'device')}: {modes}>" if modes else "<Report of no device>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of the contract; floats rounded to 9 significant digits.

        ``residency`` and ``sm_warps`` appear only where they were asked for (``--detail``).

        Examples
        --------
        >>> import pyanalyze
        >>> report = pyanalyze.load(capture).report()
        >>> list(report.to_dict())[:6]
        ['schema', 'tool', 'clock', 'captures', 'quality', 'devices']
        """
        plain: dict[str, Any] = self.model_dump(mode="json", by_alias=True)
        for device in plain["devices"]:
            for key in ("residency", "sm_warps"):
                if device[key] is None:
                    del device[key]
        whole: dict[str, Any] = rounded(plain)
        return whole

    def to_json(self) -> str:
        """The JSON text, ending in a newline. Equal reports give equal bytes.

        Examples
        --------
        >>> import pyanalyze
        >>> report = pyanalyze.load(capture).report()
        >>> Report.from_json(report.to_json()).devices[0].sharing.mode
        'time-slicing'
        """
        return json_text(self.to_dict()) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        pydantic.ValidationError
            Naming every key that does not fit the contract.
        """
        return cls.model_validate_json(text)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of :meth:`Report.to_json`.

    Examples
    --------
    >>> json_schema()["properties"]["schema"]["const"]
    'pyanalyze.report/1'
    """
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    schema["required"].insert(0, "schema")  # it has a default, and is what a reader asks for first
    # Written by --detail only, so readers must not require them although pydantic always has them.
    required = schema["$defs"]["Device"]["required"]
    schema["$defs"]["Device"]["required"] = [k for k in required if k not in ("residency", "sm_warps")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def unexplained_nulls(report: Report) -> list[str]:
    """Keys that are null although no entry of ``missing`` says why: each one breaks the contract.

    Returns
    -------
    list of str
        Such as ``devices[0].interference``; empty when every null is explained.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> unexplained_nulls(report)
    []
    """
    found = []
    for device in report.devices:
        explained = {entry.what for entry in device.sharing.missing}
        nulls = [
            key for key in ("window", "context_switches", "occupancy", "interference") if getattr(device, key) is None
        ]
        if device.interference is not None and device.interference.matrix is None:
            nulls.append("interference.matrix")
        if device.without_slowdown():
            nulls.append("slowdown")
        found += [f"devices[{device.device_id}].{key}" for key in nulls if key not in explained]
    return found
