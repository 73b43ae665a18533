"""MPS before Volta: the server submits for all clients from one context."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.analysis.sharing.rules.mps import CLIENTS
from pyanalyze.vocabulary import Mode

#: Process lists show the server alone there, with the memory of all clients.
_SERVER_ALONE = frozenset(
    {"nvml_mps_clients", "nvml_no_mps_clients", "nvml_outside_mps", "outside_mps_busy", "nvml_one_process"}
)

RULE = Rule(
    mode=Mode.MPS_PRE_VOLTA,
    shows=(
        "Compute capability below 7, and NVML lists only nvidia-cuda-mps-server. Kernels of clients overlap as streams "
        "do."
    ),
    looks_like="Streams of one process.",
    prior=t.RARE,
    requires=frozenset({"pre_volta"}),
    weights={
        **{name: weight for name, weight in CLIENTS.items() if name not in _SERVER_ALONE},
        "pre_volta": (t.STRONG, "the chip is older than Volta"),
        "streams_overlap": (t.WEAK, "clients overlap as streams of the server's context"),
        "mps_sm_partition": (-t.STRONG, "a partition was set: that is `mps-static-partition`"),
    },
)
