"""Names of foreign programs and files command no terminal, shell or spreadsheet, whatever shows them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sqlite3
import subprocess
import xml.etree.ElementTree as ET
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from command_line import run
from hostile_inputs import (
    ASTRAL,
    BIDI,
    ESCAPES,
    FORMATS,
    FORMULAS,
    LINES,
    MARKUP,
    NAMES,
    QUOTED,
    SHELL,
    commanding,
    file_name,
    hostile_capture,
)
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pyanalyze.analysis.advice.mps import Client, provisions, settings
from pyanalyze.text.shell import shell_line, shell_word
from pyanalyze.text.visible import printable

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

#: Few captures with everything in them: what a name begins with matters to spreadsheets alone.
TOGETHER = {
    "commands": f"a{ESCAPES}{LINES}{BIDI}",
    "marks": f"{ASTRAL[:30]}{MARKUP}{SHELL}{QUOTED}{FORMATS}",
    "wide": ASTRAL,
}

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("summary",),
    ("summary", "-f", "json"),
    *(
        (verb, "-f", form)
        for verb in ("info", "classify", "residency", "interference", "explain", "streams")
        for form in ("table", "json", "csv")
    ),
    *((verb, "-f", form) for verb in ("occupancy", "advise") for form in ("table", "json")),
    *(("kernels", "-f", form) for form in ("table", "json", "csv")),
    *(("kernels", "--gpu", "0", "-f", form) for form in ("table", "csv")),
    *(
        ("check", "--max-slowdown", "1", "--min-jain", "1", "--expect-mode", "mig", "-f", form)
        for form in ("table", "json")
    ),
    *(("report", "-f", form) for form in ("html", "md", "json", "txt")),
    *(("compare", "-f", form) for form in ("table", "json", "md", "html")),
)


@pytest.fixture(scope="module")
def hostile(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Captures of clients of MPS and of time-slicing under hostile names, in files with such names."""
    made = {}
    for kind, name in TOGETHER.items():
        source = fixtures / ("mps.sqlite" if kind == "commands" else "demo-time-slicing.sqlite")
        folder = tmp_path_factory.mktemp(kind)
        made[kind] = hostile_capture(source, folder / file_name(name, ".sqlite"), name)
    return made


def beside(folder: Path, name: str) -> list[str | Path]:
    """Samples, configuration, units of work and a solo recording, all of which name the same tenant."""
    apps = folder / "apps.csv"
    quoted = name.replace("\n", " ").replace("\0", "").replace('"', "'")
    apps.write_text(
        "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        f"2026/03/14 05:26:53.700, GPU-1, 1001, {quoted.replace(',', ';')}, 500 MiB\n",
        encoding="utf-8",
    )
    pod = folder / "pods.json"
    meta = {"name": name, "namespace": name}
    env = [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": name}, {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]
    spec = {
        "nodeName": name,
        "containers": [{"name": name, "env": env, "resources": {"limits": {"nvidia.com/gpu": name}}}],
    }
    pod.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}), encoding="utf-8")
    log = folder / "control.log"
    log.write_text(
        "[2026-03-14 05:26:53.000 Control  7] Starting control daemon\n"
        f"[2026-03-14 05:26:53.000 Control  7] Creating server context on device 0 ({quoted})\n",
        encoding="utf-8",
    )
    listing = folder / "list.txt"
    listing.write_text(f"GPU 0: {quoted} (UUID: GPU-00000000-0000-0000-0000-000000000001)\n", encoding="utf-8")
    return ["--samples", apps, "--context", pod, "--context", log, "--context", listing]


@pytest.fixture(scope="module")
def taken_beside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str | Path]]:
    """What else names the tenants of each of those captures."""
    return {kind: beside(tmp_path_factory.mktemp(f"beside-{kind}"), name) for kind, name in TOGETHER.items()}


@pytest.mark.parametrize("kind", TOGETHER)
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_shows_what_commands(
    hostile: dict[str, Path], taken_beside: dict[str, list[str | Path]], arguments: tuple[str, ...], kind: str
) -> None:
    capture = hostile[kind]
    more = [] if arguments[:2] == ("kernels", "-f") else taken_beside[kind]
    captures = [capture, capture] if arguments[0] == "compare" else [capture]
    done = run(arguments[0], *captures, *more, *arguments[1:])
    assert done.returncode in (0, 1, 4), done.stderr
    assert done.stdout.strip()
    assert commanding(done.stdout) == []
    assert commanding(done.stderr) == []
    assert not any(line.startswith("::") for line in (done.stdout + done.stderr).splitlines())
    if "json" in arguments:
        json.loads(done.stdout)
    if "html" in arguments:
        assert "<script>alert" not in done.stdout
        assert "<img src=x" not in done.stdout


@pytest.mark.usefixtures("kept_workers")
@pytest.mark.parametrize("kind", TOGETHER)
def test_no_file_holds_what_commands(hostile: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """What is written with -o, and the messages about it; names of outputs are names too."""
    capture, name = hostile[kind], TOGETHER[kind]
    folder = tmp_path / file_name(name, "")
    folder.mkdir()
    junit = folder / "junit.xml"
    key = folder / "key"
    done = [
        run("report", capture, "-o", folder / "report.html"),
        run("report", capture, "-o", folder / "report.md"),
        run("report", capture, "-o", folder / "report.txt"),
        run("check", capture, "--max-slowdown", "1", "--junit", junit),
        run("export", capture, "--to", "csv", "-o", folder / "csv"),
        run("export", capture, "--to", "nsys-stats", "-o", folder / "stats"),
        run("pack", capture, "-o", folder / "a.pack", "--key", key, "--names", folder / "names.csv"),
        run("info", folder / "a.pack"),
        run("fleet", capture, folder / "missing", "-o", folder / "fleet", "--workers", "1", "-q"),
    ]
    for one in done:
        assert one.returncode in (0, 1, 3, 4), one.stderr
        assert commanding(one.stdout + one.stderr) == []
    ET.parse(junit)
    texts = [path for path in folder.rglob("*") if path.suffix in TEXTS and ".pyanalyze" not in path.parts]
    assert len(texts) > 40
    for path in texts:
        text = path.read_bytes().decode("utf-8")
        assert commanding(text) == [], path.relative_to(folder)


TEXTS = (".html", ".md", ".txt", ".xml", ".csv", ".json", ".jsonl", ".prom", ".tex", ".cff")


@pytest.mark.parametrize("name", FORMULAS)
def test_no_table_holds_a_formula(fixtures: Path, tmp_path: Path, name: str) -> None:
    capture = hostile_capture(fixtures / "demo-time-slicing.sqlite", tmp_path / "capture.sqlite", name)
    written = [
        run(*words, capture, "-f", "csv").stdout
        for words in (("kernels",), ("info",), ("interference",), ("residency",))
    ]
    assert run("export", capture, "--to", "csv", "-o", tmp_path / "csv").returncode == 0
    assert run("export", capture, "--to", "nsys-stats", "-o", tmp_path / "stats").returncode == 0
    run("pack", capture, "-o", tmp_path / "a.pack", "--key", tmp_path / "key", "--names", tmp_path / "names.csv")
    written += [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.csv")]
    assert len(written) > 20
    cells = [cell for text in written for row in csv.reader(io.StringIO(text)) for cell in row]
    assert any(name[1:] in cell for cell in cells)
    assert [
        cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\uff1d")) and not number(cell)
    ] == []


def number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_formats_for_programs_hold_names_as_they_are(fixtures: Path, tmp_path: Path) -> None:
    """Typed formats quote nothing: a name that was changed there would not be found again."""
    for number, (kind, name) in enumerate(NAMES.items()):
        if kind == "escapes":
            name = name.replace("\0", "")
        capture = hostile_capture(fixtures / "exclusive.sqlite", tmp_path / f"{number}.sqlite", name)
        run("export", capture, "--to", "sqlite", "-o", tmp_path / f"{number}.db", "--tables", "processes")
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as db:
            assert {found for (found,) in db.execute("SELECT name FROM processes WHERE traced")} == {name}
        run("export", capture, "--to", "parquet", "-o", tmp_path / f"{number}.p", "--tables", "processes")
        frame = pl.read_parquet(tmp_path / f"{number}.p" / "processes.parquet")
        assert set(frame.filter("traced")["name"].cast(pl.String)) == {name}


@pytest.mark.parametrize("kind", NAMES)
def test_a_shell_takes_a_quoted_name_for_one_word(kind: str) -> None:
    name = NAMES[kind].replace("\0", "")
    word = shell_word(name)
    assert commanding(word) == []
    assert "\n" not in word
    bash = shutil.which("bash")
    assert bash is not None
    said = subprocess.run([bash, "-c", shell_line(["printf", "%s|", "a"]) + f" {word}"], capture_output=True)
    assert said.stdout == f"a|{name}|".encode()
    assert said.stderr == b""


def test_bytes_of_a_file_name_that_are_no_text_stay_what_they_are() -> None:
    name = b"run-\xff.sqlite".decode("utf-8", "surrogateescape")
    said = subprocess.run(["bash", "-c", f"printf %s {shell_word(name)}"], capture_output=True)
    assert said.stdout == b"run-\xff.sqlite"


def test_names_in_commands_of_advice_are_quoted() -> None:
    for kind, name in NAMES.items():
        if kind == "escapes":
            name = name.replace("\0", "")
        clients = [Client(0, name, 1.0, 108, 2**30), Client(1, "plain", 0.0, 2, None)]
        for provision in provisions(clients, 108, 8):
            named, plain = [line for line in settings(provision, clients) if line.startswith("export CUDA_MPS")]
            assert commanding(named) == []
            assert "\n" not in named
            # A shell sets the variable, and takes nothing of the name for a command.
            said = subprocess.run(
                ["bash", "-c", f"PATH=\n{named}\nprintf %s $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], capture_output=True
            )
            assert (said.stdout.decode(), said.stderr) == (str(provision.percentages[0]), b"")
            assert plain.endswith("# in the shell that starts plain, before it starts")


def test_wrong_usage_quotes_what_was_given_without_its_commands(tmp_path: Path) -> None:
    for name in (ESCAPES.replace("\0", ""), LINES, BIDI):
        for arguments in (
            (f"--{name}",),
            (f"{name}.sqlite",),
            ("report", "x.sqlite", "-f", name),
            ("info", "x.sqlite", "--tenant", name),
            ("report", "x.sqlite", "-o", f"{name}.csv"),
            ("check", "x.sqlite", "--max-slowdown", name),
            ("info", "x.sqlite", "--start", name),
            ("info", "x.sqlite", "--memory", name),
            ("advise", "x.sqlite", "--require", name),
            ("export", "x.sqlite", "--to", "csv", "-o", tmp_path / "x", "--tables", name),
        ):
            done = run(*arguments)
            assert done.returncode in (2, 3), arguments
            assert commanding(done.stdout + done.stderr) == []
            assert not any(line.startswith("::") for line in done.stderr.splitlines())


def test_captures_that_are_left_out_are_named_without_their_commands(fixtures: Path, tmp_path: Path) -> None:
    for name in (ESCAPES.replace("\0", ""), LINES, BIDI):
        broken = tmp_path / file_name(name, ".sqlite")
        broken.write_bytes(b"no capture")
        for verb in ("info", "classify", "report"):
            done = run(verb, fixtures / "mps.sqlite", broken, "--keep-going", "-f", "json")
            assert done.returncode == 0, done.stderr
            assert "left out" in done.stderr
            assert commanding(done.stdout + done.stderr) == []
            assert not any(line.startswith("::") for line in done.stderr.splitlines())


def test_the_last_look_at_text_that_leaves() -> None:
    text = "".join(NAMES.values())
    assert commanding(printable(text)) == []
    assert printable("a\n\tb\u00fc") == "a\n\tb\u00fc"


#: What no output may hold: all below a blank but newline and tab, and what turns the direction of text.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_COMMANDS_OF_NAMES = st.sampled_from(COMMANDS)
#: Names of every plane, most of them of what should not leave.
_NAMES = st.text(
    st.one_of(
        st.sampled_from("\x00\x01\x07\x08\r\x0b\x0c\x1b\x1f\x7f\x9b\u061c\u200e\u200f\u202a\u202e\u2066\u2069\n\t"),
        st.characters(codec="utf-8"),
    ),
    min_size=1,
    max_size=24,
)


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(name=_NAMES, arguments=_COMMANDS_OF_NAMES, alone=st.booleans())
def test_whatever_a_name_holds_no_output_has_a_control_character(
    fixtures: Path, tmp_path_factory: pytest.TempPathFactory, name: str, arguments: tuple[str, ...], alone: bool
) -> None:
    folder = tmp_path_factory.mktemp("named")
    more = [] if arguments[:2] == ("kernels", "-f") else beside(folder, name)
    captures: list[str | Path] = []
    # Samples and configuration by themselves go another way through the report.
    if not alone or arguments[0] in ("kernels", "compare", "check", "occupancy"):
        capture = hostile_capture(fixtures / "mps.sqlite", folder / file_name(f"{name}_", ".sqlite"), name)
        captures = [capture, capture] if arguments[0] == "compare" else [capture]
    done = run(arguments[0], *captures, *more, *arguments[1:])
    assert done.returncode in (0, 1, 3, 4), done.stderr
    assert "Traceback" not in done.stderr
    for text in (done.stdout, done.stderr):
        assert [repr(text[max(found.start() - 30, 0) : found.end() + 30]) for found in FORBIDDEN.finditer(text)] == []


#: What writes text into files: `IN` is a capture, `OUT` a folder that is there.
_WRITERS = (
    *(("report", "IN", "-o", f"OUT/report.{ending}") for ending in ("html", "md", "txt", "json")),
    ("check", "IN", "--max-slowdown", "1", "--junit", "OUT/junit.xml"),
    ("compare", "IN", "IN", "-f", "html", "-o", "OUT/compared.html"),
    ("export", "IN", "--to", "csv", "-o", "OUT/csv"),
    ("export", "IN", "--to", "nsys-stats", "-o", "OUT/stats"),
    ("pack", "IN", "-o", "OUT/a.pack", "--key", "OUT/key", "--names", "OUT/names.csv"),
    ("fleet", "IN", "-o", "OUT/fleet", "--workers", "1"),
)


@pytest.mark.usefixtures("kept_workers")
@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(name=_NAMES, words=st.sampled_from(_WRITERS))
def test_whatever_a_name_holds_no_file_has_a_control_character(
    fixtures: Path, tmp_path_factory: pytest.TempPathFactory, name: str, words: tuple[str, ...]
) -> None:
    folder = tmp_path_factory.mktemp("named")
    capture = hostile_capture(fixtures / "mps.sqlite", folder / file_name(f"{name}_", ".sqlite"), name)
    out = folder / "out"
    out.mkdir()
    done = run(*(str(capture) if word == "IN" else word.replace("OUT", str(out)) for word in words))
    assert done.returncode in (0, 1, 4), done.stderr
    texts = [path for path in out.rglob("*") if path.suffix in TEXTS and ".pyanalyze" not in path.parts]
    assert texts
    for text in (done.stdout, done.stderr, *(path.read_bytes().decode("utf-8") for path in texts)):
        assert [repr(text[max(found.start() - 30, 0) : found.end() + 30]) for found in FORBIDDEN.finditer(text)] == []
