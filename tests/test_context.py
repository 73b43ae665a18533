"""What listings and logs say was configured, in the columns of the table `configured`."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pyanalyze.errors import SamplesUnreadable
from pyanalyze.inputs.context import READERS, place_context, read_context
from pyanalyze.text.pairs import pairs, parse_pairs

ROOT = Path(__file__).parents[1]
CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT / ".." / "shared" / "corpus"))
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real captures at {CORPUS}: set PYANALYZE_CORPUS")

GPU_A = "GPU-11111111-2222-3333-4444-555555555555"
GPU_B = "GPU-aaaaaaaa-2222-3333-4444-555555555555"
LIST = f"""\
GPU 0: NVIDIA H200 (UUID: {GPU_A})
  MIG 1c.3g.71gb  Device  0: (UUID: MIG-00000000-1111-2222-3333-444444444444)
  MIG 1g.18gb+me  Device  1: (UUID: MIG-00000001-1111-2222-3333-444444444444)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {GPU_B})
  MIG 3g.20gb Device 0: (UUID: MIG-{GPU_B}/2/0)
"""

INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb+me      20        9          2:1     |
+-------------------------------------------------------+
|   1  MIG 3g.40gb          9        2          4:4     |
+-------------------------------------------------------+
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   1      2       MIG 1c.3g.40gb       0         0          0:1     |
+--------------------------------------------------------------------+
|   1      2       MIG 1c.3g.40gb       0         1          1:1     |
+--------------------------------------------------------------------+
"""
OLD_COMPUTE_INSTANCES = """\
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|   0      1       MIG 1c.3g.20gb       0         2     |
"""

# Written by hand from the grammar of the two dialects; times, pids and users are made up.
OLD_LOG = """\
mps-daemon  | [2022-03-04 10:00:00.100 Control    40] Starting control daemon using socket /run/mps/control
mps-daemon  | [2022-03-04 10:00:01.200 Control    40] Accepting connection...
mps-daemon  | [2022-03-04 10:00:01.200 Control    40] User did not send valid credentials
mps-daemon  | [2022-03-04 10:00:01.201 Control    40] NEW CLIENT 0 from user 1234: Server is not ready, push client to pending list
mps-daemon  | [2022-03-04 10:00:01.202 Control    40] Starting new server 51 for user 1234
mps-daemon  | [2022-03-04 10:00:01.300 Other    51] Volta MPS: Creating server context on device 0
mps-daemon  | [2022-03-04 10:00:01.400 Control    40] NEW SERVER 51: Ready
mps-daemon  | [2022-03-04 10:00:01.401 Other    51] activeThreadsPercentage set to 33.000000
mps-daemon  | [2022-03-04 10:00:01.402 Other    51] Volta MPS Server: Received new client request
mps-daemon  | [2022-03-04 10:00:01.500 Other    51] Volta MPS: Device Tesla T4 (uuid 0xa1-0xb2-0xc3-0xd4) is associated
mps-daemon  | [2022-03-04 10:00:02.000 Control    40] NEW CLIENT 77 from user 1234: Server already exists
mps-daemon  | [2022-03-04 10:00:02.001 Control    40] NEW CLIENT 77 from user 1234: Server already exists
mps-daemon  | [2022-03-04 10:00:09.000 Other    51] Volta MPS: Client disconnected. Number of active client contexts is 0
"""
NEW_LOG = """\
[2026-03-04 10:00:00.100 Control   261] Starting control daemon using socket /run/nvidia/mps/pipe/control
[2026-03-04 10:00:01.202 Control   337] Starting new server 337 for user 0
[2026-03-04 10:00:01.203 Other   337] Startup
[2026-03-04 10:00:01.204 Server   337] Creating server context on device 0 (Tesla T4)
[2026-03-04 10:00:01.205 Server   337] Active Threads Percentage set to 12.5
[2026-03-04 10:00:01.206 Server   337] Device pinned memory limit for device 0 set to 0x140000000 bytes
[2026-03-04 10:00:01.207 Server   337] Server has started
[2026-03-04 10:00:02.000 Server   337] Received new client request for {PID: 4711, Context ID: 1}
[2026-03-04 10:00:02.001 Server   337] Client {PID: 4711, Context ID: 1} connected
[2026-03-04 10:00:02.002 Server   337] Client {PID: 4711, Context ID: 2} connected
[2026-03-04 10:00:03.001 Server   337] Client {PID: 1073741824, Context ID: 3} connected
"""


def read(folder: Path, text: str) -> list[tuple[str, int | None, str, str]]:
    (folder / "context.txt").write_text(text, encoding="utf-8")
    frame = read_context(folder / "context.txt")
    assert frame["capture"].null_count() == frame["device_id"].null_count() == frame.height
    return frame.select(pl.col("source").cast(pl.String), "pid", pl.col("key").cast(pl.String), "value").rows()


def test_the_device_list_joins_by_uuid(tmp_path: Path) -> None:
    source = "nvidia-smi-list"
    assert read(tmp_path, LIST) == [
        (source, None, "gpu", f"gpu=0 uuid={GPU_A} name=NVIDIA H200"),
        (source, None, "mig_device", "gpu=0 device=0 profile=1c.3g.71gb"
         f" uuid=MIG-00000000-1111-2222-3333-444444444444 gpu_uuid={GPU_A}"),
        (source, None, "mig_device", "gpu=0 device=1 profile=1g.18gb+me"
         f" uuid=MIG-00000001-1111-2222-3333-444444444444 gpu_uuid={GPU_A}"),
        (source, None, "gpu", f"gpu=1 uuid={GPU_B} name=NVIDIA A100-SXM4-40GB"),
        (source, None, "mig_device", f"gpu=1 device=0 profile=3g.20gb uuid=MIG-{GPU_B}/2/0 gpu_uuid={GPU_B}"),
    ]  # fmt: skip


def test_mig_listings_tell_gpu_and_compute_instances_apart(tmp_path: Path) -> None:
    source = "nvidia-smi-mig"
    assert read(tmp_path, INSTANCES) == [
        (source, None, "mig_gpu_instance", "gpu=0 gi=9 profile=1g.10gb+me placement=2:1"),
        (source, None, "mig_gpu_instance", "gpu=1 gi=2 profile=3g.40gb placement=4:4"),
        (source, None, "mig_compute_instance", "gpu=1 gi=2 ci=0 profile=1c.3g.40gb placement=0:1"),
        (source, None, "mig_compute_instance", "gpu=1 gi=2 ci=1 profile=1c.3g.40gb placement=1:1"),
    ]
    assert read(tmp_path, OLD_COMPUTE_INSTANCES) == [
        (source, None, "mig_compute_instance", "gpu=0 gi=1 ci=2 profile=1c.3g.20gb"),
    ]
    assert read(tmp_path, "No MIG-enabled devices found.\n") == [(source, None, "mig_enabled_devices", "0")]


def test_the_old_dialect_of_the_mps_log(tmp_path: Path) -> None:
    assert read(tmp_path, OLD_LOG) == [
        ("mps-log", 40, "mps_daemon", "nvidia-cuda-mps-control"),
        ("mps-log", None, "mps_client", "connected"),  # pid 0: the daemon saw no credentials
        ("mps-log", 51, "mps_server", "nvidia-cuda-mps-server"),
        ("mps-log", None, "mps_device", "device=0"),
        ("mps-log", None, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "33"),
        ("mps-log", None, "mps_device", "uuid_words=0xa1-0xb2-0xc3-0xd4 name=Tesla T4"),
        ("mps-log", 77, "mps_client", "connected"),
    ]


def test_the_new_dialect_of_the_mps_log(tmp_path: Path) -> None:
    assert read(tmp_path, NEW_LOG) == [
        ("mps-log", 261, "mps_daemon", "nvidia-cuda-mps-control"),
        ("mps-log", 337, "mps_server", "nvidia-cuda-mps-server"),
        ("mps-log", None, "mps_device", "device=0 name=Tesla T4"),
        ("mps-log", None, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5"),
        ("mps-log", None, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"0={5 * 1024**3}"),  # 0x140000000 is 5 GiB
        ("mps-log", 4711, "mps_client", "connected"),
        ("mps-log", None, "mps_client", "connected"),  # 2**30 stands for a pid of another namespace
    ]


def test_a_pasted_terminal_is_read_whole_and_users_are_left_out(tmp_path: Path) -> None:
    pasted = f"me@node:~$ nvidia-smi -L\r\n{LIST}\r\n$ nvidia-smi mig -lgi\r\n{INSTANCES}{OLD_LOG}".replace(
        "\n", "\r\n"
    )
    rows = read(tmp_path, pasted)
    assert [sum(row[0] == reader.name for row in rows) for reader in READERS] == [5, 4, 0, 7, 0, 0, 0, 0, 0]
    assert not [row for row in rows if "1234" in row[3] or "\r" in row[3]]


# From the manual page and NVIDIA's MPS documentation; pids, UUIDs and the token are made up.
CONTROL = """\
$ echo get_server_list | nvidia-cuda-mps-control
51
$ echo "get_client_list 51" | sudo nvidia-cuda-mps-control
4711
4712
$ echo get_default_active_thread_percentage | nvidia-cuda-mps-control
100.0
$ nvidia-cuda-mps-control
get_active_thread_percentage 51
33.0
get_device_pinned_mem_limit 51 0
4G
get_default_client_priority
0
$ echo ps | nvidia-cuda-mps-control
PID       ID    SERVER  DEVICE             NAMESPACE   COMMAND
4711      1     51      GPU-11111111       1           /opt/serve/worker --api-key=hunter2
device_query
Device Ordinal    PCI IDs         UUID                                       Name
0                 0000:01:00.00   GPU-11111111-2222-3333-4444-555555555555   NVIDIA H200      Attrs
lspart
GPU           Partition   Free chunk   Used chunk   Free SM   Used SM   Clients
GPU-11111111  -           9            7            76        56        -
GPU-11111111  Dx          0            7            0         56        Yes
quit
Cannot find MPS control daemon process
12
"""


def test_answers_of_the_mps_daemon(tmp_path: Path) -> None:
    source = "mps-control"
    assert read(tmp_path, CONTROL) == [
        (source, None, "mps_daemon", "nvidia-cuda-mps-control"),
        (source, 51, "mps_server", "nvidia-cuda-mps-server"),
        (source, 4711, "mps_client", "connected"),
        (source, 4712, "mps_client", "connected"),
        (source, None, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
        (source, 51, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "33"),
        (source, None, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G"),
        (source, None, "CUDA_MPS_CLIENT_PRIORITY", "0"),
        (source, 4711, "mps_client", "server=51 uuid=GPU-11111111 namespace_pid=1 name=/opt/serve/worker"),
        (source, None, "mps_device", f"device=0 uuid={GPU_A} name=NVIDIA H200"),
        (source, None, "mps_partition", "partition=- free_chunk=9 used_chunk=7 free_sm=76 used_sm=56 clients=-"
         " uuid=GPU-11111111"),
        (source, None, "mps_partition", "partition=Dx free_chunk=0 used_chunk=7 free_sm=0 used_sm=56 clients=Yes"
         " uuid=GPU-11111111"),
    ]  # fmt: skip
    # A daemon that is not there answers nothing, and numbers without a command say nothing.
    with_error = "$ echo get_server_list | nvidia-cuda-mps-control\nCannot find MPS control daemon process\n51\n"
    assert read(tmp_path, with_error) == []


@pytest.mark.parametrize(
    "text",
    [
        "GPU  0: Timeslice: Default\nGPU  1: Timeslice: Short\n",
        "+----+\n| GPU compute policies:  |\n| GPU  Policy     Value   |\n|====|\n|   0  Timeslice  Default |\n"
        "|   1  Timeslice  Short   |\n",
    ],
)
def test_time_slices_of_the_compute_policy(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [
        ("nvidia-smi-compute-policy", None, "compute_policy", "gpu=0 timeslice=default"),
        ("nvidia-smi-compute-policy", None, "compute_policy", "gpu=1 timeslice=short"),
    ]


PLUGIN = f"""\
version: v1
flags:
  migStrategy: mixed
  secretThing: hunter2
sharing:
  timeSlicing:
    renameByDefault: false
    resources:
    - name: nvidia.com/gpu
      replicas: 4
    - name: nvidia.com/mig-1g.10gb
      rename: nvidia.com/mig-1g.10gb.few
      replicas: 2
      devices: ["0", "{GPU_B}"]
    - name: [odd]
      replicas: many
  mps:
    resources:
    - name: nvidia.com/gpu
      replicas: 10
"""
PARTED = """\
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  mixed:
    - device-filter: ["0x20B010DE"]
      devices: [0, 1]
      mig-enabled: true
      mig-devices:
        "1g.10gb": 2
        "3g.40gb": 1
    - nonsense
"""
PLUGIN_ROWS = [
    ("mig_strategy", "mixed"),
    ("k8s_sharing", "strategy=time-slicing replicas=4 resource=nvidia.com/gpu"),
    ("k8s_sharing", "strategy=time-slicing replicas=2 resource=nvidia.com/mig-1g.10gb.few gpu=0"),
    ("k8s_sharing", f"strategy=time-slicing replicas=2 resource=nvidia.com/mig-1g.10gb.few uuid={GPU_B}"),
    ("k8s_sharing", "strategy=mps replicas=10 resource=nvidia.com/gpu"),
]
PARTED_ROWS = [
    ("mig_layout", "layout=all-disabled gpu=all enabled=false"),
    ("mig_layout", "layout=mixed gpu=0,1 enabled=true profiles=1g.10gb:2,3g.40gb:1"),
]


def test_configurations_in_yaml(tmp_path: Path) -> None:
    assert read(tmp_path, PLUGIN) == [("k8s-device-plugin", None, *row) for row in PLUGIN_ROWS]
    assert read(tmp_path, PARTED) == [("mig-parted", None, *row) for row in PARTED_ROWS]
    for broken in (PLUGIN + "  - :\n [", "sharing: {timeSlicing: " + "[" * 100_000, "sharing: true\n", "flags: []\n"):
        with pytest.raises(SamplesUnreadable):
            read(tmp_path, broken)


SECRET = "hunter2"


def objects() -> list[dict[str, Any]]:
    """Every kind that is read, with secrets wherever Kubernetes can hold them."""
    meta = {"annotations": {"token": SECRET, "nvidia.com/x": SECRET}, "uid": SECRET}
    return [
        {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {**meta, "name": "foobar", "labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED", "nvidia.com/gpu.replicas": "4",
                "nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/mig.config": SECRET + " it is",
                "kubernetes.io/hostname": SECRET, "secret": SECRET}},
            "status": {"capacity": {"nvidia.com/gpu.shared": "8", "cpu": "64"},
                       "allocatable": {"nvidia.com/gpu.shared": "4"}, "nodeInfo": {"machineID": SECRET}},
        },
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {**meta, "name": "serve-0", "namespace": "prod"},
            "spec": {"nodeName": "foobar", "containers": [{
                "name": "main", "command": ["run", SECRET], "args": [SECRET], "image": SECRET,
                "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "8Gi"}, "claims": [{"name": "gpu"}]},
                "env": [{"name": "API_KEY", "value": SECRET},
                        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "50"},
                        {"name": "CUDA_MPS_X", "value": f"a {SECRET}"},
                        {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"secretKeyRef": {"name": SECRET}}}],
            }]},
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": "plugin"},
         "data": {"a.yaml": PLUGIN, "b.yaml": PARTED, "key.pem": SECRET, "bad.yaml": "sharing: ["}},
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {**meta, "name": "gpu-7", "namespace": "prod"},
            "spec": {"devices": {"config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {
                "kind": "GpuConfig", "password": SECRET, "sharing": {"strategy": "MPS", "mpsConfig": {
                    "defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}}}}}]}},
            "status": {"reservedFor": [{"resource": "pods", "name": "serve-0", "uid": SECRET}],
                       "allocation": {"devices": {"results": [
                           {"driver": "gpu.nvidia.com", "pool": "foobar", "device": "gpu-0", "request": SECRET},
                           {"driver": "other.example.com", "pool": "p", "device": SECRET}]}}},
        },
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": SECRET}},
    ]  # fmt: skip


def test_kubernetes_objects_by_allow_list(tmp_path: Path) -> None:
    # FNV-1a of "foobar", from its authors.
    node = "85944171f73967e8"
    expected = [
        ("k8s_node", f"node={node} product=NVIDIA-A100-SXM4-40GB-SHARED sharing=time-slicing replicas=4"),
        ("k8s_sharing", f"strategy=time-slicing replicas=4 node={node}"),
        ("k8s_resource", f"node={node} resource=nvidia.com/gpu.shared capacity=8 allocatable=4"),
        ("k8s_owner", "pod=prod/serve-0 owner=none"),
        ("k8s_pod", f"pod=prod/serve-0 node={node} container=main resource=nvidia.com/gpu count=1"),
        ("k8s_pod", f"pod=prod/serve-0 node={node} container=main claim=gpu"),
        ("k8s_env", "pod=prod/serve-0 container=main CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"),
        *PLUGIN_ROWS,
        *PARTED_ROWS,
        ("k8s_claim", f"claim=prod/gpu-7 driver=gpu.nvidia.com node={node} device=gpu-0 pods=serve-0"),
        ("k8s_sharing", "strategy=mps claim=prod/gpu-7 percentage=50 memory=10Gi"),
    ]
    rows = [("kubernetes", None, *row) for row in expected]
    one_list = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}, indent=4)
    one_by_one = "\n".join(f"$ kubectl get x -o json\n{json.dumps(item)}" for item in objects())
    for text in (one_list, one_by_one):
        assert read(tmp_path, text) == rows
        assert SECRET in text
    assert SECRET not in str(rows)


def spoiled(value: Any, bad: Any) -> list[Any]:
    """All values that differ from `value` in one place."""
    found = [bad]
    if isinstance(value, dict):
        found += [{**value, key: other} for key in value for other in spoiled(value[key], bad)]
    elif isinstance(value, list):
        for at, item in enumerate(value):
            found += [[*value[:at], other, *value[at + 1 :]] for other in spoiled(item, bad)]
    return found


def test_objects_of_any_shape_are_survived(tmp_path: Path) -> None:
    """Wrong types anywhere end in fewer rows, never in another error."""
    odd: list[Any] = [None, 7, "x", [], {}, [None], [[]], {"items": 1}, True, 1.5]
    resources = {"resources": [{"name": "nvidia.com/gpu", "replicas": 4, "devices": ["0"]}]}
    plugin = {"flags": {"migStrategy": "none"}, "sharing": {"timeSlicing": resources, "mps": resources}}
    parted = {"mig-configs": {"a": [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]}}
    tried = 0
    # JSON is YAML as well.
    for item in [*objects()[:4], plugin, parted]:
        for other in (other for bad in odd for other in spoiled(item, bad)):
            (tmp_path / "odd.json").write_text(json.dumps(other), encoding="utf-8")
            try:
                rows = read_context(tmp_path / "odd.json")
            except SamplesUnreadable:
                continue
            assert SECRET not in str(rows["value"].to_list())
            tried += 1
    assert tried > 800


def test_rows_find_the_device_by_uuid_or_by_a_listing(tmp_path: Path) -> None:
    devices = pl.DataFrame(
        {"device_id": [5, 7], "uuid": [GPU_A, None]}, schema={"device_id": pl.UInt32, "uuid": pl.String}
    )
    texts = [LIST, "GPU  0: Timeslice: Short\nGPU  1: Timeslice: Long\nGPU  9: Timeslice: Long\n", CONTROL]
    frames = []
    for text in texts:
        (tmp_path / "context.txt").write_text(text, encoding="utf-8")
        frames.append(read_context(tmp_path / "context.txt"))
    listing, policy, control = place_context(frames, devices)
    # The board, not its instances, whose rows name themselves; GPU_B is not in the session.
    assert listing["device_id"].to_list() == [5, None, None, None, None]
    assert policy["device_id"].to_list() == [5, None, None]
    ids = dict(zip(control["value"], control["device_id"], strict=True))
    assert ids["server=51 uuid=GPU-11111111 namespace_pid=1 name=/opt/serve/worker"] == 5
    assert ids["33"] is None
    assert listing.schema == frames[0].schema


def test_power_shell_writes_utf_16(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(LIST, encoding="utf-16")
    assert read_context(tmp_path / "list.txt").height == 5


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\xff\xfe" * 9, b"GPU 0: NVIDIA H200\n"])
def test_an_unknown_file_is_refused_with_the_known_formats(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "what.txt").write_bytes(content)
    with pytest.raises(SamplesUnreadable) as caught:
        read_context(tmp_path / "what.txt")
    assert "what.txt: no known context format; known are" in str(caught.value)
    assert [reader.title in str(caught.value) for reader in READERS] == [True] * 9


def test_a_missing_file_is_the_builtin_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_context(tmp_path / "no.txt")


def test_pairs_come_apart_whatever_a_product_is_called() -> None:
    value = pairs(gpu=0, placement=None, uuid=GPU_A, name="X uuid=GPU-evil =  Y")
    assert parse_pairs(value) == {"gpu": "0", "uuid": GPU_A, "name": "X uuid=GPU-evil =  Y"}


def test_columns_are_those_that_the_core_declares(tmp_path: Path) -> None:
    rust = (ROOT / "rust" / "core" / "src" / "table" / "schema" / "session.rs").read_text(encoding="utf-8")
    table = re.search(r"pub const CONFIGURED: Table = .*?\n};", rust, re.DOTALL)
    assert table is not None
    declared = re.findall(r'(?:col|opt)\(\s*"(\w+)", (\w+),', table[0])
    kinds = {"U32": pl.UInt32, "Name": pl.Categorical, "Text": pl.String}
    (tmp_path / "list.txt").write_text(LIST, encoding="utf-8")
    assert dict(read_context(tmp_path / "list.txt").schema) == {name: kinds[kind] for name, kind in declared}
    assert len(declared) == 6


@needs_corpus
def test_real_listings_of_five_machines() -> None:
    # Counted by eye in the `nvidia-smi -L` sections; UUIDs of the GPUs are masked with zeros.
    expected = {
        "nvidia-geforce-rtx-2080-super": ("NVIDIA GeForce RTX 2080 SUPER", []),
        "nvidia-h100-80gb-hbm3": ("NVIDIA H100 80GB HBM3", []),
        "nvidia-h100-mig": ("NVIDIA H100 80GB HBM3", ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]),
        "nvidia-h200-mig": ("NVIDIA H200", ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]),
        "nvidia-l40s": ("NVIDIA L40S", []),
    }
    files = sorted((CORPUS / "samples" / "nvidia-gpu-exporter").glob("*.txt"))
    assert len(files) == len(expected)
    for file in files:
        name, profiles = expected[file.name.split("__")[3]]
        frame = read_context(file).with_columns(pl.col("key", "source").cast(pl.String))
        assert frame["source"].unique().to_list() == ["nvidia-smi-list"]
        gpus = frame.filter(pl.col("key") == "gpu")["value"].to_list()
        zeros = "GPU-00000000-0000-0000-0000-000000000000"
        assert [parse_pairs(value) for value in gpus] == [{"gpu": "0", "uuid": zeros, "name": name}]
        instances = [parse_pairs(value) for value in frame.filter(pl.col("key") == "mig_device")["value"]]
        assert [instance["profile"] for instance in instances] == profiles
        assert {instance["gpu_uuid"] for instance in instances} <= {zeros}
        assert len({instance["uuid"] for instance in instances}) == len(profiles)


HOSTILE = {
    "blanks": " " * 200_000,
    "blank lines": "\n" * 200_000,
    "empty cells": "| " * 100_000,
    "tabs in cells": "|\t" * 100_000,
    "GPUs without an end": "GPU 0: " * 30_000,
    "clients without an end": "Client {PID: 1," * 15_000,
    "braces": "{" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_a_reader_long(text: str) -> None:
    """A pattern in which two parts match the same blanks took 27 s for 40 KB of them, and 25 times that for these."""
    for reader in READERS:
        began = time.process_time()
        if reader.sniff(text):
            list(reader.read(text))
        assert time.process_time() - began < 5, reader.name


@pytest.mark.parametrize(
    "text",
    [
        "[2026-01-02 03:04:05.678 Control 4711] NEW SERVER 1: Ready\n"
        "[2026-01-02 03:04:05.678 Control 4711] NEW CLIENT " + "9" * 5000 + " from user 0: Server is ready\n",
        "[2026-01-02 03:04:05.678 Control " + "9" * 5000 + "] Starting control daemon\n",
        "[2026-01-02 03:04:05.678 Server 7] Device pinned memory limit for device 0 set to 0x"
        + "f" * 5000
        + " bytes\n",
        "$ echo get_server_list | nvidia-cuda-mps-control\n" + "7" * 5000 + "\n",
        "GPU " + "1" * 5000 + " Timeslice: Default\n",
    ],
)
def test_numbers_of_thousands_of_digits_are_no_numbers(tmp_path: Path, text: str) -> None:
    file = tmp_path / "context.txt"
    file.write_text(text, encoding="utf-8")
    frame = read_context(file)
    assert frame.filter(pl.col("value").str.len_chars() > 100).is_empty()
    assert frame["pid"].drop_nulls().is_in([1, 7, 4711]).all()
