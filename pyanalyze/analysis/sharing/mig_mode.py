"""While MIG mode is on the driver records no context switches: where it is on, no command asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyanalyze.tables.boards import samples_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet

__all__ = ["instance_of_samples", "mig_is_on", "mig_modes_of_samples", "without_switch_records"]

#: Settings that list MIG instances: these exist in MIG mode only.
_INSTANCE_LISTS: Final = frozenset({"mig_device", "mig_gpu_instance", "mig_compute_instance"})


def instance_of_samples(tables: TableSet, device_id: int) -> str | None:
    """Name the MIG instance that samples of a device are of, such as `GI 3, CI 0`; None: they are of a board.

    Examples
    --------
    >>> import pyanalyze
    >>> instance_of_samples(pyanalyze.load(capture).tables, 0) is None
    True
    """
    if tables.samples.is_empty():
        return None
    # Lists of a board may name the instances of its processes: other samples of it are of none.
    named = tables.samples_of(device_id).select("mig_gi", "mig_ci").unique()
    if named.height != 1 or named["mig_gi"][0] is None:
        return None
    gpu_instance, compute_instance = named.row(0)
    return f"GI {gpu_instance}{'' if compute_instance is None else f', CI {compute_instance}'}"


def mig_modes_of_samples(tables: TableSet, device: Mapping[str, Any]) -> set[str]:
    """What samples of a device say of its MIG mode, in small letters: several words, where it changed.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> mig_modes_of_samples(tables, tables.rows_of("devices", 0)[0])
    set()
    """
    import polars as pl

    if device["mig_profile"] is None:
        rows = tables.board_samples_of(device["device_id"]).get("mig_mode")
    else:
        rows = samples_of(tables, device).filter(pl.col("metric").cast(pl.String) == "mig_mode")
    return set() if rows is None else {str(text).strip().lower() for text in rows["text"].drop_nulls()}


def mig_is_on(tables: TableSet, device: Mapping[str, Any]) -> bool:
    """Whether a device is a MIG instance, or a board in MIG mode.

    What samples say of the mode counts; where they say nothing and there is no capture, a listing of instances.

    Parameters
    ----------
    tables
        The tables.
    device
        Row of the table `devices`.

    Examples
    --------
    >>> import pyanalyze
    >>> tables = pyanalyze.load(capture).tables
    >>> mig_is_on(tables, tables.rows_of("devices", 0)[0])
    False
    """
    number = device["device_id"]
    if device["mig_profile"] is not None or tables.samples_of(number)["mig_gi"].count():
        return True
    words = mig_modes_of_samples(tables, device)
    # Where it was on for a part of the time only, switches of the other part can be recorded.
    if words & {"enabled", "disabled"} or tables.paths:
        return words == {"enabled"}
    return any(row["key"] in _INSTANCE_LISTS for row in tables.settings_of(number))


def without_switch_records(tables: TableSet, verdict: Verdict) -> Verdict:
    """Say of a board in MIG mode, as of an instance, that no command captures its context switches.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> verdict = session.analysis.verdicts[0]
    >>> without_switch_records(session.tables, verdict) is verdict
    True
    """
    asked = [gap for gap in verdict.missing if gap.what == "context_switches" and gap.how]
    (device,) = tables.rows_of("devices", verdict.device_id)
    if not asked or not mig_is_on(tables, device):
        return verdict
    # The reason that a MIG instance of a capture has.
    why = f"{asked[0].why}; while MIG is in use the driver records no context switches"
    never = asked[0].model_copy(update={"why": why, "how": ""})
    return verdict.model_copy(update={"missing": [never if gap is asked[0] else gap for gap in verdict.missing]})
