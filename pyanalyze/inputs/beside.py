"""Read files given beside captures: samples and configuration, in whichever option they were named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.errors import SamplesUnreadable, UnknownFormat
from pyanalyze.files import head_of
from pyanalyze.inputs.other_formats import other_format

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    PathLike = str | os.PathLike[str]
    Progress = Callable[[str, int, int], object]

#: As much of a file as tells text from what is none.
_HEAD_BYTES = 512
#: A listing in a file of samples is looked for up to this size: pasted terminals and dumps are smaller.
_MAX_LISTING_BYTES = 4 << 20


@dataclass(frozen=True)
class Beside:
    """What was read of the files beside captures.

    Attributes
    ----------
    samples
        Tables of each file of samples, as the core takes them.
    configured
        Rows of `configured` of each file that holds configuration.
    unread
        Of each file that no reader knows: by its path, what to say.
    """

    samples: list[Mapping[str, object]]
    configured: list[pl.DataFrame]
    unread: dict[Path, str]


def read_beside(
    samples: Sequence[PathLike],
    context: Sequence[PathLike],
    progress: Progress | None = None,
    shown: Mapping[Path, str] | None = None,
) -> Beside:
    """Read samples and configuration.

    People do not know which of their files is which, and a pasted terminal is both: what one kind of reader does not
    know is offered to the other, and listings inside samples are read as well.

    Parameters
    ----------
    samples, context
        Files, as they were named.
    progress
        Called as ``progress(stage, done, total)``.
    shown
        Of files that stand in place of pipes: how these were named.

    Raises
    ------
    OSError
        A file cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "list.txt"
    ...     _ = file.write_text("GPU 0: NVIDIA L40S (UUID: GPU-00000000-0000-0000-0000-000000000001)")
    ...     found = read_beside([file], [])
    >>> len(found.samples), found.configured[0].height, found.unread
    (0, 1, {})
    """
    found = Beside([], [], {})
    as_samples, as_context = ({Path(file).absolute() for file in files} for files in (samples, context))
    for file in dict.fromkeys((*samples, *context)):
        path = Path(file).absolute()
        sampled, listed = None, None
        why: SamplesUnreadable | None = None
        why_not_listed: SamplesUnreadable | None = None
        if path in as_samples:
            sampled, why = _samples(file, progress)
        listed, why_not_listed = _listing(Path(file), must=path in as_context or sampled is None)
        if listed is None and path not in as_samples:
            sampled, _ = _samples(file, progress)
        name = (shown or {}).get(Path(file))
        if sampled is not None:
            found.samples.append(sampled if name is None else _called(sampled, str(file), name))
        if listed is not None:
            found.configured.append(listed)
        if sampled is None and listed is None:
            # The path first, however long the list of what is known.
            said = why or why_not_listed
            reason = str(said).partition(f"{file}: ")[2]
            other = other_format(file) if isinstance(said, UnknownFormat) else None
            found.unread[path] = f"{name or file}: {reason}" if other is None else f"{name or file} {other}"
    return found


def _called(tables: Mapping[str, object], path: str, name: str) -> dict[str, object]:
    """Tables of a file that stands in place of a pipe, under the name of the pipe."""
    import polars as pl

    from pyanalyze.tables.frames import to_frame

    columns = {"nvml_samples": "source", "quality": "detail"}
    return {
        # Tables of the core, or frames of what was converted.
        key: to_frame(table).with_columns(  # type: ignore[arg-type]
            pl.col(columns[key]).cast(pl.String).str.replace(path, name, literal=True)
        )
        for key, table in tables.items()
    }


def is_text(file: PathLike) -> bool:
    """Whether a file may be one of samples or configuration, and is no capture; PowerShell writes UTF-16.

    Examples
    --------
    >>> is_text(capture)
    False
    """
    path = Path(file)
    if not path.is_file():
        return False
    head = head_of(path, _HEAD_BYTES)
    return b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _samples(file: PathLike, progress: Progress | None) -> tuple[Mapping[str, object] | None, SamplesUnreadable | None]:
    """Tables of a file of samples; None, and why, where no reader knows it."""
    try:
        if Path(file).suffix == ".parquet":
            return _parquet_samples(Path(file)), None
        return _core.read_samples(str(file), progress), None
    except SamplesUnreadable as error:
        return None, error


def _listing(path: Path, *, must: bool) -> tuple[pl.DataFrame | None, SamplesUnreadable | None]:
    """Rows of `configured`; None, and why, where no reader knows anything in the file."""
    from pyanalyze.inputs.context import read_context

    if not must and (path.suffix == ".parquet" or path.stat().st_size > _MAX_LISTING_BYTES):
        return None, None
    try:
        return read_context(path), None
    except SamplesUnreadable as error:
        return None, error


def _parquet_samples(file: Path) -> dict[str, object]:
    """Take samples that were converted: the columns of `nvml_samples`, as `pyanalyze export` writes them."""
    import polars as pl

    table = next(t for t in _core.table_declarations() if t["name"] == "nvml_samples")
    kinds = {"Int64": pl.Int64, "UInt32": pl.UInt32, "Float64": pl.Float64}
    # Where a session put them before is that session's affair.
    forgotten = ("time_ns", "device_id")
    try:
        frame = pl.read_parquet(file, glob=False)
        columns = [
            (pl.col(name) if name in frame.columns and name not in forgotten else pl.lit(None).alias(name)).cast(
                kinds.get(column["type"], pl.String)
            )
            for column in table["columns"]
            for name in (column["name"],)
        ]
        frame = frame.select(columns)
    except pl.exceptions.PolarsError as error:
        raise SamplesUnreadable(f"{file}: not a Parquet file with the columns of nvml_samples: {error}") from error
    empty = [c["name"] for c in table["columns"] if c["null"] is None and frame[c["name"]].null_count()]
    if empty:
        raise SamplesUnreadable(f"{file}: {', '.join(empty)} must have a value in every row of nvml_samples")
    return {"nvml_samples": frame}
