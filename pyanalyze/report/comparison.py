"""A comparison as text, Markdown, HTML or JSON, by the renderers of reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyanalyze.analysis.comparison.split import co_ran_words, long_unit_words, part_words
from pyanalyze.report.blocks import Block, Cell, Chart, Column, Fold, Note, Page, Para, Section, Table
from pyanalyze.report.forms import file_of
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import ENOUGH_UNITS, unless

if TYPE_CHECKING:
    import altair as alt

    from pyanalyze.results.comparison import Change, Comparison, KernelChange, Run, TenantChange, UnitsCompared

__all__ = ["render_comparison"]

_CHART = "change-0"
#: Key of the timelines of both runs; their names are those of no device.
_TIMELINES = "timelines-0"


def render_comparison(comparison: Comparison, form: str, timelines: alt.TopLevelMixin | None = None) -> str:
    """Write a comparison.

    Parameters
    ----------
    comparison
        What :func:`pyanalyze.compare` returned.
    form
        ``txt`` (or ``table``), ``md``, ``html`` or ``json``.
    timelines
        For HTML: both runs on one axis, see :func:`pyanalyze.report.rendering.draw_two`; None: left out.

    Raises
    ------
    pyanalyze.errors.UsageError
        Another format.

    Examples
    --------
    >>> import pyanalyze
    >>> render_comparison(pyanalyze.compare(capture, capture), "txt").splitlines()[4]
    'Equal work: yes, per unit; time-slicing in both. Largest change of time per unit of work: app_a 0.0'
    """
    if form == "json":
        return comparison.to_json()
    page = _page(comparison)
    if form in ("txt", "table"):
        from pyanalyze.report.text import text_page

        return text_page(page)

    def charts() -> dict[str, alt.TopLevelMixin]:
        from pyanalyze.charts import time_split

        drawn: dict[str, alt.TopLevelMixin] = {_CHART: time_split(comparison)}
        return drawn if timelines is None else {**drawn, _TIMELINES: timelines}

    return file_of(page, form, charts, choices="html, md, txt, json")


def _page(comparison: Comparison) -> Page:
    sections = [_runs(comparison), _work(comparison)]
    sections += _units(comparison)
    sections.append(_changes(comparison))
    sections += _kernels(comparison)
    sections.append(_left_out(comparison))
    return Page(
        title="Comparison of two runs",
        subtitle=f"A: {_sources(comparison.a)} · B: {_sources(comparison.b)}",
        lead=(visible(comparison.summary, None),),
        sections=tuple(sections),
    )


def _sources(run: Run) -> str:
    names = [visible(path, 60) for path in run.captures[:3]]
    more = f" and {len(run.captures) - 3} more" if len(run.captures) > 3 else ""
    return (", ".join(names) or "no capture") + more


def _runs(comparison: Comparison) -> Section:
    rows = tuple(
        (
            Cell(run.label),
            Cell(_sources(run), tone="code"),
            Cell(f"{run.mode or 'no activity'}{unless(run.condition, run.mode)}"),
            Cell(fmt.UNKNOWN if run.confidence is None else f"{run.confidence:.2f}"),
            Cell(visible(run.gpu) or fmt.UNKNOWN),
            Cell(fmt.count(run.sm_count)),
            Cell(_recorded(run)),
        )
        for run in (comparison.a, comparison.b)
    )
    columns = (
        Column("Run"),
        Column("Captures"),
        Column("Sharing mode"),
        Column("Confidence", numeric=True),
        Column("GPU"),
        Column("SMs", numeric=True),
        Column("GPU events", "of the recording", True),
    )
    chart = Chart(
        _TIMELINES,
        "Both runs on one axis",
        "Each run begins at its own start. Bars: kernels (rounded: whole graphs, thin: copies). Shading: its context "
        "was resident.",
        "Drag moves, Ctrl + scroll zooms, a double click resets. Keys: arrows, +, -, 0.",
    )
    return Section("runs", "The runs", (Table(columns, rows), chart))


def _recorded(run: Run) -> str:
    """What part of its recording a run stands on: an export may be cut, or the GPU idle at first."""
    events = fmt.UNKNOWN if run.events_ns is None else fmt.duration(run.events_ns)
    return events if run.recording_ns is None else f"{events} of {fmt.duration(run.recording_ns)}"


def _equal(pair: TenantChange) -> str:
    return {True: "equal", False: "not equal", None: "not known"}[pair.equal_work]


def _work(comparison: Comparison) -> Section:
    if not comparison.tenants:
        text = "No traced tenant of one run has a counterpart in the other."
        return Section("work", "Equal work", (Note("Not comparable", text, "warning"),))
    rows = tuple(
        (
            Cell(pair.label, tone="code"),
            Cell(_equal(pair), tone="good" if pair.equal_work else "bad" if pair.equal_work is False else "muted"),
            Cell(fmt.UNKNOWN if pair.units is None else f"{pair.units:.3g}"),
            Cell(fmt.percent(pair.changed_work)),
            Cell(fmt.count(pair.launches_a)),
            Cell(fmt.count(pair.launches_b)),
            Cell(fmt.bytes_(pair.copy_bytes_a)),
            Cell(fmt.bytes_(pair.copy_bytes_b)),
        )
        for pair in comparison.tenants
    )
    columns = (
        Column("Tenant"),
        Column("Equal work"),
        Column("Amount of work", "B over A", True),
        Column("Changed launches", "of A's kernel time", True),
        Column("Launches", "A", True),
        Column("Launches", "B", True),
        Column("Copied", "A", True),
        Column("Copied", "B", True),
    )
    caption = (
        "Equal work: B launched every kernel, grid and block as often as A for as much work (observed). Amount of "
        "work: launches of B for each of A, by the kernels with most time."
    )
    blocks: list[Block] = [Table(columns, rows, caption)]
    for pair in comparison.tenants:
        if pair.changed:
            blocks.append(Fold(f"Changed launches of {pair.label}", (_changed(pair),)))
    for label, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        if names:
            blocks.append(Para(f"Only in {label}: {', '.join(visible(name) for name in names)}."))
    return Section("work", "Equal work", tuple(blocks))


def _changed(pair: TenantChange) -> Table:
    rows = tuple(
        (
            Cell(visible(row.kernel), tone="code"),
            Cell(f"{fmt.count(row.grid_blocks)} x {fmt.count(row.block_threads)}"),
            Cell(fmt.count(row.launches_a)),
            Cell(fmt.number(row.expected_b)),
            Cell(fmt.count(row.launches_b)),
        )
        for row in pair.changed
    )
    columns = (
        Column("Kernel"),
        Column("Grid x block", "blocks x threads", True),
        Column("Launches", "A", True),
        Column("Expected", "B, from A", True),
        Column("Launches", "B", True),
    )
    return Table(columns, rows)


def _changes(comparison: Comparison) -> Section:
    blocks: list[Block] = []
    if comparison.conclusive:
        blocks.append(
            Chart(
                _CHART,
                "Time for all of A's work",
                "Of every tenant in A, and in B for as much work: resident, in flight while another context was "
                "resident, idle while another tenant was resident or ran concurrently, and idle.",
            )
        )
    for pair in comparison.tenants:
        if pair.change is None:
            blocks.append(Note(pair.label, f"Its change of time is not known: {pair.why}.", "warning"))
            continue
        change = pair.change
        word = "" if change.significant else "; not significant"
        blocks.append(
            Para(
                f"{pair.label}: {fmt.duration(pair.time_a_ns)} in A, {fmt.duration(pair.time_b_ns)} in B; for as "
                f"much work as A did {fmt.signed_percent(change.value)} (95 % CI {fmt.signed_percent(change.low)} to "
                f"{fmt.signed_percent(change.high)}, n = {change.n} batches of launches){word}."
            )
        )
        if pair.long_unit is not None:
            blocks.append(Para(long_unit_words(pair.long_unit)))
        if pair.unit_changes and pair.unit_changes[0].co_ran_unlike:
            unit = pair.unit_changes[0]
            name = visible(unit.name, 60)
            words = f'How often tenants co-ran is in the change and its parts: of "{name}", {co_ran_words(unit)}.'
            blocks.append(Para(words))
        if pair.startup_a_ns or pair.startup_b_ns:
            before = f"{fmt.duration(pair.startup_a_ns)} in A, {fmt.duration(pair.startup_b_ns)} in B"
            blocks.append(Para(f"Left out: pauses of {pair.label} before its work began ({before})."))
        rows = tuple(
            (
                Cell(part_words(part)),
                Cell(
                    fmt.signed_percent(part.share or 0.0) if part.value_known else fmt.UNKNOWN,
                    tone="plain" if part.significant else "muted",
                ),
                Cell(_signed(part.value_ns) if part.value_known else fmt.UNKNOWN),
                Cell(f"{_signed(part.low_ns)} to {_signed(part.high_ns)}"),
                Cell("yes" if part.significant else "no", tone="plain" if part.significant else "muted"),
            )
            for part in pair.parts
        )
        columns = (
            Column("Part"),
            Column("Of A's time", numeric=True),
            Column("Time", "for A's work", True),
            Column("Range", "bounds and 95 % CI", True),
            Column("Significant"),
        )
        blocks.append(Table(columns, rows, f"Where the change of {pair.label} came from (inferred)."))
        if pair.why:
            blocks.append(Para(capital(pair.why) + ".", "muted"))
    if comparison.conclusive:
        words = (
            "For A's work: the time of B is that of as much work as A did. Other work: launches that changed (bounds "
            "only). Host time: nothing of it was in flight or waited, or only its copies ran. Waiting for its time "
            "slice: launched, while another context was resident or switched. Waiting to start: launched, and not "
            "started, while a tenant that shares the SMs ran. Slower execution: the same kernels took longer while "
            "resident."
        )
        blocks.append(Para(words, "muted"))
        if any(part.launches_known is False for pair in comparison.tenants for part in pair.parts):
            words = (
                "Launch calls of one run are not known: idle time while another tenant was in the way may be the "
                "host's. Where only a range is known, it holds both readings."
            )
            blocks.append(Para(words, "muted"))
    floor = (
        f"Noise floor: {fmt.percent(comparison.noise_floor, 0)} of the time. Single runs do not show smaller changes."
    )
    blocks.append(Para(floor, "muted"))
    return Section("changes", "Where the change came from", tuple(blocks))


def _units(comparison: Comparison) -> list[Section]:
    """The units of work that both runs have, by name."""
    columns = (
        Column("Unit"),
        Column("Units", "A → B", numeric=True),
        Column("p50", "A → B", numeric=True),
        Column("Change of p50", "95 % CI", numeric=True),
        Column("Mean", "A → B", numeric=True),
        Column("Change of the mean", "95 % CI", numeric=True),
        Column("p99", "A → B", numeric=True, minor=True),
        Column("Longest", "A → B", numeric=True, minor=True),
    )
    blocks: list[Block] = []
    co_ran = False
    for pair in comparison.tenants:
        if not pair.unit_changes:
            continue
        listed: list[tuple[str, UnitsCompared]] = []
        for unit in pair.unit_changes:
            listed.append(("", unit))
            if unit.co_ran_unlike and unit.co_ran is not None:
                listed.append((" (co-ran)", unit.co_ran))
        co_ran = co_ran or len(listed) > len(pair.unit_changes)
        rows = tuple(
            (
                Cell(f"{visible(row.name, 60)}{which}", tone="code"),
                Cell(f"{fmt.count(row.count_a)} → {fmt.count(row.count_b)}"),
                Cell(f"{fmt.duration(row.p50_a_ns)} → {fmt.duration(row.p50_b_ns)}"),
                _change_cell(row.p50_change),
                Cell(f"{fmt.duration(round(row.mean_a_ns))} → {fmt.duration(round(row.mean_b_ns))}"),
                _change_cell(row.mean_change),
                Cell(f"{_length(row.p99_a_ns)} → {_length(row.p99_b_ns)}"),
                Cell(f"{fmt.duration(row.longest_a_ns)} → {fmt.duration(row.longest_b_ns)}"),
            )
            for which, row in listed
        )
        blocks.append(Table(columns, rows, f"Units of work of {pair.label} that both runs have."))
    if not blocks:
        return []
    words = (
        "NVTX ranges, given units and whole graphs are observed, launches between two synchronisations are inferred. "
        "Each lasts until the end of its last operation. Pauses between units are not in them. Names with fewer than "
        f"{ENOUGH_UNITS} units in a run are left out, and so are ranges with a launch that has no kernel record: the "
        "recording ended in them."
    )
    if co_ran:
        words += (
            f" Co-ran leaves out units that were {ENOUGH_UNITS} or more in a row while no other tenant had work on the "
            "device (observed)."
        )
    return [Section("units", "Requests and steps", (*blocks, Para(words, "muted")))]


def _change_cell(change: Change | None) -> Cell:
    return Cell(_change(change), tone="plain" if change is not None and change.significant else "muted")


def _length(ns: int | None) -> str:
    return "-" if ns is None else fmt.duration(ns)


def _signed(ns: float) -> str:
    return ("+" if ns > 0 else "-" if ns < 0 else "") + fmt.duration(abs(round(ns)))


def _kernels(comparison: Comparison) -> list[Section]:
    """The kernels of each tenant, those with the largest effect on its total first."""
    blocks: list[Block] = []
    for pair in comparison.tenants:
        if not pair.kernels:
            continue
        named = Counter(row.kernel for row in pair.kernels)
        rows = tuple(
            (
                Cell(
                    visible(row.kernel, None) + (f" ({_shape(row)})" if named[row.kernel] > 1 else ""),
                    tone="code",
                    note=_shape(row),
                ),
                Cell(f"{fmt.count(row.launches_a)} → {fmt.count(row.launches_b)}"),
                Cell(f"{fmt.duration(row.total_a_ns)} → {fmt.duration(row.total_b_ns)}"),
                Cell(f"{_mean(row.mean_a_ns)} → {_mean(row.mean_b_ns)}"),
                Cell(_p99(row)),
                _change_cell(row.change),
                Cell(_signed(row.effect_ns)),
            )
            for row in pair.kernels
        )
        columns = (
            Column("Kernel"),
            Column("Launches", "A → B", numeric=True),
            Column("Total", "A → B", numeric=True),
            Column("Mean", "A → B", numeric=True),
            Column("p99", "A → B", numeric=True, minor=True),
            Column("Change of the mean", "95 % CI", numeric=True),
            Column("Effect", "on the sum", numeric=True),
        )
        more = pair.kernels_found is None or pair.kernels_found > len(rows)
        of = "" if pair.kernels_found is None else f" of {fmt.count(pair.kernels_found)}"
        caption = (
            f"Kernels of {pair.label} by their effect on the sum of kernel times, for as much work as A did"
            f"{f': the first {fmt.count(len(rows))}{of}' if more else ''}. Times are resident time (inferred): time "
            "switched out is not in them."
        )
        blocks.append(Table(columns, rows, caption))
        if pair.kernels_overlap:
            blocks.append(Para(_overlapping(pair), "muted"))
    return [Section("kernels", "Kernel by kernel", tuple(blocks))] if blocks else []


def _overlapping(pair: TenantChange) -> str:
    """Say why effects do not add up to the part of the change that is execution."""
    text = f"Kernels of {pair.label} overlap: a sum of kernel times counts the same time more than once."
    slower = next((part for part in pair.parts if part.name == "resident"), None)
    if slower is None:
        return text
    return f"{text} Effects do not add up to {part_words(slower)} ({_signed(slower.value_ns)}), which counts it once."


def _shape(row: KernelChange) -> str:
    return f"{fmt.count(row.grid_blocks)} x {fmt.count(row.block_threads)}"


def _mean(mean_ns: float | None) -> str:
    return "none" if mean_ns is None else fmt.duration(mean_ns)


def _p99(row: KernelChange) -> str:
    if row.p99_a_ns is None and row.p99_b_ns is None:
        return "-"
    a, b = (
        "none" if launches == 0 else fmt.duration(p99)
        for launches, p99 in ((row.launches_a, row.p99_a_ns), (row.launches_b, row.p99_b_ns))
    )
    return f"{a} → {b}"


def _change(change: Change | None) -> str:
    if change is None:
        return fmt.UNKNOWN
    return f"{fmt.signed_percent(change.value)} ({fmt.signed_percent(change.low)} to {fmt.signed_percent(change.high)})"


def _left_out(comparison: Comparison) -> Section:
    if not comparison.left_out:
        return Section("left-out", "Not comparable between the runs", (Para("Nothing had to be left out."),))
    rows = tuple(
        (
            Cell(gap.what, tone="code"),
            Cell(visible(gap.why, None)),
            Cell(visible(gap.how, None), tone="command" if gap.is_command else "plain")
            if gap.how
            else Cell("nothing is to be done", tone="muted"),
        )
        for gap in comparison.left_out
    )
    columns = (Column("Left out"), Column("Why"), Column("What helps"))
    return Section("left-out", "Not comparable between the runs", (Table(columns, rows),))
