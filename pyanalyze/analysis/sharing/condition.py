"""What the verdict about one process depends on: other processes that the evidence does not exclude.

A busy tenant that is time-sliced delays the process's kernels, and that shows. An MPS client, a process in another MIG
instance and a rarely active process leave nothing behind; only switch records, a process list, GPU metrics or the
operating system exclude them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing.evidence.residency import may_be_instances
from pyanalyze.vocabulary import TRAITS, Condition

if TYPE_CHECKING:
    from pyanalyze.analysis.sharing.facts import Case
    from pyanalyze.vocabulary import Mode

__all__ = ["condition_of", "covers", "others_open"]

#: Observations of another process, or of a configuration for several: then these are weighed instead.
_OF_OTHERS = frozenset(
    {
        "several_traced_tenants",
        "untraced_resident",
        "contexts_alternate",
        "sm_active_outside_traced_kernels",
        "utilization_above_traced",
        "kernel_durations_inflated",
        "kernel_durations_inflated_by_slices",
        "interrupted_kernels",
        "waits_of_time_slices",
        "idle_starts_delayed",
        "kernel_ran_in_preemption",
        "mps_daemon",
        "mps_client_connected",
        "mps_pipe",
        "mps_percentage",
        "mps_sm_partition",
        "nvml_mps_server",
        "nvml_mps_clients",
        "nvml_several_processes",
        "software_limiter",
        "instance_unknown",
        "sms_hidden",
        "sms_like_mig",
        "memory_below_product",
        "vgpu_name",
        "vgpu_mig_name",
    }
)
#: Observations that exclude every other tenant of the device while it was recorded.
_EXCLUDES_ALL = frozenset({"sole_resident", "nvml_one_process", "sm_idle_outside_traced_kernels"})
#: Observations that exclude a busy tenant that is time-sliced with the process.
_EXCLUDES_BUSY = frozenset({"kernel_durations_stable", "prompt_starts", "idle_starts_prompt"})
#: SMs of the largest MIG instance of an A100 (7g); a device with more is a whole board, and MIG is off.
_MOST_SMS_OF_AN_INSTANCE = {(8, 0): 98}


def condition_of(case: Case) -> Condition | None:
    """Name which other processes the evidence about a single traced process does not exclude.

    Parameters
    ----------
    case
        One device, with its observations.

    Returns
    -------
    Condition or None
        None: no other process was there, or the question does not arise: several tenants, evidence of others, nothing
        captured.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing.facts import Case, Observation
    >>> seen = {"one_traced_tenant": Observation("one_traced_tenant", 1.0, "1", 1, "observed", "")}
    >>> condition_of(Case(0, None, None, None, None, None, None, {}, (), {}, (), observations=seen))
    'unless-untraced-tenant'
    """
    if not others_open(case) or not _OF_OTHERS.isdisjoint(case.observations):
        return None
    if _EXCLUDES_BUSY.isdisjoint(case.observations):
        return Condition.UNLESS_UNTRACED_TENANT
    return {
        (True, True): Condition.UNLESS_MPS_MIG_OR_RARE_TENANT,
        (True, False): Condition.UNLESS_MPS_OR_RARE_TENANT,
        (False, True): Condition.UNLESS_MIG_OR_RARE_TENANT,
        (False, False): Condition.UNLESS_RARE_TENANT,
    }[_mps_possible(case), _other_instance_possible(case)]


def others_open(case: Case) -> bool:
    """Whether one process was traced and nothing excludes every other one."""
    return case.captured and case.has("one_traced_tenant") and _EXCLUDES_ALL.isdisjoint(case.observations)


def _mps_possible(case: Case) -> bool:
    return not case.has("mps_impossible") and not case.no_mps_process


def _other_instance_possible(case: Case) -> bool:
    """Whether the board may have instances besides this device, which is none itself."""
    if case.has("mig_instance") or case.mig_enabled is False:
        return False
    if not may_be_instances(case):
        return False
    largest = None if case.compute_capability is None else _MOST_SMS_OF_AN_INSTANCE.get(case.compute_capability)
    if largest is not None and case.sm_count is not None and case.sm_count > largest:
        return False
    return case.product_sms is None or case.sm_count != case.product_sms


def covers(condition: Condition, mode: Mode) -> bool:
    """Whether a mode is one that the condition leaves open: its other tenants are not excluded.

    A rarely active tenant is time-sliced like a busy one: of that mode the evidence decides.

    Examples
    --------
    >>> from pyanalyze.vocabulary import Mode
    >>> covers(Condition.UNLESS_MPS_OR_RARE_TENANT, Mode.MPS), covers(Condition.UNLESS_MPS_OR_RARE_TENANT, Mode.STREAMS)
    (True, False)
    """
    traits = TRAITS[mode]
    if condition is Condition.UNLESS_UNTRACED_TENANT:
        return not traits.one_process
    return traits.mps and condition in (Condition.UNLESS_MPS_MIG_OR_RARE_TENANT, Condition.UNLESS_MPS_OR_RARE_TENANT)
