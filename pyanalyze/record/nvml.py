"""What does NVML say of this machine's GPUs at this moment?

The one place that knows NVIDIA's binding (``nvidia-ml-py``, module ``pynvml``). Everything is read, nothing is
set: no mode, no clock, no accounting is ever changed. What NVML refuses is None with NVML's name for the error.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyanalyze.errors import GpuUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

#: A value, or None with a reason in `errors`.
Value = float | int | str | None

_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
#: Bits of the clocks event (throttle) reasons, named as nvidia-smi names them.
_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
#: GI and CI of a process that runs in no MIG instance.
_NO_INSTANCE = 0xFFFFFFFF
#: In the words of nvidia-smi -q.
_VIRTUALIZATION = {0: "None", 1: "Pass-Through", 2: "VGPU", 3: "Host VGPU", 4: "Host VSGA"}
_SCHEDULERS = {0: "unknown", 1: "best-effort", 2: "equal-share", 3: "fixed-share"}
_ROUND_ROBIN = {0: "default", 1: "disabled", 2: "enabled"}
#: Metrics of GPM (Hopper and newer): NVML's number, our name, factor. They are means over the time between two calls,
#: and named as DCGM's are because they mean the same.
_GPM = (
    (1, "gr_engine_active_ratio", 0.01),
    (2, "sm_active_ratio", 0.01),
    (3, "sm_occupancy_ratio", 0.01),
    (5, "tensor_active_ratio", 0.01),
    (10, "dram_active_ratio", 0.01),
    (11, "fp64_active_ratio", 0.01),
    (12, "fp32_active_ratio", 0.01),
    (13, "fp16_active_ratio", 0.01),
    (20, "pcie_tx_bytes_per_s", 2.0**20),
    (21, "pcie_rx_bytes_per_s", 2.0**20),
)
#: Closer together two samples of GPM say little.
_GPM_GAP_NS = 100_000_000
#: Errors after which asking a device more questions only costs time.
_GONE = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")


@dataclass
class Reading:
    """What one GPU, MIG instance or process said at one time.

    Attributes
    ----------
    time_utc_ns
        Middle of the questions, UTC, ns.
    gpu_index, gpu_uuid, gpu_name
        The GPU; a MIG instance has its own UUID and no index, for an index names a whole board.
    pid, process_name, process_type
        A process (host pid as NVML gives it; C, G, C+G or M+C), else None.
    metrics
        Canonical metric to value; None: not available.
    errors
        Metric to NVML's name for why.
    """

    time_utc_ns: int
    gpu_index: int | None
    gpu_uuid: str | None
    gpu_name: str | None
    pid: int | None = None
    process_name: str | None = None
    process_type: str | None = None
    metrics: dict[str, Value] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object of this reading; identity that is None is left out.

        Examples
        --------
        >>> Reading(5, 0, "GPU-1", None, metrics={"power_w": None}, errors={"power_w": "why"}).as_object()
        {'time_utc_ns': 5, 'gpu_index': 0, 'gpu_uuid': 'GPU-1', 'metrics': {'power_w': None},
         'errors': {'power_w': 'why'}}
        """
        names = ("time_utc_ns", "gpu_index", "gpu_uuid", "gpu_name", "pid", "process_name", "process_type")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        found["metrics"] = self.metrics
        if self.errors:
            found["errors"] = self.errors
        return found


@dataclass(frozen=True)
class _Gpu:
    index: int
    handle: Any
    uuid: str | None
    name: str | None


@dataclass
class _GpmState:
    """Counters of one GPU or GPU instance: the sample before, and the one to fill next."""

    before: Any
    spare: Any
    time_ns: int


class Nvml:
    """An open connection to NVML; use it as a context manager.

    Parameters
    ----------
    counters
        Whether to read GPM, the hardware counters of Hopper and newer. Leave them to nsys when it samples them.

    Raises
    ------
    pyanalyze.errors.GpuUnavailable
        ``nvidia-ml-py``, the driver's library or every GPU is missing.

    Examples
    --------
    >>> with Nvml() as nvml:  # doctest: +SKIP
    ...     for reading in nvml.sample():
    ...         print(reading.gpu_name, reading.metrics["gpu_utilization_pct"])
    NVIDIA A100-SXM4-40GB 97
    """

    def __init__(self, *, counters: bool = True) -> None:
        self._nvml = _binding()
        self._counters = counters
        self._gpm: dict[tuple[int, int | None], _GpmState | str] = {}
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise GpuUnavailable(_unavailable(self._name_of(error))) from error
        self._gpus: list[_Gpu] = []
        self._names: dict[int, str | None] = {}
        # Where a driver lacks the newest form of a call, the older one is found once.
        self._calls: dict[str, Callable[[Any], list[Any]]] = {}
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle, why = self._ask(self._nvml.nvmlDeviceGetHandleByIndex, index)
            if why is None:
                uuid, _ = self._ask(self._nvml.nvmlDeviceGetUUID, handle)
                name, _ = self._ask(self._nvml.nvmlDeviceGetName, handle)
                self._gpus.append(_Gpu(index, handle, uuid, name))
        if not self._gpus:
            self.close()
            raise GpuUnavailable("no NVIDIA GPU on this machine: NVML lists none")

    def __enter__(self) -> Self:
        """Return the open connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Shut NVML down."""
        for state in self._gpm.values():
            for sample in (state.before, state.spare) if isinstance(state, _GpmState) else ():
                self._ask(self._nvml.nvmlGpmSampleFree, sample)
        self._gpm.clear()
        self._ask(self._nvml.nvmlShutdown)

    def read_counters(self, wanted: bool) -> None:  # noqa: FBT001
        """Read GPM or leave it to nsys."""
        self._counters = wanted

    def driver_version(self) -> str | None:
        """Return the version of the driver, such as ``570.86.15``."""
        version: str | None = self._ask(self._nvml.nvmlSystemGetDriverVersion)[0]
        return version

    def confidential_compute(self) -> tuple[bool | None, bool | None, str | None]:
        """Whether the GPUs compute confidentially, whether in the mode that lets tools in, why that is not known."""
        state, why = self._ask(self._nvml.nvmlSystemGetConfComputeState)
        return (None, None, why) if why else (bool(state.ccFeature), bool(state.devToolsMode), None)

    def cuda_version(self) -> str | None:
        """Newest CUDA that the driver's own library serves, such as ``12.4``."""
        number = self._ask(self._nvml.nvmlSystemGetCudaDriverVersion_v2)[0]
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def identity(self) -> list[dict[str, Any]]:
        """Return what does not change while a driver runs, per GPU: UUID, name, bus address, limits, MIG, vGPU."""
        nvml = self._nvml
        questions: dict[str, Callable[[Any], Any]] = {
            "pci_bus_id": lambda h: _text(nvml.nvmlDeviceGetPciInfo(h).busId),
            "compute_capability": lambda h: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(h)),
            "virtualization_mode": lambda h: _virtualization(nvml.nvmlDeviceGetVirtualizationMode(h)),
            "power_limit_enforced_w": lambda h: nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
        }
        found = []
        for gpu in self._gpus:
            entry: dict[str, Any] = {"gpu_index": gpu.index, "gpu_uuid": gpu.uuid, "gpu_name": gpu.name}
            errors: dict[str, str] = {}
            for name, question in questions.items():
                entry[name], why = self._ask(question, gpu.handle)
                if why:
                    errors[name] = why
            entry["mig"] = self._instances(gpu)
            for instance in entry["mig"]:
                del instance["handle"]
            if errors:
                entry["errors"] = errors
            found.append(entry)
        return found

    def sample(self, processes_since_us: int | None = None) -> list[Reading]:
        """Ask every GPU, MIG instance and process once.

        Parameters
        ----------
        processes_since_us
            Per-process utilisation newer than this UTC time in us; None: of the last two seconds.

        Returns
        -------
        list of Reading
            Per GPU: itself, its MIG instances, its processes.
        """
        since_us = time.time_ns() // 1000 - 2_000_000 if processes_since_us is None else processes_since_us
        return [reading for gpu in self._gpus for reading in self._sample_gpu(gpu, since_us)]

    def _sample_gpu(self, gpu: _Gpu, since_us: int) -> Iterator[Reading]:
        nvml, handle = self._nvml, gpu.handle
        began = time.time_ns()
        reading = Reading(began, gpu.index, gpu.uuid, gpu.name)
        clock = {"sm": 1, "memory": 2, "graphics": 0, "video": 3}

        def utilization() -> dict[str, Value]:
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            return {"gpu_utilization_pct": rates.gpu, "memory_utilization_pct": rates.memory}

        def mig() -> dict[str, Value]:
            current, pending = nvml.nvmlDeviceGetMigMode(handle)
            words = {0: "Disabled", 1: "Enabled"}
            return {"mig_mode": words.get(current, str(current)), "mig_mode_pending": words.get(pending, str(pending))}

        questions: list[tuple[tuple[str, ...], Callable[[], dict[str, Value]]]] = [
            (("gpu_utilization_pct", "memory_utilization_pct"), utilization),
            (_MEMORY, lambda: self._memory(handle)),
            (("power_w",), lambda: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000}),
            (("temperature_c",), lambda: {"temperature_c": nvml.nvmlDeviceGetTemperature(handle, 0)}),
            (("pstate",), lambda: {"pstate": _pstate(nvml.nvmlDeviceGetPerformanceState(handle))}),
            (tuple(f"clocks_event_reasons.{name}" for name in ("active", *_REASONS)), lambda: self._reasons(handle)),
            (("compute_mode",), lambda: {"compute_mode": _compute_mode(nvml.nvmlDeviceGetComputeMode(handle))}),
            (("mig_mode", "mig_mode_pending"), mig),
            (
                ("virtualization_mode",),
                lambda: {"virtualization_mode": _virtualization(nvml.nvmlDeviceGetVirtualizationMode(handle))},
            ),
        ]
        for name, kind in clock.items():
            key = f"clock_{name}_hz"
            questions.append(((key,), functools.partial(_clock, nvml, handle, key, kind)))
        gone = None
        for names, question in questions:
            answer, why = (None, gone) if gone else self._ask(question)
            if answer is not None:
                reading.metrics.update(answer)
            else:
                reading.metrics.update(dict.fromkeys(names))
                reading.errors.update(dict.fromkeys(names, why or "NVML_ERROR_UNKNOWN"))
            # A GPU that fell off the bus answers nothing more; each further question could take a driver timeout.
            gone = gone or (why if why in _GONE else None)
        if reading.metrics["virtualization_mode"] == "Host VGPU":
            # Only the host knows how it shares time out among its guests; a guest is refused.
            answer, why = self._ask(self._vgpu_scheduler, handle)
            reading.metrics.update(answer or {"vgpu_scheduler": None})
            if why:
                reading.errors["vgpu_scheduler"] = why
        if gone is None and reading.metrics["mig_mode"] != "Enabled":
            self._add_counters(reading, gpu)
        reading.time_utc_ns = (began + time.time_ns()) // 2
        lists: list[Reading] = []
        if gone is None:
            instances = self._instances(gpu) if reading.metrics["mig_mode"] == "Enabled" else []
            lists = [*self._sample_instances(gpu, instances), *self._processes(gpu, instances, since_us, reading)]
        yield reading
        yield from lists

    def _vgpu_scheduler(self, handle: Any) -> dict[str, Value]:
        state = self._nvml.nvmlDeviceGetVgpuSchedulerState(handle)
        adaptive = state.arrMode == 2
        chosen = state.schedulerParams.vgpuSchedDataWithARR if adaptive else state.schedulerParams.vgpuSchedData
        found: dict[str, Value] = {
            "vgpu_scheduler": _SCHEDULERS.get(state.schedulerPolicy, str(state.schedulerPolicy)),
            "vgpu_adaptive_round_robin": _ROUND_ROBIN.get(state.arrMode, str(state.arrMode)),
            "vgpu_timeslice_ns": chosen.timeslice,
        }
        return {**found, "vgpu_averaging_factor": chosen.avgFactor} if adaptive else found

    def _add_counters(self, reading: Reading, gpu: _Gpu, gi: int | None = None, prefix: str = "") -> None:
        """Add what GPM counted since the call before to a reading; the first call only begins to count."""
        if not self._counters:
            return
        key = (gpu.index, gi)
        if key not in self._gpm:
            self._gpm[key] = self._begin_gpm(gpu, gi)
        state = self._gpm[key]
        if isinstance(state, str):
            return  # this chip has no GPM: DCGM is the way there
        now_ns = time.monotonic_ns()
        if now_ns - state.time_ns < _GPM_GAP_NS:
            return  # a value stands in one sample only: that is of the time since the sample before that had one
        answers: list[tuple[float, str | None]] | None = None
        _, why = self._ask(self._take_gpm, gpu, gi, state.spare)
        if why is None:
            answers, why = self._ask(self._gpm_between, state.before, state.spare)
            state.before, state.spare = state.spare, state.before
            state.time_ns = now_ns
        for place, (_, name, factor) in enumerate(_GPM):
            value, refused = answers[place] if answers else (0.0, why)
            reading.metrics[prefix + name] = None if refused else value * factor
            if refused:
                reading.errors[prefix + name] = refused

    def _begin_gpm(self, gpu: _Gpu, gi: int | None) -> _GpmState | str:
        nvml = self._nvml
        support, why = self._ask(nvml.nvmlGpmQueryDeviceSupport, gpu.handle)
        if why or not support.isSupportedDevice:
            return why or "NVML_ERROR_NOT_SUPPORTED"
        pair, why = self._ask(lambda: (nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()))
        if why is None:
            _, why = self._ask(self._take_gpm, gpu, gi, pair[0])
        return why or _GpmState(pair[0], pair[1], time.monotonic_ns())

    def _take_gpm(self, gpu: _Gpu, gi: int | None, sample: Any) -> None:
        if gi is None:
            self._nvml.nvmlGpmSampleGet(gpu.handle, sample)
        else:
            self._nvml.nvmlGpmMigSampleGet(gpu.handle, gi, sample)

    def _gpm_between(self, before: Any, after: Any) -> list[tuple[float, str | None]]:
        question = self._nvml.c_nvmlGpmMetricsGet_t()
        question.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        question.sample1, question.sample2 = before, after
        question.numMetrics = len(_GPM)
        for place, (number, _, _) in enumerate(_GPM):
            question.metrics[place].metricId = number
        self._nvml.nvmlGpmMetricsGet(question)
        found: list[tuple[float, str | None]] = []
        for place in range(len(_GPM)):
            answer = question.metrics[place]
            value = float(answer.value)
            refused = self._name_of_code(answer.nvmlReturn) if answer.nvmlReturn else None
            # NVML gives not-a-number where two samples hold nothing to divide.
            found.append((value, refused or (None if math.isfinite(value) else "not a number")))
        return found

    def _sample_instances(self, gpu: _Gpu, instances: list[dict[str, Any]]) -> Iterator[Reading]:
        counted: set[int] = set()
        for instance in instances:
            reading = Reading(time.time_ns(), None, instance["uuid"], instance["name"])
            for key in ("mig_gi_id", "mig_ci_id", "sm_count", "mig_gi_slices", "mig_ci_slices"):
                reading.metrics[key] = instance[key]
                if instance[key] is None:
                    reading.errors[key] = instance["errors"].get(key, "NVML_ERROR_UNKNOWN")
            reading.metrics["mig_parent_uuid"] = gpu.uuid
            memory, why = self._ask(self._memory, instance["handle"])
            reading.metrics.update(memory or dict.fromkeys(_MEMORY))
            if why:
                reading.errors.update(dict.fromkeys(_MEMORY, why))
            gi = instance["mig_gi_id"]
            if gi is not None and gi not in counted:
                counted.add(gi)
                # GPM counts GPU instances: of several compute instances in one, no single one has these values.
                shared = sum(other["mig_gi_id"] == gi for other in instances) > 1
                self._add_counters(reading, gpu, gi, "mig_gi_" if shared else "")
            yield reading

    def _instances(self, gpu: _Gpu) -> list[dict[str, Any]]:
        """MIG instances that exist now; holes in NVML's numbering are skipped."""
        nvml = self._nvml
        count, why = self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle)
        found = []
        for index in range(count or 0):
            handle, why = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, index)
            if why is not None:
                continue
            entry: dict[str, Any] = {"handle": handle, "errors": {}}
            questions: dict[str, Callable[[Any], Any]] = {
                "uuid": nvml.nvmlDeviceGetUUID,
                "name": nvml.nvmlDeviceGetName,
                "mig_gi_id": nvml.nvmlDeviceGetGpuInstanceId,
                "mig_ci_id": nvml.nvmlDeviceGetComputeInstanceId,
            }
            for key, question in questions.items():
                entry[key], why = self._ask(question, handle)
                if why:
                    entry["errors"][key] = why
            attributes, why = self._ask(nvml.nvmlDeviceGetAttributes_v2, handle)
            for key, source in (
                ("sm_count", "multiprocessorCount"),
                ("mig_gi_slices", "gpuInstanceSliceCount"),
                ("mig_ci_slices", "computeInstanceSliceCount"),
            ):
                entry[key] = getattr(attributes, source, None)
                if why:
                    entry["errors"][key] = why
            found.append(entry)
        return found

    def _processes(
        self, gpu: _Gpu, instances: list[dict[str, Any]], since_us: int, device: Reading
    ) -> Iterator[Reading]:
        uuids = {(i["mig_gi_id"], i["mig_ci_id"]): (i["uuid"], i["name"]) for i in instances}
        kinds: dict[int, set[str]] = {}
        infos: dict[int, Any] = {}
        for kind, call in (
            ("C", "nvmlDeviceGetComputeRunningProcesses"),
            ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
            ("M+C", "nvmlDeviceGetMPSComputeRunningProcesses"),
        ):
            listed, why = self._ask(self._listed, call, gpu.handle)
            key = {"C": "compute_processes", "G": "graphics_processes", "M+C": "mps_clients"}[kind]
            device.metrics[key] = None if listed is None else len(listed)
            if why:
                device.errors[key] = why
            for info in listed or []:
                kinds.setdefault(info.pid, set()).add(kind)
                infos[info.pid] = info
        shares, why = self._ask(self._nvml.nvmlDeviceGetProcessUtilization, gpu.handle, since_us)
        latest: dict[int, Any] = {}
        for share in shares or []:
            if share.pid not in latest or latest[share.pid].timeStamp <= share.timeStamp:
                latest[share.pid] = share
        now = time.time_ns()
        for pid, info in sorted(infos.items()):
            place = (_instance(info, "gpuInstanceId"), _instance(info, "computeInstanceId"))
            uuid, name = uuids.get(place, (gpu.uuid, gpu.name))
            inside = uuid != gpu.uuid
            type_ = "M+C" if "M+C" in kinds[pid] else "+".join(sorted(kinds[pid]))
            reading = Reading(now, None if inside else gpu.index, uuid, name, pid, self.process_name(pid), type_)
            reading.metrics["process_memory_bytes"] = info.usedGpuMemory
            if info.usedGpuMemory is None:
                reading.errors["process_memory_bytes"] = "NVML_VALUE_NOT_AVAILABLE"
            if place != (None, None):
                reading.metrics.update(mig_gi_id=place[0], mig_ci_id=place[1], mig_parent_uuid=gpu.uuid)
            share = latest.get(pid)
            for metric, source in (
                ("process_sm_pct", "smUtil"),
                ("process_memory_pct", "memUtil"),
                ("process_encoder_pct", "encUtil"),
                ("process_decoder_pct", "decUtil"),
            ):
                reading.metrics[metric] = getattr(share, source, None)
                if share is None:
                    reading.errors[metric] = why or "NVML_ERROR_NOT_FOUND"
            yield reading

    def process_name(self, pid: int) -> str | None:
        """Return the program of a process as NVML knows it, never its arguments; None where it does not."""
        if pid not in self._names:
            name, _ = self._ask(self._nvml.nvmlSystemGetProcessName, pid)
            # Some drivers give the command line; what stands behind a blank may be a secret.
            self._names[pid] = name.split()[0] if name and name.split() else None
            if len(self._names) > 10_000:
                self._names = {pid: self._names[pid]}
        return self._names[pid]

    def _listed(self, call: str, handle: Any) -> list[Any]:
        if call in self._calls:
            return self._calls[call](handle)
        for version in ("_v3", "_v2", ""):
            function = getattr(self._nvml, call + version, None)
            if function is None:
                continue
            try:
                found: list[Any] = function(handle)
            except self._nvml.NVMLError_FunctionNotFound:
                continue
            self._calls[call] = function
            return found
        raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def _memory(self, handle: Any) -> dict[str, Value]:
        try:
            # The second form keeps the driver's own memory apart, as nvidia-smi does.
            info = self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
            reserved = info.reserved
        except (self._nvml.NVMLError_FunctionNotFound, self._nvml.NVMLError_ArgumentVersionMismatch):
            info = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            reserved = None
        found: dict[str, Value] = {
            "memory_total_bytes": info.total,
            "memory_used_bytes": info.used,
            "memory_free_bytes": info.free,
        }
        return found if reserved is None else {**found, "memory_reserved_bytes": reserved}

    def _reasons(self, handle: Any) -> dict[str, Value]:
        try:
            bits = self._nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        except self._nvml.NVMLError_FunctionNotFound:  # its name before R535
            bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        found: dict[str, Value] = {"clocks_event_reasons.active": f"0x{bits:016x}"}
        found.update({f"clocks_event_reasons.{name}": int(bool(bits & bit)) for name, bit in _REASONS.items()})
        return found

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
        """Answer, or None with NVML's name for why not."""
        try:
            return question(*arguments), None
        except self._nvml.NVMLError as error:
            return None, self._name_of(error)
        except UnicodeDecodeError:  # a process name that is not UTF-8
            return None, "not UTF-8"

    def _name_of(self, error: Any) -> str:
        return self._name_of_code(error.value)

    def _name_of_code(self, code: int) -> str:
        for name in dir(self._nvml):
            if name.startswith("NVML_ERROR_") and getattr(self._nvml, name) == code:
                return name
        return f"NVML_ERROR_{code}"


_MEMORY = ("memory_total_bytes", "memory_used_bytes", "memory_free_bytes")


def _binding() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise GpuUnavailable(
            "the Python package nvidia-ml-py is not installed, which NVML needs; run: pip install 'pyanalyze-gpu[nvml]'"
        ) from error


def _unavailable(name: str) -> str:
    if name == "NVML_ERROR_LIBRARY_NOT_FOUND":
        inside = "; in a container, start it with the NVIDIA runtime (--gpus all)" if has_driver() else ""
        return f"no NVIDIA GPU on this machine: the driver's libnvidia-ml.so.1 is not found{inside}"
    if name == "NVML_ERROR_DRIVER_NOT_LOADED":
        return "no NVIDIA GPU is usable: the driver is not loaded (NVML_ERROR_DRIVER_NOT_LOADED); try: modprobe nvidia"
    if name == "NVML_ERROR_LIB_RM_VERSION_MISMATCH":
        return f"NVML does not match the loaded driver ({name}): the driver was updated; reboot, or reload the driver"
    return f"NVML cannot be opened ({name}); check `nvidia-smi` and the kernel log"


def has_driver(root: Path = Path("/")) -> bool:
    """Whether an NVIDIA driver or device shows itself in the file system."""
    return any((root / place).exists() for place in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"))


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0


def _clock(nvml: Any, handle: Any, key: str, kind: int) -> dict[str, Value]:
    return {key: nvml.nvmlDeviceGetClockInfo(handle, kind) * 1_000_000}


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pstate(state: int) -> str:
    return f"P{state}" if state < 16 else "[Unknown]"


def _virtualization(mode: int) -> str:
    return _VIRTUALIZATION.get(mode, str(mode))


def _compute_mode(mode: int) -> str:
    return _COMPUTE_MODES.get(mode, str(mode))


def _instance(info: Any, key: str) -> int | None:
    value = getattr(info, key, None)
    return None if value is None or value == _NO_INSTANCE else int(value)
