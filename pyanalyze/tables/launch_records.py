"""Launch calls whose kernels have no record, and errors of API calls: such time is not idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.core import _core

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyanalyze.tables.tableset import TableSet

__all__ = ["LaunchRecords", "launch_records"]

#: Errors after which a context runs nothing more, and those that lose a launch (CUDA driver API, `CUresult`).
_ERRORS = {
    2: "out of memory",
    9: "invalid configuration",
    98: "invalid device function",
    209: "no kernel image for this device",
    700: "illegal address",
    701: "out of resources for the launch",
    702: "launch timed out",
    710: "device-side assert",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failed",
}


@dataclass(frozen=True)
class LaunchRecords:
    """What became of launch calls.

    Attributes
    ----------
    launches
        Calls that launched a kernel or a graph. Launches into a graph that is being captured run nothing, and do not
        count.
    without_record
        Those of which no kernel, graph or copy has a record.
    errors
        API calls that failed: function, code, how many; most first.
    """

    launches: int
    without_record: int
    errors: tuple[tuple[str, int, int], ...]

    def describe_errors(self) -> str:
        """The errors for a sentence; empty without any.

        Examples
        --------
        >>> LaunchRecords(3, 2, (("cudaDeviceSynchronize", 700, 1),)).describe_errors()
        '1 cudaDeviceSynchronize call failed with error 700 (illegal address)'
        """
        return "; ".join(
            f"{n} {function} call{'s' if n > 1 else ''} failed with error {code}"
            + (f" ({_ERRORS[code]})" if code in _ERRORS else "")
            for function, code, n in self.errors[:3]
        )

    def describe(self) -> str:
        """What is missing, for a sentence.

        Examples
        --------
        >>> LaunchRecords(3, 2, ()).describe()
        '2 of 3 launches have no kernel record'
        """
        said = f"{self.without_record} of {self.launches} launches have no kernel record"
        errors = self.describe_errors()
        return f"{said}; {errors}" if errors else said


def launch_records(
    tables: TableSet, processes: Collection[tuple[int, int | None]] | None = None
) -> LaunchRecords | None:
    """Count launch calls whose work has no record, and API calls that failed.

    Parameters
    ----------
    tables
        The tables; API calls are read now if they were not.
    processes
        Captures and pids to count; None: all.

    Returns
    -------
    LaunchRecords or None
        None where no API calls were captured.

    Examples
    --------
    >>> import pyanalyze
    >>> launch_records(pyanalyze.load(capture).tables).without_record
    0
    """
    if not tables.paths:
        return None
    wanted = None if processes is None else set(processes)
    found = _core.launch_records(tables.with_late("api_calls"), wanted)
    if found is None:
        return None
    return LaunchRecords(found["launches"], found["without_record"], tuple(found["errors"]))
