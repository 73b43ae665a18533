"""Who it is: names of tenants, of MPS groups, and of whose residency a row has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.results.labels import mps_group_name, tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyanalyze.results.report import Device, Tenant

#: Characters of the names of those that a tenant serves, in the label of a bar.
_SERVED = 24
#: Characters of the names of the clients of an MPS group, there.
_GROUP = 24


def tenant_names(device: Device, tenants: Iterable[Tenant]) -> str:
    """Name some tenants of a device in a sentence."""
    labels = tenant_labels(device.tenants)
    return fmt.names([labels[tenant.tenant_id] for tenant in tenants])


def holder_text(tenant: Tenant, device: Device, *, short: bool = False) -> str:
    """Name who was resident: a tenant, a server with its clients, or the clients of an MPS group, which are one."""
    labels, group = tenant_labels(device.tenants), device.mps_group()
    if tenant not in group:
        return f"{labels[tenant.tenant_id]}{_serves(tenant, device.tenants, labels, short=short)}"
    clients = [labels[one.tenant_id] for one in group]
    if not short:
        return mps_group_name(clients)
    each = ", ".join(clients)
    return f"MPS: {each}" if len(each) <= _GROUP else group_label(clients)


def group_label(clients: Sequence[str]) -> str:
    """Name an MPS group in a few words; records of a window may name one of its clients only."""
    return mps_group_name(clients) if len(clients) == 1 else f"MPS group of {len(clients)} clients"


def _serves(server: Tenant, tenants: Iterable[Tenant], labels: Mapping[int, str], *, short: bool = False) -> str:
    clients = [labels[t.tenant_id] for t in tenants if t.served_by == server.tenant_id]
    if short and len(", ".join(clients)) > _SERVED:
        return f" (for {len(clients)} tenants)"
    more = f" and {len(clients) - 3} more" if len(clients) > 3 else ""
    return f" (for {', '.join(clients[:3])}{more})" if clients else ""


def residency_labels(device: Device) -> dict[int, str]:
    """Whose residency the rows are: of an MPS server, records may name one client for all, or one in each interval."""
    labels = dict(tenant_labels(device.tenants))
    group = device.mps_group()
    others = (t for t in device.named_for_all() if t not in group)
    labels |= {t.tenant_id: f"all MPS clients (as {labels[t.tenant_id]})" for t in others}
    return labels | {t.tenant_id: group_label([labels[one.tenant_id] for one in group]) for t in group}


def has_untraced(device: Device) -> bool:
    """Whether a tenant was resident of which no work was recorded."""
    # An MPS server does no work but that of its clients.
    serving = {t.served_by for t in device.tenants}
    return any(
        t.busy_ns is None and (t.resident_ns or t.in_mps_group) and t.tenant_id not in serving for t in device.tenants
    )


def grouped_text(grouped_by: str) -> str:
    """What makes a tenant, where it is not a process.

    Examples
    --------
    >>> grouped_text("stream")
    'groups of work inside each process (--by stream)'
    """
    return f"groups of work inside each process (--by {visible(grouped_by, 40)})"
