"""The one home of the JSON contract of comparisons (``pyanalyze.compare/1``)."""

from __future__ import annotations

from html import escape
from typing import Any, Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Fraction, Missing, Number, Result, Text, rounded
from pyanalyze.results.work import UnitSource
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.visible import json_text
from pyanalyze.vocabulary import Condition, Mode

__all__ = [
    "Change",
    "Comparison",
    "Configured",
    "KernelChange",
    "LongUnit",
    "Part",
    "Run",
    "Split",
    "TenantChange",
    "UnitChange",
    "UnitsCompared",
    "comparison_schema",
]

#: By how much the parts of units that co-ran with another tenant differ (of 1) before these are compared by themselves.
_CO_RAN_UNLIKE = 0.1

PartName = Literal["work", "host", "not_resident", "not_started", "resident", "in_flight"]


class Run(Result):
    """One of the two."""

    label: Text = Field(description="A or B.")
    captures: list[Text] = Field(description="What was read.")
    mode: Mode | None = Field(description="Sharing mode of the GPU with most tenants; null: no GPU did anything.")
    confidence: Fraction | None = Field(description="Of that verdict.")
    condition: Condition | None = Field(description="What nothing excludes: the mode holds unless it is so.")
    gpu: Text | None = Field(description="Name of that GPU.")
    sm_count: int | None = Field(description="Its streaming multiprocessors.")
    events_ns: int | None = Field(
        ge=0,
        description="First to last record of GPU work, a switch or a counter, all captures together, within the chosen "
        "window, ns; null: there is none.",
    )
    recording_ns: int | None = Field(
        ge=0, description="Begin to end of the recordings, ns; null: an export does not say, or a window was chosen."
    )


class Change(Result):
    """A relative change with its 95 % interval; 0 is none, 0.1 is 10 % longer in B."""

    value: Finite = Field(description="B over A, minus 1.")
    low: Finite = Field(description="Lower end: the 95 % interval or the noise floor, whichever is wider.")
    high: Finite = Field(description="Upper end: the 95 % interval or the noise floor, whichever is wider.")
    n: int = Field(ge=0, description="Batches of launches behind the interval, both runs together.")
    significant: bool = Field(description="The interval does not hold 0.")


class Part(Result):
    """One cause of the change; the parts of a tenant sum to its whole."""

    name: PartName = Field(
        description="work: other work was launched; host: nothing was launched that had not ended; not_resident: "
        "another context was resident, inside kernels and before them; not_started: another tenant ran concurrently, "
        "and its next kernel had not started; resident: its kernels took longer while resident; in_flight: the last "
        "three together, where no switch records tell them apart."
    )
    value_ns: Finite = Field(description="Its part of the change of the time per unit of work, ns.")
    low_ns: Finite = Field(description="Lower end of the 95 % interval or bound, ns.")
    high_ns: Finite = Field(description="Upper end of the 95 % interval or bound, ns.")
    share: Number = Field(description="Over the time per unit of work in A.")
    launches_known: bool | None = Field(
        description="Launch calls of both runs tell waiting from a host that launched nothing; null: no matter."
    )
    value_known: bool = Field(
        description="false: `value_ns` is one reading of several, and only its range is known, which holds 0."
    )
    significant: bool = Field(description="The interval does not hold 0, and the part is above the noise floor.")


class Configured(Result):
    """A launch configuration that was launched otherwise."""

    kernel: Text = Field(description="Kernel. Hostile text.")
    grid_blocks: int | None = Field(description="Blocks in the grid.")
    block_threads: int | None = Field(description="Threads in a block.")
    launches_a: int = Field(ge=0, description="Launches in A.")
    launches_b: int = Field(ge=0, description="Launches in B.")
    expected_b: Number = Field(description="Launches in A times `units`.")


class KernelChange(Result):
    """A launch configuration in A and in B: how often, how long, and what its change did to the time of the tenant."""

    kernel: Text = Field(description="Kernel. Hostile text.")
    grid_blocks: int | None = Field(description="Blocks in the grid.")
    block_threads: int | None = Field(description="Threads in a block.")
    launches_a: int = Field(ge=0, description="Launches in A.")
    launches_b: int = Field(ge=0, description="Launches in B.")
    total_a_ns: int = Field(ge=0, description="Sum of its resident time in A, ns; with the kernels of a graph.")
    total_b_ns: int = Field(ge=0, description="The same in B, ns.")
    mean_a_ns: Number = Field(description="Mean resident time of a launch in A, ns; null: not launched.")
    mean_b_ns: Number = Field(description="The same in B, ns.")
    p99_a_ns: int | None = Field(description="99th percentile of it in A, ns; null: fewer than 20 launches.")
    p99_b_ns: int | None = Field(description="The same in B, ns.")
    change: Change | None = Field(
        description="Of the mean: 0.1 is 10 % longer in B; null: launched in one run only, or once."
    )
    effect_ns: Finite = Field(
        description="What it adds to the sum of kernel times of B for as much work as A did, ns; most of it first."
    )


class UnitsCompared(Result):
    """Some units of work of one name in A and in B."""

    name: Text = Field(description="Name of the range, or what the launches consist of. Hostile text.")
    source: UnitSource = Field(description="How they were found.")
    count_a: int = Field(ge=0, description="Units in A.")
    count_b: int = Field(ge=0, description="Units in B.")
    p50_a_ns: int = Field(ge=0, description="Median in A, ns.")
    p50_b_ns: int = Field(ge=0, description="Median in B, ns.")
    mean_a_ns: Finite = Field(description="Mean in A, ns.")
    mean_b_ns: Finite = Field(description="Mean in B, ns.")
    p99_a_ns: int | None = Field(description="99th percentile in A, ns; null: fewer than 20 units.")
    p99_b_ns: int | None = Field(description="The same in B, ns.")
    longest_a_ns: int = Field(ge=0, description="Longest in A, ns.")
    longest_b_ns: int = Field(ge=0, description="Longest in B, ns.")
    p50_change: Change | None = Field(description="Of the median; null: of so few units it has no interval.")
    mean_change: Change | None = Field(description="Of the mean.")


class UnitChange(UnitsCompared):
    """Units of work of one name (requests, steps, iterations) in A and in B."""

    co_ran_count_a: int | None = Field(
        ge=0,
        description="Units in A but for those that were 5 or more in a row during which no other tenant had work on "
        "the device, as far as that was recorded; null: no other tenant was traced there.",
    )
    co_ran_count_b: int | None = Field(ge=0, description="The same in B.")
    co_ran: UnitsCompared | None = Field(
        description="The change of these alone; null: no other tenant was traced, or there are fewer than 5 in a run."
    )

    @property
    def co_ran_unlike(self) -> bool:
        """Whether units co-ran with other tenants so much more often in one run that all of them say little of how."""
        if self.co_ran_count_a is None or self.co_ran_count_b is None:
            return False
        return abs(self.co_ran_count_a / self.count_a - self.co_ran_count_b / self.count_b) >= _CO_RAN_UNLIKE

    @property
    def like_for_like(self) -> UnitsCompared:
        """The units whose change is that of how tenants shared: those that co-ran where the runs are unlike in that."""
        return self.co_ran if self.co_ran_unlike and self.co_ran is not None else self

    @property
    def named(self) -> bool:
        """Whether the program or the caller said what a unit is; else launches that repeat are taken for one."""
        return self.source in ("given", "nvtx")


class LongUnit(Result):
    """A single unit of work that makes up at least half of the change of the time."""

    name: Text = Field(description="Name of the unit of work. Hostile text.")
    run: Literal["A", "B"] = Field(description="The run in which it was.")
    longest_ns: int = Field(ge=0, description="How long it took, ns.")
    p50_ns: int = Field(ge=0, description="Median of all units of that name in that run, ns.")


class Split(Result):
    """Where a tenant's time went; the first five sum to it."""

    idle_ns: Finite = Field(description="Nothing in flight, nobody in the way, ns.")
    idle_not_resident_ns: Finite = Field(
        description="Nothing in flight while another tenant's context was resident, ns."
    )
    idle_other_resident_ns: Finite = Field(
        description="Nothing in flight while a tenant that may run beside it had kernels in flight, ns."
    )
    not_resident_ns: Finite = Field(description="In flight while its context was not resident, ns.")
    resident_ns: Finite = Field(description="In flight and resident, ns; all in flight without switch records.")
    waiting_not_resident_ns: Number = Field(
        description="The part of the idle times in which launched work waited while another context was resident, or a "
        "switch took its time, ns; null: launch calls are not known."
    )
    waiting_other_resident_ns: Number = Field(
        description="The part of idle_other_resident_ns in which launched work waited, ns; null: as above."
    )


class TenantChange(Result):
    """A tenant of A and its counterpart in B."""

    label: Text = Field(description="Its name; two names where they differ.")
    tenant_a: int = Field(description="tenant_id in A.")
    tenant_b: int = Field(description="tenant_id in B.")
    equal_work: bool | None = Field(description="The same work per unit of work; null: cannot be told.")
    units: Number = Field(description="Units of work of B for each of A: 2 if it launched all twice as often.")
    changed_work: Number = Field(description="Part of the kernel time of A that is launched otherwise in B, per unit.")
    launches_a: int = Field(ge=0, description="Launches in A.")
    launches_b: int = Field(ge=0, description="Launches in B.")
    copy_bytes_a: int | None = Field(description="Bytes copied in A; null: copies were not traced.")
    copy_bytes_b: int | None = Field(description="Bytes copied in B; null: copies were not traced.")
    changed: list[Configured] = Field(description="Configurations that were launched otherwise, most time first.")
    kernels: list[KernelChange] = Field(description="Launch configurations, largest effect first, at most 20.")
    kernels_found: int | None = Field(
        ge=0, description="Launch configurations of A or B, listed in `kernels` or not; null: more than are known."
    )
    kernels_overlap: bool = Field(
        description="Kernels of it ran at the same time in A or B: their effects do not add up to a part of the change."
    )
    unit_changes: list[UnitChange] = Field(
        description="Units of work of a name that both runs have, most time first, at most 10."
    )
    long_unit: LongUnit | None = Field(
        description="A single unit that makes up at least half of `change`; null: there is none, or it is not known."
    )
    time_a_ns: int = Field(description="First launch to last end in A, without pauses before the work began, ns.")
    time_b_ns: int = Field(description="First launch to last end in B, without pauses before the work began, ns.")
    startup_a_ns: int = Field(description="Pauses before the work began in A, ns: no part of any change.")
    startup_b_ns: int = Field(description="Pauses before the work began in B, ns.")
    split_a: Split = Field(description="Where the time went in A.")
    split_b: Split = Field(description="Where it went in B, for as much work as in A.")
    change: Change | None = Field(description="Of the time per unit of work; null: the work cannot be compared.")
    parts: list[Part] = Field(description="Where the change came from; empty: not known.")
    why: Text | None = Field(description="Why something above is null or empty.")


class Comparison(Result):
    """Two runs side by side."""

    schema_id: Literal["pyanalyze.compare/1"] = Field(
        default="pyanalyze.compare/1", alias="schema", description="Name and version of this contract."
    )
    a: Run = Field(description="The run that is compared with.")
    b: Run = Field(description="The run that is looked at.")
    noise_floor: Finite = Field(ge=0, description="Relative changes below it are not told from run-to-run noise.")
    equal_work: bool | None = Field(description="Every tenant that has a counterpart did the same work per unit.")
    summary: Text = Field(description="The answer in a few sentences.")
    tenants: list[TenantChange] = Field(description="Pairs of tenants.")
    only_a: list[Text] = Field(description="Tenants of A without counterpart.")
    only_b: list[Text] = Field(description="Tenants of B without counterpart.")
    left_out: list[Missing] = Field(description="What does not carry over from one run to the other.")

    @property
    def conclusive(self) -> bool:
        """Whether any pair of tenants could be compared."""
        return any(pair.change is not None for pair in self.tenants)

    def __repr__(self) -> str:
        """Say whether there is an answer."""
        answer = "conclusive" if self.conclusive else "inconclusive"
        return f"<Comparison of {fmt.counted(len(self.tenants), 'tenant')}, {answer}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of the contract; floats rounded to 9 significant digits.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.compare(capture, capture).to_dict()["equal_work"]
        True
        """
        plain: dict[str, Any] = rounded(self.model_dump(mode="json", by_alias=True))
        return plain

    def to_json(self) -> str:
        """The JSON text, ending in a newline. Equal comparisons give equal bytes.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.compare(capture, capture).to_json().splitlines()[1]
        '  "schema": "pyanalyze.compare/1",'
        """
        return json_text(self.to_dict()) + "\n"

    def __str__(self) -> str:
        """The answer in a few sentences; :func:`pyanalyze.report.comparison.render_comparison` writes all of it."""
        return visible(self.summary, None)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def comparison_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of :meth:`Comparison.to_json`.

    Examples
    --------
    >>> comparison_schema()["properties"]["schema"]["const"]
    'pyanalyze.compare/1'
    """
    schema = Comparison.model_json_schema(by_alias=True, mode="serialization")
    schema["required"].insert(0, "schema")  # it has a default, and is what a reader asks for first
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "pyanalyze.compare/1", **schema}
