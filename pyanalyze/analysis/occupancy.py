"""How full the SMs were: who may be on which SMs, the modelled tables, and the model beside hardware counters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pyanalyze.analysis.hardware import mps_caps, mps_sms
from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.results.occupancy import Bounded, CounterCheck
from pyanalyze.tables.frames import to_frame
from pyanalyze.tables.selections import covered_ns
from pyanalyze.text import format as fmt
from pyanalyze.text.numbers import bounded_int
from pyanalyze.vocabulary import FEW_BLOCKS, TRAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "CounterComparison",
    "GridFill",
    "ModelledOccupancy",
    "PlacementPolicy",
    "UnevenGrid",
    "check_against_counters",
    "grid_fill",
    "in_flight_ns",
    "kernel_time",
    "placement_policy",
    "uneven_grid",
    "with_resident_time",
]

Sharing = Literal["time-sliced", "shared", "disjoint"]
Model = Literal["replay", "even"]

#: Kernels up to which frames and reports replay every SM: two million take some five seconds of processor time.
REPLAYED_IN_PASSING = 2_000_000
#: The model and the counters agree when their means over the window differ by no more (fractions of the device).
COUNTER_TOLERANCE = 0.1
#: Counters come in whole percents of the device: a 0 of theirs may be as much as this.
COUNTER_STEP = 0.005
#: A smaller part of the counted warps where nothing is modelled is not worth a word.
UNEXPLAINED = 0.005


@dataclass(frozen=True)
class GridFill:
    """How far a grid fills the SMs that its tenant may use.

    Attributes
    ----------
    blocks, sms
        Blocks of the grid, and those SMs; None: not known.
    waves
        The grid over what these SMs hold at once, modelled; None: not known.

    What it leaves empty is no limit of theoretical occupancy, which is that of an SM full of such blocks.
    """

    blocks: int | None
    sms: int | None
    waves: float | None

    @property
    def few_blocks(self) -> bool:
        """Whether a tenth of the SMs or more have no block of it."""
        return bool(self.blocks and self.sms and self.blocks <= FEW_BLOCKS * self.sms)

    def __str__(self) -> str:
        """Say what it leaves empty; without text: it fills all block slots, or that is not known."""
        if self.blocks and self.sms and self.blocks < self.sms:
            return f"{fmt.counted(self.blocks, 'block')} for {fmt.counted(self.sms, 'SM')}"
        return f"{self.waves:.2g} wave" if self.waves is not None and self.waves < 1 else ""


@dataclass(frozen=True)
class UnevenGrid:
    """A grid that fits on the SMs at once, and not evenly: some have one block more than the others.

    Attributes
    ----------
    blocks, sms
        Blocks of the grid, and the SMs that they are on.
    """

    blocks: int
    sms: int

    @property
    def most(self) -> int:
        """Blocks of the fullest SMs.

        Examples
        --------
        >>> UnevenGrid(317, 132).most
        3
        """
        return -(-self.blocks // self.sms)

    @property
    def fuller_sms(self) -> int:
        """SMs that have so many.

        Examples
        --------
        >>> UnevenGrid(317, 132).fuller_sms  # 53 x 3 + 79 x 2 = 317
        53
        """
        return self.blocks - (self.most - 1) * self.sms

    @property
    def even(self) -> tuple[int, int]:
        """The numbers of blocks below and above that are even.

        Examples
        --------
        >>> UnevenGrid(317, 132).even
        (264, 396)
        """
        return (self.most - 1) * self.sms, self.most * self.sms

    @property
    def active(self) -> float:
        """Mean fraction of SMs with a block, if an SM takes as long as it has blocks: what is left to gain is the rest.

        Examples
        --------
        >>> round(UnevenGrid(317, 132).active, 3)
        0.801
        """
        return self.blocks / self.even[1]

    def __str__(self) -> str:
        """Say it, as a sentence."""
        each = fmt.number(self.blocks / self.sms)
        return (
            f"{fmt.count(self.blocks)} blocks on {self.sms} SMs are {each} per SM: {self.fuller_sms} SMs have "
            f"{self.most}, {self.sms - self.fuller_sms} have {self.most - 1} (modelled)"
        )


def uneven_grid(fill: GridFill) -> UnevenGrid | None:
    """Say how unevenly a grid lies on the SMs; None: it is even, takes several waves, or leaves SMs without a block.

    Examples
    --------
    >>> uneven_grid(GridFill(264, 132, 0.5)) is None, uneven_grid(GridFill(317, 132, 0.6)).most
    (True, 3)
    """
    blocks, sms = fill.blocks, fill.sms
    if blocks is None or not sms or fill.waves is None or fill.waves > 1 or blocks < sms or blocks % sms == 0:
        return None
    return UnevenGrid(blocks, sms)


def grid_fill(row: Mapping[str, object], sm_count: int | None, usable: Mapping[int, int] | None = None) -> GridFill:
    """Say how far the grid of a launch configuration fills the SMs.

    Parameters
    ----------
    row
        One of the ``kernel_occupancy`` table.
    sm_count
        SMs of the device; None: not known.
    usable
        SMs of tenants that may not use all, by tenant id.

    Examples
    --------
    >>> row = {"tenant_id": 0, "grid_blocks": 528, "occupancy": 1.0, "waves": 0.5}
    >>> str(grid_fill(row, 132)), str(grid_fill(row, 132, {0: 66})), str(grid_fill(row | {"grid_blocks": 92}, 132))
    ('0.5 wave', '', '92 blocks for 132 SMs')
    """
    blocks, waves, tenant = (row.get(key) for key in ("grid_blocks", "waves", "tenant_id"))
    cap = usable.get(tenant) if usable and isinstance(tenant, int) else None
    sms = sm_count if cap is None else cap
    blocks = blocks if isinstance(blocks, int) else None
    waves = float(waves) if isinstance(waves, int | float) else None
    if waves is not None and cap and sm_count:
        waves *= sm_count / cap
    return GridFill(blocks, sms, waves)


@dataclass(frozen=True)
class PlacementPolicy:
    """Who may be on which SMs of a device, and with whom.

    Attributes
    ----------
    sharing
        ``time-sliced``: one tenant at a time; ``shared``: all at once; ``disjoint``: all at once, each on its own SMs.
    sms
        SMs by (tenant, context): a number where it is not known which, else their numbers. Context None: all contexts
        of the tenant without an entry of their own. No entry: all SMs.
    groups
        Number of the group by tenant: equal ones share the SMs and are time-sliced with others. Without an entry
        `sharing` says it.
    held_by
        The tenant whose residency counts, by tenant: clients of an MPS server have none of their own.

    Examples
    --------
    >>> PlacementPolicy("shared", sms={(0, None): 66, (1, None): (0, 1, 2, 3)}).sms[0, None]
    66
    """

    sharing: Sharing = "shared"
    sms: Mapping[tuple[int, int | None], int | tuple[int, ...]] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)
    held_by: Mapping[int, int] = field(default_factory=dict)

    @property
    def caps(self) -> dict[int, int]:
        """How many SMs a tenant may use, where those of all its contexts are fewer than the device's.

        Examples
        --------
        >>> PlacementPolicy("shared", sms={(0, None): 66, (1, 2): 8}).caps
        {0: 66}
        """
        return {
            tenant: sms if isinstance(sms, int) else len(sms)
            for (tenant, context), sms in self.sms.items()
            if context is None
        }


def placement_policy(tables: TableSet, verdict: Verdict, mps_group: frozenset[int] = frozenset()) -> PlacementPolicy:
    """Say what a verdict implies for placement: who may be on which SMs, and at once with whom?

    Parameters
    ----------
    tables
        The tables: SMs that each context was shown, TPC masks of green contexts, MPS percentages.
    verdict
        Verdict of the device.
    mps_group
        Clients of an MPS group that is time-sliced with other tenants (`analysis.residency.mps_group`). They are on the
        SMs together, whichever of them switch records name.

    Returns
    -------
    PlacementPolicy
        ``time-sliced`` for the modes that slice time. Undetermined devices are treated as ``shared``, which
        counts every recorded interval.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> placement_policy(session.tables, session.classify()[0]).sharing
    'time-sliced'
    """
    import polars as pl

    here = pl.col("device_id") == verdict.device_id
    sharing: Sharing = "shared"
    traits = TRAITS[verdict.mode]
    # In an MPS group beside another process each context has its turn: the groups below say whose it is.
    if traits.time_sliced and not traits.mps:
        sharing = "time-sliced"
    elif traits.partitioned:
        sharing = "disjoint"
    tenants = tables.tenants.filter(here)
    by_pid = {(row["capture"], row["pid"]): row["tenant_id"] for row in tenants.iter_rows(named=True) if row["traced"]}
    held_by = {
        row["tenant_id"]: row["served_by"] for row in tenants.iter_rows(named=True) if row["served_by"] is not None
    }
    # Residency is on record: where several are resident alternately, only those with one holder run concurrently.
    resident = set(tables.residency.filter(here)["tenant_id"].drop_nulls())
    holders = {
        tenant: min(mps_group) if tenant in mps_group else held_by.get(tenant, tenant) for tenant in by_pid.values()
    }
    if mps_group & resident:
        resident |= mps_group
    time_sliced = set(holders.values()) <= resident and len(set(holders.values())) > 1
    device = tables.devices.filter(here).row(0, named=True)
    total = device["sm_count"]
    sms: dict[tuple[int, int | None], int | tuple[int, ...]] = {}
    shown = set()
    for row in tables.contexts.filter(here).iter_rows(named=True):
        tenant = by_pid.get((row["capture"], row["pid"]))
        if tenant is None:
            continue
        which = _sms_of_mask(row["tpc_mask"], total)
        if row["is_green"] and (which or row["sm_count"]):
            sms[tenant, row["context_id"]] = which or row["sm_count"]
        elif row["sm_count"]:
            shown.add(tenant)
            if total is not None and row["sm_count"] < total:
                sms[tenant, None] = row["sm_count"]
    if traits.mps and total is not None:
        for tenant, percent in mps_percentages(tables, verdict.device_id, by_pid).items():
            if tenant not in shown and percent < 100:
                sms[tenant, None] = mps_sms(total, percent, device["compute_major"])
    return PlacementPolicy(sharing, sms, holders if time_sliced else {}, held_by)


def _sms_of_mask(mask: str | None, sm_count: int | None) -> tuple[int, ...]:
    """SMs of a TPC mask: hexadecimal words of 32 bits, the least significant first, two SMs to a bit."""
    if not mask or sm_count is None:
        return ()
    read = [bounded_int(f"0x{word.lower().removeprefix('0x')}", most=(1 << 32) - 1) for word in mask.split()]
    words = [word for word in read if word is not None]
    if len(words) < len(read):
        return ()
    tpcs = [32 * n + bit for n, word in enumerate(words) for bit in range(32) if word >> bit & 1]
    return tuple(sm for tpc in tpcs for sm in (2 * tpc, 2 * tpc + 1) if sm < sm_count)


def mps_percentages(tables: TableSet, device_id: int, by_pid: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """Read the MPS percentages that were set: for a process, or for all of them.

    Parameters
    ----------
    tables, device_id
        The device.
    by_pid
        Its tenants by capture and pid.

    Returns
    -------
    dict of int to float
        By tenant, in per cent; tenants without a setting are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> mps_percentages(pyanalyze.load(capture).tables, 0, {(0, 41305): 0})
    {}
    """
    import polars as pl

    caps = mps_caps((str(row["key"]), row["value"], row["pid"]) for row in tables.settings_of(device_id))
    for_all = [percentage for pid, percentage in caps if pid is None]
    found = dict.fromkeys(by_pid.values(), for_all[0]) if len(for_all) == 1 else {}
    if len(for_all) > 1:
        # Whose they are only the SMs that each client saw can say.
        devices = tables.devices.select("device_id", total="sm_count", major="compute_major").drop_nulls("total")
        shown = tables.contexts.filter(~pl.col("is_green").fill_null(value=False)).drop_nulls("sm_count")
        columns = ("capture", "pid", "sm_count", "total", "major")
        for capture, pid, sms, total, major in shown.join(devices, on="device_id").select(columns).iter_rows():
            fits = {percentage for percentage in for_all if mps_sms(total, percentage, major) == sms}
            if len(fits) == 1 and (capture, pid) in by_pid:
                found[by_pid[capture, pid]] = fits.pop()
    own = {pid: percentage for pid, percentage in caps if pid is not None}
    found |= {tenant: own[pid] for (_, pid), tenant in by_pid.items() if pid in own}
    return found


@dataclass(frozen=True)
class Scaled:
    """How the occupancy of a device was scaled to counters.

    Attributes
    ----------
    said
        By which samples and how much, and what was not sampled.
    bins
        `start_ns`, `end_ns`, `warps_scale`, `sm_active_scale` (null: not sampled, so as modelled).
    """

    said: str
    bins: pl.DataFrame

    def __str__(self) -> str:
        """Say it."""
        return self.said


@dataclass(frozen=True, repr=False)
class ModelledOccupancy:
    """How full the SMs were, by a model.

    Attributes
    ----------
    model
        ``replay`` or ``even``.
    over_time
        The `sm_occupancy` table: warps and SMs of each tenant by time bin, with bounds.
    per_sm
        The `sm_warps` table: warps of each SM by time bin.
    kernels
        The `kernel_occupancy` table: what each launch configuration could hold at most.
    placements
        The `kernel_placement` table: how many SMs each kernel reached; empty for ``even``.
    policies
        Who was allowed where, by device.
    scaled
        By device, how it was scaled to counters; none: not at all.

    Examples
    --------
    >>> import pyanalyze
    >>> pyanalyze.load(capture).occupancy(bins=10).per_sm["basis"].unique().to_list()
    ['modelled']
    """

    model: Model
    over_time: pl.DataFrame
    per_sm: pl.DataFrame
    kernels: pl.DataFrame
    placements: pl.DataFrame
    policies: Mapping[int, PlacementPolicy]
    scaled: Mapping[int, Scaled] = field(default_factory=dict)

    @property
    def calibration(self) -> str | None:
        """How warps were scaled by counters, and by which; None: not at all."""
        return "; ".join(f"device {device_id}: {one}" for device_id, one in self.scaled.items()) or None

    def calibrated(self, device_id: int, check: CounterComparison) -> ModelledOccupancy:
        """Scale a device to what the counters say of each time bin; `calibration` says so.

        Counters have no process and no SM: what the device sums up to is then counted, how it is shared out among
        tenants and SMs stays modelled. This is what tells how uneven the blocks of a kernel are, which no trace does.

        Parameters
        ----------
        device_id
            The device.
        check
            Its comparison with the counters.

        Returns
        -------
        ModelledOccupancy
            The same with other warps and active SMs, within what an SM holds and a tenant's bounds. Bins shorter than
            the time between two samples are scaled together.

        Raises
        ------
        pyanalyze.errors.UsageError
            If warps were not counted, or none were modelled where they were.

        Examples
        --------
        >>> from pathlib import Path
        >>> import pyanalyze
        >>> session = pyanalyze.load(Path(capture).with_name("exclusive.sqlite"))
        >>> session.occupancy(calibrate=False).calibrated(0, session.check_occupancy(0)).calibration[:40]
        'device 0: warps times 0.981 over all bin'
        """
        import polars as pl

        if device_id in self.scaled:
            return self
        counted = check.warps_counted
        if counted is None or check.factor is None:
            raise UsageError("not calibrated: the capture has no samples of Compute Warps in Flight")
        here = pl.col("device_id") == device_id
        scales = check.scales(check.of_device(self.per_sm.filter(here)))
        said = _said_of_scales(scales, counted) + "".join(f"; {caveat}" for caveat in check.caveats)
        bins = scales.select("start_ns", "end_ns", "warps_scale", "sm_active_scale")
        scales = scales.select("start_ns", "end_ns", "warps_scale", "sm_active_scale", device_id=pl.lit(device_id))
        scales = scales.with_columns(pl.col("device_id").cast(self.per_sm.schema["device_id"]))

        def scaled(table: pl.DataFrame) -> pl.DataFrame:
            # Another device keeps its rows as they are.
            return table.join(scales, on=["device_id", "start_ns", "end_ns"], how="left", maintain_order="left")

        def by(value: str, scale: str, least: pl.Expr | float, most: pl.Expr | float) -> pl.Expr:
            times = pl.max_horizontal(pl.min_horizontal(pl.col(value) * pl.col(scale), most), least)
            return pl.when(pl.col(scale).is_null()).then(value).otherwise(times).alias(value)

        over_time = scaled(self.over_time).with_columns(
            by("warps", "warps_scale", pl.col("warps_low"), pl.col("warps_high")),
            by("sm_active", "sm_active_scale", 0.0, 1.0),
        )
        per_sm = scaled(self.per_sm).with_columns(
            by("warps", "warps_scale", 0.0, float(check.max_warps_per_sm)),
            by("active", "sm_active_scale", 0.0, 1.0),
        )
        return replace(
            self,
            over_time=over_time.select(self.over_time.columns),
            per_sm=per_sm.select(self.per_sm.columns),
            scaled={**self.scaled, device_id: Scaled(said, bins)},
        )

    def calibrated_to(self, check_of: Callable[[int], CounterComparison | None]) -> ModelledOccupancy:
        """Scale every device to its counters of warps, if they count what is modelled; others stay as they are.

        Parameters
        ----------
        check_of
            Comparison of a device with its counters; None: it has none.

        Returns
        -------
        ModelledOccupancy
            The same, scaled (:meth:`calibrated`).

        Examples
        --------
        >>> import pyanalyze
        >>> session = pyanalyze.load(capture)
        >>> session.occupancy().calibrated_to(session.check_occupancy).calibration is None  # it has no GPU metrics
        True
        """
        import polars as pl

        made = self
        for device_id in self.over_time["device_id"].unique().sort().to_list():
            check = check_of(device_id)
            if check is None or check.factor is None or check.other_work:
                continue
            per_sm = made.per_sm.filter(pl.col("device_id") == device_id)
            # A window without samples stays as modelled.
            scales = check.scales(check.of_device(per_sm))
            if scales.select(((pl.col("warps") > 0) & pl.col("warps_scale").is_not_null()).any()).item():
                made = made.calibrated(device_id, check)
        return made

    def __repr__(self) -> str:
        """Say what it is."""
        devices = self.over_time["device_id"].n_unique()
        calibrated = "" if self.calibration is None else f", calibrated ({self.calibration})"
        return f"<ModelledOccupancy of {fmt.counted(devices, 'device')}, {self.model} model, modelled{calibrated}>"


#: Of a launch's duration, from below: counted over equal-block active SMs, 2nd and 98th percentile of the launches that
#: Nsight Compute counted (891 of 40 repositories). Nsight Compute flushes caches: without, a kernel may lose nothing.
SM_ACTIVE_SPREAD = ((10_000, 0.14, 1.0), (100_000, 0.54, 1.0), (None, 0.70, 1.13))


def bounded_means(
    tables: TableSet,
    device_id: int,
    means: tuple[float, float],
    window: tuple[int, int],
    *,
    caps: Mapping[int, int] | None = None,
    counted: tuple[float, float] = (0.0, 0.0),
    whole_graphs: float = 0.0,
) -> tuple[Bounded, Bounded]:
    """Give the mean active SMs and warps of a device their intervals.

    Parameters
    ----------
    tables
        The tables.
    device_id
        The device.
    means
        Mean active SMs and warps over the window, as fractions of the device.
    window
        Start and end.
    caps
        SMs that a tenant may use, by tenant (:attr:`PlacementPolicy.caps`).
    counted
        The parts of these means that were scaled to counters: they are known to a step of the counter.
    whole_graphs
        Part of the window with whole graphs in flight (:func:`whole_graphs_share`), where nothing was counted: they may
        fill the device.

    Returns
    -------
    tuple of Bounded
        Active SMs, warps. What each kernel of those launched may hold solo (`kernel_occupancy`) is taken to be off in
        the same direction for all kernels. Active SMs are no more than all of them while any kernel is in flight, than
        those that tenants may use while their kernels run, and than their kernels have blocks; warps no more than the
        kernels' blocks could hold. Kernels of a tenant are taken to be resident for the same part of their time.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> bounded_means(tables, 0, (0.6, 0.3), (0, 10**9))[1].value
    0.3
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    device = tables.devices.filter(here).row(0, named=True)
    sms = device["sm_count"] or 1
    window_ns = max(window[1] - window[0], 1)
    kernels = tables.kernel_occupancy.filter(here & pl.col("mean_warps_per_sm").is_not_null())
    # Warps per SM of equal blocks, which the replay places.
    warps = ((pl.col("block_threads") + 31) // 32).cast(pl.Float64) * pl.col("grid_blocks")
    equal = warps / (sms * pl.max_horizontal(pl.col("waves").ceil(), 1.0))
    length = pl.col("total_ns") / pl.col("launches")
    last = SM_ACTIVE_SPREAD[-1]
    low, high = pl.lit(last[1]), pl.lit(last[2])
    for below, least, most in reversed(SM_ACTIVE_SPREAD[:-1]):
        low = pl.when(length < below).then(least).otherwise(low)
        high = pl.when(length < below).then(most).otherwise(high)
    reached = pl.col("total_ns") * pl.min_horizontal("grid_blocks", sms)
    held = pl.col("total_ns") * equal
    factors = kernels.select(
        active_low=(reached * low).sum() / reached.sum(),
        active_high=(reached * high).sum() / reached.sum(),
        warps_low=(held * pl.col("mean_warps_per_sm_low") / equal).sum() / held.sum(),
        warps_high=(held * pl.col("mean_warps_per_sm_high") / equal).sum() / held.sum(),
    ).row(0, named=True)
    over_time = tables.of_device("sm_occupancy", device_id)
    span = pl.col("end_ns") - pl.col("start_ns")
    most_warps = float(over_time.select((pl.col("warps_high") * span).sum()).item() or 0) / window_ns
    busy = _reached_share(tables, device_id, kernels, window, caps)
    made = []
    for mean, known, key, most in ((means[0], counted[0], "active", busy), (means[1], counted[1], "warps", most_warps)):
        value, rest = min(max(mean, 0.0), 1.0), max(mean - known, 0.0)
        step = COUNTER_STEP if known > 0 else 0.0
        least = known - step + rest * (factors[f"{key}_low"] or 0.0)
        # Counters also see what is not modelled: only the model's own part has a ceiling.
        upper = known + step + min(rest * max(factors[f"{key}_high"] or 1.0, 1.0), max(most - known, rest))
        upper += whole_graphs if known == 0 else 0.0
        made.append(Bounded(value=value, low=min(max(least, 0.0), value), high=max(min(upper, 1.0), value)))
    return made[0], made[1]


def _reached_share(
    tables: TableSet,
    device_id: int,
    kernels: pl.DataFrame,
    window: tuple[int, int],
    caps: Mapping[int, int] | None,
) -> float:
    """Part of the SMs that kernels can have had at most, mean of a window: by their blocks and time in flight."""
    import polars as pl

    here = pl.col("device_id") == device_id
    sms = tables.devices.filter(here).row(0, named=True)["sm_count"] or 1
    window_ns = max(window[1] - window[0], 1)
    # In flight and not switched out, on the SMs that the tenant may use.
    ran = pl.col("attributed_ns").fill_null(pl.col("busy_ns"))
    usable = pl.col("tenant_id").replace_strict(caps or {}, default=sms, return_dtype=pl.Int64)
    # Nor on more SMs than a grid has blocks.
    reach = pl.col("total_ns") * pl.min_horizontal("grid_blocks", usable)
    reached_by = kernels.group_by("tenant_id").agg(reach.sum().alias("reach"))
    on_sms = tables.tenant_usage.filter(here, pl.col("busy_ns") > 0).join(reached_by, on="tenant_id")
    reached_ns = on_sms.select(pl.min_horizontal(ran * usable, pl.col("reach") * ran / pl.col("busy_ns")).sum()).item()
    busy = float(reached_ns or 0) / (sms * window_ns)
    return min(busy, _in_flight_share(tables, device_id, "kernels", window)) if on_sms.height > 1 else busy


def most_active(
    tables: TableSet, device_id: int, window: tuple[int, int], caps: Mapping[int, int] | None = None
) -> float | None:
    """Bound the SMs with blocks of traced kernels from above, whatever a block takes of an SM.

    Parameters
    ----------
    tables, device_id, window
        The device, and start and end of the time of which it is the mean.
    caps
        SMs that a tenant may use, by tenant.

    Returns
    -------
    float or None
        Part of the device; None: its SMs or the grids of its kernels are not known.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> most_active(tables, 0, (0, 2 * 10**9)) <= 1
    True
    """
    (device,) = tables.rows_of("devices", device_id)
    kernels = tables.of_device("kernel_occupancy", device_id)
    if not device["sm_count"] or kernels.is_empty() or kernels["grid_blocks"].null_count():
        return None
    reached = _reached_share(tables, device_id, kernels, window, caps)
    return min(reached + whole_graphs_share(tables, device_id, window), 1.0)


def whole_graphs_share(tables: TableSet, device_id: int, window: tuple[int, int]) -> float:
    """Part of a window with whole graphs in flight, whose kernels were not recorded.

    Examples
    --------
    >>> import pyanalyze
    >>> whole_graphs_share(pyanalyze.load(capture).tables, 0, (0, 10**9))
    0.0
    """
    return _in_flight_share(tables, device_id, "graph_launches", window)


def in_flight_ns(tables: TableSet, device_id: int, names: Sequence[str], window: tuple[int, int]) -> int:
    """Add up the time of a window in which any row of these tables was in flight on a device.

    Examples
    --------
    >>> import pyanalyze
    >>> in_flight_ns(pyanalyze.load(capture).tables, 0, ("kernels", "graph_launches"), (0, 0))
    0
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    work = pl.concat(tables.columns(name, "device_id", "start_ns", "end_ns").filter(here) for name in names)
    return covered_ns(work.select(pl.col("start_ns", "end_ns").clip(*window)))


def _in_flight_share(tables: TableSet, device_id: int, name: str, window: tuple[int, int]) -> float:
    """Part of a window in which any row of this table was in flight."""
    start, end = window
    return in_flight_ns(tables, device_id, (name,), window) / (end - start) if end > start else 0.0


def kernel_tables(tables: TableSet) -> dict[str, _core.Table]:
    """Compute the table `kernel_occupancy`: no block is placed on an SM for it, and no verdict is needed."""
    return _core.kernel_occupancy(tables.for_core())


def with_resident_time(tables: TableSet, attribution: pl.DataFrame) -> pl.DataFrame:
    """Add `attributed_total_ns` to the table `kernel_occupancy`: what of `total_ns` their contexts were resident.

    Parameters
    ----------
    tables
        The tables.
    attribution
        The columns `tenant_id`, `attributed_ns` and `basis` of `kernel_attribution`, in the order of the kernels.

    Returns
    -------
    polars.DataFrame
        Null where no switch records tell it. Configurations that differ in clusters or carve-outs only have one sum,
        which is divided in proportion to their durations.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> parts = tables.columns("kernel_attribution", "tenant_id", "attributed_ns", "basis")
    >>> with_resident_time(tables, parts)["attributed_total_ns"].sum() == parts["attributed_ns"].sum()
    True
    """
    import polars as pl

    edges = [f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"]
    shared = ("static_shared_bytes", "dynamic_shared_bytes")
    names = ("name", "short_name")
    launched = tables.columns("kernels", "device_id", *names, *edges, "registers_per_thread", *shared)
    key = ["device_id", "tenant_id", *names, "grid_blocks", "block_threads", "registers_per_thread", "shared_bytes"]

    def product(of: str) -> pl.Expr:
        return pl.col(f"{of}_x").cast(pl.Int64) * pl.col(f"{of}_y") * pl.col(f"{of}_z")

    parts = attribution.with_columns(observed=pl.col("basis").cast(pl.String) == "observed")
    sums = (
        pl.concat([launched, parts.select("tenant_id", "attributed_ns", "observed")], how="horizontal")
        .with_columns(grid_blocks=product("grid"), block_threads=product("block"))
        .with_columns(shared_bytes=pl.sum_horizontal(shared, ignore_nulls=False))
        .group_by(key)
        .agg(pl.col("attributed_ns").sum(), pl.col("observed").all())
        .with_columns(pl.col(names).cast(pl.String))
    )
    found = tables.kernel_occupancy
    joined = found.select(
        pl.col(names).cast(pl.String),
        pl.col("grid_blocks", "block_threads").cast(pl.Int64),
        pl.col("device_id", "tenant_id", "registers_per_thread", "shared_bytes", "total_ns"),
    ).join(sums, on=key, how="left", nulls_equal=True, maintain_order="left")
    part = (pl.col("total_ns") / pl.col("total_ns").sum().over(key)).fill_nan(0)
    resident_ns = (pl.col("attributed_ns") * part).round().cast(pl.Int64)
    return found.with_columns(joined.select(attributed_total_ns=pl.when("observed").then(resident_ns)).to_series())


def kernel_time(configurations: pl.DataFrame) -> str | None:
    """Name the column of the time of launch configurations of a device: what is no time switched out.

    Returns
    -------
    str or None
        `attributed_total_ns`, where all of it is known and some kernel was switched out; None: the sum of durations.
    """
    resident = "attributed_total_ns"
    if resident not in configurations.columns or configurations[resident].null_count():
        return None
    return resident if configurations[resident].sum() < configurations["total_ns"].sum() else None


def modelled(
    tables: TableSet,
    policies: Mapping[int, PlacementPolicy],
    *,
    bins: int = 200,
    window: tuple[int, int] | None = None,
    model: Model = "replay",
) -> ModelledOccupancy:
    """Run the model. See :meth:`pyanalyze.session.Session.occupancy`."""
    return as_modelled(model, model_tables(tables, policies, bins=bins, window=window, model=model), policies)


def as_modelled(
    model: Model, made: Mapping[str, _core.Table], policies: Mapping[int, PlacementPolicy]
) -> ModelledOccupancy:
    """Give the tables of the model as frames."""
    return ModelledOccupancy(
        model,
        over_time=to_frame(made["sm_occupancy"]),
        per_sm=to_frame(made["sm_warps"]),
        kernels=to_frame(made["kernel_occupancy"]),
        placements=to_frame(made["kernel_placement"]),
        policies=policies,
    )


def model_in_passing(tables: TableSet) -> Model:
    """The model of the frames and of reports: every SM is replayed where that takes seconds, not minutes.

    Examples
    --------
    >>> import pyanalyze
    >>> model_in_passing(pyanalyze.load(capture).tables)
    'replay'
    """
    return "replay" if tables.row_count("kernels") <= REPLAYED_IN_PASSING else "even"


def model_tables(
    tables: TableSet,
    policies: Mapping[int, PlacementPolicy],
    *,
    bins: int = 200,
    window: tuple[int, int] | None = None,
    model: Model = "replay",
) -> dict[str, _core.Table]:
    """Run the model: the tables `sm_occupancy`, `sm_warps`, `kernel_occupancy` and `kernel_placement`."""
    if model not in ("replay", "even"):
        raise UsageError(f"there is no placement model {model}; choose from replay, even")
    return _core.occupancy(
        tables.for_core(),
        policies,
        bins,
        window=window,
        model=model,
    )


#: Names of the counters over nsys versions, in lower case.
_WARPS = ("compute warps in flight",)
_ACTIVE = ("sms active", "sm active")
#: Bins without any sample inside are left out; with fewer than this many left there is nothing to compare.
_FEWEST_BINS = 2


@dataclass(frozen=True, repr=False)
class CounterComparison:
    """The modelled occupancy of a device beside its hardware counters, over the same time bins.

    Attributes
    ----------
    bins
        One row per bin: `start_ns`, `end_ns`, and `warps` and `sm_active` as `_modelled` and `_counted`, fractions of
        the device. Counters are averages until the next sample; each bin gets what falls into it.
    samples
        Samples of the counter of active SMs that were used.
    period_ns
        The usual time between two samples.
    max_warps_per_sm
        Warp slots of an SM.
    active_counted
        All samples of the counter of active SMs: `time_ns`, and `value` in percent of the device, the mean until
        the next sample.
    warps_counted
        The same of warps; None: they were not counted, only active SMs are compared.
    caveats
        What the counters see and the model does not, or the other way round.
    other_work
        The counters include work that is not modelled: untraced tenants, whole graphs, or active SMs without a traced
        kernel. Then nothing is scaled to them unless somebody asks for it.

    Examples
    --------
    >>> import pyanalyze
    >>> pyanalyze.load(capture).check_occupancy(0) is None  # no GPU metrics in that capture
    True
    """

    bins: pl.DataFrame
    samples: int
    period_ns: int
    max_warps_per_sm: int
    active_counted: pl.DataFrame
    warps_counted: pl.DataFrame | None
    caveats: tuple[str, ...]
    other_work: bool = False

    @property
    def warps_counter(self) -> bool:
        """Whether warps were counted."""
        return self.warps_counted is not None

    def mean(self, column: str) -> float:
        """Mean of a column of `bins` over time."""
        import polars as pl

        length = pl.col("end_ns") - pl.col("start_ns")
        return float(self.bins.select((pl.col(column) * length).sum() / length.sum()).item())

    def difference(self, what: Literal["warps", "sm_active"]) -> float:
        """Mean modelled less mean counted, as a fraction of the device."""
        return self.mean(f"{what}_modelled") - self.mean(f"{what}_counted")

    def absolute_difference(self, what: Literal["warps", "sm_active"]) -> float:
        """Mean over the bins of how far the model is from the counter, as a fraction of the device."""
        import polars as pl

        length = pl.col("end_ns") - pl.col("start_ns")
        apart = (pl.col(f"{what}_modelled") - pl.col(f"{what}_counted")).abs()
        return float(self.bins.select((apart * length).sum() / length.sum()).item())

    @property
    def factor(self) -> float | None:
        """Counted over modelled warps, means of all bins; None: not known. See :meth:`ModelledOccupancy.calibrated`."""
        modelled = self.mean("warps_modelled")
        return self.mean("warps_counted") / modelled if self.warps_counter and modelled > 0 else None

    def of_device(self, per_sm: pl.DataFrame) -> pl.DataFrame:
        """Warps and active SMs of the device by bin, as fractions of it, from its rows of `sm_warps`."""
        import polars as pl

        return per_sm.group_by("start_ns", "end_ns").agg(
            warps=pl.col("warps").mean() / self.max_warps_per_sm, sm_active=pl.col("active").mean()
        )

    def scales(self, modelled: pl.DataFrame) -> pl.DataFrame:
        """Counted over modelled by bins of any model of the device.

        Parameters
        ----------
        modelled
            A row per bin: `start_ns`, `end_ns`, `warps` and `sm_active` as fractions of the device.

        Returns
        -------
        polars.DataFrame
            The same by time, with `warps_counted` and `sm_active_counted`, and `warps_scale` and `sm_active_scale`:
            null where nothing was sampled, nothing is modelled, or the counter's whole percents cannot tell it from 0.
        """
        import polars as pl

        found = modelled.sort("start_ns").with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
        for what, samples in (("warps", self.warps_counted), ("sm_active", self.active_counted)):
            if samples is None:
                nothing = pl.lit(None, pl.Float64)
                found = found.with_columns(nothing.alias(f"{what}_counted"), nothing.alias(f"{what}_scale"))
                continue
            counted = _over(samples, self.period_ns, found)
            found = found.with_columns(counted.alias(f"{what}_counted"))
            sampled = pl.col(f"{what}_counted").is_not_null()
            # A bin shorter than a sample has no mean of its own.
            together = -(-self.period_ns // max(int(found["length"].min() or 1), 1))  # type: ignore[arg-type]
            group = pl.int_range(pl.len()) // together
            weighted = {
                side: (pl.col(name) * pl.col("length")).sum().over(group) / pl.col("length").sum().over(group)
                for side, name in (("counted", f"{what}_counted"), ("modelled", what))
            }
            untold = (weighted["counted"] == 0) & (weighted["modelled"] < COUNTER_STEP)
            found = found.with_columns(
                pl.when(sampled.all().over(group) & (weighted["modelled"] > 0) & ~untold)
                .then(weighted["counted"] / weighted["modelled"])
                .alias(f"{what}_scale")
            )
        return found.drop("length")

    @property
    def agrees(self) -> bool:
        """No mean differs by more than :data:`COUNTER_TOLERANCE`."""
        apart = [self.difference("sm_active"), *([self.difference("warps")] if self.warps_counter else [])]
        return max(abs(value) for value in apart) <= COUNTER_TOLERANCE

    def result(self) -> CounterCheck:
        """What of it a report holds: figures, no frames."""
        warps = self.warps_counter
        return CounterCheck(
            sm_active=self.mean("sm_active_counted"),
            warps=self.mean("warps_counted") if warps else None,
            n=self.samples,
            agrees=self.agrees,
            start_ns=int(self.bins["start_ns"][0]),
            end_ns=int(self.bins["end_ns"][-1]),
            detail=str(self),
            bins=self.bins.height,
            sm_active_difference=self.difference("sm_active"),
            warps_difference=self.difference("warps") if warps else None,
            sm_active_by_bin=self.absolute_difference("sm_active"),
            warps_by_bin=self.absolute_difference("warps") if warps else None,
            warps_factor=self.factor,
        )

    def __str__(self) -> str:
        """One paragraph."""
        said = [("SMs active", "sm_active"), *([("warps", "warps")] if self.warps_counter else [])]
        parts = [
            f"{word} {fmt.percent(self.mean(f'{key}_modelled'))} modelled, "
            f"{fmt.percent(self.mean(f'{key}_counted'))} counted "
            f"(mean difference per bin {100 * self.absolute_difference(key):.1f} percentage points)"  # type: ignore[arg-type]
            for word, key in said
        ]
        text = f"means over {self.bins.height} bins: " + "; ".join(parts)
        # Counted work of others says nothing of how good the model is.
        if self.factor is not None and not self.other_work:
            text += f"; counted over modelled warps: {self.factor:.2f}"
        return text + "".join(f"; {caveat}" for caveat in self.caveats)

    def __repr__(self) -> str:
        """Say what it is."""
        return f"<CounterComparison {self}>"


def check_against_counters(
    tables: TableSet, policies: Mapping[int, PlacementPolicy], device_id: int, *, bins: int = 200
) -> CounterComparison | None:
    """Compare the modelled occupancy of a device with its GPU metrics, over the same bins.

    Parameters
    ----------
    tables
        The tables.
    policies
        Who may be on which SMs, by device.
    device_id
        The device. Counters have no process: with several tenants only the sum is compared.
    bins
        Most bins; there are no more than samples.

    Returns
    -------
    CounterComparison or None
        None where there is nothing to compare: no samples of active SMs while tenants were active, no model, or a MIG
        instance (the counters are the whole board's).

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).analysis
    >>> check_against_counters(analysis.tables, analysis.policies, 0) is None
    True
    """
    import polars as pl

    device = tables.devices.filter(pl.col("device_id") == device_id)
    if device.is_empty() or device["mig_profile"][0] is not None:
        return None
    active = _counter(tables, device_id, _ACTIVE)
    first, last = tables.span_ns
    if active.height < _FEWEST_BINS or first >= last:
        return None
    period = int(active["time_ns"].diff().median() or 0)  # type: ignore[arg-type]
    times = active["time_ns"]
    start, end = max(int(times[0]) - period, first), min(int(times[-1]), last)
    inside = active.filter((pl.col("time_ns") > start) & (pl.col("time_ns") - period < end)).height
    if start >= end or inside < _FEWEST_BINS:
        return None
    made = modelled(tables, policies, bins=min(bins, inside), window=(start, end))
    here = pl.col("device_id") == device_id
    per_sm = made.per_sm.filter(here)
    if per_sm.is_empty():
        return None
    slots = int(device["max_warps_per_sm"][0])
    table = (
        per_sm.group_by("start_ns", "end_ns")
        .agg(warps_modelled=pl.col("warps").mean() / slots, sm_active_modelled=pl.col("active").mean())
        .sort("start_ns")
    )
    table = table.with_columns(sm_active_counted=_over(active, period, table))
    warps = _counter(tables, device_id, _WARPS)
    counted = warps if warps.height >= _FEWEST_BINS else None
    if counted is not None:
        table = table.with_columns(warps_counted=_over(counted, period, table))
    table = table.drop_nulls()
    if table.height < _FEWEST_BINS:
        return None
    caveats = _caveats(tables, device_id, (start, end))
    here_too = (pl.col("end_ns") > start) & (pl.col("start_ns") < end)
    other_work = (
        not tables.tenants.filter(here & ~pl.col("traced")).is_empty()
        or not tables.graph_launches.filter(here & here_too).is_empty()
    )
    unexplained = float((table["sm_active_counted"] - table["sm_active_modelled"]).mean() or 0.0)  # type: ignore[arg-type]
    if unexplained > COUNTER_TOLERANCE:
        seen = f"{fmt.percent(unexplained, 0)} of SM time in the window was active by counter, without a traced kernel"
        caveats = (*caveats, f"{seen}: another process, rendering, or work that CUPTI does not record")
        other_work = True
    return CounterComparison(table, inside, period, slots, active, counted, caveats, other_work)


def _said_of_scales(scales: pl.DataFrame, samples: pl.DataFrame) -> str:
    """One line on what was scaled, by what, and what was not."""
    import polars as pl

    there = pl.col("warps_scale").is_not_null()
    length = pl.col("end_ns") - pl.col("start_ns")
    busy = pl.col("warps") > 0
    sums = scales.select(
        counted=(pl.col("warps_counted") * length).filter(there).sum(),
        modelled=(pl.col("warps") * length).filter(there).sum(),
        unexplained=(pl.col("warps_counted") * length).filter(~busy).sum(),
        all=(pl.col("warps_counted") * length).sum(),
        bins=(busy & there).sum(),
        busy=busy.sum(),
    ).row(0, named=True)
    if sums["modelled"] <= 0:
        raise UsageError("not calibrated: no modelled work where Compute Warps in Flight was sampled")
    here = pl.col("time_ns").is_between(scales["start_ns"].min(), scales["end_ns"].max(), closed="right")
    text = (
        f"warps times {sums['counted'] / sums['modelled']:.3f} over all bins, each by its own "
        f"{samples.filter(here).height} samples of Compute Warps in Flight"
    )
    if sums["bins"] < sums["busy"]:
        text += (
            f"; {sums['busy'] - sums['bins']} of {sums['busy']} bins with work were not sampled and stay as modelled"
        )
    if sums["unexplained"] > UNEXPLAINED * sums["all"]:
        text += f"; {fmt.percent(sums['unexplained'] / sums['all'])} of the counted warps are where no work is modelled"
    return text


def _counter(tables: TableSet, device_id: int, names: tuple[str, ...]) -> pl.DataFrame:
    """Samples of a counter in percent of its maximum, by time."""
    import polars as pl

    samples = tables.counters(lambda name: name.str.to_lowercase().is_in(list(names)))
    if tables.devices.height > 1:
        samples = samples.filter(pl.col("device_id") == device_id)
    percent = pl.col("unit").is_null() | pl.col("unit").is_in(["Throughput %", "%"])
    return samples.filter(percent).select("time_ns", "value").unique("time_ns").sort("time_ns")


def _over(samples: pl.DataFrame, period: int, bins: pl.DataFrame) -> pl.Series:
    """Mean of a counter over each bin, as a fraction: every sample is the mean until the next one.

    Null where samples cover less than half of the bin: a pause in the sampling is no time of the sample before it.
    """
    import polars as pl

    until_next = (pl.col("time_ns").shift(-1) - pl.col("time_ns")).fill_null(period)
    length = pl.min_horizontal(until_next, pl.lit(2 * period))
    steps = samples.select(
        pl.col("time_ns").alias("begins").set_sorted(), "value", ends=pl.col("time_ns") + length,
        sum=(pl.col("value") * length).cum_sum().shift(1).fill_null(0.0),
        time=length.cum_sum().shift(1).fill_null(0),
    )  # fmt: skip

    def until(edge: str) -> pl.DataFrame:
        """Sum of the counter, and of the time that was sampled, up to an edge of every bin."""
        at = bins.select(pl.col(edge).alias("at").set_sorted())
        joined = at.join_asof(steps, left_on="at", right_on="begins", coalesce=False)
        inside = pl.min_horizontal("at", "ends") - pl.col("begins")
        return joined.select(
            sum=(pl.col("sum") + pl.col("value") * inside).fill_null(0.0), time=(pl.col("time") + inside).fill_null(0)
        )

    both = pl.concat(
        [
            until("start_ns").rename({"sum": "sum_0", "time": "time_0"}),
            until("end_ns"),
            bins.select("start_ns", "end_ns"),
        ],
        how="horizontal",
    )
    time = pl.col("time") - pl.col("time_0")
    enough = 2 * time >= pl.col("end_ns") - pl.col("start_ns")
    mean = (pl.col("sum") - pl.col("sum_0")) / time / 100
    return both.select(pl.when(enough & (time > 0)).then(mean).alias("mean"))["mean"]


def _caveats(tables: TableSet, device_id: int, window: tuple[int, int]) -> tuple[str, ...]:
    """What only one of model and counters sees."""
    import polars as pl

    here = pl.col("device_id") == device_id
    during = (pl.col("end_ns") > window[0]) & (pl.col("start_ns") < window[1])
    found = []
    untraced = tables.tenants.filter(here & ~pl.col("traced")).height
    if untraced:
        found.append(f"the counters include {fmt.counted(untraced, 'tenant')} whose kernels were not traced")
    is_set = pl.col("operation").cast(pl.String) == "[CUDA memset]"
    memsets, all_memsets = (tables.memops.filter(here & is_set & when).height for when in (during, pl.lit(value=True)))
    if memsets:
        said = fmt.counted(memsets, "memset")
        # The table of copies and memsets counts those of the whole window.
        if memsets < all_memsets:
            said = f"{fmt.count(memsets)} of {fmt.counted(all_memsets, 'memset')} (the rest ran outside the samples)"
        found.append(f"the counters include {said}, which may run as kernels")
    graphs = tables.graph_launches.filter(here & during).height
    if graphs:
        found.append(f"the model lacks {graphs} graph launch(es) whose kernels were not recorded")
    unknown = tables.kernel_occupancy.filter(here & pl.col("blocks_per_sm").is_null())["launches"].sum()
    if unknown:
        found.append(f"{unknown} launch(es) could not be modelled")
    if tables.tenants.filter(here & pl.col("traced")).height > 1:
        found.append("counters are not per process: only the sum of the tenants is compared")
    return tuple(found)
