"""GPU time of each tenant: shares, their source, and what they are shares of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.report.sentences.co_run import co_run_part, co_run_sentences, gaps_co_run, most_alone, shares_known
from pyanalyze.report.sentences.copies import copies_only, only_copies_text
from pyanalyze.report.sentences.missing import why_missing
from pyanalyze.report.sentences.residency import switch_cost_text
from pyanalyze.report.sentences.tenants import holder_text
from pyanalyze.report.sentences.words import recorded_ns, window_length_ns, work_words
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.results.report import Device, Tenant

#: Shares that add up to no more than this above 1 are of tenants one after the other: clocks and rounding.
_ROUNDING = 0.01
#: Part of the window for which a context is resident without work before it is told: nobody else wanted the engine, so
#: that its share says little of who used the GPU.
_NOTABLE_IDLE = 0.05
#: Tenants of which a first screen has their shares of the co-run.
_FEW_SHARES = 3


def residency_sentence(device: Device, *, costs: bool = True) -> str:
    """State the GPU time share of the tenants; `costs`: what context switches cost, and how long intervals are.

    Where all co-ran for a small part of the window, the shares of that part come first: those of a window in which one
    tenant had no work for long do not say how the tenants shared.
    """
    label = "GPU time:" if _with_gpu_time(device) else "GPU time per tenant is"
    co_run, text = co_run_sentences(device), gpu_time_text(device, costs=costs)
    if not co_run or not _with_gpu_time(device):
        return f"{label} {text}"
    return f"{co_run} GPU time of the whole window: {text}" if shares_known(device) else f"{label} {text} {co_run}"


def gpu_time_text(device: Device, *, costs: bool = True) -> str:
    """What :func:`residency_sentence` states, to stand behind a label."""
    shown = _with_gpu_time(device)
    if copies_only(device):
        return f"not known. {only_copies_text(device)}"
    if not any(t.busy_ns or t.resident_ns or t.in_mps_group for t in device.tenants):
        return "not known. No work on this GPU was traced."
    if not shown:
        return f"not known. {why_missing(device, 'context_switches', 'residency', 'window')}"
    names = [f"{holder_text(t, device)} {fmt.percent(t.gpu_time_share)}{_idle(t, device)}" for t in shown[:3]]
    if len(shown) > 3:
        names.append(f"{len(shown) - 3} more")
    observed = shown[0].gpu_time_basis == "observed"
    source = f"{'resident, by ' if observed else ''}{_gpu_time_source(device)}{_of_clients(device)}"
    if not observed and (of_any := _of_any(device)):
        names.append(of_any)
    text = f"{', '.join(names)} of {_shares_of(device)} ({source})."
    return f"{text} {said}" if costs and (said := switch_cost_text(device)) else text


def switching_text(device: Device) -> str:
    """The length and the source of GPU time shares, and what context switches cost."""
    at_once = ", overlapping" if sum(row.share for row in gpu_time_rows(device)) > 1 + _ROUNDING else ""
    source = f"{_gpu_time_source(device)}{_of_clients(device)}"
    observed = any(t.gpu_time_basis == "observed" for t in _with_gpu_time(device))
    if not observed and (of_any := _of_any(device)):
        at_once = f", {of_any}"
    above = bool(co_run_text(device))
    if above:
        # Only switch records tell the shares above.
        source = ""
    elif recorded_ns(device) is None and (part := co_run_part(device)) is not None:
        source = f"co-run {fmt.percent(part, 0)}; {source}"
    of_all = "all " if above else ""
    text = f"{'resident,' if observed else 'shares'} of {of_all}{_shares_of(device)}{at_once}"
    text += f" ({source})" if source else ""
    # One figure of the same gaps: beside their share of the time in which all co-ran, that of the window misleads.
    said = switch_cost_text(device, short=True, with_share=not (above and gaps_co_run(device)))
    return f"{text}; {said.rstrip('.')}" if said else text


def in_flight_share(device: Device) -> float | None:
    """The part of the window in which work of any tenant was in flight; None: shares are of residency, which add up."""
    window_ns = window_length_ns(device)
    return None if device.in_flight_ns is None or not window_ns else device.in_flight_ns / window_ns


def _of_any(device: Device) -> str:
    """The same behind the shares of the tenants, which do not add up to it; empty: not known."""
    share = in_flight_share(device)
    return "" if share is None else f"any of them {fmt.percent(share)}"


def _shares_of(device: Device) -> str:
    """How long what GPU time shares are of was, and how much of the window that is."""
    window, recorded = fmt.duration(window_length_ns(device)), recorded_ns(device)
    observed = any(t.gpu_time_basis == "observed" for t in _with_gpu_time(device))
    return window if recorded is None or not observed else f"the {fmt.duration(recorded)} on record of {window}"


def _with_gpu_time(device: Device) -> list[Tenant]:
    """Tenants whose GPU time share is known, the largest first; the first client of an MPS group stands for all."""
    if copies_only(device):
        return []
    alike = device.mps_group()[1:]
    found = sorted(
        (t for t in device.tenants if t.gpu_time_share is not None and t not in alike),
        key=lambda t: (-(t.gpu_time_share or 0), t.tenant_id),
    )
    # Where some tenants have switch records, those of MPS clients are their server's.
    return [t for t in found if t.gpu_time_basis == "observed"] or found


def _of_clients(device: Device) -> str:
    """How long clients had kernels in flight, where switch records name only their MPS server."""
    servers = {t.tenant_id for t in _with_gpu_time(device)}
    clients = [t for t in device.tenants if t.served_by in servers and t.gpu_time_share is not None]
    if not clients:
        return ""
    labels = tenant_labels(device.tenants)
    each = ", ".join(f"{labels[t.tenant_id]} {fmt.percent(t.gpu_time_share)}" for t in clients[:3])
    more = f" and {len(clients) - 3} more" if len(clients) > 3 else ""
    of_any = _of_any(device)
    return f"; {work_words(device)} in flight: {each}{more}{f', {of_any}' if of_any else ''}"


def _gpu_time_source(device: Device) -> str:
    if any(t.gpu_time_basis == "observed" for t in device.tenants):
        return "switch records"
    if any(t.resident_ns is not None for t in device.tenants):
        return f"{work_words(device)} in flight; switch records attribute the residency of all MPS clients to one"
    if device.residency_summary is None:
        return f"{work_words(device)} in flight, no switch records"
    return "inferred residency, no switch records"


@dataclass(frozen=True)
class GpuTime:
    """GPU time of a tenant, as a bar shows it.

    Attributes
    ----------
    name
        Name of the tenant, and whom it serves.
    share
        GPU time share.
    with_work
        The part of the window in which it was resident with work in flight; None where that is about the same, or not
        known.
    """

    name: str
    share: float
    with_work: float | None


def gpu_time_rows(device: Device) -> list[GpuTime]:
    """Give the GPU time of every tenant whose share is known, the largest first."""
    return [
        GpuTime(
            holder_text(t, device, short=True),
            t.gpu_time_share or 0.0,
            _with_work(t, device),
        )
        for t in _with_gpu_time(device)
    ]


def _with_work(tenant: Tenant, device: Device) -> float | None:
    """The part of the window in which a tenant was resident with work, where that is notably less than its GPU time."""
    summary, window_ns = device.residency_summary, recorded_ns(device) or window_length_ns(device)
    if summary is None or tenant.gpu_time_basis != "observed" or not window_ns or tenant.gpu_time_share is None:
        return None
    found = next((one for one in summary.tenants if one.tenant_id == tenant.tenant_id), None)
    if found is None or found.idle_ns is None or found.idle_ns < _NOTABLE_IDLE * window_ns:
        return None
    return max(tenant.gpu_time_share - found.idle_ns / window_ns, 0.0)


def _idle(tenant: Tenant, device: Device) -> str:
    with_work = _with_work(tenant, device)
    return "" if with_work is None else f" ({fmt.percent(with_work)} with kernels)"


def co_run_text(device: Device, *, names: bool = True) -> str:
    """GPU time shares of the co-run, for a line above the bars; empty: they are many, not known, or most of the window.

    Without `names`, in the order of the bars.
    """
    shown, part = _with_gpu_time(device), co_run_part(device)
    if part is None or not most_alone(device) or not shares_known(device) or recorded_ns(device) is not None:
        return ""
    if not 1 < len(shown) <= _FEW_SHARES:
        return ""
    who = [f"{holder_text(one, device, short=True)} " if names else "" for one in shown]
    shares = [f"{name}{fmt.percent(one.all_at_work_share)}" for name, one in zip(who, shown, strict=True)]
    if gaps := gaps_co_run(device):
        shares.append(f"switch gaps {fmt.percent(gaps)}")
    order = "" if names else ", tenants as below"
    return f"co-run, {fmt.percent(part, 0)} of window{order}: {fmt.names(shares)}"
