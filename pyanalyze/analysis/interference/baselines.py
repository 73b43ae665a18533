"""Recordings of tenants alone: which files, whose, and may they be compared at all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyanalyze.errors import UsageError
from pyanalyze.results.interference import BaselineNotUsed, Estimate
from pyanalyze.tables.selections import of_process
from pyanalyze.text import format as fmt
from pyanalyze.text.visible import program, told_apart
from pyanalyze.vocabulary import NOISE_FLOOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.core import _core
    from pyanalyze.inputs.baselines import Baseline, SavedBaseline
    from pyanalyze.results.interference import NotUsedReason
    from pyanalyze.results.report import Device
    from pyanalyze.results.work import Work
    from pyanalyze.tables.tableset import TableSet

#: Mean SM clocks that differ by more than this make durations differ as well.
CLOCK_TOLERANCE = 0.03
#: A summary is of a tenant if this part of the kernel time of both is in kernels that both have.
_ALIKE = 0.5
#: Where others had more than this part of a tenant's time, it was not recorded alone.
CO_RUN_SHARE = 0.05
#: MPS variables that cap what a client may use.
CAPS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")


@dataclass(frozen=True)
class Summary:
    """What a saved report says of a tenant.

    Attributes
    ----------
    source
        Name of the file that is of this tenant; None: none is.
    elapsed
        Ratio of the times per unit of work with its 95 % interval; None: not comparable. A report holds no kernels, so
        that it knows neither latencies nor causes.
    notes
        What there is to say of it.
    not_used
        Why it is not comparable; None: it is, or there is none.
    """

    source: str | None = None
    elapsed: Estimate | None = None
    notes: tuple[str, ...] = ()
    not_used: BaselineNotUsed | None = None


def not_used(baseline: str, refused: Mapping[NotUsedReason, str]) -> BaselineNotUsed:
    """A baseline that is not compared with a tenant.

    Parameters
    ----------
    baseline
        Name of its file.
    refused
        Reasons, each in words.

    Examples
    --------
    >>> not_used("solo.sqlite", {"not-solo": "others ran there"}).detail
    'solo.sqlite is not used: others ran there'
    """
    detail = f"{baseline} is not used: {'; '.join(refused.values())}"
    return BaselineNotUsed(baseline=baseline, reasons=list(refused), detail=detail)


def against_saved(saved: Sequence[SavedBaseline], tables: TableSet, mine: Work, tenant_id: int, name: str) -> Summary:
    """Compare a tenant's time per unit of work with summaries of tenants alone.

    Parameters
    ----------
    saved
        The summaries.
    tables, mine, tenant_id, name
        The tenant while it shared the device: what it did, see
        :func:`pyanalyze.analysis.comparison.work.work_of`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pyanalyze
    >>> from pyanalyze.inputs.baselines import SavedBaseline
    >>> session = pyanalyze.load(Path(capture).with_name("exclusive.sqlite"))
    >>> solo = SavedBaseline(Path("solo.json"), session.report())
    >>> work = session.analysis.work[0, 0]
    >>> against_saved([solo], session.tables, work, 0, session.tenants["name"][0]).elapsed.value
    1.0
    """
    from pyanalyze.analysis.comparison.split import change_of, likeness, units_of

    alike = [
        (one.tenant is not None, share, one, device, theirs.work)
        for one in saved
        if one.tenant in (None, name)
        for device in one.report.devices
        for theirs in device.tenants
        if theirs.work is not None and theirs.work.launches
        if (share := likeness(theirs.work, mine)) > _ALIKE or one.tenant is not None
    ]
    if not alike:
        return Summary()
    named, share, one, device, work = max(alike, key=lambda row: row[:2])
    file, here = one.path.name, _place(tables, tenant_id)["gpu"]
    if None not in (here, device.name) and here != device.name:
        why = f"recorded on another GPU model ({device.name}, here {here})"
        return _refused(file, {"other-gpu-model": why})
    units = units_of(work, mine)
    if units is None:
        return _refused(file, {"no-common-work": "no kernel in common"})
    change = change_of(work, mine, units, NOISE_FLOOR)
    whose = "assigned by --baseline" if named else f"{fmt.percent(share, 0)} of the kernel time in common"
    notes = [f"elapsed time is compared with {file} ({whose}), a saved report; its capture is needed for the rest"]
    co_run_share = _co_run_share_saved(device, work)
    if co_run_share > CO_RUN_SHARE:
        return _refused(file, {"not-solo": _not_solo(co_run_share)})
    if co_run_share:
        notes.append(f"other tenants ran for up to {fmt.percent(co_run_share)} of the baseline")
    elapsed = Estimate(
        value=1 + change.value,
        low=max(0.0, 1 + change.low),
        high=1 + change.high,
        n=mine.launches,
        basis="observed",
    )
    return Summary(file, elapsed, tuple(notes))


def _refused(file: str, refused: Mapping[NotUsedReason, str]) -> Summary:
    found = not_used(file, refused)
    return Summary(file, None, (found.detail,), found)


def _co_run_share_saved(device: Device, own: Work) -> float:
    """As of a recording; a summary says how long each tenant was there and not when, only the least they overlapped."""
    if device.window is None:
        return 0.0
    whole = device.window.end_ns - device.window.start_ns
    mine = _there_ns(own)
    taken = 0
    for tenant in device.tenants:
        if tenant.work is not None and tenant.work is not own:
            batches = tenant.work.batches
            had = sum(batch.attributed_ns if tenant.work.residency_known else batch.busy_ns for batch in batches)
            taken += min(had, max(mine + _there_ns(tenant.work) - whole, 0))
    return min(taken / max(mine, 1), 1.0)


def _there_ns(work: Work) -> int:
    """From a tenant's first to its last work."""
    return sum(b.idle_ns + b.idle_not_resident_ns + b.idle_other_resident_ns + b.busy_ns for b in work.batches)


def tenant_number(baseline: Baseline, tenants: pl.DataFrame) -> int | None:
    """Find the tenant that the caller named: by its name, or as reports tell it from others of that name.

    Raises
    ------
    pyanalyze.errors.UsageError
        If no tenant of the session has that name, or several have it.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pyanalyze
    >>> from pyanalyze.inputs.baselines import Baseline
    >>> session = pyanalyze.load(capture)
    >>> tenant_number(Baseline(Path("solo.sqlite"), session.tables, "app_b"), session.tenants)
    1
    """
    if baseline.tenant is None:
        return None
    traced = {row["tenant_id"]: row["name"] for row in tenants.filter("traced").iter_rows(named=True)}
    labels = _labels(tenants)
    found = [number for number, name in traced.items() if baseline.tenant in (name, labels[number])]
    if len(found) != 1:
        names = ", ".join(sorted(labels[number] for number in traced))
        many = "several tenants have" if found else "no traced tenant has"
        raise UsageError(
            f"--baseline {baseline.tenant}={baseline.path}: {many} that name; there are {names}. Name processes with "
            "--tenant NAME=PID"
        )
    return int(found[0])


def _labels(tenants: pl.DataFrame) -> dict[int, str]:
    """Names that tell tenants apart, as reports print them."""
    labels: dict[int, str] = {}
    for here in tenants.sort("tenant_id").partition_by("device_id", maintain_order=True):
        rows = here.select("tenant_id", "name", "pid", "host_pid").iter_rows()
        labels |= told_apart((number, program(name), pid, host_pid) for number, name, pid, host_pid in rows)
    return labels


def flags(
    tables: TableSet, tenant_id: int, baseline: TableSet, baseline_tenant_id: int
) -> tuple[dict[NotUsedReason, str], list[str]]:
    """What keeps a baseline from being comparable.

    Parameters
    ----------
    tables, tenant_id
        The tenant in the co-run.
    baseline, baseline_tenant_id
        The same work alone.

    Returns
    -------
    tuple of a dict and a list of str
        Reasons not to compare at all, each in words, and reasons to read the comparison with care.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> list(flags(session.tables, 0, session.tables, 0)[0])
    ['not-solo']
    """
    refuse: dict[NotUsedReason, str] = {}
    care: list[str] = []
    here, there = _place(tables, tenant_id), _place(baseline, baseline_tenant_id)
    if None not in (here["gpu"], there["gpu"]) and here["gpu"] != there["gpu"]:
        refuse["other-gpu-model"] = f"recorded on another GPU model ({there['gpu']}, here {here['gpu']})"
    for key, what in (("sms", "SMs that its process may use"), ("cap", "MPS cap")):
        if here[key] != there[key]:
            care.append(
                f"{what}: {_shown(there[key])} in the baseline, {_shown(here[key])} here: the slowdown includes this "
                "difference"
            )
    ours, theirs = _method(tables, tenant_id), _method(baseline, baseline_tenant_id)
    care += [
        f"{what}: {theirs[what]} in the baseline, {ours[what]} here"
        for what in ours
        if ours[what] != theirs[what] and None not in (ours[what], theirs[what])
    ]
    clocks = [_clock(tables, here["device_id"]), _clock(baseline, there["device_id"])]
    if clocks[0] is not None and clocks[1] is not None and abs(clocks[0] / clocks[1] - 1) > CLOCK_TOLERANCE:
        care.append(
            f"SM clocks: mean {clocks[1] / 1e6:.0f} MHz in the baseline, {clocks[0] / 1e6:.0f} MHz here: the slowdown "
            "includes this difference"
        )
    co_run_share = _co_run_share(baseline, baseline_tenant_id, there["device_id"])
    if co_run_share > CO_RUN_SHARE:
        refuse["not-solo"] = _not_solo(co_run_share)
    elif co_run_share:
        care.append(f"other tenants ran for up to {fmt.percent(co_run_share)} of the baseline")
    return refuse, care


def _not_solo(co_run_share: float) -> str:
    return f"other tenants ran for up to {fmt.percent(co_run_share, 0)} of it: it is not a solo recording"


def _co_run_share(tables: TableSet, tenant_id: int, device_id: int) -> float:
    """Part of a tenant's time, from its first to its last work, that others on the device may have taken.

    Who was there before or after it is no company. Of each other it is what it was attributed for, at most the time in
    which both were there; of those that were not traced what they held, where it is known what the tenant held.
    """
    import polars as pl

    usage = tables.tenants.filter(pl.col("device_id") == device_id).join(
        tables.tenant_usage, on=["tenant_id", "device_id"]
    )
    own = usage.row(by_predicate=pl.col("tenant_id") == tenant_id, named=True)
    if own["first_ns"] is None or own["last_ns"] <= own["first_ns"]:
        return 0.0
    serving = set(usage["served_by"].drop_nulls().to_list())
    taken = 0
    for other in usage.iter_rows(named=True):
        if other["tenant_id"] in {tenant_id, *serving}:
            continue
        if other["traced"]:
            had = other["busy_ns"] if other["attributed_ns"] is None else other["attributed_ns"]
            spans = [(other["first_ns"], other["last_ns"])] if other["first_ns"] is not None else []
        else:
            # An engine that is held for the tenant itself, by its server or under a pid on the host, is no company.
            held = (pl.col("device_id") == device_id) & (pl.col("tenant_id") == other["tenant_id"])
            spans = tables.residency.filter(held).select("start_ns", "end_ns").rows() if own["resident_ns"] else []
            had = sum(end - start for start, end in spans)
        both = sum(max(min(end, own["last_ns"]) - max(start, own["first_ns"]), 0) for start, end in spans)
        taken += min(had or 0, both)
    return min(float(taken / (own["last_ns"] - own["first_ns"])), 1.0)


def _shown(value: object) -> str:
    return "not recorded" if value is None else str(value)


def _place(tables: TableSet, tenant_id: int) -> dict[str, Any]:
    """Where a tenant ran, and on how much of it."""
    import polars as pl

    tenant = tables.tenants.row(tenant_id, named=True)
    device = tables.devices.filter(pl.col("device_id") == tenant["device_id"]).row(0, named=True)
    own = tables.contexts.filter(of_process(tenant))
    visible = own.filter(~pl.col("is_green").fill_null(value=False))["sm_count"].drop_nulls()
    caps: dict[str, str] = {}
    for row in tables.settings_of(tenant["device_id"]):
        if row["key"] in CAPS and row["pid"] in (None, tenant["pid"]):
            caps.setdefault(row["key"], row["value"])
    return {
        "device_id": tenant["device_id"],
        "gpu": (device["name"] or "").partition(" MIG ")[0] or None,
        "sms": visible.max() if len(visible) else device["sm_count"],
        "cap": ", ".join(f"{key}={value}" for key, value in sorted(caps.items())) or None,
    }


def _method(tables: TableSet, tenant_id: int) -> dict[str, str | None]:
    """What tracing does to the times that it takes; None: nothing of it, as the tenant launched no graph."""
    present = {
        str(source) for source, state in tables.sources.select("source", "state").iter_rows() if state == "present"
    }
    mine = of_process(tables.tenants.row(tenant_id, named=True))
    graphs = "as a whole" if tables.columns("graph_launches", "capture", "pid").filter(mine).height else None
    if graph_nodes(tables, tenant_id)[0]:
        graphs = "node by node"
    return {
        "graph tracing": graphs,
        "GPU metrics sampling": "on" if "gpu_metrics" in present else "off",
    }


def graph_nodes(tables: TableSet, tenant_id: int) -> tuple[int, int]:
    """How many kernels of a tenant's process are nodes of CUDA graphs, and how many there are.

    Examples
    --------
    >>> import pyanalyze
    >>> graph_nodes(pyanalyze.load(capture).tables, 0)[0]
    0
    """
    mine = of_process(tables.tenants.row(tenant_id, named=True))
    kernels = tables.columns("kernels", "capture", "pid", "graph_node_id").filter(mine)
    return kernels["graph_node_id"].count(), kernels.height


def _clock(tables: TableSet, device_id: int) -> float | None:
    import polars as pl

    rows = tables.samples_of(device_id).filter(pl.col("metric").cast(pl.String) == "clock_sm_hz")
    mean = rows["value"].mean()
    return mean if isinstance(mean, float) else None


def as_arguments(
    baselines: Sequence[Baseline], tenants: pl.DataFrame
) -> list[tuple[Mapping[str, _core.Table | pl.DataFrame], int | None]]:
    """Tables of baselines as the core takes them."""
    return [(baseline.tables.with_calls(), tenant_number(baseline, tenants)) for baseline in baselines]
