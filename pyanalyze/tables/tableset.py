"""The tables of captures on one clock: what every analysis reads, and nothing that an analysis decides."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, overload

from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.tables.concerned import Concerned, Machine
from pyanalyze.tables.export_details import ExportDetails
from pyanalyze.tables.frames import ON_REQUEST, FrameTable, declarations, to_frame
from pyanalyze.text.pairs import names_gpu, parse_pairs
from pyanalyze.text.visible import program, told_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from pyanalyze.tables.export_details import DetailsReader
    from pyanalyze.tables.frames import AnyTable

    #: Reads event tables of every capture that were not read at first: (number of the capture, tables by name).
    LateReader = Callable[[Sequence[str]], Sequence[tuple[int, Mapping[str, AnyTable]]]]
    #: Makes tables that are computed from the others, by name.
    Producer = Callable[[], Mapping[str, AnyTable]]

#: Rows of a table that are read at a time: copies of their columns are some tens of megabytes.
BATCH_ROWS = 1 << 20


class _HasTables(Protocol):
    """What has tables by name: a TableSet, a session."""

    def frame(self, name: str) -> pl.DataFrame: ...


class Frame:
    """A table as an attribute: a polars frame, converted at first use; columns and units are those of the schema."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What the schema says of the table and its columns."""
        return table_docstring(self.name)

    @overload
    def __get__(self, holder: None, owner: type) -> Frame: ...
    @overload
    def __get__(self, holder: _HasTables, owner: type) -> pl.DataFrame: ...
    def __get__(self, holder: _HasTables | None, owner: type) -> Frame | pl.DataFrame:
        return self if holder is None else holder.frame(self.name)


class Frames:
    """Every declared table as an attribute, of what has tables by name."""

    capture = Frame()
    sources = Frame()
    quality = Frame()
    configured = Frame()
    devices = Frame()
    processes = Frame()
    contexts = Frame()
    kernels = Frame()
    memops = Frame()
    graph_launches = Frame()
    api_calls = Frame()
    profiler_overhead = Frame()
    thread_runs = Frame()
    event_calls = Frame()
    nvtx = Frame()
    host_calls = Frame()
    cpu_samples = Frame()
    allocations = Frame()
    switch_events = Frame()
    gpu_metrics = Frame()
    nvml_samples = Frame()
    residency = Frame()
    inferred_residency = Frame()
    switches = Frame()
    residency_by_tenant = Frame()
    residency_by_device = Frame()
    tenants = Frame()
    tenant_usage = Frame()
    kernel_attribution = Frame()
    overlaps = Frame()
    facts = Frame()
    fact_examples = Frame()
    kernel_occupancy = Frame()
    sm_occupancy = Frame()
    sm_warps = Frame()
    kernel_placement = Frame()
    slowdowns = Frame()
    tenant_slowdowns = Frame()
    causes = Frame()
    pairwise_interference = Frame()
    context_state = Frame()
    baseline_matches = Frame()
    units = Frame()
    unit_segments = Frame()
    unit_coverage = Frame()
    stream_work = Frame()
    stream_pairs = Frame()
    stream_losses = Frame()
    stream_contention = Frame()


def table_docstring(name: str) -> str:
    """Describe a table and its columns, from the one declaration in the core.

    Examples
    --------
    >>> print(table_docstring("switches").splitlines()[0])
    The `switches` table as a polars frame.
    """
    declared = declarations()[name]
    columns = "\n".join(f"{column['name']} : {column['type']}\n    {column['doc']}" for column in declared["columns"])
    return f"The `{name}` table as a polars frame.\n\n{declared['doc']}\n\nColumns\n-------\n{columns}\n"


class CallSum(NamedTuple):
    """Several calls: how many, and how long they took in all."""

    calls: int
    total_ns: int


@dataclass(frozen=True)
class Selection:
    """What part of its captures a table set shows; None: not narrowed in that respect."""

    start_ns: int | None = None
    end_ns: int | None = None
    gpu: int | None = None
    redacted: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether there may be tenants in the captures that are not shown."""
        return (self.start_ns, self.end_ns, self.gpu) != (None, None, None)


@dataclass(frozen=True)
class Groups:
    """Groups of work inside processes that are tenants, see :mod:`pyanalyze.tables.groups`.

    Attributes
    ----------
    by
        What makes a tenant, as ``--by`` says it.
    captures
        The capture of each group: in the column `capture`, groups have numbers after those of the captures.
    processes
        Ids of the tenants that were divided: they have no work of their own.
    """

    by: str
    captures: Mapping[int, int]
    processes: frozenset[int]


@dataclass(frozen=True, repr=False, eq=False)
class TableSet(Frames):
    """Tables of captures by name, on one clock.

    Every table is an attribute too, as a polars frame: ``tables.kernels``. Times are ``Int64`` nanoseconds on the
    clock of the first capture.

    Attributes
    ----------
    stored
        The tables that were read and reconstructed, by name. Names that the caller gave, pods, and what was read
        beside the captures are applied.
    paths
        The captures, in the order of the `capture` column; none where samples were loaded without a capture.
    selection
        What part of the captures is shown.
    replayed
        What was launched from the one time to the other is what forecasts replay; None: all of it.
    names
        Names that the caller gave to processes: by pid, or by the capture in which only that process was traced.
    recorded_tenants
        `tenants` with the names that the captures have.
    answering
        Rows of `nvml_samples` that were taken while something was captured; None: all of them.
    samples_not_used
        Of each file of samples that are of another time than the captures, in a sentence.
    read_late
        Reads event tables that were not asked for at first, once; None: there is nothing to read from.
    read_details
        Reads what no table has of the exports, once; None: there is nothing to read from.
    late_transforms
        What tables that are read late go through, so that they are narrowed and renamed as the others were.
    work
        Units of work that were given beside the captures, as rows of `nvtx`.
    latencies
        Latencies that were given beside samples without a capture: tenant, time and length; None: none were given.
    work_placed
        Whether they are in `nvtx` already.
    producers
        Tables that are computed from others at first use, by name.
    machines
        Of each capture, the first that is of the same machine, as far as their boards tell; none: all are of one.
    groups
        Groups of work inside processes that are tenants; None: tenants are processes.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> tables.devices["sm_count"].to_list(), tables.row_count("kernels") == tables.kernels.height
    ([108], True)
    """

    stored: Mapping[str, AnyTable]
    paths: tuple[Path, ...] = ()
    selection: Selection = field(default_factory=Selection)
    replayed: tuple[int, int] | None = None
    names: Mapping[str, int | Path] = field(default_factory=dict)
    recorded_tenants: AnyTable | None = None
    answering: pl.DataFrame | None = None
    samples_not_used: tuple[str, ...] = ()
    read_late: LateReader | None = None
    read_details: DetailsReader | None = None
    late_transforms: tuple[Callable[[str, pl.DataFrame], pl.DataFrame], ...] = ()
    work: pl.DataFrame | None = None
    latencies: pl.DataFrame | None = None
    work_placed: bool = False
    producers: Mapping[str, Producer] = field(default_factory=dict)
    machines: tuple[int, ...] = ()
    groups: Groups | None = None
    _frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: By table and column, by value of the column.
    _rows_by: dict[tuple[str, str], dict[Any, list[dict[str, Any]]]] = field(default_factory=dict)
    #: By table and device: its first and last row, and how many there are.
    _places: dict[str, dict[int | None, list[int]]] = field(default_factory=dict)
    _late: dict[str, AnyTable] = field(default_factory=dict)
    _late_read: list[Sequence[tuple[int, Mapping[str, AnyTable]]]] = field(default_factory=list)
    _details: list[ExportDetails] = field(default_factory=list)

    def with_producers(self, producers: Mapping[str, Producer]) -> Self:
        """Return the same tables (converted ones are shared), with others that are computed when they are asked for."""
        return replace(self, producers={**self.producers, **producers})

    def with_tables(self, changed: Mapping[str, AnyTable], **fields: Any) -> Self:
        """Return a new set in which some tables are others; nothing that was converted or computed is kept."""
        stored = {**self.stored, **changed}
        return replace(
            self,
            stored=stored,
            producers={},
            _frames={},
            _rows={},
            _rows_by={},
            _places={},
            _late={},
            **fields,
        )

    def of_part(self, stored: Mapping[str, AnyTable], unchanged: Sequence[str], **fields: Any) -> Self:
        """Return a set of a part of the captures; tables that the cut left unchanged are not converted again."""
        frames = {name: self.frame(name) for name in unchanged}
        rows = {name: self.rows(name) for name in unchanged if name in self._rows}
        rows_by = {key: found for key, found in self._rows_by.items() if key[0] in rows}
        return replace(self.with_tables({}), stored=stored, _frames=frames, _rows=rows, _rows_by=rows_by, **fields)

    def __contains__(self, name: object) -> bool:
        """Whether a table is there without computing or reading anything."""
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the stored tables."""
        return iter(self.stored)

    def table(self, name: str) -> AnyTable:
        """Return a table as an Arrow stream (``__arrow_c_stream__``); computed now where it has a producer.

        Raises
        ------
        pyanalyze.errors.UsageError
            If there is no such table, or it was not read.
        """
        found = self.stored.get(name)
        if found is None and name in self.producers:
            found = self.producers[name]().get(name)
        if found is None:
            raise UsageError(
                f"the session has no table {name}; it has {', '.join(sorted(self.stored))}. Event tables are chosen "
                "with load(tables=...); load(reconstruct=False) computes no other tables"
            )
        return found

    def frame(self, name: str) -> pl.DataFrame:
        """Return a table as a polars frame, converted once.

        Raises
        ------
        pyanalyze.errors.UsageError
            As :meth:`table`.
        """
        found = self._frames.get(name)
        if found is None:
            found = self._frames[name] = to_frame(self.table(name))
        return found

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a small table, converted once: of a few rows, a question to a frame takes far longer.

        Examples
        --------
        >>> import pyanalyze
        >>> [row["sm_count"] for row in pyanalyze.load(capture).tables.rows("devices")]
        [108]
        """
        found = self._rows.get(name)
        if found is None:
            table = self.table(name)
            found = self._rows[name] = table.to_dicts() if isinstance(table, _core.Table) else table.frame.to_dicts()
        return found

    def rows_of(self, name: str, device_id: int) -> list[dict[str, Any]]:
        """Return those rows of a small table that are of a device; rows of all devices are told apart once."""
        return self.rows_where(name, "device_id", device_id)

    def rows_where(self, name: str, column: str, value: object) -> list[dict[str, Any]]:
        """Return those rows of a small table that have a value in a column; all rows are told apart once.

        Who asks for each of thousands of tenants would look through all rows for each.

        Examples
        --------
        >>> import pyanalyze
        >>> tables = pyanalyze.load(capture).tables
        >>> [row["device_id"] for row in tables.rows_where("devices", "sm_count", 108)]
        [0]
        """
        by_value = self._rows_by.get((name, column))
        if by_value is None:
            by_value = self._rows_by[name, column] = {}
            for row in self.rows(name):
                by_value.setdefault(row[column], []).append(row)
        return by_value.get(value, [])

    def captures_of(self, device_id: int) -> frozenset[int]:
        """Return the captures that are of the machine of a device.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).tables.captures_of(0)
        frozenset({0})
        """
        captures = frozenset(row["capture"] for row in self.rows("capture"))
        if len(set(self.machines)) < 2:
            return captures
        (device,) = self.rows_of("devices", device_id)
        mine = self.machines[device["capture"]]
        return frozenset(capture for capture in captures if self.machines[capture] == mine)

    def settings_of(self, device_id: int) -> list[dict[str, Any]]:
        """Return the rows of `configured` that concern a device: its own, and those of its machine.

        Of captures of several machines, what names neither a GPU nor came with a capture concerns none. What concerns
        other nodes of a cluster, or an MPS daemon of other GPUs, is left out (:class:`Concerned`).

        Examples
        --------
        >>> import pyanalyze
        >>> {row["source"] for row in pyanalyze.load(capture).tables.settings_of(0)}
        {'capture-settings'}
        """
        several = len(set(self.machines)) > 1
        captures = self.captures_of(device_id) if several else frozenset()
        return [
            row
            for row in self.rows("configured")
            if row["device_id"] == device_id
            or (
                row["device_id"] is None
                and not names_gpu(row["value"])
                and (not several or row["capture"] in captures)
                and self.concerned.concerns(row, device_id)
            )
        ]

    @cached_property
    def concerned(self) -> Concerned:
        """Which settings of a cluster or of an MPS daemon concern which device.

        Examples
        --------
        >>> import pyanalyze
        >>> dict(pyanalyze.load(capture).tables.concerned.nodes)
        {}
        """
        rows = self.rows("configured")
        return Concerned.of(rows, {row["device_id"]: self._machine(row, rows) for row in self.rows("devices")})

    def _machine(self, device: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> Machine:
        number = device["device_id"]
        samples = self.samples_of(number)
        hosts = {row["capture"]: row["host_hash"] for row in self.rows("capture")}
        texts = [] if samples.is_empty() else samples["pods"].drop_nulls().unique().to_list()
        pods = {"/".join(one.split("/")[:2]) for text in texts for one in text.split(" ")}
        listed = None
        if not (rows := self.process_samples_of(number)).is_empty():
            columns = (rows["pid"], rows["process_type"], rows["process_name"])
            listed = sorted({(pid, kind, name or "") for pid, kind, name in zip(*columns, strict=True)}, key=str)
        pids = {pid for pid, _, _ in listed or ()}
        named = [parse_pairs(row["value"]) for row in settings if row["key"] == "k8s_pod" and row["pid"] in pids]
        return Machine(
            device["name"],
            frozenset({device["uuid"], device["gpu_uuid"]} - {None}),
            hosts.get(device["capture"]),
            frozenset(pods | {fields["pod"] for fields in named if "pod" in fields}),
            listed,
        )

    def of_device(self, name: str, device_id: int) -> pl.DataFrame:
        """Return the rows of a device; where they stand together, without looking at those of the others.

        Examples
        --------
        >>> import pyanalyze
        >>> tables = pyanalyze.load(capture).tables
        >>> tables.of_device("kernels", 0).height == tables.row_count("kernels"), tables.of_device("kernels", 1).height
        (True, 0)
        """
        import polars as pl

        frame, places = self.frame(name), self._places.get(name)
        if places is None:
            rows = frame.select("device_id", row=pl.int_range(pl.len())).group_by("device_id")
            found = rows.agg(first=pl.min("row"), last=pl.max("row"), n=pl.len())
            places = self._places[name] = {one: of for one, *of in found.iter_rows()}
        first, last, count = places.get(device_id, (0, -1, 0))
        if last - first + 1 == count:
            return frame.slice(first, count)
        return frame.filter(pl.col("device_id") == device_id)

    def count_of(self, name: str, device_id: int) -> int:
        """Return how many rows of a table are of a device, without converting it; all are counted once.

        Examples
        --------
        >>> import pyanalyze
        >>> tables = pyanalyze.load(capture).tables
        >>> tables.count_of("kernels", 0) == tables.row_count("kernels"), tables.count_of("kernels", 1)
        (True, 0)
        """
        counts = self._counts.get(name)
        if counts is None:
            counts = self._counts[name] = dict(self.columns(name, "device_id")["device_id"].value_counts().iter_rows())
        return counts.get(device_id, 0)

    @cached_property
    def _counts(self) -> dict[str, dict[int | None, int]]:
        return {}

    def row_count(self, name: str) -> int:
        """Return how many rows a table has, without converting it."""
        return self.table(name).num_rows

    def columns(self, name: str, *columns: str, start: int = 0, rows: int = sys.maxsize) -> pl.DataFrame:
        """Return some columns of at most `rows` rows of a table, from row `start` on, without converting the rest.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).tables.columns("kernels", "start_ns", "end_ns").columns
        ['start_ns', 'end_ns']
        """
        table = self.table(name)
        if name in self._frames or not isinstance(table, _core.Table):
            return self.frame(name).select(columns).slice(start, rows)
        import polars as pl

        return pl.DataFrame(table.slice(columns, start, rows))

    def batches(self, name: str, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield some columns of a table, :data:`BATCH_ROWS` rows at a time and in order, in little memory."""
        start = 0
        while (piece := self.columns(name, *columns, start=start, rows=BATCH_ROWS)).height:
            yield piece
            start += BATCH_ROWS

    def counters(self, named: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
        """Return samples of some hardware counters: of a recording of hours, no more than those.

        Parameters
        ----------
        named
            Says of names of counters (an expression of text) which to take.

        Returns
        -------
        polars.DataFrame
            Columns ``device_id``, ``time_ns``, ``unit`` and ``value`` of `gpu_metrics`.
        """
        import polars as pl

        columns = ("device_id", "time_ns", "unit", "value", "metric")
        parts = [self.columns("gpu_metrics", *columns, rows=0).drop("metric")]
        for piece in self.batches("gpu_metrics", *columns):
            names = piece.select(pl.col("metric").unique())
            wanted = names.filter(named(pl.col("metric").cast(pl.String)))
            if wanted.height:
                parts.append(piece.join(wanted, on="metric", how="semi", maintain_order="left").drop("metric"))
        return pl.concat(parts)

    @property
    def samples(self) -> pl.DataFrame:
        """The rows of `nvml_samples` that answer for the captures: those of their time; all, without a capture."""
        return self.nvml_samples if self.answering is None else self.answering

    def samples_of(self, device_id: int) -> pl.DataFrame:
        """Return the samples of a device, in their order; all are told apart once.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).tables.samples_of(0).height
        0
        """
        found = self._samples_by_device.get((device_id,))
        return self.samples.clear() if found is None else found

    @cached_property
    def _samples_by_device(self) -> dict[tuple[object, ...], pl.DataFrame]:
        # Most captures come without samples: no frame has to be asked then, neither here nor below.
        if self.samples.is_empty():
            return {}
        return self.samples.partition_by("device_id", as_dict=True, maintain_order=True)

    @cached_property
    def process_samples(self) -> pl.DataFrame:
        """The samples that are of a process; those of devices without, several for each, are most of all samples."""
        import polars as pl

        samples = self.samples
        return samples if samples.is_empty() else samples.filter(pl.col("pid").is_not_null())

    def process_samples_of(self, device_id: int) -> pl.DataFrame:
        """Return the samples that are of a process on a device, in their order; all are told apart once."""
        found = self._process_samples_by_device.get((device_id,))
        return self.process_samples.clear() if found is None else found

    @cached_property
    def _process_samples_by_device(self) -> dict[tuple[object, ...], pl.DataFrame]:
        samples = self.process_samples
        # Most captures have none, and their parts are many.
        return {} if samples.is_empty() else samples.partition_by("device_id", as_dict=True, maintain_order=True)

    @cached_property
    def _board_samples(self) -> dict[int, dict[str, pl.DataFrame]]:
        return {}

    def board_samples_of(self, device_id: int) -> Mapping[str, pl.DataFrame]:
        """Return time, value and text of the samples of a device that are of no process, in their order, by metric.

        Examples
        --------
        >>> import pyanalyze
        >>> dict(pyanalyze.load(capture).tables.board_samples_of(0))
        {}
        """
        found = self._board_samples.get(device_id)
        if found is None:
            import polars as pl

            own = self.samples_of(device_id)
            if own.is_empty():
                return {}
            own = own if own["pid"].null_count() == own.height else own.filter(pl.col("pid").is_null())
            columns = own.select("metric", "time_ns", "value", "text")
            parts = columns.partition_by("metric", as_dict=True, maintain_order=True, include_key=False)
            found = self._board_samples[device_id] = {str(metric): rows for (metric,), rows in parts.items()}
        return found

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last time of GPU activity, in nanoseconds."""
        usage = self.tenant_usage
        starts = [usage["first_ns"].min(), self.residency["start_ns"].min()]
        ends = [usage["last_ns"].max(), self.residency["end_ns"].max()]
        first = [int(value) for value in starts if isinstance(value, int)]
        last = [int(value) for value in ends if isinstance(value, int)]
        return (min(first), max(last)) if first and last else (0, 0)

    def labels(self, device_id: int) -> dict[int, str]:
        """Return names that tell the tenants of a device apart, by tenant id; as reports and advice call them."""
        here = sorted(self.rows_of("tenants", device_id), key=lambda r: r["tenant_id"])
        return told_apart((r["tenant_id"], program(r["name"]), r["pid"], r["host_pid"]) for r in here)

    def switched(self, device_id: int) -> dict[tuple[int, int], int]:
        """Return how often each tenant of a device followed each other; empty where no switch is recorded.

        Examples
        --------
        >>> import pyanalyze
        >>> sum(pyanalyze.load(capture).tables.switched(0).values())
        365
        """
        return self._switched.get(device_id, {})

    @cached_property
    def _switched(self) -> dict[int, dict[tuple[int, int], int]]:
        found: dict[int, dict[tuple[int, int], int]] = {}
        if self.row_count("switches"):
            switches = self.columns("switches", "device_id", "from_tenant_id", "to_tenant_id")
            for switch, count in switches.to_struct().value_counts().iter_rows():
                device, *tenants = switch.values()
                if None not in tenants:
                    found.setdefault(device, {})[tuple(tenants)] = count
        return found

    def absent(self) -> tuple[str, ...]:
        """Return names that were given to processes which this part of the captures does not show."""
        if not self.names:
            return ()
        from pyanalyze.tables.names import meant

        tenants = self.tenants
        return tuple(given for given, who in self.names.items() if tenants.filter(meant(who, self.paths)).is_empty())

    def for_core(self) -> dict[str, AnyTable]:
        """Return the stored tables as the core takes them."""
        return dict(self.stored)

    def calls(self) -> pl.DataFrame | None:
        """Return CUDA API calls, read from the captures if they were not; None: there is no capture."""
        return self._late_frame("api_calls") if self.paths else None

    def calls_named(self, process: Mapping[str, Any], pattern: str) -> CallSum:
        """Sum up the CUDA API calls of a process with some names, without a frame of all calls.

        Parameters
        ----------
        process
            What has its `capture` and `pid`.
        pattern
            Regular expression that is found anywhere in the name; calls without a name have none.

        Examples
        --------
        >>> import pyanalyze
        >>> tables = pyanalyze.load(capture).tables
        >>> tables.calls_named(tables.tenants.row(1, named=True), "Launch").calls
        424
        """
        sums = self._calls_by_name.get((process["capture"], process["pid"]), ())
        chosen = [one for name, one in sums if re.search(pattern, name)]
        return CallSum(sum(one.calls for one in chosen), sum(one.total_ns for one in chosen))

    @cached_property
    def _calls_by_name(self) -> dict[tuple[int, int | None], list[tuple[str, CallSum]]]:
        found: dict[tuple[int, int | None], list[tuple[str, CallSum]]] = {}
        calls = {"api_calls": self._late_for_core("api_calls")} if self.paths else {}
        for process, name, *numbers in _core.calls_by_name(calls):
            found.setdefault(process, []).append((name, CallSum(*numbers)))
        return found

    def host_calls_read(self) -> pl.DataFrame:
        """Return calls of MPI, of video codecs and of the C library, read from the captures if they were not."""
        return self._late_frame("host_calls")

    def cpu_samples_read(self) -> pl.DataFrame:
        """Return CPU samples of threads, read from the captures if they were not."""
        return self._late_frame("cpu_samples")

    def cpu_runs(self) -> pl.DataFrame | None:
        """Return when threads were on a CPU, read from the captures if it was not; None: it was not recorded."""
        runs = self._late_frame("thread_runs") if self.paths else None
        return None if runs is None or runs.is_empty() else runs

    def ranges(self) -> pl.DataFrame:
        """Return NVTX ranges, read from the captures if they were not, and the given units of work among them."""
        import polars as pl

        ranges = self._late_frame("nvtx")
        if self.work is None or self.work_placed:
            return ranges
        named = ranges.with_columns(pl.col("kind", "text").cast(pl.String))
        return pl.concat([named, self.work.select(named.columns)]).sort("start_ns", maintain_order=True)

    def with_calls(self, *more: str) -> dict[str, Any]:
        """Return all tables with API calls, what the profiler did in them, NVTX ranges and given units of work.

        Parameters
        ----------
        *more
            Further tables that are read on request.

        Examples
        --------
        >>> import pyanalyze
        >>> sorted(set(pyanalyze.load(capture).tables.with_calls()) & {"api_calls", "nvtx"})
        ['api_calls', 'nvtx']
        """
        if not self.paths:
            return self.for_core()
        placed = self.work is None or self.work_placed
        ranges: Any = self._late_for_core("nvtx") if placed else FrameTable("nvtx", self.ranges())
        return {**self.with_late("api_calls", "profiler_overhead", *more), "nvtx": ranges}

    def with_late(self, *names: str) -> dict[str, Any]:
        """Return all tables with these, which are read on request.

        Examples
        --------
        >>> import pyanalyze
        >>> "api_calls" in pyanalyze.load(capture).tables.with_late("api_calls")
        True
        """
        if not self.paths:
            return self.for_core()
        return {**self.stored, **{name: self._late_for_core(name) for name in names}}

    def complete(self, more: Mapping[str, AnyTable]) -> Self:
        """Return the set with what any analysis reads on request, and `more`, among the stored tables."""
        return self.with_tables({**self.with_calls("event_calls"), **more}, work_placed=True)

    @property
    def details(self) -> ExportDetails:
        """What no table has of the exports; read when it is first asked for, once for all parts of the captures.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).tables.details.stderr_lines
        {}
        """
        if not self._details:
            self._details.append(ExportDetails() if self.read_details is None else self.read_details())
        return self._details[0]

    def _late_frame(self, name: str) -> pl.DataFrame:
        """An event table that was not asked for when the captures were read."""
        if name in self.stored:
            return self.frame(name)
        key = f"late {name}"
        if key not in self._frames:
            self._frames[key] = to_frame(self._late_for_core(name))
        return self._frames[key]

    def _late_for_core(self, name: str) -> AnyTable:
        if name in self.stored:
            return self.stored[name]
        found = self._late.get(name)
        if found is None:
            found = self._late[name] = self._joined_late(name)
        return found

    def _joined_late(self, name: str) -> AnyTable:
        """Rows of all captures on the one clock, narrowed and renamed; one capture's own table where that is all."""
        import polars as pl

        # A question that needs one of them needs the others, and a capture is opened once for all of them. Sets that
        # show a part of the same captures share what was read.
        if not self._late_read:
            wanted = [late for late in ON_REQUEST if late not in self.stored]
            self._late_read.append(() if self.read_late is None else self.read_late(wanted))
        read = [(number, tables[name]) for number, tables in self._late_read[0] if name in tables]
        if (
            len(read) == 1 == len(self.paths)
            and not self.late_transforms
            and self.capture["clock_offset_ns"].to_list() == [0]
        ):
            return read[0][1]
        offsets = dict(self.capture.select("capture", "clock_offset_ns").iter_rows())
        # Calls about events have no times of their own.
        times = [column for column in ("start_ns", "end_ns", "time_ns") if column in empty_frame(name).columns]
        parts = [
            to_frame(table).with_columns(
                *(pl.col(column) + offsets.get(number, 0) for column in times),
                pl.col(pl.Categorical).cast(pl.String),
            )
            for number, table in read
        ]
        late = pl.concat(parts) if parts else empty_frame(name)
        if times:
            late = late.sort(times[0], maintain_order=True)
        for transform in self.late_transforms:
            late = transform(name, late)
        return FrameTable(name, late)


def reconstructed(
    tables: Mapping[str, AnyTable],
    answering: pl.DataFrame | None,
    progress: Callable[[str, int, int], object] | None,
) -> dict[str, AnyTable]:
    """Reconstruct residency, tenants, attribution and facts from tables that were read.

    Parameters
    ----------
    tables
        Tables of captures that were joined, by name.
    answering
        Samples that answer for the captures, see :class:`TableSet`.
    progress
        Called as ``progress(stage, done, total)``.
    """
    return dict(_core.reconstruct(answered(tables, answering), progress))


def answered(tables: Mapping[str, AnyTable], answering: pl.DataFrame | None) -> dict[str, AnyTable]:
    """Return the tables with only those samples that answer for the captures, see :class:`TableSet`."""
    chosen = {} if answering is None else {"nvml_samples": FrameTable("nvml_samples", answering)}
    return {**tables, **chosen}


def empty_frame(name: str) -> pl.DataFrame:
    """Make a declared table without rows; repeated names are text.

    Examples
    --------
    >>> empty_frame("api_calls").columns[:3]
    ['capture', 'pid', 'tid']
    """
    import polars as pl

    declared = declarations()[name]
    kinds = {"Boolean": pl.Boolean, "UInt32": pl.UInt32, "UInt64": pl.UInt64, "Int32": pl.Int32, "Int64": pl.Int64}
    return pl.DataFrame(schema={c["name"]: kinds.get(c["type"], pl.String()) for c in declared["columns"]})
