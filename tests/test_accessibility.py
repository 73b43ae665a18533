"""No page breaks a rule of axe-core: names, roles, contrast in light and dark, keyboard access, order of headings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import run

ROOT = Path(__file__).parents[1]
CAPTURES = ROOT / "fixtures" / "captures"
SAMPLES = ROOT / "fixtures" / "samples"
#: A laptop and a phone, in columns of pixels.
WIDTHS = (1280, 400)

PAGES: dict[str, tuple[str | Path, ...]] = {
    "several tenants": ("report", CAPTURES / "demo-time-slicing.sqlite"),
    "names that are markup": ("report", CAPTURES / "hostile-names.sqlite"),
    "samples": ("report", SAMPLES / "query-gpu.csv", "--samples", SAMPLES / "compute-apps.csv"),
    "comparison": ("compare", CAPTURES / "streams.sqlite", CAPTURES / "streams.sqlite", "-f", "html"),
}


@pytest.mark.parametrize("name", PAGES)
def test_no_page_breaks_a_rule(browser: Any, name: str, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    path = tmp_path / "page.html"
    done = run(*PAGES[name], "-o", path)
    assert done.returncode == 0, done.stderr
    found = []
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            # The page's own policy lets no script in, and axe is one.
            context = browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
            )
            tab = context.new_page()
            tab.goto(path.as_uri())
            # What is folded counts as well.
            tab.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
            tab.wait_for_function(
                "[...document.querySelectorAll('[data-chart]')].every(box => box.dataset.drawn)", timeout=60_000
            )
            for rule in axe.Axe().run(tab).response["violations"]:
                where = rule["nodes"][0]["target"]
                found.append(f"{scheme}, {width}: {rule['id']} ({rule['impact']}): {rule['help']}: {where}")
            context.close()
    assert found == []
