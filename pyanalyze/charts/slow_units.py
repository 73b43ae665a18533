"""Slow units of work: what makes them longer than a typical one, and when they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from pyanalyze.charts.style import MAX_MARKS, OTHER, decorate, empty, inline
from pyanalyze.results.explain import cause_text
from pyanalyze.text.escape import visible
from pyanalyze.text.format import count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pyanalyze.results.explain import SlowUnits, UnitGroup

__all__ = ["excess_waterfall", "units_over_time"]

#: A whole unit; what the slow ones take longer for; what they take less time for.
_WHOLE, _MORE, _LESS = OTHER, "#D55E00", "#009E73"
#: At least one: of few units that is far more than 1 %, and others may take as long.
_SLOWEST = "slowest 1 %, rounded up"
#: Causes with bars of their own; the rest is one.
_CAUSES = 8


def excess_waterfall(slow: Sequence[SlowUnits], *, width: int = 470) -> alt.TopLevelMixin:
    """From a typical unit to the slowest: one bar per cause and aggressor, for every name of units.

    Parameters
    ----------
    slow
        What :func:`pyanalyze.analysis.explain.units_by_tail` found.
    width
        Width of the plotting area in pixels.

    Returns
    -------
    altair chart
        x in milliseconds; each bar begins where the one above ends.

    Examples
    --------
    >>> excess_waterfall(()).to_dict()["usermeta"]["summary"]
    'No unit of work is much slower than the others.'
    """
    groups = [one.group for one in slow if one.group.slow_mean_ns is not None]
    if not groups:
        return empty("No unit of work is much slower than the others.")
    charts, said = [], []
    for group in groups:
        rows = _steps(group)
        said.append(f"{_title(group)}. " + ". ".join(f"{row['c'].capitalize()}: {row['d']}" for row in rows))
        # What units take anyway would leave the causes a sliver: the axis begins a little before they do.
        ends = [row[key] for row in rows[1:-1] for key in ("a", "b")] or [rows[0]["b"]]
        low, high = min(ends), max(*ends, rows[-1]["b"])
        low = max(low - 0.25 * (high - low), 0.0)
        scale = alt.Scale(domain=[low, high + 0.2 * (high - low)], nice=False, zero=False)
        base = alt.Chart(inline(rows)).encode(
            y=alt.Y("c:N", title=None, sort=None, axis=alt.Axis(minExtent=330, maxExtent=330, labelLimit=322)),
            tooltip=[
                alt.Tooltip("c:N", title="Cause"),
                alt.Tooltip("d:N", title="Time"),
                alt.Tooltip("s:N", title="Of the excess"),
            ],
        )
        title = "Mean duration (ms)" if low == 0 else "Mean duration (ms); the axis does not begin at 0"
        bars = base.mark_bar(clip=True).encode(
            x=alt.X("a:Q", title=title, scale=scale), x2=alt.X2("b:Q"), color=alt.Color("f:N", scale=None)
        )
        text = base.mark_text(align="left", dx=5).encode(x=alt.X("e:Q", title=title, scale=scale), text=alt.Text("d:N"))
        charts.append(alt.layer(bars, text).properties(width=width, height=alt.Step(20), title=_title(group)))
    whole = charts[0] if len(charts) == 1 else alt.vconcat(*charts, spacing=16)
    done: alt.TopLevelMixin = decorate(whole, gutter=360, summary=". ".join(said) + ".")
    return done


def _title(group: UnitGroup) -> str:
    return f"{visible(group.tenant, 24)}: {visible(group.name, 40)}"


def _steps(group: UnitGroup) -> list[dict[str, Any]]:
    """Bars of one name of units: a typical one, the causes, what is left of them, and the slow ones."""
    ranked = sorted(group.causes, key=lambda cause: -abs(cause.ns))
    shown = sorted((cause for cause in ranked[:_CAUSES]), key=lambda cause: -cause.ns)
    rest = sum(cause.ns for cause in ranked[_CAUSES:])
    parts = [(cause_text(cause), cause.ns, cause.share) for cause in shown]
    if ranked[_CAUSES:]:
        parts.append((f"{len(ranked) - _CAUSES} more causes", rest, None))
    at = group.typical_ns
    rows = [{"c": "typical unit", "a": 0.0, "b": at / 1e6, "e": at / 1e6, "d": duration(at), "s": "", "f": _WHOLE}]
    for name, ns, share in parts:
        rows.append(
            {
                "c": name,
                "a": at / 1e6,
                "b": (at + ns) / 1e6,
                "e": (at + max(ns, 0.0)) / 1e6,
                "d": f"{'+' if ns >= 0 else '-'}{duration(abs(ns))}",
                "s": "" if share is None else percent(share),
                "f": _MORE if ns >= 0 else _LESS,
            }
        )
        at += ns
    mean = group.slow_mean_ns or 0.0
    slowest = (
        f"slowest {count(group.slow)} of {count(group.count)}" if group.slow > 1 else f"slowest of {count(group.count)}"
    )
    rows.append({"c": slowest, "a": 0.0, "b": mean / 1e6, "e": mean / 1e6, "d": duration(mean), "s": "", "f": _WHOLE})
    return rows


def units_over_time(
    units: pl.DataFrame, slow: Sequence[SlowUnits], *, start_ns: int = 0, width: int = 720
) -> alt.TopLevelMixin:
    """Duration of every unit over time, the slowest 1 %, rounded up, of each name marked.

    Parameters
    ----------
    units
        The ``units`` table.
    slow
        What :func:`pyanalyze.analysis.explain.units_by_tail` found: names to show.
    start_ns
        Start of the window.
    width
        Width of the plotting area in pixels.

    Returns
    -------
    altair chart
        x in milliseconds from the start of the window, y in milliseconds. Of very many units the marked
        ones stay, and of the others as many as a picture holds.

    Examples
    --------
    >>> import pyanalyze
    >>> units_over_time(pyanalyze.load(capture).units, ()).to_dict()["usermeta"]["summary"]
    'No unit of work is much slower than the others.'
    """
    import polars as pl

    if not slow:
        return empty("No unit of work is much slower than the others.")
    charts, said = [], []
    for one in slow:
        group = one.group
        of = units.filter(pl.col("tenant_id") == group.tenant_id, pl.col("name").cast(pl.String) == group.name)
        of = of.with_columns(slow=pl.col("dur_ns").rank("ordinal", descending=True) <= group.slow).sort("start_ns")
        usual = of.filter(~pl.col("slow"))
        marked = of.filter("slow").head(MAX_MARKS // (2 * len(slow)))
        step = max(1, -(-usual.height // (MAX_MARKS // len(slow) - marked.height)))
        rows = [
            {
                "x": (row["start_ns"] - start_ns) / 1e6,
                "y": row["dur_ns"] / 1e6,
                "u": row["unit"],
                "d": duration(row["dur_ns"]),
                "k": _SLOWEST if row["slow"] else "other units",
            }
            for part in (usual.gather_every(step), marked)
            for row in part.iter_rows(named=True)
        ]
        chart = (
            alt.Chart(inline(rows))
            .mark_point(filled=True)
            .encode(
                x=alt.X(
                    "x:Q", title="Start (ms after the start of the window)", scale=alt.Scale(zero=False, nice=False)
                ),
                y=alt.Y("y:Q", title="Duration (ms)", axis=alt.Axis(minExtent=40, maxExtent=40)),
                color=alt.Color(
                    "k:N",
                    scale=alt.Scale(domain=["other units", _SLOWEST], range=[OTHER, _MORE]),
                    legend=alt.Legend(title=None, orient="bottom"),
                ),
                size=alt.SizeValue(14, condition={"test": alt.datum.k == _SLOWEST, "value": 60}),
                tooltip=[
                    alt.Tooltip("u:Q", title="Unit"),
                    alt.Tooltip("d:N", title="Duration"),
                    alt.Tooltip("x:Q", title="Start (ms)", format=".3f"),
                ],
            )
            .properties(width=width, height=160, title=_title(group))
        )
        charts.append(chart)
        said.append(f"{_title(group)}: {group.slow} of {group.count} units marked, up to {duration(group.max_ns)}")
    whole = charts[0] if len(charts) == 1 else alt.vconcat(*charts, spacing=16)
    done: alt.TopLevelMixin = decorate(whole, gutter=70, summary="; ".join(said) + ".")
    return done
