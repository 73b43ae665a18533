"""A session: captures read and reconstructed, as frames, with a handful of verbs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from pyanalyze.errors import UsageError
from pyanalyze.inputs.sample_alignment import of_its_time
from pyanalyze.tables.window import Names, Selection, narrowed, redacted
from pyanalyze.text.visible import told_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import altair as alt
    import polars as pl

    from pyanalyze.analysis.advice import Advice
    from pyanalyze.analysis.gate import Checked, Limits
    from pyanalyze.analysis.interference import Baseline, DeviceInterference
    from pyanalyze.analysis.interference.baselines import SavedBaseline, Summary
    from pyanalyze.analysis.occupancy import CounterCheck, Occupancy, PlacementPolicy
    from pyanalyze.analysis.residency import Ledger
    from pyanalyze.analysis.sharing import Case, Fact, Verdict
    from pyanalyze.core import _core
    from pyanalyze.inputs.capture import Failure
    from pyanalyze.results.report import Report, Work
    from pyanalyze.text.times import Moment
    from pyanalyze.vocabulary import Requirement


#: Rows of a table that are looked at together: copies of their columns are some tens of megabytes.
PIECE_ROWS = 1 << 20
#: Tables that are made at first use, by the property that makes them.
DERIVED = {
    "aggressors": "_compared",
    "baseline_matches": "_compared",
    "causes": "_compared",
    "engine": "_added_up",
    "inferred_residency": "_inferred",
    "kernel_occupancy": "_modelled",
    "kernel_placement": "_modelled",
    "ledger": "_added_up",
    "slowdowns": "_compared",
    "sm_occupancy": "_modelled",
    "sm_warps": "_modelled",
    "tenant_slowdowns": "_compared",
}


class _Frame:
    """A table of the session as a polars frame, converted at first use."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.__doc__ = f"The `{name}` table as a polars frame; docs/schemas.md describes its columns."

    @overload
    def __get__(self, session: None, owner: type) -> _Frame: ...
    @overload
    def __get__(self, session: Session, owner: type) -> pl.DataFrame: ...
    def __get__(self, session: Session | None, owner: type) -> _Frame | pl.DataFrame:
        return self if session is None else session.frame(self.name)


@dataclass(frozen=True, repr=False)
class Session:
    """Captures on one clock, with everything that was reconstructed from them.

    Made by :func:`pyanalyze.load`. Frames are polars frames, converted at first use; their columns are described
    in docs/schemas.md. Times are nanoseconds on the clock of the first capture, where nsys shows the same times.

    Attributes
    ----------
    paths
        The captures, in the order of the `capture` column; none where samples were loaded alone.
    failures
        Captures that could not be read, with ``keep_going``.
    selection
        What part of them this session shows, see :meth:`window`, :meth:`only_gpu` and :meth:`redacted`.
    detail
        Reports hold arrays of intervals as well.
    lenses
        What tables that are read late go through, so that they are cut and renamed as the others were.
    baselines
        Recordings of tenants alone.
    saved_baselines
        Reports of tenants alone, saved as JSON.
    work
        Units of work that were given beside the capture, as rows of `nvtx`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> session.classify()[0].mode
    'time-slicing'
    """

    paths: tuple[Path, ...]
    tables: Mapping[str, _core.Table]
    names: Mapping[str, int | Path] = field(default_factory=dict)
    extra_configured: tuple[pl.DataFrame, ...] = ()
    extra_quality: tuple[tuple[str, str], ...] = ()
    failures: tuple[Failure, ...] = ()
    selection: Selection = field(default_factory=Selection)
    detail: bool = False
    lenses: tuple[Callable[[str, pl.DataFrame], pl.DataFrame], ...] = field(default=(), compare=False)
    baselines: tuple[Baseline, ...] = ()
    saved_baselines: tuple[SavedBaseline, ...] = ()
    _summaries: Mapping[tuple[int, int], Summary] = field(default_factory=dict, compare=False)
    work: pl.DataFrame | None = None
    _work_placed: bool = field(default=False, compare=False)
    _frames: dict[str, pl.DataFrame] = field(default_factory=dict, init=False, compare=False)
    _late_tables: dict[str, _core.Table] = field(default_factory=dict, init=False, compare=False)
    _checks: dict[int, CounterCheck | None] = field(default_factory=dict, init=False, compare=False)

    capture = _Frame()
    sources = _Frame()
    quality = _Frame()
    configured = _Frame()
    devices = _Frame()
    processes = _Frame()
    contexts = _Frame()
    kernels = _Frame()
    memops = _Frame()
    graph_launches = _Frame()
    api_calls = _Frame()
    profiler_overhead = _Frame()
    thread_runs = _Frame()
    nvtx = _Frame()
    allocations = _Frame()
    switch_events = _Frame()
    gpu_metrics = _Frame()
    nvml_samples = _Frame()
    residency = _Frame()
    inferred_residency = _Frame()
    switches = _Frame()
    ledger = _Frame()
    engine = _Frame()
    tenants = _Frame()
    tenant_usage = _Frame()
    charged = _Frame()
    overlaps = _Frame()
    facts = _Frame()
    fact_examples = _Frame()
    kernel_occupancy = _Frame()
    sm_occupancy = _Frame()
    sm_warps = _Frame()
    kernel_placement = _Frame()
    slowdowns = _Frame()
    tenant_slowdowns = _Frame()
    causes = _Frame()
    aggressors = _Frame()
    baseline_matches = _Frame()

    def table(self, name: str) -> _core.Table:
        """Return a table as an Arrow stream (``__arrow_c_stream__``), for other libraries.

        Parameters
        ----------
        name
            Name of the table.

        Raises
        ------
        pyanalyze.errors.UsageError
            If there is no such table, or it was not read (``load(tables=...)``).

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).table("kernels").schema_id
        'kernels@1'
        """
        found = self.tables.get(name)
        if found is None and name in DERIVED and "tenants" in self.tables:
            found = getattr(self, DERIVED[name])[name]
        if found is None:
            raise UsageError(
                f"the session holds no table {name}; it holds {', '.join(sorted(self.tables))}. "
                "Event tables are chosen with load(tables=...); load(reconstruct=False) makes nothing of them"
            )
        return found

    def frame(self, name: str) -> pl.DataFrame:
        """Return a table as a polars frame.

        Parameters
        ----------
        name
            Name of the table.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).frame("devices").get_column("sm_count").to_list()
        [108]
        """
        if name not in self._frames:
            import polars as pl

            from pyanalyze.tables.frames import to_frame

            frame = to_frame(self.table(name))
            if name == "tenants":
                from pyanalyze.inputs.context import name_pods

                frame = self._renamed(name_pods(frame, [self.configured]))
            if name == "configured" and self.extra_configured:
                text = [pl.col("source").cast(pl.String), pl.col("key").cast(pl.String)]
                frame = pl.concat(
                    [part.with_columns(text) for part in (frame, *self.extra_configured)],
                    how="vertical_relaxed",
                )
            if name == "quality" and self.extra_quality:
                frame = self._with_extra_quality(frame)
            self._frames[name] = frame
        return self._frames[name]

    def part(self, name: str, *columns: str) -> pl.DataFrame:
        """Return some columns of a table: of a capture larger than memory, no more of it than is looked at.

        Parameters
        ----------
        name
            Name of the table.
        columns
            Its columns.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).part("kernels", "start_ns", "end_ns").columns
        ['start_ns', 'end_ns']
        """
        return self._part(name, columns, 0, sys.maxsize)

    def _part(self, name: str, columns: Sequence[str], start: int, rows: int) -> pl.DataFrame:
        """Return some columns of at most `rows` rows of a table, from `start` on."""
        table = self.tables.get(name)
        if table is None or name in self._frames or not hasattr(table, "part"):
            return self.frame(name).select(columns).slice(start, rows)
        import polars as pl

        return pl.DataFrame(table.part(columns, start, rows))

    def pieces(self, name: str, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield some columns of a table in pieces of its rows, in order: copies of one take no notable memory.

        Parameters
        ----------
        name
            Name of the table.
        columns
            Its columns.

        Examples
        --------
        >>> import pyanalyze
        >>> session = pyanalyze.load(capture)
        >>> sum(piece.height for piece in session.pieces("kernels", "start_ns")) == session.rows("kernels")
        True
        """
        start = 0
        while (piece := self._part(name, columns, start, PIECE_ROWS)).height:
            yield piece
            start += PIECE_ROWS

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

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).counters(lambda name: name.str.contains("DRAM")).height
        0
        """
        import polars as pl

        columns = ("device_id", "time_ns", "unit", "value", "metric")
        parts = [self._part("gpu_metrics", columns, 0, 0).drop("metric")]
        for piece in self.pieces("gpu_metrics", *columns):
            names = piece.select(pl.col("metric").unique())
            wanted = names.filter(named(pl.col("metric").cast(pl.String)))
            if wanted.height:
                parts.append(piece.join(wanted, on="metric", how="semi", maintain_order="left").drop("metric"))
        return pl.concat(parts)

    @cached_property
    def samples(self) -> pl.DataFrame:
        """The rows of `nvml_samples` that answer for the captures: those of their time; all, where there is no capture.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).samples.height
        0
        """
        return of_its_time(self.nvml_samples, self.capture) if self.paths else self.nvml_samples

    def process_memory(self, device_id: int) -> dict[int, int]:
        """Most memory that samples show of each process on a device.

        Parameters
        ----------
        device_id
            The device. Samples that name no GPU are taken where there is no other; those of a board may be of each of
            its MIG instances, as a process runs in one of them.

        Returns
        -------
        dict of int to int
            Bytes by pid, as the samples have it.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).process_memory(0)
        {}
        """
        import polars as pl

        here = pl.col("device_id") == device_id
        device = self.devices.filter(here).row(0, named=True)
        if device["mig_profile"] is not None and device["gpu_uuid"] is not None:
            here = here | ((pl.col("gpu_uuid") == device["gpu_uuid"]) & pl.col("mig_gi").is_null())
        if self.devices.height == 1:
            named = ("device_id", "gpu_index", "gpu_uuid", "gpu_name", "mig_gi")
            here = here | pl.all_horizontal(pl.col(name).is_null() for name in named)
        rows = self.samples.filter(
            here & pl.col("pid").is_not_null() & (pl.col("metric").cast(pl.String) == "process_memory_bytes")
        )
        peaks = rows.group_by("pid").agg(pl.col("value").max())
        return {pid: int(value) for pid, value in peaks.iter_rows() if value is not None}

    def rows(self, name: str) -> int:
        """Return how many rows a table has, without converting it.

        Examples
        --------
        >>> import pyanalyze
        >>> session = pyanalyze.load(capture)
        >>> session.rows("kernels") == session.kernels.height
        True
        """
        return self.table(name).num_rows

    def _with_extra_quality(self, quality: pl.DataFrame) -> pl.DataFrame:
        """Add what was counted on the Python side; what each counter means stands in the core's one list."""
        import polars as pl

        from pyanalyze.core import _core

        counters = {counter["name"]: counter for counter in _core.quality_counters()}
        quality = quality.with_columns(pl.col(column).cast(pl.String) for column in ("name", "severity", "source"))
        rows = [
            {
                "capture": None,
                "name": name,
                "severity": counters[name]["severity"],
                "source": counters[name]["source"],
                "count": 1,
                "detail": detail,
            }
            for name, detail in self.extra_quality
        ]
        return pl.concat([quality, pl.DataFrame(rows, schema=quality.schema)])

    def _renamed(self, tenants: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        name = pl.col("name")
        for given, who in self.names.items():
            new: pl.Expr = pl.lit(given)
            named = self._meant(who)
            found = tenants.filter(named).height
            # Who did nothing in a part of the time, or on one of the GPUs, is not there to be named.
            if found == 0 and not self.selection.narrowed:
                lacks = (
                    "no tenant has that pid"
                    if isinstance(who, int)
                    else "that capture shows no process that was traced"
                )
                raise UsageError(f"--tenant {given}={who}: {lacks}")
            if found > 1 and not isinstance(who, int):
                new = pl.format(f"{given.replace('{', '').replace('}', '')} (pid {{}})", pl.col("pid"))
            name = pl.when(named).then(new).otherwise(name)
        return tenants.with_columns(name.alias("name"))

    def _meant(self, who: int | Path) -> pl.Expr:
        """Which rows of `tenants` a name was given to."""
        import polars as pl

        if isinstance(who, int):
            return (pl.col("pid") == who) | (pl.col("host_pid") == who)
        own = [index for index, path in enumerate(self.paths) if path == who]
        return pl.col("capture").is_in(own) & pl.col("traced")

    def absent(self) -> tuple[str, ...]:
        """Names that were given to processes which this part of the session does not show.

        Returns
        -------
        tuple of str
            Empty in a session that was not cut: there a name that fits nobody is an error.

        Examples
        --------
        >>> import pyanalyze
        >>> session = pyanalyze.load(capture, tenants={"service": 41305})
        >>> session.absent(), session.window(end="200ms").absent()
        ((), ('service',))
        """
        if not self.names:
            return ()
        return tuple(given for given, who in self.names.items() if self.tenants.filter(self._meant(who)).is_empty())

    def labels(self, device_id: int) -> dict[int, str]:
        """Names that tell the tenants of a device apart, by tenant id; as reports and advice call them.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).labels(0)
        {0: 'app_a', 1: 'app_b', 2: 'app_c'}
        """
        here = self.tenants.filter(self.tenants["device_id"] == device_id).sort("tenant_id")
        return told_apart(here.select("tenant_id", "name", "pid", "host_pid").iter_rows())

    @cached_property
    def _modelled(self) -> dict[str, _core.Table]:
        """Tables that need a verdict: which tenants may share SMs is its business."""
        from pyanalyze.analysis.occupancy import model_in_passing, model_tables

        return model_tables(self, bins=200, window=None, policies=None, model=model_in_passing(self))[1]

    @cached_property
    def _inferred(self) -> dict[str, _core.Table]:
        """Residency without switch records: only a verdict says whether tenants take turns at all."""
        from pyanalyze.analysis.occupancy import placement_policy
        from pyanalyze.core import _core

        policies = [(v.device_id, placement_policy(self, v).sharing) for v in self.classify()]
        return _core.infer_residency(dict(self.tables), policies, None)

    @cached_property
    def _added_up(self) -> dict[str, _core.Table]:
        from pyanalyze.core import _core

        return _core.ledger({**self.tables, **self._inferred}, None)

    @cached_property
    def _verdicts(self) -> tuple[Verdict, ...]:
        from pyanalyze.analysis.sharing import judge

        self._refuse_captures_apart()
        return tuple(judge(case) for case in self.cases())

    def _refuse_captures_apart(self) -> None:
        """Recordings of one GPU at different times are no single run: a verdict about both would be about neither."""
        import polars as pl

        apart = self.quality.filter(pl.col("name").cast(pl.String) == "captures_apart")["capture"].unique()
        active = self.tenant_usage.filter(pl.col("first_ns").is_not_null()).select("tenant_id", "device_id")
        seen = active.join(self.tenants.select("tenant_id", "capture"), on="tenant_id").unique(["device_id", "capture"])
        both = seen.filter(pl.col("capture").n_unique().over("device_id") > 1, pl.col("capture").is_in(apart.implode()))
        if both.is_empty():
            return
        here = both.sort("device_id", "capture").row(0, named=True)
        there = seen.filter(pl.col("device_id") == here["device_id"], pl.col("capture") != here["capture"])
        paths = dict(self.capture.select("capture", "path").iter_rows())
        raise UsageError(
            f"{paths[here['capture']]} and {paths[there['capture'].min()]} are of one GPU but not of one time: what "
            "they say together holds for neither. Give each by itself, or all to `pyanalyze fleet`; a recording of one "
            "tenant alone goes to --baseline"
        )

    @cached_property
    def work_of_tenants(self) -> dict[tuple[int, int], Work]:
        """What every traced tenant did on every device, see :func:`pyanalyze.analysis.comparison.work.work_of`."""
        from pyanalyze.analysis.comparison.work import work_of

        return work_of(self)

    def look_ahead(self) -> None:
        """Reconstruct now what a report asks for: parts of it that do not need each other side by side.

        Examples
        --------
        >>> import pyanalyze
        >>> session = pyanalyze.load(capture)
        >>> session.look_ahead()
        >>> session.sm_occupancy.is_empty()
        False
        """
        from concurrent.futures import ThreadPoolExecutor

        from pyanalyze.tables import memory

        self.classify()
        if memory.account().spilled_most_bytes:
            return  # two at a time would want what there is not
        # The core lets go of the interpreter while it works. The comparison takes most memory: it is left for later.
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(lambda: self._modelled)
            _ = self.work_of_tenants, self._added_up
            beside.result()

    def against_saved(self, device_id: int, tenant_id: int, name: str) -> Summary:
        """What reports of tenants alone, saved as JSON, say of a tenant.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).against_saved(0, 1, "app_b").source is None
        True
        """
        from pyanalyze.analysis.interference.baselines import against_saved

        known = self._summaries.get((device_id, tenant_id))
        return known or against_saved(self.saved_baselines, self, device_id, tenant_id, name)

    @cached_property
    def _compared(self) -> dict[str, _core.Table]:
        """Every tenant beside itself alone; launch calls are read only now, they are as many as kernels."""
        from pyanalyze.analysis.interference.baselines import as_arguments
        from pyanalyze.core import _core

        start_ns, end_ns = self.selection.start_ns, self.selection.end_ns
        window = None if start_ns is None or end_ns is None else (start_ns, end_ns)
        baselines = as_arguments(self.baselines, self.tenants)
        return _core.slowdowns(self.with_calls(), baselines, None, window=window)

    def calls(self) -> pl.DataFrame | None:
        """CUDA API calls on the session clock, read from the captures if they were not; None: there is no capture.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).calls().columns[:3]
        ['capture', 'pid', 'tid']
        """
        return self._late("api_calls") if self.paths else None

    def cpu_runs(self) -> pl.DataFrame | None:
        """When threads were on a CPU, read from the captures if it was not; None: nobody recorded it.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).cpu_runs() is None
        True
        """
        runs = self._late("thread_runs") if self.paths else None
        return None if runs is None or runs.is_empty() else runs

    def _late(self, name: str) -> pl.DataFrame:
        """An event table that was not asked for when the session was loaded."""
        if name in self.tables:
            return self.frame(name)
        key = f"late {name}"
        if key not in self._frames:
            import polars as pl

            from pyanalyze.inputs.capture import read_late
            from pyanalyze.tables.frames import to_frame

            whole = self._late_table(name)
            if whole is not None:
                self._frames[key] = to_frame(whole)
                return self._frames[key]
            offsets = dict(self.capture.select("capture", "clock_offset_ns").iter_rows())
            parts = [
                to_frame(table).with_columns(
                    pl.col("start_ns") + offsets.get(number, 0),
                    pl.col("end_ns") + offsets.get(number, 0),
                    pl.col(pl.Categorical).cast(pl.String),
                )
                for number, table in read_late(self.paths, name)
            ]
            if not parts:
                from pyanalyze.core import _core

                declared = next(table for table in _core.table_declarations() if table["name"] == name)
                kinds = {"UInt32": pl.UInt32, "UInt64": pl.UInt64, "Int32": pl.Int32, "Int64": pl.Int64}
                parts = [
                    pl.DataFrame(schema={c["name"]: kinds.get(c["type"], pl.String()) for c in declared["columns"]})
                ]
            late = pl.concat(parts).sort("start_ns", maintain_order=True)
            for lens in self.lenses:
                late = lens(name, late)
            self._frames[key] = late
        return self._frames[key]

    def _late_table(self, name: str) -> _core.Table | None:
        """As the core reads it, where nothing is to be done to it: one capture, on its own clock, not narrowed."""
        if len(self.paths) != 1 or self.lenses or self.capture["clock_offset_ns"].to_list() != [0]:
            return None
        if name not in self._late_tables:
            from pyanalyze.inputs.capture import read_late

            found = read_late(self.paths, name)
            if len(found) != 1:
                return None
            self._late_tables[name] = found[0][1]
        return self._late_tables[name]

    def _late_for_core(self, name: str) -> _core.Table | pl.DataFrame:
        whole = None if name in self.tables else self._late_table(name)
        return self._late(name) if whole is None else whole

    def with_calls(self) -> dict[str, Any]:
        """All tables, with API calls, what the profiler did in them, NVTX ranges and given units of work.

        Examples
        --------
        >>> import pyanalyze
        >>> sorted(set(pyanalyze.load(capture).with_calls()) & {"api_calls", "nvtx"})
        ['api_calls', 'nvtx']
        """
        if not self.paths:
            return dict(self.tables)
        calls: Any = self.tables.get("api_calls")
        ranges: Any = self.tables.get("nvtx")
        overhead: Any = self.tables.get("profiler_overhead")
        calls = self._late_for_core("api_calls") if calls is None else calls
        if self.work is not None and not self._work_placed:
            ranges = self.ranges()
        ranges = self._late_for_core("nvtx") if ranges is None else ranges
        overhead = self._late_for_core("profiler_overhead") if overhead is None else overhead
        return {**self.tables, "api_calls": calls, "nvtx": ranges, "profiler_overhead": overhead}

    def complete(self) -> Session:
        """The session with every table in it that is otherwise read or compared when it is first asked for.

        Examples
        --------
        >>> import pyanalyze
        >>> sorted(set(pyanalyze.load(capture).complete().tables) & {"api_calls", "causes", "kernels"})
        ['api_calls', 'causes', 'kernels']
        """
        from pyanalyze.tables.window import FrameTable

        if not self.paths or "tenants" not in self.tables:
            return self
        read = self.with_calls()
        late = {name: read[name] for name in ("api_calls", "profiler_overhead", "nvtx")}
        held: dict[str, Any] = {
            name: value if hasattr(value, "schema_id") else FrameTable(name, value) for name, value in late.items()
        }
        return replace(self, tables={**self.tables, **held, **self._compared}, _work_placed=True)

    def ranges(self) -> pl.DataFrame:
        """NVTX ranges, read from the captures if they were not, and the given units of work among them.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).ranges().columns[:3]
        ['capture', 'pid', 'tid']
        """
        import polars as pl

        ranges = self._late("nvtx")
        if self.work is None or self._work_placed:
            return ranges
        named = ranges.with_columns(pl.col("kind", "text").cast(pl.String))
        return pl.concat([named, self.work.select(named.columns)]).sort("start_ns", maintain_order=True)

    def interference(self) -> tuple[DeviceInterference, ...]:
        """Say who was slowed, by how much, through what and by whom; and what lies with the host.

        Returns
        -------
        tuple of DeviceInterference
            One per verdict of :meth:`classify`, in its order.

        Examples
        --------
        >>> import pyanalyze
        >>> device = pyanalyze.load(capture).interference()[0]
        >>> round(device.tenants[0].slowdown.elapsed.value, 1)
        2.2
        """
        return self._interference

    @cached_property
    def _interference(self) -> tuple[DeviceInterference, ...]:
        from pyanalyze.analysis.interference import analyse

        return analyse(self)

    def classify(self) -> tuple[Verdict, ...]:
        """Name the sharing mode of every GPU that did anything, or of all where none did.

        Returns
        -------
        tuple of Verdict
            One per device with activity, by device id. `undetermined` is an answer.

        Examples
        --------
        >>> import pyanalyze
        >>> verdict = pyanalyze.load(capture).classify()[0]
        >>> verdict.mode, verdict.basis
        ('time-slicing', 'observed')
        """
        return self._verdicts

    def who_held(self) -> tuple[Ledger, ...]:
        """Add up who held the engine: slices per tenant, switches, cost, time slice, fairness.

        Returns
        -------
        tuple of pyanalyze.analysis.residency.Ledger
            One per device of which residency is known; `inferred` where the verdict is time-slicing and there are
            no switch records. The frames behind it are `ledger`, `engine`, `residency` or `inferred_residency`.

        Examples
        --------
        >>> import pyanalyze
        >>> held = pyanalyze.load(capture).who_held()[0]
        >>> held.switches, held.cost_kind
        (365, 'gap')
        """
        from pyanalyze.analysis.residency import ledgers

        return ledgers(self)

    def report(self) -> Report:
        """Everything that is known, as the published JSON contract.

        Returns
        -------
        pyanalyze.results.report.Report
            ``.to_json()`` writes it; :func:`pyanalyze.report.render` makes HTML, Markdown or text of it.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].sharing.mode
        'time-slicing'
        """
        from pyanalyze.report.build import assemble

        return assemble(self)

    def check(
        self, limits: Limits | None = None, *, inconclusive: Literal["fail", "warn"] = "fail", **more: Any
    ) -> Checked:
        """Hold the session against thresholds, as a gate for continuous integration does.

        Parameters
        ----------
        limits
            Thresholds, see :class:`pyanalyze.analysis.gate.Limits`.
        inconclusive
            Whether a threshold that could not be looked at fails the check or warns.
        **more
            Thresholds by name, over those of `limits`; ``expect_mode`` may be one mode, fractions may be ``"5%"``.

        Returns
        -------
        pyanalyze.analysis.gate.Checked
            ``status``, ``exit_code`` and an outcome for every threshold; ``to_junit()`` writes it for CI.

        Raises
        ------
        pyanalyze.errors.UsageError
            No threshold, or one that makes no sense.

        Examples
        --------
        >>> import pyanalyze
        >>> checked = pyanalyze.load(capture).check(expect_mode="time-slicing", max_switch_overhead=0.01)
        >>> [(outcome.gate, outcome.status) for outcome in checked.outcomes]
        [('expect_mode', 'passed'), ('max_switch_overhead', 'failed')]
        """
        from pyanalyze.analysis.gate import Limits, check

        try:
            asked = replace(limits or Limits(), **more)
        except TypeError as error:
            raise UsageError(f"no such threshold: {error}") from None
        return check(self.report(), asked, inconclusive=inconclusive)

    def window(self, start: Moment | None = None, end: Moment | None = None) -> Session:
        """Zoom in: the session as if only this stretch of time had been recorded.

        Parameters
        ----------
        start, end
            Nanoseconds on the session clock, text in nsys syntax (``"1s200ms"``), or an RFC 3339 date with its zone
            (text or :class:`datetime.datetime`); None: the first, the last activity.

        Returns
        -------
        Session
            Its shares are of the window. Intervals that cross an edge are cut there.

        Raises
        ------
        pyanalyze.errors.UsageError
            No such syntax, or a window in which nothing was recorded.

        Examples
        --------
        >>> import pyanalyze
        >>> part = pyanalyze.load(capture).window("240ms", "300ms")
        >>> part.tenant_usage["last_ns"].max()
        300000000
        """
        from pyanalyze.text.times import position_ns

        origin = self.capture["utc_origin_ns"][0]
        first, last = self.span_ns
        window = (
            first if start is None else position_ns(start, origin),
            last if end is None else position_ns(end, origin),
        )
        return narrowed(self, window, None)

    def only_gpu(self, device_id: int) -> Session:
        """The session of one GPU, or of one MIG instance.

        Parameters
        ----------
        device_id
            The device, see `session.devices`.

        Raises
        ------
        pyanalyze.errors.UsageError
            There is no such device.

        Examples
        --------
        >>> import pyanalyze
        >>> len(pyanalyze.load(capture).only_gpu(0).classify())
        1
        """
        return narrowed(self, None, device_id)

    def redacted(self, names: Names | None = None) -> Session:
        """The session with numbered names in place of those of processes, kernels, ranges, containers and hosts.

        Consistent, and irreversible. Names given with ``load(tenants=...)``, GPU names and UUIDs stay. Sessions that
        are to be compared need their numbers in common: give all of them one `pyanalyze.tables.window.numbered()`.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).redacted().kernels["name"].cast(str).first()
        'kernel-1'
        """
        return redacted(self, names)

    def advise(
        self,
        *,
        require: Sequence[Requirement] = (),
        latency_ns: int | None = None,
        kubernetes: bool | None = None,
    ) -> tuple[Advice, ...]:
        """Say what to change on every GPU, from replays of what was recorded under other ways to share it.

        Parameters
        ----------
        require
            What a sharing mode must promise: ``fault-isolation``, ``memory-protection``, ``bandwidth-qos``.
        latency_ns
            How long a kernel of an idle tenant may wait for its turn; None: not asked.
        kubernetes
            Print device-plugin and operator settings too; None: where the capture shows pods.

        Returns
        -------
        tuple of Advice
            One per device with activity, by device id.

        Raises
        ------
        pyanalyze.errors.UsageError
            For a requirement that is not known.

        Examples
        --------
        >>> import pyanalyze
        >>> advice = pyanalyze.load(capture).advise()[0]
        >>> [action.action for action in advice.actions][0].startswith("Find out")
        True
        """
        from pyanalyze.analysis.advice import advise_device
        from pyanalyze.vocabulary import REQUIREMENTS

        words: Any = require
        if isinstance(words, str):
            words = [part.strip() for part in words.split(",") if part.strip()]  # as the command line does
        if unknown := sorted(set(words) - set(REQUIREMENTS)):
            raise UsageError(f"nothing is known of {', '.join(unknown)}; require {', '.join(REQUIREMENTS)}")
        return tuple(
            advise_device(self, verdict, require=words, latency_ns=latency_ns, for_kubernetes=kubernetes)
            for verdict in self.classify()
        )

    def timeline(self, start_ns: int | None = None, end_ns: int | None = None, marks: int = 600) -> pl.DataFrame:
        """Lanes for a picture: intervals merged to at most `marks` per lane.

        Parameters
        ----------
        start_ns, end_ns
            Window on the session clock, in nanoseconds; the whole session by default.
        marks
            Most marks per device, tenant and lane.

        Returns
        -------
        polars.DataFrame
            The `timeline` table.

        Examples
        --------
        >>> import pyanalyze
        >>> lanes = pyanalyze.load(capture).timeline(marks=50)
        >>> sorted(set(lanes["lane"].cast(str)))
        ['copies', 'kernels', 'residency']
        """
        from pyanalyze.core import _core
        from pyanalyze.tables.frames import to_frame

        first, last = self.span_ns
        window = (first if start_ns is None else start_ns, last if end_ns is None else end_ns)
        return to_frame(_core.timeline({**self.tables, **self._inferred}, *window, marks, None))

    def latencies(
        self, device_id: int, start_ns: int | None = None, end_ns: int | None = None, bins: int = 150
    ) -> pl.DataFrame:
        """Bin how long each tenant's kernels took from launch to end, and how much they were at work.

        Parameters
        ----------
        device_id
            The device.
        start_ns, end_ns
            Window on the session clock, in nanoseconds; the whole session by default.
        bins
            Equal parts of the window.

        Returns
        -------
        polars.DataFrame
            The `latencies` table; of kernels whose launch calls were not captured from their start.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).latencies(0, bins=1)["kernels"].to_list()
        [452, 424]
        """
        from pyanalyze.core import _core
        from pyanalyze.tables.frames import to_frame

        first, last = self.span_ns
        window = (first if start_ns is None else start_ns, last if end_ns is None else end_ns)
        read = self.with_calls()
        names: tuple[str, ...] = ("kernels", "tenants", "api_calls")
        tables = {name: read[name] for name in names if name in read}
        return to_frame(_core.latencies(tables, device_id, *window, bins, None))

    def chart(self, name: str, device_id: int | None = None) -> alt.TopLevelMixin:
        """Draw one of the report's charts.

        Parameters
        ----------
        name
            ``timeline``, ``slices``, ``usage``, ``occupancy`` or ``limiters``.
        device_id
            The device; by default that with most tenants.

        Returns
        -------
        altair chart
            It shows itself in a notebook; ``.save("chart.svg")`` writes it.

        Raises
        ------
        pyanalyze.errors.UsageError
            The device has no data for such a chart.

        Examples
        --------
        >>> import pyanalyze
        >>> "summary" in pyanalyze.load(capture).chart("usage").to_dict()["usermeta"]
        True
        """
        from pyanalyze.report.page import chart_key, main_device
        from pyanalyze.report.rendering import draw

        report = self.report()
        main = main_device(report)
        number = device_id if device_id is not None or main is None else main.device_id
        drawn = draw(self, report)
        key = chart_key(name, -1 if number is None else number)
        if key not in drawn:
            known = ", ".join(sorted(drawn)) or "nothing"
            raise UsageError(f"there is no data for a chart {key}; there is for {known}")
        return drawn[key]

    def whatif(self, *, slice_ns: int = 2_100_000, gap_ns: int = 42_000) -> pl.DataFrame:
        """Model what each tenant would have taken alone, side by side with the others, or in turns.

        Parameters
        ----------
        slice_ns, gap_ns
            Length of a time slice and cost of a switch in the `time-sliced` scenario, in nanoseconds.

        Returns
        -------
        polars.DataFrame
            The `whatif` table: per device, tenant and scenario (`exclusive`, `side-by-side`, `time-sliced`) the
            modelled elapsed time and slowdown, each with bounds, and the assumptions they hold under. Null with
            a reason in `detail` where work of somebody was not traced. Modelled, never a promise: contention for
            memory and caches is not in it.

        Raises
        ------
        pyanalyze.errors.UsageError
            If the slice is shorter than 1000 ns or the cost of a switch is negative.

        Examples
        --------
        >>> import polars as pl
        >>> import pyanalyze
        >>> rows = pyanalyze.load(capture).whatif()
        >>> alone = rows.filter(pl.col("scenario") == "exclusive", pl.col("elapsed_ns").is_not_null())
        >>> alone["slowdown"].to_list()
        [1.0, 1.0]
        """
        from pyanalyze.core import _core
        from pyanalyze.tables.frames import to_frame

        key = f"whatif {slice_ns} {gap_ns}"
        if key not in self._frames:
            self._frames[key] = to_frame(_core.whatif(dict(self.tables), slice_ns, gap_ns, None)["whatif"])
        return self._frames[key]

    def occupancy(
        self,
        *,
        bins: int = 200,
        window: tuple[int, int] | None = None,
        policies: Mapping[int, PlacementPolicy] | None = None,
        model: Literal["replay", "even"] = "replay",
    ) -> Occupancy:
        """Model how full each SM was, over time.

        Parameters
        ----------
        bins
            Equal time bins of the window.
        window
            Start and end on the session clock, in nanoseconds; by default first to last activity.
        policies
            By device, who may be on which SMs; by default what the verdicts imply
            (:func:`pyanalyze.analysis.occupancy.placement_policy`).
        model
            ``replay``: blocks placed as the block scheduler would. ``even``: the warps of each tenant spread evenly
            over the SMs it may use, each kernel at its most for the whole of its time.

        Returns
        -------
        pyanalyze.analysis.occupancy.Occupancy
            Frames by tenant and time, by SM and time, by launch configuration, by kernel. All of it is modelled.

        Raises
        ------
        pyanalyze.errors.UsageError
            If there is no such model, the window is empty, or there are too many bins.

        Examples
        --------
        >>> import pyanalyze
        >>> occupancy = pyanalyze.load(capture).occupancy(bins=20)
        >>> occupancy.per_sm.height == 20 * 108
        True
        """
        from pyanalyze.analysis.occupancy import modelled

        return modelled(self, bins=bins, window=window, policies=policies, model=model)

    def check_occupancy(self, device_id: int) -> CounterCheck | None:
        """Compare the modelled occupancy of a device with its hardware counters.

        Parameters
        ----------
        device_id
            The device.

        Returns
        -------
        pyanalyze.analysis.occupancy.CounterCheck or None
            None where the capture has no GPU metrics of the device; see
            :func:`pyanalyze.analysis.occupancy.check_against_counters`.

        Examples
        --------
        >>> from pathlib import Path
        >>> import pyanalyze
        >>> check = pyanalyze.load(Path(capture).with_name("exclusive.sqlite")).check_occupancy(0)
        >>> check.agrees, round(check.difference("warps"), 2)
        (True, 0.01)
        """
        from pyanalyze.analysis.occupancy import check_against_counters

        if device_id not in self._checks:
            self._checks[device_id] = check_against_counters(self, device_id)
        return self._checks[device_id]

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last time of GPU activity on the session clock, in nanoseconds."""
        usage = self.tenant_usage
        starts = [usage["first_ns"].min(), self.residency["start_ns"].min()]
        ends = [usage["last_ns"].max(), self.residency["end_ns"].max()]
        first = [int(value) for value in starts if isinstance(value, int)]
        last = [int(value) for value in ends if isinstance(value, int)]
        return (min(first), max(last)) if first and last else (0, 0)

    def cases(self) -> list[Case]:
        """Gather what rules look at, per device with activity.

        Returns
        -------
        list of Case
            Input of :func:`pyanalyze.analysis.sharing.judge`.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).cases()[0].fact("traced_tenants")
        2.0
        """
        return list(self._cases)

    @cached_property
    def _cases(self) -> tuple[Case, ...]:
        import polars as pl

        from pyanalyze.analysis.sharing import Case, Configured
        from pyanalyze.analysis.sharing.evidence import pairs_of
        from pyanalyze.inputs.context import names_gpu

        facts = self.facts
        examples = self.fact_examples
        configured = self.configured
        cases: list[Case] = []
        idle: list[Case] = []
        for device in self.devices.sort("device_id").iter_rows(named=True):
            if self.selection.gpu not in (None, device["device_id"]):
                continue
            here = pl.col("device_id") == device["device_id"]
            measured = _facts(facts.filter(here), examples.filter(here))
            tenants = self.tenants.filter(here)
            usage = tenants.join(self.tenant_usage, on=["tenant_id", "device_id"])
            activity = (measured.get("busy_ns"), measured.get("switch_records"))
            quiet = tenants.is_empty() and not any(fact and fact.value for fact in activity)
            rows = configured.filter(here | pl.col("device_id").is_null())
            (idle if quiet else cases).append(
                Case(
                    device_id=device["device_id"],
                    name=device["name"],
                    uuid=device["uuid"],
                    mig_profile=device["mig_profile"],
                    vgpu_profile=device["vgpu_profile"],
                    compute_capability=_capability(device),
                    sm_count=device["sm_count"],
                    facts=measured,
                    configured=[
                        Configured(str(r["source"]), str(r["key"]), r["value"], r["pid"])
                        for r in rows.iter_rows(named=True)
                        if r["device_id"] is not None or not names_gpu(r["value"])
                    ],
                    sources=self._source_states(),
                    tenants=list(self.labels(device["device_id"]).values()),
                    green_contexts=self.contexts.filter(here & pl.col("is_green").fill_null(value=False)).height,
                    pairs=pairs_of(self.overlaps.filter(here), usage),
                    visible_sms=_visible_sms(self.contexts.filter(here)),
                    instances_unassigned=_unassigned(self.devices, self.contexts),
                    pids_known=tenants.filter("traced")["pid"].null_count() == 0,
                    nvml_processes=self.nvml_processes(device["device_id"]),
                    nvml_together=self._listed_together(device["device_id"]),
                    unlisted=self._unlisted(device["device_id"]),
                    captured=bool(self.paths),
                    driver=_driver(self.capture),
                    untraced=_untraced(usage),
                    served=tenants["served_by"].drop_nulls().len(),
                )
            )
        if len(self.paths) == 1 and self.selection == Selection():
            tables = dict(self.sources.select("source", "physical_table").iter_rows())
            if self.quality.filter(pl.col("name") == "switch_events_lost", pl.col("count") > 0).height:
                # What is made of records with holes takes more than a query.
                tables["switch_events"] = None
            cases = [replace(case, tables=self._tables_of(case, tables, alone=len(cases) == 1)) for case in cases]
        # Idle neighbours of a busy GPU are left out; where nothing ran at all, that is what there is to say.
        return tuple(cases or idle)

    def _tables_of(self, case: Case, tables: dict[str, str | None], *, alone: bool) -> dict[str, str | None]:
        """Tables of the only export, or what in them belongs to the device."""
        import polars as pl

        from pyanalyze.analysis.sharing.queries import narrowed

        if alone:
            return tables
        here = pl.col("device_id") == case.device_id
        traced = self.tenants.filter("traced")
        pids = set(traced.filter(here)["pid"].drop_nulls().to_list())
        elsewhere = set(traced.filter(~here)["pid"].drop_nulls().to_list())
        device = self.devices.filter(here).row(0, named=True)
        return narrowed(
            tables, None if pids & elsewhere or not pids else pids, device["cuda_ordinal"], device["gpu_id"]
        )

    def _source_states(self) -> dict[str, str]:
        """Best state of each source over the captures: present beats empty beats absent."""
        order = {"present": 0, "empty": 1, "unread": 2, "absent": 3}
        best: dict[str, str] = {}
        for source, state in self.sources.select("source", "state").iter_rows():
            if order[state] < order.get(best.get(source, "absent"), 3) or source not in best:
                best[source] = state
        return best

    def nvml_processes(self, device_id: int) -> list[tuple[int, str, str | None]] | None:
        """List the compute processes that samples show on a device.

        Parameters
        ----------
        device_id
            The device.

        Returns
        -------
        list of (int, str, str or None), or None
            Host pid, name and type (C, C+G, M+C; None: not said), by pid; None where no sample lists processes.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).nvml_processes(0) is None
        True
        """
        listed = self._listed(device_id)
        if listed is None:
            return None
        rows = listed.unique(subset=["pid"], keep="first", maintain_order=True).sort("pid")
        return [(row["pid"], row["process_name"] or "", row["process_type"]) for row in rows.iter_rows(named=True)]

    def _listed(self, device_id: int) -> pl.DataFrame | None:
        import polars as pl

        listed = self.samples.filter(pl.col("pid").is_not_null() & (pl.col("device_id") == device_id))
        if listed.is_empty():
            return None
        # A window system holds no compute context; the type is the same in every row of a process.
        return listed.filter(pl.col("process_type").cast(pl.String).fill_null("") != "G")

    def _unlisted(self, device_id: int) -> tuple[str, ...]:
        """Traced tenants of a device that its process list lacks: by host pid where it is known, else by pid."""
        import polars as pl

        listed = self.nvml_processes(device_id)
        if listed is None:
            return ()
        pids = [pid for pid, _, _ in listed]
        traced = self.tenants.filter((pl.col("device_id") == device_id) & pl.col("traced"))
        known = pl.coalesce("host_pid", "pid").is_in(pids).fill_null(value=False)
        labels = self.labels(device_id)
        return tuple(labels[number] for number in traced.filter(~known)["tenant_id"].sort())

    def _listed_together(self, device_id: int) -> int | None:
        """Most processes, MPS servers aside, that lists show on a device at one time; without times: all of them."""
        import polars as pl

        listed = self._listed(device_id)
        if listed is None:
            return None
        server = pl.col("process_name").cast(pl.String).fill_null("").str.contains("nvidia-cuda-mps-server")
        time = pl.col("time_ns")
        held = listed.filter(~server).group_by("pid").agg(first=time.min(), last=time.max())
        held = held.with_columns(
            pl.col("first").fill_null(pl.col("first").min()), pl.col("last").fill_null(pl.col("last").max())
        )
        if held["first"].null_count():
            return held.height
        moments = held["first"].unique().to_list()
        return max((held.filter(pl.col("first") <= at, pl.col("last") >= at).height for at in moments), default=0)

    def __repr__(self) -> str:
        """Say what was loaded."""
        if not self.paths:
            return f"<Session of samples only: {self.capture['path'][0]}>"
        named = self.capture["path"] if self.selection.redacted else self.paths
        return f"<Session of {len(self.paths)} capture(s): {', '.join(map(str, named))}>"

    def __str__(self) -> str:
        """Show the first screen."""
        from pyanalyze.report.text import first_screen

        return first_screen(self.report())

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>" + "".join(v._repr_html_() for v in self.classify())


def _visible_sms(contexts: pl.DataFrame) -> tuple[int, ...]:
    """SMs that CUDA showed each process; green contexts show their own part instead."""
    import polars as pl

    whole = contexts.filter(pl.col("sm_count").is_not_null() & ~pl.col("is_green").fill_null(value=False))
    return tuple(whole.unique(["capture", "pid"])["sm_count"].to_list())


def _driver(capture: pl.DataFrame) -> str | None:
    """Version of the driver, where all captures that say one say the same."""
    found = capture["driver_version"].drop_nulls().unique().to_list()
    return str(found[0]) if len(found) == 1 else None


def _untraced(usage: pl.DataFrame) -> tuple[str, ...]:
    """Names of tenants that held the engine without being traced, most first."""
    import polars as pl

    held = usage.filter(~pl.col("traced"), pl.col("resident_ns").fill_null(0) > 0)
    return tuple(held.sort("resident_ns", descending=True)["name"].to_list())


def _unassigned(devices: pl.DataFrame, contexts: pl.DataFrame) -> int:
    """How many MIG instances there are, when nothing says which process used which of them."""
    instances = devices["mig_profile"].count()
    return instances if contexts["sm_count"].count() == 0 else 0


def _capability(device: Mapping[str, Any]) -> tuple[int, int] | None:
    major, minor = device["compute_major"], device["compute_minor"]
    return None if major is None or minor is None else (major, minor)


def _facts(facts: pl.DataFrame, examples: pl.DataFrame) -> dict[str, Fact]:
    import polars as pl

    from pyanalyze.analysis.sharing import Example, Fact

    found = {}
    for row in facts.iter_rows(named=True):
        behind = examples.filter(pl.col("fact") == row["name"])
        found[str(row["name"])] = Fact(
            row["value"],
            str(row["unit"]),
            row["n"],
            str(row["basis"]),  # type: ignore[arg-type]
            row["detail"],
            tuple(
                Example(e["capture"], e["start_ns"], e["end_ns"], e["pid"], e["correlation_id"])
                for e in behind.iter_rows(named=True)
            ),
        )
    return found
