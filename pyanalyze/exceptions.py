"""Every exception pyanalyze raises of its own; I/O errors are the builtin ones."""

from __future__ import annotations


class PyanalyzeError(Exception):
    """Base of all errors of pyanalyze: the message says what failed, where, and what to do."""


class CaptureUnreadable(PyanalyzeError):
    """A capture is there but cannot be read: no export, damaged, or in need of a tool that is missing."""
