"""Do the streams of one process overlap, why not, and who slows whom?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.results.streams import StreamLoss, StreamPair, Streams, StreamSlowdown, StreamUse
from pyanalyze.tables.frames import FrameTable
from pyanalyze.tables.selections import of_process, work_of
from pyanalyze.vocabulary import SMALL_SHARE, StreamReason, is_slowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    import polars as pl

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["stream_tables", "streams_of"]

_WORK = ("kernels", "memops", "graph_launches")
_OWNER = ("capture", "pid", "device_id")
#: Part of the overlap of two streams in which the slowdown of what either had in flight is known: it says what the
#: overlap brought.
_MOST_OVERLAP = 0.9
_PAIR = ("device_id", "tenant_id", "context_a", "stream_a", "context_b", "stream_b")


def stream_tables(tables: TableSet, caps: Mapping[int, Mapping[int, int]] | None = None) -> Mapping[str, AnyTable]:
    """Compute the tables named ``stream_...``.

    Parameters
    ----------
    tables
        The tables. API calls are read only where a process used several streams of one device.
    caps
        SMs that a tenant may use, by device and tenant: a kernel that fills those leaves none to its other streams.

    Returns
    -------
    mapping of str to table
        ``stream_work``, ``stream_pairs``, ``stream_losses``, ``stream_contention``.

    Examples
    --------
    >>> import pyanalyze
    >>> sorted(stream_tables(pyanalyze.load(capture).tables))
    ['stream_contention', 'stream_losses', 'stream_pairs', 'stream_work']
    """
    given = tables.with_calls("event_calls") if _used_several(tables) else tables.for_core()
    capped = {(device, tenant): sms for device, of in (caps or {}).items() for tenant, sms in of.items()}
    if capped:
        given["contexts"] = FrameTable("contexts", _with_caps(tables, capped))
    made: Mapping[str, AnyTable] = _core.streams(given)
    return made


def _with_caps(tables: TableSet, capped: Mapping[tuple[int, int], int]) -> pl.DataFrame:
    """Contexts with the SMs that a cap leaves them, where the capture does not say how many CUDA showed them."""
    import polars as pl

    rows = [(device, tenant, sms) for (device, tenant), sms in capped.items()]
    schema = {"device_id": pl.UInt32, "tenant_id": pl.UInt32, "cap": pl.UInt32}
    caps = pl.DataFrame(rows, schema=schema, orient="row")
    whose = tables.tenants.filter("traced").join(caps, on=["device_id", "tenant_id"])
    whose = whose.select("device_id", "capture", "pid", "cap").unique(["device_id", "capture", "pid"])
    keys = ["device_id", "capture", "pid"]
    joined = tables.contexts.join(whose, on=keys, how="left", nulls_equal=True, maintain_order="left")
    green = pl.col("is_green").fill_null(value=False)
    sms = pl.when(green).then("sm_count").otherwise(pl.coalesce("sm_count", "cap"))
    return joined.with_columns(sms.alias("sm_count")).select(tables.contexts.columns)


def _used_several(tables: TableSet) -> bool:
    """Whether any process used several streams of one device: seen without reading anything further."""
    import polars as pl

    columns = (*_OWNER, "context_id", "stream_id")
    used = [tables.columns(name, *columns).unique() for name in _WORK if name in tables]
    if not used:
        return False
    streams = pl.concat(used).filter(pl.col("stream_id").is_not_null()).unique()
    return bool(streams.group_by(_OWNER).len()["len"].gt(1).any())


def streams_of(tables: TableSet, time_sliced: AbstractSet[int] = frozenset()) -> dict[tuple[int, int], Streams]:
    """Say of every traced tenant with several streams whether they overlapped, why not, and who slowed whom.

    Parameters
    ----------
    tables
        The tables, with those of :func:`stream_tables`.
    time_sliced
        Devices on which no two processes execute at the same time: kernels of another one delay none there, though
        their records overlap.

    Returns
    -------
    dict of (int, int) to Streams
        By device and tenant; tenants with one stream are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> found = streams_of(pyanalyze.load(capture).tables)
    >>> [(use.stream_id, use.kernels) for use in found[0, 0].streams]
    [(13, 339), (14, 113)]
    """
    import polars as pl

    work = tables.stream_work.filter(pl.col("tenant_id").is_not_null())
    found = {}
    for device_id, tenant_id in (
        work.select("device_id", "tenant_id").unique().sort("device_id", "tenant_id").iter_rows()
    ):
        here = (pl.col("device_id") == device_id) & (pl.col("tenant_id") == tenant_id)
        used = work.filter(here)
        contention = tables.stream_contention.filter(here).with_columns(
            pl.col("short_name", "beside_kernel").cast(pl.String)
        )
        if device_id in time_sliced:
            # Kernels that are switched out take longer beside anything: their durations say nothing of streams.
            contention = contention.clear()
        slowdowns = [
            _slowdown(row)
            for row in contention.sort(
                "total_ns", "stream_id", "short_name", descending=[True, False, False]
            ).iter_rows(named=True)
        ]
        losses: dict[tuple[Any, ...], list[StreamLoss]] = {}
        filled: dict[tuple[Any, ...], str] = {}
        lost = tables.stream_losses.filter(here)
        if device_id in time_sliced:
            lost = _without_other_processes(lost)
        for row in lost.sort("without_overlap_ns", maintain_order=True).iter_rows(named=True):
            loss = StreamLoss(
                reason=StreamReason(row["reason"]),
                waiting_stream=row["waiting_stream"],
                had_work=row["had_work"],
                without_overlap_ns=row["without_overlap_ns"],
                operations=row["operations"],
            )
            whose = tuple(row[key] for key in _PAIR)
            losses.setdefault(whose, []).append(loss)
            # Of two streams that waited for SMs, the last one waited longest.
            if row["filled_by"] is not None:
                filled[*whose, loss.reason] = row["filled_by"]
        slowed = _slowed_beside(slowdowns)
        pairs = [
            _pair(row, losses.get(tuple(row[key] for key in _PAIR), []), slowed, filled, slowdowns)
            for row in tables.stream_pairs.filter(here).iter_rows(named=True)
        ]
        pairs.sort(
            key=lambda pair: (-pair.not_overlapped_ns - pair.late_ns, -pair.overlap_ns, pair.stream_a, pair.stream_b)
        )
        found[device_id, tenant_id] = Streams(
            window_ns=max(used["last_ns"]) - min(used["first_ns"]),
            streams=[
                StreamUse(**{key: row[key] for key in StreamUse.model_fields})
                for row in used.sort("busy_ns", "context_id", "stream_id", descending=[True, False, False]).iter_rows(
                    named=True
                )
            ],
            pairs=pairs,
            slowdowns=slowdowns,
            calls_known=_has_calls(tables, used.row(0, named=True)),
            whole_graphs=work_of(tables, used.row(0, named=True), ("graph_launches",), "start_ns").height,
        )
    return found


def _without_other_processes(losses: pl.DataFrame) -> pl.DataFrame:
    """Count what another process is a possible reason for as unexplained."""
    import polars as pl

    reason = pl.col("reason").cast(pl.String).replace(StreamReason.OTHER_PROCESS, StreamReason.UNEXPLAINED)
    keys = (*_PAIR, "reason", "waiting_stream", "had_work", "filled_by")
    return (
        losses.with_columns(reason)
        .group_by(keys, maintain_order=True)
        .agg(pl.col("without_overlap_ns", "operations").sum())
    )


def _has_calls(tables: TableSet, process: Mapping[str, Any]) -> bool:
    calls = tables.calls()
    return calls is not None and bool(calls.select(of_process(process).any()).item())


def _slowdown(row: dict[str, Any]) -> StreamSlowdown:
    renamed = {"kernel": row["short_name"], "low": row["ratio_low"], "high": row["ratio_high"]}
    same = StreamSlowdown.model_fields.keys() & row.keys()
    return StreamSlowdown(**{key: row[key] for key in same}, **renamed)


def _slowed_beside(slowdowns: Iterable[StreamSlowdown]) -> set[tuple[tuple[int | None, int], tuple[int | None, int]]]:
    """Pairs of streams of which kernels of the first were slowed beside the second."""
    return {
        ((one.context_id, one.stream_id), (one.beside_context, one.beside_stream))
        for one in slowdowns
        if one.ratio is not None and is_slowed(one.ratio, one.low, "observed")
    }


def _solo_rate(
    slowdowns: Iterable[StreamSlowdown],
    stream: tuple[int | None, int],
    beside: tuple[int | None, int],
    overlap_ns: int,
) -> tuple[float, float, float] | None:
    """Solo time of what a stream had in flight beside another one, over that time; its lower and upper end."""
    known = [
        (one.overlap_ns, one.ratio, one.low, one.high)
        for one in slowdowns
        if (one.context_id, one.stream_id) == stream and (one.beside_context, one.beside_stream) == beside
    ]
    told = [(ns, ratio, low, high) for ns, ratio, low, high in known if ratio and low and high]
    all_ns = sum(ns for ns, *_ in told)
    if not all_ns or all_ns < _MOST_OVERLAP * overlap_ns:
        return None
    rate, low, high = (sum(one[0] / one[place] for one in told) / all_ns for place in (1, 3, 2))
    return rate, low, high


def _speedup(
    slowdowns: Iterable[StreamSlowdown],
    first: tuple[int | None, int],
    second: tuple[int | None, int],
    overlap_ns: int,
) -> tuple[float | None, float | None, float | None]:
    """What the overlap of two streams brought over one after the other, its lower and upper end; None: not known."""
    one = _solo_rate(slowdowns, first, second, overlap_ns)
    other = _solo_rate(slowdowns, second, first, overlap_ns)
    if one is None or other is None:
        return None, None, None
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _pair(
    row: dict[str, Any],
    losses: list[StreamLoss],
    slowed: set[tuple[tuple[int | None, int], tuple[int | None, int]]],
    filled: Mapping[tuple[Any, ...], str],
    slowdowns: Iterable[StreamSlowdown],
) -> StreamPair:
    first, second = (row["context_a"], row["stream_a"]), (row["context_b"], row["stream_b"])
    apart_ns = row["not_overlapped_ns"] + row["late_ns"]
    reason = None
    if not row["both_had_work_ns"] and not row["late_ns"]:
        reason = StreamReason.NO_WORK
    elif apart_ns >= SMALL_SHARE * (row["both_had_work_ns"] + row["late_ns"]):
        by_reason: dict[StreamReason, int] = {}
        for loss in losses:
            by_reason[loss.reason] = by_reason.get(loss.reason, 0) + loss.without_overlap_ns
        reason = max(by_reason, key=lambda one: by_reason[one], default=None)
    elif (first, second) in slowed and (second, first) in slowed:
        reason = StreamReason.CONTENTION
    keys = StreamPair.model_fields.keys() & row.keys()
    ordered = sorted(losses, key=lambda one: (-one.without_overlap_ns, one.reason, one.waiting_stream))
    filled_by = filled.get((*(row[key] for key in _PAIR), reason))
    speedup, low, high = _speedup(slowdowns, first, second, row["overlap_ns"])
    return StreamPair(
        **{key: row[key] for key in keys},
        reason=reason,
        filled_by=filled_by,
        losses=ordered,
        speedup_over_serial=speedup,
        speedup_low=low,
        speedup_high=high,
    )
