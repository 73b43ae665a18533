"""Explain slow units of work: which are slow, where each departs from a typical one, and what the excess is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyanalyze.analysis.hardware import START_NS, SWITCH_NS
from pyanalyze.analysis.residency import UnitResidency
from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import recording
from pyanalyze.results.explain import (
    Excess,
    ExplainedUnit,
    Explanation,
    FewRanges,
    OtherUnits,
    OutsideUnits,
    SlowUnits,
    UnitGroup,
    UnitPhases,
    UnitRange,
    UnitSegment,
)
from pyanalyze.results.labels import mps_group_name
from pyanalyze.results.model import Missing
from pyanalyze.tables.frames import to_frame
from pyanalyze.tables.launch_records import launch_records
from pyanalyze.tables.selections import covered_ns, named, of_process, work_of
from pyanalyze.tables.window import span_text
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import (
    DOUBT_TEXT,
    ENOUGH_FOR_TAIL,
    ENOUGH_UNITS,
    NOISE_FLOOR,
    SLOW_TAIL,
    ResidencyDoubt,
    SegmentKind,
    UnitSource,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import polars as pl

    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "NO_RESIDENCY",
    "Choice",
    "Explained",
    "UnitsByTail",
    "explain",
    "explained",
    "unit_doubt",
    "unit_tables",
    "units_by_tail",
]

#: Percentiles are those of the slowdowns: the smallest value that this part of the units does not exceed.
_NEAREST_RANK: Final = "equiprobable"
#: Units that are told about together.
_GROUP = ["tenant_id", "name"]
#: Units that are compared with each other.
_SAME_WORK = [*_GROUP, "work"]
#: Ranks by duration, as fractions, between which units are typical, if no step parts them from the median: their mean
#: splits into causes without a rest.
TYPICAL: Final = (0.45, 0.55)
#: Fraction of a unit's excess. A smaller difference from a typical unit is no departure.
DEPARTS: Final = 0.05
#: Of the time in which others had work: the error of inferred time slices (`tests/bench/explain.py`, 90th percentile).
INFERRED_ERROR: Final = 0.05
#: Rank from either end, as a fraction, of the units that are compared with each other, and fewest units of a kind.
SHORT: Final = 0.1
#: Chance that units whose durations spread without a gap are taken for several kinds.
GAP_CHANCE: Final = 0.01
#: Fewest units that are apart where the other units differ little: a few may be chance.
FEWEST_SHORT: Final = 5
#: What a unit waits for because others share the device.
WAITS: Final = frozenset((SegmentKind.TIME_SLICE, SegmentKind.SWITCH, SegmentKind.QUEUE_OTHER_TENANT))
#: Of these some time is on no record, also where residency was recorded: a switch saves and restores state, and what a
#: launched operation waits behind follows from what was in flight.
_NEVER_RECORDED: Final = frozenset((SegmentKind.SWITCH, SegmentKind.QUEUE_OTHER_TENANT))
#: Chosen units that are explained one by one; the sums are of all of them.
MOST_UNITS: Final = 1_000
#: Part of a tenant's operations that NVTX ranges must hold, so that a reader may take them for its units.
HELD: Final = 0.1
#: Names of few ranges that are looked at, those with most time.
MOST_NAMES: Final = 8
#: Time by cause and aggressor.
_Parts = dict[tuple[str, int | None], float]
#: The key of lost overlap among causes; no segment is of this kind.
_LOST_OVERLAP: Final = ("lost-overlap", None)
#: Segments in which an operation of the unit is in flight.
_OPERATIONS: Final = (SegmentKind.EXECUTION, SegmentKind.COPY)
#: Tables of what units are made of.
_WORK_TABLES: Final = ("kernels", "memops", "graph_launches")
#: Calls that copy and set memory.
_COPY: Final = "^cu(da)?Mem(cpy|set)"
#: Names of units that an error lists.
SHOWN_NAMES: Final = 5


#: Nothing but what the tables say.
NO_RESIDENCY: Final = UnitResidency({})


def unit_tables(tables: TableSet, residency: UnitResidency, name: str | None) -> dict[str, AnyTable]:
    """Find units of work and walk the critical chain of each: `units`, `unit_segments` and `unit_coverage`.

    Parameters
    ----------
    tables
        The tables; API calls and NVTX ranges are read if they were not.
    residency
        What of residency is not on record, as :func:`pyanalyze.analysis.residency.residency_of_units` makes it.
    name
        Only NVTX ranges, or given units, of this name; ``#`` in it stands for any number. None: those that fit best.

    Raises
    ------
    pyanalyze.errors.UsageError
        If no unit has that name.

    Examples
    --------
    >>> import pyanalyze
    >>> sorted(unit_tables(pyanalyze.load(capture).tables, NO_RESIDENCY, None))
    ['unit_coverage', 'unit_segments', 'units']
    """
    import polars as pl

    chosen = tables.selection
    window = None if chosen.start_ns is None or chosen.end_ns is None else (chosen.start_ns, chosen.end_ns)
    given = {**tables.with_calls("event_calls"), **residency.tables}
    found = _core.explain(given, name, window, set(residency.others_unseen))
    if name is not None and found["units"].num_rows == 0:
        names = to_frame(_core.explain(given, None, window, set(residency.others_unseen))["units"])["name"]
        most = names.cast(pl.String).drop_nulls().value_counts(sort=True)["name"].head(SHOWN_NAMES).to_list()
        shown = ", ".join(visible(one, 60) for one in most) or "no units at all"
        raise UsageError(f"no NVTX range with launches inside, and no given unit, is named {name}; there are: {shown}")
    return dict(found)


@dataclass(frozen=True, repr=False, eq=False)
class Explained:
    """Units of work, explained; shows itself as text.

    Attributes
    ----------
    units, segments
        Polars frames: the tables `units` and `unit_segments`.
    result
        The chosen units and what their excess is made of, as the JSON of ``pyanalyze explain`` has it.
    """

    units: pl.DataFrame
    segments: pl.DataFrame
    result: Explanation

    def with_solo(self, interference: Sequence[DeviceInterference]) -> Explained:
        """Return the same with what units of these names took in the solo recordings of their tenants."""
        solo = {
            (tenant.tenant_id, units.name): units.latency_percentiles
            for device in interference
            for tenant in device.tenants
            if tenant.baseline is not None
            for units in tenant.units
        }
        groups = [
            group.model_copy(update={"solo": solo.get((group.tenant_id, group.name))}) for group in self.result.groups
        ]
        return replace(self, result=self.result.model_copy(update={"groups": groups}))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as the JSON has it."""
        return self.result.model_dump(mode="json")

    def __str__(self) -> str:
        """Show it in a terminal."""
        return str(self.result)

    def __repr__(self) -> str:
        """How many units and names there are."""
        return f"<Explained: {self.units.height} units of {len(self.result.groups)} names>"

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


@dataclass(frozen=True)
class Choice:
    """Which units to explain: the slowest of each name, one by number, or those in flight at some time.

    Attributes
    ----------
    slowest
        A fraction of the units of each name below 1, or a number of them.
    unit
        The number of one unit.
    at_ns
        A time in nanoseconds on the session clock.
    """

    slowest: float = 0.01
    unit: int | None = None
    at_ns: int | None = None

    def words(self) -> str:
        """Say what is chosen, to stand behind "the".

        Examples
        --------
        >>> Choice().words(), Choice(3).words(), Choice(unit=7).words()
        ('slowest 1 %, rounded up', 'slowest 3', 'unit 7')
        """
        if self.unit is not None:
            return f"unit {self.unit}"
        if self.at_ns is not None:
            return f"units in flight at {self.at_ns} ns"
        return f"slowest {self.slowest * 100:.3g} %, rounded up" if self.slowest < 1 else f"slowest {self.slowest:.0f}"


def explain(
    tables: TableSet,
    made: Mapping[str, AnyTable],
    choice: Choice,
    doubts: Mapping[int, ResidencyDoubt] | None = None,
    mps_groups: Mapping[int, frozenset[int]] | None = None,
) -> Explanation:
    """Explain chosen units of work.

    Parameters
    ----------
    tables
        The tables.
    made
        What :func:`unit_tables` made.
    choice
        Which units.
    doubts
        By device: what of residency is not certain, as :func:`pyanalyze.analysis.residency.residency_of_units` says.
    mps_groups
        By device: what :func:`pyanalyze.analysis.residency.mps_group` found. Its clients are resident as one.

    Raises
    ------
    pyanalyze.errors.UsageError
        If there is no unit of that number, or none at that time.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> found = explain(session.tables, unit_tables(session.tables, NO_RESIDENCY, None), Choice(slowest=1))
    >>> [(group.tenant, group.name, group.count) for group in found.groups]
    [('app_a', 'a-step', 113), ('app_b', 'b-step', 106)]
    """
    found = _prepared(tables, made, choice, doubts, mps_groups)
    units = found.units
    if units.height and not units["chosen"].any():
        raise UsageError(f"there is no {choice.words()}; units are numbered from 0 to {units.height - 1}")
    chosen = _explained(tables, found, units.filter("chosen"))
    return Explanation(
        chosen=choice.words(),
        groups=_groups(found),
        units=chosen,
        later=_later(tables, found, chosen) if choice.unit is None and choice.at_ns is None else [],
        outside=_outside(tables, found, made),
        missing=_missing(tables, units, found.doubts, events=(found.segments["kind"] == SegmentKind.EVENT).any()),
    )


def explained(
    tables: TableSet,
    made: Mapping[str, AnyTable],
    choice: Choice,
    doubts: Mapping[int, ResidencyDoubt] | None = None,
    mps_groups: Mapping[int, frozenset[int]] | None = None,
) -> Explained:
    """Explain chosen units of work, with the frames behind the answer; as :func:`explain`."""
    answer = explain(tables, made, choice, doubts, mps_groups)
    return Explained(to_frame(made["units"]), to_frame(made["unit_segments"]), answer)


def units_by_tail(
    tables: TableSet,
    made: Mapping[str, AnyTable],
    doubts: Mapping[int, ResidencyDoubt] | None = None,
    mps_groups: Mapping[int, frozenset[int]] | None = None,
) -> UnitsByTail:
    """Explain the slowest 1 % where they are much slower than the others: what a report shows.

    Parameters
    ----------
    tables
        The tables.
    made
        What :func:`unit_tables` made.
    doubts, mps_groups
        As for :func:`explain`.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> found = units_by_tail(session.tables, unit_tables(session.tables, NO_RESIDENCY, None))
    >>> found.slow, [group.name for group in found.even]  # none takes 1.2 times the median
    ((), ['a-step', 'b-step'])
    """
    import polars as pl

    found = _prepared(tables, made, Choice(), doubts, mps_groups)
    groups = _groups(found)
    enough = [group for group in groups if group.count >= ENOUGH_FOR_TAIL]
    whole = found.units.filter(~pl.col("cut"))
    # What a large tail is of depends on the work: that of the name is not it where there are several.
    times_usual = (pl.col("dur_ns") / pl.col("usual_ns")).filter("alike").quantile(0.99, _NEAREST_RANK)
    tails = whole.group_by(_GROUP).agg(slow=times_usual >= SLOW_TAIL)
    by_work = {(tenant_id, name): is_slow for tenant_id, name, is_slow in tails.iter_rows()}
    slow = {
        (group.tenant_id, group.name): group
        for group in enough
        if (by_work[group.tenant_id, group.name] if group.works > 1 else group.p99_ns >= SLOW_TAIL * group.p50_ns)
    }
    names = pl.DataFrame(list(slow), schema={name: found.units.schema[name] for name in _GROUP}, orient="row")
    excess = pl.col("dur_ns") - pl.col("usual_ns")
    longest_first = (
        whole.filter("alike").join(names, on=_GROUP, how="semi").sort(excess, "unit", descending=[True, False])
    )
    slowest = _explained(tables, found, longest_first.unique(_GROUP, keep="first"))
    by_group = {(unit.tenant_id, unit.name): unit for unit in slowest}
    uneven = {tenant_id for tenant_id, _ in slow}
    even: dict[int, UnitGroup] = {}
    for group in sorted(enough, key=lambda one: -one.count * one.p50_ns):
        if group.tenant_id not in uneven:
            even.setdefault(group.tenant_id, group)
    counted = {group.tenant_id for group in enough}
    few: dict[int, UnitGroup] = {}
    for group in sorted(groups, key=lambda one: -one.count * one.p50_ns):
        if group.tenant_id not in counted:
            few.setdefault(group.tenant_id, group)
    shown = {(group.tenant_id, group.name) for group in (*even.values(), *few.values())} | set(slow)
    return UnitsByTail(
        tuple(SlowUnits(group=group, slowest=by_group[key]) for key, group in slow.items()),
        tuple(even[tenant_id] for tenant_id in sorted(even)),
        tuple(few[tenant_id] for tenant_id in sorted(few)),
        _others([group for group in groups if (group.tenant_id, group.name) not in shown]),
        tuple(_outside(tables, found, made)),
    )


def _others(groups: Sequence[UnitGroup]) -> tuple[OtherUnits, ...]:
    """Sum up the units of these names, by tenant."""
    of: dict[int, list[UnitGroup]] = {}
    for group in groups:
        of.setdefault(group.tenant_id, []).append(group)
    longest = {tenant_id: max(own, key=lambda one: one.count * one.p50_ns) for tenant_id, own in of.items()}
    return tuple(
        OtherUnits(
            tenant_id=tenant_id,
            tenant=longest[tenant_id].tenant,
            device_id=longest[tenant_id].device_id,
            units=sum(group.count for group in own),
            names=len(own),
            longest=longest[tenant_id].name,
            longest_units=longest[tenant_id].count,
            longest_p50_ns=longest[tenant_id].p50_ns,
            longest_max_ns=longest[tenant_id].max_ns,
        )
        for tenant_id, own in sorted(of.items())
    )


@dataclass(frozen=True)
class UnitsByTail:
    """Units of work that have a tail of slow ones, those of tenants that have none, and those that are too few to tell.

    Attributes
    ----------
    slow
        Units of one tenant and name whose p99 is at least 1.2 times their median.
    even
        Of each tenant without such units: those with most time. All of them take about as long, which may be too long,
        or some are shorter than the median.
    few
        Of each tenant with too few units of every name: those with most time.
    others
        What else there is, by tenant: units of further names.
    outside
        What of the work of tenants is in no unit.
    """

    slow: tuple[SlowUnits, ...]
    even: tuple[UnitGroup, ...]
    few: tuple[UnitGroup, ...]
    others: tuple[OtherUnits, ...]
    outside: tuple[OutsideUnits, ...]


@dataclass(frozen=True)
class _LostOverlap:
    """What a unit took longer because its operations ran one after another.

    Attributes
    ----------
    ns
        How long.
    operation
        The one that a typical unit has in flight beside others for longest.
    after
        The unit's own one that ended before it started; None: there was none.
    """

    ns: float
    operation: str | None
    after: str | None


@dataclass(frozen=True)
class _Prepared:
    """What every answer about units is made of.

    Attributes
    ----------
    units
        `units`, with `work` (what it launches; empty: others of its name), `typical`, `usual_ns` (duration of a typical
        unit of the same work), `alike` (there are enough of these), `chosen`, and `behind` (1: most over `usual_ns` of
        its tenant and name).
    segments
        `unit_segments`.
    sums
        Time of each unit by kind and aggressor.
    typical
        The same of a typical unit, by tenant, name and work of units.
    labels
        Names of all tenants.
    together
        Names of MPS groups, by the client that stands for the group where it was resident.
    doubts
        What of residency is not certain, by device.
    few_ranges
        NVTX ranges that are too few to be units, by tenants whose units are launches.
    recorded
        Devices with switch records.
    one_traced
        Devices of which one tenant only was traced: others may have been there at any time.
    short_names
        Of kernels, by their full names.
    lost
        Of chosen units whose operations overlap less than those of a typical one, by number of the unit.
    firsts, thread_firsts
        The first unit of each tenant, name and work, where all of the recording was read; and the first ones of other
        threads.
    """

    units: pl.DataFrame
    segments: pl.DataFrame
    sums: pl.DataFrame
    typical: pl.DataFrame
    labels: Mapping[int, str]
    together: Mapping[int, str]
    doubts: Mapping[int, ResidencyDoubt]
    few_ranges: Mapping[int, FewRanges]
    recorded: frozenset[int]
    one_traced: frozenset[int]
    short_names: Mapping[str, str]
    lost: Mapping[int, _LostOverlap]
    firsts: frozenset[int]
    thread_firsts: frozenset[int]

    def other(self, kind: str, tenant_id: int | None) -> str | None:
        """Name whose time slice or work was waited for."""
        if tenant_id is None:
            return None
        if kind == SegmentKind.TIME_SLICE and tenant_id in self.together:
            return self.together[tenant_id]
        return self.labels.get(tenant_id, f"tenant {tenant_id}")

    def doubt_of(self, device_id: int, others_ns: int) -> ResidencyDoubt | None:
        """What is not certain of units during which other tenants had work for so long."""
        return self.doubts.get(device_id) if others_ns > 0 or device_id in self.one_traced else None


def unit_doubt(
    known: ResidencyDoubt | None, excess_ns: float, others_ns: float, *, inferred: bool
) -> ResidencyDoubt | None:
    """Say what of a unit's causes that rest on residency is not certain.

    Parameters
    ----------
    known
        What is not certain on its device, while others had work.
    excess_ns
        How much longer it took than a typical unit.
    others_ns
        How long other tenants had work meanwhile.
    inferred
        Time slices were deduced from kernels: when one began and ended is known as well as a switch is long, and how
        many of them a long kernel waited for to a part of the time.

    Examples
    --------
    >>> unit_doubt(None, 20_000, 1e6, inferred=True).value, unit_doubt(None, 2e6, 3e6, inferred=True)
    ('below-precision', None)
    """
    error_ns = max(SWITCH_NS, INFERRED_ERROR * others_ns)
    if known is not ResidencyDoubt.UNDECIDED and inferred and excess_ns < error_ns:
        return ResidencyDoubt.BELOW_PRECISION
    return known


def _prepared(
    tables: TableSet,
    made: Mapping[str, AnyTable],
    choice: Choice,
    doubts: Mapping[int, ResidencyDoubt] | None,
    mps_groups: Mapping[int, frozenset[int]] | None,
) -> _Prepared:
    import polars as pl

    units = to_frame(made["units"]).with_columns(pl.col("name", "source").cast(pl.String))
    segments = to_frame(made["unit_segments"]).with_columns(pl.col("kind", "name", "basis").cast(pl.String))
    # The clients of an MPS group have one context: which of them its time slice served is not known.
    first = {client: min(group) for group in (mps_groups or {}).values() for client in group}
    if first:
        stands = pl.col("other_tenant_id").replace_strict(
            first, default=pl.col("other_tenant_id"), return_dtype=pl.UInt32
        )
        of_slice = pl.when(pl.col("kind") == SegmentKind.TIME_SLICE).then(stands)
        segments = segments.with_columns(other_tenant_id=of_slice.otherwise("other_tenant_id"))
    # How long units would have been that the end of the recording cuts is not known.
    units = units.with_columns(cut=pl.col("unit").is_in(_cut(tables, units)))
    units = units.filter(~pl.col("cut").all().over(_GROUP))
    units = _with_work(tables, units, segments)
    units = units.with_columns(typical=pl.col("unit").is_in(_typical_units(units)))
    usual = pl.col("dur_ns").filter("typical").mean().over(_SAME_WORK)
    # Beside kinds of work of many units, those of few are compared with nothing, and not chosen as slow.
    units = units.with_columns(
        usual_ns=usual.fill_null(pl.col("dur_ns")),
        alike=_enough_alike() | (pl.col("work").n_unique().over(_GROUP) == 1),
    )
    excess = pl.when(~pl.col("cut"), "alike").then(pl.col("dur_ns") - pl.col("usual_ns"))
    units = units.with_columns(
        behind=excess.rank("ordinal", descending=True).over(_GROUP), count=excess.count().over(_GROUP)
    )
    units = units.with_columns(chosen=_chosen(choice))
    sums = segments.group_by("unit", "kind", "other_tenant_id").agg(pl.col("dur_ns").sum().cast(pl.Float64))
    sums = sums.join(units.select("unit", *_SAME_WORK, "typical", "chosen"), on="unit")
    key = [*_SAME_WORK, "kind", "other_tenant_id"]
    typical = sums.filter("typical").group_by(key).agg(pl.col("dur_ns").sum().alias("typical_ns"))
    of_typical = units.filter("typical").group_by(_SAME_WORK).agg(pl.len().alias("typical_units"))
    typical = typical.join(of_typical, on=_SAME_WORK).with_columns(pl.col("typical_ns") / pl.col("typical_units"))
    labels = {
        number: name
        for device in tables.tenants["device_id"].unique()
        for number, name in tables.labels(device).items()
    }
    together = {
        min(group): mps_group_name([labels[client] for client in sorted(group)])
        for group in (mps_groups or {}).values()
        if group
    }
    traced = tables.tenants.filter("traced").group_by("device_id").len().filter(pl.col("len") == 1)
    return _Prepared(
        units,
        segments,
        sums,
        typical,
        labels,
        together,
        doubts or {},
        few_ranges=_few_ranges(tables, units),
        recorded=frozenset(tables.residency["device_id"].unique()),
        one_traced=frozenset(traced["device_id"]),
        short_names=_short_names(tables, segments),
        lost=_lost_overlap(
            units.join(_in_several_streams(tables), on=["device_id", "tenant_id"], how="semi"), segments
        ),
        firsts=_firsts(tables, units, _SAME_WORK),
        thread_firsts=_firsts(tables, units, [*_SAME_WORK, "tid"]) - _firsts(tables, units, _SAME_WORK),
    )


def _firsts(tables: TableSet, units: pl.DataFrame, key: Sequence[str]) -> frozenset[int]:
    """The first unit of each of these, such as tenant and name; empty where a window may have left out earlier ones."""
    import polars as pl

    if (tables.selection.start_ns, tables.selection.end_ns) != (None, None):
        return frozenset()
    firsts = units.filter(pl.col("start_ns") == pl.col("start_ns").min().over(key))
    return frozenset(firsts["unit"])


def _in_several_streams(tables: TableSet) -> pl.DataFrame:
    """Tenants with operations in more than one stream of a device: those of one stream never overlap."""
    import polars as pl

    process = ("capture", "pid", "device_id")
    used = [
        tables.columns(name, *process, "context_id", "stream_id").unique()
        for name in ("kernels", "graph_launches", "memops")
        if name in tables
    ]
    if not used:
        return tables.tenants.head(0)
    several = pl.concat(used).unique().group_by(process).len().filter(pl.col("len") > 1)
    return tables.tenants.join(several, on=process, how="semi")


def _lost_overlap(units: pl.DataFrame, segments: pl.DataFrame) -> dict[int, _LostOverlap]:
    """Find chosen units whose chain holds operations that a typical unit has in flight beside others.

    The chain counts each moment once. It grows where operations take longer than they usually do, and where one that
    others usually hide is in it, as no other ran meanwhile. Only the second is lost overlap, and no more of it than the
    chain grew by without the first.
    """
    import polars as pl

    own = segments.filter("own", pl.col("kind").is_in(_OPERATIONS))
    # Another number of operations is other work: what only such a unit has, no typical one hides.
    usual = pl.col("operations").filter("typical")
    equal = [pl.col("operations") == one.over(_SAME_WORK) for one in (usual.min(), usual.max())]
    slow = units.filter("chosen", pl.col("operations") > 1, pl.col("dur_ns") > pl.col("usual_ns"), *equal)
    rows = own.filter(pl.col("unit").is_in(slow["unit"].implode())).sort("unit", "position")
    in_order = {unit: of["name"].to_list() for (unit,), of in rows.group_by("unit", maintain_order=True)}
    # What an operation usually takes is not known of all of them: of equal ones behind another operation, say.
    taken = pl.when(pl.col("usual_ns").is_not_null().all()).then(pl.col("usual_ns").sum())
    sums = rows.group_by("unit", "kind", "name").agg(pl.col("dur_ns").sum(), usual_ns=taken)
    of_unit = {unit: of.rows(named=True) for (unit,), of in sums.group_by("unit")}
    typical = _typical_parts(units, own)
    lost = {}
    for row in slow.filter(pl.col("unit").is_in(list(of_unit))).iter_rows(named=True):
        chain = typical.get((row["tenant_id"], row["name"], row["work"]), {})
        grown_ns, longer_ns, hidden = -sum(chain.values()), 0.0, dict[str | None, float]()
        for one in of_unit[row["unit"]]:
            in_chain_ns = chain.get((one["kind"], one["name"]), 0.0)
            usual_ns = in_chain_ns if one["usual_ns"] is None else one["usual_ns"]
            grown_ns += one["dur_ns"]
            longer_ns += one["dur_ns"] - usual_ns
            hidden[one["name"]] = min(one["dur_ns"], usual_ns) - in_chain_ns
        ns = min(sum(max(one, 0.0) for one in hidden.values()), grown_ns - max(longer_ns, 0.0))
        if ns >= NOISE_FLOOR * row["usual_ns"]:
            operation = max(hidden, key=lambda name: hidden[name])
            names = in_order[row["unit"]]
            place = names.index(operation)
            lost[row["unit"]] = _LostOverlap(ns, operation, names[place - 1] if place else None)
    return lost


def _with_lost_overlap(spent: _Parts, typical: _Parts, lost: _LostOverlap | None) -> _Parts:
    """Take lost overlap out of what execution and copies took longer, largest first, as a cause of its own."""
    if lost is None:
        return spent
    longer = {key: ns - typical.get(key, 0.0) for key, ns in spent.items() if key[0] in _OPERATIONS}
    found, rest = {**spent, _LOST_OVERLAP: lost.ns}, lost.ns
    for key in sorted(longer, key=lambda key: -longer[key]):
        taken = min(rest, max(longer[key], 0.0))
        found[key], rest = spent[key] - taken, rest - taken
    return found


def _short_names(tables: TableSet, segments: pl.DataFrame) -> dict[str, str]:
    """Short names of the kernels of segments, by their full names: those that tell apart what one wrapper launches."""
    import polars as pl

    if "kernels" not in tables or segments.is_empty():
        return {}
    names = tables.columns("kernels", "name", "short_name").unique().drop_nulls()
    found = names.select(pl.all().cast(pl.String)).sort("name", "short_name", descending=True)
    return dict(found.iter_rows())


def _launched_outside(tables: TableSet, units: pl.DataFrame, row: Mapping[str, Any]) -> dict[str, Any]:
    """Count what of the work of a tenant in no unit was launched where: the fields of its :class:`OutsideUnits`.

    Empty: without calls it is not known, nor where several tenants are of one process.
    """
    import polars as pl

    mine = units.filter(pl.col("tenant_id") == row["tenant_id"], pl.col("device_id") == row["device_id"])
    calls = tables.calls()
    if calls is None or mine.is_empty():
        return {}
    first_ns, last_ns = mine["start_ns"].min(), mine["range_end_ns"].max()
    place = mine.select("device_id", "capture", "pid").row(0, named=True)
    launches = calls.filter(of_process(place), pl.col("correlation_id") > 0)
    before, after = pl.col("start_ns") < first_ns, pl.col("start_ns") > last_ns
    chosen = {"before_first": before, "after_last": after}
    # Units of any thread leave none out.
    if not mine["tid"].null_count():
        chosen["other_threads"] = ~before & ~after & ~pl.col("tid").is_in(mine["tid"].unique().implode())
    work = work_of(tables, place, _WORK_TABLES, "correlation_id", "start_ns", "end_ns")
    ids = work["correlation_id"]
    found = {
        name: int(ids.is_in(launches.filter(where)["correlation_id"].unique().implode()).sum())
        for name, where in chosen.items()
    }
    rest = row["operations"] - row["in_units"] - sum(found.values())
    if rest < 0:
        return {}
    # A unit may hold some of which no call says when they were launched.
    unknown = int((~ids.is_in(launches["correlation_id"].unique().implode())).sum()) - int(mine["without_call"].sum())
    without_call = min(max(unknown, 0), rest)
    share = _share_outside(work, launches, mine, row["in_units"])
    counted = {"other_threads": 0, **found, "without_call": without_call, "between": rest - without_call}
    return {**counted, "outside_share": share}


def _share_outside(work: pl.DataFrame, launches: pl.DataFrame, units: pl.DataFrame, in_units: int) -> float | None:
    """Part of the summed durations of operations that is in no unit.

    None: it is not known which are in units. They are where a thread launched them while a unit of its own went on.
    """
    import polars as pl

    if units["tid"].null_count():
        return None
    spans = units.select("tid", "start_ns", until_ns="range_end_ns").sort("start_ns")
    calls = launches.select("tid", "start_ns", "correlation_id").sort("start_ns")
    held = calls.join_asof(spans, on="start_ns", by="tid", check_sortedness=False)
    held = held.filter(pl.col("start_ns") <= pl.col("until_ns"))
    inside = work["correlation_id"].is_in(held["correlation_id"].unique().implode())
    length = work["end_ns"] - work["start_ns"]
    whole = int(length.sum())
    # Units inside of others, or found by another rule, hold other operations.
    return 1 - int(length.filter(inside).sum()) / whole if whole and int(inside.sum()) == in_units else None


def _outside(tables: TableSet, prepared: _Prepared, made: Mapping[str, AnyTable]) -> list[OutsideUnits]:
    """What of the work of tenants is in no unit."""
    import polars as pl

    units = to_frame(made["units"])
    rows = to_frame(made["unit_coverage"]).filter(pl.col("in_units") < pl.col("operations")).rows(named=True)
    return [
        OutsideUnits(
            tenant_id=row["tenant_id"],
            tenant=prepared.labels.get(row["tenant_id"], f"tenant {row['tenant_id']}"),
            device_id=row["device_id"],
            operations=row["operations"],
            outside=row["operations"] - row["in_units"],
            groups=row["groups"],
            longer=row["longer"],
            longest_ns=row["longest_ns"],
            longest_start_ns=row["longest_start_ns"],
            **_launched_outside(tables, units, row),
        )
        for row in rows
    ]


def _enough_alike() -> pl.Expr:
    """Select units that others of the same work show to be slow or not."""
    import polars as pl

    return (~pl.col("cut")).sum().over(_SAME_WORK) >= FEWEST_SHORT


def _with_work(tables: TableSet, units: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Add what units of one operation launch (`work`): a kernel with its blocks, or a copy with its bytes.

    Ranges of an operator hold small and large work under one name: a large one is no slow small one. Units of several
    operations stay together (empty). So do all of a name of which most are of work that few others have.
    """
    import polars as pl

    single = units.filter(pl.col("operations") == 1)
    own = segments.filter("own", pl.col("kind").is_in([SegmentKind.EXECUTION, SegmentKind.COPY]))
    own = own.select("unit", "end_ns", operation="name").join(single.select("unit", "device_id"), on="unit")
    if own.is_empty():
        return units.with_columns(work=pl.lit(""))
    blocks = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
    kernels = tables.columns("kernels", "device_id", "end_ns", "grid_x", "grid_y", "grid_z")
    sizes = [kernels.select("device_id", "end_ns", size=blocks)]
    if "memops" in tables:
        sizes.append(tables.columns("memops", "device_id", "end_ns", "bytes").rename({"bytes": "size"}))
    # A segment of its own operation lasts until that ends.
    sized = pl.concat(sizes).join(own, on=["device_id", "end_ns"]).sort("unit", "size").unique("unit", keep="first")
    sized = sized.select("unit", work=pl.concat_str("operation", "size", separator=" "))
    units = units.join(sized, on="unit", how="left", maintain_order="left").with_columns(pl.col("work").fill_null(""))
    return units.with_columns(
        work=pl.when(_enough_alike().mean().over(_GROUP) >= 0.5).then("work").otherwise(pl.lit(""))
    )


def _typical_units(units: pl.DataFrame) -> list[int]:
    """Numbers of the units in the middle by duration that no step parts from the median.

    Where the median lies at the edge of a gap, a mean over both sides is a duration that no unit has. Where it is
    not like those of the most frequent kind, the middle is that of this kind.
    """
    import polars as pl

    place = pl.int_range(1, pl.len() + 1)
    # The unit in the middle is typical, however few there are.
    median = place == (pl.len() + 1) // 2
    steps = (pl.col("dur_ns") > (1 + NOISE_FLOOR) * pl.col("dur_ns").shift(1)).fill_null(value=False).cum_sum()
    whole = units.filter(~pl.col("cut")).sort("dur_ns", "unit")
    parts = [_of_most(of) for of in whole.partition_by(_SAME_WORK, maintain_order=True)]
    if not parts:
        return []
    found = (
        pl.concat(parts)
        .with_columns(
            steps=steps.over(_SAME_WORK),
            median=median.over(_SAME_WORK),
            middle=(((place - 0.5) / pl.len()).is_between(*TYPICAL) | median).over(_SAME_WORK),
        )
        .filter("middle", pl.col("steps") == pl.col("steps").filter("median").first().over(_SAME_WORK))
    )
    return found["unit"].to_list()


def _of_most(units: pl.DataFrame) -> pl.DataFrame:
    """Of units, in order of duration, the most frequent kind; all of them where the median is like one of it.

    The median of all may be one of the few between two kinds, whichever of these it counts for.
    """
    most = max(_kinds(units), key=lambda kind: kind.height)
    median, of_most = (of["dur_ns"][(of.height - 1) // 2] for of in (units, most))
    return units if abs(median - of_most) <= DEPARTS * of_most else most


def _kinds(units: pl.DataFrame) -> list[pl.DataFrame]:
    """Divide units, in order of duration, at every gap that is clear against their spread; one part where none is."""
    durations = units["dur_ns"]
    short, long = (durations.quantile(rank, _NEAREST_RANK) for rank in (SHORT, 1 - SHORT))
    if units.height < ENOUGH_FOR_TAIL or not short or not long:
        return [units]
    many = max(int(SHORT * units.height), 1)
    steps = (durations / durations.shift(1)).log().to_list()
    if long >= SLOW_TAIL * short:
        first, last = many, units.height - many
        # Durations that are spread evenly between the two ranks are so far apart, as logarithms. Such gaps have an
        # exponential distribution: of n of them one is ln(n / p) times as wide with probability p.
        apart = math.log(long / short) / ((1 - 2 * SHORT) * units.height)
        least = max(math.log(1 + NOISE_FLOOR), apart * math.log(units.height / GAP_CHANCE))
    else:
        # Of units that are alike but for a few shorter ones, the few are a kind.
        first, last = min(FEWEST_SHORT, many), units.height // 2
        least = math.log(SLOW_TAIL)
    cuts: list[int] = []
    gaps = (place for place in range(first, last + 1) if steps[place] >= least)
    for cut in sorted(gaps, key=lambda place: -steps[place]):
        if all(abs(cut - other) >= first for other in cuts):
            cuts.append(cut)
    return [units[start:end] for start, end in pairwise([0, *sorted(cuts), units.height])]


def _cut(tables: TableSet, units: pl.DataFrame) -> list[int]:
    """Numbers of units with a copy or memset that has no record, because the recording ended before it.

    Ranges with a launch whose kernel has no record are no units in the first place.
    """
    import polars as pl

    calls, chosen = tables.calls(), tables.selection
    # The work of a call near the end of a window may lie behind it.
    if calls is None or "memops" not in tables or (chosen.start_ns, chosen.end_ns) != (None, None):
        return []
    process = ["capture", "pid"]
    last = tables.columns("memops", *process, "correlation_id").group_by(process).agg(pl.col("correlation_id").max())
    lost = calls.filter(named(calls, _COPY)).join(last, on=process, suffix="_of_last")
    lost = lost.filter(pl.col("correlation_id") > pl.col("correlation_id_of_last")).rename({"start_ns": "lost_ns"})
    found: list[int] = []
    for (capture, pid), of in lost.select(*process, "tid", "lost_ns").sort("lost_ns").group_by(process):
        records = launch_records(tables, {(capture, pid)})
        # A copy of nothing has no record either: only work that was unfinished tells that the recording ended first.
        if records is None or records.errors or not records.without_record_at_end:
            continue
        mine = units.filter(pl.col("capture") == capture, pl.col("pid") == pid).sort("start_ns")
        for part, by in (
            (mine.filter(pl.col("tid").is_not_null()), "tid"),
            (mine.filter(pl.col("tid").is_null()), None),
        ):
            next_lost = part.select("unit", "tid", "start_ns", "range_end_ns").join_asof(
                of, left_on="start_ns", right_on="lost_ns", by=by, strategy="forward", check_sortedness=False
            )
            found += next_lost.filter(pl.col("lost_ns") <= pl.col("range_end_ns"))["unit"].to_list()
    return found


def _few_ranges(tables: TableSet, units: pl.DataFrame) -> dict[int, FewRanges]:
    """NVTX ranges with work that a reader may expect to be the units of a tenant, and that are too few."""
    import polars as pl

    calls, chosen = tables.calls(), tables.selection
    by_launch = units.filter(pl.col("source").is_in([UnitSource.GRAPH, UnitSource.SYNCHRONISATION]))
    tenants = by_launch.select("tenant_id", "device_id", "capture", "pid").unique().rows(named=True)
    if not tenants or calls is None:
        return {}
    ranges = tables.ranges().filter(pl.col("end_ns").is_not_null(), pl.col("tid").is_not_null())
    if chosen.start_ns is not None and chosen.end_ns is not None:
        ranges = ranges.filter(pl.col("start_ns") > chosen.start_ns, pl.col("end_ns") < chosen.end_ns)
    found = {}
    for tenant in tenants:
        mine = ranges.filter(of_process(tenant)).with_columns(pl.col("text").cast(pl.String))
        # As in the core: names of too few ranges are one but for numbers.
        few = mine.filter(pl.len().over("text") < ENOUGH_UNITS).with_columns(
            pl.col("text").str.replace_all("[0-9]+", "#")
        )
        # One range may well be the whole program.
        few = few.filter(pl.len().over("text").is_between(2, ENOUGH_UNITS - 1))
        if few.is_empty():
            continue
        length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
        names = few.group_by("text").agg(length).sort("ns", "text", descending=[True, False])["text"]
        launched = _launches(tables, calls, tenant)
        held = {name: _held(few.filter(pl.col("text") == name), launched) for name in names.head(MOST_NAMES)}
        name = max(held, key=lambda name: held[name])
        if held[name] >= HELD * launched.height > 0:
            found[tenant["tenant_id"]] = FewRanges(name=name, count=few.filter(pl.col("text") == name).height)
    return found


def _launches(tables: TableSet, calls: pl.DataFrame, tenant: Mapping[str, Any]) -> pl.DataFrame:
    """Thread and time of the call that launched each operation of a tenant on a device, where there is one."""
    import polars as pl

    work = work_of(tables, tenant, _WORK_TABLES, "correlation_id")
    own = calls.filter(of_process(tenant), pl.col("correlation_id") > 0).unique("correlation_id", keep="first")
    return work.join(own.select("correlation_id", "tid", "start_ns"), on="correlation_id")


def _held(ranges: pl.DataFrame, launched: pl.DataFrame) -> int:
    """Operations that were launched in any of a few ranges, by the thread of that range."""
    import polars as pl

    inside = [
        (pl.col("tid") == tid) & pl.col("start_ns").is_between(start_ns, end_ns)
        for tid, start_ns, end_ns in ranges.select("tid", "start_ns", "end_ns").iter_rows()
    ]
    return launched.filter(pl.any_horizontal(inside)).height


def _chosen(choice: Choice) -> pl.Expr:
    import polars as pl

    if choice.unit is not None:
        return pl.col("unit") == choice.unit
    if choice.at_ns is not None:
        return (pl.col("start_ns") <= choice.at_ns) & (pl.col("end_ns") >= choice.at_ns)
    # At least one of each name.
    most = (pl.col("count") * choice.slowest).ceil().clip(lower_bound=1) if choice.slowest < 1 else choice.slowest
    return pl.col("behind") <= most


def _groups(prepared: _Prepared) -> list[UnitGroup]:
    """Units by tenant and name, with what the excess of the chosen ones is made of."""
    import polars as pl

    units, labels = prepared.units, prepared.labels
    inferred = _inferred(prepared)
    found = []
    for (tenant_id, name), all_of in units.group_by(_GROUP, maintain_order=True):
        of = all_of.filter(~pl.col("cut"))
        here = (pl.col("tenant_id") == tenant_id) & (pl.col("name") == name)
        slow = of.filter("chosen")
        mean = float(slow["dur_ns"].mean()) if slow.height else None  # type: ignore[arg-type]
        # Chosen units differ in what is usual for them, as their work does.
        compared = slow if slow.height else of.filter("alike")
        usual = float(compared["usual_ns"].mean())  # type: ignore[arg-type]
        not_on_record = inferred.get((tenant_id, name), frozenset())
        causes, alike = _mean_causes(prepared, here, slow, compared, not_on_record) if slow.height else ([], None)
        length = pl.col("dur_ns")
        lengths = of.select(
            p50_ns=length.quantile(0.5, _NEAREST_RANK),
            p90_ns=length.quantile(0.9, _NEAREST_RANK),
            p99_ns=length.quantile(0.99, _NEAREST_RANK),
            max_ns=length.max(),
        ).row(0, named=True)
        ranges = _ranges(of.select("unit", "dur_ns", "others_ns"), prepared.sums)
        found.append(
            UnitGroup(
                tenant_id=tenant_id,
                tenant=labels.get(tenant_id, f"tenant {tenant_id}"),
                device_id=of["device_id"][0],
                name=name,
                source=UnitSource(of["source"][0]),
                count=of.height,
                cut=all_of.height - of.height,
                few_ranges=prepared.few_ranges.get(tenant_id),
                **lengths,
                typical_ns=usual,
                slow=slow.height,
                slow_mean_ns=mean,
                causes=causes,
                alike=alike,
                with_first=not prepared.firsts.isdisjoint(slow["unit"]),
                operations=int(of["operations"].sum()),
                without_call=int(of["without_call"].sum()),
                clamped=int(of["clamped"].sum()),
                basis="inferred" if not_on_record - _NEVER_RECORDED else "observed",
                doubt=prepared.doubt_of(of["device_id"][0], int(slow["others_ns"].sum())) if slow.height else None,
                ranges=ranges,
                phases=_phases(of, ranges),
                works=of.filter("alike")["work"].n_unique(),
            )
        )
    return sorted(found, key=lambda one: (-one.count, one.tenant_id, one.name))


def _mean_causes(
    prepared: _Prepared, here: pl.Expr, slow: pl.DataFrame, compared: pl.DataFrame, inferred: AbstractSet[str]
) -> tuple[list[Excess], int]:
    """Return the mean excess of chosen units by cause, and how many of them have the largest one as their own."""
    import polars as pl

    sums = prepared.sums.filter(here, "chosen").select("unit", "work", "kind", "other_tenant_id", "dur_ns")
    by_unit: dict[int, _Parts] = {}
    works: dict[int, str] = {}
    for unit, work, kind, other, ns in sums.sort("unit", "kind", "other_tenant_id").iter_rows():
        by_unit.setdefault(unit, {})[kind, other] = ns
        works[unit] = work
    usual: dict[str, _Parts] = {}
    for work, kind, other, ns in (
        prepared.typical.filter(here).select("work", "kind", "other_tenant_id", "typical_ns").iter_rows()
    ):
        usual.setdefault(work, {})[kind, other] = ns
    spent: _Parts = {}
    mains: dict[tuple[str, int | None], int] = {}
    for unit, raw in by_unit.items():
        typical = usual.get(works[unit], {})
        parts = _with_lost_overlap(raw, typical, prepared.lost.get(unit))
        for key, ns in parts.items():
            spent[key] = spent.get(key, 0.0) + ns / slow.height
        main = max(parts, key=lambda key: parts[key] - typical.get(key, 0.0))
        mains[main] = mains.get(main, 0) + 1
    of = prepared.segments.filter(pl.col("unit").is_in(slow["unit"].implode()))
    lost = [prepared.lost[unit] for unit in by_unit if unit in prepared.lost]
    most = max(lost, key=lambda one: one.ns, default=None)
    typical_of = _typical_of(prepared.typical, compared)
    causes = _causes(spent, typical_of, _operations(of), prepared, inferred, most)
    first = max(spent.keys() | typical_of.keys(), key=lambda key: spent.get(key, 0.0) - typical_of.get(key, 0.0))
    return causes, mains.get(first, 0)


def _ranges(units: pl.DataFrame, sums: pl.DataFrame) -> tuple[UnitRange, ...]:
    """Say between which durations units of each kind lie; empty where they are of one kind, most of them alike."""
    import polars as pl

    units = units.sort("dur_ns", "unit")
    kinds = _kinds(units)
    short, median, long = (units["dur_ns"].quantile(rank, _NEAREST_RANK) for rank in (SHORT, 0.5, 1 - SHORT))
    if units.height < ENOUGH_FOR_TAIL or not short or not median or not long:
        return ()
    # Where one in ten is much longer, the slowest 1 % do not stand out.
    if len(kinds) == 1 and median < SLOW_TAIL * short and long < SLOW_TAIL * median:
        return ()
    waits = sums.filter(pl.col("kind").is_in(list(WAITS))).group_by("unit").agg(pl.col("dur_ns").sum().alias("ns"))
    found = []
    for kind in kinds:
        waited = kind.select("unit").join(waits, on="unit")["ns"].sum()
        solo = kind.filter(pl.col("others_ns") == 0)["dur_ns"]
        found.append(
            UnitRange(
                count=kind.height,
                min_ns=kind["dur_ns"][0],
                max_ns=kind["dur_ns"][-1],
                others_ns=float(waited) / kind.height,
                solo=solo.len(),
                solo_p50_ns=solo.quantile(0.5, _NEAREST_RANK),
            )
        )
    return tuple(found)


def _phases(units: pl.DataFrame, ranges: Sequence[UnitRange]) -> UnitPhases | None:
    """Find the time that divides shorter units from longer ones best; None: they alternate, or are of one kind."""
    if len(ranges) < 2:
        return None
    units = units.sort("start_ns", "unit")
    _, long = max(pairwise(ranges), key=lambda two: two[1].min_ns / two[0].max_ns)
    longer = units["dur_ns"] >= long.min_ns
    fewest = max(FEWEST_SHORT, int(SHORT * units.height))
    whole, before = sum(longer), 0
    best, cut = units.height, 0
    for place, is_longer in enumerate(longer, 1):
        before += is_longer
        # On the wrong side if the shorter ones come first: longer ones before the cut, shorter ones behind it.
        wrong = before + (units.height - place) - (whole - before)
        if fewest <= place <= units.height - fewest and min(wrong, units.height - wrong) < best:
            best, cut = min(wrong, units.height - wrong), place
    first, then = units[:cut], units[cut:]
    # A queue that fills after a pause, or that the end of the recording cuts, makes a ramp and no phase.
    if not cut or any(_drifts(part) for part in (first, then)):
        return None
    medians = [float(part["dur_ns"].quantile(0.5, _NEAREST_RANK) or 0) for part in (first, then)]
    shorter = first if medians[0] < medians[1] else then
    # What alternates has long units on either side.
    if SLOW_TAIL * (shorter["dur_ns"].quantile(1 - SHORT, _NEAREST_RANK) or 0) > max(medians):
        return None
    return UnitPhases(
        until_ns=then["start_ns"][0],
        first=first.height,
        first_p50_ns=medians[0],
        then=then.height,
        then_p50_ns=medians[1],
    )


def _drifts(units: pl.DataFrame) -> bool:
    """Whether units, in order of time, take much longer or shorter in one half than in the other."""
    half = units.height // 2
    early, late = (
        float(part["dur_ns"].quantile(0.5, _NEAREST_RANK) or 0) for part in (units[:half], units[units.height - half :])
    )
    return max(early, late) >= SLOW_TAIL * min(early, late)


def _inferred(prepared: _Prepared) -> dict[tuple[int, str], frozenset[str]]:
    """Kinds of segments that no record has, by tenant and name of units."""
    import polars as pl

    of = prepared.segments.filter(pl.col("basis") == "inferred").select("unit", "kind")
    kinds = of.join(prepared.units.select("unit", *_GROUP), on="unit").group_by(_GROUP).agg(pl.col("kind").unique())
    return {(tenant_id, name): frozenset(found) for tenant_id, name, found in kinds.iter_rows()}


def _typical_of(typical: pl.DataFrame, units: pl.DataFrame) -> dict[tuple[str, int | None], float]:
    """Mean time by cause and aggressor of the typical units that some units are compared with."""
    import polars as pl

    kinds = units.group_by(_SAME_WORK).agg(weight=pl.len() / units.height)
    parts = typical.join(kinds, on=_SAME_WORK).group_by("kind", "other_tenant_id", maintain_order=True)
    rows = parts.agg((pl.col("typical_ns") * pl.col("weight")).sum()).iter_rows()
    return {(kind, other): ns for kind, other, ns in rows}


def _operations(segments: pl.DataFrame) -> dict[tuple[str, int | None], tuple[str, bool]]:
    """The operation with most time of each cause, and whether it is the unit's own."""
    import polars as pl

    named = segments.filter(pl.col("name").is_not_null())
    keys = ("kind", "other_tenant_id", "name", "own")
    most = named.group_by(keys).agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", "own")
    return {(row["kind"], row["other_tenant_id"]): (row["name"], row["own"]) for row in most.iter_rows(named=True)}


def _causes(
    spent: Mapping[tuple[str, int | None], float],
    typical: Mapping[tuple[str, int | None], float],
    operations: Mapping[tuple[str, int | None], tuple[str, bool]],
    prepared: _Prepared,
    inferred: AbstractSet[str],
    lost: _LostOverlap | None,
) -> list[Excess]:
    """What was spent, less what typical units spend, largest first."""
    usual_ns = sum(typical.values())
    whole = sum(spent.values()) - usual_ns
    # Parts of next to nothing say nothing.
    slow = whole >= NOISE_FLOOR * usual_ns
    made = []
    for key in sorted(spent.keys() | typical.keys(), key=str):
        kind, other = key
        usual = typical.get(key, 0.0)
        ns = spent.get(key, 0.0) - usual
        operation, own = operations.get(key, (None, True))
        after = None
        if key == _LOST_OVERLAP and lost is not None:
            kind, operation, after = SegmentKind.EXECUTION, lost.operation, lost.after
        made.append(
            Excess(
                kind=SegmentKind(kind),
                other_tenant_id=other,
                other=prepared.other(kind, other),
                operation=operation,
                operation_short=prepared.short_names.get(operation or ""),
                own=own,
                less_overlap=key == _LOST_OVERLAP,
                after=prepared.short_names.get(after or "", after),
                ns=ns,
                typical_ns=usual,
                share=ns / whole if slow else None,
                basis="inferred" if kind in inferred else "observed",
            )
        )
    return sorted(made, key=lambda one: -one.ns)


def _later(tables: TableSet, prepared: _Prepared, chosen: Sequence[ExplainedUnit]) -> list[ExplainedUnit]:
    """Of names whose slowest unit is a first one, the slowest of the others: firsts set up what later ones use."""
    import polars as pl

    slowest: dict[tuple[int, str], ExplainedUnit] = {}
    for unit in chosen:
        slowest.setdefault((unit.tenant_id, unit.name), unit)
    wanted = [key for key, unit in slowest.items() if unit.starts_up and unit.is_slow]
    names = pl.DataFrame(wanted, schema={name: prepared.units.schema[name] for name in _GROUP}, orient="row")
    rest = prepared.units.filter(
        ~pl.col("cut"), "alike", ~pl.col("unit").is_in([*prepared.firsts, *prepared.thread_firsts])
    ).join(names, on=_GROUP, how="semi")
    longest = rest.sort(pl.col("dur_ns") - pl.col("usual_ns"), "unit", descending=[True, False])
    return _explained(tables, prepared, longest.unique(_GROUP, keep="first"))


def _with_threads(tables: TableSet, unit: Mapping[str, Any], segments: list[UnitSegment]) -> list[UnitSegment]:
    """Say of host time how long work that another thread of the process launched was in flight.

    A trainer's backward pass is launched by a thread of its own: its step waits for that, and not for its own host.
    """
    import polars as pl

    calls = tables.calls()
    host = [one for one in segments if one.kind is SegmentKind.HOST and one.operation is None]
    if calls is None or unit["tid"] is None or not host:
        return segments
    columns = ("correlation_id", "device_id", "start_ns", "end_ns")
    inside = (pl.col("end_ns") > unit["start_ns"]) & (pl.col("start_ns") < unit["end_ns"])
    work = work_of(tables, unit, _WORK_TABLES, *columns).filter(inside, pl.col("correlation_id") > 0)
    if work.is_empty():
        return segments
    others = calls.filter(of_process(unit), pl.col("tid") != unit["tid"]).select("correlation_id", "tid")
    work = work.join(others.unique("correlation_id"), on="correlation_id")
    by_thread = {tid: of.select("start_ns", "end_ns") for (tid,), of in work.group_by("tid")}

    def most(one: UnitSegment) -> dict[str, int]:
        held = {tid: covered_ns(of.select(pl.all().clip(one.start_ns, one.end_ns))) for tid, of in by_thread.items()}
        thread = max(held, key=lambda tid: held[tid], default=None)
        return {} if thread is None or not held[thread] else {"thread": int(thread), "thread_ns": held[thread]}

    is_host = {id(one) for one in host}
    return [one.model_copy(update=most(one)) if id(one) in is_host else one for one in segments]


def _explained(tables: TableSet, prepared: _Prepared, chosen: pl.DataFrame) -> list[ExplainedUnit]:
    """Some of the units one by one."""
    import polars as pl

    segments, labels = prepared.segments, prepared.labels
    chosen = chosen.sort("dur_ns", "unit", descending=[True, False]).head(MOST_UNITS)
    if chosen.is_empty():
        return []
    of_unit = {
        unit: rows.sort("position")
        for (unit,), rows in segments.filter(pl.col("unit").is_in(chosen["unit"].implode())).group_by(["unit"])
    }
    parts, inferred = _typical_parts(prepared.units, segments), _inferred(prepared)
    found = []
    for row in chosen.iter_rows(named=True):
        mine = of_unit[row["unit"]]
        spent = mine.group_by("kind", "other_tenant_id").agg(pl.col("dur_ns").sum().cast(pl.Float64))
        usual, lost = row["usual_ns"], prepared.lost.get(row["unit"])
        typical = _typical_of(prepared.typical, prepared.units.filter(pl.col("unit") == row["unit"]))
        causes = _causes(
            _with_lost_overlap({(kind, other): ns for kind, other, ns in spent.iter_rows()}, typical, lost),
            typical,
            _operations(mine),
            prepared,
            inferred.get((row["tenant_id"], row["name"]), frozenset()),
            lost,
        )
        made = _with_threads(tables, row, [_segment(one, prepared) for one in mine.iter_rows(named=True)])
        excess = row["dur_ns"] - usual
        found.append(
            ExplainedUnit(
                unit=row["unit"],
                tenant_id=row["tenant_id"],
                tenant=labels.get(row["tenant_id"], f"tenant {row['tenant_id']}"),
                name=row["name"],
                start_ns=row["start_ns"],
                end_ns=row["end_ns"],
                dur_ns=row["dur_ns"],
                typical_ns=usual,
                excess_ns=excess,
                doubt=unit_doubt(
                    prepared.doubt_of(row["device_id"], row["others_ns"]),
                    excess,
                    row["others_ns"],
                    inferred=row["device_id"] not in prepared.recorded
                    and any(cause.kind is SegmentKind.TIME_SLICE for cause in causes),
                ),
                first=row["unit"] in prepared.firsts,
                first_on_thread=row["unit"] in prepared.thread_firsts,
                departure=_departure(made, parts.get((row["tenant_id"], row["name"], row["work"]), {}), excess),
                causes=causes,
                segments=made,
            )
        )
    return sorted(found, key=lambda one: (-one.excess_ns, one.unit))


def _typical_parts(
    units: pl.DataFrame, segments: pl.DataFrame
) -> dict[tuple[int, str, str], dict[tuple[str, str | None], float]]:
    """Time of each kind and operation in a typical unit, by tenant, name and work of units."""
    import polars as pl

    usual = units.filter("typical").select("unit", "tenant_id", "work", pl.col("name").alias("of"))
    key = ["tenant_id", "of", "work"]
    counts = {tuple(row[:3]): row[3] for row in usual.group_by(key).agg(pl.len()).iter_rows()}
    sums = segments.join(usual, on="unit").group_by(*key, "kind", "name").agg(pl.col("dur_ns").sum())
    found: dict[tuple[int, str, str], dict[tuple[str, str | None], float]] = {}
    for tenant_id, of, work, kind, name, ns in sums.iter_rows():
        found.setdefault((tenant_id, of, work), {})[kind, name] = ns / counts[tenant_id, of, work]
    return found


def _segment(row: Mapping[str, Any], prepared: _Prepared) -> UnitSegment:
    return UnitSegment(
        kind=SegmentKind(row["kind"]),
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        dur_ns=row["dur_ns"],
        count=row["count"],
        other_tenant_id=row["other_tenant_id"],
        other=prepared.other(row["kind"], row["other_tenant_id"]),
        operation=row["name"],
        operation_short=prepared.short_names.get(row["name"]),
        own=row["own"],
        usual_ns=row["usual_ns"],
        basis=row["basis"],
    )


def _departure(
    segments: Iterable[UnitSegment], typical: Mapping[tuple[str, str | None], float], excess_ns: float
) -> int | None:
    """The first segment with which a kind of one operation takes longer than in a typical unit."""
    if excess_ns <= 0:
        return None
    seen: dict[tuple[str, str | None], float] = {}
    for place, one in enumerate(segments):
        key = (one.kind.value, one.operation)
        seen[key] = seen.get(key, 0.0) + one.dur_ns
        if seen[key] - typical.get(key, 0.0) > max(START_NS, DEPARTS * excess_ns):
            return place
    return None


def _beside_launches(tables: TableSet) -> str | None:
    """Say when work was launched, where no given unit contains a launch; None: one does, or none were given."""
    calls, work = tables.calls(), tables.work
    if work is None or calls is None:
        return None
    launches: list[int] = []
    for tenant in tables.tenants.filter("traced").unique(["capture", "pid", "device_id"]).rows(named=True):
        launched = _launches(tables, calls, tenant)["start_ns"]
        mine = work.filter(of_process(tenant)).select("start_ns", "end_ns")
        if any(launched.is_between(start_ns, end_ns).any() for start_ns, end_ns in mine.iter_rows()):
            return None
        launches += launched.to_list()
    if not launches:
        return None
    return f"no unit of the file contains a launch; launches are {span_text(tables, min(launches), max(launches))}"


def _missing(
    tables: TableSet, units: pl.DataFrame, doubts: Mapping[int, ResidencyDoubt], *, events: bool
) -> list[Missing]:
    """What could not be known; `events`: streams waited for events, and it is not known for which."""
    found = []
    calls = tables.calls()
    if calls is None or calls.is_empty():
        found.append(
            Missing(
                what="api_calls",
                why="the capture has no CUDA API calls: launches and synchronisations are not known",
                how=recording(switches=False),
            )
        )
    if events:
        found.append(
            Missing(
                what="event_calls",
                why="streams waited for events, and the capture does not say where these were recorded",
                how=recording("--cuda-event-trace=true", switches=False),
            )
        )
    given = (units["source"] == UnitSource.GIVEN).any()
    beside = None if given else _beside_launches(tables)
    if beside is not None:
        found.append(
            Missing(
                what="given units" if units.height else "units",
                why=beside,
                how="give the units of --work on the clock of the first capture, or as dates with a zone",
            )
        )
    elif units.is_empty():
        found.append(
            Missing(
                what="units",
                why="there are no NVTX ranges with launches inside, no graphs, and no launches between "
                "synchronisations that repeat",
                how="give units with --work FILE, or annotate the program with NVTX ranges and record it: "
                f"{recording(switches=False)}",
            )
        )
    if units.height and tables.residency.is_empty() and (tables.tenants.height > 1 or doubts):
        worst = ResidencyDoubt.UNDECIDED if ResidencyDoubt.UNDECIDED in doubts.values() else None
        worst = worst or next(iter(doubts.values()), None)
        deduced = "waiting for a time slice and context switches are inferred"
        said = deduced if worst is None else DOUBT_TEXT[worst]
        if worst is ResidencyDoubt.IF_TIME_SLICED:
            said = f"{deduced}, {said}"
        elif worst is ResidencyDoubt.IF_ALONE:
            said = "time slices of a process that was not traced would count as execution and queueing"
        found.append(
            Missing(
                what="residency",
                why=f"the capture has no switch records: {said}",
                how=f"{recording()}   # as root",
            )
        )
    return found
