"""The one home of the JSON contract (``pyanalyze.report/1``).

Every answer is first a :class:`Report`; HTML, Markdown and text are pictures of it. Keys are never renamed
inside version 1, only added. What cannot be known is ``None`` (JSON ``null``) with an entry in ``missing``,
never zero.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from pyanalyze.text.visible import json_text
from pyanalyze.vocabulary import MODES, Basis, Mode, RelationKind

__all__ = [
    "BASIS_TEXT",
    "MODES",
    "SCHEMA_ID",
    "Advice",
    "BaselineNotUsed",
    "Basis",
    "Batch",
    "Capture",
    "Causes",
    "Clock",
    "Configuration",
    "ContextSwitches",
    "CostKind",
    "CounterCheck",
    "Device",
    "Estimate",
    "Evidence",
    "Example",
    "ExecutionSplit",
    "HeldSlices",
    "Interference",
    "Ledger",
    "MatrixCell",
    "Memory",
    "Mig",
    "Missing",
    "Mode",
    "Occupancy",
    "QualityRow",
    "Relation",
    "RelationKind",
    "Report",
    "ResidencySlice",
    "Rival",
    "Segment",
    "Severity",
    "Sharing",
    "Slowdown",
    "SmWarps",
    "Tenant",
    "Tool",
    "View",
    "Window",
    "Work",
    "json_schema",
    "unexplained_nulls",
]

SCHEMA_ID: Literal["pyanalyze.report/1"] = "pyanalyze.report/1"

Severity = Literal["info", "notice", "data-loss", "error"]
CostKind = Literal["gap", "full"]
#: Why a baseline was not used: it has no work in common with the tenant (or with any); it was recorded on another GPU
#: model; other tenants ran in it; other baselines fit as well, and their throughput differs.
NotUsedReason = Literal["no-common-work", "other-gpu-model", "not-solo", "ambiguous"]

#: What each basis word promises; printed as the glossary of every report.
BASIS_TEXT: dict[Basis, str] = {
    "observed": "a record in the capture says so",
    "inferred": "deduced from records; the evidence table says from which",
    "modelled": "replayed from launch configurations; nothing measured it",
    "sampled": "read from a hardware or driver counter at intervals",
    "configured": "what a listing or environment asked for, whether or not it happened",
}


def _valid_text(value: object) -> object:
    """Replace lone surrogates, which no UTF-8 file can hold: names come from foreign processes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Text = Annotated[str, BeforeValidator(_valid_text)]
#: A float that may not be known; NaN and infinities read as not known.
Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
#: A float that must be known: NaN and infinities are refused.
Finite = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


def _decimal(value: str | None) -> str | None:
    if value is not None and not (value.lstrip("-").isdigit() and value.isascii()):
        raise ValueError(f"origin_utc_ns must be a decimal string of nanoseconds, not {value[:40]!r}")
    return value


class _Part(BaseModel):
    """Frozen, and closed: an unknown key is a bug of the caller, not an extension."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, ser_json_inf_nan="null")


class Tool(_Part):
    """The program that wrote the report."""

    version: Text = Field(description="Version of pyanalyze.")


class Clock(_Part):
    """The clock that every ``*_ns`` position counts on."""

    origin_utc_ns: Annotated[str | None, AfterValidator(_decimal)] = Field(
        description="UTC epoch nanoseconds of position 0, as a decimal string (it does not fit a double); "
        "null: positions count from the first capture's own zero and cannot be given in UTC."
    )
    uncertainty_ns: int | None = Field(description="Half width of the error of that origin, ns; null: not known.")


class Capture(_Part):
    """One export that was read."""

    path: Text = Field(description="As given on the command line.")
    nsys_version: Text | None = Field(description="Version of nsys that recorded it; null: the export does not say.")
    schema_version: Text | None = Field(description="Export schema version; null: the export does not say.")
    start_ns: int | None = Field(description="First record, ns from the origin; null: it holds none.")
    end_ns: int | None = Field(description="Last record, ns from the origin; null: it holds none.")
    clock_offset_ns: int | None = Field(
        description="Added to the capture's own times to get positions, ns; null: could not be placed."
    )
    clock_uncertainty_ns: int | None = Field(description="Half width of the error of that offset, ns.")
    driver_version: Text | None = Field(default=None, description="NVIDIA driver; null: the export does not say.")
    cuda_version: Text | None = Field(default=None, description="CUDA version of the driver; null: not said.")
    host_hash: Text | None = Field(
        default=None, description="Digest of the host name, equal for equal hosts; null: the export does not say."
    )


class View(_Part):
    """The part of the captures that the report is about."""

    start_ns: int | None = Field(description="Start of the chosen window, ns from the origin; null: not cut there.")
    end_ns: int | None = Field(description="End of the chosen window, ns from the origin; null: not cut there.")
    gpu: int | None = Field(description="device_id that was chosen; null: all.")
    redacted: bool = Field(description="Names of processes, kernels, containers, hosts and files were replaced.")


class QualityRow(_Part):
    """One oddity that was counted and survived."""

    name: Text = Field(description="Stable name of the counter.")
    severity: Severity = Field(description="info, notice, data-loss or error.")
    count: int = Field(ge=0, description="Occurrences.")
    detail: Text = Field(description="What was seen, and where.")


class Window(_Part):
    """First to last tenant activity on the device; all fractions are over it."""

    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")


class Memory(_Part):
    """Device memory."""

    total_bytes: int | None = Field(description="Size of the device's memory, bytes.")
    peak_bytes: int | None = Field(description="Most memory seen in use at once, all tenants, bytes.")


class Sampled(_Part):
    """What samples of the whole device say; means over the samples, basis `sampled`."""

    n: int = Field(ge=1, description="Samples: different times, or rows where the files have no times.")
    start_ns: int | None = Field(description="First sample, ns from the origin; null: no times.")
    end_ns: int | None = Field(description="Last sample, ns from the origin; null: no times.")
    gpu_utilization: Number | None = Field(
        description="Share of time in which any kernel ran, by the driver. It does not say how full the GPU was."
    )
    sm_active: Number | None = Field(description="SMs with at least one warp, mean over SMs and time, by DCGM.")
    power_w: Number | None = Field(description="Power draw, W.")
    processes: int | None = Field(description="Compute processes that were listed; null: nobody listed them.")


class Mig(_Part):
    """The MIG instance that this device is."""

    profile: Text | None = Field(description="Such as 2g.12gb.")
    gi: int | None = Field(description="GPU instance id.")
    ci: int | None = Field(description="Compute instance id.")
    parent_uuid: Text | None = Field(description="UUID of the board.")


class Example(_Part):
    """An interval behind a piece of evidence, to be found again in the nsys timeline."""

    capture: int | None = Field(description="Index into captures.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    pid: int | None = Field(description="Process id as the capture has it.")
    correlation_id: int | None = Field(description="CUPTI correlation id, unique per process only.")


class Evidence(_Part):
    """One quantity that spoke for or against modes."""

    name: Text = Field(description="Stable name of the fact.")
    supports: list[Mode] = Field(description="Modes it speaks for.")
    against: list[Mode] = Field(description="Modes it speaks against.")
    value: Number = Field(description="The value; null: could not look, see detail.")
    unit: Text = Field(description="Unit of value; 1 for plain numbers.")
    n: int = Field(ge=0, description="Rows it was computed from.")
    weight: Finite = Field(description="Its weight in the verdict, in log odds; 0: did not count.")
    basis: Basis = Field(description="How it is known.")
    detail: Text = Field(description="How it was computed, or why it could not be.")
    sql: Text | None = Field(description="A query on the export that shows the same; null: there is none.")
    examples: list[Example] = Field(description="The strongest intervals.")


class Detail(_Part):
    """One figure or statement about how the mode was used."""

    topic: Literal["streams", "mps", "mig", "time-slicing", "limits"] = Field(description="What it is about.")
    name: Text = Field(description="Stable name of the figure.")
    value: Number = Field(description="The value; null: a statement without a number.")
    unit: Text = Field(description="Unit of value; 1 for plain numbers.")
    basis: Basis = Field(description="How it is known.")
    detail: Text = Field(description="The same in words.")


class Rival(_Part):
    """A mode that was considered and not chosen."""

    mode: Mode = Field(description="The mode.")
    confidence: Fraction = Field(description="Its probability.")
    why_not: Text = Field(description="What speaks against it.")


class Missing(_Part):
    """Something that could not be looked at."""

    what: Text = Field(description="The key of this report that is null, or the records that were not captured.")
    why: Text = Field(description="Why it is not known.")
    how: Text = Field(description="The command or change that would capture it; empty: nothing would.")


class Sharing(_Part):
    """How the device was shared, with the proof."""

    mode: Mode = Field(description="The observed relation between tenants; undetermined: below 0.8.")
    confidence: Fraction = Field(
        description="Calibrated probability of mode; for undetermined, that of the strongest rival."
    )
    basis: Basis = Field(description="How it is known.")
    configured: Mode | None = Field(description="What the machine was set up to do; null: not known.")
    agrees: bool | None = Field(description="Configured and observed agree; null: one of them is not known.")
    summary: Text = Field(description="The verdict in one or two sentences.")
    evidence: list[Evidence] = Field(description="What speaks for and against, heaviest first.")
    details: list[Detail] = Field(
        default_factory=list,
        description="Slices and who else, clients and caps, profile, why streams followed each other; limits.",
    )
    rivals: list[Rival] = Field(description="The other modes, strongest first.")
    missing: list[Missing] = Field(description="What could not be looked at, for the whole device entry.")


class Relation(_Part):
    """What two tenants were to each other."""

    tenants: tuple[int, int] = Field(description="Tenant ids, the smaller first.")
    relation: RelationKind = Field(description="Kind of relation.")
    confidence: Fraction = Field(description="Probability of it.")
    co_busy_ns: int | None = Field(description="Both had work in flight, ns; null: one was not traced.")


class Segment(_Part):
    """A stretch of time with one mode."""

    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    mode: Mode = Field(description="The mode in it.")
    confidence: Fraction = Field(description="Probability of it.")


class ContextSwitches(_Part):
    """Switches between hardware contexts."""

    count: int = Field(ge=0, description="Switches between two contexts that both had work.")
    context_creations: int = Field(ge=0, description="Switches to or from a context that ran nothing yet.")
    median_slice_ns: int | None = Field(description="Median length of complete slices, ns.")
    median_cost_ns: int | None = Field(description="Median cost of a switch, ns.")
    mean_cost_ns: Number = Field(description="Mean cost of a switch, ns.")
    cost_kind: CostKind | None = Field(
        description="gap: SAVE_END to the next RESTORE_START; full: acknowledgement to CONTEXT_START."
    )
    total_cost_ns: int | None = Field(description="Sum of the costs, ns.")
    overhead_fraction: Number = Field(description="Total cost over the window.")
    endings: dict[Text, int] = Field(description="How slices ended (WFI, GFXP, CTAP, CILP, ...): count.")
    dropped: int | None = Field(description="Records lost, by sequence number; null: cannot be told.")


class HeldSlices(_Part):
    """What the slices of one tenant add up to."""

    tenant_id: int = Field(ge=0, description="The tenant.")
    slices: int = Field(ge=0, description="Complete slices.")
    cut_slices: int = Field(ge=0, description="Slices that the recording or lost records cut.")
    resident_share: Number = Field(description="Of the time in the window in which anybody held the engine.")
    idle_ns: int | None = Field(
        description="In the window, resident with none of its kernels in flight, ns; null: not traced."
    )
    idle_share: Number = Field(description="Of its residency in the window; null: not traced.")
    p10_slice_ns: int | None = Field(description="A tenth of its slices is not longer, ns.")
    median_slice_ns: int | None = Field(description="Median length of its complete slices, ns.")
    p90_slice_ns: int | None = Field(description="Nine tenths are not longer, ns.")
    max_slice_ns: int | None = Field(
        description="Longest, ns; slices are whole, though one may begin before the window."
    )
    expired: int | None = Field(
        description="Slices that lasted their time and that another tenant followed; null: no time slice is known."
    )
    yielded: int | None = Field(description="Shorter ones that another tenant followed; null: as expired.")


class Ledger(_Part):
    """Slices and the engine; `inferred` from kernels where the mode is time-slicing without switch records."""

    basis: Basis = Field(description="observed: switch records; inferred: starts and ends of kernels.")
    held_ns: int | None = Field(description="Of the window, somebody held the engine, ns.")
    idle_ns: int | None = Field(description="Of the window, nobody held it and no switch went on, ns; null: inferred.")
    median_save_ns: int | None = Field(description="Acknowledgement to SAVE_END, ns; null: no such tags.")
    median_restore_ns: int | None = Field(description="RESTORE_START to CONTEXT_START, ns; null: no such tags.")
    time_slice_ns: int | None = Field(description="Estimated time slice, ns; null: slices do not agree.")
    policy: Text | None = Field(
        description="short, default, medium or long, as of nvidia-smi compute-policy; NVIDIA publishes no lengths."
    )
    jain: Number = Field(description="Jain's index of residency in the window over tenants; 1 is equal.")
    tenants: list[HeldSlices] = Field(description="Per tenant, most residency first.")


class Estimate(_Part):
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


class Slowdown(_Part):
    """Three ratios, because they answer different questions."""

    elapsed: Estimate | None = Field(description="First launch to last end of the same work, shared over alone.")
    latency: Estimate | None = Field(description="Sum of end minus launch over the same units, shared over alone.")
    resident: Estimate | None = Field(description="Kernel time counted only while resident, shared over alone.")


class ExecutionSplit(_Part):
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


class Causes(_Part):
    """Where the added latency went; fractions of it, summing to 1."""

    launch: Number = Field(description="The API call itself.")
    queue: Number = Field(description="Ready and resident, but behind its stream or another tenant's blocks.")
    not_resident: Number = Field(description="Waiting for its slice, before the start or inside the kernel.")
    switch: Number = Field(description="The switches themselves.")
    execution: Number = Field(description="Resident and slower.")
    unexplained: Number = Field(description="The rest.")
    execution_split: ExecutionSplit | None = Field(description="Parts of execution; null: cannot be split.")


class Configuration(_Part):
    """Launches of one kernel with one shape."""

    key: Text = Field(description="Digest of the whole kernel name, grid and block: equal launches have equal keys.")
    kernel: Text = Field(description="Kernel name without parameters, shortened. Hostile text.")
    grid_blocks: int | None = Field(description="Blocks in the grid; null: not exported.")
    block_threads: int | None = Field(description="Threads in a block; null: not exported.")
    launches: int = Field(ge=1, description="How often.")
    total_ns: int = Field(description="Sum of their durations as recorded, ns; switched-out time included.")
    charged_total_ns: int = Field(description="Sum of the parts in which its context held the engine, ns.")


class Batch(_Part):
    """A run of consecutive launches; what a batch took differs from the next by noise."""

    launches: int = Field(ge=1, description="Launches in it.")
    idle_ns: int = Field(description="Nothing of the tenant was in flight, and no other tenant was in its way, ns.")
    idle_absent_ns: int = Field(description="Nothing was in flight while another tenant's context held the engine, ns.")
    idle_beside_ns: int = Field(
        description="Nothing was in flight while a tenant that may run beside it had kernels in flight, ns."
    )
    busy_ns: int = Field(description="Union of its kernel and graph intervals as recorded, ns.")
    charged_ns: int = Field(description="The part of it in which its context held the engine, ns.")


class Work(_Part):
    """What a tenant launched, and where its time went: all that two runs are compared by."""

    launches: int = Field(ge=0, description="Kernels and whole-graph launches.")
    graph_launches: int = Field(ge=0, description="Whole-graph launches among them; their kernels are not seen.")
    copies: int = Field(ge=0, description="Copies and sets.")
    copy_bytes: int | None = Field(description="Copied or set, bytes; null: copies were not traced.")
    residency_known: bool = Field(description="Switch records say when its context held the engine.")
    configurations: list[Configuration] = Field(description="Launch configurations with most time, most first.")
    other_launches: int = Field(ge=0, description="Launches of configurations that are not listed.")
    other_ns: int = Field(ge=0, description="Sum of their durations as recorded, ns.")
    batches: list[Batch] = Field(description="Consecutive runs of about equally many launches, in order.")


class Tail(_Part):
    """One percentile of kernel latency, launch to end."""

    percentile: int = Field(ge=1, le=99, description="Such as 95.")
    shared_ns: int = Field(description="In company, ns.")
    alone_ns: int = Field(description="Alone, ns.")
    ratio: Finite = Field(description="Shared over alone.")


class UnitsOfWork(_Part):
    """Units of one name, from their begin to the end of their last operation."""

    name: Text = Field(description="Name of the NVTX ranges, or given units. Hostile text.")
    latency: Estimate = Field(description="Sum of their latencies, shared over alone.")
    tails: list[Tail] = Field(description="Percentiles of their latency.")


class Pace(_Part):
    """Kernels and graph launches a second, over the time from first launch to last end."""

    shared_per_s: Finite = Field(description="In company.")
    alone_per_s: Finite = Field(description="Alone.")


class HostFinding(_Part):
    """Something outside of the GPU that makes a tenant slow."""

    tenant_id: int = Field(description="Tenant id.")
    what: Text = Field(description="held launches, slow launches, slower calls than alone, idle between launches.")
    detail: Text = Field(description="The evidence, in a sentence.")
    share: Finite = Field(description="Of the tenant's time.")


class BaselineNotUsed(_Part):
    """A baseline that was given, and with which a tenant was not compared."""

    baseline: Text = Field(description="Name of the file.")
    reasons: list[NotUsedReason] = Field(
        min_length=1, description="no-common-work, other-gpu-model, not-solo, ambiguous: one or several."
    )
    detail: Text = Field(description="The same in a sentence.")


class Tenant(_Part):
    """One process (or group that cannot be told apart) on the device."""

    tenant_id: int = Field(ge=0, description="Id inside this report.")
    capture: int | None = Field(description="Index into captures; null: seen in samples only.")
    pid: int | None = Field(description="Process id as the capture has it (in a container: the container's).")
    host_pid: int | None = Field(description="Process id on the host; null: nothing named it.")
    name: Text = Field(description="Process name or description. Hostile text.")
    container: Text | None = Field(description="Container.")
    pod: Text | None = Field(description="Kubernetes pod.")
    contexts: list[int] = Field(description="CUDA context ids.")
    served_by: int | None = Field(
        default=None,
        description="tenant_id of the MPS server whose context its work goes through; null: none, or unknown.",
    )
    busy_ns: int | None = Field(
        description="Union of its kernel and copy-free graph intervals as recorded, ns; null: not traced."
    )
    resident_ns: int | None = Field(
        description="In the window, its context held the compute engine, ns; null: no switch records."
    )
    charged_ns: int | None = Field(
        description="Busy intersected with resident, ns; equals busy_ns where nothing is switched out."
    )
    slices: int | None = Field(
        description="Complete slices of its contexts, context creation left out; null: no switch records."
    )
    median_slice_ns: int | None = Field(description="Their median length, ns; null: no complete slice.")
    sm_share: Number = Field(description="Its part of all SM time that any tenant used, 0 to 1; modelled.")
    occupancy: Number = Field(description="Mean resident warps over the device's warp slots, 0 to 1; modelled.")
    memory_peak_bytes: int | None = Field(description="Largest device memory seen in use, bytes.")
    slowdown: Slowdown = Field(description="How much slower than alone.")
    causes: Causes | None = Field(description="Where the added latency went; null: not known, or nothing was added.")
    work: Work | None = Field(default=None, description="What it launched; null: not traced.")
    baseline: Text | None = Field(
        default=None,
        description="The recording alone that it was compared with; null: this run, played again without the others.",
    )
    tails: list[Tail] = Field(default=[], description="Percentiles of kernel latency; empty: not known.")
    units: list[UnitsOfWork] = Field(default=[], description="Units of work, most of the time first.")
    pace: Pace | None = Field(default=None, description="Work per second; null: not known.")
    slowdown_notes: list[Text] = Field(default=[], description="What to know when reading its slowdown.")
    baselines_not_used: list[BaselineNotUsed] = Field(
        default=[],
        description="Baselines that are not of this tenant, or cannot be compared. One that is of no tenant at all is "
        "listed with each tenant that has none: it may be the one that was meant.",
    )


class CounterCheck(_Part):
    """The modelled occupancy beside what sampled counters said."""

    sm_active: Number = Field(description="Mean fraction of SMs active by counter; sampled.")
    warps: Number = Field(description="Mean warps over warp slots by counter; sampled.")
    n: int = Field(ge=0, description="Samples.")
    agrees: bool | None = Field(description="Model and counter agree within the model's tolerance.")
    detail: Text = Field(description="What was compared, how far apart, and what only one of them sees.")
    bins: int = Field(ge=0, description="Time bins over which model and counters were compared.")
    sm_active_difference: float = Field(description="Mean modelled less mean counted, fraction of the SMs.")
    warps_difference: float | None = Field(description="The same of warps, fraction of the slots; null: not counted.")
    sm_active_by_bin: float = Field(description="Mean over bins of how far apart they are, fraction of the SMs.")
    warps_by_bin: float | None = Field(description="The same of warps, fraction of the slots; null: not counted.")
    warps_factor: float | None = Field(
        description="Counted over modelled warps: a calibration, not applied to anything in this report."
    )


class Occupancy(_Part):
    """How full the SMs were: means over the window, as fractions of the device."""

    sm_active: Number = Field(description="Mean fraction of SMs with at least one warp.")
    warps: Number = Field(description="Mean resident warps over all warp slots.")
    limiters: dict[Text, Fraction] = Field(
        description="Resource that limits occupancy: fraction of kernel time under it. Ties count for each."
    )
    basis: Basis = Field(description="modelled: no supported interface measures this per SM.")
    check_against_counters: CounterCheck | None = Field(description="null: no counter samples to compare with.")


class MatrixCell(_Part):
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


class Interference(_Part):
    """Device-wide figures, from elapsed slowdowns."""

    antt: Number = Field(description="Average normalised turnaround time: mean slowdown.")
    stp: Number = Field(description="System throughput: sum of 1 / slowdown; at most the number of tenants.")
    jain: Number = Field(description="Jain's fairness index of 1 / slowdown; 1 is fair.")
    matrix: list[MatrixCell] | None = Field(description="Who slowed whom; null: could not be told.")
    harmonic: Number = Field(default=None, description="Harmonic speedup: 1 / antt.")
    unfairness: Number = Field(default=None, description="Largest slowdown over the smallest.")
    standing: Text | None = Field(
        default=None,
        description="No interference, better than / as good as one after the other, or destructive; null: not known.",
    )


class Advice(_Part):
    """One thing to change."""

    action: Text = Field(description="What to do, in one line.")
    commands: list[Text] = Field(description="Commands that do it.")
    expected: Text | None = Field(description="What it should give; null: cannot be said.")
    bound: Text | None = Field(description="The most it can give; a bound is not a prediction.")
    why: Text = Field(description="Which evidence it follows from.")
    undo: Text | None = Field(description="How to take it back.")
    wrong_if: Text | None = Field(default=None, description="What would prove it wrong; null: nothing is predicted.")


class ForecastRow(_Part):
    """What a way to share would do to a tenant; modelled."""

    tenant_id: int = Field(description="Tenant.")
    slowdown: float = Field(gt=0, description="Elapsed time of the same launches over that alone on the whole GPU.")
    low: float = Field(ge=0, description="Lower bound of it.")
    high: float = Field(ge=0, description="Upper bound of it.")
    latency: float | None = Field(description="Kernel latency (launch to end) over alone; null: no API calls.")
    p99_ns: int | None = Field(description="99th percentile of kernel latency; null: no API calls.")


class SharingOption(_Part):
    """A way to share the device that was replayed; modelled."""

    name: Text = Field(description="Such as `MPS, exact caps`.")
    mode: Mode = Field(description="Sharing mode that it makes.")
    antt: float = Field(gt=0, description="Mean slowdown.")
    stp: float = Field(gt=0, description="Sum of 1 / slowdown.")
    current: bool = Field(description="It is how the capture shows the device shared.")
    recommended: bool = Field(description="It is the one advised.")
    lacks: list[Text] = Field(description="Requirements (`--require`) that its mode does not promise.")
    tenants: list[ForecastRow] = Field(description="Per tenant.")


class ResidencySlice(_Part):
    """A slice (only with --detail)."""

    tenant_id: int | None = Field(description="Tenant; null: no tenant could be named.")
    hw_context: int = Field(description="Hardware context.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    basis: Basis = Field(description="How it is known.")


class SmWarps(_Part):
    """Mean resident warps per SM and time bin (only with --detail); modelled."""

    start_ns: int = Field(description="Start of the first bin, ns from the origin.")
    end_ns: int = Field(description="End of the last bin, ns from the origin.")
    warps: list[list[float]] = Field(description="Per time bin: mean resident warps of SM 0 to n-1.")


class Device(_Part):
    """One GPU, or one MIG instance."""

    device_id: int = Field(ge=0, description="Id inside this report.")
    uuid: Text | None = Field(description="UUID of the GPU or MIG instance.")
    gpu_uuid: Text | None = Field(description="UUID of the board.")
    window: Window | None = Field(description="First to last tenant activity; null: no activity was recorded.")
    memory: Memory | None = Field(description="Device memory; null: not known.")
    name: Text | None = Field(description="Product name.")
    sm_count: int | None = Field(description="Streaming multiprocessors.")
    compute_capability: Text | None = Field(description="Such as 8.9.")
    mig: Mig | None = Field(description="null: not a MIG instance.")
    sharing: Sharing = Field(description="How it was shared.")
    relations: list[Relation] = Field(description="Per pair of tenants.")
    segments: list[Segment] = Field(description="The mode over time.")
    context_switches: ContextSwitches | None = Field(description="null: no switch records.")
    ledger: Ledger | None = Field(default=None, description="null: residency is neither observed nor inferred.")
    tenants: list[Tenant] = Field(description="Who was on it.")
    occupancy: Occupancy | None = Field(description="null: could not be modelled.")
    interference: Interference | None = Field(description="null: could not be computed.")
    advice: list[Advice] = Field(description="What to change, best first.")
    host: list[HostFinding] = Field(default=[], description="What lies with the host: read it before blaming the GPU.")
    sampled: Sampled | None = Field(default=None, description="null: no samples of the whole device.")
    options: list[SharingOption] | None = Field(
        default=None, description="Ways to share it, best mean slowdown first; null: not compared."
    )
    residency: list[ResidencySlice] | None = Field(default=None, description="Only with --detail.")
    sm_warps: SmWarps | None = Field(default=None, description="Only with --detail.")

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


class Report(_Part):
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
    samples_not_used: list[Text] = Field(
        default=[],
        description="Of each file of samples that are of another time than the captures, in a sentence: it answers "
        "nothing.",
    )
    view: View | None = Field(default=None, description="null: all of the captures, names as recorded.")

    @property
    def synthetic(self) -> bool:
        """Whether any capture was made by a generator instead of being recorded on a GPU."""
        return any(row.name == "synthetic_capture" and row.count for row in self.quality)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of the contract; floats rounded to 9 significant digits.

        ``residency`` and ``sm_warps`` appear only where they were asked for (``--detail``).

        Examples
        --------
        >>> import pyanalyze
        >>> report = pyanalyze.load(capture).report()
        >>> sorted(report.to_dict())
        ['captures', 'clock', 'devices', 'quality', 'schema', 'tool', 'view']
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


def rounded(value: Any) -> Any:
    """Plain data with nine significant digits: below every uncertainty here, and free of binary noise in diffs.

    Examples
    --------
    >>> rounded({"x": [0.1 + 0.2, None]})
    {'x': [0.3, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


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
        # A server of MPS clients has no work of its own that could be slowed.
        servers = {t.served_by for t in device.tenants}
        if any(
            t.slowdown.elapsed is None and t.slowdown.latency is None and t.slowdown.resident is None
            for t in device.tenants
            if t.tenant_id not in servers
        ):
            nulls.append("slowdown")
        found += [f"devices[{device.device_id}].{key}" for key in nulls if key not in explained]
    return found
