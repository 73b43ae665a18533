"""Kernels by name, of an export that nobody loads and of a session: the same, and what is not among them is said."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import pyanalyze
from pyanalyze.analysis.kernel_summary import of_export, of_tables
from pyanalyze.cli import cli
from pyanalyze.errors import OutputExists
from pyanalyze.export.pack import pack
from pyanalyze.tables.frames import EVENT_TABLES, to_frame

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "demo-time-slicing.sqlite"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What `pyanalyze kernels` prints; it must end well."""
    assert not cli.main(["kernels", *map(str, arguments)], standalone_mode=False)
    return capsys.readouterr().out


def kernels(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(shown(capsys, *arguments, "-f", "json"))["kernels"]
    return rows


def unnamed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Names in a pack are pseudonyms."""
    return [{**row, "name": None, "short_name": None} for row in rows]


def near(rows: list[dict[str, Any]]) -> list[Any]:
    """Sums of floats may be taken in any order."""
    return [
        {key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    ]


def test_an_export_and_its_session_say_the_same(fixtures: Path, corpus: Path) -> None:
    """NVIDIA's figures of the same captures are compared in test_nsys_stats; these are the two ways to ours."""
    captures = [*sorted(fixtures.glob("*.sqlite")), *sorted((corpus / "exports").glob("*/*.sqlite"))]
    with_rows = 0
    for path in captures:
        alone, loaded = of_export(path), of_tables(pyanalyze.load(path, reconstruct=False).tables)
        assert near(alone.rows) == loaded.rows, path
        assert (alone.missing, alone.known) == (loaded.missing, loaded.known), path
        with_rows += bool(alone.rows)
    assert (len(captures), with_rows) == (8 + 49, 7 + 44)


def test_kernels_of_one_wrapper_are_told_apart(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CloverLeaf launches its 102 kernels, by SQL, through three templates: so many short names nsys gives them."""
    path = corpus / "exports" / "pipit" / "perlmutter-cloverleaf-cuda.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        query = "SELECT count(DISTINCT demangledName), count(DISTINCT shortName) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        assert connection.execute(query).fetchone() == (102, 3)
    names = [re.split(r"\s{2,}", line)[-1] for line in shown(capsys, path).splitlines()[3:]]
    assert len(names) == len(set(names)) == 102
    assert names[0] == "par_ranged2d_kernel<PdV_kernel::lambda 2>"


def test_long_names_that_differ_in_the_middle_stay_apart(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels of cuBLAS here have names of 121 to 131 characters, which differ in the tile or in `split_k`."""
    path = corpus / "exports" / "nsys-ai" / "h100_2gpu_1s.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        query = "SELECT count(DISTINCT demangledName) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        assert connection.execute(query).fetchone() == (41,)
    names = [re.split(r"\s{2,}", line)[-1] for line in shown(capsys, path).splitlines()[3:]]
    assert len(names) == len(set(names)) == 41


def test_what_was_not_recorded_is_not_zero(fixtures: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    switches = fixtures / "node-switches-only.sqlite"
    said = shown(capsys, switches)
    assert "no table of kernels; to capture it: nsys profile -t cuda" in said
    assert "0 kernels" not in said
    assert json.loads(shown(capsys, switches, "-f", "json"))["kernels"] is None
    cli.main(["kernels", str(switches), "-f", "csv"], standalone_mode=False)
    printed = capsys.readouterr()
    assert printed.out == "name,short_name,kernels,total_ns,mean_ns,median_ns,min_ns,max_ns,stddev_ns\n"
    assert "no table of kernels" in printed.err
    # nsys stats prints the kernels beside them and is silent about the thousand graphs.
    (graphs,) = (corpus / "exports").glob("*/nsys_report_benchmark.nsys2026.sqlite")
    with sqlite3.connect(f"file:{graphs}?immutable=1", uri=True) as connection:
        (launches,) = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE").fetchone()
    assert launches == 1000
    assert "kernels of CUDA graphs: graphs were traced as a whole, 1000 launches" in shown(capsys, graphs)


def test_rows_without_name_or_interval_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'mine');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, demangledName INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 30, 1), (40, 50, 7), (90, 80, 1)"""
        )
    connection.close()
    said = shown(capsys, path)
    assert "2 kernels of 2 names, 40 ns as recorded" in said
    assert "as recorded; all processes added up: a row may mix tenants, share is of that sum" in said
    assert "(no name in the export)" in said
    assert "bad_interval x1: kernels" in said
    assert "name_missing x1: kernels.name" in said
    # One kernel does not scatter.
    assert re.split(r"\s{2,}", said.splitlines()[3]) == ["75.0 %", "1", *["30 ns"] * 5, "-", "mine"]


def test_every_shared_option_works(fixtures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = fixtures / DEMO
    whole = kernels(capsys, demo)
    packed = pack(demo, tmp_path / "demo.pack", key=bytes(32)).path
    assert unnamed(kernels(capsys, packed)) == unnamed(near(whole))
    assert kernels(capsys, demo, "--gpu", "0") == near(whole)
    cut = kernels(capsys, demo, "--start", "300ms", "--end", "500ms")
    assert 0 < sum(row["kernels"] for row in cut) < sum(row["kernels"] for row in whole)
    assert max(row["max_ns"] for row in cut) <= 200_000_000
    hidden = kernels(capsys, demo, "--redact")
    assert {row["name"] for row in hidden}.isdisjoint(row["name"] for row in whole)
    assert [row["total_ns"] for row in hidden] == [row["total_ns"] for row in whole]
    assert kernels(capsys, demo, "--expect-mode", "time-slicing") == near(whole)
    # In a process of its own: they bound all of it.
    arguments = ["kernels", str(demo), "-f", "json", "--threads", "1", "--memory", "600MB", "--quiet"]
    command = [sys.executable, "-c", "from pyanalyze.cli import main; main()", *arguments]
    bound = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(bound.stdout)["kernels"] == near(whole)
    both = kernels(capsys, demo, fixtures / "exclusive.sqlite")
    assert len(both) == len(whole) + len(kernels(capsys, fixtures / "exclusive.sqlite"))


def test_files_are_written_and_kept(fixtures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kernels.csv"
    shown(capsys, fixtures / DEMO, "-o", out)
    with out.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["total_ns"]) for row in rows] == pyanalyze.kernel_summary(fixtures / DEMO)["total_ns"].to_list()
    with pytest.raises(OutputExists):
        cli.main(["kernels", str(fixtures / DEMO), "-o", str(out)], standalone_mode=False)


def test_an_export_is_summed_up_without_polars(fixtures: Path) -> None:
    """Importing it takes longer than reading five million kernels."""
    program = "import sys; from pyanalyze.cli import cli; cli.main(sys.argv[1:], standalone_mode=False); "
    program += "sys.exit('polars' in sys.modules)"
    command = [sys.executable, "-c", program, "kernels", str(fixtures / DEMO)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONWARNINGS": "error"}, timeout=60)


def test_rows_of_tables_are_the_same_without_polars(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / DEMO, tables=EVENT_TABLES)
    kinds = set()
    for name in session.tables:
        table = session.table(name)
        frame = to_frame(table)
        text = [pl.col(column).cast(pl.String) for column, kind in frame.schema.items() if kind == pl.Categorical]
        if hasattr(table, "to_dicts"):
            assert table.to_dicts() == frame.with_columns(text).to_dicts(), name
            kinds |= set(frame.schema.values()) if frame.height else set()
    assert {pl.Int64, pl.UInt32, pl.UInt64, pl.Float64, pl.Boolean, pl.String} <= kinds
