"""`pyanalyze now`: what this machine's GPUs look like this moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import emit, output_options, refuse_existing

if TYPE_CHECKING:
    from pathlib import Path


@click.command("now")
@output_options(("table", "json"), "table")
def command(*, fmt: str, output: Path | None, force: bool) -> None:
    """Show processes and their type, MIG instances, modes and utilisation; needs neither nsys nor root."""
    from pyanalyze.record.now import now

    refuse_existing(output, force=force)
    found = now()
    text = json.dumps(found, indent=2) if fmt == "json" else "\n".join(line for g in found["gpus"] for line in _gpu(g))
    emit(text, output, force=force)


def _gpu(gpu: dict[str, Any]) -> list[str]:
    from pyanalyze.text.visible import visible

    sampled, modes = gpu["sampled"], gpu["configured"]
    known = {**gpu["errors"]}

    def show(values: dict[str, Any], key: str, unit: str, scale: float = 1.0) -> str:
        value = values.get(key)
        return f"({known.get(key, 'not known')})" if value is None else f"{value * scale:.0f} {unit}"

    setup = gpu["setup"]
    used = show(sampled, "memory_used_bytes", "MiB", 2**-20)
    total = show(sampled, "memory_total_bytes", "MiB", 2**-20)
    clock = f"SM clock {show(sampled, 'clock_sm_hz', 'MHz', 1e-6)}"
    power = show(sampled, "power_w", "W")
    out = [
        f"GPU {gpu['index']}  {visible(gpu['name'])}  {visible(gpu['uuid'])}",
        f"  configured: {setup['mode'] or 'open'}: {setup['why']}",
        f"  configured: compute mode {modes['compute_mode']}, MIG {modes['mig_mode'] or '(not supported)'}"
        + _virtual(modes),
        f"  sampled: busy {show(sampled, 'gpu_utilization_pct', '%')}, memory {used} of {total}, {clock}, {power}",
    ]
    for part in gpu["instances"]:
        values = part["configured"]
        out.append(
            f"  MIG gi {values['mig_gi_id']} ci {values['mig_ci_id']}  {visible(part['name'])}  "
            f"{values['sm_count']} SMs  {visible(part['uuid'])}"
        )
    for process in gpu["processes"]:
        known = {**process["errors"]}
        inside = process["sampled"].get("mig_gi_id")
        place = "" if inside is None else f"  gi {inside} ci {process['sampled']['mig_ci_id']}"
        out.append(
            f"  pid {process['pid']:<8} {process['type']:4} {visible(process['name']) or '(name not known)'}  "
            f"memory {show(process['sampled'], 'process_memory_bytes', 'MiB', 2**-20)}, "
            f"SMs busy {show(process['sampled'], 'process_sm_pct', '%')}{place}"
        )
        pod, caps = process["pod"], process["caps"]
        if "pod" in pod:
            place = f"{visible(pod['namespace'])}/{visible(pod['pod'])} {visible(pod.get('container', ''))}"
            out.append(f"    pod {place.rstrip()}")
        if caps:
            out.append("    configured: " + ", ".join(f"{key}={visible(str(value))}" for key, value in caps.items()))
    if not gpu["processes"]:
        out.append("  no process listed (in a container NVML may hide those of others)")
    return out


def _virtual(modes: dict[str, Any]) -> str:
    mode = modes.get("virtualization_mode")
    if mode in (None, "None"):
        return ""
    scheduler = modes.get("vgpu_scheduler")
    slices = modes.get("vgpu_timeslice_ns")
    return (
        f", virtualization {mode}"
        + (f", scheduler {scheduler}" if scheduler else "")
        + (f", slice {slices / 1e6:g} ms" if slices else "")
    )
