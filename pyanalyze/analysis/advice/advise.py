"""What to change on each device: actions with commands, expected effect, bounds and undo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pyanalyze.analysis.advice import demands, host_side, kubernetes, mig, mps, overlap, own_time, slicing
from pyanalyze.analysis.advice import required as isolating
from pyanalyze.analysis.advice.cluster import cluster_advice, with_record
from pyanalyze.analysis.advice.options import (
    AS_GOOD,
    REPRODUCED,
    Option,
    Options,
    best_of,
    contradicted,
    full_switch,
    how_wrong,
    memory_peaks,
    observed_slicing,
    options,
)
from pyanalyze.analysis.advice.simple import (
    Resident,
    in_turn,
    kept_apart,
    look_at_host,
    record_first,
    record_kernels,
    simple_bounds,
    unknown_tenants,
    unlisted_process,
)
from pyanalyze.analysis.gpu_metrics import ENOUGH_SAMPLES
from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS
from pyanalyze.analysis.interference.lost_time import assumed_switch_ns
from pyanalyze.analysis.mps_daemon import DEFAULT_PIPE, PIPE, daemon_on, servers_on
from pyanalyze.analysis.residency import NO_GROUPS
from pyanalyze.analysis.sharing.case import idle_program
from pyanalyze.analysis.time_split import MOST_EQUAL, about_kernel
from pyanalyze.nsys_tool import recording
from pyanalyze.results.advice import EXPLAINS, Advice, numbers_of, times_slower
from pyanalyze.results.time_split import Limit
from pyanalyze.text import format as fmt
from pyanalyze.text.shell import shell_line
from pyanalyze.text.visible import visible
from pyanalyze.vocabulary import (
    ENOUGH_UNITS,
    FEW_BLOCKS,
    MEMORY_RESERVE,
    MOST_COPIES,
    TRAITS,
    WORTH_IT,
    Mode,
    not_excluded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyanalyze.analysis.advice.options import Contention, FullSwitch
    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.analysis.listed import Listed
    from pyanalyze.analysis.residency import DeviceResidency
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.copies import Copies
    from pyanalyze.results.occupancy import KernelCounters
    from pyanalyze.results.streams import Streams
    from pyanalyze.results.time_split import TimeSplit
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Requirement

#: With more operations than this the replay is left to `pyanalyze advise`: a report must not take minutes.
QUICK_OPERATIONS = 50_000
#: Kernel time in grids of at least one whole wave, from which a tenant fills the SMs.
MOSTLY_FULL = 0.5
#: Part of a modelled p99 latency that a configuration may leave to be named for it: by as much the model does not miss.
HALVED = 0.5
#: Caps and instances change what `multiProcessorCount` says: the tenants of `fixtures/hardware/h100/mps-50-50-A-B`
#: launch half as many blocks as without caps.
_GRIDS = ". If a program sizes its grids by the SMs that it sees, its units of work change"
_UNDER_CAPS = ". What kernels would take on all SMs is underestimated from a recording under caps"
#: Where a gain is not certain and no tenant was recorded solo.
_SOLO_FIRST = (
    f"# to check the forecast first, each tenant with no other one on the GPU: {recording(switches=False)}; then "
    "pyanalyze advise CAPTURE --baseline NAME.nsys-rep"
)
#: Default slices of an RTX 6000 Ada, an H100 and an H200 are so near to each other.
_LIKE_DEFAULT = 0.05
#: Switching overhead above which longer slices are worth naming.
NOTABLE_OVERHEAD = 0.01
#: Part of a tenant's kernel time in grids that seem to follow the number of SMs, from which on forecasts name it.
NOTABLE_FOLLOWING = 0.2
#: Contention below this is none.
_NO_MORE_TIME = 0.01
#: Client priorities are advised where the next tenant is slowed by so much less.
_UNEVEN = 0.2
#: Rates of `mps-first-open_loop-B` and `mps-first-A-B` over those without priorities (fixtures/hardware/h200).
_PRIORITIES_MEASURED = (
    "Measured on an H200 with two pairs of programs: 1.59 and 1.15 times the rate for the one of normal priority, 0.91 "
    "and 0.77 times for the other"
)
#: A tenant whose replay takes less than this part of the longest one's leaves the GPU to the others for a good while.
EARLY = 0.7


@dataclass(frozen=True)
class DeviceAdvice:
    """What to do on one device.

    Attributes
    ----------
    device_id
        Device.
    actions
        Best first.
    options
        The sharing configurations that were compared.
    """

    device_id: int
    actions: tuple[Advice, ...]
    options: Options

    def __repr__(self) -> str:
        """Count them."""
        return f"<DeviceAdvice: device {self.device_id}, {fmt.counted(len(self.actions), 'action')}>"

    def __str__(self) -> str:
        """Show actions and comparison as text."""
        lines = []
        for number, action in zip(numbers_of(self.actions), self.actions, strict=True):
            lines += [f"{number}. {action.action}", f"   {action.why}"]
            lines += [f"     {command}" for command in action.commands]
            parts = (
                ("Expected", action.expected),
                ("Bounds" if action.expected else "Upper bound", action.bound),
                ("Does not apply if", action.wrong_if),
                ("Check afterwards", action.check_after),
            )
            undo = None if action.undo is None else action.undo.replace("\n", "\n     ")
            lines += [f"   {name}: {text}" for name, text in (*parts, ("Undo", undo)) if text]
        for option in self.options.options:
            each = ", ".join(f"{f.name} {f.slowdown:.2f}x ({f.low:.2f}-{f.high:.2f})" for f in option.forecasts)
            lines.append(f"{option.name}: {each}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def advise_device(
    tables: TableSet,
    verdict: Verdict,
    splits: Mapping[tuple[int, int], TimeSplit],
    copies: Mapping[tuple[int, int], Copies],
    streams: Mapping[tuple[int, int], Streams],
    listed: Listed,
    interference: Callable[[int], DeviceInterference] | None = None,
    *,
    residency: Iterable[DeviceResidency] = (),
    kernel_counters: Sequence[KernelCounters] = (),
    mps_groups: Mapping[int, frozenset[int]] = NO_GROUPS,
    require: Iterable[Requirement] = (),
    latency_ns: int | None = None,
    for_kubernetes: bool | None = None,
    quick: bool = False,
) -> DeviceAdvice:
    """Say what to change on one device.

    Parameters
    ----------
    tables, verdict
        The tables, and the verdict of the device.
    splits, copies, streams
        Where the time of each tenant went, what it copied, and whether its streams overlapped, by device and tenant.
    listed
        What samples and configuration name.
    interference
        Finds who was slowed on a device, for the forecast of the recorded configuration to be held against; None: it is
        not.
    residency
        Residency of all devices: who alternated, and the length of time slices.
    kernel_counters
        GPU metrics of the time of single kernels of the device.
    mps_groups
        What :func:`pyanalyze.analysis.residency.mps_group` found, by device.
    require
        What a mode must promise.
    latency_ns
        How long a kernel of an idle tenant may wait for its turn; None: not asked.
    for_kubernetes
        Print device-plugin and operator settings too; None: where the capture shows pods.
    quick
        Leave the replay out where the capture is large.

    Returns
    -------
    DeviceAdvice
        Best first; empty where nothing follows from the evidence.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> analysis = session.analysis
    >>> advice = advise_device(session.tables, analysis.verdicts[0], analysis.time_splits, {}, {}, analysis.listed)
    >>> advice.actions[0].action.startswith("Identify process 41377")
    True
    """
    required = tuple(require)
    operations = sum(tables.count_of(name, verdict.device_id) for name in ("kernels", "memops"))
    if quick and operations > QUICK_OPERATIONS:
        why = f"{operations} operations are too many for a forecast here; pyanalyze advise makes it"
        compared = Options(verdict.device_id, why_not=why, postponed=True)
    else:
        compared = options(tables, verdict, required, mps_groups)
    if interference is not None and compared.current is not None:
        elapsed = {one.tenant_id: one.slowdown.elapsed for one in interference(verdict.device_id).tenants}
        measured = {tenant: one for tenant, one in elapsed.items() if one is not None}
        compared = replace(
            contradicted(compared, measured),
            solo_measured={tenant: one.value for tenant, one in measured.items() if one.basis == "observed"},
        )
    named = any(row["pod"] is not None for row in tables.rows_of("tenants", verdict.device_id))
    pods = named or listed.in_cluster
    kube = pods if for_kubernetes is None else for_kubernetes
    if kube and compared.options:
        compared = _of_kubernetes(compared)
    (device,) = tables.rows_of("devices", verdict.device_id)
    own = list(_own_time(tables, verdict, splits, copies, streams, kernel_counters))
    host = list(_host_side(tables, verdict, splits, streams))
    here = [split for (number, _), split in splits.items() if number == verdict.device_id]
    in_kernels = any(split.limit is Limit.KERNELS for split in here)
    actions = list(
        _actions(
            tables,
            verdict,
            (own, host),
            compared,
            required,
            latency_ns,
            device,
            resident=next((one for one in residency if one.device_id == verdict.device_id), None),
            listed=sum(one.computes for one in listed.by_device.get(verdict.device_id, ())),
            in_kernels=in_kernels,
            too_few=next((split.operations for split in here if split.too_few), None),
            fewest=min((split.operations for split in here if split.operations is not None), default=None),
            kube=kube,
            slowed=None if interference is None else lambda: interference(verdict.device_id),
        )
    )
    if kube and not tables.paths:
        # Nothing in samples ranks the alternatives: what decides comes first.
        decide = [with_record(action, listed, verdict.device_id) for action in actions[:1]]
        actions = [*decide, *actions[1:], *cluster_advice(listed, verdict, device)]
    elif for_kubernetes and not compared.options:
        actions.append(_no_settings(compared))
    if compared.recommended is not None and _stays(compared, verdict.mode):
        # Where nothing is worth a change, no other way is the one advised.
        compared = replace(compared, recommended=compared.current)
    return DeviceAdvice(verdict.device_id, tuple(actions), compared)


def with_groups(tables: TableSet, advice: DeviceAdvice, found: DeviceInterference) -> DeviceAdvice:
    """Add to what is advised to processes what to change between groups of their work.

    Parameters
    ----------
    tables
        Tables of groups.
    advice
        What is advised to the processes of the device.
    found
        Interference of the groups of the device.

    Examples
    --------
    >>> import pyanalyze
    >>> analysis = pyanalyze.load(capture).by("stream").analysis
    >>> advice = with_groups(analysis.tables, analysis.processes.quick_advice[0], analysis.interference[0])
    >>> advice.options.options
    ()
    """
    if not any(tenant.is_group for tenant in found.tenants):
        return advice
    from pyanalyze.analysis.advice.groups import between_groups

    between = between_groups(tables, found, _window_ns(tables, advice.device_id))
    why = "groups of work of one process stay in it: no other sharing mode applies between them"
    # What was asked about stands first; what is advised to the whole process follows.
    return DeviceAdvice(advice.device_id, (*between, *advice.actions), Options(advice.device_id, why_not=why))


def _no_settings(compared: Options) -> Advice:
    """Answer who asks for settings of Kubernetes where no configuration is forecast that they could make."""
    return Advice(
        action="Settings of the device plugin are left out: no sharing configuration is forecast",
        commands=[],
        expected=None,
        bound=None,
        why=compared.why_not or "nothing can be compared",
        undo=None,
    )


def _of_kubernetes(compared: Options) -> Options:
    """Leave only the configurations that Kubernetes can make, and the current one: no sentence speaks of another."""
    made = tuple(o for o in compared.options if kubernetes.makes(o) or o is compared.current)
    refused = tuple((option, lacks) for option, lacks in compared.refused if option in made)
    lacking = [option for option, _ in refused]
    best = best_of([option for option in made if option not in lacking], compared.current)
    return replace(compared, options=made, refused=refused, recommended=best)


def _without_green_contexts() -> Advice:
    """Ask for a run without the split of SMs inside the process: what it costs or gains takes both."""
    return Advice(
        action="Record the same work without green contexts, and compare: their split of the SMs was not evaluated",
        commands=[
            f"{recording(switches=False)}   # the same work, in plain streams",
            "pyanalyze compare CAPTURE NAME.nsys-rep",
        ],
        expected=None,
        bound=None,
        why="kernels of a green context run on its own SMs only, even while others are idle. Whether that costs more "
        "than it keeps kernels of other sets from slowing them, one capture does not show",
        undo=None,
    )


def _actions(
    tables: TableSet,
    verdict: Verdict,
    by_process: tuple[Sequence[Advice], Sequence[Advice]],
    compared: Options,
    required: tuple[Requirement, ...],
    latency_ns: int | None,
    device: Mapping[str, object],
    *,
    resident: DeviceResidency | None,
    listed: int,
    in_kernels: bool,
    too_few: int | None,
    fewest: int | None,
    kube: bool,
    slowed: Callable[[], DeviceInterference] | None,
) -> Iterator[Advice]:
    """What decides or fails first; then by the time at stake; then what changes nothing."""
    own, host = by_process
    held = list(_residents(tables, verdict.device_id))
    traits = TRAITS[verdict.mode]
    undetermined = verdict.mode == Mode.UNDETERMINED
    # What a process can gain by itself does not depend on who else was there, unless its kernels limit it: time slices
    # of another process would be in their durations.
    by_itself = undetermined and len(held) == 1 and bool(own) and not in_kernels
    missing_first = record_first(
        verdict,
        mig=_in_mig_mode(tables, verdict, device),
        captured=bool(tables.paths),
        idle_program=idle_program(tables, verdict.device_id),
    )
    client = daemon_on(tables, verdict.device_id).client if traits.mps else None
    first = [*unlisted_process(verdict, held, lambda: _active_before_calls(tables, verdict.device_id), client)]
    if undetermined and not by_itself:
        first += missing_first
    elif not undetermined:
        first += unknown_tenants(held, client)
    first += _memory(compared, device)
    yield from first
    stays = _stays(compared, verdict.mode)
    change = [] if stays else list(_change(compared, verdict.mode, _window_ns(tables, verdict.device_id), kube=kube))
    # Python's sort keeps the order of what has nothing at stake that is known.
    yield from sorted((*change, *host, *own), key=lambda item: -(item.at_stake_ns or 0))
    if by_itself:
        yield from missing_first
    if compared.options:
        if stays:
            yield _stay(compared, required, verdict, kube=kube, fewest=fewest)
            yield from _for_tail(compared, verdict.mode, kube=kube)
        yield from _client_priority(compared, verdict.mode)
        yield from _stricter(compared, verdict.mode, kube=kube)
        yield from _no_instance(compared)
        yield from _left_out(compared, required)
    else:
        # Where parts of its time are worth a change, what they are says more.
        if_slow = "" if own or host else "; if it is slow, check the host, its kernels and the clocks"
        if too_few is not None:
            if_slow = f"; its {fmt.counted(too_few, 'operation')} {'is' if too_few == 1 else 'are'} too few to judge by"
        if traits.one_process and traits.mig_instance:
            # The profile names the mode, whoever is in the instance.
            processes = max(len(held), listed)
            if processes == 1:
                yield _alone_in_instance(tables, device, if_slow)
            elif processes:
                yield _several_in_instance(processes)
        elif traits.one_process:
            if traits.capped:
                # What its own split of the SMs costs or gains is another question than who else is there.
                yield _without_green_contexts()
            elif not (first or change or own or host):
                # That nobody shares the GPU is no action where there is one.
                known = verdict.condition is not None
                why = "no other tenant is known" if known else "changing it gains nothing"
                others = ""
                if verdict.condition is not None:
                    names = not_excluded(verdict.condition, verdict.mode)
                    others = f", unless another process ran (not excluded: {names})"
                yield Advice(
                    action=f"Keep the sharing configuration: {why}",
                    commands=[],
                    expected=None,
                    bound=f"none{others}",
                    why=f"only one tenant {'is known' if known else 'was'} on the device{if_slow}",
                    undo=None,
                    wrong_if="samples or switch records of the same time show another process",
                )
        elif in_turn(verdict):
            yield kept_apart(held)
        elif compared.contradicted == "measured":
            # It has its baseline: another solo recording would say the same.
            yield Advice(
                action="Try another sharing configuration and compare: no forecast holds, because the replay does not "
                "reproduce the slowdown that was measured",
                commands=["pyanalyze compare CAPTURE OTHER.nsys-rep   # the same workloads, shared in another way"],
                expected=None,
                bound=None,
                why=f"{compared.why_not}. The replay models neither memory and caches nor a host or a GPU that is "
                "slower than in the solo recording",
                undo=None,
                exclusive=True,
            )
        elif compared.contradicted == "bound":
            yield Advice(
                action="Record each tenant solo before changing how the GPU is shared: two figures disagree",
                commands=[
                    f"{recording(switches=False)}   # each tenant with no other one on the GPU",
                    "pyanalyze advise CAPTURE --baseline SOLO.nsys-rep",
                ],
                expected=None,
                bound=None,
                why=str(compared.why_not),
                undo=None,
                exclusive=True,
            )
        elif verdict.mode != Mode.UNDETERMINED and TRAITS[Mode.MPS].promises.lacks(required):
            if traits.promises.lacks(required):
                yield _isolated(tables, verdict, required, held, device, compared.why_not)
        elif verdict.mode != Mode.UNDETERMINED:
            daemon = daemon_on(tables, verdict.device_id)
            bounded = _without_switching(tables, verdict.device_id, held)
            if slowed is not None and traits.time_sliced:
                bounded = _with_latency(bounded, slowed())
            bounds = list(
                simple_bounds(
                    verdict,
                    bounded,
                    device,
                    compared.why_not,
                    daemon,
                    lambda: demands.all_sms_active(tables, verdict.device_id),
                )
            )
            if traits.vgpu:
                yield look_at_host()
            # Bounds without a traced tenant ask for kernels themselves.
            elif not bounds and (traits.mps or not traits.time_sliced) and not any(t.traced for t in held):
                client = daemon.client if traits.mps else None
                yield record_kernels("who was slowed, and by what, is not known", client)
            yield from bounds
    # A wish for longer slices is about a mode that does not meet the requirements.
    if latency_ns is not None or not traits.promises.lacks(required):
        yield from _time_slices(tables, verdict, latency_ns, resident, len(held))


def _isolated(
    tables: TableSet,
    verdict: Verdict,
    required: Sequence[Requirement],
    tenants: Sequence[Resident],
    device: Mapping[str, object],
    why_not: str | None,
) -> Advice:
    """What meets requirements that neither the present mode nor MPS does, where nothing is forecast."""
    peaks = memory_peaks(tables, verdict.device_id)
    named = {one.name: peaks.get(one.tenant_id) for one in tenants if not one.is_mps_server}
    daemon = daemon_on(tables, verdict.device_id)
    return isolating.without_forecast(verdict, required, named, device, why_not, daemon)


def _active_before_calls(tables: TableSet, device_id: int) -> tuple[float, int] | None:
    """Mean SM activity (per cent) before the first recorded CUDA call, and its samples; None: there are none."""
    import polars as pl

    calls = tables.calls()
    if calls is None or calls.is_empty():
        return None
    metrics = tables.columns("gpu_metrics", "device_id", "time_ns", "metric", "value")
    active = metrics.filter(
        pl.col("device_id") == device_id,
        pl.col("metric").cast(pl.String).str.contains(demands.SMS_ACTIVE),
    )
    # A sample is the mean until the next one.
    before = active.filter(pl.col("time_ns").shift(-1) <= calls["start_ns"].min())["value"]
    mean = before.mean()
    return (mean, before.count()) if isinstance(mean, float) else None


def _in_mig_mode(tables: TableSet, verdict: Verdict, device: Mapping[str, object]) -> bool:
    """Whether the device is a MIG instance, or by its samples a board in MIG mode."""
    if device["mig_profile"] is not None or tables.samples_of(verdict.device_id)["mig_gi"].count():
        return True
    likely = next((one.mode for one in verdict.alternatives), Mode.UNDETERMINED)
    return not tables.paths and TRAITS[likely].mig_instance


def _several_in_instance(processes: int) -> Advice:
    return Advice(
        action="Record the processes of this MIG instance at the same time",
        commands=[f"{recording(switches=False)}   # one for each process, at the same time; then pyanalyze A B"],
        expected=None,
        bound=None,
        why=f"{processes} processes are listed in the instance: how much they slow each other is not known",
        undo=None,
    )


def _alone_in_instance(tables: TableSet, device: Mapping[str, object], if_slow: str) -> Advice:
    """An instance is a part of the device: nobody else in it does not mean that nothing is lost to the others."""
    import polars as pl

    device_id, sms = int(str(device["device_id"])), device["sm_count"]
    shapes = tables.kernel_occupancy.filter(pl.col("device_id") == device_id)
    known = shapes["waves"].null_count() == 0 and shapes.height > 0
    if known and isinstance(sms, int) and not shapes.filter(pl.col("waves") > 1).height:
        why = f"no kernel takes more than {fmt.percent(shapes['waves'].max())} of the block slots of its {sms} SMs"  # type: ignore[arg-type]
        smaller = _smaller_profile(tables, device, shapes["grid_blocks"].to_list(), sms)
        if smaller is None:
            return Advice(
                action="Keep this MIG instance: no kernel fills it",
                commands=[],
                expected=None,
                bound="none from more SMs",
                why=f"{why}. A larger instance also has more memory bandwidth, whose effect this capture does not show",
                undo=None,
                wrong_if="the program also runs with larger grids",
            )
        family, profile = smaller
        gib = f"{family.memory_bytes(profile) / 2**30:.1f} GiB"
        here, remove = device["mig_profile"], "nvidia-smi mig -i GPU -dci -gi {0} && nvidia-smi mig -i GPU -dgi -gi {0}"
        return Advice(
            action=f"Try the smaller MIG profile {profile.name}: no kernel fills this instance",
            commands=[
                "nvidia-smi mig -lgi   # as root: the GPU and the ID of this instance; stop its programs first",
                remove.format("ID"),
                f"nvidia-smi mig -i GPU -cgi {profile.name} -C && nvidia-smi -L   # start PROGRAM with the new UUID",
            ],
            expected=None,
            bound=f"{sms - (profile.sm_count or sms)} of {sms} SMs become free for another instance",
            why=f"{why}. On {profile.sm_count} SMs no SM gets more blocks than here. The smaller instance has less "
            "memory bandwidth, whose effect this capture does not show. Larger grids would use the SMs that are free "
            "here: choose one of the two",
            # Samples may show MIG without the profile.
            undo=None
            if here is None
            else f"{remove.format('NEW_ID')} && nvidia-smi mig -i GPU -cgi {here} -C   # NEW_ID as by -lgi",
            wrong_if=f"the program also runs with larger grids, or needs more than {gib} of memory",
        )
    return Advice(
        action="Record the workload in a larger MIG instance: its gain is not known",
        commands=[],
        expected=None,
        bound="a capture of one instance does not show what another size would gain",
        why="only one tenant was in this MIG instance. Record the workload in a larger profile or on the whole GPU, "
        f"and give that as --baseline{if_slow}",
        undo=None,
        wrong_if="samples of the same time show another process in the instance",
    )


def _smaller_profile(
    tables: TableSet, device: Mapping[str, object], grids: Sequence[int], sms: int
) -> tuple[mig.Family, mig.Profile] | None:
    """The smallest profile that holds a tenant's memory, and on which no SM gets more blocks than on these SMs."""
    family = mig.family_of(str(device["name"]), None)
    if family is None or "c." in str(device["mig_profile"]):
        # A compute instance is a part of an instance, which nothing else may use.
        return None
    peak = max(memory_peaks(tables, int(str(device["device_id"]))).values(), default=None)
    fitting = (
        (family, profile)
        for profile in mig.holds(family, mig.Need("", peak, float))
        if profile.sm_count is not None
        and profile.sm_count < sms
        and all(-(-grid // profile.sm_count) <= -(-grid // sms) for grid in grids)
    )
    return next(fitting, None)


def _residents(tables: TableSet, device_id: int) -> Iterator[Resident]:
    labels = tables.labels(device_id)
    usage = tables.of_device("tenants", device_id).join(
        tables.of_device("tenant_usage", device_id), on=["tenant_id", "device_id"]
    )
    # Over the window, as the residency summary has it: a context is also resident while it is created.
    shares = {row["tenant_id"]: row["gpu_time_share"] for row in tables.rows_of("residency_by_tenant", device_id)}
    listed = set(tables.processes.filter(tables.processes["name"].is_not_null()).select("capture", "pid").iter_rows())
    servers = servers_on(tables, device_id)
    for row in usage.sort("tenant_id").iter_rows(named=True):
        resident, busy, attributed = row["resident_ns"], row["busy_ns"], row["attributed_ns"]
        yield Resident(
            row["tenant_id"],
            labels[row["tenant_id"]],
            row["host_pid"] or row["pid"],
            bool(row["traced"]),
            None if resident is None else shares.get(row["tenant_id"]),
            # Without recorded residency all of the time in flight is attributed.
            busy / attributed if busy and attributed and resident is not None else None,
            (row["capture"], row["pid"]) in listed,
            _fills_sms(tables, device_id, row["tenant_id"]),
            is_mps_server=row["tenant_id"] in servers,
        )


def _without_switching(tables: TableSet, device_id: int, tenants: Iterable[Resident]) -> Iterator[Resident]:
    """The same with the allowance for switching inside kernels that slowdowns make: no bound is below a slowdown."""
    usage = {row["tenant_id"]: row for row in tables.rows_of("tenant_usage", device_id)}
    for tenant in tenants:
        row = usage[tenant.tenant_id]
        taken_ns = None if tenant.inflation is None else assumed_switch_ns(tables, row)
        if tenant.inflation is None or taken_ns is None:
            yield tenant
        else:
            inflation = tenant.inflation / (1 - taken_ns / row["attributed_ns"])
            yield replace(tenant, inflation=inflation, switching=taken_ns / row["busy_ns"])


def _with_latency(tenants: Iterable[Resident], found: DeviceInterference) -> Iterator[Resident]:
    """The same with how much longer than solo kernels took from launch to end: waits before the start count there."""
    known = {one.tenant_id: one for one in found.tenants}
    for tenant in tenants:
        one = known.get(tenant.tenant_id)
        latency = None if one is None else one.slowdown.latency
        # What is known from below bounds no gain from above. Beside an inferred slowdown stands what it consists of.
        if one is None or latency is None or latency.from_below:
            yield tenant
        else:
            yield replace(tenant, latency=latency.value, added=one.added_latency)


def _fills_sms(tables: TableSet, device_id: int, tenant_id: int) -> bool | None:
    """Whether most of the kernel time of a tenant is in grids of at least one wave; None: not known."""
    import polars as pl

    shapes = tables.of_device("kernel_occupancy", device_id).filter(pl.col("tenant_id") == tenant_id)
    full = None if shapes["waves"].drop_nulls().is_empty() else host_side.full_grids(shapes)
    return None if full is None else full >= MOSTLY_FULL


def _gain(compared: Options, mode: Mode) -> float | None:
    """By how much of the present mean slowdown the recommended option is better; None where there is none better.

    All of it where the present way does not meet the requirements, or is none of those compared. Caps of other sizes
    than those recorded stand for these.
    """
    best, now = compared.recommended, _now(compared, mode)
    if best is None or best is now:
        return None
    if now is None or any(option is now for option, _ in compared.refused):
        return 1.0
    return 1 - best.antt / now.antt


def _now(compared: Options, mode: Mode) -> Option | None:
    """The present way among those compared, or what stands for it."""
    if compared.current is None and TRAITS[mode].mps and TRAITS[mode].capped:
        return min((option for option in compared.options if option.mode == mode), key=lambda o: o.antt, default=None)
    return compared.current


def _stays(compared: Options, mode: Mode) -> bool:
    """Whether no other way is worth a change."""
    gain = _gain(compared, mode)
    return gain is None or gain < WORTH_IT


def _each(option: Option, now: Option | None = None) -> str:
    """The forecast slowdown of each tenant, behind that of the present way where it is known."""
    before = {} if now is None else {f.tenant_id: f"{f.slowdown:.2f}x -> " for f in now.forecasts}
    return ", ".join(f"{f.name} {before.get(f.tenant_id, '')}{f.slowdown:.2f}x" for f in option.forecasts)


def _named(option: Option) -> str:
    """The name of an option inside a sentence: MPS with equal caps."""
    return option.name.replace(", ", " with ")


def _bounds(option: Option) -> str:
    each = ", ".join(f"{f.name} {f.low:.2f}-{f.high:.2f}x" for f in option.forecasts)
    # A range may reach above today's slowdown: it is of what is advised, not of what was recorded.
    return f"{each}; mean (ANTT) {_range(option)}, all under {_named(option)}"


def _range(option: Option) -> str:
    low, high = option.antt_bounds
    return f"{low:.2f}-{high:.2f}x"


def _ends_early(option: Option) -> str:
    """A caveat where one tenant ends early, as it did in the capture."""
    last = max(option.forecasts, key=lambda one: one.elapsed_ns)
    early = [one for one in option.forecasts if not one.goes_on and one.elapsed_ns < EARLY * last.elapsed_ns]
    if option.placement is not None or not early:
        return ""
    first = min(early, key=lambda one: one.elapsed_ns)
    return (
        f". In the forecast {first.name} ends after {fmt.duration(first.elapsed_ns)} and {last.name} after "
        f"{fmt.duration(last.elapsed_ns)}. A tenant that has ended slows no other, so longer runs may be slower"
    )


def _latency_percentiles(option: Option, compared: Options) -> str:
    """The modelled p99 of each tenant, behind that of the present way: a model's value is compared with a model's.

    The recorded one stands beside it. A tenant whose recorded p99 the replay misses has none, which is said.
    """
    before, recorded_ns, not_reproduced = compared.present_p99_ns, compared.recorded_p99_ns, compared.missed_p99
    each, missed = [], []
    for one in option.forecasts:
        modelled, recorded = before.get(one.tenant_id), recorded_ns.get(one.tenant_id)
        if one.p99_ns is None:
            continue
        if modelled and recorded and one.tenant_id in not_reproduced:
            missed.append(f"{one.name} (modelled {fmt.duration(modelled)}, recorded {fmt.duration(recorded)})")
            continue
        said = f"{one.name} {f'{fmt.duration(modelled)} -> ' if modelled else ''}{fmt.duration(one.p99_ns)}"
        each.append(f"{said} (recorded {fmt.duration(recorded)})" if recorded else said)
    said = f"; modelled p99 kernel latency {', '.join(each)}" if each else ""
    longer = [f.name for f in option.forecasts if f.p99_ns and f.p99_ns > recorded_ns.get(f.tenant_id, f.p99_ns)]
    if not before and longer:
        said += f", longer than now for {fmt.names(longer)}"
    return said + (f"; no p99 for {fmt.names(missed)}: the replay misses it" if each and missed else "")


def _shorter_tail(compared: Options) -> tuple[Option, list[str]] | None:
    """The option with the smallest mean slowdown of those that halve a p99 of today, and the tenants whose it halves.

    A tenant whose recorded p99 the replay misses does not count.
    """
    before = {
        tenant_id: ns
        for tenant_id, ns in compared.present_p99_ns.items()
        if tenant_id in compared.recorded_p99_ns and tenant_id not in compared.missed_p99
    }
    refused = [option for option, _ in compared.refused]
    # Options are in the order of their mean slowdown.
    for option in compared.options:
        each = [f.name for f in option.forecasts if f.p99_ns and f.p99_ns <= HALVED * before.get(f.tenant_id, 0)]
        if each and option not in refused:
            return option, each
    return None


def _for_tail(compared: Options, mode: Mode, *, kube: bool) -> Iterator[Advice]:
    """What shortens the tail of a tenant, where elapsed times gain nothing by a change."""
    found, now = _shorter_tail(compared), _now(compared, mode)
    if found is None or now is None:
        return
    option, names = found
    if option is _instances(compared) and _gains(option, now):
        # It is named anyway, because it isolates more.
        return
    why = (
        f"it at least halves the modelled p99 kernel latency of {fmt.names(names)}, and has the smallest mean slowdown "
        f"of the configurations that do so for a tenant: {option.antt:.2f}x, {now.antt:.2f}x as it is"
    )
    made = _make(option, compared, why, mode, kube=kube)
    action = f"If the p99 latency of {fmt.names(names)} matters more: {made.action[0].lower()}{made.action[1:]}"
    yield made.model_copy(update={"action": action})


def _client_priority(compared: Options, mode: Mode) -> Iterator[Advice]:
    """Client priorities, where one client of an MPS server mostly waits for SMs that blocks of the others have."""
    now = compared.current
    if now is None or not TRAITS[mode].mps or TRAITS[mode].time_sliced or len(now.forecasts) < 2:
        return
    worst, waits = now.worst, now.worst.waits
    others = [one for one in now.forecasts if one is not worst]
    if waits is None or waits.queue_other <= EXPLAINS:
        return
    if worst.slowdown < (1 + _UNEVEN) * max(one.slowdown for one in others):
        return
    names = fmt.names([one.name for one in others])
    yield Advice(
        action=f"If {worst.name} matters more: give {names} a lower MPS client priority",
        commands=[f"export CUDA_MPS_CLIENT_PRIORITY=1   # in the shells that start {names}, before they start"],
        expected=None,
        bound=None,
        why="in the replay of the current configuration most of the added kernel latency of "
        f"{worst.name} is waiting for SMs that blocks of other tenants hold. Clients of normal priority (0) come "
        f"before those below it (1); blocks that run are not evicted. {_PRIORITIES_MEASURED}. The replay does not "
        "model priorities",
        undo="unset CUDA_MPS_CLIENT_PRIORITY   # in the same shells, before the programs start again",
        check_after="pyanalyze compare with a capture in that mode: units of work of "
        f"{worst.name} take less time than now",
    )


def _trust(compared: Options, option: Option) -> str:
    """How near the model came to the record, and what the bounds of an option allow for."""
    said = ""
    if compared.check is not None:
        within = f" The replayed co-run takes as long as recorded within {fmt.percent(compared.check.size)}"
        if compared.check.size > REPRODUCED:
            of = next(row.name for row in option.forecasts if row.tenant_id == compared.check.tenant_id)
            within += f": the elapsed time of {of} is {how_wrong(compared.check)}"
        said += f"{within}{_solo(compared)}."
    elif compared.current is None:
        said += " The current configuration was not modelled: the gain over it is not known."
    if compared.replayed < 1:
        said += (
            f" {fmt.percent(compared.replayed)} of the operations were replayed, in windows spread over the recording."
        )
    also, margin = "", fmt.percent(option.margin)
    if option.contention is not None:
        said += f" {_more_time(option.contention)}"
        also = " also"
    if compared.check is None:
        said += f" The bounds{also} allow for {margin} of error of the model."
    else:
        missed, more = fmt.percent(compared.check.size), fmt.percent(option.margin - compared.check.size)
        said += f" The bounds{also} allow for {margin} of error: {missed} of the replay, {more} of this configuration."
    if option.contention is not None and option.contention.no_gain:
        said += (
            " A gain is likely, not certain: this recording does not show whether kernels gain anything over "
            "time-slicing, and upper bounds assume that they do not."
        )
    for name, pauses in compared.paused_solo.items():
        said += (
            f" {name} made {fmt.count(pauses)} pauses between its kernels before other tenants began, and hardly any "
            "since: its requests may have piled up. Then each of its slowdowns is too high, now and in other "
            "configurations."
        )
    if any(one.provision is not None or one.placement is not None for one in compared.options):
        follow = [
            f"{fmt.percent(one.follows_sms, 0)} of the kernel time of {one.name}"
            for one in compared.clients
            if one.follows_sms >= NOTABLE_FOLLOWING
        ]
        if follow:
            said += (
                f" {fmt.names(follow)} {'is' if len(follow) == 1 else 'are'} in grids with one block, or a whole "
                "number of them, for each SM. Programs usually size such grids by the SMs that they see: then caps and "
                "instances cost less than forecast."
            )
    if compared.untraced:
        who = "Tenant" if len(compared.untraced) == 1 else "Tenants"
        said += f" {who} not traced: {', '.join(compared.untraced)}. Upper bounds allow for their resident time."
    return said


def _solo(compared: Options) -> str:
    """Which replayed solo runs were checked, and how near they came; to append."""
    forecasts = () if compared.current is None else compared.current.forecasts
    checked = [row for row in forecasts if row.tenant_id in compared.solo_measured]
    if not checked:
        return " (solo runs: not checked)"
    said = ""
    for row in checked:
        measured = fmt.ratio(compared.solo_measured[row.tenant_id])
        said += (
            f". Slowdown of {row.name}: {fmt.ratio(row.slowdown)} by the replay, {measured} against its solo recording"
        )
    rest = [row.name for row in forecasts if row not in checked]
    return f"{said}. Solo runs of {fmt.names(rest)}: not checked" if rest else said


def _more_time(contention: Contention) -> str:
    """How much more time, or less, kernels take beside those of another tenant: what is forecast, and the bounds.

    Examples
    --------
    >>> from pyanalyze.analysis.advice.options import Contention
    >>> _more_time(Contention(-0.3, 0.03, 0.12)).partition(": memory")[0]
    "Kernels beside another tenant's are assumed to take 3 % more time (bounds 30 % less to 12 % more)"
    >>> _more_time(Contention(0.0, 0.0, 0.08, basis="inferred"))
    "Kernels beside another tenant's took no more time (inferred; bounds 0 % to 8 % more)."
    """

    def change(part: float) -> str:
        percent = round(100 * part)
        return f"{abs(percent)} % {'more' if percent > 0 else 'less'}" if percent else "0 %"

    middle, bounds = change(contention.middle), f"bounds {change(contention.low)} to {change(contention.high)}"
    # What the recording shows of them has whatever they share in it.
    why = ": memory, caches and the units of an SM are not modelled"
    if contention.basis == "assumed":
        found = f"are assumed to take {middle} time ({bounds}){why}"
    elif contention.basis == "sampled":
        # Counters show the traffic, not what it costs.
        found = f"are forecast to take {middle} time (sampled; {bounds}){why}"
    # Less than 1 % is no more than what replays of one recording differ by.
    elif abs(contention.middle) < _NO_MORE_TIME:
        found = f"took no more time (inferred; {bounds})"
    else:
        found = f"took {middle} time (inferred; {bounds})"
    return f"Kernels beside another tenant's {found}."


def _change(compared: Options, mode: Mode, window_ns: int, *, kube: bool) -> Iterator[Advice]:
    best, now = compared.recommended, compared.current
    if best is None:
        return
    refused = [option for option, _ in compared.refused]
    met = [option for option in compared.options if option not in refused]
    ways = (
        f"{len(met)} configurations compared"
        if not refused
        else f"{len(met)} configurations that meet the requirements"
    )
    if kube:
        ways = f"{ways}: the current one and those that Kubernetes can make"
    least = min(option.antt for option in met)
    first = f"it has the smallest mean slowdown of {ways}"
    if len(met) == 1:
        first = "it is the only configuration that meets the requirements"
    elif best.antt > least:
        first = (
            f"its mean slowdown is within {fmt.percent(AS_GOOD, 0)} of the smallest of {ways}, and it is simpler "
            "to set up"
        )
    trial = now is not None and now not in refused and _doubtful(best, now)
    made = _make(best, compared, first, mode, kube=kube, trial=trial)
    made = made.model_copy(update={"why": made.why + _isolation(compared, mode)})
    # By the lower bound: what it could save at most.
    saved = 0.0 if now is None else 1 - best.antt_bounds[0] / now.antt
    if saved > 0:
        made = made.model_copy(update={"at_stake_ns": round(saved * window_ns), "at_stake_share": saved})
    yield made


def _doubtful(option: Option, now: Option) -> bool:
    """Whether a change may gain or lose: its bounds include what is forecast as it is.

    What the replay misses of the present configuration, and of the solo runs that both are compared with, is in the
    bounds of the other one already: those of the present one are not added to it.
    """
    low, high = option.antt_bounds
    return low < now.antt <= high


def _make(option: Option, compared: Options, why: str, mode: Mode, *, kube: bool, trial: bool = False) -> Advice:
    """An option as an action; on `trial` its first line says that a gain is not certain."""
    expected = (
        f"modelled slowdown against a solo run on the whole GPU: {_each(option, compared.current)} (mean "
        f"{option.antt:.2f}x, STP {option.stp:.2f}){_latency_percentiles(option, compared)}"
    )
    commands, undo = _commands(option, compared, mode, kube=kube)
    under = "Try MPS" if trial else "Run the tenants under MPS"
    title = under if option.config.together else f"Time-slice the tenants ({option.name})"
    if option.config.together and TRAITS[mode].mps:
        # They run under MPS already: all of them, or with caps.
        title = "Run all tenants under MPS" if TRAITS[mode].time_sliced else "Run the MPS clients without caps"
    if option.provision is not None:
        title = f"{under} with {_caps(option, option.provision)}"
        why = f"{why}; {option.provision.why}"
        if kube:
            why = f"{why}. The device plugin also divides the memory equally"
    if option.placement is not None:
        parts = ", ".join(f"{name} {one.profile.name}" for name, one in option.placement.placed.items())
        title = f"Give each tenant its own MIG instance: {parts}"
        why = f"{why}; {option.placement.left}"
        unknown = [client.name for client in compared.clients if client.memory_bytes is None]
        if unknown:
            sizes = ", ".join(
                f"{name} {option.placement.family.memory_bytes(option.placement.placed[name].profile) / 2**30:.1f} GiB"
                for name in unknown
            )
            why = (
                f"{why}. The memory use of {fmt.names(unknown)} is not known: samples of nvidia-smi would show it. "
                f"Their instances have about this memory: {sizes}"
            )
    shares = TRAITS[option.mode].promises.not_isolated
    # Either way of the change: programs under caps see fewer SMs.
    under_caps = bool(TRAITS[mode].capped)
    capped = under_caps or option.provision is not None or option.placement is not None
    return Advice(
        action=f"{title}: a gain is likely" if trial else title,
        commands=[*commands, *([_SOLO_FIRST] if trial and not compared.solo_measured else [])],
        expected=expected,
        bound=f"{_bounds(option)}{_ends_early(option)}{_UNDER_CAPS * under_caps}",
        why=f"{why}.{_trust(compared, option)} Not isolated: {shares}",
        undo=undo,
        check_after=f"{_check(option, compared.current, trial=trial)}{_GRIDS * capped}",
        exclusive=True,
    )


def _check(option: Option, now: Option | None, *, trial: bool) -> str:
    """What a capture in the new mode should show, where the change costs a tenant something as well."""
    how = f"pyanalyze compare with a capture in that mode: {'if the forecast holds, ' if trial else ''}"
    slower = {} if now is None else times_slower(option.forecasts, now.forecasts)
    if not slower:
        less = "units of work take less time than now"
        less = f"whether {less} is not forecast" if now is None else less
        worst = sum(fmt.ratio(one.slowdown) == fmt.ratio(option.worst.slowdown) for one in option.forecasts)
        most = f"in that mode it is forecast to be slowed most ({fmt.ratio(option.worst.slowdown)})"
        first = f". Look at {option.worst.name} first: {most}" if worst == 1 else ""
        return f"{how}{less}{first}"
    names = {f.tenant_id: f.name for f in option.forecasts}
    costs = [f"those of {names[tenant_id]} {ratio:.2f} times as long" for tenant_id, ratio in slower.items()]
    others = fmt.names([name for tenant_id, name in names.items() if tenant_id not in slower])
    gain = f"units of work of {others} take less time than now, " if others else "units of work take longer: "
    return f"{how}{gain}{fmt.names(costs)}"


def _caps(option: Option, provision: mps.Provision) -> str:
    """The caps of the clients: one figure where all have the same."""
    if len(set(provision.percentages.values())) == 1:
        each = next(iter(provision.percentages.values()))
        twice = ", twice the equal part" if provision.strategy == "double" else ""
        return f"{'equal ' * (provision.strategy == 'equal')}caps of {each} %{twice}"
    shares = ", ".join(f"{f.name} {provision.percentages[f.tenant_id]} %" for f in option.forecasts)
    return f"{provision.strategy} caps: {shares}"


def _commands(option: Option, compared: Options, mode: Mode, *, kube: bool) -> tuple[tuple[str, ...], str]:
    """Commands from the mode of now to the option, and those back."""
    n = len(option.forecasts)
    runs, static = TRAITS[mode].mps, TRAITS[mode].partitioned
    daemon = compared.daemon
    start = f"{daemon.start}{' -S' if static else ''}"
    if option.placement is not None:
        lines = ((daemon.stop,) if runs else ()) + option.placement.commands()
        back = mig.Placement.undo() + (f"; {start}   # before the workloads start" if runs else "")
        return (*lines, *(kubernetes.mig(option.profiles) if kube else ())), kubernetes.undo_mig() if kube else back
    if option.config.together:
        # A daemon with static partitions takes no percentages: it has to start again.
        capped = bool(TRAITS[mode].capped)
        lines = ((daemon.stop,) if static else ()) + mps.settings(
            option.provision,
            compared.clients,
            running=runs and not static,
            noted=runs and capped and not static,
            daemon=daemon,
        )
        if runs and TRAITS[mode].time_sliced:
            # A daemon is there; a process outside of its group has to find it.
            find = shell_line(["export", f"{PIPE}={visible(daemon.pipe or DEFAULT_PIPE, None)}"])
            lines = (f"{find}   # the daemon's, for the process outside", *lines)
        back = mps.undo_caps(
            compared.clients,
            capped=capped,
            of_daemon=mps.sets_daemon(option.provision),
            in_place=option.provision is not None,
            daemon=daemon,
        )
        if static:
            back = "\n".join((f"{daemon.quit}; {start}", *mps.undo_limits(compared.clients)))
        elif not runs:
            back = daemon.undo
        elif TRAITS[mode].time_sliced:
            back = f"{back}\nunset {PIPE}   # for the process that was outside"
        return (*lines, *(kubernetes.mps(n) if kube else ())), kubernetes.UNDO if kube else back
    lines = (f"{daemon.quit}   # where an MPS daemon runs: without it processes are time-sliced",)
    return (*lines, *(kubernetes.time_slicing(n) if kube else ())), (
        kubernetes.UNDO if kube else f"{start}   # before the workloads start"
    )


def _stay(
    compared: Options,
    required: tuple[Requirement, ...],
    verdict: Verdict,
    *,
    kube: bool,
    fewest: int | None = None,
) -> Advice:
    """Say why to change nothing; `fewest`: operations of the tenant with the fewest, None: not counted."""
    best = compared.recommended
    if best is None:
        return isolating.own_gpus(
            required, [(option.name, option.mode) for option, _ in compared.refused], mig_could=bool(compared.unplaced)
        )
    now = _now(compared, verdict.mode) or best
    refused = [option for option, _ in compared.refused]
    others = [option for option in compared.options if option is not now and option not in refused]
    # Options are in the order of their mean slowdown.
    other = f"; {_named(others[0])}: {_each(others[0])}" if others else ""
    best = others[0] if others else None
    bound = None if best is None else f"mean slowdown {_range(now)} as it is, {_range(best)} under {_named(best)}"
    overlap = best is not None and _doubtful(best, now)
    if overlap:
        bound = f"{bound}. These overlap: which is smaller is not certain"
    inside = TRAITS[verdict.mode].mig_instance and not TRAITS[verdict.mode].one_process
    tail = _shorter_tail(compared)
    # What stands for caps that are not known has other ones.
    kept = _named(now) if now is compared.current else "the sharing configuration"
    as_what = "" if now is compared.current else f" ({_named(now)})"
    which = " that Kubernetes can make" if kube else " that meets the requirements" if refused else ""
    why = f"no other configuration{which} is forecast {'clearly ' if overlap else ''}faster on average"
    first = f"its mean elapsed slowdown of {now.antt:.2f}x is the smallest of {len(others) + 1} configurations"
    means = [f"{option.antt:.2f}x" for option in (now, *others[:1])]
    # A difference that no digit shows is none.
    if others and others[0].antt < now.antt and means[0] != means[1]:
        change = " -> ".join(means)
        said = "" if tail else f" (modelled mean elapsed slowdown {change}; latency is not compared)"
        why = f"{_named(others[0])}, the best other one, is forecast to gain less than {fmt.percent(WORTH_IT, 0)}{said}"
        first = (
            f"{_named(others[0])} has the smallest mean elapsed slowdown of {len(others) + 1} configurations"
            f"{f' ({change})' if tail else ''}. "
            f"The model cannot tell a difference below {fmt.percent(WORTH_IT, 0)}"
        )
    if tail is not None:
        # `_for_tail` gives it, or `_stricter` where it isolates more: both follow.
        slower = times_slower(tail[0].forecasts, now.forecasts)
        longer = [
            f"{row.name} takes {slower[row.tenant_id]:.2f}" for row in tail[0].forecasts if row.tenant_id in slower
        ]
        cost = f" ({fmt.names(longer)} times as long)" if longer else ""
        why = f"{why}. For the p99 of {fmt.names(tail[1])}: {_named(tail[0])}{cost}"
    # A replay of a few operations, which no solo recording checks, speaks for those only.
    few = fewest is not None and fewest < ENOUGH_UNITS and not compared.solo_measured
    if few:
        why = f"{why}. This is not certain: a tenant ran only {fmt.counted(fewest or 0, 'operation')}"
        first = f"{first}. Record the tenants for longer, or each solo, to be sure"
    return Advice(
        action=f"Keep {kept}{' in this instance' if inside else ''}{' for now' if few else ''}: {why}",
        commands=[],
        # The model needs no solo recording: it gives a slowdown even of a tenant of which none could be measured.
        expected=f"modelled slowdown, not measured: as it is{as_what}: {_each(now)}{other}",
        bound=bound,
        why=f"{first}{_isolation(compared, verdict.mode)}. "
        f"{'Elapsed time is compared, not latency.' if tail is None else 'This compares elapsed time alone.'}"
        f"{_trust(compared, now)}",
        undo=None,
        wrong_if="the workloads change: other kernels, other load, or another number of tenants",
    )


def _gains(option: Option, now: Option | None) -> bool:
    """Whether any tenant is forecast to gain what is worth a change; what is not known is not ruled out."""
    before = {} if now is None else {f.tenant_id: f.slowdown for f in now.forecasts}
    return now is None or any(
        forecast.slowdown < (1 - WORTH_IT) * before.get(forecast.tenant_id, 0.0) for forecast in option.forecasts
    )


def _instances(compared: Options) -> Option | None:
    """MIG, where it is not what was recommended and meets the requirements."""
    best = compared.recommended
    refused = [option for option, _ in compared.refused]
    if best is None or best.placement is not None:
        return None
    return next((one for one in compared.options if one.placement is not None and one not in refused), None)


def _stricter(compared: Options, mode: Mode, *, kube: bool) -> Iterator[Advice]:
    """MIG, where it is not what was recommended, and some tenant gains: it isolates more and costs a known amount."""
    best, now, option = compared.recommended, _now(compared, mode), _instances(compared)
    if best is None or option is None or not _gains(option, now):
        return
    held = now or best
    why = (
        "of the configurations compared only MIG isolates faults, memory and bandwidth at once; its mean slowdown is "
        f"{option.antt / held.antt:.2f} times that of {_named(held)}{'' if now is None else ' as it is'}"
    )
    made = _make(option, compared, why, mode, kube=kube)
    condition = "Only if faults, memory or bandwidth must be isolated"
    if now is not None and _doubtful(best, now) and not _doubtful(option, now):
        condition = "If a gain must be certain, or faults, memory or bandwidth isolated"
    action = f"{condition}: {made.action[0].lower()}{made.action[1:]}"
    yield made.model_copy(update={"action": action})


def _isolation(compared: Options, mode: Mode) -> str:
    """Say what MIG is for, and what it costs, where no tenant is forecast to gain by it: it is no action then."""
    option = _instances(compared)
    if option is None or _gains(option, _now(compared, mode)):
        return ""
    return (
        f". No tenant is forecast to gain {fmt.percent(WORTH_IT, 0)} or more under MIG (mean slowdown "
        f"{option.antt:.2f}x): use it only to isolate faults "
        "and bandwidth. Its commands: pyanalyze advise CAPTURE --require bandwidth-qos"
    )


def _no_instance(compared: Options) -> Iterator[Advice]:
    if compared.mig_instances is not None:
        tenants, instances = len(compared.clients), compared.mig_instances
        yield Advice(
            action=f"Move {tenants - instances:,} of {tenants:,} tenants to another GPU: MIG cannot hold more",
            commands=[],
            expected=None,
            bound=None,
            why=f"this GPU has at most {instances} MIG instances. Which tenants fit them best is not worked out for "
            f"more than {MOST_COPIES} tenants",
            undo=None,
            wrong_if=None,
        )
    if not compared.unplaced:
        return
    each = "; ".join(f"{name}: {why}" for name, why in compared.unplaced.items())
    yield Advice(
        action=f"Move tenants to another GPU: MIG cannot hold {', '.join(compared.unplaced)}",
        commands=[],
        expected=None,
        bound="all valid sets of instances were tried",
        why=each,
        undo=None,
        wrong_if="a tenant needs less memory than it used",
    )


def _left_out(compared: Options, required: tuple[Requirement, ...]) -> Iterator[Advice]:
    if not compared.refused or compared.recommended is None:
        return
    lacking = "; ".join(
        TRAITS[option.mode].promises.shortfall(lacks).format(f"{_named(option)} ({_each(option)})")
        for option, lacks in compared.refused
    )
    yield Advice(
        action=f"Configurations without {' or '.join(required)} were left out",
        commands=[],
        expected=None,
        bound=None,
        why=f"{lacking}. This follows from NVIDIA's documentation, not from this capture",
        undo=None,
        wrong_if=None,
    )


def _memory(compared: Options, device: Mapping[str, object]) -> Iterator[Advice]:
    total = device["memory_bytes"]
    known = [client.memory_bytes for client in compared.clients if client.memory_bytes is not None]
    if not isinstance(total, int) or not known:
        return
    used = sum(known)
    if used > total * (1 - MEMORY_RESERVE):
        unknown = len(compared.clients) - len(known)
        more = f"; memory of {unknown} more is not known" if unknown else ""
        yield Advice(
            action="Reduce memory use first: together these tenants may run out of memory",
            commands=["under MPS: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT per client; otherwise smaller batches or caches"],
            expected=None,
            bound=f"the sum of their memory peaks is {used / 2**30:.1f} of {total / 2**30:.1f} GiB{more}",
            why="only MIG partitions memory; an allocation that does not fit fails, whichever tenant makes it",
            undo="# remove the limit from the program",
            wrong_if="the peaks never coincide",
        )


def _window_ns(tables: TableSet, device_id: int) -> int:
    """First to last activity of any tenant of the device."""
    import polars as pl

    usage = tables.of_device("tenant_usage", device_id)
    length = usage.select(pl.col("last_ns").max() - pl.col("first_ns").min()).item()
    return int(length or 0)


def _own_time(
    tables: TableSet,
    verdict: Verdict,
    splits: Mapping[tuple[int, int], TimeSplit],
    copies: Mapping[tuple[int, int], Copies],
    streams: Mapping[tuple[int, int], Streams],
    kernel_counters: Sequence[KernelCounters],
) -> Iterator[Advice]:
    import polars as pl

    names = tables.labels(verdict.device_id)
    mine = {tenant: split for (device, tenant), split in splits.items() if device == verdict.device_id}
    # What a process did with its own time holds as well where it is not known who else was there.
    alone = TRAITS[verdict.mode].one_process or (
        verdict.mode == Mode.UNDETERMINED and len(tables.rows_of("tenants", verdict.device_id)) == 1
    )
    sole = alone and len(mine) == 1
    for tenant, split in mine.items():
        name = names.get(tenant, f"tenant {tenant}")
        key = (verdict.device_id, tenant)
        if sole:
            launched = _launched(tables, key, kernel_counters)
            named, left_ns = _kernel_to_name(tables, key, split, launched)
            kernel = _top_kernel(tables, key, named, split, left_ns, launched)
            sampled = "cpu_samples" in tables.sources["source"].cast(pl.String)
            yield from own_time.of_process(name, named, copies.get(key), kernel=kernel, sampled=sampled)
        else:
            yield from own_time.of_shared_process(name, split, copies.get(key))
        used = streams.get(key)
        if used is not None and host_side.could_overlap(split):
            yield from overlap.between_streams(name, used)


def _kernel_to_name(
    tables: TableSet, tenant: tuple[int, int], split: TimeSplit, launched: Sequence[_Launched]
) -> tuple[TimeSplit, dict[str, int]]:
    """The split about the kernel that leaves most to gain by the counters, and what each kernel leaves at most.

    Without counters it is the one with most time. Of kernels that run at once, counters show only what one does solo.
    """
    # Of these what they leave is their own: one with as much time may leave nothing.
    have_counters = {one.kernel for one in launched if one.used is not None}
    if not have_counters or split.top_kernel is None or split.mostly_graphs:
        return split, {}
    if split.overlapping:
        one_only = split.top_kernel in have_counters
        return (split.model_copy(update={"top_kernel_equals": []}) if one_only else split), {}
    left_ns: dict[str, float] = {}
    for one in launched:
        if one.kernel is not None:
            # Launches that no sample fits into may leave all of it.
            left_ns[one.kernel] = left_ns.get(one.kernel, 0) + one.ns * (1 - min(one.used or 0.0, 1.0))
    first, *rest = sorted(left_ns, key=lambda one: (-left_ns[one], one))
    left = {one: fmt.percent(ns / split.window_ns) for one, ns in left_ns.items()}
    equals = [one for one in rest if left[one] == left[first] and not {one, first} & have_counters][:MOST_EQUAL]
    named = about_kernel(tables, tenant, split, first).model_copy(update={"top_kernel_equals": equals})
    return named, {one: round(ns) for one, ns in left_ns.items()}


class _Launched(NamedTuple):
    """A launch configuration: its kernel, its time, and which part of what it used most while it ran."""

    kernel: str | None
    ns: int
    #: None: no counters are of it.
    used: float | None
    resource: demands.Resource
    said: str


def _launched(tables: TableSet, tenant: tuple[int, int], counted: Sequence[KernelCounters]) -> list[_Launched]:
    """The launch configurations of a tenant with what counters say of them."""
    import polars as pl

    of_launch = {(one.name, one.grid_blocks, one.block_threads): demands.most_used(one) for one in counted}
    rows = tables.of_device("kernel_occupancy", tenant[0]).filter(pl.col("tenant_id") == tenant[1])
    text = (pl.col(name).cast(pl.String) for name in ("short_name", "name"))
    found = []
    for kernel, name, ns, *launch in rows.select(*text, "total_ns", "grid_blocks", "block_threads").rows():
        resource, said, used = of_launch.get((name, *launch), (demands.Resource.ISSUE, "", None))
        found.append(_Launched(kernel, ns, used, resource, said))
    return found


def _top_kernel(
    tables: TableSet,
    tenant: tuple[int, int],
    named: TimeSplit,
    split: TimeSplit,
    left_ns: Mapping[str, int],
    launched: Sequence[_Launched],
) -> own_time.TopKernel | None:
    """What the named kernel of the only process leaves of the device; None: nothing is known."""
    kernel, top = named.top_kernel, split.top_kernel
    if kernel is None or top is None:
        return None
    mine = [one for one in launched if one.kernel == kernel]
    found = [(one.ns, one.resource, one.said, one.used) for one in mine if one.used is not None]
    used = min(sum(ns * part for ns, *_, part in found) / max(sum(one.ns for one in mine), 1), 1.0)
    less = kernel != top and left_ns[top] < left_ns[kernel]
    passed_over = (top, left_ns[top]) if less else None
    first = f" of {kernel}" if named.top_kernel_equals else ""
    _, resource, used_words, _ = max(found, default=(0, demands.Resource.ISSUE, "", 0.0))
    few_blocks = _small_grids(tables, tenant[0], kernel)
    if few_blocks is not None:
        blocks, sms = few_blocks
        whose = f"grids{first}" if first else "its grids"
        said = f"{whose} have at most {fmt.counted(blocks, 'block')} for {sms} SMs"
        return own_time.TopKernel(said, few_blocks, used, passed_over, resource=resource, used_words=used_words)
    if found:
        said = f"while it ran, {used_words} (sampled)"
        return own_time.TopKernel(said, None, used, passed_over, resource=resource, used_words=used_words)
    if any(one.used is not None for one in launched):
        whose = f"launches{first}" if first else "its launches"
        said = f"fewer than {ENOUGH_SAMPLES} samples of counters fit into {whose}"
        return own_time.TopKernel("", None, 0.0, passed_over, not_counted=said)
    of_all = _resource_used_up(tables, *tenant)
    return own_time.TopKernel(of_all) if of_all else None


def _small_grids(tables: TableSet, device_id: int, kernel: str) -> tuple[int, int] | None:
    """Most blocks of a grid of a kernel, and SMs of the device, where all its grids leave many of these empty."""
    import polars as pl

    sms = tables.devices.filter(pl.col("device_id") == device_id)["sm_count"].item()
    named = pl.col("short_name").cast(pl.String) == kernel
    grids = tables.of_device("kernel_occupancy", device_id).filter(named)["grid_blocks"]
    most = grids.max()
    if not sms or not isinstance(most, int) or grids.null_count() or most > FEW_BLOCKS * sms:
        return None
    return most, int(sms)


def _resource_used_up(tables: TableSet, device_id: int, tenant: int) -> str:
    """Say that DRAM or the SMs do not have much more to give to the kernels of the only process; empty: not sampled."""
    for resource, used in (
        ("DRAM bandwidth", demands.bandwidth),
        ("the throughput of the SMs", demands.sm_throughput),
    ):
        part = used(tables, device_id, [tenant], time_sliced=False).get(tenant, 0.0)
        if part >= demands.USED_UP:
            return f"its kernels take {fmt.percent(part, 0)} of {resource} (sampled)"
    return ""


def _host_side(
    tables: TableSet,
    verdict: Verdict,
    splits: Mapping[tuple[int, int], TimeSplit],
    streams: Mapping[tuple[int, int], Streams],
) -> Iterator[Advice]:
    names = tables.labels(verdict.device_id)
    instance = TRAITS[verdict.mode].mig_instance
    where = "instance" if instance else "GPU"
    bound = "changing the sharing mode gains nothing"
    if instance:
        bound = "changing the sharing mode of this instance gains nothing; the gain of a larger instance is not known"
    titles = {
        "throttled": "its clocks are throttled",
        "default-stream": "the legacy default stream serialises its streams",
        "full-grids": f"its streams cannot overlap, because each grid fills the {where}",
    }
    for cause in host_side.causes(tables, verdict.device_id, splits, streams):
        who = "the board" if cause.tenant_id is None else names.get(cause.tenant_id, f"tenant {cause.tenant_id}")
        yield Advice(
            action=f"Check {who} first: {titles[cause.kind]}",
            commands=[],
            expected=None,
            # Clocks are the board's.
            bound=bound if cause.tenant_id is not None else "changing the sharing mode gains nothing",
            why=f"{cause.what}. To fix it: {cause.do}",
            undo=None,
            wrong_if="a solo run shows another value",
        )


def _full_switch(switch: FullSwitch) -> str:
    """Name the parts of a full switch, and where they come from."""
    return (
        f"A full switch takes about {fmt.duration(switch.length_ns)}: a switch gap of {fmt.duration(switch.gap_ns)}, "
        f"and {fmt.duration(switch.state_ns)} for saving and restoring ({switch.known})"
    )


def _default_slice(time_slice_ns: int | None) -> bool:
    """Whether a length that many intervals have is that of the default policy: another one may be a tenant's rhythm."""
    return time_slice_ns is not None and abs(time_slice_ns / DEFAULT_SLICE_NS - 1) <= _LIKE_DEFAULT


def _longer_slices_save(resident: DeviceResidency | None, switch: FullSwitch) -> str:
    """What the switches take that longer slices might spare; empty: how intervals ended is not known.

    An interval that ended before its time slice did would end as early.
    """
    expired = [None] if resident is None or resident.basis != "observed" else [one.expired for one in resident.tenants]
    known = [n for n in expired if n is not None]
    if not known or len(known) < len(expired):
        return ""
    switches = fmt.counted(sum(known), "full switch", "full switches")
    return (
        f"{fmt.duration(sum(known) * switch.length_ns)}: {switches} of {fmt.duration(switch.length_ns)}"
        f"{' (assumed)' if switch.assumed else ''} after intervals that used up their time slice"
    )


def _time_slices(
    tables: TableSet, verdict: Verdict, latency_ns: int | None, resident: DeviceResidency | None, tenants: int
) -> Iterator[Advice]:
    traits = TRAITS[verdict.mode]
    # A virtual machine's slices are set on its host, by other means.
    if not traits.time_sliced or traits.vgpu or tenants < 2:
        return
    seen, switch = observed_slicing(tables, verdict.device_id), full_switch(tables, verdict.device_id)
    if seen is None or switch is None:
        return
    slice_ns, switch_ns = seen
    if slice_ns is None and latency_ns is not None and resident is not None and _default_slice(resident.time_slice_ns):
        # Nothing shows who had work left when an interval ended: by their lengths alone, as residency has it.
        slice_ns = max((resident.time_slice_ns or 0) - switch.state_ns, 1)
    if slice_ns is None:
        if latency_ns is not None:
            yield Advice(
                action=f"Record while all tenants are busy: whether waits stay below {fmt.duration(latency_ns)} is not "
                "known",
                commands=[],
                expected=None,
                bound=None,
                why="intervals of this capture do not show how long a time slice is: too few of one length ended while "
                "their tenant had work",
                undo=None,
            )
        return
    if resident is not None and resident.basis == "observed":
        # Clients of one MPS server have one context.
        tenants = max(sum(one.slices > 0 for one in resident.tenants), 2)
    cost, wait_ns = slicing.overhead(slice_ns, switch_ns), slicing.longest_wait_ns(slice_ns, switch_ns, tenants)
    everyone = "both" if tenants == 2 else f"all {tenants}"
    now = (
        f"{_full_switch(switch)}. Of a time slice, kernels execute for {fmt.duration(slice_ns)}: "
        f"full switches take {fmt.percent(cost)} of the time while {everyone} use up their slices. "
        f"Each time it is switched out, a kernel waits up to about {fmt.duration(wait_ns)} (calculated: "
        f"{tenants - 1} x {fmt.duration(slice_ns)} and {tenants} full switches)"
    )
    undo = "nvidia-smi compute-policy --set-timeslice=0"
    unknown = (
        "NVIDIA does not publish how long the policies short, medium and long are: set one, record again, and read the "
        "length with pyanalyze residency"
    )
    if latency_ns is not None:
        choice = slicing.slice_for(latency_ns, switch_ns, tenants)
        if choice.slice_ns is None or choice.overhead is None:
            yield Advice(
                action=f"Use fewer tenants: no time slice gives waits below {fmt.duration(latency_ns)} for {tenants} "
                "tenants",
                commands=[],
                expected=None,
                bound=f"{tenants} full switches of {fmt.duration(switch_ns)} alone take longer",
                why=now,
                undo=None,
                wrong_if="a capture shows cheaper switches",
            )
            return
        if wait_ns <= latency_ns:
            yield Advice(
                action=f"Keep the time slices for waits below {fmt.duration(latency_ns)}: they are at most about "
                f"{fmt.duration(wait_ns)}",
                commands=[],
                expected=None,
                bound="round robin with all tenants busy; a kernel that cannot be preempted waits longer",
                why=f"{now}. With slices of {fmt.duration(choice.slice_ns)} waits would still be as short, and full "
                f"switches take {fmt.percent(choice.overhead)} of the time",
                undo=None,
                wrong_if="more tenants share the GPU",
            )
            return
        policy = slicing.policy_for(choice.slice_ns, slice_ns)
        yield Advice(
            action=f"Set time slices of at most {fmt.duration(choice.slice_ns)} for waits below "
            f"{fmt.duration(latency_ns)}: policy {slicing.POLICIES[policy]}",
            commands=[
                f"nvidia-smi compute-policy --set-timeslice={policy}   # as root, all GPUs, until the driver reloads"
            ],
            expected=f"calculated: context switches then take {fmt.percent(choice.overhead)} of the time",
            bound="round robin with all tenants busy; a kernel that cannot be preempted waits longer",
            why=f"{now}. {unknown}",
            undo=undo,
            exclusive=True,
            check_after=f"time slices recorded under the policy are at most {fmt.duration(choice.slice_ns)} long",
        )
    elif cost >= NOTABLE_OVERHEAD:
        yield Advice(
            action="Use longer time slices only if throughput matters and latency does not",
            commands=[
                "nvidia-smi compute-policy --set-timeslice=3   # long; as root, all GPUs, until the driver is reloaded"
            ],
            expected=None,
            bound=_longer_slices_save(resident, switch)
            or f"{fmt.percent(cost)} of the time while {everyone} are busy: the full switches of whole time slices"
            f"{', of the assumed length' if switch.assumed else ''}",
            why="longer time slices need fewer switches of the same cost, but let kernels wait longer. "
            f"{now}. {unknown}",
            undo=undo,
            exclusive=True,
            check_after="recorded time slices are longer, and latencies are still short enough",
        )
