"""Which context was resident, as an object: slices per tenant, switches, cost, time slice, fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyanalyze.analysis.intervals import complete_residency, covered_until, percentile_ns, residency_lengths, union
from pyanalyze.core import _core
from pyanalyze.results.labels import mps_group_name
from pyanalyze.results.model import Text
from pyanalyze.results.residency import CostKind, ResidencySummary, ResidencyTotals
from pyanalyze.tables.selections import work_of
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import MIN_CONFIDENCE, TRAITS, Mode, ResidencyDoubt

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from pyanalyze.analysis.occupancy import PlacementPolicy
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.analysis.sharing.facts import Case
    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "NO_GROUPS",
    "DeviceResidency",
    "TenantResidency",
    "jain_of",
    "mps_group",
    "named_for_all",
    "residency_summary",
    "switch_period_ns",
    "through_one_client",
]

#: No device has clients of an MPS group that are time-sliced with other tenants.
NO_GROUPS: Final[Mapping[int, frozenset[int]]] = MappingProxyType({})


class TenantResidency(ResidencyTotals):
    """Residency intervals of one tenant, with what the report says elsewhere.

    Attributes
    ----------
    name
        Its name.
    resident_ns
        Residency in the window, nanoseconds.
    """

    name: Text
    resident_ns: int


class DeviceResidency(ResidencySummary):
    """Residency on one device, with what the report says elsewhere; times in nanoseconds.

    A report holds it as its `residency_by_tenant`.

    Attributes
    ----------
    device_id, device
        Device in `session.devices`, and its name.
    start_ns, end_ns
        The window.
    switches, creations, unclear
        Switches between two contexts that both had work, those to or from a context taken for one being created, and
        those of which that is not known; None without switch records.
    cost_kind, median_cost_ns, total_cost_ns, overhead_share
        Cost of switches: `gap` or `full`; None without switch records.
    dropped
        Switch records that were lost, by their sequence numbers; None without switch records.
    """

    device_id: int
    device: Text
    start_ns: int | None
    end_ns: int | None
    switches: int | None
    creations: int | None
    unclear: int | None
    cost_kind: CostKind | None
    median_cost_ns: int | None
    total_cost_ns: int | None
    overhead_share: float | None
    dropped: int | None
    tenants: Sequence[TenantResidency]

    def __str__(self) -> str:
        """Show it in a terminal: a line for the engine, a line per tenant."""
        from pyanalyze.text.escape import visible

        known = [
            f"time slice {fmt.duration(self.time_slice_ns)} ({self.policy or 'no known policy'})"
            if self.time_slice_ns
            else "",
            f"{fmt.count(self.switches)} switches" if self.switches is not None else "switches not recorded",
            f"{fmt.percent(self.overhead_share)} overhead ({self.cost_kind})"
            if self.overhead_share is not None
            else "",
            f"fairness of GPU time {self.jain:.3f}" if self.jain is not None else "",
        ]
        lines = [f"{visible(self.device)}: {', '.join(part for part in known if part)} [{self.basis}]"]
        for t in self.tenants:
            idle = "" if t.idle_share is None else f", idle {fmt.percent(t.idle_share)} of it"
            lines.append(
                f"  {visible(t.name)}: {fmt.percent(t.gpu_time_share)} of GPU time in {fmt.count(t.slices)} intervals "
                f"of {fmt.duration(t.median_slice_ns)}{idle}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def named_for_all(mode: Mode, tenants: Iterable[tuple[int, int | None, int | None]]) -> int | None:
    """Find the MPS client that switch records name for the context that all clients share; None: there is none.

    Parameters
    ----------
    mode
        The sharing mode.
    tenants
        Id of each tenant, and how long it was busy and resident; None: not known.

    Examples
    --------
    >>> named_for_all(Mode.MPS, [(0, 5, None), (1, 3, 9)]), named_for_all(Mode.TIME_SLICING, [(0, 5, None), (1, 3, 9)])
    (1, None)
    """
    traits, known = TRAITS[mode], list(tenants)
    working = [tenant for tenant, busy_ns, _ in known if busy_ns]
    resident = [tenant for tenant, _, resident_ns in known if resident_ns]
    shared = traits.mps and not traits.time_sliced and len(working) > 1 and len(resident) == 1
    return resident[0] if shared and resident[0] in working else None


def mps_group(tables: TableSet, verdict: Verdict, case: Case | None) -> frozenset[int]:
    """Find the clients of an MPS group that is time-sliced with other tenants, and that switch records tell apart.

    They have one context on the GPU, and records name any of them for it: only the sum of their residency is known.

    Parameters
    ----------
    tables
        The tables.
    verdict, case
        Of the device: its sharing mode, and which tenants ran concurrently or are listed as clients.

    Returns
    -------
    frozenset of int
        Tenants; empty where there is no such group.

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).analysis
    >>> mps_group(analysis.tables, analysis.verdicts[0], analysis.case_by_device[0])
    frozenset()
    """
    traits = TRAITS[verdict.mode]
    if case is None or tables.groups is not None or not (traits.mps and traits.time_sliced):
        return frozenset()
    listed = {tenant for tenant, label in tables.labels(verdict.device_id).items() if label in case.listed_clients}
    found = listed | {tenant for pair in case.pairs if pair.together for tenant in pair.tenants}
    usage = tables.of_device("tenant_usage", verdict.device_id).select("tenant_id", "resident_ns")
    resident = {tenant for tenant, ns in usage.iter_rows() if ns and tenant in found}
    # Of clients whose server is in the records, that is who was resident. Records of a window may name one client.
    several = max(len(found), len(case.listed_clients)) > 1
    return frozenset(found) if several and resident else frozenset()


def shared_residency(tables: TableSet, groups: Mapping[int, frozenset[int]]) -> dict[str, AnyTable]:
    """Give each client of an MPS group the residency of all: the table `residency`; nothing where there is no group.

    Parameters
    ----------
    tables
        The tables.
    groups
        What :func:`mps_group` found, by device.

    Examples
    --------
    >>> import pyanalyze
    >>> shared_residency(pyanalyze.load(capture).tables, {0: frozenset()})
    {}
    """
    import polars as pl

    from pyanalyze.tables.frames import FrameTable

    recorded = tables.residency
    members = [(device, group, client) for device, group in groups.items() for client in sorted(group)]
    if not members:
        return {}
    of_others = (
        recorded.filter(
            pl.col("device_id") == device, pl.col("tenant_id").is_in(list(group)), pl.col("tenant_id") != client
        ).with_columns(pl.lit(client, recorded.schema["tenant_id"]).alias("tenant_id"))
        for device, group, client in members
    )
    return {"residency": FrameTable("residency", pl.concat([recorded, *of_others]).sort("device_id", "start_ns"))}


def through_one_client(tables: TableSet, groups: Mapping[int, frozenset[int]]) -> dict[str, AnyTable]:
    """Let one client of an MPS group stand for its context: `tenants` and `residency`; nothing where there is no group.

    Parameters
    ----------
    tables
        The tables.
    groups
        What :func:`mps_group` found, by device.

    Examples
    --------
    >>> import pyanalyze
    >>> through_one_client(pyanalyze.load(capture).tables, {0: frozenset()})
    {}
    """
    import polars as pl

    from pyanalyze.tables.frames import FrameTable

    through = {client: min(group) for group in groups.values() for client in group}
    if not through:
        return {}
    tenant = pl.col("tenant_id")
    owner = tenant.replace_strict(through, default=tenant, return_dtype=pl.UInt32)
    server = tenant.replace_strict(through, default=pl.col("served_by"), return_dtype=pl.UInt32)
    return {
        "tenants": FrameTable("tenants", tables.tenants.with_columns(server.alias("served_by"))),
        "residency": FrameTable("residency", tables.residency.with_columns(owner.alias("tenant_id"))),
    }


def in_one_context(tables: TableSet, groups: Mapping[int, frozenset[int]]) -> dict[str, AnyTable]:
    """Let the clients of an MPS group go through one context, and give the tables that change.

    Parameters
    ----------
    tables
        The tables.
    groups
        What :func:`mps_group` found, by device.

    Returns
    -------
    dict
        `tenants`, `residency`, `tenant_usage` and `kernel_attribution`: each kernel of a client was resident whenever
        any client was. Nothing where there is no group.

    Examples
    --------
    >>> import pyanalyze
    >>> in_one_context(pyanalyze.load(capture).tables, {0: frozenset()})
    {}
    """
    changed = through_one_client(tables, groups)
    if not changed:
        return {}
    given = {**tables.for_core(), **changed}
    usage = _core.tenant_usage(
        {name: table for name, table in given.items() if name not in ("tenant_usage", "overlaps")}
    )
    given |= {"tenant_usage": usage["tenant_usage"], "overlaps": usage["overlaps"]}
    return {
        **changed,
        "tenant_usage": usage["tenant_usage"],
        "kernel_attribution": _core.attribution(given, None)["kernel_attribution"],
    }


def residency_summary(
    tables: TableSet, verdicts: Iterable[Verdict], groups: Mapping[int, frozenset[int]]
) -> tuple[DeviceResidency, ...]:
    """Add up residency by device and tenant.

    Parameters
    ----------
    tables
        The tables.
    verdicts
        The sharing mode of each device: under MPS one tenant may stand for all.
    groups
        What :func:`mps_group` found, by device: its clients are one row.

    Returns
    -------
    tuple of DeviceResidency
        One per device with residency, observed or inferred, by device id.

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).analysis
    >>> found = residency_summary(analysis.tables, analysis.verdicts, {})[0]
    >>> found.basis, found.policy, [tenant.name for tenant in found.tenants]
    ('observed', 'default', ['app_a', 'app_b', 'app_c'])
    """
    import polars as pl

    names = dict(tables.tenants.select("tenant_id", "name").iter_rows())
    devices = dict(tables.devices.select("device_id", "name").iter_rows())
    lost = tables.quality.filter(pl.col("name").cast(pl.String) == "switch_events_lost")["count"].sum()
    modes = {verdict.device_id: verdict.mode for verdict in verdicts}
    found = []
    for engine in tables.residency_by_device.sort("device_id").iter_rows(named=True):
        device_id = engine["device_id"]
        rows = tables.residency_by_tenant.filter(pl.col("device_id") == device_id).sort("resident_ns", descending=True)
        observed = str(engine["basis"]) == "observed"
        usage = tables.of_device("tenant_usage", device_id).select("tenant_id", "busy_ns", "resident_ns").rows()
        for_all = named_for_all(modes.get(device_id, Mode.UNDETERMINED), usage)
        group = groups.get(device_id, frozenset())
        each = [
            TenantResidency(
                name=names.get(row["tenant_id"]) or f"tenant {row['tenant_id']}",
                **{key: row[key] for key in TenantResidency.model_fields if key in row and key != "name"}
                | (
                    _idle_of_all(tables, row)
                    if row["tenant_id"] == for_all
                    else _without_kernels(tables, row, (engine["start_ns"], engine["end_ns"]))
                    if observed and row["tenant_id"] not in group
                    else {}
                ),
            )
            for row in rows.iter_rows(named=True)
        ]
        if any(one.tenant_id in group for one in each):
            each = _with_group(tables, device_id, each, group)
            engine = {**engine, "jain": jain_of([one.resident_ns for one in each])}
        found.append(
            DeviceResidency(
                **engine,
                device=devices.get(device_id) or f"device {device_id}",
                dropped=int(lost) if observed else None,
                tenants=tuple(each),
            )
        )
    return tuple(found)


def _with_group(
    tables: TableSet, device_id: int, each: Sequence[TenantResidency], group: frozenset[int]
) -> list[TenantResidency]:
    """Totals in which the clients of an MPS group are one row, most residency first."""
    mine, labels = [one for one in each if one.tenant_id in group], tables.labels(device_id)
    lengths = residency_lengths(tables, device_id, group)
    whole = len(lengths) == sum(one.slices for one in mine)
    p10, middle, p90 = (percentile_ns(lengths, part) if whole else None for part in (0.1, 0.5, 0.9))
    expired, yielded = _endings_of_group(tables, device_id, group)
    together = mine[0].model_copy(
        update={
            "name": mps_group_name([labels[one.tenant_id] for one in mine]),
            "clients": [one.tenant_id for one in mine],
            "resident_ns": sum(one.resident_ns for one in mine),
            "gpu_time_share": sum(one.gpu_time_share or 0.0 for one in mine),
            "slices": sum(one.slices for one in mine),
            "cut_slices": sum(one.cut_slices for one in mine),
            # Work of a client counts while records name another one.
            "idle_ns": None,
            "idle_share": None,
            "p10_slice_ns": p10,
            "median_slice_ns": middle,
            "p90_slice_ns": p90,
            "max_slice_ns": max((one.max_slice_ns for one in mine if one.max_slice_ns is not None), default=None),
            "expired": expired,
            "yielded": yielded,
        }
    )
    rest = [one for one in each if one.tenant_id not in group]
    return sorted([together, *rest], key=lambda one: -one.resident_ns)


def _endings_of_group(tables: TableSet, device_id: int, group: frozenset[int]) -> tuple[int | None, int | None]:
    """How many intervals of an MPS group expired, and how many it yielded: work of any client counts."""
    made = _core.residency_summary({**tables.stored, **through_one_client(tables, {device_id: group})}, None)
    rows = made["residency_by_tenant"].to_dicts()
    return next((row["expired"], row["yielded"]) for row in rows if row["tenant_id"] == min(group))


def recorded_ns(tables: TableSet, device_id: int, first_ns: int, last_ns: int) -> int | None:
    """How much of a window the switch records of a device cover, where that is notably less.

    Returns
    -------
    int or None
        Nanoseconds; None: they cover (nearly) all of it, or there are none.

    Examples
    --------
    >>> import pyanalyze
    >>> recorded_ns(pyanalyze.load(capture).analysis.tables, 0, 0, 1_200_000_000) is None
    True
    """
    if not tables.rows_where("quality", "name", "switch_records_partial"):
        return None
    for engine in tables.rows_of("residency_by_device", device_id):
        start_ns, end_ns = engine["start_ns"], engine["end_ns"]
        if engine["basis"] == "observed" and start_ns is not None and (start_ns > first_ns or end_ns < last_ns):
            return max(int(min(end_ns, last_ns) - max(start_ns, first_ns)), 0)
    return None


def switch_period_ns(tables: TableSet, device_id: int) -> int | None:
    """Measure the period with which tenants alternate: from one residency interval to the next of the same tenant.

    Returns
    -------
    int or None
        Median in nanoseconds, of the tenant with the most residency intervals. None: fewer than two tenants alternate.

    Examples
    --------
    >>> import pyanalyze
    >>> switch_period_ns(pyanalyze.load(capture).tables, 0)  # three tenants with time slices of 2.1 ms
    6553177
    """
    import polars as pl

    for name in ("residency", "inferred_residency"):
        rows = tables.of_device(name, device_id).filter(pl.col("tenant_id").is_not_null()).sort("start_ns")
        periods = rows.group_by("tenant_id").agg(pl.len(), period_ns=pl.col("start_ns").diff().median())
        if periods.drop_nulls().height > 1:
            return int(periods.sort("len", "tenant_id")["period_ns"][-1])
    return None


def jain_of(shares: Sequence[float]) -> float | None:
    """Compute Jain's index of residency, as times or as shares.

    Returns
    -------
    float or None
        1 where all are equal; None: nothing was resident.

    Examples
    --------
    >>> jain_of([3, 1])
    0.8
    """
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else None


def _without_kernels(tables: TableSet, row: Mapping[str, Any], window: tuple[int | None, int | None]) -> dict[str, Any]:
    """Count complete intervals in which a traced tenant had no kernel in flight, and add them up.

    They are those of the whole export, as all interval lengths are; of them only what lies in the window is part of the
    time that shares are of.
    """
    import polars as pl

    (tenant,) = tables.tenants.filter(
        pl.col("tenant_id") == row["tenant_id"], pl.col("device_id") == row["device_id"]
    ).to_dicts()
    # Of a process without CUDA records nothing tells whether it ran kernels.
    if row["idle_ns"] is None:
        return {}
    work = union(work_of(tables, tenant, ("kernels", "graph_launches"), "start_ns", "end_ns"))
    slices = complete_residency(tables, row["device_id"], [row["tenant_id"]])
    if work.is_empty() or slices.is_empty():
        return {}
    until, since = (covered_until(slices[edge], work) for edge in ("end_ns", "start_ns"))
    empty = slices.filter(until == since)
    start, end = pl.col("start_ns"), pl.col("end_ns")
    first, last = (pl.lit(edge, pl.Int64) for edge in window)
    inside = (pl.min_horizontal(end, last) - pl.max_horizontal(start, first)).clip(lower_bound=0)
    length_ns, inside_ns = empty.select(all=(end - start).sum(), inside=inside.sum()).row(0)
    return {
        "without_kernels": empty.height,
        "without_kernels_ns": int(length_ns),
        "without_kernels_in_window_ns": int(inside_ns),
    }


def _idle_of_all(tables: TableSet, row: Mapping[str, Any]) -> dict[str, Any]:
    """How long the context of all MPS clients was idle: kernels of the one in the records are not all of its work."""
    busy = next(
        (fact["value"] for fact in tables.rows_of("facts", row["device_id"]) if fact["name"] == "busy_ns"), None
    )
    if busy is None or not row["resident_ns"]:
        return {"idle_ns": None, "idle_share": None}
    idle_ns = max(row["resident_ns"] - round(busy), 0)
    return {"idle_ns": idle_ns, "idle_share": idle_ns / row["resident_ns"]}


def inferred_tables(tables: TableSet, policies: Mapping[int, PlacementPolicy]) -> dict[str, _core.Table]:
    """Deduce residency from kernels where switch records are missing: the table `inferred_residency`.

    Parameters
    ----------
    tables
        The tables.
    policies
        Who shares SMs with whom, by device: only a verdict says whether contexts alternate at all.
    """
    # Launched work that waits for its start says that its context is not resident.
    inferred = any(policy.sharing == "time-sliced" for policy in policies.values()) and not tables.row_count(
        "residency"
    )
    return _core.infer_residency(tables.with_late("api_calls") if inferred else tables.for_core(), policies, None)


@dataclass(frozen=True)
class UnitResidency:
    """What of residency the explanation of units of work rests on.

    Attributes
    ----------
    tables
        The table `inferred_residency`.
    doubts
        By device: why causes that rest on residency are not certain, or not known. Without an entry they are.
    others_unseen
        Devices on which tenants run that no record of this machine shows: virtual GPUs.
    """

    tables: Mapping[str, AnyTable]
    doubts: Mapping[int, ResidencyDoubt] = field(default_factory=dict)
    others_unseen: frozenset[int] = frozenset()


def residency_of_units(
    tables: TableSet,
    verdicts: Sequence[Verdict],
    policies: Mapping[int, PlacementPolicy],
    inferred: Mapping[str, AnyTable],
) -> UnitResidency:
    """Deduce residency for units of work, also where time-slicing is most likely and not certain.

    Occupancy and totals use certain residency only. What made one request slow is worth an answer with a condition.

    Parameters
    ----------
    tables
        The tables.
    verdicts
        The sharing mode of each device.
    policies
        Who shares SMs with whom, by device.
    inferred
        What :func:`inferred_tables` made of them.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> found = residency_of_units(session.tables, session.analysis.verdicts, session.analysis.policies, {})
    >>> found.doubts, found.others_unseen  # switch records say it all
    ({}, frozenset())
    """
    import polars as pl

    from pyanalyze.tables.frames import FrameTable, to_frame

    recorded = set(tables.residency["device_id"].unique())
    sliced, doubts, unseen = dict(policies), {}, set()
    for verdict in verdicts:
        device = verdict.device_id
        if TRAITS[verdict.mode].vgpu:
            unseen.add(device)
        if device in recorded:
            continue
        alternate, doubt = _alternate(verdict)
        if alternate:
            sliced[device] = replace(policies[device], sharing="time-sliced")
        if doubt is None and verdict.condition is not None:
            doubt = ResidencyDoubt.IF_ALONE
        if doubt is not None:
            doubts[device] = doubt
    if sliced != dict(policies):
        inferred = inferred_tables(tables, sliced)
    table = inferred.get("inferred_residency")
    made = None if table is None else to_frame(table)
    # Of an MPS group that kernels do not show, no turn is known.
    scattered = [
        verdict.device_id
        for verdict in verdicts
        if TRAITS[verdict.mode].mps and TRAITS[verdict.mode].time_sliced and not _group_found(made, verdict.device_id)
    ]
    if scattered and made is not None:
        made = made.filter(~pl.col("device_id").is_in(scattered))
        inferred = {**inferred, "inferred_residency": FrameTable("inferred_residency", made)}
        doubts.update(dict.fromkeys(set(scattered) - recorded, ResidencyDoubt.UNDECIDED))
    known = set() if made is None else set(made["device_id"].unique())
    for device, policy in sliced.items():
        traced = tables.tenants.filter("traced", pl.col("device_id") == device).height
        # Of several that were traced it says that they never had work at the same time.
        if policy.sharing == "time-sliced" and device not in recorded | known and traced == 1:
            doubts[device] = ResidencyDoubt.UNDECIDED
    return UnitResidency(inferred, doubts, frozenset(unseen))


def _group_found(inferred: pl.DataFrame | None, device_id: int) -> bool:
    """Whether several tenants of a device are resident at once, as far as kernels tell."""
    import polars as pl

    if inferred is None:
        return False
    here = inferred.filter(pl.col("device_id") == device_id)
    return here.select("start_ns", "end_ns").is_duplicated().any()


def _alternate(verdict: Verdict) -> tuple[bool, ResidencyDoubt | None]:
    """Whether contexts alternate on a device, more likely than not, and what is to be said of that."""
    if verdict.mode is not Mode.UNDETERMINED:
        known = TRAITS[verdict.mode].time_sliced
        # Containers behind a limiter are time-sliced below it, unless they are clients of an MPS server as well.
        return known is not False, ResidencyDoubt.IF_TIME_SLICED if known is None else None
    whole = sum(one.confidence for one in verdict.alternatives)
    may = sum(one.confidence for one in verdict.alternatives if TRAITS[one.mode].time_sliced is not False)
    if may > whole / 2:
        return True, ResidencyDoubt.IF_TIME_SLICED if may < MIN_CONFIDENCE * whole else None
    return False, ResidencyDoubt.UNDECIDED if may > (1 - MIN_CONFIDENCE) * whole else None


def summary_tables(tables: TableSet, inferred: Mapping[str, AnyTable]) -> dict[str, _core.Table]:
    """Sum up residency by tenant and by device: the tables `residency_by_tenant` and `residency_by_device`.

    Parameters
    ----------
    tables
        The tables.
    inferred
        What :func:`inferred_tables` made.
    """
    return _core.residency_summary({**tables.stored, **inferred}, None)
