"""A sharing configuration as an action: commands there and back, forecast, and what to check afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import kubernetes, mig, mps
from pyanalyze.analysis.advice.forecast_text import (
    beside_text,
    bounds_text,
    ends_early_text,
    percentiles_text,
    slowdowns_text,
    trust_text,
)
from pyanalyze.analysis.mps_daemon import DEFAULT_PIPE, PIPE
from pyanalyze.nsys_tool import recording
from pyanalyze.results.advice import Advice, times_slower
from pyanalyze.text import format as fmt
from pyanalyze.text.format import capital
from pyanalyze.text.shell import shell_line
from pyanalyze.text.visible import visible
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from pyanalyze.analysis.advice.options import Option, Options
    from pyanalyze.vocabulary import Mode

#: Caps and instances change what `multiProcessorCount` says: the tenants of `fixtures/hardware/h100/mps-50-50-A-B`
#: launch half as many blocks as without caps.
_GRIDS = ". Units of work change if a program sizes its grids by the SMs that it sees"
_UNDER_CAPS = (
    ". Under caps kernels were recorded on fewer SMs: on all of them they may slow each other by more than is forecast"
)
#: Where a gain is not certain and no tenant was recorded solo.
_SOLO_FIRST = (
    f"# to check the forecast first, each tenant with no other one on the GPU: {recording(switches=False)}; then "
    "pyanalyze advise CAPTURE --baseline NAME.nsys-rep"
)


def action_of(
    option: Option, compared: Options, why: str, mode: Mode, *, kube: bool, trial: bool = False, also: bool = False
) -> Advice:
    """An option as an action; on `trial` its first line says that a gain is not certain.

    `also`: a forecast before it says what makes all of them less sure.
    """
    now = compared.current
    mean = f"{option.antt:.2f}x" if now is None else f"{now.antt:.2f}x -> {option.antt:.2f}x, both by the replay"
    expected = (
        f"modelled elapsed slowdown {slowdowns_text(option, now)}, mean {mean}{percentiles_text(option, compared)}"
    )
    commands, undo = _commands(option, compared, mode, kube=kube)
    under = "Try MPS" if trial else "Run the tenants under MPS"
    title = under if option.config.together else f"Time-slice the tenants ({option.name})"
    if option.config.together and TRAITS[mode].mps:
        # They run under MPS already: all of them, or with caps.
        title = "Run all tenants under MPS" if TRAITS[mode].time_sliced else "Run the MPS clients without caps"
    if option.provision is not None:
        title = f"{under} with {_caps(option, option.provision)}"
        why = f"{why}. {capital(option.provision.why)}"
        if kube:
            why = f"{why}. The device plugin also divides the memory equally"
    if option.placement is not None:
        parts = ", ".join(f"{name} {one.profile.name}" for name, one in option.placement.placed.items())
        title = f"Give each tenant its own MIG instance: {parts}"
        if option.placement.free_memory_slices or option.placement.free_compute_slices:
            why = f"{why}. {capital(option.placement.left)}"
        unknown = [client.name for client in compared.clients if client.memory_bytes is None]
        if unknown:
            placed = option.placement
            sizes = fmt.names(
                [
                    f"{name} into {placed.family.memory_bytes(placed.placed[name].profile) / 2**30:.1f} GiB"
                    for name in unknown
                ]
            )
            why = f"{why}. Memory use is not known. Check with nvidia-smi that it fits: {sizes}"
    shares = TRAITS[option.mode].promises.not_isolated
    # Either way of the change: programs under caps see fewer SMs.
    under_caps = bool(TRAITS[mode].capped)
    capped = under_caps or option.provision is not None or option.placement is not None
    return Advice(
        action=f"{title}: a gain is likely" if trial else title,
        commands=[*commands, *([_SOLO_FIRST] if trial and not compared.solo_measured else [])],
        expected=expected,
        bound=f"{bounds_text(option)}{ends_early_text(option)}{_UNDER_CAPS * under_caps}",
        why=f"{why}.{'' if also else trust_text(compared)}{beside_text(option.contention)} Not isolated: {shares}",
        undo=undo,
        check_after=f"{_check(option, compared.current)}{_GRIDS * capped}",
        exclusive=True,
    )


def _check(option: Option, now: Option | None) -> str:
    """What a capture in the new mode should show, where the change costs a tenant something as well."""
    how = "record in that mode, then pyanalyze compare: "
    slower = {} if now is None else times_slower(option.forecasts, now.forecasts)
    if not slower:
        less = "units of work should take less time than now"
        less = "whether units of work take less time than now is not forecast" if now is None else less
        worst = sum(fmt.ratio(one.slowdown) == fmt.ratio(option.worst.slowdown) for one in option.forecasts)
        most = f"it is forecast to be slowed most ({fmt.ratio(option.worst.slowdown)})"
        first = f". Look at {option.worst.name} first: {most}" if worst == 1 else ""
        return f"{how}{less}{first}"
    names = {f.tenant_id: f.name for f in option.forecasts}
    costs = [f"those of {names[tenant_id]} {ratio:.2f} times as long" for tenant_id, ratio in slower.items()]
    others = fmt.names([name for tenant_id, name in names.items() if tenant_id not in slower])
    gain = f"units of work of {others} should take less time than now, " if others else "units of work take longer: "
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
