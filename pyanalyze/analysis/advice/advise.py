"""What to change on each device: actions with commands, expected effect, bounds and undo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import host_side, kubernetes, mps, slicing
from pyanalyze.analysis.advice.mig import Placement
from pyanalyze.analysis.advice.options import AS_GOOD, Option, Options, best_of, observed_slicing, options
from pyanalyze.analysis.advice.simple import Action, Held, record_first, simple_bounds, unknown_tenants
from pyanalyze.vocabulary import MEMORY_RESERVE, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Requirement

#: With more operations than this the replay is left to `pyanalyze advise`: a report must not take minutes.
QUICK_OPERATIONS = 50_000
#: Gains below this part of the mean slowdown are not worth a change.
WORTH_IT = 0.05
#: Switching overhead above which longer slices are worth naming.
NOTABLE_OVERHEAD = 0.01
#: A tenant whose replay takes less than this part of the longest one's leaves the GPU to the others for a good while.
EARLY = 0.7


@dataclass(frozen=True)
class Advice:
    """What to do on one device.

    Attributes
    ----------
    device_id
        Device.
    actions
        Best first.
    options
        The ways to share it that were compared.
    """

    device_id: int
    actions: tuple[Action, ...]
    options: Options

    def __str__(self) -> str:
        """Show actions and comparison as text."""
        lines = []
        for number, action in enumerate(self.actions, 1):
            lines += [f"{number}. {action.action}", f"   {action.why}"]
            lines += [f"     {command}" for command in action.commands]
            parts = (("Expected", action.expected), ("Bound", action.bound), ("Wrong if", action.wrong_if))
            lines += [f"   {name}: {text}" for name, text in (*parts, ("Undo", action.undo)) if text]
        for option in self.options.options:
            each = ", ".join(f"{f.name} {f.slowdown:.2f}x ({f.low:.2f} to {f.high:.2f})" for f in option.forecasts)
            lines.append(f"{option.name}: {each}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def advise_device(
    tables: TableSet,
    verdict: Verdict,
    *,
    require: Iterable[Requirement] = (),
    latency_ns: int | None = None,
    for_kubernetes: bool | None = None,
    quick: bool = False,
) -> Advice:
    """Say what to change on one device.

    Parameters
    ----------
    tables, verdict
        The tables, and the verdict of the device.
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
    Advice
        Best first; empty where nothing follows from the evidence.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> advice = advise_device(session.tables, session.classify()[0])
    >>> advice.actions[0].action.startswith("Find out whose process")
    True
    """
    import polars as pl

    here = pl.col("device_id") == verdict.device_id
    required = tuple(require)
    # Only counted: their columns are not looked at.
    operations = sum(int(tables.columns(name, "device_id").select(here.sum()).item()) for name in ("kernels", "memops"))
    if quick and operations > QUICK_OPERATIONS:
        why = f"{operations} operations are too many to replay in passing; `pyanalyze advise` does"
        compared = Options(verdict.device_id, why_not=why, postponed=True)
    else:
        compared = options(tables, verdict, required)
    pods = tables.tenants.filter(here)["pod"].drop_nulls().len() > 0
    kube = pods if for_kubernetes is None else for_kubernetes
    if kube and compared.options:
        refused = [option for option, _ in compared.refused]
        made = [o for o in compared.options if kubernetes.makes(o) or o is compared.current]
        compared = replace(compared, recommended=best_of([o for o in made if o not in refused], compared.current))
    device = tables.devices.filter(here).row(0, named=True)
    actions = list(_actions(tables, verdict, compared, required, latency_ns, device, kube=kube))
    if compared.recommended is not None and _stays(compared, verdict.mode):
        # Where nothing is worth a change, no other way is the one advised.
        compared = replace(compared, recommended=compared.current)
    return Advice(verdict.device_id, tuple(actions), compared)


def _actions(
    tables: TableSet,
    verdict: Verdict,
    compared: Options,
    required: tuple[Requirement, ...],
    latency_ns: int | None,
    device: Mapping[str, object],
    *,
    kube: bool,
) -> Iterator[Action]:
    held = list(_held(tables, verdict.device_id))
    traits = TRAITS[verdict.mode]
    if verdict.mode == Mode.UNDETERMINED:
        yield from record_first(verdict)
    else:
        yield from unknown_tenants(held)
    yield from _memory(compared, device)
    host = list(_host_side(tables, verdict))
    if compared.options:
        if _stays(compared, verdict.mode):
            yield from host
            yield _stay(compared, required, verdict)
        else:
            yield from _change(compared, verdict.mode, kube=kube)
            yield from host
        yield from _stricter(compared, verdict.mode, kube=kube)
        yield from _no_instance(compared)
        yield from _left_out(compared, required)
    else:
        yield from host
        if traits.one_process and traits.mig_instance:
            yield _alone_in_instance()
        elif traits.one_process:
            yield Action(
                "Nothing to gain from sharing differently",
                (),
                None,
                "no other tenant took GPU time in this capture",
                "one tenant was on the device; if it is slow, look at the host side, the kernels or the clocks",
                None,
                "samples or switch records of the same time show another process",
            )
        elif verdict.mode != Mode.UNDETERMINED:
            yield from simple_bounds(verdict, held, device, compared.why_not)
    yield from _time_slices(tables, verdict, compared, latency_ns, len(held))


def _alone_in_instance() -> Action:
    """An instance is a part of the device: nobody else in it does not mean that nothing is lost to the others."""
    return Action(
        "Nobody else was seen in this MIG instance; what a larger one would gain is not known",
        (),
        None,
        "a capture of one instance says nothing of another size, nor of the whole GPU",
        "to know it, record the workload in a larger profile or on the whole GPU and give that as --baseline; if it is "
        "slow, look at the host side, the kernels and the clocks, too",
        None,
        "samples of the same time show another process in the instance",
    )


def _held(tables: TableSet, device_id: int) -> Iterator[Held]:
    import polars as pl

    here = pl.col("device_id") == device_id
    usage = tables.tenants.filter(here).join(tables.tenant_usage.filter(here), on=["tenant_id", "device_id"])
    # Of the window, as the ledger has it: a context is resident before anybody works, too, while it is created.
    shares = dict(tables.ledger.filter(here).select("tenant_id", "resident_share").iter_rows())
    for row in usage.sort("tenant_id").iter_rows(named=True):
        resident, busy, charged = row["resident_ns"], row["busy_ns"], row["charged_ns"]
        yield Held(
            row["tenant_id"],
            row["name"],
            row["host_pid"] or row["pid"],
            bool(row["traced"]),
            None if resident is None else shares.get(row["tenant_id"]),
            busy / charged if busy and charged else None,
        )


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


def _each(option: Option) -> str:
    return ", ".join(f"{f.name} {f.slowdown:.2f}x" for f in option.forecasts)


def _bounds(option: Option) -> str:
    each = ", ".join(f"{f.name} {f.low:.2f}x to {f.high:.2f}x" for f in option.forecasts)
    low, high = option.antt_bounds
    return f"modelled: {each}; mean (ANTT) {low:.2f}x to {high:.2f}x"


def _ends_early(option: Option) -> str:
    """What is left once the first is done: programs in a closed loop would never leave the GPU to the others."""
    if option.placement is not None:
        return ""
    first, last = (f(option.forecasts, key=lambda one: one.elapsed_ns) for f in (min, max))
    if first.elapsed_ns >= EARLY * last.elapsed_ns:
        return ""
    return (
        f"; in the replay {first.name} is done after {first.elapsed_ns / 1e6:.0f} ms, {last.name} after "
        f"{last.elapsed_ns / 1e6:.0f} ms, and who is done slows nobody: this holds for as much work as was recorded, "
        "not for programs that go on, which may be slower than these bounds"
    )


def _tails(option: Option) -> str:
    each = [f"{f.name} {f.p99_ns / 1e6:.2f} ms" for f in option.forecasts if f.p99_ns is not None]
    return f"; p99 of kernel latency {', '.join(each)}" if each else ""


def _trust(compared: Options) -> str:
    if compared.check is None:
        return ""
    return f" The replay of the recorded mode is within {100 * compared.check:.1f} % of the record."


def _change(compared: Options, mode: Mode, *, kube: bool) -> Iterator[Action]:
    best, now = compared.recommended, compared.current
    if best is None:
        return
    before = "" if now is None else f"; now, by the same model, {_each(now)}"
    refused = [option for option, _ in compared.refused]
    met = [option for option in compared.options if option not in refused]
    ways = f"{len(met)} ways compared" if not refused else f"{len(met)} ways that meet the requirements"
    if kube:
        met = [option for option in met if kubernetes.makes(option) or option is now]
        ways = f"the {len(met)} of {ways} that are there now or that Kubernetes' device plugin or MIG manager makes"
    least = min(option.antt for option in met)
    first = f"it has the least mean slowdown of {ways}"
    if best.antt > least:
        first = f"its mean slowdown is within {100 * AS_GOOD:.0f} % of the least of {ways}, and it is simpler to set up"
    yield _make(best, compared, f"{first}{before}", mode, kube=kube)


def _make(option: Option, compared: Options, why: str, mode: Mode, *, kube: bool) -> Action:
    expected = (
        f"modelled, against each alone on the whole GPU: {_each(option)} "
        f"(mean {option.antt:.2f}x, STP {option.stp:.2f}){_tails(option)}"
    )
    wrong = f"a capture in that mode shows a tenant outside its bounds; compare {option.worst.name} first"
    commands, undo = _commands(option, compared, mode, kube=kube)
    titles = {0: f"Let the tenants take turns ({option.name})", 1: "Let the tenants run side by side under MPS"}
    title = titles[1] if option.layout.together else titles[0]
    if option.provision is not None:
        shares = ", ".join(f"{f.name} {option.provision.percentages[f.tenant_id]} %" for f in option.forecasts)
        title = f"Run the tenants under MPS with {option.provision.strategy} caps: {shares}"
        why = f"{why}; {option.provision.why}"
        if kube:
            why = f"{why}; the device plugin divides the memory equally, too"
    if option.placement is not None:
        parts = ", ".join(f"{name} {one.profile.name}" for name, one in option.placement.placed.items())
        title = f"Give each tenant a MIG instance of its own: {parts}"
        why = f"{why}; {option.placement.left}"
        unknown = [client.name for client in compared.clients if client.memory_bytes is None]
        if unknown:
            sizes = ", ".join(
                f"{name} {option.placement.family.memory_bytes(option.placement.placed[name].profile) / 2**30:.1f} GiB"
                for name in unknown
            )
            why = f"{why}; what memory they use is not known (nvidia-smi beside the capture shows it), they get {sizes}"
    shares = TRAITS[option.mode].promises.not_isolated
    return Action(
        title,
        commands,
        expected,
        _bounds(option) + _ends_early(option),
        f"{why}.{_trust(compared)} Not isolated: {shares}",
        undo,
        wrong,
    )


def _commands(option: Option, compared: Options, mode: Mode, *, kube: bool) -> tuple[tuple[str, ...], str]:
    """Commands from the mode of now to the option, and those back."""
    n = len(option.forecasts)
    runs, static = TRAITS[mode].mps, TRAITS[mode].partitioned
    start = f"nvidia-cuda-mps-control -d{' -S' if static else ''}"
    if option.placement is not None:
        lines = ((mps.STOP,) if runs else ()) + option.placement.commands()
        back = Placement.undo() + (f"; {start}   # before the workloads start" if runs else "")
        return (*lines, *(kubernetes.mig(option.profiles) if kube else ())), kubernetes.UNDO_MIG if kube else back
    if option.layout.together:
        # A daemon with static partitions takes no percentages: it has to start again.
        lines = ((mps.STOP,) if static else ()) + mps.settings(
            option.provision, compared.clients, running=runs and not static
        )
        back = mps.UNDO if not runs else f"{mps.STOP.partition(' #')[0].rstrip()}; {start}" if static else mps.UNDO_CAPS
        return (*lines, *(kubernetes.mps(n) if kube else ())), kubernetes.UNDO if kube else back
    lines = ("echo quit | nvidia-cuda-mps-control   # where an MPS daemon runs: without it processes take turns",)
    return (*lines, *(kubernetes.time_slicing(n) if kube else ())), (
        kubernetes.UNDO if kube else f"{start}   # before the workloads start"
    )


def _stay(compared: Options, required: tuple[Requirement, ...], verdict: Verdict) -> Action:
    best = compared.recommended
    if best is None:
        lacking = "; ".join(f"{option.name} lacks {', '.join(lacks)}" for option, lacks in compared.refused)
        return Action(
            f"No way of sharing this GPU promises {' and '.join(required)}",
            (),
            None,
            None,
            f"of the ways that hold these tenants, {lacking}. Give them GPUs of their own",
            None,
            "a tenant's memory need is smaller than what was seen, so that it fits a smaller MIG instance",
        )
    now = _now(compared, verdict.mode) or best
    others = [option for option in compared.options if option is not now]
    next_best = f"; the next best, {others[0].name}: {_each(others[0])}" if others else ""
    low = min((option.antt_bounds[0] for option in others), default=None)
    bound = None if low is None else f"no other way compared has a mean slowdown below {low:.2f}x by its bound"
    inside = TRAITS[verdict.mode].mig_instance and not TRAITS[verdict.mode].one_process
    return Action(
        f"Nothing to gain from sharing {'this instance ' if inside else ''}differently",
        (),
        f"modelled: as it is ({verdict.mode}), {_each(now)}{next_best}{_tails(now)}",
        bound,
        f"the mean slowdown of {now.antt:.2f}x is within {100 * WORTH_IT:.0f} % of the best of "
        f"{len(compared.options)} ways compared.{_trust(compared)}",
        None,
        "the workloads change: other kernels, other load, another number of tenants",
    )


def _stricter(compared: Options, mode: Mode, *, kube: bool) -> Iterator[Action]:
    """MIG, where it is not what was recommended: it isolates more and costs a known amount."""
    best = compared.recommended
    if best is None or best.placement is not None:
        return
    for option in compared.options:
        if option.placement is not None and option not in [refused for refused, _ in compared.refused]:
            price = option.antt / best.antt
            why = (
                "it is the only way here that keeps faults, memory and bandwidth apart; the mean slowdown is "
                f"{price:.2f} times that of {best.name}"
            )
            yield _make(option, compared, why, mode, kube=kube)


def _no_instance(compared: Options) -> Iterator[Action]:
    if not compared.unplaced:
        return
    each = "; ".join(f"{name}: {why}" for name, why in compared.unplaced.items())
    yield Action(
        f"MIG cannot hold them all: {', '.join(compared.unplaced)} would need another GPU",
        (),
        None,
        "every valid set of instances was looked at",
        each,
        None,
        "a tenant's memory need is smaller than what was seen",
    )


def _left_out(compared: Options, required: tuple[Requirement, ...]) -> Iterator[Action]:
    if not compared.refused or compared.recommended is None:
        return
    lacking = "; ".join(
        f"{option.name} ({_each(option)}) lacks {', '.join(lacks)}" for option, lacks in compared.refused
    )
    yield Action(
        f"Left out for want of {' or '.join(required)}",
        (),
        None,
        None,
        f"{lacking}. What modes promise is NVIDIA's documentation, not this capture",
        None,
        None,
    )


def _memory(compared: Options, device: Mapping[str, object]) -> Iterator[Action]:
    total = device["memory_bytes"]
    known = [client.memory_bytes for client in compared.clients if client.memory_bytes is not None]
    if not isinstance(total, int) or not known:
        return
    used = sum(known)
    if used > total * (1 - MEMORY_RESERVE):
        unknown = len(compared.clients) - len(known)
        more = f"; of {unknown} more nothing is known" if unknown else ""
        yield Action(
            "Mind the memory before anything else: together these tenants may run out of it",
            ("under MPS CUDA_MPS_PINNED_DEVICE_MEM_LIMIT per client; elsewhere smaller batches or caches",),
            None,
            f"their high-water marks sum to {used / 2**30:.1f} of {total / 2**30:.1f} GiB{more}",
            "no mode but MIG divides memory; an allocation that does not fit fails whoever makes it",
            "unset the limit",
            "the marks were never reached at the same time",
        )


def _host_side(tables: TableSet, verdict: Verdict) -> Iterator[Action]:
    names = tables.labels(verdict.device_id)
    instance = TRAITS[verdict.mode].mig_instance
    where = "instance" if instance else "GPU"
    bound = "another way of sharing removes none of it"
    if instance:
        bound = "another way of sharing this instance removes none of it; what a larger one would is not known"
    titles = {
        "launch-bound": "launches are what takes time, not the GPU",
        "copy-bound": "copies are what takes time, not the SMs",
        "throttled": "the clocks are down",
        "default-stream": "the legacy default stream serialises its own streams",
        "full-grids": f"its streams cannot overlap: each grid fills the {where}",
    }
    for cause in host_side.causes(tables, verdict.device_id):
        who = "the board" if cause.tenant_id is None else names.get(cause.tenant_id, f"tenant {cause.tenant_id}")
        yield Action(
            f"Look at {who}, not at a neighbour: {titles[cause.kind]}",
            (),
            None,
            # Clocks are the board's.
            bound if cause.tenant_id is not None else "another way of sharing removes none of it",
            f"{cause.what}. To do: {cause.do}",
            None,
            "the same measure alone on the GPU is different",
        )


def _time_slices(
    tables: TableSet, verdict: Verdict, compared: Options, latency_ns: int | None, tenants: int
) -> Iterator[Action]:
    traits = TRAITS[verdict.mode]
    # A virtual machine's slices are set on its host, by other means.
    if not traits.time_sliced or traits.vgpu or tenants < 2:
        return
    seen = observed_slicing(tables, verdict.device_id)
    if seen is None:
        return
    slice_ns, switch_ns = seen
    if slice_ns is None:
        if latency_ns is not None:
            yield Action(
                f"Whether nobody waits longer than {latency_ns / 1e6:.2f} ms is not known: no full time slice was seen",
                (), None, None,
                "too few slices ended while somebody else waited from their begin to their end, so how long one may be "
                "does not show here; record while all tenants are busy",
                None,
            )  # fmt: skip
        return
    cost, wait_ns = slicing.overhead(slice_ns, switch_ns), slicing.longest_wait_ns(slice_ns, switch_ns, tenants)
    everyone = "both" if tenants == 2 else f"all {tenants}"
    now = (
        f"slices execute for {slice_ns / 1e6:.2f} ms, and {switch_ns / 1e3:.0f} us pass from the work of one to that "
        f"of the next, the gap between residencies included: {100 * cost:.1f} % while {everyone} are busy, and a "
        f"kernel waits up to {wait_ns / 1e6:.1f} ms"
    )
    undo = "nvidia-smi compute-policy --set-timeslice=0"
    unknown = "NVIDIA publishes no lengths for the policies: set one, record again, read it in `pyanalyze residency`"
    if latency_ns is not None:
        choice = slicing.slice_for(latency_ns, switch_ns, tenants)
        if choice.slice_ns is None or choice.overhead is None:
            yield Action(
                f"No time slice gives a wait of {latency_ns / 1e6:.2f} ms among {tenants} tenants",
                (), None, f"{tenants} switches of {switch_ns / 1e3:.0f} us alone take longer", now, None,
                "a capture shows cheaper switches",
            )  # fmt: skip
            return
        policy = slicing.policy_for(choice.slice_ns, slice_ns)
        yield Action(
            f"For waits of at most {latency_ns / 1e6:.2f} ms take slices of at most {choice.slice_ns / 1e6:.2f} ms: "
            f"policy {slicing.POLICIES[policy]}",
            (f"nvidia-smi compute-policy --set-timeslice={policy}   # as root, lasts until the driver is reloaded",),
            f"by arithmetic: {100 * choice.overhead:.1f} % of the time goes into switches then",
            "round robin, everybody busy; a kernel that cannot be cut makes it longer",
            f"{now}. {unknown}",
            undo,
            "slices recorded under the policy are longer than that",
        )
    elif cost >= NOTABLE_OVERHEAD:
        yield Action(
            "Use longer time slices if latency allows",
            ("nvidia-smi compute-policy --set-timeslice=3   # long; as root, lasts until the driver is reloaded",),
            None,
            f"at most {100 * cost:.1f} % of the time in which several tenants are busy, all that switching takes",
            f"each switch costs about the same however long the slice was; {now}. {unknown}",
            undo,
            "the slices recorded afterwards are not longer",
        )
