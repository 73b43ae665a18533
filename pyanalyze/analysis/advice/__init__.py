"""What should be changed?  Bounds from what was measured, refined by a replay; never a promise."""

from pyanalyze.analysis.advice.advise import DeviceAdvice, advise_device, with_groups
from pyanalyze.analysis.advice.forecast import Assignment, SharingConfig, forecast
from pyanalyze.analysis.advice.options import Forecast, Option, Options, options

__all__ = [
    "Assignment",
    "DeviceAdvice",
    "Forecast",
    "Option",
    "Options",
    "SharingConfig",
    "advise_device",
    "forecast",
    "options",
    "with_groups",
]
