"""Why a capture has no result: what an executor reports and what a run keeps of it."""

from __future__ import annotations

from dataclasses import dataclass

from pyanalyze.errors import PyanalyzeError

_CRASHED = (
    "the worker process ended abnormally, also with this capture alone (killed, or out of memory); "
    "give more memory, or a shorter capture"
)


class WorkerDied(RuntimeError):
    """The process that worked on a capture ended abnormally, whenever it was tried; a result, never raised."""


@dataclass(frozen=True)
class Failed:
    """A capture, or a pattern that names none, without a result.

    Attributes
    ----------
    path
        The capture, or the pattern.
    error
        Kind of the error.
    message
        What, where, what to do.
    """

    path: str
    error: str
    message: str

    @classmethod
    def of(cls, path: str, error: BaseException, together: int = 1) -> Failed:
        """Say what went wrong with a capture; `together`: how many were analysed at once.

        Examples
        --------
        >>> Failed.of("run.sqlite", PermissionError(13, "Permission denied")).message
        'run.sqlite: Permission denied; check the path and its permissions'
        """
        beside = f" (analysed together with {together - 1} more)" if together > 1 else ""
        if isinstance(error, WorkerDied):
            return cls(path, "ProcessDied", f"{path}: {_CRASHED}{beside}")
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            return cls(path, type(error).__name__, f"{path}: {reason}; check the path and its permissions{beside}")
        if isinstance(error, PyanalyzeError):
            return cls(path, type(error).__name__, f"{error}{beside}")
        message = f"{path}: {type(error).__name__}: {error}; this is a bug of pyanalyze, please report it{beside}"
        return cls(path, type(error).__name__, message)
