"""Which captures are of one machine: what is said of a machine beside one capture says nothing of another's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.tables.frames import to_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.frames import AnyTable

__all__ = ["machines_of", "unplaced_samples", "with_machine"]


def machines_of(captures: Sequence[Mapping[str, AnyTable]]) -> tuple[int, ...]:
    """Number the machines of captures: those that show one board are of one.

    Parameters
    ----------
    captures
        Tables of each capture, before they are joined.

    Returns
    -------
    tuple of int
        Of each capture the number of the first that is of the same machine. One UUID is one board, and so is one PCI
        address under one host name: many machines have the same host name, or the same address.

    Examples
    --------
    >>> import pyanalyze
    >>> machines_of([pyanalyze.load(capture).tables.stored])
    (0,)
    """
    found: list[int] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, tables in enumerate(captures):
        boards = list(_boards(tables))
        known = {found[seen[board]] for board in boards if board in seen}
        found.append(min(known, default=number))
        # A capture that shows boards of two ties them.
        found = [found[number] if one in known else one for one in found]
        for board in boards:
            seen.setdefault(board, number)
    return tuple(found)


def _boards(tables: Mapping[str, AnyTable]) -> Iterator[tuple[str, ...]]:
    (capture,) = to_frame(tables["capture"]).iter_rows(named=True)
    host = capture["host_hash"]
    rows = to_frame(tables["devices"]).select("uuid", "gpu_uuid", "bus_location").rows()
    for *uuids, address in rows:
        yield from (("uuid", uuid) for uuid in uuids if uuid is not None)
        if host is not None and address is not None:
            yield "address", host, address
    # Nothing else tells of the machine of a capture without boards.
    if host is not None and not any(any(row) for row in rows):
        yield "host", host


def with_machine(
    configured: Sequence[pl.DataFrame], devices: pl.DataFrame, machines: Sequence[int]
) -> tuple[list[pl.DataFrame], list[str]]:
    """Give rows of files the capture of the machine that their file is about.

    Parameters
    ----------
    configured
        Rows of each file, as :func:`pyanalyze.inputs.context.place_context` placed them.
    devices
        The table `devices`.
    machines
        What :func:`machines_of` found.

    Returns
    -------
    list of polars.DataFrame
        A file that names GPUs is about their machines: each gets its rows. Where it names none, and the captures are
        of several, its rows keep no capture and are used for no GPU.
    list of str
        The readers of those rows.

    Examples
    --------
    >>> import polars as pl
    >>> with_machine([], pl.DataFrame({"device_id": [], "capture": []}), (0, 0))
    ([], [])
    """
    import polars as pl

    if len(set(machines)) < 2:
        return list(configured), []
    machine = {number: machines[capture] for number, capture in devices.select("device_id", "capture").iter_rows()}
    found: list[pl.DataFrame] = []
    unplaced: list[str] = []
    for frame in configured:
        captures = frame["capture"].drop_nulls().unique().to_list()
        named = [machine[number] for number in frame["device_id"].drop_nulls().unique(maintain_order=True)]
        abouts = sorted({machines[capture] for capture in captures} or set(named))
        if not abouts:
            found.append(frame)
            unplaced += frame["source"].cast(pl.String).unique(maintain_order=True).to_list()
            continue
        placed = pl.col("device_id").is_not_null()
        found.append(frame.filter(placed))
        found += [frame.filter(~placed).with_columns(capture=pl.lit(about, pl.UInt32)) for about in abouts]
    return found, list(dict.fromkeys(unplaced))


def unplaced_samples(samples: pl.DataFrame, machines: Sequence[int]) -> pl.Expr | None:
    """Say which samples name a GPU by its index alone, where each of several machines has one of that index."""
    import polars as pl

    if len(set(machines)) < 2 or samples.is_empty():
        return None
    return pl.col("gpu_uuid").is_null() & pl.col("gpu_name").is_null() & pl.col("device_id").is_not_null()
