"""Sessions of recordings that many tests read, each loaded and analysed once in a process that runs tests.

A session is frozen, and so are its results: what one test asked of it, the next finds computed. A test that replaces
something inside pyanalyze loads for itself (`pyanalyze.load`): results made under the replacement would stay.

Commands share them where a test says so, with the fixture `commands_share_sessions`. A session belongs to the files as
they are: one that is written anew, under the same name or not, is loaded anew.
"""

from __future__ import annotations

import inspect
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import generate

from pyanalyze.session import Session
from pyanalyze.session import load as loaded

_Files = str | Path | Sequence[str | Path]

#: The real captures, which are not in the repository.
CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", generate.ROOT.parent / "shared" / "corpus"))
#: Tests only read here.
_ONLY_READ = (generate.ROOT / "fixtures", generate.BUILT, CORPUS)
_ARGUMENTS = inspect.signature(loaded)
_NAMING_FILES = ("captures", "samples", "context", "baselines", "work", "blocks", "tenants")
# Tests of one file read the same few recordings; each kept session takes some megabytes. What a test wrote is of use to that
# test alone.
_KEPT: tuple[OrderedDict[Any, Session], OrderedDict[Any, Session]] = (OrderedDict(), OrderedDict())
_MOST = (64, 12)


def load(captures: _Files = (), **options: Any) -> Session:
    """Give what `pyanalyze.load` gives; the same session wherever the same recordings are asked for."""
    given = _ARGUMENTS.bind(captures, **options)
    given.apply_defaults()
    arguments = {name: value for name, value in given.arguments.items() if name != "progress"}
    files = _files_of(arguments)
    # A budget is one of the process, and is taken anew by each who asks.
    if files is None or arguments["memory"] is not None or "PYANALYZE_MEMORY" in os.environ:
        return loaded(captures, **options)
    written = not all(any(Path(path).is_relative_to(one) for one in _ONLY_READ) for path, *_ in files)
    kept = _KEPT[written]
    key = (tuple(files), repr([(name, _plain(value)) for name, value in sorted(arguments.items())]))
    if key not in kept:
        kept[key] = loaded(captures, **options)
        if len(kept) > _MOST[written]:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _plain(value: Any) -> Any:
    """An argument as a command and a test both give it: one path or several, as texts or not, and nothing in any form."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()} or []
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one)[0] for one in value]
    return [] if value is None else [str(value) if isinstance(value, Path) else value]


def _files_of(arguments: dict[str, Any]) -> list[tuple[str, int, int, int]] | None:
    """Every file that is read, as it is now; nothing where one cannot be found."""
    named: list[Path] = []
    for name in _NAMING_FILES:
        value = arguments[name] or ()
        value = value.values() if isinstance(value, dict) else value
        for one in [value] if isinstance(value, str | Path) else value:
            if not isinstance(one, int):
                text = str(one)
                named.append(Path(text if name != "baselines" or Path(text).exists() else text.rpartition("=")[2]))
    found = []
    try:
        for path in named:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                state = file.stat()
                found.append((str(file.absolute()), state.st_ino, state.st_size, state.st_mtime_ns))
    except OSError:
        return None
    return found
