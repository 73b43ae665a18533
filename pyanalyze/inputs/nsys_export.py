"""Which SQLite file does the core read of what was given, and what is it if not an export?"""

from __future__ import annotations

import importlib
import struct
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.errors import NotACapture
from pyanalyze.files import head_of
from pyanalyze.inputs.other_formats import other_format

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

__all__ = ["PACK_ID", "exported", "importing", "is_pack", "told_from_other_formats"]

#: `PRAGMA application_id` of a pack, which stands in the header of the file: "PyAn".
PACK_ID = 0x5079416E


def exported(path: Path, tables: Sequence[str]) -> str:
    """The export to read; of a report the one in the cache, made now if it is not there yet.

    Parameters
    ----------
    path
        An export, or a report of nsys.
    tables
        The event tables that are asked for.

    Raises
    ------
    pyanalyze.errors.CaptureUnreadable
        A report that cannot be exported here.

    Examples
    --------
    >>> exported(Path(capture), ["kernels"]) == capture
    True
    """
    if path.suffix in (".nsys-rep", ".qdrep") and path.exists():
        from pyanalyze.inputs.nsys_report import export_report

        return str(export_report(path, _core.physical_tables(list(tables))))
    return str(path)


def is_pack(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a pack, by its header.

    Examples
    --------
    >>> is_pack(capture)
    False
    """
    file = Path(path)
    if not file.is_file():
        return False
    head = head_of(file, 72)
    if len(head) < 72 or not head.startswith(b"SQLite format 3\0"):
        return False
    (application,) = struct.unpack(">I", head[68:72])
    return bool(application == PACK_ID)


@contextmanager
def told_from_other_formats(path: Path) -> Iterator[None]:
    """Say what to do with a file that is a capture or an answer in another form."""
    try:
        yield
    except NotACapture as error:
        said = other_format(path)
        if said is None:
            raise
        raise NotACapture(f"{path} {said}") from error


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Import a module while the core reads: that leaves the interpreter free, and polars takes 0.2 s of it."""

    def run() -> None:
        # Who needs it imports it too, and is told what is wrong.
        with suppress(ImportError):
            importlib.import_module(module)

    thread = threading.Thread(target=run, name=f"import {module}")
    if module not in sys.modules:
        thread.start()
    try:
        yield
    finally:
        # A process that is forked while somebody imports waits forever for what he imports.
        if thread.ident is not None:
            thread.join()
