"""A fleet held against thresholds, without its captures and without its reports: what `check.jsonl` is for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyanalyze.analysis import gate
from pyanalyze.errors import NotACapture, UsageError
from pyanalyze.results.check import Checked, Limits, Outcome

if TYPE_CHECKING:
    import os

__all__ = ["check_fleet", "is_fleet"]


def is_fleet(path: str | os.PathLike[str]) -> bool:
    """Whether it is the folder of a fleet, or its `fleet.json`.

    Examples
    --------
    >>> is_fleet(capture)
    False
    """
    folder = _folder(path)
    return (folder / "check.jsonl").is_file() and (folder / "fleet.json").is_file()


def check_fleet(
    path: str | os.PathLike[str], limits: Limits, *, inconclusive: Literal["fail", "warn"] = "fail"
) -> Checked:
    """Hold every group of a fleet against thresholds; a capture without a result could not be looked at.

    Parameters
    ----------
    path
        What `pyanalyze fleet` wrote: the folder, or `fleet.json` with `check.jsonl` beside it.
    limits
        The thresholds; `max_change` compares two runs and is not for a fleet.
    inconclusive
        As of :func:`pyanalyze.analysis.gate.check`.

    Raises
    ------
    pyanalyze.errors.UsageError
        No threshold, or one that makes no sense here.
    pyanalyze.errors.NotACapture
        Not what a fleet wrote.
    OSError
        It cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pyanalyze.fleet import analyse
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = analyse(capture, folder, workers=1)
    ...     checked = check_fleet(folder, Limits(expect_mode=("mps*",)))
    >>> checked.status, checked.outcomes[0].subject
    ('failed', 'demo-time-slicing: NVIDIA A100-SXM4-40GB (device 0)')
    """
    from pydantic import ValidationError

    from pyanalyze.fleet.summary import FleetSummary
    from pyanalyze.results.report import Report

    if limits.max_change is not None:
        raise UsageError("max_change compares two runs: give two captures, not a fleet")
    folder = _folder(path)
    outcomes: list[Outcome] = []
    try:
        summary = FleetSummary.model_validate_json((folder / "fleet.json").read_bytes())
        with (folder / "check.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                checked = gate.check(Report.model_validate(row["report"]), limits, inconclusive=inconclusive)
                outcomes += [replace(one, subject=f"{row['group']}: {one.subject}") for one in checked.outcomes]
    except UsageError:
        raise
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise NotACapture(f"{folder} is not the output of `pyanalyze fleet` ({reason}); run it again") from error
    outcomes += [
        Outcome("analysed", one.path, "inconclusive", one.message, how="see the message, then run fleet again")
        for one in summary.failures
    ]
    if not outcomes:
        outcomes = list(gate.check(Report.model_validate(_EMPTY), limits, inconclusive=inconclusive).outcomes)
    return Checked(tuple(outcomes), inconclusive)


_EMPTY = {
    "tool": {"version": ""},
    "clock": {"origin_utc_ns": None, "uncertainty_ns": None},
    "captures": [],
    "quality": [],
    "devices": [],
}


def _folder(path: str | os.PathLike[str]) -> Path:
    place = Path(path)
    return place.parent if place.name in ("fleet.json", "check.jsonl") else place
