"""A quantity of a whole device that was sampled: by the driver, DCGM or the GPU metrics of nsys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Result, Text
from pyanalyze.vocabulary import ENOUGH_FOR_P10_P90

__all__ = ["SampledCounter"]

#: Part of p90 that lies between p10 and p90 from which on a mean alone says too little: few samples are near it.
_VARIED = 0.15


class SampledCounter(Result):
    """One quantity of the whole device, over all samples that have a value of it; basis `sampled`."""

    name: Text = Field(
        description="Such as `sm_occupancy`: the metric of the table `nvml_samples` without its unit; of GPU metrics "
        "the name that nsys gives it, such as `Compute Warps in Flight`."
    )
    unit: Literal["fraction", "bytes", "bytes/s", "Hz", "C", "W"] = Field(description="Unit of the values.")
    mean: Finite = Field(description="Mean over the samples.")
    low: Finite = Field(description="Smallest sample.")
    high: Finite = Field(description="Largest sample.")
    p10: Finite | None = Field(
        default=None,
        description="Sample that 10 % of them do not exceed (nearest rank: of fewer than 10 samples the smallest); "
        "null: not computed.",
    )
    p90: Finite | None = Field(
        default=None,
        description="Sample that 90 % of them do not exceed (nearest rank: of fewer than 10 samples the largest); "
        "null: not computed.",
    )
    n: int = Field(ge=1, description="Samples with a value.")
    listed_low: Finite | None = Field(
        default=None,
        description="Smallest sample of the stretches between holes in which lists name a compute process; null: there "
        "is no hole, no list with a time, or no sample with a time in these.",
    )
    listed_high: Finite | None = Field(default=None, description="Largest sample of these stretches, likewise.")
    listed_n: int = Field(default=0, ge=0, description="Samples of these stretches that have a value.")

    @property
    def has_percentiles(self) -> bool:
        """Whether p10 and p90 say more than the smallest and the largest sample.

        Examples
        --------
        >>> SampledCounter(name="a", unit="W", mean=300, low=70, high=450, n=9, p10=70, p90=450).has_percentiles
        False
        """
        return self.p10 is not None and self.n >= ENOUGH_FOR_P10_P90

    @property
    def varies(self) -> bool:
        """Whether the samples lie so far apart that their mean needs a range beside it.

        Examples
        --------
        >>> SampledCounter(name="a", unit="W", mean=300, low=70, high=450, n=20, p10=295, p90=310).varies
        False
        """
        if self.p10 is None or self.p90 is None:
            return False
        return self.p90 - self.p10 > _VARIED * abs(self.p90)
