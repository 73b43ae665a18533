"""What to change on each device: the entry point, and the order of what is advised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import configuration, demands, host_side, kubernetes, processes, slicing
from pyanalyze.analysis.advice import required as isolating
from pyanalyze.analysis.advice.cluster import cluster_advice, with_record
from pyanalyze.analysis.advice.instance import (
    alone_in_instance,
    in_mig_mode,
    move_to_empty,
    nothing_to_record,
    several_in_instance,
)
from pyanalyze.analysis.advice.options import Options, contradicted, options
from pyanalyze.analysis.advice.residents import residents_of, with_latency, without_switching
from pyanalyze.analysis.advice.simple import (
    in_turn,
    kept_apart,
    look_at_host,
    record_first,
    record_kernels,
    simple_bounds,
    unknown_tenants,
    unlisted_process,
    without_green_contexts,
)
from pyanalyze.analysis.impact import latency_victim
from pyanalyze.analysis.mps_daemon import daemon_on
from pyanalyze.analysis.residency import NO_GROUPS
from pyanalyze.analysis.sharing.case import idle_program
from pyanalyze.nsys_tool import recording
from pyanalyze.results.advice import Advice, numbers_of
from pyanalyze.results.time_split import Limit
from pyanalyze.tables.process_lists import listed_nobody
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import SMALL_SHARE, TRAITS, Mode, not_excluded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyanalyze.analysis.advice.options import Forecast
    from pyanalyze.analysis.advice.simple import Resident
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
        compared = kubernetes.only_made(compared)
    (device,) = tables.rows_of("devices", verdict.device_id)
    own = list(processes.of_each(tables, verdict, splits, copies, streams, kernel_counters))
    host = list(host_side.check_first(tables, verdict, splits, streams))
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
            host_waits=any(split.host_ns >= SMALL_SHARE * split.window_ns > 0 for split in here) or not here,
            fewest=min((split.operations for split in here if split.operations is not None), default=None),
            kube=kube,
            nobody=nothing_to_record(tables, listed, device),
            slowed=None if interference is None else lambda: interference(verdict.device_id),
        )
    )
    if not tables.paths:
        actions += move_to_empty(tables, listed, device)
    if kube and not tables.paths:
        # Nothing in samples ranks the alternatives: what decides comes first.
        decide = [with_record(action, listed, verdict.device_id) for action in actions[:1]]
        actions = [*decide, *actions[1:], *cluster_advice(listed, verdict, device)]
    elif for_kubernetes and not compared.options:
        actions.append(kubernetes.no_settings(compared))
    if compared.recommended is not None and configuration.stays(compared, verdict.mode):
        # Where nothing is worth a change, no other way is the one advised.
        compared = replace(compared, recommended=compared.current)
    return DeviceAdvice(verdict.device_id, tuple(actions), compared)


def _latency_victim(found: DeviceInterference, held: Iterable[Resident]) -> int | None:
    """The tenant whose latency is the problem: as :func:`pyanalyze.analysis.impact.latency_victim`."""
    lost = {one.tenant_id: 1 - 1 / one.inflation for one in held if one.inflation is not None and one.inflation > 1}
    return latency_victim({one.tenant_id: (one.slowdown, lost.get(one.tenant_id)) for one in found.tenants})


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
    host_waits: bool,
    fewest: int | None,
    kube: bool,
    nobody: Advice | None,
    slowed: Callable[[], DeviceInterference] | None,
) -> Iterator[Advice]:
    """What decides or fails first; then by the time at stake; then what changes nothing."""
    own, host = by_process
    held = list(residents_of(tables, verdict.device_id))
    traits = TRAITS[verdict.mode]
    undetermined = verdict.mode == Mode.UNDETERMINED
    # What a process can gain by itself does not depend on who else was there, unless its kernels limit it: time slices
    # of another process would be in their durations.
    by_itself = undetermined and len(held) == 1 and bool(own) and not in_kernels
    missing_first = record_first(
        verdict,
        mig=in_mig_mode(tables, verdict, device),
        captured=bool(tables.paths),
        idle_program=idle_program(tables, verdict.device_id),
        listed=listed,
        listed_nobody=listed_nobody(tables, verdict.device_id),
    )
    if nobody is not None:
        missing_first = iter([nobody])
    client = daemon_on(tables, verdict.device_id).client if traits.mps else None
    first = [*unlisted_process(verdict, held, lambda: demands.active_before_calls(tables, verdict.device_id), client)]
    if undetermined and not by_itself:
        first += missing_first
    elif not undetermined:
        first += unknown_tenants(held, client)
    first += configuration.less_memory(compared, device)
    yield from first
    stays = configuration.stays(compared, verdict.mode)
    window_ns = _window_ns(tables, verdict.device_id)
    change = [] if stays else list(configuration.change_to_best(compared, verdict.mode, window_ns, kube=kube))
    # Python's sort keeps the order of what has nothing at stake that is known.
    yield from sorted((*change, *host, *own), key=lambda item: -(item.at_stake_ns or 0))
    if by_itself:
        yield from missing_first
    if compared.options:
        victim = None if slowed is None else _latency_victim(slowed(), held)
        waiting: list[Forecast] = []
        # Where no interval ended because its time slice did, shorter ones end no sooner.
        if latency_ns is None and resident is not None and resident.basis == "observed":
            expired = [one.tenant_id for one in resident.tenants if one.expired]
            waiting = configuration.waiting_for_slices(compared, verdict.mode, expired)
        # Forecasts rank by elapsed time: where a latency is the problem, what may shorten it comes before what stays.
        of_victim = [one for one in waiting if one.tenant_id == victim]
        tail = list(configuration.for_tail(compared, verdict.mode, kube=kube)) if stays else []
        # Of a mode that stays: then the two are no alternatives.
        first_slices = stays and bool(of_victim) and not tail
        slices = list(configuration.shorter_slices(of_victim or waiting, exclusive=not first_slices))
        if stays:
            if first_slices:
                yield from slices
                slices = []
            waits = None if first_slices else victim
            yield configuration.keep(compared, required, verdict, kube=kube, fewest=fewest, waits=waits)
            yield from tail
        yield from configuration.client_priority(compared, verdict.mode)
        yield from slices
        yield from configuration.stricter(compared, verdict.mode, kube=kube)
        yield from configuration.no_instance(compared)
        yield from configuration.left_out(compared, required)
    else:
        # Where parts of its time are worth a change, what they are says more.
        look_at = "the host, its kernels and the clocks" if host_waits else "its kernels and the clocks"
        if_slow = "" if own or host else f"; if it is slow, check {look_at}"
        if too_few is not None:
            if_slow = f"; its {fmt.counted(too_few, 'operation')} {'is' if too_few == 1 else 'are'} too few to judge by"
        if traits.one_process and traits.mig_instance:
            # The profile names the mode, whoever is in the instance.
            processes = max(len(held), listed)
            if processes == 1:
                yield alone_in_instance(tables, device, if_slow)
            elif processes:
                yield several_in_instance(processes)
        elif traits.one_process:
            if traits.capped:
                # What its own split of the SMs costs or gains is another question than who else is there.
                yield without_green_contexts()
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
                yield isolating.isolated(tables, verdict, required, held, device, compared.why_not)
        elif verdict.mode != Mode.UNDETERMINED:
            daemon = daemon_on(tables, verdict.device_id)
            bounded = without_switching(tables, verdict.device_id, held)
            if slowed is not None and traits.time_sliced:
                bounded = with_latency(bounded, slowed())
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
        yield from slicing.time_slices(tables, verdict, latency_ns, resident, len(held))


def _window_ns(tables: TableSet, device_id: int) -> int:
    """First to last activity of any tenant of the device."""
    import polars as pl

    usage = tables.of_device("tenant_usage", device_id)
    length = usage.select(pl.col("last_ns").max() - pl.col("first_ns").min()).item()
    return int(length or 0)
