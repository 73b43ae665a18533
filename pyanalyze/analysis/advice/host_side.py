"""Causes of slowness that no other sharing configuration removes: launches, copies, clocks, streams, full grids."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

#: Short gaps between kernels for this part of a tenant's time: the GPU waits for launches.
WAITS_FOR_LAUNCHES = 0.2
#: Gaps between kernels that are at most so long come from launching, not from thinking.
LAUNCH_GAP_NS = 250_000
#: Copies in flight for more than this part of the time.
MOSTLY_COPIES = 0.5
#: SM clock below this part of its maximum while the device was busy.
THROTTLED = 0.85
#: Kernel time in grids of at least one whole wave.
FULL_GRIDS = 0.8
#: Part of the kernels in the legacy default stream, from which it serialises the others.
NOTABLE_DEFAULT_STREAM = 0.05
#: Lengths of kernels are counted in such steps, of which a recording has far fewer than lengths.
STEP_NS = 4096
#: nsys numbers the legacy default stream so.
DEFAULT_STREAM = 7


@dataclass(frozen=True)
class Cause:
    """A cause that lies with a tenant or its host.

    Attributes
    ----------
    kind
        ``launch-bound``, ``copy-bound``, ``throttled``, ``default-stream`` or ``full-grids``.
    tenant_id
        Whose; None: everybody's.
    what
        What was measured.
    do
        What to do about it.
    """

    kind: str
    tenant_id: int | None
    what: str
    do: str


def causes(tables: TableSet, device_id: int) -> list[Cause]:
    """Find what slows tenants down whoever else is there.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.

    Returns
    -------
    list of Cause
        Empty where nothing of the kind was seen.

    Examples
    --------
    >>> import pyanalyze
    >>> [cause.kind for cause in causes(pyanalyze.load(capture).tables, 0)]
    []
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    tenants = tables.tenants.filter(here & pl.col("traced"))
    usage = tables.tenant_usage.filter(here)
    found: list[Cause] = []
    throttled = _throttled(tables, device_id)
    if throttled:
        found.append(throttled)
    launched = _launched(tables, device_id)
    for tenant in tenants.sort("tenant_id").iter_rows(named=True):
        row = usage.filter(pl.col("tenant_id") == tenant["tenant_id"]).row(0, named=True)
        process = (tenant["capture"], tenant["pid"])
        if process not in launched or row["first_ns"] is None:
            continue
        span = max(row["last_ns"] - row["first_ns"], 1)
        shape = tables.kernel_occupancy.filter(here & (pl.col("tenant_id") == tenant["tenant_id"]))

        def median(process: tuple[int, int | None] = process) -> float | None:
            return _median_ns(tables, device_id, process)

        found += _of_tenant(tenant["tenant_id"], row, launched[process], median, shape, span)
    return found


@dataclass
class _Launched:
    """What the kernels of a process add up to, taken up piece by piece."""

    kernels: int = 0
    short_gaps_ns: int = 0
    busy_until_ns: int | None = None
    streams: Counter[int] = field(default_factory=Counter)


def _pieces(tables: TableSet, device_id: int, *columns: str) -> Iterator[pl.DataFrame]:
    """Kernels of a device in order, so many at a time that copies of them take no notable memory."""
    import polars as pl

    for piece in tables.batches("kernels", "device_id", "capture", "pid", "start_ns", "end_ns", *columns):
        yield piece.filter(pl.col("device_id") == device_id)


def _launched(tables: TableSet, device_id: int) -> dict[tuple[int, int | None], _Launched]:
    import polars as pl

    found: dict[tuple[int, int | None], _Launched] = {}
    for piece in _pieces(tables, device_id, "stream_id"):
        for (capture, pid), part in piece.partition_by("capture", "pid", maintain_order=True, as_dict=True).items():
            all_ = found.setdefault((capture, pid), _Launched())
            until = pl.lit(all_.busy_until_ns, dtype=pl.Int64)
            # Before the first kernel of all there is no gap.
            ends = part.select(pl.max_horizontal(pl.col("end_ns").cum_max(), until).alias("end_ns"))["end_ns"]
            before = ends.shift(1, fill_value=all_.busy_until_ns)
            gaps = part["start_ns"] - before
            all_.short_gaps_ns += int(gaps.filter((gaps > 0) & (gaps <= LAUNCH_GAP_NS)).sum())
            all_.kernels += part.height
            all_.busy_until_ns = int(ends[-1])
            all_.streams.update(dict(part["stream_id"].drop_nulls().value_counts().iter_rows()))
    return found


def _median_ns(tables: TableSet, device_id: int, process: tuple[int, int | None]) -> float | None:
    """Median time in flight of the kernels of a process: counted by steps, then by nanoseconds around the middle."""
    import polars as pl

    capture, pid = process
    mine = (pl.col("capture") == capture) & pl.col("pid").eq_missing(pl.lit(pid, dtype=pl.UInt32))
    ns = pl.col("end_ns") - pl.col("start_ns")

    def counted(key: pl.Expr, steps: set[int] | None = None) -> tuple[pl.Series, pl.Series]:
        """Values in order, and how many kernels have it or less."""
        counts = pl.DataFrame(schema={"key": pl.Int64, "n": pl.Int64})
        for piece in _pieces(tables, device_id):
            here = mine if steps is None else mine & (ns // STEP_NS).is_in(steps)
            more = piece.filter(here).select(key=key).group_by("key").agg(n=pl.len().cast(pl.Int64))
            counts = pl.concat([counts, more]).group_by("key").agg(pl.col("n").sum())
        counts = counts.sort("key")
        return counts["key"], counts["n"].cum_sum()

    steps, until = counted(ns // STEP_NS)
    if steps.is_empty():
        return None
    middle = (int(until[-1]) + 1) // 2, int(until[-1]) // 2 + 1
    at = [int(until.search_sorted(rank)) for rank in middle]
    before = int(until[at[0] - 1]) if at[0] else 0
    lengths, until = counted(ns, {int(steps[place]) for place in at})
    low, high = (int(lengths[int(until.search_sorted(rank - before))]) for rank in middle)
    return (low + high) / 2


def _of_tenant(
    tenant: int,
    usage: dict[str, int | None],
    launched: _Launched,
    median_ns: Callable[[], float | None],
    shapes: pl.DataFrame,
    span: int,
) -> list[Cause]:
    import polars as pl

    found = []
    busy = (usage["busy_ns"] or 0) / span
    copying = (usage["copy_ns"] or 0) / span
    if copying > MOSTLY_COPIES and copying > busy:
        found.append(
            Cause(
                "copy-bound", tenant,
                f"copies were in flight for {fmt.percent(copying, 0)} of its time, kernels for {fmt.percent(busy, 0)}",
                "copy less, use pinned memory, and overlap copies with kernels (other streams). Copy engines and the "
                "link are shared in every mode, including MIG",
            )
        )  # fmt: skip
    short = launched.short_gaps_ns
    waits = launched.kernels >= 100 and short > WAITS_FOR_LAUNCHES * span
    median = median_ns() if waits else None
    if median is not None:
        found.append(
            Cause(
                "launch-bound", tenant,
                f"kernels were in flight for {fmt.percent(busy, 0)} of its time; gaps of at most "
                f"{LAUNCH_GAP_NS // 1000} "
                f"us took {fmt.percent(short / span, 0)} ({launched.kernels} kernels, median {fmt.duration(median)})",
                "launch fewer, longer kernels (CUDA graphs, fusion, larger batches), or give its host more CPU",
            )
        )  # fmt: skip
    streams = len(launched.streams)
    known, legacy = launched.streams.total(), launched.streams[DEFAULT_STREAM]
    if streams > 1 and NOTABLE_DEFAULT_STREAM * known <= legacy < known:
        found.append(
            Cause(
                "default-stream", tenant,
                f"{legacy} of {known} kernels were in the legacy default stream, which synchronises with its "
                f"{streams - 1} other streams unless they were created non-blocking",
                "build with --default-stream per-thread, or create streams with cudaStreamNonBlocking",
            )
        )  # fmt: skip
    total = int(shapes["total_ns"].sum())
    full = int(shapes.filter(pl.col("waves") >= 1)["total_ns"].sum())
    if streams > 1 and total and full > FULL_GRIDS * total:
        found.append(
            Cause(
                "full-grids", tenant,
                f"{fmt.percent(full / total, 0)} of its kernel time is in grids that fill the device, in {streams} "
                "streams",
                "use smaller grids or fewer streams: these kernels run one after the other in every mode without "
                "partitions",
            )
        )  # fmt: skip
    return found


_REASON = "clocks_event_reasons."


def _throttled(tables: TableSet, device_id: int) -> Cause | None:
    import polars as pl

    samples = tables.samples.filter((pl.col("device_id") == device_id) & pl.col("pid").is_null()).with_columns(
        pl.col("metric").cast(pl.String)
    )
    clock = samples.filter(pl.col("metric") == "clock_sm_hz").select("time_ns", "value")
    busy = samples.filter(pl.col("metric") == "gpu_utilization_pct").select("time_ns", pl.col("value").alias("busy"))
    limit = samples.filter(pl.col("metric") == "clock_sm_max_hz")["value"].max()
    if not busy.is_empty():
        clock = clock.join(busy, on="time_ns").filter(pl.col("busy") > 0)
    if len(clock) < 4:
        return None
    # Without the maximum: against what the same run reached.
    top = limit if isinstance(limit, float) else clock["value"].max()
    slow = clock.filter(pl.col("value") < THROTTLED * float(str(top)))
    if slow.height * 5 < clock.height:
        return None
    # Flags are 1 or 0; the mask of all of them is text, as is what the driver does not answer.
    then = pl.col("time_ns").is_null() | pl.col("time_ns").is_in(slow["time_ns"].to_list())
    flags = samples.filter(then & pl.col("metric").str.starts_with(_REASON) & (pl.col("value") == 1))["metric"]
    reasons = sorted({flag.removeprefix(_REASON) for flag in flags})
    named = f"; reasons: {', '.join(reasons)}" if reasons else ""
    median = slow["value"].median()
    return Cause(
        "throttled", None,
        f"the SM clock was below {fmt.percent(THROTTLED, 0)} of {float(str(top)) / 1e6:.0f} MHz in {slow.height} of "
        f"{clock.height} samples (median {float(str(median)) / 1e6:.0f} MHz){named}",
        "check power limit, cooling and application clocks (nvidia-smi -q -d PERFORMANCE,CLOCK,POWER). Clocks are "
        "shared by the whole board in every mode, including MIG",
    )  # fmt: skip
