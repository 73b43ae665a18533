"""One process cuts the SMs into green contexts."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.GREEN_CONTEXTS,
    shows=("Activity carries green context ids. Contexts have a parent and their own SM count or TPC mask."),
    looks_like="Streams; MPS partitions. Green contexts of one process may overlap in SMs.",
    prior=t.RARE,
    requires=frozenset({"green_contexts"}),
    weights={
        "green_contexts": (t.DECISIVE + t.MODERATE, "green contexts, each with a set of SMs, were recorded"),
        "one_traced_tenant": (t.WEAK, "only one process launched work"),
        "sole_resident": (t.STRONG, "no other tenant was resident"),
        "sm_idle_outside_traced_kernels": (t.STRONG, "SMs were idle while no traced kernel ran"),
        "nvml_one_process": (t.MODERATE, "the driver lists no other process"),
        "contexts_alternate": (-t.STRONG, "contexts of different tenants alternated on the engine"),
        "several_traced_tenants": (-t.MODERATE, "several processes launched work"),
    },
)
