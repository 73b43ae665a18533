"""Measure how fast an export is read, against SQLite, against other readers and against the memory it stands in.

`make bench` runs it; `.venv/bin/python tests/bench/ingest.py --quick` for a run of a minute. The export is generated
once and kept in the system's temporary folder. Peers that are not installed are left out, and said: none is a
dependency of the project; `--peers PYTHON` names an interpreter that has them (`pip install duckdb==1.5.5
duckdb-extension-sqlite-scanner connectorx adbc-driver-sqlite pandas pyarrow polars`; DuckDB and its extension must be
of one version). `--nsys NSYS` times NVIDIA's own kernel summary on `--nsys-kernels` kernels: it takes five seconds for
each million. `--grow 100000 1000000 10000000` reads exports of those sizes, to see whether time and memory grow in
proportion. Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measurements
from big_export import export, export_path

from pyanalyze.core import _core

ROOT = Path(__file__).parent.parent.parent
TEN = 'start, "end", deviceId, contextId, streamId, correlationId, globalPid, demangledName, gridX, blockX'
QUERY = f"SELECT {TEN} FROM CUPTI_ACTIVITY_KIND_KERNEL"

#: DuckDB's extension comes from its own server or as a package of the same version.
SCANNER = """
try:
    import duckdb_extension_sqlite_scanner
    from pathlib import Path
    found = Path(duckdb_extension_sqlite_scanner.__file__).parent.rglob("*.duckdb_extension")
    duckdb.sql(f"LOAD '{next(found)}'")
except ImportError:
    duckdb.sql("LOAD sqlite")
"""
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
        "import duckdb, polars\nTABLE = 'CUPTI_ACTIVITY_KIND_KERNEL'\n{scanner}",
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
SUMMARY_SQL = """
SELECT s.value AS name, sum(d)::BIGINT AS total_time_ns, count(*) AS instances, round(avg(d), 1) AS avg_ns,
    round(median(d), 1) AS med_ns, min(d) AS min_ns, max(d) AS max_ns, round(stddev_samp(d), 1) AS stddev_ns
FROM (SELECT demangledName AS id, "end" - start AS d FROM sqlite_scan('{path}', 'CUPTI_ACTIVITY_KIND_KERNEL'))
JOIN sqlite_scan('{path}', 'StringIds') AS s USING (id) GROUP BY s.value
"""
#: The kernel summary of nsys, by our library and by DuckDB; our command prints it itself.
SUMMARIES = {
    "library": """
import json, sys
import pyanalyze
columns = ["name", "total_time_ns", "instances", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"]
rows = pyanalyze.kernel_summary(sys.argv[1]).select("name", "total_ns", "kernels", "^(mean|median|min|max|stddev)_ns$")
print(json.dumps({row[0]: dict(zip(columns[1:], row[1:])) for row in rows.rows()}))
""",
    "DuckDB": f"""
import json, sys
import duckdb
{SCANNER}
rows = duckdb.sql(sys.argv[2].replace("{{path}}", sys.argv[1]))
print(json.dumps({{row[0]: dict(zip(rows.columns[1:], row[1:])) for row in rows.fetchall()}}))
""",
}
#: One read in a process of its own, so that its peak is that of nothing else.
OURS = """
import json, re, sys, time
import polars
from pathlib import Path
from pyanalyze.core import _core
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
#: The same from the disk, until the tables are there: giving their memory back is no part of reading, and a process that
#: has just done so goes on with it while it reads again.
COLD = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from ingest import _core, forget, settle
path = Path(sys.argv[1])
forget(path)
settle(path)
began = time.perf_counter()
tables = _core.read_capture(str(path), 0, ["kernels", "api_calls"])
print(json.dumps({"seconds": time.perf_counter() - began}))
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
    command = [
        "cargo",
        "run",
        "--release",
        "--quiet",
        "--locked",
        "-p",
        "pyanalyze-sqlite",
        "--example",
        "ingest",
        "--",
    ]
    ran = subprocess.run([*command, str(path), str(runs)], capture_output=True, text=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def ours(path: Path, tables: str, runs: int) -> dict[str, Any]:
    """Seconds (median) and bytes of reading whole tables into polars frames."""
    results = [last_json([sys.executable, "-c", OURS, str(path), tables]) for _ in range(runs)]
    made = [result for result in results if isinstance(result, dict)]
    return {**made[-1], "seconds": statistics.median(result["seconds"] for result in made)}


def summary(program: list[str], runs: int) -> tuple[float, dict[str, Any] | str]:
    """Seconds (median) of a kernel summary, process start included, and its rows by name or why there are none."""
    seconds: list[float] = []
    found: dict[str, Any] | str = {}
    for _ in range(runs):
        began = time.perf_counter()
        found = last_json(program)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), found


#: Our words for the quantities -> those of nsys.
THEIRS = {
    "total_ns": "total_time_ns", "kernels": "instances", "mean_ns": "avg_ns", "median_ns": "med_ns",
    "min_ns": "min_ns", "max_ns": "max_ns", "stddev_ns": "stddev_ns",
}  # fmt: skip


def our_summary(path: Path, runs: int) -> tuple[float, dict[str, Any]]:
    """The same by our command."""
    command = [str(Path(sys.executable).parent / "pyanalyze"), "kernels", str(path), "-f", "json"]
    seconds: list[float] = []
    printed = ""
    for _ in range(runs):
        began = time.perf_counter()
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds.append(time.perf_counter() - began)
    rows = json.loads(printed)["kernels"]
    return statistics.median(seconds), {r["name"]: {theirs: r[our] for our, theirs in THEIRS.items()} for r in rows}


def nsys_summary(nsys: str, path: Path) -> tuple[float, dict[str, Any]]:
    """The same by NVIDIA's own tool."""
    from pyanalyze.inputs.nsys_recipes import read_report

    with tempfile.TemporaryDirectory() as folder:
        command = [nsys, "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "--output", f"{folder}/of"]
        began = time.perf_counter()
        subprocess.run([*command, str(path)], capture_output=True, check=True)
        seconds = time.perf_counter() - began
        rows = read_report(next(Path(folder).iterdir())).rows.drop("time_percent")
    return seconds, {row.pop("name"): row for row in rows.to_dicts()}


def apart(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Names of kernels of which two summaries do not say the same; the last printed digit may be rounded."""
    out = []
    for name in mine.keys() | theirs.keys():
        left, right = mine.get(name, {}), theirs.get(name, {})
        if not left or not right or any(abs(left[key] - right[key]) > 0.1001 for key in left.keys() & right.keys()):
            out.append(name)
    return sorted(out)


def summaries(path: Path, runs: int, peers: str, nsys: str | None, nsys_path: Path | None) -> dict[str, Any]:
    """Times of kernel summaries of one file, after a look whether they say the same."""
    out: dict[str, Any] = {}
    out["pyanalyze"], mine = our_summary(path, runs)
    seconds, rows = summary([sys.executable, "-c", SUMMARIES["library"], str(path)], runs)
    assert isinstance(rows, dict), rows
    out["library"], out["library_apart"] = seconds, apart(mine, rows)
    seconds, theirs = summary([peers, "-c", SUMMARIES["DuckDB"], str(path), SUMMARY_SQL], runs)
    out["DuckDB"] = theirs if isinstance(theirs, str) else seconds
    out["apart"] = [] if isinstance(theirs, str) else apart(mine, theirs)
    print(
        f"kernel summary {out['pyanalyze']:.2f} s, by the library {out['library']:.2f} s, by DuckDB {out['DuckDB']}; "
        f"apart: {out['library_apart'] + out['apart']}"
    )
    if nsys and nsys_path:
        # Alternately: from one run to the next, either may take twice as long.
        times, theirs_s = [], []
        for _ in range(3):
            nsys_s, rows = nsys_summary(nsys, nsys_path)
            theirs_s.append(nsys_s)
            seconds, mine = our_summary(nsys_path, runs)
            times.append(seconds)
        nsys_s, seconds = statistics.median(theirs_s), statistics.median(times)
        version = subprocess.run([nsys, "--version"], capture_output=True, text=True, check=False).stdout.split()
        out["nsys"] = {
            "version": version[-1] if version else "?", "seconds": nsys_s, "ours": seconds,
            "file_bytes": nsys_path.stat().st_size, "apart": apart(mine, rows),
        }  # fmt: skip
        print(
            f"nsys stats {nsys_s:.1f} s, ours {seconds:.2f} s ({nsys_s / seconds:.0f} x); apart: {out['nsys']['apart']}"
        )
    return out


def grow(sizes: list[int], runs: int) -> list[dict[str, Any]]:
    """Seconds and memory of reading exports of growing size; those made here are removed again."""
    out = []
    for kernels in sizes:
        known = export_path(kernels, 0).exists()
        path = export(kernels, 0)
        forget(path)
        read(path)
        row = ours(path, "kernels", runs)
        taken = row["peak_bytes"] - row["idle_bytes"]
        out.append({"kernels": kernels, "seconds": row["seconds"], "bytes": taken, "table_bytes": row["table_bytes"]})
        print(
            f"{kernels:>9} kernels: {row['seconds']:.3f} s, {row['seconds'] / kernels * 1e9:.0f} ns a row; "
            f"memory {taken / kernels:.0f} bytes a row, {taken / row['table_bytes']:.2f} x the table"
        )
        if not known:
            path.unlink()
    return out


def read(path: Path) -> None:
    """Read the plain file from front to back.

    Who looks at a capture has copied or read it before. The system then keeps it in larger pieces than those that SQLite
    has just written, and hands those out in half the time, to SQLite as well as to us.
    """
    with path.open("rb", buffering=0) as file:
        block = bytearray(1 << 20)
        while file.readinto(block):
            pass


def forget(path: Path) -> None:
    """Take the file out of the cache of the system, where the system lets us."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def settle(path: Path) -> None:
    """Touch and give back at least as much memory as file and tables take.

    The host of a virtual machine takes back what nobody uses; who touches it next waits for the host, not for the disk.
    Linux offers it what was free for two seconds, all at once, and works on that beside whatever is measured. So that is
    waited for while the memory is held, and what is given back here is used before its turn comes.
    """
    fill = "import mmap, time\n"
    fill += f"held = mmap.mmap(-1, {3 * path.stat().st_size}, mmap.MAP_PRIVATE); held.madvise(mmap.MADV_HUGEPAGE)\n"
    fill += "for at in range(0, len(held), 4096): held[at] = 1\n"
    fill += "time.sleep(2.5)"
    subprocess.run([sys.executable, "-c", fill], check=True)


def cold(path: Path, runs: int) -> tuple[list[float], list[float]]:
    """Seconds of reading kernels and API calls, and of reading the plain file, both from the disk, in turn."""
    scans, plain = [], []
    for _ in range(runs):
        found = last_json([sys.executable, "-c", COLD, str(path), str(Path(__file__).parent)])
        assert isinstance(found, dict), found
        scans.append(found["seconds"])
        forget(path)
        settle(path)
        began = time.perf_counter()
        read(path)
        plain.append(time.perf_counter() - began)
    return scans, plain


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
    parser.add_argument("--nsys", help="NVIDIA's nsys, to time its kernel summary")
    parser.add_argument("--nsys-kernels", type=int, default=1_000_000)
    parser.add_argument("--grow", type=int, nargs="*", default=[], help="sizes to read one after the other")
    options = parser.parse_args()
    if options.quick:
        options.kernels, options.calls = 200_000, 400_000
    # As in an installed package, like its peers; a checkout may compile its modules at every start.
    compileall.compile_dir(ROOT / "pyanalyze", quiet=1)
    path = export(options.kernels, options.calls)
    forget(path)
    read(path)  # warm
    figures: dict[str, Any] = {
        "bench": "ingest", "version": _core.__version__, "kernels": options.kernels, "calls": options.calls,
        "file_bytes": path.stat().st_size, "runs": options.runs, "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(), "machine": platform.machine(), "load": round(os.getloadavg()[0], 1),
        "warmed_by": "reading it from the disk", "durations": "spread",
        "cold_after": "touching and holding for 2.5 s as much memory", "cold_in": "a process of its own",
    }  # fmt: skip
    figures["core"] = core(path, options.runs)
    for row in figures["core"]:
        print(
            f"{row['table'][20:]:>8} {row['columns']:>6}: sqlite3_step {row['step_s']:.3f} s, scan {row['scan_s']:.3f} s "
            f"({row['step_s'] / row['scan_s']:.1f} x), {row['threads']} threads {row['scan_threads_s']:.3f} s "
            f"({row['rows'] / row['scan_threads_s'] / 1e6:.1f} M rows/s), {row['sum_s'] / row['scan_s']:.1%} of a plain "
            f"sum (fastest of each {row['sum_fastest_s'] / row['scan_fastest_s']:.1%}); "
            f"reading the leaves alone {row['read_s']:.3f} s"
        )
    ten = next(row for row in figures["core"] if row["columns"] == "ten")["scan_threads_s"]
    figures["peers"] = {}
    for name, (imports, work, version) in PEERS.items():
        program = PEER.format(imports=imports.replace("{scanner}", SCANNER), work=work, version=version)
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
    nsys_path = export(options.nsys_kernels, 2 * options.nsys_kernels) if options.nsys else None
    figures["summary"] = summaries(path, options.runs, options.peers, options.nsys, nsys_path)
    figures["grow"] = grow(options.grow, options.runs)
    figures["info_s"] = info(path, options.runs)
    print(f"info {figures['info_s']:.2f} s")
    # Whatever else the host does with the memory, the fastest runs have least of it.
    scans, plain = cold(path, 3 * options.runs)
    for name, of in (("", statistics.median), ("_fastest", min)):
        scan_s, file_s = figures[f"cold{name}_s"], figures[f"cold{name}_file_s"] = of(scans), of(plain)
        print(f"cold{name} {scan_s:.2f} s, plain file {file_s:.2f} s ({file_s / scan_s:.0%} of the disk's rate)")
    figures["load_after"] = round(os.getloadavg()[0], 1)
    measurements.append(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
