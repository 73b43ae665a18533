"""What was seen, one module for each source; rules say what it means for their mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing.evidence import counters, overlap, process_lists, residency, settings, solitude

if TYPE_CHECKING:
    from pyanalyze.analysis.sharing.facts import Case, Observation


def observe(case: Case) -> dict[str, Observation]:
    """Make every observation that the case allows.

    Parameters
    ----------
    case
        Facts and configured rows of one device.

    Returns
    -------
    dict
        Observations by name. What is absent was not observed, or is not available (:func:`gaps` says which).

    Examples
    --------
    >>> from pyanalyze.analysis.sharing.facts import Case
    >>> case = Case(0, "NVIDIA A30 MIG 2g.12gb", None, "2g.12gb", None, (8, 0), 28, {}, (), {}, ("app",))
    >>> sorted(observe(case))
    ['mig_instance']
    """
    seen: list[Observation] = []
    # In this order they are listed where weights are equal.
    for source in (residency, overlap, solitude, counters, settings, process_lists):
        seen.extend(source.observations(case))
    return {observation.name: observation for observation in seen}
