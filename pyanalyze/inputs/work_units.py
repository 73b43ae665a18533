"""Units of work given beside a capture: requests of a service, steps of a training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.errors import UsageError
from pyanalyze.inputs.csv_rows import csv_rows
from pyanalyze.text.times import position_ns

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl


#: What the rows of a file are called beside NVTX ranges.
GIVEN = "given units"


def read_work(path: Path, tenants: pl.DataFrame, origin_ns: int | None) -> pl.DataFrame:
    r"""Read units of work: a CSV file with the columns tenant, start, end and, if wanted, name.

    Parameters
    ----------
    path
        The file. Times are as :func:`pyanalyze.text.times.position_ns` takes them: on the clock of the first capture in
        nsys syntax (``1s200ms``; a number alone is nanoseconds), or RFC 3339. What was launched in a unit belongs to
        it: it lasts to the end of the last of those operations, or to its own end where that is later.
    tenants
        The session's tenants: `tenant` is a name among them, or a pid.
    origin_ns
        UTC of the session's zero, for RFC 3339; None where the capture does not say.

    Returns
    -------
    polars.DataFrame
        Rows of the `nvtx` table: the units as ranges of no thread.

    Raises
    ------
    pyanalyze.errors.UsageError
        Naming the line that cannot be understood.

    Examples
    --------
    >>> import pyanalyze, tempfile
    >>> from pathlib import Path
    >>> session = pyanalyze.load(capture)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "requests.csv"
    ...     _ = file.write_text("tenant,start,end\napp_a,400000000,420000000\n")
    ...     read_work(file, session.tenants, None)["end_ns"].to_list()
    [420000000]
    """
    import polars as pl

    names, given = csv_rows(path)
    if not {"tenant", "start", "end"} <= set(names):
        raise UsageError(f"{path}: units of work need the columns tenant, start, end")
    known: dict[str, tuple[int, int | None]] = {}
    for row in tenants.filter("traced").iter_rows(named=True):
        for key in (row["name"], row["pid"], row["host_pid"]):
            known.setdefault(str(key), (row["capture"], row["pid"]))
    rows = []
    for number, row in enumerate(given, start=2):
        who = known.get(row["tenant"] or "")
        if who is None:
            there = ", ".join(sorted({str(name) for name in tenants.filter("traced")["name"]}))
            raise UsageError(f"{path}, line {number}: there is no traced tenant {row['tenant']!r}; there are {there}")
        start, end = (_time(row[key], path, number, origin_ns) for key in ("start", "end"))
        if end < start:
            raise UsageError(f"{path}, line {number}: it ends before it starts")
        rows.append((*who, start, end, "start-end", row.get("name") or GIVEN))
    columns = {"capture": pl.UInt32, "pid": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64, "kind": pl.String}
    made = pl.DataFrame(rows, schema={**columns, "text": pl.String}, orient="row")
    return made.with_columns(
        pl.lit(None, dtype=pl.UInt32).alias("tid"), pl.lit(None, dtype=pl.UInt64).alias("domain_id")
    )


def _time(text: str | None, path: Path, number: int, origin_ns: int | None) -> int:
    try:
        return position_ns((text or "").strip(), origin_ns)
    except UsageError as error:
        raise UsageError(f"{path}, line {number}: {error}") from None
