"""Units of work that somebody else wrote down: requests of a service, steps of a training loop."""

from __future__ import annotations

import csv
from datetime import datetime
from typing import TYPE_CHECKING

from pyanalyze.exceptions import UsageError

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
        The file. Times are whole nanoseconds on the clock of the first capture (as nsys shows them), or RFC 3339.
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
    pyanalyze.exceptions.UsageError
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

    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            reader = csv.DictReader(file)
            if not {"tenant", "start", "end"} <= set(reader.fieldnames or ()):
                raise UsageError(f"{path}: units of work need the columns tenant, start, end")
            given = list(reader)
        except (csv.Error, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: no CSV file: {error}") from error
    known: dict[str, tuple[int, int | None]] = {}
    for row in tenants.filter("traced").iter_rows(named=True):
        for key in (row["name"], row["pid"], row["host_pid"]):
            known.setdefault(str(key), (row["capture"], row["pid"]))
    rows = []
    for number, row in enumerate(given, start=2):
        who = known.get(row["tenant"] or "")
        if who is None:
            names = ", ".join(sorted({str(name) for name in tenants.filter("traced")["name"]}))
            raise UsageError(f"{path}, line {number}: no traced tenant is {row['tenant']!r}; there are {names}")
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
    text = (text or "").strip()
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{path}, line {number}: {text!r} is no time; give whole nanoseconds on the capture's clock, or RFC 3339"
        ) from None
    if moment.tzinfo is None or origin_ns is None:
        why = (
            "has no time zone" if moment.tzinfo is None else "cannot be placed: the capture does not say when it began"
        )
        raise UsageError(f"{path}, line {number}: {text} {why}")
    # In whole microseconds: a double does not hold nanoseconds since 1970.
    seconds = int(moment.timestamp())
    return seconds * 1_000_000_000 + moment.microsecond * 1000 - origin_ns
