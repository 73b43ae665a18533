"""How was this GPU really shared? Facts in, a verdict with proof, rivals and doubt out."""

from pyanalyze.analysis.sharing.classify import Rival, Verdict, Weighed, judge
from pyanalyze.analysis.sharing.evidence import Case, Configured, Example, Fact, Gap, Observation, observe
from pyanalyze.analysis.sharing.rules import MODES, RULES, Mode, Rule

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
