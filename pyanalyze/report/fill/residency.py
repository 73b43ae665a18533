"""Residency intervals and context switches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.results.residency import ContextSwitches, ResidencySlice, SwitchPart
from pyanalyze.tables.switch_records import RESTORE_START, SAVE_END

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.results.report import Window
    from pyanalyze.results.residency import CostKind
    from pyanalyze.tables.tableset import TableSet


def residency_slices(tables: TableSet, device_id: int) -> list[ResidencySlice]:
    """Every residency interval."""
    import polars as pl

    slices = tables.of_device("residency", device_id).sort("start_ns")
    columns = slices.select("tenant_id", "hw_context", "start_ns", "end_ns", pl.col("basis").cast(pl.String))
    return [ResidencySlice(**row) for row in columns.iter_rows(named=True)]


def resident_within(usage: pl.DataFrame, tables: TableSet, device_id: int, window: Window) -> pl.DataFrame:
    """Residency inside the window: a context is resident before its first kernel, too, while it is created."""
    import polars as pl

    inside = (
        tables.of_device("residency", device_id)
        .with_columns(pl.col("start_ns").clip(window.start_ns), pl.col("end_ns").clip(upper_bound=window.end_ns))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .group_by("tenant_id")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("inside_ns"))
    )
    known = pl.col("resident_ns").is_not_null()
    resident = pl.when(known).then(pl.col("inside_ns").fill_null(0)).alias("resident_ns")
    return usage.join(inside, on="tenant_id", how="left").with_columns(resident).drop("inside_ns")


def context_switches_of(tables: TableSet, device_id: int, span_ns: int, recorded: int | None) -> ContextSwitches | None:
    """Context switches and what they cost; None without switch records."""
    import polars as pl

    facts = {row["name"]: row["value"] for row in tables.rows_of("facts", device_id)}
    if not facts.get("switch_records"):
        return None
    switches = tables.of_device("switches", device_id)
    counted = switches.filter(pl.col("kind") == "switch")
    slices = tables.of_device("residency", device_id).filter("complete")
    full = counted.filter(pl.col("full_ns").is_not_null())
    # The full cost needs tags that most drivers do not give; a mixture of both kinds would compare with neither.
    kind: CostKind = "full" if counted.height and full.height == counted.height else "gap"
    cost = counted["full_ns" if kind == "full" else "gap_ns"]
    total = int(cost.sum())
    lost = tables.quality.filter(pl.col("name") == "switch_events_lost")["count"].sum()
    endings = slices.group_by(pl.col("ending").cast(pl.String)).len().sort("ending")
    return ContextSwitches(
        count=counted.height,
        context_creations=switches.filter(pl.col("kind") == "creation").height,
        unrecorded_starts=_unrecorded_starts(tables, device_id),
        # Without contexts that were only created, as the verdict and the residency summary have it.
        median_slice_ns=_rounded(facts.get("median_slice_ns")),
        median_cost_ns=_median(cost),
        mean_cost_ns=float(total / counted.height) if counted.height else None,
        cost_kind=kind if counted.height else None,
        total_cost_ns=total if counted.height else None,
        save=_switch_part(counted["save_ns"]),
        gap=_switch_part(counted["gap_ns"]),
        restore=_switch_part(counted["restore_ns"]),
        recorded_ns=recorded,
        overhead_fraction=total / of_ns if counted.height and (of_ns := recorded or span_ns) else None,
        endings=dict(endings.iter_rows()),
        dropped=int(lost),
    )


def _unrecorded_starts(tables: TableSet, device_id: int) -> int:
    """How many switches come from an interval of which only the end is on record: at most the first."""
    import polars as pl

    records = tables.of_device("switch_events", device_id).filter(pl.col("tag").is_in([SAVE_END, RESTORE_START]))
    first = records.sort("time_ns").head(2).select("time_ns", "tag", "hw_context").rows()
    if [tag for _, tag, _ in first] != [SAVE_END, RESTORE_START] or first[0][2] == first[1][2]:
        return 0
    # Work that was traced before shows since when its context was resident at the latest.
    began = tables.of_device("residency", device_id)["start_ns"].min()
    return int(not isinstance(began, int) or began >= first[1][0])


def _switch_part(values: pl.Series) -> SwitchPart | None:
    """None where a switch lacks it: the sum over the others would compare with no other part."""
    median = _median(values)
    return None if median is None or values.null_count() else SwitchPart(median_ns=median, total_ns=int(values.sum()))


def _median(values: pl.Series) -> int | None:
    return _rounded(values.median())


def _rounded(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None
