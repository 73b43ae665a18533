"""Outputs are written whole or not at all.

One place knows how: a temporary file in the same directory (a rename across file systems is not atomic),
flushed to the disk, then renamed. Whatever interrupts the writing, also Ctrl-C, leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.errors import OutputExists

if TYPE_CHECKING:
    from collections.abc import Iterator

# SQLite puts these beside the file that it writes; after a failure they must go with it.
_COMPANIONS = ("", "-journal", "-wal", "-shm")


def head_of(path: str | os.PathLike[str], count: int) -> bytes:
    """The first bytes of a file; an error of reading names the file, which that of Python does not.

    Raises
    ------
    OSError
        The file cannot be opened or read.
    """
    try:
        with Path(path).open("rb") as stream:
            return stream.read(count)
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes | None:
    """All of a file; None: it has more than `most` bytes, or, being no file, never ends.

    Examples
    --------
    >>> read_bounded("/dev/zero", 1 << 10) is None, read_bounded("/dev/null", 1 << 10)
    (True, b'')
    """
    content = head_of(path, most + 1)
    return None if len(content) > most else content


@contextmanager
def replacing(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary file that becomes `path` when the block ends without an exception.

    Parameters
    ----------
    path
        The file to write. A symbolic link is followed: the file it points to is replaced, not the link.
    force
        Replace an existing file. Its permission bits are kept, so that a file made private stays private;
        a new file gets what the umask leaves.

    Yields
    ------
    Path
        An empty file in the directory of `path`. Close it before the block ends.

    Raises
    ------
    OutputExists
        `path` is there and `force` is false, also when it appeared while the block ran.
    OSError
        The directory is missing or not writable, or `path` is a directory or a device.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "out.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     (Path(folder) / "out.txt").read_text()
    'whole'
    """
    target = Path(os.path.realpath(path))
    _check(target, path, force=force)
    mode = target.stat().st_mode & 0o7777 if target.exists() else None
    # 50 characters are at most 200 bytes: a file name may have 255.
    temporary = target.parent / f".{target.name[:50]}.{os.urandom(6).hex()}.part"
    try:
        # Inside: Ctrl-C may come between the making of the file and whatever follows.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        if mode is not None:
            temporary.chmod(mode)
        _flush(temporary)
        _publish(temporary, target, path, force=force)
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) != os.fspath(temporary):
            raise
        # A full disk is told by a write, which knows no name; and nobody knows the temporary one.
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), os.fspath(path)) from error
    except Exception as error:
        # Only who wrote with it has imported it.
        sqlite3 = sys.modules.get("sqlite3")
        if sqlite3 is None or not isinstance(error, sqlite3.OperationalError):
            raise
        raise OSError(errno.EIO, f"cannot be written ({error})", os.fspath(path)) from error
    finally:
        # After success the temporary name is gone already; what remains here belongs to a failure.
        for companion in _COMPANIONS:
            with suppress(OSError):
                os.unlink(f"{temporary}{companion}")
    _flush_directory(target.parent)


def write_whole(path: str | os.PathLike[str], data: bytes | str, *, force: bool = False) -> Path:
    """Write a file whole or not at all.

    Parameters
    ----------
    path
        The file to write. Devices and pipes (`/dev/stdout`) are written to directly: they hold nothing to
        lose.
    data
        Content; text is written as UTF-8 with its line ends as they are.
    force
        Replace an existing file.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    OutputExists
        `path` is there and `force` is false.
    OSError
        It cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = write_whole(Path(folder) / "out.txt", "whole")
    ...     out.read_bytes()
    b'whole'
    """
    content = data.encode() if isinstance(data, str) else data
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():
        with place.open("wb") as stream:
            stream.write(content)
        return place
    with replacing(path, force=force) as temporary:
        temporary.write_bytes(content)
    return place


def _check(target: Path, named: str | os.PathLike[str], *, force: bool) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "cannot write a file over a directory", os.fspath(named))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "the directory to write into does not exist; create it first", str(target.parent)
        )
    if target.exists() and not target.is_file():
        # A rename would replace the device itself.
        raise OSError(errno.EINVAL, "not a regular file; choose another output", os.fspath(named))
    if target.exists() and not force:
        raise _exists(named)


def _exists(named: str | os.PathLike[str]) -> OutputExists:
    return OutputExists(f"{os.fspath(named)} exists; give --force (force=True) to replace it, or choose another output")


def _flush(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _flush_directory(directory: Path) -> None:
    # Makes the new name last a power loss. Some systems cannot open a directory, some file systems cannot
    # sync one: the file is whole either way.
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _publish(temporary: Path, target: Path, named: str | os.PathLike[str], *, force: bool) -> None:
    if force:
        os.replace(temporary, target)
        return
    try:
        # Unlike a rename, a link never replaces: a file that another program made meanwhile stays.
        os.link(temporary, target)
    except FileExistsError:
        raise _exists(named) from None
    except OSError:
        # No hard links here (FAT, some network and container file systems): check, then rename.
        if target.exists():
            raise _exists(named) from None
        os.replace(temporary, target)
