"""What the rules judge a device by, gathered from the tables; and the verdicts of all devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from pyanalyze.analysis.sharing.classify import judge
from pyanalyze.analysis.sharing.evidence import Case, Configured, Fact, pairs_of
from pyanalyze.analysis.sharing.queries import narrowed
from pyanalyze.errors import UsageError
from pyanalyze.inputs.context import names_gpu
from pyanalyze.results.sharing import Example
from pyanalyze.tables.process_lists import compute_processes, most_listed_together, unlisted_tenants
from pyanalyze.tables.tableset import Selection

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
                pairs=pairs_of(tables.overlaps.filter(here), usage),
                visible_sms=_visible_sms(tables.contexts.filter(here)),
                instances_unassigned=_unassigned(tables.devices, tables.contexts),
                pids_known=tenants.filter("traced")["pid"].null_count() == 0,
                nvml_processes=compute_processes(tables, device["device_id"]),
                listed_programs=tuple(
                    tables.samples.filter(here)["process_name"].cast(pl.String).drop_nulls().unique().sort()
                ),
                nvml_together=most_listed_together(tables, device["device_id"]),
                unlisted=unlisted_tenants(tables, device["device_id"]),
                captured=bool(tables.paths),
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
    # Idle neighbours of a busy GPU are left out; where nothing ran at all, that is what there is to say.
    return tuple(cases or idle)


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


def _untraced(usage: pl.DataFrame) -> tuple[str, ...]:
    """Names of tenants that held the engine without being traced, most first."""
    held = usage.filter(~pl.col("traced"), pl.col("resident_ns").fill_null(0) > 0)
    return tuple(held.sort("resident_ns", descending=True)["name"].to_list())


def _unassigned(devices: pl.DataFrame, contexts: pl.DataFrame) -> int:
    """How many MIG instances there are, when nothing says which process used which of them."""
    instances = devices["mig_profile"].count()
    return instances if contexts["sm_count"].count() == 0 else 0


def _capability(device: Mapping[str, Any]) -> tuple[int, int] | None:
    major, minor = device["compute_major"], device["compute_minor"]
    return None if major is None or minor is None else (major, minor)


def _facts(facts: pl.DataFrame, examples: pl.DataFrame) -> dict[str, Fact]:
    found = {}
    for row in facts.iter_rows(named=True):
        behind = examples.filter(pl.col("fact") == row["name"])
        found[str(row["name"])] = Fact(
            row["value"],
            str(row["unit"]),
            row["n"],
            str(row["basis"]),  # type: ignore[arg-type]
            row["detail"],
            tuple(
                Example(
                    capture=e["capture"],
                    start_ns=e["start_ns"],
                    end_ns=e["end_ns"],
                    pid=e["pid"],
                    correlation_id=e["correlation_id"],
                )
                for e in behind.iter_rows(named=True)
            ),
        )
    return found
