"""Find and run NVIDIA's ``nsys``.

Recording and reading reports both need it, and recording runs without the rest of the package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.errors import CaptureUnreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COUNTERS_NEED",
    "TRACE",
    "Nsys",
    "client_options",
    "clients_only",
    "find_nsys",
    "is_wsl2",
    "message_of",
    "record_all",
    "recording",
    "release",
    "run",
]

_VERSION = re.compile(r"version\s+(\d+(?:\.\d+)+(?:-\w+)?)")


#: What is traced: kernels, and the ranges that are units of work.
TRACE = "cuda,nvtx"
#: Who may read hardware counters, and when they can be read.
COUNTERS_NEED = "as root, or with NVreg_RestrictProfilingToAdminUsers=0, while no DCGM reads the counters"


def recording(*more: str, trace: str = TRACE, switches: bool = True) -> str:
    """Return the command that records kernels, the ranges that are units of work, and switch records.

    Parameters
    ----------
    *more
        Further options.
    trace
        What is traced.
    switches
        Whether switch records are wanted: they need root.

    Examples
    --------
    >>> recording()
    'nsys profile -t cuda,nvtx --gpuctxsw=true -o NAME PROGRAM'
    >>> recording("--cuda-graph-trace=node", switches=False)
    'nsys profile -t cuda,nvtx --cuda-graph-trace=node -o NAME PROGRAM'
    """
    switch_records = ("--gpuctxsw=true",) if switches else ()
    return " ".join((f"nsys profile -t {trace}", *switch_records, *more, "-o NAME PROGRAM"))


def is_wsl2(kernel_release: str) -> bool:
    """Whether a kernel is that of WSL2, under which nsys records no context switches; WSL1 has no GPU.

    Parameters
    ----------
    kernel_release
        As ``uname -r`` prints it; early kernels of WSL2 lack its name.

    Examples
    --------
    >>> is_wsl2("6.6.87.2-microsoft-standard-WSL2"), is_wsl2("4.19.104-microsoft-standard")
    (True, True)
    >>> is_wsl2("4.4.0-19041-Microsoft"), is_wsl2("6.8.0-134-generic")
    (False, False)
    """
    return "microsoft-standard" in kernel_release or "WSL2" in kernel_release


def client_options(client: str | None, *, root: bool) -> tuple[str, ...]:
    """Return what keeps a recorded program a client of its MPS daemon: its variable, and under root the daemon's user.

    Root has another environment, and an MPS server serves one user at a time: the sharing mode would be another.

    Parameters
    ----------
    client
        The variable that clients find their daemon by, with its value, quoted; empty: none is set. None: no client.
    root
        Whether nsys runs as root.

    Examples
    --------
    >>> client_options("CUDA_MPS_PIPE_DIRECTORY=/tmp/mps", root=True)
    ('--run-as=USER', '--env-var=CUDA_MPS_PIPE_DIRECTORY=/tmp/mps')
    >>> client_options(None, root=True)
    ()
    """
    if client is None:
        return ()
    return (*(("--run-as=USER",) if root else ()), *((f"--env-var={client}",) if client else ()))


def clients_only(options: Sequence[str]) -> str:
    """Say in a comment of whom :func:`client_options` are: other tenants must not become clients.

    Examples
    --------
    >>> clients_only(["--run-as=USER"])
    '--run-as for MPS clients only, USER: that of their daemon'
    """
    names = " and ".join(option.partition("=")[0] for option in options)
    return f"{names} for MPS clients only, USER: that of their daemon"


def record_all(
    trace: str = TRACE, client: str | None = None, *, switches: bool = True, more: Sequence[str] = ()
) -> str:
    """Return the command that records tenants that were not traced, and how often it is run.

    Parameters
    ----------
    trace
        What is traced.
    client
        Of :func:`client_options`: some tenants are MPS clients.
    switches
        Whether switch records are wanted, which need root: under MIG there are none.
    more
        Further options.

    Examples
    --------
    >>> record_all(switches=False).partition(", ")[0]
    'nsys profile -t cuda,nvtx -o NAME PROGRAM   # one for each tenant'
    >>> record_all().partition("; ")[0]
    'nsys profile -t cuda,nvtx --gpuctxsw=true -o NAME PROGRAM   # as root'
    >>> record_all(client="").partition("; one")[0].partition("   # ")[2]
    'as root; --run-as for MPS clients only, USER: that of their daemon'
    """
    options = client_options(client, root=switches)
    only = f"{clients_only(options)}; " if options else ""
    root = "as root; " if switches else ""
    command = recording(*more, *options, trace=trace, switches=switches)
    return (
        f"{command}   # {root}{only}one for each tenant, at the same time, "
        "or one around the process that starts them all; then pyanalyze A.nsys-rep B.nsys-rep"
    )


@dataclass(frozen=True)
class Nsys:
    """An ``nsys`` that can be run.

    Attributes
    ----------
    path
        The executable.
    version
        What ``nsys --version`` says, such as ``2023.4.4.54-234433681190v0``.
    selects_tables, selects_times
        Whether its ``export`` knows ``--tables`` and ``--times`` (asked, not deduced from the version).
    """

    path: str
    version: str
    selects_tables: bool
    selects_times: bool


def find_nsys(nsys: str | None = None) -> Nsys | None:
    """Looks for ``nsys``: the argument, else ``$PYANALYZE_NSYS``, else ``PATH``.

    Parameters
    ----------
    nsys
        A path, or a name to look up on ``PATH``.

    Returns
    -------
    Nsys or None
        None where nothing was asked for and there is none on ``PATH``.

    Raises
    ------
    CaptureUnreadable
        What was asked for is not there, or does not answer like nsys.

    Examples
    --------
    >>> tool = find_nsys()
    >>> tool is None or tool.version[0].isdigit()
    True
    """
    asked = nsys or os.environ.get("PYANALYZE_NSYS") or None
    path = shutil.which(asked or "nsys")
    if path is None:
        if asked is None:
            return None
        source = "the nsys given" if nsys else "$PYANALYZE_NSYS"
        raise CaptureUnreadable(f"{source}, {asked}, is not an executable file; set it to the nsys to run, or unset it")
    answer = run([path, "--version"])
    found = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or found is None:
        raise CaptureUnreadable(
            f"{path} --version does not answer like nsys ({message_of(answer)}); "
            "set PYANALYZE_NSYS to the nsys of an Nsight Systems installation"
        )
    help_text = run([path, "export", "--help"]).stdout
    return Nsys(path, found[1], "--tables" in help_text, "--times" in help_text)


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run nsys to its end without a terminal and keep what it prints.

    Raises
    ------
    CaptureUnreadable
        The program cannot be started.
    """
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise CaptureUnreadable(
            f"{command[0]} cannot be run ({error.strerror}); set PYANALYZE_NSYS to the nsys of an "
            "Nsight Systems installation"
        ) from error


def message_of(answer: subprocess.CompletedProcess[str]) -> str:
    """The end of what it printed, in one line that is safe on a terminal."""
    text = " ".join((answer.stderr.strip() or answer.stdout.strip()).split())
    printable = "".join(c if c.isprintable() else "?" for c in text)[-500:]
    return printable.rstrip(".") or f"exit status {answer.returncode}, no message"


def release(version: str) -> str:
    """``2026.4.1`` of ``2026.4.1.191-264138605071v0``: what a download page lists."""
    return ".".join(version.partition("-")[0].split(".")[:3])
