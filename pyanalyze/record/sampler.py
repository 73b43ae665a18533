"""Run a command, sample NVML beside it, and never be the reason that it fails.

The command is started once and only waited for. No signal is sent to anything that was not started here; what was
started gets only a SIGTERM that was sent to the recorder in its place, and the SIGINT that the terminal sends to
both. Sampling happens in a thread of its own: when the disk is full, when a GPU falls off the bus or when NVML does
not come back, the command goes on and its exit status is what counts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze._files import write_whole
from pyanalyze.exceptions import OutputExists, UsageError
from pyanalyze.record.node import ALLOWED, host_hash, is_allowed, mps_processes, process_facts, sees_host_pids
from pyanalyze.record.nvml import Nvml, is_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: First line of a recording; the reader in the core looks for it.
FORMAT = "pyanalyze.samples/1"
#: Processes of which facts are kept; a machine that starts more in one recording is not described further.
_MOST_PROCESSES = 10_000
#: How long a sampler that hangs in the driver is waited for.
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Recording:
    """What a recording came to.

    Attributes
    ----------
    folder
        Where `samples.jsonl`, `node.json` and perhaps `report.nsys-rep` are.
    exit_status
        Of the command: as a shell counts, 128 + N when signal N ended it; 0 without a command.
    samples, lost, late
        Rounds written; lines that could not be written (full disk); rounds that were skipped because the one before
        was still running.
    mean_sample_ns, period_share
        The recorder's own overhead: mean time per round, and its share of the period. None without samples.
    notes
        What went wrong on the way, in words.
    """

    folder: Path
    exit_status: int
    samples: int
    lost: int
    late: int
    mean_sample_ns: int | None
    period_share: float | None
    notes: tuple[str, ...]


class _Log:
    """Appends lines; a line is in the file whole or not at all, whatever the disk says."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self._whole_bytes = 0
        self.lost = 0
        self.first_error: str | None = None

    def write(self, entry: dict[str, Any]) -> None:
        data = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        left = data
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self.lost += 1
            self.first_error = self.first_error or (error.strerror or str(error))
            # Only the torn piece goes; later lines find their place when there is room again.
            try:
                os.ftruncate(self._descriptor, self._whole_bytes)
            except OSError:
                self.first_error += "; its last line is torn"
        else:
            self._whole_bytes += len(data)

    def close(self) -> None:
        os.close(self._descriptor)


class _Sampler(threading.Thread):
    """Samples at a steady rate until told to stop."""

    def __init__(self, nvml: Nvml, folder: Path, rate_hz: float, node: dict[str, Any], say: Callable[[str], object]):
        super().__init__(name="nvml-sampler", daemon=True)
        self._nvml, self._folder, self._say = nvml, folder, say
        self.period_s = 1 / rate_hz
        self._node = node
        self.stop_asked = threading.Event()
        self._seen_us: int | None = None
        self._warned: set[str] = set()
        self.log = _Log(folder / "samples.jsonl")
        self.samples = self.late = self.total_ns = self.longest_ns = 0
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.notes.append(text)
            self._say(text)

    def round(self) -> None:
        """Ask everything once and write it down."""
        began_ns = time.perf_counter_ns()
        now_us = time.time_ns() // 1000
        described = len(self._node["processes"])
        for reading in self._nvml.sample(self._seen_us):
            self.log.write(reading.as_object())
            if reading.pid is None and "NVML_ERROR_GPU_IS_LOST" in reading.errors.values():
                self.note(f"GPU {reading.gpu_uuid} is lost (NVML_ERROR_GPU_IS_LOST); its values are null from here on")
            if reading.pid is not None:
                self._describe(reading.pid, reading.process_name)
        if len(self._node["processes"]) > described:
            self.write_node()  # now, while it is known: the recorder may be killed
        self._seen_us = now_us
        if self.log.first_error:
            self.note(f"samples cannot be written ({self.log.first_error}); the command goes on")
        took_ns = time.perf_counter_ns() - began_ns
        self.samples += 1
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)

    def _describe(self, pid: int, name: str | None) -> None:
        known = self._node["processes"]
        if str(pid) in known or len(known) >= _MOST_PROCESSES:
            return
        facts = process_facts(pid) if sees_host_pids() else {}
        known[str(pid)] = {"nvml_name": name, "seen_utc_ns": time.time_ns(), **facts}

    def write_node(self) -> None:
        try:
            write_whole(self._folder / "node.json", json.dumps(self._node, indent=1) + "\n", force=True)
        except OSError as error:
            self.note(f"node.json cannot be written ({error.strerror}); the command goes on")

    def run(self) -> None:
        due = time.monotonic() + self.period_s
        while not self.stop_asked.wait(max(0.0, due - time.monotonic())):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 the command must not be harmed by whatever a driver does
                self.note(f"sampling stopped: {type(error).__name__}: {error}")
                return
            due += self.period_s
            behind = int((time.monotonic() - due) / self.period_s)
            if behind > 0:  # no burst to catch up: that would load the machine when it is slow already
                self.late += behind
                due += behind * self.period_s

    def finish(self, why: str) -> None:
        """Stop, and write how it went."""
        self.stop_asked.set()
        if self.is_alive():
            self.join(_PATIENCE_S)
        if self.is_alive():
            self.note("NVML does not answer any more; the recording ends without its closing line")
            return
        self.log.write(
            {
                "end": {
                    "time_utc_ns": time.time_ns(),
                    "why": why,
                    "samples": self.samples,
                    "lost_lines": self.log.lost,
                    "late": self.late,
                    "mean_sample_ns": self.mean_ns(),
                    "longest_sample_ns": self.longest_ns,
                    "period_share": self.share(),
                    "notes": self.notes,
                }
            }
        )
        self.log.close()
        self.write_node()
        self._nvml.close()

    def mean_ns(self) -> int | None:
        return self.total_ns // self.samples if self.samples else None

    def share(self) -> float | None:
        mean = self.mean_ns()
        return None if mean is None else mean / (self.period_s * 1e9)


def record(
    command: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
    *,
    rate_hz: float = 10.0,
    duration_s: float | None = None,
    nsys: bool = False,
    say: Callable[[str], object] = lambda text: print(text, file=sys.stderr),  # noqa: T201
) -> Recording:
    """Run `command` and sample NVML beside it.

    Parameters
    ----------
    command
        Program and arguments; empty: sample until `duration_s` is over or Ctrl-C.
    folder
        Made if missing; None: ``pyanalyze-record-<UTC time>``. An older recording in it is never replaced.
    rate_hz
        Samples a second, 0.01 to 100. NVML's own utilisation counters renew only every 1/6 to 1 s.
    duration_s
        Sample for that long; the command is waited for all the same.
    nsys
        Run the command under the `nsys` on PATH, with the switches that it knows, into ``report.nsys-rep``.
    say
        Called with each note.

    Returns
    -------
    Recording

    Raises
    ------
    pyanalyze.exceptions.GpuUnavailable
        NVML cannot be asked; nothing was started.
    pyanalyze.exceptions.UsageError
        The rate or duration makes no sense, the command does not exist, there is no nsys.
    pyanalyze.exceptions.OutputExists
        The folder holds a recording.
    OSError
        The folder cannot be written; nothing was started.

    Examples
    --------
    >>> record(["python", "train.py"], "run-7", rate_hz=10).exit_status  # doctest: +SKIP
    0
    """
    if not 0.01 <= rate_hz <= 100:
        raise UsageError(f"a rate of {rate_hz:g} Hz makes no sense; give 0.01 to 100 samples a second")
    if duration_s is not None and duration_s <= 0:
        raise UsageError(f"a duration of {duration_s:g} s makes no sense; give more than 0")
    if nsys and not command:
        raise UsageError("--nsys needs a command to run; give it after --")
    if command and shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} is not an executable file or not on PATH; nothing was started")
    place = Path(time.strftime("pyanalyze-record-%Y%m%dT%H%M%SZ", time.gmtime()) if folder is None else folder)
    nvml = Nvml()
    try:
        launched = list(command)
        launch_notes: list[str] = []
        if nsys:
            prefix, launch_notes = nsys_command(place / "report")
            launched = [*prefix, *launched]
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_recording(place)
        sampler = _Sampler(nvml, place, rate_hz, _node(nvml), say)
    except BaseException:
        nvml.close()
        raise
    for text in launch_notes:
        sampler.note(text)
    head = {"format": FORMAT, "time_utc_ns": time.time_ns(), "rate_hz": rate_hz, "driver": nvml.driver_version()}
    sampler.log.write(head)
    sampler.write_node()
    return _run(sampler, launched, duration_s, place)


def _refuse_recording(place: Path) -> None:
    for name in ("samples.jsonl", "report.nsys-rep"):
        if (place / name).exists():
            raise OutputExists(f"{place / name} exists; name another -o, a recording is never replaced")


def _run(sampler: _Sampler, command: list[str], duration_s: float | None, place: Path) -> Recording:
    interrupted = False
    child: subprocess.Popen[bytes] | None = None

    def on_interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True  # the terminal sent it to the command too: what to do with it is the command's decision

    def on_terminate(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        if child is not None and child.poll() is None:
            child.terminate()  # it was meant for what runs, and in a container nobody else passes it on

    handlers = {signal.SIGINT: on_interrupt, signal.SIGTERM: on_terminate, signal.SIGHUP: on_interrupt}
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            # What is ignored (nohup, a background job) stays ignored, here and in the command.
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    status, why = 0, "duration over"
    try:
        sampler.round()  # what the GPU looked like before the command
        if command:
            child = subprocess.Popen(command)  # noqa: S603 running it is what was asked for
        sampler.start()
        timer = None
        if duration_s is not None:
            timer = threading.Timer(duration_s, sampler.stop_asked.set)
            timer.daemon = True
            timer.start()
        if child is not None:
            code = child.wait()
            status = 128 - code if code < 0 else code
            why = "command ended" if code >= 0 else f"command ended by signal {-code}"
        else:
            while sampler.is_alive() and not interrupted:
                sampler.join(0.2)
            why = "interrupted" if interrupted else why
        if timer is not None:
            timer.cancel()
    finally:
        sampler.finish(why)
        for restored, old in before.items():
            signal.signal(restored, old)
    return Recording(
        place,
        status,
        sampler.samples,
        sampler.log.lost,
        sampler.late,
        sampler.mean_ns(),
        sampler.share(),
        tuple(sampler.notes),
    )


def _node(nvml: Nvml) -> dict[str, Any]:
    host_pids = sees_host_pids()
    unread = None if host_pids else "pids that NVML gives are not those of this pid namespace: /proc is not asked"
    return {
        "schema": "pyanalyze.node/1",
        "time_utc_ns": time.time_ns(),
        "host_hash": host_hash(),
        "driver_version": nvml.driver_version(),
        "gpus": nvml.identity(),
        "sees_host_pids": host_pids,
        "unread": unread,
        "mps_processes": mps_processes(),
        "environment": {name: value for name, value in os.environ.items() if is_allowed(name)},
        "environment_allowed": list(ALLOWED),
        "processes": {},
    }


def nsys_command(report: Path, nsys: str | None = None, *, root: bool | None = None) -> tuple[list[str], list[str]]:
    """Return how to profile with the nsys that is here, and notes on what it cannot record.

    Parameters
    ----------
    report
        Output without ``.nsys-rep``.
    nsys
        The nsys; None: ``$PYANALYZE_NSYS``, else the one on PATH.
    root
        Whether privileged records may be asked for; None: whether this process is root.

    Raises
    ------
    pyanalyze.exceptions.UsageError
        There is no nsys.

    Examples
    --------
    >>> nsys_command(Path("run-7/report"))[0]  # doctest: +SKIP
    ['/usr/bin/nsys', 'profile', '-t', 'cuda,nvtx', '--gpuctxsw=true', '--kill=none', '-o', 'run-7/report']
    """
    from pyanalyze.nsys_rep import find_nsys

    tool = find_nsys(nsys)
    if tool is None:
        raise UsageError("there is no nsys on PATH; install Nsight Systems, set PYANALYZE_NSYS, or leave --nsys out")
    answer = subprocess.run(  # noqa: S603
        [tool.path, "profile", "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    known = answer.stdout + answer.stderr
    options, notes = ["-t", "cuda,nvtx"], []
    privileged = is_root() if root is None else root
    if not privileged:
        # nsys refuses to start the command when it is asked for what it may not record.
        notes.append("not root: context switches and GPU metrics are left out; run as root to see who held the GPU")
    metrics = "--gpu-metrics-devices" if "--gpu-metrics-devices" in known else "--gpu-metrics-device"
    for switch, value, needs_root in (
        ("--gpuctxsw", "true", True),
        (metrics, "all", True),
        ("--kill", "none", False),
        ("--cuda-graph-trace", "node", False),
    ):
        if needs_root and not privileged:
            continue
        if switch in known:
            options.append(f"{switch}={value}")
        else:
            notes.append(f"nsys {tool.version} does not know {switch}: left out")
    return [tool.path, "profile", *options, "-o", str(report)], notes
