"""SM occupancy, modelled or counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.occupancy import (
    bounded_means,
    grid_fill,
    in_flight_ns,
    kernel_time,
    whole_graphs_share,
)
from pyanalyze.analysis.sharing.missing import HOW
from pyanalyze.nsys_tool import COUNTERS_NEED, recording
from pyanalyze.report.fill.how import ENTITIES, how_device, how_kernels
from pyanalyze.results.model import Missing
from pyanalyze.results.occupancy import Occupancy, SmWarps
from pyanalyze.tables.export_details import WSL_KEY
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.analysis.analysis import Analysis
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.report import Window
    from pyanalyze.tables.tableset import TableSet

_INSTANCE_COUNTERS = f"dcgmi dmon -e 1002,1003 -i instance:ID   # SMs active and warps, during a recording; {ENTITIES}"


def occupancy_of(
    analysis: Analysis,
    verdict: Verdict,
    modelled: pl.DataFrame,
    window: Window | None,
    device: dict[str, Any],
    missing: list[Missing],
) -> Occupancy | None:
    """SM occupancy over the window; None with a reason where nothing could be modelled."""
    import polars as pl

    tables = analysis.tables
    kernels = analysis.launch_configurations.filter(pl.col("device_id") == verdict.device_id)
    time = kernel_time(kernels) or "total_ns"
    known = kernels.filter(pl.col("limiters").is_not_null())
    if modelled.is_empty() or window is None or known.is_empty():
        reasons = kernels["reason"].drop_nulls().unique().sort().to_list()
        why = "; ".join(reasons) or "no kernels with a launch configuration were captured"
        if kernels.is_empty() and not tables.of_device("graph_launches", verdict.device_id).is_empty():
            why = "graphs were traced whole, without their kernels"
            how = recording("--cuda-graph-trace=node", switches=False)
        elif kernels.is_empty():
            how = how_kernels(verdict)
        elif kernels["registers_per_thread"].null_count() == kernels.height:
            # nsys writes them for each kernel.
            how = HOW["whole_export"]
        else:
            how = how_device(tables, device)
        missing.append(Missing(what="occupancy", why=why, how=how))
        return None
    length = pl.col("end_ns") - pl.col("start_ns")
    # By SM, not summed over tenants: several may be on one.
    per_sm = tables.of_device("sm_warps", verdict.device_id)
    slots = device["max_warps_per_sm"] or 1
    # In order: sums of floats should not depend on which thread was first.
    per_bin = per_sm.group_by("start_ns", "end_ns", maintain_order=True).agg(
        pl.col("active").mean().alias("sm_active"), pl.col("warps").mean() / slots
    )
    # Bins cover the whole session; outside this device's window they hold nothing of it.
    window_ns = max(window.end_ns - window.start_ns, 1)
    means = per_bin.select(
        (pl.col("sm_active") * length).sum() / window_ns, (pl.col("warps") * length).sum() / window_ns
    ).row(0)
    blind = 1 - int(known[time].sum()) / max(int(kernels[time].sum()), 1)
    if blind > 0:
        reasons = kernels["reason"].drop_nulls().unique().sort().to_list()
        missing.append(
            Missing(
                what="occupancy.part",
                why=f"{fmt.percent(blind)} of kernel time could not be modelled: {'; '.join(reasons)}",
                how="",
            )
        )
    caps = analysis.policies[verdict.device_id].caps
    small = _small_grids(known, caps, device["sm_count"])
    # At full theoretical occupancy the hardware's own limit is reached: no resource keeps it from more.
    limited = (
        known.filter(pl.col("occupancy") < 1)
        .select(pl.col("limiters").str.split(","), time)
        .explode("limiters")
        .group_by(pl.col("limiters").str.strip_chars())
        .agg(pl.col(time).sum())
        .sort("limiters")
    )
    total = known[time].sum()
    scaled = analysis.scaled_occupancy.get(verdict.device_id)
    counted = (0.0, 0.0)
    if scaled is not None:
        sampled = [pl.col(name).is_not_null() for name in ("sm_active_scale", "warps_scale")]
        of_bins = per_bin.join(scaled.bins, on=["start_ns", "end_ns"])
        parts = [
            (pl.col(name) * length).filter(there).sum() / window_ns
            for name, there in zip(("sm_active", "warps"), sampled, strict=True)
        ]
        counted = of_bins.select(*parts).row(0)
    observed = per_sm.filter(pl.col("basis").cast(pl.String) == "observed")
    if not observed.is_empty():
        # Measured blocks: known, and nothing of the model is left in these bins.
        of_bins = per_bin.join(observed.select("start_ns", "end_ns").unique(), on=["start_ns", "end_ns"], how="semi")
        sums = of_bins.select([(pl.col(name) * length).sum() / window_ns for name in ("sm_active", "warps")]).row(0)
        counted = (max(counted[0], sums[0]), max(counted[1], sums[1]))
    span = (window.start_ns, window.end_ns)
    graphs = whole_graphs_share(tables, verdict.device_id, span)
    active, warps = bounded_means(
        tables, verdict.device_id, means, span, caps=caps, counted=counted, whole_graphs=graphs
    )
    check = analysis.counter_check(verdict.device_id)
    return Occupancy(
        sm_active=active,
        warps=warps,
        whole_graphs=graphs,
        in_flight=min(in_flight_ns(tables, verdict.device_id, ("kernels", "graph_launches"), span) / window_ns, 1.0),
        limiters={name: value / total for name, value in limited.iter_rows() if total},
        small_grids=int(known.filter(small)[time].sum()) / int(total) if total else 0.0,
        basis="observed" if counted[1] >= means[1] and not observed.is_empty() else "modelled",
        calibration=None if scaled is None else scaled.said,
        check_against_counters=None if check is None else check.result(),
        check_against_blocks=analysis.block_check(verdict.device_id),
        kernel_counters=list(analysis.kernel_counters.get(verdict.device_id, ())),
    )


def _small_grids(kernels: pl.DataFrame, caps: Mapping[int, int], sm_count: int | None) -> pl.Series:
    """Which launch configurations leave a tenth of the SMs that their tenant may use without a block, or more."""
    import polars as pl

    few = [grid_fill(row, sm_count, caps).few_blocks for row in kernels.iter_rows(named=True)]
    return pl.Series(few, dtype=pl.Boolean)


def sm_warps_of(tables: TableSet, device_id: int) -> SmWarps | None:
    """Modelled warps of every SM, with --detail."""
    import polars as pl

    table = tables.of_device("sm_warps", device_id).sort("start_ns", "sm")
    if table.is_empty():
        return None
    start, end = table["start_ns"].min(), table["end_ns"].max()
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    bins = table.group_by("start_ns", maintain_order=True).agg(pl.col("warps").round(4))
    return SmWarps(start_ns=start, end_ns=end, warps=bins["warps"].to_list())


def no_counters(tables: TableSet, device: Mapping[str, Any], trace: str) -> Missing:
    """Why the model is not checked by hardware counters, and how it could be."""
    if device["mig_profile"] is not None:
        why = "nsys counts the whole board, which cannot check the model of a MIG instance; DCGM counts per instance"
        how = _INSTANCE_COUNTERS
    elif tables.row_count("gpu_metrics"):
        why, how = "the capture has too few hardware counters in its window to check the model", ""
    elif any(row["state"] == "removed" for row in tables.rows_where("sources", "source", "gpu_metrics")):
        why, how = "nsys collected hardware counters, and the export has none", HOW["whole_export"]
    elif tables.rows_where("configured", "key", WSL_KEY):
        # `SupportsGpuMetrics` is 1 there as well, but the settings of the driver that permit it are those of Windows.
        why = (
            "the capture has no hardware counters to check the model, and under WSL2 no command is known to record them"
        )
        how = ""
    else:
        why = "the capture has no hardware counters to check the model"
        command = recording("--gpu-metrics-devices=all", trace=trace, switches=False)
        how = f"{command}   # {COUNTERS_NEED}"
    return Missing(what="gpu_metrics", why=why, how=how)
