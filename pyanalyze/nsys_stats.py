"""The reports of `nsys stats`, made by us from a capture: the same columns, for all processes or for one tenant.

nsys pools all processes of a capture in one table. Under sharing that hides what is asked: whose kernels they are. Here
the same tables can be made for each tenant, and are otherwise equal to NVIDIA's.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.exceptions import UsageError
from pyanalyze.nsys_recipes import REPORTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyanalyze.session import Session

__all__ = ["PRODUCED", "disagreements", "produce", "to_csv"]

#: CUPTI memory kinds, as ENUM_CUDA_MEM_KIND labels them.
_MEMORY_KINDS = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}


def produce(session: Session, report: str, *, tenant: int | None = None) -> pl.DataFrame:
    """Make a report of `nsys stats` from a session.

    Parameters
    ----------
    session
        A loaded session; `cuda_api_sum` and `cuda_kern_exec_trace` need ``load(tables=(..., "api_calls"))``.
    report
        One of :data:`PRODUCED`.
    tenant
        Tenant id: its rows only; None pools all, as nsys does.

    Returns
    -------
    polars.DataFrame
        Columns named and typed as :data:`pyanalyze.nsys_recipes.REPORTS` reads them, values rounded as nsys prints
        them, in its order; rows that tie are ordered by name.

    Raises
    ------
    pyanalyze.exceptions.UsageError
        No such report, or the session holds no API calls.

    Notes
    -----
    Durations are those recorded: they hold the time a context was switched out, as NVIDIA's do. `charged` has them
    without it.

    Examples
    --------
    >>> import pyanalyze
    >>> produce(pyanalyze.load(capture), "cuda_gpu_kern_sum", tenant=1).select("instances", "name").rows()[0]
    (106, 'B3(float *, const float *, int)')
    """
    make = PRODUCED.get(report)
    if make is None:
        raise UsageError(f"no report {report} can be made; choose from {', '.join(PRODUCED)}")
    frame = make(session, tenant)
    wanted = {name: kind for name, kind in REPORTS[report].values() if name in frame.columns}
    types = {int: pl.Int64, float: pl.Float64, str: pl.String}
    return frame.select(pl.col(name).cast(types[kind]) for name, kind in wanted.items())


def to_csv(frame: pl.DataFrame, report: str) -> str:
    """Write a report as `nsys stats --format csv` does.

    Parameters
    ----------
    frame
        What :func:`produce` returned.
    report
        Its name.

    Examples
    --------
    >>> import pyanalyze
    >>> rows = produce(pyanalyze.load(capture), "cuda_gpu_mem_time_sum")
    >>> print(to_csv(rows, "cuda_gpu_mem_time_sum").splitlines()[0])
    Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
    """
    headers = {name: _spaced(header) for header, (name, _) in REPORTS[report].items()}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headers[name] for name in frame.columns)
    digits = {name: 3 if name.endswith(("_mb", "_per_s")) else 1 for name in frame.columns}
    for row in frame.iter_rows():
        cells = zip(frame.columns, row, strict=True)
        writer.writerow(f"{v:.{digits[n]}f}" if isinstance(v, float) else "" if v is None else v for n, v in cells)
    return out.getvalue()


def disagreements(rows: pl.DataFrame, session: Session) -> pl.DataFrame:
    """List where NVIDIA's kernel summary says other than we do, each with its reason.

    Parameters
    ----------
    rows
        Rows of `cuda_gpu_kern_sum` with full names, as :func:`pyanalyze.nsys_recipes.read_report` reads them.
    session
        The session of the capture that it was made from.

    Returns
    -------
    polars.DataFrame
        `name`, `quantity`, `nsys`, `ours`, `reason`: first what cannot be explained (another capture, another filter),
        then, kernel by kernel, time in which the context was switched out, and kernels of several tenants in one row.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> found = disagreements(produce(session, "cuda_gpu_kern_sum"), session)
    >>> found.filter(name="A1(float *, const float *, int)").select("quantity", "nsys", "ours").rows()
    [('total_time_ns', 441533984.0, 193928043.0)]
    """
    from pyanalyze.nsys_recipes import compare_kernel_summary

    unexplained = compare_kernel_summary(rows, session.kernels).select("name", "quantity", "nsys", "ours", "reason")
    charged = session.charged
    mine = session.kernels.select(
        pl.col("name").cast(pl.String), duration=pl.col("end_ns") - pl.col("start_ns")
    ).with_columns(charged["charged_ns"], charged["tenant_id"])
    each = mine.group_by("name").agg(
        pl.col("duration", "charged_ns").sum(), pl.col("tenant_id").n_unique().alias("tenants")
    )
    away = pl.col("duration") - pl.col("charged_ns")
    share = (100.0 * away / pl.col("duration")).round(1)
    out = each.filter(away > 0).select(
        "name",
        pl.lit("total_time_ns").alias("quantity"),
        pl.col("duration").cast(pl.Float64).alias("nsys"),
        pl.col("charged_ns").cast(pl.Float64).alias("ours"),
        pl.format("switched out for {} % of it, which nsys counts as execution", share).alias("reason"),
    )
    pooled = each.filter(pl.col("tenants") > 1).select(
        "name",
        pl.lit("instances").alias("quantity"),
        pl.lit(None, pl.Float64).alias("nsys"),
        pl.lit(None, pl.Float64).alias("ours"),
        pl.format("{} tenants pooled in one row: make it for each", "tenants").alias("reason"),
    )
    return pl.concat([unexplained, out.sort("nsys", "name", descending=[True, False]), pooled.sort("name")])


#: Words of headers, which are compared without blanks but written with them.
_WORDS = {
    "TotalTime(ns)": "Total Time (ns)",
    "NumCalls": "Num Calls",
    "APIFunction": "API Function",
    "KernelName": "Kernel Name",
    **{f"{word}{what}(ns)": f"{word} {what} (ns)" for word in ("API", "Queue", "Kernel") for what in ("Start", "Dur")},
    "TotalDur(ns)": "Total Dur (ns)",
}


def _spaced(header: str) -> str:
    return _WORDS.get(header) or header.replace("(", " (")


def _of(session: Session, frame: pl.DataFrame, tenant: int | None) -> pl.DataFrame:
    """The rows of one tenant, or all."""
    if tenant is None:
        return frame
    mine = session.tenants.filter(pl.col("traced") & (pl.col("tenant_id") == tenant))
    if mine.is_empty():
        raise UsageError(f"no traced tenant has the id {tenant}; `session.tenants` lists them")
    keys = [key for key in ("capture", "pid", "device_id") if key in frame.columns]
    return frame.join(mine.select(keys).unique(), on=keys, how="semi", nulls_equal=True)


def _summary(
    rows: pl.DataFrame, by: list[str], count: str, *, value: str = "duration", share: bool = True
) -> pl.DataFrame:
    """Sum, count and distribution, rounded as nsys does, largest first."""
    one = pl.col(value)
    made = rows.group_by(by).agg(
        total=one.sum(),
        count=pl.len(),
        avg=one.mean(),
        med=one.median(),
        min=one.min(),
        max=one.max(),
        # Of a single value nsys says 0, the sample deviation would be undefined.
        stddev=one.std().fill_null(0.0),
    )
    made = made.sort("total", *by, descending=[True, *[False] * len(by)])
    whole = pl.col("total").sum()
    named = {"total": "total_time_ns", "count": count, "avg": "avg_ns", "med": "med_ns", "min": "min_ns"}
    named |= {"max": "max_ns", "stddev": "stddev_ns"}
    if share:
        made = made.with_columns(time_percent=(pl.col("total") * 100.0 / whole).round(1, mode="half_away_from_zero"))
    return made.with_columns(pl.col("avg", "med", "stddev").round(1, mode="half_away_from_zero")).rename(named)


def _kernels(session: Session, tenant: int | None) -> pl.DataFrame:
    return _of(session, session.kernels, tenant).with_columns(
        duration=pl.col("end_ns") - pl.col("start_ns"),
        name=pl.col("name").cast(pl.String),
        grid_xyz=_xyz("grid"),
        block_xyz=_xyz("block"),
    )


def _xyz(what: str) -> pl.Expr:
    """Three numbers in four places each, as nsys prints them."""
    parts = (pl.col(f"{what}_{axis}").cast(pl.String).str.pad_start(4) for axis in "xyz")
    return pl.concat_str(list(parts), separator=" ")


def _kern_sum(session: Session, tenant: int | None) -> pl.DataFrame:
    return _summary(_kernels(session, tenant), ["name"], "instances")


def _kern_gb_sum(session: Session, tenant: int | None) -> pl.DataFrame:
    return _summary(_kernels(session, tenant), ["name", "grid_xyz", "block_xyz"], "instances")


def _memops(session: Session, tenant: int | None) -> pl.DataFrame:
    return _of(session, session.memops, tenant).with_columns(
        duration=pl.col("end_ns") - pl.col("start_ns"),
        operation=pl.col("operation").cast(pl.String),
        mb=pl.col("bytes") / 1e6,
    )


def _mem_time_sum(session: Session, tenant: int | None) -> pl.DataFrame:
    return _summary(_memops(session, tenant), ["operation"], "count")


def _mem_size_sum(session: Session, tenant: int | None) -> pl.DataFrame:
    made = _memops(session, tenant).group_by("operation")
    one = pl.col("mb")
    return (
        made.agg(
            total_mb=one.sum(),
            count=pl.len(),
            avg_mb=one.mean(),
            med_mb=one.median(),
            min_mb=one.min(),
            max_mb=one.max(),
            stddev_mb=one.std().fill_null(0.0),
        )
        .sort("total_mb", "operation", descending=[True, False])
        .with_columns(pl.col("^.*_mb$").round(3, mode="half_away_from_zero"))
    )


def _api_calls(session: Session, tenant: int | None) -> pl.DataFrame:
    if "api_calls" not in session.tables:
        raise UsageError('the session holds no API calls; load(tables=(..., "api_calls")) reads them')
    calls = session.api_calls
    if tenant is not None:
        mine = session.tenants.filter(pl.col("traced") & (pl.col("tenant_id") == tenant))
        calls = calls.join(mine.select("capture", "pid").unique(), on=["capture", "pid"], how="semi", nulls_equal=True)
    # nsys drops the version of the API from names, such as cudaLaunchKernel_v7000.
    bare = pl.col("name").cast(pl.String).str.replace(r"_v\d+$", "")
    return calls.with_columns(name=bare, duration=pl.col("end_ns") - pl.col("start_ns"))


def _api_sum(session: Session, tenant: int | None) -> pl.DataFrame:
    return _summary(_api_calls(session, tenant), ["name"], "num_calls")


def _kern_exec_trace(session: Session, tenant: int | None) -> pl.DataFrame:
    calls = _api_calls(session, None).select(
        "capture", "pid", "tid", "correlation_id", api_name="name", call_ns="start_ns", back_ns="end_ns"
    )
    joined = _kernels(session, tenant).join(calls, on=["capture", "pid", "correlation_id"], nulls_equal=False)
    # A kernel that starts before its call returned has not waited in a queue.
    queued = pl.when(pl.col("back_ns") <= pl.col("start_ns"))
    return joined.sort("call_ns", "start_ns").select(
        "pid",
        "tid",
        "api_name",
        "grid_xyz",
        "block_xyz",
        api_start_ns="call_ns",
        api_dur_ns=pl.col("back_ns") - pl.col("call_ns"),
        queue_start_ns=queued.then("back_ns"),
        queue_dur_ns=queued.then(pl.col("start_ns") - pl.col("back_ns")),
        kernel_start_ns="start_ns",
        kernel_dur_ns="duration",
        total_dur_ns=pl.col("end_ns") - pl.col("call_ns"),
        dev_id="device_id",
        kernel_name="name",
    )


def _trace(session: Session, tenant: int | None) -> pl.DataFrame:
    device = session.devices.select(
        "device_id", device=pl.format("{} ({})", pl.col("name"), pl.coalesce("cuda_ordinal", "device_id"))
    )
    kind = {str(k): v for k, v in _MEMORY_KINDS.items()}

    def label(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.String).replace(kind)

    ids = ("device_id", "context_id", "stream_id", "correlation_id", "start_ns", "name", pl.col("duration"))
    kernels = _kernels(session, tenant).select(
        *ids,
        "green_context_id",
        "registers_per_thread",
        *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
        static_shared_mb=pl.col("static_shared_bytes") / 1e6,
        dynamic_shared_mb=pl.col("dynamic_shared_bytes") / 1e6,
    )
    is_set = pl.col("copy_kind").is_null()
    copies = (
        _memops(session, tenant)
        .rename({"operation": "name"})
        .select(
            *ids,
            size_mb="mb",
            # nsys divides whole numbers, and gives nothing for what took no time.
            throughput_mb_per_s=pl.when(pl.col("duration") > 0).then(
                pl.col("bytes") * (1_000_000_000 // pl.col("duration")) / 1e6
            ),
            # A memset has one kind of memory, in the first of the two columns.
            source_kind=pl.when(is_set).then(label("destination_kind")).otherwise(label("source_kind")),
            destination_kind=pl.when(~is_set).then(label("destination_kind")),
        )
    )
    both = pl.concat([kernels, copies], how="diagonal_relaxed").join(device, on="device_id", how="left")
    return (
        both.rename({"duration": "duration_ns"})
        .sort("start_ns", "name", "correlation_id")
        .with_columns(pl.col("^.*_mb$", "throughput_mb_per_s").round(3, mode="half_away_from_zero"))
    )


#: Reports that can be made.
PRODUCED: dict[str, Callable[[Session, int | None], pl.DataFrame]] = {
    "cuda_gpu_kern_sum": _kern_sum,
    "cuda_gpu_kern_gb_sum": _kern_gb_sum,
    "cuda_gpu_mem_time_sum": _mem_time_sum,
    "cuda_gpu_mem_size_sum": _mem_size_sum,
    "cuda_gpu_trace": _trace,
    "cuda_api_sum": _api_sum,
    "cuda_kern_exec_trace": _kern_exec_trace,
}
