"""How much memory may this process use, and what happens to captures that need more?

The core keeps large blocks (columns of events, what is carried from row to row) in memory up to half of a budget; from
then on they are files without a name, mapped into the process, in a temporary folder. Results are the same; what is
bounded is the resident memory of the process, mapped files included (``VmRSS``). Such files are gone when the process
ends, however it ends.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.text.numbers import bounded_float, bounded_int

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Environment variables: the budget where none is given, and where files go that do not fit into it.
VARIABLE = "PYANALYZE_MEMORY"
FOLDER_VARIABLE = "PYANALYZE_SPILL_DIR"

#: Python, polars and charts take most of this for a capture of any size.
LEAST_BYTES = 512 << 20

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_UNITS["ti"] = 1 << 40

#: Without a limit: others need memory too, and pages of files that are read again should stay cached.
_OF_MACHINE = 0.8
#: A container's limit ends the process, and counts what Python cannot know of.
_OF_CGROUP = 0.9

#: Small blocks, libraries, and pages of files that are read between two looks: about so much for millions of kernels.
_OTHER_BYTES = 560 << 20

#: Mounted in memory: a file there takes the memory that it was to save.
_IN_MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class Budget:
    """A budget of resident memory, and who set it."""

    bytes: int
    source: str


@dataclass(frozen=True)
class Account:
    """What a process used so far, in bytes.

    Attributes
    ----------
    budget_bytes
        The budget; None where none was set.
    held_bytes, spilled_bytes
        Large blocks of the core, in memory and in files, now.
    spilled_most_bytes
        In files, most at once: the room that is needed on the disk.
    resident_most_bytes
        Most resident memory, mapped files included. Pages of files can pass the budget by up to a quarter of it before
        they are released; what passes it by more, or stays above it, raises :class:`~pyanalyze.errors.MemoryExceeded`.
    """

    budget_bytes: int | None
    held_bytes: int
    spilled_bytes: int
    spilled_most_bytes: int
    resident_most_bytes: int

    def passed(self) -> str | None:
        """Say by how much memory was above the budget for a moment; None where it never was."""
        if self.budget_bytes is None or self.resident_most_bytes <= self.budget_bytes:
            return None
        budget = f"the budget of {_mib(self.budget_bytes)} MiB of memory was exceeded for a moment"
        return f"{budget}: {_mib(self.resident_most_bytes)} MiB were resident, pages of temporary files among them"

    def __str__(self) -> str:
        """Say it in one line."""
        if self.budget_bytes is None:
            return "memory: no budget"
        used = f"{_mib(self.resident_most_bytes)} of {_mib(self.budget_bytes)} MiB used"
        if self.spilled_most_bytes == 0:
            return f"memory: {used}, everything in memory"
        return f"memory: {used}, {_mib(self.spilled_most_bytes)} MiB at most in temporary files"


def parse(text: str | int) -> int:
    """Bytes of a size such as ``2GB``, ``1.5GiB``, ``800m`` or a plain number.

    Raises
    ------
    pyanalyze.errors.UsageError
        If it is no size, or less than any report needs.

    Examples
    --------
    >>> parse("2GB"), parse("1.5 GiB"), parse("800m")
    (2000000000, 1610612736, 800000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?\s*", str(text), re.IGNORECASE | re.ASCII)
    if found is None:
        raise UsageError(f"{text!r} is not an amount of memory; write it as 2GB, 1500MB or 4GiB")
    amount = bounded_float(found[1])
    size = None if amount is None else bounded_int(f"{amount * _UNITS[found[2].lower()]:.0f}")
    if size is None:
        raise UsageError(f"{text!r} is more memory than any machine has; write it as 2GB, 1500MB or 4GiB")
    if size < LEAST_BYTES:
        raise UsageError(f"{text!r} is too little memory: give at least {_mib(LEAST_BYTES)} MiB")
    return size


def budget(given: str | int | None = None) -> Budget:
    """Choose the budget: what is given, else the environment, else what machine and container have.

    Parameters
    ----------
    given
        A size, see :func:`parse`.

    Examples
    --------
    >>> budget("2GB")
    Budget(bytes=2000000000, source='given')
    """
    if given is not None:
        return Budget(parse(given), "given")
    if text := os.environ.get(VARIABLE):
        return Budget(parse(text), VARIABLE)
    limits = [Budget(int(size * _OF_CGROUP), "container") for size in _cgroup_limits(Path("/"))]
    machine = _machine_bytes()
    if machine is not None:
        limits.append(Budget(int(machine * _OF_MACHINE), "machine"))
    least = min(limits, key=lambda one: one.bytes, default=Budget(1 << 62, "machine"))
    return Budget(max(least.bytes, LEAST_BYTES), least.source)


def hold(given: str | int | None = None) -> Budget | None:
    """Hold a budget in this process from now on; :func:`pyanalyze.load` calls it.

    Without a size, one that is in force already stays.

    Parameters
    ----------
    given
        A size, see :func:`parse`.

    Returns
    -------
    Budget or None
        None where nobody asked for a budget and none can be held: the system is not Linux, or has no folder on a disk.

    Raises
    ------
    pyanalyze.errors.UsageError
        If the budget that was asked for cannot be held here.

    Examples
    --------
    >>> hold("64GB").bytes
    64000000000
    """
    known = account().budget_bytes
    if given is None and known is not None:
        return Budget(known, "in force")
    chosen = budget(given)
    folder = spill_folder()
    why = "every temporary folder is in memory, so files save none"
    if folder is not None:
        try:
            _core.bound_memory((chosen.bytes, _large_blocks_bytes(chosen.bytes), folder))
        except OSError as error:
            why = str(error)
        else:
            return chosen
    if chosen.source in ("given", VARIABLE):
        raise UsageError(f"the memory budget cannot be kept: {why}; set {FOLDER_VARIABLE} to a folder on a disk")
    return None


def _large_blocks_bytes(budget_bytes: int) -> int:
    """Bytes of large blocks in memory: half of the budget, less of a small one.

    The rest is for what is no large block, and for pages of files between two looks; both need about the same room
    whatever the budget is.
    """
    return min(budget_bytes // 2, max(0, budget_bytes - _OTHER_BYTES))


def account() -> Account:
    """Tell what this process used so far.

    Examples
    --------
    >>> account().spilled_bytes
    0
    """
    return Account(**_core.memory_account())


def budget_bytes() -> int:
    """Bytes that this process may use: the budget in force, else what would be one.

    Examples
    --------
    >>> budget_bytes() >= LEAST_BYTES
    True
    """
    known = account().budget_bytes
    return budget().bytes if known is None else known


def check() -> None:
    """Raise if the budget could not be held since this was last asked.

    Raises
    ------
    pyanalyze.errors.MemoryExceeded
        With the memory that was needed.

    Examples
    --------
    >>> check()
    """
    _core.check_memory()


def spill_folder() -> Path | None:
    """Folder for what does not fit: `PYANALYZE_SPILL_DIR`, else the temporary folder that is on a disk.

    Examples
    --------
    >>> spill_folder().is_dir()
    True
    """
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    folders = (Path(tempfile.gettempdir()), Path("/var/tmp"))  # noqa: S108 -- files without a name, readable by us only
    mounts = _mounts(Path("/"))
    usable = (folder for folder in folders if os.access(folder, os.W_OK))
    return next((folder for folder in usable if _file_system(folder.resolve(), mounts) not in _IN_MEMORY), None)


def _mib(size: int) -> int:
    return (size + (1 << 20) - 1) >> 20


def _machine_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Limits of memory of the control groups that this process is in, version 1 and 2.

    Inside a container its own group is seen as the root of the hierarchy, though its path is that of the host.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, file = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents):
            try:
                text = (base / group / file).read_text(encoding="ascii").strip()
            except OSError:
                continue
            # Version 2 says `max`; version 1 a number of pages just below 2^63.
            if text.isdigit() and int(text) < 1 << 60:
                yield int(text)


def _mounts(root: Path) -> dict[Path, str]:
    """File systems by mount point; empty where the system does not tell."""
    try:
        lines = (root / "proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    split = (line.split(" ") for line in lines)
    return {Path(parts[1].replace("\\040", " ")): parts[2] for parts in split if len(parts) > 2}


def _file_system(folder: Path, mounts: dict[Path, str]) -> str | None:
    return next((mounts[at] for at in (folder, *folder.parents) if at in mounts), None)
