"""Hostile text made showable, for everything that renders; :mod:`pyanalyze._visible` says how.

It lives outside this package because the recorder needs it where nothing else of a report can be imported.
"""

from pyanalyze._visible import NAME_LIMIT, markdown, visible

__all__ = ["NAME_LIMIT", "markdown", "visible"]
