"""Which board a MIG instance was cut from, and how that is known: samples and process lists are of boards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyanalyze.text.pairs import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["Board", "board_of", "samples_of"]


@dataclass(frozen=True)
class Board:
    """The board of a device.

    Attributes
    ----------
    uuid
        Its UUID, `GPU-...`.
    how
        How it is known, for a sentence.
    """

    uuid: str
    how: str


def board_of(tables: TableSet, device: Mapping[str, Any]) -> Board | None:
    """Find the board of a MIG instance.

    Parameters
    ----------
    tables, device
        The tables, and a row of `devices`.

    Returns
    -------
    Board or None
        None for a whole GPU, and where nothing says which board it is: several of one model may be in one host.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> board_of(tables, tables.devices.row(0, named=True)) is None
    True
    """
    if device["mig_profile"] is None:
        return None
    return next(_found(tables, device), None)


def _found(tables: TableSet, device: Mapping[str, Any]) -> Iterator[Board]:
    import polars as pl

    uuid = device["uuid"]
    if device["gpu_uuid"] is not None and device["gpu_uuid"] != uuid:
        yield Board(device["gpu_uuid"], "the input says so")
    rows = tables.configured.select(pl.col("key").cast(pl.String), "value")
    listed = [parse_pairs(value) for key, value in rows.iter_rows() if key == "mig_device"]
    for fields in listed:
        if uuid is not None and fields.get("uuid") == uuid and fields.get("gpu_uuid"):
            yield Board(fields["gpu_uuid"], "nvidia-smi -L lists it there")
    wholes = tables.devices.filter(pl.col("mig_profile").is_null(), pl.col("uuid").is_not_null())
    address = device["bus_location"]
    at_address = wholes.filter(pl.col("bus_location") == address) if address is not None else wholes.clear()
    if at_address.height == 1:
        yield Board(at_address["uuid"][0], f"it has the same PCI address, {address}")
    name = _board_name(device["name"])
    hosts = dict(tables.capture.select("capture", "host_hash").iter_rows())
    host = hosts.get(device["capture"])
    alike = [
        row
        for row in wholes.iter_rows(named=True)
        if row["name"] == name and host is not None and hosts.get(row["capture"]) == host
    ]
    if len(alike) == 1:
        yield Board(alike[0]["uuid"], f"it is the only {name} that captures of this host show")
    gpus = [parse_pairs(value) for key, value in rows.iter_rows() if key == "gpu"]
    known = {(fields.get("uuid"), fields.get("name")) for fields in gpus}
    sampled = tables.samples.filter(pl.col("gpu_uuid").str.starts_with("GPU-"), pl.col("gpu_name").is_not_null())
    known |= set(sampled.select("gpu_uuid", pl.col("gpu_name").cast(pl.String)).unique().iter_rows())
    named = {uuid for uuid, model in known if uuid and model is not None and _board_name(model) == name}
    if name is not None and len(named) == 1:
        yield Board(named.pop(), f"it is the only {name} in the samples and listings")


def samples_of(tables: TableSet, device: Mapping[str, Any]) -> pl.DataFrame:
    """Select the samples of a device: its own, and of its board those that are of no instance.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> samples_of(tables, tables.devices.row(0, named=True)).height
    0
    """
    import polars as pl

    board = board_of(tables, device)
    if board is None:
        return tables.samples_of(device["device_id"])
    here = pl.col("device_id") == device["device_id"]
    of_board: pl.Expr = (pl.col("gpu_uuid") == board.uuid) & pl.col("mig_gi").is_null()
    return tables.samples.filter(here | of_board)


def _board_name(name: str | None) -> str | None:
    """The product of a board, or of an instance: the name of an instance begins with it."""
    return None if name is None else name.partition(" MIG ")[0]
