"""Several tenants take turns inside one MIG instance."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.MIG_TIME_SLICING,
    shows=(
        "A MIG instance whose tenants' short kernels exclude each other and whose long kernels are "
        "stretched; switch records are usually not there."
    ),
    looks_like="MPS inside the instance.",
    prior=t.RARE - t.WEAK,
    requires=frozenset({"mig_instance"}),
    weights={
        "mig_instance": (t.DECISIVE, "the device is a MIG instance"),
        "alternation": (t.DECISIVE, "contexts took turns in the instance"),
        "short_kernels_exclude": (t.STRONG, "short kernels of different tenants never ran together"),
        "stretched_kernels": (t.MODERATE, "repeated kernels are stretched by about a slice"),
        "stretched_by_slices": (t.MODERATE, "turns of others add the same time to kernels of any length"),
        "interrupted_kernels": (t.WEAK, "turns of a rare visitor lengthen what they interrupt"),
        "no_room_for_both": (t.STRONG, "a kernel that has the SMs to itself is in nobody's way only when switched out"),
        "starts_when_room": (-t.MODERATE, "who takes turns need not wait for room"),
        "several_traced_tenants": (t.MODERATE, "several processes ran in the instance"),
        "short_kernels_overlap": (-t.DECISIVE, "short kernels of different tenants ran together"),
        "one_traced_tenant": (-t.WEAK, "one process was seen"),
        "steady_kernels": (-t.STRONG, "turns would have stretched repeated kernels"),
        "prompt_starts": (-t.STRONG, "a rival would have finished its slice first"),
        "mps_daemon": (-t.MODERATE, "an MPS server was running"),
        "nvml_one_process": (-t.MODERATE, "the driver lists one process"),
    },
)
