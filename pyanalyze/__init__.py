"""How was this GPU really shared, who had GPU time, how full was it, who was slowed, and what to change?

:func:`load` reads captures and gives a :class:`Session`:

>>> import pyanalyze
>>> session = pyanalyze.load(capture)
>>> print(session.classify()[0].mode)
time-slicing

==========================  =====================================================================
``print(session)``          the first screen, as ``pyanalyze CAPTURE`` prints it
``session.classify()``      the sharing mode of each GPU, with the evidence
``session.interference()``  who was slowed, by how much, through what, and by whom
``session.advise()``        what to change, with commands and the expected gain
``session.explain()``       why single requests were slow
``session.save(PATH)``      the report: ``.html``, ``.md``, ``.json`` or ``.txt``
``session.kernels``         a table as a polars frame; ``dir(session)`` lists more
==========================  =====================================================================

``help(pyanalyze.Session)`` describes all of it, ``help(pyanalyze.Session.kernels)`` the columns of a table. The
functions below compare two captures, or answer one question for many.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyanalyze.analysis.kernel_summary import kernel_summary
    from pyanalyze.analysis.sharing import Verdict as Verdict
    from pyanalyze.core._core import __version__
    from pyanalyze.fleet.frames import classify, interference, study
    from pyanalyze.session import Session as Session
    from pyanalyze.session import compare, load

# Without the classes: `help` of a package shows classes in full, which buried the functions that make them.
__all__ = [
    "__version__",
    "classify",
    "compare",
    "interference",
    "kernel_summary",
    "load",
    "study",
]

# Where each public name lives. They are fetched when they are asked for: the recorder must run on a machine that has
# neither polars nor our compiled core, and importing `pyanalyze.record` imports this file.
_HOMES = {
    "Session": "pyanalyze.session",
    "Verdict": "pyanalyze.analysis.sharing",
    "__version__": "pyanalyze.core._core",
    "classify": "pyanalyze.fleet.frames",
    "compare": "pyanalyze.session",
    "interference": "pyanalyze.fleet.frames",
    "kernel_summary": "pyanalyze.analysis.kernel_summary",
    "load": "pyanalyze.session",
    "study": "pyanalyze.fleet.frames",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyanalyze' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "Session", "Verdict"})
