"""Pictures: pure functions from a table to an altair chart. Nothing here opens a file or prints."""

from pyanalyze.charts.fleet import mode_map, slowdown_spread
from pyanalyze.charts.interference import (
    cause_bars,
    latency_over_time,
    solo_against_shared,
    victim_by_aggressor,
)
from pyanalyze.charts.occupancy import counters, limiters, occupancy, sm_heatmap
from pyanalyze.charts.replicas import replica_front
from pyanalyze.charts.samples import sampled_use
from pyanalyze.charts.slices import slice_lengths
from pyanalyze.charts.slow_units import excess_waterfall, units_over_time
from pyanalyze.charts.split import time_split
from pyanalyze.charts.style import MAX_MARKS, tenant_colors
from pyanalyze.charts.timeline import timeline
from pyanalyze.charts.usage import usage

__all__ = [
    "MAX_MARKS",
    "cause_bars",
    "counters",
    "excess_waterfall",
    "latency_over_time",
    "limiters",
    "mode_map",
    "occupancy",
    "replica_front",
    "sampled_use",
    "slice_lengths",
    "slowdown_spread",
    "sm_heatmap",
    "solo_against_shared",
    "tenant_colors",
    "time_split",
    "timeline",
    "units_over_time",
    "usage",
    "victim_by_aggressor",
]
