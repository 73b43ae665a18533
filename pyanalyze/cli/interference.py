"""`pyanalyze interference`: who was slowed, by how much, by whom, through what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.results.interference import Estimate, Tail
    from pyanalyze.session import Session

SECTIONS = ("interference",)
#: Launch configurations shown.
TOP = 12


@verb("interference", ("table", "json", "csv"), slowdowns=True)
def command(session: Session, fmt: str) -> str:
    """Say who was slowed, by how much, through what and by whom; --baseline measures it against recordings alone."""
    if fmt == "csv":
        return csv_of(rows(session))
    text = answer(session, "interference", SECTIONS, fmt)
    return text if fmt == "json" else text + _kernels(session)


def _kernels(session: Session) -> str:
    """The same kernels alone and in company: those with most time, as lines."""
    import polars as pl

    from pyanalyze.analysis.interference import kernels_alone
    from pyanalyze.text.escape import visible
    from pyanalyze.text.format import duration

    table = kernels_alone(session.tables, session.interference()).with_columns(
        pl.col("name", "against").cast(pl.String)
    )
    known = table.filter(pl.col("ratio").is_not_null()).sort("total_ns", descending=True)
    few, excluded = table.height - known.height, int(table["excluded"].sum())
    overhead = int(table["excluded_overhead"].sum())
    devices = session.tenants["device_id"].unique()
    names = {number: name for device_id in devices for number, name in session.labels(device_id).items()}
    cut = " or that the window cuts" if session.selection.start_ns is not None else ""
    lines = ["", "The same kernels alone and in company (time at work)", "-" * 52]
    for row in known.head(TOP).iter_rows(named=True):
        low, high = row["ratio_low"], row["ratio_high"]
        interval = "no interval" if low is None else f"95 % {low:.3f} to {high:.3f}"
        kernel = visible((row["name"] or "unnamed").partition("(")[0], 28)
        lines.append(
            f"{visible(names[row['tenant_id']], 16):<16} {kernel:<28} {row['ratio']:6.3f}x ({interval}); median "
            f"{duration(row['alone_median_ns'])} -> {duration(row['median_ns'])}, n {row['n_alone']} "
            f"{'alone' if row['against'] == 'alone' else 'in baseline'} / {row['n']}, effect {row['effect']:+.2f}"
        )
    if known.height > TOP:
        lines.append(f"... and {known.height - TOP} more (pyanalyze export: table slowdowns)")
    lines.append(
        f"{few} launch configurations ran too rarely alone or in company for a ratio; {excluded} launches are left "
        f"out: the first of their kind, {overhead} that the profiler or the loading of code held up, and those that "
        f"only waited for others{cut}."
    )
    return "\n".join(lines) + "\n"


def rows(session: Session) -> list[dict[str, Any]]:
    """One row per tenant, measure and unit of work."""
    out = []
    for device in session.interference():
        for tenant in device.tenants:
            slow = tenant.slowdown
            known: list[tuple[str, str, Estimate | None, Sequence[Tail]]] = [
                ("", "elapsed", slow.elapsed, ()),
                ("", "latency", slow.latency, tenant.tails),
                ("", "resident", slow.resident, ()),
                *((units.name, "latency", units.latency, units.tails) for units in tenant.units),
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
                for part in (50, 95, 99):
                    tail = by_part.get(part)
                    row[f"p{part}_shared_ns"] = None if tail is None else tail.shared_ns
                    row[f"p{part}_alone_ns"] = None if tail is None else tail.alone_ns
                row["why_missing"] = tenant.missing if estimate is None else None
                out.append(row)
    return out
