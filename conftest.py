"""Gives docstring examples the capture that they name, loaded once for all of them."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared_workers import KeptWorkers

# A shell starts what runs in its background with Ctrl-C ignored, and so would every program that a test stops.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Test processes share the processors: of tables this small the threads of one only wait for each other.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

# As the command line does: libraries and kept sessions are no garbage, and to look for some takes a tenth of the time.
gc.set_threshold(200_000)


@pytest.fixture(scope="session")
def workers() -> Iterator[KeptWorkers]:
    """Two worker processes, started when a fleet first asks for them."""
    from shared_workers import KeptWorkers

    made = KeptWorkers()
    yield made
    made.end()


@pytest.fixture
def kept_workers(workers: KeptWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every fleet of a test the same workers; not where their number, their start or their end is tested."""
    for module in ("run", "study"):
        monkeypatch.setattr(f"pyanalyze.fleet.{module}.executor_for", lambda *_, **__: workers)


@pytest.fixture(autouse=True)
def _doctest_names(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        from shared_sessions import load

        monkeypatch.setattr("pyanalyze.load", load)
        if request.node.name.startswith("pyanalyze.fleet."):
            request.getfixturevalue("kept_workers")
    captures = Path(__file__).parent / "fixtures" / "captures"
    doctest_namespace["capture"] = str(captures / "demo-time-slicing.sqlite")
    monkeypatch.setenv("COLUMNS", "100")
