"""One process cuts the SMs into green contexts."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.GREEN_CONTEXTS,
    shows=("Activity carries green context ids, contexts have a parent and an SM count or TPC mask of their own."),
    looks_like="Streams; MPS partitions. Green contexts of one process may overlap in SMs.",
    prior=t.RARE,
    requires=frozenset({"green_contexts"}),
    weights={
        "green_contexts": (t.DECISIVE + t.MODERATE, "contexts with SM sets of their own were recorded"),
        "one_traced_tenant": (t.WEAK, "one process"),
        "sole_resident": (t.STRONG, "nobody else held the engine"),
        "counters_quiet": (t.STRONG, "nobody else kept SMs active"),
        "nvml_one_process": (t.MODERATE, "the driver lists no other process"),
        "alternation": (-t.STRONG, "different tenants took turns on the engine"),
        "several_traced_tenants": (-t.MODERATE, "several processes launched work"),
    },
)
