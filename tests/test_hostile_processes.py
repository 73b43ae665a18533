"""Signals, closed streams, loops of links and one file named twice leave nothing half done and change no exit code."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from command_line import run, run_apart

import pyanalyze
from pyanalyze.fleet.plan import find
from pyanalyze.inputs.context import read_context
from pyanalyze.text.allowlist import has_shape

MAIN = "import sys; from pyanalyze.cli import main; main()"


#: Under nohup the tests themselves ignore SIGHUP, and a child inherits that.
AS_IN_A_TERMINAL = "import os, signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)"


def started(*words: str | Path, before: str = "", **options: object) -> subprocess.Popen[str]:
    """Start the command line with the signals of a terminal."""
    code = (
        f"import sys\n{AS_IN_A_TERMINAL}\n"
        f"{before}\nsys.argv = ['pyanalyze', *sys.argv[1:]]\nfrom pyanalyze.cli import main\nmain()"
    )
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    "words",
    [("--key", "a", "-o", "a"), ("--key", "k", "-o", "a", "--names", "a"), ("--key", "a", "-o", "b", "--names", "./a")],
)
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_pack_is_not_written_over_its_key(
    fixtures: Path, tmp_path: Path, words: tuple[str, ...], force: tuple[str, ...]
) -> None:
    done = run("pack", fixtures / "mps.sqlite", *words, *force, cwd=tmp_path)
    assert done.returncode == 2
    assert "one file" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_there_stays(fixtures: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("ab" * 32)
    link = tmp_path / "link"
    link.symlink_to(key)
    for output in (key, link):
        done = run("pack", fixtures / "mps.sqlite", "--key", key, "-o", output, "--force")
        assert done.returncode == 2
    assert key.read_text() == "ab" * 32


def test_two_answers_do_not_go_into_one_file(fixtures: Path, tmp_path: Path) -> None:
    for force in ((), ("--force",)):
        words = (
            "check",
            fixtures / "mps.sqlite",
            "--max-slowdown",
            "2",
            "--junit",
            "x.xml",
            "-o",
            "./x.xml",
            "-f",
            "json",
            *force,
        )
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert "one file" in done.stderr
    assert list(tmp_path.iterdir()) == []


#: Sends the signal in the middle: all is written, nothing has its name yet.
IN_A_FILE = "import pyanalyze.files as f; f._flush = lambda path: os.kill(os.getpid(), signal.{})"
IN_A_FOLDER = (
    "import pyanalyze.export.write as e\n"
    "class R(e.replacing_folder):\n"
    "    def _publish(self): os.kill(os.getpid(), signal.{})\n"
    "e.replacing_folder = R"
)
WRITES = {
    "report": (IN_A_FILE, ("report", "-o", "out.html")),
    "export sqlite": (IN_A_FILE, ("export", "--to", "sqlite", "-o", "out.db")),
    "export perfetto": (IN_A_FILE, ("export", "--to", "perfetto", "-o", "out.pftrace")),
    "export csv": (IN_A_FOLDER, ("export", "--to", "csv", "-o", "out")),
    "pack": (IN_A_FILE, ("pack", "-o", "out.pack", "--key", "key")),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_half_of_an_output(
    fixtures: Path, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    before, (verb, *words) = WRITES[name]
    before = f"{AS_IN_A_TERMINAL}\n{before.format(number.name)}"
    done = run_apart(verb, fixtures / "mps.sqlite", *words, before=before, cwd=tmp_path)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.strip() == "pyanalyze: stopped"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_time_leaves_no_half_of_an_output(
    fixtures: Path, tmp_path: Path, number: signal.Signals
) -> None:
    for after_s in (0.1, 0.4, 0.7, 1.0):
        process = started("report", fixtures / "exclusive.sqlite", "-o", "out.html", "--force", cwd=tmp_path)
        time.sleep(after_s)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        # Before there is a handler the system ends it, and nothing was begun.
        assert process.returncode in (0, 128 + number, -number), said
        assert [path.name for path in tmp_path.iterdir() if path.name != "out.html"] == []


def test_who_ignores_hanging_up_goes_on(fixtures: Path, tmp_path: Path) -> None:
    before = (
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        + IN_A_FILE.format("SIGHUP").replace("lambda path:", "lambda path, old=f._flush: (old(path),")
        + ")"
    )
    process = started("report", fixtures / "mps.sqlite", "-o", "out.txt", before=before, cwd=tmp_path)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert (tmp_path / "out.txt").read_text()


def test_workers_of_a_fleet_end_with_it(fixtures: Path, tmp_path: Path) -> None:
    process = started(
        "fleet", str(fixtures / "*.sqlite"), "-o", tmp_path / "out", "--workers", "2", "-q", start_new_session=True
    )
    time.sleep(2.5)
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode in (143, -15, 0)
    left = list((tmp_path / "out").rglob("*.part")) if (tmp_path / "out").exists() else []
    assert left == []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and session_lives(process.pid):
        time.sleep(0.2)
    assert not session_lives(process.pid)


def session_lives(session: int) -> bool:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            return True
    return False


def test_links_in_a_circle_are_entered_once(fixtures: Path, tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    capture = (fixtures / "mps.sqlite").read_bytes()
    for place in (inner / "x.sqlite", tmp_path / "y.sqlite", tmp_path / ".hidden" / "z.sqlite"):
        place.write_bytes(capture)
    for name in ("one", "two", "three"):
        (inner / name).symlink_to(tmp_path)
        (tmp_path / name).symlink_to(inner)
    began = time.monotonic()
    for pattern in (f"{tmp_path}/**/*.sqlite", f"{tmp_path}/**", f"{tmp_path}/**/**/*.sqlite"):
        found, without = find([pattern])
        assert without == []
        assert {path.resolve() for path in found} == {inner / "x.sqlite", tmp_path / "y.sqlite"}
        assert len(found) <= 12, "once by each way into the circle, and not by each way around"
    assert time.monotonic() - began < 60


def test_a_pattern_of_any_depth_means_what_it_meant(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = (fixtures / "mps.sqlite").read_bytes()
    (tmp_path / "a[1]" / "b").mkdir(parents=True)
    places = ["x.sqlite", "a[1]/x.sqlite", "a[1]/b/x.sqlite", "a[1]/b/y.txt"]
    for place in places:
        (tmp_path / place).write_bytes(capture)
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in find(["**/*.sqlite"])[0]] == sorted(places[:3])
    assert [str(path) for path in find(["**/b/*.sqlite"])[0]] == ["a[1]/b/x.sqlite"]
    assert [str(path) for path in find(["a*/**/x.sqlite"])[0]] == ["a[1]/b/x.sqlite", "a[1]/x.sqlite"]
    assert find(["**/*.absent"]) == ([], ["**/*.absent"])


#: What a shell can do to the standard streams of a command; the status is that of the command, not of its reader.
STREAMS = ("", ">&-", "2>&-", "<&-", ">&- 2>&-", ">&- 2>&- <&-", "| true", "2>&1 >/dev/null | true", "2>&1 | true")


@pytest.mark.parametrize(("code", "words"), [(4, ("check", "--max-memory", "1%")), (2, ("report", "-f", "nothing"))])
@pytest.mark.parametrize("streams", STREAMS)
def test_streams_that_are_closed_change_no_exit_code(
    fixtures: Path, code: int, words: tuple[str, ...], streams: str
) -> None:
    line = shlex.join([sys.executable, "-c", MAIN, words[0], str(fixtures / "mps.sqlite"), *words[1:]])
    script = f"{line} {streams}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_nothing_is_written_into_an_output_that_took_the_place_of_a_stream(fixtures: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.db"
    line = shlex.join(
        [sys.executable, "-c", MAIN, "export", str(fixtures / "mps.sqlite"), "--to", "sqlite", "-o", str(output)]
    )
    done = subprocess.run(["bash", "-c", f"{line} <&- >&- 2>&-"], capture_output=True)
    assert done.returncode == 0
    with closing(sqlite3.connect(output)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_full_disk_behind_a_stream_is_an_error(fixtures: Path) -> None:
    line = shlex.join([sys.executable, "-c", MAIN, "info", str(fixtures / "mps.sqlite")])
    done = subprocess.run(["bash", "-c", f"{line} > /dev/full"], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("pyanalyze: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("threads", ["0", "00", "-1", "x", "", " ", "1.5", "\u00b2", "9" * 30, "9" * 5000])
def test_a_number_of_threads_that_is_none_is_wrong_usage(fixtures: Path, threads: str) -> None:
    done = run_apart("summary", fixtures / "mps.sqlite", env={**os.environ, "POLARS_MAX_THREADS": threads})
    assert done.returncode == 2
    assert done.stderr.startswith("pyanalyze: POLARS_MAX_THREADS")
    assert done.stderr.count("\n") == 1


#: Values that such variables have; what else somebody keeps there is not shown. The reader of exports is tested with
#: the same ones in rust/core/src/read/nsys/metadata.rs.
SOUND = (
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
    ("CUDA_VISIBLE_DEVICES", "0, 1"),
    ("CUDA_VISIBLE_DEVICES", ""),
    ("NVIDIA_VISIBLE_DEVICES", "MIG-GPU-11111111-2222-3333-4444-555555555555/1/0"),
    ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    ("CUDA_DEVICE_MEMORY_LIMIT_0", "1024m"),
    ("CUDA_DEVICE_SM_LIMIT", "30"),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=512M"),
    ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/ein ordner"),
    ("CUDA_MODULE_LOADING", "LAZY"),
)
ODD = (
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "hunter2"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "inf"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "101"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1e1"),
    ("CUDA_VISIBLE_DEVICES", "0\x1b[2J"),
    ("CUDA_VISIBLE_DEVICES", "$(id)"),
    ("CUDA_DEVICE_MAX_CONNECTIONS", "99999999999"),
    ("CUDA_DEVICE_MEMORY_LIMIT_0", "much"),
    ("CUDA_DEVICE_SM_LIMIT", "-1"),
    ("CUDA_MPS_PIPE_DIRECTORY", "secret"),
    ("CUDA_MODULE_LOADING", "a;b"),
    ("NVSHARE_X", "a" * 300),
)


def test_settings_have_the_shape_of_their_variable() -> None:
    assert [pair for pair in SOUND if not has_shape(*pair)] == []
    assert [pair for pair in ODD if has_shape(*pair)] == []


@pytest.mark.parametrize(("name", "value"), [*SOUND, *ODD])
def test_settings_without_their_shape_are_read_from_nowhere(
    fixtures: Path, tmp_path: Path, name: str, value: str
) -> None:
    sound = (name, value) in SOUND
    node = tmp_path / "node.json"
    facts = {"schema": "pyanalyze.node/1", "processes": {"7": {"environment": {name: value}}}}
    node.write_text(json.dumps(facts), encoding="utf-8")
    assert (read_context(node)["value"].to_list() == [value]) == sound
    capture = tmp_path / "capture.sqlite"
    capture.write_bytes((fixtures / "mps.sqlite").read_bytes())
    with closing(sqlite3.connect(capture)) as db, db:
        db.execute("DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE'")
        db.execute("INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', ?)", (f'{name}="{value}"',))
    configured = pyanalyze.load(capture, reconstruct=False).configured
    found = [
        row["value"]
        for row in configured.iter_rows(named=True)
        if row["key"] == name and row["source"] == "environment"
    ]
    # The fixture sets some of them itself, elsewhere.
    assert (value in found) == sound
