"""Gives docstring examples the capture that they name."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# A shell starts what runs in its background with Ctrl-C ignored, and so would every program that a test stops.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Path(__file__).parent / "fixtures" / "captures"
    doctest_namespace["capture"] = str(captures / "demo-time-slicing.sqlite")
    monkeypatch.setenv("COLUMNS", "100")
