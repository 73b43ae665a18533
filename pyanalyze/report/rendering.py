"""An analysis as one file: HTML with pictures, Markdown, text, or the JSON contract."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, NamedTuple

from pyanalyze.analysis.over_time import kernels_within, latencies, timeline, with_attributed
from pyanalyze.analysis.residency import switch_period_ns
from pyanalyze.analysis.sampled import series_of
from pyanalyze.errors import OutputExists, UsageError
from pyanalyze.files import write_whole
from pyanalyze.report.blocks import chart_key
from pyanalyze.report.build import assemble
from pyanalyze.report.sentences.copies import copies_only
from pyanalyze.report.sentences.slowdown import known_from_below, pairs_without_figure, pairwise_kind
from pyanalyze.report.sentences.tenants import holder_text
from pyanalyze.report.shown import shown_devices
from pyanalyze.results.labels import listed_labels, main_device, tenant_labels
from pyanalyze.text.nearest import did_you_mean
from pyanalyze.text.visible import printable, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import altair as alt
    import polars as pl

    from pyanalyze.analysis.analysis import Analysis
    from pyanalyze.results.report import Device, Report
    from pyanalyze.tables.tableset import TableSet

Format = Literal["html", "md", "json", "txt"]
FORMATS: tuple[Format, ...] = ("html", "md", "json", "txt")


def save(analysis: Analysis, path: Path, *, detail: bool = False, force: bool = False) -> Path:
    """Write a report to a file, in the format that its ending names; see :meth:`pyanalyze.Session.save`.

    Examples
    --------
    >>> import tempfile, pyanalyze
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(pyanalyze.load(capture).analysis, Path(folder) / "report.md").name
    'report.md'
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise UsageError(f"{path} ends in {path.suffix or 'nothing'}; let it end in .html, .md, .json or .txt")
    if path.exists() and not force:
        raise OutputExists(f"{path} exists; give force=True to replace it, or another path")
    write_whole(path, printable(render(analysis, form, detail=detail)), force=force)
    return path


class Charts:
    """The charts of a report, each by its name: ``session.charts.timeline``.

    Examples
    --------
    >>> import pyanalyze
    >>> pyanalyze.load(capture).charts.usage.to_dict()["usermeta"]["gutter"] > 0
    True
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def __getattr__(self, name: str) -> alt.TopLevelMixin:
        """Draw a chart of the device with most tenants; ``session.chart(name, device_id)`` draws one of another."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return draw_one(self._analysis, assemble(self._analysis), name, None)
        except UsageError as error:
            raise AttributeError(str(error)) from error

    def __dir__(self) -> list[str]:
        """List the charts that there is data for."""
        return chart_names(self._analysis, assemble(self._analysis), None)

    def __repr__(self) -> str:
        """Name them."""
        return f"<Charts: {', '.join(dir(self))}>"


def render(analysis: Analysis, fmt: str, *, command: str = "", detail: bool = False) -> str:
    """Write everything that is known.

    Parameters
    ----------
    analysis
        The analysis.
    fmt
        ``html`` (one self-contained file, opens offline), ``md`` (a ticket), ``txt`` (a terminal) or
        ``json`` (the contract).
    command
        How it was made, for the provenance.
    detail
        With arrays of intervals.

    Returns
    -------
    str
        The file's text.

    Raises
    ------
    pyanalyze.errors.UsageError
        Another format.

    Examples
    --------
    >>> import pyanalyze
    >>> render(pyanalyze.load(capture).analysis, "md").startswith("#")
    True
    """
    if fmt == "html":
        return _html(analysis, command, detail=detail)
    report = assemble(analysis, detail=detail)
    if fmt == "json":
        return report.to_json()
    kernels = analysis.launch_configurations
    if fmt == "md":
        from pyanalyze.report.markdown import render_markdown

        return render_markdown(report, kernels, command=command)
    if fmt == "txt":
        from pyanalyze.report.text import render_text

        return render_text(report, kernels, command=command)
    raise UsageError(f"no format is named {fmt}; choose from html, md, json, txt")


def _html(analysis: Analysis, command: str, *, detail: bool) -> str:
    from pyanalyze.report.static_charts import Painter

    with Painter() as painter:
        report = assemble(analysis, detail=detail)
        from pyanalyze.report.html import render_html

        tools = ", ".join(f"{name} {version(name)}" for name in ("polars", "altair", "vl-convert-python"))
        return render_html(
            report,
            _charts(analysis, report),
            tools,
            kernels=analysis.launch_configurations,
            command=command,
            painter=painter,
        )


def _tracks(tables: TableSet, window: tuple[int, int], here: pl.Expr) -> pl.DataFrame:
    """As many marks as a picture can hold: zooming in on a short capture shows single slices."""
    from pyanalyze.charts import MAX_MARKS

    for marks in (MAX_MARKS, MAX_MARKS // 2, MAX_MARKS // 5):
        tracks = timeline(tables, *window, marks=marks).filter(here)
        if tracks.height <= MAX_MARKS:
            break
    return with_attributed(tables, tracks)


class _Lane(NamedTuple):
    """The track of an MPS group: records name any client for all, so that no residency is of one of them.

    Attributes
    ----------
    labels
        Of all tenants, the group among them, without clients that were not traced: nothing is known of each.
    track
        The tenant that the residency of each client is drawn as.
    alike
        Whose colour the group has.
    """

    labels: Mapping[int, str]
    track: Mapping[int, int]
    alike: Mapping[int, int]

    def residency(self, tracks: pl.DataFrame) -> pl.DataFrame:
        """Draw the residency of all clients as that of the group; what their kernels and copies show stays theirs."""
        import polars as pl

        resident = pl.col("track").cast(pl.String).str.contains("residency")
        return tracks.with_columns(
            pl.when(resident).then(pl.col("tenant_id").replace(self.track)).otherwise("tenant_id").alias("tenant_id")
        )


def _lane_of(device: Device) -> _Lane:
    """Give the MPS group of a device a track of its own; without a group every tenant has its own."""
    labels, group = dict(tenant_labels(device.tenants)), device.mps_group()
    if not group:
        return _Lane(labels, {}, {})
    first = group[0].tenant_id
    traced = any(t.busy_ns is not None or t.copies is not None for t in group)
    lane = max(labels) + 1 if traced else first
    for tenant in group:
        if tenant.busy_ns is None and tenant.copies is None:
            del labels[tenant.tenant_id]
    labels[lane] = holder_text(group[0], device, short=True)
    return _Lane(labels, {t.tenant_id: lane for t in group}, {lane: first})


def draw_two(a: tuple[Analysis, Report], b: tuple[Analysis, Report]) -> alt.TopLevelMixin | None:
    """Draw the timelines of two runs on one axis; None: one of them has no activity.

    Parameters
    ----------
    a, b
        Each run with its report.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> run = session.analysis, session.report()
    >>> "6 tenants" in draw_two(run, run).to_dict()["usermeta"]["summary"]
    True
    """
    import polars as pl

    from pyanalyze.charts.timeline import Recorded, two_timelines

    found = []
    for analysis, report in (a, b):
        device = main_device(report)
        if device is None or device.window is None:
            return None
        lane = _lane_of(device)
        window = (device.window.start_ns, device.window.end_ns)
        whose = pl.col("tenant_id").is_in([tenant.tenant_id for tenant in device.tenants])
        here = (pl.col("device_id") == device.device_id) & whose
        tracks = lane.residency(_tracks(analysis.tables, window, here))
        if tracks.is_empty():
            return None
        found.append(Recorded(tracks, lane.labels, window, device.device_id))
    return two_timelines(*found)


def draw_png(analysis: Analysis, report: Report) -> dict[str, bytes]:
    """Draw every chart that a device has data for as a picture, on white.

    Parameters
    ----------
    analysis, report
        As for :func:`draw`.

    Returns
    -------
    dict
        PNG files by :func:`pyanalyze.report.blocks.chart_key`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> draw_png(session.analysis, session.report())["usage-0"][1:4]
    b'PNG'
    """
    from pyanalyze.charts.style import png

    return {key: png(chart.to_dict()) for key, chart in draw(analysis, report).items()}


def draw_one(analysis: Analysis, report: Report, name: str, device_id: int | None) -> alt.TopLevelMixin:
    """Draw one chart of a device; None: of the device with most tenants.

    Raises
    ------
    pyanalyze.errors.UsageError
        The device has no data for such a chart.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "summary" in draw_one(session.analysis, session.report(), "usage", None).to_dict()["usermeta"]
    True
    """
    number = _device_of(report, device_id)
    drawn = draw(analysis, report)
    key = chart_key(name, number)
    if key not in drawn:
        # The names that may be given, not the keys of a page.
        known = _names_of(drawn, number)
        there = f"there is for {', '.join(known)}" if known else "nor for any other"
        raise UsageError(f"there is no data for a chart {name} of device {number}; {there}{did_you_mean(name, known)}")
    return drawn[key]


def chart_names(analysis: Analysis, report: Report, device_id: int | None) -> list[str]:
    """Name the charts that a device has data for; None: the device with most tenants.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "limiters" in chart_names(session.analysis, session.report(), None)
    True
    """
    return _names_of(draw(analysis, report), _device_of(report, device_id))


def _device_of(report: Report, device_id: int | None) -> int:
    main = main_device(report)
    number = device_id if device_id is not None or main is None else main.device_id
    return -1 if number is None else number


def _names_of(drawn: Mapping[str, object], device_id: int) -> list[str]:
    return sorted(key.removesuffix(f"-{device_id}") for key in drawn if key.endswith(f"-{device_id}"))


def draw(analysis: Analysis, report: Report) -> dict[str, alt.TopLevelMixin]:
    """Draw every chart that a device has data for.

    Parameters
    ----------
    analysis
        The analysis.
    report
        Its report: which devices and tenants there are.

    Returns
    -------
    dict
        Charts by :func:`pyanalyze.report.blocks.chart_key`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "limiters-0" in draw(session.analysis, session.report())
    True
    """
    return dict(_charts(analysis, report))


def _charts(analysis: Analysis, report: Report) -> Iterator[tuple[str, alt.TopLevelMixin]]:
    import polars as pl

    from pyanalyze import charts
    from pyanalyze.analysis.interference import kernels_solo
    from pyanalyze.results.explain import MOST_GROUPS

    tables = analysis.tables
    compared = {found.device_id: found for found in analysis.interference}
    for device in shown_devices(report):
        number = device.device_id
        named = listed_labels(device.listed)
        whose = {one.pid: named[place] for place, one in enumerate(device.listed) if one.pid is not None}
        # A list of the board has processes of its MIG instances too: each is shown where it is.
        points = [point for point in series_of(tables, number) if point["pid"] is None or point["pid"] in whose]
        if points and not (device.sampled is not None and device.sampled.one_moment):
            total = None if device.memory is None else device.memory.total_bytes
            entity = None if device.sampled is None else device.sampled.entity
            whole = "whole device" if entity is None else f"entity {visible(entity, 20)}"
            yield chart_key("samples", number), charts.sampled_use(points, whose, memory_bytes=total, whole=whole)
        if device.window is None:
            continue
        labels = tenant_labels(device.tenants)
        window = (device.window.start_ns, device.window.end_ns)
        here = pl.col("device_id") == number
        # Work of no tenant that is known stays; of many tenants the page shows the largest.
        mine = here & (pl.col("tenant_id").is_null() | pl.col("tenant_id").is_in(list(labels)))
        lane = _lane_of(device)
        tracks = lane.residency(_tracks(tables, window, mine))
        if not tracks.is_empty():
            yield (
                chart_key("timeline", number),
                charts.timeline(
                    tracks,
                    lane.labels,
                    device_id=number,
                    window=window,
                    samples=tables.samples,
                    switches=tables.switches.with_columns(pl.col("from_tenant_id", "to_tenant_id").replace(lane.track)),
                    kernels=kernels_within(tables, number, window),
                    alike=lane.alike,
                ),
            )
        if not (complete := tables.residency.filter(mine & pl.col("complete"))).is_empty():
            # Intervals of one MPS group are of one tenant and of one context, whatever client records name for it.
            group = device.mps_group()
            if group:
                members = [t.tenant_id for t in group]
                of_any = pl.col("tenant_id").is_in(members)
                one_context = pl.col("hw_context").filter(of_any).first()
                complete = complete.with_columns(
                    tenant_id=pl.col("tenant_id").replace(members, members[0]),
                    hw_context=pl.when(of_any).then(one_context).otherwise("hw_context"),
                )
            of_group = {t.tenant_id: holder_text(t, device, short=True) for t in group}
            yield chart_key("slices", number), charts.slice_lengths(complete, labels | of_group, device_id=number)
        elif not (inferred := tables.inferred_residency.filter(mine)).is_empty():
            intervals = inferred.with_columns(complete=pl.lit(value=True))
            yield chart_key("slices", number), charts.slice_lengths(intervals, labels, device_id=number)
        if device.tenants and not copies_only(device):
            # As in the tables: residency inside the window, not that of a context before its first kernel.
            for_all = device.named_for_all()
            held = {t.tenant_id: None if t in for_all else t.resident_ns for t in device.tenants}
            attributed = {t.tenant_id: t.attributed_ns for t in device.tenants}
            usage = tables.tenant_usage.filter(mine).with_columns(
                pl.col("tenant_id").replace_strict(held, default=None, return_dtype=pl.Int64).alias("resident_ns"),
                pl.col("tenant_id")
                .replace_strict(attributed, default=None, return_dtype=pl.Int64)
                .alias("attributed_ns"),
            )
            # Of all clients together; what each of them had is null in the report.
            shares = [(t.gpu_time_share or 0.0, lane.track[t.tenant_id]) for t in device.mps_group()[:1]]
            yield (
                chart_key("usage", number),
                charts.usage(
                    usage.filter(pl.col("tenant_id").is_in(list(lane.labels))),
                    lane.labels,
                    device_id=number,
                    window_ns=window[1] - window[0],
                    together={track: round(share * (window[1] - window[0])) for share, track in shares},
                    alike=lane.alike,
                ),
            )
        check = analysis.counter_check(number)
        if check is not None:
            yield chart_key("counters", number), charts.counters(check)
        period_ns = switch_period_ns(tables, number)
        # Of kernels whose occupancy is not known, nothing was placed.
        if device.occupancy is not None and not tables.sm_warps.filter(here).is_empty():
            yield (
                chart_key("sm_heatmap", number),
                charts.sm_heatmap(
                    tables.sm_warps,
                    device_id=number,
                    warp_slots=tables.rows_of("devices", number)[0]["max_warps_per_sm"],
                    switch_period_ns=period_ns,
                ),
            )
        if not tables.sm_occupancy.filter(here).is_empty():
            yield (
                chart_key("occupancy", number),
                charts.occupancy(
                    tables.sm_occupancy, labels, device_id=number, window=window, switch_period_ns=period_ns
                ),
            )
        if not tables.kernel_occupancy.filter(here & pl.col("limiters").is_not_null()).is_empty():
            usable = {t.tenant_id: t.usable_sms for t in device.tenants if t.usable_sms is not None}
            yield (
                chart_key("limiters", number),
                charts.limiters(
                    analysis.launch_configurations, device_id=number, sm_count=device.sm_count, usable=usable
                ),
            )
        found = compared[number]
        # With one other tenant it is the slowdown that a table has already.
        if found.figures is not None and found.figures.matrix and len(device.tenants) > 2:
            yield (
                chart_key("matrix", number),
                charts.victim_by_aggressor(
                    found.figures.matrix,
                    labels,
                    kind=pairwise_kind(device),
                    from_below=known_from_below(device),
                    without=pairs_without_figure(device),
                ),
            )
        if any(tenant.causes is not None for tenant in device.tenants):
            yield chart_key("causes", number), charts.cause_bars(found.tenants, labels)
        if len(device.tenants) > 1 and any(tenant.busy_ns for tenant in device.tenants):
            binned = latencies(tables, number, *window, bins=150)
            yield chart_key("latency", number), charts.latency_over_time(binned, labels, window=window)
        slow = [one for one in analysis.units_by_tail.slow if one.group.device_id == number][:MOST_GROUPS]
        if slow:
            yield chart_key("excess", number), charts.excess_waterfall(slow)
            yield (
                chart_key("units", number),
                charts.units_over_time(tables.units.filter(here), slow, start_ns=window[0]),
            )
        kernels = kernels_solo(tables, analysis.interference)
        if not kernels.filter(here & pl.col("ratio_low").is_not_null()).is_empty():
            names = tables.kernel_occupancy.select("device_id", "name", "short_name").unique(["device_id", "name"])
            called = kernels.join(names, on=["device_id", "name"], how="left", maintain_order="left")
            yield chart_key("solo", number), charts.solo_against_shared(called, labels, device_id=number)
