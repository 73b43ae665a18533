"""How was this GPU really shared? Facts in, a verdict with proof, alternatives and doubt out."""

from pyanalyze.analysis.sharing.classify import Verdict, judge
from pyanalyze.analysis.sharing.evidence import observe
from pyanalyze.analysis.sharing.facts import Case, Configured, Fact, Observation
from pyanalyze.analysis.sharing.rules import MODES, RULES, Mode, Rule

__all__ = [
    "MODES",
    "RULES",
    "Case",
    "Configured",
    "Fact",
    "Mode",
    "Observation",
    "Rule",
    "Verdict",
    "judge",
    "observe",
]
