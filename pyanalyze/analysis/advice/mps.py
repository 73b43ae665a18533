"""How should SMs and memory be handed out to MPS clients?  Known strategies, rounded to what the chip gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import MPS_PERCENTAGE, SMS_PER_TPC, mps_sms
from pyanalyze.analysis.mps_daemon import DEFAULT_DAEMON
from pyanalyze.text import format as fmt
from pyanalyze.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.mps_daemon import Daemon
    from pyanalyze.results.advice import CapStrategy

#: A pinned-memory limit leaves this much above the observed high-water mark.
MEMORY_HEADROOM = 1.1
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def percentage_for(sms: int, sm_count: int, compute_major: int | None = None) -> int:
    """Return the least whole percentage that gives at least so many SMs.

    Examples
    --------
    >>> percentage_for(54, 108, 8)
    50
    """
    found = (p for p in range(1, 101) if mps_sms(sm_count, p, compute_major) >= min(sms, sm_count))
    return next(found, 100)


@dataclass(frozen=True)
class Client:
    """What provisioning needs to know of a client.

    Attributes
    ----------
    tenant_id, name
        Who.
    load
        Its part of the SM time that all clients used (0 to 1); None where not modelled.
    needed_sms
        Fewest SMs with which its own kernels lose less than the given part; None where not known.
    memory_bytes
        High-water mark; None where not known.
    percentage
        Cap that was set while it was recorded, in per cent; None where none is known.
    on_command_line
        The command that started it set the cap: the environment of a shell does not change that.
    follows_sms
        Part of its kernel time in grids that fill all SMs evenly in one wave: programs usually size such grids by the
        number of SMs.
    """

    tenant_id: int
    name: str
    load: float | None
    needed_sms: int | None
    memory_bytes: int | None
    percentage: float | None = None
    on_command_line: bool = False
    follows_sms: float = 0.0


@dataclass(frozen=True)
class Provision:
    """Percentages for clients.

    Attributes
    ----------
    strategy
        ``equal``, ``double``, ``proportional`` or ``minimal``.
    percentages, sms
        By tenant id.
    why
        What the strategy is for.
    """

    strategy: CapStrategy
    percentages: Mapping[int, int]
    sms: Mapping[int, int]
    why: str


def loss_by_sms(launches: pl.DataFrame, sm_count: int) -> list[tuple[int, float]]:
    """How much longer a tenant's own kernels take with fewer SMs, from their launch configurations.

    A grid that takes ``ceil(blocks / (per SM x SMs))`` waves takes as many block times.

    Parameters
    ----------
    launches
        Rows of `kernel_occupancy` of one tenant.
    sm_count
        SMs of the device.

    Returns
    -------
    list of (int, float)
        SMs in steps of a TPC, ascending, and the time over that with all SMs; empty where no launch is known.

    Examples
    --------
    A grid of 40 blocks, two of which fit on an SM: 20 SMs do.

    >>> import polars as pl
    >>> one = pl.DataFrame({"grid_blocks": [40], "blocks_per_sm": [2], "total_ns": [1000]})
    >>> dict(loss_by_sms(one, 108))[20], dict(loss_by_sms(one, 108))[18]
    (1.0, 2.0)
    """
    rows = [
        (int(grid), int(per_sm), int(total))
        for grid, per_sm, total in launches.select("grid_blocks", "blocks_per_sm", "total_ns").iter_rows()
        if grid and per_sm and total > 0
    ]
    whole = sum(total for _, _, total in rows)
    if not whole:
        return []

    def waves(grid: int, per_sm: int, sms: int) -> int:
        return -(-grid // (per_sm * sms))

    steps = [*range(SMS_PER_TPC, sm_count, SMS_PER_TPC), sm_count]
    return [
        (sms, sum(total * waves(grid, per, sms) / waves(grid, per, sm_count) for grid, per, total in rows) / whole)
        for sms in steps
    ]


def sms_needed(losses: Sequence[tuple[int, float]], lose: float) -> int | None:
    """Return the fewest SMs with which kernels lose less than that part.

    Examples
    --------
    >>> sms_needed([(2, 3.0), (4, 1.4), (6, 1.04), (8, 1.0)], 0.05)
    6
    """
    # From above: a loss may be small by chance at few SMs only where it also is at all larger counts.
    enough = None
    for sms, ratio in sorted(losses, reverse=True):
        if ratio - 1 > lose:
            break
        enough = sms
    return enough


def provisions(clients: Sequence[Client], sm_count: int, compute_major: int | None = None) -> list[Provision]:
    """Every strategy that can be computed.

    Parameters
    ----------
    clients
        The clients.
    sm_count, compute_major
        The device.

    Returns
    -------
    list of Provision
        ``equal`` and ``double`` always, ``proportional`` and ``minimal`` where it is known for all clients.

    Examples
    --------
    >>> two = [Client(0, "train", 0.75, 80, None), Client(1, "serve", 0.25, 20, None)]
    >>> {p.strategy: tuple(p.percentages.values()) for p in provisions(two, 108, 8)}
    {'equal': (50, 50), 'double': (100, 100), 'proportional': (75, 25), 'minimal': (75, 19)}
    """
    if not clients:
        return []
    n = len(clients)

    def made(strategy: CapStrategy, wanted: Iterable[float], why: str) -> Provision:
        whole = {c.tenant_id: min(100, max(1, math.floor(p + 1e-9))) for c, p in zip(clients, wanted, strict=True)}
        return Provision(strategy, whole, {t: mps_sms(sm_count, p, compute_major) for t, p in whole.items()}, why)

    found = [
        made(
            "equal",
            [100 / n] * n,
            "equal caps are what Kubernetes' device plugin sets",
        ),
        made(
            "double",
            [min(100.0, 100 / (0.5 * n))] * n,
            "each client may use idle SMs beyond its equal part (NVIDIA's documentation calls this more optimal)",
        ),
    ]
    loads = [c.load for c in clients]
    if all(load is not None for load in loads) and (sum_ := sum(load or 0 for load in loads)) > 0:
        why = "caps follow the SM time that each used; non-uniform caps with a sum of 100 tend to be disjoint"
        found.append(made("proportional", _hundred([100 * (load or 0) / sum_ for load in loads]), why))
    needs = [c.needed_sms for c in clients]
    if all(need is not None for need in needs):
        exact = [float(percentage_for(need or sm_count, sm_count, compute_major)) for need in needs]
        why = "the fewest SMs with which a client's kernels lose almost nothing solo"
        found.append(made("minimal", exact, why))
    return found


def _hundred(parts: Sequence[float]) -> list[float]:
    """Whole numbers near these parts of 100, which add up to 100: the largest fractions are rounded up."""
    whole = [math.floor(part) for part in parts]
    last = sorted(range(len(parts)), key=lambda n: whole[n] - parts[n])[: max(100 - sum(whole), 0)]
    return [float(number + (n in last)) for n, number in enumerate(whole)]


def settings(
    provision: Provision | None,
    clients: Sequence[Client],
    gpu: int = 0,
    *,
    running: bool = False,
    noted: bool = False,
    daemon: Daemon = DEFAULT_DAEMON,
) -> tuple[str, ...]:
    """Commands and environment that set it up, where a daemon is `running` or is not.

    With `noted` they first note the percentages of the daemon in files, from which :func:`undo_caps` sets them again.

    Examples
    --------
    >>> one = [Client(0, "serve", None, None, 2 * 2**30)]
    >>> settings(provisions(one, 108)[0], one)[1].partition("   # ")[0]
    'export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2253M"'
    """
    lines = [] if running else [*daemon.reach]
    if running and provision is None:
        lines += [
            f"# remove {MPS_PERCENTAGE} from the command that starts {visible(client.name, 40)}"
            for client in clients
            if client.on_command_line
        ]
        if not all(client.on_command_line for client in clients):
            lines += [f"unset {MPS_PERCENTAGE}   # for each client, before it starts again"]
        default, servers = _caps(daemon, 100, noted=noted)
        lines += [f"{default}   # where the daemon has a lower default", f"{servers}   # and the running server"]
    given: dict[str, list[Client]] = {}
    for client in clients:
        parts = []
        if provision is not None:
            parts.append(f"{MPS_PERCENTAGE}={provision.percentages[client.tenant_id]}")
        if client.memory_bytes is not None:
            mib = math.ceil(client.memory_bytes * MEMORY_HEADROOM / 2**20)
            parts.append(f'{MEMORY_LIMIT}="{gpu}={mib}M"')
        if parts:
            given.setdefault(" ".join(parts), []).append(client)
    lines += [line for variables, to in given.items() for line in _given(to, variables)]
    if provision is not None and sets_daemon(provision):
        default, servers = _caps(daemon, next(iter(provision.percentages.values())), noted=noted)
        # Either way does it: of a block that is pasted whole, one.
        lines.append(f"# in place of the percentages above, for all clients: {default}")
        if running:
            lines.append(f"# and for the running server, for clients that start afterwards: {servers}")
    return tuple(lines)


def sets_daemon(provision: Provision | None) -> bool:
    """Whether it sets the percentage of the daemon and its server, too: where all clients get the same.

    Examples
    --------
    >>> sets_daemon(None), sets_daemon(Provision("minimal", {0: 40, 1: 60}, {0: 40, 1: 60}, "small"))
    (True, False)
    """
    return provision is None or len(set(provision.percentages.values())) == 1


def _given(clients: Sequence[Client], variables: str) -> list[str]:
    """Variables of clients, for the shells that start them, or for the command line of those that set them there."""
    lines = [
        f"# write {variables} into the command that starts {visible(client.name, 40)}"
        for client in clients
        if client.on_command_line
    ]
    names = [visible(client.name, 40) for client in clients if not client.on_command_line]
    if names:
        who = f"shells that start {fmt.names(names)}, before they start"
        if len(names) == 1:
            who = f"shell that starts {names[0]}, before it starts"
        lines.append(f"export {variables}   # in the {who}")
    return lines


#: Files in which commands note the percentages of the daemon and of its servers, for the undo.
_DEFAULT_FILE, _SERVER_FILE = "mps-default.txt", "mps-server-$server.txt"


def _caps(
    daemon: Daemon, percentage: int | str, of_server: int | str | None = None, *, noted: bool = False
) -> tuple[str, str]:
    """The cap of clients that start afterwards: of servers to come, and of those that run, which keep their default."""
    control = daemon.control
    note_default = f"echo get_default_active_thread_percentage | {control} > {_DEFAULT_FILE}; " if noted else ""
    note_server = f"echo get_active_thread_percentage $server | {control} > {_SERVER_FILE}; " if noted else ""
    set_one = f"echo set_active_thread_percentage $server {of_server or percentage} | {control}"
    return (
        f"{note_default}echo set_default_active_thread_percentage {percentage} | {control}",
        f"for server in $(echo get_server_list | {control}); do {note_server}{set_one}; done",
    )


def undo_caps(
    clients: Sequence[Client],
    *,
    capped: bool,
    of_daemon: bool,
    in_place: bool = False,
    daemon: Daemon = DEFAULT_DAEMON,
) -> str:
    """Give a daemon that goes on, and its clients, the caps back that they had: a line for each.

    Parameters
    ----------
    clients
        With the percentages that were recorded.
    capped
        Whether clients had caps.
    of_daemon
        Whether the percentage of the daemon and its server was set, too, see :func:`sets_daemon`.
    in_place
        It may have been set, in place of those of the clients.
    daemon
        Where it is.

    Examples
    --------
    >>> undo_caps([Client(0, "serve", None, None, None, 31.0)], capped=True, of_daemon=False)
    'export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=31   # in the shell that starts serve, before it starts'
    """
    limits = undo_limits(clients)
    where = "# where the daemon's percentage was set: " if in_place else ""
    if not capped:
        default, servers = _caps(daemon, 100)
        unset = f"unset {MPS_PERCENTAGE}   # for clients that start afterwards"
        return "\n".join((unset, f"{where}{default}; {servers}", *limits))
    if all(client.percentage is not None for client in clients):
        lines = [line for client in clients for line in _given([client], f"{MPS_PERCENTAGE}={client.percentage:g}")]
    else:
        lines = ["# set the earlier percentages of the clients again: the capture does not say which client had which"]
    if of_daemon:
        default, servers = _caps(daemon, f"$(cat {_DEFAULT_FILE})", f"$(cat {_SERVER_FILE})")
        noted, running = "   # noted in this folder before", "   # and for the running server"
        lines += [f"{where}{default}; {servers}"] if in_place else [f"{default}{noted}", f"{servers}{running}"]
    return "\n".join((*lines, *limits))


def undo_limits(clients: Sequence[Client]) -> tuple[str, ...]:
    """Take back the memory limits that :func:`settings` gives to clients whose memory use is known.

    Examples
    --------
    >>> undo_limits([Client(0, "serve", None, None, None), Client(1, "train", None, None, 2**30)])
    ('unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT   # in the shell that starts train; set an earlier limit again',)
    """
    limited = [client for client in clients if client.memory_bytes is not None]
    shells = ", ".join(visible(client.name, 40) for client in limited if not client.on_command_line)
    lines = [
        f"# remove {MEMORY_LIMIT} from the command that starts {visible(client.name, 40)}, or write its earlier value"
        for client in limited
        if client.on_command_line
    ]
    if shells:
        lines.append(f"unset {MEMORY_LIMIT}   # in the shell that starts {shells}; set an earlier limit again")
    return tuple(lines)
