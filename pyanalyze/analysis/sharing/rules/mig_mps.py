"""MPS clients inside one MIG instance."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG_MPS,
    shows="A MIG instance with its own MPS daemon. Short kernels of different processes overlap.",
    looks_like="Time-slicing inside the instance.",
    prior=t.RARE - t.WEAK,
    requires=frozenset({"mig_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "short_kernels_overlap": (t.DECISIVE, "short kernels of different processes ran concurrently"),
        "mps_daemon": (t.STRONG, "an MPS server was running"),
        "mps_daemon_idle": (t.WEAK, "an MPS daemon was running"),
        "mps_percentage": (t.MODERATE, "an MPS percentage was set"),
        "mps_pipe": (t.WEAK, "the processes were configured to use an MPS daemon"),
        "starts_in_partial_last_wave": (
            t.MODERATE,
            "blocks of one client start in the partial last wave of another, as under MPS",
        ),
        "co_residency_infeasible": (-t.STRONG, "the SMs could not hold blocks of both"),
        "changes_within_slice": (
            t.STRONG,
            "kernels of several processes were in flight at once, and followed each other sooner than time slices",
        ),
        "changes_after_slice": (-t.STRONG, "clients of one server do not wait for time slices of each other"),
        "co_residency_unlikely": (-t.MODERATE, "the SMs could hold blocks of both only by priority"),
        "kernel_ran_in_preemption": (-t.DECISIVE, "a kernel was switched out for one of another tenant"),
        "nvml_mps_server": (t.WEAK, "the driver lists an MPS server on the board"),
        "nvml_mps_clients": (t.STRONG, "the driver lists MPS clients"),
        "nvml_no_mps_clients": (-t.STRONG, "the driver lists several processes, and none as an MPS client"),
        "mps_client_connected": (t.STRONG, "the MPS log shows clients"),
        "several_traced_tenants": (t.WEAK, "several processes launched work in the instance"),
        "contexts_alternate": (-t.DECISIVE, "contexts of different tenants alternated"),
        "short_kernels_exclude": (-t.STRONG, "short kernels of different tenants never ran concurrently"),
        "one_traced_tenant": (-t.MODERATE, "only one process launched work"),
        "nvml_one_process": (-t.MODERATE, "the driver lists one process"),
    },
)
