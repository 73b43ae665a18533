"""Details of nsys exports that no table of the core holds: what loaded code, and how much programs wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import polars as pl

__all__ = ["WSL_KEY", "DetailsReader", "ExportDetails", "LoadingKind"]

#: Key of the setting that a capture has if its machine ran WSL2: value `true`.
WSL_KEY = "wsl2"


class LoadingKind(StrEnum):
    """What the driver did inside a CUDA call, as CUPTI records it."""

    LOADED = "loaded"
    COMPILED = "compiled"


@dataclass(frozen=True)
class ExportDetails:
    """Details of the captures, by number of the capture.

    Attributes
    ----------
    loading
        Records of code that was loaded or compiled inside CUDA calls: ``pid``, ``correlation_id``, ``start_ns`` and
        ``end_ns`` on the clock of the capture, ``kind`` (:class:`LoadingKind`). Captures without an entry do not say.
    stderr_lines
        Lines that traced programs wrote to standard error, where there are any. Their text may hold secrets: only the
        number leaves the export.
    """

    loading: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    stderr_lines: Mapping[int, int] = field(default_factory=dict)


#: Reads them, once.
DetailsReader: TypeAlias = Callable[[], ExportDetails]
