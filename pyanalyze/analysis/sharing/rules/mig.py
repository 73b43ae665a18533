"""One tenant in a MIG instance."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG,
    by_absence=True,
    shows=("The device name ends in `MIG <g>g.<m>gb`, its UUID starts with MIG-, its SM count is that of a profile."),
    looks_like=(
        "A MIG instance that several processes share. An empty switch table proves nothing: while MIG is on, drivers "
        "pause the switch records that nsys reads."
    ),
    prior=t.RARE,
    requires=frozenset({"mig_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "one_traced_tenant": (t.MODERATE, "only one process launched work in the instance"),
        "nvml_one_process": (t.MODERATE, "the driver lists one process"),
        "nvml_several_processes": (-t.MODERATE, "the driver lists other processes, busy or not"),
        "sole_resident": (t.MODERATE, "no other tenant was resident"),
        "kernel_durations_stable": (t.WEAK, "another busy tenant would have inflated kernel durations"),
        "prompt_starts": (t.WEAK, "another busy tenant would have delayed kernel starts"),
        "idle_starts_prompt": (t.WEAK, "another busy tenant would have delayed kernel starts"),
        "waits_of_time_slices": (-t.STRONG, "kernels waited for time slices although their process was idle"),
        "idle_starts_delayed": (-t.STRONG, "kernels were kept waiting although their process was idle"),
        "several_traced_tenants": (-t.DECISIVE, "several processes launched work in the instance"),
        "interrupted_kernels": (-t.STRONG, "some repeated kernels were interrupted"),
        "contexts_alternate": (-t.DECISIVE, "contexts of different tenants alternated in the instance"),
        "mig_compute_instance": (
            -t.MODERATE,
            "the compute instance is part of a larger GPU instance: that is `mig-shared-ci`",
        ),
        "mps_daemon": (-t.MODERATE, "an MPS daemon was running"),
        "kernel_durations_inflated": (
            -t.MODERATE,
            "durations of repeated kernels are inflated by about one time slice",
        ),
        "kernel_durations_inflated_by_slices": (
            -t.MODERATE,
            "repeated kernels were delayed by the same time, consistent with time slices of other tenants",
        ),
    },
)
