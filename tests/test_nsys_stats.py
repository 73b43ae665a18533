"""Reports of `nsys stats` made by us: equal to NVIDIA's where processes are pooled, and apart where they are not."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

import generate
import polars as pl
import pytest
from command_line import run
from shared_sessions import load

import pyanalyze
from pyanalyze.errors import NotACapture, SamplesUnreadable, UsageError
from pyanalyze.export.nsys_stats import NEED_OPTIONS, PRODUCED, WHOLE_GPU, disagreements, produce, to_csv
from pyanalyze.export.pack import pack
from pyanalyze.inputs.nsys_recipes import REPORTS, read_report
from pyanalyze.tables.frames import EVENT_TABLES

DEMO = "demo-time-slicing.sqlite"
RECIPES = ("cuda_gpu_time_util_map", "gpu_metric_util_map", "cuda_gpu_kern_pace")


def assert_equal(theirs: pl.DataFrame, ours: pl.DataFrame) -> None:
    # nsys orders by one column only: rows that tie may stand in any order.
    theirs = theirs.select(name for name in theirs.columns if name in ours.columns)
    assert ours.select(theirs.columns).sort(theirs.columns).equals(theirs.sort(theirs.columns))


def test_every_summary_of_the_corpus_is_made_again(corpus: Path) -> None:
    """Against what nsys 2023.4.4 printed of every real export, to the last digit."""
    compared = 0
    for export in sorted((corpus / "exports").glob("*/*.sqlite")):
        for report in ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_kern_exec_sum"):
            file = corpus / "expected" / f"{export.parent.name}__{export.stem}_{report}.csv"
            try:
                theirs = read_report(file).rows
            except (FileNotFoundError, SamplesUnreadable):
                # nsys made none: no such records, or a schema that it does not read any more.
                continue
            assert_equal(theirs, produce(load(export, tables=EVENT_TABLES).tables, report))
            compared += 1
    assert compared == 44 + 36 + 43


def test_nsys_says_the_same_of_the_demo(fixtures: Path, tmp_path: Path) -> None:
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("no nsys on PATH to compare with")
    # nsys writes beside its input.
    copy = tmp_path / "run.sqlite"
    shutil.copy(fixtures / DEMO, copy)
    stats = [report for report in PRODUCED if report.startswith("cuda_") and report not in RECIPES]
    command = [nsys, "stats", "-q", "--format", "csv", "-r", ",".join(stats), "-o", str(tmp_path / "run"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    session = load(fixtures / DEMO, tables=EVENT_TABLES)
    for report in stats:
        file = tmp_path / f"run_{report}.csv"
        ours = produce(session.tables, report)
        assert_equal(read_report(file).rows, ours)
        assert to_csv(ours, report).splitlines()[0] == file.read_text(encoding="utf-8").splitlines()[0]


def summed_up(capture: Path) -> pl.DataFrame:
    """The kernel summary of a capture that is not loaded, named and rounded as nsys prints it."""
    return pyanalyze.kernel_summary(capture).select(
        "name",
        instances=pl.col("kernels").cast(pl.Int64),
        total_time_ns="total_ns",
        avg_ns=pl.col("mean_ns").round(1, mode="half_away_from_zero"),
        med_ns=pl.col("median_ns").round(1, mode="half_away_from_zero"),
        min_ns="min_ns",
        max_ns="max_ns",
        stddev_ns=pl.col("stddev_ns").fill_null(0.0).round(1, mode="half_away_from_zero"),
    )


def test_a_kernel_summary_needs_no_session(fixtures: Path, corpus: Path) -> None:
    """Against what nsys printed of every real export; of our own, and in our order, against the one of a session."""
    compared = 0
    for export in sorted((corpus / "exports").glob("*/*.sqlite")):
        mine = summed_up(export)
        file = corpus / "expected" / f"{export.parent.name}__{export.stem}_cuda_gpu_kern_sum.csv"
        with contextlib.suppress(FileNotFoundError, SamplesUnreadable):
            theirs = read_report(file).rows.select(mine.columns)
            assert mine.sort(mine.columns).equals(theirs.sort(mine.columns)), export
            compared += 1
    assert compared == 44
    captures = [path for path in sorted(fixtures.glob("*.sqlite")) if pyanalyze.kernel_summary(path).height]
    assert len(captures) > 5
    for path in captures:
        of_session = produce(pyanalyze.load(path, reconstruct=False).tables, "cuda_gpu_kern_sum")
        mine = summed_up(path)
        assert mine.equals(of_session.select(mine.columns)), path


def test_kernels_of_a_pack_are_summed_up_of_a_session_only(fixtures: Path, tmp_path: Path) -> None:
    packed = pack(fixtures / DEMO, tmp_path / "capture.pack", key=bytes(32)).path
    with pytest.raises(UsageError, match="is a pack: load it"):
        pyanalyze.kernel_summary(packed)
    wrong = tmp_path / "capture.sqlite"
    wrong.write_bytes(b"\x1f\x8b" + bytes(100))
    with pytest.raises(NotACapture, match="gunzip"):
        pyanalyze.kernel_summary(wrong)


def test_tenants_add_up_to_the_whole(fixtures: Path) -> None:
    session = load(fixtures / DEMO, tables=EVENT_TABLES)
    count = {"cuda_gpu_kern_sum": "instances", "cuda_api_sum": "num_calls", "cuda_gpu_mem_size_sum": "count"}
    for report, column in count.items():
        parts = [produce(session.tables, report, tenant=tenant)[column].sum() for tenant in (0, 1)]
        assert sum(parts) == produce(session.tables, report)[column].sum()
        assert all(part > 0 for part in parts)
    kernels = produce(session.tables, "cuda_gpu_kern_sum", tenant=0)
    assert kernels["name"].str.starts_with("A").all()
    assert kernels["time_percent"].sum() == pytest.approx(100, abs=0.3), "shares are of the tenant's own time"
    with pytest.raises(UsageError, match="no traced tenant"):
        produce(session.tables, "cuda_gpu_kern_sum", tenant=2)
    with pytest.raises(UsageError, match="choose from"):
        produce(session.tables, "osrt_sum")
    with pytest.raises(UsageError, match="api_calls"):
        produce(load(fixtures / DEMO).tables, "cuda_api_sum")


def test_disagreements_have_reasons(fixtures: Path) -> None:
    session = load(fixtures / DEMO)
    theirs = produce(session.tables, "cuda_gpu_kern_sum")
    found = disagreements(theirs, session.tables)
    # The demo is time-sliced: every kernel was switched out at times, and no name is launched by two tenants.
    assert found.height == 8
    assert found["reason"].str.contains("switched out").all()
    assert found["ours"].sum() == session.kernel_attribution["attributed_ns"].sum()
    assert found["nsys"].sum() == theirs["total_time_ns"].sum()
    exclusive = load(fixtures / "exclusive.sqlite")
    assert disagreements(produce(exclusive.tables, "cuda_gpu_kern_sum"), exclusive.tables).is_empty()
    # Four processes run the same program: nsys has one row for all.
    folder = generate.built("mps-four-nbody")
    four = load(folder / "mps-four-nbody.sqlite")
    reasons = disagreements(produce(four.tables, "cuda_gpu_kern_sum"), four.tables)["reason"]
    assert reasons.str.contains("4 tenants in one row").any()
    other = theirs.with_columns(pl.col("instances") + 1)
    assert disagreements(other, session.tables).filter(quantity="instances").height == 8


def test_what_is_written_is_read_again(fixtures: Path, tmp_path: Path) -> None:
    result = run("export", fixtures / DEMO, "--to", "nsys-stats", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    session = load(fixtures / DEMO, tables=EVENT_TABLES)
    files = {file.name for file in (tmp_path / "out").iterdir()}
    empty = {"gpu_gaps", "gpu_metric_util_map"}
    made = [report for report in PRODUCED if report not in empty and report not in NEED_OPTIONS]
    assert files == {f"{report}{part}.csv" for report in made for part in ("", ".tenant-0", ".tenant-1")}
    for report in made:
        ours = produce(session.tables, report, tenant=1)
        assert_equal(read_report(tmp_path / "out" / f"{report}.tenant-1.csv").rows, ours)
    assert run("export", fixtures / DEMO, "--to", "nsys-stats", "-o", tmp_path / "out").returncode == 2
    assert run("export", fixtures / DEMO, "--to", "nsys-stats", "-o", tmp_path / "out", "--force").returncode == 0
    assert (
        run("export", fixtures / DEMO, "--to", "nsys-stats", "-o", tmp_path / "x", "--tables", "kernels").returncode
        == 2
    )


def test_recipes_in_parquet_are_read(tmp_path: Path) -> None:
    """Columns as the recipes write them (cuda_gpu_time_util_map.py, gpu_metric_util_map.py of nsys 2023.4)."""
    util = pl.DataFrame(
        {
            "Duration": [0.0, 5.0],
            "Kernel": [12.5, 100.0],
            "PID": [7, 7],
            "Device ID": [0, 0],
            "File": ["run", "run"],
            "__index_level_0__": [0, 1],
        }
    )
    util.write_parquet(tmp_path / "analysis.parquet")
    table = read_report(tmp_path / "analysis.parquet")
    assert table.report == "cuda_gpu_time_util_map"
    assert table.rows.rows() == [(0.0, 12.5, 7, 0, "run"), (5.0, 100.0, 7, 0, "run")]
    pl.DataFrame({"Duration": [0], "SM Active": [1.0], "SM Issue": [2.0], "Tensor Active": [3.0], "GPU": [0], "File": ["a"]}).write_parquet(tmp_path / "m.parquet")  # fmt: skip
    assert read_report(tmp_path / "m.parquet").report == "gpu_metric_util_map"
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "m.parquet").read_bytes()[:40])
    for name in ("other", "cut"):
        with pytest.raises(SamplesUnreadable):
            read_report(tmp_path / f"{name}.parquet")


def test_analyses_and_older_columns_are_read(tmp_path: Path) -> None:
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("Row#,Duration (ns),Start (ns),PID,Device ID,Context ID\n1,500000001,12,7,0,1\n")
    assert read_report(gaps).rows.rows() == [(1, 500_000_001, 12, 7, 0, 1)]
    first = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB)"
    header = f"{first},Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
    old = tmp_path / "trace.csv"
    old.write_text(header + "1,2,3,1,1,1,32,1,1,16,0.000,0.000,,,,,GPU (0),1,7,k()\n")
    table = read_report(old)
    assert table.report == "cuda_gpu_trace"
    assert table.rows["green_context_id"].to_list() == [None]
    assert len(REPORTS) == 13


def test_gaps_and_use_are_those_of_nvidias_analysis(fixtures: Path) -> None:
    """Rows that `nsys analyze -r gpu_gaps:gap=5,gpu_time_util:threshold=99,gpu_time_util` of 2023.4.4 printed."""
    session = load(fixtures / DEMO)
    columns = ["number", "duration_ns", "start_ns", "pid", "device_id", "context_id"]
    assert produce(session.tables, "gpu_gaps").is_empty(), "none of 500 ms"
    assert produce(session.tables, "gpu_gaps", gap_ns=5_000_000).select(columns).rows() == [
        (1, 128142418, 211866637, 41201, 0, 1),
        (2, 44125929, 315884193, 41305, 0, 1),
        (3, 6192780, 255018671, 41305, 0, 1),
    ]
    columns.insert(1, "in_use_percent")
    assert produce(session.tables, "gpu_time_util").select(columns).rows() == [
        (1, 0.0, 30183168, 330552995, 41305, 0, 1),
        (2, 4.0, 112392357, 207323895, 41201, 0, 1),
    ]
    wide = produce(session.tables, "gpu_time_util", threshold_percent=99).select(columns).rows()
    assert wide == [
        (1, 17.7, 149856476, 207323895, 41201, 0, 1),
        (2, 29.8, 60366336, 300369827, 41305, 0, 1),
        (3, 97.7, 30183168, 240003491, 41305, 0, 1),
    ]
    one = produce(session.tables, "gpu_time_util", tenant=1, threshold_percent=99)
    assert one["pid"].unique().to_list() == [41305]
    with pytest.raises(UsageError, match=r"gpu_gaps has no option bins; it has gap_ns"):
        produce(session.tables, "gpu_gaps", bins=3)


def test_maps_are_those_of_nvidias_recipes(fixtures: Path) -> None:
    """Six bins, by nsys_recipe.lib.heatmap of 2023.4.4 on the same kernels; of counters by hand."""
    session = load(fixtures / DEMO)
    made = produce(session.tables, "cuda_gpu_time_util_map", bins=6)
    assert made.filter(pid=41201)["kernel_percent"].to_list() == [89.5, 33.0, 100.0, 100.0, 100.0, 97.4]
    assert made.filter(pid=41305)["kernel_percent"].to_list() == [0.0, 46.0, 100.0, 100.0, 100.0, 98.2]
    assert made["bin_start_ns"].to_list()[:6] == [0, 191468018, 382936036, 574404054, 765872072, 957340090]
    assert produce(session.tables, "gpu_metric_util_map").is_empty(), "the demo has no metrics"
    with pytest.raises(UsageError, match="counters are not per process"):
        produce(session.tables, WHOLE_GPU[0], tenant=0)


def test_metrics_fall_into_the_bins_of_the_recipe(corpus: Path) -> None:
    """pandas.cut of the same samples: bins hold their end; mean of whole percents, one decimal."""
    session = load(corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2026.sqlite")
    made = produce(session.tables, "gpu_metric_util_map", bins=10)
    end = session.capture["end_ns"].item()
    size = -(-end // 10)
    samples = session.gpu_metrics.with_columns(name=pl.col("metric").cast(pl.String))
    for start, active in made.select("bin_start_ns", "sm_active_percent").iter_rows():
        inside = samples.filter(
            pl.col("name").is_in(["SM Active", "SMs Active"]), pl.col("time_ns").is_between(start + 1, start + size)
        )
        assert active == pytest.approx(inside["value"].mean(), abs=0.051)
    assert made["sm_active_percent"].max() == 100


def test_the_pace_of_a_kernel_is_that_of_the_recipe(fixtures: Path, tmp_path: Path) -> None:
    """Figures of nsys_recipe.lib.pace of 2023.4.4 on the demo's B3; its files written as pandas writes them."""
    session = load(fixtures / DEMO)
    with pytest.raises(UsageError, match="short name"):
        produce(session.tables, "cuda_gpu_kern_pace")
    pace = produce(session.tables, "cuda_gpu_kern_pace", kernel="B3")
    assert pace.height == 106
    quantities = ("start_ns", "delta_ns", "duration_accum_ns", "delta_accum_ns")
    assert pace.select(quantities).row(0) == (241806024, 241806024, 1200000, 241806024)
    assert pace.select(quantities).row(1) == (244808886, 1802862, 2400000, 243608886)
    assert pace.select(quantities).row(105) == (1144298510, 4769091, 342153688, 803344822)
    folder = tmp_path / "pace-of-B3"
    folder.mkdir()
    # The second rank stops after two iterations: pandas fills with empty places and makes floats of it.
    for name in ("start", "end", "duration", "delta", "duration_accum", "delta_accum"):
        column = pace[f"{name}_ns"]
        short = pl.Series([float(column[0]), float(column[1]), *[None] * 104], dtype=pl.Float64)
        pl.DataFrame({"0": column, "1": short}).write_parquet(folder / f"pace_{name}.parquet")
    with pytest.raises(SamplesUnreadable, match=r"missing: files\.parquet"):
        read_report(folder)
    pl.DataFrame({"File": ["demo-time-slicing", "other"]}).write_parquet(folder / "files.parquet")
    read = read_report(folder)
    assert (read.report, read.source, read.rows.height) == ("cuda_gpu_kern_pace", "pace-of-B3", 108)
    first = read.rows.filter(rank=0)
    assert first.equals(pace.select(first.columns))
    assert read.rows.filter(rank=1)["delta_accum_ns"].to_list() == [241806024, 243608886]
    (folder / "pace.nsys-analysis").write_text('{"RecipeName": "nvtx_pace"}', encoding="utf-8")
    with pytest.raises(SamplesUnreadable, match="nvtx_pace"):
        read_report(folder)


def test_what_nsys_wrote_lies_beside_our_tables(fixtures: Path, tmp_path: Path) -> None:
    """One database: NVIDIA's rows by report, source and version; where they differ from ours, and why."""
    capture = shutil.copy(fixtures / DEMO, tmp_path / "run.sqlite")
    session = pyanalyze.load(capture, tables=EVENT_TABLES)
    (tmp_path / "nsys").mkdir()
    files = [tmp_path / "nsys" / f"{name}.csv" for name in ("run_cuda_gpu_kern_sum", "elsewhere_cuda_api_sum")]
    for file in files:
        report = file.stem.split("_", 1)[1]
        file.write_text(to_csv(produce(session.tables, report), report), encoding="utf-8")
    out = tmp_path / "out.sqlite"
    options = [part for file in files for part in ("--nsys-report", file)]
    result = run("export", capture, "--to", "sqlite", "-o", out, *options)
    assert result.returncode == 0, result.stderr
    with contextlib.closing(sqlite3.connect(out)) as database:
        kept = database.execute("SELECT report, source, nsys_version, rows FROM reports ORDER BY report").fetchall()
        assert kept == [("cuda_api_sum", "elsewhere", "unknown", 5), ("cuda_gpu_kern_sum", "run", "0", 8)]
        joined = database.execute(
            "SELECT s.instances, count(*) FROM cuda_gpu_kern_sum s JOIN kernels k USING (name) GROUP BY name"
        ).fetchall()
        assert len(joined) == 8
        assert all(theirs == ours for theirs, ours in joined)
        reasons = database.execute("SELECT source, reason FROM nsys_disagreements").fetchall()
        assert len(reasons) == 8
        assert all(source == "run" and "switched out" in reason for source, reason in reasons)
    refused = run("export", capture, "--to", "csv", "-o", tmp_path / "x", "--nsys-report", files[0])
    assert refused.returncode == 2
    assert "--to sqlite" in refused.stderr
