"""Every input that once broke a promise, each by itself: it ends in an answer or in one line, within its limits.

The files lie beside the corpus; what is wrong with each of them is built by a few lines in the other tests of hostile
input. Here the files themselves are read, as they broke the program.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from command_line import run, run_apart
from hostile_inputs import commanding, hostile_capture
from shared_sessions import CORPUS

from conftest import FIXTURES

HOSTILE = Path(os.environ.get("PYANALYZE_HOSTILE", CORPUS.parent / "hostile"))

#: By what a file's name begins with: what it is given to. `IN` is the file, `CAPTURE` one that is sound, `OUT` a file to
#: write.
GIVEN_TO: dict[str, tuple[tuple[str, ...], ...]] = {
    "ctx_": (("classify", "CAPTURE", "--context", "IN"), ("report", "--context", "IN", "-f", "json")),
    "gate_": (("check", "CAPTURE", "--config", "IN"), ("check", "CAPTURE", "--config", "IN", "-f", "json")),
    "mem_": (
        ("report", "--samples", "IN", "-f", "json"),
        ("report", "CAPTURE", "--samples", "IN", "-f", "json"),
        ("check", "CAPTURE", "--samples", "IN", "--max-memory", "50%", "-f", "json"),
    ),
    "pack_": (
        ("summary", "IN"),
        ("report", "IN", "-f", "json"),
        ("kernels", "IN"),
        ("export", "IN", "--to", "csv", "-o", "OUT"),
        ("compare", "IN", "CAPTURE", "-f", "json"),
    ),
    "saved_": (
        ("compare", "IN", "IN", "-f", "json"),
        ("compare", "IN", "CAPTURE", "-f", "md"),
        ("check", "IN", "--max-slowdown", "1.1", "--min-jain", "0.5", "--no-data-loss", "-f", "json"),
        ("interference", "CAPTURE", "--baseline", "IN", "-f", "json"),
    ),
    "smp_": (("report", "--samples", "IN", "-f", "json"), ("report", "--samples", "IN", "-f", "html")),
    "study_": (("study", "IN", "-o", "OUT", "--workers", "1"),),
}
CASES = (
    "ctx_mpslog.txt", "ctx_mpsps.txt", "ctx_spaces.txt", "gate_int400.toml", "gate_tinf.toml", "mem_inf.csv",
    "pack_bomb_1e9.pack", "pack_bomb_40M.pack", "pack_no_capture.pack", "pack_panic.pack", "pack_rows_neg.pack",
    "pack_tables_list.pack", "saved_1042.json", "saved_1145.json", "saved_1379.json", "saved_1496.json",
    "saved_2133.json", "saved_573.json", "saved_659.json", "saved_850.json", "saved_909.json", "saved_bytes.json",
    "smp_284.txt", "study_bigrep.toml", "study_nest.toml", "study_thr.toml",
)  # fmt: skip
MOST_BYTES = 6 << 30
MOST_SECONDS = 60
#: An address space that the bombs do not fit, and seconds of the processor that no bad pattern keeps to.
LIMITED = (
    f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({MOST_BYTES},) * 2); "
    f"resource.setrlimit(resource.RLIMIT_CPU, ({MOST_SECONDS},) * 2)"
)


def answer(words: list[str], folder: Path, *, bomb: bool) -> subprocess.CompletedProcess[str]:
    """What a command says; of a file that asks for all memory there is, a process of its own with limits."""
    return run_apart(*words, cwd=folder, before=LIMITED) if bomb else run(*words, cwd=folder)


@pytest.mark.parametrize("name", CASES)
def test_what_broke_a_promise_ends_in_an_answer_or_in_one_line(name: str, tmp_path: Path) -> None:
    path = HOSTILE / name
    if not path.exists():
        pytest.skip(f"the hostile inputs are not at hand ({HOSTILE}); set PYANALYZE_HOSTILE")
    kind = name[: name.index("_") + 1]
    for number, words in enumerate(GIVEN_TO[kind]):
        places = {"IN": path, "CAPTURE": FIXTURES / "mps.sqlite", "OUT": tmp_path / f"out-{number}"}
        line = [str(places.get(word, word)) for word in words]
        began = time.process_time()
        done = answer(line, tmp_path, bomb=name.startswith("pack_bomb"))
        assert time.process_time() - began < MOST_SECONDS
        assert done.returncode in (0, 1, 2, 3, 4), (words, done.stderr[-500:])
        assert "Traceback" not in done.stderr
        assert "panicked" not in done.stderr
        assert len(done.stderr) < 4000
        assert commanding(done.stdout + done.stderr) == []
        if "json" in words and done.stdout:
            json.loads(done.stdout, parse_constant=lambda value: pytest.fail(f"{value} in JSON"))
        if done.returncode in (2, 3) and words[0] != "study":
            assert done.stdout == ""
            assert not (tmp_path / f"out-{number}").exists()


def test_every_case_is_listed() -> None:
    if not HOSTILE.is_dir():
        pytest.skip(f"the hostile inputs are not at hand ({HOSTILE}); set PYANALYZE_HOSTILE")
    assert {path.name for path in HOSTILE.iterdir() if path.suffix != ".md"} == set(CASES)


#: What kills a report of what HTML and Markdown are made of, and what a terminal or a CI service takes for a command.
README_NAMES = {
    "astral": "train_\U0001f680" + "a" * 60,
    "clipboard": "\x1b]52;c;eHg=\x07",
    "annotation": "x\n::error::y",
}


@pytest.mark.parametrize("name", README_NAMES)
def test_process_names_that_broke_reports_are_shown(fixtures: Path, tmp_path: Path, name: str) -> None:
    capture = hostile_capture(fixtures / "mps.sqlite", tmp_path / "capture.sqlite", README_NAMES[name])
    for words in (
        ("classify",),
        ("report", "-f", "html"),
        ("report", "-f", "md"),
        ("report", "-f", "txt"),
        ("summary",),
    ):
        done = run(words[0], capture, *words[1:])
        assert done.returncode == 0, done.stderr
        assert commanding(done.stdout + done.stderr) == []
        assert not any(line.startswith("::") for line in (done.stdout + done.stderr).splitlines())
