"""Tenants that samples and listings name, and settings that they state: nothing of it was observed in a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pyanalyze.results.model import Number, Result, Text
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.vocabulary import Basis, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Products of nodes that one sentence names.
_NODES = 2

__all__ = [
    "ConfiguredSharing",
    "ListedKind",
    "ListedNode",
    "ListedTenant",
    "SampledShare",
    "Setting",
    "WithoutGpu",
    "without_tenants",
]

ListedKind = Literal["process", "graphics", "mps-server", "mps-client", "pod", "claim"]


class SampledShare(Result):
    """A share of time; of a value that is the whole device's only bounds are known of each tenant."""

    value: Number | None = Field(description="Mean over the samples; null: only bounds are known.")
    low: Number | None = Field(description="Lower bound; null: not known.")
    high: Number | None = Field(description="Upper bound; null: not known.")
    n: int = Field(ge=1, description="Samples.")
    listed: int | None = Field(
        default=None, description="Samples that list the tenant, those without a value included; null: as many as `n`."
    )


class ListedTenant(Result):
    """A process, pod or claim that a list names on a device."""

    name: Text = Field(description="Shown name: that of the pod, else of the process.")
    kind: ListedKind = Field(
        description="What it is. MPS servers compute nothing, nor does `graphics`: type G, and on Windows C+G, which "
        "every desktop program has there."
    )
    pid: int | None = Field(description="Process id; null: no list gives one.")
    process_type: Text | None = Field(description="C, G, C+G or M+C; null: not listed.")
    namespace: Text | None = Field(description="Kubernetes namespace.")
    pod: Text | None = Field(description="Kubernetes pod.")
    container: Text | None = Field(description="Container, by name or id.")
    node: Text | None = Field(description="Hash of the node's name.")
    device_id: int | None = Field(description="Device; null: no input says which GPU it is on.")
    placed_by: Basis | None = Field(
        description="How the device is known: sampled, configured, or inferred because there is no other GPU."
    )
    mig: Text | None = Field(description="MIG instance: profile, GPU instance and compute instance.")
    requested: Text | None = Field(description="What it asked for, such as `1 nvidia.com/gpu.shared`.")
    requested_gpus: int | None = Field(
        default=None, description="How many devices of the resource for GPUs it asks for; null: none, or not known."
    )
    requested_share: Number | None = Field(
        description="Part of the device that it is limited to; null: no limit is set (time-slicing sets none)."
    )
    utilization: SampledShare | None = Field(description="Share of time in which its kernels ran; null: not sampled.")
    engines: dict[str, SampledShare] = Field(
        default={},
        description="Share of time in which it used the `encoder`, `decoder`, `jpeg` or `ofa` (optical flow) "
        "engine; those that were not sampled are left out.",
    )
    memory_mean_bytes: int | None = Field(description="Mean device memory, bytes; null: not sampled.")
    memory_peak_bytes: int | None = Field(description="Largest device memory sampled, bytes; null: not sampled.")
    memory_bound_bytes: int | None = Field(
        description="Upper bound of its memory where only the device's is known, bytes; null: not needed."
    )
    first_ns: int | None = Field(description="First sample that names it, ns from the origin; null: no times.")
    last_ns: int | None = Field(description="Last sample that names it, ns from the origin; null: no times.")
    listings: int | None = Field(
        default=None, description="How many samples with a time name it: at different times; null: no times."
    )
    sources: list[Text] = Field(description="Formats of the inputs that name it.")

    @property
    def computes(self) -> bool:
        """Whether it is a tenant of the compute engine, as far as lists can tell."""
        return self.kind not in ("graphics", "mps-server")


def without_tenants(instances: Mapping[int, Sequence[ListedTenant]], board: Sequence[ListedTenant]) -> list[int]:
    """Find the MIG instances of a board of which lists name no tenant.

    Parameters
    ----------
    instances
        What is listed on each instance.
    board
        What is listed on the board, of which no list says the instance.

    Returns
    -------
    list of int
        None where no list names a tenant of any instance, or one whose instance is not known: these lists do not tell.

    Examples
    --------
    >>> without_tenants({1: [], 2: []}, [])
    []
    """
    empty = [number for number, listed in instances.items() if not any(one.computes for one in listed)]
    tell = len(empty) < len(instances) and not any(one.computes for one in board)
    return empty if tell else []


class WithoutGpu(Result):
    """A pod that asks for a GPU and holds none."""

    namespace: Text | None = Field(description="Kubernetes namespace.")
    pod: Text = Field(description="Kubernetes pod.")
    phase: Text = Field(description="Succeeded or Failed: it has ended; Pending: it is on no node yet.")


class ConfiguredSharing(Result):
    """How the device was set up to be shared."""

    shared: bool = Field(description="A setting or a resource name says that several tenants get the device.")
    strategy: Mode | None = Field(description="By which strategy; null: nothing says so, or settings contradict.")
    replicas: int | None = Field(description="Into how many replicas it is offered; null: not said.")
    conflict: bool = Field(description="Settings that apply to it name different strategies.")
    strategies: list[Mode] = Field(default=[], description="Every strategy that they name.")
    other_nodes: list[Text] = Field(
        default=[],
        description="Products of listed nodes whose settings are not applied to it, empty text: no label; empty: none.",
    )
    candidate_nodes: int = Field(
        default=0, description="How many of these nodes may have it, where they are set up differently; 0: none may."
    )

    @property
    def nodes_text(self) -> str:
        """Why the settings of nodes are not applied, such as `the listed node has NVIDIA-L40S, not this GPU`."""
        if self.candidate_nodes:
            return f"{self.candidate_nodes} listed nodes may have this GPU and are set up differently"
        shown = [visible(one or "GPUs of unknown product", 60) for one in self.other_nodes[:_NODES]]
        more = len(self.other_nodes) - len(shown)
        shown += [f"{more} other products"] if more else []
        return f"the listed node{'s have' if len(self.other_nodes) > 1 else ' has'} {fmt.names(shown)}, not this GPU"


class ListedNode(Result):
    """A node of Kubernetes with GPUs, and the tenants on it."""

    name: Text = Field(description="Hash of its name.")
    product: Text | None = Field(description="Product of its GPUs, as its label says; null: no label.")
    gpus: int | None = Field(description="How many GPUs it has; null: not said.")
    sharing: ConfiguredSharing = Field(description="How its GPUs were set up to be shared.")
    tenants: list[ListedTenant] = Field(description="Pods that hold GPUs of it.")
    device_ids: list[int] = Field(description="Devices of this report that may be its GPUs; empty: none.")


class Setting(Result):
    """One setting of the inputs, as it stands there."""

    source: Text = Field(description="Format of the input.")
    key: Text = Field(description="Property.")
    value: Text = Field(description="Value.")
    pid: int | None = Field(description="Process that it concerns; null: none.")
