"""How long residency intervals were."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from pyanalyze.charts.style import decorate, empty, inline, label_of, only_device, tenant_scale
from pyanalyze.text.format import duration
from pyanalyze.vocabulary import ENOUGH_INTERVALS, are_unlike

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["slice_lengths"]

#: Bins per factor of ten: a time slice of 2 ms and one of 2.2 ms fall apart.
_PER_DECADE = 20


def _worked(table: pl.DataFrame) -> pl.Expr:
    """Whether an interval is not one of the two at most of a context that came into being beside another."""
    if "hw_context" not in table.columns:
        return pl.lit(value=True)
    own = pl.len().over("tenant_id", "hw_context")
    return (own > 2) | (own == own.max().over("tenant_id"))


def _common_median(lengths: pl.DataFrame) -> float | None:
    """The median of all intervals; None: there are too few for one, or those of the tenants differ."""
    if lengths.height < ENOUGH_INTERVALS:
        return None
    each = (
        lengths.group_by("tenant_id").agg(pl.len(), pl.col("length").median()).filter(pl.col("len") >= ENOUGH_INTERVALS)
    )
    return None if are_unlike(each["length"].to_list()) else float(lengths["length"].median())  # type: ignore[arg-type]


def slice_lengths(
    table: pl.DataFrame, labels: Mapping[int, str], *, device_id: int = 0, width: int = 720
) -> alt.TopLevelMixin:
    """Histogram of the lengths of residency intervals on a logarithmic axis, stacked by tenant.

    The median is marked where it is one: of enough intervals, and of tenants whose medians are alike.

    Parameters
    ----------
    table
        The ``residency`` table: ``device_id, tenant_id, hw_context, start_ns, end_ns, complete``. Only complete
        ones count: the others were cut by the recording, not by the scheduler. Those of a context that only came into
        being are not drawn.
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
    >>> "median" in str(slice_lengths(session.residency, {0: "app_a", 1: "app_b", 2: "app_c"}).to_dict())
    True
    """
    lengths = (
        only_device(table, device_id)
        .filter(pl.col("complete") & (pl.col("end_ns") > pl.col("start_ns")))
        .select("tenant_id", length=pl.col("end_ns") - pl.col("start_ns"), drawn=_worked(table))
    )
    if lengths.is_empty():
        return empty("No complete residency interval was recorded on this device.")
    lengths = lengths.filter("drawn")
    counts = (
        lengths.with_columns(bin=(pl.col("length").log10() * _PER_DECADE).floor().cast(pl.Int32))
        .group_by("bin", "tenant_id")
        .agg(n=pl.len(), median=pl.col("length").median())
        .sort("bin", "tenant_id", nulls_last=True)
    )
    rows: list[dict[str, Any]] = []
    below: dict[int, int] = {}
    for step, tenant, n, middle in counts.iter_rows():
        base = below.get(step, 0)
        below[step] = base + n
        rows.append(
            {
                "a": 10 ** (step / _PER_DECADE) / 1e6,
                "b": 10 ** ((step + 1) / _PER_DECADE) / 1e6,
                "y0": base,
                "y1": base + n,
                "n": n,
                "t": label_of(tenant, labels),
                "m": duration(middle),
            }
        )
    scale = tenant_scale(labels, counts["tenant_id"].unique().to_list())
    # A decade at least, or one bar fills the plot and a narrow spread looks wide.
    low, high = math.log10(min(r["a"] for r in rows)), math.log10(max(r["b"] for r in rows))
    room = max(0.1, (1.0 - (high - low)) / 2)
    domain = [10 ** (low - room), 10 ** (high + room)]
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X(
                "a:Q",
                title="Length of the interval (ms, logarithmic)",
                scale=alt.Scale(type="log", domain=domain, nice=False),
                axis=alt.Axis(format="~g", tickCount=6),
            ),
            x2=alt.X2("b:Q"),
            y=alt.Y("y0:Q", title="Complete intervals", scale=alt.Scale(zero=True)),
            y2=alt.Y2("y1:Q"),
            color=alt.Color("t:N", scale=scale, title=None, legend=alt.Legend(orient="top", labelLimit=260)),
            tooltip=[
                alt.Tooltip("t:N", title="Tenant"),
                alt.Tooltip("n:Q", title="Intervals", format=","),
                alt.Tooltip("m:N", title="Median of them"),
            ],
        )
    )
    median = _common_median(lengths)
    marked = "" if median is None else f"; median {duration(median)}"
    summary = f"Histogram of {lengths.height} complete residency intervals{marked}."
    layers = [bars]
    if median is not None:
        middle_line = inline([{"a": median / 1e6, "text": f"median {duration(median)}"}])
        rule = (
            alt.Chart(middle_line).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color="#8C8C8C").encode(x=alt.X("a:Q"))
        )
        text = (
            alt.Chart(middle_line)
            .mark_text(align="left", dx=-4, dy=-3, baseline="bottom", y=0, fontSize=12)
            .encode(x=alt.X("a:Q"), text=alt.Text("text:N"))
        )
        layers += [rule, text]
    chart = alt.layer(*layers).properties(width=width, height=200)
    done: alt.TopLevelMixin = decorate(chart, gutter=80, summary=summary)
    return done
