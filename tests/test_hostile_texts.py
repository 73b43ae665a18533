"""No text takes a reader long: every pattern is linear, and every reader has a limit of time."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import pkgutil
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_inputs import CONTEXT

import pyanalyze
from pyanalyze.core import _core
from pyanalyze.errors import PyanalyzeError
from pyanalyze.inputs.context import READERS
from pyanalyze.inputs.nsys_recipes import read_report
from pyanalyze.inputs.saved_report import read_saved
from pyanalyze.inputs.work_units import read_work
from pyanalyze.tables import memory
from pyanalyze.text.shell import shell_word
from pyanalyze.text.times import around_ns, position_ns
from pyanalyze.text.visible import json_text, markdown, printable, visible

#: Seconds of the processor, for 20 KB; a pattern that tries every pair of places takes ten, and most take a hundredth.
MOST_S = 2.0
BYTES = 20_000

#: Runs of what patterns repeat, alone and behind what they look for.
UNITS = (" ", "\t", "\n", "\r\n", "a", "9", "9.", ",", ", ", "|", "| ", "-", "_", "/", "/a", "\u00a0", "\\", '"', "(", "{", "<", "`", "&#",
         "a=", "1 ", " x", "0x", "GPU 0: ", "MIG ", "pod=", "Client {PID: 1,", "- ", "a: ", "\U0001f680", "www.", "1s")  # fmt: skip
TEXTS = {repr(unit): (unit * (BYTES // len(unit)), "GPU 0:" + unit * (BYTES // len(unit)) + "x") for unit in UNITS}
#: Ways to use a pattern that go over the text, from every place or from one.
USES = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split")


def patterns() -> dict[str, tuple[re.Pattern[str], set[str]]]:
    """Every pattern that a module of the package keeps, and how the module uses it."""
    found = {}
    for module in pkgutil.walk_packages(pyanalyze.__path__, "pyanalyze."):
        if module.name == "pyanalyze.core._core":
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                used = re.findall(rf"\b{name}\.(\w+)\(", inspect.getsource(loaded))
                # Patterns in tables are used by another name.
                found[f"{module.name}.{name}"] = (value, set(USES) & set(used) or {"search", "fullmatch"})
    return found


def timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    # That a text is refused is an answer.
    with contextlib.suppress(PyanalyzeError):
        call()
    return time.process_time() - began


def used(pattern: re.Pattern[str], use: str, text: str) -> object:
    return (
        pattern.sub("", text)
        if use == "sub"
        else getattr(pattern, use)(text)
        if use in ("search", "match", "fullmatch")
        else list(getattr(pattern, use)(text))
    )


def used_on(pattern: re.Pattern[str], use: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        used(pattern, use, text)


def test_every_pattern_is_linear() -> None:
    known = patterns()
    assert len(known) > 30
    for name, (pattern, uses) in known.items():
        for kind, texts in TEXTS.items():
            for use in uses:
                spent = timed(functools.partial(used_on, pattern, use, texts))
                assert spent < MOST_S, (name, kind, use)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_text_takes_a_reader_of_context_long(reader: pyanalyze.inputs.context.base.Reader) -> None:
    sound = "".join(CONTEXT.values())
    for kind, texts in TEXTS.items():
        for text in (*texts, sound + texts[0]):
            assert timed(lambda text=text: reader.sniff(text) and list(reader.read(text))) < MOST_S, kind  # type: ignore[misc]


@pytest.mark.parametrize("name", CONTEXT)
def test_a_run_between_two_words_takes_no_reader_of_context_long(name: str) -> None:
    """What a pattern looks for stands on both sides of what it repeats."""
    for line in dict.fromkeys(CONTEXT[name].splitlines()):
        for place in (found.start() for found in re.finditer(r"\b|$", line)):
            for unit in (" ", "\t"):
                text = line[:place] + unit * BYTES + line[place:]
                for reader in READERS:
                    spent = timed(lambda text=text, reader=reader: reader.sniff(text) and list(reader.read(text)))  # type: ignore[misc]
                    assert spent < MOST_S, (reader.name, line, place, unit)


SAMPLES = tuple(sorted((Path(__file__).parent.parent / "fixtures" / "samples").iterdir()))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_no_text_takes_a_reader_of_samples_long(tmp_path: Path, sample: Path) -> None:
    sound = sample.read_bytes()
    file = tmp_path / f"samples{sample.suffix}"
    for kind, texts in TEXTS.items():
        for text in (texts[0].encode(), sound + texts[0].encode()):
            file.write_bytes(text)
            assert timed(lambda: _core.read_samples(str(file))) < MOST_S, kind


def test_no_text_takes_another_reader_long(fixtures: Path, tmp_path: Path) -> None:
    session = pyanalyze.load(fixtures / "mps.sqlite")
    tenants = session.tenants
    file = tmp_path / "run_cuda_gpu_kern_sum.csv"
    for kind, (text, *_) in TEXTS.items():
        readers: dict[str, Callable[[str], object]] = {
            "times": lambda given: position_ns(given, None),
            "dates": lambda given: position_ns(f"2026-03-14T05:26:54{given}", 0),
            "around": lambda given: around_ns(given, None),
            "memory": memory.parse,
            "visible": lambda given: (
                visible(given),
                visible(given, None),
                printable(given),
                markdown(given),
                shell_word(given),
            ),
            "json": json_text,
        }
        for name, read in readers.items():
            assert timed(lambda read=read, text=text: read(text)) < MOST_S, (name, kind)  # type: ignore[misc]
        for name, path_reader, content in (
            ("reports of nsys", read_report, text),
            ("reports of nsys", read_report, "Time (%),Total Time (ns),Instances,Name\n" + text),
            ("work", lambda path: read_work(path, tenants, None), "tenant,start,end\n" + text),
            ("saved reports", read_saved, text),
            ("saved reports", read_saved, '{"a": "' + text),
        ):
            file.write_text(content, encoding="utf-8")
            assert timed(lambda read=path_reader: read(file)) < MOST_S, (name, kind)  # type: ignore[misc]


def test_deep_and_wide_data_takes_no_reader_long(tmp_path: Path) -> None:
    deep = [
        "[" * 20_000,
        '{"a":' * 8_000,
        "- " * 20_000,
        "{" * 20_000,
        '[{"apiVersion":"v1","kind":"List","items":' * 900,
    ]
    wide = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [{"kind": "Pod"}] * 3000})
    laughs = (
        "a0: &a0 [x,x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1},*a{n - 1}]\n" for n in range(1, 60)) + "sharing: *a59\n"
    )
    for text in (*deep, wide, laughs, laughs + "flags: {migStrategy: *a59}\n"):
        for reader in READERS:
            assert timed(lambda text=text, reader=reader: reader.sniff(text) and list(reader.read(text))) < MOST_S  # type: ignore[misc]
        for name in ("a.toml", "a.json", "a.csv"):
            file = tmp_path / name
            file.write_text(text, encoding="utf-8")
            assert timed(lambda file=file: _core.read_samples(str(file))) < MOST_S  # type: ignore[misc]
