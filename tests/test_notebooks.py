"""The example notebooks: they run, and what they show is stored in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_notebooks import HERE, execute

NOTEBOOKS = sorted(HERE.glob("*.ipynb"))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "check-an-mps-provisioning",
        "classify-a-capture",
        "find-the-noisy-neighbour",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    stored = json.loads(path.read_text(encoding="utf-8"))
    fresh = execute(json.loads(path.read_text(encoding="utf-8")), path.name)
    assert [kinds(cell) for cell in fresh["cells"]] == [kinds(cell) for cell in stored["cells"]], "run `make notebooks`"
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert path.stat().st_size < 1_000_000


def kinds(cell: dict[str, Any]) -> list[list[str]]:
    """What a cell shows, by kind: text may change with every version, what is shown does not."""
    return [sorted(output.get("data", {"stream": ""})) for output in cell.get("outputs", [])]


def test_the_stories_they_tell_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the text between the cells claims of the numbers in them."""
    monkeypatch.chdir(HERE)
    space: dict[str, Any] = {}
    for stem in ("find-the-noisy-neighbour", "check-an-mps-provisioning"):
        for cell in json.loads((HERE / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), space)
        if stem == "find-the-noisy-neighbour":
            parts = {part.name: part for part in space["comparison"].tenants[0].parts}
            assert parts["not_resident"].significant
            assert not parts["host"].significant
            assert not parts["resident"].significant
        else:
            assert space["verdict"].mode == space["verdict"].configured == "mps"
            assert (space["session"].contexts["sm_count"] == space["sms"]).all()
