"""Verdicts that rest on settings alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyanalyze.analysis.sharing.classify import Verdict

__all__ = ["known_by"]


def known_by(verdict: Verdict) -> Verdict:
    """Name settings as the basis where nothing but settings shows the mode.

    Parameters
    ----------
    verdict
        Of one device.

    Examples
    --------
    >>> import pyanalyze
    >>> (verdict,) = pyanalyze.load(capture).classify()
    >>> known_by(verdict).basis, known_by(verdict.model_copy(update={"configured": verdict.mode})).basis
    ('observed', 'configured')
    """
    return verdict.model_copy(update={"basis": "configured"}) if verdict.taken_from_configuration else verdict
