"""The logs of the MPS daemon and server (`control.log`, `server.log`).

Two dialects: up to R4xx (`Volta MPS: ...`, `activeThreadsPercentage set to`) and R5xx (`Active Threads
Percentage set to`, clients with their pid). Every line is `[time Role pid] text`; a container runtime may put
its name before.

Keys: `mps_daemon` (pid: the daemon), `mps_server` (pid: the server), `mps_client` (pid: a client that
connected; null where the daemon saw no pid), `mps_client_pending` (pid: a client that waits behind the server of
another user), `mps_fault` (pid: a server that failed), `mps_device` (a device the server uses),
`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` and `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` (what the server set for all its
clients). Pids are those of the daemon's pid namespace: the container's where it runs in one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyanalyze.inputs.context.base import Reader, Row, once, real_pid
from pyanalyze.text.numbers import bounded_float, bounded_int
from pyanalyze.text.pairs import pairs
from pyanalyze.vocabulary import MPS_CONTROL, MPS_FAULT, MPS_PENDING, MPS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (?:Control|Other|Server)\s+(?P<pid>\d+)\] (?P<text>.*)")
_DAEMON = re.compile(r"Starting control daemon|Accepting connection|NEW CLIENT|NEW SERVER")
_SERVER = re.compile(r"NEW SERVER (\d+): Ready|Starting new server (\d+) ")
# The server of one user has the device until its clients have ended: clients of others wait.
_STARTING = re.compile(r"Starting new server (\d+) for user (\S+)")
_ASKING = re.compile(r"NEW CLIENT (\d+) from user (\S+): Server (is not ready|already exists)")
_FAULT = re.compile(r"fatal GPU (?:error|exception)|Server status is FAULT")
_CLIENT = re.compile(r"NEW CLIENT (\d+) from|Client \{PID: (\d+),.*\} connected")
_PERCENTAGE = re.compile(r"(?:activeThreadsPercentage|Active Threads Percentage) set to (\d+(?:\.\d+)?)", re.IGNORECASE)
_MEMORY = re.compile(r"Device pinned memory limit for device (\d+) set to (0x[0-9A-Fa-f]+|\d+) bytes")
_CONTEXT = re.compile(r"Creating server context on device (\d+)(?: \((.+)\))?")
# The four words of this UUID are printed as numbers of the machine's byte order: kept as they stand.
_ASSOCIATED = re.compile(r"Device (.+) \(uuid (0x[0-9A-Fa-f]+(?:-0x[0-9A-Fa-f]+){3})\) is associated")


def _sniff(text: str) -> bool:
    return _LINE.search(text) is not None


def _read(text: str) -> list[Row]:
    waiting = _waiting(text)
    rows = once(row for line in _LINE.finditer(text) for row in _rows(line))
    connected = [row for row in rows if row.key != "mps_client" or row.pid is None or row.pid not in waiting]
    return [*connected, *(Row(MPS_PENDING, "the server of another user is running", pid) for pid in waiting)]


def _waiting(text: str) -> list[int]:
    """Clients that at the end of the log wait while the server of another user runs."""
    users: dict[str, str] = {}
    asking: dict[str, str] = {}
    running = ""
    for line in _LINE.finditer(text):
        said = line["text"]
        if found := _STARTING.match(said):
            users[found[1]] = found[2]
        elif (found := _SERVER.match(said)) and found[1] in users:
            running = users[found[1]]
            asking = {pid: user for pid, user in asking.items() if user != running}
        elif (found := _ASKING.match(said)) and found[3] == "already exists":
            asking.pop(found[1], None)
        elif found:
            asking[found[1]] = found[2]
    pids = (real_pid(pid) for pid, user in asking.items() if running and user != running)
    return [pid for pid in pids if pid is not None]


def _rows(line: re.Match[str]) -> Iterator[Row]:
    text = line["text"]
    # The child that becomes a server logs `Starting new server` still under the role Control, with a pid of
    # its own: only what the daemon alone says names the daemon.
    if _DAEMON.match(text):
        yield Row("mps_daemon", MPS_CONTROL, real_pid(line["pid"]))
    if _FAULT.search(text):
        yield Row(MPS_FAULT, "fatal GPU error", real_pid(line["pid"]))
    if found := _SERVER.match(text):
        yield Row("mps_server", MPS_SERVER, real_pid(found[1] or found[2]))
    elif found := _CLIENT.search(text):
        yield Row("mps_client", "connected", real_pid(found[1] or found[2]))
    elif found := _PERCENTAGE.search(text):
        if (percentage := bounded_float(found[1], 0, 100)) is not None:
            yield Row("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", f"{percentage:g}")
    elif found := _MEMORY.search(text):
        device, limit_bytes = bounded_int(found[1]), bounded_int(found[2])
        if device is not None and limit_bytes is not None:
            # The form of the environment variable, in bytes: `0=5368709120`.
            yield Row("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"{device}={limit_bytes}")
    elif found := _CONTEXT.search(text):
        yield Row("mps_device", pairs(device=found[1], name=found[2]))
    elif found := _ASSOCIATED.search(text):
        yield Row("mps_device", pairs(uuid_words=found[2], name=found[1]))


READER = Reader("mps-log", "the MPS logs control.log and server.log", _sniff, _read)
