"""`pyanalyze interference`: slowdown of each tenant, its aggressors and its causes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.cli._shared import answer, csv_of, table_width, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.results.interference import Estimate, LatencyPercentile
    from pyanalyze.session import Session

SECTIONS = ("interference",)
#: Launch configurations shown.
TOP = 12


@verb("interference", ("table", "json", "csv"), slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Measure the slowdown of each tenant, with causes and aggressors; --baseline gives solo recordings."""
    if fmt == "csv":
        return csv_of(rows(session), COLUMNS)
    text = answer(session, "interference", SECTIONS, fmt)
    # Kernels of groups of work stand in the section: beside one group, not beside any.
    return text if fmt == "json" or session.tables.groups is not None else text + _kernels(session)


def _kernels(session: Session) -> str:
    """The same kernels solo and shared: those with most time, as lines."""
    import polars as pl

    from pyanalyze.analysis.interference import kernels_solo
    from pyanalyze.report.blocks import Block, Cell, Column, Para, Table
    from pyanalyze.report.text import section_text
    from pyanalyze.text.escape import visible
    from pyanalyze.text.format import duration
    from pyanalyze.text.format import names as list_of

    table = kernels_solo(session.tables, session.interference()).with_columns(pl.col("name", "against").cast(pl.String))
    known = table.filter(pl.col("ratio").is_not_null()).sort("total_ns", descending=True)
    # Of a tenant with a baseline, what ran solo in this capture is no second comparison.
    measured = table.filter(against="baseline")["tenant_id"].unique().implode()
    table = table.filter((pl.col("against") == "baseline") | ~pl.col("tenant_id").is_in(measured))
    few = table.filter(pl.col("ratio").is_null())["tenant_id"].value_counts(sort=True)
    excluded, overhead = int(table["excluded"].sum()), int(table["excluded_overhead"].sum())
    devices = session.tenants["device_id"].unique()
    names = {number: name for device_id in devices for number, name in session.labels(device_id).items()}
    cut = " or were cut by the window" if session.selection.start_ns is not None else ""
    rows = tuple(
        (
            Cell(visible(names[row["tenant_id"]]), tone="code"),
            Cell(visible((row["name"] or "unnamed").partition("(")[0], None), tone="code"),
            Cell(f"{row['ratio']:.3f}x"),
            Cell("-" if row["ratio_low"] is None else f"{row['ratio_low']:.3f}-{row['ratio_high']:.3f}"),
            Cell(duration(row["solo_median_ns"])),
            Cell(duration(row["median_ns"])),
            Cell(f"{row['n_solo']} {'solo' if row['against'] == 'solo' else 'in baseline'} / {row['n']}"),
            Cell(f"{row['effect']:+.2f}"),
        )
        for row in known.head(TOP).iter_rows(named=True)
    )
    columns = (
        Column("Tenant"),
        Column("Kernel"),
        Column("Slowdown", "ratio of geometric means", True),
        Column("95 % CI", numeric=True),
        Column("Solo", "median", True),
        Column("Shared", "median", True),
        Column("n", numeric=True),
        Column("Effect size", "Cliff's delta, 0 is none", True, minor=True),
    )
    blocks: list[Block] = [Table(columns, rows)] if rows else []
    if known.height > TOP:
        blocks.append(Para(f"{known.height - TOP} more: pyanalyze export, table slowdowns."))
    said = []
    if few.height:
        each = [f"{count} of {visible(names[tenant])}" for tenant, count in few.iter_rows()]
        solo = "" if few["tenant_id"].is_in(measured).all() else ", and no baseline has them"
        said.append(
            f"Launch configurations without a ratio: {list_of(each)}. Too few of their launches ran wholly shared or "
            f"wholly solo{solo}."
        )
    if excluded:
        said.append(f"First launches and launches that only waited for others are left out{cut}: {excluded} in all.")
    if rows:
        said.append("Ratios are of geometric means, which medians need not have.")
    if overhead:
        said.append(f"Of these, {overhead} held overhead of the profiler or of loading code.")
    if not rows and not said:
        return ""
    blocks.append(Para(" ".join(said)))
    return "\n" + section_text("Resident time of the same kernels, solo and shared", blocks, table_width())


#: Percentiles in the CSV, and its columns.
_PERCENTILES = (50, 95, 99)
COLUMNS = (
    "device_id", "tenant_id", "tenant", "work", "measure", "slowdown", "low", "high", "n", "basis", "baseline",
    *(f"p{part}_{run}_ns" for part in _PERCENTILES for run in ("shared", "solo")), "why_missing",
)  # fmt: skip


def rows(session: Session) -> list[dict[str, Any]]:
    """One row per tenant, measure and unit of work."""
    out = []
    for device in session.interference():
        for tenant in device.tenants:
            slow = tenant.slowdown
            known: list[tuple[str, str, Estimate | None, Sequence[LatencyPercentile]]] = [
                ("", "elapsed", slow.elapsed, ()),
                ("", "latency", slow.latency, tenant.latency_percentiles),
                ("", "resident", slow.resident, ()),
                *((units.name, "latency", units.latency, units.latency_percentiles) for units in tenant.units),
            ]
            for work, measure, estimate, tails in known:
                by_part = {tail.percentile: tail for tail in tails}
                row: dict[str, Any] = {
                    "device_id": device.device_id,
                    "tenant_id": tenant.tenant_id,
                    "tenant": tenant.name,
                    "work": work,
                    "measure": measure,
                    "slowdown": None if estimate is None else estimate.value,
                    "low": None if estimate is None else estimate.low,
                    "high": None if estimate is None else estimate.high,
                    "n": None if estimate is None else estimate.n,
                    "basis": None if estimate is None else estimate.basis,
                    "baseline": tenant.baseline,
                }
                for part in _PERCENTILES:
                    tail = by_part.get(part)
                    row[f"p{part}_shared_ns"] = None if tail is None else tail.shared_ns
                    row[f"p{part}_solo_ns"] = None if tail is None else tail.solo_ns
                row["why_missing"] = tenant.missing if estimate is None else None
                out.append(row)
    return out
