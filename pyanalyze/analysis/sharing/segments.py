"""Find changes of the sharing mode over time: the verdict for parts of the window.

An MPS daemon may start half-way, a job may end, a second one may begin: the facts of the whole capture mix both. The
window is cut into equal parts, and each part is judged as if only it had been recorded. Where two adjacent parts
differ, the change between them is found by bisection.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing.case import cases_of, verdicts_of
from pyanalyze.analysis.sharing.rules import RULES
from pyanalyze.results.sharing import Segment
from pyanalyze.tables.frames import ON_REQUEST
from pyanalyze.tables.window import narrowed_parts, of_device
from pyanalyze.vocabulary import Condition, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyanalyze.analysis.sharing.classify import Verdict
    from pyanalyze.tables.tableset import TableSet

#: Parts that are judged by themselves.
PARTS = 8
#: Shorter parts hold too few time slices (about 2 ms each) to be judged.
MIN_PART_NS = 20_000_000
#: Parts in which tenants had work for less of the time than this show nothing of how they shared it.
LEAST_WORK = 0.001
#: Bisection steps for a change: a 64th of two parts.
HALVINGS = 6


def segments(tables: TableSet, verdict: Verdict) -> tuple[Segment, ...]:
    """Say when the sharing mode of a device changed.

    Parameters
    ----------
    tables
        The tables.
    verdict
        The verdict on all of the time, of one device.

    Returns
    -------
    tuple of Segment
        They follow each other without gaps; one, with the verdict's mode, where no change was found or there is too
        little to cut. Parts that cannot be decided count to what is before them. Empty without any activity.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> [segment.mode for segment in segments(session.tables, session.classify()[0])]
    ['streams', 'time-slicing']
    """
    import polars as pl

    here = pl.col("device_id") == verdict.device_id
    usage = tables.tenant_usage.filter(here)
    first, last = usage["first_ns"].min(), usage["last_ns"].max()
    if not isinstance(first, int) or not isinstance(last, int) or first >= last:
        return ()
    whole = (Segment(start_ns=first, end_ns=last, mode=verdict.mode, confidence=verdict.confidence),)
    length = (last - first) // PARTS
    # One tenant shares with no other, now or later.
    if usage.height < 2 or length < MIN_PART_NS:
        return whole

    def judged(windows: Sequence[tuple[int, int]]) -> list[tuple[Mode, float]]:
        """Mode and confidence of each stretch; `undetermined` where nothing ran."""
        parts = zip(windows, narrowed_parts(tables, windows), strict=True)
        return [_judged(part, verdict.device_id, LEAST_WORK * (end - start)) for (start, end), part in parts]

    # No rule looks at the tables that are read on request, and cutting millions of API calls takes time.
    judged_by = {name: table for name, table in tables.stored.items() if name not in ON_REQUEST}
    tables = of_device(replace(tables, stored=judged_by), verdict.device_id)
    edges = [first + length * n for n in range(PARTS)] + [last]
    parts = list(pairwise(edges))
    said = judged(parts)
    found = [(*part, *mode) for part, mode in zip(parts, said, strict=True)]
    decided = [part for part in found if part[2] != Mode.UNDETERMINED]
    if len({mode for _, _, mode, _ in decided}) < 2:
        return whole
    runs: list[Segment] = []
    for start, end, mode, confidence in decided:
        if runs and runs[-1].mode == mode:
            runs[-1] = Segment(
                start_ns=runs[-1].start_ns, end_ns=end, mode=mode, confidence=max(confidence, runs[-1].confidence)
            )
        else:
            runs.append(Segment(start_ns=start, end_ns=end, mode=mode, confidence=confidence))
    joined = [Segment(start_ns=first, end_ns=runs[0].end_ns, mode=runs[0].mode, confidence=runs[0].confidence)]
    for run in runs[1:]:
        before = joined[-1]
        change = _change(judged, before, run, length)
        joined[-1] = Segment(start_ns=before.start_ns, end_ns=change, mode=before.mode, confidence=before.confidence)
        joined.append(Segment(start_ns=change, end_ns=run.end_ns, mode=run.mode, confidence=run.confidence))
    joined[-1] = joined[-1].model_copy(update={"end_ns": last})
    return tuple(joined)


def _judged(part: TableSet | None, device_id: int, least_ns: float) -> tuple[Mode, float]:
    if part is None:
        return Mode.UNDETERMINED, 0.0
    # Of who was not traced only the residency is known.
    usage = part.rows_of("tenant_usage", device_id)
    worked = sum(row["resident_ns"] or 0 if row["busy_ns"] is None else row["busy_ns"] for row in usage)
    if worked < least_ns:
        return Mode.UNDETERMINED, 0.0
    cases = cases_of(part)
    found = next((v for v in verdicts_of(part, cases) if v.device_id == device_id), None)
    case = next((case for case in cases if case.device_id == device_id), None)
    if found is None or case is None:
        return Mode.UNDETERMINED, 0.0
    # Clients of an MPS server beside an outsider: which relation has more of the time is no change of the mode.
    alternate = any(w.name == "contexts_alternate" for w in found.evidence)
    mixed = alternate and any(pair.together for pair in case.pairs)
    # That nothing shows the other tenants in a part is no mode of its own.
    absent = any(rule.by_absence for rule in RULES if rule.mode == found.mode)
    open_ = absent and found.condition is Condition.UNLESS_UNTRACED_TENANT
    return (Mode.UNDETERMINED if mixed or open_ else found.mode), found.confidence


def _change(
    judged: Callable[[Sequence[tuple[int, int]]], list[tuple[Mode, float]]],
    before: Segment,
    after: Segment,
    length: int,
) -> int:
    """Where one mode ends and the next begins.

    An interval keeps its verdict with a bit of the next mode in it, and the other way round: the change lies midway
    between the end of the one verdict and the start of the other. A new tenant changes the verdict at once, whatever
    was before: then only one side tells.
    """
    # It may lie anywhere in the last part of the one and the first of the other.
    low, high = before.end_ns - length, after.start_ns + length
    start, end = max(before.start_ns, low - length // 2), min(after.end_ns, high + length // 2)
    low, high = max(low, start + length // 2), min(high, end - length // 2)

    def hold(first: int | None, second: int | None) -> tuple[bool, bool]:
        """Whether the first time still counts to what is before, and the second: by what is before it, and after it."""
        asked = [(start, first)] if first is not None else []
        asked += [(second, end)] if second is not None else []
        said = iter(judged(asked))
        return (
            first is not None and next(said)[0] == before.mode,
            second is not None and next(said)[0] != after.mode,
        )

    at_low, at_high = hold(low, low), hold(high, high)
    edges = [[low, high] if one and not other else None for one, other in zip(at_low, at_high, strict=True)]
    for _ in range(HALVINGS):
        middles = [None if pair is None else sum(pair) // 2 for pair in edges]
        if middles == [None, None]:
            break
        for pair, middle, holds in zip(edges, middles, hold(*middles), strict=True):
            if pair is not None and middle is not None:
                pair[0 if holds else 1] = middle
    told = [sum(pair) // 2 for pair in edges if pair is not None]
    return sum(told) // len(told) if told else (before.end_ns + after.start_ns) // 2
