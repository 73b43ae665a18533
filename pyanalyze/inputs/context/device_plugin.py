"""The configuration of NVIDIA's Kubernetes device plugin: into how many shares a GPU is offered, and how.

Keys: `k8s_sharing` (`strategy=time-slicing replicas=4 resource=nvidia.com/gpu`, with `gpu=` or `uuid=` where the file
names devices) and `mig_strategy` (`none`, `single`, `mixed`). Replicas of `time-slicing` are promises without a
limit; of `mps` each gets its part of the threads and memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.inputs.context.base import Reader, Row, documents, mapping, once, plain
from pyanalyze.text.pairs import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Section of the file and the strategy as we call it.
_STRATEGIES = {"timeSlicing": "time-slicing", "mps": "mps"}


def is_config(document: Any) -> bool:
    """Whether a parsed document is such a configuration.

    Examples
    --------
    >>> is_config({"version": "v1", "sharing": {"timeSlicing": {"resources": []}}}), is_config({"sharing": True})
    (True, False)
    """
    if not isinstance(document, dict):
        return False
    sharing, flags = document.get("sharing"), document.get("flags")
    shared = isinstance(sharing, dict) and any(name in sharing for name in _STRATEGIES)
    return shared or (isinstance(flags, dict) and "migStrategy" in flags)


def rows(document: Any) -> Iterator[Row]:
    """Rows of a parsed configuration.

    Examples
    --------
    >>> resource = {"name": "nvidia.com/gpu", "replicas": 4}
    >>> [row.value for row in rows({"sharing": {"mps": {"resources": [resource]}}})]
    ['strategy=mps replicas=4 resource=nvidia.com/gpu']
    """
    strategy = plain(mapping(document.get("flags")).get("migStrategy"))
    if strategy is not None:
        yield Row("mig_strategy", strategy)
    for section, name in _STRATEGIES.items():
        resources = mapping(mapping(document.get("sharing")).get(section)).get("resources")
        for resource in resources if isinstance(resources, list) else []:
            if not isinstance(resource, dict):
                continue
            replicas = resource.get("replicas")
            if not isinstance(replicas, int) or isinstance(replicas, bool):
                continue
            devices = resource.get("devices")
            for device in devices if isinstance(devices, list) and devices else [None]:
                text = plain(device)
                yield Row(
                    "k8s_sharing",
                    pairs(
                        strategy=name,
                        replicas=replicas,
                        resource=plain(resource.get("rename") or resource.get("name")),
                        gpu=text if text is not None and text.isdecimal() else None,
                        uuid=text if text is not None and text.startswith(("GPU-", "MIG-")) else None,
                    ),
                )


def _sniff(text: str) -> bool:
    return any(is_config(document) for document in documents(text, "sharing:", "migStrategy:"))


def _read(text: str) -> list[Row]:
    found = documents(text, "sharing:", "migStrategy:")
    return once(row for document in found if is_config(document) for row in rows(document))


READER = Reader("k8s-device-plugin", "the configuration of NVIDIA's Kubernetes device plugin (YAML)", _sniff, _read)
