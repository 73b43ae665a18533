"""What we say of the synthetic captures against the books of the simulation that made them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import generate
import polars as pl
import pytest
from shared_sessions import load

import pyanalyze
from pyanalyze.inputs.nsys_recipes import compare_kernel_summary, read_report
from pyanalyze.session import Session


def loaded(fixtures: Path, name: str) -> tuple[Session, dict[str, Any]]:
    capture = fixtures / name if (fixtures / name).is_dir() else fixtures / f"{name}.sqlite"
    truth: dict[str, Any] = json.loads((fixtures / f"{name}.truth.json").read_text(encoding="utf-8"))
    return load(capture), truth


def test_every_truth_is_looked_at(fixtures: Path) -> None:
    assert {path.name.removesuffix(".truth.json") for path in fixtures.glob("*.truth.json")} == set(generate.COMMITTED)


@pytest.mark.parametrize("name", generate.COMMITTED)
def test_the_mode_is_the_true_one(fixtures: Path, name: str) -> None:
    session, truth = loaded(fixtures, name)
    (device,) = truth["devices"]
    assert [verdict.mode for verdict in session.classify()] == [device["mode"]]


def recorded(switches: bool) -> list[tuple[str, str]]:
    """Scenario and capture of every recording of one whole device, with or without exact switch records."""
    found = []
    for name in generate.scenario_names():
        scenario = generate.scenario(name)
        boards = scenario["board"]
        if len(boards) > 1 or boards[0].get("mig") or boards[0].get("vgpu"):
            continue
        for capture in scenario["capture"]:
            exact = capture.get("switches") and capture.get("privileged", True) and not capture.get("lost")
            if bool(exact) is switches and not capture.get("in_container"):
                found.append((name, capture["name"]))
    return found


def generated(name: str, capture: str) -> tuple[Session, dict[str, Any], dict[str, Any]]:
    folder = generate.built(name)
    truth: dict[str, Any] = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
    return (
        load(folder / f"{capture}.sqlite"),
        truth,
        next(c for c in truth["captures"] if c["name"] == capture),
    )


@pytest.mark.parametrize(("name", "capture"), recorded(switches=True))
def test_residency_switches_and_attributed_time_are_exact(name: str, capture: str) -> None:
    """Against the books, to the nanosecond, on every generated recording with all its switch records."""
    session, truth, recording = generated(name, capture)
    (device,) = truth["devices"]
    found = session.residency.sort("start_ns")
    groups = {tenant["group"]: (tenant["record_pid"], tenant["hw_context"]) for tenant in truth["tenants"]}
    assert set(found.select("pid", "hw_context").unique().rows()) == set(groups.values())
    for group, (pid, context) in groups.items():
        ours = found.filter((pl.col("pid") == pid) & (pl.col("hw_context") == context)).select("start_ns", "end_ns")
        true = [(start, end) for g, start, end in device["residency"] if g == group]
        open_end = [(start, end) for start, end in true if end == truth["window"]["end_ns"]]
        rows = ours.rows()
        if open_end:
            # The recording ended in this slice: no record ends it, and only its own work says how long it lasted.
            start, end = rows.pop()
            assert start == true.pop()[0]
            assert end <= open_end[0][1]
        assert rows == true
    handed_over = session.switches.filter(pl.col("kind").is_in(["switch", "creation"]))
    # An engine that was idle for less than a millisecond between two contexts looks like a long switch.
    starts = sorted(device["residency"], key=lambda slice_: slice_[1])
    pauses = [b[1] - a[2] for a, b in itertools.pairwise(starts) if a[0] != b[0] and b[1] - a[2] < 1_000_000]
    assert handed_over.height == len(pauses)
    assert handed_over["gap_ns"].sum() == sum(pauses)
    assert device["switches"]["count"] <= len(pauses) <= device["switches"]["count"] + 2
    if recording["all_tags"] and len(pauses) == device["switches"]["count"]:
        assert handed_over["full_ns"].sum() == device["switches"]["total_full_ns"]

    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    traced = {row["pid"]: row for row in usage.iter_rows(named=True) if row["busy_ns"] is not None}
    assert set(traced) == {tenant["pid"] for tenant in recording["traced"]}
    names = {tenant["tenant"] for tenant in recording["traced"]}
    for tenant in truth["tenants"]:
        if tenant["name"] not in names:
            continue
        row = traced[tenant["pid"]]
        assert row["copy_bytes"] == tenant["copy_bytes"]
        if recording["graph_launches"]:
            continue  # a launch of a graph is one interval: the pauses between its kernels cannot be seen
        assert row["kernels"] == sum(kernel["n"] for kernel in tenant["kernels"].values())
        assert row["busy_ns"] == tenant["busy_ns"]
        assert row["attributed_ns"] == tenant["attributed_ns"]


def test_clients_are_served_by_their_server() -> None:
    """Their work goes through the server's context: time of an outsider is attributed to none of them."""
    session, truth, _ = generated("mps-outsider", "mps-outsider")
    names = dict(session.tenants.select("tenant_id", "name").iter_rows())
    served = {row["name"]: names.get(row["served_by"]) for row in session.tenants.iter_rows(named=True)}
    server = next(name for name in names.values() if name.startswith("nvidia-cuda-mps"))
    assert served == {"client-1": server, "client-2": server, server: None, "outsider": None}
    clients = [tenant for tenant in truth["tenants"] if tenant["mps_client"]]
    assert all(tenant["attributed_ns"] < 0.95 * tenant["busy_ns"] for tenant in clients)


@pytest.mark.parametrize(("name", "capture"), recorded(switches=False))
def test_without_switch_records_nothing_is_called_observed_residency(name: str, capture: str) -> None:
    session, truth, recording = generated(name, capture)
    if not recording["switches"]:
        assert session.residency.filter(pl.col("basis") == "observed").is_empty()
        assert session.report().devices[0].context_switches is None
    names = {tenant["tenant"] for tenant in recording["traced"]}
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    busy = {row["pid"]: row["busy_ns"] for row in usage.iter_rows(named=True) if row["busy_ns"] is not None}
    if not recording["graph_launches"] and not recording["graph_launches_unseen"]:
        assert busy == {tenant["pid"]: tenant["busy_ns"] for tenant in truth["tenants"] if tenant["name"] in names}


def test_three_captures_of_one_gpu_are_one_picture(fixtures: Path) -> None:
    """The node's switch records and two exports with pid 1 in both: residency, attributed time and names go together."""
    session, truth = loaded(fixtures, "containers-same-pid")
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    found = {row["host_pid"]: row for row in usage.iter_rows(named=True)}
    assert set(found) == {tenant["host_pid"] for tenant in truth["tenants"]}
    for tenant in truth["tenants"]:
        row = found[tenant["host_pid"]]
        assert row["pid"] == 1
        assert (row["resident_ns"], row["busy_ns"], row["attributed_ns"]) == (
            tenant["resident_ns"],
            tenant["busy_ns"],
            tenant["attributed_ns"],
        )


def test_the_first_screen_says_switches_and_slices_as_they_were(fixtures: Path) -> None:
    for name, kind in (("demo-time-slicing", "gap"), ("node-switches-only", "full")):
        session, truth = loaded(fixtures, name)
        true = truth["devices"][0]["switches"]
        switches = session.report().devices[0].context_switches
        assert switches is not None
        assert switches.count + switches.context_creations == true["count"]
        assert switches.dropped == 0
        if kind == "full" and not switches.context_creations:
            assert switches.median_cost_ns == true["median_full_ns"]


def test_attributed_time_conserves_to_the_nanosecond(fixtures: Path) -> None:
    for name in generate.COMMITTED:
        attributed = loaded(fixtures, name)[0].kernel_attribution
        parts = attributed["attributed_ns"] + attributed["switched_out_ns"]
        assert parts.equals(attributed["end_ns"] - attributed["start_ns"], check_names=False)
        assert attributed.filter((pl.col("attributed_ns") < 0) | (pl.col("switched_out_ns") < 0)).is_empty()


def test_a_node_capture_answers_without_kernels(fixtures: Path) -> None:
    """Switch records and no CUDA tables: mode, residency and cost are answered, kernels and slowdown are missing."""
    session, _ = loaded(fixtures, "node-switches-only")
    device = session.report().devices[0]
    assert device.sharing.mode == "time-slicing"
    assert all(tenant.resident_ns and tenant.busy_ns is None for tenant in device.tenants)
    assert {"kernels", "slowdown", "occupancy"} <= {missing.what for missing in device.sharing.missing}


def test_lost_records_are_reported_not_invented(fixtures: Path) -> None:
    session, truth = loaded(fixtures, "lost-records")
    names = set(session.quality["name"].cast(pl.String))
    assert {"switch_events_lost", "switch_repeated_start", "switch_unprivileged"} <= names
    slices = session.residency
    assert slices.filter("complete").height < truth["devices"][0]["slices"]["count"]
    assert "other users" in session.tenants["name"].to_list()
    overlapping = slices.sort("start_ns").filter(pl.col("start_ns") < pl.col("end_ns").shift(1))
    assert overlapping.is_empty(), "one engine holds one context"
    for tenant in truth["tenants"][:2]:
        ours = slices.filter(pl.col("pid") == tenant["host_pid"])
        resident = int((ours["end_ns"] - ours["start_ns"]).sum())
        assert resident <= tenant["resident_ns"], "a lost record must not add residency"
        assert resident >= 0.9 * tenant["resident_ns"]


def test_samples_land_on_the_capture_clock(fixtures: Path) -> None:
    """nvidia-smi wrote local time (UTC+9); the zone stands in the capture."""
    samples = sorted(fixtures.glob("demo-time-slicing.*.csv"))
    assert len(samples) == 2
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite", samples=samples)
    placed = session.nvml_samples
    assert placed["time_ns"].null_count() == 0
    assert placed["device_id"].null_count() == 0
    # The sampler began 57 ms before the recording and ran every 100 ms.
    first = min(placed.filter(pl.col("metric") == "gpu_utilization_pct")["time_ns"].to_list())
    assert abs(first + 57_000_000) < 1_000_000
    listed = {observed[0] for observed in session.cases()[0].nvml_processes or ()}
    assert listed == {41201, 41305, 41377}


def test_one_recording_given_twice_is_one_tenant(fixtures: Path, tmp_path: Path) -> None:
    """Read twice, one process would look like two whose kernels overlap without a switch: MPS."""
    copy = tmp_path / "again.sqlite"
    copy.write_bytes((fixtures / "exclusive.sqlite").read_bytes())
    session = load([fixtures / "exclusive.sqlite", copy])
    assert [verdict.mode for verdict in session.classify()] == ["exclusive"]
    assert session.tenants.height == 1
    assert session.quality.filter(pl.col("name") == "duplicate_capture")["detail"].str.contains(
        "again.sqlite"
    ).to_list() == [True]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mig-a30/report1", "mig-a30/report1.nsys2026"),
        ("mordred/report1@bb50baf", "mordred/report1.nsys2026"),
        ("rtx3090-gpumetrics/report2.nsys2022", "rtx3090-gpumetrics/report2.nsys2026"),
    ],
)
def test_exports_of_one_report_in_two_schemas_are_one_recording(corpus: Path, one: str, other: str) -> None:
    session = load([corpus / "exports" / f"{name}.sqlite" for name in (one, other)])
    assert session.tenants.height == 1
    assert session.capture.height == 1


def test_a_session_shows_itself_in_a_notebook(fixtures: Path) -> None:
    """A useful summary, with hostile names escaped."""
    html = loaded(fixtures, "hostile-names")[0]._repr_html_()
    assert "exclusive" in html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\u202e" not in html


def test_an_unknown_samples_file_is_a_warning_not_a_failure(fixtures: Path, tmp_path: Path) -> None:
    strange = tmp_path / "notes.txt"
    strange.write_text("the GPU was slow on Tuesday\n")
    session = pyanalyze.load(fixtures / "exclusive.sqlite", samples=strange, context=strange)
    # One file, whichever option names it.
    assert session.quality.filter(pl.col("name") == "samples_unread").height == 1


def test_our_kernel_summary_is_nvidias(corpus: Path) -> None:
    """Through the public face: count, total, mean, median, min, max per kernel name, tolerance 0."""
    reports = sorted(corpus.glob("expected/*_cuda_gpu_kern_sum.csv"))
    assert len(reports) == 44
    for path in reports:
        folder, _, name = path.name.removesuffix("_cuda_gpu_kern_sum.csv").partition("__")
        session = load(corpus / "exports" / folder / f"{name}.sqlite", tables=("kernels",))
        assert compare_kernel_summary(read_report(path).rows, session.kernels).is_empty(), path.name


@pytest.mark.parametrize("name", ["time-slicing-open-loop", "time-slicing-pair", "mps-outsider"])
def test_nobody_holds_more_than_the_window(name: str) -> None:
    """Residency before the first kernel (contexts that are created) is outside of the window that shares are of."""
    session, _, _ = generated(name, name)
    device = session.report().devices[0]
    assert device.window is not None
    assert device.context_switches is not None
    held = sum(tenant.resident_ns or 0 for tenant in device.tenants)
    window = device.window.end_ns - device.window.start_ns
    assert 0.5 * window < held <= window
    assert held + (device.context_switches.total_cost_ns or 0) <= 1.001 * window
