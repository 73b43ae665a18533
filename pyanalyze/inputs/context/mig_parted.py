"""A configuration of NVIDIA's mig-parted (and of the GPU operator's MIG manager): a menu of MIG layouts.

Key: `mig_layout` (`layout=all-1g.10gb gpu=all enabled=true profiles=1g.10gb:7`), one row per layout and set of GPUs. It
is a menu: which layout was ordered stands in the node's label `nvidia.com/mig.config` (`k8s_node`), which one is in
force in `nvidia-smi mig -lgi`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.inputs.context.base import Reader, Row, documents, mapping, once, plain
from pyanalyze.text.pairs import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_config(document: Any) -> bool:
    """Whether a parsed document is such a configuration.

    Examples
    --------
    >>> is_config({"version": "v1", "mig-configs": {}}), is_config({"mig-configs": 1})
    (True, False)
    """
    return isinstance(document, dict) and isinstance(document.get("mig-configs"), dict)


def rows(document: Any) -> Iterator[Row]:
    """Rows of a parsed configuration.

    Examples
    --------
    >>> layout = {"devices": "all", "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}
    >>> [row.value for row in rows({"mig-configs": {"halves": [layout]}})]
    ['layout=halves gpu=all enabled=true profiles=3g.40gb:2']
    """
    for name, parts in document["mig-configs"].items():
        for part in parts if isinstance(parts, list) else []:
            if not isinstance(part, dict):
                continue
            devices = part.get("devices")
            listed = [plain(device) for device in (devices if isinstance(devices, list) else [devices])]
            profiles = mapping(part.get("mig-devices"))
            yield Row(
                "mig_layout",
                pairs(
                    layout=plain(name),
                    gpu=",".join(device for device in listed if device is not None) or None,
                    enabled=plain(part.get("mig-enabled")),
                    profiles=",".join(
                        f"{profile}:{count}"
                        for profile, count in profiles.items()
                        if plain(profile) is not None and isinstance(count, int)
                    )
                    or None,
                ),
            )


def _sniff(text: str) -> bool:
    return any(is_config(document) for document in documents(text, "mig-configs:"))


def _read(text: str) -> list[Row]:
    return once(row for document in documents(text, "mig-configs:") if is_config(document) for row in rows(document))


READER = Reader("mig-parted", "a mig-parted configuration (YAML)", _sniff, _read)
