"""What would each way to share this GPU do to each tenant?  Options, with forecasts and stated bounds."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from pyanalyze.analysis.advice import demands, mps
from pyanalyze.analysis.advice import mig as mig_
from pyanalyze.analysis.advice.fitted import BLOCKS
from pyanalyze.analysis.advice.forecast import (
    Assignment,
    Fitted,
    SharingConfig,
    alone,
    both_readings,
    forecast,
    side_by_side,
    time_slicing,
)
from pyanalyze.analysis.advice.simple import in_turn
from pyanalyze.analysis.hardware import (
    DEFAULT_SLICE_NS,
    IDLE_GAP_NS,
    STATE_NS,
    SWITCH_NS,
    mps_caps,
    mps_clients,
    visible_sms,
)
from pyanalyze.analysis.interference.solo_part import pauses_solo
from pyanalyze.analysis.interference.units import ENOUGH
from pyanalyze.analysis.mps_daemon import DEFAULT_DAEMON, Daemon, daemon_on, servers_on
from pyanalyze.analysis.occupancy import mps_percentages, placement_policy
from pyanalyze.analysis.residency import NO_GROUPS
from pyanalyze.errors import UsageError
from pyanalyze.results.advice import ForecastRow, ForecastWaits, mean_bounds
from pyanalyze.results.model import Text
from pyanalyze.tables.process_lists import process_memory
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import (
    INFERRED_STATE,
    MOST_COPIES,
    NEGLIGIBLE_RESIDENCY,
    NOISE_FLOOR,
    REQUIREMENTS,
    TRAITS,
    Mode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.interference import Estimate
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Requirement

#: Kernels of a client may lose this much to its cap in the strategy `exact`.
LOSE = 0.05
#: Allowance for memory, caches and issue slots while kernels of two tenants share an instance, where nothing was
#: measured: least, middle, much, as the simulations of the benchmark have it. Two kernels that each want all of the
#: DRAM bandwidth slow each other by 1.0, and published cases go further: a capture in the mode decides. Below 0 they
#: need different units of an SM: two kernels of which each fills an H100, one bound by DRAM and one by arithmetic, took
#: 1.36 times as long under MPS as solo, not 2 (fixtures/hardware/h100/units.csv).
CONTENTION = (-0.3, 0.03, 0.12)
#: Where it is measured (kernels of known time alone ran in the co-run): parts of it.
MEASURED_CONTENTION = (0.5, 1.0, 1.3)
#: And this much more may come with other caps, which change what meets what.
MORE_CONTENTION = 0.08
#: Operations vary by this from replay to replay, so that no chance meeting of two rhythms becomes the forecast.
JITTER = 0.04
#: How long a context without work keeps the engine is not known where no switch records show it: none, and much.
LINGERING_NS = (0, 40_000)
#: What the replay itself missed in simulations that share no code with it: same launches, another mode (half width).
MARGIN = {"time-sliced": 0.045, "together": 0.013, "instances": 0.04}
#: Added where caps overlap: which SMs two clients have in common is not known.
MARGIN_OVERLAP = 0.013
#: Added for other modes where kernels' time alone had to be fitted to a capture of them side by side: five forecasts of
#: time-slicing from captures under MPS on an H100 missed the programs' own clocks by 6 to 20 %
#: (fixtures/hardware/h100: mps-A-B, mps-A-B-beside-C).
MARGIN_FITTED = 0.2
#: Two tenants lose at most so much less to each other than their blocks and SMs say: nothing at all is left.
MOST_COMPLEMENTARY = 0.5
#: Added where slices vary more than this (90th over 10th percentile): contexts drain before they leave, and part of
#: their residency is idle SMs.
DRAINING = 1.1
MARGIN_DRAINING = 0.2
#: Fraction of all residency. Tenants whose work was not traced, with no more than that together, are left out of the
#: replay; that they delay the others by all of their resident time is the upper bound.
MAX_UNTRACED = 0.05
#: Without API calls think time cannot be told from waiting.
MARGIN_WITHOUT_CALLS = 0.15
#: Slices of which a usual length is taken, and the part of them that must share it (within 12 %).
ENOUGH_SLICES = 8
IN_COMMON = 0.3
DEFAULT_SLICING = (DEFAULT_SLICE_NS - STATE_NS, SWITCH_NS)
#: Pauses of a host may end at moments, or after as long as recorded. Both are replayed where that changes the time solo
#: by more than this part.
NOTABLE_PAUSES = 0.02
#: Options this close to the best are as good as the best: the one that changes least is taken.
AS_GOOD = 0.03
#: The replay of what was recorded may miss the record by so much without a consequence: the intervals hold it already.
REPRODUCED = 0.02
#: What the names of configs begin with that are compared with the record.
CHECK = "check"
#: The variant that assumes the most that tenants may cost each other.
HIGH = "high"
#: Above this nothing is forecast.
FORBIDDEN = 0.25


class Forecast(ForecastRow):
    """What an option would do to a tenant, with what the report says elsewhere, or not at all.

    Attributes
    ----------
    name
        Name of the tenant.
    elapsed_ns
        Elapsed time of its launches in the replay.
    goes_on
        It is begun again until the others have run once; a tenant that had ended before the recording did is not.
    """

    name: Text
    elapsed_ns: int = 0
    goes_on: bool = True


@dataclass(frozen=True)
class Contention:
    """By how much longer kernels of two tenants take in memory and caches while they run side by side.

    Below 0 they take less than their SMs say, because they need different units.

    Attributes
    ----------
    low, middle, high
        Fractions of that time: the lower bound, what is likely, and the upper bound.
    basis
        How they are known.
    no_gain
        Upper bounds are also no lower than for time-slicing: nothing shows that kernels gain by running side by side.
    """

    low: float
    middle: float
    high: float
    basis: Literal["inferred", "sampled", "assumed"] = "assumed"
    no_gain: bool = False


@dataclass(frozen=True)
class Option:
    """A way to share the GPU.

    Attributes
    ----------
    name
        Such as ``MPS, minimal caps``.
    mode
        The sharing mode it makes.
    config
        What was replayed.
    forecasts
        One per tenant.
    provision
        Percentages, for MPS with caps.
    placement
        Instances, for MIG.
    margin
        Relative error of the model that the bounds allow for.
    contention
        What they allow for besides while kernels of tenants run side by side; None: they do not.
    """

    name: str
    mode: Mode
    config: SharingConfig
    forecasts: tuple[Forecast, ...]
    provision: mps.Provision | None = None
    placement: mig_.Placement | None = None
    margin: float = 0.0
    contention: Contention | None = None

    @property
    def profiles(self) -> tuple[str, ...]:
        """MIG profiles, in the order of the config's instances."""
        if self.placement is None:
            return ()
        return tuple(one.profile.name for one in sorted(self.placement.placed.values(), key=lambda one: one.start))

    @property
    def antt(self) -> float:
        """Mean slowdown."""
        return statistics.fmean(f.slowdown for f in self.forecasts)

    @property
    def antt_bounds(self) -> tuple[float, float]:
        """Mean of the lower, and of the upper bounds."""
        return mean_bounds(self.forecasts)

    @property
    def stp(self) -> float:
        """System throughput: sum of 1 / slowdown."""
        return sum(1 / f.slowdown for f in self.forecasts)

    @property
    def worst(self) -> Forecast:
        """The tenant that is slowed most."""
        return max(self.forecasts, key=lambda f: f.slowdown)


@dataclass(frozen=True)
class ReplayError:
    """How far the replay of the recorded configuration is from the record, for a tenant.

    Attributes
    ----------
    tenant_id
        Tenant.
    relative
        Replayed over recorded, less 1: below 0 the replay is too short.
    recorded_ns
        What was recorded.
    """

    tenant_id: int
    relative: float
    recorded_ns: int = 0

    @property
    def size(self) -> float:
        """Either way."""
        return abs(self.relative)


@dataclass(frozen=True)
class Options:
    """All that was compared on one device.

    Attributes
    ----------
    device_id
        Device.
    options
        By mean slowdown, best first.
    current
        The option that the capture shows, if it is among them.
    recommended
        The best that meets the requirements; None where nothing could be compared or nothing meets them. Not changing
        anything is preferred where that is as good; in a `DeviceAdvice` also where no other way is worth a change.
    refused
        Options that do not meet the requirements, with what they lack.
    why_not
        Why nothing could be compared; None where it was.
    postponed
        Nothing was compared because it would take long: asked for by itself it is.
    contradicted
        The forecast of the recorded configuration contradicts what was measured against a solo recording, or a bound:
        `why_not` has both figures.
    untraced
        Tenants that are not in the replay, because their work was not traced: upper bounds allow for their resident
        time.
    replayed
        Part of the recorded operations that was replayed: less than all of many. What that adds is in the bounds.
    daemon
        Where an MPS daemon is found.
    check
        How far the replay of the recorded mode is from the recorded elapsed times; None where that mode cannot be
        replayed. It is in the bounds of every option; above :data:`FORBIDDEN` there are none.
    replay_errors
        The same of each tenant; empty where that mode cannot be replayed.
    recorded_p99_ns
        The recorded 99th percentile of kernel latency, by tenant.
    solo_measured
        The slowdown against a solo recording, by tenant, that the forecast of the recorded configuration was compared
        with; empty where none was recorded.
    clients
        What MPS provisioning knows of the tenants.
    unplaced
        Tenants for which MIG has no instance beside the others, with the reason; empty where it has, or the GPU has no
        MIG.
    paused_solo
        How often a tenant paused before the others began, by name, where it has hardly paused since: its requests may
        have piled up, and the replay takes each unit of work to follow the one before.
    mig_instances
        How many instances the GPU has at most, where more than :data:`~pyanalyze.vocabulary.MOST_COPIES` tenants share
        it: then it is not worked out which of them to place.
    """

    device_id: int
    options: tuple[Option, ...] = ()
    current: Option | None = None
    recommended: Option | None = None
    refused: tuple[tuple[Option, tuple[Requirement, ...]], ...] = ()
    why_not: str | None = None
    check: ReplayError | None = None
    clients: tuple[mps.Client, ...] = ()
    unplaced: Mapping[str, str] = field(default_factory=dict)
    mig_instances: int | None = None
    postponed: bool = False
    contradicted: Literal["measured", "bound"] | None = None
    untraced: tuple[str, ...] = ()
    replayed: float = 1.0
    daemon: Daemon = DEFAULT_DAEMON
    replay_errors: tuple[ReplayError, ...] = ()
    recorded_p99_ns: Mapping[int, int] = field(default_factory=dict)
    solo_measured: Mapping[int, float] = field(default_factory=dict)
    paused_solo: Mapping[str, int] = field(default_factory=dict)

    @property
    def present_p99_ns(self) -> dict[int, int]:
        """The modelled p99 kernel latency of each tenant under the current configuration, where it is known."""
        now = () if self.current is None else self.current.forecasts
        return {f.tenant_id: f.p99_ns for f in now if f.p99_ns}

    @property
    def missed_p99(self) -> frozenset[int]:
        """Tenants whose recorded p99 the replay misses: no configuration has a p99 of theirs."""
        return frozenset(
            tenant
            for tenant, modelled in self.present_p99_ns.items()
            if (recorded := self.recorded_p99_ns.get(tenant)) and abs(modelled / recorded - 1) > FORBIDDEN
        )


def observed_slicing(tables: TableSet, device_id: int) -> tuple[int | None, int] | None:
    """Return execution time of a slice and time between two, as switch records show them.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.

    Returns
    -------
    (int or None, int) or None
        Nanoseconds; None for a slice whose length does not show: too few were waited for from begin to end, or they
        have no length in common; None for both without switches to measure.

    Examples
    --------
    >>> import pyanalyze
    >>> slice_ns, switch_ns = observed_slicing(pyanalyze.load(capture).tables, 0)
    >>> 1_500_000 < slice_ns < 2_500_000, 30_000 < switch_ns < 200_000
    (True, True)
    """
    seen = _seen_slicing(tables, device_id)
    return None if seen is None else seen[:2]


def slicing_of(tables: TableSet, device_id: int) -> tuple[int, int]:
    """Return what to replay time slices with: as observed, and the usual where nothing shows it."""
    seen = _seen_slicing(tables, device_id)
    if seen is None:
        return DEFAULT_SLICING
    slice_ns, switch_ns, state_ns = seen
    return max(DEFAULT_SLICE_NS - state_ns, 1000) if slice_ns is None else slice_ns, switch_ns


@dataclass(frozen=True)
class FullSwitch:
    """From the end of one context's execution to the begin of the next one's.

    Attributes
    ----------
    gap_ns
        The switch gap: median, as recorded.
    state_ns
        Stopping, saving and restoring, which count as residency.
    known
        Where `state_ns` comes from, in words.
    assumed
        Whether it is that of other boards.
    """

    gap_ns: int
    state_ns: int
    known: str
    assumed: bool = False

    @property
    def length_ns(self) -> int:
        """All of it."""
        return self.gap_ns + self.state_ns


_ASSUMED = "assumed, as on other boards: this capture shows neither"
_RECORDED = "observed"


def full_switch(tables: TableSet, device_id: int) -> FullSwitch | None:
    """Return how long context switches of a device take; None: there are too few to say.

    Saving and restoring are as recorded; where they were not, as the kernels of the capture show them; else as on other
    boards.

    Examples
    --------
    Records of this capture have the gap only; the generator's median full switch is 114.1 us.

    >>> import pyanalyze
    >>> switch = full_switch(pyanalyze.load(capture).tables, 0)
    >>> round(switch.gap_ns, -3), round(switch.length_ns, -3), switch.assumed
    (40000, 114000, False)
    """
    import polars as pl

    switches = tables.switches.filter((pl.col("device_id") == device_id) & (pl.col("kind") == "switch"))
    gap, full = switches["gap_ns"].median(), switches["full_ns"].median()
    if switches.height < ENOUGH_SLICES or not isinstance(gap, (int, float)):
        return None
    if isinstance(full, (int, float)):
        return FullSwitch(int(gap), int(full) - int(gap), _RECORDED)
    for row in tables.rows_of("context_state", device_id):
        how = INFERRED_STATE[row["found_from"]]
        span = f"{fmt.duration(row['low_ns'])} to {fmt.duration(row['high_ns'])}"
        return FullSwitch(int(gap), row["save_ns"] + row["restore_ns"], f"inferred {how}: {span}")
    return FullSwitch(int(gap), STATE_NS, _ASSUMED, assumed=True)


def _seen_slicing(tables: TableSet, device_id: int) -> tuple[int | None, int, int] | None:
    """As `observed_slicing`, and the part of what lies between two slices that counts as residency."""
    switch = full_switch(tables, device_id)
    if switch is None:
        return None
    # A slice that others waited for from its begin: the one before it was cut (its tenant had a kernel in flight, and
    # waits for its next turn), and so was it itself. A context that runs out of work ends early, a holder that was
    # alone ends late, at any length. Release drivers do not say how a slice ended.
    lengths = _contended(tables, device_id)
    state = switch.state_ns
    if len(lengths) < ENOUGH_SLICES:
        return None, switch.length_ns, state
    bins = (lengths.log() / math.log(1.08)).round().cast(int)
    counts = bins.value_counts().sort("count", bins.name)
    near = (bins - counts[bins.name][-1]).abs() <= 1
    usual = lengths.filter(near).median()
    common = near.mean()
    known = isinstance(usual, (int, float)) and isinstance(common, float) and common >= IN_COMMON
    slice_ns = max(int(usual) - state, 1000) if known and isinstance(usual, (int, float)) else None
    return slice_ns, switch.length_ns, state


def _contended(tables: TableSet, device_id: int) -> pl.Series:
    """Lengths of the slices that others waited for from begin to end."""
    import polars as pl

    slices = (
        _cut(tables, device_id)
        .with_columns((pl.col("start_ns") - pl.col("end_ns").shift(1)).alias("after_ns"))
        .with_columns(pl.col("cut").shift(1).alias("before"))
        .filter(pl.col("complete") & pl.col("cut") & pl.col("before") & (pl.col("after_ns") < IDLE_GAP_NS))
        .with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("ns"))
    )
    return slices["ns"].filter(slices["ns"].is_between(200_000, 40_000_000))


def _slices_vary(tables: TableSet, device_id: int) -> bool:
    lengths = _contended(tables, device_id)
    long, short = lengths.quantile(0.9), lengths.quantile(0.1)
    return len(lengths) >= ENOUGH_SLICES and bool(long and short and long > DRAINING * short)


def _cut(tables: TableSet, device_id: int) -> pl.DataFrame:
    """Slices of a device in order, with whether a kernel of their tenant was in flight when they ended."""
    import polars as pl

    here = pl.col("device_id") == device_id
    who = tables.tenants.filter(here).select("tenant_id", "capture", "pid", "served_by")
    columns = ["capture", "pid", "start_ns", "end_ns"]
    parts = [tables.columns(name, "device_id", *columns) for name in ("kernels", "graph_launches")]
    work = pl.concat([part.filter(here).select(columns) for part in parts])
    work = (
        work.join(who, on=["capture", "pid"], nulls_equal=True)
        # What clients of a server run, the server's context is resident for.
        .with_columns(pl.coalesce("served_by", "tenant_id").alias("tenant_id"))
        .sort("start_ns")
        .select("tenant_id", "start_ns", pl.col("end_ns").cum_max().over("tenant_id").alias("busy_until_ns"))
    )
    slices = tables.residency.filter(here & pl.col("tenant_id").is_not_null()).sort("end_ns")
    marked = slices.join_asof(
        work, left_on="end_ns", right_on="start_ns", by="tenant_id", strategy="backward", check_sortedness=False
    )
    cut = (pl.col("busy_until_ns") > pl.col("end_ns")).fill_null(value=False)
    return marked.with_columns(cut.alias("cut")).sort("start_ns")


def clients_of(tables: TableSet, device_id: int, names: Mapping[int, str], sm_count: int) -> list[mps.Client]:
    """What provisioning needs to know of each tenant, from launch configurations and observed memory.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> [client.name for client in clients_of(session.tables, 0, {0: "a"}, 108)]
    ['a']
    """
    import polars as pl

    configurations = tables.kernel_occupancy.filter(pl.col("device_id") == device_id)
    modelled = tables.sm_occupancy.filter(pl.col("device_id") == device_id)
    length = pl.col("end_ns") - pl.col("start_ns")
    used = dict(modelled.group_by("tenant_id").agg((pl.col("sm_active") * length).sum()).iter_rows())
    whole = sum(used.get(tenant, 0) for tenant in names)
    memory = memory_peaks(tables, device_id)
    who = tables.tenants.filter(pl.col("tenant_id").is_in(list(names))).select("capture", "pid", "tenant_id")
    by_pid = {(capture, pid): tenant for capture, pid, tenant in who.iter_rows()}
    percentages = mps_percentages(tables, device_id, by_pid)
    # A percentage of a command line names the command, which may start several clients.
    caps = [row for row in tables.settings_of(device_id) if row["source"] == "command-line"]
    named = mps_caps((str(row["key"]), row["value"], row["pid"]) for row in caps)
    pids = {tenant: pid for (_, pid), tenant in by_pid.items()}
    return [
        mps.Client(
            tenant,
            name,
            used.get(tenant, 0) / whole if whole else None,
            mps.sms_needed(mps.loss_by_sms(configurations.filter(pl.col("tenant_id") == tenant), sm_count), LOSE),
            memory.get(tenant),
            percentages.get(tenant),
            any(
                pid in {None, pids.get(tenant)} and percentages.get(tenant, percentage) == percentage
                for pid, percentage in named
            ),
            _follows_sms(configurations.filter(pl.col("tenant_id") == tenant), sm_count),
        )
        for tenant, name in names.items()
    ]


def _follows_sms(configurations: pl.DataFrame, sm_count: int) -> float:
    """The part of kernel time in grids of as many blocks as there are SMs, or a multiple that is resident at once."""
    import polars as pl

    on_each = pl.col("grid_blocks") // sm_count
    evenly = (pl.col("grid_blocks") % sm_count == 0) & on_each.is_between(1, pl.col("blocks_per_sm"))
    whole_ns, their_ns = (int(some["total_ns"].sum()) for some in (configurations, configurations.filter(evenly)))
    return their_ns / whole_ns if whole_ns else 0.0


def memory_peaks(tables: TableSet, device_id: int) -> dict[int, int]:
    """Most device memory that each tenant was seen to use, in bytes; tenants of which nothing is known are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> memory_peaks(pyanalyze.load(capture).tables, 0)
    {}
    """
    import polars as pl

    by_pid = process_memory(tables, device_id)
    here = tables.tenants.filter(pl.col("device_id") == device_id).join(
        tables.tenant_usage.select("tenant_id", "device_id", "memory_peak_bytes"), on=["tenant_id", "device_id"]
    )
    found = {}
    for row in here.iter_rows(named=True):
        peak = row["memory_peak_bytes"] or by_pid.get(row["host_pid"]) or by_pid.get(row["pid"])
        if peak:
            found[row["tenant_id"]] = int(peak)
    return found


def known_requirements(given: Sequence[str] | str) -> tuple[Requirement, ...]:
    """Read what a mode must promise: names, or one text with commas between them.

    Examples
    --------
    >>> known_requirements("fault-isolation, bandwidth-qos")
    ('fault-isolation', 'bandwidth-qos')
    """
    words = [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    if unknown := sorted(set(words) - set(REQUIREMENTS)):
        raise UsageError(f"unknown requirement {', '.join(unknown)}; choose from {', '.join(REQUIREMENTS)}")
    return tuple(known for word in words for known in REQUIREMENTS if known == word)


def options(
    tables: TableSet,
    verdict: Verdict,
    require: Iterable[Requirement] = (),
    mps_groups: Mapping[int, frozenset[int]] = NO_GROUPS,
) -> Options:
    """Compare ways to share a device, by replaying what was recorded.

    Parameters
    ----------
    tables, verdict
        The tables, and the verdict of the device.
    require
        What a mode must promise (:data:`pyanalyze.vocabulary.REQUIREMENTS`).
    mps_groups
        What :func:`pyanalyze.analysis.residency.mps_group` found, by device.

    Returns
    -------
    Options
        Empty, with the reason, where somebody's work was not traced or there is nothing to compare.

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).analysis
    >>> found = options(analysis.tables, analysis.verdicts[0])
    >>> found.why_not
    'the work of app_c (resident for 254.4 ms) was not traced'
    """
    required = tuple(require)
    device_id = verdict.device_id
    (device,) = tables.rows_of("devices", device_id)
    here = tables.of_device("tenants", device_id).sort("tenant_id")
    used = tables.rows_of("tenant_usage", device_id)
    working = {row["tenant_id"] for row in used if (row["kernels"] or 0) + (row["graph_launches"] or 0) > 0}
    labels = tables.labels(device_id)
    names = {tenant: labels[tenant] for tenant in here.filter("traced")["tenant_id"] if tenant in working}
    why_not = not_replayable(tables, verdict, device, names)
    if why_not is None and len(names) < 2:
        why_not = "only one tenant of the device is known"
    if why_not is not None:
        return Options(device_id, why_not=why_not)
    sm_count = int(device["sm_count"])
    clients = clients_of(tables, device_id, names, sm_count)
    untraced = untraced_ns_of(tables, device_id)
    replay = _Replay(tables, verdict, recorded_config(tables, verdict, list(names), sm_count), mps_groups)
    solo = _solo(replay, names, sm_count)
    why_not = _untold(replay, solo, names, sm_count)
    if why_not is not None:
        return Options(device_id, why_not=why_not, check=solo.check, clients=tuple(clients), untraced=tuple(untraced))
    candidates, unplaced, mig_instances = _candidates(replay, device, clients, sm_count)
    made, replayed, p99_ns = _forecast(replay, solo, candidates, names, sm_count, sum(untraced.values()))
    ranked = sorted(made, key=lambda option: option.antt)
    now = [option for option in made if option.mode == verdict.mode]
    current = next(
        (o for o in now if o.provision is None or (replay.recording is not None and _same(o.config, replay.recording))),
        None,
    )
    refused = tuple((option, lacks) for option in ranked if (lacks := TRAITS[option.mode].promises.lacks(required)))
    allowed = [option for option in ranked if not TRAITS[option.mode].promises.lacks(required)]
    recommended = best_of(allowed, current)
    return Options(
        device_id, tuple(ranked), current, recommended, refused, None, solo.check, tuple(clients), unplaced,
        mig_instances, untraced=tuple(untraced), replayed=replayed,
        daemon=daemon_on(tables, device_id),
        replay_errors=solo.errors,
        recorded_p99_ns=p99_ns,
        paused_solo=_paused_solo(tables, device_id, solo, names),
    )  # fmt: skip


def _untold(replay: _Replay, solo: _Solo, names: Mapping[int, str], sm_count: int) -> str | None:
    """Say why the replay of what was recorded allows no forecast; None where it does."""
    if solo.check is not None and solo.check.size > FORBIDDEN:
        return missed(solo.check, names)
    unseen = [name for tenant, name in names.items() if solo.rows[tenant, False]["unseen_waits"]]
    if unseen:
        return (
            f"{fmt.names(unseen)} may have waited for kernels without a call, such as for a flag in memory: a "
            "forecast would be no more than a lower bound"
        )
    unknown = _unknown_solo(replay, solo, names, sm_count)
    return never_solo(unknown) if unknown else None


def _paused_solo(tables: TableSet, device_id: int, solo: _Solo, names: Mapping[int, str]) -> dict[str, int]:
    """Pauses before the others began, by name, of tenants that are replayed solo without them."""
    tenants = {row["tenant_id"]: row for row in tables.rows_of("tenants", device_id)}
    used = {row["tenant_id"]: row for row in tables.rows_of("tenant_usage", device_id)}
    found = {}
    for tenant, name in names.items():
        kernels = (used[tenant]["kernels"] or 0) + (used[tenant]["graph_launches"] or 0)
        each_ns = solo.rows[tenant, False]["elapsed_ns"] / max(kernels, 1)
        pauses = pauses_solo(tables, tenants[tenant] | used[tenant], each_ns)
        if pauses is not None:
            found[name] = pauses
    return found


def never_solo(names: Sequence[str]) -> str:
    """Say why kernels that always ran beside others forbid every forecast.

    Examples
    --------
    >>> never_solo(["web"])
    'the replay cannot tell how long the kernels of web take solo: hardly any ran without kernels of another tenant'
    """
    return (
        f"the replay cannot tell how long the kernels of {fmt.names(names)} take solo: hardly any ran without kernels "
        "of another tenant"
    )


def missed(error: ReplayError, names: Mapping[int, str]) -> str:
    """Say why a replay that does not reproduce the record forbids every forecast.

    Examples
    --------
    >>> missed(ReplayError(3, -0.4), {3: "web"})
    'in the replay of the recorded configuration the elapsed time of web is 40.0 % too short (limit: 25 %)'
    """
    return (
        f"in the replay of the recorded configuration the elapsed time of {names[error.tenant_id]} is "
        f"{how_wrong(error)} (limit: {fmt.percent(FORBIDDEN, 0)})"
    )


def how_wrong(error: ReplayError) -> str:
    """Say how far a replayed time is from the recorded one.

    Examples
    --------
    >>> how_wrong(ReplayError(0, 0.093))
    '9.3 % too long'
    """
    return f"{fmt.percent(error.size)} too {'long' if error.relative > 0 else 'short'}"


def contradicted(compared: Options, measured: Mapping[int, Estimate]) -> Options:
    """Drop every forecast where that of the recorded configuration contradicts what was measured.

    Parameters
    ----------
    compared
        What the replay says.
    measured
        Elapsed slowdowns by tenant, from interference. Those that come from a replay as well say nothing, save that a
        tenant was slowed by no less.

    Examples
    --------
    >>> contradicted(Options(0), {}).why_not is None
    True
    """
    for row in () if compared.current is None else compared.current.forecasts:
        one = measured.get(row.tenant_id)
        if one is None or not (one.basis == "observed" or one.from_below):
            continue
        low, high = one.value if one.low is None else one.low, math.inf if one.high is None else one.high
        if low / (1 + FORBIDDEN) <= row.slowdown <= high * (1 + FORBIDDEN):
            continue
        was = f"was {'slowed at least' if one.from_below else 'measured to be slowed'} {fmt.ratio(one.value)}"
        wrong = (
            "one of the two is wrong"
            if one.from_below
            else "the replay is wrong, or the solo recording had other conditions"
        )
        why = (
            f"{row.name} {was}, and the replay of the recorded configuration says {fmt.ratio(row.slowdown)}: {wrong} "
            f"(limit: {fmt.percent(FORBIDDEN, 0)} apart)"
        )
        return Options(
            compared.device_id, why_not=why, check=compared.check, clients=compared.clients, untraced=compared.untraced,
            daemon=compared.daemon, contradicted="bound" if one.from_below else "measured",
        )  # fmt: skip
    return compared


def best_of(allowed: Sequence[Option], current: Option | None) -> Option | None:
    """Of those as good as the best, the present one, else the one that is least to set up; None of none."""
    least = min((option.antt for option in allowed), default=0.0)
    return min(
        (option for option in allowed if option.antt <= least * (1 + AS_GOOD)),
        key=lambda option: (option is not current, _effort(option), option.antt),
        default=None,
    )


def _effort(option: Option) -> int:
    """How much there is to set up and to maintain."""
    if option.placement is not None:
        return 3
    if option.provision is not None:
        return 2
    return 1 if option.config.together else 0


def not_replayable(
    tables: TableSet, verdict: Verdict, device: Mapping[str, object], names: Mapping[int, str]
) -> str | None:
    """Say why what was recorded cannot be replayed; None where it can."""
    if not names:
        return "no kernels were traced"
    if verdict.mode == Mode.UNDETERMINED:
        return "the sharing mode is not known, so concurrent work is not known either"
    if in_turn(verdict):
        return "software keeps the tenants apart: what they do to each other at the same time was not recorded"
    if device["sm_count"] is None:
        return "the SM count of the device is not known"
    untraced = untraced_ns_of(tables, verdict.device_id)
    whole = sum(row["resident_ns"] or 0 for row in tables.rows_of("tenant_usage", verdict.device_id))
    if untraced and sum(untraced.values()) > MAX_UNTRACED * whole:
        name, mine = max(untraced.items(), key=lambda item: item[1])
        return f"the work of {name} (resident for {fmt.duration(mine)}) was not traced"
    return None


def untraced_ns_of(tables: TableSet, device_id: int) -> dict[str, int]:
    """Return the resident time of untraced tenants, by name; without MPS servers and what is negligible."""
    held = {row["tenant_id"]: row["resident_ns"] for row in tables.rows_of("tenant_usage", device_id)}
    servers = servers_on(tables, device_id)
    least_ns = NEGLIGIBLE_RESIDENCY * sum(value or 0 for value in held.values())
    found: dict[str, int] = {}
    for row in sorted(tables.rows_of("tenants", device_id), key=itemgetter("tenant_id")):
        mine = held.get(row["tenant_id"]) or 0
        if not row["traced"] and row["tenant_id"] not in servers and mine > least_ns:
            found[row["name"]] = found.get(row["name"], 0) + int(mine)
    return found


@dataclass(frozen=True)
class _Replay:
    """What is replayed: a device as it was recorded; what is fitted to the record is fitted once."""

    tables: TableSet
    verdict: Verdict
    #: The config in which it was recorded, as far as it is known.
    recording: SharingConfig | None
    mps_groups: Mapping[int, frozenset[int]]
    fitted: Fitted = field(default_factory=Fitted)

    def of(self, configs: Sequence[SharingConfig]) -> pl.DataFrame:
        return forecast(
            self.tables,
            self.verdict.device_id,
            configs,
            recorded=self.recording,
            visible_sms=visible_sms(self.tables, self.verdict.device_id),
            time_sliced=is_time_sliced(self.verdict),
            mps_groups=self.mps_groups,
            fitted=self.fitted,
        )


def _candidates(
    replay: _Replay, device: Mapping[str, object], clients: Sequence[mps.Client], sm_count: int
) -> tuple[list[Option], Mapping[str, str], int | None]:
    """Options without forecasts, tenants that MIG cannot hold, and its instances where there are far more tenants."""
    tables, verdict, recording = replay.tables, replay.verdict, replay.recording
    traits = TRAITS[verdict.mode]
    inside = traits.mig_instance
    tenants = [client.tenant_id for client in clients]
    slicing = slicing_of(tables, verdict.device_id) if traits.time_sliced else DEFAULT_SLICING
    sliced = time_slicing(sm_count, tenants, *slicing)
    found = [Option("time-slicing", Mode.MIG_TIME_SLICING if inside else Mode.TIME_SLICING, sliced, ())]
    capability = device["compute_major"], device["compute_minor"]
    major = int(str(capability[0])) if capability[0] is not None else None
    board, profile = (None if device[key] is None else str(device[key]) for key in ("name", "mig_profile"))
    most = mps_clients(MOST_COPIES, board, profile)
    if major is not None and major >= 7 and len(tenants) <= most:
        whole = SharingConfig("mps", (sm_count,), tuple(Assignment(t) for t in tenants))
        found.append(Option("MPS", Mode.MIG_MPS if inside else Mode.MPS, whole, ()))
        for provision in mps.provisions(clients, sm_count, major):
            if all(sms >= sm_count for sms in provision.sms.values()):
                continue  # no cap at all
            assignments = tuple(Assignment(t, sms=provision.sms[t]) for t in tenants)
            mode = Mode.MIG_MPS if inside else Mode.MPS_PARTITIONED
            name = f"MPS, {provision.strategy} caps"
            found.append(Option(name, mode, SharingConfig(name, (sm_count,), assignments), (), provision))
    if traits.mps and traits.capped and recording is not None and not any(_same(o.config, recording) for o in found):
        found.append(Option("MPS, caps as recorded", verdict.mode, recording, ()))
    if traits.mps and traits.time_sliced and recording is not None:
        found.append(Option("MPS beside another process", verdict.mode, recording, ()))
    family = None if inside else mig_.of_device(device)
    if family is None:
        return found, {}, None
    if len(clients) > MOST_COPIES:
        # An instance has a compute slice at least. Each tenant would be replayed on every size of instance.
        return found, {}, family.compute_slices
    option = _mig(replay, family, clients, sm_count)
    unplaced = {} if option.placement is None else option.placement.unplaced
    return (found if unplaced else [*found, option]), unplaced, None


def _same(config: SharingConfig, recording: SharingConfig) -> bool:
    """Whether tenants have the SMs that they had while they were recorded."""
    return {a.tenant_id: a.sms for a in config.assignments} == {a.tenant_id: a.sms for a in recording.assignments}


def is_time_sliced(verdict: Verdict) -> bool:
    """Whether tenants alternate on the device."""
    return bool(TRAITS[verdict.mode].time_sliced)


def _mig(replay: _Replay, family: mig_.Family, clients: Sequence[mps.Client], sm_count: int) -> Option:
    """Instances for as many tenants as fit; cost of an instance: its tenant replayed on so many SMs."""
    import polars as pl

    sizes = sorted({profile.sm_count for profile in family.profiles if profile.sm_count})
    configs = [alone(sm_count, client.tenant_id) for client in clients]
    configs += [
        SharingConfig(f"{client.tenant_id} on {sms}", (sms,), (Assignment(client.tenant_id),))
        for client in clients
        for sms in sizes
    ]
    took = dict(replay.of(configs).select(pl.col("sharing_config").cast(pl.String), "elapsed_ns").iter_rows())

    def cost_of(client: mps.Client) -> mig_.Need:
        whole = max(took[f"alone {client.tenant_id}"], 1)
        by_sms = {sms: took[f"{client.tenant_id} on {sms}"] / whole for sms in sizes}
        return mig_.Need(client.name, client.memory_bytes, lambda sms: round(by_sms[sms], 3))

    placement = mig_.place(family, [cost_of(client) for client in clients])
    order = sorted(placement.placed.items(), key=lambda item: item[1].start)
    index = {name: n for n, (name, _) in enumerate(order)}
    assignments = tuple(Assignment(client.tenant_id, index[client.name]) for client in clients if client.name in index)
    instances = tuple(one.profile.sm_count or 0 for _, one in order)
    return Option("MIG", Mode.MIG, SharingConfig("mig", instances, assignments), (), None, placement)


@dataclass(frozen=True)
class _Variant:
    """Assumptions of one replay, and whether it goes into the estimate or only into the bounds."""

    name: str
    contention: float
    block_imbalance: float
    seed: int
    counts: bool
    linger_ns: int | None = None
    anchored: bool = False


def measured_contention(measured: float) -> tuple[float, float, float]:
    """Return the least, the likely and the largest contention elsewhere, where it was measured as recorded.

    Examples
    --------
    >>> measured_contention(0.2)
    (0.1, 0.2, 0.34)
    >>> measured_contention(-0.2)
    (-0.26, -0.2, -0.02)
    """
    least, _, most = sorted(part * measured for part in MEASURED_CONTENTION)
    return round(max(least, -MOST_COMPLEMENTARY), 6), measured, round(most + MORE_CONTENTION, 6)


def as_checked(recording: SharingConfig, measured: float | None) -> list[SharingConfig]:
    """Return the recorded config as its replay is compared with the record: the nearer counts.

    Nothing says whether the blocks of its kernels took equally long. Where tenants are resident together that decides
    whether their kernels mix. Nor does anything say where in its slice a tenant is that others begin to wait for.

    Examples
    --------
    >>> [config.block_imbalance for config in as_checked(side_by_side(108, [0, 1]), 0.1)]
    [0.0, 0.35]
    >>> [config.jitter for config in as_checked(time_slicing(108, [0, 1]), None)]
    [0.0, 0.04]
    """
    uneven = [(BLOCKS.even, 0.0), (BLOCKS.uneven, 0.0)]
    each = uneven if recording.together else [(BLOCKS.even, 0.0), (BLOCKS.even, JITTER)]
    return [
        recording.varied(
            f"{CHECK} {spread} {jitter}", contention=measured or 0.0, block_imbalance=spread, jitter=jitter, seed=6
        )
        for spread, jitter in each
    ]


def replay_error(rows: pl.DataFrame, tenants: Iterable[int], column: str) -> ReplayError | None:
    """Return how far the replay of the recorded config is from the record, for the tenant for which it is farthest.

    Parameters
    ----------
    rows
        The `forecast` table, with the configs of :func:`as_checked`.
    tenants, column
        Tenants, and the column that is compared.

    Returns
    -------
    ReplayError or None
        Of the config that is nearest; None where it is not known for all tenants.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.DataFrame(
    ...     {"sharing_config": ["recorded", "check 0.0"], "tenant_id": [0, 0], "elapsed_ns": [100, 110]}
    ... )
    >>> round(replay_error(rows, [0], "elapsed_ns").relative, 3)
    0.1
    """
    return max(replay_errors(rows, tenants, column), key=lambda error: error.size, default=None)


def replay_errors(rows: pl.DataFrame, tenants: Iterable[int], column: str) -> tuple[ReplayError, ...]:
    """Return the same for each tenant, of the config that is nearest; empty where it is not known for all tenants."""
    found: dict[str, dict[int, int]] = {}
    for row in rows.iter_rows(named=True):
        if row[column] is not None:
            found.setdefault(str(row["sharing_config"]), {})[row["tenant_id"]] = row[column]
    seen = found.get("recorded", {})
    wanted = tuple(tenants)
    errors = [
        tuple(ReplayError(t, replayed[t] / seen[t] - 1, seen[t]) for t in wanted)
        for name, replayed in found.items()
        if name.startswith(CHECK) and all(seen.get(t) and t in replayed for t in wanted)
    ]
    return min(errors, key=lambda each: max(error.size for error in each), default=())


def _variants(option: Option, contention: Contention, *, switches: bool, pauses: bool) -> list[_Variant]:
    middle = contention.middle if option.config.together else 0.0
    found = [_Variant("anchored", middle, 0.0, 5, counts=False, anchored=True)] if pauses else []
    if option.config.together:
        return [
            *found,
            _Variant("1", middle, BLOCKS.even, 1, counts=True),
            _Variant("2", middle, BLOCKS.uneven, 2, counts=True),
            _Variant("low", contention.low, BLOCKS.strongly, 3, counts=False),
            _Variant(HIGH, contention.high, 0.0, 4, counts=False),
        ]
    if option.placement is not None:
        both = enumerate((BLOCKS.even, BLOCKS.uneven), 1)
        found += [_Variant(str(n), 0.0, of, n, counts=True) for n, of in both]
        return [*found, _Variant(HIGH, 0.0, 0.0, 3, counts=False)]
    found += [_Variant("1", 0.0, 0.0, 1, counts=True), _Variant("2", 0.0, 0.0, 2, counts=True)]
    if not switches:
        found += [_Variant(f"linger {ns}", 0.0, 0.0, 3, counts=False, linger_ns=ns) for ns in LINGERING_NS]
    return found


@dataclass(frozen=True)
class _Solo:
    """Every tenant replayed solo, and how far the replay of the recorded config is from the record.

    Attributes
    ----------
    observed
        Rows of the `forecast` table that were recorded, by tenant.
    rows
        Rows of each tenant solo, by tenant and reading of its host's pauses.
    measured
        Contention as it was recorded; None: the record does not show it.
    errors
        Errors of the elapsed times of the tenants; empty: the recorded config is not known.
    sampling
        Errors of replaying windows, where those stand for all.
    """

    observed: Mapping[int, Mapping[str, Any]]
    rows: Mapping[tuple[int, bool], Mapping[str, Any]]
    measured: float | None
    errors: tuple[ReplayError, ...]
    sampling: tuple[float, ...]

    @property
    def check(self) -> ReplayError | None:
        """The largest of these errors; None: there are none."""
        return max(self.errors, key=lambda error: error.size, default=None)


def _solo(replay: _Replay, names: Mapping[int, str], sm_count: int) -> _Solo:
    """Replay every tenant solo, and all of them as recorded: where that misses the record nothing else is asked."""
    recording = replay.recording
    solo = {which: one for tenant in names for which, one in both_readings(alone(sm_count, tenant), tenant).items()}
    first = replay.of([*solo.values(), *([recording] if recording else [])])
    contention = first["contention"].drop_nulls().to_list()
    measured = contention[0] if contention else None
    by_config = {str(row["sharing_config"]): row for row in first.iter_rows(named=True)}
    errors: tuple[ReplayError, ...] = ()
    sampling = first["sampling_error"].drop_nulls().to_list()
    if recording is not None:
        checked = replay.of(as_checked(recording, measured))
        errors = replay_errors(checked, names, "elapsed_ns")
        sampling += checked["sampling_error"].drop_nulls().to_list()
    return _Solo(
        {row["tenant_id"]: row for row in first.iter_rows(named=True) if row["basis"] == "observed"},
        {which: by_config[one.name] for which, one in solo.items()},
        measured,
        errors,
        tuple(sampling),
    )


def _unknown_solo(replay: _Replay, solo: _Solo, names: Mapping[int, str], sm_count: int) -> list[str]:
    """Name tenants whose time solo is not in the record: hardly any of their kernels ran without those of others.

    What a kernel takes solo is fitted to what it took beside others. If they need nothing of what it needs, that is all
    of its time; if each kernel uses the whole throughput of the SMs it is on, it is its part of them. Forecasts are
    over the time solo: where both readings differ by more than :data:`FORBIDDEN` there are none. Of three clients on an
    H200 one took 0.76 ms a unit solo; its readings are 1.9 and 1.2 ms (fixtures/hardware/h200/mps-A-B-C).
    """
    recording = replay.recording
    if recording is None or not recording.together or solo.measured is not None:
        return []

    def whole(config: SharingConfig) -> SharingConfig:
        each = (replace(one, sm_throughput=one.sm_throughput or 1.0) for one in config.assignments)
        return replace(config, assignments=tuple(each))

    configs = [both_readings(alone(sm_count, tenant), tenant)[tenant, False] for tenant in names]
    rows = replace(replay, recording=whole(recording), fitted=Fitted()).of([whole(config) for config in configs])
    least_ns = {row["tenant_id"]: row["elapsed_ns"] for row in rows.iter_rows(named=True) if row["basis"] == "modelled"}
    most_ns = {tenant: solo.rows[tenant, False]["elapsed_ns"] for tenant in names}
    return [name for tenant, name in names.items() if most_ns[tenant] > (1 + FORBIDDEN) * least_ns[tenant]]


def _forecast(
    replay: _Replay,
    solo: _Solo,
    candidates: Sequence[Option],
    names: Mapping[int, str],
    sm_count: int,
    untraced_ns: int,
) -> tuple[list[Option], float, dict[int, int]]:
    """Options with forecasts, the part replayed, and each recorded p99.

    What untraced tenants would do elsewhere is not known: they delay a tenant by nothing, or by all of `untraced_ns`.
    """
    tables, recording, measured = replay.tables, replay.recording, solo.measured
    device_id = replay.verdict.device_id
    contention = Contention(*CONTENTION)
    used: Mapping[int, float] = {}
    if measured is not None:
        contention = Contention(*measured_contention(measured), basis="inferred")
    elif recording is not None:
        wanted = demands.bandwidth(tables, device_id, list(names), time_sliced=not recording.together)
        asked = demands.contention(wanted, list(names))
        if asked is not None:
            # Bandwidth is known then; caches and issue slots are not.
            least = MEASURED_CONTENTION[0] * asked[0] if asked[0] > 0 else CONTENTION[0]
            contention = Contention(least, asked[0] + CONTENTION[1], asked[1] + CONTENTION[2], basis="sampled")
        # Of their SMs' throughput the sum counts: where it is not known, or above 1, side by side may gain nothing.
        used = demands.sm_throughput(tables, device_id, list(names), time_sliced=not recording.together)
        room = asked is not None and used.keys() >= names.keys() and sum(used.values()) <= 1
        contention = replace(contention, no_gain=not recording.together and not room)
    switches = _seen_slicing(tables, device_id) is not None

    def at_most(config: SharingConfig) -> SharingConfig:
        """Kernels of which it is not known take all that the SMs give that they are on, and pile up on some of them."""
        if config.together and (measured is not None or (recording is not None and _same(config, recording))):
            return config  # As recorded they cost each other what they did.
        each = (replace(one, sm_throughput=used.get(one.tenant_id, 1.0)) for one in config.assignments)
        # On an instance of its own a tenant has fewer SMs for the same blocks, and nobody beside them.
        return replace(config, assignments=tuple(each), crowding=1.0 if config.together else config.crowding)

    solo_ns = {which: max(row["elapsed_ns"], 1) for which, row in solo.rows.items()}
    pauses = any(solo_ns[tenant, True] > (1 + NOTABLE_PAUSES) * solo_ns[tenant, False] for tenant in names)
    configs = []
    for option in candidates:
        for v in _variants(option, contention, switches=switches, pauses=pauses):
            name = f"{option.name} {v.name}"
            varied = option.config.varied(
                name, contention=v.contention, block_imbalance=v.block_imbalance, jitter=JITTER, seed=v.seed
            )
            varied = replace(varied, linger_ns=v.linger_ns, anchored=v.anchored)
            configs.append(at_most(varied) if v.name == HIGH else varied)
    draining = recording is not None and not recording.together and _slices_vary(tables, device_id)
    rows = replay.of(configs)
    took = {(str(row["sharing_config"]), row["tenant_id"]): row for row in rows.iter_rows(named=True)}
    from_calls = rows["latency_ns"].null_count() == 0
    sampling = (*solo.sampling, *rows["sampling_error"].drop_nulls())
    recorded = sum(row["operations"] for row in solo.observed.values())
    replayed = sum(solo.rows[tenant, False]["operations"] for tenant in names) / recorded if sampling else 1.0
    made = []
    for option in candidates:
        kind = "instances" if option.placement else "together" if option.config.together else "time-sliced"
        margin = MARGIN[kind] if from_calls else MARGIN_WITHOUT_CALLS
        if option.provision is not None and sum(option.provision.sms.values()) > sm_count:
            margin += MARGIN_OVERLAP
        if recording is not None and recording.together and not option.config.together:
            margin += MARGIN_FITTED
        if draining:
            margin += MARGIN_DRAINING
        # What the replay misses of the known mode it misses of the others too.
        margin += (solo.check.size if solo.check else 0.0) + max(sampling, default=0.0)
        variants = _variants(option, contention, switches=switches, pauses=pauses)
        forecasts = []
        for tenant, name in names.items():
            base = solo_ns[tenant, False]
            ran = [took[f"{option.name} {v.name}", tenant] for v in variants]
            counted = [row for row, v in zip(ran, variants, strict=True) if v.counts]
            slower = _memory_part(option, tenant, measured or 0.0, len(names))
            elapsed = [row["elapsed_ns"] / solo_ns[tenant, v.anchored] for row, v in zip(ran, variants, strict=True)]
            solo_row = solo.rows[tenant, False]
            latency = None
            if from_calls:
                latency = statistics.fmean(row["latency_ns"] for row in counted) / max(solo_row["latency_ns"], 1)
            slowdown = statistics.fmean(row["elapsed_ns"] for row in counted) / base * slower[1]
            forecasts.append(
                Forecast(
                    tenant_id=tenant,
                    name=name,
                    slowdown=slowdown,
                    # Others on the device, or a part of it, make nobody faster than solo on all of it.
                    low=max(min(elapsed) * slower[0] * (1 - margin), min(slowdown, 1 - NOISE_FLOOR)),
                    high=max(elapsed) * slower[2] * (1 + margin) + untraced_ns / base,
                    latency=latency,
                    p99_ns=_p99(counted) if from_calls else None,
                    waits=_waits(counted, solo_row["latency_ns"]) if from_calls else None,
                    elapsed_ns=round(statistics.fmean(row["elapsed_ns"] for row in counted)),
                    goes_on=solo_row["goes_on"],
                )
            )
        beside = contention if option.config.together else None
        made.append(replace(option, forecasts=tuple(forecasts), margin=margin, contention=beside))
    if contention.no_gain:
        made = [_without_gain(option, made, untraced_ns) for option in made]
    p99_ns = {tenant: found for tenant in names if (found := solo.observed[tenant]["latency_p99_ns"]) is not None}
    return made, replayed, p99_ns


def _without_gain(option: Option, options: Sequence[Option], untraced_ns: int) -> Option:
    """An option in which tenants run side by side, with upper bounds no lower than for time-slicing.

    A time-sliced recording does not show what kernels take of SMs and memory beside each other: two copies of a program
    whose kernels fill the pipelines of their SMs took 1.85 times as long under MPS as solo, and 2.31 times time-sliced
    (fixtures/hardware/h100/units.csv, replicas-mps-2-C).
    """
    sliced = next((one for one in options if one.placement is None and not one.config.together), None)
    if sliced is None or option.contention is None:
        return option
    at_least = {
        # What untraced tenants may add is over the time solo.
        one.tenant_id: one.slowdown * (1 + option.margin + untraced_ns / max(one.elapsed_ns, 1))
        for one in sliced.forecasts
    }
    forecasts = tuple(
        one.model_copy(update={"high": max(one.high, at_least[one.tenant_id])}) for one in option.forecasts
    )
    return replace(option, forecasts=forecasts)


def _p99(forecasts: Sequence[Mapping[str, Any]]) -> int | None:
    """The largest of forecast 99th percentiles; None: too few operations to speak of percentiles."""
    if min(row["operations"] for row in forecasts) < ENOUGH:
        return None
    return int(max(row["latency_p99_ns"] for row in forecasts))


def _waits(forecasts: Sequence[Mapping[str, Any]], solo_ns: int) -> ForecastWaits | None:
    """What the added kernel latency is spent on; None: no more is added than the model may miss."""
    mean = {
        column: statistics.fmean(row[column] for row in forecasts)
        for column in ("latency_ns", "queue_other_tenant_ns", "not_resident_ns")
    }
    queue_ns, absent_ns = mean["queue_other_tenant_ns"], mean["not_resident_ns"]
    added_ns = mean["latency_ns"] - solo_ns
    if added_ns <= NOISE_FLOOR * solo_ns:
        return None
    # A host that is held up launches later, so that its kernels wait less behind each other than solo.
    whole_ns = max(added_ns, queue_ns + absent_ns)
    return ForecastWaits(queue_other=queue_ns / whole_ns, not_resident=absent_ns / whole_ns)


def _memory_part(option: Option, tenant: int, contention: float, tenants: int) -> tuple[float, float, float]:
    """By how much an instance's smaller part of the bandwidth slows a tenant: none, likely, most.

    Nothing in a trace says what bandwidth a kernel wants. Where contention was measured with all tenants together
    it is taken for bandwidth: they wanted 1 + contention of it in equal parts, each has its instance's part now.
    """
    if option.placement is None or contention <= 0:
        return (1.0, 1.0, 1.0)
    order = sorted(option.placement.placed.values(), key=lambda one: one.start)
    instance = next(assignment.instance for assignment in option.config.assignments if assignment.tenant_id == tenant)
    part = order[instance].profile.memory_slices / option.placement.family.memory_slices
    wanted = (1 + contention) / tenants
    return (1.0, max(1.0, wanted / part), max(1.0, (1 + contention) / part))


def recorded_config(tables: TableSet, verdict: Verdict, tenants: Sequence[int], sm_count: int) -> SharingConfig | None:
    """The config that the verdict names, as far as it is known.

    Parameters
    ----------
    tables, verdict
        The tables, and the verdict of the device.
    tenants
        Ids of the tenants that ran.
    sm_count
        SMs of the device.

    Returns
    -------
    SharingConfig or None
        None for modes that cannot be replayed (vGPU, limiters, MPS with caps that the capture does not show).

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> recorded_config(session.tables, session.classify()[0], [0, 1], 108).together
    False
    """
    traits = TRAITS[verdict.mode]
    if traits.time_sliced and traits.mps:
        return _sliced_groups(tables, verdict.device_id, tenants, sm_count)
    # Virtual machines that are time-sliced are not recorded.
    if traits.time_sliced and not traits.vgpu:
        return time_slicing(sm_count, tenants, *slicing_of(tables, verdict.device_id))
    if traits.same_sms:
        return side_by_side(sm_count, tenants)
    if traits.mps and traits.capped:
        placed = placement_policy(tables, verdict).sms
        caps = {t: sms for t in tenants if isinstance(sms := placed.get((t, None)), int)}
        return side_by_side(sm_count, tenants, caps) if caps else None
    # Of SMs that a green context leaves out nothing is known here.
    if traits.one_process and not traits.capped and len(tenants) == 1:
        return alone(sm_count, tenants[0])
    return None


def _sliced_groups(tables: TableSet, device_id: int, tenants: Sequence[int], sm_count: int) -> SharingConfig | None:
    """Clients of one MPS server together, each other tenant in its own turn; None where no client is known as one."""
    import polars as pl

    served = dict(
        tables.tenants.filter(pl.col("device_id") == device_id)
        .select("tenant_id", "served_by")
        .drop_nulls()
        .iter_rows()
    )
    holders = [served.get(tenant, tenant) for tenant in tenants]
    if not any(tenant in served for tenant in tenants):
        return None
    groups = {holder: group for group, holder in enumerate(dict.fromkeys(holders))}
    assignments = tuple(Assignment(t, group=groups[h]) for t, h in zip(tenants, holders, strict=True))
    return SharingConfig("mps and another process", (sm_count,), assignments, *slicing_of(tables, device_id))
