"""A session: captures that were read, as frames, with a method for every question."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyanalyze.analysis.analysis import Analysis
from pyanalyze.errors import UsageError
from pyanalyze.inputs.capture import Failure, read
from pyanalyze.tables.frames import ANALYSIS_TABLES, FrameTable
from pyanalyze.tables.tableset import Frames
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import EVERY_PART, NOISE_FLOOR, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import altair as alt
    import polars as pl

    from pyanalyze.analysis.advice import DeviceAdvice
    from pyanalyze.analysis.explain import Explained
    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.analysis.occupancy import CounterComparison, Model, ModelledOccupancy, PlacementPolicy
    from pyanalyze.analysis.residency import DeviceResidency
    from pyanalyze.analysis.sharing import Case, Verdict
    from pyanalyze.report.rendering import Charts
    from pyanalyze.results.check import Checked, Limits
    from pyanalyze.results.comparison import Comparison
    from pyanalyze.results.replicas import Objective, ReplicaAdvice
    from pyanalyze.results.report import Report
    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.redact import Names
    from pyanalyze.tables.tableset import Selection, TableSet
    from pyanalyze.text.times import Moment
    from pyanalyze.vocabulary import Requirement

    PathLike = str | os.PathLike[str]

__all__ = ["Session", "compare", "load"]


def load(
    captures: PathLike | Sequence[PathLike] = (),
    *,
    samples: PathLike | Sequence[PathLike] = (),
    context: PathLike | Sequence[PathLike] = (),
    baselines: PathLike | Sequence[PathLike] = (),
    work: PathLike | None = None,
    blocks: PathLike | Sequence[PathLike] = (),
    tenants: Mapping[str, int | PathLike] | None = None,
    by: str = "process",
    tables: Sequence[str] = ANALYSIS_TABLES,
    reconstruct: bool = True,
    keep_going: bool = False,
    strict: bool = False,
    memory: str | int | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> Session:
    """Load captures and reconstruct which context was resident.

    Parameters
    ----------
    captures
        One or more nsys SQLite exports (`.sqlite`), directories of them, `.nsys-rep` files (exported through the
        `nsys` on PATH into a cache), or what `pyanalyze pack` wrote. Several captures are put on one clock, that of
        the first. What `pyanalyze record` wrote is a directory too: its samples and its description of the node count
        as given. None with `samples`, or a recording without nsys: the samples answer what they can; nothing is then
        observed, and the session's zero is the first sample.
    samples
        Output of nvidia-smi, DCGM, dcgm-exporter, Prometheus or `pyanalyze record`, taken beside the captures; the
        format is sniffed; a `.parquet` holds the columns of the table `nvml_samples`. A file that no reader knows
        becomes a row in `session.quality`.
    context
        The configured side: `nvidia-smi -L`, MPS logs and answers, `kubectl -o json`, device-plugin and mig-parted
        YAML (:data:`pyanalyze.inputs.context.READERS`); the format is sniffed.
    baselines
        Recordings of tenants alone, each a capture as above, or ``"NAME=FILE"`` to say which tenant it is of;
        otherwise that is found by kernels in common and process name. A report of one, saved as JSON, gives its
        elapsed slowdown only.
    work
        Units of work, such as requests: a CSV file with the columns tenant, start, end and, if wanted, name; times on
        the clock of the first capture (``1s200ms``; a number alone is nanoseconds), or RFC 3339.
    blocks
        Measured blocks of the capture's kernels, which SM each ran on and when, in a format that
        :func:`pyanalyze.inputs.blocks.read_blocks` names: `sm_warps` is then observed where all kernels were measured,
        and the model is held against it.
    tenants
        Names for processes: ``{"service": 4711, "training": "rank0.sqlite"}``: the pid as the capture has it, or the
        host's; or the capture in which it alone was traced, which is loaded if it is not among `captures`.
    by
        What makes a tenant, see :meth:`Session.by`.
    tables
        Event tables to read; the default is all that the analysis needs. Add `"api_calls"` or `"nvtx"` for those.
    reconstruct
        False: only what the files hold. The session then has no residency, tenants, facts or anything made of them,
        and `quality` counts only what is odd in the files themselves.
    keep_going
        With several captures: report one that cannot be read in `session.failures` instead of raising.
    strict
        Raise where no reader knows a samples or context file, instead of naming it on the first screen.
    memory
        Budget of this process's resident memory from now on, such as ``"2GB"``; what does not fit is kept in temporary
        files, see :mod:`pyanalyze.tables.memory`. By default `PYANALYZE_MEMORY`, else most of what machine or container
        have.
    progress
        Called as ``progress(stage, done, total)``, at most 20 times a second; raise from it to stop.

    Returns
    -------
    Session
        Its frames hold times in nanoseconds on the clock of the first capture.

    Raises
    ------
    FileNotFoundError, PermissionError
        As the operating system says.
    pyanalyze.errors.CaptureUnreadable
        Not an nsys export, damaged, unfinished, or changed while it was read.
    pyanalyze.errors.SamplesUnreadable
        Without captures: no reader knows any of the files. With `strict`: one of them.
    pyanalyze.errors.UsageError
        A table or tenant name that makes no sense, or nothing to load.
    pyanalyze.errors.MemoryExceeded
        The budget of memory could not be held.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> session.kernels.select("name", "start_ns", "end_ns").height > 0
    True
    """
    found = read(
        captures,
        samples=samples,
        context=context,
        baselines=baselines,
        work=work,
        blocks=blocks,
        tenants=tenants,
        tables=tables,
        reconstruct=reconstruct,
        keep_going=keep_going,
        strict=strict,
        memory=memory,
        progress=progress,
    )
    placed = None
    if found.blocks:
        from pyanalyze.analysis.measured_blocks import placed_blocks

        placed = placed_blocks(found.tables, found.blocks)
    whole = Session(Analysis(found.tables, found.baselines, found.saved_baselines, placed=placed), found.failures)
    return whole.by(by)


@dataclass(frozen=True, repr=False)
class Session(Frames):
    """Captures on one clock, with everything that was reconstructed from them.

    Made by :func:`pyanalyze.load`. Every table is a polars frame, converted at first use; `help(Session.kernels)`
    lists its columns with units, and its `.to_pandas()` needs `pip install pandas pyarrow`. Times are nanoseconds
    on the clock of the first capture, where nsys shows the same times.

    Attributes
    ----------
    analysis
        Results about the captures, each computed at first use.
    failures
        Captures that could not be read, with ``keep_going``.
    detail
        Reports hold arrays of intervals as well.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> session.classify()[0].mode
    'time-slicing'
    """

    analysis: Analysis
    failures: tuple[Failure, ...] = ()
    detail: bool = False

    @property
    def tables(self) -> TableSet:
        """The tables behind the frames, those that are computed at first use included."""
        return self.analysis.tables

    @property
    def paths(self) -> tuple[Path, ...]:
        """The captures, in the order of the `capture` column; none where samples were loaded without a capture."""
        return self.tables.paths

    @property
    def selection(self) -> Selection:
        """What part of the captures the session shows: see :meth:`window`, :meth:`only_gpu`, :meth:`redacted`."""
        return self.tables.selection

    def table(self, name: str) -> AnyTable:
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
        'kernels@2'
        """
        return self.tables.table(name) if name != "quality" else FrameTable(name, self.analysis.quality)

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
        return self.tables.frame(name) if name != "quality" else self.analysis.quality

    @property
    def samples(self) -> pl.DataFrame:
        """The rows of `nvml_samples` that answer for the captures: those of their time; all, without a capture."""
        return self.tables.samples

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last time of GPU activity on the session clock, in nanoseconds."""
        return self.tables.span_ns

    def labels(self, device_id: int) -> dict[int, str]:
        """Names that tell the tenants of a device apart, by tenant id; as reports and advice call them.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).labels(0)
        {0: 'app_a', 1: 'app_b', 2: 'app_c'}
        """
        return self.tables.labels(device_id)

    def calls(self) -> pl.DataFrame | None:
        """CUDA API calls on the session clock, read from the captures if they were not; None: there is no capture.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).calls().columns[:3]
        ['capture', 'pid', 'tid']
        """
        return self.tables.calls()

    def cpu_runs(self) -> pl.DataFrame | None:
        """When threads were on a CPU, read from the captures if it was not; None: nobody recorded it.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).cpu_runs() is None
        True
        """
        return self.tables.cpu_runs()

    def ranges(self) -> pl.DataFrame:
        """NVTX ranges, read from the captures if they were not, and the given units of work among them.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).ranges().columns[:3]
        ['capture', 'pid', 'tid']
        """
        return self.tables.ranges()

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
        from pyanalyze.tables.process_lists import compute_processes

        return compute_processes(self.tables, device_id)

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
        return list(self.analysis.cases)

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
        return self.analysis.verdicts

    def residency_summary(self) -> tuple[DeviceResidency, ...]:
        """Add up which context was resident: slices per tenant, switches, cost, time slice, fairness.

        Returns
        -------
        tuple of pyanalyze.analysis.residency.DeviceResidency
            One per device of which residency is known; `inferred` where the verdict is time-slicing and there are
            no switch records. The frames behind it are `residency_by_tenant`, `residency_by_device`, and `residency`
            or `inferred_residency`.

        Examples
        --------
        >>> import pyanalyze
        >>> held = pyanalyze.load(capture).residency_summary()[0]
        >>> held.switches, held.cost_kind
        (365, 'gap')
        """
        return self.analysis.residency

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
        return self.analysis.interference

    def occupancy(
        self,
        *,
        bins: int = 200,
        window: tuple[int, int] | None = None,
        policies: Mapping[int, PlacementPolicy] | None = None,
        model: Model = "replay",
        calibrate: bool = True,
    ) -> ModelledOccupancy:
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
        calibrate
            Scale devices with GPU metrics to them, bin by bin, if these count nothing but what is modelled:
            `calibration` of the result says so.

        Returns
        -------
        pyanalyze.analysis.occupancy.ModelledOccupancy
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

        chosen = self.analysis.policies | dict(policies or {})
        made = modelled(self.analysis.placed_tables, chosen, bins=bins, window=window, model=model)
        return made.calibrated_to(self.analysis.counter_check) if calibrate else made

    def check_occupancy(self, device_id: int) -> CounterComparison | None:
        """Compare the modelled occupancy of a device with its hardware counters.

        Parameters
        ----------
        device_id
            The device.

        Returns
        -------
        pyanalyze.analysis.occupancy.CounterComparison or None
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
        return self.analysis.counter_check(device_id)

    def advise(
        self,
        *,
        require: Sequence[Requirement] = (),
        latency_ns: int | None = None,
        kubernetes: bool | None = None,
    ) -> tuple[DeviceAdvice, ...]:
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
        tuple of DeviceAdvice
            One per device with activity, by device id.

        Raises
        ------
        pyanalyze.errors.UsageError
            For a requirement that is not known.

        Examples
        --------
        >>> import pyanalyze
        >>> advice = pyanalyze.load(capture).advise()[0]
        >>> [action.action for action in advice.actions][0].startswith("Identify process")
        True
        """
        from pyanalyze.analysis.advice.options import known_requirements

        words = known_requirements(require)
        return self.analysis.advice(require=words, latency_ns=latency_ns, for_kubernetes=kubernetes)

    def replicas(
        self,
        counts: Sequence[int | Mapping[str, int]],
        *,
        objective: Objective = "throughput",
        slo_p99_ms: float | None = None,
        ncu: str | Path | None = None,
        threads: int = 0,
    ) -> tuple[ReplicaAdvice, ...]:
        """Forecast how many copies of the recorded tenants a GPU takes, and shared in which way.

        Parameters
        ----------
        counts
            What to compare: a number of copies (of the one tenant of a device; of every tenant where there are
            several), or copies by name of the tenant.
        objective
            What the recommended configuration is best in: ``throughput``, ``latency`` or ``fairness``.
        slo_p99_ms
            99th percentile of latency that every copy must keep, ms; None: none is asked for.
        ncu
            Output of ``ncu --csv`` (details or raw page) of the same programs: what each kernel asks of DRAM and L2.
        threads
            For the replays; 0: all processors.

        Returns
        -------
        tuple of pyanalyze.results.replicas.ReplicaAdvice
            One per device with activity; without options, and with the reason, where nothing can be forecast.

        Raises
        ------
        pyanalyze.errors.UsageError
            For a tenant that is not there, or numbers that no server takes.

        Examples
        --------
        >>> import pyanalyze
        >>> (advice,) = pyanalyze.load(capture).replicas([1, 2])
        >>> advice.missing[0].what
        'forecasts of copies'
        """
        from pyanalyze.inputs.ncu import read_ncu

        counted = () if ncu is None else read_ncu(Path(ncu))
        return self.analysis.replicas(
            counts, objective=objective, slo_p99_ms=slo_p99_ms, counted=counted, threads=threads
        )

    def explain(
        self, *, slowest: float = 0.01, unit: int | None = None, at: Moment | None = None, name: str | None = None
    ) -> Explained:
        """Say why single units of work, such as requests, were slow.

        Where solo recordings were given, also how long the same units took in them.

        Parameters
        ----------
        slowest
            A fraction of the units of each name below 1, or a number of them.
        unit
            Only the unit of this number.
        at
            Only units in flight at this time; as in :meth:`window`.
        name
            Only NVTX ranges, or given units, of this name; ``#`` in it stands for any number.

        Returns
        -------
        pyanalyze.analysis.explain.Explained
            Frames ``units`` and ``segments``, and the chosen units in ``result``; shows itself as text.

        Raises
        ------
        pyanalyze.errors.UsageError
            If no unit is so chosen.

        Examples
        --------
        >>> import pyanalyze
        >>> found = pyanalyze.load(capture).explain(slowest=1)
        >>> found.result.units[0].main_cause.kind
        'time-slice'
        """
        from pyanalyze.analysis.explain import Choice, explained
        from pyanalyze.text.times import position_ns

        if slowest <= 0:
            raise UsageError("slowest must be above 0: a fraction of the units of each name, or a number of them")
        at_ns = None if at is None else position_ns(at, self.capture["utc_origin_ns"][0])
        chosen = Choice(slowest=slowest, unit=unit, at_ns=at_ns)
        analysis = self.analysis
        doubts = analysis.unit_residency.doubts
        found = explained(self.tables, analysis.unit_tables(name), chosen, doubts, analysis.mps_groups)
        return found.with_solo(analysis.interference) if analysis.baselines else found

    def report(self, *, parts: frozenset[Part] = EVERY_PART) -> Report:
        """Everything that is known, as the published JSON contract.

        Parameters
        ----------
        parts
            What is computed (:class:`pyanalyze.vocabulary.Part`); by default everything.

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

        return assemble(self.analysis, detail=self.detail, parts=parts)

    def check(
        self, limits: Limits | None = None, *, inconclusive: Literal["fail", "warn"] = "fail", **more: Any
    ) -> Checked:
        """Hold the session against thresholds, as a gate for continuous integration does.

        Parameters
        ----------
        limits
            Thresholds, see :class:`pyanalyze.results.check.Limits`.
        inconclusive
            Whether a threshold that could not be looked at fails the check or warns.
        **more
            Thresholds by name, over those of `limits`; ``expect_mode`` may be one mode, fractions may be ``"5%"``.

        Returns
        -------
        pyanalyze.results.check.Checked
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
        from pyanalyze.analysis.gate import check, parts_of
        from pyanalyze.results.check import Limits

        try:
            asked = replace(limits or Limits(), **more)
        except TypeError as error:
            raise UsageError(f"no such threshold: {error}") from None
        return check(self.report(parts=parts_of(asked)), asked, inconclusive=inconclusive)

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
        if window[0] >= window[1] and (start is None or end is None):
            from pyanalyze.tables.window import activity_text

            edge = f"end {str(end)[:80]} lies before" if start is None else f"start {str(start)[:80]} lies after"
            raise UsageError(f"{edge} all that was recorded; {activity_text(self.tables)}")
        return replace(self, analysis=self.analysis.narrowed(window, None))

    def by(self, what: str) -> Session:
        """Make groups of work inside processes the tenants of every analysis.

        Parameters
        ----------
        what
            ``process``; ``stream``, ``context``; ``nvtx`` or ``nvtx=DOMAIN``: the range in which work was launched, of
            the outermost level with several names; ``kernel=REGEX[,REGEX...]``: kernels by name, the first expression
            that matches counts; ``comms``: kernels of NCCL and other collective libraries against the rest.

        Returns
        -------
        Session
            Work that belongs to no group is "other work of PROCESS". In `kernels`, `memops`, `graph_launches`,
            `api_calls` and `tenants` the column `capture` is then the number of the group, after those of the captures.

        Raises
        ------
        pyanalyze.errors.UsageError
            Nothing in the captures matches; the text names what there is.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).by("stream").labels(0)[3]
        'a-step (stream 13 of app_a)'
        """
        return replace(self, analysis=self.analysis.by(what))

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
        return replace(self, analysis=self.analysis.narrowed(None, device_id))

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
        return replace(self, analysis=self.analysis.redacted(names))

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
        return self.tables.absent()

    def timeline(self, start_ns: int | None = None, end_ns: int | None = None, marks: int = 600) -> pl.DataFrame:
        """Tracks for a picture: intervals merged to at most `marks` per track.

        Parameters
        ----------
        start_ns, end_ns
            Window on the session clock, in nanoseconds; the whole session by default.
        marks
            Most marks per device, tenant and track.

        Returns
        -------
        polars.DataFrame
            The `timeline` table.

        Examples
        --------
        >>> import pyanalyze
        >>> tracks = pyanalyze.load(capture).timeline(marks=50)
        >>> sorted(set(tracks["track"].cast(str)))
        ['copies', 'kernels', 'residency']
        """
        from pyanalyze.analysis.over_time import timeline

        return timeline(self.tables, start_ns, end_ns, marks=marks)

    def latencies(
        self, device_id: int, start_ns: int | None = None, end_ns: int | None = None, bins: int = 150
    ) -> pl.DataFrame:
        """Bin how long each tenant's kernels took from launch to end, and how much of the time they were in flight.

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
        from pyanalyze.analysis.over_time import latencies

        return latencies(self.tables, device_id, start_ns, end_ns, bins=bins)

    def chart(self, name: str, device_id: int | None = None) -> alt.TopLevelMixin:
        """Draw one of the report's charts.

        Parameters
        ----------
        name
            ``timeline``, ``slices``, ``usage``, ``occupancy``, ``limiters``, ``excess`` or ``units``, among others.
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
        from pyanalyze.report.rendering import draw_one

        return draw_one(self.analysis, self.report(), name, device_id)

    @property
    def charts(self) -> Charts:
        """The charts of the report, one by one: ``session.charts.timeline``; completion lists those with data.

        Examples
        --------
        >>> import pyanalyze
        >>> "usage" in dir(pyanalyze.load(capture).charts)
        True
        """
        from pyanalyze.report.rendering import Charts

        return Charts(self.analysis)

    def save(self, path: PathLike, *, force: bool = False) -> Path:
        """Write the report to a file, in the format that its ending names.

        Parameters
        ----------
        path
            A file that ends in ``.html``, ``.md``, ``.json`` or ``.txt``.
        force
            Replace what is there.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        pyanalyze.errors.UsageError
            Another ending.
        pyanalyze.errors.OutputExists
            The file is there, and `force` is false.

        Examples
        --------
        >>> import tempfile, pyanalyze
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pyanalyze.load(capture).save(f"{folder}/report.md").name
        'report.md'
        """
        from pyanalyze.report.rendering import save

        return save(self.analysis, Path(path), detail=self.detail, force=force)

    def export(self, form: str, path: PathLike, *, tables: Sequence[str] | None = None, force: bool = False) -> Path:
        """Write the tables for other tools.

        Parameters
        ----------
        form
            ``perfetto`` (a trace for ui.perfetto.dev), ``sqlite``, or for a directory ``parquet``, ``arrow``, ``csv``
            (a file for each table) and ``nsys-stats`` (reports in the columns of NVIDIA's).
        path
            The file or directory.
        tables
            Names of tables; by default all.
        force
            Replace what is there; a directory only if it holds nothing but an earlier export.

        Returns
        -------
        pathlib.Path
            What was written.

        Raises
        ------
        pyanalyze.errors.UsageError
            Another format.
        pyanalyze.errors.OutputExists
            It is there, and `force` is false.

        Examples
        --------
        >>> import tempfile, pyanalyze
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = pyanalyze.load(capture).export("csv", f"{folder}/tables", tables=["devices"])
        ...     [file.name for file in made.iterdir()]
        ['devices.csv']
        """
        from pyanalyze.export.write import FOLDERS, STATS, known_format, refuse, write

        known_format(form)
        refuse(Path(path), folder=form in (*FOLDERS, STATS), force=force)
        return write(self, form, Path(path), tables=tables, force=force)

    def __dir__(self) -> list[str]:
        """List what users call; the other tables are in `help(Session)` and in the reference."""
        return sorted({*_CALLED, *(name for name in super().__dir__() if name.startswith("_"))})

    def __repr__(self) -> str:
        """Say what was loaded."""
        if not self.paths:
            return f"<Session of samples only: {self.capture['path'][0]}>"
        named = self.capture["path"] if self.selection.redacted else self.paths
        return f"<Session of {fmt.counted(len(self.paths), 'capture')}: {', '.join(map(str, named))}>"

    def __str__(self) -> str:
        """Show the first screen."""
        from pyanalyze.report.summary import render_summary, summary_parts

        return render_summary(self.report(parts=summary_parts(self.tables)))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>" + "".join(v._repr_html_() for v in self.classify())


#: What completion shows: actions, results, and the tables that most questions need.
_CALLED = (
    "advise", "by", "capture", "chart", "charts", "check", "classify", "configured", "devices", "explain", "export",
    "failures", "frame", "gpu_metrics", "interference", "kernel_occupancy", "kernels", "labels", "memops", "occupancy",
    "only_gpu", "pairwise_interference", "processes", "quality", "redacted", "replicas", "report",
    "residency", "residency_summary", "samples", "save", "sm_occupancy", "switches", "tenant_slowdowns", "tenant_usage",
    "tenants", "timeline", "units", "window",
)  # fmt: skip


def compare(
    a: Session | Report | str | os.PathLike[str],
    b: Session | Report | str | os.PathLike[str],
    *,
    noise_floor: float = NOISE_FLOOR,
) -> Comparison:
    """Compare two runs: equal work or not, and where the change of its time came from.

    Parameters
    ----------
    a
        The run to compare with: a session, a report, or the path of a capture, a pack, or a report saved as JSON.
    b
        The run to look at, likewise.
    noise_floor
        Relative changes below it are not told from run-to-run noise, which a single run on each side cannot show.

    Returns
    -------
    Comparison
        For every pair of tenants the change of the time per unit of work, and its parts.

    Raises
    ------
    OSError, pyanalyze.errors.CaptureUnreadable
        A path that cannot be read.

    Examples
    --------
    >>> import pyanalyze
    >>> same = pyanalyze.compare(capture, capture)
    >>> same.equal_work, same.tenants[0].change.value
    (True, 0.0)
    """
    from pyanalyze.analysis.comparison.split import compare_reports

    return compare_reports(_report(a), _report(b), noise_floor=noise_floor)


def _report(given: Session | Report | str | os.PathLike[str]) -> Report:
    from pyanalyze.inputs.saved_report import is_saved, read_saved
    from pyanalyze.results.report import Report

    if isinstance(given, Report):
        return given
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        return read_saved(path) if is_saved(path) else load(path).report(parts=frozenset({Part.WORK}))
    return given.report(parts=frozenset({Part.WORK}))
