"""Lengths of intervals and of what they have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["covered_until", "outside", "percentile_ns", "residency_lengths", "times", "union"]


#: Before and, without the sign, after every moment of a capture.
_LONG_BEFORE = -(1 << 62)


def union(rows: pl.DataFrame) -> pl.DataFrame:
    """Merge intervals.

    Parameters
    ----------
    rows
        ``start_ns`` and ``end_ns`` of each.

    Returns
    -------
    polars.DataFrame
        ``start_ns``, ``end_ns`` and ``before``, the length of all before it, in order.

    Examples
    --------
    >>> import polars
    >>> union(polars.DataFrame({"start_ns": [0, 5, 20], "end_ns": [10, 12, 30]})).rows()
    [(0, 12, 0), (20, 30, 12)]
    """
    import polars as pl

    until = pl.col("end_ns").cum_max()
    begins = (pl.col("start_ns") > until.shift(1)).fill_null(value=True)
    ends = begins.shift(-1).fill_null(value=True)
    spans = rows.sort("start_ns").select(pl.col("start_ns").filter(begins), until.filter(ends))
    length = pl.col("end_ns") - pl.col("start_ns")
    return spans.with_columns(before=length.cum_sum() - length)


def times(rows: pl.DataFrame, others: pl.DataFrame) -> tuple[int, int]:
    """Add up intervals.

    Parameters
    ----------
    rows
        ``start_ns`` and ``end_ns`` of each.
    others
        Other intervals, as :func:`union` gives them.

    Returns
    -------
    (int, int)
        Length of their union, and of its part outside of the others, nanoseconds.

    Examples
    --------
    >>> import polars
    >>> one, other = (polars.DataFrame({"start_ns": [a], "end_ns": [b]}) for a, b in ((0, 10), (4, 30)))
    >>> times(one, union(other))
    (10, 4)
    """
    spans = union(rows)
    whole = int((spans["end_ns"] - spans["start_ns"]).sum())

    inside = covered_until(spans["end_ns"], others) - covered_until(spans["start_ns"], others)
    return whole, whole - int(inside.sum())


def outside(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Cut intervals by others.

    Parameters
    ----------
    rows
        ``start_ns`` and ``end_ns`` of each; no two of them overlap.
    others
        The same of others, which may.

    Returns
    -------
    polars.DataFrame
        ``start_ns`` and ``end_ns`` of what lies outside of the others, in order.

    Examples
    --------
    >>> import polars
    >>> rows, others = (polars.DataFrame({"start_ns": a, "end_ns": b}) for a, b in (([0, 20], [10, 30]), ([4], [22])))
    >>> outside(rows, others).rows(), outside(rows.clear(), others).rows()
    ([(0, 4), (22, 30)], [])
    """
    import polars as pl

    own = rows.select("start_ns", "end_ns").sort("start_ns")
    first, last = (pl.Series([ns], dtype=pl.Int64) for ns in (_LONG_BEFORE, -_LONG_BEFORE))
    # Without an interval, columns may have another type.
    starts, ends = (own[name].cast(pl.Int64) for name in own.columns)
    holes = pl.DataFrame({"start_ns": pl.concat([first, ends]), "end_ns": pl.concat([starts, last])})
    taken = union(pl.concat([holes, others.select("start_ns", "end_ns")]))
    return taken.select(start_ns="end_ns", end_ns=pl.col("start_ns").shift(-1)).drop_nulls()


def covered_until(moments: pl.Series, spans: pl.DataFrame) -> pl.Series:
    """Add up what lies before each of some moments.

    Parameters
    ----------
    moments
        In any order.
    spans
        Intervals, as :func:`union` gives them.

    Examples
    --------
    >>> import polars
    >>> spans = union(polars.DataFrame({"start_ns": [0, 20], "end_ns": [10, 30]}))
    >>> covered_until(polars.Series([25, -5, 12]), spans).to_list()
    [15, 0, 10]
    """
    import polars as pl

    moment = pl.DataFrame({"at": moments}).with_row_index("row").sort("at")
    last = moment.join_asof(spans, left_on="at", right_on="start_ns", strategy="backward", coalesce=False)
    inside = pl.min_horizontal("at", "end_ns") - pl.col("start_ns")
    return last.sort("row").select((pl.col("before") + inside).fill_null(0)).to_series()


def complete_residency(tables: TableSet, device_id: int, tenants: Collection[int]) -> pl.DataFrame:
    """Find the complete residency intervals of some tenants, without contexts that only came into being.

    Examples
    --------
    >>> import pyanalyze
    >>> complete_residency(pyanalyze.load(capture).tables, 0, [0])["complete"].all()
    True
    """
    import polars as pl

    rows = tables.of_device("residency", device_id).filter("complete", pl.col("tenant_id").is_in(list(tenants)))
    # Contexts that only came into being count for no tenant.
    own = pl.len().over("tenant_id", "hw_context")
    return rows.filter((own > 2) | (own == own.max().over("tenant_id")))


def residency_lengths(tables: TableSet, device_id: int, tenants: Collection[int]) -> list[int]:
    """Measure the complete residency intervals of some tenants as if they were one, in nanoseconds, shortest first.

    Parameters
    ----------
    tables, device_id
        The device.
    tenants
        Clients of one MPS group: records name any of them for the context of all.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> len(residency_lengths(session.tables, 0, [0])) == session.residency.filter("complete", tenant_id=0).height
    True
    """
    rows = complete_residency(tables, device_id, tenants)
    lengths: list[int] = (rows["end_ns"] - rows["start_ns"]).sort().to_list()
    return lengths


def percentile_ns(lengths: Sequence[int], part: float) -> int | None:
    """Give the length that this part of them is not longer than; None: there is none.

    Examples
    --------
    >>> percentile_ns([1, 2, 3, 4], 0.5), percentile_ns([1, 2, 3], 0.5), percentile_ns([], 0.5)
    (2, 2, None)
    """
    return lengths[math.ceil(part * len(lengths)) - 1] if lengths else None
