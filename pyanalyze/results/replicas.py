"""What copies of a tenant, or a mix of tenants, would do under a sharing configuration: forecasts with intervals."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Fraction, Number, Result, Text

__all__ = ["Checked", "Estimate", "Knowledge", "Quantity", "Sign", "SignForecast", "ThroughputForecast"]

Quantity = Literal["mean", "p99"]
Sign = Literal["mps-slower", "mps-faster"]


class Knowledge(StrEnum):
    """What is known of a pair whose sign is forecast."""

    #: Its run under MPS.
    MPS_RUN = "mps-run"
    #: What its other tenant does to somebody else.
    OTHER_TENANT = "other-tenant"
    #: Nothing but other pairs.
    ANY_PAIR = "any-pair"


class Estimate(Result):
    """A modelled value with an interval that holds the truth in 95 % of cases, model error included."""

    value: Finite = Field(description="The most likely value.")
    low: Finite = Field(description="Lower end of the 95 % interval.")
    high: Finite = Field(description="Upper end of the 95 % interval.")

    def __str__(self) -> str:
        """Show value and interval."""
        return f"{self.value:.3g} (95 % CI {self.low:.3g}-{self.high:.3g})"

    def times(self, factor: float) -> Estimate:
        """Return it in another unit.

        Examples
        --------
        >>> print(Estimate(value=2.0, low=1.5, high=3.0).times(10))
        20 (95 % CI 15-30)
        """
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)


class Checked(Result):
    """Against which measured figures forecasts of a kind were checked."""

    against: Text = Field(description="What was measured, and where it is published.")
    n: int = Field(ge=0, description="Forecasts that were compared with a measurement.")
    median_error: Number = Field(description="Median relative error; null: not a number that was forecast.")
    p95_error: Number = Field(description="95th percentile of the relative error.")
    coverage: Number = Field(description="Part of the measurements inside the 95 % interval.")


class ThroughputForecast(Result):
    """Throughput of equal copies in one instance; modelled from measured throughput."""

    compute_slices: int = Field(ge=1, description="Compute slices of the instance; the whole GPU has the most.")
    memory_slices: int = Field(ge=1, description="Memory slices of the instance.")
    batch: int = Field(ge=1, description="Work items that a copy handles at once.")
    copies: int = Field(ge=1, description="Copies in the instance, clients of one MPS server.")
    throughput: Estimate = Field(description="Work items per second of all copies.")
    per_copy: Estimate = Field(description="Work items per second of one copy.")
    measured: bool = Field(description="The solo throughput at this instance and batch was measured.")
    checked: Checked = Field(description="What forecasts of this kind were checked against.")


class SignForecast(Result):
    """Is a tenant slower under MPS than time-sliced? Modelled from measured pairs."""

    quantity: Quantity = Field(description="Mean latency, or its 99th percentile.")
    ratio: Finite = Field(description="Latency under MPS over latency under time-slicing.")
    low: Finite = Field(description="The ratio is below with a probability of 5 %.")
    high: Finite = Field(description="The ratio is above with a probability of 5 %: a stated sign has 1 outside.")
    likely: Sign = Field(description="The more likely sign.")
    confidence: Fraction = Field(description="Probability of that sign.")
    sign: Sign | Literal["cannot-tell"] = Field(description="The sign where its probability is at least 0.95.")
    known: Knowledge = Field(description="What the forecast is made from.")
    n: int = Field(ge=0, description="Measured pairs behind it.")
    checked: Checked = Field(description="What forecasts of this kind were checked against.")
