"""Several tenants are time-sliced on the whole GPU."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import TIME_SLICES, Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.TIME_SLICING,
    shows=(
        "Contexts of different tenants alternate in time slices (about 2 ms when both are busy). Their short kernels "
        "never "
        "overlap. Long kernels are inflated by the time they are switched out."
    ),
    looks_like=(
        "MPS with clients that each fill the GPU: they also run one after the other, but without time slices. Recorded "
        "kernel intervals of two processes overlap under both modes."
    ),
    weights={
        "contexts_alternate": (
            t.DECISIVE,
            "contexts of different tenants are switched on one engine only when time-sliced",
        ),
        "untraced_resident": (t.MODERATE, "an untraced process was resident"),
        "short_kernels_exclude": (t.STRONG, "short kernels of different tenants never ran concurrently"),
        "kernel_durations_inflated": (t.MODERATE, "a kernel that is switched out is inflated by about one time slice"),
        **TIME_SLICES,
        "idle_behind_limiter": (-t.DECISIVE, "the GPU was idle behind a software limiter"),
        "sm_active_outside_traced_kernels": (
            t.MODERATE,
            "SMs were active while no traced kernel ran: this is another process, or work that CUPTI does not record",
        ),
        "utilization_above_traced": (t.MODERATE, "the driver counted kernels while no traced kernel ran"),
        "several_traced_tenants": (t.WEAK, "several processes launched work"),
        "nvml_several_processes": (t.WEAK, "the driver lists several processes"),
        "one_traced_tenant": (-t.WEAK, "only one process launched work"),
        "sole_resident": (-t.STRONG, "no other tenant was resident"),
        "several_in_one_context": (-t.DECISIVE, "each of several contexts would have been switched in"),
        "busy_without_switches": (-t.DECISIVE, "several tenants were busy at once, without context switches"),
        "short_kernels_overlap": (-t.DECISIVE, "short kernels of different tenants ran concurrently"),
        "uninterrupted_together": (
            -t.DECISIVE,
            "time slices would have interrupted kernels that were in flight at once",
        ),
        "turns_in_software": (-t.STRONG, "a time slice ends while its tenant has work, and is shorter"),
        "kernel_durations_stable": (-t.STRONG, "time slices of another tenant would have inflated kernel durations"),
        "prompt_starts": (-t.STRONG, "another tenant would have finished its time slice first"),
        "idle_starts_prompt": (-t.STRONG, "another tenant would have finished its time slice first"),
        "soon_starts_prompt": (-t.MODERATE, "an idle context mostly loses the engine to another tenant at once"),
        "sm_idle_outside_traced_kernels": (-t.STRONG, "SMs were idle while no traced kernel ran"),
        "sms_hidden": (-t.STRONG, "a process saw fewer SMs than the GPU has: it was capped"),
        "mps_group_time_sliced": (-t.STRONG, "some tenants ran concurrently: that is `mps+time-slicing`"),
        "mps_group_interrupted": (-t.MODERATE, "time slices of all tenants would have interrupted more kernels"),
        "mps_daemon": (-t.MODERATE, "an MPS server was running"),
        "mps_percentage": (-t.WEAK, "an MPS percentage was set"),
        "nvml_mps_clients": (-t.MODERATE, "processes are MPS clients"),
        "mig_instance": (-t.DECISIVE, "inside a MIG instance that is `mig+time-slicing`"),
        "vgpu_name": (-t.STRONG, "among virtual machines that is `vgpu-time-sliced`"),
        "nvml_one_process": (-t.MODERATE, "the driver lists no other process"),
    },
)
