"""The words that every layer uses: sharing modes with their traits, bases, relations, thresholds of several layers.

What a mode means is data: one row for each mode in :data:`TRAITS`. No other module tests the name of a mode, so a new
mode is a member, a row and a rule. References such as "B4" are sections of DOMAIN.md, the collected facts about GPUs;
NVIDIA's documents are named in the promises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: How a value is known.
Basis = Literal["observed", "inferred", "modelled", "sampled", "configured"]
#: What two tenants of one device were to each other.
RelationKind = Literal["time-sliced", "side-by-side", "partitioned", "isolated", "apart", "unknown"]
#: What ``--require`` may name.
Requirement = Literal["fault-isolation", "memory-protection", "bandwidth-qos"]
REQUIREMENTS: Final[tuple[Requirement, ...]] = ("fault-isolation", "memory-protection", "bandwidth-qos")


class Word(StrEnum):
    """A word that users compare and print as the string that it equals."""

    def __repr__(self) -> str:
        """Show the string."""
        return repr(self.value)


class Answer(StrEnum):
    """Whether sharing the GPU is the cause of a slowdown."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Condition(Word):
    """What a verdict about one traced process depends on: other processes that nothing excludes."""

    UNLESS_UNTRACED_TENANT = "unless-untraced-tenant"
    UNLESS_MPS_MIG_OR_RARE_TENANT = "unless-mps-mig-or-rare-tenant"
    UNLESS_MPS_OR_RARE_TENANT = "unless-mps-or-rare-tenant"
    UNLESS_MIG_OR_RARE_TENANT = "unless-mig-or-rare-tenant"
    UNLESS_RARE_TENANT = "unless-rare-tenant"


#: Those processes in words.
_NOT_EXCLUDED: Final[Mapping[Condition, str]] = {
    Condition.UNLESS_UNTRACED_TENANT: "other processes on the GPU",
    Condition.UNLESS_MPS_MIG_OR_RARE_TENANT: "MPS clients, processes in other instances, brief or occasional ones",
    Condition.UNLESS_MPS_OR_RARE_TENANT: "MPS clients, brief or occasional processes",
    Condition.UNLESS_MIG_OR_RARE_TENANT: "processes in other MIG instances, brief or occasional ones",
    Condition.UNLESS_RARE_TENANT: "brief or occasional processes",
}


def not_excluded(condition: Condition, mode: Mode | None) -> str:
    """Name the other processes that nothing excludes, to stand behind `not excluded:`.

    Examples
    --------
    >>> not_excluded(Condition.UNLESS_UNTRACED_TENANT, Mode.EXCLUSIVE)
    'other processes on the GPU'
    >>> not_excluded(Condition.UNLESS_UNTRACED_TENANT, Mode.MIG)
    'other processes in the same instance'
    """
    text = _NOT_EXCLUDED[condition]
    # Processes in other instances of the board leave the mode as it is.
    return (
        text.replace("on the GPU", "in the same instance") if mode is not None and TRAITS[mode].mig_instance else text
    )


def condition_text(condition: Condition, mode: Mode | None) -> str:
    """The condition of a verdict in words: what was seen of other processes, and which of them nothing excludes.

    Examples
    --------
    >>> condition_text(Condition.UNLESS_MPS_OR_RARE_TENANT, Mode.EXCLUSIVE)
    'no sign of another process (not excluded: MPS clients, brief or occasional processes)'
    >>> condition_text(Condition.UNLESS_UNTRACED_TENANT, Mode.MIG)
    'nothing shows whether there were other processes in the same instance'
    """
    others = not_excluded(condition, mode)
    if condition is Condition.UNLESS_UNTRACED_TENANT:
        return f"nothing shows whether there were {others}"
    return f"no sign of another process (not excluded: {others})"


def unless(condition: Condition | None, mode: Mode | None) -> str:
    """The condition of a verdict, to stand behind the mode; empty where it has none.

    Examples
    --------
    >>> "exclusive" + unless(Condition.UNLESS_RARE_TENANT, Mode.EXCLUSIVE), "mps" + unless(None, Mode.MPS)
    ('exclusive, no sign of another process (not excluded: brief or occasional processes)', 'mps')
    """
    return "" if condition is None else f", {condition_text(condition, mode)}"


class UnitSource(Word):
    """How units of work were found; the words of the core, in its order."""

    GIVEN = "given"
    RANGE = "nvtx"
    GRAPH = "graph"
    SYNCHRONISATION = "synchronisation"


#: The same in words, to stand behind "units: ".
UNIT_SOURCE_TEXT: Final[Mapping[UnitSource, str]] = {
    UnitSource.GIVEN: "given with --work",
    UnitSource.RANGE: "NVTX ranges",
    UnitSource.GRAPH: "launches of whole graphs",
    UnitSource.SYNCHRONISATION: "launches between two synchronisations, found by repetition",
}


class CopyCondition(Word):
    """What a forecast of copies of a tenant depends on."""

    MPI_RANK = "mpi-rank"
    UNSEEN_WAITS = "unseen-waits"


#: The same in words, of the tenants that are named before it.
COPY_CONDITION_TEXT: Final[Mapping[CopyCondition, str]] = {
    CopyCondition.MPI_RANK: "called MPI: the forecast is of independent copies, which do not wait for the other ranks "
    "of a job",
    CopyCondition.UNSEEN_WAITS: "may have waited for kernels without a call, such as for a flag in memory: slowdowns "
    "and latencies are at least, and throughput is at most, what is forecast",
}


class SegmentKind(Word):
    """What a part of the duration of a unit of work was; the words of the core, in its order."""

    HOST = "host"
    LAUNCH = "launch"
    QUEUE_SAME_STREAM = "queue-same-stream"
    QUEUE_OTHER_STREAM = "queue-other-stream"
    QUEUE_OTHER_TENANT = "queue-other-tenant"
    COPY = "copy"
    TIME_SLICE = "time-slice"
    SWITCH = "switch"
    EXECUTION = "execution"
    SYNCHRONISATION = "synchronisation"
    OTHER_THREAD = "other-thread"
    EVENT = "event"
    UNEXPLAINED = "unexplained"


#: The same in words, as text and tables say them.
SEGMENT_TEXT: Final[Mapping[SegmentKind, str]] = {
    SegmentKind.HOST: "host",
    # The call, and until an idle device started.
    SegmentKind.LAUNCH: "launch",
    SegmentKind.QUEUE_SAME_STREAM: "queueing (same stream)",
    SegmentKind.QUEUE_OTHER_STREAM: "queueing (other stream)",
    SegmentKind.QUEUE_OTHER_TENANT: "queueing (other tenant)",
    SegmentKind.COPY: "copy or memset",
    SegmentKind.TIME_SLICE: "waiting for its time slice",
    SegmentKind.SWITCH: "context switch",
    SegmentKind.EXECUTION: "execution",
    SegmentKind.SYNCHRONISATION: "synchronisation return",
    SegmentKind.OTHER_THREAD: "other thread",
    SegmentKind.EVENT: "waiting for an event (source unknown)",
    SegmentKind.UNEXPLAINED: "unexplained",
}


#: Kinds of which only residency says how long they took: where nobody knows whether contexts alternate, any of them may
#: hold time that is another's.
RESTS_ON_RESIDENCY: Final = frozenset(
    {
        SegmentKind.QUEUE_SAME_STREAM,
        SegmentKind.QUEUE_OTHER_STREAM,
        SegmentKind.QUEUE_OTHER_TENANT,
        SegmentKind.TIME_SLICE,
        SegmentKind.SWITCH,
        SegmentKind.EXECUTION,
        SegmentKind.UNEXPLAINED,
    }
)


class ResidencyDoubt(Word):
    """What stands between units of work and their causes on a device without switch records."""

    IF_TIME_SLICED = "if-time-sliced"
    IF_ALONE = "if-alone"
    UNDECIDED = "undecided"
    BELOW_PRECISION = "below-precision"


#: Doubts with which a cause that rests on residency may be another.
UNSETTLING: Final = frozenset({ResidencyDoubt.UNDECIDED, ResidencyDoubt.BELOW_PRECISION})
#: The same in words.
DOUBT_TEXT: Final[Mapping[ResidencyDoubt, str]] = {
    ResidencyDoubt.IF_TIME_SLICED: "if the tenants are time-sliced, which is most likely but not certain",
    ResidencyDoubt.IF_ALONE: "if no other process used the GPU, which the capture does not exclude",
    ResidencyDoubt.UNDECIDED: (
        "no record or kernel tells whether other tenants had time slices: waiting for one may be part of execution "
        "and queueing"
    ),
    ResidencyDoubt.BELOW_PRECISION: (
        "the excess is smaller than the error of time slices that are inferred from kernels"
    ),
}


#: What the time to save and restore a context is inferred from where no record has it (`context_state`).
INFERRED_STATE: Final = {
    "kernels": "from the extra time of kernels that were switched out",
    "starts": "from when kernels start and end in residency intervals",
}


class StreamReason(Word):
    """Why two streams of one process did not execute at the same time; in the order of the documentation."""

    LAUNCHED_LATE = "launched-late"
    LAUNCH_LATENCY = "launch-latency"
    COPY_IN_FRONT = "copy-in-front"
    COPY_ENGINE = "copy-engine"
    BLOCKING_CALL = "blocking-call"
    SYNCHRONIZATION = "synchronization"
    DEPENDENCY = "dependency"
    UNKNOWN_DEPENDENCY = "unknown-dependency"
    DEFAULT_STREAM = "default-stream"
    SM_RESOURCES = "sm-resources"
    POSSIBLY_SM_RESOURCES = "possibly-sm-resources"
    WHOLE_DEVICE_LAUNCH = "whole-device-launch"
    SHARED_CHANNEL = "shared-channel"
    POSSIBLY_SHARED_CHANNEL = "possibly-shared-channel"
    GRAPH = "graph"
    LAUNCH_BLOCKING = "launch-blocking"
    EVENT_TRACING = "possibly-event-tracing"
    OTHER_PROCESS = "possibly-other-process"
    OTHER_CONTEXT = "other-context"
    TIME_SLICE = "time-slice"
    NO_WORK = "no-work"
    CONTENTION = "contention"
    UNEXPLAINED = "unexplained"


#: The program or the device puts the two in order: that time could not have overlapped.
IN_ORDER: Final = frozenset({StreamReason.GRAPH, StreamReason.DEPENDENCY, StreamReason.COPY_ENGINE})
#: Time without overlap for these reasons is not lost: while SMs are full, another kernel gains nothing.
NOT_LOST: Final = IN_ORDER | {StreamReason.SM_RESOURCES}


class CopyDirection(Word):
    """Where a copy came from and went to."""

    TO_DEVICE = "to-device"
    TO_HOST = "to-host"
    ON_DEVICE = "on-device"
    BETWEEN_DEVICES = "between-devices"
    TO_PEER = "to-peer"
    FROM_PEER = "from-peer"
    OTHER = "other"


class HostMemory(Word):
    """Memory of the host that a copy read or wrote."""

    PAGEABLE = "pageable"
    PINNED = "pinned"
    MANAGED = "managed"
    DEVICE = "device"
    OTHER = "other"


class Part(StrEnum):
    """A part of an answer that takes time to compute: a command asks for those that it shows."""

    SEGMENTS = "segments"
    RESIDENCY = "residency"
    OCCUPANCY = "occupancy"
    INTERFERENCE = "interference"
    WORK = "work"
    STREAMS = "streams"
    COPIES = "copies"
    ADVICE = "advice"
    UNITS = "units"


#: All parts of an answer: a report.
EVERY_PART: Final = frozenset(Part)


class Mode(Word):
    """How the tenants of one device share it; in the order of the documentation."""

    EXCLUSIVE = "exclusive"
    STREAMS = "streams"
    TIME_SLICING = "time-slicing"
    MPS_PRE_VOLTA = "mps-pre-volta"
    MPS = "mps"
    MPS_PARTITIONED = "mps-partitioned"
    MPS_STATIC_PARTITION = "mps-static-partition"
    MPS_TIME_SLICING = "mps+time-slicing"
    MIG = "mig"
    MIG_SHARED_CI = "mig-shared-ci"
    MIG_TIME_SLICING = "mig+time-slicing"
    MIG_MPS = "mig+mps"
    VGPU_TIME_SLICED = "vgpu-time-sliced"
    VGPU_MIG = "vgpu-mig"
    GREEN_CONTEXTS = "green-contexts"
    SOFTWARE_LIMITED = "software-limited"
    UNDETERMINED = "undetermined"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Describe a mode in a JSON schema where it stands, as the strings that are allowed, and take such strings."""
        from pydantic_core import core_schema

        return core_schema.literal_schema(list(cls))


MODES: Final[tuple[Mode, ...]] = tuple(Mode)

#: Programs of MPS. Where names are cut to 15 characters, as in PROCESSES of nsys and in `comm` of Linux, both have the
#: last one.
MPS_CONTROL: Final = "nvidia-cuda-mps-control"
MPS_SERVER: Final = "nvidia-cuda-mps-server"
MPS_CUT_NAME: Final = "nvidia-cuda-mps"
#: What NVML calls the type of a process with a compute context of its own, and that of a client of an MPS server.
COMPUTE: Final = "C"
MPS_CLIENT: Final = "M+C"
#: Keys of settings: a server that failed, and a client that waits behind the server of another user.
MPS_FAULT: Final = "mps_fault"
MPS_PENDING: Final = "mps_client_pending"


# Thresholds that several layers share -------------------------------------------------------------------------------

#: Probability. A verdict below it is `undetermined`: the contract of the JSON.
MIN_CONFIDENCE: Final = 0.8
#: Ratio, shared over solo, by how it is known. Part of the one rule of what counts as slowed, :func:`is_slowed`.
#: Observed, against a baseline: two runs of one program differ by 2 % without another tenant. Inferred: the
#: counterfactual replay of tenants that nobody slowed is up to 3 % off.
SLOWED: Final[Mapping[str, float]] = {"observed": 1.02, "inferred": 1.03}
#: Ratio, shared over solo. An interval that includes 1 and ends below it excludes any slowdown that is worth acting on,
#: so that sharing is not the cause; one that ends above shows nothing. What counts as slowed does not depend on it.
EXCLUDED_ABOVE: Final = 1.05
#: Fraction of the time of equal work. Two runs of one program on one GPU differ by this much for reasons that no
#: capture shows (clocks, temperature, placement).
NOISE_FLOOR: Final = 0.02
#: Fraction of the window. What could save less time is not worth naming, or is called small.
SMALL_SHARE: Final = 0.02
#: Fraction of a slowdown. A way to share that takes less off it is not worth a change, nor is one that adds less named.
WORTH_IT: Final = 0.05
#: Part by which two slowdowns of one tenant differ from which on both are said.
NOTABLE_DIFFERENCE: Final = 0.05
#: Part of a process's time from which on a sentence names a part.
NAMED_SHARE: Final = 0.01
#: Fraction of a device's residency, or of the window. A tenant with less is a display, or a context that is created and
#: closed: it changes no figure that is printed.
NEGLIGIBLE_RESIDENCY: Final = 0.001
#: Part of the recording. A shorter window is named beside it: what shares are of is not the whole run.
SHORT_WINDOW: Final = 0.5
#: Ratio from which two lengths of residency intervals are not one; so many intervals have a median.
UNLIKE_INTERVALS: Final = 1.2
ENOUGH_INTERVALS: Final = 5
#: Ratio, 99th percentile over median of the durations of units of work. From here on a report explains the slowest; a
#: shorter tail is what units of one program differ by anyway.
SLOW_TAIL: Final = 1.2
#: Fewer ranges of one name are no units of work, as in the core.
ENOUGH_UNITS: Final = 5
#: Fewer units of one name have no percentiles.
ENOUGH_FOR_TAIL: Final = 20
#: Of fewer values p10 and p90, by nearest rank, are the least and the largest: they are called that.
ENOUGH_FOR_P10_P90: Final = 10
#: Blocks of a grid over SMs up to which it is too small: a tenth of the SMs or more have no block of it.
FEW_BLOCKS: Final = 0.9
#: Copies of tenants on one device that are forecast: as many clients as one MPS server takes (up to CUDA 13.0).
MOST_COPIES: Final = 48
#: Fraction of device memory that contexts, libraries and fragmentation may need on top of what was seen: an allocator
#: fragments before it is full.
MEMORY_RESERVE: Final = 0.1


def is_slowed(value: float, low: float | None, basis: str) -> bool:
    """Whether a slowdown is one: sentences, causes, aggressors and fleets all ask this.

    The value reaches the threshold of its basis, and its whole interval (or its lower bound) lies above 1. A slowdown
    without an end of its interval below is not shown.

    Parameters
    ----------
    value, low
        Ratio, shared over solo, and the lower end of its interval; None: it has none.
    basis
        How it is known.

    Examples
    --------
    >>> is_slowed(1.02, 1.01, "observed"), is_slowed(1.02, 1.01, "inferred"), is_slowed(1.5, 0.9, "observed")
    (True, False, False)
    """
    return value >= threshold_of(basis) and low is not None and low > 1.0


def are_unlike(medians_ns: Collection[int]) -> bool:
    """Whether the medians of residency intervals of tenants are not one length: then hardly any is as long as all.

    Examples
    --------
    >>> are_unlike([2_000_000, 2_100_000]), are_unlike([2_000_000, 2_400_000]), are_unlike([2_000_000])
    (False, True, False)
    """
    return len(medians_ns) > 1 and max(medians_ns) >= UNLIKE_INTERVALS * min(medians_ns)


def threshold_of(basis: str) -> float:
    """The value from which on a slowdown known in this way may count.

    Examples
    --------
    >>> threshold_of("observed"), threshold_of("inferred")
    (1.02, 1.03)
    """
    return SLOWED["observed" if basis == "observed" else "inferred"]


# What modes mean ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promises:
    """What a mode promises between tenants, whatever runs, by NVIDIA's documents and published measurements.

    None was measured in a capture.

    Attributes
    ----------
    memory_protection
        A tenant cannot read or write another one's memory; None: nothing is known of the mode.
    fault_isolation
        A tenant's GPU fault does not end the others; None: sources disagree, or nothing is known.
    bandwidth_qos
        A tenant has DRAM bandwidth and L2 of its own; None: nothing is known.
    own_sms
        A tenant's SMs are its own while it runs; None: nothing is known.
    max_partitions
        How many tenants at most; None: no fixed number.
    partitions_note
        What the number depends on; empty: nothing.
    reconfigurable
        When it can be changed.
    telemetry
        What samples can still say per tenant.
    not_isolated
        What tenants still share.
    sources
        Where this is stated; empty: nothing is known.
    """

    memory_protection: bool | None
    fault_isolation: bool | None
    bandwidth_qos: bool | None
    own_sms: bool | None
    max_partitions: int | None
    reconfigurable: str
    telemetry: str
    not_isolated: str
    sources: tuple[str, ...]
    partitions_note: str = ""

    @property
    def most_tenants(self) -> str:
        """How many tenants at most, in words.

        Examples
        --------
        >>> TRAITS[Mode.MPS].promises.most_tenants, TRAITS[Mode.TIME_SLICING].promises.most_tenants
        ('48 (60 from CUDA 13.1 on)', 'no fixed number')
        """
        if self.max_partitions is None:
            return "no fixed number"
        return f"{self.max_partitions}{f' ({self.partitions_note})' if self.partitions_note else ''}"

    def meets(self, requirement: Requirement) -> bool:
        """Whether the mode promises that; what sources disagree on is no promise.

        Examples
        --------
        >>> TRAITS[Mode.MPS].promises.meets("fault-isolation")
        False
        """
        return self._promised(requirement) is True

    def _promised(self, requirement: Requirement) -> bool | None:
        return {
            "fault-isolation": self.fault_isolation,
            "memory-protection": self.memory_protection,
            "bandwidth-qos": self.bandwidth_qos,
        }[requirement]

    def lacks(self, required: Iterable[Requirement]) -> tuple[Requirement, ...]:
        """Those of the requirements that the mode does not promise.

        Examples
        --------
        >>> TRAITS[Mode.TIME_SLICING].promises.lacks(["memory-protection", "bandwidth-qos"])
        ('bandwidth-qos',)
        """
        return tuple(requirement for requirement in required if not self.meets(requirement))

    def shortfall(self, required: Iterable[Requirement]) -> str:
        """Say which of the requirements the mode does not promise, and where sources disagree; ``{0}`` is its name.

        Examples
        --------
        >>> TRAITS[Mode.TIME_SLICING].promises.shortfall(["fault-isolation"]).format("time-slicing")
        'sources disagree whether time-slicing provides fault-isolation'
        """
        disputed = [one for one in self.lacks(required) if self.sources and self._promised(one) is None]
        never = [one for one in self.lacks(required) if one not in disputed]
        said = [f"{' or '.join(never)} is not promised by {{0}}"] if never else []
        return ", and ".join([*said, *(f"sources disagree whether {{0}} provides {one}" for one in disputed)])


@dataclass(frozen=True)
class Traits:
    """What a mode says of the tenants on its device. None: the mode leaves it open.

    Attributes
    ----------
    one_process
        One process had the device, which may be a MIG instance.
    time_sliced
        Contexts alternate on the compute engine, so a kernel's interval may include time switched out.
    same_sms
        Blocks of several tenants run on the same SMs at once.
    mps
        Tenants are clients of an MPS server.
    capped
        A tenant reaches fewer SMs than the device has.
    partitioned
        Tenants run at once, each on SMs that no other has.
    mig_instance
        The device is a MIG instance, and is named as one.
    vgpu
        The device is a virtual GPU: other virtual machines on its board are not seen from it.
    shares_outside
        Tenants outside of the device, of whom a capture shows nothing, share its SMs or its memory system.
    limited
        A limiter of the program or the container holds tenants back, and would do so solo.
    promises
        What is documented of the mode, whatever runs.
    """

    promises: Promises
    one_process: bool = False
    time_sliced: bool | None = False
    same_sms: bool | None = False
    mps: bool = False
    capped: bool | None = False
    partitioned: bool = False
    mig_instance: bool = False
    vgpu: bool = False
    shares_outside: bool = False
    limited: bool = False

    @property
    def solo(self) -> bool:
        """Whether one process had the device and no tenant elsewhere shares its hardware, but for power and PCIe.

        Examples
        --------
        >>> [mode for mode in Mode if TRAITS[mode].solo]
        ['exclusive', 'streams', 'mig', 'green-contexts']
        """
        return self.one_process and not self.shares_outside


_MPS = "NVIDIA, Multi-Process Service (deploy/mps): architecture, when to use, limitations"
_MIG = "NVIDIA, Multi-Instance GPU user guide"
_VGPU = "NVIDIA, Virtual GPU software user guide: scheduling, vGPU types (a fixed frame buffer each)"
_SLICING = "Gilman and Walls, Characterizing concurrency mechanisms for NVIDIA GPUs, arXiv 2110.00459"
_OPERATOR = "NVIDIA, GPU operator: time-slicing GPUs in Kubernetes"
_CUDA = "NVIDIA, CUDA C++ programming guide: streams, green contexts"
_EXPORTER = "NVIDIA/dcgm-exporter issue 478 and NVIDIA/DCGM issue 58"

_PER_PROCESS = "per process: memory and utilisation (NVML); SM activity of the whole GPU only"
_MPS_SHARED = "clients share DRAM bandwidth, L2, copy engines, scheduling hardware and the server; a fault reaches all"
_MIG_SHARED = (
    "power, clocks, the PCIe link and the last-level TLB belong to the whole board; a reset stops all instances"
)
_SLICED_HARDWARE = "L2 is refilled after each time slice; copies of all tenants run at any time"
_SLICED_SHARED = f"memory capacity is not partitioned; {_SLICED_HARDWARE}"
_FAULTS = (
    ". Each process has its own context, so a fault should end only that process; NVIDIA's GPU operator "
    "documentation says that replicas have no memory or fault isolation"
)

_NOTHING_KNOWN = Promises(
    memory_protection=None, fault_isolation=None, bandwidth_qos=None, own_sms=None, max_partitions=None,
    reconfigurable="", telemetry="", not_isolated="", sources=(),
)  # fmt: skip
_EXCLUSIVE = Promises(
    memory_protection=True, fault_isolation=True, bandwidth_qos=True, own_sms=True, max_partitions=1,
    reconfigurable="another process may start at any time, except in the compute mode EXCLUSIVE_PROCESS",
    telemetry="everything", not_isolated="nothing, as long as no other process starts", sources=(_CUDA,),
)  # fmt: skip
_STREAMS = Promises(
    memory_protection=False, fault_isolation=False, bandwidth_qos=False, own_sms=False, max_partitions=None,
    reconfigurable="by the program", telemetry="one process: nothing per stream",
    not_isolated="streams of one process share its memory, its faults, DRAM bandwidth and L2", sources=(_CUDA,),
)  # fmt: skip
_TIME_SLICING = Promises(
    memory_protection=True, fault_isolation=None, bandwidth_qos=False, own_sms=True, max_partitions=None,
    reconfigurable="time slice at any time (nvidia-smi compute-policy), as root", telemetry=_PER_PROCESS,
    not_isolated=_SLICED_SHARED + _FAULTS, sources=(_SLICING, _OPERATOR, _MPS),
)  # fmt: skip
_MPS_VOLTA = Promises(
    memory_protection=True, fault_isolation=False, bandwidth_qos=False, own_sms=False, max_partitions=48,
    reconfigurable="when clients start; default percentage at any time for new clients",
    telemetry="memory per client (type M+C); utilisation reads 99 % even for a client with 1 % of the SMs",
    not_isolated=_MPS_SHARED, sources=(_MPS, _EXPORTER), partitions_note="60 from CUDA 13.1 on",
)  # fmt: skip
_MIG_WHOLE = Promises(
    memory_protection=True, fault_isolation=True, bandwidth_qos=True, own_sms=True, max_partitions=None,
    reconfigurable="instances while nothing uses them; MIG mode itself on an idle GPU",
    telemetry="per instance through DCGM (and GPM on Hopper); no tool reports utilisation per process",
    not_isolated=_MIG_SHARED, sources=(_MIG, _EXPORTER),
)  # fmt: skip

#: By mode.
TRAITS: Final[Mapping[Mode, Traits]] = {
    # B4: one pid; its context only is resident.
    Mode.EXCLUSIVE: Traits(_EXCLUSIVE, one_process=True),
    # B4: kernels of one context overlap; a context is not switched against itself.
    Mode.STREAMS: Traits(_STREAMS, one_process=True),
    # B3: at most one context on the compute engine at a time, work-conserving round robin.
    Mode.TIME_SLICING: Traits(_TIME_SLICING, time_sliced=True),
    # F: the server submits for all clients from one context; there are no resource limits before Volta.
    Mode.MPS_PRE_VOLTA: Traits(
        replace(
            _MPS_VOLTA,
            memory_protection=False,
            max_partitions=16,
            partitions_note="",
            reconfigurable="when the server starts",
            telemetry="only the server is listed, with the memory of all clients",
            not_isolated="clients share one address space and one context: " + _MPS_SHARED,
        ),
        mps=True,
        same_sms=True,
    ),
    # B4, F: clients are not switched against each other; blocks of several are co-resident on an SM. With a percentage
    # it is `mps-partitioned`.
    Mode.MPS: Traits(_MPS_VOLTA, mps=True, same_sms=True),
    # D2: a percentage caps the number of SMs and reserves none: clients may have SMs in common, or not.
    Mode.MPS_PARTITIONED: Traits(
        replace(_MPS_VOLTA, not_isolated="a percentage is a cap, not a reservation; " + _MPS_SHARED),
        mps=True,
        same_sms=None,
        capped=True,
    ),
    # D2: static SM partitioning (CUDA 13.1): here SM sets are exclusive.
    Mode.MPS_STATIC_PARTITION: Traits(
        replace(_MPS_VOLTA, own_sms=True, reconfigurable="partitions while no client uses them"),
        mps=True,
        capped=True,
        partitioned=True,
    ),
    # B4: a process that is no client takes time slices of its own beside the group's context.
    Mode.MPS_TIME_SLICING: Traits(
        replace(
            _MPS_VOLTA,
            own_sms=False,
            max_partitions=None,
            not_isolated=f"within the group {_MPS_SHARED}; beside it {_SLICED_SHARED}",
        ),
        mps=True,
        time_sliced=True,
        same_sms=True,
    ),
    # B4, E3: another GPU instance overlaps fully, with SMs, L2 and DRAM bandwidth of its own.
    Mode.MIG: Traits(replace(_MIG_WHOLE, max_partitions=1), one_process=True, mig_instance=True),
    # E3: compute instances of one GPU instance share L2, DRAM and copy engines.
    Mode.MIG_SHARED_CI: Traits(
        replace(
            _MIG_WHOLE,
            bandwidth_qos=False,
            not_isolated="compute instances of one GPU instance share DRAM bandwidth, L2 and copy engines; "
            + _MIG_SHARED,
        ),
        one_process=True,
        mig_instance=True,
        shares_outside=True,
    ),
    # B4: several pids on one MIG UUID, with the signature of time-slicing.
    Mode.MIG_TIME_SLICING: Traits(
        replace(
            _MIG_WHOLE,
            bandwidth_qos=False,
            fault_isolation=None,
            max_partitions=None,
            not_isolated=f"inside the instance {_SLICED_SHARED}{_FAULTS}; {_MIG_SHARED}",
        ),
        mig_instance=True,
        time_sliced=True,
    ),
    # B4: several pids on one MIG UUID, short kernels overlap. Whether the daemon of the instance sets percentages is
    # not part of the mode.
    Mode.MIG_MPS: Traits(
        replace(
            _MIG_WHOLE,
            bandwidth_qos=False,
            fault_isolation=False,
            own_sms=False,
            max_partitions=48,
            partitions_note="60 from CUDA 13.1 on; lowered in proportion to the compute instance: 6 or 7 in 1g of 7",
            not_isolated=f"inside the instance {_MPS_SHARED}; {_MIG_SHARED}",
        ),
        mig_instance=True,
        mps=True,
        same_sms=True,
        capped=None,
    ),
    # G: the work of virtual machines on one GPU runs serially. How processes of one machine share it is left open.
    Mode.VGPU_TIME_SLICED: Traits(
        Promises(
            memory_protection=True,
            fault_isolation=True,
            bandwidth_qos=False,
            own_sms=True,
            max_partitions=32,
            reconfigurable="policy and time slice when no vGPU runs; the type of a vGPU when its machine is off",
            telemetry="per machine on the host; in a guest only its own",
            not_isolated=f"{_SLICED_HARDWARE}; the frame buffer is not: each vGPU has one of fixed size",
            sources=(_VGPU,),
        ),
        vgpu=True,
        time_sliced=True,
        shares_outside=True,
    ),
    # G: MIG-backed, so not time-sliced. The guest sees a vGPU type, no MIG UUID.
    Mode.VGPU_MIG: Traits(
        replace(
            _MIG_WHOLE,
            max_partitions=7,
            reconfigurable="instances when no vGPU runs",
            telemetry="per instance on the host",
            sources=(_VGPU, _MIG),
        ),
        vgpu=True,
    ),
    # D3: SM sets of one process, which may overlap and exclude no other context.
    Mode.GREEN_CONTEXTS: Traits(
        replace(
            _STREAMS,
            reconfigurable="by the program, when it creates a context",
            telemetry="one process: records name the green context, NVML does not",
            not_isolated="SMs of one green context are open to all other contexts; memory and faults are shared",
        ),
        one_process=True,
        capped=True,
    ),
    # The limiter holds launches back; how the driver schedules what it lets through is left open.
    Mode.SOFTWARE_LIMITED: Traits(
        replace(
            _TIME_SLICING,
            reconfigurable="by the limiter",
            not_isolated="the limiter delays launches, without the GPU's knowledge; " + _SLICED_SHARED,
        ),
        time_sliced=None,
        same_sms=None,
        limited=True,
    ),
    # B4: no concurrency, no evidence.
    Mode.UNDETERMINED: Traits(_NOTHING_KNOWN, time_sliced=None, same_sms=None, capped=None),
}
