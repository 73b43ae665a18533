"""What listings and logs say was configured, in the columns of the table `configured`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import polars as pl
import pytest

from pyanalyze.context import READERS, read_context
from pyanalyze.context.base import pairs, parse_pairs
from pyanalyze.exceptions import SamplesUnreadable

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
    assert [sum(row[0] == reader.name for row in rows) for reader in READERS] == [5, 4, 7]
    assert not [row for row in rows if "1234" in row[3] or "\r" in row[3]]


def test_power_shell_writes_utf_16(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(LIST, encoding="utf-16")
    assert read_context(tmp_path / "list.txt").height == 5


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\xff\xfe" * 9, b"GPU 0: NVIDIA H200\n"])
def test_an_unknown_file_is_refused_with_the_known_formats(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "what.txt").write_bytes(content)
    with pytest.raises(SamplesUnreadable) as caught:
        read_context(tmp_path / "what.txt")
    assert "what.txt: no known context format; known are" in str(caught.value)
    assert [reader.title in str(caught.value) for reader in READERS] == [True, True, True]


def test_a_missing_file_is_the_builtin_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_context(tmp_path / "no.txt")


def test_pairs_come_apart_whatever_a_product_is_called() -> None:
    value = pairs(gpu=0, placement=None, uuid=GPU_A, name="X uuid=GPU-evil =  Y")
    assert parse_pairs(value) == {"gpu": "0", "uuid": GPU_A, "name": "X uuid=GPU-evil =  Y"}


def test_columns_are_those_that_the_core_declares(tmp_path: Path) -> None:
    rust = (ROOT / "rust" / "core" / "src" / "schema.rs").read_text(encoding="utf-8")
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
