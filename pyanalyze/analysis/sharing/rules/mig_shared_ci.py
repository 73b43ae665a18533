"""A compute instance that shares its GPU instance with others."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG_SHARED_CI,
    shows=(
        "The profile name has a compute part, such as 1c.3g.20gb: its SMs are exclusive; L2, DRAM and copy engines are "
        "shared."
    ),
    looks_like="A GPU instance with one compute instance.",
    prior=t.RARE,
    requires=frozenset({"mig_instance", "mig_compute_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "mig_compute_instance": (t.STRONG, "the profile has a compute part"),
        "one_traced_tenant": (t.MODERATE, "only one process launched work in the compute instance"),
        "several_traced_tenants": (-t.DECISIVE, "several processes launched work in it"),
        "contexts_alternate": (-t.DECISIVE, "contexts of different tenants alternated in it"),
    },
)
