"""NVIDIA's own summaries are read as they are, and disagree with ours where they should."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from pyanalyze.errors import OutputExists, SamplesUnreadable
from pyanalyze.inputs.nsys_recipes import REPORTS, compare_kernel_summary, load_reports, read_report

CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", Path(__file__).parents[1] / ".." / "shared" / "corpus"))
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real captures at {CORPUS}: set PYANALYZE_CORPUS")

HEADER = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
KERNELS = (
    f'{HEADER}\n75.0,300,2,150.0,150.0,100,200,70.7,"void f<int, 4>(int *, ""x"")"\n'
    "25.0,100,1,100.0,100.0,100,100,0.0,g()\n"
)
ROWS = [
    (75.0, 300, 2, 150.0, 150.0, 100, 200, 70.7, 'void f<int, 4>(int *, "x")'),
    (25.0, 100, 1, 100.0, 100.0, 100, 100, 0.0, "g()"),
]
COPIES = (
    "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
    "100.0,960,2,480.0,480.0,480,480,0.0,[CUDA memset]\n"
)


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_three_formats_give_the_same_rows(tmp_path: Path) -> None:
    as_tsv = "\t".join(HEADER.split(",")) + "\n"
    as_tsv += '75.0\t300\t2\t150.0\t150.0\t100\t200\t70.7\tvoid f<int, 4>(int *, "x")\n'
    as_tsv += "25.0\t100\t1\t100.0\t100.0\t100\t100\t0.0\tg()\n"
    as_json = json.dumps([dict(zip(HEADER.split(","), row, strict=True)) for row in ROWS])
    for extension, text in (("csv", KERNELS), ("tsv", as_tsv), ("json", as_json)):
        table = read_report(write(tmp_path, f"run 1_cuda_gpu_kern_sum.{extension}", text))
        assert (table.report, table.source) == ("cuda_gpu_kern_sum", "run 1")
        assert table.rows.rows() == ROWS
        assert table.rows.schema == {
            "time_percent": pl.Float64, "total_time_ns": pl.Int64, "instances": pl.Int64,
            "avg_ns": pl.Float64, "med_ns": pl.Float64, "min_ns": pl.Int64, "max_ns": pl.Int64,
            "stddev_ns": pl.Float64, "name": pl.String,
        }  # fmt: skip


def test_what_nsys_prints_around_the_tables_is_skipped(tmp_path: Path) -> None:
    text = (
        "Generating SQLite file run.sqlite from run.nsys-rep\n"
        "Processing [run.sqlite] with [reports/cuda_gpu_kern_sum.py]... \n\n"
        f" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n{KERNELS}\n"
        f"Processing [run.sqlite] with [reports/cuda_gpu_mem_time_sum.py]... \n{COPIES}"
        "Processing [run.sqlite] with [reports/openacc_sum.py]... \n"
        "SKIPPED: run.sqlite does not contain OpenACC event data.\n"
    )
    file = write(tmp_path, "stdout.txt", text)
    with pytest.raises(SamplesUnreadable, match="2 reports"):
        read_report(file)
    database = load_reports([file])
    assert list(database.query("SELECT report, source, rows FROM reports ORDER BY report")) == [
        {"report": "cuda_gpu_kern_sum", "source": "stdout", "rows": 2},
        {"report": "cuda_gpu_mem_time_sum", "source": "stdout", "rows": 1},
    ]
    database.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"starts with 'a,b'; known are cuda_gpu_kern_sum \(Time\(%\), TotalTime\(ns\)"),
        ("", "no known nsys report"),
        (COPIES.replace("(ns)", "(ms)"), "no known nsys report"),
        ("SKIPPED: x.sqlite does not contain CUDA kernel data.\n", "does not contain CUDA kernel data"),
        (KERNELS + "25.0,100,1,100\n", "line 4 has 4 fields instead of the 9"),
        (KERNELS.replace("300,2", "300,2.5"), r"line 2, column Instances: '2\.5' is not a whole number"),
        (KERNELS.replace("70.7", "nan"), r"line 2, column StdDev\(ns\): 'nan' is not a number"),
        (KERNELS.replace("300,2", f"{2**63},2"), r"column TotalTime\(ns\).* is not a whole number"),
        (KERNELS + "\n" + KERNELS, "same report twice"),
        ('[{"Name": "f"}]', r"row 1 has the columns Name; known are"),
        ('[{"Name": ', "damaged JSON at line 1"),
        ('{"a": 1}', "not the list of rows"),
    ],
)
def test_what_cannot_be_read_is_refused_by_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SamplesUnreadable, match=message) as caught:
        read_report(write(tmp_path, "run.csv", text))
    assert "run.csv" in str(caught.value)


def test_a_missing_file_is_the_builtin_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_report(tmp_path / "no.csv")


def test_loading_again_replaces_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, "run_cuda_gpu_kern_sum.csv", KERNELS)
    place = tmp_path / "reports.sqlite"
    load_reports([file], place).close()
    write(tmp_path, file.name, "\n".join(KERNELS.splitlines()[:2]))
    bad = write(tmp_path, "bad.csv", "a,b\n")
    with pytest.raises(SamplesUnreadable):
        load_reports([file, bad], place)
    connection = sqlite3.connect(place)
    assert connection.execute("SELECT COUNT(*) FROM cuda_gpu_kern_sum").fetchall() == [(2,)]
    load_reports([file], place).close()
    assert connection.execute("SELECT source, row, instances FROM cuda_gpu_kern_sum").fetchall() == [("run", 0, 2)]
    assert connection.execute("SELECT rows FROM reports").fetchall() == [(1,)]
    connection.close()


def test_a_database_with_other_tables_of_these_names_is_left_as_it_was(tmp_path: Path) -> None:
    file = write(tmp_path, "run_cuda_gpu_kern_sum.csv", KERNELS)
    connection = sqlite3.connect(tmp_path / "mine.sqlite")
    connection.execute("CREATE TABLE cuda_kern_exec_sum (title TEXT)")
    connection.commit()
    with pytest.raises(OutputExists, match="a table cuda_kern_exec_sum that is not ours"):
        load_reports([file], tmp_path / "mine.sqlite")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("cuda_kern_exec_sum",)]
    connection.close()


def test_two_files_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = [write(tmp_path / folder, "run_cuda_gpu_kern_sum.csv", KERNELS) for folder in "ab"]
    with pytest.raises(SamplesUnreadable, match="both give cuda_gpu_kern_sum of run; rename"):
        load_reports(files)


def ours(durations: dict[str | None, list[int]]) -> pl.DataFrame:
    rows = [(name, 1000, 1000 + d) for name, all_ in durations.items() for d in all_]
    schema = {"name": pl.Categorical, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_disagreements_have_a_reason(tmp_path: Path) -> None:
    rows = read_report(write(tmp_path, "run.csv", KERNELS)).rows
    f, g = rows["name"].to_list()
    assert compare_kernel_summary(rows, ours({f: [100, 200], g: [100]})).rows() == []
    assert compare_kernel_summary(rows, ours({f: [100, 200], None: [5]})).rows() == [
        (g, None, None, None, "only in the nsys report"),
        (None, None, None, None, "only in our kernels"),
    ]
    nameless = rows.with_columns(name=pl.when(pl.col("name") == f).then("name"))  # g() becomes null
    assert compare_kernel_summary(nameless, ours({f: [100, 200], None: [100]})).rows() == []
    # 100, 200, 204: one more, and everything but the shortest differs.
    found = compare_kernel_summary(rows, ours({f: [100, 200, 204], g: [100]}))
    assert found.rows() == [
        (f, "instances", 2.0, 3.0, "ours is 1.5 times theirs"),
        (f, "total_time_ns", 300.0, 504.0, "ours is 1.68 times theirs"),
        (f, "avg_ns", 150.0, 168.0, "ours is 1.12 times theirs"),
        (f, "med_ns", 150.0, 200.0, "ours is 1.333333 times theirs"),
        (f, "max_ns", 200.0, 204.0, "ours is 1.02 times theirs"),
    ]


def test_the_tolerance_is_relative_and_printed_digits_are_forgiven() -> None:
    def one(mean: float) -> pl.DataFrame:
        columns = {"instances": 3, "total_time_ns": 100, "med_ns": 30.0, "min_ns": 30, "max_ns": 40}
        return pl.DataFrame({"name": ["f"], **{k: [v] for k, v in columns.items()}, "avg_ns": [mean]})

    frame = ours({"f": [30, 30, 40]})  # the mean is 33.33...
    assert compare_kernel_summary(one(33.3), frame).is_empty()
    assert compare_kernel_summary(one(33.2), frame)["quantity"].to_list() == ["avg_ns"]
    assert compare_kernel_summary(one(33.0), frame, tolerance=0.02).is_empty()
    assert compare_kernel_summary(one(32.0), frame, tolerance=0.02)["quantity"].to_list() == ["avg_ns"]
    with pytest.raises(ValueError, match="negative"):
        compare_kernel_summary(one(33.3), frame, tolerance=-1)


@needs_corpus
def test_every_expected_file_loads() -> None:
    files = sorted((CORPUS / "expected").glob("*.csv"))
    assert len(files) == 123
    database = load_reports(files)
    counted = dict(database.execute("SELECT report, COUNT(*) FROM reports GROUP BY report").fetchall())
    assert counted == {"cuda_gpu_kern_sum": 44, "cuda_gpu_mem_time_sum": 36, "cuda_kern_exec_sum": 43}
    for report, columns in REPORTS.items():
        for name, kind in columns.values():
            allowed = {int: {"integer"}, float: {"real"}, str: {"text"}}[kind]
            # Without a launch that waited there is no queue time: nsys leaves those cells empty.
            if name.startswith("queue_"):
                allowed = allowed | {"null"}
            seen = {row[0] for row in database.execute(f"SELECT DISTINCT typeof({name}) FROM {report}")}
            assert seen <= allowed, (report, name, seen)

    # Read off the files by eye.
    mps = "concurrent-examples__mps_profile.nsys2025"
    assert database.execute(
        "SELECT time_percent, total_time_ns, instances, avg_ns, stddev_ns, name FROM cuda_gpu_kern_sum"
        " WHERE source = ? ORDER BY row", [mps],
    ).fetchall() == [
        (50.0, 5847984531, 1, 5847984531.0, 0.0, "kernel1(int *, int)"),
        (50.0, 5847982291, 1, 5847982291.0, 0.0, "kernel2(int *, int)"),
    ]  # fmt: skip
    assert database.execute(
        "SELECT pid, count, queue_count, api_min_ns, queue_avg_ns, kernel_max_ns, api_name"
        " FROM cuda_kern_exec_sum WHERE source = ? ORDER BY row", [mps],
    ).fetchall() == [
        (42158, 1, 0, 27000, None, 5847982291, "cudaLaunchKernel"),
        (42157, 1, 0, 25631, None, 5847984531, "cudaLaunchKernel"),
    ]  # fmt: skip
    assert database.execute(
        "SELECT count, med_ns, min_ns, operation FROM cuda_gpu_mem_time_sum WHERE source = ? AND row = 0",
        ["ngp-graph__baseline.nsys2026"],
    ).fetchall() == [(6344, 1472.0, 736, "[CUDA memset]")]
    database.close()


@needs_corpus
def test_kernels_taken_from_the_exports_by_sql_agree_with_nvidia() -> None:
    compared = 0
    for file in sorted((CORPUS / "expected").glob("*_cuda_gpu_kern_sum.csv")):
        folder, name = file.name.removesuffix("_cuda_gpu_kern_sum.csv").split("__", 1)
        export = CORPUS / "exports" / folder / f"{name}.sqlite"
        connection = sqlite3.connect(f"{export.resolve().as_uri()}?immutable=1", uri=True)
        rows = connection.execute(
            "SELECT value, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName"
        ).fetchall()
        connection.close()
        schema = {"name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
        found = compare_kernel_summary(read_report(file).rows, pl.DataFrame(rows, schema=schema, orient="row"))
        assert found.is_empty(), (file.name, found)
        compared += 1
    assert compared == 44
