"""Which time slice fits a wanted latency, and what does it cost?"""

from __future__ import annotations

from dataclasses import dataclass

#: Values of ``nvidia-smi compute-policy --set-timeslice``; NVIDIA publishes no lengths for the last three.
POLICIES = {0: "default", 1: "short", 2: "medium", 3: "long"}


@dataclass(frozen=True)
class SliceChoice:
    """The longest slice with which nobody waits longer than wanted.

    Attributes
    ----------
    slice_ns
        Its length; None where even no slice at all would do: switching alone takes longer.
    overhead
        Part of the time that switching takes with it (0 to 1).
    wait_ns
        Longest wait for a turn with it, all tenants busy.
    """

    slice_ns: int | None
    overhead: float | None
    wait_ns: int | None


def overhead(slice_ns: int, switch_ns: int) -> float:
    """Part of the time that goes into switches while several tenants are busy.

    Parameters
    ----------
    slice_ns
        Execution time of a slice.
    switch_ns
        From the end of one slice's execution to the begin of the next one's.

    Examples
    --------
    >>> round(overhead(1_900_000, 100_000), 3)
    0.05
    """
    return switch_ns / (slice_ns + switch_ns)


def longest_wait_ns(slice_ns: int, switch_ns: int, tenants: int) -> int:
    """Longest wait for a turn: one slice of each other tenant, and the switches around them.

    Examples
    --------
    >>> longest_wait_ns(2_000_000, 100_000, 3)
    4300000
    """
    return (tenants - 1) * slice_ns + tenants * switch_ns


def slice_for(latency_ns: int, switch_ns: int, tenants: int) -> SliceChoice:
    """Return the longest slice with which a wait for the turn is at most `latency_ns`.

    Parameters
    ----------
    latency_ns
        Wanted: a kernel of an idle tenant starts no later than this after its launch.
    switch_ns
        From the end of one slice's execution to the begin of the next one's.
    tenants
        How many tenants are time-sliced.

    Returns
    -------
    SliceChoice
        By arithmetic, not measured: round robin, everybody busy.

    Examples
    --------
    Two tenants, 2 ms wanted, 100 us a switch: (2000 - 200) / 1.

    >>> slice_for(2_000_000, 100_000, 2)
    SliceChoice(slice_ns=1800000, overhead=0.05263157894736842, wait_ns=2000000)
    >>> slice_for(150_000, 100_000, 2).slice_ns is None
    True
    """
    if tenants < 2:
        return SliceChoice(None, 0.0, 0)
    slice_ns = (latency_ns - tenants * switch_ns) // (tenants - 1)
    if slice_ns <= 0:
        return SliceChoice(None, None, None)
    return SliceChoice(slice_ns, overhead(slice_ns, switch_ns), longest_wait_ns(slice_ns, switch_ns, tenants))


def policy_for(slice_ns: int, now_ns: int) -> int:
    """Return the policy to try: shorter or longer than the present one, or none.

    Lengths of the policies are not published and differ by architecture and driver, so only the direction is known.

    Examples
    --------
    >>> [POLICIES[policy_for(wanted, 2_000_000)] for wanted in (500_000, 2_500_000, 9_000_000, 50_000_000)]
    ['short', 'default', 'medium', 'long']
    """
    if slice_ns < 0.8 * now_ns:
        return 1
    if slice_ns < 2 * now_ns:
        return 0
    return 2 if slice_ns < 10 * now_ns else 3
