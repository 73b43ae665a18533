"""What a tenant launched, and where its time went: the part of a report that two runs are compared by."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pyanalyze.report import model as m
from pyanalyze.report.escape import visible

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.session import Session

__all__ = ["BATCHES", "TOP_CONFIGURATIONS", "work_of"]

#: Batches that the launches of a tenant are cut into; enough for an interval, few enough for a saved report.
BATCHES = 20
#: Least launches in a batch: of single ones the spread is that of kernels, not of the run.
_LEAST = 2
#: Configurations that a report keeps; real programs with more have a tail of tiny kernels.
TOP_CONFIGURATIONS = 100
#: Longest kernel name in it.
_NAME = 120


def work_of(session: Session) -> dict[tuple[int, int], m.Work]:
    """Sum up what every traced tenant did on every device.

    Parameters
    ----------
    session
        A loaded session.

    Returns
    -------
    dict
        (device id, tenant id) -> the work; computed once for a session. Tenants of which nothing was traced are not
        in it.

    Examples
    --------
    >>> import pyanalyze
    >>> work = work_of(pyanalyze.load(capture))
    >>> work[0, 0].launches, len(work[0, 0].configurations), len(work[0, 0].batches)
    (452, 4, 20)
    """
    import polars as pl

    launched = _launched(session)
    found: dict[tuple[int, int], m.Work] = {}
    for (device, tenant), rows in launched.partition_by("device_id", "tenant_id", as_dict=True).items():
        usage = session.tenant_usage.filter(device_id=device, tenant_id=tenant)
        if usage.is_empty() or usage["busy_ns"][0] is None:
            continue
        totals = usage.row(0, named=True)
        who = session.tenants.filter(device_id=device)
        served = who.filter(tenant_id=tenant)["served_by"][0]
        holders = session.residency.filter(pl.col("device_id") == device)
        mine = pl.col("tenant_id").is_in([t for t in (tenant, served) if t is not None]).fill_null(value=False)
        known = not holders.filter(mine).is_empty()
        absent = holders.filter(~mine).select("start_ns", "end_ns") if known else holders.clear()
        # Beside it may run who shares its MPS server; without switch records it may be anybody.
        alike = pl.lit(value=not known) if served is None or not known else pl.col("served_by") == served
        fellows = who.filter(alike)["tenant_id"].to_list()
        beside = launched.filter((pl.col("device_id") == device) & (pl.col("tenant_id") != tenant)).filter(
            pl.col("tenant_id").is_in(fellows)
        )
        timed = _timed(rows.sort("start_ns", "end_ns"), absent, _merged(beside))
        # Overlapping kernels of a tenant share its time: what each is charged is scaled to what all are.
        sum_charged = int(timed["charged"].sum())
        scale = 1.0 if not sum_charged else int(totals["charged_ns"]) / sum_charged
        listed, rest_launches, rest_ns = _configurations(timed)
        found[device, tenant] = m.Work(
            launches=timed.height,
            graph_launches=int(timed["is_graph"].sum()),
            copies=totals["memops"],
            copy_bytes=totals["copy_bytes"],
            residency_known=known,
            configurations=listed,
            other_launches=rest_launches,
            other_ns=rest_ns,
            batches=_batches(timed, scale),
        )
    return found


def _launched(session: Session) -> pl.DataFrame:
    """Kernels and whole graphs of every tenant, with the part of each in which its context held the engine."""
    import polars as pl

    kernels, charged = session.kernels, session.charged
    columns = ("device_id", "start_ns", "end_ns")
    grid = pl.col("grid_x").cast(pl.UInt64) * pl.col("grid_y") * pl.col("grid_z")
    block = pl.col("block_x") * pl.col("block_y") * pl.col("block_z")
    each = kernels.select(
        *columns,
        pl.col("name").cast(pl.String),
        pl.col("short_name").cast(pl.String),
        grid.alias("grid_blocks"),
        block.alias("block_threads"),
        pl.lit(value=False).alias("is_graph"),
    ).with_columns(charged["tenant_id"], charged["charged_ns"].alias("charged"))
    graphs = session.graph_launches
    if graphs.is_empty():
        return each.filter(pl.col("tenant_id").is_not_null())
    owner = _owners(session)
    whole = graphs.join(owner, on=["capture", "pid", "device_id"], how="inner", nulls_equal=True).select(
        *columns,
        pl.lit("CUDA graph").alias("name"),
        pl.lit("CUDA graph").alias("short_name"),
        pl.lit(None, dtype=pl.UInt64).alias("grid_blocks"),
        pl.lit(None, dtype=pl.UInt32).alias("block_threads"),
        pl.lit(value=True).alias("is_graph"),
        pl.col("tenant_id"),
        # `charged` has kernels only; the total of the tenant, to which all are scaled, has graphs as well.
        (pl.col("end_ns") - pl.col("start_ns")).alias("charged"),
    )
    return pl.concat([each, whole.select(each.columns)], how="vertical_relaxed").filter(
        pl.col("tenant_id").is_not_null()
    )


def _owners(session: Session) -> pl.DataFrame:
    return session.tenants.filter("traced").select("capture", "pid", "device_id", "tenant_id").unique()


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """The union of intervals, as disjoint ones."""
    import polars as pl

    rows = rows.select("start_ns", "end_ns").sort("start_ns")
    fresh = (pl.col("start_ns") > pl.col("end_ns").cum_max().shift(1)).fill_null(value=True).cum_sum()
    return rows.group_by(fresh.alias("run"), maintain_order=True).agg(pl.col("start_ns").min(), pl.col("end_ns").max())


def _timed(rows: pl.DataFrame, absent: pl.DataFrame, beside: pl.DataFrame) -> pl.DataFrame:
    """Cut the tenant's time at its launches: busy, and idle before each, with and without others in its way."""
    import polars as pl

    free = pl.col("end_ns").cum_max().shift(1)
    rows = rows.with_columns(free=free.fill_null(pl.col("start_ns").first())).with_columns(
        gap=(pl.col("start_ns") - pl.col("free")).clip(0),
        busy=(pl.col("end_ns") - pl.max_horizontal("start_ns", "free")).clip(0),
    )
    length = (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    rows = rows.with_columns(
        total=pl.col("end_ns") - pl.col("start_ns"),
        charged_whole=pl.col("charged"),
        # The part of a launch behind which another of the same tenant is in flight already counts once.
        charged=pl.col("charged") * pl.col("busy") / length,
        absent=_within(rows, absent),
        beside=_within(rows, beside),
    )
    rows = rows.with_columns(absent=pl.min_horizontal("absent", "gap"))
    return rows.with_columns(beside=pl.min_horizontal("beside", pl.col("gap") - pl.col("absent")))


def _within(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.Series:
    """How much of the gap before each launch lies in one of these disjoint intervals."""
    import polars as pl

    if spans.is_empty():
        return pl.zeros(rows.height, dtype=pl.Int64, eager=True)
    return (_held_until(rows["start_ns"], spans) - _held_until(rows["free"], spans)).clip(0)


def _held_until(times: pl.Series, slices: pl.DataFrame) -> pl.Series:
    """How long, up to each of these times, one of these disjoint slices was on."""
    import polars as pl

    slices = slices.sort("start_ns").with_columns(
        before=(pl.col("end_ns") - pl.col("start_ns")).cum_sum().shift(1, fill_value=0)
    )
    place = slices["start_ns"].search_sorted(times, side="right").cast(pl.Int64) - 1
    inside = slices[place.clip(0).to_list()] if times.len() < 2 else slices[place.clip(0)]
    at = pl.DataFrame({"t": times, "start": inside["start_ns"], "end": inside["end_ns"], "before": inside["before"]})
    until = at["before"] + (pl.Series(at.select(pl.min_horizontal("t", "end") - pl.col("start")).to_series())).clip(0)
    return until.zip_with(place >= 0, pl.Series([0] * times.len(), dtype=pl.Int64)).alias("held")


def _configurations(timed: pl.DataFrame) -> tuple[list[m.Configuration], int, int]:
    import polars as pl

    shapes = (
        timed.group_by("name", "grid_blocks", "block_threads", maintain_order=True)
        .agg(
            pl.col("short_name").first(),
            launches=pl.len(),
            total=pl.col("total").sum(),
            charged=pl.col("charged_whole").sum(),
        )
        .sort(["total", "launches"], descending=True, maintain_order=True)
    )
    rest = shapes[TOP_CONFIGURATIONS:]
    listed = [_configuration(row) for row in shapes[:TOP_CONFIGURATIONS].iter_rows(named=True)]
    return listed, int(rest["launches"].sum()), int(rest["total"].sum())


def _configuration(row: dict[str, Any]) -> m.Configuration:
    whole = f"{row['name']}\0{row['grid_blocks']}\0{row['block_threads']}"
    return m.Configuration(
        key=hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        kernel=visible(row["short_name"] or row["name"], _NAME) or "unnamed",
        grid_blocks=row["grid_blocks"],
        block_threads=row["block_threads"],
        launches=row["launches"],
        total_ns=row["total"],
        charged_total_ns=round(row["charged"]),
    )


def _batches(timed: pl.DataFrame, scale: float) -> list[m.Batch]:
    import polars as pl

    count = max(min(BATCHES, timed.height // _LEAST), 1)
    parts = (
        timed.with_row_index("row")
        .group_by((pl.col("row").cast(pl.Int64) * count // timed.height).alias("batch"))
        .agg(pl.len(), pl.col("gap", "absent", "beside", "busy", "charged").sum())
        .sort("batch")
    )
    return [
        m.Batch(
            launches=row["len"],
            idle_ns=row["gap"] - row["absent"] - row["beside"],
            idle_absent_ns=row["absent"],
            idle_beside_ns=row["beside"],
            busy_ns=row["busy"],
            charged_ns=min(round(row["charged"] * scale), row["busy"]),
        )
        for row in parts.iter_rows(named=True)
    ]
