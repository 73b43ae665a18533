"""The example notebooks: they run, and what they show is stored in them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from run_notebooks import HERE, execute

NOTEBOOKS = sorted(HERE.glob("*.ipynb"))


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "check-an-mps-provisioning",
        "classify-a-capture",
        "find-the-aggressor",
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
    for stem in ("find-the-aggressor", "check-an-mps-provisioning"):
        for cell in json.loads((HERE / f"{stem}.ipynb").read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), space)
        if stem == "find-the-aggressor":
            parts = {part.name: part for part in space["comparison"].tenants[0].parts}
            assert parts["not_resident"].significant
            assert not parts["host"].significant
            assert not parts["resident"].significant
        else:
            assert space["verdict"].mode == space["verdict"].configured == "mps"
            assert (space["session"].contexts["sm_count"] == space["sms"]).all()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_name_is_made_in_two_cells(path: Path) -> None:
    """marimo runs cells in the order of what they need: a name of two cells is an error there."""
    made: Counter[str] = Counter()
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            made.update(made_in("".join(cell["source"])))
    assert made
    assert [name for name, cells in made.items() if cells > 1 and not name.startswith("_")] == []


def made_in(source: str) -> set[str]:
    """Names that a cell leaves behind."""
    made: set[str] = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            made.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                made.add(node.id)
            elif isinstance(node, ast.alias):
                made.add((node.asname or node.name).partition(".")[0])
        # What a comprehension counts with is its own.
        for inner in ast.walk(statement):
            if isinstance(inner, ast.comprehension):
                made -= {name.id for name in ast.walk(inner.target) if isinstance(name, ast.Name)}
    return made


def test_names_of_cells_are_found() -> None:
    assert made_in("import a.b, c as d\n(x,) = [i for i in y]\ndef f(): z = 1\nfor g in x: pass") == set("adxfg")


needs = {
    tool: pytest.mark.skipif(
        importlib.util.find_spec(tool) is None, reason=f"{tool} is not installed: pip install {of}"
    )
    for tool, of in (("marimo", "marimo"), ("nbclient", "nbclient ipykernel"))
}


@needs["marimo"]
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_marimo_runs_it(path: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    marimo = [sys.executable, "-m", "marimo"]
    subprocess.run([*marimo, "convert", str(path), "-o", str(app)], check=True, capture_output=True)
    run = (
        "import app; print([getattr(o, '_mime_', lambda: ('', ''))()[0] or type(o).__name__ for o in app.app.run()[0]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", run],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = ast.literal_eval(done.stdout.splitlines()[-1])
    assert any("Chart" in kind or "DataFrame" in kind or "Verdict" in kind for kind in shown), shown


@needs["nbclient"]
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_runs_it(path: Path) -> None:
    nbformat, nbclient = importlib.import_module("nbformat"), importlib.import_module("nbclient")
    notebook = nbformat.read(path, 4)
    place = {"metadata": {"path": str(HERE)}}
    nbclient.NotebookClient(
        notebook, timeout=600, startup_timeout=600, kernel_name="python3", resources=place
    ).execute()
    shown = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert "text/html" in shown
