"""The reports of `nsys stats`, made by us from a capture: the same columns, for all processes or for one tenant.

nsys pools all processes of a capture in one table. Under sharing that hides what is asked: whose kernels they are. Here
the same tables can be made for each tenant, and are otherwise equal to NVIDIA's.
"""

from __future__ import annotations

import csv
import inspect
import io
import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import polars as pl

from pyanalyze.errors import UsageError
from pyanalyze.inputs.nsys_recipes import REPORTS
from pyanalyze.tables.frames import csv_safe
from pyanalyze.tables.selections import kernel_called

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polars.expr.list import ExprListNameSpace

    from pyanalyze.tables.tableset import TableSet

__all__ = ["NEED_API_CALLS", "NEED_OPTIONS", "PRODUCED", "WHOLE_GPU", "disagreements", "produce", "to_csv", "write_csv"]

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


def produce(tables: TableSet, report: str, *, tenant: int | None = None, **options: Any) -> pl.DataFrame:
    """Make a report of `nsys stats`, `nsys analyze` or `nsys recipe` from a tables.

    Parameters
    ----------
    tables
        The tables; those of :data:`NEED_API_CALLS` need ``load(tables=(..., "api_calls"))``.
    report
        One of :data:`PRODUCED`.
    tenant
        Tenant id: its rows only; None pools all, as nsys does.
    **options
        What nsys takes after the report's name, with its defaults: `gap_ns` (500 ms) of `gpu_gaps`; `threshold_percent`
        (50) and `chunks` (30) of `gpu_time_util`; `bins` (30) of the two maps; `kernel`, the short name that
        `cuda_gpu_kern_pace` asks for.

    Returns
    -------
    polars.DataFrame
        Columns named and typed as :data:`pyanalyze.inputs.nsys_recipes.REPORTS` reads them, values rounded as nsys
        prints them, in its order; rows that tie are ordered by name.

    Raises
    ------
    pyanalyze.errors.UsageError
        No such report or option, the session holds no API calls, or a tenant is asked for where the GPU has no
        processes (`gpu_metric_util_map`).

    Notes
    -----
    Durations are those recorded: they include the time a context was switched out, as NVIDIA's do;
    `kernel_attribution` has them without it. `gpu_gaps` and `gpu_time_util` count graphs that were traced as a whole
    as use of the GPU, which nsys does not. They do not count nsys's own overhead as use, which nsys does.
    `cuda_gpu_time_util_map` ends with the capture's last event; nsys ends it with the session.

    Examples
    --------
    >>> import pyanalyze
    >>> produce(pyanalyze.load(capture).tables, "cuda_gpu_kern_sum", tenant=1).select("instances", "name").rows()[0]
    (106, 'B3(float *, const float *, int)')
    """
    make = PRODUCED.get(report)
    if make is None:
        raise UsageError(f"there is no report {report}; choose from {', '.join(PRODUCED)}")
    known = set(inspect.signature(make).parameters) - {"tables", "tenant"}
    if not options.keys() <= known:
        wrong = ", ".join(sorted(options.keys() - known))
        raise UsageError(f"{report} has no option {wrong}" + (f"; it has {', '.join(sorted(known))}" if known else ""))
    frame = make(tables, tenant, **options)
    wanted = {name: kind for name, kind in REPORTS[report].values() if name in frame.columns}
    types = {int: pl.Int64, float: pl.Float64, str: pl.String}
    return frame.select(pl.col(name).cast(types[kind]) for name, kind in wanted.items())


def to_csv(frame: pl.DataFrame, report: str) -> str:
    """Write a report as `nsys stats --format csv` does, except for names that a spreadsheet or terminal would run.

    Parameters
    ----------
    frame
        What :func:`produce` returned.
    report
        Its name.

    Examples
    --------
    >>> import pyanalyze
    >>> rows = produce(pyanalyze.load(capture).tables, "cuda_gpu_mem_time_sum")
    >>> print(to_csv(rows, "cuda_gpu_mem_time_sum").splitlines()[0])
    Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
    """
    made = io.StringIO()
    write_csv(frame, report, made)
    return made.getvalue()


def write_csv(frame: pl.DataFrame, report: str, file: TextIO) -> None:
    """Write a report as :func:`to_csv` gives it, row by row: the text of millions of them is larger than they are.

    Parameters
    ----------
    frame, report
        As of :func:`to_csv`.
    file
        Where to.

    Examples
    --------
    >>> import io, pyanalyze
    >>> rows = produce(pyanalyze.load(capture).tables, "cuda_gpu_mem_time_sum")
    >>> write_csv(rows, "cuda_gpu_mem_time_sum", file := io.StringIO())
    >>> file.getvalue()[:8]
    'Time (%)'
    """
    headers = {name: _spaced(header) for header, (name, _) in REPORTS[report].items()}
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(headers[name] for name in frame.columns)
    # Texts of the numbers too are made by the columns, and not cell by cell.
    shown = csv_safe(frame).with_columns(
        _decimals(name, 3 if name.endswith(("_mb", "_per_s")) else 1)
        for name, kind in frame.schema.items()
        if kind.is_float()
    )
    writer.writerows(shown.iter_rows())


def _decimals(name: str, digits: int) -> pl.Expr:
    return pl.col(name).map_elements(lambda value: f"{value:.{digits}f}", return_dtype=pl.String)


def disagreements(rows: pl.DataFrame, tables: TableSet) -> pl.DataFrame:
    """List where NVIDIA's kernel summary says other than we do, each with its reason.

    Parameters
    ----------
    rows
        Rows of `cuda_gpu_kern_sum` with full names, as :func:`pyanalyze.inputs.nsys_recipes.read_report` reads them.
    tables
        Tables of the capture that it was made from.

    Returns
    -------
    polars.DataFrame
        `name`, `quantity`, `nsys`, `ours`, `reason`: first what cannot be explained (another capture, another filter),
        then, kernel by kernel, time in which the context was switched out, and kernels of several tenants in one row.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> found = disagreements(produce(session.tables, "cuda_gpu_kern_sum"), session.tables)
    >>> found.filter(name="A1(float *, const float *, int)").select("quantity", "nsys", "ours").rows()
    [('total_time_ns', 441533984.0, 193928043.0)]
    """
    from pyanalyze.inputs.nsys_recipes import compare_kernel_summary

    unexplained = compare_kernel_summary(rows, tables.kernels).select("name", "quantity", "nsys", "ours", "reason")
    attributed = tables.kernel_attribution
    mine = tables.kernels.select(
        pl.col("name").cast(pl.String), duration=pl.col("end_ns") - pl.col("start_ns")
    ).with_columns(attributed["attributed_ns"], attributed["tenant_id"])
    each = mine.group_by("name").agg(
        pl.col("duration", "attributed_ns").sum(), pl.col("tenant_id").n_unique().alias("tenants")
    )
    away = pl.col("duration") - pl.col("attributed_ns")
    share = (100.0 * away / pl.col("duration")).round(1)
    out = each.filter(away > 0).select(
        "name",
        pl.lit("total_time_ns").alias("quantity"),
        pl.col("duration").cast(pl.Float64).alias("nsys"),
        pl.col("attributed_ns").cast(pl.Float64).alias("ours"),
        pl.format("switched out for {} % of it, which nsys counts as execution", share).alias("reason"),
    )
    pooled = each.filter(pl.col("tenants") > 1).select(
        "name",
        pl.lit("instances").alias("quantity"),
        pl.lit(None, pl.Float64).alias("nsys"),
        pl.lit(None, pl.Float64).alias("ours"),
        pl.format("{} tenants in one row: make the report for each tenant", "tenants").alias("reason"),
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
    "DeviceID": "Device ID",
    "ContextID": "Context ID",
    "APIName": "API Name",
    **{f"SM{what}": f"SM {what}" for what in ("Active", "Issue")},
    "TensorActive": "Tensor Active",
}


def _spaced(header: str) -> str:
    return _WORDS.get(header) or header.replace("(", " (")


def _of(tables: TableSet, frame: pl.DataFrame, tenant: int | None) -> pl.DataFrame:
    """The rows of one tenant, or all."""
    if tenant is None:
        return frame
    mine = tables.tenants.filter(pl.col("traced") & (pl.col("tenant_id") == tenant))
    if mine.is_empty():
        raise UsageError(f"no traced tenant has the id {tenant}; `session.tenants` lists them")
    keys = [key for key in ("capture", "pid", "device_id") if key in frame.columns]
    return frame.join(mine.select(keys).unique(), on=keys, how="semi", nulls_equal=True)


def _spread(one: pl.Expr | ExprListNameSpace, name: str) -> dict[str, pl.Expr]:
    """How values scatter, each quantity under `name` with its word in it, such as ``{}_ns``."""
    # Of a single value, and of none, nsys says 0; the sample deviation would be undefined.
    quantities = {"avg": one.mean(), "med": one.median(), "min": one.min(), "max": one.max()}
    return {name.format(word): of for word, of in {**quantities, "stddev": one.std().fill_null(0.0)}.items()}


def _done_until(intervals: pl.DataFrame, edges: Sequence[int]) -> list[int]:
    """Time of the intervals `start_ns` to `end_ns` that has passed at each edge; those side by side add up."""
    return [
        int(intervals.select((pl.min_horizontal("end_ns", edge) - pl.col("start_ns")).clip(0).sum()).item())
        for edge in edges
    ]


def _summary(
    rows: pl.DataFrame, by: list[str], count: str, *, value: str = "duration", share: bool = True
) -> pl.DataFrame:
    """Sum, count and distribution, rounded as nsys does, largest first."""
    # The values of each group are gathered once, not once for every quantity: a third of the time.
    values = pl.col(value).list
    made = rows.group_by(by).agg(value).select(*by, total=values.sum(), count=values.len(), **_spread(values, "{}_ns"))
    made = made.with_columns(pl.col(by).cast(pl.String)).sort("total", *by, descending=[True, *[False] * len(by)])
    whole = pl.col("total").sum()
    if share:
        made = made.with_columns(time_percent=(pl.col("total") * 100.0 / whole).round(1, mode="half_away_from_zero"))
    rounded = pl.col("avg_ns", "med_ns", "stddev_ns").round(1, mode="half_away_from_zero")
    return made.with_columns(rounded).rename({"total": "total_time_ns", "count": count})


def _kernels(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    return _of(tables, tables.kernels, tenant).with_columns(
        duration=pl.col("end_ns") - pl.col("start_ns"),
        name=pl.col("name").cast(pl.String),
        grid_xyz=_xyz("grid"),
        block_xyz=_xyz("block"),
    )


def _xyz(what: str) -> pl.Expr:
    """Three numbers in four places each, as nsys prints them."""
    parts = (pl.col(f"{what}_{axis}").cast(pl.String).str.pad_start(4) for axis in "xyz")
    return pl.concat_str(list(parts), separator=" ")


def _kern_sum(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    kernels = _of(
        tables, tables.columns("kernels", "capture", "pid", "device_id", "name", "start_ns", "end_ns"), tenant
    )
    # Names as they are kept, each once: a string for every kernel takes longer than everything else here.
    kernels = kernels.select("name", duration=pl.col("end_ns") - pl.col("start_ns"))
    return _summary(kernels, ["name"], "instances")


def _kern_gb_sum(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    return _summary(_kernels(tables, tenant), ["name", "grid_xyz", "block_xyz"], "instances")


def _memops(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    return _of(tables, tables.memops, tenant).with_columns(
        duration=pl.col("end_ns") - pl.col("start_ns"),
        operation=pl.col("operation").cast(pl.String),
        mb=pl.col("bytes") / 1e6,
    )


def _mem_time_sum(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    return _summary(_memops(tables, tenant), ["operation"], "count")


def _mem_size_sum(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    return (
        _memops(tables, tenant)
        .group_by("operation")
        .agg(total_mb=pl.col("mb").sum(), count=pl.len(), **_spread(pl.col("mb"), "{}_mb"))
        .sort("total_mb", "operation", descending=[True, False])
        .with_columns(pl.col("^.*_mb$").round(3, mode="half_away_from_zero"))
    )


def _api_calls(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    if "api_calls" not in tables:
        raise UsageError('the session holds no API calls; load(tables=(..., "api_calls")) reads them')
    calls = tables.frame("api_calls")
    if tenant is not None:
        mine = tables.tenants.filter(pl.col("traced") & (pl.col("tenant_id") == tenant))
        calls = calls.join(mine.select("capture", "pid").unique(), on=["capture", "pid"], how="semi", nulls_equal=True)
    # nsys drops the version of the API from names, such as cudaLaunchKernel_v7000, where it has four places.
    bare = pl.col("name").cast(pl.String).str.replace(r"_v.{4}$", "")
    return calls.with_columns(name=bare, duration=pl.col("end_ns") - pl.col("start_ns"))


def _api_sum(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    return _summary(_api_calls(tables, tenant), ["name"], "num_calls")


def _kern_exec_trace(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    calls = _api_calls(tables, None).select(
        "capture", "pid", "tid", "correlation_id", api_name="name", call_ns="start_ns", back_ns="end_ns"
    )
    joined = _kernels(tables, tenant).join(calls, on=["capture", "pid", "correlation_id"], nulls_equal=False)
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


def _kern_exec_sum(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    launches = _kern_exec_trace(tables, tenant)
    # T: nsys lets a launch end with its call where the call returned after the kernel's end.
    back = pl.col("api_start_ns") + pl.col("api_dur_ns")
    end = pl.max_horizontal(back, pl.col("kernel_start_ns") + pl.col("kernel_dur_ns"))
    launches = launches.with_columns(total=end - pl.col("api_start_ns"))
    parts = {"total": "total", "api": "api_dur_ns", "queue": "queue_dur_ns", "kernel": "kernel_dur_ns"}
    made = launches.group_by("pid", "tid", "dev_id", "api_name", "kernel_name").agg(
        pl.len().alias("count"),
        pl.col("queue_dur_ns").count().alias("queue_count"),
        **{
            name: of
            for part, column in parts.items()
            for name, of in _spread(pl.col(column), f"{part}_{{}}_ns").items()
        },
    )
    names = ["pid", "tid", "dev_id", "api_name", "kernel_name"]
    return made.with_columns(pl.col("^.*_(avg|med|stddev)_ns$").round(1, mode="half_away_from_zero")).sort(
        "total_avg_ns", *names, descending=[True, *[False] * len(names)]
    )


def _operations(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    """What kept a GPU busy, by start: kernels, copies, graphs traced as a whole."""
    columns = ("capture", "pid", "device_id", "context_id", "start_ns", "end_ns")
    parts = [tables.frame(name).select(columns) for name in ("kernels", "memops", "graph_launches")]
    return _of(tables, pl.concat(parts), tenant).sort("start_ns", "end_ns")


#: Whose time it is: nsys looks at every process on every GPU by itself.
_PLACE = ["capture", "pid", "device_id"]


def _gpu_gaps(tables: TableSet, tenant: int | None, gap_ns: int = 500_000_000) -> pl.DataFrame:
    latest = pl.col("end_ns").cum_max().over(_PLACE)
    ended = _operations(tables, tenant).with_columns(latest=latest)
    # The context of a gap is that of the operation that ended before it.
    last = pl.when(pl.col("end_ns") == pl.col("latest")).then("context_id").forward_fill().over(_PLACE)
    gaps = ended.with_columns(context_id=last).with_columns(
        duration_ns=pl.col("start_ns") - pl.col("latest").shift(1).over(_PLACE),
        gap_start_ns=pl.col("latest").shift(1).over(_PLACE),
        context_id=pl.col("context_id").shift(1).over(_PLACE),
    )
    found = gaps.filter(pl.col("duration_ns") > gap_ns).sort("duration_ns", "gap_start_ns", descending=[True, False])
    return found.with_row_index("number", 1).select(
        "number", "duration_ns", "pid", "device_id", "context_id", start_ns="gap_start_ns"
    )


def _gpu_time_util(
    tables: TableSet, tenant: int | None, threshold_percent: float = 50, chunks: int = 30
) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for (_, pid, device), mine in _operations(tables, tenant).group_by(_PLACE, maintain_order=True):
        first, last = int(mine["start_ns"].min()), int(mine["end_ns"].max())  # type: ignore[arg-type]
        size = math.ceil((last - first) / chunks)
        edges = [min(first + number * size, last) for number in range(chunks + 1)]
        # Of operations side by side each counts, so that a chunk may exceed 100 %.
        done = _done_until(mine, edges)
        low: dict[str, Any] | None = None
        for (begin, end), (before, after) in zip(pairwise(edges), pairwise(done), strict=True):
            used = after - before
            if begin >= end:
                break
            if 100.0 * used / (end - begin) >= threshold_percent:
                low = None
                continue
            if low is None:
                low = {"start_ns": begin, "used": 0, "pid": pid, "device_id": device}
                low["context_id"] = mine["context_id"][0]
                rows.append(low)
            low["duration_ns"] = end - low["start_ns"]
            low["used"] += used
    if not rows:
        return pl.DataFrame(schema={name: pl.Int64 for name, _ in REPORTS["gpu_time_util"].values()})
    in_use = (100.0 * pl.col("used") / pl.col("duration_ns")).round(1, mode="half_away_from_zero")
    return (
        pl.DataFrame(rows)
        .with_columns(in_use_percent=in_use)
        .sort("in_use_percent", "duration_ns", "start_ns")
        .with_row_index("number", 1)
    )


def _stems(tables: TableSet) -> dict[int, str]:
    """What nsys calls a file: its name without the ending."""
    return {row["capture"]: Path(row["path"]).stem for row in tables.frame("capture").iter_rows(named=True)}


def _time_util_map(tables: TableSet, tenant: int | None, bins: int = 30) -> pl.DataFrame:
    stems = _stems(tables)
    size = math.ceil(max(1, int(tables.frame("capture")["end_ns"].max() or 1)) / bins)  # type: ignore[arg-type]
    kernels = _of(tables, tables.kernels, tenant).select(*_PLACE, "start_ns", "end_ns").sort("start_ns")
    parts = []
    for (capture, pid, device), mine in kernels.group_by(_PLACE, maintain_order=True):
        until = int(tables.frame("capture").filter(pl.col("capture") == capture)["end_ns"].item())
        # Kernels side by side count once.
        latest = mine["end_ns"].cum_max().shift(1, fill_value=mine["start_ns"][0])
        alone = mine.with_columns(start_ns=pl.max_horizontal("start_ns", latest)).filter(
            pl.col("end_ns") > pl.col("start_ns")
        )
        edges = [number * size for number in range(bins + 1)]
        done = _done_until(alone, edges)
        parts += [
            {
                "bin_start_ns": float(begin),
                # A bin is measured by what of it lies within the capture; null: nothing does.
                "kernel_percent": round(100.0 * (after - before) / (min(end, until) - begin), 1)
                if begin < until
                else None,
                "pid": pid,
                "device_id": device,
                "file": stems[capture],
            }
            for (begin, end), (before, after) in zip(pairwise(edges), pairwise(done), strict=True)
        ]
    types = {"bin_start_ns": pl.Float64, "kernel_percent": pl.Float64, "pid": pl.Int64, "device_id": pl.Int64}
    return pl.DataFrame(parts, schema={**types, "file": pl.String})


#: Metrics of the map, under the names of several versions of nsys.
_MAPPED = {
    "sm_active_percent": ("SM Active", "SMs Active"),
    "sm_issue_percent": ("SM Issue",),
    "tensor_active_percent": ("Tensor Active", "Tensor Active / FP16 Active"),
}


def _metric_util_map(tables: TableSet, tenant: int | None, bins: int = 30) -> pl.DataFrame:
    if tenant is not None:
        raise UsageError("gpu_metric_util_map is for the whole GPU: counters are not per process; leave out the tenant")
    stems = _stems(tables)
    size = math.ceil(max(1, int(tables.frame("capture")["end_ns"].max() or 1)) / bins)  # type: ignore[arg-type]
    name = pl.col("metric").cast(pl.String)
    # A bin holds its end and not its start.
    start = ((pl.col("time_ns") - 1) // size) * size
    samples = tables.frame("gpu_metrics").filter(pl.col("time_ns") > 0, pl.col("time_ns") <= size * bins)
    return (
        samples.with_columns(bin_start_ns=start.cast(pl.Float64), gpu="device_id")
        .group_by("capture", "gpu", "bin_start_ns")
        .agg(
            pl.col("value").filter(name.is_in(names)).mean().round(1, mode="half_away_from_zero").alias(column)
            for column, names in _MAPPED.items()
        )
        .sort("capture", "gpu", "bin_start_ns")
        .with_columns(file=pl.col("capture").replace_strict(stems, return_dtype=pl.String))
    )


def _kern_pace(tables: TableSet, tenant: int | None, kernel: str | None = None) -> pl.DataFrame:
    if kernel is None:
        raise UsageError("cuda_gpu_kern_pace is for one kernel: give its short name as `kernel`")
    kernels = _of(tables, tables.kernels, tenant)
    mine = kernels.filter(kernel_called(kernel)).sort("capture", "start_ns")
    stems = _stems(tables)
    ranks = {capture: rank for rank, (_, capture) in enumerate(sorted((stem, key) for key, stem in stems.items()))}
    # The first delta is since the capture's own beginning.
    begin = pl.col("capture").replace_strict(
        dict(tables.frame("capture").select("capture", "clock_offset_ns").iter_rows()), return_dtype=pl.Int64
    )
    duration = pl.col("end_ns") - pl.col("start_ns")
    delta = pl.col("start_ns") - pl.coalesce(pl.col("end_ns").shift(1).over("capture"), begin)
    return (
        mine.with_columns(duration_ns=duration, delta_ns=delta)
        .with_columns(
            rank=pl.col("capture").replace_strict(ranks, return_dtype=pl.Int64),
            file=pl.col("capture").replace_strict(stems, return_dtype=pl.String),
            iteration=pl.int_range(pl.len()).over("capture"),
            duration_accum_ns=pl.col("duration_ns").cum_sum().over("capture"),
            delta_accum_ns=pl.col("delta_ns").cum_sum().over("capture"),
        )
        .sort("rank", "iteration")
    )


def _trace(tables: TableSet, tenant: int | None) -> pl.DataFrame:
    device = tables.devices.select(
        "device_id", device=pl.format("{} ({})", pl.col("name"), pl.coalesce("cuda_ordinal", "device_id"))
    )
    kind = {str(k): v for k, v in _MEMORY_KINDS.items()}

    def label(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.String).replace(kind)

    ids = ("device_id", "context_id", "stream_id", "correlation_id", "start_ns", "name", pl.col("duration"))
    kernels = _kernels(tables, tenant).select(
        *ids,
        "green_context_id",
        "registers_per_thread",
        *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
        static_shared_mb=pl.col("static_shared_bytes") / 1e6,
        dynamic_shared_mb=pl.col("dynamic_shared_bytes") / 1e6,
    )
    is_set = pl.col("copy_kind").is_null()
    copies = (
        _memops(tables, tenant)
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
PRODUCED: dict[str, Callable[..., pl.DataFrame]] = {
    "cuda_gpu_kern_sum": _kern_sum,
    "cuda_gpu_kern_gb_sum": _kern_gb_sum,
    "cuda_gpu_mem_time_sum": _mem_time_sum,
    "cuda_gpu_mem_size_sum": _mem_size_sum,
    "cuda_gpu_trace": _trace,
    "cuda_api_sum": _api_sum,
    "cuda_kern_exec_trace": _kern_exec_trace,
    "cuda_kern_exec_sum": _kern_exec_sum,
    "gpu_gaps": _gpu_gaps,
    "gpu_time_util": _gpu_time_util,
    "cuda_gpu_time_util_map": _time_util_map,
    "gpu_metric_util_map": _metric_util_map,
    "cuda_gpu_kern_pace": _kern_pace,
}

#: Those that pair kernels with the calls that launched them.
NEED_API_CALLS = ("cuda_api_sum", "cuda_kern_exec_trace", "cuda_kern_exec_sum")
#: Those that cannot be made without an option, and which.
NEED_OPTIONS = {"cuda_gpu_kern_pace": "kernel"}
#: Those of counters, which know no processes.
WHOLE_GPU = ("gpu_metric_util_map",)
