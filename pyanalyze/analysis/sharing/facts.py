"""What is known of one device, before anybody judges it: facts, settings, pairs of tenants, observations.

An :class:`Observation` is one measured quantity (or one plain statement of the configured side) with unit, count and
basis. `observations.py` says in a sentence when each is made, `evidence/` makes it, and rules say what it means for
their mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.nsys_tool import TRACE
from pyanalyze.tables.export_details import WSL_KEY
from pyanalyze.vocabulary import MPS_CUT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyanalyze.results.listed import ConfiguredSharing
    from pyanalyze.results.sharing import Example
    from pyanalyze.tables.boards import Board
    from pyanalyze.tables.launch_records import LaunchRecords
    from pyanalyze.vocabulary import Basis


#: From how many tenants on they can meet.
MANY = 2


@dataclass(frozen=True)
class Observation:
    """One observation.

    ``value`` is in ``unit`` (``1`` for plain numbers), computed from ``n`` rows. Without ``tells`` it is so in every
    mode, as this capture was recorded: rules do not weigh it.
    """

    name: str
    value: float | None
    unit: str
    n: int
    basis: Basis
    detail: str
    sql: str | None = None
    examples: tuple[Example, ...] = ()
    tells: bool = True
    #: what ``n`` counts, such as kernels; empty: statements
    n_of: str = ""


@dataclass(frozen=True)
class Fact:
    """A row of the `facts` table, with its examples."""

    value: float | None
    unit: str
    n: int
    basis: Basis
    detail: str
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Configured:
    """A row of the `configured` table."""

    source: str
    key: str
    value: str
    pid: int | None = None


@dataclass(frozen=True)
class IdleProgram:
    """A program of which nsys was to trace CUDA and collected nothing.

    Attributes
    ----------
    name
        It, or ``the program``.
    stderr_lines
        Lines on standard error that the export holds; 0: none, or not known.
    """

    name: str
    stderr_lines: int = 0


@dataclass(frozen=True)
class Pair:
    """What two traced tenants of a device showed of each other: a row of `overlaps`."""

    tenants: tuple[int, int]
    co_busy_ns: int
    #: short kernels that started while the other had work, and those of them that met a short one of the other
    short_kernels: int
    short_met: int
    #: those that ran while any kernel of the other was in flight
    short_inside: int = 0
    #: neither has a context of its own in the switch records, an MPS server that launches nothing has one
    through_server: bool = False
    #: only one context is in the switch records, and it was resident all the time
    one_context: bool = False
    #: switches from one of them to the other; None: not recorded
    switches: int | None = None
    #: as many switches as the device makes on average in the time when both had work, where each of them alternated
    #: with the one other tenant of the device: of three that are time-sliced every two follow each other
    expected_switches: float = 0.0
    #: short kernels that would have met by chance if neither waited for the other
    short_expected: float = 0.0
    #: kernels that started beside one of the other that had started since the last one of their own tenant; those of
    #: them that started too soon after that last one for a time slice in between; and as many as usually do
    changes: int = 0
    quick_changes: int = 0
    quick_expected: float = 0.0
    #: whether one capture has both, or else their clocks differ by too little to matter for any of these
    one_capture: bool = True
    precise: bool = True
    #: whether their short kernels took more time than there was, one after the other
    overfull: bool = False

    @property
    def quick(self) -> bool:
        """Whether no time slice fits between their kernels.

        Examples
        --------
        >>> Pair((0, 1), 1_000_000, 0, 0, changes=100, quick_changes=40).quick
        True
        """
        return self.precise and self.quick_changes >= t.MIN_QUICK_CHANGES

    @property
    def sliced(self) -> bool:
        """Whether their kernels left each other the time of a slice, or never met, although they usually would have.

        Examples
        --------
        >>> Pair((0, 1), 1_000_000, 0, 0, changes=100, quick_expected=60.0).sliced
        True
        """
        if self.together:
            return False
        rarely = self.quick_changes <= t.MAX_EXCLUSION_SHARE * self.quick_expected
        slow = self.precise and self.quick_expected >= t.MIN_QUICK_CHANGES and rarely
        return slow or (self.excluding and self.short_expected >= t.MIN_EXPECTED_OVERLAP_SHARE * self.short_kernels)

    @property
    def together(self) -> bool:
        """Whether they ran at the same time, whatever others on the device did.

        Examples
        --------
        >>> Pair((0, 1), 1_000_000, short_kernels=100, short_met=60).together
        True
        """
        enough = self.short_kernels >= t.MIN_SHORT_KERNELS
        # The scheduler does not switch between clients of one MPS server.
        if (self.switches or 0) >= t.MIN_ALTERNATIONS:
            return False
        unswitched = self.switches == 0 and self.expected_switches >= t.MIN_EXPECTED_SWITCHES
        met = enough and self.precise and self.short_met >= t.MIN_SHORT_OVERLAP_SHARE * self.short_kernels
        return unswitched or self.through_server or self.one_context or self.overfull or met or self.quick

    @property
    def excluding(self) -> bool:
        """Whether their short kernels never met although there were many.

        Examples
        --------
        >>> Pair((0, 1), 1_000_000, short_kernels=100, short_met=1).excluding
        True
        """
        enough = self.short_kernels >= t.MIN_SHORT_KERNELS
        return enough and self.short_met <= t.MAX_EXCLUSION_SHARE * self.short_kernels


def pairs_of(
    overlaps: Iterable[Mapping[str, Any]],
    usage: Sequence[Mapping[str, Any]],
    switched: Mapping[tuple[int, int], int] = MappingProxyType({}),
    clock_errors_ns: Mapping[int, int | None] = MappingProxyType({}),
) -> tuple[Pair, ...]:
    """Read the pairs of traced tenants of one device.

    Parameters
    ----------
    overlaps
        The rows of `overlaps` of the device.
    usage
        The rows of `tenants` of the device, joined with `tenant_usage`.
    switched
        Switches of the device from one tenant to another; empty: none is recorded.
    clock_errors_ns
        By how much the clock of each capture may be wrong; None: not known.

    Returns
    -------
    tuple of Pair
        In the order of the rows; without those of which one tenant was not traced.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    >>> [pair.tenants for pair in pairs_of(session.tables.rows("overlaps"), usage.to_dicts())]
    [(0, 1)]
    """
    held = {row["tenant_id"] for row in usage if (row["resident_ns"] or 0) > 0}
    # PROCESSES cuts names of processes that were not traced at 15 characters.
    server = any(row["tenant_id"] in held and (row["name"] or "").startswith(MPS_CUT_NAME) for row in usage)
    without = {row["tenant_id"] for row in usage if row["traced"]} - held if server else set()
    # Null: one of the two was not traced.
    known = ("co_busy_ns", "short_kernels", "short_short_overlapping")
    rates = _switch_rates(usage, switched)
    captures = {row["tenant_id"]: row["capture"] for row in usage}
    one_context = _one_context(usage)
    return tuple(
        Pair(
            (one, other),
            row["co_busy_ns"],
            row["short_kernels"],
            row["short_short_overlapping"],
            row["short_overlapping"],
            through_server=one in without and other in without,
            one_context=one in one_context and other in one_context,
            switches=switched.get((one, other), 0) + switched.get((other, one), 0) if switched else None,
            expected_switches=row["co_busy_ns"] * rates.get(frozenset((one, other)), 0.0),
            short_expected=row["short_short_expected"],
            changes=row["changes_in_flight"],
            quick_changes=row["quick_changes"],
            quick_expected=row["quick_changes_expected"],
            one_capture=captures.get(one) == captures.get(other),
            precise=_precise({captures.get(one), captures.get(other)}, clock_errors_ns),
        )
        for row in overlaps
        for one, other in ((row["tenant_a"], row["tenant_b"]),)
        if all(row[name] is not None for name in known)
    )


def _precise(captures: AbstractSet[int | None], errors_ns: Mapping[int, int | None]) -> bool:
    """Whether times of these captures can be compared to within a part of a short kernel."""
    errors = [errors_ns.get(capture, 0) for capture in captures if capture is not None]
    return len(captures) == 1 or sum(t.MAX_CLOCK_ERROR_NS if ns is None else ns for ns in errors) < t.MAX_CLOCK_ERROR_NS


def _one_context(usage: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    """Traced tenants of one capture that all ran while the only context in its switch records was resident.

    Each of several contexts would have been switched in: the records name one MPS client, or its server, for all.
    """
    held = [row for row in usage if row["resident_ns"]]
    busy = [row for row in usage if row["traced"] and row["kernels"] >= t.MIN_ALTERNATIONS]
    one_capture = len({row["capture"] for row in (*held, *busy)}) == 1
    if len(held) != 1 or len(busy) < MANY or not one_capture or held[0]["basis"] != "observed":
        return frozenset()
    span_ns = max(row["last_ns"] for row in busy) - min(row["first_ns"] for row in busy)
    always = held[0]["resident_ns"] >= t.SOLE_RESIDENT_SHARE * span_ns
    return frozenset(row["tenant_id"] for row in busy) if always else frozenset()


def _switch_rates(
    usage: Sequence[Mapping[str, Any]], switched: Mapping[tuple[int, int], int]
) -> dict[frozenset[int], float]:
    """Switches per ns of residency, by pair; only pairs of which both were switched with the only third tenant."""
    between = {frozenset(ids) for ids in switched if ids[0] != ids[1]}
    tenants = frozenset(tenant for ids in between for tenant in ids)
    resident_ns: int = sum(row["resident_ns"] or 0 for row in usage)
    if len(tenants) != 3 or not resident_ns:
        return {}
    rate = sum(count for ids, count in switched.items() if ids[0] != ids[1]) / resident_ns
    return {
        tenants - {third}: rate
        for third in tenants
        if all(frozenset((one, third)) in between for one in tenants - {third})
    }


@dataclass(frozen=True)
class Case:
    """Everything a rule may look at, for one device."""

    device_id: int
    name: str | None
    uuid: str | None
    mig_profile: str | None
    vgpu_profile: str | None
    compute_capability: tuple[int, int] | None
    sm_count: int | None
    facts: Mapping[str, Fact]
    configured: Sequence[Configured]
    #: state of each source of the captures: present, empty, absent, unread
    sources: Mapping[str, str]
    #: names of the tenants with CUDA activity or residency worth the name
    tenants: Sequence[str]
    #: how Kubernetes offers it; None: ask `configured`
    set_up: ConfiguredSharing | None = None
    green_contexts: int = 0
    #: how many of these have neither a number of SMs nor a TPC mask in the export
    green_contexts_unsized: int = 0
    #: what each two traced tenants showed of each other
    pairs: Sequence[Pair] = ()
    #: switches between contexts of MPS clients, or tenants that ran together, and those of others; None: not recorded
    group_switches: int | None = None
    #: names of those that NVML lists as MPS clients, where a tenant is among them
    listed_clients: Sequence[str] = ()
    #: SMs that CUDA showed each traced process, where the export says so
    visible_sms: Sequence[int] = ()
    #: SMs of the whole board that the name means; None: not known
    product_sms: int | None = None
    #: whether it has less memory than that board; None: not known
    memory_below_product: bool | None = None
    #: whether samples say that MIG mode is on; None: they do not say
    mig_enabled: bool | None = None
    #: the MIG instance that its samples are of, such as `GI 3, CI 0`; None: they are of a board, or there are none
    sampled_instance: str | None = None
    #: most MPS clients that samples counted on the whole board at a time; None: they count none
    mps_clients: int | None = None
    #: the board of a MIG instance, and how that is known
    board: Board | None = None
    #: MIG instances that its processes may have used when nothing says that they used the same one; else 0
    instances_unassigned: int = 0
    #: whether activity carries process ids; without them tenants cannot be told apart
    pids_known: bool = True
    #: processes that NVML samples list on this device: (pid, name, type); None without such samples
    nvml_processes: Sequence[tuple[int, str, str | None]] | None = None
    #: whether there was a list, and it was empty
    nvml_listed_nobody: bool = False
    #: of these, by pid, those of which samples show that their kernels ran
    nvml_busy: AbstractSet[int] = frozenset()
    #: how long before the window (negative: after it) that list was taken; 0: in it
    nvml_apart_ns: int = 0
    #: shortest and longest median of the residency intervals of its tenants, ns, and whose they are, where these
    #: differ; None: they do not
    unlike_medians: tuple[tuple[int, str], tuple[int, str]] | None = None
    #: whether that list is of the whole board, of which this is an instance
    nvml_of_board: bool = False
    #: most of them without MPS servers that were listed at one time; None: all
    nvml_together: int | None = None
    #: names of all processes in the lists, programs with a window included
    listed_programs: Sequence[str] = ()
    #: traced tenants that are not among them: the list is of another pid namespace, or was taken beside their time
    unlisted: Sequence[str] = ()
    #: of what time everything is, in words
    scope: str = "the whole capture"
    #: whether its export is a part of the recording, as the counter samples show
    cut: bool = False
    #: how long the counter samples are, and the recording, ns, where they cover a small part of it; None: they do not
    counters_cover: tuple[int, int] | None = None
    #: whether there was a capture; samples without a capture observe nothing, and no activity in them is no idle GPU
    captured: bool = True
    #: launch calls of a session without kernels; None: there are kernels, or no calls
    launches: LaunchRecords | None = None
    #: whether the capture lists the processes of the whole machine, and none of MPS
    no_mps_process: bool = False
    #: version of the driver, where the capture says so
    driver: str | None = None
    #: the program of which nsys was to trace CUDA and collected nothing; None: it collected something, or was not to
    idle_program: IdleProgram | None = None
    #: names of tenants that were resident without being traced
    untraced: Sequence[str] = ()
    #: whether switch records were lost
    records_lost: bool = False
    #: tenants whose work goes through an MPS server's context
    served: int = 0
    #: what to trace when it is recorded again
    trace: str = TRACE
    #: the tables of the export by source, where one export shows one GPU: queries over it then give the same numbers
    tables: Mapping[str, str | None] = field(default_factory=dict)
    observations: Mapping[str, Observation] = field(default_factory=dict)

    def fact(self, name: str) -> float | None:
        """Value of a fact; None where it could not be measured.

        Examples
        --------
        >>> case = Case(0, None, None, None, None, None, None, {"kernels": Fact(2.0, "1", 2, "observed", "")},
        ...             (Configured("environment", "CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"),), {}, ())
        >>> case.fact("kernels"), case.fact("busy_ns")
        (2.0, None)
        """
        found = self.facts.get(name)
        return None if found is None else found.value

    @property
    def nothing_traced(self) -> bool:
        """Whether no tenant's work was recorded: then all that ran is of untraced processes, in every mode.

        Examples
        --------
        >>> case = Case(0, None, None, None, None, None, None, {}, (), {}, ())
        >>> case.nothing_traced  # nobody says how many were traced
        False
        """
        return self.fact("traced_tenants") == 0

    def has(self, observation: str) -> bool:
        """Whether the observation was made.

        Examples
        --------
        >>> case = Case(0, None, None, None, None, None, None, {"kernels": Fact(2.0, "1", 2, "observed", "")},
        ...             (Configured("environment", "CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"),), {}, ())
        >>> case.has("contexts_alternate")
        False
        """
        return observation in self.observations

    def weighs(self, observation: str) -> bool:
        """Whether the observation was made and tells modes apart.

        Examples
        --------
        >>> seen = {"untraced_resident": Observation("untraced_resident", 1.0, "1", 5, "observed", "", tells=False)}
        >>> case = Case(0, None, None, None, None, None, None, {}, (), {}, (), observations=seen)
        >>> case.has("untraced_resident"), case.weighs("untraced_resident")
        (True, False)
        """
        return observation in self.observations and self.observations[observation].tells

    @property
    def driver_branch(self) -> int | None:
        """Branch of the driver; None: not known.

        Examples
        --------
        >>> case = Case(0, None, None, None, None, None, None, {}, (), {}, (), driver="418.67")
        >>> case.driver_branch
        418
        """
        found = re.match(r"(\d{3})\.", self.driver or "")
        return None if found is None else int(found[1])

    @property
    def wsl(self) -> bool:
        """Whether the capture says that its machine ran WSL2.

        Examples
        --------
        >>> setting = Configured("capture-settings", WSL_KEY, "true")
        >>> Case(0, None, None, None, None, None, None, {}, (setting,), {}, ()).wsl
        True
        """
        return self.setting(WSL_KEY) is not None

    def setting(self, key: str) -> Configured | None:
        """Return the first configured row with that key.

        Examples
        --------
        >>> case = Case(0, None, None, None, None, None, None, {"kernels": Fact(2.0, "1", 2, "observed", "")},
        ...             (Configured("environment", "CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"),), {}, ())
        >>> case.setting("CUDA_MPS_PIPE_DIRECTORY").source
        'environment'
        """
        return next((row for row in self.configured if row.key == key), None)
