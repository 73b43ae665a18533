"""MPS since Volta, without caps: clients share the SMs at the same time."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

#: What every kind of MPS shows of its clients.
CLIENTS: dict[str, tuple[float, str]] = {
    "short_kernels_overlap": (
        t.DECISIVE,
        "short kernels of different processes run concurrently only in one MPS group",
    ),
    "busy_without_switches": (
        t.STRONG,
        "several tenants were busy at once, without context switches between them",
    ),
    "several_in_one_context": (
        t.STRONG,
        "several processes ran in the only context that was resident, as clients of one server do",
    ),
    "uninterrupted_together": (
        t.MODERATE,
        "several processes had kernels in flight at once, and none was switched out",
    ),
    "changes_within_slice": (
        t.STRONG,
        "kernels of several processes were in flight at once, and followed each other sooner than time slices",
    ),
    "changes_after_slice": (-t.STRONG, "clients of one server do not wait for time slices of each other"),
    "turns_in_software": (-t.STRONG, "clients of one server run at the same time if nothing keeps them apart"),
    "mps_group_time_sliced": (
        -t.DECISIVE,
        "a process outside of the group is time-sliced with it: that is `mps+time-slicing`",
    ),
    "group_without_switches": (
        t.STRONG,
        "for most of the time tenants were busy at once without context switches between them",
    ),
    "mps_group_interrupted": (
        -t.STRONG,
        "kernels were switched out by time slices: that is `mps+time-slicing`",
    ),
    "kernel_ran_in_preemption": (
        -t.DECISIVE,
        "a kernel was switched out for one of another tenant: clients of one server are not",
    ),
    "mps_daemon": (t.STRONG, "an MPS server was running: a client had connected to the daemon"),
    "mps_daemon_idle": (t.WEAK, "an MPS daemon was running"),
    "mps_client_connected": (t.STRONG, "the MPS log shows clients"),
    "nvml_mps_server": (t.MODERATE, "the driver lists an MPS server"),
    "nvml_mps_clients": (t.STRONG, "the driver lists MPS clients"),
    "nvml_no_mps_clients": (-t.STRONG, "the driver lists several processes, and none as an MPS client"),
    "nvml_outside_mps": (-t.WEAK, "the driver lists processes outside of the group, busy or not"),
    "outside_mps_busy": (-t.STRONG, "a process outside of the group ran kernels: that is `mps+time-slicing`"),
    "mps_pipe": (t.WEAK, "the processes were configured to use an MPS daemon"),
    "starts_in_partial_last_wave": (
        t.MODERATE,
        "blocks of one client start in the partial last wave of another, as under MPS",
    ),
    "co_residency_infeasible": (-t.STRONG, "the SMs could not hold blocks of both"),
    "co_residency_unlikely": (-t.MODERATE, "the SMs could hold blocks of both only by priority"),
    "co_residency_doubtful": (-t.WEAK, "the SMs could hold blocks of both only under a cap"),
    "sms_left_free": (-t.STRONG, "a client left SMs free for others: that is `mps-partitioned`"),
    "sm_active_outside_traced_kernels": (
        t.WEAK,
        "SMs were active while no traced kernel ran: this is another process, or work that CUPTI does not record",
    ),
    "utilization_above_traced": (t.WEAK, "the driver counted kernels while no traced kernel ran"),
    "several_traced_tenants": (t.WEAK, "several processes launched work"),
    "one_traced_tenant": (-t.WEAK, "no second client launched work"),
    "sole_resident": (-t.WEAK, "no other context was resident, but records name one MPS client for all"),
    "kernel_durations_stable": (-t.WEAK, "no other tenant inflated kernel durations"),
    "prompt_starts": (-t.WEAK, "no other tenant's blocks delayed its kernels"),
    "idle_starts_prompt": (-t.WEAK, "no other tenant's blocks delayed its kernels"),
    "waits_of_time_slices": (-t.MODERATE, "clients of one server do not wait for time slices of each other"),
    "idle_starts_delayed": (-t.WEAK, "clients of one server wait only while the blocks of another fill the SMs"),
    "sm_idle_outside_traced_kernels": (-t.STRONG, "SMs were idle while no traced kernel ran"),
    "contexts_alternate": (-t.DECISIVE, "clients of one MPS server do not alternate"),
    "short_kernels_exclude": (-t.STRONG, "short kernels of different tenants never ran concurrently"),
    "mig_instance": (-t.DECISIVE, "inside a MIG instance that is `mig+mps`"),
    "nvml_one_process": (-t.MODERATE, "the driver lists no other process"),
}

RULE = Rule(
    mode=Mode.MPS,
    shows=(
        "Short kernels of different processes overlap, without context switches between them. An MPS daemon runs; NVML "
        "lists processes of type M+C."
    ),
    looks_like=(
        "Time-slicing: its recorded kernel intervals overlap as well. An MPS daemon without clients. MPS with caps."
    ),
    weights={
        **CLIENTS,
        "mps_percentage": (-t.MODERATE, "a cap was set: that is `mps-partitioned`"),
        "cap_without_effect": (t.MODERATE, "all clients saw all SMs: the cap had no effect"),
        "sms_hidden": (-t.DECISIVE, "clients see fewer SMs than the GPU has: that is `mps-partitioned`"),
        "mps_sm_partition": (-t.STRONG, "a partition was set: that is `mps-static-partition`"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
    },
)
