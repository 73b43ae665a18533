"""From an analysis to the JSON contract: every key is filled from a table, or is null with a reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyanalyze.analysis.advice.settings import without_effect
from pyanalyze.analysis.association import associations
from pyanalyze.analysis.gpu_metrics import gpu_metrics_of
from pyanalyze.analysis.impact import impact_of
from pyanalyze.analysis.interference import NO_LATENCY
from pyanalyze.analysis.mps_daemon import PIPE, daemon_on
from pyanalyze.analysis.occupancy import (
    GridLimit,
    bounded_means,
    grid_fill,
    in_flight_ns,
    model_in_passing,
    most_active,
    whole_graphs_share,
)
from pyanalyze.analysis.range_phases import range_phases
from pyanalyze.analysis.residency import named_for_all, recorded_ns
from pyanalyze.analysis.sampled import sampled_of
from pyanalyze.analysis.sharing.facts import pairs_of
from pyanalyze.analysis.sharing.groups import relation_in_process
from pyanalyze.analysis.sharing.missing import HOW, lost_launches
from pyanalyze.core import _core
from pyanalyze.nsys_tool import COUNTERS_NEED, TRACE, client_options, clients_only, record_all, recording
from pyanalyze.report.sentences.cause import why_sharing
from pyanalyze.report.sentences.co_run import co_run_part
from pyanalyze.report.shown import MOST_TENANTS
from pyanalyze.results.advice import MigProfile, MpsPercentage, SharingOption
from pyanalyze.results.interference import (
    Interference,
    SharingCause,
    Slowdown,
)
from pyanalyze.results.model import Missing
from pyanalyze.results.occupancy import Occupancy, SmWarps
from pyanalyze.results.report import (
    Capture,
    Clock,
    Device,
    Memory,
    Mig,
    QualityRow,
    RecordsHeld,
    Report,
    Tenant,
    Tool,
    View,
    Window,
)
from pyanalyze.results.residency import ContextSwitches, CostKind, ResidencySlice, SwitchPart
from pyanalyze.results.sharing import Relation
from pyanalyze.tables.export_details import WSL_KEY
from pyanalyze.tables.process_lists import process_memory
from pyanalyze.tables.switch_records import RESTORE_START, SAVE_END, SWITCH_RECORDS_CUT
from pyanalyze.tables.tableset import Selection
from pyanalyze.text import format as fmt
from pyanalyze.text.allowlist import known_host
from pyanalyze.text.format import capital
from pyanalyze.text.shell import shell_line, shell_word
from pyanalyze.text.visible import visible
from pyanalyze.vocabulary import EVERY_PART, NEGLIGIBLE_RESIDENCY, TRAITS, Mode, Part, RelationKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.advice import DeviceAdvice
    from pyanalyze.analysis.advice.options import Option, Options
    from pyanalyze.analysis.analysis import Analysis
    from pyanalyze.analysis.interference import DeviceInterference, TenantInterference
    from pyanalyze.analysis.listed import Listed
    from pyanalyze.analysis.residency import DeviceResidency
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.analysis.sharing.facts import Pair
    from pyanalyze.inputs.baselines import Baseline
    from pyanalyze.results.copies import Copies
    from pyanalyze.results.listed import ConfiguredSharing
    from pyanalyze.results.streams import Streams
    from pyanalyze.results.time_split import TimeSplit
    from pyanalyze.results.work import Work
    from pyanalyze.tables.launch_records import LaunchRecords
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Basis

#: Sources of what the GPU did.
_EVENT_SOURCES = ("kernels", "copies", "graph_launches", "switch_events", "gpu_metrics", "allocations")
#: Tenants that one sentence names.
_NAMED = 4
#: Part of the time in which all were at work from which on a pause of all divides it.
_LONG_PAUSE = 0.25
#: Documented for DCGM 4.6 (dcgmi: entity selectors); scripts for older versions use the letter.
_INSTANCE_COUNTERS = (
    "dcgmi dmon -e 1002,1003 -i instance:ID   # SMs active and warps, during a recording; ID: "
    "dcgmi discovery --compute-hierarchy; older DCGM: -i i:ID"
)
#: How to see whether there is a second tenant.
_OTHERS = f"{HOW['nvml']}; if it lists another process, record both at the same time"
#: How to export what a device is.
_LISTING = (
    "nsys export --type sqlite REPORT.nsys-rep   # with a newer nsys, or of a new recording: this export does not list "
    "the GPU (TARGET_INFO_GPU)"
)
#: What samples without a capture can say of a slowdown.
_LATENCIES = (
    "without a capture, --work LATENCIES.csv (columns time and latency_ms) says whether latency rises with the use of "
    "another tenant, not why"
)


def clock_of(tables: TableSet) -> Clock:
    """What positions count from, and how far the clocks of several captures may be apart.

    Parameters
    ----------
    tables
        The tables.

    Examples
    --------
    >>> import pyanalyze
    >>> clock_of(pyanalyze.load(capture).tables).origin_utc_ns is None
    False
    """
    captures = tables.capture.select("utc_origin_ns", "clock_uncertainty_ns").rows()
    origin = captures[0][0]
    known = [uncertainty for _, uncertainty in captures if uncertainty is not None]
    return Clock(
        origin_utc_ns=None if origin is None else str(origin),
        uncertainty_ns=max(known) if len(known) == len(captures) else None,
    )


def assemble(
    analysis: Analysis,
    advice: Sequence[DeviceAdvice] | None = None,
    *,
    detail: bool = False,
    parts: frozenset[Part] = EVERY_PART,
) -> Report:
    """Fill the report of an analysis.

    Parameters
    ----------
    analysis
        The analysis.
    advice
        What is advised, by device; by default it is computed, without a replay where the capture is large.
    detail
        With arrays of intervals.
    parts
        What is computed: the others are null or empty, without an entry of what is missing.

    Returns
    -------
    pyanalyze.results.report.Report
        The contract. Positions count from the first capture's zero.

    Examples
    --------
    >>> import pyanalyze
    >>> assemble(pyanalyze.load(capture).analysis).synthetic
    True
    """
    analysis.precompute(parts)
    tables = analysis.tables
    captures, cut = tables.capture.to_dicts(), _records_held(tables)
    held_ns = _held_ns(tables, cut)
    without_events = _without_events(tables)
    advised: Sequence[DeviceAdvice] = ()
    if Part.ADVICE in parts:
        advised = analysis.quick_advice if advice is None else advice
    by_device = {one.device_id: one for one in advised}
    compared = {one.device_id: one for one in (analysis.interference if Part.INTERFERENCE in parts else ())}
    listed = analysis.listed
    of_processes = tables if analysis.processes is None else analysis.processes.tables
    return Report(
        tool=Tool(version=_core.__version__),
        clock=clock_of(tables),
        captures=[
            Capture(
                path=c["path"],
                nsys_version=c["nsys_version"],
                schema_version=c["schema_version"],
                # Times of a capture without events are those of what ran on the host.
                start_ns=None if c["capture"] in without_events else c["start_ns"],
                end_ns=None if c["capture"] in without_events else c["end_ns"],
                recording_start_ns=c["recording_start_ns"],
                recording_end_ns=c["recording_end_ns"],
                switch_records=cut.get(c["capture"], {}).get("switch_records"),
                cuda_events=cut.get(c["capture"], {}).get("cuda_events"),
                counter_samples=cut.get(c["capture"], {}).get("counter_samples"),
                held_start_ns=held_ns.get(c["capture"], _UNKNOWN_SPAN)[0],
                held_end_ns=held_ns.get(c["capture"], _UNKNOWN_SPAN)[1],
                clock_offset_ns=c["clock_offset_ns"],
                clock_uncertainty_ns=c["clock_uncertainty_ns"],
                driver_version=c["driver_version"],
                cuda_version=c["cuda_driver_version"],
                # A digest of a host name can be guessed: where names go, it goes.
                host_hash=None if tables.selection.redacted else known_host(c["host_hash"]),
            )
            for c in captures
        ],
        quality=[
            QualityRow(name=str(q["name"]), severity=q["severity"], count=q["count"], detail=q["detail"])
            for q in analysis.quality.iter_rows(named=True)
        ],
        devices=[
            _device(
                analysis,
                verdict,
                by_device.get(verdict.device_id),
                compared.get(verdict.device_id),
                parts,
                detail=detail,
            ).model_copy(
                update={
                    "listed": list(listed.by_device.get(verdict.device_id, ())),
                    "configured_sharing": _set_up(listed, verdict.device_id),
                    "settings": list(listed.settings.get(verdict.device_id, ())),
                    "associations": associations(
                        of_processes, verdict.device_id, listed.by_device.get(verdict.device_id, ())
                    )
                    if tables.groups is None
                    else [],
                }
            )
            for verdict in analysis.verdicts
        ],
        gpus_without_work=_gpus_without_work(tables, {verdict.device_id for verdict in analysis.verdicts}),
        listed=list(listed.elsewhere),
        nodes=list(listed.nodes),
        settings_advice=list(without_effect(listed.nodes)) if Part.ADVICE in parts else [],
        pods_without_gpu=list(listed.without_gpu),
        settings=list(listed.general),
        samples_not_used=list(tables.samples_not_used),
        view=_view(tables),
        grouped_by=None if tables.groups is None else tables.groups.by,
    )


#: What an export may hold a part of, by field of `Capture`: how it is counted, of which sources.
_COUNTED: Final = {
    "cuda_events": ("export_cut", ("kernels", "copies", "api_calls")),
    "switch_records": (SWITCH_RECORDS_CUT, ("switch_events",)),
}
_UNKNOWN_SPAN: Final = (None, None)
#: Tables of what the GPU did, with the columns of their times.
_HELD: Final = {
    "kernels": ("start_ns", "end_ns"),
    "graph_launches": ("start_ns", "end_ns"),
    "memops": ("start_ns", "end_ns"),
    "switch_events": ("time_ns", "time_ns"),
    "gpu_metrics": ("time_ns", "time_ns"),
}


def _records_held(tables: TableSet) -> dict[int, dict[str, RecordsHeld]]:
    """Count records by capture and field of `Capture`, where an export holds fewer than nsys collected."""
    found: dict[int, dict[str, RecordsHeld]] = {}
    for field, (counter, sources) in _COUNTED.items():
        for row in tables.rows_where("quality", "name", counter):
            held = [
                one["rows"]
                for one in tables.rows_where("sources", "capture", row["capture"])
                if one["source"] in sources
            ]
            if row["count"] and held:
                records = RecordsHeld(held=sum(held), collected=sum(held) + row["count"])
                found.setdefault(row["capture"], {})[field] = records
    cut = {row["capture"]: row["count"] for row in tables.rows_where("quality", "name", "counter_samples_cut")}
    if cut and "gpu_metrics" in tables and not _of_part_of_time(tables):
        # A sample has a row for each counter.
        samples = tables.columns("gpu_metrics", "capture", "device_id", "time_ns").unique()
        for capture, held_samples in samples["capture"].value_counts().iter_rows():
            if count := cut.get(capture):
                records = RecordsHeld(held=held_samples, collected=held_samples + count)
                found.setdefault(capture, {})["counter_samples"] = records
    return found


def _held_ns(tables: TableSet, captures: Collection[int]) -> dict[int, tuple[int, int]]:
    """First and last record of what the GPU did in some captures; of a part of the time nobody asks."""
    import polars as pl

    if not captures or _of_part_of_time(tables):
        return {}
    spans = [
        tables.columns(name, "capture", *{start, end})
        .group_by("capture")
        .agg(first=pl.col(start).min(), last=pl.col(end).max())
        for name, (start, end) in _HELD.items()
        if name in tables and tables.row_count(name)
    ]
    if not spans:
        return {}
    whole = pl.concat(spans).group_by("capture").agg(pl.col("first").min(), pl.col("last").max())
    return {capture: (first, last) for capture, first, last in whole.iter_rows() if capture in captures}


def _of_part_of_time(tables: TableSet) -> bool:
    return (tables.selection.start_ns, tables.selection.end_ns) != (None, None)


def _cut_export(tables: TableSet, captures: Collection[int]) -> list[Missing]:
    """Say how much of what nsys collected is not in these exports: every figure rests on the rest."""
    held = _records_held(tables)
    lacking: list[str] = []
    # Hardware counters have an entry of their own, and nothing else is computed from them.
    for field, what in (("cuda_events", "CUDA events"), ("switch_records", "context-switch records")):
        some = [records[field] for capture, records in held.items() if capture in captures and field in records]
        if some:
            collected = sum(one.collected for one in some)
            lacking.append(f"{fmt.count(collected - sum(one.held for one in some))} of {fmt.count(collected)} {what}")
    if not lacking:
        return []
    why = f"the export was cut: it lacks {fmt.names(lacking)} that nsys collected"
    return [Missing(what="export_rows", why=why, how=HOW["whole_export"])]


def _gpus_without_work(tables: TableSet, shown: set[int]) -> int:
    """Count GPUs that the captures list beside those with an entry, a board with MIG instances once.

    A report of one device, or of a part of the time, says nothing of the others.
    """
    if tables.selection.narrowed:
        return 0
    boards: dict[object, set[int]] = {}
    for row in tables.rows("devices"):
        boards.setdefault(row["gpu_uuid"] or row["uuid"] or row["device_id"], set()).add(row["device_id"])
    return sum(devices.isdisjoint(shown) for devices in boards.values())


def _set_up(listed: Listed, device_id: int) -> ConfiguredSharing | None:
    found = listed.sharing.get(device_id)
    return found if found is not None and (found.shared or found.replicas == 1 or found.other_nodes) else None


def _view(tables: TableSet) -> View | None:
    chosen = tables.selection
    if chosen == Selection():
        return None
    return View(start_ns=chosen.start_ns, end_ns=chosen.end_ns, gpu=chosen.gpu, redacted=chosen.redacted)


def _residency(tables: TableSet, device_id: int) -> list[ResidencySlice]:
    """Every residency interval."""
    import polars as pl

    slices = tables.of_device("residency", device_id).sort("start_ns")
    columns = slices.select("tenant_id", "hw_context", "start_ns", "end_ns", pl.col("basis").cast(pl.String))
    return [ResidencySlice(**row) for row in columns.iter_rows(named=True)]


def _device(
    analysis: Analysis,
    verdict: Verdict,
    advice: DeviceAdvice | None,
    found: DeviceInterference | None,
    parts: frozenset[Part],
    *,
    detail: bool,
) -> Device:

    tables = analysis.tables
    device = tables.rows_of("devices", verdict.device_id)[0]
    usage = tables.of_device("tenants", verdict.device_id).join(
        tables.of_device("tenant_usage", verdict.device_id), on=["tenant_id", "device_id"]
    )
    usage = _shown(tables, usage, verdict)
    missing = _cut_export(tables, set(usage["capture"].drop_nulls())) + list(verdict.missing)
    window = _window(usage)
    case = analysis.case_by_device.get(verdict.device_id)
    pairs = () if case is None else case.pairs
    trace = TRACE if case is None else case.trace
    if analysis.processes is not None:
        pairs = pairs_of(
            tables.of_device("overlaps", verdict.device_id).iter_rows(named=True),
            usage.to_dicts(),
            tables.switched(verdict.device_id),
            {row["capture"]: row["clock_uncertainty_ns"] for row in tables.rows("capture")},
        )
    if window is not None:
        usage = _resident_within(usage, tables, verdict.device_id, window)
    span_ns = 0 if window is None else window.end_ns - window.start_ns
    recorded = None if window is None else recorded_ns(tables, verdict.device_id, window.start_ns, window.end_ns)
    recorded_span_ns = span_ns if recorded is None else recorded
    switches = _context_switches(tables, verdict.device_id, span_ns, recorded)
    if window is None:
        missing.append(Missing(what="window", why="no activity of any tenant was recorded", how=_how_kernels(verdict)))
    missing += _unavailable(tables, verdict.device_id)
    modelled: pl.DataFrame | None = None
    occupancy = at_most = None
    if Part.OCCUPANCY in parts:
        if model_in_passing(tables) != "replay":
            why = (
                f"{tables.row_count('kernels')} kernels: here blocks are spread evenly over the SMs instead of replayed"
            )
            missing.append(
                Missing(
                    what="occupancy.replay", why=f"{why} on each", how="session.occupancy() in Python replays every SM"
                )
            )
        modelled = tables.of_device("sm_occupancy", verdict.device_id)
        occupancy = _occupancy(analysis, verdict, modelled, window, device, missing)
        if occupancy is None and window is not None:
            caps = analysis.policies[verdict.device_id].caps
            at_most = most_active(tables, verdict.device_id, (window.start_ns, window.end_ns), caps)
        if occupancy is not None and occupancy.check_against_counters is None:
            missing.append(_no_counters(tables, device, trace))
    compared = {tenant.tenant_id: tenant for tenant in (() if found is None else found.tenants)}
    work = analysis.work if Part.WORK in parts else {}
    streams = analysis.streams if Part.STREAMS in parts else {}
    # What streams lost is a share of the time without a gap that the split finds.
    splits = analysis.time_splits if Part.ADVICE in parts or streams else {}
    if Part.UNITS in parts:
        splits = {**splits, **_with_range_phases(tables, usage, splits)}
    # Advice looks at copies, and what limits a process is worded by their kinds.
    copies = analysis.copies if parts & {Part.COPIES, Part.ADVICE} else {}
    summary = analysis.residency_by_device.get(verdict.device_id) if Part.RESIDENCY in parts else None
    caps = analysis.policies[verdict.device_id].caps
    known = _tenants(
        tables, device["device_id"], usage, modelled, span_ns, compared, work, splits, streams, copies, caps
    )
    one_for_all = named_for_all(verdict.mode, [(t.tenant_id, t.busy_ns, t.resident_ns) for t in known]) is not None
    tenants = [
        _with_gpu_time(
            tenant, summary, span_ns, recorded_span_ns, known=Part.RESIDENCY in parts, one_for_all=one_for_all
        )
        for tenant in known
    ]
    group = analysis.mps_groups.get(verdict.device_id, frozenset())
    if group:
        tenants = _with_mps_group(tenants, group, recorded_span_ns, analysis.attributed_in_groups)
    interference = None
    if found is not None:
        interference = _interference(found, usage, tables, missing, verdict.mode, trace, analysis.baselines)
        missing += _lost_launches(analysis.launch_records.get(verdict.device_id))
        missing += _unsplit(found, tables.labels(found.device_id))
    by_tail = analysis.units_by_tail if Part.UNITS in parts else None
    slow, even, few = ((), (), ()) if by_tail is None else (by_tail.slow, by_tail.even, by_tail.few)
    others, outside = ((), ()) if by_tail is None else (by_tail.others, by_tail.outside)
    capability = (device["compute_major"], device["compute_minor"])
    if advice is not None and advice.options.why_not is not None:
        how = "pyanalyze advise CAPTURE"
        if not advice.options.postponed:
            how = _how_options(tables, verdict, usage, device, missing)
        missing.append(Missing(what="options", why=advice.options.why_not, how=how))
    at_work = _all_at_work(tables, usage, verdict.device_id, group)
    # Shares of a time of which switch records cover a part would be too small.
    if at_work is not None and recorded is None and Part.RESIDENCY in parts:
        if switches is not None:
            gaps = _gap_share(tables, verdict.device_id, at_work)
            switches = switches.model_copy(update={"all_at_work_gap_share": gaps})
        shares = _gpu_time_shares(tables, verdict.device_id, at_work)
        tenants = [
            one.model_copy(update={"all_at_work_share": shares.get(one.tenant_id, 0.0)})
            if one.gpu_time_basis == "observed" and not one.in_mps_group
            else one
            for one in tenants
        ]
    made = Device(
        device_id=verdict.device_id,
        uuid=device["uuid"],
        gpu_uuid=device["gpu_uuid"],
        window=window,
        all_at_work=at_work,
        in_flight_ns=_in_flight_ns(tables, verdict.device_id, window, tenants) if Part.RESIDENCY in parts else None,
        memory=_memory(tables, device, missing),
        sampled=sampled_of(tables, verdict.device_id),
        gpu_metrics=None
        if any(tenant.busy_ns for tenant in tenants)
        else gpu_metrics_of(tables, verdict.device_id, group),
        name=device["name"],
        sm_count=device["sm_count"],
        compute_capability=None if None in capability else f"{capability[0]}.{capability[1]}",
        mig=_instance(tables, device),
        sharing=verdict.model_copy(update={"missing": missing}),
        relations=_relations(tables, usage, pairs, verdict, group),
        segments=list(analysis.segments[verdict.device_id]) if Part.SEGMENTS in parts else [],
        context_switches=switches,
        residency_summary=summary,
        tenants=tenants,
        occupancy=occupancy,
        sm_active_at_most=at_most,
        interference=interference,
        residency=_residency(tables, verdict.device_id) if detail and Part.RESIDENCY in parts else None,
        sm_warps=_sm_warps(tables, verdict.device_id) if detail and Part.OCCUPANCY in parts else None,
        host=[] if found is None else list(found.host),
        advice=[] if advice is None else list(advice.actions),
        options=None if advice is None else _options(advice),
        slow_units=[one for one in slow if one.group.device_id == verdict.device_id],
        even_units=[one for one in even if one.device_id == verdict.device_id],
        few_units=[one for one in few if one.device_id == verdict.device_id],
        other_units=[one for one in others if one.device_id == verdict.device_id],
        outside_units=[one for one in outside if one.device_id == verdict.device_id],
    )
    if Part.INTERFERENCE not in parts:
        return made
    launched_ns = _first_launch_ns(tables, made)
    return made.model_copy(
        update={"all_at_work_launched_ns": launched_ns, "sharing_is_the_cause": _sharing_cause(made)}
    )


def _shown(tables: TableSet, usage: pl.DataFrame, verdict: Verdict) -> pl.DataFrame:
    """The tenants that a report shows: a divided process only where it has residency, which is that of its groups."""
    import polars as pl

    if tables.groups is None:
        return usage
    divided = pl.col("tenant_id").is_in(list(tables.groups.processes))
    if TRAITS[verdict.mode].time_sliced:
        return usage
    return usage.filter(~divided | pl.col("resident_ns").is_not_null())


def _sharing_cause(device: Device) -> SharingCause:
    impact = impact_of(device)
    return SharingCause(answer=impact.answer.value, reason=impact.reason.value, why=why_sharing(device))


def _options(advice: DeviceAdvice) -> list[SharingOption] | None:
    compared = advice.options
    if not compared.options:
        return None
    lacks = {option.name: missing for option, missing in compared.refused}
    missed = compared.missed_p99
    return [
        SharingOption(
            name=option.name,
            mode=option.mode,
            antt=option.antt,
            stp=option.stp,
            current=option is compared.current,
            recommended=option is compared.recommended,
            lacks=list(lacks.get(option.name, ())),
            strategy=None if option.provision is None else option.provision.strategy,
            percentages=[
                MpsPercentage(tenant_id=tenant, percentage=value)
                for tenant, value in _percentages(option, compared).items()
            ],
            profiles=[
                MigProfile(tenant_id=one.tenant_id, profile=option.placement.placed[one.name].profile.name)
                for one in option.forecasts
                if option.placement is not None
            ],
            tenants=[
                one.model_copy(update={"p99_ns": None}) if one.tenant_id in missed else one for one in option.forecasts
            ],
        )
        for option in compared.options
    ]


def _percentages(option: Option, compared: Options) -> Mapping[int, int]:
    """MPS caps by tenant: of a configuration that was made up, or those that were recorded."""
    if option.provision is not None:
        return option.provision.percentages
    if option is not compared.current or not TRAITS[option.mode].capped:
        return {}
    return {one.tenant_id: round(one.percentage) for one in compared.clients if one.percentage is not None}


def _unavailable(tables: TableSet, device_id: int) -> list[Missing]:
    """Sampled quantities of the whole device that never had a value: under MIG the driver has no utilisation."""
    if tables.samples.is_empty():
        return []
    rows = tables.board_samples_of(device_id).get("gpu_utilization_pct")
    if rows is None or rows["value"].null_count() < rows.height:
        return []
    said = ", ".join(sorted(set(rows["text"].drop_nulls())))
    why = f"the driver gave no value in any of {rows.height} samples ({said}); under MIG it has none"
    how = "dcgmi dmon -e 1001,1002,1003   # per GPU and per MIG instance, as dcgm-exporter does"
    return [Missing(what="gpu_utilization", why=why, how=how)]


def _window(usage: pl.DataFrame) -> Window | None:
    first, last = usage["first_ns"].min(), usage["last_ns"].max()
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    return Window(start_ns=first, end_ns=last)


def _in_flight_ns(tables: TableSet, device_id: int, window: Window | None, tenants: Sequence[Tenant]) -> int | None:
    """The part of the window in which work of any tenant was in flight; None: their shares are of residency."""
    if window is None:
        return None
    span_ns = window.end_ns - window.start_ns
    by_work = [t for t in tenants if t.busy_ns and t.gpu_time_basis == "inferred"]
    # Of a client that was switched out with its server the share is less than its work was in flight for.
    if len(by_work) < 2 or any(round((t.gpu_time_share or 0.0) * span_ns) != t.busy_ns for t in by_work):
        return None
    return in_flight_ns(tables, device_id, ("kernels", "graph_launches"), (window.start_ns, window.end_ns))


def _gpu_time_shares(tables: TableSet, device_id: int, window: Window) -> dict[int, float]:
    """GPU time shares of tenants in a part of the window, by switch records."""
    import polars as pl

    inside = pl.min_horizontal("end_ns", window.end_ns) - pl.max_horizontal("start_ns", window.start_ns)
    held = (
        tables.of_device("residency", device_id)
        .filter(pl.col("tenant_id").is_not_null(), inside > 0)
        .group_by("tenant_id")
        .agg(inside.sum())
    )
    return {tenant: ns / (window.end_ns - window.start_ns) for tenant, ns in held.iter_rows()}


def _gap_share(tables: TableSet, device_id: int, window: Window) -> float:
    """The part of a time that gaps of the switches that begin in it take."""
    import polars as pl

    inside = pl.col("time_ns").is_between(window.start_ns, window.end_ns) & (pl.col("kind") == "switch")
    gaps_ns = int(tables.of_device("switches", device_id).filter(inside)["gap_ns"].sum())
    return gaps_ns / (window.end_ns - window.start_ns)


def _all_at_work(tables: TableSet, usage: pl.DataFrame, device_id: int, group: frozenset[int]) -> Window | None:
    """The time between the begin of the last tenant and the end of the first; an MPS server has no work of its own.

    Of a time in which nobody had work for long (all wait for the start, say) only what lies before or after counts:
    whichever has more work.
    """
    import polars as pl

    working = usage.filter(~pl.col("tenant_id").is_in(_serving(usage)), pl.col("first_ns").is_not_null())
    # Switch records name any client for all of its MPS group: of one that was not traced they are no begin and no end.
    of_group = pl.col("tenant_id").is_in(list(group))
    unknown = of_group & pl.col("busy_ns").is_null()
    working = working.with_columns(
        first_ns=pl.when(unknown).then(pl.col("first_ns").filter(of_group).min()).otherwise("first_ns"),
        last_ns=pl.when(unknown).then(pl.col("last_ns").filter(of_group).max()).otherwise("last_ns"),
    )
    first, last = working["first_ns"].max(), working["last_ns"].min()
    if working.height < 2 or not isinstance(first, int) or not isinstance(last, int) or first >= last:
        return None
    # Who was busy for most of it leaves no room for a long pause of all.
    if int(working["busy_ns"].max() or 0) > (1 - _LONG_PAUSE) * (last - first):  # type: ignore[arg-type]
        return Window(start_ns=first, end_ns=last)
    pause_ns = _LONG_PAUSE * (last - first)
    # Other work can only shorten what kernels leave: mostly they say it, and millions of rows need not be copied.
    if _longest_without_kernels_ns(tables, device_id, first, last) < pause_ns:
        return Window(start_ns=first, end_ns=last)
    inside = (pl.col("device_id") == device_id) & (pl.col("end_ns") > first) & (pl.col("start_ns") < last)
    work = pl.concat(
        tables.columns(name, "device_id", "start_ns", "end_ns").filter(inside)
        for name in ("kernels", "graph_launches", "memops")
    ).sort("start_ns")
    idle = pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1)
    pauses = work.with_columns(idle=idle).filter(pl.col("idle") >= pause_ns)
    if pauses.is_empty():
        return Window(start_ns=first, end_ns=last)
    ends, idle_ns = pauses.sort("idle").select("start_ns", "idle").row(-1)
    if 2 * work.filter(pl.col("start_ns") >= ends).height >= work.height:
        return Window(start_ns=ends, end_ns=last)
    return Window(start_ns=first, end_ns=ends - idle_ns)


def _first_launch_ns(tables: TableSet, device: Device) -> int | None:
    """When the operation with which all are at work was launched; None: not known, or they are for nearly all time."""
    import polars as pl

    both, calls = device.all_at_work, None if co_run_part(device) is None else tables.calls()
    if both is None or calls is None:
        return None
    process = ("capture", "pid", "correlation_id")
    first = pl.concat(
        tables.columns(name, "device_id", "start_ns", *process)
        .filter(pl.col("device_id") == device.device_id, pl.col("start_ns") == both.start_ns)
        .select(process)
        for name in ("kernels", "graph_launches", "memops")
    )
    launched = calls.join(first.filter(pl.col("correlation_id") > 0), on=process, how="semi", nulls_equal=True)
    found = launched["start_ns"].min()
    return found if isinstance(found, int) else None


def _longest_without_kernels_ns(tables: TableSet, device_id: int, first: int, last: int) -> int:
    """The longest part of a time in which no kernel was in flight on a device."""
    import polars as pl

    longest, until = 0, first
    for piece in tables.batches("kernels", "device_id", "start_ns", "end_ns"):
        # Kernels are in order of their start.
        here = piece.lazy().filter(pl.col("device_id") == device_id, pl.col("start_ns") < last)
        latest = pl.col("end_ns").cum_max().clip(until)
        idle = pl.col("start_ns") - latest.shift(1, fill_value=until)
        idle_ns, latest_ns = here.select(idle.max(), latest.max().alias("latest")).collect().row(0)
        longest, until = max(longest, idle_ns or 0), max(until, latest_ns or until)
    return max(longest, last - until)


def _resident_within(usage: pl.DataFrame, tables: TableSet, device_id: int, window: Window) -> pl.DataFrame:
    """Residency inside the window: a context is resident before its first kernel, too, while it is created."""
    import polars as pl

    inside = (
        tables.of_device("residency", device_id)
        .with_columns(pl.col("start_ns").clip(window.start_ns), pl.col("end_ns").clip(upper_bound=window.end_ns))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .group_by("tenant_id")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("inside_ns"))
    )
    known = pl.col("resident_ns").is_not_null()
    resident = pl.when(known).then(pl.col("inside_ns").fill_null(0)).alias("resident_ns")
    return usage.join(inside, on="tenant_id", how="left").with_columns(resident).drop("inside_ns")


def _instance(tables: TableSet, device: dict[str, Any]) -> Mig | None:
    """The MIG instance that a device is, with the numbers that samples give it; None for a whole GPU."""
    own = tables.samples_of(device["device_id"])
    numbered = own.clear() if own["mig_gi"].null_count() == own.height else own.drop_nulls("mig_gi")
    # Lists of the driver number instances without naming their profiles.
    if device["mig_profile"] is None and numbered.is_empty():
        return None
    gi, ci = (None, None) if numbered.is_empty() else numbered.select("mig_gi", "mig_ci").max().row(0)
    return Mig(profile=device["mig_profile"], gi=gi, ci=ci, parent_uuid=device["gpu_uuid"])


def _memory(tables: TableSet, device: dict[str, Any], missing: list[Missing]) -> Memory | None:
    rows = tables.board_samples_of(device["device_id"]).get("memory_used_bytes")
    used = None if rows is None else rows["value"].max()
    peak = int(used) if isinstance(used, float) else None
    total = device["memory_bytes"] if device["memory_bytes"] is not None else _used_and_free(tables, device)
    if total is None and peak is None:
        return None
    if total is not None and peak is not None and peak > total:
        why = f"samples show {fmt.bytes_(peak)} in use, and the device has {fmt.bytes_(total)}: these are several GPUs"
        missing.append(Missing(what="memory.total_bytes", why=why, how="give the files of one GPU"))
        total = None
    return Memory(total_bytes=total, peak_bytes=peak)


def _used_and_free(tables: TableSet, device: dict[str, Any]) -> int | None:
    """The memory that samples account for, where none has the total: DCGM writes its parts; None: not both of them."""
    whole = tables.board_samples_of(device["device_id"])
    parts = [whole[name] for name in ("memory_used_bytes", "memory_free_bytes") if name in whole]
    values = [part["value"].drop_nulls() for part in parts]
    if len(values) < 2 or any(one.is_empty() for one in values):
        return None
    reserved = whole.get("memory_reserved_bytes")
    kept = 0 if reserved is None else reserved["value"].max() or 0
    # What is used more is free less: of any moment the sum is the same.
    return int(values[0][-1] + values[1][-1] + kept)


def _context_switches(tables: TableSet, device_id: int, span_ns: int, recorded: int | None) -> ContextSwitches | None:
    import polars as pl

    facts = {row["name"]: row["value"] for row in tables.rows_of("facts", device_id)}
    if not facts.get("switch_records"):
        return None
    switches = tables.of_device("switches", device_id)
    counted = switches.filter(pl.col("kind") == "switch")
    slices = tables.of_device("residency", device_id).filter("complete")
    full = counted.filter(pl.col("full_ns").is_not_null())
    # The full cost needs tags that most drivers do not give; a mixture of both kinds would compare with neither.
    kind: CostKind = "full" if counted.height and full.height == counted.height else "gap"
    cost = counted["full_ns" if kind == "full" else "gap_ns"]
    total = int(cost.sum())
    lost = tables.quality.filter(pl.col("name") == "switch_events_lost")["count"].sum()
    endings = slices.group_by(pl.col("ending").cast(pl.String)).len().sort("ending")
    return ContextSwitches(
        count=counted.height,
        context_creations=switches.filter(pl.col("kind") == "creation").height,
        unrecorded_starts=_unrecorded_starts(tables, device_id),
        # Without contexts that were only created, as the verdict and the residency summary have it.
        median_slice_ns=_rounded(facts.get("median_slice_ns")),
        median_cost_ns=_median(cost),
        mean_cost_ns=float(total / counted.height) if counted.height else None,
        cost_kind=kind if counted.height else None,
        total_cost_ns=total if counted.height else None,
        save=_switch_part(counted["save_ns"]),
        gap=_switch_part(counted["gap_ns"]),
        restore=_switch_part(counted["restore_ns"]),
        recorded_ns=recorded,
        overhead_fraction=total / of_ns if counted.height and (of_ns := recorded or span_ns) else None,
        endings=dict(endings.iter_rows()),
        dropped=int(lost),
    )


def _unrecorded_starts(tables: TableSet, device_id: int) -> int:
    """How many switches come from an interval of which only the end is on record: at most the first."""
    import polars as pl

    records = tables.of_device("switch_events", device_id).filter(pl.col("tag").is_in([SAVE_END, RESTORE_START]))
    first = records.sort("time_ns").head(2).select("time_ns", "tag", "hw_context").rows()
    if [tag for _, tag, _ in first] != [SAVE_END, RESTORE_START] or first[0][2] == first[1][2]:
        return 0
    # Work that was traced before shows since when its context was resident at the latest.
    began = tables.of_device("residency", device_id)["start_ns"].min()
    return int(not isinstance(began, int) or began >= first[1][0])


def _switch_part(values: pl.Series) -> SwitchPart | None:
    """None where a switch lacks it: the sum over the others would compare with no other part."""
    median = _median(values)
    return None if median is None or values.null_count() else SwitchPart(median_ns=median, total_ns=int(values.sum()))


def _median(values: pl.Series) -> int | None:
    return _rounded(values.median())


def _rounded(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def _with_range_phases(
    tables: TableSet, usage: pl.DataFrame, splits: Mapping[tuple[int, int], TimeSplit]
) -> dict[tuple[int, int], TimeSplit]:
    """The splits of a device, with the NVTX ranges whose averages say little of each other."""
    found = {}
    for row in usage.iter_rows(named=True):
        key = (row["device_id"], row["tenant_id"])
        if key in splits and (phases := range_phases(tables, row)):
            found[key] = splits[key].model_copy(update={"range_phases": phases})
    return found


def _tenants(
    tables: TableSet,
    device_id: int,
    usage: pl.DataFrame,
    modelled: pl.DataFrame | None,
    span_ns: int,
    compared: dict[int, TenantInterference],
    work: Mapping[tuple[int, int], Work],
    splits: Mapping[tuple[int, int], TimeSplit],
    streams: Mapping[tuple[int, int], Streams],
    copies: Mapping[tuple[int, int], Copies],
    caps: Mapping[int, int],
) -> list[Tenant]:
    import polars as pl

    length = pl.col("end_ns") - pl.col("start_ns")
    sm_time: dict[int, tuple[float, float]] = {}
    if modelled is not None:
        per_tenant = modelled.group_by("tenant_id").agg(
            (pl.col("sm_active") * length).sum().alias("sm_time"),
            (pl.col("warps") * length).sum().alias("warp_time"),
        )
        sm_time = {row[0]: row[1:] for row in per_tenant.iter_rows()}
    all_sm_time = sum(times[0] for times in sm_time.values())
    memory = process_memory(tables, device_id)
    tenants = []
    shown = set(usage["tenant_id"])
    of_capture = {} if tables.groups is None else tables.groups.captures
    processes = _names_of_processes(tables, device_id)
    green = set(
        tables.contexts.filter((pl.col("device_id") == device_id) & pl.col("is_green"))
        .select("capture", "pid", "context_id")
        .iter_rows()
    )
    for row in usage.sort("tenant_id").iter_rows(named=True):
        group = row["capture"] in of_capture
        own = sm_time.get(row["tenant_id"])
        found = compared.get(row["tenant_id"])
        contexts = [int(context) for context in row["contexts"].split(",") if context]
        tenants.append(
            Tenant(
                tenant_id=row["tenant_id"],
                capture=of_capture.get(row["capture"], row["capture"]),
                pid=row["pid"],
                host_pid=row["host_pid"],
                name=row["name"],
                group_of=processes.get((of_capture[row["capture"]], row["pid"])) if group else None,
                container=row["container"],
                pod=row["pod"],
                contexts=contexts,
                green_contexts=[one for one in contexts if (row["capture"], row["pid"], one) in green],
                served_by=row["served_by"] if row["served_by"] in shown else None,
                busy_ns=row["busy_ns"],
                resident_ns=row["resident_ns"],
                attributed_ns=row["attributed_ns"],
                slices=None if row["resident_ns"] is None else row["slices"],
                median_slice_ns=row["median_slice_ns"],
                usable_sms=caps.get(row["tenant_id"]),
                sm_share=own[0] / all_sm_time if own and all_sm_time else None,
                occupancy=own[1] / span_ns if own and span_ns else None,
                # Memory is the process's, whichever group of its work uses it.
                memory_peak_bytes=None
                if group
                else row["memory_peak_bytes"] or memory.get(row["host_pid"] or row["pid"]),
                slowdown=Slowdown(elapsed=None, latency=None, resident=None) if found is None else found.slowdown,
                assumed_switch_ns=None if found is None else found.assumed_switch_ns,
                # Of a tenant that was not slowed there are no causes.
                causes=found.causes if found is not None and found.slowed else None,
                root_causes=found.root_causes if found is not None and found.slowed else None,
                added_latency_ns=found.added_per_kernel_ns if found is not None and found.slowed else None,
                added_latency=None if found is None or found.slowed else found.added_latency,
                work=work.get((row["device_id"], row["tenant_id"])),
                time_split=splits.get((row["device_id"], row["tenant_id"])),
                copies=copies.get((row["device_id"], row["tenant_id"])),
                streams=streams.get((row["device_id"], row["tenant_id"])),
                baseline=None if found is None else found.baseline,
                latency_percentiles=[] if found is None else list(found.latency_percentiles),
                units=[] if found is None else list(found.units),
                throughput=None if found is None else found.throughput,
                slowdown_notes=_notes(found),
                baselines_not_used=[] if found is None else list(found.baselines_not_used),
            )
        )
    return tenants


def _names_of_processes(tables: TableSet, device_id: int) -> dict[tuple[int, int | None], str]:
    """Names of processes that were divided, by capture and pid."""
    import polars as pl

    if tables.groups is None:
        return {}
    divided = pl.col("tenant_id").is_in(list(tables.groups.processes))
    rows = tables.tenants.filter(pl.col("device_id") == device_id, divided)
    return {(capture, pid): name for capture, pid, name in rows.select("capture", "pid", "name").iter_rows()}


def _with_gpu_time(
    tenant: Tenant,
    summary: DeviceResidency | None,
    span_ns: int,
    recorded_span_ns: int,
    *,
    known: bool,
    one_for_all: bool,
) -> Tenant:
    """Add the GPU time share, which has one denominator: the window, or of observed residency what records cover of it.

    Observed residency, else inferred residency, else attributed time (all of busy, where nothing is switched out).
    Residency that switch records give to one MPS client for all says nothing of its own.
    """
    share: float | None = None
    basis: Basis | None = None
    if one_for_all:
        if tenant.busy_ns is not None and span_ns:
            share, basis = tenant.busy_ns / span_ns, "inferred"
    elif tenant.resident_ns is not None:
        share, basis = (tenant.resident_ns / recorded_span_ns if recorded_span_ns else None), "observed"
    elif known:
        inferred = () if summary is None else summary.tenants
        found = next((one for one in inferred if one.tenant_id == tenant.tenant_id), None)
        if found is not None:
            share, basis = found.gpu_time_share, "inferred"
        elif tenant.attributed_ns is not None and span_ns:
            share, basis = tenant.attributed_ns / span_ns, "inferred"
    return tenant.model_copy(update={"gpu_time_share": share, "gpu_time_basis": None if share is None else basis})


def _with_mps_group(
    tenants: Sequence[Tenant], group: frozenset[int], span_ns: int, attributed: Mapping[int, int | None]
) -> list[Tenant]:
    """Give the clients of an MPS group the GPU time share of the group: records name any of them for all.

    What the records say of each client may be of any other: that is null.
    """
    together_ns = sum(tenant.resident_ns or 0 for tenant in tenants if tenant.tenant_id in group)
    share = together_ns / span_ns if span_ns else None
    update = {
        "in_mps_group": True,
        "gpu_time_share": share,
        "gpu_time_basis": None if share is None else "observed",
        **dict.fromkeys(("resident_ns", "slices", "median_slice_ns")),
    }
    return [
        tenant.model_copy(update={**update, "attributed_ns": attributed.get(tenant.tenant_id)})
        if tenant.tenant_id in group
        else tenant
        for tenant in tenants
    ]


def _notes(found: TenantInterference | None) -> list[str]:
    if found is None:
        return []
    parts = [part for part, value in _execution_parts(found).items() if value]
    return [
        *found.notes,
        *([found.missing] if found.missing else []),
        *(
            f"execution, {part.replace('_', ' ').replace('sm ', 'SM ')}: {found.execution_reasons[part]}"
            for part in parts
        ),
    ]


def _execution_parts(found: TenantInterference) -> dict[str, float | None]:
    split = None if found.causes is None else found.causes.execution_split
    return {} if split is None else split.parts()


def _unsplit(found: DeviceInterference, labels: Mapping[int, str]) -> list[Missing]:
    """Why parts of what took longer while executing are not known."""
    return [
        Missing(
            what=f"execution_split.{part}",
            why=f"{labels[tenant.tenant_id]}: {tenant.execution_reasons[part]}",
            how=tenant.execution_hows.get(part, ""),
        )
        for tenant in found.tenants
        if tenant.slowed
        for part, value in _execution_parts(tenant).items()
        if value is None
    ]


def _how_kernels(verdict: Verdict) -> str:
    """How to capture kernels; where launches have no record, tracing them again is not enough."""
    found = (gap.how for gap in verdict.missing if gap.what in ("kernels", "kernel_records") and gap.how)
    return next(found, recording(switches=False))


def _how_device(tables: TableSet, device: Mapping[str, Any]) -> str:
    """How to learn the SM count and limits of a device; empty where the export lists it, or there is no export."""
    return _LISTING if tables.paths and device["gpu_id"] is None else ""


def _how_options(
    tables: TableSet, verdict: Verdict, usage: pl.DataFrame, device: Mapping[str, Any], missing: Sequence[Missing]
) -> str:
    """What would make a forecast possible; empty where nothing is known to."""
    import polars as pl

    if verdict.mode == Mode.UNDETERMINED and tables.paths:
        # Where nobody is known, what captures switches alone gives no forecast.
        kernels = [] if usage.height else [gap.how for gap in missing if gap.what in ("kernels", "kernel_records")]
        return next(filter(None, [*kernels, *(gap.how for gap in missing)]), "")
    untraced = usage.filter(
        ~pl.col("traced") & (pl.col("resident_ns") > 0) & ~pl.col("tenant_id").is_in(_serving(usage))
    )
    # Where a capture lost its kernels, tracing them again is no answer.
    lost = any(gap.what == "kernel_records" for gap in verdict.missing)
    if untraced.height and not lost:
        return record_all(client=_client(tables, verdict.device_id, verdict.mode))
    if not (lost or usage["traced"].any()):
        return _how_kernels(verdict)
    # No forecast does without the SM count, of copies either.
    if device["sm_count"] is None and usage["traced"].any() and (how := _how_device(tables, device)):
        return how
    if not (lost or usage.select((pl.col("kernels") + pl.col("graph_launches")).sum()).item()):
        # A forecast needs kernels.
        return _how_kernels(verdict)
    if tables.paths and usage.filter("traced").height == 1 and not lost:
        return "pyanalyze advise CAPTURE --replicas 1..4   # forecasts copies of the one that was recorded"
    return "" if tables.paths else _how_kernels(verdict)


def _no_counters(tables: TableSet, device: Mapping[str, Any], trace: str) -> Missing:
    """Why the model is not checked by hardware counters, and how it could be."""
    if device["mig_profile"] is not None:
        why = "nsys counts the whole board, which cannot check the model of a MIG instance; DCGM counts per instance"
        how = _INSTANCE_COUNTERS
    elif tables.row_count("gpu_metrics"):
        why, how = "the capture has too few hardware counters in its window to check the model", ""
    elif any(row["state"] == "removed" for row in tables.rows_where("sources", "source", "gpu_metrics")):
        why, how = "nsys collected hardware counters, and the export has none", HOW["whole_export"]
    elif tables.rows_where("configured", "key", WSL_KEY):
        # `SupportsGpuMetrics` is 1 there as well, but the settings of the driver that permit it are those of Windows.
        why = (
            "the capture has no hardware counters to check the model, and under WSL2 no command is known to record them"
        )
        how = ""
    else:
        why = "the capture has no hardware counters to check the model"
        command = recording("--gpu-metrics-devices=all", trace=trace, switches=False)
        how = f"{command}   # {COUNTERS_NEED}"
    return Missing(what="gpu_metrics", why=why, how=how)


def _serving(usage: pl.DataFrame) -> set[int]:
    """Tenants that only serve others: MPS servers."""
    return set(usage["served_by"].drop_nulls())


def _lost_launches(found: LaunchRecords | None) -> list[Missing]:
    """What shows that the device was not idle: launches without a kernel record, or kernels without their call."""
    if found is None:
        return []
    if found.without_record:
        return [lost_launches(found)]
    # What was not recorded is no command's to bring, unless rows were left out of this export.
    start = found.describe_start()
    return [Missing(what="launch_calls", why=start, how="")] if start else []


def _interference(
    found: DeviceInterference,
    usage: pl.DataFrame,
    tables: TableSet,
    missing: list[Missing],
    mode: Mode,
    trace: str,
    baselines: Sequence[Baseline],
) -> Interference | None:
    """Figures of the device and the matrix; a reason for everything that is null."""
    names = tables.labels(found.device_id)
    serving = _serving(usage)
    tenants = [tenant for tenant in usage["tenant_id"] if tenant not in serving]
    silent = [t for t in found.tenants if t.slowdown.elapsed is None and t.slowdown.latency is None]
    silent = [t for t in silent if not t.is_group or t.slowdown.resident is None]
    known = {t.tenant_id for t in found.tenants} - {t.tenant_id for t in silent}
    blind = sorted(set(tenants) - {t.tenant_id for t in found.tenants})
    solo = _record_solo(tables, found.device_id, [t.tenant_id for t in silent], mode)
    client = _client(tables, found.device_id, mode)
    if len(tenants) < 2 and not known:
        why = "only one tenant of the device is known" if tenants else "no work of any tenant was recorded"
        if any(row["traced"] and row["pid"] is None for row in tables.rows_of("tenants", found.device_id)):
            why = "the capture has no process ids: its work may be of several processes"
        timed = tables.nvml_samples["time_ns"].null_count() < tables.row_count("nvml_samples")
        again = record_all(trace, client)
        how = _OTHERS if tenants else f"{again}; {_LATENCIES}" if timed else again
        if tenants and any(gap.what == "process_list" and not gap.how for gap in missing):
            # No list of processes can be had: only recordings show others.
            how = f"{recording(trace=trace, switches=False)}   # one for each process that may use this GPU, at the "
            how += "same time; then pyanalyze A.nsys-rep B.nsys-rep"
        if tenants and TRAITS[mode].vgpu:
            # No list of processes in one virtual machine has those of another.
            why, how = "only this virtual machine is known, and others may have time slices of the same GPU", solo
            if not TRAITS[mode].time_sliced:
                why = "only one tenant of this virtual GPU is known"
        for what in ("interference", "slowdown"):
            missing.append(Missing(what=what, why=why, how=how))
        return None
    # No name stands first: sentences begin with a capital, names stay as they are.
    reasons: dict[str, list[str]] = {}
    for t in silent:
        reasons.setdefault(t.missing or "not known", []).append(names[t.tenant_id])
    why = "; ".join(
        f"tenant{'' if len(who) == 1 else 's'} {fmt.names(who, _NAMED)}: {what}" for what, who in reasons.items()
    )
    if blind:
        untraced = fmt.names([names[number] for number in blind], _NAMED)
        why += f"{'; ' if why else ''}kernels of {untraced} were not traced"
        # Each traced tenant says itself which baselines it is not compared with.
        if baselines and not found.tenants:
            files = fmt.names([one.path.name for one in baselines], _NAMED)
            why += f", so they were not compared with {files}"
            solo = record_all(trace, client)
    if any(t.is_group for t in found.tenants):
        # A group has no recording of its own.
        solo = "record a run in which each group also executes while no other does"
    if silent or blind:
        missing.append(Missing(what="slowdown", why=why, how=solo if silent else record_all(client=client)))
    if not known or len(tenants) < 2:
        missing.append(Missing(what="interference", why=why or "only one tenant of the device is known", how=solo))
        return None
    if any(t.is_group for t in found.tenants):
        missing.append(Missing(what="interference.figures", why=capital(NO_LATENCY), how=""))
    elif found.figures is not None and found.figures.antt is None:
        text = (
            "mean slowdown (ANTT), system throughput (STP) and fairness of slowdowns need the elapsed slowdown of "
            "every tenant: "
        )
        text += why or "some are not known"
        how = record_all(client=client) if blind and not silent else solo
        missing.append(Missing(what="interference.figures", why=text, how=how))
    return found.figures


def _client(tables: TableSet, device_id: int, mode: Mode) -> str | None:
    """What keeps a recorded program a client of the MPS daemon of a device; None: its tenants are no clients."""
    return daemon_on(tables, device_id).client if TRAITS[mode].mps else None


def _record_solo(tables: TableSet, device_id: int, wanted: Sequence[int], mode: Mode) -> str:
    """Commands that record a tenant solo and compare with it; the others need the same.

    Under the same cap and in the same instance: otherwise the slowdown would include that difference.
    """
    here = tables.of_device("tenants", device_id).filter("traced")
    # Labels tell tenants of one name apart, and a baseline is given to a label.
    labels = tables.labels(device_id)
    names = [labels[number] for number in here["tenant_id"]]
    each = [labels[number] for number in wanted if labels[number] in names] or names
    if not each:
        options = client_options(_client(tables, device_id, mode), root=True)
        only = f"{clients_only(options)}; " if options else ""
        return f"{recording(*options)}   # as root; {only}each tenant, first solo, then with the others"
    name, *others = each
    file = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'tenant'}.solo"
    daemon = daemon_on(tables, device_id)
    find = f"{PIPE}={shell_word(daemon.pipe)} " if TRAITS[mode].mps and daemon.pipe is not None else ""
    record, compare = (
        find + shell_line(["nsys", "profile", "-t", "cuda,nvtx", "-o", file]),
        shell_line(["--baseline", f"{name}={file}.nsys-rep"]),
    )
    traits = TRAITS[mode]
    where = ", ".join(
        text
        for text, holds in (
            ("in the same MIG instance", traits.mig_instance),
            ("under MPS with the same cap as here", traits.mps and traits.capped),
        )
        if holds
    )
    where = f", {where}" if where else f" on the GPU{', under MPS as here' if traits.mps else ''}"
    more = (
        f"; the same for {fmt.names(others, _NAMED)}, then pyanalyze interference once with every --baseline"
        if others
        else ""
    )
    whose = f"{visible(name, 40)} with no other tenant{where}{more}"
    return f"{record} PROGRAM && pyanalyze interference CAPTURE {compare}   # {whose}"


def _small_grids(kernels: pl.DataFrame, caps: Mapping[int, int], sm_count: int | None) -> pl.Series:
    """Which launch configurations have too few blocks for the SMs that their tenant may use."""
    import polars as pl

    few = [grid_fill(row, sm_count, caps).limit is GridLimit.FEW_BLOCKS for row in kernels.iter_rows(named=True)]
    return pl.Series(few, dtype=pl.Boolean)


def _occupancy(
    analysis: Analysis,
    verdict: Verdict,
    modelled: pl.DataFrame,
    window: Window | None,
    device: dict[str, Any],
    missing: list[Missing],
) -> Occupancy | None:
    import polars as pl

    tables = analysis.tables
    kernels = tables.of_device("kernel_occupancy", verdict.device_id)
    known = kernels.filter(pl.col("limiters").is_not_null())
    if modelled.is_empty() or window is None or known.is_empty():
        reasons = kernels["reason"].drop_nulls().unique().sort().to_list()
        why = "; ".join(reasons) or "no kernels with a launch configuration were captured"
        if kernels.is_empty() and not tables.of_device("graph_launches", verdict.device_id).is_empty():
            why = "graphs were traced whole, without their kernels"
            how = recording("--cuda-graph-trace=node", switches=False)
        elif kernels.is_empty():
            how = _how_kernels(verdict)
        elif kernels["registers_per_thread"].null_count() == kernels.height:
            # nsys writes them for each kernel.
            how = HOW["whole_export"]
        else:
            how = _how_device(tables, device)
        missing.append(Missing(what="occupancy", why=why, how=how))
        return None
    length = pl.col("end_ns") - pl.col("start_ns")
    # By SM, not summed over tenants: several may be on one.
    per_sm = tables.of_device("sm_warps", verdict.device_id)
    slots = device["max_warps_per_sm"] or 1
    # In order: sums of floats should not depend on which thread was first.
    per_bin = per_sm.group_by("start_ns", "end_ns", maintain_order=True).agg(
        pl.col("active").mean().alias("sm_active"), pl.col("warps").mean() / slots
    )
    # Bins cover the whole session; outside this device's window they hold nothing of it.
    window_ns = max(window.end_ns - window.start_ns, 1)
    means = per_bin.select(
        (pl.col("sm_active") * length).sum() / window_ns, (pl.col("warps") * length).sum() / window_ns
    ).row(0)
    blind = 1 - int(known["total_ns"].sum()) / max(int(kernels["total_ns"].sum()), 1)
    if blind > 0:
        reasons = kernels["reason"].drop_nulls().unique().sort().to_list()
        missing.append(
            Missing(
                what="occupancy.part",
                why=f"{fmt.percent(blind)} of kernel time could not be modelled: {'; '.join(reasons)}",
                how="",
            )
        )
    caps = analysis.policies[verdict.device_id].caps
    small = _small_grids(known, caps, device["sm_count"])
    # At full theoretical occupancy the hardware's own limit is reached: no resource keeps it from more.
    limited = (
        known.filter((pl.col("occupancy") < 1) & ~small)
        .select(pl.col("limiters").str.split(","), "total_ns")
        .explode("limiters")
        .group_by(pl.col("limiters").str.strip_chars())
        .agg(pl.col("total_ns").sum())
        .sort("limiters")
    )
    total = known["total_ns"].sum()
    scaled = analysis.scaled_occupancy.get(verdict.device_id)
    counted = (0.0, 0.0)
    if scaled is not None:
        sampled = [pl.col(name).is_not_null() for name in ("sm_active_scale", "warps_scale")]
        of_bins = per_bin.join(scaled.bins, on=["start_ns", "end_ns"])
        parts = [
            (pl.col(name) * length).filter(there).sum() / window_ns
            for name, there in zip(("sm_active", "warps"), sampled, strict=True)
        ]
        counted = of_bins.select(*parts).row(0)
    observed = per_sm.filter(pl.col("basis").cast(pl.String) == "observed")
    if not observed.is_empty():
        # Measured blocks: known, and nothing of the model is left in these bins.
        of_bins = per_bin.join(observed.select("start_ns", "end_ns").unique(), on=["start_ns", "end_ns"], how="semi")
        sums = of_bins.select([(pl.col(name) * length).sum() / window_ns for name in ("sm_active", "warps")]).row(0)
        counted = (max(counted[0], sums[0]), max(counted[1], sums[1]))
    span = (window.start_ns, window.end_ns)
    graphs = whole_graphs_share(tables, verdict.device_id, span)
    active, warps = bounded_means(
        tables, verdict.device_id, means, span, caps=caps, counted=counted, whole_graphs=graphs
    )
    check = analysis.counter_check(verdict.device_id)
    return Occupancy(
        sm_active=active,
        warps=warps,
        whole_graphs=graphs,
        limiters={name: value / total for name, value in limited.iter_rows() if total},
        small_grids=int(known.filter(small)["total_ns"].sum()) / int(total) if total else 0.0,
        basis="observed" if counted[1] >= means[1] and not observed.is_empty() else "modelled",
        calibration=None if scaled is None else scaled.said,
        check_against_counters=None if check is None else check.result(),
        check_against_blocks=analysis.block_check(verdict.device_id),
        kernel_counters=list(analysis.kernel_counters.get(verdict.device_id, ())),
    )


def _without_events(tables: TableSet) -> set[int]:
    """Captures of which no table of what the GPU did has a row; without a capture, samples have times of their own."""
    if not tables.paths:
        return set()
    rows = [row for row in tables.rows("sources") if row["source"] in _EVENT_SOURCES]
    return {row["capture"] for row in rows} - {row["capture"] for row in rows if row["rows"]}


def _sm_warps(tables: TableSet, device_id: int) -> SmWarps | None:
    """Modelled warps of every SM, with --detail."""
    import polars as pl

    table = tables.of_device("sm_warps", device_id).sort("start_ns", "sm")
    if table.is_empty():
        return None
    start, end = table["start_ns"].min(), table["end_ns"].max()
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    bins = table.group_by("start_ns", maintain_order=True).agg(pl.col("warps").round(4))
    return SmWarps(start_ns=start, end_ns=end, warps=bins["warps"].to_list())


def _relations(
    tables: TableSet, usage: pl.DataFrame, pairs: Sequence[Pair], verdict: Verdict, group: frozenset[int]
) -> list[Relation]:
    import polars as pl

    whole = int(usage["resident_ns"].sum())
    small = {
        row["tenant_id"]
        for row in usage.iter_rows(named=True)
        if not row["traced"] and (row["resident_ns"] or 0) < NEGLIGIBLE_RESIDENCY * whole
    }
    # A client of MPS and its server are one party on the GPU.
    served = {frozenset(pair) for pair in usage.select("tenant_id", "served_by").drop_nulls().iter_rows()}
    relations = []
    shown = {pair.tenants: pair for pair in pairs}
    rows = tables.of_device("overlaps", verdict.device_id)
    if usage.height > MOST_TENANTS:
        # Of many tenants the table has the pairs that met, by short kernels one soon after the other too.
        rows = rows.filter((pl.col("co_busy_ns") > 0) | (pl.col("co_resident_ns") > 0))
    for row in rows.iter_rows(named=True):
        pair = (row["tenant_a"], row["tenant_b"])
        if small & set(pair) or frozenset(pair) in served:
            continue
        kind, confidence = relation_in_process(tables, *pair, co_busy_ns=row["co_busy_ns"]) or _relation(
            row, shown.get(pair), verdict, inside=len(group & set(pair)), only=len(shown) == 1
        )
        relations.append(Relation(tenants=pair, relation=kind, confidence=confidence, co_busy_ns=row["co_busy_ns"]))
    return relations


def _relation(
    row: dict[str, Any], pair: Pair | None, verdict: Verdict, *, inside: int, only: bool
) -> tuple[RelationKind, float]:
    """How two tenants shared the device; `inside`: how many of them are in the MPS group; `only`: no other pair ran."""
    if row["co_busy_ns"] == 0 and row["co_resident_ns"] in (None, 0) and row["co_window_ns"] == 0:
        return "apart", 0.95
    traits = TRAITS[verdict.mode]
    if traits.partitioned:
        return "partitioned", verdict.confidence
    # Capped clients may have SMs of their own.
    if verdict.mode != Mode.UNDETERMINED and pair is not None and pair.together and traits.same_sms is not None:
        return "side-by-side", verdict.confidence
    if inside == 1 or (verdict.mode != Mode.UNDETERMINED and pair is not None and pair.sliced):
        return "time-sliced", verdict.confidence
    # Virtual machines that are time-sliced are no tenants here. Beside an MPS group an untraced tenant may be the
    # server, whose context is that of the group.
    if traits.time_sliced and not traits.vgpu and (pair is not None or not traits.mps):
        return "time-sliced", verdict.confidence
    # Under MPS nothing switches contexts: what was in flight at one time had blocks on the SMs at one time. Of several
    # tenants some may be no clients: that a server ran does not say whose.
    all_clients = traits.mps and (only or verdict.basis == "observed")
    at_once = row["short_short_overlapping"] or (all_clients and row["co_busy_ns"])
    if traits.same_sms and at_once and not traits.time_sliced:
        return "side-by-side", verdict.confidence
    return "unknown", 0.0
