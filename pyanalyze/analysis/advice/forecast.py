"""What would the same launches have taken, shared in another way? Layouts, and their replay by the core."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS, SWITCH_NS
from pyanalyze.analysis.residency import NO_GROUPS, through_one_client
from pyanalyze.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.core import _core
    from pyanalyze.tables.tableset import TableSet

#: More operations than these are not replayed in one config.
MOST_OPERATIONS: Final = 400_000


class ClientOrder(StrEnum):
    """Which kernels of MPS clients get SMs while one that was ready earlier waits for them, where nobody is capped.

    Attributes
    ----------
    ONE_LINE
        None: kernels of all clients wait in one line, as on an H100 and an H200.
    OVERTAKING
        Those of other clients for which there is room.
    """

    ONE_LINE = "one-line"
    OVERTAKING = "overtaking"


@dataclass(frozen=True)
class Assignment:
    """Where a tenant stands in a config.

    Attributes
    ----------
    tenant_id
        Tenant of the tables.
    instance
        Which of the config's instances (SMs of their own).
    group
        Tenants of one instance with the same number are resident together, as clients of an MPS server do; others
        are time-sliced.
    sms
        SMs its kernels may use; None: all of the instance.
    copy
        Which copy of the tenant's program it is, from 0.
    start_ns
        The copy begins that much later than the program was recorded to begin.
    bandwidth
        Part of the device's memory bandwidth that its kernels take while they run solo; 0: not known.
    cache
        Part of the device's L2 cache that the data fill which its kernels come back to; 0: not known.
    sm_throughput
        Part of the throughput (issue slots, or the pipe that is used most) of the SMs that hold its blocks while it
        runs solo; 0: not known.
    assumed_sm_throughput
        What is assumed instead where that is not known: part of the throughput of an SM that its kernels take while the
        SM holds as many of their blocks as fit; with fewer of them they take less.
    """

    tenant_id: int
    instance: int = 0
    group: int = 0
    sms: int | None = None
    copy: int = 0
    start_ns: int = 0
    bandwidth: float = 0.0
    cache: float = 0.0
    sm_throughput: float = 0.0
    assumed_sm_throughput: float = 0.0


@dataclass(frozen=True)
class SharingConfig:
    """A way to share a GPU, for :func:`forecast`.

    Attributes
    ----------
    name
        Appears in the result.
    instances
        SMs of each instance: one without MIG.
    assignments
        Who is on it. A tenant without a assignment does not run.
    slice_ns, switch_ns
        How long a group executes while others wait, and what lies between two of them.
    contention
        Part by which SMs are slower while kernels of two tenants share an instance: an allowance for memory, caches and
        issue slots, which the replay does not know. Below 0 (at least -0.5) the two need different units of an SM:
        where there is no room for all of their blocks, those that have some run faster.
    linger_ns
        A context without work keeps the engine that long once another one has some; None: as the capture shows.
    anchored
        Pauses of hosts end at the moments at which they were recorded to end, and not after as long: what they wait for
        comes when it comes. Those of programs with a frame rate always do, those of programs that hardly pause never.
    block_imbalance
        Block times of a kernel lie within this part of their mean; 0: all are equal.
    bandwidths
        Part of the device's memory bandwidth that each instance has; empty: all of it.
    jitter, seed
        Every operation, and every pause of a host, takes longer or shorter by up to this part, differently for each
        seed and copy: programs that repeat themselves fall into step with each other by chance.
    hits_over_misses
        DRAM traffic that is added where L2 holds nothing of what kernels come back to, as a part of their traffic solo.
    crowding
        Which SM sets the pace where blocks want more of some SMs than those have: the mean (0), or one of those with a
        block more than others (1).
    client_order
        Which kernels of MPS clients without caps overtake others; None: as the capture shows, and in one line where too
        few of its kernels became ready while one of another client waited.

    Examples
    --------
    >>> SharingConfig("two alternately", (108,), (Assignment(0, group=0), Assignment(1, group=1))).slice_ns
    2131500
    """

    name: str
    instances: tuple[int, ...]
    assignments: tuple[Assignment, ...]
    slice_ns: int = DEFAULT_SLICE_NS
    switch_ns: int = SWITCH_NS
    contention: float = 0.0
    linger_ns: int | None = None
    anchored: bool = False
    block_imbalance: float = 0.0
    jitter: float = 0.0
    seed: int = 0
    bandwidths: tuple[float, ...] = ()
    hits_over_misses: float = 0.0
    crowding: float = 0.0
    client_order: ClientOrder | None = None

    def varied(
        self, name: str, *, contention: float = 0.0, block_imbalance: float = 0.0, jitter: float = 0.0, seed: int = 0
    ) -> SharingConfig:
        """Return the same under another name, with other assumptions.

        Examples
        --------
        >>> SharingConfig("mps", (108,), (Assignment(0), Assignment(1))).varied("much", contention=0.3).contention
        0.3
        """
        return replace(
            self, name=name, contention=contention, block_imbalance=block_imbalance, jitter=jitter, seed=seed
        )

    @property
    def together(self) -> bool:
        """Whether any two tenants are on the SMs of one instance at once.

        Examples
        --------
        >>> time_slicing(108, [0, 1]).together, side_by_side(108, [0, 1]).together
        (False, True)
        """
        groups = [(assignment.instance, assignment.group) for assignment in self.assignments]
        return len(set(groups)) < len(groups)


def alone(sm_count: int, tenant_id: int) -> SharingConfig:
    """One tenant with the whole device.

    Examples
    --------
    >>> (one,) = alone(108, 3).assignments
    >>> one.tenant_id, one.sms
    (3, None)
    """
    return SharingConfig(f"alone {tenant_id}", (sm_count,), (Assignment(tenant_id),))


def both_readings(solo: SharingConfig, tenant_id: int) -> dict[tuple[int, bool], SharingConfig]:
    """Name a tenant's solo config by reading of its host's pauses: as long as recorded, and anchored.

    Examples
    --------
    >>> [(which, one.name, one.anchored) for which, one in both_readings(alone(108, 3), 3).items()]
    [((3, False), 'solo 3', False), ((3, True), 'solo 3, anchored', True)]
    """
    names = {False: f"solo {tenant_id}", True: f"solo {tenant_id}, anchored"}
    return {(tenant_id, anchored): replace(solo, name=name, anchored=anchored) for anchored, name in names.items()}


def time_slicing(
    sm_count: int, tenants: Sequence[int], slice_ns: int = DEFAULT_SLICE_NS, switch_ns: int = SWITCH_NS
) -> SharingConfig:
    """All tenants alternately.

    Examples
    --------
    >>> [assignment.group for assignment in time_slicing(108, [4, 7]).assignments]
    [0, 1]
    """
    assignments = tuple(Assignment(tenant, group=n) for n, tenant in enumerate(tenants))
    return SharingConfig("time-slicing", (sm_count,), assignments, slice_ns, switch_ns)


def side_by_side(sm_count: int, tenants: Sequence[int], caps: Mapping[int, int] | None = None) -> SharingConfig:
    """All tenants at once, each on all SMs or on as many as its cap allows.

    Examples
    --------
    >>> side_by_side(108, [0, 1], {1: 54}).assignments[1].sms
    54
    """
    assignments = tuple(Assignment(tenant, sms=(caps or {}).get(tenant)) for tenant in tenants)
    return SharingConfig("mps" if not caps else "mps with caps", (sm_count,), assignments)


@dataclass
class Fitted:
    """What was fitted to the record of a device, kept for further forecasts of the same record."""

    fit: _core.Fit | None = None


def forecast(
    tables: TableSet,
    device_id: int,
    configs: Sequence[SharingConfig],
    *,
    visible_sms: Mapping[int, int] | None = None,
    time_sliced: bool,
    mps_groups: Mapping[int, frozenset[int]] = NO_GROUPS,
    recorded: SharingConfig | None = None,
    units: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    kernel_demands: Mapping[str, tuple[float | None, float | None]] | None = None,
    most_operations: int = MOST_OPERATIONS,
    fitted: Fitted | None = None,
    threads: int = 0,
) -> pl.DataFrame:
    """Run what was recorded of one device in each config.

    Parameters
    ----------
    tables
        The tables; where only a part of them is to be replayed (`replayed`), the rest shows what kernels take solo.
        API calls, read now if they were not, tell think time and waiting apart. Where none were recorded every gap of a
        stream counts as think time.
    device_id
        Device.
    configs
        Ways to share it, each with a name of its own.
    visible_sms
        SMs that CUDA showed a tenant while it was recorded, where those were not all (caps). Of a tenant without, the
        cap in `recorded` counts: its kernels that ran alone ran under that as well.
    time_sliced
        Whether tenants were time-sliced while it was recorded.
    mps_groups
        Clients of MPS groups that were time-sliced with others, by device: each was resident whenever its group was.
    recorded
        The config in which it was recorded: what kernels take alone is fitted to it, and the contention that was
        there is measured. None: kernels that never ran alone are taken for their shortest tenth.
    units
        Units of work by tenant, in order: begin and end of the range in which their operations were launched. Their
        time is forecast too where API calls were recorded.
    kernel_demands
        Parts of the device's memory bandwidth and of the throughput of all its SMs that a kernel takes solo, by its
        name in the table `kernels`; None for what was not measured. Others take their assignment's.
    most_operations
        Where the copies of a config have more operations than that, 2 to 4 windows of the recording are replayed, as
        long as each other and as far apart, with a quarter as many operations. Each is replayed twice: the second time
        stands for all, in proportion to what was recorded. Every program must do within 10 % its share in them, else
        all is replayed.
    fitted
        What an earlier call with the same arguments but `configs` fitted to the record, and then what this one did.
    threads
        Layouts are spread over so many threads; 0: all processors.

    Returns
    -------
    polars.DataFrame
        The `forecast` table: per config (and `recorded`), tenant and copy the elapsed time and the latency of kernels.

    Raises
    ------
    pyanalyze.errors.UsageError
        If a config makes no sense, or two of them have one name.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> rows = forecast(session.tables, 0, [alone(108, 0)], time_sliced=True)
    >>> sorted(set(rows["sharing_config"].cast(str)))
    ['alone 0', 'recorded']
    """
    from pyanalyze.core import _core
    from pyanalyze.tables.frames import to_frame

    names = [config.name for config in configs]
    if len(set(names)) < len(names) or "recorded" in names:
        raise UsageError("configs need names of their own, other than `recorded`")
    known = Fitted() if fitted is None else fitted
    capped = {} if recorded is None else {one.tenant_id: one.sms for one in recorded.assignments if one.sms is not None}
    made, known.fit = _core.forecast(
        {**tables.with_calls(), **through_one_client(tables, mps_groups)},
        device_id,
        {**capped, **(visible_sms or {})},
        time_sliced,
        recorded,
        configs,
        units or {},
        tables.replayed,
        kernel_demands or {},
        most_operations,
        known.fit,
        threads,
        None,
    )
    return to_frame(made["forecast"])
