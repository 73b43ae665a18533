"""Processes that samples list on a device, and the memory that they show of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.tables.boards import board_of, samples_of
from pyanalyze.vocabulary import MPS_SERVER

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = [
    "as_of",
    "compute_processes",
    "graphics_only",
    "list_apart_ns",
    "listed_nobody",
    "listed_of_board",
    "listed_times",
    "most_listed_together",
    "process_memory",
    "sampled_busy",
    "unlisted_tenants",
]


#: Driver models of Windows under which a GPU draws the desktop.
_DISPLAY_MODELS = ("WDDM", "MCDM")
_WINDOWS_PROGRAM = r"\\|(?i:\.exe$)"
#: What has a list of processes in each answer: `nvidia-smi`, and `-q -x`, with which `-d` (parts of it) does not work.
_LISTS_ALWAYS = frozenset({"nvidia-smi-query-xml", "nvidia-smi-table"})
#: Rows of one list may have times of their own, as the driver was asked for one process after the other.
_LIST_NS = 100_000_000


def as_of(samples: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Select the samples that answer for a window: those taken in it, and the lists of processes nearest to it.

    Who is on a GPU, as a client of what, changes far more seldom than a list is taken: without one in the window, the
    nearest tells. How busy a process was at another time does not: that is null.

    Parameters
    ----------
    samples
        Rows of `nvml_samples`.
    window
        First and last time, ns.

    Examples
    --------
    >>> import pyanalyze
    >>> as_of(pyanalyze.load(capture).tables.samples, (0, 1)).height
    0
    """
    import polars as pl

    listed, apart = pl.col("pid").is_not_null(), _apart_ns(window).abs()
    nearest = apart.filter(listed).min().over("source", "device_id")
    share = pl.col("metric").cast(pl.String).str.ends_with("_pct")
    return (
        samples.with_columns(_apart=apart, _nearest=nearest)
        .filter(pl.col("_apart").fill_null(0).eq(0) | (listed & (pl.col("_apart") <= pl.col("_nearest") + _LIST_NS)))
        .with_columns(value=pl.when(~share | pl.col("_apart").fill_null(0).eq(0)).then("value"))
        .drop("_apart", "_nearest")
    )


def list_apart_ns(tables: TableSet, device_id: int) -> int:
    """How long before the window (negative: after it) the list of processes on a device was taken; 0: in it."""
    import polars as pl

    window = tables.selection.start_ns, tables.selection.end_ns
    times = _of_processes(tables, device_id)["time_ns"].drop_nulls()
    if window[0] is None or window[1] is None or times.is_empty():
        return 0
    nearest = times.to_frame().select(_apart_ns((window[0], window[1]))).sort(pl.first().abs())
    return int(nearest.item(0, 0))


def _apart_ns(window: tuple[int, int]) -> pl.Expr:
    """How long before a window a time is, negative: after it."""
    import polars as pl

    time = pl.col("time_ns")
    return (
        pl.when(time < window[0])
        .then(window[0] - time)
        .when(time > window[1])
        .then(window[1] - time)
        .otherwise(time - time)
    )


def process_memory(tables: TableSet, device_id: int) -> dict[int, int]:
    """Most memory that samples show of each process on a device.

    Parameters
    ----------
    tables, device_id
        The device. Samples that name no GPU are taken where there is no other; those of a board may be of each of
        its MIG instances, as a process runs in one of them.

    Returns
    -------
    dict of int to int
        Bytes by pid, as the samples have it.

    Examples
    --------
    >>> import pyanalyze
    >>> process_memory(pyanalyze.load(capture).tables, 0)
    {}
    """
    if tables.samples.is_empty():
        return {}
    import polars as pl

    here = _of_processes(tables, device_id)
    if tables.devices.height == 1:
        named = ("device_id", "gpu_index", "gpu_uuid", "gpu_name", "mig_gi")
        unnamed = pl.all_horizontal(pl.col(name).is_null() for name in named)
        here = pl.concat([here, tables.samples.filter(unnamed, pl.col("pid").is_not_null())])
    if here.is_empty():
        return {}
    rows = here.filter(pl.col("metric").cast(pl.String) == "process_memory_bytes")
    peaks = rows.group_by("pid").agg(pl.col("value").max())
    return {pid: int(value) for pid, value in peaks.iter_rows() if value is not None}


def compute_processes(tables: TableSet, device_id: int) -> list[tuple[int, str, str | None]] | None:
    """List the compute processes that samples show on a device.

    Parameters
    ----------
    tables, device_id
        The device.

    Returns
    -------
    list of (int, str, str or None), or None
        Host pid, name and type (C, M+C; None: not said), by pid; None where no sample lists processes.

    Examples
    --------
    >>> import pyanalyze
    >>> compute_processes(pyanalyze.load(capture).tables, 0) is None
    True
    """
    listed = _listed(tables, device_id)
    if listed is None:
        return None
    rows = listed.unique(subset=["pid"], keep="first", maintain_order=True).sort("pid")
    return [(row["pid"], row["process_name"] or "", row["process_type"]) for row in rows.iter_rows(named=True)]


def listed_nobody(tables: TableSet, device_id: int) -> bool:
    """Whether a tool that always lists the processes of a board listed none: that is not the same as no list.

    A container without the pid namespace of the host sees none either.

    Examples
    --------
    >>> import pyanalyze
    >>> listed_nobody(pyanalyze.load(capture).tables, 0)
    False
    """
    formats = set(tables.samples_of(device_id)["format"].unique())
    return bool(formats & _LISTS_ALWAYS) and _of_processes(tables, device_id).is_empty()


def sampled_busy(tables: TableSet, device_id: int) -> frozenset[int]:
    """Return the processes on a device of which a sample shows that their kernels ran, by host pid.

    Examples
    --------
    >>> import pyanalyze
    >>> sampled_busy(pyanalyze.load(capture).tables, 0)
    frozenset()
    """
    import polars as pl

    rows = _of_processes(tables, device_id)
    if rows.is_empty():
        return frozenset()
    used = (pl.col("metric").cast(pl.String) == "process_sm_pct") & (pl.col("value") > 0)
    return frozenset(rows.filter(used)["pid"])


def _of_processes(tables: TableSet, device_id: int) -> pl.DataFrame:
    """Return the samples of processes on a device: its own, and of its board those that are of no instance."""
    if tables.process_samples.is_empty():
        return tables.process_samples
    import polars as pl

    (device,) = tables.rows_of("devices", device_id)
    if board_of(tables, device) is None:
        return tables.process_samples_of(device_id)
    return samples_of(tables, device).filter(pl.col("pid").is_not_null())


def graphics_only(tables: TableSet, device_id: int | None) -> pl.Expr:
    """Select rows of processes that are not known to have a compute context.

    G has graphics contexts only, C+G has both: a renderer that uses CUDA shares the SMs. Windows lists every desktop
    program as C+G.
    """
    import polars as pl

    kind, name = (pl.col(column).cast(pl.String).fill_null("") for column in ("process_type", "process_name"))
    rows = tables.rows("configured") if device_id is None else tables.settings_of(device_id)
    if any(row["key"] == "driver_model.current" and row["value"] in _DISPLAY_MODELS for row in rows):
        return kind.is_in(["G", "C+G"])
    return (kind == "G") | ((kind == "C+G") & name.str.contains(_WINDOWS_PROGRAM))


def _listed(tables: TableSet, device_id: int) -> pl.DataFrame | None:
    listed = _of_processes(tables, device_id)
    if listed.is_empty():
        return None
    # The type is the same in every row of a process.
    return listed.filter(~graphics_only(tables, device_id))


def listed_of_board(tables: TableSet, device_id: int) -> bool:
    """Whether the process list is of the whole board: processes of its other MIG instances stand in it as well."""
    import polars as pl

    listed = _listed(tables, device_id)
    return listed is not None and listed.filter(pl.col("device_id") == device_id).is_empty()


def listed_times(tables: TableSet, device_id: int) -> pl.Series:
    """Return when lists name a compute process on a device; empty: never, or at times that are not known.

    Examples
    --------
    >>> import pyanalyze
    >>> len(listed_times(pyanalyze.load(capture).tables, 0))
    0
    """
    listed = _listed(tables, device_id)
    return (tables.process_samples.clear() if listed is None else listed)["time_ns"].drop_nulls()


def unlisted_tenants(tables: TableSet, device_id: int) -> tuple[str, ...]:
    """Traced tenants of a device that its process list lacks: by host pid where it is known, else by pid."""
    import polars as pl

    listed = compute_processes(tables, device_id)
    if listed is None:
        return ()
    pids = [pid for pid, _, _ in listed]
    traced = tables.tenants.filter((pl.col("device_id") == device_id) & pl.col("traced"))
    known = pl.coalesce("host_pid", "pid").is_in(pids).fill_null(value=False)
    labels = tables.labels(device_id)
    return tuple(labels[number] for number in traced.filter(~known)["tenant_id"].sort())


def most_listed_together(tables: TableSet, device_id: int) -> int | None:
    """Most processes, MPS servers aside, that lists show on a device at one time; without times: all of them."""
    import polars as pl

    listed = _listed(tables, device_id)
    if listed is None:
        return None
    server = pl.col("process_name").cast(pl.String).fill_null("").str.contains(MPS_SERVER)
    time = pl.col("time_ns")
    held = listed.filter(~server).group_by("pid").agg(first=time.min(), last=time.max())
    held = held.with_columns(
        pl.col("first").fill_null(pl.col("first").min()), pl.col("last").fill_null(pl.col("last").max())
    )
    if held["first"].null_count():
        return held.height
    moments = held["first"].unique().to_list()
    return max((held.filter(pl.col("first") <= at, pl.col("last") >= at).height for at in moments), default=0)
