"""Devices that listings name where there is no capture: GPUs of `nvidia-smi -L`, MIG instances with their profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.text.numbers import bounded_int
from pyanalyze.text.pairs import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

__all__ = ["with_listed", "with_uuids"]


def with_uuids(
    samples: Sequence[Mapping[str, object]], configured: Sequence[pl.DataFrame]
) -> list[Mapping[str, object]]:
    """Give samples that know a GPU by its index alone (nvidia-smi's table, dmon, pmon) the UUID that a listing says.

    Parameters
    ----------
    samples
        Tables of each file of samples.
    configured
        Rows of listings, as :func:`pyanalyze.inputs.context.read_context` returns them. An index that two listings give
        to different GPUs, of two machines, is nobody's.

    Examples
    --------
    >>> with_uuids([], [])
    []
    """
    import polars as pl

    found: dict[int, set[str]] = {}
    for frame in configured:
        for value in frame.filter(pl.col("key").cast(pl.String) == "gpu")["value"]:
            fields = parse_pairs(value)
            index = bounded_int(fields.get("gpu", ""))
            if index is not None and fields.get("uuid", "").startswith("GPU-"):
                found.setdefault(index, set()).add(fields["uuid"])
    known = {index: uuids.pop() for index, uuids in found.items() if len(uuids) == 1}
    return [_named(tables, known) for tables in samples] if known else [*samples]


def _named(tables: Mapping[str, object], known: Mapping[int, str]) -> Mapping[str, object]:
    import polars as pl

    from pyanalyze.tables.frames import to_frame

    # A table of the core, or a frame of what was converted.
    given: Any = tables["nvml_samples"]
    rows = to_frame(given)
    uuid = pl.col("gpu_uuid").fill_null(pl.col("gpu_index").replace_strict(known, default=None, return_dtype=pl.String))
    return {**tables, "nvml_samples": rows.with_columns(uuid)}


def with_listed(devices: pl.DataFrame, samples: pl.DataFrame, configured: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Complete the devices that samples name by those that listings name.

    Parameters
    ----------
    devices, samples
        Tables of a session that samples made.
    configured
        Rows of listings, as :func:`pyanalyze.inputs.context.read_context` returns them.

    Returns
    -------
    polars.DataFrame
        The devices, with names, UUIDs and profiles filled where samples had none, and further rows for GPUs and
        instances that no sample names.

    Examples
    --------
    >>> import polars as pl
    >>> from pyanalyze.tables.tableset import empty_frame
    >>> row = {"key": "gpu", "value": "gpu=0 uuid=GPU-1 name=NVIDIA L40S"}
    >>> found = with_listed(empty_frame("devices"), empty_frame("nvml_samples"), [pl.DataFrame([row])])
    >>> found.select("device_id", "uuid", "name").rows()
    [(0, 'GPU-1', 'NVIDIA L40S')]
    """
    import polars as pl

    text = [pl.col(name).cast(pl.String) for name, kind in devices.schema.items() if kind == pl.Categorical]
    rows = devices.with_columns(text).to_dicts()
    listed = [
        (str(key), parse_pairs(value))
        for frame in configured
        for key, value in frame.select("key", "value").iter_rows()
    ]
    indexes = _indexes(samples)
    boards = {fields["gpu"]: fields.get("uuid") for key, fields in listed if key == "gpu" and "gpu" in fields}
    boards |= {str(index): uuid for index, uuid in indexes.items() if uuid is not None}
    for key, fields in listed:
        if key == "gpu" and "uuid" in fields:
            _add_board(rows, fields, samples)
    for uuid in dict.fromkeys(boards.values()):
        if uuid is not None:
            _add_instances(rows, uuid, _instances(listed, boards, uuid), samples)
    made = pl.DataFrame(rows, schema=devices.with_columns(text).schema)
    return made.cast(dict(devices.schema))  # type: ignore[arg-type]  # a schema is a mapping of names to types


def _indexes(samples: pl.DataFrame) -> dict[int, str | None]:
    return dict(samples.select("gpu_index", "gpu_uuid").drop_nulls().unique(maintain_order=True).iter_rows())


def _new(rows: list[dict[str, Any]], **values: Any) -> None:
    number = max((row["device_id"] for row in rows), default=-1) + 1
    rows.append({"device_id": number, "capture": 0, "limits_basis": "unknown", **values})


def _add_board(rows: list[dict[str, Any]], fields: dict[str, str], samples: pl.DataFrame) -> None:
    """A GPU by its UUID; one that samples know by its index alone is the same."""
    import polars as pl

    uuid, name = fields["uuid"], fields.get("name")
    known = next((row for row in rows if row["uuid"] == uuid), None)
    if known is None:
        index = bounded_int(fields.get("gpu", ""))
        mine = samples.filter(
            (pl.col("gpu_index") == index) & pl.col("gpu_uuid").is_null() & pl.col("mig_gi").is_null()
        )
        numbers = set(mine["device_id"].drop_nulls())
        known = next((row for row in rows if row["device_id"] in numbers and row["uuid"] is None), None)
    if known is None:
        _new(rows, name=name, uuid=uuid, gpu_uuid=uuid)
    else:
        known.update(uuid=uuid, gpu_uuid=uuid, name=known["name"] or name)


def _instances(
    listed: Sequence[tuple[str, dict[str, str]]], boards: dict[str, str | None], uuid: str
) -> list[dict[str, str]]:
    """MIG instances of a board: with UUIDs (`-L`), else with the numbers of GPU and compute instances (`mig -lgi`)."""
    mine = [
        (key, fields)
        for key, fields in listed
        if key.startswith("mig_") and uuid in (fields.get("gpu_uuid"), boards.get(fields.get("gpu", "")))
    ]
    for kind in ("mig_device", "mig_compute_instance", "mig_gpu_instance"):
        found = [fields for key, fields in mine if key == kind]
        if found:
            profiles = {
                fields["gi"]: fields["profile"]
                for key, fields in mine
                if key == "mig_gpu_instance" and {"gi", "profile"} <= fields.keys()
            }
            return [
                {**fields, "profile": fields.get("profile") or profiles.get(fields.get("gi", ""), "")}
                for fields in found
            ]
    return []


def _add_instances(
    rows: list[dict[str, Any]], board: str, listed: Sequence[dict[str, str]], samples: pl.DataFrame
) -> None:
    """Instances of a board: those that samples number get their profile; the others are devices of their own."""
    import polars as pl

    # `nvidia-smi -q` and `-L` list instances by the same index: the order of the rows is that of the list.
    mine = samples.filter((pl.col("gpu_uuid") == board) & pl.col("mig_gi").is_not_null() & pl.col("pid").is_null())
    numbered = mine.select("device_id", "mig_gi", "mig_ci").unique(maintain_order=True).rows()
    name = next((row["name"] for row in rows if row["uuid"] == board), None)
    for place, fields in enumerate(listed):
        gi, ci = (bounded_int(fields.get(key, "")) for key in ("gi", "ci"))
        if gi is None and len(numbered) == len(listed):
            device = numbered[place][0]
        else:
            device = next((d for d, g, c in numbered if (g, c) == (gi, ci) or (g == gi and None in (c, ci))), None)
        if device is None and gi is None:
            device = _only_of_profile(rows, board, fields.get("profile"), listed)
        uuid = fields.get("uuid")
        known = next((row for row in rows if row["device_id"] == device or (uuid and row["uuid"] == uuid)), None)
        profile = fields.get("profile") or None
        if known is not None:
            known.update(mig_profile=known.get("mig_profile") or profile, uuid=known["uuid"] or uuid, gpu_uuid=board)
        else:
            _new(rows, name=f"{name or 'GPU'} MIG {profile}", uuid=uuid, gpu_uuid=board, mig_profile=profile)


def _only_of_profile(
    rows: Sequence[dict[str, Any]], board: str, profile: str | None, listed: Sequence[dict[str, str]]
) -> int | None:
    """The instance of a board that alone has a profile, where the list has that profile once; None: it is not known."""
    mine = [
        row["device_id"]
        for row in rows
        if row.get("gpu_uuid") == board and profile and row.get("mig_profile") == profile
    ]
    once = sum(fields.get("profile") == profile for fields in listed) == 1
    return int(mine[0]) if once and len(mine) == 1 else None
