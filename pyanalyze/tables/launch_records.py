"""Launch calls whose kernels have no record, and errors of API calls: such time is not idle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.tables.cut_exports import LEAST_COVERED
from pyanalyze.text import format as fmt
from pyanalyze.text.format import capital

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["LaunchRecords", "launch_records"]

#: Recordings stop one kind of events after another: in `torch-mps-serve-train` of `fixtures/hardware` NVTX goes on for
#: 2.8 ms after CUDA. From this on only CUDA tracing is said to have ended.
_GOES_ON_NS = 10_000_000
#: Up to this number the first recorded call of a process may come after some that nsys leaves out. Whole recordings of
#: the corpus begin with call 1 to 868, parts of one in `fixtures/hardware/h100` with 597 to 303,760.
_SET_UP_CALLS = 1_000
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
    graphs
        Calls that launched a graph.
    without_record_at_end
        Those without a record that came after the last one of their process with a record.
    export_cut
        Rows were removed from the export: records may be among them.
    tracing_ended
        Threads that launched went on to calls or ranges of other kinds, but to no CUDA call: CUDA tracing had ended.
    recording_left_ns
        How long the recording went on behind the last record of its captures, at least.
    first_call
        Lowest number (correlation id) of a recorded call of any of the processes, where it is so high that calls before
        it are missing; else 0.
    without_call_at_start
        Kernels that earlier calls than the first recorded one of their process launched, where calls before it are
        missing: work was in flight where the records begin.
    """

    launches: int
    without_record: int
    errors: tuple[tuple[str, int, int], ...]
    graphs: int = 0
    without_record_at_end: int = 0
    export_cut: bool = False
    tracing_ended: bool = False
    recording_left_ns: int = 0
    first_call: int = 0
    without_call_at_start: int = 0

    @property
    def only_unfinished(self) -> bool:
        """Whether only the last launches have no record: recording, or CUDA tracing, ended before their work.

        In an export from which rows were removed, that of their work may be among these.

        Examples
        --------
        >>> LaunchRecords(3, 2, (), 0, 2).only_unfinished, LaunchRecords(3, 2, (), 0, 1).only_unfinished
        (True, False)
        """
        at_end = 0 < self.without_record == self.without_record_at_end
        return at_end and not self.errors and not self.export_cut

    @property
    def recording_ended_first(self) -> bool:
        """Whether the recording, or CUDA tracing, ended before the work of these launches: no record was lost.

        Examples
        --------
        >>> LaunchRecords(3, 1, (), 0, 1).recording_ended_first
        True
        >>> LaunchRecords(3, 1, (), 0, 1, recording_left_ns=2_500_000_000).recording_ended_first
        False
        """
        return self.only_unfinished and (self.tracing_ended or self.recording_left_ns < _GOES_ON_NS)

    @property
    def how_to_finish(self) -> str:
        """What gives unfinished work a record; empty: nothing, some is always in flight where a recording ends.

        Examples
        --------
        >>> LaunchRecords(3, 2, (), 0, 2).how_to_finish, LaunchRecords(3, 3, (), 0, 3).how_to_finish
        ('', 'record until the work that was launched has ended')
        """
        return "record until the work that was launched has ended" if self.without_record == self.launches else ""

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

    def _begins(self) -> str:
        """That calls are missing at the start as well, to stand behind a sentence; empty: none are known to be."""
        return f". {capital(self._first())}" if self.first_call else ""

    def _first(self) -> str:
        return (
            f"the first recorded call is number {fmt.count(self.first_call)} of its process: the export is part of a "
            "longer recording, or tracing began late"
        )

    def describe_start(self) -> str:
        """Say that records begin in the middle of the work, or of the run; empty: nothing shows it.

        Examples
        --------
        >>> LaunchRecords(3, 0, (), first_call=2086, without_call_at_start=3).describe_start()[:82]
        'the launch calls of the first 3 kernels are missing, and the first recorded call i'
        """
        if not self.first_call:
            return ""
        if not self.without_call_at_start:
            return self._first()
        first = fmt.counted(self.without_call_at_start, "kernel")
        which = "call of the first kernel is" if self.without_call_at_start == 1 else f"calls of the first {first} are"
        return f"the launch {which} missing, and {self._first()}"

    def describe(self) -> str:
        """What is missing, for a sentence.

        Examples
        --------
        >>> LaunchRecords(3, 2, ()).describe()
        '2 of 3 launch calls have no kernel record'
        >>> LaunchRecords(3, 1, (), 2, 1).describe()
        '1 of 3 launch calls (a graph counts as one) has no kernel record: the recording ended first'
        >>> LaunchRecords(3, 1, (), 0, 1, export_cut=True).describe()
        '1 of 3 launch calls has no kernel record: rows were removed from the export'
        >>> LaunchRecords(3, 1, (), 0, 1, tracing_ended=True).describe()
        '1 of 3 launch calls has no kernel record: CUDA tracing ended first'
        >>> LaunchRecords(3, 1, (), 0, 1, recording_left_ns=2_500_000_000).describe()
        '1 of 3 launch calls has no kernel record: the last ones, after which 2.500 s of recording have no record'
        >>> LaunchRecords(3, 1, (), 0, 1, recording_left_ns=2_500_000_000, first_call=50).describe()[106:158]
        'The first recorded call is number 50 of its process:'
        """
        graphs = " (a graph counts as one)" if self.graphs else ""
        have = "has" if self.without_record == 1 else "have"
        of = f"{fmt.count(self.without_record)} of {fmt.count(self.launches)}"
        said = f"{of} launch calls{graphs} {have} no kernel record"
        if self.only_unfinished:
            if not self.recording_ended_first:
                rest = fmt.duration(self.recording_left_ns)
                return f"{said}: the last ones, after which {rest} of recording have no record{self._begins()}"
            return f"{said}: {'CUDA tracing' if self.tracing_ended else 'the recording'} ended first"
        errors = self.describe_errors()
        if errors:
            return f"{said}; {errors}"
        return f"{said}: rows were removed from the export" if self.export_cut else said


def _of(processes: Collection[tuple[int, int | None]] | None, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of some processes, by `capture` and `pid`; None: all."""
    import polars as pl

    if processes is None:
        return rows
    process = ["capture", "pid"]
    wanted = pl.DataFrame(list(processes), schema={name: rows.schema[name] for name in process}, orient="row")
    return rows.join(wanted, on=process, how="semi", nulls_equal=True)


def _first_call(found: Mapping[str, Any]) -> int:
    """The lowest number of a recorded call of any process, if it is none of a set-up; else 0."""
    first = min((begin["first_call"] for begin in found["begins"]), default=0)
    return first if first > _SET_UP_CALLS else 0


def _cut_at_start(tables: TableSet, found: Mapping[str, Any]) -> tuple[int, int]:
    """The lowest number of a recorded call of a process of which earlier calls are missing, and kernels of those.

    Without such kernels nsys may have left out calls of the set-up, unless the records are a small part of the
    recording. Zeros: nothing is missing that shows.
    """
    late = [
        begin
        for begin in found["begins"]
        if begin["first_kernel"] is not None and min(begin["first_call"], begin["first_kernel"]) > _SET_UP_CALLS
    ]
    before = [begin for begin in late if begin["kernels_before"]]
    if late and not before:
        few = _few_of_recording(tables)
        late = [begin for begin in late if begin["process"][0] in few]
    first = min((begin["first_call"] for begin in before or late), default=0)
    return first, sum(begin["kernels_before"] for begin in before)


def _few_of_recording(tables: TableSet) -> set[int]:
    """Captures whose records are a small part of their recording."""
    import polars as pl

    recorded = pl.col("recording_end_ns") - pl.col("recording_start_ns")
    held = pl.col("end_ns") - pl.col("start_ns")
    return set(tables.capture.filter(held < LEAST_COVERED * recorded)["capture"])


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
    if not tables.paths:
        return None
    wanted = None if processes is None else set(processes)
    found = _core.launch_records(tables.with_late("api_calls"), wanted)
    if found is None:
        return None
    records = LaunchRecords(
        found["launches"],
        found["without_record"],
        tuple(found["errors"]),
        found["graphs"],
        found["without_record_at_end"],
        any(
            wanted is None or row["capture"] in {capture for capture, _ in wanted}
            for row in tables.rows_where("quality", "name", "export_cut")
        ),
    )
    whole = not tables.selection.narrowed
    if not records.without_record and not records.export_cut:
        first, lacking = _cut_at_start(tables, found) if whole else (0, 0)
        return replace(records, first_call=first, without_call_at_start=lacking)
    if not records.only_unfinished:
        return records
    captures = [row for row in tables.rows("capture") if wanted is None or row["capture"] in {one for one, _ in wanted}]
    left_ns = [
        row["recording_end_ns"] - row["end_ns"]
        for row in captures
        if None not in (row["recording_end_ns"], row["end_ns"])
    ]
    return replace(
        records,
        tracing_ended=_tracing_ended(tables, wanted),
        recording_left_ns=max(min(left_ns), 0) if len(left_ns) == len(captures) > 0 else 0,
        first_call=_first_call(found) if whole else 0,
    )


def _tracing_ended(tables: TableSet, processes: Collection[tuple[int, int | None]] | None) -> bool:
    """Whether a thread that made CUDA calls went on to something else for long after the last record of CUDA.

    A thread that waits for work that never ends does not go on: then it is the work that had not ended.
    """
    import polars as pl

    process, thread = ["capture", "pid"], ["capture", "pid", "tid"]

    def goes_on(rows: pl.DataFrame, until: pl.DataFrame) -> pl.DataFrame:
        last = until.group_by(process).agg(last_ns=pl.col("end_ns").max())
        rows = rows.join(last, on=process, how="left", nulls_equal=True)
        return rows.filter((pl.col("end_ns") - pl.col("last_ns") >= _GOES_ON_NS).fill_null(value=True)).drop("last_ns")

    others = pl.concat([rows.select(*thread, "end_ns") for rows in (tables.ranges(), tables.host_calls_read())])
    others = _of(processes, others)
    for name in ("kernels", "memops", "graph_launches"):
        if name in tables:
            others = goes_on(others, tables.columns(name, *process, "end_ns"))
    # There may be millions of calls: mostly nothing is left to compare with them.
    calls = None if others.is_empty() else tables.calls()
    if calls is None or calls.is_empty():
        return False
    others = others.join(calls.select(thread).unique(), on=thread, how="semi", nulls_equal=True)
    return not goes_on(others, calls).is_empty()
