"""The tables of a session as files: parquet, arrow, csv, sqlite, a trace for Perfetto, what `nsys stats` writes."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyanalyze.errors import UsageError
from pyanalyze.text.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl

    from pyanalyze.inputs.nsys_recipes import ReportTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["FOLDERS", "FORMATS", "STATS", "Source", "known_format", "naming", "refuse", "replacing_folder", "write"]

#: Formats that make a directory with one file per table.
FOLDERS = ("parquet", "arrow", "csv")
#: The reports of `nsys stats`, pooled and per tenant: a directory too, but not of our tables.
STATS = "nsys-stats"
FORMATS = (*FOLDERS, "sqlite", "perfetto", STATS)


def known_format(fmt: str) -> None:
    """Refuse a format that there is not, with what was meant.

    Examples
    --------
    >>> known_format("parquet")
    """
    if fmt not in FORMATS:
        raise UsageError(f"no format is named {fmt}; formats are {', '.join(FORMATS)}{did_you_mean(fmt, FORMATS)}")


class Source(Protocol):
    """What is written: :class:`pyanalyze.Session`."""

    @property
    def tables(self) -> TableSet:
        """Everything that was loaded."""

    @property
    def capture(self) -> pl.DataFrame:
        """One row for each capture."""

    @property
    def tenants(self) -> pl.DataFrame:
        """One row for each tenant and device."""

    def table(self, name: str) -> Any:
        """A table as the core has it."""

    def frame(self, name: str) -> pl.DataFrame:
        """A table as a frame."""

    def report(self) -> Any:
        """The JSON contract."""


def write(
    source: Source,
    fmt: str,
    output: Path,
    *,
    tables: Sequence[str] | None = None,
    force: bool = False,
    pace: str | None = None,
    nsys_reports: Sequence[Path] = (),
) -> Path:
    """Write the tables of a session, whole or not at all.

    Parameters
    ----------
    source
        What was loaded: a session.
    fmt
        One of `FORMATS`. `csv` writes categories as text; only `parquet` and `arrow` keep every column type.
    output
        Directory to make for `parquet`, `arrow`, `csv` (files `<table>.<format>`) and `nsys-stats`, else the file.
    tables
        Names of tables; by default all that the session holds, the modelled ones included.
    force
        Replace what is there; a directory only when it holds nothing but an earlier export.
    pace
        With `nsys-stats`: the short name of the kernel that `cuda_gpu_kern_pace` is made of.
    nsys_reports
        With `sqlite`: what nsys wrote of these captures, see :func:`pyanalyze.inputs.nsys_recipes.load_reports`. The
        table `nsys_disagreements` holds where its kernel summaries and we differ.

    Returns
    -------
    Path
        `output`.

    Raises
    ------
    pyanalyze.errors.OutputExists
        `output` is there (for a directory: and not empty) and `force` is false.
    pyanalyze.errors.UsageError
        A table that the session does not hold.
    OSError
        It cannot be written.

    Examples
    --------
    >>> import tempfile, pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write(session, "parquet", Path(folder) / "out", tables=["devices", "tenants"])
    ...     sorted(file.name for file in made.iterdir())
    ['devices.parquet', 'tenants.parquet']
    """
    if fmt == STATS:
        return _write_stats(source, output, pace, force=force)
    from pyanalyze.analysis.analysis import DERIVED_TABLES
    from pyanalyze.tables.memory import check

    names = [*source.tables.stored, *DERIVED_TABLES] if tables is None else list(dict.fromkeys(tables))
    if fmt == "perfetto":
        from pyanalyze.core import _core
        from pyanalyze.files import replacing

        handed = {name: source.table(name) for name in names}
        with replacing(output, force=force) as temporary:
            _core.write_perfetto(handed, str(temporary), None)
            check()
        return output
    frames = {name: source.frame(name) for name in names}
    if fmt == "sqlite":
        from pyanalyze.export import sqlite as store
        from pyanalyze.files import replacing
        from pyanalyze.inputs.nsys_recipes import load_reports, read_reports

        report = source.report().model_dump(mode="json", by_alias=True)
        if not nsys_reports:
            return store.save(frames, report, output, force=force)
        read = [table for path in nsys_reports for table in read_reports(path)]
        frames["nsys_disagreements"], versions = _beside(source, read)
        with replacing(output, force=force) as temporary:
            store.save(frames, report, temporary, force=True)
            load_reports(read, temporary, nsys_version=versions).close()
        return output
    check()
    with naming(output), replacing_folder(output, force=force) as folder:
        for name, frame in frames.items():
            _WRITERS[fmt](frame, folder / f"{name}.{fmt}")
            check()
    return output


def _beside(source: Source, read: Sequence[ReportTable]) -> tuple[pl.DataFrame, dict[str, str]]:
    """Where NVIDIA's kernel summaries say other than we do, and which nsys made each source."""
    import polars as pl

    from pyanalyze.export.nsys_stats import disagreements

    # `nsys stats` calls its tables after the export, so that the export's version is theirs.
    made = source.capture.select("path", "nsys_version").drop_nulls().iter_rows()
    versions = {Path(path).stem: version for path, version in made}
    found = []
    for table in (table for table in read if table.report == "cuda_gpu_kern_sum"):
        found.append(disagreements(table.rows, source.tables).insert_column(0, pl.lit(table.source).alias("source")))
    kinds = {"source": pl.String, "name": pl.String, "quantity": pl.String, "nsys": pl.Float64, "ours": pl.Float64}
    return pl.concat([pl.DataFrame(schema={**kinds, "reason": pl.String}), *found]), versions


def _write_stats(source: Source, output: Path, pace: str | None, *, force: bool) -> Path:
    """Write what nsys would say, and the same of every traced tenant; a report without rows is left out."""
    from pyanalyze.export.nsys_stats import NEED_API_CALLS, NEED_OPTIONS, PRODUCED, WHOLE_GPU, produce, write_csv
    from pyanalyze.tables.memory import check

    traced = source.tenants.filter("traced").sort("tenant_id")["tenant_id"].unique(maintain_order=True).to_list()
    with replacing_folder(output, force=force) as folder:
        # A session of the library may have been loaded without API calls.
        blind = () if "api_calls" in source.tables else NEED_API_CALLS
        given = {"kernel": pace} if pace is not None else {}
        for report in (name for name in PRODUCED if name not in blind):
            needed = NEED_OPTIONS.get(report)
            if needed is not None and needed not in given:
                continue
            options = {} if needed is None else {needed: given[needed]}
            for tenant in (None,) if report in WHOLE_GPU else (None, *traced):
                rows = produce(source.tables, report, tenant=tenant, **options)
                # What takes more than it may ends here, and not after the largest report.
                check()
                if rows.height:
                    suffix = "" if tenant is None else f".tenant-{tenant}"
                    with (folder / f"{report}{suffix}.csv").open("w", encoding="utf-8", newline="") as file:
                        write_csv(rows, report, file)
                    check()
    return output


@contextmanager
def naming(output: Path) -> Iterator[None]:
    """Make of the ways in which libraries say that a disk is full one error that names the output."""
    import polars as pl

    try:
        yield
    except pl.exceptions.ComputeError as error:
        raise OSError(errno.EIO, f"cannot be written ({error})", str(output)) from error
    except OSError as error:
        if error.filename:
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(output)) from error


def refuse(output: Path, *, folder: bool, force: bool) -> None:
    """Refuse before the work, not after it: what exists, and what is of the wrong kind."""
    from pyanalyze.errors import OutputExists, UsageError

    if folder and output.exists() and not output.is_dir():
        raise UsageError(
            f"{output} is a file, but this format makes a directory with one file per table; name another -o"
        )
    if not folder and output.is_dir():
        raise UsageError(f"{output} is a directory, but this format writes one file; name a file with -o")
    occupied = output.exists() and (not folder or any(output.iterdir()))
    if occupied and not force:
        what = "is a directory with files" if folder else "exists"
        raise OutputExists(f"{output} {what}; give --force to replace it, or another -o")
    if occupied and folder:
        foreign = sorted(file.name for file in output.iterdir() if not _is_ours(file))
        if foreign:
            raise UsageError(
                f"{output} holds a file that no export wrote ({foreign[0]}); --force would delete it: choose another -o"
            )


class replacing_folder:  # noqa: N801  # reads as the function `replacing` of files does
    """Give a temporary directory that becomes `path` when the block ends without an exception."""

    def __init__(self, path: Path, *, force: bool) -> None:
        self._target = Path(path).resolve()
        self._named = path
        self._force = force

    def __enter__(self) -> Path:
        """Make the temporary directory beside the target: a rename across file systems is not atomic."""
        import tempfile

        refuse(self._named, folder=True, force=self._force)
        self._temporary = Path(tempfile.mkdtemp(prefix=f".{self._target.name[:50]}.", dir=self._target.parent))
        # mkdtemp makes it private; the files inside follow the umask and so does a directory made by hand.
        self._temporary.chmod(0o755)
        return self._temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Publish, or leave nothing."""
        import shutil

        try:
            if kind is None:
                self._publish()
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _publish(self) -> None:
        import shutil

        # It may have been filled while the work went on.
        refuse(self._named, folder=True, force=self._force)
        if not (self._target.exists() and any(self._target.iterdir())):
            self._temporary.rename(self._target)
            return
        # A directory cannot be renamed over one that holds files: the old one steps aside and comes back on failure.
        aside = self._temporary.with_name(f"{self._temporary.name}.old")
        self._target.rename(aside)
        try:
            self._temporary.rename(self._target)
        except BaseException:
            aside.rename(self._target)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _is_ours(file: Path) -> bool:
    from pyanalyze.export.nsys_stats import PRODUCED
    from pyanalyze.tables.frames import declarations

    if file.suffix == ".csv" and file.name.split(".")[0] in PRODUCED:
        return file.is_file()
    return file.is_file() and file.stem in declarations() and file.suffix[1:] in FOLDERS


def _parquet(frame: pl.DataFrame, file: Path) -> None:
    frame.write_parquet(file)


def _arrow(frame: pl.DataFrame, file: Path) -> None:
    frame.write_ipc(file)


def _csv(frame: pl.DataFrame, file: Path) -> None:
    from pyanalyze.tables.frames import csv_safe

    csv_safe(frame).write_csv(file)


_WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {"parquet": _parquet, "arrow": _arrow, "csv": _csv}
