"""What is said of a forecast: slowdowns, percentiles, bounds, and how far it can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.analysis.advice.options import Contention, Option, Options

#: A tenant whose replay takes less than this part of the longest one's leaves the GPU to the others for a good while.
EARLY = 0.7
#: Part of a tenant's kernel time in grids that seem to follow the number of SMs, from which on forecasts name it.
NOTABLE_FOLLOWING = 0.2
#: Contention below this is none.
_NO_MORE_TIME = 0.01
#: A time-sliced recording does not show what kernels gain side by side.
_NO_GAIN = " Upper bounds assume no gain over time-slicing, because this recording does not show one."


def slowdowns_text(option: Option, now: Option | None = None) -> str:
    """The forecast slowdown of each tenant, behind that of the present way where it is known."""
    before = {} if now is None else {f.tenant_id: f"{f.slowdown:.2f}x -> " for f in now.forecasts}
    return ", ".join(f"{f.name} {before.get(f.tenant_id, '')}{f.slowdown:.2f}x" for f in option.forecasts)


def named_inside(option: Option) -> str:
    """The name of an option inside a sentence: MPS with equal caps."""
    return option.name.replace(", ", " with ")


def bounds_text(option: Option) -> str:
    """The bounds of each tenant's slowdown and of their mean."""
    each = ", ".join(f"{f.name} {f.low:.2f}-{f.high:.2f}x" for f in option.forecasts)
    # A range may reach above today's slowdown: it is of what is advised, not of what was recorded.
    return f"{each}, mean {range_text(option)} under {named_inside(option)}"


def range_text(option: Option) -> str:
    """The bounds of the mean slowdown."""
    low, high = option.antt_bounds
    return f"{low:.2f}-{high:.2f}x"


def ends_early_text(option: Option) -> str:
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


def percentiles_text(option: Option, compared: Options) -> str:
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


def trust_text(compared: Options) -> str:
    """What of this capture makes all forecasts less sure; sentences to append, once.

    How near the replay came to the record is the same for all options: :attr:`Options.replay_errors`.
    """
    said = ""
    if compared.check is not None:
        said += _solo(compared)
    elif compared.current is None:
        said += " The current configuration was not modelled: the gain over it is not known."
    if compared.replayed < 1:
        said += f" Only {fmt.percent(compared.replayed)} of the operations were replayed."
    for name, pauses in compared.paused_solo.items():
        said += (
            f" {name} made {fmt.count(pauses)} pauses between its kernels before other tenants began, and hardly any "
            "since. If its requests piled up, all its slowdowns here are too high."
        )
    if any(one.provision is not None or one.placement is not None for one in compared.options):
        follow = [
            f"{fmt.percent(one.follows_sms, 0)} of the kernel time of {one.name}"
            for one in compared.clients
            if one.follows_sms >= NOTABLE_FOLLOWING
        ]
        if follow:
            said += (
                f" {fmt.names(follow)} {'is' if len(follow) == 1 else 'are'} in grids that match the number of SMs. "
                "If programs size them by the SMs that they see, caps and instances cost less than forecast."
            )
    if compared.untraced:
        said += f" Upper bounds allow for the resident time of {fmt.names(list(compared.untraced))} (not traced)."
    return said


def _solo(compared: Options) -> str:
    """Which replayed solo runs were checked, and how near they came; sentences to append."""
    forecasts = () if compared.current is None else compared.current.forecasts
    checked = [row for row in forecasts if row.tenant_id in compared.solo_measured]
    if not checked:
        return " No solo recording checks the forecast."
    said = ""
    for row in checked:
        measured = fmt.ratio(compared.solo_measured[row.tenant_id])
        said += (
            f" Slowdown of {row.name}: {fmt.ratio(row.slowdown)} by the replay, {measured} against its solo recording."
        )
    rest = [row.name for row in forecasts if row not in checked]
    return f"{said} No solo recording checks {fmt.names(rest)}." if rest else said


def beside_text(contention: Contention | None) -> str:
    """How much more time, or less, a forecast gives kernels beside those of another tenant; sentences to append.

    Examples
    --------
    >>> from pyanalyze.analysis.advice.options import Contention
    >>> beside_text(Contention(-0.3, 0.03, 0.12))
    ' How kernels slow each other is assumed: 3 % more time than their share of the SMs gives (30 % less to 12 % more).'
    >>> beside_text(Contention(0.0, 0.0, 0.08, basis="inferred"))
    " Kernels beside another tenant's took no more time (inferred; bounds 0 % to 8 % more)."
    """
    if contention is None:
        return ""
    span = f"{_change(contention.low)} to {_change(contention.high)}"
    if contention.basis == "assumed":
        return (
            f" How kernels slow each other is assumed: {_change(contention.middle)} time than their share of the SMs "
            f"gives ({span}).{_NO_GAIN if contention.no_gain else ''}"
        )
    if contention.basis == "sampled":
        # Counters show the traffic, not what it costs.
        found = f"are forecast to take {_change(contention.middle)} time (sampled; bounds {span})"
    # Less than 1 % is no more than what replays of one recording differ by.
    elif abs(contention.middle) < _NO_MORE_TIME:
        found = f"took no more time (inferred; bounds {span})"
    else:
        found = f"took {_change(contention.middle)} time (inferred; bounds {span})"
    said = f" Kernels beside another tenant's {found}."
    return f"{said}{_NO_GAIN if contention.no_gain else ''}"


def _change(part: float) -> str:
    percent = round(100 * part)
    return f"{abs(percent)} % {'more' if percent > 0 else 'less'}" if percent else "0 %"
