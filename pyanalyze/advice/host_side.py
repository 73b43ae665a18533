"""Is it the neighbour at all?  Causes of slowness that no other way of sharing removes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.session import Session

#: Short gaps between kernels for this part of a tenant's time: the GPU waits for launches.
WAITS_FOR_LAUNCHES = 0.2
#: Gaps between kernels that are at most so long come from launching, not from thinking.
LAUNCH_GAP_NS = 250_000
#: Copies in flight for more than this part of the time.
MOSTLY_COPIES = 0.5
#: SM clock below this part of its maximum while the device was busy.
THROTTLED = 0.85
#: Kernel time in grids of at least one whole wave.
FULL_GRIDS = 0.8
#: Part of the kernels in the legacy default stream, from which it serialises the others.
NOTABLE_DEFAULT_STREAM = 0.05
#: nsys numbers the legacy default stream so.
DEFAULT_STREAM = 7


@dataclass(frozen=True)
class Cause:
    """A cause that lies with a tenant or its host.

    Attributes
    ----------
    kind
        ``launch-bound``, ``copy-bound``, ``throttled``, ``default-stream`` or ``full-grids``.
    tenant_id
        Whose; None: everybody's.
    what
        What was measured.
    do
        What to do about it.
    """

    kind: str
    tenant_id: int | None
    what: str
    do: str


def causes(session: Session, device_id: int) -> list[Cause]:
    """Find what slows tenants down whoever else is there.

    Parameters
    ----------
    session, device_id
        Session and device.

    Returns
    -------
    list of Cause
        Empty where nothing of the kind was seen.

    Examples
    --------
    >>> import pyanalyze
    >>> [cause.kind for cause in causes(pyanalyze.load(capture), 0)]
    []
    """
    import polars as pl

    here = pl.col("device_id") == device_id
    tenants = session.tenants.filter(here & pl.col("traced"))
    usage = session.tenant_usage.filter(here)
    found: list[Cause] = []
    throttled = _throttled(session, device_id)
    if throttled:
        found.append(throttled)
    keys = ["capture", "pid"]
    for tenant in tenants.sort("tenant_id").iter_rows(named=True):
        row = usage.filter(pl.col("tenant_id") == tenant["tenant_id"]).row(0, named=True)
        mine = pl.lit(value=True)
        for key in keys:
            mine = mine & pl.col(key).eq_missing(pl.lit(tenant[key]))
        kernels = session.kernels.filter(here & mine)
        if kernels.is_empty() or row["first_ns"] is None:
            continue
        span = max(row["last_ns"] - row["first_ns"], 1)
        shape = session.kernel_occupancy.filter(here & (pl.col("tenant_id") == tenant["tenant_id"]))
        found += _of_tenant(tenant["tenant_id"], row, kernels, shape, span)
    return found


def _of_tenant(
    tenant: int, usage: dict[str, int | None], kernels: pl.DataFrame, shapes: pl.DataFrame, span: int
) -> list[Cause]:
    import polars as pl

    found = []
    busy = (usage["busy_ns"] or 0) / span
    copying = (usage["copy_ns"] or 0) / span
    if copying > MOSTLY_COPIES and copying > busy:
        found.append(
            Cause(
                "copy-bound", tenant,
                f"copies were in flight {100 * copying:.0f} % of its time, kernels {100 * busy:.0f} %",
                "copy less, from pinned memory, and beside kernels (other streams); copy engines and the link are "
                "shared in every mode, MIG included",
            )
        )  # fmt: skip
    gaps = kernels.sort("start_ns").select((pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1)).alias("ns"))["ns"]
    short = int(gaps.filter((gaps > 0) & (gaps <= LAUNCH_GAP_NS)).sum())
    median = (kernels["end_ns"] - kernels["start_ns"]).median()
    if kernels.height >= 100 and short > WAITS_FOR_LAUNCHES * span and isinstance(median, (int, float)):
        found.append(
            Cause(
                "launch-bound", tenant,
                f"kernels were in flight {100 * busy:.0f} % of its time, {100 * short / span:.0f} % were gaps of at "
                f"most {LAUNCH_GAP_NS // 1000} us between them ({kernels.height} kernels, median "
                f"{median / 1e3:.0f} us)",
                "launch fewer, longer kernels (CUDA graphs, fusion, larger batches), or give its host more CPU",
            )
        )  # fmt: skip
    streams = kernels["stream_id"].drop_nulls()
    legacy = int((streams == DEFAULT_STREAM).sum())
    if streams.n_unique() > 1 and NOTABLE_DEFAULT_STREAM * len(streams) <= legacy < len(streams):
        found.append(
            Cause(
                "default-stream", tenant,
                f"{legacy} of {len(streams)} kernels were in the legacy default stream, beside "
                f"{streams.n_unique() - 1} others: it waits for them and they for it, unless they were created "
                "non-blocking",
                "build with --default-stream per-thread, or create streams with cudaStreamNonBlocking",
            )
        )  # fmt: skip
    total = int(shapes["total_ns"].sum())
    full = int(shapes.filter(pl.col("waves") >= 1)["total_ns"].sum())
    if streams.n_unique() > 1 and total and full > FULL_GRIDS * total:
        found.append(
            Cause(
                "full-grids", tenant,
                f"{100 * full / total:.0f} % of its kernel time is in grids that fill the device alone, in "
                f"{streams.n_unique()} streams",
                "more streams cannot overlap them: they run one after the other in every mode without partitions",
            )
        )  # fmt: skip
    return found


def _throttled(session: Session, device_id: int) -> Cause | None:
    import polars as pl

    samples = session.nvml_samples.filter((pl.col("device_id") == device_id) & pl.col("pid").is_null()).with_columns(
        pl.col("metric").cast(pl.String)
    )
    clock = samples.filter(pl.col("metric") == "clock_sm_hz").select("time_ns", "value")
    busy = samples.filter(pl.col("metric") == "gpu_utilization_pct").select("time_ns", pl.col("value").alias("busy"))
    limit = samples.filter(pl.col("metric") == "clock_sm_max_hz")["value"].max()
    if not busy.is_empty():
        clock = clock.join(busy, on="time_ns").filter(pl.col("busy") > 0)
    if len(clock) < 4:
        return None
    # Without the maximum: against what the same run reached.
    top = limit if isinstance(limit, float) else clock["value"].max()
    slow = clock.filter(pl.col("value") < THROTTLED * float(str(top)))
    if slow.height * 5 < clock.height:
        return None
    reasons = samples.filter(pl.col("metric").str.contains("reason") & pl.col("text").is_not_null())["text"]
    named = f"; reasons given: {', '.join(sorted(set(reasons))[:3])}" if len(reasons) else ""
    median = slow["value"].median()
    return Cause(
        "throttled", None,
        f"the SM clock was below {100 * THROTTLED:.0f} % of {float(str(top)) / 1e6:.0f} MHz in {slow.height} of "
        f"{clock.height} samples (median there {float(str(median)) / 1e6:.0f} MHz){named}",
        "look at power limit, cooling and application clocks (nvidia-smi -q -d PERFORMANCE,CLOCK,POWER); clocks are "
        "the whole board's in every mode, MIG included",
    )  # fmt: skip
