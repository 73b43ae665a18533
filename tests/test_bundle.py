"""The script of charts is packed once for a user, and what is damaged is packed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyanalyze.report import bundle


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bundle, "_packed", lambda: "vegaEmbed")
    bundle.script_bundle.cache_clear()
    return tmp_path / "pyanalyze"


def again(monkeypatch: pytest.MonkeyPatch, packed: str) -> str:
    monkeypatch.setattr(bundle, "_packed", lambda: packed)
    bundle.script_bundle.cache_clear()
    try:
        return bundle.script_bundle()
    finally:
        bundle.script_bundle.cache_clear()


def test_it_is_packed_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bundle.script_bundle() == "vegaEmbed"
    (file,) = kept.iterdir()
    assert file.name.startswith("vega-")
    assert again(monkeypatch, "not asked") == "vegaEmbed"


@pytest.mark.parametrize("damage", [b"", b"vegaEmbed", b"0\nvegaEmbed", b"\xff\n"])
def test_what_is_damaged_is_packed_again(kept: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    bundle.script_bundle()
    (file,) = kept.iterdir()
    file.write_bytes(damage)
    assert again(monkeypatch, "fresh") == "fresh"
    assert again(monkeypatch, "not asked") == "fresh"


def test_a_cut_file_is_packed_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.script_bundle()
    (file,) = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert again(monkeypatch, "fresh") == "fresh"


def test_without_a_place_to_keep_it(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.write_text("a file where the folder should be")
    assert again(monkeypatch, "fresh") == "fresh"
    assert list(kept.parent.iterdir()) == [kept]
