"""What an on-call engineer has: samples, listings, kubectl output. Everything named in them stands in the answer."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import run

import pyanalyze
from pyanalyze.analysis.advice import Option, configuration, kubernetes
from pyanalyze.analysis.advice.forecast import SharingConfig, side_by_side, time_slicing
from pyanalyze.analysis.advice.options import Forecast, Options
from pyanalyze.analysis.association import _relate
from pyanalyze.analysis.sharing import Case, judge
from pyanalyze.errors import SamplesUnreadable
from pyanalyze.vocabulary import Mode

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "fixtures" / "samples"


def answer(*words: str | Path, code: int = 0) -> str:
    """Standard output and standard error of a command."""
    result = run(*words)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_that_no_reader_knows_is_named_on_the_first_screen(tmp_path: Path) -> None:
    unknown = [write(tmp_path, f"notes-{n}.txt", "hello\n") for n in range(5)]
    given: list[str | Path] = [word for file in unknown for word in ("--context", file)]
    screen = answer("--samples", SAMPLES / "pmon.txt", *given)
    assert len(screen.splitlines()) <= 15
    assert sum(line.startswith("Not read") for line in screen.splitlines()) == 4
    assert "and 2 more files" in screen
    # As a sample file too; and the whole report says it above everything else.
    assert "notes-0.txt" in answer("--samples", SAMPLES / "pmon.txt", "--samples", unknown[0])
    page = answer("report", "-f", "txt", "--samples", SAMPLES / "pmon.txt", "--context", unknown[0])
    assert page.index("notes-0.txt") < page.index("Key numbers")


@pytest.mark.parametrize("option", ["--samples", "--context"])
def test_strict_makes_an_unknown_file_unreadable(tmp_path: Path, option: str) -> None:
    unknown = write(tmp_path, "notes.txt", "hello\n")
    for verb in ("summary", "info", "classify", "report"):
        said = answer(verb, "--strict", "--samples", SAMPLES / "pmon.txt", option, unknown, code=3)
        assert "notes.txt" in said
    answer("--strict", "--samples", SAMPLES / "pmon.txt")
    with pytest.raises(SamplesUnreadable, match=r"notes\.txt"):
        pyanalyze.load(samples=[SAMPLES / "pmon.txt", unknown], strict=True)


def test_a_file_is_read_whichever_option_names_it(tmp_path: Path) -> None:
    listing = write(tmp_path, "list.txt", "GPU 0: NVIDIA L40S (UUID: GPU-00000000-0000-0000-0000-000000000001)\n")
    swapped = pyanalyze.load(samples=listing, context=SAMPLES / "pmon.txt")
    assert "samples_unread" not in swapped.quality["name"].cast(str).to_list()
    assert swapped.nvml_samples.height == 6
    assert [row["key"] for row in swapped.configured.iter_rows(named=True)] == ["gpu"]
    # A pasted terminal is both; named twice, it is read once.
    once = pyanalyze.load(samples=SAMPLES / "terminal.txt")
    twice = pyanalyze.load(samples=SAMPLES / "terminal.txt", context=SAMPLES / "terminal.txt")
    assert once.configured.equals(twice.configured)
    assert once.nvml_samples.height == twice.nvml_samples.height


GPU = "GPU-11111111-2222-3333-4444-555555555555"
BOARD = f'gpu="0",UUID="{GPU}",pci_bus_id="00000000:07:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB"'


def series(field: str, pod: str, value: float, **more: str) -> str:
    """One line of dcgm-exporter 3.x; labels that Prometheus renamed stand beside its own."""
    namespace, name, container = pod.split("/")
    labels = {"Hostname": "n1", "container": container, "namespace": namespace, "pod": name, **more}
    rest = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{field}{{{BOARD},{rest}}} {value} 1781975119000\n"


def node(**labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}


def pod(name: str, resource: str = "nvidia.com/gpu.shared", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {resource: "1"}}, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"nodeName": "n1", "containers": [container]},
    }


def kubectl(folder: Path, *items: dict[str, Any], form: str = "json") -> Path:
    """What `kubectl get ... -o json` or `-o yaml` writes of these objects."""
    many = {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"resourceVersion": ""}}
    text = json.dumps(many, indent=4) if form == "json" else yaml.safe_dump(many)
    return write(folder, f"objects.{form}", text)


REPLICAS = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
TWO = "".join(series("DCGM_FI_DEV_GPU_UTIL", f"ml/{name}/main", 68) for name in ("web-7f9c", "train-bert-0"))


def sentence(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_two_pods_on_one_uuid_share_it_and_the_strategy_says_how(tmp_path: Path, form: str) -> None:
    scrape = write(tmp_path, "dcgm.prom", TWO)
    objects = kubectl(tmp_path, node(**REPLICAS), pod("web-7f9c"), pod("train-bert-0"), form=form)
    screen = sentence(answer("--samples", scrape, "--context", objects))
    assert "train-bert-0 and web-7f9c share " + GPU + "; configured: time-slicing, 4 replicas" in screen
    assert "No tenant was seen" not in screen
    device = pyanalyze.load(samples=scrape, context=objects).report().devices[0]
    # One value of the device is a bound for each of two pods, and a share of neither.
    assert [(t.name, t.namespace, t.container) for t in device.listed] == [
        ("train-bert-0", "ml", "main"), ("web-7f9c", "ml", "main"),
    ]  # fmt: skip
    for tenant in device.listed:
        assert tenant.utilization is not None
        assert (tenant.utilization.value, tenant.utilization.low, tenant.utilization.high) == (None, 0, 0.68)
        assert tenant.requested == "1 nvidia.com/gpu.shared, one of 4 replicas"
        # Replicas of time-slicing promise nothing.
        assert tenant.requested_share is None
        assert (tenant.first_ns, tenant.last_ns, tenant.device_id, tenant.placed_by) == (0, 0, 0, "sampled")
    assert device.sharing.configured == "time-slicing"
    assert device.sharing.basis == "sampled"


def test_shared_says_shared_and_only_a_strategy_says_how(tmp_path: Path) -> None:
    scrape = write(tmp_path, "dcgm.prom", TWO)
    objects = kubectl(tmp_path, pod("web-7f9c"), pod("train-bert-0"))
    screen = sentence(answer("--samples", scrape, "--context", objects))
    assert "configured: shared; no input says by which strategy" in screen
    assert pyanalyze.load(samples=scrape, context=objects).report().devices[0].sharing.configured is None
    # MPS: each replica gets its part.
    plugin = {"sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}, "version": "v1"}
    both = kubectl(tmp_path, pod("web-7f9c"), {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plugin"}, "data": {"any": yaml.safe_dump(plugin)},
    })  # fmt: skip
    device = pyanalyze.load(samples=scrape, context=both).report().devices[0]
    assert "configured: mps, 4 replicas" in sentence(answer("--samples", scrape, "--context", both))
    assert {t.name: t.requested_share for t in device.listed} == {"web-7f9c": 0.25, "train-bert-0": None}


def test_exported_labels_are_the_workload_and_one_pod_of_a_shared_gpu_is_bounded(tmp_path: Path) -> None:
    exported = {"exported_pod": "web-7f9c", "exported_namespace": "ml", "exported_container": "main"}
    scrape = write(tmp_path, "a.prom", series("DCGM_FI_DEV_GPU_UTIL", "gpu-operator/dcgm-exporter-x/x", 68, **exported))
    alone = pyanalyze.load(samples=scrape).report().devices[0].listed
    assert [(t.namespace, t.pod, t.container) for t in alone] == [("ml", "web-7f9c", "main")]
    assert alone[0].utilization is not None
    assert alone[0].utilization.value == 0.68
    # Without virtual GPUs the exporter labels one pod of several: where replicas are configured, that is a bound.
    bounded = pyanalyze.load(samples=scrape, context=kubectl(tmp_path, node(**REPLICAS))).report().devices[0].listed[0]
    assert bounded.utilization is not None
    assert (bounded.utilization.value, bounded.utilization.high) == (None, 0.68)


PMON = """# gpu         pid   type     sm    mem    enc    dec    command
# Idx           #    C/G      %      %      %      %    name
    0       4711     C     80     20      -      -    python
    0       4712     C     10      5      -      -    worker
    0        990     G      2      1      -      -    Xorg
    0        991     G      3      1      -      -    firefox
    0       4711     C     60     20      -      -    python
    0       4712     C      -      -      -      -    worker
"""


def test_processes_are_tenants_and_desktop_programs_are_not(tmp_path: Path) -> None:
    device = pyanalyze.load(samples=write(tmp_path, "pmon.txt", PMON)).report().devices[0]
    by_pid = {t.pid: t for t in device.listed}
    assert {pid: (t.name, t.kind, t.computes) for pid, t in by_pid.items()} == {
        4711: ("python", "process", True),
        4712: ("worker", "process", True),
        990: ("Xorg", "graphics", False),
        991: ("firefox", "graphics", False),
    }
    python, worker = by_pid[4711].utilization, by_pid[4712].utilization
    assert python is not None
    assert worker is not None
    # (80 + 60) / 2; of the other one value of two, so at least half of it.
    assert (python.value, python.n) == (0.7, 2)
    assert (worker.low, worker.high, worker.n) == (0.05, 0.1, 1)
    assert device.sampled is not None
    assert device.sampled.processes == 2
    screen = sentence(answer("--samples", tmp_path / "pmon.txt"))
    assert "python and worker share device 0" in screen
    assert "Xorg" not in screen
    page = answer("report", "-f", "txt", "--samples", tmp_path / "pmon.txt")
    assert all(name in page for name in ("python", "worker", "Xorg", "firefox", "4711", "4712", "990", "991"))


@pytest.mark.parametrize(
    ("rows", "computing"),
    [
        # The driver gives a path of Windows, or the name of a Windows program.
        ("0 51 C+G - - - - C:\\Windows\\explorer.exe\n0 52 C+G - - - - dwm.exe\n0 53 C - - - - train.exe\n", {53}),
        ("0 51 C+G 9 - - - /opt/blender/blender\n0 52 G - - - - /usr/lib/xorg/Xorg\n0 53 C - - - - train\n", {51, 53}),
    ],
)
def test_compute_and_graphics_contexts_say_little_on_windows(rows: str, computing: set[int], tmp_path: Path) -> None:
    """nvidia-smi(1): C+G has compute and graphics contexts; under WDDM every desktop program is listed so."""
    head = "# gpu pid type sm mem enc dec command\n# Idx # C/G % % % % name\n"
    session = pyanalyze.load(samples=write(tmp_path, "pmon.txt", f"{head}{rows}"))
    assert {one.pid for one in session.report().devices[0].listed if one.computes} == computing
    assert {pid for pid, _, _ in session.nvml_processes(0) or ()} == computing


def test_a_board_that_draws_the_desktop_of_windows_lists_no_compute_tenants(corpus: Path) -> None:
    """The driver model is WDDM, and of the unnamed processes of type C+G it cannot be told what they do."""
    path = corpus / "samples" / "telegraf" / "plugins__inputs__nvidia_smi__testdata__tesla_p4.xml"
    text = path.read_text()
    assert "<current_dm>WDDM</current_dm>" in text
    listed = pyanalyze.load(samples=path).report().devices[0].listed
    assert text.count("<type>C+G</type>") == len(listed)
    assert not any(one.computes for one in listed)


@pytest.mark.parametrize(
    "listed",
    ["0 51 C+G - - - - C:\\Windows\\explorer.exe", "0 51 G - - - - /Xwayland", "0 51 C - - - - train.exe"],
)
def test_mps_is_no_candidate_on_windows_or_wsl2(tmp_path: Path, listed: str) -> None:
    head = "# gpu pid type sm mem enc dec command\n# Idx # C/G % % % % name\n"
    rest = "0 71 C 50 9 - - python\n0 72 C 49 9 - - python\n"
    verdict = pyanalyze.load(samples=write(tmp_path, "pmon.txt", f"{head}{listed}\n{rest}")).classify()[0]
    assert [one.mode for one in verdict.alternatives if "mps" in one.mode] == []
    linux = pyanalyze.load(samples=write(tmp_path, "linux.txt", f"{head}{rest}")).classify()[0]
    assert [one.mode for one in linux.alternatives if "mps" in one.mode] != []


MIG_XML = f"""<?xml version="1.0" ?>
<nvidia_smi_log><timestamp>Sat Jun 20 17:05:19 2026</timestamp><driver_version>580.95.05</driver_version>
<attached_gpus>1</attached_gpus><gpu id="00000000:07:00.0"><product_name>NVIDIA A100-SXM4-80GB</product_name>
<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode><mig_devices>
<mig_device><index>0</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>40192 MiB</total><used>38 MiB</used></fb_memory_usage></mig_device>
<mig_device><index>1</index><gpu_instance_id>5</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>19968 MiB</total><used>9000 MiB</used></fb_memory_usage></mig_device></mig_devices>
<uuid>{GPU}</uuid><processes><process_info><gpu_instance_id>5</gpu_instance_id>
<compute_instance_id>0</compute_instance_id><pid>4711</pid><type>C</type><process_name>/opt/serve</process_name>
<used_memory>8962 MiB</used_memory></process_info></processes></gpu></nvidia_smi_log>
"""
MIG_LIST = f"""GPU 0: NVIDIA A100-SXM4-80GB (UUID: {GPU})
  MIG 3g.40gb     Device  0: (UUID: MIG-a0000000-0000-5000-8000-000000000000)
  MIG 2g.20gb     Device  1: (UUID: MIG-a0000000-0000-5000-8000-000000000001)
"""


def test_a_board_with_mig_and_its_listing_say_the_mig_configuration(tmp_path: Path) -> None:
    given: list[str | Path] = [
        "--samples",
        write(tmp_path, "q.xml", MIG_XML),
        "--context",
        write(tmp_path, "list.txt", MIG_LIST),
    ]
    report = json.loads(answer("report", "-f", "json", *given))
    board, *instances = report["devices"]
    assert board["sharing"]["configured"] == "mig"
    # `-q` and `-L` count instances alike: index 0 is GPU instance 2.
    assert [(d["mig"]["profile"], d["mig"]["gi"], d["mig"]["ci"], d["uuid"][-1]) for d in instances] == [
        ("3g.40gb", 2, 0, "0"), ("2g.20gb", 5, 0, "1"),
    ]  # fmt: skip
    assert [(t["pid"], t["name"], t["mig"]) for t in instances[1]["listed"]] == [(4711, "serve", "2g.20gb, GI 5, CI 0")]
    screen = sentence(answer(*given))
    assert "MIG instance 2g.20gb, GI 5, CI 0 (one of 2 on the board: 3g.40gb, 2g.20gb)" in screen
    assert "MIG, 2 instances: 3g.40gb, 2g.20gb" in sentence(answer("--context", given[3]))


def test_claims_logs_and_requests_without_a_gpu_are_listed(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one", "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}]}},
        "status": {"reservedFor": [{"resource": "pods", "name": "llm-0"}], "allocation": {"devices": {"results": [
            {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "request": "r"}]}}},
    }  # fmt: skip
    offered = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n1-gpu"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [
            {"name": "gpu-0", "attributes": {"uuid": {"string": GPU}, "productName": {"string": "NVIDIA A100"}}}]},
    }  # fmt: skip
    waiting = {**claim, "metadata": {"name": "two", "namespace": "ml"}, "status": {}}
    log = "[2026-01-02 03:04:05.678 Control  4000] NEW CLIENT 4713 from user 1000: Server is ready\n"
    session = pyanalyze.load(
        samples=write(tmp_path, "pmon.txt", PMON),
        context=[
            kubectl(tmp_path, claim, offered, waiting),
            write(tmp_path, "list.txt", f"GPU 0: NVIDIA A100 (UUID: {GPU})\n"),
            write(tmp_path, "control.log", log),
        ],
    )
    report = session.report()
    listed = {t.name: t for t in (*report.devices[0].listed, *report.listed)}
    assert (listed["llm-0"].device_id, listed["llm-0"].placed_by) == (0, "configured")
    assert listed["llm-0"].requested == "claim ml/one (device gpu-0)"
    assert (listed["two"].kind, listed["two"].requested) == ("claim", "1 gpu.nvidia.com")
    assert (listed["process 4713"].kind, listed["process 4713"].sources) == ("mps-client", ["mps-log"])


def test_redacted_pods_have_one_pseudonym_in_samples_and_objects(tmp_path: Path) -> None:
    objects = kubectl(tmp_path, node(**REPLICAS), pod("web-7f9c"), pod("train-bert-0"))
    text = answer("report", "-f", "json", "--redact", "--samples", write(tmp_path, "a.prom", TWO), "--context", objects)
    assert "web-7f9c" not in text
    assert "train-bert" not in text
    assert len(json.loads(text)["devices"][0]["listed"]) == 2


def advised(*given: str | Path) -> dict[str, dict[str, Any]]:
    """Actions of `advise` by what they begin with."""
    report = json.loads(answer("advise", "-f", "json", *given))
    return {action["action"].split(":")[0]: action for action in report["devices"][0]["advice"]}


def owned(item: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    item["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u"}]
    return item


def shell(line: str, folder: Path) -> list[list[str]]:
    """Arguments of each call that a command line makes, where every program only prints them."""
    stand_in = folder / "bin"
    stand_in.mkdir(exist_ok=True)
    for name in ("kubectl", "helm", "pyanalyze"):
        file = write(
            stand_in, name, '#!/bin/sh\nprintf "%s\\0" "$(basename "$0")" "$@" >> "$CALLS"; echo >> "$CALLS"\n'
        )
        file.chmod(0o755)
    calls = folder / "calls"
    calls.write_bytes(b"")
    environment = {"PATH": f"{stand_in}:/usr/bin:/bin", "CALLS": str(calls)}
    subprocess.run(["bash", "-euc", line], env=environment, check=True, stdin=subprocess.DEVNULL, cwd=folder)
    return [call.decode().split("\0")[:-1] for call in calls.read_bytes().split(b"\n") if call]


@pytest.mark.parametrize("bare", [("web-7f9c",), ("train-bert-0",), ("web-7f9c", "train-bert-0")])
def test_pods_that_nothing_makes_are_not_patched_through_an_owner(bare: tuple[str, ...], tmp_path: Path) -> None:
    """The affinity of a pod cannot be changed, its labels can."""
    pods = [
        item if item["metadata"]["name"] in bare else owned(item, "StatefulSet", "one")
        for item in (pod("web-7f9c"), pod("train-bert-0"))
    ]
    objects = kubectl(tmp_path, node(**REPLICAS), *pods)
    given: list[str | Path] = ["--samples", write(tmp_path, "a.prom", TWO), "--context", objects]
    (found,) = (action for name, action in advised(*given).items() if name.startswith("Separate"))
    label, keep = found["commands"]
    assert "ownerReferences" not in label + keep + found["undo"]
    (words,) = shell(label, tmp_path)
    assert words[:3] == ["kubectl", "label", "pod"] and words[3] in bare
    assert words[4].startswith("gpu-apart-from=")
    if len(bare) == 1:
        (words,) = shell(keep, tmp_path)
        assert words[:2] == ["kubectl", "patch"] and "statefulset/one" in words
        assert len(shell(found["undo"], tmp_path)) == 2
    else:
        assert shell(keep, tmp_path) == [] and "create it again: nothing makes this pod" in keep
        assert len(shell(found["undo"], tmp_path)) == 1


def test_commands_for_the_cluster_at_hand_can_be_pasted(tmp_path: Path) -> None:
    web = owned(pod("web-7f9c"), "ReplicaSet", "web-7f9c")
    objects = kubectl(tmp_path, node(**REPLICAS), web, owned(pod("train-bert-0"), "StatefulSet", "train-bert"))
    given: list[str | Path] = ["--samples", write(tmp_path, "a.prom", TWO), "--context", objects]
    found = advised(*given)
    assert list(found) == [
        "Not enough data to decide",
        "Share the GPU by MPS instead of time-slicing",
        "Give each pod its own MIG instance",
        "Separate train-bert-0 and web-7f9c",
    ]
    for action in list(found.values())[1:]:
        assert "cannot be forecast from samples; record: pyanalyze record" in action["expected"]
        assert action["risk"]
        assert action["undo"]
        for line in [*action["commands"], action["undo"]]:
            assert shell(line, tmp_path), line
    # The configuration that a real device plugin reads, and the label of the node that chooses it.
    *_, create, patch, label = (
        shell(line, tmp_path) for line in found["Share the GPU by MPS instead of time-slicing"]["commands"]
    )
    name, _, config = create[0][-1].removeprefix("--from-literal=").partition("=")
    assert yaml.safe_load(config) == {
        "version": "v1", "sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
    }  # fmt: skip
    assert json.loads(patch[0][-1])["spec"]["devicePlugin"]["config"]["name"] == create[0][5]
    assert f"nvidia.com/device-plugin.config={name}" in label[-1]
    assert label[0][:6] == ["kubectl", "get", "pod", "-n", "ml", "train-bert-0"]
    (making,) = (line for line in found["Give each pod its own MIG instance"]["commands"] if " create " in line)
    config = yaml.safe_load(shell(making, tmp_path)[0][-1].partition("config.yaml=")[2])
    # Both halves of an A100: seven compute slices are 3 and 4.
    assert config["mig-configs"]["advised"][0]["mig-devices"] == {"3g.40gb": 1, "4g.40gb": 1}
    labelled, kept = (shell(line, tmp_path)[-1] for line in found["Separate train-bert-0 and web-7f9c"]["commands"])
    assert (labelled[4], kept[4]) == ("statefulset/train-bert", "deployment/web")
    labels = json.loads(labelled[-1])["spec"]["template"]["metadata"]["labels"]
    (term,) = json.loads(kept[-1])["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term == {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}


#: A cluster in one file: what the operator's policy says, labels of the node, and its configurations.
CLUSTER = """#!{python}
import json, re, sys

with open({state!r}) as file:
    state = json.load(file)
words = sys.argv[1:]
def merge(into, what):
    for key, value in what.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
if words[0] == "get":
    path = words[words.index("-o") + 1].removeprefix("jsonpath=").strip("{{}}")
    value = state["node"] if words[1] == "node" else state["policy"]
    for part in re.split(r"(?<!\\\\)[.]", path)[1:]:
        value = value.get(part.replace("\\\\", ""), "")
        if value == "":
            break
    print(value if isinstance(value, str) else json.dumps(value), end="")
elif words[0] == "patch" and words[words.index("--type") + 1] == "merge":
    merge(state["policy"], json.loads(words[-1]))
elif words[0] == "patch":
    for one in json.loads(words[-1]):
        *folder, last = one["path"].split("/")[1:]
        into = state["policy"]
        for part in folder:
            into = into[part]
        assert last in into, "a replacement takes a place that is there"
        into[last] = one["value"]
elif words[0] == "label":
    name, equals, value = words[3].partition("=")
    labels = state["node"]["metadata"]["labels"]
    if equals:
        labels[name] = value
    else:
        assert name.endswith("-")
        labels.pop(name[:-1], None)
elif words[:2] == ["create", "configmap"]:
    assert words[4] not in state["maps"]
    state["maps"].append(words[4])
elif words[:2] == ["delete", "configmap"]:
    state["maps"].remove(words[4])
with open({state!r}, "w") as file:
    json.dump(state, file)
"""
#: Policy and labels before, and what an unset field is after it was set and given back: what the operator takes as unset.
BEFORE: tuple[tuple[dict[str, Any], dict[str, str], dict[str, str]], ...] = (
    (
        {"spec": {"devicePlugin": {"config": {"name": "theirs", "default": "two"}}, "mig": {"strategy": "mixed"},
                  "migManager": {"config": {"name": "their-mig"}}}},
        {"nvidia.com/device-plugin.config": "four", "nvidia.com/mig.config": "all-1g.5gb"},
        {},
    ),
    (
        {"spec": {"devicePlugin": {}, "mig": {"strategy": "single"}, "migManager": {"config": {"name": "their-mig"}}}},
        {},
        {"nvidia.com/mig.config": "all-disabled"},
    ),
)  # fmt: skip


@pytest.mark.parametrize(("policy", "labels", "left"), BEFORE)
def test_the_undo_of_a_change_of_the_cluster_gives_back_what_was_set(
    tmp_path: Path, policy: dict[str, Any], labels: dict[str, str], left: dict[str, str]
) -> None:
    objects = kubectl(tmp_path, node(**REPLICAS), pod("web-7f9c"), pod("train-bert-0"))
    found = advised("--samples", write(tmp_path, "a.prom", TWO), "--context", objects)
    stand_in = tmp_path / "cluster"
    stand_in.mkdir()
    state = tmp_path / "state.json"
    write(stand_in, "kubectl", CLUSTER.format(python=sys.executable, state=str(state))).chmod(0o755)
    environment = {"PATH": f"{stand_in}:/usr/bin:/bin"}
    for name in ("Share the GPU by MPS instead of time-slicing", "Give each pod its own MIG instance"):
        before = {"policy": policy, "node": {"metadata": {"labels": labels}}, "maps": ["theirs", "their-mig"]}
        state.write_text(json.dumps(before))
        action = found[name]
        # Twice: who runs the first commands again does not overwrite what was kept.
        keep = [line for line in action["commands"] if line.startswith("[ -e ")]
        for line in (*action["commands"], *keep):
            subprocess.run(["bash", "-euc", line], env=environment, check=True, cwd=tmp_path)
        changed = json.loads(state.read_text())
        assert changed != before
        subprocess.run(["bash", "-euc", action["undo"]], env=environment, check=True, cwd=tmp_path)
        after = json.loads(state.read_text())
        assert after["maps"] == before["maps"]
        given_back = after["policy"]["spec"]
        # No name of a configuration is no configuration.
        assert {key: value for key, value in given_back["devicePlugin"].items() if value} == policy["spec"][
            "devicePlugin"
        ]
        assert given_back["mig"] == policy["spec"]["mig"]
        assert given_back["migManager"] == policy["spec"]["migManager"]
        expected = labels | (left if "MIG" in name else {})
        assert after["node"]["metadata"]["labels"] == expected
    assert not list(tmp_path.glob("*-before*"))


def test_mps_is_never_advised_on_mig_nor_on_windows(tmp_path: Path) -> None:
    scrape = TWO.replace('Hostname="n1"', 'GPU_I_PROFILE="3g.40gb",GPU_I_ID="2",Hostname="n1"')
    objects = kubectl(tmp_path, node(**{"nvidia.com/mig.strategy": "mixed"}))
    given: list[str | Path] = ["--samples", write(tmp_path, "a.prom", scrape), "--context", objects,
             "--context", write(tmp_path, "lgi.txt", MIG_LIST)]  # fmt: skip
    actions = json.loads(answer("report", "-f", "json", *given))["devices"]
    assert [a["action"] for d in actions for a in d["advice"] if "MPS" in a["action"]] == []
    assert any("time-slicing" in a["action"] for d in actions for a in d["advice"])


def test_a_process_without_a_pod_is_looked_up_by_its_control_group(tmp_path: Path) -> None:
    objects = kubectl(tmp_path, node(**REPLICAS))
    found = advised("--samples", write(tmp_path, "pmon.txt", PMON), "--context", objects)
    action = found["Find the pod of each process 4711, 4712"]
    line = action["commands"][0].partition("   #")[0]
    # The control group of a real kubelet, in both drivers' spelling of the UID.
    for group in (
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod9a1b2c3d_0000_4e5f_8a9b_0123456789ab.slice/x\n",
        "0::/kubepods/burstable/pod9a1b2c3d-0000-4e5f-8a9b-0123456789ab/x\n",
    ):
        inner = line[line.index("$(") + 2 : -2].replace("/proc/4711/cgroup", str(write(tmp_path, "cgroup", group)))
        found_uid = subprocess.run(["bash", "-c", inner], check=True, capture_output=True, text=True).stdout.strip()
        assert found_uid == "9a1b2c3d-0000-4e5f-8a9b-0123456789ab"


def test_claims_get_their_feature_gate(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one", "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": {"reservedFor": [{"resource": "pods", "name": "web-7f9c"}], "allocation": {"devices": {"results": [
            {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "request": "r"}]}}},
    }  # fmt: skip
    found = advised("--samples", write(tmp_path, "a.prom", TWO), "--context", kubectl(tmp_path, claim))
    for mode, gate, strategy in (("mps", "MPSSupport", "MPS"), ("time-slicing", "TimeSlicingSettings", "TimeSlicing")):
        gated, made = found[f"Share one claim by {mode}"]["commands"]
        assert f"featureGates.{gate}=true" in gated
        body = json.loads(shlex.split(made)[-1])
        assert body["spec"]["devices"]["config"][0]["opaque"]["parameters"]["sharing"]["strategy"] == strategy


@pytest.mark.parametrize("name", ["record-samples", "record-nsys"])
def test_pods_that_record_ask_for_what_they_need_and_no_gpu(name: str) -> None:
    made = yaml.safe_load((ROOT / "packaging" / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8"))
    (container,) = made["spec"]["containers"]
    assert (made["apiVersion"], made["kind"], made["spec"]["hostPID"]) == ("v1", "Pod", True)
    assert not any("gpu" in resource for part in container["resources"].values() for resource in part)
    security = container["securityContext"]
    if name == "record-samples":
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False
    else:
        assert security["capabilities"] == {"add": ["SYS_ADMIN", "SYS_PTRACE"]}
    assert "privileged" not in security
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in made["spec"]["volumes"]}
    # Options that `record` has, as the pod gives them.
    words = shlex.split(container["command"][-1].partition(";")[0])
    known = answer("record", "--help")
    assert words[:2] == ["pyanalyze", "record"]
    assert all(word in known for word in words if word.startswith("--"))


def test_the_profile_of_an_exporter_is_the_instance_of_the_listing(tmp_path: Path) -> None:
    scrape = TWO.replace('Hostname="n1"', 'GPU_I_PROFILE="3g.40gb",GPU_I_ID="2",Hostname="n1"')
    given: list[str | Path] = [
        "--samples",
        write(tmp_path, "a.prom", scrape),
        "--context",
        write(tmp_path, "list.txt", MIG_LIST),
    ]
    devices = json.loads(answer("report", "-f", "json", *given))["devices"]
    # The board, its 3g.40gb with two pods, and its other instance.
    shown = [(d["mig"] and d["mig"]["profile"], d["mig"] and d["mig"]["gi"], len(d["listed"])) for d in devices]
    assert sorted(shown, key=str) == [("2g.20gb", None, 0), ("3g.40gb", 2, 2), (None, None, 0)]


HEALTH = """timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], {}
{}
"""


def test_samples_tell_idle_time_throttling_memory_and_errors(tmp_path: Path) -> None:
    columns = (
        "clocks_event_reasons.sw_power_cap, clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.gpu_idle, "
    )
    columns += "ecc.errors.uncorrected.volatile.total"
    rows = [
        (0, 100, "Not Active", "Not Active", "Active", 0),
        (100, 81000, "Active", "Not Active", "Not Active", 0),
        (98, 81400, "Active", "Active", "Not Active", 2),
        (100, 81400, "Active", "Not Active", "Not Active", 2),
    ]
    lines = [
        f"2026/06/20 17:05:1{n}.000, 0, {GPU}, NVIDIA A100-SXM4-80GB, {use} %, {used} MiB, 81920 MiB, {a}, {b}, {c}, {ecc}"
        for n, (use, used, a, b, c, ecc) in enumerate(rows)
    ]
    file = write(tmp_path, "gpu.csv", HEALTH.format(columns, "\n".join(lines)))
    sampled = pyanalyze.load(samples=file).report().devices[0].sampled
    assert sampled is not None
    assert (sampled.idle_share, sampled.gpu_utilization, sampled.gpu_utilization_peak) == (0.25, 0.745, 1.0)
    assert sampled.throttling is not None
    assert sampled.throttling.shares == {"sw_power_cap": 0.75, "hw_thermal_slowdown": 0.25}
    assert (sampled.ecc_uncorrected, sampled.xid) == (2, None)
    screen = sentence(answer("--samples", file))
    assert "throttled: power cap in 75 %, thermal (hardware) in 25 % of 4 samples" in screen
    page = sentence(answer("report", "-f", "txt", "--samples", file))
    assert "memory almost full: 520 MiB of 80.0 GiB free at the peak" in page
    assert "2 uncorrected ECC errors" in page
    device = json.loads(answer("report", "-f", "json", "--samples", file))["devices"][0]
    assert device["sharing"]["basis"] == "sampled"
    assert "observed" not in json.dumps(device)
    answer("report", "--samples", file, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Utilisation and memory over time" in page
    assert "samples-0" in page


def test_generated_inputs_are_answered_whole() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "bench" / "oncall.py"), "--seeds", "1", "--verbose"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "absent from the inputs: 0" in done.stdout
    assert "secrets of the inputs in the answer: 0" in done.stdout


def test_a_process_is_in_the_one_instance_where_any_list_has_it(tmp_path: Path) -> None:
    """`pmon` and `--query-compute-apps` know no instances: the process is not counted on the board as well."""
    pmon = "# gpu pid type sm mem enc dec command\n# Idx # C/G % % % % name\n0 4711 C - - - - serve\n"
    apps = f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{GPU}, 4711, /opt/serve, 8962 MiB\n"
    files = [write(tmp_path, name, text) for name, text in (("q.xml", MIG_XML), ("pmon.txt", pmon), ("apps.csv", apps))]
    report = pyanalyze.load(samples=files).report()
    found = [(d.mig and d.mig.gi, t.pid, t.name, t.mig) for d in report.devices for t in d.listed]
    assert found == [(5, 4711, "serve", "GI 5, CI 0")]
    # No input names the profiles: instances are told by number, SMs and memory.
    screen = sentence(answer("--samples", files[0], "--samples", files[1]))
    assert "MIG instance GI 5, CI 0 (one of 2 on the board: GI 2 (39.2 GiB), GI 5 (19.5 GiB))" in screen


def test_local_and_utc_clocks_are_put_together_or_said_to_be_apart(tmp_path: Path) -> None:
    """nvidia-smi writes local times, Prometheus UTC: 1781975119 is 17:05:19 UTC, 02:05:19 in Tokyo."""
    scrape = write(tmp_path, "dcgm.prom", TWO + TWO.replace("119000", "129000"))
    pmon = "#Date Time gpu pid type sm mem enc dec command\n#YYYYMMDD HH:MM:SS Idx # C/G % % % % name\n"
    tokyo = write(tmp_path, "tokyo.txt", f"{pmon} 20260621 02:05:24 0 4711 C 80 20 - - python\n")
    screen = sentence(answer("--samples", scrape, "--samples", tokyo))
    assert "local times read as UTC+09:00" in screen
    found = pyanalyze.load(samples=[scrape, tokyo]).report().devices[0].listed
    assert [(t.name, t.first_ns) for t in found if t.pid == 4711] == [("python", 5_000_000_000)]
    # Of another hour: in no zone is it of that time.
    other = write(tmp_path, "other.txt", f"{pmon} 20260621 02:25:24 0 4711 C 80 20 - - python\n")
    screen = sentence(answer("--samples", scrape, "--samples", other))
    assert "other.txt: local times beside samples in UTC" in screen
    found = pyanalyze.load(samples=[scrape, other]).report().devices[0].listed
    assert [(t.name, t.first_ns) for t in found if t.pid == 4711] == [("python", None)]


def test_dcgm_entities_without_a_gpu_are_devices_of_their_own(tmp_path: Path) -> None:
    file = write(tmp_path, "dcgm.csv", "EntityId,GRACT,FBUSD,TimeStamp\n0,0.5,300,1781975119\n1,0.25,900,1781975119\n")
    report = pyanalyze.load(samples=file).report()
    assert [d.name for d in report.devices] == ["DCGM entity 0", "DCGM entity 1"]
    screen = sentence(answer("--samples", file))
    assert "graphics engine active 50.0 %" in screen
    assert "DCGM entity 0" in screen


CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT / ".." / "shared" / "corpus")) / "samples"


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
def test_every_process_of_real_dumps_is_listed() -> None:
    files = [*CORPUS.glob("telegraf/*.xml"), *CORPUS.glob("netdata/*.xml")]
    seen = 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        report = pyanalyze.load(samples=file).report()
        listed = {one.pid for one in (*report.listed, *(t for d in report.devices for t in d.listed))}
        pids = {int(pid) for pid in re.findall(r"<pid>(\d+)</pid>", text)}
        assert pids <= listed, file
        assert listed <= pids, file
        seen += len(pids)
    assert seen > 10


#: Where a pid stands, in the outputs of nvidia-smi: XML, `-q`, the table, `pmon`, `--query-compute-apps`.
PIDS = (
    r"<pid>(\d+)</pid>",
    r"^\s+Process ID\s+: (\d+)",
    r"^\|\s+\d+\s+\S+\s+\S+\s+(\d+)\s+(?:C|G|C\+G|M\+C)\s",
    r"^\s+\d+\s+(\d+)\s+(?:C|G|C\+G|M\+C)\s",
    # A name follows; numbers follow the pids of `--query-accounted-apps`, whose processes have ended.
    r"GPU-[-0-9a-f]{36}, (\d+), \D",
)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
@pytest.mark.parametrize("pattern", ["nvidia-gpu-exporter/*.txt", "telegraf/*.xml"])
def test_every_process_of_a_real_file_stands_in_its_report(pattern: str) -> None:
    for file in CORPUS.glob(pattern):
        pids = {pid for one in PIDS for pid in re.findall(one, file.read_text(encoding="utf-8"), re.MULTILINE)}
        report = pyanalyze.load(samples=file).report()
        listed = [*report.listed, *(t for d in report.devices for t in d.listed)]
        assert {str(one.pid) for one in listed} == pids, file
        # Once on each board, and not on it and in one of its instances.
        places = [(d.gpu_uuid, one.pid) for d in report.devices for one in d.listed]
        assert len(places) == len(set(places)), file
        page = answer("report", "-f", "txt", "--samples", file)
        assert all(re.search(rf"\b{pid}\b", page) for pid in pids), file
        assert all(one.name in page for one in listed), file


def test_every_process_and_pod_of_the_committed_files_stands_in_the_report() -> None:
    """Of each file of samples, and of objects of a cluster, by a search in its text."""
    seen = set()
    for file in [*SAMPLES.iterdir(), *(ROOT / "tests" / "golden" / "inputs").glob("pods.json")]:
        text = file.read_text(encoding="utf-8")
        named = {word for word in ("4711", "worker", "serve-a", "serve-b", "service-0", "trainer-0") if word in text}
        # A container, or an argument with such a word in it, is none of them.
        named = {word for word in named if re.search(rf"(?<![\w-]){word}(?![\w-])", text)}
        page = answer("report", "-f", "txt", "--samples", file)
        assert all(word in page for word in named), (file, named)
        seen |= named
    assert seen == {"4711", "worker", "serve-a", "serve-b", "service-0", "trainer-0"}


def pmon_of(series: dict[int, list[float]]) -> str:
    """`pmon -o DT` once a second; the list lacks a process that does nothing."""
    text = "#Date       Time        gpu         pid   type     sm    mem    enc    dec    command\n"
    text += "#YYYYMMDD   HH:MM:SS    Idx           #    C/G      %      %      %      %    name\n"
    for second in range(len(next(iter(series.values())))):
        clock = f"{17 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        for pid, values in series.items():
            if values[second]:
                text += f" 20260620   {clock}      0  {pid}     C  {values[second]:.0f}  5  -  -  job-{pid}\n"
    return text


def latencies_of(values: list[float]) -> str:
    lines = [f"web,2026-06-20 17:{n // 60:02}:{n % 60:02}.400,{value:.4f}" for n, value in enumerate(values)]
    return "tenant,time,latency_ms\n" + "\n".join(lines) + "\n"


def test_latency_goes_with_the_tenant_that_it_was_made_to_go_with(tmp_path: Path) -> None:
    chance = random.Random(5)
    n, lag = 300, 3
    active = [second % 60 < 20 for second in range(n)]
    aggressor = [70.0 if on else 0.0 for on in active]
    # Another tenant with its own rhythm, and one that is always busy.
    bystander = [50.0 if second % 47 < 23 else 0.0 for second in range(n)]
    steady = [30.0] * n
    latency = [(25.0 if second >= lag and active[second - lag] else 10.0) + chance.gauss(0, 1) for second in range(n)]
    given: list[str | Path] = ["--samples", write(tmp_path, "pmon.txt", pmon_of({8001: aggressor, 8002: bystander, 8003: steady})),
             "--work", write(tmp_path, "latency.csv", latencies_of(latency))]  # fmt: skip
    report = json.loads(answer("report", "-f", "json", *given))
    found = {one["tenant"]: one for one in report["devices"][0]["associations"]}
    made = found["job-8001"]
    # 25 ms against 10 ms. The sample of second s is a mean from s - 1 to s, 3.9 s before the latency at s + 3.4.
    assert made["associated"]
    assert made["low"] < 2.5 < made["high"]
    assert made["effect"] == pytest.approx(2.5, rel=0.05)
    assert (made["lag_ns"], made["victim"]) == (4_000_000_000, "web")
    assert not found["job-8002"]["associated"]
    # What never changes cannot go with anything.
    assert "job-8003" not in found
    screen = sentence(answer(*given))
    assert "latency of web goes with job-8001: 2." in screen
    assert "an association, not a cause" in screen


def test_unrelated_series_are_rarely_associated() -> None:
    """Of 24 pairs of independent, autocorrelated series at most three pass: 1.2 are expected at 5 %."""
    chance = random.Random(11)
    passed = 0
    for _ in range(24):
        walk, use = [10.0], [30.0]
        for _ in range(119):
            walk.append(max(1.0, 10 + 0.9 * (walk[-1] - 10) + chance.gauss(0, 1)))
            use.append(min(100.0, max(0.0, 30 + 0.9 * (use[-1] - 30) + chance.gauss(0, 12))))
        moments = [second * 10**9 for second in range(120)]
        one = _relate(moments, [round(v * 1e6) for v in walk], moments, dict(zip(moments, use, strict=True)))
        passed += one is not None and one.associated
    assert passed <= 3


def test_latencies_that_cannot_be_read_name_their_line(tmp_path: Path) -> None:
    pmon = write(tmp_path, "pmon.txt", pmon_of({8001: [50.0] * 30}))
    for text, said in (
        ("a,b\n1,2\n", "latencies need a column"),
        ("time,latency_ms\n2026-06-20 17:00:01,soon\n", "line 2"),
        ("time,latency_ms\n2026-06-20T17:00:01Z,3\n", "have no UTC"),
        ("start,end\n2026-06-20 17:00:02,2026-06-20 17:00:01\n", "ends before it starts"),
    ):
        assert said in answer("--samples", pmon, "--work", write(tmp_path, "l.csv", text), code=2)


def test_kubernetes_restricts_candidates_and_sentences_alike() -> None:
    """Uncapped MPS, which the device plugin cannot make, is neither compared with nor called the next best."""

    def option(name: str, mode: Mode, config: SharingConfig, slowdown: float) -> Option:
        low, high = 0.9 * slowdown, 1.1 * slowdown
        each = [
            Forecast(tenant_id=n, slowdown=slowdown, low=low, high=high, latency=None, p99_ns=None, name=f"app{n}")
            for n in (0, 1)
        ]
        return Option(name, mode, config, tuple(each))

    now = option("time-slicing", Mode.TIME_SLICING, time_slicing(108, [0, 1]), 2.01)
    better = option("MPS", Mode.MPS, side_by_side(108, [0, 1]), 1.16)
    compared = Options(0, (better, now), now, better)
    left = kubernetes.only_made(compared)
    assert left.options == (now,)
    assert left.recommended is now
    verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app0", "app1")))
    stay = configuration.keep(left, (), verdict, kube=True)
    assert (
        stay.action
        == "Keep time-slicing: no other configuration that Kubernetes can make is forecast faster on average"
    )
    assert "1.16" not in json.dumps(stay.model_dump(mode="json"))
    # Outside of Kubernetes it is what is advised.
    assert configuration._gain(compared, Mode.TIME_SLICING) == pytest.approx(1 - 1.16 / 2.01)


def test_hostile_names_stay_words_of_the_shell(tmp_path: Path) -> None:
    evil = "a'$(touch${IFS}pwned);x"
    scrape = "".join(
        series("DCGM_FI_DEV_GPU_UTIL", f"n/{name}/main", 5).replace(f'pod="{name}"', f'pod="{name}{evil}"')
        for name in ("one", "two")
    )
    found = advised("--samples", write(tmp_path, "a.prom", scrape), "--context", kubectl(tmp_path, node(**REPLICAS)))
    assert len(found) > 2
    for action in list(found.values())[1:]:
        for line in [*action["commands"], action["undo"]]:
            shell(f"cd {shlex.quote(str(tmp_path))}; {line}", tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_the_first_screen_of_everything_at_once_keeps_what_to_do(tmp_path: Path) -> None:
    active = {8000 + n: [50.0 + n if second % 40 < 20 + n else 0.0 for second in range(120)] for n in range(6)}
    latency = [20.0 if second % 40 < 20 else 10.0 for second in range(120)]
    screen = answer(
        "--samples", write(tmp_path, "pmon.txt", pmon_of(active)),
        "--context", kubectl(tmp_path, node(**REPLICAS), pod("web-7f9c"), pod("train-bert-0")),
        "--work", write(tmp_path, "latency.csv", latencies_of(latency)),
    )  # fmt: skip
    lines = screen.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    labels = [line.split("  ")[0] for line in lines if not line.startswith(" ")]
    assert {"Mode", "Tenants", "Use", "Latency", "Do"} <= set(labels)


def test_pods_without_a_gpu_are_named_on_the_first_screen(tmp_path: Path) -> None:
    objects = kubectl(tmp_path, node(**REPLICAS), pod("web-7f9c"), pod("train-bert-0"))
    assert "web-7f9c and train-bert-0: no input says on which GPU" in sentence(answer("--context", objects))
