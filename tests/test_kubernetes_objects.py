"""What is printed for a cluster, held against the schemas of Kubernetes and the structure of NVIDIA's own objects.

The schemas of Kubernetes come with the package kubernetes-validate, strict: an unknown field is an error. NVIDIA publishes
none for the device plugin, mig-parted, and the parameters of its DRA driver: their structure stands here, as documented.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import cluster
import jsonschema
import pytest
import yaml
from command_line import run

import pyanalyze
from pyanalyze.analysis.advice import kubernetes
from pyanalyze.record.manifest import pod_manifest

schemas = pytest.importorskip("kubernetes_validate", reason="make installs kubernetes-validate")

ROOT = Path(__file__).parents[1]
#: Every supported version that has the API of claims in the form that is printed, and an older one without it.
VERSIONS = ("1.34", "1.36")
OLD = "1.28"

_RESOURCES = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "replicas"],
        "properties": {
            "name": {"type": "string", "pattern": r"^nvidia\.com/"},
            "rename": {"type": "string"},
            "devices": {"oneOf": [{"const": "all"}, {"type": "integer"}, {"type": "array"}]},
            "replicas": {"type": "integer", "minimum": 2},
        },
    },
}
_SHARING = {
    "type": "object",
    "additionalProperties": False,
    "required": ["resources"],
    "properties": {
        "renameByDefault": {"type": "boolean"},
        "failRequestsGreaterThanOne": {"type": "boolean"},
        "resources": _RESOURCES,
    },
}
#: The file of the device plugin, version v1.
PLUGIN = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "sharing"],
    "properties": {
        "version": {"const": "v1"},
        "flags": {"type": "object"},
        "resources": {"type": "object"},
        # One strategy: the plugin refuses two.
        "sharing": {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
            "properties": {"timeSlicing": _SHARING, "mps": _SHARING},
        },
    },
}
#: The file of mig-parted, version v1.
PARTED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "mig-configs"],
    "properties": {
        "version": {"const": "v1"},
        "mig-configs": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["devices", "mig-enabled"],
                    "properties": {
                        "device-filter": {},
                        "devices": {"oneOf": [{"const": "all"}, {"type": "array", "items": {"type": "integer"}}]},
                        "mig-enabled": {"type": "boolean"},
                        "mig-devices": {
                            "type": "object",
                            "propertyNames": {"pattern": r"^(\d+c\.)?\d+g\.\d+gb([+-](me|gfx)(\.all)?)?$"},
                            "additionalProperties": {"type": "integer", "minimum": 1},
                        },
                    },
                },
            },
        },
    },
}
#: Parameters of a claim, resource.nvidia.com/v1beta1.
GPU_CONFIG = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "sharing"],
    "properties": {
        "apiVersion": {"const": "resource.nvidia.com/v1beta1"},
        "kind": {"const": "GpuConfig"},
        "sharing": {
            "oneOf": [
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["strategy"],
                    "properties": {
                        "strategy": {"const": "TimeSlicing"},
                        "timeSlicingConfig": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {"interval": {"enum": ["Default", "Short", "Medium", "Long"]}},
                        },
                    },
                },
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["strategy"],
                    "properties": {
                        "strategy": {"const": "MPS"},
                        "mpsConfig": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "defaultActiveThreadPercentage": {"type": "integer", "minimum": 1, "maximum": 100},
                                "defaultPinnedDeviceMemoryLimit": {"type": "string"},
                                "defaultPerDevicePinnedMemoryLimit": {"type": "object"},
                            },
                        },
                    },
                },
            ]
        },
    },
}
#: What the advice changes of the operator's policy, nvidia.com/v1.
POLICY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "devicePlugin": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "config": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["name"],
                            "properties": {"name": {"type": "string"}, "default": {"type": "string"}},
                        }
                    },
                },
                "migManager": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "config": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["name"],
                            "properties": {"name": {"type": "string"}},
                        }
                    },
                },
                "mig": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"strategy": {"enum": ["none", "single", "mixed"]}},
                },
            },
        }
    },
}
#: Values of labels, and keys of config maps.
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def valid(thing: dict[str, Any], *versions: str) -> None:
    for version in versions or VERSIONS:
        schemas.validate(thing, version, strict=True)


def workload(kind: str) -> dict[str, Any]:
    """An object that makes pods."""
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
    }
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "a"
    if kind == "Job":
        spec = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": "ml"}, "spec": spec}


def merged(into: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(into) if isinstance(into, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


def calls(line: str, folder: Path) -> list[list[str]]:
    """Arguments of each call of a command line, and its standard input, where every program only writes them down."""
    stand_in = folder / "bin"
    stand_in.mkdir(exist_ok=True)
    for name in ("kubectl", "helm", "pyanalyze"):
        file = stand_in / name
        file.write_text(
            '#!/bin/sh\nprintf "%s\\0" "$(basename "$0")" "$@" >> "$CALLS"; cat >> "$CALLS"; printf "\\n\\n" >> "$CALLS"\n'
        )
        file.chmod(0o755)
    record = folder / "calls"
    record.write_bytes(b"")
    environment = {"PATH": f"{stand_in}:/usr/bin:/bin", "CALLS": str(record)}
    subprocess.run(["bash", "-euc", line], env=environment, check=True, stdin=subprocess.DEVNULL, cwd=folder)
    return [call.decode().split("\0") for call in record.read_bytes().split(b"\n\n") if call.strip()]


def check_call(words: list[str], folder: Path) -> str | None:
    """Hold the object or patch of one call against its schema; its kind, or None where the call has none."""
    *arguments, given = words
    if arguments[:3] == ["kubectl", "create", "configmap"]:
        (literal,) = (word for word in arguments if word.startswith("--from-literal="))
        key, _, text = literal.removeprefix("--from-literal=").partition("=")
        namespace = arguments[arguments.index("-n") + 1]
        name = next(word for word in arguments[3:] if not word.startswith("-") and word != namespace)
        valid({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {key: text}}, OLD)  # fmt: skip
        config = yaml.safe_load(text)
        jsonschema.validate(config, PARTED if "mig-configs" in config else PLUGIN)
        # The label of a node names the configuration by its key.
        assert "mig-configs" in config or LABEL.fullmatch(key)
        return "ConfigMap"
    if arguments[:2] == ["kubectl", "patch"]:
        patch = json.loads(arguments[-1])
        if "clusterpolicies" in " ".join(arguments):
            if isinstance(patch, dict):
                jsonschema.validate(patch, POLICY)
            return "ClusterPolicy"
        target = next(word for word in arguments[2:] if "/" in word)
        kind = {"deployment": "Deployment", "statefulset": "StatefulSet", "job": "Job"}[target.partition("/")[0]]
        valid(merged(workload(kind), patch), OLD, *VERSIONS)
        return kind
    if arguments[:2] == ["kubectl", "apply"]:
        made = json.loads(given)
        valid(made)
        for one in made["spec"]["devices"]["config"]:
            jsonschema.validate(one["opaque"]["parameters"], GPU_CONFIG)
        return str(made["kind"])
    if arguments[:2] == ["kubectl", "label"]:
        value = arguments[4].partition("=")[2]
        assert LABEL.fullmatch(value)
        assert len(value) <= 63
    return None


@pytest.mark.parametrize("name", ["pods-time-slicing", "pods-mps", "pods-mig-mixed", "claims"])
def test_everything_advised_for_a_cluster_is_valid(name: str, tmp_path: Path) -> None:
    kinds: set[str | None] = set()
    for seed in range(2):
        case = cluster.make(name, seed, tmp_path / str(seed))
        report = pyanalyze.load(samples=case.samples, context=case.context).report()
        for action in [one for device in report.devices for one in device.advice]:
            # What changes something has a way back; the others only read.
            if action.undo is None:
                continue
            for line in [*action.commands, action.undo]:
                kinds |= {check_call(words, tmp_path) for words in calls(line, tmp_path)}
    assert {"ConfigMap", "ClusterPolicy"} <= kinds
    if name == "claims":
        assert "ResourceClaim" in kinds


def test_pods_kept_apart_are_valid_workloads_and_the_undo_gives_them_back(tmp_path: Path) -> None:
    seen = set()
    for seed in range(6):
        case = cluster.make("pods-mps", seed, tmp_path / str(seed))
        report = pyanalyze.load(samples=case.samples, context=case.context).report()
        found = [one for device in report.devices for one in device.advice if one.action.startswith("Separate")]
        for action in found:
            for line, back in zip(action.commands, (action.undo or "").split("; "), strict=True):
                (words,), (undo,) = calls(line, tmp_path), calls(back, tmp_path)
                kind = str(check_call(words, tmp_path))
                whole = workload(kind)
                whole["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
                changed = merged(copy.deepcopy(whole), json.loads(words[-2]))
                assert changed != whole
                given_back = merged(changed, json.loads(undo[-2]))
                # An empty mapping is what the API server leaves away.
                given_back["spec"]["template"]["spec"] = {
                    key: value for key, value in given_back["spec"]["template"]["spec"].items() if value != {}
                }
                assert given_back == whole
                seen.add(kind)
    assert {"Deployment", "StatefulSet"} <= seen


@pytest.mark.parametrize(
    "lines", [kubernetes.time_slicing(4), kubernetes.mps(3), kubernetes.mig(["3g.20gb", "2g.10gb"])]
)
def test_files_advised_for_a_capture_are_valid(lines: tuple[str, ...]) -> None:
    config = yaml.safe_load(lines[0].partition(": ")[2])
    jsonschema.validate(config, PARTED if "mig-configs" in config else PLUGIN)
    for line in lines[1:]:
        for part in line.split(" && "):
            words = shlex.split(part.partition("   #")[0])
            if words[:2] == ["kubectl", "patch"]:
                jsonschema.validate(json.loads(words[-1]), POLICY)


@pytest.mark.parametrize("name", ["record-samples", "record-nsys"])
def test_pods_that_record_are_valid(name: str) -> None:
    valid(
        yaml.safe_load((ROOT / "packaging" / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8")), OLD, *VERSIONS
    )


@pytest.mark.parametrize("nsys", [False, True])
def test_the_manifest_that_record_prints_is_valid(nsys: bool) -> None:
    valid(yaml.safe_load(pod_manifest("gpu-7", "registry.example/a:1", nsys=nsys)), OLD, *VERSIONS)
    options = ["--nsys"] if nsys else []
    printed = run("record", "--manifest", "gpu-7", "--image", "registry.example/a:1", *options)
    assert printed.returncode == 0, printed.stderr
    valid(yaml.safe_load(printed.stdout), OLD, *VERSIONS)


@pytest.mark.parametrize("name", cluster.scenario_names())
def test_objects_of_the_fixtures_are_what_kubernetes_serves(name: str, tmp_path: Path) -> None:
    node = cluster.make(name, 1, tmp_path).node
    for thing in cluster.kubernetes_objects(node):
        valid(thing)
    if node.boards[0].sharing:
        jsonschema.validate(yaml.safe_load(cluster.plugin(node, "file")), PLUGIN)
        valid(yaml.safe_load(cluster.plugin(node, "map")))
    if node.boards[0].instances:
        jsonschema.validate(yaml.safe_load(cluster.mig_parted(node)), PARTED)


def test_the_schemas_reject_what_is_wrong() -> None:
    wrong = yaml.safe_load(pod_manifest("gpu-7", "registry.example/a:1"))
    wrong["spec"]["hostPid"] = True
    with pytest.raises(schemas.ValidationError):
        valid(wrong, OLD)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": "v1", "sharing": {"mps": {"resources": []}}}, PLUGIN)
