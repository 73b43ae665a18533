"""Details of a sharing mode: residency intervals, tenants, clients and caps, MIG profile, why streams do not overlap.

Each :class:`Detail` is one plain figure or statement with its basis. Limits that NVIDIA states (clients of an MPS
server, instances of a board, one user of a server) are compared with what was observed or configured.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import MPS_PERCENTAGE, mps_caps, mps_clients, mps_sms
from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.facts import MANY
from pyanalyze.results.sharing import SWITCH_OVERHEAD, Detail
from pyanalyze.text import format as fmt
from pyanalyze.text.numbers import bounded_int
from pyanalyze.vocabulary import MPS_CLIENT, SMALL_SHARE, TRAITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyanalyze.analysis.sharing.facts import Case
    from pyanalyze.vocabulary import Mode

_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
#: CUDA takes 1 to 32; a driver may take more one day.
_MOST_CONNECTIONS = 1024
#: Numbers of MIG instances are small; the driver says 2^32 - 1 where there is none.
_MOST_ID = (1 << 31) - 1
#: First driver of CUDA 13.1, whose MPS takes 60 clients; 580 is that of CUDA 13.0.
_DRIVER_OF_60 = 590


def details(case: Case, mode: Mode) -> tuple[Detail, ...]:
    """Describe the mode of the verdict.

    Parameters
    ----------
    case
        One device, with its observations.
    mode
        The mode of the verdict; of `undetermined` only configured settings and limits are listed.

    Returns
    -------
    tuple of Detail
        By topic.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing.facts import Case
    >>> from pyanalyze.vocabulary import Mode
    >>> case = Case(0, "NVIDIA A30 MIG 2g.12gb", None, "2g.12gb", None, (8, 0), 28, {}, (), {}, ("app",))
    >>> [detail.name for detail in details(case, Mode.MIG)]
    ['profile', 'processes_inside']
    """
    found: list[Detail] = []
    other_process = case.has("mps_group_time_sliced")
    traits = TRAITS[mode]
    if traits.one_process:
        found += _streams(case)
    if traits.time_sliced or other_process:
        found += _time_slicing(case, mode)
    if traits.mps or other_process or case.has("mps_daemon"):
        found += _mps(case, mode)
    if case.mig_profile is not None:
        found += _mig(case)
    return (*found, *_limits(case, mode))


def _streams(case: Case) -> Iterable[Detail]:
    """Why kernels of several streams ran one after the other."""
    used, at_once = case.fact("streams_used"), case.fact("streams_at_once")
    if used is None or used < MANY or at_once is None:
        return
    share = case.fact("stream_overlap_share") or 0.0
    yield Detail(
        topic="streams",
        name="streams_used",
        value=used,
        unit="streams",
        basis="observed",
        detail=f"kernels of one context ran in {used:.0f} streams"
        + (", those of its green contexts included" if case.green_contexts else ""),
    )
    yield Detail(
        topic="streams",
        name="streams_at_once",
        value=at_once,
        unit="streams",
        basis="observed",
        detail=f"at most {at_once:.0f} of them had kernels in flight at once; two or more for {fmt.percent(share)} of "
        "the busy time",
    )
    queues, set_ = _queues(case)
    limited = queues < used
    yield Detail(
        topic="streams",
        name="hardware_queues",
        value=float(queues),
        unit="queues",
        basis="configured" if set_ else "inferred",
        detail=(
            f"{_CONNECTIONS}={queues}" if set_ else f"{_CONNECTIONS} is not known to be set: {queues} hardware queues"
        )
        + (", fewer than streams: streams that share a queue wait for each other" if limited else ""),
    )
    changes = case.facts.get("stream_changes")
    n = 0.0 if changes is None else changes.value or 0.0
    # Of few kernels a share says nothing of how the streams ran.
    if changes is None or not n or n < SMALL_SHARE * changes.n:
        return
    # Within 4 us, as the core counts them.
    promptly = "started at once when it ended"
    causes = {
        "launch-bound": (
            case.fact("stream_late_share") or 0.0,
            "started over 4 us after it ended. They were launched late or waited: pyanalyze streams CAPTURE says why",
        ),
        "default-stream": (
            case.fact("stream_default_share") or 0.0,
            f"{promptly}. One of the two was in the legacy default stream, which synchronises with all other streams",
        ),
        "full-grid": (
            case.fact("stream_full_share") or 0.0,
            f"{promptly}. It had used all SM resources",
        ),
        "queues": (
            case.fact("stream_waited_share") or 0.0,
            f"{promptly}, though SM resources were free before. "
            + (
                "Queues are fewer than streams: they queued behind another stream"
                if limited
                else "They waited for an event, a copy, the order of their graph, or another stream of their queue"
            ),
        ),
    }
    for name, (part, what) in sorted(causes.items(), key=lambda item: -item[1][0]):
        if part:
            yield Detail(
                topic="streams",
                name=f"apart_{name.replace('-', '_')}",
                value=part,
                unit="1",
                basis="inferred",
                detail=f"{fmt.percent(part)} of {fmt.count(round(n))} kernels that followed one of another stream "
                f"without overlap {what}",
            )


def _queues(case: Case) -> tuple[int, bool]:
    """Hardware queues of a context: 8, 2 for a client of MPS since Volta, or what the environment says."""
    row = case.setting(_CONNECTIONS)
    given = None if row is None else bounded_int(row.value, 1, _MOST_CONNECTIONS)
    if given is not None:
        return given, True
    return (2 if case.has("mps_daemon") and not case.has("pre_volta") else 8), False


def _time_slicing(case: Case, mode: Mode) -> Iterable[Detail]:
    slice_ns, excess = case.fact("median_slice_ns"), case.fact("inflation_ns")
    if slice_ns is not None:
        long = slice_ns > t.LONGEST_SLICE_NS
        yield Detail(
            topic="time-slicing",
            name="slice",
            value=slice_ns,
            unit="ns",
            basis="observed",
            detail=_median_text(case, slice_ns)
            + (", longer than any time slice: a tenant keeps the engine while no other has work" if long else ""),
        )
    elif excess is not None and case.has("kernel_durations_inflated_by_slices"):
        yield Detail(
            topic="time-slicing",
            name="slice",
            value=excess,
            unit="ns",
            basis="inferred",
            detail=f"interrupted kernels take {fmt.duration(excess)} longer: the time slices of all other tenants, "
            "with switches",
        )
    overhead = case.fact("switch_overhead_share")
    if overhead is not None:
        yield Detail(
            topic="time-slicing",
            name=SWITCH_OVERHEAD,
            value=overhead,
            unit="1",
            basis="observed",
            detail=f"gaps at context switches took {fmt.percent(overhead)} of the time in which contexts alternated",
        )
    policies = sorted({row.value for row in case.configured if row.key == "compute_policy"})
    if policies:
        words = sorted({word.partition("=")[2] for value in policies for word in value.split() if "timeslice=" in word})
        yield Detail(
            topic="time-slicing",
            name="policy",
            value=None,
            unit="1",
            basis="configured",
            detail=f"nvidia-smi compute-policy: {', '.join(words)} (NVIDIA publishes no lengths)",
        )
    if TRAITS[mode].vgpu:
        yield Detail(
            topic="time-slicing",
            name="other_virtual_machines",
            value=None,
            unit="1",
            basis="inferred",
            detail="other virtual machines on the board are not visible from this one",
        )
    elif case.tenants:
        others = f"; untraced: {_untraced(case)}" if case.untraced else ""
        yield Detail(
            topic="time-slicing",
            name="tenants",
            value=float(len(case.tenants)),
            unit="tenants",
            basis="observed",
            detail=f"time-sliced tenants: "
            f"{', '.join(case.tenants[:5])}{' and others' if len(case.tenants) > 5 else ''}{others}",
        )


def _median_text(case: Case, slice_ns: float) -> str:
    """The median residency interval; where those of tenants differ hardly an interval is as long as that of all."""
    if case.unlike_medians is not None:
        low, high = (f"{fmt.duration(ns)} ({whose})" for ns, whose in case.unlike_medians)
        return f"median residency intervals of tenants from {low} to {high}"
    spread = case.fact("slice_spread")
    within = "" if spread is None else f" (half of them within {fmt.percent(spread, 0)} of it)"
    return f"median residency interval {fmt.duration(slice_ns)}{within}"


def _untraced(case: Case) -> str:
    """Which tenants were not traced; of several processes of one name how many."""
    if len(case.untraced) == len(case.tenants):
        return "all of them"
    each = Counter(case.untraced).most_common(5)
    return ", ".join(name if n == 1 else f"{n} processes named {name}" for name, n in each)


def clients(case: Case) -> int | None:
    """Count the clients of an MPS server: the largest number that any source shows; None where none does."""
    traced = len({tenant for pair in case.pairs if pair.together for tenant in pair.tenants})
    return max(_listed_clients(case), traced, case.served) or None


def _listed_clients(case: Case) -> int:
    """Count those that an MPS log or a list of processes names: untraced ones are among them."""
    log = len({row.pid for row in case.configured if row.key == "mps_client" and row.pid is not None})
    return max(log, sum(kind == MPS_CLIENT for _, _, kind in case.nvml_processes or ()))


def _outside(case: Case) -> str:
    """What was time-sliced with an MPS group."""
    if len(case.listed_clients) < MANY:
        return "a process outside of the MPS group ran: its context and the server's were time-sliced"
    return (
        f"{' and '.join(case.listed_clients)} are clients, and were time-sliced with a process that is none; switch "
        "records name one client for the context of all, so that residency of one may be of another"
    )


def _mps(case: Case, mode: Mode) -> Iterable[Detail]:
    pre_volta = case.has("pre_volta")
    if case.compute_capability is not None:
        yield Detail(
            topic="mps",
            name="generation",
            value=float(case.compute_capability[0]),
            unit="1",
            # The generation is recorded; what it does is documented.
            basis="inferred",
            detail="before Volta: the server submits for all clients from one context, with one address space"
            if pre_volta
            else "Volta or newer: clients submit directly, each with its own address space",
        )
    count = clients(case)
    if count is not None:
        yield Detail(
            topic="mps",
            name="clients",
            value=float(count),
            unit="clients",
            # Kernels show of traced processes alone that they were clients, and no record names them so.
            basis="observed" if _listed_clients(case) == count else "inferred",
            detail=f"{fmt.counted(count, 'client' if _listed_clients(case) == count else 'traced client')} of an MPS "
            "server",
        )
    major = None if case.compute_capability is None else case.compute_capability[0]
    caps = mps_caps((row.key, row.value, row.pid) for row in case.configured)
    unnamed = sum(pid is None for pid, _ in caps)
    for pid, percentage in caps:
        # Several settings of no process are not of all: each is of a command line whose process is not known.
        whose = f"process {pid}" if pid is not None else "all clients" if unnamed == 1 else "some clients"
        reached = (
            "" if not case.sm_count else f", at most {mps_sms(case.sm_count, percentage, major)} of {case.sm_count} SMs"
        )
        yield Detail(
            topic="mps",
            name="cap",
            value=percentage,
            unit="%",
            basis="configured",
            detail=f"{MPS_PERCENTAGE}={percentage:g} for {whose}{reached}",
        )
    # Clients without caps use all SMs: stated only where caps were intended.
    uncapped = TRAITS[mode].mps and TRAITS[mode].capped is False
    if case.visible_sms and case.sm_count and (not uncapped or case.has("cap_without_effect")):
        counts = ", ".join(str(sms) for sms in sorted(case.visible_sms))
        yield Detail(
            topic="mps",
            name="visible_sms",
            value=float(max(case.visible_sms)),
            unit="SMs",
            basis="observed",
            detail=f"the clients saw {counts} of {case.sm_count} SMs",
        )
    partitions = sorted({row.value for row in case.configured if row.key in ("CUDA_MPS_SM_PARTITION", "mps_partition")})
    for partition in partitions:
        yield Detail(
            topic="mps",
            name="static_partition",
            value=None,
            unit="1",
            basis="configured",
            detail=f"static SM partition: {partition}",
        )
    if case.has("mps_group_time_sliced"):
        switches = case.fact("switches_between_tenants")
        yield Detail(
            topic="mps",
            name="other_process",
            value=switches,
            unit="switches",
            basis="observed",
            detail=_outside(case),
        )


def _mig(case: Case) -> Iterable[Detail]:
    profile = case.mig_profile or ""
    sms = "" if case.sm_count is None else f", {case.sm_count} SMs"
    yield Detail(
        topic="mig",
        name="profile",
        value=_number_of(case.sm_count),
        unit="SMs",
        basis="observed",
        detail=f"instance {profile}{sms}",
    )
    for row in case.configured:
        uuid = (case.uuid or "").lower()
        if row.key == "mig_device" and uuid and uuid in row.value.lower():
            fields = dict(word.split("=", 1) for word in row.value.split() if "=" in word)
            for name, what in (("gi", "GPU instance"), ("ci", "compute instance")):
                number = bounded_int(fields.get(name, ""), 0, _MOST_ID)
                if number is not None:
                    yield Detail(
                        topic="mig",
                        name=name,
                        value=float(number),
                        unit="1",
                        basis="configured",
                        detail=f"{what} {number} ({row.source})",
                    )
    if case.board is not None:
        yield Detail(
            topic="mig",
            name="board",
            value=None,
            unit="1",
            basis="inferred",
            detail=f"its board is {case.board.uuid}: {case.board.how}",
        )
    inside = max(int(case.fact("traced_tenants") or 0), len(case.tenants))
    if inside:
        yield Detail(
            topic="mig",
            name="processes_inside",
            value=float(inside),
            unit="processes",
            basis="observed",
            detail=f"{fmt.counted(inside, 'process is', 'processes are')} known in the instance"
            + (" and share its SMs" if inside >= MANY else ""),
        )


def _number_of(value: int | None) -> float | None:
    return None if value is None else float(value)


#: Why the lower limit is taken.
_UNKNOWN_DRIVER = "48 until CUDA 13.0, 60 from 13.1 on; the driver version is not known"


def mps_limit(case: Case) -> tuple[int, str]:
    """How many clients one MPS server takes on this GPU, and why.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing.facts import Case
    >>> mps_limit(Case(0, "Tesla P100", None, None, None, (6, 0), 56, {}, (), {}, ()))
    (16, 'before Volta')
    """
    if case.compute_capability is not None and case.compute_capability[0] < 7:
        return 16, "before Volta"
    driver = case.driver_branch
    whole, why = 48, f"driver {case.driver}" if driver else _UNKNOWN_DRIVER
    if driver is not None and driver >= _DRIVER_OF_60:
        whole, why = 60, f"CUDA 13.1 or newer, driver {case.driver}"
    most = mps_clients(whole, case.name, case.mig_profile)
    return most, why if most == whole else f"{whole} on a whole GPU, proportionally fewer in {case.mig_profile}; {why}"


def _limits(case: Case, mode: Mode) -> Iterable[Detail]:
    count = clients(case)
    if count is not None and (TRAITS[mode].mps or case.has("mps_daemon")):
        most, why = mps_limit(case)
        over, traced = count > most, count > _listed_clients(case)
        yield Detail(
            topic="limits",
            name="mps_clients",
            value=float(most),
            unit="clients",
            basis="configured",
            detail=f"an MPS server accepts {most} clients ({why}); there were {count}{' traced ones' * traced}"
            + (
                ": MORE than the limit, so that further clients are refused, or several servers ran"
                if over
                else f", so at most {most - count} more are possible, fewer if untraced ones are connected"
                if traced
                else f", so {most - count} more are possible"
            ),
        )
    servers = {row.pid for row in case.configured if row.key == "mps_server" and row.pid is not None}
    if len(servers) > 1:
        yield Detail(
            topic="limits",
            name="mps_users",
            value=float(len(servers)),
            unit="servers",
            basis="configured",
            detail=f"{len(servers)} MPS servers were listed. A server serves one UNIX user unless -multiuser-server "
            "is set. Clients of another user wait until it exits",
        )
    instances = {row.value for row in case.configured if row.key == "mig_device"}
    boards: dict[str, int] = {}
    for value in instances:
        fields = dict(word.split("=", 1) for word in value.split() if "=" in word)
        board = fields.get("gpu_uuid", fields.get("gpu", "?"))
        boards[board] = boards.get(board, 0) + 1
    listed = max(boards.values(), default=0)
    # To an instance only its own row belongs.
    if listed > (case.mig_profile is not None):
        from pyanalyze.analysis.advice.mig import family_of

        family = family_of(case.name, None)
        most = t.MOST_INSTANCES if family is None else family.compute_slices
        over = listed > most
        yield Detail(
            topic="limits",
            name="mig_instances",
            value=float(most),
            unit="instances",
            basis="configured",
            detail=f"a board has at most {most} MIG instances"
            + (f"; {listed} are listed" if listed > 1 else "")
            + (", MORE than possible" if over else ""),
        )
