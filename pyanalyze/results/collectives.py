"""Which rank the collective kernels of a process waited for."""

from __future__ import annotations

from pydantic import Field

from pyanalyze.results.model import Result, Text

__all__ = ["CollectiveWaits", "LateRank"]


class LateRank(Result):
    """A rank whose kernel was the last of a collective to start."""

    device_id: int = Field(ge=0, description="Its device.")
    tenant_id: int = Field(description="Its tenant.")
    waits: int = Field(ge=1, description="Collective kernels that waited for it.")
    waited_ns: int = Field(ge=0, description="From their starts until its kernels started, ns.")
    longest_ns: int = Field(ge=0, description="The longest of these waits, ns.")
    busy_ns: int = Field(
        ge=0, description="Of waited_ns, the time in which other work of it was in flight on its device, ns."
    )


class CollectiveWaits(Result):
    """Waits of the collective kernels of a rank, such as those of NCCL, for ranks on other devices; inferred.

    Source: kernels of the same name on other devices that were in flight at the same time and ended within 50 us: the
    kernels of one collective end together. No record says which kernels belong together.
    """

    kernel: Text = Field(description="Kernel name with most waiting. Hostile text.")
    collectives: int = Field(ge=1, description="Collective kernels of this rank that have such a partner.")
    time_ns: int = Field(ge=0, description="Sum of their durations, ns.")
    ends_ns: int = Field(ge=0, description="Largest difference of the ends of partners, ns.")
    waits: int = Field(ge=0, description="Those that started more than 50 us before the last of their partners.")
    waited_ns: int = Field(ge=0, description="From the starts of these until the last of their partners started, ns.")
    late: list[LateRank] = Field(description="The ranks that started last, most waiting first.")
