"""The analysed window: when it was, and how much of the recording it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.sentences.capture import cut_sentences
from pyanalyze.report.sentences.words import window_length_ns
from pyanalyze.text import format as fmt
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import SHORT_WINDOW, SMALL_SHARE

if TYPE_CHECKING:
    from pyanalyze.results.report import Device, Report


def window_text(report: Report, device: Device | None) -> str:
    """The time window in UTC; where nothing happened on the device, how long was recorded."""
    if device is None or device.window is None:
        recorded = recorded_text(report)
        return f"{fmt.UNKNOWN}: {recorded}" if recorded else fmt.UNKNOWN
    origin = report.clock.origin_utc_ns
    start = fmt.utc(origin, device.window.start_ns)
    end = fmt.utc(origin, device.window.end_ns)
    if origin is not None:
        # The same day and the zone need not be said twice.
        if start[:10] == end[:10]:
            end = end[11:]
        start = start.removesuffix(" UTC")
        return f"{start} to {end} ({length_text(report, device)})"
    zero = " after the zero of the first capture"
    start, end = start.removesuffix(zero), end.removesuffix(zero)
    return f"{start} to {end} on the first capture's clock; UTC not known"


def defined_window(report: Report, device: Device | None) -> str:
    """The time window in UTC, and what it is."""
    if device is None or device.window is None:
        return window_text(report, device)
    served = any(tenant.served_by is not None for tenant in device.tenants)
    what = ", first to last activity of its tenants" + (", with the residency of the MPS server" if served else "")
    recording = longer_recording(report, device)
    if recording is not None:
        around = ((device.window.start_ns - recording[0], "before"), (recording[1] - device.window.end_ns, "after"))
        cut = bool(cut_sentences(report))
        lacking = _lacking_sides(report, device) if cut else frozenset()
        sides = [(f"{fmt.duration(ns)} {where} it", where in lacking) for ns, where in around if ns > 0]
        there, gone = ([text for text, lacks in sides if lacks is gone] for gone in (False, True))
        # Of a time whose records were removed, or that CUDA was not traced in, nothing says that anybody stopped.
        unknown = "" if cut or _began_there(device) else ", without CUDA records (not known to be idle)"
        left_out = [f"{fmt.names(there)}{' (recorded)' if gone else unknown}"] if there else []
        left_out += [f"{fmt.names(gone)}, where the export lacks records"] if gone else []
        what += f"; shares leave out {' and '.join(left_out)}"
    return f"{window_text(report, device)}{what}"


def length_text(report: Report, device: Device) -> str:
    """How long the window is, and the recording where that is much longer."""
    recording = longer_recording(report, device)
    length = fmt.duration(window_length_ns(device))
    return length if recording is None else f"{length} of {fmt.duration(recording[1] - recording[0])} recorded"


def recorded_text(report: Report) -> str:
    """How long captures recorded, and from when on; empty: they do not say, or there is none."""
    starts = [one.recording_start_ns for one in report.captures if one.recording_start_ns is not None]
    ends = [one.recording_end_ns for one in report.captures if one.recording_end_ns is not None]
    if not report.captures or not len(report.captures) == len(starts) == len(ends):
        return ""
    first_ns = min(starts)
    since = fmt.utc(report.clock.origin_utc_ns, first_ns)
    return f"{fmt.duration(max(ends) - first_ns)} recorded from {since}, without work of a tenant on this GPU"


def late_text(report: Report, device: Device, *, short: bool = False) -> str:
    """When traced work began, if that was later than all of it is long; empty: it was not.

    Shares of the window are not shares of the run: who waits for the run has to know both. Contexts may have been
    resident before and after, with work that was not traced or without any. Short: behind a label.
    """
    recording = longer_recording(report, device)
    splits = [tenant.time_split for tenant in device.tenants if tenant.time_split is not None]
    spans = [(one.start_ns, one.start_ns + one.window_ns) for one in splits if one.start_ns is not None]
    if recording is None or len(spans) < len(splits) or not _began_there(device) or cut_sentences(report):
        return ""
    first, last = recording
    start_ns, end_ns = min(start for start, _ in spans), max(end for _, end in spans)
    if start_ns - first < end_ns - start_ns:
        return ""
    after, whole, length = (fmt.duration(ns) for ns in (start_ns - first, last - first, end_ns - start_ns))
    if short:
        return f"first traced operation {after} into {whole} of recording, last ends {length} later"
    return f"The first traced operation started {after} into {whole} of recording; the last ended {length} later."


def share_of_run(report: Report, device: Device, ns: int | None) -> str:
    """A time as a share of the whole recording, where the window is a small part of it; empty: it is not.

    What takes most of a short window may be next to nothing of the run.
    """
    recording = None if ns is None or cut_sentences(report) else longer_recording(report, device)
    if recording is None or ns is None or not _began_there(device):
        return ""
    whole = recording[1] - recording[0]
    return f"{fmt.percent(ns / whole)} of the {fmt.duration(whole)} recorded"


def longer_recording(report: Report, device: Device) -> tuple[int, int] | None:
    """When the recording began and stopped, where the window is a small part of it; None: it is not, or not known."""
    window, view = device.window, report.view
    of = {tenant.capture for tenant in device.tenants} - {None}
    captures = [capture for index, capture in enumerate(report.captures) if index in of]
    starts = [one.recording_start_ns for one in captures if one.recording_start_ns is not None]
    ends = [one.recording_end_ns for one in captures if one.recording_end_ns is not None]
    cut = view is not None and (view.start_ns, view.end_ns) != (None, None)
    if window is None or cut or not captures or not len(captures) == len(starts) == len(ends):
        return None
    first, last = min(starts), max(ends)
    return (first, last) if window.end_ns - window.start_ns < SHORT_WINDOW * (last - first) else None


def _began_there(device: Device) -> bool:
    """Whether the work of all traced tenants began in the recording: CUDA calls that prepare it are on record.

    CUDA may be traced for a part of a recording only: what ran before and after it is not known.
    """
    splits = [tenant.time_split for tenant in device.tenants if tenant.time_split is not None]
    return bool(splits) and all(split.calls_before is not None for split in splits)


def _lacking_sides(report: Report, device: Device) -> frozenset[str]:
    """On which sides of the window an export that was cut lacks records: where it holds none at all.

    Where it holds some on both sides, any of them may lack others.
    """
    window = device.window
    of = {tenant.capture for tenant in device.tenants} - {None}
    spans = [
        (one.held_start_ns, one.held_end_ns)
        for index, one in enumerate(report.captures)
        if index in of and one.held_start_ns is not None and one.held_end_ns is not None
    ]
    if window is None or not spans:
        return frozenset({"before", "after"})
    sides = set()
    # A counter or a switch record may lie before the first work, or after the last, by less than anybody would call a
    # time without records.
    notable_ns = SMALL_SHARE * (window.end_ns - window.start_ns)
    if any(window.start_ns - start < notable_ns for start, _ in spans):
        sides.add("before")
    if any(end - window.end_ns < notable_ns for _, end in spans):
        sides.add("after")
    return frozenset(sides) or frozenset({"before", "after"})


def view_text(report: Report) -> str:
    """What part of the captures the report is about."""
    view, parts = report.view, []
    if view is None:
        return ""
    if view.start_ns is not None or view.end_ns is not None:
        origin = report.clock.origin_utc_ns
        start = "the start" if view.start_ns is None else fmt.utc(origin, view.start_ns)
        end = "the end" if view.end_ns is None else fmt.utc(origin, view.end_ns)
        parts.append(f"from {start} to {end}; all shares are of this window")
    if view.gpu is not None:
        parts.append(f"device {view.gpu} only")
    if view.redacted:
        parts.append("names of processes, kernels, containers, hosts and files are replaced by pseudonyms")
    return f"{capital('; '.join(parts))}."
