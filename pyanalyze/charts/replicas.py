"""Copies and sharing configurations: throughput against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from pyanalyze.charts.style import decorate, empty, inline
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from pyanalyze.results.replicas import ReplicaAdvice

__all__ = ["replica_front"]


def replica_front(advice: ReplicaAdvice, *, width: int = 720) -> alt.TopLevelMixin:
    """Throughput against p99 latency of every configuration, the Pareto front connected.

    Parameters
    ----------
    advice
        Forecasts of copies on one device.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> (advice,) = pyanalyze.load(capture).replicas([1, 2])
    >>> "nothing" in str(replica_front(advice).to_dict()).lower()
    True
    """
    rows = []
    for option in advice.options:
        slowest = max((t.p99_ns or t.slowdown for t in option.tenants), key=lambda one: one.value)
        scale = 1e-6 if advice.latency_of else 1.0
        rows.append(
            {
                "copies": option.copies,
                "configuration": visible(option.name, 60),
                "throughput": option.throughput.value,
                "low": option.throughput.low,
                "high": option.throughput.high,
                "latency": slowest.value * scale,
                "front": option.pareto,
            }
        )
    if not rows:
        return empty("Nothing can be forecast from this capture.")
    unit = "p99 latency, ms" if advice.latency_of else "slowdown of the worst tenant"
    x = alt.X("latency:Q", title=unit, scale=alt.Scale(type="log"))
    base = alt.Chart(inline(rows))
    points = base.mark_point(filled=True, size=60).encode(
        x,
        alt.Y("throughput:Q", title="throughput, solo copies"),
        color=alt.Color("copies:O", title="copies"),
        opacity=alt.OpacityValue(0.35, condition={"test": "datum.front", "value": 1.0}),
        tooltip=[
            alt.Tooltip(field)
            for field in ("configuration:N", "copies:O", "throughput:Q", "low:Q", "high:Q", "latency:Q")
        ],
    )
    bars = base.mark_rule(opacity=0.25).encode(x, alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"))
    front = base.transform_filter("datum.front").mark_line(strokeDash=[4, 3], color="#8C8C8C")
    line = front.encode(x, alt.Y("throughput:Q", title=""), order=alt.Order("latency:Q"))
    chart = alt.layer(bars, line, points).properties(width=width, height=260)
    best = next((row["configuration"] for row, o in zip(rows, advice.options, strict=True) if o.recommended), "none")
    return decorate(chart, gutter=60, summary=f"{len(rows)} configurations; recommended: {best}.")  # type: ignore[no-any-return]
