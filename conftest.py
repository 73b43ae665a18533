"""Gives docstring examples the capture that they name."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Path(__file__).parent / "fixtures" / "captures"
    doctest_namespace["capture"] = str(captures / "demo-time-slicing.sqlite")
    monkeypatch.setenv("COLUMNS", "100")
