"""Slowdown from time that was measurably lost: switched out while kernels were in flight."""

from __future__ import annotations

from pyanalyze.results.interference import Estimate, Slowdown


def slowdown_from_lost_time(
    *, busy_ns: int | None, attributed_ns: int | None, resident_ns: int | None, kernels: int
) -> Slowdown:
    """Bound the slowdown of a time-sliced tenant by the time it was switched out.

    Parameters
    ----------
    busy_ns
        Union of its kernel and graph intervals, nanoseconds; None if it was not traced.
    attributed_ns
        The part of it in which its context was resident, nanoseconds.
    resident_ns
        Residency of its contexts, nanoseconds; None without switch records: then nothing is known to be lost.
    kernels
        Kernels behind the figures.

    Returns
    -------
    Slowdown
        ``latency``: at least what its kernels lost while others were resident, against all the time in which it
        was resident itself: waiting before a kernel's start comes on top. ``elapsed``: not known. Its time without the
        engine is no upper bound of what it lost: a part of its residency goes into restoring its state as well, which
        release drivers do not record. ``resident``: never known without a baseline.

    Examples
    --------
    >>> slow = slowdown_from_lost_time(busy_ns=200, attributed_ns=100, resident_ns=125, kernels=7)
    >>> slow.elapsed, slow.latency.value, slow.latency.high
    (None, 1.8, None)
    """
    if busy_ns is None or attributed_ns is None or resident_ns is None or kernels == 0:
        return Slowdown(elapsed=None, latency=None, resident=None)
    if busy_ns < attributed_ns or attributed_ns <= 0 or resident_ns <= 0:
        return Slowdown(elapsed=None, latency=None, resident=None)
    # As if it had waited, not inflated by preemption, whenever it was resident and ran nothing.
    least = 1 + (busy_ns - attributed_ns) / max(resident_ns, attributed_ns)
    latency = Estimate(value=least, low=least, high=None, n=kernels, basis="inferred")
    return Slowdown(elapsed=None, latency=latency, resident=None)


def device_figures(elapsed: list[float]) -> tuple[float, float, float]:
    """ANTT, STP and Jain's index from elapsed slowdowns of all tenants.

    Parameters
    ----------
    elapsed
        Slowdowns (shared over alone), one per tenant; at least one.

    Returns
    -------
    tuple of float
        Average normalised turnaround time (mean slowdown, lower is better), system throughput (sum of
        1 / slowdown, at most the number of tenants), Jain's fairness index of 1 / slowdown (1 is fair).

    Notes
    -----
    Eyerman and Eeckhout, IEEE Micro 28(3), 2008; Jain, Chiu and Hawe, DEC TR-301, 1984.

    Examples
    --------
    >>> device_figures([2.0, 2.0])
    (2.0, 1.0, 1.0)
    """
    progress = [1 / slowdown for slowdown in elapsed]
    antt = sum(elapsed) / len(elapsed)
    jain = sum(progress) ** 2 / (len(progress) * sum(p * p for p in progress))
    return antt, sum(progress), jain
