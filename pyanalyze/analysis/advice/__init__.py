"""What should be changed?  Bounds from what was measured, refined by a replay; never a promise."""

from pyanalyze.analysis.advice.advise import DeviceAdvice, advise_device
from pyanalyze.analysis.advice.options import Forecast, Option, Options, options
from pyanalyze.analysis.advice.replay import Layout, Seat, replay

__all__ = [
    "DeviceAdvice",
    "Forecast",
    "Layout",
    "Option",
    "Options",
    "Seat",
    "advise_device",
    "options",
    "replay",
]
