"""Which MIG instances hold which tenants, together on one GPU?  Exact: every valid placement is looked at.

A GPU in MIG mode has memory slices, numbered from 0, and compute slices.  A profile takes a run of memory slices that
may begin at certain positions only, and some compute slices; instances must not overlap and must not take more compute
slices than there are.  That is why two thirds of a GPU can be free and a profile still not fit.

Profiles, SM counts and memory parts are those of the MIG user guide and of ``nvidia-smi mig -lgip``; positions are
those that ``nvidia-smi mig -lgipp`` lists for GPUs with seven compute slices (seen on an H100 NVL).  For GPUs with four
slices they are the aligned ones, which give the published number of instances of each profile.  Variants with media
engines (``+me``) take the same place and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: An instance has a little less memory than its part of the board: 4864 MiB are listed for an eighth of 40 GiB.
USABLE_MEMORY = 0.95


@dataclass(frozen=True)
class Profile:
    """A kind of GPU instance.

    Attributes
    ----------
    name
        Such as ``3g.20gb``.
    slices
        Compute slices.
    memory_slices
        Memory slices.
    starts
        Memory slices at which it may begin.
    sm_count
        SMs; None where no source states them.
    copy_engines
        Copy engines; None where no source states them.
    """

    name: str
    slices: int
    memory_slices: int
    starts: tuple[int, ...]
    sm_count: int | None
    copy_engines: int | None = None


@dataclass(frozen=True)
class Family:
    """GPUs with the same profiles.

    Attributes
    ----------
    name
        Such as ``A100-40``.
    compute_slices, memory_slices
        How many the GPU has.
    memory_gib
        Device memory of the board.
    sm_count
        SMs without MIG; in MIG mode fewer may be usable (A100: 98 of 108).
    profiles
        By size.
    verified
        False: profiles or SM counts are from public listings only.
    """

    name: str
    compute_slices: int
    memory_slices: int
    memory_gib: int
    sm_count: int
    profiles: tuple[Profile, ...]
    verified: bool = True

    def profile(self, name: str) -> Profile:
        """Return the profile of that name.

        Raises
        ------
        KeyError
            If it has none.

        Examples
        --------
        >>> FAMILIES["A30"].profile("2g.12gb").sm_count
        28
        """
        return next((p for p in self.profiles if p.name == name), None) or _no_profile(self, name)

    def memory_bytes(self, profile: Profile) -> int:
        """Memory that an instance can be expected to offer, a little less than its part of the board.

        Examples
        --------
        >>> FAMILIES["A100-40"].memory_bytes(FAMILIES["A100-40"].profile("1g.5gb")) >> 20
        4864
        """
        part = profile.memory_slices / self.memory_slices
        return int(self.memory_gib * 2**30 * part * USABLE_MEMORY)


def _no_profile(family: Family, name: str) -> Profile:
    raise KeyError(f"{family.name} has no MIG profile {name}; it has {', '.join(p.name for p in family.profiles)}")


# (name, compute slices, memory slices, starts) of GPUs with seven compute slices, by the memory of an eighth.
_SEVEN = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
_FOUR = ((1, 1, (0, 1, 2, 3)), (2, 2, (0, 2)), (4, 4, (0,)))


def _family(
    name: str,
    layout: tuple[tuple[int, int, tuple[int, ...]], ...],
    names: str,
    sms: tuple[int | None, ...],
    engines: tuple[int | None, ...],
    memory_gib: int,
    sm_count: int,
    *,
    verified: bool = True,
) -> Family:
    profiles = tuple(
        Profile(profile, slices, memory, starts, sm, engine)
        for profile, (slices, memory, starts), sm, engine in zip(names.split(), layout, sms, engines, strict=True)
    )
    compute, memory = max(p.slices for p in profiles), max(p.memory_slices for p in profiles)
    return Family(name, compute, memory, memory_gib, sm_count, profiles, verified)


_A100_SMS = (14, 14, 28, 42, 56, 98)
_A100_CE = (1, 1, 2, 3, 4, 7)
_H100_SMS = (16, 26, 32, 60, 64, 132)
_H100_CE = (1, 1, 2, 3, 4, 8)
_NONE = (None,) * 6

#: GPU families that can be partitioned and whose SM counts are known, by name.
FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        _family("A30", _FOUR, "1g.6gb 2g.12gb 4g.24gb", (14, 28, 56), (1, 2, 4), 24, 56),
        _family(
            "A100-40", _SEVEN, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", _A100_SMS, _A100_CE, 40, 108
        ),
        _family(
            "A100-80", _SEVEN, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", _A100_SMS, _A100_CE, 80, 108
        ),
        _family(
            "H100-80", _SEVEN, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", _H100_SMS, _H100_CE, 80, 132
        ),
        _family(
            "H100-94", _SEVEN, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", _H100_SMS, _H100_CE, 94, 132
        ),
        _family(
            "H100-96", _SEVEN, "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
            (16, None, 32, 60, 64, 132), _NONE, 96, 132, verified=False,
        ),
        _family(
            "H200-141", _SEVEN, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", _H100_SMS, _NONE, 141, 132
        ),
        _family(
            "B200-180", _SEVEN, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
            (18, None, None, None, None, None), (2, None, 3, 6, 8, 16), 180, 148, verified=False,
        ),
        _family("RTX PRO 6000", _FOUR, "1g.24gb 2g.48gb 4g.96gb", (46, 94, 188), (None,) * 3, 96, 188),
    )
}  # fmt: skip


def family_of(name: str | None, memory_bytes: int | None) -> Family | None:
    """The family of a GPU, by its product name and memory.

    Parameters
    ----------
    name
        As CUDA prints it.
    memory_bytes
        Its memory, which tells the variants of one product apart; None where not known.

    Returns
    -------
    Family or None
        None where the GPU cannot be partitioned, or its profiles are not known (H100 PCIe has other SM counts).

    Examples
    --------
    >>> family_of("NVIDIA A100-SXM4-40GB", 40 * 2**30).name
    'A100-40'
    >>> family_of("NVIDIA L40S", None) is None
    True
    """
    words = (name or "").upper().replace("-", " ").split()
    gib = None if memory_bytes is None else memory_bytes / 2**30

    def sized(word: str, low: float, high: float) -> bool:
        return word in words or (gib is not None and low <= gib <= high)

    if "A30" in words:
        return FAMILIES["A30"]
    if "A100" in words:
        return FAMILIES["A100-80" if sized("80GB", 70, 90) and "40GB" not in words else "A100-40"]
    if "GH200" in words or ("H100" in words and "96GB" in words):
        return FAMILIES["H100-96"] if sized("96GB", 90, 100) else None
    if "H100" in words:
        if "PCIE" in words:
            return None
        if "NVL" in words:
            return FAMILIES["H100-94"]
        return FAMILIES["H100-80"] if sized("80GB", 70, 90) else None
    if "H200" in words:
        return FAMILIES["H200-141"]
    if "B200" in words:
        return FAMILIES["B200-180"]
    if words[:5] == ["NVIDIA", "RTX", "PRO", "6000", "BLACKWELL"]:
        return FAMILIES["RTX PRO 6000"]
    return None


def of_device(device: Mapping[str, object]) -> Family | None:
    """The family of a row of the table `devices`.

    Examples
    --------
    >>> of_device({"name": "NVIDIA A10G", "memory_bytes": None}) is None
    True
    """
    memory = device["memory_bytes"]
    return family_of(str(device["name"]), int(str(memory)) if memory else None)


def most_instances(name: str | None) -> str:
    """How many instances a GPU can have, by its product name.

    Examples
    --------
    >>> most_instances("NVIDIA A30 MIG 2g.12gb"), most_instances("NVIDIA H200"), most_instances(None)
    ('4', '7', '4 or 7, by product')
    """
    family = family_of(name, None)
    known = {one.compute_slices for one in FAMILIES.values()} if family is None else {family.compute_slices}
    return " or ".join(map(str, sorted(known))) + (", by product" if family is None else "")


@dataclass(frozen=True)
class Placed:
    """An instance: profile, and the memory slice at which it begins."""

    profile: Profile
    start: int

    @property
    def mask(self) -> int:
        """Its memory slices, as bits."""
        return ((1 << self.profile.memory_slices) - 1) << self.start


def valid(family: Family, placed: Sequence[Placed]) -> bool:
    """Whether instances can exist together.

    Examples
    --------
    >>> a100 = FAMILIES["A100-40"]
    >>> valid(a100, [Placed(a100.profile("4g.20gb"), 0), Placed(a100.profile("3g.20gb"), 4)])
    True
    >>> valid(a100, [Placed(a100.profile("4g.20gb"), 0), Placed(a100.profile("3g.20gb"), 0)])
    False
    """
    taken = 0
    for one in placed:
        if one.start not in one.profile.starts or taken & one.mask:
            return False
        taken |= one.mask
    return sum(one.profile.slices for one in placed) <= family.compute_slices


def room(family: Family, placed: Sequence[Placed]) -> tuple[Profile, ...]:
    """Profiles of which one more instance fits beside those.

    Examples
    --------
    >>> a100 = FAMILIES["A100-40"]
    >>> [p.name for p in room(a100, [Placed(a100.profile("3g.20gb"), 0), Placed(a100.profile("2g.10gb"), 4)])]
    ['1g.5gb', '1g.10gb']
    """
    return tuple(
        profile
        for profile in family.profiles
        if any(valid(family, [*placed, Placed(profile, start)]) for start in profile.starts)
    )


@dataclass(frozen=True)
class Need:
    """What a tenant needs of an instance.

    Attributes
    ----------
    tenant
        Its name.
    memory_bytes
        Its high-water mark; None where not known: then memory decides nothing, which is said.
    cost
        What an instance with that many SMs costs it (such as its slowdown); smaller is better.
    """

    tenant: str
    memory_bytes: int | None
    cost: Callable[[int], float]


@dataclass(frozen=True)
class Placement:
    """Instances for tenants.

    Attributes
    ----------
    placed
        Instance of each tenant that has one, by name.
    unplaced
        Tenants without an instance, with the reason.
    worst, total
        Largest and summed cost.

    """

    family: Family
    placed: Mapping[str, Placed]
    unplaced: Mapping[str, str] = field(default_factory=dict)
    worst: float = 0.0
    total: float = 0.0

    @property
    def free_memory_slices(self) -> int:
        """Memory slices that no instance takes."""
        return self.family.memory_slices - sum(p.profile.memory_slices for p in self.placed.values())

    @property
    def free_compute_slices(self) -> int:
        """Compute slices that no instance takes."""
        return self.family.compute_slices - sum(p.profile.slices for p in self.placed.values())

    @property
    def still(self) -> tuple[Profile, ...]:
        """Profiles of which one more instance would fit."""
        return room(self.family, list(self.placed.values()))

    @property
    def left(self) -> str:
        """What is left, in words.

        Examples
        --------
        >>> place(FAMILIES["A30"], [Need("a", None, lambda sms: 56 / sms)]).left
        'no slice is left for another instance'
        """
        memory, compute = self.free_memory_slices, self.free_compute_slices
        if not memory and not compute:
            return "no slice is left for another instance"
        still = " or ".join(p.name for p in self.still)
        # Free slices of both kinds that no placement covers: instances in other places would leave room.
        why = " (fragmentation)" if memory and compute else ""
        usable = f"one more instance fits: {still}" if still else f"no further instance fits{why}"
        return (
            f"{memory} of {self.family.memory_slices} memory slices and {compute} of {self.family.compute_slices} "
            f"compute slices are free; {usable}"
        )

    def commands(self, gpu: int = 0) -> tuple[str, ...]:
        """Commands that make it.

        Examples
        --------
        >>> made = place(FAMILIES["A30"], [Need(name, None, lambda sms: 28 / sms) for name in "ab"])
        >>> made.commands()[1]
        'nvidia-smi mig -i 0 -cgi 2g.12gb:0,2g.12gb:2 -C'
        """
        # In the order of their places, so that each one's place is free and its start is taken as given.
        order = sorted(self.placed.values(), key=lambda one: one.start)
        tuples = ",".join(f"{one.profile.name}:{one.start}" for one in order)
        return (
            f"nvidia-smi -i {gpu} -mig 1   # as root, on an idle GPU; some GPUs need a reset",
            f"nvidia-smi mig -i {gpu} -cgi {tuples} -C",
            "nvidia-smi -L   # each process gets the UUID of its instance: CUDA_VISIBLE_DEVICES=MIG-...",
        )

    @staticmethod
    def undo(gpu: int = 0) -> str:
        """Command that takes it back.

        Examples
        --------
        >>> Placement.undo(1)
        'nvidia-smi mig -i 1 -dci; nvidia-smi mig -i 1 -dgi; nvidia-smi -i 1 -mig 0'
        """
        return f"nvidia-smi mig -i {gpu} -dci; nvidia-smi mig -i {gpu} -dgi; nvidia-smi -i {gpu} -mig 0"


def holds(family: Family, need: Need) -> tuple[Profile, ...]:
    """Profiles whose memory holds a tenant and whose SMs are known.

    Examples
    --------
    >>> [p.name for p in holds(FAMILIES["A100-40"], Need("a", 8 * 2**30, lambda sms: 1.0))]
    ['1g.10gb', '2g.10gb', '3g.20gb', '4g.20gb', '7g.40gb']
    """
    return tuple(
        p
        for p in family.profiles
        if p.sm_count is not None and (need.memory_bytes is None or need.memory_bytes <= family.memory_bytes(p))
    )


@dataclass(slots=True)
class _Beginning:
    """Instances of the first tenants, in a chain from the last of them."""

    worst: float
    total: float
    order: int
    before: _Beginning | None = None
    last: Placed | None = None

    def instances(self) -> list[Placed | None]:
        found: list[Placed | None] = []
        one = self
        while one.before is not None:
            found.append(one.last)
            one = one.before
        return found[::-1]


def _worth_keeping(beginnings: list[_Beginning]) -> list[_Beginning]:
    """Those that none betters: with a smaller sum and no worse a worst cost, or an equal one that was tried first."""
    kept: list[_Beginning] = []
    for one in sorted(beginnings, key=lambda b: (b.total, b.worst, b.order)):
        if not any(other.worst <= one.worst and (other.total < one.total or other.order < one.order) for other in kept):
            kept.append(one)
    return kept


def place(family: Family, needs: Sequence[Need]) -> Placement:
    """Give every tenant an instance of its own, as well as it can be done.

    As many tenants as possible are placed; of those placements the one whose worst cost is least, then whose sum of
    costs is least, then which leaves most memory slices, then which can take most further profiles.

    Parameters
    ----------
    family
        The GPU.
    needs
        The tenants.

    Returns
    -------
    Placement
        Exact: every valid set of instances has been considered. Tenants that have none are named with the reason.

    Examples
    --------
    >>> needs = [Need("train", 15 * 2**30, lambda sms: 108 / sms), Need("serve", 3 * 2**30, lambda sms: 1.0)]
    >>> made = place(FAMILIES["A100-40"], needs)
    >>> {name: (one.profile.name, one.start) for name, one in made.placed.items()}
    {'train': ('4g.20gb', 0), 'serve': ('1g.5gb', 6)}
    """
    if len({need.tenant for need in needs}) < len(needs):
        raise ValueError("two tenants have the same name, so their instances could be confused")
    fits = [holds(family, need) for need in needs]
    # By what is free and how many are placed: no more of a beginning matters to what follows it than the worst and the
    # sum of its costs. Equals are told apart by the order of what was tried: profiles as they are listed, none last.
    states: dict[tuple[int, int, int], list[_Beginning]] = {(0, family.compute_slices, 0): [_Beginning(0.0, 0.0, 0)]}
    for need, fit in zip(needs, fits, strict=True):
        spots = [
            (Placed(profile, start), need.cost(profile.sm_count or 0)) for profile in fit for start in profile.starts
        ]
        grown: dict[tuple[int, int, int], list[_Beginning]] = {}
        for (taken, slices, count), beginnings in states.items():
            here: list[tuple[Placed | None, float, tuple[int, int, int], int]]
            here = [(None, 0.0, (taken, slices, count), len(spots))]
            here += [
                (one, cost, (taken | one.mask, slices - one.profile.slices, count + 1), number)
                for number, (one, cost) in enumerate(spots)
                if one.profile.slices <= slices and not taken & one.mask
            ]
            for one, cost, state, number in here:
                grown.setdefault(state, []).extend(
                    _Beginning(max(b.worst, cost), b.total + cost, b.order * (len(spots) + 1) + number, b, one)
                    for b in beginnings
                )
        states = {state: _worth_keeping(beginnings) for state, beginnings in grown.items()}
        ordered = sorted((b for beginnings in states.values() for b in beginnings), key=lambda b: b.order)
        for order, beginning in enumerate(ordered):
            beginning.order = order
    if not needs:
        return Placement(family, {})

    def rank(taken: int, slices: int, count: int, made: _Beginning) -> tuple[float, ...]:
        left = family.memory_slices - taken.bit_count()
        further = sum(
            p.slices <= slices and any(not taken & Placed(p, start).mask for start in p.starts) for p in family.profiles
        )
        return (len(needs) - count, made.worst, made.total, -left, -further, made.order)

    rank_of_best, made = min(
        ((rank(*state, one), one) for state, ends in states.items() for one in ends), key=lambda found: found[0]
    )
    instances = made.instances()
    placed = {need.tenant: one for need, one in zip(needs, instances, strict=True) if one is not None}
    unplaced = {}
    for need, one, fit in zip(needs, instances, fits, strict=True):
        if one is None:
            largest = max(family.memory_bytes(p) for p in family.profiles) / 2**30
            unplaced[need.tenant] = (
                "no instance is left for it"
                if fit
                else f"it used {(need.memory_bytes or 0) / 2**30:.1f} GiB, the largest instance has {largest:.1f} GiB"
            )
    return Placement(family, placed, unplaced, rank_of_best[1], rank_of_best[2])


def instance_sets(family: Family) -> Iterator[tuple[Placed, ...]]:
    """Every set of instances that can exist together, the empty one included.

    Examples
    --------
    >>> sum(1 for _ in instance_sets(FAMILIES["A30"]))
    26
    """
    spots = [Placed(profile, start) for profile in family.profiles for start in profile.starts]

    def grow(index: int, chosen: tuple[Placed, ...], taken: int, slices: int) -> Iterator[tuple[Placed, ...]]:
        yield chosen
        for n in range(index, len(spots)):
            spot = spots[n]
            if not taken & spot.mask and spot.profile.slices <= slices:
                yield from grow(n + 1, (*chosen, spot), taken | spot.mask, slices - spot.profile.slices)

    yield from grow(0, (), 0, family.compute_slices)
