"""Take the picture in the README: the report of the demo capture in a system Chromium. `make pictures`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import mode_pages
from playwright.sync_api import sync_playwright

import pyanalyze

ROOT = Path(__file__).parent.parent
CAPTURES = ROOT / "fixtures" / "captures"


def main() -> int:
    """Render, open, take the picture."""
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser_path is None:
        print("no Chromium on PATH; install one (Debian: apt-get install chromium)")
        return 1
    samples = sorted(CAPTURES.glob("demo-time-slicing.*.csv"))
    session = pyanalyze.load(CAPTURES / "demo-time-slicing.sqlite", samples=samples)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        session.save(page_file)
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.wait_for_function("document.querySelector(\"[data-chart='timeline-0']\").dataset.drawn")
        page.screenshot(path=ROOT / "docs" / "images" / "report.png")
        browser.close()
    mode_pages.draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
