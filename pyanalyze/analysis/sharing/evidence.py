"""What was seen, before anybody judges it.

An :class:`Observation` is one measured quantity (or one plain statement of the configured side) with unit,
count and basis. `observations.py` says in a sentence when each is made, and rules what it means for their
mode. Observations that could not be made are :class:`pyanalyze.results.model.Missing` entries: what is missing,
why, and the command that captures it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS, MPS_PERCENTAGE, mig_sm_counts, mps_caps
from pyanalyze.analysis.mps_daemon import DEFAULT_LOGS, daemon_of, server_ran
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.observations import INFLATED
from pyanalyze.analysis.sharing.queries import query, text_literal
from pyanalyze.nsys_tool import TRACE, client_options, record_all, recording
from pyanalyze.results.model import Missing
from pyanalyze.tables.export_details import WSL_KEY
from pyanalyze.text import format as fmt
from pyanalyze.text.numbers import bounded_float
from pyanalyze.text.shell import shell_word
from pyanalyze.text.visible import program
from pyanalyze.vocabulary import COMPUTE, MPS_CLIENT, MPS_CUT_NAME, MPS_SERVER

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
#: Variables of software limiters begin so.
LIMITERS = ("CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT", "NVSHARE_")

#: The first driver branch that records context switches.
_SWITCH_RECORDS_FROM = 435

#: How to record what is missing; one place, so that every answer prints the same command.
HOW = {
    "kernel_records": "compute-sanitizer PROGRAM   # finds the kernel where a call failed; else call "
    "cudaDeviceSynchronize before the program ends, and record until then",
    "nvml": "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory --format=csv -l 1 "
    "> gpu-processes.csv   # during a recording; then --samples gpu-processes.csv",
    "export": "nsys export --type sqlite REPORT.nsys-rep   # without leaving out columns",
    "whole_export": "nsys export --type sqlite REPORT.nsys-rep   # of the recording, with all tables and rows",
    "instances": "nvidia-smi -L > gpus.txt; nvidia-smi mig -lgi > instances.txt   # then each as --context; or export "
    "with nsys 2025 or newer",
    "node": "kubectl get node NODE -o json > node.json   # the node of this GPU; then as --context",
    # The reader knows a bare pid by the command that it answers.
    "configured_mode": "nvidia-smi -L > gpus.txt; (echo get_server_list; echo get_server_list | "
    "nvidia-cuda-mps-control) > mps.txt   # MIG; MPS (nvidia-smi lists its clients as M+C); in Kubernetes: "
    "kubectl get nodes,pods,configmaps -A -o json > objects.json; then each as --context",
    "co_run": "record while the workloads run at the same time",
}


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
class Observation:
    """One observation.

    ``value`` is in ``unit`` (``1`` for plain numbers), computed from ``n`` rows.
    """

    name: str
    value: float | None
    unit: str
    n: int
    basis: Basis
    detail: str
    sql: str | None = None
    examples: tuple[Example, ...] = ()


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
    #: of these, by pid, those of which samples show that their kernels ran
    nvml_busy: AbstractSet[int] = frozenset()
    #: how long before the window (negative: after it) that list was taken; 0: in it
    nvml_apart_ns: int = 0
    #: shortest and longest median of the residency intervals of its tenants, where these differ; None: they do not
    unlike_medians_ns: tuple[int, int] | None = None
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


def observe(case: Case) -> dict[str, Observation]:
    """Make every observation that the case allows.

    Parameters
    ----------
    case
        Facts and configured rows of one device.

    Returns
    -------
    dict
        Observations by name. What is absent was not observed, or is not available (:func:`gaps` says which).

    Examples
    --------
    >>> case = Case(0, "NVIDIA A30 MIG 2g.12gb", None, "2g.12gb", None, (8, 0), 28, {}, (), {}, ("app",))
    >>> sorted(observe(case))
    ['mig_instance']
    """
    seen: list[Observation] = []
    for make in (
        _residency,
        _interrupted_group,
        _uninterrupted,
        _turns,
        _streams,
        _short_kernels,
        _changes,
        _co_residency,
        _solitude,
        _counters,
        _utilization,
        _set_up,
        _nvml,
    ):
        seen.extend(make(case))
    return {observation.name: observation for observation in seen}


#: Facts whose strongest intervals are those of another one.
EXAMPLES_OF = {
    "switches_between_tenants": "alternation_share",
    "co_busy_share": "co_busy_ns",
    "stream_overlap_share": "stream_overlap_ns",
    "inflation_ns": "inflated_share",
    "busy_share": "busy_ns",
}


def _from_fact(case: Case, fact_name: str, name: str, detail: str, examples_of: str | None = None) -> Observation:
    fact = case.facts[fact_name]
    behind = case.facts.get(examples_of or EXAMPLES_OF.get(fact_name, fact_name), fact)
    return Observation(
        name, fact.value, fact.unit, fact.n, fact.basis, detail, _query(case, name), behind.examples or fact.examples
    )


def _query(case: Case, name: str) -> str | None:
    slice_ns = case.fact("median_slice_ns")
    short_ns, bridge_ns = t.short_and_bridge_ns(slice_ns, len(case.tenants))
    literals = {"short_ns": str(short_ns), "bridge_ns": str(bridge_ns), "name": text_literal(case.name or "")}
    return query(name, case.tables, literals)


def _residency(case: Case) -> Iterable[Observation]:
    switches = case.fact("switches_between_tenants")
    share = case.fact("alternation_share")
    # Contexts of processes that never had work at the same time alternate too, in every mode: with pauses, or with
    # residency intervals far longer than any time slice.
    met = case.fact("co_busy_share")
    met_enough = (case.fact("traced_tenants") or 0) < MANY or met is None or met >= t.MIN_CO_BUSY_SHARE
    strangers = (case.fact("resident_share_untraced") or 0) >= 1 - t.SOLE_RESIDENT_SHARE
    # The mean, not the median: a context is resident now and then for a moment while it is created.
    short_slices = (case.fact("window_ns") or 0) <= (switches or 0) * t.LONGEST_SLICE_NS
    often = (switches or 0) >= t.MIN_ALTERNATIONS and (share or 0) >= t.MIN_ALTERNATION_SHARE
    alternate = often and (met_enough or strangers or short_slices)
    inside = case.facts.get("kernels_in_preemption")
    # Where contexts alternate often that says the same already.
    if inside is not None and inside.value and not alternate:
        yield _from_fact(
            case,
            "kernels_in_preemption",
            "kernel_ran_in_preemption",
            f"{fmt.counted(int(inside.value), 'kernel')} of one tenant ran while another tenant's kernel was in flight "
            "and its context switched out",
        )
    # An MPS group and another process: their contexts alternate, and the clients run concurrently.
    if alternate and any(pair.together for pair in case.pairs) and _outsider(case):
        yield _from_fact(
            case,
            "switches_between_tenants",
            "mps_group_time_sliced",
            f"{switches:.0f} context switches, while some tenants ran concurrently: an MPS group is time-sliced with "
            "another process",
        )
    elif alternate and len(case.listed_clients) >= MANY and case.group_switches is not None and _outsider(case):
        # Records name any client for the context of all: switches from one client to another are none, and no query of
        # the export tells them apart.
        same = switches == case.group_switches
        found = _from_fact(
            case,
            "switches_between_tenants",
            "mps_group_time_sliced",
            f"{case.group_switches} context switches between MPS clients, as NVML lists "
            f"{' and '.join(case.listed_clients)}, and processes that are none",
        )
        value = float(case.group_switches)
        yield replace(found, value=value, n=case.group_switches, basis="inferred", sql=found.sql if same else None)
    elif alternate and case.group_switches is not None and _mostly_together(case):
        # Others alternated before the group came, or after it: the mode changed. Named is that of most of the time.
        group_ns = sum(pair.co_busy_ns for pair in case.pairs if pair.together)
        yield _plain(
            "group_without_switches",
            f"some tenants were busy at once for {fmt.duration(group_ns)} without context switches between them; "
            "others alternated at other times",
            "inferred",
            float(group_ns),
            "ns",
        )
    elif alternate:
        slice_ns = case.fact("median_slice_ns")
        alike = slice_ns is not None and case.unlike_medians_ns is None
        length = f", median residency interval {fmt.duration(slice_ns)}" if alike else ""
        yield _from_fact(
            case,
            "switches_between_tenants",
            "contexts_alternate",
            f"contexts of different tenants alternated on the engine: {switches:.0f} context switches{length}",
        )
    top = case.facts.get("resident_share_top")
    # During the time slice of one of several tenants, it is the only resident one.
    could_alternate = not case.fact("co_busy_ns") or (case.fact("window_ns") or 0) > t.LONGEST_SLICE_NS
    held = None if top is None or top.n < t.MIN_SLICES else top.value
    # Of the clients of one MPS server the records name one (seen on an H100, driver 580): that the others
    # worked all the same speaks for MPS, and is said below.
    one_context = any(pair.one_context for pair in case.pairs)
    unnamed = (met or 0) >= t.MIN_CO_BUSY_SHARE or one_context
    if held is not None and held >= t.SOLE_RESIDENT_SHARE and could_alternate and not alternate and not unnamed:
        yield _from_fact(
            case,
            "resident_share_top",
            "sole_resident",
            f"one tenant accounts for {fmt.percent(held)} of the resident time in {case.scope}",
        )
    untraced = case.fact("resident_share_untraced")
    if untraced is not None and untraced >= 1 - t.SOLE_RESIDENT_SHARE:
        yield _from_fact(
            case,
            "resident_share_untraced",
            "untraced_resident",
            f"untraced processes account for {fmt.percent(untraced)} of the resident time in {case.scope}",
        )
    if (
        met is not None
        and met >= t.MIN_CO_BUSY_SHARE
        and switches is not None
        and switches < t.MIN_ALTERNATIONS
        and (case.fact("switch_records") or 0) > 0
        # In a short window there are few switches under time-slicing, too.
        and (case.fact("co_busy_ns") or 0) > (switches + 1) * t.LONGEST_SLICE_NS
    ):
        yield _from_fact(
            case,
            "co_busy_share",
            "busy_without_switches",
            f"several tenants were busy at once for {fmt.percent(met)} of the busy time, with "
            f"{fmt.counted(int(switches), 'context switch', 'context switches') if switches else 'no context switch'} "
            "between them",
        )
    elif one_context and not case.records_lost:
        yield _from_fact(
            case,
            "resident_share_top",
            "several_in_one_context",
            "kernels of several processes ran while the only context in the switch records was resident: records name "
            "one MPS client for the context of all",
        )


def _outsider(case: Case) -> bool:
    """Whether a tenant outside of the MPS group was time-sliced with it."""
    if case.group_switches is not None:
        # A few are those of contexts that come and go while others alternate.
        least = t.MIN_GROUP_SWITCH_SHARE * (case.fact("switches_between_tenants") or 0)
        return case.group_switches >= max(t.MIN_ALTERNATIONS, least)
    return (case.fact("resident_share_untraced") or 0) > 0 or any(not pair.together for pair in case.pairs)


def _interrupted_group(case: Case) -> Iterable[Observation]:
    """An MPS group beside another process, without switch records: kernels were switched out, but too seldom.

    Time slices of two tenants that both have work in flight interrupt a kernel each. Where fewer kernels were
    interrupted than that, and by one and the same time, most of the pair's work ran concurrently.
    """
    if case.fact("switch_records"):
        return
    beside = _sliced_with_group(case)
    if beside:
        kernels = sum(pair.changes + pair.short_kernels for pair in beside)
        yield Observation(
            "mps_group_time_sliced",
            float(kernels),
            "kernels",
            kernels,
            "inferred",
            "some processes ran concurrently, and their kernels waited for time slices of another process: an MPS "
            "group is time-sliced with it",
        )
        return
    excess, spread = case.facts.get("inflation_ns"), case.fact("inflation_spread")
    if excess is None or not excess.value or spread is None:
        return
    longest = max((pair.co_busy_ns for pair in case.pairs), default=0)
    due = longest / excess.value
    repeated = (case.fact("repeats") or 0) >= t.MIN_REPEATED_SHARE * (case.fact("kernels") or 0)
    if (
        t.MIN_INFLATED <= excess.n <= t.MAX_INTERRUPTED_SHARE * due
        and spread <= t.MAX_SLICE_SPREAD
        and t.DEFAULT_SLICE_EXCESS_NS[0] <= excess.value <= t.LONGEST_SLICE_NS
        and repeated
        and (_mps_server(case) or any(pair.together for pair in case.pairs))
    ):
        yield _from_fact(
            case,
            "inflation_ns",
            "mps_group_interrupted",
            f"{excess.n} kernels were switched out for the same {fmt.duration(excess.value)}, but time slices of two "
            f"tenants that were busy at once for {fmt.duration(longest)} would have interrupted {due:.0f}: an MPS "
            "group beside another process",
        )


def _sliced_with_group(case: Case) -> list[Pair]:
    """Find certainly time-sliced pairs of one tenant that ran concurrently with a third, and one that did not."""
    group = {tenant for pair in case.pairs if pair.together for tenant in pair.tenants}
    return [pair for pair in case.pairs if pair.sliced and len(group.intersection(pair.tenants)) == 1]


#: Compute capabilities of boards that MIG can partition (MIG user guide, supported GPUs): A100 and A30, H100 and
#: H200, B200 and B300, RTX PRO Blackwell. No GeForce is among them.
_WITH_MIG = frozenset({(8, 0), (9, 0), (10, 0), (10, 3), (12, 0)})


def may_be_instances(case: Case) -> bool:
    """Whether MIG could partition the board.

    Examples
    --------
    >>> may_be_instances(Case(0, "Tesla P100-PCIE-16GB", None, None, None, (6, 0), 56, {}, (), {}, ("app",)))
    False
    """
    if case.compute_capability is not None and case.compute_capability not in _WITH_MIG:
        return False
    return "geforce" not in (case.name or "").lower()


def _uninterrupted(case: Case) -> Iterable[Observation]:
    """Kernels of several tenants were in flight at once for many time slices, and none was switched out.

    Instances of one board do the same where the export names the board.
    """
    inflated = case.facts.get("inflated_share")
    if inflated is None or inflated.value is None or case.fact("switch_records") or may_be_instances(case):
        return
    longest = max((pair.co_busy_ns for pair in case.pairs), default=0)
    due = longest / DEFAULT_SLICE_NS
    interrupted = inflated.value * inflated.n
    # Of kernels that are each interrupted none is longer than the others.
    short = inflated.n >= t.MIN_KERNELS_TO_SLICES * due
    repeated = inflated.n >= t.MIN_REPEATED_SHARE * (case.fact("kernels") or 0)
    most = min(t.MAX_UNINTERRUPTED_SHARE * due, longest / (2 * t.LONGEST_SLICE_NS))
    if due >= t.MIN_SLICES_DUE and short and repeated and interrupted <= most:
        yield _from_fact(
            case,
            "inflated_share",
            "uninterrupted_together",
            f"{interrupted:.0f} of {inflated.n} repeated kernels were interrupted, but time slices of two tenants that "
            f"were busy at once for {fmt.duration(longest)} would have interrupted {due:.0f}",
            "co_busy_ns",
        )


def _mostly_together(case: Case) -> bool:
    together = sum(pair.co_busy_ns for pair in case.pairs if pair.together)
    return together > sum(pair.co_busy_ns for pair in case.pairs if not pair.together)


def _turns(case: Case) -> Iterable[Observation]:
    """Processes that had the device in turn, for longer than any time slice, and never had work at the same time."""
    turn, pause = case.facts.get("turn_ns"), case.fact("turn_pause_share")
    if turn is None or turn.value is None or pause is None:
        return
    if turn.n >= t.MIN_TURNS and turn.value > t.LONGEST_SLICE_NS and pause <= t.MAX_TURN_PAUSE_SHARE:
        yield _from_fact(
            case,
            "turn_ns",
            "turns_in_software",
            f"the processes had the GPU in turn, {turn.n} times for {fmt.duration(turn.value)} (median), and never had "
            "kernels in flight at the same time: software keeps them apart (a scheduler, a lock, or one waits for the "
            "other)",
        )


def _streams(case: Case) -> Iterable[Observation]:
    share = case.fact("stream_overlap_share")
    # Streams of several processes have the same numbers.
    if share is None or not case.pids_known:
        return
    if share >= t.MIN_STREAM_OVERLAP_SHARE:
        yield _from_fact(
            case,
            "stream_overlap_share",
            "streams_overlap",
            f"kernels of several streams of one process ran concurrently for {fmt.percent(share)} of its busy time",
        )
    elif share <= t.MAX_TAIL_OVERLAP_SHARE:
        streams = case.fact("streams_used") or 0
        yield _from_fact(
            case,
            "stream_overlap_share",
            "streams_apart",
            f"streams in use: {streams:.0f}; they overlap for {fmt.percent(share)} of the busy time",
            "stream_changes" if streams >= MANY else "busy_ns",
        )


def _short_kernels(case: Case) -> Iterable[Observation]:
    share = case.facts.get("short_overlap_share")
    if share is None or share.value is None or share.n < t.MIN_SHORT_KERNELS:
        return
    # A clock that is wrong by as much as a short kernel lasts lets them meet by chance, but never keeps them apart.
    precise = all(pair.precise for pair in case.pairs)
    if share.value >= t.MIN_SHORT_OVERLAP_SHARE and precise and (_mostly_together(case) or not case.pairs):
        yield _from_fact(
            case,
            "short_overlap_share",
            "short_kernels_overlap",
            f"short kernels of different tenants ran concurrently: {fmt.percent(share.value)} of the "
            f"{fmt.count(share.n)} that could meet work of another tenant did",
        )
    elif any(pair.overfull for pair in case.pairs):
        yield _plain(
            "short_kernels_overlap",
            "short kernels of different processes took more time than there was: many of them ran concurrently",
            "inferred",
        )
    elif (
        share.value <= t.MAX_EXCLUSION_SHARE
        and not _inside_stable(case)
        # Against residency intervals of a second every kernel is short.
        and (case.fact("median_slice_ns") or 0) <= t.LONGEST_SLICE_NS
        and (case.fact("short_overlap_expected") or 0) >= t.MIN_EXPECTED_OVERLAP_SHARE
    ):
        yield _from_fact(
            case,
            "short_overlap_share",
            "short_kernels_exclude",
            f"short kernels of different tenants hardly ever overlap: {fmt.percent(share.value)} of "
            f"{fmt.count(share.n)}, where {fmt.percent(case.fact('short_overlap_expected') or 0)} would by chance",
            "short_kernels_contended",
        )


def _changes(case: Case) -> Iterable[Observation]:
    """How soon kernels followed the last one of their tenant where another tenant had started one in between.

    That one is in flight: its tenant did not yield, so that under time-slicing it had the engine for a whole slice.
    """
    known = [pair for pair in case.pairs if pair.precise]
    changes, quick = sum(pair.changes for pair in known), sum(pair.quick_changes for pair in known)
    basis: Basis = "observed"
    if any(pair.quick for pair in known):
        name, n = "changes_within_slice", quick
        text = (
            f"{fmt.counted(n, 'kernel')} started within 0.8 ms of the last one of their process although another "
            "process's kernel had started in between: a time slice is longer"
        )
    elif not quick and any(pair.sliced and pair.quick_expected >= t.MIN_QUICK_CHANGES for pair in known):
        # That none did is no record of a time slice.
        name, n, basis = "changes_after_slice", changes, "inferred"
        text = (
            f"{fmt.counted(n, 'time', 'times')} another process's kernel started between two kernels of a process: "
            "these never started within 0.8 ms of each other; run concurrently, about "
            f"{sum(pair.quick_expected for pair in known):.0f} would have"
        )
    else:
        return
    examples = case.facts["co_busy_ns"].examples if "co_busy_ns" in case.facts else ()
    yield Observation(name, float(n), "kernels", changes, basis, text, _query(case, name), examples)


def _inside_stable(case: Case) -> bool:
    """Whether short kernels mostly ran inside long kernels of the other tenant that kept their usual duration.

    Time-slicing inflates the kernels that it interrupts, so it did not keep the short ones from overlapping.
    """
    inflated = case.fact("inflated_share")
    if inflated is None or inflated > t.MAX_STABLE_SHARE:
        return False
    return any(pair.short_kernels and 2 * pair.short_inside > pair.short_kernels for pair in case.pairs)


def _solitude(case: Case) -> Iterable[Observation]:
    traced = case.facts.get("traced_tenants")
    # Without process ids the number of processes is not known: that is no evidence of one, nor of several.
    if not case.pids_known:
        return
    if traced is not None and traced.value == 1:
        yield _from_fact(case, "traced_tenants", "one_traced_tenant", "nsys traced CUDA work of one process")
    elif traced is not None and traced.value is not None and traced.value > 1:
        yield _from_fact(
            case,
            "traced_tenants",
            "several_traced_tenants",
            f"nsys traced CUDA work of {traced.value:.0f} processes",
        )
    # The activity of another traced tenant is known: undisturbed kernels prove nothing about it.
    sole = traced is not None and (traced.value or 0) < MANY
    prompt = case.facts.get("prompt_start_share")
    # Where another tenant delays starts, it is there whatever else shows: its work is too short to inflate kernels.
    delayed = sole and _delayed(case)
    if sole and not delayed and prompt is not None and prompt.value is not None and starts_promptly(case.facts):
        yield _from_fact(
            case,
            "prompt_start_share",
            "prompt_starts",
            f"{fmt.percent(prompt.value)} of {prompt.n} kernels after a copy of 50 us or more in their stream "
            "started within 0.1 ms; another busy tenant would have delayed them",
        )
    if sole:
        yield from _idle_starts(case)
    exposure = case.fact("preemption_exposure")
    inflated = case.facts.get("inflated_share")
    if exposure is None or inflated is None or inflated.value is None:
        return
    # A rarely active tenant interrupts few of many kernels: so many at all are no accident.
    interrupted = case.facts.get("inflation_ns")
    visited = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    unbroken = case.fact("unbroken_exposure")
    deviating = case.facts.get("deviating_share")
    stable = sole and not delayed and durations_stable(case.facts)
    if stable and unbroken is not None and deviating is not None:
        yield _from_fact(
            case,
            "deviating_share",
            "kernel_durations_stable",
            f"durations are stable: {fmt.percent(deviating.value)} of {deviating.n} repeated launches (same kernel, "
            "grid and block) took over 0.8 ms more or less than their median; in its busy stretches (no pause of "
            f"50 us) another busy tenant would have had {unbroken:.0f} time slices (2.1 ms each, assumed)",
        )
    elif exposure >= t.MIN_EXPOSURE and inflated.n >= t.MIN_REPEATS and inflated.value >= t.MIN_INFLATED_SHARE:
        yield _from_fact(
            case,
            "inflated_share",
            "kernel_durations_inflated",
            f"{fmt.percent(inflated.value)} of {inflated.n} repeated kernels {INFLATED}",
        )
        yield from _slices(case)
    elif exposure >= t.MIN_EXPOSURE and visited and interrupted is not None:
        yield _from_fact(
            case,
            "inflation_ns",
            "interrupted_kernels",
            f"at least {interrupted.n} of {inflated.n} repeated kernels were interrupted: they {INFLATED}",
        )
        yield from _slices(case)


def starts_promptly(facts: Mapping[str, Fact]) -> bool:
    """Whether kernels behind copies started at once, often enough to say that no busy tenant was there.

    Examples
    --------
    >>> starts_promptly({"prompt_start_share": Fact(1.0, "1", 50, "observed", "")}), starts_promptly({})
    (True, False)
    """
    prompt = facts.get("prompt_start_share")
    if prompt is None or prompt.value is None:
        return False
    return prompt.n >= t.MIN_PROMPT_STARTS and prompt.value >= t.MIN_PROMPT_START_SHARE


def durations_stable(facts: Mapping[str, Fact]) -> bool:
    """Whether repeated kernels were not interrupted, in enough work to say that no busy tenant was there.

    Examples
    --------
    >>> durations_stable({})
    False
    """
    deviating, interrupted = facts.get("deviating_share"), facts.get("inflation_ns")
    # A tenant that pauses before its time slice ends yields the engine: its kernels are not inflated in any mode.
    unbroken = facts.get("unbroken_exposure")
    if deviating is None or deviating.value is None or unbroken is None:
        return False
    visited = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    quiet = deviating.n >= t.MIN_REPEATS and deviating.value <= t.MAX_STABLE_SHARE and not visited
    # Of short kernels few are cut, in however many slices.
    uncut = deviating.value * deviating.n <= t.MAX_CUT_SHARE * (unbroken.value or 0)
    return (unbroken.value or 0) >= t.MIN_EXPOSURE and quiet and uncut


def _delayed(case: Case) -> bool:
    """Whether a notable part of the kernels that an idle process launched waited for something that is not its own."""
    share, delay = case.facts.get("idle_start_delayed_share"), case.facts.get("idle_start_delay_ns")
    if share is None or share.value is None or delay is None:
        return False
    # On Windows launches are batched, which delays them by milliseconds.
    windows = _is_windows(case) is not None or any(".exe" in name.lower() for name in case.tenants)
    return delay.n >= t.MIN_SLICE_WAITS and share.value >= t.MIN_DELAYED_SHARE and not windows


def _idle_starts(case: Case) -> Iterable[Observation]:
    """How long kernels waited that were launched while their process had nothing on the device."""
    if not _delayed(case):
        # What says already that no busy tenant was there is not said twice.
        if not starts_promptly(case.facts) and not durations_stable(case.facts):
            yield from _prompt_launches(case)
        return
    launches, delay = case.facts["idle_start_delayed_share"].n, case.facts["idle_start_delay_ns"]
    wait, spread = case.facts.get("idle_start_wait_ns"), case.fact("idle_start_wait_spread")
    low, high = t.DEFAULT_SLICE_EXCESS_NS
    if (
        wait is not None
        and wait.value is not None
        and spread is not None
        and spread <= t.MAX_SLICE_SPREAD
        and wait.n >= max(t.MIN_SLICE_WAITS, t.MIN_DELAYED_SHARE * launches)
        and any(low <= wait.value / n <= high for n in range(1, t.MOST_SLICES_WAITED + 1))
    ):
        factor = case.fact("idle_start_latency_factor") or 1.0
        yield _from_fact(
            case,
            "idle_start_wait_ns",
            "waits_of_time_slices",
            f"{wait.n} of {launches} kernels that were launched while their process had no work on the GPU waited the "
            f"same {fmt.duration(wait.value)} (within {fmt.percent(spread, 0)}), which made their latency "
            f"{fmt.ratio(factor)}: consistent with time slices of an untraced process",
        )
    else:
        yield _from_fact(
            case,
            "idle_start_delayed_share",
            "idle_starts_delayed",
            f"{delay.n} of {launches} kernels that were launched while their process had no work on the GPU waited "
            f"0.1 ms or more (median {fmt.duration(delay.value or 0.0)}): work of an untraced process was in their way",
        )


def _prompt_launches(case: Case) -> Iterable[Observation]:
    """Launches onto an idle process that started at once; soon after its own work they say less than later."""
    for name, observation, when in (
        ("idle_start", "idle_starts_prompt", "0.1 ms or more after"),
        ("soon_start", "soon_starts_prompt", "less than 0.1 ms after"),
    ):
        prompt, periods = case.facts.get(f"{name}_prompt_share"), case.fact(f"{name}_exposure")
        if prompt is None or prompt.value is None or periods is None:
            continue
        if prompt.value >= t.MIN_PROMPT_START_SHARE and periods >= t.MIN_EXPOSURE:
            yield _from_fact(
                case,
                f"{name}_prompt_share",
                observation,
                f"{fmt.percent(prompt.value)} of {prompt.n} kernels that were launched {when} their process had work "
                f"on the GPU started within 0.1 ms, spread over {periods:.0f} lengths of a time slice",
            )
            return


def _slices(case: Case) -> Iterable[Observation]:
    """By how much kernels are inflated: time slices of another tenant add the same to kernels of any length."""
    excess, spread = case.facts.get("inflation_ns"), case.fact("inflation_spread")
    if excess is None or excess.value is None or spread is None or excess.n < t.MIN_INFLATED:
        return
    low, high = t.DEFAULT_SLICE_EXCESS_NS
    adds = spread * t.MIN_RATIO_TO_EXCESS_SPREAD <= (case.fact("inflation_ratio_spread") or 0)
    if (
        spread <= t.MAX_SLICE_SPREAD
        and excess.value <= t.LONGEST_SLICE_NS * MANY
        and (adds or low <= excess.value <= high)
    ):
        yield _from_fact(
            case,
            "inflation_ns",
            "kernel_durations_inflated_by_slices",
            f"{excess.n} kernels were delayed by the same {fmt.duration(excess.value)} (within "
            f"{fmt.percent(spread, 0)}): "
            "consistent with time slices of another process",
        )


def _co_residency(case: Case) -> Iterable[Observation]:
    """Whether kernels of several tenants were in flight that the SMs could not hold at once.

    A large kernel that was switched out is longer than usual by a time slice. One whose client is capped is not: it
    leaves SMs free all the time.
    """
    known = _crowded(case, "crowded_start_share")
    # Blocks of a stream of higher priority find room in any wave.
    unknown = _crowded(case, "crowded_start_share_unknown_priority")
    name = "crowded_start_share" if known is not None else "crowded_start_share_unknown_priority"
    share = known if known is not None else unknown
    if share is None or not all(pair.precise for pair in case.pairs):
        return
    if share >= t.MIN_CROWDED_SHARE:
        early = (
            f"{fmt.percent(share)} of {case.facts[name].n} kernels that started beside another tenant's large kernel "
            f"(3 waves or more{', same priority' if name == 'crowded_start_share' else ''}) did so over two waves "
            "before its end"
        )
        if any(pair.quick for pair in case.pairs) and not any(pair.sliced for pair in case.pairs):
            text = f"{early}, and none was switched out: it could not use all SMs"
            # Each process sees its own instance, and some exports show the board's UUID for each.
            apart = case.mig_profile is not None and not any(pair.quick and pair.one_capture for pair in case.pairs)
            yield _from_fact(case, name, "instance_unknown" if apart else "sms_left_free", text)
        elif known is None:
            yield _from_fact(case, name, "co_residency_unlikely", f"{early}; stream priorities are not known")
        elif _switched_out(case):
            yield _from_fact(case, name, "co_residency_infeasible", f"{early}: it was switched out")
        else:
            text = f"{early}: it was switched out, or could not use all SMs"
            yield _from_fact(case, name, "co_residency_doubtful", text)
    # A time slice of another tenant inside the wide kernel would inflate its waves.
    elif share <= t.MAX_PARTIAL_WAVE_SHARE and (case.fact("inflated_share") or 0) <= t.MAX_STABLE_SHARE:
        yield _from_fact(
            case,
            name,
            "starts_in_partial_last_wave",
            f"{fmt.percent(1 - share)} of {case.facts[name].n} kernels that started beside another "
            "tenant's large kernel (3 waves or more) did so in its last two waves, as concurrent kernels do",
        )


def _switched_out(case: Case) -> bool:
    """Whether kernels show that time slices of another tenant interrupted them."""
    interrupted = case.facts.get("inflation_ns")
    several = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    return several or any(pair.sliced for pair in case.pairs)


def _crowded(case: Case, name: str) -> float | None:
    share = case.facts.get(name)
    return None if share is None or share.n < t.MIN_CROWDED_STARTS else share.value


def _counters(case: Case) -> Iterable[Observation]:
    outside = case.facts.get("metric_outside_pct")
    # Without process ids those that were traced may be several.
    if not case.pids_known:
        return
    if outside is None or outside.value is None or outside.n < t.MIN_COUNTER_SAMPLES:
        return
    # That nobody else worked says nothing of how several traced processes shared the GPU.
    alone = (case.fact("traced_tenants") or 0) < MANY
    mean = f"mean of {outside.n} samples of {case.scope}"
    untraced = case.fact("busy_ns") == 0
    when = f"({mean}), and no kernel was traced" if untraced else f"while no traced kernel ran ({mean})"
    if outside.value <= t.MAX_QUIET_SM_ACTIVE_PCT and alone:
        yield _from_fact(
            case,
            "metric_outside_pct",
            "sm_idle_outside_traced_kernels",
            # Copies keep no SM active.
            f"SM activity was {outside.value:.2f} % {when}: no {'' if untraced else 'other '}process ran a kernel",
        )
    elif outside.value >= t.MIN_LOUD_SM_ACTIVE_PCT:
        yield _from_fact(
            case,
            "metric_outside_pct",
            "sm_active_outside_traced_kernels",
            f"SM activity was {outside.value:.1f} % {when}: this is {'an untraced' if untraced else 'another'} "
            "process, or work that CUPTI does not record",
        )


def _utilization(case: Case) -> Iterable[Observation]:
    """The driver counted kernels for far more of the time than traced ones ran."""
    lowest, traced = case.facts.get("utilization_pct"), case.fact("utilization_traced_pct")
    if lowest is None or lowest.value is None or traced is None or not case.pids_known:
        return
    if lowest.n >= t.MIN_UTILIZATION_SAMPLES and lowest.value - traced >= t.MIN_UTILIZATION_EXCESS_PCT:
        yield _from_fact(
            case,
            "utilization_pct",
            "utilization_above_traced",
            f"GPU utilisation was at least {lowest.value:.0f} % in {lowest.n} samples, and traced kernels explain at "
            f"most {traced:.0f} %: this is another process, or work that CUPTI does not record",
        )


def _plain(
    name: str,
    detail: str,
    basis: Basis = "configured",
    value: float | None = None,
    unit: str = "1",
    sql: str | None = None,
) -> Observation:
    return Observation(name, value, unit, 1, basis, detail, sql)


def _of_device(case: Case, name: str, detail: str) -> Observation:
    """What the device's name says; its number is that of its SMs."""
    sms = None if case.sm_count is None else float(case.sm_count)
    return _plain(name, detail, "observed", sms, "SMs", _query(case, name))


def _set_up(case: Case) -> Iterable[Observation]:
    if case.mig_profile is not None:
        yield _of_device(case, "mig_instance", f"the device is the MIG instance {case.mig_profile} ({case.name})")
        if "c." in case.mig_profile:
            yield _of_device(
                case,
                "mig_compute_instance",
                f"{case.mig_profile} is a compute instance; other compute instances may share its GPU instance",
            )
    elif case.mig_enabled and case.vgpu_profile is None:
        yield replace(
            _of_device(case, "mig_instance", "samples say that MIG mode is on: work runs in instances only"),
            basis="sampled",
        )
    if case.instances_unassigned > 1 and (case.fact("traced_tenants") or 0) >= MANY:
        yield _plain(
            "instance_unknown",
            f"the capture lists {case.instances_unassigned} MIG instances, but not which process used which",
            "observed",
            float(case.instances_unassigned),
            sql=_query(case, "instance_unknown"),
        )
    if case.vgpu_profile is not None:
        backed = case.vgpu_profile.count("-") >= 2
        yield _of_device(case, "vgpu_mig_name" if backed else "vgpu_name", f"the device is a virtual GPU ({case.name})")
    yield from _visible_sms(case)
    yield from _less_memory(case)
    if case.green_contexts:
        yield _plain(
            "green_contexts",
            f"green contexts with SM sets of their own: {case.green_contexts}",
            "observed",
            float(case.green_contexts),
            sql=_query(case, "green_contexts"),
        )
    daemon = case.setting("mps_daemon")
    if daemon is not None and _mps_server(case):
        yield _plain("mps_daemon", f"an MPS daemon and its server were running ({daemon.source})")
    elif daemon is not None:
        yield _plain("mps_daemon_idle", f"an MPS control daemon was running, without a server ({daemon.source})")
    server = case.setting("mps_client")
    if server is not None:
        yield _plain("mps_client_connected", "an MPS log shows connected clients")
    for key, name in (
        (MPS_PERCENTAGE, "mps_percentage"),
        ("CUDA_MPS_SM_PARTITION", "mps_sm_partition"),
        ("CUDA_MPS_PIPE_DIRECTORY", "mps_pipe"),
    ):
        row = case.setting(key)
        if row is not None and row.value and not _is_full_percentage(name, row.value):
            number = bounded_float(row.value) if name == "mps_percentage" else None
            yield _plain(name, f"{key}={row.value} ({row.source})", "configured", number, "%" if number else "1")
    yield from _caps(case)
    if case.compute_capability is not None and case.compute_capability[0] < 7:
        yield _plain(
            "pre_volta",
            f"compute capability {case.compute_capability[0]}.{case.compute_capability[1]}",
            "observed",
            case.compute_capability[0] + case.compute_capability[1] / 10,
            sql=_query(case, "pre_volta"),
        )
    yield from _limiter(case)


def _limiter(case: Case) -> Iterable[Observation]:
    rows = [row for row in case.configured if row.key.startswith(LIMITERS)]
    if not rows:
        return
    yield _plain("software_limiter", f"{rows[0].key} is set: a software limiter intercepts the CUDA library")
    # 0 and 100 are no limit of SMs; others of its variables limit memory.
    limits = [number for row in rows if row.key == "CUDA_DEVICE_SM_LIMIT" and (number := bounded_float(row.value))]
    busy = case.facts.get("busy_share")
    if min(limits, default=100.0) < 100 and busy and (busy.value or 1.0) <= t.MAX_HELD_BACK_BUSY_SHARE:
        yield replace(
            _from_fact(
                case,
                "busy_share",
                "idle_behind_limiter",
                f"the limit is {min(limits):.0f} % of the SMs, and no kernel was in flight for "
                f"{fmt.percent(1 - (busy.value or 0))} of the window",
            ),
            basis="inferred",
        )


def _caps(case: Case) -> Iterable[Observation]:
    """MPS percentages without effect, or with a sum above 100 %."""
    caps = [percentage for _, percentage in mps_caps((row.key, row.value, row.pid) for row in case.configured)]
    capped = [percentage for percentage in caps if percentage < 100]
    # A cap of nearly all SMs is rounded to pairs of them.
    low = min(capped, default=100.0)
    shown = case.visible_sms and case.sm_count and min(case.visible_sms) >= case.sm_count
    if shown and low <= t.MAX_TELLING_PERCENTAGE and case.mig_profile is None:
        yield Observation(
            "cap_without_effect",
            float(min(case.visible_sms)),
            "SMs",
            len(case.visible_sms),
            "observed",
            f"{MPS_PERCENTAGE}={low:g} was set, but every process saw all {case.sm_count} SMs: the cap had no effect",
            _query(case, "cap_without_effect"),
        )
    if len(capped) >= MANY and sum(caps) > t.WHOLE_PERCENTAGE:
        yield _plain(
            "caps_over_100",
            f"the MPS percentages of {len(caps)} processes add up to {sum(caps):g} %: they may share SMs",
            value=sum(caps),
            unit="%",
        )


def _mps_server(case: Case) -> bool:
    return server_ran((row.key, row.value, row.pid) for row in case.configured)


def _visible_sms(case: Case) -> Iterable[Observation]:
    """Fewer SMs than the GPU has: those of a cap, or of a MIG instance that goes by its board's name."""
    if case.mig_profile is not None or case.vgpu_profile is not None or not case.sm_count:
        return
    whole = max(case.sm_count, case.product_sms or 0)
    visible = case.visible_sms or (case.sm_count,)
    if not any(sms < whole for sms in visible):
        return
    daemon = _mps_server(case) or case.setting(MPS_PERCENTAGE) is not None
    if case.mig_enabled and not daemon:
        return  # those of the instance
    # An instance has less memory, too.
    profiles = mig_sm_counts(case.name or "")
    possible = all(sms in profiles for sms in visible) and case.mig_enabled is not False
    like_mig = possible and not daemon and (case.sm_count == whole or case.memory_below_product is not False)
    counts = ", ".join(str(sms) for sms in sorted(visible))
    shown = bool(case.visible_sms)
    name = "sms_like_mig" if like_mig else "sms_hidden"
    yield Observation(
        name,
        float(min(visible)),
        "SMs",
        len(visible),
        "observed",
        (
            f"the processes saw {counts} of {whole} SMs"
            if shown
            else f"{counts} of the {whole} SMs of a {case.name} show"
        )
        + (", as many as MIG instances of this board have" if like_mig else ""),
        _query(case, name) if shown else None,
    )


def _less_memory(case: Case) -> Iterable[Observation]:
    """Less memory than the named board has, and all of its SMs: MIG leaves fewer SMs as well."""
    whole = case.product_sms is not None and case.sm_count == case.product_sms
    if case.memory_below_product and whole and case.mig_profile is None and case.vgpu_profile is None:
        yield _plain(
            "memory_below_product",
            f"less memory shows than a {case.name} has, but all of its {case.sm_count} SMs: a virtual GPU, or a limit "
            "in software",
            "observed",
        )


def _is_full_percentage(name: str, value: str) -> bool:
    return name == "mps_percentage" and (bounded_float(value) or 0.0) >= 100.0


def _is_windows(case: Case) -> str | None:
    """How it is known that the machine runs Windows or WSL2, where MPS does not exist; None: it is not."""
    if case.wsl:
        return "the kernel of the recorded machine is that of WSL2"
    model = case.setting("driver_model.current")
    if model is not None and model.value in ("WDDM", "MCDM", "TCC"):
        return f"the driver model is {model.value}"
    for name in case.listed_programs:
        if name == "/Xwayland":
            return "the driver lists the X server of WSL2"
        if "\\" in name or name.lower().endswith(".exe"):
            return "the driver lists Windows programs"
    return None


def _nvml(case: Case) -> Iterable[Observation]:
    windows = _is_windows(case)
    if windows is not None:
        why = f"{windows}: MPS does not exist on Windows or WSL2"
        yield Observation("mps_impossible", None, "1", 1, "observed" if case.wsl else "sampled", why)
    if case.nvml_processes is None:
        return
    clients = [p for p in case.nvml_processes if MPS_SERVER not in p[1]]
    servers = len(case.nvml_processes) - len(clients)
    if servers:
        yield Observation(
            "nvml_mps_server",
            float(servers),
            "processes",
            servers,
            "sampled",
            f"NVML lists {MPS_SERVER}{_taken(case)}",
        )
    of_mps = sum(kind == MPS_CLIENT for _, _, kind in clients)
    if of_mps:
        yield Observation(
            "nvml_mps_clients",
            None,
            "1",
            of_mps,
            "sampled",
            f"NVML lists MPS clients (type {MPS_CLIENT}){_taken(case)}",
        )
    # Names alone, without types, do not tell clients from others.
    elif not servers and len(clients) > 1 and all(kind == COMPUTE for _, _, kind in clients):
        yield Observation(
            "nvml_no_mps_clients",
            float(len(clients)),
            "processes",
            len(clients),
            "sampled",
            f"NVML lists {len(clients)} processes of type {COMPUTE} and none of type {MPS_CLIENT}{_taken(case)}",
        )
    yield from _outside_mps(case)
    together = len(clients) if case.nvml_together is None else case.nvml_together
    # A list that lacks traced processes cannot show that there were no others.
    if len(clients) == 1 and not case.unlisted:
        yield Observation(
            "nvml_one_process",
            1.0,
            "processes",
            1,
            "sampled",
            f"NVML lists one compute process on the GPU{_taken(case)}",
        )
    # Of a board's processes some may be in other instances.
    elif together > 1 and not case.nvml_of_board:
        yield Observation(
            "nvml_several_processes",
            float(together),
            "processes",
            together,
            "sampled",
            f"NVML lists {together} compute processes{' beside the MPS server' if servers else ''} on the GPU"
            f"{' at a time' if together < len(clients) else ''}{_taken(case)}",
        )


def _outside_mps(case: Case) -> Iterable[Observation]:
    """Processes that are listed beside MPS clients and are none: their work is time-sliced with the server's."""
    listed = case.nvml_processes or ()
    clients = [pid for pid, _, kind in listed if kind == MPS_CLIENT]
    # Of others the list gives no type, or a type of graphics.
    outside = [(pid, name) for pid, name, kind in listed if kind == COMPUTE and MPS_CUT_NAME not in name]
    if not clients or not outside:
        return
    busy = [(pid, name) for pid, name in outside if pid in case.nvml_busy]
    both = bool(busy) and not case.nvml_busy.isdisjoint(clients)
    found = busy if both else outside
    names = fmt.names([f"{program(name) or 'process'} (pid {pid})" for pid, name in found], 3)
    said = f"NVML lists {fmt.counted(len(found), 'process', 'processes')} outside of MPS (type {COMPUTE}): {names}"
    yield Observation(
        "outside_mps_busy" if both else "nvml_outside_mps",
        float(len(found)),
        "processes",
        len(found),
        "sampled",
        f"{said}{'; its kernels ran, as those of clients did' if both else ''}{_taken(case)}",
    )


def _taken(case: Case) -> str:
    """Say when the list of processes was taken, where that was not in the window."""
    apart_ns = case.nvml_apart_ns
    return "" if not apart_ns else f", {fmt.duration(abs(apart_ns))} {'before' if apart_ns > 0 else 'after'} the window"


def lost_launches(records: LaunchRecords) -> Missing:
    """Say of which launches no kernel has a record, and what would bring them.

    Examples
    --------
    >>> from pyanalyze.tables.launch_records import LaunchRecords
    >>> lost_launches(LaunchRecords(3, 2, (), 0, 2)).how, lost_launches(LaunchRecords(3, 2, ())).how[:17]
    ('', 'compute-sanitizer')
    """
    if records.only_unfinished:
        how = records.how_to_finish
    else:
        how = HOW["whole_export" if records.export_cut and not records.errors else "kernel_records"]
    return Missing(what="kernel_records", why=records.describe(), how=how)


def _client(case: Case) -> str | None:
    """The variable by which MPS clients found their daemon, with its value; None: nobody is known to be one."""
    if not any(map(case.has, ("nvml_mps_clients", "mps_client_connected", "mps_group_time_sliced"))):
        return None
    pipe = case.setting("CUDA_MPS_PIPE_DIRECTORY")
    return "" if pipe is None or not pipe.value else f"{pipe.key}={shell_word(pipe.value)}"


def gaps(case: Case) -> list[Missing]:
    """List what is not available and would have helped.

    Parameters
    ----------
    case
        One device.

    Returns
    -------
    list of Missing
        Each with the command that captures it.

    Examples
    --------
    >>> case = Case(0, None, None, None, None, None, None, {}, (), {"switch_events": "absent"}, ())
    >>> [gap.what for gap in gaps(case)]
    ['context_switches', 'process_list']
    """
    found: list[Missing] = []
    client = _client(case)
    if not case.fact("switch_records"):
        state = case.sources.get("switch_events", "absent")
        why = {
            "absent": "the capture has no context-switch table"
            if case.captured
            else "there is no capture, only samples",
            "empty": "there are no context-switch records: no two contexts alternated, or recording them was not "
            "permitted (root) or paused by MIG; this is no sign of exclusive use",
            "present": "no context-switch record belongs to this GPU",
            "removed": "nsys collected context-switch records, and the export has none that tells who was resident",
        }.get(state, "the context-switch table was not read")
        again = f"{recording(*client_options(client, root=True), trace=case.trace)}   # as root"
        branch = case.driver_branch
        if branch is not None and branch < _SWITCH_RECORDS_FROM and state in ("absent", "empty"):
            why = f"driver {case.driver} records no context switches: that takes r{_SWITCH_RECORDS_FROM} or newer"
            again += f", after an update of the driver to r{_SWITCH_RECORDS_FROM} or newer"
        else:
            again += f"; driver r{_SWITCH_RECORDS_FROM} or newer" if branch is None else ""
            if case.setting("gpu_context_switch_support") is not None:
                old = "MIG or an old driver" if branch is None else "or MIG"
                why += f"; nsys says that it could not record any there: no root, a container, {old}"
                again += "; on the host, not in a container"
        # Where nothing was traced there is no recording to repeat: it takes one of every tenant.
        how = again if case.captured else record_all(case.trace, client)
        if state == "removed":
            how = HOW["whole_export"]
        traced = case.setting("gpu_context_switch_trace")
        if state == "empty" and traced is not None and traced.value == "true":
            why = (
                "switches were traced, and there is no record: no two contexts alternated, or nsys was not root, or "
                "MIG paused it; this is no sign of exclusive use"
            )
            if case.has("mps_daemon") or case.has("mps_client_connected") or case.has("nvml_mps_clients"):
                # Nothing that was left out at the recording: the same command again records nothing more.
                why = (
                    "switches were traced, and there is no record: between clients of one MPS server there is no "
                    "context switch. Without root nothing is recorded either"
                )
                how = ""
            if case.sources.get("kernels") != "present":
                why += ", and without a traced program nsys may write none"
                how = record_all(case.trace, client)
        if case.wsl and state in ("absent", "empty"):
            # Neither root nor another option changes that.
            why, how = "the program ran under WSL2, where nsys records no context switches", ""
        elif case.mig_profile is not None:
            how = ""
            # Where the table is there and empty that is said above.
            why += "" if state == "empty" else "; while MIG is in use the driver records no context switches"
        found.append(Missing(what="context_switches", why=why, how=how))
    if case.launches is not None and case.launches.without_record:
        found.append(lost_launches(case.launches))
    elif case.sources.get("kernels") in ("absent", "empty") and not case.fact("graph_launches"):
        why = "the capture has no CUDA kernels" if case.captured else "there is no capture, only samples"
        how = recording(*client_options(client, root=False), trace=case.trace, switches=False)
        if client and case.idle_program is None:
            how += "   # --env-var for MPS clients only, as the user of their daemon"
        if case.idle_program is not None:
            why = "CUDA was traced, and no traced program ran a kernel while nsys recorded"
            how += "   # as before, until the program has used the GPU: "
            how += f"look whether {case.idle_program.name} uses CUDA, and whether it ended early"
        found.append(Missing(what="kernels", why=why, how=how))
    if not case.pids_known:
        found.append(
            Missing(what="process_ids", why="the capture has no process ids (a trimmed export)", how=HOW["export"])
        )
    if case.nvml_processes is None and case.wsl:
        # NVIDIA, CUDA on WSL user guide, "Features not yet supported": queries of NVML for compute processes.
        why = (
            "no list of GPU processes was given, and inside WSL2 nvidia-smi does not support that query: other "
            "processes, such as those of Windows, are not known"
        )
        found.append(Missing(what="process_list", why=why, how=""))
    elif case.nvml_processes is None:
        found.append(
            Missing(
                what="process_list",
                why="no list of GPU processes (NVML, nvidia-smi) was given, so untraced processes "
                + ("without switch records are not known" if case.fact("switch_records") else "are not known"),
                how=HOW["nvml"],
            )
        )
    elif case.unlisted:
        lacks = f"{', '.join(case.unlisted[:3])}{' and others' if len(case.unlisted) > 3 else ''}"
        found.append(
            Missing(
                what="process_list",
                why=f"the list of GPU processes lacks traced processes ({lacks}), so it does not rule out other "
                "processes; its pids may be of another container, or it was taken at another time",
                how=HOW["nvml"],
            )
        )
    if case.green_contexts_unsized:
        found.append(
            Missing(
                what="sm_sets",
                why=f"the sizes of SM sets are not recorded ({case.green_contexts_unsized} of "
                f"{fmt.counted(case.green_contexts, 'green context')}): occupancy and waves are modelled over all SMs",
                how="record with nsys 2026.4 or newer, whose context records have numMultiprocessors and tpcMask",
            )
        )
    if case.has("instance_unknown") or case.has("sms_like_mig"):
        found.append(
            Missing(what="instances", why="which MIG instance each process used is not recorded", how=HOW["instances"]),
        )
    if case.has("mps_daemon") and not case.has("mps_client_connected"):
        daemon = daemon_of((one.key, one.value, one.pid) for one in case.configured)
        how = (
            f"echo ps | {daemon.control} > mps-clients.txt   # while they run; then --context mps-clients.txt; "
            f"the logs in {shell_word(daemon.logs or DEFAULT_LOGS)} do as well"
        )
        found.append(Missing(what="mps_clients", why="no MPS log or control output was given", how=how))
    return found
