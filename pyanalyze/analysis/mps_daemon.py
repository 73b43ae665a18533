"""Where is the MPS daemon of a capture?  Commands reach it only with the directories that its clients had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyanalyze.text.shell import shell_word
from pyanalyze.vocabulary import MPS_CONTROL, MPS_CUT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyanalyze.tables.tableset import TableSet

PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPE: Final = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's daemon is found
DEFAULT_LOGS: Final = "/var/log/nvidia-mps"


@dataclass(frozen=True)
class Daemon:
    """Where the MPS daemon of a capture is, as its clients had it in their environment.

    Attributes
    ----------
    pipe, logs
        Its directories; None: NVIDIA's defaults, or none was recorded.
    lone, pid
        A daemon ran without a server, so that no process had found it; its pid; None: not recorded.
    """

    pipe: str | None = None
    logs: str | None = None
    lone: bool = False
    pid: int | None = None

    @property
    def control(self) -> str:
        """Command that reaches it, for the shell.

        Examples
        --------
        >>> Daemon().control, Daemon("/tmp/my mps").control
        ('nvidia-cuda-mps-control', "CUDA_MPS_PIPE_DIRECTORY='/tmp/my mps' nvidia-cuda-mps-control")
        """
        return f"{_assigned((PIPE, self.pipe))}{MPS_CONTROL}"

    @property
    def start(self) -> str:
        """Command that starts it where its clients look for it.

        Examples
        --------
        >>> Daemon("/tmp/mps", "/tmp/logs").start
        'CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/logs nvidia-cuda-mps-control -d'
        """
        return f"{_assigned((PIPE, self.pipe), (LOGS, self.logs))}{MPS_CONTROL} -d"

    @property
    def client(self) -> str:
        """Variable by which its clients find it, with its value; empty: they need none.

        Examples
        --------
        >>> Daemon(pipe="/tmp/my mps").client, Daemon().client
        ("CUDA_MPS_PIPE_DIRECTORY='/tmp/my mps'", '')
        """
        return _assigned((PIPE, self.pipe)).rstrip()

    @property
    def reach(self) -> tuple[str, ...]:
        """Commands after which processes that start are its clients: a second daemon would not start beside a first.

        Examples
        --------
        >>> Daemon(lone=True, pid=7).reach[0].partition("   # ")[0]
        'grep -az CUDA_MPS_PIPE_DIRECTORY /proc/7/environ'
        """
        if not self.lone:
            return (f"{self.start}   # as the user that runs the workloads, before they start",)
        pid = "PID" if self.pid is None else self.pid
        return (
            f"grep -az {PIPE} /proc/{pid}/environ   # of the recorded MPS daemon; prints nothing: {DEFAULT_PIPE}",
            f"export {PIPE}=DIRECTORY   # that directory, as the daemon's user, where tenants start",
        )

    @property
    def quit(self) -> str:
        """Command that ends it.

        Examples
        --------
        >>> Daemon().quit
        'echo quit | nvidia-cuda-mps-control'
        """
        return f"echo quit | {self.control}"

    @property
    def stop(self) -> str:
        """The same, so that the GPU can be shared in another way."""
        return f"{self.quit}   # when no client runs: the running MPS daemon occupies the GPU"

    @property
    def undo(self) -> str:
        """Takes MPS away again, and all variables of its clients."""
        if self.lone:
            return f"export {PIPE}=EMPTY_FOLDER   # any folder without a daemon; then start the tenants again"
        return f"{self.quit}   # when no client runs; unset CUDA_MPS_* in their environment"


def _assigned(*variables: tuple[str, str | None]) -> str:
    return "".join(f"{name}={shell_word(value)} " for name, value in variables if value is not None)


DEFAULT_DAEMON: Final = Daemon()


def server_ran(settings: Iterable[tuple[str, str, int | None]]) -> bool:
    """Whether an MPS server ran: the control daemon starts one when the first client connects.

    PROCESSES cuts both names to ``nvidia-cuda-mps``: then there are two of them.

    Examples
    --------
    >>> server_ran([("mps_daemon", "nvidia-cuda-mps", 7)]), server_ran([("mps_server", "nvidia-cuda-mps-server", 8)])
    (False, True)
    """
    rows = [row for row in settings if row[0] in ("mps_daemon", "mps_server", "mps_client")]
    named = any(key != "mps_daemon" or "server" in value for key, value, _ in rows)
    return named or len({pid for _, _, pid in rows if pid is not None}) > 1


def servers_on(tables: TableSet, device_id: int) -> frozenset[int]:
    """Return the tenants of a device that are MPS servers: each is resident for its clients.

    A client goes through it, or a daemon or a list of processes has its pid. Samples list a server as any process: of
    one that is in them only, its name says so.

    Examples
    --------
    >>> import pyanalyze
    >>> servers_on(pyanalyze.load(capture).tables, 0)
    frozenset()
    """
    pids = {row["pid"] for row in tables.settings_of(device_id) if row["key"] in ("mps_daemon", "mps_server")} - {None}
    tenants = tables.of_device("tenants", device_id)
    serving = set(tenants["served_by"].drop_nulls())
    return frozenset(
        row["tenant_id"]
        for row in tenants.filter(~tenants["traced"]).iter_rows(named=True)
        if row["tenant_id"] in serving or row["host_pid"] in pids or row["name"].startswith(MPS_CUT_NAME)
    )


def daemon_on(tables: TableSet, device_id: int) -> Daemon:
    """Return where the MPS daemon of the machine of a device is.

    Examples
    --------
    >>> import pyanalyze
    >>> daemon_on(pyanalyze.load(capture).tables, 0)
    Daemon(pipe=None, logs=None, lone=False, pid=None)
    """
    return daemon_of((str(row["key"]), row["value"], row["pid"]) for row in tables.settings_of(device_id))


def daemon_of(settings: Iterable[tuple[str, str, int | None]]) -> Daemon:
    """Return where the MPS daemon of a capture is.

    Parameters
    ----------
    settings
        Keys, values and pids of what was configured. A default need not be said again.

    Examples
    --------
    >>> daemon_of([(PIPE, "/tmp/mps", None), (LOGS, "/var/log/nvidia-mps", None)])
    Daemon(pipe='/tmp/mps', logs=None, lone=False, pid=None)
    """
    rows = list(settings)
    found: dict[str, str] = {}
    for key, value, _ in rows:
        found.setdefault(key, value)
    pipe, logs = found.get(PIPE, DEFAULT_PIPE), found.get(LOGS, DEFAULT_LOGS)
    return Daemon(
        None if pipe == DEFAULT_PIPE else pipe,
        None if logs == DEFAULT_LOGS else logs,
        lone="mps_daemon" in found and not server_ran(rows),
        pid=next((pid for key, _, pid in rows if key == "mps_daemon"), None),
    )
