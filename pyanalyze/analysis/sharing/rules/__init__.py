"""Every sharing mode: one file, one line in RULES."""

from pyanalyze.analysis.sharing.rules import (
    exclusive,
    green_contexts,
    mig,
    mig_mps,
    mig_shared_ci,
    mig_time_slicing,
    mps,
    mps_partitioned,
    mps_pre_volta,
    mps_static_partition,
    mps_time_slicing,
    software_limited,
    streams,
    time_slicing,
    vgpu_mig,
    vgpu_time_sliced,
)
from pyanalyze.analysis.sharing.rules.base import Rule
from pyanalyze.vocabulary import MODES, Mode

__all__ = ["MODES", "RULES", "Mode", "Rule"]

#: In the order of the documentation.
RULES: tuple[Rule, ...] = (
    exclusive.RULE,
    streams.RULE,
    time_slicing.RULE,
    mps_pre_volta.RULE,
    mps.RULE,
    mps_partitioned.RULE,
    mps_static_partition.RULE,
    mps_time_slicing.RULE,
    mig.RULE,
    mig_shared_ci.RULE,
    mig_time_slicing.RULE,
    mig_mps.RULE,
    vgpu_time_sliced.RULE,
    vgpu_mig.RULE,
    green_contexts.RULE,
    software_limited.RULE,
)
