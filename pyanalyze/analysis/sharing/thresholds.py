"""Every threshold and weight of the verdict, in one place, with unit and source.

A weight is a log-likelihood ratio in nats: how much more likely the observation is under the mode than
under the others; e**3 is about 20 to 1. They are stated from what the hardware does and from the captures named
beside them, not fitted. How often the verdicts that they give are right is measured on simulated recordings
(`calibration.py`), and that is what a verdict claims.
"""

from __future__ import annotations

from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS, SHORT_KERNEL_NS

#: A verdict that rests on samples or settings claims no more: no simulated recording tells how often such are right.
MAX_CONFIDENCE_SAMPLED = 0.9

#: Decides: the other explanation would need the record to be wrong. (20:1 to 150:1)
DECISIVE = 5.0
#: Speaks clearly for it. (about 20:1)
STRONG = 3.0
#: Speaks for it. (about 4:1)
MODERATE = 1.5
#: A hint. (about 2:1)
WEAK = 0.7

#: Prior of modes that need special set-up, in nats below the everyday ones (exclusive, streams, time-slicing, MPS).
RARE = -3.0

#: Switches between two tenants from which on their contexts alternate; fewer may be context creation. The real
#: time-slicing captures hold 79 to 1213 of them.
MIN_ALTERNATIONS = 8.0
#: Switches that a device makes in the time when two of three tenants had work, from which on it says something that
#: none was between those two: of three that are time-sliced a third of all switches are. Captures of an H100 with two
#: MPS clients beside a third process hold 63 to 613, and none between the two.
MIN_EXPECTED_SWITCHES = 30.0
#: Share of neighbouring slices that change tenant, above which tenants were time-sliced. Real: 0.97 to 1.0.
MIN_ALTERNATION_SHARE = 0.5
#: Part of the switches between tenants that are between an MPS group and others, from which on those are time-sliced
#: with it; fewer are made while one of them starts or ends. Simulated: 1.0 beside a process, up to 0.07 one after the
#: other.
MIN_GROUP_SWITCH_SHARE = 0.2
#: Share of all residency held by one tenant, above which the others are noise such as a display or a
#: context that is created and closed.
SOLE_RESIDENT_SHARE = 0.99
#: Slices needed before a sole resident says anything; a context that stays resident may leave just one.
MIN_SLICES = 1.0
#: Share of one tenant's busy time with two of its streams busy, above which its streams ran side by side.
#: The real stream capture shows 0.998, four streams one after the other show 0.
MIN_STREAM_OVERLAP_SHARE = 0.05
#: Below this share streams practically did not overlap: tails of one kernel under the head of the next.
MAX_TAIL_OVERLAP_SHARE = 0.02
#: Short kernels (a tenth of a slice) of one tenant started while another had work in flight, needed for the
#: exclusion test.
MIN_SHORT_KERNELS = 50.0
#: Share of those that overlap a *short* kernel of the other: time-slicing allows only the one that straddles a switch.
MAX_EXCLUSION_SHARE = 0.02
#: Unless this share would have met by chance if neither waited for the other, that they never did says nothing.
MIN_EXPECTED_OVERLAP_SHARE = 0.10
#: Above this share both tenants' short kernels ran at the same time.
MIN_SHORT_OVERLAP_SHARE = 0.10
#: Kernels that started within 0.8 ms of the last one of their tenant, with one of another tenant started in between and
#: still in flight, from which on they are no accident: no time slice fits in between. Real captures of an H100 and an
#: H200 hold none under time-slicing, where such kernels follow after 2.4 ms and more, and 33 to 1601 under MPS with
#: kernels shorter than that.
MIN_QUICK_CHANGES = 20.0
#: Slices' worth of busy time (2.1 ms each) after which a busy other tenant under time-slicing must have left traces.
MIN_EXPOSURE = 8.0
#: Kernels that are longer or shorter than their like, for each slice's worth of work that one could have cut: a busy
#: other tenant cuts about one in each, however short they are. Solo recordings hold up to 0.06, most of them none.
MAX_CUT_SHARE = 0.1
#: Repeated kernels needed beside it.
MIN_REPEATS = 100.0
#: Kernels behind copies of their own stream needed to say that nobody kept the SMs from them meanwhile, and the share
#: that must have started at once: 50 starts would show a tenant that is busy an eighth of the time at odds of 200:1.
MIN_PROMPT_STARTS = 50.0
MIN_PROMPT_START_SHARE = 0.97
#: Kernels that an idle process launched and that waited, needed to say that another tenant kept them waiting, and
#: their share of all that it launched so. In 21 real solo recordings none of 13 600 such launches waits over 0.02 ms.
#: Of real time-sliced processes with ten such launches or more all but one hold 7 to 591 waits of 0.1 ms and more, 16
#: to 100 % of their launches; a smaller capture holds 9 of 9 of one time slice (2.16 to 2.18 ms).
MIN_SLICE_WAITS = 5.0
MIN_DELAYED_SHARE = 0.05
#: Time slices of other tenants that such a wait may span: one for each of them.
MOST_SLICES_WAITED = 3
#: Share of repeated kernels that differ from their like by most of a slice: none with nobody there, ~ d / slice with a
#: busy other tenant. It interrupts all kernels longer than a slice, and some once more than others; all alike only
#: those within so much of a whole number of slices.
MAX_STABLE_SHARE = 0.005
MIN_INFLATED_SHARE = 0.05
#: Inflated repeats needed to say that something interrupted them, and by what they are inflated.
MIN_INFLATED = 10.0
#: Of the interruptions that time slices of two tenants would have made while both had work in flight, the part below
#: which most of it ran concurrently; only where nearly all kernels are repeated, so that interrupted ones are known.
MAX_INTERRUPTED_SHARE = 0.6
MIN_REPEATED_SHARE = 0.9
#: Time slices in which both had kernels in flight, from which on it says something that none was interrupted; kernels
#: that must have been repeated for each of them, since longer ones are each interrupted; and the part of them up to
#: which interruptions may be chance. Generated time-slicing shows 0.3 and more, MPS up to 0.05.
MIN_SLICES_DUE = 30.0
MIN_KERNELS_TO_SLICES = 4.0
MAX_UNINTERRUPTED_SHARE = 0.05
#: Turns of processes that never had work at the same time, longer than any time slice, from which on they are no
#: accident; and the pause between two of them, over their length. A limiter that grants the whole device leaves 3 to
#: 8 ms between turns of 60 to 120 ms; processes that know nothing of each other would meet, or leave it idle.
MIN_TURNS = 6
#: Of each process: fewer tell no habit from an accident.
MIN_TURNS_EACH = 3
MAX_TURN_PAUSE_SHARE = 0.25
#: Spread (median absolute deviation over median) up to which all of them are longer by the same time: a slice of the
#: others. Generated time-slicing shows 0.005 to 0.04.
MAX_SLICE_SPREAD = 0.1
#: The ratios of their lengths must spread more than the excess by this factor: contention would multiply instead.
MIN_RATIO_TO_EXCESS_SPREAD = 4.0
#: With kernels of one length only, adding and multiplying are the same: then the excess must be that of a default
#: slice with its switches (2.0 to 2.3 ms and up to 0.3 ms, DOMAIN.md B4).
DEFAULT_SLICE_EXCESS_NS = (1.9e6, 2.6e6)
#: Two captures whose clocks may differ by more do not tell whether kernels of at most 0.2 ms met.
MAX_CLOCK_ERROR_NS = 20_000
#: Kernels that started while another tenant's kernel of many waves was in flight, needed to compare.
MIN_CROWDED_STARTS = 20.0
#: Share of those for which the blocks of both could not have fitted. Turns: at least 1 - 2.25 / waves, so 0.25 for 3
#: waves; side by side: none, but where a last wave is more than twice as long as the others.
MIN_CROWDED_SHARE = 0.1
MAX_PARTIAL_WAVE_SHARE = 0.02
#: Share of the window that tenants behind a limiter kept the GPU busy, below which it held them back.
MAX_HELD_BACK_BUSY_SHARE = 0.85
#: Mean `SM Active` in per cent outside the traced kernels: an idle GPU reads 0 or 1.
MAX_QUIET_SM_ACTIVE_PCT = 2.0
MIN_LOUD_SM_ACTIVE_PCT = 20.0
#: Samples needed for either.
MIN_COUNTER_SAMPLES = 100.0
#: Lowest utilisation over what traced kernels explain, in percentage points, and the samples needed: far more than the
#: driver's coarse sampling makes of the pauses between them.
MIN_UTILIZATION_EXCESS_PCT = 50.0
MIN_UTILIZATION_SAMPLES = 3.0
#: Two tenants both busy (or both resident) for less than this share of the time any was: proves nothing.
MIN_CO_BUSY_SHARE = 0.01

#: No time slice is longer: the "long" policy of `nvidia-smi compute-policy` is said to be 30 ms (NVIDIA publishes
#: no figures).
LONGEST_SLICE_NS = 35e6


def short_and_bridge_ns(slice_ns: float | None, tenants: int) -> tuple[int, int]:
    """Up to which length a kernel is short, and how long time slices of the others may keep a tenant off the engine.

    Parameters
    ----------
    slice_ns
        Median slice in nanoseconds; None where none was recorded.
    tenants
        How many there are on the device.

    Returns
    -------
    tuple of int
        Both in nanoseconds, as the facts are counted with.

    Examples
    --------
    >>> short_and_bridge_ns(None, 2), short_and_bridge_ns(4e6, 3)
    ((200000, 3197250), (213150, 12000000))
    """
    short_ns = SHORT_KERNEL_NS if slice_ns is None else int(min(slice_ns, DEFAULT_SLICE_NS) / 10)
    others = min(max(tenants, 2), 9) - 1
    return short_ns, int(1.5 * max(slice_ns or 0.0, DEFAULT_SLICE_NS) * others)


#: MPS percentage above which the SMs that it leaves may be rounded to all.
MAX_TELLING_PERCENTAGE = 95.0
#: GPU instances of a board (NVIDIA's MIG user guide).
MOST_INSTANCES = 7
#: Percentages of all clients together, above which they cannot all have SMs of their own.
WHOLE_PERCENTAGE = 100.0
