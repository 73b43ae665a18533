"""Split the time of each process into kernels, copies, launched work that waits, launching, CUDA calls and the host."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.collectives import collective_waits
from pyanalyze.analysis.copies import BY_FAULTS, COPIED_TO_DEVICE, COPIED_TO_HOST, MIGRATED, PAGEABLE, STAGED_BYTES
from pyanalyze.analysis.hardware import LAUNCH_GAP_NS
from pyanalyze.analysis.intervals import covered_until, outside, times, union
from pyanalyze.analysis.quality import MATCHES
from pyanalyze.core import _core
from pyanalyze.results.time_split import (
    LEAST_PHASE,
    READS_OFTEN,
    WAITS_OFTEN,
    CallsBefore,
    CallTime,
    CodeLoading,
    CpuSamples,
    GraphWaits,
    HostActivity,
    HostKind,
    HostPart,
    LaunchPhases,
    LaunchWaits,
    Limit,
    LoadingRecords,
    LongestGap,
    MpiCalls,
    ReadBacks,
    SampledFunction,
    SyncGaps,
    TimeSplit,
    UnitPauses,
    UploadWaits,
)
from pyanalyze.tables.export_details import LoadingKind
from pyanalyze.tables.library_kernels import library_of
from pyanalyze.tables.selections import covered_ns, named, of_process, work_of
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import ENOUGH_UNITS, NAMED_SHARE, SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["MOST_EQUAL", "about_kernel", "time_splits"]

#: Calls in which a host waits, or works, for something else than launching.
_WAITS = (HostKind.MPI, HostKind.VIDEO)
#: Parts of the host's time that are told one by one, as of the core.
_MOST_PARTS = 8
#: Kernels that are named beside the one with most time where they have as much.
MOST_EQUAL = 3
#: Calls at the start are set-up where each takes more than so many times the median of all.
_SET_UP = 10
#: By so much the clocks of host and device may differ: in `nsys-ai/mfu_2gpu_before` of the corpus waits for copies of
#: one of two H100 return up to 7 us before these end.
_CLOCKS_NS = 50_000
#: Parts of the time in which the host keeps the device waiting.
_FED_BY_HOST = (Limit.LAUNCHES, Limit.API_CALLS, Limit.HOST)
#: Calls that return only when work on the GPU has ended.
_SYNCHRONISES = r"Synchronize"
_LAUNCHES = r"Launch"
#: Calls that hand over work and return, as the core's `HANDS_OVER`: in short gaps they count as launching.
_HANDS_OVER = r"Launch|Async|EventRecord|StreamWaitEvent"
#: Calls that load code, or may: a first launch or a first question about a kernel does where loading is lazy.
_LOADS_CODE = re.compile(r"Library|Module|Kernel|Func")
_LOADS_NO_CODE = re.compile(r"Host|Malloc|Free|Unload|GetLoadingMode")
#: Copies so small that the link is no part of their time: at 12 GB/s 1 KiB takes 0.1 us, and no copy less than about 1.
_SMALL_COPY_BYTES = 1 << 10
#: Calls that create no context: they ask for properties, or choose a device (which creates one from CUDA 12 on).
_NEEDS_NO_CONTEXT = (
    r"^cu(da)?(ModuleGetLoadingMode|Init|GetProcAddress|GetDevice|SetDevice|DeviceGet|DriverGet|RuntimeGet|Profiler)"
)
_MAKES_CONTEXT = r"CtxCreate|PrimaryCtxRetain"
#: What nsys writes behind the name of a function of the runtime.
_VERSION = re.compile(r"_v\d+$")
_OF_CALLS = ("capture", "pid", "tid", "start_ns", "end_ns", "name", "correlation_id")
#: Among the numbers of names: a graph of unknown kernels, and a kernel without a name.
_GRAPH, _NAMELESS = -1, -2
_OF_KERNELS = ("device_id", "capture", "pid", "start_ns", "end_ns", "short_name")


def time_splits(tables: TableSet) -> dict[tuple[int, int], TimeSplit]:
    """Split the time of every traced tenant.

    Parameters
    ----------
    tables
        The tables. API calls are read where a tenant had nothing on the device for a notable part of its time: in gaps
        up to 250 us for 2 %, in longer ones for 1 %.

    Returns
    -------
    dict of (int, int) to TimeSplit
        By device and tenant; tenants of which no kernel or copy was recorded are left out.

    Examples
    --------
    >>> import pyanalyze
    >>> splits = time_splits(pyanalyze.load(capture).tables)
    >>> str(splits[0, 0].limit)
    'kernels'
    """
    rows = _usage(tables).to_dicts()
    top_kernels = _top_kernels(tables)
    calls = _calls_in_gaps(tables) if any(_has_gaps(row) for row in rows) else {}
    before = _calls_before(tables, rows)
    waits_of_ranks = collective_waits(tables, rows)
    found = {}
    for row in rows:
        window_ns = row["last_ns"] - row["first_ns"]
        idle_ns = row["idle_ns"] or 0
        gaps = calls.get((row["device_id"], row["tenant_id"])) if _has_gaps(row) else None
        found_calls = gaps if gaps is not None and gaps["called"] else None
        # Who waits for other ranks does not launch, however short the wait.
        waits = {} if found_calls is None else _short_waits(tables, row, found_calls)
        waits_ns = sum(waits.values())
        long_ns = short_ns = waiting_long_ns = 0
        waiting_short_ns: int | None = None
        if found_calls is not None:
            # The usage of tenants is another pass over the same work: whatever it counts, no part is less than nothing.
            long_ns, short_ns = min(found_calls["long_ns"], idle_ns), min(found_calls["short_ns"], row["launch_gap_ns"])
            if found_calls["waiting_long_ns"] is not None:
                waiting_long_ns = min(found_calls["waiting_long_ns"], idle_ns - long_ns)
                left_ns = max(row["launch_gap_ns"] - short_ns - waits_ns, 0)
                waiting_short_ns = min(found_calls["waiting_short_ns"], left_ns)
        waiting_ns = None if waiting_short_ns is None else waiting_long_ns + waiting_short_ns
        parts = {
            Limit.KERNELS: row["busy_ns"],
            Limit.COPIES: row["copy_only_ns"] or 0,
            Limit.WAITING: waiting_ns or 0,
            Limit.LAUNCHES: row["launch_gap_ns"] - short_ns - waits_ns - (waiting_short_ns or 0),
            Limit.API_CALLS: long_ns + short_ns,
            Limit.HOST: idle_ns - long_ns + waits_ns - waiting_long_ns,
        }
        by_name = {} if found_calls is None or not long_ns + short_ns else found_calls["by_name"]
        call = max(by_name, key=lambda name: by_name[name][0], default=None)
        top = top_kernels.get((row["device_id"], row["tenant_id"]), _TopKernel(None, [], 0, 0, 0, 0, 0, None, None))
        limit = max(parts, key=lambda limit: parts[limit])
        host_limits = found_calls is not None and limit is Limit.HOST
        unit_pauses = _unit_pauses(tables, row, parts[Limit.HOST]) if host_limits else None
        # Beside pauses between units, no part of these is notable.
        least_ns = max(SMALL_SHARE * (window_ns - (unit_pauses.host_ns if unit_pauses else 0)), 1)
        split = TimeSplit(
            limit=limit,
            start_ns=row["first_ns"],
            window_ns=window_ns,
            kernels_ns=parts[Limit.KERNELS],
            copies_ns=parts[Limit.COPIES],
            launches_ns=parts[Limit.LAUNCHES],
            api_calls_ns=None if found_calls is None else parts[Limit.API_CALLS],
            host_ns=parts[Limit.HOST],
            waiting_ns=waiting_ns,
            waiting_short_ns=waiting_short_ns,
            api_call=call,
            api_call_ns=0 if call is None else min(by_name[call][0], parts[Limit.API_CALLS]),
            api_call_count=0 if call is None else by_name[call][1],
            code_loading=_code_loading(tables, row, by_name, parts[Limit.API_CALLS])
            if parts[Limit.API_CALLS] >= least_ns
            else None,
            top_kernel=top.name,
            top_kernel_ns=top.ns,
            top_kernel_share=top.ns / top.all_ns if top.all_ns else None,
            top_kernel_library=library_of(top.name, top.full_name),
            top_kernel_equals=top.equals(),
            top_kernel_kinds=top.kinds,
            top_kernel_launches=top.launches,
            top_kernel_configurations=top.configurations,
            shortest_kernel_ns=None if top.shortest_ns is None else round(top.shortest_ns),
            top_kernel_faulting_ns=None if top.name is None else _faulting_ns(tables, row, top.name),
            graphs_ns=covered_ns(work_of(tables, row, ("graph_launches",), "start_ns", "end_ns")),
            host_activity=_host_activity(tables, row, gaps and gaps["host"], waits, parts[Limit.HOST]),
            host_after_ns=_after_last_launch_ns(tables, row) if parts[Limit.HOST] >= least_ns else None,
            unit_pauses=unit_pauses,
            longest_gap=_longest(tables, row, gaps) if gaps is not None and limit is Limit.HOST else None,
            calls_before=_notable(before.get((row["capture"], row["pid"])), window_ns),
            launch_waits=_launch_waits(tables, row) if parts[Limit.LAUNCHES] >= least_ns else None,
            sync_gaps=_sync_gaps(tables, row, parts)
            if found_calls is not None and max(parts[Limit.LAUNCHES], parts[Limit.HOST]) >= least_ns
            else None,
            read_backs=_read_backs(tables, row)
            if found_calls is not None and max(parts[Limit.COPIES], long_ns + short_ns) >= least_ns
            else None,
            upload_waits=_upload_waits(tables, row)
            if found_calls is not None and sum(parts[one] for one in _FED_BY_HOST) >= least_ns
            else None,
            collective_waits=waits_of_ranks.get((row["device_id"], row["tenant_id"])),
            operations=row["kernels"] + row["graph_launches"] + row["memops"],
            graph_launches=_graph_launches(tables, row)
            if max(parts[Limit.LAUNCHES], parts[Limit.WAITING]) >= least_ns
            else None,
            node_launch_calls=None if found_calls is None else _node_launch_calls(tables, row, least_ns),
            launch_phases=_launch_phases(tables, row),
        )
        if parts[Limit.WAITING] >= least_ns:
            split = split.model_copy(
                update={
                    "graph_waits": _graph_waits(tables, row) if split.graph_launches else None,
                    "early_starts": None if gaps is None else gaps["early_starts"],
                }
            )
        if split.overlapping:
            only = _only_times(tables, row)
            name = max(only, key=lambda one: only[one], default=top.name)
            # Where each runs beside others nearly all of the time, none holds the work up by itself.
            if name is None or only.get(name, 0) < SMALL_SHARE * window_ns:
                name = top.name
            split = about_kernel(tables, (row["device_id"], row["tenant_id"]), split, str(name), only)
        found[row["device_id"], row["tenant_id"]] = split
    return found


def about_kernel(
    tables: TableSet, tenant: tuple[int, int], split: TimeSplit, name: str, only: Mapping[str, int] | None = None
) -> TimeSplit:
    """Replace what a split says of the kernel with most time by what is so of another kernel.

    Parameters
    ----------
    tables
        The tables.
    tenant
        Device and tenant.
    split
        The split of this tenant.
    name
        Short name of one of its kernels.
    only
        For how long each of its kernels was in flight without another; None: that is looked up where kernels overlap.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> about_kernel(tables, (0, 0), time_splits(tables)[0, 0], "A2").top_kernel
    'A2'
    """
    import polars as pl

    device_id, tenant_id = tenant
    if name == split.top_kernel and only is None:
        return split
    here = (pl.col("device_id") == device_id) & (pl.col("tenant_id") == tenant_id)
    names = _kernel_names(tables).filter(here)
    (row,) = _usage(tables).filter(here).to_dicts()
    (kernel,) = names.filter(pl.col("short_name") == name).to_dicts()
    if split.overlapping and only is None:
        only = _only_times(tables, row)
    return split.model_copy(
        update={
            "top_kernel": name,
            "top_kernel_ns": kernel["total_ns"],
            "top_kernel_share": kernel["total_ns"] / max(names["total_ns"].sum(), 1),
            "top_kernel_kinds": kernel["kinds"],
            "top_kernel_launches": kernel["launches"],
            "top_kernel_configurations": kernel["configurations"],
            "top_kernel_library": library_of(name, kernel["full_name"]),
            "top_kernel_equals": [],
            "top_kernel_faulting_ns": _faulting_ns(tables, row, name),
            "top_kernel_only_ns": None if only is None else only.get(name, 0),
        }
    )


def _usage(tables: TableSet) -> pl.DataFrame:
    """Rows of `tenant_usage` of traced tenants that had work, with the capture and process of each."""
    import polars as pl

    who = tables.tenants.filter("traced").select("tenant_id", "device_id", "capture", "pid", "match_rate")
    usage = tables.tenant_usage.filter(pl.col("first_ns").is_not_null(), pl.col("busy_ns").is_not_null())
    return usage.join(who, on=["tenant_id", "device_id"])


def _calls_before(tables: TableSet, usage: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int | None], CallsBefore]:
    """CUDA calls before the first operation of each process on any device, where those may be a notable time.

    In a part of a capture the first operation may be any.
    """
    import polars as pl

    began = {row["capture"]: row["recording_start_ns"] for row in tables.rows("capture")}
    firsts: dict[tuple[int, int | None], int] = {}
    # Groups of work of one process are rows of their own.
    devices = Counter((capture, pid) for capture, pid, _ in {(r["capture"], r["pid"], r["device_id"]) for r in usage})
    wanted, mostly_before = set(), set()
    for row in usage:
        process, first_ns = (row["capture"], row["pid"]), row["first_ns"]
        firsts[process] = min(firsts.get(process, first_ns), first_ns)
        start_ns = began[row["capture"]]
        recorded_ns = None if start_ns is None else first_ns - start_ns
        # Calls are read only if the recording began early enough for them to matter.
        if recorded_ns is None or recorded_ns >= SMALL_SHARE * (row["last_ns"] - first_ns):
            wanted.add(process)
        if recorded_ns is not None and recorded_ns > row["last_ns"] - first_ns:
            mostly_before.add(process)
    calls = tables.calls() if wanted and not tables.selection.narrowed else None
    if calls is None or calls.is_empty():
        return {}
    processes = pl.DataFrame(
        [(*process, firsts[process]) for process in wanted],
        schema={"capture": calls.schema["capture"], "pid": calls.schema["pid"], "first_ns": pl.Int64},
        orient="row",
    )
    calls = calls.select("capture", "pid", "start_ns", "end_ns", "name", "correlation_id").filter(
        pl.col("start_ns") < max(firsts[process] for process in wanted)
    )
    calls = calls.join(processes, on=["capture", "pid"], nulls_equal=True).filter(
        pl.col("start_ns") < pl.col("first_ns")
    )
    calls = calls.with_columns(pl.min_horizontal("end_ns", "first_ns").alias("end_ns"), pl.col("name").cast(pl.String))
    found = {}
    for (capture, pid), own in calls.group_by("capture", "pid"):
        names = {name: covered_ns(same) for (name,), same in own.group_by("name", maintain_order=True)}
        longest = max(names, key=lambda name: (names[name], name or ""))
        all_ns = covered_ns(own)
        ids = {(r["device_id"], r["tenant_id"]) for r in usage if (r["capture"], r["pid"]) == (capture, pid)}
        times_out, out_ns = _switched_out(tables, ids, own)
        told = out_ns >= SMALL_SHARE * all_ns and times_out > 0
        context_ns = _creates_context_ns(own, longest, all_ns)
        context = None if context_ns is None else longest
        found[capture, pid] = CallsBefore(
            ns=all_ns,
            call=None if longest is None else _VERSION.sub("", longest),
            call_ns=names[longest],
            first_ns=context_ns,
            **_loading_before(tables, (capture, pid), own, context, firsts[capture, pid]),
            devices=devices[capture, pid],
            switched_out=times_out if told else None,
            switched_out_ns=out_ns if told else None,
            cpu_samples=_samples_before(tables, (capture, pid), firsts[capture, pid])
            if (capture, pid) in mostly_before
            else None,
        )
    return found


def _switched_out(tables: TableSet, tenants: set[tuple[int, int]], calls: pl.DataFrame) -> tuple[int, int]:
    """How often, and for how long, a process was switched out for others while it was in some of its calls.

    Parameters
    ----------
    tables, tenants
        The tables, and device and tenant of the process on each device.
    calls
        Its calls: `start_ns` and `end_ns`.
    """
    import polars as pl

    # Groups of work of one process have one context.
    if tables.groups is not None:
        return 0, 0
    within = union(calls)
    columns = ("tenant_id", "hw_context", "start_ns", "end_ns")
    count = total_ns = 0
    for device_id, tenant_id in tenants:
        observed = pl.col("basis").cast(pl.String) == "observed"
        rows = tables.residency.filter(pl.col("device_id") == device_id, observed).select(columns).sort("start_ns")
        own = rows.filter(pl.col("tenant_id") == tenant_id)
        # Clients of one MPS server have one context, which records name any of them for.
        others = rows.join(own, on="hw_context", how="anti").select(other_ns="start_ns", other_end_ns="end_ns")
        out = own.select(start_ns="end_ns", end_ns=pl.col("start_ns").shift(-1)).drop_nulls()
        out = out.filter(pl.col("start_ns") < pl.col("end_ns"))
        if out.is_empty() or others.is_empty():
            continue
        held = out.join_asof(others, left_on="end_ns", right_on="other_ns", strategy="backward", check_sortedness=False)
        held = held.filter(pl.col("other_end_ns") > pl.col("start_ns")).select("start_ns", "end_ns")
        in_calls = held.join_asof(
            within.select(call_ns="start_ns", call_end_ns="end_ns"),
            left_on="start_ns",
            right_on="call_ns",
            strategy="backward",
            check_sortedness=False,
        ).filter(pl.col("call_end_ns") >= pl.col("end_ns"))
        count += in_calls.height
        total_ns += int((in_calls["end_ns"] - in_calls["start_ns"]).sum())
    return count, total_ns


def _loading_before(
    tables: TableSet, process: tuple[int, int | None], calls: pl.DataFrame, context: str | None, first_ns: int
) -> dict[str, Any]:
    """Time of calls before the first operation that load code; `context`: the function that creates the context."""
    import polars as pl

    names = calls["name"].drop_nulls().unique().to_list()
    loading = calls.filter(pl.col("name").is_in([name for name in names if _loads_code(name)]))
    if context is not None:
        # How much of it is context creation is not known.
        loading = loading.filter(pl.col("name") != context)
    if loading.is_empty():
        return {}
    until = pl.DataFrame({"start_ns": [calls["start_ns"].min()], "end_ns": [first_ns]})
    return {"loading_ns": covered_ns(loading), "recorded": _loading_records(tables, process, loading, until)}


def _loading_records(
    tables: TableSet, process: tuple[int, int | None], calls: pl.DataFrame, spans: pl.DataFrame
) -> LoadingRecords | None:
    """What was recorded inside calls of a process, as far as it lies in some spans; None: the capture does not say."""
    import polars as pl

    capture, pid = process
    records = tables.details.loading.get(capture)
    if records is None or pid is None:
        return None
    offset_ns = next(row["clock_offset_ns"] for row in tables.rows("capture") if row["capture"] == capture)
    ids = calls["correlation_id"].cast(pl.UInt32).unique()
    own = records.filter(pl.col("pid") == pid, pl.col("correlation_id").is_in(ids.implode())).with_columns(
        pl.col("start_ns", "end_ns") + offset_ns
    )
    lengths = {}
    for kind in LoadingKind:
        whole_ns, outside_ns = times(own.filter(pl.col("kind") == str(kind)), union(spans))
        lengths[kind] = whole_ns - outside_ns
    return LoadingRecords(loaded_ns=lengths[LoadingKind.LOADED], compiled_ns=lengths[LoadingKind.COMPILED])


def _creates_context_ns(calls: pl.DataFrame, longest: str | None, all_ns: int) -> int | None:
    """Time of the first call that needs a context, if it is of that function and most of the time of all.

    The runtime creates a context in whatever call first needs one: of cudaMalloc it is no slow allocation. A first call
    that waits or launches may be one of a process that began before it was traced.
    """
    import polars as pl

    if longest is None or re.search(f"{_SYNCHRONISES}|{_LAUNCHES}", longest):
        return None
    name = pl.col("name").fill_null("")
    explicit = calls.filter(name.str.contains(_MAKES_CONTEXT))
    needing = calls.filter(~name.str.contains(_NEEDS_NO_CONTEXT) | (name == longest))
    first = (needing if explicit.is_empty() else explicit).sort("start_ns").row(0, named=True)
    first_ns = first["end_ns"] - first["start_ns"]
    return first_ns if first["name"] == longest and 2 * first_ns >= all_ns else None


def _samples_before(tables: TableSet, process: tuple[int, int | None], first_ns: int) -> CpuSamples | None:
    """CPU samples of a process before its first operation; None: there are none."""
    import polars as pl

    capture, pid = process
    samples = tables.cpu_samples_read().filter(
        pl.col("capture") == capture, pl.col("pid").eq_missing(pl.lit(pid)), pl.col("time_ns") < first_ns
    )
    if samples.is_empty():
        return None
    named = samples.select(pl.col("function", "module").cast(pl.String)).group_by("function", "module")
    most = named.agg(samples=pl.len()).sort("samples", "function", "module", descending=[True, False, False])
    return CpuSamples(
        samples=samples.height,
        functions=[SampledFunction(**row) for row in most.head(_MOST_PARTS).iter_rows(named=True)],
    )


def _notable(calls: CallsBefore | None, window_ns: int) -> CallsBefore | None:
    """Calls before the first operation, where they take a notable time beside that of the operations."""
    return calls if calls is not None and calls.ns >= SMALL_SHARE * window_ns else None


def _after_last_launch_ns(tables: TableSet, tenant: Mapping[str, Any]) -> int:
    """Time of the host after the last operation that was launched: migrations of unified memory are not."""
    import polars as pl

    if "memops" not in tables:
        return 0
    memops = work_of(tables, tenant, ("memops",), "start_ns", "end_ns", "copy_kind")
    migrated = pl.col("copy_kind").is_in(MIGRATED).fill_null(value=False)
    # Most programs migrate nothing: their kernels, of which there may be millions, need not be looked at.
    if memops.filter(migrated).is_empty():
        return 0
    kernels = work_of(tables, tenant, ("kernels", "graph_launches"), "start_ns", "end_ns")
    launched_until = pl.concat([kernels, memops.filter(~migrated).drop("copy_kind")])["end_ns"].max()
    behind = memops.filter(migrated, pl.col("end_ns") > launched_until)
    if launched_until is None or behind.is_empty():
        return 0
    after = pl.DataFrame({"start_ns": [launched_until], "end_ns": [behind["end_ns"].max()]})
    calls = tables.calls()
    own = behind.clear() if calls is None else calls.filter(of_process(tenant))
    return times(outside(after, behind), union(own))[1]


def _has_graph_nodes(tables: TableSet) -> bool:
    """Whether any kernel is part of a graph: most programs launch none, and this is known without a look at each."""
    nodes = tables.columns("kernels", "graph_node_id").to_series() if "kernels" in tables else None
    return nodes is not None and nodes.null_count() < len(nodes)


def _graph_launches(tables: TableSet, tenant: Mapping[str, Any]) -> int:
    """Count launches of graphs, recorded whole or by kernel."""
    import polars as pl

    whole = work_of(tables, tenant, ("graph_launches",), "start_ns").height
    if not _has_graph_nodes(tables):
        return whole
    kernels = work_of(tables, tenant, ("kernels",), "correlation_id", "graph_node_id")
    return whole + kernels.filter(pl.col("graph_node_id").is_not_null())["correlation_id"].n_unique()


def _node_launch_calls(tables: TableSet, tenant: Mapping[str, Any], least_ns: float) -> CallTime | None:
    """Time of the calls that launched graphs whose kernels were traced one by one; None: too little, or not known."""
    import polars as pl

    if not _has_graph_nodes(tables):
        return None
    nodes = work_of(tables, tenant, ("kernels",), "correlation_id", "graph_node_id")
    launched = nodes.filter(pl.col("graph_node_id").is_not_null(), pl.col("correlation_id") > 0).select(
        "correlation_id"
    )
    calls = None if launched.is_empty() else tables.calls()
    if calls is None:
        return None
    own = calls.filter(of_process(tenant)).join(launched.unique(), on="correlation_id", how="semi")
    own = own.select(pl.col("name").cast(pl.String), ns=pl.col("end_ns") - pl.col("start_ns"))
    sum_ns = int(own["ns"].sum())
    names = own["name"].drop_nulls().value_counts(sort=True, name="n")["name"]
    if sum_ns < least_ns or names.is_empty():
        return None
    return CallTime(call=_VERSION.sub("", names[0]), ns=sum_ns, count=own.height)


def _launch_phases(tables: TableSet, tenant: Mapping[str, Any]) -> LaunchPhases | None:
    """Kernels that were launched one by one, and graphs, where they ran one after the other; None: they did not."""
    import polars as pl

    columns = ("start_ns", "end_ns", "correlation_id")
    whole = work_of(tables, tenant, ("graph_launches",), *columns)
    if whole.is_empty() and not _has_graph_nodes(tables):
        return None
    kernels = work_of(tables, tenant, ("kernels",), *columns, "graph_node_id")
    alone = kernels.filter(pl.col("graph_node_id").is_null()).select(columns)
    nodes = kernels.filter(pl.col("graph_node_id").is_not_null()).select(columns)
    graphs = pl.concat([nodes, whole])
    if alone.is_empty() or graphs.is_empty():
        return None
    (a_first, a_last), (g_first, g_last) = (
        (int(some["start_ns"].min()), int(some["end_ns"].max()))  # type: ignore[arg-type]
        for some in (alone, graphs)
    )
    least_ns = LEAST_PHASE * (tenant["last_ns"] - tenant["first_ns"])
    apart = a_last <= g_first or g_last <= a_first
    if not apart or min(a_last - a_first, g_last - g_first) < least_ns:
        return None
    return LaunchPhases(
        graphs_first=g_first < a_first,
        kernels=alone.height,
        kernels_ns=a_last - a_first,
        graphs=graphs["correlation_id"].n_unique(),
        graphs_ns=g_last - g_first,
        second_from_ns=max(a_first, g_first),
    )


def _graph_waits(tables: TableSet, tenant: Mapping[str, Any]) -> GraphWaits | None:
    """How long launched work waited in short gaps, by how it was launched; None: no calls are known."""
    import polars as pl

    calls = tables.calls()
    if calls is None:
        return None
    launched = pl.max_horizontal("start_ns", "launched_ns")
    gaps = _gaps(tables, tenant, calls.filter(of_process(tenant)))
    gaps = gaps.filter(pl.col("end_ns") - pl.col("start_ns") <= LAUNCH_GAP_NS, pl.col("launched_ns").is_not_null())
    waited = gaps.with_columns(ns=pl.col("end_ns") - launched).filter(pl.col("ns") > 0)
    told: dict[str, int] = {}
    for name, of_kind in (
        ("one_by_one", ~pl.col("in_graph")),
        ("graphs", pl.col("in_graph") & pl.col("begins_graph")),
        ("later_nodes", pl.col("in_graph") & ~pl.col("begins_graph")),
    ):
        some = waited.filter(of_kind)["ns"]
        told |= {name: len(some), f"{name}_ns": int(some.sum())}
    return GraphWaits(**told)


def _has_gaps(usage: Mapping[str, Any]) -> bool:
    """Whether a tenant had nothing on the device for a notable part of its time: then calls are read."""
    window_ns = usage["last_ns"] - usage["first_ns"]
    idle_ns, launch_gap_ns = usage["idle_ns"] or 0, usage["launch_gap_ns"]
    return bool(idle_ns >= NAMED_SHARE * window_ns or launch_gap_ns >= SMALL_SHARE * window_ns)


def _calls_in_gaps(tables: TableSet) -> dict[tuple[int, int], dict[str, Any]]:
    """CUDA calls while a tenant had nothing on the device, by device and tenant, as the core hands them out."""
    late = tables.with_late("api_calls", "host_calls", "nvtx", "cpu_samples")
    return {(one["device_id"], one["tenant_id"]): one for one in _core.calls_in_gaps(late)}


def _short_waits(
    tables: TableSet, tenant: Mapping[str, Any], gaps: Mapping[str, Any]
) -> dict[tuple[HostKind, str | None], int]:
    """Time in gaps up to 250 us in calls of MPI or a video codec, of the thread that ends them, by kind and function.

    Time with a CUDA call is left out, and from the launch of what ends the gap on; of calls inside one another the
    function with more time counts.
    """
    import polars as pl

    recorded = () if gaps["host"] is None else gaps["host"]["recorded"]
    kinds = [kind for kind in _WAITS if kind in recorded]
    calls = tables.calls() if kinds else None
    if calls is None:
        return {}
    calls = calls.filter(of_process(tenant))
    waits = tables.host_calls_read().filter(of_process(tenant), pl.col("kind").cast(pl.String).is_in(kinds))
    waits = waits.with_columns(pl.col("kind", "name").cast(pl.String), ns=pl.col("end_ns") - pl.col("start_ns"))
    gaps_ns = pl.col("end_ns") - pl.col("start_ns")
    launched = pl.max_horizontal("start_ns", pl.col("launched_ns").fill_null(pl.col("end_ns")))
    by_thread = _gaps(tables, tenant, calls).filter(gaps_ns <= LAUNCH_GAP_NS)
    by_thread = by_thread.with_columns(end_ns=pl.min_horizontal("end_ns", launched))
    by_thread = by_thread.filter(pl.col("end_ns") > pl.col("start_ns"))
    found: dict[tuple[HostKind, str | None], int] = {}
    for (thread,), own in waits.filter(pl.col("ns") > 0).group_by("tid"):
        free = outside(by_thread.filter(pl.col("tid") == thread), calls)
        names = own.group_by("kind", "name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
        for kind, name, _ in names.iter_rows():
            if free.is_empty():
                break
            of_name = own.filter(pl.col("kind") == kind, pl.col("name").eq_missing(pl.lit(name)))
            whole_ns, left_ns = times(free, union(of_name))
            if left_ns < whole_ns:
                key = HostKind(kind), name
                found[key] = found.get(key, 0) + whole_ns - left_ns
                free = outside(free, of_name)
    return found


def _gaps(tables: TableSet, tenant: Mapping[str, Any], calls: pl.DataFrame) -> pl.DataFrame:
    """Gaps that launched work ends: the end of its launch call and its thread, where unknown that of one before.

    Of graphs also whether the work is of one, and whether it is the first of it.
    """
    import polars as pl

    mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
    columns = ("start_ns", "end_ns", "correlation_id")
    in_graph = {"graph_launches": pl.lit(value=True)}
    work = pl.concat(
        tables.columns(name, *_OF_KERNELS[:3], *columns, *(() if name in in_graph else ("graph_node_id",)))
        .filter(mine)
        .select(
            *columns,
            unlaunched=pl.lit(name == "memops") & (pl.col("correlation_id") == 0),
            in_graph=in_graph.get(name, pl.col("graph_node_id").is_not_null()),
        )
        for name in ("kernels", "memops", "graph_launches")
        if name in tables
    ).sort("start_ns", maintain_order=True)
    # Work before the first node of a graph has another correlation id.
    work = work.with_columns(begins_graph=pl.col("correlation_id").is_first_distinct())
    before = pl.col("end_ns").cum_max().shift(1)
    gaps = work.with_columns(start_ns=before, end_ns="start_ns").filter(
        pl.col("end_ns") > pl.col("start_ns"),
        ~pl.col("unlaunched").fill_null(value=False),
    )
    launched = calls.filter(pl.col("correlation_id") > 0).unique("correlation_id", keep="first", maintain_order=True)
    launched = launched.select("correlation_id", "tid", launched_ns="end_ns")
    gaps = gaps.join(launched, on="correlation_id", how="left", maintain_order="left")
    return gaps.with_columns(pl.col("tid").forward_fill().backward_fill())


def _launch_waits(tables: TableSet, tenant: Mapping[str, Any]) -> LaunchWaits | None:
    """Count launches behind which their thread synchronised before it launched again; None: not often, or not known."""
    import polars as pl

    # Most programs are told by this alone: their calls, of which there may be millions, need not be looked at.
    waits, launched_calls = (tables.calls_named(tenant, name).calls for name in (_SYNCHRONISES, _LAUNCHES))
    if waits < WAITS_OFTEN * launched_calls:
        return None
    calls = tables.calls()
    if calls is None:
        return None
    synchronises = named(calls, _SYNCHRONISES).fill_null(value=False)
    own = calls.filter(of_process(tenant)).select("tid", "start_ns", "name", "correlation_id")
    launched = work_of(tables, tenant, ("kernels", "graph_launches"), "correlation_id").unique()
    is_launch = pl.col("correlation_id").is_in(launched["correlation_id"].implode()) & (pl.col("correlation_id") > 0)
    own = own.with_columns(launches=is_launch.fill_null(value=False), waits=synchronises).filter(
        pl.col("launches") | pl.col("waits")
    )
    after = pl.col("waits", "name").shift(-1).over("tid", order_by="start_ns").name.prefix("then_")
    launches = own.with_columns(after).filter("launches")
    if launches.is_empty():
        return None
    waited = launches.filter("then_waits").select(pl.col("then_name").cast(pl.String).alias("name"))
    by_name = waited.group_by("name").len().sort("len", "name", descending=[True, False])
    call = None if by_name.is_empty() else _VERSION.sub("", by_name["name"][0])
    return LaunchWaits(launches=launches.height, waited=waited.height, call=call)


def _sync_gaps(tables: TableSet, tenant: Mapping[str, Any], parts: Mapping[Limit, int]) -> SyncGaps | None:
    """Gaps in which a call that synchronises returned, and the same thread launched next; None: there are none."""
    import polars as pl

    # Most programs are told by this alone.
    calls = tables.calls() if tables.calls_named(tenant, _SYNCHRONISES).calls else None
    if calls is None:
        return None
    own = calls.select(*_OF_CALLS).filter(of_process(tenant)).sort("start_ns")
    work = work_of(tables, tenant, ("kernels", "memops", "graph_launches"), "correlation_id").unique()
    launches = own.join(work.filter(pl.col("correlation_id") > 0), on="correlation_id", how="semi")
    before = pl.col("end_ns").shift(1).over("tid")
    launches = launches.with_columns(before_ns=before).unique("correlation_id", keep="first")
    gaps = (
        _gaps(tables, tenant, own)
        .filter(pl.col("launched_ns") > pl.col("start_ns"))
        .with_columns(earliest_ns=pl.col("start_ns") - _CLOCKS_NS, gap_ns=pl.col("end_ns") - pl.col("start_ns"))
        .join(launches.select("correlation_id", "before_ns"), on="correlation_id")
        .sort("earliest_ns")
    )
    syncs = own.filter(named(own, _SYNCHRONISES).fill_null(value=False)).sort("end_ns")
    syncs = syncs.select("tid", pl.col("name").cast(pl.String), sync_start_ns="start_ns", sync_end_ns="end_ns")
    found = gaps.join_asof(
        syncs,
        left_on="earliest_ns",
        right_on="sync_end_ns",
        by="tid",
        strategy="forward",
        coalesce=False,
        check_sortedness=False,  # Sorted above; polars cannot check it by groups.
    ).filter(
        pl.col("sync_start_ns") <= pl.col("start_ns"),
        pl.col("sync_end_ns") <= pl.col("launched_ns"),
        # What was launched after it returned may have ended before the gap: that gap is not its.
        pl.col("sync_end_ns") >= pl.col("before_ns").fill_null(pl.col("sync_end_ns")),
    )
    if found.is_empty():
        return None
    short = pl.col("gap_ns") <= LAUNCH_GAP_NS
    spans = found.select(
        "gap_ns",
        start_ns=pl.max_horizontal("start_ns", "sync_end_ns"),
        end_ns=pl.min_horizontal("end_ns", "launched_ns"),
    )
    # In short gaps calls that hand over work are launching.
    waiting = own.filter(~named(own, _HANDS_OVER).fill_null(value=False))
    launches_ns = times(outside(spans.filter(short), waiting), union(waiting.clear()))[1]
    long, busy = spans.filter(~short), union(own.select("start_ns", "end_ns"))
    in_calls = covered_until(long["end_ns"], busy) - covered_until(long["start_ns"], busy)
    without_calls = long["end_ns"] - long["start_ns"] - in_calls
    median_ns, host_ns = without_calls.median(), int(without_calls.clip(0).sum())
    by_name = found.group_by("name").len().sort("len", "name", descending=[True, False])
    return SyncGaps(
        call=_VERSION.sub("", by_name["name"][0]),
        short_gaps=found.filter(short).height,
        short_gaps_ns=int(found.filter(short)["gap_ns"].sum()),
        launches_ns=min(launches_ns, parts[Limit.LAUNCHES]),
        long_gaps=found.filter(~short).height,
        host_ns=min(host_ns, parts[Limit.HOST]),
        long_gaps_ns=int(found.filter(~short)["gap_ns"].sum()),
        long_host_median_ns=round(median_ns) if isinstance(median_ns, int | float) else None,
    )


def _unit_pauses(tables: TableSet, tenant: Mapping[str, Any], host_ns: int) -> UnitPauses | None:
    """Units of work between which most of the host's time lies; None: there are none."""
    import polars as pl

    full = pl.col("text").cast(pl.String)
    # A number that all have is part of the name.
    text = full.str.replace_all(r"\d+", "#")
    ranges = (
        tables.ranges()
        .select("capture", "pid", "start_ns", "end_ns", text, full.alias("full"))
        .filter(
            of_process(tenant),
            pl.col("text").is_not_null(),
            pl.col("end_ns") > pl.col("start_ns"),
            pl.col("end_ns") > tenant["first_ns"],
            pl.col("start_ns") < tenant["last_ns"],
        )
    )
    candidates = []
    for name in ranges.group_by("text").len().filter(pl.col("len") >= ENOUGH_UNITS)["text"].sort():
        of_name = ranges.filter(pl.col("text") == name)
        spans = union(of_name)
        between = spans.select(start_ns="end_ns", end_ns=pl.col("start_ns").shift(-1)).drop_nulls()
        # Most programs are told by this alone: their calls, of which there may be millions, need not be looked at.
        if spans.height >= ENOUGH_UNITS and 2 * int((between["end_ns"] - between["start_ns"]).sum()) >= host_ns:
            candidates.append((name, of_name, spans, between))
    calls = tables.calls() if candidates else None
    if calls is None:
        return None
    own = calls.select(*_OF_CALLS).filter(of_process(tenant))
    work = work_of(tables, tenant, ("kernels", "memops", "graph_launches"), "correlation_id")
    launched_ns = work.join(
        own.filter(pl.col("correlation_id") > 0).unique("correlation_id", keep="first"), on="correlation_id"
    )["start_ns"]
    gaps = _gaps(tables, tenant, own).filter(pl.col("end_ns") - pl.col("start_ns") > LAUNCH_GAP_NS)
    until = pl.min_horizontal("end_ns", pl.max_horizontal("start_ns", "launched_ns").fill_null(pl.col("end_ns")))
    idle = outside(gaps.with_columns(end_ns=until).filter(pl.col("end_ns") > pl.col("start_ns")), own)
    host = union(idle)
    found: UnitPauses | None = None
    longest_ns = 0
    for name, of_name, spans, between in candidates:
        held = int((covered_until(launched_ns + 1, spans) - covered_until(launched_ns, spans)).sum())
        # Of ranges inside one another the outer ones are the units; where they overlap, nothing lies between them.
        if 2 * held < work.height or (length := covered_ns(of_name)) <= longest_ns:
            continue
        longest_ns = length
        found = None
        paused = covered_until(between["end_ns"], host) - covered_until(between["start_ns"], host)
        paused = paused.filter(paused > 0)
        sum_ns, median_ns = int(paused.sum()), paused.median()
        # One long pause among many short ones is no pace.
        if median_ns is None or 2 * sum_ns < host_ns or 2 * len(paused) * float(str(median_ns)) < sum_ns:
            continue
        found = UnitPauses(
            name=str(of_name["full"][0]) if of_name["full"].n_unique() == 1 else name,
            units=spans.height,
            unit_median_ns=round(float(str((of_name["end_ns"] - of_name["start_ns"]).median()))),
            host_ns=min(sum_ns, host_ns),
            pauses=len(paused),
            median_ns=round(float(str(median_ns))),
        )
    return found


def _loads_code(name: str) -> bool:
    """Whether calls of this function load code, or may."""
    return _LOADS_CODE.search(name) is not None and _LOADS_NO_CODE.search(name) is None


def _code_loading(
    tables: TableSet, tenant: Mapping[str, Any], by_name: Mapping[str, tuple[int, int]], api_calls_ns: int
) -> CodeLoading | None:
    """Calls that load code in the time of CUDA calls; None: there are none."""
    import polars as pl

    loading = {name: one for name, one in by_name.items() if _loads_code(name)}
    calls = tables.calls() if loading else None
    if calls is None:
        return None
    sum_ns, most_ns = sum(ns for ns, _ in loading.values()), max(ns for ns, _ in loading.values())
    ns = sum_ns
    recorded = None
    process = (tenant["capture"], tenant["pid"])
    if len(loading) > 1 or process[0] in tables.details.loading:
        # One may run inside another, as one of the driver in one of the runtime.
        own = calls.select(*_OF_CALLS).filter(of_process(tenant))
        of_names = own.filter(named(own, rf"^({'|'.join(map(re.escape, loading))})(_v\d+)?$").fill_null(value=False))
        gaps = _gaps(tables, tenant, own).with_columns(gap_ns=pl.col("end_ns") - pl.col("start_ns"))
        until = pl.min_horizontal("end_ns", pl.max_horizontal("start_ns", "launched_ns").fill_null(pl.col("end_ns")))
        gaps = gaps.with_columns(end_ns=until).filter(pl.col("end_ns") > pl.col("start_ns"))
        ns = 0
        for some, in_gaps in (
            (of_names, pl.col("gap_ns") > LAUNCH_GAP_NS),
            (of_names.filter(~named(of_names, _HANDS_OVER)), pl.col("gap_ns") <= LAUNCH_GAP_NS),
        ):
            whole_ns, outside_ns = times(some, union(gaps.filter(in_gaps)))
            ns += whole_ns - outside_ns
        recorded = _loading_records(tables, process, of_names, gaps)
    ns = min(max(ns, most_ns), sum_ns, api_calls_ns)
    if not ns:
        return None
    ordered = sorted(loading.items(), key=lambda one: (-one[1][0], one[0]))
    return CodeLoading(
        ns=ns,
        calls=[
            CallTime(call=name, ns=call_ns, count=count)
            for name, (call_ns, count) in ordered
            if call_ns >= NAMED_SHARE * ns
        ],
        recorded=recorded,
    )


def _read_backs(tables: TableSet, tenant: Mapping[str, Any]) -> ReadBacks | None:
    """Count small copies to the host that a thread waited for before it launched again; None: few, or not known."""
    import polars as pl

    if "memops" not in tables:
        return None
    small = work_of(tables, tenant, ("memops",), "start_ns", "end_ns", "copy_kind", "bytes", "correlation_id").filter(
        pl.col("copy_kind") == COPIED_TO_HOST, pl.col("bytes") <= _SMALL_COPY_BYTES, pl.col("correlation_id") > 0
    )
    # Most programs have few: their launches and calls need not be looked at.
    if small.is_empty():
        return None
    launched = work_of(tables, tenant, ("kernels", "graph_launches"), "correlation_id").unique()
    if small.height < READS_OFTEN * launched.height:
        return None
    calls = tables.calls()
    if calls is None:
        return None
    own = calls.filter(of_process(tenant)).sort("start_ns")
    launches = own.join(launched.filter(pl.col("correlation_id") > 0), on="correlation_id", how="semi")
    syncs = own.filter(named(own, _SYNCHRONISES).fill_null(value=False))
    called = own.select("tid", "correlation_id", "name", called_ns="start_ns", returned_ns="end_ns")
    reads = small.join(called, on="correlation_id").sort("called_ns")
    # An asynchronous copy returns at once: its thread waits in the next call that synchronises.
    for prefix, calls_after in (("sync_", syncs), ("launch_", launches)):
        after = calls_after.select("tid", pl.col("start_ns", "end_ns", "name").name.prefix(prefix))
        reads = reads.join_asof(
            after,
            left_on="called_ns",
            right_on=f"{prefix}start_ns",
            by="tid",
            strategy="forward",
            check_sortedness=False,  # Sorted above; polars cannot check it by groups.
        )
    in_itself = pl.col("returned_ns") >= pl.col("end_ns")
    launches_first = (pl.col("launch_start_ns") < pl.col("sync_start_ns")).fill_null(value=False)
    in_sync = (pl.col("sync_end_ns") >= pl.col("end_ns")).fill_null(value=False) & ~launches_first
    reads = reads.filter(in_itself | in_sync).with_columns(
        waited_in=pl.when(in_itself).then("name").otherwise("sync_name").cast(pl.String)
    )
    rounds = reads.filter(pl.col("launch_start_ns").is_not_null()).unique(["tid", "launch_start_ns"])
    if rounds.is_empty():
        return None
    by_name = rounds.group_by("waited_in").len().sort("len", "waited_in", descending=[True, False])
    call = by_name["waited_in"][0]
    kernels = union(work_of(tables, tenant, ("kernels", "graph_launches"), "start_ns", "end_ns"))
    return ReadBacks(
        launches=launches.height,
        count=rounds.height,
        largest_bytes=int(reads.select(pl.col("bytes").max()).item()),
        exposed_ns=times(reads, kernels)[1],
        call=None if call is None else _VERSION.sub("", call),
    )


def _upload_waits(tables: TableSet, tenant: Mapping[str, Any]) -> UploadWaits | None:
    """Count small copies to the device that made a thread wait until all that was launched before had ended."""
    import polars as pl

    if "memops" not in tables:
        return None
    columns = ("start_ns", "end_ns", "copy_kind", "source_kind", "bytes", "correlation_id")
    small = work_of(tables, tenant, ("memops",), *columns).filter(
        pl.col("copy_kind") == COPIED_TO_DEVICE,
        pl.col("source_kind") == PAGEABLE,
        pl.col("bytes") <= STAGED_BYTES,
        pl.col("correlation_id") > 0,
    )
    calls = None if small.is_empty() else tables.calls()
    if calls is None:
        return None
    own = calls.filter(of_process(tenant))
    own = own.select(
        "tid", "correlation_id", pl.col("name").cast(pl.String), called_ns="start_ns", returned_ns="end_ns"
    )
    following = pl.col("called_ns", "returned_ns", "name").shift(-1).over("tid", order_by="called_ns")
    made = small.join(own.with_columns(following.name.prefix("then_")), on="correlation_id")
    ended = pl.col("then_returned_ns") >= pl.col("end_ns") - _CLOCKS_NS
    then_waits = pl.col("then_name").str.contains(_SYNCHRONISES) & ended
    in_itself = ~pl.col("name").str.contains("Async") & (pl.col("returned_ns") >= pl.col("end_ns"))
    in_then = then_waits.fill_null(value=False) & ~in_itself.fill_null(value=False)
    waited = made.filter(in_then | in_itself).with_columns(
        call=pl.when(in_then).then("then_name").otherwise("name"),
        # The copy itself is no wait for what was launched before.
        waited_ns=pl.when(in_then)
        .then(pl.col("then_returned_ns") - pl.col("then_called_ns"))
        .otherwise(pl.col("returned_ns") - pl.col("called_ns"))
        - (pl.col("end_ns") - pl.col("start_ns")),
    )
    if waited.is_empty():
        return None
    work = union(work_of(tables, tenant, ("kernels", "memops", "graph_launches"), "start_ns", "end_ns"))
    gaps = work.select("end_ns", gap_ns=pl.col("start_ns").shift(-1) - pl.col("end_ns")).drop_nulls()
    by_name = waited.group_by("call").len().sort("len", "call", descending=[True, False])
    call = by_name["call"][0]
    return UploadWaits(
        count=waited.height,
        largest_bytes=int(str(waited["bytes"].max())),
        waited_ns=int(waited["waited_ns"].clip(0).sum()),
        idle_ns=int(gaps.join(waited.select("end_ns").unique(), on="end_ns")["gap_ns"].sum()),
        call=None if call is None else _VERSION.sub("", call),
    )


def _host_activity(
    tables: TableSet,
    tenant: Mapping[str, Any],
    host: Mapping[str, Any] | None,
    waits: Mapping[tuple[HostKind, str | None], int],
    host_ns: int,
) -> HostActivity | None:
    """What the host did while no CUDA call ran; None: gaps were not looked at, or nothing is recorded of it."""
    if host is None or not host_ns:
        return None
    by_kind = dict(host["by_kind"])
    parts = {(part["kind"], part["name"]): part for part in host["parts"]}
    for (kind, name), ns in waits.items():
        by_kind[kind] = by_kind.get(kind, 0) + ns
        part = parts.get((kind, name), {"kind": kind, "name": name, "ns": 0, "range": None})
        parts[kind, name] = {**part, "ns": part["ns"] + ns}
    largest = sorted(parts.values(), key=lambda part: -part["ns"])[:_MOST_PARTS]
    activity = HostActivity(
        recorded=[kind for kind in HostKind if kind in host["recorded"]],
        mpi_ns=by_kind.get(HostKind.MPI, 0),
        video_ns=by_kind.get(HostKind.VIDEO, 0),
        os_ns=by_kind.get(HostKind.OS, 0),
        range_ns=by_kind.get(HostKind.RANGE, 0),
        nothing_ns=host["nothing_ns"],
        parts=[HostPart(**part, share=min(part["ns"] / host_ns, 1.0)) for part in largest],
        cpu_samples=CpuSamples(samples=host["samples"], functions=host["sampled"]) if host["samples"] else None,
    )
    most = activity.most
    if most is None or most.kind is not HostKind.MPI or most.name is None:
        return activity
    return activity.model_copy(update={"mpi_calls": _mpi_calls(tables, tenant, most.name)})


def _mpi_calls(tables: TableSet, tenant: Mapping[str, Any], name: str) -> MpiCalls | None:
    """How long the calls of one MPI function took; None: none lies within the time of the tenant."""
    import polars as pl

    calls = tables.host_calls_read().filter(
        of_process(tenant),
        pl.col("kind").cast(pl.String) == HostKind.MPI,
        pl.col("name").cast(pl.String) == name,
        pl.col("start_ns") >= tenant["first_ns"],
        pl.col("end_ns") <= tenant["last_ns"],
    )
    took = calls.sort("start_ns").select(pl.col("end_ns") - pl.col("start_ns")).to_series()
    if took.is_empty():
        return None
    most_ns = _SET_UP * int(took.sort()[len(took) // 2])
    first_calls = int((took <= most_ns).arg_true()[0])
    first, others = took[:first_calls], took[first_calls:]
    ordered = others.sort()
    return MpiCalls(
        name=name,
        calls=len(took),
        first_calls=first_calls,
        first_ns=int(first.sum()),
        other_ns=int(others.sum()),
        p10_ns=int(ordered[len(ordered) // 10]),
        p90_ns=int(ordered[len(ordered) * 9 // 10]),
        longest_ns=int(ordered[-1]),
    )


def _longest(tables: TableSet, tenant: Mapping[str, Any], gaps: Mapping[str, Any]) -> LongestGap | None:
    """The longest gap between the operations of a tenant, and how much of it is the host's."""
    import polars as pl

    if not gaps["longest_gap"]:
        return None
    longest = LongestGap(
        **gaps["longest_gap"],
        operations=gaps["operations"],
        after_ns=max(tenant["last_ns"] - gaps["longest_gap"]["end_ns"], 0),
    )
    calls = tables.calls() if gaps["called"] else None
    if calls is None:
        return longest
    mine = of_process(tenant)
    # One operation, and the calls of one gap: nothing is put in order for that.
    starts = (pl.col("device_id") == tenant["device_id"]) & (pl.col("start_ns") == longest.end_ns) & mine
    ended = pl.concat(
        tables.columns(name, *_OF_KERNELS[:4], "correlation_id").filter(starts, pl.col("correlation_id") > 0)
        for name in ("kernels", "memops", "graph_launches")
        if name in tables
    )["correlation_id"]
    launched = calls.filter(mine, pl.col("correlation_id").is_in(ended.implode())).sort("start_ns")
    launched_ns = launched.unique("correlation_id", keep="first")["end_ns"].min()
    until_ns = (
        longest.end_ns if launched_ns is None else max(min(int(str(launched_ns)), longest.end_ns), longest.start_ns)
    )
    gap = pl.DataFrame({"start_ns": [longest.start_ns], "end_ns": [until_ns]})
    within = calls.filter(mine, pl.col("end_ns") > longest.start_ns, pl.col("start_ns") < until_ns)
    return longest.model_copy(update={"host_ns": times(gap, union(within))[1]})


@dataclass(frozen=True)
class _TopKernel:
    """Name of the kernel with most time, its time, and that of all; how many kernels have that name.

    `others`: names and times of those with most time behind it.

    `launches`, `configurations`: how often and in how many launch configurations it was launched.

    `shortest_ns`: mean duration of the shortest launch configuration of any kernel.

    `full_name`: its demangled name; of several, the first.
    """

    name: str | None
    others: list[Mapping[str, Any]]
    ns: int
    all_ns: int
    kinds: int
    launches: int
    configurations: int
    shortest_ns: float | None
    full_name: str | None

    def equals(self) -> list[str]:
        """Kernels whose share of the time is printed with the same digits: which of them is first is chance."""
        share = fmt.percent(self.ns / self.all_ns) if self.all_ns else ""
        return [one["short_name"] for one in self.others if fmt.percent(one["total_ns"] / self.all_ns) == share]


def _only_times(tables: TableSet, tenant: Mapping[str, Any]) -> dict[str, int]:
    """By name of a kernel: how long such were in flight, and nothing else of the tenant.

    A kernel that has most time may run beside others throughout: without it, these would take as long.
    """
    import polars as pl

    mine = (pl.col("device_id") == tenant["device_id"]) & of_process(tenant)
    code = pl.col("short_name").to_physical().cast(pl.Int64).fill_null(_NAMELESS)
    kernels = tables.columns("kernels", *_OF_KERNELS).filter(mine).select("short_name", "start_ns", "end_ns")
    names = dict(kernels.select(code.alias("code"), pl.col("short_name").cast(pl.String)).unique().iter_rows())
    graphs = tables.columns("graph_launches", *_OF_KERNELS[:5]).filter(mine)
    work = pl.concat(
        [
            kernels.select(code.alias("code"), "start_ns", "end_ns"),
            graphs.select(code=pl.lit(_GRAPH, pl.Int64), start_ns="start_ns", end_ns="end_ns"),
        ]
    )
    # Launches of one name that overlap are one.
    until = pl.col("end_ns").cum_max().shift(1).over("code")
    work = work.sort("code", "start_ns").with_columns(pl.max_horizontal("start_ns", until).alias("start_ns"))
    work = work.filter(pl.col("end_ns") > pl.col("start_ns"))
    # Where one is in flight, the sum of the numbers of those in flight is its number.
    none = pl.lit(0, pl.Int32)
    moments = [
        work.select(ns="start_ns", depth=pl.lit(1, pl.Int32), code="code", resident=none),
        work.select(ns="end_ns", depth=pl.lit(-1, pl.Int32), code=-pl.col("code"), resident=none),
    ]
    # While its context is switched out, a kernel holds up no other. Clients of an MPS group go by each other's names.
    resident = tables.residency.filter(
        pl.col("tenant_id") == tenant["tenant_id"], pl.col("device_id") == tenant["device_id"]
    )
    recorded = not resident.is_empty() and (tenant["match_rate"] or 0.0) >= MATCHES
    if recorded:
        outside = {"depth": none, "code": pl.lit(0, pl.Int64)}
        moments += [
            resident.select(ns="start_ns", **outside, resident=pl.lit(1, pl.Int32)),
            resident.select(ns="end_ns", **outside, resident=pl.lit(-1, pl.Int32)),
        ]
    flying = (
        pl.concat(moments)
        .sort("ns")
        .select(pl.col("depth", "code", "resident").cum_sum(), length_ns=pl.col("ns").shift(-1) - pl.col("ns"))
    )
    counts = (pl.col("depth") == 1) & (pl.col("length_ns") > 0) & ((pl.col("resident") > 0) | (not recorded))
    alone = flying.filter(counts).group_by("code").agg(pl.col("length_ns").sum())
    found = {names[code]: ns for code, ns in alone.iter_rows() if names.get(code) is not None}
    return {name: found[name] for name in sorted(found)}


def _faulting_ns(tables: TableSet, tenant: Mapping[str, Any], name: str) -> int | None:
    """Time in which kernels of this name and migrations by page faults were in flight; None: there are none of these.

    A kernel waits for such migrations: a faster one would wait for as long.
    """
    import polars as pl

    if "memops" not in tables:
        return None
    by_faults = pl.col("migration_cause").is_in(BY_FAULTS).fill_null(value=False)
    moved = work_of(tables, tenant, ("memops",), "start_ns", "end_ns", "migration_cause").filter(by_faults)
    if moved.is_empty():
        return None
    kernels = work_of(tables, tenant, ("kernels",), "start_ns", "end_ns", "short_name")
    whole_ns, outside_ns = times(kernels.filter(pl.col("short_name").cast(pl.String) == name), union(moved))
    return whole_ns - outside_ns


def _kernel_names(tables: TableSet) -> pl.DataFrame:
    """What is known of the kernels of each name, by device and tenant, those with most time first."""
    import polars as pl

    tenant = ["device_id", "tenant_id"]
    named = tables.kernel_occupancy.group_by(*tenant, pl.col("short_name").cast(pl.String))
    names = named.agg(
        pl.col("total_ns", "launches").sum(),
        kinds=pl.col("name").cast(pl.String).n_unique(),
        configurations=pl.len(),
        shortest_ns=(pl.col("total_ns") / pl.col("launches")).min(),
        full_name=pl.col("name").cast(pl.String).first(),
    )
    return names.sort(*tenant, "total_ns", "short_name", descending=[False, False, True, False])


def _top_kernels(tables: TableSet) -> dict[tuple[int, int], _TopKernel]:
    """The kernel name with most time, by device and tenant."""
    import polars as pl

    top = (
        _kernel_names(tables)
        .group_by(["device_id", "tenant_id"], maintain_order=True)
        .agg(
            pl.first("short_name"),
            others=pl.struct("short_name", "total_ns").slice(1, MOST_EQUAL),
            top_ns=pl.first("total_ns"),
            all_ns=pl.sum("total_ns"),
            kinds=pl.first("kinds"),
            launches=pl.first("launches"),
            configurations=pl.first("configurations"),
            shortest_ns=pl.min("shortest_ns"),
            full_name=pl.first("full_name"),
        )
    )
    return {(device, one): _TopKernel(*told) for device, one, *told in top.iter_rows()}
