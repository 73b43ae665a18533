"""Real captures through the public face: what is known of them must be what we say."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING

import polars as pl
import pytest
from exports import MS, kernel, write

import pyanalyze
from pyanalyze.analysis.sharing.evidence import observe
from pyanalyze.analysis.sharing.facts import Case, Configured
from pyanalyze.export.pack import pack
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.summary import render_summary
from pyanalyze.results.report import unexplained_nulls
from pyanalyze.tables.export_details import WSL_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.session import Session

#: What the corpus README states of the sharing of each capture.
KNOWN_MODES = {
    "ctxsw-ada-timeslice/utils__report1.nsys2026": "time-slicing",
    "ctxsw-ada-timeslice/paging__ada-1.nsys2026": "time-slicing",
    "ctxsw-ada-timeslice/paging__ada-sync-iteration.nsys2026": "time-slicing",
    "ctxsw-ada-timeslice/paging__report1.nsys2026": "time-slicing",
    "concurrent-examples/mps_profile.nsys2025": "mps-partitioned",
    "concurrent-examples/cuda_stream_profile.nsys2025": "streams",
    "mig-a30/report1": "mig",
    "mig-a30/report1.nsys2026": "mig",
    "mig-a30/report2": "mig",
    "mig-a30/report3": "mig",
    "mig-a30/report3.nsys2023": "mig",
    "mig-a30/report3.nsys2026": "mig",
    "pipit/perlmutter-cloverleaf-cuda": "exclusive",
    "nsys-ai/h100_2gpu_1s": "exclusive",
}


def exports(corpus: Path) -> list[Path]:
    found = sorted(corpus.glob("exports/*/*.sqlite"))
    assert len(found) == 49
    return found


@pytest.mark.parametrize(("capture", "mode"), KNOWN_MODES.items())
def test_the_known_sharing_is_named(corpus: Path, capture: str, mode: str) -> None:
    verdicts = pyanalyze.load(corpus / "exports" / f"{capture}.sqlite").classify()
    assert {v.mode for v in verdicts} == {mode}
    assert all(v.evidence for v in verdicts)


@pytest.mark.parametrize("schema", ["nsys2022", "nsys2023", "nsys2026"])
def test_counters_contradict_what_kernels_alone_suggest(corpus: Path, schema: str) -> None:
    """The corpus README calls this capture exclusive, because one process launched four kernels (0.17 ms).

    Its own hardware counters say otherwise: the SMs are 100 % active for 100 ms before the process makes its first
    CUDA call, and that call's followers wait 2.1 to 2.4 ms, a time slice, for kernels of microseconds. An
    untraced process was resident, so exclusive must not be claimed in any of the three schemas.
    """
    verdict = pyanalyze.load(corpus / "exports" / "rtx3090-gpumetrics" / f"report2.{schema}.sqlite").classify()[0]
    assert verdict.mode == "undetermined"
    assert verdict.alternatives[0].mode == "time-slicing"
    assert "sm_active_outside_traced_kernels" in [weighed.name for weighed in verdict.evidence]


def test_several_streams_are_not_concurrency(corpus: Path) -> None:
    for name in ("report2", "report2.nsys2026"):
        verdict = pyanalyze.load(corpus / "exports" / "test-cuda-4streams" / f"{name}.sqlite").classify()[0]
        assert verdict.mode in ("exclusive", "undetermined")
        assert "streams" not in [other.mode for other in verdict.alternatives]


def test_the_untraced_process_is_not_overlooked(corpus: Path) -> None:
    """A tool that reads only kernels calls this capture exclusive."""
    session = pyanalyze.load(corpus / "exports/ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite")
    device = session.report().devices[0]
    assert device.sharing.mode == "time-slicing"
    assert device.sharing.basis == "observed"
    tenants = {tenant.pid or tenant.host_pid: tenant for tenant in device.tenants}
    assert set(tenants) == {30428, 30398}
    slices = session.residency.filter("complete").with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    )
    per_context = {
        row["hw_context"]: (row["n"], round(row["median"] / 1e6, 3))
        for row in slices.group_by("hw_context")
        .agg(pl.len().alias("n"), pl.col("length_ns").median().alias("median"))
        .iter_rows(named=True)
    }
    assert per_context[830] == (606, 2.131)
    assert per_context[814] == (607, 2.135)
    assert device.context_switches is not None
    assert device.context_switches.median_cost_ns is not None
    assert round(device.context_switches.median_cost_ns / 1000, 1) == 42.7
    assert device.context_switches.cost_kind == "gap"
    traced = tenants[30428]
    assert traced.busy_ns is not None
    assert traced.attributed_ns is not None
    assert round(traced.busy_ns / 1e6, 1) == 2511.7
    assert round(traced.attributed_ns / 1e6, 1) == 1230.8
    assert tenants[30398].busy_ns is None, "an untraced process has no known kernels, which is not zero"


def test_sql_of_evidence_yields_its_number(corpus: Path) -> None:
    import sqlite3

    path = corpus / "exports/ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite"
    evidence = pyanalyze.load(path).report().devices[0].sharing.evidence
    checked = 0
    for item in evidence:
        if item.sql is not None and item.value is not None:
            with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as db:
                (number,) = db.execute(item.sql).fetchone()
            assert number == pytest.approx(item.value, rel=0.01)
            checked += 1
    assert checked >= 1


def test_every_real_capture_becomes_a_report(corpus: Path) -> None:
    """Also those that no other test names: no error, no unexplained null, valid JSON."""
    for path in exports(corpus):
        session: Session = pyanalyze.load(path)
        report = session.report()
        assert json.loads(report.to_json())["schema"] == "pyanalyze.report/1"
        assert unexplained_nulls(report) == [], path
        for device in report.devices:
            assert (device.sharing.mode == "undetermined") == (device.sharing.confidence < 0.8)
            if device.sharing.mode == "undetermined":
                assert device.sharing.missing, f"{path}: undetermined without saying what is missing"


def test_an_export_without_pids_claims_no_single_tenant(corpus: Path) -> None:
    session = pyanalyze.load(corpus / "exports/nsys-ai/healthy_1pct.sqlite")
    assert [v.mode for v in session.classify()] == ["undetermined"]
    assert "no_pids" in session.quality["name"].cast(str).to_list()


@pytest.mark.parametrize("name", ["jacc/cg_trace", "jacc/report1", "nemo-a5000/report2.nsys2026"])
def test_captures_without_kernels_say_so(corpus: Path, name: str) -> None:
    session = pyanalyze.load(corpus / "exports" / f"{name}.sqlite")
    assert "no_kernels" in session.quality["name"].cast(str).to_list()
    devices = session.report().devices
    assert devices, "GPUs that did nothing are named where no GPU did anything"
    for device in devices:
        assert device.sharing.mode == "undetermined"
        assert "kernels" in [missing.what for missing in device.sharing.missing]


def test_whole_graph_launches_are_busy_time(corpus: Path) -> None:
    name = "jaxtoolbox-gb200/nsys_report_cuda_graph_pdl_stream_capture.nsys2026.sqlite"
    session = pyanalyze.load(corpus / "exports" / name)
    assert session.kernels.is_empty()
    assert session.graph_launches.height == 1
    graph = session.graph_launches.row(0, named=True)
    assert session.tenant_usage["busy_ns"].to_list() == [graph["end_ns"] - graph["start_ns"]]


def test_whole_graphs_are_not_idle_sms(corpus: Path) -> None:
    # Four kernels of 4 blocks on 80 SMs, and a graph of four such kernels (B beside C): 5 % of the SMs for 2339.2 and,
    # in the graph, 5 to 10 % for 1754.4 of 4093.9 ms.
    (device,) = (
        pyanalyze.load(corpus / "exports/concurrent-examples/cuda_graph_profile@b6984eb.nsys2025.sqlite")
        .report()
        .devices
    )
    found = device.occupancy
    assert found is not None
    assert found.whole_graphs == pytest.approx(1754.4 / 4093.9, abs=1e-4)
    assert found.sm_active.value == pytest.approx(0.05 * 2339.2 / 4093.9, abs=1e-4)
    assert found.sm_active.low < 0.05 * (2339.2 + 1754.4) / 4093.9 < found.sm_active.high
    # What takes most time comes first: A, B, C and D take 584.8 ms each.
    assert device.advice[0].action == "Trace the kernels inside the graphs of cuda_graph"


def test_groups_that_never_ran_side_by_side_are_no_streams(corpus: Path) -> None:
    # SQL: all kernels of a device are in one stream, and no NCCL kernel overlaps another kernel.
    session = pyanalyze.load(corpus / "exports/nsys-ai/mfu_2gpu_before.sqlite").by("comms")
    for device in session.report().devices:
        assert device.sharing.mode == "exclusive"
        for tenant in device.tenants:
            assert tenant.slowdown.resident is None
            assert any("ran beside another group" in note for note in tenant.slowdown_notes)


def test_units_of_work_hold_work(corpus: Path) -> None:
    # The NVTX ranges around the exchange between MPI ranks hold the most launches (copies of microseconds), and of the
    # time of all operations less than 1 %.
    session = pyanalyze.load(corpus / "exports/gpubootcamp-8v100/report1.nsys2026.sqlite")
    names = set(session.explain().units["name"].cast(pl.String))
    assert not names & {"MPI", "1 operation, [CUDA memcpy Peer-to-Peer]"}


def test_no_command_records_what_mig_does_not(corpus: Path) -> None:
    (device,) = pyanalyze.load(corpus / "exports/mig-a30/report1.nsys2026.sqlite").report().devices
    (missing,) = (one for one in device.sharing.missing if one.what == "context_switches")
    assert (missing.how, "while MIG is in use" in missing.why) == ("", True)


def test_counters_of_a_mig_instance_come_from_dcgm(corpus: Path) -> None:
    """Field 1002 is SM activity, 1003 SM occupancy; DCGM 4.6 names a GPU instance `instance:ID` (its documentation)."""
    (device,) = pyanalyze.load(corpus / "exports/mig-a30/report3.sqlite").report().devices
    (missing,) = (one for one in device.sharing.missing if one.what == "gpu_metrics")
    assert missing.how.startswith("dcgmi dmon -e 1002,1003 -i instance:ID ")
    assert missing.is_command


def test_the_cuda_ordinal_is_not_the_gpu_id(corpus: Path) -> None:
    session = pyanalyze.load(corpus / "exports/pipit/perlmutter-cloverleaf-cuda.sqlite")
    used = session.kernels["device_id"].unique().to_list()
    device = session.devices.filter(pl.col("device_id").is_in(used)).row(0, named=True)
    assert (device["gpu_id"], device["bus_location"]) == (3, "0000:03:00.0")


def test_nothing_in_the_corpus_changes(corpus: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in corpus.rglob("*") if p.is_file()}

    before = state()
    assert len(before) > 200
    for path in exports(corpus)[:10]:
        pyanalyze.load(path)
    assert state() == before


def test_clients_of_mps_are_not_told_to_use_mps(corpus: Path) -> None:
    session = pyanalyze.load(corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite")
    (advice,) = session.advise()
    assert [action.action for action in advice.actions][:1] == [
        "Keep MPS with equal caps for now: no other configuration is forecast clearly faster on average. This is not certain: "
        "a tenant ran only 1 operation"
    ]


def test_under_wsl2_nobody_is_sent_to_record_what_it_does_not_have(corpus: Path) -> None:
    """`TARGET_INFO_SYSTEM_ENV` has the release of the kernel, and `SupportsGpuCtxsw`: 0 under WSL2, 1 on a Linux host."""
    for name, support in (
        ("nsys-ai/mock.sqlite", "0"),
        ("test-cuda-4streams/report2.sqlite", "0"),
        ("easycuda/nsys_easy.sqlite", "1"),
    ):
        path = corpus / "exports" / name
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            query = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = "
            assert database.execute(f"{query}'SupportsGpuCtxsw'").fetchall() == [(support,)]
            ((release,),) = database.execute(f"{query}'SoftwareReleaseVersion'").fetchall()
        wsl = support == "0"
        assert release.endswith("WSL2") == wsl
        (device,) = pyanalyze.load(path).report().devices
        (missing,) = device.missing_for("context_switches")
        assert (missing.why == "the program ran under WSL2, where nsys records no context switches") == wsl
        # As root or on the host it is the same.
        assert (missing.how == "") == wsl
        (lists,) = device.missing_for("process_list")
        assert ("WSL2" in lists.why, lists.how == "") == (wsl, wsl)
        (other,) = device.missing_for("slowdown")
        assert ("nvidia-smi" in other.how) != wsl
        (counters,) = device.missing_for("gpu_metrics")
        assert ("WSL2" in counters.why, counters.how == "") == (wsl, wsl)
        assert ("--query-compute-apps" in render_markdown(pyanalyze.load(path).report())) != wsl


def test_under_wsl2_there_is_no_mps() -> None:
    """NVIDIA: MPS exists on Linux and QNX only; the capture itself says where it was made."""
    said = Configured("capture-settings", WSL_KEY, "true")
    known, unknown = (observe(Case(0, None, None, None, None, None, None, {}, rows, {}, ())) for rows in ((said,), ()))
    assert ("mps_impossible" in known, "mps_impossible" in unknown) == (True, False)
    assert known["mps_impossible"].basis == "observed"


def test_a_pack_says_that_its_capture_was_made_under_wsl2(corpus: Path, tmp_path: Path) -> None:
    made = pack(corpus / "exports/nsys-ai/mock.sqlite", tmp_path / "a.pack", key=bytes(32))
    (device,) = pyanalyze.load(made.path).report().devices
    (missing,) = device.missing_for("context_switches")
    assert "WSL2" in missing.why


def test_where_nsys_says_that_it_cannot_record_context_switches_so_does_the_report(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, 1000)])
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('SupportsGpuCtxsw', '0')")
    (device,) = pyanalyze.load(path).report().devices
    (missing,) = device.missing_for("context_switches")
    assert "could not record any there: no root, a container, MIG or an old driver" in missing.why
    assert "WSL2" not in missing.why


def test_where_cuda_was_traced_and_nothing_ran_the_same_recording_is_not_asked_for(corpus: Path) -> None:
    """The program ended after 0.12 s, before it used CUDA; nsys was asked for it."""
    path = corpus / "exports/nemo-a5000/report2.nsys2026.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        query = "SELECT value FROM META_DATA_CAPTURE WHERE name = 'PROCESS_0:COLLECT_CUDA_TRACE'"
        assert database.execute(query).fetchall() == [("true",)]
    for device in pyanalyze.load(path).report().devices:
        (missing,) = device.missing_for("kernels")
        assert missing.why == "CUDA was traced, and no traced program ran a kernel while nsys recorded"
        assert "until the program has used the GPU" in (missing.how or "")


def test_a_program_that_nsys_found_without_cuda_is_named(corpus: Path) -> None:
    """`COLLECT_CUDA_TRACE` is false there, and nsys says that it traced CUDA; only what it cost nsys was recorded."""
    path = corpus / "exports/jacc/report1.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        query = (
            "SELECT value FROM META_DATA_CAPTURE WHERE name IN ('PROCESS_0:COLLECT_CUDA_TRACE', 'PROCESS_0:COMMAND')"
        )
        assert {value for (value,) in database.execute(query)} == {"false", "julia"}
        query = (
            "SELECT count(*) FROM DIAGNOSTIC_EVENT WHERE text = 'No CUDA events collected. Does the process use CUDA?'"
        )
        assert database.execute(query).fetchall() == [(1,)]
        query = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'CUPTI_%' OR name LIKE 'GPU_CONTEXT_SWITCH%'"
        assert database.execute(query).fetchall() == [(0,)]
    session = pyanalyze.load(path)
    report = session.report()
    for device in report.devices:
        (first, *_) = device.advice
        assert first.action == "Look whether julia uses CUDA: nsys traced CUDA and collected no event"
        (missing,) = device.missing_for("kernels")
        assert (missing.how or "").endswith("look whether julia uses CUDA, and whether it ended early")
        # What lacks kernels is captured as kernels are, not by switch records.
        (options,) = device.missing_for("options")
        assert options.why == "no kernels were traced" and options.how == missing.how
        # Nothing is recorded again as it was: the program says itself why it ended, and only there.
        (command,) = first.commands
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            text = "".join(value for (value,) in database.execute(command.split('"')[1]))
        assert text.startswith("ERROR: ")
        assert len(text.splitlines()) == 8
        assert "holds 8 lines that it wrote to standard error" in first.why
        assert not any(line.strip() in report.model_dump_json() for line in text.splitlines())
    # Nothing of what the time of a record is asked for.
    (read,) = report.captures
    assert (read.start_ns, read.end_ns) == (None, None)
    assert read.recording_end_ns is not None
    assert read.recording_start_ns is not None
    assert read.recording_end_ns - read.recording_start_ns == 2_205_143_945
    assert "\nAnalysed    NVIDIA A100-PCIE-40GB (device 0); 2.205 s recorded from " in render_summary(report)
    assert "window not known: 2.205 s recorded from " in render_markdown(report)
    assert "julia" not in session.redacted().report().model_dump_json()


def test_an_old_driver_is_the_one_reason_for_no_context_switches(corpus: Path) -> None:
    """`NvDriverVersion` is 41867, and switch records take r435 (nsys's user guide, GPU context switch)."""
    (device,) = pyanalyze.load(corpus / "exports/mordred/report1.nsys2026.sqlite").report().devices
    (missing,) = device.missing_for("context_switches")
    assert missing.why == "driver 418.67 records no context switches: that takes r435 or newer"
    assert missing.how == (
        "nsys profile -t cuda,nvtx,osrt --gpuctxsw=true -o NAME PROGRAM   # as root, after an update of the driver to "
        "r435 or newer"
    )
    # Under WSL2 with 560.94 the driver is not the reason.
    (device,) = pyanalyze.load(corpus / "exports/test-cuda-4streams/report2.sqlite").report().devices
    (missing,) = device.missing_for("context_switches")
    assert "WSL2" in missing.why and "driver" not in missing.why
    assert "r435" not in missing.how


def test_a_recording_that_is_much_longer_than_the_window_is_told(corpus: Path, tmp_path: Path) -> None:
    """First to last operation of 40.02 s: by SQL 257 ms come before, and 33.25 s after."""
    path = corpus / "exports/mordred/report1.nsys2026.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        ((whole_ns,),) = database.execute("SELECT duration FROM ANALYSIS_DETAILS")
        work = " UNION ALL ".join(
            f'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_{table}' for table in ("KERNEL", "MEMCPY", "MEMSET")
        )
        ((first, last),) = database.execute(f'SELECT min(start), max("end") FROM ({work})')
    assert [round(ns / 1e6, 1) for ns in (first, last - first, whole_ns - last)] == [257.3, 6513.7, 33252.3]
    session = pyanalyze.load(path)
    said = "(6.514 s of 40.02 s recorded), first to last activity of its tenants; shares leave out "
    assert f"{said}257.3 ms before it and 33.25 s after it" in render_markdown(session.report())
    assert "6.514 s of 40.02 s recorded" in render_summary(session.report())
    # Who chose a part of it knows that there is more; and most of a recording is all that there is to tell.
    assert "recorded)" not in render_markdown(session.window(first + 1, last).report())
    path = write(
        tmp_path / "a.sqlite", kernels=[kernel(7, 20 * MS, 80 * MS)], processes={7: "app"}, duration_ns=100 * MS
    )
    whole = pyanalyze.load(path).report()
    assert whole.captures[0].recording_end_ns == 100 * MS
    assert "recorded)" not in render_markdown(whole)


def test_a_carve_out_that_holds_what_registers_allow_is_no_limit(corpus: Path) -> None:
    """54 and 63 registers of 1,024 threads leave room for one block, and 8 of 228 KiB were set for its 4 KiB."""
    path = corpus / "exports/fuser/report1.nsys2026.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        query = """SELECT DISTINCT registersPerThread, blockX * blockY * blockZ, sharedMemoryExecuted
            FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
            WHERE s.value LIKE 'nvfuser_inner_persistent%'"""
        assert set(database.execute(query)) == {(54, 1024, 8192), (63, 1024, 8192)}
    table = pyanalyze.load(path).frame("kernel_occupancy")
    rows = table.filter(pl.col("short_name").cast(pl.String).str.starts_with("nvfuser_inner_persistent"))
    assert set(rows["limiters"]) == {"registers"}
    assert set(rows["blocks_per_sm"]) == {1}
    assert any("shared" in one for one in table["limiters"])


@pytest.mark.parametrize(
    ("capture", "command"),
    [
        # Its only work is a graph that was traced whole (GRAPH_TRACE); the same command would record the same.
        (
            "jaxtoolbox-gb200/nsys_report_cuda_graph_pdl_stream_capture.nsys2026",
            "nsys profile -t cuda,nvtx --cuda-graph-trace=node -o NAME PROGRAM",
        ),
        # Its table of kernels lacks columns that nsys always writes, registersPerThread among them.
        ("nsys-ai/healthy_1pct", "nsys export --type sqlite REPORT.nsys-rep"),
    ],
)
def test_what_is_asked_for_occupancy_can_show_it(corpus: Path, capture: str, command: str) -> None:
    (device,) = (
        one for one in pyanalyze.load(corpus / "exports" / f"{capture}.sqlite").report().devices if one.tenants
    )
    (gap,) = device.missing_for("occupancy")
    assert gap.how.startswith(command)


def test_modes_that_are_equally_likely_are_named_together(corpus: Path) -> None:
    """Nothing is known of that process but its kernels: three modes have a third each."""
    (verdict,) = pyanalyze.load(corpus / "exports" / "nsys-ai" / "healthy_1pct.sqlite").classify()
    assert [(one.mode, round(one.confidence, 2)) for one in verdict.alternatives] == [
        ("exclusive", 0.33),
        ("time-slicing", 0.33),
        ("mps", 0.33),
    ]
    assert "Equally likely: exclusive, time-slicing, mps (0.33 each)." in verdict.summary
