"""What to change, and what each way to share the device would do to its tenants."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Fraction, Number, Result, Text
from pyanalyze.vocabulary import WORTH_IT, Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = [
    "EXPLAINS",
    "Advice",
    "CapStrategy",
    "Checked",
    "ForecastRow",
    "ForecastWaits",
    "MpsPercentage",
    "ReplayedTenant",
    "SharingOption",
    "mean_bounds",
    "numbers_of",
    "times_slower",
]


#: Part of the added kernel latency above which one wait explains it.
EXPLAINS = 0.5


class Advice(Result):
    """One thing to change."""

    action: Text = Field(description="What to do, in one line.")
    commands: list[Text] = Field(description="Commands that do it.")
    expected: Text | None = Field(description="What it should give; null: not known.")
    bound: Text | None = Field(description="The most it can save; beside `expected`, the bounds of that forecast.")
    why: Text = Field(description="Which evidence it follows from.")
    undo: Text | None = Field(description="How to take it back.")
    risk: Text | None = Field(default=None, description="What it may break; null: nothing is known.")
    wrong_if: Text | None = Field(default=None, description="What would prove it wrong; null: nothing is predicted.")
    check_after: Text | None = Field(
        default=None, description="What a capture after the change should show; null: nothing is predicted."
    )
    at_stake_ns: int | None = Field(
        default=None, ge=0, description="Time that it could save at most, ns; null: not known."
    )
    at_stake_share: Number = Field(
        default=None,
        description="The same over the window, without pauses between units of work where the advice is about units; "
        "below 0.02 the advice is small; null: not known.",
    )
    exclusive: bool = Field(
        default=False, description="It says how the device is shared: of several such actions only one can be done."
    )


def numbers_of(actions: Sequence[Advice]) -> list[str]:
    """Number actions: those of which only one can be done share a number, and are told apart by a letter.

    Examples
    --------
    >>> one = Advice(action="a", commands=[], expected=None, bound=None, why="w", undo=None)
    >>> other = one.model_copy(update={"exclusive": True})
    >>> numbers_of([one, other, one, other]), numbers_of([other, one])
    (['1', '2a', '3', '2b'], ['1', '2'])
    """
    several = sum(action.exclusive for action in actions) > 1
    found: list[str] = []
    number, shared, letters = 0, 0, iter("abcdefghijklmnopqrstuvwxyz")
    for action in actions:
        if several and action.exclusive:
            if not shared:
                number += 1
                shared = number
            found.append(f"{shared}{next(letters, '')}")
        else:
            number += 1
            found.append(str(number))
    return found


#: How caps of MPS clients are chosen.
CapStrategy = Literal["equal", "double", "proportional", "minimal"]


class Checked(Result):
    """Against which measured figures forecasts of a kind were checked."""

    against: Text = Field(description="What was measured, and where it is published.")
    n: int = Field(ge=0, description="Forecasts that were compared with a measurement.")
    median_error: Number = Field(description="Median relative error; null: not a number that was forecast.")
    p95_error: Number = Field(description="95th percentile of the relative error.")
    coverage: Number = Field(description="Part of the measurements inside the 95 % interval.")


class ForecastWaits(Result):
    """Parts of the kernel latency that a way to share adds to that solo; modelled.

    A wait behind kernels of the same stream counts for what delays the head of that stream. The rest is queueing behind
    other work of its own, and slower execution.
    """

    queue_other: Fraction = Field(description="Waiting for SMs that blocks of other tenants hold.")
    not_resident: Fraction = Field(
        description="Waiting for its time slice, before the start or inside the kernel; with context switches."
    )


class ReplayedTenant(Result):
    """Elapsed time of a tenant in the replay of the recorded configuration, on which forecasts rest."""

    tenant_id: int = Field(description="Tenant.")
    recorded_ns: int = Field(ge=1, description="Elapsed time as recorded, ns.")
    error: Finite = Field(description="Replayed over recorded, less 1: below 0 the replay is too short.")


class ForecastRow(Result):
    """What a way to share would do to a tenant; modelled."""

    tenant_id: int = Field(description="Tenant.")
    slowdown: float = Field(gt=0, description="Elapsed time of the same launches over that alone on the whole GPU.")
    low: float = Field(ge=0, description="Lower bound of it.")
    high: float = Field(ge=0, description="Upper bound of it.")
    latency: float | None = Field(description="Kernel latency (launch to end) over alone; null: no API calls.")
    p99_ns: int | None = Field(
        description="99th percentile of kernel latency; null: no API calls, fewer than 20 operations, or the replay of "
        "the current configuration misses the recorded one by more than 25 %."
    )
    waits: ForecastWaits | None = Field(
        default=None, description="What the added kernel latency is spent on; null: no API calls, or nothing is added."
    )


def mean_bounds(rows: Collection[ForecastRow]) -> tuple[float, float]:
    """Mean of the lower, and of the upper bounds.

    Examples
    --------
    >>> row = ForecastRow(tenant_id=0, slowdown=2.0, low=1.5, high=2.5, latency=None, p99_ns=None)
    >>> mean_bounds([row, row])
    (1.5, 2.5)
    """
    return statistics.fmean(row.low for row in rows), statistics.fmean(row.high for row in rows)


def times_slower(rows: Iterable[ForecastRow], now: Iterable[ForecastRow]) -> dict[int, float]:
    """Slowdown over that of now, by tenant, of those that a change makes slower by a notable part.

    Examples
    --------
    >>> row = ForecastRow(tenant_id=0, slowdown=2.0, low=1.5, high=2.5, latency=None, p99_ns=None)
    >>> times_slower([row], [row.model_copy(update={"slowdown": 1.6})])
    {0: 1.25}
    """
    before = {row.tenant_id: row.slowdown for row in now}
    times = {row.tenant_id: row.slowdown / before[row.tenant_id] for row in rows if row.tenant_id in before}
    return {tenant_id: ratio for tenant_id, ratio in times.items() if ratio >= 1 + WORTH_IT}


class MpsPercentage(Result):
    """The part of the SMs that an MPS client may use."""

    tenant_id: int = Field(description="Tenant.")
    percentage: int = Field(description="Its CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.")


class MigProfile(Result):
    """The MIG instance of a tenant."""

    tenant_id: int = Field(description="Tenant.")
    profile: Text = Field(description="Its profile, such as `3g.40gb`.")


class SharingOption(Result):
    """A way to share the device that was replayed; modelled."""

    name: Text = Field(description="Such as `MPS, minimal caps`.")
    mode: Mode = Field(description="Sharing mode that it makes.")
    antt: float = Field(gt=0, description="Mean slowdown.")
    stp: float = Field(gt=0, description="Sum of 1 / slowdown.")
    current: bool = Field(description="It is how the capture shows the device shared.")
    recommended: bool = Field(description="It is the one advised.")
    lacks: list[Text] = Field(description="Requirements (`--require`) that its mode does not promise.")
    strategy: CapStrategy | None = Field(
        default=None, description="How its MPS caps are chosen; null: recorded, or none."
    )
    percentages: list[MpsPercentage] = Field(default_factory=list, description="MPS caps; empty: none are set.")
    profiles: list[MigProfile] = Field(default_factory=list, description="MIG instances; empty: not MIG.")
    tenants: list[ForecastRow] = Field(description="Per tenant.")
