"""Align samples with a capture: only samples of its time may answer for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

#: How far outside the captures a sample still tells of them, beside two of its file's intervals: clocks written in
#: whole seconds are that much off.
MARGIN_NS = 2_000_000_000
#: No more than that, however far apart the samples of a file are: a list of an hour ago is of another run.
LONGEST_MARGIN_NS = 60_000_000_000


def of_its_time(samples: pl.DataFrame, captures: pl.DataFrame) -> pl.DataFrame:
    """Return the samples that were taken while something was captured, and those of which the time is not known.

    Parameters
    ----------
    samples
        Rows of `nvml_samples`, on the session clock.
    captures
        Rows of `capture`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> of_its_time(session.nvml_samples, session.capture).height
    0
    """
    import polars as pl

    span = _span_ns(captures)
    if span is None or samples["time_ns"].null_count() == samples.height:
        return samples
    apart = pl.col("time_ns").unique().sort().diff().median().fill_null(0)
    margin = (2 * apart).clip(MARGIN_NS, LONGEST_MARGIN_NS).cast(pl.Int64).over("source")
    time = pl.col("time_ns")
    return samples.filter(time.is_null() | time.is_between(span[0] - margin, span[1] + margin))


def answering(samples: pl.DataFrame, captures: pl.DataFrame) -> pl.DataFrame | None:
    """Return the samples that may answer for the captures; None: all of them.

    Parameters
    ----------
    samples
        Rows of `nvml_samples`, on the session clock.
    captures
        Rows of `capture`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> answering(session.nvml_samples, session.capture) is None
    True
    """
    if samples.is_empty():
        return None
    kept = of_its_time(samples, captures)
    return None if kept.height == samples.height else kept


def of_another_time(samples: pl.DataFrame, captures: pl.DataFrame) -> list[str]:
    """Say of each file of samples without one row of the captures' time what it holds instead.

    Parameters
    ----------
    samples
        Rows of `nvml_samples`, on the session clock.
    captures
        Rows of `capture`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> of_another_time(session.nvml_samples, session.capture)
    []
    """
    import polars as pl

    span = _span_ns(captures)
    if span is None or samples.is_empty():
        return []
    origin_ns = captures["utc_origin_ns"][0]
    zero_ns = None if origin_ns is None else origin_ns - captures["clock_offset_ns"][0]
    used = of_its_time(samples, captures)["source"].cast(pl.String).unique().to_list()
    unused = samples.with_columns(pl.col("source").cast(pl.String)).filter(~pl.col("source").is_in(used))
    rows = unused.group_by("source", maintain_order=True).agg(
        first=pl.col("time_ns").min(), last=pl.col("time_ns").max()
    )
    return [
        f"{row['source']}: samples of {_range(row['first'], row['last'], zero_ns)}, capture of "
        f"{_range(*span, zero_ns)}: the samples are not used. If the time zone is wrong, write "
        "2026-03-14T14:26:53+09:00"
        for row in rows.iter_rows(named=True)
    ]


def _span_ns(captures: pl.DataFrame) -> tuple[int, int] | None:
    """First and last time captured, on the session clock; None where a capture does not tell."""
    if captures.is_empty() or captures["start_ns"].null_count() or captures["end_ns"].null_count():
        return None
    first, last = captures["start_ns"].min(), captures["end_ns"].max()
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None


def _range(first_ns: int, last_ns: int, zero_ns: int | None) -> str:
    if zero_ns is None:
        return f"{first_ns / 1e9:.3f} s to {last_ns / 1e9:.3f} s"
    first, last = (datetime.fromtimestamp((ns + zero_ns) // 1_000_000_000, UTC) for ns in (first_ns, last_ns))
    same_day = first.date() == last.date()
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:{'%H:%M:%S' if same_day else '%Y-%m-%d %H:%M:%S'}} UTC"
