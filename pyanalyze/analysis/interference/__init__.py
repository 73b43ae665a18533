"""Who was slowed, by how much, by whom, through what; and is it the GPU at all?

Three slowdowns answer different questions (docs/gate.md): `elapsed`, `latency` and `resident`. Against a
recording of the same work alone (``load(..., baselines=[...])``) they are measured; otherwise the run is replayed
without what others took from it, basis `inferred`; where a tenant ran beside others on the same SMs and was never
alone, nothing is said. The core compares (rust/core/src/slowdown/mod.rs); what is made of it is decided here.
"""

from pyanalyze.analysis.interference.groups import NO_LATENCY
from pyanalyze.analysis.interference.lost_time import device_figures
from pyanalyze.analysis.interference.slowdown import (
    DeviceInterference,
    TenantInterference,
    analyse,
    kernels_solo,
)

__all__ = [
    "NO_LATENCY",
    "DeviceInterference",
    "TenantInterference",
    "analyse",
    "device_figures",
    "kernels_solo",
]
