"""The command line in the process of the test.

Starting Python and importing the package anew takes longer than most commands. Where the process itself is tested
(limits, signals, imports, users), a test starts one.
"""

from __future__ import annotations

import contextlib
import gc
import io
import subprocess
import sys
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
