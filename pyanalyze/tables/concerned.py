"""Which GPUs a setting of a whole cluster or of one MPS daemon concerns: its file names nodes and pids, not devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyanalyze.text.numbers import bounded_int
from pyanalyze.text.pairs import parse_pairs
from pyanalyze.vocabulary import MPS_CLIENT, MPS_CUT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Concerned", "Machine", "Node", "nodes_of"]

#: Readers of what one MPS daemon says: of several GPUs of a machine it serves those on which its clients are.
_DAEMON_SOURCES = ("mps-log", "mps-control")
#: What a label adds to the name of a product, as GPU feature discovery writes it.
_ADDED = re.compile(r"-MIG-.*$|-SHARED$")
#: What tells two nodes of one product apart, as far as sharing goes: their names and sizes do not.
_NO_SETTING = ("node", "product", "gpus", "memory_mib")


@dataclass(frozen=True)
class Node:
    """A node that Kubernetes objects name.

    Attributes
    ----------
    name
        Hash of its name.
    product
        Its label `nvidia.com/gpu.product`; None: no label was given.
    gpus
        How many GPUs its label says; None: it says none.
    rows
        Keys and properties of what the objects say of it alone.
    """

    name: str
    product: str | None
    gpus: int | None
    rows: tuple[tuple[str, Mapping[str, str]], ...]

    @property
    def settings(self) -> frozenset[tuple[str, str, str]]:
        """How it is set up to share; two nodes with equal settings need not be told apart."""
        kept = (key for key in ("k8s_node", "k8s_sharing"))
        return frozenset(
            (key, name, value)
            for key in kept
            for one, fields in self.rows
            if one == key
            for name, value in fields.items()
            if name not in _NO_SETTING
        )

    def may_have(self, gpu: str | None) -> bool:
        """Whether a GPU of that name may be one of its own; what is not known excludes nothing.

        Examples
        --------
        >>> node = Node("n", "NVIDIA-L40S-SHARED", 1, ())
        >>> node.may_have("NVIDIA L40S"), node.may_have("NVIDIA H100 80GB HBM3"), node.may_have(None)
        (True, False, True)
        """
        return gpu is None or self.product is None or _words(gpu) == _words(_unmarked(self.product))


def _unmarked(product: str) -> str:
    while (shorter := _ADDED.sub("", product)) != product:
        product = shorter
    return product


def _words(name: str) -> list[str]:
    """The name of a product in comparable words: an instance has its board's, and older drivers leave out the maker."""
    board = name.partition(" MIG ")[0]
    return [word for word in re.split(r"[^a-z0-9.]+", board.lower()) if word and word != "nvidia"]


def nodes_of(settings: Iterable[tuple[str, str]]) -> dict[str, Node]:
    """Collect the nodes that Kubernetes objects name, by the hash of their name.

    Parameters
    ----------
    settings
        Keys and values of rows of `configured`.

    Examples
    --------
    >>> nodes_of([("k8s_node", "node=n1 product=NVIDIA-L40S gpus=2")])["n1"].gpus
    2
    """
    rows: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for key, value in settings:
        if key.startswith("k8s_") and "node" in (fields := parse_pairs(value)):
            rows.setdefault(fields["node"], []).append((key, fields))
    labels = {name: {k: v for key, of in own if key == "k8s_node" for k, v in of.items()} for name, own in rows.items()}
    return {
        name: Node(name, labels[name].get("product"), bounded_int(labels[name].get("gpus", ""), 1, 1 << 10), tuple(own))
        for name, own in rows.items()
    }


@dataclass(frozen=True)
class Machine:
    """What is known of a device that tells which settings concern it.

    Attributes
    ----------
    name, uuids
        Name of the product; UUIDs of the device and of its board.
    host
        Hash of the host name; None: not recorded.
    pods
        Pods that samples or a recording name on it, `namespace/name`.
    processes
        Pid, type and name of the processes that samples list on it; None: no list.
    """

    name: str | None = None
    uuids: frozenset[str] = frozenset()
    host: str | None = None
    pods: frozenset[str] = frozenset()
    processes: Sequence[tuple[int, str | None, str]] | None = None


@dataclass(frozen=True)
class Concerned:
    """Decides which settings concern which device.

    Attributes
    ----------
    nodes
        The nodes that the objects name.
    candidates
        By device id: the nodes that it may be a GPU of.
    served
        By device id: whether the MPS daemon of the logs serves it; None: lists of processes do not tell.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    candidates: Mapping[int, tuple[Node, ...]] = field(default_factory=dict)
    served: Mapping[int, bool | None] = field(default_factory=dict)
    _nodes_of_pods: Mapping[str, str] = field(default_factory=dict)
    _nodes_of_claims: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], machines: Mapping[int, Machine]) -> Concerned:
        """Find which nodes a device may belong to, and which devices an MPS daemon serves.

        Parameters
        ----------
        rows
            Rows of `configured`.
        machines
            What is known of each device, by its id.

        Examples
        --------
        >>> row = {"source": "kubernetes", "pid": None, "key": "k8s_sharing", "value": "strategy=mps node=n1"}
        >>> node = {**row, "key": "k8s_node", "value": "node=n1 product=NVIDIA-L40S"}
        >>> found = Concerned.of([node, row], {0: Machine("NVIDIA L40S"), 1: Machine("Tesla T4")})
        >>> found.concerns(row, 0), found.concerns(row, 1)
        (True, False)
        """
        said = [(str(row["key"]), row["value"]) for row in rows]
        nodes = nodes_of(said)
        fields = [(key, parse_pairs(value)) for key, value in said if key.startswith("k8s_")]
        pods = {f["pod"]: f["node"] for key, f in fields if key == "k8s_pod" and {"pod", "node"} <= f.keys()}
        claims = {f["claim"]: f["node"] for key, f in fields if key == "k8s_claim" and {"claim", "node"} <= f.keys()}
        uuids = {f["uuid"]: f["node"] for key, f in fields if key == "k8s_device" and {"uuid", "node"} <= f.keys()}
        candidates = {number: _candidates(machine, nodes, pods, uuids) for number, machine in machines.items()}
        return cls(nodes, candidates, _served(rows, machines), pods, claims)

    def concerns(self, row: Mapping[str, Any], device_id: int) -> bool:
        """Whether a setting that names no GPU concerns a device."""
        if str(row["source"]) in _DAEMON_SOURCES:
            return self.served.get(device_id) is not False
        key = str(row["key"])
        if not self.nodes or not key.startswith("k8s_"):
            return True
        settled = self.settled(device_id)
        fields = parse_pairs(row["value"])
        node = fields.get("node") or self._nodes_of_pods.get(fields.get("pod", ""))
        node = node or self._nodes_of_claims.get(fields.get("claim", ""))
        if node is not None:
            return any(one.name == node for one in settled)
        # What the cluster says of sharing holds for its nodes.
        return bool(settled) or key != "k8s_sharing"

    def settled(self, device_id: int) -> tuple[Node, ...]:
        """Return the node of a device, or several that are set up alike; none: they are not, or it is of none."""
        found = self.candidates.get(device_id, ())
        return found if len({node.settings for node in found}) < 2 else ()

    def may_be_of(self, device_id: int, node: str) -> bool:
        """Whether a device may be a GPU of a node, by the hash of its name."""
        return any(one.name == node for one in self.candidates.get(device_id, ()))

    def other_nodes(self, device_id: int) -> tuple[Node, ...]:
        """Return the nodes whose settings are not applied to a device: it is of none, or of which is not known."""
        if not self.nodes or self.settled(device_id):
            return ()
        return self.candidates.get(device_id, ()) or tuple(self.nodes.values())


def _candidates(
    machine: Machine, nodes: Mapping[str, Node], pods: Mapping[str, str], uuids: Mapping[str, str]
) -> tuple[Node, ...]:
    """Nodes that a device may be a GPU of: by what names the one, else those that have GPUs of its product."""
    names = {uuids[uuid] for uuid in machine.uuids if uuid in uuids}
    if not names and machine.host is not None and machine.host in nodes:
        names = {machine.host}
    names = names or {pods[pod] for pod in machine.pods if pod in pods}
    if names:
        return tuple(node for name, node in nodes.items() if name in names)
    possible = tuple(node for node in nodes.values() if node.may_have(machine.name))
    # A node that only a pod names says nothing of its GPUs.
    same = tuple(node for node in possible if machine.name is not None and node.product is not None)
    return same or possible


def _served(rows: Sequence[Mapping[str, Any]], machines: Mapping[int, Machine]) -> dict[int, bool | None]:
    """Whether an MPS daemon serves each device, by the pids of its logs and the types that lists of processes give.

    Pids of a daemon in a container are others than those of the host: a list without types, in which none of them
    stands, tells nothing.
    """
    pids = {row["pid"] for row in rows if str(row["source"]) in _DAEMON_SOURCES} - {None}
    served: dict[int, bool | None] = {}
    for number, machine in machines.items():
        listed = machine.processes
        served[number] = None if not listed else any(_of_mps(one, pids) for one in listed)
    # A daemon serves GPUs of its own host: clients on another one say nothing of it.
    found = {machine.host for number, machine in machines.items() if served[number]}
    for number, machine in machines.items():
        typed = any(kind is not None for _, kind, _ in machine.processes or ())
        if not served[number] and machine.host not in found and not typed:
            served[number] = None
        elif served[number] is None and machine.host in found:
            served[number] = False
    return served


def _of_mps(process: tuple[int, str | None, str], pids: set[int]) -> bool:
    pid, kind, name = process
    return pid in pids or kind == MPS_CLIENT or MPS_CUT_NAME in name
