"""Read a pack, the small file that `pyanalyze pack` writes; nothing in it is trusted.

`pyanalyze.export.pack` writes it and says what is in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import CaptureDamaged, NotACapture, TableMismatch
from pyanalyze.tables.frames import EVENT_TABLES, declarations
from pyanalyze.tables.memory import check
from pyanalyze.text.escape import visible
from pyanalyze.text.numbers import FARTHEST_NS

if TYPE_CHECKING:
    import os
    import sqlite3
    from collections.abc import Collection, Iterator, Mapping, Sequence

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
#: More captures, or files of samples, than one session has. Each of them costs time and memory by itself.
_MOST_FILES = 4096
#: Texts that do not repeat, in a row of a table: a file that names one of them again and again would grow without end.
_MOST_TEXT_BYTES = 1024
#: Rows that stand in Python at a time.
_PIECE_ROWS = 1 << 16
#: Declared types that a pack stores as they are, and what polars calls them; all others are texts.
_KINDS = {kind: kind for kind in ("UInt8", "UInt16", "UInt32", "UInt64", "Int32", "Int64", "Float64", "Boolean")}
_TEXT = "Utf8"
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


def unpack(path: PathLike, first: int = 0, events: Collection[str] = EVENT_TABLES) -> Unpacked:
    """Read a pack.

    Parameters
    ----------
    path
        The pack.
    first
        Number that its first capture gets in the session.
    events
        Tables of events to read, as far as they were packed: of a large pack the others take most of the time.

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
                f"{file} is a pack of format {visible(str(about['format']), 40)}, but this version reads {FORMAT}: "
                "update pyanalyze"
            )
        writer = visible(str(about.get("tool")), 24)
        described = {name: _Described.of(name, table, most, writer) for name, table in dict(about["tables"]).items()}
        names = _names(connection, size)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_ROW_BYTES)
        left_out = {*EVENT_TABLES}.difference(events)
        read = {name: table for name, table in described.items() if name not in left_out}
        return _Source(connection, names, size).unpacked(read, first, str(path))
    except (sqlite3.Error, TypeError, KeyError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise CaptureDamaged(f"{file}: the pack is damaged: {error}; make it again") from error
    except RecursionError as error:
        raise CaptureDamaged(f"{file}: the description of the pack is nested too deeply; make it again") from error
    finally:
        connection.close()


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
        version = said["version"]
        if known_version is None or known_version != version:
            raise TableMismatch(
                f"the pack holds {visible(declared)}@{visible(str(version), 24)} of pyanalyze {writer}, this is "
                f"{_core.__version__} and knows {visible(declared)}@{known_version}; make the pack again from the "
                "capture"
            )
        columns = tuple(declarations()[declared]["columns"])
        known = {column["name"] for column in columns}
        rows, stored = said["rows"], tuple(said["columns"])
        if type(rows) is not int or not 0 <= rows <= (most if stored else 1):
            raise ValueError(f"{name} claims {rows} rows, but the file can hold at most {most if stored else 1}")
        if not known.issuperset(stored) or len(set(stored)) != len(stored):
            unknown = ", ".join(visible(str(column), 40) for column in stored if column not in known) or "one twice"
            raise TableMismatch(
                f"the pack was written by pyanalyze {writer}, this is {_core.__version__}: their columns of {declared} "
                f"differ ({unknown}); make the pack again from the capture"
            )
        return cls(rows, dict(said["constants"]), stored, frozenset(said["names"]), columns)


@cache
def _words() -> dict[tuple[str, str], frozenset[str]]:
    """Columns that hold words of ours, and which."""
    counters = _core.quality_counters()
    return {
        ("sources", "state"): frozenset({"present", "empty", "absent", "unread", "removed"}),
        ("quality", "name"): frozenset(counter["name"] for counter in counters),
        ("quality", "severity"): frozenset(counter["severity"] for counter in counters),
    }


def _about(connection: sqlite3.Connection) -> Any:
    found = list(_rows(connection, "pack", ("about",), 1))
    if len(found) != 1:
        raise ValueError("it is not described once")
    about = json.loads(found[0][0])
    if not isinstance(about, dict):
        raise ValueError("its description is not a JSON object")  # noqa: TRY004 of its text, not of an argument
    return about


def _names(connection: sqlite3.Connection, size: int) -> dict[int, str]:
    """Every name once, by the number that stands for it."""
    names: dict[int, str] = {}
    for number, name in _rows(connection, "names", ("id", "name"), size):
        size -= len(name) + _LEAST_ROW_BYTES
        if size < 0:
            raise ValueError("the names are longer than the file")
        names[number] = name
    return names


def _rows(connection: sqlite3.Connection, table: str, columns: Sequence[str], most: int) -> sqlite3.Cursor:
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


@dataclass(frozen=True)
class _Source:
    """Reads rows of a pack piece by piece, so that neither rows nor repeated texts stand in Python all at once."""

    connection: sqlite3.Connection
    names: Mapping[int, str]
    size: int

    def unpacked(self, described: Mapping[str, _Described], first: int, path: str) -> Unpacked:
        """Read everything; captures are numbered from `first` on."""
        if absent := [name for name in _ALWAYS if name not in described]:
            raise ValueError(f"there is no table {absent[0]}")
        numbers = self.capture_numbers(described["capture"], first)
        captures: tuple[dict[str, Any], ...] = tuple({} for _ in numbers)
        for name, table in described.items():
            if name in (SAMPLES, CONTEXT):
                continue
            for tables, collected in zip(captures, self.of_captures(name, table, numbers, path), strict=True):
                tables[name] = collected
        sampled = self.whole(SAMPLES, described[SAMPLES]) if SAMPLES in described else None
        told = self.whole(CONTEXT, described[CONTEXT]) if CONTEXT in described else None
        files = 0 if sampled is None else sampled["source"].n_unique()
        if files > _MOST_FILES:
            raise ValueError(f"it holds samples of {files} files")
        batches = () if sampled is None else sampled.partition_by("source", maintain_order=True)
        return Unpacked(captures, tuple({SAMPLES: part} for part in batches), () if told is None else (told,))

    def capture_numbers(self, table: _Described, first: int) -> dict[int, int]:
        """Numbers that the captures have in the pack, and those that they get in the session."""
        found = [number for piece in self._pieces("capture", table) for number in piece["capture"].to_list()]
        if not found or len(set(found)) != len(found) or len(found) > _MOST_FILES:
            raise ValueError(f"it holds {len(found)} captures of {len(set(found))} numbers")
        return {number: first + place for place, number in enumerate(sorted(found))}

    def of_captures(
        self, name: str, table: _Described, numbers: Mapping[int, int], path: str
    ) -> tuple[_core.Table, ...]:
        """Read a table of every capture, in order."""
        import polars as pl

        # Of several captures nobody says how many rows each has.
        room = table.rows if len(numbers) == 1 else 0
        collectors = {number: _core.Collector(name, room) for number in numbers}
        for piece in self._pieces(name, table):
            if name == "capture":
                piece = piece.with_columns(path=pl.lit(path))
            for (number,), part in piece.partition_by("capture", as_dict=True, maintain_order=True).items():
                if number in collectors:
                    own = pl.lit(numbers[number], dtype=pl.UInt32).alias("capture")
                    collectors[number].add(part.with_columns(own))
        return tuple(collector.finish() for collector in collectors.values())

    def whole(self, name: str, table: _Described) -> pl.DataFrame:
        """Read a table that is of no capture."""
        import polars as pl

        collector = _core.Collector("configured" if name == CONTEXT else name, table.rows)
        for piece in self._pieces(name, table):
            collector.add(piece)
        return pl.DataFrame(collector.finish())

    def _pieces(self, name: str, table: _Described) -> Iterator[pl.DataFrame]:
        """Rows of a table, some thousands at a time; columns without any value are left out."""
        rows = 0
        room = self.size + _MOST_TEXT_BYTES * table.rows
        for values in self._stored(name, table):
            check()
            rows += len(next(iter(values.values()))) if values else table.rows
            if rows > table.rows:
                raise ValueError(f"{name} has more than {table.rows} rows, not {table.rows}")
            piece, texts = self._frame(table, values, rows if not values else None)
            room -= texts
            if room < 0:
                raise ValueError(f"the texts of {name} are longer than {_MOST_TEXT_BYTES} bytes a row")
            _possible(name, piece, table.declared)
            yield piece
        if rows < table.rows:
            raise ValueError(f"{name} has {rows} rows, not {table.rows}")

    def _stored(self, name: str, table: _Described) -> Iterator[dict[str, tuple[Any, ...]]]:
        if not table.columns:
            if table.rows:
                yield {}
            return
        cursor = _rows(self.connection, name, table.columns, table.rows)
        while piece := cursor.fetchmany(_PIECE_ROWS):
            yield dict(zip(table.columns, zip(*piece, strict=True), strict=True))

    def _frame(
        self, table: _Described, stored: Mapping[str, tuple[Any, ...]], rows: int | None
    ) -> tuple[pl.DataFrame, int]:
        """Columns of their declared types, and the length of texts in them that stand once for every row."""
        import polars as pl

        count = rows if rows is not None else len(next(iter(stored.values())))
        columns: list[pl.Series] = []
        texts = 0
        for column in table.declared:
            label, declared = column["name"], column["type"]
            if label not in stored:
                value = table.constants.get(label)
                if value is None:
                    continue
                kind = _KINDS.get(declared, "String")
                if kind == "String":
                    texts += _text_bytes(value) * (count if declared == _TEXT else 1)
                    if declared != _TEXT:
                        columns.append(_categories(label, [value] * count))
                        continue
                    if texts > self.size + _MOST_TEXT_BYTES * table.rows:
                        raise ValueError(f"the text of {label} is too long")
                columns.append(_series(label, [value], kind).new_from_index(0, count))
                continue
            values: Sequence[Any] = stored[label]
            if label in table.names:
                values = [None if value is None else self.names[value] for value in values]
                if declared == _TEXT:
                    texts += sum(map(len, filter(None, values)))
                    if texts > self.size + _MOST_TEXT_BYTES * table.rows:
                        raise ValueError(f"the texts of {label} are too long")
                    columns.append(pl.Series(label, values, dtype=pl.String()))
                else:
                    columns.append(_categories(label, values))
            elif declared == "UInt64":
                columns.append(_series(label, values, "Int64").reinterpret(signed=False))
            elif declared == "Boolean":
                columns.append(pl.Series(label, [None if v is None else bool(v) for v in values], dtype=pl.Boolean()))
            elif declared in _KINDS:
                columns.append(_series(label, values, _KINDS[declared]))
            else:
                raise ValueError(f"{label} holds numbers in the place of names")
        return pl.DataFrame(columns), texts


def _series(label: str, values: Sequence[Any], kind: str) -> pl.Series:
    """A column; what does not fit its type ends in an error that names the column."""
    import polars as pl

    try:
        return pl.Series(label, values, dtype=getattr(pl, kind)())
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{label} holds a value that is no {kind}") from error


def _text_bytes(value: object) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{visible(str(value), 40)} is no text")
    return len(value)


def _categories(label: str, values: Sequence[str | None]) -> pl.Series:
    """A column of names, each of which stands once, however often it is meant and however long it is."""
    import polars as pl

    places: dict[str, int] = {}
    codes = [None if value is None else places.setdefault(value, len(places)) for value in values]
    return pl.Series(label, codes, dtype=pl.UInt32()).cat.to(pl.Enum(list(places)))


def _possible(name: str, frame: pl.DataFrame, declared: Sequence[dict[str, Any]]) -> None:
    """Refuse what no reader of a capture gives: the core computes with it as with what it has read itself."""
    for column in declared:
        label = column["name"]
        missing = frame[label].null_count() if label in frame.columns else frame.height
        if not column["null"] and missing:
            raise ValueError(f"{name}.{label} is missing in {missing} rows")
        if label not in frame.columns:
            continue
        known = _words().get((name, label))
        if known is not None:
            odd = [word for word in frame[label].drop_nulls().unique().to_list() if word not in known]
            if odd:
                raise ValueError(
                    f"{name}.{label} is {visible(odd[0], 40)}, which is none of {', '.join(sorted(known)[:5])}"
                )
        if label.endswith("_ns") and column["type"] == "Int64":
            for time_ns in (frame[label].min(), frame[label].max()):
                if isinstance(time_ns, int) and not -FARTHEST_NS <= time_ns <= FARTHEST_NS:
                    raise ValueError(f"{name}.{label} is {time_ns} ns, which is out of range")
    if name in EVENT_TABLES and {"start_ns", "end_ns"}.issubset(frame.columns):
        lasted_ns = frame["end_ns"] - frame["start_ns"]
        for length_ns in (lasted_ns.min(), lasted_ns.max()):
            if isinstance(length_ns, int) and not 0 <= length_ns <= _LONGEST_NS:
                raise ValueError(f"{name} holds an interval of {length_ns} ns")
