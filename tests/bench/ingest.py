"""Measure how fast an export is read, against SQLite, against other readers and against the memory it stands in.

`make bench` runs it; `.venv/bin/python tests/bench/ingest.py --quick` for a run of a minute. The export is generated
once and kept in the system's temporary folder. Peers that are not installed are left out, and said: none is a
dependency of the project; `--peers PYTHON` names an interpreter that has them. Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from big_export import export

from pyanalyze import _core

ROOT = Path(__file__).parent.parent.parent
LOG = ROOT / "docs" / "measurements.jsonl"
TEN = 'start, "end", deviceId, contextId, streamId, correlationId, globalPid, demangledName, gridX, blockX'
QUERY = f"SELECT {TEN} FROM CUPTI_ACTIVITY_KIND_KERNEL"

#: Every peer as a program of its own: it gets path, query and the number of runs, and prints version and seconds.
PEER = """
import json, statistics, sys, time
path, query, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
{imports}
def work():
    {work}
seconds = []
for _ in range(runs):
    began = time.perf_counter()
    frame = work()
    seconds.append(time.perf_counter() - began)
print(json.dumps({{"version": {version}, "rows": len(frame), "seconds": statistics.median(seconds)}}))
"""
PEERS = {
    "DuckDB sqlite scanner": (
        "import duckdb, polars\nTABLE = 'CUPTI_ACTIVITY_KIND_KERNEL'\nduckdb.sql('LOAD sqlite')",
        "return duckdb.sql(query.replace(TABLE, f\"sqlite_scan('{path}', '{TABLE}')\")).pl()",
        "duckdb.__version__",
    ),
    "ConnectorX": (
        "import connectorx, importlib.metadata",
        "return connectorx.read_sql('sqlite://' + path, query, return_type='polars')",
        "importlib.metadata.version('connectorx')",
    ),
    "ADBC sqlite": (
        "import adbc_driver_sqlite.dbapi, polars, importlib.metadata",
        "return polars.read_database(query, adbc_driver_sqlite.dbapi.connect(path))",
        "importlib.metadata.version('adbc-driver-sqlite')",
    ),
    "polars.read_database": (
        "import polars, sqlite3",
        "return polars.read_database(query, sqlite3.connect(path))",
        "polars.__version__",
    ),
    "pandas.read_sql": (
        "import pandas, sqlite3",
        "return pandas.read_sql(query, sqlite3.connect(path))",
        "pandas.__version__",
    ),
}
#: One read in a process of its own, so that its peak is that of nothing else.
OURS = """
import json, re, sys, time
import polars
from pathlib import Path
from pyanalyze import _core
def peak_kb():
    # Not getrusage: that starts with the peak of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
# The libraries are there before and after; only what reading takes is counted.
idle = peak_kb()
began = time.perf_counter()
tables = _core.read_capture(sys.argv[1], 0, sys.argv[2].split(","))
frames = [polars.DataFrame(table) for table in tables.values()]
seconds = time.perf_counter() - began
peak = peak_kb()
frame_bytes = sum(frame.estimated_size() for frame in frames)
print(json.dumps({"seconds": seconds, "idle_bytes": idle * 1024, "peak_bytes": peak * 1024, "table_bytes": frame_bytes}))
"""


def last_json(command: list[str]) -> dict[str, Any] | str:
    """Return what a program printed as its last line, or the last line of why it could not."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines() or ["no message"]
        return next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[-1])[:160]
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found


def core(path: Path, runs: int) -> list[dict[str, Any]]:
    """Rows of the Rust example: SQLite, scan and memory in one process."""
    command = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "pyanalyze-core", "--example", "ingest", "--"]
    ran = subprocess.run([*command, str(path), str(runs)], capture_output=True, text=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def ours(path: Path, tables: str, runs: int) -> dict[str, Any]:
    """Seconds (median) and bytes of reading whole tables into polars frames."""
    results = [last_json([sys.executable, "-c", OURS, str(path), tables]) for _ in range(runs)]
    made = [result for result in results if isinstance(result, dict)]
    return {**made[-1], "seconds": statistics.median(result["seconds"] for result in made)}


def forget(path: Path) -> None:
    """Take the file out of the cache of the system, where the system lets us."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def cold(path: Path) -> tuple[float, float]:
    """Seconds of reading kernels and API calls, and of reading the plain file, both from the disk."""
    forget(path)
    began = time.perf_counter()
    _core.read_capture(str(path), 0, ["kernels", "api_calls"])
    scan = time.perf_counter() - began
    forget(path)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        block = bytearray(1 << 20)
        while file.readinto(block):
            pass
    return scan, time.perf_counter() - began


def info(path: Path, runs: int) -> float:
    """Seconds of `pyanalyze info`, start of the process included."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        program = "from pyanalyze.cli import main; main()"
        subprocess.run([sys.executable, "-c", program, "info", str(path)], capture_output=True, check=True)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> int:
    """Measure everything, print it, append one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="200 thousand kernels, 400 thousand calls")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the peers")
    options = parser.parse_args()
    if options.quick:
        options.kernels, options.calls = 200_000, 400_000
    path = export(options.kernels, options.calls)
    path.read_bytes()  # warm
    figures: dict[str, Any] = {
        "bench": "ingest", "version": _core.__version__, "kernels": options.kernels, "calls": options.calls,
        "file_bytes": path.stat().st_size, "runs": options.runs, "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(), "machine": platform.machine(),
    }  # fmt: skip
    figures["core"] = core(path, options.runs)
    for row in figures["core"]:
        print(
            f"{row['table'][20:]:>8} {row['columns']:>6}: sqlite3_step {row['step_s']:.3f} s, scan {row['scan_s']:.3f} s "
            f"({row['step_s'] / row['scan_s']:.1f} x), {row['threads']} threads {row['scan_threads_s']:.3f} s "
            f"({row['rows'] / row['scan_threads_s'] / 1e6:.1f} M rows/s), {row['sum_s'] / row['scan_s']:.1%} of a plain sum"
        )
    ten = next(row for row in figures["core"] if row["columns"] == "ten")["scan_threads_s"]
    figures["peers"] = {}
    for name, (imports, work, version) in PEERS.items():
        program = PEER.format(imports=imports, work=work, version=version)
        found = last_json([options.peers, "-c", program, str(path), QUERY, str(options.runs)])
        if isinstance(found, dict) and found["rows"] != options.kernels:
            found = f"{found['rows']} rows instead of {options.kernels}"
        figures["peers"][name] = found
        told = found if isinstance(found, str) else f"{found['seconds']:.3f} s, {found['seconds'] / ten:.1f} x ours"
        print(f"{name}: {told}")
    figures["kernels_table"] = ours(path, "kernels", options.runs)
    figures["all_tables"] = ours(path, "kernels,api_calls", options.runs)
    for name in ("kernels_table", "all_tables"):
        row = figures[name]
        more = (row["peak_bytes"] - row["idle_bytes"]) / row["table_bytes"]
        print(f"{name} into polars: {row['seconds']:.3f} s, peak {more:.2f} x its {row['table_bytes'] / 1e6:.0f} MB")
    figures["info_s"] = info(path, options.runs)
    figures["cold_s"], figures["cold_file_s"] = cold(path)
    print(f"info {figures['info_s']:.2f} s; cold {figures['cold_s']:.2f} s, plain file {figures['cold_file_s']:.2f} s")
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
