"""Slowdowns, whether sharing is their cause, and why some are not known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyanalyze.analysis.impact import impact_of
from pyanalyze.analysis.interference import NO_LATENCY
from pyanalyze.analysis.mps_daemon import PIPE, daemon_on
from pyanalyze.analysis.sharing.missing import HOW, LOST_CALLS, lost_launches
from pyanalyze.nsys_tool import client_options, clients_only, record_all, recording
from pyanalyze.report.fill.how import client_of, serving_tenants
from pyanalyze.report.fill.tenants import execution_parts
from pyanalyze.report.sentences.cause import why_sharing
from pyanalyze.results.interference import SharingCause
from pyanalyze.results.model import Missing
from pyanalyze.text import format as fmt
from pyanalyze.text.format import capital
from pyanalyze.text.shell import shell_line, shell_word
from pyanalyze.text.visible import visible
from pyanalyze.vocabulary import TRAITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.interference import DeviceInterference
    from pyanalyze.inputs.baselines import Baseline
    from pyanalyze.results.interference import Interference
    from pyanalyze.results.report import Device
    from pyanalyze.tables.launch_records import LaunchRecords
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Mode

#: Tenants that one sentence names.
_NAMED = 4
#: How to see whether there is a second tenant.
_OTHERS = f"{HOW['nvml']}; if it lists another process, record both at the same time"
#: What samples without a capture can say of a slowdown.
_LATENCIES = (
    "without a capture, --work LATENCIES.csv (columns time and latency_ms) says whether latency rises with the use of "
    "another tenant, not why"
)


def sharing_cause(device: Device) -> SharingCause:
    """Whether sharing is the cause, and why."""
    impact = impact_of(device)
    return SharingCause(answer=impact.answer.value, reason=impact.reason.value, why=why_sharing(device))


def lost_records(found: LaunchRecords | None) -> list[Missing]:
    """What shows that the device was not idle: launches without a kernel record, or kernels without their call."""
    if found is None:
        return []
    if found.without_record:
        return [lost_launches(found)]
    # What was not recorded is no command's to bring, unless rows were left out of this export.
    start = found.describe_start()
    return [Missing(what=LOST_CALLS, why=start, how="")] if start else []


def interference_of(
    found: DeviceInterference,
    usage: pl.DataFrame,
    tables: TableSet,
    missing: list[Missing],
    mode: Mode,
    trace: str,
    baselines: Sequence[Baseline],
    *,
    switches: bool,
) -> Interference | None:
    """Figures of the device and the matrix; a reason for everything that is null."""
    names = tables.labels(found.device_id)
    serving = serving_tenants(usage)
    tenants = [tenant for tenant in usage["tenant_id"] if tenant not in serving]
    silent = [t for t in found.tenants if t.slowdown.elapsed is None and t.slowdown.latency is None]
    silent = [t for t in silent if not t.is_group or t.slowdown.resident is None]
    known = {t.tenant_id for t in found.tenants} - {t.tenant_id for t in silent}
    blind = sorted(set(tenants) - {t.tenant_id for t in found.tenants})
    solo = _record_solo(tables, found.device_id, [t.tenant_id for t in silent], mode)
    client = client_of(tables, found.device_id, mode)
    if len(tenants) < 2 and not known:
        nothing = "no work of any tenant was traced" if tables.paths else "no kernel of any tenant was traced"
        why = "only one tenant of the device is known" if tenants else nothing
        if any(row["traced"] and row["pid"] is None for row in tables.rows_of("tenants", found.device_id)):
            why = "the capture has no process ids: its work may be of several processes"
        timed = tables.nvml_samples["time_ns"].null_count() < tables.row_count("nvml_samples")
        again = record_all(trace, client, switches=switches)
        how = _OTHERS if tenants else f"{again}; {_LATENCIES}" if timed else again
        if tenants and any(gap.what == "process_list" and not gap.how for gap in missing):
            # No list of processes can be had: only recordings show others.
            how = f"{recording(trace=trace, switches=False)}   # one for each process that may use this GPU, at the "
            how += "same time; then pyanalyze A.nsys-rep B.nsys-rep"
        if tenants and TRAITS[mode].vgpu:
            # No list of processes in one virtual machine has those of another.
            why, how = "only this virtual machine is known, and others may have time slices of the same GPU", solo
            if not TRAITS[mode].time_sliced:
                why = "only one tenant of this virtual GPU is known"
        for what in ("interference", "slowdown"):
            missing.append(Missing(what=what, why=why, how=how))
        return None
    # No name stands first: sentences begin with a capital, names stay as they are.
    reasons: dict[str, list[str]] = {}
    for t in silent:
        reasons.setdefault(t.missing or "not known", []).append(names[t.tenant_id])
    why = "; ".join(
        f"tenant{'' if len(who) == 1 else 's'} {fmt.names(who, _NAMED)}: {what}" for what, who in reasons.items()
    )
    if blind:
        untraced = fmt.names([names[number] for number in blind], _NAMED)
        why += f"{'; ' if why else ''}kernels of {untraced} were not traced"
        # Each traced tenant says itself which baselines it is not compared with.
        if baselines and not found.tenants:
            files = fmt.names([one.path.name for one in baselines], _NAMED)
            why += f", so they were not compared with {files}"
            solo = record_all(trace, client, switches=switches)
    if any(t.is_group for t in found.tenants):
        # A group has no recording of its own.
        solo = "record a run in which each group also executes while no other does"
    if silent or blind:
        missing.append(
            Missing(what="slowdown", why=why, how=solo if silent else record_all(client=client, switches=switches))
        )
    if not known or len(tenants) < 2:
        missing.append(Missing(what="interference", why=why or "only one tenant of the device is known", how=solo))
        return None
    if any(t.is_group for t in found.tenants):
        missing.append(Missing(what="interference.figures", why=capital(NO_LATENCY), how=""))
    elif found.figures is not None and found.figures.antt is None:
        text = (
            "mean slowdown (ANTT), system throughput (STP) and fairness of slowdowns need the elapsed slowdown of "
            "every tenant. "
        )
        text += capital(why or "some are not known")
        how = record_all(client=client, switches=switches) if blind and not silent else solo
        missing.append(Missing(what="interference.figures", why=text, how=how))
    return found.figures


def _record_solo(tables: TableSet, device_id: int, wanted: Sequence[int], mode: Mode) -> str:
    """Commands that record a tenant solo and compare with it; the others need the same.

    Under the same cap and in the same instance: otherwise the slowdown would include that difference.
    """
    here = tables.of_device("tenants", device_id).filter("traced")
    # Labels tell tenants of one name apart, and a baseline is given to a label.
    labels = tables.labels(device_id)
    names = [labels[number] for number in here["tenant_id"]]
    each = [labels[number] for number in wanted if labels[number] in names] or names
    if not each:
        options = client_options(client_of(tables, device_id, mode), root=True)
        only = f"{clients_only(options)}; " if options else ""
        return f"{recording(*options)}   # as root; {only}each tenant, first solo, then with the others"
    name, *others = each
    file = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'tenant'}.solo"
    daemon = daemon_on(tables, device_id)
    find = f"{PIPE}={shell_word(daemon.pipe)} " if TRAITS[mode].mps and daemon.pipe is not None else ""
    record, compare = (
        find + shell_line(["nsys", "profile", "-t", "cuda,nvtx", "-o", file]),
        shell_line(["--baseline", f"{name}={file}.nsys-rep"]),
    )
    traits = TRAITS[mode]
    where = ", ".join(
        text
        for text, holds in (
            ("in the same MIG instance", traits.mig_instance),
            ("under MPS with the same cap as here", traits.mps and traits.capped),
        )
        if holds
    )
    where = f", {where}" if where else f" on the GPU{', under MPS as here' if traits.mps else ''}"
    more = (
        f"; the same for {fmt.names(others, _NAMED)}, then pyanalyze interference once with every --baseline"
        if others
        else ""
    )
    whose = f"{visible(name, 40)} with no other tenant{where}{more}"
    return f"{record} PROGRAM && pyanalyze interference CAPTURE {compare}   # {whose}"


def unsplit_execution(found: DeviceInterference, labels: Mapping[int, str]) -> list[Missing]:
    """Why parts of what took longer while executing are not known."""
    return [
        Missing(
            what=f"execution_split.{part}",
            why=f"{labels[tenant.tenant_id]}: {tenant.execution_reasons[part]}",
            how=tenant.execution_hows.get(part, ""),
        )
        for tenant in found.tenants
        if tenant.slowed
        for part, value in execution_parts(tenant).items()
        if value is None
    ]
