"""What a reader does with the page: search, sort, select, copy, follow a link; in a browser, without a sound of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from test_report_pages import _chromium

import pyanalyze
from pyanalyze.report.rendering import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def report(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(pyanalyze.load(fixtures / "demo-time-slicing.sqlite").analysis, "html"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        yield made
        made.close()


def opened(browser: Any, report: Path, *, fragment: str = "", **options: Any) -> Any:
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, **options)
    tab.said = []
    tab.on("console", lambda message: tab.said.append(message.text))
    tab.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.goto(report.as_uri() + fragment)
    tab.wait_for_function("document.querySelector(\"[data-chart='timeline-0']\").dataset.drawn", timeout=30_000)
    tab.wait_for_selector(".stats", state="attached")
    return tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_page_has_the_answer_the_picture_and_what_to_change(browser: Any, report: Path, scheme: str) -> None:
    tab = opened(browser, report, color_scheme=scheme)
    for place in (".lead", "[data-chart='timeline-0'] svg", "#advice-0 .note"):
        box = tab.locator(place).first.bounding_box()
        assert box is not None
        # Of the first action at least its title stands above the edge.
        assert box["y"] + min(box["height"], 30) <= 800, place
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
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
        scale = {"us": 1e-3, "ms": 1.0, "s": 1e3}
        said = [text.split() for text in table.locator("tbody tr td:nth-child(3)").all_inner_texts()]
        return [float(number) * scale[unit] for number, unit in said]

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
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite")
    (device,) = session.report().devices
    assert device.window is not None
    start, end = device.window.start_ns, device.window.end_ns
    low, high = start + (end - start) / 4, start + (end - start) / 2
    inside = session.kernels.filter((session.kernels["end_ns"] >= low) & (session.kernels["start_ns"] <= high))
    assert int(re.search(r", (\d+) kernels", said)[1]) == pytest.approx(inside.height, abs=2)  # type: ignore[index]
    rows = [row.split("\t") for row in tab.locator(".stats tbody tr").all_inner_texts()]
    counted = dict(inside.group_by("short_name").len().iter_rows())
    assert {row[1].strip(): int(row[2]) for row in rows} == pytest.approx(counted, abs=1)
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
