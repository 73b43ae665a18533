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
        (device id, tenant id) -> the work. Tenants of which nothing was traced are not in it. A session keeps it as
        ``session.work_of_tenants``.

    Examples
    --------
    >>> import pyanalyze
    >>> work = work_of(pyanalyze.load(capture))
    >>> work[0, 0].launches, len(work[0, 0].configurations), len(work[0, 0].batches)
    (452, 4, 20)
    """
    import polars as pl

    found: dict[tuple[int, int], m.Work] = {}
    known_usage = session.tenant_usage.filter(pl.col("busy_ns").is_not_null()).sort("device_id", "tenant_id")
    for totals in known_usage.iter_rows(named=True):
        device, tenant = totals["device_id"], totals["tenant_id"]
        rows = _launches(session, device, [tenant])
        if rows.is_empty():
            continue
        who = session.tenants.filter(device_id=device)
        served = who.filter(tenant_id=tenant)["served_by"][0]
        holders = session.residency.filter(pl.col("device_id") == device)
        mine = pl.col("tenant_id").is_in([t for t in (tenant, served) if t is not None]).fill_null(value=False)
        known = not holders.filter(mine).is_empty()
        absent = holders.filter(~mine).select("start_ns", "end_ns") if known else holders.clear()
        # Beside it may run who shares its MPS server; without switch records it may be anybody.
        alike = pl.lit(value=not known) if served is None or not known else pl.col("served_by") == served
        fellows = who.filter(alike & (pl.col("tenant_id") != tenant))["tenant_id"].to_list()
        beside = _merged(_launches(session, device, fellows)) if fellows else rows.clear()
        timed = _timed(rows, absent, beside)
        # Overlapping kernels of a tenant share its time: what each is charged is scaled to what all are.
        sum_charged = float(timed["charged"].sum())
        scale = 1.0 if not sum_charged else int(totals["charged_ns"]) / sum_charged
        listed, rest_launches, rest_ns = _configurations(session, device, tenant)
        found[device, tenant] = m.Work(
            launches=timed.height,
            graph_launches=totals["graph_launches"],
            copies=totals["memops"],
            copy_bytes=totals["copy_bytes"],
            residency_known=known,
            configurations=listed,
            other_launches=rest_launches,
            other_ns=rest_ns,
            batches=_batches(timed, scale),
        )
    return found


def _kernels(session: Session, device: int, tenants: list[int]) -> pl.LazyFrame:
    """Kernels of these tenants with what each was charged: no copy of a column that nobody asks for."""
    import polars as pl

    charged = session.charged
    whole = session.kernels.with_columns(charged["tenant_id"], charged["charged_ns"]).lazy()
    return whole.filter((pl.col("device_id") == device) & pl.col("tenant_id").is_in(tenants))


def _launches(session: Session, device: int, tenants: list[int]) -> pl.DataFrame:
    """Kernels and whole graphs of these tenants, by start: from when to when, and the part its context was there."""
    import polars as pl

    each = _kernels(session, device, tenants).select("start_ns", "end_ns", "charged_ns")
    graphs = _graphs(session, device, tenants)
    if graphs.is_empty():
        return each.collect()
    # `charged` has kernels only; the total of the tenant, to which all are scaled, has graphs as well.
    whole = graphs.lazy().select("start_ns", "end_ns", charged_ns=pl.col("end_ns") - pl.col("start_ns"))
    return pl.concat([each, whole]).sort("start_ns", "end_ns").collect()


def _graphs(session: Session, device: int, tenants: list[int]) -> pl.DataFrame:
    import polars as pl

    graphs = session.graph_launches
    if graphs.is_empty():
        return graphs
    mine = session.tenants.filter(
        pl.col("traced") & (pl.col("device_id") == device) & pl.col("tenant_id").is_in(tenants)
    )
    return graphs.join(mine, on=["capture", "pid", "device_id"], how="semi", nulls_equal=True)


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """The union of intervals, as disjoint ones."""
    import polars as pl

    # A run begins where everything before has ended, and ends with the last of what began in it.
    rows = rows.select("start_ns", "end_ns").sort("start_ns").with_columns(until=pl.col("end_ns").cum_max())
    fresh = (rows["start_ns"] > rows["until"].shift(1)).fill_null(value=True)
    last = fresh.shift(-1, fill_value=True)
    return pl.DataFrame({"start_ns": rows["start_ns"].filter(fresh), "end_ns": rows["until"].filter(last)})


def _timed(rows: pl.DataFrame, absent: pl.DataFrame, beside: pl.DataFrame) -> pl.DataFrame:
    """Cut the tenant's time at its launches: busy, and idle before each, with and without others in its way."""
    import polars as pl

    free = pl.col("end_ns").cum_max().shift(1).fill_null(pl.col("start_ns").first())
    length = (pl.col("end_ns") - pl.col("start_ns")).clip(1)
    rows = rows.select("start_ns", "end_ns", "charged_ns", free=free).select(
        "start_ns",
        "free",
        gap=(pl.col("start_ns") - pl.col("free")).clip(0),
        busy=(pl.col("end_ns") - pl.max_horizontal("start_ns", "free")).clip(0),
        # The part of a launch behind which another of the same tenant is in flight already counts once.
        charged=pl.col("charged_ns") * (pl.col("end_ns") - pl.max_horizontal("start_ns", "free")).clip(0) / length,
    )
    rows = rows.with_columns(absent=pl.min_horizontal(_within(rows, absent), "gap"), beside=_within(rows, beside)).drop(
        "start_ns", "free"
    )
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
    at = slices.select(pl.col("start_ns", "end_ns", "before").gather(place.clip(0))).with_columns(t=times, place=place)
    until = pl.col("before") + (pl.min_horizontal("t", "end_ns") - pl.col("start_ns")).clip(0)
    return at.select(pl.when(pl.col("place") >= 0).then(until).otherwise(0)).to_series()


def _configurations(session: Session, device: int, tenant: int) -> tuple[list[m.Configuration], int, int]:
    import polars as pl

    total = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total")
    # Names are compared as the numbers of their dictionary: a capture has millions of launches and few names.
    shape = ("name", "short_name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    shapes = (
        _kernels(session, device, [tenant])
        .group_by(shape)
        .agg(total, launches=pl.len(), charged=pl.col("charged_ns").sum())
        .select(
            pl.col("name").cast(pl.String),
            pl.col("short_name").cast(pl.String),
            (pl.col("grid_x").cast(pl.UInt64) * pl.col("grid_y") * pl.col("grid_z")).alias("grid_blocks"),
            (pl.col("block_x") * pl.col("block_y") * pl.col("block_z")).alias("block_threads"),
            "total",
            "launches",
            "charged",
        )
        .collect()
    )
    graphs = _graphs(session, device, [tenant])
    if graphs.height:
        row = graphs.select(
            pl.lit("CUDA graph").alias("name"),
            pl.lit("CUDA graph").alias("short_name"),
            pl.lit(None, dtype=pl.UInt64).alias("grid_blocks"),
            pl.lit(None, dtype=pl.UInt32).alias("block_threads"),
            total,
            pl.len().alias("launches"),
            total.alias("charged"),
        )
        shapes = pl.concat([shapes, row], how="vertical_relaxed")
    # Grids of equal size and different form are one configuration.
    shapes = (
        shapes.group_by("name", "grid_blocks", "block_threads")
        .agg(pl.col("short_name").first(), pl.col("total", "launches", "charged").sum())
        .sort("total", "launches", "name", "grid_blocks", "block_threads", descending=[True, True, False, False, False])
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
