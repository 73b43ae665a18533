"""What was seen, before anybody judges it.

An :class:`Observation` is one measured quantity (or one plain statement of the configured side) with unit,
count and basis. Rules say what each observation means for their mode; observations that could not be made
are :class:`pyanalyze.results.model.Missing` entries: what is missing, why, and the command that captures it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.queries import query, text_literal
from pyanalyze.results.model import Missing
from pyanalyze.text import format as fmt
from pyanalyze.text.numbers import bounded_float

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from pyanalyze.results.sharing import Example
    from pyanalyze.vocabulary import Basis

#: From how many tenants on they can meet.
MANY = 2
#: Variables of software limiters begin so.
LIMITERS = ("CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT", "NVSHARE_")

#: How to record what is missing; one place, so that every answer prints the same command.
HOW = {
    "switch_events": "nsys profile --gpuctxsw=true ... (as root; driver r435 or newer)",
    "kernels": "nsys profile -t cuda ...",
    "nvml": "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory --format=csv -l 1 "
    "during the run, given as --samples",
    "mps_control": "echo get_server_list | nvidia-cuda-mps-control; keep /var/log/nvidia-mps/*.log, given as --context",
    "export": "nsys export --type sqlite REPORT.nsys-rep, without leaving out columns",
    "instances": "nvidia-smi -L and nvidia-smi mig -lgi, given as --context; an export of nsys 2025 or newer",
    "co_run": "record while the workloads run at the same time",
}


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

    @property
    def together(self) -> bool:
        """Whether they ran at the same time, whatever others on the device did.

        Examples
        --------
        >>> Pair((0, 1), 1_000_000, short_kernels=100, short_met=60).together
        True
        """
        enough = self.short_kernels >= t.MIN_SHORT_KERNELS
        return self.through_server or (enough and self.short_met >= t.MIN_SHORT_OVERLAP_SHARE * self.short_kernels)

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


def pairs_of(overlaps: pl.DataFrame, usage: pl.DataFrame) -> tuple[Pair, ...]:
    """Read the pairs of traced tenants of one device.

    Parameters
    ----------
    overlaps
        The rows of `overlaps` of the device.
    usage
        The rows of `tenants` of the device, joined with `tenant_usage`.

    Returns
    -------
    tuple of Pair
        In the order of the rows; without those of which one tenant was not traced.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> usage = session.tenants.join(session.tenant_usage, on=["tenant_id", "device_id"])
    >>> [pair.tenants for pair in pairs_of(session.overlaps, usage)]
    [(0, 1)]
    """
    import polars as pl

    held = pl.col("resident_ns").fill_null(0) > 0
    # PROCESSES cuts names of processes that were not traced at 15 characters.
    server = usage.filter(held & pl.col("name").str.starts_with("nvidia-cuda-mps")).height > 0
    without = set(usage.filter("traced", ~held)["tenant_id"].to_list()) if server else set()
    return tuple(
        Pair(
            (row["tenant_a"], row["tenant_b"]),
            row["co_busy_ns"],
            row["short_kernels"],
            row["short_short_overlapping"],
            row["short_overlapping"],
            through_server={row["tenant_a"], row["tenant_b"]} <= without,
        )
        for row in overlaps.iter_rows(named=True)
        # Null: one of the two was not traced.
        if None not in (row["co_busy_ns"], row["short_kernels"], row["short_short_overlapping"])
    )


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
    green_contexts: int = 0
    #: what each two traced tenants showed of each other
    pairs: Sequence[Pair] = ()
    #: SMs that CUDA showed each traced process, where the export says so
    visible_sms: Sequence[int] = ()
    #: MIG instances that the capture lists when it does not say which process used which; else 0
    instances_unassigned: int = 0
    #: whether activity carries process ids; without them tenants cannot be told apart
    pids_known: bool = True
    #: processes that NVML samples list on this device: (pid, name, type); None without such samples
    nvml_processes: Sequence[tuple[int, str, str | None]] | None = None
    #: most of them without MPS servers that were listed at one time; None: all
    nvml_together: int | None = None
    #: traced tenants that are not among them: the list is of another pid namespace, or was taken beside their time
    unlisted: Sequence[str] = ()
    #: whether there was a capture; samples alone observe nothing, and no activity in them is no idle GPU
    captured: bool = True
    #: version of the driver, where the capture says so
    driver: str | None = None
    #: names of tenants that held the engine without being traced
    untraced: Sequence[str] = ()
    #: tenants whose work goes through an MPS server's context
    served: int = 0
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
    for make in (_residency, _streams, _short_kernels, _co_residency, _solitude, _counters, _set_up, _nvml):
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
    # An MPS group and another process: their contexts alternate, and the clients run concurrently. The mode is that of
    # most of the time in which pairs were busy.
    if alternate and _mostly_together(case) and _outsider(case):
        yield _from_fact(
            case,
            "switches_between_tenants",
            "mps_group_time_sliced",
            f"{switches:.0f} context switches, while some tenants ran concurrently: an MPS group is time-sliced with "
            "another process",
        )
    elif alternate:
        slice_ns = case.fact("median_slice_ns")
        length = "" if slice_ns is None else f", median residency interval {fmt.duration(slice_ns)}"
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
    if held is not None and held >= t.SOLE_RESIDENT_SHARE and could_alternate and not alternate:
        yield _from_fact(
            case,
            "resident_share_top",
            "sole_resident",
            f"one tenant accounts for {fmt.percent(held)} of all resident time",
        )
    untraced = case.fact("resident_share_untraced")
    if untraced is not None and untraced >= 1 - t.SOLE_RESIDENT_SHARE:
        yield _from_fact(
            case,
            "resident_share_untraced",
            "untraced_resident",
            f"untraced processes account for {fmt.percent(untraced, 0)} of all resident time",
        )
    together = case.fact("co_busy_share")
    if (
        together is not None
        and together >= t.MIN_CO_BUSY_SHARE
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
            f"several tenants were busy at once for {fmt.percent(together)} of the busy time, with few context "
            "switches "
            "between them",
        )


def _outsider(case: Case) -> bool:
    """Whether a tenant outside of the MPS group exists."""
    return (case.fact("resident_share_untraced") or 0) > 0 or any(not pair.together for pair in case.pairs)


def _mostly_together(case: Case) -> bool:
    together = sum(pair.co_busy_ns for pair in case.pairs if pair.together)
    return together > sum(pair.co_busy_ns for pair in case.pairs if not pair.together)


def _streams(case: Case) -> Iterable[Observation]:
    share = case.fact("stream_overlap_share")
    if share is None:
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
            f"{streams:.0f} stream(s) were used; they overlap for {fmt.percent(share)} of the busy time",
            "stream_changes" if streams >= MANY else "busy_ns",
        )


def _short_kernels(case: Case) -> Iterable[Observation]:
    share = case.facts.get("short_overlap_share")
    if share is None or share.value is None or share.n < t.MIN_SHORT_KERNELS:
        return
    if share.value >= t.MIN_SHORT_OVERLAP_SHARE and (_mostly_together(case) or not case.pairs):
        yield _from_fact(
            case,
            "short_overlap_share",
            "short_kernels_overlap",
            f"short kernels of different tenants ran concurrently: {fmt.percent(share.value)} of {share.n} that "
            "started "
            "while another tenant was busy",
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
            f"short kernels of different tenants hardly ever overlap: {fmt.percent(share.value)} of {share.n}, where "
            f"{fmt.percent(case.fact('short_overlap_expected') or 0, 0)} would by chance",
            "short_kernels_contended",
        )


def _inside_stable(case: Case) -> bool:
    """Whether short kernels mostly ran inside long kernels of the other tenant that kept their usual duration.

    Time-slicing inflates the kernels that it interrupts, so it did not keep the short ones from overlapping.
    """
    inflated = case.fact("inflated_share")
    if inflated is None or inflated > t.MAX_STABLE_INFLATED_SHARE:
        return False
    return any(pair.short_kernels and 2 * pair.short_inside > pair.short_kernels for pair in case.pairs)


def _solitude(case: Case) -> Iterable[Observation]:
    traced = case.facts.get("traced_tenants")
    if not case.pids_known:
        yield _plain(
            "no_process_ids",
            "the capture has no process ids, so the number of processes is not known",
            "observed",
            0.0,
            sql=_query(case, "no_process_ids"),
        )
    elif traced is not None and traced.value == 1:
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
    if (
        sole
        and prompt is not None
        and prompt.value is not None
        and prompt.n >= t.MIN_PROMPT_STARTS
        and prompt.value >= t.MIN_PROMPT_START_SHARE
    ):
        yield _from_fact(
            case,
            "prompt_start_share",
            "prompt_starts",
            f"{fmt.percent(prompt.value, 0)} of {prompt.n} kernels after a copy in their stream started within 0.1 ms; "
            "another busy tenant would have delayed them",
        )
    exposure = case.fact("preemption_exposure")
    inflated = case.facts.get("inflated_share")
    if exposure is None or inflated is None or inflated.value is None:
        return
    # A rarely active tenant interrupts few of many kernels: so many at all are no accident.
    interrupted = case.facts.get("inflation_ns")
    visited = interrupted is not None and interrupted.n >= t.MIN_INFLATED
    quiet = inflated.n >= t.MIN_REPEATS and inflated.value <= t.MAX_STABLE_INFLATED_SHARE and not visited
    # A tenant that pauses before its time slice ends yields the engine: its kernels are not inflated in any mode.
    unbroken = case.fact("unbroken_exposure")
    if sole and unbroken is not None and unbroken >= t.MIN_EXPOSURE and quiet:
        yield _from_fact(
            case,
            "inflated_share",
            "kernel_durations_stable",
            f"only {fmt.percent(inflated.value)} of {inflated.n} repeated kernels ran about one time slice longer than "
            f"usual, in continuous work of {unbroken:.0f} time slices",
        )
    elif exposure >= t.MIN_EXPOSURE and inflated.n >= t.MIN_REPEATS and inflated.value >= t.MIN_INFLATED_SHARE:
        yield _from_fact(
            case,
            "inflated_share",
            "kernel_durations_inflated",
            f"{fmt.percent(inflated.value)} of {inflated.n} repeated kernels ran about one time slice longer than "
            "usual",
        )
        yield from _slices(case)
    elif exposure >= t.MIN_EXPOSURE and visited and interrupted is not None:
        yield _from_fact(
            case,
            "inflation_ns",
            "interrupted_kernels",
            f"{interrupted.n} of {inflated.n} repeated kernels ran at least 0.8 ms longer than usual: they were "
            "interrupted",
        )


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
            "consistent with another process's time slice",
        )


def _co_residency(case: Case) -> Iterable[Observation]:
    """Whether kernels of several tenants were in flight that the SMs could not hold at once."""
    share = case.facts.get("crowded_start_share")
    if share is None or share.value is None or share.n < t.MIN_CROWDED_STARTS:
        return
    if share.value >= t.MIN_CROWDED_SHARE:
        yield _from_fact(
            case,
            "crowded_start_share",
            "co_residency_infeasible",
            f"{fmt.percent(share.value, 0)} of {share.n} kernels started although another tenant's kernel in flight "
            "filled "
            "the SMs: that kernel was switched out",
        )
    # A time slice of another tenant inside the wide kernel would inflate its waves.
    elif share.value <= t.MAX_PARTIAL_WAVE_SHARE and (case.fact("inflated_share") or 0) <= t.MAX_STABLE_INFLATED_SHARE:
        yield _from_fact(
            case,
            "crowded_start_share",
            "starts_in_partial_last_wave",
            f"{fmt.percent(1 - share.value, 0)} of {share.n} kernels started in the partial last wave of another "
            "tenant's kernel, as concurrent kernels do",
        )


def _counters(case: Case) -> Iterable[Observation]:
    outside = case.facts.get("metric_outside_pct")
    if outside is None or outside.value is None or outside.n < t.MIN_COUNTER_SAMPLES:
        return
    if outside.value <= t.MAX_QUIET_SM_ACTIVE_PCT:
        yield _from_fact(
            case,
            "metric_outside_pct",
            "sm_idle_outside_traced_kernels",
            f"SM activity was {outside.value:.2f} % while no traced kernel ran ({outside.n} samples): no other process "
            "worked",
        )
    elif outside.value >= t.MIN_LOUD_SM_ACTIVE_PCT:
        yield _from_fact(
            case,
            "metric_outside_pct",
            "sm_active_outside_traced_kernels",
            f"SM activity was {outside.value:.1f} % while no traced kernel ran ({outside.n} samples): another process "
            "worked",
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
    if case.green_contexts:
        yield _plain(
            "green_contexts",
            f"{case.green_contexts} green context(s) with their own SM sets were recorded",
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
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "mps_percentage"),
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
                f"{fmt.percent(1 - (busy.value or 0), 0)} of the window",
            ),
            basis="inferred",
        )


def _caps(case: Case) -> Iterable[Observation]:
    """MPS percentages without effect, or with a sum above 100 %."""
    key = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    set_ = percentages(case)
    capped = [number for number in set_.values() if number < 100]
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
            f"{key}={low:g} was set, but every process saw all {case.sm_count} SMs: the cap had no effect",
            _query(case, "cap_without_effect"),
        )
    if len(capped) >= MANY and sum(set_.values()) > t.WHOLE_PERCENTAGE:
        yield _plain(
            "caps_over_100",
            f"the MPS percentages of {len(set_)} processes add up to {sum(set_.values()):g} %: they may share SMs",
            value=sum(set_.values()),
            unit="%",
        )


def percentages(case: Case) -> dict[int | None, float]:
    """The MPS percentages that were set, by process; None: for all.

    Examples
    --------
    >>> rows = (Configured("environment", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40", 7),)
    >>> percentages(Case(0, None, None, None, None, None, None, {}, rows, {}, ()))
    {7: 40.0}
    """
    key = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    return {row.pid: number for row in case.configured if row.key == key and (number := bounded_float(row.value))}


def _mps_server(case: Case) -> bool:
    """Whether an MPS server ran: the control daemon starts one when the first client connects.

    PROCESSES cuts both names to ``nvidia-cuda-mps``: then there are two of them.
    """
    rows = [row for row in case.configured if row.key in ("mps_daemon", "mps_server", "mps_client")]
    named = any(row.key != "mps_daemon" or "server" in row.value for row in rows)
    return named or len({row.pid for row in rows if row.pid is not None}) > 1


def _visible_sms(case: Case) -> Iterable[Observation]:
    if case.mig_profile is not None or case.vgpu_profile is not None or not case.sm_count:
        return
    if not any(sms < case.sm_count for sms in case.visible_sms):
        return
    profiles = t.MIG_SM_COUNTS.get(case.compute_capability or (0, 0), set())
    daemon = _mps_server(case) or case.setting("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") is not None
    like_mig = not daemon and all(sms in profiles for sms in case.visible_sms)
    counts = ", ".join(str(sms) for sms in sorted(case.visible_sms))
    yield Observation(
        "sms_like_mig" if like_mig else "sms_hidden",
        float(min(case.visible_sms)),
        "SMs",
        len(case.visible_sms),
        "observed",
        f"the processes saw {counts} of {case.sm_count} SMs"
        + (", as many as MIG instances of this board have" if like_mig else ""),
        _query(case, "sms_like_mig" if like_mig else "sms_hidden"),
    )


def _is_full_percentage(name: str, value: str) -> bool:
    return name == "mps_percentage" and (bounded_float(value) or 0.0) >= 100.0


def _nvml(case: Case) -> Iterable[Observation]:
    if case.nvml_processes is None:
        return
    clients = [p for p in case.nvml_processes if "nvidia-cuda-mps-server" not in p[1]]
    servers = len(case.nvml_processes) - len(clients)
    if servers:
        yield Observation(
            "nvml_mps_server",
            float(servers),
            "processes",
            servers,
            "sampled",
            "NVML lists nvidia-cuda-mps-server",
        )
    if any(kind == "M+C" for _, _, kind in clients):
        yield Observation(
            "nvml_mps_clients",
            None,
            "1",
            len(clients),
            "sampled",
            "NVML lists MPS clients (type M+C)",
        )
    together = len(clients) if case.nvml_together is None else case.nvml_together
    # A list that lacks traced processes cannot show that there were no others.
    if len(clients) == 1 and not case.unlisted:
        yield Observation(
            "nvml_one_process", 1.0, "processes", 1, "sampled", "NVML lists one compute process on the GPU"
        )
    elif together > 1:
        yield Observation(
            "nvml_several_processes",
            float(together),
            "processes",
            together,
            "sampled",
            f"NVML lists {together} compute processes on the GPU" + (" at a time" if together < len(clients) else ""),
        )


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
    if not case.fact("switch_records"):
        state = case.sources.get("switch_events", "absent")
        why = {
            "absent": "the capture has no context-switch table",
            "empty": "the context-switch table is empty (not recorded, not permitted, or paused by MIG); this is no "
            "sign of exclusive use",
            "present": "no context-switch record belongs to this GPU",
        }.get(state, "the context-switch table was not read")
        found.append(Missing(what="context_switches", why=why, how=HOW["switch_events"]))
    if case.sources.get("kernels") in ("absent", "empty") and not case.fact("graph_launches"):
        found.append(Missing(what="kernels", why="the capture has no CUDA kernels", how=HOW["kernels"]))
    if not case.pids_known:
        found.append(
            Missing(what="process_ids", why="the capture has no process ids (a trimmed export)", how=HOW["export"])
        )
    if case.nvml_processes is None:
        found.append(
            Missing(
                what="process_list",
                why="no process list was given, so untraced processes are not known",
                how=HOW["nvml"],
            )
        )
    elif case.unlisted:
        lacks = f"{', '.join(case.unlisted[:3])}{' and others' if len(case.unlisted) > 3 else ''}"
        found.append(
            Missing(
                what="process_list",
                why=f"the process list lacks traced processes ({lacks}), so it does not rule out other processes; its "
                "pids may be of another container, or it was taken at another time",
                how=HOW["nvml"],
            )
        )
    if case.has("instance_unknown") or case.has("sms_like_mig"):
        found.append(
            Missing(what="instances", why="which MIG instance each process used is not recorded", how=HOW["instances"]),
        )
    if (case.has("mps_daemon") or case.has("mps_daemon_idle")) and not case.has("mps_client_connected"):
        found.append(Missing(what="mps_clients", why="no MPS log or control output was given", how=HOW["mps_control"]))
    return found
