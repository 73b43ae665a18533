"""Every exception of pyanalyze, each once; the Rust core raises these too.

Missing files, missing permissions and the like are the builtin ``OSError`` classes. ``exit_code`` is what
the command line ends with.
"""


class PyanalyzeError(Exception):
    """Everything that pyanalyze raises on purpose."""

    exit_code = 3


class CaptureUnreadable(PyanalyzeError):
    """A capture cannot be read."""


class NotACapture(CaptureUnreadable):
    """The file is not an nsys export: not SQLite, or without any table of one."""


class CaptureDamaged(CaptureUnreadable):
    """The file breaks its own format, or ends too early."""


class CaptureUnfinished(CaptureUnreadable):
    """The file has changes that were not finished and cannot be recovered in a private copy."""


class CaptureChanged(CaptureUnreadable):
    """The file changed while it was read."""


class SamplesUnreadable(PyanalyzeError):
    """A samples or context file that cannot be read."""


class UnknownFormat(SamplesUnreadable):
    """No reader of samples or configuration knows the file."""


class TableMismatch(PyanalyzeError):
    """A table does not have the declared columns, or a version this package does not know."""


class GpuUnavailable(PyanalyzeError):
    """NVML cannot be asked: its Python package, the driver or every GPU is missing."""


class OutputExists(PyanalyzeError):
    """The output file exists and ``--force`` was not given."""

    exit_code = 2


class UsageError(PyanalyzeError, ValueError):
    """An argument makes no sense."""

    exit_code = 2


class Cancelled(PyanalyzeError):
    """The caller asked to stop."""

    exit_code = 130


class MemoryExceeded(PyanalyzeError, MemoryError):
    """The budget of memory could not be held; the message says how much was needed."""
