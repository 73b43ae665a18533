"""Names replaced by pseudonyms: the same wherever a name stands, and nothing in them leads back."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyanalyze.tables.frames import FrameTable, to_frame
from pyanalyze.tables.names import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import polars as pl

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import Groups, TableSet

__all__ = ["FREE", "NAMED", "Names", "freed", "numbered", "redacted", "renamed"]

#: Names that say what a program is and not whose: verdicts and readers look for them.
_PUBLIC = re.compile(r"nvidia-(cuda-mps.*|persistenced|smi|dcgm.*)|nv-hostengine|other users|unknown process|pid \d+")
_OWNED = re.compile(r"\b(pods|pod|node|container|claim|namespace)=(\S+)")
_PATH = re.compile(r"(?<![\w/])/[^\s,;:'\"()\[\]]{2,}")


class Names:
    """One pseudonym per kind and name, the same wherever the name stands.

    Parameters
    ----------
    invent
        Gives the pseudonym of a name: called with the kind (`kernel`, `process`, ...), the name and how many of that
        kind there were before.

    Examples
    --------
    >>> names = Names(lambda kind, name, before: f"{kind}-{before + 1}")
    >>> names.of("process", "trainer"), names.of("process", "nvidia-cuda-mps-server"), names.of("process", "trainer")
    ('process-1', 'nvidia-cuda-mps-server', 'process-1')
    """

    def __init__(self, invent: Callable[[str, str, int], str]) -> None:
        self._invent = invent
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        # The pattern of all names seen, kept until there are more: thousands of them take seconds to compile.
        self._compiled: tuple[re.Pattern[str] | None, Mapping[str, str]] | None = None

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name; programs of the driver keep theirs."""
        if not name or _PUBLIC.fullmatch(name):
            return name
        found = self._known.get((kind, name))
        if found is None:
            before = self._counts.get(kind, 0)
            found = self._known[kind, name] = self._invent(kind, name, before)
            self._counts[kind] = before + 1
            if kind != "path":
                self._compiled = None
        return found

    def items(self) -> Iterator[tuple[str, str, str]]:
        """Kind, name and pseudonym of every name seen."""
        return ((kind, name, given) for (kind, name), given in self._known.items())

    def in_text(self, text: str) -> str:
        """Replace every name seen, and every path, inside free text."""
        pattern, lookup = self._pattern()
        if pattern is not None:
            text = pattern.sub(lambda match: lookup[match.group()], text)
        return _PATH.sub(lambda match: self.of("path", match.group()), text)

    def in_setting(self, text: str) -> str:
        """Replace what a configured value names: a process, a pod, a node, a container, a path; words stay words."""
        if ("process", text) in self._known:
            return self._known["process", text]
        text = _OWNED.sub(lambda match: f"{match[1]}={self.of(match[1].removesuffix('s'), match[2])}", text)
        return _PATH.sub(lambda match: self.of("path", match.group()), text)

    def _pattern(self) -> tuple[re.Pattern[str] | None, Mapping[str, str]]:
        if self._compiled is not None:
            return self._compiled
        # Paths come after: they may hold names. One or two characters are no name that could be told from a word.
        lookup = {name: given for (kind, name), given in self._known.items() if kind != "path" and len(name) > 2}
        words = sorted(lookup, key=len, reverse=True)
        pattern = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words)) if words else None
        self._compiled = pattern, lookup
        return self._compiled


#: table -> column -> kind of name. Device names and UUIDs stay: they say which hardware, not whose.
NAMED: Mapping[str, Mapping[str, str]] = {
    "capture": {"path": "capture"},
    "processes": {"name": "process"},
    "tenants": {"name": "process", "container": "container", "pod": "pod"},
    "kernels": {"name": "kernel", "short_name": "kernel"},
    "nvtx": {"text": "range"},
    "cpu_samples": {"function": "function", "module": "module"},
    "slowdowns": {"name": "kernel"},
    "tenant_slowdowns": {"work": "range"},
    "nvml_samples": {"process_name": "process", "pods": "pod", "source": "file"},
}
#: table -> columns with free text in which names may stand.
FREE: Mapping[str, tuple[str, ...]] = {
    "quality": ("detail",),
    "facts": ("detail",),
    "configured": ("value",),
}


def renamed(name: str, frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Give every name of a table its pseudonym.

    Parameters
    ----------
    name
        The table.
    frame
        Its rows.
    names
        The pseudonyms; new names are added.

    Returns
    -------
    polars.DataFrame
        The same rows; a short kernel name gets the pseudonym of the whole one where each belongs to one.
    """
    for column, kind in NAMED.get(name, {}).items():
        if column in frame.columns:
            give = partial(_pods, names) if column == "pods" else partial(names.of, kind)
            frame = _replaced(frame, column, give)
    return frame


def _pods(names: Names, text: str) -> str:
    """Pseudonyms of `namespace/pod/container`, several separated by blanks: a pod has the one that settings give it."""
    found = []
    for one in text.split(" "):
        namespace, _, rest = one.partition("/")
        pod, _, container = rest.partition("/")
        whose = names.of("pod", f"{namespace}/{pod}" if namespace else pod)
        found.append(f"/{whose}/{names.of('container', container) if container else ''}")
    return " ".join(found)


def freed(name: str, frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Replace the names seen so far inside a table's free text."""
    if name == "configured" and "key" in frame.columns:
        # Registered as names of processes: where the capture lists these, they have the same pseudonym.
        for key, value in frame.select("key", "value").drop_nulls().iter_rows():
            if key == "program":
                names.of("process", value)
    for column in FREE.get(name, ()):
        if column in frame.columns:
            frame = _replaced(frame, column, names.in_setting if name == "configured" else names.in_text)
    return frame


def _replaced(frame: pl.DataFrame, column: str, give: Callable[[str], str]) -> pl.DataFrame:
    import polars as pl

    kind = frame.schema[column]
    text = frame[column].cast(pl.String)
    # In the order of first appearance, once each: a capture has millions of rows and few names.
    old = text.drop_nulls().unique(maintain_order=True).to_list()
    if not old:
        return frame
    new = [give(value) for value in old]
    return frame.with_columns(text.replace_strict(old, new, default=None, return_dtype=pl.String).cast(kind))


def _of_groups(tenants: pl.DataFrame, groups: Groups, names: Names) -> pl.DataFrame:
    """Processes with pseudonyms of processes, and groups of their work, which are called after it, with their own."""
    import polars as pl

    group = pl.col("capture").is_in(list(groups.captures))
    processes = renamed("tenants", tenants.filter(~group), names)
    named = _replaced(tenants.filter(group), "name", partial(names.of, "group"))
    return pl.concat([processes, named.with_columns(container=None, pod=None).cast(processes.schema)])


def numbered() -> Names:
    """Names whose pseudonyms are numbers in the order of first appearance."""
    return Names(lambda kind, _, before: f"{kind}-{before + 1}")


def redacted(tables: TableSet, names: Names) -> TableSet:
    """Replace the names of processes, kernels, ranges, containers, pods, hosts and files.

    Parameters
    ----------
    tables
        Tables, with those that are read or computed on request among the stored ones (:meth:`TableSet.complete`):
        what is compared by name could not be found under its new name.
    names
        The pseudonyms given so far; new ones are added.

    Returns
    -------
    TableSet
        The same numbers under other names. Names that the caller gave stay; so do GPU names and UUIDs.

    Examples
    --------
    >>> import pyanalyze
    >>> redacted(pyanalyze.load(capture).tables, numbered()).tenants["name"].to_list()
    ['process-1', 'process-2', 'process-3']
    """
    raw: dict[str, AnyTable] = dict(tables.stored)
    if tables.recorded_tenants is not None:
        raw["tenants"] = tables.recorded_tenants
    # Tenants first, so that their numbers are those of their order on the page.
    order = sorted(raw, key=lambda name: (name not in NAMED, name != "tenants", name))
    groups = tables.groups
    frames = {
        name: renamed(name, to_frame(raw[name]), names)
        if name != "tenants" or groups is None
        else _of_groups(to_frame(raw[name]), groups, names)
        for name in order
    }
    changed: dict[str, AnyTable] = {n: FrameTable(n, freed(n, frame, names)) for n, frame in frames.items()}
    recorded = changed.get("tenants")
    if recorded is not None:
        configured = to_frame(changed["configured"])
        changed["tenants"] = named(recorded, configured, tables.names, tables.paths, narrowed=tables.selection.narrowed)
    answering = tables.answering
    return tables.with_tables(
        changed,
        recorded_tenants=recorded,
        answering=None if answering is None else renamed("nvml_samples", answering, names),
        samples_not_used=tuple(names.in_text(text) for text in tables.samples_not_used),
        latencies=None
        if tables.latencies is None
        else _replaced(tables.latencies, "tenant", partial(names.of, "process")),
        work=None if tables.work is None else renamed("nvtx", tables.work, names),
        selection=replace(tables.selection, redacted=True),
        late_transforms=(*tables.late_transforms, lambda name, frame: renamed(name, frame, names)),
    )
