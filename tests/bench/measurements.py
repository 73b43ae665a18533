"""The log that every benchmark appends a line to; docs/measurements.md is made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LOG = Path(__file__).resolve().parents[2] / "docs" / "measurements.jsonl"


def append(*rows: dict[str, Any]) -> None:
    """Write these rows at the end, one line each."""
    with LOG.open("a", encoding="utf-8") as log:
        log.writelines(json.dumps(row) + "\n" for row in rows)
