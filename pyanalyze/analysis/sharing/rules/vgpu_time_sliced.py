"""A virtual GPU that takes turns with those of other virtual machines."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.VGPU_TIME_SLICED,
    shows=("The guest's device name carries a vGPU type such as T4-4Q; gaps of 1 to 2 ms without a visible partner."),
    looks_like="Exclusive use: neighbours in other virtual machines cannot be seen from the guest.",
    prior=t.RARE,
    requires=frozenset({"vgpu_name"}),
    weights={
        "vgpu_name": (t.DECISIVE + t.STRONG, "the name is that of a time-sliced vGPU type"),
        "stretched_kernels": (t.WEAK, "repeated kernels are stretched by about a slice"),
        "stretched_by_slices": (t.WEAK, "repeated kernels are longer by the same time, as by turns of others"),
    },
)
