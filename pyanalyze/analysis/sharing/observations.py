"""What each observation is: what was seen, in which records, from which threshold on.

In one place, because every rule weighs the same observations; :mod:`pyanalyze.analysis.sharing.evidence` makes them.
Words only: nothing that decides depends on this module, so a sentence may change without a new calibration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import LINGER_NS, MPS_PERCENTAGE, PROMPT_NS
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.text.format import duration, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INFLATED", "SEEN_WHEN"]

#: What counts as interrupted. Where the median holds interruptions itself, there are more of them.
INFLATED = "took over 1.5 times their median and 0.8 ms longer"


def _percent(share: float) -> str:
    return percent(share, 1 if share < 0.01 else 0)


#: One sentence by observation, in the order in which they are made.
SEEN_WHEN: Mapping[str, str] = {
    # Context-switch records
    "kernel_ran_in_preemption": (
        "Switch records: a kernel ran while another tenant's kernel in flight was switched out, without frequent "
        "alternation."
    ),
    "mps_group_time_sliced": (
        "Contexts alternate (`contexts_alternate`), and at least two tenants ran concurrently or are listed as MPS "
        "clients."
    ),
    "group_without_switches": (
        "Contexts alternate, but for most of the time tenants were busy at once with no switches between them."
    ),
    "contexts_alternate": (
        f"Switch records: {t.MIN_ALTERNATIONS:.0f} or more switches between tenants; at least "
        f"{_percent(t.MIN_ALTERNATION_SHARE)} of neighbouring residency intervals change tenant."
    ),
    "sole_resident": f"Switch records: one tenant has {_percent(t.SOLE_RESIDENT_SHARE)} or more of the resident time.",
    "untraced_resident": (
        f"Switch records: untraced processes have {_percent(1 - t.SOLE_RESIDENT_SHARE)} or more of the resident time."
    ),
    "busy_without_switches": (
        f"Several tenants had kernels in flight for {_percent(t.MIN_CO_BUSY_SHARE)} of the busy time or more, with "
        f"under {t.MIN_ALTERNATIONS:.0f} recorded switches."
    ),
    "several_in_one_context": (
        "Switch records show one context, always resident, while several traced processes ran kernels."
    ),
    # Kernel records of several tenants
    "mps_group_interrupted": (
        f"No switch records: {t.MIN_INFLATED:.0f} kernels or more took longer by the same time, but at most "
        f"{_percent(t.MAX_INTERRUPTED_SHARE)} as many as time slices of all tenants would have interrupted."
    ),
    "uninterrupted_together": (
        f"No switch records, no MIG: of {t.MIN_SLICES_DUE:.0f} or more interruptions that time slices would cause, "
        f"at most {_percent(t.MAX_UNINTERRUPTED_SHARE)} show."
    ),
    "turns_in_software": (
        f"Kernels of different processes never meet: each has the GPU repeatedly, for over "
        f"{duration(t.LONGEST_SLICE_NS)}, {t.MIN_TURNS} times or more."
    ),
    "streams_overlap": (
        f"Kernels of several streams of one context overlap for {_percent(t.MIN_STREAM_OVERLAP_SHARE)} or more of the "
        "process's busy time."
    ),
    "streams_apart": (
        f"Kernels of several streams overlap for at most {_percent(t.MAX_TAIL_OVERLAP_SHARE)} of the process's busy "
        "time."
    ),
    "short_kernels_overlap": (
        f"{_percent(t.MIN_SHORT_OVERLAP_SHARE)} or more of at least {t.MIN_SHORT_KERNELS:.0f} short kernels overlap "
        "short ones of another tenant."
    ),
    "short_kernels_exclude": (
        f"At most {_percent(t.MAX_EXCLUSION_SHARE)} of {t.MIN_SHORT_KERNELS:.0f} or more short kernels overlap short "
        f"ones of another tenant; chance gives {_percent(t.MIN_EXPECTED_OVERLAP_SHARE)}."
    ),
    "changes_within_slice": (
        f"{t.MIN_QUICK_CHANGES:.0f} or more kernels start within {duration(800_000)} of their tenant's last one, "
        "beside another tenant's that started since."
    ),
    "changes_after_slice": (
        f"Where another tenant's kernel started in between, no kernel starts within {duration(800_000)} of its own "
        f"tenant's previous one; run concurrently, {t.MIN_QUICK_CHANGES:.0f} or more would."
    ),
    "co_residency_infeasible": (
        f"Kernels were interrupted; {_percent(t.MIN_CROWDED_SHARE)} or more of kernels that start beside another "
        "tenant's large one (3 waves or more, same priority) do so over two waves before its end."
    ),
    "co_residency_doubtful": (
        f"No interruption shows; {_percent(t.MIN_CROWDED_SHARE)} or more of kernels that start beside another "
        "tenant's large one (3 waves or more, same priority) do so over two waves before its end."
    ),
    "sms_left_free": (
        f"Without time slices, {_percent(t.MIN_CROWDED_SHARE)} or more of the kernels that start beside another "
        "tenant's large one (3 waves or more) do so over two waves before its end."
    ),
    "co_residency_unlikely": (
        f"{_percent(t.MIN_CROWDED_SHARE)} or more of the kernels that start beside another tenant's large one "
        "(3 waves or more, priority not known) do so over two waves before its end."
    ),
    "starts_in_partial_last_wave": (
        f"All but {_percent(t.MAX_PARTIAL_WAVE_SHARE)} of kernels beside another tenant's large kernel started in its "
        "last full or partial wave."
    ),
    # Kernel records of one tenant
    "one_traced_tenant": "CUDA work of exactly one process is in the capture.",
    "several_traced_tenants": "CUDA work of two or more processes is in the capture.",
    "prompt_starts": (
        f"One traced process: {_percent(t.MIN_PROMPT_START_SHARE)} of {t.MIN_PROMPT_STARTS:.0f} or more kernels after "
        f"a host copy started within {duration(PROMPT_NS)}."
    ),
    "idle_starts_prompt": (
        f"Of the sole traced process, {_percent(t.MIN_PROMPT_START_SHARE)} of the kernels launched after "
        f"{duration(LINGER_NS)} of idleness started within {duration(PROMPT_NS)}, over {t.MIN_EXPOSURE:.0f} slice "
        "periods or more."
    ),
    "soon_starts_prompt": (
        f"One process, idle for under {duration(LINGER_NS)}: {_percent(t.MIN_PROMPT_START_SHARE)} of its kernels "
        f"started within {duration(PROMPT_NS)}, in {t.MIN_EXPOSURE:.0f} slice periods."
    ),
    "waits_of_time_slices": (
        f"Kernels launched while the sole traced process was idle: {t.MIN_SLICE_WAITS:.0f} or more waited equally "
        f"long, 1 to {t.MOST_SLICES_WAITED} slices."
    ),
    "idle_starts_delayed": (
        f"Of kernels launched while the sole traced process was idle, {t.MIN_SLICE_WAITS:.0f} or more "
        f"({_percent(t.MIN_DELAYED_SHARE)}) waited {duration(PROMPT_NS)} or longer."
    ),
    "kernel_durations_stable": (
        f"Of {t.MIN_REPEATS:.0f} or more repeated launches at most {_percent(t.MAX_STABLE_SHARE)} took 0.8 ms more or "
        f"less than their median; another busy tenant's slices would have hit {t.MIN_EXPOSURE:.0f}."
    ),
    "kernel_durations_inflated": (
        f"{_percent(t.MIN_INFLATED_SHARE)} or more of at least {t.MIN_REPEATS:.0f} repeated kernels {INFLATED}."
    ),
    "interrupted_kernels": (
        f"{t.MIN_INFLATED:.0f} or more repeated kernels {INFLATED}; fewer than {_percent(t.MIN_INFLATED_SHARE)}."
    ),
    "kernel_durations_inflated_by_slices": (
        f"Inflated kernels exceed their median by the same time, within {_percent(t.MAX_SLICE_SPREAD)}, whatever "
        "their length."
    ),
    # Hardware counters
    "sm_idle_outside_traced_kernels": (
        f"`SM Active` counter: mean of {t.MAX_QUIET_SM_ACTIVE_PCT:.0f} % or less in "
        f"{t.MIN_COUNTER_SAMPLES:.0f} samples without a traced kernel."
    ),
    "sm_active_outside_traced_kernels": (
        f"`SM Active` counter: mean of {t.MIN_LOUD_SM_ACTIVE_PCT:.0f} % or more in "
        f"{t.MIN_COUNTER_SAMPLES:.0f} samples without a traced kernel."
    ),
    "utilization_above_traced": (
        f"Samples of GPU utilisation: each of {t.MIN_UTILIZATION_SAMPLES:.0f} or more is over what traced kernels "
        f"explain by {t.MIN_UTILIZATION_EXCESS_PCT:.0f} percentage points."
    ),
    # Properties of the device
    "mig_instance": "The device's name or properties are those of a MIG instance, or samples say MIG mode is on.",
    "mig_compute_instance": "The MIG profile has a compute part, such as 1c.3g.20gb.",
    "instance_unknown": (
        "Several MIG instances are listed, or large kernels left SMs free: which process used which is unknown."
    ),
    "vgpu_name": "The device's name carries a time-sliced vGPU type, such as T4-4Q.",
    "vgpu_mig_name": "The device's name carries a MIG-backed vGPU type, such as A100X-3-20C.",
    "sms_hidden": "CUDA showed a process fewer SMs than the GPU has, and MIG is not the reason.",
    "sms_like_mig": "CUDA showed as many SMs as a MIG profile of the board has, without MPS.",
    "memory_below_product": "The device has all SMs of the named board, but less memory.",
    "pre_volta": "The device's compute capability is below 7.0.",
    "green_contexts": "Context records name green contexts.",
    # Configuration
    "mps_daemon": "Configuration, log or process list: an MPS control daemon and its server ran.",
    "mps_daemon_idle": "Configuration, log or process list: an MPS control daemon ran, without a server.",
    "mps_client_connected": "An MPS log or control output shows connected clients.",
    "mps_percentage": f"{MPS_PERCENTAGE} is set below {t.WHOLE_PERCENTAGE:.0f}.",
    "mps_sm_partition": "CUDA_MPS_SM_PARTITION is set.",
    "mps_pipe": "CUDA_MPS_PIPE_DIRECTORY is set.",
    "cap_without_effect": (
        f"{MPS_PERCENTAGE} is at most {t.MAX_TELLING_PERCENTAGE:.0f}, but CUDA showed every process all SMs."
    ),
    "caps_over_100": f"MPS percentages of the processes add up to more than {t.WHOLE_PERCENTAGE:.0f} %.",
    "software_limiter": "A variable of a software limiter is set, such as CUDA_DEVICE_SM_LIMIT.",
    "idle_behind_limiter": (
        "Besides `software_limiter`, with CUDA_DEVICE_SM_LIMIT below 100: traced work kept the GPU busy for at most "
        f"{_percent(t.MAX_HELD_BACK_BUSY_SHARE)} of the window."
    ),
    # Process lists
    "mps_impossible": "Kernel release, driver model or process list show Windows or WSL2, where MPS does not exist.",
    "nvml_mps_server": "NVML or nvidia-smi lists nvidia-cuda-mps-server on the GPU.",
    "nvml_mps_clients": "NVML or nvidia-smi lists processes of type M+C.",
    "nvml_no_mps_clients": "NVML or nvidia-smi lists several processes of type C, none of type M+C and no MPS server.",
    "nvml_one_process": "NVML or nvidia-smi lists one compute process, and no traced process is missing from the list.",
    "nvml_outside_mps": "NVML or nvidia-smi lists processes of type C beside those of type M+C, busy or not.",
    "outside_mps_busy": "Samples show that kernels of processes of type C ran, and those of processes of type M+C.",
    "nvml_several_processes": "NVML or nvidia-smi lists several compute processes on the GPU at a time.",
}
