"""Copies, memsets and unified memory of one process: how much, how fast, what of it kept kernels from running."""

from __future__ import annotations

from pydantic import Field

from pyanalyze.results.model import Fraction, Number, Result
from pyanalyze.vocabulary import CopyDirection, HostMemory

__all__ = ["Copies", "CopiesOfDevice", "CopyKind", "Memsets", "Migrations"]

_MEDIAN = "Median size, bytes, the lower one of two; null: not known."
_SMALLEST = "Smallest size, bytes; null: not known."
_LARGEST = "Largest size, bytes; null: not known."


class CopyKind(Result):
    """Copies of one direction from or to one kind of memory of the host."""

    direction: CopyDirection = Field(description="Where from and where to.")
    host_memory: HostMemory | None = Field(
        description="Memory on the host's side; null: none is involved, or nsys did not export it."
    )
    copies: int = Field(ge=0, description="Copies.")
    uncovered: int = Field(
        default=0,
        ge=0,
        description="Copies whose memory traffic over duration is 10 times the memory bandwidth of the device or more: "
        "their records do not cover their execution, and no rate here counts them. 0 also where that bandwidth is not "
        "known.",
    )
    bytes: int = Field(ge=0, description="Bytes.")
    median_bytes: int | None = Field(default=None, ge=0, description=_MEDIAN)
    smallest_bytes: int | None = Field(default=None, ge=0, description=_SMALLEST)
    largest_bytes: int | None = Field(default=None, ge=0, description=_LARGEST)
    large_copies: int | None = Field(
        default=None,
        ge=0,
        description="Copies of at least 1 MiB: those that show what the link can do; null: not known.",
    )
    long_copies: int | None = Field(
        default=None,
        ge=1,
        description="Fewest copies, longest first, whose durations add up to 90 % of all; null: not known.",
    )
    long_share: Fraction | None = Field(
        default=None, description="Their durations over those of all copies of this kind; null: not known."
    )
    time_ns: int = Field(ge=0, description="Union of their intervals, ns.")
    exposed_ns: int = Field(ge=0, description="Of that, the time in which no kernel of the process was in flight, ns.")
    hideable_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of exposed_ns, what kernels of the process could hide at most, ns: all of them for copies to the "
        "device; those that began after the first copy for copies to the host; null: other directions.",
    )
    bytes_per_s: Number = Field(
        description="Bytes copied over the sum of their durations, without those of uncovered copies; null: no "
        "duration. Each counts once: a copy on the device reads and writes it, so that memory traffic is twice that."
    )
    best_bytes_per_s: Number = Field(
        description="Best rate of a copy of this direction of at least 1 MiB from or to memory of any kind by this "
        "process, or the mean rate with one kind of memory if that is higher: what the link can do at least; null: no "
        "such copy."
    )
    best_pinned_bytes_per_s: Number = Field(
        description="The same of pinned memory only; null: no such copy, so that it is not known what pinning brings."
    )


class Memsets(Result):
    """Memory that was set to a value."""

    count: int = Field(ge=0, description="Memsets.")
    bytes: int = Field(ge=0, description="Bytes.")
    median_bytes: int | None = Field(default=None, ge=0, description=_MEDIAN)
    smallest_bytes: int | None = Field(default=None, ge=0, description=_SMALLEST)
    largest_bytes: int | None = Field(default=None, ge=0, description=_LARGEST)
    time_ns: int = Field(ge=0, description="Union of their intervals, ns.")
    exposed_ns: int = Field(ge=0, description="Of that, the time in which no kernel of the process was in flight, ns.")
    uncovered: int = Field(
        default=0,
        ge=0,
        description="Memsets whose bytes over duration are 10 times the memory bandwidth of the device or more: their "
        "records do not cover their execution. 0 also where that bandwidth is not known.",
    )


class Migrations(Result):
    """Pages of unified memory that moved; they have no launch call."""

    to_device: int = Field(ge=0, description="Migrations to the device.")
    to_device_bytes: int = Field(ge=0, description="Bytes of these.")
    to_host: int = Field(ge=0, description="Migrations to the host.")
    to_host_bytes: int = Field(ge=0, description="Bytes of these.")
    time_ns: int = Field(ge=0, description="Union of their intervals, ns.")
    exposed_ns: int = Field(ge=0, description="Of that, the time in which no kernel of the process was in flight, ns.")
    by_page_fault: int | None = Field(description="Caused by a page fault; null: causes were not exported.")
    by_page_fault_ns: int | None = Field(description="Union of the intervals of these, ns; null: not exported.")
    speculative: int | None = Field(
        default=None,
        description="Prefetched by the driver: it moves the pages beside those of a fault as well; null: not exported.",
    )
    faulted_ns: int | None = Field(
        default=None,
        ge=0,
        description="Union of the intervals of those by page faults and of speculative ones, ns; null: not exported.",
    )
    faulted_exposed_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of that, the time in which no kernel of the process was in flight, ns; null: not exported.",
    )
    prefetches: int | None = Field(
        default=None, description="Asked for by the program (cudaMemPrefetchAsync); null: causes were not exported."
    )
    prefetched_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Bytes of prefetches of the program to the device; null: causes were not exported.",
    )
    taken_back_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Of prefetched_bytes, at most what page faults of the host moved back before a kernel started; "
        "addresses are not compared. Null: causes were not exported.",
    )
    evictions: int | None = Field(description="Caused by lack of device memory; null: causes were not exported.")

    @property
    def prefetched_in_vain(self) -> bool:
        """Whether the host took back most of what the program prefetched to the device before a kernel could use it.

        Examples
        --------
        >>> import pyanalyze
        >>> found = pyanalyze.load(capture).analysis.copies.values()
        >>> any(one.migrations is not None and one.migrations.prefetched_in_vain for one in found)
        False
        """
        return 0 < (self.prefetched_bytes or 0) <= 2 * (self.taken_back_bytes or 0)


class CopiesOfDevice(Result):
    """Copies of another device of the same host at the same time."""

    device_id: int = Field(ge=0, description="That device.")
    overlap_ns: int = Field(ge=0, description="Time in which both had a copy from or to the host in flight, ns.")


class Copies(Result):
    """What a process moved to and from one device.

    Source: copy records of the capture. Memory kinds are those of CUPTI (`srcKind`, `dstKind`).
    """

    window_ns: int = Field(ge=0, description="First start to last end of its operations, ns.")
    kinds: list[CopyKind] = Field(description="By direction and memory of the host, most time first.")
    migrations: Migrations | None = Field(description="Unified memory; null: no migration was recorded.")
    memsets: Memsets | None = Field(default=None, description="Memory that was set; null: no memset was recorded.")
    host_ns: int = Field(default=0, ge=0, description="Union of the copies from and to the host, ns.")
    other_devices: list[CopiesOfDevice] = Field(
        default=[],
        description="Devices of the same host whose copies overlap with these for at least half of host_ns: they may "
        "share the link or the memory of the host, which no record shows. Empty where host_ns is below 2 % of "
        "window_ns.",
    )

    @property
    def pageable(self) -> list[CopyKind]:
        """Kinds from or to pageable memory.

        Examples
        --------
        >>> Copies(window_ns=1, kinds=[], migrations=None).pageable
        []
        """
        return [one for one in self.kinds if one.host_memory is HostMemory.PAGEABLE]
