"""MPS with a cap on the SMs of each client (active thread percentage)."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.analysis.sharing.rules.mps import CLIENTS
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MPS_PARTITIONED,
    shows=(
        "As MPS, and clients see fewer SMs than the GPU has. The percentage is in the environment, a command line or "
        "the "
        "MPS log."
    ),
    looks_like=(
        "MPS without caps: a cap is not a reservation, so clients may still share SMs. A MIG instance: it also shows "
        "fewer SMs, and a cap set by a command to the daemon leaves no other trace."
    ),
    prior=-t.MODERATE,
    requires_one_of=frozenset({"mps_percentage", "sms_hidden", "sms_left_free", "co_residency_doubtful"}),
    weights={
        # Capped clients may use different SMs, so that they need not fit on the same ones.
        **{name: weight for name, weight in CLIENTS.items() if not name.startswith("co_residency_")},
        "sms_left_free": (t.STRONG, "a large kernel leaves SMs free for other clients only under a cap"),
        "mps_percentage": (t.STRONG, "an active thread percentage below 100 was set"),
        "sms_hidden": (
            t.STRONG,
            "CUDA shows a process fewer SMs only under a cap or in a MIG instance",
        ),
        "cap_without_effect": (-t.DECISIVE, "clients under a cap see fewer SMs"),
        "mps_sm_partition": (-t.STRONG, "a partition was set: that is `mps-static-partition`"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
    },
)
