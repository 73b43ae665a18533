"""The placement solver, against a search that tries every assignment without any cleverness."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pyanalyze.analysis.advice.mig import (
    FAMILIES,
    Family,
    Need,
    Placed,
    Placement,
    family_of,
    instance_sets,
    place,
    room,
    valid,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def by_brute_force(family: Family, needs: Sequence[Need]) -> tuple[int, float, float]:
    """Fewest unplaced tenants, then least worst, then least summed cost, over all assignments of all placements."""
    spots = [Placed(profile, start) for profile in family.profiles for start in profile.starts]
    best: tuple[int, float, float] | None = None
    for choice in itertools.product([None, *spots], repeat=len(needs)):
        placed = [one for one in choice if one is not None]
        if not valid(family, placed):
            continue
        pairs = [(need, one) for need, one in zip(needs, choice, strict=True) if one is not None]
        if any(n.memory_bytes and n.memory_bytes > family.memory_bytes(one.profile) for n, one in pairs):
            continue
        costs = [need.cost(one.profile.sm_count or 0) for need, one in pairs]
        found = (len(needs) - len(placed), max(costs, default=0.0), sum(costs))
        best = found if best is None else min(best, found)
    assert best is not None
    return best


def cost(wanted: int, sms: int) -> float:
    """Slowdown of a tenant that wants so many SMs, on fewer."""
    return max(1.0, wanted / sms)


@pytest.mark.parametrize("name", ["A30", "A100-40", "H100-80"])
def test_placements_are_as_good_as_any(name: str) -> None:
    family = FAMILIES[name]
    drawn = random.Random(7)
    for case in range(24 if name == "A30" else 9):
        needs = []
        for n in range(1 + case % (4 if name == "A30" else 3)):
            wanted = drawn.choice([8, 20, 40, 60, 90, family.sm_count])
            memory = drawn.choice([None, 1.0, 4.0, 9.0, 18.0, 30.0, 70.0])
            size = None if memory is None else int(memory * 2**30)
            needs.append(Need(f"t{n}", size, partial(cost, wanted)))
        made = place(family, needs)
        assert (len(made.unplaced), made.worst, made.total) == by_brute_force(family, needs)
        assert valid(family, list(made.placed.values()))
        assert set(made.placed) | set(made.unplaced) == {need.tenant for need in needs}


@pytest.mark.parametrize("name", ["A30", "A100-40", "H100-80"])
def test_every_valid_set_is_found(name: str) -> None:
    """All subsets of all placements, kept where they are valid, are what the enumeration yields."""
    family = FAMILIES[name]
    spots = [Placed(profile, start) for profile in family.profiles for start in profile.starts]
    subsets = 0
    for size in range(len(spots) + 1 if name == "A30" else 5):
        subsets += sum(valid(family, chosen) for chosen in itertools.combinations(spots, size))
    limit = len(spots) if name == "A30" else 4
    assert sum(len(chosen) <= limit for chosen in instance_sets(family)) == subsets


def test_the_published_numbers_of_instances_come_out() -> None:
    """How many of one profile fit, from NVIDIA's tables: A30 4/2/1, A100 and H100 7/4/3/2/1/1."""
    expected = {
        "A30": [4, 2, 1],
        "A100-40": [7, 4, 3, 2, 1, 1],
        "H100-80": [7, 4, 3, 2, 1, 1],
        "RTX PRO 6000": [4, 2, 1],
    }
    for name, numbers in expected.items():
        family = FAMILIES[name]
        found = [
            max(sum(one.profile == profile for one in chosen) for chosen in instance_sets(family))
            for profile in family.profiles
        ]
        assert found == numbers, name


def test_a_legal_mix_that_was_seen_in_the_wild() -> None:
    """1g at 2 and 3, 2g at 0, 3g at 4 (NVIDIA/DCGM issue 138)."""
    h100 = FAMILIES["H100-80"]
    mix = [Placed(h100.profile(p), s) for p, s in (("1g.10gb", 2), ("1g.10gb", 3), ("2g.20gb", 0), ("3g.40gb", 4))]
    assert valid(h100, mix)
    assert room(h100, mix) == ()


def test_tenants_that_fit_nowhere_are_named() -> None:
    needs = [Need("huge", 60 * 2**30, lambda _: 1.0), Need("small", 2**30, lambda _: 1.0)]
    made = place(FAMILIES["A100-40"], needs)
    assert list(made.placed) == ["small"]
    assert made.unplaced == {"huge": "it used 60.0 GiB, the largest instance has 38.0 GiB"}
    eight = place(FAMILIES["A100-40"], [Need(f"t{n}", None, lambda _: 1.0) for n in range(8)])
    assert len(eight.placed) == 7
    assert eight.unplaced == {"t7": "no instance is left for it"}
    assert eight.free_compute_slices == 0
    # A memory slice without a compute slice is not fragmented: no placement of the seven leaves both.
    assert eight.left == "1 of 8 memory slices and 0 of 7 compute slices are free; no further instance fits"
    # 3g.20gb at 0 and 1g.5gb at 4, 5 and 6 leave memory slice 7 and a compute slice: 1g.5gb begins at 0 to 6 only.
    a100 = FAMILIES["A100-40"]
    small = {f"t{start}": Placed(a100.profile("1g.5gb"), start) for start in (4, 5, 6)}
    apart = Placement(a100, {"large": Placed(a100.profile("3g.20gb"), 0), **small})
    assert apart.left == (
        "1 of 8 memory slices and 1 of 7 compute slices are free; no further instance fits (fragmentation)"
    )
    # An A30 has 4 slices of memory and of compute; 1g.6gb takes one of each, and the next larger profile two.
    two, three = (place(FAMILIES["A30"], [Need(f"t{n}", None, lambda _: 1.0) for n in range(k)]) for k in (2, 3))
    assert two.left.endswith("are free; one more instance fits: 1g.6gb or 2g.12gb")
    assert three.left == ("1 of 4 memory slices and 1 of 4 compute slices are free; one more instance fits: 1g.6gb")


@pytest.mark.parametrize(
    ("name", "gib", "family"),
    [
        ("NVIDIA A100-SXM4-80GB", 80, "A100-80"),
        ("NVIDIA A100-PCIE-40GB", 40, "A100-40"),
        ("NVIDIA H100 80GB HBM3", 80, "H100-80"),
        ("NVIDIA H100 PCIe", 80, None),
        ("NVIDIA H100 NVL", 94, "H100-94"),
        ("NVIDIA GH200 480GB", 96, "H100-96"),
        ("NVIDIA H200", 141, "H200-141"),
        ("NVIDIA A30", 24, "A30"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, "RTX PRO 6000"),
        ("NVIDIA GeForce RTX 4090", 24, None),
        (None, None, None),
    ],
)
def test_the_family_is_known_by_name_and_memory(name: str | None, gib: int | None, family: str | None) -> None:
    found = family_of(name, None if gib is None else gib * 2**30)
    assert (found.name if found else None) == family


def test_two_tenants_of_one_name_are_refused() -> None:
    """By name, one would be placed over the other."""
    with pytest.raises(ValueError, match="same name"):
        place(FAMILIES["A30"], [Need("a", None, lambda _: 1.0), Need("a", None, lambda _: 1.0)])
