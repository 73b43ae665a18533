"""Captures for tests: the committed ones always, the real ones where the corpus is at hand."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import shared_sessions
from shared_sessions import CORPUS

import pyanalyze
from pyanalyze.report import static_charts
from pyanalyze.session import load as loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures" / "captures"


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Folder of the committed captures."""
    return FIXTURES


@pytest.fixture(scope="session")
def hardware() -> Path:
    """Folder of the committed recordings of an H100."""
    return ROOT / "fixtures" / "hardware" / "h100"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of the real captures."""
    if not (CORPUS / "exports").is_dir():
        pytest.skip(f"the corpus of real captures is not at hand ({CORPUS}); set PYANALYZE_CORPUS")
    return CORPUS


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, in which tests open pages of their own."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no system Chromium on PATH: the page was not drawn")
    # Not of a session: while it is open, an event loop is, and Dask begins one of its own.
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(autouse=True)
def processors() -> Iterator[None]:
    """Give back the processors that a command with `--threads` kept this process from: commands run in it."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    had = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, had)


@pytest.fixture(autouse=True)
def process_that_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the static pictures of pages in this process, as on one processor: its engine starts once for all pages.

    Modules that test the process beside, or what happens to a page while it draws, have a fixture of this name that
    leaves it.
    """
    monkeypatch.setattr(static_charts, "_started", lambda: None)


@pytest.fixture
def commands_share_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load and analyse the same files once for all commands that are run in this process."""
    # The package keeps what it was first asked for: not the shared one, of which other tests know nothing.
    assert pyanalyze.load is loaded
    monkeypatch.setattr("pyanalyze.session.load", shared_sessions.load)
