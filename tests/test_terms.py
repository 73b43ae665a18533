"""Words: none of docs/banned.txt in code, docs and rendered outputs, and no rendered sentence of more than 30 words."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
RENDERED = sorted(GOLDEN.glob("*/*.txt")) + sorted(GOLDEN.glob("*/report.*"))

# Path (a regular expression), phrase, reason. Each entry is needed: a test finds what it allows.
ALLOWED: list[tuple[str, str, str]] = []


@cache
def banned() -> dict[str, re.Pattern[str]]:
    """Each phrase with its pattern."""
    lines = (ROOT / "docs" / "banned.txt").read_text(encoding="utf-8").splitlines()
    phrases = [line.split(" -> ")[0] for line in lines if line and not line.startswith("#")]
    assert len(phrases) == len(set(phrases)) > 50
    return {
        phrase: re.compile(
            r"(?<![^\W_])" + r"[\s_-]+".join(map(re.escape, phrase.split())) + r"(?![^\W_])", re.IGNORECASE
        )
        for phrase in phrases
    }


@cache
def sources() -> list[Path]:
    """All text that is committed, but for this page, its list, and outputs that are not ours."""
    listed = (
        subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
        )
        .stdout.decode()
        .split("\0")
    )
    own = {"docs/banned.txt", "tests/test_terms.py"}
    kept = []
    for name in filter(None, listed):
        path = ROOT / name
        if name in own or name.endswith((".lock", ".jsonl", ".sqlite", ".png", ".parquet")) or not path.is_file():
            continue
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        kept.append(path)
    return kept


def matches(pattern: re.Pattern[str], first_word: str, text: str, lower: str) -> Iterator[re.Match[str]]:
    """Where a phrase stands. The pattern is tried where its first word is: at every character it takes long."""
    if len(lower) != len(text):  # a letter that has no small one of its length
        yield from pattern.finditer(text)
        return
    at = lower.find(first_word)
    while at >= 0:
        if hit := pattern.match(text, at):
            yield hit
        at = lower.find(first_word, at + 1)


def found(path: Path) -> list[tuple[str, str]]:
    """Banned phrases of a file with the line of each."""
    text = path.read_text(encoding="utf-8")
    lower = text.lower()
    hits = []
    for phrase, pattern in banned().items():
        for hit in matches(pattern, phrase.split()[0].lower(), text, lower):
            number = text.count("\n", 0, hit.start()) + 1
            hits.append((phrase, f"{path.relative_to(ROOT)}:{number}: {text[hit.start() - 30 : hit.end() + 30]!r}"))
    return hits


def test_no_banned_word_is_used() -> None:
    used: set[int] = set()
    wrong = []
    for path in sources():
        for phrase, where in found(path):
            allowed = [
                n
                for n, (files, word, _) in enumerate(ALLOWED)
                if word == phrase and re.search(files, str(path.relative_to(ROOT)))
            ]
            used.update(allowed)
            if not allowed:
                wrong.append(f"{where}: {phrase}")
    assert not wrong, "\n".join(wrong)
    assert used == set(range(len(ALLOWED))), "an entry of the allow list allows nothing"


SENTENCE_END = re.compile(r"(?<=[.!?:;])[)\"'\]]*\s+")


def of_markdown(path: Path) -> Iterator[str]:
    """Paragraphs, list items and cells; no code."""
    paragraph: list[str] = []
    fenced = False
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        apart = line.startswith("```")
        fenced ^= apart
        if apart or fenced or not line.strip() or line.startswith(("    ", "#", "|")):
            yield " ".join(paragraph)
            paragraph.clear()
            if line.startswith("|"):
                yield from line.strip("|").split("|")
        else:
            if re.match(r"\s*(?:[-*]|\d+\.) ", line):
                yield " ".join(paragraph)
                paragraph.clear()
            paragraph.append(line.strip())


def of_page(path: Path) -> Iterator[str]:
    """Texts of elements, and labels; no queries."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not re.search(r"\bSELECT\b|\s--[a-z]", line):  # queries and commands
            yield from line.split(" | ")


def of_json(path: Path) -> Iterator[str]:
    """All values that are text, but for queries and commands."""

    def texts(value: object, key: str) -> Iterator[str]:
        if isinstance(value, dict):
            for name, one in value.items():
                yield from texts(one, name)
        elif isinstance(value, list):
            for one in value:
                yield from texts(one, key)
        elif isinstance(value, str) and key not in {"sql", "commands", "how"} and not value.startswith("kubectl "):
            yield value

    yield from texts(json.loads(path.read_text(encoding="utf-8")), "")


READERS = {"report.md": of_markdown, "page.txt": of_page, "report.json": of_json}


def words(sentence: str) -> int:
    """Words: what has a letter in it; numbers and units that stand apart count as well as names do."""
    return sum(any(character.isalpha() for character in word) for word in sentence.split())


@pytest.mark.parametrize("path", [p for p in RENDERED if p.name in READERS], ids=lambda p: f"{p.parent.name}-{p.name}")
def test_no_rendered_sentence_has_more_than_30_words(path: Path) -> None:
    sentences = [sentence for text in READERS[path.name](path) for sentence in SENTENCE_END.split(text)]
    assert max(map(words, sentences)) > 5
    assert not (long := [sentence for sentence in sentences if words(sentence) > 30]), "\n".join(long)
