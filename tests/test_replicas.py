"""Forecasts of replicas: the curve through measured throughput, and signs of MPS against time-slicing."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import math
import re
import shutil
import sqlite3
import statistics
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import generate
import polars as pl
import pytest
from command_line import run
from exports import launched_after_each_other
from shared_sessions import load

import pyanalyze
from pyanalyze.analysis.advice import copies as copies_module
from pyanalyze.analysis.advice import mig
from pyanalyze.analysis.advice.copies import Recorded, instances_of
from pyanalyze.analysis.advice.curve import Measured, Place, fit
from pyanalyze.analysis.advice.fitted import BLOCKS
from pyanalyze.analysis.advice.forecast import Assignment, SharingConfig, alone, forecast
from pyanalyze.analysis.advice.pairs import CONFIDENT, Pair, forecast_sign
from pyanalyze.analysis.advice.replicas import forecast_replicas
from pyanalyze.errors import UsageError
from pyanalyze.inputs.ncu import CountedKernel, Resource, read_ncu
from pyanalyze.report.replicas import replicas_text
from pyanalyze.results.replicas import Copies, Estimate, Knowledge

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPTURES = Path(__file__).resolve().parents[1] / "fixtures" / "captures"

SIZES = (1, 2, 4)
BATCHES = (1, 2, 4, 8, 16, 32)


def machine(host: float, latency: float, work: float, place: Place) -> float:
    """Throughput of a copy by hand: the host's time, or the device's, whichever is slower; copies queue for `work`."""
    device = latency + place.copies * work * place.batch / place.compute_slices
    return place.batch / max(host, device)


def solo(host: float, latency: float, work: float) -> Measured:
    places = [Place(size, size, batch) for size, batch in itertools.product(SIZES, BATCHES)]
    return Measured({place: machine(host, latency, work, place) for place in places})


def test_copies_of_a_host_bound_program_lose_nothing() -> None:
    # 10 ms of host beside 0.1 ms of device: five copies ask for 0.5 ms of each 10.
    demand = solo(0.010, 0.0, 0.0001)
    five = fit(demand).forecast(Place(1, 1, 1, 5))
    alone = demand.per_copy[Place(1, 1, 1)]
    assert five.per_copy.value == pytest.approx(alone, rel=0.05)
    assert five.throughput.value == pytest.approx(5 * alone, rel=0.05)


def test_copies_of_a_device_bound_program_gain_nothing() -> None:
    # 32 items x 2 ms of device beside 1 ms of host.
    demand = solo(0.001, 0.0, 0.002)
    four = fit(demand).forecast(Place(1, 1, 32, 4))
    alone = demand.per_copy[Place(1, 1, 32)]
    assert four.throughput.value == pytest.approx(alone, rel=0.08)


def test_latency_of_a_copy_is_filled_by_the_others() -> None:
    # 10 ms that no larger instance shortens and 10 ms that copies queue for: two take 30 ms for what one takes 20 for.
    demand = solo(0.0005, 0.010, 0.010 / 32)
    two = fit(demand).forecast(Place(1, 1, 32, 2))
    assert two.per_copy.value == pytest.approx(32 / 0.030, rel=0.08)


def test_one_size_says_what_others_do() -> None:
    # Of one size only the number of copies tells latency from work.
    places = [Place(2, 2, batch, copies) for batch in BATCHES for copies in (1, 2, 3, 4)]
    demand = Measured({place: machine(0.004, 0.0, 0.002, place) for place in places})
    asked = [Place(1, 1, 8), Place(4, 4, 32), Place(4, 4, 1)]
    found = forecast_replicas(demand, asked)
    for place, one in zip(asked, found, strict=True):
        assert one.per_copy.value == pytest.approx(machine(0.004, 0.0, 0.002, place), rel=0.12)
        assert not one.measured


def test_a_measured_place_is_scaled_to_its_measurement() -> None:
    demand = solo(0.004, 0.0, 0.002)
    odd = dict(demand.per_copy)
    odd[Place(2, 2, 8)] *= 1.2
    one = fit(Measured(odd)).forecast(Place(2, 2, 8))
    assert one.measured
    assert one.per_copy.value == pytest.approx(odd[Place(2, 2, 8)])


def test_intervals_grow_with_copies_and_without_a_measurement() -> None:
    curve = fit(solo(0.004, 0.0, 0.002))

    def width(place: Place) -> float:
        one = curve.forecast(place).per_copy
        return one.high / one.low

    assert width(Place(2, 2, 8, 2)) < width(Place(2, 2, 8, 8)) < width(Place(2, 2, 8, 16))
    assert width(Place(2, 2, 8, 2)) < width(Place(3, 4, 8, 2))


@pytest.mark.parametrize(
    "per_copy",
    [{}, {Place(1, 1, 1): 1.0, Place(1, 1, 2): 2.0}, {Place(1, 1, b, 2): 1.0 for b in (1, 2, 4)}],
)
def test_too_little_is_an_error(per_copy: dict[Place, float]) -> None:
    with pytest.raises(UsageError, match="measurements"):
        fit(Measured(per_copy))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_did_not_run_is_no_throughput(value: float) -> None:
    per_copy = {Place(1, 1, b): 1.0 for b in (1, 2, 4)}
    with pytest.raises(UsageError, match="not above 0"):
        fit(Measured({**per_copy, Place(1, 1, 8): value}))


MEASURED = [
    Pair("a", "long", "mean", 2.0, 4.0),
    Pair("b", "long", "mean", 2.2, 4.4),
    Pair("c", "long", "mean", 2.1, 4.1),
    Pair("a", "short", "mean", 2.0, 1.3),
    Pair("b", "short", "mean", 2.2, 1.5),
    Pair("c", "short", "mean", 2.1, 1.4),
]


@pytest.mark.parametrize(("other", "sign", "ratio"), [("long", "mps-slower", 2.0), ("short", "mps-faster", 0.67)])
def test_the_other_tenant_decides(other: str, sign: str, ratio: float) -> None:
    found = forecast_sign(Pair("d", other, "mean", 2.0), MEASURED)
    assert (found.sign, found.n, found.known) == (sign, 3, Knowledge.OTHER_TENANT)
    assert found.ratio == pytest.approx(ratio, abs=0.02)
    assert found.confidence >= CONFIDENT


def test_an_unknown_other_tenant_cannot_be_told() -> None:
    found = forecast_sign(Pair("d", "unknown", "mean", 2.0), MEASURED)
    assert (found.sign, found.known) == ("cannot-tell", Knowledge.ANY_PAIR)
    assert found.low < 1 < found.high


def test_a_run_under_mps_tells_what_time_slicing_would_do() -> None:
    for mps, sign in ((5.0, "mps-slower"), (1.05, "mps-faster"), (2.2, "cannot-tell")):
        found = forecast_sign(Pair("d", "unknown", "mean", mps=mps), MEASURED)
        assert (found.sign, found.known) == (sign, Knowledge.MPS_RUN), mps


def test_the_pair_itself_is_no_evidence() -> None:
    own = Pair("a", "long", "mean", 2.0, 4.0)
    assert forecast_sign(Pair("a", "long", "mean", 2.0), [own]).n == 0


def test_another_quantity_is_no_evidence() -> None:
    assert forecast_sign(Pair("d", "long", "p99", 2.0), MEASURED).n == 0


def test_two_tenants_are_few() -> None:
    # One measurement of the other tenant, and no spread: a sign needs a large effect.
    (one,) = [pair for pair in MEASURED if (pair.tenant, pair.other) == ("a", "short")]
    assert forecast_sign(Pair("d", "short", "p99", 2.0), [Pair("a", "short", "p99", 2.0, 1.3)]).sign == "cannot-tell"
    assert forecast_sign(Pair("d", "short", "mean", 2.0), [one]).confidence < 0.98


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "bench"))
    import replicas

    yield replicas
    sys.modules.pop("replicas", None)


def test_published_throughput(corpus: Path, bench: Any) -> None:
    data, copied = bench.throughputs(corpus / "tables" / "parvagpu")
    assert (len(data), copied) == (6, 7)
    for test, most in ((bench.from_one_copy, 0.08), (bench.from_one_size, 0.08)):
        rows = [row for model, of in data.items() for row in test(model, of, bench.CURVE)]
        errors = [abs(row.value / row.measured - 1) for row in rows]
        assert statistics.median(errors) <= most
        assert bench.quantile(errors, 0.95) <= 0.25
        assert statistics.mean(row.holds for row in rows) >= 0.93


def test_no_stated_sign_of_a_measured_pair_is_wrong(corpus: Path, bench: Any) -> None:
    table = corpus / "tables" / "tally_a100_pairs.csv"
    for quantity in bench.QUANTITIES:
        pairs = bench.pairs_of(table, quantity)
        for pair in pairs:
            for asked in (
                Pair(pair.tenant, pair.other, quantity, pair.time_sliced),
                Pair(pair.tenant, pair.other, quantity, mps=pair.mps),
            ):
                sign = forecast_replicas(asked, pairs).sign
                truth = "mps-slower" if pair.mps > pair.time_sliced else "mps-faster"
                assert sign in {truth, "cannot-tell"}, (pair, asked)


def copies_of(name: str, counts: list[int | dict[str, int]], **asked: Any) -> Any:
    (advice,) = load(CAPTURES / f"{name}.sqlite").replicas(counts, **asked)
    return advice


def option(advice: Any, copies: int, name: str) -> Any:
    return next(one for one in advice.options if (one.copies, one.name) == (copies, name))


def test_a_capture_forecasts_its_copies() -> None:
    advice = copies_of("exclusive", [1, 2, 3])
    assert (advice.check.outcome, advice.latency_of) == ("passed", "unit")
    assert option(advice, 1, "solo").current
    for n in (1, 2, 3):
        # Its kernels fill the GPU: time-sliced copies gain nothing, and each takes n times as long and the switches.
        one = option(advice, n, "solo" if n == 1 else "time-slicing")
        assert one.throughput.value == pytest.approx(1.0, abs=0.1)
        assert one.tenants[0].slowdown.value == pytest.approx(n, rel=0.1)
        assert one.tenants[0].slowdown.low <= one.tenants[0].slowdown.value <= one.tenants[0].slowdown.high
    # No copy gets more from all of them than what it had, and nobody gains more than there are copies.
    for one in advice.options:
        assert one.throughput.value <= one.throughput.high <= 1.02 * one.copies
        assert sum(t.copies for t in one.tenants) == one.copies
    # The four provisioning strategies are candidates; where two of them are equal one is left.
    assert {"MPS", "MPS, 50 % each", "MPS, minimal caps", "time-slicing"} <= {
        one.name for one in advice.options if one.copies == 2
    }
    assert sum(one.recommended for one in advice.options) == 1
    assert advice.knee is not None


@pytest.mark.parametrize(("percentage", "recorded"), [(50, ["MPS, 50 % each"]), (40, [])])
def test_the_caps_that_were_recorded_are_marked_or_said_to_be_in_no_row(
    hardware: Path, tmp_path: Path, percentage: int, recorded: list[str]
) -> None:
    """Both clients were recorded under caps of 50 % (kit of fixtures/hardware); the strategies give none of 40 %."""
    path = tmp_path / "capped.sqlite"
    shutil.copy(hardware / "mps-50-50-A-B.sqlite", path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as db, db:
        query = (
            "UPDATE META_DATA_CAPTURE SET value = replace(value, 'PERCENTAGE=50', ?) WHERE value LIKE '%PERCENTAGE=50%'"
        )
        assert db.execute(query, (f"PERCENTAGE={percentage}",)).rowcount > 0
    (advice,) = pyanalyze.load(path).replicas([1])
    assert [one.name for one in advice.options if one.current] == recorded
    said = " ".join(replicas_text([advice]).split())
    assert ("The recorded configuration is none of the rows." in said) == (not recorded)


def test_an_objective_that_nothing_keeps_is_kept_by_nothing() -> None:
    strict = copies_of("exclusive", [1, 2], slo_p99_ms=0.001)
    assert {one.meets_slo for one in strict.options} == {"no"}
    assert not any(one.recommended for one in strict.options)
    loose = copies_of("exclusive", [1, 2], slo_p99_ms=1e6, objective="latency")
    assert {one.meets_slo for one in loose.options} == {"yes"}
    (best,) = [one for one in loose.options if one.recommended]
    assert best.copies == 1


def test_the_limit_that_no_configuration_keeps_is_named(corpus: Path) -> None:
    """Each program has one kernel, of 5.84 and 5.85 s in the capture: an objective of 50 ms fails without any copy."""
    path = corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite"
    with closing(sqlite3.connect(path)) as db:
        kernels = db.execute("SELECT end - start FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    assert all(5.8e9 < ns < 5.9e9 for (ns,) in kernels)
    (advice,) = load(path).replicas([4], slo_p99_ms=50)
    assert {one.memory_fits for one in advice.options} == {"cannot-tell"}
    page = " ".join(replicas_text([advice]).split())
    # Side by side their kernels took so long as well: solo they cannot take longer, but for what the replay misses.
    missed = re.search(
        r"Solo on the whole GPU it is missed already: program1 (\d\.\d+) s and program2 (\d\.\d+) s\.", page
    )
    assert missed is not None
    assert all(float(seconds) == pytest.approx(5.85, rel=0.05) for seconds in missed.groups())
    assert "No configuration meets the objective, a p99 latency of at most 50.00 ms." in page
    assert "fits in memory" not in page
    # The longest figure of the table is in the unit of the others, and no column has the median.
    assert "e+0" not in page
    assert "p50" not in page
    large = [one.model_copy(update={"memory_fits": "no"}) for one in advice.options]
    assert "No configuration fits in memory." in replicas_text([advice.model_copy(update={"options": large})])
    some = [*large[:1], *advice.options[1:]]
    page = " ".join(replicas_text([advice.model_copy(update={"options": some})]).split())
    assert "No configuration that fits in memory meets the objective" in page


def test_one_copy_of_each_is_forecast_as_advice_forecasts_the_recorded_pair(corpus: Path) -> None:
    """Two kernels of 5.85 s on SMs of their own: a solo run by chance shorter by 2 % made each copy slower by that."""
    session = load(corpus / "exports" / "concurrent-examples" / "mps_profile.nsys2025.sqlite")
    (advice,) = session.replicas([1])
    (pair,) = (one.options for one in session.advise())
    for name in ("MPS", "MPS, minimal caps", "time-slicing"):
        (there,) = (one for one in pair.options if one.name == name)
        for tenant, row in zip(option(advice, 2, name).tenants, there.forecasts, strict=True):
            assert tenant.slowdown.value == pytest.approx(row.slowdown, rel=0.015)


def test_nothing_is_said_of_forecasts_that_there_are_none_of(hardware: Path) -> None:
    (advice,) = load(hardware.parent / "h200" / "node-mps-A-B-beside-C").replicas([2])
    assert not advice.options
    assert [line for line in replicas_text([advice]).splitlines()[2:] if line] == [
        "* Not available: forecasts of copies. No kernels were traced"
    ]


def test_what_the_latencies_are_of_is_named() -> None:
    advice = copies_of("exclusive", [1])
    (one,) = advice.units
    (group, *_) = load(CAPTURES / "exclusive.sqlite").explain().result.groups
    assert (one.unit, one.source) == (group.name, group.source)
    page = " ".join(replicas_text([advice]).split())
    assert f"p50 and p99 are of units of work, {one.unit} (" in page


def test_copies_of_a_rank_are_not_said_to_be_ranks(tmp_path: Path) -> None:
    assert copies_of("exclusive", [1]).conditions == []
    path = tmp_path / "rank.sqlite"
    shutil.copy(CAPTURES / "exclusive.sqlite", path)
    with closing(sqlite3.connect(path)) as db, db:
        start, end, thread = db.execute(
            "SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1"
        ).fetchone()
        db.execute("INSERT INTO StringIds VALUES (999999, 'MPI_Allreduce')")
        db.execute("CREATE TABLE MPI_COLLECTIVES_EVENTS (start, end, globalTid, textId)")
        db.execute("INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (?, ?, ?, 999999)", (start, end, thread))
    (advice,) = pyanalyze.load(path).replicas([1])
    (doubt,) = advice.conditions
    assert doubt.condition == "mpi-rank"
    page = " ".join(replicas_text([advice]).split())
    said = "called MPI: the forecast is of independent copies, which do not wait for the other ranks of a job."
    assert f"{doubt.name} {said}" in page


@pytest.mark.parametrize(("kernels", "solo_us", "unsure"), [(10, 9 * 1060 + 1010, False), (5, 4 * 2050 + 1010, True)])
def test_a_host_that_looks_for_a_flag_waits_in_a_forecast(
    tmp_path: Path, kernels: int, solo_us: int, unsure: bool
) -> None:
    """Ten times 50 us after the end of the kernel before: solo that is 1000 us after its launch, and so all is earlier.

    Four times that may be chance. The host is then taken to be busy, and what is forecast is no more than a bound.
    """
    session = pyanalyze.load(launched_after_each_other(tmp_path / "flag.sqlite", kernels, 2050))
    tenant = session.tenants.row(by_predicate=pl.col("pid") == 7, named=True)["tenant_id"]
    verdict = session.classify()[0]
    (row,) = forecast(session.tables, 0, [alone(108, tenant)], time_sliced=True).filter(basis="modelled").to_dicts()
    assert row["elapsed_ns"] == pytest.approx(solo_us * 1000, rel=0.02)
    assert row["unseen_waits"] == unsure
    advice = forecast_replicas(Recorded(session.tables, verdict), [{session.tables.labels(0)[tenant]: 3}])
    assert {t.at_least for one in advice.options for t in one.tenants} == {unsure}
    assert ("unseen-waits" in [one.condition for one in advice.conditions]) == unsure
    page = replicas_text([advice])
    assert ("at most" in page, "at least" in page) == (unsure, unsure)
    assert not (unsure and advice.certain)


def test_more_copies_than_a_server_takes_are_refused() -> None:
    with pytest.raises(UsageError, match="49 copies: from 1 to 48"):
        copies_of("exclusive", [49])
    with pytest.raises(UsageError, match="no tenant nobody"):
        copies_of("exclusive", [{"nobody": 1}])


DETAILS = """==PROF== Connected to process 4711 (/app/train)
epoch 1
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
{rows}"""


def details(path: Path, launches: list[tuple[str, dict[str, tuple[str, str]]]]) -> Path:
    """Write the details page as ncu does: one row a metric, without the columns of rules where none applies."""
    rows = [
        f'"{n}","4711","train","127.0.0.1","{name}","1","7","(256, 1, 1)","(40, 1, 1)","0","8.0","Section","{metric}",'
        f'"{unit}","{value}",'
        for n, (name, metrics) in enumerate(launches)
        for metric, (unit, value) in metrics.items()
    ]
    path.write_text(DETAILS.format(rows="\n".join(rows)))
    return path


def test_the_details_page_is_read(tmp_path: Path) -> None:
    launch = {
        "DRAM Throughput": ("%", "91.50"),
        "Memory Throughput": ("%", "93.10"),
        "L2 Cache Throughput": ("%", "40"),
        "L2 Hit Rate": ("%", "50.00"),
        "Duration": ("us", "1,204.50"),
        "Compute (SM) Throughput": ("%", "n/a"),
    }
    traffic = {"Memory Throughput": ("Tbyte/second", "1.4"), "Duration": ("msecond", "2")}
    first, second = read_ncu(details(tmp_path / "ncu.csv", [("add(float *)", launch), ("add(float *)", traffic)]))
    assert first == CountedKernel("add(float *)", 1_204_500, {Resource.DRAM: 0.915, Resource.L2: 0.4}, None, 0.5)
    # A percentage is no traffic, traffic is no percentage; and what is not in the file is not zero.
    assert second == CountedKernel("add(float *)", 2e6, {}, 1.4e12)


def test_the_raw_page_is_read(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text(
        '"ID","Process ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum.per_second",'
        '"dram__bytes_write.sum.per_second","lts__t_sector_hit_rate.pct",'
        '"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"\n'
        '"","","","us","Gbyte/s","Gbyte/second","%","%"\n'
        '"0","1","gemm","12.5","300","200","80","50"\n'
        '"1","1","copy","3.1","1,000","900","0","0"\n'
    )
    assert read_ncu(path) == (
        CountedKernel("gemm", 12_500, {Resource.TENSOR: 0.5}, 5e11, 0.8),
        CountedKernel("copy", 3_100, {Resource.TENSOR: 0.0}, 1.9e12, 0.0),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no table of Nsight Compute"),
        ("==ERROR== ERR_NVGPUCTRPERM\n", "no table of Nsight Compute"),
        (
            '"Kernel Name","Metric Name","Metric Unit","Metric Value"\n"k","Registers Per Thread","","8"\n',
            "no throughput",
        ),
        (
            '"Kernel Name","Metric Name","Metric Unit","Metric Value"\n"k","DRAM Throughput","%","nan"\n',
            "no throughput",
        ),
    ],
)
def test_files_without_counters_are_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_ncu(path)


def test_counted_kernels_slow_each_other_where_they_want_more_bandwidth_than_there_is(tmp_path: Path) -> None:
    # Names as another tool prints them: the same but for blanks.
    session = load(CAPTURES / "exclusive.sqlite")
    names = [name.replace(", ", ",") for name in session.kernels["name"].cast(str).unique().sort()]

    def four(percent: float, kernels: list[str], way: str = "MPS") -> tuple[float, list[str]]:
        launch = {"DRAM Throughput": ("%", f"{percent}"), "Duration": ("us", "10")}
        (advice,) = session.replicas([4], ncu=details(tmp_path / "ncu.csv", [(name, launch) for name in kernels]))
        return option(advice, 4, way).tenants[0].slowdown.value, [one.what for one in advice.missing]

    # With caps kernels of all four run beside each other; without, those that fill the SMs run one after another.
    assert four(95.0, names, "MPS, minimal caps")[0] > 1.1 * four(1.0, names, "MPS, minimal caps")[0]
    little, told = four(1.0, names)
    much, _ = four(95.0, names)
    assert much > 1.05 * little
    # Four copies that each want 0.95 of the bandwidth take 3.8 times as long and no more.
    assert much < 3.9
    assert not any(what.startswith("memory bandwidth") for what in told)
    # Kernels of other names say nothing of these.
    others, _ = four(95.0, ["somebody(float *)"])
    assert others == pytest.approx(little, rel=0.01)


def test_what_another_mode_does_to_each_tenant_is_said_and_where_it_is_not_known() -> None:
    def copies(name: str, low: float, value: float, high: float) -> Copies:
        estimate = Estimate(value=value, low=low, high=high)
        return Copies(
            tenant_id=ord(name), name=name, copies=1, slowdown=estimate, throughput=estimate, p50_ns=estimate.times(1e6),
            p99_ns=estimate.times(1e6),
        )  # fmt: skip

    advice = copies_of("exclusive", [2])
    first, *_ = advice.options
    shared = {"copies": 2, "percentages": [], "profiles": []}
    now = first.model_copy(
        update={
            **shared,
            "name": "time-slicing",
            "current": True,
            "tenants": [copies("a", 1.9, 2.0, 2.1), copies("b", 1.9, 2.0, 2.1), copies("c", 1.9, 2.0, 2.1)],
        }
    )
    then = first.model_copy(
        update={
            **shared,
            "name": "MPS",
            "current": False,
            "tenants": [copies("a", 2.5, 3.0, 4.0), copies("b", 0.9, 1.0, 1.1), copies("c", 2.0, 2.2, 2.4)],
        }
    )
    said = replicas_text([advice.model_copy(update={"options": [now, then]})]).replace("\n", " ")
    assert "MPS instead of time-slicing: a 1.50x slower (p99 1.50x slower), b 2.00x faster (p99 2.00x faster)" in said
    assert "Whether MPS instead of time-slicing is faster for c, the forecast cannot tell: intervals overlap." in said


def test_a_host_that_never_waited_might_wait_for_every_turn() -> None:
    # Seven programs of a slow host that launched without a call that waits: alternating, each gets a seventh at worst.
    folder = generate.built("streams-launch-bound", 1)
    session = load(folder / "streams-launch-bound.sqlite")
    (advice,) = session.replicas([7])
    sliced = option(advice, 7, "time-slicing").tenants[0].slowdown
    assert sliced.low <= 1 <= 7 <= sliced.high
    # One that does not wait loses nothing, one that does takes 7 times as long and the switches: either may be the case.
    assert math.sqrt(7) <= sliced.value <= 1.1 * math.sqrt(7)
    assert option(advice, 7, "MPS").tenants[0].slowdown.high < 2
    # So much may be lost that it is not the one to recommend.
    assert not option(advice, 7, "time-slicing").recommended


def test_traffic_that_no_bandwidth_explains_is_of_the_cache() -> None:
    # Two tenants of 0.8 of the bandwidth each took 2.4 times as long: 1.6 is bandwidth, 1.5 is traffic that L2 kept away.
    # At 2 hits for each miss a quarter of the hits is lost: the data of both fill 4 / 3 of L2.
    cache = copies_module._cache(1.5, 2, 2.0)
    assert cache.kept == pytest.approx(2 / 3)
    assert cache.hits_over_misses == pytest.approx(2.0)


def test_what_kernels_take_solo_is_known_from_outside_of_what_is_replayed() -> None:
    # One client works 7 ms before the other one, as two of 3,576 kernels in a thousand: there its kernels run solo. The
    # middle, which is replayed, shows them side by side only.
    folder = generate.built("mps", 601)
    truth = json.loads((folder / "mps.truth.json").read_text(encoding="utf-8"))
    session = load(folder / "mps.sqlite")
    (advice,) = session.replicas([1])
    assert advice.operations == copies_module.MOST_OPERATIONS < session.kernels.height
    assert advice.check.contention == pytest.approx(0.0, abs=0.01)
    ratio = {t["name"]: t["slowdown"]["elapsed"]["ratio"] for t in truth["tenants"] if t["slowdown"]}
    assert set(ratio.values()) == {1.0}
    for copies in option(advice, 2, "MPS").tenants:
        assert copies.slowdown.value == pytest.approx(1.0, abs=0.02)


def test_a_recorded_co_run_shows_how_uneven_blocks_are() -> None:
    # Kernels of two clients have no room for the last blocks of each other. Those are all even: they wait for a whole
    # kernel, where uneven ones would find room as others end.
    folder = generate.built("mps", 702)
    truth = json.loads((folder / "mps.truth.json").read_text(encoding="utf-8"))
    ratios = sorted(t["slowdown"]["elapsed"]["ratio"] for t in truth["tenants"] if t["slowdown"])
    (advice,) = load(folder / "mps.sqlite").replicas([1])
    found = sorted((copies.slowdown for copies in option(advice, 2, "MPS").tenants), key=lambda one: one.value)
    assert [one.value for one in found] == pytest.approx(ratios, rel=0.02)
    assert all(one.low <= ratio <= one.high for one, ratio in zip(found, ratios, strict=True))


@pytest.mark.parametrize("seed", [881, 882])
def test_clients_that_each_want_the_whole_bandwidth_are_forecast(seed: int) -> None:
    # There are SMs for both: what one loses to the other is bandwidth alone, and kernels take more than twice as long.
    folder = generate.built("mps-memory-bound", seed)
    truth = json.loads((folder / "mps-memory-bound.truth.json").read_text(encoding="utf-8"))
    ratios = {t["name"]: t["slowdown"]["elapsed"]["ratio"] for t in truth["tenants"] if t["slowdown"]}
    (advice,) = load(folder / "mps-memory-bound.sqlite").replicas([1])
    assert advice.check.elapsed_error == pytest.approx(0.0, abs=0.02)
    found = {copies.name: copies.slowdown for copies in option(advice, 2, "MPS").tenants}
    assert {name: one.value for name, one in found.items()} == pytest.approx(ratios, rel=0.05)
    assert all(one.low <= ratios[name] <= one.high for name, one in found.items())


def test_caps_that_overlap_may_keep_two_tenants_from_what_they_have_in_common() -> None:
    # 74 SMs each of 142 have 6 in common: who comes second has no more than 71 of its own on average.
    variant = copies_module._Variant(0.0, 0.0, 1, parted=True)
    capped = SharingConfig("x", (142,), tuple(Assignment(n, sms=74) for n in (0, 1)))
    assert [one.sms for one in copies_module._assumed(capped, variant, {}).assignments] == [71, 71]


def test_data_in_l2_may_be_mostly_of_one_tenant() -> None:
    # Of what two tenants keep of L2 together, 1.2 of it, one may keep twice as much as the other.
    variant = copies_module._Variant(0.0, 0.0, 1, cache=copies_module._Cache(0.6, 2.0), larger=1)
    halves = SharingConfig("x", (60, 60), tuple(Assignment(n, instance=n) for n in (0, 1)))
    found = copies_module._assumed(halves, variant, {})
    assert [one.cache for one in found.assignments] == pytest.approx([0.4, 0.8])


def test_a_program_without_work_in_the_middle_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    session = pyanalyze.load(CAPTURES / "mps.sqlite")
    assert session.analysis.representative(0).tables.replayed is None
    monkeypatch.setattr(copies_module.representative_window, "__defaults__", (1_000,))
    marked = session.analysis.representative(0).tables
    assert marked.replayed is not None
    assert marked.kernels.height == session.kernels.height
    monkeypatch.setattr(copies_module.representative_window, "__defaults__", (2,))
    assert session.analysis.representative(0).tables.kernels.height < 10


def test_traffic_that_grew_says_that_it_was_kept_away() -> None:
    # The data of each of two fit into L2, so half of both is missed at most: traffic that grew by three quarters had 1.5
    # hits for each miss, or more.
    assert copies_module._assumed_hits(1.75, 2) == pytest.approx((1.5, 2 * math.sqrt(1.5), 6.0))
    assert copies_module._cache(1.75, 2, 1.5).kept == pytest.approx(1.0)
    # A fifth more needs no more than 0.4, less than is assumed.
    assert copies_module._assumed_hits(1.2, 2) == copies_module.HITS_OVER_MISSES


def test_errors_that_do_not_depend_on_each_other_are_not_all_at_their_worst() -> None:
    def variant(*, counts: bool = True, anchored: bool = False, uneven: float = 0.0) -> Any:
        return copies_module._Variant(0.0, uneven, 1, counts=counts, anchored=anchored)

    # 3, 4 and 12 at right angles are 13; below the variants span nothing.
    one = copies_module._estimate([(2.0, variant()), (2 * math.exp(0.3), variant(counts=False))], 0.4, 1.2)
    assert (one.value, one.low, one.high) == pytest.approx((2.0, 2 * math.exp(-0.4), 2 * math.exp(1.3)))
    # Pauses end in one way or in the other: each may be the case, with all of the model's error.
    one = copies_module._estimate([(2.0, variant()), (4.0, variant(counts=False, anchored=True))], 0.1, 0.0)
    assert (one.value, one.low, one.high) == pytest.approx((2.0, 2 * math.exp(-0.1), 4 * math.exp(0.1)))
    # Blocks are strongly uneven, or they are not.
    strongly = variant(counts=False, uneven=BLOCKS.strongly)
    one = copies_module._estimate([(2.0, variant()), (1.0, strongly)], 0.1, 0.0)
    assert (one.value, one.low, one.high) == pytest.approx((2.0, math.exp(-0.1), 2 * math.exp(0.1)))


def test_blocks_are_taken_to_be_as_uneven_as_counted_kernels_show(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kernels of one wave: the part of the kernel's time that the mean block takes, as Nsight Compute counted it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "bench"))
    launches = importlib.import_module("launches")
    counted = launches.counted(corpus / "occupancy" / "nsight-compute" / "launches.csv").filter(
        pl.col("grid").is_between(16, pl.col("per_sm") * pl.col("sms")), pl.col("duration_ns") >= 100_000
    )
    assert (counted.height, counted["source"].n_unique()) == (106, 10)
    part = counted["measured"] * counted["sms"] / (counted["grid"] * counted["block_warps"])
    weight = counted.select(1 / pl.len().over("source").sqrt()).to_series()
    tenth, quarter, half = (launches.quantile(part.to_list(), weight.to_list(), q) for q in (0.1, 0.25, 0.5))
    # Blocks of `strongly` take 14 eighths of the mean at most, those of `uneven` 10.
    assert tenth == pytest.approx(8 / 14, abs=0.02)
    assert quarter == pytest.approx(8 / 10, abs=0.02)
    assert (8 / 8 + 8 / 10) / 2 <= half <= 1


def test_profiles_have_room_for_copies() -> None:
    a100 = mig.FAMILIES["A100-40"]
    for name, most in (("1g.5gb", 7), ("2g.10gb", 3), ("3g.20gb", 2), ("7g.40gb", 1)):
        assert len(instances_of(a100, a100.profile(name))) == most
        assert mig.valid(a100, instances_of(a100, a100.profile(name)))


def test_the_command_prints_text_json_and_csv() -> None:
    capture = str(CAPTURES / "exclusive.sqlite")
    shown = run("advise", capture, "--replicas", "1..2", "--slo", "p99=1s")
    assert shown.returncode == 0, shown.stderr
    assert "time-slicing" in shown.stdout
    assert "best" in shown.stdout
    made = run("advise", capture, "--replicas", "2", "-f", "json")
    assert json.loads(made.stdout)[0]["options"][0]["copies"] == 2
    made = run("advise", capture, "--replicas", "1..2", "-f", "html")
    assert made.stdout.startswith("<!doctype html>")
    # The front is drawn: the page holds the specification of the chart, and a picture of it for readers without scripts.
    assert "Throughput and latency of every configuration" in made.stdout
    assert "<svg" in made.stdout
    made = run("advise", capture, "--replicas", "1..2", "-f", "md")
    assert "| time-slicing |" in made.stdout
    made = run("advise", capture, "--replicas", "2", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(made.stdout)))
    assert {row["copies"] for row in rows} == {"2"}
    assert float(rows[0]["slowdown_low"]) <= float(rows[0]["slowdown_value"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--replicas", "0"],
        ["--replicas", "4..1"],
        ["--replicas", "1..100"],
        ["--replicas", "many"],
        ["--replicas", "2", "--slo", "p99=50"],
        ["--replicas", "2", "--slo", "p95=50ms"],
        ["--slo", "p99=50ms"],
        ["--ncu", str(CAPTURES / "exclusive.sqlite")],
        ["--replicas", "2", "--ncu", str(CAPTURES / "exclusive.sqlite")],
        ["-f", "csv"],
        ["-f", "html"],
    ],
)
def test_nonsense_is_wrong_usage(arguments: list[str]) -> None:
    made = run("advise", CAPTURES / "exclusive.sqlite", *arguments)
    assert made.returncode == 2, made.stderr
