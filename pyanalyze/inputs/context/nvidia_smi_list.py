"""`nvidia-smi -L`: the GPUs, and the MIG devices that were cut from them.

Keys: `gpu` (`gpu=0 uuid=GPU-... name=...`) and `mig_device` (`gpu=0 device=1 profile=2g.20gb uuid=MIG-...
gpu_uuid=GPU-...`). `gpu` is the index of nvidia-smi, which is neither the CUDA ordinal nor our `device_id`:
join by UUID.
"""

from __future__ import annotations

import re

from pyanalyze.inputs.context.base import Reader, Row, once
from pyanalyze.text.pairs import pairs

_GPU = re.compile(r"^[ \t]*GPU (\d+): (.+?) \(UUID: (GPU-[0-9A-Fa-f-]+)\)[ \t\r]*$", re.MULTILINE)
_LINE = re.compile(
    r"^[ \t]*GPU (?P<gpu>\d+): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[0-9A-Fa-f-]+)\)[ \t\r]*$"
    # Before R470 a MIG device was MIG-GPU-<uuid of the GPU>/<GPU instance>/<compute instance>.
    r"|^[ \t]*MIG (?P<profile>\S+)[ \t]+Device[ \t]+(?P<device>\d+):[ \t]+"
    r"\(UUID: (?P<mig>MIG-[0-9A-Za-z/-]+)\)[ \t\r]*$",
    re.MULTILINE,
)


def _sniff(text: str) -> bool:
    return _GPU.search(text) is not None


def _read(text: str) -> list[Row]:
    rows: list[Row] = []
    gpu: str | None = None
    uuid: str | None = None
    for match in _LINE.finditer(text):
        if match["gpu"] is not None:
            gpu, uuid = match["gpu"], match["uuid"]
            rows.append(Row("gpu", pairs(gpu=gpu, uuid=uuid, name=match["name"])))
        else:
            value = pairs(gpu=gpu, device=match["device"], profile=match["profile"], uuid=match["mig"], gpu_uuid=uuid)
            rows.append(Row("mig_device", value))
    return once(rows)


READER = Reader("nvidia-smi-list", "`nvidia-smi -L`", _sniff, _read)
