"""Residency intervals and context switches, summed up by tenant and by device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pyanalyze.results.model import Number, Result, Text
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import Basis

__all__ = ["ContextSwitches", "CostKind", "ResidencySlice", "ResidencySummary", "ResidencyTotals", "SwitchPart"]

CostKind = Literal["gap", "full"]


class SwitchPart(Result):
    """One part of the switches, or all of their parts."""

    median_ns: int = Field(description="Median of a switch, ns.")
    total_ns: int = Field(description="Sum over all switches, ns.")


class ContextSwitches(Result):
    """Switches between hardware contexts.

    A full switch is `save`, `gap` and `restore`, one after the other.
    """

    count: int = Field(ge=0, description="Switches between two contexts that both had work.")
    context_creations: int = Field(
        ge=0,
        description="Switches to or from a context resident at most twice, beside another of its process: taken for "
        "one being created.",
    )
    unrecorded_starts: int = Field(
        default=0,
        ge=0,
        description="Switches from a context that was resident before the first switch record, not known since when; "
        "not in count.",
    )
    median_slice_ns: int | None = Field(description="Median length of complete slices, ns.")
    median_cost_ns: int | None = Field(description="Median cost of a switch, ns.")
    mean_cost_ns: Number = Field(description="Mean cost of a switch, ns.")
    cost_kind: CostKind | None = Field(
        description="gap: SAVE_END to the next RESTORE_START; full: acknowledgement to CONTEXT_START."
    )
    total_cost_ns: int | None = Field(description="Sum of the costs, ns.")
    save: SwitchPart | None = Field(
        default=None, description="Stop and save: acknowledgement to SAVE_END; null: a switch has no such record."
    )
    gap: SwitchPart | None = Field(default=None, description="SAVE_END to the next RESTORE_START; null: no switch.")
    restore: SwitchPart | None = Field(
        default=None, description="RESTORE_START to CONTEXT_START; null: a switch has no such record."
    )
    recorded_ns: int | None = Field(
        default=None,
        description="Time of the window that the records cover, ns: shares of residency, switches and slowdowns are of "
        "it; null: all of the window, or nearly.",
    )
    overhead_fraction: Number = Field(description="Total cost over the window, or over recorded_ns.")
    all_at_work_gap_share: Number = Field(
        default=None,
        description="Switch gaps within `all_at_work` of the device over it; null: no such time, or records cover a "
        "part.",
    )
    all_at_work_switches: int | None = Field(
        default=None, ge=0, description="Switches that begin within `all_at_work` of the device; null: the same."
    )
    all_at_work_overhead_fraction: Number = Field(
        default=None,
        description="Their total cost over `all_at_work`, of gaps or of full switches, as `cost_kind`. Null: the same.",
    )
    endings: dict[Text, int] = Field(description="How slices ended (WFI, GFXP, CTAP, CILP, ...): count.")
    dropped: int | None = Field(description="Records lost, by sequence number; null: cannot be told.")


class ResidencyTotals(Result):
    """What the slices of one tenant add up to."""

    tenant_id: int = Field(ge=0, description="The tenant.")
    clients: list[int] = Field(
        default=[],
        description="This row is of these clients of an MPS group that is time-sliced with others: switch records "
        "name any of them for all; empty: it is of the tenant alone.",
    )
    slices: int = Field(ge=0, description="Complete slices.")
    cut_slices: int = Field(ge=0, description="Slices that the recording or lost records cut.")
    gpu_time_share: Number = Field(
        description="GPU time share: its residency in the window, over the window, or over the part of it that switch "
        "records cover."
    )
    idle_ns: int | None = Field(
        description="In the window, resident with none of its kernels in flight, ns; null: not traced."
    )
    idle_share: Number = Field(description="Of its residency in the window; null: not traced.")
    without_kernels: int | None = Field(
        default=None,
        ge=0,
        description="Complete slices in which no kernel or whole graph of it was in flight; null: not traced, an MPS "
        "group, or inferred from kernels.",
    )
    without_kernels_ns: int | None = Field(default=None, ge=0, description="Their sum, ns; null: the same.")
    without_kernels_in_window_ns: int | None = Field(
        default=None, ge=0, description="What of that lies in the window, ns; null: the same."
    )
    p10_slice_ns: int | None = Field(description="A tenth of its slices is not longer, ns.")
    median_slice_ns: int | None = Field(description="Median length of its complete slices, ns.")
    p90_slice_ns: int | None = Field(description="Nine tenths are not longer, ns.")
    max_slice_ns: int | None = Field(
        description="Longest, ns; slices are whole, though one may begin before the window."
    )
    expired: int | None = Field(
        description="Slices that lasted their time and that another tenant followed, where its kernels were traced "
        "with one in flight at the end; null: no time slice is known."
    )
    yielded: int | None = Field(
        description="Those that another tenant followed and that ended for want of work: without a kernel in flight at "
        "the end, or, where its kernels were not traced, shorter ones; null: as expired."
    )


class ResidencySummary(Result):
    """Slices and the engine; `inferred` from kernels where the mode is time-slicing without switch records."""

    basis: Basis = Field(description="observed: switch records; inferred: starts and ends of kernels.")
    resident_ns: int | None = Field(description="Of the window, some context was resident, whichever it was, ns.")
    idle_ns: int | None = Field(
        description="Of the window, no context was resident and no switch went on, ns; null: inferred."
    )
    median_save_ns: int | None = Field(description="Acknowledgement to SAVE_END, ns; null: no such tags.")
    median_restore_ns: int | None = Field(description="RESTORE_START to CONTEXT_START, ns; null: no such tags.")
    time_slice_ns: int | None = Field(description="Estimated time slice, ns; null: slices do not agree.")
    policy: Text | None = Field(
        description="short, default, medium or long, as of nvidia-smi compute-policy; NVIDIA publishes no lengths. "
        "null: no time slice is known, or no policy is known to have its length."
    )
    jain: Number = Field(description="Jain's index of residency in the window over tenants; 1 is equal.")
    tenants: Sequence[ResidencyTotals] = Field(description="Per tenant, most residency first.")

    def __repr__(self) -> str:
        """Count the tenants."""
        return f"<{type(self).__name__}: {fmt.counted(len(self.tenants), 'tenant')}, {self.basis}>"


class ResidencySlice(Result):
    """A slice (only with --detail)."""

    tenant_id: int | None = Field(description="Tenant; null: no tenant could be named.")
    hw_context: int = Field(description="Hardware context.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    basis: Basis = Field(description="How it is known.")
