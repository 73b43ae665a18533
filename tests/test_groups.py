"""Groups of work inside a process as tenants (--by): by stream, context, range, kernel name, collectives."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from command_line import run
from exports import MS, US, call, copy, kernel, nvtx_range, resident, write
from group_programs import FIRST_PID, Process, random_process, write_processes
from test_streams import everything, nccl_1428

import pyanalyze
from pyanalyze.errors import UsageError
from pyanalyze.report.summary import SUMMARY_COLUMNS, render_summary
from pyanalyze.report.text import render_text
from pyanalyze.tables.groups import MOST_GROUPS, parse_by

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyanalyze.session import Session


def kernels_by_tenant(session: Session) -> dict[str, int]:
    """Kernels of every group."""
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"]).filter(pl.col("kernels") > 0)
    return dict(usage.select("name", "kernels").iter_rows())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("streams", "choose from process, stream"),
        ("stream=7", "takes no value"),
        ("kernel", "needs a regular expression"),
        ("kernel=", "needs a regular expression"),
        ("kernel=a(", "not a regular expression"),
    ],
)
def test_what_is_no_grouping(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_by(text)


def test_commas_inside_brackets_belong_to_the_expression() -> None:
    assert parse_by(r"kernel=a{1,2},[b,c]\,d").patterns == ("a{1,2}", r"[b,c]\,d")


def test_nccl_beside_attention_and_gemm(tmp_path: Path) -> None:
    """NVIDIA/nccl#1428: 0.18 to 0.33 ms, 1.18 to 2.08 ms, and 2.5 times as long for the collective."""
    path = nccl_1428(tmp_path / "a.sqlite")
    session = pyanalyze.load(path, by="stream")
    (device,) = session.report().devices
    gemm, nccl = (tenant.tenant_id for tenant in device.tenants)
    assert [(t.name, t.group_of, t.capture, t.pid, t.served_by) for t in device.tenants] == [
        ("gemm (stream 7)", "train", 0, 41, None),
        ("ncclDevKernel_AllReduce (stream 20)", "train", 0, 41, None),
    ]
    assert device.interference is not None and device.interference.matrix is not None
    assert [
        (k.tenant_id, k.kernel, round(k.ratio, 2), k.beside, k.n, k.n_solo) for k in device.interference.kernels
    ] == [
        (nccl, "ncclDevKernel_AllReduce", 2.5, gemm, 10, 10),
        (gemm, "gemm", 1.76, nccl, 10, 10),
        (gemm, "attention", 1.83, nccl, 10, 10),
    ]
    # All that each executed: 10 x (0.18 + 1.18 + 0.33 + 2.08) ms of which 20 x 1.36 solo; 10 x (0.964 + 2.41), 20 x 0.964.
    # One by one beside each other: 10 x (0.964 + 1.36) ms solo in 10 x 2.41 ms.
    whole = [tenant.slowdown.resident and tenant.slowdown.resident.value for tenant in device.tenants]
    assert whole == pytest.approx([37.7 / 27.2, 33.74 / 19.28])
    assert device.interference.speedup_over_serial == pytest.approx(23.24 / 24.1)
    cells = {(c.victim, c.aggressor): c.execution for c in device.interference.matrix}
    assert cells == {
        (gemm, nccl): pytest.approx(37.7 / 27.2),
        (nccl, gemm): pytest.approx(33.74 / 19.28),
    }
    assert all(t.slowdown.elapsed is None and t.slowdown.latency is None for t in device.tenants)
    assert device.sharing.mode == "streams"
    assert [(r.tenants, r.relation) for r in device.relations] == [((gemm, nccl), "side-by-side")]


def told_and_true(
    session: Session, processes: Sequence[Process]
) -> list[tuple[float, float, float | None, float | None]]:
    """Of each group the slowdown as told, the true one, and the interval; each group has one."""
    (device,) = session.interference()
    found = []
    for tenant in device.tenants:
        row = session.tenants.row(tenant.tenant_id, named=True)
        process = processes[row["pid"] - FIRST_PID]
        stream = next(g.stream for g in process.groups if f"stream {g.stream}" in tenant.name)
        told = tenant.slowdown.resident
        assert told is not None, tenant
        found.append((told.value, process.slowdown(stream), told.low, told.high))
    return found


def test_three_groups_at_once(tmp_path: Path) -> None:
    """Each solo, in pairs, and all at once: also of kernels that two others covered it is known how much longer they
    took, and each of the two has its part."""
    process = random_process(random.Random(5), groups=3, name="k", scatter=0.02)
    for streams in ([7], [8], [9], [7, 8], [7, 9], [8, 9], [7, 8, 9]):
        process.run(streams, 40)
    session = pyanalyze.load(write_processes(tmp_path / "a.sqlite", [process]), by="stream")
    for told, true, low, high in told_and_true(session, [process]):
        assert told == pytest.approx(true, rel=0.01)
        assert low is not None and high is not None and low < told < high < 1.1 * low
    (device,) = session.interference()
    assert device.figures is not None and device.figures.matrix is not None
    stream_of = {
        row["tenant_id"]: int(row["name"].rpartition("stream ")[2].rstrip(")"))
        for row in session.tenants.filter(pl.col("served_by").is_not_null()).iter_rows(named=True)
    }
    cells = {(stream_of[c.victim], stream_of[c.aggressor]): c.execution for c in device.figures.matrix}
    assert len(cells) == 6
    for (victim, aggressor), execution in cells.items():
        assert execution == pytest.approx(process.slowdown(victim, aggressor), rel=0.02)


def test_kernels_that_several_streams_cover_name_no_single_aggressor(tmp_path: Path) -> None:
    process = random_process(random.Random(5), groups=3, name="k", scatter=0.02)
    for streams in ([7], [8], [9], [7, 8, 9]):
        process.run(streams, 40)
    session = pyanalyze.load(write_processes(tmp_path / "a.sqlite", [process]), by="stream")
    for told, true, _, _ in told_and_true(session, [process]):
        assert told == pytest.approx(true, rel=0.01)
    (device,) = session.interference()
    # Kernels of 7 that only 8 covered, because 9 was between two of its own, are few.
    assert device.figures is not None and not device.figures.matrix


def test_groups_of_processes_that_are_time_sliced(tmp_path: Path) -> None:
    """Two processes of two streams in slices of 2 ms: what counts is the time in which the own process was resident."""
    draw = random.Random(8)
    processes = [random_process(draw, groups=2, name=name, scatter=0.02) for name in ("a", "b")]
    for process in processes:
        for streams in ([7], [8], [7, 8]):
            process.run(streams, 40)
    path = write_processes(tmp_path / "a.sqlite", processes)
    session = pyanalyze.load(path, by="stream")
    assert session.classify()[0].mode == "time-slicing"
    told = told_and_true(session, processes)
    assert len(told) == 4
    for value, true, _, _ in told:
        assert value == pytest.approx(true, rel=0.01)
    # Without switch records it is not known when a context was resident.
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM GPU_CONTEXT_SWITCH_EVENTS")
    (device,) = pyanalyze.load(path, by="stream").interference()
    assert all(tenant.slowdown.resident is None for tenant in device.tenants)
    assert all("record with --gpuctxsw=true" in (tenant.missing or "") for tenant in device.tenants if tenant.is_group)


def test_a_recording_of_one_group_as_baseline(tmp_path: Path) -> None:
    """The groups always ran at once: solo launches are those of a recording without the other."""
    draw = random.Random(3)
    process = random_process(draw, groups=2, name="k", scatter=0.02)
    process.run([7, 8], 60)
    path = write_processes(tmp_path / "a.sqlite", [process])
    baselines = []
    for group in process.groups:
        run_of = Process(draw, [group], 0.02)
        run_of.run([group.stream], 60)
        baselines.append(write_processes(tmp_path / f"solo-{group.stream}.sqlite", [run_of]))
    (alone,) = pyanalyze.load(path, by="stream").interference()
    assert any("give a run without the others with --baseline" in (tenant.missing or "") for tenant in alone.tenants)
    session = pyanalyze.load(path, by="stream", baselines=baselines)
    for told, true, low, high in told_and_true(session, [process]):
        assert told == pytest.approx(true, rel=0.01)
        assert low is not None and high is not None and low < told < high
    (device,) = session.interference()
    assert {tenant.baseline for tenant in device.tenants} == {"solo-7.sqlite", "solo-8.sqlite"}


def test_the_command_names_the_aggressor(tmp_path: Path) -> None:
    path = nccl_1428(tmp_path / "a.sqlite")
    shown = run("interference", "--by", "stream", path).stdout
    assert all(factor in shown for factor in ("1.83x", "1.76x", "2.50x"))
    assert "ncclDevKernel_AllReduce (stream 20)" in shown and "Speedup of overlapping  0.96x" in shown
    summary = run("--by", "comms", path).stdout
    assert "Slow        NCCL kernels, execution (while resident) 1.75x" in summary
    assert "Slowed by other work of" in summary and "--by comms" in summary
    assert all(len(line) <= SUMMARY_COLUMNS for line in summary.splitlines())
    made = json.loads(run("report", "-f", "json", "--by", "comms", path).stdout)
    assert made["grouped_by"] == "comms"
    (device,) = made["devices"]
    assert [tenant["name"] for tenant in device["tenants"]] == ["NCCL kernels", "other work of train"]
    advice = [item["action"] for item in device["advice"]]
    assert advice[:2] == [
        "Run NCCL kernels and other work of train one after the other",
        "Let collectives use fewer SMs beside other work of train",
    ]
    # No other sharing mode applies between parts of one process.
    assert not any("MPS" in item["action"] or "MIG" in item["action"] for item in device["advice"])
    assert device["options"] is None


def test_a_gate_of_groups_looks_at_execution(tmp_path: Path) -> None:
    path = nccl_1428(tmp_path / "a.sqlite")
    checked = pyanalyze.load(path, by="comms").check(max_slowdown=1.5)
    assert [(one.subject, one.status) for one in checked.outcomes] == [
        ("NCCL kernels", "failed"),
        ("other work of train", "passed"),
    ]


def test_process_is_the_default(tmp_path: Path) -> None:
    path = nccl_1428(tmp_path / "a.sqlite")
    report = pyanalyze.load(path).report()
    assert report.grouped_by is None and report == pyanalyze.load(path, by="process").report()


def test_kernels_by_name(tmp_path: Path) -> None:
    session = pyanalyze.load(nccl_1428(tmp_path / "a.sqlite"))
    assert kernels_by_tenant(session.by("kernel=^att,nccl")) == {
        "kernels ^att": 20,
        "kernels nccl": 20,
        "other work of train": 20,
    }
    # The first expression that matches counts.
    assert kernels_by_tenant(session.by("kernel=gemm|attention,e")) == {"kernels gemm|attention": 40, "kernels e": 20}


def test_what_does_not_match_says_what_there_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, MS)], processes={41: "train"}, kernel_names=("saxpy",))
    for by, says in (
        ("stream", "no process used several; there is stream 7"),
        ("context", "no process used several; there is context 1"),
        ("kernel=nccl", "there are saxpy"),
        ("comms", "no kernel of a collective library"),
        ("nvtx", "the capture has no NVTX ranges"),
    ):
        with pytest.raises(UsageError, match=says):
            pyanalyze.load(path, by=by)
    failed = run("--by", "kernel=nccl", path)
    assert failed.returncode == 2 and "there are saxpy" in failed.stderr


def served(path: Path) -> Path:
    """Two requests, `request 0` and `request 1`, each of a prefill and two decode ranges with one kernel each; one
    kernel outside, and a range `NCCL` of another domain around the second prefill."""
    kernels: list[dict[str, Any]] = []
    calls, ranges = [], [nvtx_range(41, 0, None, "NCCL", domain=3, kind=75)]
    at = MS
    for request in range(2):
        first = at
        for step in ("prefill", "decode 1", "decode 2"):
            calls.append(call(41, at, at + 5 * US, len(kernels) + 1))
            kernels.append(kernel(41, at + 10 * US, at + 60 * US))
            ranges.append(nvtx_range(41, at - US, at + 6 * US, step))
            if request == 1 and step == "prefill":
                ranges.append(nvtx_range(41, at - 2 * US, at + 8 * US, "AllReduce", domain=3))
            at += 100 * US
        ranges.append(nvtx_range(41, first - 5 * US, at - 50 * US, f"request {request}"))
    calls.append(call(41, at, at + 5 * US, len(kernels) + 1))
    kernels.append(kernel(41, at + 10 * US, at + 60 * US))
    return write(path, kernels=kernels, calls=calls, ranges=ranges, processes={41: "serve"})


def test_ranges_of_the_outermost_level_with_several_names(tmp_path: Path) -> None:
    session = pyanalyze.load(served(tmp_path / "a.sqlite"))
    # `request #` is one name: the level below has two. The second prefill lies in a range of its own domain as well.
    assert kernels_by_tenant(session.by("nvtx=default")) == {"prefill": 2, "decode #": 4, "other work of serve": 1}
    assert kernels_by_tenant(session.by("nvtx=NCCL")) == {"AllReduce": 1, "other work of serve": 6}
    with pytest.raises(UsageError, match="no such domain; there are NCCL and default"):
        session.by("nvtx=cuBLAS")


def test_a_window_knows_the_domains(tmp_path: Path) -> None:
    session = pyanalyze.load(served(tmp_path / "a.sqlite"), tables=("kernels", "memops", "nvtx", "api_calls"))
    for whole in (session, pyanalyze.load(served(tmp_path / "b.sqlite"))):
        part = whole.window("1300us", "1700us")
        assert kernels_by_tenant(part.by("nvtx=NCCL")) == {"AllReduce": 1, "other work of serve": 3}
        assert kernels_by_tenant(whole.by("nvtx=NCCL").window("1300us", "1700us")) == {
            "AllReduce": 1,
            "other work of serve": 3,
        }


def test_calls_go_where_their_work_is(tmp_path: Path) -> None:
    """Two streams of one thread, a synchronisation, and a launch of which there is no kernel."""
    kernels = [kernel(41, 10 * US, 50 * US), kernel(41, 20 * US, 60 * US, streamId=8), kernel(41, 90 * US, 95 * US)]
    calls = [call(41, n * 5 * US, n * 5 * US + US, n + 1) for n in range(3)]
    calls += [call(41, 60 * US, 70 * US, 50, "cudaDeviceSynchronize_v3020"), call(41, 80 * US, 81 * US, 51)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, calls=calls, processes={41: "train"})
    session = pyanalyze.load(path, by="stream")
    group = dict(session.tenants.select("name", "capture").iter_rows())
    found = session.calls()
    assert found is not None
    of = {name: found.filter(pl.col("capture") == number)["correlation_id"].to_list() for name, number in group.items()}
    # The synchronisation is everybody's; the launch without a kernel is counted once.
    assert of == {"train": [], "k (stream 7)": [1, 3, 50, 51], "k (stream 8)": [2, 50]}


def test_many_groups_leave_a_rest(tmp_path: Path) -> None:
    kernels = [kernel(41, n * MS, n * MS + (n + 1) * US, streamId=10 + n) for n in range(MOST_GROUPS + 3)]
    session = pyanalyze.load(write(tmp_path / "a.sqlite", kernels=kernels, processes={41: "train"}), by="stream")
    groups = [row for row in session.tenants.iter_rows(named=True) if row["served_by"] == 0]
    assert len(groups) == MOST_GROUPS + 1 and groups[-1]["name"] == "other work of train"
    # Those with least time are the rest.
    assert kernels_by_tenant(session)["other work of train"] == 3
    assert all(f"(stream {number})" not in str(groups) for number in (10, 11, 12))


def test_residency_stays_that_of_the_process(tmp_path: Path) -> None:
    """Two processes with time slices of 2 ms; one of them uses two streams."""
    switches: list[tuple[int, int, int, int]] = []
    kernels = []
    for turn in range(40):
        start, pid = turn * 2100 * US, 41 + turn % 2
        switches += resident(pid, pid, start, start + 2 * MS)
        kernels += [
            kernel(
                pid,
                start + n * 450 * US + 60 * US,
                start + n * 450 * US + 400 * US,
                streamId=13 + (n % 2 if pid == 41 else 0),
            )
            for n in range(4)
        ]
    path = write(tmp_path / "a.sqlite", kernels=kernels, switches=switches, processes={41: "train", 42: "serve"})
    whole = pyanalyze.load(path)
    session = whole.by("stream")
    (device,), (before,) = session.report().devices, whole.report().devices
    assert device.sharing.mode == before.sharing.mode == "time-slicing"
    assert [(t.name, t.served_by, t.resident_ns) for t in device.tenants] == [
        ("train", None, before.tenants[0].resident_ns),
        ("serve", None, before.tenants[1].resident_ns),
        ("k (stream 13 of train)", 0, None),
        ("k (stream 14 of train)", 0, None),
    ]
    # What of its kernels was resident is known through the process.
    assert [t.attributed_ns for t in device.tenants[2:]] == [40 * 340 * US, 40 * 340 * US]
    assert {r.tenants: r.relation for r in device.relations} == {
        (1, 2): "time-sliced",
        (1, 3): "time-sliced",
        (2, 3): "apart",
    }
    text = render_text(session.report())
    assert "Keep the sharing configuration" not in text or "train" in text
    assert all(len(line) <= SUMMARY_COLUMNS for line in render_summary(session.report()).splitlines())


def test_copies_have_a_group_too(tmp_path: Path) -> None:
    kernels = [kernel(41, 0, MS), kernel(41, 2 * MS, 3 * MS)]
    path = write(
        tmp_path / "a.sqlite", kernels=kernels, copies=[copy(41, 0, 2 * MS, streamId=20)], processes={41: "train"}
    )
    session = pyanalyze.load(path, by="stream")
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    assert sorted(usage.select("name", "kernels", "memops", "copy_bytes").rows()[1:]) == [
        ("copies (stream 20)", 0, 1, 1_000_000),
        ("k (stream 7)", 2, 0, 0),
    ]


def test_names_are_pseudonyms_where_they_are_redacted(tmp_path: Path) -> None:
    session = pyanalyze.load(nccl_1428(tmp_path / "a.sqlite"), by="stream").redacted()
    assert session.tenants["name"].to_list() == ["process-1", "group-1", "group-2"]
    text = session.report().to_json()
    assert "nccl" not in text and "gemm" not in text and "train" not in text


def test_a_program_of_several_streams(tmp_path: Path) -> None:
    """Operations of each stream, and their time, as the generator ran them."""
    program = everything()
    session = pyanalyze.load(program.write(tmp_path / "a.sqlite"), by="stream")
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    found = {
        int(row["name"].rpartition("stream ")[2].rstrip(")")): (row["kernels"], row["memops"], row["busy_ns"])
        for row in usage.iter_rows(named=True)
        if "stream" in row["name"]
    }
    truth = {
        stream: (
            sum(one.stream == stream and one.kind == "kernel" for one in program.ran),
            sum(one.stream == stream and one.kind != "kernel" for one in program.ran),
            sum(one.end_ns - one.start_ns for one in program.ran if one.stream == stream and one.kind == "kernel"),
        )
        for stream in program.flags
    }
    assert found == truth
    assert session.report().devices[0].tenants


@pytest.mark.parametrize(
    "name", ["test-cuda-4streams/report2.sqlite", "jaxtoolbox-gb200/pdl_two_producers.nsys2026.sqlite"]
)
def test_streams_of_real_captures(corpus: Path, name: str) -> None:
    path = corpus / "exports" / name
    session = pyanalyze.load(path, by="stream")
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"]).filter(pl.col("kernels") > 0)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        counted = database.execute("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY streamId").fetchall()
    assert sorted(usage["kernels"]) == sorted(n for (n,) in counted)
    assert session.report().devices


def test_collectives_of_a_real_capture(corpus: Path) -> None:
    path = corpus / "exports" / "nsys-ai" / "mfu_2gpu_before.sqlite"
    session = pyanalyze.load(path, by="comms")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        ((counted,),) = database.execute(
            "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName WHERE value LIKE '%nccl%'"
        ).fetchall()
    usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    assert usage.filter(pl.col("name").str.starts_with("NCCL kernels"))["kernels"].sum() == counted > 0
