"""Groups of work inside a process as tenants: by stream, context, NVTX range, kernel name, or collectives.

A group has a number of its own in the column ``capture`` of work and calls, after those of the captures, and keeps the
pid: whatever tells tenants apart tells groups apart. The process stays a tenant without work. Its residency is that of
its groups, as an MPS server's is that of its clients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import recording
from pyanalyze.tables.frames import FrameTable, to_frame
from pyanalyze.tables.tableset import Groups, empty_frame
from pyanalyze.text.format import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["COLLECTIVES", "GroupBy", "Kind", "grouped", "is_collective", "parse_by"]

#: Groups of one process at most, those with most time; the rest is its other work. Each is compared with each other.
MOST_GROUPS = 12
#: Names that an error lists.
_LISTED = 8
#: Characters of the name of a kernel or range in the name of a group.
_NAME_CHARACTERS = 32
#: Part of a stream's time that one kernel, or one range, must have to give the stream its name.
_NAMES_STREAM = 0.5
#: What PyTorch puts behind the name of an operator.
_ARGUMENTS = r", (op_id|seq|sizes|input_op_ids) = .*$"
#: Levels of nested ranges that are looked at.
_MOST_LEVELS = 32

_PROCESS = ("capture", "pid")
_WORK = ("kernels", "memops", "graph_launches")
#: Tables of a process that all its groups see.
_SHARED = ("profiler_overhead", "thread_runs", "nvtx", "host_calls", "cpu_samples")

#: Kernels of collective libraries: NCCL (RCCL has the same names), NVSHMEM, Gloo, MSCCL, symmetric-memory kernels of
#: PyTorch, custom all-reduce of vLLM, SGLang, TensorRT-LLM and FlashInfer.
_NCCL = r"^nccl|ncclDev|ncclKernel"
COLLECTIVES = (
    rf"{_NCCL}|nvshmem|msccl|gloo|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce"
    r"|one_shot|two_shot|symm_mem|multimem"
)


class Kind(StrEnum):
    """What makes a tenant."""

    PROCESS = "process"
    STREAM = "stream"
    CONTEXT = "context"
    NVTX = "nvtx"
    KERNEL = "kernel"
    COMMS = "comms"


_HOW = "process, stream, context, nvtx, nvtx=DOMAIN, kernel=REGEX[,REGEX...], comms"


@dataclass(frozen=True)
class GroupBy:
    """How tenants are made.

    Attributes
    ----------
    kind
        What makes a tenant.
    domain
        Of ranges, only those of this NVTX domain; None: of all.
    patterns
        Regular expressions that are found in names of kernels; the first that matches counts.
    """

    kind: Kind
    domain: str | None = None
    patterns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is given on the command line."""
        given = self.domain if self.kind is Kind.NVTX else ",".join(self.patterns) or None
        return f"{self.kind}" if given is None else f"{self.kind}={given}"


def parse_by(text: str) -> GroupBy:
    """Read what ``--by`` says.

    Raises
    ------
    pyanalyze.errors.UsageError
        No such way to make tenants, or a regular expression that is none.

    Examples
    --------
    >>> parse_by("kernel=nccl,gemm|attention").patterns
    ('nccl', 'gemm|attention')
    >>> str(parse_by("nvtx=NCCL"))
    'nvtx=NCCL'
    """
    word, equals, rest = text.partition("=")
    try:
        kind = Kind(word.strip().lower())
    except ValueError:
        raise UsageError(f"--by {text[:60]}: there is no such grouping; choose from {_HOW}") from None
    takes = kind in (Kind.NVTX, Kind.KERNEL)
    if equals and not takes:
        raise UsageError(f"--by {kind} takes no value; choose from {_HOW}")
    if kind is not Kind.KERNEL:
        return GroupBy(kind, domain=rest or None)
    patterns = tuple(part for part in _split_patterns(rest) if part)
    if not patterns:
        raise UsageError("--by kernel needs a regular expression: --by kernel=nccl,gemm")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"--by kernel={pattern[:60]}: not a regular expression: {error}") from None
    return GroupBy(kind, patterns=patterns)


def _split_patterns(text: str) -> list[str]:
    """Split at commas outside of brackets: ``a{1,2},[b,c]`` is two patterns."""
    parts, depth, escaped = [""], 0, False
    for character in text:
        if character == "," and depth == 0 and not escaped:
            parts.append("")
            continue
        depth = max(depth + (not escaped and character in "([{") - (not escaped and character in ")]}"), 0)
        escaped = character == "\\" and not escaped
        parts[-1] += character
    return parts


@dataclass(frozen=True)
class _Found:
    """Which group each row of work belongs to.

    Attributes
    ----------
    keys
        By table: one text a row, null for other work.
    names
        How a group is called, by process and key.
    """

    keys: Mapping[str, pl.Series]
    names: Callable[[tuple[int, int | None], str], str]


def is_collective(tables: TableSet, tenant_id: int) -> bool:
    """Whether most kernel time of a tenant is that of a collective library."""
    import polars as pl

    who = tables.tenants.filter(pl.col("tenant_id") == tenant_id).select("device_id", "capture", "pid")
    rows = tables.columns("kernels", "device_id", "capture", "pid", "short_name", "start_ns", "end_ns")
    mine = rows.join(who, on=["device_id", "capture", "pid"], how="semi", nulls_equal=True)
    sums = mine.group_by(pl.col("short_name").cast(pl.String)).agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    known = sums.filter(pl.col("short_name").str.contains(f"(?i){COLLECTIVES}"))
    return bool(known["end_ns"].sum() * 2 > sums["end_ns"].sum())


def grouped(tables: TableSet, by: GroupBy) -> TableSet:
    """Make groups of work the tenants.

    Parameters
    ----------
    tables
        Reconstructed tables whose tenants are processes.
    by
        What makes a tenant.

    Returns
    -------
    TableSet
        Its work, calls and contexts are those of the groups (the column ``capture`` is the number of the group, see
        `TableSet.groups`). Ids of processes stay; groups follow them. A process that has one group alone is not
        divided.

    Raises
    ------
    pyanalyze.errors.UsageError
        Nothing matches: the text names what there is.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> grouped(tables, parse_by("stream")).tenants["name"].to_list()[3:5]
    ['a-step (stream 13 of app_a)', 'a-step (stream 14 of app_a)']
    """
    if by.kind is Kind.PROCESS:
        return tables
    if "tenants" not in tables:
        raise UsageError("--by needs the tenants: load the session with reconstruct=True")
    frames = {name: tables.frame(name) for name in _WORK if name in tables}
    found = _FIND[by.kind](tables, frames, by)
    return _divided(tables, frames, found, str(by))


# Which group a row belongs to ----------------------------------------------------------------------------------------


def _by_place(*columns: str) -> Callable[..., dict[str, pl.Series]]:
    def keys(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.Series]:
        import polars as pl

        # Null in any of them is null: of such work the place is not known.
        key = pl.concat_str([pl.col(column).cast(pl.String) for column in columns], separator="/")
        return {name: frame.select(key.alias("key"))["key"] for name, frame in frames.items()}

    return keys


def _of_contexts(tables: TableSet, frames: Mapping[str, pl.DataFrame], _: GroupBy) -> _Found:
    keys = _by_place("context_id")(frames)
    _refuse_one(keys, frames, "context")
    return _Found(keys, lambda _, key: f"context {key}")


def _of_streams(tables: TableSet, frames: Mapping[str, pl.DataFrame], _: GroupBy) -> _Found:
    import polars as pl

    keys = _by_place("context_id", "stream_id")(frames)
    _refuse_one(keys, frames, "stream")
    owners = pl.concat([_owned(frame, keys[name]).unique() for name, frame in frames.items()]).unique()
    # A stream's number may occur in several contexts of a process.
    stream = pl.col("key").str.split("/").list.get(1)
    many = owners.with_columns(stream=stream).group_by("capture", "pid", "stream").len().filter(pl.col("len") > 1)
    twice = set(many.select("capture", "pid", "stream").iter_rows())
    mainly = _mainly(tables, frames, keys)

    def name(process: tuple[int, int | None], key: str) -> str:
        context, _, number = key.partition("/")
        said = f"stream {number}" + (f" in context {context}" if (*process, number) in twice else "")
        what = mainly.get((*process, key))
        return said if what is None else f"{what} ({said})"

    return _Found(keys, name)


def _mainly(
    tables: TableSet, frames: Mapping[str, pl.DataFrame], keys: Mapping[str, pl.Series]
) -> dict[tuple[int, int | None, str], str]:
    """What each stream mainly ran: a range, else a kernel, with half of its kernel time; else copies, or nothing."""
    import polars as pl

    found: dict[tuple[int, int | None, str], str] = {}
    if "memops" in frames:
        copies = _owned(frames["memops"], keys["memops"]).drop_nulls("key").unique()
        found = dict.fromkeys(copies.iter_rows(), "copies")
    if "kernels" not in frames:
        return found
    kernels = frames["kernels"]
    length = (kernels["end_ns"] - kernels["start_ns"]).clip(1)
    ran = _owned(kernels, keys["kernels"]).with_columns(length=length, what=_kernel_names(kernels))
    for key in ran.select("capture", "pid", "key").drop_nulls("key").unique().iter_rows():
        found.pop(key, None)
    told = [ran]
    if _has_ranges(tables) and (ranges := _range_names(tables, kernels, None)) is not None:
        # Ranges come last: they are the program's own words.
        told.append(ran.with_columns(what=ranges))
    for rows in told:
        sums = rows.drop_nulls("key").group_by("capture", "pid", "key", "what").agg(pl.col("length").sum())
        if rows is ran:
            # A stream is named after all kernels of one short name, which `what` tells apart.
            short = {text: _short(text) for text in sums["what"].unique().drop_nulls()}
            sums = sums.with_columns(pl.col("what").replace(short)).group_by("capture", "pid", "key", "what").sum()
        share = pl.col("length") / pl.col("length").sum().over("capture", "pid", "key")
        most = sums.filter(share >= _NAMES_STREAM).drop_nulls("what").sort("length", "what")
        for capture, pid, key, what, _ in most.iter_rows():
            found[capture, pid, key] = _clipped(what)
    return found


def _of_kernels(tables: TableSet, frames: Mapping[str, pl.DataFrame], by: GroupBy) -> _Found:
    import polars as pl

    kernels = frames.get("kernels", empty_frame("kernels"))
    texts = kernels.select(pl.col("name", "short_name").cast(pl.String))
    known = texts.unique()
    matched = [
        by_pattern
        for one, other in known.iter_rows()
        if (by_pattern := _first_match(by.patterns, one, other)) is not None
    ]
    missing = [pattern for number, pattern in enumerate(by.patterns) if str(number) not in matched]
    if missing:
        have = sorted({_short(other or one) for one, other in known.iter_rows() if other or one})
        raise UsageError(
            f"--by kernel={missing[0][:60]}: no kernel has a name in which that is found; there are "
            f"{names(have, _LISTED) or 'no kernels with a name'}"
        )
    said = {
        str(number): f"kernels {pattern}" if len(pattern) <= _NAME_CHARACTERS else f"kernels {pattern[:29]}..."
        for number, pattern in enumerate(by.patterns)
    }
    return _Found(_matched(frames, by.patterns), lambda _, key: said[key])


def _of_collectives(tables: TableSet, frames: Mapping[str, pl.DataFrame], _: GroupBy) -> _Found:
    import polars as pl

    keys = _matched(frames, (f"(?i){COLLECTIVES}",))
    kernels = frames.get("kernels", empty_frame("kernels"))
    mine = kernels.filter(keys["kernels"].is_not_null()) if "kernels" in keys else kernels.clear()
    texts = mine.select(pl.coalesce(pl.col("short_name", "name").cast(pl.String)).unique()).to_series()
    if texts.is_empty():
        raise UsageError(
            "--by comms: no kernel of a collective library was recorded (NCCL, RCCL, NVSHMEM, ...); name them with "
            "--by kernel=REGEX"
        )
    nccl = bool(texts.str.contains(_NCCL).all())
    return _Found(keys, lambda _process, _key: "NCCL kernels" if nccl else "collective kernels")


def _matched(frames: Mapping[str, pl.DataFrame], patterns: Sequence[str]) -> dict[str, pl.Series]:
    """Numbers of the patterns that names of kernels match; copies and whole graphs have no such name."""
    import polars as pl

    keys = {name: pl.Series("key", [None] * frame.height, dtype=pl.String) for name, frame in frames.items()}
    if "kernels" in frames:
        # Each text once: names are few, and their rows may be millions.
        texts = frames["kernels"].select(pl.col("name", "short_name").cast(pl.String))
        known = texts.unique()
        number = [_first_match(patterns, one, other) for one, other in known.iter_rows()]
        known = known.with_columns(key=pl.Series("key", number, dtype=pl.String))
        joined = texts.join(known, on=["name", "short_name"], how="left", nulls_equal=True, maintain_order="left")
        keys["kernels"] = joined["key"]
    return keys


def _first_match(patterns: Sequence[str], *texts: str | None) -> str | None:
    for number, pattern in enumerate(patterns):
        if any(text is not None and re.search(pattern, text) for text in texts):
            return str(number)
    return None


def _of_ranges(tables: TableSet, frames: Mapping[str, pl.DataFrame], by: GroupBy) -> _Found:
    import polars as pl

    keys: dict[str, pl.Series] = {}
    for name, frame in frames.items():
        found = _range_names(tables, frame, by.domain)
        keys[name] = pl.Series("key", [None] * frame.height, dtype=pl.String) if found is None else found
    if all(series.null_count() == series.len() for series in keys.values()):
        raise UsageError(_no_ranges(tables, by.domain))
    return _Found(keys, lambda _, key: _clipped(key))


def _no_ranges(tables: TableSet, domain: str | None) -> str:
    """Why no work was launched in a range, and what there is."""
    import polars as pl

    ranges = tables.ranges().filter(pl.col("end_ns").is_not_null())
    if ranges.is_empty():
        return (
            "--by nvtx: the capture has no NVTX ranges; annotate the program with them, if it has none, and record it: "
            f"{recording(switches=False)}"
        )
    domains = sorted(set(_domains(tables, ranges).drop_nulls().to_list()))
    if domain is not None and domain not in domains:
        return f"--by nvtx={domain[:60]}: there is no such domain; there are {names(domains, _LISTED)}"
    texts = sorted(set(ranges["text"].cast(pl.String).drop_nulls().to_list()))
    return (
        "--by nvtx: no work was launched inside a range of a thread"
        + (f" in domain {domain[:60]}" if domain is not None else "")
        + f"; there are {names([_clipped(text) for text in texts], _LISTED)}"
    )


def _has_ranges(tables: TableSet) -> bool:
    import polars as pl

    rows = tables.sources.filter(pl.col("source").cast(pl.String) == "nvtx", pl.col("rows") > 0)
    return not rows.is_empty()


def _domains(tables: TableSet, ranges: pl.DataFrame) -> pl.Series:
    """Names of the domains of ranges; `default` for the one without a name, `domain N` for one whose name is lost."""
    import polars as pl

    rows = tables.ranges().filter(pl.col("kind").cast(pl.String) == "domain")
    said = rows.select(*_PROCESS, "domain_id", domain=pl.col("text").cast(pl.String))
    said = said.unique([*_PROCESS, "domain_id"], keep="last", maintain_order=True)
    keys = [*_PROCESS, "domain_id"]
    found = ranges.select(keys).join(said, on=keys, how="left", nulls_equal=True, maintain_order="left")
    number = pl.col("domain_id").fill_null(0)
    unnamed = pl.when(number == 0).then(pl.lit("default")).otherwise(pl.format("domain {}", number))
    return found.select(pl.coalesce("domain", unnamed).alias("domain"))["domain"]


def _range_names(tables: TableSet, work: pl.DataFrame, domain: str | None) -> pl.Series | None:
    """Name of the range that each operation was launched in: of the outermost level with more than one name.

    Numbers in names are not looked at: `step 1` and `step 2` are one. None: there are no ranges, or no launch calls.
    """
    import polars as pl

    calls = tables.calls()
    ranges = tables.ranges().filter(pl.col("end_ns").is_not_null(), pl.col("end_ns") > pl.col("start_ns"))
    if domain is not None:
        ranges = ranges.filter(_domains(tables, ranges) == domain)
    if calls is None or calls.is_empty() or ranges.is_empty():
        return None
    thread = ["capture", "pid", "tid"]
    text = pl.col("text").cast(pl.String).str.replace(_ARGUMENTS, "").str.replace_all(r"\d+", "#").str.strip_chars()
    ranges = ranges.select(*thread, "start_ns", "end_ns", text=text).drop_nulls("text")
    launched = (
        calls.select("capture", "pid", "correlation_id", "tid", "start_ns")
        .filter(pl.col("correlation_id") != 0)
        .unique(["capture", "pid", "correlation_id"], keep="first", maintain_order=True)
    )
    rows = work.select("capture", "pid", "correlation_id").with_row_index("row")
    rows = rows.join(launched, on=["capture", "pid", "correlation_id"], how="inner", nulls_equal=True)
    rows = rows.sort("start_ns")
    leveled = _levels(ranges)
    best: pl.DataFrame | None = None
    for level in range(min(int(leveled["level"].max() or 0) + 1, _MOST_LEVELS)):  # type: ignore[arg-type]
        here = leveled.filter(pl.col("level") == level).sort("start_ns")
        # Both are sorted; within groups polars cannot see it.
        inside = rows.join_asof(
            here, on="start_ns", by=thread, strategy="backward", coalesce=True, check_sortedness=False
        ).filter(pl.col("start_ns") < pl.col("end_ns"))
        if inside.is_empty():
            continue
        best = inside if best is None else best
        if inside["text"].n_unique() > 1:
            best = inside
            break
    if best is None:
        return None
    named = pl.DataFrame({"row": pl.int_range(work.height, dtype=pl.UInt32, eager=True)})
    named = named.join(best.select("row", "text"), on="row", how="left", maintain_order="left")
    return named["text"].alias("key")


def _levels(ranges: pl.DataFrame) -> pl.DataFrame:
    """How many ranges of its thread each range lies in."""
    import polars as pl

    thread = ["capture", "pid", "tid"]
    opens = ranges.with_row_index("range").select(*thread, "range", time=pl.col("start_ns"), step=pl.lit(1))
    closes = ranges.select(*thread, range=pl.lit(None, pl.UInt32), time=pl.col("end_ns"), step=pl.lit(-1))
    # What ends where another begins ends first; of those that begin at once the longer one is the outer one.
    lengths = ranges.with_row_index("range").select("range", length=pl.col("end_ns") - pl.col("start_ns"))
    events = pl.concat([opens, closes]).join(lengths, on="range", how="left")
    events = events.sort("time", "step", pl.col("length").neg(), maintain_order=True)
    events = events.with_columns(level=pl.col("step").cum_sum().over(thread) - 1).drop_nulls("range").sort("range")
    return ranges.with_columns(level=events["level"])


_FIND: Mapping[Kind, Callable[[TableSet, Mapping[str, pl.DataFrame], GroupBy], _Found]] = {
    Kind.STREAM: _of_streams,
    Kind.CONTEXT: _of_contexts,
    Kind.NVTX: _of_ranges,
    Kind.KERNEL: _of_kernels,
    Kind.COMMS: _of_collectives,
}


def _refuse_one(keys: Mapping[str, pl.Series], frames: Mapping[str, pl.DataFrame], what: str) -> None:
    """Refuse where no process used several."""
    import polars as pl

    parts = [_owned(frame, keys[name]).drop_nulls("key").unique() for name, frame in frames.items()]
    used = pl.concat(parts).unique() if parts else pl.DataFrame()
    if used.is_empty():
        raise UsageError(f"--by {what}: no work was recorded with its {what}")
    if not used.group_by(_PROCESS).len()["len"].gt(1).any():
        have = [f"{what} {key.rpartition('/')[2]}" for key in sorted(used["key"].unique().to_list())]
        raise UsageError(f"--by {what}: no process used several; there is {names(have, _LISTED)}")


def _owned(frame: pl.DataFrame, keys: pl.Series) -> pl.DataFrame:
    return frame.select(*_PROCESS).with_columns(keys.alias("key"))


def _kernel_names(kernels: pl.DataFrame) -> pl.Series:
    import polars as pl

    return kernels.select(pl.coalesce(pl.col("short_name", "name").cast(pl.String)).alias("what"))["what"]


def _short(text: str) -> str:
    """A name without template arguments, parameters and namespaces, cut to what a label can hold."""
    bare = re.split(r"[<(]", text, maxsplit=1)[0].strip() or text
    return _clipped(bare.removeprefix("void ").rpartition("::")[2] or text)


def _clipped(text: str) -> str:
    """A name cut in the middle to what a label can hold: names differ at both ends."""
    half = (_NAME_CHARACTERS - 3) // 2
    return text if len(text) <= _NAME_CHARACTERS else f"{text[:half].rstrip()}...{text[-half:].lstrip()}"


# Tables of the groups ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Division:
    """Numbers of the groups.

    Attributes
    ----------
    number
        `capture` and `pid` of the process, `key` (null: other work), `group`: the number, `name`.
    first
        The smallest number.
    """

    number: pl.DataFrame
    first: int

    @property
    def processes(self) -> pl.DataFrame:
        """Those that are divided."""
        return self.number.select(*_PROCESS).unique()


def _divided(tables: TableSet, frames: Mapping[str, pl.DataFrame], found: _Found, by: str) -> TableSet:
    import polars as pl

    division, keys = _numbers(tables, frames, found)
    work = {name: _renumbered(frame, keys[name], division) for name, frame in frames.items()}
    owners = (
        pl.concat([frame.select("capture", "pid", "correlation_id") for frame in work.values()])
        .filter(pl.col("capture") >= division.first, pl.col("correlation_id").fill_null(0) != 0)
        .unique()
    )
    captures = dict(division.number.select("group", "capture").iter_rows())

    def late(name: str, frame: pl.DataFrame) -> pl.DataFrame:
        if name == "api_calls":
            return _calls_of_groups(frame, owners, division, captures)
        return _of_every_group(frame, division) if name in _SHARED else frame

    stored: dict[str, AnyTable] = dict(tables.stored)
    stored |= {name: FrameTable(name, frame) for name, frame in work.items()}
    for name in ("api_calls", *_SHARED):
        if name in stored:
            stored[name] = FrameTable(name, late(name, to_frame(stored[name])))
    whole = _of_every_group(tables.contexts, division)
    stored["contexts"] = FrameTable(
        "contexts", pl.concat([tables.contexts, whole.filter(pl.col("capture") >= division.first)])
    )
    tenants, processes = _tenants(tables, work, division)
    stored["tenants"] = FrameTable("tenants", tenants)
    given = {name: table for name, table in stored.items() if name not in ("tenant_usage", "overlaps")}
    made = _core.tenant_usage(given)
    apart = ~pl.col("tenant_a").is_in(processes) & ~pl.col("tenant_b").is_in(processes)
    # When a process was resident is no work: its own is that of its groups.
    worked = [
        pl.when(~pl.col("tenant_id").is_in(processes)).then(column).alias(column) for column in ("first_ns", "last_ns")
    ]
    stored["tenant_usage"] = FrameTable("tenant_usage", to_frame(made["tenant_usage"]).with_columns(worked))
    stored["overlaps"] = FrameTable("overlaps", to_frame(made["overlaps"]).filter(apart))
    return replace(
        tables.with_tables({}),
        stored=stored,
        names={},
        recorded_tenants=None,
        late_transforms=(*tables.late_transforms, late),
        groups=Groups(by=by, captures=captures, processes=frozenset(processes)),
    )


def _numbers(
    tables: TableSet, frames: Mapping[str, pl.DataFrame], found: _Found
) -> tuple[_Division, dict[str, pl.Series]]:
    """Number the groups of every process that has several; of many, those with most time."""
    import polars as pl

    length = (pl.col("end_ns") - pl.col("start_ns")).clip(0)
    parts = [
        _owned(frame, found.keys[name]).with_columns(length=frame.select(length.alias("length"))["length"])
        for name, frame in frames.items()
    ]
    sums = pl.concat(parts).group_by(*_PROCESS, "key").agg(pl.col("length").sum())
    known = sums.drop_nulls("key").sort("length", "key", descending=[True, False])
    kept = known.with_columns(rank=pl.int_range(pl.len()).over(_PROCESS)).filter(pl.col("rank") < MOST_GROUPS)
    kept = kept.select(*_PROCESS, "key")
    left = sums.join(kept, on=[*_PROCESS, "key"], how="anti", nulls_equal=True).select(*_PROCESS).unique()
    rows = pl.concat([kept, left.with_columns(key=pl.lit(None, pl.String))])
    rows = rows.filter(pl.len().over(_PROCESS) > 1)
    if rows.is_empty():
        raise UsageError("--by: each process has one group of work alone, so there is nothing to compare inside of it")
    # In the order of the processes, then of the time; other work last.
    order = {process: place for place, process in enumerate(tables.tenants.select(*_PROCESS).iter_rows())}
    rank = {row: place for place, row in enumerate(kept.iter_rows())}
    listed = sorted(rows.iter_rows(), key=lambda row: (order.get(row[:2], len(order)), rank.get(row, len(rank))))
    first = int(tables.capture["capture"].max() or 0) + 1  # type: ignore[arg-type]
    several = bool(tables.tenants.filter("traced")["device_id"].value_counts()["count"].gt(1).any())
    programs = {
        (capture, pid): tables.labels(device)[tenant]
        for device, tenant, capture, pid in tables.tenants.filter("traced")
        .select("device_id", "tenant_id", *_PROCESS)
        .iter_rows()
    }
    said = [_named(found, row, programs.get(row[:2], "the process"), several=several) for row in listed]
    number = pl.DataFrame(
        {
            "capture": pl.Series([row[0] for row in listed], dtype=pl.UInt32),
            "pid": pl.Series([row[1] for row in listed], dtype=pl.UInt32),
            "key": pl.Series([row[2] for row in listed], dtype=pl.String),
            "group": pl.int_range(first, first + len(listed), dtype=pl.UInt32, eager=True),
            "name": pl.Series(said, dtype=pl.String),
        }
    )
    small = {
        name: _owned(frame, found.keys[name])
        .join(
            kept.with_columns(kept=pl.lit(value=True)),
            on=[*_PROCESS, "key"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .select(pl.when("kept").then("key"))["key"]
        for name, frame in frames.items()
    }
    return _Division(number, first), small


def _named(found: _Found, row: tuple[int, int | None, str | None], process: str, *, several: bool) -> str:
    capture, pid, key = row
    if key is None:
        return f"other work of {process}"
    said = found.names((capture, pid), key)
    if not several:
        return said
    return f"{said[:-1]} of {process})" if said.endswith(")") else f"{said} of {process}"


def _renumbered(frame: pl.DataFrame, keys: pl.Series, division: _Division) -> pl.DataFrame:
    """Work with the number of its group in the place of that of its capture; other processes' work stays."""
    import polars as pl

    number = _owned(frame, keys).join(
        division.number.select(*_PROCESS, "key", "group"),
        on=[*_PROCESS, "key"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return frame.with_columns(capture=number.select(pl.coalesce("group", "capture"))["group"])


def _of_every_group(frame: pl.DataFrame, division: _Division) -> pl.DataFrame:
    """Rows of a divided process once for each of its groups."""
    import polars as pl

    columns = frame.columns
    number = division.number.select(*_PROCESS, "group")
    dealt = frame.join(number, on=list(_PROCESS), how="left", nulls_equal=True, maintain_order="left")
    return dealt.with_columns(capture=pl.coalesce("group", "capture")).select(columns)


def _calls_of_groups(
    calls: pl.DataFrame, owners: pl.DataFrame, division: _Division, captures: Mapping[int, int]
) -> pl.DataFrame:
    """A call goes where its work is; one without work to all groups for which its thread launches.

    A launch of which no work was recorded goes to one of these: it is counted once.
    """
    import polars as pl

    columns = calls.columns
    mine = calls.with_row_index("row").join(division.processes, on=list(_PROCESS), how="semi", nulls_equal=True)
    others = calls.join(division.processes, on=list(_PROCESS), how="anti", nulls_equal=True)
    capture = pl.col("capture").replace_strict(captures, return_dtype=pl.UInt32)
    launched = owners.select(capture.alias("capture"), "pid", "correlation_id", group="capture")
    thread = [*_PROCESS, "tid"]
    dealt = mine.join(launched, on=[*_PROCESS, "correlation_id"], how="left", nulls_equal=True)
    with_work, without = dealt.filter(pl.col("group").is_not_null()), dealt.filter(pl.col("group").is_null())
    of_thread = with_work.group_by(*thread, "group").len().sort("len", descending=True)
    every = division.number.select(*_PROCESS, "group")
    lost = pl.col("name").cast(pl.String).str.contains("Launch|Memcpy|Memset")
    first = of_thread.unique(thread, keep="first", maintain_order=True).select(*thread, "group")
    fallback = every.unique(list(_PROCESS), keep="first", maintain_order=True)
    once = without.filter(lost).drop("group").join(first, on=thread, how="left", nulls_equal=True)
    once = once.join(fallback, on=list(_PROCESS), how="left", nulls_equal=True, suffix="_any")
    once = once.with_columns(group=pl.coalesce("group", "group_any")).drop("group_any")
    rest = (
        without.filter(~lost)
        .drop("group")
        .join(of_thread.select(*thread, "group"), on=thread, how="left", nulls_equal=True)
    )
    stray = rest.filter(pl.col("group").is_null()).drop("group").join(every, on=list(_PROCESS), nulls_equal=True)
    order = [*mine.columns, "group"]
    parts = [part.select(order) for part in (with_work, once, rest.drop_nulls("group"), stray)]
    numbered = pl.concat(parts).with_columns(capture="group").select(columns)
    return pl.concat([others, numbered]).sort("start_ns", maintain_order=True)


def _tenants(tables: TableSet, work: Mapping[str, pl.DataFrame], division: _Division) -> tuple[pl.DataFrame, list[int]]:
    """Tenants: the processes under their ids, then the groups on each device; and the ids of divided processes."""
    import polars as pl

    base = tables.tenants.sort("tenant_id")
    divided = {
        (row["device_id"], row["capture"], row["pid"]): row
        for row in base.filter("traced")
        .join(division.processes, on=list(_PROCESS), how="semi", nulls_equal=True)
        .iter_rows(named=True)
    }
    seen = pl.concat([frame.select("device_id", "capture", "pid", "context_id") for frame in work.values()]).unique()
    contexts: dict[tuple[int, int, int | None], set[int]] = {}
    for device, group, pid, context in seen.filter(pl.col("capture") >= division.first).iter_rows():
        contexts.setdefault((device, group, pid), set()).update([] if context is None else [context])
    rows: list[dict[str, Any]] = []
    for capture, pid, _, group, name in division.number.iter_rows():
        for (device, of_capture, of_pid), process in divided.items():
            if (of_capture, of_pid) == (capture, pid) and (device, group, pid) in contexts:
                own = ",".join(map(str, sorted(contexts[device, group, pid])))
                through = process["served_by"] if process["served_by"] is not None else process["tenant_id"]
                rows.append(
                    {
                        **process, "tenant_id": base.height + len(rows), "capture": group, "name": name,
                        "contexts": own, "hw_contexts": "", "match_rate": None, "served_by": through,
                    }
                )  # fmt: skip
    whole = pl.concat([base, pl.DataFrame(rows, schema=base.schema)])
    return whole, [row["tenant_id"] for row in divided.values()]
