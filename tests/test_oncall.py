"""What an on-call engineer has: samples, listings, kubectl output. Everything named in them stands in the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

import pyanalyze
from pyanalyze.errors import SamplesUnreadable

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "fixtures" / "samples"


def answer(*words: str | Path, code: int = 0) -> str:
    """Standard output and standard error of a command."""
    result = run(*words)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_that_no_reader_knows_is_named_on_the_first_screen(tmp_path: Path) -> None:
    unknown = [write(tmp_path, f"notes-{n}.txt", "hello\n") for n in range(5)]
    given = [word for file in unknown for word in ("--context", file)]
    screen = answer("--samples", SAMPLES / "pmon.txt", *given)
    assert len(screen.splitlines()) <= 15
    assert sum(line.startswith("Not read") for line in screen.splitlines()) == 4
    assert "and 2 more files" in screen
    # As a sample file too; and the whole report says it above everything else.
    assert "notes-0.txt" in answer("--samples", SAMPLES / "pmon.txt", "--samples", unknown[0])
    page = answer("report", "-f", "txt", "--samples", SAMPLES / "pmon.txt", "--context", unknown[0])
    assert page.index("notes-0.txt") < page.index("Key numbers")


@pytest.mark.parametrize("option", ["--samples", "--context"])
def test_strict_makes_an_unknown_file_unreadable(tmp_path: Path, option: str) -> None:
    unknown = write(tmp_path, "notes.txt", "hello\n")
    for verb in ("summary", "info", "classify", "report"):
        said = answer(verb, "--strict", "--samples", SAMPLES / "pmon.txt", option, unknown, code=3)
        assert "notes.txt" in said
    answer("--strict", "--samples", SAMPLES / "pmon.txt")
    with pytest.raises(SamplesUnreadable, match=r"notes\.txt"):
        pyanalyze.load(samples=[SAMPLES / "pmon.txt", unknown], strict=True)


def test_a_file_is_read_whichever_option_names_it(tmp_path: Path) -> None:
    listing = write(tmp_path, "list.txt", "GPU 0: NVIDIA L40S (UUID: GPU-00000000-0000-0000-0000-000000000001)\n")
    swapped = pyanalyze.load(samples=listing, context=SAMPLES / "pmon.txt")
    assert "samples_unread" not in swapped.quality["name"].cast(str).to_list()
    assert swapped.nvml_samples.height == 6
    assert [row["key"] for row in swapped.configured.iter_rows(named=True)] == ["gpu"]
    # A pasted terminal is both; named twice, it is read once.
    once = pyanalyze.load(samples=SAMPLES / "terminal.txt")
    twice = pyanalyze.load(samples=SAMPLES / "terminal.txt", context=SAMPLES / "terminal.txt")
    assert once.configured.equals(twice.configured)
    assert once.nvml_samples.height == twice.nvml_samples.height
