"""SM occupancy: its value, its basis, and what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import untraced_share
from pyanalyze.report.sentences.tenants import has_untraced
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import NEGLIGIBLE_RESIDENCY

if TYPE_CHECKING:
    from pyanalyze.results.occupancy import Bounded, CounterCheck, Occupancy
    from pyanalyze.results.report import Device


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


def counted_sms(device: Device) -> CounterCheck | None:
    """The counter of active SMs, where the model was not scaled to it: it leads."""
    known = device.occupancy
    return None if known is None or known.calibration is not None else known.check_against_counters


def occupancy_basis(found: Occupancy) -> str:
    """Say how occupancy is known."""
    return found.basis if found.calibration is None else f"{found.basis}, calibrated to hardware counters"
