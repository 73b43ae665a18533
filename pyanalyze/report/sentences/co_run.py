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
#: By how much a share of the co-run and one of the window differ (of 1) before the window's is no answer by itself.
_UNLIKE = 0.2
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


def most_alone(device: Device) -> bool:
    """Whether shares of the window say little of how tenants shared: they co-ran for a small part, or unlike it."""
    part = co_run_part(device)
    if part is None:
        return False
    both = [(one.all_at_work_share, one.gpu_time_share) for one in device.tenants]
    unlike = any(a is not None and b is not None and abs(a - b) >= _UNLIKE for a, b in both)
    return part < HALF or (unlike and shares_known(device))


def co_run_sentences(device: Device) -> str:
    """The time in which all tenants co-ran, GPU time shares of it, most first, and how to choose it.

    Empty: :func:`most_alone` is not so, or it is not known. Shares are left out where they are not known
    of each tenant.
    """
    both, chosen = device.all_at_work, co_run_options(device)
    if both is None or chosen is None or not most_alone(device):
        return ""
    word, part = co_ran_word(device), fmt.percent(co_run_part(device))
    shares = _shares(device)
    if shares:
        gaps = gaps_co_run(device)
        of_gaps = f"; switch gaps took {fmt.percent(gaps)} of it" if gaps else ""
        length = fmt.duration(both.end_ns - both.start_ns)
        said = f"GPU time while all tenants {word}, {length} or {part} of the window: {fmt.names(shares)}{of_gaps}."
    else:
        said = f"All tenants {word} for only {part} of the window, short pauses included."
    return f"{said} To choose that part: {chosen}."


def shares_known(device: Device) -> bool:
    """Whether GPU time shares of that time are known of each tenant that has one of the window."""
    known = [one for one in device.tenants if one.all_at_work_share is not None]
    return bool(known) and len(known) >= len([one for one in device.tenants if one.gpu_time_share is not None])


def _shares(device: Device) -> list[str]:
    """Name and share of each tenant in that time, most first; empty: not known of each."""
    if not shares_known(device):
        return []
    labels = tenant_labels(device.tenants)
    known = [(one.all_at_work_share, one.tenant_id) for one in device.tenants if one.all_at_work_share is not None]
    return [f"{labels[who]} {fmt.percent(share)}" for share, who in sorted(known, key=lambda pair: -pair[0])]


def gaps_co_run(device: Device) -> float | None:
    """Part of that time that switch gaps took; None: not known."""
    return None if device.context_switches is None else device.context_switches.all_at_work_gap_share


def busy_gaps_text(device: Device) -> str:
    """Which part of the time with contention switch gaps took; empty: not known, or as good as that of the window.

    Where the first paragraphs say it of the time in which all tenants co-ran, nothing: the time in which contexts
    alternated is nearly as long, and would be a second figure of one thing.
    """
    if most_alone(device) and shares_known(device) and gaps_co_run(device) is not None:
        return ""
    found = device.sharing.switch_overhead
    window = None if device.context_switches is None else device.context_switches.overhead_fraction
    if found is None or (window is not None and abs(found - window) <= _ALIKE * found):
        return ""
    return f"Switch gaps took {fmt.percent(found)} of the time in which contexts alternated."


def co_ran_word(device: Device) -> str:
    """What all tenants did in that time: of an untraced one only residency is known.

    The time is that of their work, pauses included, and no time in which kernels of all were in flight.
    """
    return "co-ran (untraced: resident)" if has_untraced(device) else "co-ran"
