"""What did each process copy and set, how fast, in which memory, and what of it kept kernels from running?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.intervals import times, union
from pyanalyze.results.copies import Copies, CopiesOfDevice, CopyKind, Memsets, Migrations
from pyanalyze.tables.selections import of_process
from pyanalyze.vocabulary import SMALL_SHARE, CopyDirection, HostMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "BY_FAULTS",
    "COPIED_TO_DEVICE",
    "COPIED_TO_HOST",
    "MIGRATED",
    "PAGEABLE",
    "STAGED_BYTES",
    "copies_of",
    "pinning_saves_ns",
]

#: Smaller copies show how long a copy takes to begin, not what the link can do.
LARGE_BYTES = 1 << 20
#: Copies of pageable memory up to this size are staged: they return to the host at once.
STAGED_BYTES = 64 << 10
#: Memory traffic over the memory bandwidth of the device that no cache reaches: the record ends before the work does.
UNCOVERED_RATE = 10
#: Part of the time of copies from which on some of them stand for all.
MOST_OF_TIME = 0.9
#: CUPTI's copy kinds.
COPIED_TO_DEVICE, COPIED_TO_HOST = 1, 2
_ON_DEVICE = 8
_DIRECTIONS = {
    COPIED_TO_DEVICE: CopyDirection.TO_DEVICE,
    COPIED_TO_HOST: CopyDirection.TO_HOST,
    _ON_DEVICE: CopyDirection.ON_DEVICE,
    10: CopyDirection.BETWEEN_DEVICES,
}
#: Those that cross the link to the host.
_HOST_COPIES = (COPIED_TO_DEVICE, COPIED_TO_HOST)
#: Part of the time of a process's host copies from which on those of another device are beside them.
_MOSTLY_BESIDE = 0.5
#: Unified memory: to the device, to the host, between devices.
MIGRATED = (11, 12, 13)
_TO_DEVICE, _TO_HOST = 11, 12
#: The two halves of a copy between devices that the driver makes through the host.
_HALVES = {COPIED_TO_DEVICE: CopyDirection.FROM_PEER, COPIED_TO_HOST: CopyDirection.TO_PEER}
#: CUPTI's memory kinds, and causes of migrations.
PAGEABLE, _PINNED, _DEVICE = 0, 1, 2
_MEMORY = {
    PAGEABLE: HostMemory.PAGEABLE,
    _PINNED: HostMemory.PINNED,
    _DEVICE: HostMemory.DEVICE,
    3: HostMemory.DEVICE,
    4: HostMemory.MANAGED,
    5: HostMemory.DEVICE,
    6: HostMemory.MANAGED,
}
_USER_PREFETCH, _PAGE_FAULT, _SPECULATIVE, _EVICTION = 1, 2, 3, 4
#: What the driver prefetches speculatively comes with a fault.
BY_FAULTS = (_PAGE_FAULT, _SPECULATIVE)


def copies_of(tables: TableSet) -> dict[tuple[int, int], Copies]:
    """Add up the copies and memsets of every traced tenant.

    Parameters
    ----------
    tables
        The tables.

    Returns
    -------
    dict of (int, int) to Copies
        By device and tenant; tenants of which no copy and no memset was recorded are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> sorted(copies_of(pyanalyze.load(capture).tables))
    [(0, 0), (0, 1)]
    """
    import polars as pl

    if "memops" not in tables or not tables.row_count("memops"):
        return {}
    found = {}
    usage = tables.tenant_usage.select("tenant_id", "device_id", "first_ns", "last_ns", "memops")
    columns = (
        "device_id", "capture", "pid", "start_ns", "end_ns", "copy_kind", "source_kind", "destination_kind", "bytes",
        "migration_cause", "correlation_id",
    )  # fmt: skip
    rows = _with_halves(tables.columns("memops", *columns))
    rate = pl.col("bytes") / (pl.col("end_ns") - pl.col("start_ns")).clip(1) * 1e9
    # A copy on the device reads and writes each byte in its memory.
    passes = pl.when(pl.col("copy_kind") == _ON_DEVICE).then(2).otherwise(1)
    bandwidth = dict(tables.columns("devices", "device_id", "memory_bandwidth_bytes_per_s").iter_rows())
    by_device, host_of = {}, _hosts(tables)
    # Of one device alone nothing is beside others.
    if len(host_of) > 1:
        by_device = {
            int(str(device)): union(part)
            for (device,), part in rows.filter(pl.col("copy_kind").is_in(_HOST_COPIES)).group_by("device_id")
        }
    for tenant in tables.tenants.filter("traced").join(usage, on=["tenant_id", "device_id"]).iter_rows(named=True):
        if not tenant["memops"] or tenant["first_ns"] is None:
            continue
        mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
        most = bandwidth.get(tenant["device_id"])
        uncovered = (
            pl.lit(value=False) if most is None else (rate * passes >= UNCOVERED_RATE * most).fill_null(value=False)
        )
        own = rows.filter(mine).with_columns(uncovered=uncovered)
        if own.is_empty():
            continue
        kernels = union(
            pl.concat(
                tables.columns(name, "device_id", "capture", "pid", "start_ns", "end_ns").filter(mine)
                for name in ("kernels", "graph_launches")
                if name in tables
            )
        )
        window_ns = tenant["last_ns"] - tenant["first_ns"]
        linked = own.filter(pl.col("copy_kind").is_in(_HOST_COPIES))
        host_ns = times(linked, union(linked))[0]
        others = {
            device: spans
            for device, spans in by_device.items()
            if device != tenant["device_id"] and host_of[device] == host_of[tenant["device_id"]]
        }
        found[tenant["device_id"], tenant["tenant_id"]] = Copies(
            window_ns=window_ns,
            kinds=_kinds(own.filter(~pl.col("copy_kind").is_in(MIGRATED)), kernels),
            migrations=_migrations(own.filter(pl.col("copy_kind").is_in(MIGRATED)), kernels),
            memsets=_memsets(own.filter(pl.col("copy_kind").is_null()), kernels),
            host_ns=host_ns,
            other_devices=_beside(linked, others) if host_ns >= SMALL_SHARE * window_ns else [],
        )
    return found


def _with_halves(rows: pl.DataFrame) -> pl.DataFrame:
    """Mark (`half`) copies that are one half of a copy between devices: the driver may make it through the host.

    Then one call has a copy to the host from one device and a copy from the host to another, both of memory that is
    recorded as device memory on both sides.
    """
    import polars as pl

    call = ["capture", "pid", "correlation_id"]
    of_devices = (
        pl.col("copy_kind").is_in(_HOST_COPIES)
        & (pl.col("source_kind") == _DEVICE)
        & (pl.col("destination_kind") == _DEVICE)
        & (pl.col("correlation_id") > 0)
    )
    # Nearly all captures have none: no copy of the rows is made for them.
    if not rows.select(of_devices.any()).item():
        return rows.with_columns(half=pl.lit(value=False))
    halves = rows.filter(of_devices).group_by(call).agg(pl.col("device_id", "copy_kind").n_unique())
    halves = halves.filter(pl.col("device_id") > 1, pl.col("copy_kind") > 1).select(*call, paired=pl.lit(value=True))
    found = rows.join(halves, on=call, how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(half=of_devices & pl.col("paired").fill_null(value=False)).drop("paired")


def _hosts(tables: TableSet) -> dict[int, str]:
    """The host of each device; where it has no name, each capture is of one of its own."""
    named = {row["capture"]: row["host_hash"] or f"capture {row['capture']}" for row in tables.rows("capture")}
    return {row["device_id"]: named[row["capture"]] for row in tables.rows("devices")}


def _beside(own: pl.DataFrame, others: Mapping[int, pl.DataFrame]) -> list[CopiesOfDevice]:
    """Devices whose copies are in flight for most of the time of these, by number."""
    found = []
    for device_id, spans in sorted(others.items()):
        whole_ns, without_ns = times(own, spans)
        if whole_ns and whole_ns - without_ns >= _MOSTLY_BESIDE * whole_ns:
            found.append(CopiesOfDevice(device_id=device_id, overlap_ns=whole_ns - without_ns))
    return found


def pinning_saves_ns(kind: CopyKind) -> int | None:
    """What pinned memory saves of the time without a kernel, if copies were as fast as the pinned ones of the capture.

    Returns
    -------
    int or None
        None: memory that is not pageable, or no pinned copy shows the rate.

    Examples
    --------
    >>> kind = CopyKind(direction="to-device", host_memory="pageable", copies=1, bytes=10**9, time_ns=10**9,
    ...                 exposed_ns=10**9, bytes_per_s=1e9, best_bytes_per_s=1e9, best_pinned_bytes_per_s=4e9)
    >>> pinning_saves_ns(kind)
    750000000
    """
    best = kind.best_pinned_bytes_per_s
    if kind.host_memory is not HostMemory.PAGEABLE or best is None or kind.bytes_per_s is None:
        return None
    return round(kind.exposed_ns * max(1 - kind.bytes_per_s / best, 0.0))


def _kinds(rows: pl.DataFrame, kernels: pl.DataFrame) -> list[CopyKind]:
    import polars as pl

    # On the host's side stands the source of a copy to the device, and the destination of one to the host.
    side = pl.when(pl.col("copy_kind") == 1).then("source_kind").when(pl.col("copy_kind") == 2).then("destination_kind")
    rows = rows.with_columns(host=side, length=(pl.col("end_ns") - pl.col("start_ns")).clip(0)).sort("start_ns")
    rate = pl.col("bytes") / pl.col("length") * 1e9
    # Halves of copies between devices say nothing of other copies.
    timed = rows.filter(~pl.col("uncovered"), ~pl.col("half"))
    large = timed.filter(pl.col("bytes") >= LARGE_BYTES, pl.col("length") > 0)
    best = dict(large.group_by("copy_kind").agg(rate.max()).iter_rows())
    pinned = dict(large.filter(pl.col("host") == _PINNED).group_by("copy_kind").agg(rate.max()).iter_rows())
    # Many small copies may be faster than a single large one: the link can do that as well.
    means = timed.group_by("copy_kind", "host").agg(pl.col("bytes").sum(), pl.col("length").sum())
    for kind, mean in means.filter(pl.col("length") > 0).group_by("copy_kind").agg(rate.max()).iter_rows():
        if kind in best:
            best[kind] = max(best[kind], mean)
    found = []
    for (kind, host, half), part in rows.group_by("copy_kind", "host", "half", maintain_order=True):
        direction = (_HALVES if half else _DIRECTIONS).get(int(str(kind)), CopyDirection.OTHER)
        between = direction in (CopyDirection.TO_DEVICE, CopyDirection.TO_HOST)
        memory = None if host is None else _MEMORY.get(int(str(host)), HostMemory.OTHER)
        time_ns, exposed_ns = times(part, kernels)
        covered = part.filter(~pl.col("uncovered"))
        length = int(covered["length"].sum())
        long_copies, long_share = _longest(part["length"])
        found.append(
            CopyKind(
                direction=direction,
                host_memory=memory if between else None,
                copies=part.height,
                uncovered=int(part["uncovered"].sum()),
                bytes=int(part["bytes"].sum()),
                **_sizes(part),
                large_copies=part.filter(pl.col("bytes") >= LARGE_BYTES).height,
                long_copies=long_copies,
                long_share=long_share,
                time_ns=time_ns,
                exposed_ns=exposed_ns,
                hideable_ns=_hideable_ns(part, kernels, direction) if between else None,
                bytes_per_s=int(covered["bytes"].sum()) / length * 1e9 if length else None,
                best_bytes_per_s=None if half else best.get(kind),
                best_pinned_bytes_per_s=pinned.get(kind) if between else None,
            )
        )
    return sorted(found, key=lambda one: (-one.time_ns, one.direction))


def _hideable_ns(copies: pl.DataFrame, kernels: pl.DataFrame, direction: CopyDirection) -> int:
    """Time of copies without a kernel that kernels could hide at most.

    What is copied to the device can be copied earlier, or in parts beside the kernels that need the first of them. What
    is copied to the host is made by kernels before it: only later ones could run beside it.
    """
    import polars as pl

    beside = kernels
    if direction is CopyDirection.TO_HOST:
        last_ns, first_ns = kernels["start_ns"].max(), copies["start_ns"].min()
        if last_ns is None or first_ns is None:
            return 0
        copies, beside = copies.filter(pl.col("start_ns") < last_ns), kernels.filter(pl.col("start_ns") > first_ns)
    return min(times(copies, kernels)[1], int((beside["end_ns"] - beside["start_ns"]).sum()))


def _memsets(rows: pl.DataFrame, kernels: pl.DataFrame) -> Memsets | None:
    if rows.is_empty():
        return None
    time_ns, exposed_ns = times(rows, kernels)
    return Memsets(
        count=rows.height,
        bytes=int(rows["bytes"].sum()),
        **_sizes(rows),
        time_ns=time_ns,
        exposed_ns=exposed_ns,
        uncovered=int(rows["uncovered"].sum()),
    )


def _sizes(rows: pl.DataFrame) -> dict[str, int | None]:
    """Median, smallest and largest size."""
    sizes = rows["bytes"].drop_nulls().sort()
    if sizes.is_empty():
        return {}
    median = int(sizes[(len(sizes) - 1) // 2])
    return {"median_bytes": median, "smallest_bytes": int(sizes[0]), "largest_bytes": int(sizes[-1])}


def _longest(lengths: pl.Series) -> tuple[int | None, float | None]:
    """The fewest copies that have :data:`MOST_OF_TIME`, and their part of it."""
    sums = lengths.sort(descending=True).cum_sum()
    if not lengths.sum():
        return None, None
    n = int((sums < MOST_OF_TIME * sums[-1]).sum()) + 1
    return n, float(sums[n - 1] / sums[-1])


def _migrations(rows: pl.DataFrame, kernels: pl.DataFrame) -> Migrations | None:
    import polars as pl

    if rows.is_empty():
        return None
    time_ns, exposed_ns = times(rows, kernels)
    known = rows["migration_cause"].null_count() < rows.height
    faults = rows.filter(pl.col("migration_cause") == _PAGE_FAULT)
    faulted_ns, faulted_exposed_ns = times(rows.filter(pl.col("migration_cause").is_in(BY_FAULTS)), kernels)
    prefetched, taken_back = _taken_back(rows, kernels)
    counts = dict(rows.group_by("migration_cause").len().iter_rows())
    there, back = rows.filter(pl.col("copy_kind") == _TO_DEVICE), rows.filter(pl.col("copy_kind") == _TO_HOST)
    return Migrations(
        to_device=there.height,
        to_device_bytes=int(there["bytes"].sum()),
        to_host=back.height,
        to_host_bytes=int(back["bytes"].sum()),
        time_ns=time_ns,
        exposed_ns=exposed_ns,
        by_page_fault=faults.height if known else None,
        by_page_fault_ns=times(faults, kernels)[0] if known else None,
        speculative=counts.get(_SPECULATIVE, 0) if known else None,
        faulted_ns=faulted_ns if known else None,
        faulted_exposed_ns=faulted_exposed_ns if known else None,
        prefetches=counts.get(_USER_PREFETCH, 0) if known else None,
        prefetched_bytes=prefetched if known else None,
        taken_back_bytes=taken_back if known else None,
        evictions=counts.get(_EVICTION, 0) if known else None,
    )


def _taken_back(rows: pl.DataFrame, kernels: pl.DataFrame) -> tuple[int, int]:
    """Bytes that the program prefetched to the device, and how many of them faults of the host moved back at most.

    Only what moves back before a kernel starts counts: the device had no use of it. After a kernel the host may read
    results, which is what prefetching is for.
    """
    import polars as pl

    prefetched = (pl.col("copy_kind") == _TO_DEVICE) & (pl.col("migration_cause") == _USER_PREFETCH)
    back = (pl.col("copy_kind") == _TO_HOST) & pl.col("migration_cause").is_in(BY_FAULTS)
    moved = rows.filter(prefetched | back).sort("start_ns").with_columns(prefetched=prefetched)
    starts = kernels.select("start_ns", before=pl.int_range(1, pl.len() + 1))
    moved = moved.select("start_ns", "prefetched", "bytes").join_asof(starts, on="start_ns")
    whole = taken_back = between = 0
    at: int | None = None
    for _, is_prefetch, size, kernels_before in moved.iter_rows():
        if kernels_before != at:
            at, between = kernels_before, 0
        if is_prefetch:
            whole, between = whole + size, between + size
        else:
            taken, between = min(size, between), max(between - size, 0)
            taken_back += taken
    return whole, taken_back
