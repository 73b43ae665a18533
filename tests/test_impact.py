"""Is sharing the cause, and which tenant is the victim? Every reason from hand-made devices."""

from __future__ import annotations

import itertools
import math
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest
import report_examples as examples

import pyanalyze
from pyanalyze.analysis.impact import ANSWERS, Cause, Impact, Reason, impact_of, latency_victim
from pyanalyze.analysis.interference.slowdown import TenantInterference
from pyanalyze.report.sentences.cause import cause_sentence, cause_text
from pyanalyze.report.sentences.lead import lead_sentences
from pyanalyze.report.sentences.slowdown import slowdown_text
from pyanalyze.results.interference import AddedLatency, Causes, Estimate, HostFinding, Slowdown
from pyanalyze.results.report import Device, Tenant
from pyanalyze.text.format import duration
from pyanalyze.vocabulary import Basis, Condition, Mode

if TYPE_CHECKING:
    from pathlib import Path


def at(value: float, low: float | None, high: float | None, basis: Basis = "observed") -> Estimate:
    return Estimate(value=value, low=low, high=high, n=50, basis=basis)


SLOWED, NOT_SLOWED, WIDE = at(2.0, 1.9, 2.1), at(1.01, 1.005, 1.015), at(1.5, 0.7, 3.2)


def slowdown(elapsed: Estimate | None, latency: Estimate | None = None, resident: Estimate | None = None) -> Slowdown:
    return Slowdown(elapsed=elapsed, latency=latency, resident=resident)


def causes(**parts: float | None) -> Causes:
    nothing: dict[str, float | None] = dict.fromkeys(Cause, 0.0)
    return Causes(**(nothing | parts), execution_split=None)


def tenants(*slowdowns: Slowdown, **values: Any) -> list[Tenant]:
    """Traced tenants that were resident all of their busy time, so that nothing tells of a loss."""
    found = []
    for number, one in enumerate(slowdowns):
        given = {"busy_ns": 100, "resident_ns": 100, "attributed_ns": 100, "slowdown": one} | (
            values if not number else {}
        )
        found.append(examples.tenant(number, f"t{number}", number, **given))
    return found


def device(
    found: list[Tenant], mode: Mode = Mode.TIME_SLICING, *, host: bool = False, condition: Condition | None = None
) -> Device:
    (whole,) = examples.time_sliced().devices
    finding = HostFinding(tenant_id=0, what="slow launches", detail="t0 waits", share=0.3)
    sharing = whole.sharing.model_copy(update={"mode": mode, "condition": condition})
    return whole.model_copy(update={"tenants": found, "sharing": sharing, "host": [finding] if host else []})


CASES = [
    (Reason.HOST, "no", device(tenants(slowdown(NOT_SLOWED), slowdown(NOT_SLOWED)), host=True)),
    (Reason.HOST, "no", device(tenants(slowdown(SLOWED)), Mode.EXCLUSIVE, host=True)),
    (Reason.HOST, "no", device(tenants(slowdown(None)), Mode.EXCLUSIVE, host=True)),
    (Reason.HOST_ONLY, "unknown", device(tenants(slowdown(None), slowdown(None)), host=True)),
    (Reason.SOLE_TENANT, "no", device(tenants(slowdown(None)), Mode.EXCLUSIVE)),
    (
        Reason.OTHERS_NOT_EXCLUDED,
        "unknown",
        device(tenants(slowdown(None)), Mode.EXCLUSIVE, condition=Condition.UNLESS_UNTRACED_TENANT),
    ),
    # A condition that leaves rarely active processes open only: then sharing is no cause, under that condition.
    (
        Reason.SOLE_TENANT,
        "no",
        device(tenants(slowdown(None)), Mode.EXCLUSIVE, condition=Condition.UNLESS_RARE_TENANT),
    ),
    (Reason.NOT_MEASURED, "unknown", device(tenants(slowdown(None), slowdown(None)))),
    (Reason.SOLE_TENANT_SLOWED, "no", device(tenants(slowdown(SLOWED)), Mode.EXCLUSIVE)),
    # Whatever the condition is, and whatever the host does: it names those that may have slowed it.
    *(
        (
            Reason.OTHERS_MAY_SLOW,
            "unknown",
            device(tenants(slowdown(SLOWED), causes=causes(queue=1.0)), mode, condition=condition, host=host),
        )
        for condition, mode, host in (
            (Condition.UNLESS_UNTRACED_TENANT, Mode.EXCLUSIVE, False),
            (Condition.UNLESS_MPS_OR_RARE_TENANT, Mode.EXCLUSIVE, True),
            (Condition.UNLESS_RARE_TENANT, Mode.MIG, False),
        )
    ),
    (Reason.OTHERS_UNKNOWN, "unknown", device(tenants(slowdown(NOT_SLOWED), slowdown(None)))),
    (Reason.EXCLUDED, "no", device(tenants(slowdown(at(1.012, 0.99, 1.015)), slowdown(NOT_SLOWED)))),
    (Reason.NOT_SHOWN, "unknown", device(tenants(slowdown(WIDE), slowdown(NOT_SLOWED)))),
    (Reason.NOT_SLOWED, "no", device(tenants(slowdown(NOT_SLOWED), slowdown(NOT_SLOWED)))),
    (Reason.SWITCHED_OUT, "yes", device(tenants(slowdown(SLOWED), slowdown(NOT_SLOWED), attributed_ns=40))),
    (Reason.CAUSES_UNKNOWN, "unknown", device(tenants(slowdown(SLOWED), slowdown(NOT_SLOWED)))),
    (
        Reason.NO_CAUSE,
        "unknown",
        device(tenants(slowdown(SLOWED), slowdown(None), causes=causes(**dict.fromkeys(Cause)))),
    ),
    (Reason.LAUNCH, "no", device(tenants(slowdown(SLOWED), slowdown(None), causes=causes(launch=0.9, queue=0.1)))),
    (Reason.UNEXPLAINED, "unknown", device(tenants(slowdown(SLOWED), slowdown(None), causes=causes(unexplained=1.0)))),
    (Reason.CAUSE, "yes", device(tenants(slowdown(SLOWED), slowdown(None), causes=causes(execution=0.6, queue=0.4)))),
]


@pytest.mark.parametrize(("reason", "answer", "given"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_a_reason_decides_the_answer(reason: Reason, answer: str, given: Device) -> None:
    found = impact_of(given)
    assert (found.reason, found.answer.value) == (reason, answer)
    # What is printed begins as the answer says.
    nothing_slow = reason in (Reason.EXCLUDED, Reason.NOT_SLOWED)
    said = "Sharing slows no tenant" if nothing_slow else f"Sharing is the cause: {answer}"
    assert cause_sentence(given).startswith(said)


@pytest.mark.parametrize(
    ("estimate", "reason"),
    [
        # Against a baseline from 1.02 on, without one from 1.03 on; both only with all of the interval above 1.
        (at(1.02, 1.001, 1.04), Reason.CAUSES_UNKNOWN),
        (at(1.0199, 1.001, 1.04), Reason.NOT_SLOWED),
        (at(1.03, 1.001, 1.04, "inferred"), Reason.CAUSES_UNKNOWN),
        (at(1.0299, 1.001, 1.04, "inferred"), Reason.NOT_SLOWED),
        (at(1.5, 1.0, 3.0), Reason.NOT_SHOWN),
        (at(1.5, 1.0001, 3.0), Reason.CAUSES_UNKNOWN),
        # An interval around 1: what it excludes counts, not its middle.
        (at(1.03, 0.99, 1.0499), Reason.EXCLUDED),
        (at(1.03, 0.99, 1.05), Reason.NOT_SHOWN),
        (at(1.0, 0.8, 1.3), Reason.NOT_SHOWN),
        (at(0.9, 0.85, 0.95), Reason.NOT_SLOWED),
        # Bounds on one side, or none.
        (at(1.8, 1.8, None, "inferred"), Reason.CAUSES_UNKNOWN),
        (at(1.01, 1.01, None, "inferred"), Reason.NOT_SHOWN),
        (at(1.01, None, 1.01, "inferred"), Reason.EXCLUDED),
        (at(1.4, None, 1.4, "inferred"), Reason.NOT_SHOWN),
        (at(1.4, None, None), Reason.NOT_SHOWN),
        (at(1.0, None, None), Reason.NOT_SHOWN),
    ],
)
def test_what_counts_as_slowed(estimate: Estimate, reason: Reason) -> None:
    given = device(tenants(slowdown(estimate), slowdown(at(0.5, 0.4, 0.6))))
    found = impact_of(given)
    assert found.reason == reason
    assert found.victim is not None
    assert found.victim.slowed is (reason == Reason.CAUSES_UNKNOWN)
    assert ("includes 1" in cause_sentence(given)) is (
        reason == Reason.NOT_SHOWN and None not in (estimate.low, estimate.high)
    )


def test_a_page_that_lists_causes_never_says_that_nobody_was_slowed() -> None:
    """Causes are listed of tenants that were slowed (`TenantInterference.slowed`); the answer asks the same."""
    some = [None, at(1.01, 1.001, 1.03), at(1.025, 1.01, 1.04), at(1.025, 1.01, 1.04, "inferred"), at(1.04, 1.02, 1.06),
            at(1.2, 1.1, 1.3), WIDE, at(2.0, None, None)]  # fmt: skip
    slowed_at_all = 0
    for one, two, three in itertools.product(some, repeat=3):
        mine = [slowdown(one, two), slowdown(three)]
        listed = [TenantInterference(n, "", cast("Any", s)).slowed for n, s in enumerate(mine)]
        victim = impact_of(device(tenants(*mine))).victim
        assert (victim is not None and victim.slowed) is any(listed)
        assert victim is None or not any(listed) or listed[victim.tenant.tenant_id]
        slowed_at_all += any(listed)
    assert 100 < slowed_at_all < len(some) ** 3


def test_every_reason_is_tried_and_has_an_answer() -> None:
    assert {reason for reason, _, _ in CASES} == set(Reason) == set(ANSWERS)


def test_the_victim_has_the_larger_of_elapsed_and_latency() -> None:
    found = impact_of(device(tenants(slowdown(SLOWED, at(1.2, 1.1, 1.3)), slowdown(None, at(3.0, 2.8, 3.1)))))
    assert found.victim is not None
    assert (found.victim.tenant.name, found.victim.kind, found.victim.estimate.value) == ("t1", "latency", 3.0)
    # Execution time counts only where neither of the two is known.
    found = impact_of(device(tenants(slowdown(NOT_SLOWED, None, at(5.0, 4.9, 5.1)), slowdown(None, None, SLOWED))))
    assert found.victim is not None
    assert (found.victim.tenant.name, found.victim.kind) == ("t1", "resident")


def test_the_cause_is_what_holds_up_the_head_of_a_queue() -> None:
    queued = causes(queue=0.9, launch=0.09, not_resident=0.01)
    found = impact_of(device(tenants(slowdown(SLOWED), slowdown(None), causes=queued)))
    assert found.victim is not None
    assert found.victim.top == (Cause.QUEUE, 0.9)
    roots = causes(queue=0.1, launch=0.09, not_resident=0.81)
    found = impact_of(device(tenants(slowdown(SLOWED), slowdown(None), causes=queued, root_causes=roots)))
    assert found.victim is not None
    assert (found.victim.top, found.answer) == ((Cause.NOT_RESIDENT, 0.81), "yes")
    assert cause_text(found.victim, Mode.TIME_SLICING) == "waiting for its time slice (81.0 % of the added latency)"


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"attributed_ns": 40}, 0.6),
        ({"attributed_ns": 100}, None),
        ({"attributed_ns": 40, "resident_ns": None}, None),
        ({"attributed_ns": None}, None),
        ({"attributed_ns": 0, "busy_ns": 0}, None),
    ],
)
def test_how_much_a_victim_was_switched_out(times: dict[str, int | None], expected: float | None) -> None:
    found: Impact = impact_of(device(tenants(slowdown(SLOWED), slowdown(None), **times)))
    assert found.victim is not None
    switched_out = found.victim.switched_out
    assert switched_out == expected or (
        switched_out is not None and expected is not None and math.isclose(switched_out, expected)
    )


def test_the_headline_counts_waits_of_a_latency_on_top_of_what_was_switched_out() -> None:
    """Of 100 ns in flight 60 were switched out: 2.5 times as long. A larger factor of the latency has waits as well."""
    for given, said in (
        (slowdown(at(5.0, 4.9, 5.1)), "in flight."),
        (slowdown(None, at(2.5, 2.4, 2.6)), "in flight."),
        # Less than 2 % of it: 1 - 2.5 / 2.55 and 1 - 2.5 / 2.56.
        (slowdown(None, at(2.55, 2.4, 2.6)), "in flight."),
        (slowdown(None, at(2.56, 2.4, 2.6)), "in flight; and waits before they started."),
    ):
        text = lead_sentences(device(tenants(given, slowdown(NOT_SLOWED), attributed_ns=40)))[0]
        assert f"Cause: switched out for 60.0 % of the time its kernels were {said}" in text


def test_the_larger_part_of_an_added_latency_leads() -> None:
    """Of 200 ns 120 were added: 60 while switched out of 100 in flight, and 60 before; of 300 ns it is 160 before."""
    parts = {"kernels": 4, "switched_out_ns": 60, "switched_out_kernels": 2, "saving_ns": 0}
    for shared_ns, before_ns, said in (
        (
            200,
            60,
            "switched out for 60.0 % of the time its kernels were in flight; waits before they started: 60 ns of the "
            "120 ns added.",
        ),
        (
            300,
            160,
            "its kernels waited 40 ns each (mean of 4) before they started: 160 ns of the 220 ns added; 60 ns more "
            "while switched out in flight (2 kernels).",
        ),
    ):
        added = AddedLatency(shared_ns=shared_ns, solo_ns=80, before_start_ns=before_ns, **parts)
        given = slowdown(None, at(shared_ns / 80, 2.4, 5.1))
        found = tenants(given, slowdown(NOT_SLOWED), attributed_ns=40, added_latency=added)
        assert lead_sentences(device(found))[0].endswith(f"Cause: {said}")


@pytest.mark.parametrize(
    ("attributed_ns", "reason"),
    # Of 100 ns in flight its context was resident for so many: at least 1.02 and 1.031 times as long.
    [(98, Reason.NOT_SHOWN), (97, Reason.SWITCHED_OUT), (100, Reason.NOT_SHOWN), (0, Reason.NOT_SHOWN)],
)
def test_one_long_kernel_has_no_interval_and_its_residency_tells(attributed_ns: int, reason: Reason) -> None:
    few = at(1.03 if attributed_ns == 97 else 1.01, None, None, "inferred")
    given = device(tenants(slowdown(None, few), slowdown(NOT_SLOWED), attributed_ns=attributed_ns))
    assert impact_of(given).reason == reason
    # That bounds how long its kernels took, not all of its time.
    given = device(tenants(slowdown(at(2.0, None, None)), slowdown(at(0.9, 0.8, 0.95)), attributed_ns=attributed_ns))
    assert impact_of(given).reason == Reason.NOT_SHOWN


def test_tenants_of_unknown_slowdown_are_named() -> None:
    found = impact_of(device(tenants(slowdown(NOT_SLOWED), slowdown(None), slowdown(None))))
    assert [tenant.name for tenant in found.unknown] == ["t1", "t2"]
    untraced = [t.model_copy(update={"busy_ns": None}) for t in tenants(slowdown(None), slowdown(NOT_SLOWED))]
    assert impact_of(device(untraced)).unknown == ()


def test_the_mean_that_was_added_follows_from_the_records_and_the_factor(hardware: Path) -> None:
    """Launch calls and ends of kernels, by SQL: the mean latency is solo + added, and that is the factor times solo."""
    path = hardware.parent / "h200" / "slices-copies-open_loop.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT avg(k."end" - r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r
            ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
            WHERE k.globalPid >> 24 & 0xFFFFFF = 1649"""
        ((mean_ns,),) = db.execute(query)
    (found,) = pyanalyze.load(path).report().devices
    tenant = next(one for one in found.tenants if one.pid == 1649)
    assert tenant.slowdown.latency is not None
    expected = mean_ns * (1 - 1 / tenant.slowdown.latency.value)
    assert tenant.added_latency_ns == pytest.approx(expected, rel=0.01)
    assert f"mean +{duration(tenant.added_latency_ns)}" in slowdown_text(found)


@pytest.mark.parametrize(
    ("elapsed", "latency", "lost", "is_victim"),
    [
        (at(1.25, 1.24, 1.26), at(3.9, 3.8, 4.0), None, True),
        # Bounds overlap: the elapsed time may have grown as much.
        (at(1.9, 1.7, 2.1), at(2.2, 2.0, 2.4), None, False),
        (at(3.0, 2.9, 3.1), at(2.0, 1.9, 2.1), None, False),
        (at(1.0, 1.0, 1.0), at(1.01, 1.005, 1.015), None, False),
        # Too few kernels for bounds: half of its busy time another context was resident, or nothing is known of that.
        (None, at(2.0, None, None), 0.5, True),
        (None, at(2.0, None, None), None, False),
    ],
)
def test_the_problem_is_a_latency_where_the_elapsed_time_does_not_show_it(
    elapsed: Estimate | None, latency: Estimate, lost: float | None, is_victim: bool
) -> None:
    slow = slowdown(elapsed, latency)
    assert latency_victim({7: (slow, lost), 8: (slowdown(NOT_SLOWED), None)}) == (7 if is_victim else None)
    attributed = {} if lost is None else {"attributed_ns": round(100 * (1 - lost))}
    victim = impact_of(device(tenants(slow, slowdown(NOT_SLOWED), **attributed))).victim
    assert victim is not None and victim.of_latency == is_victim
