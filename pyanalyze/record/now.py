"""What do this machine's GPUs look like at this moment? Settings are `configured`, the rest is `sampled`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyanalyze.record.mps import control_answers
from pyanalyze.record.node import container_of, mps_processes, process_facts, sees_host_pids
from pyanalyze.record.nvml import Nvml
from pyanalyze.vocabulary import MPS_CUT_NAME, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Readings that say how something is set, not what it did.
SETTINGS = (
    "compute_mode",
    "mig_mode",
    "mig_mode_pending",
    "virtualization_mode",
    "vgpu_scheduler",
    "vgpu_adaptive_round_robin",
    "vgpu_timeslice_ns",
    "vgpu_averaging_factor",
)
#: What caps a process, by variable.
CAPS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_SM_PARTITION")


def now() -> dict[str, Any]:
    """Ask NVML and /proc once; needs neither nsys nor root.

    Returns
    -------
    dict
        ``{"schema": "pyanalyze.now/1", "time_utc_ns", "driver_version", "sees_host_pids", "mps_processes",
        "mps_control", "gpus"}``; times are decimal strings (ns). Each GPU has `configured` (modes), `sampled`,
        `errors`, `setup` (`mode`, `why`, `basis`), `instances` (MIG) and `processes`, these with `caps` (of MPS, from
        their own environment and from what the control daemon says of their server) and `pod`.

    Raises
    ------
    pyanalyze.errors.GpuUnavailable
        NVML cannot be asked.

    Examples
    --------
    >>> now()["gpus"][0]["setup"]  # doctest: +SKIP
    {'mode': 'mps', 'why': '2 MPS clients are on the GPU', 'basis': 'configured'}
    """
    with Nvml(counters=False) as nvml:
        readings = [reading.as_object() for reading in nvml.sample()]
        version = nvml.driver_version()
    host_pids = sees_host_pids()
    daemons = mps_processes()
    control = control_answers()
    gpus: list[dict[str, Any]] = []
    for reading in readings:
        metrics = reading["metrics"]
        entry = {
            "index": reading.get("gpu_index"),
            "uuid": reading.get("gpu_uuid"),
            "name": reading.get("gpu_name"),
            "errors": reading.get("errors", {}),
        }
        if "pid" in reading:
            facts = process_facts(reading["pid"]) if host_pids else None
            entry = {
                "pid": reading["pid"],
                "name": reading.get("process_name") or (facts or {}).get("name"),
                "type": reading.get("process_type"),
                "gpu_uuid": entry["uuid"],
                "errors": entry["errors"],
                "proc": facts,
                "pod": container_of(facts["cgroup"]) if facts else {},
                "caps": _caps(reading["pid"], facts, control) if reading.get("process_type") == "M+C" else {},
                "basis": "sampled",
                "sampled": metrics,
            }
            gpus[-1]["processes"].append(entry)
        elif "mig_parent_uuid" in metrics:
            gpus[-1]["instances"].append({**entry, "basis": "configured", "configured": metrics})
        else:
            gpus.append(
                {
                    **entry,
                    "configured": {key: value for key, value in metrics.items() if key in SETTINGS},
                    "sampled": {key: value for key, value in metrics.items() if key not in SETTINGS},
                    "instances": [],
                    "processes": [],
                }
            )
    for gpu in gpus:
        mode, why = setup(gpu["configured"], gpu["processes"], len(gpu["instances"]))
        gpu["setup"] = {"mode": mode, "why": why, "basis": "configured"}
    return {
        "schema": "pyanalyze.now/1",
        "time_utc_ns": str(time.time_ns()),
        "driver_version": version,
        "sees_host_pids": host_pids,
        "mps_processes": daemons,
        "mps_control": control,
        "gpus": gpus,
    }


def _caps(pid: int, facts: dict[str, Any] | None, control: dict[str, Any] | None) -> dict[str, Any]:
    """What caps an MPS client: its environment, where one may read it, and its server."""
    environment = (facts or {}).get("environment") or {}
    caps: dict[str, Any] = {name: environment[name] for name in CAPS if name in environment}
    servers = (control or {}).get("servers") or []
    own = [server for server in servers if pid in (server["clients"] or ())]
    # A daemon with one server has all clients there, also those whose pids it sees in another namespace.
    for server in own or (servers if len(servers) == 1 else []):
        caps["server_active_thread_percentage"] = server["active_thread_percentage"]
    return caps


def setup(configured: dict[str, Any], processes: Sequence[dict[str, Any]], instances: int) -> tuple[Mode | None, str]:
    """Name the sharing mode that a GPU is set up for, and why; None where the settings leave it open.

    This is what is configured, not what happens: only switch records show that.

    Examples
    --------
    >>> setup({"mig_mode": "Disabled", "compute_mode": "Default"}, [{"type": "M+C"}, {"type": "M+C"}], 0)
    ('mps', '2 MPS clients use the GPU')
    >>> setup({"mig_mode": None, "compute_mode": "Default"}, [{"type": "C"}], 0)[0] is None
    True
    """
    clients = [p for p in processes if p.get("type") == "M+C"]
    servers = [p for p in processes if MPS_CUT_NAME in (p.get("name") or "")]
    if configured.get("virtualization_mode") == "VGPU":
        return None, "a vGPU: sharing of the board is configured on the host"
    plain = [p for p in processes if "C" in (p.get("type") or "") and p not in clients and p not in servers]
    if configured.get("mig_mode") == "Enabled":
        inside = ", MPS clients inside" if clients else ""
        return (Mode.MIG_MPS if clients else Mode.MIG), f"MIG is enabled with {instances} instances{inside}"
    if clients:
        return Mode.MPS, f"{len(clients)} MPS clients use the GPU"
    if servers:
        return Mode.MPS, "an MPS server runs on the GPU"
    if configured.get("compute_mode") == "Exclusive_Process":
        return Mode.EXCLUSIVE, "compute mode Exclusive_Process: one process may use the GPU"
    if len(plain) > 1:
        return (
            Mode.TIME_SLICING,
            f"{len(plain)} compute processes, no MPS, no MIG: they are time-sliced when several are busy",
        )
    return None, "no sharing is configured, and at most one compute process is listed"
