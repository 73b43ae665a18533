"""What if the disk is full, the file changes under us, somebody presses Ctrl-C? Inputs stay as they are, outputs are
whole or absent, and one line says what happened."""

from __future__ import annotations

import bz2
import gc
import gzip
import hashlib
import json
import lzma
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner
from command_line import run_apart

import pyanalyze
from pyanalyze.cli import Asked, _interrupts, cli, main
from pyanalyze.errors import CaptureUnreadable, NotACapture, PyanalyzeError, UsageError
from pyanalyze.inputs.saved_report import read_saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

DEMO = "demo-time-slicing.sqlite"
#: Everything that writes, by the name of what it writes.
WRITERS: dict[str, tuple[str, ...]] = {
    "report.html": ("report", "CAPTURE", "-o", "OUT"),
    "parquet": ("export", "CAPTURE", "--to", "parquet", "-o", "OUT"),
    "tables.sqlite": ("export", "CAPTURE", "--to", "sqlite", "-o", "OUT"),
    "trace.pftrace": ("export", "CAPTURE", "--to", "perfetto", "-o", "OUT"),
    "run.pack": ("pack", "CAPTURE", "--key", "OUT.key", "-o", "OUT"),
    "fleet": ("fleet", "CAPTURE", "--workers", "1", "-q", "-o", "OUT"),
}


@pytest.fixture(autouse=True)
def process_that_draws() -> None:
    """An interrupt meets a page whose pictures are drawn beside, as for a user."""


@pytest.fixture
def capture(fixtures: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the demo capture in a folder of its own, which nothing may change."""
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / DEMO
    shutil.copyfile(fixtures / DEMO, path)
    before = _digest(path)
    yield path
    assert _digest(path) == before, "the capture was changed"
    assert [p.name for p in folder.iterdir()] == [DEMO], "something was left beside the capture"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() + str(path.stat().st_mtime_ns)


def _words(name: str, capture: Path, out: Path) -> list[str]:
    return [word.replace("CAPTURE", str(capture)).replace("OUT", str(out / name)) for word in WRITERS[name]]


def _content(folder: Path) -> dict[str, int]:
    """Every file below, by size; leftovers under temporary names included."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".key"]
    return {str(p.relative_to(folder)): p.stat().st_size for p in files}


# -- the disk ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_fills_up_leaves_nothing(name: str, capture: Path, tmp_path: Path) -> None:
    """A file may have 2 KiB; whatever is larger fails half-way, as on a full disk."""
    out = tmp_path / "out"
    out.mkdir()

    # Without the signal, a write beyond the limit fails as one to a full disk does.
    little = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))"
    )
    done = run_apart(*_words(name, capture, out), before=little)
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("pyanalyze: "), done.stderr
    assert str(out) in said, done.stderr
    left = _content(out)
    # A fleet keeps what was whole before: its cache and files are each written whole.
    assert all(size <= 2048 for size in left.values())
    assert not [path for path in left if path.endswith(".part")], left
    assert name == "fleet" or left == {}


@pytest.mark.parametrize("name", ["report.html", "parquet", "tables.sqlite"])
def test_a_place_that_may_not_be_written_is_named(name: str, capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o555)
    powerless = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and setpriv is not there to give that power up")
    before = powerless if os.geteuid() == 0 else ()
    command = [*before, sys.executable, "-c", "from pyanalyze.cli import main; main()", *_words(name, capture, out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert str(out) in done.stderr
    assert "ermission" in done.stderr
    assert _content(out) == {}


# -- the capture ------------------------------------------------------------------------------------------------------


def _truncate(path: Path, _: Path) -> None:
    os.truncate(path, 60_000)


def _empty(path: Path, _: Path) -> None:
    os.truncate(path, 0)


def _overwrite(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _replace(path: Path, other: Path) -> None:
    swap = path.with_suffix(".swap")
    shutil.copyfile(other, swap)
    os.replace(swap, path)


def _append(path: Path, _: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"\0" * 4096)


def _remove(path: Path, _: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [_truncate, _empty, _overwrite, _replace, _append, _remove])
@pytest.mark.parametrize("after", [1, 4, 12])
def test_a_capture_that_changes_while_it_is_read(
    change: Callable[[Path, Path], None], after: int, fixtures: Path, tmp_path: Path
) -> None:
    """Either what stood in the file when it was opened, whole, or an error that names it: never a mixture."""
    path = tmp_path / DEMO
    shutil.copyfile(fixtures / DEMO, path)
    whole = pyanalyze.load(fixtures / DEMO).kernels
    reports = 0

    def progress(*_: object) -> None:
        nonlocal reports
        reports += 1
        if reports == after:
            change(path, fixtures / "mps.sqlite")

    failure = ""
    try:
        session = pyanalyze.load(path, progress=progress)
    except (CaptureUnreadable, FileNotFoundError) as error:
        failure = str(error)
    if failure:
        assert DEMO in failure
        assert "\n" not in failure
    else:
        assert session.kernels.equals(whole)
    assert reports >= after


def test_a_read_that_fails_half_way_is_one_line(capture: Path, tmp_path: Path) -> None:
    """The device answers with an I/O error: pages beyond the first few cannot be read."""
    # A pipe is the file that fails at every seek; a directory the one that opens and cannot be read.
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: _feed(pipe), daemon=True)
    writer.start()
    for path in (pipe, Path("/proc/self/mem"), Path("/dev/null")):
        done = run_apart("info", str(path))
        assert done.returncode == 3, (path, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def _feed(pipe: Path) -> None:
    # The reader may close it at any moment.
    with suppress(OSError), pipe.open("wb") as stream:
        stream.write(b"SQLite format 3\0" + b"\0" * 4096)


# -- signals ----------------------------------------------------------------------------------------------------------


@contextmanager
def _alarm(action: Callable[..., Any], first_s: float, every_s: float = 0.0) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, action)
    signal.setitimer(signal.ITIMER_REAL, first_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_interrupted_system_calls_change_nothing(capture: Path, tmp_path: Path) -> None:
    """A signal every half millisecond, whose handler returns: reads and writes are taken up again."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    quiet = pyanalyze.load(capture)
    with _alarm(count, 0.0005, 0.0005):
        session = pyanalyze.load(capture)
        cli.main(
            ["export", str(capture), "--to", "sqlite", "-q", "-o", str(tmp_path / "a.sqlite")], standalone_mode=False
        )
    assert calls > 20
    for table in ("kernels", "switch_events", "residency", "kernel_attribution", "facts"):
        assert session.frame(table).equals(quiet.frame(table)), table
    cli.main(["export", str(capture), "--to", "sqlite", "-q", "-o", str(tmp_path / "b.sqlite")], standalone_mode=False)
    assert (tmp_path / "a.sqlite").stat().st_size == (tmp_path / "b.sqlite").stat().st_size


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As in a terminal: other libraries in this process may have their own answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    # What an interrupt left open in a cycle is to be closed, and said, here and not in a later test.
    gc.collect()


@pytest.mark.parametrize("name", ["report.html", "parquet", "run.pack"])
@pytest.mark.usefixtures("ctrl_c")
# A file that was just opened when the interrupt came is closed by the interpreter, which says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_time(name: str, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10 moments from the first call to the last: nothing, or the whole output; 0 or 130, never a traceback."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        # An alarm that comes when the verb has ended would stop the test run itself.
        pressed = signal.getsignal(signal.SIGINT)
        if callable(pressed) and pressed is not signal.default_int_handler:
            pressed(number, frame)

    def run(out: Path) -> tuple[int, set[str]]:
        out.mkdir()
        monkeypatch.setattr(sys, "argv", ["pyanalyze", *_words(name, capture, out), "-q"])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(str(ended.value.code)), set(_content(out))

    assert run(tmp_path / "whole")[0] == 0
    lasts, whole = math.inf, set()
    numbers = random.Random(name)
    codes: list[int] = []
    # The first, without an alarm, is what a run takes once everything is imported; a run on a busy machine may take twice
    # that, so who comes too late is told by the shortest run.
    for attempt in range(41):
        began = time.monotonic()
        with _alarm(interrupt, 0.002 + numbers.random() * lasts) if attempt else nullcontext():
            code, left = run(tmp_path / f"out{attempt}")
        if code == 0:
            lasts = min(lasts, time.monotonic() - began)
        if not attempt:
            whole = left
            continue
        codes.append(code)
        assert left in (whole, set()), (attempt, left)
        if attempt >= 10 and codes.count(130) >= 3:
            break
    assert set(codes) <= {0, 130}
    assert codes.count(130) >= 3


def test_ctrl_c_waits_until_polars_has_returned(capfd: pytest.CaptureFixture[str]) -> None:
    """An interrupt raised in what polars calls makes its Rust panic, with a stack trace on the error output."""
    stopped_in = []

    def called(value: int) -> int:
        signal.raise_signal(signal.SIGINT)
        stopped_in.append(value)
        return value

    with pytest.raises(KeyboardInterrupt), _interrupts():
        pl.Series([7]).map_elements(called, return_dtype=pl.Int64)
        time.sleep(30)
    assert stopped_in == [7]
    assert capfd.readouterr().err == ""
    # Nothing comes later, from the thread that waited, to what follows.
    with _interrupts():
        pl.Series([8]).map_elements(called, return_dtype=pl.Int64)
    time.sleep(0.02)
    assert stopped_in == [7, 8]


def test_ctrl_c_of_the_program_itself(capture: Path, tmp_path: Path) -> None:
    """The signal as a terminal sends it, to the whole group, with worker processes beside."""
    numbers = random.Random(5)
    stopped = 0
    for attempt in range(6):
        out = tmp_path / f"out{attempt}"
        out.mkdir()
        name = ("fleet", "report.html")[attempt % 2]
        code = "from pyanalyze.cli import main; print('ready', flush=True); main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *_words(name, capture, out)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            process.wait(numbers.random() * 1.2)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert "Traceback" not in error
        assert process.returncode in (0, 130), error
        stopped += process.returncode == 130
        left = _content(out)
        assert not [path for path in left if path.endswith(".part")]
        assert name == "fleet" or set(left) in ({name}, set())
    assert stopped >= 1


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of a process may hold anything but the last bracket.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("after_s", [0.3])
def test_a_worker_that_is_killed_costs_no_answer(after_s: float, fixtures: Path, tmp_path: Path) -> None:
    """As the kernel kills when memory runs out: the others go on, what it did is done again or named."""
    captures = [tmp_path / f"{name}.sqlite" for name in ("demo-time-slicing", "mps", "streams")]
    for path in captures:
        shutil.copyfile(fixtures / path.name, path)
    before = [_digest(path) for path in captures]
    command = [sys.executable, "-c", "from pyanalyze.cli import main; main()", "fleet", *map(str, captures)]
    process = subprocess.Popen(
        [*command, "-q", "--workers", "2", "-o", str(tmp_path / "out")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    killed = 0
    ends = time.monotonic() + 60
    while not killed and process.poll() is None and time.monotonic() < ends:
        if len(workers := _children(process.pid)) >= 2:
            time.sleep(after_s)
            with suppress(ProcessLookupError):
                os.kill(max(workers), signal.SIGKILL)
                killed += 1
        time.sleep(0.01)
    output, error = process.communicate(timeout=120)
    assert killed == 1
    assert "Traceback" not in error
    assert process.returncode in (0, 3), (output, error)
    if process.returncode == 3:
        assert any(path.name in output + error for path in captures)
    left = _content(tmp_path / "out")
    assert "fleet.json" in left
    assert not [path for path in left if path.endswith(".part")]
    assert [_digest(path) for path in captures] == before


def test_errors_are_of_our_kind(fixtures: Path, tmp_path: Path) -> None:
    """A file cut anywhere is an answer or an error that says which file; nothing else comes out of `load`."""
    data = (fixtures / DEMO).read_bytes()
    path = tmp_path / "cut.sqlite"
    numbers = random.Random(1)
    for _ in range(40):
        path.write_bytes(data[: numbers.randrange(len(data))])
        with pytest.raises(PyanalyzeError, match=r"cut\.sqlite"):
            pyanalyze.load(path)


def _fail(error: BaseException) -> Callable[..., str]:
    def failing(*_: object) -> str:
        raise error

    return failing


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("division\nby \x1b[2J zero"), pl.exceptions.PanicException("a bug")]
)
@pytest.mark.parametrize(
    ("words", "debug"),
    [
        (("info", "CAPTURE"), False),
        (("info", "CAPTURE", "--debug"), True),
        (("--debug", "info", "CAPTURE"), True),
    ],
    ids=["plain", "debug-last", "debug-first"],
)
def test_an_internal_error_is_one_line_and_exit_70(
    capture: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    error: BaseException,
    *,
    debug: bool,
) -> None:
    """A traceback ends Python with 1, which says that a gate failed; a panic of native code is no Exception."""
    monkeypatch.setattr("pyanalyze.cli.info.describe", _fail(error))
    monkeypatch.setattr(sys, "argv", ["pyanalyze", *(word.replace("CAPTURE", str(capture)) for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    printed = capsys.readouterr()
    assert printed.out == ""
    *above, line = printed.err.splitlines()
    assert line.startswith("pyanalyze: internal error: ")
    assert type(error).__name__ in line
    assert str(error).split("\n")[0] in line
    assert "\x1b" not in printed.err
    assert "--debug" in line or debug
    assert any(said.startswith("Traceback") for said in above) is debug
    assert any("in failing" in said for said in above) is debug
    assert debug or not above


def test_debug_changes_no_answer(capture: Path, tmp_path: Path) -> None:
    plain = run_apart(str(capture))
    assert plain.returncode == 0
    for words in (("--debug", str(capture)), (str(capture), "--debug"), ("--debug", "--threads", "1", str(capture))):
        done = run_apart(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no capture", encoding="utf-8")
    refused = run_apart("info", str(broken), "--debug")
    assert refused.returncode == 3
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "debug"),
    [(("--", "train", "--debug"), False), (("train", "--debug"), False), (("--debug", "--", "train"), True)],
)
def test_words_of_a_recorded_command_are_its_own(words: tuple[str, ...], *, debug: bool) -> None:
    asked = Asked()
    above = cli.make_context("pyanalyze", ["record", *words], obj=asked)
    record = cli.get_command(above, "record")
    assert record is not None
    parsed = record.make_context("record", list(words), parent=above)
    assert asked.debug is debug
    assert parsed.params["run"] == tuple(word for word in words if word != "--" and not (debug and word == "--debug"))


def test_a_compressed_capture_is_told_from_a_broken_one(fixtures: Path, tmp_path: Path) -> None:
    """It came as an artifact of CI: whoever passes it needs to hear what unpacks it."""
    plain = (fixtures / "exclusive.sqlite").read_bytes()
    packed = {
        "run.sqlite.gz": gzip.compress(plain),
        "renamed.sqlite": gzip.compress(plain),
        "run.sqlite.bz2": bz2.compress(plain),
        "run.sqlite.xz": lzma.compress(plain),
    }
    tools = {".gz": "gunzip", ".sqlite": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zip": "unzip"}
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.writestr("run.sqlite", plain)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(NotACapture, match=rf"{re.escape(path.name)} is compressed.*\({tools[path.suffix]}\)"):
            pyanalyze.load(path)
    (tmp_path / "report.json").write_text('{"schema": "pyanalyze.report/1"}', encoding="utf-8")
    with pytest.raises(NotACapture, match="a saved report goes to compare, check"):
        pyanalyze.load(tmp_path / "report.json")


def test_an_empty_argument_is_not_the_working_directory(fixtures: Path, tmp_path: Path) -> None:
    """`pyanalyze report "$CAPTURE"` with CAPTURE not set would look at every capture that lies here."""
    shutil.copyfile(fixtures / "exclusive.sqlite", tmp_path / "other.sqlite")
    for words in (("",), ("info", ""), ("classify", "other.sqlite", "--samples", "")):
        done = run_apart(*words, cwd=tmp_path)
        assert done.returncode == 2, words
        assert "an argument is empty; check the shell variables" in done.stderr
    done = run_apart("record", "--duration", "", cwd=tmp_path)
    assert "an argument is empty" not in done.stderr, "a recorded command may have empty words"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file of which no first byte can be read")
def test_an_error_of_reading_names_the_file() -> None:
    done = run_apart("info", "/proc/self/mem")
    assert done.returncode == 3
    assert done.stderr.startswith("pyanalyze: /proc/self/mem: Input/output error; ")


@pytest.mark.parametrize("threads", ["0", "-1", "many", ""])
def test_a_number_of_threads_that_polars_would_panic_at_is_refused(fixtures: Path, threads: str) -> None:
    done = run_apart("info", fixtures / "exclusive.sqlite", env={**os.environ, "POLARS_MAX_THREADS": threads})
    assert done.returncode == 2
    assert done.stderr.startswith("pyanalyze: POLARS_MAX_THREADS is not a number from 1 on")


@pytest.mark.parametrize(
    "text",
    [
        "[check]\nmax_slowdown = " + "9" * 400 + "\n",
        "[check]\nmax_slowdown = inf\n",
        "[check]\nmax_slowdown = nan\n",
        "[check]\nmax_change = inf\n",
        "[check]\nx = " + "[" * 20_000 + "\n",
    ],
)
def test_thresholds_that_are_no_finite_numbers_are_refused(fixtures: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "pyanalyze.toml"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli, ["check", str(fixtures / "exclusive.sqlite"), "--config", str(file)])
    assert isinstance(result.exception, UsageError), result.exception


def test_more_memory_than_64_bits_is_refused(fixtures: Path) -> None:
    with pytest.raises(UsageError, match="more memory than any machine has"):
        pyanalyze.load(fixtures / "exclusive.sqlite", memory="999999999999TB")


def test_a_saved_report_with_numbers_of_more_than_64_bits_is_refused(fixtures: Path, tmp_path: Path) -> None:
    report = json.loads(pyanalyze.load(fixtures / "exclusive.sqlite").report().to_json())
    report["devices"][0]["tenants"][0]["work"]["batches"][0]["busy_ns"] = 10**400
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(NotACapture):
        pyanalyze.compare(file, file)


def test_a_saved_report_with_keys_of_another_build_names_both_versions(fixtures: Path, tmp_path: Path) -> None:
    """Keys were renamed before the first release: a reader must learn that, not only which key does not fit."""
    body = pyanalyze.load(fixtures / "streams.sqlite").report().to_dict()
    body["tool"]["version"] = "0.0.9"
    for device in body["devices"]:
        device["name_of_old"] = device.pop("residency_summary")
    old = tmp_path / "old.json"
    old.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(NotACapture) as caught:
        read_saved(old)
    said = str(caught.value)
    assert said.startswith(f"{old} was written by pyanalyze 0.0.9, this is {pyanalyze.__version__}: their keys differ")
    assert "devices.0.name_of_old" in said
    assert isinstance(CliRunner().invoke(cli, ["check", str(old), "--expect-mode", "streams"]).exception, NotACapture)
