"""How was this GPU really shared? Facts in, a verdict with proof, rivals and doubt out."""

from pyanalyze.sharing.classify import Rival, Verdict, Weighed, judge
from pyanalyze.sharing.evidence import Case, Configured, Example, Fact, Gap, Observation, observe
from pyanalyze.sharing.rules import MODES, RULES, Mode, Rule

__all__ = [
    "MODES",
    "RULES",
    "Case",
    "Configured",
    "Example",
    "Fact",
    "Gap",
    "Mode",
    "Observation",
    "Rival",
    "Rule",
    "Verdict",
    "Weighed",
    "judge",
    "observe",
]
