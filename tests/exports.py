"""Write small nsys exports by hand: a case that fits on one screen."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from itertools import cycle, islice, pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

MS = 1_000_000
US = 1_000
#: RESTORE_START and SAVE_END.
RESTORE, SAVE = 8, 7
#: What the driver writes for channels of its own.
DRIVER_PID, DRIVER_CONTEXT = 0xFFFFFF, 0xFFFFFFFF

#: A whole A100 with 40 GB, as an export shows it.
A100 = {
    "id": 0, "cuDevice": 0, "name": "NVIDIA A100-PCIE-40GB", "uuid": "11111111-2222-3333-4444-555555555555",
    "busLocation": "0000:18:00.0", "smCount": 108, "totalMemory": 42_405_855_232, "l2CacheSize": 40 << 20,
    "memoryBandwidth": 1_555_200_000_000, "computeMajor": 8, "computeMinor": 0, "chipName": "GA100",
    "maxWarpsPerSm": 64, "maxBlocksPerSm": 32, "maxThreadsPerBlock": 1024, "maxRegistersPerSm": 65536,
    "maxRegistersPerBlock": 65536, "maxShmemPerSm": 167_936, "maxShmemPerBlock": 49_152,
    "maxShmemPerBlockOptin": 166_912, "clockRate": 1_410_000_000, "asyncEngines": 3,
}  # fmt: skip


def recorded_residency(database: sqlite3.Connection, process: int, window: tuple[int, int]) -> list[tuple[int, int]]:
    """When a context of a process was resident by the switch records of an export, inside a window: SQL, no code of ours."""
    rows = database.execute(
        "SELECT tag, timestamp FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag IN (7, 8) "
        "AND globalPid / 0x1000000 = ? / 0x1000000 ORDER BY timestamp",
        (process,),
    ).fetchall()
    mine = [(since, to) for (tag, since), (after, to) in pairwise(rows) if (tag, after) == (RESTORE, SAVE)]
    first, last = window
    return [(max(since, first), min(to, last)) for since, to in mine if since < last and to > first]


def global_pid(pid: int) -> int:
    """The id that nsys gives a process: machine, virtual machine, pid."""
    return (1 << 48) | (pid << 24)


def kernel(pid: int, start_ns: int, end_ns: int, **changes: Any) -> dict[str, Any]:
    """A kernel of 216 blocks of 256 threads in stream 7."""
    row = {
        "start": start_ns, "end": end_ns, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1,
        "globalPid": global_pid(pid), "demangledName": 1, "shortName": 1, "gridX": 216, "gridY": 1, "gridZ": 1,
        "blockX": 256, "blockY": 1, "blockZ": 1, "registersPerThread": 32, "staticSharedMemory": 0,
        "dynamicSharedMemory": 0, "sharedMemoryExecuted": 8192,
    }  # fmt: skip
    return row | changes


def copy(pid: int, start_ns: int, end_ns: int, **changes: Any) -> dict[str, Any]:
    """A copy of 1 MB of pinned memory to the device in stream 7."""
    row = {
        "start": start_ns, "end": end_ns, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1000,
        "globalPid": global_pid(pid), "bytes": 1_000_000, "copyKind": 1, "srcKind": 1, "dstKind": 2,
    }  # fmt: skip
    return row | changes


def call(
    pid: int, start_ns: int, end_ns: int, correlation: int, name: str = "cudaLaunchKernel_v7000"
) -> dict[str, Any]:
    """A call of the only thread of a process."""
    return {
        "start": start_ns, "end": end_ns, "globalTid": global_pid(pid) + pid, "correlationId": correlation,
        "nameId": name, "returnValue": 0,
    }  # fmt: skip


def nvtx_range(
    pid: int, start_ns: int, end_ns: int | None, text: str, domain: int = 0, kind: int = 59
) -> dict[str, Any]:
    """A range of the only thread of a process; kind 75: the name of a domain."""
    return {
        "start": start_ns, "end": end_ns, "eventType": kind, "text": text, "globalTid": global_pid(pid) + pid,
        "domainId": domain,
    }  # fmt: skip


def resident(pid: int, context: int, start_ns: int, end_ns: int) -> list[tuple[int, int, int, int]]:
    """The two switch records of a residency interval: time, tag, context, pid."""
    return [(start_ns, RESTORE, context, pid), (end_ns, SAVE, context, pid)]


def write(
    path: Path,
    *,
    kernels: Sequence[Mapping[str, Any]] = (),
    switches: Sequence[tuple[int, int, int, int]] = (),
    lost: Sequence[int] = (),
    gpus: Sequence[Mapping[str, Any]] = (A100,),
    processes: Mapping[int, str] | None = None,
    streams: Sequence[tuple[int, int, int] | tuple[int, int, int, int]] = (),
    environment: Mapping[int | None, str] | None = None,
    calls: Sequence[Mapping[str, Any]] = (),
    copies: Sequence[Mapping[str, Any]] = (),
    names: Sequence[str] = (),
    records: Sequence[Mapping[str, Any]] = (),
    waits: Sequence[Mapping[str, Any]] = (),
    contexts: Sequence[tuple[int, int]] = (),
    ranges: Sequence[Mapping[str, Any]] = (),
    host_calls: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    kernel_names: Sequence[str] = ("k",),
    duration_ns: int | None = None,
    epoch_ns: int = 1_790_000_000_000_000_000,
) -> Path:
    """Write an export.

    `switches` get sequence numbers by their place; `lost` are numbers left out before a place. `streams` are (pid,
    stream, priority, flag: 1 without one), `contexts` further (pid, context); `records` and `waits` are rows about CUDA
    events; `ranges` are rows about NVTX, `host_calls` those of further tables. `kernel_names` are the names that kernels have by number, from 1 on. `names` are strings after
    those. `environment` is what each process had, None: all of them. Of `calls`, nameId is the name itself; kernels have
    the correlation ids 1, 2, ...
    """
    texts = list(dict.fromkeys([*names, *(call["nameId"] for call in calls)]))
    numbers, number = [], 0
    for place in range(len(switches)):
        number += 1 + (place in lost)
        numbers.append(number)
    variables = []
    for n, (pid, variable) in enumerate((environment or {}).items()):
        process = f"PROCESS_{n}:" if pid is not None else ""
        if pid is not None:
            variables.append({"name": f"{process}PID", "value": str(pid)})
        variables.append({"name": f"{process}ENVIRONMENT_VARIABLE", "value": variable})
    tables: dict[str, Iterable[Mapping[str, Any]]] = {
        "StringIds": [{"id": n, "value": name} for n, name in enumerate([*kernel_names, *texts], 1)],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.10.1"}],
        "META_DATA_CAPTURE": variables,
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": epoch_ns}],
        "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "node"}],
        "ANALYSIS_DETAILS": [] if duration_ns is None else [{"globalVid": 1 << 48, "duration": duration_ns}],
        "TARGET_INFO_GPU": gpus,
        "PROCESSES": [{"globalPid": global_pid(p), "pid": p, "name": n} for p, n in (processes or {}).items()],
        "TARGET_INFO_CUDA_CONTEXT_INFO": [
            {"nullStreamId": 7, "processId": pid, "deviceId": 0, "contextId": 1}
            for pid in dict.fromkeys(row["globalPid"] >> 24 & 0xFFFFFF for row in (*kernels, *copies))
        ]
        + [{"nullStreamId": 0, "processId": pid, "deviceId": 0, "contextId": context} for pid, context in contexts],
        "TARGET_INFO_CUDA_STREAM": [
            {"streamId": stream, "processId": pid, "contextId": 1, "priority": priority & 0xFFFFFFFF, "flag": (*flag, 1)[0]}
            for pid, stream, priority, *flag in streams
        ],
        "GPU_CONTEXT_SWITCH_EVENTS": [
            {
                "tag": tag, "vmId": 0, "seqNo": n, "contextId": context, "timestamp": at, "globalPid": global_pid(pid),
                "gpuId": 0,
            }
            for n, (at, tag, context, pid) in zip(numbers, switches, strict=True)
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {**call, "nameId": 1 + len(kernel_names) + texts.index(call["nameId"])} for call in calls
        ],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": records,
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": waits,
        "NVTX_EVENTS": ranges,
        **(host_calls or {}),
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        "CUPTI_ACTIVITY_KIND_KERNEL": [{**row, "correlationId": n} for n, row in enumerate(kernels, 1)],
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as database, database:
        for name, found in tables.items():
            rows = list(found)
            if rows:
                columns = ", ".join(f'"{column}"' for column in rows[0])
                database.execute(f"CREATE TABLE {name} ({columns})")
                marks = ", ".join("?" * len(rows[0]))
                database.executemany(f"INSERT INTO {name} VALUES ({marks})", [tuple(row.values()) for row in rows])
    return path


def launched_after_each_other(path: Path, kernels: int, period_us: int) -> Path:
    """Two time-sliced processes; what 7 launches runs for 1000 us, each a period after the one before, and no call waits.

    In us of each period: 7 launches from 0 to 10; 8 is resident until 1000, then the kernel of 7 runs until 2000.
    """
    rounds = [n * period_us * US for n in range(kernels)]
    slices = [slot for t in rounds for slot in ((8, 2, t, t + 1000 * US), (7, 1, t + 1000 * US, t + period_us * US))]
    return write(
        path,
        kernels=[
            *(kernel(7, t + 1000 * US, t + 2000 * US, correlationId=n) for n, t in enumerate(rounds, 1)),
            *(kernel(8, t + 20 * US, t + 990 * US, correlationId=n) for n, t in enumerate(rounds, 101)),
        ],
        calls=[
            *(call(7, t, t + 10 * US, n) for n, t in enumerate(rounds, 1)),
            *(call(8, t, t + 10 * US, n) for n, t in enumerate(rounds, 101)),
        ],
        switches=[row for pid, context, start, end in slices for row in resident(pid, context, start, end)],
    )


def two_of_three_traced(path: Path, *, waits: bool) -> dict[int, int]:
    """Three processes take slices of 2.2 ms in turn, 0.08 ms apart, of which the third one was not traced.

    The first two run kernels of 0.23 ms back to back; or, where the program `waits`, 8 at a time and the next 8 after 0.1
    ms, and yield when they have none. Gives how long each of them was resident.
    """
    slice_ns, gap_ns, kernel_ns = 2_200_000, 80_000, 230_000
    ran: list[tuple[dict[str, Any], int]] = []
    resident_ns = dict.fromkeys((41, 42), 0)
    called, left, count = (dict.fromkeys(resident_ns, 0) for _ in range(3))
    # Of kernels that are not done.
    begun: dict[int, int] = {}
    now = 0
    for pid in islice(cycle((41, 42, None)), 600):
        until = now + slice_ns
        if pid is None:
            now = until + gap_ns
            continue
        since = now
        while now < until and called[pid] <= now:
            if pid not in begun:
                begun[pid], left[pid] = now, kernel_ns
            part = min(left[pid], until - now)
            now, left[pid] = now + part, left[pid] - part
            if not left[pid]:
                count[pid] += 1
                ran.append((kernel(pid, begun[pid], now), called[pid]))
                called[pid] = now + 100_000 if waits and count[pid] % 8 == 0 else max(begun[pid], called[pid] + 5_000)
                del begun[pid]
        if now > since:
            resident_ns[pid] += now - since
            now += gap_ns
    ran.sort(key=lambda one: one[0]["start"])
    calls = [call(row["globalPid"] >> 24 & 0xFFFFFF, at, at + 4_000, n) for n, (row, at) in enumerate(ran, 1)]
    write(path, kernels=[row for row, _ in ran], calls=sorted(calls, key=lambda row: row["start"]))
    return {pid: ns * 1000 // now for pid, ns in resident_ns.items()}


def with_all_switch_records(path: Path, made: Path) -> Path:
    """The same recording as if nsys had collected no other switch records than those that its export holds."""
    shutil.copyfile(path, made)
    with closing(sqlite3.connect(made)) as database, database:
        (held,) = database.execute("SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS").fetchone()
        said = "Number of GPU context switch events collected: "
        changed = database.execute(
            "UPDATE DIAGNOSTIC_EVENT SET text = ? || ? || '.' WHERE text LIKE ? || '%'", (said, held, said)
        )
        assert changed.rowcount == 1
    return made
