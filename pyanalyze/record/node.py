"""Who is this machine and who are its processes, as far as /proc lets one read it?

A capture and a sample know pids; which container, pod or name a pid belonged to is gone when it ends. So it is
written down while it runs. Command lines are never read, environments only through an allow-list.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

#: Variables that say how a GPU was to be shared; a name that ends in `*` stands for all that start so.
#: The same list as in the reader of nsys metadata (a test compares the two).
ALLOWED = (
    "CUDA_MPS_*",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MEMORY_LIMIT*",
    "CUDA_DEVICE_SM_LIMIT*",
    "NVSHARE_*",
)
#: The number of the first pid namespace: a constant of Linux.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
_PROC = Path("/proc")


def is_allowed(name: str) -> bool:
    """Whether a variable may be read out.

    Examples
    --------
    >>> is_allowed("CUDA_MPS_PIPE_DIRECTORY"), is_allowed("AWS_SECRET_ACCESS_KEY")
    (True, False)
    """
    plain = name.isascii() and name.replace("_", "a").isalnum()
    return plain and any(name.startswith(a[:-1]) if a.endswith("*") else name == a for a in ALLOWED)


def host_hash(name: str | None = None) -> str:
    """FNV-1a of the host name, as the reader of nsys captures makes it: equal hosts can be told, not named.

    Examples
    --------
    >>> host_hash("foobar")  # a test vector of the authors of FNV
    '85944171f73967e8'
    """
    value = 0xCBF29CE484222325
    for byte in (socket.gethostname() if name is None else name).encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


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
        `name` (program, without arguments), `start_ticks` (tells a reused pid), `cgroup`, `pid_namespace`, `nspids`
        (its pid in every namespace, outermost first), `environment` (allow-listed); each None with its reason in
        `unread` where it cannot be read.

    Examples
    --------
    >>> import os
    >>> facts = process_facts(os.getpid())
    >>> sorted(facts)
    ['cgroup', 'environment', 'name', 'nspids', 'pid_namespace', 'start_ticks', 'unread']
    """
    folder = proc / str(pid)
    found: dict[str, Any] = {"unread": {}}
    for key, read in (
        ("name", _name),
        ("start_ticks", _start),
        ("cgroup", _cgroup),
        ("pid_namespace", _namespace),
        ("nspids", _nspids),
        ("environment", _environment),
    ):
        try:
            found[key] = read(folder)
        except OSError as error:
            found[key] = None
            found["unread"][key] = error.strerror or str(error)
        except (ValueError, IndexError):
            found[key] = None
            found["unread"][key] = "not in the form that is known"
    return found


def mps_processes(proc: Path = _PROC) -> list[dict[str, Any]]:
    """MPS daemons and servers that run here: pid and name."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            # comm holds 15 characters: `nvidia-cuda-mps-control` and `-server` are `nvidia-cuda-mps`.
            if (folder / "comm").read_text(errors="replace").startswith("nvidia-cuda-mps"):
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


def _nspids(folder: Path) -> list[int]:
    for line in (folder / "status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return [int(part) for part in line.split()[1:]]
    raise ValueError


def _environment(folder: Path) -> dict[str, str]:
    found = {}
    for entry in (folder / "environ").read_bytes().split(b"\0"):
        name, equals, value = entry.decode(errors="replace").partition("=")
        if equals and is_allowed(name):
            found[name] = value
    return found
