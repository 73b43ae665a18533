"""MPS clients inside one MIG instance."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG_MPS,
    shows="A MIG instance with a daemon of its own; short kernels of different processes overlap.",
    looks_like="Time-slicing inside the instance.",
    prior=t.RARE - t.WEAK,
    requires=frozenset({"mig_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "short_kernels_overlap": (t.DECISIVE, "short kernels of different processes ran together"),
        "mps_daemon": (t.STRONG, "an MPS server was running"),
        "mps_daemon_idle": (t.WEAK, "an MPS daemon was there to connect to"),
        "mps_percentage": (t.MODERATE, "an MPS percentage was set"),
        "mps_pipe": (t.WEAK, "the processes were pointed at an MPS daemon"),
        "starts_when_room": (t.MODERATE, "blocks of several clients are placed as room comes"),
        "no_room_for_both": (-t.STRONG, "the blocks of both would not have fitted"),
        "several_traced_tenants": (t.WEAK, "several processes ran in the instance"),
        "alternation": (-t.DECISIVE, "contexts took turns"),
        "short_kernels_exclude": (-t.STRONG, "short kernels never ran together"),
        "one_traced_tenant": (-t.MODERATE, "one process was seen"),
        "nvml_one_process": (-t.MODERATE, "the driver lists one process"),
    },
)
