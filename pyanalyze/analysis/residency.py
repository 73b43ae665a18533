"""Who held the engine, as an object: slices per tenant, switches, cost, time slice, fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyanalyze.core import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.analysis.occupancy import PlacementPolicy
    from pyanalyze.tables.frames import AnyTable
    from pyanalyze.tables.tableset import TableSet

__all__ = ["Ledger", "TenantSlices", "ledgers"]


@dataclass(frozen=True)
class TenantSlices:
    """What the slices of one tenant add up to; times in nanoseconds.

    Attributes
    ----------
    slices, cut_slices
        Complete slices, and those that the recording or lost records cut. Lengths are of whole slices, though one may
        begin before the window.
    resident_ns, resident_share
        In the window, and as a part of the time in which anybody held the engine there.
    idle_ns, idle_share
        Of that residency, with none of its kernels in flight; None: its kernels were not traced.
    expired, yielded
        Slices that lasted their time, and shorter ones, that another tenant followed; None: no time slice is known.
    """

    tenant_id: int
    name: str
    slices: int
    cut_slices: int
    resident_ns: int
    resident_share: float | None
    idle_ns: int | None
    idle_share: float | None
    p10_slice_ns: int | None
    median_slice_ns: int | None
    p90_slice_ns: int | None
    max_slice_ns: int | None
    expired: int | None
    yielded: int | None


@dataclass(frozen=True)
class Ledger:
    """Who held the engine of one device; times in nanoseconds.

    Attributes
    ----------
    basis
        `observed`: from switch records. `inferred`: from kernels' starts and ends, because the verdict is
        time-slicing and there are no switch records.
    held_ns, idle_ns
        Of the window: somebody held the engine; nobody did and it was not being handed over.
    cost_kind, median_cost_ns, total_cost_ns, overhead_share
        Cost of switches: `gap` or `full`; None without switch records.
    time_slice_ns, policy
        Estimated time slice, and the policy of `nvidia-smi compute-policy` that it looks like.
    jain
        Jain's index of residency in the window: 1 is equal.
    dropped
        Switch records that were lost, by their sequence numbers; None without switch records.
    """

    device_id: int
    device: str
    basis: Literal["observed", "inferred"]
    start_ns: int | None
    end_ns: int | None
    held_ns: int | None
    idle_ns: int | None
    switches: int | None
    creations: int | None
    unclear: int | None
    cost_kind: str | None
    median_cost_ns: int | None
    total_cost_ns: int | None
    overhead_share: float | None
    median_save_ns: int | None
    median_restore_ns: int | None
    time_slice_ns: int | None
    policy: str | None
    jain: float | None
    dropped: int | None
    tenants: tuple[TenantSlices, ...]

    def __str__(self) -> str:
        """Show it in a terminal: a line for the engine, a line per tenant."""
        from pyanalyze.text import format as fmt
        from pyanalyze.text.escape import visible

        known = [
            f"time slice {fmt.duration(self.time_slice_ns)} ({self.policy})" if self.time_slice_ns else "",
            f"{fmt.count(self.switches)} switches" if self.switches is not None else "switches not recorded",
            f"{fmt.percent(self.overhead_share)} overhead ({self.cost_kind})"
            if self.overhead_share is not None
            else "",
            f"fairness {self.jain:.3f}" if self.jain is not None else "",
        ]
        lines = [f"{visible(self.device)}: {', '.join(part for part in known if part)} [{self.basis}]"]
        for t in self.tenants:
            idle = "" if t.idle_share is None else f", idle {fmt.percent(t.idle_share)} of it"
            lines.append(
                f"  {visible(t.name)}: {fmt.percent(t.resident_share)} in {fmt.count(t.slices)} slices "
                f"of {fmt.duration(t.median_slice_ns)}{idle}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def ledgers(tables: TableSet) -> tuple[Ledger, ...]:
    """Add up who held the engine, per device.

    Parameters
    ----------
    tables
        The tables.

    Returns
    -------
    tuple of Ledger
        One per device of which anybody's residency is known, observed or inferred, by device id.

    Examples
    --------
    >>> import pyanalyze
    >>> found = ledgers(pyanalyze.load(capture).analysis.tables)[0]
    >>> found.basis, found.policy, [tenant.name for tenant in found.tenants]
    ('observed', 'default', ['app_a', 'app_b', 'app_c'])
    """
    import polars as pl

    names = dict(tables.tenants.select("tenant_id", "name").iter_rows())
    devices = dict(tables.devices.select("device_id", "name").iter_rows())
    lost = tables.quality.filter(pl.col("name").cast(pl.String) == "switch_events_lost")["count"].sum()
    found = []
    for engine in tables.engine.sort("device_id").iter_rows(named=True):
        device_id = engine["device_id"]
        rows = tables.ledger.filter(pl.col("device_id") == device_id).sort("resident_ns", descending=True)
        observed = str(engine["basis"]) == "observed"
        found.append(
            Ledger(
                **engine,
                device=devices.get(device_id) or f"device {device_id}",
                dropped=int(lost) if observed else None,
                tenants=tuple(
                    TenantSlices(
                        name=names.get(row["tenant_id"]) or f"tenant {row['tenant_id']}",
                        **{key: row[key] for key in TenantSlices.__dataclass_fields__ if key != "name"},
                    )
                    for row in rows.iter_rows(named=True)
                ),
            )
        )
    return tuple(found)


def inferred_tables(tables: TableSet, policies: Mapping[int, PlacementPolicy]) -> dict[str, _core.Table]:
    """Deduce residency from kernels where switch records are missing: the table `inferred_residency`.

    Parameters
    ----------
    tables
        The tables.
    policies
        Who shares SMs with whom, by device: only a verdict says whether contexts alternate at all.
    """
    return _core.infer_residency(tables.for_core(), policies, None)


def summary_tables(tables: TableSet, inferred: Mapping[str, AnyTable]) -> dict[str, _core.Table]:
    """Sum up residency by tenant and by device: the tables `ledger` and `engine`.

    Parameters
    ----------
    tables
        The tables.
    inferred
        What :func:`inferred_tables` made.
    """
    return _core.ledger({**tables.stored, **inferred}, None)
