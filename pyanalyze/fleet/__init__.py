"""Many captures at once: what belongs together, analysed in parallel, each once.

A result is a pure function of the captures' content, the options and the version of pyanalyze. It is kept under that
key, so a second run does only what changed and an interrupted one goes on where it stopped. Work runs in processes:
a capture that fails, crashes or runs out of memory is reported and takes nothing else down.
"""

from pyanalyze.fleet.failures import Failed
from pyanalyze.fleet.plan import Duplicate, Group, Plan, arrange, find
from pyanalyze.fleet.run import Fleet, analyse

__all__ = ["Duplicate", "Failed", "Fleet", "Group", "Plan", "analyse", "arrange", "find"]
