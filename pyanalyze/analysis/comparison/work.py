"""What a tenant launched, and where its time went: the part of a report that two runs are compared by."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyanalyze.results.work import Batch, Configuration, Work
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["work_of"]

#: Longest kernel name in it.
_NAME = 120


def work_of(tables: TableSet) -> dict[tuple[int, int], Work]:
    """Sum up what every traced tenant did on every device.

    Parameters
    ----------
    tables
        A loaded tables.

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
    spread = _spread(tables)
    for one in _core.launches({**tables.for_core(), "kernel_attribution": tables.table("kernel_attribution")}):
        key = one["device_id"], one["tenant_id"]
        batches = [Batch(**batch) for batch in one["batches"]]
        found[key] = Work(
            launches=sum(batch.launches for batch in batches),
            graph_launches=usage[key]["graph_launches"],
            copies=usage[key]["memops"],
            copy_bytes=usage[key]["copy_bytes"],
            residency_known=one["residency_known"],
            configurations=[
                _configuration(**row, spread=spread.get(_shape(key, **row))) for row in one["configurations"]
            ],
            other_launches=one["other_launches"],
            other_ns=one["other_ns"],
            batches=batches,
        )
    return found


#: Launches from which a p99 is told: of fewer it is their longest.
_ENOUGH = 20


def _shape(
    key: tuple[int, int], *, name: str | None, grid_blocks: int | None, block_threads: int | None, **_: object
) -> tuple[object, ...]:
    return (*key, name, grid_blocks, block_threads)


def _spread(tables: TableSet) -> dict[tuple[object, ...], tuple[int | None, float | None]]:
    """p99 and standard deviation of the resident time of each launch configuration, by its shape."""
    import polars as pl

    kernels, parts = tables.kernels, pl.DataFrame(tables.table("kernel_attribution"))
    # Row by row the same kernels, or nothing is said.
    same = kernels.height == parts.height and kernels["start_ns"].equals(parts["start_ns"])
    if not same:
        return {}
    rows = parts.select("device_id", "tenant_id", "attributed_ns").with_columns(
        kernels.select(
            # As they are, names are numbers; as text they would take most of the memory.
            "name",
            grid=pl.col("grid_x").cast(pl.UInt64) * pl.col("grid_y") * pl.col("grid_z"),
            block=pl.col("block_x") * pl.col("block_y") * pl.col("block_z"),
        )
    )
    sums = rows.group_by("device_id", "tenant_id", "name", "grid", "block").agg(
        n=pl.len(),
        p99=pl.col("attributed_ns").quantile(0.99, interpolation="higher"),
        sd=pl.col("attributed_ns").std(),
    )
    return {
        (device, tenant, name, grid, block): (None if n < _ENOUGH else int(p99), sd)
        for device, tenant, name, grid, block, n, p99, sd in sums.iter_rows()
    }


def _configuration(
    *,
    name: str | None,
    short_name: str | None,
    grid_blocks: int | None,
    block_threads: int | None,
    launches: int,
    total_ns: int,
    attributed_ns: int,
    spread: tuple[int | None, float | None] | None,
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
        attributed_p99_ns=None if spread is None else spread[0],
        attributed_sd_ns=None if spread is None else spread[1],
    )
