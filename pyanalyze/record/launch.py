"""How is a command put under nsys without harming it, and how does one learn how it ended?

nsys ends its target by default when the collection ends, and may refuse to start it at all when it is asked for
records that a machine cannot give. Here it is told to send no signal, and what it refuses is asked for less. The
command runs under a shell that only notes how it ended: with `--kill=none`, nsys returns when the collection is over
while the command goes on, and its own exit status then says nothing of the command.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import find_nsys
from pyanalyze.text.shell import shell_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.nsys_tool import Nsys

#: Notes the pid, runs the command, notes how it ended. Signals for the whole group reach the command, which keeps its
#: own ways (`trap :` is not inherited, and what was ignored stays ignored).
_WRAPPER = (
    'trap : INT TERM HUP QUIT; folder=$1; shift; echo $$ 2>/dev/null >"$folder/command.pid"; '
    '"$@"; status=$?; echo $status 2>/dev/null >"$folder/command.status"; exit $status'
)


@dataclass(frozen=True)
class Wanted:
    """What nsys is to record.

    Attributes
    ----------
    trace
        Comma-separated APIs for `-t`; `none` for a node capture.
    switches, metrics
        GPU context switches; hardware counters of the whole GPU.
    graphs
        Kernels inside CUDA graphs one by one (`node`: more overhead), or each launch as a whole (`graph`).
    fork_tracing
        Trace children between fork and exec. NVIDIA warns that this may crash or block the program.
    duration_s
        nsys stops collecting by itself after that long, even when the recorder is gone; None: when the command ends.
    session
        Name by which the collection can be stopped.
    """

    trace: str = "cuda,nvtx"
    switches: bool = True
    metrics: bool = True
    graphs: Literal["node", "graph"] = "node"
    fork_tracing: bool = False
    duration_s: float | None = None
    session: str | None = None


@dataclass
class NsysRun:
    """A command under nsys, or about to be.

    Attributes
    ----------
    tool
        The nsys.
    folder
        Where its report and our notes of the command lie.
    help_text
        What `nsys profile --help` says.
    """

    tool: Nsys
    folder: Path
    help_text: str
    began: float = field(default_factory=time.time)

    def pid(self) -> int | None:
        """Of the shell around the command, or None where nsys did not start it."""
        return _number(self.folder / "command.pid")

    def status(self) -> int | None:
        """How the command ended, or None: not yet, or nobody could write it down."""
        return _number(self.folder / "command.status")

    def command(self, wanted: Wanted, command: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the whole command line, and notes on what is left out of it."""
        options, notes = options_for(self.help_text, wanted, self.tool.version)
        wrapped = ["sh", "-c", _WRAPPER, "pyanalyze-run", str(self.folder.resolve()), *command]
        return [self.tool.path, "profile", *options, "-o", str(self.folder / "report"), *wrapped], notes

    def bytes_on_disk(self) -> int:
        """What the collection has written so far, in its temporary folder and here."""
        base = Path(tempfile.gettempdir()) / "nvidia" / "nsight_systems"
        total = _size(self.folder)
        pid = self.pid()
        for session in base.glob("quadd_session_*"):
            try:
                ours = pid is not None and any((session / "injection_files").glob(f"injection_{pid}_*"))
                if ours or (pid is None and session.stat().st_ctime >= self.began):
                    total += _size(session)
            except OSError:
                continue  # it was removed while we looked
        return total

    def stop(self, session: str) -> None:
        """End the collection; the command goes on."""
        subprocess.run(  # noqa: S603
            [self.tool.path, "stop", f"--session={session}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def forget(self) -> None:
        """Remove our notes of the command."""
        for name in ("command.pid", "command.status"):
            (self.folder / name).unlink(missing_ok=True)


def prepare(folder: Path, nsys: str | None = None) -> NsysRun:
    """Find nsys and ask what it knows.

    Raises
    ------
    pyanalyze.errors.UsageError
        There is no nsys.
    pyanalyze.errors.CaptureUnreadable
        What `nsys` or ``$PYANALYZE_NSYS`` names is none.
    """
    tool = find_nsys(nsys)
    if tool is None:
        raise UsageError("nsys is not on PATH; install Nsight Systems, set PYANALYZE_NSYS, or leave --nsys out")
    answer = subprocess.run(  # noqa: S603
        [tool.path, "profile", "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return NsysRun(tool, folder, answer.stdout + answer.stderr)


def options_for(help_text: str, wanted: Wanted, version: str = "") -> tuple[list[str], list[str]]:
    """Return the switches of `nsys profile` that this nsys knows, and notes on what it does not.

    Examples
    --------
    >>> options_for("--gpuctxsw= --kill= --gpu-metrics-devices=", Wanted(graphs="graph"), "2024.6")[0]
    ['-t', 'cuda,nvtx', '--gpuctxsw=true', '--gpu-metrics-devices=all', '--kill=none']
    """
    options, notes = ["-t", wanted.trace], []
    metrics = "--gpu-metrics-devices" if "--gpu-metrics-devices" in help_text else "--gpu-metrics-device"
    duration = None if wanted.duration_s is None else f"{max(1, round(wanted.duration_s))}"
    # What is said of the CPU needs rights of its own and costs time; which context was resident does not need it.
    for switch, value, needed in (
        ("--sample", "none", False),
        ("--cpuctxsw", "none", False),
        ("--gpuctxsw", "true" if wanted.switches else None, True),
        (metrics, "all" if wanted.metrics else None, True),
        ("--kill", "none", True),
        ("--cuda-graph-trace", "node" if wanted.graphs == "node" and wanted.trace != "none" else None, True),
        ("--trace-fork-before-exec", "true" if wanted.fork_tracing else None, True),
        ("--duration", duration, True),
        ("--session-new", wanted.session, True),
    ):
        if value is None:
            continue
        if switch in help_text:
            options.append(f"{switch}={value}")
        elif needed:
            notes.append(f"nsys {version} does not support {switch}: left out")
    if "--kill" not in help_text and duration is not None:
        options = [option for option in options if not option.startswith("--duration")]
        notes.append(f"nsys {version} would end the command with the collection; it collects until the command ends")
    return options, notes


def arming(folder: Path, wanted: Wanted, nsys: str = "nsys", help_text: str = "") -> str:
    """How to get kernels of a service: nsys cannot attach CUDA tracing to a process that runs already.

    Examples
    --------
    >>> print(arming(Path("run-7"), Wanted(duration_s=10)))  # doctest: +ELLIPSIS
    nsys cannot trace CUDA in running processes. To trace their kernels, start one replica under nsys:
      nsys launch --session-new=replica -t cuda,nvtx ... YOUR COMMAND
    and, while it is busy, collect for a moment (it gets no signal):
      nsys start --session=replica ... -o run-7/replica; sleep 10; nsys stop --session=replica
    then: pyanalyze run-7
    """
    metrics = "--gpu-metrics-devices" if "--gpu-metrics-devices" in help_text else "--gpu-metrics-device"
    program = shell_word(nsys)
    options = " --gpuctxsw=true" if wanted.switches else ""
    options += f" {metrics}=all" if wanted.metrics else ""
    seconds = 10 if wanted.duration_s is None else round(wanted.duration_s)
    report = shell_word(str(folder / "replica"))
    collect = f"{program} start --session=replica --sample=none --cpuctxsw=none{options} -o {report}"
    return "\n".join(
        (
            "nsys cannot trace CUDA in running processes. To trace their kernels, start one replica under nsys:",
            f"  {program} launch --session-new=replica -t cuda,nvtx --cuda-graph-trace=node YOUR COMMAND",
            "and, while it is busy, collect for a moment (it gets no signal):",
            f"  {collect}; sleep {seconds}; {program} stop --session=replica",
            f"then: pyanalyze {shell_word(str(folder))}",
        )
    )


def alive(pid: int) -> bool:
    """Whether a process that may belong to somebody else still runs.

    Examples
    --------
    >>> alive(os.getpid())
    True
    """
    try:
        os.kill(pid, 0)  # asks, sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                # Its stores are mapped ahead of use: what counts is what the disk holds.
                total += (Path(place) / name).stat().st_blocks * 512
            except OSError:
                continue
    return total
