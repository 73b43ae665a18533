"""What does each sharing mode promise, whatever ran?  Known properties of modes, as data with their sources.

They come from NVIDIA's documentation of MPS, MIG and vGPU and from published measurements, not from a capture.  Where
sources disagree a property is ``None``, and does not meet a requirement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyanalyze.analysis.sharing.rules.base import MODES, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What ``--require`` may name.
Requirement = Literal["fault-isolation", "memory-protection", "bandwidth-qos"]
REQUIREMENTS: tuple[Requirement, ...] = ("fault-isolation", "memory-protection", "bandwidth-qos")

_MPS = "NVIDIA, Multi-Process Service (deploy/mps): architecture, when to use, limitations"
_MIG = "NVIDIA, Multi-Instance GPU user guide"
_VGPU = "NVIDIA, Virtual GPU software user guide: scheduling"
_SLICING = "Gilman and Walls, Characterizing concurrency mechanisms for NVIDIA GPUs, arXiv 2110.00459"
_OPERATOR = "NVIDIA, GPU operator: time-slicing GPUs in Kubernetes"
_CUDA = "NVIDIA, CUDA C++ programming guide: streams, green contexts"
_EXPORTER = "NVIDIA/dcgm-exporter issue 478 and NVIDIA/DCGM issue 58"


@dataclass(frozen=True)
class Properties:
    """What a mode promises between tenants.

    Attributes
    ----------
    memory_protection
        A tenant cannot read or write another one's memory.
    fault_isolation
        A tenant's GPU fault does not end the others; None: sources disagree.
    bandwidth_qos
        A tenant has DRAM bandwidth and L2 of its own.
    own_sms
        A tenant's SMs are its own while it runs.
    max_partitions
        How many tenants at most; None: no fixed number.
    reconfigurable
        When it can be changed.
    telemetry
        What samples can still say per tenant.
    not_isolated
        What tenants still share.
    sources
        Where this is stated.
    """

    memory_protection: bool
    fault_isolation: bool | None
    bandwidth_qos: bool
    own_sms: bool
    max_partitions: int | None
    reconfigurable: str
    telemetry: str
    not_isolated: str
    sources: tuple[str, ...]

    def meets(self, requirement: Requirement) -> bool:
        """Whether the mode promises that.

        Examples
        --------
        >>> PROPERTIES["mps"].meets("fault-isolation")
        False
        """
        promised = {
            "fault-isolation": self.fault_isolation,
            "memory-protection": self.memory_protection,
            "bandwidth-qos": self.bandwidth_qos,
        }[requirement]
        return promised is True

    def lacks(self, required: Iterable[Requirement]) -> tuple[Requirement, ...]:
        """Those of the requirements that the mode does not promise.

        Examples
        --------
        >>> PROPERTIES["time-slicing"].lacks(["memory-protection", "bandwidth-qos"])
        ('bandwidth-qos',)
        """
        return tuple(requirement for requirement in required if not self.meets(requirement))


_PER_PROCESS = "per process: memory, and utilisation by time (NVML); SM activity of the whole GPU only"
_MPS_LEFT = "clients share DRAM bandwidth, L2, copy engines, scheduling hardware and the server: a fault reaches all"
_MIG_LEFT = (
    "power, clocks, the PCIe link, the last-level TLB and media engines are the whole board's; "
    "a reset takes all instances down"
)
_TURNS_LEFT = "memory capacity is not partitioned, L2 is refilled after each turn, copies of all run at any time"
_FAULTS = (
    "; each process has a context of its own, and its faults should end only itself, but NVIDIA's GPU operator "
    "documentation says that replicas have no memory or fault isolation"
)

_EXCLUSIVE = Properties(
    memory_protection=True, fault_isolation=True, bandwidth_qos=True, own_sms=True, max_partitions=1,
    reconfigurable="at any time", telemetry="everything", not_isolated="nobody to be isolated from", sources=(_CUDA,),
)  # fmt: skip
_STREAMS = Properties(
    memory_protection=False, fault_isolation=False, bandwidth_qos=False, own_sms=False, max_partitions=None,
    reconfigurable="by the program", telemetry="one process: nothing per stream",
    not_isolated="streams of one process share its memory and its faults", sources=(_CUDA,),
)  # fmt: skip
_TIME_SLICING = Properties(
    memory_protection=True, fault_isolation=None, bandwidth_qos=False, own_sms=True, max_partitions=None,
    reconfigurable="slice length at any time (nvidia-smi compute-policy), as root", telemetry=_PER_PROCESS,
    not_isolated=_TURNS_LEFT + _FAULTS, sources=(_SLICING, _OPERATOR, _MPS),
)  # fmt: skip
_MPS_VOLTA = Properties(
    memory_protection=True, fault_isolation=False, bandwidth_qos=False, own_sms=False, max_partitions=48,
    reconfigurable="when clients start; default percentage at any time for new clients",
    telemetry="memory per client (type M+C); utilisation by time says 99 % even for a client with 1 % of the SMs",
    not_isolated=_MPS_LEFT, sources=(_MPS, _EXPORTER),
)  # fmt: skip
_MIG_WHOLE = Properties(
    memory_protection=True, fault_isolation=True, bandwidth_qos=True, own_sms=True, max_partitions=7,
    reconfigurable="instances while nothing uses them; MIG mode itself needs an idle GPU",
    telemetry="per instance through DCGM (and GPM on Hopper); no utilisation per process by any tool",
    not_isolated=_MIG_LEFT, sources=(_MIG, _EXPORTER),
)  # fmt: skip


def _but(base: Properties, **changes: object) -> Properties:
    from dataclasses import replace

    return replace(base, **changes)  # type: ignore[arg-type]


#: By mode; nothing is known of `undetermined`.
PROPERTIES: Mapping[Mode, Properties] = {
    "exclusive": _EXCLUSIVE,
    "streams": _STREAMS,
    "time-slicing": _TIME_SLICING,
    "mps-pre-volta": _but(
        _MPS_VOLTA,
        memory_protection=False,
        max_partitions=16,
        reconfigurable="when the server starts",
        telemetry="only the server is listed, with everybody's memory",
        not_isolated="clients share one address space and one context: " + _MPS_LEFT,
    ),
    "mps": _MPS_VOLTA,
    "mps-partitioned": _but(
        _MPS_VOLTA, not_isolated="a percentage is a cap, no reservation; " + _MPS_LEFT
    ),
    "mps-static-partition": _but(_MPS_VOLTA, own_sms=True, reconfigurable="partitions while no client uses them"),
    "mig": _MIG_WHOLE,
    "mig-shared-ci": _but(
        _MIG_WHOLE, bandwidth_qos=False, not_isolated="compute instances of one GPU instance share DRAM bandwidth, L2 "
        "and copy engines; " + _MIG_LEFT,
    ),
    "mig+time-slicing": _but(
        _MIG_WHOLE, bandwidth_qos=False, fault_isolation=None, max_partitions=None,
        not_isolated=f"inside the instance {_TURNS_LEFT}{_FAULTS}; {_MIG_LEFT}",
    ),
    "mig+mps": _but(
        _MIG_WHOLE, bandwidth_qos=False, fault_isolation=False, own_sms=False, max_partitions=48,
        not_isolated=f"inside the instance {_MPS_LEFT}; {_MIG_LEFT}",
    ),
    "vgpu-time-sliced": Properties(
        memory_protection=True, fault_isolation=True, bandwidth_qos=False, own_sms=True, max_partitions=32,
        reconfigurable="policy and slice when no vGPU runs; a vGPU's type when its machine is off",
        telemetry="per machine on the host; in the guest its own share only",
        not_isolated=_TURNS_LEFT, sources=(_VGPU,),
    ),
    "vgpu-mig": _but(
        _MIG_WHOLE, reconfigurable="instances when no vGPU runs", telemetry="per instance on the host",
        sources=(_VGPU, _MIG),
    ),
    "green-contexts": _but(
        _STREAMS, reconfigurable="by the program, when it creates a context",
        not_isolated="SM sets of one process; other contexts may use the same SMs; memory and faults are shared",
    ),
    "software-limited": _but(
        _TIME_SLICING, reconfigurable="by the limiter",
        not_isolated="the limiter holds launches back, the GPU does not know of it; " + _TURNS_LEFT,
    ),
}  # fmt: skip

if set(PROPERTIES) != set(MODES) - {"undetermined"}:
    raise AssertionError("every mode but `undetermined` has properties")
