"""From an analysis to the JSON contract: every key is filled from a table, or is null with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.advice.settings import without_effect
from pyanalyze.analysis.association import associations
from pyanalyze.analysis.gpu_metrics import gpu_metrics_of
from pyanalyze.analysis.occupancy import model_in_passing, most_active
from pyanalyze.analysis.residency import jain_of, named_for_all, recorded_ns
from pyanalyze.analysis.sampled import sampled_of
from pyanalyze.analysis.sharing.facts import pairs_of
from pyanalyze.analysis.sharing.mig_mode import mig_is_on
from pyanalyze.core import _core
from pyanalyze.nsys_tool import TRACE
from pyanalyze.report.fill.capture import (
    captures_without_events,
    clock_of,
    cut_export,
    held_times_ns,
    other_gpus_without_work,
    records_held,
)
from pyanalyze.report.fill.device import memory_of, mig_of
from pyanalyze.report.fill.how import how_kernels
from pyanalyze.report.fill.interference import interference_of, lost_records, sharing_cause, unsplit_execution
from pyanalyze.report.fill.occupancy import no_counters, occupancy_of, sm_warps_of
from pyanalyze.report.fill.options import how_options, options_of, replay_check_of
from pyanalyze.report.fill.relations import relations_of
from pyanalyze.report.fill.residency import context_switches_of, residency_slices, resident_within
from pyanalyze.report.fill.samples import only_samples, timeless_samples, unavailable_samples
from pyanalyze.report.fill.tenants import shown_tenants, tenants_of, with_gpu_time, with_mps_group, with_range_phases
from pyanalyze.report.fill.window import (
    all_at_work_of,
    any_in_flight_ns,
    first_launch_ns,
    gpu_time_shares,
    switches_within,
    window_of,
)
from pyanalyze.results.model import Missing
from pyanalyze.results.report import Capture, Device, QualityRow, Report, Tool, View
from pyanalyze.tables.cut_exports import sampled_spans_of_cut
from pyanalyze.tables.tableset import Selection
from pyanalyze.text.allowlist import known_host
from pyanalyze.vocabulary import EVERY_PART, Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.advice import DeviceAdvice
    from pyanalyze.analysis.analysis import Analysis
    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.analysis.listed import Listed
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.listed import ConfiguredSharing
    from pyanalyze.tables.tableset import TableSet

#: First and last record of a capture whose export is not cut: nobody looks.
_UNKNOWN_SPAN: Final = (None, None)


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
    captures, cut = tables.capture.to_dicts(), records_held(tables)
    sampled_ns = sampled_spans_of_cut(tables)
    held_ns = held_times_ns(tables, {*cut, *sampled_ns})
    without_events = captures_without_events(tables)
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
                counters_cover_ns=sampled_ns.get(c["capture"]),
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
                sampled_ns,
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
        gpus_without_work=other_gpus_without_work(tables, {verdict.device_id for verdict in analysis.verdicts}),
        listed=list(listed.elsewhere),
        nodes=list(listed.nodes),
        settings_advice=list(without_effect(listed.nodes)) if Part.ADVICE in parts else [],
        pods_without_gpu=list(listed.without_gpu),
        settings=list(listed.general),
        samples_not_used=list(tables.samples_not_used),
        view=_view(tables),
        grouped_by=None if tables.groups is None else tables.groups.by,
    )


def _set_up(listed: Listed, device_id: int) -> ConfiguredSharing | None:
    found = listed.sharing.get(device_id)
    return found if found is not None and (found.shared or found.replicas == 1 or found.other_nodes) else None


def _view(tables: TableSet) -> View | None:
    chosen = tables.selection
    if chosen == Selection():
        return None
    return View(start_ns=chosen.start_ns, end_ns=chosen.end_ns, gpu=chosen.gpu, redacted=chosen.redacted)


def _device(
    analysis: Analysis,
    verdict: Verdict,
    advice: DeviceAdvice | None,
    found: DeviceInterference | None,
    parts: frozenset[Part],
    sampled_ns: Mapping[int, int],
    *,
    detail: bool,
) -> Device:
    tables = analysis.tables
    device = tables.rows_of("devices", verdict.device_id)[0]
    usage = tables.of_device("tenants", verdict.device_id).join(
        tables.of_device("tenant_usage", verdict.device_id), on=["tenant_id", "device_id"]
    )
    usage = shown_tenants(tables, usage, verdict)
    missing = cut_export(tables, set(usage["capture"].drop_nulls()), sampled_ns) + list(verdict.missing)
    window = window_of(usage)
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
        usage = resident_within(usage, tables, verdict.device_id, window)
    span_ns = 0 if window is None else window.end_ns - window.start_ns
    recorded = None if window is None else recorded_ns(tables, verdict.device_id, window.start_ns, window.end_ns)
    recorded_span_ns = span_ns if recorded is None else recorded
    switches = context_switches_of(tables, verdict.device_id, span_ns, recorded)
    sampled = sampled_of(tables, verdict.device_id)
    if window is None:
        why = "no activity of any tenant was recorded" if tables.paths else only_samples(sampled)
        missing.append(Missing(what="window", why=why, how=how_kernels(verdict)))
    missing += [*unavailable_samples(tables, verdict.device_id), *timeless_samples(tables, verdict.device_id)]
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
        occupancy = occupancy_of(analysis, verdict, modelled, window, device, missing)
        if occupancy is None and window is not None:
            caps = analysis.policies[verdict.device_id].caps
            at_most = most_active(tables, verdict.device_id, (window.start_ns, window.end_ns), caps)
        if occupancy is not None and occupancy.check_against_counters is None:
            missing.append(no_counters(tables, device, trace))
    compared = {tenant.tenant_id: tenant for tenant in (() if found is None else found.tenants)}
    work = analysis.compared_work if Part.WORK in parts else {}
    streams = analysis.streams if Part.STREAMS in parts else {}
    # What streams lost is a share of the time without a gap that the split finds.
    splits = analysis.time_splits if Part.ADVICE in parts or streams else {}
    if Part.UNITS in parts:
        splits = {**splits, **with_range_phases(tables, usage, splits)}
    # Advice looks at copies, and what limits a process is worded by their kinds.
    copies = analysis.copies if parts & {Part.COPIES, Part.ADVICE} else {}
    summary = analysis.residency_by_device.get(verdict.device_id) if Part.RESIDENCY in parts else None
    caps = analysis.policies[verdict.device_id].caps
    known = tenants_of(
        tables, device["device_id"], usage, modelled, span_ns, compared, work, splits, streams, copies, caps
    )
    one_for_all = named_for_all(verdict.mode, [(t.tenant_id, t.busy_ns, t.resident_ns) for t in known]) is not None
    tenants = [
        with_gpu_time(
            tenant, summary, span_ns, recorded_span_ns, known=Part.RESIDENCY in parts, one_for_all=one_for_all
        )
        for tenant in known
    ]
    group = analysis.mps_groups.get(verdict.device_id, frozenset())
    if group:
        tenants = with_mps_group(tenants, group, recorded_span_ns, analysis.attributed_in_groups)
    interference = None
    if found is not None:
        interference = interference_of(
            found,
            usage,
            tables,
            missing,
            verdict.mode,
            trace,
            analysis.baselines,
            switches=not mig_is_on(tables, device),
        )
        missing += lost_records(analysis.launch_records.get(verdict.device_id))
        missing += unsplit_execution(found, tables.labels(found.device_id))
    by_tail = analysis.units_by_tail if Part.UNITS in parts else None
    slow, even, few = ((), (), ()) if by_tail is None else (by_tail.slow, by_tail.even, by_tail.few)
    others, outside = ((), ()) if by_tail is None else (by_tail.others, by_tail.outside)
    capability = (device["compute_major"], device["compute_minor"])
    if advice is not None and advice.options.why_not is not None:
        how = "pyanalyze advise CAPTURE"
        if not advice.options.postponed:
            how = how_options(tables, verdict, usage, device, missing)
        missing.append(Missing(what="options", why=advice.options.why_not, how=how))
    at_work, at_work_jain = all_at_work_of(tables, usage, verdict.device_id, group), None
    # Shares of a time of which switch records cover a part would be too small.
    if at_work is not None and recorded is None and Part.RESIDENCY in parts:
        if switches is not None:
            within = switches_within(tables, verdict.device_id, at_work, switches.cost_kind)
            switches = switches.model_copy(update=within)
        shares = gpu_time_shares(tables, verdict.device_id, at_work)
        tenants = [
            one.model_copy(update={"all_at_work_share": shares.get(one.tenant_id, 0.0)})
            if one.gpu_time_basis == "observed" and not one.in_mps_group
            else one
            for one in tenants
        ]
        if summary is not None and summary.basis == "observed":
            # Clients of an MPS group are one row there.
            rows = [row.clients or [row.tenant_id] for row in summary.tenants]
            at_work_jain = jain_of([sum(shares.get(one, 0.0) for one in row) for row in rows])
    made = Device(
        device_id=verdict.device_id,
        uuid=device["uuid"],
        gpu_uuid=device["gpu_uuid"],
        window=window,
        all_at_work=at_work,
        all_at_work_jain=at_work_jain,
        in_flight_ns=any_in_flight_ns(tables, verdict.device_id, window, tenants) if Part.RESIDENCY in parts else None,
        memory=memory_of(tables, device, missing),
        sampled=sampled,
        gpu_metrics=None
        if any(tenant.busy_ns for tenant in tenants)
        else gpu_metrics_of(tables, verdict.device_id, group),
        name=device["name"],
        sm_count=device["sm_count"],
        compute_capability=None if None in capability else f"{capability[0]}.{capability[1]}",
        mig=mig_of(tables, device),
        sharing=verdict.model_copy(update={"missing": missing}),
        relations=relations_of(tables, usage, pairs, verdict, group),
        segments=list(analysis.segments[verdict.device_id]) if Part.SEGMENTS in parts else [],
        context_switches=switches,
        residency_summary=summary,
        tenants=tenants,
        occupancy=occupancy,
        sm_active_at_most=at_most,
        interference=interference,
        residency=residency_slices(tables, verdict.device_id) if detail and Part.RESIDENCY in parts else None,
        sm_warps=sm_warps_of(tables, verdict.device_id) if detail and Part.OCCUPANCY in parts else None,
        host=[] if found is None else list(found.host),
        advice=[] if advice is None else list(advice.actions),
        options=None if advice is None else options_of(advice),
        replay_check=[] if advice is None or not advice.options.options else replay_check_of(advice.options),
        slow_units=[one for one in slow if one.group.device_id == verdict.device_id],
        even_units=[one for one in even if one.device_id == verdict.device_id],
        few_units=[one for one in few if one.device_id == verdict.device_id],
        other_units=[one for one in others if one.device_id == verdict.device_id],
        outside_units=[one for one in outside if one.device_id == verdict.device_id],
    )
    if parts & {Part.INTERFERENCE, Part.RESIDENCY}:
        made = made.model_copy(update={"all_at_work_launched_ns": first_launch_ns(tables, made)})
    if Part.INTERFERENCE not in parts:
        return made
    return made.model_copy(update={"sharing_is_the_cause": sharing_cause(made)})
