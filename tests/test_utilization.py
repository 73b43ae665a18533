"""The driver counts kernels of every process; traced ones explain so much of that, and no more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from exports import A100, MS, US, kernel, write

import pyanalyze
from pyanalyze.analysis.sharing.utilization import utilization_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EPOCH_NS = 1_790_000_000 * 10**9


def sampled(folder: Path, percentages: Sequence[float], *, kernel_us: int = 1_800) -> pyanalyze.Session:
    """A process with a kernel every 10 ms for as long as samples are taken, one each 0.2 s from 0.2 s on."""
    kernels = [kernel(41, n * 10 * MS, n * 10 * MS + kernel_us * US) for n in range(20 * len(percentages) + 10)]
    path = write(folder / "sampled.sqlite", kernels=kernels, processes={41: "train"}, epoch_ns=EPOCH_NS)
    lines = [{"format": "pyanalyze.samples/1", "rate_hz": 5}]
    for n, percentage in enumerate(percentages, 1):
        device = {"gpu_index": 0, "gpu_uuid": f"GPU-{A100['uuid']}", "metrics": {"gpu_utilization_pct": percentage}}
        lines.append({"time_utc_ns": EPOCH_NS + n * 200 * MS, **device})
    samples = folder / "gpu.jsonl"
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return pyanalyze.load(path, samples=samples)


def test_a_busy_gpu_beside_a_process_that_is_mostly_idle_has_another_one(tmp_path: Path) -> None:
    """By hand: kernels of 1.8 ms every 10 ms, each with 0.2 ms after it, are 20 %. Of 20 samples in 4 s the 16 from 1 s
    on cover nothing before the first kernel.
    """
    session = sampled(tmp_path, [100.0] * 20)
    facts = utilization_facts(session.tables, 0)
    assert (facts["utilization_pct"].value, facts["utilization_pct"].n) == (100.0, 16)
    assert facts["utilization_traced_pct"].value == pytest.approx(20.0, abs=0.1)
    (verdict,) = session.classify()
    (seen,) = [one for one in verdict.evidence if one.name == "utilization_above_traced"]
    assert seen.basis == "sampled"
    assert {"exclusive", "streams"} & set(seen.against)
    assert not (verdict.mode == "exclusive" and verdict.condition is None)
    assert verdict.mode != "exclusive"


@pytest.mark.parametrize(
    ("percentages", "kernel_us"),
    [
        ([18.0] * 20, 1_800),  # what its own kernels make
        ([100.0] * 20, 9_700),
        ([100.0] * 4 + [100.0] * 3 + [18.0] + [100.0] * 12, 1_800),  # not all the time
        ([100.0] * 6, 1_800),  # two samples cover nothing but its time
    ],
)
def test_utilisation_that_traced_kernels_explain_shows_nobody(
    tmp_path: Path, percentages: list[float], kernel_us: int
) -> None:
    (verdict,) = sampled(tmp_path, percentages, kernel_us=kernel_us).classify()
    assert "utilization_above_traced" not in {one.name for one in verdict.evidence}
