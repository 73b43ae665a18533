"""Are the committed captures what the simulation builds, and does the simulation obey its own rules?"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import build_fixtures
import export
import pytest
import simulation

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPTURES = FIXTURES / "captures"
NAMES = sorted(path.name.removesuffix(".truth.json") for path in CAPTURES.glob("*.truth.json"))
CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT.parent / "shared" / "corpus"))


def truth(name: str) -> dict[str, Any]:
    book: dict[str, Any] = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    return book


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def table_names(path: Path) -> set[str]:
    return {n.decode() for (n,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    build_fixtures.build(folder)
    return folder


# -- the files ----------------------------------------------------------------------------------------


def test_there_are_nine_fixtures() -> None:
    assert NAMES == [
        "containers-same-pid",
        "demo-time-slicing",
        "exclusive",
        "hostile-names",
        "lost-records",
        "mig",
        "mps",
        "node-switches-only",
        "streams",
    ]


def test_committed_files_are_what_the_generator_builds(rebuilt: Path) -> None:
    built = sorted(p.relative_to(rebuilt) for p in rebuilt.rglob("*") if p.is_file())
    committed = sorted(p.relative_to(CAPTURES) for p in CAPTURES.rglob("*") if p.is_file())
    assert built == committed
    assert len([p for p in built if p.suffix == ".sqlite"]) == 11
    for path in built:
        if path.suffix == ".sqlite":
            old, new = export.dump(CAPTURES / path), export.dump(rebuilt / path)
            assert list(old) == list(new), path
            for table in old:
                assert old[table] == new[table], f"{path}: {table}"
        else:
            assert (CAPTURES / path).read_bytes() == (rebuilt / path).read_bytes(), path


def test_every_capture_is_small_and_says_that_it_is_synthetic() -> None:
    paths = sorted(CAPTURES.rglob("*.sqlite"))
    assert len(paths) == 11
    for path in paths:
        assert path.stat().st_size < 1_500_000, path
        metadata = dict(rows(path, "SELECT name, value FROM META_DATA_EXPORT"))
        assert metadata[b"EXPORT_PRODUCT_NAME"] == b"pyanalyze fixture"
        assert metadata[b"EXPORT_SCHEMA_VERSION"] == b"3.24.18"


def test_tables_are_declared_like_those_of_a_real_export() -> None:
    """Column names, types, NOT NULL and primary keys, against exports written by nsys itself."""
    real = [
        CORPUS / "exports" / "ctxsw-ada-timeslice" / "utils__report1.nsys2026.sqlite",
        CORPUS / "exports" / "apax-4070" / "report1.nsys2026.sqlite",  # has NVTX_EVENTS
    ]
    if not all(path.is_file() for path in real):
        pytest.skip(f"no real exports at {CORPUS}; set PYANALYZE_CORPUS")
    declared: dict[str, list[tuple[Any, ...]]] = {}
    for path in real:
        declared = {name: columns for name, (columns, _) in export.dump(path).items()} | declared
    compared = set()
    for path in sorted(CAPTURES.rglob("*.sqlite")):
        for name, (columns, _) in export.dump(path).items():
            assert columns == declared[name], f"{path.name}: {name}"
            compared.add(name)
    assert compared == set(export.TABLES)


# -- the rules of the simulation ----------------------------------------------------------------------


def slices(path: Path) -> dict[int, list[tuple[int, int]]]:
    """Residency per hardware context, paired here from the rows (no record is missing where this is used)."""
    sql = "SELECT tag, contextId, timestamp FROM GPU_CONTEXT_SWITCH_EVENTS ORDER BY timestamp, seqNo"
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, int] = {}
    for tag, context, time in rows(path, sql):
        if tag == 8:
            assert not begun, f"context {context} restored at {time} while another one is resident"
            begun[context] = time
        elif tag == 7:
            found[context].append((begun.pop(context), time))
    assert not begun
    return found


WITH_SWITCHES = {
    "containers-same-pid": "containers-same-pid/node.sqlite",
    "demo-time-slicing": "demo-time-slicing.sqlite",
    "exclusive": "exclusive.sqlite",
    "mps": "mps.sqlite",
    "node-switches-only": "node-switches-only.sqlite",
}


@pytest.mark.parametrize("name", sorted(WITH_SWITCHES))
def test_switch_records_give_the_residency_of_the_books_and_never_overlap(name: str) -> None:
    book = truth(name)
    found = slices(CAPTURES / WITH_SWITCHES[name])
    assert set(found) == {t["hw_context"] for t in book["tenants"]}
    for tenant in book["tenants"]:
        mine = found[tenant["hw_context"]]
        assert sum(end - start for start, end in mine) == tenant["resident_ns"]
        assert len(mine) == tenant["slices"]
    every = sorted(interval for mine in found.values() for interval in mine)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(every))


@pytest.mark.parametrize("name", NAMES)
def test_residency_gaps_and_idle_time_make_up_the_window(name: str) -> None:
    book = truth(name)
    resident = {t["group"]: t["resident_ns"] for t in book["tenants"]}
    window = book["window"]["end_ns"] - book["window"]["start_ns"]
    assert sum(resident.values()) + book["switches"]["total_gap_ns"] + book["idle_ns"] == window


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_charged_more_than_it_was_busy_or_resident(name: str) -> None:
    tenants = truth(name)["tenants"]
    assert tenants
    for tenant in tenants:
        assert tenant["charged_ns"] <= min(tenant["busy_ns"], tenant["resident_ns"])


@pytest.mark.parametrize("name", ["containers-same-pid", "demo-time-slicing", "exclusive", "lost-records", "mig"])
def test_kernels_get_exactly_their_work_while_resident(name: str) -> None:
    """Where a context never wants more SMs than there are and saving takes no time, residency is work."""
    checked = 0
    for tenant in truth(name)["tenants"]:
        for kernel in tenant["kernels"].values():
            assert kernel["while_resident_ns"] == pytest.approx(kernel["work_ns"], abs=2 * kernel["n"])
            checked += kernel["n"]
    assert checked > 100


def test_slices_and_gaps_are_those_that_were_asked_for() -> None:
    book = truth("demo-time-slicing")
    assert book["slices"]["median_expired_ns"] == pytest.approx(2_100_000, rel=0.02)
    assert book["switches"]["median_gap_ns"] == pytest.approx(40_000, rel=0.12)
    assert book["slices"]["endings"]["yielded"] > 0


def test_three_busy_tenants_are_slowed_about_threefold() -> None:
    tenants = {t["name"]: t for t in truth("demo-time-slicing")["tenants"]}
    for letter in "AB":
        kernels = tenants[letter]["kernels"].values()
        alone = sum(k["alone"]["mean_ns"] for k in kernels)
        contended = sum(k["contended"]["mean_ns"] for k in kernels)
        assert 2.3 < contended / alone < 3.3


def test_two_groups_take_turns_by_hand() -> None:
    """Two kernels of 5 and 3 ms, slices of exactly 2 ms, gaps of exactly 50 us: worked out on paper.

    Both are enqueued at 3 us; a launch latency of 1.1 us counts into the first slice; the host needs
    4 us to come back from its wait and exit, the context stays until then.
    """

    def once(work_ns: int) -> Any:
        def program(tenant: simulation.Tenant, rng: Any) -> Iterator[tuple[Any, ...]]:
            spec = simulation.KernelSpec("k", "k", work_ns)
            yield ("wait", [(yield ("launch", 13, spec))])

        return program

    tenants = [simulation.Tenant("a", 1, 10, once(5_000_000)), simulation.Tenant("b", 2, 20, once(3_000_000))]
    tenants[1].group = 1
    run = simulation.Simulation(tenants, 1, 20_000_000, slice_ns=2_000_000, slice_jitter=0, gap_ns=50_000, gap_jitter=0)
    run._jitter = lambda value, fraction: value  # type: ignore[method-assign]  # no jitter anywhere
    run.run()
    assert [(r.group, r.start, r.end, r.ending) for r in run.residency] == [
        (0, 3_000, 2_003_000, "expired"),
        (1, 2_053_000, 4_053_000, "expired"),
        (0, 4_103_000, 6_103_000, "expired"),
        (1, 6_153_000, 7_154_100, "yielded"),
        (0, 7_204_100, 8_209_200, "exited"),
    ]
    (a,), (b,) = tenants[0].kernels(), tenants[1].kernels()
    assert (a.start, a.end) == (4_100, 8_205_200)
    assert (b.start, b.end) == (2_054_100, 7_154_100)


# -- what single captures promise ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo-time-slicing", "mps", "streams", "exclusive", "mig"])
def test_kernel_rows_sum_to_the_truth_and_follow_their_launch(name: str) -> None:
    path = CAPTURES / f"{name}.sqlite"
    sums = {
        (pid, text.decode()): (n, total)
        for pid, text, n, total in rows(
            path,
            "SELECT (globalPid >> 24) & 0xFFFFFF, value, count(*), sum(end - start)"
            " FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = id GROUP BY 1, 2",
        )
    }
    expected = {
        (t["pid"], kernel): (k["n"], k["total_ns"])
        for t in truth(name)["tenants"]
        if t["traced"]
        for kernel, k in t["kernels"].items()
    }
    assert sums == expected
    launched = rows(
        path,
        "SELECT k.start - r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r"
        " ON r.correlationId = k.correlationId AND r.globalTid & ~0xFFFFFF = k.globalPid",
    )
    assert len(launched) == sum(n for n, _ in expected.values())
    assert all(delay > 0 for (delay,) in launched)


def test_correlation_ids_of_two_processes_collide() -> None:
    path = CAPTURES / "demo-time-slicing.sqlite"
    sql = "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1 HAVING count(DISTINCT globalPid) > 1"
    assert len(rows(path, sql)) > 20


def test_containers_share_a_pid_and_start_250_ms_apart() -> None:
    folder = CAPTURES / "containers-same-pid"
    starts = []
    for pod in ("pod-a", "pod-b"):
        path = folder / f"{pod}.sqlite"
        pids = rows(path, "SELECT DISTINCT (globalPid >> 24) & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_KERNEL")
        assert pids == [(1,)]
        assert "GPU_CONTEXT_SWITCH_EVENTS" not in table_names(path)
        starts += [utc for (utc,) in rows(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")]
    assert starts[1] - starts[0] == 250_000_000
    hosts = rows(folder / "node.sqlite", "SELECT DISTINCT (globalPid >> 24) & 0xFFFFFF FROM GPU_CONTEXT_SWITCH_EVENTS")
    assert set(hosts) == {(40_211,), (40_307,)}


def test_node_capture_has_no_cuda_tables_and_every_tag() -> None:
    path = CAPTURES / "node-switches-only.sqlite"
    assert not {t for t in table_names(path) if t.startswith("CUPTI")}
    tags = {tag for (tag,) in rows(path, "SELECT DISTINCT tag FROM GPU_CONTEXT_SWITCH_EVENTS")}
    assert tags == {1, 3, 6, 7, 8, 9}


def test_hostile_names_reach_the_file_unchanged() -> None:
    path = CAPTURES / "hostile-names.sqlite"
    sql = "SELECT DISTINCT value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = id"
    names = {name for (name,) in rows(path, sql)}
    assert len(names) == 8
    broken = bytes.fromhex(truth("hostile-names")["broken_name_hex"])
    assert broken in names
    with pytest.raises(UnicodeDecodeError):
        broken.decode()
    assert max(map(len, names)) == 10_240
    assert any("\u202e".encode() in name for name in names)
    assert rows(path, "SELECT DISTINCT typeof(value) FROM StringIds") == [(b"text",)]


def test_lost_records_are_lost_as_counted() -> None:
    book = truth("lost-records")["records"]
    found = rows(
        CAPTURES / "lost-records.sqlite",
        "SELECT seqNo, tag, contextId, timestamp, (globalPid >> 24) & 0xFFFFFF FROM GPU_CONTEXT_SWITCH_EVENTS"
        " ORDER BY timestamp",
    )
    assert len(found) == book["kept"]
    steps = [(b[0] - a[0]) % 65_536 for a, b in itertools.pairwise(found)]
    assert sum(step > 1 for step in steps) == book["sequence_gaps"] == 4
    assert sum(step - 1 for step in steps) == book["lost"] == 9
    sequence = [row[0] for row in found]
    assert book["wraps"] == 1
    assert 0 in sequence and 65_535 in sequence
    assert sum(row[2] == 0 and row[4] == 0 for row in found) == book["unprivileged"] > 0
    assert book["repeated_restores"] == 1
    assert all(a[3] < b[3] for a, b in itertools.pairwise(found))


def test_every_capture_carries_the_secret_that_must_never_be_shown() -> None:
    paths = sorted(CAPTURES.rglob("*.sqlite"))
    assert len(paths) == 11
    for path in paths:
        values = rows(path, "SELECT value FROM META_DATA_CAPTURE UNION ALL SELECT value FROM TARGET_INFO_SYSTEM_ENV")
        assert sum(b"do-not-show-me" in value for (value,) in values) == 2


def test_samples_are_those_of_nvidia_smi_in_local_time() -> None:
    lines = (CAPTURES / "demo-time-slicing.query-gpu.csv").read_text().splitlines()
    assert lines[0].split(", ")[:5] == ["timestamp", "index", "uuid", "name", "utilization.gpu [%]"]
    assert len(lines) > 12
    assert all(len(line.split(", ")) == 12 for line in lines)
    # Zero of the capture is 05:26:53.589 UTC, so 14:26:53.589 in UTC+9; sampling began 57 ms before.
    assert lines[1].startswith("2026/03/14 14:26:53.532, 0, GPU-")
    start = rows(CAPTURES / "demo-time-slicing.sqlite", "SELECT utcTime, localTime FROM TARGET_INFO_SESSION_START_TIME")
    assert start == [(b"2026-03-14T05:26:53", b"2026-03-14T14:26:53")]
    apps = (CAPTURES / "demo-time-slicing.compute-apps.csv").read_text().splitlines()
    assert {line.split(", ")[2] for line in apps[1:]} == {"41201", "41305", "41377"}
