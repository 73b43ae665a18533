"""The only door between Arrow tables of the Rust core and polars.

The core declares every table once, with a version. This module knows which versions the Python side
understands, checks them before anything is converted, and is the one place to change when they move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.errors import TableMismatch

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.core import _core

#: Event tables that the analysis reads; the others are read only when asked for.
ANALYSIS_TABLES = ("kernels", "graph_launches", "memops", "switch_events", "gpu_metrics", "allocations")
ON_REQUEST = ("api_calls", "profiler_overhead", "thread_runs", "nvtx")
#: What `tables=` may name.
EVENT_TABLES = (*ANALYSIS_TABLES, *ON_REQUEST)
#: Versions of the tables that this package understands (name -> version).
KNOWN_VERSIONS: dict[str, int] = {
    "aggressors": 1,
    "allocations": 1,
    "api_calls": 1,
    "baseline_matches": 1,
    "capture": 1,
    "causes": 1,
    "charged": 1,
    "configured": 1,
    "contexts": 1,
    "devices": 1,
    "engine": 1,
    "fact_examples": 1,
    "facts": 1,
    "gpu_metrics": 1,
    "graph_launches": 1,
    "identities": 1,
    "inferred_residency": 1,
    "kernel_occupancy": 1,
    "kernel_placement": 1,
    "kernel_summary": 1,
    "kernels": 1,
    "latencies": 1,
    "ledger": 1,
    "memops": 1,
    "nvml_samples": 1,
    "nvtx": 1,
    "overlaps": 1,
    "processes": 1,
    "profiler_overhead": 1,
    "quality": 1,
    "replay": 1,
    "residency": 1,
    "slowdowns": 1,
    "sm_occupancy": 1,
    "sm_warps": 1,
    "sources": 1,
    "switch_events": 1,
    "switches": 1,
    "tenant_slowdowns": 1,
    "tenant_usage": 1,
    "tenants": 1,
    "thread_runs": 1,
    "timeline": 1,
    "whatif": 1,
}


def to_frame(table: _core.Table) -> pl.DataFrame:
    """Convert one table of the core to a polars frame.

    Parameters
    ----------
    table
        A table of the core. Times are ``Int64`` nanoseconds, ids unsigned, repeated names ``Categorical``.

    Returns
    -------
    polars.DataFrame
        The same rows; numbers are not copied.

    Raises
    ------
    pyanalyze.errors.TableMismatch
        If the table's ``name@version`` is not one this package understands.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> to_frame(session.table("kernels")).height == session.kernels.height
    True
    """
    import polars as pl

    known = KNOWN_VERSIONS.get(table.name)
    if table.schema_id != f"{table.name}@{known}":
        raise TableMismatch(
            f"table {table.schema_id} is not known to this version of pyanalyze (it knows {table.name}@{known}); "
            "reinstall pyanalyze so that its compiled part and its Python part are of one version"
        )
    return pl.DataFrame(table)
