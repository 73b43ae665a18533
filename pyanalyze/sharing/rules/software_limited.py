"""A library or scheduler holds launches back in software."""

from pyanalyze.sharing import thresholds as t
from pyanalyze.sharing.rules.base import Rule

RULE = Rule(
    mode="software-limited",
    shows=(
        "Gaps on the launch side at the limiter's tick with nobody else resident; variables of the "
        "limiter in the environment."
    ),
    looks_like="An idle application; time-slicing with an unseen partner.",
    prior=t.RARE,
    requires=frozenset({"software_limiter"}),
    weights={
        # A variable says what was intended. That launches were held back needs the launch-side gaps of the API
        # calls, which no fact measures yet: until then this mode is a rival, never a verdict.
        "software_limiter": (t.STRONG, "variables of a software limiter are set"),
        "alternation": (-t.STRONG, "the engine itself was time-sliced"),
        "sole_resident": (t.WEAK, "nobody else held the engine"),
        "short_kernels_overlap": (-t.STRONG, "short kernels of different tenants ran together"),
    },
)
