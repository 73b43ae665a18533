"""What a tenant launched, and where its time went: the part of a report that two runs are compared by."""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyanalyze.results.work import Batch, Configuration, Work
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["work_of"]

#: Longest kernel name in it.
_NAME = 120


def work_of(
    tables: TableSet, in_one_context: Mapping[str, AnyTable] = MappingProxyType({})
) -> dict[tuple[int, int], Work]:
    """Sum up what every traced tenant did on every device.

    Parameters
    ----------
    tables
        Those of the capture.
    in_one_context
        Those that are others where MPS clients are time-sliced with other tenants, see
        :func:`pyanalyze.analysis.residency.in_one_context`.

    Returns
    -------
    dict
        (device id, tenant id) -> the work. Tenants of which nothing was traced are not in it. A session keeps it as
        ``session.work_of_tenants``.

    Examples
    --------
    >>> import pyanalyze
    >>> work = work_of(pyanalyze.load(capture).tables)
    >>> work[0, 0].launches, len(work[0, 0].configurations), len(work[0, 0].batches)
    (452, 4, 20)
    """
    from pyanalyze.core import _core

    usage = {(row["device_id"], row["tenant_id"]): row for row in tables.tenant_usage.iter_rows(named=True)}
    found: dict[tuple[int, int], Work] = {}
    given = {**tables.for_core(), "kernel_attribution": tables.table("kernel_attribution"), **in_one_context}
    for one in _core.launches(given):
        key = one["device_id"], one["tenant_id"]
        batches = [Batch(**batch) for batch in one["batches"]]
        found[key] = Work(
            launches=sum(batch.launches for batch in batches),
            graph_launches=usage[key]["graph_launches"],
            copies=usage[key]["memops"],
            copy_bytes=usage[key]["copy_bytes"],
            residency_known=one["residency_known"],
            configurations=[_configuration(**row) for row in one["configurations"]],
            other_launches=one["other_launches"],
            other_ns=one["other_ns"],
            startup_ns=one["startup_ns"],
            batches=batches,
        )
    return found


def _configuration(
    *,
    name: str | None,
    short_name: str | None,
    grid_blocks: int | None,
    block_threads: int | None,
    launches: int,
    total_ns: int,
    attributed_ns: int,
    attributed_p99_ns: int | None,
    attributed_sd_ns: float | None,
) -> Configuration:
    whole = f"{name}\0{grid_blocks}\0{block_threads}"
    return Configuration(
        key=hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        kernel=visible(short_name or name, _NAME) or "unnamed",
        grid_blocks=grid_blocks,
        block_threads=block_threads,
        launches=launches,
        total_ns=total_ns,
        attributed_total_ns=attributed_ns,
        attributed_p99_ns=attributed_p99_ns,
        attributed_sd_ns=attributed_sd_ns,
    )
