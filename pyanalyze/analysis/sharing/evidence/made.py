"""How observations are made of facts and settings, with the query that repeats them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing import thresholds as t
from pyanalyze.analysis.sharing.facts import Case, Observation
from pyanalyze.analysis.sharing.queries import query, text_literal

if TYPE_CHECKING:
    from pyanalyze.vocabulary import Basis


#: Facts whose strongest intervals are those of another one.
EXAMPLES_OF = {
    "switches_between_tenants": "alternation_share",
    "co_busy_share": "co_busy_ns",
    "stream_overlap_share": "stream_overlap_ns",
    "inflation_ns": "inflated_share",
    "busy_share": "busy_ns",
}


#: What the rows of a fact are, where they are not kernels.
_N_OF = {
    "metric_outside_pct": "samples",
    "utilization_pct": "samples",
    "resident_share_top": "residency intervals",
    "resident_share_untraced": "residency intervals",
    "switches_between_tenants": "context switches",
    "traced_tenants": "tenants",
    "turn_ns": "times with the GPU",
}


def from_fact(case: Case, fact_name: str, name: str, detail: str, examples_of: str | None = None) -> Observation:
    """Make an observation of a fact, with the fact's strongest intervals."""
    fact = case.facts[fact_name]
    behind = case.facts.get(examples_of or EXAMPLES_OF.get(fact_name, fact_name), fact)
    return Observation(
        name,
        fact.value,
        fact.unit,
        fact.n,
        fact.basis,
        detail,
        query_of(case, name),
        behind.examples or fact.examples,
        n_of=_N_OF.get(fact_name, "kernels"),
    )


def query_of(case: Case, name: str) -> str | None:
    """Write the query on the export that shows the same; None: there is none."""
    slice_ns = case.fact("median_slice_ns")
    short_ns, bridge_ns = t.short_and_bridge_ns(slice_ns, len(case.tenants))
    literals = {"short_ns": str(short_ns), "bridge_ns": str(bridge_ns), "name": text_literal(case.name or "")}
    return query(name, case.tables, literals)


def plain(
    name: str,
    detail: str,
    basis: Basis = "configured",
    value: float | None = None,
    unit: str = "1",
    sql: str | None = None,
) -> Observation:
    """Make an observation that is a plain statement."""
    return Observation(name, value, unit, 1, basis, detail, sql)


def of_device(case: Case, name: str, detail: str) -> Observation:
    """What the device's name says; its number is that of its SMs."""
    sms = None if case.sm_count is None else float(case.sm_count)
    return plain(name, detail, "observed", sms, "SMs", query_of(case, name))
