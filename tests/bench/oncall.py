"""How much of what on-call inputs name stands in the answer, and does the answer name anything else?

Inputs are generated in the forms that real versions write: dcgm-exporter 3.x and 4.x and its first label scheme, Prometheus'
renamed labels, `kubectl get -o json|yaml`, `nvidia-smi -L`, `-q -x`, `pmon`, `--query-compute-apps`, MPS logs, device-plugin
and mig-parted configurations. Every identity (pod, container, namespace, process, pid, UUID, MIG instance, claim) and every
setting (strategy, replicas, profiles, caps) in them is known, so that both shares can be counted:

    python tests/bench/oncall.py            # prints both shares; exit 1 below the goals
    python tests/bench/oncall.py --verbose  # and what is lacking

Identities of the answer are those of the JSON report: names, pids, pods, UUIDs of `listed` tenants and devices.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import pyanalyze

#: Part of the identities and settings that must stand in the answer.
GOAL = 0.98
SCENARIOS = 40
TIME_MS = 1_781_975_119_000


@dataclass
class Case:
    """Files, and what they name."""

    samples: list[Path] = field(default_factory=list)
    context: list[Path] = field(default_factory=list)
    #: (kind, text): identities and settings that the answer must hold.
    named: set[tuple[str, str]] = field(default_factory=set)


class Maker:
    """Writes the files of one scenario."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.case = folder, random.Random(seed), Case()

    def uuid(self, prefix: str) -> str:
        word = f"{self.random.getrandbits(128):032x}"
        return f"{prefix}-{word[:8]}-{word[8:12]}-{word[12:16]}-{word[16:20]}-{word[20:]}"

    def word(self) -> str:
        return "".join(self.random.choice("abcdefghjkmnpqrstvwxz") for _ in range(6))

    def name(self, kind: str, *texts: str) -> None:
        self.case.named |= {(kind, text) for text in texts}

    def write(self, name: str, text: str, *, samples: bool) -> None:
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        (self.case.samples if samples else self.case.context).append(file)

    def pods(self, count: int) -> list[tuple[str, str, str]]:
        made = []
        for _ in range(count):
            pod = (f"team-{self.word()}", f"{self.word()}-{self.word()[:5]}", f"c-{self.word()}")
            self.name("namespace", pod[0])
            self.name("pod", pod[1])
            self.name("container", pod[2])
            made.append(pod)
        return made

    def scrape(self, uuid: str, pods: list[tuple[str, str, str]], form: str, instance: tuple[str, int] | None) -> None:
        """dcgm-exporter of one GPU, one line per pod and field."""
        self.name("uuid", uuid)
        board = f'gpu="0",UUID="{uuid}",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB"'
        if instance is not None:
            board += f',GPU_I_PROFILE="{instance[0]}",GPU_I_ID="{instance[1]}"'
            self.name("profile", instance[0])
        names = {
            "new": ("namespace", "pod", "container"),
            "exported": ("exported_namespace", "exported_pod", "exported_container"),
            "old": ("pod_namespace", "pod_name", "container_name"),
        }[form]
        own = ',namespace="gpu-operator",pod="nvidia-dcgm-exporter-x7k2p",container="x"' if form == "exported" else ""
        ratio = self.random.random()
        lines = []
        for second in range(3):
            for metric, value in (
                ("DCGM_FI_DEV_GPU_UTIL", round(100 * ratio)),
                ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", round(ratio, 3)),
                ("DCGM_FI_DEV_FB_USED", 20_000),
            ):
                for pod in pods:
                    labels = ",".join(f'{key}="{text}"' for key, text in zip(names, pod, strict=True))
                    lines.append(f"{metric}{{{board}{own},{labels}}} {value} {TIME_MS + 1000 * second}\n")
        self.write("dcgm.prom", "".join(lines), samples=True)

    def objects(self, pods: list[tuple[str, str, str]], resource: str, form: str, **labels: str) -> None:
        """Nodes and pods as kubectl writes them."""
        items: list[object] = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "worker-1", "labels": {"nvidia.com/gpu.count": "1", **labels}},
                "status": {"capacity": {resource: "4"}, "allocatable": {resource: "4"}},
            }
        ]
        items += [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {
                    "nodeName": "worker-1",
                    "containers": [{"name": container, "resources": {"limits": {resource: "1", "cpu": "4"}}}],
                },
                "status": {"phase": "Running"},
            }
            for namespace, name, container in pods
        ]
        self.name("setting", resource, *labels.values())
        whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
        text = json.dumps(whole, indent=4) if form == "json" else yaml.safe_dump(whole)
        self.write(f"objects.{form}", text, samples=False)

    def plugin(self, strategy: str, replicas: int, form: str) -> None:
        """The device plugin's configuration: the file itself, or the config map that holds it."""
        section = {"time-slicing": "timeSlicing", "mps": "mps"}[strategy]
        resources = {"resources": [{"name": "nvidia.com/gpu", "replicas": replicas}]}
        text = yaml.safe_dump({"version": "v1", "sharing": {section: resources}})
        if form == "map":
            whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plugin"}, "data": {"any": text}}
            text = yaml.safe_dump(whole)
        self.name("setting", strategy, str(replicas))
        self.write("plugin.yaml", text, samples=False)

    def processes(self, count: int) -> list[tuple[int, str]]:
        made = [(self.random.randrange(1000, 4_000_000), f"app-{self.word()}") for _ in range(count)]
        self.name("pid", *(str(pid) for pid, _ in made))
        self.name("process", *(name for _, name in made))
        return made


def kubernetes(maker: Maker) -> None:
    """Pods that share a GPU by replicas."""
    pods = maker.pods(maker.random.randint(1, 5))
    strategy = maker.random.choice(["time-slicing", "mps"])
    replicas = maker.random.randint(2, 8)
    maker.scrape(maker.uuid("GPU"), pods, maker.random.choice(["new", "exported", "old"]), None)
    labels = {"nvidia.com/gpu.sharing-strategy": strategy, "nvidia.com/gpu.replicas": str(replicas)}
    maker.objects(pods, "nvidia.com/gpu.shared", maker.random.choice(["json", "yaml"]), **labels)
    maker.plugin(strategy, replicas, maker.random.choice(["file", "map"]))


def mig(maker: Maker) -> None:
    """A pod in a MIG instance of a board that `-L` lists."""
    board = maker.uuid("GPU")
    pods = maker.pods(1)
    profiles = maker.random.choice([["3g.40gb", "2g.20gb", "1g.10gb"], ["4g.40gb", "3g.40gb"], ["7g.80gb"]])
    text = f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {board})\n"
    for number, profile in enumerate(profiles):
        uuid = maker.uuid("MIG")
        maker.name("uuid", uuid)
        maker.name("profile", profile)
        text += f"  MIG {profile:<11} Device {number:>2}: (UUID: {uuid})\n"
    maker.scrape(board, pods, "new", (profiles[0], 2))
    maker.write("list.txt", text, samples=False)
    maker.objects(pods, f"nvidia.com/mig-{profiles[0]}", "json", **{"nvidia.com/mig.strategy": "mixed"})


def processes(maker: Maker) -> None:
    """Process lists of nvidia-smi, and clients in the log of the MPS daemon."""
    uuid = maker.uuid("GPU")
    maker.name("uuid", uuid)
    made = maker.processes(maker.random.randint(2, 6))
    rows = "".join(
        f"    0 {pid:>9}     C     {20 + n}     5      -      -    {name}\n" for n, (pid, name) in enumerate(made)
    )
    head = "# gpu         pid   type     sm    mem    enc    dec    command\n# Idx           #    C/G      %      %      %      %    name\n"
    maker.write("pmon.txt", (head + rows) * 1 + rows, samples=True)
    maker.write("list.txt", f"GPU 0: NVIDIA L40S (UUID: {uuid})\n", samples=False)
    apps = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n" + "".join(
        f"2026/06/20 17:05:19.000, {uuid}, {pid}, /opt/{name}, {512 + n} MiB\n" for n, (pid, name) in enumerate(made)
    )
    maker.write("apps.csv", apps, samples=True)
    client = maker.random.randrange(1000, 4_000_000)
    maker.name("pid", str(client))
    percent = maker.random.choice([25, 50, 75])
    maker.name("setting", str(percent))
    log = (
        "[2026-01-02 03:04:05.678 Control  4000] Starting control daemon using socket /tmp/nvidia-mps/control\n"
        f"[2026-01-02 03:04:06.678 Control  4000] NEW CLIENT {client} from user 1000: Server already exists\n"
        f"[2026-01-02 03:04:06.700 Server   4001] Active Threads Percentage set to {percent}.0\n"
    )
    maker.write("control.log", log, samples=False)


def claims(maker: Maker) -> None:
    """Dynamic resource allocation: a claim that pods hold, one that waits, and the devices that are offered."""
    uuid = maker.uuid("GPU")
    pods = maker.pods(2)
    maker.scrape(uuid, pods[:1], "new", None)
    namespace = pods[0][0]
    held, waiting = f"claim-{maker.word()}", f"claim-{maker.word()}"
    maker.name("claim", held, waiting)
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}]}}
    results = [{"driver": "gpu.nvidia.com", "pool": "worker-1", "device": "gpu-0", "request": "r"}]
    users = [{"resource": "pods", "name": pods[0][1], "uid": "u"}]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    items: list[object] = [
        {**head, "metadata": {"name": held, "namespace": namespace}, "spec": spec,
         "status": {"reservedFor": users, "allocation": {"devices": {"results": results}}}},
        {**head, "metadata": {"name": waiting, "namespace": namespace}, "spec": spec},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
            "driver": "gpu.nvidia.com", "nodeName": "worker-1", "pool": {"name": "worker-1"},
            "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": uuid}}}]}},
    ]  # fmt: skip
    whole = {"apiVersion": "v1", "items": items, "kind": "List"}
    maker.write("claims.json", json.dumps(whole), samples=False)
    maker.objects(pods[1:], "nvidia.com/gpu", "json")


MAKERS = (kubernetes, mig, processes, claims)


def named_in(report: dict[str, Any]) -> set[str]:
    """Identities that an answer names."""
    tenants = [*report["listed"], *(one for device in report["devices"] for one in device["listed"])]
    found = {str(device[key]) for device in report["devices"] for key in ("uuid", "gpu_uuid") if device[key]}
    for one in tenants:
        found |= {str(one[key]) for key in ("name", "pid", "namespace", "pod", "container") if one[key] is not None}
    return found


def holds(text: str, report: dict[str, Any], found: set[str]) -> bool:
    """Whether the answer has an identity or a setting."""
    settings = [*report["settings"], *(one for device in report["devices"] for one in device["settings"])]
    return (
        text in found
        or any(text in name.split("/") for name in found)
        or any(text in one["value"].replace("=", " ").split() for one in settings)
        or any(text == (device["mig"] or {}).get("profile") for device in report["devices"])
        or any(text in str(one["requested"]) for d in report["devices"] for one in d["listed"])
        or any(text in str(one["requested"]) for one in report["listed"])
    )


def main() -> int:
    """Count, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scenarios", type=int, default=SCENARIOS)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    asked = found = 0
    absent: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.scenarios):
            place = Path(folder) / str(number)
            place.mkdir()
            maker = Maker(place, number)
            make = MAKERS[number % len(MAKERS)]
            make(maker)
            case = maker.case
            report = pyanalyze.load(samples=case.samples, context=case.context).report().to_dict()
            given = "".join(file.read_text(encoding="utf-8") for file in (*case.samples, *case.context))
            names = named_in(report)
            for kind, text in sorted(case.named):
                asked += 1
                if holds(text, report, names):
                    found += 1
                elif options.verbose:
                    print(f"{make.__name__} {number}: {kind} {text} is not in the answer")
            # "process 4711" is what a pid without a name is called, "pod/container" two of them.
            words = {part for name in names for part in name.removeprefix("process ").split("/")}
            absent += [f"{make.__name__} {number}: {word}" for word in sorted(words) if word not in given]
    share = found / asked
    print(f"identities and settings of the inputs that stand in the answer: {found} of {asked} ({100 * share:.1f} %)")
    print(f"identities in the answer that are absent from the inputs: {len(absent)}")
    for one in absent[:20]:
        print(f"  {one}")
    return 0 if share >= GOAL and not absent else 1


if __name__ == "__main__":
    sys.exit(main())
