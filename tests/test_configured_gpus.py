"""Which GPU a setting concerns: nodes of a cluster, clients of an MPS daemon, instances of a board."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import pyanalyze
from pyanalyze.cli import cli
from pyanalyze.report.sampled_text import set_up_text
from pyanalyze.report.summary import render_summary
from pyanalyze.results.check import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.report import Report

#: As `nvidia-smi --query-gpu` prints it; made up.
GPU = (
    "timestamp, index, uuid, name, utilization.gpu [%]\n"
    "2026/06/20 17:05:19.000, 0, GPU-11111111-2222-3333-4444-555555555555, NVIDIA H100 80GB HBM3, 40 %\n"
)


def node(name: str, product: str, gpus: int, sharing: str, replicas: int) -> dict[str, Any]:
    """A node, with the labels of GPU feature discovery."""
    labels = {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": sharing,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def pod(name: str, on: str | None, phase: str = "Running", gpus: int = 1, **env: str) -> dict[str, Any]:
    """A pod with one container that asks for GPUs."""
    container: dict[str, Any] = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    spec = {"containers": [container], **({} if on is None else {"nodeName": on})}
    meta = {"name": name, "namespace": "ml"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def written(folder: Path, name: str, *content: dict[str, Any] | str) -> Path:
    """A file of text, or of Kubernetes objects."""
    file = folder / name
    texts = [one if isinstance(one, str) else json.dumps(one) for one in content]
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def answer(*files: Path) -> Report:
    return pyanalyze.load([str(file) for file in files]).report()


def table(gpus: list[tuple[int, str]], processes: list[tuple[int, str, int, str, str]], instances: str = "") -> str:
    """The table of nvidia-smi: index and MIG mode of each GPU; index, GI, pid, type and name of each process."""
    head = (
        "| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |\n"
        "|-----------------------------------------+------------------------+----------------------+\n"
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
        "|                                         |                        |               MIG M. |\n"
        "|=========================================+========================+======================|\n"
    )
    rule = "+-----------------------------------------+------------------------+----------------------+\n"
    rows = "".join(
        f"|   {index}  NVIDIA A100-SXM4-80GB          On  |   00000000:0{index}:00.0 Off |                    0 |\n"
        "| N/A   61C    P0            310W /  400W |   61234MiB /  81920MiB |     98%      Default |\n"
        f"|                                         |                        | {mig:>20} |\n{rule}"
        for index, mig in gpus
    )
    lists = "".join(
        f"|    {index}   {gi:>3}  {'N/A' if gi == 'N/A' else '0':>3}  {pid:>14}  {kind:>5}   {name:<38} 1000MiB |\n"
        for index, gi, pid, kind, name in processes
    )
    return (
        f"+-----------------------------------------------------------------------------------------+\n{head}{rows}"
        f"{instances}"
        "+-----------------------------------------------------------------------------------------+\n"
        "| Processes:                                                                              |\n"
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
        "|        ID   ID                                                               Usage      |\n"
        "|=========================================================================================|\n"
        f"{lists}"
        "+-----------------------------------------------------------------------------------------+\n"
    )


#: Of clients of one server, as control.log and server.log have it; written by hand.
LOG = """\
[2026-06-25 13:59:00.001 Control  8800] Starting control daemon using socket /tmp/nvidia-mps/control
[2026-06-25 14:00:00.102 Control  8800] Starting new server 8810 for user 1000
[2026-06-25 14:00:00.900 Control  8800] NEW SERVER 8810: Ready
[2026-06-25 14:00:00.901 Server  8810] Active Threads Percentage set to 50.0
[2026-06-25 14:00:01.000 Control  8800] NEW CLIENT 9012 from user 1000: Server already exists
"""


def test_the_label_of_another_node_is_not_applied(tmp_path: Path) -> None:
    """The node of the L40S is time-sliced, that of the H100 is not shared: neither speaks for the other."""
    gpu = written(tmp_path, "gpu.csv", GPU)
    other = node("n1", "NVIDIA-L40S-SHARED", 1, "time-slicing", 4)
    own = node("n2", "NVIDIA-H100-80GB-HBM3", 8, "none", 1)
    both = answer(gpu, written(tmp_path, "both.json", other, own))
    assert both.devices[0].sharing.configured is None
    assert set_up_text(both, both.devices[0]) == "not shared, each GPU is offered once"
    only = answer(gpu, written(tmp_path, "other.json", other))
    said = set_up_text(only, only.devices[0])
    assert said == "not known: the listed node has NVIDIA-L40S-SHARED, not this GPU"
    assert any(
        gap.what == "configured_mode" and "NVIDIA-L40S-SHARED" in gap.why for gap in only.devices[0].sharing.missing
    )


@pytest.mark.parametrize("mark", ["", "-SHARED"])
def test_the_label_of_the_own_node_is_applied(tmp_path: Path, mark: str) -> None:
    gpu = written(tmp_path, "gpu.csv", GPU)
    nodes = written(tmp_path, "n.json", node("n2", f"NVIDIA-H100-80GB-HBM3{mark}", 8, "time-slicing", 4))
    (device,) = answer(gpu, nodes).devices
    assert device.sharing.configured == "time-slicing"
    assert device.configured_sharing is not None
    assert (device.configured_sharing.replicas, device.configured_sharing.other_nodes) == (4, [])


def test_nodes_of_one_product_must_be_set_up_alike(tmp_path: Path) -> None:
    gpu = written(tmp_path, "gpu.csv", GPU)
    first, second = (node(name, "NVIDIA-H100-80GB-HBM3", 8, "mps", 4) for name in ("n1", "n2"))
    assert answer(gpu, written(tmp_path, "alike.json", first, second)).devices[0].sharing.configured == "mps"
    third = node("n3", "NVIDIA-H100-80GB-HBM3", 8, "time-slicing", 4)
    unlike = answer(gpu, written(tmp_path, "unlike.json", first, third))
    assert unlike.devices[0].sharing.configured is None
    assert "2 listed nodes may have this GPU" in (set_up_text(unlike, unlike.devices[0]) or "")


def test_a_configuration_beside_the_label_of_the_node_does_not_contradict_it(tmp_path: Path) -> None:
    """A config map is what a cluster holds; the label is what the device plugin did on that node."""
    gpu = written(tmp_path, "gpu.csv", GPU)
    menu = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 10\n"
    configs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"any": menu}}
    own = node("n2", "NVIDIA-H100-80GB-HBM3-SHARED", 8, "time-slicing", 4)
    (device,) = answer(gpu, written(tmp_path, "n.json", own, configs)).devices
    assert device.sharing.configured == "time-slicing"


def test_the_gate_does_not_pass_on_another_node(fixtures: Path, tmp_path: Path) -> None:
    """The demo is of an A100-SXM4-40GB and was time-sliced."""
    demo = fixtures / "demo-time-slicing.sqlite"
    (name,) = pyanalyze.load(demo).devices["name"].to_list()
    own = written(tmp_path, "own.json", node("n", name.replace(" ", "-"), 1, "time-slicing", 4))
    other = written(tmp_path, "other.json", node("n", "NVIDIA-L40S-SHARED", 1, "time-slicing", 4))
    passed, open_ = (
        pyanalyze.load(demo, context=str(file)).check(Limits(expect_agreement=True)) for file in (own, other)
    )
    assert (passed.status, open_.status) == ("passed", "inconclusive")
    assert "NVIDIA-L40S-SHARED" in open_.outcomes[0].detail


def test_an_mps_log_speaks_of_the_gpus_of_its_clients(tmp_path: Path) -> None:
    """Type and pid of the processes tell: those of GPU 0 are no clients, that of GPU 1 is the log's."""
    listed = [(0, "N/A", 41201, "C", "python3"), (0, "N/A", 41377, "C", "tritonserver")]
    listed += [(1, "N/A", 9012, "M+C", "python3"), (1, "N/A", 8810, "C", "nvidia-cuda-mps-server")]
    smi = written(tmp_path, "smi.txt", table([(0, "Disabled"), (1, "Disabled")], listed))
    report = answer(smi, written(tmp_path, "control.log", LOG))
    plain, served = report.devices
    assert (plain.sharing.configured, served.sharing.configured) == (None, "mps-partitioned")
    assert (plain.sharing.mode, served.sharing.mode) == ("undetermined", "mps-partitioned")
    assert set_up_text(report, plain) is None
    assert "50 %" in (set_up_text(report, served) or "")


def test_a_client_of_no_list_is_on_no_gpu_of_plain_processes(tmp_path: Path) -> None:
    smi = written(tmp_path, "smi.txt", table([(0, "Disabled")], [(0, "N/A", 41201, "C", "python3")]))
    report = answer(smi, written(tmp_path, "control.log", LOG))
    assert report.devices[0].sharing.configured is None
    assert [one.pid for one in report.devices[0].listed if one.computes] == [41201]
    assert 9012 in [one.pid for one in report.listed]


def test_lists_without_types_and_other_pids_tell_nothing_of_a_daemon(tmp_path: Path) -> None:
    """A daemon in a container has pids of its own: without types nothing can be compared."""
    apps = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
    apps += "GPU-11111111-2222-3333-4444-555555555555, 77001, python3, 500 MiB\n"
    files = [written(tmp_path, "gpu.csv", GPU), written(tmp_path, "apps.csv", apps)]
    assert answer(*files, written(tmp_path, "control.log", LOG)).devices[0].sharing.configured == "mps-partitioned"


def test_instances_of_one_board_are_not_those_of_another(tmp_path: Path) -> None:
    """The table prints no UUIDs: the index tells boards apart."""
    instances = (
        "| MIG devices:                                                                            |\n"
        "+------------------+----------------------------------+-----------+-----------------------+\n"
        "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |\n"
        "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |\n"
        "|                  |                                  |        ECC|                       |\n"
        "|==================+==================================+===========+=======================|\n"
        "|  0    2   0   0  |           20500MiB / 40192MiB    | 42      0 |  3   0    2    0    0 |\n"
        "|                  |               0MiB / 65535MiB    |           |                       |\n"
        "+------------------+----------------------------------+-----------+-----------------------+\n"
    )
    listed = [(0, "2", 41201, "C", "python3"), (1, "N/A", 41377, "C", "tritonserver")]
    smi = written(tmp_path, "smi.txt", table([(0, "Enabled"), (1, "Disabled")], listed, instances))
    report = answer(smi)
    by_name = {d.listed[0].name: d for d in report.devices if d.listed}
    assert "GI 2" in (set_up_text(report, by_name["python3"]) or "")
    assert set_up_text(report, by_name["tritonserver"]) is None


def first_screen(*files: Path) -> str:
    """What the program prints of files, on one line."""
    return " ".join(render_summary(answer(*files)).split())


def test_pods_hold_the_gpus_of_their_node_until_they_end(tmp_path: Path) -> None:
    """One GPU for two pods is shared by them; eight GPUs for eight are held. Ended and waiting pods hold none."""
    objects = [
        node("n1", "NVIDIA-L40S-SHARED", 1, "time-slicing", 4),
        node("n2", "NVIDIA-H100-80GB-HBM3", 8, "none", 1),
        *(pod(name, "n1") for name in ("run-a", "run-b")),
        pod("done", "n1", "Succeeded"),
        pod("crashed", "n1", "Failed"),
        pod("waiting", None, "Pending"),
        pod("big", "n2", gpus=8),
    ]
    file = written(tmp_path, "cluster.json", *objects)
    report = answer(file)
    assert {one.name for one in report.listed} == {"run-a", "run-b", "big"}
    assert {(one.pod, one.phase) for one in report.pods_without_gpu} == {
        ("done", "Succeeded"),
        ("crashed", "Failed"),
        ("waiting", "Pending"),
    }
    assert [[one.name for one in found.tenants] for found in report.nodes] == [["run-a", "run-b"], ["big"]]
    said = first_screen(file)
    assert "1 GPU (NVIDIA-L40S), time-slicing, 4 replicas. run-a and run-b share its GPU" in said
    assert "8 GPUs (NVIDIA-H100-80GB-HBM3), not shared, each GPU is offered once. big holds all 8 GPUs" in said
    assert "Configured" not in said
    beside = first_screen(written(tmp_path, "gpu.csv", GPU), file)
    assert "on other nodes: run-a and run-b" in beside
    assert "big: no input says on which GPU" in beside


LGI = """\
+---------------------------------------------------------+
| GPU instances:                                          |
| GPU   Name               Profile  Instance   Placement  |
|                            ID       ID       Start:Size |
|=========================================================|
|   0  MIG 1g.10gb           19        9          6:1     |
+---------------------------------------------------------+
|   0  MIG 3g.40gb            9        2          0:4     |
+---------------------------------------------------------+
"""
PS = """\
$ echo ps | nvidia-cuda-mps-control
PID       ID    SERVER    DEVICE             NAMESPACE      COMMAND
9012      1     8810      GPU-11111111-2222  4026531836     python3
"""
SERVER = """\
[2026-06-25 14:00:00.850 Server  8810] Creating server context on device 0 (NVIDIA A100-SXM4-80GB)
[2026-06-25 14:00:00.900 Server  8810] Active Threads Percentage set to 50.0
"""


@pytest.mark.parametrize(
    ("text", "gpu", "configured"),
    [
        (LGI, "GPU 0", "MIG on GPU 0: 1g.10gb (GI 9) and 3g.40gb (GI 2)"),
        (PS, "GPU-11111111-2222", "mps"),
        (SERVER, "MPS device 0 (NVIDIA A100-SXM4-80GB)", "mps, each client at most 50 % of the threads"),
    ],
)
def test_gpus_that_only_settings_name_are_named(tmp_path: Path, text: str, gpu: str, configured: str) -> None:
    said = first_screen(written(tmp_path, "settings.txt", text))
    assert f"not known: no sample or capture of a GPU; settings name {gpu} " in said
    assert f"Configured {configured} " in said


def test_instances_that_a_table_does_not_show_are_a_conflict(tmp_path: Path) -> None:
    """The table says that MIG is disabled on GPU 0, the listing has instances of it."""
    listed = [(0, "N/A", 41201, "C", "python3"), (1, "N/A", 41377, "C", "tritonserver")]
    smi = written(tmp_path, "smi.txt", table([(0, "Disabled"), (1, "Disabled")], listed))
    report = answer(smi, written(tmp_path, "lgi.txt", LGI))
    said = {device.listed[0].name: set_up_text(report, device) for device in report.devices}
    assert "MIG instances are listed (GPU 0: 1g.10gb (GI 9)" in (said["python3"] or "")
    assert "samples show none" in (said["python3"] or "")
    assert said["tritonserver"] is None


def test_a_policy_chooses_among_configurations(tmp_path: Path) -> None:
    sliced = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
    data = {"any": sliced, "other": sliced.replace("timeSlicing", "mps")}
    configs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    chosen = {"devicePlugin": {"config": {"name": "c", "default": "any"}}}
    policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": chosen}
    menu, alone = written(tmp_path, "cm.json", configs), written(tmp_path, "policy.json", policy)
    assert "settings name different strategies: time-slicing and mps" in first_screen(menu)
    assert "Configured time-slicing, 4 replicas " in first_screen(menu, alone)
    assert "Configured configuration any of the device plugin; no input holds it" in first_screen(alone)


def test_requests_without_effect_are_named(tmp_path: Path) -> None:
    """NVIDIA: of more than one time-sliced replica no larger share follows. Only clients of MPS read its variables."""
    pods = [pod("train", "n1", gpus=2), pod("web", "n1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="30"), pod("plain", "n1")]
    sliced = written(tmp_path, "s.json", node("n1", "NVIDIA-L40S-SHARED", 2, "time-slicing", 4), *pods)
    said = first_screen(sliced)
    assert "Do Let train request 1 replica instead of 2. " in said
    assert "Do Take CUDA_MPS_ACTIVE_THREAD_PERCENTAGE from web, or share its node by MPS. " in said
    assert "plain" not in said.partition("Do ")[2]
    by_verb = CliRunner().invoke(cli, ["advise", str(sliced)]).output
    assert "request 1 replica instead of 2" in by_verb
    assert "nothing was measured" in by_verb
    other = written(tmp_path, "m.json", node("n1", "NVIDIA-L40S-SHARED", 2, "mps", 4), *pods)
    assert "Do " not in first_screen(other)


@pytest.mark.parametrize(
    ("verb", "missing"), [("residency", "Context switches"), ("interference", "Kernels"), ("occupancy", "Kernels")]
)
def test_a_command_that_needs_a_capture_says_so(tmp_path: Path, verb: str, missing: str) -> None:
    said = CliRunner().invoke(cli, [verb, str(written(tmp_path, "gpu.csv", GPU))]).output
    assert f"Not available. {missing}: there is no capture, only samples." in said
    assert "nsys profile -t cuda,nvtx" in said


def test_interference_shows_what_latencies_go_with(tmp_path: Path) -> None:
    """Of 200 seconds "train" is busy in every second block of ten, and the latencies are double there."""
    busy = [second // 10 % 2 == 1 for second in range(200)]
    times = [f"{14 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}" for second in range(200)]
    rows = "".join(
        f" 20260625   {time}    0      41201     C     20     20      -      -    web\n"
        f" 20260625   {time}    0      41377     C     {70 if on else '-'}     10      -      -    train\n"
        for time, on in zip(times, busy, strict=True)
    )
    head = "#Date       Time        gpu         pid   type     sm    mem    enc    dec    command\n"
    head += "#YYYYMMDD   HH:MM:SS    Idx           #    C/G      %      %      %      %    name\n"
    latencies = "time,latency_ms\n" + "".join(
        f"2026-06-25T{time},{20 + n % 3 if on else 10 + n % 2}\n"
        for n, (time, on) in enumerate(zip(times, busy, strict=True))
    )
    files = [written(tmp_path, "pmon.txt", head + rows), "--work", written(tmp_path, "lat.csv", latencies)]
    said = CliRunner().invoke(cli, ["interference", *map(str, files)]).output
    assert "latency goes with train" in said
    assert "an association, not a cause" in " ".join(said.split())


def pmon(*processes: tuple[int, str, str, str]) -> str:
    """Two samples of pmon: pid, type, share of time and name of each process."""
    head = "#Time        gpu         pid   type     sm    mem    enc    dec    command\n"
    head += "#HH:MM:SS    Idx           #    C/G      %      %      %      %    name\n"
    return head + "".join(
        f" 10:00:0{second}       0      {pid}   {kind:>3}     {share}     10      -      -    {name}\n"
        for second in (1, 2)
        for pid, kind, share, name in processes
    )


def test_a_plain_process_beside_mps_clients_is_time_sliced_with_them(tmp_path: Path) -> None:
    """Type C has a context of its own: where both work, MPS alone does not describe the GPU. A server computes nothing."""
    client, plain = (41377, "M+C", "30", "tritonserver"), (41201, "C", "60", "python3")
    mixed = answer(written(tmp_path, "a.txt", pmon(client, plain))).devices[0].sharing
    assert mixed.mode == "mps+time-slicing"
    assert "python3 (pid 41201)" in mixed.summary
    idle = answer(written(tmp_path, "b.txt", pmon(client, (41201, "C", "0", "python3")))).devices[0].sharing
    assert idle.mode == "mps"
    assert any("python3 (pid 41201)" in one.detail for one in idle.evidence)
    server = (8810, "C", "5", "nvidia-cuda-mps")
    alone = answer(written(tmp_path, "c.txt", pmon(client, server))).devices[0].sharing
    assert alone.mode == "mps"
    assert not any("outside of MPS" in one.detail for one in alone.evidence)


def test_a_gate_on_samples_says_what_it_needs(tmp_path: Path) -> None:
    file = written(tmp_path, "a.txt", pmon((41377, "M+C", "30", "a"), (41378, "M+C", "30", "b")))
    checked = CliRunner().invoke(cli, ["check", str(file), "--expect-mode", "mps"])
    assert checked.output.startswith("check: inconclusive")
    said = "INCONCLUSIVE  expect-mode (GPU of unknown name (device 0)): samples and settings observe nothing"
    assert said in checked.output


def test_a_guest_is_sent_to_the_host_of_its_virtual_gpu(tmp_path: Path) -> None:
    guest = written(tmp_path, "gpu.csv", GPU.replace("NVIDIA H100 80GB HBM3", "GRID P4-1Q"))
    assert "Do Look at the vGPU host" in first_screen(guest)
    assert "nvidia-smi vgpu -q" in first_screen(guest)


def test_settings_in_the_place_of_a_saved_report_are_sent_to_their_option(tmp_path: Path) -> None:
    file = written(tmp_path, "objects.json", node("n1", "NVIDIA-L40S", 1, "none", 1))
    refused = CliRunner().invoke(cli, ["check", "--expect-agreement", str(file)])
    assert "--context" in str(refused.exception) + refused.output
    assert "Field required" not in str(refused.exception) + refused.output


def test_many_nodes_keep_the_first_screen(tmp_path: Path) -> None:
    objects: list[dict[str, Any]] = []
    for number in range(9):
        objects.append(node(f"n{number}", f"NVIDIA-A{number}-SXM4-80GB-SHARED", 2, "time-slicing", 4))
        objects += [pod(f"a-pod-with-a-long-name-{number}-{each}", f"n{number}", gpus=2) for each in range(9)]
    screen = render_summary(answer(written(tmp_path, "many.json", *objects)))
    assert len(screen.splitlines()) <= 15
    assert max(map(len, screen.splitlines())) <= 100
    assert screen.splitlines()[-1].startswith("Versions")
