"""The command line in the process of the test, or in one of its own that need not begin by importing.

Starting Python and importing the package anew takes longer than most commands. Where limits, streams or the working of a
process are tested, `run_apart` gives a process; where its start is (signals from the beginning, imports, users), a test
starts one itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from pyanalyze.cli import main


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What `pyanalyze ARGUMENTS...` prints on both streams, and its exit code."""
    words = list(map(str, arguments))
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    code: Any = 0
    threshold = gc.get_threshold()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd or "."),
        redirect_stdout(streams[0]),
        redirect_stderr(streams[1]),
    ):
        patch.setattr(sys, "argv", ["pyanalyze", *words])
        # click asks it for the name of a program that was started with `python -m`.
        patch.setattr(sys.modules["__main__"], "__package__", None)
        try:
            main()
        except SystemExit as error:
            code = error.code
        finally:
            gc.set_threshold(*threshold)
    printed = []
    for stream in streams:
        stream.flush()
        printed.append(stream.buffer.getvalue().decode("utf-8"))
    return subprocess.CompletedProcess(words, int(code or 0), *printed)


#: Forks a process for each line that it reads. A fork has none of the threads of its parent, and what they hold stays locked:
#: there are none here but those that polars begins with, of which jemalloc looks after its own and the other one sleeps.
_FORKS = """
import importlib, json, os, sys, time
from pyanalyze.cli import VERBS, main
for name in ("polars", "pydantic", "pyanalyze.session", "pyanalyze.report.summary", "pyanalyze.report.build",
             "pyanalyze.analysis.advice", "pyanalyze.analysis.interference", "pyanalyze.analysis.sharing",
             *(f"pyanalyze.cli.{verb}" for verb in VERBS)):
    importlib.import_module(name)
threads = {open(f"/proc/self/task/{one}/comm").read().strip() for one in os.listdir("/proc/self/task")}
assert threads <= {open("/proc/self/comm").read().strip(), "jemalloc_bg_thd", "polars-ooc-clea"}, threads
commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
asked = None
for line in commands:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
else:
    sys.exit()
answers.close()
commands.close()
for number, (name, flags) in enumerate(zip((os.devnull, asked["out"], asked["err"]), (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
    file = os.open(name, flags)
    os.dup2(file, number)
    os.close(file)
os.environ.clear()
os.environ.update(asked["environment"])
time.tzset()
os.chdir(asked["folder"])
sys.argv = ["-c", *asked["words"]]
exec(asked["before"])
main()
"""


@functools.cache
def _forks() -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", _FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def end() -> None:
        # It ends with what it reads.
        started.communicate()

    atexit.register(end)
    return started


def run_apart(
    *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """What `pyanalyze ARGUMENTS...` prints in a process of its own, and its exit code; `before` is code run there first."""
    words = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("out", "err")]
        for stream in streams:
            stream.touch()
        server = _forks()
        assert server.stdin is not None
        assert server.stdout is not None
        asked = {
            "words": words,
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ) if env is None else env,
            "before": before,
            "out": str(streams[0]),
            "err": str(streams[1]),
        }
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], 120)[0]:
            _forks.cache_clear()
            os.killpg(server.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, 120)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, *(stream.read_text(encoding="utf-8") for stream in streams))
