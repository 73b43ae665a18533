"""Does the code in docs do what the page shows? Every `console` and `python` block is run.

In a `console` block a line that begins with `$` is a command, and every line below it must stand in its output, in that
order; `...` stands for anything. `sh` blocks are for people: they set up, record on a GPU, or change a machine.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import generate
import pytest
from command_line import run_apart

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "occupancy.md",
    *sorted((ROOT / "docs" / "questions").glob("*.md")),
]
#: What a command line of one word after the other has none of.
SHELL = frozenset("|&;<>()$`*?[#~{!\n")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make fixtures` of the tutorial makes."""
    folder = tmp_path_factory.mktemp("docs") / "tutorial"
    folder.mkdir()
    for scenario, solo in (("running-example-time-slicing", True), ("running-example-mps", False)):
        for path in generate.built(scenario, solo=solo).glob("*.sqlite"):
            shutil.copyfile(path, folder / path.name)
    return folder


def _blocks(page: Path) -> list[tuple[str, str]]:
    return [
        (kind, code) for kind, code in FENCE.findall(page.read_text(encoding="utf-8")) if kind in ("console", "python")
    ]


def _missing(expected: list[str], output: str) -> str | None:
    """The first expected line that does not stand in the output after the ones before it."""
    lines, at = [" ".join(line.split()) for line in output.splitlines()], 0
    for line in filter(None, (" ".join(line.split()) for line in expected)):
        parts = [re.escape(part) for part in line.split("...")]
        pattern = re.compile(".*".join(parts))
        found = next((n for n in range(at, len(lines)) if pattern.search(lines[n])), None)
        if found is None:
            return line
        at = found + 1
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_does_what_the_page_shows(page: Path, captures: Path, tmp_path: Path) -> None:
    blocks = _blocks(page)
    if not blocks:
        pytest.skip("a page without code")
    (tmp_path / "tutorial").symlink_to(captures)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    tools = tmp_path.with_name(f"{tmp_path.name}-bin")
    tools.mkdir()
    program = tools / "pyanalyze"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from pyanalyze.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "COLUMNS": "100"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    for kind, code in blocks:
        if kind == "python":
            done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            continue
        for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
            # A backslash continues a command, as in a shell.
            command, *expected = part.replace("\\\n", "").splitlines()
            if command.startswith("pyanalyze ") and not SHELL & set(command):
                done = run_apart(*shlex.split(command)[1:], cwd=tmp_path, env=env)
            else:
                done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0, (command, done.stderr)
            assert (line := _missing(expected, done.stdout)) is None, (
                f"{command}\nshows no line {line!r}:\n{done.stdout}"
            )


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|data:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/design-notes.md", "README.md"])
def test_paths_that_a_page_names_exist(page: str) -> None:
    """Of `fuzz/regressions/TARGET` and `rules/<mode>.py` the part before what is to be filled in."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:pyanalyze|rust|fixtures|tests|docs|fuzz)/[\w./-]+)", text)
    assert [path for path in named if not (ROOT / path.removesuffix("TARGET")).exists()] == []


def test_the_readme_is_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
