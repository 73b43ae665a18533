"""How a report names its devices and tenants: the same in every table, chart, sentence and check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.text.escape import program, visible
from pyanalyze.text.visible import told_apart
from pyanalyze.vocabulary import SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyanalyze.results.listed import ListedTenant
    from pyanalyze.results.report import Device, Report, Tenant

__all__ = ["device_title", "listed_labels", "main_device", "tenant_labels"]


def tenant_labels(tenants: Iterable[Tenant]) -> dict[int, str]:
    """One short, unique, visible label per tenant id, the same in every table and chart.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> tenant_labels(report.devices[0].tenants)
    {0: 'app_a', 1: 'app_b', 2: 'app_c'}
    """
    return told_apart((t.tenant_id, visible(program(t.name), 40) or "unnamed", t.pid, t.host_pid) for t in tenants)


def listed_labels(listed: Sequence[ListedTenant]) -> dict[int, str]:
    """One short, unique, visible label per place in the list.

    Examples
    --------
    >>> listed_labels([])
    {}
    """
    return told_apart((n, visible(one.name, 48) or "unnamed", one.pid, None) for n, one in enumerate(listed))


def device_title(device: Device) -> str:
    """Name of a device entry, for headings."""
    name = visible(device.name) or "GPU of unknown name"
    if device.mig is not None and device.mig.profile and device.mig.profile not in name:
        name = f"{name} MIG {visible(device.mig.profile, 20)}"
    # Devices are numbered here; the tool that sampled this one may have another number for it.
    index = None if device.sampled is None else device.sampled.gpu_index
    smi = "" if index in (None, device.device_id) else f", GPU {index} of nvidia-smi"
    return f"{name} (device {device.device_id}{smi})"


def main_device(report: Report) -> Device | None:
    """The device that the first screen speaks of: most tenants, then most busy time; as good as equal: the first."""
    most = max((_busy_ns(device) for device in report.devices), default=0)
    return max(
        report.devices,
        key=lambda d: (
            len(d.tenants),
            _busy_ns(d) if _busy_ns(d) < (1 - SMALL_SHARE) * most else most,
            # Of devices that only samples show: the one with most tenants listed.
            sum(t.computes for t in d.listed),
            d.sampled is not None,
            -d.device_id,
        ),
        default=None,
    )


def _busy_ns(device: Device) -> int:
    return sum(tenant.busy_ns or 0 for tenant in device.tenants)
