"""Which rows belong to a process, which calls have a name, which kernels nsys calls so: for the tables of events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["covered_ns", "kernel_called", "launched", "named", "of_process", "work_of"]


def covered_ns(spans: pl.DataFrame) -> int:
    """Return the time in which any of these ran: columns `start_ns` and `end_ns`, in any order.

    Examples
    --------
    >>> import polars as pl
    >>> covered_ns(pl.DataFrame({"start_ns": [5, 0, 30], "end_ns": [20, 10, 40]}))
    30
    """
    import polars as pl

    # Of each only what lies behind the latest end before it.
    behind = pl.max_horizontal("start_ns", pl.col("end_ns").cum_max().shift(1))
    return int(spans.sort("start_ns").select((pl.col("end_ns") - behind).clip(0).sum()).item() or 0)


def kernel_called(name: str) -> pl.Expr:
    """Select kernels by the short name that nsys gives them: `short_name` begins with it, maybe behind a scope.

    Examples
    --------
    >>> import polars as pl
    >>> kernels = pl.DataFrame({"short_name": ["reduce<Sum>", "reduce<Max>", "a::reduce", "reduce_by_key", None]})
    >>> kernels.filter(kernel_called("reduce"))["short_name"].to_list()
    ['reduce<Sum>', 'reduce<Max>', 'a::reduce']
    """
    import polars as pl

    return pl.col("short_name").cast(pl.String).str.contains(rf"^(?:[^<(]*::)?{re.escape(name)}(?:[<(]| #\d+$|$)")


def named(calls: pl.DataFrame, pattern: str) -> pl.Expr:
    """Select calls by name: millions of calls have some dozens of names.

    Parameters
    ----------
    calls
        Rows with a column `name`.
    pattern
        Regular expression that is found anywhere in the name.

    Examples
    --------
    >>> import polars as pl
    >>> calls = pl.DataFrame({"name": ["cudaLaunchKernel", "cudaFree", None]})
    >>> calls.filter(named(calls, "Launch"))["name"].to_list()
    ['cudaLaunchKernel']
    """
    import polars as pl

    names = calls["name"].unique().drop_nulls()
    return pl.col("name").is_in(names.filter(names.cast(pl.String).str.contains(pattern)).implode())


def of_process(tenant: Mapping[str, Any]) -> pl.Expr:
    """Select the rows of a process by its capture and its pid; pids may be null.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.DataFrame({"capture": [0, 0, 1], "pid": [7, None, 7]})
    >>> rows.filter(of_process({"capture": 0, "pid": None})).height
    1
    """
    import polars as pl

    capture: pl.Expr = pl.col("capture") == tenant["capture"]
    return capture & pl.col("pid").eq_missing(tenant["pid"])


def work_of(tables: TableSet, tenant: Mapping[str, Any], names: Iterable[str], *columns: str) -> pl.DataFrame:
    """Columns of the rows that a process has on a device in several tables of events, one after the other.

    Parameters
    ----------
    tables
        The tables; those that are not there have no rows.
    tenant
        What has its `device_id`, `capture` and `pid`.
    names
        Tables with the columns that are asked for.
    columns
        Which columns.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> work_of(tables, tables.tenants.row(1, named=True), ("kernels", "graph_launches"), "end_ns").shape
    (424, 1)
    """
    import polars as pl

    mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
    read = dict.fromkeys(("device_id", "capture", "pid", *columns))
    return pl.concat(tables.columns(name, *read).filter(mine).select(columns) for name in names if name in tables)


def launched(tables: TableSet, tenant: Mapping[str, Any], names: Iterable[str]) -> pl.DataFrame:
    """When the calls that launched a process's work on a device began and returned.

    Parameters
    ----------
    tables
        The tables; API calls are read if they were not.
    tenant
        What has its `device_id`, `capture` and `pid`.
    names
        Tables of work, as for :func:`work_of`.

    Returns
    -------
    polars.DataFrame
        Of each row of work its ``start_ns`` and ``end_ns``, ``asked_ns`` when its call began, ``free_ns`` when the call
        returned or the work started, whichever was first, and whether the call is ``known``; else both are its start.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> launched(tables, tables.tenants.row(1, named=True), ("kernels",))["known"].sum()
    424
    """
    import polars as pl

    work = work_of(tables, tenant, names, "start_ns", "end_ns", "correlation_id")
    # There may be millions of calls: those of no work need not be looked at.
    calls = None if work.is_empty() else tables.calls()
    if calls is None:
        called = work.select("correlation_id", asked="start_ns", called="start_ns").clear()
    else:
        of_call = calls.lazy().filter(of_process(tenant)).group_by("correlation_id")
        called = of_call.agg(asked=pl.col("start_ns").min(), called=pl.col("end_ns").max()).collect()
    # A call that began after its work is another's, or the clocks of host and device disagree.
    known = (pl.col("asked") <= pl.col("start_ns")).fill_null(value=False)
    return work.join(called, on="correlation_id", how="left").select(
        "start_ns",
        "end_ns",
        asked_ns=pl.when(known).then("asked").otherwise("start_ns"),
        free_ns=pl.when(known).then(pl.min_horizontal("called", "start_ns")).otherwise("start_ns"),
        known=known,
    )
