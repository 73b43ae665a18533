"""Forecasts of copies, as a page of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.copies import KNEE
from pyanalyze.analysis.advice.options import AS_GOOD
from pyanalyze.report.blocks import Block, Cell, Chart, Column, Note, Page, Para, Section, Table
from pyanalyze.report.forms import file_of
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import COPY_CONDITION_TEXT, UNIT_SOURCE_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

    from pyanalyze.results.replicas import Copies, Estimate, Knee, ReplicaAdvice, ReplicaOption
    from pyanalyze.vocabulary import CopyCondition

__all__ = ["render_replicas", "replicas_page", "replicas_text"]

_BEST = {"throughput": "most throughput", "latency": "least p99 latency", "fairness": "the most equal progress"}
_PARETO = "Pareto-optimal"
#: A smaller change of throughput by one more copy is said to be none: forecasts do not tell it.
_SAME_THROUGHPUT = 0.01
#: Part of the time without work on the GPU from which on the pace of the program decides its throughput.
_MOSTLY_IDLE = 0.5
#: Copies of which each has its cap in the table; of more, the smallest and the largest.
_SHOWN_CAPS = 4
_MARKS = {"yes": "yes", "no": "no", "cannot-tell": "cannot tell"}


def _times(option: ReplicaOption) -> str:
    one = option.throughput
    if any(t.at_least for t in option.tenants):
        return f"at most {one.high:.2f}x"
    return f"{one.value:.2f}x ({one.low:.2f}-{one.high:.2f})"


def _who(tenants: Sequence[Copies]) -> str:
    return " + ".join(f"{t.copies} x {visible(t.name, 40)}" for t in tenants)


def _span(one: Estimate) -> str:
    """A time with its interval; a unit that all of them have stands once.

    Examples
    --------
    >>> from pyanalyze.results.replicas import Estimate
    >>> _span(Estimate(value=38.94e6, low=32.45e6, high=89.2e6)), _span(Estimate(value=1e6, low=900e3, high=2e6))
    ('38.94 ms (32.45-89.20)', '1.000 ms (900 us-2.000 ms)')
    """
    value, low, high = (fmt.duration(ns) for ns in (one.value, one.low, one.high))
    unit = f" {value.rpartition(' ')[2]}"
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    return f"{value} ({low}-{high})"


def _has_p50(advice: ReplicaAdvice) -> bool:
    """Whether the table has room for the median: one tenant, and no objective."""
    several = any(len(option.tenants) > 1 for option in advice.options)
    return not several and all(option.meets_slo is None for option in advice.options)


def _table(advice: ReplicaAdvice) -> Table:
    """One row a configuration: few columns, so that they stand beside each other in a terminal."""
    options = advice.options
    mixed = any(len(option.tenants) > 1 for option in options)
    order = list(_names(advice))
    slo = any(option.meets_slo is not None for option in options)
    caps = any(option.percentages for option in options)
    columns = [Column("Copies", numeric=not mixed), Column("Configuration")]
    columns += [Column("Caps")] if caps else []
    columns.append(Column("Throughput"))
    if mixed or advice.latency_of is None:
        columns.append(Column("Slowdown", "worst", numeric=True))
    if advice.latency_of is not None:
        columns += [Column("p50", numeric=True)] if _has_p50(advice) else []
        columns.append(Column("p99"))
    columns.append(Column("SM use", numeric=True))
    columns += [Column("Meets", "the p99 objective")] if slo else []
    rows = []
    for option in options:
        slowest = max(option.tenants, key=lambda t: (t.p99_ns or t.slowdown).value)
        copies = {t.tenant_id: str(t.copies) for t in option.tenants}
        cells = ["+".join(copies.get(tenant, "0") for tenant in order), visible(option.name, 60)]
        cells += [_caps(option)] if caps else []
        cells.append(_times(option))
        if mixed or advice.latency_of is None:
            cells.append(f"{max(t.slowdown.value for t in option.tenants):.2f}x")
        if slowest.p50_ns is not None and slowest.p99_ns is not None:
            p50, known = fmt.duration(slowest.p50_ns.value), _span(slowest.p99_ns)
            if slowest.at_least:
                p50, known = (f"at least {fmt.duration(one.low)}" for one in (slowest.p50_ns, slowest.p99_ns))
            cells += [p50, known] if _has_p50(advice) else [known]
        cells.append("" if option.utilisation is None else fmt.percent(option.utilisation, 0))
        cells += [_MARKS[option.meets_slo or "cannot-tell"]] if slo else []
        cells.append(_remark(advice, option))
        rows.append(tuple(Cell(text) for text in cells))
    return Table((*columns, Column("Remark")), tuple(rows))


def _caps(option: ReplicaOption) -> str:
    """The percentages to set, copies in the order of their tenants; one where all have the same."""
    found = option.percentages
    if not found:
        return ""
    if len(set(found)) == 1:
        return f"{found[0]} %"
    if len(found) <= _SHOWN_CAPS:
        return f"{'+'.join(map(str, found))} %"
    return f"{min(found)} to {max(found)} %"


def _names(advice: ReplicaAdvice) -> dict[int, str]:
    """Names of all tenants that have copies, by id, in the order in which the table counts them."""
    found = {t.tenant_id: visible(t.name, 40) for option in advice.options for t in option.tenants}
    return dict(sorted(found.items()))


def _mark(option: ReplicaOption) -> str:
    marks = (
        ("best", option.recommended),
        ("current", option.current),
        ("too large", option.memory_fits == "no"),
        (_PARETO, option.pareto),
    )
    # The best and the current one are named where they stand on the front as well.
    return next((word for word, on in marks if on), "")


def _remark(advice: ReplicaAdvice, option: ReplicaOption) -> str:
    """The mark of a row; of what was recorded, the recorded latencies of the tenant that the row is of."""
    mark = _mark(option)
    slowest = max(option.tenants, key=lambda t: (t.p99_ns or t.slowdown).value)
    found = next((one for one in advice.check.recorded if one.tenant_id == slowest.tenant_id), None)
    if not option.current or found is None or slowest.p99_ns is None:
        return mark
    p50 = f"p50 {fmt.duration(found.p50_ns)}, " if _has_p50(advice) else ""
    return f"{mark}; recorded {p50}p99 {fmt.duration(found.p99_ns)}"


def _ordinal(n: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{n}{'th' if 10 <= n % 100 <= 20 else ends.get(n % 10, 'th')}"


def _lead(advice: ReplicaAdvice) -> list[Block]:
    """What to do, in at most four sentences."""
    blocks: list[Block] = []
    best = next((option for option in advice.options if option.recommended), None)
    if best is not None:
        caps = f" ({_caps(best)})" if best.percentages else ""
        who = f"For {_who(best.tenants)}, {visible(best.name, 60)}{caps}"
        what = _BEST[advice.objective]
        said = f"{who} has {what}: {_times(best)} of one solo copy."
        if _outdone(advice, best):
            said = (
                f"{who} gives {_times(best)} of one solo copy. No configuration is forecast more than "
                f"{fmt.percent(AS_GOOD, 0)} better, and this is the simplest of those so good."
            )
        if not advice.certain:
            said += " Intervals overlap, so others may be better."
        blocks.append(Para(said))
    elif advice.options:
        blocks.append(Para(_none_allowed(advice)))
    if idle := [one for one in advice.idle if one.part >= _MOSTLY_IDLE]:
        each = [
            f"a copy of {visible(one.name, 40)} has no work on the GPU for {fmt.percent(one.part)} of the time"
            for one in idle
        ]
        blocks.append(
            Para(f"At the recorded pace: {fmt.names(each)}. Throughput is that of the recorded load, not capacity.")
        )
    if advice.knee is not None:
        blocks.append(Para(_knee(advice, advice.knee, None if best is None else best.copies)))
    return blocks


def _none_allowed(advice: ReplicaAdvice) -> str:
    """Which limit no configuration keeps; of the objective also whether one solo copy does."""
    large = [one for one in advice.options if one.memory_fits == "no"]
    if len(large) == len(advice.options):
        return "No configuration fits in memory."
    asked = f"the objective, a p99 latency of at most {fmt.duration(advice.slo_p99_ns)}"
    said = f"No configuration that fits in memory meets {asked}." if large else f"No configuration meets {asked}."
    solo = {t.tenant_id: t for option in advice.options for t in option.tenants}
    missed = [
        f"{visible(t.name, 40)} {fmt.duration(t.solo_p99_ns)}"
        for _, t in sorted(solo.items())
        if t.solo_p99_ns and advice.slo_p99_ns and t.solo_p99_ns > advice.slo_p99_ns
    ]
    if missed:
        said += f" Solo on the whole GPU it is missed already: {fmt.names(missed)}."
    return said


def _outdone(advice: ReplicaAdvice, best: ReplicaOption) -> bool:
    """Whether a row that is allowed is better in the figure that the objective is about."""
    allowed = [one for one in advice.options if one.memory_fits != "no" and one.meets_slo != "no"]
    match advice.objective:
        case "throughput":
            return any(one.throughput.value > best.throughput.value for one in allowed)
        case "latency":
            return any(_slowest(one) < _slowest(best) for one in allowed)
        case _:
            return any(one.fairness > best.fairness for one in allowed)


def _slowest(option: ReplicaOption) -> float:
    return max((one.p99_ns or one.slowdown).value for one in option.tenants)


def _knee(advice: ReplicaAdvice, knee: Knee, advised: int | None) -> str:
    """Where one more copy stops to pay, and what that means where more copies are the best."""
    least = fmt.percent(KNEE, 0)
    if knee.next_gain is None:
        allowed = [one for one in advice.options if one.memory_fits != "no" and one.meets_slo != "no"]
        most: dict[int, float] = {}
        for one in allowed:
            most[one.copies] = max(most.get(one.copies, 0.0), one.throughput.value)
        each = ", ".join(f"{copies}: {times:.2f}x" for copies, times in sorted(most.items()))
        return f"Every copy up to {knee.copies} adds {least} of throughput or more (most, by copies: {each})."
    then = min((one.copies for one in advice.options if one.copies > knee.copies), default=knee.copies + 1)
    more = f"A {_ordinal(then)} copy" if then == knee.copies + 1 else f"{then} copies instead of {knee.copies}"
    same = abs(knee.next_gain) < _SAME_THROUGHPUT
    verb = "changes" if same else "costs" if knee.next_gain < 0 else "adds"
    by = f"throughput by less than {fmt.percent(_SAME_THROUGHPUT, 0)}"
    how_much = by if same else f"{fmt.percent(abs(knee.next_gain), 0)} of throughput"
    said = f"{more} {verb if then == knee.copies + 1 else verb[:-1]} {how_much}"
    if same or knee.next_gain >= 0:
        said += f", less than the {least} from which one is worth it"
    if advised is None or advised <= knee.copies:
        return f"{said}."
    return f"{said}: {fmt.counted(knee.copies, 'copy', 'copies')} ({visible(knee.name, 60)}) may be enough."


#: Said of a change whose intervals overlap.
_OPEN = "cannot tell"


def _change(now: Estimate | None, then: Estimate | None) -> str:
    """How much longer something takes than now; where the intervals overlap that is not known."""
    if now is None or then is None:
        return fmt.UNKNOWN
    if now.low <= then.high and then.low <= now.high:
        return _OPEN
    ratio = then.value / now.value
    return f"{ratio:.2f}x slower" if ratio > 1 else f"{1 / ratio:.2f}x faster"


def _instead(advice: ReplicaAdvice) -> list[Block]:
    """What MPS would do to each tenant of what was recorded; what time-slicing would, where that was MPS."""
    current = next((option for option in advice.options if option.current), None)
    if current is None:
        return []
    counts = {t.tenant_id: t.copies for t in current.tenants}
    plain = [
        option
        for option in advice.options
        if not option.percentages
        and not option.profiles
        and not option.current
        and {t.tenant_id: t.copies for t in option.tenants} == counts
    ]
    if len(plain) != 1:
        return []
    (other,) = plain
    then = {t.tenant_id: t for t in other.tenants}
    each, open_ = [], []
    for tenant in current.tenants:
        one = then[tenant.tenant_id]
        changes = [_change(tenant.slowdown, one.slowdown)]
        if advice.latency_of is not None:
            changes.append(_change(tenant.p99_ns, one.p99_ns))
        name = visible(tenant.name, 40)
        if set(changes) == {_OPEN}:
            open_.append(name)
        else:
            each.append(f"{name} {changes[0]}{f' (p99 {changes[1]})' if len(changes) > 1 else ''}")
    what = f"{visible(other.name, 60)} instead of {visible(current.name, 60)}"
    said = [f"{what}: {', '.join(each)}."] if each else []
    if open_:
        said.append(f"Whether {what} is faster for {fmt.names(open_)}, the forecast cannot tell: intervals overlap.")
    return [Para(" ".join(said))]


def _units(advice: ReplicaAdvice) -> str:
    """Name the units of work whose time the table has; those of several tenants each."""
    each = []
    for one in advice.units:
        said = f"{visible(one.unit, 60)} ({UNIT_SOURCE_TEXT[one.source]})"
        if one.others:
            said += f" and {fmt.counted(one.others, 'other name')}"
        each.append(f"{visible(one.name, 40)}: {said}" if len(advice.units) > 1 else said)
    return f"units of work, {'; '.join(each)}" if each else "units of work"


def _not_recorded(advice: ReplicaAdvice) -> str:
    """That no row is marked as what was recorded, where one copy of each tenant was asked for."""
    one_each = any(all(t.copies == 1 for t in option.tenants) for option in advice.options)
    if not one_each or any(option.current for option in advice.options):
        return ""
    return " The recorded configuration is none of the rows."


def _conditions(advice: ReplicaAdvice) -> list[Block]:
    """On what the forecasts depend: one sentence for each condition."""
    names: dict[CopyCondition, list[str]] = {}
    for one in advice.conditions:
        names.setdefault(one.condition, []).append(visible(one.name, 40))
    return [Para(f"{' and '.join(who)} {COPY_CONDITION_TEXT[condition]}.") for condition, who in names.items()]


def _front(advice: ReplicaAdvice) -> str:
    """What the mark of the front means, where a row has it."""
    if not any(_mark(option) == _PARETO for option in advice.options):
        return ""
    than = "worst slowdown" if advice.latency_of is None else "p99"
    return f" {_PARETO}: no other allowed row has both more throughput and a lower {than}."


def _trust(advice: ReplicaAdvice) -> list[Block]:
    """How far to believe it."""
    check, checked = advice.check, advice.checked
    words = {
        "passed": "The replay of the recorded configuration reproduces the recorded run",
        "widened": "The replay of the recorded configuration misses the recorded run; all intervals are wider by that",
        "forbidden": "The replay of the recorded configuration misses the recorded run too far for a forecast",
        "not-possible": "The recorded configuration cannot be replayed, so these forecasts are not checked against it",
    }
    # One recording has all that is missing for one reason.
    lacking: dict[tuple[str, str], list[str]] = {}
    for gap in advice.missing:
        lacking.setdefault((gap.why, gap.how), []).append(visible(gap.what, 100))
    missing: list[Block] = [
        Note(
            f"Not available: {fmt.names(what)}",
            capital(visible(why, 300)) + (f"; to capture it: {how}" if how else ""),
        )
        for (why, how), what in lacking.items()
    ]
    if not advice.options:
        # Nothing is forecast: how good other forecasts are says nothing.
        return missing
    said = words[check.outcome]
    errors = [] if check.p99_error is None else [f"p99 {fmt.percent(check.p99_error)}"]
    if check.p50_error is not None and _has_p50(advice):
        errors.insert(0, f"p50 {fmt.percent(abs(check.p50_error))} too {'long' if check.p50_error > 0 else 'short'}")
    if check.elapsed_error is not None:
        # One without copies is not named here.
        names = {tenant_id: f" of {name}" for tenant_id, name in _names(advice).items()}
        whose = "" if check.elapsed_tenant_id is None else names.get(check.elapsed_tenant_id, "")
        how = "long" if check.elapsed_too_long else "short"
        errors.insert(0, f"elapsed time{whose} {fmt.percent(check.elapsed_error)} too {how}")
    said += f" (largest error: {', '.join(errors)})." if errors else "."
    against = f" Forecasts of this kind were checked against {checked.against}"
    if checked.coverage is not None and checked.median_error is not None:
        against += (
            f": median error {fmt.percent(checked.median_error)}, intervals hold {fmt.percent(checked.coverage)} of "
            f"{checked.n}"
        )
    blocks: list[Block] = [Para(said + against + ".")]
    by_tenant: dict[str, list[str]] = {}
    for one in advice.demands:
        of = by_tenant.setdefault(visible(one.name, 40), [])
        of.append(f"{fmt.percent(one.part, 0)} of {one.resource} ({one.source})")
    blocks += [Para(f"Solo, kernels of {name} take {', '.join(of)}.") for name, of in by_tenant.items()]
    blocks += missing
    return blocks


def replicas_page(found: Sequence[ReplicaAdvice], title: str) -> Page:
    """Lay out forecasts of copies.

    Parameters
    ----------
    found
        One per device.
    title
        Title of the page.

    Examples
    --------
    >>> replicas_page([], "Replicas").sections
    ()
    """
    sections = []
    for advice in found:
        blocks = [*_lead(advice), *_instead(advice)]
        if advice.options:
            names = _names(advice)
            blocks.append(_table(advice))
            blocks.append(
                Chart(
                    _front_key(advice),
                    "Throughput and latency of every configuration",
                    "Bars: 95 % intervals of throughput. The dashed line connects the Pareto front; others are pale.",
                )
            )
            if len(names) > 1:
                blocks.append(Para(f"Copies are of {' + '.join(names.values())}, in this order."))
            of = {"unit": f" of {_units(advice)}", "kernel": " of kernels, launch to end", None: ""}[advice.latency_of]
            percentiles, those = ("p50 and p99 are", "those") if _has_p50(advice) else ("p99 is", "that")
            blocks += _conditions(advice)
            blocks.append(
                Para(
                    "Modelled, with 95 % intervals in brackets. Throughput is over that of one solo copy."
                    + (f" {percentiles}{of}. Each row has {those} of its slowest tenant." if of else "")
                    + _front(advice)
                    + _not_recorded(advice)
                )
            )
        blocks += _trust(advice)
        if advice.options:
            blocks.append(
                Para(
                    f"Replayed for each copy: {fmt.count(advice.operations)} operations of "
                    f"{fmt.duration(advice.window_ns)} of the capture."
                )
            )
        sections.append(Section(f"replicas-{advice.device_id}", "Replicas", tuple(blocks), f"GPU {advice.device_id}"))
    return Page(title=title, subtitle="", lead=(), notes=(), sections=tuple(sections))


def _front_key(advice: ReplicaAdvice) -> str:
    return f"replicas-{advice.device_id}"


def render_replicas(found: Sequence[ReplicaAdvice], form: str) -> str:
    """Write forecasts of copies as a page.

    Parameters
    ----------
    found
        One per device.
    form
        ``html`` (with the Pareto front as a chart), ``md`` or ``table``.

    Raises
    ------
    pyanalyze.errors.UsageError
        Another format.

    Examples
    --------
    >>> render_replicas([], "html").startswith("<!doctype html>")
    True
    """
    if form == "table":
        return replicas_text(found)

    def charts() -> dict[str, alt.TopLevelMixin]:
        from pyanalyze.charts import replica_front

        return {_front_key(advice): replica_front(advice) for advice in found if advice.options}

    return file_of(replicas_page(found, "Replicas"), form, charts, choices="table, md, html")


def replicas_text(found: Sequence[ReplicaAdvice]) -> str:
    """Forecasts of copies as plain text.

    Examples
    --------
    >>> replicas_text([]).strip()
    ''
    """
    from pyanalyze.report.text import text_page

    page = replicas_page(found, "Replicas")
    return text_page(page, ("replicas",)).partition("\n\n")[2].lstrip("\n") if found else ""
