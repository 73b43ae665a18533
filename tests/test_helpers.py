"""What tests share keeps apart what must be: files that were written anew, and processes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from command_line import run_apart
from shared_sessions import load


def test_a_session_is_that_of_the_file_as_it_is_now(fixtures: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture.sqlite"
    shutil.copyfile(fixtures / "mps.sqlite", capture)
    first = load(capture)
    assert load(capture) is first
    # Commands and tests name the same files in their own ways.
    assert load((str(capture),), samples=(), tenants={}, work=None) is first
    assert load([capture, fixtures / "mig.sqlite"]) is not first
    assert load(capture, tenants={"a": 355_932}) is not load(capture, tenants={"b": 355_932})
    assert load(capture, tenants={"a": 355_932}) is not first
    assert load(capture, tables=["nvtx"]) is not first
    shutil.copyfile(fixtures / "mig.sqlite", capture)
    assert [verdict.mode for verdict in load(capture).classify()] == ["mig"]


def test_a_command_that_is_run_apart_has_a_process_of_its_own(fixtures: Path, tmp_path: Path) -> None:
    killed = run_apart("info", before="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -signal.SIGKILL
    bound = run_apart("info", before="import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))")
    assert bound.returncode != 0
    # Nothing of it is left to the next.
    shutil.copyfile(fixtures / "mps.sqlite", tmp_path / "a.sqlite")
    environment = {"PATH": "/nowhere", "POLARS_MAX_THREADS": "none"}
    assert run_apart("info", "a.sqlite", cwd=tmp_path, env=environment).returncode == 2
    sound = run_apart("info", "a.sqlite", cwd=tmp_path)
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.startswith("capture 0: a.sqlite")
