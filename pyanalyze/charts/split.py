"""Where a tenant's time went in two runs, for as much work as the first did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from pyanalyze.charts.style import MAX_MARKS, decorate, empty, inline
from pyanalyze.text.escape import visible
from pyanalyze.text.format import duration

if TYPE_CHECKING:
    from pyanalyze.results.comparison import Comparison

__all__ = ["time_split"]

#: What a tenant's time is made of, from the left, each with a colour of its own; grey is nobody's fault.
_KINDS = {
    "resident": "#0072B2",
    "in flight, not resident": "#D55E00",
    "idle, another resident": "#E69F00",
    "idle, another concurrent": "#56B4E9",
    "idle": "#8C8C8C",
}


def time_split(comparison: Comparison, *, width: int = 640) -> alt.TopLevelMixin:
    """Two bars for every tenant: its time in A, and in B for as much work as A did.

    Parameters
    ----------
    comparison
        What :func:`pyanalyze.compare` returned.
    width
        Width of the plotting area in pixels.

    Returns
    -------
    altair chart
        x in milliseconds for all of A's work.

    Examples
    --------
    >>> import pyanalyze
    >>> chart = time_split(pyanalyze.compare(capture, capture))
    >>> chart.to_dict()["data"]["values"].count("A")
    10
    """
    rows: list[dict[str, Any]] = []
    for pair in comparison.tenants:
        if pair.units is None:
            continue
        for run, split in (("A", pair.split_a), ("B", pair.split_b)):
            times = (
                split.resident_ns,
                split.not_resident_ns,
                split.idle_not_resident_ns,
                split.idle_other_resident_ns,
                split.idle_ns,
            )
            for order, (kind, ns) in enumerate(zip(_KINDS, times, strict=True)):
                rows.append(
                    {
                        "t": visible(pair.label),
                        "r": run,
                        "k": kind,
                        "o": order,
                        "v": ns / 1e6,
                        "d": duration(round(ns)),
                    }
                )
    if not rows:
        return empty("No pair of tenants could be compared.")
    chart = (
        alt.Chart(inline(rows[:MAX_MARKS]))
        .mark_bar()
        .encode(
            x=alt.X("v:Q", title="Time for all of A's work (ms)", stack="zero"),
            y=alt.Y("r:N", title=None),
            row=alt.Row("t:N", title=None, header=alt.Header(labelAngle=0, labelAnchor="start", labelOrient="top")),
            color=alt.Color(
                "k:N", title=None, scale=alt.Scale(domain=list(_KINDS), range=list(_KINDS.values())), legend=_LEGEND
            ),
            order=alt.Order("o:Q"),
            tooltip=[
                alt.Tooltip("t:N", title="Tenant"),
                alt.Tooltip("r:N", title="Run"),
                alt.Tooltip("k:N", title="Time"),
                alt.Tooltip("d:N", title="Length"),
            ],
        )
        .properties(width=width, height=alt.Step(22))
    )
    count = len({row["t"] for row in rows})
    return decorate(chart, gutter=60, summary=f"Time of {count} tenants in two runs, for all of A's work.")  # type: ignore[no-any-return]


_LEGEND = alt.Legend(orient="bottom", columns=2)
