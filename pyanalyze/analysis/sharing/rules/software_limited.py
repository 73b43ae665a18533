"""A library or scheduler holds launches back in software."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.SOFTWARE_LIMITED,
    shows=(
        "Gaps on the launch side at the limiter's tick with nobody else resident; variables of the "
        "limiter in the environment."
    ),
    looks_like=(
        "An application that is slow by itself: where the variables are set, its pauses look the same. Below a limiter "
        "the driver time-slices, so contexts may take turns as well."
    ),
    prior=t.RARE,
    requires=frozenset({"software_limiter"}),
    weights={
        # A variable says what was intended; that launches were held back shows in idle time that nobody else filled.
        "software_limiter": (t.STRONG, "variables of a software limiter are set"),
        "held_back": (t.DECISIVE, "a limit was set and the GPU stood idle while tenants were active"),
        "sole_resident": (t.WEAK, "nobody else held the engine"),
        "short_kernels_overlap": (-t.STRONG, "short kernels of different tenants ran together"),
    },
)
