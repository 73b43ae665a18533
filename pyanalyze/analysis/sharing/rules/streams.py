"""One tenant whose kernels run side by side from several streams."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.STREAMS,
    shows=(
        "Kernels of one process and context overlap in different streams, mostly at the tail of the "
        "earlier one (leftover policy)."
    ),
    looks_like=(
        "Several streams that never overlap (full grids, the default stream, one hardware queue) are "
        "`exclusive`; overlap of two processes is not `streams`."
    ),
    requires=frozenset({"streams_overlap"}),
    weights={
        "streams_overlap": (
            t.STRONG,
            "kernels of several streams of one context were in flight; a context is not switched against itself",
        ),
        "one_traced_tenant": (t.WEAK, "only one process was seen to launch work"),
        "sole_resident": (t.STRONG, "nobody else held the engine"),
        "counters_quiet": (t.STRONG, "nobody else kept SMs active"),
        "steady_kernels": (t.WEAK, "no rival stretched its kernels"),
        "prompt_starts": (t.WEAK, "no rival kept the SMs from its kernels"),
        "nvml_one_process": (t.MODERATE, "the driver lists no other process"),
        "no_process_ids": (-t.STRONG, "that it was one process cannot be seen"),
        "interrupted_kernels": (-t.STRONG, "something interrupted repeated kernels now and then"),
        "alternation": (-t.DECISIVE, "different tenants took turns on the engine"),
        "untraced_resident": (-t.STRONG, "a process that nsys did not trace held the engine"),
        "counters_loud": (-t.STRONG, "SMs were active while no traced kernel ran"),
        "several_traced_tenants": (-t.STRONG, "several processes launched work"),
        "nvml_several_processes": (-t.WEAK, "the driver lists other processes, busy or not"),
        "mps_daemon": (-t.MODERATE, "an MPS daemon is there to serve several"),
        "green_contexts": (-t.STRONG, "the SMs were divided"),
        "sms_hidden": (-t.STRONG, "the process saw fewer SMs than there are, which takes a cap"),
        "mig_instance": (-t.DECISIVE, "the device is an instance: that is `mig`"),
        "vgpu_name": (-t.DECISIVE, "a virtual GPU has neighbours that it cannot see"),
        "vgpu_mig_name": (-t.DECISIVE, "a virtual GPU on an instance"),
    },
)
