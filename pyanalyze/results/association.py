"""An association of a victim's latency with a tenant's sampled activity."""

from __future__ import annotations

from pydantic import Field

from pyanalyze.results.model import Result, Text

__all__ = ["Association"]


class Association(Result):
    """How the victim's latency goes with a tenant's activity; basis `sampled`. It is no proof of a cause."""

    victim: Text | None = Field(description="Tenant whose latencies were given; null: the file names none.")
    tenant: Text = Field(description="Tenant whose activity was sampled.")
    effect: float = Field(gt=0, description="Mean latency while it is active over that while it is not.")
    low: float = Field(ge=0, description="Lower end of the 95 % interval of the effect (moving-block bootstrap).")
    high: float = Field(ge=0, description="Upper end of it.")
    lag_ns: int = Field(ge=0, description="By how much the latency follows the activity, ns; a multiple of `bin_ns`.")
    correlation: float = Field(ge=-1, le=1, description="Pearson's correlation at that lag.")
    p: float = Field(gt=0, le=1, description="Share of random shifts in time with at least this correlation.")
    n: int = Field(ge=1, description="Bins in which both are known.")
    bin_ns: int = Field(ge=1, description="Length of a bin, ns.")
    associated: bool = Field(description="The shifts exclude chance at 5 %, and the interval excludes 1.")
