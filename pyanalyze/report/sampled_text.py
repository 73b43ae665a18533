"""Sentences on what samples and listings say of a device: who is on it, how it was set up, how it was used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.listed import configured_sharing
from pyanalyze.results.labels import listed_labels
from pyanalyze.results.listed import without_tenants
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.numbers import bounded_int
from pyanalyze.text.pairs import parse_pairs
from pyanalyze.vocabulary import MEMORY_RESERVE, MPS_FAULT, MPS_PENDING, SMALL_SHARE, TRAITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.report.blocks import Block
    from pyanalyze.results.association import Association
    from pyanalyze.results.listed import ConfiguredSharing, ListedNode, ListedTenant, SampledShare, Setting
    from pyanalyze.results.report import Clock, Device, Fault, Report, Sampled
    from pyanalyze.results.sampled import SampledCounter

__all__ = [
    "association_text",
    "counters_table",
    "engines_sentence",
    "engines_text",
    "general_sentence",
    "gpu_text",
    "health_of_all",
    "health_parts",
    "idle_note",
    "least_to_most",
    "mean_text",
    "moment_text",
    "named_gpus",
    "node_sentences",
    "only_sampled",
    "outside_window",
    "power_text",
    "range_text",
    "sampled_times",
    "seen_text",
    "set_up_text",
    "share_text",
    "sharing_sentence",
    "span_text",
    "throttling_text",
    "unplaced_sentence",
    "use_basis",
    "use_sentence",
    "without_capture",
]

#: Counters that say whether the device is idle; where several were sampled, the first.
_IDLE_BY = ("gpu_utilization", "gr_engine_active", "sm_active")
#: What sampled counters of the whole device are, in words, and how they are defined.
_COUNTERS = {
    "gpu_utilization": ("Utilisation", "share of time in which a kernel ran"),
    "gr_engine_active": ("Engine active", "graphics or compute, share of time"),
    "sm_active": ("SMs active", "SMs with at least one warp, mean over SMs and time"),
    "sm_occupancy": ("Warp slots in use", "SM occupancy: resident warps over all warp slots, mean over SMs and time"),
    "tensor_active": ("Tensor pipes active", "share of cycles"),
    "tensor_hmma_active": ("Tensor pipes active, FP16 and BF16", "share of cycles"),
    "tensor_imma_active": ("Tensor pipes active, integer", "share of cycles"),
    "tensor_dfma_active": ("Tensor pipes active, FP64", "share of cycles"),
    "fp64_active": ("FP64 pipes active", "share of cycles"),
    "fp32_active": ("FP32 pipes active", "share of cycles; by DCGM, FMA and integer"),
    "fp16_active": ("FP16 pipes active", "share of cycles, without tensor pipes"),
    "int_active": ("Integer pipes active", "share of cycles"),
    "dram_active": ("DRAM active", "share of cycles with traffic"),
    "memory_utilization": ("Memory busy", "share of time in which device memory was read or written, not bandwidth"),
    "encoder_utilization": ("Video encoder busy", "NVENC, share of time"),
    "decoder_utilization": ("Video decoder busy", "NVDEC, share of time"),
    "jpeg_utilization": ("JPEG engine busy", "share of time"),
    "ofa_utilization": ("Optical flow engine busy", "share of time"),
    "pcie_rx": ("PCIe received", "by the GPU"),
    "pcie_tx": ("PCIe sent", "by the GPU"),
    "nvlink_rx": ("NVLink received", ""),
    "nvlink_tx": ("NVLink sent", ""),
    "clock_sm": ("SM clock", ""),
    "clock_memory": ("Memory clock", ""),
    "temperature": ("Temperature", "of the GPU"),
}
#: What the driver calls the engines beside the SMs, in words.
_ENGINES = {"encoder": "encoder", "decoder": "decoder", "jpeg": "JPEG engine", "ofa": "optical flow engine"}
#: Samples of less than this part of a time do not speak for all of it.
ALMOST_ALL = 0.9
#: Memory that no listed process has, from which on it is named: contexts and the driver take less.
NOTABLE_BYTES = 2 * 2**30
#: Tenants that one sentence names.
_NAMED = 6
#: How NVML calls what limits clocks, in words.
REASON_WORDS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "thermal (software)",
    "hw_thermal_slowdown": "thermal (hardware)",
    "hw_power_brake_slowdown": "power brake",
    "thermal_limit": "temperature limit",
}
_FAULT_WORDS: dict[Fault, str] = {
    "row-remapping-failed": "row remapping failed",
    "unrepairable-memory": "memory that cannot be repaired",
    "row-remapping-pending": "row remapping pending",
    "channel-repair-pending": "channel repair pending",
    "tpc-repair-pending": "TPC repair pending",
    "page-retirement-pending": "page retirement pending",
}
_LOCAL = " local time"
#: The word of the driver for nothing to do.
_NO_ACTION = "None"


def only_sampled(report: Report, device: Device) -> bool:
    """Whether nothing but samples and listings is known of a device."""
    return not device.tenants and not any(capture.nsys_version for capture in report.captures)


def without_capture(report: Report) -> bool:
    """Whether nothing but samples and listings was given."""
    return not any(capture.is_recorded for capture in report.captures)


def span_text(report: Report, device: Device, *, short: bool = False) -> str | None:
    """From when to when a device was sampled, where no activity was recorded; None where times are not known.

    `short`: for how long.
    """
    found = device.sampled
    if device.window is not None or found is None or found.start_ns is None or found.end_ns is None:
        return None
    clock = report.clock
    length = "one moment" if found.start_ns == found.end_ns else fmt.duration(found.end_ns - found.start_ns)
    zone = ", local time of unknown zone" if clock.origin_utc_ns is None else ""
    if short or (clock.origin_utc_ns is None and clock.origin_local_ns is None):
        return f"{length}{zone}"
    # As the files have them: no input gives the zone.
    return f"{_from_to(clock, found.start_ns, found.end_ns).removesuffix(_LOCAL)} ({length}){zone}"


def moment_text(clock: Clock, ns: int | None) -> str:
    """A moment in UTC; of samples whose zone no input gives, in local time as written."""
    if clock.origin_utc_ns is not None or clock.origin_local_ns is None:
        return fmt.utc(clock.origin_utc_ns, ns)
    return fmt.utc(clock.origin_local_ns, ns).replace(" UTC", _LOCAL)


def _from_to(clock: Clock, first_ns: int, last_ns: int) -> str:
    """From one moment to another; the day and the zone once."""
    first, last = (moment_text(clock, ns) for ns in (first_ns, last_ns))
    if first == last:
        return first
    return f"{first.removesuffix(' UTC').removesuffix(_LOCAL)} to {last[11:] if first[:10] == last[:10] else last}"


def seen_text(tenant: ListedTenant, clock: Clock) -> str:
    """From when to when lists name a tenant."""
    if tenant.first_ns is None or tenant.last_ns is None:
        return fmt.UNKNOWN
    if clock.origin_utc_ns is not None or clock.origin_local_ns is not None:
        return _from_to(clock, tenant.first_ns, tenant.last_ns)
    if tenant.first_ns == tenant.last_ns:
        return "once"
    return f"{fmt.duration(tenant.first_ns)} to {fmt.duration(tenant.last_ns)}"


def outside_window(device: Device) -> str | None:
    """Say that samples were taken before or after the window; None: almost all of them in it, or times not known.

    Their margin is that of samples which belong to a capture: seconds, where a window may have milliseconds.
    """
    found, window = device.sampled, device.window
    if found is None or window is None or found.start_ns is None or found.end_ns is None:
        return None
    length = window.end_ns - window.start_ns
    if found.end_ns < window.start_ns:
        last = fmt.duration(window.start_ns - found.end_ns)
        return f"No sample is from the window: the last one was taken {last} before it."
    if found.start_ns > window.end_ns:
        first = fmt.duration(found.start_ns - window.end_ns)
        return f"No sample is from the window: the first one was taken {first} after it."
    before, after = window.start_ns - found.start_ns, found.end_ns - window.end_ns
    parts = [
        f"{fmt.duration(ns)} {which} it"
        for ns, which in ((before, "before"), (after, "after"))
        if ns > SMALL_SHARE * length
    ]
    return f"Samples outside of the window count as well: up to {' and '.join(parts)}." if parts else None


def gpu_text(device: Device) -> str:
    """A device by its UUID, as every other tool names it; else by its number."""
    uuid = visible(device.uuid or (None if device.mig else device.gpu_uuid))
    return uuid or f"device {device.device_id}"


def set_up_text(report: Report, device: Device) -> str | None:
    """How settings share a device, such as `time-slicing, 4 replicas`; None where none speaks of sharing."""
    parts = []
    found = device.configured_sharing
    board = _board_of(device)
    instances = [d for d in report.devices if d.mig is not None and board is not None and _board_of(d) == board]
    alike = _alike_text(instances)
    listed = alike or ", ".join(_instance_text(d) for d in instances)
    of = " of " if alike else ": "
    if device.mig is not None:
        numbers = [f"{name} {n}" for name, n in (("GI", device.mig.gi), ("CI", device.mig.ci)) if n is not None]
        said = ", ".join([*filter(None, [visible(device.mig.profile, 20)]), *numbers]) or "of unknown profile"
        among = f" (one of {len(instances)} on the board{of}{listed})" if len(instances) > 1 else ""
        parts.append(f"MIG instance {said}{among}")
    elif instances:
        parts.append(f"MIG, {len(instances)} instance{'' if len(instances) == 1 else 's'}{of}{listed}")
    elif listed_there := _listed_instances(device.settings):
        parts.append(f"MIG instances are listed ({'; '.join(listed_there)}), but samples show none")
    elif device.sharing.configured is not None and TRAITS[device.sharing.configured].mig_instance:
        parts.append("MIG is enabled; no input lists its instances")
    # What an MPS daemon was told concerns the devices that it serves.
    configured = device.sharing.configured
    caps = _caps(report, device) if configured is not None and TRAITS[configured].mps else []
    if found is None:
        mode = device.sharing.configured
        words = [str(mode)] if mode is not None and not parts else []
        return "; ".join([*parts, *([", ".join([*words, *caps])] if words or caps else [])]) or None
    return "; ".join([*parts, ", ".join([_strategy_text(found), *caps])])


def _board_of(device: Device) -> str | int | None:
    """What tells the board of a device: its UUID, else its index in tables that print none; None: nothing does."""
    uuid = device.gpu_uuid or (None if device.mig is not None else device.uuid)
    return uuid or (None if device.sampled is None else device.sampled.gpu_index)


def _caps(report: Report, device: Device) -> list[str]:
    """What an MPS server was told of all of its clients."""
    return _caps_of([*device.settings, *report.settings])


def _caps_of(settings: Sequence[Setting]) -> list[str]:
    general = [one for one in settings if one.pid is None]
    percentages = {one.value for one in general if one.key == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}
    limits = {one.value.partition("=")[2] for one in general if one.key == "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}
    parts = [f"each client at most {visible(one, 8)} % of the threads" for one in percentages if len(percentages) == 1]
    for one in limits if len(limits) == 1 else ():
        size = bounded_int(one)
        parts.append(f"at most {visible(one, 12) if size is None else fmt.bytes_(size)} of memory")
    return parts


def _strategy_text(found: ConfiguredSharing) -> str:
    if found.conflict:
        return f"settings name different strategies: {fmt.names([str(mode) for mode in found.strategies])}"
    if found.other_nodes and not found.shared:
        return f"not known: {found.nodes_text}"
    if not found.shared:
        return "not shared, each GPU is offered once"
    if found.strategy is None:
        return "shared; no input says by which strategy"
    return f"{found.strategy}{'' if found.replicas is None else f', {found.replicas} replicas'}"


def general_sentence(report: Report) -> str | None:
    """How settings of no single device share GPUs; None where none speaks of sharing, or each node says its own."""
    if report.nodes:
        return None
    instances = _listed_instances(report.settings)
    found = configured_sharing(report.settings)
    mps = any(one.key in ("mps_server", "mps_client", "mps_device") for one in report.settings)
    parts = [f"MIG on {'; '.join(instances)}"] if instances else []
    if found.shared:
        parts.append(_strategy_text(found))
    elif mps:
        parts.append(", ".join(["mps", *_caps_of(report.settings)]))
    policies = [parse_pairs(one.value).get("config", "") for one in report.settings if one.key == "k8s_policy"]
    if policies and not found.shared:
        parts.append(f"configuration {visible(policies[0], 40)} of the device plugin; no input holds it")
    return "; ".join(parts) or None


def _listed_instances(settings: Sequence[Setting]) -> list[str]:
    """MIG instances that `mig -lgi` or `-lci` lists, board by board, such as `GPU 0: 1g.10gb (GI 9)`."""
    for key in ("mig_compute_instance", "mig_gpu_instance"):
        boards: dict[str, list[str]] = {}
        for one in settings:
            fields = parse_pairs(one.value) if one.key == key else {}
            if {"gpu", "gi", "profile"} <= fields.keys():
                compute = f", CI {visible(fields['ci'], 4)}" if "ci" in fields else ""
                text = f"{visible(fields['profile'], 20)} (GI {visible(fields['gi'], 4)}{compute})"
                boards.setdefault(fields["gpu"], []).append(text)
        if boards:
            return [f"GPU {visible(board, 8)}: {fmt.names(found, _NAMED)}" for board, found in boards.items()]
    return []


def named_gpus(report: Report) -> list[str]:
    """GPUs that settings name where no sample or capture shows one, as the settings name them."""
    found: dict[str, None] = {}
    for one in report.settings:
        fields = parse_pairs(one.value) if one.key.startswith(("mig_", "mps_", "gpu")) else {}
        index = fields.get("gpu", fields.get("device", "") if one.key == "mps_device" else "")
        if fields.get("uuid", "").startswith(("GPU-", "MIG-")):
            found[visible(fields["uuid"], 44)] = None
        elif index.isdecimal():
            name = f" ({visible(fields['name'], 40)})" if "name" in fields else ""
            found[f"{'MPS device' if one.key == 'mps_device' else 'GPU'} {index[:8]}{name}"] = None
    found |= {_gpus_text(node): None for node in report.nodes}
    return list(found)


def _gpus_text(node: ListedNode) -> str:
    product = visible((node.product or "unknown product").removesuffix("-SHARED"), 60)
    return f"GPUs ({product})" if node.gpus is None else f"{fmt.counted(node.gpus, 'GPU')} ({product})"


def node_sentences(report: Report) -> list[str]:
    """Say of each node without a device in the report how it is set up and which pods hold its GPUs."""
    return [_node_sentence(node) for node in report.nodes if not node.device_ids]


def _node_sentence(node: ListedNode) -> str:
    found = node.sharing
    how = _strategy_text(found) if found.shared or found.replicas == 1 else "sharing not known"
    labels = listed_labels(node.tenants)
    names = [labels[number] for number in range(len(node.tenants))]
    if not names:
        return f"{_gpus_text(node)}, {how}. No listed pod holds a GPU"
    several = len(names) > 1
    asked = [one.requested_gpus for one in node.tenants]
    if node.gpus == 1:
        whose = " share its GPU" if several else " holds its GPU"
    elif found.replicas == 1 and None not in asked and sum(one or 0 for one in asked) == node.gpus:
        whose = f" hold{'' if several else 's'} all {node.gpus} GPUs"
    else:
        whose = ": no input says on which GPU"
    return f"{_gpus_text(node)}, {how}. {fmt.names(names, _NAMED)}{whose}"


def _alike_text(instances: Sequence[Device]) -> str:
    """What several MIG instances without a profile have, where all have the same, and their numbers; else empty."""
    has = {(one.sm_count, None if one.memory is None else one.memory.total_bytes) for one in instances}
    numbers = sorted(one.mig.gi for one in instances if one.mig is not None and one.mig.gi is not None)
    named = any(one.mig is not None and one.mig.profile is not None for one in instances)
    if named or len(has) > 1 or len(numbers) < len(instances) or len(numbers) < 2:
        return ""
    ((sms, memory),) = has
    parts = [*([] if sms is None else [f"{sms} SMs"]), *([] if memory is None else [fmt.bytes_(memory)])]
    in_row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    gis = f"{numbers[0]} to {numbers[-1]}" if in_row else fmt.names([str(one) for one in numbers])
    return f"{', '.join(parts)}: GI {gis}" if parts else ""


def _instance_text(device: Device) -> str:
    """A MIG instance by its profile; where no input names it, by its number and what it has."""
    mig = device.mig
    if mig is None or mig.profile is not None:
        return "unknown profile" if mig is None else visible(mig.profile, 20)
    has = [f"{device.sm_count} SMs"] if device.sm_count is not None else []
    memory = None if device.memory is None else device.memory.total_bytes
    has += [fmt.bytes_(memory)] if memory is not None else []
    number = "unknown profile" if mig.gi is None else f"GI {mig.gi}"
    return f"{number} ({', '.join(has)})" if has else number


def sharing_sentence(report: Report, device: Device) -> str | None:
    """Name the compute tenants on a device and how it was set up; None where nobody is listed."""
    labels = listed_labels(device.listed)
    mine = [(labels[number], one) for number, one in enumerate(device.listed) if one.computes]
    names = [label for label, one in mine if one.placed_by != "inferred"]
    pods = [label for label, one in mine if one.placed_by == "inferred"]
    if not mine:
        return None
    set_up = set_up_text(report, device) or "not known"
    # A process and the pod that it belongs to may both be listed: they are not counted as two.
    also = (
        f"; pods of this node: {fmt.names(pods, _NAMED)} (which process is whose is not known)"
        if names and pods
        else ""
    )
    # So may one that samples of another source placed here.
    apart = [(label, one) for label, one in mine if one.placed_by != "inferred"]
    whole = [label for label, one in apart if one.pod is not None and one.pid is None]
    loose = [label for label, one in apart if one.pod is None and one.pid is not None]
    if whole and loose:
        names = [name for name in names if name not in loose]
        several = len(loose) > 1
        also += f"; process{'es' if several else ''} {fmt.names(loose, _NAMED)} may belong to {_them(whole)}"
    found = names or pods
    if len(found) == 1:
        return f"{found[0]} is the only tenant listed on {gpu_text(device)}{also}; configured: {set_up}"
    free = _empty_instances(report, device)
    return f"{fmt.names(found, _NAMED)} share {gpu_text(device)}{free}{also}; configured: {set_up}"


def _empty_instances(report: Report, device: Device) -> str:
    """How many other MIG instances of the board have no listed process; empty: none, or lists do not tell."""
    board = _board_of(device)
    if device.mig is None or board is None:
        return ""
    here = [one for one in report.devices if _board_of(one) == board]
    instances = {one.device_id: one.listed for one in here if one.mig is not None}
    empty = without_tenants(instances, [one for other in here if other.mig is None for one in other.listed])
    return f"; {len(empty)} of {len(instances)} instances of its board had no listed process" if empty else ""


def _them(pods: list[str]) -> str:
    return "it" if len(pods) == 1 else "one of them"


def unplaced_sentence(report: Report) -> str | None:
    """Name the compute tenants of which no input says the GPU, and pods that hold none; None where there are none.

    Those of nodes without a device in the report are on a GPU of theirs.
    """
    labels = listed_labels(report.listed)
    elsewhere = {node.name for node in report.nodes if not node.device_ids}
    mine = [(labels[number], one.node) for number, one in enumerate(report.listed) if one.computes]
    names = [label for label, node in mine if node not in elsewhere]
    others = [label for label, node in mine if node in elsewhere]
    parts = [f"{fmt.names(names, _NAMED)}: no input says on which GPU"] if names else []
    if others and report.devices:
        parts.append(f"on other nodes: {fmt.names(others, _NAMED)}")
    if report.pods_without_gpu:
        pods = [f"{visible(one.pod, 40)} ({visible(one.phase, 12)})" for one in report.pods_without_gpu]
        parts.append(f"without a GPU: {fmt.names(pods, _NAMED)}")
    return "; ".join(parts) or None


def association_text(found: Association) -> str:
    """State an association: effect, interval, lag; never as a cause."""
    whose = f"latency of {visible(found.victim, 40)}" if found.victim else "latency"
    tenant = visible(found.tenant, 40)
    if not found.associated:
        return f"no association of {whose} with the activity of {tenant} (p = {found.p:.2f}, n = {found.n})"
    lag = "no lag" if not found.lag_ns else f"lag {fmt.duration(found.lag_ns)}"
    return (
        f"{whose} goes with {tenant}: {fmt.ratio(found.effect)} while it is active "
        f"({fmt.interval(found.low, found.high)}, {lag}, n = {found.n}); an association, not a cause"
    )


def share_text(tenant: ListedTenant) -> str:
    """Sampled utilisation of a tenant; bounds where the value is the whole device's."""
    return fmt.UNKNOWN if tenant.utilization is None else _share(tenant.utilization)


def _share(found: SampledShare) -> str:
    if found.value is None:
        return f"at most {fmt.percent(found.high)}"
    low, high = fmt.percent(found.low), fmt.percent(found.high)
    if found.low is not None and found.low < found.value and low != high:
        return f"{low} to {high}"
    return fmt.percent(found.value)


def _share_in_words(found: SampledShare) -> str:
    """The same in a sentence: in how many samples there was a value, where some have none."""
    if found.value is None or found.listed is None or found.n == found.listed:
        return _share(found)
    of = fmt.counted(found.listed, "sample")
    return f"{fmt.percent(found.value)} (in {fmt.count(found.n)} of {of}; the others have no value)"


def engines_text(tenant: ListedTenant, *, in_words: bool = False) -> str:
    """Sampled use of the engines beside the SMs, those that were used; empty: none was, or none was sampled."""
    used = {name: share for name, share in tenant.engines.items() if share.high}
    say = _share_in_words if in_words else _share
    return ", ".join(f"{_ENGINES[name]} {say(share)}" for name, share in used.items())


def engines_sentence(device: Device) -> str | None:
    """Name each engine that was busier than the SMs: what the device is shared for; None: none was."""
    found = device.sampled
    if found is None:
        return None
    sms = found.counter("sm_active") or found.counter("gpu_utilization")
    engines = [(name, found.counter(f"{name}_utilization")) for name in _ENGINES]
    if sms is None:
        return None
    # Utilisation is no measure of how many SMs were busy.
    than = "the SMs" if sms.name == "sm_active" else "GPU utilisation"
    if found.separate_moments:
        # They have no mean. Those of a moment without tenants say nothing of what tenants use.
        parts = [
            f"the {_ENGINES[name]} was busy {while_listed(one)} while processes were listed "
            f"({fmt.counted(one.listed_n, 'sample')})"
            for name, one in engines
            if one is not None and (one.listed_low or 0) > (1.0 if sms.listed_high is None else sms.listed_high)
        ]
        of_sms = f"{while_listed(sms)}, {fmt.counted(sms.listed_n, 'sample')}"
        return f"{' and '.join(parts)}, more than {than} ({of_sms})" if parts else None
    busier = [
        f"the {_ENGINES[name]} was busy {fmt.percent(one.mean)} of the time "
        f"({fmt.counted(one.n, 'sample')}, peak {fmt.percent(one.high)})"
        for name, one in engines
        if one is not None and one.mean > sms.mean
    ]
    if not busier:
        return None
    return f"{' and '.join(busier)}, more than {than} ({fmt.percent(sms.mean)}, {fmt.counted(sms.n, 'sample')})"


def _listed_note(counter: SampledCounter) -> str:
    """The same with what it is of; empty where it is the range of all samples as well."""
    whole = (counter.low, counter.high) == (counter.listed_low, counter.listed_high)
    value = while_listed(counter)
    return f"{value} with processes listed" if value and not whole else ""


def while_listed(counter: SampledCounter) -> str:
    """The range of a counter while processes were listed; empty: lists do not part its samples."""
    if counter.listed_low is None or counter.listed_high is None:
        return ""
    low, high = counter.listed_low, counter.listed_high
    return fmt.quantities(low, high, counter.unit) if low < high else fmt.quantity(high, counter.unit)


def range_text(counter: SampledCounter) -> str:
    """Between what values most samples lie, where their mean alone says too little; empty: it does not."""
    if not counter.varies or counter.p10 is None or counter.p90 is None:
        return ""
    # Watts are sampled in hundredths, and nobody needs these.
    low, high = (round(one) if counter.unit == "W" else one for one in (counter.p10, counter.p90))
    return f"{'p10-p90 ' if counter.has_percentiles else ''}{fmt.quantities(low, high, counter.unit)}"


def least_to_most(counter: SampledCounter) -> str:
    """The range of all samples, for samples of separate moments: these have no mean."""
    low, high = (round(one) if counter.unit == "W" else one for one in (counter.low, counter.high))
    return fmt.quantities(low, high, counter.unit)


def mean_text(sampled: Sampled, name: str, *, note: str = "") -> str | None:
    """The mean of a counter with its range where it varies, or its range where samples are of separate moments.

    `note` says in parentheses what the value is not; None: it was not sampled.
    """
    counter = sampled.counter(name)
    if counter is None:
        return None
    value = least_to_most(counter) if sampled.separate_moments else fmt.quantity(counter.mean, counter.unit)
    notes = [_listed_note(counter) if sampled.separate_moments else range_text(counter), note]
    # No semicolon: the first screen leaves out clauses that end with one.
    said = ", ".join(filter(None, notes))
    # A share is one of time: what it is not stands behind that.
    of_time = " of the time" if note else ""
    return f"{value}{of_time}{f' ({said})' if said else ''}"


def power_text(sampled: Sampled) -> str | None:
    """Power in whole watts, with its limit; None: it was not sampled."""
    counter = sampled.counter("power")
    if counter is None:
        return None
    limit = None if sampled.power_limit_w is None else f"limit {sampled.power_limit_w:.0f} W"
    if sampled.separate_moments:
        said, notes = f"power {least_to_most(counter)}", [limit]
    else:
        said, notes = f"mean power {counter.mean:.0f} W", [range_text(counter), limit]
    found = ", ".join(filter(None, notes))
    return f"{said} ({found})" if found else said


def counters_table(device: Device) -> list[Block]:
    """List what was sampled of the whole device; engines that were never used stand in the caption."""
    from pyanalyze.report.blocks import Cell, Column, Table

    counters = [] if device.sampled is None else device.sampled.counters
    unused = [one for one in counters if one.name.removesuffix("_utilization") in _ENGINES and not one.high]
    rows = []
    # Memory and power are key numbers, above.
    shown = [one for one in counters if one not in unused and one.name not in ("memory_used", "power")]
    if not shown:
        return []
    single = all(one.n == 1 for one in shown)
    apart = device.sampled is not None and device.sampled.separate_moments
    ranged = not apart and any(one.varies and one.has_percentiles for one in shown)
    titles = ["One sample"] if single else ["Least", "Most", "Samples"]
    if not single and not apart:
        titles = ["Mean", *(["p10", "p90"] if ranged else []), *titles]
    for one in shown:
        label, note = _COUNTERS.get(one.name, (one.name, ""))
        values: list[float | None] = [one.mean] if single else [one.low, one.high]
        if not single and not apart:
            values = [one.mean, *([one.p10, one.p90] if ranged else []), *values]
        said = [fmt.quantity(value, one.unit) for value in values] + ([] if single else [fmt.count(one.n)])
        rows.append((Cell(label), *map(Cell, said), Cell(note)))
    heads = [Column(title, numeric=True) for title in titles]
    caption = "The whole device (sampled)."
    if device.sampled is not None and device.sampled.entity is not None:
        which = f"Entity {visible(device.sampled.entity, 20)} (sampled)"
        caption = f"{which}: the file does not state whether it is a GPU or a MIG instance."
    if apart and not single:
        caption += " The samples are of separate moments: they have no mean."
    if unused:
        names = fmt.names([_ENGINES[one.name.removesuffix("_utilization")] for one in unused])
        caption += f" Not used in any sample: {names}."
    return [Table((Column("Quantity"), *heads, Column("What it is")), tuple(rows), caption)]


def idle_note(found: Sampled) -> str:
    """How many samples are idle ones, and by which counter they are: the first that has values."""
    use = next((one for one in found.counters if one.name in _IDLE_BY), None)
    if use is None or found.idle_share is None:
        return "of all samples"
    idle = fmt.count(round(found.idle_share * use.n))
    return f"{idle} of {fmt.counted(use.n, 'sample')}: {_COUNTERS[use.name][0]} below 1 %"


def memory_text(tenant: ListedTenant) -> str:
    """Sampled peak of a tenant's memory; a bound where it is the whole device's."""
    if tenant.memory_peak_bytes is None and tenant.memory_bound_bytes is not None:
        return f"at most {fmt.bytes_(tenant.memory_bound_bytes)}"
    return fmt.bytes_(tenant.memory_peak_bytes)


def sampled_times(tenant: ListedTenant) -> int | None:
    """How many samples the utilisation of a tenant is a mean of, or the use of its other engines; None: none."""
    shares = [*([] if tenant.utilization is None else [tenant.utilization]), *tenant.engines.values()]
    return max((share.n for share in shares), default=None)


def _listed_times(tenant: ListedTenant) -> int | None:
    """How many samples list a tenant of which use was sampled, those without a value included; None: none."""
    shares = [*([] if tenant.utilization is None else [tenant.utilization]), *tenant.engines.values()]
    return max((share.listed or share.n for share in shares), default=None)


def _used(device: Device) -> list[tuple[ListedTenant, str]]:
    """Compute tenants of which use or memory was sampled, with their labels."""
    labels = listed_labels(device.listed)
    return [
        (one, labels[number])
        for number, one in enumerate(device.listed)
        if one.computes and (one.utilization is not None or one.memory_peak_bytes is not None)
    ]


def use_basis(device: Device) -> str:
    """How many samples the use of tenants is a mean of, and for what part of the sampled time lists name them."""
    found = [one for one, _ in _used(device)]
    counts = sorted({n for one in found if (n := _listed_times(one)) is not None})
    lists = sorted({one.listings for one in found if one.listings is not None})
    parts = []
    if counts:
        several = f"{fmt.count(counts[0])} to " if len(counts) > 1 else ""
        parts.append(f"mean of {several}{fmt.counted(counts[-1], 'sample')}")
    firsts = [one.first_ns for one in found if one.first_ns is not None]
    lasts = [one.last_ns for one in found if one.last_ns is not None]
    whole = device.sampled
    if whole is not None and whole.start_ns is not None and whole.end_ns is not None and firsts and lasts:
        listed_ns, whole_ns = max(lasts) - min(firsts), whole.end_ns - whole.start_ns
        if listed_ns < ALMOST_ALL * whole_ns:
            # Who was there between two lists is not known: how many of them name a tenant is.
            several = f"{fmt.count(lists[0])} to " if len(lists) > 1 else ""
            moments = f"{several}{fmt.counted(lists[-1], 'moment')}" if lists and lists[-1] > 1 else "one moment"
            parts.append(f"listed at {moments} of the {fmt.duration(whole_ns)}")
    return ", ".join(parts)


def use_sentence(device: Device) -> str | None:
    """Utilisation and memory of each compute tenant, most first; None where neither was sampled."""
    found = _used(device)
    if not found:
        return None
    found.sort(key=lambda pair: (-_busy(pair[0]), -(pair[0].memory_peak_bytes or 0)))
    each = []
    for one, label in found[:4]:
        parts = [f"kernels {_share_in_words(one.utilization)}"] if one.utilization is not None else []
        parts += [engines] if (engines := engines_text(one, in_words=True)) else []
        parts += [memory_text(one)] if one.memory_peak_bytes is not None else []
        each.append(f"{label} {', '.join(parts)}")
    more = f"; {len(found) - 4} more" if len(found) > 4 else ""
    bounded = any(one.utilization is not None and one.utilization.value is None for one, _ in found)
    why = " (one value for the whole device: a bound for each)" if bounded else ""
    return f"{'; '.join(each)}{more}{why}{_of_nobody(device)}"


def _of_nobody(device: Device) -> str:
    """How much of the device's memory, at its peak, no listed process had; empty: next to nothing, or not known."""
    peak = None if device.memory is None else device.memory.peak_bytes
    listed = [one.memory_peak_bytes for one in device.listed]
    if peak is None or None in listed:
        return ""
    rest = peak - sum(used or 0 for used in listed)
    return f"; {fmt.bytes_(rest)} of the memory peak belong to no listed process" if rest >= NOTABLE_BYTES else ""


def _busy(tenant: ListedTenant) -> float:
    """The most that it used of any engine."""
    shares = [*([tenant.utilization] if tenant.utilization is not None else []), *tenant.engines.values()]
    return max((one.high or 0.0 if one.value is None else one.value for one in shares), default=0.0)


def throttling_text(device: Device, *, flagged: bool = True) -> str:
    """What limited the clocks, in how many samples and for how long; `flagged`: that no flag was set as well."""
    found = None if device.sampled is None else device.sampled.throttling
    if found is None:
        return fmt.UNKNOWN
    samples = f"{fmt.count(found.n)} sample{'' if found.n == 1 else 's'}"
    shares = [
        f"{REASON_WORDS.get(reason, reason)} in {fmt.percent(share, 0)}" for reason, share in found.shares.items()
    ]
    parts = [f"{', '.join(shares)} of {samples}"] if shares else []
    limits = (("power limit", found.power_limited), ("temperature", found.thermal_limited))
    timed = [f"{name} {fmt.percent(share)} of the time ({samples})" for name, share in limits if share]
    # Flags are of moments; the driver counts all of the time between.
    held = [f"{REASON_WORDS[reason]} for {fmt.duration(ns)}" for reason, ns in found.limited_ns.items()]
    limited = f"{', '.join(held)} of" if held else "none in"
    counted = [] if found.counted_ns is None else [f"{limited} {fmt.duration(found.counted_ns)}"]
    moments = found.counted_ns is not None or (device.sampled is not None and device.sampled.separate_moments)
    flags = [f"no flag in {samples}"] if moments and not parts and flagged else []
    return ", ".join([*counted, *parts, *timed, *flags]) or f"none ({samples})"


def health_parts(device: Device) -> list[str]:
    """What is wrong with a device by its samples, worst first; empty: nothing is."""
    return [text for _, text in _wrong(device)]


def _wrong(device: Device) -> list[tuple[int, str]]:
    """What is wrong, with its rank: broken memory, errors of programs, full memory, slow clocks."""
    found, parts = device.sampled, list[tuple[int, str]]()
    if found is None:
        return []
    if found.ecc_uncorrected:
        parts.append((0, fmt.counted(found.ecc_uncorrected, "uncorrected ECC error")))
    if found.faults:
        parts.append((0, ", ".join(_FAULT_WORDS[fault] for fault in found.faults)))
    if found.recovery_action not in (None, _NO_ACTION):
        parts.append((0, f"the driver asks for: {visible(found.recovery_action, 40)}"))
    if found.xid:
        parts.append((1, f"Xid {', '.join(map(str, found.xid))}"))
    memory = device.memory
    free, total = (None, None) if memory is None else (memory.headroom_bytes, memory.total_bytes)
    if total and free is not None and free < MEMORY_RESERVE * total:
        parts.append((2, f"memory almost full: {fmt.bytes_(free)} of {fmt.bytes_(total)} free at the peak"))
    throttling = found.throttling
    limited = throttling is not None and (throttling.power_limited or throttling.thermal_limited)
    if throttling is not None and (throttling.shares or limited or throttling.limited_ns):
        parts.append((3, f"clocks throttled: {throttling_text(device, flagged=False)}"))
    return parts


def health_of_all(report: Report, *, sentences: bool = False) -> list[str]:
    """What is wrong with MPS and with each device, the worst device first; of several devices each is named.

    `sentences`: each part stands by itself, and names its device.
    """
    unwell = [(found, device) for device in report.devices if (found := _wrong(device))]
    unwell.sort(key=lambda pair: (pair[0][0][0], -len(pair[0]), pair[1].device_id))
    settings = [*report.settings, *(one for device in report.devices for one in device.settings)]
    said = _failed_servers(settings)
    for found, device in unwell:
        texts = [text for _, text in found]
        name = f"device {device.device_id}: " if len(report.devices) > 1 else ""
        said += [f"{name if sentences or not number else ''}{text}" for number, text in enumerate(texts)]
    return [*said, *_waiting_clients(settings)]


def _failed_servers(settings: Sequence[Setting]) -> list[str]:
    pids = dict.fromkeys(one.pid for one in settings if one.key == MPS_FAULT)
    names = ["MPS server" if pid is None else f"MPS server {pid}" for pid in pids]
    return [f"{name} failed with a fatal GPU error: its clients must be restarted" for name in names]


def _waiting_clients(settings: Sequence[Setting]) -> list[str]:
    pids = list(dict.fromkeys(str(one.pid) for one in settings if one.key == MPS_PENDING and one.pid is not None))
    if not pids:
        return []
    who = f"MPS client {pids[0]} waits" if len(pids) == 1 else f"MPS clients {fmt.names(pids, 4)} wait"
    return [f"{who}: the MPS server of another user is running"]
