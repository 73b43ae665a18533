"""Single units of work, such as requests: where the time of each went, and what made the slow ones slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from pyanalyze.results.interference import LatencyPercentile
from pyanalyze.results.model import Finite, Missing, Number, Result, Text
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import (
    DOUBT_TEXT,
    ENOUGH_FOR_TAIL,
    ENOUGH_UNITS,
    NOISE_FLOOR,
    RESTS_ON_RESIDENCY,
    SEGMENT_TEXT,
    SMALL_SHARE,
    UNIT_SOURCE_TEXT,
    UNSETTLING,
    Basis,
    ResidencyDoubt,
    SegmentKind,
    UnitSource,
)

#: Kinds of segments that are summed up where they are too short to be listed.
_SUMS_SHOWN = 3
#: Segments of a unit that are shown in text, the longest.
MOST_SEGMENTS = 24
#: Part of host time with work of another thread of the process in flight, from which on that is what it is.
MOSTLY_OTHER_THREAD: Final = 0.5
#: Causes and groups that are shown in text.
MOST_CAUSES = 6
MOST_GROUPS = 4
_TYPICAL = (
    "Duration of a typical unit of this name, and of the same kind of work (`works`), ns: mean of the middle tenth (of "
    "the most frequent kind of `ranges`, where the median is over 5 % off that of this kind), without units that a "
    "step of over 2 % parts from the median. Of chosen units of several kinds of work it is the mean."
)
_SHORT_NAME = "Short name of a kernel, as the tables of kernels have it; null: no kernel. Hostile text."

__all__ = [
    "Excess",
    "ExplainedUnit",
    "Explanation",
    "OtherUnits",
    "OutsideUnits",
    "SlowUnits",
    "UnitGroup",
    "UnitRange",
    "UnitSegment",
]


class UnitSegment(Result):
    """A part of a unit's duration; in order, they add up to it."""

    kind: SegmentKind = Field(description="What it was.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin; parts that alternate have the same start and end.")
    dur_ns: int = Field(ge=0, description="Time of this kind between the two, ns.")
    count: int = Field(ge=0, description="Time slices of others, or switches; 1 for every other kind.")
    other_tenant_id: int | None = Field(
        description="Whose time slice or work it waited for (of an MPS group that was resident, its first client); of "
        "execution, and of queueing behind a stream of its own, whose ran at the same time; null: nobody's."
    )
    other: Text | None = Field(description="Name of that tenant, or of that group.")
    operation: Text | None = Field(
        description="Kernel, graph or copy that ran or was waited for; null: none. Hostile text."
    )
    operation_short: Text | None = Field(default=None, description=_SHORT_NAME)
    thread: int | None = Field(
        default=None,
        description="Of host time, the other thread of the process whose operations were in flight for longest; null: "
        "none were, not host time, or not known without launch calls.",
    )
    thread_ns: int | None = Field(
        default=None, ge=0, description="How long they were, from start_ns to end_ns, ns; null: as thread."
    )
    own: bool = Field(description="The operation is the unit's own.")
    usual_ns: int | None = Field(
        description="Median of what equal operations, each behind an equal one in its stream, took while resident, ns; "
        "null: not a whole operation of the unit, or the only one of its kind."
    )
    basis: Basis = Field(
        description="observed: records say so; inferred: without switch records; of a context switch, with the time to "
        "save and restore state; of a wait behind another tenant, always, because no record names the reason of a wait."
    )

    @property
    def is_slow(self) -> bool:
        """Whether it is an execution longer than equal ones usually are, beyond what runs differ by."""
        executed = self.kind is SegmentKind.EXECUTION and self.usual_ns is not None
        return executed and self.dur_ns >= (1 + NOISE_FLOOR) * (self.usual_ns or 0)

    @property
    def in_pieces(self) -> bool:
        """Whether it is a sum of pieces of a thread's time: launch calls and host time that alternate."""
        mixed = self.dur_ns < self.end_ns - self.start_ns
        return mixed and self.operation is None and self.kind in (SegmentKind.HOST, SegmentKind.LAUNCH)

    def same_step(self, before: UnitSegment | None) -> bool:
        """Whether it alternated with that one: both are parts of one step, which began when either says."""
        return before is not None and (self.start_ns, self.end_ns) == (before.start_ns, before.end_ns)


class Excess(Result):
    """How much longer one cause took than in a typical unit."""

    kind: SegmentKind = Field(description="The cause.")
    other_tenant_id: int | None = Field(
        description="The aggressor; of an MPS group that was resident, its first client; null: nobody else."
    )
    other: Text | None = Field(description="Name of the aggressor, or of that group.")
    operation: Text | None = Field(
        description="Kernel, graph or copy with most of this time, of the aggressor where it is its; null: none."
    )
    operation_short: Text | None = Field(default=None, description=_SHORT_NAME)
    own: bool = Field(default=True, description="That operation is the unit's own, as most of those of this kind.")
    less_overlap: bool = Field(
        default=False,
        description="Of execution and copies: the part that is longer because operations ran one after another that "
        "overlap in a typical unit, not because they took longer.",
    )
    after: Text | None = Field(
        default=None,
        description="Where overlap was lost: short name of the unit's own operation that ended before that one "
        "started; null: none. Hostile text.",
    )
    ns: Finite = Field(description="Time of this kind less that of a typical unit, ns; may be negative.")
    typical_ns: Finite = Field(description="Time of this kind in a typical unit, ns.")
    share: Number = Field(description="Of the excess of the whole unit; null: it has next to none.")
    basis: Basis = Field(
        description="observed: records say so; inferred: without switch records; of a context switch, with the time to "
        "save and restore state; of a wait behind another tenant, always, because no record names the reason of a wait."
    )


class ExplainedUnit(Result):
    """One unit of work."""

    unit: int = Field(ge=0, description="Its number, as in the table units.")
    tenant_id: int = Field(ge=0, description="The tenant.")
    tenant: Text = Field(description="Name of the tenant.")
    name: Text = Field(description="Name of the range, graph or sequence of launches. Hostile text.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    dur_ns: int = Field(ge=0, description="Duration, ns.")
    typical_ns: Finite = Field(description=_TYPICAL)
    excess_ns: Finite = Field(description="Duration less that, ns; may be negative.")
    doubt: ResidencyDoubt | None = Field(
        description="What of causes that rest on residency is not certain without switch records; null: nothing."
    )
    first: bool = Field(
        default=False,
        description="It is the first unit of its name and kind of work in the recording; false also where only a part "
        "of the time was read.",
    )
    first_on_thread: bool = Field(
        default=False,
        description="It is not that, but the first one that its thread launched; false also where only a part of the "
        "time was read.",
    )
    departure: int | None = Field(
        description="Place in segments where it first departs from a typical unit; null: nowhere."
    )
    causes: Sequence[Excess] = Field(description="Parts of excess_ns, largest first; they add up to it.")
    segments: Sequence[UnitSegment] = Field(description="In order.")

    @property
    def starts_up(self) -> bool:
        """Whether it is the first of its name, in the recording or on its thread: it may set up what later ones use."""
        return self.first or self.first_on_thread

    @property
    def is_slow(self) -> bool:
        """Whether it took longer than a typical unit, beyond what runs differ by."""
        return self.excess_ns >= NOISE_FLOOR * self.typical_ns

    @property
    def undecided(self) -> bool:
        """Whether its main cause may be another: it rests on residency, of which nothing tells."""
        main = self.main_cause
        return self.doubt in UNSETTLING and main is not None and main.kind in RESTS_ON_RESIDENCY

    @property
    def main_cause(self) -> Excess | None:
        """The largest part of its excess; None: it took no longer than a typical unit."""
        return self.causes[0] if self.excess_ns > 0 and self.causes and self.causes[0].ns > 0 else None

    @property
    def longest(self) -> list[UnitSegment]:
        """The segments that text and tables show: the longest, in order."""
        places = sorted(range(len(self.segments)), key=lambda place: -self.segments[place].dur_ns)[:MOST_SEGMENTS]
        return [self.segments[place] for place in sorted(places)]


class UnitRange(Result):
    """Units of one name between two durations."""

    count: int = Field(ge=1, description="Units.")
    min_ns: int = Field(ge=0, description="Shortest, ns.")
    max_ns: int = Field(ge=0, description="Longest, ns.")
    others_ns: Finite = Field(description="Mean time that they waited for other tenants or a context switch, ns.")
    solo: int | None = Field(
        default=None,
        ge=0,
        description="Of these units, those during which no other tenant had work on the GPU; null: not counted.",
    )
    solo_p50_ns: Number = Field(default=None, description="Median duration of those, ns; null: there are none.")


class UnitPhases(Result):
    """Units of one name whose durations change once and stay so: the figures of both would mix two behaviours."""

    until_ns: int = Field(description="Start of the first unit of the second phase, ns from the origin.")
    first: int = Field(ge=1, description="Units before.")
    first_p50_ns: Finite = Field(description="Their median duration, ns.")
    then: int = Field(ge=1, description="Units from then on.")
    then_p50_ns: Finite = Field(description="Their median duration, ns.")


#: GPU work is launched ahead: a range of the host may end long before it.
UNITS_OF_RANGES: Final = (
    "A unit that is an NVTX range lasts from its start to the end of the GPU work launched in it, or to its own end if "
    "that is later. Ranges without GPU work on record, or with a kernel that has no record, are no units."
)


class OutsideUnits(Result):
    """Work of a tenant that is in none of its units."""

    tenant_id: int = Field(ge=0, description="The tenant.")
    tenant: Text = Field(description="Name of the tenant.")
    device_id: int = Field(ge=0, description="Device.")
    operations: int = Field(ge=1, description="Its operations: kernels, graphs, copies and memsets.")
    outside: int = Field(ge=1, description="Of these, in no unit.")
    outside_share: Number = Field(
        default=None, description="What these take of the sum of the durations of all; null: as before_first."
    )
    before_first: int | None = Field(
        default=None, ge=0, description="Of these, launched before the first unit of the tenant; null: not known."
    )
    after_last: int | None = Field(
        default=None, ge=0, description="Launched after the last unit had launched its work; null: as before_first."
    )
    other_threads: int | None = Field(
        default=None,
        ge=0,
        description="Launched in the time between by threads that launched no unit; null: as before_first.",
    )
    without_call: int | None = Field(
        default=None, ge=0, description="Without a launch call on record; null: as before_first."
    )
    between: int | None = Field(
        default=None, ge=0, description="The others: launched between units; null: as before_first."
    )
    groups: int | None = Field(
        ge=0,
        description="Groups of operations that were launched between two synchronisations and are no units; null: "
        "units were not found between synchronisations.",
    )
    longer: int | None = Field(ge=0, description="Of these groups, longer than every unit; null: as groups.")
    longest_ns: int | None = Field(ge=0, description="Duration of the longest of them, ns; null: there are none.")
    longest_start_ns: int | None = Field(description="When that one began, ns from the origin; null: there are none.")


class OtherUnits(Result):
    """Units of a tenant that the report shows nothing else of: those of other names."""

    tenant_id: int = Field(ge=0, description="The tenant.")
    tenant: Text = Field(description="Name of the tenant.")
    device_id: int = Field(ge=0, description="Device.")
    units: int = Field(ge=1, description="Units of all these names.")
    names: int = Field(ge=1, description="Names.")
    longest: Text = Field(description="The name whose units take most time, p50 times their number. Hostile text.")
    longest_units: int = Field(ge=1, description="Units of that name.")
    longest_p50_ns: Finite = Field(description="Their median duration, ns.")
    longest_max_ns: int = Field(ge=0, description="The longest of them, ns.")


class FewRanges(Result):
    """NVTX ranges of one name of a tenant's process that hold work of it and are too few to be its units."""

    name: Text = Field(description="Their name, with `#` for numbers in which names differ. Hostile text.")
    count: int = Field(ge=1, description="How many ended in the recording: fewer than 5.")


class UnitGroup(Result):
    """Units of one tenant and name."""

    tenant_id: int = Field(ge=0, description="The tenant.")
    tenant: Text = Field(description="Name of the tenant.")
    device_id: int = Field(ge=0, description="Device.")
    name: Text = Field(description="Name of the units. Hostile text.")
    source: UnitSource = Field(description="How they were found.")
    count: int = Field(ge=1, description="Units.")
    cut: int = Field(
        default=0,
        ge=0,
        description="Further ones, left out of everything else here: the recording ended before copies that "
        "were launched in them. 0 also where only a part of the time was read, or CUDA calls failed.",
    )
    few_ranges: FewRanges | None = Field(
        default=None,
        description="Where units are launches: the NVTX ranges that hold a tenth of the tenant's operations or more, "
        "most operations first, and were too few to be taken instead; null: there are none.",
    )
    p50_ns: Finite = Field(description="Median duration, ns.")
    p90_ns: Finite = Field(description="90th percentile, ns.")
    p99_ns: Finite = Field(description="99th percentile, ns.")
    max_ns: int = Field(ge=0, description="Longest, ns.")
    typical_ns: Finite = Field(description=_TYPICAL)
    slow: int = Field(ge=0, description="Units that were chosen, such as the slowest 1 %.")
    slow_mean_ns: Number = Field(description="Their mean duration, ns; null: none was chosen.")
    causes: Sequence[Excess] = Field(
        description="Mean excess of the chosen units by cause and aggressor, largest first; they add up to "
        "slow_mean_ns - typical_ns."
    )
    alike: int | None = Field(
        default=None,
        ge=0,
        description="Of the chosen units, those whose own largest cause is the first of `causes`; null: none was "
        "chosen.",
    )
    with_first: bool = Field(
        default=False,
        description="The first unit of its name and kind of work is among the chosen ones; false also where only a "
        "part of the time was read.",
    )
    operations: int = Field(ge=0, description="Operations in all units.")
    without_call: int = Field(ge=0, description="Of these, without a launch call in the capture.")
    clamped: int = Field(
        ge=0, description="Operations of the chains that started before the one that released them ended."
    )
    basis: Basis = Field(description="observed: residency was recorded; inferred: it was not.")
    doubt: ResidencyDoubt | None = Field(
        description="What of causes that rest on residency is not certain without switch records; null: nothing."
    )
    solo: Sequence[LatencyPercentile] | None = Field(
        default=None,
        description="Percentiles against the solo recording that was given; null: none was, or it lacks such units.",
    )
    ranges: Sequence[UnitRange] = Field(
        default=(),
        description="Kinds of units, shortest first, divided at gaps between durations. Where the 90th percentile is "
        "at least 1.2 times the 10th: gaps of over 2 % that evenly spread durations have by chance in 1 % of cases, "
        "with a tenth of the units on either side. Else one, by which at least 5 units are shorter than all others by "
        "a factor of 1.2. One kind: no such gap, and the median is 1.2 times the 10th percentile or more, or the 90th "
        "1.2 times the median. Empty: most units are alike.",
    )

    phases: UnitPhases | None = Field(
        default=None,
        description="Where nine in ten units on one side of a time are shorter than half of those on the other by a "
        "factor of 1.2: what units take before and after; null: they alternate, or do not differ.",
    )

    works: int = Field(
        default=1,
        ge=1,
        description="Kinds of work of at least 5 units: the kernel and blocks, or the bytes, of units of one "
        "operation; units of several are one kind. A unit is compared with typical ones of its own kind. 1 also where "
        "most units are of kinds of fewer.",
    )

    @property
    def is_slow(self) -> bool:
        """Whether the chosen units take longer than a typical one, beyond what runs differ by."""
        return self.slow_mean_ns is not None and self.slow_mean_ns - self.typical_ns >= NOISE_FLOOR * self.typical_ns

    @property
    def largest(self) -> list[Excess]:
        """The causes that text and tables show, largest first: those that differ most from a typical unit.

        One that is shorter than there is a clue as well: what a typical unit waits for instead.
        """
        most = sorted(self.causes, key=lambda cause: -abs(cause.ns))[:MOST_CAUSES]
        return sorted(most, key=lambda cause: -cause.ns)

    @property
    def usual(self) -> list[Excess]:
        """What a typical unit consists of, most first."""
        parts = sorted((cause for cause in self.causes if cause.typical_ns > 0), key=lambda cause: -cause.typical_ns)
        return parts[:MOST_CAUSES]

    @property
    def usual_rest_ns(self) -> float:
        """What the other parts of a typical unit take together."""
        return self.typical_ns - sum(cause.typical_ns for cause in self.usual)

    @property
    def rest_ns(self) -> int:
        """What the other causes add, mean; below 0: they are shorter than in a typical unit."""
        return round(sum(cause.ns for cause in self.causes) - sum(cause.ns for cause in self.largest))

    @property
    def rest_share(self) -> float | None:
        """The same of the excess; None: there is next to none."""
        excess_ns = sum(cause.ns for cause in self.causes)
        known = all(cause.share is not None for cause in self.causes)
        return self.rest_ns / excess_ns if known and excess_ns else None


class SlowUnits(Result):
    """Units of one tenant and name whose slowest are much slower than the others."""

    group: UnitGroup = Field(description="All of them, and what the excess of the slowest 1 % consists of.")
    slowest: ExplainedUnit = Field(description="The one with most excess.")


class Explanation(Result):
    """Units of work of a session, and the chosen ones of them explained."""

    chosen: Text = Field(description="Which units were chosen, in words.")
    groups: Sequence[UnitGroup] = Field(description="Units by tenant and name, most units first.")
    units: Sequence[ExplainedUnit] = Field(description="The chosen units, longest excess first.")
    later: Sequence[ExplainedUnit] = Field(
        default=(),
        description="Where the slowest chosen unit is the first of its name, in the recording or on its thread, the "
        "slowest of the others.",
    )
    outside: Sequence[OutsideUnits] = Field(default=(), description="Work in no unit, by tenant; empty: there is none.")
    missing: Sequence[Missing] = Field(description="What could not be known.")

    def slowest(self, group: UnitGroup) -> ExplainedUnit | None:
        """The chosen unit of a group with most excess; None: none was chosen."""
        mine = (one for one in self.units if (one.tenant_id, one.name) == (group.tenant_id, group.name))
        return next(mine, None)

    def __str__(self) -> str:
        """Show it in a terminal: the units found, the slowest one of each name, and what the excess is made of."""
        lines: list[str] = []
        shown = [group for group in self.groups if group.slow][:MOST_GROUPS]
        for group in shown:
            lines += [*group_lines(group), *self._outside_lines(group), ""]
            unit = self.slowest(group)
            lines += [*unit_lines(unit, alone=group.count == 1), ""] if unit is not None else []
            for other in self.later:
                if (other.tenant_id, other.name) == (group.tenant_id, group.name):
                    lines += ["The slowest of those that are no first one:", *unit_lines(other), ""]
            lines += [*excess_lines(group, self.chosen), ""] if group.slow > 1 else []
        lines += [line for one in self.outside[:MOST_GROUPS] for line in (outside_text(one), "")]
        if any(group.source is UnitSource.RANGE for group in shown):
            lines += [UNITS_OF_RANGES, ""]
        if more := len(self.groups) - len(shown):
            lines.append(f"... and units of {fmt.counted(more, 'more name')} (-f json has all of them)")
        for missing in self.missing:
            lines.append(f"Not available: {missing.what}: {missing.why}; to capture it: {missing.how}")
        return "\n".join(lines).rstrip("\n")

    def _outside_lines(self, group: UnitGroup) -> list[str]:
        """How much of the work of the process is in no unit, where that is not little."""
        mine = (one for one in self.outside if (one.tenant_id, one.device_id) == (group.tenant_id, group.device_id))
        share = next((one.outside_share for one in mine), None)
        if share is None or share < SMALL_SHARE:
            return []
        return [f"  {fmt.percent(share)} of the time of this process's operations is in no unit (see below)"]

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def operation_text(name: str | None, limit: int = 36) -> str:
    """The name of an operation as the tables of kernels have it: without types, arguments and namespaces.

    Examples
    --------
    >>> operation_text("void gemm<4>(float *, int)"), operation_text("[CUDA memset]"), operation_text(None)
    ('gemm', '[CUDA memset]', '')
    >>> operation_text("void at::native::unrolled<(anonymous namespace)::copy(at::Iterator &)::[lambda()]>(int)")
    'unrolled'
    """
    depth, kept = 0, []
    for character in name or "":
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth = max(depth - 1, 0)
        elif not depth:
            kept.append(character)
    short = "".join(kept)
    # What has no arguments is no signature: its words are one name.
    if name and name.endswith(")"):
        short = short.rpartition("::")[2].rpartition(" ")[2]
    return visible(short.strip() or name or "", limit)


#: Waits of which the operation may be another's that stands in front.
_BEHIND = (SegmentKind.QUEUE_SAME_STREAM, SegmentKind.QUEUE_OTHER_STREAM)


def waits_behind(cause: Excess | UnitSegment) -> bool:
    """Whether the operation of a cause is that of another unit or tenant, which it waits behind."""
    return cause.kind is SegmentKind.QUEUE_OTHER_TENANT or (cause.kind in _BEHIND and not cause.own)


def waited_for_text(cause: Excess | UnitSegment, limit: int = 36) -> str:
    """The operation of a cause: its own, or the one of another unit or tenant that it waits behind.

    Examples
    --------
    >>> queued = Excess(kind="queue-other-tenant", other_tenant_id=1, other="train", operation="gemm(int)", ns=5,
    ...     typical_ns=0, share=1, basis="observed")
    >>> waited_for_text(queued), waited_for_text(queued.model_copy(update={"kind": SegmentKind.EXECUTION}))
    ('behind gemm', 'gemm')
    """
    short = cause.operation_short
    name = operation_text(cause.operation, limit) if short is None else visible(short, limit)
    if isinstance(cause, Excess) and cause.less_overlap and cause.after is not None:
        return f"{name} after {operation_text(cause.after, limit)}"
    return f"behind {name}" if name and waits_behind(cause) else name


def segment_operation_text(segment: UnitSegment, limit: int = 36) -> str:
    """The operation of a segment, and how long it usually takes where it took longer.

    Examples
    --------
    >>> ran = UnitSegment.model_construct(kind=SegmentKind.EXECUTION, operation="gemm(int)", dur_ns=25_000, own=True,
    ...     usual_ns=20_000)
    >>> segment_operation_text(ran)
    'gemm (usually 20.0 us)'
    """
    usual = f" (usually {fmt.duration(segment.usual_ns)})" if segment.is_slow else ""
    return f"{waited_for_text(segment, limit)}{usual}"


#: From the call of a copy to its start: the driver stages pageable memory there, which is no cost of a launch.
IN_COPY_CALL: Final = "copy call"


def in_copy_call(cause: Excess | UnitSegment) -> bool:
    """Whether it is the time from the call of a copy to the start of the copy.

    Examples
    --------
    >>> called = UnitSegment.model_construct(kind=SegmentKind.LAUNCH, operation="[CUDA memcpy Host-to-Device]")
    >>> in_copy_call(called), in_copy_call(called.model_copy(update={"operation": "gemm"}))
    (True, False)
    """
    return cause.kind is SegmentKind.LAUNCH and (cause.operation or "").startswith("[CUDA memcpy")


#: What makes execution longer where no operation is.
LOST_OVERLAP: Final = "lost overlap of its streams"


def cause_text(cause: Excess | UnitSegment) -> str:
    """A cause with its aggressor, as text and tables say it.

    Examples
    --------
    >>> cause_text(Excess(kind="time-slice", other_tenant_id=1, other="train", operation=None, ns=5, typical_ns=0,
    ...     share=1, basis="observed"))
    'waiting for its time slice (train resident)'
    """
    if isinstance(cause, Excess) and cause.less_overlap:
        return LOST_OVERLAP
    if isinstance(cause, UnitSegment) and cause.thread is not None and cause.thread_ns is not None:
        part = cause.thread_ns / max(cause.end_ns - cause.start_ns, 1)
        if part >= MOSTLY_OTHER_THREAD:
            return f"work launched by thread {cause.thread}"
        if part >= SMALL_SHARE:
            return f"host ({fmt.duration(cause.thread_ns)} of work of thread {cause.thread})"
    said = IN_COPY_CALL if in_copy_call(cause) else SEGMENT_TEXT[cause.kind]
    if cause.other is None:
        return said
    if cause.kind is SegmentKind.TIME_SLICE:
        # It may be all clients of an MPS group.
        return f"{said} ({visible(cause.other, 60)} resident)"
    name = visible(cause.other, 30)
    if cause.kind in (SegmentKind.EXECUTION, SegmentKind.COPY, SegmentKind.QUEUE_OTHER_STREAM):
        name = f"beside {name}"
    return f"{said[:-1]}, {name})" if said.endswith(")") else f"{said} ({name})"


def segment_text(segment: UnitSegment, unit: ExplainedUnit) -> str:
    """A segment of a unit, as text and tables say it: its cause, and of how many slices or pieces it is the sum."""
    said = cause_text(segment)
    if segment.kind is SegmentKind.TIME_SLICE and segment.count > 1:
        return f"{said}, {segment.count} slices"
    return f"{said}, in pieces until {fmt.duration(segment.end_ns - unit.start_ns)}" if segment.in_pieces else said


def ranges_text(group: UnitGroup) -> str:
    """Say between which durations units of each kind lie; empty where all take about as long.

    Examples
    --------
    >>> short = UnitRange(count=2, min_ns=4_000_000, max_ns=5_000_000, others_ns=0)
    >>> long = UnitRange(count=3, min_ns=9_000_000, max_ns=12_000_000, others_ns=5_000_000)
    >>> ranges_text(UnitGroup.model_construct(ranges=(short, long)))
    '2 take 4.000 to 5.000 ms (mean wait for other tenants 0 ns), 3 take 9.000 to 12.00 ms (mean wait 5.000 ms)'
    """
    if not group.ranges:
        return ""
    spans = [(fmt.duration(one.min_ns).split(), fmt.duration(one.max_ns)) for one in group.ranges]
    texts = [
        f"{fmt.count(one.count)} take {low[0] if high.endswith(f' {low[1]}') else ' '.join(low)} to {high}"
        for one, (low, high) in zip(group.ranges, spans, strict=True)
    ]
    if any(one.others_ns for one in group.ranges):
        waits = [f" (mean wait {fmt.duration(one.others_ns)})" for one in group.ranges]
        waits[0] = waits[0].replace("wait", "wait for other tenants")
        texts = [f"{text}{wait}" for text, wait in zip(texts, waits, strict=True)]
    return ", ".join(texts) if len(texts) > 1 else f"{texts[0]}, without a clear gap"


def cut_text(group: UnitGroup) -> str:
    """Say how many units are left out because the recording ended in them; empty: none.

    Examples
    --------
    >>> cut_text(UnitGroup.model_construct(cut=1)), cut_text(UnitGroup.model_construct(cut=0))
    ('1 more is left out: the recording ended before its copies', '')
    """
    if not group.cut:
        return ""
    whose = ("is", "its") if group.cut == 1 else ("are", "their")
    return f"{fmt.count(group.cut)} more {whose[0]} left out: the recording ended before {whose[1]} copies"


def other_units_text(one: OtherUnits) -> str:
    """Say which units of a tenant are not told otherwise.

    Examples
    --------
    >>> one = OtherUnits(tenant_id=0, tenant="serve", device_id=0, units=15, names=1, longest="step", longest_units=15,
    ...     longest_p50_ns=11e6, longest_max_ns=43_000_000)
    >>> other_units_text(one)
    'serve has 15 other units, of step: p50 11.00 ms, max 43.00 ms.'
    >>> other_units_text(one.model_copy(update={"units": 40, "names": 3}))
    'serve has 40 other units, of 3 names. Most of their time: 15 of step, p50 11.00 ms, max 43.00 ms.'
    """
    name, units = visible(one.longest, 60), fmt.counted(one.units, "other unit")
    lengths = f"p50 {fmt.duration(one.longest_p50_ns)}, max {fmt.duration(one.longest_max_ns)}"
    said = f"{visible(one.tenant, 30)} has {units}, of"
    if one.names == 1:
        return f"{said} {name}: {lengths}."
    return f"{said} {one.names} names. Most of their time: {fmt.count(one.longest_units)} of {name}, {lengths}."


def _why_outside(one: OutsideUnits) -> str:
    """When, or by whom, what is in no unit was launched; empty: not known."""
    parts = (
        (one.before_first, "before the first one"),
        (one.after_last, "after the last one"),
        (one.other_threads, "by threads without units"),
        (one.between, "between units"),
    )
    said = [(count, where) for count, where in parts if count]
    each = [f"{fmt.count(count)}{' launched' if n == 0 else ''} {where}" for n, (count, where) in enumerate(said)]
    each += [f"{fmt.count(one.without_call)} without a launch call on record"] if one.without_call else []
    return f": {', '.join(each)}" if each else ""


def outside_text(one: OutsideUnits, origin_ns: int = 0) -> str:
    """Say how much of the work of a tenant is in no unit, and what of it lasted longer than every unit.

    Examples
    --------
    >>> one = OutsideUnits(tenant_id=0, tenant="serve", device_id=0, operations=842, outside=96, groups=4, longer=2,
    ...     longest_ns=9_000_000, longest_start_ns=70_000, before_first=90, after_last=0, other_threads=0, between=6)
    >>> for sentence in outside_text(one).split(". "):
    ...     print(sentence)
    96 of 842 operations of serve are in no unit: 90 launched before the first one, 6 between units
    2 groups of them, each launched between two synchronisations, lasted longer than the slowest unit
    The longest took 9.000 ms, from 70.0 us on.
    """
    are = "is" if one.outside == 1 else "are"
    of = f"{fmt.count(one.operations)} operations of {visible(one.tenant, 30)}"
    said = f"{fmt.count(one.outside)} of {of} {are} in no unit{_why_outside(one)}."
    if not one.longer or one.longest_ns is None or one.longest_start_ns is None:
        return said
    each, which = (", each", "The longest") if one.longer > 1 else (",", "It")
    begin_ns = one.longest_start_ns - origin_ns
    # Its first launch call may have begun before the first work on the GPU.
    begin = f"{fmt.duration(abs(begin_ns))}{' before the window' if begin_ns < 0 else ''}"
    return (
        f"{said} {fmt.counted(one.longer, 'group')} of them{each} launched between two synchronisations, lasted longer "
        f"than the slowest unit. {which} took {fmt.duration(one.longest_ns)}, "
        f"from {begin} on."
    )


def source_text(group: UnitGroup) -> str:
    """Say how units were found, and which NVTX ranges were too few to be the units instead.

    Examples
    --------
    >>> few = FewRanges(name="request", count=4)
    >>> source_text(UnitGroup.model_construct(source=UnitSource.GRAPH, few_ranges=few))
    'launches of whole graphs; 4 NVTX ranges request are too few to be units: 5 are needed'
    >>> source_text(UnitGroup.model_construct(source=UnitSource.RANGE, few_ranges=None))
    'NVTX ranges'
    """
    said, few = UNIT_SOURCE_TEXT[group.source], group.few_ranges
    if few is None:
        return said
    return f"{said}; {few.count} NVTX ranges {visible(few.name, 60)} are too few to be units: {ENOUGH_UNITS} are needed"


def phases_text(group: UnitGroup) -> str:
    """Say when units changed and from what to what, on the clock of the capture, as --start takes it; empty: never.

    Examples
    --------
    >>> phases = UnitPhases(until_ns=500_000_000, first=52, first_p50_ns=8e6, then=61, then_p50_ns=14e6)
    >>> phases_text(UnitGroup.model_construct(phases=phases))
    'the first 52 take 8.000 ms (p50), the 61 from 500.0 ms of the capture on take 14.00 ms'
    """
    phases = group.phases
    if phases is None:
        return ""
    return (
        f"the first {fmt.count(phases.first)} take {fmt.duration(phases.first_p50_ns)} (p50), "
        f"the {fmt.count(phases.then)} from {fmt.duration(phases.until_ns)} of the capture on take "
        f"{fmt.duration(phases.then_p50_ns)}"
    )


def main_cause_text(unit: ExplainedUnit, main: Excess) -> str:
    """Say the main cause of a unit, and how far that can be trusted."""
    share = "" if main.share is None else f", {fmt.percent(main.share)} of its excess"
    if main.share is not None and main.share > 1:
        share = ", which shorter parts offset"
    which = f" ({waited_for_text(main)})" if main.less_overlap and main.operation is not None else ""
    said = f"{cause_text(main)}{which}, +{fmt.duration(main.ns)}{share}"
    if unit.doubt is not None and unit.undecided:
        return f"Main cause: not decided ({DOUBT_TEXT[unit.doubt]}); as recorded: {said}"
    if unit.doubt is not None and main.kind in RESTS_ON_RESIDENCY:
        return f"Main cause: {said} ({DOUBT_TEXT[unit.doubt]})"
    return f"Main cause: {said}"


def group_lines(group: UnitGroup) -> list[str]:
    """How many units of a name there are, how they were found, and how long they took."""
    found = [
        (
            f"{fmt.counted(group.count, 'unit')} of {visible(group.tenant, 30)}: {visible(group.name, 60)} "
            f"({source_text(group)})"
        )
    ]
    # One unit has no percentiles, and the high ones of a few are their longest.
    if group.count > 1:
        tail = f"p90 {fmt.duration(group.p90_ns)}, p99 {fmt.duration(group.p99_ns)}, "
        few = group.count < ENOUGH_FOR_TAIL
        found.append(
            f"  p50 {fmt.duration(group.p50_ns)}, {'' if few else tail}max {fmt.duration(group.max_ns)} [{group.basis}]"
        )
    if group.cut:
        found.append(f"  {cut_text(group)}")
    if group.solo:
        each = ", ".join(f"p{one.percentile} {fmt.duration(one.solo_ns)}" for one in group.solo)
        found.append(
            f"  solo {each}; shared over solo {', '.join(fmt.ratio(one.ratio) for one in group.solo)} [observed]"
        )
    if group.works > 1:
        found.append(f"  {works_text(group)}")
    if group.ranges:
        found.append(f"  {ranges_text(group)} [{group.basis}]")
        if group.phases:
            found.append(f"  {phases_text(group)}")
    if group.without_call:
        found.append(
            f"  {fmt.count(group.without_call)} of {fmt.count(group.operations)} operations have no launch call in the "
            "capture: what they waited for is known in part"
        )
    return found


def works_text(group: UnitGroup) -> str:
    """With which units of its name each is compared, where they do different work.

    Examples
    --------
    >>> works_text(UnitGroup.model_construct(works=3))
    'each is compared with typical units of the same work: kernel and blocks, or bytes (3 kinds)'
    """
    same = "typical units of the same work: kernel and blocks, or bytes"
    return f"each is compared with {same} ({fmt.count(group.works)} kinds)"


def unit_lines(unit: ExplainedUnit, *, alone: bool = False) -> list[str]:
    """One unit: its main cause, where it first departs from a typical one, and its segments in order.

    `alone`: there is no other unit of its name that it could be compared with.
    """
    longer = "longer" if unit.excess_ns >= 0 else "shorter"
    length = f"Unit {unit.unit}, {fmt.duration(unit.start_ns)} on the capture's clock: {fmt.duration(unit.dur_ns)}"
    typical = f"{fmt.duration(abs(unit.excess_ns))} {longer} than a typical unit ({fmt.duration(unit.typical_ns)})"
    lines = [f"{length}; no other unit of this name is there to compare it with" if alone else f"{length}, {typical}"]
    if unit.first and not alone:
        lines.append("  It is the first unit of its name in the recording")
    if unit.first_on_thread and not alone:
        lines.append("  It is the first unit of its name that its thread launched")
    if alone:
        pass
    elif abs(unit.excess_ns) < NOISE_FLOOR * unit.typical_ns:
        lines.append("  It took about as long as a typical unit")
    elif unit.is_slow and (main := unit.main_cause) is not None:
        lines.append(f"  {main_cause_text(unit, main)}")
    if unit.departure is not None and unit.is_slow:
        first = unit.segments[unit.departure]
        pieces = f" in pieces until {fmt.duration(first.end_ns - unit.start_ns)}" if first.in_pieces else ""
        lines.append(
            f"  First difference from a typical unit: {cause_text(first)} of {fmt.duration(first.dur_ns)}{pieces}, "
            f"{fmt.duration(first.start_ns - unit.start_ns)} after its start"
        )
    lines.append(f"  {'in unit':>9} {'duration':>9}  {'what':<46} operation")
    before: UnitSegment | None = None
    for one in unit.longest:
        # Parts of one stretch of time share its start, which is said once.
        after = "" if one.same_step(before) else fmt.duration(one.start_ns - unit.start_ns)
        before = one
        what = segment_text(one, unit)
        lines.append(f"  {after:>9} {fmt.duration(one.dur_ns):>9}  {what:<46} {segment_operation_text(one)}".rstrip())
    if rest := shorter_text(unit):
        shown = sum(one.dur_ns for one in unit.longest)
        lines.append(f"  {'':>9} {fmt.duration(unit.dur_ns - shown):>9}  {rest}")
    return lines


def shorter_text(unit: ExplainedUnit) -> str:
    """Say how many segments of a unit are not listed, and what they are by their sums; empty: all are listed."""
    listed = {id(one) for one in unit.longest}
    rest = [one for one in unit.segments if id(one) not in listed]
    sums: dict[SegmentKind, int] = {}
    for one in rest:
        sums[one.kind] = sums.get(one.kind, 0) + one.dur_ns
    most = sorted(sums.items(), key=lambda item: -item[1])[:_SUMS_SHOWN]
    of = ", ".join(f"{SEGMENT_TEXT[kind]} {fmt.duration(ns)}" for kind, ns in most if ns)
    return f"{fmt.counted(len(rest), 'shorter segment')}{': ' if of else ''}{of}" if rest else ""


def excess_lines(group: UnitGroup, chosen: str) -> list[str]:
    """What the chosen units took longer than a typical one, by cause and aggressor."""
    mean = None if group.slow_mean_ns is None else group.slow_mean_ns - group.typical_ns
    which = f"The {chosen} ({fmt.count(group.slow)} of {fmt.count(group.count)} units)"
    if not group.is_slow:
        return [f"{which} take about as long as a typical unit"]
    lines = [f"{which} take {fmt.duration(mean)} longer than a typical unit, on average:"]
    for cause in group.largest:
        operation = waited_for_text(cause)
        other = cause.basis != group.basis and cause.kind is not SegmentKind.UNEXPLAINED
        what = cause_text(cause) + (f" [{cause.basis}]" if other else "")
        lines.append(f"  {fmt.duration(cause.ns):>9} {fmt.percent(cause.share):>9}  {what:<46} {operation}".rstrip())
    if group.rest_ns:
        lines.append(f"  {fmt.duration(group.rest_ns):>9} {fmt.percent(group.rest_share):>9}  all other causes")
    return lines
