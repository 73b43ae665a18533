"""Several tenants take turns on the whole engine."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

RULE = Rule(
    mode=Mode.TIME_SLICING,
    shows=(
        "Residency of different tenants alternates in slices (about 2 ms when both are busy); their "
        "short kernels exclude each other; long kernels are stretched by the time they are switched "
        "out."
    ),
    looks_like=(
        "MPS clients that each fill the GPU run one after the other too, but without slices; recorded "
        "intervals of two processes overlap under both, so overlap alone says nothing."
    ),
    weights={
        "alternation": (
            t.DECISIVE,
            "contexts of different tenants are switched on one engine only when time-sliced",
        ),
        "untraced_resident": (t.MODERATE, "a second process held the engine in turns"),
        "short_kernels_exclude": (t.STRONG, "short kernels of different tenants never ran together"),
        "stretched_kernels": (t.MODERATE, "stretching by a slice is what a switched-out kernel shows"),
        "stretched_by_slices": (t.MODERATE, "turns of others add the same time to kernels of any length"),
        "interrupted_kernels": (t.WEAK, "turns of a rare visitor lengthen what they interrupt"),
        "no_room_for_both": (t.STRONG, "a kernel that has the SMs to itself is in nobody's way only when switched out"),
        "starts_when_room": (-t.MODERATE, "who takes turns need not wait for room"),
        "held_back": (-t.DECISIVE, "the GPU stood idle behind a limiter"),
        "counters_loud": (t.MODERATE, "SMs were active while no traced kernel ran: somebody else worked"),
        "several_traced_tenants": (t.WEAK, "several processes launched work"),
        "nvml_several_processes": (t.WEAK, "the driver lists several processes"),
        "one_traced_tenant": (-t.WEAK, "no second process was seen to launch work"),
        "sole_resident": (-t.STRONG, "nobody else held the engine"),
        "busy_without_switches": (-t.DECISIVE, "tenants were busy together without switches"),
        "short_kernels_overlap": (-t.DECISIVE, "short kernels of different tenants ran together"),
        "steady_kernels": (-t.STRONG, "turns would have stretched repeated kernels"),
        "prompt_starts": (-t.STRONG, "a rival would have finished its slice first"),
        "counters_quiet": (-t.STRONG, "nobody else kept SMs active"),
        "sms_hidden": (-t.STRONG, "a process saw fewer SMs than there are, which takes a cap"),
        "mps_daemon": (-t.MODERATE, "an MPS server was running"),
        "mps_percentage": (-t.WEAK, "an MPS percentage was set"),
        "nvml_mps_clients": (-t.MODERATE, "processes are MPS clients"),
        "mig_instance": (-t.DECISIVE, "inside an instance that is `mig+time-slicing`"),
        "vgpu_name": (-t.STRONG, "among virtual machines that is `vgpu-time-sliced`"),
        "nvml_one_process": (-t.MODERATE, "the driver lists no other process"),
    },
)
