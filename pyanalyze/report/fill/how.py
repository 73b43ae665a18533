"""What several parts ask of the tenants, and the commands that capture what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyanalyze.analysis.mps_daemon import daemon_on
from pyanalyze.analysis.sharing.missing import LOST_KERNELS, UNFINISHED_KERNELS
from pyanalyze.nsys_tool import recording
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Mode

#: How DCGM 4.6 names one MIG instance (dcgmi: entity selectors); scripts for older versions use the letter.
ENTITIES: Final = "ID: dcgmi discovery --compute-hierarchy; older DCGM: -i i:ID"
#: How to export what a device is.
_LISTING = (
    "nsys export --type sqlite REPORT.nsys-rep   # with a newer nsys, or of a new recording: this export does not list "
    "the GPU (TARGET_INFO_GPU)"
)


def serving_tenants(usage: pl.DataFrame) -> set[int]:
    """Tenants that only serve others: MPS servers."""
    return set(usage["served_by"].drop_nulls())


def client_of(tables: TableSet, device_id: int, mode: Mode) -> str | None:
    """What keeps a recorded program a client of the MPS daemon of a device; None: its tenants are no clients."""
    return daemon_on(tables, device_id).client if TRAITS[mode].mps else None


def how_kernels(verdict: Verdict) -> str:
    """How to capture kernels; where launches have no record, tracing them again is not enough."""
    found = (
        gap.how for gap in verdict.missing if gap.what in ("kernels", LOST_KERNELS, UNFINISHED_KERNELS) and gap.how
    )
    return next(found, recording(switches=False))


def how_device(tables: TableSet, device: Mapping[str, Any]) -> str:
    """How to learn the SM count and limits of a device; empty where the export lists it, or there is no export."""
    return _LISTING if tables.paths and device["gpu_id"] is None else ""
