"""Results to a SQLite database: any tool that reads SQLite can go on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import sqlite_utils

from pyanalyze.files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

# What identifies a row where that is a rule of the table and not an accident of the data. `correlation_id`
# is never part of one: it may be null, and the nodes of a CUDA graph share it.
_KEYS: dict[str, tuple[str, ...]] = {
    "capture": ("capture",),
    "devices": ("device_id", "capture"),
    "tenants": ("tenant_id", "device_id"),
}
_INDEX = ("capture", "pid", "correlation_id")
_REPORT = "report"


def save(
    frames: Mapping[str, pl.DataFrame],
    report: Mapping[str, Any] | None,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
) -> Path:
    """Write frames and the report to one SQLite database, whole or not at all.

    Every frame becomes a STRICT table of its name, with a column type that depends on the column and not on
    its values: integers and booleans INTEGER, floats REAL, text and categories TEXT. Null stays null.
    `capture`, `devices` and `tenants` get their primary keys; every table has an index on those of `capture`,
    `pid`, `correlation_id` that it has.

    Parameters
    ----------
    frames
        Table name -> frame, any number of rows, at least one column.
    report
        The JSON contract, stored as one row (`schema`, `json`) of the table `report`; `None` leaves it empty.
    path
        The database to write.
    force
        Replace an existing file.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    OutputExists
        `path` is there and `force` is false.
    ValueError
        A frame is named `report` or has no columns, or the report holds a number that JSON does not have.
    TypeError
        A column has a type that SQLite does not have (lists, structures, dates).
    sqlite3.IntegrityError
        Two rows share a primary key.

    Notes
    -----
    Unsigned 64-bit ids above 2**63 - 1 are stored as the negative number with the same bits, as nsys itself
    does in its exports: SQLite integers are signed. NaN becomes null: SQLite has none.

    Examples
    --------
    >>> import sqlite3, tempfile
    >>> kernels = pl.DataFrame({"capture": [0], "pid": [7], "correlation_id": [1], "start_ns": [5]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = save({"kernels": kernels}, {"schema": "pyanalyze.report/1"}, Path(folder) / "out.sqlite")
    ...     connection = sqlite3.connect(out)
    ...     connection.execute("SELECT pid, start_ns FROM kernels").fetchall()
    ...     connection.close()
    [(7, 5)]
    """
    if _REPORT in frames:
        raise ValueError("a frame cannot be named `report`: that table holds the JSON report; rename the frame")
    columns = {name: _columns(name, frame) for name, frame in frames.items()}
    text = None if report is None else json.dumps(report, ensure_ascii=False, allow_nan=False)
    with replacing(path, force=force) as temporary:
        database = sqlite_utils.Database(temporary, strict=True, execute_plugins=False)
        try:
            with database.atomic():
                for name, frame in frames.items():
                    _write_frame(database, name, frame, columns[name])
                database.table(_REPORT).create({"schema": str, "json": str}, not_null={"json"})
                if report is not None:
                    schema = report.get("schema")
                    database.table(_REPORT).insert({"schema": schema, "json": text})
        finally:
            database.close()
    return Path(path)


def _columns(name: str, frame: pl.DataFrame) -> dict[str, type]:
    if not frame.columns:
        raise ValueError(f"frame {name} has no columns; leave it out")
    types: dict[str, type] = {}
    for column, kind in frame.schema.items():
        if kind.is_integer() or kind == pl.Boolean:
            types[column] = int
        elif kind.is_float():
            types[column] = float
        elif kind in (pl.String, pl.Categorical, pl.Enum):
            types[column] = str
        elif kind == pl.Null:
            # A column of which nothing is known: untyped in polars, text in a STRICT table.
            types[column] = str
        else:
            raise TypeError(f"column {name}.{column} has type {kind}, which SQLite does not have; cast it first")
    return types


def _write_frame(database: sqlite_utils.Database, name: str, frame: pl.DataFrame, columns: dict[str, type]) -> None:
    key = _KEYS.get(name, ())
    table = database.table(name)
    table.create(columns, pk=key if key and set(key) <= columns.keys() else None)
    names = ", ".join(_quoted(column) for column in columns)
    marks = ", ".join("?" for _ in columns)
    # Straight to the connection: a capture has millions of kernels, and insert_all took 47 times as long
    # (500 000 rows of 20 columns: 103 s against 2.2 s).
    # Names are quoted, values are bound.
    database.conn.executemany(f"INSERT INTO {_quoted(name)} ({names}) VALUES ({marks})", _rows(frame))  # noqa: S608
    index = [column for column in _INDEX if column in columns]
    if index:
        table.create_index(index)


def _rows(frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    signed = frame.with_columns(pl.col(pl.UInt64).reinterpret(signed=True), pl.col(pl.Boolean).cast(pl.Int8))
    return signed.iter_rows()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
