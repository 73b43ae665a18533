"""A small file to hand on: only the tables and columns that we read, names under pseudonyms; it loads like a capture.

A pack is a SQLite file with our own tables (docs/schemas.md), as they were read and before anything was concluded, so
that every later version concludes anew. What nsys recorded besides (environment, command lines, threads, call stacks)
is not in it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import CaptureDamaged, NotACapture, TableMismatch, UsageError
from pyanalyze.files import replacing
from pyanalyze.inputs.nsys_export import PACK_ID, is_pack
from pyanalyze.tables.frames import EVENT_TABLES, FrameTable, declarations
from pyanalyze.tables.redact import Names, freed, renamed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl

    PathLike = str | os.PathLike[str]
    Progress = Callable[[str, int, int], object]

__all__ = ["FORMAT", "Packed", "Unpacked", "is_pack", "new_key", "pack", "read_key", "unpack"]

FORMAT = "pyanalyze.pack/1"
_SAMPLES, _CONTEXT = "nvml_samples", "context"
_KEY_BYTES = 32

#: A page of a SQLite file holds a row in no fewer bytes: a pointer of two, the row's length, its id, the length of its
#: header, and a header of at least one. A pack that claims more rows than fit into its file does not hold them.
_LEAST_ROW_BYTES = 6
#: Rows of events are at most 40 numbers; an offset into names is one.
_MOST_ROW_BYTES = 1024
#: Of every capture, whatever events it has.
_ALWAYS = ("capture", "sources", "quality", "devices", "processes", "contexts", "configured")
#: The limits of the reader of exports: no clock says a time further from zero, nothing on a GPU takes more than a year.
_FARTHEST_NS = 1 << 62
_LONGEST_NS = 366 * 86_400 * 10**9


@dataclass(frozen=True)
class Packed:
    """What was written, and what only the owner of the key can tell.

    Attributes
    ----------
    path
        The pack.
    names
        (kind, name, pseudonym) of every name that was replaced. Keep it, or make it again with the same key.
    rows
        Rows of every table in it.
    """

    path: Path
    names: tuple[tuple[str, str, str], ...]
    rows: dict[str, int]


@dataclass(frozen=True)
class Unpacked:
    """The content of a pack, as the readers of captures, samples and context would have given it."""

    captures: tuple[dict[str, Any], ...]
    samples: tuple[dict[str, Any], ...]
    context: tuple[pl.DataFrame, ...]


def pack(
    captures: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    key: bytes,
    samples: PathLike | Sequence[PathLike] = (),
    context: PathLike | Sequence[PathLike] = (),
    tables: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Packed:
    """Write captures, and what lies beside them, as one small file that can be analysed again.

    Parameters
    ----------
    captures, samples, context
        As :func:`pyanalyze.load` takes them.
    output
        The file to write.
    key
        Secret of the owner, at least 16 bytes (:func:`new_key` makes one). Pseudonyms are keyed digests of the names:
        the same key gives the same ones, without it they lead back to nothing, not even by guessing names.
    tables
        Event tables to pack; by default those that the analysis reads.
    force
        Replace an existing file.
    progress
        As :func:`pyanalyze.load` takes it.

    Returns
    -------
    Packed
        The file, and which name became which pseudonym.

    Raises
    ------
    pyanalyze.errors.UsageError
        A key that is too short, or a table that is none.
    pyanalyze.errors.SamplesUnreadable
        A samples or context file that no reader knows: a pack is not made without it in silence.
    OSError, pyanalyze.errors.CaptureUnreadable, pyanalyze.errors.OutputExists
        As :func:`pyanalyze.load`; the output is there and `force` is false.

    Notes
    -----
    Names of processes, kernels, ranges, containers, pods, nodes and files get pseudonyms; the host's hash is digested
    again. GPU names and UUIDs, process ids, times and CUDA API names stay as they are.

    Examples
    --------
    >>> import tempfile, pyanalyze
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = pack(capture, Path(folder) / "run.pack", key=bytes(32))
    ...     pyanalyze.load(made.path).classify()[0].mode
    'time-slicing'
    """
    from pyanalyze.inputs.capture import read_recordings
    from pyanalyze.inputs.context import read_context
    from pyanalyze.tables.frames import ANALYSIS_TABLES

    wanted = tuple(ANALYSIS_TABLES if tables is None else tables)
    unknown = sorted(set(wanted) - set(EVENT_TABLES))
    if unknown:
        raise UsageError(f"no event table is named {', '.join(unknown)}; choose from {', '.join(EVENT_TABLES)}")
    names = Names(_keyed(key))
    read = read_recordings(captures, wanted, progress)
    frames = _together(read.captures)
    sampled = [batch[_SAMPLES] for batch in read.samples] + [
        _core.read_samples(str(file), progress)[_SAMPLES] for file in _listed(samples)
    ]
    frames |= _concatenated(_SAMPLES, sampled)
    frames |= _concatenated(_CONTEXT, [*read.context, *(read_context(Path(file)) for file in _listed(context))])
    frames = {name: renamed(name, _own_hash(name, frame, key), names) for name, frame in frames.items()}
    frames = {name: freed("configured" if name == _CONTEXT else name, f, names) for name, f in frames.items()}
    with replacing(output, force=force) as temporary:
        _write(temporary, frames)
    return Packed(Path(output), tuple(names.items()), {name: frame.height for name, frame in frames.items()})


def new_key() -> bytes:
    """Make a key at random.

    Examples
    --------
    >>> len(new_key())
    32
    """
    return os.urandom(_KEY_BYTES)


def read_key(path: PathLike, *, create: bool = False) -> bytes:
    """Read a key file: hexadecimal digits; with `create` one is made, readable by its owner only.

    Raises
    ------
    FileNotFoundError
        It is not there, without `create`.
    pyanalyze.errors.UsageError
        It holds no key.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pack.key"
    ...     read_key(file, create=True) == read_key(file)
    True
    """
    file = Path(path)
    if create and not file.exists():
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(new_key().hex() + "\n")
    try:
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except (ValueError, UnicodeDecodeError):
        raise UsageError(f"{file} holds no key: at least 32 hexadecimal digits, such as new_key() makes") from None
    _long_enough(key)
    return key


def _long_enough(key: bytes) -> None:
    if len(key) < 16:
        raise UsageError(f"the key has {len(key)} bytes; names could be guessed through it: use at least 16")


def _keyed(key: bytes) -> Callable[[str, str, int], str]:
    import hashlib
    import hmac

    _long_enough(key)

    def invent(kind: str, name: str, _: int) -> str:
        data = f"{kind}\0{name}".encode("utf-8", "surrogatepass")
        return f"{kind}-{hmac.new(key, data, hashlib.sha256).hexdigest()[:12]}"

    return invent


def _own_hash(name: str, frame: pl.DataFrame, key: bytes) -> pl.DataFrame:
    """Digest the host's hash again: a plain hash of a host name can be guessed."""
    import polars as pl

    if name != "capture":
        return frame
    invent = _keyed(key)
    found = [None if value is None else invent("host", value, 0)[5:] for value in frame["host_hash"]]
    return frame.with_columns(pl.Series("host_hash", found, dtype=pl.String))


def _listed(paths: PathLike | Sequence[PathLike]) -> list[PathLike]:
    return [paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else list(paths)


def _together(captures: Sequence[dict[str, Any]]) -> dict[str, pl.DataFrame]:
    """One frame for every table, of all captures: `capture` tells them apart."""
    names = dict.fromkeys(name for tables in captures for name in tables)
    made: dict[str, pl.DataFrame] = {}
    for name in names:
        made |= _concatenated(name, [tables[name] for tables in captures if name in tables])
    return made


def _concatenated(name: str, parts: Sequence[Any]) -> dict[str, pl.DataFrame]:
    import polars as pl

    frames = [part if isinstance(part, pl.DataFrame) else pl.DataFrame(part) for part in parts]
    frames = [frame.with_columns(pl.col(pl.Categorical).cast(pl.String)) for frame in frames]
    return {name: pl.concat(frames, how="vertical_relaxed")} if frames else {}


def _write(path: Path, frames: dict[str, pl.DataFrame]) -> None:
    import sqlite3

    import polars as pl

    about: dict[str, Any] = {"format": FORMAT, "tool": _core.__version__, "tables": {}}
    connection = sqlite3.connect(path)
    try:
        connection.execute(f"PRAGMA application_id = {PACK_ID}")
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
        ids: dict[str, int] = {}
        for name, frame in frames.items():
            # Columns that say the same in every row, most of them nothing, stand once and not in a million rows.
            constants = {c: frame[c][0] if frame.height else None for c in frame.columns if frame[c].n_unique() <= 1}
            if frame.height > 1 and len(constants) == frame.width:
                # Rows that are nowhere could not be counted by who reads them.
                del constants[frame.columns[0]]
            rest = frame.drop(*constants)
            texts = [c for c, kind in rest.schema.items() if kind == pl.String]
            for column in texts:
                for text in rest[column].drop_nulls().unique(maintain_order=True):
                    ids.setdefault(text, len(ids))
            known = pl.DataFrame({"text": list(ids), "id": list(ids.values())}, schema={"text": str, "id": pl.Int64})
            stored = rest.with_columns(
                rest[c].replace_strict(known["text"], known["id"], default=None, return_dtype=pl.Int64) for c in texts
            ).with_columns(pl.col(pl.UInt64).reinterpret(signed=True), pl.col(pl.Boolean).cast(pl.Int8))
            version = declarations()["configured" if name == _CONTEXT else name]["version"]
            about["tables"][name] = {
                "version": version,
                "rows": frame.height,
                "constants": {c: value for c, value in constants.items() if value is not None},
                "columns": stored.columns,
                "names": texts,
            }
            if not stored.columns:
                continue
            kinds = (f"{_quoted(c)} {'REAL' if kind.is_float() else 'INTEGER'}" for c, kind in stored.schema.items())
            connection.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(kinds)}) STRICT")
            marks = ", ".join("?" for _ in stored.columns)
            # The names are those of our own tables and columns.
            connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", stored.iter_rows())  # noqa: S608
        connection.executemany("INSERT INTO names VALUES (?, ?)", ((i, text) for text, i in ids.items()))
        connection.execute("CREATE TABLE pack (about TEXT NOT NULL) STRICT")
        connection.execute("INSERT INTO pack VALUES (?)", (json.dumps(about, ensure_ascii=False, allow_nan=False),))
        connection.commit()
    finally:
        connection.close()


def _quoted(name: str) -> str:
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
            raise NotACapture(f"{file} is a pack of format {about['format']}; this version reads {FORMAT}: update it")
        described = {name: _Described.of(name, table, most) for name, table in dict(about["tables"]).items()}
        names = _names(connection, size)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_ROW_BYTES)
        frames = {name: _read(connection, name, table, names) for name, table in described.items()}
        sampled = frames.pop(_SAMPLES, None)
        told = frames.pop(_CONTEXT, None)
        captures = _separated(frames, str(path), first)
    except (sqlite3.Error, TypeError, KeyError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise CaptureDamaged(f"{file}: the pack does not hold what it says: {error}; make it again") from error
    except RecursionError as error:
        raise CaptureDamaged(f"{file}: the description of the pack is nested too deeply; make it again") from error
    finally:
        connection.close()
    return Unpacked(
        captures=captures,
        samples=()
        if sampled is None
        else tuple({_SAMPLES: part} for part in sampled.partition_by("source", maintain_order=True)),
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
    def of(cls, name: str, said: Any, most: int) -> _Described:
        declared = "configured" if name == _CONTEXT else name
        known_version = declarations().get(declared, {}).get("version")
        if known_version is None or known_version != said["version"]:
            raise TableMismatch(
                f"the pack holds {declared}@{said['version']}, this version of pyanalyze knows "
                f"{declared}@{known_version}; make the pack again from the capture"
            )
        columns = tuple(declarations()[declared]["columns"])
        known = {column["name"] for column in columns}
        rows, stored = said["rows"], tuple(said["columns"])
        if type(rows) is not int or not 0 <= rows <= (most if stored else 1):
            raise ValueError(f"{name} claims {rows} rows, and there is room for {most if stored else 1} in the file")
        if not known.issuperset(stored) or len(set(stored)) != len(stored):
            raise ValueError(f"{name} has no such columns: {', '.join(map(str, stored))}")
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
    chosen = ", ".join(map(_quoted, columns))
    query = f"SELECT {chosen} FROM {_quoted(table)} ORDER BY rowid LIMIT ?"  # noqa: S608 these are names of our own tables
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
                if isinstance(time_ns, int) and not -_FARTHEST_NS <= time_ns <= _FARTHEST_NS:
                    raise ValueError(f"{name}.{label} holds {time_ns} ns, which no clock says")
    if name in EVENT_TABLES and {"start_ns", "end_ns"}.issubset(frame.columns):
        lasted_ns = frame["end_ns"] - frame["start_ns"]
        for length_ns in (lasted_ns.min(), lasted_ns.max()):
            if isinstance(length_ns, int) and not 0 <= length_ns <= _LONGEST_NS:
                raise ValueError(f"{name} holds an interval of {length_ns} ns")
