"""Whatever goes wrong while an output is written, what was there before is still there, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pyanalyze.errors import OutputExists
from pyanalyze.files import replacing, write_whole


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "a.txt", "line\r\nä") == tmp_path / "a.txt"
    assert (tmp_path / "a.txt").read_bytes() == b"line\r\n\xc3\xa4"
    assert write_whole(tmp_path / "b.bin", b"\x00\xff").read_bytes() == b"\x00\xff"
    assert names(tmp_path) == ["a.txt", "b.bin"]


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    place.write_text("old")
    with pytest.raises(OutputExists, match=r"a\.txt exists; give --force"):
        write_whole(place, "new")
    assert place.read_text() == "old"
    write_whole(place, "new", force=True)
    assert place.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_failure_half_way_changes_nothing(tmp_path: Path, failure: type[BaseException], old: str | None) -> None:
    place = tmp_path / "a.txt"
    if old is not None:
        place.write_text(old)
    with pytest.raises(failure), replacing(place, force=True) as temporary:
        temporary.write_text("half")
        # SQLite leaves such files beside a database whose writer died.
        Path(f"{temporary}-journal").write_text("journal")
        assert temporary.parent == tmp_path
        raise failure
    assert names(tmp_path) == ([] if old is None else ["a.txt"])
    if old is not None:
        assert place.read_text() == old


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_refuses_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    place = tmp_path / "a.txt"
    place.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(OSError, match="No space left"):
        write_whole(place, "new", force=True)
    monkeypatch.undo()
    assert place.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    with pytest.raises(OutputExists), replacing(place) as temporary:
        temporary.write_text("ours")
        place.write_text("theirs")
    assert place.read_text() == "theirs"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_system_without_hard_links_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_whole(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="permission bits are a POSIX matter")
def test_permissions_come_from_the_umask_and_from_the_file_replaced(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        new = write_whole(tmp_path / "new.txt", "x")
        assert stat.S_IMODE(new.stat().st_mode) == 0o640
        new.chmod(0o600)
        write_whole(new, "y", force=True)
        assert stat.S_IMODE(new.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="symbolic links need rights elsewhere")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_whole(tmp_path / "link.txt", "new", force=True)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="create it first"):
        write_whole(tmp_path / "no" / "a.txt", "x")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "x", force=True)
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
def test_where_nobody_may_write_the_output_is_named() -> None:
    """In /proc nobody makes a file, not even root; the name of the temporary file helps nobody."""
    with pytest.raises(OSError, match="No such file") as refused:
        write_whole("/proc/report.html", "text")
    assert refused.value.filename == "/proc/report.html"


@pytest.mark.skipif(not Path("/dev/null").is_char_device(), reason="there is no /dev/null")
def test_a_device_is_written_to_and_never_replaced() -> None:
    write_whole("/dev/null", "x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="not a regular file"), replacing("/dev/null", force=True):
        pass
    assert Path("/dev/null").is_char_device()
