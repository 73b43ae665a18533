"""Write a large nsys export fast: SQLite makes the rows itself, from one counter.

The tables are those of a committed fixture, so that every column is where nsys puts it. One loop of kernels is
launched again and again, as in training: names, grids and streams repeat with it, times and ids grow. Every kernel is
launched by a call that ended before it began. Kernels last some 29 us, and the launches of one differ as in real
captures: their standard deviation is 8 % of the mean, and among six there is one that lasts as none before (that is
what medians cost). Files are kept in a folder outside of the repository and used again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
#: Kernels in one turn of the loop.
LOOP = 97
#: Values that are not copied from the fixture, by column; `i` counts rows.
KERNEL = {
    "start": "1000000000 + i * 42000 + (i * 7919) % 977",
    "end": "1000000000 + i * 42000 + (i * 7919) % 977 + 18000 + (i % 97) * 150 + (i * 2654435761 >> 11) % 8501",
    "deviceId": "0",
    "contextId": "1",
    "streamId": "CASE WHEN i % 97 % 11 = 0 THEN 20 ELSE 7 END",
    "correlationId": "i * 2 + 1",
    "globalPid": "282166214787072 + (i / 4096 % 2) * 16777216",
    "demangledName": "i % 97 + 1",
    "shortName": "i % 97 + 1",
    "mangledName": "i % 97 + 1",
    "registersPerThread": "24 + i % 97 % 8 * 16",
    "gridX": "1 + (i % 97) * (i % 97) * 13",
    "gridY": "1 + i % 97 % 3 / 2 * 7",
    "gridZ": "1",
    "blockX": "64 << (i % 97 % 4)",
    "blockY": "1",
    "blockZ": "1",
    "staticSharedMemory": "i % 97 % 5 * 4096",
    "dynamicSharedMemory": "i % 97 % 7 / 6 * 49152",
    "gridId": "i + 1",
}
CALL = {
    "start": "999988000 + i * 21000 + (i * 7919) % 487",
    "end": "999988000 + i * 21000 + (i * 7919) % 487 + 900 + i % 64 * 31",
    "eventClass": "0",
    "globalTid": "282166214787072 + (i / 8192 % 2) * 16777216 + 77",
    "correlationId": "i + 1",
    # Every second call launches a kernel, those between record an event.
    "nameId": "CASE WHEN i % 2 = 0 THEN 200 + i % 97 % 5 ELSE 205 END",
    "returnValue": "0",
    "callchainId": "NULL",
}


def export_path(kernels: int, calls: int, folder: Path | None = None) -> Path:
    """Where the export with so many kernels and API calls is or will be."""
    folder = folder or Path(tempfile.gettempdir()) / "pyanalyze-bench"
    return folder / f"export-5-{kernels}-{calls}.sqlite"


def export(kernels: int, calls: int, folder: Path | None = None) -> Path:
    """Path of an export with so many kernels and API calls; made if it is not there yet."""
    path = export_path(kernels, calls, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        _write(part, kernels, calls)
        part.rename(path)
    return path


def _write(path: Path, kernels: int, calls: int) -> None:
    path.write_bytes((ROOT / "fixtures" / "captures" / "demo-time-slicing.sqlite").read_bytes())
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("PRAGMA synchronous=OFF")
    # What happened in the fixture belongs to its own kernels.
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table.startswith("CUPTI_ACTIVITY_KIND_MEM") or table == "GPU_CONTEXT_SWITCH_EVENTS":
            db.execute(f"DELETE FROM {table}")
    names = [(n, f"void layer_{n}<float, {n * 8}>(float const*, float*, unsigned int)") for n in range(1, LOOP + 1)]
    names += [(200 + n, f"cudaLaunchKernel_v{7000 + n}") for n in range(5)] + [(205, "cudaEventRecord_v3020")]
    db.executemany("INSERT OR REPLACE INTO StringIds VALUES (?, ?)", names)
    for table, values, rows in (("KERNEL", KERNEL, kernels), ("RUNTIME", CALL, calls)):
        physical = f"CUPTI_ACTIVITY_KIND_{table}"
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({physical})")]
        seed = dict(zip(columns, db.execute(f"SELECT * FROM {physical} LIMIT 1").fetchone(), strict=True))
        db.execute(f"DELETE FROM {physical}")
        listed = ", ".join(values.get(name, _literal(seed[name])) for name in columns)
        db.execute(
            f"INSERT INTO {physical} WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT {rows}) "
            f"SELECT {listed} FROM n"
        )
    db.commit()
    db.close()


def _literal(value: object) -> str:
    return "NULL" if value is None else repr(value)
