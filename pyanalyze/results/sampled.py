"""A quantity of a whole device that was sampled: by the driver, DCGM or the GPU metrics of nsys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Result, Text

__all__ = ["SampledCounter"]


class SampledCounter(Result):
    """One quantity of the whole device, over all samples that have a value of it; basis `sampled`."""

    name: Text = Field(
        description="Such as `sm_occupancy`: the metric of the table `nvml_samples` without its unit; of GPU metrics "
        "the name that nsys gives it, such as `Compute Warps in Flight`."
    )
    unit: Literal["fraction", "bytes", "bytes/s", "Hz", "C"] = Field(description="Unit of the values.")
    mean: Finite = Field(description="Mean over the samples.")
    low: Finite = Field(description="Smallest sample.")
    high: Finite = Field(description="Largest sample.")
    n: int = Field(ge=1, description="Samples with a value.")
