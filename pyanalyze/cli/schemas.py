"""What does the JSON of every verb look like? One JSON Schema each, made from what writes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyanalyze.results.report import json_schema
from pyanalyze.vocabulary import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyanalyze.results.report import Report

__all__ = ["SHOWN", "VERBS", "Shown", "part_of", "schema_of"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Keys of a tenant that say who it is and how long it was busy.
_WHO = frozenset(
    {
        "tenant_id",
        "capture",
        "pid",
        "host_pid",
        "name",
        "container",
        "pod",
        "group_of",
        "contexts",
        "served_by",
        "busy_ns",
    }
)
#: Keys of every device.
_WHERE = frozenset({"device_id", "name", "uuid"})


@dataclass(frozen=True)
class Shown:
    """What a command shows of a report.

    Attributes
    ----------
    device, tenant
        Keys of a device, and of its tenants.
    parts
        Parts of the answer that have to be computed for them.
    """

    device: frozenset[str]
    tenant: frozenset[str]
    parts: frozenset[Part]


#: Commands that show parts of the report.
SHOWN: Mapping[str, Shown] = {
    "classify": Shown(
        _WHERE | {"gpu_uuid", "sharing", "relations", "segments"}, frozenset(), frozenset({Part.SEGMENTS})
    ),
    "residency": Shown(
        _WHERE
        | {"context_switches", "residency_summary", "tenants", "window", "all_at_work", "all_at_work_launched_ns"}
        | {"all_at_work_jain", "in_flight_ns"},
        _WHO
        | {"gpu_time_share", "gpu_time_basis", "all_at_work_share", "in_mps_group", "resident_ns", "attributed_ns"}
        | {"slices", "median_slice_ns"},
        frozenset({Part.RESIDENCY}),
    ),
    "occupancy": Shown(
        _WHERE | {"gpu_metrics", "occupancy", "tenants", "window"},
        _WHO | {"sm_share", "occupancy"},
        frozenset({Part.OCCUPANCY}),
    ),
    "interference": Shown(
        _WHERE
        | {"associations", "host", "interference", "sharing_is_the_cause", "tenants", "window", "all_at_work"}
        | {"all_at_work_launched_ns"},
        _WHO
        | {
            "slowdown",
            "causes",
            "baseline",
            "latency_percentiles",
            "units",
            "throughput",
            "not_compared",
            "slowdown_notes",
            "baselines_not_used",
        },
        frozenset({Part.INTERFERENCE}),
    ),
    "streams": Shown(
        _WHERE | {"tenants", "window"}, _WHO | {"streams", "copies"}, frozenset({Part.STREAMS, Part.COPIES})
    ),
    "advise": Shown(_WHERE | {"advice", "options", "replay_check"}, frozenset(), frozenset({Part.ADVICE})),
}
#: The arrays of --detail are there only where they were asked for.
_DETAIL = frozenset({"residency", "sm_warps"})


def part_of(report: Report, verb: str) -> dict[str, Any]:
    """The part of a report that a verb shows, with what could not be known about it.

    Parameters
    ----------
    report
        The answer.
    verb
        A key of :data:`SHOWN`.

    Examples
    --------
    >>> import pyanalyze
    >>> part = part_of(pyanalyze.load(capture).report(), "residency")
    >>> part["schema"], part["devices"][0]["context_switches"]["count"]
    ('pyanalyze.residency/1', 365)
    """
    whole = report.to_dict()
    keys = SHOWN[verb].device | _DETAIL
    devices = []
    for device in whole["devices"]:
        shown = {key: value for key, value in device.items() if key in keys}
        if "tenants" in shown:
            shown["tenants"] = [
                {key: value for key, value in tenant.items() if key in SHOWN[verb].tenant}
                for tenant in shown["tenants"]
            ]
        if "sharing" not in shown:
            # A null without its reason would read as nothing there.
            shown["missing"] = device["sharing"]["missing"]
        devices.append(shown)
    top = {key: whole[key] for key in ("clock", "grouped_by")}
    return {"schema": f"pyanalyze.{verb}/1", **top, "devices": devices}


def schema_of(verb: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a verb's ``-f json``.

    Parameters
    ----------
    verb
        A key of :data:`VERBS`.

    Examples
    --------
    >>> schema_of("check")["properties"]["schema"]["const"]
    'pyanalyze.check/1'
    """
    return VERBS[verb]()


def _named(verb: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object whose keys are all there, the first of them its own name."""
    name = f"pyanalyze.{verb}/1"
    properties = {"schema": {"const": name, "description": "Name and version of this contract."}, **properties}
    return {"$schema": _DIALECT, "$id": name, **_object(properties), **more}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _part(verb: str) -> dict[str, Any]:
    whole = json_schema()
    definitions = whole["$defs"]
    device = definitions["Device"]
    shown = {key: value for key, value in device["properties"].items() if key in SHOWN[verb].device | _DETAIL}
    if "tenants" in shown:
        known = definitions["Tenant"]["properties"]
        tenant = _object({key: value for key, value in known.items() if key in SHOWN[verb].tenant})
        shown["tenants"] = {**shown["tenants"], "items": tenant}
    if "sharing" not in shown:
        shown["missing"] = definitions["Sharing"]["properties"]["missing"]
    entry = {**_object(shown), "required": [key for key in shown if key not in _DETAIL]}
    top = {key: whole["properties"][key] for key in ("clock", "grouped_by")}
    properties = {**top, "devices": _list(entry)}
    return _named(verb, properties, **{"$defs": _used(properties, definitions)})


def _used(shape: Any, definitions: dict[str, Any], found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Definitions that a shape refers to, directly or through others."""
    found = {} if found is None else found
    if isinstance(shape, dict):
        name = str(shape.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions and name not in found:
            found[name] = definitions[name]
            _used(definitions[name], definitions, found)
        for value in shape.values():
            _used(value, definitions, found)
    elif isinstance(shape, list):
        for value in shape:
            _used(value, definitions, found)
    return found


def _dataclass(kind: type) -> dict[str, Any]:
    """A dataclass that is written with all of its fields."""
    from pydantic import TypeAdapter

    described: dict[str, Any] = TypeAdapter(kind).json_schema(mode="serialization")
    described.pop("description", None)
    return {**described, "required": list(described["properties"]), "additionalProperties": False}


def _check() -> dict[str, Any]:
    from pyanalyze.results.check import Outcome

    outcome = _dataclass(Outcome)
    status = outcome["properties"]["status"]
    return _named("check", {"status": status, "exit_code": {"enum": [0, 1, 4]}, "outcomes": _list(outcome)})


def _info() -> dict[str, Any]:
    from pyanalyze.core import _core
    from pyanalyze.tables.memory import Account

    tables = {str(table["name"]): table for table in _core.table_declarations()}
    names = {"captures": "capture", "configured": "configured"}
    names |= {name: name for name in ("devices", "processes", "sources", "quality")}
    parts = {key: _list(_row(tables[name])) for key, name in names.items()}
    counted = {"source": {"type": "string"}, "format": {"type": "string"}}
    counted |= {name: {"type": "integer"} for name in ("rows", "metrics", "unavailable")}
    return _named("info", {**parts, "samples": _list(_object(counted)), "memory": _dataclass(Account)})


def _kernels() -> dict[str, Any]:
    from pyanalyze.core import _core

    tables = {str(table["name"]): table for table in _core.table_declarations()}
    path = {"type": "string", "description": "An export that was read."}
    rows = {**_list(_row(tables["kernel_summary"])), "type": ["array", "null"]}
    rows["description"] = "Longest in total first; null: no kernels were recorded."
    parts = {"captures": _list(path), "kernels": rows}
    parts["missing"] = _list(json_schema()["$defs"]["Missing"])
    return _named("kernels", {**parts, "quality": _list(_row(tables["quality"]))})


def _row(table: dict[str, Any]) -> dict[str, Any]:
    """A row of one of the tables, by its declaration."""
    kinds = {"Boolean": "boolean", "Float64": "number", "Utf8": "string", "Dictionary<UInt32, Utf8>": "string"}
    return _object(
        {
            column["name"]: {
                # What is no word, number or truth value is a whole number, of whichever width.
                "type": [kinds.get(column["type"], "integer"), *(["null"] if column["null"] else [])],
                "description": column["doc"],
            }
            for column in table["columns"]
        }
    )


def _doctor() -> dict[str, Any]:
    from pyanalyze.record.doctor import Finding

    finding = _dataclass(Finding)
    finding["properties"]["state"] = {"enum": ["ok", "limited", "blocked", "unknown"]}
    return _named("doctor", {"findings": _list(finding)})


def _now() -> dict[str, Any]:
    word, integer = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
    # Which metrics there are depends on the GPU and on the driver; a metric that could not be read is in `errors`.
    metrics = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}
    anything = {"type": ["object", "null"]}
    errors = {"type": "object", "additionalProperties": {"type": "string"}}
    setup = _object({"mode": word, "why": {"type": "string"}, "basis": {"const": "configured"}})
    process = _object(
        {
            "pid": {"type": "integer"},
            "name": word,
            "type": word,
            "gpu_uuid": word,
            "errors": errors,
            "proc": anything,
            "pod": {"type": "object"},
            "caps": {"type": "object"},
            "basis": {"const": "sampled"},
            "sampled": metrics,
        }
    )
    entry = {"index": integer, "uuid": word, "name": word, "errors": errors}
    instance = _object({**entry, "basis": {"const": "configured"}, "configured": metrics})
    gpu = {**entry, "configured": metrics, "sampled": metrics}
    gpu |= {"instances": _list(instance), "processes": _list(process), "setup": setup}
    properties = {
        "time_utc_ns": {"type": "string", "pattern": "^[0-9]+$"},
        "driver_version": word,
        "sees_host_pids": {"type": ["boolean", "null"]},
        "mps_processes": {"type": ["array", "null"]},
        "mps_control": anything,
        "gpus": _list(_object(gpu)),
    }
    return _named("now", properties)


def _explain() -> dict[str, Any]:
    from pyanalyze.results.explain import Explanation

    described = Explanation.model_json_schema(mode="serialization")
    clock = json_schema()
    properties = {"clock": clock["properties"]["clock"], **described["properties"]}
    definitions = {**described["$defs"], **_used(properties["clock"], clock["$defs"])}
    return _named("explain", properties, **{"$defs": definitions})


def _compare() -> dict[str, Any]:
    from pyanalyze.results.comparison import comparison_schema

    return comparison_schema()


def _fleet() -> dict[str, Any]:
    from pyanalyze.fleet.summary import fleet_schema

    return fleet_schema()


#: Every verb that writes JSON, and what makes the schema of it.
VERBS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "report": json_schema,
    **{verb: partial(_part, verb) for verb in SHOWN},
    "explain": _explain,
    "compare": _compare,
    "check": _check,
    "info": _info,
    "kernels": _kernels,
    "now": _now,
    "doctor": _doctor,
    "fleet": _fleet,
}
