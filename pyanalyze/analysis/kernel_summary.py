"""How long did the kernels of each name take? Of an export that nobody loads, in a fraction of the time and memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.inputs.nsys_export import exported, importing, is_pack, told_from_other_formats
from pyanalyze.nsys_tool import recording
from pyanalyze.tables.memory import hold

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

    PathLike = str | os.PathLike[str]
    Progress = Callable[[str, int, int], object]

__all__ = ["KernelTimes", "kernel_summary", "of_export", "of_tables"]

#: What the rows are made of or lack.
_SOURCES = ("kernels", "graph_launches")


@dataclass(frozen=True)
class KernelTimes:
    """Kernels by name, and what could not be looked at.

    Attributes
    ----------
    paths
        The exports.
    rows
        Rows of the table `kernel_summary`, longest in total first.
    sources
        Rows of the table `sources`: whether there were records of kernels, and of graphs, which hide theirs.
    quality
        Rows of the table `quality`: what is odd in what was read.
    """

    paths: tuple[str, ...]
    rows: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    quality: list[dict[str, Any]]

    @property
    def known(self) -> bool:
        """Whether kernels were recorded: without rows there were none, else nobody looked."""
        return any(source["source"] == "kernels" and source["rows"] for source in self.sources)

    @property
    def missing(self) -> list[dict[str, str]]:
        """What is not among the rows, why, and what would record it."""
        found: list[dict[str, str]] = []
        for source in self.sources:
            of = f" (capture {source['capture']})" if len(self.paths) > 1 else ""
            if source["source"] == "kernels" and source["state"] in ("absent", "empty"):
                # Where nsys says that no kernel came, a table that is not there is empty.
                there = source["physical_table"] is not None
                why = "has no rows in its table of kernels" if there else "has no table of kernels"
                how = recording(switches=False)
                found.append({"what": "kernels", "why": f"the export{of} {why}", "how": how})
            elif source["source"] == "graph_launches" and source["rows"]:
                launches = "1 launch" if source["rows"] == 1 else f"{source['rows']} launches"
                why = f"graphs{of} were traced as a whole, {launches}"
                how = recording("--cuda-graph-trace=node", switches=False)
                found.append({"what": "kernels of CUDA graphs", "why": why, "how": how})
        return found


def kernel_summary(capture: PathLike, *, progress: Progress | None = None) -> pl.DataFrame:
    """Say how long the kernels of each name took, without loading the capture: in a fraction of the time and memory.

    Parameters
    ----------
    capture
        An export, or a report, as :func:`pyanalyze.load` takes them.
    progress
        As :func:`pyanalyze.load` takes it.

    Returns
    -------
    polars.DataFrame
        The table `kernel_summary`, longest in total first: all processes together, lengths as recorded, which hold the
        time a context was switched out. `cuda_gpu_kern_sum` of `nsys stats` has the same figures, rounded;
        :func:`pyanalyze.export.nsys_stats.produce` makes it of each tenant, and
        `session.kernel_attribution` has what they really took.

    Raises
    ------
    OSError, pyanalyze.errors.CaptureUnreadable
        As :func:`pyanalyze.load`.
    pyanalyze.errors.UsageError
        A pack.

    Examples
    --------
    >>> import pyanalyze
    >>> pyanalyze.kernel_summary(capture).select("name", "kernels", "total_ns").row(0)
    ('A1(float *, const float *, int)', 113, 441533984)
    """
    with importing("polars"):
        _, made = _tables(Path(capture), progress)
    from pyanalyze.tables.frames import to_frame

    return to_frame(made["kernel_summary"])


def of_export(path: Path, *, progress: Progress | None = None) -> KernelTimes:
    """The same without polars, with what could not be looked at.

    Parameters
    ----------
    path, progress
        As for :func:`kernel_summary`.

    Raises
    ------
    OSError, pyanalyze.errors.CaptureUnreadable, pyanalyze.errors.UsageError
        As :func:`kernel_summary`.

    Examples
    --------
    >>> found = of_export(Path(capture))
    >>> found.rows[0]["median_ns"], found.missing
    (3954746.0, [])
    """
    export, made = _tables(path, progress)
    rows = {name: table.to_dicts() for name, table in made.items()}
    return KernelTimes((export,), rows["kernel_summary"], rows["sources"], rows["quality"])


def of_tables(tables: TableSet) -> KernelTimes:
    """The same of tables: several captures, a pack, a window of time, one GPU, names replaced.

    Examples
    --------
    >>> import pyanalyze
    >>> of_tables(pyanalyze.load(capture).window("300ms", "500ms").tables).rows[0]["kernels"]
    17
    """
    import polars as pl

    lengths = tables.columns("kernels", "name", "short_name", "start_ns", "end_ns").select(
        "name", "short_name", lengths=pl.col("end_ns") - pl.col("start_ns")
    )
    each = pl.col("lengths").list
    made = lengths.group_by("name").agg(pl.col("short_name").first(), "lengths")
    made = made.select(
        pl.col("name", "short_name").cast(pl.String),
        kernels=each.len(),
        total_ns=each.sum(),
        mean_ns=each.mean(),
        median_ns=each.median(),
        min_ns=each.min(),
        max_ns=each.max(),
        stddev_ns=each.std(),
    ).sort("total_ns", "name", descending=[True, False])
    text = [pl.col("source", "state").cast(pl.String)]
    sources = tables.sources.with_columns(text).filter(pl.col("source").is_in(_SOURCES))
    quality = tables.quality.with_columns(pl.col("name", "severity", "source").cast(pl.String))
    paths = tuple(tables.capture["path"])
    return KernelTimes(paths, made.to_dicts(), sources.to_dicts(), quality.to_dicts())


def _tables(path: Path, progress: Progress | None) -> tuple[str, dict[str, _core.Table]]:
    """The export that was read, and what the core made of it."""
    if is_pack(path):
        made_of_sessions = "produce(session.tables, 'cuda_gpu_kern_sum') of pyanalyze.export.nsys_stats"
        raise UsageError(f"{path} is a pack: load it, and use {made_of_sessions}")
    hold(None)
    with told_from_other_formats(path):
        export = exported(path, _SOURCES)
        return export, _core.kernel_summary(export, progress)
