"""The one home of the JSON contract of a fleet (``pyanalyze.fleet/1``), and what is concluded over all of it."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from pyanalyze.analysis.hardware import MAX_STATE_NS
from pyanalyze.results.interference import ContextState
from pyanalyze.results.model import Fraction, Number, Result, Text, rounded
from pyanalyze.results.report import Tool
from pyanalyze.results.residency import ContextSwitches
from pyanalyze.results.switch_cost import SwitchOverhead, co_run_overhead, switch_overhead
from pyanalyze.tables.cut_exports import COUNTER_SAMPLES_CUT, CUT_RECORDS
from pyanalyze.text import format as fmt
from pyanalyze.text.format import ratio
from pyanalyze.text.visible import json_text, program, told_apart
from pyanalyze.vocabulary import ENOUGH_FOR_TAIL, ENOUGH_INTERVALS, Basis, Condition, Mode, is_slowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Attention",
    "CapturePart",
    "DeviceRow",
    "Distribution",
    "DuplicatePart",
    "FailurePart",
    "FleetSummary",
    "GroupPart",
    "agreement_text",
    "device_rows",
    "fleet_schema",
    "held_words",
    "jobs_of",
    "reasons",
    "summarise",
]

#: Context switches whose records show that they cost more than this part of the time are worth a look.
HIGH_OVERHEAD = 0.05
#: A slowdown below it is nobody's outlier, however equal all others are.
LEAST_OUTLIER = 1.5
#: Fewer slowdowns than this have no distribution to stand out of; above it, this many (scaled) median deviations do.
FEWEST_FOR_OUTLIERS, _DEVIATIONS = 8, 3.0

#: Of fewer devices the page and the line tell no median: half of the sum of two is the slowdown of none.
FEWEST_FOR_MEDIAN: Final = ENOUGH_INTERVALS
#: Kinds of slowdown that a user of a tenant notices.
_Kind = Literal["elapsed", "latency"]
_KINDS: Final[tuple[_Kind, _Kind]] = ("elapsed", "latency")

Why = Literal["configured", "slowdown", "switches", "undetermined", "data-loss"]


class DeviceRow(Result):
    """One GPU or MIG instance in one group of captures."""

    group: Text = Field(description="The captures that were analysed together.")
    job: Text = Field(description="Groups of one session, or of one host at overlapping times, have one job.")
    host: Text | None = Field(description="Digest of the host's name; null: the export does not say, or several.")
    captures: int = Field(ge=1, description="Captures in the group.")
    start_utc_ns: Text | None = Field(
        description="First activity on the device, UTC epoch nanoseconds as a decimal string; null: not known."
    )
    end_utc_ns: Text | None = Field(description="Last activity on the device, as start_utc_ns.")
    device_id: int = Field(description="Id inside the group's report.")
    uuid: Text | None = Field(description="UUID of the GPU or MIG instance.")
    gpu_uuid: Text | None = Field(description="UUID of the board.")
    name: Text | None = Field(description="Product name. Hostile text.")
    mode: Mode = Field(description="Observed sharing mode.")
    confidence: Fraction = Field(
        description="Calibrated probability of it: how often such verdicts were right on simulated recordings."
    )
    basis: Basis = Field(description="How it is known.")
    condition: Condition | None = Field(description="Other processes that nothing excludes; null: none.")
    configured: Mode | None = Field(description="Configured mode; null: not known.")
    agrees: bool | None = Field(
        description="The configured mode matches the observed one; null: one of them is not known."
    )
    tenants: int = Field(description="Number of tenants.")
    switches: int | None = Field(description="Context switches; null: no switch records.")
    switch_overhead_fraction: Number = Field(
        description="Their cost over the window as recorded: of switch gaps, or of full switches; at least so much."
    )
    switch_overhead_high: Number = Field(
        description="With saving and restoring, upper end, inferred from kernels; of full switches as recorded. Null: "
        "not known."
    )
    co_run_switch_overhead_fraction: Number = Field(
        description="As switch_overhead_fraction, over the time in which all tenants co-ran; null: no such time, or "
        "not known."
    )
    co_run_switch_overhead_high: Number = Field(description="As switch_overhead_high, over that time; null: the same.")
    worst_slowdown: Number = Field(description="Of its tenants: the larger of elapsed and latency; 1 is none.")
    worst_slowdown_kind: Literal["elapsed", "latency"] | None = Field(description="Which of the two it is.")
    worst_slowdown_low: Number = Field(description="Lower end of its interval or bounds.")
    worst_slowdown_high: Number = Field(description="Upper end of its interval or bounds.")
    worst_slowdown_n: int | None = Field(description="Units of work compared.")
    worst_slowdown_basis: Basis | None = Field(description="How it is known.")
    worst_slowdown_tenant: Text | None = Field(
        description="The slowest tenant, with its pid where several have its name. Hostile text."
    )
    other_slowdown: Number = Field(
        description="Of its tenants: the largest of the other kind, which may be of another tenant; null: not known."
    )
    other_slowdown_low: Number = Field(description="Lower end of its interval or bounds.")
    other_slowdown_high: Number = Field(description="Upper end of its interval or bounds.")
    other_slowdown_n: int | None = Field(description="Units of work compared.")
    other_slowdown_basis: Basis | None = Field(description="How it is known.")
    other_slowdown_tenant: Text | None = Field(description="Whose it is, as worst_slowdown_tenant. Hostile text.")
    slowdown_missing: Text | None = Field(
        description="Why no slowdown is known; null: one is, or its report says nothing. Hostile text."
    )
    sm_active: Number = Field(description="Mean fraction of SMs with work; modelled.")
    memory_peak_fraction: Number = Field(description="Peak of device memory over all of it; sampled.")
    lost_records: int = Field(ge=0, description="Data-quality counters that mean lost records of the group.")
    export_cut: bool = Field(description="Exports of the group lack records that nsys collected.")
    cuda_events_held: Fraction | None = Field(
        description="Fraction of the CUDA events that nsys collected which the exports of the group hold. Null: nsys "
        "does not say that it collected more."
    )
    switch_records_held: Fraction | None = Field(description="The same of context-switch records.")
    counter_samples_held: Fraction | None = Field(
        description="The same of samples of hardware counters; 0: none of those that nsys collected was exported."
    )


class CapturePart(Result):
    """A capture that was analysed."""

    path: Text = Field(description="Where it was.")
    sha256: Text = Field(description="Of its content; with options and version the name of the result.")


class GroupPart(Result):
    """Captures that were analysed together."""

    name: Text = Field(description="Name of its folder.")
    job: Text = Field(description="As of its devices.")
    report: Text = Field(description="The report as JSON, from here.")
    page: Text = Field(description="The report as an HTML page, from here.")
    captures: list[CapturePart] = Field(description="In the order of their start; the first one's clock is its clock.")
    shared_gpus: list[Text] = Field(description="UUIDs that made them one group; empty for one capture.")
    devices: list[DeviceRow] = Field(description="One entry per GPU with activity.")


class DuplicatePart(Result):
    """A capture that was left out."""

    path: Text = Field(description="Where it is.")
    of: Text = Field(description="The capture that was analysed instead.")
    why: Text = Field(description="Why they are one recording.")


class FailurePart(Result):
    """A capture without a result, or a pattern that names none."""

    path: Text = Field(description="The capture or pattern.")
    error: Text = Field(description="Kind of the error.")
    message: Text = Field(description="What failed, why, and what to do.")


class Attention(Result):
    """A device that somebody should look at."""

    group: Text = Field(description="The group.")
    device_id: int = Field(description="The device in its report.")
    why: list[Why] = Field(description="Gravest first.")
    detail: Text = Field(description="The same in words.")


class Distribution(Result):
    """Worst slowdowns of devices with more than one tenant."""

    n: int = Field(ge=0, description="Devices with a known slowdown.")
    unknown: int = Field(ge=0, description="Devices with several tenants and no known slowdown.")
    min: Number = Field(description="The smallest.")
    median: Number = Field(description="p50, also of a few; the page tells it of 5 and more.")
    p90: Number = Field(description=f"p90; null: of fewer than {ENOUGH_FOR_TAIL}.")
    p99: Number = Field(description=f"p99; null: of fewer than {ENOUGH_FOR_TAIL}.")
    max: Number = Field(description="The largest.")
    outlier_above: Number = Field(
        description=f"Outliers are above it; {LEAST_OUTLIER} of fewer than {FEWEST_FOR_OUTLIERS} known slowdowns."
    )


class FleetSummary(Result):
    """What a run over many captures came to."""

    schema_id: Literal["pyanalyze.fleet/1"] = Field(
        default="pyanalyze.fleet/1", alias="schema", description="Name and version of this contract."
    )
    tool: Tool = Field(description="What wrote it.")
    line: Text = Field(description="The answer in one line.")
    hosts: int = Field(ge=0, description="Hosts, by the hash of their names.")
    gpus: int = Field(ge=0, description="Boards with activity, by UUID.")
    modes: dict[Text, int] = Field(description="Observed mode: devices, most first.")
    agreement: dict[Literal["agree", "disagree", "unknown"], int] = Field(
        description="Devices whose configured mode matches the observed one, differs, or cannot be compared."
    )
    slowdown: Distribution = Field(description="Slowdown of the slowest tenant of each device.")
    attention: list[Attention] = Field(description="Devices that need attention, most serious first.")
    groups: list[GroupPart] = Field(description="By name.")
    duplicates: list[DuplicatePart] = Field(
        description="Captures left out because another export of the recording is analysed."
    )
    failures: list[FailurePart] = Field(description="Captures without a result.")

    def rows(self) -> list[DeviceRow]:
        """Every device of every group."""
        return [row for group in self.groups for row in group.devices]

    def to_json(self) -> str:
        """The JSON text, ending in a newline. Equal fleets give equal bytes."""
        plain = rounded(self.model_dump(mode="json", by_alias=True))
        return json_text(plain) + "\n"


def fleet_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `fleet.json`.

    Examples
    --------
    >>> fleet_schema()["properties"]["schema"]["const"]
    'pyanalyze.fleet/1'
    """
    schema = FleetSummary.model_json_schema(by_alias=True, mode="serialization")
    schema["required"].insert(0, "schema")  # it has a default, and is what a reader asks for first
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "pyanalyze.fleet/1", **schema}


def device_rows(group: str, report: Mapping[str, Any], host: str | None) -> list[DeviceRow]:
    """One row for each device of a report, given as plain data; of which job the group is comes later."""
    lost = sum(row["count"] for row in report["quality"] if row["severity"] in ("data-loss", "error"))
    every: dict[str, Any] = {
        "group": group,
        "job": group,
        "host": host,
        "captures": max(1, len(report["captures"])),
        "lost_records": lost,
        "export_cut": any(row["name"] in CUT_RECORDS and row["count"] for row in report["quality"])
        or any(capture["counters_cover_ns"] is not None for capture in report["captures"]),
        "cuda_events_held": _held(report["captures"], "cuda_events"),
        "switch_records_held": _held(report["captures"], "switch_records"),
        "counter_samples_held": _samples_held(report),
    }
    blank = dict.fromkeys(name for name in DeviceRow.model_fields if name not in every)
    origin = report["clock"]["origin_utc_ns"]
    rows = []
    for device in report["devices"]:
        sharing, switches = device["sharing"], device["context_switches"] or {}
        memory, window = device["memory"] or {}, device["window"]
        row = {**blank, **every}
        row.update({key: device[key] for key in ("device_id", "uuid", "gpu_uuid", "name")})
        row.update({key: sharing[key] for key in ("mode", "confidence", "basis", "condition", "configured", "agrees")})
        if window is not None and origin is not None:
            row["start_utc_ns"] = str(int(origin) + window["start_ns"])
            row["end_utc_ns"] = str(int(origin) + window["end_ns"])
        row.update(
            tenants=_counted(device["tenants"]),
            switches=switches.get("count"),
            **_overhead(device),
            sm_active=((device["occupancy"] or {}).get("sm_active") or {}).get("value"),
        )
        if memory.get("total_bytes") and memory.get("peak_bytes") is not None:
            row["memory_peak_fraction"] = memory["peak_bytes"] / memory["total_bytes"]
        row.update(_worst(device["tenants"]))
        if row["worst_slowdown"] is None:
            row["slowdown_missing"] = next(
                (gap["why"] for gap in sharing["missing"] if gap["what"] == "slowdown"), None
            )
        rows.append(DeviceRow(**row))
    return rows


def _held(captures: Iterable[Mapping[str, Any]], kind: str) -> float | None:
    """Which part of the records that nsys collected the exports that lack some hold."""
    cut = [capture[kind] for capture in captures if capture[kind] is not None]
    # As `fleet.json` has it: read again, it is the same.
    return rounded(sum(one["held"] for one in cut) / sum(one["collected"] for one in cut)) if cut else None


def _samples_held(report: Mapping[str, Any]) -> float | None:
    """The same of counter samples, of which an export may hold none at all: then only their counter tells of them."""
    held = _held(report["captures"], "counter_samples")
    lacking = any(row["name"] == COUNTER_SAMPLES_CUT and row["count"] for row in report["quality"])
    return 0.0 if held is None and lacking else held


def held_words(row: DeviceRow) -> str:
    """Say which records nsys collected and the exports lack; empty: none are known to be missing.

    Examples
    --------
    >>> held_words(DeviceRow.model_construct(
    ...     export_cut=True, cuda_events_held=0.18, switch_records_held=None, counter_samples_held=0.0
    ... ))
    'the export holds 18 % of CUDA events; no counter samples'
    """
    if not row.export_cut:
        return ""
    kinds = (
        ("CUDA events", row.cuda_events_held),
        ("switch records", row.switch_records_held),
        ("counter samples", row.counter_samples_held),
    )
    some = [f"{fmt.percent(held, 0)} of {what}" for what, held in kinds if held]
    none = [f"no {what}" for what, held in kinds if held == 0]
    if not some and not none:
        return "the export is a part of its recording (inferred)"
    return f"the export holds {'; '.join(filter(None, (', '.join(some), ', '.join(none))))}"


def _overhead(device: Mapping[str, Any]) -> dict[str, Any]:
    """What context switches cost as recorded and at most, of the window and of the time in which all co-ran."""
    if device["context_switches"] is None:
        return {}
    state = (device["interference"] or {}).get("context_state")
    switches = ContextSwitches.model_validate(device["context_switches"])
    known = None if state is None else ContextState.model_validate(state)
    window_ns, co_run_ns = (
        None if span is None else span["end_ns"] - span["start_ns"]
        for span in (device["window"], device["all_at_work"])
    )
    found = {"switch_overhead_fraction": switches.overhead_fraction}
    if (of_window := switch_overhead(switches, known, window_ns, MAX_STATE_NS)) is not None:
        found = {"switch_overhead_fraction": of_window.recorded, "switch_overhead_high": _inferred_most(of_window)}
    if (of_co_run := co_run_overhead(switches, known, co_run_ns, MAX_STATE_NS)) is not None:
        found |= {
            "co_run_switch_overhead_fraction": of_co_run.recorded,
            "co_run_switch_overhead_high": _inferred_most(of_co_run),
        }
    return {key: rounded(share) for key, share in found.items()}


def _inferred_most(cost: SwitchOverhead) -> float | None:
    """The upper end, where kernels show how long saving and restoring take; else nothing of this device says it."""
    return None if cost.likely is None else cost.most


def _counted(tenants: Sequence[Mapping[str, Any]]) -> int:
    """An MPS server is nobody beside its clients."""
    serving = {tenant["served_by"] for tenant in tenants}
    return sum(tenant["tenant_id"] not in serving for tenant in tenants)


def _worst(tenants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The largest of elapsed and latency slowdowns: either one is what a user of that tenant noticed.

    Beside it the largest of the other kind, of whichever tenant: one may wait longer, and the other take longer.
    """
    kind = _worst_kind(tenants)
    if kind is None:
        return {}
    worst = _largest(tenants, kind, _KINDS)
    if not worst:
        return {}
    (another,) = set(_KINDS) - {kind}
    other = _largest(tenants, another, (another,))
    return {
        **{f"worst_slowdown{key}": value for key, value in worst.items()},
        "worst_slowdown_kind": kind,
        **{f"other_slowdown{key}": value for key, value in other.items()},
    }


def _worst_kind(tenants: Sequence[Mapping[str, Any]]) -> _Kind | None:
    """Which kind the largest slowdown is of; one that is shown before one that may be chance, as in the report."""
    found = [(tenant["slowdown"][kind], kind) for tenant in tenants for kind in _KINDS if tenant["slowdown"][kind]]
    return max(found, key=lambda one: _rank(one[0]))[1] if found else None


def _largest(tenants: Sequence[Mapping[str, Any]], kind: _Kind, known_by: Sequence[str]) -> dict[str, Any]:
    """The largest slowdown of a kind, by the end of its key, with its tenant; empty: not known.

    Of a tenant without any kind of `known_by` it may be larger: then what is known is a lower bound, and says nothing
    if it is no slowdown.
    """
    found = [(one, tenant) for tenant in tenants if (one := tenant["slowdown"][kind]) is not None]
    if not found:
        return {}
    estimate, tenant = max(found, key=lambda one: _rank(one[0]))
    least = any(t["busy_ns"] is not None and not any(t["slowdown"][one] for one in known_by) for t in tenants)
    if least and not _shown(estimate):
        return {}
    labels = told_apart((t["tenant_id"], program(t["name"]) or "unnamed", t["pid"], t["host_pid"]) for t in tenants)
    return {
        "": estimate["value"],
        **{f"_{key}": estimate[key] for key in ("low", "high", "n", "basis")},
        **({"_high": None} if least else {}),
        "_tenant": labels[tenant["tenant_id"]],
    }


def _rank(estimate: Mapping[str, Any]) -> tuple[bool, float]:
    return _shown(estimate), estimate["value"]


def _shown(estimate: Mapping[str, Any]) -> bool:
    return is_slowed(estimate["value"], estimate["low"], estimate["basis"])


def jobs_of(groups: Sequence[tuple[str, frozenset[str], frozenset[str], tuple[int, int] | None]]) -> dict[str, str]:
    """Which groups are one job: of one profiling session, or on one host at overlapping times.

    Parameters
    ----------
    groups
        Name, hosts, profiling sessions, and first and last record in UTC ns (None: cannot be placed).

    Returns
    -------
    dict
        Name of a group to that of its job: the name of the job's first group.

    Examples
    --------
    >>> hosts, none = frozenset({"h"}), frozenset()
    >>> jobs_of([("a", hosts, none, (0, 10)), ("b", hosts, none, (10, 20)), ("c", hosts, none, (21, 30))])
    {'a': 'a', 'b': 'a', 'c': 'c'}
    """
    parent = {name: name for name, *_ in groups}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def join(one: str, other: str) -> None:
        first, second = sorted((root(one), root(other)))
        parent[second] = first

    by_session: dict[str, str] = {}
    by_host: dict[str, list[tuple[int, int, str]]] = {}
    for name, hosts, sessions, span in groups:
        for session in sessions:
            join(by_session.setdefault(session, name), name)
        if span is None:
            continue
        start, end = span
        for host in hosts:
            by_host.setdefault(host, []).append((start, end, name))
    for spans in by_host.values():
        spans.sort()
        last, reach = spans[0][2], spans[0][1]
        for start, end, name in spans[1:]:
            if start <= reach:
                join(last, name)
            last, reach = name, max(reach, end)
    return {name: root(name) for name in parent}


def summarise(
    version: str,
    groups: list[GroupPart],
    duplicates: list[DuplicatePart],
    failures: list[FailurePart],
) -> FleetSummary:
    """What is concluded over all groups."""
    rows = [row for group in groups for row in group.devices]
    agreement = Counter({True: "agree", False: "disagree", None: "unknown"}[row.agrees] for row in rows)
    slowdown = _distribution(rows)
    modes: Counter[str] = Counter(row.mode for row in rows)
    hosts = len({row.host for row in rows if row.host is not None})
    gpus = len({row.gpu_uuid or row.uuid or f"{row.group} {row.device_id}" for row in rows})
    attention = _attention(rows, slowdown)
    counted = dict(sorted(modes.items(), key=lambda pair: (-pair[1], pair[0])))
    known = agreement["agree"] + agreement["disagree"]
    captures = sum(len(group.captures) for group in groups)
    where = f" on {_many(hosts, 'host')}" if hosts else ""
    # A GPU that several groups recorded counts in each: modes then add up to these, not to the GPUs.
    times = "" if len(rows) == gpus else f", {_many(len(rows), 'recording')} of a GPU"
    parts = [
        f"{_many(gpus, 'GPU')}{where} in {_many(captures, 'capture')}{times}: "
        + (", ".join(f"{mode} {n}" for mode, n in counted.items()) or "no activity on any GPU"),
        agreement_text(agreement["disagree"], known, len(rows)) if known else "configured modes not known",
        _slowdown_text(slowdown) if slowdown.n else "slowdown not known",
        f"{_many(len(attention), 'device')} need{'s' if len(attention) == 1 else ''} attention",
    ]
    if failures:
        parts.append(f"{_many(len(failures), 'capture')} without a result")
    return FleetSummary(
        tool=Tool(version=version),
        line="; ".join(parts) + ".",
        hosts=hosts,
        gpus=gpus,
        modes=counted,
        agreement={"agree": agreement["agree"], "disagree": agreement["disagree"], "unknown": agreement["unknown"]},
        slowdown=slowdown,
        attention=attention,
        groups=groups,
        duplicates=duplicates,
        failures=failures,
    )


def agreement_text(mismatches: int, known: int, devices: int) -> str:
    """Compare what was configured with what was observed, of devices whose configuration is known.

    Examples
    --------
    >>> agreement_text(0, 11, 11), agreement_text(1, 11, 11)
    ('all 11 match their configuration', '1 of 11 does not match its configuration')
    >>> agreement_text(0, 2, 7), agreement_text(1, 2, 7)
    ('2 of 7 have a known configuration: both match', '2 of 7 have a known configuration: 1 does not match')
    """
    if known < devices:
        has = "has" if known == 1 else "have"
        match = "it matches" if known == 1 else "both match" if known == 2 else f"all {known} match"
        if mismatches:
            does = "does" if mismatches == 1 else "do"
            match = f"{'it' if known == 1 else mismatches} {does} not match"
        return f"{known} of {devices} {has} a known configuration: {match}"
    if not mismatches:
        return "it matches its configuration" if known == 1 else f"all {known} match their configuration"
    verb, whose = ("does", "its") if mismatches == 1 else ("do", "their")
    return f"{mismatches} of {known} {verb} not match {whose} configuration"


def _slowdown_text(slowdown: Distribution) -> str:
    """The largest slowdowns of devices; of a few, which have no percentiles, from the smallest to the largest."""
    shared = slowdown.n + slowdown.unknown
    of = f"largest slowdown of {slowdown.n} of {_many(shared, 'shared device')}"
    if slowdown.n < FEWEST_FOR_MEDIAN:
        low, high = ratio(slowdown.min), ratio(slowdown.max)
        return f"{of}: {low if low == high else f'{low} to {high}'}"
    return f"{of}: median {ratio(slowdown.median)}, maximum {ratio(slowdown.max)}"


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _distribution(rows: Iterable[DeviceRow]) -> Distribution:
    shared = [row for row in rows if row.tenants > 1]
    known = sorted(row.worst_slowdown for row in shared if row.worst_slowdown is not None)
    above = LEAST_OUTLIER
    if len(known) >= FEWEST_FOR_OUTLIERS:
        middle = statistics.median(known)
        # 1.4826 median deviations are one standard deviation where values are normal.
        spread = 1.4826 * statistics.median(abs(value - middle) for value in known)
        above = max(LEAST_OUTLIER, middle + _DEVIATIONS * spread)
    return Distribution(
        n=len(known),
        unknown=len(shared) - len(known),
        min=known[0] if known else None,
        median=statistics.median(known) if known else None,
        # The high percentiles of a few are their largest.
        p90=quantile(known, 0.9) if len(known) >= ENOUGH_FOR_TAIL else None,
        p99=quantile(known, 0.99) if len(known) >= ENOUGH_FOR_TAIL else None,
        max=known[-1] if known else None,
        outlier_above=above,
    )


def quantile(ordered: Sequence[float], part: float) -> float | None:
    """The smallest value that so large a part of them does not exceed; None of nothing.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.9)
    (2.0, 4.0)
    """
    if not ordered:
        return None
    rank = -(-len(ordered) * round(part * 1000) // 1000)
    return ordered[max(0, rank - 1)]


def reasons(row: DeviceRow, slowdown: Distribution) -> dict[Why, str]:
    """Why somebody should look at a device, each reason in words; empty: nothing stands out."""
    why: dict[Why, str] = {}
    if row.agrees is False:
        why["configured"] = f"configured {row.configured}, {row.basis} {row.mode}"
    # What may be no more than chance or a bound is no outlier.
    low = row.worst_slowdown if row.worst_slowdown_low is None else row.worst_slowdown_low
    if low is not None and slowdown.outlier_above is not None and low > slowdown.outlier_above:
        middle = "" if slowdown.n < FEWEST_FOR_OUTLIERS else f" (fleet median {ratio(slowdown.median)})"
        kind = "" if row.worst_slowdown_kind is None else f"{row.worst_slowdown_kind} "
        why["slowdown"] = f"{kind}slowdown of {row.worst_slowdown_tenant}: {ratio(row.worst_slowdown)}{middle}"
    # As `check`: of a window in which one tenant was idle for long a small share says nothing.
    co_run = row.co_run_switch_overhead_fraction
    cost = row.switch_overhead_fraction if co_run is None else co_run
    if cost is not None and cost > HIGH_OVERHEAD:
        of = "window" if co_run is None else "time in which all tenants co-ran"
        why["switches"] = f"context switches cost {fmt.percent(cost)} of the {of}"
    if row.mode == Mode.UNDETERMINED and row.tenants:
        why["undetermined"] = "sharing mode not known"
    if row.lost_records:
        why["data-loss"] = f"records lost ({row.lost_records})"
    return why


def _attention(rows: Iterable[DeviceRow], slowdown: Distribution) -> list[Attention]:
    found: list[tuple[tuple[int, float, str, int], Attention]] = []
    order: tuple[Why, ...] = ("configured", "slowdown", "switches", "undetermined", "data-loss")
    for row in rows:
        why = reasons(row, slowdown)
        if why:
            one = Attention(group=row.group, device_id=row.device_id, why=list(why), detail="; ".join(why.values()))
            grave = min(order.index(key) for key in why)
            found.append(((grave, -(row.worst_slowdown or 0.0), row.group, row.device_id), one))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]
