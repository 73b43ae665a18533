"""Simulate groups of work that slow each other while they execute at once: an export, and the truth of how much.

Each group is a stream of a process. A kernel has an amount of work, the time that it takes solo; while others execute it
proceeds at one over its factor. Factors of several others add up. Shares no code with the core.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exports import MS, US, kernel, resident, write

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

#: From the end of a kernel to the start of the next in its stream, and between phases.
GAP_NS, PAUSE_NS = 3 * US, 500 * US
#: Time slices of processes, and from the end of one to the start of the next.
SLICE_NS, SWITCH_NS = 2 * MS, 100 * US
FIRST_PID = 41


@dataclass
class Group:
    """A stream: its kernels by name, each with its solo time, and its factor beside each other stream."""

    stream: int
    kernels: Sequence[tuple[str, int]]
    factors: Mapping[int, Sequence[float]]


@dataclass
class Ran:
    """A kernel as it ran, on the clock of its process."""

    group: Group
    kernel: int
    start_ns: float
    end_ns: float
    work_ns: float


@dataclass
class Process:
    """Groups that run in phases."""

    draw: random.Random
    groups: Sequence[Group]
    scatter: float
    ran: list[Ran] = field(default_factory=list)
    now_ns: float = 0
    #: What the second stream added to the time in execution of the first.
    added_ns: dict[tuple[int, int], float] = field(default_factory=dict)

    def run(self, streams: Collection[int], launches: int) -> None:
        """Let groups launch each of their kernels so often, all of them from now on."""
        active = [group for group in self.groups if group.stream in streams]
        queues = {
            group.stream: [
                (place, max(solo * self.draw.gauss(1, self.scatter), 1.0))
                for _ in range(launches)
                for place, (_, solo) in enumerate(group.kernels)
            ]
            for group in active
        }
        starts = {group.stream: self.now_ns + self.draw.uniform(0, GAP_NS) for group in active}
        executing: dict[int, list[Any]] = {}
        while queues or executing:
            for group in active:
                if group.stream in executing or not queues.get(group.stream) or starts[group.stream] > self.now_ns:
                    continue
                place, work = queues[group.stream].pop(0)
                executing[group.stream] = [Ran(group, place, self.now_ns, 0, work), work]
            queues = {stream: queue for stream, queue in queues.items() if queue}
            speeds = {
                stream: 1
                / (1 + sum(one.group.factors[other][one.kernel] - 1 for other in executing if other != stream))
                for stream, (one, _) in executing.items()
            }
            steps = [left / speeds[stream] for stream, (_, left) in executing.items()]
            steps += [starts[stream] - self.now_ns for stream in queues if stream not in executing]
            step = max(min(steps), 0)
            self.now_ns += step
            for stream, other in itertools.permutations(executing, 2):
                one = executing[stream][0]
                added = step * speeds[stream] * (one.group.factors[other][one.kernel] - 1)
                self.added_ns[stream, other] = self.added_ns.get((stream, other), 0) + added
            for stream in list(executing):
                one, left = executing[stream]
                executing[stream][1] = left - step * speeds[stream]
                if executing[stream][1] < 1e-6 * one.work_ns:
                    one.end_ns = self.now_ns
                    self.ran.append(one)
                    del executing[stream]
                    starts[stream] = self.now_ns + GAP_NS
        self.now_ns += PAUSE_NS

    def slowdown(self, stream: int, beside: int | None = None) -> float:
        """Time in execution of a group over what it would take without another group, or without all of them."""
        whole_ns = sum(one.end_ns - one.start_ns for one in self.ran if one.group.stream == stream)
        added = [ns for (victim, other), ns in self.added_ns.items() if victim == stream and beside in (None, other)]
        return whole_ns / (whole_ns - sum(added))


def write_processes(path: Path, processes: Sequence[Process]) -> Path:
    """Write what nsys would have recorded: of several processes each has the device for a time slice in turn."""
    names = sorted({name for process in processes for group in process.groups for name, _ in group.kernels})
    kernels, switches = [], []
    several = len(processes) > 1
    period = len(processes) * (SLICE_NS + SWITCH_NS)
    for place, process in enumerate(processes):
        first = place * (SLICE_NS + SWITCH_NS)

        def at(time_ns: float, first: int = first) -> int:
            slices, rest = divmod(time_ns, SLICE_NS)
            return round(slices * period + first + rest) if several else round(time_ns)

        for one in process.ran:
            number = names.index(one.group.kernels[one.kernel][0]) + 1
            kernels.append(
                kernel(
                    FIRST_PID + place, at(one.start_ns), at(one.end_ns), streamId=one.group.stream, shortName=number,
                    demangledName=number,
                )
            )  # fmt: skip
        for slices in range(int(process.now_ns // SLICE_NS) + 1 if several else 0):
            start = slices * period + first
            switches += resident(FIRST_PID + place, FIRST_PID + place, start, start + SLICE_NS)
    return write(
        path,
        kernels=kernels,
        switches=sorted(switches),
        processes={FIRST_PID + place: f"program-{place}" for place in range(len(processes))},
        kernel_names=names,
    )


def random_process(draw: random.Random, *, groups: int, name: str, scatter: float) -> Process:
    """Groups with one to three kernels each, and factors up to 2.5 beside each other."""
    streams = range(7, 7 + groups)
    made = [
        Group(
            stream,
            kernels := [
                (f"{name}_{stream}_{place}", round(draw.uniform(50, 800) * US)) for place in range(draw.randint(1, 3))
            ],
            {other: [draw.uniform(1.0, 2.5) for _ in kernels] for other in streams if other != stream},
        )
        for stream in streams
    ]
    return Process(draw, made, scatter)
