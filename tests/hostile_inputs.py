"""Names, captures and files that were made to do harm; tests and fuzz/sweep.py try them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from pathlib import Path

ESCAPES = "\x1b]52;c;eHg=\x07\x1b[2J\x9b31m\x7f\x00"
LINES = "x\n::error::y\r\n\x0b\x0c\x85\u2028\u2029z\tq"
BIDI = "\u202egnp.exe\u2066\u2069\u200f\u061c\u200b\ufeff"
#: Beyond the Basic Multilingual Plane: two units each where text is UTF-16; the last two are invisible tags.
ASTRAL = "train_\U0001f680" + "\U0001f525" * 60 + "\U000e0041\U000e007f"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>|**b**[x](javascript:alert(1))\n\n# h\n```\n&lt;"
SHELL = '$(touch /tmp/pwned)`id`\'; "rm -rf ~" #\\\\'
QUOTED = '"},{"a":"\\u0000",\'),(1);--'
FORMATS = "{0}{x!r}%s%n%(a)s{{7*7}}{% raw %}${7*7}"
FORMULAS = ("=cmd|'/c calc'!A0", "@SUM(1+1)", "+1+cmd|' /c calc'!A0", "-2+3+cmd|' /c calc'!A0", "\t=1+1", "\uff1d1+1")

#: Each tries everything of one kind.
NAMES = {
    "escapes": ESCAPES,
    "lines": LINES,
    "bidi": BIDI,
    "astral": ASTRAL,
    "markup": MARKUP,
    "shell": SHELL,
    "quoted": QUOTED,
    "formats": FORMATS,
    "long": "n" * 10_000,
    **{f"formula{number}": text for number, text in enumerate(FORMULAS)},
}

#: Commands a terminal, hides, or turns around; line ends and tabs are left to who knows the format.
COMMANDING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def commanding(text: str) -> list[str]:
    """Where something in a text would command a terminal, with what stands around it."""
    return [repr(text[max(0, found.start() - 40) : found.end() + 40]) for found in COMMANDING.finditer(text)]


def hostile_capture(source: Path, target: Path, name: str) -> Path:
    """Copy an export, with a name wherever an export has text of the recorded programs and machine."""
    shutil.copy(source, target)
    with contextlib.closing(sqlite3.connect(target)) as db, db:
        stem = name.replace("\0", "")
        kernels = "SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT shortName FROM CUPTI_ACTIVITY_KIND_KERNEL"
        tables = {table for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "CUPTI_ACTIVITY_KIND_KERNEL" in tables:
            db.execute(f"UPDATE StringIds SET value = ? || value WHERE id IN ({kernels})", (stem,))
        for table, column in (
            ("PROCESSES", "name"),
            ("TARGET_INFO_GPU", "name"),
            ("TARGET_INFO_GPU", "chipName"),
            ("TARGET_INFO_GPU", "busLocation"),
            ("NVTX_EVENTS", "text"),
            ("DIAGNOSTIC_EVENT", "text"),
            ("TARGET_INFO_SYSTEM_ENV", "value"),
        ):
            if table in tables:
                db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" IS NOT NULL', (name,))
    return target


def file_name(name: str, ending: str) -> str:
    """A name as a file may have it."""
    plain = name.replace("/", "_").replace("\0", "_")
    while len(plain.encode("utf-8")) > 120:
        plain = plain[:-1]
    return plain + ending


_GPU = "GPU-11111111-2222-3333-4444-555555555555"
#: Every format of a configuration that is read, small; pids, users and UUIDs are made up.
CONTEXT = {
    "list": f"GPU 0: NVIDIA H200 (UUID: {_GPU})\n  MIG 1g.18gb Device 0: (UUID: MIG-{_GPU}/2/0)\n",
    "mig": "| GPU instances:                  |\n|   0  MIG 1g.10gb+me  20  9  2:1 |\n"
    "| Compute instances:                             |\n|   0  2  MIG 1c.3g.40gb  0  1  1:1               |\n",
    "no-mig": "No MIG-enabled devices found.\n",
    "policy": "GPU  0: Timeslice: Default\nGPU  1: Timeslice: Short\n|   1  Timeslice  Short   |\n",
    "log": "[2026-03-04 10:00:00.100 Control   261] Starting control daemon using socket /run/pipe/control\n"
    "[2026-03-04 10:00:01.202 Control   337] Starting new server 337 for user 0\n"
    "[2026-03-04 10:00:01.204 Server   337] Creating server context on device 0 (Tesla T4)\n"
    "[2026-03-04 10:00:01.205 Server   337] Active Threads Percentage set to 12.5\n"
    "[2026-03-04 10:00:01.206 Server   337] Device pinned memory limit for device 0 set to 0x140000000 bytes\n"
    "[2026-03-04 10:00:02.001 Server   337] Client {PID: 4711, Context ID: 1} connected\n",
    "control": "$ echo get_server_list | nvidia-cuda-mps-control\n51\nget_client_list 51\n4711\n"
    "get_default_active_thread_percentage\n100.0\nget_device_pinned_mem_limit 51 0\n4G\nps\n"
    "PID       ID    SERVER  DEVICE             NAMESPACE   COMMAND\n"
    "4711      1     51      GPU-11111111       1           /opt/worker --key=x\ndevice_query\n"
    "Device Ordinal    PCI IDs         UUID      Name\n"
    f"0                 0000:01:00.00   {_GPU}   NVIDIA H200      Attrs\nlspart\n"
    "GPU           Partition   Free chunk   Used chunk   Free SM   Used SM   Clients\n"
    "GPU-11111111  Dx          0            7            0         56        Yes\nquit\n",
    "plugin": "version: v1\nflags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n    resources:\n"
    '    - name: nvidia.com/gpu\n      replicas: 4\n      devices: ["0"]\n',
    "parted": "version: v1\nmig-configs:\n  mixed:\n    - devices: [0, 1]\n      mig-enabled: true\n      mig-devices:\n"
    '        "1g.10gb": 2\n',
    "pod": json.dumps({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "serve-0", "namespace": "prod", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{
            "name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "claims": [{"name": "gpu"}]},
            "env": [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "50"}],
        }]},
    }),
    "node": json.dumps({
        "apiVersion": "v1", "kind": "NodeList", "items": [{
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "labels": {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"}},
            "status": {"capacity": {"nvidia.com/gpu.shared": "8"}, "allocatable": {"nvidia.com/gpu.shared": "4"}},
        }],
    }),
}  # fmt: skip
