"""Several tenants are time-sliced inside one MIG instance."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import TIME_SLICES, Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG_TIME_SLICING,
    shows=(
        "In a MIG instance, short kernels of different tenants never overlap, and long kernels are inflated by time "
        "slices. Switch records are usually missing."
    ),
    looks_like="MPS inside the instance.",
    prior=t.RARE - t.WEAK,
    requires=frozenset({"mig_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "contexts_alternate": (t.DECISIVE, "contexts of different tenants alternated in the instance"),
        "short_kernels_exclude": (t.STRONG, "short kernels of different tenants never ran concurrently"),
        "kernel_durations_inflated": (t.MODERATE, "durations of repeated kernels are inflated by about one time slice"),
        **TIME_SLICES,
        "several_traced_tenants": (t.MODERATE, "several processes launched work in the instance"),
        "short_kernels_overlap": (-t.DECISIVE, "short kernels of different tenants ran concurrently"),
        "one_traced_tenant": (-t.WEAK, "only one process launched work"),
        "kernel_durations_stable": (-t.STRONG, "time slices of another tenant would have inflated kernel durations"),
        "prompt_starts": (-t.STRONG, "another tenant would have finished its time slice first"),
        "idle_starts_prompt": (-t.STRONG, "another tenant would have finished its time slice first"),
        "soon_starts_prompt": (-t.MODERATE, "an idle context mostly loses the engine to another tenant at once"),
        "mps_daemon": (-t.MODERATE, "an MPS server was running"),
        "nvml_several_processes": (t.WEAK, "the driver lists several processes"),
        "nvml_one_process": (-t.MODERATE, "the driver lists one process"),
    },
)
