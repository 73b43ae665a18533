"""Interference between groups of work: the same kernels beside other groups and solo.

A stream waits for events of another one because it needs its results. A replay without the other group would take that
wait for interference, so elapsed time and latency of groups are not compared; the time in execution is.

Processes that are time-sliced do not execute at the same time: their kernels are put on a clock that stands still while
the context of their process is not resident. Processes that run at once are beside each other as groups are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.results.interference import ContendedKernel, Estimate, MatrixCell
from pyanalyze.tables.frames import FrameTable, to_frame
from pyanalyze.tables.selections import of_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["NO_LATENCY", "GroupInterference", "SoloRun", "between_groups", "group_ids"]

NO_LATENCY = (
    "elapsed and latency: not compared, because groups of one process also wait for each other's results; only "
    "execution is compared"
)
NO_SOLO = (
    "most of its time beside other groups is in kernels that never ran without another group: give a run without the "
    "others with --baseline"
)
VARIED = "durations of its kernels vary so much, also solo, that nothing compares"
NEVER_BESIDE = "none of its kernels ran beside another group: only waits can have slowed it, and they are not compared"
NO_RESIDENCY = (
    "other processes used the device, and no switch record says when the context of this one was resident: record with "
    "--gpuctxsw=true"
)
#: Part of the time that a group executed beside others of which the slowdown may be unknown, for it to have one.
_UNKNOWN = 0.2
#: Part of the time that two groups executed at once, without a third, from which on what one did to the other is told.
_APART = 0.2
#: Half of the interval of what a group would have taken solo, over that, at most: a wider one says nothing.
_MOST_HALF = 0.5
#: Durations of the kernels of a group over the time that it was busy, up to which they do not overlap each other.
_NO_OVERLAP = 1.02
#: Tracks up to which "beside the other" says all that there is.
_PAIR = 2
#: The number of all other tracks together, and what stands between the number of a process and a kernel's name.
_OTHERS, _BETWEEN = 0xFFFF_FFFF, "\0"
_WORK = ("kernels", "memops", "graph_launches")
_OWNER = ("device_id", "capture", "pid")


@dataclass(frozen=True)
class GroupInterference:
    """How groups of work slowed each other.

    Attributes
    ----------
    slowdowns
        Execution slowdown by tenant, over all that it executed.
    missing
        Why a tenant has none.
    matrix
        Who slowed whom.
    kernels
        Kernels beside another group, most time first.
    speedup_of_overlap
        Time of what executed beside other groups, one after the other at solo speed, over what it took; None: not
        known.
    """

    slowdowns: Mapping[int, Estimate]
    missing: Mapping[int, str]
    matrix: tuple[MatrixCell, ...]
    kernels: tuple[ContendedKernel, ...]
    speedup_of_overlap: float | None


@dataclass(frozen=True)
class SoloRun:
    """A recording in which work of a group ran without other groups.

    Attributes
    ----------
    tables
        The recording.
    tenant_id
        The tenant in it; where its kernels overlap other streams of it, they do not count as solo.
    """

    tables: TableSet
    tenant_id: int


@dataclass(frozen=True)
class _Clock:
    """Tenants that may execute at the same time, on a clock that runs while they can.

    Attributes
    ----------
    work
        Rows of kernels, copies and whole graphs by table; `track` is the tenant.
    groups
        Those tenants that are groups, in order.
    processes
        Number of the process of each tenant.
    """

    work: Mapping[str, pl.DataFrame]
    groups: tuple[int, ...]
    processes: Mapping[int, int]


def group_ids(tables: TableSet, device_id: int) -> frozenset[int]:
    """Ids of the tenants of a device that are groups of work."""
    import polars as pl

    if tables.groups is None:
        return frozenset()
    rows = tables.tenants.filter(
        pl.col("device_id") == device_id, pl.col("capture").is_in(list(tables.groups.captures))
    )
    return frozenset(rows["tenant_id"])


def between_groups(
    tables: TableSet, device_id: int, *, time_sliced: bool, solo: Mapping[int, SoloRun] | None = None
) -> GroupInterference:
    """Compare the kernels of each group beside other groups with the same kernels solo.

    Parameters
    ----------
    tables
        Tables of groups.
    device_id
        The device.
    time_sliced
        Contexts of several processes may alternate on it.
    solo
        By group, a recording with solo launches of its kernels beside those of this capture.

    Examples
    --------
    >>> import pyanalyze
    >>> found = between_groups(pyanalyze.load(capture).by("stream").tables, 0, time_sliced=True)
    >>> sorted(found.slowdowns) + sorted(found.missing)
    [3, 4, 5, 6]
    """
    clocks = list(_clocks(tables, device_id, time_sliced=time_sliced))
    found = [_compared(tables, clock, solo or {}) for clock in clocks]
    slowdowns = {group: one for part in found for group, one in part.slowdowns.items()}
    missing = {group: why for part in found for group, why in part.missing.items()}
    left = group_ids(tables, device_id) - slowdowns.keys() - missing.keys()
    kernels = sorted(
        (kernel for part in found for kernel in part.kernels),
        key=lambda one: (-one.n * (one.median_ns or 0), one.kernel or ""),
    )
    return GroupInterference(
        slowdowns,
        missing | dict.fromkeys(sorted(left), NO_RESIDENCY),
        tuple(cell for part in found for cell in part.matrix),
        tuple(kernels),
        found[0].speedup_of_overlap if len(found) == 1 else None,
    )


# Who may execute at the same time ------------------------------------------------------------------------------------


def _clocks(tables: TableSet, device_id: int, *, time_sliced: bool) -> Iterator[_Clock]:
    """Put tenants that may execute at the same time on one clock; groups of which that is not known are left out."""
    captures = {} if tables.groups is None else tables.groups.captures
    groups = group_ids(tables, device_id)
    rows = [
        row
        for row in tables.tenants.join(tables.tenant_usage, on=["tenant_id", "device_id"]).iter_rows(named=True)
        if row["device_id"] == device_id
    ]
    serving = {row["served_by"] for row in rows}
    untraced = any(not row["traced"] and row["resident_ns"] and row["tenant_id"] not in serving for row in rows)
    worked = {
        row["tenant_id"]: (captures.get(row["capture"], row["capture"]), row["pid"])
        for row in rows
        if row["traced"] and (row["busy_ns"] or row["memops"])
    }
    if not untraced and (len(set(worked.values())) == 1 or not time_sliced):
        yield _on_clock(tables, device_id, worked, groups, None)
        return
    # A group is resident with its process, a client of MPS with the server.
    through = {row["tenant_id"]: row["tenant_id"] if row["served_by"] is None else row["served_by"] for row in rows}
    for resident in sorted({through[group] for group in groups & worked.keys()}):
        intervals = _resident(tables, device_id, resident)
        if intervals.height:
            mine = {tenant: process for tenant, process in worked.items() if through[tenant] == resident}
            yield _on_clock(tables, device_id, mine, groups, intervals)


def _resident(tables: TableSet, device_id: int, tenant_id: int) -> pl.DataFrame:
    """Observed residency of a tenant, without what overlaps, and how much of it lies before each interval."""
    import polars as pl

    rows = tables.residency.filter(pl.col("device_id") == device_id, pl.col("tenant_id") == tenant_id)
    before = pl.col("end_ns").cum_max().shift(1).fill_null(pl.col("start_ns").min())
    rows = (
        rows.select("start_ns", "end_ns").sort("start_ns").with_columns(start_ns=pl.max_horizontal("start_ns", before))
    )
    rows = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    length = pl.col("end_ns") - pl.col("start_ns")
    return rows.select("start_ns", length=length, before=length.cum_sum() - length)


def _on_clock(
    tables: TableSet,
    device_id: int,
    processes: Mapping[int, tuple[int, int | None]],
    groups: frozenset[int],
    resident: pl.DataFrame | None,
) -> _Clock:
    import polars as pl

    tenants = tables.tenants.filter(pl.col("tenant_id").is_in(list(processes))).select("tenant_id", *_OWNER)
    number = {process: place for place, process in enumerate(dict.fromkeys(processes.values()))}
    process_of = {tenant: number[process] for tenant, process in processes.items()}
    work = {}
    for name in _WORK:
        if name not in tables:
            continue
        rows = tables.frame(name).filter(pl.col("device_id") == device_id)
        rows = rows.join(tenants, on=list(_OWNER), nulls_equal=True, maintain_order="left").rename(
            {"tenant_id": "track"}
        )
        if resident is not None:
            rows = rows.with_columns(_at(rows, "start_ns", resident), _at(rows, "end_ns", resident))
        if name == "kernels":
            rows = _named(rows, pl.col("track").replace_strict(process_of, return_dtype=pl.UInt32))
        work[name] = rows
    return _Clock(work, tuple(sorted(groups & processes.keys())), process_of)


def _named(kernels: pl.DataFrame, process: pl.Expr) -> pl.DataFrame:
    """Kernels of one name in two processes need not do the same."""
    import polars as pl

    name = pl.coalesce(pl.col("short_name", "name").cast(pl.String))
    return kernels.with_columns(
        short_name=pl.concat_str(process.cast(pl.String), name, separator=_BETWEEN).cast(pl.Categorical),
        name=pl.col("name").cast(pl.String).cast(pl.Categorical),
    )


def _at(rows: pl.DataFrame, column: str, resident: pl.DataFrame) -> pl.Series:
    """How long a context had been resident at each time."""
    import polars as pl

    times = rows.select(time=pl.col(column)).with_row_index("row").sort("time")
    found = times.join_asof(resident, left_on="time", right_on="start_ns", strategy="backward", coalesce=False)
    since = pl.min_horizontal(pl.col("time") - pl.col("start_ns"), "length") + pl.col("before")
    return found.sort("row").select(since.fill_null(0).alias(column))[column]


# What slowed whom ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Busy:
    """When tracks executed.

    Attributes
    ----------
    spans
        Spans in which nothing starts or ends: `length`; of each track, whether it executed anything (`any_N`) or
        kernels and graphs (`kernels_N`).
    tracks
        Their numbers.
    """

    spans: pl.DataFrame
    tracks: tuple[int, ...]

    def met(self, track: int, other: int | None = None, *, what: str = "any", only: bool = False) -> int:
        """How long a track executed kernels while another one, or any other, executed; `only`: and no third one."""
        import polars as pl

        others = [number for number in self.tracks if number != track]
        asked = [f"{what}_{number}" for number in others if other in (None, number)]
        if not asked:
            return 0
        rows = self.spans.filter(f"kernels_{track}", pl.any_horizontal(asked))
        third = [f"any_{number}" for number in others if number != other]
        if only and third:
            rows = rows.filter(~pl.any_horizontal(third))
        return int(rows["length"].sum())

    def several_ns(self) -> int:
        """How long several tracks executed kernels."""
        import polars as pl

        count = pl.sum_horizontal([f"kernels_{number}" for number in self.tracks])
        return int(self.spans.filter(count > 1)["length"].sum())

    def busy_ns(self, track: int) -> int:
        """How long a track executed kernels."""
        return int(self.spans.filter(f"kernels_{track}")["length"].sum())


def _busy(work: Mapping[str, pl.DataFrame]) -> _Busy:
    import polars as pl

    steps = [
        rows.select("track", kernels=pl.lit(name != "memops"), time=column, step=pl.lit(step, pl.Int32))
        for name, rows in work.items()
        for column, step in (("start_ns", 1), ("end_ns", -1))
    ]
    events = pl.concat(steps).sort("time")
    tracks = tuple(sorted(events["track"].unique()))

    def active(track: int, *, kernels: bool) -> pl.Expr:
        counts = (pl.col("track") == track) & (pl.col("kernels") | (not kernels))
        return pl.when(counts).then("step").otherwise(0).cum_sum() > 0

    spans = events.select(
        (pl.col("time").shift(-1) - pl.col("time")).fill_null(0).alias("length"),
        *(active(track, kernels=False).alias(f"any_{track}") for track in tracks),
        *(active(track, kernels=True).alias(f"kernels_{track}") for track in tracks),
    )
    return _Busy(spans.filter(pl.col("length") > 0), tracks)


def _compared(tables: TableSet, clock: _Clock, solo: Mapping[int, SoloRun]) -> GroupInterference:
    """Compare the groups of one clock."""
    import polars as pl

    further = _solo_work(clock, solo)
    pairs = _contention(tables, clock.work, further)
    busy = _busy(clock.work)
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    kernels = clock.work.get("kernels")
    executed = {} if kernels is None else dict(kernels.group_by("track").agg(length).iter_rows())
    slowdowns: dict[int, Estimate] = {}
    missing: dict[int, str] = {}
    cells: list[MatrixCell] = []
    solo_ns = 0.0
    for group in clock.groups:
        whole_ns, met_ns = int(executed.get(group, 0)), busy.met(group)
        mine = [row for row in pairs if row["stream_id"] == group]
        beside_any = mine if len(busy.tracks) <= _PAIR else _beside_any(tables, clock.work, group, further)
        covered_ns = _overlap(beside_any)
        if not whole_ns:
            missing[group] = "no kernel of it was recorded"
            continue
        if not met_ns:
            missing[group] = NEVER_BESIDE
            continue
        if covered_ns < (1 - _UNKNOWN) * met_ns:
            missing[group] = NO_SOLO
            continue
        # The rest, of kernels that others covered in part, or that never ran solo, is taken to be slowed as much.
        found = _whole(beside_any, whole_ns, met_ns / max(covered_ns, 1))
        if found is None:
            missing[group] = VARIED
            continue
        slowdowns[group] = found
        added_part = sum(row["added_ns"] for row in beside_any) / max(covered_ns, 1)
        solo_ns += busy.met(group, what="kernels") * (1 - added_part)
        total_ns = whole_ns - whole_ns / found.value
        cells += [
            _cell(group, other, whole_ns / (whole_ns - added_ns), n)
            for other, (added_ns, n) in _added_by_others(busy, group, mine, total_ns).items()
        ]
    # Kernels of one group that overlap each other count time several times.
    in_order = all(executed[group] <= _NO_OVERLAP * busy.busy_ns(group) for group in slowdowns)
    several_ns = busy.several_ns()
    known = not missing and set(clock.groups) == set(busy.tracks) and in_order and several_ns
    return GroupInterference(
        slowdowns,
        missing,
        tuple(cells),
        tuple(_kernel(row) for row in pairs if row["stream_id"] in clock.groups and row["ratio"] is not None),
        solo_ns / several_ns if known else None,
    )


def _overlap(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(row["overlap_ns"] for row in rows)


def _last(work: Mapping[str, pl.DataFrame], column: str) -> int:
    return max((int(rows[column].max() or 0) for rows in work.values()), default=0)  # type: ignore[arg-type]


def _solo_work(clock: _Clock, solo: Mapping[int, SoloRun]) -> dict[str, pl.DataFrame]:
    """Work of recordings without other groups, after that of the capture; each of their streams is a track."""
    import polars as pl

    at_ns, track = _last(clock.work, "end_ns"), _last(clock.work, "track")
    runs = {(clock.processes[group], id(one.tables), one.tenant_id): one for group, one in solo.items()}
    found: dict[str, list[pl.DataFrame]] = {}
    for (process, *_), run in runs.items():
        tenant = run.tables.tenants.row(run.tenant_id, named=True)
        mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
        work = {name: run.tables.frame(name).filter(mine) for name in _WORK if name in run.tables}
        place = pl.struct("context_id", "stream_id")
        streams = pl.concat([rows.select(place=place) for rows in work.values()]).unique()
        streams = streams.with_columns(track=pl.int_range(pl.len(), dtype=pl.UInt32) + track + 1)
        starts = pl.concat([rows.select("start_ns") for rows in work.values()])
        shift = at_ns + 1 - int(starts["start_ns"].min() or 0)  # type: ignore[arg-type]
        for name, rows in work.items():
            rows = rows.with_columns(pl.col("start_ns", "end_ns") + shift, place=place)
            rows = rows.join(streams, on="place", how="left", nulls_equal=True, maintain_order="left").drop("place")
            found.setdefault(name, []).append(_named(rows, pl.lit(process)) if name == "kernels" else rows)
        track += streams.height
        at_ns = _last(work, "end_ns") + shift
    return {name: pl.concat(rows, how="diagonal_relaxed") for name, rows in found.items()}


def _beside_any(
    tables: TableSet, work: Mapping[str, pl.DataFrame], group: int, further: Mapping[str, pl.DataFrame]
) -> list[dict[str, Any]]:
    """Rows of a group's kernels beside all other tracks as if they were one."""
    import polars as pl

    other = pl.when(pl.col("track") == group).then("track").otherwise(pl.lit(_OTHERS)).alias("track")
    both = {name: rows.with_columns(other) for name, rows in work.items()}
    return [row for row in _contention(tables, both, further) if row["stream_id"] == group]


def _contention(
    tables: TableSet, work: Mapping[str, pl.DataFrame], further: Mapping[str, pl.DataFrame]
) -> list[dict[str, Any]]:
    """The table `stream_contention` with tracks in the place of streams: rows with solo launches, most time first."""
    import polars as pl

    stored: dict[str, AnyTable] = {name: tables.table(name) for name in ("devices", "capture") if name in tables}
    for name, rows in work.items():
        more = further.get(name)
        whole = rows if more is None else pl.concat([rows, more], how="diagonal_relaxed").select(rows.columns)
        # One process, so that all tracks are compared with each other.
        whole = whole.with_columns(
            capture=pl.lit(0, pl.UInt32),
            pid=pl.lit(None, pl.UInt32),
            context_id=pl.lit(None, pl.UInt32),
            stream_id=pl.col("track").cast(pl.UInt32),
        )
        stored[name] = FrameTable(name, whole.drop("track").sort("start_ns", maintain_order=True))
    table = to_frame(_core.streams(stored)["stream_contention"]).filter(pl.col("added_ns").is_not_null())
    bare = [
        pl.col(name).cast(pl.String).str.splitn(_BETWEEN, 2).struct.field("field_1").alias(name)
        for name in ("short_name", "beside_kernel")
    ]
    return table.with_columns(bare).sort("total_ns", "short_name", descending=[True, False]).to_dicts()


def _whole(rows: Sequence[Mapping[str, Any]], whole_ns: int, scale: float) -> Estimate | None:
    """The slowdown over all that a group executed, from what others added to its kernels; None: it says nothing."""
    added_ns = scale * sum(row["added_ns"] for row in rows)
    # Of kernels that are independent of each other.
    half_ns = scale * math.hypot(*(row["added_half_ns"] for row in rows))
    solo_ns = whole_ns - added_ns
    if half_ns > _MOST_HALF * solo_ns:
        return None
    return Estimate(
        value=whole_ns / solo_ns,
        low=whole_ns / (solo_ns + half_ns),
        high=whole_ns / (solo_ns - half_ns),
        n=sum(row["n"] for row in rows),
        basis="inferred",
    )


def _added_by_others(
    busy: _Busy, group: int, rows: Sequence[Mapping[str, Any]], total_ns: float
) -> dict[int, tuple[float, int]]:
    """What each other track added to the time in execution of a group, and how many launches say so.

    What was added while several others executed is shared out as each of them adds without the rest.
    """
    added: dict[int, tuple[float, int]] = {}
    several: dict[int, float] = {}
    for other in busy.tracks:
        mine = [row for row in rows if row["beside_stream"] == other]
        both_ns = 0 if other == group else busy.met(group, other)
        if not both_ns:
            continue
        if _overlap(mine) < _APART * both_ns:
            several[other] = math.nan
            continue
        single_ns = busy.met(group, other, only=True)
        part = sum(row["added_ns"] for row in mine) / _overlap(mine)
        added[other] = part * single_ns, sum(row["n"] for row in mine)
        several[other] = max(part / (1 - part), 0.0) * (both_ns - single_ns)
    weight = sum(several.values())
    left_ns = total_ns - sum(one for one, _ in added.values())
    if weight > 0:
        return {other: (one + left_ns * several[other] / weight, n) for other, (one, n) in added.items()}
    # What one of them does is not known: only those that hardly ever executed together with others are told.
    alone = {other for other in added if busy.met(group, other, only=True) >= (1 - _UNKNOWN) * busy.met(group, other)}
    return {other: one for other, one in added.items() if other in alone}


def _cell(victim: int, aggressor: int, value: float, n: int) -> MatrixCell:
    return MatrixCell(victim=victim, aggressor=aggressor, slowdown=None, low=None, high=None, n=n, execution=value)


def _kernel(row: Mapping[str, Any]) -> ContendedKernel:
    same = ("ratio", "n", "n_solo", "median_ns", "solo_median_ns", "beside_kernel")
    return ContendedKernel(
        tenant_id=row["stream_id"],
        kernel=row["short_name"],
        low=row["ratio_low"],
        high=row["ratio_high"],
        beside=row["beside_stream"],
        **{key: row[key] for key in same},
    )
