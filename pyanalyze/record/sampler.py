"""Run a command, sample NVML beside it, and never be the reason that it fails.

The command is started once and only waited for. No signal is sent to anything that was not started here; what was
started gets only a SIGTERM that was sent to the recorder in its place, and the SIGINT that the terminal sends to
both. Sampling happens in a thread of its own: when the disk is full, when a GPU falls off the bus or when NVML does
not come back, the command goes on and its exit status is what counts.

Runs where neither polars nor the compiled core is installed: on the machine with the GPU, nvidia-ml-py is enough.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyanalyze.errors import OutputExists, UsageError
from pyanalyze.files import write_whole
from pyanalyze.record.launch import NsysRun, Wanted, alive, arming, prepare
from pyanalyze.record.node import (
    container_of,
    cpu_throttling,
    dcgm_processes,
    mps_processes,
    process_facts,
    profiling_restricted,
    sees_host_pids,
)
from pyanalyze.record.nvml import Nvml, is_root
from pyanalyze.text.allowlist import ALLOWED, has_shape, host_hash, is_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: First line of a recording; the reader in the core looks for it.
FORMAT = "pyanalyze.samples/1"
#: Processes of which facts are kept; a machine that starts more in one recording is not described further.
_MOST_PROCESSES = 10_000
#: How long a sampler that hangs in the driver is waited for.
_PATIENCE_S = 5.0
#: How often the disk space taken is looked at.
_SIZE_EVERY_S = 1.0
#: Ten busy seconds say more than an hour, and nsys reports grow by megabytes a second.
DURATION_S = 10.0
MAX_BYTES = 1 << 30


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
    cpu_share
        CPU time of the recorder over the time that it sampled: its part of one core.
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
    cpu_share: float | None
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
                self.first_error += "; its last line is incomplete"
        else:
            self._whole_bytes += len(data)

    @property
    def bytes(self) -> int:
        """What is in the file."""
        return self._whole_bytes

    def close(self) -> None:
        os.close(self._descriptor)


class _Sampler(threading.Thread):
    """Samples at a steady rate until told to stop."""

    def __init__(
        self,
        nvml: Nvml,
        folder: Path,
        rate_hz: float,
        node: dict[str, Any],
        say: Callable[[str], object],
        max_bytes: int,
    ):
        super().__init__(name="nvml-sampler", daemon=True)
        self._nvml, self._folder, self._say = nvml, folder, say
        self.period_s = 1 / rate_hz
        self._node = node
        self._max_bytes = max_bytes
        self._looked = 0.0
        self.stop_asked = threading.Event()
        self.why: str | None = None
        self.nsys: tuple[NsysRun, str] | None = None
        self._command_pid: int | None = None
        self._seen_us: int | None = None
        self._warned: set[str] = set()
        self.log = _Log(folder / "samples.jsonl")
        self.samples = self.late = self.total_ns = self.longest_ns = 0
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()
        self.cpu_share: float | None = None
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
            self.note(f"samples cannot be written ({self.log.first_error}); the command continues")
        if self._command_pid is not None:
            # Once more: right after its start it may not have become its program, and then has no environment.
            self.describe_command(self._command_pid)
            self._command_pid = None
        elif self.nsys is not None and self._node["command"] is None and (shell := self.nsys[0].pid()) is not None:
            self.describe_command(shell)
        self._watch_size()
        took_ns = time.perf_counter_ns() - began_ns
        self.samples += 1
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)

    def _watch_size(self) -> None:
        if time.monotonic() - self._looked < _SIZE_EVERY_S:
            return
        self._looked = time.monotonic()
        run = self.nsys
        taken = self.log.bytes if run is None else run[0].bytes_on_disk()
        if taken <= self._max_bytes:
            return
        self.note(f"the recording exceeds its limit of {self._max_bytes >> 20} MiB: it ends here")
        self.ask_stop("size cap")
        if run is not None:
            # nsys takes its time to end a collection; nothing here has to wait for it.
            threading.Thread(target=run[0].stop, args=(run[1],), name="nsys-stop").start()

    def _describe(self, pid: int, name: str | None) -> None:
        known = self._node["processes"]
        if str(pid) in known or len(known) >= _MOST_PROCESSES:
            return
        facts = described(pid) if sees_host_pids() else {}
        known[str(pid)] = {"nvml_name": name, "seen_utc_ns": time.time_ns(), **facts}

    def describe_command(self, pid: int) -> None:
        """Note who the command is; its arguments are nobody's business."""
        facts = described(pid)
        if self._node["command"] is None:
            self._command_pid = pid
        if self._node["command"] is None or facts["start_ticks"] is not None:
            self._node["command"] = {"pid": pid, **facts}
            self.write_node()

    def write_node(self) -> None:
        try:
            write_whole(self._folder / "node.json", json.dumps(self._node, indent=1) + "\n", force=True)
        except OSError as error:
            self.note(f"node.json cannot be written ({error.strerror}); the command continues")

    def run(self) -> None:
        due = time.monotonic() + self.period_s
        while not self.stop_asked.wait(max(0.0, due - time.monotonic())):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 the command must not be harmed by whatever a driver does
                self.note(f"sampling stopped: {type(error).__name__}: {error}")
                self.ask_stop("sampling stopped")
                break
            due += self.period_s
            behind = int((time.monotonic() - due) / self.period_s)
            if behind > 0:  # no burst to catch up: that would load the machine when it is slow already
                self.late += behind
                due += behind * self.period_s
        self._close()

    def ask_stop(self, why: str) -> None:
        """End the sampling; the first reason counts."""
        self.why = self.why or why
        self.stop_asked.set()

    def time_is_over(self, goes_on: bool) -> None:  # noqa: FBT001
        """End the sampling because that was its duration."""
        if goes_on and not self.stop_asked.is_set():
            self._say(
                "the recording has ended; the command continues, and is waited for (--until-end records all of it)"
            )
        self.ask_stop("duration over")

    def finish(self, why: str) -> None:
        """End the sampling, and wait until how it went is written."""
        self.ask_stop(why)
        if self.ident is None:  # something failed before it began
            self._close()
            return
        self.join(_PATIENCE_S)
        if self.is_alive():
            self.note("NVML no longer answers; the recording ends without its closing line")

    def _close(self) -> None:
        """Write how it went; in the sampler's own thread, for NVML may not come back."""
        elapsed_s = time.monotonic() - self._began_s
        self.cpu_share = (time.process_time() - self._cpu_s) / elapsed_s if elapsed_s > 0 else None
        try:
            self._node["end"] = end_of(self._nvml, self._node["processes"])
        except Exception as error:  # noqa: BLE001 as above
            self.note(f"the node cannot be described at the end: {type(error).__name__}: {error}")
        self.log.write(
            {
                "end": {
                    "time_utc_ns": time.time_ns(),
                    "why": self.why,
                    "samples": self.samples,
                    "lost_lines": self.log.lost,
                    "late": self.late,
                    "mean_sample_ns": self.mean_ns(),
                    "longest_sample_ns": self.longest_ns,
                    "period_share": self.share(),
                    "cpu_share": self.cpu_share,
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
    duration_s: float | None = DURATION_S,
    max_bytes: int = MAX_BYTES,
    nsys: bool = False,
    graphs: Literal["node", "graph"] = "node",
    fork_tracing: bool = False,
    pause_dcgm: bool = False,
    say: Callable[[str], object] = lambda text: print(text, file=sys.stderr),  # noqa: T201
) -> Recording:
    """Run `command` and sample NVML beside it, or watch what runs already.

    Parameters
    ----------
    command
        Program and arguments; empty: watch the node. Processes that run already give samples and, with `nsys`,
        switch records; how to get their kernels is told.
    folder
        Made if missing; None: ``pyanalyze-record-<UTC time>``. An older recording in it is never replaced. It is
        itself a capture: ``pyanalyze.load(folder)``.
    rate_hz
        Samples a second, 0.01 to 100. NVML's own utilisation counters renew only every 1/6 to 1 s.
    duration_s
        Record for that long; the command is waited for all the same, and gets no signal. None: as long as the
        command runs, or until Ctrl-C.
    max_bytes
        The recording ends when it takes more than that on the disk, temporary files of nsys included.
    nsys
        Run the command under the `nsys` on PATH, with the switches that it knows, into ``report.nsys-rep``.
    graphs
        Kernels of CUDA graphs one by one (`node`), which costs time in programs that launch many small ones, or each
        graph as a whole (`graph`).
    fork_tracing
        Trace children between fork and exec too. NVIDIA warns that programs may crash or block.
    pause_dcgm
        Where DCGM runs and nsys is to sample counters, tell DCGM to pause meanwhile. Else it is left alone, and nsys
        takes no counters.
    say
        Called with each note.

    Returns
    -------
    Recording

    Raises
    ------
    pyanalyze.errors.GpuUnavailable
        NVML cannot be asked; nothing was started.
    pyanalyze.errors.UsageError
        The rate or duration makes no sense, the command does not exist, there is no nsys.
    pyanalyze.errors.OutputExists
        The folder holds a recording.
    OSError
        The folder cannot be written; nothing was started.

    Examples
    --------
    >>> record(["python", "train.py"], "run-7", rate_hz=10).exit_status  # doctest: +SKIP
    0
    """
    if not 0.01 <= rate_hz <= 100:
        raise UsageError(f"the rate of {rate_hz:g} Hz is out of range; give 0.01 to 100 samples a second")
    if duration_s is not None and duration_s <= 0:
        raise UsageError(f"the duration of {duration_s:g} s is out of range; give more than 0")
    if nsys and not command and duration_s is None:
        raise UsageError("--nsys without a command records the node for a while; give --duration")
    if command and shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} is not an executable file or not on PATH; nothing was started")
    place = Path(time.strftime("pyanalyze-record-%Y%m%dT%H%M%SZ", time.gmtime()) if folder is None else folder)
    nvml = Nvml()
    try:
        run = prepare(place) if nsys else None
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_recording(place)
        sampler = _Sampler(nvml, place, rate_hz, _node(nvml), say, max_bytes)
    except BaseException:
        nvml.close()
        raise
    if not command and not nsys:
        sampler.note("samples only; --nsys adds context switches, and says how to trace kernels of running processes")
    plans: list[Wanted] = []
    paused = None
    if run is not None:
        wanted = Wanted(
            trace="cuda,nvtx" if command else "none",
            graphs=graphs,
            fork_tracing=fork_tracing,
            duration_s=duration_s,
            session=f"pyanalyze-{os.getpid()}-{time.time_ns() % 10**9}",
        )
        wanted, paused = _counters(wanted, sampler, pause_dcgm=pause_dcgm)
        nvml.read_counters(not wanted.metrics)
        if not is_root():
            sampler.note("not root: switch records of other users' processes have no pid and inexact times")
        plans = _less_and_less(wanted)
        if not command:
            say(arming(place, wanted, run.tool.path, run.help_text))
            command = ["sleep", f"{duration_s:g}"]
    head = {
        "format": FORMAT,
        "time_utc_ns": time.time_ns(),
        "rate_hz": rate_hz,
        "duration_s": duration_s,
        "driver": nvml.driver_version(),
    }
    sampler.log.write(head)
    sampler.write_node()
    try:
        return _run(sampler, list(command), duration_s, place, run, plans)
    finally:
        if paused is not None:
            _dcgm(paused, "--resume", sampler)


def _refuse_recording(place: Path) -> None:
    for name in ("samples.jsonl", "report.nsys-rep", "report.qdstrm"):
        if (place / name).exists():
            raise OutputExists(f"{place / name} exists; choose another -o: a recording is never replaced")


def _counters(wanted: Wanted, sampler: _Sampler, *, pause_dcgm: bool) -> tuple[Wanted, str | None]:
    """Whether nsys may sample hardware counters; the dcgmi that is to resume afterwards."""
    if not is_root() and profiling_restricted() is not False:
        sampler.note("GPU metrics are left out: the driver restricts hardware counters to administrators")
        return replace(wanted, metrics=False), None
    if not dcgm_processes():
        return wanted, None
    if not pause_dcgm:
        sampler.note("GPU metrics are left out: DCGM uses the counters; --pause-dcgm pauses it meanwhile")
        return replace(wanted, metrics=False), None
    dcgmi = shutil.which("dcgmi")
    if dcgmi is None or not _dcgm(dcgmi, "--pause", sampler):
        sampler.note("GPU metrics are left out: DCGM cannot be paused (dcgmi profile --pause)")
        return replace(wanted, metrics=False), None
    return wanted, dcgmi


def _dcgm(dcgmi: str, verb: str, sampler: _Sampler) -> bool:
    answer = subprocess.run(  # noqa: S603
        [dcgmi, "profile", verb], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if answer.returncode and verb == "--resume":
        sampler.note("DCGM was paused and cannot be resumed; run: dcgmi profile --resume")
    return answer.returncode == 0


def _less_and_less(wanted: Wanted) -> list[Wanted]:
    """What to ask of nsys, then what to ask when it refuses: it starts nothing when it cannot give a record."""
    plans = [wanted]
    if wanted.metrics:
        plans.append(replace(wanted, metrics=False))
    plans.append(replace(wanted, metrics=False, switches=False))
    return plans


class _Command:
    """What was started, how it is waited for, and what signals sent to the recorder mean for it."""

    def __init__(self, sampler: _Sampler, folder: Path, run: NsysRun | None, plans: Iterable[Wanted]):
        self._sampler, self._folder, self._run, self._plans = sampler, folder, run, list(plans)
        self._child: subprocess.Popen[bytes] | None = None
        self._early: int | None = None
        self.interrupted = False

    def start(self, command: list[str]) -> None:
        if self._run is None:
            child = self._started(command)
            self._sampler.describe_command(child.pid)
            return
        self._command = command
        self._start_nsys(self._run, command)

    def _start_nsys(self, run: NsysRun, command: list[str]) -> subprocess.Popen[bytes]:
        wanted = self._plans.pop(0)
        argv, notes = run.command(wanted, command)
        for text in notes:
            self._sampler.note(text)
        child = self._started(argv)
        self._sampler.nsys = (run, wanted.session or "")
        return child

    def _started(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Start a process; a signal that came before it was known is handed on now."""
        self._child = None
        self._child = child = subprocess.Popen(argv)  # noqa: S603 running it is what was asked for
        if self._early is not None:
            self.signalled(self._early)
        return child

    def wait(self) -> tuple[int, str]:
        """Return the exit status as a shell counts it, and why the recording ends."""
        child, run = self._child, self._run
        if child is None:  # nothing was started
            return 0, "duration over"
        code = child.wait()
        if run is None:
            status = 128 - code if code < 0 else code
            return status, "command ended" if code >= 0 else f"command ended by signal {-code}"
        while (pid := run.pid()) is None:
            if not self._plans or self.interrupted:
                self._sampler.note(f"nsys {run.tool.version} did not start the command; nothing was run")
                return 3, "nsys did not start the command"
            self._sampler.note("nsys refused to start the command; fewer records are requested now")
            code = self._start_nsys(run, self._command).wait()
        # The collection is over; the command may go on for as long as it likes.
        while run.status() is None and alive(pid):
            time.sleep(0.1)
        ended = run.status()
        if ended is None:
            self._sampler.note(
                "the exit status of the command is not known: its session was killed, or the disk is full"
            )
            ended = code if code > 0 else 3
        run.forget()
        return ended, "command ended"

    def signalled(self, number: int) -> None:
        """A signal for the recorder."""
        self.interrupted = True
        child = self._child
        if child is None:
            self._early = number
            return
        if child.poll() is None:
            # SIGINT went from the terminal to the whole group: what to do with it is the command's decision, and nsys
            # hands it to its target. SIGTERM was meant for what runs; in a container nobody else passes it on.
            if number == signal.SIGTERM:
                child.terminate()
            return
        # nsys made the command a session of its own, and is gone: nobody else hands it on.
        pid = None if self._run is None else self._run.pid()
        if pid is not None and alive(pid):
            try:
                if os.getpgid(pid) == pid:
                    os.killpg(pid, number)
            except OSError:
                pass


def _run(
    sampler: _Sampler,
    command: list[str],
    duration_s: float | None,
    place: Path,
    run: NsysRun | None,
    plans: list[Wanted],
) -> Recording:
    started = _Command(sampler, place, run, plans)

    def on_signal(number: int, frame: object) -> None:
        started.signalled(number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # What is ignored (nohup, a background job) stays ignored, here and in the command.
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, on_signal)
    status, why = 0, "duration over"
    timer = None
    try:
        sampler.round()  # what the GPU looked like before the command
        if command:
            started.start(command)
        sampler.start()
        if duration_s is not None:
            timer = threading.Timer(duration_s, sampler.time_is_over, (bool(command),))
            timer.daemon = True
            timer.start()
        if command:
            status, why = started.wait()
        else:
            while sampler.is_alive() and not started.interrupted:
                sampler.join(0.2)
            why = "interrupted" if started.interrupted else why
    finally:
        if timer is not None:
            timer.cancel()
        sampler.finish(why)
        for restored, old in before.items():
            signal.signal(restored, old)
    if run is not None and (place / "report.qdstrm").exists() and not (place / "report.nsys-rep").exists():
        sampler.note(
            f"nsys left only a raw stream; where Nsight Systems is fully installed, run: QdstrmImporter -i "
            f"{place}/report.qdstrm"
        )
    return Recording(
        place,
        status,
        sampler.samples,
        sampler.log.lost,
        sampler.late,
        sampler.mean_ns(),
        sampler.share(),
        sampler.cpu_share,
        tuple(sampler.notes),
    )


def described(pid: int) -> dict[str, Any]:
    """What /proc says of a process, with its container and pod."""
    facts = process_facts(pid)
    return {**facts, **container_of(facts["cgroup"])}


def end_of(nvml: Nvml, processes: dict[str, Any]) -> dict[str, Any]:
    """The node at the end of a recording: GPUs again, and of each process what may have changed."""
    seen: dict[str, Any] = {}
    for pid, then in processes.items():
        if "start_ticks" not in then:
            continue  # not visible from here
        now = process_facts(int(pid))
        same = now["start_ticks"] is not None and now["start_ticks"] == then["start_ticks"]
        seen[pid] = {"alive": same}
        if same:
            seen[pid].update({key: now[key] for key in ("cgroup", "cpu_throttling")})
    return {
        "time_utc_ns": time.time_ns(),
        "gpus": nvml.identity(),
        "mps_processes": mps_processes(),
        "cpu_throttling": _own_throttling(),
        "processes": seen,
    }


def _own_throttling() -> dict[str, int] | None:
    cgroup = process_facts(os.getpid())["cgroup"]
    return None if cgroup is None else cpu_throttling(cgroup)


def _node(nvml: Nvml) -> dict[str, Any]:
    host_pids = sees_host_pids()
    unread = None if host_pids else "pids that NVML reports belong to another pid namespace: /proc is not read"
    return {
        "schema": "pyanalyze.node/1",
        "time_utc_ns": time.time_ns(),
        "host_hash": host_hash(),
        "driver_version": nvml.driver_version(),
        "gpus": nvml.identity(),
        "sees_host_pids": host_pids,
        "unread": unread,
        "mps_processes": mps_processes(),
        "dcgm_processes": dcgm_processes(),
        "cpu_throttling": _own_throttling(),
        "environment": {
            name: value for name, value in os.environ.items() if is_allowed(name) and has_shape(name, value)
        },
        "environment_allowed": list(ALLOWED),
        "recorder": described(os.getpid()),
        "command": None,
        "processes": {},
        "end": None,
    }
