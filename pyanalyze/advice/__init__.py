"""What should be changed? Simple bounds from what was measured; never a promise."""

from pyanalyze.advice.simple import Action, Held, SideBySide, advise

__all__ = ["Action", "Held", "SideBySide", "advise"]
