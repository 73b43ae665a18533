"""How much of a stretch of time was a thread on a CPU?  From what nsys records with ``--cpuctxsw=process-tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_THREAD = ("capture", "pid", "tid")


def on_cpu_ns(runs: pl.DataFrame, spans: pl.DataFrame) -> pl.Series:
    """Time of each span in which its thread was on a CPU.

    Parameters
    ----------
    runs
        The table `thread_runs`: ``capture``, ``pid``, ``tid``, ``start_ns``, ``end_ns``; of one thread, no two overlap.
    spans
        Any frame with the same columns, one row a span.

    Returns
    -------
    polars.Series
        ``Int64`` nanoseconds, as many as there are spans. Null: the span is not between the first and the last run of
        its thread, or nothing is known of the thread.

    Examples
    --------
    >>> import polars as pl
    >>> thread = {"capture": 0, "pid": 7, "tid": 7}
    >>> runs = pl.DataFrame([thread | {"start_ns": 0, "end_ns": 10}, thread | {"start_ns": 30, "end_ns": 50}])
    >>> spans = [(0, 10), (5, 35), (12, 28), (40, 60)]
    >>> on_cpu_ns(runs, pl.DataFrame([thread | {"start_ns": a, "end_ns": b} for a, b in spans])).to_list()
    [10, 10, 0, None]
    """
    import polars as pl

    length = pl.col("end_ns") - pl.col("start_ns")
    before = runs.select(
        *_THREAD,
        pl.col("start_ns").alias("began_ns"),
        length.alias("length_ns"),
        (length.cum_sum() - length).over(_THREAD, order_by="start_ns").alias("before_ns"),
        pl.col("end_ns").max().over(_THREAD).alias("known_until_ns"),
    ).sort("began_ns")
    cut = spans.select(*_THREAD, "start_ns", "end_ns").with_row_index("span")
    for edge in ("start_ns", "end_ns"):
        run = cut.sort(edge).join_asof(
            before, left_on=edge, right_on="began_ns", by=list(_THREAD), strategy="backward", check_sortedness=False
        )
        until = pl.col("before_ns") + pl.min_horizontal(pl.col(edge) - pl.col("began_ns"), "length_ns")
        inside = pl.col(edge) <= pl.col("known_until_ns")
        cut = run.select(*cut.columns, pl.when(inside).then(until).alias(f"until_{edge}"))
    return cut.sort("span").select(on_cpu_ns=pl.col("until_end_ns") - pl.col("until_start_ns"))["on_cpu_ns"]
