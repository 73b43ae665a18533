"""Measure, print, and append to docs/measurements.jsonl: `make bench`.

Times are medians of several runs in one process, as ratios to a peer in the same run where there is one. The
export is generated: two processes that are time-sliced, one kernel table of `--rows` rows.
"""

from __future__ import annotations

import argparse
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import measurements

from pyanalyze.analysis.occupancy import PlacementPolicy
from pyanalyze.core import _core

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
#: The columns that the analysis reads of every kernel.
COLUMNS = (
    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, registersPerThread, staticSharedMemory, dynamicSharedMemory, sharedMemoryExecuted"
)


def make(path: Path, rows: int) -> None:
    """Write an export with `rows` kernels of two processes, by growing a committed fixture."""
    source = ROOT / "fixtures" / "captures" / "demo-time-slicing.sqlite"
    path.write_bytes(source.read_bytes())
    with sqlite3.connect(path) as db:
        (have,) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        names = [row[1] for row in db.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
        shifted = {"start": "start + :by", "end": '"end" + :by', "correlationId": "correlationId + :ids"}
        columns = ", ".join(shifted.get(name, f'"{name}"') for name in names)
        (span,) = db.execute('SELECT max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL').fetchone()
        db.execute("CREATE TEMP TABLE seed AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        for n in range(1, -(-rows // have)):
            db.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT {columns} FROM seed",
                {"by": n * span, "ids": n * 1_000_000 % 2**31},
            )
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid > ?", (rows,))
    db.close()


def timed(work: Callable[[], object], runs: int) -> float:
    """Median seconds of `runs` runs."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def step_all(path: Path) -> None:
    """Do the peer's work: Python's sqlite3 stepping the same columns, values thrown away."""
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as db:
        for _ in db.execute(f"SELECT {COLUMNS} FROM CUPTI_ACTIVITY_KIND_KERNEL"):
            pass
    db.close()


def main() -> int:
    """Run every size and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(f"{'kernels':>10} {'read s':>8} {'of sqlite3':>10} {'join s':>8} {'reconstruct s':>14} {'occupancy s':>12}")
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "big.sqlite"
            make(path, rows)
            wanted = ["kernels", "graph_launches", "memops", "switch_events", "gpu_metrics"]
            read = timed(lambda: _core.read_capture(str(path), 0, wanted), options.runs)  # noqa: B023
            peer = timed(lambda: step_all(path), options.runs)  # noqa: B023
            tables = _core.read_capture(str(path), 0, wanted)
            join = timed(lambda: _core.join_captures([tables]), options.runs)  # noqa: B023
            session = _core.join_captures([tables])
            reconstruct = timed(lambda: _core.reconstruct(session), options.runs)  # noqa: B023
            whole = {**session, **_core.reconstruct(session)}
            occupancy = timed(lambda: _core.occupancy(whole, {0: PlacementPolicy("time-sliced")}, 200), options.runs)  # noqa: B023
        print(f"{rows:>10} {read:>8.3f} {read / peer:>10.2f} {join:>8.3f} {reconstruct:>14.3f} {occupancy:>12.3f}")
        figures = {
            "bench": "load",
            "kernels": rows,
            "runs": options.runs,
            "read_s": round(read, 4),
            "read_over_sqlite3": round(read / peer, 3),
            "join_s": round(join, 4),
            "reconstruct_s": round(reconstruct, 4),
            "occupancy_s": round(occupancy, 4),
            "version": _core.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        measurements.append(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
