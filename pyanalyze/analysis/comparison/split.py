"""Was the work equal, and where did the change of its time come from?

The time of a tenant is cut in four, without rest: nothing launched that had not ended (host), launched while another
context was resident (not resident), launched and not started while another tenant ran (not started), in flight and
resident. Where launch calls are not known, what is idle beside others may be the host's as well. Each is taken per unit
of work, so that a run that did twice the work is not called slower; what other work took is taken out of the last
first. Pauses before the work began are no part of it: they do not grow with the work.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.comparison.unit_times import T95, long_unit, unit_changes
from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import recording
from pyanalyze.results.comparison import (
    Change,
    Comparison,
    Configured,
    KernelChange,
    Part,
    Run,
    Split,
    TenantChange,
    UnitChange,
)
from pyanalyze.results.labels import main_device, tenant_labels
from pyanalyze.results.model import Missing
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import NOISE_FLOOR, TRAITS, unless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyanalyze.results.comparison import LongUnit, PartName, UnitsCompared
    from pyanalyze.results.report import Device, Report, Tenant
    from pyanalyze.results.work import Batch, Configuration, Work

__all__ = ["co_ran_words", "compare_reports", "kernel_changes", "long_unit_words", "part_words"]

#: Work per unit that differs by no more than this part of its kernel time is equal: a run may end within a unit.
_EQUAL = 0.02
#: Bytes per unit that differ by no more are equal: what is copied once, before the first unit, is spread over all.
_EQUAL_BYTES = 0.05
#: Configurations that a comparison lists.
_LISTED = 20
#: Units of work that the summary names.
_UNITS_SAID = 2
#: Beyond the table of quantiles: batches of work are not independent of each other.
_T95_MORE = 2.11


@dataclass(frozen=True)
class _Side:
    """A traced tenant with the GPU it ran on."""

    device: Device
    tenant: Tenant
    work: Work
    label: str


def compare_reports(
    a: Report, b: Report, *, noise_floor: float = NOISE_FLOOR, one_numbering: bool = False
) -> Comparison:
    """Compare two reports, see :func:`pyanalyze.compare`; `one_numbering`: redacted names of both are the same.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> compare_reports(report, report).conclusive
    True
    """
    if not 0 <= noise_floor < 1:
        raise UsageError(f"noise_floor is {noise_floor:g}, but must be a fraction from 0 to 1")
    sides_a, sides_b = _sides(a), _sides(b)
    pairs = _pairs(sides_a, sides_b)
    run_a, run_b = _run("A", a), _run("B", b)
    left_out = _left_out(run_a, run_b, a, b, pairs)
    nameless = _nameless(sides_a, sides_b, a, b, one_numbering=one_numbering)
    if nameless is not None:
        left_out.append(nameless)
    other_gpu = any(gap.what == "slower while resident" for gap in left_out)
    tenants = [_tenant(x, y, noise_floor, other_gpu=other_gpu, nameless=nameless) for x, y in pairs]
    # Where nothing was compared, no duration was left out.
    if run_a.mode != run_b.mode and any(pair.change is not None for pair in tenants):
        left_out.insert(0, _raw_durations(run_a, run_b, pairs))
    paired_a, paired_b = {id(x) for x, _ in pairs}, {id(y) for _, y in pairs}
    known = [pair.equal_work for pair in tenants]
    return Comparison(
        a=run_a,
        b=run_b,
        noise_floor=noise_floor,
        equal_work=None if not known or None in known else all(known),
        summary=_summary(run_a, run_b, tenants, nameless) if tenants else _no_pairs(sides_a, sides_b, nameless),
        tenants=tenants,
        only_a=[side.label for side in sides_a if id(side) not in paired_a],
        only_b=[side.label for side in sides_b if id(side) not in paired_b],
        left_out=left_out,
    )


#: A process, and a kernel, as a pack names them.
_PACKED = re.compile(r"(?:process|kernel)-[0-9a-f]{12}")


def _nameless(
    sides_a: list[_Side], sides_b: list[_Side], a: Report, b: Report, *, one_numbering: bool
) -> Missing | None:
    """Why names of one run say nothing about the other's; None: they do."""
    numbered = [report.view is not None and report.view.redacted for report in (a, b)]
    digests = [{c.key for side in sides for c in side.work.configurations} for sides in (sides_a, sides_b)]
    if all(numbered) and not one_numbering:
        why = "names were numbered in each report by itself: kernel-1 of one need not be kernel-1 of the other"
        return Missing(what="names", why=why, how="compare --redact the captures themselves")
    packed = [
        any(_PACKED.fullmatch(c.kernel) for side in sides for c in side.work.configurations)
        for sides in (sides_a, sides_b)
    ]
    if numbered[0] != numbered[1] or (any(packed) and not digests[0] & digests[1]):
        why = "names are pseudonyms in one of the two, or of two keys"
        return Missing(what="names", why=why, how="pack both with one key, or compare both as recorded")
    return None


def _run(label: str, report: Report) -> Run:
    device, view = main_device(report), report.view
    start_ns, end_ns = (None, None) if view is None else (view.start_ns, view.end_ns)
    recordings = [(capture.recording_start_ns, capture.recording_end_ns) for capture in report.captures]
    return Run(
        label=label,
        captures=[capture.path for capture in report.captures],
        mode=None if device is None else device.sharing.mode,
        confidence=None if device is None else device.sharing.confidence,
        condition=None if device is None else device.sharing.condition,
        gpu=None if device is None else device.name,
        sm_count=None if device is None else device.sm_count,
        # Captures keep their whole span where a part of it was chosen.
        events_ns=_span_ns([(capture.start_ns, capture.end_ns) for capture in report.captures], start_ns, end_ns),
        recording_ns=_span_ns(recordings) if start_ns is None and end_ns is None else None,
    )


def _span_ns(
    spans: list[tuple[int | None, int | None]], start_ns: int | None = None, end_ns: int | None = None
) -> int | None:
    """From the first begin to the last end within a window; None: one of them is not known, or there are none."""
    known = [(begin, end) for begin, end in spans if begin is not None and end is not None]
    if not spans or len(known) < len(spans):
        return None
    first, last = min(begin for begin, _ in known), max(end for _, end in known)
    begins, ends = first if start_ns is None else max(first, start_ns), last if end_ns is None else min(last, end_ns)
    return max(ends - begins, 0)


def _sides(report: Report) -> list[_Side]:
    found = []
    for device in report.devices:
        labels = tenant_labels(device.tenants)
        for tenant in device.tenants:
            if tenant.work is not None and tenant.work.launches:
                found.append(_Side(device, tenant, tenant.work, labels[tenant.tenant_id]))
    return found


def _pairs(a: list[_Side], b: list[_Side]) -> list[tuple[_Side, _Side]]:
    """Who is whose counterpart: the only one on each side, else the same name, else the same work."""
    if len(a) == len(b) == 1:
        return [(a[0], b[0])]
    pairs: list[tuple[_Side, _Side]] = []
    left, right = list(a), list(b)
    for side in a:
        # Several clients of one name: the one that did most alike.
        same = [other for other in right if other.tenant.name == side.tenant.name]
        if same:
            best = max(same, key=lambda other: likeness(side.work, other.work))
            pairs.append((side, best))
            left.remove(side)
            right.remove(best)
    for side in left:
        alike = [other for other in right if likeness(side.work, other.work) > 0.5]
        if alike:
            best = max(alike, key=lambda other: likeness(side.work, other.work))
            pairs.append((side, best))
            right.remove(best)
    return pairs


def likeness(a: Work, b: Work) -> float:
    """Kernel time of both in configurations that both launched, over all."""
    keys = {c.key for c in a.configurations} & {c.key for c in b.configurations}
    both = [*a.configurations, *b.configurations]
    whole = sum(c.total_ns for c in both) + a.other_ns + b.other_ns
    return sum(c.total_ns for c in both if c.key in keys) / whole if whole else 0.0


def _raw_durations(a: Run, b: Run, pairs: list[tuple[_Side, _Side]]) -> Missing:
    hidden = any(_hidden(side) for pair in pairs for side in pair)
    again = f"compare resident time, which switch records show: {recording()}   # as root"
    return Missing(
        what="raw kernel durations",
        why=f"A was {a.mode}, B was {b.mode}: a recorded duration may include time of other tenants"
        + ("" if hidden else "; resident time is compared instead"),
        how=again if hidden else "",
    )


def _left_out(a: Run, b: Run, report_a: Report, report_b: Report, pairs: list[tuple[_Side, _Side]]) -> list[Missing]:
    gaps = []
    boards_a, boards_b = ({(x.device.name, x.device.sm_count) for x, _ in pairs}, {_board(y) for _, y in pairs})
    if pairs and boards_a != boards_b:
        both = tuple(f"{_names(boards)}, {_sms(boards)} SMs" for boards in (boards_a, boards_b))
        gaps.append(
            Missing(
                what="slower while resident",
                why=f"the GPUs differ (A: {both[0]}; B: {both[1]}), so kernels take other times",
                how="record both on the same kind of GPU",
            )
        )
    graphs = [(x.work.graph_launches > 0, y.work.graph_launches > 0) for x, y in pairs]
    if any(one != other for one, other in graphs):
        gaps.append(
            Missing(
                what="work of CUDA graphs",
                why="one run traced graphs as a whole, the other did not or had none: their launches do not correspond",
                how="record both with the same --cuda-graph-trace",
            )
        )
    without = {
        label: side
        for x, y in pairs
        for label, side, other in (("A", x, y), ("B", y, x))
        if other.work.residency_known and not side.work.residency_known
    }
    gaps += [_no_residency(label, side) for label, side in without.items()]
    versions_a, versions_b = _versions(report_a), _versions(report_b)
    if versions_a != versions_b:
        gaps.append(
            Missing(
                what="host overhead of tracing",
                why=f"exported by different nsys versions ({versions_a} and {versions_b}): where these recorded the "
                "runs too, their overhead differs",
                how="record both with the same nsys and the same switches",
            )
        )
    return gaps


def _no_residency(label: str, side: _Side) -> Missing:
    """Why residency of the other run has no counterpart in this one."""
    what = "residency of one run"
    traits = TRAITS[side.device.sharing.mode]
    if traits.mps and traits.time_sliced is False:
        why = f"clients of one MPS server, as in {label}, do not switch contexts, so there is no residency to compare"
        return Missing(what=what, why=why, how="")
    traced = next(iter(side.device.missing_for("context_switches")), None)
    why = f"{label} has no switch records; its time switched out is not known"
    # What its own report says: a recording of switches that came to nothing is not repeated.
    return Missing(what=what, why=why, how=f"record both: {recording()}   # as root" if traced is None else traced.how)


def _board(side: _Side) -> tuple[str | None, int | None]:
    return side.device.name, side.device.sm_count


def _names(boards: set[tuple[str | None, int | None]]) -> str:
    return " and ".join(sorted({visible(name) or "a GPU of unknown name" for name, _ in boards}))


def _sms(boards: set[tuple[str | None, int | None]]) -> str:
    return ", ".join(sorted(fmt.count(count) for _, count in boards))


def _versions(report: Report) -> str:
    found = sorted({visible(c.nsys_version, 24) or "unknown" for c in report.captures})
    return ", ".join(found) or "unknown"


def units_of(a: Work, b: Work) -> float | None:
    """How often B did what A did: the ratio of launches under which most of A's kernel time lies; None: no overlap."""
    in_b = {c.key: c.launches for c in b.configurations}
    ratios = sorted((in_b[c.key] / c.launches, c.attributed_total_ns + 1) for c in a.configurations if c.key in in_b)
    half, below = sum(weight for _, weight in ratios) / 2, 0
    for ratio, weight in ratios:
        below += weight
        if below >= half:
            # The median is that of one configuration, perhaps a rare one: all that are near it say it better.
            near = [c for c in a.configurations if c.key in in_b and abs(in_b[c.key] / c.launches / ratio - 1) <= 0.05]
            return sum(in_b[c.key] for c in near) / sum(c.launches for c in near)
    return None


def _called(a: Configuration | None, b: Configuration | None) -> str:
    """The name of a kernel in the run that tells it from more kernels: a name depends on the others of its run."""
    return max((one.kernel for one in (a, b) if one is not None), key=len)


@dataclass(frozen=True)
class _Mix:
    """How the work per unit of B differs from that of A."""

    changed: list[tuple[float, Configured]]
    changed_share: float
    growth: float
    equal: bool | None


def _mix(a: Work, b: Work, units: float) -> _Mix:
    rows_a, rows_b = ({c.key: c for c in work.configurations} for work in (a, b))
    whole = sum(c.attributed_total_ns for c in a.configurations)
    moved = grown = 0.0
    changed = []
    for key in (*rows_a, *(key for key in rows_b if key not in rows_a)):
        one, other = rows_a.get(key), rows_b.get(key)
        shape = one or other
        if shape is None:
            continue
        launches_a, launches_b = (0 if c is None else c.launches for c in (one, other))
        expected = launches_a * units
        each = shape.attributed_total_ns / shape.launches
        # Runs end within a unit: a launch or two are no difference.
        delta = launches_b - expected
        if abs(delta) <= max(2.0, 0.01 * expected):
            continue
        moved += abs(delta) / units * each
        grown += delta / units * each
        row = Configured(
            kernel=_called(one, other),
            grid_blocks=shape.grid_blocks,
            block_threads=shape.block_threads,
            launches_a=launches_a,
            launches_b=launches_b,
            expected_b=expected,
        )
        changed.append((abs(delta) / units * each, row))
    share = moved / whole if whole else 0.0
    # What is not listed cannot be compared one by one.
    unlisted = a.other_ns / max(whole + a.other_ns, 1) > _EQUAL
    equal = None if unlisted and share <= _EQUAL else share <= _EQUAL
    return _Mix(sorted(changed, key=lambda item: -item[0]), share, grown / whole if whole else 0.0, equal)


def kernel_changes(a: Work, b: Work, units: float | None, floor: float) -> list[KernelChange]:
    """Compare two runs kernel by kernel, in resident time: time switched out is no property of a kernel.

    Parameters
    ----------
    a, b
        What a tenant did in each.
    units
        Units of work of B for each of A; None: not known, and then the runs are compared as they are.
    floor
        Relative changes below it are not told from noise.

    Returns
    -------
    list of KernelChange
        By the size of the effect on the sum of kernel times, at most 20.
    """
    rows_a, rows_b = ({c.key: c for c in work.configurations} for work in (a, b))
    found = [_kernel(rows_a.get(key), rows_b.get(key), units or 1.0, floor) for key in {**rows_a, **rows_b}]
    return sorted(found, key=lambda row: (-abs(row.effect_ns), row.kernel))[:_LISTED]


def _kernel(a: Configuration | None, b: Configuration | None, units: float, floor: float) -> KernelChange:
    shape = a or b
    if shape is None:
        raise ValueError("a kernel of neither run")
    launches_a, launches_b = (0 if one is None else one.launches for one in (a, b))
    total_a, total_b = (0 if one is None else one.attributed_total_ns for one in (a, b))
    change = None
    if a is not None and b is not None and total_a > 0:
        mean_a, mean_b = total_a / a.launches, total_b / b.launches
        value = mean_b / mean_a - 1
        if a.attributed_sd_ns is not None and b.attributed_sd_ns is not None:
            # Of a ratio of means: their relative errors, each from the spread of its launches.
            error_a = a.attributed_sd_ns / math.sqrt(a.launches) / mean_a
            error_b = b.attributed_sd_ns / math.sqrt(b.launches) / mean_a
            t = T95[min(a.launches, b.launches) - 2] if min(a.launches, b.launches) - 2 < len(T95) else 1.96
            half = max(t * math.hypot(error_a * (1 + value), error_b), floor)
            change = Change(
                value=value,
                low=max(value - half, -1.0),
                high=value + half,
                n=a.launches + b.launches,
                significant=abs(value) > half,
            )
    return KernelChange(
        kernel=_called(a, b),
        grid_blocks=shape.grid_blocks,
        block_threads=shape.block_threads,
        launches_a=launches_a,
        launches_b=launches_b,
        total_a_ns=total_a,
        total_b_ns=total_b,
        mean_a_ns=None if not launches_a else total_a / launches_a,
        mean_b_ns=None if not launches_b else total_b / launches_b,
        p99_a_ns=None if a is None else a.attributed_p99_ns,
        p99_b_ns=None if b is None else b.attributed_p99_ns,
        change=change,
        effect_ns=total_b / units - total_a,
    )


def _kernels_found(a: Work, b: Work) -> int | None:
    """How many launch configurations both have together; None: those that a report does not list may be the same."""
    if a.other_launches or b.other_launches:
        return None
    return len({c.key for c in (*a.configurations, *b.configurations)})


def _equal_bytes(a: Work, b: Work, units: float) -> bool | None:
    if a.copy_bytes is None or b.copy_bytes is None:
        return None
    expected = a.copy_bytes * units
    return abs(b.copy_bytes - expected) <= _EQUAL_BYTES * max(expected, 1)


def _tenant(a: _Side, b: _Side, floor: float, *, other_gpu: bool, nameless: Missing | None) -> TenantChange:
    label = a.label if a.label == b.label else f"{a.label} → {b.label}"
    units = units_of(a.work, b.work)
    why: str | None
    time_a, time_b = _time(a.work), _time(b.work)
    # Names that were replaced in one of the two name other units.
    of_units = [] if nameless is not None else unit_changes(a.work, b.work, floor)
    if units is None or not time_a or nameless is not None:
        kernels = a.work.graph_launches != a.work.launches and b.work.graph_launches != b.work.launches
        why = (
            "they have no kernel in common"
            if kernels
            else "graphs were traced as a whole, so their kernels are not known"
        )
        if kernels and nameless is not None:
            why, kernels = f"{nameless.why}: launches of one cannot be matched with those of the other", False
        mix, equal, change = _Mix([], 1.0, 0.0, None), (False if kernels else None), None
        parts: list[Part] = []
    else:
        mix = _mix(a.work, b.work, units)
        equal_bytes = _equal_bytes(a.work, b.work, units)
        equal = mix.equal if equal_bytes is not False else False
        change = change_of(a.work, b.work, units, floor)
        parts, why = _split(a, b, units, mix, floor, other_gpu=other_gpu)
    return TenantChange(
        label=label,
        tenant_a=a.tenant.tenant_id,
        tenant_b=b.tenant.tenant_id,
        equal_work=equal,
        units=units,
        changed_work=mix.changed_share,
        launches_a=a.work.launches,
        launches_b=b.work.launches,
        copy_bytes_a=a.work.copy_bytes,
        copy_bytes_b=b.work.copy_bytes,
        changed=[row for _, row in mix.changed[:_LISTED]],
        kernels=[] if nameless is not None else kernel_changes(a.work, b.work, units, floor),
        kernels_found=_kernels_found(a.work, b.work),
        kernels_overlap=_overlap(a.work, b.work),
        unit_changes=of_units,
        long_unit=None if change is None else long_unit(of_units, units or 1.0, change.value * time_a),
        time_a_ns=time_a,
        time_b_ns=time_b,
        startup_a_ns=a.work.startup_ns,
        startup_b_ns=b.work.startup_ns,
        split_a=_where(a.work, 1.0),
        split_b=_where(b.work, units or 1.0),
        change=change,
        parts=parts,
        why=why,
    )


def _time(work: Work) -> int:
    return sum(b.idle_ns + b.idle_not_resident_ns + b.idle_other_resident_ns + b.busy_ns for b in work.batches)


def _where(work: Work, scale: float) -> Split:
    rows = work.batches
    absent, beside = [x.waiting_not_resident_ns for x in rows], [x.waiting_other_resident_ns for x in rows]
    return Split(
        idle_ns=sum(x.idle_ns for x in rows) / scale,
        idle_not_resident_ns=sum(x.idle_not_resident_ns for x in rows) / scale,
        idle_other_resident_ns=sum(x.idle_other_resident_ns for x in rows) / scale,
        not_resident_ns=sum(x.busy_ns - x.attributed_ns for x in rows) / scale,
        resident_ns=sum(x.attributed_ns for x in rows) / scale,
        waiting_not_resident_ns=None if None in absent else sum(ns or 0 for ns in absent) / scale,
        waiting_other_resident_ns=None if None in beside else sum(ns or 0 for ns in beside) / scale,
    )


def _spread(a: Sequence[float], b: Sequence[float]) -> float:
    """Half width of the 95 % interval of the sum of `b` less the sum of `a`, from their batches.

    The same program goes through the same phases: batch by batch its two runs differ by less than either varies.
    """
    if len(a) != len(b):
        return math.hypot(_half_width(a), _half_width(b))
    return _half_width([y - x for x, y in zip(a, b, strict=True)])


def _half_width(values: Sequence[float]) -> float:
    n = len(values)
    if n < 2:
        return math.inf
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    t = T95[n - 2] if n - 2 < len(T95) else _T95_MORE
    return t * math.sqrt(variance * n)


def change_of(a: Work, b: Work, units: float, floor: float) -> Change:
    time_a, time_b = _time(a), _time(b) / units
    value = time_b / time_a - 1
    lasted_a, lasted_b = ([_lasted_ns(x) for x in w.batches] for w in (a, b))
    # A ratio: what is left of a batch of B when its counterpart is inflated like the whole.
    spread = _spread([x * (1 + value) for x in lasted_a], [y / units for y in lasted_b]) / time_a
    # One batch says nothing of its spread: then nothing below a doubling is told from noise.
    half = max(spread if math.isfinite(spread) else 1.0, floor)
    return Change(
        value=value,
        # No time is shorter than none.
        low=max(value - half, -1.0),
        high=value + half,
        n=len(a.batches) + len(b.batches),
        significant=abs(value) > half,
    )


def _split(
    a: _Side, b: _Side, units: float, mix: _Mix, floor: float, *, other_gpu: bool
) -> tuple[list[Part], str | None]:
    time_a = _time(a.work)

    def noise(pick: Callable[[Batch], float]) -> float:
        spread = _spread([pick(x) for x in a.work.batches], [pick(y) / units for y in b.work.batches])
        return spread if math.isfinite(spread) else float(time_a)

    was, is_ = _where(a.work, 1.0), _where(b.work, units)
    out, held = is_.not_resident_ns - was.not_resident_ns, is_.resident_ns - was.resident_ns
    # Kernels of one tenant that ran beside each other took less of its time than their sum: so may what was added.
    by_sum = was.resident_ns * mix.growth
    work_low, work_high = (min(0.0, by_sum), max(0.0, by_sum)) if _overlap(a.work, b.work) else (by_sum, by_sum)
    work = min(max(held, work_low), work_high)
    slow = held - work
    idle = _idle(was, is_)
    host, away, near = idle.host, idle.away, idle.near
    launches_known = idle.launches_known

    def part(name: PartName, value: float, low: float, high: float, *, launched: bool | None, bounds: float) -> Part:
        return Part(
            name=name,
            value_ns=value,
            low_ns=low,
            high_ns=high,
            share=value / time_a,
            launches_known=launched,
            value_known=not (low <= 0 <= high and bounds > floor * time_a),
            significant=(low > 0 or high < 0) and abs(value) > floor * time_a,
        )

    def bounded(
        name: PartName, value: float, bounds: tuple[float, float], width: float, *, launched: bool | None
    ) -> Part:
        low, high = bounds
        return part(name, value, low - width, high + width, launched=launched, bounds=high - low)

    parts = [
        bounded("work", work, (work_low, work_high), 0.0, launched=None),
        bounded("host", host[0], host[1:], noise(_host_ns if launches_known else _idle_ns), launched=launches_known),
    ]
    why = None
    if _hidden(a) or _hidden(b):
        width = math.hypot(noise(_out_ns), noise(_held_ns), noise(_near_ns) if launches_known else 0.0)
        both = out + slow + away[0] + near[0]
        low, high = away[1] + near[1] + work - work_high, away[2] + near[2] + work - work_low
        bounds = out + slow + low, out + slow + high
        parts.append(bounded("in_flight", both, bounds, width, launched=launches_known))
        why = "without switch records, waiting for residency and slower execution cannot be separated"
    else:
        bounds = out + away[1], out + away[2]
        width = noise(_away_ns if launches_known else _out_ns)
        parts.append(bounded("not_resident", out + away[0], bounds, width, launched=launches_known))
        if any(near):
            width = noise(_near_ns) if launches_known else 0.0
            parts.append(bounded("not_started", near[0], near[1:], width, launched=launches_known))
        if other_gpu:
            why = "slower execution are left out: the GPUs differ"
        else:
            bounds = held - work_high, held - work_low
            parts.append(bounded("resident", slow, bounds, noise(_held_ns), launched=None))
    return parts, why


@dataclass(frozen=True)
class _Idle:
    """The change of the time in which a tenant had nothing in flight: value, least and most of each part."""

    host: tuple[float, float, float]
    away: tuple[float, float, float]
    near: tuple[float, float, float]
    launches_known: bool


def _idle(was: Split, is_: Split) -> _Idle:
    """Who had the idle time: the host, which launched nothing, or others, whose work was in the way."""
    waits = [
        (one.waiting_not_resident_ns, one.waiting_other_resident_ns)
        for one in (was, is_)
        if one.waiting_not_resident_ns is not None and one.waiting_other_resident_ns is not None
    ]
    idle, absent = is_.idle_ns - was.idle_ns, is_.idle_not_resident_ns - was.idle_not_resident_ns
    beside = is_.idle_other_resident_ns - was.idle_other_resident_ns
    if len(waits) == 2:
        away, near = waits[1][0] - waits[0][0], waits[1][1] - waits[0][1]
        host = idle + absent - away + beside - near
        return _Idle((host,) * 3, (away,) * 3, (near,) * 3, launches_known=True)
    # Idle while another was in the way: waiting for it, or nothing to do. The host is given as little of the
    # change as both readings allow, the rest goes to who was in the way, and the bounds say what else it may be.
    host_low = idle - was.idle_not_resident_ns - was.idle_other_resident_ns
    host_high = idle + is_.idle_not_resident_ns + is_.idle_other_resident_ns
    host = min(max(0.0, host_low), host_high)
    # What the host takes beyond its own idle time comes from the two in proportion.
    taken, either = host - idle, absent + beside
    from_absent = taken * (absent / either if either else 0.5)
    away, near = absent - from_absent, beside - (taken - from_absent)
    return _Idle(
        (host, host_low, host_high),
        (away, min(away, -was.idle_not_resident_ns), max(away, is_.idle_not_resident_ns)),
        (near, min(near, -was.idle_other_resident_ns), max(near, is_.idle_other_resident_ns)),
        launches_known=False,
    )


def _overlap(*works: Work) -> bool:
    """Whether kernels of one of them ran beside each other: their sum is more than the time in which any ran."""
    sums = (
        (sum(c.attributed_total_ns for c in w.configurations), sum(x.attributed_ns for x in w.batches)) for w in works
    )
    return any(each > (1 + _EQUAL) * together for each, together in sums)


def _lasted_ns(batch: Batch) -> float:
    return float(batch.idle_ns + batch.idle_not_resident_ns + batch.idle_other_resident_ns + batch.busy_ns)


def _idle_ns(batch: Batch) -> float:
    return float(batch.idle_ns)


def _held_ns(batch: Batch) -> float:
    return float(batch.attributed_ns)


def _out_ns(batch: Batch) -> float:
    return float(batch.busy_ns - batch.attributed_ns)


def _away_ns(batch: Batch) -> float:
    return _out_ns(batch) + (batch.waiting_not_resident_ns or 0)


def _near_ns(batch: Batch) -> float:
    return float(batch.waiting_other_resident_ns or 0)


def _host_ns(batch: Batch) -> float:
    return _lasted_ns(batch) - _held_ns(batch) - _away_ns(batch) - _near_ns(batch)


def _hidden(side: _Side) -> bool:
    """Whether a tenant may have been switched out without a trace: there are no switch records."""
    return not side.work.residency_known and TRAITS[side.device.sharing.mode].time_sliced is not False


_WORDS = {
    "work": "other work",
    "host": "host time",
    "not_resident": "waiting for its time slice",
    "not_started": "waiting to start while another tenant ran",
    "resident": "slower execution",
    "in_flight": "waiting for its time slice or slower execution",
}
#: Where launch calls do not tell what the host had launched.
_WORDS_WITHOUT_CALLS = {"not_started": "idle while another tenant ran (reason not recorded)"}


def part_words(part: Part) -> str:
    """A part in words.

    Examples
    --------
    >>> from pyanalyze.results.comparison import Part
    >>> rest = {"value_ns": 0, "low_ns": 0, "high_ns": 0, "share": 0, "significant": False, "value_known": True}
    >>> part_words(Part(name="host", launches_known=True, **rest))
    'host time'
    """
    return (_WORDS_WITHOUT_CALLS if part.launches_known is False else {}).get(part.name, _WORDS[part.name])


def _no_pairs(sides_a: list[_Side], sides_b: list[_Side], nameless: Missing | None) -> str:
    """Why there is nothing to compare, and what makes a pair of two processes."""
    text = "The runs cannot be compared: no traced tenant of one has a counterpart in the other."
    if nameless is not None:
        return f"{text} {capital(nameless.why)}: {nameless.how}."
    if not sides_a or not sides_b:
        which = "A and B have" if not sides_a and not sides_b else "B has" if sides_a else "A has"
        return f"{text} {which} no traced tenant with kernels: record with {recording()}"
    there_a, there_b = (
        fmt.names([f"{visible(side.tenant.name)} {side.tenant.pid}" for side in sides], most=3)
        for sides in (sides_a, sides_b)
    )
    pairing = "Give a process of each one name: --tenant NAME=PID --tenant NAME=PID."
    return f"{text} {pairing} A has {there_a}; B has {there_b}."


def _summary(a: Run, b: Run, tenants: list[TenantChange], nameless: Missing | None) -> str:
    known = [pair.equal_work for pair in tenants]
    if None in known:
        work = "Equal work: not known for every tenant"
    else:
        work = "Equal work: yes, per unit" if all(known) else "Equal work: no"
    if (a.mode, a.condition) == (b.mode, b.condition):
        modes = f"{a.mode or 'no activity'} in both{unless(a.condition, a.mode)}"
    else:
        before, after = (f"{run.mode or 'no activity'}{unless(run.condition, run.mode)}" for run in (a, b))
        modes = f"sharing mode of A: {before}; of B: {after}"
    text = f"{work}; {modes}.{_units_summary(tenants)}"
    changed = [pair for pair in tenants if pair.change is not None]
    # A small change that is certain goes before a large one that is not.
    certain = [pair for pair in changed if pair.change is not None and pair.change.significant]
    worst = max(
        certain or changed, key=lambda pair: abs(pair.change.value) if pair.change is not None else 0.0, default=None
    )
    if worst is None or worst.change is None:
        return f"{text} The change of time is not known: {tenants[0].why}."
    how = "slower" if worst.change.value > 0 else "faster"
    if not worst.change.significant:
        most = (
            f"{fmt.signed_percent(worst.change.value)}, not significant (95 % CI "
            f"{fmt.signed_percent(worst.change.low)} to {fmt.signed_percent(worst.change.high)}, n = {worst.change.n})"
        )
        return f"{text} Largest change of time per unit of work: {worst.label} {most}.{_long(worst)}"
    long = _long(worst)
    text += f" {worst.label} is {fmt.percent(abs(worst.change.value))} {how} per unit of work"
    causes = [p for p in worst.parts if p.significant and p.value_ns * worst.change.value > 0]
    if not causes:
        return f"{text}; no single cause is significant.{long}"
    top = max(causes, key=lambda p: abs(p.value_ns))
    if (top.share or 0.0) / worst.change.value < 0.5:
        return f"{text}; the largest certain part is {part_words(top)} ({fmt.signed_percent(top.share or 0.0)}).{long}"
    return f"{text}, mostly {part_words(top)} ({fmt.signed_percent(top.share or 0.0)}).{long}"


def _units_summary(tenants: list[TenantChange]) -> str:
    """Which named units of work changed: what a server or a training is judged by; nothing where none did."""
    units = [(pair, unit) for pair in tenants for unit in pair.unit_changes if unit.named]
    # What all units seem to say is set right where it is not of how tenants shared.
    changed = [(pair, unit) for pair, unit in units if _unit_change(unit) or _unit_change(unit.like_for_like)]
    said = sorted(changed, key=lambda one: -abs(_change_value(one[1].like_for_like)))[:_UNITS_SAID]
    return "".join(f" {pair.label}: {unit_words(unit)}." for pair, unit in said)


def _unit_change(unit: UnitsCompared) -> Change | None:
    """The change that is significant: that of the median, else of the mean; None: neither is."""
    changes = (unit.p50_change, unit.mean_change)
    return next((change for change in changes if change is not None and change.significant), None)


def _change_value(unit: UnitsCompared) -> float:
    change = _unit_change(unit)
    return 0.0 if change is None else change.value


def unit_words(unit: UnitChange) -> str:
    """The change of a unit of work in words: of its median, or of its mean where only that changed.

    Of those that co-ran with another tenant, where that is not as often in both runs, and then of all.

    Examples
    --------
    >>> import pyanalyze
    >>> unit_words(pyanalyze.compare(capture, capture).tenants[0].unit_changes[0])[-22:]
    '0.0 %, not significant'
    """
    if not unit.co_ran_unlike:
        return _compared_words(unit)
    if unit.like_for_like is unit:
        return f"{_compared_words(unit)}. {capital(co_ran_words(unit))}"
    what = f"p50 {fmt.duration(unit.p50_a_ns)} → {fmt.duration(unit.p50_b_ns)}"
    return (
        f"{_compared_words(unit.like_for_like, ' that co-ran with another tenant')}. Over all of them: {what}; "
        f"{co_ran_words(unit)}"
    )


def co_ran_words(unit: UnitChange) -> str:
    """How many units of each run are of times in which other tenants had work; both counts are known.

    Examples
    --------
    >>> co_ran_words(UnitChange.model_construct(count_a=54, count_b=37, co_ran_count_a=27, co_ran_count_b=37))
    'in A 27 of 54 fall into times in which others had work, in B 37 of 37'
    """
    a, b = (fmt.count(count) for count in (unit.co_ran_count_a, unit.co_ran_count_b))
    of_a, of_b = fmt.count(unit.count_a), fmt.count(unit.count_b)
    return f"in A {a} of {of_a} fall into times in which others had work, in B {b} of {of_b}"


def _compared_words(unit: UnitsCompared, which: str = "") -> str:
    of_mean = _unit_change(unit) is not None and _unit_change(unit) is unit.mean_change
    what, a, b, change = (
        ("mean", unit.mean_a_ns, unit.mean_b_ns, unit.mean_change)
        if of_mean
        else ("p50", unit.p50_a_ns, unit.p50_b_ns, unit.p50_change)
    )
    text = f'{what} of "{visible(unit.name, 60)}"{which} {fmt.duration(round(a))} → {fmt.duration(round(b))}'
    if change is None:
        return text
    if not change.significant:
        return f"{text}, {fmt.signed_percent(change.value)}, not significant"
    return (
        f"{text}, {fmt.signed_percent(change.value)} (95 % CI {fmt.signed_percent(change.low)} to "
        f"{fmt.signed_percent(change.high)})"
    )


def _long(pair: TenantChange) -> str:
    return f" {long_unit_words(pair.long_unit)}" if pair.long_unit is not None else ""


def long_unit_words(unit: LongUnit) -> str:
    """Say that most of a change of the elapsed time is a single unit of work.

    Examples
    --------
    >>> from pyanalyze.results.comparison import LongUnit
    >>> long_unit_words(LongUnit(name="step", run="A", longest_ns=88_700_000, p50_ns=14_400_000))
    'Most of that change is a single "step" of A: it took 88.70 ms (p50 14.40 ms).'
    """
    return (
        f'Most of that change is a single "{visible(unit.name, 60)}" of {unit.run}: it took '
        f"{fmt.duration(unit.longest_ns)} (p50 {fmt.duration(unit.p50_ns)})."
    )
