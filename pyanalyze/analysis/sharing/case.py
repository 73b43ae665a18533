"""What the rules judge a device by, gathered from the tables; and the verdicts of all devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from pyanalyze.analysis.hardware import SHORT_KERNEL_NS
from pyanalyze.analysis.intervals import percentile_ns, residency_lengths
from pyanalyze.analysis.listed import VIDEO_ENGINES, sharing_of
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.classify import judge
from pyanalyze.analysis.sharing.facts import MANY, Case, Configured, Fact, IdleProgram, Pair, pairs_of
from pyanalyze.analysis.sharing.idle_starts import idle_start_facts
from pyanalyze.analysis.sharing.mig_mode import instance_of_samples, mig_modes_of_samples
from pyanalyze.analysis.sharing.queries import narrowed
from pyanalyze.analysis.sharing.turns import turn_facts
from pyanalyze.analysis.sharing.utilization import utilization_facts
from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import TRACE
from pyanalyze.results.sharing import Example
from pyanalyze.tables.boards import board_of
from pyanalyze.tables.cut_exports import cut_captures, sampled_spans, sampled_spans_of_cut
from pyanalyze.tables.launch_records import launch_records
from pyanalyze.tables.process_lists import (
    compute_processes,
    list_apart_ns,
    listed_nobody,
    listed_of_board,
    most_listed_together,
    sampled_busy,
    unlisted_tenants,
)
from pyanalyze.tables.tableset import Selection
from pyanalyze.text.escape import visible
from pyanalyze.text.pairs import parse_pairs
from pyanalyze.text.visible import program
from pyanalyze.vocabulary import ENOUGH_INTERVALS, MPS_CLIENT, MPS_CUT_NAME, are_unlike

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyanalyze.analysis.sharing.classify import Verdict
    from pyanalyze.tables.tableset import TableSet

__all__ = ["cases_of", "idle_program", "verdicts_of"]


#: What facts of an export that was cut are of.
_PART = "the export, a part of its recording"


def verdicts_of(tables: TableSet, cases: Sequence[Case]) -> tuple[Verdict, ...]:
    """Name the sharing mode of every device.

    Parameters
    ----------
    tables, cases
        The tables, and what :func:`cases_of` made of them.

    Raises
    ------
    pyanalyze.errors.UsageError
        Captures of one device that were not recorded at the same time.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> [str(verdict.mode) for verdict in verdicts_of(tables, cases_of(tables))]
    ['time-slicing']
    """
    _refuse_captures_apart(tables)
    return tuple(judge(case) for case in cases)


def _refuse_captures_apart(tables: TableSet) -> None:
    """Recordings of one GPU at different times are no single run: a verdict about both would be about neither."""
    apart = {row["capture"] for row in tables.rows("quality") if row["name"] == "captures_apart"}
    if not apart:
        return
    active = tables.tenant_usage.filter(pl.col("first_ns").is_not_null()).select("tenant_id", "device_id")
    seen = active.join(tables.tenants.select("tenant_id", "capture"), on="tenant_id").unique(["device_id", "capture"])
    both = seen.filter(pl.col("capture").n_unique().over("device_id") > 1, pl.col("capture").is_in(list(apart)))
    if both.is_empty():
        return
    here = both.sort("device_id", "capture").row(0, named=True)
    there = seen.filter(pl.col("device_id") == here["device_id"], pl.col("capture") != here["capture"])
    paths = dict(tables.capture.select("capture", "path").iter_rows())
    raise UsageError(
        f"{paths[here['capture']]} and {paths[there['capture'].min()]} are of one GPU, but of different times: they "
        f"have no common verdict. Analyse each by itself, or all with `pyanalyze fleet`; a solo recording goes to "
        "--baseline"
    )


def cases_of(tables: TableSet) -> tuple[Case, ...]:
    """Gather what the rules judge by, per device with activity; of all devices where none had any.

    Parameters
    ----------
    tables
        The tables.

    Returns
    -------
    tuple of Case
        Input of :func:`pyanalyze.analysis.sharing.judge`, by device id.

    Examples
    --------
    >>> import pyanalyze
    >>> cases_of(pyanalyze.load(capture).tables)[0].fact("traced_tenants")
    2.0
    """
    usages = {row["tenant_id"]: row for row in tables.rows("tenant_usage")}
    # Calls tell a GPU without work from one whose kernels were lost; where there are kernels they need not be read.
    traced = any(row["name"] == "busy_ns" and row["value"] for row in tables.rows("facts"))
    windowed = (tables.selection.start_ns, tables.selection.end_ns) != (None, None)
    whole = bool(tables.paths) and not windowed
    lost = launch_records(tables) if whole and not traced else None
    errors = {row["capture"]: row["clock_uncertainty_ns"] for row in tables.rows("capture")}
    covered = sampled_spans(tables)
    by_samples, cut = sampled_spans_of_cut(tables).keys(), cut_captures(tables)
    records_lost = any(row["count"] for row in tables.rows_where("quality", "name", "switch_events_lost"))
    cases: list[Case] = []
    idle: list[Case] = []
    gpu = tables.selection.gpu
    devices = tables.rows("devices") if gpu is None else tables.rows_of("devices", gpu)
    for device in sorted(devices, key=lambda row: row["device_id"]):
        number = device["device_id"]
        captures = tables.captures_of(number)
        measured = _facts(tables.rows_of("facts", number), tables.rows_of("fact_examples", number))
        tenants = tables.rows_of("tenants", number)
        usage = [{**row, **usages[row["tenant_id"]]} for row in tenants if row["tenant_id"] in usages]
        activity = (measured.get("busy_ns"), measured.get("switch_records"))
        quiet = not tenants and not any(fact and fact.value for fact in activity)
        switched = tables.switched(number)
        pairs = pairs_of(tables.rows_of("overlaps", number), usage, switched, errors)
        if whole and not all(pair.precise for pair in pairs):
            pairs = _overfull(tables, pairs, usage)
        processes = compute_processes(tables, number)
        clients = _listed_clients(tenants, processes)
        contexts = tables.rows_of("contexts", number)
        if whole and _turns_would_tell(measured):
            measured |= turn_facts(tables, number)
        if whole and _starts_would_tell(tenants, measured):
            measured |= idle_start_facts(tables, number)
        if whole and sum(row["traced"] for row in tenants) == 1:
            measured |= utilization_facts(tables, number)
        (idle if quiet else cases).append(
            Case(
                device_id=number,
                name=device["name"],
                uuid=device["uuid"],
                mig_profile=device["mig_profile"],
                vgpu_profile=device["vgpu_profile"],
                compute_capability=_capability(device),
                sm_count=device["sm_count"],
                facts=measured,
                configured=[
                    Configured(str(r["source"]), str(r["key"]), r["value"], r["pid"])
                    for r in tables.settings_of(number)
                ],
                set_up=sharing_of(tables, number),
                sources=_source_states(tables, captures),
                tenants=list(tables.labels(number).values()),
                green_contexts=sum(bool(row["is_green"]) for row in contexts),
                green_contexts_unsized=sum(
                    bool(row["is_green"]) and row["sm_count"] is None and not row["tpc_mask"] for row in contexts
                ),
                pairs=pairs,
                group_switches=_group_switches(pairs, tenants, switched, clients),
                listed_clients=_client_names(tables.labels(number), clients, processes),
                visible_sms=_visible_sms(contexts),
                product_sms=device["product_sm_count"],
                memory_below_product=device["memory_below_product"],
                mig_enabled=_mig_enabled(tables, device),
                sampled_instance=instance_of_samples(tables, number),
                mps_clients=_mps_clients(tables, number),
                board=board_of(tables, device),
                instances_unassigned=_unassigned(tables, device, tenants),
                pids_known=all(row["pid"] is not None for row in tenants if row["traced"]),
                nvml_processes=processes,
                nvml_listed_nobody=listed_nobody(tables, number),
                nvml_busy=sampled_busy(tables, number),
                nvml_apart_ns=list_apart_ns(tables, number),
                unlike_medians=_unlike_medians(tables, number, usage, _group(pairs, clients)),
                nvml_of_board=listed_of_board(tables, number),
                listed_programs=_listed_programs(tables, number),
                nvml_together=most_listed_together(tables, number),
                unlisted=unlisted_tenants(tables, number),
                scope="the window" if windowed else _PART if cut & captures else Case.scope,
                cut=bool(by_samples & captures),
                counters_cover=_counters_cover([covered[one] for one in captures if one in covered]),
                captured=bool(tables.paths),
                launches=lost,
                no_mps_process=_no_mps_process(tables, captures),
                driver=_driver(tables, captures),
                idle_program=idle_program(tables, number),
                untraced=_untraced(usage),
                records_lost=records_lost,
                served=sum(row["served_by"] is not None for row in tenants),
                trace=_trace(tables, number),
            )
        )
    if len(tables.paths) == 1 and tables.selection == Selection():
        physical = dict(tables.sources.select("source", "physical_table").iter_rows())
        if records_lost:
            # What is made of records with holes takes more than a query.
            physical["switch_events"] = None
        alone, several = len(cases) == 1, _pids_on_several(tables)
        cases = [replace(case, tables=_tables_of(tables, case, physical, several, alone=alone)) for case in cases]
    # Idle GPUs beside a busy one are left out; where nothing ran at all, that is what there is to say.
    return tuple(cases or idle)


def _counters_cover(spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """How much of its recording the counter samples of the one capture cover that has so few; of several: not told."""
    return spans[0] if len(spans) == 1 else None


def _overfull(tables: TableSet, pairs: Sequence[Pair], usage: Sequence[Mapping[str, Any]]) -> tuple[Pair, ...]:
    """Find pairs whose short kernels do not fit one after the other into their time, whatever their clocks are."""
    length = pl.col("end_ns") - pl.col("start_ns")
    pieces = tables.batches("kernels", "device_id", "capture", "pid", "start_ns", "end_ns")
    process = ("device_id", "capture", "pid")
    # A time slice that is taken away inside of a kernel makes it long.
    short = [
        piece.filter(length <= SHORT_KERNEL_NS).group_by(process).agg(length.sum().alias("ns")) for piece in pieces
    ]
    if not short:
        return tuple(pairs)
    took = {tuple(row[:3]): row[3] for row in pl.concat(short).group_by(process).agg(pl.col("ns").sum()).iter_rows()}
    of = {row["tenant_id"]: row for row in usage}

    def overfull(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        span_ns = max(one["last_ns"], other["last_ns"]) - min(one["first_ns"], other["first_ns"])
        work_ns = sum(took.get((row["device_id"], row["capture"], row["pid"]), 0) for row in (one, other))
        return bool(work_ns > (1 + t.MIN_SHORT_OVERLAP_SHARE) * span_ns)

    return tuple(
        pair if pair.precise else replace(pair, overfull=overfull(of[pair.tenants[0]], of[pair.tenants[1]]))
        for pair in pairs
    )


def _turns_would_tell(facts: Mapping[str, Fact]) -> bool:
    """Whether kernels are worth sorting: several processes were traced, and never had work at the same time."""
    traced, met = facts.get("traced_tenants"), facts.get("co_busy_share")
    several = traced is not None and traced.value is not None and traced.value > 1
    return several and met is not None and met.value is not None and met.value < t.MIN_CO_BUSY_SHARE


def _starts_would_tell(tenants: Sequence[Mapping[str, Any]], facts: Mapping[str, Fact]) -> bool:
    """Whether launch calls are worth reading: one process was traced, and no switch records tell of others.

    Stable kernels do not: a tenant with short work delays starts without inflating anything.
    """
    recorded = facts.get("switch_records")
    return sum(row["traced"] for row in tenants) == 1 and not (recorded is not None and recorded.value)


def _pids_on_several(tables: TableSet) -> set[int]:
    """Traced processes that are on several devices."""
    devices: dict[int, set[int]] = {}
    for row in tables.rows("tenants"):
        if row["traced"] and row["pid"] is not None:
            devices.setdefault(row["pid"], set()).add(row["device_id"])
    return {pid for pid, ids in devices.items() if len(ids) > 1}


def _tables_of(
    tables: TableSet, case: Case, physical: dict[str, str | None], several: set[int], *, alone: bool
) -> dict[str, str | None]:
    """Tables of the only export, or what in them belongs to the device."""
    if alone:
        return physical
    here = tables.rows_of("tenants", case.device_id)
    pids = {row["pid"] for row in here if row["traced"] and row["pid"] is not None}
    device = tables.rows_of("devices", case.device_id)[0]
    return narrowed(physical, None if pids & several or not pids else pids, device["cuda_ordinal"], device["gpu_id"])


#: What nsys calls each tracing of host calls, and how the tables that it makes begin.
_HOST_CALLS = {"mpi": "MPI_", "nvvideo": "NVVIDEO_", "osrt": "OSRT_API"}


def _source_states(tables: TableSet, captures: Collection[int]) -> dict[str, str]:
    """Best state of each source over captures: present beats empty beats absent."""
    order = {"present": 0, "removed": 1, "empty": 2, "unread": 3, "absent": 4}
    best: dict[str, str] = {}
    for row in tables.rows("sources"):
        if row["capture"] not in captures:
            continue
        source, state = row["source"], row["state"]
        if order[state] < order.get(best.get(source, "absent"), 3) or source not in best:
            best[source] = state
    return best


def idle_program(tables: TableSet, device_id: int) -> IdleProgram | None:
    """Find the program of which nsys was to trace CUDA and says that it collected nothing; None: it does not say so.

    Examples
    --------
    >>> import pyanalyze
    >>> idle_program(pyanalyze.load(capture).tables, 0) is None  # its kernels are on record
    True
    """
    settings = {str(row["key"]): str(row["value"]) for row in tables.settings_of(device_id)}
    # Without what nsys says, the table may have been left out of the export.
    collected = _source_states(tables, tables.captures_of(device_id)).get("kernels") != "empty"
    if not tables.paths or collected or settings.get("cuda_trace") != "true":
        return None
    lines = tables.details.stderr_lines
    return IdleProgram(
        visible(settings["program"], 30) if "program" in settings else "the program",
        sum(lines.get(capture, 0) for capture in tables.captures_of(device_id)),
    )


def _trace(tables: TableSet, device_id: int) -> str:
    """What to trace again: what the captures did, and calls of codecs where samples show their engines in use."""
    captures = tables.captures_of(device_id)
    traced_calls = tables.rows_where("sources", "source", "host_calls")
    calls = [row["physical_table"] or "" for row in traced_calls if row["capture"] in captures]
    traced = {word for word, table in _HOST_CALLS.items() if any(table in names for names in calls)}
    sampled = tables.board_samples_of(device_id)
    engines = [rows for one in VIDEO_ENGINES if (rows := sampled.get(f"{one}_utilization_pct")) is not None]
    if any((rows["value"] > 0).any() for rows in engines):
        traced.add("nvvideo")
    return ",".join([TRACE, *sorted(traced)])


def _visible_sms(contexts: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """SMs that CUDA showed each process; green contexts show their own part instead."""
    whole = [row for row in contexts if row["sm_count"] is not None and not row["is_green"]]
    # Of several contexts of one process, the first.
    return tuple({(row["capture"], row["pid"]): row["sm_count"] for row in reversed(whole)}.values())


def _driver(tables: TableSet, captures: Collection[int]) -> str | None:
    """Version of the driver, where all of these captures that say one say the same."""
    found = {row["driver_version"] for row in tables.rows("capture") if row["capture"] in captures} - {None}
    return str(found.pop()) if len(found) == 1 else None


#: What the first process of a machine is called; in a container it is something else.
_FIRST_OF_MACHINE = ("systemd", "init")


def _no_mps_process(tables: TableSet, captures: Collection[int]) -> bool:
    """Whether each of these captures lists the processes of its whole machine, and none of them is of MPS."""
    first = tables.rows_where("processes", "pid", 1)
    whole = {row["capture"] for row in first if row["name"] in _FIRST_OF_MACHINE}
    if not captures or not whole.issuperset(captures):
        return False
    return not any(
        (row["name"] or "").startswith(MPS_CUT_NAME) for row in tables.rows("processes") if row["capture"] in captures
    )


def _untraced(usage: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names of tenants that were resident without being traced, most first."""
    held = [row for row in usage if not row["traced"] and (row["resident_ns"] or 0) > 0]
    return tuple(row["name"] for row in sorted(held, key=lambda row: -row["resident_ns"]))


def _unlike_medians(
    tables: TableSet, device_id: int, usage: Sequence[Mapping[str, Any]], group: Collection[int]
) -> tuple[tuple[int, str], tuple[int, str]] | None:
    """Shortest and longest median of the tenants, and whose, where they differ: that of all is of hardly an interval.

    MPS clients are one: records name any of them for the context of all.
    """
    together = sum(row["slices"] or 0 for row in usage if row["tenant_id"] in group)
    labels = tables.labels(device_id)
    each = [
        (row["median_slice_ns"], row["slices"] or 0, labels.get(row["tenant_id"], f"tenant {row['tenant_id']}"))
        for row in usage
        if row["tenant_id"] not in group
    ]
    if together:
        each.append((percentile_ns(residency_lengths(tables, device_id, group), 0.5), together, "MPS clients"))
    medians = sorted((ns, whose) for ns, slices, whose in each if ns and slices >= ENOUGH_INTERVALS)
    return (medians[0], medians[-1]) if are_unlike([ns for ns, _ in medians]) else None


def _listed_programs(tables: TableSet, device_id: int) -> tuple[str, ...]:
    """Names of all processes that samples list on a device."""
    if tables.samples.is_empty():
        return ()
    return tuple(tables.samples_of(device_id)["process_name"].cast(pl.String).drop_nulls().unique().sort())


def _listed_clients(
    tenants: Sequence[Mapping[str, Any]], processes: Sequence[tuple[int, str, str | None]] | None
) -> dict[int, int]:
    """Tenants that NVML lists as MPS clients, which have one server's context in common, with their host pids."""
    listed = {pid for pid, _, kind in processes or () if kind == MPS_CLIENT}
    pids = {row["pid"] if row["host_pid"] is None else row["host_pid"]: row["tenant_id"] for row in tenants}
    return {tenant: pid for pid, tenant in pids.items() if pid in listed}


def _client_names(
    labels: Mapping[int, str], clients: Mapping[int, int], processes: Sequence[tuple[int, str, str | None]] | None
) -> tuple[str, ...]:
    """Name all that NVML lists as MPS clients: in a window, records may name one of them for the context of all."""
    others = [(pid, name) for pid, name, kind in processes or () if kind == MPS_CLIENT and pid not in clients.values()]
    return (
        *(labels[client] for client in sorted(clients)),
        *(f"{program(name) or 'process'} (pid {pid})" for pid, name in others if clients),
    )


def _group(pairs: Sequence[Pair], clients: Iterable[int]) -> set[int]:
    """Clients of an MPS server: those that ran concurrently, and those that NVML lists as clients."""
    return {tenant for pair in pairs if pair.together for tenant in pair.tenants} | set(clients)


def _group_switches(
    pairs: Sequence[Pair],
    tenants: Sequence[Mapping[str, Any]],
    switched: Mapping[tuple[int, int], int],
    clients: Iterable[int],
) -> int | None:
    """Switches between contexts of MPS clients (or tenants that ran concurrently), with their server, and others."""
    if not switched:
        return None
    served = {row["tenant_id"]: row["served_by"] for row in tenants if row["served_by"] is not None}
    group = _group(pairs, clients)
    holders = {served.get(tenant, tenant) for tenant in group}
    if any(pair.together and pair.through_server for pair in pairs):
        holders |= {row["tenant_id"] for row in tenants if (row["name"] or "").startswith(MPS_CUT_NAME)}
    return sum(count for (a, b), count in switched.items() if (a in holders) != (b in holders))


def _unassigned(tables: TableSet, device: Mapping[str, Any], tenants: Sequence[Mapping[str, Any]]) -> int:
    """How many MIG instances its processes may have used, where nothing says that they used the same one."""
    traced = [row for row in tenants if row["traced"]]
    if device["mig_profile"] is None or len(traced) < MANY:
        return 0
    assumed = {row["capture"] for row in tables.rows("quality") if row["name"] == "mig_instance_assumed"}
    # Each process sees its instance as device 0, and some exports show the board's UUID for each.
    open_ = [row for row in traced if row["capture"] in assumed]
    if len({row["capture"] for row in traced}) > 1 and _is_uuid_of_board(tables, device["uuid"]):
        open_ = traced
    if not open_ or _sampled_in_one_instance(tables, traced) or _told_to_use(tables, open_, device["uuid"]):
        return 0
    return max(sum(row["mig_profile"] is not None for row in tables.rows("devices")), MANY)


def _is_uuid_of_board(tables: TableSet, uuid: str | None) -> bool:
    """Whether a listing or a sample says that this UUID, which an export shows for an instance, is that of a board."""
    if uuid is None:
        return True
    bare = uuid.partition("-")[2]
    boards = set(tables.samples["gpu_uuid"].drop_nulls())
    for row in tables.rows("configured"):
        key, fields = row["key"], parse_pairs(row["value"])
        boards |= (
            {fields.get("uuid", "")} if key == "gpu" else {fields.get("gpu_uuid", "")} if key == "mig_device" else set()
        )
    return f"GPU-{bare}" in boards


def _sampled_in_one_instance(tables: TableSet, traced: Sequence[Mapping[str, Any]]) -> bool:
    """Whether samples list all these processes with one GPU instance and one compute instance."""
    rows = tables.samples.filter(pl.col("pid").is_not_null() & pl.col("mig_gi").is_not_null())
    where: dict[int, set[tuple[Any, ...]]] = {}
    for pid, *instance in rows.select("pid", "gpu_uuid", "mig_gi", "mig_ci").unique().iter_rows():
        where.setdefault(pid, set()).add(tuple(instance))
    pids = [row["pid"] if row["host_pid"] is None else row["host_pid"] for row in traced]
    return all(pid in where for pid in pids) and len(set().union(*(where[pid] for pid in pids))) == 1


def _told_to_use(tables: TableSet, traced: Sequence[Mapping[str, Any]], uuid: str | None) -> bool:
    """Whether the environment of each of these processes names this instance and no other."""
    keys = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    said = [row for row in tables.rows("configured") if row["key"] in keys]
    for tenant in traced:
        here = [row for row in said if row["capture"] == tenant["capture"]]
        own = {row["value"] for row in here if row["pid"] is not None and row["pid"] == tenant["pid"]}
        values = own or {row["value"] for row in here if row["pid"] is None}
        if uuid is None or not values or any(value.strip() != uuid for value in values):
            return False
    return True


def _mig_enabled(tables: TableSet, device: Mapping[str, Any]) -> bool | None:
    """Whether samples of the device say that MIG mode is on; None: they say nothing, or both."""
    if tables.samples.is_empty():
        return None
    if instance_of_samples(tables, device["device_id"]) is not None:
        return True
    words = mig_modes_of_samples(tables, device)
    return words == {"enabled"} if words in ({"enabled"}, {"disabled"}) else None


def _mps_clients(tables: TableSet, device_id: int) -> int | None:
    """Most MPS clients that the driver counted on a device at a time; None: no sample says how many there were."""
    rows = tables.board_samples_of(device_id).get("mps_clients")
    counts = None if rows is None else rows["value"].drop_nulls()
    return None if counts is None or counts.is_empty() else int(counts.max())  # type: ignore[arg-type]


def _capability(device: Mapping[str, Any]) -> tuple[int, int] | None:
    major, minor = device["compute_major"], device["compute_minor"]
    return None if major is None or minor is None else (major, minor)


def _facts(facts: Iterable[Mapping[str, Any]], examples: Iterable[Mapping[str, Any]]) -> dict[str, Fact]:
    behind: dict[str, list[Example]] = {}
    for e in examples:
        behind.setdefault(str(e["fact"]), []).append(
            Example(
                capture=e["capture"],
                start_ns=e["start_ns"],
                end_ns=e["end_ns"],
                pid=e["pid"],
                correlation_id=e["correlation_id"],
            )
        )
    found = {}
    for row in facts:
        found[str(row["name"])] = Fact(
            row["value"],
            str(row["unit"]),
            row["n"],
            str(row["basis"]),  # type: ignore[arg-type]
            row["detail"],
            tuple(behind.get(str(row["name"]), ())),
        )
    return found
