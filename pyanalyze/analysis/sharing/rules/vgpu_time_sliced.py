"""A virtual GPU that is time-sliced with those of other virtual machines."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.VGPU_TIME_SLICED,
    shows=(
        "The guest's device name carries a vGPU type such as T4-4Q. Gaps occur without another tenant: a time slice "
        "(1 to 2 ms by default) for each other machine with work, and with equal or fixed share for idle ones too."
    ),
    looks_like="Exclusive use: a guest does not see other virtual machines.",
    prior=t.RARE,
    requires=frozenset({"vgpu_name"}),
    weights={
        "vgpu_name": (t.DECISIVE + t.STRONG, "the name is that of a time-sliced vGPU type"),
        "kernel_ran_in_preemption": (t.WEAK, "processes of this virtual machine are time-sliced with each other"),
        "kernel_durations_inflated": (t.WEAK, "durations of repeated kernels are inflated by about one time slice"),
        "kernel_durations_inflated_by_slices": (
            t.WEAK,
            "repeated kernels were delayed by the same time, consistent with time slices of other tenants",
        ),
    },
)
