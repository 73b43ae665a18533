"""The tenants with what is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.range_phases import range_phases
from pyanalyze.results.interference import Slowdown
from pyanalyze.results.report import Tenant
from pyanalyze.tables.process_lists import process_memory
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.interference import TenantInterference
    from pyanalyze.analysis.residency import DeviceResidency
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.copies import Copies
    from pyanalyze.results.streams import Streams
    from pyanalyze.results.time_split import TimeSplit
    from pyanalyze.results.work import Work
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Basis


def shown_tenants(tables: TableSet, usage: pl.DataFrame, verdict: Verdict) -> pl.DataFrame:
    """The tenants that a report shows: a divided process only where it has residency, which is that of its groups."""
    import polars as pl

    if tables.groups is None:
        return usage
    divided = pl.col("tenant_id").is_in(list(tables.groups.processes))
    if TRAITS[verdict.mode].time_sliced:
        return usage
    return usage.filter(~divided | pl.col("resident_ns").is_not_null())


def with_range_phases(
    tables: TableSet, usage: pl.DataFrame, splits: Mapping[tuple[int, int], TimeSplit]
) -> dict[tuple[int, int], TimeSplit]:
    """The splits of a device, with the NVTX ranges whose averages say little of each other."""
    found = {}
    for row in usage.iter_rows(named=True):
        key = (row["device_id"], row["tenant_id"])
        if key in splits and (phases := range_phases(tables, row)):
            found[key] = splits[key].model_copy(update={"range_phases": phases})
    return found


def tenants_of(
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
    """Every tenant, without its GPU time share."""
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
                not_compared=None if found is None else found.not_compared,
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


def with_gpu_time(
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


def with_mps_group(
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
    parts = [part for part, value in execution_parts(found).items() if value]
    return [
        *found.notes,
        *([found.missing] if found.missing else []),
        *(
            f"execution, {part.replace('_', ' ').replace('sm ', 'SM ')}: {found.execution_reasons[part]}"
            for part in parts
        ),
    ]


def execution_parts(found: TenantInterference) -> dict[str, float | None]:
    """Parts of what took longer while executing; None: not known."""
    split = None if found.causes is None else found.causes.execution_split
    return {} if split is None else split.parts()
