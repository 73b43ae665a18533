"""Reports of `nsys stats` made by us: equal to NVIDIA's where processes are pooled, and apart where they are not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import generate
import polars as pl
import pytest
from test_cli import run

import pyanalyze
from pyanalyze.exceptions import SamplesUnreadable, UsageError
from pyanalyze.loading import EVENT_TABLES
from pyanalyze.nsys_recipes import REPORTS, read_report
from pyanalyze.nsys_stats import PRODUCED, disagreements, produce, to_csv

DEMO = "demo-time-slicing.sqlite"


def assert_equal(theirs: pl.DataFrame, ours: pl.DataFrame) -> None:
    # nsys orders by one column only: rows that tie may stand in any order.
    theirs = theirs.select(name for name in theirs.columns if name in ours.columns)
    assert ours.select(theirs.columns).sort(theirs.columns).equals(theirs.sort(theirs.columns))


def test_every_summary_of_the_corpus_is_made_again(corpus: Path) -> None:
    """Against what nsys 2023.4.4 printed of every real export, to the last digit."""
    compared = 0
    for export in sorted((corpus / "exports").glob("*/*.sqlite")):
        for report in ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum"):
            file = corpus / "expected" / f"{export.parent.name}__{export.stem}_{report}.csv"
            try:
                theirs = read_report(file).rows
            except (FileNotFoundError, SamplesUnreadable):
                # nsys made none: no such records, or a schema that it does not read any more.
                continue
            assert_equal(theirs, produce(pyanalyze.load(export), report))
            compared += 1
    assert compared == 80


def test_nsys_says_the_same_of_the_demo(fixtures: Path, tmp_path: Path) -> None:
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("no nsys on PATH to compare with")
    # nsys writes beside its input.
    copy = tmp_path / "run.sqlite"
    shutil.copy(fixtures / DEMO, copy)
    command = [nsys, "stats", "-q", "--format", "csv", "-r", ",".join(PRODUCED), "-o", str(tmp_path / "run"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    session = pyanalyze.load(fixtures / DEMO, tables=EVENT_TABLES)
    for report in PRODUCED:
        file = tmp_path / f"run_{report}.csv"
        ours = produce(session, report)
        assert_equal(read_report(file).rows, ours)
        assert to_csv(ours, report).splitlines()[0] == file.read_text(encoding="utf-8").splitlines()[0]


def test_tenants_add_up_to_the_whole(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / DEMO, tables=EVENT_TABLES)
    count = {"cuda_gpu_kern_sum": "instances", "cuda_api_sum": "num_calls", "cuda_gpu_mem_size_sum": "count"}
    for report, column in count.items():
        parts = [produce(session, report, tenant=tenant)[column].sum() for tenant in (0, 1)]
        assert sum(parts) == produce(session, report)[column].sum()
        assert all(part > 0 for part in parts)
    kernels = produce(session, "cuda_gpu_kern_sum", tenant=0)
    assert kernels["name"].str.starts_with("A").all()
    assert kernels["time_percent"].sum() == pytest.approx(100, abs=0.3), "shares are of the tenant's own time"
    with pytest.raises(UsageError, match="no traced tenant"):
        produce(session, "cuda_gpu_kern_sum", tenant=2)
    with pytest.raises(UsageError, match="choose from"):
        produce(session, "osrt_sum")
    with pytest.raises(UsageError, match="api_calls"):
        produce(pyanalyze.load(fixtures / DEMO), "cuda_api_sum")


def test_disagreements_have_reasons(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / DEMO)
    theirs = produce(session, "cuda_gpu_kern_sum")
    found = disagreements(theirs, session)
    # The demo takes turns: every kernel was switched out at times, and no name is launched by two tenants.
    assert found.height == 8
    assert found["reason"].str.contains("switched out").all()
    assert found["ours"].sum() == session.charged["charged_ns"].sum()
    assert found["nsys"].sum() == theirs["total_time_ns"].sum()
    exclusive = pyanalyze.load(fixtures / "exclusive.sqlite")
    assert disagreements(produce(exclusive, "cuda_gpu_kern_sum"), exclusive).is_empty()
    # Four processes run the same program: nsys has one row for all.
    folder = generate.built("mps-four-nbody")
    four = pyanalyze.load(folder / "mps-four-nbody.sqlite")
    reasons = disagreements(produce(four, "cuda_gpu_kern_sum"), four)["reason"]
    assert reasons.str.contains("4 tenants pooled").any()
    other = theirs.with_columns(pl.col("instances") + 1)
    assert disagreements(other, session).filter(quantity="instances").height == 8


def test_what_is_written_is_read_again(fixtures: Path, tmp_path: Path) -> None:
    result = run("export", fixtures / DEMO, "--to", "nsys-stats", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    session = pyanalyze.load(fixtures / DEMO, tables=EVENT_TABLES)
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {f"{report}{part}.csv" for report in PRODUCED for part in ("", ".tenant-0", ".tenant-1")}
    for report in PRODUCED:
        ours = produce(session, report, tenant=1)
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
    assert len(REPORTS) == 12
