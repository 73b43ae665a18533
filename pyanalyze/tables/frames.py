"""Arrow tables of the core as polars frames, and which tables there are: names, versions and columns from the core."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from pyanalyze.core import _core
from pyanalyze.text.escape import csv_cell

if TYPE_CHECKING:
    import polars as pl

#: Event tables that the analysis reads; the others are read only when asked for.
ANALYSIS_TABLES = ("kernels", "graph_launches", "memops", "switch_events", "gpu_metrics", "allocations")
ON_REQUEST = ("api_calls", "profiler_overhead", "thread_runs", "event_calls", "nvtx", "host_calls", "cpu_samples")
#: What `tables=` may name.
EVENT_TABLES = (*ANALYSIS_TABLES, *ON_REQUEST)


@cache
def declarations() -> dict[str, dict[str, Any]]:
    """Return every table that the core declares, by name: `version`, `doc`, `columns`.

    Examples
    --------
    >>> declarations()["kernels"]["version"]
    2
    """
    return {table["name"]: table for table in _core.table_declarations()}


@dataclass(frozen=True, eq=False)
class FrameTable:
    """A polars frame in the place of a table of the core: it says which declared table it is."""

    name: str
    frame: pl.DataFrame

    @property
    def schema_id(self) -> str:
        """``name@version``."""
        return f"{self.name}@{declarations()[self.name]['version']}"

    @property
    def num_rows(self) -> int:
        """Rows."""
        return self.frame.height

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows out as Arrow, as the tables of the core do."""
        return self.frame.__arrow_c_stream__(requested_schema)


#: A table as the core made it, or a frame in its place.
AnyTable: TypeAlias = "_core.Table | FrameTable"


def to_core(table: AnyTable) -> _core.Table:
    """Give a table as the core holds it; a frame in its place is copied.

    Examples
    --------
    >>> import pyanalyze
    >>> to_core(FrameTable("devices", pyanalyze.load(capture).devices)).to_dicts()[0]["sm_count"]
    108
    """
    if not isinstance(table, FrameTable):
        return table
    collector = _core.Collector(table.name, table.num_rows)
    collector.add(table)
    return collector.finish()


def csv_safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Give the same rows, texts as a CSV file may hold them (see :func:`pyanalyze.text.escape.csv_cell`).

    Examples
    --------
    >>> import polars as pl
    >>> csv_safe(pl.DataFrame({"name": ["=1+1", "saxpy"], "n": [1, 2]})).rows()
    [("'=1+1", 1), ('saxpy', 2)]
    """
    import polars as pl

    # Each text once: names are few, and their rows may be millions.
    for name, kind in frame.schema.items():
        if isinstance(kind, (pl.String, pl.Categorical, pl.Enum)):
            text = frame[name].cast(pl.String)
            known = text.drop_nulls().unique().to_list()
            changed = {value: shown for value in known if (shown := csv_cell(value)) != value}
            if changed:
                frame = frame.with_columns(text.replace(changed).alias(name))
    return frame


def to_frame(table: AnyTable) -> pl.DataFrame:
    """Convert a table to a polars frame.

    Parameters
    ----------
    table
        A table of the core, or a frame in its place. Times are ``Int64`` nanoseconds, ids unsigned, repeated names
        ``Categorical``.

    Returns
    -------
    polars.DataFrame
        The same rows; numbers are not copied.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> to_frame(session.table("kernels")).height == session.kernels.height
    True
    """
    import polars as pl

    return table.frame if isinstance(table, FrameTable) else pl.DataFrame(table)
