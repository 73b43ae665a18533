"""`nvidia-smi compute-policy --list`: how long a time slice may be.

Key: `compute_policy` (`gpu=0 timeslice=default`). NVIDIA gives the steps names (default, short, medium, long) and
no milliseconds. `gpu` is the index of nvidia-smi, not our `device_id`.
"""

from __future__ import annotations

import re

from pyanalyze.inputs.context.base import Reader, Row, once
from pyanalyze.text.numbers import bounded_int
from pyanalyze.text.pairs import pairs

# A box with one GPU a line, or plain lines, by driver. No blank may be matched by two parts of the pattern: of
# thousands all ways would be tried.
_POLICY = re.compile(
    r"^[ \t]*(?:\|[ \t]*)?(?:GPU[ \t]+)?(?P<gpu>\d+)\b[^\n|]*?\bTime-?slice\b[\s:|]*"
    r"(?P<timeslice>Default|Short|Medium|Long)\b",
    re.MULTILINE | re.IGNORECASE,
)


def _sniff(text: str) -> bool:
    return _POLICY.search(text) is not None


def _read(text: str) -> list[Row]:
    return once(
        Row("compute_policy", pairs(gpu=gpu, timeslice=found["timeslice"].lower()))
        for found in _POLICY.finditer(text)
        if (gpu := bounded_int(found["gpu"])) is not None
    )


READER = Reader("nvidia-smi-compute-policy", "`nvidia-smi compute-policy --list`", _sniff, _read)
