"""MPS with SM partitions of their own (CUDA 13.1 and newer)."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.analysis.sharing.rules.mps import CLIENTS
from pyanalyze.vocabulary import Mode

#: What tells whether clients share SMs: those of a partition have theirs to themselves.
_OF_SHARED_SMS = frozenset(
    {
        *(name for name in CLIENTS if name.startswith("co_residency_")),
        "starts_in_partial_last_wave",
        "kernel_durations_stable",
        "prompt_starts",
        "idle_starts_prompt",
    }
)

RULE = Rule(
    mode=Mode.MPS_STATIC_PARTITION,
    shows="As MPS, and CUDA_MPS_SM_PARTITION names the partition of each client.",
    looks_like="MPS with a percentage, which caps but does not reserve.",
    prior=t.RARE,
    requires=frozenset({"mps_sm_partition"}),
    weights={
        **{name: weight for name, weight in CLIENTS.items() if name not in _OF_SHARED_SMS},
        "sms_left_free": (t.STRONG, "a large kernel leaves the SMs of other partitions free"),
        "sms_hidden": (t.MODERATE, "clients see the SMs of their partition"),
        "mps_sm_partition": (t.DECISIVE, "a client joins a partition through this variable"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
    },
)
