"""MPS since Volta, without caps: clients share the SMs at the same time."""

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import Mode

#: What every kind of MPS shows of its clients.
CLIENTS: dict[str, tuple[float, str]] = {
    "short_kernels_overlap": (
        t.DECISIVE,
        "short kernels of different processes run together only in one shared context group",
    ),
    "busy_without_switches": (
        t.STRONG,
        "tenants were busy together and the engine was not switched between them",
    ),
    "turns_with_outsider": (t.WEAK, "only a group in one context runs together and takes turns with somebody else"),
    "mps_daemon": (t.STRONG, "an MPS server was running while recording: a client had connected to its daemon"),
    "mps_daemon_idle": (t.WEAK, "an MPS daemon was there to connect to"),
    "mps_client_connected": (t.STRONG, "the MPS log shows clients"),
    "nvml_mps_server": (t.MODERATE, "the driver lists an MPS server"),
    "nvml_mps_clients": (t.STRONG, "the driver lists MPS clients"),
    "mps_pipe": (t.WEAK, "the processes were pointed at an MPS daemon"),
    "starts_when_room": (t.MODERATE, "blocks of several clients are placed as room comes"),
    "no_room_for_both": (-t.STRONG, "the blocks of both would not have fitted"),
    "counters_loud": (t.WEAK, "SMs were active while no traced kernel ran: somebody else worked"),
    "several_traced_tenants": (t.WEAK, "several processes launched work"),
    "one_traced_tenant": (-t.WEAK, "no second client was seen"),
    "sole_resident": (-t.WEAK, "nobody else held the engine, which MPS clients would not show either"),
    "steady_kernels": (-t.WEAK, "no rival disturbed repeated kernels"),
    "prompt_starts": (-t.WEAK, "no rival's blocks kept the SMs from its kernels"),
    "counters_quiet": (-t.STRONG, "nobody else kept SMs active"),
    "alternation": (-t.DECISIVE, "clients of one daemon are not switched against each other"),
    "short_kernels_exclude": (-t.STRONG, "short kernels of different tenants never ran together"),
    "mig_instance": (-t.DECISIVE, "inside an instance that is `mig+mps`"),
    "nvml_one_process": (-t.MODERATE, "the driver lists no other process"),
}

RULE = Rule(
    mode=Mode.MPS,
    shows=(
        "Short kernels of different processes overlap at any phase and the engine is not switched "
        "between them; an MPS daemon runs, NVML types are M+C."
    ),
    looks_like=(
        "Time-slicing, whose recorded kernel intervals overlap as well; a daemon that runs without "
        "clients; MPS with caps."
    ),
    weights={
        **CLIENTS,
        "mps_percentage": (-t.MODERATE, "a cap was set: that is `mps-partitioned`"),
        "cap_without_effect": (t.MODERATE, "all clients saw all SMs, whatever was set"),
        "sms_hidden": (-t.DECISIVE, "clients see fewer SMs than there are: that is `mps-partitioned`"),
        "mps_sm_partition": (-t.STRONG, "a partition was set: that is `mps-static-partition`"),
        "pre_volta": (-t.DECISIVE, "this chip is older than Volta: that is `mps-pre-volta`"),
    },
)
