"""What the rules judge a device by, gathered from the tables; and the verdicts of all devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from pyanalyze.analysis.sharing.classify import judge
from pyanalyze.analysis.sharing.evidence import (
    MANY,
    Case,
    Configured,
    Fact,
    Pair,
    durations_stable,
    pairs_of,
    starts_promptly,
)
from pyanalyze.analysis.sharing.idle_starts import idle_start_facts
from pyanalyze.analysis.sharing.queries import narrowed
from pyanalyze.errors import UsageError
from pyanalyze.inputs.context import names_gpu
from pyanalyze.results.sharing import Example
from pyanalyze.tables.boards import board_of, of_device
from pyanalyze.tables.launch_records import launch_records
from pyanalyze.tables.process_lists import compute_processes, listed_of_board, most_listed_together, unlisted_tenants
from pyanalyze.tables.tableset import Selection
from pyanalyze.text.pairs import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.analysis.sharing.classify import Verdict
    from pyanalyze.tables.tableset import TableSet

__all__ = ["cases_of", "verdicts_of"]


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
    apart = tables.quality.filter(pl.col("name").cast(pl.String) == "captures_apart")["capture"].unique()
    active = tables.tenant_usage.filter(pl.col("first_ns").is_not_null()).select("tenant_id", "device_id")
    seen = active.join(tables.tenants.select("tenant_id", "capture"), on="tenant_id").unique(["device_id", "capture"])
    both = seen.filter(pl.col("capture").n_unique().over("device_id") > 1, pl.col("capture").is_in(apart.implode()))
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
    facts = tables.facts
    examples = tables.fact_examples
    configured = tables.configured
    # Calls tell a GPU without work from one whose kernels were lost; where there are kernels they need not be read.
    traced = any(fact.value for fact in _facts(facts.filter(pl.col("name") == "busy_ns"), examples).values())
    whole = tables.paths and (tables.selection.start_ns, tables.selection.end_ns) == (None, None)
    lost = launch_records(tables) if whole and not traced else None
    cases: list[Case] = []
    idle: list[Case] = []
    for device in tables.devices.sort("device_id").iter_rows(named=True):
        if tables.selection.gpu not in (None, device["device_id"]):
            continue
        here = pl.col("device_id") == device["device_id"]
        measured = _facts(facts.filter(here), examples.filter(here))
        tenants = tables.tenants.filter(here)
        usage = tenants.join(tables.tenant_usage, on=["tenant_id", "device_id"])
        activity = (measured.get("busy_ns"), measured.get("switch_records"))
        quiet = tenants.is_empty() and not any(fact and fact.value for fact in activity)
        rows = configured.filter(here | pl.col("device_id").is_null())
        pairs = pairs_of(tables.overlaps.filter(here), usage, tables.switches.filter(here))
        if whole and _starts_would_tell(tenants, measured):
            measured |= idle_start_facts(tables, device["device_id"])
        (idle if quiet else cases).append(
            Case(
                device_id=device["device_id"],
                name=device["name"],
                uuid=device["uuid"],
                mig_profile=device["mig_profile"],
                vgpu_profile=device["vgpu_profile"],
                compute_capability=_capability(device),
                sm_count=device["sm_count"],
                facts=measured,
                configured=[
                    Configured(str(r["source"]), str(r["key"]), r["value"], r["pid"])
                    for r in rows.iter_rows(named=True)
                    if r["device_id"] is not None or not names_gpu(r["value"])
                ],
                sources=_source_states(tables),
                tenants=list(tables.labels(device["device_id"]).values()),
                green_contexts=tables.contexts.filter(here & pl.col("is_green").fill_null(value=False)).height,
                pairs=pairs,
                group_switches=_group_switches(pairs, tenants, tables.switches.filter(here)),
                visible_sms=_visible_sms(tables.contexts.filter(here)),
                product_sms=device["product_sm_count"],
                memory_below_product=device["memory_below_product"],
                mig_enabled=_mig_enabled(tables, device),
                board=board_of(tables, device),
                instances_unassigned=_unassigned(tables, device, tenants),
                pids_known=tenants.filter("traced")["pid"].null_count() == 0,
                nvml_processes=compute_processes(tables, device["device_id"]),
                nvml_of_board=listed_of_board(tables, device["device_id"]),
                listed_programs=tuple(
                    tables.samples.filter(here)["process_name"].cast(pl.String).drop_nulls().unique().sort()
                ),
                nvml_together=most_listed_together(tables, device["device_id"]),
                unlisted=unlisted_tenants(tables, device["device_id"]),
                captured=bool(tables.paths),
                launches=lost,
                no_mps_process=_no_mps_process(tables),
                driver=_driver(tables.capture),
                untraced=_untraced(usage),
                served=tenants["served_by"].drop_nulls().len(),
            )
        )
    if len(tables.paths) == 1 and tables.selection == Selection():
        physical = dict(tables.sources.select("source", "physical_table").iter_rows())
        if tables.quality.filter(pl.col("name") == "switch_events_lost", pl.col("count") > 0).height:
            # What is made of records with holes takes more than a query.
            physical["switch_events"] = None
        cases = [replace(case, tables=_tables_of(tables, case, physical, alone=len(cases) == 1)) for case in cases]
    # Idle GPUs beside a busy one are left out; where nothing ran at all, that is what there is to say.
    return tuple(cases or idle)


def _starts_would_tell(tenants: pl.DataFrame, facts: Mapping[str, Fact]) -> bool:
    """Whether launch calls are worth reading: one process was traced, and nothing else tells of other processes."""
    recorded = facts.get("switch_records")
    if tenants.filter("traced").height != 1 or (recorded is not None and recorded.value):
        return False
    return not starts_promptly(facts) and not durations_stable(facts)


def _tables_of(tables: TableSet, case: Case, physical: dict[str, str | None], *, alone: bool) -> dict[str, str | None]:
    """Tables of the only export, or what in them belongs to the device."""
    if alone:
        return physical
    here = pl.col("device_id") == case.device_id
    traced = tables.tenants.filter("traced")
    pids = set(traced.filter(here)["pid"].drop_nulls().to_list())
    elsewhere = set(traced.filter(~here)["pid"].drop_nulls().to_list())
    device = tables.devices.filter(here).row(0, named=True)
    return narrowed(physical, None if pids & elsewhere or not pids else pids, device["cuda_ordinal"], device["gpu_id"])


def _source_states(tables: TableSet) -> dict[str, str]:
    """Best state of each source over the captures: present beats empty beats absent."""
    order = {"present": 0, "empty": 1, "unread": 2, "absent": 3}
    best: dict[str, str] = {}
    for source, state in tables.sources.select("source", "state").iter_rows():
        if order[state] < order.get(best.get(source, "absent"), 3) or source not in best:
            best[source] = state
    return best


def _visible_sms(contexts: pl.DataFrame) -> tuple[int, ...]:
    """SMs that CUDA showed each process; green contexts show their own part instead."""
    whole = contexts.filter(pl.col("sm_count").is_not_null() & ~pl.col("is_green").fill_null(value=False))
    return tuple(whole.unique(["capture", "pid"])["sm_count"].to_list())


def _driver(capture: pl.DataFrame) -> str | None:
    """Version of the driver, where all captures that say one say the same."""
    found = capture["driver_version"].drop_nulls().unique().to_list()
    return str(found[0]) if len(found) == 1 else None


#: What the first process of a machine is called; in a container it is something else.
_FIRST_OF_MACHINE = ("systemd", "init")


def _no_mps_process(tables: TableSet) -> bool:
    """Whether every capture lists the processes of its whole machine, and none of them is of MPS."""
    listed = tables.processes.select("capture", "pid", name=pl.col("name").cast(pl.String))
    whole = listed.filter(pl.col("pid") == 1, pl.col("name").is_in(_FIRST_OF_MACHINE))["capture"].n_unique()
    served = listed.filter(pl.col("name").str.starts_with("nvidia-cuda-mps")).height
    return whole == tables.capture.height > 0 and not served


def _untraced(usage: pl.DataFrame) -> tuple[str, ...]:
    """Names of tenants that were resident without being traced, most first."""
    held = usage.filter(~pl.col("traced"), pl.col("resident_ns").fill_null(0) > 0)
    return tuple(held.sort("resident_ns", descending=True)["name"].to_list())


def _group_switches(pairs: Sequence[Pair], tenants: pl.DataFrame, switches: pl.DataFrame) -> int | None:
    """Switches between contexts of tenants that ran concurrently, or of their MPS server, and those of others."""
    named = switches.select("from_tenant_id", "to_tenant_id").drop_nulls()
    if named.is_empty():
        return None
    served = dict(tenants.select("tenant_id", "served_by").drop_nulls().iter_rows())
    group = {tenant for pair in pairs if pair.together for tenant in pair.tenants}
    holders = {served.get(tenant, tenant) for tenant in group}
    servers = tenants.filter(pl.col("name").str.starts_with("nvidia-cuda-mps"))["tenant_id"]
    if any(pair.together and pair.through_server for pair in pairs):
        holders |= set(servers)
    return sum((a in holders) != (b in holders) for a, b in named.iter_rows())


def _unassigned(tables: TableSet, device: Mapping[str, Any], tenants: pl.DataFrame) -> int:
    """How many MIG instances its processes may have used, where nothing says that they used the same one."""
    traced = tenants.filter("traced")
    if device["mig_profile"] is None or traced.height < MANY:
        return 0
    assumed = tables.quality.filter(pl.col("name").cast(pl.String) == "mig_instance_assumed")["capture"]
    # Each process sees its instance as device 0, and some exports show the board's UUID for each.
    open_ = traced.filter(pl.col("capture").is_in(assumed.drop_nulls().implode()))
    if traced["capture"].n_unique() > 1 and _is_uuid_of_board(tables, device["uuid"]):
        open_ = traced
    if open_.is_empty() or _sampled_in_one_instance(tables, traced) or _told_to_use(tables, open_, device["uuid"]):
        return 0
    return max(int(tables.devices["mig_profile"].count()), MANY)


def _is_uuid_of_board(tables: TableSet, uuid: str | None) -> bool:
    """Whether a listing or a sample says that this UUID, which an export shows for an instance, is that of a board."""
    if uuid is None:
        return True
    bare = uuid.partition("-")[2]
    boards = set(tables.samples["gpu_uuid"].drop_nulls())
    rows = tables.configured.select(pl.col("key").cast(pl.String), "value")
    for key, value in rows.iter_rows():
        fields = parse_pairs(value)
        boards |= (
            {fields.get("uuid", "")} if key == "gpu" else {fields.get("gpu_uuid", "")} if key == "mig_device" else set()
        )
    return f"GPU-{bare}" in boards


def _sampled_in_one_instance(tables: TableSet, traced: pl.DataFrame) -> bool:
    """Whether samples list all these processes with one GPU instance and one compute instance."""
    rows = tables.samples.filter(pl.col("pid").is_not_null() & pl.col("mig_gi").is_not_null())
    where = rows.select("pid", "gpu_uuid", "mig_gi", "mig_ci").unique()
    pids = traced.select(pl.coalesce("host_pid", "pid").alias("pid"))
    found = pids.join(where, on="pid", how="left")
    return found["mig_gi"].null_count() == 0 and found.select("gpu_uuid", "mig_gi", "mig_ci").unique().height == 1


def _told_to_use(tables: TableSet, traced: pl.DataFrame, uuid: str | None) -> bool:
    """Whether the environment of each of these processes names this instance and no other."""
    keys = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    rows = tables.configured.filter(pl.col("key").cast(pl.String).is_in(keys)).select("capture", "pid", "value")
    said = list(rows.iter_rows())
    for capture, pid in traced.select("capture", "pid").iter_rows():
        own = {value for where, who, value in said if where == capture and who == pid}
        values = own or {value for where, who, value in said if where == capture and who is None}
        if uuid is None or not values or any(value.strip() != uuid for value in values):
            return False
    return True


def _mig_enabled(tables: TableSet, device: Mapping[str, Any]) -> bool | None:
    """Whether samples of the device say that MIG mode is on; None: they say nothing, or both."""
    rows = tables.samples.filter(of_device(tables, device), pl.col("metric").cast(pl.String) == "mig_mode")
    words = {str(text).strip().lower() for text in rows["text"].drop_nulls()}
    return words == {"enabled"} if words in ({"enabled"}, {"disabled"}) else None


def _capability(device: Mapping[str, Any]) -> tuple[int, int] | None:
    major, minor = device["compute_major"], device["compute_minor"]
    return None if major is None or minor is None else (major, minor)


def _facts(facts: pl.DataFrame, examples: pl.DataFrame) -> dict[str, Fact]:
    # Once for all: a filter for each of fifty facts takes longer than all else.
    behind: dict[str, list[Example]] = {}
    for e in examples.iter_rows(named=True):
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
    for row in facts.iter_rows(named=True):
        found[str(row["name"])] = Fact(
            row["value"],
            str(row["unit"]),
            row["n"],
            str(row["basis"]),  # type: ignore[arg-type]
            row["detail"],
            tuple(behind.get(str(row["name"]), ())),
        )
    return found
