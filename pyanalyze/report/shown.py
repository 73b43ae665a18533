"""What a page shows of thousands of tenants and devices: those with the most GPU time, and how many more there are.

A page is read by people. The JSON report and the tables hold everything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyanalyze.results.labels import device_title, main_device
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.report.blocks import Note
    from pyanalyze.results.report import Device, Report, Tenant

__all__ = ["MOST_DEVICES", "MOST_TENANTS", "shown_devices", "shown_notes"]

#: Tenants of a device that a page shows: more than an MPS server has clients, less than nobody reads.
MOST_TENANTS = 64
#: Of those, tenants that are shown for their slowdown, however little GPU time they had.
_SLOWED = 16
#: Devices of a report that a page shows in full: two machines of eight boards, or seven MIG instances of four.
MOST_DEVICES = 32


def shown_devices(report: Report) -> list[Device]:
    """The devices of a report as a page shows them, without tenants and devices beyond the first.

    Parameters
    ----------
    report
        The whole answer.

    Returns
    -------
    list of Device
        In their order: up to `MOST_DEVICES` with the most tenants and busy time, each with up to `MOST_TENANTS` tenants
        with the most GPU time or the largest slowdown. What names two tenants is left out where one of them is.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> shown_devices(report) == report.devices
    True
    """
    devices = report.devices
    if len(devices) > MOST_DEVICES:
        main = main_device(report)
        ranked = sorted(devices, key=lambda d: (d is not main, -len(d.tenants), -_busy_ns(d), d.device_id))
        kept = {device.device_id for device in ranked[:MOST_DEVICES]}
        devices = [device for device in devices if device.device_id in kept]
    return [_with_fewer_tenants(device) for device in devices]


def shown_notes(report: Report) -> list[Note]:
    """What the page leaves out, in a sentence each; nothing where it shows everything."""
    from pyanalyze.report.blocks import Note

    shown = shown_devices(report)
    notes = []
    if len(shown) < len(report.devices):
        kept = {device.device_id for device in shown}
        left = Counter(str(d.sharing.mode) for d in report.devices if d.device_id not in kept)
        modes = ", ".join(f"{mode} {fmt.count(n)}" for mode, n in left.most_common())
        notes.append(
            Note(
                "Most devices are not shown",
                f"The {len(shown)} devices with the most tenants and busy time are shown, and "
                f"{fmt.count(left.total())} more are not ({modes}). The JSON report has all of them.",
            )
        )
    whole = {device.device_id: device for device in report.devices}
    for device in shown:
        left_out = len(whole[device.device_id].tenants) - len(device.tenants)
        if left_out:
            notes.append(
                Note(
                    f"Most tenants of {device_title(device)} are not shown",
                    f"The {len(device.tenants)} tenants with the most GPU time or the largest slowdown are shown, and "
                    f"{fmt.count(left_out)} more are not. The JSON report has all of them.",
                )
            )
    return notes


def _with_fewer_tenants(device: Device) -> Device:
    if len(device.tenants) <= MOST_TENANTS:
        return device
    slowed = sorted(device.tenants, key=_slowdown, reverse=True)[:_SLOWED]
    kept = {tenant.tenant_id for tenant in slowed if _slowdown(tenant) > 0}
    for tenant in sorted(device.tenants, key=_gpu_time, reverse=True):
        if len(kept) >= MOST_TENANTS:
            break
        kept.add(tenant.tenant_id)
    residency, figures = device.residency_summary, device.interference
    changes = {
        "tenants": [tenant for tenant in device.tenants if tenant.tenant_id in kept],
        "relations": [one for one in device.relations if kept.issuperset(one.tenants)],
        "residency_summary": residency
        and residency.model_copy(update={"tenants": [one for one in residency.tenants if one.tenant_id in kept]}),
        "interference": figures
        and figures.model_copy(
            update={
                "matrix": figures.matrix and [cell for cell in figures.matrix if {cell.victim, cell.aggressor} <= kept]
            }
        ),
        "options": device.options
        and [
            option.model_copy(update={"tenants": [one for one in option.tenants if one.tenant_id in kept]})
            for option in device.options
        ],
        "host": [one for one in device.host if one.tenant_id in kept],
    }
    return device.model_copy(update=changes)


def _busy_ns(device: Device) -> int:
    return sum(tenant.busy_ns or 0 for tenant in device.tenants)


def _gpu_time(tenant: Tenant) -> tuple[float, int]:
    return (tenant.gpu_time_share or 0.0, tenant.busy_ns or 0)


def _slowdown(tenant: Tenant) -> float:
    known = (tenant.slowdown.elapsed, tenant.slowdown.latency)
    return max((one.value for one in known if one is not None and one.value is not None), default=0.0)
