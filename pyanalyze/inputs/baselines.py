"""Solo recordings that tenants are compared with: captures, packs, or saved reports; ``NAME=FILE`` says whose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyanalyze.results.report import Report
    from pyanalyze.tables.tableset import TableSet

__all__ = ["Baseline", "SavedBaseline", "split_name"]


@dataclass(frozen=True)
class Baseline:
    """A solo recording of a tenant, or of several.

    Attributes
    ----------
    path
        The file, as the caller named it.
    tables
        What it holds.
    tenant
        Name of the tenant that it is of; None: found by its kernels and its process name.
    """

    path: Path
    tables: TableSet
    tenant: str | None = None


@dataclass(frozen=True)
class SavedBaseline:
    """A solo run as `pyanalyze report -f json` summed it up: its work and the time that it took, not its kernels.

    Attributes
    ----------
    path
        The file, as the caller named it.
    report
        What it holds.
    tenant
        Name of the tenant that it is of; None: found by its kernels.
    """

    path: Path
    report: Report
    tenant: str | None = None


def split_name(text: str) -> tuple[str | None, Path]:
    """Take ``NAME=FILE`` apart; a file whose own name holds an equals sign is a file.

    Examples
    --------
    >>> split_name("service=solo.sqlite")
    ('service', PosixPath('solo.sqlite'))
    >>> split_name("solo.sqlite")
    (None, PosixPath('solo.sqlite'))
    """
    name, equals, file = text.partition("=")
    if not equals or not name or not file or Path(text).exists():
        return None, Path(text)
    return name, Path(file)
