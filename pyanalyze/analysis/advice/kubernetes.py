"""Which settings of NVIDIA's Kubernetes device plugin and GPU operator correspond to an option?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.advice.options import best_of
from pyanalyze.results.advice import Advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.analysis.advice.options import Option, Options

_POLICY = "clusterpolicies.nvidia.com/cluster-policy"


def keep(field: str, file: str, absent: str) -> str:
    """Write a field of the operator's policy to a file, once: what was set before can then be given back.

    Parameters
    ----------
    field
        Such as ``devicePlugin.config``, below ``spec``.
    file
        Name of the file, in the current directory.
    absent
        What it holds where the field is not set.

    Examples
    --------
    >>> keep("mig.strategy", "before", "single").partition(" || ")[0]
    '[ -e before ]'
    """
    query = f"kubectl get {_POLICY} -o jsonpath='{{.spec.{field}}}'"
    return f"[ -e {file} ] || {{ {query} | grep . || echo '{absent}'; }} > {file}"


def _give_back(field: str, file: str, *, word: bool = False) -> str:
    """Set a field of the policy to what :func:`keep` wrote: the whole value, so that nothing of ours stays in it."""
    value = f'\\"$(cat {file})\\"' if word else f"$(cat {file})"
    place = f"/spec/{field.replace('.', '/')}"
    patch = f'[{{\\"op\\":\\"replace\\",\\"path\\":\\"{place}\\",\\"value\\":{value}}}]'
    return f'kubectl patch {_POLICY} --type json -p "{patch}" && rm -f {file}'


def keep_label(node: str, label: str, file: str) -> str:
    r"""Write a label of a node to a file, once; empty: it has none.

    Examples
    --------
    >>> print(keep_label("n1", "nvidia.com/mig.config", "before").partition(" || ")[2])
    kubectl get node n1 -o jsonpath='{.metadata.labels.nvidia\.com/mig\.config}' > before
    """
    named = label.replace(".", "\\.")
    return f"[ -e {file} ] || kubectl get node {node} -o jsonpath='{{.metadata.labels.{named}}}' > {file}"


def label_back(node: str, label: str, file: str, absent: str) -> str:
    """Give a label of a node back; `absent`: what follows its name where it had none.

    Examples
    --------
    >>> label_back("n1", "nvidia.com/mig.config", "before", "-").split(" ", 3)[:3]
    ['kubectl', 'label', 'node']
    """
    value = f'$([ -s {file} ] && echo "=$(cat {file})" || echo {absent})'
    return f'kubectl label node {node} "{label}{value}" --overwrite && rm -f {file}'


PLUGIN_LABEL, MIG_LABEL = "nvidia.com/device-plugin.config", "nvidia.com/mig.config"
#: Files that hold what was set before.
_PLUGIN_FILE, _MIG_FILE, _STRATEGY_FILE = "device-plugin-before.json", "mig-manager-before.json", "mig-strategy-before"
PLUGIN_LABEL_FILE, MIG_LABEL_FILE = "device-plugin-label-before", "mig-label-before"
#: Keep what will be changed; the policy names no configuration until somebody sets one.
KEEP_PLUGIN = keep("devicePlugin.config", _PLUGIN_FILE, "{}")
_KEEP_MIG = (keep("migManager.config", _MIG_FILE, "{}"), keep("mig.strategy", _STRATEGY_FILE, "single"))
_APPLY = (
    "kubectl create configmap -n gpu-operator gpu-sharing --from-file=config=sharing.yaml && "
    f"kubectl patch {_POLICY} --type merge "
    '-p \'{"spec":{"devicePlugin":{"config":{"name":"gpu-sharing","default":"config"}}}}\''
)
#: A configuration of one's own takes the place of the operator's: without this configuration there is no way back.
_WHOLE = "all-disabled: [{devices: all, mig-enabled: false}]"
_CHOOSE_MIG = (
    f'kubectl patch {_POLICY} --type merge -p \'{{"spec":{{"migManager":{{"config":{{"name":"advised-mig"}}}}}}}}\''
)
#: Takes a device-plugin configuration back.
UNDO = f"{_give_back('devicePlugin.config', _PLUGIN_FILE)} && kubectl delete configmap -n gpu-operator gpu-sharing"


def undo_mig(node: str = "NODE") -> str:
    """Take a MIG configuration back: first the configurations, of which the label of before names one.

    Examples
    --------
    >>> undo_mig("n1").count("kubectl patch"), "all-disabled" in undo_mig("n1")
    (2, True)
    """
    parts = (
        _give_back("migManager.config", _MIG_FILE),
        _give_back("mig.strategy", _STRATEGY_FILE, word=True),
        label_back(node, MIG_LABEL, MIG_LABEL_FILE, "=all-disabled"),
        "kubectl delete configmap -n gpu-operator advised-mig",
    )
    return " && ".join(parts)


def set_mig(node: str, strategy: str, source: str) -> tuple[str, ...]:
    """Keep what is set, then install, choose and apply a configuration of the MIG manager.

    Parameters
    ----------
    node
        Its name.
    strategy
        ``single`` or ``mixed``: how instances are offered.
    source
        The option of ``kubectl create configmap`` that holds the configuration.
    """
    strategy_patch = f'{{"spec":{{"mig":{{"strategy":"{strategy}"}}}}}}'
    return (
        *_KEEP_MIG,
        keep_label(node, MIG_LABEL, MIG_LABEL_FILE),
        f"kubectl create configmap -n gpu-operator advised-mig {source} && {_CHOOSE_MIG}",
        f"kubectl patch {_POLICY} --type merge -p '{strategy_patch}'",
        f"kubectl label node {node} {MIG_LABEL}=advised --overwrite",
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
    return (
        f"sharing.yaml: {{version: v1, sharing: {{timeSlicing: {{resources: [{resource}]}}}}}}",
        KEEP_PLUGIN,
        _APPLY,
    )


def mps(replicas: int) -> tuple[str, ...]:
    """Device-plugin configuration that makes pods clients of an MPS daemon; it gives each 100/replicas per cent.

    Examples
    --------
    >>> mps(4)[0]
    'sharing.yaml: {version: v1, sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}'
    """
    resource = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return (f"sharing.yaml: {{version: v1, sharing: {{mps: {{resources: [{resource}]}}}}}}", KEEP_PLUGIN, _APPLY)


def mig(profiles: Sequence[str]) -> tuple[str, ...]:
    """MIG manager configuration, strategy, and how to install and to choose it.

    Parameters
    ----------
    profiles
        Profiles of the instances of one GPU.

    Examples
    --------
    >>> '"strategy":"mixed"' in mig(["3g.20gb", "2g.10gb"])[-2]
    True
    >>> mig(["3g.20gb", "3g.20gb"])[0].partition("[")[2].partition("]")[0]
    '{devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}}'
    """
    counts = {profile: list(profiles).count(profile) for profile in dict.fromkeys(profiles)}
    devices = ", ".join(f'"{profile}": {n}' for profile, n in counts.items())
    strategy = "single" if len(counts) == 1 else "mixed"
    resource = "nvidia.com/gpu" if strategy == "single" else " and ".join(f"nvidia.com/mig-{p}" for p in counts)
    entry = f"{{devices: all, mig-enabled: true, mig-devices: {{{devices}}}}}"
    *lines, last = set_mig("NODE", strategy, "--from-file=config.yaml")
    return (
        f"config.yaml: {{version: v1, mig-configs: {{advised: [{entry}], {_WHOLE}}}}}",
        *lines,
        f"{last}   # pods then ask for {resource}",
    )


def only_made(compared: Options) -> Options:
    """Leave only the configurations that Kubernetes can make, and the current one: no sentence speaks of another."""
    made = tuple(o for o in compared.options if makes(o) or o is compared.current)
    refused = tuple((option, lacks) for option, lacks in compared.refused if option in made)
    lacking = [option for option, _ in refused]
    best = best_of([option for option in made if option not in lacking], compared.current)
    return replace(compared, options=made, refused=refused, recommended=best)


def no_settings(compared: Options) -> Advice:
    """Answer who asks for settings of Kubernetes where no configuration is forecast that they could make."""
    return Advice(
        action="Settings of the device plugin are left out: no sharing configuration is forecast",
        commands=[],
        expected=None,
        bound=None,
        why=compared.why_not or "nothing can be compared",
        undo=None,
    )
