"""Who ran when: a track per tenant, with switches and samples of the whole GPU below on the same axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from pyanalyze.analysis.over_time import BUCKETS_PER_OCTAVE
from pyanalyze.charts.style import (
    MAX_MARKS,
    OTHER,
    decorate,
    empty,
    folded,
    inline,
    label_of,
    only_device,
    pan_and_zoom,
    tenant_scale,
    window_time,
)
from pyanalyze.text.escape import visible
from pyanalyze.text.format import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.analysis.over_time import KernelsWithin

__all__ = ["Recorded", "timeline", "two_timelines"]

#: Width of the track labels in pixels; fixed, so that the strips below line up and the page can fit the width.
_LABELS = 150
_GUTTER = _LABELS + 46

#: Metrics of the strips below: canonical name, title, divisor to the shown unit, highest value (or none). Of
#: those with the same title the first that was sampled is drawn.
_STRIPS: tuple[tuple[str, str, float, float | None], ...] = (
    ("gpu_utilization_pct", "With a kernel (%)", 1.0, 100.0),
    ("clock_sm_hz", "Clock (MHz)", 1e6, None),
    ("clock_graphics_hz", "Clock (MHz)", 1e6, None),
    ("memory_used_bytes", "Memory (GiB)", 2.0**30, None),
    ("power_w", "Power (W)", 1.0, None),
    ("power_average_w", "Power (W)", 1.0, None),
    ("power_instant_w", "Power (W)", 1.0, None),
)


def timeline(
    table: pl.DataFrame,
    labels: Mapping[int, str],
    *,
    device_id: int = 0,
    window: tuple[int, int] | None = None,
    samples: pl.DataFrame | None = None,
    switches: pl.DataFrame | None = None,
    kernels: KernelsWithin | None = None,
    clock: Mapping[int, int] | None = None,
    alike: Mapping[int, int] | None = None,
    width: int = 720,
) -> alt.TopLevelMixin:
    """Timeline of one device.

    Parameters
    ----------
    table
        The ``timeline`` table: ``device_id, tenant_id, track, start_ns, end_ns, busy_ns, events, label``; and
        ``attributed_ns`` where it is known.
        More than :data:`~pyanalyze.charts.style.MAX_MARKS` rows are merged per tenant, track and time bin.
    labels
        Shown name per tenant id, see :func:`pyanalyze.results.labels.tenant_labels`.
    device_id
        The device.
    window
        Start and end in ns; by default from the rows.
    samples
        The ``nvml_samples`` table: ``time_ns, device_id, pid, metric, value``. Device-wide rows are drawn.
    switches
        The ``switches`` table: ``time_ns, device_id, from_tenant_id, to_tenant_id, gap_ns, full_ns, kind``. A tick
        each; very many are counted per time bin.
    kernels
        For a page to count what is selected.
    clock
        Nanoseconds to add to the positions of a tenant for those of its capture, where the two differ.
    alike
        Tenants that have the colour of another one.
    width
        Width of the plotting area in pixels.

    Returns
    -------
    altair chart
        x in milliseconds from the start of the window; tooltips keep nanoseconds as nsys has them.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> len(timeline(session.timeline(), {0: "app_a", 1: "app_b", 2: "app_c"}).to_dict()["vconcat"])
    1
    """
    mine = only_device(table, device_id).filter(pl.col("end_ns") >= pl.col("start_ns"))
    if mine.is_empty():
        return empty("No interval of this device was captured.")
    start, end = window or (int(mine["start_ns"].min()), int(mine["end_ns"].max()))  # type: ignore[arg-type]
    span = max(end - start, 1)
    mine = mine.filter((pl.col("end_ns") >= start) & (pl.col("start_ns") <= end))
    marks = _bounded(mine, start, span)
    data = _rows(marks, labels, start, clock or {})
    used = list(dict.fromkeys(marks["tenant_id"].to_list()))
    scale = tenant_scale(labels, used, alike)
    # Two runs have no zero in common.
    title = "Time (ms from the start of each run)" if clock else window_time(start)
    strips = [] if samples is None else _strips(samples, device_id, start, end, title, width)
    ticks = None if switches is None else _switches(switches, labels, device_id, start, end)
    if ticks is not None:
        strips.insert(0, _switch_strip(*ticks, _time_axis(title, span, last=not strips), width))
    tracks = _tracks(data, _time_axis(title, span, last=not strips), span, scale, width).add_params(pan_and_zoom())
    # The x scale is shared: moving the tracks moves the strips below as well.
    chart: Any = alt.vconcat(tracks, *strips, spacing=6).resolve_scale(x="shared", color="independent")
    merged = "" if marks.height == mine.height else f" {mine.height} intervals are merged into {marks.height} marks."
    summary = f"Timeline of {len(used)} tenants over {duration(span)}.{merged}"
    counted: dict[str, Any] = {}
    if kernels is not None:
        other = "unnamed" if kernels.step_ns is None else "(other kernels)"
        names = [[label_of(tenant, labels), visible(name) or other] for tenant, name in kernels.kinds]
        counted = {"kernels": {"kinds": names, "rows": folded(kernels.rows)}}
        if kernels.step_ns is not None:
            counted["kernels"] |= {"step": kernels.step_ns, "octave": BUCKETS_PER_OCTAVE}
    done: alt.TopLevelMixin = decorate(chart, gutter=_GUTTER, summary=summary, **counted)
    return done


@dataclass(frozen=True)
class Recorded:
    """What one of two timelines shows.

    Attributes
    ----------
    table, labels, window
        As :func:`timeline` takes them.
    device_id
        The device.
    """

    table: pl.DataFrame
    labels: Mapping[int, str]
    window: tuple[int, int]
    device_id: int


#: Added to the tenant ids of the second of two runs: no capture has so many tenants.
_SECOND = 1 << 20


def two_timelines(a: Recorded, b: Recorded, *, width: int = 720) -> alt.TopLevelMixin:
    """Timelines of two runs on one axis: each begins at its own start.

    Parameters
    ----------
    a, b
        The runs.
    width
        Width of the plotting area in pixels.

    Returns
    -------
    altair chart
        A track for each tenant of A, then of B; x in milliseconds from the start of the run. Tooltips keep nanoseconds
        as nsys has them in that run.

    Examples
    --------
    >>> import pyanalyze
    >>> table = pyanalyze.load(capture).timeline()
    >>> run = Recorded(table, {0: "app_a", 1: "app_b", 2: "app_c"}, (0, 1_000_000_000), 0)
    >>> two_timelines(run, run).to_dict()["usermeta"]["summary"].partition(".")[0]
    'Timeline of 6 tenants over 1'
    """
    parts: list[pl.DataFrame] = []
    labels: dict[int, str] = {}
    clock: dict[int, int] = {}
    for name, run, offset in (("A", a, 0), ("B", b, _SECOND)):
        start, end = run.window
        mine = only_device(run.table, run.device_id).filter(
            pl.col("tenant_id").is_not_null(), pl.col("end_ns") >= start, pl.col("start_ns") <= end
        )
        parts.append(
            mine.with_columns(
                pl.col("tenant_id").cast(pl.UInt32) + offset,
                pl.col("start_ns") - start,
                pl.col("end_ns") - start,
                pl.col("track", "label").cast(pl.String),
                device_id=pl.lit(0, pl.UInt32),
            )
        )
        labels |= {tenant + offset: f"{name}: {label}" for tenant, label in run.labels.items()}
        clock |= {tenant + offset: start for tenant in run.labels}
    longest = max(run.window[1] - run.window[0] for run in (a, b))
    # A tenant of both runs has one colour.
    first = {label: tenant for tenant, label in a.labels.items()}
    alike = {tenant + _SECOND: first[label] for tenant, label in b.labels.items() if label in first}
    return timeline(pl.concat(parts), labels, window=(0, longest), clock=clock, alike=alike, width=width)


def _time_axis(title: str, span: int, *, last: bool) -> alt.X:
    """The time axis; only the lowest view is labelled."""
    return alt.X(
        "a:Q",
        title=title if last else None,
        scale=alt.Scale(domain=[0, span / 1e6], nice=False),
        axis=alt.Axis(labels=last, ticks=last, tickCount=8, labelOverlap=True, labelFlush=True),
    )


def _bounded(mine: pl.DataFrame, start: int, span: int) -> pl.DataFrame:
    """At most MAX_MARKS rows: the finer tracks are merged into time bins, busy time and counts summed."""
    columns = ["tenant_id", "track", "start_ns", "end_ns", "busy_ns", "events", "label", "attributed_ns"]
    if "attributed_ns" not in mine.columns:
        mine = mine.with_columns(attributed_ns=pl.lit(None, pl.Int64))
    # Dictionary columns become text: bins compare labels.
    mine = mine.select(columns).with_columns(pl.col("track", "label").cast(pl.String))
    if mine.height <= MAX_MARKS:
        return mine.sort("start_ns")
    groups = mine.select("tenant_id", "track").n_unique()
    width = max(span // max(MAX_MARKS // (2 * groups), 1), 1)
    binned = (
        mine.with_columns(bin=(pl.col("start_ns") - start) // width)
        .group_by("tenant_id", "track", "bin")
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("busy_ns").sum(),
            pl.col("events").sum(),
            # A sum of nothing known is not known.
            attributed_ns=pl.when(pl.col("attributed_ns").count() > 0).then(pl.col("attributed_ns").sum()),
            label=pl.when(pl.col("label").n_unique() == 1).then(pl.col("label").first()),
        )
    )
    # With very many tenants even one mark each per bin is too many: the longest stay.
    return binned.drop("bin").top_k(MAX_MARKS, by="busy_ns").select(columns).sort("start_ns", "tenant_id", "track")


def _rows(marks: pl.DataFrame, labels: Mapping[int, str], start: int, clock: Mapping[int, int]) -> alt.SchemaBase:
    """Short keys: this is the largest part of a report."""
    rows: list[dict[str, Any]] = []
    for tenant, track, begin, end, busy, events, name, attributed in marks.iter_rows():
        rows.append(
            {
                "a": (begin - start) / 1e6,
                "b": (end - start) / 1e6,
                "t": label_of(tenant, labels),
                "l": track,
                "n": visible(name) or ("several" if events > 1 else "–"),
                "e": events,
                # Text, because a nanosecond position may not fit a double, and to be pasted into nsys.
                "s": str(begin + clock.get(tenant, 0)),
                "d": duration(end - begin),
                "u": duration(busy),
            }
            | ({"g": duration(attributed)} if track == "kernels" else {})
        )
    return inline(rows)


def _tracks(data: alt.SchemaBase, x: alt.X, span: int, scale: alt.Scale, width: int) -> alt.LayerChart:
    tips = [
        alt.Tooltip("t:N", title="Tenant"),
        alt.Tooltip("l:N", title="Track"),
        alt.Tooltip("n:N", title="Name"),
        alt.Tooltip("s:N", title="Start (ns, capture clock)"),
        alt.Tooltip("d:N", title="Length"),
        alt.Tooltip("u:N", title="Busy in it"),
        alt.Tooltip("e:Q", title="Intervals", format=","),
    ]
    axis = alt.Axis(minExtent=_LABELS, maxExtent=_LABELS, labelLimit=_LABELS - 8, ticks=False, domain=False)
    base = alt.Chart(data).encode(
        x=x,
        x2=alt.X2("b:Q"),
        y=alt.Y("t:N", title=None, sort=scale.domain, axis=axis),
        color=alt.Color("t:N", scale=scale, legend=None),
        tooltip=tips,
    )
    # Short intervals must not vanish: every bar is a pixel longer, whatever the zoom. At the left edge that pixel is on
    # its right and at the right edge on its left: what lies outside of the plotting area is cut off.
    before = f"datum.a / {span / 1e6}"
    bar: Any = {"xOffset": alt.ExprRef(f"-{before}"), "x2Offset": alt.ExprRef(f"1 - {before}")}
    layers = [
        base.transform_filter("datum.l === 'residency'").mark_bar(**bar, height=38, opacity=0.4),
        base.transform_filter("datum.l === 'inferred residency'").mark_bar(**bar, height=38, opacity=0.22),
        base.transform_filter("datum.l === 'graphs'").mark_bar(
            **bar, height=12, yOffset=-4, opacity=0.65, cornerRadius=3
        ),
        base.transform_filter("datum.l === 'kernels'")
        .mark_bar(**bar, height=18, yOffset=-4)
        .encode(tooltip=[*tips, alt.Tooltip("g:N", title="Attributed GPU time")]),
        base.transform_filter("datum.l === 'copies'").mark_bar(**bar, height=5, yOffset=13, opacity=0.9),
    ]
    tracks: alt.LayerChart = alt.LayerChart(layer=layers).properties(width=width, height=alt.Step(48))
    return tracks


#: Ticks in the row of switches; more are counted per bin.
_TICKS = 600


def _switches(
    switches: pl.DataFrame, labels: Mapping[int, str], device_id: int, start: int, end: int
) -> tuple[list[dict[str, Any]], bool] | None:
    """Marks of the switches, and whether each is one switch; None: there were none."""
    mine = only_device(switches, device_id).filter(
        (pl.col("kind").cast(pl.String) == "switch") & pl.col("time_ns").is_between(start, end)
    )
    if mine.is_empty():
        return None
    mine = mine.with_columns(cost_ns=pl.coalesce("full_ns", "gap_ns")).sort("time_ns")
    if mine.height <= _TICKS:
        columns = ("time_ns", "from_tenant_id", "to_tenant_id", "cost_ns")
        return [
            {
                "a": (at - start) / 1e6,
                "f": label_of(gone, labels),
                "t": label_of(come, labels),
                "d": duration(cost),
                "s": str(at),
            }
            for at, gone, come, cost in mine.select(columns).iter_rows()
        ], True
    width = max((end - start) // _TICKS, 1)
    bins = (
        mine.group_by(bin=(pl.col("time_ns") - start) // width)
        .agg(n=pl.len(), cost=pl.col("cost_ns").sum(), known=pl.col("cost_ns").count())
        .sort("bin")
    )
    most = int(bins["n"].max() or 1)  # type: ignore[arg-type]
    return [
        {
            "a": at * width / 1e6,
            "b": (at + 1) * width / 1e6,
            "n": n,
            "o": 0.2 + 0.8 * n / most,
            "d": duration(cost if known else None),
            "s": str(start + at * width),
        }
        for at, n, cost, known in bins.iter_rows()
    ], False


def _switch_strip(rows: list[dict[str, Any]], each: bool, x: alt.X, width: int) -> Any:  # noqa: FBT001
    axis = alt.Axis(minExtent=_LABELS, maxExtent=_LABELS, labelLimit=_LABELS - 8, ticks=False, domain=False)
    name = "switches" if each else "switches (darker: more)"
    base = alt.Chart(inline(rows)).encode(y=alt.YDatum(name, type="nominal", title=None, axis=axis))
    if each:
        strip = base.mark_tick(color=OTHER, thickness=1, size=14, orient="vertical").encode(
            x=x,
            tooltip=[
                alt.Tooltip("f:N", title="Switch from"),
                alt.Tooltip("t:N", title="to"),
                alt.Tooltip("d:N", title="Cost"),
                alt.Tooltip("s:N", title="Time (ns, capture clock)"),
            ],
        )
    else:
        strip = base.mark_bar(color=OTHER, height=14).encode(
            x=x,
            x2=alt.X2("b:Q"),
            opacity=alt.Opacity("o:Q", scale=None, legend=None),
            tooltip=[
                alt.Tooltip("n:Q", title="Switches", format=","),
                alt.Tooltip("d:N", title="Cost of them"),
                alt.Tooltip("s:N", title="From (ns, capture clock)"),
            ],
        )
    return strip.properties(width=width, height=16)


def _strips(samples: pl.DataFrame, device_id: int, start: int, end: int, time: str, width: int) -> list[Any]:
    whole = samples.filter(
        (pl.col("device_id") == device_id)
        & pl.col("pid").is_null()
        & pl.col("time_ns").is_between(start, end)
        & pl.col("value").is_not_null()
    )
    found: list[tuple[str, float | None, list[dict[str, Any]]]] = []
    titles: set[str] = set()
    for metric, title, divisor, top in _STRIPS:
        points = whole.filter(pl.col("metric").cast(pl.String) == metric).sort("time_ns")
        if points.is_empty() or title in titles:
            continue
        titles.add(title)
        if points.height > MAX_MARKS // 4:
            points = points.gather_every(-(-points.height // (MAX_MARKS // 4)))
        rows: list[dict[str, Any]] = [
            {"a": (t - start) / 1e6, "v": v / divisor, "s": str(t)}
            for t, v in points.select("time_ns", "value").iter_rows()
        ]
        found.append((title, top, rows))
    return [
        _strip(title, top, rows, _time_axis(time, max(end - start, 1), last=i + 1 == len(found)), width)
        for i, (title, top, rows) in enumerate(found)
    ]


def _strip(title: str, top: float | None, rows: list[dict[str, Any]], x: alt.X, width: int) -> Any:
    full = alt.Undefined if top is None else [0, 1.05 * top]
    # The title stands beside the numbers: the picture has to leave room for what to change.
    axis = alt.Axis(
        minExtent=_LABELS,
        maxExtent=_LABELS,
        tickCount=1,
        titleAngle=0,
        titleAlign="right",
        titleBaseline="middle",
        titleX=-44,
        titleY=9,
        titleFontSize=11,
        titleFontWeight="normal",
        titleLimit=_LABELS - 44,
    )
    return (
        alt.Chart(inline(rows))
        # A sample covers the time before it, so the step ends at its point.
        .mark_line(interpolate="step-before", strokeWidth=1.5, color=OTHER, point={"size": 12, "color": OTHER})
        .encode(
            x=x,
            y=alt.Y(
                "v:Q",
                title=title,
                scale=alt.Scale(domain=full, zero=not title.startswith("Clock"), nice=top is None),
                axis=axis,
            ),
            tooltip=[alt.Tooltip("v:Q", title=f"{title}, sampled"), alt.Tooltip("s:N", title="Time (ns)")],
        )
        .properties(width=width, height=18)
    )
