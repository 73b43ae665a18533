"""Thousands of tenants and devices: pages show the largest and say how many more there are, the JSON has all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from exports import A100, MS, US, kernel, resident, write

import pyanalyze
from pyanalyze.core import _core
from pyanalyze.report.shown import MOST_DEVICES, MOST_TENANTS

TENANTS = 150


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Processes one after the other, each longer than the one before; the last two run at once for 50 us."""
    path = tmp_path_factory.mktemp("crowd") / "crowd.sqlite"
    rows = [kernel(1000 + n, n * MS, n * MS + (n + 1) * US) for n in range(TENANTS - 1)]
    rows.append(kernel(1000 + TENANTS - 1, (TENANTS - 2) * MS, (TENANTS - 2) * MS + 50 * US))
    return write(path, kernels=rows, processes={1000 + n: f"worker_{n}" for n in range(TENANTS)})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process on each of 40 GPUs, the first with the least work."""
    path = tmp_path_factory.mktemp("cluster") / "cluster.sqlite"
    gpus = [A100 | {"id": n, "cuDevice": n, "uuid": f"{n:08x}-0000-0000-0000-000000000000"} for n in range(40)]
    rows = [kernel(1000 + n, n * US, n * US + (n + 1) * MS, deviceId=n) for n in range(40)]
    return write(path, kernels=rows, processes={1000 + n: f"worker_{n}" for n in range(40)}, gpus=gpus)


def test_the_json_names_every_tenant_and_only_pairs_that_met(crowd: Path) -> None:
    report = json.loads(run("report", crowd, "-f", "json").stdout)
    (device,) = report["devices"]
    assert [tenant["name"] for tenant in device["tenants"]] == [f"worker_{n}" for n in range(TENANTS)]
    pairs = [(tuple(pair["tenants"]), pair["co_busy_ns"]) for pair in device["relations"]]
    assert pairs == [((TENANTS - 2, TENANTS - 1), 50 * US)]


@pytest.mark.parametrize("form", ["md", "txt", "html"])
def test_a_page_shows_the_largest_tenants_and_how_many_more_there_are(crowd: Path, form: str) -> None:
    page = run("report", crowd, "-f", form).stdout
    assert "worker_148" in page
    assert "worker_84" not in page
    assert f"{TENANTS - MOST_TENANTS} more are not" in page
    assert len(page) < 2_000_000


def test_a_page_shows_the_busiest_devices_and_how_many_more_there_are(cluster: Path) -> None:
    assert len(json.loads(run("report", cluster, "-f", "json").stdout)["devices"]) == 40
    page = run("report", cluster, "-f", "md").stdout
    assert f"{40 - MOST_DEVICES} more are not (exclusive {40 - MOST_DEVICES})" in page
    assert "(device 39)" in page
    assert "(device 7)" not in page
    assert "(device 8)" in page


def test_parts_of_time_are_judged_from_the_kernels_of_their_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on each of six GPUs: eight parts of each GPU's time hold each of its kernels once."""
    gpus = [A100 | {"id": n, "cuDevice": n, "uuid": f"{n:08x}-0000-0000-0000-000000000000"} for n in range(6)]
    rows = [
        kernel(1000 + 2 * n + tenant, start, start + 50 * US, deviceId=n)
        for turn in range(12)
        for n in range(6)
        for tenant in range(2)
        for start in [turn * 20 * MS + n + tenant * 500 * US]
    ]
    path = write(tmp_path / "six.sqlite", kernels=rows, processes={1000 + n: f"w_{n}" for n in range(12)}, gpus=gpus)
    analysis = pyanalyze.load(path).analysis
    assert len(analysis.verdicts) == 6
    given: list[int] = []

    def counted(parts: list[tuple[dict[str, Any], Any]]) -> Any:
        given.extend(events["kernels"].num_rows for events, _ in parts)
        return reconstruct_parts(parts)

    reconstruct_parts = _core.reconstruct_parts
    monkeypatch.setattr(_core, "reconstruct_parts", counted)
    assert all(len(parts) == 1 for parts in analysis.segments.values())
    assert (len(given), sum(given)) == (6 * 8, len(rows))


def test_more_kernels_in_flight_than_a_gpu_holds_are_not_replayed(tmp_path: Path) -> None:
    """300 kernels of 100 streams, each of which begins before the first ends; then one behind all of them."""
    rows = [kernel(1000, n * US, MS + n * US, streamId=7 + n % 100) for n in range(300)]
    rows.append(kernel(1000, 3 * MS, 4 * MS))
    path = write(tmp_path / "many.sqlite", kernels=rows, processes={1000: "worker"})
    session = pyanalyze.load(path)
    session.occupancy()
    placed = pl.DataFrame(session.table("kernel_placement"))
    caveats = placed.sort("start_ns")["caveat"].cast(pl.String).to_list()
    assert [place for place, caveat in enumerate(caveats) if caveat == "too many in flight"] == list(range(256, 300))


@pytest.mark.parametrize(("tenants", "said"), [(48, "MIG cannot hold worker_"), (49, "Move 42 of 49 tenants")])
def test_of_more_tenants_than_mps_has_clients_none_is_chosen_for_mig(tmp_path: Path, tenants: int, said: str) -> None:
    """An A100 has 7 instances: of 48 tenants those that do not fit are named, of more it is said how many."""
    rows, switches = [], []
    for turn in range(3):
        for n in range(tenants):
            at = (turn * tenants + n) * 2200 * US + US
            rows.append(kernel(1000 + n, at + 50 * US, at + 2050 * US))
            switches += resident(1000 + n, n + 1, at, at + 2100 * US)
    path = tmp_path / "many.sqlite"
    write(path, kernels=rows, processes={1000 + n: f"worker_{n}" for n in range(tenants)}, switches=switches)
    (advice,) = pyanalyze.load(path).advise()
    (moved,) = [one for one in advice.actions if said in one.action]
    assert ("worker_" in moved.action, "at most 7 MIG instances" in moved.why) == (tenants == 48, tenants > 48)
