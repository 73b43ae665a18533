"""What should be changed?  Bounds from what was measured, refined by a replay; never a promise."""

from pyanalyze.advice.advise import Advice, advise_device
from pyanalyze.advice.options import Forecast, Option, Options, options
from pyanalyze.advice.replay import Layout, Seat, replay
from pyanalyze.advice.simple import Action

__all__ = [
    "Action",
    "Advice",
    "Forecast",
    "Layout",
    "Option",
    "Options",
    "Seat",
    "advise_device",
    "options",
    "replay",
]
