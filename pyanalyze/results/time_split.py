"""Where the time of one process went, by what it had on the GPU: the largest part is what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from pyanalyze.results.collectives import CollectiveWaits
from pyanalyze.results.model import Fraction, Number, Result, Text
from pyanalyze.tables.library_kernels import Library
from pyanalyze.vocabulary import NAMED_SHARE, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "READS_OFTEN",
    "WAITS_OFTEN",
    "CallTime",
    "CallsBefore",
    "CodeLoading",
    "CpuSamples",
    "GraphWaits",
    "HostActivity",
    "HostKind",
    "HostPart",
    "LaunchPhases",
    "LaunchWaits",
    "Limit",
    "LongestGap",
    "MpiCalls",
    "MpiPattern",
    "RangePhase",
    "ReadBacks",
    "SampledFunction",
    "SyncGaps",
    "TimeSplit",
    "UnitPauses",
    "WaitsFor",
]


class Limit(Word):
    """What limits a process: one answer for each, the largest part of its time."""

    KERNELS = "kernels"
    COPIES = "copies"
    WAITING = "waiting"
    LAUNCHES = "launches"
    API_CALLS = "api-calls"
    HOST = "host"


class HostKind(Word):
    """What a host thread is recorded to be in."""

    MPI = "mpi"
    VIDEO = "video"
    OS = "os"
    RANGE = "range"


class WaitsFor(Word):
    """What a call of the C library waits for."""

    INPUT = "input"
    PEER = "peer"
    SLEEP = "sleep"
    LOCK = "lock"
    FILE = "file"


#: Functions of the C library that wait, by what they wait for: their time is no code of the program that is slow.
#: `read` and `fread` may read a pipe as well: they count as reading a file, which the program can do less of.
_WAITS_OF: Final[Mapping[WaitsFor, str]] = {
    WaitsFor.INPUT: "getc getchar fgetc fgetwc getwc fgets fgetws gets getline getdelim scanf fscanf",
    WaitsFor.PEER: "accept accept4 recv recvfrom recvmsg recvmmsg poll ppoll select pselect epoll_wait epoll_pwait "
    "epoll_pwait2 wait waitpid waitid wait3 wait4",
    WaitsFor.SLEEP: "sleep usleep nanosleep clock_nanosleep pause",
    WaitsFor.LOCK: "futex pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait pthread_mutex_lock "
    "pthread_mutex_timedlock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_barrier_wait pthread_join "
    "sem_wait sem_timedwait sem_clockwait flock",
    WaitsFor.FILE: "read readv pread pread64 preadv fread fsync fdatasync",
}
_WAITS: Final = {name: what for what, names in _WAITS_OF.items() for name in names.split()}
#: What input, another process or a clock ends. Locks and files are the program's own.
_FROM_OUTSIDE = frozenset({WaitsFor.INPUT, WaitsFor.PEER, WaitsFor.SLEEP})


class MpiPattern(Word):
    """How long calls of one MPI function take: what that leaves as their cause."""

    SET_UP = "set-up"
    REGULAR = "regular"
    SCATTERED = "scattered"
    FEW = "few"


#: Calls up to which they show no pattern.
_FEW_CALLS = 20
#: Of regular calls p90 is at most so many times p10.
_REGULAR = 2
#: Part of the host's time from which on one gap, or what follows the last launch, is what there is to say of it.
_MOST_OF_HOST = 0.5
#: Part of it from which on that gap is all there is to say of it.
_ALL_OF_HOST = 0.99
#: Part of a process's operations up to which a gap is at its start.
_AT_START = 0.1
#: Part of launches behind which the host waits, from which on it seldom launches ahead: at most two kernels per wait.
WAITS_OFTEN = 0.5
#: Read-backs per launch from which on they set the pace of a loop: ten launch calls of some 4 us take longer than one.
READS_OFTEN = 0.1
#: Operations below which, where none is a kernel, the time between the first and the last is that of one or two gaps:
#: any call that happened to stand there would limit the process.
_FEW_OPERATIONS = 5
#: Part by which durations have to differ from the time in flight, so that it is said.
_OVERLAP = 0.05


class LongestGap(Result):
    """The longest time between two operations of a tenant."""

    start_ns: int = Field(description="End of all operations before it, ns from the origin.")
    end_ns: int = Field(description="Start of the next operation, ns from the origin.")
    operations_before: int = Field(ge=1, description="Kernels, copies and graphs before it.")
    operations: int = Field(ge=2, description="All kernels, copies and graphs of the tenant.")
    host_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of it, what counts as host_ns: no CUDA call ran, and what ends it was not launched. Null: calls "
        "were not read.",
    )
    after_ns: int | None = Field(
        default=None, ge=0, description="From its end to the end of the last operation of the tenant, ns."
    )

    @property
    def of_host_ns(self) -> int:
        """Its part of the host's time: all of it where calls were not read.

        Examples
        --------
        >>> one = LongestGap(start_ns=0, end_ns=9, operations_before=3, operations=500)
        >>> one.of_host_ns, one.model_copy(update={"host_ns": 7}).of_host_ns
        (9, 7)
        """
        return self.end_ns - self.start_ns if self.host_ns is None else self.host_ns

    @property
    def at_start(self) -> bool:
        """Whether most of the work comes after it.

        Examples
        --------
        >>> one = LongestGap(start_ns=0, end_ns=9, operations_before=3, operations=500)
        >>> one.at_start, one.model_copy(update={"operations_before": 100}).at_start
        (True, False)
        """
        return self.operations_before <= _AT_START * self.operations


class HostPart(Result):
    """Time of the host in calls of one function, or in one NVTX range."""

    kind: HostKind = Field(
        description="A call of MPI, of the video codec SDK, of the C library (`os`), or the innermost NVTX range."
    )
    name: Text | None = Field(description="Function, or name of the range; null: it has none. Hostile text.")
    ns: int = Field(ge=0, description="How much, ns.")
    share: Fraction = Field(description="The same over host_ns.")
    range: Text | None = Field(
        description="Innermost NVTX range that most of these calls' time in gaps above 250 us lay in; null: none. "
        "Hostile text."
    )

    @property
    def waits_for(self) -> WaitsFor | None:
        """What these calls wait for; None: they are no calls of the C library that are known to wait.

        Variants such as `fgets_unlocked` wait as the function that they are named after.

        Examples
        --------
        >>> one = HostPart(kind="os", name="getc", ns=9, share=1.0, range=None)
        >>> [str(one.model_copy(update={"name": name}).waits_for) for name in ("getc", "fgets_unlocked", "mmap")]
        ['input', 'input', 'None']
        """
        if self.kind is not HostKind.OS or self.name is None:
            return None
        return _WAITS.get(self.name.removesuffix("_unlocked"))

    @property
    def from_outside(self) -> bool:
        """Whether no code of the program shortens it: input, another process, the network, or a sleep."""
        return self.waits_for in _FROM_OUTSIDE


class MpiCalls(Result):
    """How long the calls of one MPI function took, of those within the time of the tenant.

    Where ranks come late, by now this and now that time, calls scatter. Connections are made once, in the first calls.
    """

    name: Text = Field(description="Function. Hostile text.")
    calls: int = Field(ge=1, description="How many calls.")
    first_calls: int = Field(
        ge=0, description="Calls before the first that takes at most ten times the median of all: set-up."
    )
    first_ns: int = Field(ge=0, description="Sum of these, ns.")
    other_ns: int = Field(ge=0, description="Sum of the others, ns.")
    p10_ns: int = Field(ge=0, description="p10 of the others, ns.")
    p90_ns: int = Field(ge=0, description="p90 of the others, ns.")
    longest_ns: int = Field(ge=0, description="The longest of the others, ns.")

    @property
    def pattern(self) -> MpiPattern:
        """What their lengths say: nothing with few calls, and one rank cannot tell who is late.

        Calls are regular where p90 is at most twice p10, and no few long ones make the mean longer than p90.

        Examples
        --------
        >>> calls = {"name": "MPI_Wait", "calls": 104, "first_calls": 4, "p10_ns": 8, "p90_ns": 12, "longest_ns": 99}
        >>> for first_ns, other_ns in ((900, 1000), (1100, 1000), (0, 1300)):
        ...     print(MpiCalls(first_ns=first_ns, other_ns=other_ns, **calls).pattern)
        regular
        set-up
        scattered
        """
        others = self.calls - self.first_calls
        if others < _FEW_CALLS:
            return MpiPattern.FEW
        if self.first_ns > self.other_ns:
            return MpiPattern.SET_UP
        even = self.p90_ns <= _REGULAR * self.p10_ns and self.other_ns <= others * self.p90_ns
        return MpiPattern.REGULAR if even else MpiPattern.SCATTERED


class SampledFunction(Result):
    """CPU samples in one function."""

    function: Text | None = Field(
        description="The innermost function of their call chains; null: its file has no symbol for it. Hostile text."
    )
    module: Text | None = Field(
        description="Name of the file that has its code; null: no call chain was recorded. Hostile text."
    )
    samples: int = Field(ge=1, description="How many.")


class CpuSamples(Result):
    """Where a program was when nsys sampled its threads that ran on a CPU: a thread that waits has no samples."""

    samples: int = Field(ge=1, description="All samples.")
    functions: list[SampledFunction] = Field(description="Those with most, at most 8, most first.")


class HostActivity(Result):
    """What the host did in its part of the time. The times of kinds and `nothing_ns` add up to `host_ns`.

    Source: records of MPI, of video codecs, of the C library and of NVTX. A call counts before a range, one of MPI or a
    video codec before one of the C library. The thread that launches what comes next decides; where nothing of it is
    recorded, another thread of the process does, but not by calls of the C library.
    """

    recorded: list[HostKind] = Field(description="What was recorded of threads of the process at all.")
    mpi_ns: int = Field(ge=0, description="In calls of MPI, ns.")
    video_ns: int = Field(ge=0, description="In calls of the video codec SDK, ns.")
    os_ns: int = Field(ge=0, description="In calls of the C library, ns.")
    range_ns: int = Field(ge=0, description="In NVTX ranges, and in no such call, ns.")
    nothing_ns: int = Field(ge=0, description="In nothing that is recorded, ns.")
    parts: list[HostPart] = Field(description="The largest, at most 8, largest first.")
    mpi_calls: MpiCalls | None = Field(
        default=None, description="The MPI function with most time, where most time is in calls of MPI; else null."
    )
    cpu_samples: CpuSamples | None = Field(
        default=None,
        description="CPU samples in the host's part of gaps above 250 us, of the thread that launches what comes next, "
        "or of all threads where that is not known; null: none.",
    )

    def kind_ns(self, kind: HostKind) -> int:
        """Nanoseconds of one kind.

        Examples
        --------
        >>> kinds = {"mpi_ns": 4, "video_ns": 0, "os_ns": 3, "range_ns": 2, "nothing_ns": 1}
        >>> HostActivity(recorded=[], parts=[], **kinds).kind_ns(HostKind.OS)
        3
        """
        return {
            HostKind.MPI: self.mpi_ns,
            HostKind.VIDEO: self.video_ns,
            HostKind.OS: self.os_ns,
            HostKind.RANGE: self.range_ns,
        }[kind]

    @property
    def outside_ns(self) -> int:
        """Time in the listed calls that wait for input, another process, the network or a clock.

        Examples
        --------
        >>> parts = [HostPart(kind="os", name=name, ns=5, share=0.5, range=None) for name in ("getc", "read")]
        >>> kinds = {"mpi_ns": 0, "video_ns": 0, "os_ns": 8, "range_ns": 0, "nothing_ns": 1}
        >>> HostActivity(recorded=[], parts=parts, **kinds).outside_ns
        5
        """
        return sum(part.ns for part in self.parts if part.from_outside)

    @property
    def longest_outside(self) -> HostPart | None:
        """The function that waited longest for input, another process, the network or a clock; None: not for long.

        Examples
        --------
        >>> wait = HostPart(kind="os", name="getc", ns=5, share=0.5, range=None)
        >>> kinds = {"mpi_ns": 0, "video_ns": 0, "os_ns": 8, "range_ns": 0, "nothing_ns": 2}
        >>> HostActivity(recorded=[], parts=[wait], **kinds).longest_outside.name
        'getc'
        """
        return next((part for part in self.parts if part.from_outside and part.share >= NAMED_SHARE), None)

    @property
    def longest_inside(self) -> HostPart | None:
        """The largest part that is no such wait; None: there is none of note.

        Examples
        --------
        >>> read = HostPart(kind="os", name="read", ns=5, share=0.5, range=None)
        >>> kinds = {"mpi_ns": 0, "video_ns": 0, "os_ns": 8, "range_ns": 0, "nothing_ns": 2}
        >>> HostActivity(recorded=[], parts=[read], **kinds).longest_inside.name
        'read'
        """
        return next((part for part in self.parts if not part.from_outside and part.share >= NAMED_SHARE), None)

    @property
    def most(self) -> HostPart | None:
        """The largest part of the kind that has most time; None: most time is in nothing recorded.

        Examples
        --------
        >>> kinds = {"mpi_ns": 4, "video_ns": 0, "os_ns": 3, "range_ns": 2, "nothing_ns": 1}
        >>> HostActivity(recorded=[], parts=[], **kinds).most is None
        True
        """
        kind = max(HostKind, key=self.kind_ns)
        return None if self.kind_ns(kind) < self.nothing_ns else next((p for p in self.parts if p.kind is kind), None)


class LaunchWaits(Result):
    """How often a thread that launched waited for the GPU before it launched again."""

    launches: int = Field(ge=1, description="Calls that launched kernels or graphs of the tenant on this device.")
    waited: int = Field(
        ge=0,
        description="Those behind which the same thread synchronised before its next launch: streams or the device.",
    )
    call: Text | None = Field(description="The function that most of these waited in; null: none waited.")

    @property
    def often(self) -> bool:
        """Whether the host waits about once per launch, so that the GPU has nothing queued.

        Examples
        --------
        >>> one = LaunchWaits(launches=4, waited=2, call="cudaDeviceSynchronize")
        >>> one.often, one.model_copy(update={"waited": 1}).often
        (True, False)
        """
        return self.call is not None and self.waited >= WAITS_OFTEN * self.launches


class SyncGaps(Result):
    """Gaps in which a call that synchronises returned with nothing queued: the GPU idles until the host launches again.

    Source: the thread that launched what ends the gap was in that call when the last operation ended, at most 50 us
    apart (clocks), and launched nothing in between.
    """

    call: Text = Field(description="The function that returned in most of them.")
    short_gaps: int = Field(ge=0, description="Gaps of at most 250 us.")
    launches_ns: int = Field(
        ge=0, description="Time of these, from the return of the call to that of the launch: a part of launches_ns, ns."
    )
    short_gaps_ns: int | None = Field(
        default=None,
        ge=0,
        description="Time of these from the end of the last operation to the start of the next, ns; null: an older "
        "report.",
    )
    long_gaps: int = Field(ge=0, description="Longer gaps.")
    host_ns: int = Field(
        ge=0, description="Time of these after the return in which no CUDA call ran: a part of host_ns, ns."
    )
    long_gaps_ns: int | None = Field(
        default=None, ge=0, description="As short_gaps_ns, of the longer gaps, ns; null: an older report."
    )
    long_host_median_ns: int | None = Field(
        default=None,
        ge=0,
        description="Median over the longer gaps of the time after the return in which no CUDA call ran, ns; null: "
        "there are none, or an older report.",
    )


class CallTime(Result):
    """Time in calls of one function while nothing of the tenant was in flight."""

    call: Text = Field(description="The function. Hostile text.")
    ns: int = Field(ge=0, description="How much, ns.")
    count: int = Field(ge=1, description="How many such calls.")


class LoadingRecords(Result):
    """What CUPTI recorded inside calls that load code; it names what the driver did there."""

    loaded_ns: int = Field(ge=0, description="Time in which modules or functions were loaded, ns.")
    compiled_ns: int = Field(ge=0, description="Time in which the JIT compiler of the driver ran, ns.")


class CodeLoading(Result):
    """CUDA calls that load code, while nothing of the tenant was in flight; a first launch loads its kernel as well."""

    ns: int = Field(ge=0, description="Union of their intervals: a part of api_calls_ns, ns.")
    calls: list[CallTime] = Field(description="The functions with 1 % of it or more, most first.")
    recorded: LoadingRecords | None = Field(
        default=None, description="What they did there, as recorded; null: the capture does not say."
    )


class GraphWaits(Result):
    """Launched work that waited in gaps of at most 250 us, by how it was launched; of a tenant that launches graphs."""

    one_by_one: int = Field(ge=0, description="Operations launched one by one that waited so.")
    one_by_one_ns: int = Field(ge=0, description="Their wait, ns.")
    graphs: int = Field(ge=0, description="Launches of graphs whose first operation waited so.")
    graphs_ns: int = Field(ge=0, description="Their wait, ns.")
    later_nodes: int = Field(ge=0, description="Later operations of graphs that waited so.")
    later_nodes_ns: int = Field(ge=0, description="Their wait: start latency and edges inside graphs, ns.")

    @property
    def one_by_one_most(self) -> bool:
        """Whether most of the wait is before operations that were launched one by one.

        Examples
        --------
        >>> waits = {"graphs": 1, "graphs_ns": 3, "later_nodes": 0, "later_nodes_ns": 0}
        >>> GraphWaits(one_by_one=1, one_by_one_ns=4, **waits).one_by_one_most
        True
        """
        return self.one_by_one_ns > self.graphs_ns + self.later_nodes_ns

    @property
    def later_nodes_most(self) -> bool:
        """Whether most of the wait is inside graphs.

        Examples
        --------
        >>> waits = {"one_by_one": 1, "one_by_one_ns": 4, "graphs": 1, "graphs_ns": 3}
        >>> GraphWaits(later_nodes=2, later_nodes_ns=5, **waits).later_nodes_most
        False
        """
        return self.later_nodes_ns > self.one_by_one_ns + self.graphs_ns


#: Part of the time from which on a phase of it is one of its own.
LEAST_PHASE: Final = 0.1


class LaunchPhases(Result):
    """Kernels that were launched one by one and graphs, where all of the one ended before the other began."""

    graphs_first: bool = Field(description="The graphs ran first.")
    kernels: int = Field(ge=1, description="Kernels launched one by one.")
    kernels_ns: int = Field(ge=0, description="First start to last end of these, ns.")
    graphs: int = Field(ge=1, description="Launches of graphs with kernels.")
    graphs_ns: int = Field(ge=0, description="First start to last end of their kernels, ns.")
    second_from_ns: int = Field(description="Start of the second phase, ns.")


class RangePhase(Result):
    """A long NVTX range of a process, and what filled it."""

    name: Text = Field(description="Its text.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    kernels_share: Fraction = Field(description="Part of it in which kernels or whole graphs were in flight.")
    mpi_share: Fraction = Field(description="Part of it in which a call of MPI ran, on any thread.")


class UnitPauses(Result):
    """NVTX ranges of one name that hold most of the work of a process, where most of its host's time lies between them.

    It may wait for the next request, be paced, or prepare what comes next: records of ranges do not tell which.
    """

    name: Text = Field(description="Their text, with # for numbers. Hostile text.")
    units: int = Field(ge=1, description="Ranges that repeat, one after the other.")
    unit_median_ns: int = Field(ge=0, description="Median length of a range, ns.")
    host_ns: int = Field(ge=0, description="Of host_ns, what lies between two of these ranges, ns.")
    pauses: int = Field(ge=1, description="Times between two ranges in which such time lies.")
    median_ns: int = Field(ge=0, description="Median of that time of one pause, ns.")


class ReadBacks(Result):
    """Small copies to the host for which a thread waited before it launched again, such as the condition of a loop.

    Source: copies of at most 1 KiB whose call returned after they had ended, or whose thread synchronised until then
    before it launched again. Of several between two launches of the thread, one is counted.
    """

    launches: int = Field(ge=1, description="Calls that launched kernels or graphs of the tenant on this device.")
    count: int = Field(ge=1, description="Read-backs, each followed by a launch of the same thread.")
    largest_bytes: int = Field(ge=0, description="The largest of their copies, bytes.")
    exposed_ns: int = Field(
        ge=0, description="Time of their copies in which no kernel of the process was in flight, ns."
    )
    call: Text | None = Field(
        description="The function in which the thread waited for most of them; null: calls have no name."
    )

    @property
    def often(self) -> bool:
        """Whether they come about once per iteration of a loop of launches.

        Examples
        --------
        >>> one = ReadBacks(launches=210, count=21, largest_bytes=4, exposed_ns=0, call="cudaMemcpy")
        >>> one.often, one.model_copy(update={"launches": 211}).often
        (True, False)
        """
        return self.count > _FEW_CALLS and self.count >= READS_OFTEN * self.launches


class CallsBefore(Result):
    """CUDA calls of a process before its first operation on any device, such as those that make its context."""

    ns: int = Field(ge=0, description="Union of their intervals up to that operation, ns.")
    call: Text | None = Field(description="The function with most of it; null: calls have no name. Hostile text.")
    call_ns: int = Field(ge=0, description="That time of it, ns.")
    first_ns: int | None = Field(
        default=None,
        ge=0,
        description="Time of the first call of the process that needs a context, where that is one of this function "
        "and half of ns or more: it initialises CUDA and creates the context. Else null.",
    )
    loading_ns: int = Field(
        default=0,
        ge=0,
        description="Union of the calls that load code, or may, without one that creates the context; a part of ns.",
    )
    recorded: LoadingRecords | None = Field(
        default=None, description="What these calls did, as recorded; null: the capture does not say."
    )
    devices: int = Field(default=1, ge=1, description="Devices that the process had operations on.")
    switched_out: int | None = Field(
        default=None,
        ge=1,
        description="How often its context was switched out during such calls, and another one was resident before it "
        "was again. Null: switch records do not show it, or it was for less than 2 % of ns.",
    )
    switched_out_ns: int | None = Field(
        default=None,
        ge=0,
        description="Sum of the time until its context was resident again, ns. It had work for the GPU at the end of "
        "each such time at the latest: it may have waited for a time slice for all of it. Null: as there.",
    )
    cpu_samples: CpuSamples | None = Field(
        default=None,
        description="CPU samples of all its threads up to that operation, where that time is longer than that of its "
        "operations; else, or without any, null.",
    )


class UploadWaits(Result):
    """Small copies of pageable memory to the device for which a thread waited, and for all it had launched before.

    Source: copies of at most 64 KiB whose thread synchronised in its next call, or whose call was no asynchronous one,
    and waited until the copy had ended.
    """

    count: int = Field(ge=1, description="Such copies.")
    largest_bytes: int = Field(ge=0, description="The largest of them, bytes.")
    waited_ns: int = Field(ge=0, description="Sum of these waits, without the time of the copies, ns.")
    idle_ns: int = Field(
        ge=0, description="Time from the ends of these copies to the next operation, with nothing in flight, ns."
    )
    call: Text | None = Field(description="The function that most of them waited in; null: calls have no name.")


class TimeSplit(Result):
    """Time of a tenant from its first to its last operation on the device. The parts add up to `window_ns`.

    Source: kernel, copy and API records of the capture. What a kernel waits for while it is in flight counts as kernel.
    """

    limit: Limit = Field(description="The largest part.")
    start_ns: int | None = Field(
        default=None, description="First start of its operations, ns from the origin; null: not known."
    )
    window_ns: int = Field(ge=0, description="First start to last end of its operations, ns.")
    kernels_ns: int = Field(ge=0, description="Kernels or whole graphs were in flight.")
    copies_ns: int = Field(ge=0, description="Copies or memsets were in flight, and no kernel.")
    waiting_ns: int | None = Field(
        default=None,
        ge=0,
        description="Nothing was in flight, and what ran next was launched and had not started, whatever call the host "
        "was in. Null: calls were not read, or no launch is known by its correlation id.",
    )
    waiting_short_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of waiting_ns, in gaps of at most 250 us: start latency, and dependencies between operations. "
        "Null: as there.",
    )
    launches_ns: int = Field(
        ge=0, description="Nothing was in flight, in gaps of at most 250 us, less waiting_ns: launching."
    )
    api_calls_ns: int | None = Field(
        ge=0,
        description="Nothing was in flight while a CUDA call ran, less waiting_ns: in longer gaps, launches that load "
        "code too; in gaps of at most 250 us, calls that are no launch, not asynchronous and no event record or "
        "wait of a stream, such as synchronous copies. Null: not read, or not recorded.",
    )
    host_ns: int = Field(
        ge=0,
        description="Nothing was in flight, and no CUDA call is known to have run, less waiting_ns: in longer gaps, "
        "and in shorter ones while the thread that launches was in a call of MPI or a video codec. API calls are read "
        "where longer gaps are 1 % of the time or more, or shorter ones 2 %.",
    )
    api_call: Text | None = Field(description="The call with most of api_calls_ns; null: none.")
    api_call_ns: int = Field(ge=0, description="That time of it.")
    api_call_count: int = Field(ge=0, description="How many such calls ran then.")
    code_loading: CodeLoading | None = Field(
        default=None,
        description="Null: api_calls_ns is less than 2 % of the time, or no call that loads code ran then.",
    )
    top_kernel: Text | None = Field(
        description="Kernel name with most time; where kernels overlap, the one that was in flight without any other "
        "for longest. Null: only whole graphs. Hostile text."
    )
    top_kernel_ns: int = Field(ge=0, description="Sum of its durations.")
    top_kernel_kinds: int = Field(
        ge=0, description="Full names that it has: 1, as a name tells its kernel from the others of the session."
    )
    top_kernel_share: Number = Field(description="The same over the durations of all its kernels; null: no kernels.")
    top_kernel_library: Library | None = Field(
        default=None, description="The closed library that it is of, told by its name; null: none that is known."
    )
    top_kernel_equals: list[Text] = Field(
        default_factory=list,
        description="Other kernels, at most 3, whose share has the same three digits. Hostile text.",
    )
    top_kernel_launches: int = Field(default=0, ge=0, description="How often it was launched.")
    top_kernel_configurations: int = Field(
        default=0, ge=0, description="Launch configurations that it has: rows of kernel_occupancy."
    )
    shortest_kernel_ns: int | None = Field(
        default=None,
        ge=0,
        description="Mean duration of the shortest launch configuration of the tenant, ns; null: no kernels.",
    )

    graphs_ns: int = Field(
        default=0, ge=0, description="Whole graphs, whose kernels are not known, were in flight, beside kernels or not."
    )
    top_kernel_only_ns: int | None = Field(
        default=None,
        ge=0,
        description="Time in which nothing else of the tenant was in flight, where kernels overlap; else null.",
    )
    top_kernel_faulting_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of the time in which top_kernel was in flight, that in which migrations of unified memory by page "
        "faults, or speculative ones, were in flight as well. Null: none were recorded, or causes were not exported.",
    )
    host_activity: HostActivity | None = Field(
        default=None,
        description="What the host did in host_ns; null: neither calls of MPI, video codecs or the C library nor NVTX "
        "ranges of the process were recorded, or host_ns is less than 1 % of the time.",
    )
    host_after_ns: int | None = Field(
        default=None,
        ge=0,
        description="Of host_ns, what lies after the last operation that was launched: only migrations of unified "
        "memory followed, and no launch was late. Null: host_ns is less than 2 % of the time.",
    )
    longest_gap: LongestGap | None = Field(default=None, description="Where the host is the limit; else null.")
    calls_before: CallsBefore | None = Field(
        default=None,
        description="Outside of window_ns. Null: less than 2 % of window_ns, calls were not recorded, or only a part "
        "of the capture was looked at.",
    )
    unit_pauses: UnitPauses | None = Field(
        default=None,
        description="What is looked at from 2 % of the time on is then from 2 % of the time without these pauses on. "
        "Null: the host is not the limit, or most of its time does not lie in pauses between NVTX ranges that repeat "
        "and hold half of the operations.",
    )
    launch_waits: LaunchWaits | None = Field(
        default=None,
        description="Null: launches_ns is less than 2 % of the time, the process synchronises less than once per two "
        "launches, or no launch call is known by its correlation id.",
    )
    sync_gaps: SyncGaps | None = Field(
        default=None,
        description="Null: launches_ns and host_ns are less than 2 % of the time each, or there is no such gap.",
    )
    read_backs: ReadBacks | None = Field(
        default=None,
        description="Null: copies_ns and api_calls_ns are less than 2 % of the time each, there is less than one per "
        "ten launches, or no call is known by its correlation id.",
    )

    upload_waits: UploadWaits | None = Field(
        default=None,
        description="Null: launches_ns, api_calls_ns and host_ns are less than 2 % of the time together, calls were "
        "not read, or there is none.",
    )
    collective_waits: CollectiveWaits | None = Field(
        default=None, description="Null: no kernel of a collective has a partner on another device of the session."
    )
    operations: int | None = Field(
        default=None, ge=0, description="Kernels, whole graphs, copies and memsets of the tenant; null: not counted."
    )
    graph_launches: int | None = Field(
        default=None,
        ge=0,
        description="Launches of graphs that are recorded. Null: launches_ns and waiting_ns are less than 2 % of the "
        "time each.",
    )
    node_launch_calls: CallTime | None = Field(
        default=None,
        description="Calls that launched graphs whose kernels were traced one by one, which lengthens them: the sum of "
        "their durations. Null: there are none, they take less than 2 % of the time, or calls were not read.",
    )
    graph_waits: GraphWaits | None = Field(
        default=None,
        description="waiting_short_ns by how work was launched. Null: waiting_ns is less than 2 % of the time, or no "
        "graph was launched.",
    )
    early_starts: int | None = Field(
        default=None,
        ge=0,
        description="Kernels that started before the one before them in their stream ended, as with programmatic "
        "dependent launch. Null: waiting_ns is less than 2 % of the time.",
    )
    launch_phases: LaunchPhases | None = Field(
        default=None,
        description="Null: kernels launched one by one and graphs did not run one after the other, or one of the two "
        "took less than 10 % of the time.",
    )

    range_phases: list[RangePhase] = Field(
        default=[],
        description="Two to four NVTX ranges of at least 10 % of the time each that follow each other, where the parts "
        "with kernels differ by 0.3 or more; else empty. Only in reports with units of work.",
    )

    @property
    def too_few(self) -> bool:
        """Whether it has so few operations, and no kernel, that the parts of its time say nothing.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].too_few
        False
        """
        return self.operations is not None and self.operations < _FEW_OPERATIONS and not self.kernels_ns

    @property
    def waits_for_faults(self) -> bool:
        """Whether the top kernel had migrations by page faults in flight for at least half of its time.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].waits_for_faults
        False
        """
        return 0 < self.top_kernel_ns <= 2 * (self.top_kernel_faulting_ns or 0)

    @property
    def queued_in_time(self) -> bool:
        """Whether launched work waited in most of the time of gaps, and mostly in gaps of at most 250 us.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].queued_in_time
        False
        """
        gaps_ns = self.window_ns - self.kernels_ns - self.copies_ns
        return 2 * (self.waiting_short_ns or 0) > gaps_ns

    @property
    def waiting_share(self) -> float | None:
        """Part of its time in which launched work had not started and nothing was in flight; None: not known.

        Examples
        --------
        >>> import pyanalyze
        >>> round(pyanalyze.load(capture).analysis.time_splits[0, 0].waiting_share, 3)
        0.0
        """
        return None if self.waiting_ns is None or not self.window_ns else self.waiting_ns / self.window_ns

    @property
    def after_sync_ns(self) -> int:
        """Part of launching that is behind calls that synchronise: launching fewer kernels does not shorten it.

        Where the host waits behind about every launch, launching and waiting are not told apart: none.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].after_sync_ns
        0
        """
        if self.sync_gaps is None or (self.launch_waits is not None and self.launch_waits.often):
            return 0
        return self.sync_gaps.launches_ns

    @property
    def mostly_after_sync(self) -> bool:
        """Whether most of launching is behind calls that synchronise, but not behind about every launch.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].mostly_after_sync
        False
        """
        return 2 * self.after_sync_ns >= self.launches_ns > 0

    @property
    def host_after_sync(self) -> SyncGaps | None:
        """Gaps behind calls that synchronise, where most of the host's time lies in long ones; else None.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].host_after_sync is None
        True
        """
        gaps = self.sync_gaps
        return gaps if gaps is not None and 2 * gaps.host_ns >= self.host_ns > 0 else None

    @property
    def within_units(self) -> TimeSplit | None:
        """The same without the host's time between units of work: what limits a unit. None: it has no such pauses.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].within_units is None
        True
        """
        pauses = self.unit_pauses
        if pauses is None:
            return None
        parts = {limit: self.part_ns(limit) for limit in Limit}
        parts[Limit.HOST] -= pauses.host_ns
        gaps, waits = self.sync_gaps, self.launch_waits
        return self.model_copy(
            update={
                "limit": max(parts, key=lambda limit: parts[limit]),
                "window_ns": self.window_ns - pauses.host_ns,
                "host_ns": parts[Limit.HOST],
                "unit_pauses": None,
                # What is known of the host is of all of its time.
                "host_activity": None,
                "longest_gap": None,
                # A wait at the end of each unit is for its answer.
                "launch_waits": None if waits is not None and waits.waited <= pauses.units else waits,
                "sync_gaps": None if gaps is None else gaps.model_copy(update={"host_ns": 0}),
            }
        )

    @property
    def mostly_after(self) -> bool:
        """Whether most of the host's time lies after the last operation that was launched.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].mostly_after
        False
        """
        return (self.host_after_ns or 0) >= _MOST_OF_HOST * self.host_ns > 0

    @property
    def one_gap(self) -> LongestGap | None:
        """The gap that has most of the host's time; None: there is none.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].one_gap is None  # kernels limit it
        True
        """
        gap = self.longest_gap
        return None if gap is None or gap.of_host_ns < _MOST_OF_HOST * self.host_ns else gap

    @property
    def most_in_range(self) -> HostPart | None:
        """The NVTX range that has most of the host's time; None: there is none.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].most_in_range is None
        True
        """
        most = None if self.host_activity is None else self.host_activity.most
        if most is None or most.kind is not HostKind.RANGE or most.name is None:
            return None
        return most if most.ns >= _MOST_OF_HOST * self.host_ns else None

    @property
    def whole_graphs(self) -> bool:
        """Whether whole graphs count in kernels_ns: they were in flight, and their kernels are not known.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].whole_graphs
        False
        """
        return self.graphs_ns > 0

    @property
    def without_gap(self) -> tuple[Limit, float] | None:
        """The largest part of its time without one gap that is almost all of the host's, as a fraction of that time.

        None: there is no such gap.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].without_gap is None  # kernels limit it
        True
        """
        gap = self.one_gap
        if gap is None or self.mostly_after or gap.of_host_ns < _ALL_OF_HOST * self.host_ns:
            return None
        left: dict[Limit, int] = {limit: self.part_ns(limit) for limit in Limit}
        left[Limit.HOST] = max(self.host_ns - gap.of_host_ns, 0)
        # CUDA calls have the rest of it.
        of_calls_ns = gap.end_ns - gap.start_ns - gap.of_host_ns
        left[Limit.API_CALLS] = max(self.part_ns(Limit.API_CALLS) - of_calls_ns, 0)
        most = max(left, key=lambda one: left[one])
        return most, left[most] / max(sum(left.values()), 1)

    @property
    def overlapping(self) -> bool:
        """Whether its kernels ran at once so much that their durations add up to more than the time in flight.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].overlapping
        True
        """
        share = self.top_kernel_share
        return share is not None and self.top_kernel_ns > (1 + _OVERLAP) * share * self.kernels_ns

    @property
    def graphs_in_kernels(self) -> bool:
        """Whether whole graphs, whose kernels are not known, have a notable part of the time of its kernels.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].graphs_in_kernels
        False
        """
        return self.top_kernel is not None and self.graphs_ns > _OVERLAP * self.kernels_ns

    @property
    def mostly_graphs(self) -> bool:
        """Whether whole graphs, whose kernels are not known, were in flight for longer than any kernel of one name.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).analysis.time_splits[0, 0].mostly_graphs
        False
        """
        return self.graphs_ns > self.top_kernel_ns

    def part_ns(self, limit: Limit) -> int:
        """Nanoseconds of one part.

        Examples
        --------
        >>> import pyanalyze
        >>> split = pyanalyze.load(capture).analysis.time_splits[0, 0]
        >>> sum(split.part_ns(limit) for limit in Limit) == split.window_ns
        True
        """
        return {
            Limit.KERNELS: self.kernels_ns,
            Limit.COPIES: self.copies_ns,
            Limit.WAITING: self.waiting_ns or 0,
            Limit.LAUNCHES: self.launches_ns,
            Limit.API_CALLS: self.api_calls_ns or 0,
            Limit.HOST: self.host_ns,
        }[limit]
