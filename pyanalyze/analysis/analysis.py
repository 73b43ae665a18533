"""Which result needs which: every result of an analysis is computed at first use, and once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.core import _core
from pyanalyze.tables import memory
from pyanalyze.tables.frames import FrameTable, to_frame
from pyanalyze.vocabulary import TRAITS, Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.advice import DeviceAdvice
    from pyanalyze.analysis.explain import UnitsByTail
    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.analysis.interference.baselines import Summary
    from pyanalyze.analysis.listed import Listed
    from pyanalyze.analysis.occupancy import CounterComparison, PlacementPolicy, Scaled
    from pyanalyze.analysis.residency import DeviceResidency, UnitResidency
    from pyanalyze.analysis.sharing import Case, Verdict
    from pyanalyze.inputs.baselines import Baseline, SavedBaseline
    from pyanalyze.inputs.ncu import CountedKernel
    from pyanalyze.results.copies import Copies
    from pyanalyze.results.occupancy import BlockCheck, KernelCounters
    from pyanalyze.results.replicas import Objective, ReplicaAdvice
    from pyanalyze.results.sharing import Segment
    from pyanalyze.results.streams import Streams
    from pyanalyze.results.time_split import TimeSplit
    from pyanalyze.results.work import Work
    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.launch_records import LaunchRecords
    from pyanalyze.tables.redact import Names
    from pyanalyze.tables.tableset import Producer, TableSet
    from pyanalyze.vocabulary import Requirement

__all__ = ["DERIVED_TABLES", "Analysis"]

#: Tables that an analysis computes at first use -> the attribute of :class:`Analysis` that makes them.
DERIVED_TABLES = {
    "pairwise_interference": "_slowdown_tables",
    "baseline_matches": "_slowdown_tables",
    "causes": "_slowdown_tables",
    "context_state": "_slowdown_tables",
    "kernel_attribution": "_attribution_tables",
    "residency_by_device": "_residency_summary_tables",
    "inferred_residency": "_inferred_residency_tables",
    "kernel_occupancy": "_kernel_occupancy_tables",
    "kernel_placement": "_occupancy_tables",
    "residency_by_tenant": "_residency_summary_tables",
    "slowdowns": "_slowdown_tables",
    "sm_occupancy": "_occupancy_tables",
    "stream_contention": "_stream_tables",
    "stream_losses": "_stream_tables",
    "stream_pairs": "_stream_tables",
    "stream_work": "_stream_tables",
    "sm_warps": "_occupancy_tables",
    "tenant_slowdowns": "_slowdown_tables",
    "unit_coverage": "_unit_tables",
    "unit_segments": "_unit_tables",
    "units": "_unit_tables",
}

#: Of fewer kernels no two results are worth a thread.
_MANY_KERNELS = 100_000
#: Two clients of an MPS group, and who is time-sliced with it.
_GROUP_AND_ANOTHER = 3
#: What takes long, by the part of an answer that needs it, in the order in which it is begun. Two at a time, whatever
#: the machine: each takes memory. The comparison, which takes most, is first, and beside it go those that take least.
_LONG = (
    (Part.INTERFERENCE, "_slowdown_tables"),
    (Part.RESIDENCY, "_residency_summary_tables"),
    # What launch configurations could hold is among it: advice need not ask for that again.
    (Part.OCCUPANCY, "_occupancy_tables"),
    (Part.ADVICE, "time_splits"),
    (Part.SEGMENTS, "segments"),
    (Part.UNITS, "_unit_tables"),
    (Part.WORK, "compared_work"),
    (Part.STREAMS, "_stream_tables"),
    (Part.INTERFERENCE, "launch_records"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """Results about one table set.

    Attributes
    ----------
    read
        The tables as they were read.
    baselines
        Solo recordings of tenants.
    saved_baselines
        Reports of solo runs, saved as JSON.
    compared_summaries
        What those say, by device and tenant, where it was compared before names were replaced.
    placed
        Measured blocks on the clock of the session (:func:`pyanalyze.analysis.measured_blocks.placed_blocks`).
    processes
        Where groups of work are the tenants, the same analysis with processes as tenants: how they shared the GPU, and
        what concerns a whole process, is asked of that one. None: tenants are processes.

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).analysis
    >>> str(analysis.verdicts[0].mode), analysis.policies[0].sharing
    ('time-slicing', 'time-sliced')
    """

    read: TableSet
    baselines: tuple[Baseline, ...] = ()
    saved_baselines: tuple[SavedBaseline, ...] = ()
    compared_summaries: Mapping[tuple[int, int], Summary] | None = None
    placed: pl.DataFrame | None = None
    processes: Analysis | None = None
    _checks: dict[int, CounterComparison | None] = field(default_factory=dict, init=False)

    @cached_property
    def tables(self) -> TableSet:
        """The tables, with those that are computed at first use."""
        if "tenants" not in self.read:
            return self.read
        producers: dict[str, Producer] = {
            name: lambda attribute=attribute: getattr(self, attribute)  # type: ignore[misc]
            for name, attribute in DERIVED_TABLES.items()
            if name not in self.read
        }
        return self.read.with_producers(producers)

    def _of_processes(self, attribute: str) -> Mapping[str, AnyTable]:
        """Derived tables in which processes are the tenants: they keep their ids where groups of work are."""
        whole = self if self.processes is None else self.processes
        names = [name for name, maker in DERIVED_TABLES.items() if maker == attribute]
        return {name: whole.tables.table(name) for name in names}

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """What the rules judge each device by."""
        from pyanalyze.analysis.sharing.case import cases_of

        if self.processes is not None:
            return self.processes.cases
        return cases_of(self.tables)

    @cached_property
    def case_by_device(self) -> dict[int, Case]:
        """The cases, by device id."""
        return {case.device_id: case for case in self.cases}

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The sharing mode of every device with activity, by device id."""
        from pyanalyze.analysis.sharing.case import verdicts_of
        from pyanalyze.analysis.sharing.mig_mode import without_switch_records
        from pyanalyze.analysis.sharing.stated import known_by

        if self.processes is not None:
            from pyanalyze.analysis.sharing.groups import verdict_of_groups

            return tuple(verdict_of_groups(self.tables, verdict) for verdict in self.processes.verdicts)
        found = (known_by(verdict) for verdict in verdicts_of(self.tables, self.cases))
        return tuple(without_switch_records(self.tables, verdict) for verdict in found)

    @cached_property
    def policies(self) -> dict[int, PlacementPolicy]:
        """Who may be on which SMs, by device, as the verdicts imply."""
        from pyanalyze.analysis.occupancy import placement_policy

        return {
            one.device_id: placement_policy(self.tables, one, self.mps_groups[one.device_id]) for one in self.verdicts
        }

    @cached_property
    def _inferred_residency_tables(self) -> Mapping[str, AnyTable]:
        from pyanalyze.analysis.residency import inferred_tables

        if self.processes is not None:
            return self._of_processes("_inferred_residency_tables")
        return inferred_tables(self.tables, self.policies)

    @cached_property
    def _attribution_tables(self) -> Mapping[str, AnyTable]:
        return _core.attribution(self.read.for_core(), None)

    @cached_property
    def _residency_summary_tables(self) -> Mapping[str, AnyTable]:
        from pyanalyze.analysis.residency import summary_tables

        if self.processes is not None:
            # Processes keep their ids, and their residency.
            return self._of_processes("_residency_summary_tables")
        return summary_tables(self.tables, self._inferred_residency_tables)

    @cached_property
    def residency(self) -> tuple[DeviceResidency, ...]:
        """Residency by device and tenant."""
        from pyanalyze.analysis.residency import residency_summary

        return residency_summary(self.tables, self.verdicts, self.mps_groups)

    @cached_property
    def mps_groups(self) -> dict[int, frozenset[int]]:
        """Clients of an MPS group that is time-sliced with others, by device id."""
        from pyanalyze.analysis.residency import mps_group

        return {
            one.device_id: mps_group(self.tables, one, self.case_by_device.get(one.device_id)) for one in self.verdicts
        }

    @cached_property
    def quality(self) -> pl.DataFrame:
        """What is odd in the captures, and what residency shows to be."""
        from pyanalyze.analysis.quality import match_quality

        if self.processes is not None:
            return self.processes.quality
        return match_quality(self.tables, lambda: self.mps_groups)

    @cached_property
    def _in_one_context(self) -> dict[str, AnyTable]:
        """Tables that are others where clients of such groups go through one context."""
        from pyanalyze.analysis.residency import in_one_context

        return in_one_context(self.tables, self.mps_groups)

    @cached_property
    def attributed_in_groups(self) -> dict[int, int | None]:
        """Of clients of such groups: busy time while the group was resident; None: not traced."""
        import polars as pl

        clients = frozenset().union(*self.mps_groups.values())
        if not clients:
            return {}
        usage = pl.DataFrame(self._in_one_context["tenant_usage"]).select("tenant_id", "attributed_ns")
        return {tenant: ns for tenant, ns in usage.iter_rows() if tenant in clients}

    @cached_property
    def _shared_residency(self) -> dict[str, AnyTable]:
        from pyanalyze.analysis.residency import shared_residency

        return shared_residency(self.tables, self.mps_groups)

    @cached_property
    def residency_by_device(self) -> dict[int, DeviceResidency]:
        """The same, by device id."""
        return {one.device_id: one for one in self.residency}

    @cached_property
    def _occupancy_tables(self) -> Mapping[str, AnyTable]:
        return self._occupancy[0]

    @cached_property
    def placed_tables(self) -> TableSet:
        """The tables by which blocks are placed: each client of an MPS group is resident whenever the group is."""
        # A group beside another process are three tenants: most captures need no sharing mode for this.
        if max(self.tables.tenants["device_id"].value_counts()["count"], default=0) < _GROUP_AND_ANOTHER:
            return self.tables
        shared = self._shared_residency
        return self.tables.with_tables(shared) if shared else self.tables

    @property
    def scaled_occupancy(self) -> Mapping[int, Scaled]:
        """How the occupancy of devices with GPU metrics was scaled to them, by device."""
        return self._occupancy[1]

    @cached_property
    def _occupancy(self) -> tuple[Mapping[str, AnyTable], Mapping[int, Scaled]]:
        """The modelled tables, scaled to counters where the capture has them, and how."""
        from pyanalyze.analysis.occupancy import as_modelled, model_in_passing, model_tables

        model = model_in_passing(self.tables)
        made = model_tables(self.placed_tables, self.policies, model=model)
        if not self.tables.row_count("gpu_metrics") and self.placed is None:
            return made, {}
        found = as_modelled(model, made, self.policies).calibrated_to(self.counter_check)
        per_sm = found.per_sm
        if self.placed is not None:
            from pyanalyze.analysis.measured_blocks import observed_warps

            per_sm = observed_warps(self.tables, self.placed, per_sm)
        changed = {"sm_occupancy": found.over_time, "sm_warps": per_sm}
        return {**made, **{name: FrameTable(name, frame) for name, frame in changed.items()}}, found.scaled

    def block_check(self, device_id: int) -> BlockCheck | None:
        """Compare the modelled warps per SM of a device with measured blocks; None: it has none."""
        import polars as pl

        from pyanalyze.analysis.measured_blocks import score
        from pyanalyze.analysis.occupancy import modelled

        here = pl.col("device_id") == device_id
        placed = None if self.placed is None else self.placed.filter(here)
        if placed is None or placed.is_empty():
            return None
        plain = modelled(self.placed_tables, self.policies, model="replay").per_sm.filter(here)
        even = modelled(self.placed_tables, self.policies, model="even").per_sm.filter(here)
        return score(plain, even, self.tables.sm_warps.filter(here), placed)

    @cached_property
    def _kernel_occupancy_tables(self) -> Mapping[str, AnyTable]:
        """What each launch configuration could hold at most: needs no placement of blocks."""
        from pyanalyze.analysis.occupancy import kernel_tables

        if "_occupancy_tables" in vars(self):
            return self._occupancy_tables
        return kernel_tables(self.tables)

    @cached_property
    def launch_configurations(self) -> pl.DataFrame:
        """The table `kernel_occupancy` with what of their durations kernels were resident, where some were not."""
        import polars as pl

        from pyanalyze.analysis.occupancy import with_resident_time

        changed = self._in_one_context.get("kernel_attribution")
        columns = ("tenant_id", "attributed_ns", "switched_out_ns", "basis")
        parts = (
            self.tables.columns("kernel_attribution", *columns)
            if changed is None
            else pl.DataFrame(changed).select(columns)
        )
        if not parts["switched_out_ns"].sum():
            return self.tables.kernel_occupancy
        return with_resident_time(self.tables, parts)

    @cached_property
    def kernel_counters(self) -> Mapping[int, Sequence[KernelCounters]]:
        """GPU metrics of the time of single kernels, by device that one process had: others would be counted too."""
        from pyanalyze.analysis.gpu_metrics import kernel_counters
        from pyanalyze.vocabulary import TRAITS

        sole = [verdict.device_id for verdict in self.verdicts if TRAITS[verdict.mode].one_process]
        return {device_id: kernel_counters(self.tables, device_id) for device_id in sole}

    def counter_check(self, device_id: int) -> CounterComparison | None:
        """Compare modelled occupancy with the GPU metrics of a device; None: it has none."""
        from pyanalyze.analysis.occupancy import check_against_counters

        if device_id not in self._checks:
            self._checks[device_id] = check_against_counters(self.placed_tables, self.policies, device_id)
        return self._checks[device_id]

    @cached_property
    def work(self) -> dict[tuple[int, int], Work]:
        """What every traced tenant did, by device and tenant."""
        from pyanalyze.analysis.comparison.work import work_of

        return work_of(self.tables, self._in_one_context)

    @cached_property
    def compared_work(self) -> dict[tuple[int, int], Work]:
        """The same with all that two runs are compared by; launch calls and ranges are read only now."""
        from pyanalyze.analysis.comparison.unit_times import with_unit_times
        from pyanalyze.analysis.comparison.waiting import with_waiting

        works = with_waiting(self.tables, self.work, self._in_one_context)
        return with_unit_times(works, to_frame(self._unit_tables["units"]))

    @cached_property
    def _stream_tables(self) -> Mapping[str, AnyTable]:
        """Streams of each process; launch calls are read only now, and only where a process used several streams."""
        from pyanalyze.analysis.streams import stream_tables

        if self.processes is not None:
            return self._of_processes("_stream_tables")
        return stream_tables(self.tables, {device: policy.caps for device, policy in self.policies.items()})

    @cached_property
    def streams(self) -> dict[tuple[int, int], Streams]:
        """Whether the streams of every traced tenant with several overlapped, and why not, by device and tenant."""
        from pyanalyze.analysis.streams import streams_of

        if self.processes is not None:
            return self.processes.streams
        traits = {verdict.device_id: TRAITS[verdict.mode] for verdict in self.verdicts}
        return streams_of(self.tables, {one for one, of in traits.items() if of.time_sliced and not of.same_sms})

    @cached_property
    def copies(self) -> dict[tuple[int, int], Copies]:
        """What every traced tenant copied, and how fast, by device and tenant."""
        from pyanalyze.analysis.copies import copies_of

        return copies_of(self.tables) if self.processes is None else self.processes.copies

    @cached_property
    def time_splits(self) -> dict[tuple[int, int], TimeSplit]:
        """Where the time of every traced tenant went, by device and tenant."""
        from pyanalyze.analysis.time_split import time_splits

        if self.processes is not None:
            # One host launches for all groups of a process.
            return self.processes.time_splits
        return time_splits(self.tables)

    @cached_property
    def _slowdown_tables(self) -> Mapping[str, AnyTable]:
        """Every tenant compared with solo runs and with the replay; launch calls are read only now."""
        from pyanalyze.analysis.interference.baselines import as_arguments

        chosen = self.read.selection
        window = None if chosen.start_ns is None or chosen.end_ns is None else (chosen.start_ns, chosen.end_ns)
        tables = {**self.tables.with_calls(), **self._shared_residency}
        if self.read.recorded_tenants is not None:
            # Solo recordings are matched by process name, too: those that the captures have.
            tables["tenants"] = self.read.recorded_tenants
        return _core.slowdowns(tables, as_arguments(self.baselines, self.tables.tenants), None, window=window)

    @cached_property
    def launch_records(self) -> Mapping[int, LaunchRecords]:
        """What became of the launches of traced processes, by device; nothing of a part of the time."""
        from pyanalyze.tables.launch_records import launch_records

        if self.processes is not None:
            return self.processes.launch_records
        chosen = self.read.selection
        # The kernel of a call near the end of a window may lie behind it.
        if (chosen.start_ns, chosen.end_ns) != (None, None):
            return {}
        processes: dict[int, set[tuple[int, int | None]]] = {}
        for row in self.tables.rows("tenants"):
            if row["traced"]:
                processes.setdefault(row["device_id"], set()).add((row["capture"], row["pid"]))
        found = {device: launch_records(self.tables, these) for device, these in processes.items()}
        return {device: one for device, one in found.items() if one is not None}

    @cached_property
    def _unit_tables(self) -> Mapping[str, AnyTable]:
        """Units of work and the critical chain of each; launch calls and ranges are read only now."""
        from pyanalyze.analysis.explain import unit_tables

        if self.processes is not None:
            return self._of_processes("_unit_tables")
        return unit_tables(self.tables, self.unit_residency, None)

    @cached_property
    def unit_residency(self) -> UnitResidency:
        """What of residency the explanation of units of work rests on."""
        from pyanalyze.analysis.residency import residency_of_units

        if self.processes is not None:
            return self.processes.unit_residency
        found = residency_of_units(self.tables, self.verdicts, self.policies, self._inferred_residency_tables)
        return replace(found, tables={**found.tables, **self._shared_residency})

    def unit_tables(self, name: str | None) -> Mapping[str, AnyTable]:
        """Find units of work (those of a range name; None: the ones that fit best) and explain each."""
        from pyanalyze.analysis.explain import unit_tables

        if name is None:
            return self._unit_tables
        if self.processes is not None:
            return self.processes.unit_tables(name)
        return unit_tables(self.tables, self.unit_residency, name)

    @cached_property
    def units_by_tail(self) -> UnitsByTail:
        """Units of work whose slowest are much slower than the others, with what made them so; and the other units."""
        from pyanalyze.analysis.explain import units_by_tail

        if self.processes is not None:
            return self.processes.units_by_tail
        return units_by_tail(self.tables, self._unit_tables, self.unit_residency.doubts, self.mps_groups)

    @cached_property
    def summaries(self) -> Mapping[tuple[int, int], Summary]:
        """What saved reports of solo runs say, by device and tenant."""
        from pyanalyze.analysis.interference.baselines import against_saved

        if self.compared_summaries is not None:
            return self.compared_summaries
        if not self.saved_baselines:
            return {}
        return {
            key: against_saved(self.saved_baselines, self.tables, self.work[key], row["tenant_id"], row["name"])
            for row in self.tables.tenants.filter("traced").iter_rows(named=True)
            if (key := (row["device_id"], row["tenant_id"])) in self.work
        }

    @cached_property
    def interference(self) -> tuple[DeviceInterference, ...]:
        """Who was slowed, by how much, through what and by whom; in the order of the verdicts."""
        from pyanalyze.analysis.interference import analyse

        return analyse(self.tables, self.verdicts, self.baselines, self.summaries, self.mps_groups)

    @cached_property
    def quick_advice(self) -> tuple[DeviceAdvice, ...]:
        """What to change, without a replay where the capture is large; in the order of the verdicts."""
        return self.advice(quick=True)

    def advice(
        self,
        *,
        require: Sequence[Requirement] = (),
        latency_ns: int | None = None,
        for_kubernetes: bool | None = None,
        quick: bool = False,
    ) -> tuple[DeviceAdvice, ...]:
        """Say what to change, see :func:`pyanalyze.analysis.advice.advise_device`; in the order of the verdicts.

        What is advised to processes is advised to them also where groups of their work are the tenants.
        """
        from pyanalyze.analysis.advice import advise_device, with_groups

        if self.processes is not None:
            whole = self.processes.advice(
                require=require, latency_ns=latency_ns, for_kubernetes=for_kubernetes, quick=quick
            )
            return tuple(
                with_groups(self.tables, advice, found) for advice, found in zip(whole, self.interference, strict=True)
            )
        # Launch calls are read for them: only where a process was by itself.
        alone = (self.tables.tenants["device_id"].value_counts()["count"] == 1).any()
        streams = self.streams if alone else {}

        def interference(device_id: int) -> DeviceInterference:
            return next(one for one in self.interference if one.device_id == device_id)

        return tuple(
            advise_device(
                self.tables,
                verdict,
                self.time_splits,
                self.copies,
                streams,
                self.listed,
                interference,
                residency=self.residency,
                kernel_counters=self.kernel_counters.get(verdict.device_id, ()),
                mps_groups=self.mps_groups,
                require=require,
                latency_ns=latency_ns,
                for_kubernetes=for_kubernetes,
                quick=quick,
            )
            for verdict in self.verdicts
        )

    def replicas(
        self,
        counts: Sequence[int | Mapping[str, int]],
        *,
        objective: Objective = "throughput",
        slo_p99_ms: float | None = None,
        counted: Sequence[CountedKernel] = (),
        threads: int = 0,
    ) -> tuple[ReplicaAdvice, ...]:
        """Forecast copies of the tenants of each device, see :meth:`pyanalyze.Session.replicas`."""
        from pyanalyze.analysis.advice.copies import Recorded, expanded
        from pyanalyze.analysis.advice.replicas import forecast_replicas

        found = []
        for verdict in self.verdicts:
            tables = self.representative(verdict.device_id).tables
            asked = expanded(tables, verdict.device_id, counts)
            slo_ns = None if slo_p99_ms is None else round(slo_p99_ms * 1e6)
            demand = Recorded(tables, verdict, counted, self.mps_groups)
            found.append(forecast_replicas(demand, asked, objective=objective, slo_p99_ns=slo_ns, threads=threads))
        return tuple(found)

    @cached_property
    def listed(self) -> Listed:
        """What samples and configuration name: they speak of processes, also where groups of work are the tenants."""
        from pyanalyze.analysis.listed import listed_tenants

        return listed_tenants(self.tables if self.processes is None else self.processes.tables)

    @cached_property
    def segments(self) -> dict[int, tuple[Segment, ...]]:
        """Stretches of time with one sharing mode, by device."""
        from pyanalyze.analysis.sharing.segments import segments

        if self.processes is not None:
            return self.processes.segments
        return {verdict.device_id: segments(self.tables, verdict) for verdict in self.verdicts}

    def precompute(self, parts: frozenset[Part]) -> None:
        """Compute what parts of an answer need, two results that do not need each other at the same time."""
        if "kernels" not in self.tables or self.tables.row_count("kernels") < _MANY_KERNELS:
            return
        _ = self.verdicts
        wanted = [name for part, name in _LONG if part in parts]
        if len(wanted) < 2 or memory.account().spilled_most_bytes:
            return  # two at a time would want memory that there is not
        # What several need is there before they begin.
        self.tables.with_calls("event_calls")
        first, rest = wanted[0], iter(wanted[1:])

        def compute_rest() -> None:
            for name in rest:
                getattr(self, name)

        # The core releases the interpreter while it works.
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(compute_rest)
            try:
                getattr(self, first)
                compute_rest()
            finally:
                list(rest)  # where one failed, no other is begun
            other.result()

    def by(self, text: str) -> Analysis:
        """Analyse groups of work as tenants. See :func:`pyanalyze.tables.groups.grouped`."""
        from pyanalyze.tables.groups import grouped, parse_by

        whole = self if self.processes is None else self.processes
        read = grouped(whole.read, parse_by(text))
        return whole if read is whole.read else replace(whole, read=read, processes=whole)

    def narrowed(self, window: tuple[int, int] | None, gpu: int | None) -> Analysis:
        """Analyse a part: a window of time, a device. See :func:`pyanalyze.tables.window.narrowed`."""
        from pyanalyze.tables.window import narrowed

        if self.processes is not None and self.read.groups is not None:
            return self.processes.narrowed(window, gpu).by(self.read.groups.by)
        return replace(self, read=narrowed(self.tables, window, gpu))

    def representative(self, device_id: int) -> Analysis:
        """Analyse as much of a device as forecasts of copies replay; all of it where that is little.

        What is around that stays, to show what kernels take solo, if every process works in what is replayed.
        """
        from pyanalyze.analysis.advice.copies import KNOWN_OPERATIONS, representative_window, work_in

        around = representative_window(self.tables, device_id, KNOWN_OPERATIONS)
        known = self if around is None else self.narrowed(around, None)
        window = representative_window(known.tables, device_id)
        if window is None:
            return known
        if not work_in(known.tables, device_id, window):
            return known.narrowed(window, None)
        return replace(known, read=replace(known.read, replayed=(window[0], window[1] + 1)))

    def redacted(self, names: Names | None = None) -> Analysis:
        """Analyse the same under pseudonyms. See :func:`pyanalyze.tables.redact.redacted`."""
        from pyanalyze.tables.redact import numbered, redacted

        names = numbered() if names is None else names
        # What is read and compared on request could not be found under its new name; kernels of a saved report are
        # digests of their names.
        summaries = self.summaries
        read = self.read
        if read.paths and "tenants" in read:
            read = read.complete({**self._slowdown_tables, **self._attribution_tables})
        changed = redacted(read, names)
        return replace(
            self,
            read=changed,
            baselines=tuple(replace(one, path=Path(names.of("capture", str(one.path)))) for one in self.baselines),
            saved_baselines=(),
            compared_summaries={key: _renamed(one, names) for key, one in summaries.items()},
            processes=None if self.processes is None else self.processes.redacted(names),
        )


def _renamed(summary: Summary, names: Names) -> Summary:
    if summary.source is None:
        return summary
    name = names.of("capture", summary.source)
    notes = tuple(names.in_text(note.replace(summary.source, name)) for note in summary.notes)
    unused = summary.not_used
    if unused is not None:
        detail = names.in_text(unused.detail.replace(summary.source, name))
        unused = unused.model_copy(update={"baseline": name, "detail": detail})
    return replace(summary, source=name, notes=notes, not_used=unused)
