"""How many copies of a recorded tenant fit on the device, and shared in which way?  From the replay of its launches.

Every number of copies is replayed under time-slicing, MPS (without caps, with NVIDIA's provisioning strategies, with
the least caps that still hold all blocks), MIG profiles with their placement, and MPS inside MIG instances. Copies run
the recorded program, begin apart and vary each in its own way. What limits them are, by name: SMs with warps,
registers, shared memory and block slots; the copy engines; the launch path of each copy's host; DRAM bandwidth and the
throughput of SMs (issue slots, or the pipe that is used most), where Nsight Compute counted them kernel by kernel or
GPU metrics show what each tenant takes of them solo; and the L2 cache, where contention was recorded. Where it is not
known what kernels take of the SMs, the intervals reach from nothing to all of it. PCIe and clocks are in the intervals
only.

The recorded configuration is replayed first. What that misses is added to every interval, and above a limit nothing is
forecast.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.advice import counted, mps
from pyanalyze.analysis.advice import demands as sampled
from pyanalyze.analysis.advice import mig as mig_
from pyanalyze.analysis.advice.counted import ON_SMS
from pyanalyze.analysis.advice.fitted import BLOCKS, COPIES
from pyanalyze.analysis.advice.forecast import Assignment, SharingConfig, alone, both_readings, forecast
from pyanalyze.analysis.advice.options import (
    AS_GOOD,
    CONTENTION,
    DEFAULT_SLICING,
    FORBIDDEN,
    JITTER,
    LINGERING_NS,
    REPRODUCED,
    ReplayError,
    as_checked,
    clients_of,
    is_time_sliced,
    measured_contention,
    memory_peaks,
    missed,
    not_replayable,
    observed_slicing,
    recorded_config,
    replay_error,
    slicing_of,
)
from pyanalyze.analysis.explain import NO_RESIDENCY, unit_tables
from pyanalyze.analysis.hardware import PAUSE_NS, mps_sms, visible_sms
from pyanalyze.analysis.residency import NO_GROUPS
from pyanalyze.errors import UsageError
from pyanalyze.inputs.ncu import Resource
from pyanalyze.nsys_tool import recording
from pyanalyze.results.model import Missing
from pyanalyze.results.replicas import (
    Copies,
    CopyDoubt,
    Demand,
    Estimate,
    ForecastUnit,
    IdleCopy,
    Knee,
    RecordedLatency,
    ReplicaAdvice,
    ReplicaOption,
    SelfCheck,
)
from pyanalyze.results.time_split import HostKind
from pyanalyze.tables.frames import to_frame
from pyanalyze.tables.selections import covered_ns, work_of
from pyanalyze.vocabulary import (
    ENOUGH_FOR_TAIL,
    MEMORY_RESERVE,
    MOST_COPIES,
    TRAITS,
    CopyCondition,
    Mode,
    UnitSource,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.inputs.ncu import CountedKernel
    from pyanalyze.results.replicas import LatencyOf, Objective, Told
    from pyanalyze.tables.tableset import TableSet

__all__ = ["Recorded", "advise_copies", "expanded", "instances_of", "representative_window"]

#: Operations of all tenants that are replayed once for each configuration and copy.
MOST_OPERATIONS: Final = 2_500
#: Operations around those, from which it is known what kernels take solo: tenants seldom begin and end together.
KNOWN_OPERATIONS: Final = 50_000
#: Block times that differ by no more than this count as equal, but end at common times: kernels of several copies would
#: otherwise fall out of step until each block is an event of its own.
EVEN = 0.01
#: How uneven blocks are: what is assumed where the recorded configuration does not show it.
SPREADS: Final = (BLOCKS.even, BLOCKS.uneven)
#: Errors of the recorded configuration that differ by more than this show how uneven blocks are.
TOLD_APART = 0.05
#: Copies begin apart by up to this part of what was recorded, and this time: nobody starts them at one instant.
APART = 0.02
MOST_APART_NS = 20_000_000
#: L2 hits for each miss of a tenant solo where none were counted: low, middle, high (hit rates of 50, 67 and 86 %).
HITS_OVER_MISSES = (1.0, 2.0, 6.0)
#: Misses are no less than this part: a kernel that never missed would have no DRAM traffic.
LEAST_MISS = 0.01
#: Part of the data that no longer fits, at most: more than ten times of L2 says nothing.
MOST_MISSED = 0.9
#: Of configurations as good as the best, those may be recommended that have at least this part of the surest one's
#: lower bound.
SURE = 0.6
#: A copy that adds less throughput than this does not pay.
KNEE = 0.05
#: What samples say of SMs: of those that hold blocks.
ACTIVE_SMS = "throughput of active SMs"
#: Part of an SM's throughput that kernels take of which nothing is known while it holds all of their blocks that fit.
UNKNOWN_ON_SMS = 0.5
#: From this part of its time in pauses on, a host may wait for what comes from outside.
NOTABLE_PAUSES = 0.05
#: Standard deviation of pauses over their mean from which they are irregular: 1 between independent requests.
IRREGULAR = 0.7

#: What records what copies need.
_WITH_METRICS = recording("--gpu-metrics-devices=all", switches=False)
_WITH_MEMORY = recording("--cuda-memory-usage=true", switches=False)
#: What was recorded cannot be replayed.
NOT_CHECKED = SelfCheck(possible=False, elapsed_error=None, p99_error=None, contention=None, outcome="not-possible")


@dataclass(frozen=True)
class Recorded:
    """A demand of which a capture is known: one device.

    Attributes
    ----------
    tables, verdict
        The tables, and the verdict of the device. What the tables say is to be replayed is, else all of them: see
        :meth:`pyanalyze.analysis.analysis.Analysis.representative`.
    counted
        Its kernels as Nsight Compute counted them; empty: they were not counted.
    mps_groups
        What :func:`pyanalyze.analysis.residency.mps_group` found, by device.
    """

    tables: TableSet
    verdict: Verdict
    counted: Sequence[CountedKernel] = ()
    mps_groups: Mapping[int, frozenset[int]] = field(default_factory=lambda: NO_GROUPS)


@dataclass(frozen=True)
class _Cache:
    """An assumption about L2: what a tenant keeps of it (a part), and hits for each miss while all of that is there."""

    kept: float
    hits_over_misses: float


#: Nothing is lost to it.
NO_CACHE = _Cache(0.0, 0.0)


@dataclass(frozen=True)
class _Candidate:
    """A configuration before it is forecast."""

    name: str
    mode: Mode
    config: SharingConfig
    kind: str
    counts: Mapping[int, int]
    percentages: tuple[int, ...] = ()
    placed: tuple[mig_.Placed, ...] = ()
    memory: tuple[int | None, ...] = ()
    current: bool = False

    @property
    def is_measured(self) -> bool:
        """It was recorded on all SMs; under caps nothing shows how long a tenant takes solo on all of them."""
        return self.current and not self.percentages


@dataclass(frozen=True)
class _Variant:
    """Assumptions of one replay.

    Attributes
    ----------
    contention, block_imbalance, seed, linger_ns, crowding, anchored
        As a config has them.
    counts
        It is one of those whose mean is the forecast; others widen the interval only.
    cache
        What happens to L2.
    larger
        This tenant keeps twice as much of L2 as each other one, together as much as without that; None: all equal.
    unknown_on_sms
        Part of the throughput of SMs with their blocks that tenants take of whom it is not known.
    assumed_on_sms
        The same of SMs that hold as many of their blocks as fit: with fewer they take less.
    parted
        Caps that add up to more than all SMs are cut to all of them.
    """

    contention: float
    block_imbalance: float
    seed: int
    counts: bool = True
    cache: _Cache = NO_CACHE
    larger: int | None = None
    linger_ns: int | None = None
    crowding: float = 0.0
    unknown_on_sms: float = 0.0
    assumed_on_sms: float = 0.0
    anchored: bool = False
    parted: bool = False


@dataclass(frozen=True)
class _Scene:
    """What all forecasts of a device need."""

    tables: TableSet
    verdict: Verdict
    names: Mapping[int, str]
    sm_count: int
    capability: int | None
    family: mig_.Family | None
    memory_bytes: int | None
    memory: Mapping[int, int]
    demands: Mapping[int, float]
    on_sms: Mapping[int, float]
    counted: counted.Counted
    by_kernel: Mapping[str, tuple[float | None, float | None]]
    caches: tuple[_Cache, _Cache, _Cache] | None
    recording: SharingConfig | None
    mps_groups: Mapping[int, frozenset[int]]
    clients: Sequence[mps.Client]
    units: Mapping[int, list[tuple[int, int]]]
    unit_names: Sequence[ForecastUnit]
    ranks: frozenset[int]
    slicing: tuple[int, int]
    switches: bool
    never_waited: frozenset[int]
    #: tenants whose hosts pause; true where their pauses are irregular
    paused: Mapping[int, bool]
    #: how uneven blocks are, as a config has it: assumptions that count
    spreads: tuple[float, float] = SPREADS

    def run(self, configs: Sequence[SharingConfig], threads: int) -> pl.DataFrame:
        return forecast(
            self.tables,
            self.verdict.device_id,
            configs,
            recorded=self.recording,
            units=self.units,
            visible_sms=visible_sms(self.tables, self.verdict.device_id),
            time_sliced=is_time_sliced(self.verdict),
            mps_groups=self.mps_groups,
            kernel_demands=self.by_kernel,
            threads=threads,
        )

    def placed(
        self, tenant: int, copy: int, *, instance: int = 0, group: int = 0, sms: int | None = None
    ) -> Assignment:
        bandwidth, on_sms = self.demands.get(tenant, 0.0), self.on_sms.get(tenant, 0.0)
        return Assignment(tenant, instance, group, sms, copy, 0, bandwidth, sm_throughput=on_sms)

    @property
    def unknown_on_sms(self) -> set[int]:
        """Tenants of which neither samples nor counted kernels say what they take of the SMs."""
        counted = {tenant for tenant, used in self.counted.used.items() if ON_SMS & set(used)}
        return set(self.names) - set(self.on_sms) - counted

    def solo(self, tenant: int) -> SharingConfig:
        """One copy with the whole device."""
        return replace(alone(self.sm_count, tenant), assignments=(self.placed(tenant, 0),))


def advise_copies(
    recorded: Recorded,
    counts: Sequence[Mapping[str, int]],
    *,
    objective: Objective = "throughput",
    slo_p99_ns: int | None = None,
    threads: int = 0,
) -> ReplicaAdvice:
    """Forecast copies of recorded tenants under every sharing configuration.

    Parameters
    ----------
    recorded
        The capture.
    counts
        What to compare: copies by name of the tenant; a tenant that is left out does not run.
    objective
        What the recommended one is best in.
    slo_p99_ns
        99th percentile of latency that every copy must keep, ns; None: none is asked for.
    threads
        For the replays; 0: all processors.

    Returns
    -------
    ReplicaAdvice
        Without options, and with the reason, where the capture allows no forecast.

    Raises
    ------
    pyanalyze.errors.UsageError
        For a tenant that is not there, or more copies than a server takes.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> found = advise_copies(Recorded(session.tables, session.classify()[0]), [{"app_a": 1}])
    >>> found.missing[0].why
    'the work of app_c (resident for 254.4 ms) was not traced'
    """
    tables, verdict = recorded.tables, recorded.verdict
    scene = _scene(recorded)
    operations, window_ns = _size(tables, verdict.device_id)
    if isinstance(scene, str):
        return _advice(verdict, objective, NOT_CHECKED, operations, window_ns, scene)
    by_name = {name: tenant for tenant, name in scene.names.items()}
    asked: list[dict[int, int]] = []
    for one in counts:
        unknown = sorted(set(one) - set(by_name))
        if unknown:
            raise UsageError(f"no tenant {', '.join(unknown)} with traced work; there are {', '.join(sorted(by_name))}")
        whole = sum(one.values())
        if not 1 <= whole <= MOST_COPIES or any(n < 0 for n in one.values()):
            raise UsageError(f"{whole} copies: from 1 to {MOST_COPIES} can be forecast")
        asked.append({by_name[name]: n for name, n in one.items() if n})
    check, error, contention, spreads = _checked(scene, threads)
    scene = replace(scene, spreads=spreads)
    if error is not None and error.size > FORBIDDEN:
        return _advice(verdict, objective, check, operations, window_ns, missed(error, scene.names))
    demands = list(_demands(scene))
    unmeasured = set(scene.names) - set(scene.demands)
    if scene.recording is not None and scene.recording.together and check.contention is not None:
        scene, contention = _taken_for_memory(scene, check.contention, contention)
    candidates = [candidate for one in asked for candidate in _candidates(scene, one, threads)]
    options, latency_of, unseen = _forecast(scene, candidates, contention, check, slo_p99_ns, threads)
    options = _ranked(options, objective)
    missing = [
        Missing(
            what=f"{what} of {', '.join(scene.names[tenant] for tenant in sorted(who))}",
            why="neither counted kernels nor enough GPU metrics in which it ran solo: the intervals allow for it",
            how=f"{_WITH_METRICS}; or --ncu FILE with `ncu --csv` of the same program",
        )
        for what, who in (("memory bandwidth", unmeasured), ("throughput of SMs", scene.unknown_on_sms))
        if who
    ]
    if any(option.memory_fits == "cannot-tell" for option in options):
        missing.append(
            Missing(
                what="memory of each tenant",
                why="neither allocations nor samples show it: whether the copies fit is not known",
                how=f"{_WITH_MEMORY}; or --samples with nvidia-smi --query-compute-apps",
            )
        )
    return ReplicaAdvice(
        device_id=verdict.device_id,
        objective=objective,
        slo_p99_ns=slo_p99_ns,
        latency_of=latency_of,
        demands=demands,
        options=options,
        knee=_knee(options, asked),
        certain=_certain(options, objective),
        check=check,
        checked=COPIES.checked,
        operations=operations,
        window_ns=window_ns,
        idle=_idle(scene, window_ns),
        units=list(scene.unit_names) if latency_of == "unit" else [],
        conditions=[
            CopyDoubt(tenant_id=tenant, name=scene.names[tenant], condition=condition)
            for condition, who in ((CopyCondition.MPI_RANK, scene.ranks), (CopyCondition.UNSEEN_WAITS, unseen))
            for tenant in sorted(who)
        ],
        missing=missing,
    )


def _taken_for_memory(
    scene: _Scene, measured: float, contention: tuple[float, float, float]
) -> tuple[_Scene, tuple[float, float, float]]:
    """Take contention that was recorded for DRAM bandwidth, and what is beyond all of that for L2.

    Together they wanted so much more than there is. Tenants of unknown demand share what the known ones leave of that,
    nobody more than the most that is known, or all of the bandwidth: the rest is traffic that L2 kept from DRAM solo,
    and no longer does.
    """
    known = sum(scene.demands.values())
    # With demands that are known the replay slowed them already.
    wanted = max(1.0, known) * (1 + measured)
    if wanted <= 1 + CONTENTION[2]:
        return scene, contention
    unknown = set(scene.names) - set(scene.demands)
    # Nothing says that one wants more than those of which it is known.
    most = max(scene.demands.values(), default=1.0)
    each = min(most, max(0.0, wanted - known) / len(unknown)) if unknown else 0.0
    demands = {**scene.demands, **dict.fromkeys(unknown, each)}
    growth = wanted / sum(demands.values())
    hits = _hits_over_misses(scene, growth)
    caches = tuple(_cache(growth, len(scene.names), one) for one in hits)
    return replace(scene, demands=demands, caches=(caches[0], caches[1], caches[2])), CONTENTION


def _demands(scene: _Scene) -> Iterator[Demand]:
    """What was measured of each tenant; what is taken for it is not among them."""
    for tenant, name in scene.names.items():
        used = scene.counted.used.get(tenant, {})
        for resource, part in used.items():
            yield Demand(tenant_id=tenant, name=name, resource=resource.value, part=part, source="counted")
        dram = scene.demands.get(tenant)
        if Resource.DRAM not in used and dram is not None:
            part = min(1.0, dram)
            yield Demand(tenant_id=tenant, name=name, resource=Resource.DRAM.value, part=part, source="sampled")
        if not ON_SMS & set(used) and tenant in scene.on_sms:
            part = scene.on_sms[tenant]
            yield Demand(tenant_id=tenant, name=name, resource=ACTIVE_SMS, part=part, source="sampled")


def _hits_over_misses(scene: _Scene, growth: float) -> tuple[float, float, float]:
    """Low, middle and high, where traffic grew so much; as counted where all tenants were."""
    hits = scene.counted.l2_hit
    if set(hits) != set(scene.names):
        return _assumed_hits(growth, len(scene.names))
    one = max(hit / max(1 - hit, LEAST_MISS) for hit in hits.values())
    return (one, one, one)


def _assumed_hits(growth: float, tenants: int) -> tuple[float, float, float]:
    """Hits for each miss, low, middle and high, where the traffic of so many tenants grew so much.

    The data of each fit into L2 while it runs solo, else it had not hit. Of N times as much no more than 1 - 1 / N is
    missed, so that there were enough hits to lose. The middle is as far above the low end (log) as without that, less
    what the high end does not move.
    """
    low, middle, high = HITS_OVER_MISSES
    least = max(low, (growth - 1) / (1 - 1 / tenants)) if tenants > 1 else low
    return least, middle * math.sqrt(least / low), max(high, least)


def _cache(growth: float, tenants: int, hits_over_misses: float) -> _Cache:
    """What each tenant keeps of L2 if the traffic of so many grows so much: equal parts, of which the last hit is lost.

    Of data that fill `all` of L2 together, 1 - 1 / all no longer fits.
    """
    if growth <= 1 or hits_over_misses <= 0:
        # All of it fits.
        return _Cache(0.5 / tenants, hits_over_misses)
    missed = min((growth - 1) / hits_over_misses, MOST_MISSED)
    return _Cache(1 / (1 - missed) / tenants, (growth - 1) / missed)


def expanded(tables: TableSet, device_id: int, counts: Sequence[int | Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Spell out numbers of copies: so many of every tenant with traced work.

    Examples
    --------
    >>> import pyanalyze
    >>> expanded(pyanalyze.load(capture).tables, 0, [2, {"app_a": 1}])
    [{'app_a': 2, 'app_b': 2}, {'app_a': 1}]
    """
    import polars as pl

    usage = tables.tenant_usage.filter(pl.col("device_id") == device_id)
    working = usage.filter(pl.col("kernels") + pl.col("graph_launches") > 0)["tenant_id"].sort().to_list()
    labels = tables.labels(device_id)
    return [one if not isinstance(one, int) else {labels[tenant]: one for tenant in working} for one in counts]


def _advice(
    verdict: Verdict, objective: Objective, check: SelfCheck, operations: int, window_ns: int, why: str
) -> ReplicaAdvice:
    return ReplicaAdvice(
        device_id=verdict.device_id,
        objective=objective,
        latency_of=None,
        options=[],
        knee=None,
        certain=False,
        check=check,
        checked=COPIES.checked,
        operations=operations,
        window_ns=window_ns,
        missing=[Missing(what="forecasts of copies", why=why, how="")],
    )


def _size(tables: TableSet, device_id: int) -> tuple[int, int]:
    """Operations, and the time from the first one's begin to the last one's end."""
    import polars as pl

    operations, first, last = 0, [], []
    for name in ("kernels", "graph_launches", "memops"):
        times = tables.columns(name, "device_id", "start_ns", "end_ns").filter(
            pl.col("device_id") == device_id, _replayed(tables)
        )
        operations += times.height
        if times.height:
            first.append(int(times["start_ns"].min()))  # type: ignore[arg-type]
            last.append(int(times["end_ns"].max()))  # type: ignore[arg-type]
    return operations, max(last) - min(first) if first else 0


def _replayed(tables: TableSet) -> pl.Expr:
    """Whether something begins in the part of the tables that is replayed."""
    import polars as pl

    if tables.replayed is None:
        return pl.lit(value=True)
    return pl.col("start_ns").is_between(*tables.replayed, closed="left")


def work_in(tables: TableSet, device_id: int, window: tuple[int, int]) -> bool:
    """Whether every process with kernels on a device has some that begin in this time.

    Examples
    --------
    >>> import pyanalyze
    >>> work_in(pyanalyze.load(capture).tables, 0, (0, 1))
    False
    """
    import polars as pl

    inside = pl.col("start_ns").is_between(*window, closed="left")
    names = ("kernels", "graph_launches")
    work = pl.concat([tables.columns(name, "device_id", "capture", "pid", "start_ns") for name in names])
    work = work.filter(pl.col("device_id") == device_id).group_by("capture", "pid").agg(inside.any())
    return bool(work["start_ns"].all())


def representative_window(tables: TableSet, device_id: int, most: int = MOST_OPERATIONS) -> tuple[int, int] | None:
    """Return the middle of a capture, with so many operations; None where there are no more.

    Parameters
    ----------
    tables, device_id
        The tables, and the device.
    most
        Operations: as many as are replayed, if not said otherwise.

    Returns
    -------
    (int, int) or None
        First and last nanosecond.

    Examples
    --------
    >>> import pyanalyze
    >>> representative_window(pyanalyze.load(capture).tables, 0) is None
    True
    """
    import polars as pl

    starts = pl.concat(
        [
            tables.columns(name, "device_id", "start_ns").filter(pl.col("device_id") == device_id)["start_ns"]
            for name in ("kernels", "graph_launches", "memops")
        ]
    ).sort()
    if len(starts) <= most:
        return None
    first = (len(starts) - most) // 2
    return int(starts[first]), int(starts[first + most - 1])


def _scene(recorded: Recorded) -> _Scene | str:
    """What is known; or why nothing can be replayed."""
    import polars as pl

    tables, verdict = recorded.tables, recorded.verdict
    device_id = verdict.device_id
    device = tables.devices.filter(pl.col("device_id") == device_id).row(0, named=True)
    here = tables.tenants.filter(pl.col("device_id") == device_id).sort("tenant_id")
    usage = tables.tenant_usage.filter(pl.col("device_id") == device_id)
    working = set(usage.filter(pl.col("kernels") + pl.col("graph_launches") > 0)["tenant_id"])
    labels = tables.labels(device_id)
    names = {tenant: labels[tenant] for tenant in here.filter("traced")["tenant_id"] if tenant in working}
    why_not = not_replayable(tables, verdict, device, names)
    if why_not is not None:
        return why_not
    sm_count = int(device["sm_count"])
    traits = TRAITS[verdict.mode]
    memory = None if device["memory_bytes"] is None else int(device["memory_bytes"])
    matched = counted.match(tables, device_id, recorded.counted)
    time_sliced = is_time_sliced(verdict)
    demands = sampled.bandwidth(tables, device_id, list(names), time_sliced=time_sliced)
    on_sms = sampled.sm_throughput(tables, device_id, list(names), time_sliced=time_sliced)
    # Counted kernels say more than samples, which gaps between kernels dilute.
    demands |= {t: used[Resource.DRAM] for t, used in matched.used.items() if t in names and Resource.DRAM in used}
    by_kernel = sampled.by_kernel(tables, device_id, list(names), time_sliced=time_sliced)
    for name, parts in matched.by_kernel.items():
        seen = by_kernel.get(name, (None, None))
        by_kernel[name] = (seen[0] if parts[0] is None else parts[0], seen[1] if parts[1] is None else parts[1])
    recording = recorded_config(tables, verdict, list(names), sm_count)
    if recording is not None:
        assignments = tuple(
            replace(
                one,
                bandwidth=demands.get(one.tenant_id, 0.0),
                sm_throughput=on_sms.get(one.tenant_id, 0.0),
            )
            for one in recording.assignments
        )
        recording = replace(recording, assignments=assignments)
    capability = device["compute_major"]
    calls = _calls_at_work(tables, device_id)
    units, unit_names = _units(tables, device_id, names)
    return _Scene(
        tables=tables,
        verdict=verdict,
        names=names,
        sm_count=sm_count,
        capability=None if capability is None else int(capability),
        family=None if traits.mig_instance else mig_.family_of(str(device["name"]), memory),
        memory_bytes=memory,
        memory=memory_peaks(tables, device_id),
        demands=demands,
        on_sms=on_sms,
        counted=matched,
        by_kernel=by_kernel,
        caches=None,
        recording=recording,
        mps_groups=recorded.mps_groups,
        clients=clients_of(tables, device_id, names, sm_count),
        units=units,
        unit_names=unit_names,
        ranks=_ranks(tables, device_id, names),
        slicing=slicing_of(tables, device_id) if traits.time_sliced else DEFAULT_SLICING,
        switches=observed_slicing(tables, device_id) is not None,
        never_waited=_never_waited(calls, names),
        paused=_paused(calls, names),
    )


def _calls_at_work(tables: TableSet, device_id: int) -> pl.DataFrame | None:
    """Calls of each tenant from its first kernel to its last; None: none were recorded."""
    import polars as pl

    here = pl.col("device_id") == device_id
    who = tables.tenants.filter(here).select("tenant_id", "capture", "pid")
    calls = tables.calls()
    if calls is None or not calls.height:
        return None
    kernels = tables.columns("kernels", "device_id", "capture", "pid", "start_ns").filter(here)
    spans = (
        kernels.join(who, on=["capture", "pid"], nulls_equal=True)
        .group_by("tenant_id", "capture", "pid")
        .agg(pl.col("start_ns").min().alias("first_ns"), pl.col("start_ns").max().alias("last_ns"))
    )
    inside = (pl.col("end_ns") > pl.col("first_ns")) & (pl.col("start_ns") < pl.col("last_ns"))
    return calls.join(spans, on=["capture", "pid"], nulls_equal=True).filter(inside)


def _paused(calls: pl.DataFrame | None, names: Mapping[int, str]) -> dict[int, bool]:
    """Tenants whose host pauses for a notable part of its time, and whether those pauses are irregular.

    What it waits for then may come whenever it comes. Irregular pauses are like those between requests.
    """
    import polars as pl

    if calls is None:
        return {}
    idle_ns = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1).over("tenant_id", order_by="start_ns")
    pauses = (
        calls.with_columns(idle_ns.alias("idle_ns"))
        .filter(pl.col("idle_ns") > PAUSE_NS)
        .group_by("tenant_id", (pl.col("last_ns") - pl.col("first_ns")).alias("span_ns"))
        .agg(
            pl.col("idle_ns").sum(),
            irregular=(pl.len() >= ENOUGH_FOR_TAIL)
            & (pl.col("idle_ns").std() > IRREGULAR * pl.col("idle_ns").mean()).fill_null(value=False),
        )
        .filter(pl.col("idle_ns") > NOTABLE_PAUSES * pl.col("span_ns"))
    )
    return {
        tenant: irregular
        for tenant, irregular in pauses.select("tenant_id", "irregular").iter_rows()
        if tenant in names
    }


def _never_waited(calls: pl.DataFrame | None, names: Mapping[int, str]) -> frozenset[int]:
    """Tenants whose host called nothing between its launches that waits for the device: it might, on a busier one."""
    import polars as pl

    if calls is None:
        return frozenset()
    name = pl.col("name").cast(pl.String)
    blocks = name.str.contains("Synchronize") | (name.str.contains("Memcpy|Memset") & ~name.str.contains("Async"))
    waits = calls.group_by("tenant_id").agg(blocks.sum().alias("waits")).filter(pl.col("waits") == 0)
    return frozenset(tenant for tenant in waits["tenant_id"] if tenant in names)


def _units(
    tables: TableSet, device_id: int, names: Mapping[int, str]
) -> tuple[dict[int, list[tuple[int, int]]], list[ForecastUnit]]:
    """Units of work of each tenant, and what they are, where every tenant has enough of them for percentiles."""
    import polars as pl

    units = to_frame(unit_tables(tables, NO_RESIDENCY, None)["units"])
    units = units.filter(pl.col("device_id") == device_id, _replayed(tables)).with_columns(
        pl.col("name", "source").cast(pl.String)
    )
    found, named = {}, []
    for tenant, name in names.items():
        mine = units.filter(pl.col("tenant_id") == tenant).sort("start_ns")
        if mine.height < ENOUGH_FOR_TAIL:
            return {}, []
        found[tenant] = list(mine.select("start_ns", "range_end_ns").iter_rows())
        kinds = mine.group_by("name", "source").len().sort("len", "name", descending=[True, False])
        unit, source, _ = kinds.row(0)
        named.append(
            ForecastUnit(tenant_id=tenant, name=name, unit=unit, source=UnitSource(source), others=kinds.height - 1)
        )
    return found, named


def _ranks(tables: TableSet, device_id: int, names: Mapping[int, str]) -> frozenset[int]:
    """Tenants that called MPI."""
    import polars as pl

    calls = tables.host_calls_read().filter(pl.col("kind").cast(pl.String) == HostKind.MPI).select("capture", "pid")
    who = tables.tenants.filter(pl.col("device_id") == device_id).join(
        calls.unique(), on=["capture", "pid"], how="semi", nulls_equal=True
    )
    return frozenset(tenant for tenant in who["tenant_id"] if tenant in names)


def _spreads(rows: pl.DataFrame, checked: Sequence[SharingConfig], tenants: Mapping[int, str]) -> tuple[float, float]:
    """How uneven blocks are: both assumptions, or twice the one that reproduces the record where the other does not.

    Tenants that are resident together show it: kernels of even blocks wait for each other, those of uneven ones mix.
    """
    import polars as pl

    error: dict[float, float] = {}
    for config in checked:
        of = replay_error(rows.filter(pl.col("sharing_config").is_in(["recorded", config.name])), tenants, "elapsed_ns")
        if of is not None:
            error[config.block_imbalance] = of.size
    even, uneven = SPREADS
    if even in error and uneven in error and abs(error[even] - error[uneven]) > TOLD_APART:
        nearest = min(error, key=lambda spread: error[spread])
        return nearest, nearest
    return SPREADS


def _checked(
    scene: _Scene, threads: int
) -> tuple[SelfCheck, ReplayError | None, tuple[float, float, float], tuple[float, float]]:
    """The recorded configuration, replayed, against the record; and the contention and the spreads that it shows."""
    first = scene.recording or alone(scene.sm_count, next(iter(scene.names)))
    rows = scene.run([first.varied("first")], threads)
    measured = rows["contention"].drop_nulls().to_list()
    contention = measured_contention(measured[0]) if measured else CONTENTION
    if scene.recording is None:
        return NOT_CHECKED, None, contention, SPREADS
    beside = float(measured[0]) if measured else None
    checked = as_checked(scene.recording, beside)
    again = scene.run(checked, threads)
    spreads = _spreads(again, checked, scene.names) if scene.recording.together else SPREADS
    elapsed = replay_error(again, scene.names, "elapsed_ns")
    of = "unit" if scene.units else "latency"
    p50, p99 = (replay_error(again, scene.names, f"{of}_{part}_ns") for part in ("p50", "p99"))
    if elapsed is None:
        outcome = "not-possible"
    elif elapsed.size > FORBIDDEN:
        outcome = "forbidden"
    else:
        missed_by = max(elapsed.size, *(error.size for error in (p50, p99) if error), 0.0)
        outcome = "widened" if missed_by > REPRODUCED else "passed"
    return (
        SelfCheck(
            possible=elapsed is not None,
            elapsed_error=elapsed.size if elapsed else None,
            elapsed_tenant_id=elapsed.tenant_id if elapsed else None,
            elapsed_too_long=elapsed.relative > 0 if elapsed else None,
            p99_error=p99.size if p99 else None,
            p50_error=p50.relative if p50 else None,
            recorded=_latencies(again, of),
            contention=beside,
            outcome=outcome,  # type: ignore[arg-type]
        ),
        elapsed,
        contention,
        spreads,
    )


def _latencies(rows: pl.DataFrame, of: str) -> list[RecordedLatency]:
    """The recorded latencies that a replay is checked against."""
    recorded = (row for row in rows.iter_rows(named=True) if str(row["sharing_config"]) == "recorded")
    return [
        RecordedLatency(tenant_id=row["tenant_id"], p50_ns=row[f"{of}_p50_ns"], p99_ns=row[f"{of}_p99_ns"])
        for row in recorded
        if row[f"{of}_p50_ns"] is not None and row[f"{of}_p99_ns"] is not None
    ]


def _idle(scene: _Scene, window_ns: int) -> list[IdleCopy]:
    """How much of the replayed time each tenant has no work on the device."""
    import polars as pl

    found = []
    for tenant, name in scene.names.items():
        who = scene.tables.tenants.row(tenant, named=True)
        columns = ("device_id", "start_ns", "end_ns")
        work = work_of(scene.tables, who, ("kernels", "graph_launches", "memops"), *columns)
        busy_ns = covered_ns(work.filter(pl.col("device_id") == scene.verdict.device_id, _replayed(scene.tables)))
        part = max(1 - busy_ns / window_ns, 0.0) if window_ns else 0.0
        found.append(IdleCopy(tenant_id=tenant, name=name, part=part))
    return found


def _candidates(scene: _Scene, counts: Mapping[int, int], threads: int) -> Iterator[_Candidate]:
    """Ways to share the device among these copies."""
    inside = TRAITS[scene.verdict.mode].mig_instance
    copies = [(tenant, copy) for tenant, n in sorted(counts.items()) for copy in range(n)]
    everybody = tuple(scene.memory.get(tenant) for tenant, _ in copies)
    as_recorded = counts == dict.fromkeys(scene.names, 1)
    mode = scene.verdict.mode

    def made(name: str, of: Mode, kind: str, assignments: Sequence[Assignment], **more: object) -> _Candidate:
        config = SharingConfig(name, (scene.sm_count,), tuple(assignments), *scene.slicing)
        current = (
            as_recorded and of == mode and (not more.get("percentages") or _caps(config) == _caps(scene.recording))
        )
        return _Candidate(name, of, config, kind, counts, memory=everybody, current=current, **more)  # type: ignore[arg-type]

    if len(copies) == 1:
        solo = Mode.MIG if inside else Mode.EXCLUSIVE
        one = made("solo", solo, "solo", [scene.placed(*copies[0])])
        yield replace(one, current=as_recorded and TRAITS[mode].one_process)
    else:
        alternating = [scene.placed(tenant, copy, group=n) for n, (tenant, copy) in enumerate(copies)]
        yield made("time-slicing", Mode.MIG_TIME_SLICING if inside else Mode.TIME_SLICING, "time-sliced", alternating)
    if len(copies) > 1 and (scene.capability or 0) >= 7:
        together = [scene.placed(tenant, copy) for tenant, copy in copies]
        yield made("MPS", Mode.MIG_MPS if inside else Mode.MPS, "together", together)
        seen = set()
        for name, percentages in _percentages(scene, copies):
            sms = [mps_sms(scene.sm_count, part, scene.capability) for part in percentages]
            if all(n >= scene.sm_count for n in sms) or percentages in seen:
                continue
            seen.add(percentages)
            kind = "overlap" if sum(sms) > scene.sm_count else "together"
            capped = [scene.placed(tenant, copy, sms=n) for (tenant, copy), n in zip(copies, sms, strict=True)]
            capped_mode = Mode.MIG_MPS if inside else Mode.MPS_PARTITIONED
            yield made(name, capped_mode, kind, capped, percentages=percentages)
    if scene.family is not None:
        yield from _mig(scene, counts, copies, threads)


def _caps(config: SharingConfig | None) -> dict[int, int | None]:
    """SMs of each tenant of a config with one copy of each; None: it may use all."""
    return {} if config is None else {one.tenant_id: one.sms for one in config.assignments}


def _percentages(scene: _Scene, copies: Sequence[tuple[int, int]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """NVIDIA's provisioning strategies, and the least caps with which a copy's kernels lose almost nothing solo."""
    n = len(copies)
    clients = {client.tenant_id: client for client in scene.clients}
    each = [replace(clients[tenant], tenant_id=at) for at, (tenant, _) in enumerate(copies)]
    loads = [client.load for client in each]
    whole = sum(load or 0.0 for load in loads)
    if whole:
        # Loads of the recording are of one copy each.
        each = [replace(client, load=(load or 0.0) / whole) for client, load in zip(each, loads, strict=True)]
    words = {
        "equal": f"MPS, {100 // n} % each",
        "double": f"MPS, {min(100, 200 // n)} % each",
        "proportional": "MPS, caps by load",
        "minimal": "MPS, minimal caps",
    }
    for provision in mps.provisions(each, scene.sm_count, scene.capability):
        yield words[provision.strategy], tuple(provision.percentages[at] for at in range(n))


def _mig(
    scene: _Scene, counts: Mapping[int, int], copies: Sequence[tuple[int, int]], threads: int
) -> Iterator[_Candidate]:
    """Instances of one profile, with one copy each or several under MPS; for a mix one instance each."""
    family = scene.family
    if family is None:
        return

    def made(name: str, mode: Mode, kind: str, placed: Sequence[mig_.Placed], at: Sequence[int]) -> _Candidate:
        assignments = tuple(
            scene.placed(tenant, copy, instance=instance) for (tenant, copy), instance in zip(copies, at, strict=True)
        )
        config = SharingConfig(
            name,
            tuple(one.profile.sm_count or 0 for one in placed),
            assignments,
            *scene.slicing,
            bandwidths=tuple(one.profile.memory_slices / family.memory_slices for one in placed),
        )
        memory = tuple(scene.memory.get(tenant) for tenant, _ in copies)
        return _Candidate(name, mode, config, kind, counts, (), tuple(placed), memory)

    if len(counts) > 1:
        if len(copies) <= family.compute_slices:
            by_sms = _by_sms(scene, family, threads)
            needs = [
                mig_.Need(str(at), scene.memory.get(tenant), lambda sms, of=by_sms[tenant]: of[sms])  # type: ignore[misc]
                for at, (tenant, _) in enumerate(copies)
            ]
            placement = mig_.place(family, needs)
            if not placement.unplaced:
                order = sorted(placement.placed.values(), key=lambda one: one.start)
                at = [order.index(placement.placed[str(n)]) for n in range(len(copies))]
                yield made("MIG " + _listed(order), Mode.MIG, "instances", order, at)
        return
    n = len(copies)
    best = None
    for profile in family.profiles:
        if profile.sm_count is None:
            continue
        instances = instances_of(family, profile)
        if len(instances) >= n:
            # Of the profiles of which enough fit the largest; of equal ones the one with more memory.
            best = max(
                (best or (0, 0, [], profile)),
                (profile.slices, profile.memory_slices, instances[:n], profile),
                key=lambda x: x[:2],
            )
        elif len(instances) > 1:
            each = [at % len(instances) for at in range(n)]
            name = f"MPS in {len(instances)} x {profile.name}"
            yield made(name, Mode.MIG_MPS, "together", instances, each)
    if best is not None:
        _, _, placed, profile = best
        yield made(f"MIG {n} x {profile.name}", Mode.MIG, "instances", placed, range(n))


def _listed(placed: Sequence[mig_.Placed]) -> str:
    return " + ".join(f"{one.profile.name}:{one.start}" for one in placed)


def instances_of(family: mig_.Family, profile: mig_.Profile) -> list[mig_.Placed]:
    """Place as many instances of a profile as fit together.

    Examples
    --------
    >>> a100 = mig_.FAMILIES["A100-40"]
    >>> [one.start for one in instances_of(a100, a100.profile("2g.10gb"))]
    [0, 2, 4]
    """
    found: list[mig_.Placed] = []
    for start in profile.starts:
        one = mig_.Placed(profile, start)
        if mig_.valid(family, [*found, one]):
            found.append(one)
    return found


def _by_sms(scene: _Scene, family: mig_.Family, threads: int) -> dict[int, dict[int, float]]:
    """Slowdown of each tenant solo on as many SMs as each profile has."""
    sizes = sorted({profile.sm_count for profile in family.profiles if profile.sm_count})
    configs = [alone(scene.sm_count, tenant) for tenant in scene.names]
    configs += [SharingConfig(f"{t} on {sms}", (sms,), (Assignment(t),)) for t in scene.names for sms in sizes]
    rows = scene.run(configs, threads)
    took = {str(row["sharing_config"]): row["elapsed_ns"] for row in rows.iter_rows(named=True)}
    return {
        t: {sms: round(took[f"{t} on {sms}"] / max(took[f"alone {t}"], 1), 3) for sms in sizes} for t in scene.names
    }


def _variants(
    candidate: _Candidate,
    contention: tuple[float, float, float],
    caches: tuple[_Cache, _Cache, _Cache] | None,
    spreads: tuple[float, float],
    *,
    switches: bool,
    unknown: bool,
    paused: Mapping[int, bool],
) -> list[_Variant]:
    low, middle, high = contention
    if len(candidate.counts) == 1:
        # Copies of one program need the same units of an SM.
        low, middle, high = max(low, 0.0), max(middle, 0.0), max(high, CONTENTION[2])
    least, usual, most = caches or (NO_CACHE, NO_CACHE, NO_CACHE)
    on_sms = UNKNOWN_ON_SMS if unknown else 0.0
    even, uneven = spreads
    if candidate.kind in {"together", "overlap"}:
        even = max(even, EVEN)
        found = [
            _Variant(middle, even, 1, cache=usual, assumed_on_sms=on_sms, crowding=0.5),
            _Variant(middle, max(uneven, EVEN), 2, cache=usual, assumed_on_sms=on_sms, crowding=1.0),
        ]
        if candidate.is_measured:
            # What kernels cost each other as they were recorded needs no other assumptions.
            return found
        if candidate.kind == "overlap" and len(candidate.config.assignments) == 2:
            # Two have at least the excess in common: a kernel that needs all of its SMs waits for those.
            found += [replace(v, seed=v.seed + 4, counts=False, parted=True) for v in found]
        return [
            *found,
            _Variant(low, BLOCKS.strongly if uneven else even, 3, counts=False, cache=least),
            _Variant(high, even, 4, counts=False, cache=most, crowding=1.0, unknown_on_sms=float(unknown)),
        ]
    if candidate.kind == "instances":
        found = [_Variant(0.0, even, 1, cache=usual), _Variant(0.0, uneven, 2, cache=usual)]
        if uneven:
            found.append(_Variant(0.0, BLOCKS.strongly, 3, counts=False, cache=usual))
        if caches is not None:
            found += [_Variant(0.0, even, 1, counts=False, cache=one) for one in (least, most)]
            if len(candidate.counts) > 1:
                # The L2 of an instance holds the data of one tenant, and nothing says whose are larger.
                found += [_Variant(0.0, even, 1, counts=False, cache=usual, larger=one) for one in candidate.counts]
        if unknown:
            found.append(_Variant(0.0, even, 1, counts=False, cache=usual, unknown_on_sms=1.0))
        return found
    found = [_Variant(0.0, 0.0, 1), _Variant(0.0, 0.0, 2)]
    waiting = [tenant for tenant in candidate.counts if tenant in paused]
    if waiting:
        irregular = all(paused[tenant] for tenant in waiting)
        found += [_Variant(0.0, 0.0, seed, counts=irregular, anchored=True) for seed in (4, 5)]
    if candidate.kind == "time-sliced" and not switches:
        found += [_Variant(0.0, 0.0, 3, counts=False, linger_ns=ns) for ns in LINGERING_NS]
    return found


def _assumed(config: SharingConfig, v: _Variant, known: Mapping[int, float]) -> SharingConfig:
    """A config with what a variant assumes of L2 and of the SMs."""
    tenants = len({one.tenant_id for one in config.assignments})

    def kept(tenant: int) -> float:
        if v.larger is None:
            return v.cache.kept
        return v.cache.kept * tenants * (2 if tenant == v.larger else 1) / (tenants + 1)

    assignments = tuple(
        replace(
            one,
            cache=kept(one.tenant_id),
            sm_throughput=known.get(one.tenant_id, v.unknown_on_sms),
            assumed_sm_throughput=v.assumed_on_sms,
        )
        for one in config.assignments
    )
    if v.parted:
        (whole,) = config.instances
        caps = [one.sms or whole for one in assignments]
        assignments = tuple(
            replace(one, sms=max(1, cap * whole // sum(caps))) for one, cap in zip(assignments, caps, strict=True)
        )
    return replace(
        config,
        assignments=assignments,
        hits_over_misses=v.cache.hits_over_misses,
        crowding=v.crowding,
        linger_ns=v.linger_ns,
        anchored=v.anchored,
    )


def _apart(config: SharingConfig, seed: int, span_ns: int) -> SharingConfig:
    """Let copies begin apart, for each seed otherwise: multiples of the golden ratio are even whatever their number."""
    golden = (math.sqrt(5) - 1) / 2
    assignments = tuple(
        replace(one, start_ns=int(span_ns * ((n * golden + seed * 0.37) % 1.0) if n else 0))
        for n, one in enumerate(config.assignments)
    )
    return replace(config, assignments=assignments)


def _forecast(
    scene: _Scene,
    candidates: Sequence[_Candidate],
    contention: tuple[float, float, float],
    check: SelfCheck,
    slo_p99_ns: int | None,
    threads: int,
) -> tuple[list[ReplicaOption], LatencyOf | None, frozenset[int]]:
    """Replay every candidate with its variants; and say whose hosts may have waited for their work without a call."""
    solo = {which: one for tenant in scene.names for which, one in both_readings(scene.solo(tenant), tenant).items()}
    configs = list(solo.values())
    # Contention that was recorded holds what tenants cost each other on the SMs.
    unknown = check.contention is None and bool(scene.unknown_on_sms)

    def variants(candidate: _Candidate) -> list[_Variant]:
        return _variants(
            candidate,
            contention,
            scene.caches,
            scene.spreads,
            switches=scene.switches,
            unknown=unknown,
            paused=scene.paused,
        )

    _, window_ns = _size(scene.tables, scene.verdict.device_id)
    span_ns = min(int(APART * window_ns), MOST_APART_NS)
    for number, candidate in enumerate(candidates):
        for at, v in enumerate(variants(candidate)):
            varied = candidate.config.varied(
                f"{number}/{at}", contention=v.contention, block_imbalance=v.block_imbalance, jitter=JITTER, seed=v.seed
            )
            configs.append(_apart(_assumed(varied, v, scene.on_sms), v.seed, span_ns))
    rows = scene.run(configs, threads)
    took: dict[tuple[str, int], list[dict[str, object]]] = {}
    for row in rows.iter_rows(named=True):
        took.setdefault((str(row["sharing_config"]), row["tenant_id"]), []).append(row)
    from_calls = rows["latency_ns"].null_count() == 0
    latency_of: LatencyOf | None = None
    if from_calls:
        latency_of = "unit" if scene.units and rows["unit_p99_ns"].null_count() == 0 else "kernel"
    options = []
    unseen = frozenset(rows.filter("unseen_waits")["tenant_id"])
    for number, candidate in enumerate(candidates):
        runs = [
            ({t: took[f"{number}/{at}", t] for t in candidate.counts}, v) for at, v in enumerate(variants(candidate))
        ]
        base = {which: took[one.name, which[0]][0] for which, one in solo.items() if which[0] in candidate.counts}
        options.append(_option(scene, candidate, runs, base, unseen, check, latency_of, slo_p99_ns))
    return options, latency_of, unseen


def _option(
    scene: _Scene,
    candidate: _Candidate,
    runs: Sequence[tuple[Mapping[int, Sequence[Mapping[str, object]]], _Variant]],
    solo_rows: Mapping[tuple[int, bool], Mapping[str, object]],
    unseen: frozenset[int],
    check: SelfCheck,
    latency_of: LatencyOf | None,
    slo_p99_ns: int | None,
) -> ReplicaOption:
    """A candidate with what its replays say."""
    sampling = max(float(str(row["sampling_error"] or 0.0)) for run, _ in runs for rows in run.values() for row in rows)
    widths, tail_widths = COPIES.widths, COPIES.tail_widths
    if candidate.is_measured:
        widths, tail_widths = COPIES.recorded, COPIES.recorded_tail
    width = widths[candidate.kind] + (check.elapsed_error or 0.0) + sampling
    if candidate.kind == "instances" and scene.caches is not None:
        width += COPIES.cache_fitted
    middle = width - (check.elapsed_error or 0.0) + max(abs(check.p50_error or 0.0), check.elapsed_error or 0.0)
    tail = tail_widths[candidate.kind] + (check.p99_error or check.elapsed_error or 0.0) + sampling
    # What L2 loses is in the variants where it was recorded.
    beyond = _beyond(candidate) if scene.caches is None and not candidate.is_measured else 0.0
    solo_ns = {which: max(_ns(row, "elapsed_ns"), 1) for which, row in solo_rows.items()}
    base = {tenant: solo_ns[tenant, False] for tenant in candidate.counts}
    copies = sum(candidate.counts.values())

    def of_latency(part: str) -> str:
        return f"unit_{part}_ns" if latency_of == "unit" else f"latency_{part}_ns"

    tenants, progress = [], []
    for tenant, n in sorted(candidate.counts.items()):
        # Copies are equal: what a replay does to one of them by chance it does to another one in the next.
        slow = [
            (statistics.fmean(_ns(row, "elapsed_ns") for row in run[tenant]) / solo_ns[tenant, v.anchored], v)
            for run, v in runs
        ]
        if candidate.kind in {"together", "overlap"} and not candidate.is_measured:
            alone_for = solo_rows[tenant, False]
            started = COPIES.start_ns * (copies - 1) * _ns(alone_for, "operations") / base[tenant]
            above = math.hypot(beyond, math.log1p(started))
        else:
            above = beyond
        slowdown = _estimate(slow, width, above)
        if candidate.kind == "time-sliced" and tenant in scene.never_waited and not candidate.is_measured:
            # Nothing says how far its host runs ahead: one that waits for each turn gets an equal part of all turns.
            slice_ns, switch_ns = candidate.config.slice_ns, candidate.config.switch_ns
            turns = max(slowdown.value, copies * (1 + switch_ns / slice_ns))
            between, high = math.sqrt(slowdown.value * turns), max(slowdown.high, turns * math.exp(width))
            slowdown = slowdown.model_copy(update={"value": between, "high": high})
        # Others on the device make nobody faster than solo.
        least = min(slowdown.value, math.exp(-COPIES.widths["solo"]))
        slowdown = slowdown.model_copy(update={"low": max(slowdown.low, least)})
        counted = [run[tenant] for run, v in runs if v.counts and not v.anchored]
        progress += [base[tenant] / statistics.fmean(_ns(run[i], "elapsed_ns") for run in counted) for i in range(n)]

        def latency(part: str, of: int = tenant, above: float = above) -> Estimate | None:
            if latency_of is None:
                return None
            column = of_latency(part)
            each = [(statistics.fmean(_ns(row, column) for row in run[of]), v) for run, v in runs]
            found = _estimate(each, tail if part == "p99" else middle, above)
            if of in scene.paused and candidate.kind != "instances" and not candidate.is_measured:
                # Pauses may end at the same moments in all copies: one that comes last waits for the others.
                found = found.model_copy(update={"high": max(found.high, copies * _ns(solo_rows[of, False], column))})
            return found

        tenants.append(
            Copies(
                tenant_id=tenant,
                name=scene.names[tenant],
                copies=n,
                slowdown=slowdown,
                throughput=Estimate(value=n / slowdown.value, low=n / slowdown.high, high=n / slowdown.low),
                p50_ns=latency("p50"),
                p99_ns=latency("p99"),
                solo_p99_ns=None if latency_of is None else _ns(solo_rows[tenant, False], of_latency("p99")),
                at_least=tenant in unseen and copies > 1,
            )
        )
    memory = [one for one in candidate.memory if one is not None]
    return ReplicaOption(
        name=candidate.name,
        mode=candidate.mode,
        copies=copies,
        tenants=tenants,
        throughput=Estimate(
            value=sum(t.throughput.value for t in tenants),
            low=sum(t.throughput.low for t in tenants),
            high=sum(t.throughput.high for t in tenants),
        ),
        fairness=min(1.0, sum(progress) ** 2 / (len(progress) * sum(x * x for x in progress))),
        utilisation=_utilisation(scene, tenants, base),
        profiles=[f"{one.profile.name}:{one.start}" for one in candidate.placed],
        instances=[one.instance for one in candidate.config.assignments] if candidate.placed else [],
        percentages=list(candidate.percentages),
        memory_bytes=sum(memory) if len(memory) == len(candidate.memory) else None,
        memory_fits=_fits(scene, candidate),
        meets_slo=None if slo_p99_ns is None else _meets(tenants, slo_p99_ns),
        current=candidate.current,
        pareto=False,
        recommended=False,
    )


def _ns(row: Mapping[str, object], column: str) -> int:
    return int(str(row[column]))


def _beyond(candidate: _Candidate) -> float:
    """How much longer (log) it may take at most where bandwidth is short: nothing says whose data L2 still holds."""
    config = candidate.config
    if candidate.kind in {"solo", "time-sliced"}:
        return 0.0
    short = 0.0
    for instance in range(len(config.instances)):
        wanted = sum(one.bandwidth for one in config.assignments if one.instance == instance)
        part = config.bandwidths[instance] if config.bandwidths else 1.0
        short = max(short, wanted / part)
    if short <= 1:
        return 0.0
    return COPIES.cache_instances if candidate.placed else COPIES.cache


def _estimate(values: Sequence[tuple[float, _Variant]], width: float, above: float) -> Estimate:
    """Mean of the variants that count, and an interval.

    What variants span, what the model misses and what else may make it slower (logs) do not depend on each other: that
    all of it is at its worst at once is rarer than the interval claims. So they add as independent errors do. When
    pauses end, how long an idle context stays, and whether blocks are strongly uneven, is one thing or the other: the
    interval holds what follows from either.
    """
    low, high = math.inf, 0.0

    def reading_of(v: _Variant) -> tuple[bool, int | None, bool]:
        return v.anchored, v.linger_ns, v.block_imbalance > BLOCKS.uneven

    for reading in {reading_of(v) for _, v in values}:
        of = [(value, v.counts) for value, v in values if reading_of(v) == reading]
        middle = statistics.fmean([value for value, counts in of if counts] or [value for value, _ in of])
        least, most = min(of)[0], max(of)[0]
        low = min(low, middle / math.exp(math.hypot(math.log(middle / least), width)))
        high = max(high, middle * math.exp(math.hypot(math.log(most / middle), width, above)))
    return Estimate(value=statistics.fmean(value for value, v in values if v.counts), low=low, high=high)


def _utilisation(scene: _Scene, tenants: Sequence[Copies], base: Mapping[int, int]) -> float | None:
    """SM time with resident blocks over all SM time, from what each tenant used in the recording."""
    import polars as pl

    modelled = scene.tables.sm_occupancy.filter(pl.col("device_id") == scene.verdict.device_id, _replayed(scene.tables))
    length = pl.col("end_ns") - pl.col("start_ns")
    used = dict(modelled.group_by("tenant_id").agg((pl.col("sm_active") * length).sum()).iter_rows())
    if any(not used.get(t.tenant_id) for t in tenants):
        return None
    busy = sum(t.copies * used[t.tenant_id] / (t.slowdown.value * base[t.tenant_id]) for t in tenants)
    return float(min(1.0, busy))


def _fits(scene: _Scene, candidate: _Candidate) -> Told:
    """Whether memory holds all copies of every instance."""
    if any(one is None for one in candidate.memory):
        return "cannot-tell"
    if candidate.placed and scene.family is not None:
        rooms: list[int] = [scene.family.memory_bytes(one.profile) for one in candidate.placed]
    elif scene.memory_bytes is not None:
        rooms = [int(scene.memory_bytes * (1 - MEMORY_RESERVE))]
    else:
        return "cannot-tell"
    needed = [0] * len(rooms)
    for one, assignment in zip(candidate.memory, candidate.config.assignments, strict=True):
        needed[assignment.instance] += one or 0
    return "yes" if all(n <= has for n, has in zip(needed, rooms, strict=True)) else "no"


def _meets(tenants: Sequence[Copies], slo_p99_ns: int) -> Told:
    """Whether every copy keeps its objective: by the whole interval, or not to tell."""
    known = [t.p99_ns for t in tenants if t.p99_ns is not None]
    if any(one.low > slo_p99_ns for one in known):
        return "no"
    bounded = len(known) == len(tenants) and not any(t.at_least for t in tenants)
    return "yes" if bounded and all(one.high <= slo_p99_ns for one in known) else "cannot-tell"


def _worst(option: ReplicaOption) -> float:
    """Latency of the tenant that is worst off, relative where none was recorded."""
    known = [t.p99_ns.value for t in option.tenants if t.p99_ns is not None]
    return max(known) if len(known) == len(option.tenants) else max(t.slowdown.value for t in option.tenants)


def _score(option: ReplicaOption, objective: Objective) -> tuple[float, ...]:
    """Smaller is better."""
    throughput, worst = -option.throughput.value, _worst(option)
    if objective == "latency":
        return (worst, throughput)
    if objective == "fairness":
        return (-round(option.fairness, 3), throughput, worst)
    return (throughput, worst)


def _allowed(option: ReplicaOption) -> bool:
    return option.memory_fits != "no" and option.meets_slo != "no"


def _ranked(options: Sequence[ReplicaOption], objective: Objective) -> list[ReplicaOption]:
    """By copies and throughput, with the Pareto front and the best one marked."""
    allowed = [option for option in options if _allowed(option)]

    def front(option: ReplicaOption) -> bool:
        mine = (option.throughput.value, -_worst(option))
        others = ((one.throughput.value, -_worst(one)) for one in allowed if one is not option)
        return not any(o[0] >= mine[0] and o[1] >= mine[1] and o != mine for o in others)

    # A kept objective is worth more than one that cannot be told.
    surely = [option for option in allowed if option.meets_slo in {None, "yes"}]
    best = _simplest(surely or allowed, objective)
    marked = [
        option.model_copy(update={"pareto": option in allowed and front(option), "recommended": option is best})
        for option in options
    ]
    return sorted(marked, key=lambda option: (option.copies, -option.throughput.value))


def _simplest(options: Sequence[ReplicaOption], objective: Objective) -> ReplicaOption | None:
    """Of those as good as the best, the current one, else that with fewest copies and least to set up."""
    best = min(options, key=lambda option: _score(option, objective), default=None)
    if best is None:
        return None
    good = [option for option in options if _as_good(option, best, objective)]
    # Of equals none that may be far worse.
    surest = max(option.throughput.low for option in good)
    good = [option for option in good if option.throughput.low >= SURE * surest]
    return min(
        good, key=lambda o: (not o.current, o.copies, bool(o.profiles), bool(o.percentages), _score(o, objective))
    )


def _as_good(option: ReplicaOption, best: ReplicaOption, objective: Objective) -> bool:
    if objective == "latency":
        return _worst(option) <= _worst(best) * (1 + AS_GOOD)
    if objective == "fairness" and option.fairness < best.fairness - AS_GOOD:
        return False
    return option.throughput.value >= best.throughput.value * (1 - AS_GOOD)


def _certain(options: Sequence[ReplicaOption], objective: Objective) -> bool:
    """Whether the best is told apart from every other one that is allowed."""
    best = next((option for option in options if option.recommended), None)
    if best is None or any(t.at_least for t in best.tenants):
        return False
    others = [option for option in options if option is not best and _allowed(option)]
    if objective == "latency":
        mine = max((t.p99_ns or t.slowdown).high for t in best.tenants)
        return all(mine < max((t.p99_ns or t.slowdown).low for t in other.tenants) for other in others)
    if objective == "fairness":
        return all(best.fairness > other.fairness for other in others)
    return all(best.throughput.low > other.throughput.high for other in others)


def _knee(options: Sequence[ReplicaOption], asked: Sequence[Mapping[int, int]]) -> Knee | None:
    """Where one more copy adds little, with the best configuration of each number."""
    if len(asked) < 2 or any(len(one) != 1 for one in asked):
        return None
    best: dict[int, ReplicaOption] = {}
    for option in options:
        if _allowed(option) and (
            option.copies not in best or option.throughput.value > best[option.copies].throughput.value
        ):
            best[option.copies] = option
    numbers = sorted(best)
    for now, then in itertools.pairwise(numbers):
        gain = best[then].throughput.value / best[now].throughput.value - 1
        if gain < KNEE * (then - now):
            return Knee(copies=now, name=best[now].name, next_gain=gain)
    return Knee(copies=numbers[-1], name=best[numbers[-1]].name, next_gain=None) if numbers else None
