"""A fleet in two pictures: which mode each GPU of each node showed, and how far slowdowns spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import altair as alt

from pyanalyze.charts.style import MAX_MARKS, OTHER, decorate, empty, inline, tenant_colors
from pyanalyze.text.escape import visible
from pyanalyze.text.format import ratio
from pyanalyze.vocabulary import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["mode_map", "slowdown_spread"]

#: Bins per factor of ten: 1.0 and 1.1 fall apart.
_PER_DECADE = 25


def mode_map(
    cells: Sequence[tuple[str, str, str, str]], modes: Sequence[str], *, width: int = 720
) -> alt.TopLevelMixin:
    """One rectangle for each GPU, nodes below each other, coloured by the observed mode.

    Parameters
    ----------
    cells
        Node, place of the GPU on it, observed mode, and the rest of what is said of it.
    modes
        Every mode of the fleet, in the order of colours.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> "mps" in str(mode_map([("node a", "GPU 1", "mps", "")], ["mps"]).to_dict())
    True
    """
    if not cells:
        return empty("No GPU did anything.")
    rows = [{"n": visible(n), "g": visible(g), "m": m, "t": visible(t, 200)} for n, g, m, t in cells[:MAX_MARKS]]
    known = [mode for mode in modes if mode != Mode.UNDETERMINED]
    colors = list(tenant_colors(range(len(known))).values())
    domain = [*known, *([str(Mode.UNDETERMINED)] if Mode.UNDETERMINED in modes else [])]
    scale = alt.Scale(domain=domain, range=[*colors, OTHER][: len(domain)])
    chart = (
        alt.Chart(inline(rows))
        .mark_rect(cornerRadius=2, stroke="white", strokeOpacity=0.4)
        .encode(
            x=alt.X(
                "g:N",
                title=None,
                sort=None,
                axis=alt.Axis(labelAngle=0, labelOverlap="greedy", orient="top", ticks=False, domain=False),
            ),
            y=alt.Y(
                "n:N",
                title=None,
                sort=None,
                axis=alt.Axis(minExtent=130, maxExtent=130, labelLimit=122, ticks=False, domain=False),
            ),
            color=alt.Color("m:N", scale=scale, title=None, legend=alt.Legend(orient="top", labelLimit=200)),
            tooltip=[
                alt.Tooltip("n:N", title="Node"),
                alt.Tooltip("g:N", title="GPU"),
                alt.Tooltip("m:N", title="Mode"),
                alt.Tooltip("t:N", title="What"),
            ],
        )
        .properties(width=width, height=alt.Step(20))
    )
    counted = {mode: sum(row["m"] == mode for row in rows) for mode in domain}
    summary = f"Observed modes of {len(rows)} GPUs: {', '.join(f'{m} {n}' for m, n in counted.items() if n)}."
    done: alt.TopLevelMixin = decorate(chart, gutter=150, summary=summary)
    return done


def slowdown_spread(values: Sequence[float], above: float, *, width: int = 720) -> alt.TopLevelMixin:
    """Histogram of worst slowdowns on a logarithmic axis; what is above a limit stands out.

    Parameters
    ----------
    values
        Slowdowns, at least 1 or about it.
    above
        From here on they need attention.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> "1.50x" in str(slowdown_spread([1.0, 1.2, 3.0], 1.5).to_dict())
    True
    """
    bins: dict[int, int] = {}
    for value in values:
        if value > 0:
            step = math.floor(math.log10(value) * _PER_DECADE)
            bins[step] = bins.get(step, 0) + 1
    if not bins:
        return empty("No slowdown is known.")
    rows: list[dict[str, Any]] = [
        {
            "a": 10 ** (step / _PER_DECADE),
            "b": 10 ** ((step + 1) / _PER_DECADE),
            "n": n,
            "k": "needs attention" if 10 ** (step / _PER_DECADE) >= above else "as others",
        }
        for step, n in sorted(bins.items())
    ]
    top = max(row["n"] for row in rows)
    step = max(1, -(-top // 5))
    ticks = list(range(0, top + 1, step))
    low, high = min(0.9, rows[0]["a"]), max(10.0, rows[-1]["b"])
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X(
                "a:Q",
                title="Worst slowdown of a device (shared over alone, logarithmic)",
                scale=alt.Scale(type="log", domain=[low, high], nice=False),
                axis=alt.Axis(format="~g", values=[1, 1.5, 2, 3, 5, 10, 20, 50, 100]),
            ),
            x2=alt.X2("b:Q"),
            y=alt.Y("n:Q", title="Devices", scale=alt.Scale(domain=[0, top]), axis=alt.Axis(values=ticks, format="d")),
            y2=alt.Y2Datum(0),
            color=alt.Color(
                "k:N",
                scale=alt.Scale(domain=["as others", "needs attention"], range=["#0072B2", "#D55E00"]),
                title=None,
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[alt.Tooltip("a:Q", title="From", format=".2f"), alt.Tooltip("n:Q", title="Devices")],
        )
    )
    line = inline([{"a": above, "text": f"{ratio(above)}"}])
    rule = alt.Chart(line).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=OTHER).encode(x=alt.X("a:Q"))
    label = (
        alt.Chart(line)
        .mark_text(align="left", dx=6, dy=6, baseline="top", y=0, fontSize=12)
        .encode(x=alt.X("a:Q"), text=alt.Text("text:N"))
    )
    chart = alt.layer(bars, rule, label).properties(width=width, height=200)
    many = sum(value > above for value in values)
    summary = f"Histogram of {len(values)} worst slowdowns; {many} are above {ratio(above)}."
    done: alt.TopLevelMixin = decorate(chart, gutter=80, summary=summary)
    return done
