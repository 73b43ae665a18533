"""MPS with a cap on the SMs of each client (active thread percentage)."""

from pyanalyze.sharing import thresholds as t
from pyanalyze.sharing.rules.base import Rule

RULE = Rule(
    mode="mps-partitioned",
    shows=(
        "As MPS, and clients see or reach fewer SMs than the board has; the percentage stands in the "
        "environment, a command line or the MPS log."
    ),
    looks_like=(
        "A cap is not a reservation: clients may still share SMs. A cap set by a command to the "
        "daemon leaves no trace in the environment."
    ),
    prior=-t.MODERATE,
    requires=frozenset({"mps_percentage"}),
    weights={
        "short_kernels_overlap": (
            t.DECISIVE,
            "short kernels of different processes run together only in one shared context group",
        ),
        "busy_without_switches": (
            t.STRONG,
            "tenants were busy together and the engine was not switched between them",
        ),
        "mps_daemon": (t.STRONG, "an MPS daemon was running while recording"),
        "mps_client_connected": (t.STRONG, "the MPS log shows clients"),
        "nvml_mps_server": (t.MODERATE, "the driver lists an MPS server"),
        "nvml_mps_clients": (t.STRONG, "the driver lists MPS clients"),
        "mps_pipe": (t.WEAK, "the processes were pointed at an MPS daemon"),
        "counters_loud": (t.WEAK, "SMs were active while no traced kernel ran: somebody else worked"),
        "several_traced_tenants": (t.WEAK, "several processes launched work"),
        "one_traced_tenant": (-t.WEAK, "no second client was seen"),
        "sole_resident": (-t.WEAK, "nobody else held the engine, which MPS clients would not show either"),
        "steady_kernels": (-t.WEAK, "no rival disturbed repeated kernels"),
        "counters_quiet": (-t.STRONG, "nobody else kept SMs active"),
        "alternation": (-t.DECISIVE, "clients of one daemon are not switched against each other"),
        "short_kernels_exclude": (-t.STRONG, "short kernels of different tenants never ran together"),
        "mps_sm_partition": (-t.STRONG, "a partition was set: that is `mps-static-partition`"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
        "mig_instance": (-t.DECISIVE, "inside an instance that is `mig+mps`"),
        "nvml_one_process": (-t.MODERATE, "the driver lists no other process"),
        "mps_percentage": (t.STRONG, "an active thread percentage below 100 was set"),
    },
)
