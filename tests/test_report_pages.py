"""The HTML report: complete, closed, small, and drawn in a real browser."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
import report_examples as examples

from pyanalyze import charts
from pyanalyze.report.html import MAX_BYTES, render_html
from pyanalyze.report.page import chart_key, tenant_labels

if TYPE_CHECKING:
    from pathlib import Path

    import altair as alt

    from pyanalyze.report.model import Report

WINDOW = (examples.START, examples.START + examples.LENGTH)


def _charts(report: Report, names: tuple[str, str] = ("spin", "spin")) -> dict[str, alt.TopLevelMixin]:
    labels = tenant_labels(report.devices[0].tenants)
    made = {
        "timeline": charts.timeline(
            examples.timeline(names=names), labels, window=WINDOW, samples=examples.nvml_samples()
        ),
        "slices": charts.slice_lengths(examples.residency(), labels),
        "usage": charts.usage(examples.tenant_usage(), labels, window_ns=examples.LENGTH),
        "occupancy": charts.occupancy(examples.sm_occupancy(), labels, window=WINDOW),
        "limiters": charts.limiters(examples.kernel_occupancy(9, names[0])),
    }
    return {chart_key(name, 0): chart for name, chart in made.items()}


@pytest.fixture(scope="module")
def page() -> str:
    report = examples.time_sliced(synthetic=True)
    return render_html(report, _charts(report), "pyanalyze 0.1.0", kernels=examples.kernel_occupancy())


@pytest.fixture(scope="module")
def hostile_page() -> str:
    report = examples.hostile()
    names = (examples.HOSTILE["close"], examples.HOSTILE["bidi"])
    kernels = examples.kernel_occupancy(9, examples.HOSTILE["tag"])
    return render_html(report, _charts(report, names), examples.HOSTILE["quotes"], kernels=kernels)


class _Parsed(HTMLParser):
    """Tags with attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.comments: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append((self.tags[-1][1], data))
        elif self.cdata_elem is None:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


@pytest.mark.parametrize("which", ["page", "hostile_page"])
def test_page_is_closed(which: str, request: pytest.FixtureRequest) -> None:
    text: str = request.getfixturevalue(which)
    parsed = _Parsed(text)
    assert len(text.encode("utf-8")) < MAX_BYTES
    for tag, attrs in parsed.tags:
        assert tag not in {"img", "iframe", "object", "embed", "base", "form", "image", "foreignobject"}
        for name, value in attrs.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"src", "href", "xlink:href", "data", "action", "poster", "srcset"}:
                assert value is not None
                assert value.startswith("#") or value == "data:,", (tag, name, value)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    assert style
    assert "url(" not in style
    assert "@import" not in style
    assert parsed.comments == []


@pytest.mark.parametrize("which", ["page", "hostile_page"])
def test_policy_allows_our_two_scripts_only(which: str, request: pytest.FixtureRequest) -> None:
    parsed = _Parsed(request.getfixturevalue(which))
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    run = [text for attrs, text in parsed.scripts if attrs.get("type") != "application/json"]
    assert len(run) == len(allowed) == 2
    assert [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run] == allowed
    kept = [attrs["id"] for attrs, _ in parsed.scripts if attrs.get("type") == "application/json"]
    assert kept == [f"spec-{name}-0" for name in ("timeline", "slices", "usage", "occupancy", "limiters")]


def test_hostile_names_appear_as_text_only(hostile_page: str) -> None:
    assert "<script>alert" not in hostile_page
    assert "<svg onload" not in hostile_page
    # Not just "<img": vega's tooltip code holds one, for images in data, which ours never has.
    assert "<img src=x" not in hostile_page
    for char in "\0\x07\x1b\u202e\u2066\u200f\u2028":
        assert char not in hostile_page
    assert "k" * 61 not in " ".join(_Parsed(hostile_page).words)
    words = " ".join(_Parsed(hostile_page).words)
    assert "<script>alert(1)</script>" in words
    assert "user\\u202egnp.exe" in words


def test_page_says_everything(page: str) -> None:
    words = re.sub(r"\s+", " ", " ".join(_Parsed(page).words))
    for text in (
        "Synthetic capture",
        "was shared by time-slicing (confidence 0.97, observed)",
        "Configured and observed disagree",
        "42.7 µs",
        "2.131 ms",
        "Could not look: only one of the tenants was traced",
        "nvidia-cuda-mps-control -d",
        "at most 1.94× throughput",
        "How full the SMs were (modelled)",
        "What could not be seen",
        "Where this comes from",
        "nothing measured it",
    ):
        assert text in words, text


def test_commands_stand_on_lines_of_their_own(page: str) -> None:
    assert "/tmp/nvidia-mps\nnvidia-cuda-mps-control -d</code></pre>" in page


def test_sections_that_could_not_look_say_so() -> None:
    page = render_html(examples.undetermined(), {}, "pyanalyze 0.1.0")
    words = re.sub(r"\s+", " ", " ".join(_Parsed(page).words))
    for text in (
        "undetermined: the strongest candidate, exclusive, has confidence 0.41",
        "Slices and switches are not known",
        "Occupancy could not be modelled The SM count is not known.",
        "Interference is not known",
        "Nothing can be advised",
    ):
        assert text in words, text
    assert "0.0 %" not in words


def test_pictures_give_way_to_the_size_limit() -> None:
    report = examples.time_sliced()
    big = {
        f"{name}-0": charts.timeline(examples.timeline(2900), {0: "a", 1: "b"}, window=WINDOW)
        for name in ("timeline", "slices", "usage", "limiters")
    }
    page = render_html(report, big, "pyanalyze", kernels=examples.kernel_occupancy())
    assert len(page.encode()) <= MAX_BYTES
    assert "This chart needs JavaScript" in page
    assert "left out to keep the file small" in page


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no system Chromium on PATH: the page was not drawn")
    return found


@pytest.mark.parametrize(("which", "scheme"), [("page", "light"), ("hostile_page", "dark")])
def test_a_browser_draws_it_without_a_sound(
    which: str, scheme: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = tmp_path / "report.html"
    path.write_text(request.getfixturevalue(which), encoding="utf-8")
    said: list[str] = []
    asked: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        tab.on("request", lambda wanted: asked.append(wanted.url))
        tab.goto(path.as_uri())
        tab.wait_for_function(
            "[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn)", timeout=20_000
        )
        assert tab.eval_on_selector_all("[data-chart]", "boxes => boxes.map(box => box.dataset.drawn)") == ["yes"] * 5
        assert tab.locator("[data-chart] .static").count() == 0
        assert tab.locator("[data-chart='timeline-0'] svg .mark-rect path").count() > 1000
        # Charts follow the page's colours and nothing hangs over its edge.
        ink = tab.eval_on_selector("[data-chart='usage-0'] svg .role-axis-label text", "t => getComputedStyle(t).fill")
        assert ink == ("rgb(27, 31, 36)" if scheme == "light" else "rgb(228, 231, 235)")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        mark = tab.locator("[data-chart='usage-0'] svg .mark-rect path").first
        mark.scroll_into_view_if_needed()
        mark.hover()
        tab.wait_for_selector("#vg-tooltip-element.visible", timeout=5_000)
        assert "busy" in tab.inner_text("#vg-tooltip-element")
        tab.set_viewport_size({"width": 390, "height": 800})
        tab.wait_for_timeout(1_500)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        browser.close()
    assert said == []
    assert asked == [path.as_uri()]
