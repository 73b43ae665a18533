"""Sessions of recordings that many tests read, each loaded and analysed once in a process that runs tests.

A session is frozen, and so are its results: what one test asked of it, the next finds computed. A test that replaces
something inside pyanalyze loads for itself (`pyanalyze.load`): results made under the replacement would stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import generate

import pyanalyze
from conftest import CORPUS
from pyanalyze.session import Session

_Files = str | Path | Sequence[str | Path]

#: Tests only read here. What they write is elsewhere, may be written anew under the same name, and is not kept.
_ONLY_READ = (generate.ROOT / "fixtures", generate.BUILT, CORPUS)


def load(
    captures: _Files,
    *,
    baselines: _Files = (),
    tables: Sequence[str] = (),
) -> Session:
    """Give what `pyanalyze.load` gives; the same session wherever the same recordings are asked for."""
    options: dict[str, Any] = {"baselines": _each(baselines)} | ({"tables": tuple(tables)} if tables else {})
    files = (*_each(captures), *_each(baselines))
    if all(any(Path(path).is_relative_to(one) for one in _ONLY_READ) for path in files):
        return _kept(_each(captures), tuple(options.items()))
    return pyanalyze.load(captures, **options)


def _each(given: _Files) -> tuple[str | Path, ...]:
    return (given,) if isinstance(given, str | Path) else tuple(given)


# Tests of one file read the same few recordings; each kept session takes some megabytes.
@lru_cache(maxsize=64)
def _kept(captures: tuple[str | Path, ...], options: tuple[tuple[str, Any], ...]) -> Session:
    return pyanalyze.load(captures, **dict(options))
