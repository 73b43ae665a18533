"""Tables come back from every format, and an output is there whole or not at all."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

import pyanalyze
from pyanalyze.analysis.analysis import DERIVED_TABLES
from pyanalyze.cli import cli
from pyanalyze.errors import OutputExists, UsageError
from pyanalyze.export import write as export

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "demo-time-slicing.sqlite"


def run(*arguments: str | Path) -> None:
    CliRunner().invoke(cli, ["export", *map(str, arguments)], catch_exceptions=False, standalone_mode=False)


def test_a_table_comes_back_from_every_folder_format(fixtures: Path, tmp_path: Path) -> None:
    kernels = pyanalyze.load(fixtures / DEMO).kernels
    assert kernels.height > 0
    for fmt in ("parquet", "arrow", "csv"):
        run(fixtures / DEMO, "--to", fmt, "-o", tmp_path / fmt, "--tables", "kernels, tenants")
        assert sorted(file.name for file in (tmp_path / fmt).iterdir()) == [f"kernels.{fmt}", f"tenants.{fmt}"]
    assert pl.read_parquet(tmp_path / "parquet/kernels.parquet").equals(kernels)
    assert pl.read_ipc(tmp_path / "arrow/kernels.arrow").equals(kernels)
    assert pl.read_csv(tmp_path / "csv/kernels.csv", schema=kernels.schema).equals(kernels)


def test_all_tables_are_written_unless_chosen(fixtures: Path, tmp_path: Path) -> None:
    session = pyanalyze.load(fixtures / DEMO)
    run(fixtures / DEMO, "--to", "parquet", "-o", tmp_path / "out")
    expected = {*session.tables, *DERIVED_TABLES}
    assert {file.stem for file in (tmp_path / "out").iterdir()} == expected
    run(fixtures / DEMO, "--to", "csv", "-o", tmp_path / "api", "--tables", "api_calls")
    assert [file.name for file in (tmp_path / "api").iterdir()] == ["api_calls.csv"]


def test_sqlite_holds_the_rows_and_the_report(fixtures: Path, tmp_path: Path) -> None:
    run(fixtures / DEMO, "--to", "sqlite", "-o", tmp_path / "out.sqlite")
    connection = sqlite3.connect(tmp_path / "out.sqlite")
    try:
        rows = connection.execute("SELECT start_ns, end_ns FROM kernels ORDER BY rowid").fetchall()
        report = connection.execute("SELECT schema FROM report").fetchall()
    finally:
        connection.close()
    assert rows == pyanalyze.load(fixtures / DEMO).kernels.select("start_ns", "end_ns").rows()
    assert report == [("pyanalyze.report/1",)]


def test_the_results_join_with_the_export(fixtures: Path, tmp_path: Path) -> None:
    """Process and correlation id name one launch in both: every kernel of nsys meets its row of ours, at its time."""
    run(
        fixtures / DEMO,
        "--to",
        "sqlite",
        "-o",
        tmp_path / "out.sqlite",
        "--tables",
        "kernels,kernel_attribution,capture",
    )
    export = f"{(fixtures / DEMO).resolve().as_uri()}?immutable=1"
    connection = sqlite3.connect(f"{(tmp_path / 'out.sqlite').as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("ATTACH ? AS nsys", [export])
        # A global pid of nsys holds the pid above 24 bits for the thread; our times have the capture's offset.
        (found,) = connection.execute(
            """
            SELECT count(*), sum(ours.start_ns = theirs.start + capture.clock_offset_ns), sum(kernel_attribution.attributed_ns > 0)
            FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL AS theirs
            JOIN kernels AS ours ON ours.correlation_id = theirs.correlationId
                AND ours.pid = (theirs.globalPid >> 24 & 0xFFFFFF)
            JOIN kernel_attribution USING (capture, pid, correlation_id)
            JOIN capture USING (capture)
            """
        ).fetchall()
        (recorded,) = connection.execute("SELECT count(*) FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    finally:
        connection.close()
    assert found == (recorded, recorded, recorded)


@pytest.mark.parametrize("fmt", [fmt for fmt in export.FORMATS if fmt != export.STATS])
def test_what_exists_is_kept_unless_forced(fixtures: Path, tmp_path: Path, fmt: str) -> None:
    out = tmp_path / "out"
    run(fixtures / DEMO, "--to", fmt, "-o", out, "--tables", "tenants")
    before = out.stat().st_ino
    with pytest.raises(OutputExists, match="--force") as refused:
        run(fixtures / DEMO, "--to", fmt, "-o", out, "--tables", "devices")
    assert refused.value.exit_code == 2
    assert out.stat().st_ino == before
    run(fixtures / DEMO, "--to", fmt, "-o", out, "--tables", "devices", "--force")
    if fmt in export.FOLDERS:
        assert [file.name for file in out.iterdir()] == [f"devices.{fmt}"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_empty_directory_is_filled_and_foreign_files_are_never_deleted(fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    run(fixtures / DEMO, "--to", "csv", "-o", out, "--tables", "tenants")
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        run(fixtures / DEMO, "--to", "csv", "-o", out, "--tables", "tenants", "--force")
    assert (out / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("fmt", [fmt for fmt in export.FORMATS if fmt != export.STATS])
def test_a_failure_leaves_what_was_there(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str, failure: type[BaseException]
) -> None:
    from pyanalyze.core import _core
    from pyanalyze.export import sqlite as store

    session = pyanalyze.load(fixtures / DEMO)
    out = tmp_path / "out"
    export.write(session, fmt, out, tables=["devices"])
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    written = []

    def fail(*arguments: object) -> None:
        written.append(arguments)
        if fmt not in export.FOLDERS:
            raise failure("injected")
        arguments[1].write_text("half")  # type: ignore[attr-defined]
        if len(written) % 2 == 0:
            raise failure("injected")

    if fmt in export.FOLDERS:
        monkeypatch.setitem(export._WRITERS, fmt, fail)
    else:
        monkeypatch.setattr(*((store, "_write_frame") if fmt == "sqlite" else (_core, "write_perfetto")), fail)
    for place in (out, tmp_path / "new"):
        with pytest.raises(failure):
            export.write(session, fmt, place, tables=["devices", "tenants"], force=True)
    assert written
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_wrong_usage_is_exit_2_before_any_work(fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for arguments in (
        ("--to", "csv", "-o", tmp_path / "file", "--force"),
        ("--to", "sqlite", "-o", tmp_path, "--force"),
        ("--to", "csv", "-o", tmp_path / "out", "--tables", "kernel"),
        ("--to", "csv", "-o", tmp_path / "out", "--tables", ","),
    ):
        with pytest.raises(UsageError) as refused:
            # The capture does not exist: had the work begun, that would be the complaint.
            run(fixtures / "nothing.sqlite", *arguments)
        assert refused.value.exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
