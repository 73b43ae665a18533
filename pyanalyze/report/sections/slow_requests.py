"""Units of work whose slowest are much slower than the others, and what made them so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import impact_of
from pyanalyze.report.blocks import Block, Cell, Chart, Column, Fold, Para, Table, chart_key
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.results.explain import (
    MOST_GROUPS,
    UNITS_OF_RANGES,
    cause_text,
    cut_text,
    in_copy_call,
    main_cause_text,
    other_units_text,
    outside_text,
    phases_text,
    ranges_text,
    segment_operation_text,
    segment_text,
    shorter_text,
    source_text,
    waited_for_text,
    waits_behind,
    works_text,
)
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import ENOUGH_FOR_TAIL, TRAITS, SegmentKind, UnitSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.results.explain import Excess, ExplainedUnit, SlowUnits, UnitGroup, UnitSegment
    from pyanalyze.results.report import Device

#: Characters of the name of an operation.
_NAME = 60
#: Units without other tenants of which a median is told: that of one or two is a matter of chance.
_FEWEST_SOLO = 3
#: The JSON contract says which of a tenth are left out.
_TYPICAL = "A typical unit: mean of at most a tenth of the units, those nearest the median duration."
_LOST = "Lost overlap: operations that run beside others of the unit in a typical one ran after them."
_SWITCH = "A context switch is the recorded switch gap and the time to save and restore state, which is inferred."
_COPY_CALL = (
    "Copy call: from the call of a copy to its start. The driver stages pageable memory there; it is no launch cost."
)


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    blocks: list[Block] = []
    if device.slow_units:
        others = any(cause.other is not None for slow in device.slow_units for cause in slow.group.causes)
        by = "cause and aggressor" if others else "cause"
        blocks += [
            Chart(
                chart_key("excess", device.device_id),
                "From a typical unit to the slowest",
                f"Mean duration by {by}: each bar begins where the one above ends.",
            ),
            Chart(
                chart_key("units", device.device_id),
                "Units over time",
                "Duration of each unit of work; the slowest 1 %, rounded up, of each name are marked.",
            ),
        ]
    for slow in device.slow_units[:MOST_GROUPS]:
        blocks += [
            Para(_said(slow, device)),
            _excess(slow.group),
            _chain(device, slow.slowest, several=len(inputs.report.captures) > 1),
        ]
    if (more := len(device.slow_units) - MOST_GROUPS) > 0:
        blocks.append(Para(f"Units of {fmt.counted(more, 'more name')} have a slow tail: pyanalyze explain CAPTURE."))
    slowed, even, few = _slowed(device), *_shown(device)
    for group in even[:MOST_GROUPS]:
        blocks += [Para(_even(group, device, slowed=group.tenant_id in slowed)), _parts(group, device)]
    if (more := len(even) - MOST_GROUPS) > 0:
        tenants = fmt.counted(more, "more tenant")
        blocks.append(Para(f"Units of {tenants} have no slow tail either: pyanalyze explain CAPTURE."))
    blocks += [Para(_few(group)) for group in few[:MOST_GROUPS]]
    shown = [*(one.group for one in device.slow_units), *even, *few]
    start_ns = 0 if device.window is None else device.window.start_ns
    of = {group.tenant_id for group in shown}
    rest = [other_units_text(one) for one in device.other_units if one.tenant_id in of]
    if rest:
        blocks.append(Para(" ".join(rest[:MOST_GROUPS])))
    outside = [one for one in device.outside_units if one.tenant_id in of][:MOST_GROUPS]
    # What lasted longer than every unit may be a slow request that was not found.
    if longer := [outside_text(one, start_ns) for one in outside if one.longer]:
        blocks.append(Para(" ".join(longer)))
    rest = [outside_text(one, start_ns) for one in outside if not one.longer]
    texts = [" ".join(part) for part in (_terms(device, shown), rest) if part]
    if texts:
        blocks.append(Fold("What is counted", tuple(Para(text) for text in texts)))
    return blocks


def _terms(device: Device, shown: Sequence[UnitGroup]) -> list[str]:
    """What the words of this section mean, a sentence or two each."""
    causes = [cause for slow in device.slow_units[:MOST_GROUPS] for cause in slow.group.largest]
    said = (
        (bool(shown), _TYPICAL),
        (any(cause.less_overlap for cause in causes), _LOST),
        (any(cause.kind is SegmentKind.SWITCH and cause.basis == "inferred" for cause in causes), _SWITCH),
        (any(in_copy_call(cause) for cause in causes), _COPY_CALL),
        (any(group.source is UnitSource.RANGE for group in shown), UNITS_OF_RANGES),
    )
    return [text for holds, text in said if holds]


def _slowed(device: Device) -> set[int]:
    """The tenants that others slowed."""
    impact = impact_of(device)
    return {one.tenant.tenant_id for one in (impact.victim, *impact.also_slowed) if one is not None and one.slowed}


def _shown(device: Device) -> tuple[list[UnitGroup], list[UnitGroup]]:
    """Units without a slow tail that this section shows, and those that are too few for percentiles."""
    slowed = _slowed(device)
    # Of tenants that nobody slowed it says something only beside others, or where one figure would mix two phases.
    even = [one for one in device.even_units if device.slow_units or one.tenant_id in slowed or one.phases]
    return even, [one for one in device.few_units if device.slow_units or one.tenant_id in slowed]


def repeated_ranges(device: Device) -> list[str]:
    """How long the NVTX ranges that repeat take, of units of work that are not slow and have no place in this section.

    Examples
    --------
    >>> import pyanalyze
    >>> repeated_ranges(pyanalyze.load(capture).report().devices[0])
    []
    """
    even, few = _shown(device)
    return [
        f"{visible(one.tenant, 30)} ran NVTX range {visible(one.name, 60)} {fmt.count(one.count)} times: "
        f"{fmt.duration(one.p50_ns)} (median), at most {fmt.duration(one.max_ns)}."
        for one in (*device.even_units, *device.few_units)
        if one.source is UnitSource.RANGE and one.count > 1 and one not in even and one not in few
    ]


def _found(group: UnitGroup, device: Device) -> str:
    return (
        f"{visible(group.tenant, 30)}: {fmt.count(group.count)} units of {visible(group.name, 60)} "
        f"({source_text(group)}), p50 {fmt.duration(group.p50_ns)}, p99 {fmt.duration(group.p99_ns)}, "
        f"max {fmt.duration(group.max_ns)}.{_overlapping(group, device)}"
        f"{f' {capital(works_text(group))}.' if group.works > 1 else ''}"
        f"{f' {cut_text(group)}.' if group.cut else ''}"
    )


def _overlapping(group: UnitGroup, device: Device) -> str:
    """Say that units overlap, where they take longer together than the window."""
    window_ns = 0 if device.window is None else device.window.end_ns - device.window.start_ns
    at_once = group.count * group.typical_ns / window_ns if window_ns else 0.0
    return f" About {at_once:.1f} are in flight at a time." if at_once > 1.2 else ""


def _said(slow: SlowUnits, device: Device) -> str:
    main = slow.slowest.main_cause
    if main is None:
        return _found(slow.group, device)
    which = ", the first of this name in the recording," if slow.slowest.first else ""
    longer = f"The slowest{which} took {fmt.duration(slow.slowest.excess_ns)} longer than a typical unit."
    return f"{_found(slow.group, device)}{_differ(slow.group, device)} {longer} {main_cause_text(slow.slowest, main)}."


def _differ(group: UnitGroup, device: Device) -> str:
    """Say between which durations units lie, and when they changed; empty where most are alike."""
    if not group.ranges:
        return ""
    phases = phases_text(group)
    return f" Durations differ: {ranges_text(group)}.{f' {capital(phases)}.' if phases else ''}{_solo(group, device)}"


def _even(group: UnitGroup, device: Device, *, slowed: bool) -> str:
    """Units without a tail: none of them stands out."""
    every = _differ(group, device)
    if not every:
        above = fmt.percent(group.p99_ns / group.p50_ns - 1)
        rule = " This tenant was slowed: its units are slow as a rule." if slowed else ""
        every = f" There is no slow tail: p99 is {above} above p50.{rule}"
    return f"{_found(group, device)}{every}"


def _parts(group: UnitGroup, device: Device) -> Table:
    """What a unit consists of: the tables of causes have what was added only."""
    rows = [(_cause_cell(cause, _behind(cause)), Cell(fmt.duration(cause.typical_ns))) for cause in group.usual]
    if group.usual_rest_ns >= 1:
        rows.append((Cell("other parts"), Cell(fmt.duration(group.usual_rest_ns))))
    whole = f"takes {fmt.duration(group.typical_ns)} (mean of the middle tenth, {group.basis})"
    columns = (Column("Part of a typical unit"), Column("Duration", numeric=True))
    caption = f"A typical unit of {visible(group.tenant, 30)} {whole}.{_most(group)}{_there_solo(device)}"
    return Table(columns, tuple(rows), caption)


def _cause_cell(cause: Excess, more: str = "") -> Cell:
    # What no record explains is known in no way.
    return Cell(f"{cause_text(cause)}{more}", basis=None if cause.kind is SegmentKind.UNEXPLAINED else cause.basis)


def _there_solo(device: Device) -> str:
    """What of a typical unit other tenants have no part in; empty: there are none."""
    if len(device.tenants) < 2:
        return ""
    if TRAITS[device.sharing.mode].same_sms is not False:
        # Beside kernels of others its own take longer, and wait for room on the SMs.
        return " Only a solo recording shows how much of it remains without other tenants."
    return " Its launch calls, execution and own queueing are there solo as well."


def _most(group: UnitGroup) -> str:
    """Say which of several kinds a typical unit is of."""
    if len(group.ranges) < 2 or group.works > 1:
        return ""
    most = max(group.ranges, key=lambda one: one.count)
    span = f"{fmt.duration(most.min_ns)} to {fmt.duration(most.max_ns)}"
    return f" The typical unit is one of the {fmt.count(most.count)} that take {span}."


def _behind(cause: Excess) -> str:
    """What of another tenant a unit queued behind most: a copy waits for copies, which no sharing mode changes."""
    behind = waited_for_text(cause, _NAME) if cause.kind is SegmentKind.QUEUE_OTHER_TENANT else ""
    return f" (mostly {behind})" if behind else ""


def _solo(group: UnitGroup, device: Device) -> str:
    """Say what the shorter units show of a unit without other tenants; empty where none ran so, or nobody can know."""
    short = group.ranges[0]
    if (short.solo or 0) < _FEWEST_SOLO or len(device.tenants) < 2 or group.doubt is not None:
        return ""
    shorter = "shorter ones" if len(group.ranges) > 1 else "units"
    of = f"{fmt.count(short.solo)} of the {fmt.count(short.count)} {shorter}"
    took = fmt.duration(short.solo_p50_ns)
    return f" {of} ran while no other tenant had work on the GPU, and took {took} (median)."


def _few(group: UnitGroup) -> str:
    return (
        f"{visible(group.tenant, 30)}: {fmt.counted(group.count, 'unit')} of {visible(group.name, 60)} "
        f"({source_text(group)}), too few for percentiles: {ENOUGH_FOR_TAIL} units are needed."
    )


def _operation(causes: Sequence[Excess | UnitSegment], which: str = "") -> Column:
    """Head the column of what causes wait for; it explains "behind" where a row says so."""
    behind = '"behind X": waits for X of another unit or tenant' if any(waits_behind(one) for one in causes) else ""
    return Column("Operation", "; ".join(filter(None, (which, behind))))


def _excess(group: UnitGroup) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            _cause_cell(cause),
            Cell(waited_for_text(cause, _NAME)),
            Cell(fmt.duration(cause.typical_ns)),
            Cell(fmt.duration(cause.ns)),
            Cell(fmt.percent(cause.share)),
        )
        for cause in group.largest
    )
    if group.rest_ns:
        rest = (fmt.duration(group.rest_ns), fmt.percent(group.rest_share))
        rows += ((Cell("all other causes"), Cell(""), Cell(""), *(Cell(text) for text in rest)),)
    columns = (
        Column("Cause"),
        _operation(group.largest, "most of the time"),
        Column("Typical unit", "", True),
        Column("Excess", "mean", True),
        Column("Share", "of the excess", True),
    )
    of = f"{fmt.count(group.slow)} of {fmt.count(group.count)}"
    chosen = f"the slowest 1 %, rounded up ({of})" if group.slow > 1 else f"the slowest of {fmt.count(group.count)}"
    caption = f"Excess of {chosen}, over a typical unit.{_most(group)}{_unlike(group)}"
    return Table(columns, rows, caption)


def _unlike(group: UnitGroup) -> str:
    """Say where a mean is that of no one: its largest cause is that of half of the units at most."""
    said = ""
    if group.slow > 1 and group.alike is not None and 2 * group.alike <= group.slow:
        of = f"{fmt.count(group.alike) if group.alike else 'none'} of them"
        said = f" The slowest differ: the first cause is the main cause of {of}{' only' if group.alike else ''}."
    if group.slow > 1 and group.with_first:
        said += " One of them is the first of this name in the recording."
    return said


def _chain(device: Device, unit: ExplainedUnit, *, several: bool) -> Table:
    longest = unit.longest
    rows = tuple(
        (
            # Parts of one step alternate: when it began stands beside the first of them.
            Cell("" if one.same_step(before) else fmt.duration(one.start_ns - unit.start_ns)),
            Cell(fmt.duration(one.dur_ns)),
            Cell(segment_text(one, unit)),
            Cell(segment_operation_text(one, _NAME)),
        )
        for one, before in zip(longest, [None, *longest], strict=False)
    )
    slow = any(one.is_slow for one in longest)
    columns = (
        Column("Begins", "after the start of the unit; empty: with the row above", True),
        Column("Duration", "", True),
        Column("What"),
        _operation(longest, "usually: median of the same operation in the same place" if slow else ""),
    )
    rest = shorter_text(unit)
    left = f" Left out: {rest}." if rest else ""
    window = device.window
    place = "" if window is None else f"{fmt.duration(unit.start_ns - window.start_ns)} after the start of the window, "
    caption = (
        f"The slowest took {fmt.duration(unit.dur_ns)} (pyanalyze explain CAPTURE --unit {unit.unit}), {place}"
        f"{fmt.duration(unit.start_ns)} on the clock of the {'first ' if several else ''}capture.{left}"
    )
    return Table(columns, rows, caption)


SECTION = DeviceSection("slow-requests", "Slow requests", _blocks)
