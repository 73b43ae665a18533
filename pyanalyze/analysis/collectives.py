"""Which rank of a job comes late: kernels of one collective start apart and end together.

A collective kernel ends when all ranks have taken part. One that starts first is in flight, and waits, until the last
rank has started its own.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.intervals import times, union
from pyanalyze.results.collectives import CollectiveWaits, LateRank
from pyanalyze.tables.groups import COLLECTIVES
from pyanalyze.tables.selections import of_process, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["collective_waits"]

#: Ends of one collective differ by no more than this, waits of no more than this are none. In
#: `nsys-ai/mfu_2gpu_before` of the corpus ends differ by up to 27 us: the clocks of two H100, and the last transfer.
TOGETHER_NS = 50_000
#: Pairs of kernels from which on two ranks belong together.
_ENOUGH_PAIRS = 5
#: Part of the kernels of two ranks, of those that chance does not pair, that must be pairs.
_MOSTLY_PAIRED = 0.8
#: Kernels of at least this length end together by chance in few cases.
_LONG_NS = 2 * TOGETHER_NS


def collective_waits(tables: TableSet, tenants: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], CollectiveWaits]:
    """Find which ranks waited for which.

    Parameters
    ----------
    tables
        The tables.
    tenants
        Traced tenants: `device_id`, `tenant_id`, `capture` and `pid` of each.

    Returns
    -------
    dict of (int, int) to CollectiveWaits
        By device and tenant; those without a partner on another device are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> collective_waits(tables, tables.tenants.filter("traced").to_dicts())
    {}
    """
    import polars as pl

    if len({row["device_id"] for row in tenants}) < 2:
        return {}
    kernels = tables.columns("kernels", "device_id", "capture", "pid", "start_ns", "end_ns", "short_name")
    names = kernels["short_name"].unique().drop_nulls().cast(pl.String)
    names = names.filter(names.str.contains(f"(?i){COLLECTIVES}"))
    if names.is_empty():
        return {}
    kernels = kernels.filter(pl.col("short_name").cast(pl.String).is_in(names.implode()))
    kernels = kernels.with_columns(pl.col("short_name").cast(pl.String))
    ranks: list[tuple[Mapping[str, Any], pl.DataFrame]] = []
    for row in tenants:
        own = kernels.filter((pl.col("device_id") == row["device_id"]) & of_process(row))
        own = own.select("short_name", "start_ns", "end_ns").sort("end_ns").with_row_index("number")
        if own.height >= _ENOUGH_PAIRS:
            ranks.append((row, own))
    partners: dict[int, list[pl.DataFrame]] = {}
    for one, other in itertools.combinations(range(len(ranks)), 2):
        if ranks[one][0]["device_id"] != ranks[other][0]["device_id"]:
            pairs = _pairs(ranks[one][1], ranks[other][1])
            if _belong_together(pairs, ranks[one][1], ranks[other][1]):
                partners.setdefault(one, []).append(_seen_from(pairs, "one", "other", other))
                partners.setdefault(other, []).append(_seen_from(pairs, "other", "one", one))
    return {
        (ranks[rank][0]["device_id"], ranks[rank][0]["tenant_id"]): _waits(
            tables, ranks[rank][1], pl.concat(found), [row for row, _ in ranks]
        )
        for rank, found in partners.items()
    }


def _pairs(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Kernels of the same name in flight at the same time of which each ends nearest to the other, and soon."""
    import polars as pl

    def nearest(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        return left.join_asof(
            right.rename({"number": "number_right", "start_ns": "start_right"}).with_columns(end_right="end_ns"),
            on="end_ns",
            by="short_name",
            strategy="nearest",
            tolerance=TOGETHER_NS,
            check_sortedness=False,
        ).drop_nulls("number_right")

    back = nearest(other, one).select(one="number_right", other="number")
    pairs = nearest(one, other).rename({"number": "one", "number_right": "other"})
    return pairs.join(back, on=["one", "other"]).filter(
        pl.col("start_ns") < pl.col("end_right"), pl.col("start_right") < pl.col("end_ns")
    )


def _belong_together(pairs: pl.DataFrame, one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether so many of the long kernels of two ranks end together that chance does not do it."""
    import polars as pl

    if pairs.height < _ENOUGH_PAIRS:
        return False
    # What one rank has before or after all kernels of the other has no partner.
    first_ns, last_ns = pairs["end_ns"].min(), pairs["end_ns"].max()
    long = (pl.col("end_ns") - pl.col("start_ns") >= _LONG_NS) & pl.col("end_ns").is_between(first_ns, last_ns)
    of_both = [(one, "one"), (other, "other")]
    longer = sum(rows.filter(long).height for rows, _ in of_both)
    paired = sum(rows.filter(long).join(pairs, left_on="number", right_on=key).height for rows, key in of_both)
    return longer >= _ENOUGH_PAIRS and paired >= _MOSTLY_PAIRED * longer


def _seen_from(pairs: pl.DataFrame, mine: str, other: str, rank: int) -> pl.DataFrame:
    """Number of the own kernel, and of that of the partner its rank, its start and the difference of the ends."""
    import polars as pl

    start = "start_right" if other == "other" else "start_ns"
    return pairs.select(
        number=mine, rank=pl.lit(rank), started_ns=start, ends_ns=(pl.col("end_ns") - pl.col("end_right")).abs()
    )


def _waits(
    tables: TableSet, own: pl.DataFrame, partners: pl.DataFrame, ranks: Sequence[Mapping[str, Any]]
) -> CollectiveWaits:
    import polars as pl

    last = partners.sort("started_ns").group_by("number").agg(pl.last("rank", "started_ns"), pl.max("ends_ns"))
    paired = own.join(last, on="number").sort("start_ns")
    waits = paired.filter(pl.col("started_ns") - pl.col("start_ns") > TOGETHER_NS).with_columns(
        waited_ns=pl.min_horizontal("started_ns", "end_ns") - pl.col("start_ns")
    )
    late = []
    for (rank,), part in waits.group_by("rank"):
        row = ranks[int(str(rank))]
        spans = part.select("start_ns", end_ns=pl.col("start_ns") + pl.col("waited_ns"))
        work = work_of(tables, row, ("kernels", "memops", "graph_launches"), "start_ns", "end_ns")
        whole_ns, idle_ns = times(spans, union(work))
        late.append(
            LateRank(
                device_id=row["device_id"],
                tenant_id=row["tenant_id"],
                waits=part.height,
                waited_ns=int(part["waited_ns"].sum()),
                longest_ns=int(str(part["waited_ns"].max())),
                busy_ns=whole_ns - idle_ns,
            )
        )
    lengths = (
        waits.select("short_name", "waited_ns") if waits.height else paired.select("short_name", waited_ns="number")
    )
    of_name = lengths.group_by("short_name").agg(pl.sum("waited_ns")).sort("waited_ns", "short_name")
    return CollectiveWaits(
        kernel=of_name["short_name"][-1],
        collectives=paired.height,
        time_ns=int((paired["end_ns"] - paired["start_ns"]).sum()),
        ends_ns=int(str(paired["ends_ns"].max())),
        waits=waits.height,
        waited_ns=int(waits["waited_ns"].sum()),
        late=sorted(late, key=lambda one: (-one.waited_ns, one.device_id, one.tenant_id)),
    )
