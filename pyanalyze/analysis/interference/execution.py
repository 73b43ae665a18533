"""Through what was work slower while its context ran: SM slots, memory, copies, clocks, migrations?

Each part needs evidence of its own; where there is none it is None, with the reason. What no evidence explains is left
as such: parts and rest sum to what the kernels took longer while resident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.nsys_tool import COUNTERS_NEED, recording
from pyanalyze.results.interference import ExecutionSplit
from pyanalyze.tables.selections import of_process

if TYPE_CHECKING:
    import polars as pl

    from pyanalyze.tables.tableset import TableSet

#: DRAM reads and writes above this part of the peak, while several execute: near the ceiling that streaming kernels
#: reach on real boards (65 to 90 %).
NEAR_CEILING = 0.6
#: Clocks that differ by less than this are equal: NVML and counters are that coarse.
EQUAL_CLOCKS = 0.01
#: Less than this part of the execution time, or of all that was added, is not worth splitting.
LEAST = 0.005
_METRICS = recording("--gpu-metrics-devices=all", switches=False)
#: How to capture what a part needs.
COUNTERS = f"{_METRICS}   # {COUNTERS_NEED}"
SOLO = "# with no other tenant on the GPU, given as --baseline"


def clock_part_ns(shared_ns: float, clock_hz: float, alone_hz: float) -> float:
    """Time that a lower SM clock adds to work of `shared_ns` that waits for nothing else.

    Examples
    --------
    >>> clock_part_ns(100.0, 1.2e9, 1.5e9)
    20.0
    >>> clock_part_ns(100.0, 1.495e9, 1.5e9)
    0.0
    """
    slower = (alone_hz - clock_hz) / alone_hz
    return shared_ns * slower if abs(slower) > EQUAL_CLOCKS else 0.0


def slots_part_ns(solo_ns: float, wanted: float, others: float) -> float:
    """Time that waiting for SM slots adds to `solo_ns` of work beside others.

    Parameters
    ----------
    solo_ns
        What the work takes by itself.
    wanted, others
        Blocks of its kernels, and of the kernels beside them, as parts of what the device holds at once ("waves").

    Returns
    -------
    float
        0 where all blocks fit at once; else as much as if slots were handed out in proportion to what is asked for.

    Examples
    --------
    >>> slots_part_ns(100.0, 0.5, 0.5)
    0.0
    >>> slots_part_ns(100.0, 1.0, 1.0)
    100.0
    >>> slots_part_ns(100.0, 4.0, 4.0)
    100.0
    """
    if wanted + others <= 1 or wanted <= 0:
        return 0.0
    share = max(wanted / (wanted + others), 1 - others)
    return solo_ns * (min(wanted, 1.0) / min(wanted, share) - 1)


def divide(
    added_ns: float, latency_ns: float, known: dict[str, float | None], *, memory: bool | None
) -> ExecutionSplit:
    """Parts from what is known of each.

    Parameters
    ----------
    added_ns
        What the kernels took longer while resident.
    latency_ns
        All latency that was added, of which fractions are given.
    known
        Nanoseconds of `clock`, `uvm`, `copy` and `sm_slots`; None: not known. Modelled slots take no more than is left.
    memory
        Whether bandwidth was near its ceiling: what is left then is memory's. None: nobody counted.

    Examples
    --------
    >>> known = {"clock": 20.0, "uvm": 0.0, "copy": None, "sm_slots": 30.0}
    >>> split = divide(100.0, 200.0, known, memory=True)
    >>> split.clock, split.sm_slots, split.memory, split.unexplained
    (0.1, 0.15, 0.25, 0.0)
    >>> divide(100.0, 200.0, known | {"sm_slots": 300.0}, memory=None).sm_slots
    0.4
    """
    rest = added_ns - sum(known[part] or 0.0 for part in ("clock", "uvm", "copy"))
    slots = known["sm_slots"]
    if slots is not None:
        slots = min(slots, max(rest, 0.0))
        rest -= slots
    bandwidth = None if memory is None else max(rest, 0.0) if memory else 0.0
    rest -= bandwidth or 0.0

    def part(ns: float | None) -> float | None:
        return None if ns is None else ns / latency_ns

    return ExecutionSplit(
        sm_slots=part(slots),
        memory=part(bandwidth),
        copy=part(known["copy"]),
        clock=part(known["clock"]),
        uvm=part(known["uvm"]),
        unexplained=rest / latency_ns,
    )


def split_execution(
    tables: TableSet,
    tenant_id: int,
    against: str,
    baseline: TableSet | None,
    baseline_tenant_id: int | None,
    *,
    same_sms: bool | None = None,
) -> tuple[ExecutionSplit, dict[str, str], dict[str, str]] | None:
    """Split what a tenant's kernels took longer while resident by the evidence there is.

    Parameters
    ----------
    tables, tenant_id
        The tenant in the co-run.
    against
        `baseline` or `counterfactual`: the row of the `causes` table.
    baseline, baseline_tenant_id
        The baseline; None where this run was replayed.
    same_sms
        Whether blocks of several tenants run on the same SMs at once, by the sharing mode; None: not known.

    Returns
    -------
    tuple of ExecutionSplit, dict and dict, or None
        The parts; for each of them why it is None, or what it was concluded from; and for those that are None the
        command that would tell, where there is one. A part may be negative, as a higher clock makes it. None where
        nothing was added while resident: there is nothing to split.

    Examples
    --------
    >>> import pyanalyze
    >>> session = pyanalyze.load(capture)
    >>> split_execution(session.analysis.tables, 0, "counterfactual", None, None) is None  # time-sliced
    True
    """
    import polars as pl

    rows = tables.causes.filter((pl.col("tenant_id") == tenant_id) & (pl.col("against").cast(pl.String) == against))
    work = rows.filter(pl.col("cause").cast(pl.String) == "execution")
    latency_ns = float(rows["added_ns"].sum())
    if work.is_empty() or latency_ns <= 0:
        return None
    shared_ns, solo_ns = float(work["shared_ns"][0]), float(work["solo_ns"][0])
    if abs(shared_ns - solo_ns) < LEAST * max(solo_ns, latency_ns, 1.0):
        return None
    tenant = tables.tenants.row(tenant_id, named=True)
    device = int(tenant["device_id"])
    reasons: dict[str, str] = {}
    hows: dict[str, str] = {}
    known: dict[str, float | None] = {}
    known["clock"] = _clock(tables, device, shared_ns, baseline, reasons, hows)
    known["uvm"] = _migrations(tables, tenant_id, baseline, baseline_tenant_id, reasons, hows)
    known["copy"] = _copies(tables, tenant_id, reasons, hows)
    if same_sms is False:
        reasons["sm_slots"] = "in this sharing mode no blocks of other tenants are on its SMs while it runs"
        known["sm_slots"] = 0.0
    else:
        known["sm_slots"] = _slots(tables, tenant_id, solo_ns, reasons)
    memory = _bandwidth(tables, tenant_id, device, reasons, hows)
    return divide(shared_ns - solo_ns, latency_ns, known, memory=memory), reasons, hows


def _mean_clock(tables: TableSet, device: int) -> tuple[float, float] | None:
    """Mean SM clock and its spread, from NVML samples, else from GPU metrics; Hz."""
    import polars as pl

    here = pl.col("device_id") == device
    values = tables.samples_of(device).filter(pl.col("metric").cast(pl.String) == "clock_sm_hz")["value"].drop_nulls()
    scale = 1.0
    if values.is_empty():
        clocks = tables.counters(lambda name: name.str.contains("GPC Clock"))
        values = clocks.filter(here & (pl.col("unit") == "MHz") & (pl.col("value") > 0))["value"]
        scale = 1e6
    if values.is_empty():
        return None
    mean, least, most = values.mean(), values.min(), values.max()
    if not isinstance(mean, float) or not isinstance(least, float) or not isinstance(most, float) or mean <= 0:
        return None
    return scale * mean, (most - least) / mean


def _clock(
    tables: TableSet,
    device: int,
    shared_ns: float,
    baseline: TableSet | None,
    reasons: dict[str, str],
    hows: dict[str, str],
) -> float | None:
    here = _mean_clock(tables, device)
    if here is None:
        reasons["clock"] = "SM clocks were not sampled; samples of nvidia-smi have them, too"
        hows["clock"] = COUNTERS
        return None
    if baseline is None:
        if here[1] <= EQUAL_CLOCKS:
            reasons["clock"] = f"the SM clock stayed at {here[0] / 1e6:.0f} MHz, sampled"
            return 0.0
        reasons["clock"] = "the SM clock changed, and its value during solo execution is not known"
        hows["clock"] = f"{_METRICS}   {SOLO}"
        return None
    devices = baseline.devices["device_id"].to_list()
    there = _mean_clock(baseline, int(devices[0])) if len(devices) == 1 else None
    if there is None:
        reasons["clock"], hows["clock"] = "the baseline has no SM clocks", f"{_METRICS}   {SOLO}"
        return None
    reasons["clock"] = f"SM clock {there[0] / 1e6:.0f} MHz solo, {here[0] / 1e6:.0f} MHz in the co-run, sampled"
    return clock_part_ns(shared_ns, here[0], there[0])


def _last_begun(tables: TableSet, who: pl.DataFrame, times: pl.Series) -> pl.DataFrame:
    """Of the kernels of some processes that began by each of these times (in order): last begin, latest end."""
    import polars as pl

    begun, latest = pl.lit(None, dtype=pl.Int64), pl.lit(None, dtype=pl.Int64)
    found = []
    for piece in tables.batches("kernels", "capture", "pid", "start_ns", "end_ns"):
        # Kernels are in order of their start: all that began before that of the last one are here.
        answered = int(times.search_sorted(piece["start_ns"][-1], side="left"))
        mine = piece.join(who, on=["capture", "pid"], how="semi", nulls_equal=True).sort("start_ns")
        spans = mine.select(from_ns="start_ns", until_ns=pl.col("end_ns").cum_max())
        asked = times[:answered].to_frame("time_ns")
        here = asked.join_asof(spans, left_on="time_ns", right_on="from_ns", strategy="backward", coalesce=False)
        found.append(here.select(pl.max_horizontal("from_ns", begun), pl.max_horizontal("until_ns", latest)))
        times = times[answered:]
        begun = pl.lit(spans.select(pl.max_horizontal(pl.col("from_ns").max(), begun)).item(), dtype=pl.Int64)
        latest = pl.lit(spans.select(pl.max_horizontal(pl.col("until_ns").max(), latest)).item(), dtype=pl.Int64)
    rest = times.to_frame("time_ns").with_columns(from_ns=begun, until_ns=latest)
    return pl.concat([*found, rest.select("from_ns", "until_ns")])


def _inside_ns(tables: TableSet, tenant_id: int) -> tuple[float, int]:
    """Time of migrations inside the tenant's kernels, and how many migrations there were."""
    import polars as pl

    tenant = tables.tenants.row(tenant_id, named=True)
    who = tables.tenants.filter(pl.col("tenant_id") == tenant_id)
    mine = of_process(tenant)
    moved = pl.col("migration_cause").is_not_null() | pl.col("copy_kind").is_between(11, 13)
    moves = tables.memops.filter(mine & moved.fill_null(value=False)).select("start_ns", "end_ns").sort("end_ns")
    if moves.is_empty():
        return 0.0, 0
    both = pl.concat([moves, _last_begun(tables, who, moves["end_ns"])], how="horizontal")
    inside = pl.min_horizontal("end_ns", "until_ns") - pl.max_horizontal("start_ns", "from_ns")
    return float(both.select(inside.clip(0).sum()).item() or 0), moves.height


def _migrations(
    tables: TableSet,
    tenant_id: int,
    baseline: TableSet | None,
    alone_id: int | None,
    reasons: dict[str, str],
    hows: dict[str, str],
) -> float | None:
    inside_ns, count = _inside_ns(tables, tenant_id)
    if count == 0:
        reasons["uvm"] = "no unified-memory migration was recorded"
        return 0.0
    if baseline is None or alone_id is None:
        reasons["uvm"] = f"{count} unified-memory migrations; their number in a solo run is not known"
        hows["uvm"] = f"{recording(switches=False)}   {SOLO}"
        return None
    solo_ns, there = _inside_ns(baseline, alone_id)
    reasons["uvm"] = f"{count} unified-memory migrations in the co-run, {there} solo"
    return max(inside_ns - solo_ns, 0.0)


def _copies(tables: TableSet, tenant_id: int, reasons: dict[str, str], hows: dict[str, str]) -> float | None:
    """Kernels use no copy engine; only those that read host memory share its link."""
    import polars as pl

    tenant = tables.tenants.row(tenant_id, named=True)
    mine = of_process(tenant)
    over_link = pl.col("copy_kind").is_in([1, 2, 10]).fill_null(value=False)
    others = tables.memops.filter((pl.col("device_id") == tenant["device_id"]) & ~mine & over_link)
    if others.is_empty():
        reasons["copy"] = "no other tenant copied between host and device"
        return 0.0
    reasons["copy"] = (
        f"other tenants copied {float(others['bytes'].sum()) / 1e6:.0f} MB over the link; whether this tenant's "
        "kernels read host memory is not recorded; PCIe throughput would show it"
    )
    hows["copy"] = COUNTERS
    return None


def _waves(tables: TableSet, device: int) -> dict[int, float]:
    """Blocks of each tenant's kernels as a part of what the device holds, mean over their time; modelled."""
    import polars as pl

    table = tables.kernel_occupancy.filter(
        (pl.col("device_id") == device) & pl.col("waves").is_not_null() & pl.col("tenant_id").is_not_null()
    )
    mean = (pl.col("waves") * pl.col("total_ns")).sum() / pl.col("total_ns").sum()
    return {int(number): float(waves) for number, waves in table.group_by("tenant_id").agg(mean).iter_rows()}


def _slots(tables: TableSet, tenant_id: int, solo_ns: float, reasons: dict[str, str]) -> float | None:
    import polars as pl

    device = int(tables.tenants.row(tenant_id, named=True)["device_id"])
    waves = _waves(tables, device)
    if tenant_id not in waves:
        reasons["sm_slots"] = "occupancy of its kernels cannot be modelled"
        return None
    exposed = tables.pairwise_interference.filter((pl.col("victim") == tenant_id) & (pl.col("exposure_ns") > 0))
    beside = set(exposed["aggressor"].to_list())
    if beside - set(waves):
        reasons["sm_slots"] = "occupancy of the concurrent kernels cannot be modelled"
        return None
    others = sum(waves[number] for number in beside)
    reasons["sm_slots"] = (
        f"its kernels have {waves[tenant_id]:.2f} waves of blocks on average, kernels of other tenants beside them "
        f"{others:.2f}; 1 wave fills all block slots of the GPU, modelled"
    )
    return slots_part_ns(solo_ns, waves[tenant_id], others)


def _bandwidth(
    tables: TableSet, tenant_id: int, device: int, reasons: dict[str, str], hows: dict[str, str]
) -> bool | None:
    """Whether DRAM was near its ceiling while the tenant's kernels were in flight beside those of others."""
    import polars as pl

    here = (pl.col("device_id") == device) | pl.col("device_id").is_null()
    dram = tables.counters(lambda name: name.str.contains(r"^DRAM (Read|Write) Bandwidth")).filter(here)
    if dram.is_empty():
        reasons["memory"], hows["memory"] = "DRAM bandwidth was not counted", COUNTERS
        return None
    who = tables.tenants.filter((pl.col("device_id") == device) & pl.col("traced")).select(
        "capture", "pid", "tenant_id"
    )
    samples = dram.group_by("time_ns").agg(pl.col("value").sum()).sort("time_ns")
    at_work = []
    for mine in (pl.col("tenant_id") == tenant_id, pl.col("tenant_id") != tenant_id):
        until = _last_begun(tables, who.filter(mine), samples["time_ns"])["until_ns"]
        at_work.append((until >= samples["time_ns"]).fill_null(value=False))
    both = samples.filter(at_work[0] & at_work[1])["value"]
    mean = both.mean()
    if not isinstance(mean, float):
        reasons["memory"] = "no sample of DRAM bandwidth fell into concurrent execution"
        return None
    near = mean >= 100 * NEAR_CEILING
    reasons["memory"] = f"DRAM at {mean:.0f} % of its peak during concurrent execution, sampled" + (
        ": near the limit (bandwidth, and L2 misses)" if near else ": not limiting"
    )
    return near
