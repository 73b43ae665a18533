"""Who is this machine and who are its processes, as far as /proc lets one read it?

A capture and a sample know pids; which container, pod or name a pid belonged to is gone when it ends. So it is
written down while it runs. Command lines are never read, environments only through an allow-list.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Any

from pyanalyze.text.allowlist import has_shape, is_allowed
from pyanalyze.vocabulary import MPS_CUT_NAME

#: The number of the first pid namespace: a constant of Linux.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
_PROC = Path("/proc")
#: Where the kubelet keeps one folder of logs per pod, named namespace_pod_uid: the only place that names pods.
POD_LOGS = Path("/var/log/pods")
_CGROUPS = Path("/sys/fs/cgroup")
#: `NS_GET_PARENT` of ioctl_ns(2).
_NS_GET_PARENT = 0xB702
_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})")
_CONTAINER = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")


def sees_host_pids(proc: Path = _PROC) -> bool | None:
    """Whether pids that NVML gives are pids here; None where that cannot be read.

    Inside a container with a pid namespace of its own, /proc/4711 is not the host's 4711.
    """
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) == FIRST_PID_NAMESPACE
    except OSError:
        return None


def process_facts(pid: int, proc: Path = _PROC) -> dict[str, Any]:
    """What /proc says of a process.

    Returns
    -------
    dict
        `name` (program, without arguments), `start_ticks` (tells a reused pid), `cgroup`, `pid_namespace`,
        `pid_namespaces` (that one and those around it, innermost first, as far as one may look), `nspids` (its pid
        in every namespace, outermost first), `environment` (allow-listed), `cpu_throttling` (of its cgroup; see
        :func:`cpu_throttling`); each None with its reason in `unread` where it cannot be read.

    Examples
    --------
    >>> import os
    >>> facts = process_facts(os.getpid())
    >>> facts["nspids"][-1] == os.getpid(), "CUDA_VISIBLE_DEVICES" in (facts["environment"] or {})
    (True, False)
    """
    folder = proc / str(pid)
    found: dict[str, Any] = {"unread": {}}
    for key, read in (
        ("name", _name),
        ("start_ticks", _start),
        ("cgroup", _cgroup),
        ("pid_namespace", _namespace),
        ("pid_namespaces", _namespaces),
        ("nspids", _nspids),
        ("environment", _environment),
        ("cpu_throttling", _throttling),
    ):
        try:
            found[key] = read(folder)
        except OSError as error:
            found[key] = None
            found["unread"][key] = error.strerror or str(error)
        except (ValueError, IndexError):
            found[key] = None
            found["unread"][key] = "in an unknown format"
    return found


def container_of(cgroup: str | None, pods: Path = POD_LOGS) -> dict[str, str]:
    """Which container and which Kubernetes pod a cgroup belongs to.

    Parameters
    ----------
    cgroup
        Path of the cgroup, as the kubelet, Docker, containerd or Podman name it.
    pods
        The kubelet's folder of logs; elsewhere nothing on a node names its pods.

    Returns
    -------
    dict
        Of `container_id`, `pod_uid`, `namespace`, `pod`, `container` those that are known; empty outside containers.

    Examples
    --------
    >>> container_of("/system.slice/docker-" + 32 * "ab" + ".scope")["container_id"][:8]
    'abababab'
    >>> container_of("/kubepods/burstable/pod0a1b2c3d-0000-1111-2222-333344445555/" + 64 * "c")["pod_uid"]
    '0a1b2c3d-0000-1111-2222-333344445555'
    >>> container_of("/user.slice")
    {}
    """
    found: dict[str, str] = {}
    ids = _CONTAINER.findall(cgroup or "")
    if ids:
        found["container_id"] = ids[-1]
    uid = _UID.search(cgroup or "")
    if uid is None:
        return found
    # systemd cannot have a dash in the name of a slice: the kubelet puts underscores there.
    found["pod_uid"] = uid[1].replace("_", "-")
    try:
        for folder in pods.iterdir():
            namespace, _, rest = folder.name.partition("_")
            pod, _, end = rest.rpartition("_")
            if end == found["pod_uid"] and pod:
                found.update(namespace=namespace, pod=pod)
                containers = [inside.name for inside in folder.iterdir() if inside.is_dir()]
                # Which of several a container id belongs to is not written there.
                if len(containers) == 1:
                    found["container"] = containers[0]
                break
    except OSError:
        pass
    return found


def cpu_throttling(cgroup: str, root: Path = _CGROUPS) -> dict[str, int] | None:
    """How often the CPU quota held a cgroup back, since it exists; None where the kernel does not say.

    A service whose launches stall under a CPU quota looks like one that waits for the GPU.

    Returns
    -------
    dict or None
        `periods`, `throttled` (periods in which it was stopped), `throttled_ns`.
    """
    inside = cgroup.lstrip("/")
    # In a container with a cgroup namespace of its own, what /proc calls `/` is mounted at the root.
    for folder in (root / inside, root / "cpu,cpuacct" / inside, root / "cpu" / inside):
        try:
            words = (folder / "cpu.stat").read_text().split()
        except OSError:
            continue
        values = dict(zip(words[::2], words[1::2], strict=False))
        if "nr_throttled" not in values:
            return None  # no quota controller here
        nanoseconds = int(values.get("throttled_time", 0)) or 1000 * int(values.get("throttled_usec", 0))
        return {
            "periods": int(values["nr_periods"]),
            "throttled": int(values["nr_throttled"]),
            "throttled_ns": nanoseconds,
        }
    return None


def named_processes(names: tuple[str, ...], proc: Path = _PROC) -> list[dict[str, Any]]:
    """Processes whose short name (15 characters) is one of these: pid and name.

    Examples
    --------
    >>> named_processes(("no-such-program",))
    []
    """
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text(errors="replace").rstrip("\n")
        except OSError:
            continue
        if name in names:
            found.append({"pid": int(folder.name), "name": name})
    return sorted(found, key=lambda entry: entry["pid"])


def dcgm_processes(proc: Path = _PROC) -> list[dict[str, Any]]:
    """Programs that hold the profiling counters as a rule: DCGM's host engine, dcgm-exporter."""
    return named_processes(("nv-hostengine", "dcgm-exporter"), proc)


def profiling_restricted(root: Path = Path("/")) -> bool | None:
    """Whether the driver gives hardware counters to administrators only; None where it does not say."""
    try:
        text = (root / "proc/driver/nvidia/params").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    return None if found is None else found[1] != "0"


def mps_processes(proc: Path = _PROC) -> list[dict[str, Any]]:
    """MPS daemons and servers that run here: pid and name."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            if (folder / "comm").read_text(errors="replace").startswith(MPS_CUT_NAME):
                found.append({"pid": int(folder.name), "name": _name(folder)})
        except OSError:
            continue
    return sorted(found, key=lambda entry: entry["pid"])


def _name(folder: Path) -> str:
    try:
        return str((folder / "exe").readlink())
    except OSError:  # another user's: only the short name is public
        return (folder / "comm").read_text(errors="replace").rstrip("\n")


def _start(folder: Path) -> int:
    # The second field is the name in parentheses and may hold blanks and parentheses itself.
    return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])


def _cgroup(folder: Path) -> str:
    lines = (folder / "cgroup").read_text(errors="replace").splitlines()
    paths = [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]
    # Version 1 has a line per controller, most with the same path; the longest names the container.
    return max(paths, key=len)


def _namespace(folder: Path) -> str:
    return str((folder / "ns" / "pid").readlink())


def _namespaces(folder: Path) -> list[str]:
    """The pid namespace of a process and those around it; the kernel shows none beyond the reader's own."""
    found = [_namespace(folder)]
    if not found[0].startswith("pid:["):
        raise ValueError
    descriptor = os.open(folder / "ns" / "pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while len(found) < 32:  # the kernel nests no deeper
            try:
                outer = fcntl.ioctl(descriptor, _NS_GET_PARENT)
            except OSError:
                break
            os.close(descriptor)
            descriptor = outer
            found.append(f"pid:[{os.fstat(descriptor).st_ino}]")
    finally:
        os.close(descriptor)
    return found


def _throttling(folder: Path) -> dict[str, int] | None:
    return cpu_throttling(_cgroup(folder))


def _nspids(folder: Path) -> list[int]:
    for line in (folder / "status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return [int(part) for part in line.split()[1:]]
    raise ValueError


def _environment(folder: Path) -> dict[str, str]:
    found = {}
    for entry in (folder / "environ").read_bytes().split(b"\0"):
        name, equals, value = entry.decode(errors="replace").partition("=")
        if equals and is_allowed(name) and has_shape(name, value):
            found[name] = value
    return found
