"""Which module may import which?

The contracts stand in pyproject.toml and `make lint` checks them. Here: they have no exceptions, and no modules import
each other in a circle. Imports inside functions and under TYPE_CHECKING count.
"""

import ast
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules each of which imports all others of its group, directly or through others."""
    found: list[set[str]] = []
    while imports:
        # Nothing in a circle is lost: its members import each other, so all of them stay.
        ends = {name for name, used in imports.items() if not used}
        if ends:
            imports = {name: used - ends for name, used in imports.items() if name not in ends}
            continue
        start = min(imports)
        group = reached(imports, start) & reached(importers(imports), start)
        if group:
            found.append(group)
        done = group | {start}
        imports = {name: used - done for name, used in imports.items() if name not in done}
    return found


def reached(imports: dict[str, set[str]], start: str) -> set[str]:
    """What a module imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def importers(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same imports by the imported module."""
    return {name: {other for other, used in imports.items() if name in used} for name in imports}


@pytest.mark.parametrize(
    ("arrows", "expected"),
    [
        ("a>b b>c", []),
        ("a>b b>c c>a c>d", ["abc"]),
        ("a>b b>a b>c c>d d>c", ["ab", "cd"]),
        ("a>b a>c b>d c>d", []),
        ("a>b b>c c>d d>b e>a", ["bcd"]),
    ],
)
def test_a_circle_is_found(arrows: str, expected: list[str]) -> None:
    imports: dict[str, set[str]] = {name: set() for name in "abcde"}
    for source, target in (arrow.split(">") for arrow in arrows.split()):
        imports[source].add(target)
    assert sorted("".join(sorted(group)) for group in circles(imports)) == expected


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("pyanalyze", exclude_type_checking_imports=False, cache_dir=None)
    assert len(graph.modules) > 100
    found = circles({name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules})
    assert not found, "move what they share into a module below them:\n" + "\n".join(" ".join(sorted(g)) for g in found)


def test_the_layers_have_no_exceptions() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert settings["exclude_type_checking_imports"] is False
    assert len(settings["contracts"]) >= 3
    for contract in settings["contracts"]:
        # Neither an ignored import nor an import through a third module that is let through.
        assert not contract.get("ignore_imports"), contract["name"]
        assert not contract.get("allow_indirect_imports"), contract["name"]


def test_the_facade_stays_thin() -> None:
    text = (ROOT / "pyanalyze" / "session.py").read_text()
    described: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            described |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code = [line for number, line in enumerate(text.splitlines(), 1) if line.strip() and number not in described]
    assert len(code) <= 300
