"""One tenant on the device."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.EXCLUSIVE,
    by_absence=True,
    shows=(
        "One process holds the compute engine for all recorded residency; nothing else is active "
        "outside its kernels; its repeated kernels keep their length."
    ),
    looks_like=(
        "Time-slicing beside a process that nsys did not trace: kernels alone look the same, switch "
        "records, device-wide counters, process lists and stretched kernels tell."
    ),
    weights={
        "one_traced_tenant": (t.WEAK, "only one process was seen to launch work"),
        "sole_resident": (t.STRONG, "nobody else held the engine"),
        "counters_quiet": (t.STRONG, "a second tenant would have kept SMs active outside these kernels"),
        "steady_kernels": (t.MODERATE, "a busy rival would have stretched repeated kernels"),
        "prompt_starts": (t.MODERATE, "a busy rival would have kept the SMs for the rest of its slice"),
        "nvml_one_process": (t.MODERATE, "the driver lists no other process"),
        "nvml_several_processes": (-t.MODERATE, "the driver lists other processes, busy or not"),
        "no_process_ids": (-t.STRONG, "that it was one process cannot be seen"),
        "interrupted_kernels": (-t.STRONG, "something interrupted repeated kernels now and then"),
        "alternation": (-t.DECISIVE, "different tenants took turns on the engine"),
        "untraced_resident": (-t.STRONG, "a process that nsys did not trace held the engine"),
        "counters_loud": (-t.STRONG, "SMs were active while no traced kernel ran"),
        "stretched_kernels": (-t.MODERATE, "repeated kernels are stretched by about a slice"),
        "stretched_by_slices": (-t.MODERATE, "repeated kernels are longer by the same time, as by turns of others"),
        "several_traced_tenants": (-t.DECISIVE, "several processes launched work"),
        "streams_overlap": (-t.DECISIVE, "its streams run side by side: that is `streams`"),
        "mps_daemon": (-t.MODERATE, "an MPS daemon is there to serve several"),
        "software_limiter": (-t.WEAK, "limiters are installed to share"),
        "green_contexts": (-t.STRONG, "the SMs were divided"),
        "sms_hidden": (-t.STRONG, "the process saw fewer SMs than there are, which takes a cap"),
        "mig_instance": (-t.DECISIVE, "the device is an instance: that is `mig`"),
        "vgpu_name": (-t.DECISIVE, "a virtual GPU has neighbours that it cannot see"),
        "vgpu_mig_name": (-t.DECISIVE, "a virtual GPU on an instance"),
    },
)
