"""Utilisation and memory over time, as sampled: of a device and of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from pyanalyze.charts.style import MAX_MARKS, OTHER, decorate, empty, inline, tenant_colors
from pyanalyze.text.format import bytes_, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["sampled_use"]

_WHOLE = "whole device"
#: What a device's share of time is of, by metric; of processes only the driver has one.
_SHARES = {"gr_engine_active_ratio": "Graphics engine active", "sm_active_ratio": "SMs active"}


def sampled_use(
    series: Sequence[Mapping[str, Any]],
    labels: Mapping[int, str],
    *,
    memory_bytes: int | None = None,
    whole: str = _WHOLE,
    width: int = 720,
) -> alt.TopLevelMixin:
    """Draw one line per process and one of the device: utilisation above, memory below.

    Parameters
    ----------
    series
        Points: ``pid`` (None: the device), ``what`` (``utilization`` or ``memory``), ``metric``, ``time_ns``,
        ``value``, ``part`` (which stretch without a hole: no line is drawn from one to the next).
    labels
        Shown name per pid.
    memory_bytes
        Size of the device's memory, for the scale; None: not known.
    whole
        Shown name of the device.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> points = [{"pid": None, "what": "memory", "time_ns": s * 10**9, "value": 9.0, "part": 0} for s in (0, 1)]
    >>> "whole device" in str(sampled_use(points, {}).to_dict())
    True
    """
    if not series:
        return empty("No sample has a time.")
    # Every k-th point of each line, as many as a picture holds: samples are means of the time before them.
    step = -(-len(series) // MAX_MARKS)
    lines: dict[tuple[Any, str], list[Mapping[str, Any]]] = {}
    for point in series:
        lines.setdefault((point["pid"], point["what"]), []).append(point)
    # Beside a capture time counts from its start, and samples may have begun before it.
    first_ns = min(point["time_ns"] for point in series)
    scales = {"utilization": 100.0, "memory": 1 / 2**30}
    words: dict[str, Callable[[float], str]] = {"utilization": percent, "memory": bytes_}
    rows = [
        {
            "t": whole if pid is None else labels.get(pid, f"process {pid}"),
            "x": (point["time_ns"] - first_ns) / 1e9,
            "y": point["value"] * scales[what],
            "k": what,
            "part": point["part"],
            "text": words[what](point["value"]),
        }
        for (pid, what), points in lines.items()
        for point in (points[::step] if len(points) > step else points)
    ]
    pids = sorted({pid for pid, _ in lines if pid is not None})
    colors = {labels.get(pid, f"process {pid}"): color for pid, color in tenant_colors(pids).items()}
    if any(pid is None for pid, _ in lines):
        colors[whole] = OTHER
    # One moment is no line: a second of axis holds its points.
    last = max(*(row["x"] for row in rows), 1.0)
    top = {"utilization": 100.0, "memory": None if memory_bytes is None else memory_bytes / 2**30}
    shares = {_SHARES.get(point.get("metric", ""), "Utilisation") for point in series if point["what"] == "utilization"}
    titles = {"utilization": f"{' / '.join(sorted(shares))} (%)", "memory": "Memory (GiB)"}
    drawn = [what for what in titles if any(row["k"] == what for row in rows)]
    tenants = {what: [name for name in colors if any((row["k"], row["t"]) == (what, name) for row in rows)]
               for what in drawn}  # fmt: skip
    # One legend stands for both only where both draw the same.
    alike = len({tuple(names) for names in tenants.values()}) == 1
    views = []
    for what in drawn:
        title = titles[what]
        mine = [row for row in rows if row["k"] == what]
        names = tenants[what]
        # Both have the same times: they stand below the lower one.
        lowest = what == drawn[-1]
        high = top[what] or max(*(row["y"] for row in mine), 1e-9)
        base = alt.Chart(inline(mine)).encode(
            x=alt.X(
                "x:Q",
                title="Time since the first sample (s)" if lowest else None,
                scale=alt.Scale(domain=[0, last], nice=False),
                axis=alt.Axis(labels=lowest, ticks=lowest),
            ),
            y=alt.Y("y:Q", title=title, scale=alt.Scale(domain=[0, high]), axis=alt.Axis(tickCount=5)),
            color=alt.Color(
                "t:N",
                scale=alt.Scale(domain=names, range=[colors[name] for name in names]),
                legend=alt.Legend(orient="top", title=None, columns=2, labelLimit=260),
            ),
            tooltip=[
                alt.Tooltip("t:N", title="Tenant"),
                alt.Tooltip("x:Q", title="Time (s)", format=".3f"),
                alt.Tooltip("text:N", title=title),
            ],
        )
        views.append(
            alt.layer(
                base.mark_line(interpolate="step-before").encode(detail=alt.Detail("part:N")), base.mark_circle(size=18)
            ).properties(width=width, height=120)
        )
    summary = "; ".join(
        f"{whole if pid is None else labels.get(pid, pid)}: mean {what} "
        f"{words[what](sum(p['value'] for p in points) / len(points))}"
        for (pid, what), points in list(lines.items())[:12]
    )
    chart = alt.vconcat(*views) if len(views) > 1 else views[0]
    if not alike:
        chart = chart.resolve_scale(color="independent")
    done: alt.TopLevelMixin = decorate(chart, gutter=90, summary=f"{summary}.")
    return done
