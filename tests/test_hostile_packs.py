"""Packs and saved reports hold what they say, or are refused in one line before much is made of them."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import run, run_apart
from hostile_inputs import NAMES, commanding

import pyanalyze
from pyanalyze.errors import CaptureDamaged
from pyanalyze.inputs import pack as packs
from pyanalyze.inputs.saved_report import largest
from pyanalyze.tables import memory

COMMANDS = (("summary",), ("classify", "-f", "csv"), ("kernels",), ("report", "-f", "json"))


@pytest.fixture(scope="module")
def sound(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of a capture with kernels, switches and samples."""
    folder = tmp_path_factory.mktemp("packs")
    samples = fixtures / "demo-time-slicing.query-gpu.csv"
    done = run(
        "pack",
        fixtures / "demo-time-slicing.sqlite",
        "--samples",
        samples,
        "-o",
        folder / "a.pack",
        "--key",
        folder / "key",
    )
    assert done.returncode == 0, done.stderr
    return folder / "a.pack"


def changed(
    sound: Path, target: Path, *statements: str, about: Callable[[dict[str, Any]], object] | None = None
) -> Path:
    shutil.copy(sound, target)
    with closing(sqlite3.connect(target)) as db, db:
        for statement in statements:
            db.execute(statement)
        if about is not None:
            ((text,),) = db.execute("SELECT about FROM pack")
            body = json.loads(text)
            about(body)
            db.execute("UPDATE pack SET about = ?", (json.dumps(body),))
    return target


def constant(table: str, column: str, value: object) -> Callable[[dict[str, Any]], object]:
    """Says that a column holds one value in every row; it is not stored then."""

    def change(about: dict[str, Any]) -> None:
        described = about["tables"][table]
        for kind in ("columns", "names"):
            described[kind] = [one for one in described[kind] if one != column]
        described["constants"][column] = value

    return change


WRONG: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], object] | None]] = {
    "first time of all": (("UPDATE kernels SET start_ns = -9223372036854775808",), None),
    "last time of all": (("UPDATE kernels SET end_ns = 9223372036854775807",), None),
    "constant time": ((), constant("kernels", "start_ns", -(1 << 63))),
    "constant no number": ((), constant("kernels", "start_ns", "x")),
    "constant no text": ((), constant("sources", "state", 7)),
    "constant list": ((), constant("kernels", "name", ["a"])),
    "constant null": ((), constant("kernels", "start_ns", None)),
    "constant huge": ((), constant("kernels", "grid_x", 10**30)),
    "constant infinite": ((), constant("kernels", "grid_x", float("inf"))),
    "no such state": (("UPDATE names SET name = 'gone' WHERE name = 'present'",), None),
    "no such counter": ((), constant("quality", "name", "anything")),
    "no such severity": ((), constant("quality", "severity", "bad")),
    "a billion rows": ((), lambda about: about["tables"]["kernels"].update(rows=10**9)),
    "a true row": ((), lambda about: about["tables"]["kernels"].update(rows=True)),
    "half a row": ((), lambda about: about["tables"]["kernels"].update(rows=1.5)),
    "tables of nothing": ((), lambda about: about.update(tables=None)),
    "tables in a list": ((), lambda about: about.update(tables=[["kernels", {}]])),
    "a table of another kind": ((), lambda about: about["tables"].update(kernels=7)),
    "a table that nobody declares": ((), lambda about: about["tables"].update({NAMES["escapes"]: about["tables"]["kernels"]})),
    "columns that nobody declares": ((), lambda about: about["tables"]["kernels"]["columns"].append(NAMES["bidi"])),
    "columns in a number": ((), lambda about: about["tables"]["kernels"].update(columns=3)),
    "a version in words": ((), lambda about: about["tables"]["kernels"].update(version=NAMES["lines"])),
    "a format in words": ((), lambda about: about.update(format=NAMES["escapes"])),
    "a tool in words": ((), lambda about: (about.update(tool=NAMES["escapes"]), about["tables"]["kernels"].update(version=0))),
    "no capture": ((), lambda about: about["tables"].pop("capture")),
    "a name that is none": (("DELETE FROM names",), None),
    "a name of bytes": (("CREATE TABLE n2 AS SELECT * FROM names", "DROP TABLE names", "ALTER TABLE n2 RENAME TO names",
                         "UPDATE names SET name = x'00ff'"), None),
    "a name that is a number": (("CREATE TABLE n2 AS SELECT * FROM names", "DROP TABLE names", "ALTER TABLE n2 RENAME TO names",
                                 "UPDATE names SET name = 7"), None),
    "a row too many": (("INSERT INTO kernels SELECT * FROM kernels LIMIT 1",), None),
    "a row too few": (("DELETE FROM kernels WHERE rowid = 1",), None),
    "no table": (("DROP TABLE kernels",), None),
    "no description": (("DELETE FROM pack",), None),
    "two descriptions": (("INSERT INTO pack SELECT * FROM pack",), None),
    "a description of nothing": (("UPDATE pack SET about = ''",), None),
    "a deep description": (("UPDATE pack SET about = '" + "[" * 50_000 + "'",), None),
    "a description of digits": (("UPDATE pack SET about = '" + "9" * 5000 + "'",), None),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_pack_that_is_wrong_is_one_line(sound: Path, tmp_path: Path, name: str) -> None:
    statements, about = WRONG[name]
    if name == "constant infinite":
        about = constant("kernels", "grid_x", 1e999)
    bad = changed(sound, tmp_path / "bad.pack", *statements, about=about)
    for words in COMMANDS:
        done = run(words[0], bad, *words[1:])
        assert done.returncode == 3, (words, done.stderr)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert len(done.stderr) < 1000
        assert commanding(done.stderr) == []


def test_a_text_that_is_repeated_does_not_grow_without_end(sound: Path, tmp_path: Path) -> None:
    """Names stand once in a file; a table of a thousand rows could make a gigabyte of one megabyte."""
    long = "n" * 2_000_000

    def repeated(about: dict[str, Any]) -> None:
        rows = about["tables"]["nvml_samples"]["rows"]
        assert rows > 100
        constant("nvml_samples", "text", long)(about)

    bad = changed(sound, tmp_path / "bad.pack", about=repeated)
    with pytest.raises(CaptureDamaged, match=r"too long|longer than"):
        packs.unpack(bad)
    # A name that repeats stands once in memory as well.
    held = changed(sound, tmp_path / "held.pack", about=constant("kernels", "name", long))
    kernels = packs.unpack(held).captures[0]["kernels"]
    assert kernels.num_rows > 500
    assert pyanalyze.load(held).kernels["name"].n_unique() == 1


def test_more_captures_than_a_session_has_are_refused(sound: Path, tmp_path: Path) -> None:
    def many(about: dict[str, Any]) -> None:
        about["tables"]["capture"].update(rows=5000, columns=["capture"], names=[])

    bad = changed(
        sound,
        tmp_path / "bad.pack",
        "DROP TABLE IF EXISTS capture",
        "CREATE TABLE capture (capture INTEGER)",
        "INSERT INTO capture WITH RECURSIVE n(v) AS (SELECT 0 UNION ALL SELECT v + 1 FROM n WHERE v < 4999) SELECT v FROM n",
        about=many,
    )
    assert run("info", bad).returncode == 3


def test_pieces_of_any_size_give_the_same(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pyanalyze.load(sound).report().to_json()
    monkeypatch.setattr(packs, "_PIECE_ROWS", 7)
    assert pyanalyze.load(sound).report().to_json() == whole


@pytest.mark.parametrize("seed", range(60))
def test_bytes_that_flip_end_in_an_answer_or_an_error(sound: Path, tmp_path: Path, seed: int) -> None:
    numbers = random.Random(seed)
    data = bytearray(sound.read_bytes())
    for _ in range(numbers.randrange(1, 12)):
        data[numbers.randrange(len(data))] = numbers.randrange(256)
    bad = tmp_path / "bad.pack"
    bad.write_bytes(data)
    done = run("summary", bad)
    assert done.returncode in (0, 3), done.stderr
    assert commanding(done.stdout + done.stderr) == []


def test_a_pack_is_read_within_its_budget(fixtures: Path, tmp_path: Path) -> None:
    """300,000 kernels of a pack took 200 MB as Python objects, in which no budget could hold them."""
    key, wide = tmp_path / "key", tmp_path / "wide.sqlite"
    shutil.copy(fixtures / "exclusive.sqlite", wide)
    with closing(sqlite3.connect(wide)) as db, db:
        (rows, last, first) = db.execute(
            'SELECT count(*), max("end"), min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        ).fetchone()
        columns = [row[1] for row in db.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
        moved = ", ".join(
            f'"{c}" + n.v * {last - first + 1000}' if c in ("start", "end") else f'"{c}"' for c in columns
        )
        times = 300_000 // rows
        db.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {times}) "
            f"SELECT {moved} FROM n, CUPTI_ACTIVITY_KIND_KERNEL"
        )
    assert run("pack", wide, "-o", tmp_path / "wide.pack", "--key", key).returncode == 0
    code = (
        "import resource, sys; from pyanalyze.inputs.pack import unpack; import polars, pyanalyze\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "read = unpack(sys.argv[1])\n"
        "print(read.captures[0]['kernels'].num_rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "wide.pack"], capture_output=True, text=True, check=True
    )
    read, grown_kib = map(int, done.stdout.split())
    assert read > 290_000
    # Columns of numbers are some 30 bytes a kernel, those without values nothing; a piece of rows in Python is 40 MB.
    assert grown_kib < 110_000


def test_more_than_its_budget_ends_a_command_of_any_kind(fixtures: Path, tmp_path: Path) -> None:
    """Whatever a command wrote by then, it does not end as if it had kept to its budget."""
    over = (
        "from pyanalyze.core import _core\nfrom pyanalyze.tables import memory\n"
        "real = memory.hold\n"
        "def hold(given=None):\n"
        "    found = real(given)\n"
        "    _core.bound_memory((1 << 20, 1 << 20, memory.spill_folder()))\n"
        "    return found\n"
        "memory.hold = hold\n"
        "import pyanalyze.inputs.capture as c\nc.hold = hold"
    )
    capture = fixtures / "exclusive.sqlite"
    for words in (
        ("export", capture, "--to", "nsys-stats", "-o", "stats"),
        ("export", capture, "--to", "csv", "-o", "csv"),
        ("export", capture, "--to", "sqlite", "-o", "a.db"),
        ("pack", capture, "-o", "a.pack", "--key", "key"),
        ("classify", capture),
        ("check", capture, "--max-slowdown", "2"),
    ):
        quiet = () if words[0] == "check" else ("-q",)
        done = run_apart(*words, *quiet, "--memory", "2GB", before=over, cwd=tmp_path)
        assert done.returncode == 3, (words, done.stderr)
        assert "the budget of 1 MiB of memory cannot be held" in done.stderr
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == [], words


def test_every_command_that_reads_captures_takes_a_budget(fixtures: Path) -> None:
    from pyanalyze.cli import VERBS

    without = {verb for verb in VERBS if "--memory" not in run(verb, "--help").stdout}
    assert without == {"now", "record", "doctor", "schema", "completion"}


def test_a_saved_report_larger_than_its_budget_is_not_read(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    with saved.open("wb") as file:
        file.write(b"{")
        os.truncate(file.fileno(), 64 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for words in (
        ("check", saved, "--max-slowdown", "2", "--memory", "512MiB"),
        ("compare", saved, saved, "--memory", "512MiB"),
    ):
        done = run(*words)
        assert done.returncode == 3, done.stderr
        assert done.stderr.count("\n") == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
    assert memory.account().budget_bytes is None or largest() > 1 << 20


@pytest.mark.parametrize("change", [
    lambda body: body.update(schema="pyanalyze.report/2"),
    lambda body: body["devices"][0].update(more=1),
    lambda body: body["devices"][0]["sharing"].update(mode=NAMES["escapes"]),
    lambda body: body["devices"][0]["sharing"].update(confidence=float("nan")),
    lambda body: body["devices"][0]["sharing"].update(confidence=1e400),
    lambda body: body["devices"][0].update(tenants={}),
    lambda body: body["devices"].append(None),
    lambda body: body["tool"].update(version=[]),
    lambda body: body["devices"][0].update({NAMES["bidi"]: 1}),
    lambda body: body.update(devices=[[]]),
])  # fmt: skip
def test_a_saved_report_that_is_wrong_is_one_line(
    fixtures: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    body = pyanalyze.load(fixtures / "mps.sqlite").report().to_dict()
    change(body)
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(body), encoding="utf-8")
    for words in (
        ("check", saved, "--max-slowdown", "2"),
        ("compare", saved, saved),
        ("interference", fixtures / "mps.sqlite", "--baseline", f"a={saved}"),
    ):
        done = run(*words)
        assert done.returncode == 3, done.stderr
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert commanding(done.stderr) == []
