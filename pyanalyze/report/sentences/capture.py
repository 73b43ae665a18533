"""The captures and what they lack: records, files, clocks, versions, and GPUs without work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.report.sampled_text import ALMOST_ALL
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import CopyDirection

if TYPE_CHECKING:
    from pyanalyze.results.report import Capture, Device, QualityRow, RecordsHeld, Report

#: Devices up to which a sentence names each.
_NAMED_DEVICES = 8
#: What an export may hold a part of.
_SAMPLES = "counter samples"
#: Kinds of records as a line of the summary has room for.
_SHORT_KINDS = {"context-switch records": "switch records", _SAMPLES: "samples"}
#: Name of the quality row of a file that no reader knows.
UNREAD = "samples_unread"
#: Its counter of rows of samples that break their format.
ROWS_SKIPPED = "rows_skipped"
#: Names of quality rows on files whose local times stand beside others in UTC.
_ZONES = ("samples_zone_unknown", "samples_zone_inferred")
#: Counters of lost records in words; "Data quality" has their names.
_LOSS_TOLD = "diagnostic_loss"
_LOST_WORDS: Final = {
    "bad_interval": "records without a valid end",
    "graph_incomplete": "graph launches without a valid end",
    "switch_events_lost": "gaps in the numbers of context-switch records",
    "switch_repeated_start": "context switches without a save record",
    "switch_overlap": "two contexts resident at once",
    "switch_invalid": "context-switch records that the driver marked as invalid",
    "switch_reset": "resets of the engine",
    _LOSS_TOLD: "data that nsys reported as lost",
    "rows_skipped": "rows of samples that break their format",
}
#: Directions of copies that have another GPU at one end.
_BETWEEN: Final = frozenset({CopyDirection.BETWEEN_DEVICES, CopyDirection.TO_PEER, CopyDirection.FROM_PEER})


def cut_sentences(report: Report, *, short: bool = False) -> list[str]:
    """Say of each export that lacks a notable part of the records what it holds, from when to when.

    Short: for the summary, behind a label.

    Examples
    --------
    >>> import pyanalyze
    >>> cut_sentences(pyanalyze.load(capture).report())
    []
    """
    said = []
    for capture in report.captures:
        held = _records_held(capture)
        if not held and capture.counters_cover_ns is not None:
            said.append(_sampled_part(capture, several=len(report.captures) > 1, short=short))
            continue
        # Counters are means of what there is; work and residency are what everything else rests on.
        if all(what == _SAMPLES or records.share >= ALMOST_ALL for what, records in held.items()):
            continue
        starts_late, ends_early, recorded = _held_times(capture)
        if short:
            kinds = [f"{_SHORT_KINDS.get(what, what)} {fmt.percent(one.share, 0)}" for what, one in held.items()]
            when = {
                (True, True): f"; {starts_late} to {ends_early} of {recorded}",
                (True, False): f"; from {starts_late} of {recorded} on",
                (False, True): f"; up to {ends_early} of {recorded}",
                (False, False): "",
            }[bool(starts_late), bool(ends_early)]
            said.append(f"{', '.join(kinds)}{when}")
            continue
        which = "the export" if len(report.captures) == 1 else f"the export {visible(capture.path, 60)}"
        kinds = [
            f"{fmt.count(records.held)} of {fmt.count(records.collected)} {what} ({fmt.percent(records.share, 0)})"
            for what, records in held.items()
        ]
        both = f". Its records are from {starts_late} to {ends_early} of {recorded}; what ran before and after"
        rest = {
            (True, True): both,
            (True, False): f". The first record is at {starts_late} of {recorded}; what came before",
            (False, True): f". The last record is at {ends_early} of {recorded}; what followed",
            (False, False): "; the rest",
        }[bool(starts_late), bool(ends_early)]
        said.append(f"Of what nsys collected, {which} holds {fmt.names(kinds)}{rest} is missing, not idle")
    return said


def _sampled_part(capture: Capture, *, several: bool, short: bool) -> str:
    """Say that an export is a part of its recording, as its counter samples show."""
    starts_late, ends_early, recorded = _held_times(capture)
    covered = fmt.duration(capture.counters_cover_ns)
    if short:
        when = {
            (True, True): f": {starts_late} to {ends_early} of {recorded}",
            (True, False): f": from {starts_late} of {recorded} on",
            (False, True): f": up to {ends_early} of {recorded}",
            (False, False): "",
        }[bool(starts_late), bool(ends_early)]
        return f"a part of the recording (inferred){when}"
    which = f"the export {visible(capture.path, 60)}" if several else "the export"
    said = f"{capital(which)} holds a part of its recording (inferred): counter samples, which nsys takes all the time"
    span = f"records from {starts_late or 'the start'} to {ends_early or 'the end'}; the rest is missing, not idle"
    return f"{said}, cover {covered} of {recorded}. It has {span}"


def _records_held(capture: Capture) -> dict[str, RecordsHeld]:
    """Records by kind, where an export lacks some and has some."""
    kinds = {
        "CUDA events": capture.cuda_events,
        _SAMPLES: capture.counter_samples,
        "context-switch records": capture.switch_records,
    }
    return {what: records for what, records in kinds.items() if records is not None and records.held}


def _held_times(capture: Capture) -> tuple[str, str, str]:
    """When the first record of a cut export begins and the last ends, and how long the recording took.

    Empty where that is (nearly) the start or the end of the recording, or not known.
    """
    first, last = capture.recording_start_ns, capture.recording_end_ns
    start, end = capture.held_start_ns, capture.held_end_ns
    if first is None or last is None or start is None or end is None:
        return "", "", ""
    notable_ns = (1 - ALMOST_ALL) * (last - first)
    starts_late = fmt.duration(start - first) if start - first > notable_ns else ""
    ends_early = fmt.duration(end - first) if last - end > notable_ns else ""
    return starts_late, ends_early, fmt.duration(last - first)


def lost_words(row: QualityRow) -> str:
    """Say which records are missing, and how many of what counts them.

    Examples
    --------
    >>> from pyanalyze.results.report import QualityRow
    >>> lost_words(QualityRow(name="switch_reset", severity="data-loss", count=2, detail=""))
    'resets of the engine (2)'
    """
    # Of messages of nsys the number says nothing: the detail may say how many records they are about.
    if row.name == _LOSS_TOLD and row.detail:
        return visible(row.detail, 100)
    return f"{_LOST_WORDS.get(row.name) or visible(row.name, 40)} ({fmt.count(row.count)})"


def files_not_read(report: Report) -> list[str]:
    """Name each file that no reader knows, and what is known instead."""
    return [visible(row.detail, None) for row in report.quality if row.name == UNREAD]


def samples_not_used(report: Report) -> list[str]:
    """Sentences on sample files of another time than the captures."""
    return [visible(text, None) for text in report.samples_not_used]


def baselines_not_used(device: Device) -> list[str]:
    """Why solo recordings that were given are not used: a sentence for each file that a tenant without one has."""
    found: dict[str, str] = {}
    for tenant in device.tenants:
        for one in tenant.baselines_not_used if tenant.baseline is None else ():
            found.setdefault(one.baseline, visible(one.detail, None))
    return list(found.values())


def clock_sentences(report: Report) -> list[str]:
    """Say which time zone local times were read in, or that they have no place beside those in UTC."""
    found = {row.name: visible(row.detail, None) for row in report.quality if row.name in _ZONES}
    return [found[name] for name in _ZONES if name in found]


def versions_text(report: Report) -> str:
    """Versions of the writer, and of the nsys that exported: another one may have recorded."""
    nsys = sorted({visible(c.nsys_version, 24) for c in report.captures if c.nsys_version})
    layout = sorted({visible(c.schema_version, 16) for c in report.captures if c.schema_version})
    text = f"pyanalyze {visible(report.tool.version, 24)}, exported by nsys {', '.join(nsys[:3]) or fmt.UNKNOWN}"
    return text + (f", export schema {', '.join(layout[:3])}" if layout else "")


def without_work_text(report: Report) -> str:
    """Say how many other GPUs the captures list without work, to stand as a clause.

    Examples
    --------
    >>> from pyanalyze.results.report import Report
    >>> without_work_text(Report.model_construct(gpus_without_work=6, devices=[]))
    '6 other GPUs: no work recorded'
    """
    said = f"{fmt.counted(report.gpus_without_work, 'other GPU')}: no work recorded"
    # With work on one device only, a copy between devices has its other end on one of these.
    copies = [one for device in report.devices[:1] for tenant in device.tenants if (one := tenant.copies) is not None]
    among = sum(kind.copies for one in copies for kind in one.kinds if kind.direction in _BETWEEN)
    if not among or len(report.devices) > 1:
        return said
    return f"{said}, but {fmt.counted(among, 'copy', 'copies')} from or to one of them"


def other_gpus_text(report: Report, device: Device) -> str:
    """Which devices the page is about beside the one that it begins with, and how many had no work; empty: one GPU."""
    others = [str(one.device_id) for one in report.devices if one is not device]
    said = []
    if others and len(others) <= _NAMED_DEVICES:
        many = len(others) > 1
        follow = f"device{'s' if many else ''} {fmt.names(others)} follow{'' if many else 's'}"
        said.append(f"The lines above are of device {device.device_id}; {follow} below.")
    if report.gpus_without_work:
        said.append(f"{without_work_text(report)}.")
    return " ".join(said)
