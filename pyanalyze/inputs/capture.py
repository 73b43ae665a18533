"""Read captures, samples, configuration, solo recordings and units of work into one table set."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.errors import CaptureUnreadable, NotACapture, SamplesUnreadable, UsageError
from pyanalyze.inputs.baselines import Baseline, SavedBaseline, split_name
from pyanalyze.inputs.beside import is_text, read_beside
from pyanalyze.inputs.blocks import MeasuredBlocks, read_blocks
from pyanalyze.inputs.export_details import read_details
from pyanalyze.inputs.listed_devices import with_listed, with_uuids
from pyanalyze.inputs.machines import machines_of, unplaced_samples, with_machine
from pyanalyze.inputs.nsys_export import exported, importing, is_pack, told_from_other_formats
from pyanalyze.inputs.other_formats import CAPTURE_SUFFIXES
from pyanalyze.inputs.pipes import refuse_pipes, refuse_urls, spooled
from pyanalyze.inputs.sample_alignment import answering, of_another_time
from pyanalyze.tables.frames import ANALYSIS_TABLES, EVENT_TABLES, ON_REQUEST, FrameTable, to_frame
from pyanalyze.tables.memory import hold
from pyanalyze.tables.names import named
from pyanalyze.tables.switch_records import telling_records
from pyanalyze.tables.tableset import TableSet, reconstructed
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.shell import shell_word

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

    from pyanalyze.inputs.pack import Unpacked
    from pyanalyze.tables.frames import AnyTable

    PathLike = str | os.PathLike[str]
    Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Inputs:
    """Everything that was read.

    Attributes
    ----------
    tables
        Tables of the captures, or of samples without one, with what was reconstructed.
    failures
        Captures that could not be read, with ``keep_going``.
    baselines, saved_baselines
        Solo recordings: captures, and reports saved as JSON.
    blocks
        Measured blocks of kernels.
    """

    tables: TableSet
    failures: tuple[Failure, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    saved_baselines: tuple[SavedBaseline, ...] = ()
    blocks: tuple[MeasuredBlocks, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A capture that could not be read while others went on (``keep_going``)."""

    path: Path
    error: Exception


def read(
    captures: PathLike | Sequence[PathLike] = (),
    *,
    samples: PathLike | Sequence[PathLike] = (),
    context: PathLike | Sequence[PathLike] = (),
    baselines: PathLike | Sequence[PathLike] = (),
    work: PathLike | None = None,
    blocks: PathLike | Sequence[PathLike] = (),
    tenants: Mapping[str, int | PathLike] | None = None,
    tables: Sequence[str] = ANALYSIS_TABLES,
    reconstruct: bool = True,
    keep_going: bool = False,
    strict: bool = False,
    memory: str | int | None = None,
    progress: Progress | None = None,
) -> Inputs:
    """Read captures and what was given beside them. See :func:`pyanalyze.load`.

    Examples
    --------
    >>> read(capture).tables.kernels.height > 0
    True
    """
    given = (_listed(captures), _listed(samples), _listed(context))
    refuse_urls(itertools.chain(*given, *map(_listed, (baselines, blocks, () if work is None else work))))
    refuse_pipes((*_listed(blocks), *(split_name(str(file))[1] for file in _listed(baselines))))
    with spooled(*given) as ((captures, samples, context), shown):
        return _read(
            captures, samples, context, shown, baselines, work, blocks, tenants, tables, reconstruct, keep_going,
            strict, memory, progress,
        )  # fmt: skip


def _read(
    captures: Sequence[PathLike],
    samples: Sequence[PathLike],
    context: Sequence[PathLike],
    shown: Mapping[Path, str],
    baselines: PathLike | Sequence[PathLike],
    work: PathLike | None,
    blocks: PathLike | Sequence[PathLike],
    tenants: Mapping[str, int | PathLike] | None,
    tables: Sequence[str],
    reconstruct: bool,  # noqa: FBT001
    keep_going: bool,  # noqa: FBT001
    strict: bool,  # noqa: FBT001
    memory: str | int | None,
    progress: Progress | None,
) -> Inputs:
    """As :func:`read`, of files alone; `shown`: how those are called that stand in place of pipes."""
    unknown = sorted(set(tables) - set(EVENT_TABLES))
    if unknown:
        raise UsageError(f"there is no event table {', '.join(unknown)}; choose from {', '.join(EVENT_TABLES)}")
    hold(memory)
    paths, files, context, raw = _with_recordings(captures, samples, context)
    texts = [path for path in paths if is_text(path)]
    paths, files = [path for path in paths if path not in texts], [*files, *texts]
    names = {name: who if isinstance(who, int) else Path(who) for name, who in (tenants or {}).items()}
    have = {Path(path) for path in find_captures(paths)} if paths else set()
    paths = [*paths, *dict.fromkeys(who for who in names.values() if isinstance(who, Path) and who not in have)]
    quality: list[tuple[str, str]] = []
    kept: list[Path] = []
    failures: list[Failure] = []
    packs: list[Unpacked] = []
    machines: tuple[int, ...] = ()
    beside = read_beside(files, context, progress, shown)
    # Whoever names samples or settings without their option means the same; what no reader knows is no capture either.
    refused = {Path(text): why for text in texts if (why := beside.unread.pop(Path(text).absolute(), None)) is not None}
    refused |= {copy: f"{shown[copy]} is a pipe: save the capture to a file first" for copy in shown if copy in paths}
    paths = [*paths, *(text for text in texts if Path(text) in refused)]
    if strict and beside.unread:
        raise SamplesUnreadable("; ".join(beside.unread.values()))
    quality.extend(("samples_unread", detail) for detail in beside.unread.values())
    if paths or not (files or context):
        found = find_captures(paths)
        with importing("polars"):
            read = _read_captures(found, tables, kept, failures, quality, progress, keep_going, packs, refused)
        _refuse_two_boards(read, kept)
        machines = machines_of(read)
        joined: dict[str, AnyTable] = dict(_core.join_captures(read, progress))
        brought: list[Mapping[str, object]] = [batch for pack in packs for batch in pack.samples]
        joined = dict(_core.place_samples(joined, [*brought, *beside.samples]))
        quality.extend(_drop_unplaced(joined, machines))
    else:
        if not beside.samples and not beside.configured:
            raise SamplesUnreadable("; ".join(beside.unread.values()))
        joined = dict(_core.samples_session(with_uuids(beside.samples, beside.configured)))
        if beside.configured:
            rows = to_frame(joined["devices"]), to_frame(joined["nvml_samples"])
            joined["devices"] = FrameTable("devices", with_listed(*rows, beside.configured))
        if not joined["devices"].num_rows and joined["nvml_samples"].num_rows:
            detail = (
                f"none of {joined['nvml_samples'].num_rows} sample rows names its GPU (DCGM entity numbers do not). "
                "`pyanalyze export` has them; for a verdict sample nvidia-smi --query-gpu=timestamp,uuid,... as well"
            )
            quality.append(("samples_other_gpu", detail))
    unused = _of_no_gpu(to_frame(joined["nvml_samples"])) if joined["devices"].num_rows else []
    of_its_time: pl.DataFrame | None = None
    if kept and joined["nvml_samples"].num_rows:
        rows = to_frame(joined["nvml_samples"]), to_frame(joined["capture"])
        apart = of_another_time(*rows)
        quality.extend(("samples_not_aligned", detail) for detail in apart)
        unused += apart
        of_its_time = answering(*rows)
    configured = [*_of_packs(packs, machines), *beside.configured]
    if configured:
        from pyanalyze.inputs.context import identities, place_context

        configured = place_context(configured, to_frame(joined["devices"]), to_frame(joined["nvml_samples"]))
        configured, unplaced = with_machine(configured, to_frame(joined["devices"]), machines)
        if unplaced:
            quality.append(("settings_not_placed", f"settings ({', '.join(unplaced)}) {_NOT_PLACED}"))
        joined["identities"] = FrameTable("identities", identities(configured))
        joined["configured"] = FrameTable("configured", _with_context(to_frame(joined["configured"]), configured))
    made: dict[str, AnyTable] = {}
    if reconstruct:
        joined |= telling_records(joined)
        made = reconstructed(joined, of_its_time, progress)
    stored = {**joined, **made}
    if quality:
        stored["quality"] = FrameTable("quality", _with_counted(to_frame(stored["quality"]), quality))
    recorded = stored.get("tenants")
    if recorded is not None and (names or configured or to_frame(stored["configured"]).height):
        stored["tenants"] = named(recorded, to_frame(stored["configured"]), names, kept, narrowed=False)
    read_set = TableSet(
        stored=stored,
        paths=tuple(kept),
        names=names,
        recorded_tenants=recorded,
        answering=of_its_time,
        samples_not_used=tuple(unused),
        machines=machines,
        read_late=lambda names: read_late(kept, names),
        read_details=lambda: read_details(kept),
    )
    if work is not None and not kept:
        from pyanalyze.inputs.latencies import read_latencies

        origin_ns = read_set.capture["utc_origin_ns"][0]
        read_set = replace(read_set, latencies=read_latencies(Path(work), read_set.nvml_samples, origin_ns))
    elif work is not None:
        from pyanalyze.inputs.work_units import read_work

        origin_ns = read_set.capture["utc_origin_ns"][0]
        read_set = replace(read_set, work=read_work(Path(work), read_set.tenants, origin_ns))
    solo, summaries = _read_baselines(_listed(baselines), tables, progress)
    measured = tuple(read_blocks(Path(path)) for path in _listed(blocks))
    return Inputs(read_set, (*failures, *raw), solo, summaries, measured)


def _of_no_gpu(samples: pl.DataFrame) -> list[str]:
    """Say which DCGM entities samples have values of, and of no known GPU; empty: none."""
    import polars as pl

    lost = samples.filter(pl.col("device_id").is_null() & pl.col("entity").is_not_null())
    if lost.is_empty():
        return []
    names = fmt.names(lost["entity"].cast(pl.String).unique(maintain_order=True).to_list(), 4)
    return [f"DCGM {names}: values of no known GPU, as dcgmi names none; a scrape of dcgm-exporter does"]


def _of_packs(packs: Sequence[Unpacked], machines: Sequence[int]) -> Iterator[pl.DataFrame]:
    """Settings that packs brought; of captures of several machines they are of that of the pack's captures."""
    import polars as pl

    for pack in packs:
        captures = [to_frame(tables["capture"])["capture"][0] for tables in pack.captures]
        one = len(set(machines)) > 1 and len({machines[capture] for capture in captures}) == 1
        for frame in pack.context:
            yield frame.with_columns(capture=pl.lit(captures[0], pl.UInt32)) if one else frame


#: What is said of settings and samples, and what to do.
_NOT_PLACED = (
    "name no GPU, and the captures are of several machines: they are not used. Give each capture with its own files"
)


def _drop_unplaced(joined: dict[str, AnyTable], machines: Sequence[int]) -> list[tuple[str, str]]:
    """Take the device from samples that name it by its index alone, where captures are of several machines."""
    import polars as pl

    samples = to_frame(joined["nvml_samples"])
    unplaced = unplaced_samples(samples, machines)
    if unplaced is None or not (files := samples.filter(unplaced)["source"].cast(pl.String).unique().to_list()):
        return []
    device = pl.when(~unplaced).then("device_id").alias("device_id")
    joined["nvml_samples"] = FrameTable("nvml_samples", samples.with_columns(device))
    return [("settings_not_placed", f"samples of {', '.join(sorted(files))} {_NOT_PLACED}")]


def _with_context(configured: pl.DataFrame, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add what was read beside the captures to what they say themselves."""
    import polars as pl

    text = [pl.col("source").cast(pl.String), pl.col("key").cast(pl.String)]
    return pl.concat([part.with_columns(text) for part in (configured, *frames)], how="vertical_relaxed")


def _with_counted(quality: pl.DataFrame, counted: Sequence[tuple[str, str]]) -> pl.DataFrame:
    """Add what was counted while reading; what each counter means stands in the core's one list."""
    import polars as pl

    counters = {counter["name"]: counter for counter in _core.quality_counters()}
    quality = quality.with_columns(pl.col(column).cast(pl.String) for column in ("name", "severity", "source"))
    rows = [
        {
            "capture": None,
            "name": name,
            "severity": counters[name]["severity"],
            "source": counters[name]["source"],
            "count": 1,
            "detail": detail,
        }
        for name, detail in counted
    ]
    return pl.concat([quality, pl.DataFrame(rows, schema=quality.schema)])


@dataclass(frozen=True)
class Recordings:
    """Captures as they were read, before they are joined, and what packs among them brought along."""

    captures: list[dict[str, _core.Table]]
    samples: list[Mapping[str, object]]
    context: list[pl.DataFrame]


def read_recordings(
    captures: PathLike | Sequence[PathLike], tables: Sequence[str], progress: Progress | None = None
) -> Recordings:
    """Read captures without joining them, each recording once.

    Parameters
    ----------
    captures, tables, progress
        As :func:`load` takes them.

    Examples
    --------
    >>> len(read_recordings(capture, ["kernels"]).captures)
    1
    """
    packs: list[Unpacked] = []
    named = find_captures(_listed(captures))
    read = _read_captures(named, tables, [], [], [], progress, keep_going=False, packs=packs)
    return Recordings(
        read, [batch for pack in packs for batch in pack.samples], [frame for pack in packs for frame in pack.context]
    )


def _read_baselines(
    files: Sequence[PathLike], tables: Sequence[str], progress: Progress | None
) -> tuple[tuple[Baseline, ...], tuple[SavedBaseline, ...]]:
    from pyanalyze.inputs.saved_report import is_saved, read_saved

    given = [split_name(str(file)) for file in files]
    summaries = [(name, path) for name, path in given if is_saved(path)]
    return (
        tuple(
            Baseline(path, read(path, tables=tables, progress=progress).tables, name)
            for name, path in given
            if (name, path) not in summaries
        ),
        tuple(SavedBaseline(path, read_saved(path), name) for name, path in summaries),
    )


def _read_captures(
    paths: Sequence[Path],
    tables: Sequence[str],
    kept: list[Path],
    failures: list[Failure],
    quality: list[tuple[str, str]],
    progress: Progress | None,
    keep_going: bool,  # noqa: FBT001
    packs: list[Unpacked],
    refused: Mapping[Path, str] | None = None,
) -> list[dict[str, _core.Table]]:
    """Read captures, each recording once; says in the lists what was kept and what was not.

    Texts that are no captures are in `refused`, with the reason.
    """
    read: list[dict[str, _core.Table]] = []
    recordings: list[_Recording] = []
    for path in paths:
        try:
            why = (refused or {}).get(path)
            # Of a file that is called like a capture it is said what is wrong with the capture.
            if why is not None and path.suffix not in CAPTURE_SUFFIXES:
                raise NotACapture(why)
            if is_pack(path):
                from pyanalyze.inputs.pack import unpack

                packed = unpack(path, len(read), (*ANALYSIS_TABLES, *tables))
                read.extend(packed.captures)
                recordings.extend(_Recording.of(capture) for capture in packed.captures)
                kept.extend([path] * len(packed.captures))
                packs.append(packed)
                continue
            export = exported(path, tables)
            with told_from_other_formats(path):
                found = _core.read_capture(export, len(read), list(tables), progress)
            recording = _Recording.of(found)
            known = next((n for n, other in enumerate(recordings) if recording.is_same(other)), None)
            if known is not None:
                quality.append(("duplicate_capture", f"{path} is another export of the recording in {kept[known]}"))
                continue
            read.append(found)
            recordings.append(recording)
            kept.append(path)
        except (CaptureUnreadable, OSError) as error:
            if not keep_going or len(paths) == 1:
                raise
            failures.append(Failure(path, error))
    if not read:
        raise failures[0].error
    return read


def _refuse_two_boards(captures: Sequence[Mapping[str, _core.Table]], paths: Sequence[Path]) -> None:
    """One UUID is one GPU: where model or SMs differ, a file is not what it says, and shares would pass 100 %.

    A client of MPS sees fewer SMs of a GPU whose memory and L2 are whole: that is one GPU.
    """
    seen: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for path, tables in zip(paths, captures, strict=True):
        for row in to_frame(tables["devices"]).iter_rows(named=True):
            if row["uuid"] is None:
                continue
            first, other = seen.setdefault(row["uuid"], (path, row))
            model = _differ(row, other, "name")
            parts = _differ(row, other, "memory_bytes") or _differ(row, other, "l2_bytes")
            sms = _differ(row, other, "sm_count") and parts
            if model or sms:
                raise UsageError(
                    f"{first} and {path} show GPU {visible(row['uuid'])} as two boards: "
                    f"{_board(other)}, and {_board(row)}. One UUID is one GPU: give the captures one by one"
                )


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], column: str) -> bool:
    return None not in (one[column], other[column]) and one[column] != other[column]


def _board(row: Mapping[str, Any]) -> str:
    return f"{visible(row['name']) or 'unknown model'} with {row['sm_count']} SMs"


@dataclass(frozen=True)
class _Recording:
    """What tells two exports of one recording from two recordings."""

    session_uuid: str | None
    utc_origin_ns: int | None
    span_ns: tuple[int | None, int | None]
    kernels: int | None

    @classmethod
    def of(cls, tables: Mapping[str, _core.Table]) -> _Recording:
        from pyanalyze.tables.frames import to_frame

        row = to_frame(tables["capture"]).row(0, named=True)
        kernels = tables["kernels"].num_rows if "kernels" in tables else None
        return cls(row["session_uuid"], row["utc_origin_ns"], (row["start_ns"], row["end_ns"]), kernels)

    def is_same(self, other: _Recording) -> bool:
        """Whether both are exports of one recording: equal session and zero; old schemas keep neither."""
        if self.session_uuid is not None and other.session_uuid is not None:
            return (self.session_uuid, self.utc_origin_ns) == (other.session_uuid, other.utc_origin_ns)
        origins = {self.utc_origin_ns, other.utc_origin_ns} - {None}
        return (
            len(origins) < 2
            and None not in self.span_ns
            and (self.span_ns, self.kernels) == (other.span_ns, other.kernels)
        )


def _with_recordings(
    captures: Sequence[PathLike], samples: Sequence[PathLike], context: Sequence[PathLike]
) -> tuple[list[PathLike], list[PathLike], list[PathLike], list[Failure]]:
    """Add what lies in the folders of `pyanalyze record`; one without an nsys report is its samples only."""
    kept: list[PathLike] = []
    raw: list[Failure] = []
    files, beside = list(samples), list(context)
    for given in captures:
        folder = Path(given)
        recorded = folder / "samples.jsonl"
        if not recorded.is_file():
            kept.append(given)
            continue
        files += [recorded] if recorded not in map(Path, files) else []
        node = folder / "node.json"
        beside += [node] if node.is_file() and node not in map(Path, beside) else []
        reports = {path.stem for suffix in ("sqlite", "nsys-rep") for path in folder.glob(f"*.{suffix}")}
        if reports:
            kept.append(given)
        for stream in sorted(folder.glob("*.qdstrm")):
            if stream.stem not in reports:
                how = f"QdstrmImporter -i {shell_word(str(stream))} of a whole Nsight Systems makes a report of it"
                raw.append(Failure(stream, NotACapture(f"{stream} is the raw stream of nsys; {how}")))
    return kept, files, beside, raw


def find_captures(paths: Sequence[PathLike]) -> list[Path]:
    """Replace directories by the captures inside.

    Parameters
    ----------
    paths
        Files and directories.

    Returns
    -------
    list of Path
        Files as given; for a directory its `.sqlite` files, and its `.nsys-rep` files that have no `.sqlite` of
        the same name, sorted by name.

    Raises
    ------
    FileNotFoundError
        A path that does not exist.
    pyanalyze.errors.NotACapture
        A directory without captures.
    pyanalyze.errors.UsageError
        No path at all.

    Examples
    --------
    >>> from pathlib import Path
    >>> find_captures([capture]) == [Path(capture)]
    True
    """
    if not paths:
        raise UsageError(
            "no capture was given; give a .sqlite export, a directory of them, a .nsys-rep, or only --samples"
        )
    found: list[Path] = []
    for given in paths:
        path = Path(given)
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(path.glob("*.sqlite"))
        have = {export.stem for export in inside}
        inside += sorted(report for report in path.glob("*.nsys-rep") if report.stem not in have)
        if not inside and any(path.glob("*/*.sqlite")):
            everything = shell_word(str(path / "**" / "*.sqlite"))
            raise NotACapture(
                f"{path} has no capture itself, its folders have: give one of them, or all with `pyanalyze fleet "
                f"{everything} -o FOLDER`"
            )
        if not inside:
            raise NotACapture(
                f"{path} has no capture (*.sqlite or *.nsys-rep); make one with `nsys export --type sqlite "
                "REPORT.nsys-rep`"
            )
        found.extend(inside)
    return found


def read_late(paths: Sequence[Path], names: Sequence[str]) -> list[tuple[int, Mapping[str, AnyTable]]]:
    """Read event tables that were not asked for at first, by number of the capture; a pack has what was packed.

    Examples
    --------
    >>> from pathlib import Path
    >>> [(number, sorted(tables)) for number, tables in read_late([Path(capture)], ["api_calls"])]
    [(0, ['api_calls'])]
    """
    found: list[tuple[int, Mapping[str, AnyTable]]] = []
    for number, path in enumerate(paths):
        if not is_pack(path):
            # Of a report all of them are exported at once: whoever asks for one asks for others.
            read = _core.read_capture(exported(path, ON_REQUEST), number, list(names), None)
            found.append((number, {name: read[name] for name in names}))
            continue
        from pyanalyze.inputs.pack import unpack

        first = list(paths).index(path)
        held = unpack(path, first, names).captures[number - first]
        found.append((number, {name: held[name] for name in names if name in held}))
    return found


def _listed(paths: PathLike | Sequence[PathLike]) -> list[PathLike]:
    if isinstance(paths, (str, Path)) or hasattr(paths, "__fspath__"):
        return [paths]
    return list(paths)
