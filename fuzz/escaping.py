"""Can a name break out of a report? The same page with any name must have the structure it has with a plain one.

Run by fuzz/run.py with atheris, which guides by coverage of the escaping and rendering code; without it (it has no
wheel for every interpreter) the seeds are mutated blindly, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import unicodedata
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

if atheris is not None and __name__ == "__main__":
    with atheris.instrument_imports(include=["pyanalyze", "jinja2", "markupsafe"]):
        from pyanalyze.report import blocks, html, markdown, text
        from pyanalyze.text.escape import spreadsheet, visible
else:
    from pyanalyze.report import blocks, html, markdown, text
    from pyanalyze.text.escape import spreadsheet, visible


class _Tags(HTMLParser):
    """Every tag with the names of its attributes, every comment, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"<{tag} {' '.join(name for name, _ in attrs)}>")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"</{tag}>")

    def handle_comment(self, data: str) -> None:
        self.tags.append("comment")

    def handle_pi(self, data: str) -> None:
        self.tags.append("instruction")

    def handle_data(self, data: str) -> None:
        self.shown += data


def _page(name: str) -> blocks.Page:
    """A page with the name in every place that a page has for one."""
    shown = visible(name)
    table = blocks.Table(
        (blocks.Column("Name"), blocks.Column(shown, unit=shown, numeric=True)),
        ((blocks.Cell(shown, note=shown), blocks.Cell(shown, tone="code")),),
        f"Of {shown}.",
    )
    parts = (
        blocks.Para(shown),
        blocks.Note(shown, shown),
        blocks.Facts((blocks.Fact(shown, shown, shown),)),
        table,
        blocks.Commands((f"nvidia-smi  # {shown}",)),
    )
    section = blocks.Section("id", shown, (*parts, blocks.Fold(shown, parts)), device=shown)
    return blocks.Page(shown, shown, (shown,), (section,), (blocks.Note(shown, shown),))


def _html(name: str) -> _Tags:
    made = _page(name)
    source = html._template().render(  # noqa: SLF001  # the template as it is, without a megabyte of vega
        page=made,
        sections=[html._view(section, {}) for section in made.sections],  # noqa: SLF001
        charts={},
        policy="",
        style="",
        bundle="",
        script="",
        generated_with=visible(name, 200),
        unknown="?",
    )
    tags = _Tags()
    tags.feed(source)
    tags.close()
    return tags


def _markdown(name: str) -> list[str]:
    from markdown_it import MarkdownIt

    tokens = (
        MarkdownIt("commonmark", {"html": True, "linkify": False})
        .enable("table")
        .parse(markdown.markdown_page(_page(name)))
    )
    flat = []
    for token in tokens:
        # Where a word ends and an entity begins says nothing of structure.
        flat += [
            token.type,
            *(child.type for child in token.children or [] if child.type not in ("text", "text_special")),
        ]
    return flat


@cache
def _plain() -> tuple[list[str], list[str], int]:
    shown = text.text_page(_page("plain"))
    return _html("plain").tags, _markdown("plain"), shown.count("\n")


def check(data: bytes) -> None:
    """Raise an AssertionError where the bytes, taken as a name, change more than text."""
    name = data.decode("utf-8", "surrogateescape")
    for limit in (2, 11, 60, None):
        shown = visible(name, limit)
        assert limit is None or len(shown) <= limit, (limit, shown)
        assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in shown), shown
    tags, tokens, _ = _plain()
    if not visible(name).strip():
        return  # an empty name leaves whole paragraphs out
    found = _html(name)
    assert found.tags == tags, [pair for pair in zip(found.tags, tags, strict=False) if pair[0] != pair[1]][:3]
    assert " ".join(visible(name).split()) in " ".join(found.shown.split()), "the name is not shown as it is"
    seen = _markdown(name)
    assert seen == tokens, [pair for pair in zip(seen, tokens, strict=False) if pair[0] != pair[1]][:3]
    for line in text.text_page(_page(name)).split("\n"):
        assert not any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} for c in line), line
    assert spreadsheet(name)[:1] not in {"=", "+", "-", "@", "\t", "\r"}
    spec = html._script_json({"name": name})  # noqa: SLF001
    assert "<" not in spec
    assert json.loads(spec) == {"name": name}


def _blindly(arguments: list[str]) -> None:
    """Mutate the seeds without knowing what they reach, in the place of a fuzzer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("-max_total_time", type=int, default=60)
    known, _ = parser.parse_known_args(arguments)
    print("atheris is not installed: no coverage guides this run", file=sys.stderr)
    seeds = [path.read_bytes() for path in sorted(known.corpus.iterdir())]
    numbers = random.Random(time.time_ns())
    ends, runs = time.monotonic() + known.max_total_time, 0
    while time.monotonic() < ends:
        data = bytearray(numbers.choice(seeds))
        for _ in range(numbers.randrange(1, 6)):
            other, at = numbers.choice(seeds), numbers.randrange(len(data) + 1)
            data[at:at] = numbers.choice([other[: numbers.randrange(40)], numbers.randbytes(3), b"\n\n", b"&#", b"\\"])
        check(bytes(data[:4096]))
        runs += 1
    print(f"stat::number_of_executed_units: {runs}", file=sys.stderr)


if __name__ == "__main__":
    if atheris is None:
        _blindly(sys.argv[1:])
    else:
        atheris.Setup(sys.argv, check)
        atheris.Fuzz()
