"""One page of a fleet: a line for a manager, what to look at first, and a link to every report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyanalyze.fleet.summary import (
    FEWEST_FOR_MEDIAN,
    FEWEST_FOR_OUTLIERS,
    LEAST_OUTLIER,
    DeviceRow,
    FleetSummary,
    GroupPart,
    held_words,
)
from pyanalyze.report.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Fold,
    Note,
    Page,
    Para,
    Section,
    Table,
)
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

__all__ = ["render_overview"]

#: Rows of a table on the page; the rest stands in fleet.csv.
MAX_ROWS = 400
#: Nodes in the picture.
MAX_NODES = 60


def render_overview(summary: FleetSummary) -> str:
    """The page as HTML; it loads nothing and links to reports beside it.

    Parameters
    ----------
    summary
        What `fleet.json` holds.

    Examples
    --------
    >>> from pyanalyze.fleet.summary import summarise
    >>> "no activity on any GPU" in render_overview(summarise("0", [], [], []))
    True
    """
    from pyanalyze.charts.fleet import mode_map, slowdown_spread
    from pyanalyze.report.html import html_page

    charts: dict[str, alt.TopLevelMixin] = {}
    cells = [cell for _, cell in _map_cells(summary)]
    if cells:
        charts["modes-0"] = mode_map(cells, list(summary.modes))
    known = [row.worst_slowdown for row in summary.rows() if row.tenants > 1 and row.worst_slowdown is not None]
    if known:
        charts["spread-0"] = slowdown_spread(known, summary.slowdown.outlier_above or LEAST_OUTLIER)
    return html_page(_page(summary), charts, f"pyanalyze {summary.tool.version}")


def _page(summary: FleetSummary) -> Page:
    pages = {group.name: group.page for group in summary.groups}
    sections = [
        _attention(summary, pages),
        _agreement(summary),
        _modes(summary),
        _slowdowns(summary),
        _devices(summary, pages),
        _without(summary),
    ]
    captures = sum(len(group.captures) for group in summary.groups)
    return Page(
        title="Fleet report",
        subtitle=f"{fmt.count(captures)} captures in {fmt.count(len(summary.groups))} groups",
        lead=(summary.line,),
        sections=tuple(section for section in sections if section.blocks),
    )


def _node(row: DeviceRow) -> str:
    if row.host is None:
        # Containers on one GPU each have a host name of their own.
        return "several host names" if row.captures > 1 else "host not known"
    return f"node {visible(row.host, 60)[:8]}"


def _gpu(row: DeviceRow) -> str:
    said = (row.uuid or "").partition("-")[2] or (row.uuid or "")
    kind = "MIG " if (row.uuid or "").startswith("MIG-") else ""
    return f"{kind}{visible(said)[:8]}" if said else f"device {row.device_id}"


def _slowdown(row: DeviceRow) -> Cell:
    if row.worst_slowdown is None:
        return Cell("not shared" if row.tenants < 2 else fmt.UNKNOWN, tone="muted", note=_why_unknown(row))
    # Which of the two kinds, and of whom.
    notes: list[str] = [] if row.worst_slowdown_kind is None else [row.worst_slowdown_kind]
    if row.worst_slowdown_tenant is not None:
        notes.append(f"of {visible(row.worst_slowdown_tenant, 60)}")
    note = " ".join(notes)
    if row.worst_slowdown_low is not None and row.worst_slowdown_high is not None:
        between = fmt.interval(row.worst_slowdown_low, row.worst_slowdown_high, basis=row.worst_slowdown_basis or "")
        span = f"{between}, n = {row.worst_slowdown_n}"
        note = "; ".join(filter(None, (note, span)))
    if row.other_slowdown is not None and row.worst_slowdown_kind is not None:
        other = "latency" if row.worst_slowdown_kind == "elapsed" else "elapsed"
        whose = "" if row.other_slowdown_tenant is None else f" of {visible(row.other_slowdown_tenant, 60)}"
        span = ""
        if row.other_slowdown_low is not None and row.other_slowdown_high is not None:
            basis = row.other_slowdown_basis or ""
            span = f" ({fmt.interval(row.other_slowdown_low, row.other_slowdown_high, basis=basis)})"
        note += f"; {other} {fmt.ratio(row.other_slowdown)}{whose}{span}"
    return Cell(fmt.ratio(row.worst_slowdown), row.worst_slowdown_basis, note=note)


def _why_unknown(row: DeviceRow) -> str:
    """Why no slowdown of a shared device is known; empty: nothing says so."""
    return "" if row.tenants < 2 or row.slowdown_missing is None else visible(row.slowdown_missing, 200)


def _attention(summary: FleetSummary, pages: dict[str, str]) -> Section:
    if not summary.rows():
        return Section("first", "Needs attention", (Para("These captures have no activity on any GPU."),))
    if not summary.attention:
        text = "No device needs attention: all match their configuration, and no slowdown is an outlier."
        return Section("first", "Needs attention", (Para(text),))
    by_place = {(row.group, row.device_id): row for row in summary.rows()}
    rows = []
    for one in summary.attention[:MAX_ROWS]:
        row = by_place[one.group, one.device_id]
        rows.append(
            (
                Cell(one.group, link=pages[one.group]),
                Cell(f"{_node(row)}, {_gpu(row)}"),
                Cell(row.mode, row.basis),
                _slowdown(row),
                Cell(visible(one.detail, 300), tone="bad" if "configured" in one.why else "plain"),
            )
        )
    columns = (Column("Report"), Column("Where"), Column("Mode"), Column("Largest slowdown", "", True), Column("Why"))
    caption = (
        "Most serious first: configuration mismatch, outlier slowdown, costly context switches, mode not known, lost "
        "records."
    )
    blocks: list[Block] = [Table(columns, tuple(rows), caption)]
    if len(summary.attention) > MAX_ROWS:
        more = len(summary.attention) - MAX_ROWS
        blocks.append(Para(f"{fmt.count(more)} more are listed under `attention` in fleet.json.", "muted"))
    return Section("first", "Needs attention", tuple(blocks))


def _agreement(summary: FleetSummary) -> Section:
    rows = summary.rows()
    if not rows:
        return Section("configured", "Configured vs. observed", ())
    blocks: list[Block] = [
        Facts(
            (
                Fact("Match", fmt.count(summary.agreement["agree"]), "devices"),
                Fact("Mismatch", fmt.count(summary.agreement["disagree"]), "devices"),
                Fact("Not comparable", fmt.count(summary.agreement["unknown"]), "devices"),
            )
        )
    ]
    counted = Counter((row.configured, row.mode, row.agrees) for row in rows if row.configured is not None)
    if counted:
        ordered = sorted(counted.items(), key=lambda pair: (pair[0][2] is not False, -pair[1], str(pair[0])))
        words = {True: ("match", "good"), False: ("mismatch", "bad"), None: ("not comparable", "muted")}
        table = Table(
            (Column("Configured"), Column("Observed"), Column("Result"), Column("Devices", "", True)),
            tuple(
                (Cell(str(configured)), Cell(mode), Cell(words[agrees][0], tone=words[agrees][1]), Cell(fmt.count(n)))  # type: ignore[arg-type]
                for (configured, mode, agrees), n in ordered
            ),
        )
        blocks.append(table)
    else:
        text = (
            "The configured modes are not known: give --context with nvidia-smi -L, MPS or kubectl output, or record "
            "with `pyanalyze record`, which describes the node."
        )
        blocks.append(Para(text, "muted"))
    return Section("configured", "Configured vs. observed", tuple(blocks))


def _map_cells(summary: FleetSummary) -> list[tuple[bool, tuple[str, str, str, str]]]:
    """One cell for each GPU of each node: of several groups the one that needs attention, else the last."""
    grave = {(one.group, one.device_id): one.detail for one in summary.attention}
    last: dict[tuple[str, str], DeviceRow] = {}
    for row in sorted(summary.rows(), key=lambda row: (row.start_utc_ns or "", row.group)):
        place = (_node(row), row.uuid or f"{row.group} {row.device_id}")
        before = last.get(place)
        if before is None or (row.group, row.device_id) in grave or (before.group, before.device_id) not in grave:
            last[place] = row
    nodes: dict[str, list[DeviceRow]] = {}
    for (node, _), row in sorted(last.items()):
        nodes.setdefault(node, []).append(row)

    def first(node: str) -> tuple[bool, str]:
        return not any((row.group, row.device_id) in grave for row in nodes[node]), node

    cells: list[tuple[bool, tuple[str, str, str, str]]] = []
    for node in sorted(nodes, key=first)[:MAX_NODES]:
        for number, row in enumerate(nodes[node]):
            detail = grave.get((row.group, row.device_id), "")
            what = f"{_gpu(row)} {row.name or ''}, {row.group}{': ' if detail else ''}{detail}"
            cells.append((bool(detail), (node, f"GPU {number}", row.mode, what)))
    return cells


def _modes(summary: FleetSummary) -> Section:
    rows = summary.rows()
    if not rows:
        return Section("modes", "Modes by node and GPU", ())
    by_node: dict[str, list[DeviceRow]] = {}
    for row in rows:
        by_node.setdefault(_node(row), []).append(row)
    lines = []
    for node, here in sorted(by_node.items())[:MAX_ROWS]:
        modes = Counter(row.mode for row in here)
        worst = max((row.worst_slowdown for row in here if row.worst_slowdown is not None), default=None)
        bad = sum(row.agrees is False for row in here)
        lines.append(
            (
                Cell(node),
                Cell(fmt.count(len({row.uuid or (row.group, row.device_id) for row in here}))),
                Cell(fmt.count(len({row.group for row in here}))),
                Cell(", ".join(f"{mode} {n}" for mode, n in modes.most_common())),
                Cell(fmt.count(bad), tone="bad" if bad else "plain"),
                Cell(fmt.ratio(worst) if worst is not None else fmt.UNKNOWN),
            )
        )
    columns = (
        Column("Node"),
        Column("GPUs", "", True),
        Column("Groups", "", True),
        Column("Sharing modes", "devices in groups"),
        Column("Mismatch", "", True),
        Column("Largest slowdown", "", True),
    )
    blocks: list[Block] = [
        Chart("modes-0", "Mode of each GPU", "One cell per GPU, in its latest state; nodes with outliers first."),
        Table(columns, tuple(lines)),
    ]
    if len(by_node) > MAX_NODES:
        text = f"The chart shows {MAX_NODES} of {fmt.count(len(by_node))} nodes, the table at most {MAX_ROWS}."
        blocks.append(Para(text, "muted"))
    return Section("modes", "Modes by node and GPU", tuple(blocks))


def _slowdowns(summary: FleetSummary) -> Section:
    found = summary.slowdown
    if not found.n:
        text = "No slowdown of a shared device is known."
        return Section("slowdown", "Distribution of slowdowns", (Para(text, "muted"),) if summary.rows() else ())
    of = f"of {fmt.count(found.n)} of {fmt.counted(found.n + found.unknown, 'shared device')}"
    if found.n < FEWEST_FOR_MEDIAN:
        told = [Fact("Smallest", fmt.ratio(found.min), of), Fact("Largest", fmt.ratio(found.max))]
    else:
        told = [Fact("p50", fmt.ratio(found.median), of)]
        high = (("p90", found.p90), ("p99", found.p99))
        told += [Fact(name, fmt.ratio(value)) for name, value in high if value is not None]
        told.append(Fact("Largest", fmt.ratio(found.max)))
    facts = Facts(tuple(told))
    caption = (
        f"The larger of elapsed and latency slowdown of the slowest tenant, for devices with several tenants. The "
        f"line marks outliers: three scaled median deviations above the median, and at least "
        f"{fmt.ratio(LEAST_OUTLIER)}."
        if found.n >= FEWEST_FOR_OUTLIERS
        else f"The larger of elapsed and latency slowdown of the slowest tenant, for devices with several tenants. The "
        f"line marks outliers: above {fmt.ratio(LEAST_OUTLIER)}, since fewer than {FEWEST_FOR_OUTLIERS} are known."
    )
    blocks: list[Block] = [facts, Chart("spread-0", "Worst slowdowns", caption)]
    if found.unknown:
        blocks.append(Para(f"The slowdown of {fmt.count(found.unknown)} more shared devices is not known.", "muted"))
    return Section("slowdown", "Distribution of slowdowns", tuple(blocks))


def _devices(summary: FleetSummary, pages: dict[str, str]) -> Section:
    grave = {(one.group, one.device_id): rank for rank, one in enumerate(summary.attention)}
    ordered = sorted(summary.rows(), key=lambda row: (grave.get((row.group, row.device_id), len(grave)), row.group))
    rows = tuple(
        (
            Cell(row.group, link=pages[row.group]),
            Cell(row.job if row.job != row.group else ""),
            Cell(_when(row)),
            Cell(f"{_node(row)}, {_gpu(row)}", note=visible(row.name) or ""),
            Cell(row.mode, row.basis, note=fmt.certainty(row.basis, row.confidence).strip("()")),
            Cell(row.configured or fmt.UNKNOWN, tone="bad" if row.agrees is False else "plain"),
            Cell(fmt.count(row.tenants)),
            _slowdown(row),
            _switch_cost(row),
            _held(row),
        )
        for row in ordered[:MAX_ROWS]
    )
    columns = (
        Column("Report"),
        Column("Job", "named by its first report"),
        Column("Began", "UTC", True),
        Column("Where"),
        Column("Mode"),
        Column("Configured"),
        Column("Tenants", "", True),
        Column("Largest slowdown", "", True),
        Column("Switch cost", "of the window", True),
        Column("Export holds", "of what nsys collected", True),
    )
    blocks: list[Block] = [Table(columns, rows)] if rows else []
    if len(ordered) > MAX_ROWS:
        text = f"{fmt.count(len(ordered) - MAX_ROWS)} more devices are in fleet.csv and in tables/devices."
        blocks.append(Para(text, "muted"))
    idle = [group for group in summary.groups if not group.devices]
    if idle:
        blocks.append(Fold(f"Groups without activity on any GPU ({len(idle)})", (_idle(idle),)))
    return Section("devices", "All devices, outliers first", tuple(blocks))


def _switch_cost(row: DeviceRow) -> Cell:
    """What context switches cost: as recorded, and at most with saving and restoring."""
    recorded, high, co_run = (
        row.switch_overhead_fraction,
        row.switch_overhead_high,
        row.co_run_switch_overhead_fraction,
    )
    notes = []
    if recorded is not None and high is not None and high > recorded:
        notes.append(f"at most {fmt.percent(high)} with saving and restoring")
    if co_run is not None and fmt.percent(co_run) != fmt.percent(recorded):
        notes.append(f"{fmt.percent(co_run)} of the time in which all tenants co-ran")
    return Cell(fmt.percent(recorded), note="; ".join(notes))


def _held(row: DeviceRow) -> Cell:
    """How much of what nsys collected the exports hold."""
    said = held_words(row).removeprefix("the export ")
    return Cell(said, tone="bad") if said else Cell("nothing is known to be missing", tone="muted")


def _when(row: DeviceRow) -> str:
    return fmt.UNKNOWN if row.start_utc_ns is None else fmt.utc(row.start_utc_ns, 0).removesuffix(" UTC")[:19]


def _idle(groups: Sequence[GroupPart]) -> Table:
    rows = tuple((Cell(group.name, link=group.page),) for group in groups[:MAX_ROWS])
    return Table((Column("Report"),), rows)


def _without(summary: FleetSummary) -> Section:
    blocks: list[Block] = []
    if summary.failures:
        text = "Other captures are not affected. The next run tries these again."
        blocks.append(Note(f"{fmt.count(len(summary.failures))} without a result", text, "warning"))
        rows = tuple(
            (Cell(visible(one.path, 200), tone="code"), Cell(visible(one.message, 400)))
            for one in summary.failures[:MAX_ROWS]
        )
        blocks.append(Table((Column("Capture"), Column("Reason and remedy")), rows))
    if summary.duplicates:
        twins = tuple(
            (Cell(visible(one.path, 200), tone="code"), Cell(visible(one.of, 200), tone="code"), Cell(one.why))
            for one in summary.duplicates[:MAX_ROWS]
        )
        columns = (Column("Left out"), Column("Analysed instead"), Column("Why"))
        blocks.append(Fold(f"Exports of one recording ({len(summary.duplicates)})", (Table(columns, twins),)))
    return Section("without", "Captures without a result", tuple(blocks))
