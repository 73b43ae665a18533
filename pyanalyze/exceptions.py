"""Every exception of the package, once.

A message answers three questions: what failed, where, and what to do. I/O errors that the operating
system reports stay the builtin ones (`FileNotFoundError`, `PermissionError`, ...).
"""

from __future__ import annotations


class PyanalyzeError(Exception):
    """Base of every exception that this package defines.

    Examples
    --------
    >>> issubclass(OutputExists, PyanalyzeError)
    True
    """


class CaptureUnreadable(PyanalyzeError):
    """A capture is not an nsys export, is damaged, or changed while it was read."""


class OutputExists(PyanalyzeError):
    """The output file is already there; the caller did not ask to replace it."""


class SamplesUnreadable(PyanalyzeError):
    """A samples, context or nsys report file that no reader knows, or whose content breaks its own format."""
