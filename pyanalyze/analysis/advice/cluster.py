"""Advise what to change in a cluster where only samples and Kubernetes objects are known: commands that can be pasted.

Names of nodes are not kept, so each command asks the cluster for the node of a pod that the inputs name. Gains cannot
be forecast without a trace of the launches: each action says what to record.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import kubernetes
from pyanalyze.analysis.advice.mig import Need, family_of, place
from pyanalyze.results.advice import Advice
from pyanalyze.text import format as fmt
from pyanalyze.text.pairs import NO_OWNER, parse_pairs
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyanalyze.analysis.listed import Listed
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.listed import ListedTenant

#: Label of a pod that another one is kept apart from.
_APART = "gpu-apart-from"
_DRA = "nvidia-dra-driver-gpu"
#: Longest value of a label.
_LABEL = 63

__all__ = ["cluster_advice", "with_record"]


def cluster_advice(listed: Listed, verdict: Verdict, device: Mapping[str, object]) -> Iterator[Advice]:
    """Say what could be changed for the tenants that inputs list on a device, one action per alternative.

    Parameters
    ----------
    listed
        What samples and listings name.
    verdict
        Of the device; its mode is not known from samples.
    device
        Row of the table `devices`.

    Examples
    --------
    >>> from pyanalyze.analysis.listed import Listed
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA L40S", None, None, None, None, None, {}, (), {}, (), captured=False))
    >>> list(cluster_advice(Listed({0: ()}, (), {}, {}, ()), verdict, {}))
    []
    """
    tenants = [one for one in listed.by_device.get(verdict.device_id, ()) if one.computes]
    pods = list({(one.namespace, one.pod): one for one in tenants if one.pod is not None}.values())
    yield from _find_pods(tenants, pods)
    if not pods:
        return
    owners = {
        fields["pod"]: fields["owner"]
        for one in listed.general
        if one.key == "k8s_owner" and {"pod", "owner"} <= (fields := parse_pairs(one.value)).keys()
    }
    # A process may belong to one of the pods: the two are not added up.
    most = max(len(pods), sum(one.pod is None for one in tenants))
    yield from _device_plugin(pods, most, listed, verdict, device)
    if len(pods) > 1:
        if not _on_mig(listed, verdict, device):
            yield from _mig(pods, device)
        yield from _apart(pods[0], pods[1], owners)
    yield from _claims(pods, listed, verdict, device)


def record_command(pod: ListedTenant) -> str:
    """Record the node of a pod: what a forecast needs."""
    return f"pyanalyze record --manifest {_node(pod)} --nsys --image IMAGE | kubectl apply -f -"


def _record(pod: ListedTenant) -> str:
    return f"cannot be forecast from samples; record: {record_command(pod)}, then pyanalyze advise CAPTURE"


def with_record(first: Advice, listed: Listed, device_id: int) -> Advice:
    """Put the command that records the node of the tenants before those of the first action."""
    pods = [one for one in listed.by_device.get(device_id, ()) if one.pod is not None]
    if not pods:
        return first
    return first.model_copy(update={"commands": [record_command(pods[0]), *first.commands]})


def _namespace(pod: ListedTenant) -> str:
    return f"-n {shlex.quote(pod.namespace)} " if pod.namespace else ""


def _where(pod: ListedTenant) -> str:
    return f"{_namespace(pod)}{shlex.quote(pod.pod or '')}"


def _node(pod: ListedTenant) -> str:
    return f"\"$(kubectl get pod {_where(pod)} -o jsonpath='{{.spec.nodeName}}')\""


def _find_pods(tenants: Sequence[ListedTenant], pods: Sequence[ListedTenant]) -> Iterator[Advice]:
    """Pods of processes: the kubelet writes the pod's UID into the control group of each."""
    pids = [one.pid for one in tenants if one.pid is not None and one.pod is None]
    if not pids:
        return
    on_node = f" --field-selector spec.nodeName={_node(pods[0])}" if pods else ""
    columns = "UID:.metadata.uid,NAMESPACE:.metadata.namespace,POD:.metadata.name"
    uid = r"grep -oE 'pod[0-9a-f]{8}[-_0-9a-f]{28}' /proc/PID/cgroup | head -n 1 | cut -c 4- | tr _ -"
    yield Advice(
        action=f"Find the pod of {'process' if len(pids) == 1 else 'each process'} {', '.join(map(str, pids[:8]))}",
        commands=[
            f'kubectl get pods -A{on_node} -o custom-columns={columns} | grep "$({uid.replace("PID", str(pid))})"'
            "   # on the node"
            for pid in pids[:8]
        ],
        expected=None,
        bound=None,
        why="the list of GPU processes gives pids of the host; the control group of each names its pod by UID",
        undo=None,
        risk="none: it only reads",
    )


def _plugin(pods: Sequence[ListedTenant], strategy: Mode, replicas: int) -> tuple[list[str], str]:
    """Commands that make a configuration of the device plugin and choose it for the node, and those back."""
    section = {Mode.TIME_SLICING: "timeSlicing", Mode.MPS: "mps"}[strategy]
    name = f"{strategy}-{replicas}"
    resource = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    config = f"{{version: v1, sharing: {{{section}: {{resources: [{resource}]}}}}}}"
    patch = '{"spec":{"devicePlugin":{"config":{"name":"gpu-sharing"}}}}'
    node, label, file = _node(pods[0]), kubernetes.PLUGIN_LABEL, kubernetes.PLUGIN_LABEL_FILE
    return [
        kubernetes.KEEP_PLUGIN,
        kubernetes.keep_label(node, label, file),
        f"kubectl create configmap -n gpu-operator gpu-sharing --from-literal={name}='{config}'",
        f"kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge -p '{patch}'",
        f"kubectl label node {node} {label}={name} --overwrite",
    ], f"{kubernetes.label_back(node, label, file, '-')}; {kubernetes.UNDO}"


def _device_plugin(
    pods: Sequence[ListedTenant], tenants: int, listed: Listed, verdict: Verdict, device: Mapping[str, object]
) -> Iterator[Advice]:
    """Time-slicing and MPS by the device plugin, where they are not what is configured."""
    found = listed.sharing.get(verdict.device_id)
    current = None if found is None else found.strategy
    # Without replicas, or with one, the GPU is not shared yet.
    replicas = max(tenants, 2) if found is None or not found.shared or found.replicas is None else found.replicas
    on_mig = _on_mig(listed, verdict, device)
    major = device.get("compute_major")
    impossible = any(one.name == "mps_impossible" for one in verdict.evidence)
    # The device plugin refuses MPS on MIG, and MPS before Volta shares one address space.
    if (
        not (current and TRAITS[current].mps)
        and not on_mig
        and not impossible
        and not (isinstance(major, int) and major < 7)
    ):
        commands, undo = _plugin(pods, Mode.MPS, replicas)
        yield Advice(
            action=f"Share the GPU by MPS instead of {current}" if current else "Share the GPU by MPS",
            commands=commands,
            expected=_record(pods[0]),
            bound=None,
            why=f"{_now(current)}; MPS clients run at once, each limited to 1/{replicas} of threads and memory",
            undo=undo,
            exclusive=True,
            wrong_if="a tenant fills the SMs by itself: beside it a latency-bound one is slower under MPS",
            risk="the pods of the node restart; a fault of one client ends the others; each gets "
            f"1/{replicas} of the memory",
        )
    if not (current and TRAITS[current].time_sliced):
        commands, undo = _plugin(pods, Mode.TIME_SLICING, replicas)
        yield Advice(
            action=f"Share the GPU by time-slicing instead of {current}"
            if current
            else "Share the GPU by time-slicing",
            commands=commands,
            expected=_record(pods[0]),
            bound=None,
            why=f"{_now(current)}; under time-slicing each process keeps a context of its own, without a memory limit",
            undo=undo,
            exclusive=True,
            wrong_if="the tenants leave SMs free that they could use at the same time",
            risk="the pods of the node restart; no limit keeps one tenant from using all of the memory",
        )


def _now(current: Mode | None) -> str:
    return "no input says how the GPU is shared" if current is None else f"{current} is configured"


def _on_mig(listed: Listed, verdict: Verdict, device: Mapping[str, object]) -> bool:
    """Whether the device is a MIG instance, or a board that is divided into some."""
    tenants = listed.by_device.get(verdict.device_id, ())
    configured = verdict.configured is not None and TRAITS[verdict.configured].mig_instance
    return configured or device.get("mig_profile") is not None or any(one.mig for one in tenants)


def _mig(pods: Sequence[ListedTenant], device: Mapping[str, object]) -> Iterator[Advice]:
    """One MIG instance for each pod, where the board has MIG."""
    name, memory = device.get("name"), device.get("memory_bytes")
    family = family_of(name if isinstance(name, str) else None, memory if isinstance(memory, int) else None)
    if family is None:
        return
    placed = place(family, [Need(f"{p.namespace}/{p.pod}", p.memory_peak_bytes, lambda sms: 1 / sms) for p in pods])
    if placed.unplaced:
        return
    profiles = [one.profile.name for one in placed.placed.values()]
    counts = {profile: profiles.count(profile) for profile in dict.fromkeys(profiles)}
    devices = ", ".join(f'"{profile}": {n}' for profile, n in counts.items())
    strategy = "single" if len(counts) == 1 else "mixed"
    config = (
        f"{{version: v1, mig-configs: {{advised: [{{devices: all, mig-enabled: true, mig-devices: {{{devices}}}}}], "
        "all-disabled: [{devices: all, mig-enabled: false}]}}"
    )
    unknown = [p.pod for p in pods if p.memory_peak_bytes is None]
    yield Advice(
        action=f"Give each pod its own MIG instance: {', '.join(profiles)}",
        commands=list(kubernetes.set_mig(_node(pods[0]), strategy, f"--from-literal=config.yaml='{config}'")),
        expected=_record(pods[0]),
        bound=None,
        why="instances have their own SMs, memory, L2 and bandwidth"
        + (f"; the memory of {fmt.names([str(one) for one in unknown])} is not known" if unknown else ""),
        undo=kubernetes.undo_mig(_node(pods[0])),
        exclusive=True,
        wrong_if="a tenant needs more memory or SMs than its instance has",
        risk="all pods leave every GPU of the node while it is divided; pods must ask for "
        + ("nvidia.com/gpu" if strategy == "single" else " or ".join(f"nvidia.com/mig-{one}" for one in counts)),
    )


def _apart(first: ListedTenant, second: ListedTenant, owners: Mapping[str, str]) -> Iterator[Advice]:
    """Keep two pods on different nodes, by the objects that make them."""
    # Of a pod that nobody makes the label can be changed, its affinity not.
    if _without_owner(second, owners) and not _without_owner(first, owners):
        first, second = second, first
    value = (first.pod or "")[:_LABEL].rstrip("-.")
    term = {
        "labelSelector": {"matchLabels": {_APART: value}},
        "topologyKey": "kubernetes.io/hostname",
        **({"namespaces": [first.namespace]} if first.namespace != second.namespace and first.namespace else {}),
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if _without_owner(first, owners):
        name, namespace = shlex.quote(first.pod or ""), _namespace(first)
        label, unlabel = (f"kubectl label pod {name} {_APART}{end} {namespace}".rstrip() for end in (f"={value}", "-"))
    else:
        label, unlabel = (
            _patch(first, _owner(first, owners), {"metadata": {"labels": {_APART: one}}}) for one in (value, None)
        )
    if _without_owner(second, owners):
        there = f"the manifest of {_where(second)}, and create it again: nothing makes this pod"
        keep = f"# add to {there}: {json.dumps({'spec': {'affinity': affinity}})}"
        release = f"# take the affinity out of {there}"
    else:
        keep, release = (
            _patch(second, _owner(second, owners), {"spec": {"affinity": one}})
            for one in (affinity, {"podAntiAffinity": None})
        )
    yield Advice(
        action=f"Separate {first.pod} and {second.pod}: keep them on different nodes",
        commands=[label, keep],
        expected="removes all interference between the two on the GPU; by how much each gains " + _record(first),
        bound=None,
        why="both are listed on one GPU",
        undo=f"{unlabel}; {release}",
        exclusive=True,
        wrong_if="the slow tenant stays slow without the other: then sharing is not the cause",
        risk="both restart; the second stays Pending while no other node has a free GPU",
    )


def _without_owner(pod: ListedTenant, owners: Mapping[str, str]) -> bool:
    """Whether nothing makes a pod anew: there is nothing to patch."""
    return owners.get(_named(pod)) == NO_OWNER


def _named(pod: ListedTenant) -> str:
    return f"{pod.namespace}/{pod.pod}" if pod.namespace else pod.pod or ""


def _owner(pod: ListedTenant, owners: Mapping[str, str]) -> str:
    """What makes a pod, as a word of the shell; a replica set is made by a deployment of its name without the hash."""
    found = owners.get(_named(pod))
    if found is None:
        field = ".metadata.ownerReferences[0]"
        path = f"jsonpath='{{{field}.kind}}/{{{field}.name}}'"
        return f"\"$(kubectl get pod {_where(pod)} -o {path} | sed -E 's|ReplicaSet/(.*)-[^-]+|Deployment/\\1|')\""
    kind, _, name = found.partition("/")
    if kind == "ReplicaSet":
        kind, name = "Deployment", name.rpartition("-")[0] or name
    return shlex.quote(f"{kind.lower()}/{name}")


def _patch(pod: ListedTenant, target: str, template: object) -> str:
    """Change what the object that makes a pod makes."""
    body = {"spec": {"template": template}}
    return f"kubectl patch {_namespace(pod)}{target} --type merge -p {shlex.quote(json.dumps(body))}"


def _claims(
    pods: Sequence[ListedTenant], listed: Listed, verdict: Verdict, device: Mapping[str, object]
) -> Iterator[Advice]:
    """A claim that several pods share, where the cluster allocates GPUs by claims."""
    rows = [*listed.general, *listed.settings.get(verdict.device_id, ())]
    if not any(one.key in ("k8s_claim", "k8s_request", "k8s_device") for one in rows):
        return
    found = listed.sharing.get(verdict.device_id)
    on_mig = _on_mig(listed, verdict, device)
    strategies: list[tuple[str, Mode, str, dict[str, object]]] = [
        ("TimeSlicing", Mode.TIME_SLICING, "TimeSlicingSettings", {"timeSlicingConfig": {"interval": "Long"}})
    ]
    if not on_mig and not any(one.name == "mps_impossible" for one in verdict.evidence):
        percent = 100 // max(len(pods), 2)
        limits: dict[str, object] = {"mpsConfig": {"defaultActiveThreadPercentage": percent}}
        strategies.append(("MPS", Mode.MPS, "MPSSupport", limits))
    namespace = pods[0].namespace or "default"
    for strategy, mode, gate, more in strategies:
        if found is not None and found.strategy == mode:
            continue
        parameters = {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "GpuConfig",
            "sharing": {"strategy": strategy, **more},
        }
        opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "shared-gpu", "namespace": namespace},
            "spec": {
                "devices": {
                    "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
                    "config": [{"requests": ["gpu"], "opaque": opaque}],
                }
            },
        }
        yield Advice(
            action=f"Share one claim by {mode}",
            commands=[
                f"helm upgrade {_DRA} nvidia/{_DRA} -n {_DRA} --reuse-values --set featureGates.{gate}=true",
                f"kubectl apply -f - <<< {shlex.quote(json.dumps(claim))}",
            ],
            expected=_record(pods[0]),
            bound=None,
            why=f"the cluster allocates GPUs by claims; {gate} is an alpha feature gate and off by default",
            undo=f"kubectl delete resourceclaim -n {shlex.quote(namespace)} shared-gpu",
            exclusive=True,
            wrong_if="the driver of the cluster is older than the feature gate",
            risk="pods must name the claim in spec.resourceClaims, and restart",
        )
