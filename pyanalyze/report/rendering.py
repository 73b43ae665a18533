"""A session as one file: HTML with pictures, Markdown, text, or the JSON contract."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from pyanalyze.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import altair as alt
    import polars as pl

    from pyanalyze.report.model import Report
    from pyanalyze.session import Session

Format = Literal["html", "md", "json", "txt"]


def render(session: Session, fmt: str, *, command: str = "") -> str:
    """Write everything that is known of a session.

    Parameters
    ----------
    session
        A loaded session.
    fmt
        ``html`` (one self-contained file, opens offline), ``md`` (a ticket), ``txt`` (a terminal) or
        ``json`` (the contract).
    command
        How it was made, for the provenance.

    Returns
    -------
    str
        The file's text.

    Raises
    ------
    pyanalyze.exceptions.UsageError
        Another format.

    Examples
    --------
    >>> import pyanalyze
    >>> render(pyanalyze.load(capture), "md").startswith("#")
    True
    """
    if fmt == "html":
        return _html(session, command)
    report = session.report()
    if fmt == "json":
        return report.to_json()
    kernels = session.kernel_occupancy
    if fmt == "md":
        from pyanalyze.report.markdown import render_markdown

        return render_markdown(report, kernels, command=command)
    if fmt == "txt":
        from pyanalyze.report.text import render_text

        return render_text(report, kernels, command=command)
    raise UsageError(f"no format is named {fmt}; choose from html, md, json, txt")


def _html(session: Session, command: str) -> str:
    from pyanalyze._pictures import Painter

    with Painter() as painter:
        report = session.report()
        from pyanalyze.report.html import render_html

        tools = ", ".join(f"{name} {version(name)}" for name in ("polars", "altair", "vl-convert-python"))
        return render_html(
            report, _charts(session, report), tools, kernels=session.kernel_occupancy, command=command, painter=painter
        )


def _lanes(session: Session, window: tuple[int, int], here: pl.Expr) -> pl.DataFrame:
    """As many marks as a picture can hold: zooming in on a short capture shows single slices."""
    from pyanalyze.charts import MAX_MARKS

    for marks in (MAX_MARKS, MAX_MARKS // 2, MAX_MARKS // 5):
        lanes = session.timeline(*window, marks=marks).filter(here)
        if lanes.height <= MAX_MARKS:
            break
    return lanes


def draw_png(session: Session, report: Report) -> dict[str, bytes]:
    """Draw every chart that a device has data for as a picture, on white.

    Parameters
    ----------
    session, report
        As for :func:`draw`.

    Returns
    -------
    dict
        PNG files by :func:`pyanalyze.report.page.chart_key`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> draw_png(session, session.report())["usage-0"][1:4]
    b'PNG'
    """
    from pyanalyze.charts.style import png

    return {key: png(chart.to_dict()) for key, chart in draw(session, report).items()}


def draw(session: Session, report: Report) -> dict[str, alt.TopLevelMixin]:
    """Draw every chart that a device has data for.

    Parameters
    ----------
    session
        Where the tables come from.
    report
        The session's report: which devices and tenants there are.

    Returns
    -------
    dict
        Charts by :func:`pyanalyze.report.page.chart_key`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> "limiters-0" in draw(session, session.report())
    True
    """
    return dict(_charts(session, report))


def _charts(session: Session, report: Report) -> Iterator[tuple[str, alt.TopLevelMixin]]:
    import polars as pl

    from pyanalyze import charts
    from pyanalyze.interference import kernels_alone
    from pyanalyze.report.page import chart_key, tenant_labels

    compared = {found.device_id: found for found in session.interference()}
    for device in report.devices:
        if device.window is None:
            continue
        number = device.device_id
        labels = tenant_labels(device.tenants)
        window = (device.window.start_ns, device.window.end_ns)
        here = pl.col("device_id") == number
        lanes = _lanes(session, window, here)
        if not lanes.is_empty():
            yield (
                chart_key("timeline", number),
                charts.timeline(
                    lanes,
                    labels,
                    device_id=number,
                    window=window,
                    samples=session.samples,
                    switches=session.switches,
                ),
            )
        if not session.residency.filter(here & pl.col("complete")).is_empty():
            yield chart_key("slices", number), charts.slice_lengths(session.residency, labels, device_id=number)
        elif not (inferred := session.inferred_residency.filter(here)).is_empty():
            turns = inferred.with_columns(complete=pl.lit(value=True))
            yield chart_key("slices", number), charts.slice_lengths(turns, labels, device_id=number)
        if device.tenants:
            # As in the tables: residency inside the window, not that of a context before its first kernel.
            held = {t.tenant_id: t.resident_ns for t in device.tenants}
            usage = session.tenant_usage.filter(here).with_columns(
                pl.col("tenant_id").replace_strict(held, default=None, return_dtype=pl.Int64).alias("resident_ns")
            )
            yield (
                chart_key("usage", number),
                charts.usage(usage, labels, device_id=number, window_ns=window[1] - window[0]),
            )
        check = session.check_occupancy(number)
        if check is not None:
            yield chart_key("counters", number), charts.counters(check)
        if not session.sm_warps.filter(here).is_empty():
            yield chart_key("sm_heatmap", number), charts.sm_heatmap(session.sm_warps, device_id=number)
        if not session.sm_occupancy.filter(here).is_empty():
            yield (
                chart_key("occupancy", number),
                charts.occupancy(session.sm_occupancy, labels, device_id=number, window=window),
            )
        if not session.kernel_occupancy.filter(here & pl.col("limiters").is_not_null()).is_empty():
            yield chart_key("limiters", number), charts.limiters(session.kernel_occupancy, device_id=number)
        found = compared[number]
        if found.matrix:
            yield chart_key("matrix", number), charts.victim_by_aggressor(found.matrix, labels)
        if any(tenant.causes is not None for tenant in device.tenants):
            yield chart_key("causes", number), charts.cause_bars(found.tenants, labels)
        if len(device.tenants) > 1 and any(tenant.busy_ns for tenant in device.tenants):
            latencies = session.latencies(number, *window)
            yield chart_key("latency", number), charts.latency_over_time(latencies, labels, window=window)
        kernels = kernels_alone(session)
        if not kernels.filter(here & pl.col("ratio_low").is_not_null()).is_empty():
            yield (
                chart_key("alone", number),
                charts.alone_against_contended(kernels, labels, device_id=number),
            )
