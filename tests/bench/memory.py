"""Does a budget of memory hold for captures that are larger than it, and what do others take for loading them?

Every line is a command of its own; its peak is that of the whole process as the system saw it (`VmHWM`: its own memory
and files that are mapped into it). A peer's line is one whole-table load of the kernels, which is where an analysis in
frames begins. Exports have one API call in ten kernels, unless --calls says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import big_export
import measurements

from pyanalyze.core import _core
from pyanalyze.tables import memory

ROOT = Path(__file__).parent.parent.parent

#: Says what was spilled when the command has done its work.
OURS = """
import atexit, json, os, sys
from pyanalyze.tables import memory
from pyanalyze.cli import main
atexit.register(lambda: os.write(3, str(memory.account().spilled_most_bytes).encode()))
main()
"""
#: Whole tables, as their tutorials do it: imports, what loads, which version.
PEERS = {
    "pandas.read_sql": ("import pandas, sqlite3", "pandas.read_sql({!r}, sqlite3.connect({!r}))", "pandas.__version__"),
    "polars.read_database": (
        "import polars, sqlite3",
        "polars.read_database({!r}, sqlite3.connect({!r}))",
        "polars.__version__",
    ),
}
QUERY = "SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"


def measured(code: str, *arguments: str, limit_s: float, limit_bytes: int | None = None) -> dict[str, Any]:
    """Run Python code as a process of its own; what it wrote to descriptor 3, seconds, and its peak."""
    read, write = os.pipe()
    began = time.perf_counter()
    ready = f"import os, resource; os.dup2({write}, 3)\n"
    if limit_bytes is not None:
        # Else the system ends what it likes when a table does not fit.
        ready += f"resource.setrlimit(resource.RLIMIT_AS, ({limit_bytes}, {limit_bytes}))\n"
    child = subprocess.Popen([sys.executable, "-c", f"{ready}{code}", *arguments], pass_fds=[write])
    os.close(write)
    try:
        child_done = _wait(child, limit_s)
    finally:
        said = os.read(read, 4096).decode() if child.poll() is not None else ""
        os.close(read)
    status, usage = child_done
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_bytes": usage.ru_maxrss * 1024,
        "exit": os.waitstatus_to_exitcode(status),
        "said": said,
    }


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> tuple[int, Any]:
    until = time.monotonic() + limit_s
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return status, usage
        if time.monotonic() > until:
            child.kill()
            until = float("inf")
        time.sleep(0.02)


def main() -> int:
    """Print one line for each command, and append them to the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--calls", type=int, help="API calls of each export; else a tenth of its kernels")
    parser.add_argument("--budget", default="2GB")
    verbs = ("summary", "json", "html", "info", "classify")
    parser.add_argument("--outputs", nargs="*", choices=verbs, default=verbs[:3])
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="whole-table loads of others as well; else all")
    parser.add_argument("--peer-limit", type=memory.parse, help="address space that a peer may have, such as 12GB")
    parser.add_argument("--compare", action="store_true", help="compare the JSON report with that without a budget")
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a command is ended")
    options = parser.parse_args()
    common = {
        "bench": "memory",
        "version": _core.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
    }
    budget = memory.parse(options.budget)
    held = True
    print(
        f"{'kernels':>10} {'what':<22} {'budget MiB':>10} {'peak MiB':>9} {'spilled MiB':>11} {'seconds':>8} {'cpu s':>6}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for kernels in options.kernels:
            capture = big_export.export(kernels, kernels // 10 if options.calls is None else options.calls)

            def line(
                what: str,
                given: int | None,
                row: dict[str, Any],
                kernels: int = kernels,
                size: int = capture.stat().st_size,
            ) -> None:
                said = row.pop("said")
                spilled = int(said) if said.isdigit() else None
                mib = ("–" if n is None else f"{n / 2**20:.0f}" for n in (given, row["peak_bytes"], spilled))
                a, b, c = mib
                end = "" if row["exit"] == 0 else f"  ended with {row['exit']}"
                print(
                    f"{kernels:>10} {what:<22} {a:>10} {b:>9} {c:>11} {row['seconds']:>8} {row['cpu_s']:>6}{end}",
                    flush=True,
                )
                row |= {
                    "kernels": kernels,
                    "capture_bytes": size,
                    "what": what,
                    "budget_bytes": given,
                    "spilled_bytes": spilled,
                }
                measurements.append({**common, **row})

            for what in options.outputs:
                out = Path(folder) / f"{kernels}-{what}.{what if what in ('json', 'html') else 'txt'}"
                verb = ["report", "-f", what] if what in ("json", "html") else [what]
                row = measured(
                    OURS, *verb, str(capture), "-q", "-o", str(out), "--memory", options.budget, limit_s=options.limit
                )
                held &= row["exit"] == 0 and row["peak_bytes"] <= budget
                line(what, budget, row)
            if options.compare:
                whole = Path(folder) / "whole.json"
                row = measured(
                    OURS,
                    "report",
                    "-f",
                    "json",
                    str(capture),
                    "-q",
                    "-o",
                    str(whole),
                    "--memory",
                    "1TB",
                    limit_s=options.limit,
                )
                line("json, all in memory", None, row)
                bounded = Path(folder) / f"{kernels}-json.json"
                same = json.loads(bounded.read_bytes()) == json.loads(whole.read_bytes())
                print(f"{kernels:>10} the JSON reports are {'equal' if same else 'NOT EQUAL'}")
                held &= same
            for name in () if options.peers is None else options.peers or PEERS:
                imports, load, version = PEERS[name]
                code = f"{imports}\nframe = {load.format(QUERY, str(capture))}\nos.write(3, {version}.encode())"
                row = measured(code, limit_s=options.limit, limit_bytes=options.peer_limit)
                row["peer_version"] = row["said"]
                row["peer_limit_bytes"] = options.peer_limit
                line(name, None, row)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
