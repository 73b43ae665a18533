"""Timing and sizes of GPUs that captures do not show: the values of the core, which says where each comes from."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from pyanalyze.core import _core
from pyanalyze.text.numbers import bounded_float

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "DEFAULT_SLICE_NS",
    "HOST_FASTER",
    "IDLE_GAP_NS",
    "LAUNCH_GAP_NS",
    "LINGER_NS",
    "MAX_STATE_NS",
    "MPS_PERCENTAGE",
    "PAUSE_NS",
    "PROMPT_NS",
    "SHORT_KERNEL_NS",
    "SMS_PER_TPC",
    "SM_ORDER_ASSUMED_FROM_MAJOR",
    "START_NS",
    "STATE_NS",
    "SWITCH_NS",
    "mig_sm_counts",
    "mps_caps",
    "mps_clients",
    "mps_sms",
    "visible_sms",
]

_CONSTANTS = _core.hardware_constants()

#: The compute time slice, the switch included.
DEFAULT_SLICE_NS: Final = _CONSTANTS["default_slice_ns"]
#: A full context switch inside a kernel.
SWITCH_NS: Final = _CONSTANTS["switch_ns"]
#: Saving the state of a context, or restoring it.
STATE_NS: Final = _CONSTANTS["state_ns"]
#: Both together, at most, on the boards that were measured.
MAX_STATE_NS: Final = _CONSTANTS["max_state_ns"]
#: A longer gap between two residency intervals is an idle engine.
IDLE_GAP_NS: Final = _CONSTANTS["idle_gap_ns"]
#: A gap between two operations of a tenant that is at most so long comes from launching.
LAUNCH_GAP_NS: Final = _CONSTANTS["launch_gap_ns"]
#: A kernel that starts within this time after nothing is in its way any more did not wait for a time slice.
PROMPT_NS: Final = _CONSTANTS["prompt_ns"]
#: A kernel launched sooner than this after own work may start at once beside a busy tenant: its context may still be
#: resident. Of two processes on an H200 one launched within it, and 80 of 83 kernels were prompt; the other launched
#: after over 1 ms, and none of 79 was.
LINGER_NS: Final = 100_000
#: A host without a call for so long pauses, and may wait for what comes from outside.
PAUSE_NS: Final = _CONSTANTS["pause_ns"]
#: A kernel up to this length is short where no time slice was seen.
SHORT_KERNEL_NS: Final = _CONSTANTS["short_kernel_ns"]
#: From when nothing is in the way of an operation until it starts, at most.
START_NS: Final = _CONSTANTS["start_ns"]
#: Solo, a host may need so much less of its own time: bounds of inferred slowdowns allow for it.
HOST_FASTER: Final = _CONSTANTS["host_faster_percent"] / 100
#: SMs of a TPC, the unit in which MPS percentages are rounded down.
SMS_PER_TPC: Final = _CONSTANTS["sms_per_tpc"]
#: From this major compute capability on SM numbers of the model are assumed: nobody has published the order.
SM_ORDER_ASSUMED_FROM_MAJOR: Final = _CONSTANTS["sm_order_assumed_from_major"]
#: The variable that caps the SMs of an MPS client.
MPS_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def mps_caps(settings: Iterable[tuple[str, str, int | None]]) -> list[tuple[int | None, float]]:
    """Read the percentages of MPS clients among settings.

    Parameters
    ----------
    settings
        Key, value and pid of each.

    Returns
    -------
    list of (int or None, float)
        Pid and per cent, above 0 and up to 100, each once and in order. Without a pid one percentage is that of all
        clients; several are of clients whose processes are not known.

    Examples
    --------
    >>> mps_caps([(MPS_PERCENTAGE, "40", 7), (MPS_PERCENTAGE, "40", 7), (MPS_PERCENTAGE, "0", 8)])
    [(7, 40.0)]
    """
    caps = {(pid, bounded_float(value, 0, 100)) for key, value, pid in settings if key == MPS_PERCENTAGE}
    known = [(pid, percentage) for pid, percentage in caps if percentage]
    return sorted(known, key=lambda cap: (cap[0] or 0, cap[1]))


def mps_sms(sm_count: int, percentage: float, compute_major: int | None = None) -> int:
    """Return the SMs that an MPS active thread percentage leaves: whole TPCs, rounded down, and a floor.

    Parameters
    ----------
    sm_count
        SMs of the device.
    percentage
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, 0 to 100.
    compute_major
        Major compute capability, which decides the floor; None: no floor but one TPC.

    Examples
    --------
    Measured on an H200, whose driver leaves no fewer than 8:

    >>> [mps_sms(132, percentage, 9) for percentage in (1, 8, 9, 10, 12, 13, 15, 100)]
    [8, 10, 10, 12, 14, 16, 18, 132]
    """
    return _core.mps_sms(sm_count, percentage, compute_major)


def mig_sm_counts(board: str) -> frozenset[int]:
    """SMs of the MIG instances that a board of this name can be cut into; empty: it has no MIG, or they are not known.

    Examples
    --------
    >>> sorted(mig_sm_counts("NVIDIA A30")), sorted(mig_sm_counts("NVIDIA A10G"))
    ([14, 28, 56], [])
    """
    return frozenset(_core.mig_sm_counts(board))


#: Compute slices of a board that MIG can cut, at most.
_MOST_SLICES = 7


def mps_clients(whole: int, board: str | None, profile: str | None) -> int:
    """How many clients an MPS server takes on a device, at most.

    In a MIG instance the number is lowered in proportion to the size of the compute instance (NVIDIA, Multi-Instance
    GPU user guide, CUDA concurrency mechanisms). How it is rounded is not stated: up, here.

    Parameters
    ----------
    whole
        On a whole GPU.
    board
        Product name of the board; None: not known.
    profile
        Of the instance, such as ``1g.5gb`` or ``1c.3g.20gb``; None: the device is no instance.

    Examples
    --------
    >>> mps_clients(48, "NVIDIA A100-PCIE-40GB", None), mps_clients(48, "NVIDIA A100-PCIE-40GB", "1g.5gb")
    (48, 7)
    >>> mps_clients(48, "NVIDIA A30", "2g.12gb"), mps_clients(60, "NVIDIA H200", "1c.3g.71gb")
    (24, 9)
    """
    found = None if profile is None else re.match(r"(\d+)[cg]\.", profile)
    if found is None:
        return whole
    counts = mig_sm_counts(board or "")
    # The smallest instance has one slice; SMs of the whole board may be a few more than those of its slices.
    slices = min(max(counts) // min(counts), _MOST_SLICES) if len(counts) > 1 else _MOST_SLICES
    return min(math.ceil(whole * int(found[1]) / slices), whole)


def visible_sms(tables: TableSet, device_id: int) -> dict[int, int]:
    """SMs that CUDA showed a tenant, where those are fewer than the device's: a cap, or a partition.

    Examples
    --------
    >>> import pyanalyze
    >>> visible_sms(pyanalyze.load(capture).tables, 0)
    {}
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    whole = tables.devices.filter(here)["sm_count"][0]
    if whole is None:
        return {}
    shown = tables.contexts.filter(
        here
        & pl.col("sm_count").is_not_null()
        & ~pl.col("is_green").fill_null(value=False)
        & (pl.col("sm_count") < whole)
    )
    tenants = tables.tenants.filter(here).select("tenant_id", "capture", "pid")
    seen = (
        shown.join(tenants, on=["capture", "pid"], nulls_equal=True).group_by("tenant_id").agg(pl.col("sm_count").max())
    )
    return dict(seen.sort("tenant_id").iter_rows())
