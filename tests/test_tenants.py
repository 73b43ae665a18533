"""Who is who over several captures, and when each of them was: against the simulation's books."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import generate
import polars as pl
import pytest
from click.testing import CliRunner
from shared_sessions import load

import pyanalyze
from pyanalyze.analysis.quality import match_quality
from pyanalyze.cli import cli
from pyanalyze.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def pods(fixtures: Path) -> tuple[Path, dict[str, Any]]:
    truth = json.loads((fixtures / "containers-same-pid.truth.json").read_text(encoding="utf-8"))
    return fixtures / "containers-same-pid", truth


def test_a_capture_names_its_tenant(fixtures: Path) -> None:
    """Both pods have pid 1: only the file tells them apart."""
    folder, truth = pods(fixtures)
    named = {"ours": folder / "pod-a.sqlite", "theirs": folder / "pod-b.sqlite"}
    session = pyanalyze.load(folder / "node.sqlite", tenants=named)
    assert len(session.paths) == 3
    found = dict(session.tenants.select("name", "host_pid").iter_rows())
    host_pids = {tenant["name"]: tenant["host_pid"] for tenant in truth["tenants"]}
    assert found == {"ours": host_pids["pod-a"], "theirs": host_pids["pod-b"]}
    # The same captures given twice are read once.
    again = pyanalyze.load(folder, tenants=named)
    assert len(again.paths) == 3
    assert set(again.tenants["name"]) == {"ours", "theirs"}


def test_the_bridge_between_pids_says_how_sure_it_is(fixtures: Path) -> None:
    session = load(pods(fixtures)[0])
    assert session.tenants["basis"].cast(pl.String).to_list() == ["inferred", "inferred"]
    assert all(rate >= 0.95 for rate in session.tenants["match_rate"])
    said = session.quality.filter(pl.col("name").cast(pl.String) == "pid_bridged")["detail"].to_list()
    assert len(said) == 2
    assert all("kernel starts inside its residency, at most" in text for text in said)


@pytest.mark.parametrize("seed", [2, 3])
def test_one_picture_of_a_node_and_its_pods(seed: int) -> None:
    folder = generate.built("containers-same-pid", seed)
    truth = json.loads((folder / "containers-same-pid.truth.json").read_text(encoding="utf-8"))
    session = load(folder / "containers-same-pid")
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    found = {row["host_pid"]: row for row in usage.iter_rows(named=True)}
    assert set(found) == {tenant["host_pid"] for tenant in truth["tenants"]}
    for tenant in truth["tenants"]:
        row = found[tenant["host_pid"]]
        assert row["busy_ns"] == tenant["busy_ns"]
        assert row["attributed_ns"] == pytest.approx(tenant["attributed_ns"], rel=0.01)


def test_what_was_written_down_at_capture_time_names_pods_and_containers(fixtures: Path, tmp_path: Path) -> None:
    folder, truth = pods(fixtures)
    pids = {tenant["name"]: tenant["host_pid"] for tenant in truth["tenants"]}
    node = {
        "schema": "pyanalyze.node/1",
        "processes": {
            str(pids["pod-a"]): {"namespace": "prod", "pod": "service-0", "container": "main", "environment": {}},
            str(pids["pod-b"]): {"container_id": 64 * "a", "environment": {}},
        },
    }
    (tmp_path / "node.json").write_text(json.dumps(node))
    session = pyanalyze.load(folder, context=tmp_path / "node.json")
    found = {row["host_pid"]: (row["pod"], row["container"]) for row in session.tenants.iter_rows(named=True)}
    assert found == {pids["pod-a"]: ("prod/service-0", "main"), pids["pod-b"]: (None, 64 * "a")}
    assert {t.pod for t in session.report().devices[0].tenants} == {"prod/service-0", None}


def test_without_switch_records_nvml_and_the_node_tell_the_pid_on_the_host(fixtures: Path, tmp_path: Path) -> None:
    """One pod's recording; NVML lists two programs of its name; /proc said which of them is pid 1 in its namespace."""
    folder, truth = pods(fixtures)
    ours, theirs = (tenant["host_pid"] for tenant in truth["tenants"])
    uuid = truth["devices"][0]["gpu_uuid"]
    listed = tmp_path / "apps.csv"
    rows = [f"2026/02/15 02:19:04.{n}34, {uuid}, {pid}, python3, 500 MiB" for n in (1, 2) for pid in (ours, theirs)]
    header = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]"
    listed.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")

    def tied(nspids: dict[int, list[int]]) -> dict[str, Any]:
        node = {
            "schema": "pyanalyze.node/1",
            "processes": {
                str(pid): {"nspids": inner, "namespace": "team", "pod": f"pod-{pid}"} for pid, inner in nspids.items()
            },
        }
        (tmp_path / "node.json").write_text(json.dumps(node), encoding="utf-8")
        session = pyanalyze.load(folder / "pod-a.sqlite", samples=listed, context=tmp_path / "node.json")
        (row,) = session.tenants.filter("traced").iter_rows(named=True)
        return row

    found = tied({ours: [ours, 1], theirs: [theirs, 7]})
    assert (found["host_pid"], found["pod"], found["basis"]) == (ours, f"team/pod-{ours}", "inferred")
    assert tied({ours: [ours, 1], theirs: [theirs, 1]})["host_pid"] is None, "both are pid 1 where they live"
    assert tied({})["host_pid"] is None, "two of that program"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_memory_that_comes_and_goes_together_tells_pods_apart(seed: int) -> None:
    """Pid 1 and one program in both, no switch records: what each allocates and what NVML saw each of them hold."""
    folder = generate.built("containers-memory", seed)
    truth = json.loads((folder / "containers-memory.truth.json").read_text(encoding="utf-8"))
    true = {tenant["name"]: tenant["host_pid"] for tenant in truth["tenants"]}
    (listed,) = folder.glob("*.csv")
    for pod in ("pod-a", "pod-b"):
        capture = folder / "containers-memory" / f"{pod}.sqlite"
        session = pyanalyze.load(capture, samples=listed)
        (row,) = session.tenants.filter("traced").iter_rows(named=True)
        assert (row["pid"], row["host_pid"], row["basis"]) == (1, true[pod], "inferred")
        said = session.quality.filter(pl.col("name").cast(pl.String) == "pid_bridged")["detail"].to_list()
        assert len(said) == 1
        assert "steps of its memory at the same times" in said[0]
        # Without the allocations both are python3, and both hold gigabytes: that is no evidence, and is said so.
        plain = pyanalyze.load(capture, samples=listed, tables=("kernels",))
        assert plain.tenants.filter("traced")["host_pid"].to_list() == [None]
        unsure = plain.quality.filter(pl.col("name").cast(pl.String) == "pid_unmatched")["detail"].to_list()
        assert len(unsure) == 1
        assert all(str(pid) in unsure[0] for pid in true.values())
    both = pyanalyze.load([folder / "containers-memory" / f"{pod}.sqlite" for pod in true], samples=listed)
    found = {row["capture"]: row["host_pid"] for row in both.tenants.filter("traced").iter_rows(named=True)}
    names = dict(both.capture.select("capture", "path").iter_rows())
    assert set(found.values()) == set(true.values())
    assert all(found[number] == true[name.rsplit("/", 1)[-1].removesuffix(".sqlite")] for number, name in names.items())


def test_names_that_fit_nobody_are_refused(fixtures: Path) -> None:
    folder, _ = pods(fixtures)
    with pytest.raises(UsageError, match="no tenant has that pid"):
        pyanalyze.load(folder, tenants={"nobody": 999_999})
    with pytest.raises(UsageError, match="that capture has no traced process"):
        pyanalyze.load(folder, tenants={"node": folder / "node.sqlite"})
    result = CliRunner().invoke(cli, ["residency", str(folder), "--tenant", "service=nowhere.sqlite"])
    assert result.exit_code == 2
    assert "neither a pid nor an existing capture" in result.output
    named = CliRunner().invoke(
        cli, ["residency", str(folder / "node.sqlite"), "--tenant", f"service={folder / 'pod-a.sqlite'}"]
    )
    assert named.exit_code == 0
    assert "service" in named.output


def test_a_named_tenant_may_be_missing_in_a_part_of_the_time(fixtures: Path) -> None:
    """The page judges parts of the time by themselves, and one of the demo's tenants comes late: no error, no guess."""
    demo = fixtures / "demo-time-slicing.sqlite"
    plain = load(demo)
    for who in plain.tenants.filter(pl.col("pid").is_not_null()).iter_rows(named=True):
        session = pyanalyze.load(demo, tenants={"named": who["pid"]})
        found = {t.tenant_id: t.name for t in session.report().devices[0].tenants}
        assert found == {
            row["tenant_id"]: "named" if row["tenant_id"] == who["tenant_id"] else row["name"]
            for row in plain.tenants.iter_rows(named=True)
        }
        assert session.report().devices[0].segments == plain.report().devices[0].segments
        # app_b begins after 225 ms, app_c after 365 ms (the books); a pid that nobody ever has stays an error.
        part = session.window(end="200ms")
        assert part.absent() == (() if who["name"] == "app_a" else ("named",))
        assert part.report().devices[0].sharing.mode
    with pytest.raises(UsageError, match="--tenant named=999999: no tenant has that pid"):
        pyanalyze.load(demo, tenants={"named": 999_999}).window(end="200ms")

    folder, _ = pods(fixtures)
    for verb in ("summary", "classify"):
        result = CliRunner().invoke(cli, [verb, str(folder), "--tenant", f"b={folder / 'pod-b.sqlite'}"])
        assert result.exit_code == 0, result.output
    result = CliRunner().invoke(cli, ["classify", str(demo), "--tenant", "late=41305", "--end", "200ms"])
    assert result.exit_code == 0
    assert "--tenant late: no such tenant in the chosen time or on the chosen GPU" in result.output


def test_two_recordings_of_one_gpu_are_placed_by_the_records_both_saw() -> None:
    folder = generate.built("time-slicing-pair")
    truth = json.loads((folder / "time-slicing-pair.truth.json").read_text(encoding="utf-8"))
    names = ["time-slicing-pair", "time-slicing-pair.2023"]
    origins = [next(c["origin_ns"] for c in truth["captures"] if c["name"] == name) for name in names]
    session = load([folder / f"{name}.sqlite" for name in names], tables=("switch_events",))
    placed = session.capture.select("clock_offset_ns", "clock_uncertainty_ns").rows()
    assert placed[0] == (0, 0)
    offset, uncertainty = placed[1]
    assert uncertainty <= 1000
    assert abs(offset - (origins[1] - origins[0])) <= uncertainty
    # Both hold the same records: residency counts once.
    alone = load(folder / "time-slicing-pair.sqlite", tables=("switch_events",))
    assert session.residency.height == alone.residency.height


def test_runs_of_one_gpu_at_different_times_get_no_common_verdict() -> None:
    folder = generate.built("running-example-time-slicing", solo=True)
    run, alone = (folder / f"running-example-time-slicing{end}.sqlite" for end in ("", ".solo.A"))
    together = load([run, alone])
    with pytest.raises(
        UsageError, match=r"solo\.A\.sqlite and .*slicing\.sqlite are of one GPU, but of different times"
    ):
        together.classify()
    # Tables and exports of both are what they are, and a part of one run is one run.
    assert together.kernels.height > load(run).kernels.height
    part = together.window("0ms", "200ms")
    assert [verdict.mode for verdict in part.classify()] == ["time-slicing"]


def test_captures_that_do_not_overlap_in_time_are_said_so(fixtures: Path) -> None:
    captures = [fixtures / "exclusive.sqlite", fixtures / "demo-time-slicing.sqlite"]
    said = load(captures).quality.filter(pl.col("name").cast(pl.String) == "captures_apart")
    assert said.height == 1
    assert "s away from all captures before it" in said["detail"][0]
    together = load(pods(fixtures)[0]).quality["name"].cast(pl.String).to_list()
    assert "captures_apart" not in together
    assert "clocks_contradict" not in together


def _inside(capture: Path, pid: int, resident: tuple[int, ...]) -> tuple[int, int]:
    """Kernels of a process, and those that start while one of others is resident (RESTORE_START to SAVE_END), by SQL."""
    with contextlib.closing(sqlite3.connect(capture)) as db:
        edges = db.execute(
            "SELECT contextId, timestamp, tag FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag IN (7, 8) "
            f"AND globalPid >> 24 & 0xFFFFFF IN ({', '.join(map(str, resident))}) ORDER BY contextId, timestamp"
        ).fetchall()
        starts = [
            start
            for (start,) in db.execute(
                f"SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 & 0xFFFFFF = {pid}"
            )
        ]
    spans = [
        (start, end)
        for (context, start, tag), (same, end, after) in itertools.pairwise(edges)
        if context == same and (tag, after) == (8, 7)
    ]
    return len(starts), sum(any(begin <= at < end for begin, end in spans) for at in starts)


def test_launches_of_mps_clients_match_the_residency_of_their_group(hardware: Path) -> None:
    """Records name either client for the one context: kernels of one start while they name the other."""
    capture = hardware / "mps-A-B-beside-C.sqlite"
    of_group = [_inside(capture, pid, (951, 952)) for pid in (951, 952)]
    assert [count for count, _ in of_group] == [429, 445]
    # The recording begins and ends within residency intervals, and with them some of the kernels.
    assert all(inside > 0.99 * count for count, inside in of_group)
    session = load(capture)
    assert "low_match_rate" not in session.quality["name"].cast(pl.String)
    assert not [row for row in session.report().quality if row.name == "low_match_rate"]

    # Of processes that no group is known of, the same kernels are an alarm.
    alone = [_inside(capture, pid, (pid,)) for pid in (951, 952, 953)]
    shares = [inside / count for count, inside in alone]
    assert [round(share, 2) for share in shares] == [0.46, 0.8, 1.0]
    quality = match_quality(session.tables, dict).filter(pl.col("name") == "low_match_rate")
    assert quality.select("capture", "count", "detail").rows() == [
        (0, 2, "device 0: pid 951 46 %; device 0: pid 952 80 %")
    ]
