"""What is odd in the captures: what reading them found, and what shows once it is known who shares a context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.core import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl

    from pyanalyze.tables.tableset import TableSet

__all__ = ["match_quality"]

#: Fraction of the kernel starts of a process inside its residency below which one of the two is doubted, and the fewest
#: kernels of which that is said.
MATCHES = 0.9
_FEWEST_MATCHED = 5


def match_quality(tables: TableSet, groups: Callable[[], Mapping[int, frozenset[int]]]) -> pl.DataFrame:
    """Add to the table `quality` the processes of which many kernels start outside their residency.

    Records name any client of an MPS group for the context of all: kernels of each may start while the group is
    resident.

    Parameters
    ----------
    tables
        The tables.
    groups
        Gives what :func:`~pyanalyze.analysis.residency.mps_group` found, by device. Called only where some process
        matches badly.

    Examples
    --------
    >>> import pyanalyze
    >>> found = match_quality(pyanalyze.load(capture).tables, lambda: {})
    >>> "low_match_rate" in found["name"]
    False
    """
    import polars as pl

    quality = tables.quality
    if "tenants" not in tables:
        return quality
    low: dict[int, list[str]] = {}
    for tenant in tables.tenants.filter(pl.col("match_rate") < MATCHES).iter_rows(named=True):
        device = tenant["device_id"]
        own = tables.of_device("kernels", device).filter(
            pl.col("capture") == tenant["capture"], pl.col("pid").eq_missing(tenant["pid"])
        )
        rate, group = tenant["match_rate"], groups().get(device, frozenset())
        if tenant["tenant_id"] in group and own.height:
            resident = tables.of_device("residency", device).filter(pl.col("tenant_id").is_in(list(group)))
            # The context of a group has one residency interval at a time.
            last = own.sort("start_ns").join_asof(
                resident.select("start_ns", "end_ns").sort("start_ns"), on="start_ns", suffix="_resident"
            )
            rate = (last["start_ns"] < last["end_ns_resident"]).sum() / own.height
        if own.height >= _FEWEST_MATCHED and rate < MATCHES:
            who = "the process without pid" if tenant["pid"] is None else f"pid {tenant['pid']}"
            low.setdefault(tenant["capture"], []).append(f"device {device}: {who} {rate * 100:.0f} %")
    if not low:
        return quality
    (counter,) = (one for one in _core.quality_counters() if one["name"] == "low_match_rate")
    rows = [
        {
            "capture": capture,
            "name": counter["name"],
            "severity": counter["severity"],
            "source": counter["source"],
            "count": len(each),
            "detail": "; ".join(each),
        }
        for capture, each in low.items()
    ]
    return pl.concat([quality, pl.DataFrame(rows, schema=quality.schema)])
