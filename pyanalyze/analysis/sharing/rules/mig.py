"""One tenant in a MIG instance."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG,
    by_absence=True,
    shows=("The device name ends in `MIG <g>g.<m>gb`, its UUID starts with MIG-, its SM count is that of a profile."),
    looks_like=(
        "An instance that several processes share. An empty switch table proves nothing here: MIG pauses that stream."
    ),
    prior=t.RARE,
    requires=frozenset({"mig_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "one_traced_tenant": (t.MODERATE, "one process was seen in the instance"),
        "nvml_one_process": (t.MODERATE, "the driver lists one process"),
        "sole_resident": (t.MODERATE, "nobody else held the engine"),
        "steady_kernels": (t.WEAK, "no rival stretched its kernels"),
        "prompt_starts": (t.WEAK, "no rival kept the SMs from its kernels"),
        "several_traced_tenants": (-t.DECISIVE, "several processes ran in the instance"),
        "no_process_ids": (-t.STRONG, "that it was one process cannot be seen"),
        "interrupted_kernels": (-t.STRONG, "something interrupted repeated kernels now and then"),
        "alternation": (-t.DECISIVE, "tenants took turns in the instance"),
        "mig_compute_instance": (
            -t.MODERATE,
            "the compute instance is part of a larger GPU instance: that is `mig-shared-ci`",
        ),
        "mps_daemon": (-t.MODERATE, "an MPS daemon was running"),
        "stretched_kernels": (-t.MODERATE, "repeated kernels are stretched by about a slice"),
        "stretched_by_slices": (-t.MODERATE, "repeated kernels are longer by the same time, as by turns of others"),
    },
)
