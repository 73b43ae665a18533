"""From comparisons to answers: who was slowed, by how much, through what, by whom; and is it the GPU at all?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyanalyze.analysis.interference.baselines import flags, graph_nodes, not_used
from pyanalyze.analysis.interference.co_run import latencies_co_run
from pyanalyze.analysis.interference.execution import split_execution
from pyanalyze.analysis.interference.groups import NO_LATENCY, SoloRun, between_groups, group_ids
from pyanalyze.analysis.interference.lost_time import assumed_switch_ns, device_figures, lost_time
from pyanalyze.analysis.interference.scheduling import on_cpu_ns
from pyanalyze.analysis.interference.solo_part import pauses_solo
from pyanalyze.analysis.interference.units import ENOUGH, how_many_counted
from pyanalyze.results.interference import (
    AddedLatency,
    BaselineNotUsed,
    Causes,
    ContextState,
    Estimate,
    ExecutionSplit,
    HostFinding,
    Interference,
    LatencyPercentile,
    MatrixCell,
    NotCompared,
    Slowdown,
    Throughput,
    UnitsOfWork,
)
from pyanalyze.tables.selections import covered_ns, named, of_process
from pyanalyze.tables.tableset import empty_frame
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import NEGLIGIBLE_RESIDENCY, SMALL_SHARE, TRAITS, Condition, Mode, is_slowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.interference.baselines import Summary
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.inputs.baselines import Baseline
    from pyanalyze.tables.tableset import TableSet

#: A baseline's interval of elapsed time this much wider than that of the run replayed (log scale) is mostly about
#: arrivals that differ from day to day.
MUCH_WIDER = 3.0
#: Of the calls' or idle time, the part from which the host is worth naming.
NOTABLE_HOST = 0.2
#: Of the kernels, those in CUDA graphs from which on it matters that their launch is that of the graph.
NOTABLE_GRAPHS = 0.1
#: Why there is no comparison where no operation lies wholly in the window.
ALL_CUT = "the window cuts each of its operations, so a longer window is needed"

#: A launch call of this length, and so many times the usual, was held back; so many times the usual, it was slow.
HELD_NS = 1_000_000
HELD_TIMES = 20
SLOW_TIMES = 5
#: Mean launch call over that of the baseline, from which the host counts as slower than it was alone.
SLOWER_CALLS = 1.5

#: Where a tenant waits for the GPU, the least part of that time in which the only other traced one has it, unless one
#: that was not traced takes time as well.
ONLY_OTHER = 0.75

#: Two baselines fit a tenant alike if their likenesses differ by less; their paces differ if by more of one.
AS_ALIKE = 0.1
OTHER_PACE = 0.1
_NOT_KNOWN = Slowdown(elapsed=None, latency=None, resident=None)
#: The lower end of an inferred elapsed slowdown, where it is far from the value and the upper end is not.
SLEEPS_UNTIL = (
    "the elapsed slowdown holds if each unit of work follows the one before. If units arrive on their own, as requests "
    "do, it is near the lower end"
)
_FAR_BELOW = 0.1
#: How often it paused is in front.
PAUSED_SOLO = (
    "pauses between its kernels before other tenants began, and hardly any since: requests may have piled up. What its "
    "elapsed slowdown would be then is not in this recording"
)
MAY_HAVE_WAITED = (
    "elapsed: at least that, because the program made no CUDA call until about the end of its kernels; so few such "
    "waits cannot show whether it waited for them"
)
LIMITED = (
    "elapsed: the lower bound is for a limiter that gives a tenant no more of the GPU when it is solo: it would have "
    "taken as long"
)
WAITS_FOR_LIMITER = (
    "at least: the host waits for the limiter in launch calls, for its own share or for that of another tenant, and "
    "the recording does not tell which"
)
ELAPSED_IS_ARRIVALS = (
    "elapsed: from the counterfactual replay, because the baseline's elapsed time depends mostly on when work arrived"
)


@dataclass(frozen=True)
class TenantInterference:
    """One tenant beside itself alone.

    Attributes
    ----------
    tenant_id, name
        Who.
    slowdown
        `elapsed`, `latency` and `resident`, each with its 95 % interval, n and basis; None: cannot be known.
    latency_percentiles
        Percentiles of kernel latency.
    throughput
        Kernels and graph launches a second, shared and solo.
    causes
        Parts of the added latency, summing to 1; None: nothing was added, or it is not known.
    added_ns, added_per_kernel_ns
        Added latency: of all kernels, and on average of one; None: not known.
    added_latency
        That of all kernels by whether a kernel had started; None: switch records, calls or kernels are missing, or
        kernels ran longer as well.
    root_causes
        The same, with the wait behind an operation of the same stream counted for what had delayed that one.
    units
        Units of work, most of the time first.
    execution_reasons
        By part of `causes.execution_split`, why it is None, or what it was concluded from.
    execution_hows
        By part that is None, the command that captures what it needs, where there is one.
    baseline
        The baseline that it was held against; None: this run replayed without what others took.
    notes
        What to know when reading the figures.
    missing
        Why there are none.
    baselines_not_used
        Baselines that are not of this tenant, or cannot be compared, with the reasons; the notes say the same.
    is_group
        It is a group of work of a process: only its execution is compared.
    assumed_switch_ns
        Of its attributed time, what is assumed to be saving and restoring inside kernels; None: nothing is assumed.
    not_compared
        What its latency against a baseline leaves out; None: nothing.
    lost_to
        Where nothing but time lost is known: the part of it in which each other tenant was resident.
    """

    tenant_id: int
    name: str
    slowdown: Slowdown
    latency_percentiles: Sequence[LatencyPercentile] = ()
    throughput: Throughput | None = None
    causes: Causes | None = None
    added_ns: int | None = None
    added_per_kernel_ns: float | None = None
    baseline: str | None = None
    notes: tuple[str, ...] = ()
    missing: str | None = None
    units: tuple[UnitsOfWork, ...] = ()
    execution_reasons: Mapping[str, str] = field(default_factory=dict)
    execution_hows: Mapping[str, str] = field(default_factory=dict)
    baselines_not_used: tuple[BaselineNotUsed, ...] = ()
    is_group: bool = False
    root_causes: Causes | None = None
    assumed_switch_ns: int | None = None
    lost_to: Mapping[int, float] = field(default_factory=dict)
    added_latency: AddedLatency | None = None
    not_compared: NotCompared | None = None

    def __repr__(self) -> str:
        """Name the tenant and what is known of its slowdown."""
        known = (("elapsed", self.slowdown.elapsed), ("latency", self.slowdown.latency))
        said = ", ".join(f"{kind} {found.value:.2f}x" for kind, found in known if found is not None)
        return f"<TenantInterference: {self.name!r}, {said or 'slowdown not known'}>"

    @property
    def slowed(self) -> bool:
        """Whether elapsed time or latency (of a group: execution) grew, by :func:`pyanalyze.vocabulary.is_slowed`."""
        compared = (self.slowdown.resident,) if self.is_group else (self.slowdown.elapsed, self.slowdown.latency)
        known = [e for e in compared if e is not None]
        return any(is_slowed(e.value, e.low, e.basis) for e in known)


@dataclass(frozen=True)
class DeviceInterference:
    """Who was slowed on one device.

    Attributes
    ----------
    tenants
        Traced tenants by id.
    figures
        Of the whole device (None in it: some tenant's elapsed slowdown is not known), and victim by aggressor. None:
        fewer than two tenants, or no slowdown is known.
    host
        What lies with the host, most of it first. Read before blaming the GPU.
    """

    device_id: int
    tenants: tuple[TenantInterference, ...]
    figures: Interference | None
    host: tuple[HostFinding, ...]

    def __repr__(self) -> str:
        """Name the tenants."""
        return f"<DeviceInterference: device {self.device_id}, {', '.join(map(repr, self.tenants)) or 'no tenant'}>"

    def __str__(self) -> str:
        """A few lines for a terminal."""
        lines = [f"host: {finding.detail}" for finding in self.host]
        for tenant in self.tenants:
            parts = [
                f"{name} {estimate.value:.2f}"
                for name in ("elapsed", "latency", "resident")
                if (estimate := getattr(tenant.slowdown, name)) is not None
            ]
            lines.append(f"{tenant.name}: {', '.join(parts) or tenant.missing}")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Solo:
    """What tenants are compared with, beside the replay of their own run."""

    baselines: tuple[Baseline, ...]
    summaries: Mapping[tuple[int, int], Summary]


def analyse(
    tables: TableSet,
    verdicts: Sequence[Verdict],
    baselines: Sequence[Baseline],
    summaries: Mapping[tuple[int, int], Summary],
    mps_groups: Mapping[int, frozenset[int]],
) -> tuple[DeviceInterference, ...]:
    """Answer for every device with a verdict.

    Parameters
    ----------
    tables
        A loaded tables, with or without baselines.
    mps_groups
        Clients of an MPS group that is time-sliced with others, by device: records name any client for all.

    Returns
    -------
    tuple of DeviceInterference
        By device, in the order of `verdicts`.

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).analysis
    >>> device = analyse(analysis.tables, analysis.verdicts, (), {}, {})[0]
    >>> [(tenant.name, tenant.slowed) for tenant in device.tenants]
    [('app_a', True), ('app_b', True)]
    """
    solo = _Solo(tuple(baselines), summaries)
    none: frozenset[int] = frozenset()
    return tuple(_device(tables, verdict, solo, mps_groups.get(verdict.device_id, none)) for verdict in verdicts)


def kernels_solo(tables: TableSet, interference: Sequence[DeviceInterference]) -> pl.DataFrame:
    """The table `slowdowns` without what was measured in recordings that were refused as baselines.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> kernels_solo(session.tables, session.interference()).height == session.slowdowns.height
    True
    """
    import polars as pl

    tenants = [tenant for device in interference for tenant in device.tenants]
    refused = [tenant.tenant_id for tenant in tenants if tenant.baseline is None]
    measured = pl.col("against").cast(pl.String) == "baseline"
    return tables.slowdowns.filter(~(measured & pl.col("tenant_id").is_in(refused)))


def speedup_over_serial(ran: Sequence[tuple[float, int, int]]) -> float:
    """Divide the time of solo runs, one after the other, by the time of the co-run.

    System throughput (STP) equals this only for tenants that ran during the whole window: a tenant that had the device
    to itself for most of its run has a small slowdown, which sharing did not bring about.

    Parameters
    ----------
    ran
        Elapsed slowdown, first and last time in nanoseconds of every tenant; at least one.

    Examples
    --------
    >>> speedup_over_serial([(2.0, 0, 1000), (2.0, 0, 1000)])
    1.0
    >>> speedup_over_serial([(1.0, 0, 1000), (1.0, 0, 1000)])
    2.0
    >>> speedup_over_serial([(1.25, 0, 1000), (2.5, 500, 1000)])  # 800 and 200 ns solo
    1.0
    """
    serial_ns = sum((last - first) / slowdown for slowdown, first, last in ran)
    # Time in which no tenant ran is not part of the co-run.
    co_run_ns, until = 0, min(first for _, first, _ in ran)
    for _, first, last in sorted(ran, key=lambda one: one[1]):
        co_run_ns += max(last - max(first, until), 0)
        until = max(until, last)
    return serial_ns / max(co_run_ns, 1)


def _device(tables: TableSet, verdict: Verdict, solo: _Solo, mps_group: frozenset[int]) -> DeviceInterference:
    rows = (
        tables.of_device("tenants", verdict.device_id)
        .join(tables.of_device("tenant_usage", verdict.device_id), on=["tenant_id", "device_id"])
        .sort("tenant_id")
    )
    here = rows.to_dicts()
    # The server's residency is its clients' own; it does no work that could be slowed.
    serving = {row["served_by"] for row in here if row["served_by"] is not None}
    many = sum(row["tenant_id"] not in serving for row in here) > 1
    groups = group_ids(tables, verdict.device_id)
    working = [row for row in here if row["tenant_id"] not in serving and row["tenant_id"] not in groups]
    tenants = [
        _tenant(tables, verdict, solo, row, many=many, mps_group=mps_group)
        for row in here
        if row["traced"] and row["busy_ns"] and row["tenant_id"] not in groups
    ]
    tenants = _with_co_run(tables, tenants, working)
    if groups:
        return _with_groups(tables, rows, verdict, solo, tenants)
    # One that is known from below only is none of a mean.
    elapsed = [e.value for t in tenants if (e := t.slowdown.elapsed) is not None and not e.from_below]
    antt = stp = jain = unfairness = speedup = None
    # One whose slowdown nobody knows would be missing from every sum.
    resident_ns = sum(row["resident_ns"] or 0 for row in here)
    others = any(
        (resident_ns if row["resident_ns"] is None else row["resident_ns"]) > NEGLIGIBLE_RESIDENCY * resident_ns
        for row in here
        if not row["traced"] and row["tenant_id"] not in serving
    )
    if many and not others and len(elapsed) == len(tenants) > 1:
        antt, stp, jain = device_figures(elapsed)
        spans = {row["tenant_id"]: (row["first_ns"], row["last_ns"]) for row in here}
        ran = [(t.slowdown.elapsed.value, *spans[t.tenant_id]) for t in tenants if t.slowdown.elapsed is not None]
        unfairness, speedup = max(elapsed) / min(elapsed), speedup_over_serial(ran)
    known = {t.tenant_id: t for t in tenants if t.slowdown.elapsed is not None or t.slowdown.latency is not None}
    figures = None
    if many and known:
        figures = Interference(
            antt=antt,
            stp=stp,
            jain=jain,
            matrix=[
                *_matrix(tables, known, mps_group, _of_time_slices(tables, verdict, mps_group)),
                *_from_residency(known),
            ],
            harmonic=None if antt is None else 1 / antt,
            unfairness=unfairness,
            speedup_over_serial=speedup,
            context_state=_context_state(tables, verdict.device_id),
        )
    return DeviceInterference(
        verdict.device_id,
        tuple(tenants),
        figures,
        _host(tables, rows, {tenant.tenant_id for tenant in tenants if tenant.slowed}, verdict.device_id, solo),
    )


def _with_co_run(
    tables: TableSet, tenants: Sequence[TenantInterference], rows: Sequence[dict[str, Any]]
) -> list[TenantInterference]:
    """The same with latency slowdowns while another tenant has work, where a counterfactual replay has these."""
    asked = {
        tenant.tenant_id: [
            row
            for row in tables.rows_where("tenant_slowdowns", "tenant_id", tenant.tenant_id)
            if (row["measure"], row["against"]) == ("latency", "counterfactual")
        ]
        for tenant in tenants
        if tenant.slowdown.latency is not None and not tenant.slowdown.latency.from_below and tenant.baseline is None
    }
    found = latencies_co_run(tables, rows, asked)

    def with_found(tenant: TenantInterference) -> TenantInterference:
        of_work = found.get(tenant.tenant_id, {})
        return replace(
            tenant,
            slowdown=tenant.slowdown.model_copy(update={"latency_co_run": of_work.get(None)}),
            units=tuple(one.model_copy(update={"latency_co_run": of_work.get(one.name)}) for one in tenant.units),
        )

    return [with_found(tenant) if tenant.tenant_id in asked else tenant for tenant in tenants]


def _with_groups(
    tables: TableSet,
    rows: pl.DataFrame,
    verdict: Verdict,
    solo: _Solo,
    processes: Sequence[TenantInterference],
) -> DeviceInterference:
    """Groups of work beside processes that are not divided. Their host is one and the same: nothing is said of it."""
    device_id = verdict.device_id
    held = {group: _against(tables, solo, group) for group in sorted(group_ids(tables, device_id))}
    found = between_groups(
        tables,
        device_id,
        time_sliced=TRAITS[verdict.mode].time_sliced is not False,
        solo={group: one for group in held if (one := _solo_run(tables, solo, group, held[group])) is not None},
    )
    groups = [
        TenantInterference(
            row["tenant_id"],
            row["name"],
            Slowdown(elapsed=None, latency=None, resident=found.slowdowns.get(row["tenant_id"])),
            baseline=against.baseline,
            notes=(*against.notes, *((NO_LATENCY,) if row["tenant_id"] in found.slowdowns else ())),
            missing=found.missing.get(row["tenant_id"]),
            baselines_not_used=against.not_used,
            is_group=True,
        )
        for row in rows.iter_rows(named=True)
        if row["tenant_id"] in found.slowdowns or row["tenant_id"] in found.missing
        for against in (held[row["tenant_id"]],)
    ]
    known = {one.tenant_id: one for one in processes if one.slowdown.elapsed or one.slowdown.latency}
    figures = None
    if known or found.slowdowns:
        figures = Interference(
            antt=None,
            stp=None,
            jain=None,
            matrix=[*found.matrix, *_matrix(tables, known, frozenset(), {})],
            speedup_over_serial=found.speedup_of_overlap,
            kernels=list(found.kernels),
            context_state=_context_state(tables, device_id),
        )
    tenants = sorted((*processes, *groups), key=lambda one: one.tenant_id)
    return DeviceInterference(device_id, tuple(tenants), figures, ())


def _solo_run(tables: TableSet, solo: _Solo, group: int, against: _Against) -> SoloRun | None:
    import polars as pl

    if against.kind != "baseline":
        return None
    match = tables.baseline_matches.filter((pl.col("tenant_id") == group) & pl.col("used")).row(0, named=True)
    return SoloRun(solo.baselines[match["baseline"]].tables, match["baseline_tenant_id"])


@dataclass(frozen=True)
class _Against:
    """Which comparison counts for a tenant: with a baseline or with the replay; and what was not used, and why."""

    kind: Literal["baseline", "counterfactual"] = "counterfactual"
    baseline: str | None = None
    not_used: tuple[BaselineNotUsed, ...] = ()
    notes: tuple[str, ...] = ()


def _against(tables: TableSet, solo: _Solo, tenant_id: int) -> _Against:
    match = next((row for row in tables.rows_where("baseline_matches", "tenant_id", tenant_id) if row["used"]), None)
    if match is None:
        matched = {row["baseline"] for row in tables.rows_where("baseline_matches", "used", value=True)}
        left = [one.path.name for number, one in enumerate(solo.baselines) if number not in matched]
        # Said of every tenant that has none: it may be the one that was meant.
        unlike = [
            BaselineNotUsed(
                baseline=name,
                reasons=["no-common-work"],
                detail=f"{name} matches no tenant: no kernel of it has the name, grid and block of any here (names in "
                "a pack are pseudonyms: pack both with one key)",
            )
            for name in left
        ]
        return _Against(not_used=tuple(unlike))
    baseline = solo.baselines[match["baseline"]]
    refuse, care = flags(tables, tenant_id, baseline.tables, match["baseline_tenant_id"])
    whose = (
        "assigned by --baseline"
        if match["named"]
        else f"{fmt.percent(match['likeness'], 0)} of the kernel time in common"
    )
    if match["same_name"] and not match["named"]:
        whose += ", same process name"
    if not refuse and (others := _other_baselines(tables, solo, match)):
        refuse["ambiguous"] = (
            f"{', '.join(others)} match as well, with another throughput; assign them with --baseline NAME=FILE and "
            "--tenant NAME=PID"
        )
    if refuse:
        return _Against(not_used=(not_used(baseline.path.name, refuse),))
    return _Against("baseline", baseline.path.name, (), (f"against {baseline.path.name} ({whose})", *care))


def _other_baselines(tables: TableSet, solo: _Solo, match: dict[str, Any]) -> list[str]:
    """Other baselines that fit a tenant as well as the one that was used, and that launched at another pace.

    Processes of one program have kernels and a name in common whatever their load is: which of two such recordings is
    whose, nobody can tell from them. Where they launched at one pace it does not matter.
    """
    import polars as pl

    if match["named"]:
        return []
    used = _throughput(solo.baselines[match["baseline"]].tables, match["baseline_tenant_id"])
    others = tables.baseline_matches.filter(
        (pl.col("tenant_id") == match["tenant_id"])
        & (pl.col("baseline") != match["baseline"])
        & (pl.col("likeness") >= match["likeness"] - AS_ALIKE)
        & (pl.col("same_name") == match["same_name"])
    )
    return [
        solo.baselines[row["baseline"]].path.name
        for row in others.iter_rows(named=True)
        if _differ(_throughput(solo.baselines[row["baseline"]].tables, row["baseline_tenant_id"]), used)
    ]


def _doubles(tables: TableSet, tenant_id: int) -> list[str]:
    """Others held against the recording of this tenant that launched at another pace, where nobody said whose it is.

    Its kernels are those of each of them; how long its program waits for work is that of one at most.
    """
    import polars as pl

    used = tables.baseline_matches.filter("used")
    match = used.row(by_predicate=pl.col("tenant_id") == tenant_id, named=True)
    if match["named"]:
        return []
    others = used.filter(
        pl.col("baseline") == match["baseline"],
        pl.col("baseline_tenant_id") == match["baseline_tenant_id"],
        pl.col("tenant_id") != tenant_id,
    )["tenant_id"]
    own = _throughput(tables, tenant_id)
    apart = [other for other in others if _differ(_throughput(tables, other), own)]
    return tables.tenants.filter(pl.col("tenant_id").is_in(apart))["name"].cast(pl.String).to_list()


def _throughput(tables: TableSet, tenant_id: int) -> float | None:
    """Kernels and whole graphs per nanosecond, from the first to the last; None: nothing that lasted was launched.

    Of a graph that was traced as a whole the kernels are not known: it counts as one launch.
    """
    import polars as pl

    launches = pl.col("kernels").sum() + pl.col("graph_launches").sum()
    span = pl.col("last_ns").max() - pl.col("first_ns").min()
    count, span_ns = tables.tenant_usage.filter(tenant_id=tenant_id).select(launches, span=span).row(0)
    return count / span_ns if count and span_ns else None


def _differ(one: float | None, other: float | None) -> bool:
    """Whether two throughputs differ; one that is not known is not known to equal another."""
    return one is None or other is None or abs(one / other - 1) > OTHER_PACE


def _tenant(
    tables: TableSet, verdict: Verdict, solo: _Solo, row: dict[str, Any], *, many: bool, mps_group: frozenset[int]
) -> TenantInterference:
    found = _from_recordings(tables, verdict, solo, row, many=many, mps_group=mps_group)
    # A saved report knows the time of the work but no kernel: it is second to any recording.
    summary = None if found.baseline is not None else solo.summaries.get((verdict.device_id, row["tenant_id"]))
    if summary is None or summary.source is None:
        return found
    notes = (*found.notes, *summary.notes)
    if summary.not_used is not None:
        found = replace(found, baselines_not_used=(*found.baselines_not_used, summary.not_used))
    elapsed, again = summary.elapsed, found.slowdown.elapsed
    if elapsed is None:
        return replace(found, notes=notes)
    if again is not None and _width(elapsed) > MUCH_WIDER * _width(again) + 0.1 and _waits_for_work(tables, row):
        return replace(found, notes=(*notes, ELAPSED_IS_ARRIVALS))
    slowdown = found.slowdown.model_copy(update={"elapsed": elapsed})
    return replace(found, slowdown=slowdown, baseline=summary.source, missing=None, notes=notes)


def _from_recordings(
    tables: TableSet, verdict: Verdict, solo: _Solo, row: dict[str, Any], *, many: bool, mps_group: frozenset[int]
) -> TenantInterference:
    comparison = _against(tables, solo, row["tenant_id"])
    found = _slowed(tables, verdict, solo, row, comparison, many=many, mps_group=mps_group)
    if comparison.not_used:
        found = replace(found, baselines_not_used=comparison.not_used)
    units = how_many_counted(tables, row, {one.name: one.latency for one in found.units})
    return replace(found, notes=(*found.notes, *units)) if units else found


def _far_below(elapsed: Estimate) -> bool:
    """Whether the lower end of an inferred interval is far from its value, and the upper end is not."""
    if elapsed.basis != "inferred" or not elapsed.low or elapsed.high is None:
        return False
    down, up = math.log(elapsed.value / elapsed.low), math.log(elapsed.high / elapsed.value)
    return down > _FAR_BELOW and down > 2 * up


def _held_back(verdict: Verdict, elapsed: Estimate) -> bool:
    """Whether a limiter, rather than the others, may have taken what a replay takes away."""
    limited = TRAITS[verdict.mode].limited and elapsed.basis == "inferred"
    return limited and elapsed.low is not None and elapsed.low > 1


def _behind_limiter(estimates: Mapping[str, Estimate | None]) -> tuple[dict[str, Estimate | None], bool]:
    """Estimates by measure, from below where the replay found nothing, and whether there are such.

    It takes what a host waits for a limiter as the host's own time: solo it may wait less.
    """
    bounds = {
        measure: one.model_copy(update={"low": one.value, "high": None})
        for measure, one in estimates.items()
        if measure != "resident" and one is not None and one.low is not None and one.low < 1
    }
    return {**estimates, **bounds}, bool(bounds)


def _slowed(
    tables: TableSet,
    verdict: Verdict,
    solo: _Solo,
    row: dict[str, Any],
    comparison: _Against,
    *,
    many: bool,
    mps_group: frozenset[int],
) -> TenantInterference:
    number, name = row["tenant_id"], row["name"]
    against, baseline, notes = comparison.kind, comparison.baseline, list(comparison.notes)
    refused = [one.detail for one in comparison.not_used]
    mine = tables.rows_where("tenant_slowdowns", "tenant_id", number)
    found = {r["measure"]: r for r in mine if r["work"] is None and r["against"] == against}
    again = {r["measure"]: r for r in mine if r["work"] is None and r["against"] == "counterfactual"}
    if not many and against == "counterfactual":
        rare = verdict.condition is Condition.UNLESS_RARE_TENANT
        which = "one that ran occasionally or briefly" if rare else "an unknown one"
        why = f"no other tenant is known on the device; a solo recording would show whether {which} slowed it"
        return TenantInterference(number, name, _NOT_KNOWN, missing=why, notes=tuple(refused))
    own = mps_group if number in mps_group else frozenset({number})
    held = bool(mps_group & own) or row["resident_ns"] is not None or _server_held(tables, row)
    if "none" in found:
        return _from_lost_time(tables, verdict, row, own, found["none"]["reason"], refused, held=held)
    if found and not any(r["n"] for r in found.values()):
        return _from_lost_time(tables, verdict, row, own, ALL_CUT, refused, held=held)
    lost = _lost_records(tables)
    if against == "counterfactual" and held and lost is not None:
        return _from_lost_time(tables, verdict, row, own, lost, refused, held=held)
    notes += [r["reason"] for r in list(found.values())[:1] if r["reason"]]
    notes += _of_latency(tables, number, against, found)
    estimates = {measure: _estimate(found.get(measure)) for measure in ("elapsed", "latency", "resident")}
    resident = estimates["resident"]
    if against == "counterfactual" and resident is not None and resident.value == 1:
        # The replay took each execution as it was recorded: that is no measurement, and has no interval.
        estimates["resident"] = resident.model_copy(update={"low": None, "high": None})
    other = _estimate(again.get("elapsed"))
    wide = _width(estimates["elapsed"]) > MUCH_WIDER * _width(other) + 0.1
    elapsed_row = found.get("elapsed")
    # A replay without other tenants equals the run: it tells nothing of unknown tenants.
    played = other is not None and many
    if against == "baseline" and (doubles := _doubles(tables, number)):
        estimates["elapsed"], elapsed_row = (other, again["elapsed"]) if played else (None, None)
        notes.append(
            f"elapsed: not from {baseline}, because {', '.join(doubles)} match as well, with another throughput; "
            "assign it with --baseline NAME=FILE"
        )
    elif against == "baseline" and wide and played and _waits_for_work(tables, row):
        estimates["elapsed"], elapsed_row = other, again["elapsed"]
        notes.append(ELAPSED_IS_ARRIVALS)
    paused = None
    if elapsed_row is not None and elapsed_row["against"] == "counterfactual" and elapsed_row["n"]:
        paused = pauses_solo(tables, row, elapsed_row["solo_ns"] / elapsed_row["n"])
    if paused is not None:
        estimates["elapsed"] = elapsed_row = None
        notes.append(f"elapsed: not known. It made {fmt.count(paused)} {PAUSED_SOLO}")
    elapsed = estimates["elapsed"]
    if elapsed is not None and _held_back(verdict, elapsed):
        estimates["elapsed"] = elapsed.model_copy(update={"low": 1.0})
        notes.append(LIMITED)
    elif elapsed is not None and _far_below(elapsed):
        notes.append(SLEEPS_UNTIL)
    elif elapsed is not None and elapsed.from_below:
        notes.append(MAY_HAVE_WAITED)
    if TRAITS[verdict.mode].limited and against == "counterfactual":
        estimates, behind_limiter = _behind_limiter(estimates)
        notes += [WAITS_FOR_LIMITER] * behind_limiter
    assumed_ns = assumed_switch_ns(tables, row) if against == "counterfactual" else None
    if assumed_ns is not None:
        share = assumed_ns / row["attributed_ns"]
        if share >= SMALL_SHARE:
            latency = found.get("latency")
            without = ""
            if latency is not None and latency["solo_ns"]:
                # What the records alone show stands beside what is assumed: it is the least of the two.
                least = latency["shared_ns"] / (latency["solo_ns"] + assumed_ns)
                without = f". Without that assumption its kernel latency is {fmt.ratio(least)}"
            notes.append(
                f"while its context was resident, {fmt.duration(assumed_ns)} ({fmt.percent(share)}) count as saving "
                "and restoring inside kernels, assumed as on other boards: no record and too few kernels show "
                f"it{without}"
            )
    if lost is not None:
        estimates["resident"] = None
        notes.append(f"execution: not known, {lost}")
    blind = not held and _may_be_switched_out(verdict)
    if blind:
        # A kernel that was switched out cannot be told from one that ran slowly.
        estimates["resident"] = None
        notes.append("execution: not known without switch records, because kernel durations include time switched out")
    throughput = None
    if elapsed_row is not None and elapsed_row["solo_ns"] and elapsed_row["n"] >= ENOUGH:
        n = 1e9 * elapsed_row["n"]
        throughput = Throughput(shared_per_s=n / elapsed_row["shared_ns"], solo_per_s=n / elapsed_row["solo_ns"])
    shares, added_ns = _shares_of_causes(tables, number, against, "share")
    roots = None
    if not blind:
        roots, _ = _shares_of_causes(tables, number, against, "root_share")
    elif shares is not None:
        shares = _not_told_apart(shares, others=many or _others_shown(verdict))
    split: ExecutionSplit | None = None
    reasons: dict[str, str] = {}
    hows: dict[str, str] = {}
    if shares is not None and not blind:
        alone, alone_id = _alone(tables, solo, number) if against == "baseline" else (None, None)
        same_sms = TRAITS[verdict.mode].same_sms
        if (parts := split_execution(tables, number, against, alone, alone_id, same_sms=same_sms)) is not None:
            split, reasons, hows = parts
    return TenantInterference(
        number,
        name,
        Slowdown(elapsed=estimates["elapsed"], latency=estimates["latency"], resident=estimates["resident"]),
        _latency_percentiles(found),
        throughput,
        None if shares is None else Causes(**shares, execution_split=split),
        added_ns,
        _added_per_kernel(found.get("latency")),
        baseline,
        (*refused, *notes),
        units=_units(r for r in mine if r["work"] is not None and r["against"] == against),
        execution_reasons=reasons,
        execution_hows=hows,
        root_causes=None if roots is None else Causes(**roots, execution_split=None),
        assumed_switch_ns=assumed_ns,
        not_compared=_not_compared(tables, row, found.get("latency"), *_alone(tables, solo, number))
        if against == "baseline"
        else None,
        added_latency=_added_latency(tables, row, found, assumed_ns or 0)
        if against == "counterfactual" and row["resident_ns"] is not None and lost is None
        else None,
    )


def _not_compared(
    tables: TableSet,
    tenant: Mapping[str, Any],
    latency: Mapping[str, Any] | None,
    alone: TableSet | None,
    alone_id: int | None,
) -> NotCompared | None:
    """Count what a latency against a baseline leaves out; None: nothing, or the baseline has no tables."""
    import polars as pl

    if latency is None or alone is None or alone_id is None:
        return None
    size = [f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"]

    def of(run: TableSet, who: Mapping[str, Any]) -> pl.DataFrame:
        key = ("capture", "pid", "device_id")
        mine = run.columns("kernels", *key, "name", *size).filter(of_process(who), device_id=who["device_id"])
        return mine.select(pl.col("name").cast(pl.String), *size)

    kernels = of(tables, tenant)
    graphs = tables.columns("graph_launches", "capture", "pid", "device_id").filter(
        of_process(tenant), device_id=tenant["device_id"]
    )
    whole = kernels.height + graphs.height
    out = whole - latency["n"] - (latency["excluded"] or 0)
    if whole <= latency["n"] or out < 0:
        return None
    theirs = of(alone, alone.tenants.row(alone_id, named=True)).unique()
    no_like = min(kernels.join(theirs, on=["name", *size], how="anti", nulls_equal=True).height, out)
    return NotCompared(
        kernels=whole, before_work=out - no_like, no_like=no_like, launch=min(latency["excluded"] or 0, whole)
    )


def _added_latency(
    tables: TableSet, tenant: Mapping[str, Any], found: Mapping[str, dict[str, Any]], saving_ns: int
) -> AddedLatency | None:
    """Divide the latency that the replay takes away by whether kernels had started."""
    import polars as pl

    latency, ran = found.get("latency"), found.get("resident")
    # Of kernels that ran longer as well, or that are not compared, no record has the parts.
    if latency is None or ran is None or latency["excluded"] or ran["shared_ns"] != ran["solo_ns"]:
        return None
    if latency["shared_ns"] is None or latency["solo_ns"] is None:
        return None
    kernels = out_kernels = out_ns = 0
    for part in tables.batches("kernel_attribution", "tenant_id", "switched_out_ns"):
        out = part.filter(pl.col("tenant_id") == tenant["tenant_id"])["switched_out_ns"]
        kernels, out_kernels, out_ns = kernels + out.len(), out_kernels + int((out > 0).sum()), out_ns + int(out.sum())
    before_ns = latency["shared_ns"] - latency["solo_ns"] - out_ns - saving_ns
    if kernels != latency["n"] or before_ns < 0:
        return None
    return AddedLatency(
        kernels=latency["n"],
        shared_ns=latency["shared_ns"],
        solo_ns=latency["solo_ns"],
        before_start_ns=before_ns,
        switched_out_ns=out_ns,
        switched_out_kernels=out_kernels,
        saving_ns=saving_ns,
    )


def _of_latency(tables: TableSet, tenant_id: int, against: str, found: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """What to know when reading a latency: where it begins, and that a tenant may queue less behind itself."""
    latency, elapsed = found.get("latency"), found.get("elapsed")
    if latency is None:
        return
    nodes, kernels = graph_nodes(tables, tenant_id)
    if kernels and nodes / kernels >= NOTABLE_GRAPHS:
        share = fmt.percent(nodes / kernels)
        yield f"latency begins at the launch of the graph: {share} of its kernels are nodes of CUDA graphs"
    if elapsed is None or latency["high"] is None or latency["high"] >= 1 or elapsed["value"] < 1:
        return
    rows = tables.rows_where("causes", "tenant_id", tenant_id)
    queued = [row for row in rows if (row["against"], row["cause"]) == (against, "queue_same_tenant")]
    for row in queued:
        if row["solo_ns"] > row["shared_ns"]:
            solo, shared = (fmt.duration(row[side] / latency["n"]) for side in ("solo_ns", "shared_ns"))
            yield (
                f"latency below 1x is no gain: a kernel waited {shared} behind kernels of its own tenant, {solo} solo "
                "(means). Elapsed time says whether the tenant was slowed"
            )


def _added_per_kernel(latency: dict[str, Any] | None) -> float | None:
    """How much longer a kernel took from launch to end than solo, on average; None: not known."""
    if latency is None or None in (latency["shared_ns"], latency["solo_ns"]) or not latency["n"]:
        return None
    return float((latency["shared_ns"] - latency["solo_ns"]) / latency["n"])


def _alone(tables: TableSet, solo: _Solo, tenant_id: int) -> tuple[TableSet | None, int | None]:
    """The baseline that a tenant is held against, and its number there."""
    match = next((row for row in tables.rows_where("baseline_matches", "tenant_id", tenant_id) if row["used"]), None)
    if match is None:
        return None, None
    return solo.baselines[match["baseline"]].tables, int(match["baseline_tenant_id"])


def _latency_percentiles(rows: dict[str, dict[str, Any]]) -> list[LatencyPercentile]:
    return [
        LatencyPercentile(
            percentile=percentile,
            shared_ns=rows[key]["shared_ns"],
            solo_ns=rows[key]["solo_ns"],
            ratio=rows[key]["shared_ns"] / rows[key]["solo_ns"],
        )
        for percentile in (50, 95, 99)
        if (key := f"latency_p{percentile}") in rows and rows[key]["n"] >= ENOUGH
    ]


def _units(rows: Iterable[dict[str, Any]]) -> tuple[UnitsOfWork, ...]:
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["work"], {})[row["measure"]] = row
    found = [
        (
            measures["latency"]["shared_ns"],
            UnitsOfWork(name=name, latency=estimate, latency_percentiles=_latency_percentiles(measures)),
        )
        for name, measures in by_name.items()
        if (estimate := _estimate(measures.get("latency"))) is not None
    ]
    return tuple(units for _, units in sorted(found, key=lambda pair: (-pair[0], pair[1].name)))


def _waits_for_work(tables: TableSet, row: dict[str, Any]) -> bool:
    """Whether a tenant is idle for most of its time, and not because something holds its launches back."""
    import polars as pl

    span_ns = max(row["last_ns"] - row["first_ns"], 1)
    calls = None if row["busy_ns"] > span_ns / 2 else tables.calls()
    if calls is None:
        return False
    length = pl.col("end_ns") - pl.col("start_ns")
    # Few calls are long: the others need no look at their names.
    held = calls.filter(length > HELD_NS).filter(
        pl.col("capture") == row["capture"],
        pl.col("pid").eq_missing(row["pid"]),
        pl.col("name").cast(pl.String).str.contains("Launch"),
    )
    return bool(int(held.select(length.sum()).item()) < 0.05 * span_ns)


def _lost_records(tables: TableSet) -> str | None:
    """Say when so many switch records are missing that residency has gaps."""
    counted = tables.rows_where("quality", "name", "switch_events_lost")
    lost, slices = sum(row["count"] for row in counted), tables.row_count("residency")
    if lost <= 0.02 * slices:
        return None
    return f"{lost} switch records were lost, so residency has gaps"


def _server_held(tables: TableSet, row: dict[str, Any]) -> bool:
    if row["served_by"] is None:
        return False
    server = tables.rows_where("tenant_usage", "tenant_id", row["served_by"])
    return any(one["resident_ns"] is not None for one in server)


def _width(estimate: Estimate | None) -> float:
    if estimate is None or not estimate.low or not estimate.high:
        return math.inf
    return math.log(estimate.high / estimate.low)


def _estimate(row: dict[str, Any] | None) -> Estimate | None:
    if row is None or row["value"] is None:
        return None
    return Estimate(value=row["value"], low=row["low"], high=row["high"], n=row["n"], basis=row["basis"])


def _from_lost_time(
    tables: TableSet,
    verdict: Verdict,
    row: dict[str, Any],
    own: frozenset[int],
    reason: str,
    refused: list[str],
    *,
    held: bool,
) -> TenantInterference:
    """Bounds from residency and switches of others alone, where tenants are time-sliced; else nothing."""
    import polars as pl

    number, name = row["tenant_id"], row["name"]
    if TRAITS[verdict.mode].time_sliced and held and row["first_ns"] is not None:
        if (server := row["served_by"]) is not None:
            # Records name the server or any of its clients for the context of all.
            own = own.union([server], tables.tenants.filter(pl.col("served_by") == server)["tenant_id"])
        lost = lost_time(tables, row, own)
        if (latency := lost.slowdown) is not None:
            slowdown = Slowdown(elapsed=None, latency=latency, resident=None)
            notes = (
                *refused,
                f"latency counts only the time in which others were resident or switched, as a lower bound: {reason}",
            )
            shares = {other: ns / lost.lost_ns for other, ns in sorted(lost.by_tenant.items())}
            return TenantInterference(number, name, slowdown, notes=notes, lost_to=shares)
    return TenantInterference(number, name, _NOT_KNOWN, missing=reason, notes=tuple(refused))


def _shares_of_causes(
    tables: TableSet, number: int, against: str, column: str
) -> tuple[dict[str, float | None] | None, int | None]:
    """Shares of the added latency, and the added latency."""
    rows = [row for row in tables.rows_where("causes", "tenant_id", number) if row["against"] == against]
    if not rows:
        return None, None
    added_ns = sum(row["added_ns"] or 0 for row in rows)
    shares = {row["cause"]: row[column] for row in rows}
    if any(share is None for share in shares.values()):
        return None, added_ns
    causes: dict[str, float | None] = {
        "launch": shares["launch"],
        "queue": shares["queue_same_tenant"] + shares["queue_other_tenant"],
        "queue_other": shares["queue_other_tenant"],
        "not_resident": shares["not_resident"],
        "switch": shares["switch"],
        "execution": shares["execution"],
        "unexplained": 0.0,
    }
    return causes, added_ns


def _may_be_switched_out(verdict: Verdict) -> bool:
    """Whether its tenants are time-sliced, or may be: with each other, or with a process that was not traced."""
    open_ = verdict.mode is Mode.UNDETERMINED or verdict.condition is Condition.UNLESS_UNTRACED_TENANT
    return open_ or bool(TRAITS[verdict.mode].time_sliced)


def _others_shown(verdict: Verdict) -> bool:
    """Whether time slices of others are known to be there, beside a process that alone was traced."""
    slices = "kernel_durations_inflated_by_slices"
    return bool(TRAITS[verdict.mode].time_sliced) or any(one.name == slices for one in verdict.evidence)


def _not_told_apart(shares: Mapping[str, float | None], *, others: bool) -> dict[str, float | None]:
    """Give all but the launch call as one sum: without residency time switched out hides in every other part.

    A kernel queues behind one of its own that was switched out, and is itself longer for it.
    """
    launch = shares["launch"]
    rest = None if launch is None else 1 - launch
    found: dict[str, float | None] = {**dict.fromkeys(shares), "launch": launch}
    return {**found, "others": rest, "unexplained": 0.0} if others else {**found, "unexplained": rest}


def _of_time_slices(
    tables: TableSet, verdict: Verdict, mps_group: frozenset[int]
) -> Mapping[tuple[int, int], float | None]:
    """By victim and aggressor the part of the time that others took, where tenants are time-sliced and three or more.

    What the victim would take beside one of them alone is not this part of what was added: the other's time slices go
    to both. Without records an aggressor is resident for the same part of its time in flight whoever waits.
    """
    import polars as pl

    if not TRAITS[verdict.mode].time_sliced or mps_group:
        return {}
    of_device = pl.col("device_id") == verdict.device_id
    recorded = tables.tenant_usage.filter(of_device).select(
        "tenant_id", "busy_ns", pl.col("resident_ns").alias("recorded_ns")
    )
    pairs = (
        tables.pairwise_interference.filter(of_device)
        .group_by("victim", "aggressor")
        .agg(pl.col("exposure_ns").max())
        .join(recorded, left_on="aggressor", right_on="tenant_id")
    )
    several = pl.len().over("victim") > 1
    if pairs.filter(several | pl.col("recorded_ns").is_null()).is_empty():
        return {}
    inferred = dict(tables.residency_by_tenant.filter(of_device).select("tenant_id", "resident_ns").iter_rows())
    inferred_ns = pl.col("aggressor").replace_strict(inferred, default=None, return_dtype=pl.Int64)
    # Exposure is to residency where records have it, else to work in flight.
    density = pl.when(pl.col("recorded_ns").is_null()).then(inferred_ns / pl.col("busy_ns")).otherwise(1.0)
    took = pl.col("exposure_ns") * density
    known = took.is_not_null().all().over("victim") & (took.sum().over("victim") > 0)
    share = pl.when(known).then(took / took.sum().over("victim"))
    rows = pairs.filter(several).select("victim", "aggressor", share.alias("share")).rows()
    alone = pairs.filter(~several, pl.col("recorded_ns").is_null()).select("victim", "aggressor")
    for victim, aggressor in alone.iter_rows():
        if not tables.paths:
            break
        # One that was not traced may take time slices as well.
        row = tables.rows_where("tenants", "tenant_id", victim)[0]
        others_ns = _pending_ns(tables, row, _launch_calls(tables, row)) - inferred.get(victim, 0)
        if aggressor in inferred and inferred[aggressor] < ONLY_OTHER * others_ns:
            rows.append((victim, aggressor, inferred[aggressor] / others_ns))
    return {(victim, aggressor): share for victim, aggressor, share in rows}


def _matrix(
    tables: TableSet,
    known: dict[int, TenantInterference],
    mps_group: frozenset[int],
    of_time_slices: Mapping[tuple[int, int], float | None],
) -> list[MatrixCell]:
    """How much each tenant slowed each other one, where that can be told."""
    import polars as pl

    cells = []
    # How many other tenants each one has; servers of MPS run nothing of their own.
    here = tables.tenants.filter(~pl.col("tenant_id").is_in(tables.tenants["served_by"].drop_nulls().implode()))
    victims = dict(here.select("tenant_id", pl.len().over("device_id") - 1).iter_rows())
    for row in tables.pairwise_interference.with_columns(pl.col("against").cast(pl.String)).iter_rows(named=True):
        victim = known.get(row["victim"])
        if victim is None or row["against"] != ("counterfactual" if victim.baseline is None else "baseline"):
            continue
        # What is known from residency is divided by residency: one figure for a pair.
        if victim.lost_to:
            continue
        together = sorted(mps_group - {row["aggressor"]})
        if row["aggressor"] in mps_group and row["victim"] not in mps_group and together:
            # A time slice goes to the context of all clients, and is as long while one of them has work.
            cells.append(
                MatrixCell(
                    victim=row["victim"],
                    aggressor=row["aggressor"],
                    slowdown=None,
                    low=None,
                    high=None,
                    n=row["n"],
                    inseparable_from=together[0] if victim.slowed else None,
                )
            )
            continue
        pair = row["victim"], row["aggressor"]
        if pair in of_time_slices and victim.slowed:
            cells.append(_of_others(*pair, of_time_slices[pair], row["n"]))
            continue
        elapsed, latency = victim.slowdown.elapsed, victim.slowdown.latency
        # Of a victim that was not slowed there is no aggressor, and that can be told.
        share = row["share"] if victim.slowed else 0.0
        low, high = (row["share_low"], row["share_high"]) if victim.slowed else (None, None)
        if victims[row["victim"]] == 1:
            # With one other tenant this is the slowdown of the victim: one quantity, one number.
            share, low, high = 1.0, None, None
        ends = _ends(elapsed, share, (low, high))
        cells.append(
            MatrixCell(
                victim=row["victim"],
                aggressor=row["aggressor"],
                slowdown=_of(elapsed, share),
                low=min(ends, default=None),
                high=max(ends, default=None),
                n=row["n"],
                latency=_of(latency, share),
                inseparable_from=row["inseparable_from"] if victim.slowed else None,
            )
        )
    return cells


def _from_residency(known: dict[int, TenantInterference]) -> list[MatrixCell]:
    """Who was resident in the time that is all that is known of a victim."""
    return [
        _of_others(victim.tenant_id, aggressor, share, latency.n)
        if len(victim.lost_to) > 1
        else MatrixCell(
            victim=victim.tenant_id,
            aggressor=aggressor,
            slowdown=None,
            low=None,
            high=None,
            n=latency.n,
            latency=_of(latency, share),
        )
        for victim in known.values()
        if (latency := victim.slowdown.latency) is not None
        for aggressor, share in victim.lost_to.items()
    ]


def _of_others(victim: int, aggressor: int, share: float | None, n: int) -> MatrixCell:
    """One of several others that are time-sliced: its part of the time that they took."""
    return MatrixCell(victim=victim, aggressor=aggressor, slowdown=None, low=None, high=None, n=n, share=share)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _of(whole: Estimate | None, share: float | None) -> float | None:
    """The slowdown that a share of what was added makes."""
    return None if whole is None or share is None else 1 + share * (whole.value - 1)


def _ends(whole: Estimate | None, share: float | None, shares: tuple[float | None, float | None]) -> list[float]:
    """What the ends of either interval make: of the slowdown (hosts may have slept anyway), and of the share of it."""
    if whole is None or not share:
        return []
    found = [_of(whole, end) for end in shares]
    # Not by way of the difference from 1 where it is all of the slowdown: one quantity, one number.
    found += [end if share == 1 or end is None else 1 + share * (end - 1) for end in (whole.low, whole.high)]
    return [end for end in found if end is not None]


def _context_state(tables: TableSet, device_id: int) -> ContextState | None:
    rows = tables.rows_of("context_state", device_id)
    return ContextState.model_validate({name: rows[0][name] for name in ContextState.model_fields}) if rows else None


def _mean_launch_ns(tables: TableSet, solo: _Solo, tenant_id: int) -> float | None:
    """Mean length of a launch call in the baseline; None: there is none."""
    alone, number = _alone(tables, solo, tenant_id)
    if alone is None or number is None:
        return None
    count, total_ns = alone.calls_named(alone.tenants.row(number, named=True), "Launch")
    return None if count < ENOUGH else total_ns / count


def _host(
    tables: TableSet, rows: pl.DataFrame, slowed: set[int], device_id: int, solo: _Solo
) -> tuple[HostFinding, ...]:
    """What lies with the host: launches that take long or are held back, a GPU that waits for work.

    Idleness of a tenant that others did slow says nothing: a service waits for requests. Where nsys recorded when
    threads were scheduled, a finding says how much of it they were off the CPU.
    """
    if not tables.paths:
        return ()
    labels = tables.labels(device_id)
    runs = tables.cpu_runs()
    found: list[HostFinding] = []
    several = rows.filter("traced").height > 1
    for row in rows.filter("traced").iter_rows(named=True):
        # There may be millions of calls: of most only how long they took in all is looked at.
        count, launch_ns = tables.calls_named(row, "Launch")
        wait_ns = tables.calls_named(row, "Synchronize|cudaMemcpy_").total_ns
        if count < 20 or not row["busy_ns"]:
            continue
        who, span_ns = labels[row["tenant_id"]], max(row["last_ns"] - row["first_ns"], 1)
        # Copies keep a GPU as busy as kernels: launches behind them wait in the queue, not on the host.
        work_ns = row["busy_ns"] + (row["copy_only_ns"] or 0)
        # A GPU that is busy all the same does not wait for its host; its queue is full, which is no limiter.
        if launch_ns > NOTABLE_HOST * span_ns and work_ns < (1 - NOTABLE_HOST) * span_ns:
            found += _launches(tables, row, who, (span_ns, work_ns), _launch_calls(tables, row), runs, solo)
        if not several:
            continue  # the time split says it of the only process of a device
        waited = wait_ns / span_ns
        idle = 1 - work_ns / span_ns
        if row["tenant_id"] not in slowed and idle > 1 - NOTABLE_HOST and waited < NOTABLE_HOST:
            # A launched kernel that waits for another tenant is no idleness, whether or not the host waits for it.
            idle = 1 - _pending_ns(tables, row, _launch_calls(tables, row)) / span_ns
        if row["tenant_id"] not in slowed and idle > 1 - NOTABLE_HOST and waited < NOTABLE_HOST:
            between = _between(_launch_calls(tables, row))
            text = (
                f"{who} had no work on the GPU for {fmt.percent(idle)} of its time and waited for the GPU in "
                f"{fmt.percent(waited)}: if "
                f"it is slow, the host is the cause (or it had no "
                f"requests){_off_cpu(between, runs, 'between its launches its threads')}"
            )
            found.append(HostFinding(tenant_id=row["tenant_id"], what="idle between launches", detail=text, share=idle))
    return tuple(sorted(found, key=lambda finding: -finding.share))


def _launches(
    tables: TableSet,
    row: Mapping[str, Any],
    who: str,
    window: tuple[int, int],
    launches: pl.LazyFrame,
    runs: pl.DataFrame | None,
    solo: _Solo,
) -> Iterator[HostFinding]:
    """Launch calls that take a notable part of a tenant's time: held back, slow now and then, or slower than solo.

    `window` is the tenant's time, and of it that of its work.
    """
    import polars as pl

    tenant_id, (span_ns, work_ns) = row["tenant_id"], window
    length_ns = pl.col("end_ns") - pl.col("start_ns")
    lengths_ns = launches.select(length_ns.alias("ns")).collect()["ns"]
    usual_ns, longest_ns, mean_ns = (_number(of) for of in (lengths_ns.median(), lengths_ns.max(), lengths_ns.mean()))
    most = max(HELD_NS, HELD_TIMES * usual_ns)
    are_held, are_slow = length_ns > most, (length_ns > SLOW_TIMES * usual_ns) & (length_ns <= most)
    held = lengths_ns.filter(lengths_ns > most)
    slow = lengths_ns.filter((lengths_ns > SLOW_TIMES * usual_ns) & (lengths_ns <= most))
    held_part, slow_part = int(held.sum()) / span_ns, int(slow.sum()) / span_ns
    usual, busy = f"usually {fmt.duration(usual_ns)}", fmt.percent(work_ns / span_ns)
    if held_part > NOTABLE_HOST:
        text = (
            f"{len(held)} of {len(lengths_ns)} launch calls of {who} took {fmt.duration(int(held.sum()) / len(held))} "
            f"on average ({usual}), {fmt.percent(held_part)} of its time; they are blocked on the host (a limiter, a "
            f"full queue, a lock){_off_cpu(launches.filter(are_held), runs)}"
        )
        yield HostFinding(tenant_id=tenant_id, what="blocked launches", detail=text, share=held_part)
    if slow_part > NOTABLE_HOST:
        text = (
            f"{len(slow)} of {len(lengths_ns)} launch calls of {who} took more than {SLOW_TIMES} times the {usual} "
            f"(longest {fmt.duration(longest_ns)}), {fmt.percent(slow_part)} of its time. Its work kept the GPU busy "
            f"for {busy}: the host is slow, not the GPU{_off_cpu(launches.filter(are_slow), runs)}"
        )
        yield HostFinding(tenant_id=tenant_id, what="slow launches", detail=text, share=slow_part)
    solo_ns = _mean_launch_ns(tables, solo, tenant_id)
    if solo_ns and mean_ns > SLOWER_CALLS * solo_ns:
        lost = (mean_ns - solo_ns) * len(lengths_ns) / span_ns
        if lost > NOTABLE_HOST:
            text = (
                f"launch calls of {who} take {fmt.duration(mean_ns)} on average, {fmt.duration(solo_ns)} in the solo "
                f"recording: {fmt.percent(lost)} of its time. Its work kept the GPU busy for {busy}: the host is slow "
                f"(too few CPUs, a lock in the driver), not the GPU{_off_cpu(launches, runs)}"
            )
            yield HostFinding(tenant_id=tenant_id, what="slower calls than solo", detail=text, share=lost)


def _launch_calls(tables: TableSet, process: Mapping[str, Any]) -> pl.LazyFrame:
    """Rows of the launch calls of a process."""
    calls = tables.calls()
    if calls is None:
        return empty_frame("api_calls").lazy()
    return calls.lazy().filter(of_process(process), named(calls.select("name").unique(), "Launch"))


def _pending_ns(tables: TableSet, tenant: Mapping[str, Any], launches: pl.LazyFrame) -> int:
    """How long any kernel of a tenant was under way: from its launch call to its end."""
    import polars as pl

    kernels = tables.kernels.filter(of_process(tenant) & (pl.col("device_id") == tenant["device_id"]))
    begun = launches.group_by("correlation_id").agg(pl.col("start_ns").min()).collect()
    return covered_ns(kernels.select("correlation_id", "end_ns").join(begun, on="correlation_id"))


def _between(launches: pl.LazyFrame) -> pl.LazyFrame:
    """From each launch of a thread to its next."""
    import polars as pl

    thread = ["capture", "pid", "tid"]
    until = pl.col("start_ns").shift(-1).over(thread, order_by="start_ns")
    spans = launches.select(*thread, pl.col("end_ns").alias("start_ns"), until.alias("end_ns"))
    return spans.filter(pl.col("end_ns") > pl.col("start_ns"))


def _off_cpu(calls: pl.LazyFrame, runs: pl.DataFrame | None, what: str = "during these calls their threads") -> str:
    """How much of the time of some threads was off the CPU, to append; nothing where nobody recorded that."""
    import polars as pl

    if runs is None:
        return ""
    spans = calls.select("capture", "pid", "tid", "start_ns", "end_ns").collect()
    spans = spans.with_columns(on_cpu_ns(runs, spans))
    known = spans.filter(pl.col("on_cpu_ns").is_not_null())
    all_ns = int((known["end_ns"] - known["start_ns"]).sum())
    if all_ns <= 0 or known.height * 2 < spans.height:
        return ""
    off = 1 - int(known["on_cpu_ns"].sum()) / all_ns
    why = "they slept, or waited for a lock or a CPU" if off > NOTABLE_HOST else "they could have run"
    return f"; {what} were off the CPU for {fmt.percent(off)} of the time: {why}"
