"""MPS with a cap on the SMs of each client (active thread percentage)."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.analysis.sharing.rules.mps import CLIENTS
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MPS_PARTITIONED,
    shows=(
        "As MPS, and clients see or reach fewer SMs than the board has; the percentage stands in the "
        "environment, a command line or the MPS log."
    ),
    looks_like=(
        "A cap is not a reservation: clients may still share SMs. A cap set by a command to the "
        "daemon leaves no trace in the environment, only fewer SMs to see, as a MIG instance has them."
    ),
    prior=-t.MODERATE,
    requires_one_of=frozenset({"mps_percentage", "sms_hidden"}),
    weights={
        # Behind caps clients may be on SMs of their own and need no room beside each other.
        **{name: weight for name, weight in CLIENTS.items() if name != "no_room_for_both"},
        "mps_percentage": (t.STRONG, "an active thread percentage below 100 was set"),
        "sms_hidden": (
            t.STRONG,
            "CUDA shows a process fewer SMs than the board has only under a cap or in an instance",
        ),
        "cap_without_effect": (-t.DECISIVE, "clients under a cap see fewer SMs"),
        "mps_sm_partition": (-t.STRONG, "a partition was set: that is `mps-static-partition`"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
    },
)
