"""Units of work that somebody else wrote down: requests of a service, steps of a training loop."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from pyanalyze.errors import UsageError
from pyanalyze.text.times import position_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from pyanalyze.analysis.interference.slowdown import UnitsOfWork
    from pyanalyze.session import Session

#: What the rows of a file are called beside NVTX ranges.
GIVEN = "given units"
#: Fewer operations than this, or units of one name, have neither percentiles nor a pace.
ENOUGH = 20
#: Of fewer units of one name the core compares none.
ENOUGH_UNITS = 5
#: Most sentences about units of one tenant.
MOST_SAID = 6


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


def how_many_counted(session: Session, tenant: Mapping[str, Any], units: Sequence[UnitsOfWork]) -> tuple[str, ...]:
    """Say of the given units of a tenant how many were compared, and why the others were not.

    Parameters
    ----------
    session
        A session, with or without given units.
    tenant
        Its row of `tenants`.
    units
        What was compared.

    Returns
    -------
    tuple of str
        Nothing where all of them were, and are enough for percentiles.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> how_many_counted(session, session.tenants.row(0, named=True), [])
    ()
    """
    import polars as pl

    if session.work is None:
        return ()
    process = (pl.col("capture") == tenant["capture"]) & pl.col("pid").eq_missing(tenant["pid"])
    names = set(session.work.filter(process)["text"])
    if not names:
        return ()
    # NVTX ranges of the same name are units beside them.
    ranges = session.ranges().select("capture", "pid", "start_ns", "end_ns", pl.col("text").cast(pl.String))
    ranges = ranges.filter(process & pl.col("end_ns").is_not_null() & pl.col("text").is_in(names))
    launched = _launches(session, process & (pl.col("device_id") == tenant["device_id"]))
    first = launched.search_sorted(ranges["start_ns"], side="left")
    behind = launched.search_sorted(ranges["end_ns"], side="right")
    empty = (behind == first).alias("empty")
    sums = ranges.with_columns(empty).group_by("text").agg(pl.len(), pl.col("empty").sum()).sort("text")
    found = {one.name: one.latency for one in units}
    few = sums.filter(pl.col("len") < ENOUGH_UNITS)
    said = []
    if few.height:
        which = f"{few['text'][0]}: " if few.height == 1 else f"of {few.height} names: "
        said.append(
            f"{which}none of {few['len'].sum()} counted: fewer than {ENOUGH_UNITS} of one name are not compared"
        )
    for name, whole, nothing in sums.filter(pl.col("len") >= ENOUGH_UNITS).iter_rows():
        latency = found.get(name)
        counted = 0 if latency is None else latency.n
        others = []
        if nothing := min(nothing, whole - counted):
            others.append(f"nothing was launched in {nothing}")
        if unknown := whole - counted - nothing:
            others.append(f"the time alone is not known of what was launched in {unknown}")
        why = f": {', '.join(others)}" if others else ""
        if latency is not None and counted < ENOUGH:
            why += f"; their latency slowdown is {latency.value:.2f}, percentiles need {ENOUGH}"
        if why:
            said.append(f"{name}: {counted or 'none'} of {whole} counted{why}")
    return tuple(said[:MOST_SAID])


def _launches(session: Session, own: pl.Expr) -> pl.Series:
    """When what a tenant did on a device was launched, in order: by the call, else by its own begin."""
    import polars as pl

    columns = ("capture", "pid", "device_id", "correlation_id", "start_ns")
    work = pl.concat([session.part(name, *columns).filter(own) for name in ("kernels", "memops", "graph_launches")])
    calls = session.calls()
    if calls is not None:
        key = ["capture", "pid", "correlation_id"]
        begun = calls.filter(pl.col("correlation_id").is_not_null()).group_by(key).agg(pl.col("start_ns").min())
        work = work.join(begun.rename({"start_ns": "called_ns"}), on=key, how="left", nulls_equal=True)
        early = pl.col("called_ns") <= pl.col("start_ns")
        work = work.with_columns(pl.when(early).then("called_ns").otherwise("start_ns").alias("start_ns"))
    return work["start_ns"].sort()


def _time(text: str | None, path: Path, number: int, origin_ns: int | None) -> int:
    try:
        return position_ns((text or "").strip(), origin_ns)
    except UsageError as error:
        raise UsageError(f"{path}, line {number}: {error}") from None
