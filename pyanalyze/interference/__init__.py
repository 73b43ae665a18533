"""Who was slowed, and by how much?

So far one thing is answered without a second run: what switching out cost. Kernel intervals of CUPTI include the
time a context was switched out; charged time does not. The ratio bounds the slowdown from both sides. Slowdown
from contention while resident needs a baseline, and is missing rather than guessed.
"""

from pyanalyze.interference.lost_time import Estimate, Slowdown, device_figures, slowdown_from_lost_time

__all__ = ["Estimate", "Slowdown", "device_figures", "slowdown_from_lost_time"]
