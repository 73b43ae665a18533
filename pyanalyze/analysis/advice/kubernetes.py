"""Which settings of NVIDIA's Kubernetes device plugin and GPU operator correspond to an option?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.analysis.advice.options import Option

_APPLY = (
    "kubectl create configmap -n gpu-operator gpu-sharing --from-file=config=sharing.yaml && "
    "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge "
    '-p \'{"spec":{"devicePlugin":{"config":{"name":"gpu-sharing","default":"config"}}}}\''
)
#: A configuration of one's own takes the place of the operator's: without this configuration there is no way back.
_WHOLE = "all-disabled: [{devices: all, mig-enabled: false}]"
_APPLY_MIG = (
    "kubectl create configmap -n gpu-operator advised-mig --from-file=config.yaml && "
    "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge "
    '-p \'{"spec":{"migManager":{"config":{"name":"advised-mig"}}}}\''
)
#: Takes a device-plugin configuration back.
UNDO = (
    "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge "
    '-p \'{"spec":{"devicePlugin":{"config":{"name":"","default":""}}}}\' && '
    "kubectl delete configmap -n gpu-operator gpu-sharing"
)
#: Takes a MIG configuration back.
UNDO_MIG = (
    "kubectl label node NODE nvidia.com/mig.config=all-disabled --overwrite && "
    "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge "
    '-p \'{"spec":{"migManager":{"config":{"name":"default-mig-parted-config"}}}}\' && '
    "kubectl delete configmap -n gpu-operator advised-mig"
)


def makes(option: Option) -> bool:
    """Whether the device plugin or the MIG manager makes it: of the ways under MPS, equal caps alone.

    Examples
    --------
    >>> from pyanalyze.analysis.advice import Option
    >>> from pyanalyze.analysis.advice.forecast import side_by_side, time_slicing
    >>> makes(Option("MPS", "mps", side_by_side(108, [0, 1]), ()))
    False
    >>> makes(Option("time-slicing", "time-slicing", time_slicing(108, [0, 1]), ()))
    True
    """
    if option.config.together:
        return option.provision is not None and option.provision.strategy == "equal"
    return True


def time_slicing(replicas: int) -> tuple[str, ...]:
    """Device-plugin configuration that time-slices pods.

    Parameters
    ----------
    replicas
        Pods that may share a GPU.

    Examples
    --------
    >>> time_slicing(2)[0]
    'sharing.yaml: {version: v1, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}}'
    """
    resource = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return (f"sharing.yaml: {{version: v1, sharing: {{timeSlicing: {{resources: [{resource}]}}}}}}", _APPLY)


def mps(replicas: int) -> tuple[str, ...]:
    """Device-plugin configuration that makes pods clients of an MPS daemon; it gives each 100/replicas per cent.

    Examples
    --------
    >>> mps(4)[0]
    'sharing.yaml: {version: v1, sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}'
    """
    resource = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return (f"sharing.yaml: {{version: v1, sharing: {{mps: {{resources: [{resource}]}}}}}}", _APPLY)


def mig(profiles: Sequence[str]) -> tuple[str, ...]:
    """MIG manager configuration, strategy, and how to install and to choose it.

    Parameters
    ----------
    profiles
        Profiles of the instances of one GPU.

    Examples
    --------
    >>> mig(["3g.20gb", "2g.10gb"])[1]
    'helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --reuse-values --set mig.strategy=mixed'
    >>> mig(["3g.20gb", "3g.20gb"])[0].partition("[")[2].partition("]")[0]
    '{devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}}'
    """
    counts = {profile: list(profiles).count(profile) for profile in dict.fromkeys(profiles)}
    devices = ", ".join(f'"{profile}": {n}' for profile, n in counts.items())
    strategy = "single" if len(counts) == 1 else "mixed"
    resource = "nvidia.com/gpu" if strategy == "single" else " and ".join(f"nvidia.com/mig-{p}" for p in counts)
    entry = f"{{devices: all, mig-enabled: true, mig-devices: {{{devices}}}}}"
    return (
        f"config.yaml: {{version: v1, mig-configs: {{advised: [{entry}], {_WHOLE}}}}}",
        f"helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --reuse-values --set mig.strategy={strategy}",
        _APPLY_MIG,
        f"kubectl label node NODE nvidia.com/mig.config=advised --overwrite   # pods then ask for {resource}",
    )
