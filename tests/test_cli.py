"""The command line as a person uses it, bad input included; in a process of its own where that matters."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from command_line import run
from exports import kernel, resident, write

from pyanalyze.cli import VERBS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

DEMO = "demo-time-slicing.sqlite"


#: Root reads every file unless it gives that power up.
POWERLESS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")


def run_apart(*arguments: str | Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    command = [*before, sys.executable, "-c", "from pyanalyze.cli import main; main()", *map(str, arguments)]
    env = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def test_the_first_screen_needs_no_verb(fixtures: Path) -> None:
    result = run_apart(fixtures / DEMO)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.rstrip("\n").split("\n")
    assert len(lines) <= 15
    assert all(len(line) <= 100 for line in lines)
    assert "time-slicing" in result.stdout
    assert result.stderr == "", "no progress when nobody watches"


def test_what_a_usage_error_refers_to_is_listed() -> None:
    result = run("--no-such-option")
    assert result.returncode == 2
    verb = result.stderr.split("Try '", 1)[1].split(" --help", 1)[0].split()[-1]
    listed = [line.split()[0] for line in run("--help").stdout.split("Analyse:\n")[1].splitlines() if line[2:3].strip()]
    assert verb in listed


def test_without_arguments_the_help_stands_on_lines_of_its_own() -> None:
    result = run()
    assert result.returncode == 2
    assert result.stderr == run("--help").stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [("completion", "bash, zsh, fish"), ("export", "parquet, arrow, csv, sqlite, perfetto, nsys-stats")],
)
def test_a_word_that_is_missing_is_asked_for_on_one_line(command: str, words: str) -> None:
    result = run(command)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(f". Choose from {words}")


#: Verbs that take captures and the shared options.
ANSWERS = (
    "summary",
    "info",
    "kernels",
    "classify",
    "residency",
    "occupancy",
    "interference",
    "advise",
    "explain",
    "report",
)


@pytest.mark.parametrize("verb", ANSWERS)
def test_every_verb_answers_on_every_kind_of_fixture(fixtures: Path, verb: str) -> None:
    found = sorted(fixtures.glob("*.sqlite"))
    assert len(found) == 8
    assert set(ANSWERS) <= set(VERBS)
    # Kernels and switches, switches alone, kernels alone; the first screen reads them all.
    few = [fixtures / f"{name}.sqlite" for name in ("demo-time-slicing", "node-switches-only", "hostile-names")]
    for capture in found if verb == "summary" else few:
        by = run_apart if capture.stem == "demo-time-slicing" else run
        result = by(verb, capture, *(("-f", "txt") if verb == "report" else ()))
        assert result.returncode == 0, f"{capture}: {result.stderr}"
        assert result.stdout.strip()


@pytest.mark.parametrize("verb", ["summary", "residency", "occupancy", "interference", "advise", "streams"])
def test_a_table_that_is_not_shown_is_not_referred_to(hardware: Path, verb: str) -> None:
    for capture in ("node-mps-A-B-beside-C", "mps-A-B-C.sqlite"):
        shown = " ".join(run(verb, hardware.parent / "h200" / capture).stdout.split())
        assert 'The table "Not available"' not in shown, capture


def test_what_is_not_available_is_said_with_the_command_that_shows_it(hardware: Path) -> None:
    """The report holds the table, so it refers to the table."""
    capture = hardware.parent / "h200" / "node-mps-A-B-beside-C"
    shown = {verb: " ".join(run(*verb.split(), capture).stdout.split()) for verb in ("summary", "report -f txt -o -")}
    said = "Kernels of kit (pid 708), kit (pid 709) and kit (pid 775) were not traced."
    assert said in shown["summary"]
    assert (
        "Missing rows of the export, kernels, the slowdown of 3 tenants and more; see `pyanalyze report`"
        in shown["summary"]
    )
    assert f'{said} The table "Not available" says how to capture it.' in shown["report -f txt -o -"]


def test_json_is_the_published_contract(fixtures: Path, tmp_path: Path) -> None:
    import jsonschema

    out = tmp_path / "report.json"
    assert run("report", fixtures / DEMO, "-f", "json", "-o", out).returncode == 0
    schema = json.loads(run("schema").stdout)
    jsonschema.validate(json.loads(out.read_text()), schema)


def running(*arguments: str | Path, watched: set[str]) -> str:
    """What a command says in a process of its own, and then which of the watched modules it imported."""
    code = (
        f"import sys; sys.argv = {['pyanalyze', *map(str, arguments)]!r}\n"
        "from pyanalyze.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', sorted({watched!r} & set(sys.modules)))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    said = running("--help", watched={"polars", "altair", "pydantic", "sqlite_utils", "jinja2", "rich"})
    assert "HEAVY []" in said
    for verb, (_, text) in VERBS.items():
        assert verb == "summary" or text in " ".join(said.split())


def test_info_imports_nothing_that_it_does_not_need(fixtures: Path) -> None:
    rooms = {"pyanalyze.analysis.sharing", "pyanalyze.analysis.interference"}
    rooms |= {"pyanalyze.inputs.context", "pyanalyze.results.report"}
    heavy = {"altair", "pydantic", "sqlite_utils", "jinja2", "rich"}
    assert "HEAVY []" in running("info", fixtures / DEMO, watched=heavy | rooms)


def test_a_summary_imports_nothing_that_it_does_not_need(fixtures: Path) -> None:
    rooms = {"pyanalyze.results.replicas", "pyanalyze.inputs.pack"}
    rooms |= {"pyanalyze.analysis.explain", "pyanalyze.report.blocks"}
    heavy = {"altair", "difflib", "sqlite_utils", "jinja2", "rich"}
    said = running("summary", fixtures / DEMO, watched=heavy | rooms)
    assert "SYNTHETIC CAPTURE" in said
    assert "HEAVY []" in said


def test_plugins_that_are_installed_for_other_programs_are_not_loaded(fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('LOADED')\nplugin = None\n")
    (tmp_path / "loud-1.0.dist-info").mkdir()
    (tmp_path / "loud-1.0.dist-info" / "entry_points.txt").write_text("[pydantic]\nloud = loud:plugin\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); from pyanalyze.cli import main; main()"
    program = [sys.executable, "-c", code, "summary", str(fixtures / DEMO)]
    result = subprocess.run(program, capture_output=True, text=True)
    assert "SYNTHETIC CAPTURE" in result.stdout
    assert "LOADED" not in result.stdout


@pytest.mark.parametrize("format_", ["html", "md", "json", "txt"])
def test_a_report_is_written_whole_and_never_replaces_silently(fixtures: Path, tmp_path: Path, format_: str) -> None:
    out = tmp_path / f"report.{format_}"
    out.write_text("mine")
    refused = run("report", fixtures / DEMO, "-f", format_, "-o", out)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert out.read_text() == "mine"
    assert run("report", fixtures / DEMO, "-f", format_, "-o", out, "--force").returncode == 0
    assert len(out.read_text()) > 1000
    beside = {path.name for path in tmp_path.iterdir()} - {out.name}
    # Markdown cannot hold pictures: they stand beside it, under its name.
    assert all(name.startswith("report-") and name.endswith(".png") for name in beside)
    assert bool(beside) is (format_ == "md")


@pytest.fixture(scope="module", params=["", "x"], ids=["even", "odd"])
def emoji(request: pytest.FixtureRequest, fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A capture with a process that is named with emoji, and that name.

    Each emoji is a surrogate pair to the chart engine: with an odd or even start, one of the two cuts one in half.
    """
    # Longer than the labels of charts, shorter than what a report shortens.
    name = request.param + "\U0001f680" * 24
    capture = tmp_path_factory.mktemp("emoji") / "emoji.sqlite"
    shutil.copy(fixtures / DEMO, capture)
    with sqlite3.connect(capture) as db:
        assert db.execute("UPDATE PROCESSES SET name = ? WHERE name = 'app_a'", (name,)).rowcount == 1
    db.close()
    return capture, name


@pytest.mark.parametrize("format_", ["html", "md", "json", "txt"])
def test_a_process_named_with_emoji_is_reported(emoji: tuple[Path, str], tmp_path: Path, format_: str) -> None:
    capture, name = emoji
    out = tmp_path / f"report.{format_}"
    done = run("report", capture, "-f", format_, "-o", out)
    assert done.returncode == 0, done.stderr
    text = out.read_text(encoding="utf-8")
    assert name in (text if format_ != "json" else json.dumps(json.loads(text), ensure_ascii=False))
    pictures = sorted(tmp_path.glob("report-*.png"))
    assert bool(pictures) is (format_ == "md")
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert text.count("<svg") > 1 or format_ != "html", "static pictures, drawn by the same engine"


def damaged(kind: str, folder: Path, demo: Path) -> Path:
    path = folder / f"{kind}.sqlite"
    if kind == "text":
        path.write_text("this is no database, it only looks like a file name that could be one")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(demo.read_bytes()[: demo.stat().st_size // 2])
    elif kind == "other-database":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE wine (name TEXT)")
        db.close()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path = folder / "folder"
        path.mkdir()
    elif kind == "zeros-inside":
        data = bytearray(demo.read_bytes())
        data[8192 : len(data) // 2] = bytes(len(data) // 2 - 8192)
        path.write_bytes(data)
    elif kind == "missing":
        pass
    elif kind == "unreadable":
        shutil.copy(demo, path)
        path.chmod(0)
    return path


def test_a_folder_of_folders_says_how_to_read_them(fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "one run").mkdir()
    shutil.copy(fixtures / "demo-time-slicing.sqlite", tmp_path / "one run")
    said = run("summary", str(tmp_path))
    assert said.returncode == 3
    assert f"pyanalyze fleet '{tmp_path}/**/*.sqlite' -o FOLDER" in said.stderr


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("text", "not a SQLite file"),
        ("empty", "not a SQLite file"),
        ("truncated", "damaged"),
        ("other-database", "not an nsys export"),
        ("pipe", "not a regular file"),
        ("folder", "has no capture"),
        ("zeros-inside", "damaged"),
        ("missing", "No such file"),
        ("unreadable", "Permission denied"),
    ],
)
@pytest.mark.parametrize("verb", ["summary", "report"])
def test_bad_input_is_one_line_and_exit_3(fixtures: Path, tmp_path: Path, kind: str, says: str, verb: str) -> None:
    before = POWERLESS if kind == "unreadable" and os.geteuid() == 0 else ()
    if before and shutil.which(before[0]) is None:
        pytest.skip("root may read every file, and there is no setpriv to give that up")
    path = damaged(kind, tmp_path, fixtures / DEMO)
    out = tmp_path / "out.txt"
    arguments = ("report", path, "-f", "txt", "-o", out) if verb == "report" else (path,)
    result = run_apart(*arguments, before=before) if before else run(*arguments)
    assert result.returncode == 3, result.stderr
    assert result.stdout == ""
    assert says in result.stderr
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1, "what, where, what to do in one line"
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_wrong_usage_is_exit_2(fixtures: Path) -> None:
    for arguments in (("report",), (fixtures / DEMO, "-f", "nonsense"), ("--tenant", "x", fixtures / DEMO)):
        result = run(*arguments)
        assert result.returncode == 2, arguments
        assert "Traceback" not in result.stderr


def test_the_ending_of_the_output_says_its_format(fixtures: Path, tmp_path: Path) -> None:
    begins = {"r.html": "<!doctype html>", "r.htm": "<!doctype html>", "r.MD": "# ", "r.json": "{", "r.txt": ""}
    for name, begin in begins.items():
        assert run("report", fixtures / DEMO, "-o", tmp_path / name, "--force").returncode == 0
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.lower().startswith(begin), (name, text[:80])
    assert "<" not in (tmp_path / "r.txt").read_text(encoding="utf-8")[:200]
    # What is said by name wins.
    named = (("-f", "json", "-o", "named.txt"), ("-f", "table", "-o", "plain.out"))
    for arguments in (*named, ("-o", "table.json"), ("-o", "rows.csv")):
        assert run("classify", fixtures / DEMO, *arguments, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "named.txt").read_text())
    assert json.loads((tmp_path / "table.json").read_text())
    header, *rows = csv.reader((tmp_path / "rows.csv").read_text().splitlines())
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    table = run("classify", fixtures / DEMO, "-f", "table").stdout
    assert (tmp_path / "plain.out").read_text() == table
    refused = run("classify", fixtures / DEMO, "-o", tmp_path / "x.html")
    assert refused.returncode == 2
    assert "x.html" in refused.stderr
    assert "-f" in refused.stderr
    assert not (tmp_path / "x.html").exists()


def test_keep_going_reads_the_others(fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / DEMO, tmp_path / "good.sqlite")
    (tmp_path / "bad.sqlite").write_text("no")
    assert run(tmp_path).returncode == 3
    result = run(tmp_path, "--keep-going")
    assert result.returncode == 0
    assert "bad.sqlite" in result.stderr


def test_a_capture_in_a_read_only_folder_is_left_alone(fixtures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "read only # 100% ?x=1"
    folder.mkdir()
    shutil.copy(fixtures / DEMO, folder / DEMO)
    before = (folder / DEMO).read_bytes()
    folder.chmod(0o555)
    try:
        result = run(folder / DEMO)
    finally:
        folder.chmod(0o755)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in folder.iterdir()] == [DEMO]
    assert (folder / DEMO).read_bytes() == before


def test_secrets_never_come_out(fixtures: Path, tmp_path: Path) -> None:
    """The fixture's environment holds a secret in both places where nsys keeps it."""
    with sqlite3.connect(f"file:{fixtures / DEMO}?immutable=1", uri=True) as db:
        rows = db.execute("SELECT count(*) FROM META_DATA_CAPTURE WHERE value LIKE '%do-not-show-me%'").fetchone()
    assert rows[0] >= 1
    for arguments in (
        ("info", fixtures / DEMO, "-f", "json"),
        ("classify", fixtures / DEMO, "-f", "json"),
        *(("report", fixtures / DEMO, "-f", f) for f in ("html", "md", "json", "txt")),
    ):
        result = run(*arguments)
        assert result.returncode == 0
        assert "do-not-show-me" not in result.stdout + result.stderr


def test_stopping_leaves_nothing_behind(fixtures: Path, tmp_path: Path) -> None:
    import signal

    out = tmp_path / "report.html"
    # Before our code runs, Ctrl-C is the interpreter's to answer.
    code = "from pyanalyze.cli import main; print('ready', flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "report", str(fixtures / DEMO), "-o", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert "Traceback" not in error
    assert process.returncode in (0, 130)
    assert [p.name for p in tmp_path.iterdir()] == (["report.html"] if process.returncode == 0 else [])


def test_info_says_which_tables_sqlite_had_to_step_through(fixtures: Path, tmp_path: Path) -> None:
    assert "read by page scan" in run("info", fixtures / DEMO).stdout
    changed = tmp_path / "changed.sqlite"
    shutil.copyfile(fixtures / DEMO, changed)
    with sqlite3.connect(changed) as db:
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN note TEXT DEFAULT 'none'")
    db.close()
    said = run("info", changed).stdout
    assert "read row by row through SQLite: 1 table, see below" in said
    assert "read_by_sqlite (1): it has columns with a default (CUPTI_ACTIVITY_KIND_KERNEL)" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "a.sqlite", "-o", "a.sqlite"),
        ("report", ".", "-o", "a.sqlite"),
        ("report", "b.sqlite", "--baseline", "a.sqlite", "-o", "link.sqlite"),
        ("interference", "b.sqlite", "--baseline", "who=a.sqlite", "-o", "a.sqlite"),
        ("export", "a.sqlite", "--to", "sqlite", "-o", "a.sqlite"),
        ("pack", "a.sqlite", "--key", "key", "-o", "a.sqlite"),
        ("check", "a.sqlite", "--expect-mode", "mps", "--junit", "a.sqlite"),
        ("compare", "b.sqlite", "a.sqlite", "-o", "a.sqlite"),
    ],
)
def test_a_capture_is_never_written_over(fixtures: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for name in ("a", "b"):
        shutil.copy(fixtures / DEMO, tmp_path / f"{name}.sqlite")
    (tmp_path / "link.sqlite").symlink_to("a.sqlite")
    result = run(*arguments, "--force", cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert "is an input; writing there would destroy it" in result.stderr
    assert result.stderr.count("\n") == 1
    assert (tmp_path / "a.sqlite").read_bytes() == (fixtures / DEMO).read_bytes()


def test_what_is_named_like_an_option_may_be_replaced(fixtures: Path, tmp_path: Path) -> None:
    for _ in range(2):
        result = run("report", fixtures / DEMO, "-f", "json", "-o", "json", "--force", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "json").read_text())["devices"]


def test_a_missing_file_is_no_misspelt_verb(fixtures: Path, tmp_path: Path) -> None:
    result = run("fleet", fixtures / DEMO, "-o", tmp_path / "out", "--context", "nosuch", cwd=tmp_path)
    assert result.returncode == 3
    assert "nosuch: No such file or directory; check the path" in result.stderr
    assert "verb" not in result.stderr
    for word in ("nosuch", "no-such"):
        assert "neither a file nor a command" in run(word, cwd=tmp_path).stderr


@pytest.mark.parametrize("verb", ["streams", "residency", "occupancy", "interference", "classify"])
def test_a_table_without_rows_has_its_columns(fixtures: Path, tmp_path: Path, verb: str) -> None:
    """As those of a capture that has rows; an export of a GPU on which nothing ran has none."""
    full = run(verb, fixtures / ("streams.sqlite" if verb == "streams" else DEMO), "-f", "csv").stdout.splitlines()
    empty = run(verb, write(tmp_path / "a.sqlite", gpus=()), "-f", "csv").stdout.splitlines()
    assert len(full) > 1
    assert empty == full[:1]


def test_the_processes_that_may_be_named_are_listed(tmp_path: Path) -> None:
    switches = [*resident(41, 1, 0, 1000), *resident(42, 2, 2000, 3000)]
    path = write(
        tmp_path / "a.sqlite", switches=switches, kernels=[kernel(42, 2100, 2900)], processes={41: "a", 42: "b"}
    )
    done = run("summary", "--tenant", "web=999", path)
    assert done.returncode == 2
    assert done.stderr == "pyanalyze: --tenant web=999: no tenant has that pid; there are b 42 and a 41\n"
