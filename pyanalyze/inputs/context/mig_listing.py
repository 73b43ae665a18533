"""`nvidia-smi mig -lgi` and `-lci`: GPU instances and the compute instances inside them.

Keys: `mig_gpu_instance` (`gpu=0 gi=9 profile=1g.10gb placement=2:1`), `mig_compute_instance` (`gpu=0 gi=1
ci=0 profile=1c.3g.20gb placement=0:1`) and `mig_enabled_devices` (`0` where the command found none). Several
compute instances in one GPU instance share its memory and its caches: the listing is the only place that says
so. `gpu` is the index of nvidia-smi, not our `device_id`.
"""

from __future__ import annotations

import re

from pyanalyze.inputs.context.base import Reader, Row, once
from pyanalyze.text.pairs import pairs

# The box is drawn wider or narrower by driver; a profile with `+me` or `-me` has the same columns.
_TITLE = re.compile(r"\|\s*(GPU|Compute) instances:\s*\|")
_GPU_INSTANCE = re.compile(r"\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+(\d+:\d+)\s*\|")
# Older drivers list no placement of compute instances.
_COMPUTE_INSTANCE = re.compile(r"\|\s+(\d+)\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)(?:\s+(\d+:\d+))?\s*\|")
_NONE = re.compile(r"^No MIG-enabled devices found\.", re.MULTILINE)


def _sniff(text: str) -> bool:
    return _TITLE.search(text) is not None or _NONE.search(text) is not None


def _read(text: str) -> list[Row]:
    rows: list[Row] = []
    listing = None
    for line in text.splitlines():
        if title := _TITLE.search(line):
            listing = title[1]
        elif _NONE.match(line):
            # An answer, not a failure: MIG was looked for and is off everywhere.
            rows.append(Row("mig_enabled_devices", "0"))
        elif listing == "GPU" and (found := _GPU_INSTANCE.search(line)):
            gpu, profile, gi, placement = found.groups()
            rows.append(Row("mig_gpu_instance", pairs(gpu=gpu, gi=gi, profile=profile, placement=placement)))
        elif listing == "Compute" and (found := _COMPUTE_INSTANCE.search(line)):
            gpu, gi, profile, ci, placement = found.groups()
            value = pairs(gpu=gpu, gi=gi, ci=ci, profile=profile, placement=placement)
            rows.append(Row("mig_compute_instance", value))
    return once(rows)


READER = Reader("nvidia-smi-mig", "`nvidia-smi mig -lgi` and `-lci`", _sniff, _read)
