"""Should the sharing configuration change?  To which one of those compared, or why to keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import required as isolating
from pyanalyze.analysis.advice.forecast_text import beside_text, named_inside, range_text, slowdowns_text, trust_text
from pyanalyze.analysis.advice.option_action import action_of
from pyanalyze.analysis.advice.options import AS_GOOD
from pyanalyze.results.advice import EXPLAINS, Advice, times_slower
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import ENOUGH_UNITS, MEMORY_RESERVE, MOST_COPIES, TRAITS, WORTH_IT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyanalyze.analysis.advice.options import Forecast, Option, Options
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.vocabulary import Mode, Requirement

#: Part of a modelled p99 latency that a configuration may leave to be named for it: by as much the model does not miss.
HALVED = 0.5
#: Client priorities are advised where the next tenant is slowed by so much less.
_UNEVEN = 0.2
#: Rates of `mps-first-open_loop-B` and `mps-first-A-B` over those without priorities (fixtures/hardware/h200).
_PRIORITIES_MEASURED = (
    "Measured on an H200 with two pairs of programs: 1.59 and 1.15 times the rate for the one of normal priority, 0.91 "
    "and 0.77 times for the other"
)


def stays(compared: Options, mode: Mode) -> bool:
    """Whether no other way is worth a change."""
    gain = _gain(compared, mode)
    return gain is None or gain < WORTH_IT


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


def change_to_best(compared: Options, mode: Mode, window_ns: int, *, kube: bool) -> Iterator[Advice]:
    """Advise the configuration with the smallest mean slowdown, or one about as good that is simpler to set up."""
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
    made = action_of(best, compared, first, mode, kube=kube, trial=trial)
    made = made.model_copy(update={"why": made.why + _isolation(compared, mode)})
    # By the lower bound: what it could save at most.
    saved = 0.0 if now is None else 1 - best.antt_bounds[0] / now.antt
    if saved > 0:
        made = made.model_copy(update={"at_stake_ns": round(saved * window_ns), "at_stake_share": saved})
    yield made


def keep(
    compared: Options,
    required: tuple[Requirement, ...],
    verdict: Verdict,
    *,
    kube: bool,
    fewest: int | None = None,
    waits: int | None = None,
) -> Advice:
    """Say why to change nothing.

    `fewest`: operations of the tenant with the fewest, None: not counted. `waits`: the tenant whose latency, which its
    elapsed time does not show, no other action is about; None: there is none.
    """
    best = compared.recommended
    if best is None:
        return isolating.own_gpus(
            required, [(option.name, option.mode) for option, _ in compared.refused], mig_could=bool(compared.unplaced)
        )
    now = _now(compared, verdict.mode) or best
    refused = [option for option, _ in compared.refused]
    others = [option for option in compared.options if option is not now and option not in refused]
    # Options are in the order of their mean slowdown.
    best = others[0] if others else None
    other = "" if best is None else f", {best.antt:.2f}x under {named_inside(best)}"
    bound = None if best is None else f"{range_text(now)} now, {range_text(best)} under {named_inside(best)}"
    overlap = best is not None and _doubtful(best, now)
    if overlap:
        bound = f"{bound}. They overlap, so which is smaller is not certain"
    inside = TRAITS[verdict.mode].mig_instance and not TRAITS[verdict.mode].one_process
    tail = _shorter_tail(compared)
    # What stands for caps that are not known has other ones.
    kept = named_inside(now) if now is compared.current else "the sharing configuration"
    as_what = "" if now is compared.current else f" ({named_inside(now)})"
    which = " that Kubernetes can make" if kube else " that meets the requirements" if refused else ""
    why = f"no other configuration{which} is forecast {'clearly ' if overlap else ''}faster on average"
    first = f"its mean elapsed slowdown is the smallest of {len(others) + 1} configurations"
    means = [f"{option.antt:.2f}x" for option in (now, *others[:1])]
    # A difference that no digit shows is none.
    if others and others[0].antt < now.antt and means[0] != means[1]:
        best_other = f"{named_inside(others[0])}, the best other one,"
        why = f"{best_other} is forecast to gain less than {fmt.percent(WORTH_IT, 0)} of elapsed time"
        first = (
            f"{named_inside(others[0])} has the smallest mean elapsed slowdown of {len(others) + 1} configurations. "
            f"The model cannot tell a difference below {fmt.percent(WORTH_IT, 0)}"
        )
    if tail is not None:
        # `for_tail` gives it, or `stricter` where it isolates more: both follow.
        slower = times_slower(tail[0].forecasts, now.forecasts)
        longer = [
            f"{row.name} takes {slower[row.tenant_id]:.2f}" for row in tail[0].forecasts if row.tenant_id in slower
        ]
        cost = f" ({fmt.names(longer)} times as long)" if longer else ""
        why = f"{why}. For the p99 of {fmt.names(tail[1])}: {named_inside(tail[0])}{cost}"
    if waits is not None and (said := _of_latency(compared, now, others, waits)):
        why = f"{why}. {said}"
    # A replay of a few operations, which no solo recording checks, speaks for those only.
    few = fewest is not None and fewest < ENOUGH_UNITS and not compared.solo_measured
    if few:
        why = f"{why}. This is not certain: a tenant ran only {fmt.counted(fewest or 0, 'operation')}"
        first = f"{first}. Record the tenants for longer, or each solo, to be sure"
    return Advice(
        action=f"Keep {kept}{' in this instance' if inside else ''}{' for now' if few else ''}: {why}",
        commands=[],
        # The model needs no solo recording: it gives a slowdown even of a tenant of which none could be measured.
        expected=f"modelled mean elapsed slowdown {now.antt:.2f}x now{as_what}{other}"
        + ("; latency is not compared" if tail is None else ""),
        bound=bound,
        why=f"{first}{_isolation(compared, verdict.mode)}."
        f"{'' if tail is None else ' This compares elapsed time alone.'}"
        f"{trust_text(compared)}{beside_text(now.contention)}",
        undo=None,
        wrong_if="the workloads, their load or the number of tenants change",
    )


def _doubtful(option: Option, now: Option) -> bool:
    """Whether a change may gain or lose: its bounds include what is forecast as it is.

    What the replay misses of the present configuration, and of the solo runs that both are compared with, is in the
    bounds of the other one already: those of the present one are not added to it.
    """
    low, high = option.antt_bounds
    return low < now.antt <= high


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


def _of_latency(compared: Options, now: Option, others: Sequence[Option], tenant_id: int) -> str:
    """What other configurations are forecast to do to the p99 latency of a tenant; empty: what halves it is named."""
    name = next((f.name for f in now.forecasts if f.tenant_id == tenant_id), None)
    tail = _shorter_tail(compared)
    if name is None or (tail is not None and name in tail[1]):
        return ""
    before = compared.present_p99_ns.get(tenant_id)
    p99 = {
        option.name: f.p99_ns for option in others for f in option.forecasts if f.tenant_id == tenant_id and f.p99_ns
    }
    if before is None or not p99 or tenant_id in compared.missed_p99:
        return f"The latency of {name} is in no forecast"
    least = min(others, key=lambda option: p99.get(option.name, before))
    shortest_ns = p99.get(least.name, before)
    if shortest_ns > (1 - WORTH_IT) * before:
        return f"None is forecast to shorten the p99 of {name} by {fmt.percent(WORTH_IT, 0)}"
    return f"P99 of {name}: {fmt.duration(before)} now, {fmt.duration(shortest_ns)} under {named_inside(least)}"


def for_tail(compared: Options, mode: Mode, *, kube: bool) -> Iterator[Advice]:
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
    made = action_of(option, compared, why, mode, kube=kube, also=True)
    action = f"If the p99 latency of {fmt.names(names)} matters more: {made.action[0].lower()}{made.action[1:]}"
    yield made.model_copy(update={"action": action})


def client_priority(compared: Options, mode: Mode) -> Iterator[Advice]:
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


def waiting_for_slices(compared: Options, mode: Mode, expired: Collection[int]) -> list[Forecast]:
    """Tenants that mostly wait for their time slice, and would wait for less if slices were shorter.

    `expired`: tenants with intervals that ended because their time slice did. Who waits for others alone, which end
    their intervals before that, would wait for as long.
    """
    now, traits = compared.current, TRAITS[mode]
    # Policies are set for a board: not for an instance of it, and for virtual machines on their host.
    if now is None or not traits.time_sliced or traits.vgpu or traits.mig_instance:
        return []
    return [
        one
        for one in now.forecasts
        if one.waits is not None and one.waits.not_resident > EXPLAINS and {*expired} - {one.tenant_id}
    ]


def shorter_slices(waiting: Sequence[Forecast], *, exclusive: bool) -> Iterator[Advice]:
    """A trial of shorter time slices, where tenants mostly wait for their own: what it gains is in no forecast."""
    if not waiting:
        return
    name = max(waiting, key=lambda one: one.slowdown).name
    yield Advice(
        action=f"For the latency of {name}, try shorter time slices",
        commands=[
            "nvidia-smi compute-policy --set-timeslice=1   # short; as root, all GPUs, until the driver is reloaded"
        ],
        expected=None,
        bound=None,
        why=f"in the replay of the current configuration {name} mostly waits for its time slice. A wait lasts for up "
        "to a time slice of each other tenant. Shorter ones need more context switches. NVIDIA does not publish their "
        "lengths, so the gain is in no forecast",
        undo="nvidia-smi compute-policy --set-timeslice=0",
        exclusive=exclusive,
        check_after=f"pyanalyze compare with a capture under that policy: units of work of {name} take less time",
    )


def stricter(compared: Options, mode: Mode, *, kube: bool) -> Iterator[Advice]:
    """MIG, where it is not what was recommended, and some tenant gains: it isolates more and costs a known amount."""
    best, now, option = compared.recommended, _now(compared, mode), _instances(compared)
    if best is None or option is None or not _gains(option, now):
        return
    held = now or best
    why = (
        "of these configurations only MIG isolates faults, memory and bandwidth at once. Its mean slowdown is "
        f"{option.antt / held.antt:.2f} times that of {named_inside(held)}{'' if now is None else ' as it is'}"
    )
    made = action_of(option, compared, why, mode, kube=kube, also=True)
    condition = "Only if faults, memory or bandwidth must be isolated"
    # What costs the tenants more than it brings them is nobody's way to a sure gain.
    if now is not None and option.antt < now.antt and _doubtful(best, now) and not _doubtful(option, now):
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
        f"{option.antt:.2f}x). Use it only to isolate faults and bandwidth: pyanalyze advise CAPTURE --require "
        "bandwidth-qos"
    )


def _instances(compared: Options) -> Option | None:
    """MIG, where it is not what was recommended and meets the requirements."""
    best = compared.recommended
    refused = [option for option, _ in compared.refused]
    if best is None or best.placement is not None:
        return None
    return next((one for one in compared.options if one.placement is not None and one not in refused), None)


def _gains(option: Option, now: Option | None) -> bool:
    """Whether any tenant is forecast to gain what is worth a change; what is not known is not ruled out."""
    before = {} if now is None else {f.tenant_id: f.slowdown for f in now.forecasts}
    return now is None or any(
        forecast.slowdown < (1 - WORTH_IT) * before.get(forecast.tenant_id, 0.0) for forecast in option.forecasts
    )


def no_instance(compared: Options) -> Iterator[Advice]:
    """Say which tenants have to go to another GPU, because MIG cannot hold them."""
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


def left_out(compared: Options, required: tuple[Requirement, ...]) -> Iterator[Advice]:
    """Say which configurations do not promise what is required."""
    if not compared.refused or compared.recommended is None:
        return
    lacking = "; ".join(
        TRAITS[option.mode].promises.shortfall(lacks).format(f"{named_inside(option)} ({slowdowns_text(option)})")
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


def less_memory(compared: Options, device: Mapping[str, object]) -> Iterator[Advice]:
    """Say that memory comes first, where the peaks of all tenants may not fit at once."""
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
