"""Thousands of tenants and devices: pages show the largest and say how many more there are, the JSON has all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from exports import A100, MS, US, kernel, write

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
