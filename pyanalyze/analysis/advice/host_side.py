"""Causes of slowness that no other sharing configuration removes: clocks, the default stream, full grids."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.results.advice import Advice
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import polars as pl

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.streams import Streams
    from pyanalyze.results.time_split import TimeSplit
    from pyanalyze.tables.tableset import TableSet


#: Part of a tenant's time with kernels in flight, below which it does not matter whether its streams overlap.
NOTABLE_KERNELS = 0.2
#: SM clock below this part of its maximum while the device was busy.
THROTTLED = 0.85
#: Kernel time in grids of at least one whole wave.
FULL_GRIDS = 0.8
#: Part of the kernels in the legacy default stream, from which it serialises the others.
NOTABLE_DEFAULT_STREAM = 0.05
#: nsys numbers the legacy default stream so.
DEFAULT_STREAM = 7


@dataclass(frozen=True)
class Cause:
    """A cause that lies with a tenant or its host.

    Attributes
    ----------
    kind
        ``throttled``, ``default-stream`` or ``full-grids``.
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


def causes(
    tables: TableSet,
    device_id: int,
    splits: Mapping[tuple[int, int], TimeSplit],
    used: Mapping[tuple[int, int], Streams],
) -> list[Cause]:
    """Find what slows tenants down whoever else is there, besides the parts of their own time.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.
    splits, used
        Where the time of each tenant went, and whether its streams overlapped.

    Returns
    -------
    list of Cause
        Empty where nothing of the kind was seen.

    Examples
    --------
    >>> import pyanalyze
    >>> [cause.kind for cause in causes(pyanalyze.load(capture).tables, 0, {}, {})]
    []
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    found: list[Cause] = []
    throttled = _throttled(tables, device_id)
    if throttled:
        found.append(throttled)
    processes = {
        (row["capture"], row["pid"]): row["tenant_id"]
        for row in sorted(tables.rows_of("tenants", device_id), key=lambda row: row["tenant_id"])
        if row["traced"] and could_overlap(splits.get((device_id, row["tenant_id"])))
    }
    streams = _streams(tables, device_id) if processes else {}
    for process, tenant in processes.items():
        shapes = tables.kernel_occupancy.filter(here & (pl.col("tenant_id") == tenant))
        own = streams.get(process, {})
        legacy = (
            _legacy_between(tables, device_id, process, own) if _may_serialise(used.get((device_id, tenant))) else 0
        )
        found += _of_streams(tenant, own, shapes, legacy)
    return found


def _may_serialise(streams: Streams | None) -> bool:
    """Whether the legacy default stream may have kept others from running: with launch calls the time lost is known.

    Without them, streams that did run beside it show that it does not.
    """
    if streams is None:
        return True
    beside = [pair for pair in streams.pairs if DEFAULT_STREAM in (pair.stream_a, pair.stream_b)]
    return not streams.calls_known and not any(pair.overlap_ns for pair in beside)


def could_overlap(split: TimeSplit | None) -> bool:
    """Whether kernels are a notable part of a tenant's time: else streams that overlap would bring nothing."""
    return split is not None and split.kernels_ns > NOTABLE_KERNELS * split.window_ns


@dataclass
class _Stream:
    """Kernels of one stream of a process."""

    kernels: int
    first_ns: int
    last_ns: int


def _streams(tables: TableSet, device_id: int) -> dict[tuple[int, int | None], dict[int, _Stream]]:
    """The streams with kernels of every process, in pieces, so that copies of the kernels take no notable memory."""
    import polars as pl

    found: dict[tuple[int, int | None], dict[int, _Stream]] = {}
    for piece in tables.batches("kernels", "device_id", "capture", "pid", "stream_id", "start_ns", "end_ns"):
        # The streaming engine groups rows as they stand: few streams need no copy of the keys of a million rows.
        rows = (
            piece.lazy()
            .filter(pl.col("device_id") == device_id, pl.col("stream_id").is_not_null())
            .group_by("capture", "pid", "stream_id")
            .agg(pl.len(), pl.col("start_ns").min(), pl.col("end_ns").max())
            .collect(engine="streaming")
        )
        for capture, pid, stream, n, first_ns, last_ns in rows.iter_rows():
            known = found.setdefault((capture, pid), {}).setdefault(stream, _Stream(0, first_ns, last_ns))
            known.kernels += n
            known.first_ns, known.last_ns = min(known.first_ns, first_ns), max(known.last_ns, last_ns)
    return found


def _coexist(streams: Collection[_Stream]) -> bool:
    """Whether two of them had kernels within the same stretch of time."""
    in_order = sorted(streams, key=lambda one: one.first_ns)
    return any(later.first_ns < before.last_ns for before, later in itertools.pairwise(in_order))


def _legacy_between(
    tables: TableSet, device_id: int, process: tuple[int, int | None], streams: Mapping[int, _Stream]
) -> int:
    """Count kernels of the legacy default stream from the first to the last kernel of the process's other streams.

    Those before and after, such as a program's initialisation, keep nothing from running.
    """
    import polars as pl

    others = [one for stream, one in streams.items() if stream != DEFAULT_STREAM]
    if DEFAULT_STREAM not in streams or not others:
        return 0
    first_ns, last_ns = min(one.first_ns for one in others), max(one.last_ns for one in others)
    capture, pid = process
    mine = (
        (pl.col("device_id") == device_id)
        & (pl.col("stream_id") == DEFAULT_STREAM)
        & (pl.col("capture") == capture)
        & pl.col("pid").eq_missing(pid)
        & pl.col("start_ns").is_between(first_ns, last_ns)
    )
    pieces = tables.batches("kernels", "device_id", "capture", "pid", "stream_id", "start_ns")
    return sum(piece.filter(mine).height for piece in pieces)


def full_grids(shapes: pl.DataFrame) -> float | None:
    """Part of kernel time in grids of at least one wave; None: there is no kernel.

    Parameters
    ----------
    shapes
        Rows of `kernel_occupancy`.
    """
    import polars as pl

    total = int(shapes["total_ns"].sum())
    return int(shapes.filter(pl.col("waves") >= 1)["total_ns"].sum()) / total if total else None


def _of_streams(tenant: int, streams: Mapping[int, _Stream], shapes: pl.DataFrame, legacy: int) -> list[Cause]:

    if len(streams) < 2 or not _coexist(streams.values()):
        return []
    found = []
    known = sum(one.kernels for one in streams.values())
    if legacy and NOTABLE_DEFAULT_STREAM * known <= legacy < known:
        found.append(
            Cause(
                "default-stream", tenant,
                f"{legacy} of {known} kernels were in the legacy default stream while others worked. It synchronises "
                f"with the {len(streams) - 1} other streams unless they were created non-blocking",
                "build with --default-stream per-thread, or create streams with cudaStreamNonBlocking",
            )
        )  # fmt: skip
    full = full_grids(shapes)
    if full is not None and full > FULL_GRIDS:
        found.append(
            Cause(
                "full-grids", tenant,
                f"{fmt.percent(full, 0)} of its kernel time is in grids that fill the device, in "
                f"{len(streams)} streams",
                "use smaller grids or fewer streams: these kernels run one after the other in every mode without "
                "partitions",
            )
        )  # fmt: skip
    return found


_REASON = "clocks_event_reasons."


def _throttled(tables: TableSet, device_id: int) -> Cause | None:
    import polars as pl

    samples = tables.board_samples_of(device_id)
    if "clock_sm_hz" not in samples:
        return None
    clock = samples["clock_sm_hz"].select("time_ns", "value")
    if "gpu_utilization_pct" in samples:
        busy = samples["gpu_utilization_pct"].select("time_ns", pl.col("value").alias("busy"))
        clock = clock.join(busy, on="time_ns").filter(pl.col("busy") > 0)
    if len(clock) < 4:
        return None
    limit = samples["clock_sm_max_hz"]["value"].max() if "clock_sm_max_hz" in samples else None
    # Without the maximum: against what the same run reached.
    top = limit if isinstance(limit, float) else clock["value"].max()
    slow = clock.filter(pl.col("value") < THROTTLED * float(str(top)))
    if slow.height * 5 < clock.height:
        return None
    # Flags are 1 or 0; the mask of all of them is text, as is what the driver does not answer.
    then = pl.col("time_ns").is_null() | pl.col("time_ns").is_in(slow["time_ns"].to_list())
    flags = {metric: rows for metric, rows in samples.items() if metric.startswith(_REASON)}
    reasons = sorted(
        metric.removeprefix(_REASON)
        for metric, rows in flags.items()
        if not rows.filter(then & (pl.col("value") == 1)).is_empty()
    )
    named = f"; reasons: {', '.join(reasons)}" if reasons else ""
    median = slow["value"].median()
    return Cause(
        "throttled", None,
        f"the SM clock was below {fmt.percent(THROTTLED, 0)} of {float(str(top)) / 1e6:.0f} MHz in {slow.height} of "
        f"{clock.height} samples (median {float(str(median)) / 1e6:.0f} MHz){named}",
        "check power limit, cooling and application clocks (nvidia-smi -q -d PERFORMANCE,CLOCK,POWER). Clocks are "
        "shared by the whole board in every mode, including MIG",
    )  # fmt: skip


def check_first(
    tables: TableSet,
    verdict: Verdict,
    splits: Mapping[tuple[int, int], TimeSplit],
    streams: Mapping[tuple[int, int], Streams],
) -> Iterator[Advice]:
    """Advise to look first at what no other sharing configuration removes."""
    names = tables.labels(verdict.device_id)
    instance = TRAITS[verdict.mode].mig_instance
    where = "instance" if instance else "GPU"
    bound = "changing the sharing mode gains nothing"
    if instance:
        bound = "changing the sharing mode of this instance gains nothing; the gain of a larger instance is not known"
    titles = {
        "throttled": "its clocks are throttled",
        "default-stream": "the legacy default stream serialises its streams",
        "full-grids": f"its streams cannot overlap, because each grid fills the {where}",
    }
    for cause in causes(tables, verdict.device_id, splits, streams):
        who = "the board" if cause.tenant_id is None else names.get(cause.tenant_id, f"tenant {cause.tenant_id}")
        yield Advice(
            action=f"Check {who} first: {titles[cause.kind]}",
            commands=[],
            expected=None,
            # Clocks are the board's.
            bound=bound if cause.tenant_id is not None else "changing the sharing mode gains nothing",
            why=f"{cause.what}. To fix it: {cause.do}",
            undo=None,
            wrong_if="a solo run shows another value",
        )
