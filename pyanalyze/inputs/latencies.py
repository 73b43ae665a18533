"""Latencies given beside samples: one row per request or step, with its time and how long it took."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyanalyze.errors import UsageError
from pyanalyze.inputs.csv_rows import csv_rows
from pyanalyze.text.numbers import FARTHEST_NS, bounded_float, bounded_int, bounded_time_ns
from pyanalyze.text.times import position_ns

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

__all__ = ["read_latencies"]

_TIMES = ("start", "time", "timestamp")
#: Columns with a latency, and nanoseconds in their unit.
_UNITS = {
    "latency_ns": 1.0,
    "latency_us": 1e3,
    "latency_ms": 1e6,
    "latency_s": 1e9,
    "latency": 1e9,
}
#: Numbers above are seconds since 1970; smaller ones count from the first sample.
_EPOCH_S = 1e9
_EPOCH_NS = 1e18


def read_latencies(path: Path, samples: pl.DataFrame, origin_ns: int | None) -> pl.DataFrame:
    r"""Read latencies for a session that samples made.

    Parameters
    ----------
    path
        A CSV file with a time (`start`, `time` or `timestamp`), a latency (`latency_ms`, `latency_us`, `latency_ns`,
        `latency_s`, or `latency` in seconds; else `end`), and, if wanted, `tenant`. Times are RFC 3339, as nvidia-smi
        writes them, seconds since 1970, or as for ``--start``.
    samples
        Rows of `nvml_samples`: they tie local times to the session's zero.
    origin_ns
        UTC of the session's zero; None where samples have local times only.

    Returns
    -------
    polars.DataFrame
        `tenant`, `time_ns` on the session clock, `latency_ns`, by time.

    Raises
    ------
    pyanalyze.errors.UsageError
        Naming the line that cannot be understood.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pyanalyze.tables.tableset import empty_frame
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "requests.csv"
    ...     _ = file.write_text("time,latency_ms\n2026-06-20T17:05:19Z,12.5\n")
    ...     read_latencies(file, empty_frame("nvml_samples"), 1_781_975_118_000_000_000).rows()
    [(None, 1000000000, 12500000)]
    """
    import polars as pl

    columns, given = csv_rows(path)
    names = {name.strip(): name for name in columns}
    when = next((name for name in _TIMES if name in names), None)
    took = next((name for name in _UNITS if name in names), None)
    if when is None or (took is None and "end" not in names):
        raise UsageError(f"{path}: latencies need a column {', '.join(_TIMES)} and one of {', '.join(_UNITS)}, or end")
    if samples.height and samples["time_ns"].null_count() == samples.height:
        raise UsageError(f"{path}: latencies need samples with times to compare with, and these have none")
    # Those of samples without dates are before 1970.
    dated = samples.filter(pl.col("time_local_ns") >= 0)
    known = dated.select("time_local_ns", "time_ns").drop_nulls().head(1).rows()
    local_ns = known[0][0] - known[0][1] if known else None
    rows = []
    for number, row in enumerate(given, start=2):
        try:
            start = _time_ns(row[names[when]] or "", origin_ns, local_ns)
            if took is not None:
                length = _length_ns(row[names[took]] or "", _UNITS[took])
            else:
                length = _time_ns(row[names["end"]] or "", origin_ns, local_ns) - start
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        if length < 0:
            raise UsageError(f"{path}, line {number}: it ends before it starts")
        rows.append(((row.get(names.get("tenant", "")) or "").strip() or None, start, length))
    schema = {"tenant": pl.String, "time_ns": pl.Int64, "latency_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("time_ns", maintain_order=True)


def _time_ns(text: str, origin_ns: int | None, local_ns: int | None) -> int:
    text = text.strip()
    seconds = bounded_float(text, _EPOCH_S)
    if seconds is not None:
        ns = bounded_int(text) if seconds >= _EPOCH_NS else round(seconds * 1e9)
        return _placed(ns, origin_ns, text)
    try:
        moment = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        return position_ns(text, origin_ns)
    if moment.tzinfo is not None:
        return _placed(_ns(moment), origin_ns, text)
    # Without a zone it is of the machine's clock, as nvidia-smi's times are.
    return _placed(_ns(moment.replace(tzinfo=UTC)), origin_ns if local_ns is None else local_ns, text)


def _ns(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def _length_ns(text: str, unit_ns: float) -> int:
    number = bounded_float(text, most=FARTHEST_NS / unit_ns)
    if number is None:
        raise UsageError(f"{text!r} is not a number, or longer than any clock shows")
    return round(number * unit_ns)


def _placed(ns: int | None, zero_ns: int | None, text: str) -> int:
    if zero_ns is None:
        raise UsageError(f"{text} cannot be placed: the samples have no UTC; give times without a zone, as they have")
    placed = None if ns is None else bounded_time_ns(ns - zero_ns)
    if placed is None:
        raise UsageError(f"{text} is a time that no clock shows")
    return placed
