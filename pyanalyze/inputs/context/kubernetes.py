"""Objects of `kubectl get -o json|yaml`: nodes, pods, config maps, policies, claims. Who was given what of which GPU?

Objects are full of secrets (environment, annotations, config data), so everything is by allow-list: labels and
resources of NVIDIA, the variables of the recorder with values that are one plain word, and configurations of
the device plugin and of mig-parted. Annotations, commands and arguments are never looked at. Nodes stand as hashes.

Keys: `k8s_node` (labels: `node=... sharing=time-slicing replicas=4 mig_config=all-1g.10gb ...`), `k8s_resource`
(`node=... resource=nvidia.com/gpu.shared capacity=4 allocatable=4`), `k8s_sharing` (as in a device-plugin
configuration, with `config=` where a config map holds several), `k8s_pod` (`pod=namespace/name node=...
container=main resource=nvidia.com/gpu count=1`; with `phase=` where the pod holds none), `k8s_owner` (`pod=...
owner=StatefulSet/train`, or `none`), `k8s_env` (`pod=... container=... CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50`),
`k8s_claim` (`claim=namespace/name
device=gpu-0 pods=...`), `k8s_request` (`claim=namespace/name class=mig.nvidia.com count=1`), `k8s_device` (`node=...
device=gpu-0 uuid=GPU-... profile=1g.10gb`: what a driver offers for claims), `k8s_policy` (`config=any`: what
the GPU operator applies to nodes without a label of their own, of a config map with several).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyanalyze.inputs.context import device_plugin, mig_parted
from pyanalyze.inputs.context.base import Reader, Row, documents, mapping, once, plain
from pyanalyze.text.allowlist import has_shape, host_hash, is_allowed
from pyanalyze.text.pairs import NO_OWNER, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Labels of a node that are read, and what they are called in a row.
LABELS = {
    "nvidia.com/gpu.product": "product",
    "nvidia.com/gpu.count": "gpus",
    "nvidia.com/gpu.memory": "memory_mib",
    "nvidia.com/gpu.sharing-strategy": "sharing",
    "nvidia.com/gpu.replicas": "replicas",
    "nvidia.com/mps.capable": "mps_capable",
    "nvidia.com/mig.capable": "mig_capable",
    "nvidia.com/mig.strategy": "mig_strategy",
    "nvidia.com/mig.config": "mig_config",
    "nvidia.com/mig.config.state": "mig_config_state",
    "nvidia.com/device-plugin.config": "plugin_config",
    "nvidia.com/vgpu.present": "vgpu",
    "cloud.google.com/gke-gpu-sharing-strategy": "gke_sharing",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "gke_clients",
    "cloud.google.com/gke-gpu-partition-size": "gke_partition",
}
_RESOURCE = re.compile(r"(?:nvidia\.com|volcano\.sh|aliyun\.com)/[A-Za-z0-9._-]+")
_OBJECT = re.compile(r"^[ \t]*\{", re.MULTILINE)
#: The first line of an object that kubectl wrote as YAML: keys stand in the order of the alphabet, but in files that
#: people wrote.
_YAML_OBJECT = re.compile(r"^(?:apiVersion|items|kind):", re.MULTILINE)
#: Strategies for sharing: the word of dynamic resource allocation, and that of the device plugin, which rows hold.
_STRATEGIES = {"TimeSlicing": "time-slicing", "MPS": "mps"}
#: Phases of pods whose devices are free again.
_ENDED = ("Succeeded", "Failed")
#: Deeper than Kubernetes nests lists of lists.
_MAX_DEPTH = 4


@lru_cache(maxsize=1)
def _objects(text: str) -> list[dict[str, Any]]:
    """Objects of the API in a text that may hold several answers of kubectl, one after the other."""
    if '"apiVersion"' not in text or '"kind"' not in text:
        return _yaml_objects(text)
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    at = 0
    while begin := _OBJECT.search(text, at):
        try:
            value, at = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            at = begin.end()
            continue
        found.extend(_flat(value, 0))
    return found


def _yaml_objects(text: str) -> list[dict[str, Any]]:
    """Objects in YAML: the text from the first of them on, so that a prompt may stand before it."""
    begin = None if "apiVersion:" not in text else _YAML_OBJECT.search(text)
    if begin is None:
        return []
    return [item for document in documents(text[begin.start() :], "kind:") for item in _flat(document, 0)]


def _flat(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        items = value.get("items")
        if str(value.get("kind", "")).endswith("List") and isinstance(items, list) and depth < _MAX_DEPTH:
            for item in items:
                yield from _flat(item, depth + 1)
        elif str(value.get("kind")) in _KINDS:
            yield value


def _dict(value: Any, *path: str) -> dict[str, Any]:
    for name in path:
        value = mapping(value).get(name)
    return mapping(value)


def _list(value: Any, *path: str) -> list[Any]:
    found = _dict(value, *path[:-1]).get(path[-1])
    return found if isinstance(found, list) else []


def _host(name: object) -> str | None:
    return host_hash(name) if isinstance(name, str) and name else None


def _name(item: dict[str, Any]) -> str | None:
    meta = _dict(item, "metadata")
    name, namespace = plain(meta.get("name")), plain(meta.get("namespace"))
    return f"{namespace}/{name}" if namespace and name else name


def _node(item: dict[str, Any]) -> Iterator[Row]:
    node = _host(_dict(item, "metadata").get("name"))
    labels = _dict(item, "metadata", "labels")
    fields = {short: plain(labels.get(label)) for label, short in LABELS.items()}
    if any(value is not None for value in fields.values()):
        yield Row("k8s_node", pairs(node=node, **fields))
    strategy = fields["sharing"] or fields["gke_sharing"]
    if strategy in _STRATEGIES.values():
        yield Row(
            "k8s_sharing",
            pairs(strategy=strategy, replicas=fields["replicas"] or fields["gke_clients"], node=node),
        )
    capacity, allocatable = _dict(item, "status", "capacity"), _dict(item, "status", "allocatable")
    for name in sorted({*capacity, *allocatable}):
        if _RESOURCE.fullmatch(name):
            value = pairs(
                node=node, resource=name, capacity=plain(capacity.get(name)), allocatable=plain(allocatable.get(name))
            )
            yield Row("k8s_resource", value)


def _phase(item: dict[str, Any]) -> str | None:
    """The phase of a pod that holds no device: it has ended, or is on no node yet. None: it may hold one."""
    phase = plain(_dict(item, "status").get("phase"))
    waits = phase == "Pending" and not _dict(item, "spec").get("nodeName")
    return phase if phase in _ENDED or waits else None


def _pod(item: dict[str, Any]) -> Iterator[Row]:
    pod, node = _name(item), _host(_dict(item, "spec").get("nodeName"))
    phase = _phase(item)
    owners = _list(item, "metadata", "ownerReferences")
    if not owners:
        yield Row("k8s_owner", pairs(pod=pod, owner=NO_OWNER))
    for owner in owners[:1]:
        kind, name = plain(_dict(owner).get("kind")), plain(_dict(owner).get("name"))
        if kind is not None and name is not None:
            yield Row("k8s_owner", pairs(pod=pod, owner=f"{kind}/{name}"))
    for container in [*_list(item, "spec", "initContainers"), *_list(item, "spec", "containers")]:
        name = plain(_dict(container).get("name"))
        limits = {**_dict(container, "resources", "requests"), **_dict(container, "resources", "limits")}
        for resource in sorted(limits):
            if _RESOURCE.fullmatch(resource):
                count = plain(limits[resource])
                asked = pairs(pod=pod, node=node, container=name, resource=resource, count=count, phase=phase)
                yield Row("k8s_pod", asked)
        for claim in _list(container, "resources", "claims"):
            wanted = plain(_dict(claim).get("name"))
            yield Row("k8s_pod", pairs(pod=pod, node=node, container=name, claim=wanted, phase=phase))
        for variable in _list(container, "env"):
            # Only what stands here itself: never through a secret, a config map or a field.
            key, value = _dict(variable).get("name"), plain(_dict(variable).get("value"))
            if isinstance(key, str) and value is not None and is_allowed(key) and has_shape(key, value):
                yield Row("k8s_env", pairs(pod=pod, container=name, **{key: value}))


def _config_map(item: dict[str, Any]) -> Iterator[Row]:
    found = [
        (name, document)
        for name, text in _dict(item, "data").items()
        if isinstance(text, str)
        for document in documents(text, "sharing:", "migStrategy:", "mig-configs:")
    ]
    # A label of each node chooses among several by their names.
    several = sum(device_plugin.is_config(document) for _, document in found) > 1
    for name, document in found:
        if device_plugin.is_config(document):
            for row in device_plugin.rows(document):
                named = several and row.key == "k8s_sharing"
                yield row._replace(value=f"{row.value} {pairs(config=plain(name))}") if named else row
        elif mig_parted.is_config(document):
            yield from mig_parted.rows(document)


def _claim(item: dict[str, Any]) -> Iterator[Row]:
    claim = _name(item)
    pods = [plain(_dict(user).get("name")) for user in _list(item, "status", "reservedFor")]
    users = ",".join(name for name in pods if name is not None) or None
    for result in _list(item, "status", "allocation", "devices", "results"):
        driver, device = plain(_dict(result).get("driver")), plain(_dict(result).get("device"))
        if driver is not None and driver.endswith("nvidia.com"):
            node = _host(_dict(result).get("pool"))
            yield Row("k8s_claim", pairs(claim=claim, driver=driver, node=node, device=device, pods=users))
    for request in _list(item, "spec", "devices", "requests"):
        # Since v1beta2 what is wanted stands one level deeper.
        wanted = _dict(request, "exactly") or mapping(request)
        device_class = plain(wanted.get("deviceClassName"))
        if device_class is not None and device_class.endswith("nvidia.com"):
            count = plain(wanted.get("count"))
            yield Row("k8s_request", pairs(claim=claim, **{"class": device_class}, count=count))
    for config in _list(item, "spec", "devices", "config"):
        sharing = _dict(config, "opaque", "parameters", "sharing")
        strategy = _STRATEGIES.get(str(sharing.get("strategy")))
        if strategy is not None:
            slices, limits = _dict(sharing, "timeSlicingConfig"), _dict(sharing, "mpsConfig")
            value = pairs(
                strategy=strategy,
                claim=claim,
                interval=plain(slices.get("interval")),
                percentage=plain(limits.get("defaultActiveThreadPercentage")),
                memory=plain(limits.get("defaultPinnedDeviceMemoryLimit")),
            )
            yield Row("k8s_sharing", value)


def _slice(item: dict[str, Any]) -> Iterator[Row]:
    spec = _dict(item, "spec")
    driver = plain(spec.get("driver"))
    if driver is None or not driver.endswith("nvidia.com"):
        return
    for device in _list(item, "spec", "devices"):
        # Since v1beta2 without the level `basic`.
        attributes = _dict(device, "basic", "attributes") or _dict(device, "attributes")
        said = {name: plain(_dict(attributes, name).get("string")) for name in ("uuid", "parentUUID", "profile")}
        yield Row(
            "k8s_device",
            pairs(
                node=_host(spec.get("nodeName")),
                device=plain(_dict(device).get("name")),
                uuid=said["uuid"],
                gpu_uuid=said["parentUUID"],
                profile=said["profile"],
            ),
        )


def _policy(item: dict[str, Any]) -> Iterator[Row]:
    config = plain(_dict(item, "spec", "devicePlugin", "config").get("default"))
    if config is not None:
        yield Row("k8s_policy", pairs(config=config))


_KINDS: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "Node": _node,
    "Pod": _pod,
    "ConfigMap": _config_map,
    "ClusterPolicy": _policy,
    "ResourceClaim": _claim,
    "ResourceSlice": _slice,
}


def _sniff(text: str) -> bool:
    return bool(_objects(text))


def _read(text: str) -> list[Row]:
    return once(row for item in _objects(text) for row in _KINDS[item["kind"]](item))


READER = Reader("kubernetes", "`kubectl get node|pod|configmap|resourceclaim -o json|yaml`", _sniff, _read)
