"""The ten-second answer: at most 15 lines of at most 100 columns, to paste into a chat.

Its order: what is slow and why, how the GPU was shared, GPU time per tenant, what to do, what is not available, facts
of the capture. No terminal colours inside: the command line adds them.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import Impact, Reason, impact_of
from pyanalyze.analysis.sharing.missing import LOST_CALLS, LOST_KERNELS, UNFINISHED_KERNELS
from pyanalyze.report.sampled_text import (
    association_text,
    engines_sentence,
    general_sentence,
    health_of_all,
    named_gpus,
    node_sentences,
    only_sampled,
    set_up_text,
    sharing_sentence,
    span_text,
    unplaced_sentence,
    use_basis,
    use_sentence,
)
from pyanalyze.report.sentences.capture import (
    ROWS_SKIPPED,
    UNREAD,
    baselines_not_used,
    clock_sentences,
    cut_sentences,
    files_not_read,
    lost_words,
    samples_not_used,
    versions_text,
    without_work_text,
)
from pyanalyze.report.sentences.cause import cause_sentence
from pyanalyze.report.sentences.gpu_time import co_run_text, gpu_time_rows, gpu_time_text, switching_text
from pyanalyze.report.sentences.missing import TO_DO, missing_words, outside_report, solo_first
from pyanalyze.report.sentences.mode import agreement_text, mode_text
from pyanalyze.report.sentences.samples import gpu_metrics_text, sampled_sentence
from pyanalyze.report.sentences.slowdown import KIND_WORDS, aggressors_text, bound_text, percentile_text, slowdown_text
from pyanalyze.report.sentences.streams import lost_streams_text
from pyanalyze.report.sentences.tenants import grouped_text
from pyanalyze.report.sentences.time_split import GLOSSED, limit_text
from pyanalyze.report.sentences.window import late_text, length_text, recorded_text, share_of_run
from pyanalyze.results.advice import mean_bounds, times_slower
from pyanalyze.results.labels import device_title, main_device, tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.text.shell import continued
from pyanalyze.vocabulary import SMALL_SHARE, Answer, Mode, Part, unless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.analysis.impact import Victim
    from pyanalyze.report.sentences.gpu_time import GpuTime
    from pyanalyze.results.advice import SharingOption
    from pyanalyze.results.interference import Estimate, SlowdownKind
    from pyanalyze.results.report import Device, Report
    from pyanalyze.tables.tableset import TableSet

__all__ = ["SUMMARY_COLUMNS", "SUMMARY_LINES", "render_summary", "summary_parts"]

SUMMARY_LINES = 15
#: Lines above which what belongs to all bars stands beside them, not below.
_AT_A_GLANCE = 12
#: What the summary shows, and what has to be computed for it.
_PARTS = frozenset({Part.SEGMENTS, Part.RESIDENCY, Part.INTERFERENCE, Part.ADVICE})
SUMMARY_COLUMNS = 100
_LABEL = 12
#: A number with its unit, which stand on one line.
_UNIT = r"(\d) (%|ns|us|ms|s|B|KiB|MiB|GiB|MHz)(?!\w)"
_NO_BREAK = "\N{NO-BREAK SPACE}"
#: Columns of a bar that stands for the whole window.
_BAR = 36
#: A bar of less than half a column.
_SLIVER = "▏"
#: Columns of the name of a tenant.
_NAME = 40
#: Columns of how long a tenant was resident with work, behind its bar.
_WITH_WORK = 20
#: Between the bars and what belongs to all of them.
_RULE = "│ "
#: What only makes a verdict more certain: lists of processes, and how sharing was set up.
_ONLY_SURER = ("process_list", "mps_clients", "configured_mode")
#: Lines that an action with its command takes, where only samples are known.
_ADVICE_LINES = 3
#: GPUs that one sentence names, and nodes that get a line of their own.
_NAMED_GPUS, _NODES = 3, 3
#: Settings without effect that are named.
_SETTINGS = 2
#: Lines on what is wrong with the devices.
_HEALTH_LINES = 3
#: Lines on what limits the only tenant.
_LIMIT_LINES = 3
#: Tenants that get a bar of their own.
_BARS = 4


def summary_parts(tables: TableSet) -> frozenset[Part]:
    """What of an answer has to be computed for its summary: of streams it speaks only where a tenant is by itself.

    Examples
    --------
    >>> import pyanalyze
    >>> Part.STREAMS in summary_parts(pyanalyze.load(capture).tables)  # three tenants share the device
    False
    """
    alone = "tenants" in tables and bool((tables.tenants["device_id"].value_counts()["count"] == 1).any())
    return _PARTS | {Part.STREAMS} if alone else _PARTS


def render_summary(report: Report) -> str:
    """Answer in at most 15 lines of at most 100 columns.

    Returns
    -------
    str
        Lines joined by newlines, with one at the end.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> len(render_summary(report).splitlines()) <= 15
    True
    """
    device = _worst_device(report)
    if device is None:
        configured, named = general_sentence(report), named_gpus(report)
        known = f"not known: no sample or capture of a GPU; settings name {fmt.names(named, _NAMED_GPUS)}"
        lines = [
            *_lines("Mode", known if named else "no GPU was found in the input", 2),
            *([] if configured is None else _lines("Configured", configured, 2)),
            *(line for said in node_sentences(report)[:_NODES] for line in _lines("Node", said, 2)),
            *_health(report),
            *_not_read(report),
            *_unplaced(report),
            *(
                line
                for one in report.settings_advice[:_SETTINGS]
                for line in _lines("Do", f"{visible(one.action, None)}. {capital(visible(one.why, None))}.", 3)
            ),
        ]
        for row in report.quality:
            if row.name.startswith("samples_") and row.name != UNREAD and row.severity != "info":
                lines += _lines("Samples", visible(row.detail or row.name, None), 3)
        lines = [*lines[: SUMMARY_LINES - report.synthetic - 1], _line("Versions", versions_text(report))]
    else:
        make = _sampled_lines if only_sampled(report, device) else _device_lines
        lines = make(report, device, SUMMARY_LINES - report.synthetic)
    if report.synthetic:
        lines.insert(0, "SYNTHETIC CAPTURE: made by a generator, not recorded on a GPU.")
    return "\n".join(lines) + "\n"


def _worst_device(report: Report) -> Device | None:
    """The device on which sharing slowed a tenant most; where it slowed none, the one with most tenants."""
    slowed = [
        (impact.victim.estimate.value, -device.device_id, device)
        for device in report.devices
        if (impact := impact_of(device)).answer is Answer.YES and impact.victim is not None
    ]
    return max(slowed)[2] if slowed else main_device(report)


def _device_lines(report: Report, device: Device, room: int) -> list[str]:
    impact = impact_of(device)
    slow = _slow(device, impact)
    # Who is slowed comes first; who is not has to know what the shares are of.
    late = [_line("GPU", text)] if not impact.slowed and (text := late_text(report, device, short=True)) else []
    metrics = gpu_metrics_text(device)
    counters = [] if metrics is None else _lines("Counters", metrics, 2)
    facts = [
        *_not_read(report),
        *_unplaced(report),
        *(line for said in samples_not_used(report)[:1] for line in _lines("Samples", said, 2)),
        *_baseline(device),
        *_others(report, device),
        _line("Missing", _missing(device)),
        *(_line("Export has", said) for said in cut_sentences(report, short=True)[:1]),
        *_lost(report),
        # The recording lasted longer than the window, which the length is of.
        _line("Analysed", _analysed(report, device)),
    ]
    rows = len(gpu_time_rows(device))
    wanted, below = min(rows, _BARS), len(_lines("", _of_all_bars(device), 2)) if rows else 0
    wanted += len(_co_run(device))
    # All at a glance where that leaves out no more than the modes over time; else bars go before the second half of the
    # advice. What is left out stands in the report.
    ways = [(4, True), (4, False)]
    tries = [
        # When traced work began is told before all that, unless it takes the room of a command.
        (most + len(first), way, beside, first)
        for first in ([late, []] if late else [[]])
        for most in (_AT_A_GLANCE, room - len(first))
        for way in ways
        for beside in (False, True)
    ]
    tries += [(room, way, False, late) for way in ((3, True), (3, False), (2, True), (2, False))]
    for most_lines, (most, over_time), beside, first in tries:
        mode, advice = _lines("Mode", _mode(device, over_time=over_time), 2), _advice(report, device, most)
        if report.grouped_by is not None:
            mode.append(_line("Tenants", grouped_text(report.grouped_by)))
        left = min(most_lines, room) - len(first) - len(slow) - len(mode) - len(counters) - len(advice) - len(facts)
        gpu_time = _gpu_time(device, max(left, 1), beside=beside)
        if len(gpu_time) <= left and left >= wanted + (0 if beside else below):
            break
    return [*first, *slow, *mode, *gpu_time, *counters, *advice, *facts][:room]


def _sampled_lines(report: Report, device: Device, room: int) -> list[str]:
    """Where there are only samples and settings: who is listed, how they were set up to share, what samples say."""
    use, sampled = use_sentence(device), sampled_sentence(device)
    who, busier = sharing_sentence(report, device), engines_sentence(device)
    configured = set_up_text(report, device) or agreement_text(device)
    basis, span = use_basis(device), span_text(report, device)
    # Of several devices the count does not say whose they are.
    timeless = sum(row.count for row in report.quality if row.name == "samples_not_aligned")
    untimed = f"; {fmt.counted(timeless, 'value')} without a time" if timeless and len(report.devices) == 1 else ""
    before = [
        *_lines("Mode", _mode(device, configured=False), 2),
        *(_lines("Tenants", who, 3) if who is not None and not device.tenants else [_line("Configured", configured)]),
        *_unplaced(report),
        *([] if use is None else _lines("Use", f"{basis}: {use}" if basis else use, 2)),
        *([] if busier is None else _lines("Engines", busier, 2)),
    ]
    after = [
        *_health(report),
        *(line for one in device.associations[:1] for line in _lines("Latency", association_text(one), 2)),
        *(line for said in samples_not_used(report)[:1] for line in _lines("Samples", said, 1)),
        *(line for said in clock_sentences(report)[:1] for line in _lines("Clocks", said, 2)),
    ]
    facts = [
        *_not_read(report),
        *_others(report, device),
        _line("Missing", _missing(device)),
        *_lost(report),
    ]
    # When it was takes a second line where the page is short; else how long it was is said.
    used = len(before) + len(after) + len(facts) + 2 * _ADVICE_LINES
    spans = [(span, 2)] if used < _AT_A_GLANCE else []
    spans += [(span, 1), (span_text(report, device, short=True), 1)]
    facts += next(
        (lines for text, most in spans if len(lines := _span(device, text, untimed, most + 1)) <= most),
        _span(device, spans[-1][0], untimed, 1),
    )
    left = room - len(before) - len(after) - len(facts) - _ADVICE_LINES
    # What is known of each tenant leaves less room for the whole.
    most = 3 if left > room - _AT_A_GLANCE + 2 else 2 if use is None or left > 1 else 1
    whole = [] if sampled is None else _whole("Sampled", sampled, most)
    advice = _advice(report, device, max(min(left + _ADVICE_LINES - len(whole), 4), 1))
    if sampled is not None and most == 1 and left + _ADVICE_LINES > len(whole) + len(advice):
        # The action was shorter than the room that was left for it.
        whole = _whole("Sampled", sampled, 2)
    return [*before, *whole, *after, *advice, *facts][:room]


def _span(device: Device, span: str | None, untimed: str, most: int) -> list[str]:
    """Which device was sampled, and when."""
    return _whole("Samples", f"{device_title(device)}; {f'{span}{untimed}' if span else 'time not known'}", most)


def _health(report: Report) -> list[str]:
    """What is wrong with the devices, worst first; what has no room is counted."""
    said = health_of_all(report)
    if not said:
        return []
    for kept in range(len(said), 0, -1):
        rest = f"; {len(said) - kept} more in `pyanalyze report`" if kept < len(said) else ""
        lines = _lines("Health", "; ".join(said[:kept]) + rest, _HEALTH_LINES + 1)
        if len(lines) <= _HEALTH_LINES:
            return lines
    return _lines("Health", said[0], _HEALTH_LINES)


def _unplaced(report: Report) -> list[str]:
    """Tenants of no known GPU."""
    found = unplaced_sentence(report)
    return [] if found is None else _lines("Unplaced", found, 2)


def _not_read(report: Report) -> list[str]:
    """Files that no reader knows: three of them, one line each."""
    found = files_not_read(report)
    lines = [line for text in found[:3] for line in _lines("Not read", text, 2 if len(found) == 1 else 1)]
    return [*lines, _line("Not read", f"and {len(found) - 3} more files")] if len(found) > 3 else lines


def _baseline(device: Device) -> list[str]:
    """Why a solo recording that was given is not used: one of them, in two lines."""
    found = baselines_not_used(device)
    if not found:
        return []
    several = f"{len(found)} are not used; the first: " if len(found) > 1 else ""
    return _lines("Baseline", f"{several}{full_stop(found[0])}", 2)


def _slow(device: Device, impact: Impact) -> list[str]:
    """What is slow and why: the victim with its factor, the mechanism, the aggressors."""
    cause, victim = cause_sentence(device), impact.victim
    if victim is not None and victim.slowed:
        slow = slowdown_text(device, short=True).rstrip(".")
        whole = [percentile_text(victim, with_n=n) for n in (True, False)]
        labels = tenant_labels(device.tenants)
        # Factors of one kind can be ranked.
        shown = sorted((_of_kind(other, victim.kind) for other in impact.also_slowed), key=lambda o: -o.estimate.value)
        # A mean is of all its work: the percentile says how slow it is under contention.
        ways = [[_also(other, labels, victim.kind, tail=tail) for other in shown] for tail in (True, False)]
        # The longest that fits; who else was slowed says more than both latencies of a percentile.
        said, counted = [], []
        for tails in (whole, [percentile_text(victim, short=True)]):
            slows = [f"{slow}; {tail}" if tail else slow for tail in tails]
            said += [
                f"{one}; also {fmt.names(also[:most])}{_and_more(len(shown) - most)}"
                for one in slows
                for most in (2, 1)
                for also in ways
                if len(shown) >= most
            ]
            too = f"; {fmt.counted(len(shown), 'more tenant')} slowed as well" if shown else ""
            counted += [f"{one}{too}" for one in slows]
        said += counted
        slow = next((one for one in said if len(_lines("Slow", one, 3)) < 3), said[-1])
        if impact.answer is Answer.YES:
            # That it is inferred stands in the line above, and the table of causes has the parts of a cause.
            whose = {basis: full_stop(capital(aggressors_text(device, victim, basis=basis))) for basis in (True, False)}
            answers = [
                f"{cause_sentence(device, parts=parts)} {whose[basis]}"
                for parts, basis in ((True, True), (False, True), (False, False))
            ]
            cause = next((one for one in answers if len(_lines("Answer", one, 3)) < 3), answers[-1])
        return [*_lines("Slow", slow, 2), *_lines("Answer", cause, 3)]
    limit = limit_text(device)
    if limit is not None:
        most, split = _LIMIT_LINES, device.tenants[0].time_split
        # What the host did in its longest gap is worth a line of its own.
        more = most + (split is not None and split.one_gap is not None and split.most_in_range is not None)
        # What a part counts stands in the report as well, and goes before the rest does.
        texts = [
            (lines, limit_text(device, short=short, glosses=GLOSSED[first:]) or limit)
            for short, lines in ((False, most), (True, more))
            for first in range(len(GLOSSED) + 1)
        ]
        most, limit = next((one for one in texts if len(_lines("Limit", one[1], one[0] + 1)) <= one[0]), texts[-1])
        return [*_lines("Limit", limit, most), *_streams(device), *_lines("Answer", cause, 2)]
    if impact.sole_tenant:
        return _lines("Answer", cause, 3)
    # Where it is said how to capture it stands under "Missing"; whose slowdown is not known, the line above may say.
    slowdown = slowdown_text(device, with_rest=impact.reason is not Reason.OTHERS_UNKNOWN)
    return [*_sentences("Slowdown", slowdown.replace(TO_DO, ""), 2), *_lines("Answer", cause, 3)]


def _and_more(tenants: int) -> str:
    """How many slowed tenants are not named."""
    return f" and {fmt.counted(tenants, 'more tenant')}" if tenants > 0 else ""


def _also(victim: Victim, labels: Mapping[int, str], named: SlowdownKind, *, tail: bool) -> str:
    """Another slowed tenant, with the kind of its slowdown where another one was named before."""
    kind = "" if victim.kind == named else f"{KIND_WORDS[victim.kind]} "
    said = f"{labels[victim.tenant.tenant_id]} {kind}{bound_text(victim.estimate)}{fmt.ratio(victim.estimate.value)}"
    percentile = percentile_text(victim, short=True) if tail else ""
    return f"{said} ({percentile})" if percentile else said


def _of_kind(victim: Victim, kind: SlowdownKind) -> Victim:
    """A tenant with that slowdown of it, where it was slowed by it; else as it is."""
    estimate: Estimate | None = getattr(victim.tenant.slowdown, kind)
    other = None if estimate is None else replace(victim, kind=kind, estimate=estimate)
    return victim if other is None or not other.slowed else other


def _streams(device: Device) -> list[str]:
    """That the streams of the only process lost a notable part of its time, and to what."""
    (tenant,) = device.tenants
    streams = tenant.streams
    if streams is None or streams.without_gap(tenant.time_split).lost_share < SMALL_SHARE:
        return []
    label = tenant_labels(device.tenants)[tenant.tenant_id]
    return _lines("Streams", lost_streams_text(label, streams, tenant.time_split), 2)


def _mode(device: Device, *, over_time: bool = True, configured: bool = True) -> str:
    said = mode_text(device).rstrip(".")
    if configured and device.sharing.taken_from_configuration:
        said += "; no record confirms it"
    elif configured:
        said += f"; configured: {agreement_text(device)}"
    return f"{said}; over time: {_over_time(device)}" if over_time and _over_time(device) else said


def _over_time(device: Device) -> str:
    if len(device.segments) < 2 or device.window is None:
        return ""
    start = device.window.start_ns
    return ", ".join(f"{part.mode} to {fmt.duration(part.end_ns - start)}" for part in device.segments)


def _analysed(report: Report, device: Device) -> str:
    parts = [device_title(device)]
    longer = ""
    if device.window is not None:
        start_ns = device.window.start_ns
        length = fmt.duration(device.window.end_ns - start_ns)
        since = f"from {fmt.utc(report.clock.origin_utc_ns, start_ns)}"
        parts.append(f"{length} {since}")
        longer = f"{length_text(report, device)} {since}"
    elif recorded := recorded_text(report):
        parts.append(recorded.partition(",")[0])
    nsys = sorted({visible(capture.nsys_version, 24) for capture in report.captures if capture.nsys_version})
    # A generator is no nsys.
    if not report.synthetic:
        version = "exported by nsys of unknown version" if report.captures else "no capture"
        parts.append(f"exported by nsys {', '.join(nsys[:2])}" if nsys else version)
    parts.append(f"pyanalyze {visible(report.tool.version, 24)}")
    # Other GPUs, versions and how long the recording is stand in the report: what does not fit is left out, not cut.
    room = SUMMARY_COLUMNS - _LABEL
    of_all = f"{parts[0]}, 1 of {report.gpus_without_work + 1} GPUs"
    fits = len("; ".join([of_all, *parts[1:2]])) <= room
    if len(report.devices) == 1 and report.gpus_without_work and fits:
        parts[0] = of_all
    while len("; ".join(parts)) > room and len(parts) > 1:
        parts.pop()
    if not longer or len(parts) < 2:
        return "; ".join(parts)
    # That the window is a small part of the recording says more than when it was.
    ways = (longer, longer.replace(" recorded from", " from"), length_text(report, device))
    told = ["; ".join([parts[0], way, *parts[2:]]) for way in ways]
    return next((way for way in told if len(way) <= room), "; ".join(parts))


def _gpu_time(device: Device, room: int, *, beside: bool = False) -> list[str]:
    """GPU time per tenant as bars, and what context switches cost; as text where there is no room for bars."""
    rows = gpu_time_rows(device)
    if not rows:
        sampled = None if device.tenants else sampled_sentence(device)
        return _lines("GPU time", outside_report(gpu_time_text(device)), 1 if sampled else 2) + (
            _lines("Sampled", sampled, 2) if sampled else []
        )
    if room < min(len(rows), 2) + len(_co_run(device)) + (0 if beside else 1):
        return _lines("GPU time", outside_report(gpu_time_text(device)), room)
    of_all, above = _of_all_bars(device), _co_run(device)
    room -= len(above)
    switching = _lines("", of_all, 2)
    most = max(min(_BARS, room if beside else room - len(switching)), min(len(rows), 2))
    shown = rows if len(rows) <= most else rows[: most - 1]
    idle = any(row.with_work is not None for row in shown)
    wide = min(max(len(row.name) for row in shown), _NAME - (_WITH_WORK if idle else 0) // 2)
    bars = [
        f"{fmt.shortened(row.name, wide):<{wide}} {fmt.percent(row.share):>7} {_bar(row, narrow=idle)}" for row in shown
    ]
    if len(shown) < len(rows):
        rest = rows[len(shown) :]
        bars.append(f"{len(rest)} more: {fmt.percent(sum(row.share for row in rest))}")
    if beside:
        column = max(map(len, bars)) + 1
        # The rule keeps what belongs to all bars from reading as what belongs to the tenant of its line.
        room_beside = max(SUMMARY_COLUMNS - _LABEL - column - len(_RULE), 1)
        # A clause begins a line: its number is not that of the tenant beside it.
        clauses = re.split(r"; (?![^(]*\))", of_all)
        words = [line for clause in clauses for line in _wrapped(clause, room_beside)]
        if len(words) <= len(bars):
            words += [""] * (len(bars) - len(words))
            bars = [f"{bar:<{column}}{_RULE}{word}".rstrip() for bar, word in zip(bars, words, strict=True)]
            switching = []
    lines = [f"{'' if position else 'GPU time':<{_LABEL}}{bar}" for position, bar in enumerate([*above, *bars])]
    return [*lines, *switching]


def _co_run(device: Device) -> list[str]:
    """GPU time while all tenants co-ran: at most a line, above the bars, which are of the whole window."""
    fits = (
        text for names in (True, False) if len(text := co_run_text(device, names=names)) <= SUMMARY_COLUMNS - _LABEL
    )
    return [text for text in [next(fits, "")] if text]


def _of_all_bars(device: Device) -> str:
    """What belongs to all bars; a full switch is explained, which may take a second line."""
    light = any(row.with_work is not None for row in gpu_time_rows(device)[:_BARS])
    return f"{'░ without kernels; ' if light else ''}{switching_text(device)}"


def _bar(row: GpuTime, *, narrow: bool) -> str:
    """GPU time as a bar; where somebody was resident without work, that part is light and the rest has its number."""
    columns = _BAR - (_WITH_WORK // 2 if narrow else 0)
    whole = round(min(row.share, 1.0) * columns)
    if not whole:
        # A full block would be a share of its own.
        return _SLIVER if row.share > 0 else ""
    if row.with_work is None:
        return "█" * whole
    dark = min(max(round(row.with_work * columns), 1 if row.with_work > 0 else 0), whole)
    return f"{'█' * dark}{'░' * (whole - dark)} {fmt.percent(row.with_work)} with kernels"


def _advice(report: Report, device: Device, most: int) -> list[str]:
    """The one action with its expected gain, and its first command in full."""
    action, asked, gain = "No advice follows from this evidence", [], ""
    mean: list[str] = []
    if device.advice:
        advice = device.advice[0]
        action, asked = full_stop(visible(advice.action, None)), [visible(text, None) for text in advice.commands]
        if advice.expected:
            gain = f" Expected: {visible(advice.expected, None)}"
            best = next((option for option in device.options or () if option.recommended), None)
            if advice.exclusive and best is not None:
                mean = [f" Expected: {change}." for change in _mean_change(device, best)]
        elif not advice.bound and asked and device.sharing.mode != Mode.UNDETERMINED:
            gain = " Expected gain: not known."
        elif advice.bound and (asked or advice.at_stake_ns is not None):
            of_run = share_of_run(report, device, advice.at_stake_ns)
            bound = f"{visible(advice.bound, None)}{f'; {of_run}' if of_run else ''}"
            gain = f" Upper bound of the gain: {full_stop(bound)}"
    elif (first := solo_first(device)) is not None:
        action, asked = full_stop(first[0]), [first[1]]
    # A command is never cut: one that needs more lines is printed by `advise`.
    room = SUMMARY_COLUMNS - _LABEL - 2
    text, shell = next(filter(lambda one: one[1], ((text, continued(text, room)) for text in asked)), ("", []))
    # A comment says when, where and as whom: it stays where it needs no line of its own.
    shell = [text] if shell and len(text) <= room else _with_clauses(shell, text, room)
    commands = sum(not text.startswith("#") for text in asked)
    pointer = ""
    if shell and commands > 1:
        shell[-1] = _first_of(shell[-1], commands, room)
        # Where the others are is said behind the command, or above it.
        if "pyanalyze advise" not in shell[-1]:
            pointer = f" `pyanalyze advise` shows {'both' if commands == 2 else f'all {commands}'} commands."
    # Where there is little room an unknown gain goes before the command does.
    gain_first = most > _ADVICE_LINES or (device.advice[:1] and (device.advice[0].expected or device.advice[0].bound))
    needed = 2 if gain_first else len(_lines("Do", full_stop(action), 2))
    fits = len(shell) <= max(most - needed, 1)
    shown, elsewhere = (shell, "") if fits else ([], f" `pyanalyze advise` shows {_commands(commands)}.")
    lines = min(most - len(shown), 2 if fits else 3)
    # Clauses that do not fit are left out, and so is a gain of which none fits: half of it says something else.
    clauses = gain.split("; ")
    # A mean has its bounds beside it, and one forecast for each tenant has no room for them.
    gains = mean or ["; ".join(clauses[:kept]) for kept in range(len(clauses), 0, -1)]
    for shorter, also in [(gain, also) for gain in gains for also in dict.fromkeys((pointer, ""))]:
        said = _lines("Do", full_stop(action + shorter) + (also if fits else elsewhere), lines + 1)
        if len(said) <= lines:
            break
    else:
        # Sentences that do not fit are left out: `advise` has them.
        sentences = re.split(r"(?<=\.) (?=[A-Z])", action)
        ways = (" ".join(sentences[:kept]) + elsewhere for kept in range(len(sentences), 0, -1))
        said = next((all_ for way in ways if len(all_ := _lines("Do", way, lines + 1)) <= lines), [])
        said = said or _lines("Do", action + elsewhere, lines)
    return [*said, *(f"{'':<{_LABEL}}  {part}" for part in shown)]


def _with_clauses(shell: list[str], text: str, room: int) -> list[str]:
    """A command with as many clauses of its comment as its last line has room for: as whom it is run comes first.

    Examples
    --------
    >>> _with_clauses(["ps"], "ps   # as root; while it runs; then again", 30)
    ['ps   # as root; while it runs']
    """
    _, _, comment = text.partition("   # ")
    clauses = comment.split("; ") if shell and comment else []
    while clauses and len(last := f"{shell[-1]}   # {'; '.join(clauses)}") > room:
        clauses.pop()
    return [*shell[:-1], last] if clauses else shell


def _mean_change(device: Device, best: SharingOption) -> list[str]:
    """The mean slowdown of now and of what is advised, and whom the change makes slower; shorter: how many tenants.

    Of a victim that is named for its latency, its p99 first: a mean of elapsed times says little of it.
    """
    current = next((option for option in device.options or () if option.current), None)
    low, high = mean_bounds(best.tenants)
    what, then = "mean elapsed slowdown", f"{fmt.ratio(best.antt)}{_NO_BREAK}({low:.2f}-{high:.2f})"
    if current is None:
        return [f"modelled {what} {then}; that of now is not modelled"]
    arrow = f"{_NO_BREAK}->{_NO_BREAK}"
    mean = f"{what} {fmt.ratio(current.antt)}{arrow}{then}"
    # What is gained, and what is said behind the cost; shorter in the order of the list.
    gains, labels = [(f"modelled {mean}", "")], tenant_labels(device.tenants)
    victim = impact_of(device).victim
    if victim is not None and victim.of_latency:
        name, here = labels[victim.tenant.tenant_id], victim.tenant.tenant_id
        p99 = [next((f.p99_ns for f in option.tenants if f.tenant_id == here), None) for option in (current, best)]
        if all(p99):
            of_latency = f"modelled p99 latency of {name} {arrow.join(fmt.duration(ns) for ns in p99)}"
            gains = [(f"{of_latency}; {mean}", ""), (of_latency, "")]
        else:
            gains = [(f"modelled {mean}", f"; the latency of {name} is not forecast"), *gains]
    slower = times_slower(best.tenants, current.tenants)
    if not slower:
        return [f"{gain}{rest}" for gain, rest in gains]
    (tenant_id, ratio), *others = sorted(slower.items(), key=lambda one: -one[1])
    more = f", {len(others)} more slower" if others else ""
    costs = (
        f"{labels[tenant_id]} {ratio:.2f} times as long as now{more}",
        f"{fmt.counted(len(slower), 'tenant')} slower",
    )
    return [f"{gain}, but {cost}{rest}" for gain, rest in gains for cost in costs]


def _first_of(shell: str, commands: int, room: int) -> str:
    """Say of the only command that is shown that it is not all; its own comment gives way where both do not fit.

    Examples
    --------
    >>> _first_of("ps   # while it runs", 3, 80)
    'ps   # while it runs; command 1 of 3, all: pyanalyze advise CAPTURE'
    >>> _first_of("ps   # while it runs", 3, 60)
    'ps   # command 1 of 3, all: pyanalyze advise CAPTURE'
    """
    which = f"command 1 of {commands}"
    said = f"{which}, all: pyanalyze advise CAPTURE"
    command, _, comment = shell.partition("   # ")
    ways = (f"{shell}; {said}" if comment else "", f"{command}   # {said}", f"{command}   # {which}", shell)
    return next(way for way in ways if way and (len(way) <= room or way is shell))


def _commands(number: int) -> str:
    return "its command" if number == 1 else "its commands"


def _others(report: Report, device: Device) -> list[str]:
    """Other devices, those of one verdict together."""
    alike: dict[str, list[Device]] = {}
    for other in report.devices:
        if other is not device:
            alike.setdefault(f"{other.sharing.mode}{unless(other.sharing.condition, other.sharing.mode)}", []).append(
                other
            )
    said = []
    for verdict, devices in alike.items():
        numbers = fmt.names([str(one.device_id) for one in devices])
        said.append(f"device{'' if len(devices) == 1 else 's'} {numbers}: {verdict}")
    # Where no other device had work, a line that takes the room of a command says too little: see `_analysed`.
    if said and report.gpus_without_work:
        said.append(without_work_text(report))
    return _lines("Also", "; ".join(said), 2) if said else []


def _missing(device: Device) -> str:
    missing = device.sharing.missing
    if not missing:
        return "nothing"
    said_of = {"slowdown": _slowdown_of(device)}
    if any(tenant.busy_ns for tenant in device.tenants):
        said_of |= dict.fromkeys((LOST_KERNELS, UNFINISHED_KERNELS), "some kernel records")
        said_of[LOST_CALLS] = "some launch calls"
    # What keeps an answer from being given stands before what would only make it more certain.
    missing = sorted(missing, key=lambda one: one.what in _ONLY_SURER)
    names = list(dict.fromkeys(said_of.get(m.what) or missing_words(m.what) for m in missing))
    for most in (3, 2, 1):
        more = len(names) - most
        # Without a number: one name may stand for several rows of the report.
        said = f"{', '.join(names[:most])}{' and more' if more > 0 else ''}; see `pyanalyze report`"
        if len(said) <= SUMMARY_COLUMNS - _LABEL:
            break
    return said


def _slowdown_of(device: Device) -> str | None:
    """The tenant, or how many, whose slowdown is not known; None: no tenant is."""
    unknown = device.without_slowdown()
    if not unknown:
        return None
    one = tenant_labels(device.tenants)[unknown[0].tenant_id]
    return f"the slowdown of {one if len(unknown) == 1 else fmt.counted(len(unknown), 'tenant')}"


def _lost(report: Report) -> list[str]:
    lost = [row for row in report.quality if row.severity in ("data-loss", "error") and row.count]
    if not lost:
        return []
    # Rows of samples have nothing to do with times and counts of a capture: which they are says more.
    if all(row.name == ROWS_SKIPPED for row in lost):
        rows = fmt.counted(sum(row.count for row in lost), "row")
        return _lines("Data loss", f"{rows} of samples left out: {visible(lost[0].detail or '', None)}", 3)
    said = "; ".join(lost_words(row) for row in lost)
    return _lines("Data loss", f"times and counts may be too small: {said}; see `pyanalyze info`", 3)


def _wrapped(text: str, columns: int) -> list[str]:
    """Lines of a text in which a number keeps its unit; at least one."""
    joined = re.sub(_UNIT, f"\\1{_NO_BREAK}\\2", text)
    wrapped = textwrap.wrap(joined, columns, break_long_words=True, break_on_hyphens=False) or [""]
    return [part.replace(_NO_BREAK, " ") for part in wrapped]


def _lines(label: str, text: str, most: int) -> list[str]:
    room = SUMMARY_COLUMNS - _LABEL
    parts = _wrapped(text, room)
    # What follows in parentheses is left out whole.
    if len(parts) > most and parts[most].startswith("(") and parts[most - 1].count("(") == parts[most - 1].count(")"):
        ends = text.endswith(".") and not parts[most - 1].endswith(".")
        parts = [*parts[: most - 1], parts[most - 1] + "." * ends]
    elif len(parts) > most:
        parts = [*parts[: most - 1], _cut(parts[most - 1], room, sentence=text.endswith("."))]
    return [f"{label if i == 0 else '':<{_LABEL}}{part}".rstrip() for i, part in enumerate(parts)]


def _cut(line: str, room: int, *, sentence: bool) -> str:
    """The last line for which there is room, up to the end of a clause in it: half of one says something else.

    Examples
    --------
    >>> _cut("Slowed by b; it was the only other one.", 20, sentence=True)
    'Slowed by b.'
    >>> _cut("a is slow; b is not", 18, sentence=False)
    'a is slow'
    >>> _cut("It took 1.4 s (cudaMemcpyAsync 1.3 s).", 30, sentence=True)
    'It took 1.4 s.'
    >>> _cut("kernels take 8.1 %. Of the host's time, its thread waits for 12 %.", 50, sentence=True)
    'kernels take 8.1 %.'
    """
    line = line[: room - 2].rstrip()
    if line.count("(") > line.count(")"):
        return line[: line.rindex("(")].rstrip() + "." * sentence
    # A comma may part what belongs together: a sentence or a clause that ends before it is better.
    at = max(line.rfind("; "), line.rfind(". "))
    at = line.rfind(", ") if at <= 0 else at
    if at <= 0:
        # Half a word says nothing.
        return f"{line.rpartition(' ')[0] or line} …"
    # What is left of a sentence is one.
    return f"{line[:at]}, …" if line[at] == "," else line[:at] + "." * (line[at] == "." or sentence)


def _whole(label: str, text: str, most: int) -> list[str]:
    """Lines of clauses; the last ones are left out where there is no room, because half of one says something else."""
    clauses = text.split("; ")
    while len(clauses) > 1 and len(_lines(label, "; ".join(clauses), most + 1)) > most:
        clauses.pop()
    return _lines(label, "; ".join(clauses), most)


def _sentences(label: str, text: str, most: int) -> list[str]:
    """Lines of sentences; the last ones are left out where there is no room."""
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", text)
    while len(sentences) > 1 and len(_lines(label, " ".join(sentences), most + 1)) > most:
        sentences.pop()
    return _lines(label, " ".join(sentences), most)


def _line(label: str, text: str) -> str:
    return _lines(label, text, 1)[0]
