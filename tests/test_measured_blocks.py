"""Measured blocks: how they are read, and how far the modelled placement is from those of a real GPU."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

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
    for run in placement.runs_of(folder):
        if run.excluded:
            continue
        replay, even, first = placement.compared(run)
        # SM numbers of first waves are exact, and so is everything where a trace tells enough.
        assert first is None or first < 1e-4, run.name
        assert replay.sorted <= placement.TARGET or run.untold, run.name
        assert replay.sorted <= even.sorted + 1e-4, run.name
