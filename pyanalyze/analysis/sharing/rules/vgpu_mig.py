"""A virtual GPU on a MIG instance of its own."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.VGPU_MIG,
    shows="The vGPU type carries a slice number, such as A100X-3-20C.",
    looks_like="A time-sliced vGPU.",
    prior=t.RARE,
    requires=frozenset({"vgpu_mig_name"}),
    weights={
        "vgpu_mig_name": (t.DECISIVE + t.STRONG, "the name is that of a MIG-backed vGPU type"),
    },
)
