"""One self-contained HTML file that an engineer attaches to a ticket.

It loads nothing: one vega bundle, one script and one style sheet are inlined, and a content security policy
with the hashes of the two scripts forbids everything else: a name that slipped through could still not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

import jinja2

from pyanalyze.report import static_charts as _pictures
from pyanalyze.report.blocks import Block, Fold, Page, Section, Table, is_empty
from pyanalyze.report.bundle import script_bundle
from pyanalyze.report.layout import lay_out
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    import altair as alt
    import polars as pl

    from pyanalyze.report.static_charts import Painter
    from pyanalyze.results.report import Report

__all__ = ["MAX_BYTES", "html_page", "render_html"]

#: Largest file that tickets and mail take without complaint.
MAX_BYTES = 2_000_000


#: Charts by key, or pairs of both as they are made.
Charts: TypeAlias = "Mapping[str, alt.TopLevelMixin] | Iterable[tuple[str, alt.TopLevelMixin]]"


@dataclass
class _Drawn:
    spec: str
    summary: str
    svg: str


def render_html(
    report: Report,
    charts: Charts,
    generated_with: str,
    *,
    kernels: pl.DataFrame | None = None,
    command: str = "",
    painter: Painter | None = None,
) -> str:
    """The whole report as one HTML document.

    Parameters
    ----------
    report
        The answer.
    charts
        Charts by key, see :func:`pyanalyze.report.blocks.chart_key`, or pairs of both as they are made. A chart that is
        not given is left out; its figures stand in the tables.
    generated_with
        Versions of what drew it, for the foot of the page.
    kernels
        The ``kernel_occupancy`` table, for the table of kernels.
    command
        How the report was made, for the provenance.
    painter
        What draws the static pictures while the next chart is made; without one they are drawn in between.

    Returns
    -------
    str
        UTF-8 text. Where it would pass :data:`MAX_BYTES`, the static pictures that readers without JavaScript
        see are left out, the largest first; then, with very many devices, whole charts, which the page says.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> render_html(report, {}, "no charts").startswith("<!doctype html>")
    True
    """
    page = lay_out(report, kernels, command=command, generated_with=generated_with)
    return html_page(page, charts, generated_with, painter)


def html_page(page: Page, charts: Charts, generated_with: str, painter: Painter | None = None) -> str:
    """A laid-out page as one HTML document, with its charts by key."""
    drawn = _drawn(charts, painter)
    shown = [one for one in page.sections if not all(is_empty(block, drawn) for block in one.blocks)]
    sections = [_view(section, drawn) for section in shown]
    taken: Counter[str] = Counter()
    for view in sections:
        _label(view, view["value"].title, taken)
    bundle, script = script_bundle(), _asset("report.js")
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in (bundle, script))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    while True:
        text = _template().render(
            page=page,
            sections=sections,
            charts=drawn,
            policy=policy,
            style=_asset("report.css"),
            bundle=bundle,
            script=script,
            generated_with=visible(generated_with, 200),
            unknown=fmt.UNKNOWN,
        )
        if len(text.encode()) <= MAX_BYTES or not _shrink(drawn):
            return text


def _shrink(drawn: dict[str, _Drawn]) -> bool:
    """Leave out the largest static picture, else the largest chart; ``False``: nothing is left."""
    for part in ("svg", "spec"):
        largest = max(drawn.values(), key=lambda d: len(getattr(d, part)), default=None)
        if largest is not None and getattr(largest, part):
            setattr(largest, part, "")
            return True
    return False


def _view(item: Section | Block, drawn: Mapping[str, _Drawn]) -> dict[str, Any]:
    """What the template needs to know: the kind of a block, and how wide its columns want to be."""
    view: dict[str, Any] = {"kind": type(item).__name__, "value": item}
    if isinstance(item, Section | Fold):
        view["inner"] = [_view(block, drawn) for block in item.blocks if not is_empty(block, drawn)]
    elif isinstance(item, Table):
        classes = []
        for i, column in enumerate(item.columns):
            longest = max((len(row[i].text) for row in item.rows), default=0)
            code = any(row[i].tone in ("code", "command") for row in item.rows)
            if column.numeric:
                classes.append("num long" if longest > 22 else "num")
            elif code:
                classes.append("name long" if longest > 26 else "name")
            else:
                classes.append("text" if longest > 30 else "")
        full = "text" in classes or len(item.columns) > 5
        # On a phone every row becomes a card with the column names beside the values.
        shape = ("full" if full else "fit") + (" cards" if full or len(item.columns) > 2 else "")
        view["value"] = {
            "columns": item.columns,
            "rows": item.rows,
            "caption": item.caption,
            "label": item.caption or item.columns[0].title,
            "classes": classes,
            "shape": shape,
        }
    return view


def _label(view: dict[str, Any], title: str, taken: Counter[str]) -> None:
    """Name every table of a section by what it holds; no two have one name, so that a list of them is of use."""
    for inner in view.get("inner", ()):
        _label(inner, title, taken)
    if view["kind"] == Table.__name__:
        table = view["value"]
        name = f"{title}: {table['label']}"
        taken[name] += 1
        table["label"] = name if taken[name] == 1 else f"{name} ({taken[name]})"


#: For the static pictures: the page's own colours.
_INK = "currentColor"
_CONFIG = {
    "background": "transparent",
    "aria": False,
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "domainColor": _INK,
        "tickColor": _INK,
        "gridColor": _INK,
        "gridOpacity": 0.1,
    },
    # Labels are measured in the font of the engine; a browser's may be a sixth wider and run into the next label.
    "legend": {"labelColor": _INK, "titleColor": _INK, "columnPadding": 30},
    "text": {"fill": _INK},
    "title": {"color": _INK},
    "view": {"stroke": None},
}


def _drawn(charts: Charts, painter: Painter | None) -> dict[str, _Drawn]:
    if not charts:
        return {}
    from pyanalyze.charts.style import unfolded  # altair is slow to load, and pages without charts need none of it

    config = json.dumps(_CONFIG)
    drawn, pictures = {}, {}
    for key, chart in charts.items() if isinstance(charts, Mapping) else charts:
        # What vega-lite allows was checked when each chart was made; once more takes seconds.
        spec: dict[str, Any] = unfolded(chart.to_dict(validate=False))
        summary = str((spec.get("usermeta") or {}).get("summary", "Chart."))
        # altair's own default configuration would win over the page's colours.
        spec.pop("config", None)
        text = _script_json(spec)
        drawn[key] = _Drawn(text, summary, "" if painter else _pictures.svg(text, config))
        if painter:
            pictures[key] = painter.svg(text, config)
    for key, picture in pictures.items():
        drawn[key].svg = picture.result()
    return drawn


def _script_json(value: Any) -> str:
    """JSON that can stand inside a script element: no ``</script>``, no ``<!--``, no line separators."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return files("pyanalyze.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _template() -> jinja2.Template:
    source = files("pyanalyze.report").joinpath("templates", "report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(source)
