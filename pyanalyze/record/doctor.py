"""What can this machine capture, and what is in the way?"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyanalyze.errors import CaptureUnreadable, GpuUnavailable, UsageError
from pyanalyze.nsys_tool import is_wsl2, recording
from pyanalyze.record.node import dcgm_processes, mps_processes, profiling_restricted, sees_host_pids
from pyanalyze.record.nvml import Nvml, has_driver, is_root
from pyanalyze.text.format import counted

_CAP_SYS_ADMIN = 21
#: What is said where there is nothing to capture.
NO_GPU = "no NVIDIA GPU on this machine: no driver, no device, no NVML"
#: Which nsys each CUDA toolkit brought, newest first: its CUPTI is of that CUDA.
_CUDA_OF_NSYS = (
    ((2025, 3), "13.0"),
    ((2025, 1), "12.9"),
    ((2024, 6), "12.8"),
    ((2024, 5), "12.6"),
    ((2024, 2), "12.5"),
    ((2023, 4), "12.4"),
    ((2023, 3), "12.3"),
    ((2023, 2), "12.2"),
    ((2023, 1), "12.1"),
    ((2022, 4), "12.0"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    what
        What one would capture or need.
    state
        `ok`, `limited`, `blocked`, or `unknown`: not available.
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


def diagnose(root: Path = Path("/"), *, need_gpu: bool = True) -> list[Finding]:
    """Look at everything a capture needs; changes nothing.

    Parameters
    ----------
    root
        Where ``proc`` and ``dev`` are.
    need_gpu
        False: without a GPU, check what can be checked all the same.

    Raises
    ------
    pyanalyze.errors.GpuUnavailable
        There is no NVIDIA GPU on this machine.

    Examples
    --------
    >>> for finding in diagnose():  # doctest: +SKIP
    ...     print(finding.what, finding.state, finding.remedy or "")
    """
    found: list[Finding] = []
    driver, cuda = None, None
    confidential: tuple[bool | None, bool | None, str | None] = (None, None, "NVML does not answer")
    try:
        with Nvml(counters=False) as nvml:
            gpus, driver, readings = nvml.identity(), nvml.driver_version(), nvml.sample()
            cuda, confidential = nvml.cuda_version(), nvml.confidential_compute()
        found.append(Finding("NVML", "ok", f"driver {driver}, {counted(len(gpus), 'GPU')}"))
    except GpuUnavailable as error:
        gpus, readings = [], []
        if has_driver(root):
            remedy = str(error).rpartition("; ")[2]
            found.append(Finding("NVML", "blocked", str(error), remedy))
        elif need_gpu:
            raise GpuUnavailable(NO_GPU) from error
        else:
            # Nothing here answers whether it is on.
            confidential = (None, None, None)
            found += _without_gpu()
    for gpu in gpus:
        name = f"GPU {gpu['gpu_index']} ({gpu['gpu_name']})"
        if gpu["mig"]:
            found.append(
                Finding(
                    f"{name}: utilisation",
                    "limited",
                    f"MIG with {len(gpu['mig'])} instances: NVML reports no utilisation of instances or processes",
                    "DCGM profiling fields (dcgmi dmon -e 1001,1002) report it per instance",
                )
            )
            found.append(
                Finding(
                    f"{name}: context switches",
                    "limited",
                    "while MIG is in use, the driver pauses the switch records that nsys reads",
                    f"{recording(switches=False)} for all processes of an instance: their kernels show time-slicing",
                )
            )
        if gpu.get("virtualization_mode") == "VGPU":
            found.append(
                Finding(
                    f"{name}: context switches",
                    "limited",
                    "a vGPU: switch records show this VM only, and GPU metrics include the other VMs",
                    "record on the hypervisor too: nvidia-smi vgpu -u",
                )
            )
    found += _confidential(*confidential)
    found += _nsys(cuda)
    found += _privileges(root) if driver is not None or has_driver(root) else _without_driver(root)
    found += _compatibility(driver, root)
    found.append(_dcgm(root))
    host_pids = sees_host_pids(root / "proc")
    if host_pids and driver is not None:
        found.append(Finding("process names", "ok", "pids that NVML reports are valid here"))
    elif host_pids:
        # Which pids NVML reports was not seen.
        detail = "this is the pid namespace of the host; no NVML answered, so no pid of it was looked up"
        found.append(Finding("process names", "unknown", detail, "pyanalyze doctor on the machine with the GPU"))
    else:
        state, detail = (
            ("unknown", "/proc/self/ns/pid is not readable")
            if host_pids is None
            else ("limited", "a separate pid namespace: processes that NVML reports are not in /proc")
        )
        found.append(Finding("process names", state, detail, "run on the host, or with --pid=host (hostPID: true)"))
    daemons = mps_processes(root / "proc")
    clients = sum(1 for reading in readings if reading.process_type == "M+C")
    if daemons or clients:
        found.append(
            Finding(
                "MPS",
                "limited",
                f"{len(daemons)} MPS processes and {clients} clients: nsys traces only processes that it started",
                "start each client under nsys; the MPS server needs no tracing",
            )
        )
    return found


def _without_gpu() -> list[Finding]:
    """What only a machine with a GPU can answer."""
    return [
        Finding(
            "NVML",
            "blocked",
            NO_GPU,
            "run it where the GPU is; in a container pass the GPU in (docker run --gpus all), in a cluster "
            "apply record-samples.yaml (in packaging/kubernetes of the source repository of pyanalyze)",
        ),
        Finding(
            "MIG, vGPU, confidential computing",
            "unknown",
            "only the driver tells whether they limit what can be recorded",
            "pyanalyze doctor on the machine with the GPU",
        ),
    ]


def _nsys(cuda: str | None) -> list[Finding]:
    from pyanalyze.record.launch import prepare

    try:
        run = prepare(Path())
    except CaptureUnreadable as error:
        return [Finding("nsys", "blocked", str(error), "set PYANALYZE_NSYS to the nsys of an installation")]
    except UsageError:
        remedy = "install Nsight Systems (nsight-systems-cli), or set PYANALYZE_NSYS"
        return [Finding("nsys", "blocked", "not on PATH", remedy)]
    tool, newer = run.tool, "install a newer Nsight Systems (nsight-systems-cli) as well, and set PYANALYZE_NSYS"
    found = [Finding("nsys", "ok", f"{tool.version} ({tool.path})")]
    unknown = [switch for switch in ("--gpuctxsw", "--gpu-metrics-device", "--kill") if switch not in run.help_text]
    if unknown:
        detail = f"nsys {tool.version} is too old: it lacks {', '.join(unknown)}"
        found.append(Finding("nsys: what it records", "limited", detail, newer))
    came_with = cuda_of(tool.version)
    if cuda is not None and came_with is not None and int(came_with.split(".")[0]) < int(cuda.split(".")[0]):
        found.append(
            Finding(
                "nsys: kernels",
                "limited",
                f"nsys {tool.version} is for CUDA {came_with}, the driver provides {cuda}: kernels may be missing",
                f"record a program that launches one kernel, and check; else {newer}",
            )
        )
    return found


def cuda_of(nsys_version: str) -> str | None:
    """With which CUDA an nsys came out; None for those older than the list.

    Examples
    --------
    >>> cuda_of("2023.4.4.54-234433681190v0"), cuda_of("2026.4.1"), cuda_of("2021.5"), cuda_of("9" * 5000 + ".1")
    ('12.4', '13.0', None, None)
    """
    numbers = re.match(r"(\d{1,9})\.(\d{1,9})", nsys_version)
    if numbers is None:
        return None
    version = (int(numbers[1]), int(numbers[2]))
    return next((cuda for since, cuda in _CUDA_OF_NSYS if version >= since), None)


def _confidential(on: bool | None, tools: bool | None, why: str | None) -> list[Finding]:  # noqa: FBT001
    if not on:
        # Where the driver has no such question, there is no such mode.
        asked = why in (None, "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_NOT_SUPPORTED")
        remedy = "nvidia-smi conf-compute -f"
        return [] if asked else [Finding("confidential computing", "unknown", why or "", remedy)]
    if tools:
        return [Finding("confidential computing", "ok", "on, in development mode, which allows profiling")]
    return [
        Finding(
            "confidential computing",
            "blocked",
            "on: the GPU reports neither kernels nor counters",
            "profile the same work with confidential computing off, or in its development mode (devtools)",
        )
    ]


def _dcgm(root: Path) -> Finding:
    running = dcgm_processes(root / "proc")
    if running:
        names = ", ".join(f"{entry['name']} ({entry['pid']})" for entry in running)
        return Finding(
            "GPU metrics and DCGM",
            "limited",
            f"{names} runs: while DCGM watches profiling fields (1001 and up) it uses the counters",
            "pyanalyze record --nsys --pause-dcgm, or dcgmi profile --pause before and --resume after",
        )
    if sees_host_pids(root / "proc"):
        return Finding("GPU metrics and DCGM", "ok", "no DCGM runs here")
    detail = "a DCGM on the host is not visible from this pid namespace"
    return Finding("GPU metrics and DCGM", "unknown", detail, "check on the host: pgrep -a 'nv-hostengine|dcgm'")


def _compatibility(driver: str | None, root: Path) -> list[Finding]:
    """Forward-compatibility libraries: a libcuda newer than the driver."""
    for folder in _library_path(root):
        library = folder / "libcuda.so.1"
        try:
            version = library.resolve(strict=True).name.removeprefix("libcuda.so.")
        except OSError:
            continue
        if driver is None or version in ("1", driver):
            return []
        return [
            Finding(
                "context switches: libcuda",
                "blocked",
                f"{library} is {version}, the driver is {driver}: with forward-compatibility libraries nsys records "
                "no context switches",
                f"remove {folder} from LD_LIBRARY_PATH and /etc/ld.so.conf.d while recording, or update the driver",
            )
        ]
    return []


def _library_path(root: Path) -> list[Path]:
    """Where the loader looks before the standard places, in its order."""
    found = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    for file in sorted((root / "etc/ld.so.conf.d").glob("*.conf")):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        found += [root / line.strip().lstrip("/") for line in lines if line.strip().startswith("/")]
    return found


def _privileges(root: Path) -> list[Finding]:
    """Context switches and hardware counters."""
    admin = is_root() or _has_admin(root)
    switches = Finding("context switches", "ok", f"root or CAP_SYS_ADMIN: {recording()}")
    if _runs_wsl2(root):
        switches = Finding(
            "context switches",
            "blocked",
            "WSL2: nsys records no context switches there",
            "record on Linux without WSL2",
        )
    elif not admin:
        switches = Finding(
            "context switches",
            "limited",
            "not root: switch records of other users' processes have no pid and inexact times; your own are exact",
            f"run as root: sudo {recording()}; in a container add --cap-add=SYS_ADMIN",
        )
    restricted = profiling_restricted(root)
    metrics = Finding("GPU metrics", "ok", "hardware counters are readable")
    if not admin and restricted is None:
        metrics = Finding("GPU metrics", "unknown", "/proc/driver/nvidia/params does not say", "run as root")
    elif not admin and restricted:
        metrics = Finding(
            "GPU metrics",
            "blocked",
            "the driver restricts hardware counters to administrators (RmProfilingAdminOnly: 1)",
            "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 (modprobe.d, then reboot)",
        )
    return [switches, metrics]


def _without_driver(root: Path) -> list[Finding]:
    """Context switches and hardware counters, where only the rights of the user are known."""
    rights = "is root or has CAP_SYS_ADMIN" if is_root() or _has_admin(root) else "is not root"
    detail = f"only a driver tells whether it allows them; this user {rights}"
    remedy = "pyanalyze doctor on the machine with the GPU"
    return [Finding(what, "unknown", detail, remedy) for what in ("context switches", "GPU metrics")]


def _runs_wsl2(root: Path) -> bool:
    try:
        return is_wsl2((root / "proc/sys/kernel/osrelease").read_text())
    except OSError:
        return False


def _has_admin(root: Path) -> bool:
    try:
        text = (root / "proc/self/status").read_text()
    except OSError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", text, re.MULTILINE)
    return bool(found and int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


__all__ = ["Finding", "diagnose"]
