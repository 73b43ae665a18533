"""What should be changed?  Bounds from what was measured, refined by a replay; never a promise.

``advise`` puts in order what these say:

- how the GPU is shared: ``configuration`` (change or keep it), ``option_action`` (its commands), ``forecast_text`` (how
  far a forecast can be trusted), ``slicing``, ``instance`` (a MIG instance), ``required``, ``kubernetes``, ``cluster``
- one program's own time: ``processes`` (numbers), ``own_time`` (actions), ``overlap``, ``host_side``, ``groups``
- what is missing, and bounds without a forecast: ``simple``, about the tenants of ``residents``

Forecasts are in ``options``, ``forecast``, ``demands``, ``mig`` and ``mps``; those of copies of a program in
``replicas``, ``copies``, ``curve``, ``pairs``, ``counted`` and ``fitted``; settings without effect in ``settings``.
"""

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
