"""Decisions hang on enums and numbers: no module asks what a sentence says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Layers that judge or print. Readers ask foreign text, which is all there is.
LAYERS = ("analysis", "charts", "export", "fleet", "report", "cli", "session.py")
#: Fields and columns that hold sentences.
PROSE = {
    "action", "bound", "check_after", "detail", "expected", "how", "note", "notes", "reason", "sentence", "slowdown_notes",
    "summary", "undo", "why", "why_not", "wrong_if",
}  # fmt: skip
TESTS_OF_TEXT = {"startswith", "endswith", "find", "rfind", "index", "count", "starts_with", "ends_with", "contains"}
SEARCHES = {"search", "match", "fullmatch", "findall", "finditer"}
#: Not prose in spite of its name: keys of :data:`pyanalyze.fleet.summary.Why`.
KEYS = {("pyanalyze/fleet/overview.py", "'configured' in one.why")}


def is_prose(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in PROSE:
            return True
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in PROSE
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name.endswith("_sentence"):
            return True
        # A column, whatever is done to it first: pl.col("detail").cast(pl.String).str
        case ast.Call(func=ast.Attribute(attr="col"), args=[ast.Constant(value=str(name))]):
            return name in PROSE
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Attribute(value=inner):
            return isinstance(inner, ast.Call | ast.Attribute | ast.Subscript) and is_prose(inner)
        # As it is, or shown: visible(note), note or "".
        case ast.Call(func=ast.Name(id="visible" | "str" | "capital"), args=[inner, *_]):
            return is_prose(inner)
        case ast.BoolOp(values=values):
            return any(is_prose(value) for value in values)
    return False


def decisions_on_prose(source: str) -> list[tuple[int, str]]:
    """Lines that ask what a sentence says, with what they ask."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]):
                bad = is_prose(text)
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                sides = ((left, right), (right, left))
                bad = any(is_prose(a) and isinstance(b, ast.Constant) and bool(b.value) for a, b in sides)
            case ast.Call(func=ast.Attribute(attr=name, value=text)) if name in TESTS_OF_TEXT:
                bad = is_prose(text)
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in SEARCHES:
                bad = any(is_prose(arg) for arg in args)
            case _:
                bad = False
        if bad and isinstance(node, ast.expr):
            found.append((node.lineno, ast.unparse(node)))
    return found


@pytest.mark.parametrize(
    "line",
    [
        # What there was.
        'cause_sentence(device).startswith(("no:", "no ", "mostly not"))',
        "[note for note in tenant.slowdown_notes if _UNUSED.search(note)]",
        '"replay in passing" in advice.options.why_not',
        "NOT_USED in row.detail",
        # And what it would look like elsewhere.
        '"alone" not in visible(note)',
        'row["detail"].endswith("lost")',
        'outcome.detail == "not known"',
        're.match("no", gap.why)',
        'pl.col("detail").cast(pl.String).str.contains("lost")',
        'kernels["reason"].str.starts_with("no")',
        '(why_not or "").startswith("one tenant")',
        "if page.sentences.verdict_sentence(device).find(word) >= 0: pass",
    ],
)
def test_the_search_finds_every_kind_of_question(line: str) -> None:
    assert decisions_on_prose(line)


@pytest.mark.parametrize(
    "line",
    [
        "impact.reason == Reason.HOST",
        "gap.how == ''",
        "row.detail is None",
        'row.name.startswith("samples_")',
        "how if gap.how else ''",
        'text.startswith("https://")',
        '"not-solo" in found.kinds',
        "detail.removesuffix('.')",
    ],
)
def test_the_search_leaves_alone_what_asks_no_sentence(line: str) -> None:
    assert not decisions_on_prose(line)


def test_no_module_decides_on_the_wording_of_a_sentence() -> None:
    looked_at, found = 0, []
    for layer in LAYERS:
        whole = ROOT / "pyanalyze" / layer
        for path in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            looked_at += 1
            name = path.relative_to(ROOT).as_posix()
            asked = decisions_on_prose(path.read_text(encoding="utf-8"))
            found += [f"{name}:{line}: {what}" for line, what in asked if (name, what) not in KEYS]
    assert looked_at > 90
    assert found == [], "carry an enum or a number beside the sentence"
