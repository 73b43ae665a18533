"""What each tenant used: busy, resident and attributed time side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from pyanalyze.charts.style import MAX_MARKS, decorate, empty, inline, label_of, only_device, tenant_scale
from pyanalyze.text.format import duration, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["usage"]

_KINDS = (("busy", "busy_ns", 0.45), ("resident", "resident_ns", 0.7), ("attributed", "attributed_ns", 1.0))


def usage(
    table: pl.DataFrame,
    labels: Mapping[int, str],
    *,
    device_id: int = 0,
    window_ns: int | None = None,
    together: Mapping[int, int] | None = None,
    alike: Mapping[int, int] | None = None,
    width: int = 720,
) -> alt.TopLevelMixin:
    """Busy, resident and attributed time per tenant; what is not known says so instead of showing no bar.

    Parameters
    ----------
    table
        The ``tenant_usage`` table: ``device_id, tenant_id, busy_ns, resident_ns, attributed_ns``.
    labels
        Shown name per tenant id.
    device_id
        The device.
    window_ns
        Length of the window, ns: shares in the labels are over it.
    together
        Residency of an MPS group, ns, by the id that stands for it: it has that bar only.
    alike
        Tenants that have the colour of another one.
    width
        Width of the plotting area in pixels.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "app_c" in str(usage(session.tenant_usage, {0: "app_a", 1: "app_b", 2: "app_c"}).to_dict())
    True
    """
    mine = only_device(table, device_id).sort("tenant_id").head(MAX_MARKS // len(_KINDS))
    groups = together or {}
    known = {row["tenant_id"]: row for row in mine.iter_rows(named=True)}
    if not (tenants := sorted({*known, *groups})):
        return empty("No tenant of this device is known.")
    rows: list[dict[str, Any]] = []
    for tenant in tenants:
        for kind, column, _ in _KINDS:
            if tenant in groups and column != "resident_ns":
                continue
            value = groups[tenant] if tenant in groups else known[tenant][column]
            share = f" ({percent(value / window_ns)})" if value is not None and window_ns else ""
            rows.append(
                {
                    "t": label_of(tenant, labels),
                    "k": kind,
                    "x": 0 if value is None else value / 1e6,
                    "text": f"{kind} {duration(value)}{share}",
                }
            )
    order = [kind for kind, _, _ in _KINDS]
    top = max([r["x"] for r in rows] + [(window_ns or 0) / 1e6, 1e-6])
    base = alt.Chart(inline(rows)).encode(
        y=alt.Y(
            "t:N",
            title=None,
            sort=None,
            scale=alt.Scale(paddingInner=0.3, paddingOuter=0.1),
            axis=alt.Axis(minExtent=150, maxExtent=150, labelLimit=142, ticks=False, domain=False),
        ),
        yOffset=alt.YOffset("k:N", sort=order),
        tooltip=[alt.Tooltip("t:N", title="Tenant"), alt.Tooltip("text:N", title="Time")],
    )
    x = alt.X(
        "x:Q",
        title="Time (ms)",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(tickCount=6, labelOverlap=True, labelFlush=True),
    )
    opacity = alt.Scale(domain=order, range=[value for _, _, value in _KINDS])
    bars = base.mark_bar(cornerRadiusEnd=2).encode(
        x=x,
        color=alt.Color("t:N", scale=tenant_scale(labels, tenants, alike), legend=None),
        opacity=alt.Opacity("k:O", sort=order, scale=opacity, legend=None),
    )
    # Labels stand at the left end, over the bar: at the right end of a full bar they would leave the plot.
    text = base.mark_text(align="left", dx=5, fontSize=11).encode(x=alt.XDatum(0), text=alt.Text("text:N"))
    chart = alt.layer(bars, text).properties(width=width, height=alt.Step(20, **{"for": "offset"}))
    summary = "; ".join(f"{r['t']} {r['text']}" for r in rows[:12]) + "."
    done: alt.TopLevelMixin = decorate(chart, gutter=180, summary=summary)
    return done
