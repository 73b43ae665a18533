"""A library or scheduler holds launches back in software."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.SOFTWARE_LIMITED,
    shows=(
        "Launches pause at the limiter's interval while no other tenant is resident. The limiter's variables are in "
        "the "
        "environment. Or processes have the whole GPU in turn, for longer than any time slice."
    ),
    looks_like=(
        "An application that pauses by itself; processes of which one waits for the other's result. Below a limiter "
        "the driver time-slices, so contexts may alternate as well."
    ),
    prior=t.RARE,
    requires_one_of=frozenset({"software_limiter", "turns_in_software"}),
    weights={
        # A variable is only a setting; idle time that no other tenant filled shows that launches were held back.
        "software_limiter": (t.STRONG, "variables of a software limiter are set"),
        "turns_in_software": (t.DECISIVE, "processes had the GPU in turn and never had work at the same time"),
        "idle_behind_limiter": (t.DECISIVE, "a limit was set, and the GPU was idle while tenants were active"),
        "memory_below_product": (t.MODERATE, "less memory shows than the board has"),
        "sole_resident": (t.WEAK, "no other tenant was resident"),
        "short_kernels_overlap": (-t.STRONG, "short kernels of different tenants ran concurrently"),
    },
)
