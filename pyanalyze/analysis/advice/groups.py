"""What to change between groups of work of one process: who should run when, and with how many SMs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.results.advice import Advice
from pyanalyze.tables.groups import is_collective
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyanalyze.analysis.interference import DeviceInterference, TenantInterference
    from pyanalyze.tables.tableset import TableSet

__all__ = ["between_groups"]

#: Overlapping that is faster than this, over running one after the other, is worth keeping.
_GAIN = 1.05


def between_groups(tables: TableSet, found: DeviceInterference, window_ns: int) -> Iterator[Advice]:
    """Advise what to change between groups of work that slow each other, the most time first.

    Parameters
    ----------
    tables
        Tables of groups.
    found
        Their interference.
    window_ns
        First to last activity on the device.
    """
    import polars as pl

    labels = tables.labels(found.device_id)
    usage = tables.tenant_usage.filter(pl.col("device_id") == found.device_id)
    busy = dict(usage.select("tenant_id", "busy_ns").iter_rows())
    gain = None if found.figures is None else found.figures.speedup_over_serial
    items = []
    for victim in found.tenants:
        resident = victim.slowdown.resident
        if not victim.is_group or not victim.slowed or resident is None:
            continue
        added_ns = round((busy.get(victim.tenant_id) or 0) * (1 - 1 / resident.value))
        aggressor = _aggressor(found, victim)
        if added_ns > 0 and aggressor is not None:
            items.append(_item(tables, labels, victim, aggressor, (added_ns, window_ns), gain))
    yield from sorted(items, key=lambda item: -(item.at_stake_ns or 0))


def _aggressor(found: DeviceInterference, victim: TenantInterference) -> int | None:
    cells = [] if found.figures is None else found.figures.matrix or []
    mine = [(cell.execution, cell.aggressor) for cell in cells if cell.victim == victim.tenant_id and cell.execution]
    known = [(value, number) for value, number in mine if value > 1]
    return max(known)[1] if known else None


def _item(
    tables: TableSet,
    labels: Mapping[int, str],
    victim: TenantInterference,
    aggressor: int,
    times: tuple[int, int],
    gain: float | None,
) -> Advice:
    added_ns, window_ns = times
    who, whom = labels[aggressor], labels[victim.tenant_id]
    resident = victim.slowdown.resident
    factor = "" if resident is None else f" {fmt.ratio(resident.value)}"
    why = f"kernels of {whom} execute{factor} as long as solo, over the whole time, mostly because of {who}"
    if gain is not None:
        one = "faster" if gain >= _GAIN else "not faster" if gain > 1 / _GAIN else "slower"
        why += f"; running them at the same time is {one} than one after the other ({fmt.ratio(gain)})"
    commands: list[str] = []
    if is_collective(tables, aggressor):
        action = f"Let collectives use fewer SMs beside {whom}"
        commands = ["NCCL_MAX_CTAS=8 PROGRAM   # NCCL 2.17 and later: blocks of a collective at most"]
        risk = f"{who} take longer; compare their own time as well"
    elif gain is not None and gain < _GAIN:
        action = f"Run {whom} and {who} one after the other"
        risk = "time in which one of them leaves SMs free is no longer used"
    else:
        action = f"Give {whom} streams of a higher priority than {who} (cudaStreamCreateWithPriority)"
        risk = f"{who} waits whenever {whom} has blocks to run"
    return Advice(
        action=action,
        commands=commands,
        expected=None,
        bound=f"{fmt.duration(added_ns)}, {fmt.percent(added_ns / window_ns)} of the window, added to its kernels",
        why=why,
        undo=None,
        risk=risk,
        wrong_if=f"kernels of {whom} take as long in a run without {who}",
        at_stake_ns=added_ns,
        at_stake_share=added_ns / window_ns,
    )
