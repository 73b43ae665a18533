"""Copies: directions, memory of the host, and devices on which nothing else was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.results.labels import copies_words
from pyanalyze.vocabulary import CopyDirection, HostMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.results.report import Device

#: Directions of copies, and memory on the host's side.
DIRECTION_WORDS: Final[Mapping[CopyDirection, str]] = {
    CopyDirection.TO_DEVICE: "to the device",
    CopyDirection.TO_HOST: "to the host",
    CopyDirection.ON_DEVICE: "on the device",
    CopyDirection.BETWEEN_DEVICES: "between devices",
    CopyDirection.TO_PEER: "to another GPU, first half (through the host)",
    CopyDirection.FROM_PEER: "from another GPU, second half (through the host)",
    CopyDirection.OTHER: "other",
}
HOST_MEMORY_WORDS: Final[Mapping[HostMemory, str]] = {
    HostMemory.PAGEABLE: "pageable",
    HostMemory.PINNED: "pinned",
    HostMemory.MANAGED: "unified memory",
    HostMemory.DEVICE: "recorded as device memory",
    HostMemory.OTHER: "memory of unknown kind",
}


def copies_only(device: Device) -> bool:
    """Whether copies or memsets are all that was recorded on the device: no share is one of GPU time."""
    ran = any(t.busy_ns or t.resident_ns or t.in_mps_group for t in device.tenants)
    return not ran and any(t.copies is not None for t in device.tenants)


def only_copies_text(device: Device) -> str:
    """Say that no kernel was recorded, and what was instead."""
    return f"No kernel was recorded, {copies_words(t.copies for t in device.tenants)} only."
