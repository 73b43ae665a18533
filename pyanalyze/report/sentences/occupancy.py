"""SM occupancy: its value, its basis, and what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import untraced_share
from pyanalyze.report.sentences.tenants import has_untraced
from pyanalyze.results.occupancy import Bounded
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import NEGLIGIBLE_RESIDENCY, TRAITS

if TYPE_CHECKING:
    from pyanalyze.results.occupancy import CounterCheck, Occupancy
    from pyanalyze.results.report import Device

#: Part of the window with work in flight, from which on means over that time are those of the window.
_NEARLY_ALL = 0.95


def by_traced(device: Device) -> str:
    """Say what occupancy is modelled without: whole graphs, and untraced tenants that were resident as well."""
    graphs = 0.0 if device.occupancy is None else device.occupancy.whole_graphs
    if graphs > NEGLIGIBLE_RESIDENCY:
        return f", without whole CUDA graphs (in flight for {fmt.percent(graphs)}), which the upper end allows for"
    if untraced_share(device) <= NEGLIGIBLE_RESIDENCY:
        return ""
    return f", traced kernels only{': untraced tenants count as idle' if has_untraced(device) else ''}"


def bounded_text(found: Bounded) -> str:
    """Say a fraction with its interval: 61 % (52 to 70); a value that is itself the bound says so."""
    return fmt.percent_range(found.value, found.low, found.high)


def while_in_flight(found: Occupancy) -> tuple[Bounded, Bounded] | None:
    """Active SMs and warps, means of the time in which traced work was in flight.

    None: it was in flight for nearly all of the window, that is not known, values are scaled to counters, which also
    see other work, or the model has SMs active for longer.
    """
    part = found.in_flight
    if part is None or not found.sm_active.value <= part < _NEARLY_ALL or found.calibration is not None:
        return None
    active, warps = (
        Bounded(**{end: min(value / part, 1.0) for end, value in one.model_dump().items()})
        for one in (found.sm_active, found.warps)
    )
    return active, warps


def kernels_in_flight(device: Device) -> str:
    """Name the time of :func:`while_in_flight`: of all traced tenants together, not of the one that is resident."""
    out = ", its tenant resident or switched out" if TRAITS[device.sharing.mode].time_sliced else ""
    return f"any traced kernel in flight{out}"


def counted_sms(device: Device) -> CounterCheck | None:
    """The counter of active SMs, where the model was not scaled to it: it leads."""
    known = device.occupancy
    return None if known is None or known.calibration is not None else known.check_against_counters


def occupancy_basis(found: Occupancy) -> str:
    """Say how occupancy is known."""
    return found.basis if found.calibration is None else f"{found.basis}, calibrated to hardware counters"
