"""How long do ten replays of a million launches take?  Appends a line to docs/measurements.jsonl."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

import big_export
import measurements
import polars as pl

import pyanalyze
from pyanalyze.analysis.advice.forecast import SharingConfig, alone, forecast, side_by_side, time_slicing
from pyanalyze.tables.frames import ANALYSIS_TABLES


def configs(sms: int, tenants: list[int]) -> list[SharingConfig]:
    """Ten ways to share, of every kind."""
    first, second = tenants[:2]
    beside = side_by_side(sms, tenants)
    return [
        alone(sms, first),
        alone(sms, second),
        time_slicing(sms, tenants),
        time_slicing(sms, tenants, 500_000).varied("short turns", jitter=0.04, seed=1),
        beside,
        beside.varied("contention", contention=0.1, jitter=0.04, seed=2),
        beside.varied("block_imbalance", block_imbalance=0.45),
        side_by_side(sms, tenants, {first: sms // 2, second: sms // 2}),
        side_by_side(sms, tenants, {first: sms // 2}).varied("one cap"),
        SharingConfig(
            "instances", (sms // 2, sms // 2), (beside.assignments[0], time_slicing(sms, tenants).assignments[1])
        ),
    ]


def main() -> int:
    """Load, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    path = big_export.export(arguments.kernels, 2 * arguments.kernels)
    began = time.perf_counter()
    session = pyanalyze.load(path, tables=(*ANALYSIS_TABLES, "api_calls"))
    loaded = time.perf_counter()
    tenants = session.tenants.filter(pl.col("traced"))["tenant_id"].to_list()
    sms = session.devices["sm_count"][0]
    wanted = configs(sms, tenants)
    ready, cpu = time.perf_counter(), time.process_time()
    rows = forecast(session.tables, 0, wanted, time_sliced=False, threads=arguments.threads)
    seconds, cpu_seconds = time.perf_counter() - ready, time.process_time() - cpu
    print(
        f"loading {loaded - began:.1f} s; {len(wanted)} replays of {arguments.kernels:,} launches: {seconds:.1f} s, "
        f"{cpu_seconds:.1f} s of processor time"
    )
    print(rows.select("sharing_config", "tenant_id", "elapsed_ns", "operations", "detail"))
    entry = {
        "bench": "forecast",
        "kernels": arguments.kernels,
        "replays": len(wanted),
        "threads": arguments.threads,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "version": pyanalyze.__version__,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
