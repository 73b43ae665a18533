"""What would the same launches have taken, shared in another way? Layouts, and their replay by the core."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import DEFAULT_SLICE_NS, SWITCH_NS
from pyanalyze.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.tables.tableset import TableSet


@dataclass(frozen=True)
class Seat:
    """Where a tenant stands in a layout.

    Attributes
    ----------
    tenant_id
        Tenant of the tables.
    instance
        Which of the layout's instances (SMs of their own).
    group
        Tenants of one instance with the same number hold the engine together, as clients of an MPS server do; others
        take turns.
    sms
        SMs its kernels may use; None: all of the instance.
    """

    tenant_id: int
    instance: int = 0
    group: int = 0
    sms: int | None = None


@dataclass(frozen=True)
class Layout:
    """A way to share a GPU, for :func:`replay`.

    Attributes
    ----------
    name
        Appears in the result.
    instances
        SMs of each instance: one without MIG.
    seats
        Who is on it. A tenant without a seat does not run.
    slice_ns, switch_ns
        How long a group executes while others wait, and what lies between two of them.
    contention
        Part by which SMs are slower while kernels of two tenants share an instance: an allowance for memory, caches and
        issue slots, which the replay does not know.
    ragged
        Block times of a kernel lie within this part of their mean; 0: all are equal.
    jitter, seed
        Every operation takes longer or shorter by up to this part, differently for each seed: programs that repeat
        themselves fall into step with each other by chance.

    Examples
    --------
    >>> Layout("two in turns", (108,), (Seat(0, group=0), Seat(1, group=1))).slice_ns
    2131500
    """

    name: str
    instances: tuple[int, ...]
    seats: tuple[Seat, ...]
    slice_ns: int = DEFAULT_SLICE_NS
    switch_ns: int = SWITCH_NS
    contention: float = 0.0
    ragged: float = 0.0
    jitter: float = 0.0
    seed: int = 0

    def varied(
        self, name: str, *, contention: float = 0.0, ragged: float = 0.0, jitter: float = 0.0, seed: int = 0
    ) -> Layout:
        """Return the same under another name, with other assumptions.

        Examples
        --------
        >>> Layout("mps", (108,), (Seat(0), Seat(1))).varied("much", contention=0.3).contention
        0.3
        """
        return replace(self, name=name, contention=contention, ragged=ragged, jitter=jitter, seed=seed)

    @property
    def together(self) -> bool:
        """Whether any two tenants are on the SMs of one instance at once.

        Examples
        --------
        >>> in_turns(108, [0, 1]).together, side_by_side(108, [0, 1]).together
        (False, True)
        """
        groups = [(seat.instance, seat.group) for seat in self.seats]
        return len(set(groups)) < len(groups)


def alone(sm_count: int, tenant_id: int) -> Layout:
    """One tenant with the whole device.

    Examples
    --------
    >>> alone(108, 3).seats
    (Seat(tenant_id=3, instance=0, group=0, sms=None),)
    """
    return Layout(f"alone {tenant_id}", (sm_count,), (Seat(tenant_id),))


def in_turns(
    sm_count: int, tenants: Sequence[int], slice_ns: int = DEFAULT_SLICE_NS, switch_ns: int = SWITCH_NS
) -> Layout:
    """All tenants in turns.

    Examples
    --------
    >>> [seat.group for seat in in_turns(108, [4, 7]).seats]
    [0, 1]
    """
    seats = tuple(Seat(tenant, group=n) for n, tenant in enumerate(tenants))
    return Layout("time-slicing", (sm_count,), seats, slice_ns, switch_ns)


def side_by_side(sm_count: int, tenants: Sequence[int], caps: Mapping[int, int] | None = None) -> Layout:
    """All tenants at once, each on all SMs or on as many as its cap allows.

    Examples
    --------
    >>> side_by_side(108, [0, 1], {1: 54}).seats[1].sms
    54
    """
    seats = tuple(Seat(tenant, sms=(caps or {}).get(tenant)) for tenant in tenants)
    return Layout("mps" if not caps else "mps with caps", (sm_count,), seats)


def replay(
    tables: TableSet,
    device_id: int,
    layouts: Sequence[Layout],
    *,
    visible_sms: Mapping[int, int] | None = None,
    time_sliced: bool,
    recorded: Layout | None = None,
    threads: int = 0,
) -> pl.DataFrame:
    """Run what was recorded of one device in each layout.

    Parameters
    ----------
    tables
        The tables; API calls, read now if they were not, tell think time and waiting apart. Where none were recorded
        every gap of a stream counts as think time.
    device_id
        Device.
    layouts
        Ways to share it, each with a name of its own.
    visible_sms
        SMs that a tenant had while it was recorded, where those were not all (caps).
    time_sliced
        Whether tenants were time-sliced while it was recorded.
    recorded
        The layout in which it was recorded: what kernels take alone is fitted to it, and the contention that was
        there is measured. None: kernels that never ran alone are taken for their shortest tenth.
    threads
        Layouts are spread over so many threads; 0: all processors.

    Returns
    -------
    polars.DataFrame
        The `replay` table: per layout (and `recorded`) and tenant the elapsed time and the latency of kernels.

    Raises
    ------
    pyanalyze.errors.UsageError
        If a layout makes no sense, or two of them have one name.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> rows = replay(session.tables, 0, [alone(108, 0)], time_sliced=True)
    >>> sorted(set(rows["layout"].cast(str)))
    ['alone 0', 'recorded']
    """
    from pyanalyze.core import _core
    from pyanalyze.tables.frames import to_frame

    names = [layout.name for layout in layouts]
    if len(set(names)) < len(names) or "recorded" in names:
        raise UsageError("layouts need names of their own, other than `recorded`")
    made = _core.replay(
        tables.with_calls(),
        device_id,
        visible_sms or {},
        time_sliced,
        recorded,
        layouts,
        threads,
        None,
    )
    return to_frame(made["replay"])
