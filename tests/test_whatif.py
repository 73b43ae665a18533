"""What the model says of other ways to share, against simulations that ran them (which share no code with it)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from build_fixtures import EPOCH_NS, MS, US, kernel, numbered
from export import Capture, Gpu
from simulation import KernelSpec, Simulation, Tenant

import pyanalyze
from pyanalyze.advice import SideBySide, advise
from pyanalyze.sharing import Case, judge


def rounds(specs: list[KernelSpec], n: int, *, ahead: int, think_ns: int) -> Any:
    """The same work however long it takes: `n` rounds of `specs`, `ahead` of them queued."""

    def program(_tenant: Tenant, _rng: Any) -> Any:
        yield ("until", 10 * MS)
        pending: list[Any] = []
        for _ in range(n):
            operations = []
            for spec in specs:
                operations.append((yield ("launch", 13, spec)))
            pending.append(operations)
            if len(pending) > ahead:
                yield ("wait", pending.pop(0))
            if think_ns:
                yield ("sleep", think_ns)
        for operations in pending:
            yield ("wait", operations)

    return program


def tenants() -> list[Tenant]:
    """One that keeps the device busy and one that thinks 3 ms after every 2 ms of work, for about as long."""
    train = rounds([kernel("train", 1_500 * US), kernel("update", 500 * US)], 150, ahead=2, think_ns=0)
    serve = rounds([kernel("serve", 2_000 * US)], 60, ahead=0, think_ns=3 * MS)
    return [Tenant("train", 41_001, 801, train), Tenant("serve", 41_002, 802, serve, group=1)]


def elapsed_ns(tenant: Tenant) -> int:
    return max(op.end for op in tenant.kernels()) - min(op.start for op in tenant.kernels())


def simulated(which: list[Tenant], path: Path) -> list[int]:
    simulation = Simulation(which, seed=5, end_ns=2_000 * MS).run()
    processes = tuple((tenant.pid, tenant.name) for tenant in which)
    Capture(Gpu(), simulation.end_ns, EPOCH_NS, which, processes, numbered(simulation.records)).write(path)
    return [elapsed_ns(tenant) for tenant in which]


def modelled(path: Path, scenario: str) -> list[dict[str, Any]]:
    rows = pyanalyze.load(path).whatif().filter(pl.col("scenario") == scenario)
    return list(rows.sort("tenant_id").iter_rows(named=True))


def test_from_turns_to_alone(tmp_path: Path) -> None:
    """A capture of both by turns says what each takes alone; two more simulations know it."""
    together = simulated(tenants(), tmp_path / "both.sqlite")
    alone = [simulated([tenant], tmp_path / f"{tenant.name}.sqlite")[0] for tenant in tenants()]
    found = modelled(tmp_path / "both.sqlite", "exclusive")
    again = modelled(tmp_path / "both.sqlite", "time-sliced")
    # One that only works is known well. Of one that thinks, nothing says how much of the other's turn before its next
    # request it waited: the estimate takes all of it for waiting, so alone it comes out too short.
    for row, turns, truth, shared, error in zip(found, again, alone, together, (0.01, 0.25), strict=True):
        # The simulation draws every kernel's length: two runs differ by less than 0.2 %.
        assert row["elapsed_low_ns"] <= 1.002 * truth
        assert truth <= 1.002 * row["elapsed_high_ns"]
        assert row["elapsed_ns"] == pytest.approx(truth, rel=error)
        assert turns["elapsed_low_ns"] <= shared <= turns["elapsed_high_ns"]
        assert turns["elapsed_ns"] == pytest.approx(shared, rel=error)
        assert turns["slowdown_low"] <= 1.002 * shared / truth <= 1.002 * turns["slowdown_high"]


def test_the_demo_does_not_contradict_its_books(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite")
    truth = json.loads((fixtures / "demo-time-slicing.truth.json").read_text(encoding="utf-8"))
    rows = session.whatif().filter(pl.col("scenario") == "exclusive").join(session.tenants, on="tenant_id")
    for tenant in truth["tenants"][:2]:
        row = rows.row(by_predicate=pl.col("pid") == tenant["pid"], named=True)
        # Four kernels a round; the first three are a chain, the fourth runs beside them.
        works = [kernel["work_ns"] for kernel in tenant["kernels"].values()]
        assert row["elapsed_low_ns"] == pytest.approx(sum(works[:3]), rel=0.02)
        assert row["busy_ns"] == pytest.approx(tenant["charged_ns"], rel=0.05)
        if tenant["name"] == "A":
            # Alone it took 48 rounds of its 119 in 200 ms; between its two phases it had nothing to do for 120 ms.
            assert row["elapsed_ns"] == pytest.approx(119 / 48 * 200 * MS + 120 * MS, rel=0.05)
    shared = session.whatif().filter(pl.col("scenario") != "exclusive")
    assert shared["elapsed_ns"].null_count() == shared.height == 6, "what the third one ran is not known"
    assert all("not traced" in detail for detail in shared["detail"])


def test_slices_that_cannot_be_are_refused(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / "exclusive.sqlite")
    with pytest.raises(ValueError, match="slice of 1000 ns or more"):
        session.whatif(slice_ns=0)


def test_the_advice_shows_what_was_modelled(tmp_path: Path) -> None:
    simulated(tenants(), tmp_path / "both.sqlite")
    device = pyanalyze.load(tmp_path / "both.sqlite").report().devices[0]
    action = next((a for a in device.advice if "MPS" in a.action), None)
    verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    rows = [SideBySide("train", 1.25, 1.0, 1.5)]
    turns = dataclasses.replace(verdict, mode="time-slicing")
    said = advise(turns, [], overhead_fraction=None, warps=0.2, compute_capability=(8, 0), side_by_side=rows)[0]
    assert said.expected == "modelled, not a promise: side by side, against each alone, train 1.25x"
    assert said.bound is not None
    assert said.bound.startswith("modelled bound: train 1.00x to 1.50x")
    assert action is None or (action.expected or "").startswith("modelled")
