"""A saved database holds every row with its type, and is there whole or not at all."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pyanalyze.errors import OutputExists
from pyanalyze.export import sqlite as store

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = pl.DataFrame(
    {
        "capture": [0, 0, 0],
        "pid": [7, 7, None],
        "correlation_id": [1, 1, None],  # nodes of one graph launch share it; old exports have none
        "start_ns": [10, 20, 1_795_219_585_450_667_566],
        "name": ["a<int>", "O'Brien\"; DROP TABLE x", None],
    },
    schema={
        "capture": pl.UInt32,
        "pid": pl.UInt32,
        "correlation_id": pl.UInt32,
        "start_ns": pl.Int64,
        "name": pl.Categorical,
    },
)
CONTEXTS = pl.DataFrame(
    {"capture": [0, 0], "is_green": [True, None], "share": [0.5, None], "global_pid": [2**64 - 2, 5]},
    schema={"capture": pl.UInt32, "is_green": pl.Boolean, "share": pl.Float64, "global_pid": pl.UInt64},
)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_rows_types_keys_and_report_come_back(tmp_path: Path) -> None:
    devices = pl.DataFrame({"device_id": [0], "capture": [0]}, schema={"device_id": pl.UInt32, "capture": pl.UInt32})
    report = {"schema": "pyanalyze.report/1", "devices": [{"name": "ünï", "mig": None}]}
    frames = {"kernels": KERNELS, "contexts": CONTEXTS, "devices": devices, "overlaps": KERNELS.clear()}
    out = store.save(frames, report, tmp_path / "out.sqlite")

    assert query(out, "SELECT * FROM kernels ORDER BY start_ns") == [
        (0, 7, 1, 10, "a<int>"),
        (0, 7, 1, 20, "O'Brien\"; DROP TABLE x"),
        (0, None, None, 1_795_219_585_450_667_566, None),
    ]
    # 2**64 - 2 has the bits of -2: that is how nsys stores such an id.
    assert query(out, "SELECT * FROM contexts") == [(0, 1, 0.5, -2), (0, None, None, 5)]
    assert query(out, "SELECT COUNT(*) FROM overlaps") == [(0,)]
    assert query(out, "SELECT name, type FROM pragma_table_info('overlaps')") == [
        ("capture", "INTEGER"), ("pid", "INTEGER"), ("correlation_id", "INTEGER"),
        ("start_ns", "INTEGER"), ("name", "TEXT"),
    ]  # fmt: skip
    assert query(out, "SELECT name FROM pragma_table_info('devices') WHERE pk > 0 ORDER BY pk") == [
        ("device_id",), ("capture",),
    ]  # fmt: skip
    strict = query(out, "SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%' ORDER BY name")
    assert strict == [(name, 1) for name in ("contexts", "devices", "kernels", "overlaps", "report")]
    plan = query(out, "EXPLAIN QUERY PLAN SELECT * FROM kernels WHERE capture = 0 AND pid = 7 AND correlation_id = 1")
    assert "USING INDEX" in plan[0][3] and "capture=? AND pid=? AND correlation_id=?" in plan[0][3]
    ((schema, text),) = query(out, "SELECT schema, json FROM report")
    assert schema == "pyanalyze.report/1"
    assert json.loads(text) == report
    assert query(out, "PRAGMA integrity_check") == [("ok",)]


def test_without_a_report_its_table_is_empty(tmp_path: Path) -> None:
    out = store.save({}, None, tmp_path / "out.sqlite")
    assert query(out, "SELECT * FROM report") == []


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    place = tmp_path / "out.sqlite"
    place.write_text("not ours")
    with pytest.raises(OutputExists):
        store.save({"kernels": KERNELS}, None, place)
    assert place.read_text() == "not ours"
    store.save({"kernels": KERNELS}, None, place, force=True)
    assert query(place, "SELECT COUNT(*) FROM kernels") == [(3,)]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_after_half_of_the_rows_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    def half(frame: pl.DataFrame) -> Any:
        yield next(frame.iter_rows())
        raise failure("injected")

    place = store.save({"kernels": KERNELS}, None, tmp_path / "out.sqlite")
    before = place.read_bytes()
    monkeypatch.setattr(store, "_rows", half)
    with pytest.raises(failure):
        store.save({"kernels": KERNELS}, None, place, force=True)
    with pytest.raises(failure):
        store.save({"kernels": KERNELS}, None, tmp_path / "new.sqlite")
    assert place.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.sqlite"]


@pytest.mark.parametrize(
    ("frames", "report", "kind"),
    [
        ({"report": KERNELS}, None, ValueError),
        ({"empty": pl.DataFrame()}, None, ValueError),
        ({"lists": pl.DataFrame({"a": [[1, 2]]})}, None, TypeError),
        ({"kernels": KERNELS}, {"antt": float("nan")}, ValueError),
        ({"capture": pl.DataFrame({"capture": [0, 0]})}, None, sqlite3.IntegrityError),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(
    tmp_path: Path, frames: dict[str, pl.DataFrame], report: dict[str, Any] | None, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        store.save(frames, report, tmp_path / "out.sqlite")
    assert list(tmp_path.iterdir()) == []
