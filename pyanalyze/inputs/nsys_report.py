"""How does a ``.nsys-rep`` report become an export that can be read?

Only NVIDIA's ``nsys`` knows the format.  The report is exported with the ``nsys`` that is found, once, into a
cache keyed by content.  Nothing is ever written beside the report, and a ``.sqlite`` that lies there is not
used: nobody knows which report, options and version it came from.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.errors import CaptureUnreadable
from pyanalyze.nsys_tool import find_nsys, message_of, release, run
from pyanalyze.text.shell import shell_word

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from pyanalyze.nsys_tool import Nsys

__all__ = ["default_cache_dir", "export_report", "report_version"]

#: With less free space than this many times the report, nothing is begun (a small real report grew 2.7-fold).
SPACE_FACTOR = 3

#: Report headers look like ``NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.``
_HEADER = re.compile(rb"NVIDIA Tegra Profiler Report (\d+(?:[@.]\d+)*(?:-\w+)?)")
_TOO_OLD = re.compile(
    r"created in .*?version \((?P<report>[^)]*)\),\s*newer than your current version \((?P<tool>[^)]*)\)"
)
_ABANDONED_S = 24 * 3600


def default_cache_dir() -> Path:
    """The folder for exports: ``$XDG_CACHE_HOME/pyanalyze/exports``, else ``~/.cache/pyanalyze/exports``.

    Examples
    --------
    >>> default_cache_dir().parts[-2:]
    ('pyanalyze', 'exports')
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "pyanalyze" / "exports"


def report_version(path: Path) -> str | None:
    r"""The nsys version that wrote a report, from its first bytes.

    Parameters
    ----------
    path
        A ``.nsys-rep`` (or ``.qdrep``) file.

    Returns
    -------
    str or None
        Such as ``2026.4.1.191-264138605071v0``; None where the header does not say.

    Raises
    ------
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0.\\n")
    ...     file.flush()
    ...     report_version(Path(file.name))
    '2023.4.4.54-234433681190v0'
    """
    with path.open("rb") as file:
        found = _HEADER.match(file.read(256))
    return found[1].decode("ascii").replace("@", ".") if found else None


def export_report(
    path: Path,
    tables: Sequence[str] | None = None,
    times: tuple[int, int] | None = None,
    cache_dir: Path | None = None,
    nsys: str | None = None,
) -> Path:
    """Exports a report to SQLite, or finds the export made before.

    Parameters
    ----------
    path
        The report (``.nsys-rep``, or ``.qdrep`` of older versions).
    tables
        Names of the tables wanted (POSIX basic regular expressions that match a whole name). None: all.
        An nsys without ``--tables`` exports all of them. ``META_DATA_EXPORT`` is always among them.
    times
        Start and end in ns on the clock of the report; what overlaps it is exported. None: everything.
        An nsys without ``--times`` exports everything.
    cache_dir
        Where exports are kept; None: `default_cache_dir`.
    nsys
        The nsys to use; None: ``$PYANALYZE_NSYS``, else the one on ``PATH``.

    Returns
    -------
    Path
        The export, in `cache_dir`. It belongs to the cache: read it, do not change it.

    Raises
    ------
    CaptureUnreadable
        There is no nsys, it is older than the report, it failed, or there is too little space. The message
        holds the command to run elsewhere where that helps.
    OSError
        The report or the cache cannot be opened.

    Examples
    --------
    >>> export_report(Path("run.nsys-rep"), tables=["CUPTI_ACTIVITY_KIND_KERNEL"])  # doctest: +SKIP
    PosixPath('/home/me/.cache/pyanalyze/exports/3f1c....sqlite')
    """
    path = Path(path)
    written_by = report_version(path)
    tool = find_nsys(nsys)
    if tool is None:
        version = f" (it was written by nsys {written_by})" if written_by else ""
        raise CaptureUnreadable(
            f"{path} is a report{version}; only nsys can read it, and nsys is not on PATH. Install the Nsight Systems "
            f"command line tool, or set PYANALYZE_NSYS to it. {_elsewhere(path, written_by, unknown='nsys')}"
        )

    options = ["--type", "sqlite", "--lazy=true"]  # its default is announced to change
    if tables is not None and tool.selects_tables:
        options.append("--tables=" + ",".join(sorted({*tables, "META_DATA_EXPORT"})))
    if times is not None and tool.selects_times:
        start_ns, end_ns = times
        options.append(f"--times=:{start_ns}/{end_ns}:")  # colons: keep what crosses the boundary

    before = path.stat()
    folder = default_cache_dir() if cache_dir is None else Path(cache_dir)
    export = folder / f"{_key(path, tool, options)}.sqlite"
    if export.is_file():
        return export

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # captures hold secrets
    _sweep(folder)
    _check_space(path, before.st_size, folder)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as scratch:
        partial = Path(scratch) / "export.sqlite"
        answer = run([tool.path, "export", *options, "--output", str(partial), str(path.absolute())])
        _check_answer(answer, path, written_by, tool, partial)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise CaptureUnreadable(f"{path} changed while it was exported; wait until nsys has written it, and retry")
        partial.chmod(0o600)
        os.replace(partial, export)
    return export


def _key(path: Path, tool: Nsys, options: Sequence[str]) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    for part in (tool.version, *options):
        digest.update(b"\0" + part.encode())
    return digest.hexdigest()


def _sweep(folder: Path) -> None:
    """Removes what runs that were killed have left."""
    for scratch in folder.glob(".partial-*"):
        try:
            if time.time() - scratch.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(scratch, ignore_errors=True)
        except OSError:  # somebody else was quicker
            continue


def _check_space(path: Path, size_bytes: int, folder: Path) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < SPACE_FACTOR * size_bytes:
        raise CaptureUnreadable(
            f"too little space to export {path} into {folder}: {free_bytes / 1e6:.1f} MB are free, about "
            f"{SPACE_FACTOR * size_bytes / 1e6:.1f} MB are needed ({SPACE_FACTOR} times the report). "
            "Free some, or set XDG_CACHE_HOME to a folder with more"
        )


def _check_answer(
    answer: subprocess.CompletedProcess[str], path: Path, written_by: str | None, tool: Nsys, partial: Path
) -> None:
    if found := _TOO_OLD.search(" ".join((answer.stderr + " " + answer.stdout).split())):
        report = found["report"]
        raise CaptureUnreadable(
            f"{path} was written by nsys {report}, newer than the nsys here, {tool.version} ({tool.path}), "
            f"which cannot read it. Install Nsight Systems {release(report)} or newer. "
            f"{_elsewhere(path, report)}"
        )
    whose = f"written by nsys {written_by}" if written_by else "whose header names no nsys version"
    if answer.returncode != 0:
        raise CaptureUnreadable(
            f"nsys {tool.version} ({tool.path}) cannot export {path}, {whose}: {message_of(answer)}. "
            f"If the report is whole, try a newer nsys. {_elsewhere(path, written_by)}"
        )
    if not _is_database(partial):
        raise CaptureUnreadable(
            f"nsys {tool.version} ({tool.path}) reported success but wrote no database for {path}, {whose}: "
            f"{message_of(answer)}. {_elsewhere(path, written_by)}"
        )


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except FileNotFoundError:
        return False


def _elsewhere(path: Path, version: str | None, *, unknown: str = "a newer nsys") -> str:
    """The command for another machine; `unknown`: what it needs where the report does not name its version."""
    output = shell_word(path.with_suffix(".sqlite").name)
    tool = f"nsys {release(version)} or newer" if version else unknown
    command = f"nsys export --type sqlite --output {output} {shell_word(path.name)}"
    return f"Or run this where there is {tool}, and analyze the .sqlite: {command}"
