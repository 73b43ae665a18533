"""Requests and variables of pods that do not do what they look like, under the sharing that their node has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import MPS_PERCENTAGE
from pyanalyze.results.advice import Advice
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyanalyze.results.listed import ListedNode, ListedTenant

__all__ = ["without_effect"]


def without_effect(nodes: Iterable[ListedNode]) -> Iterator[Advice]:
    """Name what pods ask for without effect, node by node.

    Parameters
    ----------
    nodes
        Nodes, how each is set up to be shared, and their tenants.

    Notes
    -----
    Of several time-sliced replicas a container gets no larger share: each process with work gets equal time slices
    (NVIDIA, "Time-Slicing GPUs in Kubernetes"). Variables of MPS are read by clients of a server only.

    Examples
    --------
    >>> list(without_effect([]))
    []
    """
    for node in nodes:
        strategy = node.sharing.strategy
        if strategy is None or not TRAITS[strategy].time_sliced:
            continue
        for tenant in node.tenants:
            if (tenant.requested_gpus or 0) > 1:
                yield _replicas(tenant, tenant.requested_gpus or 0)
            if tenant.requested_share is not None:
                yield _percentage(tenant)


def _replicas(tenant: ListedTenant, replicas: int) -> Advice:
    return Advice(
        action=f"Let {tenant.name} request 1 replica instead of {replicas}",
        commands=[],
        expected=None,
        bound=None,
        why=f"its node is time-sliced: {replicas} replicas give no larger share of a GPU, and need not be of two GPUs",
        undo=None,
        risk="the pod restarts with its new request",
    )


def _percentage(tenant: ListedTenant) -> Advice:
    return Advice(
        action=f"Take {MPS_PERCENTAGE} from {tenant.name}, or share its node by MPS",
        commands=[],
        expected=None,
        bound=None,
        why="its node is time-sliced: only clients of an MPS server read the variable, so it limits nothing",
        undo=None,
        risk="none as long as the node is time-sliced",
    )
