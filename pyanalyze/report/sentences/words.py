"""Small words and lengths that sentences of several topics share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.results.report import Device

#: Longest text taken over from a detail or a summary, in characters.
LONG = 2_000
#: Part of the window below which a sentence says that its figures are of that part only.
HALF = 0.5


def id_text(value: int | None) -> str:
    """A process id or the like, without separators."""
    return fmt.UNKNOWN if value is None else str(value)


def window_length_ns(device: Device) -> int | None:
    """How long the window is; None: nothing happened on the device."""
    return None if device.window is None else device.window.end_ns - device.window.start_ns


def recorded_ns(device: Device) -> int | None:
    """How much of the window switch records cover, where that is notably less; else None."""
    return None if device.context_switches is None else device.context_switches.recorded_ns


def share_of_residency(part_ns: int | None, device: Device) -> float | None:
    """A time as a fraction of what GPU time shares are of: the window, or what switch records cover of it.

    None: one of the two is not known.
    """
    whole = recorded_ns(device) or window_length_ns(device)
    return None if part_ns is None or not whole else part_ns / whole


#: What is in flight where graphs were traced whole.
KERNELS_AND_GRAPHS: Final = "kernels and graphs"


def work_words(device: Device) -> str:
    """What is in flight where a tenant is busy: kernels, or whole graphs, whose kernels are not known, as well."""
    whole = any(t.time_split is not None and t.time_split.whole_graphs for t in device.tenants)
    return KERNELS_AND_GRAPHS if whole else "kernels"
