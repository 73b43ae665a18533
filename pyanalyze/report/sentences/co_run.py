"""The time in which all tenants co-ran, and GPU time shares of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.sentences.tenants import has_untraced
from pyanalyze.report.sentences.words import HALF, window_length_ns
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.results.report import Device

#: Part of the window in which all tenants co-run, from which on the rest is not worth a word.
_NEARLY_ALL = 0.95
#: Part by which two shares differ before both are said.
_ALIKE = 0.1


def co_run_part(device: Device) -> float | None:
    """Part of the window from the begin of the last tenant to the end of the first; None: nearly all, or not known."""
    both = device.all_at_work
    window_ns = window_length_ns(device)
    part = None if both is None or not window_ns else (both.end_ns - both.start_ns) / window_ns
    return None if part is None or part >= _NEARLY_ALL else part


def co_run_options(device: Device) -> str | None:
    """The options that choose the time in which all tenants co-ran, in whole milliseconds around it.

    With the call that launched its first operation: what a window cuts is not compared. None: they co-ran for
    nearly all of the window, or it is not known.
    """
    both, launched_ns = device.all_at_work, device.all_at_work_launched_ns
    if both is None or co_run_part(device) is None:
        return None
    start_ns = both.start_ns if launched_ns is None else min(both.start_ns, launched_ns)
    return f"--start {start_ns // 1_000_000}ms --end {-(-both.end_ns // 1_000_000)}ms"


def shares_co_run_text(device: Device) -> str:
    """GPU time shares in that time, most first; empty: not known of each tenant."""
    known = [(one.all_at_work_share, one) for one in device.tenants if one.all_at_work_share is not None]
    if len(known) < len([one for one in device.tenants if one.gpu_time_share is not None]):
        return ""
    labels = tenant_labels(device.tenants)
    shares = [
        f"{labels[one.tenant_id]} {fmt.percent(share)}" for share, one in sorted(known, key=lambda pair: -pair[0])
    ]
    gaps = gaps_co_run(device)
    of_gaps = f"; switch gaps took {fmt.percent(gaps)} of it" if gaps else ""
    return f" Shares of that part: {fmt.names(shares)}{of_gaps}."


def gaps_co_run(device: Device) -> float | None:
    """Part of that time that switch gaps took; None: not known."""
    return None if device.context_switches is None else device.context_switches.all_at_work_gap_share


def busy_gaps_text(device: Device) -> str:
    """Which part of the time with contention switch gaps took; empty: not known, or as good as that of the window.

    Where the first paragraphs say it of the time in which all tenants co-ran, of that time here as well: the time
    in which contexts alternated is nearly as long, and would be a second figure of one thing.
    """
    told = shares_co_run_text(device) if (co_run_part(device) or 1.0) < HALF else ""
    gaps = gaps_co_run(device) if told else None
    found = device.sharing.switch_overhead if gaps is None else gaps
    window = None if device.context_switches is None else device.context_switches.overhead_fraction
    if found is None or (window is not None and abs(found - window) <= _ALIKE * found):
        return ""
    time = "contexts alternated" if gaps is None else f"all tenants {co_ran_word(device)}"
    return f"Switch gaps took {fmt.percent(found)} of the time in which {time}."


def co_ran_word(device: Device) -> str:
    """What all tenants did in that time: of an untraced one only residency is known.

    The time is that of their work, pauses included, and no time in which kernels of all were in flight.
    """
    return "co-ran (untraced: resident)" if has_untraced(device) else "co-ran"
