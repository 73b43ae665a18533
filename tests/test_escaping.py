"""What the fuzzer of fuzz/escaping.py found, and names made of what Markdown and HTML give a meaning, keep being text."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest
from modules import module_at

FUZZ = Path(__file__).parent.parent / "fuzz"
#: Everything that opens, closes or links something in either language, and blanks of several kinds.
PARTS = (
    *(" ", "    ", "\n", "\t", "\xa0", "\u3000", "\u202e", "\x1b[", "1)", "1.", "#", "- ", "+", "=", "> ", "`", "```"),
    *("~~~", "|", "*", "**", "_", "<", ">", "&lt;", "&#60;", "\\", "[x](y)", "![", "<!--", "-->", "]]>", "http://a.b"),
    *(
        "www.a.b",
        "a@b.c",
        "@me",
        "#12",
        "'",
        '"',
        "{{",
        "{%",
        "---",
        "===",
        "***",
        ":smile:",
        "$x$",
        "~",
        "^",
        "a",
        "Z9",
    ),
)


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    return module_at(FUZZ / "escaping.py")


@pytest.mark.parametrize("path", sorted((FUZZ / "regressions" / "escaping").iterdir()), ids=lambda path: path.name)
def test_what_was_found_stays_fixed(fuzz: ModuleType, path: Path) -> None:
    fuzz.check(path.read_bytes())


def test_no_name_changes_more_than_text(fuzz: ModuleType) -> None:
    numbers = random.Random(3)
    for _ in range(400):
        fuzz.check("".join(numbers.choice(PARTS) for _ in range(numbers.randrange(1, 7))).encode())
