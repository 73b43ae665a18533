"""Kernels that a wrapper template launches have names that tell them apart, the same everywhere."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from command_line import run
from exports import MS, kernel, write

import pyanalyze
from pyanalyze.analysis.advice.own_time import ncu_filter
from pyanalyze.analysis.comparison.split import compare_reports
from pyanalyze.charts.occupancy import limiters
from pyanalyze.export.nsys_stats import produce
from pyanalyze.export.pack import pack

CLOVERLEAF = Path("exports", "pipit", "perlmutter-cloverleaf-cuda.sqlite")
#: Sum of durations by full name and short name.
SUMS = """SELECT d.value, s.value, sum(k."end" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k
JOIN StringIds d ON d.id = demangledName JOIN StringIds s ON s.id = shortName GROUP BY 1, 2"""
#: The captures with kernels that share a short name.
WRAPPED = (
    "fuser/report1.nsys2026",
    "fuser/report2@bab6954",
    "ngp-graph/baseline.nsys2026",
    "nsys-ai/h100_2gpu_1s",
    "nsys-ai/mfu_2gpu_before",
    "pipit/perlmutter-cloverleaf-cuda",
    "torchcodec/report1.nsys2026",
)

TRANSFORM = "void thrust::transform_kernel<saxpy(float, float *)::[lambda(float) (instance {})], {}>(T1, T2)"
ONE, TWO, THREE = (TRANSFORM.format(*which) for which in ((1, "float"), (2, "float"), (1, "double")))


def wrapped(path: Path, *kernels: tuple[str, int]) -> Path:
    """Kernels of 1 ms and other lengths, one behind the other, all called transform_kernel in short."""
    full = list(dict.fromkeys(name for name, _ in kernels))
    rows, now = [], 0
    for name, length in kernels:
        rows.append(kernel(41, now, now + length, shortName=1, demangledName=2 + full.index(name)))
        now += length
    return write(path, kernels=rows, processes={41: "train"}, kernel_names=("transform_kernel", *full))


def sums(path: Path) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(SUMS).fetchall()


def by_name(session: pyanalyze.Session) -> dict[str, int]:
    name, length = pl.col("short_name").cast(pl.String), pl.col("end_ns") - pl.col("start_ns")
    return dict(session.kernels.group_by(name).agg(length.sum()).iter_rows())


@pytest.mark.parametrize("capture", WRAPPED)
def test_kernels_of_real_captures_have_names_of_their_own(corpus: Path, capture: str) -> None:
    """By SQL: as many names as full ones, each with its time; short names of one kernel stay."""
    path = corpus / "exports" / f"{capture}.sqlite"
    told = sums(path)
    found = by_name(pyanalyze.load(path))
    assert sorted(found.values()) == sorted(total for *_, total in told)
    # What CUTLASS calls all of its kernels says nothing even of one.
    generic = {"Kernel", "Kernel2"}
    shorts = [short for _, short, _ in told]
    for short in set(shorts):
        mine = [name for name in found if name.startswith((f"{short}<", f"{short}(")) or name == short]
        assert len(mine) == shorts.count(short)
        assert mine == [short] or shorts.count(short) > 1 or short in generic
        assert all(len(name) <= max(60, len(short) + 24) for name in mine)


@pytest.mark.parametrize("capture", WRAPPED)
def test_ncu_finds_the_kernel_that_is_meant(corpus: Path, capture: str) -> None:
    kernels = pyanalyze.load(corpus / "exports" / f"{capture}.sqlite").kernels
    told = kernels.select(pl.col("short_name", "name").cast(pl.String)).unique().rows()
    for short, full in told:
        *base, option, wanted = ncu_filter(short)
        if base:
            assert re.search(wanted.removeprefix("regex:"), full), (short, full)
        else:
            assert (option, wanted) == ("-k", short)


def test_cloverleaf_names_the_functions_around_its_lambdas(corpus: Path) -> None:
    path = corpus / CLOVERLEAF
    found = by_name(pyanalyze.load(path))
    in_sql = {full: total for full, _, total in sums(path)}

    def total(begin: str, end: str) -> int:
        (one,) = (ns for full, ns in in_sql.items() if full.startswith(begin) and end in full)
        return one

    begin = "void clover::par_ranged2d_kernel<"
    two = total(f"{begin}PdV_kernel(", "::[lambda(int, int) (instance 2)]")
    assert found["par_ranged2d_kernel<PdV_kernel::lambda 2>"] == two
    assert found["par_ranged2d_kernel<ideal_gas_kernel>"] == total(f"{begin}ideal_gas_kernel(", "::[lambda")
    assert found["par_reduce_kernel<calc_dt_kernel>"] == total("void clover::par_reduce_kernel<calc_dt_kernel(", "")


def test_a_kernel_is_called_the_same_everywhere(corpus: Path, tmp_path: Path) -> None:
    path = corpus / CLOVERLEAF
    session = pyanalyze.load(path)
    found = by_name(session)
    top = max(found, key=lambda name: found[name])
    (device,) = (one for one in session.report().devices if one.tenants)
    split = device.tenants[0].time_split
    assert split is not None
    assert (split.top_kernel, split.top_kernel_ns) == (top, found[top])
    assert device.advice[0].action.startswith(f"Make kernel {top} of ")
    assert top in str(limiters(session.kernel_occupancy).to_dict())
    page = run("report", path, "-f", "html", "-o", tmp_path / "page.html")
    assert page.returncode == 0
    assert top.replace("<", "&lt;").replace(">", "&gt;") in (tmp_path / "page.html").read_text(encoding="utf-8")
    (mine,) = session.kernel_occupancy.filter(pl.col("short_name").cast(pl.String) == top)["name"].unique().to_list()
    # The whole name is there, too.
    assert mine.startswith("void clover::par_ranged2d_kernel<PdV_kernel(bool, int")


def test_a_window_a_pack_and_another_run_keep_the_names(tmp_path: Path) -> None:
    """Those of floats differ in their lambda, the one of doubles needs no more."""
    path = wrapped(tmp_path / "a.sqlite", (ONE, MS), (TWO, 2 * MS), (THREE, 4 * MS))
    session = pyanalyze.load(path)
    told = session.kernels.select(pl.col("short_name", "name").cast(pl.String)).rows()
    assert told == [
        ("transform_kernel<lambda 1, float>", ONE),
        ("transform_kernel<lambda 2, float>", TWO),
        ("transform_kernel<double>", THREE),
    ]
    assert list(by_name(session.window("1500us", "2500us"))) == ["transform_kernel<lambda 2, float>"]
    packed = pyanalyze.load(pack(path, tmp_path / "a.pack", key=bytes(32)).path)
    assert sorted(by_name(packed).values()) == [MS, 2 * MS, 4 * MS]
    # Of one kernel the short name is enough.
    assert by_name(pyanalyze.load(wrapped(tmp_path / "b.sqlite", (ONE, MS)))) == {"transform_kernel": MS}


def test_two_runs_are_compared_by_full_names(tmp_path: Path) -> None:
    """The second run has another kernel of the same short name, so that it calls the first one otherwise."""
    first = wrapped(tmp_path / "a.sqlite", *[(ONE, MS)] * 20)
    second = wrapped(tmp_path / "b.sqlite", *[(ONE, 2 * MS), (TWO, MS)] * 20)
    (pair,) = compare_reports(pyanalyze.load(first).report(), pyanalyze.load(second).report()).tenants
    told = {row.kernel: (row.launches_a, row.launches_b, row.mean_a_ns, row.mean_b_ns) for row in pair.kernels}
    assert told == {
        "transform_kernel<lambda 1>": (20, 20, MS, 2 * MS),
        "transform_kernel<lambda 2>": (0, 20, None, MS),
    }
    assert [row.kernel for row in pair.changed] == ["transform_kernel<lambda 2>"]


def test_the_short_name_of_nsys_still_selects(tmp_path: Path) -> None:
    path = wrapped(tmp_path / "a.sqlite", (ONE, MS), (TWO, 2 * MS), (THREE, 4 * MS))
    tables = pyanalyze.load(path).tables
    assert produce(tables, "cuda_gpu_kern_pace", kernel="transform_kernel")["duration_ns"].to_list() == [
        MS,
        2 * MS,
        4 * MS,
    ]
    assert produce(tables, "cuda_gpu_kern_pace", kernel="transform").is_empty()
    # A stream is named after what most of its kernels have in common.
    again = write(
        tmp_path / "b.sqlite",
        kernels=[
            kernel(41, start * MS, (start + 1) * MS, shortName=1, demangledName=full, streamId=stream)
            for start, full, stream in [(0, 2, 7), (2, 3, 7), (4, 4, 7), (6, 5, 8)]
        ],
        processes={41: "train"},
        kernel_names=("transform_kernel", ONE, TWO, THREE, THREE.replace("saxpy", "daxpy")),
    )
    groups = pyanalyze.load(again, by="stream").tenants["name"].cast(pl.String).to_list()
    assert sorted(groups) == ["train", "transform_kernel (stream 7)", "transform_kernel (stream 8)"]
