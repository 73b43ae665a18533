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
from pyanalyze.errors import UsageError
from pyanalyze.files import replacing
from pyanalyze.inputs.nsys_export import PACK_ID
from pyanalyze.inputs.pack import CONTEXT, FORMAT, SAMPLES, quoted
from pyanalyze.tables.frames import EVENT_TABLES, declarations
from pyanalyze.tables.memory import check
from pyanalyze.tables.redact import Names, freed, renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    PathLike = str | os.PathLike[str]
    Progress = Callable[[str, int, int], object]

__all__ = ["Packed", "new_key", "pack", "read_key"]

_KEY_BYTES = 32


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
        raise UsageError(f"there is no event table {', '.join(unknown)}; choose from {', '.join(EVENT_TABLES)}")
    names = Names(_keyed(key))
    read = read_recordings(captures, wanted, progress)
    frames = _together(read.captures)
    check()
    sampled = [batch[SAMPLES] for batch in read.samples] + [
        _core.read_samples(str(file), progress)[SAMPLES] for file in _listed(samples)
    ]
    frames |= _concatenated(SAMPLES, sampled)
    frames |= _concatenated(CONTEXT, [*read.context, *(read_context(Path(file)) for file in _listed(context))])
    frames = {name: renamed(name, _own_hash(name, frame, key), names) for name, frame in frames.items()}
    frames = {name: freed("configured" if name == CONTEXT else name, f, names) for name, f in frames.items()}
    with replacing(output, force=force) as temporary:
        _write(temporary, frames)
        check()
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
        raise UsageError(f"{file} has no key: at least 32 hexadecimal digits, such as new_key() makes") from None
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
            check()
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
            version = declarations()["configured" if name == CONTEXT else name]["version"]
            about["tables"][name] = {
                "version": version,
                "rows": frame.height,
                "constants": {c: value for c, value in constants.items() if value is not None},
                "columns": stored.columns,
                "names": texts,
            }
            if not stored.columns:
                continue
            kinds = (f"{quoted(c)} {'REAL' if kind.is_float() else 'INTEGER'}" for c, kind in stored.schema.items())
            connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(kinds)}) STRICT")
            marks = ", ".join("?" for _ in stored.columns)
            # The names are those of our own tables and columns.
            connection.executemany(f"INSERT INTO {quoted(name)} VALUES ({marks})", stored.iter_rows())  # noqa: S608
        connection.executemany("INSERT INTO names VALUES (?, ?)", ((i, text) for text, i in ids.items()))
        connection.execute("CREATE TABLE pack (about TEXT NOT NULL) STRICT")
        connection.execute("INSERT INTO pack VALUES (?)", (json.dumps(about, ensure_ascii=False, allow_nan=False),))
        connection.commit()
    finally:
        connection.close()
