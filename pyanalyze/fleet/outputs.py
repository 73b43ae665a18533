"""What programs read of a fleet: tidy tables as CSV and Parquet, alerts as OpenMetrics, lines for `check`."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyanalyze.text.escape import csv_cell, visible
from pyanalyze.text.visible import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from pyanalyze.fleet.plan import CaptureProbe
    from pyanalyze.fleet.summary import DeviceRow, FleetSummary

#: How many mantissa bits a double keeps is no concern of a count; what is counted is Int64, what is measured Float64.
_TEXT, _WHOLE, _REAL, _TRUTH = "String", "Int64", "Float64", "Boolean"
_KIND = ("elapsed", "latency", "resident")
_CAUSES = ("launch", "queue", "not_resident", "switch", "execution", "others", "unexplained")

#: Columns of `tables/devices` and of `fleet.csv`, in order; :class:`DeviceRow` says what they mean.
DEVICE_COLUMNS: dict[str, str] = {
    "group": _TEXT, "job": _TEXT, "host": _TEXT, "captures": _WHOLE, "start_utc_ns": _WHOLE, "end_utc_ns": _WHOLE,
    "device_id": _WHOLE, "uuid": _TEXT, "gpu_uuid": _TEXT, "name": _TEXT, "mode": _TEXT, "confidence": _REAL,
    "basis": _TEXT, "condition": _TEXT, "configured": _TEXT, "agrees": _TRUTH, "tenants": _WHOLE,
    "switches": _WHOLE, "switch_overhead_fraction": _REAL, "switch_overhead_high": _REAL,
    "co_run_switch_overhead_fraction": _REAL, "co_run_switch_overhead_high": _REAL, "worst_slowdown": _REAL,
    "worst_slowdown_kind": _TEXT, "worst_slowdown_low": _REAL,
    "worst_slowdown_high": _REAL, "worst_slowdown_n": _WHOLE, "worst_slowdown_basis": _TEXT,
    "worst_slowdown_tenant": _TEXT, "other_slowdown": _REAL, "other_slowdown_low": _REAL,
    "other_slowdown_high": _REAL, "other_slowdown_n": _WHOLE, "other_slowdown_basis": _TEXT,
    "other_slowdown_tenant": _TEXT, "slowdown_missing": _TEXT, "sm_active": _REAL,
    "memory_peak_fraction": _REAL, "lost_records": _WHOLE,
    "export_cut": _TRUTH, "cuda_events_held": _REAL, "switch_records_held": _REAL, "counter_samples_held": _REAL,
}  # fmt: skip

#: Every table of the dataset with its columns. Types never depend on the values.
TABLES: dict[str, dict[str, str]] = {
    "devices": DEVICE_COLUMNS,
    "captures": {
        "group": _TEXT, "host": _TEXT, "path": _TEXT, "sha256": _TEXT, "nsys_version": _TEXT,
        "driver_version": _TEXT, "start_utc_ns": _WHOLE, "end_utc_ns": _WHOLE, "clock_uncertainty_ns": _WHOLE,
    },
    "tenants": {
        "group": _TEXT, "device_id": _WHOLE, "uuid": _TEXT, "tenant_id": _WHOLE, "name": _TEXT,
        "pid": _WHOLE, "host_pid": _WHOLE, "pod": _TEXT, "container": _TEXT, "busy_ns": _WHOLE, "resident_ns": _WHOLE,
        "attributed_ns": _WHOLE, "sm_share": _REAL, "occupancy": _REAL, "memory_peak_bytes": _WHOLE,
        **{f"{kind}_slowdown{end}": _REAL for kind in _KIND for end in ("", "_low", "_high")},
        **{f"cause_{cause}": _REAL for cause in _CAUSES},
    },
    "segments": {
        "group": _TEXT, "device_id": _WHOLE, "uuid": _TEXT, "start_utc_ns": _WHOLE, "end_utc_ns": _WHOLE,
        "mode": _TEXT, "confidence": _REAL,
    },
    "quality": {"group": _TEXT, "name": _TEXT, "severity": _TEXT, "count": _WHOLE, "detail": _TEXT},
}  # fmt: skip

#: What engines that read Hive partitions take for null.
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"


def group_tables(
    group: str, report: Mapping[str, Any], probes: Sequence[CaptureProbe]
) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of every table but `devices` for one group.

    Parameters
    ----------
    group
        Its name.
    report
        Its report as plain data, on its own clock.
    probes
        The captures in it, in order.
    """
    origin = report["clock"]["origin_utc_ns"]

    def utc(position: int | None) -> int | None:
        return None if origin is None or position is None else int(origin) + position

    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES if name != "devices"}
    for one, seen in zip(report["captures"], probes, strict=True):
        kept = (seen.host, one["path"], seen.sha256, one["nsys_version"], one["driver_version"])
        span = (utc(one["start_ns"]), utc(one["end_ns"]))
        found["captures"].append((group, *kept, *span, one["clock_uncertainty_ns"]))
    for device in report["devices"]:
        where = (device["device_id"], device["uuid"])
        for tenant in device["tenants"]:
            plain = TABLES["tenants"]
            cells: dict[str, Any] = dict.fromkeys(plain)
            cells.update({key: tenant[key] for key in plain if key in tenant})
            cells.update(group=group, device_id=where[0], uuid=where[1])
            for kind in _KIND:
                estimate = tenant["slowdown"][kind] or {}
                for key, end in (("value", ""), ("low", "_low"), ("high", "_high")):
                    cells[f"{kind}_slowdown{end}"] = estimate.get(key)
            for cause in _CAUSES:
                cells[f"cause_{cause}"] = (tenant["causes"] or {}).get(cause)
            found["tenants"].append(tuple(cells.values()))
        for segment in device["segments"]:
            span = (utc(segment["start_ns"]), utc(segment["end_ns"]))
            found["segments"].append((group, *where, *span, segment["mode"], segment["confidence"]))
    for row in report["quality"]:
        found["quality"].append((group, row["name"], row["severity"], row["count"], row["detail"]))
    return found


def device_cells(row: DeviceRow) -> tuple[Any, ...]:
    """The row of `tables/devices` and `fleet.csv`."""
    whole = {"start_utc_ns", "end_utc_ns"}
    values = ((name, getattr(row, name)) for name in DEVICE_COLUMNS)
    return tuple(int(value) if name in whole and value is not None else value for name, value in values)


def date_of(rows: Iterable[DeviceRow]) -> str:
    """The partition of a group: the day (UTC) on which it began.

    Examples
    --------
    >>> date_of([])
    '__HIVE_DEFAULT_PARTITION__'
    """
    starts = [int(row.start_utc_ns) for row in rows if row.start_utc_ns is not None]
    if not starts:
        return _NO_DATE
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=min(starts) // 1_000_000_000):%Y-%m-%d}"
    except OverflowError:
        # A damaged session start must not take the fleet down.
        return _NO_DATE


def frame(columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows as a frame of the declared types.

    Examples
    --------
    >>> frame({"name": "String", "n": "Int64"}, [("a", 1)]).row(0)
    ('a', 1)
    """
    import polars as pl

    kinds = {_TEXT: pl.String, _WHOLE: pl.Int64, _REAL: pl.Float64, _TRUTH: pl.Boolean}
    schema = {name: kinds[kind] for name, kind in columns.items()}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def parquet(table: pl.DataFrame) -> bytes:
    """A frame as a Parquet file; equal frames give equal bytes.

    Examples
    --------
    >>> parquet(frame({"n": "Int64"}, [(1,)]))[:4]
    b'PAR1'
    """
    out = io.BytesIO()
    table.write_parquet(out, compression="zstd", compression_level=3, statistics=True)
    return out.getvalue()


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; names come from foreign processes, and a spreadsheet runs what begins like a formula."""

    def cell(value: object) -> object:
        if isinstance(value, bool):
            return str(value).lower()
        return csv_cell(value)

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def fleet_csv(rows: Iterable[DeviceRow]) -> str:
    """The table of devices as CSV."""
    return csv_text(list(DEVICE_COLUMNS), map(device_cells, rows))


# Alerts --------------------------------------------------------------------------------------------------------------

#: Gauges only: readers of the older text format know no others that we would need.
_GAUGES: tuple[tuple[str, str], ...] = (
    ("pyanalyze_gpu_mode", "1 for the observed sharing mode of a device, with the configured mode."),
    ("pyanalyze_gpu_configured_not_observed", "1: the configured mode differs from the observed one, 0: it matches."),
    ("pyanalyze_gpu_mode_confidence", "How often such verdicts were right on simulated recordings."),
    ("pyanalyze_gpu_worst_slowdown_ratio", "Largest slowdown of a tenant of the device; 1 is none."),
    ("pyanalyze_gpu_switch_overhead_ratio", "Cost of context switches over the window, as recorded; at least this."),
    ("pyanalyze_gpu_switch_overhead_high_ratio", "The same with saving and restoring, upper end, inferred."),
    ("pyanalyze_gpu_lost_records", "Data-quality counters that mean lost records in the group."),
    ("pyanalyze_gpu_export_cut", "1: exports of the group lack records that nsys collected, 0: not known to."),
    ("pyanalyze_gpu_observed_timestamp_seconds", "Last activity on the device, UTC."),
    ("pyanalyze_fleet_groups", "Groups of captures that were analysed."),
    ("pyanalyze_fleet_failed_captures", "Captures without a result."),
    ("pyanalyze_fleet_attention_devices", "Devices that need attention."),
)


def openmetrics(summary: FleetSummary) -> str:
    """The fleet as OpenMetrics text (a textfile collector takes it too).

    What is not known has no sample: an alert must not fire, nor stay silent, on a guess.
    """
    samples: dict[str, list[str]] = {name: [] for name, _ in _GAUGES}

    def add(name: str, labels: Mapping[str, str | None], value: float) -> None:
        inside = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items() if text is not None)
        # Seconds since 1970 have more digits than a measurement.
        text = str(value) if isinstance(value, int) else f"{value:.9g}"
        samples[name].append(f"{name}{{{inside}}} {text}" if inside else f"{name} {text}")

    for row in summary.rows():
        labels = {"group": row.group, "device": str(row.device_id), "host": row.host, "uuid": row.uuid}
        said = {"mode": row.mode, "configured": row.configured, "basis": row.basis}
        add("pyanalyze_gpu_mode", {**labels, **said}, 1)
        if row.agrees is not None:
            add("pyanalyze_gpu_configured_not_observed", {**labels, **said}, int(not row.agrees))
        values = {
            "mode_confidence": row.confidence,
            "worst_slowdown_ratio": row.worst_slowdown,
            "switch_overhead_ratio": row.switch_overhead_fraction,
            "switch_overhead_high_ratio": row.switch_overhead_high,
            "lost_records": row.lost_records,
            "export_cut": int(row.export_cut),
            "observed_timestamp_seconds": None if row.end_utc_ns is None else int(row.end_utc_ns) // 1_000_000_000,
        }
        for name, value in values.items():
            if value is not None:
                add(f"pyanalyze_gpu_{name}", labels, value)
    add("pyanalyze_fleet_groups", {}, len(summary.groups))
    add("pyanalyze_fleet_failed_captures", {}, len(summary.failures))
    add("pyanalyze_fleet_attention_devices", {}, len(summary.attention))
    lines = []
    for name, text in _GAUGES:
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {text}", *samples[name]]
    return "\n".join([*lines, "# EOF", ""])


def _label(value: str) -> str:
    return visible(value, limit=None).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


# Check ---------------------------------------------------------------------------------------------------------------

_BULKY_DEVICE: dict[str, Any] = {
    "relations": [], "segments": [], "residency_summary": None, "advice": [], "host": [], "options": None,
}  # fmt: skip
_BULKY_TENANT: dict[str, Any] = {
    "work": None,
    "latency_percentiles": [],
    "units": [],
    "throughput": None,
    "causes": None,
}


def check_line(group: str, report: Mapping[str, Any]) -> str:
    """What `check` holds against thresholds, on one line: a report by its contract, without what no gate reads."""
    devices = []
    for device in report["devices"]:
        slim = {**device, **_BULKY_DEVICE}
        slim["sharing"] = {**device["sharing"], "evidence": [], "alternatives": device["sharing"]["alternatives"][:1]}
        slim["tenants"] = [{**tenant, **_BULKY_TENANT} for tenant in device["tenants"]]
        if device["interference"] is not None:
            slim["interference"] = {**device["interference"], "matrix": None}
        devices.append(slim)
    return json_text({"group": group, "report": {**report, "devices": devices}}, indent=None) + "\n"
