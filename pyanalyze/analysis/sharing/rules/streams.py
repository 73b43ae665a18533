"""One tenant whose kernels run side by side from several streams."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.STREAMS,
    shows=(
        "Kernels of one context overlap in different streams, mostly in the partial last wave of the earlier one "
        "(leftover policy)."
    ),
    looks_like=(
        "Streams that never overlap (full grids, the default stream, one hardware queue) are `exclusive`. Overlap of "
        "two "
        "processes is not `streams`."
    ),
    requires=frozenset({"streams_overlap"}),
    weights={
        "streams_overlap": (
            t.STRONG,
            "kernels of several streams of one context ran concurrently",
        ),
        "one_traced_tenant": (t.WEAK, "only one process launched work"),
        "sole_resident": (t.STRONG, "no other tenant was resident"),
        "waits_of_time_slices": (-t.STRONG, "kernels waited for time slices although their process was idle"),
        "idle_starts_delayed": (-t.STRONG, "kernels were kept waiting although their process was idle"),
        "sm_idle_outside_traced_kernels": (t.STRONG, "SMs were idle while no traced kernel ran"),
        "kernel_durations_stable": (t.WEAK, "another busy tenant would have inflated kernel durations"),
        "prompt_starts": (t.WEAK, "another busy tenant would have delayed kernel starts"),
        "idle_starts_prompt": (t.WEAK, "another busy tenant would have delayed kernel starts"),
        "nvml_one_process": (t.MODERATE, "the driver lists no other process"),
        "interrupted_kernels": (-t.STRONG, "some repeated kernels were interrupted"),
        "contexts_alternate": (-t.DECISIVE, "contexts of different tenants alternated on the engine"),
        "untraced_resident": (-t.STRONG, "an untraced process was resident"),
        "sm_active_outside_traced_kernels": (-t.STRONG, "SMs were active while no traced kernel ran"),
        "utilization_above_traced": (-t.STRONG, "the driver counted kernels while no traced kernel ran"),
        "several_traced_tenants": (-t.STRONG, "several processes launched work"),
        "nvml_several_processes": (-t.WEAK, "the driver lists other processes, busy or not"),
        "mps_daemon": (-t.MODERATE, "an MPS daemon was running"),
        "green_contexts": (-t.STRONG, "green contexts partition the SMs"),
        "memory_below_product": (-t.STRONG, "less memory shows than the board has: a limit was set"),
        "sms_hidden": (-t.STRONG, "the process saw fewer SMs than the GPU has: it was capped"),
        "mig_instance": (-t.DECISIVE, "the device is a MIG instance: that is `mig`"),
        "vgpu_name": (-t.DECISIVE, "a virtual GPU shares its board with other virtual machines"),
        "vgpu_mig_name": (-t.DECISIVE, "the device is a virtual GPU on a MIG instance"),
    },
)
