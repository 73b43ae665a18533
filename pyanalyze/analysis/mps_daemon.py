"""Where is the MPS daemon of a capture?  Commands reach it only with the directories that its clients had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyanalyze.text.shell import shell_word

if TYPE_CHECKING:
    from collections.abc import Iterable

PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPE: Final = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's daemon is found
DEFAULT_LOGS: Final = "/var/log/nvidia-mps"
_CONTROL: Final = "nvidia-cuda-mps-control"


@dataclass(frozen=True)
class Daemon:
    """Where the MPS daemon of a capture is, as its clients had it in their environment.

    Attributes
    ----------
    pipe, logs
        Its directories; None: NVIDIA's defaults, or none was recorded.
    """

    pipe: str | None = None
    logs: str | None = None

    @property
    def control(self) -> str:
        """Command that reaches it, for the shell.

        Examples
        --------
        >>> Daemon().control, Daemon("/tmp/my mps").control
        ('nvidia-cuda-mps-control', "CUDA_MPS_PIPE_DIRECTORY='/tmp/my mps' nvidia-cuda-mps-control")
        """
        return f"{_assigned((PIPE, self.pipe))}{_CONTROL}"

    @property
    def start(self) -> str:
        """Command that starts it where its clients look for it.

        Examples
        --------
        >>> Daemon("/tmp/mps", "/tmp/logs").start
        'CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/logs nvidia-cuda-mps-control -d'
        """
        return f"{_assigned((PIPE, self.pipe), (LOGS, self.logs))}{_CONTROL} -d"

    @property
    def quit(self) -> str:
        """Command that ends it.

        Examples
        --------
        >>> Daemon().quit
        'echo quit | nvidia-cuda-mps-control'
        """
        return f"echo quit | {self.control}"

    @property
    def stop(self) -> str:
        """The same, so that the GPU can be shared in another way."""
        return f"{self.quit}   # when no client runs: the running MPS daemon occupies the GPU"

    @property
    def undo(self) -> str:
        """Takes MPS away again, and all variables of its clients."""
        return f"{self.quit}   # when no client runs; unset CUDA_MPS_* in their environment"


def _assigned(*variables: tuple[str, str | None]) -> str:
    return "".join(f"{name}={shell_word(value)} " for name, value in variables if value is not None)


DEFAULT_DAEMON: Final = Daemon()


def daemon_of(settings: Iterable[tuple[str, object]]) -> Daemon:
    """Return where the MPS daemon of a capture is.

    Parameters
    ----------
    settings
        Keys and values that were configured. A default need not be said again.

    Examples
    --------
    >>> daemon_of([("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"), ("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps")])
    Daemon(pipe='/tmp/mps', logs=None)
    """
    found: dict[str, str] = {}
    for key, value in settings:
        found.setdefault(key, str(value))
    pipe, logs = found.get(PIPE, DEFAULT_PIPE), found.get(LOGS, DEFAULT_LOGS)
    return Daemon(None if pipe == DEFAULT_PIPE else pipe, None if logs == DEFAULT_LOGS else logs)
