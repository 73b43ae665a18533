"""A compute instance that shares its GPU instance with others."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG_SHARED_CI,
    shows=(
        "The profile name has a compute part, such as 1c.3g.20gb: SMs are its own, L2, DRAM and copy "
        "engines are shared."
    ),
    looks_like="An instance of its own.",
    prior=t.RARE,
    requires=frozenset({"mig_instance", "mig_compute_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "mig_compute_instance": (t.STRONG, "the profile has a compute part"),
        "one_traced_tenant": (t.MODERATE, "one process was seen in the compute instance"),
        "several_traced_tenants": (-t.DECISIVE, "several processes ran in it"),
        "alternation": (-t.DECISIVE, "tenants took turns in it"),
    },
)
