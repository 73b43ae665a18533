"""Kernels, copies and residency of every tenant over time: the one picture of the first page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Chart, chart_key
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.results.labels import copies_words, tenant_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyanalyze.results.report import Device

_WIDE = " A bar is at least a pixel wide: many short ones look like a long one."
#: About the pixels of the time axis, and those that bars have to fill before it matters that they are too long.
_PIXELS, _MANY = 720, 15
#: Bars that cover so many times the time of their work look like something else.
_TIMES_TOO_LONG = 2
_TICKS = " Ticks: switches. Contexts that alternate within a pixel look concurrent."


def _look_longer(device: Device) -> bool:
    """Whether bars of a pixel, one beside the other, show much more time than their work took."""
    window_ns = 0 if device.window is None else device.window.end_ns - device.window.start_ns
    pixel_ns = window_ns / _PIXELS
    for tenant in device.tenants:
        work, copies = tenant.work, tenant.copies
        bars = [] if work is None else [(work.launches, tenant.busy_ns or 0)]
        if work is not None and copies is not None:
            parts = (*copies.kinds, *(one for one in (copies.memsets, copies.migrations) if one is not None))
            bars.append((work.copies, sum(one.time_ns for one in parts)))
        for count, ns in bars:
            if count >= _MANY and min(count * pixel_ns, window_ns) >= _TIMES_TOO_LONG * ns:
                return True
    return False


def _drawn(device: Device) -> Iterator[str]:
    """What the picture shows, a sentence each: untraced tenants have no bars, and samples may be of another time."""
    if any(one.work is not None and one.work.launches for one in device.tenants):
        yield " Bars: kernels (rounded: graphs, thin: copies)."
    elif any(one.copies is not None for one in device.tenants):
        yield f" Thin bars: {copies_words(one.copies for one in device.tenants)}. No kernel was recorded."
    if _look_longer(device):
        yield _WIDE
    if device.residency_summary is not None:
        yield " Shading: resident."
    if device.context_switches is not None and device.context_switches.count:
        yield _TICKS
    sampled, window = device.sampled, device.window
    if sampled is None or sampled.start_ns is None or sampled.end_ns is None or window is None:
        return
    if sampled.start_ns <= window.end_ns and sampled.end_ns >= window.start_ns:
        yield " Lines: sampled."


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels, group = tenant_labels(device.tenants), device.mps_group()
    named = [labels[tenant.tenant_id] for tenant in device.named_for_all() if tenant not in group]
    whose = f" The residency of all MPS clients is recorded under {named[0]}: that shading is of all." if named else ""
    if group:
        whose = " Switch records name any MPS client for all of its group: its residency has one track."
    return [
        Chart(
            chart_key("timeline", device.device_id),
            "Timeline",
            "".join(_drawn(device)).strip() + whose,
            "Drag moves, Ctrl+scroll zooms, Shift+drag selects. Keys: arrows + - 0.",
        )
    ]


SECTION = DeviceSection("timeline", "GPU time over time", _blocks, of_trace=True)
