"""A pack answers as its capture does, and holds no name."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import generate
import polars as pl
import pytest
from command_line import run, run_apart

import pyanalyze
from pyanalyze.errors import CaptureDamaged, CaptureUnreadable, SamplesUnreadable, TableMismatch, UsageError
from pyanalyze.export.pack import new_key, pack, read_key
from pyanalyze.inputs.nsys_export import is_pack
from pyanalyze.inputs.pack import _names, unpack
from pyanalyze.session import Session
from pyanalyze.tables.frames import ANALYSIS_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = bytes(range(32))
DEMO = "demo-time-slicing.sqlite"


def verdicts(session: Session) -> list[tuple[object, ...]]:
    return [
        (v.device_id, v.mode, v.confidence, v.basis, v.configured, v.agrees, [w.weight for w in v.evidence])
        for v in session.classify()
    ]


def assert_same(paths: Path | list[Path], tmp_path: Path) -> None:
    original = pyanalyze.load(paths)
    again = pyanalyze.load(pack(paths, tmp_path / "run.pack", key=KEY, force=True).path)
    assert verdicts(again) == verdicts(original)
    for table in ("residency", "switches", "tenant_usage", "kernel_attribution", "overlaps"):
        assert again.frame(table).equals(original.frame(table)), table
    assert again.facts.drop("detail").equals(original.facts.drop("detail"))
    assert again.report().devices[0].sharing.mode == original.report().devices[0].sharing.mode


@pytest.mark.parametrize("name", generate.COMMITTED)
def test_a_pack_answers_as_its_capture(fixtures: Path, name: str, tmp_path: Path) -> None:
    assert_same(fixtures / name if (fixtures / name).is_dir() else fixtures / f"{name}.sqlite", tmp_path)


SCENARIOS = ("green-contexts", "limiter-tokens", "mig-mps", "mps-capped", "exclusive-graphs", "time-slicing-idle-daemon", "two-gpus", "vgpu-time-sliced")  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_does_for_every_recording_of_a_scenario(scenario: str, tmp_path: Path) -> None:
    found = sorted(path for path in generate.built(scenario).glob("*.sqlite") if "truth" not in path.name)
    assert found
    for recording in found:
        assert_same(recording, tmp_path)


REAL = (
    "ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite",
    "concurrent-examples/mps_profile.nsys2025.sqlite",
    "mig-a30/report1.sqlite",
    "rtx3090-gpumetrics/report2.nsys2022.sqlite",
    "jaxtoolbox-gb200/nsys_report_benchmark.nsys2026.sqlite",
    "nsys-ai/healthy_1pct.sqlite",
    "mordred/report1.sqlite",
)


@pytest.mark.parametrize("name", REAL)
def test_it_does_for_real_captures(corpus: Path, name: str, tmp_path: Path) -> None:
    assert_same(corpus / "exports" / name, tmp_path)
    assert (tmp_path / "run.pack").stat().st_size < (corpus / "exports" / name).stat().st_size


def test_no_name_is_in_the_file(fixtures: Path, tmp_path: Path) -> None:
    session = pyanalyze.load(fixtures / "hostile-names.sqlite", tables=(*ANALYSIS_TABLES, "nvtx"))
    texts = {
        text
        for frame in (session.kernels["name"], session.kernels["short_name"], session.processes["name"], session.nvtx["text"])
        for text in frame.cast(pl.String).drop_nulls()
        if len(text) > 2 and not text.startswith("nvidia-")
    }  # fmt: skip
    assert len(texts) > 10
    made = pack(
        fixtures / "hostile-names.sqlite",
        tmp_path / "run.pack",
        key=KEY,
        tables=(*ANALYSIS_TABLES, "nvtx"),
    )
    data = made.path.read_bytes()
    assert [text for text in texts if text.encode("utf-8", "surrogatepass") in data] == []
    assert b"hostile-names" not in data, "not even the file's own name"
    assert b"do-not-show-me" not in data
    assert pyanalyze.load(fixtures / "hostile-names.sqlite").capture["host_hash"][0].encode() not in data
    assert {name for _, name, _ in made.names} >= texts


def test_the_same_key_gives_the_same_pseudonyms(fixtures: Path, tmp_path: Path) -> None:
    one, two = (pack(fixtures / DEMO, tmp_path / f"{n}.pack", key=KEY) for n in (1, 2))
    other = pack(fixtures / DEMO, tmp_path / "3.pack", key=bytes(32))
    assert one.names == two.names
    assert one.path.read_bytes() == two.path.read_bytes()
    assert {given for *_, given in one.names}.isdisjoint({given for *_, given in other.names})
    # A pack of a pack is what it was, under pseudonyms of pseudonyms.
    again = pack(one.path, tmp_path / "4.pack", key=KEY)
    assert verdicts(pyanalyze.load(again.path)) == verdicts(pyanalyze.load(fixtures / DEMO))


def test_samples_and_context_go_along(fixtures: Path, tmp_path: Path) -> None:
    samples = [fixtures / "demo-time-slicing.query-gpu.csv", fixtures / "demo-time-slicing.compute-apps.csv"]
    listing = tmp_path / "list.txt"
    uuid = pyanalyze.load(fixtures / DEMO).devices["uuid"][0]
    listing.write_text(f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {uuid})\n")
    pods = tmp_path / "pods.json"
    pods.write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": '
        '"secret-trainer", "namespace": "team-x"}, "spec": {"nodeName": "node7", "containers": [{"name": "main", '
        '"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}]}'
    )
    original = pyanalyze.load(fixtures / DEMO, samples=samples, context=[listing, pods])
    made = pack(fixtures / DEMO, tmp_path / "run.pack", key=KEY, samples=samples, context=[listing, pods])
    again = pyanalyze.load(made.path)
    assert again.nvml_samples.height == original.nvml_samples.height > 0
    same = ("time_ns", "device_id", "pid", "metric", "value")
    assert again.nvml_samples.select(same).equals(original.nvml_samples.select(same))
    assert again.configured.select("key", "device_id").equals(original.configured.select("key", "device_id"))
    assert verdicts(again) == verdicts(original)
    assert b"secret-trainer" not in made.path.read_bytes()
    assert any("secret-trainer" in value for value in original.configured["value"])
    unknown = tmp_path / "unknown.csv"
    unknown.write_text("a,b\n1,2\n")
    with pytest.raises(SamplesUnreadable):
        pack(fixtures / DEMO, tmp_path / "other.pack", key=KEY, samples=unknown)


def test_a_pack_goes_beside_other_captures(fixtures: Path, tmp_path: Path) -> None:
    folder = fixtures / "containers-same-pid"
    files = sorted(folder.glob("*.sqlite"))
    whole = pyanalyze.load(files)
    packed = pack(files[1:], tmp_path / "rest.pack", key=KEY).path
    mixed = pyanalyze.load([files[0], packed])
    assert mixed.capture["clock_offset_ns"].to_list() == whole.capture["clock_offset_ns"].to_list()
    assert [v.mode for v in mixed.classify()] == [v.mode for v in whole.classify()]
    assert mixed.residency.drop("tenant_id").equals(whole.residency.drop("tenant_id"))


def test_tables_of_events_are_read_when_they_are_asked_for(fixtures: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.pack"
    pack(fixtures / "demo-time-slicing.sqlite", file, key=bytes(32), tables=(*ANALYSIS_TABLES, "api_calls"))
    kept = unpack(file, events=ANALYSIS_TABLES).captures[0]
    assert {"kernels", "switch_events", "processes"} <= set(kept)
    assert "api_calls" not in kept
    late = unpack(file, events=["api_calls"]).captures[0]
    assert late["api_calls"].num_rows == unpack(file).captures[0]["api_calls"].num_rows > 0
    assert "kernels" not in late


def test_keys_are_secrets(fixtures: Path, tmp_path: Path) -> None:
    file = tmp_path / "my.key"
    with pytest.raises(FileNotFoundError):
        read_key(file)
    key = read_key(file, create=True)
    assert len(key) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert new_key() != new_key()
    file.write_text("my dog\n")
    with pytest.raises(UsageError, match="hexadecimal"):
        read_key(file)
    with pytest.raises(UsageError, match="guessed"):
        pack(fixtures / DEMO, tmp_path / "x.pack", key=b"short")
    assert not (tmp_path / "x.pack").exists()


def test_a_pack_that_fails_leaves_no_key_behind(fixtures: Path, tmp_path: Path) -> None:
    """It would be a key to nothing; one that was there before stays."""
    broken, key = tmp_path / "broken.sqlite", tmp_path / "key"
    broken.write_bytes((fixtures / DEMO).read_bytes()[:20_000])
    failed = run("pack", broken, "-o", tmp_path / "run.pack", "--key", key)
    assert failed.returncode == 3
    assert "keep it" not in failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["broken.sqlite"]
    key.write_text(KEY.hex(), encoding="ascii")
    assert run("pack", broken, "-o", tmp_path / "run.pack", "--key", key).returncode == 3
    assert key.read_text(encoding="ascii") == KEY.hex()
    assert run("pack", fixtures / DEMO, "-o", tmp_path / "run.pack", "--key", tmp_path / "new").returncode == 0
    assert read_key(tmp_path / "new")


def test_what_is_no_whole_pack_is_refused(fixtures: Path, tmp_path: Path) -> None:
    good = pack(fixtures / DEMO, tmp_path / "good.pack", key=KEY).path
    assert is_pack(good)
    assert not is_pack(fixtures / DEMO)
    for statement, error in (
        ("DELETE FROM kernels WHERE rowid = 1", CaptureDamaged),
        ("DROP TABLE names", CaptureDamaged),
        ("DELETE FROM pack", CaptureDamaged),
        ("DELETE FROM names", CaptureDamaged),
        ('UPDATE pack SET about = replace(about, \'"format": "pyanalyze.pack/1"\', \'"format": "pyanalyze.pack/9"\')', CaptureUnreadable),
        ('UPDATE pack SET about = replace(about, \'"version": 1\', \'"version": 99\')', TableMismatch),
    ):  # fmt: skip
        bad = tmp_path / "bad.pack"
        shutil.copy(good, bad)
        connection = sqlite3.connect(bad)
        connection.execute(statement)
        connection.commit()
        connection.close()
        with pytest.raises(error):
            pyanalyze.load(bad)
    # A column under its old name: the versions of both builds stand in the message.
    shutil.copy(good, old := tmp_path / "old.pack")
    _edit(old, lambda a: a["tables"]["kernels"]["columns"].append("attributed_ns"))
    _edit(old, lambda a: a.update(tool="0.0.9"))
    with pytest.raises(
        TableMismatch, match=rf"pyanalyze 0\.0\.9, this is {re.escape(pyanalyze.__version__)}: .*attributed_ns"
    ):
        pyanalyze.load(old)
    cut = tmp_path / "cut.pack"
    cut.write_bytes(good.read_bytes()[:20_000])
    with pytest.raises(CaptureDamaged):
        pyanalyze.load(cut)


def _one_row(tables: dict[str, Any], rows: object, **more: object) -> None:
    """Kernels of which every column says the same in every row, so that none is stored."""
    same = {"capture": 0, "device_id": 0, "start_ns": 1_000_000, "end_ns": 2_000_000, **more}
    tables["kernels"].update(rows=rows, columns=[], names=[], constants=same)


def _edit(path: Path, change: Callable[[Any], object] = lambda _: None, *statements: str) -> None:
    """Change what a pack says of itself (the change may give something else in its place), and what it holds."""
    with closing(sqlite3.connect(path)) as db, db:
        about = json.loads(db.execute("SELECT about FROM pack").fetchone()[0])
        changed = change(about)
        text = changed if isinstance(changed, str) else json.dumps(about if changed is None else changed)
        db.execute("UPDATE pack SET about = ?", (text,))
        for statement in statements:
            db.execute(statement)


#: What a pack may claim or hold -> what is said of it. 10^9 rows of kernels once took 24 GB.
FORGED: dict[str, tuple[Callable[[Any], object], tuple[str, ...], str]] = {
    "a billion rows": (lambda a: _one_row(a["tables"], 10**9), (), "kernels claims 1000000000 rows"),
    "forty million rows": (lambda a: _one_row(a["tables"], 40_000_000), (), "kernels claims 40000000 rows"),
    "two rows nowhere": (
        lambda a: _one_row(a["tables"], 2),
        (),
        "kernels claims 2 rows, but the file can hold at most 1;",
    ),
    "fewer than none": (lambda a: _one_row(a["tables"], -1), (), "kernels claims -1 rows"),
    "half a row": (lambda a: _one_row(a["tables"], 0.5), (), "kernels claims 0.5 rows"),
    "rows yes": (lambda a: _one_row(a["tables"], True), (), "kernels claims True rows"),
    "more than fit": (lambda a: a["tables"]["kernels"].update(rows=10**9), (), "kernels claims 1000000000 rows"),
    "more than stored": (lambda a: a["tables"]["kernels"].update(rows=800), (), "rows, not 800"),
    "tables in a list": (lambda a: a.update(tables=[]), (), "there is no table capture"),
    "nothing described": (lambda _: [], (), "its description is not a JSON object"),
    "a deep description": (lambda _: "[" * 100_000, (), "nested too deeply"),
    "described twice": (lambda _: None, ("INSERT INTO pack SELECT about FROM pack",), "not described once"),
    "no capture": (lambda a: a["tables"].pop("capture") and None, (), "there is no table capture"),
    "no processes": (lambda a: a["tables"].pop("processes") and None, (), "there is no table processes"),
    "no row of a capture": (lambda a: a["tables"]["capture"].update(rows=0), (), "holds 0 captures"),
    "an unknown table": (lambda a: a["tables"].update(wine={"version": None}), (), "wine@None"),
    "an unknown column": (
        lambda a: a["tables"]["kernels"]["columns"].append("wine"),
        (),
        "columns of kernels differ (wine)",
    ),
    "a time no clock says": (
        lambda a: _one_row(a["tables"], 1, start_ns=-(1 << 63)),
        (),
        "kernels.start_ns is -9223372036854775808 ns, which is out of range",
    ),
    "an end before a start": (lambda a: _one_row(a["tables"], 1, end_ns=1), (), "an interval of -999999 ns"),
    "a kernel of two years": (lambda a: _one_row(a["tables"], 1, end_ns=2 * 365 * 86_400 * 10**9), (), "an interval"),
    "a number too large": (
        lambda a: _one_row(a["tables"], 1, end_ns=1 << 70),
        (),
        "end_ns holds a value that is no Int64",
    ),
    "no start": (lambda a: _one_row(a["tables"], 1, start_ns=None), (), "kernels.start_ns is missing in 1 rows"),
    "rows that are computed": (
        lambda a: a["tables"]["kernels"].update(columns=["start_ns"]),
        (
            "DROP TABLE kernels",
            "CREATE VIEW kernels AS WITH RECURSIVE n(start_ns) AS (SELECT 1 UNION ALL SELECT start_ns + 1 FROM n) "
            "SELECT start_ns FROM n",
        ),
        "no column start_ns of kernels is stored",
    ),
    "a column that is computed": (
        lambda a: a["tables"]["kernels"].update(columns=["start_ns"]),
        (
            "DROP TABLE kernels",
            "CREATE TABLE kernels (x INTEGER, start_ns TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL)",
            "INSERT INTO kernels VALUES (1)",
        ),
        "no column start_ns of kernels is stored",
    ),
    "a row as long as a book": (
        lambda a: a["tables"]["kernels"].update(columns=["start_ns"], rows=1),
        (
            "DROP TABLE kernels",
            "CREATE TABLE kernels (start_ns TEXT)",
            "INSERT INTO kernels VALUES (printf('%.*c', 5000, 'x'))",
        ),
        "too big",
    ),
}
#: Not more memory than this, in the place where a billion rows once took 24 GB.
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (2 << 30,) * 2)"


@pytest.mark.parametrize("claim", FORGED)
def test_a_pack_that_claims_what_it_does_not_hold_is_one_line_and_exit_3(
    fixtures: Path, tmp_path: Path, claim: str
) -> None:
    bad = pack(fixtures / DEMO, tmp_path / "bad.pack", key=KEY).path
    change, statements, says = FORGED[claim]
    _edit(bad, change, *statements)
    done = run_apart("summary", bad, before=LIMITED)
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("pyanalyze: ")
    assert says in line
    assert done.stdout == ""


def test_names_are_not_longer_than_their_file() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT)")
        db.execute("INSERT INTO names VALUES (0, 'one'), (1, 'three')")
        # Two names of 3 and 5 letters, and 6 bytes that every row takes.
        assert _names(db, 20) == {0: "one", 1: "three"}
        with pytest.raises(ValueError, match="longer than the file"):
            _names(db, 19)


def test_rows_that_are_all_the_same_are_counted_in_the_file(fixtures: Path, tmp_path: Path) -> None:
    """Two kernels of which every column is the same, as two streams of one export may have them."""
    twins = tmp_path / "twins.sqlite"
    shutil.copy(fixtures / DEMO, twins)
    with closing(sqlite3.connect(twins)) as db, db:
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        db.execute(f"DELETE FROM {kernels} WHERE rowid != (SELECT min(rowid) FROM {kernels})")
        db.execute(f"INSERT INTO {kernels} SELECT * FROM {kernels}")
    assert pyanalyze.load(twins).kernels.height == 2
    made = pack(twins, tmp_path / "twins.pack", key=KEY)
    assert made.rows["kernels"] == 2
    again = pyanalyze.load(made.path).kernels
    assert again.height == 2
    assert again.drop("name", "short_name").equals(pyanalyze.load(twins).kernels.drop("name", "short_name"))


def test_every_verb_takes_a_pack(fixtures: Path, tmp_path: Path) -> None:
    key, out, names = tmp_path / "my.key", tmp_path / "run.pack", tmp_path / "names.csv"
    made = run("pack", fixtures / DEMO, "-o", out, "--key", key, "--names", names)
    assert made.returncode == 0, made.stderr
    assert "created the key" in made.stderr
    assert pl.read_csv(names).columns == ["kind", "name", "pseudonym"]
    assert run("pack", fixtures / DEMO, "-o", out, "--key", key).returncode == 2, "it exists"
    assert "time-slicing" in run(out).stdout
    assert run("check", out, "--expect-mode", "time-slicing").returncode == 0
    # The same key, the same pseudonyms: a pack of today compares with one of yesterday.
    later = tmp_path / "later.pack"
    assert run("pack", fixtures / DEMO, "-o", later, "--key", key).returncode == 0
    assert "Equal work: yes, per unit" in run("compare", out, later).stdout
    assert out.read_bytes()[:16] == b"SQLite format 3\0"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(("-wal", "-shm", "-journal"))] == []
