"""Read a pack, the small file that `pyanalyze pack` writes; nothing in it is trusted.

`pyanalyze.export.pack` writes it and says what is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import CaptureDamaged, NotACapture, TableMismatch
from pyanalyze.tables.frames import EVENT_TABLES, FrameTable, declarations
from pyanalyze.text.escape import visible
from pyanalyze.text.numbers import FARTHEST_NS

if TYPE_CHECKING:
    import os
    import sqlite3
    from collections.abc import Iterator, Sequence

    import polars as pl

    PathLike = str | os.PathLike[str]

__all__ = ["CONTEXT", "FORMAT", "SAMPLES", "Unpacked", "quoted", "unpack"]

FORMAT = "pyanalyze.pack/1"
#: Tables of a pack that are not of one capture.
SAMPLES, CONTEXT = "nvml_samples", "context"

#: A page of a SQLite file holds a row in no fewer bytes: a pointer of two, the row's length, its id, the length of its
#: header, and a header of at least one. A pack that claims more rows than fit into its file does not hold them.
_LEAST_ROW_BYTES = 6
#: Rows of events are at most 40 numbers; an offset into names is one.
_MOST_ROW_BYTES = 1024
#: Of every capture, whatever events it has.
_ALWAYS = ("capture", "sources", "quality", "devices", "processes", "contexts", "configured")
#: The limit of the reader of exports: nothing on a GPU takes more than a year.
_LONGEST_NS = 366 * 86_400 * 10**9


@dataclass(frozen=True)
class Unpacked:
    """The content of a pack, as the readers of captures, samples and context would have given it."""

    captures: tuple[dict[str, Any], ...]
    samples: tuple[dict[str, Any], ...]
    context: tuple[pl.DataFrame, ...]


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def unpack(path: PathLike, first: int = 0) -> Unpacked:
    """Read a pack.

    Parameters
    ----------
    path
        The pack.
    first
        Number that its first capture gets in the session.

    Raises
    ------
    OSError
        It cannot be read.
    pyanalyze.errors.NotACapture
        A pack of a later format.
    pyanalyze.errors.TableMismatch
        A pack with tables of a version that this package does not know.
    pyanalyze.errors.CaptureDamaged
        It does not hold what it says.

    Examples
    --------
    >>> import tempfile
    >>> from pyanalyze.export.pack import pack
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = pack(capture, Path(folder) / "run.pack", key=bytes(32))
    ...     len(unpack(made.path).captures)
    1
    """
    import sqlite3

    import polars as pl

    file = Path(path)
    # Opened as captures are: nothing is written, not even a lock file.
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        size = file.stat().st_size
        most = size // _LEAST_ROW_BYTES
        # A damaged file may repeat its pages: what is read from it could be longer than itself.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        about = _about(connection)
        if about["format"] != FORMAT:
            raise NotACapture(
                f"{file} is a pack of format {about['format']}, but this version reads {FORMAT}: update pyanalyze"
            )
        writer = visible(str(about.get("tool")), 24)
        described = {name: _Described.of(name, table, most, writer) for name, table in dict(about["tables"]).items()}
        names = _names(connection, size)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_ROW_BYTES)
        frames = {name: _read(connection, name, table, names) for name, table in described.items()}
        sampled = frames.pop(SAMPLES, None)
        told = frames.pop(CONTEXT, None)
        captures = _separated(frames, str(path), first)
    except (sqlite3.Error, TypeError, KeyError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise CaptureDamaged(f"{file}: the pack is damaged: {error}; make it again") from error
    except RecursionError as error:
        raise CaptureDamaged(f"{file}: the description of the pack is nested too deeply; make it again") from error
    finally:
        connection.close()
    return Unpacked(
        captures=captures,
        samples=()
        if sampled is None
        else tuple({SAMPLES: part} for part in sampled.partition_by("source", maintain_order=True)),
        context=() if told is None else (told,),
    )


def _separated(frames: dict[str, pl.DataFrame], path: str, first: int) -> tuple[dict[str, Any], ...]:
    """The tables of each capture, numbered from `first` on."""
    import polars as pl

    if absent := [name for name in _ALWAYS if name not in frames]:
        raise ValueError(f"there is no table {absent[0]}")
    numbers = sorted(frames["capture"]["capture"])
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"it holds {len(numbers)} captures of {len(set(numbers))} numbers")
    captures = []
    for place, number in enumerate(numbers):
        tables = {n: f.filter(pl.col("capture") == number) for n, f in frames.items()}
        tables["capture"] = tables["capture"].with_columns(path=pl.lit(path))
        own = pl.lit(first + place, dtype=pl.UInt32).alias("capture")
        captures.append({name: FrameTable(name, frame.with_columns(own)) for name, frame in tables.items()})
    return tuple(captures)


@dataclass(frozen=True)
class _Described:
    """What a pack says of a table, checked before anything of that size is made."""

    rows: int
    constants: dict[str, Any]
    columns: tuple[str, ...]
    names: frozenset[str]
    declared: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, name: str, said: Any, most: int, writer: str) -> _Described:
        declared = "configured" if name == CONTEXT else name
        known_version = declarations().get(declared, {}).get("version")
        if known_version is None or known_version != said["version"]:
            raise TableMismatch(
                f"the pack holds {declared}@{said['version']} of pyanalyze {writer}, this is {_core.__version__} and "
                f"knows {declared}@{known_version}; make the pack again from the capture"
            )
        columns = tuple(declarations()[declared]["columns"])
        known = {column["name"] for column in columns}
        rows, stored = said["rows"], tuple(said["columns"])
        if type(rows) is not int or not 0 <= rows <= (most if stored else 1):
            raise ValueError(f"{name} claims {rows} rows, but the file can hold {most if stored else 1}")
        if not known.issuperset(stored) or len(set(stored)) != len(stored):
            unknown = ", ".join(visible(str(column), 40) for column in stored if column not in known) or "one twice"
            raise TableMismatch(
                f"the pack was written by pyanalyze {writer}, this is {_core.__version__}: their columns of {declared} "
                f"differ ({unknown}); make the pack again from the capture"
            )
        return cls(rows, dict(said["constants"]), stored, frozenset(said["names"]), columns)


def _about(connection: sqlite3.Connection) -> Any:
    found = list(_rows(connection, "pack", ("about",), 1))
    if len(found) != 1:
        raise ValueError("it is not described once")
    return json.loads(found[0][0])


def _names(connection: sqlite3.Connection, size: int) -> dict[int, str]:
    """Every name once, by the number that stands for it."""
    names: dict[int, str] = {}
    for number, name in _rows(connection, "names", ("id", "name"), size):
        size -= len(name) + _LEAST_ROW_BYTES
        if size < 0:
            raise ValueError("the names are longer than the file")
        names[number] = name
    return names


def _rows(connection: sqlite3.Connection, table: str, columns: Sequence[str], most: int) -> Iterator[tuple[Any, ...]]:
    """Rows of a table that stands in the file, in order; at most one more than `most`: a file may repeat its pages.

    What is computed, a view or a generated column, may be larger than every file.
    """
    stored = connection.execute(
        "SELECT x.name FROM sqlite_master AS s, pragma_table_xinfo(s.name) AS x "
        "WHERE s.type = 'table' AND s.rootpage > 0 AND s.name = ? AND x.hidden = 0",
        (table,),
    )
    here = {name for (name,) in stored}
    if absent := [column for column in columns if column not in here]:
        raise ValueError(f"no column {absent[0]} of {table} is stored")
    chosen = ", ".join(map(quoted, columns))
    query = f"SELECT {chosen} FROM {quoted(table)} ORDER BY rowid LIMIT ?"  # noqa: S608 these are names of our own tables
    return connection.execute(query, (most + 1,))


def _read(connection: sqlite3.Connection, name: str, table: _Described, names: dict[int, str]) -> pl.DataFrame:
    import polars as pl

    plain = ("UInt8", "UInt16", "UInt32", "UInt64", "Int32", "Int64", "Float64", "Boolean")
    kinds = {kind: getattr(pl, kind)() for kind in plain}
    read: dict[str, list[Any]] = {column: [] for column in table.columns}
    if table.columns:
        rows = list(_rows(connection, name, table.columns, table.rows))
        read = dict(zip(table.columns, map(list, zip(*rows, strict=True)), strict=True)) if rows else read
        if len(rows) != table.rows:
            more = "more than " if len(rows) > table.rows else ""
            raise ValueError(f"{name} has {more}{min(len(rows), table.rows)} rows, not {table.rows}")
    made = []
    for column in table.declared:
        label, kind = column["name"], kinds.get(column["type"], pl.String())
        if label not in read:
            made.append(pl.Series(label, [table.constants.get(label)], dtype=kind).new_from_index(0, table.rows))
            continue
        values = read[label]
        if label in table.names:
            values = [None if value is None else names[value] for value in values]
        elif column["type"] == "UInt64":
            made.append(pl.Series(label, values, dtype=pl.Int64).reinterpret(signed=False))
            continue
        elif column["type"] == "Boolean":
            values = [None if value is None else bool(value) for value in values]
        made.append(pl.Series(label, values, dtype=kind))
    frame = pl.DataFrame(made)
    _possible(name, frame, table.declared)
    return frame


def _possible(name: str, frame: pl.DataFrame, declared: Sequence[dict[str, Any]]) -> None:
    """Refuse what no reader of a capture gives: the core computes with it as with what it has read itself."""
    for column in declared:
        label = column["name"]
        if not column["null"] and frame[label].null_count():
            raise ValueError(f"{name}.{label} is missing in {frame[label].null_count()} rows")
        if label.endswith("_ns") and column["type"] == "Int64":
            for time_ns in (frame[label].min(), frame[label].max()):
                if isinstance(time_ns, int) and not -FARTHEST_NS <= time_ns <= FARTHEST_NS:
                    raise ValueError(f"{name}.{label} is {time_ns} ns, which is out of range")
    if name in EVENT_TABLES and {"start_ns", "end_ns"}.issubset(frame.columns):
        lasted_ns = frame["end_ns"] - frame["start_ns"]
        for length_ns in (lasted_ns.min(), lasted_ns.max()):
            if isinstance(length_ns, int) and not 0 <= length_ns <= _LONGEST_NS:
                raise ValueError(f"{name} holds an interval of {length_ns} ns")
