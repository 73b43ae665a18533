"""One tenant on the device, whatever the compute mode: `EXCLUSIVE_PROCESS` of nvidia-smi is another thing."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.EXCLUSIVE,
    by_absence=True,
    shows=(
        "One process is resident all the time. The SMs are idle outside its kernels. Its repeated kernels keep their "
        "duration."
    ),
    looks_like=(
        "Time-slicing with an untraced process that has little to do. Switch records, hardware counters and process "
        "lists show it; a busy one also inflates durations of kernels."
    ),
    weights={
        "one_traced_tenant": (t.WEAK, "only one process launched work"),
        "sole_resident": (t.STRONG, "no other tenant was resident"),
        "sm_idle_outside_traced_kernels": (
            t.STRONG,
            "SMs were idle while no traced kernel ran",
        ),
        "kernel_durations_stable": (t.MODERATE, "another busy tenant would have inflated kernel durations"),
        "prompt_starts": (t.MODERATE, "another busy tenant would have delayed kernel starts by up to a time slice"),
        "nvml_one_process": (t.MODERATE, "the driver lists no other process"),
        "nvml_several_processes": (-t.MODERATE, "the driver lists other processes, busy or not"),
        "interrupted_kernels": (-t.STRONG, "some repeated kernels were interrupted"),
        "contexts_alternate": (-t.DECISIVE, "contexts of different tenants alternated on the engine"),
        "untraced_resident": (-t.STRONG, "an untraced process was resident"),
        "sm_active_outside_traced_kernels": (-t.STRONG, "SMs were active while no traced kernel ran"),
        "utilization_above_traced": (-t.STRONG, "the driver counted kernels while no traced kernel ran"),
        "kernel_durations_inflated": (
            -t.MODERATE,
            "durations of repeated kernels are inflated by about one time slice",
        ),
        "idle_starts_prompt": (
            t.MODERATE,
            "another busy tenant would have delayed kernel starts by up to a time slice",
        ),
        "waits_of_time_slices": (-t.STRONG, "kernels waited for time slices although their process was idle"),
        "idle_starts_delayed": (-t.STRONG, "kernels were kept waiting although their process was idle"),
        "kernel_durations_inflated_by_slices": (
            -t.MODERATE,
            "repeated kernels were delayed by the same time, consistent with time slices of other tenants",
        ),
        "several_traced_tenants": (-t.DECISIVE, "several processes launched work"),
        "streams_overlap": (-t.DECISIVE, "its streams run concurrently: that is `streams`"),
        "mps_daemon": (-t.MODERATE, "an MPS daemon was running"),
        "software_limiter": (-t.WEAK, "a software limiter was installed"),
        "green_contexts": (-t.STRONG, "green contexts partition the SMs"),
        "kernel_ran_in_preemption": (-t.DECISIVE, "a kernel was switched out for one of another tenant"),
        "memory_below_product": (-t.STRONG, "less memory shows than the board has: a limit was set"),
        "sms_hidden": (-t.STRONG, "the process saw fewer SMs than the GPU has: it was capped"),
        "mig_instance": (-t.DECISIVE, "the device is a MIG instance: that is `mig`"),
        "vgpu_name": (-t.DECISIVE, "a virtual GPU shares its board with other virtual machines"),
        "vgpu_mig_name": (-t.DECISIVE, "the device is a virtual GPU on a MIG instance"),
    },
)
