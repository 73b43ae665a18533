"""Captures for tests: the committed ones always, the real ones where the corpus is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures" / "captures"
CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT.parent / "shared" / "corpus"))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Folder of the committed captures."""
    return FIXTURES


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of the real captures."""
    if not (CORPUS / "exports").is_dir():
        pytest.skip(f"the corpus of real captures is not at hand ({CORPUS}); set PYANALYZE_CORPUS")
    return CORPUS
