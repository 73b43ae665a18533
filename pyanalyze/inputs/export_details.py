"""Read small tables of nsys exports that the core does not read; whatever is odd in them is not known."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.inputs.nsys_export import exported, is_pack
from pyanalyze.tables.export_details import ExportDetails, LoadingKind
from pyanalyze.tables.frames import ON_REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

__all__ = ["read_details"]

#: `CUpti_ActivityOverheadKind`: 2 is the driver's JIT compiler; 6 and 7 load a module at run time, or a function on its
#: first use. Older reports, exported anew, have 0 throughout: these do not say what it was.
_LOADING = {2: LoadingKind.COMPILED, 6: LoadingKind.LOADED, 7: LoadingKind.LOADED}
#: Rows of one export from which on more tell nothing new: a program loads a kernel once.
_MOST_ROWS = 1_000_000


def read_details(paths: Sequence[Path]) -> ExportDetails:
    """Read the details of captures; packs have none.

    Examples
    --------
    >>> read_details([Path(capture)]).stderr_lines
    {}
    """
    loading: dict[int, pl.DataFrame] = {}
    stderr_lines: dict[int, int] = {}
    for number, path in enumerate(paths):
        if is_pack(path):
            continue
        # An odd table is as good as none, and says nothing about the other.
        with suppress(sqlite3.Error), closing(_opened(Path(exported(path, ON_REQUEST)))) as export:
            with suppress(sqlite3.Error, OverflowError):
                rows = _loading(export)
                if rows is not None:
                    loading[number] = rows
            with suppress(sqlite3.Error):
                lines = _stderr_lines(export)
                if lines:
                    stderr_lines[number] = lines
    return ExportDetails(loading, stderr_lines)


def _opened(path: Path) -> sqlite3.Connection:
    # Opened as captures are: nothing is written, not even a lock file.
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def _has(export: sqlite3.Connection, *tables: str) -> bool:
    """Whether an export has these tables; a view may compute for ever."""
    listed = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ? AND sql NOT LIKE '%VIRTUAL%'"
    return all(export.execute(listed, (table,)).fetchone()[0] for table in tables)


def _loading(export: sqlite3.Connection) -> pl.DataFrame | None:
    """Records of code that was loaded or compiled; None: the export does not tell kinds of overhead apart."""
    import polars as pl

    if not _has(export, "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        return None
    rows = export.execute(
        "SELECT (globalTid >> 24) & 0xFFFFFF, correlationId, start, end, overheadType "
        "FROM CUPTI_ACTIVITY_KIND_OVERHEAD WHERE overheadType IN (?, ?, ?) AND end > start AND correlationId > 0 "
        "AND globalTid IS NOT NULL LIMIT ?",
        (*_LOADING, _MOST_ROWS),
    ).fetchall()
    if not rows:
        return None
    schema = {"pid": pl.UInt32, "correlation_id": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    told = [(*row[:4], str(_LOADING[row[4]])) for row in rows if all(isinstance(value, int) for value in row)]
    return pl.DataFrame(told, schema={**schema, "kind": pl.String}, orient="row", strict=False).drop_nulls()


def _stderr_lines(export: sqlite3.Connection) -> int:
    """Lines that programs wrote to their standard error; only their number leaves the export."""
    if not _has(export, "ProcessStreams", "StringIds"):
        return 0
    (lines,) = export.execute(
        "SELECT sum(length(text.value) - length(replace(text.value, char(10), '')) "
        "+ (text.value NOT LIKE '%' || char(10))) FROM ProcessStreams "
        "JOIN StringIds AS file ON file.id = filenameId JOIN StringIds AS text ON text.id = contentId "
        "WHERE file.value LIKE '%stderr%' AND text.value != ''"
    ).fetchone()
    return lines if isinstance(lines, int) else 0
