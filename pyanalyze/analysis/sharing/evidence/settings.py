"""Names, environment, logs and configuration: what the device is, and how it was set up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import MPS_PERCENTAGE, mig_sm_counts, mps_caps
from pyanalyze.analysis.mps_daemon import server_ran
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.evidence.made import from_fact, of_device, plain, query_of
from pyanalyze.analysis.sharing.facts import MANY, Case, Observation
from pyanalyze.text import format as fmt
from pyanalyze.text.numbers import bounded_float

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Variables of software limiters begin so.
LIMITERS = ("CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT", "NVSHARE_")


def observations(case: Case) -> Iterable[Observation]:
    """Make those of this module."""
    if case.mig_profile is not None:
        yield of_device(case, "mig_instance", f"the device is the MIG instance {case.mig_profile} ({case.name})")
        if "c." in case.mig_profile:
            yield of_device(
                case,
                "mig_compute_instance",
                f"{case.mig_profile} is a compute instance; other compute instances may share its GPU instance",
            )
    elif case.sampled_instance is not None:
        # An answer that gives no profile and no UUID of it still counts it as an instance.
        yield replace(
            of_device(case, "mig_instance", f"samples are of the MIG instance {case.sampled_instance}"), basis="sampled"
        )
    elif case.mig_enabled and case.vgpu_profile is None:
        yield replace(
            of_device(case, "mig_instance", "samples say that MIG mode is on: work runs in instances only"),
            basis="sampled",
        )
    if case.instances_unassigned > 1 and (case.fact("traced_tenants") or 0) >= MANY:
        yield plain(
            "instance_unknown",
            f"the capture lists {case.instances_unassigned} MIG instances, but not which process used which",
            "observed",
            float(case.instances_unassigned),
            sql=query_of(case, "instance_unknown"),
        )
    if case.vgpu_profile is not None:
        backed = case.vgpu_profile.count("-") >= 2
        yield of_device(case, "vgpu_mig_name" if backed else "vgpu_name", f"the device is a virtual GPU ({case.name})")
    yield from _visible_sms(case)
    yield from _less_memory(case)
    if case.green_contexts:
        yield plain(
            "green_contexts",
            f"green contexts with SM sets of their own: {case.green_contexts}",
            "observed",
            float(case.green_contexts),
            sql=query_of(case, "green_contexts"),
        )
    daemon = case.setting("mps_daemon")
    if daemon is not None and mps_server(case):
        yield plain("mps_daemon", f"an MPS daemon and its server were running ({daemon.source})")
    elif daemon is not None:
        yield plain("mps_daemon_idle", f"an MPS control daemon was running, without a server ({daemon.source})")
    server = case.setting("mps_client")
    if server is not None:
        yield plain("mps_client_connected", "an MPS log shows connected clients")
    for key, name in (
        (MPS_PERCENTAGE, "mps_percentage"),
        ("CUDA_MPS_SM_PARTITION", "mps_sm_partition"),
        ("CUDA_MPS_PIPE_DIRECTORY", "mps_pipe"),
    ):
        row = case.setting(key)
        if row is not None and row.value and not _is_full_percentage(name, row.value):
            number = bounded_float(row.value) if name == "mps_percentage" else None
            yield plain(name, f"{key}={row.value} ({row.source})", "configured", number, "%" if number else "1")
    yield from _caps(case)
    if case.compute_capability is not None and case.compute_capability[0] < 7:
        yield plain(
            "pre_volta",
            f"compute capability {case.compute_capability[0]}.{case.compute_capability[1]}",
            "observed",
            case.compute_capability[0] + case.compute_capability[1] / 10,
            sql=query_of(case, "pre_volta"),
        )
    yield from _limiter(case)


def _limiter(case: Case) -> Iterable[Observation]:
    rows = [row for row in case.configured if row.key.startswith(LIMITERS)]
    if not rows:
        return
    yield plain("software_limiter", f"{rows[0].key} is set: a software limiter intercepts the CUDA library")
    # 0 and 100 are no limit of SMs; others of its variables limit memory.
    limits = [number for row in rows if row.key == "CUDA_DEVICE_SM_LIMIT" and (number := bounded_float(row.value))]
    busy = case.facts.get("busy_share")
    if min(limits, default=100.0) < 100 and busy and (busy.value or 1.0) <= t.MAX_HELD_BACK_BUSY_SHARE:
        yield replace(
            from_fact(
                case,
                "busy_share",
                "idle_behind_limiter",
                f"the limit is {min(limits):.0f} % of the SMs, and no kernel was in flight for "
                f"{fmt.percent(1 - (busy.value or 0))} of the window",
            ),
            basis="inferred",
        )


def _caps(case: Case) -> Iterable[Observation]:
    """MPS percentages without effect, or with a sum above 100 %."""
    caps = [percentage for _, percentage in mps_caps((row.key, row.value, row.pid) for row in case.configured)]
    capped = [percentage for percentage in caps if percentage < 100]
    # A cap of nearly all SMs is rounded to pairs of them.
    low = min(capped, default=100.0)
    shown = case.visible_sms and case.sm_count and min(case.visible_sms) >= case.sm_count
    if shown and low <= t.MAX_TELLING_PERCENTAGE and case.mig_profile is None:
        yield Observation(
            "cap_without_effect",
            float(min(case.visible_sms)),
            "SMs",
            len(case.visible_sms),
            "observed",
            f"{MPS_PERCENTAGE}={low:g} was set, but every process saw all {case.sm_count} SMs: the cap had no effect",
            query_of(case, "cap_without_effect"),
            n_of="processes",
        )
    if len(capped) >= MANY and sum(caps) > t.WHOLE_PERCENTAGE:
        yield plain(
            "caps_over_100",
            f"the MPS percentages of {len(caps)} processes add up to {sum(caps):g} %: they may share SMs",
            value=sum(caps),
            unit="%",
        )


def mps_server(case: Case) -> bool:
    """Whether settings or logs show that an MPS server ran."""
    return server_ran((row.key, row.value, row.pid) for row in case.configured)


def _visible_sms(case: Case) -> Iterable[Observation]:
    """Fewer SMs than the GPU has: those of a cap, or of a MIG instance that goes by its board's name."""
    if case.mig_profile is not None or case.vgpu_profile is not None or not case.sm_count:
        return
    whole = max(case.sm_count, case.product_sms or 0)
    visible = case.visible_sms or (case.sm_count,)
    if not any(sms < whole for sms in visible):
        return
    daemon = mps_server(case) or case.setting(MPS_PERCENTAGE) is not None
    if case.mig_enabled and not daemon:
        return  # those of the instance
    # An instance has less memory, too.
    profiles = mig_sm_counts(case.name or "")
    possible = all(sms in profiles for sms in visible) and case.mig_enabled is not False
    like_mig = possible and not daemon and (case.sm_count == whole or case.memory_below_product is not False)
    counts = ", ".join(str(sms) for sms in sorted(visible))
    shown = bool(case.visible_sms)
    name = "sms_like_mig" if like_mig else "sms_hidden"
    yield Observation(
        name,
        float(min(visible)),
        "SMs",
        len(visible),
        "observed",
        (
            f"the processes saw {counts} of {whole} SMs"
            if shown
            else f"{counts} of the {whole} SMs of a {case.name} show"
        )
        + (", as many as MIG instances of this board have" if like_mig else ""),
        query_of(case, name) if shown else None,
    )


def _less_memory(case: Case) -> Iterable[Observation]:
    """Less memory than the named board has, and all of its SMs: MIG leaves fewer SMs as well."""
    whole = case.product_sms is not None and case.sm_count == case.product_sms
    if case.memory_below_product and whole and case.mig_profile is None and case.vgpu_profile is None:
        yield plain(
            "memory_below_product",
            f"less memory shows than a {case.name} has, but all of its {case.sm_count} SMs: a virtual GPU, or a limit "
            "in software",
            "observed",
        )


def _is_full_percentage(name: str, value: str) -> bool:
    return name == "mps_percentage" and (bounded_float(value) or 0.0) >= 100.0
