"""What all charts share: one colour per tenant, sizes, and how much a picture may hold."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from pyanalyze.text.chart_text import whole_characters
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "MAX_MARKS",
    "OTHER",
    "decorate",
    "empty",
    "folded",
    "inline",
    "label_of",
    "mimebundle",
    "only_device",
    "pan_and_zoom",
    "png",
    "tenant_colors",
    "tenant_scale",
    "unfolded",
    "window_time",
]

#: Most rows in one chart: below altair's own limit, and few enough for a phone.
MAX_MARKS = 3000

#: Okabe and Ito, "Color Universal Design" (2008), in an order in which neighbours differ most. Black and
#: yellow are left out: each vanishes on one of the two page backgrounds.
_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
#: What has no tenant.
OTHER = "#8C8C8C"
#: The only key of what stands for rows.
_FOLDED = "folded"


def window_time(start_ns: int) -> str:
    """Title of a time axis that begins at the start of the window: sentences and options count as nsys does.

    Examples
    --------
    >>> window_time(223_935_155)
    'Time (ms from the start of the window, which is 223.9 ms in nsys)'
    """
    return f"Time (ms from the start of the window, which is {start_ns / 1e6:,.1f} ms in nsys)"


def tenant_colors(tenants: Iterable[int]) -> dict[int, str]:
    """One colour per tenant id, the same in every chart of a report.

    Parameters
    ----------
    tenants
        Every tenant id of the device, in any order; the colour depends on the rank of the id only.

    Notes
    -----
    Six hues can be told apart with any colour vision. Further tenants get them again, lighter or darker, and
    charts label them by name as well.

    Examples
    --------
    >>> tenant_colors([7, 3])
    {3: '#0072B2', 7: '#E69F00'}
    """
    return {tenant: _shade(rank) for rank, tenant in enumerate(sorted(set(tenants)))}


def _shade(rank: int) -> str:
    base, turn = _PALETTE[rank % len(_PALETTE)], rank // len(_PALETTE)
    if turn == 0:
        return base
    # Odd rounds mix in white, even ones black, a step further each time.
    target, part = (255, 0.45) if turn % 2 else (0, 0.35)
    part = min(part * (1 + (turn - 1) // 2 * 0.5), 0.75)
    channels = (int(base[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (target - c) * part):02X}" for c in channels)


def label_of(tenant_id: int | None, labels: Mapping[int, str]) -> str:
    """Shown name of a tenant; what has none is told apart from every name."""
    if tenant_id is None:
        return "(no tenant)"
    return visible(labels.get(tenant_id, f"tenant {tenant_id}"))


def tenant_scale(
    labels: Mapping[int, str], used: Iterable[int | None], alike: Mapping[int, int] | None = None
) -> alt.Scale:
    """Colour scale by label, in the order of tenant ids; `labels` names every tenant of the device.

    A tenant of `alike` has the colour of another one.
    """
    present = set(used)
    of = alike or {}
    tenants = {*labels, *(t for t in present if t is not None)}
    own = tenant_colors(of.get(tenant, tenant) for tenant in tenants)
    colors = {tenant: own[of.get(tenant, tenant)] for tenant in sorted(tenants)}
    domain = [label_of(t, labels) for t in colors if t in present]
    span = [color for t, color in colors.items() if t in present]
    if None in present:
        domain.append(label_of(None, labels))
        span.append(OTHER)
    return alt.Scale(domain=domain, range=span)


def only_device(table: pl.DataFrame, device_id: int) -> pl.DataFrame:
    """The rows of one device."""
    return table.filter(pl.col("device_id") == device_id)


def pan_and_zoom() -> alt.Parameter:
    """Drag along x to move; the wheel zooms with Ctrl or Alt only, so that pages scroll (a pinch is Ctrl).

    With Shift a drag moves nothing: it selects a time, which the page itself looks after.
    """
    drag = "[pointerdown[!event.shiftKey], window:pointerup] > window:pointermove!"
    return alt.selection_interval(
        bind="scales",
        encodings=["x"],
        name="zoom",
        on=drag,
        translate=drag,
        zoom="wheel![event.ctrlKey || event.altKey]",
    )


def decorate(chart: Any, *, gutter: int, summary: str, **more: Any) -> Any:
    """Note what the page needs to fit and describe the chart.

    Parameters
    ----------
    chart
        Any altair chart, just made: it is changed.
    gutter
        Pixels beside the plotting area (labels and legend), so that the page can set the width of every view:
        concatenated views know no ``container`` width.
    summary
        The chart in words, for screen readers.
    more
        What else the page needs.
    """
    # Not with `properties`: it copies all of a chart, and of every view in it.
    chart.usermeta = {"gutter": gutter, "summary": summary, **more}
    # altair's own way to show a chart in Jupyter loads scripts from a network that a node may not have.
    object.__setattr__(chart, "_repr_mimebundle_", partial(mimebundle, chart))
    return chart


def mimebundle(chart: Any, *_: Any, **__: Any) -> Any:
    """What a notebook is given of a chart: its specification, which Jupyter draws with what it brings, and a picture.

    Nothing of it loads anything. Where the user enabled a renderer of altair, that one is asked.

    Examples
    --------
    >>> sorted(mimebundle(empty("Nothing was captured.")))
    ['application/vnd.vegalite.v5+json', 'image/png', 'text/plain']
    """
    spec = chart.to_dict()
    if alt.renderers.active != "default":
        return alt.renderers.get()(spec)  # type: ignore[misc]  # one is enabled
    # JupyterLab brings Vega-Lite 5; our charts use nothing newer.
    older = {**spec, "$schema": "https://vega.github.io/schema/vega-lite/v5.json"}
    return {
        "application/vnd.vegalite.v5+json": older,
        "image/png": png(spec),
        "text/plain": spec["usermeta"]["summary"],
    }


def png(spec: dict[str, Any]) -> bytes:
    """Draw a specification on white.

    Examples
    --------
    >>> png(empty("Nothing was captured.").to_dict())[1:4]
    b'PNG'
    """
    import vl_convert

    # No address is ever looked up: data is inline.
    draw = partial(vl_convert.vegalite_to_png, scale=1.5, allowed_base_urls=[], show_warnings=False)
    return whole_characters(draw, unfolded({**spec, "background": "white"}))


def inline(rows: list[dict[str, Any]]) -> alt.SchemaBase:
    """Rows as data of a chart. The rows are bounded by the callers: see :data:`MAX_MARKS`.

    As one text: altair copies and walks whatever is a list, again and again, for seconds where rows are thousands.
    """
    text = json.dumps(rows, allow_nan=False, separators=(",", ":"))
    data: alt.SchemaBase = alt.Data(  # type: ignore[no-untyped-call]  # altair's own stub
        values=text, format=alt.JsonDataFormat(type="json")
    )
    return data


def folded(rows: Sequence[Any]) -> dict[str, str]:
    """Rows of `usermeta` as one text, for the same reason; :func:`unfolded` puts them back."""
    return {_FOLDED: json.dumps(rows, allow_nan=False, separators=(",", ":"))}


def unfolded(spec: Any) -> Any:
    """The specification with rows in place of the texts that :func:`inline` and :func:`folded` made of them.

    Examples
    --------
    >>> unfolded({"data": {"values": '[{"a":1}]', "format": {"type": "json"}}, "mark": "bar"})
    {'data': {'values': [{'a': 1}]}, 'mark': 'bar'}
    >>> unfolded({"rows": folded([[1, 2]])})
    {'rows': [[1, 2]]}
    """
    if isinstance(spec, list):
        return [unfolded(one) for one in spec]
    if not isinstance(spec, dict):
        return spec
    if _FOLDED in spec:
        return json.loads(spec[_FOLDED])
    if isinstance(spec.get("values"), str) and spec.get("format") == {"type": "json"}:
        kept = {key: value for key, value in spec.items() if key != "format"}
        return {**kept, "values": json.loads(spec["values"])}
    return {key: unfolded(value) for key, value in spec.items()}


def empty(text: str) -> alt.Chart:
    """A chart that says why it shows nothing; never an empty frame."""
    chart = (
        alt.Chart(inline([{"text": text}]), height=40)
        .mark_text(align="left", x=0, fontSize=12)
        .encode(text=alt.Text("text:N"))
    )
    return decorate(chart, gutter=20, summary=text)  # type: ignore[no-any-return]
