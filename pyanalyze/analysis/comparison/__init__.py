"""Two runs side by side: was the work equal, and where did the change of its time come from?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.vocabulary import NOISE_FLOOR

if TYPE_CHECKING:
    from pyanalyze.results.comparison import Comparison
    from pyanalyze.results.report import Report
    from pyanalyze.session import Session

__all__ = ["NOISE_FLOOR", "compare"]


def compare(
    a: Session | Report | str | os.PathLike[str],
    b: Session | Report | str | os.PathLike[str],
    *,
    noise_floor: float = NOISE_FLOOR,
) -> Comparison:
    """Compare two runs: equal work or not, and where the change of its time came from.

    Parameters
    ----------
    a
        The run to compare with: a session, a report, or the path of a capture, a pack, or a report saved as JSON.
    b
        The run to look at, likewise.
    noise_floor
        Relative changes below it are not told from run-to-run noise, which a single run on each side cannot show.

    Returns
    -------
    Comparison
        For every pair of tenants the change of the time per unit of work, and its parts.

    Raises
    ------
    OSError, pyanalyze.errors.CaptureUnreadable
        A path that cannot be read.

    Examples
    --------
    >>> import pyanalyze
    >>> same = pyanalyze.compare(capture, capture)
    >>> same.equal_work, same.tenants[0].change.value
    (True, 0.0)
    """
    from pyanalyze.analysis.comparison.split import compare_reports

    return compare_reports(_report(a), _report(b), noise_floor=noise_floor)


def _report(given: Session | Report | str | os.PathLike[str]) -> Report:
    from pyanalyze.inputs.capture import load
    from pyanalyze.inputs.saved_report import is_saved, read_saved
    from pyanalyze.results.report import Report

    if isinstance(given, Report):
        return given
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        return read_saved(path) if is_saved(path) else load(path).report()
    return given.report()
