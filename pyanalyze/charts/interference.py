"""Who slowed whom, through what: heatmap, causes, the same kernels solo and shared, latency over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import altair as alt

from pyanalyze.analysis.impact import CAUSE_WORDS, Cause
from pyanalyze.charts.style import (
    MAX_MARKS,
    OTHER,
    decorate,
    empty,
    inline,
    label_of,
    only_device,
    tenant_scale,
    window_time,
)
from pyanalyze.text.escape import visible
from pyanalyze.text.format import duration, percent, ratio

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.interference import TenantInterference
    from pyanalyze.results.interference import MatrixCell

__all__ = ["cause_bars", "latency_over_time", "solo_against_shared", "victim_by_aggressor"]

#: Parts of added latency in the order in which they happen, with a colour each: those of Paul Tol's "muted", told
#: apart with any colour vision, that no tenant has.
_PARTS = {
    Cause.LAUNCH: "#DDCC77",
    Cause.QUEUE: "#999933",
    Cause.NOT_RESIDENT: "#882255",
    Cause.SWITCH: "#CC6677",
    Cause.EXECUTION: "#AA4499",
    Cause.OTHERS: "#332288",
    Cause.UNEXPLAINED: "#8C8C8C",
}
#: Those with white text, and the least part that has room for one.
_DARK = (Cause.NOT_RESIDENT, Cause.EXECUTION, Cause.OTHERS)
_LABELLED = 0.07
#: A smaller part is not seen, and has no place in the legend.
_SEEN = 0.001
_SOLO, _SHARED = "solo", "in the co-run"
_TOP = 15
#: Characters of a kernel's name that fit beside the rows, with its rank; and of the whole name in a tooltip.
_KERNEL, _WHOLE = 42, 300
#: Pixels of all rows of latencies together, and of one at least.
_ROWS_HEIGHT, _LEAST_ROW = 200, 50


def victim_by_aggressor(
    matrix: Sequence[MatrixCell],
    labels: Mapping[int, str],
    *,
    kind: Literal["latency", "slowdown"] = "slowdown",
    from_below: Collection[int] = (),
    without: Mapping[tuple[int, int], str] | None = None,
    width: int = 420,
) -> alt.TopLevelMixin:
    """Heatmap: slowdown of each victim (row) by each aggressor (column).

    Parameters
    ----------
    matrix
        Cells of :class:`pyanalyze.results.interference.Interference`; without a slowdown: cannot be told apart.
    labels
        Shown name per tenant id.
    kind
        Of latency, or of elapsed time, which has an interval.
    from_below
        Victims whose latency slowdowns are lower bounds.
    without
        Pairs of victim and aggressor that have no cell, and why; they get one with a question mark.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> device = pyanalyze.load(capture).interference()[0]
    >>> "app_c" in str(victim_by_aggressor(device.figures.matrix, {0: "app_a", 1: "app_b", 2: "app_c"}).to_dict())
    True
    """
    rows = [_pair(cell, labels, kind, bound=kind == "latency" and cell.victim in from_below) for cell in matrix]
    rows += [
        {"v": label_of(victim, labels), "a": label_of(aggressor, labels), "x": 1.0, "text": "?", "more": why}
        for (victim, aggressor), why in (without or {}).items()
    ]
    rows = rows[:MAX_MARKS]
    if not rows:
        return empty("Nobody was beside anybody.")
    top = max([1.5, *(float(row["x"]) for row in rows)])
    # Tenants in the order of every other chart and table.
    order = [label_of(tenant, labels) for tenant in sorted(labels)]
    base = alt.Chart(inline(rows)).encode(
        x=alt.X("a:N", title="Aggressor", sort=order, axis=alt.Axis(orient="top", labelAngle=0, labelLimit=120)),
        y=alt.Y("v:N", title="Victim", sort=order, axis=alt.Axis(minExtent=150, maxExtent=150, labelLimit=120)),
        tooltip=[
            alt.Tooltip("v:N", title="Victim"),
            alt.Tooltip("a:N", title="Aggressor"),
            alt.Tooltip("text:N", title="Slowdown"),
            alt.Tooltip("more:N", title="95 % CI"),
        ],
    )
    color = alt.Color("x:Q", scale=alt.Scale(domain=[1, top], range=["#F4F1EA", "#D55E00"]), legend=None)
    cells = base.mark_rect(stroke="#888888", strokeWidth=0.5).encode(color=color)
    text = base.mark_text(fontSize=12, color="#111111").encode(text=alt.Text("text:N"))
    chart = alt.layer(cells, text).properties(width=width, height=alt.Step(36))
    summary = "; ".join(f"{r['v']} beside {r['a']}: {r['text']}" for r in rows[:12]) + "."
    done: alt.TopLevelMixin = decorate(chart, gutter=180, summary=summary)
    return done


def _pair(
    cell: MatrixCell, labels: Mapping[int, str], kind: Literal["latency", "slowdown"], *, bound: bool
) -> dict[str, Any]:
    value = getattr(cell, kind)
    pair = {"v": label_of(cell.victim, labels), "a": label_of(cell.aggressor, labels)}
    if cell.share is not None:
        return {**pair, "x": 1 + cell.share, "text": percent(cell.share), "more": "part of the time that others took"}
    if value is None:
        other = cell.inseparable_from
        text, more = "?", "not known" if other is None else f"cannot be told from {label_of(other, labels)}"
    elif bound:
        text, more = f"at least {ratio(value)}", "a lower bound"
    else:
        known = kind == "slowdown" and cell.low is not None and cell.high is not None
        text, more = ratio(value), f"{cell.low:.2f} to {cell.high:.2f}" if known else "no interval"
    return {**pair, "x": 1.0 if value is None else max(value, 1.0), "text": text, "more": more}


def cause_bars(
    tenants: Sequence[TenantInterference], labels: Mapping[int, str], *, width: int = 720
) -> alt.TopLevelMixin:
    """Where the added latency of each slowed tenant went, as one bar of 100 % each.

    Waits behind own kernels count as what the first of them waited for, where that is known: as in sentences.

    Parameters
    ----------
    tenants
        Of one device; those that were not slowed have no bar.
    labels
        Shown name per tenant id.
    kind
        Of latency, or of elapsed time, which has an interval.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> device = pyanalyze.load(capture).interference()[0]
    >>> "waiting for its time slice" in str(cause_bars(device.tenants, {0: "app_a", 1: "app_b"}).to_dict())
    True
    """
    rows: list[dict[str, Any]] = [
        {
            "t": label_of(tenant.tenant_id, labels),
            "c": CAUSE_WORDS[cause],
            "o": order,
            "x": max(value, 0.0),
            "text": percent(value),
            "white": percent(value) if value >= _LABELLED and cause in _DARK else "",
            "black": percent(value) if value >= _LABELLED and cause not in _DARK else "",
        }
        for tenant in tenants
        if tenant.slowed and (causes := tenant.root_causes or tenant.causes) is not None
        for order, cause in enumerate(_PARTS)
        if (value := getattr(causes, cause)) is not None
    ][:MAX_MARKS]
    if not rows:
        return empty("Nobody was slowed, or it is not known where the time went.")
    shown = [cause for cause in _PARTS if any(r["c"] == CAUSE_WORDS[cause] and r["x"] >= _SEEN for r in rows)]
    base = alt.Chart(inline(rows)).encode(
        y=alt.Y("t:N", title=None, sort=None, axis=alt.Axis(minExtent=150, maxExtent=150, labelLimit=142, ticks=False)),
        order=alt.Order("o:Q"),
    )
    x = alt.X("x:Q", stack="normalize", title="Part of the added latency", axis=alt.Axis(format="%", tickCount=5))
    # Two layers, because a colour of its own for each text would join the scale of the bars.
    middle = alt.X("x:Q", stack="normalize", bandPosition=0.5)
    text = [
        base.mark_text(fontSize=11, color=color).encode(x=middle, text=alt.Text(f"{color}:N"))
        for color in ("white", "black")
    ]
    bars = base.mark_bar(stroke=OTHER, strokeWidth=0.5).encode(
        x=x,
        color=alt.Color(
            "c:N",
            scale=alt.Scale(domain=[CAUSE_WORDS[cause] for cause in shown], range=[_PARTS[cause] for cause in shown]),
            legend=alt.Legend(title=None, orient="bottom", columns=3, labelLimit=260),
        ),
        tooltip=[
            alt.Tooltip("t:N", title="Tenant"),
            alt.Tooltip("c:N", title="Part"),
            alt.Tooltip("text:N", title="Of the added latency"),
        ],
    )
    chart = alt.layer(bars, *text).properties(width=width, height=alt.Step(28))
    summary = "; ".join(f"{r['t']}: {r['c']} {r['text']}" for r in rows if r["x"] > 0.01) + "."
    done: alt.TopLevelMixin = decorate(chart, gutter=180, summary=summary)
    return done


def solo_against_shared(
    slowdowns: pl.DataFrame, labels: Mapping[int, str], *, device_id: int = 0, width: int = 420
) -> alt.TopLevelMixin:
    """The same kernel solo and beside others: how its execution time is distributed, and the ratio.

    Lengths are in units of the kernel's solo median: the bar holds half of the kernels, the line nine in ten, the tick
    is the median. The point is the ratio of geometric means with its 95 % interval.

    Parameters
    ----------
    slowdowns
        The ``slowdowns`` table; with the column `short_name` of ``kernel_occupancy`` kernels are called by that.
    labels
        Shown name per tenant id.
    device_id
        The device.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "A1" in str(solo_against_shared(session.slowdowns, {0: "app_a", 1: "app_b"}).to_dict())
    True
    """
    import polars as pl

    mine = (
        only_device(slowdowns, device_id)
        .filter(pl.col("ratio_low").is_not_null())
        .with_columns(pl.col("name", "against").cast(pl.String))
        .sort("total_ns", descending=True)
        .head(_TOP)
    )
    if mine.is_empty():
        return empty("No kernel ran often enough both solo and beside others.")
    rows: list[dict[str, Any]] = []
    spread: list[dict[str, Any]] = []
    for rank, row in enumerate(mine.iter_rows(named=True), 1):
        # The rank keeps two kernels of one shown name apart; a line break is in no shown name.
        shown = row.get("short_name") or (row["name"] or "unnamed").partition("(")[0].rstrip("<")
        name = f"{rank}. {visible(shown, _KERNEL)}"
        # Of kernels of one name that are launched in several sizes, the grid tells which.
        whole = {
            "whole": visible(row["name"] or "unnamed", _WHOLE),
            "size": " of ".join("x".join(str(row[f"{of}_{axis}"]) for axis in "xyz") for of in ("grid", "block")),
        }
        who = label_of(row["tenant_id"], labels)
        kernel = f"{name}\n{who}"
        rows.append(
            {
                "k": kernel,
                "name": name,
                **whole,
                "x": row["ratio"],
                "low": row["ratio_low"],
                "high": row["ratio_high"],
                "t": who,
                "s": _SHARED,
                "text": f"{duration(row['solo_median_ns'])} → {duration(row['median_ns'])}",
                "n": f"{row['n_solo']} solo ({row['against']}), {row['n']} shared",
            }
        )
        unit = max(row["solo_median_ns"], 1)
        for side, prefix in ((_SOLO, "solo_"), (_SHARED, "")):
            lengths = {part: row[f"{prefix}{part}_ns"] / unit for part in ("p5", "p25", "median", "p75", "p95")}
            spread.append({"k": kernel, **whole, "t": who, "s": side, **lengths})
    kernel_tooltip = [alt.Tooltip("whole:N", title="Kernel"), alt.Tooltip("size:N", title="Grid of blocks")]
    lines_of = alt.Axis(
        minExtent=310, maxExtent=310, labelLimit=302, labelExpr="split(datum.label, '\\n')", labelBaseline="line-bottom"
    )
    y = alt.Y("k:N", title=None, sort=None, axis=lines_of)
    offset = alt.YOffset("s:N", sort=[_SOLO, _SHARED], scale=alt.Scale(domain=[_SOLO, _SHARED]))
    color = alt.Color("t:N", scale=tenant_scale(labels, mine["tenant_id"].to_list()), legend=None)
    span = [
        min([0.95, *(r["low"] for r in rows), *(r["p5"] for r in spread)]),
        max([1.05, *(r["high"] for r in rows), *(r["p95"] for r in spread)]),
    ]
    scale = alt.Scale(domain=span, zero=False)
    title = ["Execution time over the solo median", "(of each pair, upper: solo, lower: shared)"]
    lengths_of = alt.Chart(inline(spread)).encode(
        y=y,
        yOffset=offset,
        color=color,
        tooltip=[
            *kernel_tooltip,
            alt.Tooltip("t:N", title="Tenant"),
            alt.Tooltip("s:N", title="Recorded"),
            *(alt.Tooltip(f"{part}:Q", format=".3f") for part in ("p5", "p25", "median", "p75", "p95")),
        ],
    )
    faint = alt.OpacityValue(0.6, condition={"test": alt.datum.s == _SOLO, "value": 0.3})
    lines = lengths_of.mark_rule(strokeWidth=1).encode(
        x=alt.X("p5:Q", title=title, scale=scale), x2=alt.X2("p95:Q"), opacity=faint
    )
    boxes = lengths_of.mark_bar(height=7).encode(x=alt.X("p25:Q", scale=scale), x2=alt.X2("p75:Q"), opacity=faint)
    middles = lengths_of.mark_tick(thickness=2, size=9).encode(x=alt.X("median:Q", scale=scale))
    base = alt.Chart(inline(rows)).encode(
        y=y,
        yOffset=offset,
        tooltip=[
            *kernel_tooltip,
            alt.Tooltip("t:N", title="Tenant"),
            alt.Tooltip("text:N", title="Median, solo → shared"),
            alt.Tooltip("x:Q", title="Ratio", format=".3f"),
            alt.Tooltip("low:Q", title="95 % from", format=".3f"),
            alt.Tooltip("high:Q", title="to", format=".3f"),
            alt.Tooltip("n:N", title="n"),
        ],
    )
    one = alt.Chart(inline([{"one": 1}])).mark_rule(strokeDash=[3, 3], color="#888888").encode(x=alt.X("one:Q"))
    interval = base.mark_rule(strokeWidth=2, color="#888888").encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=30, color="#888888").encode(x=alt.X("x:Q"))
    layers = (one, lines, boxes, middles, interval, points)
    chart = alt.layer(*layers).properties(width=width, height=alt.Step(15))
    summary = "; ".join(f"{r['name']} of {r['t']} {ratio(r['x'])}" for r in rows[:8]) + "."
    done: alt.TopLevelMixin = decorate(chart, gutter=340, summary=summary)
    return done


def latency_over_time(
    latencies: pl.DataFrame, labels: Mapping[int, str], *, window: tuple[int, int], width: int = 720
) -> alt.TopLevelMixin:
    """Latency of each tenant's kernels over time, in a row each, and under it how much of the time each had work.

    The rows have one scale: tenants of like latency would hide each other in one row.

    Parameters
    ----------
    latencies
        The table :meth:`pyanalyze.session.Session.latencies` of one device.
    labels
        Shown name per tenant id.
    window
        First and last time, ns.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> s = pyanalyze.load(capture)
    >>> chart = latency_over_time(s.latencies(0), {0: "app_a", 1: "app_b"}, window=s.span_ns)
    >>> "app_b" in str(chart.to_dict())
    True
    """
    if latencies.is_empty():
        return empty("No kernel was traced on this device.")
    bins = latencies["start_ns"].n_unique()
    ids = sorted(latencies["tenant_id"].unique().to_list())[: MAX_MARKS // (2 * bins)]
    shown = latencies.filter(latencies["tenant_id"].is_in(ids)).sort("tenant_id", "start_ns").to_dicts()
    scale = tenant_scale(labels, ids)
    marks = [
        {
            "t": label_of(r["tenant_id"], labels),
            "x": (r["start_ns"] + r["end_ns"] - 2 * window[0]) / 2e6,
            "p50": r["p50_ns"] / 1e6,
            "p95": r["p95_ns"] / 1e6,
            "n": r["kernels"],
        }
        for r in shown
        if r["kernels"] and r["p50_ns"]
    ]
    bars = [
        {
            "t": label_of(r["tenant_id"], labels),
            "x": (r["start_ns"] - window[0]) / 1e6,
            "x2": (r["end_ns"] - window[0]) / 1e6,
            "b": r["busy_ns"] / (r["end_ns"] - r["start_ns"]),
        }
        for r in shown
        if r["busy_ns"]
    ]
    domain = alt.Scale(domain=[0, (window[1] - window[0]) / 1e6], nice=False)
    color = alt.Color("t:N", scale=scale, legend=None)
    tips = [
        alt.Tooltip("t:N", title="Tenant"),
        alt.Tooltip("p50:Q", title="p50 (ms)", format=".3f"),
        alt.Tooltip("p95:Q", title="p95 (ms)", format=".3f"),
        alt.Tooltip("n:Q", title="kernels"),
    ]
    # A factor is as long everywhere, and kernels of 1 ms are not flat beside those of 100 ms.
    ends = [value for r in marks for value in (r["p50"], r["p95"])] or [1.0]
    decades = range(math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends))) + 1)
    powers = [10.0**power for power in decades]
    if len(powers) == 1:
        powers.append(10 * powers[0])
    # Of one or two decades powers alone are too few values to read a point by.
    ticks = powers if len(powers) > 3 else [step * power for power in powers for step in (1, 2, 5)]
    y = alt.Y(
        "p50:Q",
        title="ms (log)",
        scale=alt.Scale(type="log", domain=[powers[0], powers[-1]]),
        axis=alt.Axis(minExtent=40, maxExtent=40, format="~g", values=[tick for tick in ticks if tick <= powers[-1]]),
    )
    bare = alt.Axis(labels=False, ticks=False)
    rows = []
    for tenant_id in ids:
        name = label_of(tenant_id, labels)
        above = alt.Chart(inline([r for r in marks if r["t"] == name])).encode(
            x=alt.X("x:Q", title=None, scale=domain, axis=bare), color=color, tooltip=tips
        )
        rows.append(
            alt.layer(
                above.mark_rule(opacity=0.35).encode(y=y, y2=alt.Y2("p95:Q")),
                above.mark_point(filled=True, size=18, opacity=1).encode(y=y),
            ).properties(
                width=width,
                height=max(_ROWS_HEIGHT // len(ids), _LEAST_ROW),
                title=alt.Title(name, anchor="start", fontSize=11, fontWeight="normal", offset=2),
            )
        )
    lower = (
        alt.Chart(inline(bars))
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=window_time(window[0]), scale=domain),
            x2=alt.X2("x2:Q"),
            y=alt.Y("t:N", title=None, sort=None, axis=alt.Axis(minExtent=40, maxExtent=40, labels=False, ticks=False)),
            color=color,
            opacity=alt.Opacity("b:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
            tooltip=[alt.Tooltip("t:N", title="Tenant"), alt.Tooltip("b:Q", title="in flight", format=".0%")],
        )
        .properties(width=width, height=alt.Step(14))
    )
    medians = {r["t"]: r["p50"] for r in marks}
    summary = (
        "Kernel latency over time: " + "; ".join(f"{t} last {v:.2f} ms" for t, v in list(medians.items())[:6]) + "."
    )
    done: alt.TopLevelMixin = decorate(alt.vconcat(*rows, lower, spacing=6), gutter=70, summary=summary)
    return done
