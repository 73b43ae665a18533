"""Samples and hardware counters: how many, of what time, and what they say of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.sampled_text import ALMOST_ALL, mean_text, power_text
from pyanalyze.report.sentences.words import HALF
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.results.occupancy import CounterCheck, GpuMetrics
    from pyanalyze.results.report import Device, Sampled


def processes_text(count: int) -> str:
    """Such as `2 compute processes`."""
    return f"{fmt.count(count)} compute process{'' if count == 1 else 'es'}"


def sampled_sentence(device: Device) -> str | None:
    """Sampled figures of the whole device; utilisation is a share of time, not occupancy."""
    sampled = device.sampled
    if sampled is None:
        return None
    active, warps, dram, tensor = (
        mean_text(sampled, name) for name in ("sm_active", "sm_occupancy", "dram_active", "tensor_active")
    )
    full = [] if active is None else [f"SMs active{'' if sampled.separate_moments else ', mean'} {active}"]
    full += [] if warps is None else [f"{warps} of all warp slots in use"]
    # How full the SMs were says more than that a kernel ran: on the first screen there may be room for one.
    parts = [", ".join(full)] if full else []
    # The range of separate moments takes the room of a word.
    not_that = "not occupancy" if sampled.separate_moments else "utilisation, not occupancy"
    used = mean_text(sampled, "gpu_utilization", note=not_that)
    engine = mean_text(sampled, "gr_engine_active", note="not occupancy") if used is None else None
    busy = mean_text(sampled, "memory_utilization", note="not bandwidth") if dram is None else None
    parts += [] if used is None else [f"a kernel ran {used}"]
    parts += [] if engine is None else [f"graphics engine active {engine}"]
    parts += [] if dram is None else [f"DRAM active {dram}"]
    parts += [] if tensor is None else [f"tensor pipes {tensor}"]
    if device.memory is not None and device.memory.peak_bytes is not None:
        parts.append(f"memory peak {fmt.bytes_(device.memory.peak_bytes)}")
    if (power := power_text(sampled)) is not None:
        parts.append(power)
    if sampled.processes is not None:
        parts.append(processes_text(sampled.processes))
    parts += [] if busy is None else [f"memory busy {busy}"]
    # Of how many samples, and of what part of the time, is read before the figures.
    return "; ".join([f"{fmt.counted(sampled.n, 'sample')}{_untimed(sampled)}{_holes(sampled)}", *parts])


def _untimed(sampled: Sampled) -> str:
    """How many of them have no time, where others have one."""
    return f" ({fmt.count(sampled.without_time)} without time)" if sampled.without_time else ""


def _holes(sampled: Sampled) -> str:
    """Say how much of their time has no sample, where it is notable: means say nothing of it."""
    if sampled.covered_share is None or sampled.covered_share >= ALMOST_ALL:
        return ""
    if sampled.start_ns is None or sampled.end_ns is None:
        return ""
    without = fmt.percent(1 - sampled.covered_share, 0)
    separate = " (separate moments, no mean)" if sampled.separate_moments else ""
    return f", none for {without} of the {fmt.duration(sampled.end_ns - sampled.start_ns)}{separate}"


def samples_text(device: Device, found: CounterCheck | GpuMetrics) -> str:
    """How many samples there are, and of what time where that is less than almost all of the window."""
    said = fmt.counted(found.n, "sample")
    if found.start_ns is None or found.end_ns is None:
        return said
    length, window = found.end_ns - found.start_ns, device.window
    if window is None:
        return f"{said} over {fmt.duration(length)}{_apart(device, found.start_ns, found.end_ns)}"
    whole = max(window.end_ns - window.start_ns, 1)
    inside = max(min(found.end_ns, window.end_ns) - max(found.start_ns, window.start_ns), 0)
    # Times before and after the window count in a mean of all samples.
    if inside >= ALMOST_ALL * max(whole, length):
        return f"{said} in the window"
    if length > whole:
        return f"{said} over {fmt.duration(length)}, the window has {fmt.duration(whole)}"
    where = ""
    if 0 < inside < HALF * whole:
        after = found.start_ns - window.start_ns
        where = f", {fmt.duration(after)} after its start" if after > length else ", at its start"
    return f"{said} over {fmt.duration(length)}, {fmt.percent(inside / whole)} of the window{where}"


def _apart(device: Device, start_ns: int, end_ns: int) -> str:
    """How far counters lie from the other samples, which do not reach into their time."""
    sampled = device.sampled
    if sampled is None or sampled.start_ns is None or sampled.end_ns is None:
        return ""
    after, before = start_ns - sampled.end_ns, sampled.start_ns - end_ns
    if max(after, before) <= 0:
        return ""
    return f", {fmt.duration(max(after, before))} {'after' if after > 0 else 'before'} the other samples"


def gpu_metrics_text(device: Device) -> str | None:
    """Counters of a device on which nothing was traced: how full it was, of whose work is not known; None: none."""
    found = device.gpu_metrics
    if found is None or found.sm_active is None:
        return None
    parts = [f"SMs active {fmt.percent(found.sm_active)}"]
    if (warps := found.mean_of("Compute Warps in")) is not None:
        parts.append(f"{fmt.percent(warps)} of all warp slots in use")
    for name in ("SM Issue", "Tensor Active", "DRAM Read"):
        # Tensor cores that nobody used are not worth a word.
        if (mean := found.mean_of(name)) is not None and (mean or name == "SM Issue"):
            parts.append(f"{name} {fmt.percent(mean)}")
    return f"{', '.join(parts)} (mean of {samples_text(device, found)})"
