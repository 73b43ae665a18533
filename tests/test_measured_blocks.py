"""Measured blocks: how they are read, and how far the modelled placement is from those of a real GPU."""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from command_line import run
from exports import kernel, write

import pyanalyze
from pyanalyze.analysis.measured_blocks import observed_warps, placed_blocks
from pyanalyze.errors import UsageError
from pyanalyze.inputs.blocks import read_blocks

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import placement

EXAMINER = {
    "scenario_name": "one",
    "PID": 4711,
    "times": [
        {},
        {"cpu_times": [0.5, 2.0]},
        {
            "kernel_name": "K1", "block_count": 2, "thread_count": 96, "shared_memory": 512,
            "block_times": [1.000000032, 1.5, 1.0, 1.25], "block_smids": [0, 2],
        },
    ],
}  # fmt: skip
CSV = "kernel,block,sm,start_ns,end_ns\nk,0,0,100,200\nk,1,2,110,210\nother,0,4,150,160\nk,0,0,300,400\nk,1,2,300,390\n"

#: What is said of the intervals of modelled occupancy.
MODELLED = "Such ranges contained the Nsight Compute counter for 95 % of 891 launches of other programs"


def test_examiner(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(EXAMINER))
    found = read_blocks(tmp_path / "a.json")
    assert found.launches.rows() == [(0, 4711, "K1", 2, 96, 512, 1_000_000_000, 1_500_000_000)]
    assert found.blocks.rows() == [(0, 0, 0, 1_000_000_032, 1_500_000_000), (0, 1, 2, 1_000_000_000, 1_250_000_000)]


def test_csv_launches_begin_where_a_block_comes_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    found = read_blocks(tmp_path / "a.csv")
    assert found.launches.select("launch", "kernel", "blocks", "start_ns", "end_ns").rows() == [
        (0, "k", 2, 100, 210), (1, "other", 1, 150, 160), (2, "k", 2, 300, 400),
    ]  # fmt: skip
    assert found.blocks.filter(launch=2).rows() == [(2, 0, 0, 300, 400), (2, 1, 2, 300, 390)]
    assert found.launches["pid"].null_count() == found.launches["block_threads"].null_count() == 3


def test_kit(tmp_path: Path) -> None:
    # As kit.cu writes it; a block of zero warps is a place that was never written.
    (tmp_path / "0-A.meta.json").write_text(json.dumps({"format": "pyanalyze.blocks/1", "pid": 7}))
    rows = [(3, 0, 5, 8, 1000, 2000), (3, 1, 0, 0, 0, 0), (4, 0, 6, 8, 3000, 3500)]
    (tmp_path / "0-A.blocks.bin").write_bytes(b"".join(struct.pack("<IIIIQQ", *row) for row in rows))
    (tmp_path / "0-A.launches.csv").write_text(
        "launch,kernel,stream,grid,block,registers,shared_bytes,blocks_per_sm,launch_utc_ns,recorded\n"
        "3,A1,0,1,256,32,0,8,900,1\n4,A2,0,1,256,32,1024,8,2900,1\n5,A2,0,1,256,32,1024,8,4900,0\n"
    )
    found = read_blocks(tmp_path / "0-A.meta.json")
    assert found.launches.rows() == [(0, 7, "A1", 1, 256, 0, 1000, 2000), (1, 7, "A2", 1, 256, 1024, 3000, 3500)]
    assert found.blocks.rows() == [(0, 0, 5, 1000, 2000), (1, 0, 6, 3000, 3500)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "kernel,block,sm,start_ns\nk,0,0,1\n", "no end_ns"),
        ("a.csv", "kernel,block,sm,start_ns,end_ns\nk,0,x,1,2\n", "line 2: sm is no whole number"),
        ("a.csv", "kernel,block,sm,start_ns,end_ns\nk,0,0,1," + "9" * 5000 + "\n", "line 2: end_ns is no whole number"),
        ("a.csv", "kernel,block,sm,start_ns,end_ns\nk,0,0,5,2\n", "block 0 ends before it starts"),
        ("a.csv", "kernel,block,sm,start_ns,end_ns\nk,0\n", "sm is no whole number"),
        ("a.csv", "kernel,block,sm,start_ns,end_ns\n", "no block was measured"),
        ("a.json", "{", "neither CSV nor JSON"),
        ("a.json", "[" * 200_000, "neither CSV nor JSON"),
        ("a.json", '{"times": [{"block_times": [1, 2, 3], "block_smids": [0]}]}', "two block_times"),
        ("a.json", '{"times": [{"block_times": [1, 1e300], "block_smids": [0]}]}', "no clock shows"),
        ("a.json", '{"times": [{"block_times": [1, 2], "block_smids": [-1]}]}', "no whole number"),
        ("a.json", '{"times": [{"block_times": [1, 2], "block_smids": [true]}]}', "no whole number"),
        ("a.json", '{"PID": "x", "times": [{"block_times": [1, 2], "block_smids": [1]}]}', "PID is no whole number"),
        ("a.json", "{}", "no measured blocks"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        read_blocks(tmp_path / name)


def test_blocks_of_a_real_gpu_are_where_the_model_says(corpus: Path) -> None:
    folder = corpus / "placement"
    if not folder.is_dir():
        pytest.skip(f"no measured blocks in {corpus}")
    for one in placement.runs_of(folder):
        if one.excluded:
            continue
        replay, even, first = placement.compared(one)
        # SM numbers of first waves are exact, and so is everything where a trace tells enough.
        assert first is None or first < 1e-4, one.name
        assert replay.sorted <= placement.TARGET or one.untold, one.name
        assert replay.sorted <= even.sorted + 1e-4, one.name


def _csv(path: Path, blocks: list[tuple[str, int, int, int, int]]) -> Path:
    path.write_text("kernel,block,sm,start_ns,end_ns\n" + "".join(f"{','.join(map(str, row))}\n" for row in blocks))
    return path


def test_measured_blocks_are_observed_and_score_the_model(tmp_path: Path) -> None:
    # Two blocks of 8 warps on the first kernel (1 ms), none measured of the second one. Their clock is 5 s ahead of the
    # capture's. The model says SM 0 and 2; they ran on 0 and 4, and the second one for half of the time.
    gpu = placement.TITAN_V
    ms = 1_000_000
    kernels = [kernel(7, 10 * ms, 11 * ms, gridX=2), kernel(7, 15 * ms, 16 * ms, gridX=3)]
    capture = write(tmp_path / "one.sqlite", kernels=kernels, gpus=[gpu])
    ahead = 5_000 * ms + 10 * ms
    file = _csv(tmp_path / "b.csv", [("k", 0, 0, ahead, ahead + ms), ("k", 1, 4, ahead, ahead + ms // 2)])
    late = _csv(tmp_path / "c.csv", [("k", 0, 0, 0, 3 * ms), ("k", 1, 1, 0, 3 * ms)])
    with pytest.raises(UsageError, match="a measured launch"):
        pyanalyze.load(capture, blocks=late)
    other = _csv(tmp_path / "d.csv", [("other", 0, 0, 0, ms)])
    with pytest.raises(UsageError, match="no kernel of the capture has the name"):
        pyanalyze.load(capture, blocks=other)
    session = pyanalyze.load(capture, blocks=file)
    rows = session.sm_warps.with_columns(pl.col("basis").cast(pl.String), pl.col("model").cast(pl.String))
    seen = rows.filter(basis="observed")
    assert set(seen["model"]) == {"measured"}
    length = pl.col("end_ns") - pl.col("start_ns")
    held = seen.group_by("sm").agg(((pl.col("warps") * length).sum() / ms).round(3)).filter(pl.col("warps") > 0)
    assert dict(held.rows()) == {0: 8.0, 4: 4.0}
    active = seen.filter(sm=4).select((pl.col("active") * length).sum() / ms).item()
    assert active == pytest.approx(0.5, abs=0.001)
    # The other kernel's time stays modelled.
    assert rows.filter(pl.col("start_ns") >= 15 * ms, pl.col("warps") > 0)["basis"].unique().to_list() == ["modelled"]
    occupancy = session.report().devices[0].occupancy
    assert occupancy is not None
    assert occupancy.basis == "modelled"
    check = occupancy.check_against_blocks
    assert check is not None
    # 12 warp-ms are true. Modelled: SM 0 and 2, 8 warp-ms each. By SM: 8 too many on 2, 4 too few on 4; sorted: 4.
    assert (check.kernels, check.blocks) == (1, 2)
    assert check.by_sm_error == pytest.approx(1.0, abs=0.01)
    assert check.sorted_error == pytest.approx(4 / 12, abs=0.01)
    assert check.warps_ratio == pytest.approx(16 / 12, abs=0.01)
    page = run("report", capture, "--blocks", file, "-f", "md").stdout
    assert "Measured blocks (1 kernel): modelled warps per SM are 33" in page.replace("\\", "")
    assert MODELLED in page


def test_blocks_that_fit_several_kernels_are_refused(tmp_path: Path) -> None:
    kernels = [kernel(7, n * 1_000_000, n * 1_000_000 + 400_000, gridX=2) for n in (1, 3)]
    capture = write(tmp_path / "one.sqlite", kernels=kernels, gpus=[placement.TITAN_V])
    one = [("k", 0, 0, 0, 400_000), ("k", 1, 2, 0, 400_000)]
    with pytest.raises(UsageError, match="several kernels"):
        pyanalyze.load(capture, blocks=_csv(tmp_path / "b.csv", one))
    both = [*one, ("k", 0, 0, 2_000_000, 2_400_000), ("k", 1, 2, 2_000_000, 2_400_000)]
    session = pyanalyze.load(capture, blocks=_csv(tmp_path / "b.csv", both))
    occupancy = session.report().devices[0].occupancy
    assert occupancy is not None
    assert occupancy.basis == "observed"
    assert occupancy.check_against_blocks is not None
    assert occupancy.check_against_blocks.by_sm_error < 0.01
    # What was measured has no interval of the model.
    assert MODELLED not in run("report", capture, "--blocks", tmp_path / "b.csv", "-f", "md").stdout


def test_blocks_of_a_real_gpu_beside_its_capture(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / "placement"
    if not folder.is_dir():
        pytest.skip(f"no measured blocks in {corpus}")
    (run_of,) = (one for one in placement.runs_of(folder) if "mandelbrot" in one.name)
    capture = placement.export_of(run_of, tmp_path / "run.sqlite")
    # The program's names are not in the made export: kernels fit by grid, block size and pid.
    nameless = [replace(one, launches=one.launches.with_columns(kernel=pl.lit(""))) for one in run_of.files]
    session = pyanalyze.load(capture)
    placed = placed_blocks(session.tables, nameless)
    assert placed.height == 2 * 1954
    seen = observed_warps(session.tables, placed, session.sm_warps)
    assert set(seen["basis"].cast(pl.String)) == {"observed"}
    window = seen["start_ns"].min(), seen["end_ns"].max()
    bins = seen["start_ns"].n_unique()
    true = placement.true_warps(run_of, window, bins)  # type: ignore[arg-type]
    ours = seen.sort("start_ns", "sm")["warps"].to_list()
    grid = [ours[n * run_of.sms : (n + 1) * run_of.sms] for n in range(bins)]
    assert placement.errors(grid, true).by_sm < 0.001
