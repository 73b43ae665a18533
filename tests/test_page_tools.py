"""What a reader does with the page: search, sort, select, copy, follow a link; in a browser, without a sound of it."""

from __future__ import annotations

import re
from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from command_line import run
from exports import US, kernel, write
from shared_sessions import load
from six_captures import SIX, inputs

from pyanalyze.report.rendering import render
from pyanalyze.text.format import duration

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def report(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(load(fixtures / "demo-time-slicing.sqlite").analysis, "html"), encoding="utf-8")
    return path


def opened(browser: Any, report: Path, *, fragment: str = "", **options: Any) -> Any:
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, **options)
    tab.said = []
    tab.on("console", lambda message: tab.said.append(message.text))
    tab.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.goto(report.as_uri() + fragment)
    # What is folded is drawn when it is opened.
    open_charts = "[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn || !box.clientWidth)"
    tab.wait_for_function(open_charts, timeout=60_000)
    return tab


#: Regions of a page that hold more than is seen of them.
CUT = (
    "[...document.querySelectorAll('.wide, .chart, pre, .facts, .note')]"
    ".filter(region => region.clientWidth && region.scrollWidth > region.clientWidth + 1)"
    ".map(region => region.getAttribute('aria-label') || region.className || region.tagName)"
)


@pytest.mark.parametrize("name", SIX)
def test_the_first_page_has_the_answer_the_picture_and_what_to_change(browser: Any, name: str, tmp_path: Path) -> None:
    """On a laptop; and nothing is cut on it, below, or on a phone, with every fold open."""
    page = tmp_path / "page.html"
    assert run("report", *inputs(name, tmp_path), "-o", page).returncode == 0
    assert page.stat().st_size < 2_000_000
    tab = opened(browser, page)
    ends = []
    for place in (".lead", "[data-chart] svg", "section[id^=advice] .note"):
        box = tab.locator(place).first.bounding_box()
        assert box is not None
        ends.append(box["y"] + box["height"])
    assert ends == sorted(ends), "in this order"
    assert ends[-1] <= 800
    for width in (1280, 400):
        tab.set_viewport_size({"width": width, "height": 800})
        tab.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        tab.wait_for_timeout(900)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert tab.evaluate(CUT) == []
    assert tab.said == []
    tab.close()


def test_a_mark_says_what_it_is(browser: Any, report: Path, fixtures: Path) -> None:
    """Who, which kernels, how long, and how much of it is GPU time: the sums of the table of kernels."""
    tab = opened(browser, report)
    tips = []
    # All at once: there are thousands.
    places = "marks => marks.map(mark => mark.getBoundingClientRect().toJSON())"
    for box in tab.eval_on_selector_all("[data-chart='timeline-0'] svg .mark-rect path", places):
        if box["width"] > 300:
            tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            tab.wait_for_selector("#vg-tooltip-element.visible", timeout=5_000)
            rows = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
            tips.append(dict(tab.eval_on_selector_all("#vg-tooltip-element tr", rows)))
    session = load(fixtures / "demo-time-slicing.sqlite")
    kernels = pl.DataFrame(session.tables.table("kernel_attribution"))
    # From 340 ms on both run without a pause.
    for tenant, name in enumerate(("app_a", "app_b")):
        (said,) = (tip for tip in tips if tip["Tenant"] == name)
        inside = kernels.filter(pl.col("tenant_id") == tenant, pl.col("start_ns") >= 340_000_000)
        first, last = min(inside["start_ns"]), max(inside["end_ns"])
        assert int(said["Start (ns, capture clock)"]) == first
        assert said["Intervals"] == str(inside.height)
        assert said["Length"] == duration(last - first)
        assert said["Attributed GPU time"] == duration(int(inside["attributed_ns"].sum()))
    tab.close()


def test_more_kernels_than_are_listed_are_counted_in_steps(browser: Any, tmp_path: Path) -> None:
    """4000 kernels of 50 us and 2000 of 20 us, of two processes: in the whole, and in the first half of the time."""
    kernels = [kernel(41, n * 100 * US, n * 100 * US + 50 * US) for n in range(4000)]
    kernels += [kernel(42, n * 200 * US + 60 * US, n * 200 * US + 80 * US) for n in range(2000)]
    capture = write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train", 42: "serve"})
    page = tmp_path / "page.html"
    assert run("report", capture, "-o", page).returncode == 0
    tab = opened(browser, page)
    lines = tab.inner_text(".stats summary")
    assert ", 6\u202f000 kernels by tenant and name (observed; ends rounded to 400 us, p50 and p99 to 3 %)" in lines

    def rows() -> dict[str, list[str]]:
        cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
        return {tenant: rest for tenant, _, *rest in tab.eval_on_selector_all(".stats tbody tr", cells)}

    for tenant, count, length in (("train", 4000, 50), ("serve", 2000, 20)):
        said = rows()[tenant]
        assert said[:2] == [f"{count:,}".replace(",", "\u202f"), f"{count * length / 1000:g} ms"]
        assert [float(text.removesuffix(" us")) for text in said[3:]] == pytest.approx([length] * 2, rel=0.03)
    tab.focus("[data-chart='timeline-0']")
    tab.keyboard.press("+")
    tab.wait_for_timeout(600)
    assert [int(row[0].replace("\u202f", "")) for row in rows().values()] == [
        pytest.approx(2000, abs=8),
        pytest.approx(1000, abs=4),
    ]
    assert tab.said == []
    tab.close()


def test_search_leaves_the_rows_that_match(browser: Any, report: Path) -> None:
    tab = opened(browser, report)
    tab.keyboard.press("/")
    tab.keyboard.type("A3")
    assert re.fullmatch(r"\d+ rows? in \d+ tables?", tab.inner_text(".tools output"))
    names = tab.locator("#occupancy-0 table", has_text="Launches").locator("tbody tr:visible td:first-child")
    assert names.all_inner_texts() == ["A3"]
    tab.keyboard.press("Escape")
    assert tab.locator("tbody tr[hidden]").count() == 0
    assert tab.said == []
    tab.close()


def test_columns_sort_by_size_not_by_letters(browser: Any, report: Path) -> None:
    tab = opened(browser, report)
    table = tab.locator("#occupancy-0 table", has_text="Launches")
    head = table.locator("th", has_text="Time")

    def times() -> list[float]:
        return [_ms(text) for text in table.locator("tbody tr td:nth-child(3)").all_inner_texts()]

    before = times()
    assert before == sorted(before, reverse=True)
    head.locator("button").focus()
    tab.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    tab.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert times() == sorted(before)
    assert tab.said == []
    tab.close()


def length(kernels: pl.DataFrame, name: str) -> list[int]:
    return [end - start for start, end in kernels.filter(short_name=name).select("start_ns", "end_ns").iter_rows()]


def _ms(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def test_a_selected_time_is_counted(browser: Any, report: Path, fixtures: Path) -> None:
    """The same kernels by hand, from the table of kernels."""
    tab = opened(browser, report)
    plot = tab.evaluate(
        "(() => { const r = document.querySelector(\"[data-chart='timeline-0'] svg g.role-scope path.background\")"
        ".getBoundingClientRect(); return [r.left, r.top, r.width]; })()"
    )
    left, top, width = plot
    tab.keyboard.down("Shift")
    tab.mouse.move(left + width / 4, top + 20)
    tab.mouse.down()
    tab.mouse.move(left + width / 2, top + 25, steps=4)
    tab.mouse.up()
    tab.keyboard.up("Shift")
    said = tab.inner_text(".stats summary")
    assert said.startswith("Selected: 282.2 ms from 282.2 ms, ")
    session = load(fixtures / "demo-time-slicing.sqlite")
    (device,) = session.report().devices
    assert device.window is not None
    start, end = device.window.start_ns, device.window.end_ns
    low, high = start + (end - start) / 4, start + (end - start) / 2
    inside = session.kernels.filter((session.kernels["end_ns"] >= low) & (session.kernels["start_ns"] <= high))
    assert int(re.search(r", (\d+) kernels", said)[1]) == pytest.approx(inside.height, abs=2)  # type: ignore[index]
    rows = [row.split("\t") for row in tab.locator(".stats tbody tr").all_inner_texts()]
    counted = dict(inside.group_by("short_name").len().iter_rows())
    assert {row[1].strip(): int(row[2]) for row in rows} == pytest.approx(counted, abs=1)
    # Durations as they stand in the table, their sum, and the percentiles by rank.
    for row in rows:
        lengths = sorted(length(inside, row[1].strip()))
        assert _ms(row[3]) == pytest.approx(sum(lengths) / 1e6, rel=0.05)
        assert _ms(row[5]) == pytest.approx(lengths[ceil(0.5 * (len(lengths) - 1))] / 1e6, rel=0.05)
        if len(lengths) > 20:
            assert _ms(row[6]) == pytest.approx(lengths[ceil(0.99 * (len(lengths) - 1))] / 1e6, rel=0.05)
    # The picture did not move, and Esc lets go.
    assert tab.evaluate("document.querySelector(\"[data-chart='timeline-0']\").view.scale('x').domain()[0]") == 0
    tab.focus("[data-chart='timeline-0']")
    tab.keyboard.press("Escape")
    assert tab.inner_text(".stats summary").startswith("Shown: 1.129 s from 0 ns, 876 kernels")
    # Zooming in counts what is left.
    tab.keyboard.press("+")
    tab.wait_for_timeout(600)
    assert tab.inner_text(".stats summary").startswith("Shown: 564.4 ms from 282.2 ms")
    assert tab.said == []
    tab.close()


def test_a_command_is_copied_whole(browser: Any, report: Path) -> None:
    tab = browser.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
    tab.goto(report.as_uri())
    command = tab.locator("#advice-0 .copied").first
    command.locator("button").click()
    tab.wait_for_function("[...document.querySelectorAll('.copy')].some(b => /Copied|Selected/.test(b.textContent))")
    assert tab.evaluate("navigator.clipboard.readText()") == command.locator("pre").inner_text()
    tab.close()


def test_a_link_into_the_folded_evidence_opens_it(browser: Any, report: Path) -> None:
    tab = opened(browser, report, fragment="#sharing-0")
    assert tab.locator("#sharing-0 > details").get_attribute("open") is not None
    assert tab.locator("#provenance > details").get_attribute("open") is None
    tab.locator("nav a", has_text="Provenance").click()
    tab.locator("#provenance > details[open]").wait_for(state="attached")
    assert tab.said == []
    tab.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_it_fits_a_phone_and_paper(browser: Any, report: Path, width: int) -> None:
    tab = opened(browser, report)
    tab.set_viewport_size({"width": width, "height": 800})
    tab.wait_for_timeout(900)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.emulate_media(media="print")
    for place in ("nav", ".copy", ".stats"):
        assert not tab.locator(place).first.is_visible()
    tab.close()


def test_names_on_a_phone_keep_their_ends(browser: Any, hardware: Path, tmp_path: Path) -> None:
    """Two processes of one program differ in their pid only, which stands at the end."""
    page = tmp_path / "report.html"
    assert run("report", hardware / "torch-mps-serve-train.sqlite", "-o", page).returncode == 0
    tab = browser.new_page(viewport={"width": 390, "height": 800})
    tab.goto(page.as_uri())
    tab.wait_for_function("[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn)")
    shown = tab.locator("[data-chart^='timeline']").text_content()
    assert shown is not None and "id 1287)" in shown and "id 1288)" in shown


def test_kernels_on_a_phone_keep_the_ends_of_their_names(browser: Any, hardware: Path, tmp_path: Path) -> None:
    """Kernels of PyTorch begin alike; labels there have two lines, the kernel and its tenant."""
    page = tmp_path / "report.html"
    capture = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    assert run("report", capture, "-o", page).returncode == 0
    tab = browser.new_page(viewport={"width": 390, "height": 800})
    tab.goto(page.as_uri())
    tab.wait_for_function("[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn)")
    shown = tab.locator("[data-chart^='solo']").text_content()
    assert shown is not None
    # vectorized_elementwise_kernel<GeluCUDAKernelImpl>, nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT, python3 (pid 1905)
    for end in ("…nelImpl>", "…litK_TNT", "…id 1905)"):
        assert end in shown
