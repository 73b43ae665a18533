"""Decide what may be read from the environment of a process, and how a host is identified without its name.

Recording, the reader of Kubernetes objects and the reader of recorded nodes apply the same list.
"""

from __future__ import annotations

import re
import socket
from functools import cache

from pyanalyze.text.numbers import bounded_float

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

#: Shapes of values by the first pattern that a variable's name fits; those of the reader of nsys metadata.
_SHAPES = tuple(
    (re.compile(name), re.compile(value, re.DOTALL | re.IGNORECASE))
    for name, value in (
        (r".*_PERCENTAGE", r"[0-9.]{1,64}"),
        (r"CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|CUDA_DEVICE_SM_LIMIT.*", r"[0-9]{1,10}"),
        (r"CUDA_DEVICE_MEMORY_LIMIT.*", r"[0-9]{1,19}(?:b|[kmgt][bi]?)?"),
        (r".*_(?:DIRECTORY|PATH)", r"/.{0,4095}"),
        (r".*", r"[a-z0-9._:,/+= -]{0,253}"),
    )
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


def has_shape(name: str, value: str) -> bool:
    """Whether the value of an allowed variable looks as such values do: a percentage is a number from 0 to 100.

    What else somebody keeps in such a variable, a secret for one, is not shown and decides nothing.

    Examples
    --------
    >>> [has_shape("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value) for value in ("12.5", "hunter2")]
    [True, False]
    """
    shape = next(shape for fits, shape in _SHAPES if fits.fullmatch(name))
    if shape.fullmatch(value) is None:
        return False
    return not name.endswith("_PERCENTAGE") or bounded_float(value, 0, 100) is not None


def known_host(digest: str | None) -> str | None:
    """The digest of a host name, where that names a host: exports whose names were removed all have the same one.

    Examples
    --------
    >>> known_host(host_hash("localhost")), known_host(host_hash("node-7")) == host_hash("node-7")
    (None, True)
    """
    return None if digest in _placeholders() else digest


@cache
def _placeholders() -> frozenset[str]:
    """Digests of names that stand for any host."""
    return frozenset(host_hash(name) for name in ("host", "localhost", "localhost.localdomain", "(none)"))


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
