"""Simulate programs with several streams: an export, and the truth of what each operation waited for.

The host runs a list of steps; the device starts an operation when its stream, its copy engine, the SMs, the events it
waits for and the legacy default stream let it. The last of these is what it waited for. Shares no code with the core.
"""

from __future__ import annotations

import itertools
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exports import US, copy, global_pid, kernel, write

if TYPE_CHECKING:
    from pathlib import Path

PID = 41
#: A launch call, the time from its end to the start on an idle device, and from the end of one operation to the next.
CALL_NS, LATENCY_NS, RELEASE_NS = 5 * US, 3 * US, 1 * US
#: Blocks of `exports.kernel` that fill an A100: 8 of 256 threads and 32 registers on each of 108 SMs.
CAPACITY = 864
#: A gap between two operations up to which launching explains it, and the latency of a launch at most.
LAUNCH_GAP_NS, SHORT_NS = 250 * US, 20 * US
LEGACY = 7


@dataclass
class Ran:
    """An operation as it ran."""

    stream: int
    kind: str
    asked_ns: int
    launched_ns: int
    start_ns: int
    end_ns: int
    waves: float
    reason: str
    late: str
    correlation: int
    graph: bool = False
    cooperative: bool = False
    pageable: bool = False


@dataclass
class Program:
    """A process; times are those of its one host thread."""

    flags: dict[int, int]
    launch_blocking: bool = False
    #: Context of each stream, 1 without one: contexts of a process alternate.
    contexts: dict[int, int] = field(default_factory=dict)
    #: All streams of all contexts are bound to one channel, which the export names.
    one_channel: bool = False
    ran: list[Ran] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    waits: list[dict[str, Any]] = field(default_factory=list)
    now_ns: int = 0
    _done: dict[int, int] = field(default_factory=dict)
    _awaited: dict[int, list[int]] = field(default_factory=dict)
    _held: list[tuple[int, int, str]] = field(default_factory=list)
    _elsewhere: dict[int, int] = field(default_factory=dict)

    def _call(self, name: str, length_ns: int) -> int:
        correlation = len(self.calls) + 1
        self.calls.append(
            {
                "start": self.now_ns, "end": self.now_ns + length_ns, "globalTid": global_pid(PID) + PID,
                "correlationId": correlation, "nameId": name, "returnValue": 0,
            }
        )  # fmt: skip
        self.now_ns += length_ns
        return correlation

    def sleep(self, length_ns: int) -> None:
        """Let the host do something else."""
        self.now_ns += length_ns

    def block(self, length_ns: int) -> None:
        """Allocate memory."""
        self._held.append((self.now_ns, self.now_ns + length_ns, "blocking-call"))
        self._call("cudaMalloc_v3020", length_ns)

    def synchronize(self) -> None:
        """Wait for everything."""
        until = max([self.now_ns + US, *(one.end_ns + 2 * US for one in self.ran)])
        self._held.append((self.now_ns, until, "synchronization"))
        self._call("cudaDeviceSynchronize_v3020", until - self.now_ns)

    def record(self, stream: int, event: int, *, traced: bool = False) -> None:
        """Record an event in a stream; `traced`: nsys traces when the device comes to it."""
        ended = [one.end_ns for one in self.ran if one.stream == stream]
        self._done[event] = max([0, *ended, *(self._done[other] for other in self._awaited.get(stream, []))])
        time = self.now_ns + US if traced else 0
        self._event(self.records, "cudaEventRecord_v3020", stream, event, {"timestamp": time})

    def wait(self, stream: int, event: int) -> None:
        """Let a stream wait for an event."""
        self._awaited.setdefault(stream, []).append(event)
        self._event(self.waits, "cudaStreamWaitEvent_v3020", stream, event, {"start": self.now_ns, "end": self.now_ns})

    def wait_elsewhere(self, stream: int, event: int, until_ns: int) -> None:
        """Let a stream wait for an event that somebody else records: another process, or before the recording."""
        self._elsewhere[stream] = until_ns
        self._event(self.waits, "cudaStreamWaitEvent_v3020", stream, event, {"start": self.now_ns, "end": self.now_ns})

    def run_graph(self, nodes: list[tuple[int, int]]) -> None:
        """Launch a graph of kernels, each after the one before it: (stream, length).

        It is launched to the stream of the first: no other has work of it before that starts.
        """
        asked = self.now_ns
        correlation = self._call("cudaGraphLaunch_v10000", CALL_NS)
        for place, (stream, length_ns) in enumerate(nodes):
            own = [one.end_ns for one in self.ran if one.stream == stream]
            start = max([self.now_ns + LATENCY_NS, *(end + RELEASE_NS for end in own)])
            reason = "launch-latency"
            if place and self.ran[-1].end_ns + RELEASE_NS >= start:
                start, reason = self.ran[-1].end_ns + RELEASE_NS, "graph"
            end = start + length_ns
            launched = self.ran[-place].start_ns if place else self.now_ns
            self.ran.append(
                Ran(stream, "kernel", asked, launched, start, end, 0.1, reason, "", correlation, graph=True)
            )

    def _event(self, rows: list[dict[str, Any]], name: str, stream: int, event: int, more: dict[str, Any]) -> None:
        correlation = self._call(name, US)
        rows.append(
            {
                **more, "contextId": self.contexts.get(stream, 1), "streamId": stream, "correlationId": correlation,
                "globalPid": global_pid(PID), "eventId": event, "eventSyncId": None,
            }
        )  # fmt: skip

    def run(self, stream: int, kind: str, length_ns: int, *, waves: float = 0.1, stall_ns: int = 0) -> None:
        """Launch an operation; `stall_ns`: what nobody records holds it so long.

        `kind`: `kernel`, `cooperative` (a kernel whose blocks all run at once), `to-device`, `to-host`, or
        `pageable-to-device`: its call returns when it has ended.
        """
        pageable, cooperative = kind == "pageable-to-device", kind == "cooperative"
        kind = "to-device" if pageable else "kernel" if cooperative else kind
        name = "cudaLaunchKernel_v7000" if kind == "kernel" else "cudaMemcpyAsync_v3020"
        asked = self.now_ns
        correlation = self._call(name, CALL_NS)
        launched = self.now_ns
        ready = max([launched, *(one.end_ns for one in self.ran if one.stream == stream)])
        limits = [(launched + LATENCY_NS, "launch-latency")]
        limits += [(one.end_ns + RELEASE_NS, "launch-latency") for one in self.ran if one.stream == stream]
        limits += [(self._done[event] + RELEASE_NS, "dependency") for event in self._awaited.pop(stream, [])]
        certain = False
        for other in self.ran:
            if other.stream == stream:
                continue
            held = self.flags[stream] == 1 and self.flags[other.stream] == 3
            held |= self.flags[stream] == 3 and self.flags[other.stream] == 1
            if held:
                limits.append((other.end_ns + RELEASE_NS, "default-stream"))
            apart = self.contexts.get(stream, 1) != self.contexts.get(other.stream, 1)
            if apart and kind == other.kind == "kernel":
                limits.append((other.end_ns + RELEASE_NS, "other-context"))
            if self.one_channel:
                limits.append((other.end_ns + RELEASE_NS, "shared-channel"))
            if cooperative and other.kind == "kernel" and other.start_ns <= ready < other.end_ns:
                limits.append((other.end_ns + RELEASE_NS, "whole-device-launch"))
            if kind == other.kind != "kernel":
                limits.append((other.end_ns + RELEASE_NS, "copy-engine"))
            if kind == other.kind == "kernel" and other.waves > 1 and other.start_ns <= ready:
                # A last wave that is not full takes as long as a full one.
                wave_ns = (other.end_ns - other.start_ns) / math.ceil(other.waves)
                limits.append((int(other.end_ns - wave_ns), "sm-resources"))
                left = (other.end_ns - ready) / (other.end_ns - other.start_ns) * other.waves
                certain |= left > 2 or ready - other.start_ns < wave_ns / 2
            if kind == other.kind == "kernel" and other.waves == 1 and other.start_ns <= ready < other.end_ns:
                limits.append((other.end_ns + RELEASE_NS, "whole-device-launch"))
        if stream in self._elsewhere:
            # Whether the event or something else took so long nobody could tell.
            stall_ns = 0
            limits.append((self._elsewhere.pop(stream), "unknown-dependency"))
        start, reason = max(limits, key=lambda one: one[0])
        if reason == "sm-resources" and not certain:
            # With two waves left or less of every kernel, none of them in its first, nobody may name a reason.
            reason = "unexplained"
        if stall_ns and start - ready <= SHORT_NS:
            # Of a wait for several things the truth would be none.
            start, reason = max(start, ready) + stall_ns, "unexplained"
        asked_for = reason in {"dependency", "default-stream"} and start - RELEASE_NS >= ready
        if start - ready <= SHORT_NS and not asked_for:
            reason = "launch-latency"
        self.ran.append(Ran(stream, kind, asked, launched, start, start + length_ns, waves, reason, "", correlation))
        self.ran[-1].cooperative = cooperative
        self.ran[-1].pageable = pageable
        if pageable and not self.launch_blocking:
            self.ran[-1].launched_ns = start
            self.now_ns = max(self.now_ns, start + length_ns)
            self._held.append((asked, self.now_ns, "blocking-call"))
            self.calls[-1]["end"] = self.now_ns
        if self.launch_blocking:
            # The call returns after the operation: as far as nsys shows, it was launched when it started.
            self.ran[-1].launched_ns = start
            self.now_ns = start + length_ns + 2 * US
            self.calls[-1]["end"] = self.now_ns

    def write(self, path: Path) -> Path:
        """Write what nsys would have recorded."""
        kernels: list[tuple[Ran, dict[str, Any]]] = []
        copies: list[dict[str, Any]] = []
        for one in self.ran:
            place = {"streamId": one.stream, "contextId": self.contexts.get(one.stream, 1)}
            node = {"launchType": 2 if one.cooperative else 1, "graphNodeId": 1 + len(kernels) if one.graph else None}
            if one.kind == "kernel":
                blocks = max(round(one.waves * CAPACITY), 1)
                # Full SMs have no room for a further block.
                kernels.append(
                    (one, kernel(PID, one.start_ns, one.end_ns, gridX=blocks, sharedMemoryExecuted=0, **place, **node))
                )
            else:
                kind = {"copyKind": 1, "srcKind": 0 if one.pageable else 1, "dstKind": 2}
                if one.kind == "to-host":
                    kind = {"copyKind": 2, "srcKind": 2, "dstKind": 1}
                copies.append(copy(PID, one.start_ns, one.end_ns, correlationId=one.correlation, **place, **kind))
        # `write` numbers kernels 1, 2, ... by their place: calls follow, and those of other operations come after.
        new = {one.correlation: number for number, (one, _) in enumerate(kernels, 1)}
        shared = [(new[one.correlation], number) for number, (one, _) in enumerate(kernels, 1) if one.graph]
        free = len(kernels) + 1
        for call in self.calls:
            if call["correlationId"] not in new:
                new[call["correlationId"]], free = free, free + 1
        for rows in (self.calls, copies, self.records, self.waits):
            for row in rows:
                row["correlationId"] = new[row["correlationId"]]
        write(
            path,
            kernels=[row for _, row in kernels],
            copies=copies,
            calls=self.calls,
            records=self.records,
            waits=self.waits,
            streams=[(PID, stream, 0, flag) for stream, flag in self.flags.items()],
            processes={PID: "train"},
            environment={PID: "CUDA_LAUNCH_BLOCKING=1"} if self.launch_blocking else None,
            contexts=[(PID, context) for context in sorted(set(self.contexts.values()) - {1})],
        )
        with closing(sqlite3.connect(path)) as database, database:
            # Nodes of one launch have the correlation id of the launch.
            for launch, number in shared:
                database.execute(
                    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = ? WHERE correlationId = ?", (launch, number)
                )
            if self.one_channel:
                database.execute("ALTER TABLE TARGET_INFO_CUDA_CONTEXT_INFO ADD COLUMN workqueueChannelIds TEXT")
                database.execute("UPDATE TARGET_INFO_CUDA_CONTEXT_INFO SET workqueueChannelIds = '5'")
        return path

    def lost(self) -> dict[str, int]:
        """Lost time of all pairs of streams by reason: both had work, and only one executed."""
        lost: dict[str, int] = {}
        times = sorted({t for one in self.ran for t in (one.launched_ns, one.start_ns, one.end_ns)})
        for begin, end in itertools.pairwise(times):
            has = {one.stream for one in self.ran if one.launched_ns <= begin < one.end_ns}
            does = {one.stream for one in self.ran if one.start_ns <= begin < one.end_ns}
            for waiting in has - does:
                head = min((one for one in self.ran if one.stream == waiting and one.end_ns > begin), key=_start)
                for holding in does:
                    reason = head.reason
                    copies = head.kind != "kernel" and reason == "copy-engine"
                    kernels = any(
                        one.stream == holding and one.kind == "kernel" and one.start_ns <= begin < one.end_ns
                        for one in self.ran
                    )
                    behind = any(
                        one.stream == waiting and one.kind == "kernel" and one.launched_ns <= begin < one.start_ns
                        for one in self.ran
                    )
                    if copies and kernels and behind:
                        reason = "copy-in-front"
                    lost[reason] = lost.get(reason, 0) + end - begin
        return lost

    def consistent(self) -> bool:
        """Whether no kernel came to run on SMs that one launched after it had filled before it was ready.

        Operations are placed as they are launched, which a device does not do: such a program proves nothing.
        """
        kernels = [one for one in self.ran if one.kind == "kernel"]
        for place, one in enumerate(self.ran):
            before = [other.end_ns for other in self.ran[:place] if other.stream == one.stream]
            ready = max([one.launched_ns, *before])
            for other in kernels:
                full = other.waves >= 1 and other.stream != one.stream and other.launched_ns > one.launched_ns
                if one.kind == "kernel" and full and other.start_ns <= ready < other.end_ns:
                    return False
        return True

    def late(self) -> dict[str, int]:
        """Late time of all pairs of streams by reason.

        As long as the operation ran without the other stream, at most what the other had executed.
        """
        late: dict[str, int] = {}
        for one in self.ran:
            # A later node of a graph comes when its graph begins, whenever the host launched that.
            if one.graph and any(other.correlation == one.correlation for other in self.ran[: self.ran.index(one)]):
                continue
            before = [other for other in self.ran if other.stream == one.stream and other.launched_ns < one.launched_ns]
            if any(other.end_ns > one.launched_ns for other in before):
                continue
            since = max((other.end_ns for other in before), default=0)
            for stream in self.flags.keys() - {one.stream}:
                others = [other for other in self.ran if other.stream == stream and other.start_ns < one.launched_ns]
                last = max((other.end_ns for other in others), default=None)
                if last is None or last > one.launched_ns or one.launched_ns - last > LAUNCH_GAP_NS:
                    continue
                beside = sum(
                    max(min(other.end_ns, one.end_ns) - max(other.start_ns, one.start_ns), 0)
                    for other in self.ran
                    if other.stream == stream
                )
                missed = min(
                    sum(max(other.end_ns - max(other.start_ns, since), 0) for other in others),
                    one.end_ns - one.start_ns - beside,
                )
                if missed > 0:
                    reason = self._held_by(max(since, *(other.start_ns for other in others)), one.asked_ns)
                    late[reason] = late.get(reason, 0) + missed
        return late

    def _held_by(self, since: int, asked: int) -> str:
        if self.launch_blocking:
            return "launch-blocking"
        held: dict[str, int] = {}
        for begin, end, why in self._held:
            held[why] = held.get(why, 0) + max(min(end, asked) - max(begin, since), 0)
        why = max(held, key=lambda one: held[one], default="launched-late")
        return why if held and 2 * held[why] >= asked - since > 0 else "launched-late"


def _start(one: Ran) -> int:
    return one.start_ns
