"""Launch calls whose kernels have no record, and errors of API calls: such time is not idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyanalyze.tables.tableset import TableSet

__all__ = ["LaunchRecords", "launch_records"]

_LAUNCHES = r"^(cuda|cu)(LaunchKernel|LaunchCooperativeKernel|Launch_|Launch$|GraphLaunch)"
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
    thread, work = ["capture", "pid", "tid"], ["capture", "pid", "correlation_id"]
    name = pl.col("name").cast(pl.String)
    step = (
        pl.when(name.str.contains("StreamBeginCapture"))
        .then(1)
        .when(name.str.contains("StreamEndCapture"))
        .then(-1)
        .otherwise(0)
    )
    # A runtime call and the driver call inside it have one id.
    launched = (
        calls.sort("start_ns", maintain_order=True)
        .with_columns(step.cum_sum().over(thread).alias("capturing"))
        .filter(name.str.contains(_LAUNCHES), pl.col("correlation_id").is_not_null())
        .group_by(work)
        .agg(pl.col("capturing").max())
        .filter(pl.col("capturing") <= 0)
    )
    parts = [tables.columns(table, *work).select(work) for table in ("kernels", "graph_launches", "memops")]
    recorded = pl.concat(parts).unique()
    lost = launched.join(recorded, on=work, how="anti", nulls_equal=True).height
    failed = calls.filter(~pl.col("return_value").fill_null(0).is_in([0, _NOT_READY]))
    errors = (
        failed.with_columns(name.str.replace(r"_v\d+$", "").fill_null("unnamed"))
        .group_by("name", "return_value")
        .len()
        .sort("len", "name", "return_value", descending=[True, False, False])
    )
    return LaunchRecords(launched.height, lost, tuple(errors.iter_rows()))
