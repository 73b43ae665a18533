"""A budget of memory: what is taken for it, that results do not depend on it, and that it is said when it is not held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyanalyze
from pyanalyze.core import _core
from pyanalyze.errors import MemoryExceeded, UsageError
from pyanalyze.tables import memory, tableset

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
DEMO = "demo-time-slicing.sqlite"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="budgets of memory are held on Linux only")


@pytest.fixture
def unbounded() -> Iterator[None]:
    """No budget before and after the test: the budget is one of the process."""
    _core.bound_memory(None)
    yield
    _core.bound_memory(None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2_000_000_000),
        ("2gib", 2 * 1024**3),
        ("1.5 GB", 1_500_000_000),
        ("900M", 900_000_000),
        ("900000000", 900_000_000),
        (900_000_000, 900_000_000),
        ("1T", 10**12),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert memory.parse(text) == size


@pytest.mark.parametrize("text", ["", "much", "-2GB", "2 GBs", "GB", "2e9", "nan", "0", "100MB"])
def test_what_is_no_size_or_too_little(text: str) -> None:
    with pytest.raises(UsageError, match="memory"):
        memory.parse(text)


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYANALYZE_MEMORY", "3GB")
    assert memory.budget("2GB") == memory.Budget(2_000_000_000, "given")
    assert memory.budget() == memory.Budget(3_000_000_000, "PYANALYZE_MEMORY")
    monkeypatch.delenv("PYANALYZE_MEMORY")
    assert memory.budget().source in ("machine", "container")


def _group(root: Path, cgroup: str, files: dict[str, str]) -> list[int]:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return list(memory._cgroup_limits(root))


def test_limits_of_control_groups_version_2(tmp_path: Path) -> None:
    files = {"a/b/memory.max": "max", "a/memory.max": "4294967296", "memory.max": "8589934592"}
    assert _group(tmp_path, "0::/a/b\n", files) == [4 << 30, 8 << 30]


def test_limits_of_control_groups_version_1(tmp_path: Path) -> None:
    files = {
        "memory/pod/memory.limit_in_bytes": "3221225472",
        # What version 1 says where there is no limit.
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "cpu/pod/memory.limit_in_bytes": "1",
    }
    cgroup = "5:cpu,cpuacct:/pod\n4:memory:/pod\n0::/\n"
    assert _group(tmp_path, cgroup, files) == [3 << 30]


def test_inside_a_container_its_own_group_is_the_root(tmp_path: Path) -> None:
    assert _group(tmp_path, "0::/kubepods/pod1/c1\n", {"memory.max": "2147483648"}) == [2 << 30]
    assert list(memory._cgroup_limits(tmp_path / "nowhere")) == []


def test_the_smallest_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYANALYZE_MEMORY", raising=False)
    monkeypatch.setattr(memory, "_cgroup_limits", lambda _: iter([8 << 30, 4 << 30]))
    monkeypatch.setattr(memory, "_machine_bytes", lambda: 16 << 30)
    assert memory.budget() == memory.Budget(int(0.9 * (4 << 30)), "container")
    monkeypatch.setattr(memory, "_machine_bytes", lambda: 2 << 30)
    assert memory.budget() == memory.Budget(int(0.8 * (2 << 30)), "machine")


def test_files_never_go_to_a_folder_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYANALYZE_SPILL_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(memory, "_mounts", lambda _: {Path("/"): "ext4", tmp_path.resolve(): "tmpfs"})
    assert memory.spill_folder() == Path("/var/tmp")
    monkeypatch.setattr(memory, "_mounts", lambda _: {Path("/"): "ext4"})
    assert memory.spill_folder() == tmp_path
    monkeypatch.setattr(memory, "_mounts", lambda _: {Path("/"): "tmpfs"})
    assert memory.spill_folder() is None
    monkeypatch.setenv("PYANALYZE_SPILL_DIR", str(tmp_path))
    assert memory.spill_folder() == tmp_path


@LINUX
@pytest.mark.usefixtures("unbounded")
def test_a_budget_that_cannot_be_held_here_is_refused_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYANALYZE_SPILL_DIR", "/nowhere/at/all")
    with pytest.raises(UsageError, match=r"the memory budget cannot be kept: .*/nowhere/at/all"):
        memory.hold("2GB")
    # Nobody asked: then all goes on as on other systems.
    assert memory.hold() is None
    monkeypatch.delenv("PYANALYZE_SPILL_DIR")
    monkeypatch.setattr(memory, "spill_folder", lambda: None)
    with pytest.raises(UsageError, match="every temporary folder is in memory"):
        memory.hold("2GB")


@LINUX
@pytest.mark.usefixtures("unbounded")
def test_a_budget_in_force_stays() -> None:
    assert memory.hold("2GB") == memory.Budget(2_000_000_000, "given")
    assert memory.hold() == memory.Budget(2_000_000_000, "in force")
    assert memory.account().budget_bytes == 2_000_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of 600,000 kernels."""
    sys.path.insert(0, str(ROOT / "tests" / "bench"))
    try:
        import big_export
    finally:
        sys.path.pop(0)
    return big_export.export(600_000, 60_000, tmp_path_factory.mktemp("large"))


def _resident_bytes(which: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return 1024 * int(lines[which].split()[0])


@LINUX
@pytest.mark.usefixtures("unbounded")
def test_what_was_launched_is_added_up_without_holding_the_launches(large: Path) -> None:
    import pyanalyze.analysis.comparison.work

    session = pyanalyze.load(large)
    # All that is imported at first use is there, and what is read: a table, and who shares a context.
    assert not any(session.analysis.mps_groups.values())
    assert session.tenant_usage["kernels"].sum() == 600_000
    assert session.table("kernel_attribution").num_rows == 600_000
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _resident_bytes("VmRSS")
    work = session.analysis.work
    assert _resident_bytes("VmHWM") - before < 600_000 * 16, "not even start and end of every launch"
    assert sum(batch.launches for one in work.values() for batch in one.batches) == 600_000


@LINUX
@pytest.mark.usefixtures("unbounded")
def test_results_do_not_depend_on_where_blocks_are(large: Path, tmp_path: Path) -> None:
    capture = large
    whole = pyanalyze.load(capture)
    wanted = whole.report().model_dump_json()
    assert memory.account().spilled_most_bytes == 0
    # Every large block becomes a file.
    _core.bound_memory((1 << 40, 0, tmp_path))
    spilled = pyanalyze.load(capture)
    assert spilled.report().model_dump_json() == wanted
    assert memory.account().spilled_most_bytes > 20 << 20
    assert spilled.kernels.equals(whole.kernels)
    # They have no names.
    assert list(tmp_path.iterdir()) == []
    del spilled


@LINUX
@pytest.mark.usefixtures("unbounded")
def test_what_needs_more_ends_with_a_statement(fixtures: Path) -> None:
    folder = memory.spill_folder()
    assert folder is not None
    _core.bound_memory((1 << 20, 1 << 20, folder))
    with pytest.raises(MemoryExceeded, match=r"the budget of 1 MiB of memory cannot be held: \d+ MiB were needed"):
        for _ in range(500):
            pyanalyze.load(fixtures / DEMO)
            memory.check()


def test_a_moment_above_the_budget_is_said() -> None:
    within = memory.Account(1 << 30, 0, 0, 0, 1 << 30)
    assert within.passed() is None
    assert replace(within, budget_bytes=None).passed() is None
    said = replace(within, resident_most_bytes=(1 << 30) + (100 << 20)).passed()
    assert said is not None
    assert "budget of 1024 MiB" in said
    assert "1124 MiB were resident" in said


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pyanalyze.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@LINUX
def test_the_command_line_takes_a_budget_and_says_what_it_took(fixtures: Path) -> None:
    done = _run("info", str(fixtures / DEMO), "--memory", "2GB")
    assert done.returncode == 0, done.stderr
    assert "memory: " in done.stdout
    assert "of 1908 MiB used, everything in memory" in done.stdout
    told = json.loads(_run("info", str(fixtures / DEMO), "-f", "json", PYANALYZE_MEMORY="3GB").stdout)
    assert told["memory"]["budget_bytes"] == 3_000_000_000
    assert told["memory"]["spilled_most_bytes"] == 0


def test_a_budget_that_makes_no_sense_is_wrong_usage(fixtures: Path) -> None:
    done = _run(str(fixtures / DEMO), "--memory", "a lot")
    assert done.returncode == 2
    assert "'a lot' is not an amount of memory; write it as 2GB" in done.stderr
    done = _run(str(fixtures / DEMO), PYANALYZE_MEMORY="1MB")
    assert done.returncode == 2
    assert "too little memory" in done.stderr


@pytest.mark.parametrize("name", ["exclusive", "mps", "streams"])
def test_reports_do_not_depend_on_pieces(name: str, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them with hardware counters, which are looked at in pieces as kernels are."""
    whole = pyanalyze.load(fixtures / f"{name}.sqlite").report().to_json()
    monkeypatch.setattr(tableset, "BATCH_ROWS", 997)
    assert pyanalyze.load(fixtures / f"{name}.sqlite").report().to_json() == whole


@settings(deadline=None)
@given(st.data())
def test_what_began_last_is_found_in_pieces(data: st.DataObject) -> None:
    """Against looking at every kernel for every time."""
    import polars as pl

    from pyanalyze.analysis.interference.execution import _last_begun

    rows = data.draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.sampled_from([7, 8, None]))))
    times = sorted(data.draw(st.lists(st.integers(-2, 45))))
    size = data.draw(st.integers(1, 8))
    pid = data.draw(st.sampled_from([7, None]))
    rows.sort(key=lambda row: row[0])
    columns = {"capture": pl.UInt32, "pid": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    kernels = pl.DataFrame([(0, of, start, start + length) for start, length, of in rows], columns, orient="row")
    session = SimpleNamespace(batches=lambda _, *names: kernels.select(names).iter_slices(size))
    who = pl.DataFrame({"capture": [0], "pid": [pid]}, {"capture": pl.UInt32, "pid": pl.UInt32})
    found = _last_begun(session, who, pl.Series(times, dtype=pl.Int64))  # type: ignore[arg-type]
    begun = [[(start, start + length) for start, length, of in rows if of == pid and start <= time] for time in times]
    wanted = [(max(a for a, _ in one), max(b for _, b in one)) if one else (None, None) for one in begun]
    assert found.rows() == wanted


def test_pieces_of_any_size_give_the_same(fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyanalyze.analysis.advice import host_side

    session = pyanalyze.load(fixtures / "streams.sqlite")
    whole = host_side._streams(session.tables, 0)
    monkeypatch.setattr(tableset, "BATCH_ROWS", 7)
    assert host_side._streams(session.tables, 0) == whole
    # By hand: the kernels of each stream of the only process.
    ((process, streams),) = whole.items()
    rows = session.kernels.filter(capture=process[0], pid=process[1])
    for stream, found in streams.items():
        own = rows.filter(stream_id=stream)
        assert (found.kernels, found.first_ns, found.last_ns) == (
            own.height,
            own["start_ns"].min(),
            own["end_ns"].max(),
        )
