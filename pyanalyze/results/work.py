"""What a tenant launched, and where its time went: all that two runs are compared by."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Number, Result, Text

__all__ = ["Batch", "Configuration", "UnitLengths", "UnitSource", "UnitTimes", "Work"]


class Configuration(Result):
    """Launches of one kernel with one shape."""

    key: Text = Field(description="Digest of the whole kernel name, grid and block: equal launches have equal keys.")
    kernel: Text = Field(description="Kernel name without parameters, shortened. Hostile text.")
    grid_blocks: int | None = Field(description="Blocks in the grid; null: not exported.")
    block_threads: int | None = Field(description="Threads in a block; null: not exported.")
    launches: int = Field(ge=1, description="How often.")
    total_ns: int = Field(description="Sum of their durations as recorded, ns; switched-out time included.")
    attributed_total_ns: int = Field(description="Sum of the parts in which its context was resident, ns.")
    attributed_p99_ns: int | None = Field(
        default=None, description="99th percentile of those parts, ns; null: too few launches, or not known."
    )
    attributed_sd_ns: Number = Field(
        default=None, description="Their standard deviation, ns; null: a single launch, or not known."
    )


class Batch(Result):
    """A run of consecutive launches; what a batch took differs from the next by noise."""

    launches: int = Field(ge=1, description="Launches in it.")
    idle_ns: int = Field(description="Nothing of the tenant was in flight, and no other tenant was in its way, ns.")
    idle_not_resident_ns: int = Field(
        description="Nothing was in flight while another tenant's context was resident, ns."
    )
    idle_other_resident_ns: int = Field(
        description="Nothing was in flight while a tenant that may run beside it had kernels in flight, ns."
    )
    waiting_not_resident_ns: int | None = Field(
        default=None,
        description="The part of idle_ns and idle_not_resident_ns in which a launch call had returned, its work had "
        "not started, no copy of the tenant ran, and another tenant's context was resident or a switch took its time, "
        "ns; null: launch calls are not known.",
    )
    waiting_other_resident_ns: int | None = Field(
        default=None,
        description="The part of idle_other_resident_ns in which launched work waited likewise, ns; null: launch calls "
        "are not known.",
    )
    busy_ns: int = Field(description="Union of its kernel and graph intervals as recorded, ns.")
    attributed_ns: int = Field(description="The part of it in which its context was resident, ns.")


#: How units of work were found.
UnitSource = Literal["given", "nvtx", "graph", "synchronisation"]


class UnitLengths(Result):
    """How long some units of work of one name took."""

    name: Text = Field(description="Name of the range, or what the launches consist of. Hostile text.")
    source: UnitSource = Field(description="How they were found.")
    count: int = Field(ge=1, description="Units.")
    mean_ns: Finite = Field(description="Mean, ns.")
    sd_ns: Finite = Field(description="Standard deviation, ns.")
    p50_ns: int = Field(ge=0, description="Median, ns.")
    p50_low_ns: int | None = Field(description="Lower end of its 95 % interval, ns; null: too few units.")
    p50_high_ns: int | None = Field(description="Upper end of its 95 % interval, ns; null: too few units.")
    p99_ns: int | None = Field(description="99th percentile, ns; null: fewer than 20 units.")
    longest_ns: int = Field(ge=0, description="Longest, ns.")


class UnitTimes(UnitLengths):
    """How long the units of work of one name took: requests, steps, iterations."""

    co_ran_count: int | None = Field(
        default=None,
        ge=0,
        description="All but those that were 5 or more in a row during which no other tenant had work on the device, "
        "as far as that was recorded; null: no other tenant was traced there.",
    )
    co_ran: UnitLengths | None = Field(default=None, description="How long these took; null: fewer than 5.")


class Work(Result):
    """What a tenant launched, and where its time went: all that two runs are compared by."""

    launches: int = Field(ge=0, description="Kernels and whole-graph launches.")
    graph_launches: int = Field(ge=0, description="Whole-graph launches among them; their kernels are not seen.")
    copies: int = Field(ge=0, description="Copies and sets.")
    copy_bytes: int | None = Field(description="Copied or set, bytes; null: copies were not traced.")
    residency_known: bool = Field(description="Switch records say when its context was resident.")
    configurations: list[Configuration] = Field(description="Launch configurations with most time, most first.")
    other_launches: int = Field(ge=0, description="Launches of configurations that are not listed.")
    other_ns: int = Field(ge=0, description="Sum of their durations as recorded, ns.")
    startup_ns: int = Field(
        ge=0,
        description="Pauses before its work began in which nothing of any traced tenant was in flight, ns. They do not "
        "grow with the work and are in no batch.",
    )
    batches: list[Batch] = Field(description="Consecutive runs of about equally many launches, in order.")
    units: list[UnitTimes] = Field(
        default_factory=list, description="Units of work by name, most time first, at most 10; none of fewer than 5."
    )
