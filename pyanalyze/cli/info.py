"""`pyanalyze info`: what the capture holds, and what it does not."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyanalyze.cli._shared import csv_of, verb
from pyanalyze.core import _core
from pyanalyze.tables import memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.session import Session

#: What `-t cuda` records: where some of it was recorded, CUDA was traced, and of the rest there was nothing.
_OF_CUDA = ("kernels", "copies", "api_calls", "profiler_overhead", "event_calls")
#: The first release of nsys that exports the devices as each process sees them.
_CUDA_DEVICES_SINCE = (2024, 6)
#: What another export of the same report may bring.
_OF_EXPORT = ("processes", "diagnostics", "cuda_devices")
#: States of a source that another recording or export may change.
_NOT_THERE = ("absent", "empty", "removed")


@verb("info", ("table", "json", "csv"), reconstruct=False, by=False)
def command(session: Session, fmt: str) -> str:
    """List the contents of the capture: versions, data quality and what is not available."""
    found, reasons = describe(session)
    if fmt == "json":
        return json.dumps({"schema": "pyanalyze.info/1", **found, "memory": asdict(memory.account())}, indent=2)
    if fmt == "csv":
        return csv_of(found["sources"])
    return f"{_table(found, reasons, samples_only=not session.paths)}\n{memory.account()}"


def describe(session: Session) -> tuple[dict[str, list[dict[str, Any]]], dict[tuple[int, str], str]]:
    """Rows for people (captures, devices, sources, samples, quality), and why no switch brings what is not there.

    The reasons are by capture and source.
    """
    import polars as pl

    def rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
        text = [pl.col(name).cast(pl.String) for name, kind in frame.schema.items() if kind == pl.Categorical]
        return frame.with_columns(text).to_dicts()

    captures, sources, configured = rows(session.capture), rows(session.sources), rows(session.configured)
    reasons: dict[tuple[int, str], str] = {}
    for source in sources:
        if why := _no_remedy(source, captures, sources, configured):
            reasons[source["capture"], source["source"]] = why
            source["how"] = None
    found = {
        "captures": captures,
        "devices": rows(session.devices),
        "processes": rows(session.processes.filter(pl.col("traced"))),
        "sources": sources,
        "samples": rows(
            session.nvml_samples.group_by("source", "format", maintain_order=True).agg(
                rows=pl.len(),
                metrics=pl.col("metric").n_unique(),
                # Words are values as well; what could not be had is in brackets, a dash or N/A.
                unavailable=(
                    pl.col("value").is_null() & pl.col("text").fill_null("-").str.contains(r"^(\[.*\]|-|N/A|)$")
                ).sum(),
            )
        ),
        "configured": configured,
        "quality": rows(session.quality),
    }
    return found, reasons


def _no_remedy(
    source: Mapping[str, Any],
    captures: Sequence[Mapping[str, Any]],
    sources: Sequence[Mapping[str, Any]],
    configured: Sequence[Mapping[str, Any]],
) -> str:
    """Why no switch would bring what is not there; empty: one might."""
    name, capture = source["source"], source["capture"]
    if source["state"] not in _NOT_THERE:
        return ""
    traced = any(
        row["capture"] == capture and row["source"] in _OF_CUDA and row["state"] not in _NOT_THERE for row in sources
    )
    settings = {(row["key"], row["value"]) for row in configured if row["capture"] == capture}
    # Nsys itself says that nothing came.
    traced = traced or (source["state"] == "empty" and ("cuda_trace", "true") in settings)
    graphs = ("graph_trace_mode", "Graph") in settings
    if traced and (name in _OF_CUDA or (name == "graph_launches" and graphs)):
        return "none recorded; CUDA was traced"
    if traced and name == "graph_launches" and source["state"] != "removed":
        # Graphs traced whole would have rows; recorded so, their kernels would not be there any more.
        return "no graph was traced as a whole: kernels of graphs are among the kernels"
    if name == "switch_events" and source["state"] == "empty" and ("gpu_context_switch_trace", "true") in settings:
        # The same command again records nothing more.
        if any(row["key"] == "mps_daemon" and row["capture"] == capture for row in configured):
            return "none recorded; switches were traced, and clients of one MPS server do not switch contexts"
        return "none recorded; switches were traced: no two contexts alternated, or nsys was not root"
    if name == "nvtx" and ("nvtx_trace", "true") in settings:
        return "none recorded; NVTX was traced"
    if name == "cuda_devices":
        version = next((row["nsys_version"] for row in captures if row["capture"] == capture), None)
        numbers = re.match(r"(\d{1,9})\.(\d{1,9})", version or "")
        if numbers is not None and (int(numbers[1]), int(numbers[2])) >= _CUDA_DEVICES_SINCE:
            return "the export has no such table"
    return ""


def _to_do(source: Mapping[str, Any], why: str) -> str:
    """What stands behind the state of a source: why it is not there, or how to capture it."""
    if why:
        return f"   {why}"
    if source["state"] not in _NOT_THERE or not source["how"]:
        return ""
    of_export = source["source"] in _OF_EXPORT or source["state"] == "removed"
    # Few programs have ranges.
    if_any = ", if the program has ranges" if source["source"] == "nvtx" else ""
    return f"   {'' if of_export else 'capture with: '}{source['how']}{if_any}"


def _settings(configured: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings as the inputs state them; what several processes are said to have is one line."""
    from pyanalyze.text.escape import visible

    # A list of processes says of each that it is there.
    listed = [{**row, "value": ""} if row["key"] == "process_pid" else row for row in configured]
    pids: dict[tuple[str, str, str], dict[int, None]] = {}
    for row in listed:
        of = pids.setdefault((row["key"], row["value"], row["source"]), {})
        if row["pid"] is not None:
            of[row["pid"]] = None
    out = []
    for (key, value, source), of in pids.items():
        numbers = ", ".join(map(str, of))
        if key == "process_pid":
            said, whose = f"{key}={numbers}", ""
        else:
            # A value of several parts names itself.
            said = visible(value) if value.startswith(f"{key}=") else f"{key}={visible(value)}"
            whose = f"; pid{'' if len(of) == 1 else 's'} {numbers}" if of else ""
        out.append(f"configured: {said} ({source}{whose})")
    return out


def _times(capture: Mapping[str, Any], *, samples_only: bool) -> str:
    """How long the recording is and when it began; how long its events are, and when the first one is."""
    from pyanalyze.text.format import duration, utc

    first, last, origin = capture["start_ns"], capture["end_ns"], capture["utc_origin_ns"]
    what = f"{duration(last - first)} of {'samples' if samples_only else 'events'}"
    start, end = capture["recording_start_ns"], capture["recording_end_ns"]
    if None in (start, end):
        return f"{what}, first at {utc(str(origin), first)}" if origin is not None else what
    began = "" if origin is None else f" from {utc(str(origin), start)}"
    return f"recording: {duration(end - start)}{began}; {what}, first {duration(first - start)} after its start"


def _table(
    found: Mapping[str, list[dict[str, Any]]], reasons: Mapping[tuple[int, str], str], *, samples_only: bool
) -> str:
    from pyanalyze.text.escape import visible
    from pyanalyze.text.format import count, counted

    out: list[str] = []
    for capture in found["captures"]:
        out.append(f"capture {capture['capture']}: {visible(capture['path'], limit=None)}")
        product, schema = capture["product"] or "product not recorded", capture["schema_version"] or "not recorded"
        driver = capture["driver_version"] or "not recorded"
        # Another version of nsys may have recorded it.
        version = capture["nsys_version"] or "of unknown version"
        wrote = visible(product) if samples_only else f"exported by {visible(product)} {visible(version)}"
        layout = "" if samples_only else f", schema {visible(schema)}"
        out.append(f"  {wrote}{layout}, driver {visible(driver)}")
        if capture["start_ns"] is not None:
            out.append(f"  {_times(capture, samples_only=samples_only)}")
        if capture["synthetic"]:
            out.append("  SYNTHETIC: made by a generator, not recorded on a GPU")
        left = sum(
            row["count"]
            for row in found["quality"]
            if row["name"] == "read_by_sqlite" and row["capture"] == capture["capture"]
        )
        how_read = (
            f"row by row through SQLite: {counted(left, 'table')}, see below"
            if left
            else "by page scan, without SQLite"
        )
        out += [] if samples_only else [f"  read {how_read}"]
        here = [source for source in found["sources"] if source["capture"] == capture["capture"]]
        for source in here:
            # What this command does not need is not read.
            words = {"present": f"{count(source['rows'])} rows", "unread": "present (unread)"}
            state = words.get(source["state"], source["state"])
            how = _to_do(source, reasons.get((source["capture"], source["source"]), ""))
            out.append(f"    {source['source']:<17} {state:<16}{how}".rstrip())
    out.append("devices:")
    for device in found["devices"]:
        sms = f"{device['sm_count']} SMs" if device["sm_count"] else "SM count not known"
        cc = f"cc {device['compute_major']}.{device['compute_minor']}" if device["compute_major"] else "cc not known"
        name, uuid = visible(device["name"] or "name not recorded"), visible(device["uuid"] or "no UUID")
        out.append(f"  {device['device_id']}: {name}, {sms}, {cc}, {uuid}")
    if not found["devices"]:
        out.append("  none in the capture")
    traced = ", ".join(f"{visible(p['name'] or '?')} ({p['pid']})" for p in found["processes"])
    out.append(f"traced processes: {traced or 'none'}")
    for row in found["samples"]:
        numbers = (
            f"{count(row['rows'])} rows of {count(row['metrics'])} metrics, {count(row['unavailable'])} not available"
        )
        out.append(f"samples: {visible(row['source'], limit=None)} ({row['format']}): {numbers}")
    out += _settings(found["configured"])
    # Slices and tenants are not reconstructed here; what that finds odd stands in the other verbs.
    out.append("data-quality counters:" if found["quality"] else "data-quality counters: none")
    meanings = {str(one["name"]): str(one["doc"]) for one in _core.quality_counters()}
    for row in found["quality"]:
        # Cut in the middle, one message would seem to go on with the end of another.
        said = visible(row["detail"], limit=None) or meanings[row["name"]]
        out.append(f"  {row['severity']}: {row['name']} ({count(row['count'])}): {said}")
    return "\n".join(out)
