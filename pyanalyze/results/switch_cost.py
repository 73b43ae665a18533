"""What context switches cost with saving and restoring, and between which ends their share of the time lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyanalyze.results.residency import SwitchPart

if TYPE_CHECKING:
    from pyanalyze.results.interference import ContextState
    from pyanalyze.results.report import Device
    from pyanalyze.results.residency import ContextSwitches

__all__ = ["InferredSwitch", "SwitchOverhead", "co_run_overhead", "inferred_switch", "switch_overhead"]


class InferredSwitch(NamedTuple):
    """Saving and restoring, and the full switch with it: most likely, at least, at most."""

    state: tuple[SwitchPart, SwitchPart, SwitchPart]
    whole: tuple[SwitchPart, SwitchPart, SwitchPart]


class SwitchOverhead(NamedTuple):
    """Share of the time that context switches take.

    Attributes
    ----------
    recorded
        What records show: switch gaps, or full switches; at least so much.
    likely
        With saving and restoring, inferred; None: not known. Of full switches, what is recorded.
    most
        The same at most; where saving and restoring are not known, with the longest that boards take, assumed.
    """

    recorded: float
    likely: float | None
    most: float


def inferred_switch(device: Device) -> InferredSwitch | None:
    """How long saving and restoring take, where kernels show what no record says; else None."""
    switches = device.context_switches
    state = None if device.interference is None else device.interference.context_state
    return None if switches is None or state is None else _inferred(switches, state)


def _inferred(switches: ContextSwitches, state: ContextState) -> InferredSwitch | None:
    if switches.cost_kind == "full" or switches.gap is None:
        return None
    gap, count = switches.gap, switches.count

    def of(gap_median_ns: int, gap_total_ns: int) -> tuple[SwitchPart, SwitchPart, SwitchPart]:
        likely, least, most = (
            SwitchPart(median_ns=gap_median_ns + state_ns, total_ns=gap_total_ns + count * state_ns)
            for state_ns in (state.save_ns + state.restore_ns, state.low_ns, state.high_ns)
        )
        return likely, least, most

    return InferredSwitch(of(0, 0), of(gap.median_ns, gap.total_ns))


def switch_overhead(
    switches: ContextSwitches | None, state: ContextState | None, window_ns: int | None, longest_state_ns: int
) -> SwitchOverhead | None:
    """Find between which ends the cost of context switches lies, as a share of the time.

    Parameters
    ----------
    switches
        The switches of a device; None: no records.
    state
        How long saving and restoring take, where kernels show it.
    window_ns
        Length of the window of the device.
    longest_state_ns
        What saving and restoring take at most, where kernels do not show it.

    Returns
    -------
    SwitchOverhead or None
        None: there are no records, or the cost of switches is not known.

    Examples
    --------
    Of 100 ms, 100 switches with gaps of 20 us are 2 %; with 50 us (40 to 60) for saving and restoring, 7 % (6 to 8).

    >>> from pyanalyze.results.interference import ContextState
    >>> from pyanalyze.results.residency import ContextSwitches
    >>> gap = SwitchPart(median_ns=20_000, total_ns=2_000_000)
    >>> switches = ContextSwitches.model_construct(
    ...     count=100, cost_kind="gap", gap=gap, overhead_fraction=0.02, recorded_ns=None
    ... )
    >>> state = ContextState(save_ns=30_000, restore_ns=20_000, low_ns=40_000, high_ns=60_000, found_from="kernels")
    >>> switch_overhead(switches, state, 100_000_000, 200_000)
    SwitchOverhead(recorded=0.02, likely=0.07, most=0.08)
    >>> switch_overhead(switches, None, 100_000_000, 200_000)
    SwitchOverhead(recorded=0.02, likely=None, most=0.22)
    """
    if switches is None:
        return None
    if not switches.count:
        return SwitchOverhead(0.0, 0.0, 0.0)
    whole_ns = switches.recorded_ns or window_ns
    return _between(switches.overhead_fraction, switches.count, whole_ns, switches, state, longest_state_ns)


def co_run_overhead(
    switches: ContextSwitches | None, state: ContextState | None, co_run_ns: int | None, longest_state_ns: int
) -> SwitchOverhead | None:
    """Find the same as a share of the time in which all tenants co-ran; None: not known of that time.

    Parameters
    ----------
    switches, state, longest_state_ns
        As of :func:`switch_overhead`.
    co_run_ns
        Length of that time (`all_at_work` of the device).

    Examples
    --------
    In 40 of these 100 ms, 90 of the switches: 1.8 ms of gaps are 4.5 %; with 50 us (40 to 60) each, 15.75 %.

    >>> from pyanalyze.results.interference import ContextState
    >>> from pyanalyze.results.residency import ContextSwitches
    >>> gap = SwitchPart(median_ns=20_000, total_ns=2_000_000)
    >>> switches = ContextSwitches.model_construct(
    ...     count=100, cost_kind="gap", gap=gap, all_at_work_switches=90, all_at_work_overhead_fraction=0.045
    ... )
    >>> state = ContextState(save_ns=30_000, restore_ns=20_000, low_ns=40_000, high_ns=60_000, found_from="kernels")
    >>> co_run_overhead(switches, state, 40_000_000, 200_000)
    SwitchOverhead(recorded=0.045, likely=0.1575, most=0.18)
    """
    if switches is None or not switches.all_at_work_switches:
        return None
    recorded, count = switches.all_at_work_overhead_fraction, switches.all_at_work_switches
    return _between(recorded, count, co_run_ns, switches, state, longest_state_ns)


def _between(
    recorded: float | None,
    count: int,
    whole_ns: int | None,
    switches: ContextSwitches,
    state: ContextState | None,
    longest_state_ns: int,
) -> SwitchOverhead | None:
    """The ends of the share of a time that `count` switches take, of which `recorded` is on record."""
    if recorded is None:
        return None
    if switches.cost_kind == "full":
        return SwitchOverhead(recorded, recorded, recorded)
    if not whole_ns:
        return None

    def with_state(state_ns: int) -> float:
        return min(recorded + count * state_ns / whole_ns, max(recorded, 1.0))

    if state is None or switches.gap is None:
        return SwitchOverhead(recorded, None, with_state(longest_state_ns))
    return SwitchOverhead(recorded, with_state(state.save_ns + state.restore_ns), with_state(state.high_ns))
