"""Launch calls whose kernels have no record, and errors of API calls: such time is not idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.tables.selections import call_name, named

if TYPE_CHECKING:
    from collections.abc import Collection

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["LaunchRecords", "launch_records"]

_LAUNCHES = r"^(cuda|cu)(LaunchKernel|LaunchCooperativeKernel|Launch_|Launch$|GraphLaunch)"
#: Correlation ids are numbers of a process.
_PROCESS = ["capture", "pid"]
#: `cudaErrorNotReady`: a query that says "not yet" is no error.
_NOT_READY = 600
#: Errors after which a context runs nothing more, and those that lose a launch (CUDA driver API, `CUresult`).
_ERRORS = {
    2: "out of memory",
    9: "invalid configuration",
    98: "invalid device function",
    209: "no kernel image for this device",
    700: "illegal address",
    701: "out of resources for the launch",
    702: "launch timed out",
    710: "device-side assert",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    719: "launch failed",
}


@dataclass(frozen=True)
class LaunchRecords:
    """What became of launch calls.

    Attributes
    ----------
    launches
        Calls that launched a kernel or a graph. Launches into a graph that is being captured run nothing, and do not
        count.
    without_record
        Those of which no kernel, graph or copy has a record.
    errors
        API calls that failed: function, code, how many; most first.
    """

    launches: int
    without_record: int
    errors: tuple[tuple[str, int, int], ...]

    def describe_errors(self) -> str:
        """The errors for a sentence; empty without any.

        Examples
        --------
        >>> LaunchRecords(3, 2, (("cudaDeviceSynchronize", 700, 1),)).describe_errors()
        '1 cudaDeviceSynchronize call failed with error 700 (illegal address)'
        """
        return "; ".join(
            f"{n} {function} call{'s' if n > 1 else ''} failed with error {code}"
            + (f" ({_ERRORS[code]})" if code in _ERRORS else "")
            for function, code, n in self.errors[:3]
        )

    def describe(self) -> str:
        """What is missing, for a sentence.

        Examples
        --------
        >>> LaunchRecords(3, 2, ()).describe()
        '2 of 3 launches have no kernel record'
        """
        said = f"{self.without_record} of {self.launches} launches have no kernel record"
        errors = self.describe_errors()
        return f"{said}; {errors}" if errors else said


def launch_records(
    tables: TableSet, processes: Collection[tuple[int, int | None]] | None = None
) -> LaunchRecords | None:
    """Count launch calls whose work has no record, and API calls that failed.

    Parameters
    ----------
    tables
        The tables; API calls are read now if they were not.
    processes
        Captures and pids to count; None: all.

    Returns
    -------
    LaunchRecords or None
        None where no API calls were captured.

    Examples
    --------
    >>> import pyanalyze
    >>> launch_records(pyanalyze.load(capture).tables).without_record
    0
    """
    import polars as pl

    calls = tables.calls()
    if calls is None:
        return None
    if processes is not None:
        schema = {"capture": calls["capture"].dtype, "pid": calls["pid"].dtype}
        wanted = pl.DataFrame(list(processes), schema=schema, orient="row")
        calls = calls.join(wanted, on=["capture", "pid"], how="semi", nulls_equal=True)
    if calls.is_empty():
        return None
    launches = calls.filter(named(calls, _LAUNCHES), pl.col("correlation_id").is_not_null())
    processes_here = launches.select(_PROCESS).unique().with_row_index("process")
    # A runtime call and the driver call inside it have one id.
    launched = _ids(launches, processes_here).unique()
    captured = _into_graphs(calls, launches)
    if captured is not None:
        launched = launched.filter(~launched.is_in(_ids(captured, processes_here).implode()))
    tables_of_work = ("kernels", "graph_launches", "memops")
    recorded = pl.concat(
        _ids(tables.columns(name, *_PROCESS, "correlation_id"), processes_here) for name in tables_of_work
    )
    lost = launched.len() - int(launched.is_in(recorded.implode()).sum())
    failed = calls.filter(~pl.col("return_value").fill_null(0).is_in([0, _NOT_READY]))
    errors = (
        failed.with_columns(call_name().fill_null("unnamed"))
        .group_by("name", "return_value")
        .len()
        .sort("len", "name", "return_value", descending=[True, False, False])
    )
    return LaunchRecords(launched.len(), lost, tuple(errors.iter_rows()))


def _ids(rows: pl.DataFrame, processes: pl.DataFrame) -> pl.Series:
    """One number for process and correlation id of each row: millions of single numbers are compared fast."""
    import polars as pl

    numbered = rows.join(processes, on=_PROCESS, nulls_equal=True, maintain_order="none")
    process, correlation = pl.col("process").cast(pl.UInt64), pl.col("correlation_id").cast(pl.UInt64)
    return numbered.select(id=process * 2**32 + correlation)["id"]


def _into_graphs(calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame | None:
    """Launches while their thread captured a graph; None where no graph was captured."""
    import polars as pl

    begins, ends = named(calls, "StreamBeginCapture"), named(calls, "StreamEndCapture")
    bounds = calls.filter(begins | ends)
    if bounds.is_empty():
        return None
    steps = [bounds.with_columns(step=pl.when(begins).then(1).otherwise(-1)), launches.with_columns(step=pl.lit(0))]
    capturing = pl.col("step").cum_sum().over("capture", "pid", "tid")
    in_order = pl.concat(steps).sort("start_ns", maintain_order=True).with_columns(capturing=capturing)
    return in_order.filter(pl.col("step") == 0, pl.col("capturing") > 0)
