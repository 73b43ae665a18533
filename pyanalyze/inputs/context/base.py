"""What a context reader is, and the rows it gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyanalyze.text.numbers import bounded_int, within_64_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Key of the pid that a process has in its own namespace.
INNER_PID = "process_pid"
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


def real_pid(text: str) -> int | None:
    """Read a pid of a log; `None` where the driver does not list the process.

    Examples
    --------
    >>> real_pid("4711"), real_pid("0"), real_pid("1073741824")
    (4711, None, None)
    """
    return bounded_int(text, 1, _PID_SENTINEL - 1)


def plain(value: object) -> str | None:
    """A value as one plain word; `None` for anything else: what is no word is no setting that we know.

    Examples
    --------
    >>> plain(4), plain(True), plain("all-1g.10gb"), plain("two words"), plain({"a": 1}), plain("")
    ('4', 'true', 'all-1g.10gb', None, None, None)
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else None


# Kubernetes names, quantities, paths, lists of indexes and UUIDs.
_PLAIN = re.compile(r"[A-Za-z0-9._:,/+=-]{1,253}")


def mapping(value: object) -> dict[Any, Any]:
    """A mapping, or an empty one for what should be one and is not.

    Examples
    --------
    >>> mapping({"a": 1}), mapping(["a"]), mapping(None)
    ({'a': 1}, {}, {})
    """
    return value if isinstance(value, dict) else {}


def program(command: str) -> str:
    """The program of a command line: arguments hold tokens.

    Examples
    --------
    >>> program("/opt/serve/worker --api-key=1234")
    '/opt/serve/worker'
    """
    return command.split(maxsplit=1)[0] if command.split() else ""


#: Longer texts are no configuration that anybody wrote.
_MAX_YAML = 4 << 20
_MAX_SLOW_YAML = 1 << 20


def documents(text: str, *words: str) -> list[Any]:
    """Parse YAML, if one of `words` stands in it; none where it is no YAML.

    Examples
    --------
    >>> documents("sharing: {mps: {}}", "sharing:"), documents("sharing: {", "sharing:"), documents("a: 1", "b:")
    ([{'sharing': {'mps': {}}}], [], [])
    """
    if len(text) > _MAX_YAML or not any(word in text for word in words):
        return []
    import yaml

    # The parser in C, where PyYAML was built with it: objects of a cluster are some megabytes. It recurses without end.
    loader = yaml.SafeLoader if _is_deep(text) else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if loader is yaml.SafeLoader and len(text) > _MAX_SLOW_YAML:
        return []
    try:
        found = list(yaml.load_all(text, Loader=loader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return []
    return [document for document in found if within_64_bits(document)]


#: Deeper than anything that Kubernetes writes, and far from what exhausts a stack.
_MAX_NESTING = 200
_BLOCKS = re.compile(rf"(?:[-?:][ \t]+){{{_MAX_NESTING}}}")


def _is_deep(text: str) -> bool:
    """Whether brackets or block markers may be nested deeper than any configuration is."""
    depth = deepest = 0
    for found in re.finditer(r"[\[{\]}]", text):
        depth += 1 if found[0] in "[{" else -1
        deepest = max(deepest, depth)
        # What closes more than it opens (in text) must not hide what follows.
        depth = max(depth, 0)
    return deepest > _MAX_NESTING or _BLOCKS.search(text) is not None or _indents(text) > _MAX_NESTING


def _indents(text: str) -> int:
    """The longest indentation, in blanks."""
    return max((len(found[0]) for found in re.finditer(r"^[ \t]+", text, re.MULTILINE)), default=0)


def once(rows: Iterable[Row]) -> list[Row]:
    """Drop repetitions, keep the order: logs and pasted terminals say the same thing many times."""
    return list(dict.fromkeys(rows))
