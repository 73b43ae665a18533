"""What may a verdict claim?  The share of verdicts of its kind that were right on simulated recordings.

`calibration.json` is made by ``make calibrate``: for verdicts that rest on a record and for
those that are deduced, by posterior of the stated weights, how many scenarios of the generator were judged rightly.
Recordings of real GPUs with a known mode are far too few to calibrate on; they are tests.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@functools.cache
def calibration() -> dict[str, Any]:
    """The table that ships with the package.

    Returns
    -------
    dict
        ``bins``: basis, posterior from and to, what it may claim (``stated``), and of how many scenarios and verdicts;
        ``decided_by``: digest of the rules, thresholds and scenarios that it holds for; ``generator``, ``seeds``,
        ``scenario_seeds``: what it was made from; ``held_out``: how claims did on families of
        scenarios that had no part in them.

    Examples
    --------
    >>> calibration()["scenario_seeds"] >= 1000
    True
    """
    text = resources.files("pyanalyze.analysis.sharing").joinpath("calibration.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def state(bins: Iterable[Mapping[str, Any]], kind: str, posterior: float) -> float:
    """What a verdict of this kind with this posterior may claim; the posterior itself where no bin has it.

    Examples
    --------
    >>> bins = [{"basis": "observed", "from": 0.8, "to": 1.0, "stated": 0.97}]
    >>> state(bins, "observed", 0.999), state(bins, "observed", 0.6)
    (0.97, 0.6)
    """
    for one in bins:
        inside = one["from"] <= posterior < one["to"] or posterior == one["to"] == 1.0
        if one["basis"] == kind and inside:
            return float(one["stated"])
    return posterior
