"""The HTML report: complete, closed, small, and drawn in a real browser."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
import report_examples as examples
from command_line import run
from exports import with_all_switch_records
from shared_sessions import load

import pyanalyze
from pyanalyze import charts
from pyanalyze.core import _core
from pyanalyze.report import sections
from pyanalyze.report.blocks import Facts, Fold, Note, Para, Table, chart_key
from pyanalyze.report.html import MAX_BYTES, render_html
from pyanalyze.report.layout import lay_out
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.rendering import draw
from pyanalyze.report.sentences.cause import cause_sentence
from pyanalyze.report.sentences.mode import agreement_note, agreement_text
from pyanalyze.report.summary import render_summary
from pyanalyze.report.text import render_text
from pyanalyze.results.interference import Causes, Estimate, HostFinding, Slowdown
from pyanalyze.results.labels import main_device, tenant_labels
from pyanalyze.results.model import Missing
from pyanalyze.results.report import BASIS_TEXT, Memory
from pyanalyze.text.format import UNKNOWN, capital, count, duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import altair as alt

    from pyanalyze.report.blocks import Block
    from pyanalyze.results.report import Device, Report

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

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
    assert kept == [f"spec-{name}-0" for name in ("timeline", "usage", "occupancy", "limiters", "slices")]


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
        "Sharing mode: time-slicing (observed, confidence 0.97 in simulations)",
        "Not shared as configured",
        "42.7 us",
        "2.131 ms",
        "Not available: only one of the tenants was traced",
        "nvidia-cuda-mps-control -d",
        "at most 1.94x throughput",
        "SM occupancy (modelled)",
        "Not available",
        "Provenance",
        "nothing measured it",
    ):
        assert text in words, text


def test_commands_stand_on_lines_of_their_own(page: str) -> None:
    assert "/tmp/nvidia-mps\nnvidia-cuda-mps-control -d</code></pre>" in page


def test_legends_of_static_pictures_have_room_for_the_fonts_of_browsers(hardware: Path) -> None:
    """Chromium draws "waiting for its time slice" at 12 px 143.8 px wide (DejaVu Sans): 119.8 px at the legend's 10 px."""
    page = run("report", hardware / "slices-A-B.sqlite", "-f", "html").stdout
    legend = page[: page.index("context switches</text>")].rpartition("waiting for its time slice</text>")
    text_x = float(re.findall(r'translate\(([\d.]+),[\d.]+\)" font-family', legend[0])[-1])
    next_x = float(re.findall(r'<g transform="translate\(([\d.]+),', legend[2])[0])
    assert next_x > text_x + 119.8 + 4


def test_sections_without_data_say_so() -> None:
    page = render_html(examples.undetermined(), {}, "pyanalyze 0.1.0")
    words = re.sub(r"\s+", " ", " ".join(_Parsed(page).words))
    for text in (
        "undetermined (most likely exclusive, 0.41)",
        "Residency and context switches are not known",
        "Occupancy is not known The SM count is not known.",
        "Slowdown is not known.",
        "No advice follows from this evidence.",
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


@pytest.mark.parametrize(("which", "scheme"), [("page", "light"), ("hostile_page", "dark")])
def test_a_browser_draws_it_without_a_sound(
    browser: Any, which: str, scheme: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(request.getfixturevalue(which), encoding="utf-8")
    said: list[str] = []
    asked: list[str] = []
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
    tab.close()
    assert said == []
    assert asked == [path.as_uri()]


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (820, 1100), (390, 800)])
def test_it_fits_three_sizes_and_reads_without_javascript(
    browser: Any, page: str, tmp_path: Path, width: int, height: int
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    tab = browser.new_page(viewport={"width": width, "height": height}, java_script_enabled=False)
    tab.goto(path.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # A table may be wider than the page and is scrolled; what stands above it is read without.
    ends = tab.evaluate("[...document.querySelectorAll('caption')].map(c => { let r = document.createRange(); "
                        "r.selectNodeContents(c); return r.getBoundingClientRect().right; })")  # fmt: skip
    assert len(ends) > 5
    assert max(ends) <= width
    # The pictures that stand in for the charts are drawn, inside the page.
    boxes = [box.bounding_box() for box in tab.locator("[data-chart] .static svg").all()]
    assert len(boxes) == 5
    assert all(box is not None and box["height"] > 40 and box["x"] + box["width"] <= width for box in boxes)
    # The first summary is on the first summary: the three sentences need no scrolling.
    lead = tab.locator(".lead p").all()
    assert len(lead) == 3
    assert all((box := line.bounding_box()) and box["y"] + box["height"] < height for line in lead)
    tab.emulate_media(media="print")
    assert not tab.locator("nav").is_visible()
    assert (tmp_path / "report.html").exists()
    assert len(tab.pdf(format="A4")) > 50_000
    tab.close()


def test_nothing_stays_folded_on_paper(browser: Any, page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    tab = browser.new_page()
    tab.goto(path.as_uri())
    closed, opened = tab.locator("details:not([open])"), tab.locator("details[open]")
    folds = closed.count()
    assert folds >= 2
    was_open = opened.count()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert closed.count() == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (closed.count(), opened.count()) == (folds, was_open)
    # Readers without JavaScript: the browser prints what is folded, if it is new enough to be told so.
    still = browser.new_page(java_script_enabled=False)
    still.goto(path.as_uri())
    folded = still.locator("details:not([open]) > :not(summary)").first
    assert not folded.is_visible()
    still.emulate_media(media="print")
    if int(browser.version.split(".")[0]) >= 131:
        assert folded.is_visible()
    still.close()
    tab.close()


@pytest.mark.parametrize("which", ["demo", "made", "mps", "samples"])
def test_every_number_names_its_basis(which: str, fixtures: Path) -> None:
    """In a cell of its row, in its column's head or in the caption; identities and counts of samples need none."""
    if which == "made":
        page = lay_out(examples.time_sliced(), examples.kernel_occupancy())
    else:
        demo = fixtures / "demo-time-slicing.sqlite"
        samples = [demo.with_suffix(f".{name}.csv") for name in ("query-gpu", "compute-apps")]
        session = (
            load(fixtures / "mps.sqlite")
            if which == "mps"
            else pyanalyze.load(demo, samples=samples if which == "samples" else [])
        )
        page = lay_out(session.report(), session.kernel_occupancy)
    words = set(BASIS_TEXT) | {"documented"}
    free = {"n", "#", "pid", "Host pid", "Correlation id", "Capture", "Confidence", "Probability", "Weight"}
    tables, facts = 0, 0
    for section in page.sections:
        for block in _flat(section.blocks):
            if isinstance(block, Facts):
                known = [f for f in block.facts if f.value != UNKNOWN and f.label != "Configured"]
                assert all(f.basis is not None for f in known), (section.id, known)
                assert all(f.note for f in block.facts), "of what"
                facts += len(known)
            if not isinstance(block, Table):
                continue
            tables += 1
            for number, column in enumerate(block.columns):
                if not column.numeric or column.title in free:
                    continue
                said = any(word in f"{block.caption} {column.unit}".lower() for word in words)
                rows = all(any(cell.basis for cell in row) or row[number].text == UNKNOWN for row in block.rows)
                assert said or rows, (section.id, block.caption, column.title)
    assert tables > 8
    assert facts >= 5


def _flat(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _flat(block.blocks)


def test_every_section_says_that_its_data_is_not_available() -> None:
    page = lay_out(examples.undetermined())
    said = re.compile(r"not known|not available|cannot|[Nn]o(thing| kernel| evidence| device| configuration)|\bNo\b")
    for section in page.sections:
        if section.id in ("timeline-0", "provenance", "glossary"):
            continue
        text = " ".join(_texts(section.blocks))
        assert said.search(text), (section.id, text)
        assert "0.0 %" not in text


def _texts(blocks: Iterable[Block]) -> Iterator[str]:
    for block in _flat(blocks):
        if isinstance(block, Para | Note):
            yield block.text
            yield getattr(block, "title", "")
        elif isinstance(block, Facts):
            yield from (f"{f.value} {f.note}" for f in block.facts)
        elif isinstance(block, Table):
            yield from (cell.text for row in block.rows for cell in row)


def test_the_map_of_sms_is_folded_under_the_occupancy(fixtures: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    report = session.report()
    drawn = {
        key: chart for key, chart in draw(session.analysis, report).items() if key in ("sm_heatmap-0", "occupancy-0")
    }
    page = render_html(report, drawn, "pyanalyze")
    assert re.search(r"<details><summary>[^<]*\(modelled\)</summary>\s*<figure>\s*<h3>Modelled warps by TPC", page)
    # Without the chart there is no fold that holds nothing.
    less = render_html(report, {"occupancy-0": drawn["occupancy-0"]}, "pyanalyze")
    assert "The same by TPC and time" not in less + render_text(report)


def test_the_timeline_is_steered_by_keyboard(browser: Any, page: str, tmp_path: Path) -> None:
    """Tab reaches it; + halves the span, the arrow moves it by a quarter of that, 0 is the whole again."""
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(path.as_uri())
    drawn = "[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn)"
    tab.wait_for_function(drawn, timeout=20_000)
    here = "document.activeElement.dataset.chart"
    for _ in range(80):
        tab.keyboard.press("Tab")
        if tab.evaluate(here) == "timeline-0":
            break
    assert tab.evaluate(here) == "timeline-0"
    shown = "document.activeElement.view.scale('x').domain()"

    def press(key: str) -> list[float]:
        tab.keyboard.press(key)
        tab.wait_for_timeout(300)
        return [round(x, 3) for x in tab.evaluate(shown)]

    whole = examples.LENGTH / 1e6
    assert press("ArrowLeft") == [0, whole]
    assert press("+") == pytest.approx([whole / 4, 3 * whole / 4], abs=0.01)
    assert press("ArrowRight") == pytest.approx([3 * whole / 8, 7 * whole / 8], abs=0.01)
    assert press("-") == pytest.approx([0, whole], abs=0.01)
    press("+")
    assert press("0") == [0, whole]
    # A fold opens by keyboard.
    fold = tab.locator("details summary").first
    fold.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("details").first.get_attribute("open") is not None
    tab.close()


def test_every_file_of_a_section_is_in_the_list() -> None:
    files = {path.stem for path in Path(sections.__file__).parent.glob("*.py")} - {"__init__", "base"}
    assert len(files) >= 12
    found = [importlib.import_module(f"pyanalyze.report.sections.{name}").SECTION for name in sorted(files)]
    assert sorted(found, key=id) == sorted(sections.SECTIONS, key=id)
    assert len({section.id for section in found}) == len(found)


def test_sections_stand_in_the_order_of_the_questions(page: str) -> None:
    headings = re.findall(r'<section id="([a-z]+)', page)
    assert headings == [
        "timeline",
        "advice",
        "summary",
        "tenants",
        "interference",
        "occupancy",
        "residency",
        "memory",
        "sharing",
        "missing",
        "quality",
        "provenance",
        "glossary",
    ]


def test_that_sharing_is_not_the_cause_is_line_one() -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    same = Estimate(value=1.01, low=1.005, high=1.02, n=50, basis="observed")
    quiet = [
        t.model_copy(update={"slowdown": Slowdown(elapsed=same, latency=same, resident=same)})
        for t in device.tenants[:1]
    ]
    report = report.model_copy(update={"devices": [device.model_copy(update={"tenants": quiet})]})
    lead = lay_out(report).lead
    assert lead[0].startswith("Sharing slows no tenant (the largest slowdown is 1.01x).")
    assert not lay_out(examples.time_sliced()).lead[0].startswith("Sharing is the cause")


def test_the_host_is_line_one_where_it_is_the_cause() -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    found = HostFinding(tenant_id=0, what="slow launches", detail="compute_victim waits; a third of it", share=0.3)
    alone = device.model_copy(
        update={
            "tenants": [device.tenants[0].model_copy(update={"slowdown": examples.NO_SLOWDOWN})],
            "sharing": device.sharing.model_copy(update={"mode": "exclusive"}),
            "host": [found],
        }
    )
    said = "Check the host first: compute_victim waits; a third of it."
    report = report.model_copy(update={"devices": [alone]})
    assert lay_out(report).lead[0].startswith(f"Sharing is the cause: no. {said}")
    # The terminal and the ticket begin with it as well.
    screen = " ".join(render_summary(report).split())
    assert screen.startswith(f"Answer Sharing is the cause: no. {said}")
    # Two tenants and no measured slowdown: the host is looked at first, but nothing clears the GPU.
    unknown = alone.model_copy(update={"tenants": [*alone.tenants, device.tenants[1]]})
    lead = lay_out(report.model_copy(update={"devices": [unknown]})).lead[0]
    assert not lead.startswith("Sharing is the cause")


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.99, 1.02, "Sharing slows no tenant (the largest slowdown is at most 1.02x)."),
        (
            0.80,
            1.40,
            "Sharing is the cause: unknown. The largest slowdown, 1.01x, is not significant: its interval includes 1.",
        ),
    ],
)
def test_only_a_narrow_interval_around_one_clears_the_gpu(low: float, high: float, said: str) -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    same = Estimate(value=1.01, low=low, high=high, n=50, basis="observed")
    tenants = [device.tenants[0].model_copy(update={"slowdown": Slowdown(elapsed=same, latency=None, resident=None)})]
    assert cause_sentence(device.model_copy(update={"tenants": tenants})) == said


def test_three_sentences_answer_the_five_questions() -> None:
    """Against the made report: victim, aggressor and cause; mode, configuration and GPU time; occupancy; what to do."""
    (slow, shared, rest) = lay_out(examples.time_sliced()).lead
    assert (
        "time-slicing (observed, confidence 0.97 in simulations). Configured: mps; MISMATCH: time-slicing was observed."
        in shared
    )
    assert (
        "GPU time: pid 30398 (not traced) 49.1 %, compute_victim 49.0 % of 2.512 s (resident, by switch records)."
        in shared
    )
    assert (
        "SMs active, mean over the window: 42 to 49 %, traced kernels only: untraced tenants count as "
        "idle (modelled, 95 % interval)." in rest
    )
    assert "First action: Share through MPS instead of time slices" in rest
    for part in (
        "Largest slowdown: compute_victim, kernel latency 2.05x (n = 1, inferred).",
        "Slowed by pid 30398 (not traced); it was the only other resident tenant.",
        "Cause: waiting for its time slice (95.5 % of the added latency).",
    ):
        assert part in slow, part


def test_what_is_not_known_keeps_three_sentences() -> None:
    """No remedy inside of a sentence: what is missing stands in a section of its own."""
    lead = lay_out(examples.undetermined()).lead
    assert lead[0] == "Slowdown is not known. No context-switch records."
    assert lead[1].endswith("Configured: not known. GPU time per tenant is not known: no context-switch records.")
    assert lead[2].startswith("SM occupancy is not known: the SM count is not known.")
    assert all("To capture it" not in line for line in lead)


def test_an_open_end_is_the_end() -> None:
    report = examples.time_sliced()
    assert report.view is not None
    text = lay_out(report).notes[0].text
    assert text.endswith("UTC to the end; all shares are of this window.")
    late = report.model_copy(update={"view": report.view.model_copy(update={"start_ns": None, "end_ns": 5})})
    assert lay_out(late).notes[0].text.startswith("From the start to ")


def test_names_keep_their_first_letter(fixtures: Path) -> None:
    """Sentences begin with a capital; a process is still called `python`."""
    report = load(fixtures / "node-switches-only.sqlite").report()
    text = render_text(report)
    assert "Kernels of python (pid 355932), python (pid 1289451) and spark-gpu were not traced" in " ".join(
        text.split()
    )
    assert "Python" not in text


@pytest.mark.parametrize(
    ("total", "peak", "tenants", "said"),
    [
        # By hand: 48 GiB and a peak of 47 leave 2 % of it.
        (48, 47, (20, 27), "Memory is almost full"),
        (48, 30, (29, 28), "Memory may run out if the peaks coincide"),
        (48, 30, (10, 20), "At least 10 % of memory was free. Peaks between samples are not recorded."),
        (48, None, (None, None), "Memory in use is not known"),
        (None, 30, (10, 20), "Sum of the tenants' peaks 30.0 GiB"),
    ],
)
def test_memory_says_how_much_is_left(
    total: int | None, peak: int | None, tenants: tuple[int | None, int | None], said: str
) -> None:
    def gib(value: int | None) -> int | None:
        return None if value is None else value * 2**30

    report = examples.time_sliced()
    (device,) = report.devices
    pairs = zip(device.tenants, tenants, strict=True)
    device = device.model_copy(
        update={
            "memory": Memory(total_bytes=gib(total), peak_bytes=gib(peak)),
            "tenants": [t.model_copy(update={"memory_peak_bytes": gib(value)}) for t, value in pairs],
        }
    )
    text = render_text(report.model_copy(update={"devices": [device]}), sections=("memory",))
    assert said in re.sub(r"\s+", " ", text)


def test_the_chart_and_the_table_say_the_same(fixtures: Path) -> None:
    """Context app_a is resident before its first kernel: that is outside of the window, in the chart as well."""
    session = load(fixtures / "demo-time-slicing.sqlite")
    report = session.report()
    (device,) = report.devices
    assert session.tenant_usage["resident_ns"][0] > (device.tenants[0].resident_ns or 0)
    text = json.dumps(draw(session.analysis, report)["usage-0"].to_dict(), ensure_ascii=False)
    for tenant in device.tenants:
        assert f"resident {duration(tenant.resident_ns)}" in text


def test_markdown_shows_pictures_beside_it(fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "my ticket.md"
    demo = fixtures / "demo-time-slicing.sqlite"
    assert run("report", demo, "-f", "md", "-o", out).returncode == 0
    text = out.read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    drawn = {f"my ticket-{name}-0.png" for name in ("timeline", "slices", "usage", "occupancy", "limiters")}
    assert drawn <= {unquote(name) for name in shown}
    assert len(set(shown)) == len(shown)
    assert " " not in "".join(shown)
    for name in shown:
        assert (tmp_path / unquote(name)).read_bytes().startswith(b"\x89PNG")
    out.unlink()
    refused = run("report", demo, "-f", "md", "-o", out)
    assert refused.returncode == 2, "a picture that is there is not replaced without --force"
    assert not out.exists()
    embedded = run("report", demo, "-f", "md", "--pictures", "embed")
    assert embedded.stdout.count("](data:image/png;base64,") == len(shown)
    assert "![" not in run("report", demo, "-f", "md").stdout
    assert run("report", demo, "--pictures", "embed").returncode == 2


def test_a_name_at_the_start_of_a_sentence_keeps_its_letters() -> None:
    """A person looks for it: `program1` is a process, `Program1` is none."""
    said = {
        "program1: its kernels were never seen alone": "program1: its kernels were never seen alone",
        "solo.nsys2025.sqlite is of nobody here": "solo.nsys2025.sqlite is of nobody here",
        "nsys traced CUDA work of 2 processes": "nsys traced CUDA work of 2 processes",
        "bin/spin was switched out": "bin/spin was switched out",
        "yes: it was switched out": "Yes: it was switched out",
        "no context-switch table in the capture": "No context-switch table in the capture",
        "context-switch records show it": "Context-switch records show it",
        "slower while resident is left out: the GPUs differ": "Slower while resident is left out: the GPUs differ",
        "": "",
    }
    assert {text: capital(text) for text in said} == said


def test_a_table_of_properties_is_read_line_by_line() -> None:
    """Its second column has no title: nothing to repeat before each value."""
    assert re.search("(?m)^Memory protection +(?:yes|no)$", render_text(examples.time_sliced()))


def test_attributed_time_is_a_bound_where_other_tenants_are_not_known() -> None:
    """Busy time is attributed in full only because no record shows that another tenant was switched in."""

    def attributed(report: Report) -> str:
        (device,) = report.devices
        tenant = examples.tenant(0, "python", 77, busy_ns=10_000_000, attributed_ns=10_000_000)
        device = device.model_copy(update={"tenants": [tenant]})
        text = render_text(report.model_copy(update={"devices": [device]}), sections=("tenants",))
        (line,) = [line for line in text.splitlines() if line.startswith("python")]
        return line

    # Attributed, then busy.
    assert re.search(r" at most 10\.00 ms +10\.00 ms ", attributed(examples.undetermined()))
    assert re.search(r"(?<!at most) 10\.00 ms +10\.00 ms ", attributed(examples.time_sliced()))


def test_lost_data_is_named() -> None:
    """A row of the quality list may be a message about many records: a sum of them counts nothing."""
    report = examples.time_sliced()
    lost = [
        examples_row.model_copy(update={"name": name, "severity": "data-loss", "count": count, "detail": ""})
        for examples_row, name, count in zip(
            [report.quality[0]] * 2, ("diagnostic_loss", "switch_events_lost"), (1, 20), strict=True
        )
    ]
    summary = render_summary(report.model_copy(update={"quality": lost}))
    summary = " ".join(summary.split())
    assert (
        "times and counts may be too small: data that nsys reported as lost (1); gaps in the numbers of "
        "context-switch records (20); see `pyanalyze info`" in summary
    )


@pytest.mark.parametrize("name", ["mps-A-B", "torch-slices-serve-train"])
def test_commands_that_capture_what_is_missing_are_copied_as_they_stand(hardware: Path, name: str) -> None:
    """One with variables before the program is a command as well; none stands inside a sentence."""
    page = run("report", hardware / f"{name}.sqlite", "-f", "md").stdout
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    assert "nvidia-smi --query-compute-apps" in commands
    assert (
        re.search(r"^CUDA_MPS_PIPE_DIRECTORY=\S+ nsys profile .* PROGRAM ", commands, re.MULTILINE) or "mps" not in name
    )
    prose = re.sub(r"```sh\n.*?```", "", page, flags=re.DOTALL)
    assert not re.search(r"PROGRAM|nsys profile|--query-compute-apps", prose)


def test_the_first_page_says_in_words_which_records_are_missing() -> None:
    """Names of counters stand under Data quality, with their counts."""
    report = examples.time_sliced()
    losing = [str(one["name"]) for one in _core.quality_counters() if one["severity"] == "data-loss"]
    assert "switch_events_lost" in losing
    for name in losing:
        lost = report.quality[0].model_copy(update={"name": name, "severity": "data-loss", "count": 1})
        (note,) = [
            n for n in lay_out(report.model_copy(update={"quality": [lost]})).notes if n.title == "Records are missing"
        ]
        assert "_" not in note.text, note.text


def test_sms_of_an_untraced_tenant_are_said_to_count_as_idle() -> None:
    """Its kernels are not replayed: the modelled share is that of traced ones, and says so."""
    report = examples.time_sliced()
    (device,) = report.devices
    assert {t.busy_ns is None for t in device.tenants} == {True, False}
    assert "mean over the window, traced kernels only: untraced tenants count as idle) (modelled)" in " ".join(
        render_text(report).split()
    )
    traced = [t for t in device.tenants if t.busy_ns is not None]
    alone = report.model_copy(update={"devices": [device.model_copy(update={"tenants": traced})]})
    assert "traced kernels only" not in " ".join(render_text(alone).split())


def test_a_baseline_that_was_faster_does_not_make_sharing_the_cause() -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    slowed = Slowdown(
        elapsed=None, latency=Estimate(value=3.27, low=3.22, high=3.38, n=148, basis="observed"), resident=None
    )
    alone = device.model_copy(
        update={
            "tenants": [device.tenants[0].model_copy(update={"slowdown": slowed})],
            "sharing": device.sharing.model_copy(update={"mode": "exclusive"}),
            "host": [],
        }
    )
    lead = lay_out(report.model_copy(update={"devices": [alone]})).lead[0]
    assert lead.startswith("Sharing is the cause: no. Only one process used the GPU")


def test_one_tenant_that_was_not_slowed_clears_the_gpu_for_no_other() -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    good = Slowdown(
        elapsed=Estimate(value=1.01, low=1.0, high=1.02, n=500, basis="inferred"), latency=None, resident=None
    )
    first = device.tenants[0].model_copy(update={"slowdown": good})
    second = first.model_copy(update={"tenant_id": 7, "name": "other", "pid": 7, "slowdown": examples.NO_SLOWDOWN})
    one, both = (device.model_copy(update={"tenants": tenants, "host": []}) for tenants in ([first], [first, second]))
    assert lay_out(report.model_copy(update={"devices": [one]})).lead[0].startswith("Sharing slows no tenant")
    page = lay_out(report.model_copy(update={"devices": [both]}))
    assert not page.lead[0].startswith("Sharing is the cause")
    assert "that of other is not known" in " ".join(
        render_summary(report.model_copy(update={"devices": [both]})).split()
    )


def test_the_cause_is_what_held_up_the_queue() -> None:
    """Kernels behind others' blocks queue for them; kernels behind one that waited for its slice wait for that."""
    report = examples.time_sliced()
    (device,) = report.devices
    (victim, *others) = device.tenants

    def said(waited: float) -> str:
        rest = {"launch": 0.003, "switch": 0.0, "execution": 0.0, "unexplained": 0.0}
        causes = Causes(queue=0.987, not_resident=0.01, **rest, execution_split=None)
        roots = Causes(queue=0.997 - waited, not_resident=waited, **rest, execution_split=None)
        tenants = [victim.model_copy(update={"causes": causes, "root_causes": roots}), *others]
        return cause_sentence(device.model_copy(update={"tenants": tenants, "host": []}))

    assert said(0.01) == "Sharing is the cause: yes. Queueing (98.7 % of the added latency)."
    assert "Waiting for its time slice (90.0 % of the added latency)" in said(0.9)


def test_a_long_reason_ends_between_words() -> None:
    report = examples.time_sliced()
    (device,) = report.devices
    why = "; ".join(f"tenant app_{letter}: waiting before a start is not known" for letter in "abcdef")
    missing = [m.model_copy(update={"why": why}) if m.what == "slowdown" else m for m in device.sharing.missing]
    missing.append(Missing(what="interference", why=why, how=""))
    tenants = [t.model_copy(update={"slowdown": examples.NO_SLOWDOWN}) for t in device.tenants]
    sharing = device.sharing.model_copy(update={"missing": missing})
    device = device.model_copy(update={"tenants": tenants, "sharing": sharing, "host": []})
    lead = lay_out(report.model_copy(update={"devices": [device]})).lead
    told = lead[0].partition("Slowdown is not known. ")[2]
    assert told.endswith(" …")
    assert capital(why).startswith((told.removesuffix(" …") + " ", told.removesuffix(" …") + "; "))


def test_an_instance_is_not_compared_with_itself(fixtures: Path) -> None:
    """Only a listing of instances is a configuration that the capture can match."""
    listing = Path(__file__).parent / "golden" / "inputs" / "mig-list.txt"
    (alone,) = load(fixtures / "mig.sqlite").report().devices
    (listed,) = pyanalyze.load(fixtures / "mig.sqlite", context=[listing]).report().devices
    assert (agreement_text(alone), agreement_note(alone)) == (
        "mig; the device is a MIG instance",
        "the device is a MIG instance",
    )
    assert (agreement_text(listed), agreement_note(listed)) == ("mig; matches", "matches")


def test_of_devices_with_equal_work_the_first_is_the_main_one() -> None:
    """As equal as two devices of one program are: half of a percent apart."""
    report = examples.time_sliced()
    (device,) = report.devices

    def busy(number: int, busy_ns: int) -> Device:
        tenants = [examples.tenant(number, "train", 7, busy_ns=busy_ns)]
        return device.model_copy(update={"device_id": number, "tenants": tenants})

    for second, main in ((1_005_000, 0), (1_100_000, 1), (500_000, 0)):
        both = report.model_copy(update={"devices": [busy(0, 1_000_000), busy(1, second)]})
        found = main_device(both)
        assert found is not None
        assert found.device_id == main


def test_launches_without_a_record_are_counted_under_data_quality(hardware: Path) -> None:
    """By correlation id: 2 of 1 967 launch calls. The counters of a GPU stand among what is not available."""
    path = hardware / "torch-mps-serve-train.sqlite"
    with closing(sqlite3.connect(path)) as db:
        launch = """FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds ON id = nameId
            WHERE (value LIKE '%LaunchKernel%' OR value LIKE '%GraphLaunch%')"""
        done = """(SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE k.correlationId = r.correlationId
            AND k.globalPid = r.globalTid / 16777216 * 16777216)"""
        ((every,),) = db.execute(f"SELECT count(*) {launch}")
        ((lost,),) = db.execute(f"SELECT count(*) {launch} AND NOT EXISTS {done}")
    page = run("report", path, "-f", "md").stdout
    section = page[page.index("## Data quality") :].split("## ")[1]
    said = f"{count(lost)} of {count(every)} launch calls (a graph counts as one) have no kernel record"
    # They are the last two of python3 (pid 1288), and no call failed.
    # Their last record is at 3.465 s of 5.974 s: what ended then was not the recording.
    assert f"{said}: the last ones, after which 2.509 s of recording have no record." in section
    assert "compute-sanitizer" not in page
    assert "No data-quality issue" not in section


def test_settings_of_several_processes_stand_in_one_row(hardware: Path, tmp_path: Path) -> None:
    """nsys lists the control daemon (902) and the server (915) of MPS under one name, cut to 15 characters."""
    path = with_all_switch_records(hardware.parent / "h200" / "mps-A-B-C.sqlite", tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as db:
        listed = db.execute("SELECT globalPid >> 24 & 0xFFFFFF, name FROM PROCESSES WHERE name LIKE '%cuda-mps%'")
        assert sorted(listed.fetchall()) == [(902, "nvidia-cuda-mps"), (915, "nvidia-cuda-mps")]
    page = render_markdown(load(path).report())
    rows = [line for line in page.splitlines() if line.startswith("| mps_daemon |")]
    both = "nvidia-cuda-mps (the control daemon and its server: their names are cut)"
    assert rows == [f"| mps_daemon | {both} | 902, 915 | process-list |"]
    # What a counter means for the reader stands behind what it counted.
    (row,) = (line for line in page.splitlines() if line.startswith("| notice | pid_unmatched |"))
    assert "no single process of the switch records fits pid 1185" in row
    assert row.endswith("could be tied to: their residency is not known. |")


def test_the_version_that_exported_is_not_said_to_have_recorded(corpus: Path) -> None:
    """One recording, exported by two versions of nsys."""
    for name, version in (("report3.nsys2026", "2026.1.3.425"), ("report3", "2023.3.3.42")):
        path = corpus / "exports" / "mig-a30" / f"{name}.sqlite"
        with closing(sqlite3.connect(path)) as db:
            query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'"
            assert db.execute(query).fetchall() == [(version,)]
        report = load(path).report()
        page = render_markdown(report)
        assert f"exported by nsys {version}, export schema" in page
        assert "| nsys (that exported) |" in page
