"""How was this GPU really shared, who held it, how full was it, who was slowed, and what to change?

>>> import pyanalyze
>>> session = pyanalyze.load(capture)
>>> print(session.classify()[0].mode)
time-slicing
"""

from pyanalyze._core import __version__
from pyanalyze.comparison import compare
from pyanalyze.loading import load
from pyanalyze.session import Session
from pyanalyze.sharing import Verdict

__all__ = ["Session", "Verdict", "__version__", "compare", "load"]
