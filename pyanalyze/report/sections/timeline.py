"""Kernels, copies and residency of every tenant over time: the one picture of the first page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Chart, chart_key
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.words import window_length_ns
from pyanalyze.results.labels import copies_words, tenant_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyanalyze.results.report import Device

_WIDE = " Short bars are widened to a pixel."
#: About the pixels of the time axis, and those that bars have to fill before it matters that they are too long.
_PIXELS, _MANY = 720, 15
#: Bars that cover so many times the time of their work look like something else.
_TIMES_TOO_LONG = 2
_WITHIN = " Contexts that alternate within a pixel look concurrent."


def _look_longer(device: Device) -> bool:
    """Whether bars of a pixel, one beside the other, show much more time than their work took."""
    window_ns = window_length_ns(device) or 0
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
        yield " Bars are kernels (rounded: graphs, thin: copies)."
    elif any(one.copies is not None for one in device.tenants):
        yield f" Thin bars are {copies_words(one.copies for one in device.tenants)}. No kernel was recorded."
    if _look_longer(device):
        yield _WIDE
    switches = device.context_switches
    if device.residency_summary is not None:
        ticks = ", ticks are context switches" if switches is not None and switches.count else ""
        yield f" Shading is residency{ticks}."
    interval_ns = None if switches is None else switches.median_slice_ns
    if interval_ns is not None and interval_ns < 2 * (window_length_ns(device) or 0) / _PIXELS:
        # Most have hardly a pixel of their own.
        yield _WITHIN
    sampled, window = device.sampled, device.window
    if sampled is None or sampled.start_ns is None or sampled.end_ns is None or window is None:
        return
    if sampled.start_ns <= window.end_ns and sampled.end_ns >= window.start_ns:
        yield " Lines are sampled."


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels, group = tenant_labels(device.tenants), device.mps_group()
    named = [labels[tenant.tenant_id] for tenant in device.named_for_all() if tenant not in group]
    whose = f" The shading of {named[0]} is the residency of all MPS clients." if named else ""
    if group:
        whose = " The residency of all clients of the MPS group has one track."
    return [
        Chart(
            chart_key("timeline", device.device_id),
            "Timeline",
            "".join(_drawn(device)).strip() + whose,
            "Drag moves, Ctrl+scroll zooms, Shift+drag selects. Keys: arrows + - 0.",
        )
    ]


SECTION = DeviceSection("timeline", "GPU time over time", _blocks, of_trace=True)
