"""An MPS group that is time-sliced with a process outside of it."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.analysis.sharing.rules.mps import CLIENTS
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MPS_TIME_SLICING,
    shows=(
        "Some tenants run concurrently without context switches between them. Another process alternates with their "
        "common context."
    ),
    looks_like=(
        "MPS: without switch records the process outside of the group shows in inflated kernels only. Time-slicing of "
        "processes that seldom meet."
    ),
    prior=t.RARE,
    requires_one_of=frozenset({"mps_group_time_sliced", "mps_group_interrupted", "outside_mps_busy"}),
    weights={
        # Contexts alternate, and the SMs hold no blocks of the process outside beside those of the group.
        **{
            name: weight
            for name, weight in CLIENTS.items()
            if name not in ("mps_group_time_sliced", "changes_after_slice", "sms_left_free", "nvml_outside_mps")
            and not name.startswith("co_residency_")
        },
        "mps_group_time_sliced": (
            t.DECISIVE + t.STRONG,
            "some tenants ran concurrently, while contexts alternated on the engine",
        ),
        "contexts_alternate": (
            -t.DECISIVE,
            "alternating contexts alone are those of time-slicing; with `mps_group_time_sliced` both add up to +3",
        ),
        "mps_group_interrupted": (
            t.DECISIVE,
            "kernels were switched out by time slices, but fewer than if no two tenants ran concurrently",
        ),
        "outside_mps_busy": (t.DECISIVE, "a process outside of the group ran kernels, and clients did"),
        "kernel_ran_in_preemption": (t.MODERATE, "a tenant's kernel was switched out for another tenant's"),
        "untraced_resident": (t.WEAK, "an untraced process was resident"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
    },
)
