"""What can this machine capture, and what is in the way?"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyanalyze.exceptions import CaptureUnreadable, GpuUnavailable
from pyanalyze.record.node import mps_processes, sees_host_pids
from pyanalyze.record.nvml import Nvml, has_driver, is_root

_CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    what
        What one would capture or need.
    state
        `ok`, `limited`, `blocked`, or `unknown`: could not look.
    detail
        What was found.
    remedy
        What to do; None where nothing is in the way.
    """

    what: str
    state: str
    detail: str
    remedy: str | None = None

    def as_object(self) -> dict[str, Any]:
        """Return a JSON object.

        Examples
        --------
        >>> Finding("nsys", "ok", "2024.6.1").as_object()["state"]
        'ok'
        """
        return asdict(self)


def diagnose(root: Path = Path("/")) -> list[Finding]:
    """Look at everything a capture needs; changes nothing.

    Parameters
    ----------
    root
        Where ``proc`` and ``dev`` are.

    Raises
    ------
    pyanalyze.exceptions.GpuUnavailable
        There is no NVIDIA GPU on this machine.

    Examples
    --------
    >>> for finding in diagnose():  # doctest: +SKIP
    ...     print(finding.what, finding.state, finding.remedy or "")
    """
    found: list[Finding] = []
    try:
        with Nvml() as nvml:
            gpus, version, readings = nvml.identity(), nvml.driver_version(), nvml.sample()
        found.append(Finding("NVML", "ok", f"driver {version}, {len(gpus)} GPU(s)"))
    except GpuUnavailable as error:
        if not has_driver(root):
            raise GpuUnavailable("no NVIDIA GPU on this machine: no driver, no device, no NVML") from error
        gpus, readings = [], []
        remedy = str(error).rpartition("; ")[2]
        found.append(Finding("NVML", "blocked", str(error), remedy))
    for gpu in gpus:
        name = f"GPU {gpu['gpu_index']} ({gpu['gpu_name']})"
        if gpu["mig"]:
            found.append(
                Finding(
                    f"{name}: utilisation",
                    "limited",
                    f"MIG with {len(gpu['mig'])} instances: NVML has no utilisation of instances or processes",
                    "DCGM profiling fields (dcgmi dmon -e 1001,1002) give it per instance",
                )
            )
        if gpu.get("virtualization_mode") == "VGPU":
            found.append(
                Finding(
                    f"{name}: context switches",
                    "limited",
                    "a vGPU: switch records show this VM only",
                    "record on the hypervisor too: nvidia-smi vgpu -u",
                )
            )
    found.append(_nsys())
    found += _privileges(root)
    host_pids = sees_host_pids(root / "proc")
    if host_pids:
        found.append(Finding("process names", "ok", "pids that NVML gives are pids here"))
    else:
        state, detail = (
            ("unknown", "/proc/self/ns/pid cannot be read")
            if host_pids is None
            else ("limited", "a pid namespace of its own: processes of NVML cannot be found in /proc")
        )
        found.append(Finding("process names", state, detail, "run on the host, or with --pid=host (hostPID: true)"))
    daemons = mps_processes(root / "proc")
    clients = sum(1 for reading in readings if reading.process_type == "M+C")
    if daemons or clients:
        found.append(
            Finding(
                "MPS",
                "limited",
                f"{len(daemons)} MPS processes and {clients} clients: nsys traces only what it started itself",
                "start each client under nsys; its server needs no profiling",
            )
        )
    return found


def _nsys() -> Finding:
    from pyanalyze.nsys_rep import find_nsys

    try:
        tool = find_nsys()
    except CaptureUnreadable as error:
        return Finding("nsys", "blocked", str(error), "set PYANALYZE_NSYS to the nsys of an installation")
    if tool is None:
        return Finding(
            "nsys", "blocked", "not on PATH", "install Nsight Systems (nsight-systems-cli), or set PYANALYZE_NSYS"
        )
    return Finding("nsys", "ok", f"{tool.version} ({tool.path})")


def _privileges(root: Path) -> list[Finding]:
    """Context switches and hardware counters."""
    admin = is_root() or _has_admin(root)
    switches = Finding("context switches", "ok", "root or CAP_SYS_ADMIN: nsys profile --gpuctxsw=true")
    if not admin:
        switches = Finding(
            "context switches",
            "blocked",
            "nsys records GPU context switches for root only",
            "run as root: sudo nsys profile --gpuctxsw=true ...; in a container add --cap-add=SYS_ADMIN",
        )
    try:
        text = (root / "proc/driver/nvidia/params").read_text(errors="replace")
        restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d)", text, re.MULTILINE)
    except OSError:
        restricted = None
    metrics = Finding("GPU metrics", "ok", "hardware counters may be read")
    if not admin and restricted is None:
        metrics = Finding("GPU metrics", "unknown", "/proc/driver/nvidia/params does not say", "run as root")
    elif not admin and restricted is not None and restricted[1] != "0":
        metrics = Finding(
            "GPU metrics",
            "blocked",
            "the driver gives hardware counters to administrators only (RmProfilingAdminOnly: 1)",
            "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 (modprobe.d, then reboot)",
        )
    return [switches, metrics]


def _has_admin(root: Path) -> bool:
    try:
        text = (root / "proc/self/status").read_text()
    except OSError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", text, re.MULTILINE)
    return bool(found and int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


__all__ = ["Finding", "diagnose"]
