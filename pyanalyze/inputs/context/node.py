"""`node.json` of `pyanalyze record`: who the machine and its processes were while it recorded.

Keys: `gpu` and `mig_device` (as of `nvidia-smi -L`, with `gi=` and `ci=`), `mps_daemon` and `mps_server`, the
allow-listed variables of each process that was on a GPU (by name), `k8s_pod` (`pod=namespace/name container=...`) and
`container` (its id), `process_pid` (its pid in its own namespace). Pids are the host's.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyanalyze.inputs.context.base import INNER_PID, Reader, Row, mapping, once, plain
from pyanalyze.text.allowlist import has_shape, is_allowed
from pyanalyze.text.numbers import bounded_int
from pyanalyze.text.pairs import pairs
from pyanalyze.vocabulary import MPS_CONTROL, MPS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = re.compile(r'"schema"\s*:\s*"pyanalyze\.node/1"')
_PROFILE = re.compile(r"MIG ((?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z.]+)?)")


def _document(text: str) -> dict[str, Any]:
    if _SCHEMA.search(text) is None:
        return {}
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _rows(node: dict[str, Any]) -> Iterator[Row]:
    for gpu in _list(node.get("gpus")):
        index, uuid = plain(gpu.get("gpu_index")), plain(gpu.get("gpu_uuid"))
        yield Row("gpu", pairs(gpu=index, uuid=uuid, name=gpu.get("gpu_name")))
        for number, part in enumerate(_list(gpu.get("mig"))):
            profile = _PROFILE.search(str(part.get("name")))
            yield Row(
                "mig_device",
                pairs(
                    gpu=index,
                    device=number,
                    profile=profile[1] if profile else None,
                    uuid=plain(part.get("uuid")),
                    gpu_uuid=uuid,
                    gi=plain(part.get("mig_gi_id")),
                    ci=plain(part.get("mig_ci_id")),
                ),
            )
    for process in _list(node.get("mps_processes")):
        # Of other users' processes only 15 characters of the name are public, and both are called nvidia-cuda-mps.
        server = str(process.get("name")).endswith(MPS_SERVER)
        name = MPS_SERVER if server else MPS_CONTROL
        yield Row("mps_server" if server else "mps_daemon", name, _pid(process.get("pid")))
    for text, facts in mapping(node.get("processes")).items():
        pid = _pid(text)
        if pid is None or not isinstance(facts, dict):
            continue
        for name, value in mapping(facts.get("environment")).items():
            if isinstance(value, str) and is_allowed(name) and has_shape(name, value):
                yield Row(name, value, pid)
        # What ties a pid of a container to this one. The program's name stands in the aligned samples.
        nspids = facts.get("nspids")
        if isinstance(nspids, list) and nspids and (inner := _pid(nspids[-1])):
            yield Row(INNER_PID, str(inner), pid)
        namespace, pod = plain(facts.get("namespace")), plain(facts.get("pod"))
        if namespace and pod:
            yield Row("k8s_pod", pairs(pod=f"{namespace}/{pod}", container=plain(facts.get("container"))), pid)
        if container := plain(facts.get("container_id")):
            yield Row("container", container, pid)


def _list(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _pid(value: Any) -> int | None:
    text = plain(value)
    return None if text is None else bounded_int(text, 1, (1 << 22) - 1)


def _sniff(text: str) -> bool:
    return bool(_document(text))


def _read(text: str) -> list[Row]:
    return once(_rows(_document(text)))


READER = Reader("recording-node", "`node.json` of `pyanalyze record`", _sniff, _read)
