"""Measured blocks beside a capture: which kernels they are of, warps per SM observed, and how far off the model is."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from typing import TYPE_CHECKING

from pyanalyze.errors import UsageError
from pyanalyze.results.occupancy import BlockCheck
from pyanalyze.tables.selections import kernel_called
from pyanalyze.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pyanalyze.inputs.blocks import MeasuredBlocks
    from pyanalyze.tables.tableset import TableSet

__all__ = ["observed_warps", "placed_blocks", "score"]

#: How far a kernel's start may be from its first block on the same clock: the profiler adds a microsecond or two at
#: either end, and clocks that are told apart once drift.
TOLERANCE_NS = 20_000
#: The same of its duration, as a part of it, where that is more.
TOLERANCE = 0.02
#: Kernels that a file's first launch is tried on.
MOST_TRIED = 10_000

_SCHEMA = ("device_id", "kernel_start_ns", "kernel_end_ns", "sm", "start_ns", "end_ns", "warps")


def placed_blocks(tables: TableSet, measured: Sequence[MeasuredBlocks]) -> pl.DataFrame:
    """Find the kernel that each measured launch is, and put its blocks on the clock of the session.

    Parameters
    ----------
    tables
        The tables: kernels of the capture.
    measured
        Blocks on clocks of their own. A launch is a kernel of the same name, grid and (where known) block size and pid;
        one offset for each file puts most of its launches where such kernels are.

    Returns
    -------
    polars.DataFrame
        Per block `device_id`, `kernel_start_ns`, `kernel_end_ns`, `sm`, `start_ns`, `end_ns`, `warps`.

    Raises
    ------
    pyanalyze.errors.UsageError
        No launch of a file is a kernel of the capture, or several offsets fit equally well.

    Examples
    --------
    >>> import pyanalyze
    >>> placed_blocks(pyanalyze.load(capture).tables, ()).height
    0
    """
    import polars as pl

    found = [_placed(tables.kernels, one) for one in measured]
    kinds = dict.fromkeys(_SCHEMA, pl.Int64) | {"device_id": pl.UInt32, "sm": pl.UInt32}
    return pl.concat([pl.DataFrame(schema=kinds), *(frame.cast(kinds) for frame in found)])  # type: ignore[arg-type]


#: start, end, device, threads of a block.
_Kernel = tuple[int, int, int, int]


def _candidates(kernels: pl.DataFrame, one: MeasuredBlocks) -> list[list[_Kernel]]:
    """Kernels that each launch of a file may be, by start."""
    import polars as pl

    name, short = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    known = kernels.select(
        "pid", "start_ns", "end_ns", "device_id",
        name=name, short_name=short, grid=pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z"),
        threads=pl.col("block_x").cast(pl.Int64) * pl.col("block_y") * pl.col("block_z"),
    ).sort("start_ns")  # fmt: skip
    pids = set(known["pid"].drop_nulls())
    kinds: dict[tuple[object, ...], list[_Kernel]] = {}
    found = []
    for pid, kernel, blocks, threads in one.launches.select("pid", "kernel", "blocks", "block_threads").iter_rows():
        key = (pid, kernel, blocks, threads)
        if key not in kinds:
            fits = pl.col("grid") == blocks
            if kernel:
                named = kernel_called(kernel) | (pl.col("name") == kernel)
                fits &= named | pl.col("name").str.starts_with(f"{kernel}(")
            if threads is not None:
                fits &= pl.col("threads") == threads
            if pid in pids:
                fits &= pl.col("pid") == pid
            kinds[key] = known.filter(fits).select("start_ns", "end_ns", "device_id", "threads").rows()
        found.append(kinds[key])
    return found


def _placed(kernels: pl.DataFrame, one: MeasuredBlocks) -> pl.DataFrame:
    import polars as pl

    candidates = _candidates(kernels, one)
    spans = one.launches.select("start_ns", "end_ns").rows()

    def matches(offset: int) -> list[tuple[int, _Kernel]]:
        """Launches with the kernel that is where the offset puts them."""
        found = []
        for launch, ((start, end), fitting) in enumerate(zip(spans, candidates, strict=True)):
            length = end - start
            at = bisect_left(fitting, (start + offset - TOLERANCE_NS,))
            near = [
                kernel for kernel in fitting[at : at + 8]
                if abs(kernel[0] - start - offset) <= TOLERANCE_NS
                and abs(kernel[1] - kernel[0] - length) <= max(TOLERANCE_NS, TOLERANCE * length)
            ]  # fmt: skip
            if near:
                found.append((launch, min(near, key=lambda kernel: abs(kernel[0] - start - offset))))
        return found

    first = next((n for n, fitting in enumerate(candidates) if fitting), None)
    name = visible(str(one.path), limit=None)
    if first is None:
        raise UsageError(f"{name}: no kernel of the capture has the name, grid and block size of a measured launch")
    offsets = [kernel[0] - spans[first][0] for kernel in candidates[first][:MOST_TRIED]]
    tried = sorted(((len(matches(offset)), offset) for offset in offsets), reverse=True)
    most, offset = tried[0]
    if most == 0:
        raise UsageError(f"{name}: no kernel of that name and grid lasts as long as a measured launch")
    if any(count == most and abs(other - offset) > 2 * TOLERANCE_NS for count, other in tried[1:]):
        raise UsageError(
            f"{name}: its launches fit several kernels of the capture equally well; measure more launches, or give "
            "--start and --end"
        )
    offset = round(statistics.median(kernel[0] - spans[launch][0] for launch, kernel in matches(offset)))
    rows = [
        (launch, device, start, end, -(-threads // 32)) for launch, (start, end, device, threads) in matches(offset)
    ]
    schema = dict.fromkeys(("launch", "device_id", "kernel_start_ns", "kernel_end_ns", "warps"), pl.Int64)
    of = pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("launch").cast(pl.UInt32))
    # What the profiler adds at the ends of a kernel is no time of its blocks.
    return one.blocks.join(of, on="launch").select(
        "device_id", "kernel_start_ns", "kernel_end_ns", "sm",
        pl.col("start_ns") + offset, pl.col("end_ns") + offset, "warps",
    )  # fmt: skip


def observed_warps(tables: TableSet, blocks: pl.DataFrame, per_sm: pl.DataFrame) -> pl.DataFrame:
    """Replace modelled warps per SM by measured ones, where every kernel of a time bin was measured.

    Parameters
    ----------
    tables
        The tables: all kernels of the capture.
    blocks
        What :func:`placed_blocks` found.
    per_sm
        The `sm_warps` table.

    Returns
    -------
    polars.DataFrame
        The same table; rows of such bins have `model` ``measured`` and `basis` ``observed``.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> nothing = placed_blocks(session.tables, ())
    >>> observed_warps(session.tables, nothing, session.sm_warps).equals(session.sm_warps)
    True
    """
    import polars as pl

    if blocks.is_empty():
        return per_sm
    measured = _measured(tables, blocks, per_sm)
    keys = ["device_id", "start_ns", "end_ns", "sm"]
    both = per_sm.join(measured, on=keys, how="left", maintain_order="left")
    there = pl.col("warps_measured").is_not_null()

    def said(column: str, word: str) -> pl.Expr:
        text = pl.when(there).then(pl.lit(word)).otherwise(pl.col(column).cast(pl.String))
        return text.cast(per_sm.schema[column]).alias(column)

    return both.with_columns(
        pl.coalesce("warps_measured", "warps").alias("warps"),
        pl.coalesce("active_measured", "active").alias("active"),
        said("model", "measured"),
        said("basis", "observed"),
    ).select(per_sm.columns)


def _measured(tables: TableSet, blocks: pl.DataFrame, per_sm: pl.DataFrame) -> pl.DataFrame:
    """`warps_measured` and `active_measured` by device, bin and SM, for bins all of whose kernels were measured."""
    import polars as pl

    parts = []
    for device in blocks["device_id"].unique().sort().to_list():
        here = pl.col("device_id") == device
        mine, cells = blocks.filter(here), per_sm.filter(here)
        bins = cells.select("start_ns", "end_ns").unique().sort("start_ns")
        known = mine.select(start_ns="kernel_start_ns", end_ns="kernel_end_ns").unique()
        others = (
            tables.kernels.filter(here).select("start_ns", "end_ns").join(known, on=["start_ns", "end_ns"], how="anti")
        )
        graphs = tables.graph_launches.filter(here).select("start_ns", "end_ns")
        others = pl.concat([others, graphs])
        covered = bins.filter(_time_in(bins, known) > 0, _time_in(bins, others) == 0)
        if covered.is_empty():
            continue
        grid = covered.join(cells.select("sm").unique(), how="cross")
        length = pl.col("end_ns") - pl.col("start_ns")
        union = _union(mine)
        parts.append(
            grid.with_columns(
                warps_measured=_sum_in(grid, mine), active_measured=_sum_in(grid, union)
            ).select(
                pl.lit(device, per_sm.schema["device_id"]).alias("device_id"), "start_ns", "end_ns", "sm",
                pl.col("warps_measured") / length, pl.col("active_measured") / length,
            )
        )  # fmt: skip
    if not parts:
        empty = per_sm.select("device_id", "start_ns", "end_ns", "sm", warps_measured="warps", active_measured="active")
        return empty.clear()
    return pl.concat(parts)


def _time_in(bins: pl.DataFrame, spans: pl.DataFrame) -> pl.Series:
    """Time of the spans inside each bin, overlapping ones counted as often as they are there."""
    import polars as pl

    one = pl.lit(0, pl.UInt32).alias("sm")
    return _sum_in(bins.with_columns(one), spans.with_columns(one, warps=pl.lit(1, pl.Int64)))


def _union(blocks: pl.DataFrame) -> pl.DataFrame:
    """Stretches in which an SM had any block, with one warp each."""
    import polars as pl

    ordered = blocks.select("sm", "start_ns", "end_ns").sort("sm", "start_ns", "end_ns")
    reach = pl.col("end_ns").cum_max().shift(1).over("sm")
    begins = (reach.is_null() | (pl.col("start_ns") > reach)).cast(pl.Int64)
    return (
        ordered.with_columns(run=begins.cum_sum())
        .group_by("sm", "run")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .with_columns(warps=pl.lit(1, pl.Int64))
    )


def _sum_in(cells: pl.DataFrame, blocks: pl.DataFrame) -> pl.Series:
    """Warps times nanoseconds of `blocks` (`sm`, `start_ns`, `end_ns`, `warps`) inside each cell (bin and SM)."""
    import polars as pl

    # Up to a time t that is the sum of w (t - start) of what has started, less w (t - end) of what has ended.
    zero = int(cells["start_ns"].min() or 0)  # type: ignore[arg-type]
    steps = {}
    for edge in ("start_ns", "end_ns"):
        at = blocks.select("sm", at=pl.col(edge) - zero, w=pl.col("warps").cast(pl.Float64)).sort("sm", "at")
        steps[edge] = at.select(
            "sm", "at", w=pl.col("w").cum_sum().over("sm"), wt=(pl.col("w") * pl.col("at")).cum_sum().over("sm")
        ).sort("at")

    def until(edge: str) -> pl.DataFrame:
        asked = cells.select("sm", at=pl.col(edge) - zero).with_row_index("row").sort("at")
        sums = []
        for step in steps.values():
            joined = asked.join_asof(step, on="at", by="sm", check_sortedness=False).sort("row")
            sums.append((joined["w"].fill_null(0.0) * joined["at"]) - joined["wt"].fill_null(0.0))
        return pl.DataFrame({"sum": sums[0] - sums[1]})

    found = until("end_ns")["sum"] - until("start_ns")["sum"]
    return found.clip(0.0)


def score(
    modelled: pl.DataFrame, even: pl.DataFrame, observed: pl.DataFrame, blocks: pl.DataFrame
) -> BlockCheck | None:
    """Say how far the model of one device is from its measured blocks; None: no bin was measured whole.

    Parameters
    ----------
    modelled, even
        `sm_warps` of the device by the replay and spread evenly, over the bins of `observed`.
    observed
        What :func:`observed_warps` made of it.
    blocks
        Placed blocks of the device.
    """
    import polars as pl

    keys = ["start_ns", "end_ns", "sm"]
    truth = observed.filter(pl.col("basis").cast(pl.String) == "observed").select(*keys, true="warps")
    both = truth.join(modelled.select(*keys, ours="warps"), on=keys).join(even.select(*keys, even="warps"), on=keys)
    total = float(both["true"].sum())
    if total <= 0:
        return None

    def apart(column: str, *, by_sm: bool) -> float:
        ordered = pl.col(column) if by_sm else pl.col(column).sort()
        true = pl.col("true") if by_sm else pl.col("true").sort()
        sums = both.group_by("start_ns").agg((ordered - true).abs().sum().alias("apart"))
        return float(sums["apart"].sum()) / total

    return BlockCheck(
        kernels=blocks.select("kernel_start_ns", "kernel_end_ns").unique().height,
        blocks=blocks.height,
        bins=truth["start_ns"].n_unique(),
        sorted_error=apart("ours", by_sm=False),
        sorted_error_even=apart("even", by_sm=False),
        by_sm_error=apart("ours", by_sm=True),
        warps_ratio=float(both["ours"].sum()) / total,
    )
