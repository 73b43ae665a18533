"""What `nsys stats`, `nsys analyze` and `nsys recipe` already wrote: read, kept in one database, compared with ours.

People have these files beside their captures, and NVIDIA's sums are an oracle for ours. A report is
recognised by its columns, not by its file name: names are chosen freely, columns are NVIDIA's.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pyanalyze.errors import OutputExists, SamplesUnreadable
from pyanalyze.text.numbers import LARGEST, bounded_float, bounded_int

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    import sqlite_utils

_Kind = type[int] | type[float] | type[str]


def _distribution(header: str, name: str) -> dict[str, tuple[str, _Kind]]:
    """Name the five columns that nsys gives for every quantity; whole nanoseconds stay integers."""
    return {
        f"{header}Avg(ns)": (f"{name}avg_ns", float),
        f"{header}Med(ns)": (f"{name}med_ns", float),
        f"{header}Min(ns)": (f"{name}min_ns", int),
        f"{header}Max(ns)": (f"{name}max_ns", int),
        f"{header}StdDev(ns)": (f"{name}stddev_ns", float),
    }


# Report -> header without spaces -> our name and type. One entry more is all that a new report takes.
# Headers are compared without spaces because nsys 2021 wrote `Time(%)` where later ones write `Time (%)`.
REPORTS: dict[str, dict[str, tuple[str, _Kind]]] = {
    "cuda_gpu_kern_sum": {
        "Time(%)": ("time_percent", float),
        "TotalTime(ns)": ("total_time_ns", int),
        "Instances": ("instances", int),
        **_distribution("", ""),
        "Name": ("name", str),
    },
    "cuda_gpu_mem_time_sum": {
        "Time(%)": ("time_percent", float),
        "TotalTime(ns)": ("total_time_ns", int),
        "Count": ("count", int),
        **_distribution("", ""),
        "Operation": ("operation", str),
    },
    "cuda_kern_exec_sum": {
        "PID": ("pid", int),
        "TID": ("tid", int),
        "DevId": ("dev_id", int),
        "Count": ("count", int),
        "QCount": ("queue_count", int),
        # T: from the start of the API call to the end of the kernel, A: the call, Q: end of the call to the
        # start of the kernel (null where the kernel started before the call returned), K: the kernel.
        **_distribution("T", "total_"),
        **_distribution("A", "api_"),
        **_distribution("Q", "queue_"),
        **_distribution("K", "kernel_"),
        "APIName": ("api_name", str),
        "KernelName": ("kernel_name", str),
    },
    "cuda_gpu_kern_gb_sum": {
        "Time(%)": ("time_percent", float),
        "TotalTime(ns)": ("total_time_ns", int),
        "Instances": ("instances", int),
        **_distribution("", ""),
        "GridXYZ": ("grid_xyz", str),
        "BlockXYZ": ("block_xyz", str),
        "Name": ("name", str),
    },
    "cuda_gpu_mem_size_sum": {
        "Total(MB)": ("total_mb", float),
        "Count": ("count", int),
        **{f"{header}(MB)": (f"{header.lower()}_mb", float) for header in ("Avg", "Med", "Min", "Max", "StdDev")},
        "Operation": ("operation", str),
    },
    "cuda_gpu_trace": {
        "Start(ns)": ("start_ns", int),
        "Duration(ns)": ("duration_ns", int),
        "CorrId": ("correlation_id", int),
        **{
            f"{header}{axis}": (f"{name}_{axis.lower()}", int)
            for header, name in (("Grd", "grid"), ("Blk", "block"))
            for axis in "XYZ"
        },
        "Reg/Trd": ("registers_per_thread", int),
        "StcSMem(MB)": ("static_shared_mb", float),
        "DymSMem(MB)": ("dynamic_shared_mb", float),
        "Bytes(MB)": ("size_mb", float),
        "Throughput(MB/s)": ("throughput_mb_per_s", float),
        "SrcMemKd": ("source_kind", str),
        "DstMemKd": ("destination_kind", str),
        "Device": ("device", str),
        "Ctx": ("context_id", int),
        "GreenCtx": ("green_context_id", int),
        "Strm": ("stream_id", int),
        "Name": ("name", str),
    },
    "cuda_api_sum": {
        "Time(%)": ("time_percent", float),
        "TotalTime(ns)": ("total_time_ns", int),
        "NumCalls": ("num_calls", int),
        **_distribution("", ""),
        "Name": ("name", str),
    },
    "cuda_kern_exec_trace": {
        "APIStart(ns)": ("api_start_ns", int),
        "APIDur(ns)": ("api_dur_ns", int),
        "QueueStart(ns)": ("queue_start_ns", int),
        "QueueDur(ns)": ("queue_dur_ns", int),
        "KernelStart(ns)": ("kernel_start_ns", int),
        "KernelDur(ns)": ("kernel_dur_ns", int),
        "TotalDur(ns)": ("total_dur_ns", int),
        "PID": ("pid", int),
        "TID": ("tid", int),
        "DevId": ("dev_id", int),
        "APIFunction": ("api_name", str),
        "GridXYZ": ("grid_xyz", str),
        "BlockXYZ": ("block_xyz", str),
        "KernelName": ("kernel_name", str),
    },
    # `nsys analyze`: gaps and use of the GPU by one process, in which another's work is idle time.
    "gpu_gaps": {
        "Row#": ("number", int),
        "Duration(ns)": ("duration_ns", int),
        "Start(ns)": ("start_ns", int),
        "PID": ("pid", int),
        "DeviceID": ("device_id", int),
        "ContextID": ("context_id", int),
    },
    "gpu_time_util": {
        "Row#": ("number", int),
        "In-Use(%)": ("in_use_percent", float),
        "Duration(ns)": ("duration_ns", int),
        "Start(ns)": ("start_ns", int),
        "PID": ("pid", int),
        "DeviceID": ("device_id", int),
        "ContextID": ("context_id", int),
    },
    # `nsys recipe`: analysis.parquet. `Duration` is the start of the bin.
    "cuda_gpu_time_util_map": {
        "Duration": ("bin_start_ns", float),
        "Kernel": ("kernel_percent", float),
        "PID": ("pid", int),
        "DeviceID": ("device_id", int),
        "File": ("file", str),
    },
    "gpu_metric_util_map": {
        "Duration": ("bin_start_ns", float),
        "SMActive": ("sm_active_percent", float),
        "SMIssue": ("sm_issue_percent", float),
        "TensorActive": ("tensor_active_percent", float),
        "GPU": ("gpu", int),
        "File": ("file", str),
    },
    # A folder of Parquet files, one per quantity, which are a table here. `Delta` is the time since the kernel's last
    # end (first: since the beginning of the session), `Accum` are running sums.
    "cuda_gpu_kern_pace": {
        "Rank": ("rank", int),
        "File": ("file", str),
        "Iteration": ("iteration", int),
        **{
            f"{header}(ns)": (f"{name}_ns", int)
            for header, name in (
                ("Start", "start"),
                ("End", "end"),
                ("Duration", "duration"),
                ("Delta", "delta"),
                ("DurationAccum", "duration_accum"),
                ("DeltaAccum", "delta_accum"),
            )
        },
    },
}

#: Columns that some versions of nsys do not write: null.
_OPTIONAL = {"GreenCtx"}

_POLARS: dict[_Kind, type[pl.DataType]] = {int: pl.Int64, float: pl.Float64, str: pl.String}

# The same report of two versions of nsys can differ (new columns, other names): both are kept.
_VERSION = "nsys_version"
_REPORT_KEY = ("report", "source", _VERSION)
#: Version of a report that does not say it: nsys writes none into its tables.
UNKNOWN_VERSION = "unknown"

# What `nsys stats > file` prints between the tables.
_CHATTER = re.compile(r"Processing \[|Generating |Exporting|Using |NOTICE|WARNING|SKIPPED|\s*\*\*|#")


@dataclass(frozen=True)
class ReportTable:
    """One report of one capture.

    Attributes
    ----------
    report
        NVIDIA's name of the report, such as `cuda_gpu_kern_sum`.
    source
        What it was made from: the file name without the report's name and the extension.
    path
        The file it was read from.
    rows
        One row per line, columns named and typed as in `REPORTS`; times in ns. Null: nsys left it empty.
    """

    report: str
    source: str
    path: Path
    rows: pl.DataFrame


def read_report(path: str | os.PathLike[str]) -> ReportTable:
    r"""Read one summary that `nsys stats --format csv|tsv|json`, `nsys analyze` or `nsys recipe` wrote.

    Parameters
    ----------
    path
        The file, or what was redirected from standard output: nsys's own lines around the table, and tables
        of other reports, are skipped. Of a recipe its `analysis.parquet`, or its folder.

    Returns
    -------
    ReportTable
        Report, source and typed rows.

    Raises
    ------
    SamplesUnreadable
        No known report, several of them, or a value that is not what its column promises. The message names
        the file, the line, and the reports that are known.
    OSError
        The file cannot be read.

    Notes
    -----
    Only nanoseconds are read: a file made with `--timeunit` other than `nsec` is rounded and is refused.

    Examples
    --------
    >>> import tempfile
    >>> text = "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
    >>> text += "100.0,960,2,480.0,480.0,480,480,0.0,[CUDA memset]\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "run_cuda_gpu_mem_time_sum.csv"
    ...     _ = file.write_text(text)
    ...     table = read_report(file)
    >>> table.report, table.source, table.rows["total_time_ns"].to_list()
    ('cuda_gpu_mem_time_sum', 'run', [960])
    """
    tables = read_reports(path)
    if len(tables) > 1:
        found = ", ".join(table.report for table in tables)
        raise SamplesUnreadable(f"{path} holds {len(tables)} reports ({found}); read it with read_reports")
    return tables[0]


def read_reports(path: str | os.PathLike[str]) -> list[ReportTable]:
    r"""Read all the summaries in one file.

    Parameters
    ----------
    path
        As for :func:`read_report`.

    Returns
    -------
    list of ReportTable
        At least one.

    Raises
    ------
    SamplesUnreadable, OSError
        As for :func:`read_report`.

    Examples
    --------
    >>> import tempfile
    >>> text = "Row#,Duration (ns),Start (ns),PID,Device ID,Context ID\n1,500000001,12,7,0,1\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "gaps.csv"
    ...     _ = file.write_text(text)
    ...     [table.report for table in read_reports(file)]
    ['gpu_gaps']
    """
    return _read(Path(path))


def load_reports(
    paths: Iterable[str | os.PathLike[str] | ReportTable],
    database: str | Path | None = None,
    *,
    nsys_version: str | Mapping[str, str] = UNKNOWN_VERSION,
) -> sqlite_utils.Database:
    r"""Read many summaries into one database.

    Parameters
    ----------
    paths
        Files as for `read_report`; one that holds several reports gives them all. Or what was read of them already.
    database
        A SQLite file to add to, made where it is missing; in memory without it.
    nsys_version
        The nsys that wrote them, or of each source (a source that is not named: unknown). The files do not say it; the
        captures that they were made from do: `session.frame("capture")["nsys_version"]`.

    Returns
    -------
    sqlite_utils.Database
        A table per report, its columns those of `REPORTS` after `source`, `nsys_version` and `row` (its key, counted
        from 0), and `reports` with `report`, `source`, `nsys_version`, `path`, `rows`. Loading a (report, source,
        nsys_version) again replaces it. All files are added or, if one cannot be read, none.

    Raises
    ------
    SamplesUnreadable
        As for `read_report`, and when two files give the same (report, source).
    OSError
        A file cannot be read.
    OutputExists
        `database` holds a table of one of these names with other columns; it is left as it was.
    sqlite3.Error
        `database` is no database or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> text = "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
    >>> text += "100.0,960,2,480.0,480.0,480,480,0.0,[CUDA memset]\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "run_cuda_gpu_mem_time_sum.csv"
    ...     _ = file.write_text(text)
    ...     database = load_reports([file])
    >>> list(database.query("SELECT source, total_time_ns FROM cuda_gpu_mem_time_sum"))
    [{'source': 'run', 'total_time_ns': 960}]
    >>> database.close()
    """
    import sqlite_utils

    tables: dict[tuple[str, str], ReportTable] = {}
    for path in paths:
        for table in [path] if isinstance(path, ReportTable) else read_reports(path):
            other = tables.setdefault((table.report, table.source), table)
            if other is not table:
                raise SamplesUnreadable(
                    f"{table.path} and {other.path} both give {table.report} of {table.source}; rename one of them"
                )
    store = sqlite_utils.Database(database, memory=database is None, strict=True, execute_plugins=False)
    try:
        with store.atomic():
            kept = {"report": str, "source": str, _VERSION: str, "path": str, "rows": int}
            _create(store, "reports", kept, _REPORT_KEY)
            for report, columns in REPORTS.items():
                keys = {"source": str, _VERSION: str, "row": int}
                _create(store, report, {**keys, **dict(columns.values())}, tuple(keys))
            for (report, source), table in tables.items():
                version = nsys_version if isinstance(nsys_version, str) else nsys_version.get(source, UNKNOWN_VERSION)
                store.table(report).delete_where(f"source = ? AND {_VERSION} = ?", [source, version])
                store.table(report).insert_all(
                    {"source": source, _VERSION: version, "row": number, **row}
                    for number, row in enumerate(table.rows.iter_rows(named=True))
                )
                entry = {
                    "report": report,
                    "source": source,
                    _VERSION: version,
                    "path": str(table.path),
                    "rows": table.rows.height,
                }
                store.table("reports").upsert(entry, pk=_REPORT_KEY)
    except BaseException:
        store.close()
        raise
    return store


def compare_kernel_summary(report_rows: pl.DataFrame, kernels: pl.DataFrame, tolerance: float = 0.0) -> pl.DataFrame:
    """List where NVIDIA's kernel summary and our kernels disagree.

    Parameters
    ----------
    report_rows
        Rows of `cuda_gpu_kern_sum` with full names (not `:base` or `:mangled`).
    kernels
        Our `kernels`: `name`, `start_ns`, `end_ns`. All captures in it count together.
    tolerance
        Relative difference that is no disagreement, beyond the one decimal that nsys prints.

    Returns
    -------
    polars.DataFrame
        One row per disagreement, sorted by name: `name`, `quantity` (`instances`, `total_time_ns`, `avg_ns`,
        `med_ns`, `min_ns`, `max_ns`; null where a side lacks the kernel), `nsys`, `ours`, `reason`. No rows:
        they agree.

    Raises
    ------
    ValueError
        `tolerance` is negative.
    polars.exceptions.ColumnNotFoundError
        A column is missing.

    Examples
    --------
    >>> nsys = pl.DataFrame({"name": ["f()"], "instances": [2], "total_time_ns": [30], "avg_ns": [15.0],
    ...                      "med_ns": [15.0], "min_ns": [10], "max_ns": [20]})
    >>> kernels = pl.DataFrame({"name": ["f()", "f()"], "start_ns": [0, 50], "end_ns": [10, 71]})
    >>> compare_kernel_summary(nsys, kernels).select("quantity", "nsys", "ours").rows()
    [('total_time_ns', 30.0, 31.0), ('avg_ns', 15.0, 15.5), ('med_ns', 15.0, 15.5), ('max_ns', 20.0, 21.0)]
    """
    if tolerance < 0:
        raise ValueError(f"tolerance is {tolerance}; it must not be negative")
    quantities = ["instances", "total_time_ns", "avg_ns", "med_ns", "min_ns", "max_ns"]
    duration = pl.col("end_ns") - pl.col("start_ns")
    ours = (
        kernels.select(pl.col("name").cast(pl.String), duration.alias("duration"))
        .group_by("name")
        .agg(
            pl.len().cast(pl.Float64).alias("instances"),
            pl.col("duration").sum().cast(pl.Float64).alias("total_time_ns"),
            pl.col("duration").mean().alias("avg_ns"),
            pl.col("duration").median().alias("med_ns"),
            pl.col("duration").min().cast(pl.Float64).alias("min_ns"),
            pl.col("duration").max().cast(pl.Float64).alias("max_ns"),
        )
    )
    theirs = report_rows.select(pl.col("name").cast(pl.String), *(pl.col(q).cast(pl.Float64) for q in quantities))
    seen = pl.lit(True)
    joined = theirs.with_columns(in_nsys=seen).join(
        ours.with_columns(in_ours=seen),
        on="name",
        how="full",
        coalesce=True,
        nulls_equal=True,
        suffix="_ours",
    )
    parts = [
        joined.filter(pl.col(missing).is_null()).select(
            "name",
            pl.lit(None, pl.String).alias("quantity"),
            pl.lit(None, pl.Float64).alias("nsys"),
            pl.lit(None, pl.Float64).alias("ours"),
            pl.lit(reason).alias("reason"),
            pl.lit(-1).alias("order"),
        )
        for missing, reason in (("in_ours", "only in the nsys report"), ("in_nsys", "only in our kernels"))
    ]
    both = joined.filter(pl.col("in_nsys") & pl.col("in_ours"))
    for order, quantity in enumerate(quantities):
        nsys, own = pl.col(quantity), pl.col(f"{quantity}_ours")
        # nsys prints averages and medians with one decimal; counts, sums and extremes are whole numbers.
        # The last part is what a float loses, so that 0.05 printed as 0.1 is no disagreement.
        printed = 0.05 + 1e-9 * nsys.abs() if quantity in ("avg_ns", "med_ns") else pl.lit(0.0)
        apart = (nsys - own).abs() > printed + tolerance * nsys.abs()
        parts.append(
            both.filter(apart | nsys.is_null()).select(
                "name",
                pl.lit(quantity).alias("quantity"),
                nsys.alias("nsys"),
                own.alias("ours"),
                pl.when(nsys.is_null())
                .then(pl.lit("not in the nsys report"))
                .otherwise(pl.format("ours is {} times theirs", (own / nsys).round(6)))
                .alias("reason"),
                pl.lit(order).alias("order"),
            )
        )
    return pl.concat(parts).sort("name", "order", nulls_last=True).drop("order")


def _create(store: sqlite_utils.Database, name: str, columns: dict[str, _Kind], key: tuple[str, ...]) -> None:
    table = store.table(name)
    if not table.exists():
        table.create(columns, pk=key)
    elif table.columns_dict.keys() != columns.keys():
        raise OutputExists(f"the database holds a table {name} that is not ours; name another database")


def _read(path: Path) -> list[ReportTable]:
    if path.is_dir():
        return [_from_folder(path)]
    data = path.read_bytes()
    text = "" if data.startswith(_PARQUET) else data.decode("utf-8-sig", errors="replace")
    try:
        if data.startswith(_PARQUET):
            found = list(_from_parquet(data))
        else:
            found = list(_from_json(text) if text.lstrip()[:1] in ("[", "{") else _from_lines(text))
    except _Wrong as wrong:
        raise SamplesUnreadable(f"{path}: {wrong}") from None
    if not found:
        raise SamplesUnreadable(f"{path}: {_nothing(text)}")
    tables = []
    for report, records in found:
        columns = REPORTS[report]
        schema = {name: _POLARS[kind] for name, kind in columns.values()}
        frame = pl.DataFrame(records, schema=schema, orient="row")
        tables.append(ReportTable(report, _source(path, report), path, frame))
    names = [table.report for table in tables]
    if len(set(names)) < len(names):
        # `nsys stats` of two captures into one file: the tables do not say which is whose.
        raise SamplesUnreadable(f"{path} holds the same report twice; write one file per capture")
    return tables


# What the recipe calls its files, and the header of the quantity in ours.
_PACE = {
    "start": "Start(ns)",
    "end": "End(ns)",
    "duration": "Duration(ns)",
    "delta": "Delta(ns)",
    "duration_accum": "DurationAccum(ns)",
    "delta_accum": "DeltaAccum(ns)",
}


def _from_folder(folder: Path) -> ReportTable:
    """What a recipe left in its folder."""
    analysis = folder / "analysis.parquet"
    if analysis.is_file():
        table = _read(analysis)[0]
        return ReportTable(table.report, folder.name, folder, table.rows)
    files = {name: folder / f"pace_{name}.parquet" for name in _PACE}
    missing = sorted(file.name for file in (*files.values(), folder / "files.parquet") if not file.is_file())
    if missing:
        raise SamplesUnreadable(
            f"{folder} is no folder of a recipe that is known here: it has neither analysis.parquet "
            "(cuda_gpu_time_util_map, gpu_metric_util_map) nor all files of cuda_gpu_kern_pace "
            f"(missing: {', '.join(missing)})"
        )
    try:
        records = list(_from_pace(folder, files))
    except _Wrong as wrong:
        raise SamplesUnreadable(f"{folder}: {wrong}") from None
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise SamplesUnreadable(f"{folder}: damaged files of a recipe: {error}; run it again") from None
    schema = {name: _POLARS[kind] for name, kind in REPORTS["cuda_gpu_kern_pace"].values()}
    return ReportTable("cuda_gpu_kern_pace", folder.name, folder, pl.DataFrame(records, schema=schema, orient="row"))


def _from_pace(folder: Path, files: Mapping[str, Path]) -> Iterator[tuple[Any, ...]]:
    # The same files are written of NVTX ranges; what they are of stands in the recipe's own description.
    for described in folder.glob("*.nsys-analysis"):
        recipe = json.loads(described.read_text(encoding="utf-8"))
        name = recipe.get("RecipeName") if isinstance(recipe, dict) else None
        if name not in (None, "cuda_gpu_kern_pace"):
            raise _Wrong(f"it was written by the recipe {str(name)[:40]!r}" + _known())
    names = pl.read_parquet(folder / "files.parquet").to_series(0).to_list()
    wide = {quantity: pl.read_parquet(file) for quantity, file in files.items()}
    for rank, name in enumerate(names):
        columns = [wide[quantity][str(rank)].to_list() for quantity in _PACE]
        for number, values in enumerate(zip(*columns, strict=True)):
            # A rank with fewer iterations than another has empty places at its end.
            if any(value is not None for value in values):
                row = dict(zip(_PACE.values(), values, strict=True))
                row |= {"Rank": rank, "File": name, "Iteration": number}
                yield _row("cuda_gpu_kern_pace", row, f"rank {rank}, iteration {number}")


class _Wrong(Exception):
    """What is wrong, without the file's name."""


def _known() -> str:
    return "; known are " + ", ".join(f"{report} ({', '.join(columns)})" for report, columns in REPORTS.items())


def _nothing(text: str) -> str:
    skipped = re.search(r"SKIPPED: .*", text)
    if skipped:
        return f"nsys wrote no table: {skipped[0].strip()}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"no known nsys report, it starts with {first[:120]!r}" + _known()


def _recognise(header: Iterable[str]) -> tuple[str, list[str]] | None:
    """Report of a header line, and its columns in the order of the file."""
    columns = ["".join(str(name).split()) for name in header]
    for report, known in REPORTS.items():
        if len(columns) == len(set(columns)) and set(columns) <= known.keys() <= set(columns) | _OPTIONAL:
            return report, columns
    return None


_PARQUET = b"PAR1"


def _from_parquet(data: bytes) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """What a recipe wrote through pandas; its index, where it was named, is a column like others."""
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _Wrong(f"damaged Parquet: {error}; run the recipe again") from None
    frame = frame.drop([name for name in frame.columns if name.startswith("__index_level")])
    match = _recognise(frame.columns)
    if match is None:
        raise _Wrong(f"the columns are {', '.join(frame.columns)[:300]}" + _known())
    report, columns = match
    # Bins are an interval's start as text or number, categories are text.
    rows = frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).iter_rows()
    named = (dict(zip(columns, row, strict=True)) for row in rows)
    yield report, [_row(report, values, f"row {number}") for number, values in enumerate(named, 1)]


def _from_json(text: str) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise _Wrong(f"damaged JSON at line {error.lineno}: {error.msg}; write the report again") from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise _Wrong("not the list of rows that `nsys stats --format json` writes" + _known())
    rows: list[tuple[Any, ...]] = []
    report = None
    for number, record in enumerate(records, 1):
        match = _recognise(record)
        if match is None or report not in (None, match[0]):
            raise _Wrong(f"row {number} has the columns {', '.join(record)[:300]}" + _known())
        report = match[0]
        rows.append(_row(report, dict(zip(match[1], record.values(), strict=True)), f"row {number}"))
    if report is not None:
        yield report, rows


def _from_lines(text: str) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    lines = text.splitlines()
    delimiter = next(
        (d for line in lines for d in ",\t" if _recognise(next(csv.reader([line], delimiter=d), []))), None
    )
    if delimiter is None:
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    open_table: tuple[str, list[str], list[tuple[Any, ...]]] | None = None
    try:
        for fields in reader:
            match = _recognise(fields)
            if match is not None:
                if open_table:
                    yield open_table[0], open_table[2]
                open_table = (match[0], match[1], [])
            elif open_table and fields and len(fields) == len(open_table[1]):
                where = f"line {reader.line_num}"
                values = dict(zip(open_table[1], fields, strict=True))
                open_table[2].append(_row(open_table[0], values, where))
            elif open_table:
                if fields and fields[0].strip() and not _CHATTER.match(fields[0]):
                    # Not a row and not a word of nsys: cut off, or another table that we do not know.
                    raise _Wrong(
                        f"line {reader.line_num} has {len(fields)} fields instead of the "
                        f"{len(open_table[1])} of {open_table[0]}; write the report again, or one file per "
                        "report" + _known()
                    )
                yield open_table[0], open_table[2]
                open_table = None
    except csv.Error as error:
        raise _Wrong(f"line {reader.line_num}: {error}; write the report again") from None
    if open_table:
        yield open_table[0], open_table[2]


def _row(report: str, values: dict[str, Any], where: str) -> tuple[Any, ...]:
    return tuple(_value(values.get(header), kind, header, where) for header, (_, kind) in REPORTS[report].items())


def _value(value: Any, kind: _Kind, header: str, where: str) -> int | float | str | None:
    if value is None or value == "":
        return None
    if kind is str:
        return str(value)
    number = _whole(value) if kind is int else bounded_float(value)
    if number is None:
        wanted = "a whole number" if kind is int else "a number"
        raise _Wrong(f"{where}, column {header}: {str(value)[:40]!r} is not {wanted}; write the report again")
    return number


def _whole(value: Any) -> int | None:
    # Beyond 64 bits no time and no count can be.
    if isinstance(value, str):
        return bounded_int(value, -LARGEST)
    # int(1.5) is 1: not what stands there.
    number = bounded_float(value, -LARGEST, LARGEST)
    return int(value) if number is not None and number.is_integer() else None


def _source(path: Path, report: str) -> str:
    # `nsys stats -o run` writes run_cuda_gpu_kern_sum.csv.
    stem = path.name.rsplit(".", 1)[0]
    return stem.removesuffix(report).rstrip("_") or stem
