"""The same fleet by other workers: a Dask cluster gives the same bytes, and nobody's death changes them."""

from __future__ import annotations

import importlib.util
import logging
import operator
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_fleet import alive, command, vary, written

from pyanalyze.errors import UsageError
from pyanalyze.fleet import analyse, executors
from pyanalyze.fleet.executors import Cluster, Processes, executor_for
from pyanalyze.fleet.failures import WorkerDied
from pyanalyze.tables import memory

if TYPE_CHECKING:
    from collections.abc import Callable

HAS_DASK = importlib.util.find_spec("distributed") is not None
needs_dask = pytest.mark.skipif(not HAS_DASK, reason="Dask is not installed: pip install 'pyanalyze-gpu[fleet]'")
KINDS = ("mps", "streams", "mig", "demo-time-slicing")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve captures of twelve GPUs, of several modes; one file that is none."""
    fixtures = Path(__file__).parent.parent / "fixtures" / "captures"
    folder = tmp_path_factory.mktemp("many")
    for number in range(12):
        vary(
            fixtures / f"{KINDS[number % len(KINDS)]}.sqlite",
            folder / f"run-{number:02}.sqlite",
            gpu=f"GPU-00000000-0000-0000-0000-0000000000{number:02}",
            session=f"00000000-0000-4000-8000-0000000000{number:02}",
        )
    (folder / "bad.sqlite").write_text("no")
    return folder


@pytest.fixture(scope="module")
def serial(many: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process writes of them."""
    out = tmp_path_factory.mktemp("serial") / "out"
    assert analyse(many, out, workers=1, threads=1).analysed == 12
    files = written(out)
    assert sum(name.endswith(".parquet") for name in files) >= 5
    return files


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Processes of its group that were spawned to work."""
    found = []
    for pid in alive(process.pid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"spawn_main" in line:
            found.append(int(pid))
    return found


@pytest.mark.parametrize("scheduler", [None, pytest.param("local", marks=needs_dask)])
def test_killing_a_worker_changes_nothing(
    scheduler: str | None, many: Path, serial: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = [] if scheduler is None else ["--scheduler", scheduler]
    process = command(many, "-o", out, "--workers", "2", *more, strict=scheduler is None, start_new_session=True)
    end = time.monotonic() + 120
    while not list(out.glob("groups/*/report.json")) and time.monotonic() < end:
        time.sleep(0.005)
    victims = workers_of(process)
    assert victims, "somebody works"
    os.kill(victims[0], signal.SIGKILL)
    done = len(list(out.glob("groups/*/report.json")))
    stdout, stderr = process.communicate(timeout=240)
    assert done < 12, "it was killed half-way"
    assert process.returncode == 3, "one file is no capture"
    assert "12 groups: 12 analysed, 0 from the result cache; 1 failed" in stdout, stderr
    assert written(out) == serial


@needs_dask
def test_an_existing_cluster_gives_the_same_bytes(many: Path, serial: dict[str, bytes], tmp_path: Path) -> None:
    note = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    worker = [*dask, "worker", "--nthreads", "1", "--nworkers", "2", "--no-dashboard", "--scheduler-file", str(note)]
    worker += ["--memory-limit", "2GB"]
    started = [subprocess.Popen([*scheduler, "--scheduler-file", str(note)], cwd=tmp_path, **quiet)]
    try:
        end = time.monotonic() + 120
        while not note.exists() and time.monotonic() < end:
            time.sleep(0.05)
        # From another folder: workers are told where captures are, not where we stand.
        started.append(subprocess.Popen(worker, cwd=tmp_path, **quiet))
        process = command(many, "-o", tmp_path / "out", "--scheduler", note, strict=False)
        stdout, stderr = process.communicate(timeout=240)
        with executor_for(str(note), None) as theirs:
            shares = {found for _, found in theirs.outcomes(os.getenv, [("PYANALYZE_MEMORY",)] * 4)}
    finally:
        for one in reversed(started):
            one.terminate()
            one.wait(timeout=60)
    assert "12 groups: 12 analysed" in stdout, stderr
    assert written(tmp_path / "out") == serial
    assert shares == {"1500000000"}, "three quarters of what Dask lets each have"


@needs_dask
def test_what_kills_every_worker_costs_only_itself() -> None:
    tasks: list[tuple[Any, ...]] = [(abs, -1), (os._exit, 9), (int, "no number"), (abs, -3)]
    with executor_for("local", 2) as executor:
        assert isinstance(executor, Cluster)
        outcomes = dict(executor.outcomes(operator.call, tasks))
    assert (outcomes[0], outcomes[3]) == (1, 3)
    assert isinstance(outcomes[1], WorkerDied)
    assert isinstance(outcomes[2], ValueError)


@needs_dask
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_worker_of_its_cluster(
    how: signal.Signals, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    # On a busy machine the run may be over before the signal comes: then it is stopped earlier or later the next time.
    for attempt in range(5):
        out = tmp_path / f"out{attempt}"
        options = ("--workers", "2", "--scheduler", "local")
        process = command(many, "-o", out, *options, strict=False, start_new_session=True)
        end = time.monotonic() + 120
        while not list(out.glob("groups/*/report.json")) and time.monotonic() < end:
            time.sleep(0.005)
        workers, folders = workers_of(process), list(scratch.iterdir())
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does: to the workers too
        else:
            process.kill()
        _, stderr = process.communicate(timeout=120)
        if len(list(out.glob("groups/*/report.json"))) < 12:
            break
    else:
        pytest.fail("five runs were over before they could be stopped")
    assert (len(workers), len(folders) > 0) == (2, True), "two workers, and a folder for them"
    if how == signal.SIGINT:
        assert (process.returncode, stderr.strip()) == (130, "pyanalyze: stopped")
        assert list(scratch.iterdir()) == []
    end = time.monotonic() + 60
    while alive(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(process.pid) == [], "no process works on for nobody"


@needs_dask
def test_what_died_in_one_piece_with_others_is_tried_again_alone(tmp_path: Path) -> None:
    """Of 40 pieces of work that travel together one kills its worker, once; one does so always."""
    flag = tmp_path / "died once"
    once = f"import os\nif not os.path.exists({str(flag)!r}):\n    open({str(flag)!r}, 'w').close()\n    os._exit(137)"
    tasks = [("pass",)] * 40
    tasks[1], tasks[30] = (once,), ("import os; os._exit(9)",)
    with executor_for("local", 1) as executor:
        outcomes = dict(executor.outcomes(exec, tasks))
    assert flag.exists(), "it did die"
    assert isinstance(outcomes.pop(30), WorkerDied)
    assert outcomes == dict.fromkeys({*range(40)} - {30})


@needs_dask
@pytest.mark.parametrize("content", [b'{"a": 1}', b"[]", b"no JSON", b"\xff\x99"])
def test_a_file_that_no_scheduler_wrote_is_said(content: bytes, tmp_path: Path) -> None:
    note = tmp_path / "scheduler.json"
    note.write_bytes(content)
    with pytest.raises(UsageError, match="no Dask scheduler answers"), executor_for(str(note), None):
        pass


def _no_worker(*_: object) -> None:
    sys.exit(7)


def _without_dask(*arguments: Any) -> None:
    sys.modules["dask"] = None  # type: ignore[assignment]  # as if it were not installed
    executors._work_for_dask(*arguments)


@needs_dask
@pytest.mark.parametrize(
    ("worker", "why"),
    [(_no_worker, "exit status 7"), (_without_dask, "ModuleNotFoundError: import of dask halted")],
)
def test_workers_that_cannot_begin_end_the_run(
    worker: Callable[..., None], why: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executors, "_work_for_dask", worker)
    message = rf"^local: workers end before they start work \({why}.*\); leave out --scheduler$"
    with executor_for("local", 2) as nobody, pytest.raises(ConnectionError, match=message):
        list(nobody.outcomes(abs, [(-1,)]))
    assert capfd.readouterr().err == "", "the reason stands in the error, without a traceback"


_DASK_FAILS = """
import logging, sys
from pyanalyze.fleet.executors import executor_for

def fail(when):
    try:
        raise OSError("closed")
    except OSError:
        for name in ("distributed", "distributed.batched", "distributed.client", "tornado.application", "asyncio"):
            logging.getLogger(name).critical("failed %s", when, exc_info=True)

if __name__ == "__main__":
    import distributed
    running = True
    before = list(logging.getLogger("distributed.client").handlers)
    for part in (distributed.Client, distributed.LocalCluster):
        def close(self, *args, close=part.close, **options):
            if running:
                fail("before it closed")
            close(self, *args, **options)
            if running:
                fail("after it closed")
        part.close = close
    try:
        with executor_for("local", 1) as executor:
            fail("in the run")
            print(executor._log.last)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        print("stopped")
    running = False  # Dask closes what is closed once more as the process ends
    print(logging.getLogger("distributed.client").handlers == before)
    fail("in a program with a log of its own")
"""


@needs_dask
def test_dask_logs_nothing_to_stderr(tmp_path: Path) -> None:
    """Every logger that Dask gives a handler logs an error with a traceback, also while the run is being stopped."""
    script = tmp_path / "run.py"
    script.write_text(_DASK_FAILS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert done.stdout.splitlines() == ["failed in the run: OSError: closed", "stopped", "True"], done.stderr
    assert "the run" not in done.stderr
    assert "it closed" not in done.stderr
    assert "failed in a program with a log of its own" in done.stderr, "what it logs to is given back"


@needs_dask
def test_a_scheduler_that_ends_is_named_with_what_dask_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its log says why Dask gave up: the client is cancelled and tells no reason."""
    with executor_for("local", 1) as executor:
        assert isinstance(executor, Cluster)
        client = executor._client
        assert client is not None
        monkeypatch.setattr(client, "map", _cancelled(client))
        message = r"scheduler has gone \(Failed to reconnect: OSError: no route\); finished results are kept"
        with pytest.raises(ConnectionError, match=message):
            list(executor.outcomes(abs, [(-1,)]))


def _cancelled(client: Any) -> Callable[..., list[Any]]:
    def ask(*_: object, **__: object) -> list[Any]:
        future = client.submit(time.sleep, 60)
        logging.getLogger("distributed.client").error("Failed to reconnect", exc_info=OSError("no route"))
        client.cancel([future])
        return [future]

    return ask


def test_work_is_divided_so_that_nobody_waits_at_the_end() -> None:
    for count, at_once in [(0, 2), (1, 2), (7, 2), (200, 2), (10_000, 1000), (30, 0)]:
        pieces = executors._pieces(range(count), at_once)
        assert [index for piece in pieces for index in piece] == list(range(count))
        sizes = [len(piece) for piece in pieces]
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes, default=1) <= 16
        # In the end everybody does one at a time, and all do where there are few or nobody knows how many work.
        assert sizes[-4 * at_once :] == [1] * min(count, 4 * at_once or count)
    assert len(executors._pieces(range(200), 2)) < 50, "short work is not handed out one by one"


def test_long_work_is_handed_back_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executors._call(abs, [(-1,), (-2,)]) == [1, 2]
    monkeypatch.setattr(executors, "_PIECE_S", -1.0)
    assert executors._call(abs, [(-1,), (-2,)]) == [1]

    class Unsent(Exception):
        """Of a class that no other process knows."""

    def raising(message: str) -> None:
        raise Unsent(message)

    (error,) = executors._call(raising, [("why",)])
    assert isinstance(error, RuntimeError)
    assert str(error) == "Unsent: why"


@needs_dask
def test_what_was_handed_back_is_done_by_somebody() -> None:
    """Each takes longer than a piece may: all pieces but those of one come back with a rest."""
    with executor_for("local", 1) as executor:
        outcomes = dict(executor.outcomes(_slowly, [(number, 0.6 if number < 4 else 0.0) for number in range(16)]))
    assert outcomes == {number: number for number in range(16)}


def _slowly(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def _place(variable: str) -> tuple[str | None, str | None, int]:
    return os.environ.get(variable), os.environ.get("POLARS_MAX_THREADS"), len(os.sched_getaffinity(0))


@pytest.mark.parametrize("scheduler", [None, pytest.param("local", marks=needs_dask)])
def test_processors_and_memory_are_divided(scheduler: str | None) -> None:
    """Half of two gigabytes and one processor for each of two workers."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_fleet_dask import _place\nfrom pyanalyze.fleet.executors import executor_for\n"
        "if __name__ == '__main__':\n"
        f"    with executor_for({scheduler!r}, 2, threads=2, memory='2GB') as executor:\n"
        "        print([found for _, found in executor.outcomes(_place, [('PYANALYZE_MEMORY',)])])\n"
    )
    path = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, env=env, timeout=240)
    assert done.stdout.strip() == "[('1000000000', '1', 1)]", done.stderr


def _interruptible(seconds: float) -> tuple[int, bool]:
    time.sleep(seconds)
    return os.getpid(), signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("scheduler", [None, pytest.param("local", marks=needs_dask)])
def test_ctrl_c_reaches_no_worker(scheduler: str | None) -> None:
    """Polars puts its own handler in the place of one that ignores the signal: only a mask keeps it away."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_fleet_dask import _interruptible\nfrom pyanalyze.fleet.executors import executor_for\n"
        "if __name__ == '__main__':\n"
        f"    with executor_for({scheduler!r}, 2) as executor:\n"
        "        found = dict(answer for _, answer in executor.outcomes(_interruptible, [(0.6,)] * 8))\n"
        "    print(sorted(found.values()))\n"
    )
    path = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
    # A process of its own: what multiprocessing starts once, before the first worker, is not running yet.
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, env=env, timeout=240)
    assert done.stdout.strip() == "[False, False]", done.stderr


def test_without_dask_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pyanalyze-gpu\[fleet\]"):
        analyse(tmp_path / "a.sqlite", tmp_path / "out", scheduler="local")
    with pytest.raises(UsageError, match="starts its own workers: set --workers there"):
        executor_for("tcp://127.0.0.1:1", 2)
    with pytest.raises(UsageError, match="--workers 3 or fewer"):
        executor_for(None, 4, memory="2GB")
    assert isinstance(executor_for(None, 1), Processes)


def test_workers_never_have_more_memory_together_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """1200 MiB are enough for two workers of 512 MiB; whoever asks for more is told."""
    monkeypatch.delenv("PYANALYZE_MEMORY", raising=False)
    monkeypatch.setattr(memory, "_cgroup_limits", lambda _: iter([]))
    monkeypatch.setattr(memory, "_machine_bytes", lambda: 1500 << 20)
    monkeypatch.setattr(executors, "available", lambda: 8)
    for workers in (None, 1, 2):
        chosen = executor_for(None, workers)
        assert isinstance(chosen, Processes)
        assert chosen._share is not None
        assert chosen._count == (workers or 2)
        assert chosen._count * chosen._share.memory_bytes <= 1200 << 20
    with pytest.raises(UsageError, match=r"1200 MiB \(machine\) are too little memory for 3 workers.* --workers 2 or"):
        executor_for(None, 3)


def test_shares_are_other_processors_for_other_workers() -> None:
    code = (
        "import os\nfrom pyanalyze.fleet.executors import Share\n"
        "have = sorted(os.sched_getaffinity(0))\nShare(1).take(1)\n"
        "print(sorted(os.sched_getaffinity(0)) == [have[1 % len(have)]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_importing_pyanalyze_imports_no_dask() -> None:
    code = "import sys, pyanalyze, pyanalyze.fleet, pyanalyze.cli.fleet; print('dask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
