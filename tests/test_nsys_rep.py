"""Does a report become an export, once, whole, in the cache, and does every failure say what to do?

Most tests use a stand-in ``nsys`` on a PATH of their own; the last ones use the real one where it is found.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyanalyze.errors import CaptureUnreadable, PyanalyzeError
from pyanalyze.inputs import nsys_report as nsys_rep
from pyanalyze.nsys_tool import find_nsys

HEADER = b"NVIDIA Tegra Profiler Report %s.\n\x0bLocal (CLI)\x12\n"

# A stand-in that logs its calls and does what BEHAVIOUR says.
STAND_IN = """#!/bin/sh
echo "$@" >> "{log}"
if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit 0; fi
if [ "$2" = --help ]; then echo "usage: nsys export"; echo "{help}"; exit 0; fi
while [ $# -gt 0 ]; do if [ "$1" = --output ]; then out="$2"; fi; last="$1"; shift; done
{behaviour}
"""
SUCCESS = 'printf "SQLite format 3\\000rest of it" > "$out"'
HALF_WAY = 'printf "SQLite format 3\\000half" > "$out"; echo "Exportation error: disk on fire." >&2; exit 1'
TOO_OLD = (
    'echo "Exportation error: Report was created in Nsight Systems version '
    '(2026.4.1.191-264138605071v0), newer than your current version (2023.4.4.54-234433681190v0)." >&2; '
    'echo "Please update your Nsight Systems to the latest version to view this report." >&2; exit 1'
)


class StandIn:
    """A folder with an ``nsys`` script, a report and a cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "calls.log"
        self.cache = folder / "cache"
        self.home = folder / "with space"
        self.home.mkdir()
        self.report = self.home / "run 1.nsys-rep"
        self.report.write_bytes(HEADER % b"2026@4@1@191-264138605071v0" + b"\0" * 1_000)
        self.install()

    def install(
        self,
        behaviour: str = SUCCESS,
        version: str = "2024.6.1.90-246135127289v0",
        options: str = "--tables --times",
    ) -> None:
        script = self.bin / "nsys"
        script.write_text(STAND_IN.format(log=self.log, version=version, help=options, behaviour=behaviour))
        script.chmod(0o755)

    def exports(self) -> list[str]:
        """The export commands that were run."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.startswith("export") and "--help" not in line]

    def export(self, tables: list[str] | None = None, times: tuple[int, int] | None = None) -> Path:
        return nsys_rep.export_report(self.report, tables, times, cache_dir=self.cache)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}{os.defpath}")
    monkeypatch.delenv("PYANALYZE_NSYS", raising=False)
    return made


def test_export_lands_in_the_cache_and_is_made_once(stand_in: StandIn) -> None:
    first = stand_in.export()
    assert first.parent == stand_in.cache
    assert first.read_bytes() == b"SQLite format 3\0rest of it"
    assert stand_in.export() == first
    assert len(stand_in.exports()) == 1
    assert [p.name for p in stand_in.cache.iterdir()] == [first.name]
    # Captures hold secrets: nobody else may read the copy.
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(stand_in.cache.stat().st_mode) == 0o700


def test_nothing_beside_the_report_is_written_or_used(stand_in: StandIn) -> None:
    beside = stand_in.report.with_suffix(".sqlite")
    beside.write_bytes(b"SQLite format 3\0of somebody else")
    assert stand_in.export().read_bytes() == b"SQLite format 3\0rest of it"
    assert sorted(p.name for p in stand_in.home.iterdir()) == ["run 1.nsys-rep", "run 1.sqlite"]
    assert beside.read_bytes() == b"SQLite format 3\0of somebody else"


def test_another_content_version_or_selection_is_another_export(stand_in: StandIn) -> None:
    found = {stand_in.export(), stand_in.export(["StringIds"]), stand_in.export(times=(0, 10))}
    stand_in.install(version="2025.1.1.1-1v0")
    found.add(stand_in.export())
    stand_in.report.write_bytes(stand_in.report.read_bytes() + b"more")
    found.add(stand_in.export())
    assert len(found) == 5
    # The name and the place of a report do not matter, only its content does.
    moved = stand_in.folder / "copy.nsys-rep"
    shutil.copy(stand_in.report, moved)
    assert nsys_rep.export_report(moved, cache_dir=stand_in.cache) in found


def test_needed_tables_and_times_are_asked_for_where_nsys_can(stand_in: StandIn) -> None:
    stand_in.export(["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"], (1_000, 2_000))
    (command,) = stand_in.exports()
    assert "--tables=CUPTI_ACTIVITY_KIND_KERNEL,META_DATA_EXPORT,StringIds" in command
    assert "--times=:1000/2000:" in command
    assert "--lazy=true" in command


def test_an_nsys_without_selection_exports_everything(stand_in: StandIn) -> None:
    stand_in.install(options="--output")
    stand_in.export(["StringIds"], (1_000, 2_000))
    (command,) = stand_in.exports()
    assert "--tables" not in command
    assert "--times" not in command


def test_a_failure_half_way_leaves_nothing(stand_in: StandIn) -> None:
    stand_in.install(HALF_WAY)
    with pytest.raises(CaptureUnreadable, match="disk on fire") as caught:
        stand_in.export()
    assert "run 1.nsys-rep" in str(caught.value)
    assert list(stand_in.cache.iterdir()) == []
    stand_in.install()
    assert stand_in.export().read_bytes() == b"SQLite format 3\0rest of it"


@pytest.mark.parametrize("behaviour", ["exit 0", 'echo text > "$out"'])
def test_success_without_a_database_is_a_failure(stand_in: StandIn, behaviour: str) -> None:
    stand_in.install(behaviour)
    with pytest.raises(CaptureUnreadable, match="wrote no database"):
        stand_in.export()
    assert list(stand_in.cache.iterdir()) == []


def test_too_old_names_both_versions_and_the_command(stand_in: StandIn) -> None:
    stand_in.install(TOO_OLD, version="2023.4.4.54-234433681190v0")
    with pytest.raises(CaptureUnreadable) as caught:
        stand_in.export()
    message = str(caught.value)
    assert "2026.4.1.191-264138605071v0" in message
    assert "2023.4.4.54-234433681190v0" in message
    assert "Install Nsight Systems 2026.4.1 or newer" in message
    assert "nsys export --type sqlite --output 'run 1.sqlite' 'run 1.nsys-rep'" in message


def test_missing_nsys_says_what_to_run_elsewhere(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(stand_in.folder))
    with pytest.raises(PyanalyzeError) as caught:
        stand_in.export()
    message = str(caught.value)
    assert "PATH" in message
    assert "PYANALYZE_NSYS" in message
    assert "nsys 2026.4.1 or newer" in message
    assert "nsys export --type sqlite --output 'run 1.sqlite' 'run 1.nsys-rep'" in message
    assert not stand_in.cache.exists()


def test_where_no_nsys_is_here_none_is_called_newer(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header names no version, and there is no nsys here that another one could be newer than."""
    monkeypatch.setenv("PATH", str(stand_in.folder))
    stand_in.report.write_bytes(b"\0" * 1_000)
    with pytest.raises(PyanalyzeError, match="Or run this where there is nsys, and") as caught:
        stand_in.export()
    assert "newer" not in str(caught.value)


def test_pyanalyze_nsys_goes_before_path(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    other = stand_in.folder / "other-nsys"
    shutil.copy(stand_in.bin / "nsys", other)
    stand_in.install("exit 7")
    monkeypatch.setenv("PYANALYZE_NSYS", str(other))
    assert stand_in.export().exists()
    monkeypatch.setenv("PYANALYZE_NSYS", str(stand_in.folder / "not-there"))
    with pytest.raises(CaptureUnreadable, match=r"\$PYANALYZE_NSYS, .*not-there, is not an executable file"):
        stand_in.export()


def test_something_else_named_nsys_is_refused(stand_in: StandIn) -> None:
    (stand_in.bin / "nsys").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(CaptureUnreadable, match="does not answer like nsys"):
        stand_in.export()
    (stand_in.bin / "nsys").write_text("#!/nowhere/at/all\n")
    with pytest.raises(CaptureUnreadable, match="cannot be run"):
        stand_in.export()


def test_too_little_space_is_said_before_anything_is_written(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = stand_in.report.stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=10**9, used=0, free=3 * size - 1))
    with pytest.raises(CaptureUnreadable, match="too little space"):
        stand_in.export()
    assert stand_in.exports() == []
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=10**9, used=0, free=3 * size))
    assert stand_in.export().exists()


def test_a_report_that_changes_meanwhile_is_not_cached(stand_in: StandIn) -> None:
    stand_in.install(SUCCESS + '; echo more >> "$last"')
    with pytest.raises(CaptureUnreadable, match="changed while it was exported"):
        stand_in.export()
    assert list(stand_in.cache.iterdir()) == []


def test_what_killed_runs_left_is_swept_after_a_day(stand_in: StandIn) -> None:
    stale, fresh = stand_in.cache / ".partial-old", stand_in.cache / ".partial-new"
    for scratch in (stale, fresh):
        scratch.mkdir(parents=True)
        (scratch / "export.sqlite").write_bytes(b"half")
    os.utime(stale, (0, 0))
    stand_in.export()
    assert not stale.exists()
    assert fresh.exists()


def test_a_missing_report_is_a_missing_file(stand_in: StandIn) -> None:
    with pytest.raises(FileNotFoundError):
        nsys_rep.export_report(stand_in.folder / "none.nsys-rep", cache_dir=stand_in.cache)


def test_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert nsys_rep.default_cache_dir() == tmp_path / "pyanalyze" / "exports"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert nsys_rep.default_cache_dir() == tmp_path / "home" / ".cache" / "pyanalyze" / "exports"


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (HEADER % b"2023@4@4@54-234433681190v0", "2023.4.4.54-234433681190v0"),
        (b"NVIDIA Tegra Profiler Report 2021@2\n", "2021.2"),
        (b"SQLite format 3\0", None),
        (b"", None),
    ],
)
def test_the_header_names_the_version(tmp_path: Path, header: bytes, version: str | None) -> None:
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(header)
    assert nsys_rep.report_version(report) == version


# -- with NVIDIA's own nsys ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_nsys() -> str:
    """An nsys on PATH, or one unpacked in ``~/.cache/nsys``."""
    found = shutil.which("nsys")
    unpacked = sorted((Path.home() / ".cache" / "nsys").glob("usr/lib/*/nsight-systems/target-linux-x64/nsys"))
    if found is None and not unpacked:
        pytest.skip("no nsys on PATH or unpacked in ~/.cache/nsys")
    return found or str(unpacked[0])


def test_real_nsys_is_understood(real_nsys: str) -> None:
    tool = find_nsys(real_nsys)
    assert tool is not None
    assert int(tool.version.split(".")[0]) >= 2021
    help_text = subprocess.run([real_nsys, "export", "--help"], capture_output=True, text=True, check=False).stdout
    assert tool.selects_tables == ("\t--tables=" in help_text)


def test_real_nsys_refuses_a_report_of_the_future(real_nsys: str, tmp_path: Path) -> None:
    report = tmp_path / "future.nsys-rep"
    report.write_bytes(HEADER % b"2099@4@1@191-994138605071v0")
    with pytest.raises(CaptureUnreadable) as caught:
        nsys_rep.export_report(report, cache_dir=tmp_path / "cache", nsys=real_nsys)
    message = str(caught.value)
    assert "written by nsys 2099.4.1.191-994138605071v0, newer than the nsys here" in message
    assert "Install Nsight Systems 2099.4.1 or newer" in message
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("content", [b"bogus\n", b"", HEADER % b"2022@4@1@191-224138605071v0"])
def test_real_nsys_refuses_what_is_no_report(real_nsys: str, tmp_path: Path, content: bytes) -> None:
    report = tmp_path / "bogus.nsys-rep"
    report.write_bytes(content)
    with pytest.raises(CaptureUnreadable, match=r"cannot export .*bogus\.nsys-rep"):
        nsys_rep.export_report(report, cache_dir=tmp_path / "cache", nsys=real_nsys)
    assert list((tmp_path / "cache").iterdir()) == []
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["bogus.nsys-rep"]


def test_real_nsys_exports_a_real_report(real_nsys: str, tmp_path: Path) -> None:
    """A report of a short process, recorded here without a GPU."""
    report = tmp_path / "real.nsys-rep"
    record = [
        real_nsys,
        "profile",
        "-t",
        "osrt",
        "--sample=none",
        "--cpuctxsw=none",
        "-o",
        str(report.with_suffix("")),
    ]
    done = subprocess.run([*record, "/bin/true"], capture_output=True, text=True, check=False, cwd=tmp_path)
    stream = report.with_suffix(".qdstrm")
    root = Path(real_nsys).resolve().parents[3]
    importers = list(root.glob("nsight-systems/host-linux-x64/QdstrmImporter"))
    if not report.exists() and stream.exists() and importers:
        # An unpacked nsys does not find its importer by itself.
        environment = os.environ | {"LD_LIBRARY_PATH": str(importers[0].parent)}
        command = [str(importers[0]), "-i", str(stream), "-o", str(report)]
        subprocess.run(command, capture_output=True, check=False, env=environment)
    if not report.exists():
        pytest.skip(f"nsys cannot record here: {done.stderr.strip()[-200:]}")
    there = sorted(p.name for p in tmp_path.iterdir())

    cache = tmp_path / "cache"
    wanted = ["StringIds", "PROCESSES", "META_DATA_CAPTURE"]
    everything = nsys_rep.export_report(report, cache_dir=cache, nsys=real_nsys)
    some = nsys_rep.export_report(report, wanted, (0, 1_000_000), cache_dir=cache, nsys=real_nsys)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*there, "cache"])

    def tables(path: Path) -> set[str]:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        finally:
            connection.close()

    assert {"OSRT_API", "META_DATA_EXPORT"} <= tables(everything)
    tool = find_nsys(real_nsys)
    assert tool is not None
    if tool.selects_tables:
        assert tables(some) == {*wanted, "META_DATA_EXPORT"}
    version = nsys_rep.report_version(report)
    assert version is not None
    assert version.split("-")[0] == tool.version.split("-")[0]
