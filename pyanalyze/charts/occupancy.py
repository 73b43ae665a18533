"""How full the SMs were, and what limits each kernel. Everything here is modelled, and titled so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

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
)
from pyanalyze.report.escape import visible
from pyanalyze.report.format import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["limiters", "occupancy"]

#: Kernels in the limiter chart.
_KERNELS = 12
_LIMITER_COLORS = {
    "warps": "#0072B2",
    "registers": "#E69F00",
    "shared": "#009E73",
    "blocks": "#CC79A7",
    "barriers": "#56B4E9",
    "clusters": "#D55E00",
    "several": OTHER,
}


def occupancy(
    table: pl.DataFrame,
    labels: Mapping[int, str],
    *,
    device_id: int = 0,
    window: tuple[int, int] | None = None,
    width: int = 720,
) -> alt.TopLevelMixin:
    """Modelled warps over time, stacked by tenant.

    Parameters
    ----------
    table
        The ``sm_occupancy`` table: ``device_id, tenant_id, start_ns, end_ns, warps``, the same time bins for
        every tenant. Neighbouring bins are averaged where there are too many to draw.
    labels
        Shown name per tenant id.
    device_id
        The device.
    window
        Start and end in ns; by default from the rows.
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
    if mine.height > MAX_MARKS:
        tenants = max(mine["tenant_id"].n_unique(), 1)
        bin_ns = max((end - start) // max(MAX_MARKS // (2 * tenants), 1), 1)
        length = pl.col("end_ns") - pl.col("start_ns")
        mine = (
            mine.with_columns(bin=(pl.col("start_ns") - start) // bin_ns)
            .group_by("tenant_id", "bin")
            .agg(weighted=(pl.col("warps") * length).sum(), end_ns=pl.col("end_ns").max())
            # Over the whole bin, not over the rows in it: times without a row are empty.
            .with_columns(
                start_ns=start + pl.col("bin") * bin_ns,
                end_ns=start + (pl.col("bin") + 1) * bin_ns,
                warps=pl.col("weighted") / bin_ns,
            )
        )
    rows: list[dict[str, Any]] = []
    below: dict[int, float] = {}
    ordered = mine.select("start_ns", "tenant_id", "end_ns", "warps").sort("start_ns", "tenant_id")
    for begin, tenant, finish, warps in ordered.iter_rows():
        base = below.get(begin, 0.0)
        below[begin] = base + warps
        rows.append(
            {
                "a": round((begin - start) / 1e6, 6),
                "b": round((finish - start) / 1e6, 6),
                "y0": round(base, 5),
                "y1": round(base + warps, 5),
                "w": round(warps, 5),
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
                title="Time (ms from the start of the window)",
                scale=alt.Scale(domain=[0, (end - start) / 1e6], nice=False),
                axis=alt.Axis(tickCount=8, labelOverlap=True, labelFlush=True),
            ),
            x2="b:Q",
            y=alt.Y(
                "y0:Q",
                title="Warp slots in use (modelled)",
                axis=alt.Axis(format=".0%"),
                scale=alt.Scale(domain=[0, max(1.0, *below.values())]),
            ),
            y2="y1:Q",
            color=alt.Color("t:N", scale=scale, title=None, legend=alt.Legend(orient="top", labelLimit=260)),
            tooltip=[
                alt.Tooltip("t:N", title="Tenant"),
                alt.Tooltip("w:Q", title="Warp slots (modelled)", format=".1%"),
                alt.Tooltip("s:N", title="Bin start (ns)"),
            ],
        )
        .add_params(pan_and_zoom())
        .properties(width=width, height=180)
    )
    summary = f"Modelled occupancy of {len(scale.domain)} tenants over {duration(end - start)}."
    done: alt.TopLevelMixin = decorate(chart, gutter=80, summary=summary)
    return done


def limiters(table: pl.DataFrame, *, device_id: int = 0, width: int = 720) -> alt.TopLevelMixin:
    """Theoretical occupancy of the kernels with most time, coloured by what limits it.

    Parameters
    ----------
    table
        The ``kernel_occupancy`` table: ``device_id, name, short_name, total_ns, launches, occupancy,
        limiters, reason``.
    device_id
        The device.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "registers" in str(limiters(session.kernel_occupancy).to_dict())
    True
    """
    mine = only_device(table, device_id).sort("total_ns", descending=True).head(_KERNELS)
    if mine.is_empty():
        return empty("No kernel launch was captured on this device.")
    rows: list[dict[str, Any]] = []
    for rank, row in enumerate(mine.iter_rows(named=True), 1):
        resources = [r.strip() for r in (row["limiters"] or "").split(",") if r.strip()]
        known = row["occupancy"] is not None
        rows.append(
            {
                # The rank keeps two configurations of one kernel apart.
                "k": f"{rank}. {visible(row['short_name'] or row['name'] or 'unnamed', 40)}",
                "o": row["occupancy"],
                "x": row["occupancy"] or 0.0,
                "r": (resources[0] if len(resources) == 1 else "several") if known and resources else "several",
                "all": visible(row["limiters"]) or visible(row["reason"], 120) or "not known",
                "d": duration(row["total_ns"]),
                "n": row["launches"],
                "text": f"{row['occupancy']:.0%}" if known else "not computed",
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
            axis=alt.Axis(minExtent=170, maxExtent=170, labelLimit=165, ticks=False),
        ),
        tooltip=[
            alt.Tooltip("k:N", title="Kernel"),
            alt.Tooltip("text:N", title="Occupancy (theoretical)"),
            alt.Tooltip("all:N", title="Limited by"),
            alt.Tooltip("d:N", title="Time"),
            alt.Tooltip("n:Q", title="Launches", format=","),
        ],
    )
    axis = alt.Axis(format=".0%", tickCount=4)
    x = alt.X("x:Q", title="Theoretical occupancy (modelled)", scale=alt.Scale(domain=[0, 1.12]), axis=axis)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        x=x, color=alt.Color("r:N", scale=scale, title=None, legend=alt.Legend(orient="top"))
    )
    text = base.mark_text(align="left", dx=4, fontSize=11).encode(x=x, text="text:N")
    chart = alt.layer(bars, text).properties(width=width, height=alt.Step(22))
    done: alt.TopLevelMixin = decorate(
        chart, gutter=200, summary=f"Theoretical occupancy and limiting resource of {len(rows)} kernels."
    )
    return done
