"""Take pictures of the reports of the six captures, to be looked at: `make screenshots` (needs a system Chromium).

Of each report: the first page on a laptop in light and dark, the whole page in both, the whole page on a phone, and its
pages on paper. `python docs/screenshots.py [FOLDER]`; the folder is build/screenshots if none is given.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from command_line import run  # noqa: E402
from six_captures import SIX, inputs  # noqa: E402

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 400, "height": 800}
#: Pixels at 96 per inch, less margins of one centimetre.
PAPER = {"width": 718, "height": 1047}
DRAWN = "[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn)"


def pictures(browser: Browser, page: Path, stem: Path) -> None:
    """All pictures of one page, as STEM-KIND.png, and STEM-print.pdf."""
    for kind, size, scheme in (("light", LAPTOP, "light"), ("dark", LAPTOP, "dark"), ("phone", PHONE, "light")):
        tab = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        tab.goto(page.as_uri())
        tab.wait_for_function(DRAWN, timeout=60_000)
        tab.wait_for_timeout(500)
        tab.screenshot(path=f"{stem}-{kind}-first.png")
        tab.screenshot(path=f"{stem}-{kind}.png", full_page=True)
        tab.close()
    tab = browser.new_page(viewport=PAPER)  # type: ignore[arg-type]
    tab.goto(page.as_uri())
    tab.wait_for_function(DRAWN, timeout=60_000)
    tab.pdf(path=f"{stem}-print.pdf", format="A4", margin=dict.fromkeys(("top", "right", "bottom", "left"), "1cm"))  # type: ignore[arg-type]
    tab.close()


def main() -> int:
    """Render, open, take the pictures."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("no Chromium on PATH; install one (Debian: apt-get install chromium)")
        return 1
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in SIX:
            stem = folder / name.replace(" ", "-").lower()
            page = stem.with_suffix(".html")
            done = run("report", *inputs(name, Path(work)), "-o", page, "--force")
            if done.returncode:
                print(done.stderr)
                return 1
            pictures(browser, page, stem)
        browser.close()
    print(f"wrote {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
