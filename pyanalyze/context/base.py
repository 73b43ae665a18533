"""What a context reader is, and the rows it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# What the driver logs in place of a pid from another pid namespace: no process has it (pid_max is 2**22).
_PID_SENTINEL = 1 << 30


class Row(NamedTuple):
    """One row of `configured`, without what only the session knows.

    Attributes
    ----------
    key
        Property. Where an environment variable means the same, its name.
    value
        Plain text, or `name=value` pairs made by `pairs`.
    pid
        Process it concerns; `None`: the device or the whole machine.
    """

    key: str
    value: str
    pid: int | None = None


@dataclass(frozen=True)
class Reader:
    """One format.

    Attributes
    ----------
    name
        Stands in `configured.source`.
    title
        How people call the format, for messages.
    sniff
        Text -> does it hold this format? Other things may stand around it: people paste whole terminals.
    read
        Text -> rows in the order of the text, each once.
    """

    name: str
    title: str
    sniff: Callable[[str], bool]
    read: Callable[[str], Iterable[Row]]


def pairs(**fields: object) -> str:
    """Several properties of one thing as one value.

    Parameters
    ----------
    **fields
        Properties; spaces are allowed in the last one only.

    Returns
    -------
    str
        `name=value` pairs separated by spaces, without those that are `None`.

    Examples
    --------
    >>> pairs(gpu=0, uuid="GPU-1", name="NVIDIA H200")
    'gpu=0 uuid=GPU-1 name=NVIDIA H200'
    """
    return " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def parse_pairs(value: str) -> dict[str, str]:
    """Take apart what `pairs` put together.

    Examples
    --------
    >>> parse_pairs("gpu=0 uuid=GPU-1 name=NVIDIA H200")
    {'gpu': '0', 'uuid': 'GPU-1', 'name': 'NVIDIA H200'}
    """
    found: dict[str, str] = {}
    last = ""
    for word in value.split(" "):
        name, equals, rest = word.partition("=")
        # `name` is the one field with spaces, and product names are hostile text: nothing after it is a pair.
        if equals and last != "name":
            found[name] = rest
            last = name
        elif last:
            found[last] += f" {word}"
    return found


def real_pid(text: str) -> int | None:
    """Read a pid of a log; `None` where the driver could not see the process.

    Examples
    --------
    >>> real_pid("4711"), real_pid("0"), real_pid("1073741824")
    (4711, None, None)
    """
    pid = int(text)
    return pid if 0 < pid < _PID_SENTINEL else None


def once(rows: Iterable[Row]) -> list[Row]:
    """Drop repetitions, keep the order: logs and pasted terminals say the same thing many times."""
    return list(dict.fromkeys(rows))
