"""Are the committed captures what the generator builds, and is every scenario what it says it is?

What the simulation and the exporters do is tested in their own crate (``fixtures/generator/tests``).
"""

from __future__ import annotations

import json
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import generate
import pytest

from pyanalyze.vocabulary import Mode

NAMES = generate.scenario_names()


def dump(path: Path) -> dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """Every table as (column declarations, rows), text as bytes.

    The bytes of two SQLite files differ with the library that wrote them, their content does not.
    """
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    try:
        names = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {
            name.decode(): (
                [tuple(r[1:]) for r in connection.execute(f'PRAGMA table_info("{name.decode()}")')],
                connection.execute(f'SELECT * FROM "{name.decode()}" ORDER BY rowid').fetchall(),
            )
            for name in names
        }
    finally:
        connection.close()


def truth_of(name: str, seed: int = generate.SEED) -> tuple[Path, dict[str, Any]]:
    folder = generate.built(name, seed)
    book: dict[str, Any] = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
    return folder, book


# -- the committed files ------------------------------------------------------------------------------


def test_committed_files_are_what_the_generator_builds(tmp_path: Path, fixtures: Path) -> None:
    generate.generate([generate.SCENARIOS / f"{name}.toml" for name in generate.COMMITTED], tmp_path)
    generate.remove_twins(tmp_path)
    built = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    committed = sorted(p.relative_to(fixtures) for p in fixtures.rglob("*") if p.is_file())
    assert built == committed
    assert len([p for p in built if p.suffix == ".sqlite"]) == 11
    for path in built:
        if path.suffix == ".sqlite":
            old, new = dump(fixtures / path), dump(tmp_path / path)
            assert list(old) == list(new), path
            for table in old:
                assert old[table] == new[table], f"{path}: {table}"
        else:
            assert (fixtures / path).read_bytes() == (tmp_path / path).read_bytes(), path


def test_every_capture_is_small_synthetic_and_carries_the_secret_that_must_never_be_shown(fixtures: Path) -> None:
    paths = sorted(fixtures.rglob("*.sqlite"))
    assert len(paths) == 11
    for path in paths:
        assert path.stat().st_size < 1_500_000, path
        tables = dump(path)
        metadata = dict(tables["META_DATA_EXPORT"][1])
        assert metadata[b"EXPORT_PRODUCT_NAME"] == b"pyanalyze fixture"
        texts = [v for name in ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV") for row in tables[name][1] for v in row]
        assert sum(b"do-not-show-me" in value for value in texts if isinstance(value, bytes)) == 2, path


# -- the scenarios ------------------------------------------------------------------------------------


def test_every_mode_has_an_easy_scenario_and_one_with_its_confounder() -> None:
    depth = dict.fromkeys(map(str, Mode), 2) | dict.fromkeys(
        # Where users are few one scenario and its twin are enough.
        ("mps-pre-volta", "mps-static-partition", "mps+time-slicing", "vgpu-time-sliced", "vgpu-mig", "green-contexts"),
        1,
    )
    found: dict[str, set[str]] = {mode: set() for mode in depth}
    for name in NAMES:
        for device in truth_of(name)[1]["devices"]:
            for _, mode in device["modes"]:
                found[mode].add(name)
    assert {mode: len(names) for mode, names in found.items() if len(names) < depth[mode]} == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_does_what_its_truth_says(name: str) -> None:
    folder, book = truth_of(name)
    assert book["captures"], "nothing was recorded"
    for capture in book["captures"]:
        assert (folder / f"{capture['name']}.sqlite").is_file()
    window = book["window"]["end_ns"]
    for index, device in enumerate(book["devices"]):
        tenants = [t for t in book["tenants"] if t["device"] == index and not t["service"]]
        assert tenants, f"nobody uses device {index}"
        for tenant in tenants:
            assert sum(k["n"] for k in tenant["kernels"].values()) > 0, f"{tenant['name']} never ran a kernel"
            assert tenant["attributed_ns"] <= tenant["busy_ns"] <= window
            lost = tenant["slowdown"]["lost"]
            parts = ("launch", "queue_same_tenant", "queue_other_tenant", "not_resident", "switch", "execution")
            assert sum(lost[f"{part}_ns"] for part in parts) == lost["total_ns"]
        relations = {pair["relation"] for pair in device["pairs"]}
        for pair in device["pairs"]:
            if pair["relation"] in ("time-sliced", "apart"):
                assert pair["co_executing_ns"] == 0
        modes = {mode for _, mode in device["modes"]}
        if modes & {"exclusive", "streams", "green-contexts"}:
            assert len(tenants) == 1
        if modes & {"time-slicing", "mig+time-slicing"}:
            assert "time-sliced" in relations
            endings = device["slices"]["endings"]
            assert endings["expired"] + endings["yielded"] > 20, "they hardly met"
        if modes & {"mps", "mps-pre-volta", "mig+mps"}:
            assert "side-by-side" in relations
        if "mps-static-partition" in modes:
            assert relations == {"partitioned"}


def test_seeds_are_reproducible_and_change_the_details(tmp_path: Path) -> None:
    scenario = generate.SCENARIOS / "time-slicing-pair.toml"
    for folder, seed in (("a", 5), ("again", 5), ("b", 6)):
        generate.generate([scenario], tmp_path / folder, seed)
    books = [json.loads((tmp_path / f / "time-slicing-pair.truth.json").read_text()) for f in ("a", "again", "b")]
    assert books[0] == books[1]
    assert dump(tmp_path / "a" / "time-slicing-pair.sqlite") == dump(tmp_path / "again" / "time-slicing-pair.sqlite")
    pids = [{t["host_pid"] for t in book["tenants"]} for book in books]
    assert not pids[0] & pids[2]
    slices = [book["devices"][0]["slices"]["median_expired_ns"] for book in books]
    assert slices[0] != slices[2]


def test_a_capture_that_two_ask_for_is_simulated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def simulated(scenarios: list[Path], folder: Path, *_: object, **__: object) -> None:
        asked.append(folder)
        time.sleep(0.1)
        folder.mkdir()
        (folder / "mps.sqlite").touch()

    monkeypatch.setattr(generate, "generate", simulated)
    monkeypatch.setattr(generate, "folder_of", lambda *_, **__: tmp_path / "captures" / "mps")
    with ThreadPoolExecutor(2) as workers:
        found = list(workers.map(generate.built, ["mps", "mps"]))
    assert found == [tmp_path / "captures" / "mps"] * 2
    assert [path.name for path in found[0].iterdir()] == ["mps.sqlite"]
    assert len(asked) == 1


def test_an_unknown_kernel_or_model_is_said_so(tmp_path: Path) -> None:
    text = (generate.SCENARIOS / "mig.toml").read_text()
    wrong = tmp_path / "wrong.toml"
    for old, new, said in (
        ('"13 forward"', '"13 sideways"', r"wrong.toml: tenant train: there is no \[kernel.sideways\]"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100", "no GPU model .NVIDIA A100.; there are"),
        ("family =", "familiy =", "unknown field `familiy`"),
    ):
        assert old in text
        wrong.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=said):
            generate.generate([wrong], tmp_path / "out")


# -- known answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_processes_with_150_sleep_kernels_of_a_millisecond(seed: int) -> None:
    """Known from public reports: recorded durations stretch, residency is about 150 ms each."""
    (device,) = truth_of("time-slicing-sleep-kernels", seed)[1]["devices"]
    tenants = truth_of("time-slicing-sleep-kernels", seed)[1]["tenants"]
    for tenant in tenants:
        (kernel,) = tenant["kernels"].values()
        assert kernel["n"] == 150
        assert kernel["min_ns"] == 1_000_000
        assert kernel["max_ns"] > 2_900_000, "some kernel waited for a slice of the other"
        # While its kernels were in flight; besides them, state saved and restored in each slice.
        assert 150_000_000 < tenant["attributed_ns"] < 165_000_000
    assert device["pairs"][0]["co_busy_ns"] > 0.9 * tenants[0]["busy_ns"]


def test_the_main_figures_of_the_public_capture_of_an_ada() -> None:
    """One kernel of 2511.7 ms, resident 1230.8 of it (49 %), some 606 slices of 2.13 ms, 42.7 us between them."""
    book = truth_of("time-slicing-ada-long-kernel")[1]
    victim = next(t for t in book["tenants"] if t["name"] == "victim")
    (kernel,) = victim["kernels"].values()
    assert kernel["total_ns"] == pytest.approx(2_511_700_000, rel=0.02)
    assert victim["attributed_ns"] / kernel["total_ns"] == pytest.approx(0.49, abs=0.005)
    (device,) = book["devices"]
    assert device["slices"]["median_expired_ns"] == pytest.approx(2_132_000, rel=0.005)
    assert device["switches"]["median_gap_ns"] == pytest.approx(42_700, rel=0.03)
    assert victim["slices"] == pytest.approx(606, rel=0.06)


def test_two_equal_processes_run_at_half_speed_each_when_time_sliced() -> None:
    for tenant in truth_of("time-slicing-sleep-kernels")[1]["tenants"]:
        assert tenant["slowdown"]["elapsed"]["ratio"] == pytest.approx(2.1, abs=0.1)
        assert tenant["slowdown"]["resident"]["ratio"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_four_nbody_processes_finish_about_a_fifth_sooner_under_mps(seed: int) -> None:
    def makespan(name: str) -> int:
        tenants = [t for t in truth_of(name, seed)[1]["tenants"] if not t["service"]]
        assert all(t["slowdown"]["n_units"] == 40 for t in tenants)
        return int(max(t["exited_ns"] for t in tenants))

    assert makespan("mps-four-nbody") / makespan("time-slicing-four-nbody") == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_service_with_time_to_spare_keeps_its_pace_and_loses_its_latency(seed: int) -> None:
    tenants = truth_of("time-slicing-open-loop", seed)[1]["tenants"]
    service = next(t for t in tenants if t["name"] == "service")["slowdown"]
    assert service["elapsed"]["ratio"] == pytest.approx(1.0, abs=0.03)
    assert service["unit_latency"]["ratio"] > 2


# -- what single captures promise ---------------------------------------------------------------------


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_correlation_ids_of_two_processes_collide(fixtures: Path) -> None:
    sql = "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1 HAVING count(DISTINCT globalPid) > 1"
    assert len(rows(fixtures / "demo-time-slicing.sqlite", sql)) > 20


def test_containers_share_a_pid_and_start_250_ms_apart(fixtures: Path) -> None:
    folder = fixtures / "containers-same-pid"
    starts = []
    for pod in ("pod-a", "pod-b"):
        path = folder / f"{pod}.sqlite"
        pids = rows(path, "SELECT DISTINCT (globalPid >> 24) & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_KERNEL")
        assert pids == [(1,)]
        assert not rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'GPU_CONTEXT_SWITCH_EVENTS'")
        starts += [utc for (utc,) in rows(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")]
    assert starts[1] - starts[0] == 250_000_000
    hosts = rows(folder / "node.sqlite", "SELECT DISTINCT (globalPid >> 24) & 0xFFFFFF FROM GPU_CONTEXT_SWITCH_EVENTS")
    book = json.loads((fixtures / "containers-same-pid.truth.json").read_text())
    assert {pid for (pid,) in hosts} == {t["host_pid"] for t in book["tenants"]}


def test_a_node_capture_has_no_cuda_tables_and_every_tag(fixtures: Path) -> None:
    path = fixtures / "node-switches-only.sqlite"
    assert not rows(path, "SELECT 1 FROM sqlite_master WHERE name LIKE 'CUPTI%'")
    tags = {tag for (tag,) in rows(path, "SELECT DISTINCT tag FROM GPU_CONTEXT_SWITCH_EVENTS")}
    assert tags == {1, 3, 6, 7, 8, 9}


def test_hostile_names_reach_the_file_unchanged(fixtures: Path) -> None:
    sql = "SELECT DISTINCT value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = id"
    names = {name for (name,) in rows(fixtures / "hostile-names.sqlite", sql)}
    assert len(names) == 8
    broken = next(name for name in names if name.startswith(b"broken"))
    with pytest.raises(UnicodeDecodeError):
        broken.decode()
    assert max(map(len, names)) > 10_000
    assert any("\u202e".encode() in name for name in names)
    assert rows(fixtures / "hostile-names.sqlite", "SELECT DISTINCT typeof(value) FROM StringIds") == [(b"text",)]


def test_samples_are_those_of_nvidia_smi_in_local_time(fixtures: Path) -> None:
    lines = (fixtures / "demo-time-slicing.query-gpu.csv").read_text().splitlines()
    assert lines[0].split(", ")[:5] == ["timestamp", "index", "uuid", "name", "utilization.gpu [%]"]
    assert len(lines) > 12
    # Zero of the capture is 05:26:53.589 UTC, so 14:26:53.589 in UTC+9; sampling began 57 ms before.
    assert lines[1].startswith("2026/03/14 14:26:53.532, 0, ")
    start = rows(fixtures / "demo-time-slicing.sqlite", "SELECT utcTime, localTime FROM TARGET_INFO_SESSION_START_TIME")
    assert start == [(b"2026-03-14T05:26:53", b"2026-03-14T14:26:53")]
    apps = (fixtures / "demo-time-slicing.compute-apps.csv").read_text().splitlines()
    assert {line.split(", ")[2] for line in apps[1:]} == {"41201", "41305", "41377"}
