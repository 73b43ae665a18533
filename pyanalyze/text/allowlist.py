"""Decide what may be read from the environment of a process, and how a host is identified without its name.

Recording, the reader of Kubernetes objects and the reader of recorded nodes apply the same list.
"""

from __future__ import annotations

import socket

#: Variables that say how a GPU was to be shared; a name that ends in `*` stands for all that start so.
#: The same list as in the reader of nsys metadata (a test compares the two).
ALLOWED = (
    "CUDA_MPS_*",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MEMORY_LIMIT*",
    "CUDA_DEVICE_SM_LIMIT*",
    "NVSHARE_*",
)


def is_allowed(name: str) -> bool:
    """Whether a variable may be read out.

    Examples
    --------
    >>> is_allowed("CUDA_MPS_PIPE_DIRECTORY"), is_allowed("AWS_SECRET_ACCESS_KEY")
    (True, False)
    """
    plain = name.isascii() and name.replace("_", "a").isalnum()
    return plain and any(name.startswith(a[:-1]) if a.endswith("*") else name == a for a in ALLOWED)


def host_hash(name: str | None = None) -> str:
    """FNV-1a of the host name, as the reader of nsys captures makes it: equal hosts can be told, not named.

    Examples
    --------
    >>> host_hash("foobar")  # a test vector of the authors of FNV
    '85944171f73967e8'
    """
    value = 0xCBF29CE484222325
    for byte in (socket.gethostname() if name is None else name).encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"
