"""Is sharing the cause, and which tenant is the victim? Every reason from hand-made devices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import report_examples as examples

from pyanalyze.analysis.impact import ANSWERS, Answer, Cause, Impact, Reason, impact_of
from pyanalyze.report.sentences import cause_sentence
from pyanalyze.results.interference import Causes, Estimate, HostFinding, Slowdown
from pyanalyze.results.report import Device, Tenant
from pyanalyze.vocabulary import Mode


def at(value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=50, basis="observed")


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
        given = {"busy_ns": 100, "resident_ns": 100, "charged_ns": 100, "slowdown": one} | (
            values if not number else {}
        )
        found.append(examples.tenant(number, f"t{number}", number, **given))
    return found


def device(found: list[Tenant], mode: Mode = Mode.TIME_SLICING, *, host: bool = False) -> Device:
    (whole,) = examples.time_sliced().devices
    finding = HostFinding(tenant_id=0, what="slow launches", detail="t0 waits", share=0.3)
    sharing = whole.sharing.model_copy(update={"mode": mode})
    return whole.model_copy(update={"tenants": found, "sharing": sharing, "host": [finding] if host else []})


CASES = [
    (Reason.HOST, "no", device(tenants(slowdown(NOT_SLOWED), slowdown(NOT_SLOWED)), host=True)),
    (Reason.HOST, "no", device(tenants(slowdown(SLOWED)), Mode.EXCLUSIVE, host=True)),
    (Reason.HOST, "no", device(tenants(slowdown(None)), Mode.EXCLUSIVE, host=True)),
    (Reason.HOST_ONLY, "unknown", device(tenants(slowdown(None), slowdown(None)), host=True)),
    (Reason.SOLE_TENANT, "no", device(tenants(slowdown(None)), Mode.EXCLUSIVE)),
    (Reason.NOT_MEASURED, "unknown", device(tenants(slowdown(None), slowdown(None)))),
    (Reason.SOLE_TENANT_SLOWED, "no", device(tenants(slowdown(SLOWED)), Mode.EXCLUSIVE)),
    (Reason.OTHERS_UNKNOWN, "unknown", device(tenants(slowdown(NOT_SLOWED), slowdown(None)))),
    (Reason.EXCLUDED, "no", device(tenants(slowdown(at(1.012, 0.99, 1.015)), slowdown(NOT_SLOWED)))),
    (Reason.NOT_SHOWN, "unknown", device(tenants(slowdown(WIDE), slowdown(NOT_SLOWED)))),
    (Reason.NOT_SLOWED, "no", device(tenants(slowdown(NOT_SLOWED), slowdown(NOT_SLOWED)))),
    (Reason.SWITCHED_OUT, "yes", device(tenants(slowdown(SLOWED), slowdown(NOT_SLOWED), charged_ns=40))),
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
    words = {Answer.YES: ("yes:",), Answer.NO: ("no:", "no neighbour is:", "mostly not:"), Answer.UNKNOWN: ("not ",)}
    assert cause_sentence(given).startswith(words[found.answer])


def test_every_reason_is_tried_and_has_an_answer() -> None:
    assert {reason for reason, _, _ in CASES} == set(Reason) == set(ANSWERS)


def test_the_victim_has_the_larger_of_elapsed_and_latency() -> None:
    found = impact_of(device(tenants(slowdown(SLOWED, at(1.2, 1.1, 1.3)), slowdown(None, at(3.0, 2.8, 3.1)))))
    assert found.victim is not None
    assert (found.victim.tenant.name, found.victim.kind, found.victim.estimate.value) == ("t1", "latency", 3.0)
    # Time at work counts only where neither of the two is known.
    found = impact_of(device(tenants(slowdown(NOT_SLOWED, None, at(5.0, 4.9, 5.1)), slowdown(None, None, SLOWED))))
    assert found.victim is not None
    assert (found.victim.tenant.name, found.victim.kind) == ("t1", "resident")


@pytest.mark.parametrize(
    ("parts", "first"),
    [
        ({"queue": 0.9, "launch": 0.1}, Cause.LAUNCH),
        ({"queue": 0.6, "not_resident": 0.3, "execution": 0.1}, Cause.NOT_RESIDENT),
        # A hundredth counts, less does not; what is not explained holds up nothing that has a name.
        ({"queue": 0.99, "switch": 0.01}, Cause.SWITCH),
        ({"queue": 0.991, "switch": 0.009}, None),
        ({"queue": 0.6, "unexplained": 0.4}, None),
        # Nothing is queued behind another part.
        ({"execution": 0.7, "queue": 0.3}, None),
    ],
)
def test_what_holds_up_the_head_of_a_queue(parts: dict[str, float], first: Cause | None) -> None:
    found = impact_of(device(tenants(slowdown(SLOWED), slowdown(None), causes=causes(**parts))))
    assert found.victim is not None
    assert found.victim.first == first
    name, part = max(parts.items(), key=lambda pair: pair[1])
    assert found.victim.top == (Cause(name), part)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"charged_ns": 40}, 0.6),
        ({"charged_ns": 100}, None),
        ({"charged_ns": 40, "resident_ns": None}, None),
        ({"charged_ns": None}, None),
        ({"charged_ns": 0, "busy_ns": 0}, None),
    ],
)
def test_how_much_a_victim_was_switched_out(times: dict[str, int | None], expected: float | None) -> None:
    found: Impact = impact_of(device(tenants(slowdown(SLOWED), slowdown(None), **times)))
    assert found.victim is not None
    switched_out = found.victim.switched_out
    assert switched_out == expected or (
        switched_out is not None and expected is not None and math.isclose(switched_out, expected)
    )


def test_tenants_of_unknown_slowdown_are_named() -> None:
    found = impact_of(device(tenants(slowdown(NOT_SLOWED), slowdown(None), slowdown(None))))
    assert [tenant.name for tenant in found.unknown] == ["t1", "t2"]
    untraced = [t.model_copy(update={"busy_ns": None}) for t in tenants(slowdown(None), slowdown(NOT_SLOWED))]
    assert impact_of(device(untraced)).unknown == ()
