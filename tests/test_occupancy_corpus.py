"""Our theoretical occupancy against the figure that PyTorch's profiler wrote beside real launches."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pyanalyze
from pyanalyze.report.text import render_text

Launch = tuple[int, int, int, int, int]  # blocks, threads of a block, registers, shared bytes, the figure in per cent


def launches_of(trace: Path) -> tuple[dict[str, Any], Counter[Launch]]:
    """Device and launches of a trace, without those whose figure is 0 because they use more than 48 KiB."""
    with gzip.open(trace) as stream:
        content = json.load(stream)
    found: Counter[Launch] = Counter()
    for event in content["traceEvents"]:
        args = event.get("args") or {}
        if "est. achieved occupancy %" not in args or args["shared memory"] > 48 * 1024:
            continue
        (gx, gy, gz), (bx, by, bz) = args["grid"], args["block"]
        key = (gx * gy * gz, bx * by * bz, args["registers per thread"], args["shared memory"])
        found[(*key, args["est. achieved occupancy %"])] += 1
    return content["deviceProperties"][0], found


def export(path: Path, device: dict[str, Any], launches: list[Launch]) -> None:
    """A minimal nsys export with one kernel per launch shape; its name is its position in the list."""
    shown = {
        "vmId": 0, "id": 0, "cuDevice": 0, "name": device["name"], "smCount": device["numSms"],
        "computeMajor": device["computeMajor"], "computeMinor": device["computeMinor"],
        "maxShmemPerSm": device["sharedMemPerMultiprocessor"], "maxShmemPerBlock": device["sharedMemPerBlock"],
        "maxShmemPerBlockOptin": device["sharedMemPerBlockOptin"], "maxRegistersPerSm": device["regsPerMultiprocessor"],
        "maxRegistersPerBlock": device["regsPerBlock"], "threadsPerWarp": device["warpSize"],
        "maxWarpsPerSm": device["maxThreadsPerMultiprocessor"] // device["warpSize"],
        "maxThreadsPerBlock": device["maxThreadsPerBlock"],
    }  # fmt: skip
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE TARGET_INFO_GPU ({', '.join(shown)})")
        db.execute(f"INSERT INTO TARGET_INFO_GPU VALUES ({', '.join('?' * len(shown))})", tuple(shown.values()))
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", ((i, str(i)) for i in range(len(launches))))
        integers = [
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
            "registersPerThread",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ]
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({', '.join(f'{name} INTEGER' for name in integers)})")
        rows = (
            (1000 * i, 1000 * i + 900, 0, 1, 7, i, 7 << 24, i, i, registers, grid, 1, 1, block, 1, 1, 0, shared)
            for i, (grid, block, registers, shared, _) in enumerate(launches)
        )
        db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(integers))})", rows)
    db.close()


def test_every_launch_of_the_traces_has_the_profilers_occupancy(corpus: Path, tmp_path: Path) -> None:
    """min(blocks that fit on an SM, blocks per SM) x threads over the most threads of an SM, to the rounded per cent."""
    traces = sorted((corpus / "occupancy").glob("*/*.json.gz"))
    if not traces:
        pytest.skip(f"no occupancy traces in {corpus}")
    compared = 0
    for number, trace in enumerate(traces):
        device, counted = launches_of(trace)
        launches = list(counted)
        export(tmp_path / f"{number}.sqlite", device, launches)
        found = pyanalyze.load(tmp_path / f"{number}.sqlite").kernel_occupancy
        assert found.height == len(launches)
        for name, fit in found.select("name", "blocks_per_sm").iter_rows():
            grid, block, _, _, figure = launches[int(name)]
            per_sm = min(fit, grid / device["numSms"])
            exact = 100 * per_sm * block / device["maxThreadsPerMultiprocessor"]
            assert abs(exact - figure) <= 0.5 + 1e-4, f"{trace.name}: {launches[int(name)]}"
            compared += counted[launches[int(name)]]
    assert compared > 20_000


def test_grids_bound_the_sms_where_no_registers_were_recorded(corpus: Path) -> None:
    """All 400 kernels have 128 blocks for the 132 SMs of an H100, and were in flight for 400 of 403.99 ms, one by one."""
    path = corpus / "exports" / "nsys-ai" / "healthy_1pct.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as export:
        query = """SELECT min(gridX * gridY * gridZ), max(gridX * gridY * gridZ), sum("end" - start),
                   max("end") - min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL"""
        least, most, busy_ns, window_ns = export.execute(query).fetchone()
    assert (least, most) == (128, 128)
    report = pyanalyze.load(path).report()
    (device,) = report.devices
    assert device.occupancy is None
    assert device.sm_active_at_most == pytest.approx(128 / 132 * busy_ns / window_ns)
    assert "at most 96.0 %" in render_text(report, sections=("occupancy",))
