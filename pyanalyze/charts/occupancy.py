"""How full the SMs were, and what limits each kernel. All but the counters is modelled, and titled so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from pyanalyze.analysis.occupancy import grid_fill, kernel_time
from pyanalyze.charts.style import (
    MAX_MARKS,
    OTHER,
    decorate,
    empty,
    inline,
    label_of,
    only_device,
    pan_and_zoom,
    tenant_scale,
    window_time,
)
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.analysis.occupancy import CounterComparison

__all__ = ["counters", "limiters", "occupancy", "sm_heatmap"]

#: Kernels in the limiter chart.
_KERNELS = 12
#: Characters of a name that fit beside its bar.
_LABEL = 38
#: Bins of so many switching periods average time slices out: what stays of them is an eighth of their height at most.
_PERIODS_OF_A_BIN = 4
#: With so many bins in a switching period every time slice shows by itself. Fewer, and bins longer than that, show a
#: beat between bins and time slices that looks like the program's own behaviour.
_BINS_OF_A_PERIOD = 8
#: Part of the scale below which values would look like nothing on it: the scale then ends at the highest of them.
_LOW = 0.1
_LIMITER_COLORS = {
    "warps": "#0072B2",
    "registers": "#E69F00",
    "shared": "#009E73",
    "blocks": "#CC79A7",
    "barriers": "#56B4E9",
    "clusters": "#D55E00",
    "not limited": "#999933",
    "several": OTHER,
}


def counters(check: CounterComparison, *, width: int = 720) -> alt.TopLevelMixin:
    """Modelled occupancy of the device beside its hardware counters, over the same time bins.

    Parameters
    ----------
    check
        The comparison, by :meth:`pyanalyze.session.Session.check_occupancy`.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pyanalyze
    >>> check = pyanalyze.load(Path(capture).with_name("exclusive.sqlite")).check_occupancy(0)
    >>> "by counter" in str(counters(check).to_dict())
    True
    """
    start, end = int(check.bins["start_ns"].min()), int(check.bins["end_ns"].max())  # type: ignore[arg-type]
    panels = []
    shown = [("sm_active", "SMs active"), *([("warps", "Warp slots in use")] if check.warps_counter else [])]
    stride = max(-(-check.bins.height * 2 // (MAX_MARKS // 2)), 1)
    bins = check.bins.with_columns(group=pl.int_range(pl.len()) // stride).group_by("group", maintain_order=True)
    merged = bins.agg(
        pl.col("start_ns").min(), pl.col("end_ns").max(), pl.selectors.ends_with("_modelled", "_counted").mean()
    )
    scale = alt.Scale(domain=["by counter", "modelled"], range=["#0072B2", "#D55E00"])
    for number, (key, title) in enumerate(shown):
        rows = [
            {"a": round((begin - start) / 1e6, 6), "v": round(value, 5), "k": word}
            for word, column in (("by counter", f"{key}_counted"), ("modelled", f"{key}_modelled"))
            for begin, value in merged.select("start_ns", column).iter_rows()
        ]
        axis = "Time (ms from the first sample)" if number == len(shown) - 1 else None
        base = alt.Chart(inline(rows)).mark_line(interpolate="step-after", strokeWidth=1.5)
        panels.append(
            base.encode(
                x=alt.X("a:Q", title=axis, scale=alt.Scale(domain=[0, (end - start) / 1e6], nice=False)),
                y=alt.Y("v:Q", title=title, axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1], clamp=True)),
                color=alt.Color("k:N", scale=scale, title=None, legend=alt.Legend(orient="top")),
                strokeDash=alt.StrokeDash(
                    "k:N", scale=alt.Scale(domain=["by counter", "modelled"], range=[[1, 0], [4, 3]]), legend=None
                ),
                tooltip=[
                    alt.Tooltip("k:N", title="Basis"),
                    alt.Tooltip("v:Q", title=title, format=".1%"),
                    alt.Tooltip("a:Q", title="ms"),
                ],
            ).properties(width=width, height=110)
        )
    summary = f"Modelled occupancy beside hardware counters: {check}"
    done: alt.TopLevelMixin = decorate(alt.vconcat(*panels), gutter=80, summary=summary)
    return done


def _merged_bins(bin_ns: int, fewest: int, switch_period_ns: int | None) -> int:
    """How many neighbouring bins to average: the fewest that can be drawn, more where time slices would alias."""
    period_ns = switch_period_ns or 0
    if fewest * bin_ns * _BINS_OF_A_PERIOD <= period_ns:
        return fewest
    return max(fewest, -(-_PERIODS_OF_A_BIN * period_ns // bin_ns))


def _time_title(start_ns: int, bin_ns: int, switch_period_ns: int | None) -> list[str]:
    """Title of the time axis, with the length of a bin and what it stands beside."""
    period = ""
    if switch_period_ns is not None:
        # Not the time slice: what the others take lies in it as well.
        period = f"; residency intervals of a tenant begin every {duration(switch_period_ns)}"
    return [window_time(start_ns), f"Bins of {duration(bin_ns)}{period}"]


def _is_low(highest: float, full: float) -> bool:
    """Whether values are there, and would look like none on the whole scale."""
    return 0 < highest < _LOW * full


def sm_heatmap(
    per_sm: pl.DataFrame,
    *,
    device_id: int = 0,
    warp_slots: int | None = None,
    switch_period_ns: int | None = None,
    width: int = 720,
) -> alt.TopLevelMixin:
    """Modelled warps of every TPC (two SMs) over time: hatched, because nothing measures it.

    Parameters
    ----------
    per_sm
        The ``sm_warps`` table: ``device_id, start_ns, end_ns, sm, warps``, with the time bins to draw
        (:meth:`pyanalyze.session.Session.occupancy` makes them). Neighbouring bins are averaged where there are more
        than can be drawn, and where they would alias with time slices.
    device_id
        The device.
    warp_slots
        Most resident warps of an SM, at which the colours end; None: at the most that the rows have.
    switch_period_ns
        From one residency interval of a tenant to its next, usually; None: tenants do not alternate.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> "MODEL" in str(sm_heatmap(pyanalyze.load(capture).sm_warps).to_dict())
    True
    """
    mine = only_device(per_sm, device_id)
    if mine.is_empty():
        return empty("Occupancy could not be modelled on this device.")
    mine = mine.with_columns(tpc=pl.col("sm") // 2)
    start, end = int(mine["start_ns"].min()), int(mine["end_ns"].max())  # type: ignore[arg-type]
    tpcs, bins = mine["tpc"].n_unique(), mine["start_ns"].n_unique()
    bin_ns = max((end - start) // bins, 1)
    stride = _merged_bins(bin_ns, max(-(-bins * tpcs // MAX_MARKS), 1), switch_period_ns)
    cells = (
        mine.with_columns(bin=pl.col("start_ns").rank("dense").cast(pl.Int64).sub(1) // stride)
        .group_by("bin", "tpc")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("warps").mean())
        .sort("bin", "tpc")
    )
    highest = float(cells["warps"].max())  # type: ignore[arg-type]
    low = warp_slots is not None and _is_low(highest, warp_slots)
    rows = [
        {
            "a": round((begin - start) / 1e6, 6),
            "b": round((finish - start) / 1e6, 6),
            "y": tpc,
            "top": tpc - 0.5,
            "bottom": tpc + 0.5,
            "w": round(warps, 6 if low else 3),
            "s": f"{2 * tpc} and {2 * tpc + 1}",
        }
        for tpc, begin, finish, warps in cells.select("tpc", "start_ns", "end_ns", "warps").iter_rows()
    ]
    length = (end - start) / 1e6
    title = _time_title(start, stride * bin_ns, switch_period_ns)
    x = alt.X("a:Q", title=title, scale=alt.Scale(domain=[0, length], nice=False))
    y = alt.Y(
        "top:Q",
        title="TPC n (SMs 2n, 2n+1)",
        scale=alt.Scale(domain=[-0.5, tpcs - 0.5], nice=False, reverse=True),
        axis=alt.Axis(tickCount=min(tpcs, 8)),
    )
    full = alt.Undefined if warp_slots is None or low else [0, warp_slots]
    unit = "Mean warps per SM (modelled)" if warp_slots is None else f"Mean warps per SM, of {warp_slots} (modelled)"
    if low:
        unit = f"Mean warps per SM, up to {highest:.2g} of {warp_slots} (modelled)"
    heat = (
        alt.Chart(inline(rows))
        .mark_rect()
        .encode(
            x=x,
            x2=alt.X2("b:Q"),
            y=y,
            y2=alt.Y2("bottom:Q"),
            color=alt.Color("w:Q", title=unit, scale=alt.Scale(scheme="viridis", zero=True, domain=full),
                            legend=alt.Legend(orient="top", gradientLength=200, titleLimit=300)),
            tooltip=[
                alt.Tooltip("y:Q", title="TPC"),
                alt.Tooltip("s:N", title="SMs"),
                alt.Tooltip("w:Q", title="Mean warps per SM (modelled)", format=".2g" if low else ".1f"),
                alt.Tooltip("a:Q", title="ms"),
            ],
        )
    )  # fmt: skip
    # Vega-Lite has no hatched fill: thin lines across the picture say that it is a model.
    lines = [
        {"a": length * max(n, 0) / 24, "b": length * min(n + 12, 24) / 24, "y": tpcs * max(-n, 0) / 12 - 0.5,
         "y1": tpcs * min(24 - n, 12) / 12 - 0.5}
        for n in range(-11, 24)
    ]  # fmt: skip
    hatch = (
        alt.Chart(inline(lines))
        .mark_rule(color="white", opacity=0.35, strokeWidth=1, clip=True)
        .encode(x=alt.X("a:Q"), x2=alt.X2("b:Q"), y=alt.Y("y:Q"), y2=alt.Y2("y1:Q"))
    )
    word = (
        alt.Chart(inline([{"a": length / 2, "y": tpcs / 2 - 0.5, "text": "MODEL"}]))
        .mark_text(color="white", opacity=0.55, fontSize=34, fontWeight="bold")
        .encode(x=alt.X("a:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
    )
    chart = alt.layer(heat, hatch, word).properties(width=width, height=min(max(3 * tpcs, 90), 260))
    summary = f"Modelled warps of {tpcs} TPCs over {duration(end - start)}; a replay, not a measurement."
    done: alt.TopLevelMixin = decorate(chart, gutter=80, summary=summary)
    return done


def occupancy(
    table: pl.DataFrame,
    labels: Mapping[int, str],
    *,
    device_id: int = 0,
    window: tuple[int, int] | None = None,
    switch_period_ns: int | None = None,
    width: int = 720,
) -> alt.TopLevelMixin:
    """Modelled warps over time, stacked by tenant.

    Parameters
    ----------
    table
        The ``sm_occupancy`` table: ``device_id, tenant_id, start_ns, end_ns, warps``, the same time bins for
        every tenant. Neighbouring bins are averaged where there are too many to draw, and where they would alias
        with time slices.
    labels
        Shown name per tenant id.
    device_id
        The device.
    window
        Start and end in ns; by default from the rows.
    switch_period_ns
        From one residency interval of a tenant to its next, usually; None: tenants do not alternate.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "modelled" in str(occupancy(session.sm_occupancy, {0: "app_a", 1: "app_b", 2: "app_c"}).to_dict())
    True
    """
    mine = only_device(table, device_id).filter(pl.col("end_ns") > pl.col("start_ns"))
    if mine.is_empty():
        return empty("Occupancy could not be modelled on this device.")
    start, end = window or (int(mine["start_ns"].min()), int(mine["end_ns"].max()))  # type: ignore[arg-type]
    mine = mine.filter((pl.col("end_ns") > start) & (pl.col("start_ns") < end))
    first = int(mine["start_ns"].min())  # type: ignore[arg-type]
    bin_ns = max(int((mine["end_ns"] - mine["start_ns"]).median()), 1)  # type: ignore[arg-type]
    merged = _merged_bins(bin_ns, max(-(-mine.height // MAX_MARKS), 1), switch_period_ns)
    if merged > 1:
        last, length = int(mine["end_ns"].max()), pl.col("end_ns") - pl.col("start_ns")  # type: ignore[arg-type]
        mine = (
            # Edges of bins are rounded to nanoseconds.
            mine.with_columns(bin=((pl.col("start_ns") - first) / bin_ns).round().cast(pl.Int64) // merged)
            .group_by("tenant_id", "bin")
            .agg(weighted=(pl.col("warps") * length).sum())
            .with_columns(start_ns=first + pl.col("bin") * merged * bin_ns)
            .with_columns(end_ns=pl.min_horizontal(pl.col("start_ns") + merged * bin_ns, last))
            # Over the whole bin, not over the rows in it: times without a row are empty.
            .with_columns(warps=pl.col("weighted") / length)
        )
    rows: list[dict[str, Any]] = []
    below: dict[int, float] = {}
    highest = float(mine.group_by("start_ns").agg(pl.col("warps").sum())["warps"].max() or 0.0)  # type: ignore[arg-type]
    low = _is_low(highest, 1.0)
    digits = 9 if low else 5
    ordered = mine.select("start_ns", "tenant_id", "end_ns", "warps").sort("start_ns", "tenant_id")
    for begin, tenant, finish, warps in ordered.iter_rows():
        base = below.get(begin, 0.0)
        below[begin] = base + warps
        rows.append(
            {
                "a": round((begin - start) / 1e6, 6),
                "b": round((finish - start) / 1e6, 6),
                "y0": round(base, digits),
                "y1": round(base + warps, digits),
                "w": round(warps, digits),
                "t": label_of(tenant, labels),
                "s": str(begin),
            }
        )
    scale = tenant_scale(labels, mine["tenant_id"].unique().to_list())
    chart = (
        alt.Chart(inline(rows))
        .mark_bar()
        .encode(
            x=alt.X(
                "a:Q",
                title=_time_title(start, merged * bin_ns, switch_period_ns),
                scale=alt.Scale(domain=[0, (end - start) / 1e6], nice=False),
                axis=alt.Axis(tickCount=8, labelOverlap=True, labelFlush=True),
            ),
            x2=alt.X2("b:Q"),
            y=alt.Y(
                "y0:Q",
                title=["Warp slots in use (modelled)", "the axis ends below 100 %"]
                if low
                else "Warp slots in use (modelled)",
                axis=alt.Axis(format="~%" if low else ".0%"),
                scale=alt.Scale(domain=[0, highest if low else max(1.0, *below.values())], nice=low),
            ),
            y2=alt.Y2("y1:Q"),
            color=alt.Color("t:N", scale=scale, title=None, legend=alt.Legend(orient="top", labelLimit=260)),
            tooltip=[
                alt.Tooltip("t:N", title="Tenant"),
                alt.Tooltip("w:Q", title="Warp slots (modelled)", format=".2p" if low else ".1%"),
                alt.Tooltip("s:N", title="Bin start (ns)"),
            ],
        )
        .add_params(pan_and_zoom())
        .properties(width=width, height=180)
    )
    summary = f"Modelled occupancy of {len(scale.domain)} tenants over {duration(end - start)}."
    done: alt.TopLevelMixin = decorate(chart, gutter=80, summary=summary)
    return done


def limiters(
    table: pl.DataFrame,
    *,
    device_id: int = 0,
    sm_count: int | None = None,
    usable: Mapping[int, int] | None = None,
    width: int = 560,
) -> alt.TopLevelMixin:
    """Theoretical occupancy of the kernels with most time, coloured by the resource that limits it.

    Parameters
    ----------
    table
        The ``kernel_occupancy`` table: ``device_id, tenant_id, name, short_name, total_ns, launches, grid_blocks,
        occupancy, limiters, waves, reason``, and ``attributed_total_ns`` where it is known.
    device_id
        The device.
    sm_count
        Its SMs; None: not known.
    usable
        SMs of tenants that may not use all, by tenant id.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "0.6 wave" in str(limiters(session.kernel_occupancy).to_dict())  # all are at 100 %
    True
    """
    mine = only_device(table, device_id)
    time = kernel_time(mine) or "total_ns"
    mine = mine.sort(time, descending=True).head(_KERNELS)
    if mine.is_empty():
        return empty("No kernel launch was captured on this device.")
    rows: list[dict[str, Any]] = []
    for rank, row in enumerate(mine.iter_rows(named=True), 1):
        name = row["short_name"] or row["name"] or "unnamed"
        resources = [r.strip() for r in (row["limiters"] or "").split(",") if r.strip()]
        known, full = row["occupancy"] is not None, (row["occupancy"] or 0.0) >= 1
        grid = grid_fill(row, sm_count, usable)
        one = resources[0] if known and len(resources) == 1 else "several"
        of_resource = visible(row["limiters"]) or visible(row["reason"], 120) or "not known"
        rows.append(
            {
                # The rank keeps two configurations of one kernel apart.
                "k": f"{rank}. {visible(name, _LABEL)}",
                "name": visible(name),
                "o": row["occupancy"],
                "x": row["occupancy"] or 0.0,
                "r": "not limited" if full else one,
                "all": "nothing" if full else of_resource,
                "g": str(grid) or ("not known" if grid.waves is None else "fills the block slots"),
                "d": duration(row[time]),
                "n": row["launches"],
                "text": f"{fmt.percent(row['occupancy'], 0)}" if known else "not computed",
            }
        )
    seen = {r["r"] for r in rows if r["o"] is not None}
    domain = [name for name in _LIMITER_COLORS if name in seen] or ["several"]
    scale = alt.Scale(domain=domain, range=[_LIMITER_COLORS[name] for name in domain])
    base = alt.Chart(inline(rows)).encode(
        y=alt.Y(
            "k:N",
            sort=None,
            title=None,
            axis=alt.Axis(minExtent=270, maxExtent=270, labelLimit=265, ticks=False),
        ),
        tooltip=[
            alt.Tooltip("name:N", title="Kernel"),
            alt.Tooltip("text:N", title="Occupancy (theoretical)"),
            alt.Tooltip("all:N", title="Limited by"),
            alt.Tooltip("g:N", title="Grid"),
            alt.Tooltip("d:N", title="Time" if time == "total_ns" else "Resident time"),
            alt.Tooltip("n:Q", title="Launches", format=","),
        ],
    )
    axis = alt.Axis(format=".0%", tickCount=4)
    x = alt.X("x:Q", title="Theoretical occupancy (modelled)", scale=alt.Scale(domain=[0, 1.12]), axis=axis)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=x, color=alt.Color("r:N", scale=scale, title=None, legend=alt.Legend(orient="top"))
    )
    text = base.mark_text(align="left", dx=4, fontSize=11).encode(x=x, text=alt.Text("text:N"))
    chart = alt.layer(bars, text).properties(width=width, height=alt.Step(22))
    done: alt.TopLevelMixin = decorate(
        chart, gutter=300, summary=f"Theoretical occupancy of {len(rows)} kernels, and what limits it."
    )
    return done
